"""Makes the workspaces of attempts, and removes them. The package's docstring describes them."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import pwd
import shlex
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from arkqueue.errors import ArkqueueError, HostFault, WorkspaceError, host_fault
from arkqueue.model import AttemptId, Layer
from arkqueue.runtime.accounts import account
from arkqueue.workspace import outputs, removal
from arkqueue.workspace.bases import OURS, Bases, Owner, Tree
from arkqueue.workspace.layers import KernelLayers, copy_tree, unmount_below
from arkqueue.workspace.outputs import OUTPUT_LIMIT, Outputs
from arkqueue.workspace.ownership import Give, Giving, image_of, note_image
from arkqueue.workspace.removal import Later, TakesLong, attempt_of
from arkqueue.workspace.renewal import renew_in_layer, renew_in_place

log = logging.getLogger("arkqueue")

POOL = 20 * 2**30
"""The bytes that bases may take."""

WORK = "work"
"""The folder of all workspaces in a home folder."""

BASES = "bases"
"""The folder of the bases from which workspaces are made."""

LayeredBy = Literal["kernel", "engine"]
"""The program that mounts the private layer over a base: this host's kernel for a process, the
container engine for a container.
"""


@dataclass(frozen=True)  # without slots, because the paths are computed once and used often
class Workspace:
    """The folder of one attempt. ``path_first``: a folder that comes first on the task's PATH.

    ``layer``: the folders that the engine mounts over ``tree``, which is empty then. ``notes``:
    remarks for the attempt's log.
    """

    attempt: AttemptId
    folder: Path
    path_first: Path | None = None
    layer: Layer | None = None
    notes: tuple[str, ...] = ()

    @cached_property
    def tree(self) -> Path:
        return self.folder / "tree"

    @cached_property
    def files(self) -> Path:
        """The folder of the attempt's own files beside the tree. The task may see all of them."""
        return self.folder / "files"

    @property
    def script(self) -> Path:
        return self.files / "script"

    @property
    def inputs(self) -> Path:
        return self.files / "inputs.json"

    @property
    def message(self) -> Path:
        return self.files / "message"

    @property
    def changes(self) -> Path:
        return self.files / "changes.json"

    @property
    def output(self) -> Path:
        return self.files / "output"

    @property
    def tmp(self) -> Path:
        return self.files / "tmp"


Fill = Callable[[Workspace], Path | None]
"""Writes files into a workspace's empty tree. May return a folder that comes first on the task's
PATH.
"""


class Workspaces:
    """The workspaces of one home folder. Any thread may call it."""

    def __init__(self, home: Path, pool_limit: int = POOL, give: Give | None = None) -> None:
        """``pool_limit``: the bytes that bases may take. ``give``: changes owners, as only root
        can; None: nothing does.
        """
        self._work = home / WORK
        self._giving = Giving(self._work, give)
        self._later = Later()
        with self._explained("work folder"):
            is_new = not self._work.exists()
            self._work.mkdir(mode=0o700, parents=True, exist_ok=True)
            if is_new:  # an existing one may be closed on purpose
                # Other users may pass through it to a folder of their own, but not list it,
                # whatever the umask is.
                self._work.chmod(0o711)
            self._kernel = KernelLayers(self._work)
            self._bases = Bases(home / BASES, pool_limit, self._bases_in_use(), self._later)

    def prepare(
        self,
        attempt: AttemptId,
        *,
        source: Tree | Fill | None = None,
        script: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        message: str = "",
        changes: Callable[[], bytes] | None = None,
        submission: tuple[str, Iterable[bytes]] | None = None,
        owner: Owner | None = None,
        layered_by: LayeredBy | None = None,
        image: str | None = None,
    ) -> Workspace:
        """Make the workspace of an attempt. All files that the task may write belong to ``owner``
        (None: to this process).

        Without ``layered_by``, the tree is a copy. ``changes``: returns the text of
        ARKQUEUE_CHANGES, for a task that wants it; called when the files are there.
        ``submission``: the file name of a payload, and the payload in parts. ``image``: the image
        of the attempt's container. Raises HostFault, WorkspaceError, and the errors of ``source``;
        nothing is left then.
        """
        workspace = Workspace(attempt, self._work / str(attempt))
        try:
            with self._explained(f"workspace of attempt {attempt}"):
                if os.path.lexists(workspace.folder):  # left by an attempt in an earlier database
                    self.remove(attempt)
                given_to = None
                if layered_by == "engine":
                    is_working_copy = source is not None and not isinstance(source, Tree)
                    owner, given_to = self._giving.whose(owner, is_looked_at=is_working_copy)
                is_passed_through = owner is not None and layered_by != "engine"
                _make(workspace, owner, is_open=not is_passed_through)
                if image is not None:
                    note_image(workspace.folder, image)
                if layered_by == "kernel" and owner is not None:
                    check_way(workspace.folder, owner, f"workspace {workspace.folder}")
                if isinstance(source, Tree):
                    workspace = self._with_tree(workspace, source, owner or OURS, None if given_to else layered_by)
                    if given_to is not None:
                        workspace = replace(workspace, notes=(_GIVEN.format(given_to[0]),))
                elif source is not None:
                    workspace = replace(workspace, path_first=source(workspace))
                    _give(workspace.tree, owner)
                if script is not None:
                    _write(workspace.script, script)
                _write(workspace.inputs, json.dumps(inputs or {}))
                _write(workspace.message, message)
                if changes is not None:
                    _write(workspace.changes, changes())
                if submission is not None:
                    name, parts = submission
                    with (workspace.files / name).open("xb") as file:
                        file.writelines(parts)
                _give(workspace.files, owner)
                if given_to is not None:
                    # OUTPUT must be readable, whatever modes the task has set.
                    os.chmod(workspace.files, 0o755)
                    self._giving.give(workspace.folder, [workspace.tree, workspace.files], given_to)
                if is_passed_through:
                    # This comes last: otherwise another task of the same user could change the
                    # files during the preparation.
                    os.chmod(workspace.folder, 0o711)
        except BaseException:
            self.remove(attempt)
            raise
        return workspace

    def _with_tree(self, workspace: Workspace, tree: Tree, owner: Owner, layered_by: LayeredBy | None) -> Workspace:
        """Mount a layer over a base, or let the engine mount one; copy the base if neither works."""
        base = self._bases.acquire(workspace.attempt, tree, owner)
        notes: tuple[str, ...] = ()
        refusal = self._kernel.refusal() if layered_by == "kernel" else ""
        if layered_by is not None and not refusal:
            _write(workspace.folder / _BASE, base.name)
            layer = _make_layer(workspace, base.tree, owner)
            renew_in_layer(tree.source.renewed(), layer)
            if layered_by == "engine":
                return replace(workspace, layer=layer)
            self._kernel.lay(layer, workspace.tree)
            return workspace
        if refusal:
            notes = (
                f"the files are a copy, which takes longer: no layer can be laid over shared ones here ({refusal})",
            )
        copy_tree(base.tree, workspace.tree)
        renew_in_place(tree.source.renewed(), workspace.tree)
        self._bases.release(workspace.attempt)
        return replace(workspace, notes=notes)

    def found(self, attempt: AttemptId) -> Workspace | None:
        """The workspace of an attempt that an earlier task manager of this home has prepared."""
        workspace = Workspace(attempt, self._work / str(attempt))
        return workspace if workspace.folder.is_dir() else None

    def read_outputs(self, attempt: AttemptId, limit: int = OUTPUT_LIMIT) -> Outputs:
        """The outputs that the attempt wrote to OUTPUT, or what is wrong with them. Called after
        all of its processes have ended.
        """
        try:
            try:
                return outputs.read_outputs(self._work, str(attempt), limit)
            except PermissionError:
                folder = self._work / str(attempt)
                self._giving.give_back(folder, folder / "files")
                return outputs.read_outputs(self._work, str(attempt), limit)
        except PermissionError as error:
            return Outputs({}, f"OUTPUT cannot be read: {error.strerror}")

    def remove(self, attempt: AttemptId) -> str:
        """Remove the workspace. Returns a note about files that could not be removed. A long
        removal continues in the background.
        """
        return self._remove(attempt, str(attempt), time.monotonic() + removal.PATIENCE)

    def sweep(self, live: Collection[AttemptId]) -> list[str]:
        """Remove the workspaces of all attempts that do not live on this host, as `remove` does.
        Returns notes about files that could not be removed.
        """
        notes = []
        until = time.monotonic() + removal.PATIENCE
        for name in os.listdir(self._work):
            attempt = attempt_of(name)
            if attempt is not None and attempt not in live:
                notes.append(self._remove(attempt, name, until))
        return [note for note in notes if note]

    def give_up_base(self) -> bool:
        """Remove the least recently used idle base. Returns whether there was one."""
        return self._bases.give_up_one()

    def of_processes(self) -> list[AttemptId]:
        """The attempts without a container whose workspaces are in the work folder."""
        names = [name for name in os.listdir(self._work) if image_of(self._work / name) is None]
        return [attempt for name in names if (attempt := attempt_of(name)) is not None]

    def _remove_parts(self, attempt: AttemptId, image: str | None) -> None:
        """Remove the part of a workspace that was moved aside."""
        for name in os.listdir(self._work):
            is_part = name.startswith(".") and attempt_of(name) == attempt
            if is_part and (note := self._remove(attempt, name, None, image)):
                log.warning(note)

    def _remove(self, attempt: AttemptId, name: str, until: float | None, image: str | None = None) -> str:
        """Remove a workspace, or a part of one. ``until``: the time (`time.monotonic`) at which the
        rest is left to the background, and its name is free for another workspace; None: never.
        """
        # Read first, because the file that names the image is among the first to be removed.
        image = image or image_of(self._work / name)
        try:
            note = unmount_below(self._work / name)
        except OSError as fault:
            return f"workspace {name} was not removed: {fault.filename} cannot be unmounted ({fault.strerror})"
        if not name.startswith("."):
            self._bases.release(attempt, is_spoiled=bool(note))
        try:
            faults, refusal = self._giving.remove(name, until, image)
        except TakesLong:
            if not name.startswith("."):
                with contextlib.suppress(FileNotFoundError):  # the rest has been moved aside
                    os.rename(self._work / name, self._work / f".{name}.{time.time_ns()}")
            self._later.put(lambda: self._remove_parts(attempt, image))
            return note
        if not faults:
            return note
        what, error = faults[0]
        return (
            f"{len(faults)} files of workspace {name} could not be removed, {what!r} for one: {error.strerror}. "
            f"{refusal and refusal + '. '}Remove what is left of it in {self._work} as root"
        )

    def _bases_in_use(self) -> dict[AttemptId, str]:
        """The bases of the attempts that an earlier task manager has left."""
        found = {}
        for name in os.listdir(self._work):
            if name.isdigit():
                with contextlib.suppress(OSError, ValueError):
                    found[AttemptId(int(name))] = (self._work / name / _BASE).read_text("utf-8")
        return found

    @contextlib.contextmanager
    def _explained(self, thing: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            remedy = ""
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                free = shutil.disk_usage(next(path for path in (self._work, *self._work.parents) if path.exists())).free
                remedy = f"{free / 2**20:.0f} MiB are free there: make room"
            kind = HostFault if host_fault(error) else WorkspaceError
            raise kind(thing, f"{error.strerror or error} ({error.filename or self._work})", remedy) from error
        except ArkqueueError as error:
            if cause := host_fault(error):
                raise HostFault(error.thing, error.fault, error.remedy) from cause
            raise


_BASE = "base"
_GIVEN = "the files are a copy, given to user {} by a container, which takes longer: the task manager is not root"


def owner_named(user: str) -> Owner:
    """The numbers of a user of this host."""
    try:
        found = pwd.getpwnam(user)
    except KeyError:
        raise WorkspaceError(
            f"user {user!r}", "there is no such user on this host", "Create it or name another"
        ) from None
    return found.pw_uid, found.pw_gid


# --- The folders of a workspace -------------------------------------------------------------------


def _make(workspace: Workspace, owner: Owner | None, *, is_open: bool) -> None:
    """Make the folders of a workspace, in a folder that nobody else can enter. The tree itself is
    open to everybody who sees it through a mount, or (without ``is_open``) only to its owner.
    """
    if owner is not None and owner != OURS and os.geteuid() != 0:
        raise WorkspaceError(
            f"workspace {workspace.folder}",
            f"it cannot be given to user {account(owner[0])!r} by a task manager that is not root",
            "Run the task manager as root, or the task as its user",
        )
    os.mkdir(workspace.folder, 0o700)
    os.mkdir(workspace.tree, 0o700)
    os.mkdir(workspace.files, 0o700)
    os.mkdir(workspace.tmp, 0o700)
    if is_open:
        os.chmod(workspace.tree, 0o755)
    if owner is not None:
        os.chown(workspace.tree, *owner)


def _make_layer(workspace: Workspace, lower: Path, owner: Owner) -> Layer:
    """An empty layer. The mounted folder has the owner and mode of ``upper``."""
    top = workspace.folder / "layer"
    layer = Layer(lower, top / "upper", top / "work")
    os.mkdir(top, 0o700)
    os.mkdir(layer.upper, 0o700)
    os.mkdir(layer.work, 0o700)
    os.chmod(layer.upper, stat.S_IMODE(workspace.tree.stat().st_mode))
    if owner != OURS:
        os.chown(layer.upper, *owner)
    return layer


def check_way(folder: Path, owner: Owner, what: str) -> None:
    """Check that a process can reach its folder; messages call the folder ``what``."""
    for parent in folder.parents:
        status = parent.stat()
        if not status.st_mode & stat.S_IXOTH and status.st_uid != owner[0]:
            raise WorkspaceError(
                what,
                f"user {account(owner[0])!r} cannot pass through {parent}",
                f"chmod o+x {shlex.quote(str(parent))}",
            )


def _write(path: Path, text: str | bytes) -> None:
    # Without a file object, which would double the system calls for each attempt.
    data = memoryview(text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        while data:
            data = data[os.write(file, data) :]
    finally:
        os.close(file)


def _give(folder: Path, owner: Owner | None) -> None:
    """Change the owner of a folder in which no task has run yet."""
    if owner is None:
        return
    pending = [str(folder)]
    while pending:
        path = pending.pop()
        os.lchown(path, *owner)
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                else:
                    os.lchown(entry.path, *owner)
