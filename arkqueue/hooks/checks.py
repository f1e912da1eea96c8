"""Checks the workflow files of a commit or a push before the repository accepts it.

Reads data that are not part of the repository yet: a Subversion transaction, through svnlook, or
the objects of a push in Git's quarantine. Called by ``arkqueue hook check``, for the checking
hooks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from arkqueue.errors import ArchiveUnreachable, NotFound
from arkqueue.model import ArchiveKind, Fault, SourceFile
from arkqueue.repository import TOO_LONG, WORKFLOWS, Archive, is_workflow_file, linked, locate, no_folder, open_archive
from arkqueue.repository.limits import MOST_WORKFLOW_BYTES, MOST_WORKFLOW_FILES
from arkqueue.runtime.output import LongOutput, run_limited
from arkqueue.workflow.nodes import MAX_FAULTS
from arkqueue.workflow.parsing import MOST_VALUES, parse

FAULTY = 65
"""The exit code with which the checker refuses a commit (``EX_DATAERR``). If the checker crashes,
it ends with 1 and refuses nothing.
"""

LONGEST_LOOK = 8
"""The most seconds that svnlook may take to list the changes of a transaction."""
LONGEST_ANSWER = 2**26
"""The most bytes of an answer of svnlook, such as the names of a million changed files."""

_PUSHED = re.compile(r"(?P<old>[0-9a-f]+) (?P<new>[0-9a-f]+) (?P<ref>.+)", re.DOTALL)


class _TooMuch(Exception):
    """A commit or push has more to check than fits into the time for which a committer waits. The
    text of the error has the remedy.

    Such a commit is refused: otherwise committers could bypass the check with large commits.
    """


class _Budget:
    """The limits for the workflow files of a whole commit or push, in all folders and branches: the
    number of files, of bytes and of values. They are the limits for one revision.
    """

    def __init__(self) -> None:
        self._files = self._bytes = self._values = 0

    def take_values(self, values: int) -> None:
        """Count values of workflow files before they are checked; raises `_TooMuch`."""
        self._values += values
        if self._values > MOST_VALUES:
            raise _TooMuch(
                f"more values in workflow files than are checked at once ({MOST_VALUES:,}); "
                "write fewer, name fewer tasks in each 'depends', or divide this into several commits or pushes"
            )

    def take(self, files: int = 0, size: int = 0) -> None:
        """Count workflow files, or their bytes, before they are checked; raises `_TooMuch`."""
        self._files += files
        self._bytes += size
        if self._files > MOST_WORKFLOW_FILES or self._bytes > MOST_WORKFLOW_BYTES:
            raise _TooMuch(
                f"more workflow files than are checked at once ({MOST_WORKFLOW_FILES:,} files, "
                f"{MOST_WORKFLOW_BYTES // 2**20} MiB); divide this into several commits or pushes"
            )


def lines_of(text: str) -> list[str]:
    """The lines of a text, divided only at newlines: names may contain other characters at which
    ``str.splitlines`` divides.
    """
    return [line for line in text.split("\n") if line]


def check_transaction(repository: Path | str, transaction: str) -> list[Fault]:
    """The faults of the workflow files in every folder ``_workflows`` that a Subversion transaction
    changes. The paths in the faults begin at the repository's root.
    """
    look = _Svnlook(str(repository), transaction)
    faults: list[Fault] = []
    budget = _Budget()
    try:
        for folder in look.folders():
            try:
                files = list(look.workflows(folder, budget))
            except ArchiveUnreachable:
                # Ignoring the folder would accept its files.
                faults.append(Fault(folder + WORKFLOWS, 0, 0, "this cannot be read, so nothing of the commit is taken"))
                continue
            faults += [
                replace(fault, path=folder + fault.path) for fault in parse(files, count=budget.take_values).faults
            ]
    except _TooMuch as too_much:
        faults.append(Fault(WORKFLOWS, 0, 0, str(too_much)))
    return faults


def check_push(repository: Path | str, lines: Iterable[str], quarantine: Path | None = None) -> list[Fault]:
    """The faults of the new heads of pushed branches (lines ``old new ref``) whose workflow files
    changed. Earlier commits of the push are not checked: if a later commit fixes a fault, the
    committer need not rewrite the history.
    """
    archive = open_archive(locate(str(repository), ArchiveKind.GIT), quarantine=quarantine)
    faults = []
    branches = []
    for line in lines:
        if not (pushed := _PUSHED.fullmatch(line)):
            # Ignoring the line would accept the branch that it names.
            faults.append(Fault(WORKFLOWS, 0, 0, "a line of this push cannot be read, so nothing of it is taken"))
        elif pushed["ref"].startswith("refs/heads/") and pushed["new"].strip("0"):
            branches.append((pushed["old"], pushed["new"], pushed["ref"].removeprefix("refs/heads/")))
    try:
        for branch, found in _faults_of(archive, branches):
            faults += [replace(fault, path=f"{branch}:{fault.path}") if len(branches) > 1 else fault for fault in found]
    except _TooMuch as too_much:
        faults.append(Fault(WORKFLOWS, 0, 0, str(too_much)))
    return faults


def _faults_of(archive: Archive, branches: Sequence[tuple[str, str, str]]) -> Iterator[tuple[str, tuple[Fault, ...]]]:
    """The faults of each branch (old head, new head, name). If branches have equal workflow files,
    only the first of them reports the faults.
    """
    budget = _Budget()
    judged = set()
    for old, new, branch in branches:
        key = archive.workflows_key(new)
        before = old if old.strip("0") else _main_head(archive)
        if key in judged or (before and archive.workflows_key(before) == key):
            continue
        judged.add(key)
        files = archive.read_workflows(new)
        budget.take(len(files), sum(len(file.text) for file in files))
        yield branch, parse(list(files), count=budget.take_values).faults


def _main_head(archive: Archive) -> str:
    """The commit with which a new branch is compared; "" if HEAD names no branch, or a branch
    without a commit.
    """
    try:
        return next(iter(archive.heads().values()), "")
    except NotFound:
        return ""


def refusal(faults: list[Fault]) -> str:
    """The message to a committer."""
    many = f"more than {MAX_FAULTS:,}" if len(faults) > MAX_FAULTS else len(faults)
    count = "there is a fault" if len(faults) == 1 else f"there are {many} faults"
    return "\n".join(
        [
            f"arkqueue: refused, because {count} in the workflow files:",
            *(f"  {fault}" for fault in faults),
            "Correct this and commit again; `arkqueue check` shows these faults before you commit.",
        ]
    )


@dataclass(frozen=True, slots=True)
class _Svnlook:
    """Reads an uncommitted transaction with ``svnlook``, because no Python binding of libsvn can
    read one.
    """

    repository: str
    transaction: str

    def folders(self) -> list[str]:
        """The parents of the folders ``_workflows`` that change, or in which something changes,
        each with a slash at the end; "" is the root.
        """
        changed = lines_of(self._ask("changed", timeout=LONGEST_LOOK))
        beside = re.compile(rf"....((?:.*/)?){WORKFLOWS}(?:/|$)", re.DOTALL)
        return sorted({match[1] for line in changed if (match := beside.match(line))})

    def workflows(self, folder: str, budget: _Budget) -> Iterator[SourceFile]:
        root = folder + WORKFLOWS
        budget.take(files=1)  # listing the folder takes as long as reading a file
        try:
            listed = lines_of(self._ask("tree", root, options=("--full-paths", "-N")))
        except NotFound:
            return  # the commit deletes it
        if listed == [root]:
            yield (linked if self._is_link(root) else no_folder)(WORKFLOWS)
        names = [path[len(root) + 1 :] for path in listed if path.startswith(f"{root}/")]
        for name in names:
            if "/" in name or not is_workflow_file(name):
                continue
            budget.take(files=1)
            # Each start of svnlook takes milliseconds. Only a file that begins like a link needs a
            # second one.
            text = self._text(f"{root}/{name}")
            budget.take(size=len(text))
            if text.startswith(b"link ") and self._is_link(f"{root}/{name}"):
                yield linked(f"{WORKFLOWS}/{name}")
            else:
                yield SourceFile(f"{WORKFLOWS}/{name}", text)

    def _is_link(self, path: str) -> bool:
        return "svn:special" in [line.strip() for line in lines_of(self._ask("proplist", path))]

    def _text(self, path: str) -> bytes:
        """A file, or `TOO_LONG`."""
        try:
            done = run_limited(self._command("cat", path), longest=len(TOO_LONG) - 1)
        except LongOutput:
            return TOO_LONG
        if done.returncode:
            raise self._failed("cat", done.stderr)
        return done.stdout

    def _command(self, command: str, *paths: str, options: Sequence[str] = ()) -> list[str]:
        # Without a UTF-8 locale, svnlook prints paths that it does not accept. `--`: a path may
        # begin like an option.
        return [
            *("env", "LC_ALL=C.UTF-8", "svnlook", command, "-t", self.transaction),
            *(*options, "--", self.repository, *paths),
        ]

    def _ask(self, command: str, *paths: str, options: Sequence[str] = (), timeout: float = math.inf) -> str:
        try:
            done = run_limited(self._command(command, *paths, options=options), longest=LONGEST_ANSWER, timeout=timeout)
        except (LongOutput, TimeoutError):
            raise _TooMuch("this changes too much to be checked; commit the workflow files on their own") from None
        if done.returncode:
            raise self._failed(command, done.stderr)
        return done.stdout.decode("utf-8", "surrogateescape")

    def _failed(self, command: str, told: bytes) -> NotFound | ArchiveUnreachable:
        fault = told.decode("utf-8", "replace").strip()
        if "E160013" in fault:
            return NotFound(self.transaction, f"svnlook {command} says: {fault}")
        return ArchiveUnreachable(self.repository, f"svnlook {command} says: {fault}", "Check the repository.")
