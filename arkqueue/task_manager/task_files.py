"""The files of an attempt: those of its revision, the list of changes since its base, its
submission's payload and attachments, and its scratch folder (design 9; rules 31, 37 and 38).
``preparation`` calls this module.
"""

from __future__ import annotations

import os
import shlex
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from arkqueue.errors import NotFound, WorkspaceError
from arkqueue.executor.exposure import is_harmless
from arkqueue.logs.write import LogWriter
from arkqueue.model import CHANGES, ChangeStatus, Checkout, Claim, Handed, Origin, TaskDefinition
from arkqueue.names import name_of
from arkqueue.repository import Following, Handover, Recorded, Survey
from arkqueue.repository.changes import as_json
from arkqueue.repository.limits import TooManyPaths
from arkqueue.repository.origin import AUTHORS
from arkqueue.task_manager import environment
from arkqueue.task_manager.sources import Sources
from arkqueue.workspace import (
    AttachmentFolders,
    Fill,
    LayeredBy,
    Owner,
    ScratchFolders,
    ScratchLost,
    Tree,
    Workspace,
    Workspaces,
)
from arkqueue.workspace.renewal import renew_in_place

MOST_RUNS = 10_000
"""Remembered runs whose logs name the references that are not followed."""


@dataclass(frozen=True, slots=True)
class TaskFiles:
    """Makes the files of attempts. Any thread may call it."""

    sources: Sources
    workspaces: Workspaces
    scratches: ScratchFolders
    told: Told = field(default_factory=lambda: Told())

    def workspace(
        self,
        claim: Claim,
        definition: TaskDefinition,
        inputs: dict[str, object],
        handed: Handed | None,
        log: LogWriter,
        *,
        owner: Owner | None,
        layered_by: LayeredBy,
        seen_at: Path | None = None,
        image: str | None = None,
    ) -> tuple[Claim, Workspace]:
        """The workspace of an attempt, and the claim, without a base if the repository has lost that
        revision.

        ``seen_at``: the path by which the task sees the files beside its tree; None: their path on
        this host. ``image``: that of its container. Raises the errors of `Workspaces.prepare` and
        of the calls of `Recorded`; then no workspace is left.
        """
        survey = self._survey(claim, definition, log)
        source = _source(claim, definition, self.sources, survey, log, seen_at)
        claim, changes = self._changes(claim, definition, survey, log)
        workspace = self.workspaces.prepare(
            claim.attempt,
            source=source,
            script=definition.script,
            inputs=inputs,
            message=claim.message,
            changes=changes,
            submission=self._payload(claim, definition, handed),
            owner=owner,
            layered_by=layered_by,
            image=image,
        )
        for note in workspace.notes:
            log.note(note)
        return claim, workspace

    def scratch(
        self, claim: Claim, definition: TaskDefinition, installation: str, have: Callable[..., Path]
    ) -> Path | None:
        """The scratch folder of the task's run or item, which ``have`` makes. None: the task asks
        for none. Raises Elsewhere if the folder is on another host.
        """
        if definition.scratch is None:
            return None
        scratch = self.sources.scratch(claim, self.scratches.lack)
        harmless = is_harmless(self.scratches.root)
        try:
            folder = have(scratch, installation, is_harmless=harmless)
        except ScratchLost:
            self.sources.scratch_lost(scratch)
            raise
        self.sources.scratch_made(scratch)
        return folder

    def attached(self, handed: Handed | None, installation: str, owner: Owner | None = None) -> Path | None:
        """The folder of the attachments of the task's run, for containers, or for processes of
        ``owner`` (None: the user of this process). None: the run has none. Raises WorkspaceError if
        they are gone.
        """
        if handed is None or handed.attached is None:
            return None
        if handed.attached.is_removed:
            fault = "were removed when the run was deleted"
            raise WorkspaceError("the attachments of its run", fault, "Submit them again, with another id")
        folders = AttachmentFolders(self.scratches.root, installation)
        return folders.for_tasks(handed.attached.folder, owner)

    def _survey(self, claim: Claim, definition: TaskDefinition, log: LogWriter) -> Survey | None:
        """The answers of the repository that are needed before the files are written; None: the
        task needs none.

        The first attempt of a run notes in its log the references that its files lack. An attempt
        with a working copy notes that by itself.
        """
        has_files = definition.checkout in (Checkout.TREE, Checkout.PATHS)
        if not has_files and not definition.wants_changes:
            return None
        survey = self._recorded(claim).survey(
            claim.base,
            changes=claim.base is not None or definition.wants_changes,
            notes=has_files and self.told.is_first(claim),
            base_recorded=self.sources.base(claim) if definition.wants_changes else None,
        )
        for sentence in survey.not_followed:
            log.note(sentence)
        return survey

    def _changes(
        self, claim: Claim, definition: TaskDefinition, survey: Survey | None, log: LogWriter
    ) -> tuple[Claim, bytes | None]:
        """The list of changes since the base, as JSON, if the task asks for it; and the claim,
        without a base if the repository has lost that revision.
        """
        if not definition.wants_changes or survey is None:
            return claim, None
        if survey.changes is not None:
            return claim, as_json(survey.changes)
        recorded = self._recorded(claim)
        try:
            try:
                return claim, as_json(recorded.changes(claim.base))
            except NotFound:
                if claim.base is None:
                    raise
            # With an empty base, the task does all of its work again, whatever it has kept.
            changes = recorded.changes(None)
            log.note(
                f"the repository no longer has revision {claim.base}, at which this task last completed: "
                f"ARKQUEUE_BASE is empty, and {CHANGES} has every file"
            )
            return claim._replace(base=None), as_json(changes)
        except TooManyPaths as error:
            remedy = f"Change fewer files at once, or take {CHANGES} and `changes` out of the task"
            raise WorkspaceError(CHANGES, f"it cannot be made: {error}", remedy) from error

    def _payload(
        self, claim: Claim, definition: TaskDefinition, handed: Handed | None
    ) -> tuple[str, Iterator[bytes]] | None:
        """The name and the content of the payload's file, for a task that gets it."""
        if handed is None or not definition.wants_submission:
            return None
        return environment.payload_file(handed), self.sources.payload(claim)

    def _recorded(self, claim: Claim) -> Recorded:
        return Recorded(self.sources.open(claim.archive, claim.archive.url), claim.recorded)


def full_name(claim: Claim) -> str:
    """The name of the task for people."""
    name = name_of(
        claim.archive.name, claim.number, claim.run, claim.name, branch=claim.branch, main=claim.main, item=claim.item
    )
    return str(name)


def _source(
    claim: Claim,
    definition: TaskDefinition,
    sources: Sources,
    survey: Survey | None,
    log: LogWriter,
    files: Path | None = None,
) -> Tree | Fill | None:
    """The source of the workspace's files. ``files``: the path by which the task sees the files
    beside its tree; None: their path on this host.
    """
    archive = claim.archive
    if definition.checkout is Checkout.NONE:
        return None
    is_copy = definition.checkout is Checkout.WORKING_COPY
    url = (is_copy and archive.settings.task_url) or archive.url
    recorded = Recorded(sources.open(archive, url), claim.recorded, sources.early(claim))
    if is_copy:
        following = sources.following(archive, url)
        return lambda workspace: _working_copy(claim, recorded, workspace, files, following, log)
    assert survey is not None, "it was asked for, as these tasks get files"
    renewed = _renewed(claim, survey)
    if definition.checkout is Checkout.PATHS:
        return lambda workspace: _some_files(claim, recorded, workspace, definition.checkout_paths, renewed)
    return Tree(archive.id, claim.branch, claim.revision, survey.tree_key, recorded, renewed, archive.corrections)


class Told:
    """The runs whose logs name the references that their files lack. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: OrderedDict[tuple[object, ...], None] = OrderedDict()

    def is_first(self, claim: Claim) -> bool:
        """True at the first call for a run."""
        run = claim.archive.id, claim.branch, claim.number, claim.run
        with self._lock:
            if run in self._runs:
                return False
            self._runs[run] = None
            if len(self._runs) > MOST_RUNS:
                self._runs.popitem(last=False)
            return True


def _renewed(claim: Claim, survey: Survey) -> list[bytes] | None:
    """The files that differ from the task's base; None if the difference cannot be computed. A task
    that has never completed has no base.
    """
    if claim.base is None:
        return []
    if survey.changes is None:  # a force-push took the base, or the trees are huge
        return None
    return [os.fsencode(change.path) for change in survey.changes if change.status is not ChangeStatus.DELETED]


def _some_files(
    claim: Claim, recorded: Recorded, workspace: Workspace, paths: Sequence[str], renewed: Sequence[bytes] | None
) -> None:
    recorded.export(claim.revision, workspace.tree, paths)
    renew_in_place(renewed, workspace.tree)


def _working_copy(
    claim: Claim, recorded: Recorded, workspace: Workspace, files: Path | None, following: Following, log: LogWriter
) -> Path | None:
    archive = claim.archive
    path_first = recorded.working_copy(
        claim.branch,
        workspace.tree,
        author=archive.settings.author or AUTHORS[archive.kind],
        origin=Origin(full_name(claim), claim.generation + 1),
        handover=Handover(workspace.files, files or workspace.files),
    )
    followed = recorded.follow(workspace.tree, following)
    for sentence in followed.notes:
        log.note(sentence)
    if followed.wanted:
        prefixes = dict.fromkeys((*following.prefixes, *followed.wanted))
        command = shlex.join(["arkqueue", "archive", "set", archive.name, "follow", *prefixes])
        log.note(f"to have what is not allowed followed from now on: {command}")
    return path_first
