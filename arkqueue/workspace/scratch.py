"""Scratch folders: what stays on a host from task to task of a run, or of an item (design 5.37).

In ``<root>/<installation>/<id>``, where the root is ``scratch`` in the home folder, or a folder that several task managers may share::

    folder      what its tasks see as ARKQUEUE_SCRATCH
    contained   a task in a container was given it
    passed      a process of another user than ours was given it
    image       an image in which root's files can be given to us, to be removed

The id is that of a row in the database, which decides how long the folder stays. A stranger wrote the contents of ``folder``: nothing here reads them, follows a link in
them, or runs a program in them.

A container's root may leave a setuid file or the node of a device there. So a folder is given to containers or to processes of another user than ours, never to
both, unless its file system is mounted ``nosuid`` and ``nodev`` (``executor.exposure`` says the same of mounts).
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from arkqueue.errors import HostFault, Withheld, WorkspaceError, host_fault
from arkqueue.model import Scratch
from arkqueue.workspace.bases import OURS, Owner
from arkqueue.workspace.layers import mounts_below
from arkqueue.workspace.ownership import Give, Giving, image_of, note_image
from arkqueue.workspace.removal import FOLDER, NOT_FOLLOWED, attempt_of, remove_folder
from arkqueue.workspace.workspaces import check_way

PATIENCE = 20.0
"""Seconds for which the folders of a store are measured at once."""
_CONTAINED, _PASSED = "contained", "passed"


def make_root(root: Path) -> None:
    """Make the folder of all scratch folders, unless it is there. Others may pass through it, to the folder that is theirs."""
    if not root.exists():  # one that was there may be closed on purpose
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        root.chmod(0o711)


class ScratchFolders:
    """The scratch folders of one store. Any thread may call it."""

    def __init__(self, root: Path, limit: int = 0, give: Give | None = None) -> None:
        """``limit``: bytes from which on no other folder is made; 0: any number. ``give``: as for ``Workspaces``."""
        self.root, self._limit, self._give = root, limit, give
        self.lack: Withheld | None = None
        """Why no other folder is made; None: there is room."""
        self._lock = threading.Lock()

    def for_process(self, scratch: Scratch, installation: str, *, owner: Owner | None, is_harmless: bool) -> Path:
        """The folder, for processes of ``owner`` (None: ours). Raises WorkspaceError, HostFault, Withheld.

        ``is_harmless``: no setuid file and no device works there.
        """
        with _explained(scratch):
            place = self._there(scratch, installation)
            if owner is not None and owner != OURS:
                check_way(place, owner, f"scratch folder {scratch.id}")
                self._mark(place, _PASSED, _CONTAINED, is_harmless=is_harmless)
                _give(place / "folder", owner)
                # Others than those of the user's group do not pass through.
                os.chown(place, -1, owner[1])
                os.chmod(place, 0o710)
            return place / "folder"

    def for_container(self, scratch: Scratch, installation: str, *, image: str, is_harmless: bool) -> Path:
        """The folder, for a container of ``image``, whoever its program is. Raises as ``for_process`` does."""
        with _explained(scratch):
            place = self._there(scratch, installation)
            self._mark(place, _CONTAINED, _PASSED, is_harmless=is_harmless)
            if image_of(place) is None:
                note_image(place, image)
            _open(place / "folder")
            return place / "folder"

    @property
    def are_used(self) -> bool:
        """Whether a folder was ever made here."""
        with os.scandir(self.root) as entries:
            return any(entry.is_dir(follow_symlinks=False) for entry in entries)

    @contextmanager
    def turn(self) -> Iterator[bool]:
        """Whether this task manager may look after the folders, as no other one does so at the moment, where several share them."""
        opened = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | NOT_FOLLOWED, 0o600)
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
        finally:
            os.close(opened)

    def known(self, installation: str) -> set[int]:
        """The ids of the folders that are here."""
        with suppress(FileNotFoundError):
            names = os.listdir(self.root / installation)
            return {int(id) for name in names if (id := attempt_of(name)) is not None}
        return set()

    def remove(self, installation: str, ids: Collection[int]) -> list[str]:
        """Remove folders that no task uses any more; notes say what could not be removed."""
        parent = self.root / installation
        giving, notes = Giving(parent, self._give), []
        for name in os.listdir(parent):
            if attempt_of(name) not in ids:
                continue
            if mounted := mounts_below(parent / name):
                notes.append(f"scratch folder {name} was not removed: {os.fsdecode(mounted[0])} is mounted there")
                continue
            faults, refusal = giving.remove(name)
            if faults:
                what, error = faults[0]
                notes.append(
                    f"{len(faults)} files of scratch folder {name} could not be removed, {what!r} for one: {error.strerror}. "
                    f"{refusal and refusal + '. '}Remove what is left of it in {parent} as root"
                )
        return notes

    def measure(self, installation: str, ids: Collection[int]) -> dict[int, int]:
        """How many bytes folders take, as far as that can be found out within ``PATIENCE`` seconds; ``lack`` follows from it, and from what the attachments beside them take."""
        until = time.monotonic() + PATIENCE
        sizes = {id: _size(self.root / installation / str(id) / "folder", until) for id in sorted(ids)}
        taken = sum(sizes.values()) + _size(self.root / installation / "attachments", until)
        self.lack = None
        if self._limit and taken >= self._limit:
            fault = f"those of this host, and its attachments, take {_shown(taken)}, and scratch_limit is {_shown(self._limit)}: no other is made"
            self.lack = Withheld(
                "scratch folders",
                fault,
                "arkqueue doctor names the largest; retry, delete or purge its run, or raise scratch_limit",
            )
        return sizes

    def _there(self, scratch: Scratch, installation: str) -> Path:
        """Where the folder is; it is made once."""
        parent = self.root / installation
        place = parent / str(scratch.id)
        if scratch.is_removed or (scratch.is_made and not os.path.lexists(place)):
            raise ScratchLost(scratch)
        if not scratch.is_made and not os.path.lexists(place):
            with suppress(FileExistsError):
                os.mkdir(parent, 0o711)
                os.chmod(parent, 0o711)
            # The folder is complete when it becomes visible: another task of the run may make it at the same moment.
            made = parent / f".{scratch.id}.{time.time_ns()}"
            os.mkdir(made, 0o700)
            os.mkdir(made / "folder", 0o700)
            try:
                os.rename(made, place)
            except OSError as error:
                remove_folder(parent, made.name)
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
        return place

    def _mark(self, place: Path, mine: str, other: str, *, is_harmless: bool) -> None:
        """Note the kind of task that gets the folder. Raises Withheld if the other kind of tasks had it."""
        if is_harmless:
            (place / mine).touch()
            return
        with self._lock:
            if not (place / other).exists():
                (place / mine).touch()
                if not (place / other).exists():  # another task manager that shares the folder may have been quicker
                    return
        raise Withheld(
            "scratch",
            f"containers and processes of another user would share the folder {place}: a container may leave a setuid file or a device there, with which a process would become root",
            f"Have no setuid file and no device work there: mount -o bind,nosuid,nodev {self.root} {self.root} (and in /etc/fstab); "
            "or give all tasks that share the folder an image, or none",
        )


def _size(folder: Path, until: float) -> int:
    """The bytes that a folder takes on its disk. Links are not followed; parts that are closed to this process do not count."""
    top = os.path.realpath(os.fsencode(folder))
    size, pending = 0, [top]
    while pending and time.monotonic() < until:
        with suppress(OSError):
            opened = os.open(pending.pop(), FOLDER)
            try:
                path = os.readlink(b"/proc/self/fd/%d" % opened)
                if path != top and not path.startswith(top + b"/"):
                    continue  # a task has replaced a folder on the path by a link
                with os.scandir(opened) as entries:
                    for entry in entries:
                        with suppress(OSError):
                            size += entry.stat(follow_symlinks=False).st_blocks * 512
                            if entry.is_dir(follow_symlinks=False):
                                pending.append(path + b"/" + os.fsencode(entry.name))
            finally:
                os.close(opened)
    return size


def _shown(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"


class ScratchLost(WorkspaceError):
    """A folder that tasks have used is missing."""

    def __init__(self, scratch: Scratch) -> None:
        how = "it was removed" if scratch.is_removed else "it was lost"
        remedy = "Start again at the first task that uses it: `arkqueue explain` prints the command"
        super().__init__("scratch folder", f"{how}, with all that earlier tasks had left in it", remedy)


def _give(folder: Path, owner: Owner) -> None:
    """Change the owner of a folder, but not of its contents."""
    opened = os.open(folder, FOLDER)
    try:
        if (os.fstat(opened).st_uid, os.fstat(opened).st_gid) == OURS:
            os.fchown(opened, *owner)
    finally:
        os.close(opened)


def _open(folder: Path) -> None:
    """Let everybody who can reach a folder write in it. Tasks in containers run as several users, and reach the folder only through their mount."""
    opened = os.open(folder, FOLDER)
    try:
        if os.fstat(opened).st_uid == OURS[0]:
            os.fchmod(opened, 0o777)
    finally:
        os.close(opened)


@contextmanager
def _explained(scratch: Scratch) -> Iterator[None]:
    """Adds the folder to an error of the system."""
    try:
        yield
    except OSError as error:
        kind = HostFault if host_fault(error) else WorkspaceError
        raise kind(f"scratch folder {scratch.id}", f"{error.strerror or error} ({error.filename})") from error
