"""One revision of an archive as the ledger has it: a task gets its files only as long as the repository holds that revision.

A repository may be replaced at any time, by one that has the same UUID and another revision of the same number. So every call that reads files for a task
goes through here, and each proves the revision anew, by its author and date (Git: by its id). `ArchiveMismatch` says that it is another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from arkqueue.model import FileChange, Origin, Revision, TreeChange
from arkqueue.repository.credentials import Handover
from arkqueue.repository.following.allowance import Followed, Following
from arkqueue.repository.protocol import Archive, TreeWatch


@dataclass(frozen=True, slots=True)
class Recorded:
    """The calls of `Archive` that make files, for one revision of the ledger. ``archive`` is open in the thread that calls."""

    archive: Archive
    revision: Revision

    def tree_key(self, revision_id: str) -> str:
        return self.archive.tree_key(revision_id, recorded=self._recorded(revision_id))

    def export(self, revision_id: str, target: Path, paths: Sequence[str] = ()) -> None:
        self.archive.export(revision_id, target, paths, recorded=self._recorded(revision_id))

    def changes(self, base: str | None) -> tuple[FileChange, ...]:
        return self.archive.changes(base, self.revision.id, recorded=self.revision)

    def prove(self, other: Revision) -> None:
        """Raise where another revision of the ledger, from which something is to be compared, is not the repository's."""
        self.archive.tree_key(other.id, recorded=other)

    def update(self, before: str, revision_id: str, target: Path, watch: TreeWatch) -> TreeChange:
        return self.archive.update(before, revision_id, target, watch, recorded=self._recorded(revision_id))

    def working_copy(
        self, branch: str, target: Path, *, author: str, origin: Origin | None = None, handover: Handover | None = None
    ) -> Path | None:
        return self.archive.working_copy(
            self.revision.id,
            branch,
            target,
            author=author,
            origin=origin,
            handover=handover,
            recorded=self.revision,
        )

    def follow(self, target: Path, following: Following) -> Followed:
        return self.archive.follow(self.revision.id, target, following, recorded=self.revision)

    def _recorded(self, revision_id: str) -> Revision | None:
        """None of another revision: a base is also asked what it was made of."""
        return self.revision if revision_id == self.revision.id else None
