"""``arkqueue delivery …``: lists sent, waiting and failed notifications, and sends them again."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from arkqueue.cli.options import as_json, calls_server
from arkqueue.cli.output import ago, bold, print_json, say, table
from arkqueue.text import one_line, visible

if TYPE_CHECKING:
    from arkqueue.cli.client import Client

MOST_RESENT = 500
"""The most failed deliveries that one command sends again."""


@click.group(no_args_is_help=True)
def delivery() -> None:
    """Show notifications, and send them again. `arkqueue archive set NAME notify` sets who gets
    them.
    """


@delivery.command("list")
@click.argument("archive", required=False)
@click.option("--failed", is_flag=True, help="Only deliveries that failed for a day.")
@click.option("--waiting", is_flag=True, help="Only those that are still tried.")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="How many, the newest first.")
@as_json
@calls_server
def list_(client: Client, archive: str | None, failed: bool, waiting: bool, limit: int, as_json: bool) -> None:
    """List notifications, the newest first, with their errors."""
    states = [state for state, asked in (("failed", failed), ("waiting", waiting)) if asked]
    found = client.get("/deliveries", archive=archive, state=states or None, limit=limit)
    if as_json:
        print_json(found)
    elif not found["deliveries"]:
        say("no notifications", err=True)
    else:
        table([_row(one) for one in found["deliveries"]], ("ID", "WHEN", "WHAT", "RECEIVER", "STATE", "TRIES", "FAULT"))


@delivery.command(epilog="Examples: arkqueue delivery resend 17; arkqueue delivery resend --failed papers")
@click.argument("names", metavar="ID…|ARCHIVE", nargs=-1, required=True)
@click.option("--failed", is_flag=True, help="Of an archive: all notifications that failed for a day.")
@calls_server
def resend(client: Client, names: tuple[str, ...], failed: bool) -> None:
    """Send notifications again, or at once where they wait for their next try."""
    ids = list(names)
    if failed:
        if len(names) != 1:
            raise click.UsageError("--failed goes with the name of one archive.")
        found = client.get("/deliveries", archive=names[0], state=["failed"], limit=MOST_RESENT)
        ids = [str(one["id"]) for one in reversed(found["deliveries"])]
        if not ids:
            say(f"{visible(names[0])}: no notification has failed", err=True)
            sys.exit(1)
    for id in ids:
        if not (id.isascii() and id.isdecimal()):
            raise click.BadParameter(f"{id!r} is not the number of a notification.", param_hint="ID")
    for id in ids:
        client.post(f"/deliveries/{int(id)}/resend")
    say(f"{bold(', '.join(ids))}: sent again")


def _row(one: Any) -> tuple[str, ...]:
    state = "being sent" if one["is_being_sent"] else one["state"]
    if one["waits_for"]:
        state = f"waiting {one['waits_for']}"
    elif one["due_at"] and one["tries"] and not one["is_being_sent"]:
        state = f"waiting, next {ago(one['due_at'])}"
    if one["carried_by"] and not one["is_being_sent"]:
        state += f" with {one['carried_by']}"
    colour = {"failed": "red", "sent": "green"}.get(one["state"])
    return (
        str(one["id"]),
        ago(one["made_at"]),
        f"{visible(one['name'])} {one['occasion']}",
        one_line(" ".join(dict.fromkeys((one["receiver"], one["address"]))), 60).strip(),
        click.style(state, fg=colour),
        str(one["tries"]),
        one_line(one["fault"], 200),
    )
