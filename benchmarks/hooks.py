"""Row 8: the time that the hooks add to a commit without workflow files, while the server is up, is
down, or accepts the notice and never answers.

Repositories without hooks, with the notifying hook, and also with the checking hook take turns, so
that other load on the machine affects all alike. The runs of a figure are the differences to the
commit without hooks of the same round.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from arkqueue import hooks as installation
from benchmarks.bench import Bench, Figure, at_most, interleaved, seconds
from benchmarks.servers import a_server
from tests.repositories import a_git_repository, a_subversion_repository

WORKFLOW = {"_workflows/a.yaml": "- {name: a, command: 'true'}\n"}
NOTHING, NOTIFYING, CHECKING = "no hooks", "notifying", "notifying and checking"
NOBODY = "http://127.0.0.1:9"
PAUSE = 0.03
"""Seconds between two commits, in which the client of the earlier one ends."""
BOUND = 15.0


def hooks(bench: Bench) -> Iterator[Figure]:
    """Commits to Subversion and pushes to Git, each with and without hooks."""
    rounds = bench.size("hooks.commits", 40, 8)
    with ExitStack() as stack:
        server = stack.enter_context(a_server(bench, stack.enter_context(bench.database())))
        servers = {"up": server.api.url, "down": NOBODY, "hanging": stack.enter_context(_hanging())}
        token = (server.home() / "token").read_text().strip()
        checker = bench.a_folder("checker") / "checker"
        checker.write_text("#!/bin/sh\nexit 0\n")
        checker.chmod(0o755)
        for kind in (_subversion, _git):
            commits: dict[str, Callable[[], float]] = {}
            for name, url in {NOTHING: "", **{f"{NOTIFYING}, server {how}": url for how, url in servers.items()}, CHECKING: NOBODY}.items():  # fmt: skip
                folder, commit = kind(bench.a_folder("hooks"))
                if name != NOTHING:
                    installation.install(folder, server=url, token=token, check=name == CHECKING, checker=str(checker))
                if url == server.api.url:
                    server.api.post("/archives", {"name": folder.parent.name, "url": str(folder), "process": False})
                commits[name] = commit
            found = interleaved(rounds, commits, warm=True)
            bare = found.pop(NOTHING)
            for name, took in found.items():
                added = [with_it - without for with_it, without in zip(took, bare, strict=True)]
                note = f"the commit alone: {sorted(bare)[len(bare) // 2]:.0f} ms"
                yield Figure(
                    "8",
                    f"{kind.__name__[1:]}: {name}, added to a commit",
                    "ms",
                    added,
                    [at_most(BOUND, "ms")],
                    note=note,
                )


def _git(folder: Path) -> tuple[Path, Callable[[], float]]:
    """A Git repository, and a function that pushes one more commit and returns the duration."""
    repository = a_git_repository(folder)
    repository.commit({**WORKFLOW, **{f"folder-{n}/file": str(n) for n in range(50)}})

    def push() -> float:
        repository.commit({"file": str(time.monotonic())}, push=False)
        return _timed(["git", "-C", str(repository.work), "push", "-q", "origin", "main"])

    return repository.path, push


def _subversion(folder: Path) -> tuple[Path, Callable[[], float]]:
    repository = a_subversion_repository(folder)
    repository.commit(WORKFLOW)
    numbers = iter(range(10**9))

    def commit() -> float:
        return _timed(["svn", "mkdir", "-q", "--no-auth-cache", "-m", "", f"{repository.url}/{next(numbers)}"])

    return repository.path, commit


def _timed(command: list[str]) -> float:
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    took = seconds(lambda: subprocess.run(command, check=True, env=env, capture_output=True)) * 1000
    time.sleep(PAUSE)
    return took


@contextmanager
def _hanging() -> Iterator[str]:
    """A server that accepts connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1000)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
