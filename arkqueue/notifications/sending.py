"""One try to send something: how it fails, and when it is given up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
from anyio.lowlevel import cancel_shielded_checkpoint

from arkqueue.errors import ArkqueueError

T = TypeVar("T")

LONGEST = 20.0
"""Seconds for one try, from looking up the host to the end of the answer."""

CLOSING = 5
"""Rounds of the loop in which connections that were closed let go of their sockets."""


class NotSent(ArkqueueError):
    """A try has failed. ``is_silent``: the receiver did not answer, or could not."""

    def __init__(self, thing: str, fault: str, remedy: str = "", *, is_silent: bool = False) -> None:
        super().__init__(thing, fault, remedy)
        self.is_silent = is_silent


def within_time(receiver: str, call: Callable[[], Awaitable[T]]) -> T:
    """What a call returns; raises `NotSent` where it takes too long. The limit holds for all of it: who answers a byte now and then hangs, too."""

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
