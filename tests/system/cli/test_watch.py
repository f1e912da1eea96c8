"""``arkqueue watch``: one line for each change, or a live table on a terminal."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess

import pytest

from arkqueue.queue import Queue
from tests.builders import an_archive
from tests.system.cli.conftest import Cli, Start, the_rest


def line(process: subprocess.Popen[str]) -> str:
    """The next line, without its clock."""
    assert process.stdout is not None
    return process.stdout.readline()[10:].rstrip("\n")


def test_each_change_is_a_line_and_the_run_ends_it(started: Start, queue: Queue) -> None:
    archive = an_archive(queue)
    archive.commit({"a": "", "b": "depends: [a]"})
    process = started("watch", "papers@2")
    assert [line(process) for _ in range(3)] == ["papers@2/a  ready", "papers@2/b  waiting", "papers@2  pending  0/2"]
    archive.claim("a@2")
    assert [line(process) for _ in range(2)] == ["papers@2/a  running", "papers@2  processing  0/2, 1 running"]
    archive.end("a@2", 3)
    assert [line(process) for _ in range(2)] == [
        "papers@2/a  failed  exit code 3",
        "papers@2/b  skipped  because of papers@2/a",
    ]
    out, err = the_rest(process)
    assert (process.returncode, err) == (1, "")
    assert out.endswith("papers@2  failed  0/2, 1 failed, 1 skipped\n")


def test_run_that_completed_is_exit_code_0(arkqueue: Cli, queue: Queue) -> None:
    archive = an_archive(queue)
    archive.commit({"a": ""})
    archive.run("a@2")
    done = arkqueue("watch", "papers@2")
    assert done.code == 0
    assert done.lines[-1].endswith("papers@2  completed  1/1")


def test_new_runs_are_seen_and_an_interrupt_is_its_end(started: Start, queue: Queue) -> None:
    archive = an_archive(queue)
    archive.commit({"old": ""})
    archive.run("old@2")
    archive.commit({"a": ""})
    process = started("watch", "papers")
    assert [line(process) for _ in range(2)] == ["papers@3/a  ready", "papers@3  pending  0/1"]
    archive.commit({"a": "depends: [PREV]"})
    assert [line(process) for _ in range(2)] == ["papers@4/a  waiting", "papers@4  pending  0/1"]
    process.send_signal(signal.SIGINT)
    out, err = the_rest(process)
    assert (process.returncode, out, err) == (0, "", "")


@pytest.mark.parametrize("no_color", ["", "1"])
def test_terminal_sees_a_table_with_colours_unless_it_wants_none(
    started: Start, queue: Queue, no_color: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = an_archive(queue)
    archive.commit({"a": ""})
    archive.run("a@2")
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", "xterm-256color")
    for command in (["watch", "papers@2"], ["runs"], ["show", "papers@2"]):
        ours, its = pty.openpty()
        process = started(*command, stdout=its)
        os.close(its)
        seen = b""
        while data := _read(ours):
            seen += data
        os.close(ours)
        assert process.wait() == 0
        text = seen.decode()
        assert re.search(r"papers@2\W.*completed", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)), text
        assert ("\x1b[32m" in text) == (not no_color), text


def test_table_has_its_columns_on_a_narrow_terminal(
    started: Start, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = an_archive(queue)
    archive.commit({"a": "", "build-PDF": "depends: [a]"})
    archive.run("a@2")
    archive.claim("build-PDF@2")
    archive.end("build-PDF@2", 1)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    ours, its = pty.openpty()
    process = started("watch", "papers@2", stdout=its)
    os.close(its)
    seen = b""
    while data := _read(ours):
        seen += data
    os.close(ours)
    assert process.wait() == 1
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode()).replace("\r", "")
    header, *rows = text[text.rindex("RUN, TASK") :].rstrip().splitlines()
    state, took, about = map(header.index, ("STATE", "TOOK", "ABOUT"))
    cells = [[row[:state], row[state:took], row[took:about], row[about:]] for row in rows]
    assert [[name.strip(), now.strip()] for name, now, *_ in cells] == [
        ["papers@2", "failed"], ["papers@2/a", "completed"], ["papers@2/build-PDF", "failed"]
    ]  # fmt: skip
    assert all(re.fullmatch(r"(\d[\d.]*[smhd])? +", lasted) for _, _, lasted, _ in cells), text
    assert cells[0][3].startswith("1/2, 1 failed · ")
    assert all(len(row) < 80 for row in rows)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux's way to say that the other end is closed
        return b""
