"""The editors that bring a plain tree on disk from one revision to another, from the difference
that libsvn reports.

There are two requests. The first one asks which files changed in place: in their text or
properties, or only in the revision that changed them last, which keywords and modification times
show. The second request tells libsvn that these files are missing, so that it sends each of them
whole and with all properties, like new ones. A difference of texts would not help: the file on disk
is translated, and a difference has only the properties that changed.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from arkqueue.errors import WorkspaceError
from arkqueue.repository.limits import PathBudget
from arkqueue.repository.subversion.editors import ExportEditor, ExportFile, ExportFolder, Window, remembered
from arkqueue.repository.subversion.translation import Translation
from arkqueue.repository.tree_update import TreeUpdate


class ChangedInPlace:
    """Collects the files that changed in place: ``files``, which both revisions have under one
    name. ``added``: the number of new files and folders.
    """

    def __init__(self, budget: PathBudget) -> None:
        """``budget``: the limit of new files and folders."""
        self.files: list[str] = []
        self.added = 0
        self._budget = budget

    def add(self) -> None:
        self._budget.look()
        self.added += 1

    def set_target_revision(self, revision: int) -> None:
        """Nothing to do: the revision is known."""

    def open_root(self, _revision: int) -> _LookedAtFolder:
        return _LookedAtFolder(self)

    def close(self) -> None:
        """Nothing to do."""

    abort = close

    def in_order(self) -> list[str]:
        """The files in the order that a report needs: those of a folder together."""
        return sorted(self.files, key=lambda path: path.split("/"))


class _LookedAt:
    def change_prop(self, name: str, value: str | None) -> None:
        """Nothing to do: the second request reports it."""

    def close(self, checksum: str | None = None) -> None:
        """Nothing to do."""


class _LookedAtFile(_LookedAt):
    def apply_textdelta(self, _base_checksum: str | None) -> Any:
        return _ignore


class _LookedAtFolder(_LookedAt):
    def __init__(self, editor: ChangedInPlace) -> None:
        self._editor = editor

    def open_directory(self, _path: str, _revision: int) -> _LookedAtFolder:
        return self

    def add_directory(self, _path: str, *_copied_from: Any) -> _LookedAtFolder:
        self._editor.add()
        return self

    def open_file(self, path: str, _revision: int) -> _LookedAtFile:
        self._editor.files.append(path)
        return _LookedAtFile()

    def add_file(self, _path: str, *_copied_from: Any) -> _LookedAtFile:
        self._editor.add()
        return _LookedAtFile()

    def delete_entry(self, path: str, _revision: int) -> None:
        """Nothing to do: the second request reports it."""

    def absent_directory(self, path: str) -> None:
        """Nothing to do: a folder that this user may not read is left out."""

    absent_file = absent_directory


def _ignore(_window: Window | None) -> None:
    """Ignore a window: no text was requested."""


class UpdateEditor(ExportEditor):
    """Writes the difference. ``replaced``: the existing files that are sent as new ones."""

    def __init__(self, update: TreeUpdate, translation: Translation, replaced: Collection[str]) -> None:
        super().__init__(update, translation)
        self.update, self.replaced = update, frozenset(replaced)

    def open_root(self, _revision: int) -> _UpdateFolder:
        return _UpdateFolder(self)

    # subvertpy looks the method up while an error is raised. Python then finds only attributes of
    # the class itself, and the error would be lost.
    abort = ExportEditor.abort


class _UpdateFolder(ExportFolder):
    """A folder that exists, or a new one."""

    editor: UpdateEditor

    def open_directory(self, _path: str, _revision: int) -> _UpdateFolder:
        return self

    @remembered
    def add_file(self, path: str, *copied_from: Any) -> ExportFile:
        if path in self.editor.replaced:
            self._remove(path)
        return super().add_file(path, *copied_from)

    @remembered
    def open_file(self, path: str, _revision: int) -> ExportFile:
        """Files that changed in place are reported as missing, so a server must not send a
        difference.
        """
        raise WorkspaceError(path, "was sent as a delta instead of the whole file", "Export it anew.")

    @remembered
    def delete_entry(self, path: str, _revision: int) -> None:
        self._remove(path)

    def _remove(self, path: str) -> None:
        place = self.editor.place(path)
        if self.editor.update.wants(place):
            self.editor.update.remove(place)
