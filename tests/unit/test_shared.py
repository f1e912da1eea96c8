"""Calls that several requests share. All requests during a call get its answer, and a later request
makes a new call.
"""

from __future__ import annotations

import asyncio
import threading

import pytest

from arkqueue.web.shared import Shared


def test_who_asks_while_a_call_is_under_way_gets_its_answer() -> None:
    begun, go, calls = threading.Event(), threading.Event(), list[int]()

    def work() -> int:
        calls.append(1)
        begun.set()
        go.wait()
        return len(calls)

    async def ask() -> None:
        shared = Shared[int]()
        first = asyncio.create_task(shared.get("a", work))
        await asyncio.to_thread(begun.wait)
        others = [asyncio.create_task(shared.get("a", work)) for _ in range(10)]
        await asyncio.sleep(0)
        go.set()
        assert await asyncio.gather(first, *others) == [1] * 11
        assert await shared.get("a", work) == 2, "nothing is kept"
        assert await shared.get("b", work) == 3

    asyncio.run(ask())


def test_an_exception_is_shared_and_who_leaves_takes_nothing_from_the_others() -> None:
    begun, go = threading.Event(), threading.Event()

    def fail() -> None:
        begun.set()
        go.wait()
        raise ValueError("no")

    async def ask() -> None:
        shared = Shared[None]()
        first, second = (asyncio.create_task(shared.get("a", fail)) for _ in range(2))
        await asyncio.to_thread(begun.wait)
        first.cancel()
        go.set()
        with pytest.raises(ValueError, match="no"):
            await second
        with pytest.raises(asyncio.CancelledError):
            await first

    asyncio.run(ask())
