"""I do nothing on the server: I choose names, and have somebody copy the command that arkqueue
prints, as root perhaps.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.repositories import GitRepository
from tests.security.conftest import Site
from tests.system.end_to_end.installation import tasks
from tests.waiting import eventually

PRINTED = re.compile(r"arkqueue [a-z].*")


@pytest.mark.parametrize(
    "branch", ["fix$(id>pwned)", "fix`id>pwned`", "fix;id>pwned;x", "fix'$(id>pwned)'", 'fix"$(id>pwned)"']
)
def test_i_name_my_branch_like_a_command(site: Site, tmp_path: Path, branch: str) -> None:
    mine, arkqueue = site.archive("git", "--executor", "process", "--branch", "**"), site.installation
    assert isinstance(mine.repository, GitRepository)
    mine.repository.switch(branch)
    mine.repository.commit(tasks({"bad": {"command": "false"}, "next": {"command": "true", "depends": ["bad"]}}))

    def failed() -> str:
        """The name of the run, once it has failed."""
        runs = arkqueue.api.get("/runs", archive=mine.name, limit=10)["runs"]
        return next((run["full_name"] for run in runs if run["state"] == "failed"), "")

    name = eventually(failed)
    task, lines = f"{name}/bad", []
    for words in (
        ("show", name),
        ("show", task),
        ("explain", name),
        ("explain", task),
        ("explain", f"{name}/next"),
        ("explain", f"{name}/nothing"),
        ("logs", f"{name}/next"),
        ("retry", f"{name}/next"),
        ("cancel", task),
        ("watch", name),
        ("trigger", mine.name, "--branch", branch, "--dry-run"),
        ("trigger", mine.name, "--branch", branch, "nothing"),
        ("runs", mine.name),
        ("archive", "show", mine.name),
    ):
        done = arkqueue(*words, code=None)
        lines += (done.out + done.err).splitlines()
    commands = [found[0] for line in lines for found in PRINTED.finditer(line)]
    assert sum("fix" in command for command in commands) >= 3, "the attack is in none of them"
    for command in commands:
        subprocess.run(["sh", "-c", f"arkqueue() {{ :; }}; {command}"], cwd=tmp_path, capture_output=True, check=False)
    assert list(tmp_path.iterdir()) == [], "a printed command ran mine"
    site.answers()
