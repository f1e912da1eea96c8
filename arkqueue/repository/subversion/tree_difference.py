"""The editors that bring a plain tree on disk from one revision to another, as libsvn tells the difference.

It takes two requests. The first one asks which files are changed in their places: text, properties, or only the revision that
changed them last, which keywords and modification times show. The second one tells libsvn that these files are missing, so
that it sends each of them whole and with all its properties, like new ones. A difference of texts would be of no use: the
file on disk is translated, and a difference names only those properties that changed.
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
    """``files``: those that both revisions have in the same place, one changed from the other, or from the same one. ``added``: how many files and folders come."""

    def __init__(self, budget: PathBudget) -> None:
        """``budget``: what may come."""
        self.files: list[str] = []
        self.added = 0
        self._budget = budget

    def add(self) -> None:
        self._budget.look()
        self.added += 1

    def set_target_revision(self, revision: int) -> None:
        """Known already."""

    def open_root(self, _revision: int) -> _LookedAtFolder:
        return _LookedAtFolder(self)

    def close(self) -> None:
        """Nothing is held."""

    abort = close

    def in_order(self) -> list[str]:
        """As a report wants them: what a folder holds, together."""
        return sorted(self.files, key=lambda path: path.split("/"))


class _LookedAt:
    def change_prop(self, name: str, value: str | None) -> None:
        """The second request tells it."""

    def close(self, checksum: str | None = None) -> None:
        """Nothing is held."""


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
        """The second request tells it."""

    def absent_directory(self, path: str) -> None:
        """Not readable for us: not there."""

    absent_file = absent_directory


def _ignore(_window: Window | None) -> None:
    """No text is asked for."""


class UpdateEditor(ExportEditor):
    """``replaced``: the files that come as new ones, and are there already."""

    def __init__(self, update: TreeUpdate, translation: Translation, replaced: Collection[str]) -> None:
        super().__init__(update, translation)
        self.update, self.replaced = update, frozenset(replaced)

    def open_root(self, _revision: int) -> _UpdateFolder:
        return _UpdateFolder(self)

    # subvertpy looks it up while an error is under way: Python then finds only what is of the class itself, and else the error would be lost.
    abort = ExportEditor.abort


class _UpdateFolder(ExportFolder):
    """A folder that is there already, or a new one."""

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
        """Each file that is changed in its place is reported as missing; a server that sends a difference all the same is not believed."""
        raise WorkspaceError(path, "was sent as a delta instead of the whole file", "Export it anew.")

    @remembered
    def delete_entry(self, path: str, _revision: int) -> None:
        self._remove(path)

    def _remove(self, path: str) -> None:
        place = self.editor.place(path)
        if self.editor.update.wants(place):
            self.editor.update.remove(place)
