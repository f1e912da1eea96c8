"""Three ways to lose what an archive has planned: its removal, a new start, and the end of a
branch's tracking.
"""

from __future__ import annotations

from arkqueue.model import BranchId
from arkqueue.plan import Entry
from arkqueue.queue import archives
from tests.builders import NOTHING, AnArchive, a_revision


def remove(archive: AnArchive) -> None:
    archives.remove(archive.session, archive.id, "ann")


def rewind(archive: AnArchive) -> archives.Rewound:
    start = archives.Start("", True, Entry(a_revision(1), NOTHING))
    return archives.rewind(archive.session, archive.id, BranchId(archive.branches[""].id), start, "", "ann")


def untrack(archive: AnArchive) -> None:
    archives.untrack(archive.session, archive.id, BranchId(archive.branches[""].id))
