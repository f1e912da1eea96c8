"""What the checking hooks ask: has what is about to be committed faults in its workflow files?

Reads what no reader sees yet: a Subversion transaction, through svnlook, and the objects of a push in Git's quarantine. Called by ``arkqueue hook check``.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from arkqueue.errors import ArchiveUnreachable, NotFound
from arkqueue.model import ArchiveKind, Fault, SourceFile
from arkqueue.repository import TOO_LONG, WORKFLOWS, Archive, is_workflow_file, linked, locate, no_folder, open_archive
from arkqueue.workflow import parse

FAULTY = 65
"""The exit code by which the checker refuses (``EX_DATAERR``); a checker that crashes ends with 1 and refuses nothing."""


_PUSHED = re.compile(r"(?P<old>[0-9a-f]+) (?P<new>[0-9a-f]+) (?P<ref>.+)", re.DOTALL)


def lines_of(text: str) -> list[str]:
    """The lines of a text that end with a newline, and with nothing else: names hold what ``str.splitlines`` takes for an end of line."""
    return [line for line in text.split("\n") if line]


def check_transaction(repository: Path | str, transaction: str) -> list[Fault]:
    """The faults of the workflow files that a Subversion transaction changes, in every folder with a ``_workflows``; paths are the repository's."""
    look = _Svnlook(str(repository), transaction)
    folders = {match[1] or "" for path in look.changed() if (match := re.match(rf"((?:.*/)?){WORKFLOWS}(?:/|$)", path))}
    return [
        replace(fault, path=folder + fault.path)
        for folder in sorted(folders)
        for fault in parse(list(look.workflows(folder))).faults
    ]


def check_push(repository: Path | str, lines: Iterable[str], quarantine: Path | None = None) -> list[Fault]:
    """The faults of the new heads of pushed branches (lines ``old new ref``) whose workflow files changed. Commits between are not looked
    at: a fault that a later commit of the same push mends needs no new history."""
    archive = open_archive(locate(str(repository), ArchiveKind.GIT), quarantine=quarantine)
    faults = []
    branches = []
    for line in lines:
        if not (pushed := _PUSHED.fullmatch(line)):
            # To pass over it would let through what it names.
            faults.append(Fault(WORKFLOWS, 0, 0, "a line of this push cannot be read, so nothing of it is taken"))
        elif pushed["ref"].startswith("refs/heads/") and pushed["new"].strip("0"):
            branches.append((pushed["old"], pushed["new"], pushed["ref"].removeprefix("refs/heads/")))
    for old, new, branch in branches:
        before = old if old.strip("0") else _main_head(archive)
        if before and archive.workflows_key(before) == archive.workflows_key(new):
            continue
        for fault in archive.workflow(new).faults:
            faults.append(replace(fault, path=f"{branch}:{fault.path}") if len(branches) > 1 else fault)
    return faults


def _main_head(archive: Archive) -> str:
    """What a new branch is compared with; "" where HEAD names no branch, or one without a commit."""
    try:
        return next(iter(archive.heads().values()), "")
    except NotFound:
        return ""


def refusal(faults: list[Fault]) -> str:
    """What a committer is told."""
    count = "there is a fault" if len(faults) == 1 else f"there are {len(faults)} faults"
    return "\n".join(
        [
            f"arkqueue: refused, because {count} in the workflow files:",
            *(f"  {fault}" for fault in faults),
            "Correct this and commit again; `arkqueue check` tells the same beforehand.",
        ]
    )


@dataclass(frozen=True, slots=True)
class _Svnlook:
    """A transaction under way, seen through ``svnlook``: no binding of libsvn for Python shows one."""

    repository: str
    transaction: str

    def changed(self) -> list[str]:
        return [line[4:] for line in lines_of(self._ask("changed"))]

    def workflows(self, folder: str) -> Iterator[SourceFile]:
        root = folder + WORKFLOWS
        try:
            listed = lines_of(self._ask("tree", "--full-paths", "-N", root))
        except NotFound:
            return  # the commit deletes it
        if listed == [root]:
            yield (linked if self._is_link(root) else no_folder)(WORKFLOWS)
        for path in listed:
            name = path[len(root) + 1 :]
            if not path.startswith(root + "/") or "/" in name or not is_workflow_file(name):
                continue
            if self._is_link(path):
                yield linked(f"{WORKFLOWS}/{name}")
                continue
            too_long = int(self._ask("filesize", path)) >= len(TOO_LONG)
            text = TOO_LONG if too_long else self._ask_bytes("cat", path)
            yield SourceFile(f"{WORKFLOWS}/{name}", text)

    def _is_link(self, path: str) -> bool:
        return "svn:special" in [line.strip() for line in lines_of(self._ask("proplist", path))]

    def _ask(self, command: str, *arguments: str) -> str:
        return self._ask_bytes(command, *arguments).decode("utf-8", "surrogateescape")

    def _ask_bytes(self, command: str, *arguments: str) -> bytes:
        # Without a UTF-8 locale, svnlook writes other paths than it reads.
        done = subprocess.run(
            ["env", "LC_ALL=C.UTF-8", "svnlook", command, "-t", self.transaction, self.repository, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            fault = done.stderr.decode("utf-8", "replace").strip()
            if "E160013" in fault:
                raise NotFound(self.transaction, f"svnlook {command} says: {fault}")
            raise ArchiveUnreachable(self.repository, f"svnlook {command} says: {fault}", "Check the repository.")
        return done.stdout
