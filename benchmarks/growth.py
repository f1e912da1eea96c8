"""Row 14: a server's memory after 1,000 commits, next to its memory after 200. Memory that grows
with each commit would grow forever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bench import Bench, Figure, ratio_at_most
from benchmarks.commits import graph
from benchmarks.memory import SETTLING, resident
from benchmarks.servers import a_server, until
from tests.repositories import GitRepository, SubversionRepository, a_git_repository, a_subversion_repository
from tests.system.end_to_end.installation import Installation, Role, tasks

ARCHIVES = 6

_Repository = GitRepository | SubversionRepository
KINDS: dict[str, Callable[[Path, str], _Repository]] = {
    "Subversion": a_subversion_repository,
    "Git": a_git_repository,
}


def growth(bench: Bench) -> Iterator[Figure]:
    """Six archives with three small tasks per commit, on a separate server for each kind of
    repository.
    """
    early, late = bench.size("growth.early", 200, 30), bench.size("growth.late", 1000, 60)
    for kind in KINDS:
        after_early, after_late, note = list[float](), list[float](), ""
        for _ in range(min(bench.rounds, 1 if bench.quick else 3)):
            with bench.database() as uri, a_server(bench, uri) as server:
                archives = _archives(bench, server, kind)
                first = _after(server, archives, 0, early)
                second = _after(server, archives, early, late)
            after_early.append(first.memory)
            after_late.append(second.memory)
            note = (
                f"open files {first.files} → {second.files}, threads {first.threads} → {second.threads}, "
                f"home folder {first.home:.1f} → {second.home:.1f} MB"
            )
        what = f"memory after {late} commits, {kind}"
        yield Figure("14", what, "MB", after_late, [ratio_at_most(1.05)], f"after {early}", after_early, note)


@dataclass(frozen=True, slots=True)
class _Held:
    """The resources of an idle server: its memory and the files of its home folder in MB, and its
    open files and threads.
    """

    memory: float
    files: int
    threads: int
    home: float


def _archives(bench: Bench, server: Installation, kind: str) -> dict[str, _Repository]:
    folder = bench.a_folder("growth")
    archives = {f"{folder.name}-{number}": KINDS[kind](folder, f"r{number}") for number in range(ARCHIVES)}
    for name, repository in archives.items():
        repository.commit(tasks(graph(3)))
        server.api.post("/archives", {"name": name, "url": str(repository.path), "process": True})
    return archives


def _after(server: Installation, archives: dict[str, _Repository], done: int, commits: int) -> _Held:
    """The server's resources after ``commits`` commits, of which ``done`` were made before."""
    for commit in range(done, commits):
        name, repository = list(archives.items())[commit % len(archives)]
        repository.commit({"notes": f"{commit}\n"})
        server.api.post(f"/archives/{name}/notices", {})
        if commit % len(archives) == len(archives) - 1:
            until(lambda: _settled(server) >= commit + 1, "the tasks of the commits")  # noqa: B023  called at once
    until(lambda: _settled(server) >= commits, "the tasks of the last commits")
    time.sleep(SETTLING)
    return _held(server.roles[0])


def _settled(server: Installation) -> int:
    """The number of commits whose last task has completed."""
    (row,) = server.sql("select count(*) from task where name = 't2' and state = 'completed'")
    return int(row["count"])


def _held(role: Role) -> _Held:
    process = Path(f"/proc/{role.pid}")
    return _Held(
        memory=resident(role.pid),
        files=len(list((process / "fd").iterdir())),
        threads=len(list((process / "task").iterdir())),
        home=sum(path.lstat().st_size for path in role.home.rglob("*") if not path.is_dir()) / 1e6,
    )
