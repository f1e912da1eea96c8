"""A backfill, from its request to its runs: the lists in files are read at each of its revisions (design 5.30).

Called by the API for a person, who waits meanwhile, and by the queue manager for what is planned later.
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
"""Seconds in which a repository gives the lists of one revision; after as many, no further revision is asked for."""
REST = 60.0
"""Seconds until a repository is asked again that did not give its lists: other backfills are planned by the same loop."""
TRIES = 5
"""Times that the lists of the first revision are read anew because the branch got another head meanwhile."""
MOST_FAULTS = 3
"""Faults of a revision's lists that are told."""


def with_lists(
    session: Session,
    configuration: Configuration,
    branch: BranchId,
    first: int,
    names: Sequence[str],
    make: Callable[[Lists | None], T | None],
) -> T:
    """The result of ``make`` with the lists of a backfill from ``first`` on; ``make`` answers None
    if it needs other lists by then. Raises ``ArchiveUnreachable`` if the lists cannot be read.
    """
    for _ in range(TRIES):
        wanted = backfill.wanted_first(session, branch, first, names)
        lists = _read(session, configuration, [wanted])[0] if wanted else None
        if (made := make(lists)) is not None:
            return made
    raise Conflict("the branch", "gets so many commits that its head is always another one", "Try again.")


class ListReader:
    """Reads lists for `queue.backfill.plan`; says in the log, once, that a repository does not give them."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._failed: dict[ArchiveId, tuple[float, str]] = {}
        """When a repository did not give its lists, and why."""

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
    """The lists of the first revision of an archive, and of more as long as they have few items and take little time in all. Raises ``ArkqueueError`` where those of the first cannot be read."""
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
                break  # these are planned, and what hangs is asked for by itself
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
