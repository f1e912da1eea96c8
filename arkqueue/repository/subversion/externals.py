"""Finds the folders with ``svn:externals``, from the properties that libsvn reports with the
difference of two trees.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from arkqueue.repository.limits import PathBudget

_EXTERNALS = "svn:externals"


class ExternalsEditor:
    """``folders``: at first those of the earlier tree, at the end those of the later one."""

    def __init__(self, folders: Collection[str], budget: PathBudget) -> None:
        self.folders, self._budget = set(folders), budget

    def set_target_revision(self, revision: int) -> None:
        """Nothing to do: the revision is known."""

    def open_root(self, _revision: int) -> _Folder:
        return _Folder(self, "")

    def close(self) -> None:
        """Nothing to do."""

    abort = close

    def look(self) -> None:
        """Count a node; raises `TooManyPaths`."""
        self._budget.look()

    def drop(self, path: str) -> None:
        self.folders = {folder for folder in self.folders if not (folder + "/").startswith(path + "/")}


class _File:
    def apply_textdelta(self, _base_checksum: str | None) -> Any:
        return lambda _window: None

    def change_prop(self, name: str, value: str | None) -> None:
        """Nothing to do: a file has no externals."""

    def close(self, checksum: str | None = None) -> None:
        """Nothing to do."""


class _Folder:
    def __init__(self, editor: ExternalsEditor, path: str) -> None:
        self._editor, self._path = editor, path

    def open_directory(self, path: str, *_: Any) -> _Folder:
        self._editor.look()
        return _Folder(self._editor, path)

    add_directory = open_directory

    def open_file(self, _path: str, *_: Any) -> _File:
        self._editor.look()
        return _File()

    add_file = open_file

    def delete_entry(self, path: str, _revision: int) -> None:
        self._editor.look()
        self._editor.drop(path)

    def change_prop(self, name: str, value: str | None) -> None:
        if name == _EXTERNALS:
            (self._editor.folders.discard if not (value or "").strip() else self._editor.folders.add)(self._path)

    def absent_directory(self, path: str) -> None:
        """Nothing to do: a folder that this user may not read is left out."""

    absent_file = absent_directory

    def close(self) -> None:
        """Nothing to do."""
