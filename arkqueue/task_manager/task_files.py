"""The files of an attempt: those of its revision, the list of changes since its base, its
submission's payload and attachments, and its scratch folder (design 9; rules 31, 37 and 38).
``preparation`` calls this module.
"""

from __future__ import annotations

import os
import shlex
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from arkqueue.errors import NotFound, WorkspaceError
from arkqueue.executor.exposure import is_harmless
from arkqueue.logs.write import LogWriter
from arkqueue.model import CHANGES, ChangeStatus, Checkout, Claim, Handed, Origin, TaskDefinition, TreeChange
from arkqueue.names import name_of
from arkqueue.repository import Following, Handover, Recorded, Survey, SurveyOptions
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
        files = self._files(claim, definition, log)
        workspace = self.workspaces.prepare(
            claim.attempt,
            source=self._source(claim, definition, files, log, seen_at),
            script=definition.script,
            inputs=inputs,
            message=claim.message,
            changes=files.change_list if definition.wants_changes else None,
            submission=self._payload(claim, definition, handed),
            owner=owner,
            layered_by=layered_by,
            image=image,
        )
        for note in workspace.notes:
            log.note(note)
        return files.claim, workspace

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

    def _files(self, claim: Claim, definition: TaskDefinition, log: LogWriter) -> RevisionFiles:
        """The files of a claim's revision. The first attempt of a run notes in its log the references
        that its files lack. An attempt with a working copy notes that by itself.
        """
        has_files = definition.checkout in (Checkout.TREE, Checkout.PATHS)
        options = SurveyOptions(
            claim.base,
            changes=claim.base is not None or definition.wants_changes,
            notes=has_files and self.told.is_first(claim),
            base_recorded=self.sources.base(claim) if definition.wants_changes else None,
        )
        return RevisionFiles(claim, self.sources, options, log)

    def _source(
        self, claim: Claim, definition: TaskDefinition, files: RevisionFiles, log: LogWriter, seen_at: Path | None
    ) -> Tree | Fill | None:
        """The source of the workspace's files. ``seen_at``: as in `workspace`."""
        archive = claim.archive
        if definition.checkout is Checkout.NONE:
            return None
        if definition.checkout is Checkout.PATHS:
            return lambda workspace: files.write_some(workspace.tree, definition.checkout_paths)
        if definition.checkout is Checkout.TREE:
            return Tree(archive.id, claim.branch, claim.revision, files, archive.corrections)
        url = archive.settings.task_url or archive.url
        recorded = Recorded(self.sources.open(archive, url), claim.recorded)
        following = self.sources.following(archive, url)
        return lambda workspace: _working_copy(claim, recorded, workspace, seen_at, following, log)

    def _payload(
        self, claim: Claim, definition: TaskDefinition, handed: Handed | None
    ) -> tuple[str, Iterator[bytes]] | None:
        """The name and the content of the payload's file, for a task that gets it."""
        if handed is None or not definition.wants_submission:
            return None
        return environment.payload_file(handed), self.sources.payload(claim)


class RevisionFiles:
    """The files of an attempt's revision, for its workspace, and the survey of the revision. One
    thread uses it.

    An update of a base comes with the survey. Otherwise the repository is asked for the survey when
    the first fact is needed. Raises the errors of the calls of `Recorded`.
    """

    def __init__(self, claim: Claim, sources: Sources, options: SurveyOptions, log: LogWriter) -> None:
        """``options``: the facts that the attempt needs."""
        self.claim = claim
        """The claim, without a base if the repository has lost that revision (see `change_list`)."""
        self._sources, self._options, self._log = sources, options, log
        self._survey: Survey | None = None

    def key(self) -> str:
        """The key of the tree, as in `TreeSource`."""
        return self._surveyed().tree_key

    def export(self, target: Path) -> None:
        """Write the whole tree."""
        self._recorded.export(target)

    def update(
        self, before: str, target: Path, *, good: Path, before_key: str, others: Collection[str]
    ) -> TreeChange | None:
        """Bring a tree from another revision to this one, as in `Archive.update`."""
        survey, change = self._recorded.update(
            before, target, self._options, good=good, before_key=before_key, others=others
        )
        self._learn(survey)
        return change

    def write_some(self, tree: Path, paths: Sequence[str]) -> None:
        """Write some of the files into a tree of the workspace's own."""
        self._recorded.export(tree, paths)
        renew_in_place(self.renewed(), tree)

    def renewed(self) -> list[bytes] | None:
        """The files that differ from the task's base; None if the difference cannot be computed. A
        task that has never completed has no base.
        """
        changes = self._surveyed().changes  # also without a base: the survey brings notes for the log
        if self._options.base is None:
            return []
        if changes is None:  # a force-push took the base, or the trees are huge
            return None
        return [os.fsencode(change.path) for change in changes if change.status is not ChangeStatus.DELETED]

    def change_list(self) -> bytes:
        """The list of changes since the base, as JSON."""
        found = self._surveyed().changes
        if found is not None:
            return as_json(found)
        base = self._options.base
        try:
            try:
                return as_json(self._recorded.changes(base))
            except NotFound:
                if base is None:
                    raise
            # With an empty base, the task does all of its work again, whatever it has kept.
            changes = self._recorded.changes(None)
            self._log.note(
                f"the repository no longer has revision {base}, at which this task last completed: "
                f"ARKQUEUE_BASE is empty, and {CHANGES} has every file"
            )
            self.claim = self.claim._replace(base=None)
            return as_json(changes)
        except TooManyPaths as error:
            remedy = f"Change fewer files at once, or take {CHANGES} and `changes` out of the task"
            raise WorkspaceError(CHANGES, f"it cannot be made: {error}", remedy) from error

    @cached_property
    def _recorded(self) -> Recorded:
        archive = self._sources.open(self.claim.archive, self.claim.archive.url)
        return Recorded(archive, self.claim.recorded, self._sources.early(self.claim))

    def _surveyed(self) -> Survey:
        return self._survey or self._learn(self._recorded.survey(self._options))

    def _learn(self, survey: Survey) -> Survey:
        """Keep a survey, and note the references that are not followed."""
        if self._survey is None:
            for sentence in survey.not_followed:
                self._log.note(sentence)
        self._survey = survey
        return survey


def full_name(claim: Claim) -> str:
    """The name of the task for people."""
    name = name_of(
        claim.archive.name, claim.number, claim.run, claim.name, branch=claim.branch, main=claim.main, item=claim.item
    )
    return str(name)


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
