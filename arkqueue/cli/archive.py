"""``arkqueue archive …``, ``notify`` and ``sync``: which repositories are watched, and being looked at."""

from __future__ import annotations

import re
import shlex
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import click

from arkqueue.cli.options import as_json, calls_server
from arkqueue.cli.output import ago, at, bold, dim, moment, print_json, say, table
from arkqueue.model import AUTHOR, USUAL_TIER
from arkqueue.text import one_line, visible

if TYPE_CHECKING:
    from arkqueue.cli.client import Client

LOOK = 0.1
"""Seconds between two looks at whether a repository was read."""
LOOK_AT_HEALTH = 1.0
"""Seconds between two looks at whether anybody is there to read it."""
UNSET = {
    "tier": str(USUAL_TIER),
    "max_running": "no limit",
    "keep": "everything for ever",
    "keep_logs": "for ever",
    "images": "every one",
    "users": "every one",
    "networks": "bridge, none",
    "branches": "the main one",
    "notify": "nobody",
}
"""What holds where one of these settings is unset; of others, nothing."""


@click.group(no_args_is_help=True)
def archive() -> None:
    """Register archives and look after them."""


def _settings(command: Any) -> Any:
    """The options that ``add`` and ``set`` share."""
    for option in reversed(
        [
            click.option("--branch", "branches", multiple=True, metavar="GLOB", help="Git: a branch to track, or a glob of them (** for all); again for more."),
            click.option("--executor", type=click.Choice(["process", "none"]), help="process: its tasks run as processes of a task manager's host."),
            click.option("--process-user", metavar="USER", help="The operating system's user that its processes run as."),
            click.option("--author", metavar="NAME", help="Who commits for its tasks; of a Git archive: \"Name <email>\"."),
            click.option("--task-url", metavar="URL", help="Where its tasks' working copies commit to."),
            click.option("--follow", "follow", multiple=True, metavar="URL-PREFIX", help="What its working copies fetch beside the archive: externals, submodules and Git LFS files whose URL begins so; again for more. Else: none."),
            click.option("--image", metavar="IMAGE", help="The container image of its tasks that name none."),
            click.option("--allow-image", "images", multiple=True, metavar="GLOB", help="An image that its tasks may name, or a glob of them; again for more. Else: every image."),
            click.option("--allow-user", "users", multiple=True, metavar="GLOB", help="A user (or user:group) that they may be in a container; again for more. Else: every one."),
            click.option("--tier", metavar="N", help="Archives of a lower tier go first, those of one take turns; 0 to 100. Else: 5."),
            click.option("--max-running", metavar="N", help="How many of its attempts run at once, on all task managers. Else, and with none: no limit."),
            click.option("--allow-network", "networks", multiple=True, metavar="GLOB", help="A network that they may name; again for more. Else: bridge and none."),
        ]
    ):  # fmt: skip
        command = option(command)
    return command


@archive.command(
    epilog="Example: arkqueue archive add papers file:///srv/svn/papers --executor process. "
    "With --executor process, whoever may commit to the archive can do on the task manager's host whatever its user may do."
)
@click.argument("name")
@click.argument("url")
@click.option("--from", "start", metavar="REV", help="Start after this revision instead of at the head.")
@click.option("--kind", type=click.Choice(["git", "subversion"]), help="Where the URL leaves it open.")
@_settings
@as_json
@calls_server
def add(
    client: Client, name: str, url: str, start: str | None, kind: str | None, as_json: bool, **options: Any
) -> None:
    """Watch the repository at URL, a path on the server or any address that Git or Subversion takes, under NAME."""
    body = {"name": name, "url": _address(url), "kind": kind, "start": start, **_given(options)}
    added = client.post("/archives", body)
    if as_json:
        print_json(added)
        return
    where = ", ".join(f"{_branch_name(b)}{b['rev']}" for b in added["branches"] if b["rev"] is not None)
    start_at = f"its ledger starts at revision {where}" if where else "it has no revision yet"
    say(f"{bold(name)}: {added['kind']} archive {visible(added['url'])} is watched; {start_at}")
    _tell_what_it_grants(added)
    if not added["settings"]["process"] and not added["settings"]["image"]:
        say(f"note: to give those that name none an image: arkqueue archive set {name} --image IMAGE")
        say(f"note: or to run them as processes: arkqueue archive set {name} --executor process")
    if added["repository"].startswith(("/", "file://")):
        path = added["repository"]
        if path.startswith("file://"):
            path = unquote(path.removeprefix("file://"))
        say(f"next: let its commits be told at once: arkqueue hook install {visible(shlex.quote(path))}")


@archive.command("list")
@as_json
@calls_server
def list_(client: Client, as_json: bool) -> None:
    """List the watched archives."""
    found = client.get("/archives")
    if as_json:
        print_json(found)
    elif not found:
        say("no archives; add one: arkqueue archive add NAME URL", err=True)
    else:
        rows = [(a["name"], a["kind"], _head(a), _health(a), visible(a["url"])) for a in found]
        table(rows, ("ARCHIVE", "KIND", "HEAD", "STATE", "URL"))


@archive.command()
@click.argument("name")
@as_json
@calls_server
def show(client: Client, name: str, as_json: bool) -> None:
    """Show an archive: its branches, its schedules, and what is the matter with it."""
    found = _get(client, name)
    if as_json:
        print_json(found)
        return
    say(f"{bold(found['name'])}  {_health(found)}")
    table([("  " + dim(key), value) for key, value in _facts(found) if value])
    _tell_what_holds_it_up(found, client)
    _tell_branches_and_schedules(found)


def _facts(archive: Any) -> list[tuple[str, str]]:
    """What an archive is and how it is looked after; an empty text says nothing."""
    settings = archive["settings"]
    return [
        ("kind", archive["kind"]),
        ("url", visible(archive["url"])),
        ("folder", visible(archive["folder"])),
        ("tasks run", _ways(settings)),
        ("images", _shown(settings["images"])),
        ("users", _shown(settings["users"])),
        ("networks", _shown(settings["networks"])),
        ("tracks", ", ".join(map(visible, settings["branches"]))),
        ("workflows by", _shown(settings["workflow_authors"])),
        ("author", visible(settings["author"] or "")),
        ("task url", visible(settings["task_url"] or "")),
        ("follows", _shown(settings["follow"])),
        (
            "approval",
            _shown(settings["require_approval"]) + (", not by the author" if settings["approval_not_author"] else ""),
        ),
        ("tier", str(settings["tier"]) if settings["tier"] != USUAL_TIER else ""),
        ("max running", str(settings["max_running"] or "")),
        ("keeps", _shown(settings["keep"])),
        ("keeps logs", settings["keep_logs"] or ""),
        ("notifies", _shown(settings["notify"])),
        ("added", at(archive["created_at"])),
        ("removed", at(archive["removed_at"]) if archive["removed_at"] else ""),
        ("read", at(archive["read_at"])),
        ("next reading", at(archive["next_read_at"]) if not archive["stopped"] and not archive["removed_at"] else ""),
        ("notice", _notice(archive["notice"])),
    ]


def _tell_what_holds_it_up(archive: Any, client: Client) -> None:
    """Why nothing of it starts, or why it is not read, each with the command that helps."""
    if archive["hold"]:
        say(f"\n{click.style(_hold(archive), fg='magenta')}")
        say(f"  arkqueue unhold {archive['name']}")
    if archive["held"]:
        wait = "task waits" if archive["held"] == 1 else "tasks wait"
        say(f"\n{archive['held']} {wait} for a release: arkqueue release {archive['name']} --all")
    if archive["stopped"] or archive["trouble"]:
        since = f" (since {at(archive['trouble_since'])})" if archive["trouble_since"] else ""
        say(f"\n{click.style(visible(archive['stopped'] or archive['trouble']), fg='red')}{since}")
        say(f"  {visible(archive['remedy'])}")
    if pause := archive["paused"]:
        what = "the whole installation is paused" if pause["with_all"] else "it is paused"
        since, by = f" since {at(pause['at'])}" if pause["at"] else "", f" by {pause['by']}" if pause["by"] else ""
        why = f": {pause['reason']}" if pause["reason"] else ""
        say(f"\n{click.style(visible(f'{what}{since}{by}{why}'), fg='yellow')}")
        say(f"  Nothing of it starts. {visible(pause['resume'])}")
        if pause["twice"]:
            say("  The whole installation is paused, too: arkqueue resume --all")
    if _is_overdue(archive) and _nobody_reads(client):
        say(f"\n{click.style('no queue manager is running, so that it is not read', fg='red')}")
        say("  Start one: arkqueue manager")
    if lost := _untracked(archive):
        say(f"\n{click.style(lost, fg='red')}")


def _tell_branches_and_schedules(archive: Any) -> None:
    rows = [
        (visible(b["name"]) or "-", str(b["rev"] if b["rev"] is not None else "-"), _marks(b), ago(b["date"]), visible(b["author"] or ""), one_line(b["message"] or ""))
        for b in archive["branches"]
    ]  # fmt: skip
    say()
    table(rows, ("BRANCH", "HEAD", "NOTE", "WHEN", "AUTHOR", "MESSAGE"))
    if archive["schedules"]:
        say()
        schedules = [
            (s["cron"], s["timezone"], visible(s["branch"]) or "-", ago(s["next_at"]), ago(s["fired_at"]), ", ".join(s["tasks"]), visible(s["last_run"] or ""), _left_out(s))
            for s in archive["schedules"]
        ]  # fmt: skip
        table(schedules, ("SCHEDULE", "ZONE", "BRANCH", "NEXT", "LAST", "TASKS", "LAST RUN", "LEFT OUT"))


def _hold(archive: Any) -> str:
    """Who has put an archive on hold, since when and why."""
    hold = archive["hold"]
    said = f": {one_line(hold['reason'])}" if hold["reason"] else ""
    return f"on hold by {visible(hold['by'])} since {at(hold['at'])}{said}"


def _left_out(schedule: Any) -> str:
    """How many fires made no run, as the last run stands for them."""
    return f"{schedule['left_out']} since {at(schedule['left_out_since'])}" if schedule["left_out"] else ""


@archive.command(
    "set",
    epilog="Examples: arkqueue archive set papers --executor process; arkqueue archive set papers tier 3; "
    "arkqueue archive set papers follow https://git.example.org/group/",
)
@click.argument("name")
@click.argument(
    "words",
    nargs=-1,
    metavar="[tier N | max_running N | keep STATE=AGE... | keep-logs AGE | follow URL-PREFIX... | require-approval GLOB... | workflow-authors GLOB... | notify RECEIVER [OCCASION...]...]",
)
@click.option("--not-author", is_flag=True, help="With require-approval: nobody approves a revision of his own.")
@click.option("--dry-run", is_flag=True, help="With keep or keep-logs: change nothing, and only say what would go now.")
@_settings
@as_json
@calls_server
def set_(
    client: Client, name: str, words: tuple[str, ...], not_author: bool, dry_run: bool, as_json: bool, **options: Any
) -> None:
    """Change how an archive is looked after; what is not given stays, and an empty text unsets.

    "follow URL-PREFIX..." is the same as --follow for each of them; "tier N" and "max_running N" are the same as --tier N and --max-running N.
    "require-approval GLOB..." holds every task whose name matches until somebody with a token
    of scope approve releases it, whatever the workflow file says; "workflow-authors GLOB..." does so with the runs of workflow files that somebody else has changed.
    An empty text ends either.

    "keep completed=30d failed=400d" purges runs that have been in these states for so long, and keeps all others; "keep-logs 90d" removes logs alone. An empty text
    keeps everything. Both hold for an archive that was removed, too, and can be changed there.

    "notify ann@example.org failed fixed https://hooks.example.org/ci" tells by mail and by webhook what becomes of runs: of those that are failed, fixed, held or
    completed, and of an archive that is stopped; without these words, of all but completed. "author" is whoever made the commit of a run. It names all
    receivers; an empty text ends all of it.
    """
    from arkqueue.cli.client import archive_path

    given: dict[str, Any] = {}
    key, values = (words[0], words[1:]) if words else ("", ())
    if key == "require-approval" and values:
        given = {"require_approval": [glob for glob in values if glob], "approval_not_author": not_author}
    elif key == "workflow-authors" and values and not not_author:
        given = {"workflow_authors": [glob for glob in values if glob]}
    elif not_author:
        raise click.UsageError('--not-author goes with "require-approval" and the globs of tasks.')
    elif key == "keep" and values:
        keep = [_kept(value) for value in values if value]
        if len(dict(keep)) < len(keep):
            raise click.UsageError("Name each state once after keep.")
        given = {"keep": dict(keep)}
    elif key == "keep-logs" and len(values) == 1:
        given = {"keep_logs": values[0] or None}
    elif key == "notify" and values:
        given = {"notify": _receivers(values)}
    elif key == "follow" and values and not options[key]:
        options[key] = values
    elif key in ("tier", "max_running") and len(values) == 1 and not options[key]:
        options[key] = values[0]
    elif words:
        raise click.UsageError(
            'After NAME come options, or "tier N", or "max_running N", or "keep" and STATE=AGE, or "keep-logs AGE", or "follow" and the URL prefixes that are followed, or "require-approval" or "workflow-authors" and globs, or "notify" and receivers.'
        )
    body = _given(options) | given
    if not body:
        raise click.UsageError("Give at least one option of what to change.")
    if dry_run and not body.keys() <= {"keep", "keep_logs"}:
        raise click.UsageError("--dry-run goes with keep and with keep-logs, and with no other setting.")
    changed = client.send("PATCH", archive_path(name), body, dry_run="true" if dry_run else None)
    if as_json:
        print_json(changed)
    elif dry_run:
        _tell_what_goes(name, changed["goes"])
    else:
        settings = changed["settings"]
        shown = {key: _shown(settings[key]) or UNSET.get(key, "none") for key in body}
        say(f"{bold(name)}: {', '.join(f'{key} {value}' for key, value in shown.items())}")
        if body.keys() & {"process", "process_user", "image"}:
            _tell_what_it_grants(changed)
        if any(settings[key] for key in body.keys() & {"keep", "keep_logs"}):
            say(f"A queue manager purges what is older within the hour. To do it now: arkqueue purge {name}")


def _tell_what_goes(name: str, goes: Any) -> None:
    """What a trial of ages found: how much would go, and the first and the last run of it."""
    runs, kept, more = len(goes["runs"]), len(goes["kept"]), "" if goes["is_whole"] else "at least "
    say("Nothing is changed. With these rules:")
    logs = f", and the logs of {more}{goes['logs']} attempts" if goes["logs"] else ""
    say(f"{bold(visible(name))}: {more}{runs} run{'' if runs == 1 else 's'} would go now{logs}")
    for which in ("oldest", "newest"):
        if run := goes[which]:
            say(f"  the {which}: {visible(run['run'])}, made {at(run['created_at'])}")
    if kept:
        say(
            f"{kept} more {'is' if kept == 1 else 'are'} old enough and kept, as something depends on them: arkqueue purge says what"
        )


@archive.command(
    epilog="An archive whose repository was restored from a backup, or replaced, is stopped until this says where to go on. What the ledger held so far stays readable."
)
@click.argument("name")
@click.argument("revision")
@click.option("--branch", metavar="BRANCH", help="Another than the main branch.")
@as_json
@calls_server
def rewind(client: Client, name: str, revision: str, branch: str | None, as_json: bool) -> None:
    """Start an archive's ledger anew at REVISION, a number of its ledger or a commit."""
    from arkqueue.cli.client import archive_path

    found = client.post(f"{archive_path(name)}/rewind", {"revision": revision, "branch": branch})
    if as_json:
        print_json(found)
    else:
        say(f"{bold(name)}: its ledger starts anew at revision {_head(found)}")
        if found["note"]:
            say(f"note: {visible(found['note'])}")
        if found["stopped"]:
            say(f"it stays stopped: {visible(found['stopped'])}")


@archive.command()
@click.argument("revision", metavar="NAME@REV")
@as_json
@calls_server
def accept(client: Client, revision: str, as_json: bool) -> None:
    """Take over that the author or the date of a Subversion revision was corrected."""
    from arkqueue.cli.client import archive_path
    from arkqueue.names import parse_name

    name = parse_name(revision)
    if name.task is not None or name.run is not None or not name.revision.isdecimal():
        raise click.BadParameter(f"{revision!r} is not the name of a Subversion revision.", param_hint="NAME@REV")
    body = {"revision": int(name.revision), "branch": name.branch}
    found = client.post(f"{archive_path(name.archive)}/accept", body)
    if as_json:
        print_json(found)
    else:
        say(f"{bold(name.archive)}: {visible(found['note'])}")
        if found["stopped"]:
            say(f"it stays stopped: {visible(found['stopped'])}")


@archive.command()
@click.argument("name")
@calls_server
def remove(client: Client, name: str) -> None:
    """Stop watching an archive: what has not started is canceled, history stays readable."""
    from arkqueue.cli.client import archive_path

    settings = _get(client, name)["settings"]
    client.send("DELETE", archive_path(name))
    say(f"{bold(name)}: is watched no longer")
    if settings["keep"] or settings["keep_logs"]:
        say("note: its history is purged by its age as before. To keep all of it:")
        for word in ("keep", "keep-logs"):
            if settings[word.replace("-", "_")]:
                say(f"note: arkqueue archive set {name} {word} ''")


@click.command()
@click.argument("archive")
@click.argument("revision", required=False)
@calls_server
def notify(client: Client, archive: str, revision: str | None) -> None:
    """Say that an archive's repository has a new revision, as a hook does."""
    from arkqueue.cli.client import archive_path

    body: dict[str, Any] = {}
    if revision is not None:
        if re.fullmatch(r"g?[0-9a-fA-F]{40}([0-9a-fA-F]{24})?", revision):
            body = {"new": revision.removeprefix("g").lower()}
        elif re.fullmatch(r"r?[0-9]{1,18}", revision):
            body = {"revision": int(revision.removeprefix("r"))}
        else:
            raise click.BadParameter(
                f"{revision!r} is neither a revision number nor a full SHA.", param_hint="REVISION"
            )
    client.post(f"{archive_path(archive)}/notices", body)
    _looked_at(client, archive, f" for {visible(revision)}" if revision else "")


@click.command()
@click.argument("archive")
@click.option("--wait", is_flag=True, help="Wait until it was read; exit with 1 if it cannot be.")
@as_json
@calls_server
def sync(client: Client, archive: str, wait: bool, as_json: bool) -> None:
    """Look at an archive's repository now."""
    from arkqueue.cli.client import archive_path

    before = _get(client, archive)
    found = client.post(f"{archive_path(archive)}/sync")
    looks_at, told = time.monotonic() + LOOK_AT_HEALTH, False
    while wait and not found["stopped"] and not _answered(found) and not _failed_since(found, before):
        time.sleep(LOOK)
        if not told and time.monotonic() > looks_at:
            told = _nobody_reads(client)
            looks_at = time.monotonic() + LOOK_AT_HEALTH
            if told:
                waits = "no queue manager is running; it is waited for"
                say(f"arkqueue: {visible(archive)}: {waits}. Start one: arkqueue manager", err=True)
        found = _get(client, archive)
    if as_json:
        print_json(found)
    elif not wait:
        _looked_at(client, archive)
    elif found["stopped"] or found["trouble"]:
        said, remedy = visible(found["stopped"] or found["trouble"]), visible(found["remedy"])
        said = said.removeprefix(f"{archive}: ").rstrip(".")
        say(f"{archive}: {said}" + ("" if remedy in said else f". {remedy}"), err=True)
    else:
        say(f"{bold(archive)}: is read; its head is {_head(found)}")
        if lost := _untracked(found):
            say(f"note: {lost}")
    if wait and (found["stopped"] or found["trouble"]):
        sys.exit(1)


def _is_overdue(found: Any) -> bool:
    """Whether an archive that is read should have been by now."""
    due = moment(found["next_read_at"])
    return not found["stopped"] and not found["removed_at"] and due is not None and due < datetime.now(UTC)


def _nobody_reads(client: Client) -> bool:
    """Whether no queue manager is there, by the server's word."""
    return not client.get("/healthz").get("queue_manager", True)


def _looked_at(client: Client, archive: str, what: str = "") -> None:
    """Say that it will be looked at, and where nobody would, that."""
    say(f"{bold(archive)}: will be looked at{what}")
    if _nobody_reads(client):
        say("note: no queue manager is running; it is looked at when one is. Start one: arkqueue manager")


def _answered(found: Any) -> bool:
    """Whether the repository was read after the last notice; a reading that was under way then may have missed what it is about."""
    return found["notice"] is None or found["notice"]["expected"]


def _failed_since(now: Any, before: Any) -> bool:
    """Whether a reading has failed since: it has put the next one off."""
    return bool(now["trouble"]) and (
        now["trouble_since"] != before["trouble_since"] or now["next_read_at"] > before["next_read_at"]
    )


def _get(client: Client, name: str) -> Any:
    from arkqueue.cli.client import archive_path

    return client.get(archive_path(name))


def _tell_what_it_grants(archive: Any) -> None:
    """Say how its tasks run, and plainly what its right to run processes means, as ``serve`` does where they run."""
    settings = archive["settings"]
    say(f"note: its tasks run {_ways(settings)}")
    if settings["process"] and not settings["image"]:
        user = visible(settings["process_user"] or "the task manager's own user")
        where = visible(archive["url"])
        say(f"note: whoever may commit to {where} can do on the task manager's host whatever {user} may do")
    if settings["process_user"] and not _is_user_here(settings["process_user"]):
        say(
            f"note: this host has no user {visible(settings['process_user'])}; a host without that user starts none of its processes"
        )


def _is_user_here(name: str) -> bool:
    import pwd

    try:
        pwd.getpwnam(name)
    except (KeyError, ValueError):
        return False
    return True


def _ways(settings: Any) -> str:
    """How its tasks run, in containers or as processes."""
    if settings["image"]:
        return f"in containers, of {visible(settings['image'])} where they name no image"
    if settings["process"]:
        user = visible(settings["process_user"] or "the task manager's own user")
        return f"in containers where they name an image, else as processes of {user}"
    return "in containers, of the image that they name, else of their task manager's if it has one; not as processes"


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """The settings that were given; an empty text unsets one."""
    body = {
        key: options[key] or None for key in ("process_user", "author", "task_url", "image") if options[key] is not None
    }
    if options["executor"] is not None:
        body["process"] = options["executor"] == "process"
    for key in ("tier", "max_running"):
        if options[key] is not None:
            body[key] = _number(key, options[key])
    for key in ("branches", "follow", "images", "users", "networks"):
        if options[key]:
            body[key] = [glob for glob in options[key] if glob]
    return body


def _kept(text: str) -> tuple[str, str]:
    """A state and an age, of ``completed=30d``."""
    state, equals, age = text.partition("=")
    if not (state and equals and age):
        raise click.UsageError(f"Write STATE=AGE after keep, for example completed=30d, not {text!r}.")
    return state, age


def _receivers(words: Sequence[str]) -> dict[str, list[str]]:
    """Receivers with their occasions, of ``https://hooks.example.org/ci failed fixed``: a word that holds ``://`` or ``@``, or is ``author``, begins the next one."""
    found: dict[str, list[str]] = {}
    receiver = ""
    for word in filter(None, words):
        if "://" in word or "@" in word or word == AUTHOR:
            receiver = word
            if receiver in found:
                raise click.UsageError(f"Name each receiver once: {receiver!r}.")
            found[receiver] = []
        elif not receiver:
            raise click.UsageError(f"Write a receiver before {word!r}: https://hooks.example.org/ci {word}.")
        else:
            found[receiver].append(word)
    return found


def _number(key: str, text: str) -> int | None:
    if text in ("", "none"):
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise click.UsageError(f"{key} is a whole number, or none: not {text!r}.")
    return int(text)


def _address(url: str) -> str:
    """A path that is here is meant from here; the server stands elsewhere."""
    path = Path(url)
    return str(path.resolve()) if "://" not in url and not path.is_absolute() and path.is_dir() else url


def _head(archive: Any) -> str:
    main = next((b for b in archive["branches"] if b["main"]), None)
    return "-" if main is None or main["rev"] is None else f"{_branch_name(main)}{main['rev']}"


def _untracked(archive: Any) -> str:
    """What to say of an archive whose branches are all gone: no commit runs anything, and nothing is out of order."""
    if archive["removed_at"] or not archive["branches"] or not all(b["deleted"] for b in archive["branches"]):
        return ""
    names = ", ".join(visible(b["name"]) for b in archive["branches"] if b["main"])
    return f"no branch is tracked, as {names or 'each'} is deleted: arkqueue archive set {archive['name']} --branch GLOB, or bring it back"


def _branch_name(branch: Any) -> str:
    return f"{visible(branch['name'])} " if branch["name"] else ""


def _marks(branch: Any) -> str:
    return ", ".join(word for word in ("main", "deleted") if branch[word])


def _health(archive: Any) -> str:
    if archive["removed_at"]:
        return click.style("removed", fg="bright_black")
    if archive["stopped"]:
        return click.style("stopped", fg="red")
    if archive["trouble"]:
        return click.style("in trouble", fg="red")
    if archive["paused"]:
        return click.style("paused", fg="yellow")
    if archive["hold"]:
        return click.style("on hold", fg="magenta")
    if _untracked(archive):
        return click.style("no branch", fg="red")
    if archive["held"]:
        return click.style(f"watched, {archive['held']} held", fg="magenta")
    return click.style("watched", fg="green")


def _notice(notice: Any) -> str:
    if not notice:
        return ""
    named = f" of {visible(notice['revision'])}" if notice["revision"] else ""
    return f"{ago(notice['at'])}{named}" + (", which is not there yet" if notice["expected"] else "")


def _shown(value: Any) -> str:
    """A setting; empty where it is unset."""
    if isinstance(value, dict):
        shown = {key: one if isinstance(one, str) else ",".join(one) for key, one in value.items()}
        return visible(" ".join(f"{key}={one}" for key, one in sorted(shown.items())))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return visible(", ".join(map(str, value)))
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return {True: "yes", False: "no"}.get(value) or visible(str(value or ""))
