"""Reads repositories in threads of their own, outside any lock, at most one for each archive
(design 2).

The dispatcher (``Readers.turn``) queries which archives a notice names, or whose periodic scan is
due, and hands each to its reader's thread. Before a periodic scan, quick checks take the archives
without changes. A repository that hangs holds up its own reader only. A reader ends with its scan;
after a notice it keeps its connection for a while, because commits come in bursts. A periodic scan
of a thousand archives goes through a few readers at a time, notices first.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.errors import DatabaseUnavailable
from arkqueue.model import ArchiveId
from arkqueue.queue import archives
from arkqueue.queue_manager.quick_checks import QuickChecks
from arkqueue.queue_manager.reader import Reader

log = logging.getLogger("arkqueue")

SWEEPS_AT_ONCE, NOTICES_AT_ONCE = 16, 64
"""The most scans under way, such that another periodic scan, or a scan for a notice, may begin.
Scans that have taken ``SLOW`` seconds do not count: they wait for their repository.
"""
MOST_AT_ONCE = 1000
"""The most archives that the dispatcher queries in one iteration."""
CLOSING = 5.0
"""Seconds that the readers have to end."""
MOST_LINGERING = 64
CONNECTIONS = 6
"""Database connections for the results of readers."""


class Readers:
    """The readers of one queue manager. ``idle``: called when a reader has become free for waiting
    archives.
    """

    def __init__(self, session: Session, configuration: Configuration, idle: Callable[[], None]) -> None:
        self._session, self._configuration, self._idle = session, configuration, idle
        self._reading = session.share(CONNECTIONS)
        self._readers: dict[int, Reader] = {}
        self._lock = threading.Lock()
        self._closing = False
        self._to_sweep: Sequence[ArchiveId] | None = None
        """The archives that the present periodic scan has not reached yet; None: all."""
        self._losses = 0
        self._are_waiting = False
        self._checks = QuickChecks(self._reading, configuration.sweep, changed=idle)

    def turn(self) -> None:
        """Hand every archive that has to be scanned to its reader. The first iteration scans all
        archives, and so does the first one after an outage of the database.
        """
        try:
            self._hand_out()
        except DatabaseUnavailable:
            self._to_sweep = None  # notices of hooks were lost meanwhile, too
            raise

    def _hand_out(self) -> None:
        # The listener also knows an outage that ended before an iteration noticed it.
        losses = self._session.wakeups.losses if self._session.wakeups else 0
        if losses != self._losses:
            self._to_sweep, self._losses = None, losses
        if self._to_sweep is None or self._to_sweep:
            self._to_sweep = archives.sweep_all(self._session, self._to_sweep)
        for each in self._readers.values():
            each.see_to_silence()
        # More archives than may be under way are queried, so that there is always one that is not.
        rows = self._checks.take_over(archives.to_read(self._session, MOST_AT_ONCE + len(self._readers)))
        with self._lock:
            self._readers = {id: reader for id, reader in self._readers.items() if not reader.ended}
            self._are_waiting = False
            busy = sum(reader.is_reading for reader in self._readers.values())
            for row in rows:
                if self._closing:
                    return
                reader = self._readers.get(row.id)
                if reader is not None and reader.is_at(row):
                    continue
                if busy >= (SWEEPS_AT_ONCE if row.asked is None else NOTICES_AT_ONCE):
                    self._are_waiting = True
                    return
                busy += 1
                if reader is None or not reader.look(row):
                    reader = Reader(self._reading, self._configuration, row, self._freed, self._checks)
                    reader.start()
                    self._readers[row.id] = reader

    def close(self) -> None:
        """End the readers. A reader whose repository hangs is left behind."""
        with self._lock:
            self._closing = True
            readers = list(self._readers.values())
        self._checks.close()
        for reader in readers:
            reader.close()
        deadline = time.monotonic() + CLOSING
        for reader in readers:
            reader.join(timeout=max(0.0, deadline - time.monotonic()))

    def _freed(self) -> bool:
        """Note that a scan has ended. Returns whether its reader may keep its connection."""
        with self._lock:
            are_waiting = self._are_waiting
            lingering = sum(reader.lingers for reader in self._readers.values())
        if are_waiting:
            self._idle()
        return lingering < MOST_LINGERING
