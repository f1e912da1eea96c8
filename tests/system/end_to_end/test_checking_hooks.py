"""The opt-in hooks refuse faulty workflow files before they are in the repository, and never for
any other reason.
"""

from __future__ import annotations

import subprocess

from arkqueue import hooks
from tests.repositories import GitRepository
from tests.system.conftest import Checker
from tests.system.end_to_end.conftest import Archives
from tests.system.end_to_end.installation import Archive, Installation

FAULTY = "- name: index\n- name: build\n  depends: [indexng]\n"
GOOD = "- {name: index, command: 'true'}\n"


def install(arkqueue: Installation, papers: Archive, checker: Checker) -> None:
    """What ``arkqueue hook install --check`` does, with a checker that is there whether or not the package is installed."""
    token = arkqueue("token", "create", "--scope", "hook").out.strip()
    hooks.install(papers.repository.path, server=arkqueue.api.url, token=token, check=True, checker=checker.path)


def push(papers: Archive, text: str) -> subprocess.CompletedProcess[str]:
    """A commit of a workflow file by a person, and its push."""
    assert isinstance(papers.repository, GitRepository)
    papers.repository.commit({"_workflows/a.yaml": text}, push=False)
    words = ["git", "-C", str(papers.repository.work), "push", "origin", "main"]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_faulty_commit_is_refused_and_the_committer_is_told(
    shared: Installation, archives: Archives, checker_alone: Checker
) -> None:
    papers = archives(shared, "git", hook=False)
    install(shared, papers, checker_alone)
    done = push(papers, FAULTY)
    assert done.returncode != 0
    assert "_workflows/a.yaml:3:13: " in done.stderr
    assert "'index'" in done.stderr
    assert "Traceback" not in done.stderr
    done = push(papers, GOOD)
    assert done.returncode == 0, done.stderr
    papers.wait_for_run(3)
    # The push brought the faulty commit along; only heads are refused.
    papers.wait_for_run(2, "failed")
