"""Output for people: visible control characters, aligned columns, coloured states, times. Every
command that prints calls this module.

Only a terminal gets colours, unless NO_COLOR is set. Text of others (logs, commit messages, URLs)
goes through ``text.visible`` before it is printed, so that no terminal interprets it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from arkqueue.config_sources import no_color
from arkqueue.text import one_line, visible

COLOURS = {
    "running": "blue", "processing": "blue", "reporting": "blue", "completed": "green", "failed": "red", "rejected": "red",
    "held": "magenta", "deferred": "yellow", "ready": "cyan", "canceled": "yellow", "superseded": "yellow", "skipped": "yellow",
    "waiting": "bright_black", "pending": "bright_black", "planning": "bright_black", "deleted": "bright_black",
}  # fmt: skip


def print_json(answer: Any) -> None:
    """Print one JSON document in ASCII, so that it contains no control character."""
    click.echo(json.dumps(answer, indent=2))


def has_colours() -> bool:
    """Whether standard output shows colours (https://no-color.org)."""
    return sys.stdout.isatty() and not no_color()


def say(text: str = "", *, err: bool = False) -> None:
    """Print a line, without its colours if they cannot be seen."""
    click.echo(text, err=err, color=has_colours())


def state(name: str) -> str:
    """A state in its colour."""
    return click.style(name, fg=COLOURS.get(name))


def dim(text: str) -> str:
    return click.style(text, dim=True)


def bold(text: str) -> str:
    return click.style(text, bold=True)


def table(rows: Iterable[Sequence[str]], header: Sequence[str] = ()) -> None:
    """Aligned columns; the last one is cut at the edge of a terminal."""
    body = [[str(cell) for cell in row] for row in rows]
    everything = [[dim(cell) for cell in header], *body] if header else body
    if not body:
        return
    widths = [max(_width(row[column]) for row in everything) for column in range(len(everything[0]))]
    edge = _terminal_width() if sys.stdout.isatty() else None
    for row in everything:
        *cells, last = row
        line = "".join(cell + " " * (width - _width(cell) + 2) for cell, width in zip(cells, widths, strict=False))
        if edge and last and click.unstyle(last) == last:
            last = one_line(last, max(edge - _width(line), 10))
        say((line + last).rstrip())


def _terminal_width() -> int:
    from shutil import get_terminal_size

    return get_terminal_size().columns


def _width(text: str) -> int:
    return len(click.unstyle(text))


def moment(text: str | None) -> datetime | None:
    """The time in a text of the API."""
    return datetime.fromisoformat(text) if text else None


def ago(text: str | None) -> str:
    """The time since then, or until then, in one unit: ``5m ago``, ``in 2h``."""
    at = moment(text)
    if at is None:
        return "-"
    seconds = (datetime.now(UTC) - at).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"{lasting(seconds)} ago" if seconds > 0 else f"in {lasting(-seconds)}"


def lasting(seconds: float) -> str:
    """A duration in its largest unit."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s" if seconds >= 10 else f"{seconds:.1f}s"


def took(started: str | None, ended: str | None) -> str:
    """The duration between two times, or since the first one."""
    start, end = moment(started), moment(ended) or datetime.now(UTC)
    return "-" if start is None else lasting(max(0.0, (end - start).total_seconds()))


def clock(text: str) -> str:
    """A time that is near, in the reader's zone: the time of day, with the date unless it is today."""
    then, now = moment(text), datetime.now().astimezone()
    assert then is not None
    then = then.astimezone()
    return then.strftime("%H:%M:%S" if then.date() == now.date() else "%Y-%m-%d %H:%M:%S")


def at(text: str | None) -> str:
    """A time, absolute in the reader's zone and relative."""
    then = moment(text)
    return "-" if then is None else f"{then.astimezone().strftime('%Y-%m-%d %H:%M:%S %z')} ({ago(text)})"


def fault_line(fault: Any) -> str:
    """A fault of a workflow file, with its place, in one line."""
    from dataclasses import fields

    from arkqueue.model import Fault

    # One by one: a server of another version may have other fields.
    return visible(str(Fault(**{field.name: fault[field.name] for field in fields(Fault)})))
