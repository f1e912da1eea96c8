"""``pause``, ``resume`` and ``drain``: nothing starts for a while, in an archive, with a lock, in the
whole installation, or on a host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from arkqueue.cli.lock import path as lock_path
from arkqueue.cli.options import as_json, calls_server
from arkqueue.cli.output import bold, say
from arkqueue.cli.verbs import each
from arkqueue.text import on_one_line, visible

if TYPE_CHECKING:
    from arkqueue.cli.client import Client

_archives = click.argument("archives", metavar="[ARCHIVE]…", nargs=-1)
_why_ended = click.option("--reason", default="", metavar="TEXT", help="The reason, which the audit log keeps.")
_reason = click.option("--reason", default="", metavar="TEXT", help="The reason, which explain and the pages show.")


@click.command(
    epilog='Example: arkqueue pause papers --reason "the printer is being moved". Running tasks go on, and new revisions are planned.'
)
@_archives
@click.option(
    "--lock",
    "locks",
    multiple=True,
    metavar="ARCHIVE/NAME|global/NAME",
    help="All tasks that name this lock; may be repeated.",
)
@click.option("--all", "everything", is_flag=True, help="The whole installation, with archives that are added later.")
@_reason
@as_json
@calls_server
def pause(
    client: Client, archives: Sequence[str], locks: Sequence[str], everything: bool, reason: str, as_json: bool
) -> None:
    """Pause an archive: until it is resumed, none of its tasks starts, and none of its `cancels`
    fires.
    """
    _change(client, "pause", archives, locks, everything, {"reason": reason}, as_json)


@click.command()
@_archives
@click.option(
    "--lock",
    "locks",
    multiple=True,
    metavar="ARCHIVE/NAME|global/NAME",
    help="End the pause of this lock; may be repeated.",
)
@click.option(
    "--worker",
    "workers",
    multiple=True,
    metavar="TASK-MANAGER",
    help="Let this drained task manager claim tasks again; may be repeated.",
)
@click.option("--all", "everything", is_flag=True, help="End the pause of the whole installation.")
@_why_ended
@as_json
@calls_server
def resume(
    client: Client,
    archives: Sequence[str],
    locks: Sequence[str],
    workers: Sequence[str],
    everything: bool,
    reason: str,
    as_json: bool,
) -> None:
    """End the pause of an archive: ready tasks start, and tasks that waited to cancel others do so."""
    if workers and not (archives or locks or everything):
        each(workers, lambda name: _of_host(client, "resume", name, {"reason": reason}), as_json)
    else:
        _change(client, "resume", archives, locks, everything, {"reason": reason}, as_json, workers)


@click.command(
    epilog="A task manager that starts on that host later claims nothing either, until: arkqueue resume --worker TASK-MANAGER. `arkqueue workers` lists the names."
)
@click.option(
    "--worker", "workers", multiple=True, required=True, metavar="TASK-MANAGER", help="Its name; may be repeated."
)
@_reason
@as_json
@calls_server
def drain(client: Client, workers: Sequence[str], reason: str, as_json: bool) -> None:
    """Stop the task manager of a host from claiming tasks. Its running tasks go on."""
    each(workers, lambda name: _of_host(client, "drain", name, {"reason": reason}), as_json)


def _change(
    client: Client,
    verb: str,
    archives: Sequence[str],
    locks: Sequence[str],
    everything: bool,
    body: dict[str, str],
    as_json: bool,
    workers: Sequence[str] = (),
) -> None:
    from arkqueue.cli.client import archive_path

    if [everything, bool(archives), bool(locks), bool(workers)].count(True) != 1:
        of_worker = (
            "arkqueue resume --worker TASK-MANAGER" if verb == "resume" else "arkqueue drain --worker TASK-MANAGER"
        )
        raise click.UsageError(
            f"Name one kind of thing: arkqueue {verb} ARCHIVE, arkqueue {verb} --lock ARCHIVE/NAME, {of_worker}, or arkqueue {verb} --all."
        )
    if everything:
        client.post(f"/{verb}", body)
        if not as_json:
            say(f"the whole installation: {verb}d")
        return

    def of_lock(name: str) -> tuple[Any, list[str]]:
        lock = client.post(f"{lock_path(name)}/{verb}", body)
        is_used = any(lock[who] for who in ("holders", "waiting", "elsewhere", "waiting_elsewhere"))
        note = "" if is_used or verb == "resume" else "; no task has it now, or waits for it"
        return lock, [f"lock {bold(visible(name))}: {verb}d{note}"]

    def one(name: str) -> tuple[Any, list[str]]:
        found = client.post(f"{archive_path(name)}/{verb}", body)
        return found, [f"{bold(name)}: {_said(found['paused'], body['reason'])}"]

    each(locks or archives, of_lock if locks else one, as_json)


def _said(pause: Any, reason: str) -> str:
    """The state of an archive after the command. ``reason``: the command's."""
    from arkqueue.cli.output import at

    if pause is None:
        return "resumed"
    if pause["with_all"]:
        return "stays paused with the whole installation"
    if pause["reason"] and not reason:  # somebody had paused it
        return on_one_line(f"paused already since {at(pause['at'])} by {pause['by']}: {pause['reason']}")
    return "paused"


def _of_host(client: Client, verb: str, name: str, body: dict[str, str]) -> tuple[Any, list[str]]:
    from urllib.parse import quote

    found = client.post(f"/task-managers/{quote(name, safe='')}/{verb}", body)
    running = sum(one["running"] for one in found)
    goes_on = f"; {running} {'task goes' if running == 1 else 'tasks go'} on" if verb == "drain" and running else ""
    return found, [f"{bold(visible(name))}: {'drained' if verb == 'drain' else 'resumed'}{goes_on}"]
