"""`trigger`: a further run of a revision, or a backfill."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from arkqueue.cli.options import as_json, calls_server, refuse_revision
from arkqueue.cli.output import print_json, say
from arkqueue.cli.proposal import say_proposal

if TYPE_CHECKING:
    from arkqueue.cli.client import Client


@click.command(
    epilog="Examples: arkqueue trigger papers; arkqueue trigger papers --revision 12 index; arkqueue trigger papers release --wait. "
    "arkqueue trigger papers thumbnails --from 1. "
    "stderr shows what will run and what each task waits for; stdout has only the run's name."
)
@click.argument("archive", metavar="ARCHIVE")
@click.argument("tasks", metavar="[TASK]…", nargs=-1)
@click.option("--revision", metavar="REV", help="A number, or a SHA or a prefix of one (default: the head).")
@click.option("--branch", metavar="BRANCH", help="The branch (default: the main branch).")
@click.option(
    "--without",
    multiple=True,
    metavar="TASK",
    help="Do not wait for this task, which is not part of the run; may be repeated.",
)
@click.option(
    "--from",
    "first",
    metavar="REV",
    help="Backfill: run the tasks at all revisions from this one on, in order, as the head defines them.",
)
@click.option("--to", "last", metavar="REV", help="With --from: up to this one (default: the one before the head).")
@click.option("--force", is_flag=True, help="Also if a later revision supersedes the task, or has completed it.")
@click.option("--dry-run", is_flag=True, help="Change nothing; show what would run and what would be refused.")
@click.option("--wait", is_flag=True, help="Wait for its end; exit code 1 unless it completed (see --accept).")
@click.option(
    "--accept",
    type=click.Choice(("superseded", "canceled")),
    multiple=True,
    help="With --wait: exit with 0 also if the run ended in this state.",
)
@as_json
@calls_server
def trigger(
    client: Client,
    archive: str,
    tasks: Sequence[str],
    revision: str | None,
    branch: str | None,
    without: Sequence[str],
    first: str | None,
    last: str | None,
    force: bool,
    dry_run: bool,
    wait: bool,
    accept: tuple[str, ...],
    as_json: bool,
) -> None:
    """Make a run by hand, and print its name.

    With --from, make a backfill: many runs, whose name (papers@fill:1) stands for all of them in
    show, hold, release, cancel and prioritize.

    It has the named tasks. Without names it has those that run both on commits and by hand: a task
    that runs by hand alone, such as a release, must be named.
    """
    if accept and not wait:
        raise click.UsageError("--accept needs --wait.")
    refuse_revision(archive, "trigger {}")
    if dry_run and wait:
        raise click.UsageError("--dry-run makes no run to wait for.")
    if first is not None or last is not None:
        from arkqueue.cli.backfill import begin

        begin(client, archive, tasks, branch, first, last, revision, without, force, dry_run, wait, as_json)
        return
    body = {
        "archive": archive,
        "branch": branch,
        "revision": revision,
        "tasks": list(tasks) or None,
        "without": list(without),
        "force": force,
    }
    proposed = client.post("/runs", body, dry_run="true")
    if dry_run and as_json:
        print_json(proposed)
        return
    say_proposal(proposed, proposed["note"], proposed["obstacles"])
    if dry_run:
        say("Nothing is made.", err=True)
        return
    # The revision that was shown, even if the head has moved since.
    run = client.post("/runs", body | {"revision": proposed["revision"]})
    if not (as_json and wait):
        print_json(run) if as_json else say(run["full_name"])
    if wait:
        from arkqueue.cli.watch import wait_for

        sys.stdout.flush()
        end = wait_for(client, run["id"])
        if as_json:
            print_json(client.get(f"/runs/{run['id']}"))
        if end not in ("completed", *accept):
            sys.exit(1)
