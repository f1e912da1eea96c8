"""Backfills, from a person's request to the runs. The lists in files are read at each revision of a
backfill (design 5.30).

The API calls this module for a person, who waits for the answer. The queue manager calls it for the
runs that are planned later.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from arkqueue.archives.patience import answer_within
from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.errors import ArchiveMismatch, ArchiveUnreachable, ArkqueueError, Conflict, DatabaseUnavailable
from arkqueue.model import MOST_ITEMS, ArchiveId, ArchiveKind, BranchId, Revision
from arkqueue.queue import backfill
from arkqueue.queue.backfill import Lists, Wanted
from arkqueue.repository import Archive
from arkqueue.repository.opening import location_of, open_location
from arkqueue.repository.reader.entries import named

T = TypeVar("T")
log = logging.getLogger("arkqueue")

PATIENCE = 30.0
"""The most seconds that reading the lists of one revision may take. Once all reading has taken as
long, no further revision is read.
"""
REST = 60.0
"""The seconds until a repository that did not give its lists is read again: the same loop plans
other backfills in the meantime.
"""
TRIES = 5
"""How often the lists of the first revision are read again because the branch has got another head
in the meantime.
"""
MOST_FAULTS = 3
"""The most faults of a revision's lists that are reported."""


def with_lists(
    session: Session,
    configuration: Configuration,
    branch: BranchId,
    first: int,
    names: Sequence[str],
    make: Callable[[Lists | None], T | None],
) -> T:
    """The result of ``make`` with the lists of a backfill from ``first`` on. ``make`` returns None
    if it needs other lists by then. Raises ``ArchiveUnreachable`` if the lists cannot be read.
    """
    for _ in range(TRIES):
        wanted = backfill.wanted_first(session, branch, first, names)
        lists = _read(session, configuration, [wanted])[0] if wanted else None
        if (made := make(lists)) is not None:
            return made
    raise Conflict("the branch", "gets so many commits that its head is always another one", "Try again.")


class ListReader:
    """Reads lists for `queue.backfill.plan`. Logs once that a repository does not give its lists."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._failed: dict[ArchiveId, tuple[float, str]] = {}
        """The time at which a repository did not give its lists, and the reason."""

    def __call__(self, session: Session, archive: ArchiveId, wanted: Sequence[Wanted]) -> Sequence[Lists] | str:
        since, told = self._failed.get(archive, (0.0, ""))
        if told and time.monotonic() - since < REST:
            return told
        try:
            found = _read(session, self._configuration, wanted)
        except DatabaseUnavailable:
            raise
        except ArkqueueError as error:
            if told != str(error):
                log.warning("a backfill waits, as its lists cannot be read: %s", error)
            self._failed[archive] = time.monotonic(), str(error)
            return str(error)
        self._failed.pop(archive, None)
        return found


def _read(session: Session, configuration: Configuration, wanted: Sequence[Wanted]) -> list[Lists]:
    """The lists of the first wanted revision, and of the next ones as long as they have few items
    and reading takes little time in all. Raises ``ArkqueueError`` if those of the first one cannot
    be read.
    """
    rows = [session.rows("revision_at", revision=one.revision)[0] for one in wanted]
    location = location_of(configuration, rows[0].url, ArchiveKind(rows[0].kind), rows[0].uuid)
    opened = open_location(configuration, location)
    read: list[Lists] = []
    items, began = 0, time.monotonic()
    for one, row in zip(wanted, rows, strict=True):
        if items > MOST_ITEMS or time.monotonic() - began > PATIENCE:
            break
        try:
            asked = partial(_lists, opened, row, one)
            read.append(answer_within(PATIENCE, asked, "read lists", is_ended=not location.needs_mirror))
        except TimeoutError:
            if read:
                break  # the lists read so far are planned; the next call reads the slow one first
            fault = f"has not given the lists of revision {row.name} for {PATIENCE:.0f} s"
            raise ArchiveUnreachable(location.shown, fault, "Check its server and the network.") from None
        except ArchiveMismatch as error:
            raise ArchiveUnreachable(location.shown, named(error, row.archive)) from None
        items += sum(map(len, read[-1].found.values()))
    return read


def _lists(opened: Archive, row: Any, wanted: Wanted) -> Lists:
    opened.check_known(Revision(row.name, row.number, row.author, row.date, ""))
    found, faults = opened.lists(row.name, wanted.files)
    told = [str(fault) for fault in faults[:MOST_FAULTS]]
    told += ["and more"] if len(faults) > MOST_FAULTS else []
    return Lists(wanted, {} if faults else dict(zip(wanted.files, found, strict=True)), "; ".join(told))
