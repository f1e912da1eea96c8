"""`trigger`: a further run of a revision, or a backfill."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from arkqueue.cli.items import FEW
from arkqueue.cli.options import as_json, calls_server
from arkqueue.cli.output import print_json, say
from arkqueue.names import task_in_run
from arkqueue.text import on_one_line, visible

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

    With --from, make a backfill: many runs, whose name (papers@fill:1) stands for all of them in show, hold, release, cancel and prioritize.

    It has the named tasks. Without names it has those that run both on commits and by hand: a task that runs by hand alone, such as a release, must be named.
    """
    if accept and not wait:
        raise click.UsageError("--accept needs --wait.")
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
    if proposed["note"]:
        say(f"arkqueue: {on_one_line(proposed['note'])}", err=True)
    for line in _proposal(proposed):
        say(visible(line), err=True)
    if dry_run:
        return
    # The revision that was spoken of, also where the head has moved since.
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


def _proposal(proposed: Any) -> Iterator[str]:
    """What a run is going to be, task by task."""
    tasks = proposed["tasks"]
    yield f"{proposed['full_name']}: {len(tasks)} {'task' if len(tasks) == 1 else 'tasks'}"
    told: Counter[str] = Counter()
    for task in tasks:
        told[task["name"]] += 1
        if told[task["name"]] > FEW:
            continue
        waits = [_need(need) for need in task["needs"] if need["is_awaited"]]
        takes = [_need(need) for need in task["needs"] if not need["is_awaited"]]
        words = [f"waits for {', '.join(waits)}"] if waits else []
        words += [f"uses the result of {', '.join(takes)}"] if takes else []
        words += [f"does without {name}, which has never run" for name in task["never_ran"]]
        words += list(_stops(task))
        words += [f"is held by {task['held']} until somebody releases it"] if task["held"] else []
        yield f"  {task_in_run(task['name'], task['item'])[1:]}" + (f" {'; '.join(words)}" if words else "")
    for name, items in told.items():
        if (more := items - FEW) > 0:
            yield f"  {name}: {more:,} more items"
    for reason in proposed["obstacles"]:
        help_with = f" To change that: {'; '.join(reason['commands'])}" if reason["commands"] else ""
        yield f"  {reason['text']}{help_with}"


def _stops(task: Any) -> Iterator[str]:
    """What a task cancels of earlier runs, and what it stops as that runs."""
    for verb, is_running in (("stops", True), ("cancels", False)):
        found = [
            f"{one['task']} ({one['state']})" for one in task["stops"] if (one["state"] == "running") is is_running
        ]
        if found:
            yield f"{verb} {', '.join(found)}"
    if task["more_stopped"]:
        yield "cancels more than these"


def _need(need: Any) -> str:
    return str(need["task"]) + (f" ({need['state']})" if need["state"] else "")
