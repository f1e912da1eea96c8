"""``notify`` and ``sync``: request a scan of a repository now."""

from __future__ import annotations

import re
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from arkqueue.cli.archive import get_archive, head, nobody_reads, untracked
from arkqueue.cli.options import as_json, calls_server
from arkqueue.cli.output import bold, print_json, say
from arkqueue.text import visible

if TYPE_CHECKING:
    from arkqueue.cli.client import Client

LOOK = 0.1
"""The seconds between two checks whether a repository was scanned."""
LOOK_AT_HEALTH = 1.0
"""The seconds between two checks whether a queue manager is running."""


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
@click.option("--wait", is_flag=True, help="Wait until the repository was read; exit with 1 if it cannot be read.")
@as_json
@calls_server
def sync(client: Client, archive: str, wait: bool, as_json: bool) -> None:
    """Scan an archive's repository now."""
    from arkqueue.cli.client import archive_path

    before = get_archive(client, archive)
    found = client.post(f"{archive_path(archive)}/sync")
    looks_at, told = time.monotonic() + LOOK_AT_HEALTH, False
    while wait and not found["stopped"] and not _answered(found) and not _failed_since(found, before):
        time.sleep(LOOK)
        if not told and time.monotonic() > looks_at:
            told = nobody_reads(client)
            looks_at = time.monotonic() + LOOK_AT_HEALTH
            if told:
                waits = "no queue manager is running; waiting for one"
                say(f"arkqueue: {visible(archive)}: {waits}. Start one: arkqueue manager", err=True)
        found = get_archive(client, archive)
    if as_json:
        print_json(found)
    elif not wait:
        _looked_at(client, archive)
    elif found["stopped"] or found["trouble"]:
        said, remedy = visible(found["stopped"] or found["trouble"]), visible(found["remedy"])
        said = said.removeprefix(f"{archive}: ").rstrip(".")
        say(f"{archive}: {said}" + ("" if remedy in said else f". {remedy}"), err=True)
    else:
        say(f"{bold(archive)}: was read; its head is {head(found)}")
        if lost := untracked(found):
            say(f"note: {lost}")
    if wait and (found["stopped"] or found["trouble"]):
        sys.exit(1)


def _looked_at(client: Client, archive: str, what: str = "") -> None:
    """Print that the repository will be scanned, or that no queue manager is running to do so."""
    say(f"{bold(archive)}: will be looked at{what}")
    if nobody_reads(client):
        say("note: no queue manager is running; it is looked at when one is. Start one: arkqueue manager")


def _answered(found: Any) -> bool:
    """Whether the repository was scanned after the last notice. A scan that was in progress then
    may have missed the new revision.
    """
    return found["notice"] is None or found["notice"]["expected"]


def _failed_since(now: Any, before: Any) -> bool:
    """Whether a scan has failed since: this has delayed the next scan."""
    return bool(now["trouble"]) and (
        now["trouble_since"] != before["trouble_since"] or now["next_read_at"] > before["next_read_at"]
    )
