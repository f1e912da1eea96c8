"""Workspaces: the private folder of one attempt, made before it starts and removed after it ended (design 9).

    <home>/work/<attempt>/tree          the task's working folder: the archive's files, or nothing
    <home>/work/<attempt>/script        its script, if it has one
    <home>/work/<attempt>/inputs.json   ARKQUEUE_INPUTS
    <home>/work/<attempt>/output        ARKQUEUE_OUTPUT, made by the task
    <home>/work/<attempt>/tmp           TMPDIR

The task manager calls it. What stands here after the attempt was written by a stranger: it is read only beneath the
workspace, through no symlink, regular files alone, up to a limit; and nothing here runs a program in it. It knows no
archive: a function given by the caller fills the tree.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pwd
import re
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arkqueue.errors import WorkspaceError
from arkqueue.model import AttemptId

OUTPUT_LIMIT = 2**20
"""Bytes of OUTPUT that are read."""

Fill = Callable[[Path], Path | None]
"""Puts the archive's files into an empty folder; may answer with a folder to put first on the task's PATH."""

_NOT_FOLLOWED = os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | _NOT_FOLLOWED
_NAME = re.compile(r"\.?(\d+)(\.\d+)*")
"""An attempt's folder, or a part of one whose removal was interrupted."""
_LINE = re.compile(r"([A-Za-z_][A-Za-z0-9_.-]*)=(.*)")
_NUL = re.compile(r"(?<!\\)(\\\\)*\\u0000")


@dataclass(frozen=True, slots=True)
class Workspace:
    """The folder of one attempt. ``path_first``: to be put first on the task's PATH."""

    attempt: AttemptId
    folder: Path
    path_first: Path | None = None

    @property
    def tree(self) -> Path:
        return self.folder / "tree"

    @property
    def script(self) -> Path:
        return self.folder / "script"

    @property
    def inputs(self) -> Path:
        return self.folder / "inputs.json"

    @property
    def output(self) -> Path:
        return self.folder / "output"

    @property
    def tmp(self) -> Path:
        return self.folder / "tmp"


@dataclass(frozen=True, slots=True)
class Outputs:
    """What a task wrote to OUTPUT; where ``fault`` says why it cannot be used, ``values`` is empty."""

    values: dict[str, Any]
    fault: str = ""


class Workspaces:
    """The workspaces of one home folder. Any thread may call it."""

    def __init__(self, home: Path) -> None:
        self._work = home / "work"
        with self._explained("work folder"):
            # Others may pass through it, to the folder that is theirs, but not look around.
            self._work.mkdir(mode=0o711, parents=True, exist_ok=True)

    def prepare(
        self,
        attempt: AttemptId,
        *,
        fill: Fill | None = None,
        script: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        user: str | None = None,
    ) -> Workspace:
        """Make the workspace of an attempt; all of it belongs to ``user``, if one is named.

        Raises WorkspaceError, and what ``fill`` raises; nothing is left then.
        """
        workspace = Workspace(attempt, self._work / str(attempt))
        try:
            with self._explained(f"workspace of attempt {attempt}"):
                try:
                    os.mkdir(workspace.folder, 0o700)
                except FileExistsError:  # of an attempt of a database that is no more
                    self.remove(attempt)
                    os.mkdir(workspace.folder, 0o700)
                os.mkdir(workspace.tree, 0o755)
                os.mkdir(workspace.tmp, 0o700)
                path_first = fill(workspace.tree) if fill else None
                if script is not None:
                    _write(workspace.script, script)
                _write(workspace.inputs, json.dumps(inputs or {}))
                if user is not None:
                    _give(workspace.folder, user)
        except BaseException:
            self.remove(attempt)
            raise
        return Workspace(attempt, workspace.folder, path_first)

    def read_outputs(self, attempt: AttemptId, limit: int = OUTPUT_LIMIT) -> Outputs:
        """What the attempt wrote to OUTPUT, once nothing of it runs any more; what is wrong with it is part of the answer."""
        try:
            data = self._read_output(attempt, limit)
        except FileNotFoundError:
            return Outputs({})
        except _Unusable as error:
            return Outputs({}, f"OUTPUT {error}")
        except OSError as error:
            return Outputs({}, f"OUTPUT cannot be read: {error.strerror}")
        return parse_outputs(data)

    def remove(self, attempt: AttemptId) -> str:
        """Remove the workspace; a note says what could not be."""
        return self._remove(str(attempt))

    def sweep(self, live: Collection[AttemptId]) -> list[str]:
        """Remove the workspaces of all other attempts than those that live on this host; notes say what could not be."""
        notes = []
        for name in os.listdir(self._work):
            match = _NAME.fullmatch(name)
            if match and int(match[1]) not in live:
                notes.append(self._remove(name))
        return [note for note in notes if note]

    def _read_output(self, attempt: AttemptId, limit: int) -> bytes:
        with contextlib.ExitStack() as opened:

            def kept(descriptor: int) -> int:
                opened.callback(os.close, descriptor)
                return descriptor

            work = kept(os.open(self._work, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            try:
                folder = kept(os.open(str(attempt), _FOLDER, dir_fd=work))
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENOTDIR):
                    raise _Unusable("is not in the task's workspace: its folder was replaced") from None
                raise
            # Looked at before it is opened, because to open a device can have effects; and again after.
            _check(os.stat("output", dir_fd=folder, follow_symlinks=False), limit)
            output = kept(os.open("output", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | _NOT_FOLLOWED, dir_fd=folder))
            _check(os.fstat(output), limit)
            data = b""
            while chunk := os.read(output, limit + 1 - len(data)):
                data += chunk
            if len(data) > limit:
                raise _Unusable(f"is longer than {limit} bytes")
            return data

    def _remove(self, name: str) -> str:
        work = os.open(self._work, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            faults = _Removal(work, name).run()
        finally:
            os.close(work)
        if not faults:
            return ""
        what, error = faults[0]
        return (
            f"{len(faults)} files of workspace {name} could not be removed, {what!r} for one: {error.strerror}. "
            f"Remove what is left of it in {self._work} as root"
        )

    @contextlib.contextmanager
    def _explained(self, thing: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            remedy = ""
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                free = shutil.disk_usage(next(path for path in (self._work, *self._work.parents) if path.exists())).free
                remedy = f"{free / 2**20:.0f} MiB are free there: make room"
            raise WorkspaceError(
                thing, f"{error.strerror or error} ({error.filename or self._work})", remedy
            ) from error


class _Removal:
    """Removes one folder of the work folder, however deep, following no symlink. Nobody else may be at work in it.

    The folders in it are moved up to the work folder, and when the turn of each comes, those in it likewise. So no path is
    ever long, no recursion deep, and one folder is open at a time.
    """

    def __init__(self, work: int, name: str) -> None:
        self._work = work
        self._pending = [name]
        self._prefix = f".{name.lstrip('.')}.{time.time_ns()}"
        self._moved = 0
        self._faults: list[tuple[str, OSError]] = []

    def run(self) -> list[tuple[str, OSError]]:
        while self._pending:
            self._remove(self._pending.pop())
        return self._faults

    def _remove(self, folder: str) -> None:
        with self._tolerant(folder):
            try:
                descriptor = self._open(folder)
            except NotADirectoryError:  # a task has put something else in its place
                os.unlink(folder, dir_fd=self._work)
                return
            try:
                with os.scandir(descriptor) as entries:
                    found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
                for name, is_folder in found:
                    with self._tolerant(name):
                        if is_folder:
                            self._move_up(name, descriptor)
                        else:
                            os.unlink(name, dir_fd=descriptor)
            finally:
                os.close(descriptor)
            os.rmdir(folder, dir_fd=self._work)

    def _open(self, folder: str) -> int:
        try:
            descriptor = os.open(folder, _FOLDER, dir_fd=self._work)
        except PermissionError:
            os.chmod(folder, 0o700, dir_fd=self._work)  # a folder: it was one when it was found or made
            descriptor = os.open(folder, _FOLDER, dir_fd=self._work)
        with contextlib.suppress(PermissionError):  # another user's; then what is in it stays, or we are root
            os.fchmod(descriptor, 0o700)
        return descriptor

    def _move_up(self, name: str, parent: int) -> None:
        self._moved += 1
        to = f"{self._prefix}.{self._moved}"
        try:
            os.rename(name, to, src_dir_fd=parent, dst_dir_fd=self._work)
        except PermissionError:  # a folder that changes its parent is written to
            try:
                os.chmod(name, 0o700, dir_fd=parent)
                os.rename(name, to, src_dir_fd=parent, dst_dir_fd=self._work)
            except PermissionError:  # another user's: only an empty one can go
                os.rmdir(name, dir_fd=parent)
                return
        self._pending.append(to)

    @contextlib.contextmanager
    def _tolerant(self, name: str) -> Iterator[None]:
        """Note what cannot be removed, and go on."""
        try:
            yield
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno != errno.ENOTEMPTY or not self._faults:  # else it is full of what has been noted
                self._faults.append((name, error))


# --- The files of a workspace ----------------------------------------------------------------------------------------


def _write(path: Path, text: str) -> None:
    with open(path, "x", encoding="utf-8", errors="surrogateescape", newline="") as file:
        file.write(text)


def _give(folder: Path, name: str) -> None:
    """Give a new workspace, in which nothing has run yet, to a user."""
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        raise WorkspaceError(
            f"user {name!r}", "there is no such user on this host", "Create it or name another"
        ) from None
    for parent in folder.parents:
        status = parent.stat()
        if not status.st_mode & stat.S_IXOTH and status.st_uid != user.pw_uid:
            raise WorkspaceError(
                f"workspace {folder}", f"user {name!r} cannot pass through {parent}", f"chmod o+x {parent}"
            )
    pending = [str(folder)]
    while pending:
        path = pending.pop()
        os.lchown(path, user.pw_uid, user.pw_gid)
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                else:
                    os.lchown(entry.path, user.pw_uid, user.pw_gid)


# --- OUTPUT ----------------------------------------------------------------------------------------------------------


class _Unusable(Exception):
    """OUTPUT is not what a task may leave there."""


def _check(status: os.stat_result, limit: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        kinds = {
            stat.S_IFLNK: "a symlink",
            stat.S_IFDIR: "a directory",
            stat.S_IFIFO: "a fifo",
            stat.S_IFSOCK: "a socket",
        }
        raise _Unusable(f"is {kinds.get(stat.S_IFMT(status.st_mode), 'a device')}: write a regular file")
    if status.st_nlink > 1:
        raise _Unusable("is a hard link to another file: write a file of its own")
    if status.st_size > limit:
        raise _Unusable(f"has {status.st_size} bytes, more than the {limit} that are read: pass a path instead")


def parse_outputs(data: bytes) -> Outputs:
    """The values of an OUTPUT file: ``key=value`` lines, or one JSON object. PostgreSQL can store what comes back."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        return Outputs({}, f"OUTPUT line {number}: byte {data[error.start]:#04x} is not UTF-8")
    if text.lstrip().startswith("{"):
        return _parse_json(text)
    values: dict[str, Any] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        match = _LINE.fullmatch(line.removesuffix("\r"))
        if match is None or "\0" in line:
            return Outputs({}, f"OUTPUT line {number}: {line[:80]!r} is not key=value, nor is the file a JSON object")
        values[match[1]] = match[2]
    return Outputs(values)


def _parse_json(text: str) -> Outputs:
    try:
        values = json.loads(text)
        # Refuses NaN, infinities and halves of surrogate pairs, which JSON as others read it does not have.
        again = json.dumps(values, allow_nan=False, ensure_ascii=False)
        again.encode()
    except json.JSONDecodeError as error:
        return Outputs({}, f"OUTPUT line {error.lineno}: it is not JSON: {error.msg}")
    except RecursionError:
        return Outputs({}, "OUTPUT: it is nested too deeply")
    except ValueError as error:
        return Outputs({}, f"OUTPUT: it has a value that JSON has not: {error}")
    if _NUL.search(again):
        return Outputs({}, "OUTPUT: it has a NUL character, which cannot be stored")
    return Outputs(values)
