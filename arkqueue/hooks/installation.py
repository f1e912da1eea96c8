"""Puts arkqueue's hooks into a repository of this host, and removes them.

The files of an installation:

    hooks/post-commit, …    arkqueue's scripts; the second line of each is "# arkqueue-hook"
    hooks/post-commit.user  the user's own hook, renamed; arkqueue's script calls it
    arkqueue/notify         sends one notice to each server, detached from the commit
    arkqueue/servers/       a folder for each server, whose name is the server's URL:
        client.conf         the client's configuration, with the token; only users who may write to
                            the repository can read it
        send                starts the client
    arkqueue/unchecked/     Subversion: transactions that the checker could not read; post-commit
                            reports them

``arkqueue/`` is in the repository's own folder, never in a work tree. Nothing is written before
everything has been checked.

`place` determines where these folders are, and opens them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from arkqueue.errors import Conflict, Invalid
from arkqueue.hooks.folders import Folder
from arkqueue.hooks.place import CHECKING, Repository, about_place, opened
from arkqueue.model import ArchiveKind
from arkqueue.runtime.accounts import account
from arkqueue.runtime.output import LongOutput, run_limited

CHECK_TIMEOUT = 20
"""The most seconds that a commit waits for its check."""

LONGEST_NAME = 255
"""The most bytes of a file's name."""
_LONGEST_VERSION = 2**16
"""The most bytes in which a wget tells its version."""

_MARK = b"# arkqueue-hook"


@dataclass(frozen=True, slots=True)
class Installed:
    """The result of `install`. ``hooks``: the hooks that are now arkqueue's. ``client``: the
    program that sends notices (None: arkqueue only scans). ``notes``: remarks for the person.
    ``name``: the name of the repository in notices.
    """

    kind: ArchiveKind
    name: str
    hooks: tuple[Path, ...]
    client: str | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Removed:
    """The result of `uninstall`: the removed ``paths``, the ``servers`` that get no more notices,
    and those that are ``left``.
    """

    paths: tuple[Path, ...]
    servers: tuple[str, ...]
    left: tuple[str, ...]


def install(
    repository: Path | str,
    *,
    server: str,
    token: str,
    url: str | None = None,
    check: bool = False,
    checker: str = "arkqueue",
    check_timeout: int = CHECK_TIMEOUT,
    search: str | None = None,
) -> Installed:
    """Put the hooks into a repository of this host, or update those of an earlier installation. The
    hooks still notify other servers.

    ``server``: the API's URL. ``token``: a token of scope ``hook``. ``url``: the URL by which the
    server watches the repository, if that is not its path (Subversion: its UUID). ``check``: True
    to install also the hook that refuses faulty workflow files by calling ``checker``, the absolute
    path of the ``arkqueue`` program. ``search``: the PATH in which to look for programs (None: this
    process's).
    """
    _templates()  # before `opened` drops root's rights, while they can be read
    server = _checked_url(server)
    if not re.fullmatch(r"[A-Za-z0-9._~+/=-]+", token):
        raise Invalid(
            "the token", "holds characters that no token has", "Give it as `arkqueue token create` printed it."
        )
    with opened(repository) as found:
        called = url or found.name
        names = [] if (client := _client(search)) is None else list(found.notifying)
        with found.open_hooks() as hooks:
            if check or (hooks and _is_ours(hooks, CHECKING[found.kind])):
                names.append(CHECKING[found.kind])
            if hooks:
                for name in names:
                    _refuse_tangles(hooks, name)
        ours = found.own.status("arkqueue")
        if ours is not None and stat.S_ISLNK(ours.st_mode):
            raise Conflict(str(found.ours), "is a symlink", "Remove it: what is written there may not land elsewhere.")

        notes = about_place(found)
        values = {
            "FOLDER": shlex.quote(str(found.ours)),
            "REPOSITORY": shlex.quote(str(found.folder)),
        }
        if CHECKING[found.kind] in names:
            notes += _find_checker(found, checker, check_timeout, search, values)
        former = _told_before(found)
        found.own.make("arkqueue", found.like, 0o755)
        with found.own.inner("arkqueue") as inside:
            if client is None:
                notes.append(
                    "neither curl nor GNU wget is installed, so the hook cannot notify arkqueue (scan only): it finds commits once a minute; install curl and run this command again"
                )
            else:
                notes += _install_client(found, inside, client, server, called, token, search, values)
                notes += _about_others(found, inside, server, former)
            if "pre-commit" in names:
                inside.make("unchecked", found.data, stat.S_IMODE(found.data.st_mode))
        if found.way:
            with found.base.inner(*found.way[:-1]) as above:
                if above.status(found.way[-1]) is None:
                    above.make(found.way[-1], found.like, 0o755)
        with found.base.inner(*found.way) as hooks:
            for name in names:
                notes += _put_hook(found, hooks, name, values)
    paths = tuple(found.hooks / name for name in names)
    return Installed(found.kind, called, paths, client.name if client else None, tuple(notes))


def uninstall(repository: Path | str, *, server: str | None = None) -> Removed:
    """Remove the hooks, and give the user's own hooks their names back. ``server``: end only the
    notices to this server, if the hooks notify others, too.
    """
    with opened(repository) as found:
        told = _told(found)
        if server is not None and (server := _checked_url(server)) not in told:
            whom = f"notify {' and '.join(url or 'a server whose address cannot be read' for url in told)}"
            raise Invalid(
                server,
                f"gets no notices from the hooks of {found.folder}, which {whom if told else 'notify no server'}",
                ending(found.folder, told),
            )
        if server is not None and len(told) > 1:
            with found.own.inner("arkqueue", "servers") as servers:
                servers.remove(_folder_name(server))
            left = tuple(url for url in told if url != server)
            return Removed((found.servers / _folder_name(server),), (server,), left)
        removed = []
        with found.open_hooks() as hooks:
            for name in found.all_hooks:
                if hooks is None or not _is_ours(hooks, name):
                    continue
                if hooks.status(f"{name}.user") is not None:
                    hooks.rename(f"{name}.user", name)
                else:
                    hooks.unlink(name)
                removed.append(found.hooks / name)
        ours = found.own.status("arkqueue")
        if ours is not None and stat.S_ISDIR(ours.st_mode):
            found.own.remove("arkqueue")
            removed.append(found.ours)
        return Removed(tuple(removed), tuple(told), ())


def told(repository: Path | str) -> tuple[str, ...]:
    """The URLs of the servers that the hooks of a repository notify of commits; "" for the server
    of an earlier version's hooks, if its URL cannot be read.
    """
    with opened(repository) as found:
        return tuple(_told(found))


def ending(folder: Path | str, servers: Sequence[str]) -> str:
    """The remedy: a command for each server to which notices can be ended."""
    commands = [shlex.join(["arkqueue", "hook", "uninstall", "--server", url, str(folder)]) for url in servers if url]
    return f"To end the notices to one: {'; or '.join(commands)}" if commands else ""


# The client


def _client(search: str | None) -> Path | None:
    """The path of curl, or of a wget that reads a configuration file. A wget that takes the token
    only as an argument does not count.
    """
    if curl := shutil.which("curl", path=search):
        return Path(curl).absolute()
    if wget := shutil.which("wget", path=search):
        with suppress(LongOutput):
            if run_limited([wget, "--version"], longest=_LONGEST_VERSION).stdout.startswith(b"GNU Wget"):
                return Path(wget).absolute()
    return None


def _checked_url(server: str) -> str:
    server = server.rstrip("/")
    plain = re.fullmatch(r"https?://[!-~]+", server) and not re.search(r"[\"'\\`<>@#?]", server)
    if not plain or not urlsplit(server).hostname:
        raise Invalid(repr(server), "is not the address of a server", "Write it like http://127.0.0.1:8417.")
    return server


def _install_client(
    repository: Repository,
    inside: Folder,
    client: Path,
    server: str,
    called: str,
    token: str,
    search: str | None,
    values: dict[str, str],
) -> list[str]:
    """Write the client's configuration for one server, and the script that starts the client. Puts
    the command with which the hooks start this script into ``values``.
    """
    folder, url = repository.servers / _folder_name(server), f"{server}/api/v1/notices"
    headers = [f"Authorization: Bearer {token}", "Content-Type: application/json"]
    configuration = folder / "client.conf"
    if client.name == "curl":
        lines = [f'header = "{header}"' for header in headers]
        lines += [f'url = "{url}"', "globoff", "silent", 'output = "/dev/null"', "connect-timeout = 2", "max-time = 10"]
        command = [str(client), "-q", "--config", str(configuration), "--data-binary"]
    else:
        lines = [f"header = {header}" for header in headers]
        lines += ["tries = 1", "connect_timeout = 2", "timeout = 10", "output_document = /dev/null", "hsts = off"]
        # wget's own limits apply to each wait, not to all of them together.
        limit = shutil.which("timeout", path=search)
        command = [*([os.path.abspath(limit), "10"] if limit else []), str(client), "-q", f"--config={configuration}"]
        command += [url, "--post-data"]
    group = repository.data.st_mode & stat.S_IWGRP
    # The hook of a Subversion repository reads the UUID at each commit.
    beginning = f'{{"repository":{json.dumps(called)}' if repository.kind is ArchiveKind.GIT else ""
    send = {"CLIENT": shlex.join(command), "BEGINNING": shlex.quote(beginning)}
    like = repository.like
    inside.make("servers", like, 0o755)
    with inside.inner("servers") as servers:
        servers.make(folder.name, like, 0o755)
        with servers.inner(folder.name) as mine:
            is_given = mine.write(
                "client.conf", "".join(f"{line}\n" for line in lines), like, 0o640 if group else 0o600
            )
            mine.write("send", _rendered("send", send), like, 0o644)
    inside.write("notify", _rendered("notify", values), like, 0o755)
    start = [os.path.abspath(path), "-i"] if (path := shutil.which("env", path=search)) else []
    start += [os.path.abspath(path)] if (path := shutil.which("setsid", path=search)) else []
    values["SEND"] = shlex.join([*start, _shell(search), str(repository.ours / "notify")])
    if not group and repository.data.st_uid != os.geteuid():
        return [
            f"{configuration} is not readable for the repository's owner, whose commits the sweep sees: run this as that user"
        ]
    if group and not is_given:
        return [
            f"{configuration} is not readable for the repository's group, which {account()} is not in: its commits are seen by the sweep"
        ]
    return []


def _folder_name(server: str) -> str:
    """The name of a server's folder: the quoted URL, so that `_told` can read it."""
    name = quote(server, safe=":")
    if len(name) > LONGEST_NAME:
        raise Invalid(server, "is too long for the address of a server", "Give the server a shorter one.")
    return name


def _told(repository: Repository) -> list[str]:
    """The URLs of the servers that the hooks notify of commits."""
    try:
        with repository.own.inner("arkqueue", "servers") as servers:
            return [unquote(name) for name in servers.names()]
    except OSError:  # there is no such folder
        return [] if (former := _told_before(repository)) is None else [former]


def _told_before(repository: Repository) -> str | None:
    """The URL of the one server that an earlier version's hooks notified; "" if it cannot be read,
    None if there are no such hooks.
    """
    try:
        inside = repository.own.inner("arkqueue")
    except OSError:
        return None
    with inside:
        if inside.status("client.conf") is None:
            return None
        text = b"\n".join(inside.read(name, 65536) for name in ("client.conf", "notify")).decode("utf-8", "replace")
    found = re.search(r"(https?://[!-~]+?)/api/v1/notices", text)
    return found[1] if found else ""


def _about_others(repository: Repository, inside: Folder, server: str, former: str | None) -> list[str]:
    """The notes about other servers that the hooks notify, and about the server of an earlier
    version's hooks (``former``), which they notify no more.
    """
    if former is not None:
        inside.unlink("client.conf")
    notes = []
    if former not in (None, server):
        notes.append(
            f"the hooks notified {former or 'another server'} of commits, and no longer do: run `arkqueue hook install` there again, or "
            "make the token of these hooks worthless there (`arkqueue token list`)"
        )
    for other in _told(repository):
        if other != server:
            end = shlex.join(["arkqueue", "hook", "uninstall", "--server", other, str(repository.folder)])
            notes.append(f"the hooks still notify {other} of commits, too; to end that: {end}")
    return notes


def _shell(search: str | None) -> str:
    """A shell that can close descriptors above 9, if there is one. It starts after the commit."""
    for shell in ("/bin/sh", shutil.which("bash", path=search)):
        if shell and not subprocess.call([shell, "-c", "exec 10>&-"], stderr=subprocess.DEVNULL):
            return shell
    return "/bin/sh"


# The checker's side of the installation


def _find_checker(
    repository: Repository, checker: str, timeout: int, search: str | None, values: dict[str, str]
) -> list[str]:
    """Put the command with which the checking hook starts the checker into ``values``."""
    program = shutil.which(checker, path=search)
    if program is None:
        raise Invalid(
            checker, "is not a program", "Give the path of the arkqueue program that is to check workflow files."
        )
    limit = shutil.which("timeout", path=search)
    limited = [os.path.abspath(limit), "-s", "KILL", str(timeout)] if limit else []
    values["CHECK"] = shlex.join([*limited, os.path.abspath(program), "hook", "check"])
    if repository.kind is ArchiveKind.SUBVERSION:
        svnlook = shutil.which("svnlook", path=search)
        if svnlook is None:
            raise Invalid("svnlook", "is not here", "Install Subversion's tools: the checking hook asks svnlook.")
        values["PATH"] = shlex.quote(f"{os.path.dirname(os.path.abspath(svnlook))}:{os.defpath}")
    return [] if limit else ["there is no `timeout` program: a commit waits for its check without limit"]


# Hooks of ours and of others


def _put_hook(repository: Repository, hooks: Folder, name: str, values: Mapping[str, str]) -> list[str]:
    """Write one hook of arkqueue in the place of the user's own hook, which it calls."""
    user = f"{name}.user"
    notes = []
    if hooks.status(name) is not None and not _is_ours(hooks, name):
        hooks.rename(name, user)
        notes.append(f"your {name} is now {user} and is called by ours")
    template = f"{repository.kind.value}/{'post-commit' if name in {'post-merge', 'post-rewrite'} else name}"
    hooks.write(name, _rendered(template, {**values, "NAME": name}), repository.like, 0o755)
    text = hooks.read(user, 65536, follow=True)
    if text and not hooks.is_program(user):
        notes.append(f"{user} is not executable, so it is kept but not run")
    elif re.search(rb"basename|\$\{0##|__file__|argv\[0\]", text):
        notes.append(f"{user} seems to ask for its own name, which now ends in .user: see that it still works")
    return notes


def _refuse_tangles(hooks: Folder, name: str) -> None:
    """Raise Conflict if replacing the present hook would lose a hook, or make two hooks call each
    other for ever.
    """
    if hooks.status(name) is None or _is_ours(hooks, name):
        return
    copies = [other for other in hooks.names() if other.startswith(name) and other != name and _is_ours(hooks, other)]
    if copies:
        raise Conflict(
            str(hooks.path / name),
            f"is another program's hook, and arkqueue's is now {copies[0]}, which it may call",
            f"If it does, all is well, but to renew ours: put it back as {name}, and the other as {name}.user.",
        )
    if hooks.status(f"{name}.user") is not None:
        raise Conflict(
            str(hooks.path / name),
            f"is not arkqueue's hook, and {name}.user exists too",
            f"Join the two in {name}.user.",
        )


def _is_ours(hooks: Folder, name: str) -> bool:
    """Whether a hook is arkqueue's. A symlink is the user's, wherever it leads."""
    first, _, rest = hooks.read(name, 65536).partition(b"\n")
    return first.startswith(b"#!") and rest.startswith(_MARK)


@cache
def _templates() -> dict[str, str]:
    """The templates of the project's folder ``hooks/``, by their paths in it."""
    package = Path(__file__).parents[1]
    # Inside the installed package, or beside it in a checkout.
    folder = package / "_hooks" if (package / "_hooks").is_dir() else package.parent / "hooks"
    return {str(path.relative_to(folder)): path.read_text("utf-8") for path in folder.rglob("*") if path.is_file()}


def _rendered(template: str, values: Mapping[str, str]) -> str:
    """A script made from a template; all values are already quoted for the shell."""
    return re.sub(r"@([A-Z]+)@", lambda match: values[match[1]], _templates()[template])
