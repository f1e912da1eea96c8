"""``arkqueue demo`` is what a newcomer sees first: the whole way of two commits, with everything
real, on a machine that has nothing yet.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import subprocess
import sys
import termios
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from arkqueue.db.embedded.server import Embedded
from tests.soundness import destroy_sound
from tests.system.end_to_end.installation import TRACEBACK, environment, processes_of
from tests.waiting import eventually

SERVES = b"until you press Ctrl-C"
EDGES = {
    "1:COMMIT <-- 2:COMMIT", "2:COMMIT <-- 2:indexing", "2:indexing <-- 2:build-PDF", "2:COMMIT <-- 3:COMMIT",
    "2:indexing <-- 3:indexing", "3:COMMIT <-- 3:indexing", "3:indexing <-- 3:build-PDF", "2:build-PDF <!= 3:build-PDF",
}  # fmt: skip


@pytest.fixture
def folder(home: Path) -> Iterator[Path]:
    """Where the demo makes its home folder; what it leaves behind on purpose is removed."""
    home.chmod(0o711)  # or PostgreSQL's account could not pass through it
    yield home
    for made in home.glob("arkqueue-demo-*"):
        destroy_sound(Embedded(made))


def demo(folder: Path, *words: str, terminal: bool = False) -> str:
    """Run the demo to its good end; what it says, to a pipe or on a terminal, where it serves its pages until Ctrl-C."""
    command = [sys.executable, "-m", "arkqueue", "demo", *words]
    env = environment(TMPDIR=str(folder), TERM="xterm", COLUMNS="80")
    if not terminal:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stderr == ""
        return done.stdout
    ours, theirs = pty.openpty()
    own_terminal = partial(fcntl.ioctl, 0, termios.TIOCSCTTY, 0)
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True, preexec_fn=own_terminal
    ) as process:
        os.close(theirs)
        said = b""
        try:
            while more := os.read(ours, 65536):
                said += more
                if SERVES in said and SERVES not in said[: -len(more)]:
                    os.write(ours, b"\x03")
        except OSError:
            pass  # Linux' end of a terminal
        os.close(ours)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said.decode()).replace("\r", "\n")
    assert process.returncode == 0, text
    return text


@pytest.mark.full
@pytest.mark.parametrize(("words", "terminal"), [((), False), (("--git",), True)])
def test_demo_shows_the_example_from_end_to_end(folder: Path, words: tuple[str, ...], terminal: bool) -> None:
    said = demo(folder, *words, terminal=terminal)
    assert TRACEBACK not in said
    lines = [" ".join(line.split()) for line in said.splitlines()]
    kind, hook = ("Git", "post-receive") if words else ("Subversion", "post-commit")
    assert f"{kind} archive My-Project is watched from revision 1 on; {hook} installed." in lines

    superseded = "2:build-PDF canceled: superseded by My-Project@3/build-PDF"
    events = [
        "2:indexing completed",
        "2:build-PDF running",
        "3:indexing completed",
        superseded,
        "3:build-PDF completed",
    ]
    if terminal:  # a table shows what happened between two looks in the order of its rows
        events.remove("3:indexing completed")
    places = [lines.index(event) for event in events]
    assert places == sorted(places)
    assert "3:indexing completed" in lines

    assert [line.split()[:2] for line in lines if re.match(r"My-Project@\d+ +(completed|superseded) ", line)] == [
        ["My-Project@3", "completed"], ["My-Project@2", "superseded"], ["My-Project@1", "completed"]
    ]  # fmt: skip
    assert {line for line in lines if " <-- " in line or " <!= " in line} - {
        "// <-- waits for it to complete",
        "// <!= supersedes it",
    } == EDGES
    assert [line for line in lines if line.startswith("page ")] == [f"page {n} of revision 3" for n in (1, 2, 3, 4)]
    (made,) = folder.glob("arkqueue-demo-*")
    assert f"export ARKQUEUE_HOME={made}" in lines
    assert any(line.endswith("explain My-Project@2/build-PDF") for line in lines)
    eventually(lambda: not processes_of(str(made)))
