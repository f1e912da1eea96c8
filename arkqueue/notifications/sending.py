"""The time limit and the error of one try to send a notification."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
from anyio.lowlevel import cancel_shielded_checkpoint

from arkqueue.errors import ArkqueueError

T = TypeVar("T")

LONGEST = 20.0
"""The most seconds for one try, from looking up the host to the end of the answer."""

CLOSING = 5
"""Iterations of the event loop in which closed connections release their sockets."""


class NotSent(ArkqueueError):
    """A try has failed. ``is_silent``: the receiver did not answer, or could not."""

    def __init__(self, thing: str, fault: str, remedy: str = "", *, is_silent: bool = False) -> None:
        super().__init__(thing, fault, remedy)
        self.is_silent = is_silent


def within_time(receiver: str, call: Callable[[], Awaitable[T]]) -> T:
    """The result of a call. Raises `NotSent` if the call takes too long in all, also if the receiver
    sends a byte now and then.
    """

    async def limited() -> T:
        try:
            with anyio.fail_after(LONGEST):
                return await call()
        finally:
            for _ in range(CLOSING):
                await cancel_shielded_checkpoint()

    try:
        return anyio.run(limited)
    except TimeoutError:
        raise NotSent(receiver, f"has not answered within {LONGEST:g} s", is_silent=True) from None
