"""``arkqueue lock …``: the locks that tasks name, their capacities, and the tasks that have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from arkqueue.cli.options import as_json, calls_server
from arkqueue.cli.output import bold, print_json, say
from arkqueue.text import visible

if TYPE_CHECKING:
    from arkqueue.cli.client import Client


class _Capacity(click.ParamType):  # type: ignore[type-arg]  # older clicks have none
    name = "N|unlimited"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> int | None:
        if value == "unlimited":
            return None
        if not str(value).isdecimal() or not 1 <= int(value) <= 1_000_000:
            self.fail(
                f"{value!r} is not a capacity: write a number from 1 to 1000000, or unlimited. To let nothing start: arkqueue pause --lock NAME",
                param,
                context,
            )
        return int(value)


@click.group(no_args_is_help=True)
def lock() -> None:
    """Show and set the locks that tasks occupy while they run."""


@lock.command(
    "list",
    epilog="A lock without `set` has room for one task. It is called ARCHIVE/NAME, with the name that workflow files have, or global/NAME.",
)
@click.argument("archive", required=False)
@as_json
@calls_server
def list_(client: Client, archive: str | None, as_json: bool) -> None:
    """List the locks with the tasks that have them, and those that wait, in order."""
    found = client.get("/locks", **({"archive": archive} if archive else {}))
    if as_json:
        print_json(found)
        return
    for one in found:
        say("\n".join(lines_of(one)))
    if not found:
        say("No task names a lock.")


@lock.command(
    "set",
    epilog="Example: arkqueue lock set papers/tex 2. An unlimited lock only serves to be paused: arkqueue pause --lock papers/tex",
)
@click.argument("name", metavar="ARCHIVE/NAME|global/NAME")
@click.argument("capacity", type=_Capacity())
@as_json
@calls_server
def set_(client: Client, name: str, capacity: int | None, as_json: bool) -> None:
    """Set how many tasks may have a lock at once. Running tasks go on."""
    found = client.send("PUT", path(name), {"capacity": capacity})
    if as_json:
        print_json(found)
    else:
        say(f"{bold(visible(name))}: {room(found)}")


def path(name: str) -> str:
    """The path of a lock in the API."""
    return f"/locks/{quote(name, safe='/')}"


def room(one: Any) -> str:
    """The capacity of a lock, in words."""
    capacity = one["capacity"]
    return "unlimited" if capacity is None else f"{'1 task' if capacity == 1 else f'{capacity} tasks'} at once"


def lines_of(one: Any) -> list[str]:
    """The lines about a lock: the tasks that have it, and those that wait for it, in order. ``one``:
    the lock in the API's JSON.
    """
    from arkqueue.cli.output import at

    lines = [f"{bold(visible(one['name']))}: {room(one)}"]
    if one["paused_at"]:
        why = f": {one['pause_reason']}" if one["pause_reason"] else ""
        lines.append(f"  paused since {at(one['paused_at'])} by {visible(one['paused_by'])}{visible(why)}")
    for task in one["holders"]:
        how = "occupied by" if task["state"] == "running" else "granted to"
        lines.append(f"  {how} {visible(task['full_name'])}, which is {task['state']}")
    if one["elsewhere"]:
        lines.append(f"  {counted(one['elsewhere'], 'has', 'have')} it in other archives")
    lines += [f"  {_waits(one, task)}" for task in one["waiting"]]
    if one["waiting_elsewhere"]:
        is_next = ", one of which is next" if one["next_elsewhere"] else ""
        lines.append(f"  {counted(one['waiting_elsewhere'], 'waits', 'wait')} for it in other archives{is_next}")
    return [*lines, "  more tasks have it or wait for it"] if one["more"] else lines


def counted(number: int, one: str, many: str) -> str:
    """The subject and the verb of a sentence about tasks. ``one``, ``many``: the verb."""
    from arkqueue.model import MOST_COUNTED

    if number >= MOST_COUNTED:
        return f"at least {number:,} tasks {many}"
    return f"1 task {one}" if number == 1 else f"{number:,} tasks {many}"


def _waits(lock: Any, task: Any) -> str:
    """The line of a waiting task: its place, and why it cannot go, or that it is next without being
    the first.
    """
    name, place, obstacle = visible(task["full_name"]), task["place"], visible(task["obstacle"])
    if place is None:
        return f"{name} waits, but does not stand in line: {obstacle}"
    if obstacle:
        return f"{place}. {name} waits; {obstacle}"
    return f"{place}. {name} waits" + (", and is next" if place > 1 and lock["next"] == task["full_name"] else "")
