"""The preparation of an attempt: its workspace, and the program that an executor starts there
(design 9).

    in a container    image, by its pull policy → the user of the program → workspace of that user → program
    as processes      workspace of the archive's user → program

If something is missing, that is an error with a remedy, and the program does not begin. ``attempt``
calls this module.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from arkqueue.config import Configuration
from arkqueue.errors import ExecutorError, Withheld
from arkqueue.executor import Container, Mount, Program, argv_for
from arkqueue.executor.exposure import exposure
from arkqueue.logs.write import LogWriter
from arkqueue.model import Checkout, Claim, Registration, TaskDefinition
from arkqueue.names import name_of
from arkqueue.repository import locate
from arkqueue.repository.location import local_path
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
from arkqueue.task_manager.task_files import TaskFiles, full_name
from arkqueue.workspace import Owner, Workspace, owner_named
from arkqueue.workspace.layers import show_read_only
from arkqueue.workspace.removal import FOLDER

CORRECT = "Correct it, or leave it out and let the task make the folder and go there"
"""The remedy for a `workdir` that does not exist."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The program to start. ``image``: the digest of its container's image; None: it runs as processes."""

    program: Program
    image: str | None = None


@dataclass(frozen=True, slots=True)
class Preparation:
    """Prepares attempts; any thread may call it."""

    configuration: Configuration
    executors: Executors
    files: TaskFiles

    def prepare(
        self,
        claim: Claim,
        definition: TaskDefinition,
        inputs: dict[str, object],
        log: LogWriter,
        is_wanted: Callable[[], bool],
    ) -> Prepared:
        """Prepare an attempt. Raises the error that prevents it, and soon after a stop request."""
        container = self._container(claim, definition)
        if container is None:
            return Prepared(self._process(claim, definition, inputs, log))
        return self._in_container(claim, definition, inputs, container, log, is_wanted)

    # As processes

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
        have = partial(self.files.scratches.for_process, owner=owner)
        scratch = self.files.scratch(claim, definition, self.executors.installation, have)
        handed = self.files.sources.submission(claim)
        attached = self.files.attached(handed, self.executors.installation, owner)
        claim, workspace = self.files.workspace(
            claim, definition, inputs, handed, log, owner=owner, layered_by="kernel"
        )
        _check_workdir(definition, workspace, Path(definition.workdir or ""))
        if attached:
            shown = workspace.files / ATTACHMENTS.name
            shown.mkdir()
            # The kernel mounts only for root. Another user
            # cannot write to the files by their modes.
            attached = shown if show_read_only(attached, shown) else attached
        return Program(
            claim.attempt,
            argv_for(definition, str(workspace.script)),
            environment.of_process(claim, definition, archive.name, workspace, user, scratch, handed, attached),
            working_folder(definition, workspace.tree),
            user,
            shell=definition.script is not None,
        )

    # In a container

    def _in_container(
        self,
        claim: Claim,
        definition: TaskDefinition,
        inputs: dict[str, object],
        container: Container,
        log: LogWriter,
        is_wanted: Callable[[], bool],
    ) -> Prepared:
        docker, archive = self.executors.docker, claim.archive
        docker.check()
        self.executors.prove()
        self._note_unreachable_copy(archive, definition, log)
        if claim.attempt_number > 1:
            docker.remove_earlier(claim.task, claim.attempt)
        image = docker.image(container, is_wanted, log.note)
        container, user, owner = self._account(container, definition, archive, image)
        if definition.scratch is not None:
            self.executors.prove(self.files.scratches.root)
        have = partial(self.files.scratches.for_container, image=image)
        scratch = self.files.scratch(claim, definition, self.executors.installation, have)
        handed = self.files.sources.submission(claim)
        attached = self.files.attached(handed, self.executors.installation)
        if attached:
            self.executors.prove(self.files.scratches.root)
        claim, workspace = self.files.workspace(
            claim, definition, inputs, handed, log, owner=owner, layered_by="engine", seen_at=OWN_FILES, image=image
        )
        begins = self._checked_workdir(container, definition, workspace, image, has_scratch=scratch is not None)
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

    def _container(self, claim: Claim, definition: TaskDefinition) -> Container | None:
        """The task's container settings; None: the task runs as processes."""
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

    def _note_unreachable_copy(self, archive: Registration, definition: TaskDefinition, log: LogWriter) -> None:
        """Note in the log if the task cannot commit, because its container does not have the
        repository's folder.
        """
        url = archive.settings.task_url or archive.url
        if definition.checkout is Checkout.WORKING_COPY and local_path(locate(url, archive.kind)) is not None:
            log.note(
                f"its working copy is of {url}, a path of this host that no container has: for it to commit, "
                f"give its URL: arkqueue archive set {archive.name} --task-url URL"
            )

    def _account(
        self, container: Container, definition: TaskDefinition, archive: Registration, image: str
    ) -> tuple[Container, str | None, Owner]:
        """The container with the groups of its user, that user for the engine, and the owner of the
        files. Raises `Forbidden` if the archive does not allow that user.
        """
        account = self.executors.docker.account(image, definition.user, container.image)
        user, owner = definition.user, (account.uid, account.gid)
        if archive.settings.users:
            check_account(user, *owner, account.groups, container.image, archive.settings, archive.name)
            # By number: another program could find another user in the image's files than the one
            # that was checked.
            user, container = f"{account.uid}:{account.gid}", replace(container, groups=account.groups)
        return container, user, owner

    def _checked_workdir(
        self, container: Container, definition: TaskDefinition, workspace: Workspace, image: str, *, has_scratch: bool
    ) -> Path:
        """The folder in which the task begins in its container. Raises ExecutorError if there is no
        such folder.
        """
        begins = working_folder(definition, WORKSPACE)
        if begins.is_relative_to(WORKSPACE):
            _check_workdir(definition, workspace, begins.relative_to(WORKSPACE))
        elif (
            not (has_scratch and begins.is_relative_to(SCRATCH))
            and not _is_mounted(begins, container)
            and not self.executors.docker.has_folder(image, str(begins))
        ):
            raise ExecutorError(f"workdir {definition.workdir}", f"image {container.image} has no such folder", CORRECT)
        return begins


def _check_workdir(definition: TaskDefinition, workspace: Workspace, folder: Path) -> None:
    """Raise ExecutorError if the task's files have no such folder, which an engine would silently
    make.

    Follows no symlink, not even one that a task of the same user puts in place of a folder
    meanwhile. The check ends at a symlink: the program that enters the folder follows it, with the
    rights of the task's user.
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
    """True if a folder of a container belongs to a mount and not to the image, or leads to a mount."""
    targets = (OWN_FILES, *(Path(mount.target) for mount in container.mounts), *map(Path, container.resources.tmpfs))
    return any(folder.is_relative_to(target) or target.is_relative_to(folder) for target in targets)


def _inside(workspace: Workspace, path: Path | None) -> str | None:
    """The path in a container of a file or folder of the workspace."""
    if path is None:
        return None
    for outside, inside in ((workspace.tree, WORKSPACE), (workspace.files, OWN_FILES)):
        if path.is_relative_to(outside):
            return str(inside / path.relative_to(outside))
    raise ValueError(f"{path} is not in the workspace")
