"""`runs` and `graph` list and draw runs. Also the words for a run that other commands use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from arkqueue.cli.options import as_json, calls_server
from arkqueue.cli.output import ago, bold, clock, print_json, say, state, table, took
from arkqueue.text import one_line

if TYPE_CHECKING:
    from arkqueue.cli.client import Client

STATES = (
    "planning",
    "pending",
    "processing",
    "reporting",
    "held",
    "completed",
    "failed",
    "canceled",
    "superseded",
    "deleted",
)
TRIGGERS = ("commit", "manual", "schedule", "submission")
FORMATS = ("text", "mermaid", "dot", "json")
CHANGED = "changed since its report"
"""The mark of a run whose tasks have changed since its last report."""


@click.command()
@click.argument("archive", required=False)
@click.option("--branch", metavar="BRANCH", help="Only runs of this branch.")
@click.option(
    "--state", "states", multiple=True, type=click.Choice(STATES), help="Only runs in this state; may be repeated."
)
@click.option("--trigger", type=click.Choice(TRIGGERS), help="Only runs with this trigger.")
@click.option("--backfills/--no-backfills", default=None, help="Only runs of backfills, or only others.")
@click.option("--limit", type=click.IntRange(1, 500), default=20, show_default=True, help="The number of runs at most.")
@click.option(
    "--before", type=click.IntRange(min=1), metavar="CURSOR", help="Continue after this cursor of an earlier list."
)
@as_json
@calls_server
def runs(
    client: Client, archive: str | None, branch: str | None, states: Sequence[str], trigger: str | None, backfills: bool | None, limit: int, before: int | None, as_json: bool
) -> None:  # fmt: skip
    """List runs, the newest first."""
    if branch is not None and archive is None:
        raise click.UsageError("--branch needs an ARCHIVE.")
    only = None if backfills is None else str(backfills).lower()
    page = client.get(
        "/runs",
        archive=archive,
        branch=branch,
        state=states,
        trigger=trigger,
        backfills=only,
        limit=limit,
        before=before,
    )
    if as_json:
        print_json(page)
        return
    rows = [
        (bold(run["full_name"]), state(run["state"]), tally(run), ago(run["created_at"]), whence(run), one_line(run["message"]))
        for run in page["runs"]
    ]  # fmt: skip
    table(rows, ("RUN", "STATE", "TASKS", "MADE", "BY", "MESSAGE"))
    if page["next"] is not None:
        further = "there are older ones" if rows else "none of the newest runs is of this kind; look through older ones"
        say(f"{further}: --before {page['next']}", err=True)
    elif not rows:
        say("no runs" + (" of this kind" if states or branch or trigger else ""), err=True)


@click.command(epilog="Example: arkqueue graph papers@2 papers@3 --format dot | dot -Tsvg > papers.svg")
@click.argument("names", metavar="RUN…", nargs=-1, required=True)
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@calls_server
def graph(client: Client, names: Sequence[str], form: str, as_json: bool) -> None:
    """Draw the graph of runs: what waits for what, what supersedes what, and who has the locks."""
    from arkqueue.cli import drawing
    from arkqueue.cli.find import find

    ids = dict.fromkeys(find(client, name)["run"] for name in names)
    whole = _together([client.get(f"/runs/{id}/graph") for id in ids])
    if as_json or form == "json":
        print_json(whole)
    elif form == "text":
        say(drawing.as_text(whole))
    else:
        say(drawing.as_mermaid(whole) if form == "mermaid" else drawing.as_dot(whole))


def tally(run: Any) -> str:
    """The results of a run's tasks, in a few words."""
    if run["faults"]:
        return f"{len(run['faults'])} fault{'s' if len(run['faults']) != 1 else ''}"
    counts = run["counts"]
    if run["baseline"]:
        return "baseline"
    words = [f"{counts['completed']}/{counts['tasks']}"]
    superseded = counts["superseded"]
    told = ("running", "held", "failed", "rejected", "canceled", "superseded", "skipped")
    numbers = {word: counts[word] - (superseded if word == "canceled" else 0) for word in told}
    words += [f"{number} {word}" for word, number in numbers.items() if number]
    words += ["REPORT held"] if run["report"] == "held" else []
    words += [CHANGED] if run["changed_since_report"] else []
    return ", ".join(words if counts["tasks"] else words[1:]) or "-"


def whence(run: Any) -> str:
    """Who or what made a run."""
    if run["backfill"]:
        return one_line(f"{run['backfill'].rpartition('@')[2]}: {run['by']}", 24)
    if run["submission"]:
        return one_line(f"{run['submission'].rpartition('@')[2]}: {run['by']}", 24)
    if run["trigger"] == "commit":
        return one_line(run["author"].partition("<")[0].strip(), 24)
    if run["trigger"] == "schedule" or not run["by"]:
        return one_line(run["by"] or run["trigger"], 24)
    return one_line(f"{run['trigger']}: {run['by']}", 24)


def task_rows(
    tasks: Sequence[Any], expected: Mapping[str, Any] = MappingProxyType({})
) -> list[tuple[str, str, str, str]]:
    """The name, state, duration and reason of each task. ``expected``: by name, when the task may
    start and end.
    """
    return [
        (
            task["full_name"],
            state(task["state"]),
            took(task["started_at"], task["ended_at"]),
            one_line("; ".join(filter(None, (task["why"], spell(expected.get(task["full_name"])))))),
        )
        for task in tasks
    ]


def spell(expected: Any) -> str:
    """When a task is expected to start and to end, in words; empty if this is not known."""
    if not expected:
        return ""
    began = datetime.fromisoformat(expected["start"]) <= datetime.now(UTC)
    return (
        f"end {clock(expected['end'])}" if began else f"start {clock(expected['start'])}, end {clock(expected['end'])}"
    )


def _together(graphs: Sequence[Any]) -> Any:
    """One graph of several runs. A task outside one run may be inside another."""
    nodes: dict[int, Any] = {}
    for part in graphs:
        for node in part["nodes"]:
            if node["id"] not in nodes or not node["outside"]:
                nodes[node["id"]] = node
    ordered = sorted(nodes.values(), key=lambda node: (node["rev"], node["run"]))
    return {
        "nodes": ordered,
        "edges": [edge for part in graphs for edge in part["edges"]],
        "locks": list({lock["name"]: lock for part in graphs for lock in part["locks"]}.values()),
        "more_locks": any(part["more_locks"] for part in graphs),
    }
