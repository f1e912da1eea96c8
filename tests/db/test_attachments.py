"""Attachments of submissions (design 5.31): all tasks of the run go to the host of the attachments,
and the attachments are removed with the run.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from arkqueue.db.session import Session
from arkqueue.errors import Conflict, Invalid
from arkqueue.model import ArchiveId, Attachment, RunId
from arkqueue.queue import attachments, deletion, planning, purge, submissions
from arkqueue.queue.attachments import Begun
from arkqueue.queue.export import Export
from arkqueue.views.doctor import examine
from arkqueue.views.explain import explain
from arkqueue.views.reasons import Why
from arkqueue.views.status import status
from tests.builders import AnArchive, an_archive
from tests.db.portions import make_portions_small
from tests.db.test_races import Connect, InThread, wait_until_blocked
from tests.db.test_scratch import Host


def test_every_task_of_the_run_is_claimed_where_the_attachments_are(archive: AnArchive, session: Session) -> None:
    here, there = Host(session, "here", "gpu"), Host(session, "there", "gpu")
    archive.commit(
        {"check": "on: submission", "deposit": "foreach: submission\nruns_on: gpu\ndepends: [check]", "build": ""}
    )
    archive.submit('["a", "b"]', sender_id="x", store="here")
    archive.submit('["c"]')
    assert set(there.complete()) == {"build", "check"}
    assert there.complete() == ["deposit/c"], "of the submission without attachments"
    assert here.complete() == ["check"]
    assert there.claims() == []
    assert set(here.complete()) == {"deposit/a", "deposit/b"}
    assert examine(session).findings == []


def test_a_scratch_folder_is_where_the_attachments_are(archive: AnArchive, session: Session) -> None:
    here, there = Host(session, "here"), Host(session, "there")
    archive.commit({"fetch": "on: submission\nscratch: run", "next": "on: submission\nscratch: run\ndepends: [fetch]"})
    archive.submit(sender_id="x", store="here")
    assert there.claims() == []
    claimed = here.claim()["fetch"]
    assert here.take(claimed) == "here"
    here.end(claimed.attempt)
    assert there.claims() == []
    assert here.complete() == ["next"]
    assert examine(session).findings == []


def test_a_large_run_that_is_planned_in_portions_is_bound_too(
    archive: AnArchive, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_portions_small(monkeypatch, 20)
    here, there = Host(session, "here"), Host(session, "there")
    archive.commit({"deposit": "foreach: submission"})
    archive.submit(json.dumps([f"item-{n}" for n in range(40)]), sender_id="x", store="here")
    planner = planning.Planner(session)
    while planner.turn() is not None:
        pass
    assert there.claims() == []
    assert len(here.complete(slots=100)) == 40


def test_explain_names_the_host_that_is_waited_for(archive: AnArchive, session: Session) -> None:
    here, _ = Host(session, "here"), Host(session, "there")
    archive.commit({"check": "on: submission"})
    archive.submit(sender_id="x", store="here")
    archive.sql("update task_manager set seen_at = seen_at - interval '1 hour' where process = %s", here.process)
    reason = explain(session, archive.task("check@2.2")).reasons[0]
    assert reason.kind is Why.NO_SCRATCH
    assert "the attachments of its run are on machine-here" in reason.text


def test_no_retry_is_named_after_the_attachments_were_removed(archive: AnArchive, session: Session) -> None:
    here = Host(session, "here")
    archive.commit({"check": "on: submission"})
    run = RunId(archive.submit(sender_id="x", store="here"))
    here.end(here.claim()["check"].attempt, code=1)
    task = archive.task("check@2.2")
    again = "arkqueue retry papers@2.2/check"
    assert again in explain(session, task).commands
    deletion.delete_run(session, run, "ann")
    folders = [row["folder"] for row in archive.sql("select folder from upload")]
    assert attachments.unneeded(session, folders).folders == {*folders}
    deletion.undelete_run(session, run, "ann")
    told = explain(session, task)
    assert "Its run was deleted meanwhile, which removed the attachments: no retry can succeed." in told.text
    assert told.commands == ["arkqueue logs papers@2.2/check", "arkqueue skip papers@2.2/check"]
    (need,) = status(session, None, None, lease=30.0).needs
    assert need.command == "arkqueue explain papers@2.2/check"


def test_a_purge_forgets_them_and_an_export_lists_them(archive: AnArchive, session: Session, tmp_path: Path) -> None:
    here = Host(session, "here")
    archive.commit({"check": "on: submission"})
    run = archive.submit(sender_id="x", store="here")
    handed = submissions.handed(session, archive.task("check@2.2"))
    assert handed is not None
    assert handed.attached is not None
    assert here.complete() == ["check"]
    with (tmp_path / "export").open("w") as file:
        assert purge.purge_runs(session, [RunId(run)], "ann", "old", Export(file)).runs == ["papers@2.2"]
    lines = [json.loads(line) for line in (tmp_path / "export").read_text().splitlines()]
    (told,) = [line for line in lines if line["kind"] == "submission"]
    assert told["attachments"] == [{"name": "a.tif", "size": 3, "digest": "0" * 64}]
    assert archive.sql("select * from upload") == []
    assert archive.sql("select attachments is not null as kept from submission") == [{"kept": True}]


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, "there are none; name a file"), (10_001, "there are 10,001; a submission has at most 10,000")],
)
def test_an_upload_has_some_attachments(archive: AnArchive, session: Session, count: int, said: str) -> None:
    files = [Attachment(f"{n}.tif", 1, "0" * 64) for n in range(count)]
    with pytest.raises(Invalid, match=said):
        attachments.begin(session, ArchiveId(archive.id), archive.name, "x", files, "here", "ann", most=10**6, room=0)


def test_two_archives_that_begin_uploads_at_once_do_not_both_take_the_room_that_is_left(
    archive: AnArchive, session: Session, second_connection: Connect
) -> None:
    """The first has stored its upload and has not committed it when the second asks how much room there is."""
    other = an_archive(session, "other")
    file = Attachment("a.tif", 60, "0" * 64)

    def begin(one: AnArchive) -> Begun:
        return attachments.begin(session, ArchiveId(one.id), one.name, "x", [file], "here", "ann", most=100, room=100)

    holder, watcher = second_connection(), second_connection()
    with holder.transaction():
        holder.execute("lock attachment in share mode")
        first = InThread(lambda: begin(archive))
        wait_until_blocked(watcher)
        second = InThread(lambda: begin(other))
        wait_until_blocked(watcher, 2)
    assert first.result().is_new
    with pytest.raises(
        Conflict, match=r"other@id:x: need 60 bytes, but the store.s attachments and scratch folders take 60 of the 100"
    ):
        second.result()
    assert archive.sql("select sum(size)::int as n from upload") == [{"n": 60}]


def test_doctor_names_what_was_left_and_what_takes_room(archive: AnArchive, session: Session) -> None:
    Host(session, "here", limit=2)
    archive.commit({"check": "on: submission"})
    archive.submit(sender_id="x", store="here")
    (finding,) = examine(session).findings
    assert (finding.check, finding.name) == ("scratch-limit", "papers@2.2")
    assert "its attachments take 3 bytes on machine-here, where all of them take 3 bytes and scratch_limit is 2 bytes" in finding.what  # fmt: skip
    archive.upload("left", "gone")
    archive.sql("update upload set continued_at = continued_at - interval '26 hours' where sender_id = 'left'")
    found = {finding.check: finding.what for finding in examine(session).findings}
    assert found.keys() == {"scratch-limit", "attachments"}
    assert "of 'left', 1 files with 3 bytes, was continued last at" in found["attachments"]
    archive.sql("delete from upload where sender_id = 'left'")
    archive.sql("update task_manager set scratch_limit = null")
