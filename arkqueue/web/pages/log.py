"""The log of an attempt as a page shows it: lines with numbers and colours. The page shows the end
of the log, the lines around one line, or those around a search result. Also the log as a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from arkqueue import logs
from arkqueue.db.session import Session
from arkqueue.errors import Forbidden, NotFound
from arkqueue.logs import lines
from arkqueue.logs.hits import MOST_HITS, Searches
from arkqueue.logs.lines import Gap
from arkqueue.model import AttemptId, RunId, TaskId
from arkqueue.names import parse_name
from arkqueue.queue.export import exported
from arkqueue.views import attempts, tasks
from arkqueue.views.attempts import AttemptView
from arkqueue.views.find import find_run
from arkqueue.web.api.submissions import payload_as_file
from arkqueue.web.pages.answer import HEADERS, Shown, asked
from arkqueue.web.pages.log_lines import COLOURS, Lines, LogLine
from arkqueue.web.pages.visitor import Visitor

TAIL: Final = 64 << 10
"""The bytes at the end of a log that a page shows, unless a line is asked for."""
WINDOW: Final = 256 << 10
"""The bytes that a page reads from a line on."""
MOST_LINES: Final = 400
"""The most lines that a page shows at once."""
BEFORE: Final = 8
"""The lines that are shown before the requested one."""
MOST_WORDS: Final = 200
"""The most characters of a search."""
PAGE: Final = 1 << 20
"""The bytes that a download reads at once."""


@dataclass(frozen=True, slots=True)
class Log:
    """Some lines of an attempt's log. ``size``: the bytes that the task wrote. ``gap``: the part
    of them that was left out, as the log was too long. ``total``: the number of the last line.
    ``first`` and ``last``: the numbers of the first and the last shown line, 0 if there is none.
    ``earlier``: a line from which the lines before the first shown one are shown. ``is_beyond``:
    True if the log has no line with the requested number.

    ``found``: the line with the searched words. ``searched``: the end of the searched part, if a
    search has found nothing yet and is not finished. ``hits``: the number of lines with the words.
    ``hit``: the number of the found line among them; None: nothing was searched. ``counted``: the
    line up to which the hits are counted, if this is not the whole log. ``further``: whether
    another step will count further.
    """

    lines: list[LogLine]
    size: int
    gap: Gap | None
    total: int
    first: int
    last: int
    earlier: int
    found: int | None = None
    searched: int | None = None
    hits: int | None = None
    hit: int | None = None
    counted: int | None = None
    further: bool = False
    is_beyond: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """The part of a log that an address asks for. ``line`` 0: the end. ``find``: words, searched
    from this line on, or before it (``back``).
    """

    line: int = 0
    find: str = ""
    back: bool = False
    times: bool = False


def wanted_of(request: Request) -> Wanted:
    """The part of a log that ``?line=``, ``?find=``, ``?back=yes`` and ``?times=yes`` ask for."""
    line = asked(request, "line")
    number = int(line) if line.isdecimal() and len(line) < 16 else 0
    # Codes of colours are not part of a log's text, so they are removed from the searched words,
    # too.
    find = COLOURS.sub("", " ".join(request.query_params.get("find", "").replace("\0", "").split("\n"))[:MOST_WORDS])
    return Wanted(number, find, asked(request, "back") == "yes", asked(request, "times") == "yes")


def log_of(session: Session, searches: Searches, attempt: AttemptView, wanted: Wanted) -> Log:
    """The end of a log, the lines around a line, or the lines around the next one with some words."""
    id = AttemptId(attempt.id)
    if not wanted.find or attempt.log_removed:
        shown = _around(session, id, wanted.line) if wanted.line else None
        if shown is not None and (shown.lines or not shown.total):
            return replace(shown, is_beyond=0 < shown.total < wanted.line)
        return replace(_end(session, id, attempt.log_bytes), is_beyond=shown is not None)
    line = wanted.line or (1 << 50 if wanted.back else 1)
    known = searches.hits(session, id, wanted.find, line)
    hit = lines.Hit(known.previous if wanted.back else known.next)
    if (not known.is_all and known.to < line) or (hit.line is None and not known.is_all):
        # The words are not in the part that was already searched: the search continues from there.
        search = lines.search_back if wanted.back else lines.search_on
        hit = search(session, id, wanted.find, line)
    shown = _around(session, id, hit.line) if hit.line else _end(session, id, attempt.log_bytes)
    number = None
    if hit.line is not None and hit.line in (known.next, known.previous):
        number = known.before + (0 if wanted.back else 1)
    return replace(
        shown,
        found=hit.line,
        searched=hit.to,
        hits=known.count,
        hit=number,
        counted=None if known.is_all else known.to,
        further=not known.is_all and known.count < MOST_HITS,
    )


def _end(session: Session, attempt: AttemptId, size: int) -> Log:
    place = lines.place_of_offset(session, attempt, max(0, size - TAIL))
    found, size, _ = _read(session, attempt, place, 3 * TAIL)
    if place.position and len(found) > 1:
        del found[0]  # the end of a line whose beginning is not shown
    return _log(found[-MOST_LINES:], size, place)


def _around(session: Session, attempt: AttemptId, line: int) -> Log:
    return from_line(session, attempt, max(line - BEFORE, 1), MOST_LINES)


def from_line(session: Session, attempt: AttemptId, line: int, most: int) -> Log:
    """At most ``most`` lines of a log from a line on."""
    place = lines.place_of_line(session, attempt, line)
    found, size, _ = _read(session, attempt, place, WINDOW)
    first = next((at for at, one in enumerate(found) if one.number is not None and one.number >= line), len(found))
    while line > 1 and first and found[first - 1].number is None:
        first -= 1  # the note of arkqueue right before it
    return _log(found[first if line > 1 else 0 :][:most], size, place)


def _read(session: Session, attempt: AttemptId, place: lines.Place, limit: int) -> tuple[list[LogLine], int, bool]:
    """The lines from a position on, the number of bytes of the log, and whether its end is among
    them.
    """
    page = logs.read(session, attempt, place.position, limit)
    made = Lines(place.before)
    for chunk in page.chunks:
        if chunk.cut:
            made.cut(chunk.cut, chunk.ended)
        made.add(chunk.stream, chunk.data, chunk.at)
    is_end = not page.chunks or page.chunks[-1].end >= page.size
    if is_end or not any(line.number for line in made.lines[1:]):
        made.end()
    return made.lines, page.size, is_end


def _log(found: list[LogLine], size: int, place: lines.Place) -> Log:
    numbers = [line.number for line in found if line.number is not None]
    first, last = (numbers[0], numbers[-1]) if numbers else (0, 0)
    rows = MOST_LINES - 2 * BEFORE - 4
    earlier = place.gap.earlier(first, rows) if place.gap else first - rows
    return Log(found, size, place.gap, max(place.total, last), first, last, max(earlier, 1))


def some_lines(visitor: Visitor, request: Request) -> Shown:
    """Lines of a log from ``?line=`` on, for a page that is scrolled."""
    attempt, wanted = _attempt(visitor, request), wanted_of(request)
    log = from_line(visitor.caller.session, AttemptId(attempt.id), max(wanted.line, 1), MOST_LINES)
    return Shown("log-lines.html", {"log": log, "wanted": wanted, "number": attempt.number})


def _attempt(visitor: Visitor, request: Request) -> AttemptView:
    number = request.path_params["attempt"]
    if not number.isdecimal() or len(number) > 18:
        raise NotFound(f"attempt {number!r}", "does not exist")
    return attempts.attempt(visitor.caller.session, visitor.caller.attempt(int(number)))


def download(visitor: Visitor, request: Request) -> Response:
    """The whole log of an attempt as a file, as it was written."""
    caller, attempt = visitor.caller, _attempt(visitor, request)
    name = tasks.task(caller.session, TaskId(attempt.task)).full_name
    file = re.sub(r"[^\w.@-]+", "-", name, flags=re.ASCII)
    headers = HEADERS | {"Content-Disposition": f'attachment; filename="{file}-{attempt.number}.log"'}
    return StreamingResponse(_bytes(caller.session, AttemptId(attempt.id)), headers=headers, media_type="text/plain; charset=utf-8")  # fmt: skip


def export(visitor: Visitor, request: Request) -> Response:
    """A whole run (``?of=``) as JSON lines, as in ``arkqueue purge --export``, for visitors who may
    purge it.
    """
    name = parse_name(asked(request, "of"))
    visitor = visitor.at(name.archive)
    visitor.caller.archive(name.archive)
    if not visitor.may_administer:
        raise Forbidden("the export of a run", "takes a token of scope admin")
    run = visitor.caller.run(RunId(find_run(visitor.caller.session, name)), also_deleted=True)
    file = re.sub(r"[^\w.@-]+", "-", str(name), flags=re.ASCII)
    headers = HEADERS | {"Content-Disposition": f'attachment; filename="{file}.jsonl"'}
    return StreamingResponse(exported(visitor.caller.session, [run]), headers=headers, media_type="application/jsonl")


def payload(visitor: Visitor, request: Request) -> Response:
    """The document of a run's submission (``?of=``), byte by byte, as in
    ``arkqueue show RUN --payload``.
    """
    name = parse_name(asked(request, "of"))
    caller = visitor.at(name.archive).caller
    caller.archive(name.archive)
    answer = payload_as_file(caller.session, caller.run(RunId(find_run(caller.session, name))))
    answer.headers.update(HEADERS)
    return answer


def _bytes(session: Session, attempt: AttemptId) -> Iterator[bytes]:
    offset = 0
    while chunks := logs.read(session, attempt, offset, PAGE).chunks:
        for chunk in chunks:
            if chunk.cut:
                yield b"\n[%d bytes were left out here, as the log was too long]\n" % chunk.cut
            yield chunk.data
        offset = chunks[-1].end
