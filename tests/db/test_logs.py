"""Logs of attempts: storage, truncation, fencing and following. The tests supply the bytes, and no
program runs.
"""

from __future__ import annotations

import os
import random
import threading
import weakref
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from arkqueue import logs
from arkqueue.db import Database
from arkqueue.db.session import Session
from arkqueue.errors import DatabaseUnavailable, NotFound
from arkqueue.logs import Chunk, Logs, write
from arkqueue.logs.overflow import Piece
from arkqueue.logs.write import CHUNK, OVERHEAD, TURN
from arkqueue.model import AttemptId, End, Outcome, Stream
from arkqueue.queue import finish
from tests.builders import PROCESS, a_gateway, an_archive
from tests.postgres import OwnPostgres
from tests.waiting import eventually

OUT, ERR = Stream.STDOUT, Stream.STDERR


pytestmark = pytest.mark.usefixtures("room_to_overflow")


def everything(session: Session, attempt: AttemptId, offset: int = 0) -> list[Chunk]:
    found: list[Chunk] = []
    while page := logs.read(session, attempt, offset).chunks:
        found += page
        offset = page[-1].end
    return found


def end(session: Session, attempt: AttemptId, process: str = PROCESS) -> None:
    finish.finish(session, process, [Outcome(attempt, End.EXITED, 0)])


def test_bytes_of_both_streams_are_read_as_they_came(session: Session, attempt: AttemptId) -> None:
    writer = Logs(a_gateway(session)).open(attempt)
    for stream, data in [(OUT, b"\x00\xff1"), (OUT, b"2"), (ERR, b"3\xc3"), (OUT, b"\xa44")]:
        writer.write(stream, data)
    writer.note("stopped")
    # What the flusher does in a turn, done at once.
    writer._logs.flush([writer])
    chunks = everything(session, attempt)
    assert [(c.position, c.stream, c.data, c.cut) for c in chunks] == [
        (0, OUT, b"\x00\xff12", 0), (4, ERR, b"3\xc3", 0), (6, OUT, b"\xa44", 0), (8, Stream.NOTE, b"stopped\n", 0)
    ]  # fmt: skip
    assert all(c.at.tzinfo for c in chunks)


@pytest.mark.parametrize("piece", [100, 60_000, 65_536, 200_000])
def test_chunks_are_filled_whatever_the_pieces_are(session: Session, attempt: AttemptId, piece: int) -> None:
    writer = Logs(a_gateway(session)).open(attempt)
    text = b"".join(b"%07d\n" % n for n in range(100_000))
    for start in range(0, len(text), piece):
        writer.write(OUT, text[start : start + piece])
    writer._logs.flush([writer])
    sizes = [len(c.data) for c in everything(session, attempt)]
    assert sizes[:-1] == [CHUNK] * (len(text) // CHUNK)
    assert b"".join(c.data for c in everything(session, attempt)) == text


def test_log_can_be_read_from_any_position(session: Session, attempt: AttemptId) -> None:
    writer = Logs(a_gateway(session)).open(attempt)
    writer.write(OUT, b"abc")
    writer.write(ERR, b"def")
    writer._logs.flush([writer])
    for offset in range(8):
        assert b"".join(c.data for c in everything(session, attempt, offset)) == b"abcdef"[offset:]
    assert logs.read(session, attempt, 2).size == 6


def test_pages_are_short_and_complete(session: Session, attempt: AttemptId) -> None:
    writer = Logs(a_gateway(session)).open(attempt)
    for number in range(1200):
        writer.write((OUT, ERR)[number % 2], b"%04d" % number)
    writer._logs.flush([writer])
    assert 0 < sum(len(c.data) for c in logs.read(session, attempt, 0, limit=100).chunks) <= 104
    assert [int(c.data) for c in everything(session, attempt)] == list(range(1200))


@pytest.mark.parametrize(
    ("storing", "piece"), [("while it grows", 1000), ("all at the end", CHUNK), ("while it grows", 3 * CHUNK)]
)
def test_long_log_keeps_head_and_tail_and_shows_the_cut(
    session: Session, attempt: AttemptId, storing: str, piece: int
) -> None:
    head, tail = 1 << 20, 2 << 20
    flusher = Logs(a_gateway(session), head, tail)
    writer = flusher.open(attempt)
    text = b"".join(b"%07d\n" % n for n in range(1_000_000))
    for start in range(0, len(text), piece):
        writer.write(OUT, text[start : start + piece])
        if storing == "while it grows" and start % (16 * piece) == 0:
            # One turn of the flusher, neither more nor less.
            flusher._turn([writer])
            # The other half of a turn.
            flusher._cut([writer], final=False)
    flusher.flush([writer])

    chunks = everything(session, attempt)
    assert all(text[c.position : c.end] == c.data for c in chunks)
    assert [c.position - c.cut for c in chunks] == [0, *(c.end for c in chunks[:-1])]
    assert chunks[-1].end == logs.read(session, attempt).size == len(text)
    gaps = [c for c in chunks if c.cut]
    assert len(gaps) == 1, "the tail has no hole"
    assert gaps[0].position - gaps[0].cut == head, "the head is kept to the byte"
    assert tail <= len(text) - gaps[0].position <= tail + 3 * CHUNK


@pytest.mark.full
def test_memory_of_a_log_that_is_not_stored_is_bounded(session: Session, attempt: AttemptId) -> None:
    head, tail = 100_000, 200_000
    writer = Logs(a_gateway(session), head, tail).open(attempt)
    for number in range(200_000):
        writer.write((OUT, ERR)[number % 2], b"x")
        # How much waits in memory cannot be told from outside.
        assert len(writer._tail) * OVERHEAD <= 2 * tail + 2 * CHUNK
    for _ in range(1000):
        writer.write(OUT, b"y" * 60_000)
        assert sum(c.size for c in writer._tail) <= tail + 2 * CHUNK


@pytest.mark.parametrize("tail", [4 << 20, 1 << 30])
def test_what_waits_behind_the_next_turn_is_not_in_memory(
    session: Session, attempt: AttemptId, tmp_path: Path, tail: int
) -> None:
    flusher = Logs(a_gateway(session), 1 << 20, tail, tmp_path)
    writer = flusher.open(attempt)
    text = random.Random(7).randbytes(12 << 20)
    for start in range(0, len(text), 10_000):
        writer.write(OUT, text[start : start + 10_000])
    # How much waits in memory cannot be told from outside.
    waiting = [chunk for pending in (writer._head, writer._tail) for chunk in pending]
    assert sum(len(chunk.data) for chunk in waiting if not isinstance(chunk.data, Piece)) <= 3 * TURN
    flusher.flush([writer])
    chunks = everything(session, attempt)
    assert all(text[c.position : c.end] == c.data for c in chunks)
    assert sum(len(c.data) for c in chunks) >= min(len(text), (1 << 20) + tail)


def test_disk_gets_its_room_back(session: Session, attempt: AttemptId, tmp_path: Path) -> None:
    flusher = Logs(a_gateway(session), folder=tmp_path)
    writer = flusher.open(attempt)

    for leaves in (flusher.flush, lambda _: flusher.forget(writer)):
        writer.write(OUT, bytes(4 << 20))
        # Nobody outside can see when the overflow file is closed.
        file = next(weakref.ref(chunk.data._file) for chunk in writer._tail if isinstance(chunk.data, Piece))
        assert file() is not None
        leaves([writer])
        assert file() is None
    writer.write(OUT, bytes(4 << 20))
    assert not writer.has_more()


def test_what_is_stored_while_it_is_put_away_is_there_once(
    session: Session, attempt: AttemptId, tmp_path: Path
) -> None:
    flusher = Logs(a_gateway(session), 1 << 20, 1 << 30, tmp_path)
    writer = flusher.open(attempt)
    text = random.Random(7).randbytes(24 << 20)
    seen = set[type]()

    def write() -> None:
        for start in range(0, len(text), 300_000):
            writer.write(OUT, text[start : start + 300_000])

    writing = threading.Thread(target=write)
    writing.start()
    while writing.is_alive() or writer.has_more():
        # What waits is looked at while nobody writes.
        with writer._lock:
            seen |= {type(chunk.data) for pending in (writer._head, writer._tail) for chunk in pending}
        flusher._turn([writer])
    writing.join()
    assert b"".join(c.data for c in everything(session, attempt)) == text
    assert Piece in seen


def test_where_there_is_no_room_for_a_file_it_waits_in_memory(
    session: Session, attempt: AttemptId, tmp_path: Path
) -> None:
    flusher = Logs(a_gateway(session), folder=tmp_path / "nowhere")
    writer = flusher.open(attempt)
    text = random.Random(7).randbytes(8 << 20)
    writer.write(OUT, text)
    flusher.flush([writer])
    assert b"".join(c.data for c in everything(session, attempt)) == text


def test_what_the_disk_loses_is_a_gap_and_holds_up_nobody(
    session: Session, attempt: AttemptId, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flusher = Logs(a_gateway(session), folder=tmp_path)
    writer = flusher.open(attempt)
    text = random.Random(7).randbytes(4 << 20)
    writer.write(OUT, text)
    piece = next(chunk.data for chunk in writer._tail if isinstance(chunk.data, Piece))
    os.truncate(piece._file.descriptor, piece.position)
    writer.write(OUT, b"the end")
    flusher.flush([writer])
    chunks = everything(session, attempt)
    assert all((text + b"the end")[c.position : c.end] == c.data for c in chunks)
    assert chunks[-1].cut > 0
    assert chunks[-1].data.endswith(b"the end")
    assert f"of the log of attempt {attempt} are lost" in caplog.text


def test_log_of_an_attempt_that_has_ended_takes_nothing_more(session: Session, attempt: AttemptId) -> None:
    flusher = Logs(a_gateway(session))
    writer = flusher.open(attempt)
    writer.write(OUT, b"mine")
    flusher.flush([writer])
    end(session, attempt)
    writer.write(OUT, b"too late")
    flusher.flush([writer])
    assert [c.data for c in everything(session, attempt)] == [b"mine"]
    writer.write(OUT, b"and later still")
    assert not writer.has_more(), "it keeps nothing of what nobody may store"


def test_log_of_another_process_is_not_written(session: Session, attempt: AttemptId) -> None:
    zombie = Logs(a_gateway(session, "another process"))
    writer = zombie.open(attempt)
    writer.write(OUT, b"zombie")
    zombie.flush([writer])
    assert everything(session, attempt) == []


def test_lost_attempt_does_not_keep_others_from_storing(session: Session, attempt: AttemptId) -> None:
    flusher = Logs(a_gateway(session))
    ours, lost = flusher.open(attempt), flusher.open(AttemptId(10**9))
    lost.write(OUT, b"lost")
    ours.write(OUT, b"ours")
    flusher.flush([lost, ours])
    assert [c.data for c in everything(session, attempt)] == [b"ours"]


def test_chunks_that_are_stored_twice_are_there_once(session: Session, attempt: AttemptId) -> None:
    flusher = Logs(a_gateway(session))
    writer = flusher.open(attempt)
    writer.write(OUT, b"once")
    batch = [(writer, writer.take())]
    # The flusher sends what it has once more: the first answer is thought to be lost.
    flusher._append(batch)  # its answer is thought to be lost
    flusher._append(batch)
    writer.write(OUT, b" more")
    flusher.flush([writer])
    assert b"".join(c.data for c in everything(session, attempt)) == b"once more"


def test_nothing_is_lost_while_the_database_is_away(own_postgres: type[OwnPostgres]) -> None:
    server = own_postgres()
    with Database.open(server.uri) as database:
        session = Session(database)
        archive = an_archive(session)
        archive.commit({"index": ""})
        attempt = archive.attempt("index@2")
        flusher = Logs(a_gateway(session))
        writer = flusher.open(attempt)
        writer.write(OUT, b"before ")
        flusher.flush([writer])
        server.stop()
        writer.write(OUT, b"meanwhile ")
        with pytest.raises(DatabaseUnavailable):
            flusher.flush([writer])
        writer.write(OUT, b"after")
        server.start()
        flusher.flush([writer])
        assert b"".join(c.data for c in everything(session, attempt)) == b"before meanwhile after"


@pytest.fixture
def flusher(session: Session) -> Iterator[Logs]:
    flusher = Logs(a_gateway(session))
    flusher.start()
    yield flusher
    flusher.close()


def test_burst_that_is_kept_as_a_whole_is_stored_without_a_pause(
    session: Session, attempt: AttemptId, flusher: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "INTERVAL", 3600)
    writer = flusher.open(attempt)
    writer.write(OUT, bytes(5 * TURN))
    eventually(lambda: logs.read(session, attempt).size >= 4 * TURN)  # never, if there are pauses


def test_log_of_an_unknown_attempt_is_not_found(session: Session) -> None:
    with pytest.raises(NotFound, match="attempt 12345"):
        logs.read(session, AttemptId(12345))


def test_positions_count_every_byte(session: Session, attempt: AttemptId) -> None:
    writer = Logs(a_gateway(session), 10, 10).open(attempt)
    for number in range(5000):
        writer.write((OUT, ERR)[number % 2], b"ab")
    writer._logs.flush([writer])
    chunks = everything(session, attempt)
    assert all(a.end + b.cut == b.position for a, b in pairwise(chunks))
    assert chunks[-1].end == 10_000
