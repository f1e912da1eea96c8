"""Editors: objects whose methods libsvn calls to report a tree, or the difference of two, one node
after another.

`DifferenceEditor` collects the paths that differ, `ExportEditor` writes a tree as it is reported.
Both are called from inside libsvn while the connection is busy, and so never use the connection.
The names of their methods are Subversion's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from subvertpy import delta

from arkqueue.repository.limits import PathBudget
from arkqueue.repository.subversion.translation import Translation, is_translated
from arkqueue.repository.tree_writer import TreeWriter

IN_MEMORY = 2**20
"""The most bytes of a text that is kept in memory until it is translated. Over http, some dozens of
them come at once.
"""

LAST_CHANGED = "svn:entry:committed-rev"
_EXTERNALS = "svn:externals"

P = ParamSpec("P")
R = TypeVar("R")


class _Node(Protocol):
    @property
    def editor(self) -> ExportEditor: ...


N = TypeVar("N", bound=_Node)

Window = tuple[int, int, int, int, list[tuple[int, int, int]], bytes]


class DifferenceEditor:
    """Collects a difference. ``added``: new files. ``modified``: changed files. ``deleted``: files
    and folders that are gone (a replaced one is in both).

    ``touched``: files with the same text and properties that are another node, or were last changed
    by another revision; keywords show that. ``opened``: all files that both trees have under one
    name, and that differ in anything. ``made``: the number of new files and folders.
    ``looked_at``: the number of all reported entries.
    """

    def __init__(self, budget: PathBudget, prefix: str = "") -> None:
        self.added: set[str] = set()
        self.modified: set[str] = set()
        self.touched: set[str] = set()
        self.deleted: list[str] = []
        self.opened: list[str] = []
        self.made = self.looked_at = 0
        self._budget = budget
        self._prefix = f"{prefix}/" if prefix else ""
        self._externals: dict[str, bool] = {}
        """The folders whose ``svn:externals`` changed, each with whether it still has any."""

    def set_target_revision(self, revision: int) -> None:
        """Nothing to do: the revision is known."""

    def open_root(self, _revision: int) -> _DifferenceFolder:
        return _DifferenceFolder(self, "")

    def close(self) -> None:
        """Nothing to do."""

    abort = close

    def place(self, path: str) -> str:
        return self._prefix + path

    def look(self) -> None:
        """Count an entry; raises `TooManyPaths`."""
        self._budget.look()
        self.looked_at += 1

    def note_externals(self, folder: str, value: str | None) -> None:
        self._externals[folder] = bool((value or "").strip())

    def in_place(self) -> list[str]:
        """The files that both trees have, in the order that a report needs: those of a folder
        together.
        """
        return sorted(self.opened, key=lambda path: path.split("/"))

    def with_externals(self, before: Collection[str]) -> set[str]:
        """The folders of the later tree that have ``svn:externals``. ``before``: those of the
        earlier one.
        """
        gone = tuple(path + "/" for path in self.deleted)
        kept = {folder for folder in before if not (folder + "/").startswith(gone)}
        kept -= self._externals.keys()
        return kept | {folder for folder, has_some in self._externals.items() if has_some}


class _DifferenceFolder:
    def __init__(self, editor: DifferenceEditor, path: str) -> None:
        self._editor, self._path = editor, path

    def open_directory(self, path: str, _revision: int) -> _DifferenceFolder:
        self._editor.look()
        return _DifferenceFolder(self._editor, path)

    def add_directory(self, path: str, *_copied_from: Any) -> _DifferenceFolder:
        self._editor.look()
        self._editor.made += 1
        return _DifferenceFolder(self._editor, path)

    def open_file(self, path: str, _revision: int) -> _DifferenceFile:
        self._editor.look()
        self._editor.opened.append(path)
        return _DifferenceFile(self._editor, path)

    def add_file(self, path: str, *_copied_from: Any) -> _DifferenceFile:
        self._editor.look()
        self._editor.made += 1
        self._editor.added.add(self._editor.place(path))
        return _DifferenceFile(self._editor, path, is_new=True)

    def delete_entry(self, path: str, _revision: int) -> None:
        self._editor.look()
        self._editor.deleted.append(path)

    def change_prop(self, name: str, value: str | None) -> None:
        """Other properties of folders do not count."""
        if name == _EXTERNALS:
            self._editor.note_externals(self._path, value)

    def absent_directory(self, path: str) -> None:
        """Nothing to do: a folder that this user may not read is left out."""

    absent_file = absent_directory

    def close(self) -> None:
        """Nothing to do."""


class _DifferenceFile:
    """A reported file counts as changed only if its text or one of its own properties differs.
    Often only its history does.
    """

    def __init__(self, editor: DifferenceEditor, path: str, *, is_new: bool = False) -> None:
        self._editor, self._path, self._is_new = editor, editor.place(path), is_new

    def apply_textdelta(self, _base_checksum: str | None) -> Callable[[Window | None], None]:
        self._note()
        return _ignore

    def change_prop(self, name: str, value: str | None) -> None:  # noqa: ARG002
        if not name.startswith(("svn:entry:", "svn:wc:")):
            self._note()
        elif name == LAST_CHANGED and not self._is_new:
            self._editor.touched.add(self._path)

    def _note(self) -> None:
        if not self._is_new:
            self._editor.modified.add(self._path)

    def close(self, checksum: str | None = None) -> None:
        """Nothing to do."""


def _ignore(_window: Window | None) -> None:
    """Ignore a window: no text was requested."""


class Differences:
    """The differences that one call of an archive needs. Each is read once, although a workspace
    needs one for its list of changes, for its base and for the folders with externals.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[Any, int | None, int], DifferenceEditor] = {}
        """By connection, earlier and later revision."""

    def between(self, session: Any, before: int | None, number: int, budget: PathBudget) -> DifferenceEditor:
        """The difference of two revisions of the session's folder; ``before`` None: of an empty
        folder and a revision. Raises `TooManyPaths`.
        """
        found = self._found.get((session, before, number))
        if found is not None:
            budget.look(found.looked_at)
            return found
        editor = DifferenceEditor(budget)
        reporter = session.do_diff(number, "", session.get_session_url(), editor, True, True, False)
        reporter.set_path("", number if before is None else before, before is None)
        reporter.finish()
        self._found[session, before, number] = editor
        return editor


def remembered(method: Callable[Concatenate[N, P], R]) -> Callable[Concatenate[N, P], R]:
    """A method of a node that is being written. The editor stores its error
    (`ExportEditor.finish`).
    """

    @wraps(method)
    def call(self: N, /, *arguments: P.args, **options: P.kwargs) -> R:
        try:
            return method(self, *arguments, **options)
        except Exception as error:
            self.editor.error = self.editor.error or error
            raise

    return call


class ExportEditor:
    """Writes every folder and file that is reported, as the difference of a whole tree to an empty
    one.
    """

    def __init__(self, writer: TreeWriter, translation: Translation, prefix: str = "") -> None:
        self.writer, self.translation = writer, translation
        self.error: Exception | None = None
        self._prefix = f"{prefix}/" if prefix else ""

    def set_target_revision(self, revision: int) -> None:
        """Nothing to do: the revision is known."""

    def finish(self, reporter: Any) -> None:
        """Let libsvn report the requested tree. Raises the first error of this editor.

        Over http, libsvn goes on calling for a while after an error. Python then finds no inherited
        method, and the error of that would hide the first one.
        """
        try:
            reporter.finish()
        except Exception:
            if self.error is None:
                raise
        if self.error is not None:
            raise self.error

    def open_root(self, _revision: int) -> ExportFolder:
        if self._prefix:
            self.writer.folder(self._prefix.rstrip("/").encode())
        return ExportFolder(self)

    def close(self) -> None:
        """Nothing to do: everything is written."""

    abort = close

    def place(self, path: str) -> bytes:
        return (self._prefix + path).encode(errors="surrogateescape")


class ExportFolder:
    def __init__(self, editor: ExportEditor) -> None:
        self.editor = editor

    @remembered
    def add_directory(self, path: str, *_copied_from: Any) -> ExportFolder:
        place = self.editor.place(path)
        if self.editor.writer.wants(place):
            self.editor.writer.folder(place)
        return self

    @remembered
    def add_file(self, path: str, *_copied_from: Any) -> ExportFile:
        return ExportFile(self.editor, self.editor.place(path))

    def change_prop(self, name: str, value: bytes | None) -> None:
        """Properties of folders are ignored. Externals are among them; they are not followed."""

    def absent_directory(self, path: str) -> None:
        """Nothing to do: a folder that this user may not read is left out."""

    absent_file = absent_directory

    def close(self) -> None:
        """Nothing to do."""


class ExportFile:
    """One file that is being received. Its properties may come before or after its text.

    A short text that has to be translated is kept in memory. Any other text is written as it comes.
    """

    def __init__(self, editor: ExportEditor, place: bytes) -> None:
        self.editor, self._writer, self._place = editor, editor.writer, place
        self._wanted = self._writer.wants(place)
        self._properties: dict[str, bytes] = {}
        self._text: bytearray | None = bytearray() if self._wanted else None

    @remembered
    def apply_textdelta(self, _base_checksum: str | None) -> Callable[[Window | None], None]:
        if self._wanted and not is_translated(self._properties):
            self._write_as_it_comes()
        return self._receive

    @remembered
    def _receive(self, window: Window | None) -> None:
        if window is None or not self._wanted:
            return
        if self._text is None:
            self._writer.append(self._place, _text(window))
            return
        self._text += _text(window)
        if len(self._text) > IN_MEMORY:
            self._write_as_it_comes()

    def _write_as_it_comes(self) -> None:
        self._writer.begin(self._place)
        if self._text:
            self._writer.append(self._place, bytes(self._text))
        self._text = None

    def change_prop(self, name: str, value: str | None) -> None:
        if value is not None:
            self._properties[name] = value.encode()

    @remembered
    def close(self, checksum: str | None = None) -> None:  # noqa: ARG002
        if not self._wanted:
            return
        if self._text is not None:
            self.editor.translation.write(self._writer, self._place, bytes(self._text), self._properties)
            return
        self._writer.end(self._place)
        self.editor.translation.finish(self._writer, self._place, self._properties)


def _text(window: Window) -> bytes:
    """The new data of a window. Against an empty base, it is nearly always one piece."""
    _, _, length, _, operations, new = window
    if len(operations) == 1 and operations[0] == (delta.TXDELTA_NEW, 0, length) and len(new) == length:
        return new
    return bytes(delta.apply_txdelta_window(b"", window))
