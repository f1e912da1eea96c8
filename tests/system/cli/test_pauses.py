"""`pause`, `resume` and `drain` on the command line."""

from __future__ import annotations

import re

from arkqueue.db.session import Session
from arkqueue.queue import claim
from tests.builders import HOST, PROCESS, an_archive
from tests.system.cli.conftest import Cli


def test_an_archive_is_paused_shown_and_resumed(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    done = arkqueue("pause", "papers", "nobody", "--reason", "the printer moves")
    assert (done.code, done.lines) == (1, ["papers: paused"])
    assert "archive nobody: does not exist" in done.err
    (again,) = arkqueue("pause", "papers").lines
    assert re.fullmatch(r"papers: paused already since .* by root \(first token\): the printer moves", again)
    arkqueue("hold", "papers", "--reason", "the disk is full")
    _, row, *reasons = arkqueue("archive", "list").lines
    assert row.split()[3] == "paused"
    assert [re.sub(r"since [^(]*\((now|.* ago)\)", "since then", line) for line in reasons] == [
        "papers: it is paused since then by root (first token): the printer moves",
        "papers: on hold by root (first token) since then: the disk is full",
    ]
    arkqueue("unhold", "papers")
    shown = arkqueue("archive", "show", "papers").out
    assert "the printer moves" in shown
    assert "None of its tasks starts until: arkqueue resume papers" in shown
    assert "arkqueue resume papers" in arkqueue("explain", "papers@2/a").out
    assert arkqueue("resume", "papers").lines == ["papers: resumed"]
    assert arkqueue("resume", "papers").code == 1


def test_a_paused_lock_is_shown_with_its_archive(arkqueue: Cli, session: Session) -> None:
    papers, books = an_archive(session, "papers"), an_archive(session, "books")
    papers.commit({"a": "lock: [tex, global/printer]"})
    books.commit({"a": "lock: global/printer"})
    told = arkqueue("pause", "--lock", "papers/txe").lines
    assert told == ["lock papers/txe: paused; no task has it now, or waits for it"]
    arkqueue("resume", "--lock", "papers/txe")
    assert arkqueue("pause", "--lock", "papers/tex", "--reason", "the licence").lines == ["lock papers/tex: paused"]
    assert [row.split()[3:6] for row in arkqueue("archive", "list").lines[1:3]] == [
        ["watched", "/srv/books"],
        ["watched,", "lock", "paused"],
    ]
    arkqueue("pause", "--lock", "global/printer", "--reason", "no paper")
    told = [re.sub(r"since .* by", "since then by", line) for line in arkqueue("archive", "list").lines[3:]]
    assert told == [
        "the lock global/printer is paused since then by root (first token): no paper",
        "the lock papers/tex is paused since then by root (first token): the licence",
    ]
    shown = arkqueue("archive", "show", "papers").out
    assert "the lock papers/tex is paused since" in shown
    assert "No task that names it starts until: arkqueue resume --lock papers/tex" in shown
    assert "No task that names it starts until: arkqueue resume --lock global/printer" in shown
    done = arkqueue("status")
    assert done.code == 1
    assert [line.strip() for line in done.lines if "resume --lock" in line] == [
        "arkqueue resume --lock global/printer",
        "arkqueue resume --lock papers/tex",
    ]
    assert "held     papers/tex: the lock is paused since" in done.out
    for name in ("global/printer", "papers/tex"):
        arkqueue("resume", "--lock", name)
    assert "lock" not in arkqueue("archive", "list").out + arkqueue("status").out


def test_everything_is_paused_and_resumed(arkqueue: Cli, session: Session) -> None:
    an_archive(session)
    assert arkqueue("pause").code == 2
    assert arkqueue("pause", "papers", "--all").code == 2
    assert arkqueue("pause", "--all", "--reason", "an upgrade").lines == ["the whole installation: paused"]
    assert "the whole installation is paused since" in arkqueue("archive", "show", "papers").out
    an_archive(session, "books")
    _, *rows, told = arkqueue("archive", "list").lines
    assert [row.split()[3] for row in rows] == ["paused", "paused"]
    assert told.startswith("the whole installation is paused since")
    assert "arkqueue resume --all" in arkqueue("resume", "papers").err
    assert arkqueue("resume", "--all").lines == ["the whole installation: resumed"]
    assert arkqueue("archive", "list").lines[1].split()[3] == "watched"


def test_a_task_manager_is_drained_and_goes_on(arkqueue: Cli, session: Session) -> None:
    claim.register(session, PROCESS, HOST, "build-1", 4)
    archive = an_archive(session)
    archive.commit({"a": ""})
    archive.claim()
    assert arkqueue("drain", "--worker", "build-1", "--reason", "a new disk").lines == [
        "build-1: drained; 1 task goes on"
    ]
    assert arkqueue("resume", "--worker", "build-1").lines == ["build-1: resumed"]
    assert arkqueue("resume", "--worker", "build-1").code == 1


def test_the_end_of_a_pause_has_a_reason_too(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "lock: tex"})
    claim.register(session, PROCESS, HOST, "build-1", 4)
    for what in (["papers"], ["--lock", "papers/tex"], ["--all"]):
        assert arkqueue("pause", *what).code == 0
        assert arkqueue("resume", *what, "--reason", "it is mended").code == 0
    arkqueue("drain", "--worker", "build-1")
    assert arkqueue("resume", "--worker", "build-1", "--reason", "a new disk").code == 0
    notes = archive.sql("select note from deed where verb = 'resume' order by id")
    expected = ["it is mended", "--lock tex it is mended", "--all it is mended", f"build-1 ({HOST}): a new disk"]
    assert [row["note"] for row in notes] == expected
