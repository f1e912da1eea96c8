"""Queued data overflows into a file and is read back unchanged. The file's space is reused, and if
the disk has no room, the data stays in memory.
"""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from arkqueue.logs.overflow import Piece, Spill

pytestmark = pytest.mark.usefixtures("room_to_overflow")


def put(spill: Spill, data: bytes) -> Piece:
    piece = spill.put(data)
    assert piece is not None
    return piece


def test_pieces_come_back_as_they_were_in_any_order(tmp_path: Path) -> None:
    spill, chance = Spill(tmp_path, 1000), random.Random(7)
    held: dict[Piece, bytes] = {}
    for _ in range(2000):
        data = chance.randbytes(chance.randrange(1, 1001))
        held[put(spill, data)] = data
        if len(held) > chance.randrange(1, 20):
            piece = chance.choice(list(held))
            assert bytes(piece) == held.pop(piece)
    assert all(bytes(piece) == data and len(piece) == len(data) for piece, data in held.items())


def test_places_are_used_again(tmp_path: Path) -> None:
    spill = Spill(tmp_path, 100)
    held = [put(spill, b"x" * 100) for _ in range(3)]
    for _ in range(100):
        del held[0]
        held.append(put(spill, b"y" * 100))
    assert max(piece.position for piece in held) < 400


def test_nothing_is_seen_in_the_folder(tmp_path: Path) -> None:
    spill = Spill(tmp_path, 100)
    assert bytes(put(spill, b"x")) == b"x"
    assert list(tmp_path.iterdir()) == []


def test_without_a_folder_it_is_not_taken(tmp_path: Path) -> None:
    assert Spill(tmp_path / "nowhere", 100).put(b"x") is None


def test_room_is_left_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spill = Spill(tmp_path, 100)
    first = put(spill, b"first")
    monkeypatch.setattr("arkqueue.logs.overflow.RESERVE", 1 << 62)
    assert spill.put(b"second") is None
    assert bytes(first) == b"first"
    del first
    assert bytes(put(spill, b"third")) == b"third", "a place that is there is used again"


@pytest.mark.parametrize("written", [0, 3, None])
def test_disk_that_is_full_takes_nothing_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int | None
) -> None:
    spill = Spill(tmp_path, 100)
    first = put(spill, b"first")
    write = os.pwrite

    def full(descriptor: int, data: bytes, position: int) -> int:
        if written is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[:written], position)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(os, "pwrite", full)
        assert spill.put(b"second") is None
    third = put(spill, b"third")
    assert (bytes(first), bytes(third)) == (b"first", b"third")
    assert third.position == 100, "the place of what was not taken is free"


def test_file_is_closed_with_the_last_who_has_it(tmp_path: Path) -> None:
    spill = Spill(tmp_path, 100)
    piece = put(spill, b"x")
    # A descriptor that is closed can be told by its number only.
    descriptor = piece._file.descriptor
    del spill
    os.fstat(descriptor)
    assert bytes(piece) == b"x"
    del piece
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_what_the_disk_does_not_give_back_is_an_error(tmp_path: Path) -> None:
    piece = put(Spill(tmp_path, 100), b"x" * 100)
    os.truncate(piece._file.descriptor, 50)
    with pytest.raises(OSError, match="only 50 of 100 bytes"):
        bytes(piece)
