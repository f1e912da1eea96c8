"""`show` and `explain`: one run, item, task or backfill with all its facts."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click

from arkqueue.cli.options import as_json, calls_server
from arkqueue.cli.output import at, bold, clock, dim, fault_line, print_json, say, state, table, took
from arkqueue.cli.runs import CHANGED, spell, tally, task_rows
from arkqueue.priorities import USUAL_PRIORITY
from arkqueue.text import files_in_words, name_visible, on_one_line, one_line, visible
from arkqueue.usage import usage_in_words, usage_of_run_in_words

if TYPE_CHECKING:
    from arkqueue.cli.client import Client

TASK_STATES = (
    "waiting", "held", "ready", "running", "deferred", "completed", "failed", "rejected", "canceled", "skipped",
)  # fmt: skip
_INDENT = "\n" + " " * 14
"""The beginning of the second and further lines of a fact."""
LONGEST_ITEM = 500
"""The most characters of an item that are printed."""
FEWEST_LEFT_OUT = 3
"""The number of equal attempts between the first and the last one from which on they are only
counted.
"""


@click.command()
@click.argument("name", metavar="RUN|ITEM|TASK|BACKFILL")
@click.option(
    "--files",
    type=click.IntRange(0, 10_000),
    default=20,
    show_default=True,
    help="Of a run: the number of changed files to list at most.",
)
@click.option("--items", is_flag=True, help="Of a run: list each item of its lists. Without this option, a long list is one line with counts.")  # fmt: skip
@click.option("--state", "states", multiple=True, type=click.Choice(TASK_STATES), help="Of a run: list only tasks and items in this state; may be repeated.")  # fmt: skip
@click.option("--limit", type=click.IntRange(1, 1000), default=200, show_default=True, help="Of a run with long lists: the number of items at most.")  # fmt: skip
@click.option(
    "--after",
    type=click.IntRange(1, 2**63 - 1),
    metavar="CURSOR",
    help="Continue after this cursor of an earlier list of items.",
)
@click.option("--deleted", is_flag=True, help="Of a run: list its deleted items (needs a token of scope admin).")  # fmt: skip
@click.option("--payload", is_flag=True, help="Of a submission's run: print the submitted document byte for byte.")
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
    """Show a run with its tasks and the files that its revision changes, the tasks of an item
    (RUN/*/KEY), a task with its attempts, or how far a backfill (papers@fill:1) is.
    """
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


@click.command()
@click.argument("name", metavar="RUN|ITEM|LIST|TASK")
@as_json
@calls_server
def explain(client: Client, name: str, as_json: bool) -> None:
    """Explain why a task, an item (RUN/*/KEY), a list (RUN/TASK/*) or a run is not running, or how
    it came to its state, and which commands help.
    """
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
    if found["expected"]:
        say(f"Expected, from earlier runs: {spell(found['expected'])}.")


def _by(who: str | None) -> str:
    """ " by WHO"; empty if the person is unknown, as the author of a repository's first revision is."""
    return f" by {visible(who)}" if who else ""


def _changed_files(changes: Any) -> str:
    """The changed files of a revision, one in each line, marked as in svn and git."""
    if changes["fault"]:
        return f"cannot be listed: {visible(changes['fault'])}"
    # A line break in a name would look like another file.
    names = [name_visible(file["path"]) for file in changes["files"]]
    lines = [f"{file['status'][0].upper()} {name}" for file, name in zip(changes["files"], names, strict=True)]
    if (more := changes["total"] - len(lines)) > 0:
        lines.append(f"and {more:,} more")
    return _INDENT.join(lines) or "none"


def _reports(run: Any) -> str:
    """The number of a run's reports, and the command that shows the newest."""
    if not run["reports"]:
        return ""
    changed = f", {CHANGED}" if run["changed_since_report"] else ""
    return f"{len(run['reports'])}, the newest of {at(run['reports'][0]['made_at'])}{changed}: {dim('arkqueue report ' + run['full_name'])}"


def _show_run(
    run: Any, states: Sequence[str] = (), *, items: bool = False, page: Any = None, is_first: bool = True
) -> None:
    """Print a run. ``page``: a page of the items of its long lists; None: only the numbers of items
    are printed. ``is_first``: the page is the first one, which has other tasks, too.
    """
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
        ("expected", f"its end at {clock(run['ends'])}" if run["ends"] else ""),
        (
            "left out",
            f"{run['left_out']} {'fire' if run['left_out'] == 1 else 'fires'} of its schedule since {at(run['left_out_since'])}"
            if run["left_out"]
            else "",
        ),
        ("planned", f"{run['planned']:,} of {run['planned_items']:,} items" if run["planned"] is not None else ""),
        ("tasks", tally(run)),
        ("used", _used_together(run["used"]) if run["used"] else ""),
        ("report", state(run["report"]) if run["report"] else ""),
        ("reports", _reports(run)),
        ("attachments", _attachments(run["attachments"])),
        ("scratch", _INDENT.join(_scratch(there, run["full_name"]) for there in run["scratch"])),
        ("canceled", _by(run["canceled_by"]).strip()),
        ("deleted", _by(run["deleted_by"]).strip()),
        ("other runs", _INDENT.join(f"{r['full_name']} {r['trigger']} {state(r['state'])}" for r in run["others"])),
        ("", "its revision was dropped by a rewrite of the branch" if run["dropped"] else ""),
    ]
    _head(run, facts)
    if run["faults"]:
        say()
        for fault in run["faults"]:
            say(click.style(fault_line(fault), fg="red"))
    if run["tasks"]:
        say()
        rows = shown(run["tasks"], states, items=items, long=run["lists"])
        if page is not None:
            rows = [task for task in rows if not task["item"] and is_first] + page["tasks"]
        table(task_rows(rows, run["expected"]), ("TASK", "STATE", "TOOK", "WHY"))
        if not rows:
            say(f"no task of it is {' or '.join(states)}", err=True)
        if page is not None and page["next"] is not None:
            say(f"there are more items: --after {page['next']}", err=True)
    _show_deeds(run["deeds"])
    if run["earlier_deeds"]:
        say("Earlier entries are in the audit log (/-/audit-log on the pages).")


def _attachments(there: Any) -> str:
    """The attachments of a run, in words; empty if it has none."""
    if there is None:
        return ""
    files = files_in_words(there["files"], there["size"])
    return (
        f"{files}, removed"
        if there["is_removed"]
        else f"{files}, on {visible(there['hostname'] or there['store'][:8])}"
    )


def _scratch(there: Any, run: str) -> str:
    """Folders in one place, in words; for those that stay for a retry, also how they are removed."""
    folders = "1 folder" if there["folders"] == 1 else f"{there['folders']} folders"
    if there["is_removed"]:
        return f"{folders}, removed"
    size = f", {there['bytes'] / 2**20:.1f} MiB" if there["bytes"] else ""
    kept = ""
    if there["kept"]:
        what = (
            "stays"
            if there["folders"] == 1
            else "all stay"
            if there["kept"] == there["folders"]
            else f"{there['kept']} stay"
        )
        kept = f"; {what} for a retry, until `arkqueue delete {shlex.quote(run)}`"
    return f"{folders} on {visible(there['hostname'] or there['store'][:8])}{size}{kept}"


def _times(retries: int) -> str:
    """How often persons have retried a task, in words."""
    return f"{retries} time{'s' * (retries != 1)} by a person" if retries else ""


def _show_task(task: Any) -> None:
    definition = task["definition"] or {}
    what = definition.get("command") or definition.get("script") or ""
    is_deferred = task["state"] == "deferred"
    facts = [
        ("why", visible(task["why"])),
        ("item", one_line(task["item_text"] or "", LONGEST_ITEM)),
        ("run", task["full_name"].partition("/")[0]),
        ("expected", spell(task["expected"]) if task["expected"] else ""),
        ("ready", at(task["ready_at"]) if task["ready_at"] else ""),
        ("due", at(task["due_at"]) if task["due_at"] and is_deferred else ""),
        ("deferred", f"since {at(task['deferred_at'])}" if is_deferred and task["deferred_at"] else ""),
        ("deadline", at(task["deadline_at"]) if is_deferred and task["deadline_at"] else ""),
        ("settled", at(task["settled_at"]) if task["settled_at"] else ""),
        ("waived", "tasks that wait for it may go on" if task["waived"] else ""),
        ("retried", _times(task["retry_count"])),
        ("exclusive", "yes" if task["exclusive"] else ""),
        ("priority", str(task["priority"]) if task["priority"] != USUAL_PRIORITY else ""),
        ("defined in", f"{visible(definition['path'])}:{definition['line']}" if definition.get("path") else ""),
        ("image", visible(definition.get("image") or "")),
        ("command", _INDENT.join(visible(what if isinstance(what, str) else " ".join(what)).splitlines())),
    ]
    _head(task, facts)
    if task["history"]:
        say()
        _show_attempts(task["history"])
    _show_deeds(task["deeds"])
    commands = ["logs"] if task["history"] else []
    commands += ["explain"] if task["state"] not in ("completed", "running") else []
    if commands:
        say()
    for command in commands:
        say(dim(f"arkqueue {command} {task['full_name']}"))


def _show_attempts(history: Sequence[Any]) -> None:
    """The attempts as a table, with their messages and outputs. If many attempts in a row are
    equal, such as polls, only the first and the last are shown.
    """
    rows: list[tuple[str, ...]] = []
    used: list[str] = []
    for _, streak in groupby(history, lambda one: (one["kind"], _end(one), one["message"], one["host"])):
        these = list(streak)
        alike = [
            (f"{a['number']}{' (poll)' if a['kind'] == 'poll' else ''}", _end(a), at(a["started_at"] or a["claimed_at"]), took(a["started_at"], a["ended_at"]),
             visible(a["hostname"] or a["host"]), one_line(a["message"]))
            for a in these
        ]  # fmt: skip
        left_out = len(alike) - 2
        told = these if left_out < FEWEST_LEFT_OUT else [these[0], these[-1]]
        used += [f"attempt {a['number']} used {words}" for a in told if (words := _used(a))]
        rows += (
            alike
            if left_out < FEWEST_LEFT_OUT
            else [alike[0], ("…", f"{left_out:,} like these", "", "", "", ""), alike[-1]]
        )
    table(rows, ("ATTEMPT", "END", "STARTED", "TOOK", "HOST", "MESSAGE"))
    for line in used:
        say(f"  {line}")
    for _, streak in groupby(
        history, lambda one: [one[key] for key in ("image", "log_removed", "outputs_removed", "outputs")]
    ):
        first, *others = streak
        which = f"attempts {first['number']} to {others[-1]['number']}" if others else f"attempt {first['number']}"
        if first["image"]:
            say(f"  image of {which}: {visible(first['image'])}")
        for gone in filter(None, (first["log_removed"], first["outputs_removed"])):
            say(f"  {which}: {on_one_line(gone)}")
        for key, value in (first["outputs"] or {}).items():
            say(f"  output of {which}: {visible(key)} = {_value(value)}")


def _head(thing: Any, facts: Sequence[tuple[str, str]]) -> None:
    say(f"{bold(thing['full_name'])}  {state(thing['state'])}")
    for key, value in facts:
        if value:
            say(f"  {dim(key)}{' ' * (12 - len(key))}{value}")


def _used_together(used: Any) -> str:
    numbers = used["attempts"], used["processor_seconds"], used["peak_memory_bytes"]
    return usage_of_run_in_words(*numbers, is_all=used["is_all"])


def _used(attempt: Any) -> str:
    return usage_in_words(attempt["processor_seconds"], attempt["peak_memory_bytes"], attempt["usage_sampled"])


def _end(attempt: Any) -> str:
    if attempt["end"] is None:
        return state("running")
    if attempt["end"] != "exited":
        return str(attempt["end"])
    return "exit code unknown" if attempt["exit_code"] is None else f"exit code {attempt['exit_code']}"


def _value(value: Any) -> str:
    """An output, marked so that its lines do not look like lines of arkqueue."""
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
        table([(at(d["at"]), visible(d["by"]), on_one_line(" ".join(filter(None, (d["verb"], d["of"] or d["task"], d["note"]))))) for d in deeds], ("WHEN", "WHO", "DID"))  # fmt: skip
