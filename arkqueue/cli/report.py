"""``arkqueue report``: shows the report of a run, and makes a further one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from arkqueue.cli.options import as_json, calls_server
from arkqueue.cli.output import at, bold, dim, print_json, say, state, table, took
from arkqueue.names import task_in_run
from arkqueue.text import one_line, visible

if TYPE_CHECKING:
    from arkqueue.cli.client import Client

MOST_LINES = 100
"""The most tasks of a report that are printed; for more, only their number is."""
MOST_NAMED = 5
"""The most deleted tasks that are named."""
COUNTED = ("completed", "failed", "rejected", "canceled", "skipped", "unsettled", "waived")


@click.command(
    epilog="Examples: arkqueue report papers@12; arkqueue report papers@12 --json > outcome.json; arkqueue report papers@12 --update. "
    "Every report is kept until its run is purged."
)
@click.argument("name", metavar="RUN")
@click.option("--number", type=click.IntRange(1, 2**31 - 1), metavar="N", help="The number of the report (default: the newest).")  # fmt: skip
@click.option("--list", "listed", is_flag=True, help="List all its reports.")
@click.option("--update", is_flag=True, help="Make a further report, with what has changed since the last one.")
@click.option("--now", is_flag=True, help="With --update: report also if some tasks of the run have not settled.")
@as_json
@calls_server
def report(client: Client, name: str, number: int | None, listed: bool, update: bool, now: bool, as_json: bool) -> None:
    """Show the newest report of a run: the states of its tasks when the report was made.

    A run makes a report by itself when all of its tasks have settled. Later retries do not change
    it: --update makes another one. Where REPORT has a command, that command gets each report with
    changes. The report counts as sent when the command ends with exit code 0.
    """
    from arkqueue.cli.find import find_run

    if now and not update:
        raise click.UsageError("--now goes with --update.")
    if sum((number is not None, listed, update)) > 1:
        raise click.UsageError("Give one of --number, --list and --update.")
    run = find_run(client, name)
    reports = f"/runs/{run['id']}/reports"
    if listed:
        found = client.get(reports)
        print_json(found) if as_json else _list(run, found)
        return
    if update:
        made = client.post(f"/runs/{run['id']}/report", {"now": now})
        number = made["number"]
        if made["is_given"]:
            say(f"REPORT sends it: arkqueue logs {run['full_name']}/REPORT -f", err=True)
        elif not made["changes"]:
            say(
                f"nothing has changed since report {made['since']}" if made["since"] else "nothing has settled yet",
                err=True,
            )
    elif number is None:
        # The server says why a run has no report.
        number = run["reports"][0]["number"] if run["reports"] else 1
    shown = client.get(f"{reports}/{number}")
    if as_json:
        print_json(shown)
        return
    _show(shown)
    if not update:
        _mark(run)


def _list(run: Any, reports: list[Any]) -> None:
    rows = [
        (str(one["number"]), state(one["state"]), at(one["made_at"]), _changes(one), _sent(one), visible(one["made_by"] or "by itself"))
        for one in reports
    ]  # fmt: skip
    table(rows, ("REPORT", "STATE", "MADE", "CHANGES", "SENT", "BY"))
    if not rows:
        say("no report yet", err=True)
    _mark(run)


def _show(report: Any) -> None:
    say(f"{bold(report['run'])}  {state(report['state'])}, report {report['number']}")
    counts = report["counts"]
    facts = [
        ("made", at(report["made_at"]) + (f" by {visible(report['made_by'])}" if report["made_by"] else ", by itself")),
        ("tasks", ", ".join([str(counts["tasks"]), *(f"{counts[word]} {word}" for word in COUNTED if counts[word])])),
        ("changes", _changes(report)),
        ("deleted", _deleted(report["deleted"])),
        ("sent", _sent(report)),
    ]
    for key, value in facts:
        if value:
            say(f"  {dim(key)}{' ' * (12 - len(key))}{value}")
    if report["tasks"]:
        say()
        table(_rows(report), ("", "TASK", "STATE", "TOOK", "MESSAGE"))
    if (more := counts["tasks"] - min(len(report["tasks"]), MOST_LINES)) > 0:
        hidden = report["tasks"][MOST_LINES:] if report["since"] is not None else []
        changed = sum(task["changed"] for task in hidden)
        say(f"and {more:,} more tasks{f', {changed:,} of them changed' if changed else ''}: --json", err=True)


def _rows(report: Any) -> Iterator[tuple[str, str, str, str, str]]:
    """The first tasks of a report, with a mark at those that have changed since the report before."""
    has_before = report["since"] is not None
    for task in report["tasks"][:MOST_LINES]:
        name = task_in_run(task["name"], task["item"])[1:]
        mark = "*" if has_before and task["changed"] else ""
        yield mark, visible(name), state(task["state"]), took(task["started_at"], task["ended_at"]), _why(task)


def _why(task: Any) -> str:
    words = [task["outputs_removed"] or task["log_removed"] or task["message"]]
    if root := task["root"]:
        words.append(f"as {root} completed" if task["unneeded"] else f"because of {root}")
    words += [f"superseded by {task['superseded_by']}"] if task["superseded_by"] else []
    words += ["waived"] if task["waived"] and task["state"] in ("failed", "rejected") else []
    words += [f"exit code {task['exit_code']}"] if task["exit_code"] and not words[0] else []
    return one_line("; ".join(filter(None, words)))


def _deleted(tasks: Sequence[Any]) -> str:
    names = [visible(task_in_run(task["name"], task["item"])[1:]) for task in tasks[:MOST_NAMED]]
    return ", ".join(names) + (f" and {len(tasks) - MOST_NAMED:,} more" if len(tasks) > MOST_NAMED else "")


def _changes(report: Any) -> str:
    if report["since"] is None:
        return ""
    count = report["changes"]
    return f"{count} {'task' if count == 1 else 'tasks'} since report {report['since']}"


def _sent(report: Any) -> str:
    """Whether the command of REPORT has sent the report; empty if it was not to send it."""
    return at(report["sent_at"]) if report["sent_at"] else "no" if report["is_given"] else ""


def _mark(run: Any) -> None:
    if run["changed_since_report"] and run["state"] != "deleted":
        say(f"its tasks have changed since: arkqueue report {run['full_name']} --update", err=True)
