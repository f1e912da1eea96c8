"""The output of ``arkqueue demo``. ``make demo`` runs the demo itself."""

from __future__ import annotations

import os
import pty
import re
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from arkqueue.cli import demo

NOW = "2026-01-01T10:00:0"


def a_task(state: str, *, started: str | None = None, settled: str | None = None) -> dict[str, Any]:
    times = {"started_at": started and NOW + started + "Z", "settled_at": settled and NOW + settled + "Z"}
    return {"state": state, "stop": None, "why": "", **times}


def test_changes_of_one_look_are_told_in_the_order_in_which_they_happened(capsys: pytest.CaptureFixture[str]) -> None:
    # The demo takes a minute as a whole; these are what it prints.
    with demo._display(plain=True) as show:
        show({"2:build-PDF": a_task("running", started="0"), "3:indexing": a_task("running", started="1")})
        capsys.readouterr()
        show(
            {
                "2:build-PDF": a_task("canceled", started="0", settled="4"),
                "3:more": a_task("waiting"),
                "3:indexing": a_task("completed", started="1", settled="3"),
                "3:build-PDF": a_task("running", started="5"),
            }
        )
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["3:indexing", "completed"], ["2:build-PDF", "canceled"], ["3:build-PDF", "running"], ["3:more", "waiting"]
    ]  # fmt: skip


def test_what_may_be_copied_has_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    home = Path("/tmp/arkqueue-demo-12345678")
    # The same for the last words.
    demo._go_on(home)
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert {f"export ARKQUEUE_HOME={home}", "arkqueue watch", str(home)} <= set(lines)
    assert max(map(len, lines)) < 78


@pytest.mark.full
@pytest.mark.timeout(300)
def test_in_a_terminal_the_demo_serves_its_pages_until_it_is_interrupted(tmp_path: Path) -> None:
    process, terminal = pty.fork()
    if process == 0:
        words = [sys.executable, "-m", "arkqueue", "demo", "--plain"]
        os.execve(sys.executable, words, os.environ | {"TMPDIR": str(tmp_path), "COLUMNS": "200"})
    said = ""
    while "until you press Ctrl-C" not in said:
        said += os.read(terminal, 1 << 16).decode("utf-8", "replace")
    found = re.search(r"(http://\S+)/-/sign-in\?code=\S+", said)
    assert found, said
    with httpx.Client(follow_redirects=True, timeout=60) as browser:
        assert "My-Project" in browser.get(found[0]).text
    os.write(terminal, b"\x03")
    try:
        while os.read(terminal, 1 << 16):
            pass
    except OSError:
        pass  # the terminal is gone with its last process
    _, status = os.waitpid(process, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(found[1], timeout=60)
