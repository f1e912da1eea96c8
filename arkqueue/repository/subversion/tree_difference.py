"""The editor that brings a plain tree on disk from one revision to another, from the difference
that libsvn reports.

There are two requests. The first one (`editors.Differences`) asks which files changed in place: in
their text or properties, or only in the revision that changed them last, which keywords and
modification times show. The second request tells libsvn that these files are missing, so that it sends each of them
whole and with all properties, like new ones. A difference of texts would not help: the file on disk
is translated, and a difference has only the properties that changed.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from arkqueue.errors import WorkspaceError
from arkqueue.repository.subversion.editors import ExportEditor, ExportFile, ExportFolder, remembered
from arkqueue.repository.subversion.translation import Translation
from arkqueue.repository.tree_update import TreeUpdate


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
