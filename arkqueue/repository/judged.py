"""The workflow and the lists of a revision, made from the files that an archive reads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from arkqueue.model import MOST_ITEMS, Fault, Item, SourceFile, Workflow


class JudgesFiles(Protocol):
    """The calls of an `Archive` that are the same for each kind of repository."""

    def read_workflows(self, revision_id: str) -> tuple[SourceFile, ...]: ...

    def read_list(self, revision_id: str, path: str) -> SourceFile: ...

    def workflow(self, revision_id: str) -> Workflow:
        from arkqueue.workflow.parsing import parse

        return parse(self.read_workflows(revision_id), partial(self.read_list, revision_id))

    def lists(
        self, revision_id: str, wanted: Sequence[tuple[str, str | None]]
    ) -> tuple[list[tuple[Item, ...]], list[Fault]]:
        from arkqueue.workflow.list_files import read_lists

        return read_lists(wanted, partial(self.read_list, revision_id), MOST_ITEMS)
