"""Shares: an archive has as many places as are free beside them, so none takes those of all."""

from __future__ import annotations

import threading
from contextlib import ExitStack

from arkqueue.errors import Busy
from arkqueue.runtime.shares import Shares
from tests.waiting import PATIENCE

BUSY = Busy("it", "is busy", "wait")


def take(shares: Shares, archive: str, having: ExitStack) -> int:
    """Have all places that an archive may have. Returns their number."""
    for count in range(100):
        try:
            having.enter_context(shares.place(archive, BUSY))
        except Busy:
            return count
    raise AssertionError("there is no limit")


def test_each_archive_leaves_places_to_the_next() -> None:
    shares = Shares(8)
    with ExitStack() as having:
        assert [take(shares, archive, having) for archive in "abcde"] == [4, 2, 1, 1, 0]
    with ExitStack() as having:
        assert take(shares, "e", having) == 4


def test_whoever_waits_gets_the_place_of_another() -> None:
    shares, got = Shares(2), threading.Event()

    def waits() -> None:
        with shares.place("a", BUSY, PATIENCE):
            got.set()

    with shares.place("a", BUSY):
        waiting = threading.Thread(target=waits)
        waiting.start()
        with shares.place("b", BUSY):
            pass
        assert not got.is_set()
    waiting.join()
    assert got.is_set()
