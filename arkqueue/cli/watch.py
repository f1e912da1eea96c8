"""``arkqueue watch``: shows runs and their tasks as they change, in a live table on a terminal, and
elsewhere in one line for each change, for people or for programs.

It queries the API again and again and shows the difference. Once the server has answered, it is
waited for if it goes away.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from arkqueue.cli.options import calls_server
from arkqueue.cli.output import COLOURS, ago, bold, dim, has_colours, say, state, took
from arkqueue.cli.runs import tally, whence
from arkqueue.text import one_line, shortened

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from arkqueue.cli.client import Client

_BESIDE = ("tasks", "edges", "deeds", "others", "awaited")
INTERVAL = 0.25
"""The seconds between two queries."""
ENDED = ("completed", "failed", "canceled", "superseded", "deleted")


@click.command(
    epilog="With the name of a run it ends with that run, with exit code 1 unless it completed (see --accept); else with Ctrl-C."
)
@click.argument("name", metavar="[ARCHIVE|RUN]", required=False)
@click.option(
    "--accept",
    type=click.Choice(("superseded", "canceled")),
    multiple=True,
    help="Exit with 0 also if the run ended in this state.",
)
@click.option("--limit", type=click.IntRange(1, 100), default=10, show_default=True, help="The number of runs at most.")
@click.option("--plain", is_flag=True, help="One line for each change, also on a terminal.")
@click.option("--json", "as_json", is_flag=True, help="One line for each change: the run or the task, as a JSON document.")  # fmt: skip
@calls_server
def watch(client: Client, name: str | None, accept: tuple[str, ...], limit: int, plain: bool, as_json: bool) -> None:
    """Show runs and tasks as they change."""
    is_awaited = name is not None and "@" in name
    look = _look_at_run(client, name) if name and is_awaited else _look_at_runs(client, name, limit)
    is_live = sys.stdout.isatty() and not plain and not as_json
    try:
        last = _live(look) if is_live else _in_lines(look, _document if as_json else _line)
    except KeyboardInterrupt:
        if is_awaited:
            raise  # how it ends is not known
        return
    if last not in ("completed", *accept):
        sys.exit(1)


def wait_for(client: Client, run: int) -> str:
    """Wait for the end of a run, with a line on stderr for each change. Returns the state in which
    it has ended.
    """
    return _in_lines(_look_at(client, run), _line, err=True)


Look = Callable[[], Sequence[Any]]
"""Queries the runs to show, the newest first. A run that the command waits for is alone and marked
``awaited``.
"""


def _look_at_run(client: Client, name: str) -> Look:
    from arkqueue.cli.find import find_run

    return _look_at(client, find_run(client, name)["id"])


def _look_at(client: Client, id: int) -> Look:
    return lambda: [{**client.get(f"/runs/{id}"), "awaited": True}]


def _look_at_runs(client: Client, archive: str | None, limit: int) -> Look:
    def look() -> Sequence[Any]:
        found: Sequence[Any] = client.get("/runs", archive=archive, limit=limit, tasks="true")["runs"]
        return found

    return look


def _looks(look: Look) -> Iterator[Sequence[Any] | None]:
    """The present answer, again and again; None while the server is away. If it is away at the
    first query, that is an error.
    """
    from arkqueue.cli.client import Unreachable

    yield look()
    while True:
        time.sleep(INTERVAL)
        try:
            yield look()
        except Unreachable:
            yield None


def _end(runs: Sequence[Any]) -> str | None:
    """The state in which the awaited run has ended; None: it has not."""
    ended = next((run["state"] for run in runs if run.get("awaited") and run["state"] in ENDED), None)
    return str(ended) if ended else None


# One line for each change


def _in_lines(look: Look, line: Callable[[Any], str], *, err: bool = False) -> str:
    """Print a line for each change of a run or a task, until the awaited run has ended. Returns the
    state in which it has ended.
    """
    seen: dict[str, str] = {}
    is_away = False
    for number, runs in enumerate(_looks(look)):
        if runs is None:
            if not is_away:
                say("the server is away; waiting for it", err=True)
            is_away = True
            continue
        is_away = False
        if number == 0 and all(run["baseline"] and not run.get("awaited") for run in runs):
            say("no runs; waiting for the next one", err=True)
        for run in reversed(runs):
            for thing in _changed(run, seen, is_first=number == 0 and not run.get("awaited")):
                say(line(thing), err=err)
        sys.stdout.flush()
        if end := _end(runs):
            return end
    raise AssertionError("looks never end")


def _changed(run: Any, seen: dict[str, str], *, is_first: bool) -> Iterator[Any]:
    """The changes of a run's tasks, then of the run. ``is_first``: this is the first answer. A run
    that had ended before shows only its end.
    """
    for thing in (*(task for task in run["tasks"] if task["kind"] != "commit"), run):
        # The number of ended tasks, or the cause of a wait, is printed beside the state, but gets
        # no line of its own.
        why = thing.get("why", "")
        now = thing["state"] + ("" if why.startswith("for ") else why)
        is_new = seen.get(thing["full_name"]) != now
        seen[thing["full_name"]] = now
        if is_new and not (is_first and run["state"] in ENDED and (thing is not run or run["baseline"])):
            yield thing


def _line(thing: Any) -> str:
    words = one_line(tally(thing) if "counts" in thing else thing["why"])
    clock = datetime.now().astimezone().strftime("%H:%M:%S")
    return f"{dim(clock)}  {bold(thing['full_name'])}  {state(thing['state'])}" + (f"  {words}" if words else "")


def _document(thing: Any) -> str:
    """The JSON of the run or the task itself. Other parts of the API's answer have lines of their
    own, or belong to other commands.
    """
    return json.dumps({key: value for key, value in thing.items() if key not in _BESIDE})


# A live table


def _live(look: Look) -> str:
    from rich.console import Console
    from rich.live import Live

    console = Console(no_color=not has_colours(), highlight=False)
    with Live(console=console, auto_refresh=False, vertical_overflow="ellipsis") as live:
        shown: Sequence[Any] = ()
        for runs in _looks(look):
            shown = shown if runs is None else runs
            # A terminal prints ^C at the end of the last line, which keeps room for it; otherwise
            # all lines would move.
            table = _table(shown, console.width - 3, console.height - 3, is_away=runs is None)
            live.update(table, refresh=True)
            if end := _end(shown):
                return end
    raise AssertionError("looks never end")


def _table(runs: Sequence[Any], width: int, height: int, *, is_away: bool) -> RenderableType:
    """The newest runs with their tasks, as many as there is room for, and the number of further
    runs. The newest run is at the bottom, where people look.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, width=width)
    for heading, ratio in (("RUN, TASK", None), ("STATE", None), ("TOOK", None), ("ABOUT", 1)):
        table.add_column(Text(heading, style="dim"), no_wrap=True, overflow="ellipsis", ratio=ratio)
    widest = width // 2  # the width of a name, so that the other columns have room
    blocks: list[list[tuple[Text, Text, str, Text]]] = []
    room, more_runs, more_tasks = height, 0, 0
    for run in runs:
        if not room:
            more_runs += 1
            continue
        # The least important column comes last, because a narrow terminal cuts it.
        about = (tally(run), ago(run["created_at"]), whence(run), one_line(run["message"]))
        made = Text(" · ".join(words for words in about if words not in ("", "-")), style="dim")
        is_timed = run["settled_at"] or run["state"] not in ENDED
        lasted = took(run["created_at"], run["settled_at"]) if is_timed else ""
        block = [(Text(shortened(run["full_name"], widest), style="bold"), _state(run["state"]), lasted, made)]
        for task in run["tasks"]:
            if task["kind"] != "commit" and run["state"] != "deleted":
                name = Text("  " + shortened(task["full_name"], widest - 2))
                lasted = took(task["started_at"], task["ended_at"]) if task["started_at"] else ""
                block.append((name, _state(task["state"]), lasted, Text(one_line(task["why"]))))
        blocks.append(block[:room])
        more_tasks += len(block) - len(blocks[-1])
        room -= len(blocks[-1])
    for block in reversed(blocks):
        for row in block:
            table.add_row(*row)
    more = [
        f"{count} more {what}{'s' * (count > 1)}" for count, what in ((more_tasks, "task"), (more_runs, "run")) if count
    ]
    if is_away:
        table.caption = Text("the server is away; waiting for it", style="red")
    elif more:
        table.caption = Text(f"no room for {' and '.join(more)}", style="dim")
    if not blocks:
        table.add_row(Text("no runs", style="dim"), "", "", "")
    return table


def _state(name: str) -> Text:
    from rich.text import Text

    return Text(name, style=COLOURS.get(name, ""))
