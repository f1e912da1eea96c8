"""The lines of a stored log: their numbers, positions and searches. Chunks may end anywhere and two
streams alternate. Each result is compared with a simple computation.
"""

from __future__ import annotations

import itertools
import random
import re

import pytest

from arkqueue.db.session import Session
from arkqueue.logs import Logs, hits, lines, write
from arkqueue.logs.hits import Hits, Searches
from arkqueue.model import AttemptId, LogAppend, LogChunk, Stream
from arkqueue.queue import logs
from arkqueue.web.pages.log import from_line
from tests.builders import PROCESS, a_gateway

OUT, ERR, NOTE = Stream.STDOUT, Stream.STDERR, Stream.NOTE
Pieces = list[tuple[Stream, bytes]]


def store(session: Session, attempt: AttemptId, pieces: Pieces) -> None:
    """Each piece as a chunk of its own."""
    chunks, position = [], 0
    for stream, data in pieces:
        chunks.append(LogChunk(position, stream, 0.0, data))
        position += len(data)
    logs.append(session, PROCESS, [LogAppend(attempt, chunks, position, position, 0)])


def lines_of(pieces: Pieces) -> list[bytes]:
    """The lines in the order in which they end; last those that have no end."""
    found, begun = [], {OUT: b"", ERR: b""}
    for stream, data in pieces:
        if stream is not NOTE:
            *whole, begun[stream] = (begun[stream] + data).split(b"\n")
            found += whole
    return found + [line for line in begun.values() if line]


def some_pieces(random: random.Random, streams: list[Stream]) -> Pieces:
    words = [
        b"a",
        b"needle",
        b"Nee",
        b"dle",
        b"\n",
        b"\n",
        b"\xff",
        b"nee",
        b"\nneedle\n",
        b"\x1b[1;31m",
        b"\x1b[",
        b"0m",
        b"nee\x1b[1mdle",
        b"nee\x1b[3",
        b"1mdle",
        b"\x1b",
    ]
    return [
        (random.choice(streams), b"".join(random.choices(words, k=random.randint(1, 6))))
        for _ in range(random.randint(1, 25))
    ]


@pytest.mark.parametrize("seed", range(12))
def test_searches_find_what_a_reader_of_all_lines_finds(
    session: Session, attempt: AttemptId, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "STEP", 16)
    chance = random.Random(seed)
    pieces = some_pieces(chance, [OUT] if seed % 2 else [OUT, ERR, NOTE])
    store(session, attempt, pieces)
    every = lines_of(pieces)
    ended = sum(data.count(b"\n") for stream, data in pieces if stream is not NOTE)
    # Lines without an end have one number.
    plain = [re.sub(rb"\x1b\[[0-9;]*m", b"", line) for line in every]
    having = sorted({min(n, ended + 1) for n, line in enumerate(plain, 1) if b"needle" in line.lower()})
    searches = Searches()
    for line in range(1, len(every) + 2):
        after, before = [n for n in having if n >= line], [n for n in having if n < line]
        told = searches.hits(session, attempt, "Needle", line)
        assert (told.count, told.before, told.is_all) == (len(having), len(before), True)
        assert (told.next, told.previous) == (after[0] if after else None, before[-1] if before else None)
        assert lines.search_on(session, attempt, "NeedlE", line).line == next((n for n in having if n >= line), None)
        assert lines.search_back(session, attempt, "needle", line).line == next((n for n in having[::-1] if n < line), None)  # fmt: skip
    assert lines.search_on(session, attempt, "no such words", 1) == lines.Hit(None)


@pytest.mark.parametrize("at", range(1, 5))
def test_a_code_of_colours_may_be_in_two_chunks(session: Session, attempt: AttemptId, at: int) -> None:
    code = b"\x1b[31m"
    store(session, attempt, [(OUT, b"nee" + code[:at]), (ERR, b"\n"), (OUT, code[at:] + b"dle\n")])
    assert lines.search_on(session, attempt, "needle", 1).line == 2


@pytest.mark.parametrize("seed", range(4))
def test_a_line_is_read_from_a_place_before_it(session: Session, attempt: AttemptId, seed: int) -> None:
    pieces = some_pieces(random.Random(seed), [OUT])
    store(session, attempt, pieces)
    text, every = b"".join(data for _, data in pieces), lines_of(pieces)
    for line in range(1, len(every) + 1):
        place = lines.place_of_line(session, attempt, line)
        assert place.total == len(every)
        assert place.before == text[: place.position].count(b"\n")
        # The end of the line before stands behind the
        # place, so that nothing of this one does before it.
        assert place.position == 0 or place.before < line - 1
        assert text[place.position :].split(b"\n")[line - 1 - place.before] == every[line - 1]


def test_line_ends_that_an_older_version_did_not_count_are_counted(session: Session, attempt: AttemptId) -> None:
    store(session, attempt, [(OUT, b"a\\\n\x00\xff\n"), (NOTE, b"stopped\n"), (OUT, b"b\nc")])
    before = lines.place_of_line(session, attempt, 4)
    with session.database.statement() as connection:
        connection.execute("update log_chunk set lines = null")
    assert lines.place_of_line(session, attempt, 4) == before == lines.Place(14, 2, 4)
    assert lines.place_of_offset(session, attempt, 13) == lines.Place(6, 2, 4)


def test_a_search_goes_so_far_and_says_where_it_goes_on(
    session: Session, attempt: AttemptId, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "STEP", 100)
    monkeypatch.setattr(lines, "OVERLAP", 10)
    monkeypatch.setattr(lines, "MOST_SEARCHED", 300)
    store(session, attempt, [(OUT, b"first\n"), *[(OUT, b"%09d\n" % n) for n in range(200)], (OUT, b"last\n")])
    looked, line = 0, 1
    while (hit := lines.search_on(session, attempt, "LAST", line)).line is None:
        assert hit.to is not None
        assert hit.to > line
        looked, line = looked + 1, hit.to
    assert hit.line == 202
    assert looked > 2
    line = 203
    while (hit := lines.search_back(session, attempt, "first", line)).line is None:
        assert hit.to is not None
        assert hit.to < line
        line = hit.to
    assert hit.line == 1


@pytest.mark.parametrize("is_adopted", [False, True])
@pytest.mark.parametrize("ends", [b"\n", b""], ids=["the head ends a line", "the head ends in a line"])
def test_lines_behind_a_missing_part_keep_their_numbers(
    session: Session, attempt: AttemptId, monkeypatch: pytest.MonkeyPatch, ends: bytes, is_adopted: bool
) -> None:
    monkeypatch.setattr(write, "CHUNK", 100)
    every = [b"line %05d" % number for number in range(1, 1001)]
    head = 11 * 20 + (0 if ends else 5)
    flusher = Logs(a_gateway(session), head, 300)
    writer = flusher.open(attempt)
    for line in every[:500]:
        writer.write(OUT, line + b"\n")
    if is_adopted:
        flusher.flush([writer])
        (row,) = session.rows("log_sizes", attempts=[attempt])
        flusher = Logs(a_gateway(session), head, 300)
        writer = flusher.adopt(attempt, row.log_bytes, {OUT: row.log_bytes}, 500)
    writer.note("said by arkqueue")
    for line in every[500:]:
        writer.write(OUT, line + b"\n")
    flusher.flush([writer])

    place = lines.place_of_line(session, attempt, 1)
    gap = place.gap
    assert gap is not None
    assert (place.total, gap.after) == (1000, 20 if ends else 21)
    kept = {
        number: line for number, line in enumerate(every, 1) if number <= gap.after or number > gap.after + gap.lines
    }
    size = 11 * 1000 + len("said by arkqueue\n")
    stored = sum(len(chunk.data) for chunk in lines.chunks_from(session, attempt, 0))
    assert gap.bytes == size - stored
    for line in (1, 20, 22, 500, gap.after + gap.lines + 1, 999, 1000):
        log = from_line(session, attempt, line, 400)
        shown = {one.number: one.text for one in log.lines if one.number is not None}
        assert min(shown) == min(number for number in kept if number >= line)
        whole = {number: text for number, text in shown.items() if number not in (gap.after, gap.after + gap.lines + 1)}
        assert whole == {number: every[number - 1].decode() for number in whole}
    assert lines.search_on(session, attempt, "00990", 1) == lines.Hit(990)
    assert lines.search_back(session, attempt, "00990", 1001) == lines.Hit(990)
    assert Searches().hits(session, attempt, "LINE 009", 1).previous is None
    assert Searches().hits(session, attempt, "LINE 0099", 991).previous == 990


def test_words_are_not_found_across_a_missing_part(session: Session, attempt: AttemptId) -> None:
    chunks = [LogChunk(0, OUT, 0.0, b"a\nnee", 0), LogChunk(100, OUT, 0.0, b"dle\nneedle\n", 7)]
    logs.append(session, PROCESS, [LogAppend(attempt, chunks, 111, 111, 0)])
    assert lines.search_on(session, attempt, "needle", 1) == lines.Hit(9)
    assert Searches().hits(session, attempt, "needle", 1).count == 1
    assert lines.place_of_line(session, attempt, 1).gap == lines.Gap(2, 5, 95)
    shown = from_line(session, attempt, 1, 100).lines
    assert [(one.number, one.text) for one in shown if not one.note] == [
        (1, "a"),
        (2, "nee"),
        (8, "dle"),
        (9, "needle"),
    ]
    assert "95 bytes were left out here" in next(one.text for one in shown if one.note)


def test_a_line_that_only_its_middle_is_missing_of_has_one_number(session: Session, attempt: AttemptId) -> None:
    chunks = [LogChunk(0, OUT, 0.0, b"be", 0), LogChunk(100, OUT, 0.0, b"end\nlast\n", 0)]
    logs.append(session, PROCESS, [LogAppend(attempt, chunks, 109, 109, 0)])
    shown = from_line(session, attempt, 1, 100).lines
    assert [(one.number, one.text) for one in shown if not one.note] == [(1, "be"), (None, "end"), (2, "last")]
    assert lines.place_of_line(session, attempt, 1) == lines.Place(0, 0, 2, lines.Gap(1, 0, 98))


def test_a_log_without_a_chunk_has_no_line(session: Session, attempt: AttemptId) -> None:
    assert lines.place_of_line(session, attempt, 7) == lines.Place(0, 0, 0)
    assert lines.search_back(session, attempt, "a", 7) == lines.search_on(session, attempt, "a", 1) == lines.Hit(None)


def test_the_hits_of_a_log_that_is_very_long_are_counted_in_several_looks(
    session: Session, attempt: AttemptId, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "STEP", 100)
    store(session, attempt, [(OUT, b"%09d\n" % n) for n in range(40)])
    ticks = itertools.count()
    searches = Searches(clock=lambda: float(next(ticks)))
    told = [searches.hits(session, attempt, "0", 1) for _ in range(20)]
    counts = [one.count for one in told]
    assert counts == sorted(counts)
    assert 0 < counts[0] < counts[1] < 40
    assert not told[0].is_all
    assert (counts[-1], told[-1].is_all) == (40, True)


def test_a_log_that_grows_is_counted_on(session: Session, attempt: AttemptId) -> None:
    searches = Searches()
    store(session, attempt, [(OUT, b"a\nb\na")])
    assert searches.hits(session, attempt, "a", 1) == Hits(2, 0, 1, None, 2, True)
    logs.append(session, PROCESS, [LogAppend(attempt, [LogChunk(5, OUT, 0.0, b"a\na\n")], 10, 10, 0)])
    assert searches.hits(session, attempt, "A", 4) == Hits(3, 2, 4, 3, 4, True)


def test_searches_keep_a_bounded_number_of_hits_and_of_texts(
    session: Session, attempt: AttemptId, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hits, "MOST_HITS", 5)
    monkeypatch.setattr(hits, "MOST_SEARCHES", 2)
    store(session, attempt, [(OUT, b"a\n") for _ in range(9)])
    searches = Searches()
    told = [searches.hits(session, attempt, words, 1) for words in ("a", "b", "c", "a", "a")]
    assert [(one.count, one.is_all) for one in told] == [(5, False), (0, True), (0, True), (5, False), (5, False)]
    assert len(searches._kept) == 2  # private: how much memory a server needs for searches
