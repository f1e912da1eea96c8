"""Checks of an archive's settings: a setting that can never work is refused when somebody sets it,
not when the first task fails.

Registration and the API call this module. It reads the configuration of this host and the running
task managers, but no repository.
"""

from __future__ import annotations

import pwd
import re
import shlex
from collections.abc import Mapping, Sequence

from arkqueue import keeping
from arkqueue.archive_settings import ArchiveSettings
from arkqueue.config import Configuration
from arkqueue.config.receivers import is_mail_address, origin_of
from arkqueue.db.session import Session
from arkqueue.errors import Conflict, Invalid
from arkqueue.executor.exposure import exposure
from arkqueue.model import AUTHOR, COMMIT, LONGEST_GLOB, OF_BRANCH, ArchiveKind, Occasion
from arkqueue.names import without_password
from arkqueue.plan.globs import matches, matches_no_task
from arkqueue.repository import is_relative, locate
from arkqueue.repository.following.addresses import NoAddress
from arkqueue.repository.following.allowance import OWN, check_prefix
from arkqueue.repository.origin import check_author
from arkqueue.runtime.home import known_host_id
from arkqueue.views.installation import task_managers
from arkqueue.workflow.containers import image_fault, matches_no_network, matches_no_user

_WHO = {"process", "process_user", "image"}
"""The settings that decide whether tasks run as processes, and as which user."""


def check_settings(
    session: Session,
    configuration: Configuration,
    name: str,
    kind: ArchiveKind,
    settings: ArchiveSettings,
    present: ArchiveSettings | None = None,
) -> None:
    """Raise `Invalid` or `Conflict` if settings cannot work for an archive of a name.

    ``present``: the settings until now; None: the archive is new. Unchanged settings that depend on
    the host or on task managers are not judged again.
    """
    before = ArchiveSettings() if present is None else present
    changed = {key for key in ArchiveSettings.__dataclass_fields__ if getattr(settings, key) != getattr(before, key)}
    check_image(settings.image)
    if settings.branches and kind is ArchiveKind.SUBVERSION:
        fault = "are for Git archives: a Subversion archive is one folder of its repository"
        raise Invalid(f"branches {', '.join(settings.branches)}", fault, "Leave them out, and give the folder's URL.")
    if "branches" in changed:
        for glob in settings.branches:
            if "[" in glob:
                fault = "matches no branch: [ stands for itself in a glob here, and no branch's name can hold it"
                raise Invalid(f"branch {glob}", fault, "Use * or ?, or name each branch.")
    if changed & {"keep", "keep_logs"}:
        keeping.check(settings.keep, settings.keep_logs)
    if "users" in changed:
        _check_users(settings.users)
    if "networks" in changed:
        _check_networks(settings.networks)
    if "require_approval" in changed:
        _check_guards(settings.require_approval)
    if "workflow_authors" in changed:
        _check_authors(settings.workflow_authors)
    if settings.author is not None and "author" in changed:
        check_author(kind, settings.author)
    if settings.task_url is not None and "task_url" in changed:
        _check_task_url(kind, settings.task_url)
    if "follow" in changed:
        _check_follow(kind, settings.follow)
    if "notify" in changed:
        _check_receivers(configuration, settings.notify, before.notify)
    if changed & _WHO:
        if settings.process_user is not None:
            _check_process_user(
                session, configuration, name, settings, settings.process_user, is_new="process_user" in changed
            )
        if found := exposure(name, settings, configuration.mounts):
            raise Conflict(found.thing, found.fault, found.remedy)


def check_image(image: str | None) -> None:
    """Raise `Invalid` if a text cannot be the name of an image. Whether the image exists shows when
    a task needs it.
    """
    if image is not None and (found := image_fault(image)):
        fault, near = found
        raise Invalid("image", fault, f"Did you mean {near}?" if near else "Correct the name.")


def _check_users(globs: Sequence[str]) -> None:
    for glob in filter(matches_no_user, globs):
        fault = "matches no user that a task may name"
        raise Invalid(
            f"allowed user {glob!r}", fault, "Write 1000 or builder, and 1000:* where tasks name a group, too."
        )


def _check_networks(globs: Sequence[str]) -> None:
    for glob in filter(matches_no_network, globs):
        host = "is the network of the machine itself, which no task gets"
        fault = host if glob == "host" else "matches no network that a task may name"
        raise Invalid(f"allowed network {glob!r}", fault, "Write bridge, or a network's name.")


def _check_guards(globs: Sequence[str]) -> None:
    for glob in globs:
        if matches_no_task(glob.removeprefix("!")):
            fault = "matches no task: names have letters, digits, dots, hyphens and underscores"
            raise Invalid(f"require-approval {glob!r}", fault, "Write publish, or a glob with * and ?: deploy-*")
        if glob.removeprefix("/") == COMMIT:
            fault = f"cannot be held: {COMMIT} runs nothing, and every later revision waits for it"
            remedy = "To approve all that a revision runs, write '*', or name its first tasks."
            raise Invalid(f"require-approval {glob!r}", fault, remedy)
    if globs and all(glob.startswith("!") for glob in globs):
        fault = "leaves tasks out and names none that are left"
        raise Invalid(f"require-approval {globs[0]!r}", fault, "Write '*' before it, for all tasks.")


def _check_authors(globs: Sequence[str]) -> None:
    for glob in globs:
        bare = glob.removeprefix("!")
        if not bare or bare != " ".join(bare.split()):
            fault = "matches no author: arkqueue compares names without surrounding or double spaces"
            raise Invalid(f"workflow-authors {glob!r}", fault, "Write ann, ann@example.org or '*@example.org'.")
    if globs and all(glob.startswith("!") for glob in globs):
        fault = "leaves authors out and names none who are left"
        raise Invalid(f"workflow-authors {globs[0]!r}", fault, "Write '**' before it, for all authors.")


def check_whole(url: str) -> None:
    """Raise `Invalid` for a relative path."""
    if is_relative(url):
        raise Invalid(url, "is a relative path, and the server stands elsewhere", "Give the whole path, or a URL.")


def _check_task_url(kind: ArchiveKind, url: str) -> None:
    check_whole(url)
    location = locate(url, kind)
    if location.shown != location.url:
        fault = "holds a password, which whoever may look at the archive would see"
        remedy = "Keep it in arkqueue.toml ([[credentials]]), and give the URL without it."
        raise Invalid(f"the task URL {location.shown}", fault, remedy)


def _check_follow(kind: ArchiveKind, prefixes: Sequence[str]) -> None:
    for prefix in prefixes:
        thing = f"follow {without_password(prefix)}"
        try:
            check_prefix(prefix)
        except NoAddress as fault:
            remedy = "Give the beginning of a URL, with its host: https://git.example.org/group/"
            if kind is ArchiveKind.SUBVERSION:
                remedy += "; ^/ stands for the archive's own repository."
            raise Invalid(thing, str(fault), remedy) from None
        if prefix.startswith(OWN) and kind is not ArchiveKind.SUBVERSION:
            raise Invalid(thing, "is for Subversion archives", "Give the URL.")


def _check_receivers(
    configuration: Configuration, receivers: Mapping[str, Sequence[str]], before: Mapping[str, Sequence[str]]
) -> None:
    """Raise ``Invalid`` for a receiver to which nothing would be sent. Existing receivers are not
    judged again.
    """
    for receiver, occasions in receivers.items():
        _check_branches(receiver, [word.removeprefix(OF_BRANCH) for word in occasions if word.startswith(OF_BRANCH)])
        if unknown := [word for word in occasions if word not in set(Occasion) and not word.startswith(OF_BRANCH)]:
            fault = f"is to be told when a run is {unknown[0]!r}, which no receiver is told of"
            raise Invalid(f"receiver {receiver}", fault, f"There are: {', '.join(Occasion)}, and branch=GLOB.")
        if receiver in before:
            continue
        if not receiver.startswith(("https://", "http://")):
            _check_mail(configuration, receiver)
            continue
        if not origin_of(receiver) or "#" in receiver or not re.fullmatch(r"[!-~]{1,1000}", receiver):
            fault = "is not a plain URL: it has a user, a fragment, or a character that must be percent-encoded"
            raise Invalid(f"receiver {without_password(receiver)}", fault, "Write it without.")
        if configuration.webhook_for(receiver) is None:
            allowed = ", ".join(entry.url for entry in configuration.webhooks) or "none"
            fault = f"is on a host that no [[webhooks]] of arkqueue.toml allows (allowed: {allowed})"
            raise Invalid(f"receiver {receiver}", fault, "Name another, or have the host allowed there.")


def _check_branches(receiver: str, globs: Sequence[str]) -> None:
    """Raise ``Invalid`` for globs that no branch can match."""
    for glob in globs:
        inside = glob.removeprefix("!")
        if not inside or len(glob) > LONGEST_GLOB or not glob.isprintable() or "[" in glob:
            fault = f"names the branches {glob!r}, which no branch can match"
            raise Invalid(f"receiver {receiver}", fault, "Write branch=main, or a glob with *, ** and ?: branch=release/**")  # fmt: skip
    if globs and all(glob.startswith("!") for glob in globs):
        fault = "leaves branches out and names none that are left"
        raise Invalid(f"receiver {receiver}", fault, "Write branch=** before them.")


def _check_mail(configuration: Configuration, receiver: str) -> None:
    if receiver != AUTHOR and not is_mail_address(receiver):
        fault = "is neither the URL of a webhook nor a mail address"
        raise Invalid(f"receiver {receiver}", fault, "Write https://hooks.example.org/ci, ann@example.org, or author.")
    if configuration.mail is None:
        raise Invalid(f"receiver {receiver}", "gets no mail: arkqueue.toml has no [mail]", "Have it added there.")
    if receiver != AUTHOR and not matches(configuration.mail.recipients, receiver.lower()):
        fault = f"is not an address that [mail] recipients of arkqueue.toml allows ({', '.join(configuration.mail.recipients)})"
        raise Invalid(f"receiver {receiver}", fault, "Name another, or have it allowed there.")


def _check_process_user(
    session: Session, configuration: Configuration, name: str, settings: ArchiveSettings, user: str, *, is_new: bool
) -> None:
    """Raise `Conflict` if no process would ever run as that user.

    A task manager that is not root starts processes of its own user only (design 9). A task manager
    of an earlier version has not reported its user. If none is alive, one that can may come. The
    accounts of other hosts are not known here.
    """
    thing = f"the process user {user!r} of archive {name}"
    if is_new and not settings.process:
        remedy = f"Allow processes with it: --executor process --process-user {shlex.quote(user)}."
        raise Conflict(thing, "it is of no use, as the archive's tasks do not run as processes", remedy)
    if not settings.process:
        return
    alive = [manager for manager in task_managers(session) if manager.alive]
    able = [manager for manager in alive if manager.account in (None, "root", user)]
    if alive and not able:
        as_whom = ", ".join(sorted({f"{manager.account} on {manager.hostname}" for manager in alive}))
        fault = f"only a task manager that runs as root starts processes of another user, and these run as {as_whom}"
        raise Conflict(thing, fault, "Leave it out, or start a task manager as root.")
    here = known_host_id(configuration.home)
    if able and all(manager.host == here and manager.account == "root" for manager in able) and not _is_account(user):
        fault = f"{able[0].hostname} has no such user, and no other host has a task manager that starts processes of another user"
        raise Conflict(thing, fault, "Create the user, or name another.")


def _is_account(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except (KeyError, ValueError):
        return False
    return True
