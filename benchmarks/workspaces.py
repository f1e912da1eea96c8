"""The time until a workspace is ready, next to svn and git themselves.

First, one export. Then, in each round: a commit that changes one file, the workspace of that
revision from an idle base, another workspace of the same revision, and the peers. The files cannot
be compressed, and those of Subversion have keywords. Nothing is removed between two exports,
because ext4 creates files slowly for a while after a large removal.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from arkqueue.model import AttemptId, TreeChange
from arkqueue.repository import Archive, Survey, locate, open_archive
from arkqueue.workspace import Tree, Workspaces
from benchmarks.bench import Bench, Figure, at_most, interleaved, ratio_at_most, seconds
from tests.repositories import run

IN_A_FOLDER = 100
CHANGED = "part-0/folder-0/file-0.bin"
KEYWORDS = b"K 12\nsvn:keywords\nV 10\nId HeadURL\nPROPS-END\n"
"""The properties of each Subversion file."""


def subversion(bench: Bench) -> Iterator[Figure]:
    return measured(bench, Subversion)


def git(bench: Bench) -> Iterator[Figure]:
    return measured(bench, Git)


def measured(bench: Bench, kind: type[Subversion] | type[Git]) -> Iterator[Figure]:
    files, megabytes = bench.size("workspaces.files", 20_000, 500), bench.size("workspaces.megabytes", 1000, 10)
    exports = bench.size("workspaces.exports", 3, 2)
    row, what = kind.row, f"{files} files, {megabytes} MB"
    folder = bench.a_folder(row)
    bench.say("making the archive")
    repository = kind(folder, files, megabytes * 10**6 // files)
    archive = open_archive(locate(str(repository.path)))
    attempts, numbers = map(AttemptId, itertools.count(1)), itertools.count(1)
    homes: list[Workspaces] = []

    def ready(revision: str) -> tuple[float, AttemptId]:
        attempt = next(attempts)

        def prepare() -> None:
            source = Tree(1, "", revision, Files(archive, revision))
            homes[-1].prepare(attempt, source=source, script="true\n", layered_by="kernel")

        took = milliseconds(prepare)
        return took, attempt

    def first_of_ours() -> float:
        homes.append(Workspaces(folder / f"home-{len(homes)}", pool_limit=2**50))
        os.sync()
        took, attempt = ready(repository.first)
        homes[-1].remove(attempt)
        return took

    def first_of_theirs() -> float:
        os.sync()
        return milliseconds(lambda: repository.export(folder / f"theirs-{next(numbers)}"))

    try:
        bench.say("first exports")
        found = interleaved(exports, {"theirs": first_of_theirs, "ours": first_of_ours})
        target = ratio_at_most(1.2)
        yield Figure(row, f"no base there, {what}", "ms", found["ours"], [target], repository.name, found["theirs"])
        for exported in folder.glob("theirs-*"):
            shutil.rmtree(exported)

        bench.say("next revisions")
        next_ones, same, removals = [], [], []
        rivals: dict[str, list[float]] = {}
        for number in range(bench.rounds * 2):
            revision = repository.commit(str(number).encode() * 1000)
            made = [ready(revision), ready(revision)]
            next_ones.append(made[0][0])
            same.append(made[1][0])
            removals += [milliseconds(lambda: homes[-1].remove(attempt)) for _, attempt in made]  # noqa: B023
            for name, act in repository.rivals(revision, folder / "theirs").items():
                rivals.setdefault(name, []).append(milliseconds(act))
                shutil.rmtree(folder / "theirs", ignore_errors=True)
        for name, times in rivals.items():
            yield Figure(row, f"next revision, idle base, {what}", "ms", next_ones, [at_most(100, "ms")], name, times)
        yield Figure(row, f"same revision, {what}", "ms", same)
        yield Figure(row, f"removal, {what}", "ms", removals)
    finally:
        for home in homes:
            home.sweep(live=())


@dataclass(slots=True)
class Files:
    """The files of a revision, for a task whose base differs in one file."""

    archive: Archive
    revision: str
    survey: Survey | None = None

    def key(self) -> str:
        self.survey = self.survey or self.archive.survey(self.revision)
        return self.survey.tree_key

    def export(self, target: Path) -> None:
        self.archive.export(self.revision, target)

    def update(
        self, before: str, target: Path, *, good: Path, before_key: str, others: Collection[str]
    ) -> TreeChange | None:
        self.survey, change = self.archive.update(
            before, self.revision, target, good=good, before_key=before_key, others=others
        )
        return change

    def renewed(self) -> list[bytes]:
        return [CHANGED.encode()]


def milliseconds(act: Callable[[], object]) -> float:
    return seconds(act) * 1000


def content(files: int, size: int) -> Iterator[tuple[str, bytes]]:
    """The paths and contents of the files. Folders are nested, and each contains some files."""
    data = random.Random(1).randbytes(size + 4096)
    for number in range(files):
        folder = f"part-{number // IN_A_FOLDER // 50}/folder-{number // IN_A_FOLDER}"
        yield f"{folder}/file-{number}.bin", str(number).encode() + data[number % 4096 :][:size]


class Subversion:
    row, name = "workspaces-svn", "svn export"

    def __init__(self, folder: Path, files: int, size: int) -> None:
        self.path, self.change, self.other = folder / "svn", folder / "change", folder / "svn-other"
        run("svnadmin", "create", self.path)
        self._load(files, size)
        self.first = "1"
        # A working copy that updates to other people's commits.
        run("svn", "checkout", "-q", f"file://{self.path}", self.other)

    def _load(self, files: int, size: int) -> None:
        """Loads all files as the first revision. A commit of so many files would take longer than
        the measurement.
        """
        command = ["svnadmin", "load", "-q", str(self.path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as load:
            assert load.stdin is not None
            write = load.stdin.write
            write(b"SVN-fs-dump-format-version: 2\n\nRevision-number: 1\nProp-content-length: 10\n")
            write(b"Content-length: 10\n\nPROPS-END\n\n")
            there: set[str] = set()
            for path, data in content(files, size):
                part, folder = path.split("/")[0], path.rpartition("/")[0]
                for one in (part, folder):
                    if one not in there:
                        there.add(one)
                        write(f"Node-path: {one}\nNode-kind: dir\nNode-action: add\n\n".encode())
                data = b"$Id$ $HeadURL$\n" + data
                lengths = len(data), len(KEYWORDS), len(KEYWORDS) + len(data)
                write(f"Node-path: {path}\nNode-kind: file\nNode-action: add\n".encode())
                write(b"Text-content-length: %d\nProp-content-length: %d\nContent-length: %d\n\n" % lengths)
                write(KEYWORDS + data + b"\n\n")
        assert load.returncode == 0

    def commit(self, data: bytes) -> str:
        self.change.write_bytes(data)
        run("svnmucc", "-m", "next", "-U", f"file://{self.path}", "put", self.change, CHANGED)
        return run("svnlook", "youngest", self.path).strip()

    def export(self, target: Path) -> None:
        run("svn", "export", "-q", "-r", self.first, f"file://{self.path}", target)

    def rivals(self, revision: str, _target: Path) -> dict[str, Callable[[], object]]:
        return {"svn update": lambda: run("svn", "update", "-q", "-r", revision, self.other)}


class Git:
    row, name = "workspaces-git", "git clone"

    def __init__(self, folder: Path, files: int, size: int) -> None:
        self.path, self.work = folder / "git.git", folder / "git-work"
        run("git", "init", "-q", "--bare", "-b", "main", self.path)
        run("git", "clone", "-q", self.path, self.work)
        for setting in ("gc.auto=0", "user.name=ada", "user.email=ada"):
            run("git", "config", *setting.split("="), cwd=self.work)
        for path, data in content(files, size):
            place = self.work / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
        run("git", "add", ".", cwd=self.work)
        self.first = self._committed()

    def commit(self, data: bytes) -> str:
        (self.work / CHANGED).write_bytes(data)
        run("git", "add", CHANGED, cwd=self.work)
        return self._committed()

    def _committed(self) -> str:
        run("git", "commit", "-q", "-m", "next", cwd=self.work)
        run("git", "push", "-q", "origin", "HEAD:main", cwd=self.work)
        return run("git", "rev-parse", "HEAD", cwd=self.work).strip()

    def export(self, target: Path) -> None:
        run("git", "clone", "-q", self.path, target)

    def rivals(self, revision: str, target: Path) -> dict[str, Callable[[], object]]:
        def worktree() -> None:
            run("git", "-C", self.path, "worktree", "add", "-f", "--detach", target, revision)

        return {
            "git clone --shared": lambda: run("git", "clone", "-q", "--shared", self.path, target),
            "git worktree add": worktree,
        }
