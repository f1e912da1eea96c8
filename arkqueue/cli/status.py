"""``status`` lists what needs a person, with the command that helps; ``workers`` lists the task
managers.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from arkqueue.cli.options import as_json, calls_server
from arkqueue.cli.output import ago, bold, dim, print_json, say, state, table
from arkqueue.text import on_one_line, one_line, visible

if TYPE_CHECKING:
    from arkqueue.cli.client import Client

MOST_NAMES = 20_000
"""The most characters of the names of archives that have no lines."""
LONGEST = 300
"""The most characters of an entry that needs a person; `explain`, `logs` and `show` print more."""


@click.command(
    epilog="The exit code is 1 if something needs a person or is wrong, else 0. A token for some archives sees these alone."
)
@click.argument("archive", required=False)
@as_json
@calls_server
def status(client: Client, archive: str | None, as_json: bool) -> None:
    """Show what needs a person, each with the command that helps, and what is wrong with the
    installation. Each archive has a few lines of each kind, and one that counts the others. With
    ARCHIVE, list all of that archive.
    """
    found = client.get("/status", archive=archive) if archive else client.get("/status")
    if as_json:
        print_json(found)
    else:
        for fault in found["faults"]:
            _say(click.style("fault", fg="red"), "", fault["text"], fault["command"])
        for need in found["needs"]:
            _say(state(need["state"]), need["name"], need["text"], need["command"])
        if found["others"]:
            _say(state("held"), "", _of_others(found["others"]), "arkqueue status ARCHIVE", MOST_NAMES)
        if not found["count"]:
            say("nothing needs a person")
        say(dim(_numbers(found)))
    if found["count"]:
        sys.exit(1)


@click.command(epilog="The list has task managers that stopped within a day, too.")
@as_json
@calls_server
def workers(client: Client, as_json: bool) -> None:
    """List the task managers: how many of their slots are busy, and why one claims nothing."""
    found = client.get("/task-managers")
    if as_json:
        print_json(found)
    elif not found:
        say("no task manager has reported within a day; start one: arkqueue worker", err=True)
    else:
        table([_row(one) for one in found], ("NAME", "STATE", "BUSY", "LABELS", "REPORTED", "WHY"))


def _say(kind: str, name: str, text: str, command: str, longest: int = LONGEST) -> None:
    begin = f"{bold(visible(name))}: " if name else ""
    say(f"{kind}{' ' * max(9 - len(click.unstyle(kind)), 1)}{begin}{one_line(text, longest)}")
    if command:
        say(f"{' ' * 9}{visible(command)}")


def _of_others(others: Sequence[Any]) -> str:
    """The archives whose needs have no line, with their numbers."""
    named = [f"{visible(one['archive'])} ({one['count']:,})" for one in others]
    return (
        f"{len(others):,} more {'archive needs' if len(others) == 1 else 'archives need'} a person: {', '.join(named)}"
    )


def _numbers(found: Any) -> str:
    """The numbers of archives, task managers and tasks in one line. With a token for some archives
    only, it has the number of archives alone.
    """
    counts = [(found["archives"], "archive", "archives")]
    if found["running"] is not None:
        counts += [(found["task_managers"], "task manager", "task managers"), (found["slots"], "slot", "slots")]
    said = [f"{number:,} {one if number == 1 else many}" for number, one, many in counts]
    if found["running"] is not None:
        said += [f"{found['running']:,} running", f"{found['waiting']:,} waiting"]
        said += [f"{found['held']:,} held"] if found["held"] else []
    return " · ".join(said)


def _row(one: Any) -> tuple[str, ...]:
    why = "; ".join(filter(None, (_drained(one), one["fault"] or one["engine_fault"], _disk(one))))
    busy = f"{min(one['running'], one['slots'])} of {one['slots']}" if one["alive"] else "-"
    labels = ", ".join(one["labels"]) or "-"
    return visible(one["name"]), _state(one), busy, visible(labels), ago(one["seen_at"]), on_one_line(why)


def _state(one: Any) -> str:
    if not one["alive"]:
        return click.style("stopped", dim=True) if one["stopped_at"] else click.style("silent", fg="red")
    if one["drained_at"]:
        return click.style("drained", fg="magenta")
    if one["fault"] or one["low_disk"]:
        return click.style("unfit", fg="red")
    if one["engine_fault"]:
        return click.style("no containers", fg="yellow")
    return click.style("running", fg="green")


def _drained(one: Any) -> str:
    if not one["drained_at"]:
        return ""
    return f"drained by {one['drained_by']}" + (f": {one['drain_reason']}" if one["drain_reason"] else "")


def _disk(one: Any) -> str:
    return one["low_disk"] or ""
