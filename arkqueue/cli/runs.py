"""Runs and tasks: made by hand, listed, shown, drawn, explained."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from arkqueue.cli.items import FEW
from arkqueue.cli.options import as_json, calls_server
from arkqueue.cli.output import ago, at, bold, dim, print_json, say, state, table, took
from arkqueue.model import USUAL_PRIORITY, Trigger
from arkqueue.names import task_in_run
from arkqueue.text import on_one_line, one_line, visible

if TYPE_CHECKING:
    from arkqueue.cli.client import Client

TASK_STATES = (
    "waiting", "held", "ready", "running", "deferred", "completed", "failed", "rejected", "canceled", "skipped",
)  # fmt: skip
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
FORMATS = ("text", "mermaid", "dot", "json")
CHANGED = "changed since its report"
"""Of a run whose last report does not say any more what its tasks have come to."""
_INDENT = "\n" + " " * 14
"""Before the further lines of a fact."""


@click.command(
    epilog="Examples: arkqueue trigger papers; arkqueue trigger papers --revision 12 index; arkqueue trigger papers release --wait. "
    "arkqueue trigger papers thumbnails --from 1. "
    "What is going to run, and what each task waits for, is said on stderr; on stdout stands the run's name alone."
)
@click.argument("archive", metavar="ARCHIVE")
@click.argument("tasks", metavar="[TASK]…", nargs=-1)
@click.option("--revision", metavar="REV", help="A number, or a SHA or a prefix of one (default: the head).")
@click.option("--branch", metavar="BRANCH", help="Another than the main branch.")
@click.option(
    "--without",
    multiple=True,
    metavar="TASK",
    help="Wait for nothing of this task, which is not part of the run; again for more.",
)
@click.option(
    "--from",
    "first",
    metavar="REV",
    help="Backfill: run the tasks at all revisions from this one on, in order, as the head defines them.",
)
@click.option("--to", "last", metavar="REV", help="With --from: up to this one (default: the one before the head).")
@click.option("--force", is_flag=True, help="Although a later revision supersedes it, or has done its work.")
@click.option("--dry-run", is_flag=True, help="Only say what would run, and what would be refused.")
@click.option("--wait", is_flag=True, help="Wait for its end; exit code 1 unless it completed (see --accept).")
@click.option(
    "--accept",
    type=click.Choice(("superseded", "canceled")),
    multiple=True,
    help="With --wait: exit code 0 also where the run ended so.",
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

    It has the named tasks. Without names it has those that run both on commits and by hand: what runs by hand alone, a release say, is to be named.
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
        words += [f"takes what is there of {', '.join(takes)}"] if takes else []
        words += [f"{name} has never run" for name in task["never_ran"]]
        words += [f"is held by {task['held']} until somebody releases it"] if task["held"] else []
        yield f"  {task_in_run(task['name'], task['item'])[1:]}" + (f" {'; '.join(words)}" if words else "")
    for name, items in told.items():
        if (more := items - FEW) > 0:
            yield f"  {name}: {more:,} more items"


def _need(need: Any) -> str:
    return str(need["task"]) + (f" ({need['state']})" if need["state"] else "")


@click.command()
@click.argument("archive", required=False)
@click.option("--branch", metavar="BRANCH", help="Of this branch of the archive only.")
@click.option("--state", "states", multiple=True, type=click.Choice(STATES), help="In this state only; again for more.")
@click.option("--trigger", type=click.Choice([str(one) for one in Trigger]), help="Made by this only.")
@click.option("--backfills/--no-backfills", default=None, help="Those of backfills alone, or none of them.")
@click.option("--limit", type=click.IntRange(1, 500), default=20, show_default=True, help="At most so many.")
@click.option("--before", type=click.IntRange(min=1), metavar="CURSOR", help="Go on where a list has ended.")
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
    if not rows:
        say("no runs" + (" of this kind" if states or branch or trigger else " yet"), err=True)
    if page["next"] is not None:
        say(f"there are older ones: --before {page['next']}", err=True)


@click.command()
@click.argument("name", metavar="RUN|ITEM|TASK|BACKFILL")
@click.option(
    "--files",
    type=click.IntRange(0, 10_000),
    default=20,
    show_default=True,
    help="Of a run: list at most so many of the files that its revision changes.",
)
@click.option("--items", is_flag=True, help="Of a run: list each item of its lists; else a long list is one line with its numbers.")  # fmt: skip
@click.option("--state", "states", multiple=True, type=click.Choice(TASK_STATES), help="Of a run: list only tasks and items in this state; again for more.")  # fmt: skip
@click.option("--limit", type=click.IntRange(1, 1000), default=200, show_default=True, help="Of a run with long lists: at most so many items.")  # fmt: skip
@click.option("--after", type=click.IntRange(min=1), metavar="CURSOR", help="Go on where a list of items has ended.")
@click.option("--deleted", is_flag=True, help="Of a run: list the items that were deleted, which takes a token of scope admin.")  # fmt: skip
@click.option("--payload", is_flag=True, help="Of the run of a submission: print what was handed in, as it is.")
@as_json
@calls_server
def show(
    client: Client,
    name: str,
    files: int,
    items: bool,
    states: Sequence[str],
    limit: int,
    after: int | None,
    deleted: bool,
    payload: bool,
    as_json: bool,
) -> None:
    """Show a run with its tasks and the files that its revision changes, the tasks of an item (RUN/*/KEY), a task with its attempts, or how far a backfill (papers@fill:1) is."""
    from arkqueue.cli import backfill
    from arkqueue.cli.find import find
    from arkqueue.errors import Invalid

    if backfill.is_one(name):
        backfill.show(client, name, as_json)
        return
    found = find(client, name, items=True)
    is_run = found["task"] is None and found["item"] is None
    if payload:
        for piece in client.fetch(f"/runs/{found['run']}/payload"):
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return
    if deleted:
        if not is_run:
            raise Invalid(found["full_name"], "is not the name of a run, and --deleted is for runs", "Leave it out.")
        _show_deleted(found["full_name"], client.get(f"/runs/{found['run']}/deleted-items"), as_json)
        return
    if found["task"] is None:
        thing = client.get(f"/runs/{found['run']}", item=found["item"])
    else:
        thing = client.get(f"/tasks/{found['task']}")
    page = None
    if is_run and thing["lists"] and (items or states or after):
        page = client.get(f"/runs/{found['run']}/items", state=states, limit=limit, after=after)
        thing["items"] = page
    if is_run and files:
        thing["changes"] = client.get(f"/runs/{found['run']}/changes", limit=files)
    if as_json:
        print_json(thing)
    elif is_run:
        _show_run(thing, states, items=items, page=page, is_first=after is None)
    elif found["task"] is None:
        _show_item(found["full_name"], thing, states)
    else:
        _show_task(thing)
    if found["earlier"] and not as_json:
        say()
        say(f"A ledger from before a rewind has this number, too: arkqueue show {visible(found['earlier'])}")


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


@click.command()
@click.argument("name", metavar="RUN|ITEM|TASK")
@as_json
@calls_server
def explain(client: Client, name: str, as_json: bool) -> None:
    """Say why a task, an item (RUN/*/KEY) or a run is not running, or how it came to its state, and which commands help."""
    found = client.get("/explain", name=name)
    if as_json:
        print_json(found)
        return
    say(bold(visible(found["full_name"])) + (f": {state(found['state'])}" if found["state"] else ""))
    told: set[str] = set()
    for reason in found["reasons"]:
        say(on_one_line(reason["text"]))
        for command in reason["commands"]:
            if command not in told:
                say(f"  {visible(command)}")
        told.update(reason["commands"])


def tally(run: Any) -> str:
    """What became of a run's tasks, in a few words."""
    if run["faults"]:
        return f"{len(run['faults'])} fault{'s' if len(run['faults']) != 1 else ''}"
    counts = run["counts"]
    if run["baseline"] and run["trigger"] == "commit":
        return "baseline"
    words = [f"{counts['completed']}/{counts['tasks']}"]
    superseded = counts["superseded"]
    numbers = {**counts, "canceled": counts["canceled"] - superseded}
    words += [f"{numbers[word]} {word}" for word in ("running", "held", "failed", "rejected", "canceled", "superseded", "skipped") if numbers[word]]  # fmt: skip
    words += [CHANGED] if run["changed_since_report"] else []
    return ", ".join(words) if counts["tasks"] else "-"


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


def task_rows(tasks: Sequence[Any]) -> list[tuple[str, str, str, str]]:
    """Name, state, duration and reason of each task."""
    return [
        (task["full_name"], state(task["state"]), took(task["started_at"], task["ended_at"]), one_line(task["why"]))
        for task in tasks
    ]


def _by(who: str | None) -> str:
    """Nothing of who is unknown, as the author of a repository's first revision is."""
    return f" by {visible(who)}" if who else ""


def _changed_files(changes: Any) -> str:
    """The changed files of a revision, one a line, marked as svn and git do."""
    if changes["fault"]:
        return f"cannot be listed: {visible(changes['fault'])}"
    # A line break of a name would look like another file.
    names = [visible(file["path"]).replace("\n", "\\n") for file in changes["files"]]
    lines = [f"{file['status'][0].upper()} {name}" for file, name in zip(changes["files"], names, strict=True)]
    if (more := changes["total"] - len(lines)) > 0:
        lines.append(f"and {more:,} more")
    return _INDENT.join(lines) or "none"


def _reports(run: Any) -> str:
    """How many reports a run has, and the command that shows the newest."""
    if not run["reports"]:
        return ""
    changed = f", {CHANGED}" if run["changed_since_report"] else ""
    return f"{len(run['reports'])}, the newest of {at(run['reports'][0]['made_at'])}{changed}: {dim('arkqueue report ' + run['full_name'])}"


def _show_run(
    run: Any, states: Sequence[str] = (), *, items: bool = False, page: Any = None, is_first: bool = True
) -> None:
    """``page``: of the items of a run with long lists; None: these are told by their numbers. ``is_first``: it is the first page, which has other tasks, too."""
    from arkqueue.cli.items import shown

    facts = [
        ("revision", visible(run["revision"]) + _by(run["author"]) + f", {at(run['date'])}"),
        ("branch", visible(run["branch"])),
        ("message", _INDENT.join(visible(run["message"].strip()).splitlines())),
        ("files", _changed_files(run["changes"]) if "changes" in run else ""),
        (
            "backfill",
            f"{visible(run['backfill'])}, with the workflow files of revision {run['definitions']}"
            if run["backfill"]
            else "",
        ),
        ("submission", visible(run["submission"] or "")),
        ("origin", f"made by {visible(run['origin'])}, generation {run['generation']}" if run["origin"] else ""),
        ("made", f"{at(run['created_at'])}, {run['trigger']}" + _by(run["by"])),
        ("settled", at(run["settled_at"]) if run["settled_at"] else ""),
        (
            "left out",
            f"{run['left_out']} {'fire' if run['left_out'] == 1 else 'fires'} of its schedule since {at(run['left_out_since'])}"
            if run["left_out"]
            else "",
        ),
        ("planned", f"{run['planned']:,} of {run['planned_items']:,} items" if run["planned"] is not None else ""),
        ("tasks", tally(run)),
        ("report", state(run["report"]) if run["report"] else ""),
        ("reports", _reports(run)),
        ("scratch", _INDENT.join(map(_scratch, run["scratch"]))),
        ("canceled", _by(run["canceled_by"]).strip()),
        ("deleted", _by(run["deleted_by"]).strip()),
        ("other runs", _INDENT.join(f"{r['full_name']} {r['trigger']} {state(r['state'])}" for r in run["others"])),
        ("", "its revision was dropped by a rewrite of the branch" if run["dropped"] else ""),
    ]
    _head(run, facts)
    if run["faults"]:
        from arkqueue.model import Fault

        say()
        for fault in run["faults"]:
            say(click.style(visible(str(Fault(**fault))), fg="red"))
    if run["tasks"]:
        say()
        rows = shown(run["tasks"], states, items=items, long=run["lists"])
        if page is not None:
            rows = [task for task in rows if not task["item"] and is_first] + page["tasks"]
        table(task_rows(rows), ("TASK", "STATE", "TOOK", "WHY"))
        if not rows:
            say(f"no task of it is {' or '.join(states)}", err=True)
        if page is not None and page["next"] is not None:
            say(f"there are more items: --after {page['next']}", err=True)
    _show_deeds(run["deeds"])


def _scratch(there: Any) -> str:
    """Folders in one place, in words."""
    folders = "1 folder" if there["folders"] == 1 else f"{there['folders']} folders"
    if there["is_removed"]:
        return f"{folders}, removed"
    size = f", {there['bytes'] / 2**20:.1f} MiB" if there["bytes"] else ""
    return f"{folders} on {visible(there['hostname'] or there['store'][:8])}{size}"


def _show_task(task: Any) -> None:
    definition = task["definition"] or {}
    what = definition.get("command") or definition.get("script") or ""
    is_deferred = task["state"] == "deferred"
    facts = [
        ("why", visible(task["why"])),
        ("item", _item(task["item_body"])),
        ("run", task["full_name"].partition("/")[0]),
        ("ready", at(task["ready_at"]) if task["ready_at"] else ""),
        ("due", at(task["due_at"]) if task["due_at"] and is_deferred else ""),
        ("deferred", f"since {at(task['deferred_at'])}" if is_deferred and task["deferred_at"] else ""),
        ("deadline", at(task["deadline_at"]) if is_deferred and task["deadline_at"] else ""),
        ("settled", at(task["settled_at"]) if task["settled_at"] else ""),
        ("waived", "what waits for it was let go on" if task["waived"] else ""),
        ("exclusive", "yes" if task["exclusive"] else ""),
        ("priority", str(task["priority"]) if task["priority"] != USUAL_PRIORITY else ""),
        ("defined in", f"{visible(definition['path'])}:{definition['line']}" if definition.get("path") else ""),
        ("image", visible(definition.get("image") or "")),
        ("command", _INDENT.join(visible(what if isinstance(what, str) else " ".join(what)).splitlines())),
    ]
    _head(task, facts)
    if task["history"]:
        say()
        rows = [
            (f"{a['number']}{' (poll)' if a['kind'] == 'poll' else ''}", _end(a), at(a["started_at"] or a["claimed_at"]), took(a["started_at"], a["ended_at"]),
             visible(a["hostname"] or a["host"]), one_line(a["message"]))
            for a in task["history"]
        ]  # fmt: skip
        table(rows, ("ATTEMPT", "END", "STARTED", "TOOK", "HOST", "MESSAGE"))
        for attempt in task["history"]:
            if attempt["image"]:
                say(f"  image of attempt {attempt['number']}: {visible(attempt['image'])}")
            for gone in filter(None, (attempt["log_removed"], attempt["outputs_removed"])):
                say(f"  attempt {attempt['number']}: {on_one_line(gone)}")
            for key, value in (attempt["outputs"] or {}).items():
                say(f"  output of attempt {attempt['number']}: {visible(key)} = {_value(value)}")
    _show_deeds(task["deeds"])
    commands = ["logs"] if task["history"] else []
    commands += ["explain"] if task["state"] not in ("completed", "running") else []
    if commands:
        say()
    for command in commands:
        say(dim(f"arkqueue {command} {task['full_name']}"))


def _head(thing: Any, facts: Sequence[tuple[str, str]]) -> None:
    say(f"{bold(thing['full_name'])}  {state(thing['state'])}")
    for key, value in facts:
        if value:
            say(f"  {dim(key)}{' ' * (12 - len(key))}{value}")


def _item(body: Any) -> str:
    """What a list has for an item, as the task gets it; of a long one the beginning."""
    return "" if body is None else one_line(json.dumps(body, ensure_ascii=False), 500)


def _end(attempt: Any) -> str:
    if attempt["end"] is None:
        return state("running")
    if attempt["end"] != "exited":
        return str(attempt["end"])
    return "exit code unknown" if attempt["exit_code"] is None else f"exit code {attempt['exit_code']}"


def _value(value: Any) -> str:
    """An output, whose lines cannot be taken for lines of ours."""
    return visible(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).replace("\n", "\\n")


def _show_item(name: str, run: Any, states: Sequence[str]) -> None:
    from arkqueue.cli.items import shown

    say(bold(visible(name)))
    say()
    if run["tasks"]:
        table(task_rows(shown(run["tasks"], states, items=True)), ("TASK", "STATE", "TOOK", "WHY"))
    else:
        say(f"it was deleted: arkqueue show {run['full_name']} --deleted")


def _show_deleted(run: str, items: Sequence[Any], as_json: bool) -> None:
    if as_json:
        print_json(items)
    elif not items:
        say(f"{bold(run)}: no item was deleted")
    else:
        table(
            [
                (bold(item["full_name"]), at(item["deleted_at"]), visible(item["deleted_by"]), " ".join(item["tasks"]))
                for item in items
            ],
            ("ITEM", "DELETED", "BY", "TASKS"),
        )


def _show_deeds(deeds: Sequence[Any]) -> None:
    if deeds:
        say()
        table([(at(d["at"]), visible(d["by"]), on_one_line(" ".join(filter(None, (d["verb"], d["task"], d["note"]))))) for d in deeds], ("WHEN", "WHO", "DID"))  # fmt: skip


def _together(graphs: Sequence[Any]) -> Any:
    """One graph of several runs: a task that is outside of one may be inside another."""
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
