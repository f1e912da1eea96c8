"""``arkqueue logs``: prints the logs of a task's attempts, stored ones or while they grow.

A log has the bytes of three streams: the task's output, its error output, and arkqueue's own notes.
On a terminal, errors are red. Elsewhere their lines begin with ``[stderr]``, so that they can be
distinguished in a file, too. ``--raw`` gives each stream back as it was written.
"""

from __future__ import annotations

import codecs
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import click
import pybase64

from arkqueue.cli.options import as_json, calls_server
from arkqueue.cli.output import has_colours, print_json, say, state
from arkqueue.errors import NotFound
from arkqueue.text import visible

if TYPE_CHECKING:
    from arkqueue.cli.client import Client

LOOK, LONGEST_LOOK = 0.2, 1.0
"""The seconds between two queries whether a task has another attempt: the first interval after an
attempt, and the longest one.
"""
PATIENCE = 60.0
"""The seconds for which a follower waits for a server that is away."""
SETTLED = ("completed", "failed", "rejected", "canceled", "skipped")


@click.command(
    epilog="Examples: arkqueue logs papers@12/index -f; arkqueue logs papers@12/index --attempt 1 --raw > index.log"
)
@click.argument("name", metavar="TASK")
@click.option(
    "-f", "--follow", is_flag=True, help="Follow the log until the task is settled, through all its attempts."
)
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="The log of attempt N (default: the newest).")
@click.option(
    "--raw",
    is_flag=True,
    help="Print the unchanged bytes: the output to standard output, everything else to standard error.",
)
@as_json
@calls_server
def logs(client: Client, name: str, follow: bool, attempt: int | None, raw: bool, as_json: bool) -> None:
    """Print the log of a task."""
    from arkqueue.cli.find import find_task

    if as_json and follow:
        raise click.UsageError("--json and --follow do not go together.")
    printer = _Raw() if raw else _Printer()
    if follow:
        _follow(client, _bearing(partial(find_task, client, name)), attempt, printer)
        return
    task = find_task(client, name)
    chosen = _choose(task, attempt)
    chunks = list(_kept(client, chosen)) if as_json else _kept(client, chosen)
    if as_json:
        print_json({"attempt": chosen, "chunks": chunks})
        return
    is_noted = False
    for chunk in chunks:
        printer.chunk(chunk)
        is_noted = is_noted or chunk["stream"] == "note"
    printer.end()
    if chosen["end"] == "lost" and not is_noted:
        # The task manager, which would have written this into the log, is gone.
        say(f"attempt {chosen['number']} was lost: {visible(chosen['message'])}", err=True)


def _choose(task: Any, number: int | None) -> Any:
    """The attempt that a person chose."""
    name, history = task["full_name"], task["history"]
    if not history:
        fault = "passed without a command" if task["gate"] else f"is {task['state']} and has not been started"
        raise NotFound(name, f"{fault}: there is no log", f"arkqueue explain {name}")
    if number is None:
        return history[-1]
    if number > len(history):
        raise NotFound(name, f"has no attempt {number}", f"It has {len(history)}.")
    return history[number - 1]


def _kept(client: Client, attempt: Any) -> Iterator[Any]:
    """The stored parts of a log."""
    if attempt["log_bytes"] == 0:
        return
    for event in client.events(f"/attempts/{attempt['id']}/log"):
        if event.kind == "log":
            yield event.data
        if event.kind == "end" or int(event.id) >= attempt["log_bytes"]:
            return


def _follow(client: Client, task: Any, number: int | None, printer: _Printer | _Raw) -> None:
    name = task["full_name"]
    shown = (number or max(len(task["history"]), 1)) - 1
    is_told, pause = False, LOOK
    while True:
        following = next((a for a in task["history"] if a["number"] > shown), None)
        if following is not None and number in (None, following["number"]):
            if following["number"] > 1 and number is None:
                say(f"attempt {following['number']}", err=True)
            for chunk in coming(client, following["id"]):
                printer.chunk(chunk)
            printer.end()
            shown, pause = following["number"], LOOK
            if number is not None:
                return
        elif task["state"] in SETTLED:
            why = f" ({visible(task['why'])})" if task["why"] else ""
            say(f"{name}: {state(task['state'])}{why}", err=True)
            return
        else:
            if not is_told and following is None and task["state"] in ("waiting", "ready", "held"):
                say(f"{name} is {task['state']}; why: arkqueue explain {name}", err=True)
                is_told = True
            time.sleep(pause)
            pause = min(LONGEST_LOOK, 1.2 * pause)
        task = _bearing(partial(client.get, f"/tasks/{task['id']}"))


def coming(client: Client, attempt: int) -> Iterator[Any]:
    """The parts of a log as they arrive, also across restarts of the server, during which nothing
    arrives.
    """
    from arkqueue.cli.client import Unreachable

    offset, away_since = 0, None
    while True:
        answered = client.answered
        try:
            for event in client.events(f"/attempts/{attempt}/log", offset=offset):
                if event.kind == "end":
                    return
                if event.kind == "log":
                    yield event.data
                    offset = int(event.id)
            away_since = None
        except Unreachable:
            if away_since is None or client.answered > answered:
                away_since = time.monotonic()
            elif time.monotonic() - away_since > PATIENCE:
                raise
        time.sleep(LOOK)


def _bearing(ask: Callable[[], Any]) -> Any:
    """The answer of a server that may be away for a moment."""
    from arkqueue.cli.client import Unreachable

    until = time.monotonic() + PATIENCE
    while True:
        try:
            return ask()
        except Unreachable:
            if time.monotonic() > until:
                raise
        time.sleep(LOOK)


class _Printer:
    """Prints a log for people: control characters are visible, errors and notes are distinguished
    from output, and a line ends where streams meet.
    """

    def __init__(self) -> None:
        self._has_colours = has_colours()
        self._decoders: dict[str, codecs.IncrementalDecoder] = {}
        self._stream = "stdout"
        self._at_start = True
        self._return = ""

    def chunk(self, chunk: Any) -> None:
        if chunk["cut"]:
            self._text("note", f"{chunk['cut']} bytes are missing here: the log was too long\n")
        stream = chunk["stream"]
        decoder = self._decoders.setdefault(stream, codecs.getincrementaldecoder("utf-8")("backslashreplace"))
        self._text(stream, decoder.decode(pybase64.b64decode(chunk["data"])))
        sys.stdout.flush()

    def end(self) -> None:
        for stream, decoder in self._decoders.items():
            self._text(stream, decoder.decode(b"", final=True))
        self._decoders.clear()
        self._text(self._stream, self._return and "\n")
        self._new_line()

    def _text(self, stream: str, text: str) -> None:
        if not text:
            return
        if stream != self._stream:
            self._new_line()
        self._stream = stream
        # The end of a line may be in two chunks, between its carriage return and its line feed.
        text, self._return = self._return + text, ""
        if text.endswith("\r"):
            text, self._return = text[:-1], "\r"
        lines = visible(text).splitlines(keepends=True)
        click.echo("".join(self._line(stream, line) for line in lines), nl=False, color=self._has_colours)

    def _line(self, stream: str, line: str) -> str:
        mark = "" if not self._at_start else {"stdout": "", "stderr": "[stderr] ", "note": "[arkqueue] "}[stream]
        self._at_start = line.endswith("\n")
        if stream == "stderr" and self._has_colours:
            return click.style(line, fg="red")
        return click.style(mark + line, fg="cyan") if stream == "note" and self._has_colours else mark + line

    def _new_line(self) -> None:
        self._return = ""
        if not self._at_start:
            click.echo()
            self._at_start = True


class _Raw:
    """Gives the streams back as they were written."""

    def chunk(self, chunk: Any) -> None:
        if chunk["cut"]:
            say(f"arkqueue: {chunk['cut']} bytes are missing here: the log was too long", err=True)
        out = (sys.stdout if chunk["stream"] == "stdout" else sys.stderr).buffer
        out.write(pybase64.b64decode(chunk["data"]))
        out.flush()

    def end(self) -> None:
        """No bytes are held back."""
