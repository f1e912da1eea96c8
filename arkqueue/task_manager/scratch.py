"""Measures a host's scratch folders, and removes them when the database reports that their runs or
items are over (design 5.37). Also removes the attachments of submissions, whose folders are beside
them (5.31).

One loop of each task manager. A host without folders asks the database nothing. Folders that the
database does not know are removed, too: their runs were purged, or a killed task manager has left
them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence

from arkqueue.gateway import Gateway
from arkqueue.model import Unneeded
from arkqueue.runtime.loop import Loop
from arkqueue.runtime.wakeup import Bell
from arkqueue.workspace import AttachmentFolders, ScratchFolders

log = logging.getLogger("arkqueue")

PACE = 5.0
"""Seconds between two iterations, however many tasks end meanwhile."""
MEASURE = 60.0
"""Seconds between two measurements."""
MOST = 10_000
"""The most folders that one call asks about."""


class ScratchKeeper:
    """Measures and removes the folders of one task manager."""

    def __init__(self, gateway: Gateway, folders: ScratchFolders, installation: Callable[[], str], poll: float) -> None:
        """``installation``: returns the id of the installation, whose folders these are. ``poll``:
        seconds between two iterations when no task ends.
        """
        self._gateway, self._folders, self._installation = gateway, folders, installation
        self._bell = Bell(())
        self._measured_at = 0.0
        self._loop = Loop("scratch", self._iterate, self._bell, poll, PACE)

    def start(self) -> None:
        self._loop.start()

    def ended(self) -> None:
        """Note that a task has ended, so that the run or item of a folder may be over."""
        self._bell.ring()

    def close(self) -> None:
        self._loop.close()

    def _iterate(self) -> float | None:
        if not self._folders.are_used:
            return None
        installation = self._installation()
        with self._folders.turn() as is_mine:
            return self._look_after(installation) if is_mine else None

    def _look_after(self, installation: str) -> float | None:
        """Returns the seconds until the next iteration, if it cannot wait for a bell."""
        known = self._folders.known(installation)
        gone, is_partial = _unneeded(self._gateway.scratch_unneeded, known)
        attachments = AttachmentFolders(self._folders.root, installation)
        over, is_partial_too = _unneeded(self._gateway.attachments_unneeded, attachments.known())
        notes = self._folders.remove(installation, gone) if gone else []
        for note in (*notes, *attachments.remove(over)):
            log.warning(note)
        if time.monotonic() - self._measured_at >= MEASURE or self._folders.lack is not None:
            if sizes := self._folders.measure(installation, known - gone):
                self._gateway.scratch_measured(sizes)
            self._measured_at = time.monotonic()
        return 0.0 if is_partial or is_partial_too else None


def _unneeded(ask: Callable[[Sequence[int]], Unneeded], folders: Collection[int]) -> Unneeded:
    """Ask about any number of folders."""
    known = sorted(folders)
    found = [ask(known[first : first + MOST]) for first in range(0, len(known), MOST)]
    return Unneeded(set[int]().union(*(one.folders for one in found)), any(one.is_partial for one in found))
