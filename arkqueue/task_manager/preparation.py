"""The preparation of an attempt: its workspace, and the program that an executor starts there
(design 9).

    in a container    image, by its pull policy → the user of the program → workspace of that user → program
    as processes      workspace of the archive's user → program

Whatever is missing is an error with its remedy, before anything has begun. ``attempt`` calls this
module.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from arkqueue.config import Configuration
from arkqueue.errors import ExecutorError, NotFound, Withheld, WorkspaceError
from arkqueue.executor import Container, Mount, Program, argv_for
from arkqueue.executor.exposure import exposure, is_harmless
from arkqueue.logs.write import LogWriter
from arkqueue.model import CHANGES, ChangeStatus, Checkout, Claim, Handed, Origin, TaskDefinition
from arkqueue.names import name_of
from arkqueue.repository import Following, Handover, Recorded, Survey, locate
from arkqueue.repository.changes import as_json
from arkqueue.repository.limits import TooManyPaths
from arkqueue.repository.location import local_path
from arkqueue.repository.origin import AUTHORS
from arkqueue.task_manager import environment
from arkqueue.task_manager.containers import (
    ATTACHMENTS,
    OWN_FILES,
    SCRATCH,
    WORKSPACE,
    Identity,
    check_account,
    container_for,
    working_folder,
)
from arkqueue.task_manager.executors import Executors
from arkqueue.task_manager.sources import Sources
from arkqueue.workspace import (
    AttachmentFolders,
    Fill,
    Owner,
    ScratchFolders,
    ScratchLost,
    Tree,
    Workspace,
    Workspaces,
    owner_named,
)
from arkqueue.workspace.layers import show_read_only
from arkqueue.workspace.removal import FOLDER
from arkqueue.workspace.renewal import renew_in_place

CORRECT = "Correct it, or leave it out and let the task make the folder and go there"
"""The remedy for a `workdir` that is not there."""


MOST_RUNS = 10_000
"""Runs that are remembered because their logs say what is not followed."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is to be started. ``image``: the digest of its container's; None: it runs as processes."""

    program: Program
    image: str | None = None


@dataclass(frozen=True, slots=True)
class Preparation:
    """Prepares attempts; any thread may call it."""

    configuration: Configuration
    sources: Sources
    workspaces: Workspaces
    executors: Executors
    scratches: ScratchFolders
    told: Told = field(default_factory=lambda: Told())

    def prepare(
        self,
        claim: Claim,
        definition: TaskDefinition,
        inputs: dict[str, object],
        log: LogWriter,
        is_wanted: Callable[[], bool],
    ) -> Prepared:
        """Raises what stands in its way, and soon when the attempt is not wanted any more."""
        container = self._container(claim, definition)
        if container is None:
            return Prepared(self._process(claim, definition, inputs, log))
        return self._in_container(claim, definition, inputs, container, log, is_wanted)

    def _container(self, claim: Claim, definition: TaskDefinition) -> Container | None:
        archive = claim.archive
        identity = Identity(
            self.executors.installation,
            self.executors.host,
            str(name_of(archive.name, claim.number, claim.run, branch=claim.branch, main=claim.main)),
            full_name(claim),
            claim.task,
            claim.attempt,
        )
        return container_for(definition, archive.settings, archive.name, self.configuration, identity)

    # -- as processes ------------------------------------------------------------------------------------------------

    def _process(
        self,
        claim: Claim,
        definition: TaskDefinition,
        inputs: dict[str, object],
        log: LogWriter,
    ) -> Program:
        archive = claim.archive
        user = archive.settings.process_user
        if user and (found := exposure(archive.name, archive.settings, self.configuration.mounts)):
            raise Withheld(found.thing, found.fault, found.remedy)
        owner = owner_named(user) if user else None
        scratch = self._scratch(claim, definition, partial(self.scratches.for_process, owner=owner))
        survey = self._survey(claim, definition, log)
        handed = self.sources.submission(claim)
        attached = self._attached(handed, owner)
        source = _source(claim, definition, self.sources, survey, log)
        claim, changes = self._changes(claim, definition, survey, log)
        workspace = self._noted(
            log,
            self.workspaces.prepare(
                claim.attempt,
                source=source,
                script=definition.script,
                inputs=inputs,
                message=claim.message,
                changes=changes,
                submission=self._payload(claim, definition, handed),
                owner=owner,
                layered_by="kernel",
            ),
        )
        _check_workdir(definition, workspace, Path(definition.workdir or ""))
        if attached:
            shown = workspace.files / ATTACHMENTS.name
            shown.mkdir()
            # Where the kernel shows nothing, this is no root, whom the modes of the files stop.
            attached = shown if show_read_only(attached, shown) else attached
        return Program(
            claim.attempt,
            argv_for(definition, str(workspace.script)),
            environment.of_process(claim, definition, archive.name, workspace, user, scratch, handed, attached),
            working_folder(definition, workspace.tree),
            user,
            shell=definition.script is not None,
        )

    # -- in a container ----------------------------------------------------------------------------------------------

    def _in_container(
        self,
        claim: Claim,
        definition: TaskDefinition,
        inputs: dict[str, object],
        container: Container,
        log: LogWriter,
        is_wanted: Callable[[], bool],
    ) -> Prepared:
        self.executors.docker.check()
        self.executors.prove()
        archive = claim.archive
        url = archive.settings.task_url or archive.url
        if definition.checkout is Checkout.WORKING_COPY and local_path(locate(url, archive.kind)) is not None:
            log.note(
                f"its working copy is of {url}, a path of this host that no container has: for it to commit, "
                f"give its URL: arkqueue archive set {archive.name} --task-url URL"
            )
        docker = self.executors.docker
        if claim.attempt_number > 1:
            docker.remove_earlier(claim.task, claim.attempt)
        image = docker.image(container, is_wanted, log.note)
        account = docker.account(image, definition.user, container.image)
        user = definition.user
        if archive.settings.users:
            uid, gid, groups = account.uid, account.gid, account.groups
            check_account(user, uid, gid, groups, container.image, archive.settings, archive.name)
            # By number, so that whoever was judged is who it runs as, whatever another reader makes of the image's files.
            user, container = f"{uid}:{gid}", replace(container, groups=groups)
        if definition.scratch is not None:
            self.executors.prove(self.scratches.root)
        scratch = self._scratch(claim, definition, partial(self.scratches.for_container, image=image))
        survey = self._survey(claim, definition, log)
        handed = self.sources.submission(claim)
        attached = self._attached(handed)
        if attached:
            self.executors.prove(self.scratches.root)
        source = _source(claim, definition, self.sources, survey, log, OWN_FILES)
        claim, changes = self._changes(claim, definition, survey, log)
        workspace = self._noted(
            log,
            self.workspaces.prepare(
                claim.attempt,
                source=source,
                script=definition.script,
                inputs=inputs,
                message=claim.message,
                changes=changes,
                submission=self._payload(claim, definition, handed),
                owner=(account.uid, account.gid),
                layered_by="engine",
                image=image,
            ),
        )
        begins = working_folder(definition, WORKSPACE)
        if begins.is_relative_to(WORKSPACE):
            _check_workdir(definition, workspace, begins.relative_to(WORKSPACE))
        elif (
            not (scratch and begins.is_relative_to(SCRATCH))
            and not _is_mounted(begins, container)
            and not docker.has_folder(image, str(begins))
        ):
            raise ExecutorError(f"workdir {definition.workdir}", f"image {container.image} has no such folder", CORRECT)
        path_first = _inside(workspace, workspace.path_first)
        variables = environment.of_container(
            claim,
            definition,
            archive.name,
            workspace,
            OWN_FILES,
            path_first,
            docker.path(image) if path_first else "",
            SCRATCH if scratch else None,
            handed,
            ATTACHMENTS if attached else None,
        )
        if attached:
            (workspace.files / ATTACHMENTS.name).mkdir()
        mounts = (
            Mount(str(WORKSPACE), workspace.layer or workspace.tree),
            Mount(str(OWN_FILES), workspace.files),
            *([Mount(str(SCRATCH), scratch)] if scratch else ()),
            *([Mount(str(ATTACHMENTS), attached, read_only=True)] if attached else ()),
            *container.mounts,
        )
        program = Program(
            claim.attempt,
            argv_for(definition, str(OWN_FILES / workspace.script.name)),
            variables,
            begins,
            user,
            shell=definition.script is not None,
            container=replace(container, mounts=mounts),
        )
        return Prepared(program, image)

    # -- both --------------------------------------------------------------------------------------------------------

    def _survey(self, claim: Claim, definition: TaskDefinition, log: LogWriter) -> Survey | None:
        """All that is asked of the repository before the files are written; None where nothing is.

        Says once in a run what is missing from its files. The log of a working copy says of each what becomes of it.
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

    def _scratch(self, claim: Claim, definition: TaskDefinition, have: Callable[..., Path]) -> Path | None:
        """The scratch folder of the task's run or item, as ``have`` makes it; None: it wants none. Raises Elsewhere where it is on another host."""
        if definition.scratch is None:
            return None
        scratch = self.sources.scratch(claim, self.scratches.lack)
        harmless = is_harmless(self.scratches.root)
        try:
            folder = have(scratch, self.executors.installation, is_harmless=harmless)
        except ScratchLost:
            self.sources.scratch_lost(scratch)
            raise
        self.sources.scratch_made(scratch)
        return folder

    def _attached(self, handed: Handed | None, owner: Owner | None = None) -> Path | None:
        """The attachments of the task's run, for containers, or for processes of ``owner`` (None: ours); None: it has none. Raises WorkspaceError where they are gone."""
        if handed is None or handed.attached is None:
            return None
        if handed.attached.is_removed:
            fault = "were removed when the run was deleted"
            raise WorkspaceError("the attachments of its run", fault, "Submit them again, with another id")
        folders = AttachmentFolders(self.scratches.root, self.executors.installation)
        return folders.for_tasks(handed.attached.folder, owner)

    def _changes(
        self, claim: Claim, definition: TaskDefinition, survey: Survey | None, log: LogWriter
    ) -> tuple[Claim, bytes | None]:
        """What differs from the base, where the task wants to know it; the claim has no base where the repository has lost that revision."""
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
            # With an empty base the task does all anew, whatever it has from before.
            changes = recorded.changes(None)
            log.note(
                f"the repository no longer has revision {claim.base}, at which this task last completed: "
                f"ARKQUEUE_BASE is empty, and {CHANGES} has every file"
            )
            return replace(claim, base=None), as_json(changes)
        except TooManyPaths as error:
            remedy = f"Change fewer files at once, or take {CHANGES} and `changes` out of the task"
            raise WorkspaceError(CHANGES, f"it cannot be made: {error}", remedy) from error

    def _payload(
        self, claim: Claim, definition: TaskDefinition, handed: Handed | None
    ) -> tuple[str, Iterator[bytes]] | None:
        """The file of the submission's payload, for a task that gets it."""
        if handed is None or not definition.wants_submission:
            return None
        return environment.payload_file(handed), self.sources.payload(claim)

    def _recorded(self, claim: Claim) -> Recorded:
        return Recorded(self.sources.open(claim.archive, claim.archive.url), claim.recorded)

    def _noted(self, log: LogWriter, workspace: Workspace) -> Workspace:
        for note in workspace.notes:
            log.note(note)
        return workspace


def _check_workdir(definition: TaskDefinition, workspace: Workspace, folder: Path) -> None:
    """Raise ExecutorError where the task's files have no such folder, which an engine would silently make.

    No symlink is followed, also where a task of the same user puts one in a folder's place meanwhile: where one leads is
    looked up with the rights of the task's user, by whoever enters it.
    """
    with contextlib.ExitStack() as opened:
        place = os.open(workspace.layer.lower if workspace.layer else workspace.tree, FOLDER)
        opened.callback(os.close, place)
        for part in folder.parts:
            try:
                if stat.S_ISLNK(os.stat(part, dir_fd=place, follow_symlinks=False).st_mode):
                    return
                place = os.open(part, FOLDER, dir_fd=place)
                opened.callback(os.close, place)
            except PermissionError:
                return
            except (FileNotFoundError, NotADirectoryError):
                which = "" if definition.checkout is Checkout.TREE else " (`checkout` says which they are)"
                fault = f"the task's files have no such folder{which}"
                raise ExecutorError(f"workdir {definition.workdir}", fault, CORRECT) from None


def _is_mounted(folder: Path, container: Container) -> bool:
    """Whether a folder of a container is not its image's, but a mount's, or on the way to one."""
    targets = (OWN_FILES, *(Path(mount.target) for mount in container.mounts), *map(Path, container.resources.tmpfs))
    return any(folder.is_relative_to(target) or target.is_relative_to(folder) for target in targets)


def _inside(workspace: Workspace, path: Path | None) -> str | None:
    """Where a container sees what stands in the workspace."""
    if path is None:
        return None
    for outside, inside in ((workspace.tree, WORKSPACE), (workspace.files, OWN_FILES)):
        if path.is_relative_to(outside):
            return str(inside / path.relative_to(outside))
    raise ValueError(f"{path} is not in the workspace")


def full_name(claim: Claim) -> str:
    """What people call the task."""
    name = name_of(
        claim.archive.name, claim.number, claim.run, claim.name, branch=claim.branch, main=claim.main, item=claim.item
    )
    return str(name)


# --- Where the files come from ---------------------------------------------------------------------------------------


def _source(
    claim: Claim,
    definition: TaskDefinition,
    sources: Sources,
    survey: Survey | None,
    log: LogWriter,
    files: Path | None = None,
) -> Tree | Fill | None:
    """How the workspace gets its files. ``files``: where the task sees those beside the tree, if not where they are."""
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
    """Which runs have been told already what their files lack. Any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: OrderedDict[tuple[object, ...], None] = OrderedDict()

    def is_first(self, claim: Claim) -> bool:
        """Whether nobody has asked for this run before."""
        run = claim.archive.id, claim.branch, claim.number, claim.run
        with self._lock:
            if run in self._runs:
                return False
            self._runs[run] = None
            if len(self._runs) > MOST_RUNS:
                self._runs.popitem(last=False)
            return True


def _renewed(claim: Claim, survey: Survey) -> list[bytes] | None:
    """The files that differ from the task's base; None where nobody can tell. A task that has never completed has none."""
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
