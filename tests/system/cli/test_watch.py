"""``arkqueue watch``: one line for each change, or a live table on a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess

import pytest

from arkqueue.db.session import Session
from tests.builders import an_archive
from tests.system.cli.conftest import Cli, Start, the_rest


def line(process: subprocess.Popen[str]) -> str:
    """The next line, without its clock."""
    assert process.stdout is not None
    return process.stdout.readline()[10:].rstrip("\n")


def test_each_change_is_a_line_and_the_run_ends_it(started: Start, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "depends: [a]"})
    process = started("watch", "papers@2")
    assert [line(process) for _ in range(3)] == [
        "papers@2/a  ready",
        "papers@2/b  waiting  for papers@2/a",
        "papers@2  pending  0/2",
    ]
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


def test_each_change_is_a_document_for_programs(started: Start, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    process = started("watch", "papers@2", "--json")
    assert process.stdout is not None
    first = [json.loads(process.stdout.readline()) for _ in range(2)]
    archive.run("a@2")
    out, err = the_rest(process)
    seen = first + [json.loads(line) for line in out.splitlines()]
    task = [thing["state"] for thing in seen if thing["full_name"] == "papers@2/a"]
    assert (task[0], task[-1]) == ("ready", "completed")
    assert (seen[-1]["full_name"], seen[-1]["state"], seen[-1]["counts"]["completed"]) == ("papers@2", "completed", 1)
    assert "tasks" not in seen[-1]
    assert (process.returncode, err) == (0, "")


def test_new_runs_are_seen_and_an_interrupt_is_its_end(started: Start, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"old": ""})
    archive.run("old@2")
    archive.commit({"a": ""})
    process = started("watch", "papers")
    assert line(process) == "papers@2  completed  1/1"
    assert [line(process) for _ in range(2)] == ["papers@3/a  ready", "papers@3  pending  0/1"]
    archive.commit({"a": "depends: [PREV]"})
    assert [line(process) for _ in range(2)] == ["papers@4/a  waiting  for papers@3/a", "papers@4  pending  0/1"]
    process.send_signal(signal.SIGINT)
    out, err = the_rest(process)
    assert (process.returncode, out, err) == (0, "", "")


def test_watcher_of_an_archive_without_runs_is_told_so_and_then_sees_the_first(
    started: Start, session: Session
) -> None:
    archive = an_archive(session)
    process = started("watch", "papers")
    assert process.stderr is not None
    assert process.stderr.readline() == "no runs; waiting for the next one\n"
    archive.commit({"a": ""})
    assert [line(process) for _ in range(2)] == ["papers@2/a  ready", "papers@2  pending  0/1"]
    process.send_signal(signal.SIGINT)
    assert the_rest(process) == ("", "")


def test_interrupt_before_the_run_has_ended_is_no_success(started: Start, session: Session) -> None:
    an_archive(session).commit({"a": ""})
    process = started("watch", "papers@2")
    assert line(process) == "papers@2/a  ready"
    process.send_signal(signal.SIGINT)
    the_rest(process)
    assert process.returncode == 130


@pytest.mark.parametrize("no_color", ["", "1"])
def test_terminal_sees_a_table_with_colours_unless_it_wants_none(
    started: Start, session: Session, no_color: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = an_archive(session)
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
    started: Start, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "build-PDF": "depends: [a]"})
    archive.run("a@2")
    archive.claim("build-PDF@2")
    archive.end("build-PDF@2", 1)
    cells, rows = _table(started, monkeypatch, "papers@2")
    assert [[name.strip(), now.strip()] for name, now, *_ in cells] == [
        ["papers@2", "failed"], ["papers@2/a", "completed"], ["papers@2/build-PDF", "failed"]
    ]  # fmt: skip
    assert all(re.fullmatch(r"(\d[\d.]*[smhd])? +", lasted) for _, _, lasted, _ in cells), rows
    assert cells[0][3].startswith("1/2, 1 failed · ")
    assert all(len(row) < 80 for row in rows)


def test_long_name_loses_its_middle_and_leaves_room_for_its_state(
    started: Start, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = an_archive(session)
    name = "a-name-that-is-" + "very-" * 11 + "long"
    archive.commit({name: "", "other": f"depends: [{name}]"})
    archive.end(f"{name}@2", 3)
    cells, rows = _table(started, monkeypatch, "papers@2")
    assert re.fullmatch(r"  papers@2/a-name-t…ery-very-very-long +", cells[1][0]), rows
    assert [cell.strip() for cell in cells[1][1::2]] == ["failed", "exit code 3"]
    assert cells[2][3].startswith("because of papers@2/a")


def test_what_has_no_room_on_the_screen_is_counted(
    started: Start, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = an_archive(session)
    archive.commit({f"t{number}": "" for number in range(20)})
    archive.run(*(f"t{number}@2" for number in range(20)))
    cells, rows = _table(started, monkeypatch, "papers@2", lines=10)
    shown = ["papers@2", *(f"papers@2/t{number}" for number in range(6))]
    assert [name.strip() for name, *_ in cells[:7]] == shown, rows
    assert rows[7].strip() == "no room for 14 more tasks"


def _table(
    started: Start, monkeypatch: pytest.MonkeyPatch, run: str, lines: int = 24
) -> tuple[list[list[str]], list[str]]:
    """The cells of each row, and the rows, that a terminal of 80 columns shows in the end of a run."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", str(lines))
    ours, its = pty.openpty()
    process = started("watch", run, stdout=its)
    os.close(its)
    seen = b""
    while data := _read(ours):
        seen += data
    os.close(ours)
    process.wait()
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode()).replace("\r", "")
    header, *rows = text[text.rindex("RUN, TASK") :].rstrip().splitlines()
    state, took, about = map(header.index, ("STATE", "TOOK", "ABOUT"))
    return [[row[:state], row[state:took], row[took:about], row[about:]] for row in rows], rows


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux's way to say that the other end is closed
        return b""


def test_only_a_completed_run_is_a_success_unless_another_end_is_accepted(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "cancels: [PREV]"})
    archive.commit({"a": "cancels: [PREV]"})
    archive.run("a@3")
    archive.commit({"a": ""})
    archive.cancel("a@4")
    for run, end in (("papers@2", "superseded"), ("papers@3", "completed"), ("papers@4", "canceled")):
        assert arkqueue("watch", run).out.endswith(
            f"{run}  {end}  {'1/1' if end == 'completed' else f'0/1, 1 {end}'}\n"
        )
        for accepted in ((), ("superseded",), ("canceled",), ("superseded", "canceled")):
            options = [word for state in accepted for word in ("--accept", state)]
            assert arkqueue("watch", run, *options).code == (0 if end in ("completed", *accepted) else 1), (
                run,
                options,
            )
