"""The files that a revision changes, its references, and the lines of its workflow files, for people.
The repository is read when somebody asks, and nothing is stored.

Called by the API. The answer never fails because of a repository: a fault is part of the answer,
because the rest of a page does not need the repository.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from arkqueue.archives.patience import answer_within
from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.errors import ArchiveMismatch, ArkqueueError
from arkqueue.model import ArchiveKind, ChangeStatus, Fault, FileChange, Revision, RunId, SourceFile
from arkqueue.repository.limits import TooManyPaths
from arkqueue.repository.opening import location_of, open_location
from arkqueue.repository.reader.entries import named

T = TypeVar("T")
_LINE_END = re.compile("\r\n|\n|\r")

PATIENCE = 5.0
"""The seconds that a repository has to answer: a person waits, and the answer is not the main part
of the page.
"""
MOST_LOOKED_AT = 100_000
"""The most entries of folders that are read for one answer."""
MOST_AT_ONCE = 2
"""The most repositories that are read at once. A repository that hangs counts until its reader
process ends.
"""

AROUND = 2
"""The lines of a workflow file that are shown before and after one with a fault."""
LONGEST_LINE = 400
"""The most characters of such a line that are shown."""

_places = threading.BoundedSemaphore(MOST_AT_ONCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedFile:
    """A file of the list. Bytes of its name that are not UTF-8 are shown with backslashes."""

    status: ChangeStatus
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedFiles:
    """The first changed files of a revision by path, and their number. ``fault``: why they cannot
    be read; empty: they were read.
    """

    files: list[ChangedFile]
    total: int
    fault: str

    @property
    def is_unanswered(self) -> bool:
        """True if the repository has not answered in time. A further question would take as long."""
        return self.fault == _no_answer()


@dataclass(frozen=True, slots=True, kw_only=True)
class NotFollowed:
    """Sentences for people about references that are not followed. ``fault``: why they cannot be
    read; empty: they were read.
    """

    notes: list[str]
    fault: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLine:
    """A line of a workflow file. ``is_fault``: True if the fault is in it."""

    number: int
    text: str
    is_fault: bool


def changed_files(session: Session, configuration: Configuration, run: RunId, limit: int) -> ChangedFiles:
    """The files that differ between the revision of a run and the revision before it."""
    (row,) = session.rows("revision_of_run", run=run)
    recorded = Revision(row.revision, row.number, row.author, row.date, "")

    location = location_of(configuration, row.url, ArchiveKind(row.kind), row.uuid)

    def read() -> Sequence[FileChange]:
        opened = open_location(configuration, location)
        return opened.changes(row.previous, row.revision, most=MOST_LOOKED_AT, recorded=recorded)

    try:
        changes = _in_turn(read, is_ended=not location.needs_mirror)
    except ArchiveMismatch as error:
        return ChangedFiles(files=[], total=0, fault=named(error, row.archive))
    except (ArkqueueError, TooManyPaths) as error:
        return ChangedFiles(files=[], total=0, fault=str(error))
    except TimeoutError:
        return ChangedFiles(files=[], total=0, fault=_no_answer())
    return ChangedFiles(
        files=[ChangedFile(status=change.status, path=_shown(change.path)) for change in changes[:limit]],
        total=len(changes),
        fault="",
    )


def not_followed(session: Session, configuration: Configuration, run: RunId) -> NotFollowed:
    """The references of a run's revision to other repositories that its tasks do not get with its
    files.
    """
    (row,) = session.rows("revision_of_run", run=run)
    location = location_of(configuration, row.url, ArchiveKind(row.kind), row.uuid)

    def read() -> Sequence[str]:
        return open_location(configuration, location).not_followed(row.revision)

    try:
        return NotFollowed(notes=list(_in_turn(read, is_ended=not location.needs_mirror)), fault="")
    except ArchiveMismatch as error:
        return NotFollowed(notes=[], fault=named(error, row.archive))
    except ArkqueueError as error:
        return NotFollowed(notes=[], fault=str(error))
    except TimeoutError:
        return NotFollowed(notes=[], fault=_no_answer())


def lines_of_faults(
    session: Session, configuration: Configuration, run: RunId, faults: Sequence[Fault]
) -> list[list[SourceLine]]:
    """For each fault, the lines of its workflow file around it, at the run's revision. A list is empty
    if the fault concerns a whole file, or if nobody can read the file now.
    """
    (row,) = session.rows("revision_of_run", run=run)
    location = location_of(configuration, row.url, ArchiveKind(row.kind), row.uuid)

    def read() -> Sequence[SourceFile]:
        return open_location(configuration, location).read_workflows(row.revision)

    texts: dict[str, list[str]] = {}
    if any(fault.line for fault in faults):
        with suppress(ArkqueueError, TimeoutError):
            files = _in_turn(read, is_ended=not location.needs_mirror)
            texts = {file.path: _lines(file.text.decode("utf-8", "replace")) for file in files}
    return [_around(fault, texts.get(fault.path, [])) for fault in faults]


def _lines(text: str) -> list[str]:
    """The lines of a text, as the places of faults count them (`workflow.nodes.Lines`)."""
    *lines, last = _LINE_END.split(text)
    return [*lines, last] if last else lines


def _around(fault: Fault, text: Sequence[str]) -> list[SourceLine]:
    if not fault.line:
        return []
    numbers = range(max(fault.line - AROUND, 1), min(fault.line + AROUND, len(text)) + 1)
    return [SourceLine(number=n, text=text[n - 1][:LONGEST_LINE], is_fault=n == fault.line) for n in numbers]


def _no_answer() -> str:
    return f"the repository has not answered for {PATIENCE:.0f} s"


def _in_turn(read: Callable[[], T], *, is_ended: bool) -> T:
    """The answer of a repository. Raises TimeoutError if it does not come in time, or if too many
    other calls wait.
    """
    places = _places
    if not places.acquire(timeout=PATIENCE):
        raise TimeoutError

    def ask() -> T:
        try:
            return read()
        finally:
            places.release()

    return answer_within(PATIENCE, ask, "read a revision", is_ended=is_ended)


def _shown(path: str) -> str:
    return path.encode(errors="surrogateescape").decode(errors="backslashreplace")
