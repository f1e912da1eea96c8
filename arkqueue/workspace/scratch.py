"""Scratch folders: folders that stay on a host from task to task of a run, or of an item (design
5.37).

In ``<root>/<installation>/<id>``, where the root is ``scratch`` in the home folder, or a folder that
several task managers may share::

    folder      the folder that its tasks see as ARKQUEUE_SCRATCH
    contained   a task in a container has had the folder
    passed      a process of another user than the task manager's has had the folder
    image       an image with which root's files can be given to this user, to be removed

The id is that of a row in the database, which decides how long the folder stays. A stranger wrote
the contents of ``folder``: this module does not read them, follows no link in them, and runs no
program in them.

A container's root may leave a setuid file or a device node in the folder. So a folder is given
either to containers or to processes of another user than the task manager's, never to both, unless
its file system is mounted ``nosuid`` and ``nodev`` (``executor.exposure`` says the same of mounts).
"""

from __future__ import annotations

import fcntl
import os
import shlex
import stat
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
from arkqueue.workspace.removal import FOLDER, NOT_FOLLOWED, attempt_of
from arkqueue.workspace.workspaces import check_way

PATIENCE = 20.0
"""The seconds for which the folders of a store are measured at once."""
_CONTAINED, _PASSED = "contained", "passed"


def make_root(root: Path) -> None:
    """Make the folder of all scratch folders, unless it exists. Other users may pass through it to
    a folder of their own.
    """
    if not root.exists():  # an existing one may be closed on purpose
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        root.chmod(0o711)


class ScratchFolders:
    """The scratch folders of one store. Any thread may call it."""

    def __init__(self, root: Path, limit: int = 0, give: Give | None = None) -> None:
        """``limit``: the bytes from which on no further folder is made; 0: no limit. ``give``: as
        for ``Workspaces``.
        """
        self.root, self._limit, self._give = root, limit, give
        self.lack: Withheld | None = None
        """Why no further folder is made; None: there is room."""
        self._lock = threading.Lock()

    def for_process(self, scratch: Scratch, installation: str, *, owner: Owner | None, is_harmless: bool) -> Path:
        """The folder, for processes of ``owner`` (None: the task manager's user). Raises
        WorkspaceError, HostFault, Withheld.

        ``is_harmless``: no setuid file and no device works in the folder.
        """
        with _explained(scratch):
            place = self._there(scratch, installation)
            if owner is not None and owner != OURS:
                check_way(place, owner, f"scratch folder {scratch.id}")
                self._mark(place, _PASSED, _CONTAINED, is_harmless=is_harmless)
                _give(place / "folder", owner)
                # Only users of the user's group may pass through.
                os.chown(place, -1, owner[1])
                os.chmod(place, 0o710)
            return place / "folder"

    def for_container(self, scratch: Scratch, installation: str, *, image: str, is_harmless: bool) -> Path:
        """The folder, for a container of ``image``, whatever user its program runs as. Raises the
        errors of ``for_process``.
        """
        with _explained(scratch):
            place = self._there(scratch, installation)
            self._mark(place, _CONTAINED, _PASSED, is_harmless=is_harmless)
            if image_of(place) is None:
                note_image(place, image)
            _open(place / "folder")
            return place / "folder"

    @property
    def are_used(self) -> bool:
        """Whether a scratch folder was ever made here."""
        with os.scandir(self.root) as entries:
            return any(entry.is_dir(follow_symlinks=False) for entry in entries)

    @contextmanager
    def turn(self) -> Iterator[bool]:
        """Whether this task manager may measure and remove the folders now: if several task
        managers share them, only one does so at a time.
        """
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
        """Remove folders that no task uses any more. Returns notes about what could not be removed."""
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
        """The bytes that folders take, as far as this can be measured within ``PATIENCE`` seconds.
        Sets ``lack`` from these bytes and those of the attachments beside them.
        """
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
        """The path of the folder's place. The folder is made if it was never made before. Raises
        ScratchLost if it is missing: a task may have removed it, or a person.
        """
        parent = self.root / installation
        place = parent / str(scratch.id)
        if scratch.is_removed:
            raise ScratchLost(scratch)
        if not scratch.is_made:
            # Another task of the run may make the folder at the same moment.
            with suppress(FileExistsError):
                os.mkdir(parent, 0o711)
                os.chmod(parent, 0o711)
            for missing in (place, place / "folder"):
                with suppress(FileExistsError):
                    os.mkdir(missing, 0o700)
        if not _is_folder(place / "folder"):
            raise ScratchLost(scratch)
        return place

    def _mark(self, place: Path, mine: str, other: str, *, is_harmless: bool) -> None:
        """Record the kind of task that gets the folder. Raises Withheld if tasks of the other kind
        have had it.
        """
        if is_harmless:
            (place / mine).touch()
            return
        with self._lock:
            if not (place / other).exists():
                (place / mine).touch()
                # Another task manager that shares the folder may have been faster.
                if not (place / other).exists():
                    return
        here = shlex.quote(str(self.root))
        raise Withheld(
            "scratch",
            f"containers and processes of another user would share the folder {place}: a container may leave a setuid file or a device there, with which a process would become root",
            f"Have no setuid file and no device work there: mount -o bind,nosuid,nodev {here} {here} (and in /etc/fstab); "
            "or give all tasks that share the folder an image, or none",
        )


def _is_folder(path: Path) -> bool:
    """Whether a path leads to a folder, and not through a link at its end. Raises OSError if the
    disk does not answer: then nothing is lost yet.
    """
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _size(folder: Path, until: float) -> int:
    """The bytes that a folder takes on its disk. Links are not followed. Parts that this process
    cannot read do not count.
    """
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
    """Let everybody who can reach a folder write in it. The tasks in containers run as several
    users, and reach the folder only through their mounts.
    """
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
