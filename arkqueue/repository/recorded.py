"""One revision of an archive as the ledger has it. A task gets its files only while the repository
holds that revision.

A repository may be replaced at any time by one with the same UUID and another revision of the same
number. So every call that reads files for a task goes through this module, and each proves the
revision again, by its author and date (Git: by its id). `ArchiveMismatch` is raised if it is
another one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from arkqueue.model import FileChange, Origin, Revision, TreeChange
from arkqueue.repository.credentials import Handover
from arkqueue.repository.following.allowance import Followed, Following
from arkqueue.repository.protocol import Archive, Survey, SurveyOptions
from arkqueue.repository.tree_writer import Early


@dataclass(frozen=True, slots=True)
class Recorded:
    """The calls of `Archive` that make files, for one revision of the ledger. ``archive``: open in
    the calling thread.

    ``early``: when revisions of its branch with dates in the future were read.
    """

    archive: Archive
    revision: Revision
    early: Early = field(default_factory=dict)

    def survey(self, options: SurveyOptions) -> Survey:
        return self.archive.survey(self.revision.id, options, recorded=self.revision)

    def export(self, target: Path, paths: Sequence[str] = ()) -> None:
        self.archive.export(self.revision.id, target, paths, recorded=self.revision, early=self.early)

    def changes(self, base: str | None) -> tuple[FileChange, ...]:
        return self.archive.changes(base, self.revision.id, recorded=self.revision)

    def update(
        self, before: str, target: Path, options: SurveyOptions, *, good: Path, before_key: str, others: Collection[str]
    ) -> tuple[Survey, TreeChange | None]:
        return self.archive.update(
            before,
            self.revision.id,
            target,
            options=options,
            good=good,
            before_key=before_key,
            others=others,
            recorded=self.revision,
            early=self.early,
        )

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
