"""``arkqueue watch``: runs and their tasks as they go; a live table on a terminal, elsewhere one line for each change.

It asks the API again and again and shows the difference. A server that goes away is waited for once it was seen.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from arkqueue.cli.options import calls_server
from arkqueue.cli.output import COLOURS, ago, bold, dim, has_colours, one_line, say, state, took
from arkqueue.cli.runs import tally, whence

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from arkqueue.cli.client import Client

INTERVAL = 0.25
"""Seconds between two looks."""
ENDED = ("completed", "failed", "canceled", "deleted")


@click.command(
    epilog="With the name of a run it ends with that run, with exit code 1 unless it completed; else with Ctrl-C."
)
@click.argument("name", metavar="[ARCHIVE|RUN]", required=False)
@click.option("--limit", type=click.IntRange(1, 100), default=10, show_default=True, help="At most so many runs.")
@click.option("--plain", is_flag=True, help="One line for each change, also on a terminal.")
@calls_server
def watch(client: Client, name: str | None, limit: int, plain: bool) -> None:
    """Watch runs and their tasks as they go."""
    look = _look_at_run(client, name) if name and "@" in name else _look_at_runs(client, name, limit)
    is_live = sys.stdout.isatty() and not plain
    try:
        last = _live(look) if is_live else _plain(look)
    except KeyboardInterrupt:
        return
    if last != "completed":
        sys.exit(1)


Look = Callable[[], Sequence[Any]]
"""Asks for the runs to be shown, the newest first; the one that is waited for is alone and marked ``awaited``."""


def _look_at_run(client: Client, name: str) -> Look:
    from arkqueue.cli.find import find_run

    id = find_run(client, name)["id"]
    return lambda: [{**client.get(f"/runs/{id}"), "awaited": True}]


def _look_at_runs(client: Client, archive: str | None, limit: int) -> Look:
    def look() -> Sequence[Any]:
        found: Sequence[Any] = client.get("/runs", archive=archive, limit=limit, tasks="true")["runs"]
        return found

    return look


def _looks(look: Look) -> Iterator[Sequence[Any] | None]:
    """What is seen, again and again; None while the server is away, which is an error only at first."""
    from arkqueue.cli.client import Unreachable

    yield look()
    while True:
        time.sleep(INTERVAL)
        try:
            yield look()
        except Unreachable:
            yield None


def _end(runs: Sequence[Any]) -> str | None:
    """The state in which the run that is waited for has ended."""
    ended = next((run["state"] for run in runs if run.get("awaited") and run["state"] in ENDED), None)
    return str(ended) if ended else None


# One line for each change


def _plain(look: Look) -> str:
    seen: dict[str, str] = {}
    is_away = False
    for number, runs in enumerate(_looks(look)):
        if runs is None:
            if not is_away:
                say("the server is away; waiting for it", err=True)
            is_away = True
            continue
        is_away = False
        for run in reversed(runs):
            _tell(run, seen, only_open=number == 0 and not run.get("awaited"))
        sys.stdout.flush()
        if end := _end(runs):
            return end
    raise AssertionError("looks never end")


def _tell(run: Any, seen: dict[str, str], *, only_open: bool) -> None:
    """Print what is new about a run and its tasks; ``only_open``: of a run that has ended before, nothing."""
    things = [(t["full_name"], t["state"], t["why"], t["why"]) for t in run["tasks"] if t["name"] != "COMMIT"]
    # How many tasks have ended is worth a word beside a run's state, but no line of its own.
    things.append((run["full_name"], run["state"], "", tally(run)))
    for name, now, why, words in things:
        is_new = seen.get(name) != now + why
        seen[name] = now + why
        if is_new and not (only_open and run["state"] in ENDED):
            clock = datetime.now().astimezone().strftime("%H:%M:%S")
            say(f"{dim(clock)}  {bold(name)}  {state(now)}" + (f"  {one_line(words)}" if words else ""))


# A live table


def _live(look: Look) -> str:
    from rich.console import Console
    from rich.live import Live

    console = Console(no_color=not has_colours(), highlight=False)
    with Live(console=console, auto_refresh=False, vertical_overflow="ellipsis") as live:
        shown: Sequence[Any] = ()
        for runs in _looks(look):
            shown = shown if runs is None else runs
            # A terminal shows ^C at the end of the last line; there is room for it, or all would move down by one.
            table = _table(shown, console.width - 3, console.height - 3, is_away=runs is None)
            live.update(table, refresh=True)
            if end := _end(shown):
                return end
    raise AssertionError("looks never end")


def _table(runs: Sequence[Any], width: int, height: int, *, is_away: bool) -> RenderableType:
    """The newest runs with their tasks, as many as there is room for; the newest at the bottom, where the eye is."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, width=width)
    for heading, ratio in (("RUN, TASK", None), ("STATE", None), ("TOOK", None), ("ABOUT", 1)):
        table.add_column(Text(heading, style="dim"), no_wrap=True, overflow="ellipsis", ratio=ratio)
    blocks: list[list[tuple[Text, Text, str, Text]]] = []
    for run in runs:
        # What matters least stands last: a narrow terminal cuts it.
        about = (tally(run), ago(run["created_at"]), whence(run), one_line(run["message"]))
        made = Text(" · ".join(words for words in about if words not in ("", "-")), style="dim")
        is_timed = run["settled_at"] or run["state"] not in ENDED
        lasted = took(run["created_at"], run["settled_at"]) if is_timed else ""
        block = [(Text(run["full_name"], style="bold"), _state(run["state"]), lasted, made)]
        for task in run["tasks"]:
            if task["name"] != "COMMIT" and run["state"] != "deleted":
                name = Text("  " + task["full_name"])
                lasted = took(task["started_at"], task["ended_at"]) if task["started_at"] else ""
                block.append((name, _state(task["state"]), lasted, Text(one_line(task["why"]))))
        if blocks and sum(map(len, blocks)) + len(block) > height:
            break
        blocks.append(block)
    for block in reversed(blocks):
        for row in block:
            table.add_row(*row)
    table.caption = Text("the server is away; waiting for it", style="red") if is_away else None
    if not blocks:
        table.add_row(Text("no runs yet", style="dim"), "", "", "")
    return table


def _state(name: str) -> Text:
    from rich.text import Text

    return Text(name, style=COLOURS.get(name, ""))
