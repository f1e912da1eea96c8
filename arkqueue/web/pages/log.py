"""The log of an attempt as a page shows it: lines with numbers and colours, its end or all of it; and as a file."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from arkqueue import logs
from arkqueue.db.session import Session
from arkqueue.errors import NotFound
from arkqueue.model import AttemptId, Stream, TaskId
from arkqueue.text import visible
from arkqueue.views import tasks
from arkqueue.views.tasks import AttemptView
from arkqueue.web.pages.answer import HEADERS
from arkqueue.web.pages.visitor import Visitor

TAIL: Final = 64 << 10
"""Bytes of a log that a page shows unless it is asked for all."""
MOST: Final = 4 << 20
"""Bytes of a log on a page; a longer one is for the download."""
PAGE: Final = 1 << 20
"""Bytes that a download reads at once."""
_COLOURS: Final = re.compile(r"\x1b\[([0-9;:]*)m")


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a log. ``number`` None: it is not known, as the log is shown from its middle on, or the line is arkqueue's own. ``parts``: its text, each part with the class of its colour."""

    number: int | None
    text: str
    note: bool
    at: datetime | None
    stream: Stream
    parts: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Log:
    """The end of an attempt's log, or all of it. ``left_out``: bytes before what is shown."""

    lines: list[LogLine]
    size: int
    left_out: int


def log_of(session: Session, attempt: AttemptView, *, whole: bool) -> Log:
    """The lines of a log from `TAIL` bytes before its end on, or from its beginning where ``whole``."""
    limit = MOST if whole else TAIL
    page = logs.read(session, AttemptId(attempt.id), 0 if whole else max(0, attempt.log_bytes - TAIL), limit)
    left_out = page.chunks[0].position if page.chunks else 0
    lines = _Lines(None if left_out else 0)
    for chunk in page.chunks:
        if chunk.cut and lines.lines:
            lines.cut(chunk.cut)
        lines.add(chunk.stream, chunk.data, chunk.at)
    lines.end()
    if left_out and lines.lines:
        del lines.lines[0]  # the end of a line whose beginning is not shown
    return Log(lines.lines, page.size, left_out)


class _Lines:
    """Makes lines of chunks: each stream has its own open line, its own half characters, and its own colour."""

    def __init__(self, number: int | None) -> None:
        self.lines: list[LogLine] = []
        self._number = number
        self._decoders: dict[Stream, codecs.IncrementalDecoder] = {}
        self._open: dict[Stream, tuple[str, datetime]] = {}
        self._colour: dict[Stream, str] = {}

    def cut(self, count: int) -> None:
        text = f"{count:,} bytes were left out here, as the log was too long"
        self.lines.append(LogLine(None, text, True, None, Stream.NOTE, [("", text)]))
        self._number = None

    def add(self, stream: Stream, data: bytes, at: datetime) -> None:
        decoder = self._decoders.setdefault(stream, codecs.getincrementaldecoder("utf-8")("replace"))
        before, _ = self._open.pop(stream, ("", at))
        *whole, rest = (before + decoder.decode(data)).split("\n")
        for text in whole:
            self._line(stream, text, at)
        if rest:
            self._open[stream] = rest, at

    def end(self) -> None:
        for stream, (text, at) in self._open.items():
            self._line(stream, text, at)

    def _line(self, stream: Stream, text: str, at: datetime) -> None:
        is_note = stream is Stream.NOTE
        if self._number is not None and not is_note:
            self._number += 1
        parts, self._colour[stream] = coloured(text.removesuffix("\r"), self._colour.get(stream, ""))
        plain = "".join(part for _, part in parts)
        self.lines.append(LogLine(None if is_note else self._number, plain, is_note, at, stream, parts))


def coloured(text: str, colour: str) -> tuple[list[tuple[str, str]], str]:
    """A line in parts, each with the class of its colour (``c1`` is red, as in ECMA-48; ``bold``), and the colour that goes on. Other control characters are shown."""
    parts: list[tuple[str, str]] = []
    end = 0
    for found in _COLOURS.finditer(text):
        if found.start() > end:
            parts.append((colour, visible(text[end : found.start()])))
        colour, end = _after(colour, found[1]), found.end()
    if end < len(text):
        parts.append((colour, visible(text[end:])))
    return parts, colour


def _after(colour: str, codes: str) -> str:
    """The class after a code of colours; what has no class here changes nothing."""
    bold, hue = "bold" in colour, next((word for word in colour.split() if word != "bold"), "")
    for code in re.split("[;:]", codes):
        number = int(code or 0) if len(code) < 4 else -1
        if number == 0:
            bold, hue = False, ""
        elif number in (1, 22):
            bold = number == 1
        elif number == 39:
            hue = ""
        elif number // 10 in (3, 9) and number % 10 < 8:
            hue = f"c{number % 10}"
        elif number in (38, 48):
            break  # what follows are parts of one colour among millions
    return " ".join(filter(None, ("bold" if bold else "", hue)))


def download(visitor: Visitor, request: Request) -> Response:
    """The whole log of an attempt as a file, as it was written."""
    caller = visitor.caller
    number = request.path_params["attempt"]
    if not number.isdecimal() or len(number) > 18:
        raise NotFound(f"attempt {number!r}", "there is none")
    attempt = tasks.attempt(caller.session, caller.attempt(int(number)))
    name = tasks.task(caller.session, TaskId(attempt.task)).full_name
    file = re.sub(r"[^\w.@-]+", "-", name, flags=re.ASCII)
    headers = HEADERS | {"Content-Disposition": f'attachment; filename="{file}-{attempt.number}.log"'}
    return StreamingResponse(_bytes(caller.session, AttemptId(attempt.id)), headers=headers, media_type="text/plain; charset=utf-8")  # fmt: skip


def _bytes(session: Session, attempt: AttemptId) -> Iterator[bytes]:
    offset = 0
    while chunks := logs.read(session, attempt, offset, PAGE).chunks:
        for chunk in chunks:
            if chunk.cut:
                yield b"\n[%d bytes were left out here, as the log was too long]\n" % chunk.cut
            yield chunk.data
        offset = chunks[-1].end
