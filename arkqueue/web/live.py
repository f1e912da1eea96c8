"""Tells open pages that their data have changed, by server-sent events. All of them share one
subscription of this process.

    queue ── after a commit: topic of the archive ──→ wake-ups ──→ Live.hear ──→ a flag of each page that shows this archive ──→ "changed"

An event says only that something has changed. The page then loads itself again, with the rights of
its token. A page whose connection accepts no more data holds up no others: its flag stays set, and
`web.connections` closes the connection. While a page is open, all processes report which archives
change (``Wakeups.watch``).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from threading import Lock

from fastapi import Request

from arkqueue.db.session import Session
from arkqueue.db.wakeups import ARCHIVE, WATCHED
from arkqueue.model import AttemptId

PACE = 0.15
"""The fewest seconds between two events of a page."""
HEARTBEAT = 15.0
"""Seconds of silence after which a page gets a heartbeat, and its sign-in is checked."""
ALONE = 0.5
"""Seconds between two polls if no wake-up can arrive."""


@dataclass(slots=True, eq=False)
class _Page:
    """An open page. ``archives``: the archives that it shows; None: all."""

    archives: frozenset[int] | None
    loop: asyncio.AbstractEventLoop
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self) -> None:
        with suppress(RuntimeError):  # the server has left in the meantime
            self.loop.call_soon_threadsafe(self.changed.set)


class Live:
    """The open pages of this process."""

    def __init__(self, session: Session) -> None:
        self._wakeups = session.wakeups
        self._pages: set[_Page] = set()
        self._lock = Lock()
        self._watched_at = float("-inf")
        if self._wakeups is not None:
            self._wakeups.tell(self)

    @property
    def pages(self) -> int:
        """The number of open pages."""
        return len(self._pages)

    def hear(self, topics: Collection[str] | None) -> None:
        """Mark the pages that show one of the changed archives; None: all pages."""
        if not self._pages:
            return
        changed = None
        if topics is not None:
            changed = {int(topic.removeprefix(ARCHIVE)) for topic in topics if topic.startswith(ARCHIVE)}
            if not changed:
                return
        with self._lock:
            concerned = [p for p in self._pages if changed is None or p.archives is None or p.archives & changed]
        for page in concerned:
            page.wake()

    async def events(
        self,
        request: Request,
        archives: Collection[int] | None,
        attempt: AttemptId | None,
        is_signed_in: Callable[[], bool],
    ) -> AsyncIterator[bytes]:
        """The events for a page that shows some archives, and maybe the log of an attempt, until it
        leaves.
        """
        leaving: asyncio.Event | None = getattr(request.app.state, "leaving", None)
        page = _Page(None if archives is None else frozenset(archives), asyncio.get_running_loop())
        with ExitStack() as stack:
            stack.enter_context(self._open(page))
            if attempt is not None:
                stack.enter_context(request.app.state.followers.watcher.following(attempt, page.wake))
            yield b"retry: 1000\n: open\n\n"
            heard = page.loop.time()
            while leaving is None or not leaving.is_set():
                self._watch(page.loop.time())
                try:
                    async with asyncio.timeout(HEARTBEAT if self._wakeups is not None else ALONE):
                        await page.changed.wait()
                except TimeoutError:
                    if self._wakeups is None:
                        page.changed.set()
                if page.loop.time() - heard >= HEARTBEAT:
                    heard = page.loop.time()
                    if not await asyncio.to_thread(is_signed_in):
                        return
                    yield b": still here\n\n"
                if page.changed.is_set():
                    page.changed.clear()
                    yield b"event: changed\ndata:\n\n"
                    await asyncio.sleep(PACE)

    @contextmanager
    def _open(self, page: _Page) -> Iterator[None]:
        with self._lock:
            self._pages.add(page)
        try:
            yield
        finally:
            with self._lock:
                self._pages.discard(page)

    def _watch(self, now: float) -> None:
        if self._wakeups is not None and now - self._watched_at >= WATCHED / 3:
            self._watched_at = now
            self._wakeups.watch()
