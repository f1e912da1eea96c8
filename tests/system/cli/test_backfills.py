"""Backfills on the command line: made by ``trigger --from``, shown, and acted on by their name."""

from __future__ import annotations

import pytest

from arkqueue.db.session import Session
from arkqueue.queue import backfill
from tests.builders import AnArchive, no_lists
from tests.system.cli.conftest import Cli
from tests.system.web.test_backfills import archive

__all__ = ["archive"]


def test_a_backfill_is_made_and_its_name_alone_is_on_stdout(arkqueue: Cli, archive: AnArchive) -> None:
    tried = arkqueue("trigger", "papers", "thumbs", "--from", "2", "--dry-run")
    what = "papers@fill:1: thumbs at 4 revisions from 2 to 5, with the workflow files of papers@6\n"
    what += "Its first run would be:\npapers@2.2: 1 task\n  thumbs\n"
    what += "  No task manager is running: no task starts. To change that: arkqueue worker\n"
    assert (tried.code, tried.out, tried.err) == (0, "", what + "Nothing is made.\n")
    made = arkqueue("trigger", "papers", "thumbs", "--from", "2")
    assert (made.code, made.out, made.err) == (0, "papers@fill:1\n", what)
    assert "  backfill    papers@fill:1, with the workflow files of revision 6" in arkqueue("show", "papers@3.2").lines
    assert archive.states()["thumbs@2.2"] == "ready"


def test_counts_come_first_then_what_failed_and_what_can_run(arkqueue: Cli, archive: AnArchive) -> None:
    arkqueue("trigger", "papers", "thumbs", "--from", "2")
    archive.fail("thumbs@2.2")
    archive.run("thumbs@3.2")
    shown = arkqueue("show", "papers@fill:1").lines
    assert [line.split("  ")[-1].strip() for line in shown if line.startswith(("  done", "  left"))] == [
        "1 completed, 1 failed",
        "2 waiting",
    ]
    assert [line.split()[0] for line in shown[-5:] if line] == ["FAILED", "papers@2.2", "NOW", "papers@4.2"]
    assert arkqueue("show", "papers@fill:1", "--json").json["counts"]["failed"] == 1
    archive.skip("thumbs@2.2")
    assert any(line.endswith("  1 completed, 1 failed, waived") for line in arkqueue("show", "papers@fill:1").lines)


def test_a_backfill_that_waits_for_its_repository_says_so(arkqueue: Cli, archive: AnArchive) -> None:
    arkqueue("trigger", "papers", "thumbs", "--from", "2")
    assert not [line for line in arkqueue("show", "papers@fill:1").lines if line.startswith("  waits")]
    archive.sql("update backfill set next = 4, waits = 'it hangs', waits_since = clock_timestamp()")
    (waits,) = [line for line in arkqueue("show", "papers@fill:1").lines if line.startswith("  waits")]
    assert waits.endswith(": its lists cannot be read: it hangs")
    assert arkqueue("show", "papers@fill:1", "--json").json["waits"] == "its lists cannot be read: it hangs"


def test_all_of_a_backfill_is_held_released_prioritized_and_canceled(
    arkqueue: Cli, archive: AnArchive, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The server of these tests runs no queue manager, so the rest is not planned meanwhile.
    monkeypatch.setattr(backfill, "FIRST_STEP", 2)
    monkeypatch.setattr(backfill, "STEP", 2)
    assert arkqueue("trigger", "papers", "thumbs", "--from", "2").code == 0
    assert (
        arkqueue("hold", "papers@fill:1", "--reason", "why", "--dry-run").lines[0] == "Nothing is changed. It would be:"
    )
    assert arkqueue("hold", "papers@fill:1", "--reason", "why").lines == [
        "papers@fill:1: 2 tasks held",
        "what is still to be planned of it is treated alike",
    ]
    assert (
        "  held        until it is released; what is still to be planned is held, too"
        in arkqueue("show", "papers@fill:1").lines
    )
    assert backfill.plan(session, no_lists) is not None
    assert arkqueue("release", "papers@fill:1").lines == ["papers@fill:1: 4 tasks released"]
    assert arkqueue("prioritize", "papers@fill:1", "300").lines == ["papers@fill:1: 4 tasks given this priority"]
    assert arkqueue("cancel", "papers@fill:1").lines == ["papers@fill:1: 4 tasks canceled or asked to stop"]
    again = arkqueue("cancel", "papers@fill:1")
    assert (again.code, again.err) == (1, "arkqueue: papers@fill:1: has nothing left to cancel\n")
    assert {archive.state(f"thumbs@{number}.2") for number in range(2, 6)} == {"canceled"}


@pytest.mark.usefixtures("archive")
def test_what_cannot_be_is_told(arkqueue: Cli) -> None:
    for words, code, said in (
        (["trigger", "papers", "--from", "2"], 2, "name the tasks that are to run over old revisions"),
        (["trigger", "papers", "thumbs", "--to", "2"], 2, "--to needs --from"),
        (["trigger", "papers", "thumbs", "--from", "2", "--revision", "3"], 2, "--revision and --from do not go together"),
        (["trigger", "papers", "thumbs", "--from", "2", "--wait"], 2, "--wait waits for one run"),
        (["trigger", "papers", "thumb", "--from", "2"], 2, "id you mean thumbs?"),
        (["show", "papers@fill:7"], 1, "papers@fill:7: does not exist. The archive has none."),
        (["retry", "papers@fill:1"], 2, "is the name of a backfill, and retry is for its runs"),
        (["logs", "papers@fill:1/thumbs"], 2, "is the name of a backfill, and here one of its runs is wanted"),
    ):  # fmt: skip
        done = arkqueue(*words)
        assert (done.code, said in done.err) == (code, True), done.err
        assert "Traceback" not in done.err
