"""make bench, or python -m benchmarks [ROW]… [--quick] [--rounds N] [--size NAME=N]… [--json FILE]

Runs rows of the table in docs/performance.md, by default all of them. Prints the figures and the
missed targets, and exits with 1 if a target is missed.
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.bench import Bench, Figure, machine

ROWS: dict[str, tuple[str, str]] = {
    "1": ("commits:latency", "notice → first process"),
    "2": ("commits:burst", "burst of commits"),
    "3": ("draining:queue_alone", "queue alone"),
    "4": ("commits:planning", "notice → stored graph"),
    "5": ("aging:history", "1, 3 and 4 with a long history"),
    "6": ("draining:many_archives", "many archives, fairness"),
    "7": ("draining:several_managers", "several managers on one database"),
    "8": ("hooks:hooks", "what the hook adds to a commit"),
    "9": ("memory:memory", "resident memory"),
    "10": ("output:output", "output"),
    "11": ("reading:reading", "list and show at the API"),
    "12": ("starting:starting", "start"),
    "13": ("draining:old_snapshot", "an old snapshot held open"),
    "14": ("growth:growth", "memory after 1,000 commits"),
    "15": ("attacks:attacks", "a commit beside an attack"),
    "16": ("canceling:canceling", "canceling a large run or backfill"),
    "17": ("purging:purging", "a history of ten million tasks, and its purge"),
    "18": ("locks:locks", "passing a lock on"),
    "19": ("priorities:priorities", "claims among mixed priorities"),
    "20": ("large_lists:large_lists", "lists of ten thousand items"),
    "21": ("pages:answers", "pages with a long history"),
    "22": ("open_pages:open_pages", "pages that stay open"),
    "23": ("in_browser:in_browser", "in a real browser"),
    "24": ("attachments:attachments", "attachments of submissions"),
    "ingest": ("ingesting:ingest", "ingest in fast motion"),
    "containers": ("containers:containers", "containers beside the bare SDK"),
    "workspaces-svn": ("workspaces:subversion", "workspaces beside svn"),
    "workspaces-git": ("workspaces:git", "workspaces beside git"),
}
"""The module and the subject of each row. A row's module is imported when the row runs. Rows with a
number run by default.
"""

SMALL = 3
"""Figures below this value are printed with more digits."""


def _sizes(_ctx: object, _param: object, values: Iterable[str]) -> dict[str, int]:
    try:
        return {name: int(number) for name, number in (value.split("=") for value in values)}
    except ValueError:
        raise click.BadParameter("say it like --size burst.commits=100") from None


def _help() -> str:
    listed = "\n".join(f"{row:>14}  {what}" for row, (_, what) in ROWS.items())
    return f"""Measure the ROWs of the table in docs/performance.md, or all that have a number.

    \b
{listed}"""


@click.command(help=_help())
@click.argument("rows", nargs=-1, type=click.Choice(list(ROWS)), metavar="[ROW]…")
@click.option("--quick", is_flag=True, help="Small sizes and few rounds: a few minutes instead of an hour.")
@click.option("--rounds", type=click.IntRange(min=1), help="Runs for each figure (default: 5; quick: 3).")
@click.option(
    "--size", "sizes", multiple=True, metavar="NAME=N", callback=_sizes, help="Another size; the JSON tells all."
)
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), default=Path("build/bench.json"), show_default=True
)
@click.option(
    "--peers", type=click.Path(path_type=Path), default=Path(".venv-peers"), show_default=True,
    envvar="ARKQUEUE_BENCH_PEERS", help="Where the peers' environments are, or are made.",
)  # fmt: skip
@click.option("--no-peers", is_flag=True, help="Compare with nobody who has to be installed.")
@click.option(
    "--folder", type=click.Path(path_type=Path, exists=True), default=Path(tempfile.gettempdir()),
    help="On which disk to measure (default: the temporary folder).",
)  # fmt: skip
def main(
    rows: tuple[str, ...],
    quick: bool,
    rounds: int | None,
    sizes: dict[str, int],
    json_file: Path,
    peers: Path,
    no_peers: bool,
    folder: Path,
) -> None:
    figures: list[Figure] = []
    broken: list[str] = []
    before = machine()
    rounds = rounds or (3 if quick else 5)
    with Bench(folder, quick=quick, rounds=rounds, sizes=sizes, peers=None if no_peers else peers.absolute()) as bench:
        for row in rows or filter(str.isdigit, ROWS):
            place, what = ROWS[row]
            bench.say(f"{row}: {what}")
            try:
                for figure in _function(place)(bench):
                    figures.append(figure)
            except Exception:
                # A row that breaks is reported, and the other rows still run.
                traceback.print_exc()
                broken.append(row)
    json_file.parent.mkdir(parents=True, exist_ok=True)
    told = {"before": before, "after": machine(), "quick": quick, "sizes": bench.sizes}
    json_file.write_text(json.dumps({**told, "figures": [f.as_json() for f in figures], "broken": broken}, indent=1))
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    console.print(table(figures))
    missed = [
        f"{figure.row}: {figure.what}: {_number(figure.median)} {figure.unit}"
        + (f", {_number(figure.ratio)}× {figure.beside}" if figure.ratio is not None else "")
        + f" (target: {text})"
        for figure in figures
        for text, met in figure.verdicts()
        if met is False
    ]
    unjudged = [f"{f.row}: {f.what} ({text})" for f in figures for text, met in f.verdicts() if met is None]
    for head, lines in (("Misses its target", missed), ("Not judged, its peer is not there", unjudged)):
        if lines:
            console.print(f"[bold]{head}:[/bold]")
            for line in lines:
                console.print(f"  {line}", markup=False)
    for row in broken:
        console.print(f"row {row} broke; see above", style="bold red")
    console.print(f"all of it: {json_file}" + (" (quick: smaller sizes than the targets are for)" if quick else ""))
    sys.exit(1 if missed or (unjudged and not no_peers) or broken else 0)


def _function(place: str) -> Callable[[Bench], Iterable[Figure]]:
    module, _, name = place.partition(":")
    function: Callable[[Bench], Iterable[Figure]] = getattr(importlib.import_module(f"benchmarks.{module}"), name)
    return function


def table(figures: Iterable[Figure]) -> Table:
    shown = Table("row", "what", "median", "least … most", "n", "beside", "ratio", "target", "note")
    for figure in figures:
        verdicts = " · ".join(
            f"[{ {True: 'green', False: 'red', None: 'yellow'}[met] }]{text} { {True: '✓', False: '✗', None: '?'}[met] }[/]"
            for text, met in figure.verdicts()
        )
        beside = figure.beside
        if figure.beside_runs:
            beside += f" {_number(statistics.median(figure.beside_runs))}"
        shown.add_row(
            figure.row,
            figure.what,
            f"{_number(figure.median)} {figure.unit}",
            f"{_number(min(figure.runs))} … {_number(max(figure.runs))}",
            str(len(figure.runs)),
            beside,
            "" if figure.ratio is None else f"{_number(figure.ratio)}×",
            verdicts,
            figure.note,
        )
    return shown


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= SMALL else f"{value:.3g}"


if __name__ == "__main__":
    main()
