"""Holds, releases and guards from the command line (design 5.21, 5.22)."""

from __future__ import annotations

from arkqueue.db.session import Session
from tests.builders import an_archive
from tests.system.cli.conftest import Cli


def test_show_names_the_release_of_everything_and_what_it_skipped_as_out_of_date(
    arkqueue: Cli, session: Session
) -> None:
    archive = an_archive(session)
    arkqueue("hold", "papers", "--reason", "a new disk")
    archive.commit({"upload": "", "other": ""})
    arkqueue("unhold", "papers")
    archive.commit({"upload": ""})
    archive.run("upload@3")
    assert "hold papers a new disk" in arkqueue("show", "papers@2/other").out
    assert arkqueue("release", "papers", "--all", "--skip-outdated", "--reason", "it is built in").code == 0
    assert "release papers --all it is built in" in arkqueue("show", "papers@2/other").out
    skipped = "as out of date: release papers --all --skip-outdated"
    assert f"skip upload {skipped}" in arkqueue("show", "papers@2/upload").out
    run = arkqueue("show", "papers@2").out
    assert "release papers --all it is built in" in run
    assert f"skip upload {skipped}" in run


def test_a_run_that_waits_for_the_release_of_its_report_says_so(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "REPORT": "command: ./send\nhold: true"})
    assert arkqueue("runs", "--state", "held").lines == []
    assert "papers@2/REPORT: It is held by its workflow file" in arkqueue("explain", "papers@2").out
    archive.run("a@2")
    (row,) = [line for line in arkqueue("runs", "--state", "held").lines if "papers@2" in line]
    assert "1/1, REPORT held" in row
    assert arkqueue("show", "papers@2").lines[0].split() == ["papers@2", "held"]
    explained = arkqueue("explain", "papers@2").out
    assert "Its task is settled." in explained
    assert "papers@2/REPORT: It is held by its workflow file (hold: true), until a person releases it." in explained
    assert "arkqueue release papers@2/REPORT" in explained
    archive.commit({"a": "", "REPORT": "command: ./send\nhold: true"})
    archive.fail("a@3")
    assert "0/1, 1 failed, REPORT held" in arkqueue("runs").out, "the state is that of the other tasks"
    assert arkqueue("release", "papers@2").code == 0
    assert arkqueue("show", "papers@2").lines[0].split() == ["papers@2", "reporting"]
