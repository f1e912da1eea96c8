"""The editor that brings a plain tree on disk from one revision to another, as libsvn tells the difference.

New files and folders come whole, as in an export. Of a changed file the difference to its old text comes, which is that
of the file on disk only where its checksum is right. What a file *is* hangs on properties that the difference names only
where they changed, and that the disk does not always show (a file that only wants to be a symlink): such files are
collected in ``again``, and read whole by the caller afterwards, as the connection is busy while libsvn tells.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import BinaryIO

from subvertpy import delta

from arkqueue.errors import WorkspaceError
from arkqueue.repository.subversion.editors import ExportEditor, ExportFolder, Window
from arkqueue.repository.tree_update import TreeUpdate

_KINDS = {"svn:special", "svn:executable"}
_LINK = b"link "


class UpdateEditor(ExportEditor):
    """``again``: the changed files that are still to be made anew."""

    def __init__(self, update: TreeUpdate) -> None:
        super().__init__(update)
        self.update = update
        self.again: dict[str, None] = {}

    def open_root(self, _revision: int) -> _UpdateFolder:
        return _UpdateFolder(self)

    # subvertpy looks it up while an error is under way: Python then finds only what is of the class itself, and else the error would be lost.
    abort = ExportEditor.abort


class _UpdateFolder(ExportFolder):
    """A folder that is there already, or a new one."""

    def __init__(self, editor: UpdateEditor) -> None:
        super().__init__(editor)
        self._update_editor = editor

    def open_directory(self, _path: str, _revision: int) -> _UpdateFolder:
        return self

    def open_file(self, path: str, _revision: int) -> _ChangedFile:
        return _ChangedFile(self._update_editor, path)

    def delete_entry(self, path: str, _revision: int) -> None:
        place = self._update_editor.place(path)
        if self._update_editor.update.wants(place):
            self._update_editor.update.remove(place)


class _ChangedFile:
    def __init__(self, editor: UpdateEditor, path: str) -> None:
        self._editor, self._path = editor, path
        self._update, self._place = editor.update, editor.place(path)
        self._wanted = editor.update.wants(self._place)
        self._is_executable = False

    def change_prop(self, name: str, value: bytes | None) -> None:  # noqa: ARG002
        if name in _KINDS:
            self._read_again()

    def apply_textdelta(self, base_checksum: str | None) -> Callable[[Window | None], None]:
        old = self._update.old(self._place) if self._wanted else None
        if old is None:  # a symlink
            self._read_again()
            return lambda _window: None
        if base_checksum is not None and _checksum(old) != base_checksum:
            shown = self._place.decode(errors="backslashreplace")
            raise WorkspaceError(shown, "is not as it was exported", "Leave the bases alone.")
        self._is_executable = bool(os.fstat(old.fileno()).st_mode & 0o100)
        self._update.remove(self._place)
        self._update.begin(self._place)
        begun = b""

        def receive(window: Window | None) -> None:
            nonlocal begun
            if window is None:
                if begun == _LINK:
                    self._read_again()
                old.close()
                return
            offset, length, target_length, source_operations, operations, new = window
            old.seek(offset)
            text = delta.txdelta_apply_ops(source_operations, operations, new, old.read(length))
            if len(text) != target_length:
                raise WorkspaceError(self._path, "came with a wrong difference")
            begun = (begun + bytes(text[: len(_LINK)]))[: len(_LINK)]
            self._update.append(self._place, bytes(text))

        return receive

    def close(self, checksum: str | None = None) -> None:  # noqa: ARG002
        self._update.end(self._place)
        if self._is_executable and self._path not in self._editor.again:
            self._update.make_executable(self._place)

    def _read_again(self) -> None:
        if self._wanted:
            self._editor.again[self._path] = None


def _checksum(file: BinaryIO) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    while data := file.read(2**18):
        digest.update(data)
    return digest.hexdigest()
