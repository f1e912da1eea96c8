"""Turns the bytes of a log into lines with numbers and colours. Pure."""

from __future__ import annotations

import codecs
import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import islice, pairwise
from typing import Final

from arkqueue.model import Stream
from arkqueue.text import visible

LONGEST: Final = 4000
"""The most characters of a line that are shown."""
COLOURS: Final = re.compile(r"\x1b\[([0-9;:]*)m")


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a log. ``number`` None: the line is arkqueue's own. ``parts``: the text, each part
    with the class of its colour.
    """

    number: int | None
    text: str
    note: bool
    at: datetime | None
    stream: Stream
    parts: list[tuple[str, str]]


class Lines:
    """Makes lines from chunks. Each stream has an open line, an incomplete character, and a colour
    of its own.
    """

    def __init__(self, number: int) -> None:
        self.lines: list[LogLine] = []
        self._number = number
        self._decoders: dict[Stream, codecs.IncrementalDecoder] = {}
        self._open: dict[Stream, tuple[str, datetime]] = {}
        self._colour: dict[Stream, str] = {}
        self._continues = False  # the beginning of the next line is already there, with its number

    def cut(self, count: int, ended: int | None) -> None:
        """A missing part of so many bytes. ``ended``: the number of lines that end before its end;
        None: not known, and the missing lines are not counted.
        """
        number = self._number
        self.end()
        self._open.clear()
        self._decoders.clear()
        is_open, self._number = self._number > number, number if ended is None else max(ended, number)
        self._continues = is_open and self._number == number
        text = f"{count:,} bytes were left out here, as the log was too long"
        self.lines.append(LogLine(None, text, True, None, Stream.NOTE, [("", text)]))

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
        self._number += not is_note
        number = None if is_note or self._continues else self._number
        self._continues = self._continues and is_note
        text, more = text.removesuffix("\r"), len(text) - LONGEST
        parts, self._colour[stream] = coloured(text[:LONGEST], self._colour.get(stream, ""))
        if more > 0:
            parts.append(("c0", f" … and {more:,} characters more"))
        plain = "".join(part for _, part in parts)
        self.lines.append(LogLine(number, plain, is_note, at, stream, parts))


def coloured(text: str, colour: str) -> tuple[list[tuple[str, str]], str]:
    """A line in parts, each with the class of its colour (``c1`` is red, as in ECMA-48; ``bold``),
    and the colour that continues. Other control characters are shown.
    """
    parts: list[tuple[str, str]] = []
    end = 0
    for found in COLOURS.finditer(text):
        if found.start() > end:
            parts.append((colour, visible(text[end : found.start()])))
        colour, end = _after(colour, found[1]), found.end()
    if end < len(text):
        parts.append((colour, visible(text[end:])))
    return parts, colour


@lru_cache(1024)  # a program writes few codes, and may write 500,000 of them on a page
def _after(colour: str, codes: str) -> str:
    """The class after a code of colours. Codes without a class here change nothing."""
    bold, hue = "bold" in colour, next((word for word in colour.split() if word != "bold"), "")
    # ISO 8613-6 has an empty place for a colour space before the three parts of a colour.
    numbers = (int(code or 0) if len(code) < 4 else -1 for code in re.split("[;:]", codes.replace(":2::", ":2:")))
    for number in numbers:
        if number == 0:
            bold, hue = False, ""
        elif number in (1, 22):
            bold = number == 1
        elif number == 39:
            hue = ""
        elif number // 10 in (3, 9) and number % 10 < 8:
            hue = f"c{number % 10}"
        elif number in (38, 48):
            # After 5 follows the number of a colour, after 2 its three parts.
            found = _of_many([*islice(numbers, {5: 1, 2: 3}.get(next(numbers, 0), 0))])
            hue = found if number == 38 else hue
    return " ".join(filter(None, ("bold" if bold else "", hue)))


def _of_many(numbers: Sequence[int]) -> str:
    """The class of one among 256 colours (its number) or among millions (red, green and blue, from 0
    to 255): the nearest one of the eight, in which each part is there or not. Greys get none.
    """
    match numbers:
        case [number] if 0 <= number < 16:
            return f"c{number % 8}"
        case [number] if 16 <= number < 232:  # a cube with six steps for each part
            parts = [(number - 16) // 36, (number - 16) // 6 % 6, (number - 16) % 6]
        case [_, _, _]:
            parts = [*numbers]
        case _:
            return ""
    if max(parts) - min(parts) <= max(parts) / 4:
        return ""
    return f"c{sum(1 << place for place, part in enumerate(parts) if part > (max(parts) + min(parts)) / 2)}"


def marked(parts: list[tuple[str, str]], words: str) -> list[tuple[str, str]]:
    """The parts of a line, divided so that some words are parts of their own, whose class has
    ``hit``. The words may cross several colours.
    """
    if not words:
        return parts
    text = "".join(part for _, part in parts)
    ends = [end for hit in re.finditer(re.escape(words), text, re.IGNORECASE | re.ASCII) for end in hit.span()]
    found, at = [], 0
    for colour, part in parts:
        first, last = bisect_right(ends, at), bisect_left(ends, at + len(part))
        cuts = [at, *ends[first:last], at + len(part)]
        for number, (begin, end) in enumerate(pairwise(cuts), first):
            if begin < end:
                # A hit lies between each odd border and the next one.
                found.append((f"{colour} hit".strip() if number % 2 else colour, text[begin:end]))
        at += len(part)
    return found
