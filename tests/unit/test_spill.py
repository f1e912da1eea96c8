"""What waits in a file comes back as it was; its place is used again, and where there is no room it stays in memory."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from arkqueue.spill import Piece, Spill


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
            assert piece.read() == held.pop(piece)
    assert all(piece.read() == data and len(piece) == len(data) for piece, data in held.items())


def test_places_are_used_again(tmp_path: Path) -> None:
    spill = Spill(tmp_path, 100)
    held = [put(spill, b"x" * 100) for _ in range(3)]
    for _ in range(100):
        del held[0]
        held.append(put(spill, b"y" * 100))
    assert max(piece.position for piece in held) < 400


def test_nothing_is_seen_in_the_folder(tmp_path: Path) -> None:
    spill = Spill(tmp_path, 100)
    assert put(spill, b"x").read() == b"x"
    assert list(tmp_path.iterdir()) == []


def test_without_room_it_is_not_taken(tmp_path: Path) -> None:
    assert Spill(tmp_path / "nowhere", 100).put(b"x") is None


def test_what_the_disk_does_not_give_back_is_an_error(tmp_path: Path) -> None:
    piece = put(Spill(tmp_path, 100), b"x" * 100)
    os.truncate(piece._file.descriptor, 50)
    with pytest.raises(OSError, match="only 50 of 100 bytes"):
        piece.read()
