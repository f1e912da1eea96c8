"""Calls from the event loop whose result several requests share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, ParamSpec, TypeVar
from weakref import WeakValueDictionary

from fastapi.concurrency import run_in_threadpool

P = ParamSpec("P")
R = TypeVar("R")


class Shared(Generic[R]):
    """Blocking calls by key. A caller that comes while a call with the same key is running gets its
    result, or its exception. No result is kept afterwards.
    """

    def __init__(self) -> None:
        self._calls: WeakValueDictionary[Hashable, asyncio.Future[R]] = WeakValueDictionary()

    async def get(self, key: Hashable, function: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R:
        call = self._calls.get(key)
        if call is None or call.done():
            call = asyncio.ensure_future(run_in_threadpool(function, *arguments, **options))
            # If all callers have left, asyncio would log that nobody retrieved an exception.
            call.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._calls[key] = call
        return await asyncio.shield(call)
