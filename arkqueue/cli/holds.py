"""The verbs hold, unhold and release. Each takes several names. If one is refused, the others are
still done.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from arkqueue.cli.options import as_json, calls_server, dry_run, of_states
from arkqueue.cli.output import bold
from arkqueue.cli.verbs import act, each, is_archive, many_lines, tasks

if TYPE_CHECKING:
    from arkqueue.cli.client import Client

_names = click.argument("names", metavar="ARCHIVE|RUN|ITEM|LIST|TASK…", nargs=-1, required=True)
_reason = click.option(
    "--reason", default="", metavar="TEXT", help="The reason, for the audit log and the next person."
)


@click.command(
    epilog="Examples: arkqueue hold papers --reason 'the disk is being replaced'; arkqueue hold papers@12; arkqueue hold 'papers@12/*/volume-7'; arkqueue hold papers@12/deposit"
)
@_names
@_reason
@of_states
@dry_run
@as_json
@calls_server
def hold(
    client: Client, names: Sequence[str], reason: str, states: Sequence[str], dry_run: bool, as_json: bool
) -> None:
    """Hold tasks that have not started until somebody releases them. An archive's runs that have
    begun go on; new ones are held until unhold.
    """
    act(client, "hold", names, {"reason": reason}, as_json, dry_run, _held, states=states)


@click.command(epilog="Example: arkqueue unhold papers, and then arkqueue release papers --all")
@click.argument("names", metavar="ARCHIVE…", nargs=-1, required=True)
@_reason
@as_json
@calls_server
def unhold(client: Client, names: Sequence[str], reason: str, as_json: bool) -> None:
    """End the hold of an archive: runs that are planned from now on are not held. Held tasks stay
    held.
    """
    from arkqueue.cli.client import archive_path

    def one(name: str) -> tuple[Any, list[str]]:
        archive = client.post(f"{archive_path(name)}/unhold", {"reason": reason})
        lines = [f"{bold(name)}: not on hold any more"]
        if archive["held"]:
            lines += [f"{tasks(archive['held'])} held until somebody releases them: {archive['release']}"]
        return archive, lines

    each(names, one, as_json)


@click.command(
    epilog="Examples: arkqueue release papers@12/deposit --reason 'seen by Ann'; arkqueue release papers@12; arkqueue release papers --all --skip-outdated"
)
@_names
@click.option("--all", "everything", is_flag=True, help="Of an archive: all held tasks.")
@click.option(
    "--force",
    is_flag=True,
    help="Also release tasks that would replace the work of later revisions, or that are superseded.",
)
@click.option(
    "--skip-outdated", is_flag=True, help="Waive tasks that would replace later work, and release the others."
)
@_reason
@of_states
@dry_run
@as_json
@calls_server
def release(
    client: Client,
    names: Sequence[str],
    everything: bool,
    force: bool,
    skip_outdated: bool,
    reason: str,
    states: Sequence[str],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Release held tasks: they start like others. For a whole archive (--all), end its hold first
    (unhold).
    """
    if force and skip_outdated:
        raise click.UsageError("--force and --skip-outdated do not go together.")
    for name in names:
        if is_archive(name) != everything and "/" not in name:
            if everything:
                raise click.UsageError(f"{name!r} is not an archive, and --all is for archives: leave it out.")
            raise click.UsageError(f"{name!r} is the name of an archive: name a run or a task, or add --all.")
    body = {"reason": reason, "force": force, "skip_outdated": skip_outdated}
    act(client, "release", names, body, as_json, dry_run, partial(many_lines, "released"), states=states)


def _held(name: str, answer: Any) -> list[str]:
    said = f"{bold(name)}: on hold, {tasks(len(answer['done']))} held"
    return [said, f"runs that are planned from now on are held, too, until: arkqueue unhold {name}"]
