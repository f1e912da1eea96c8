"""How long a workspace takes to be ready, beside what svn and git do themselves.

    PYTHONPATH=. python benchmarks/workspaces.py [--files 20000] [--megabytes 1000] [--rounds 7] [--folder /tmp] [--kind both] [--copy] [--alone]

For each kind of archive: the first export (beside `svn export`, `git clone`); then, in each round, a commit that changes one file, and the
workspace of that revision from an idle base (beside `svn update`, `git clone --shared`, `git worktree add` in the same round); then one of the
same revision again. ``--copy`` lays no layers. Medians, with the least and the greatest. Nothing is left behind.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from arkqueue.archive import locate, open_archive
from arkqueue.model import AttemptId
from arkqueue.workspace import Tree, Workspaces

ENV = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C.UTF-8"}
IN_A_FOLDER = 100


def run(*command: str | Path, cwd: Path | None = None) -> str:
    return subprocess.run(
        [str(word) for word in command], cwd=cwd, env=ENV, check=True, capture_output=True, text=True
    ).stdout


def timed(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return (time.perf_counter() - begun) * 1000


def shown(name: str, times: list[float], beside: list[float] | None = None) -> None:
    ratio = f"   {statistics.median(times) / statistics.median(beside):6.3f}×" if beside else ""
    median = statistics.median(times)
    print(f"  {name:46} {median:10.1f} ms   ({min(times):.1f} … {max(times):.1f}, n={len(times)}){ratio}", flush=True)


def fill(folder: Path, files: int, size: int) -> None:
    """Files that cannot be compressed, some in each folder, with folders in folders."""
    data = random.Random(1).randbytes(size + 4096)
    for number in range(files):
        place = folder / f"part-{number // IN_A_FOLDER // 50}" / f"folder-{number // IN_A_FOLDER}"
        if number % IN_A_FOLDER == 0:
            place.mkdir(parents=True)
        (place / f"file-{number}.bin").write_bytes(str(number).encode() + data[number % 4096 :][:size])


class Subversion:
    def __init__(self, folder: Path) -> None:
        self.folder, self.path, self.work = folder, folder / "svn", folder / "svn-work"
        run("svnadmin", "create", self.path)
        run("svn", "checkout", "-q", f"file://{self.path}", self.work)

    def begin(self) -> str:
        run("svn", "add", "-q", "--force", ".", cwd=self.work)
        run("svn", "commit", "-q", "-m", "first", cwd=self.work)
        # Another working copy, which others' commits bring forward.
        run("svn", "checkout", "-q", f"file://{self.path}", self.folder / "svn-other")
        return "1"

    def commit(self, change: Path) -> str:
        run("svnmucc", "-m", "next", "-U", f"file://{self.path}", "put", change, "part-0/folder-0/file-0.bin")
        return run("svnlook", "youngest", self.path).strip()

    first_name = "svn export"

    def first(self, target: Path) -> None:
        run("svn", "export", "-q", f"file://{self.path}", target)

    def rivals(self, revision: str, _target: Path) -> dict[str, Callable[[], object]]:
        return {"svn update": lambda: run("svn", "update", "-q", "-r", revision, self.folder / "svn-other")}


class Git:
    def __init__(self, folder: Path) -> None:
        self.folder, self.path, self.work = folder, folder / "git.git", folder / "git-work"
        run("git", "init", "-q", "--bare", "-b", "main", self.path)
        run("git", "clone", "-q", self.path, self.work)
        run("git", "config", "gc.auto", "0", cwd=self.work)
        for name in ("user.name", "user.email"):
            run("git", "config", name, "ada", cwd=self.work)

    def begin(self) -> str:
        run("git", "add", ".", cwd=self.work)
        return self._committed()

    def commit(self, change: Path) -> str:
        shutil.copyfile(change, self.work / "part-0" / "folder-0" / "file-0.bin")
        run("git", "add", "part-0/folder-0/file-0.bin", cwd=self.work)
        return self._committed()

    def _committed(self) -> str:
        run("git", "commit", "-q", "-m", "next", cwd=self.work)
        run("git", "push", "-q", "origin", "HEAD:main", cwd=self.work)
        return run("git", "rev-parse", "HEAD", cwd=self.work).strip()

    first_name = "git clone"

    def first(self, target: Path) -> None:
        run("git", "clone", "-q", self.path, target)

    def rivals(self, revision: str, target: Path) -> dict[str, Callable[[], object]]:
        return {
            "git clone --shared": lambda: run("git", "clone", "-q", "--shared", self.path, target),
            "git worktree add": lambda: run(
                "git", "-C", self.path, "worktree", "add", "-f", "--detach", target, revision
            ),
        }


def measure(kind: type[Subversion] | type[Git], folder: Path, arguments: argparse.Namespace) -> None:
    repository = kind(folder)
    fill(repository.work, arguments.files, arguments.megabytes * 10**6 // arguments.files)
    first = repository.begin()
    shutil.rmtree(repository.work) if kind is Subversion else None
    archive = open_archive(locate(str(repository.path)))
    attempts = iter(range(1, 10**9))
    layered_by = None if arguments.copy else "kernel"

    def ready(revision: str) -> AttemptId:
        attempt = AttemptId(next(attempts))
        source = Tree(1, "", revision, archive)
        workspace = workspaces.prepare(attempt, source=source, script="true\n", layered_by=layered_by)  # type: ignore[arg-type]
        assert (workspace.tree / "part-0" / "folder-0" / "file-0.bin").exists()
        for note in workspace.notes:
            print(f"  note: {note}")
        return attempt

    made: list[AttemptId] = []
    print(f"{kind.__name__}: {arguments.files} files, {arguments.megabytes} MB")
    theirs, ours = [], []
    # Nothing is removed in between: ext4 is slow to make files for a while after many were.
    for number in range(arguments.exports):
        os.sync()
        theirs.append(timed(lambda: repository.first(folder / f"theirs-{number}")))  # noqa: B023
        workspaces = Workspaces(folder / f"home-{number}", pool_limit=2**50)
        os.sync()
        ours.append(timed(lambda: made.append(ready(first))))
        workspaces.remove(made.pop())
    for number in range(arguments.exports):
        shutil.rmtree(folder / f"theirs-{number}")
    shown(repository.first_name, theirs)
    shown("workspace, no base there", ours, theirs)

    next_ones, same, removals = [], [], []
    rivals: dict[str, list[float]] = {}
    change = folder / "change"
    for number in range(arguments.rounds):
        change.write_bytes(str(number).encode() * 1000)
        revision = repository.commit(change)
        next_ones.append(timed(lambda: made.append(ready(revision))))  # noqa: B023
        same.append(timed(lambda: made.append(ready(revision))))  # noqa: B023
        removals += [timed(lambda: workspaces.remove(attempt)) for attempt in made]  # noqa: B023
        made.clear()
        for name, act in ({} if arguments.alone else repository.rivals(revision, folder / "theirs")).items():
            rivals.setdefault(name, []).append(timed(act))
            shutil.rmtree(folder / "theirs", ignore_errors=True)
            if name == "git worktree add":
                run("git", "-C", repository.path, "worktree", "prune")
    shown("workspace, idle base of the revision before", next_ones)
    shown("workspace, base of the same revision", same)
    shown("removal", removals)
    for name, times in rivals.items():
        shown(name, times)
        print(f"    the workspace takes {statistics.median(next_ones) / statistics.median(times):.3f}× of that")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--exports", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--kind", choices=["svn", "git", "both"], default="both")
    parser.add_argument("--copy", action="store_true")
    parser.add_argument("--alone", action="store_true", help="in the rounds, only the workspaces")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    for name, kind in (("svn", Subversion), ("git", Git)):
        if arguments.kind in (name, "both"):
            with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
                try:
                    measure(kind, Path(folder), arguments)
                finally:
                    for home in Path(folder).glob("home-*"):
                        Workspaces(home).sweep(live=())


if __name__ == "__main__":
    main()
