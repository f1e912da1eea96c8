"""``arkqueue archive …``: the watched repositories."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import click

from arkqueue.archive_settings import USUAL_TIER
from arkqueue.cli.archive_settings import as_text, given_settings, set_, settings_options, tell_what_it_grants, ways
from arkqueue.cli.options import as_json, calls_server, dry_run
from arkqueue.cli.output import ago, at, bold, dim, moment, print_json, say, table
from arkqueue.text import on_one_line, one_line, visible

if TYPE_CHECKING:
    from arkqueue.cli.client import Client


@click.group(no_args_is_help=True)
def archive() -> None:
    """Register archives and look after them."""


archive.add_command(set_)


@archive.command(
    epilog="Example: arkqueue archive add papers file:///srv/svn/papers --executor process. "
    "With --executor process, every committer of the archive can do on the task manager's host everything that its user may do."
)
@click.argument("name")
@click.argument("url")
@click.option("--from", "start", metavar="REV", help="Start after this revision instead of at the head.")
@click.option("--kind", type=click.Choice(["git", "subversion"]), help="Where the URL leaves it open.")
@settings_options
@as_json
@calls_server
def add(
    client: Client, name: str, url: str, start: str | None, kind: str | None, as_json: bool, **options: Any
) -> None:
    """Watch the repository at URL, a path on the server or any address that Git or Subversion
    takes, under NAME.
    """
    body = {"name": name, "url": _address(url), "kind": kind, "start": start, **given_settings(options)}
    added = client.post("/archives", body)
    if as_json:
        print_json(added)
        return
    where = ", ".join(f"{_branch_name(b)}{b['rev']}" for b in added["branches"] if b["rev"] is not None)
    start_at = f"its ledger starts at revision {where}" if where else "it has no revision yet"
    say(f"{bold(name)}: {added['kind']} archive {visible(added['url'])} is watched; {start_at}")
    tell_what_it_grants(added)
    if not added["settings"]["process"] and not added["settings"]["image"]:
        say(f"note: to give those that name none an image: arkqueue archive set {name} --image IMAGE")
        say(f"note: or to run them as processes: arkqueue archive set {name} --executor process")
    if added["repository"].startswith(("/", "file://")):
        path = added["repository"]
        if path.startswith("file://"):
            path = unquote(path.removeprefix("file://"))
        say(
            f"next: install the hook, so that arkqueue learns of commits at once: arkqueue hook install {visible(shlex.quote(path))}"
        )


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
        rows = [(a["name"], a["kind"], head(a), _health(a), visible(a["url"])) for a in found]
        table(rows, ("ARCHIVE", "KIND", "HEAD", "STATE", "URL"))
        _tell_pauses(found)
        for one in found:
            if one["hold"]:
                say(f"{one['name']}: {click.style(_hold(one), fg='magenta')}")
            for held in _further_holds(one):
                if held["is_whole"]:
                    say(f"{one['name']}: {click.style(_held(held), fg='magenta')}")


def _tell_pauses(archives: Sequence[Any]) -> None:
    """Print who has paused archives and locks, since when and why; a pause of the whole
    installation, or of one of its locks, is printed once.
    """
    told: set[str] = set()
    for one in archives:
        if one["paused"]:
            pause = _pause(one)
            whose = "" if one["paused"]["with_all"] else f"{one['name']}: "
            if whose or pause not in told:
                say(whose + click.style(pause, fg="yellow"))
            told.add(pause)
        for lock in one["paused_locks"]:
            if lock["name"] not in told:
                say(click.style(_paused_lock(lock), fg="yellow"))
            told.add(lock["name"])


@archive.command()
@click.argument("name")
@as_json
@calls_server
def show(client: Client, name: str, as_json: bool) -> None:
    """Show an archive: its branches, schedules and problems."""
    found = get_archive(client, name)
    if as_json:
        print_json(found)
        return
    say(f"{bold(found['name'])}  {_health(found)}")
    table([("  " + dim(key), value) for key, value in _facts(found) if value])
    _tell_what_holds_it_up(found, client)
    _tell_branches_and_schedules(found)


def _facts(archive: Any) -> list[tuple[str, str]]:
    """The facts and settings of an archive. A fact with an empty text is left out."""
    settings = archive["settings"]
    return [
        ("kind", archive["kind"]),
        ("url", visible(archive["url"])),
        ("folder", visible(archive["folder"])),
        ("tasks run", ways(settings)),
        ("images", as_text(settings["images"])),
        ("users", as_text(settings["users"])),
        ("networks", as_text(settings["networks"])),
        ("tracks", ", ".join(map(visible, settings["branches"]))),
        ("workflows by", as_text(settings["workflow_authors"])),
        ("author", visible(settings["author"] or "")),
        ("task url", visible(settings["task_url"] or "")),
        ("follows", as_text(settings["follow"])),
        (
            "approval",
            as_text(settings["require_approval"]) + (", not by the author" if settings["approval_not_author"] else ""),
        ),
        ("tier", str(settings["tier"]) if settings["tier"] != USUAL_TIER else ""),
        ("max running", str(settings["max_running"] or "")),
        ("keeps", as_text(settings["keep"])),
        ("keeps logs", settings["keep_logs"] or ""),
        ("notifies", as_text(settings["notify"])),
        ("added", at(archive["created_at"])),
        ("removed", at(archive["removed_at"]) if archive["removed_at"] else ""),
        ("read", at(archive["read_at"])),
        ("next reading", at(archive["next_read_at"]) if not archive["stopped"] and not archive["removed_at"] else ""),
        ("notice", _notice(archive["notice"])),
    ]


def _tell_what_holds_it_up(archive: Any, client: Client) -> None:
    """Print why no task of an archive starts, or why it is not read, each with the command that
    helps.
    """
    if archive["hold"]:
        say(f"\n{click.style(_hold(archive), fg='magenta')}")
        say(f"  arkqueue unhold {archive['name']}")
    if archive["held"]:
        wait = "task waits" if archive["held"] == 1 else "tasks wait"
        say(f"\n{archive['held']:,} {wait} for a release: {archive['release']}")
        for held in _further_holds(archive):
            say(f"  {_held(held)}")
    if archive["stopped"] or archive["trouble"]:
        since = f" (since {at(archive['trouble_since'])})" if archive["trouble_since"] else ""
        say(f"\n{click.style(visible(archive['stopped'] or archive['trouble']), fg='red')}{since}")
        say(f"  {visible(archive['remedy'])}")
    if pause := archive["paused"]:
        say(f"\n{click.style(_pause(archive), fg='yellow')}")
        say(f"  None of its tasks starts until: {visible(pause['resume'])}")
        if pause["twice"]:
            say("  The whole installation is paused, too: arkqueue resume --all")
    for lock in archive["paused_locks"]:
        say(f"\n{click.style(_paused_lock(lock), fg='yellow')}")
        say(f"  No task that names it starts until: {visible(lock['resume'])}")
    if is_overdue(archive) and nobody_reads(client):
        say(f"\n{click.style('no queue manager is running, so its repository is not read', fg='red')}")
        say("  Start one: arkqueue manager")
    if lost := untracked(archive):
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
    return f"on hold by {_who(hold)}"


def _further_holds(archive: Any) -> list[Any]:
    """The holds of an archive's tasks, without the present hold of the archive itself."""
    own = archive["hold"]
    return [held for held in archive["holds"] if own is None or (held["at"], held["by"]) != (own["at"], own["by"])]


def _held(held: Any) -> str:
    """The number of tasks of one hold, who has held them, since when and why."""
    return f"{held['tasks']:,} {'task' if held['tasks'] == 1 else 'tasks'} held by {_who(held)}"


def _who(hold: Any) -> str:
    """Who holds, since when and why. A reason may have several lines."""
    since = f" since {at(hold['at'])}" if hold["at"] else ""
    return f"{on_one_line(hold['by'])}{since}" + (f": {on_one_line(hold['reason'])}" if hold["reason"] else "")


def _pause(archive: Any) -> str:
    """Who has paused an archive, since when and why."""
    pause = archive["paused"]
    what = "the whole installation is paused" if pause["with_all"] else "it is paused"
    since, by = f" since {at(pause['at'])}" if pause["at"] else "", f" by {pause['by']}" if pause["by"] else ""
    return on_one_line(f"{what}{since}{by}" + (f": {pause['reason']}" if pause["reason"] else ""))


def _paused_lock(lock: Any) -> str:
    """Who has paused a lock, since when and why."""
    why = f": {lock['reason']}" if lock["reason"] else ""
    return on_one_line(f"the lock {lock['name']} is paused since {at(lock['at'])} by {lock['by']}{why}")


def _left_out(schedule: Any) -> str:
    """The number of fires that made no run, because the last run stands for them."""
    return f"{schedule['left_out']} since {at(schedule['left_out_since'])}" if schedule["left_out"] else ""


@archive.command(
    epilog="An archive whose repository was restored from a backup, or replaced, is stopped until this says where to go on. What the ledger held so far stays readable."
)
@click.argument("name")
@click.argument("revision")
@click.option("--branch", metavar="BRANCH", help="The branch (default: the main branch).")
@dry_run
@as_json
@calls_server
def rewind(client: Client, name: str, revision: str, branch: str | None, dry_run: bool, as_json: bool) -> None:
    """Start an archive's ledger anew at REVISION, a number of its ledger or a commit."""
    from arkqueue.cli.client import archive_path

    body = {"revision": revision, "branch": branch}
    found = client.post(f"{archive_path(name)}/rewind", body, dry_run="true" if dry_run else None)
    if as_json:
        print_json(found)
    else:
        for line in (["Nothing is changed. It would be:"] if dry_run else []) + _rewound(name, found):
            say(line)
        if found["note"]:
            say(f"note: {visible(found['note'])}")
        if found["stopped"]:
            say(f"it stays stopped: {visible(found['stopped'])}")


def _rewound(name: str, found: Any) -> list[str]:
    """The consequences of a rewind: where the ledger starts, and the fate of the runs so far."""
    runs = f"{found['runs']:,} run{'' if found['runs'] == 1 else 's'}"
    fates = [f"{found[what]:,} task{'' if found[what] == 1 else 's'} {fate}" for what, fate in (("canceled", "canceled"), ("running", "running on")) if found[what]]  # fmt: skip
    return [
        f"{bold(name)}: its ledger starts anew at revision {head(found)}",
        f"the ledger so far is kept as {name}:{found['history']}: {', '.join([runs, *fates])}",
    ]


@archive.command()
@click.argument("revision", metavar="NAME@REV")
@as_json
@calls_server
def accept(client: Client, revision: str, as_json: bool) -> None:
    """Take over a corrected author or date of a Subversion revision."""
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
@dry_run
@as_json
@calls_server
def remove(client: Client, name: str, dry_run: bool, as_json: bool) -> None:
    """Stop watching an archive: its tasks that have not started are canceled, and its history stays
    readable.
    """
    from arkqueue.cli.client import archive_path

    settings = get_archive(client, name)["settings"]
    had = client.send("DELETE", archive_path(name), dry_run="true" if dry_run else None)
    if as_json:
        print_json(had)
        return
    if dry_run:
        say("Nothing is changed. It would be:")
    say(f"{bold(name)}: is watched no longer{_removed(had)}")
    if settings["keep"] or settings["keep_logs"]:
        say("note: its history is purged by its age as before. To keep all of it:")
        for word in ("keep", "keep-logs"):
            if settings[word.replace("-", "_")]:
                say(f"note: arkqueue archive set {name} {word} ''")


def _removed(had: Any) -> str:
    """The consequences of a removal, in the numbers of what the archive had."""
    size = f" with logs of {'more than ' * had['has_more']}{had['log_bytes'] / (1 << 20):,.1f} MiB"
    fates = [
        (had["open"], "task", " canceled"),
        (had["running"], "running task", " left to run to the end"),
        (had["schedules"], "schedule", " dropped"),
        (had["runs"], "run", " kept" + (size if had["log_bytes"] else "")),
        (had["submissions"], "submission", " kept"),
    ]
    told = [f"{n:,} {what}{'s' * (n != 1)}{fate}" for n, what, fate in fates if n]
    return f": {', '.join(told)}" if told else ""


def is_overdue(found: Any) -> bool:
    """Whether a scan of an archive is overdue."""
    due = moment(found["next_read_at"])
    return not found["stopped"] and not found["removed_at"] and due is not None and due < datetime.now(UTC)


def nobody_reads(client: Client) -> bool:
    """Whether no queue manager is running, according to the server."""
    return not client.get("/healthz").get("queue_manager", True)


def get_archive(client: Client, name: str) -> Any:
    from arkqueue.cli.client import archive_path

    return client.get(archive_path(name))


def _address(url: str) -> str:
    """The address for the server. A path that exists here is made absolute, because the server has
    another working folder.
    """
    path = Path(url)
    return str(path.resolve()) if "://" not in url and not path.is_absolute() and path.is_dir() else url


def head(archive: Any) -> str:
    main = next((b for b in archive["branches"] if b["main"]), None)
    return "-" if main is None or main["rev"] is None else f"{_branch_name(main)}{main['rev']}"


def untracked(archive: Any) -> str:
    """The note on an archive whose branches are all gone: its commits run nothing, although nothing
    is wrong.
    """
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
    if untracked(archive):
        return click.style("no branch", fg="red")
    if archive["held"]:
        return click.style(f"watched, {archive['held']:,} held", fg="magenta")
    if archive["paused_locks"]:
        return click.style("watched, lock paused", fg="yellow")
    return click.style("watched", fg="green")


def _notice(notice: Any) -> str:
    if not notice:
        return ""
    named = f" of {visible(notice['revision'])}" if notice["revision"] else ""
    return f"{ago(notice['at'])}{named}" + (", which is not there yet" if notice["expected"] else "")
