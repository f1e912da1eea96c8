"""Tells open pages that their data have changed, by server-sent events. All of them share one
subscription of this process. A change of the installation, such as its pause, a drain or a lock of
all archives, is announced like that of an archive, and heard by every page.

    queue ── after a commit: topic of the archive ──→ wake-ups ──→ Live.hear ──→ a flag of each page that shows this archive ──→ "changed"

An event says only that something has changed. The page then loads itself again, with the rights of
its token.

A page carries the moment at which the server began to read it (``as_of``), and sends this moment
when it subscribes. The server knows when it last heard of a change of each archive. So a page
learns at once of a change since then, and a page that is current does not load itself again.

A page whose connection accepts no more data holds up no others: its flag stays set, and
`web.connections` closes the connection. While a page is open, all processes report which archives
change (``Wakeups.watch``).
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Set
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from fastapi import Request

from arkqueue.db.session import Session
from arkqueue.db.wakeups import ARCHIVE, WATCHED
from arkqueue.logs.follow import Followed
from arkqueue.model import INSTALLATION, AttemptId

PACE = 0.15
"""The fewest seconds between two events of a page."""
HEARTBEAT = 15.0
"""Seconds of silence after which a page gets a heartbeat, and its sign-in is checked."""
ALONE = 0.5
"""Seconds between two polls if no wake-up can arrive."""


_AS_OF: Final = re.compile(r"([0-9a-f]{8})-(\d{1,18})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a page asks to hear of. ``archives``: the archives that it shows; None: all.
    ``attempt``: also the log of this attempt, after its first ``log_size`` bytes. ``as_of``: the
    moment as of which the page is current; empty: the page asks for later changes only.
    """

    archives: frozenset[int] | None
    attempt: AttemptId | None = None
    log_size: int = -1
    as_of: str = ""


@dataclass(slots=True, eq=False)
class _Page:
    """An open page. ``log``: the followed log; None: there is none, or not yet."""

    of: Subscription
    loop: asyncio.AbstractEventLoop
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    log: Followed | None = None

    def shows(self, changed: Set[int]) -> bool:
        """Whether the page shows one of these archives. Each page shows the installation."""
        return self.of.archives is None or INSTALLATION in changed or not self.of.archives.isdisjoint(changed)

    def hear_log(self) -> None:
        """Wake the page if the log may have grown since the page was made."""
        if self.log is None or self.log.has_more(self.of.log_size):
            self.wake()

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
        self._name = secrets.token_hex(4)
        """The name of this process in `as_of`: each process has a clock of its own."""
        self._began = time.monotonic_ns()
        self._changed: dict[int, int] = {}
        """When this process last heard of a change, by archive."""
        self._missed = 0
        """When changes of any archive may last have been missed."""
        if self._wakeups is not None:
            self._wakeups.tell(self)

    @property
    def pages(self) -> int:
        """The number of open pages."""
        return len(self._pages)

    def hear(self, topics: Collection[str] | None) -> None:
        """Mark the pages that show one of the changed archives; None: all pages."""
        changed = None
        if topics is not None:
            changed = {int(topic.removeprefix(ARCHIVE)) for topic in topics if topic.startswith(ARCHIVE)}
            if not changed:
                return
        with self._lock:
            if changed is None:
                self._missed = self._now()
            else:
                self._changed |= dict.fromkeys(changed, self._now())
            concerned = [page for page in self._pages if changed is None or page.shows(changed)]
        for page in concerned:
            page.wake()

    def as_of(self) -> str:
        """The moment as of which a page is current that the server now begins to read."""
        self._watch()
        return f"{self._name}-{self._now()}"

    def _has_changed(self, of: Subscription) -> bool:
        """Whether a page that subscribes may have missed a change."""
        if not of.as_of:
            return False
        found = _AS_OF.fullmatch(of.as_of)
        if found is None or found[1] != self._name or self._wakeups is None:
            return True
        with self._lock:
            archives = self._changed if of.archives is None else of.archives | {INSTALLATION}
            last = max((self._changed.get(archive, 0) for archive in archives), default=0)
            return max(last, self._missed) >= int(found[2])

    async def events(
        self, request: Request, of: Subscription, is_signed_in: Callable[[], bool]
    ) -> AsyncIterator[bytes]:
        """The events for a page until it leaves."""
        leaving: asyncio.Event | None = getattr(request.app.state, "leaving", None)
        page = _Page(of, asyncio.get_running_loop())
        with ExitStack() as stack:
            stack.enter_context(self._open(page))
            self._watch()
            if self._has_changed(of):
                page.changed.set()
            if of.attempt is not None:
                watcher = request.app.state.followers.watcher
                page.log = stack.enter_context(watcher.following(of.attempt, page.hear_log))
                page.hear_log()
            yield b"retry: 1000\n: open\n\n"
            heard = page.loop.time()
            while leaving is None or not leaving.is_set():
                self._watch()
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
                    yield b"event: here\ndata:\n\n"
                if page.changed.is_set() and not (leaving and leaving.is_set()):
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

    def _now(self) -> int:
        """Nanoseconds since this process began. A count of changes would reveal to a visitor how
        much happens in archives that are not the visitor's.
        """
        return time.monotonic_ns() - self._began

    def _watch(self) -> None:
        """Ask all processes to announce changes, if the last request is about to expire. After it
        has expired, changes may have been missed.
        """
        if self._wakeups is None:
            return
        now = time.monotonic()
        with self._lock:
            silence = now - self._watched_at
            if silence < WATCHED / 3:
                return
            if silence > WATCHED:
                self._missed = self._now()
            self._watched_at = now
        self._wakeups.watch()
