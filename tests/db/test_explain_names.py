"""What explains a name: a run as a whole, and an archive, a revision or a task that is not there."""

from __future__ import annotations

import re

import pytest

from arkqueue.db.session import Session
from arkqueue.errors import NotFound
from arkqueue.model import ArchiveId, Fault, Workflow
from arkqueue.queue import archives
from arkqueue.views.explain import explain_name
from arkqueue.views.reasons import Why
from tests.builders import a_workflow, an_archive, faulty
from tests.db.ends import rewind
from tests.db.explanations import a_task_manager, kinds, why


def test_revision_that_is_not_in_the_ledger_yet(session: Session) -> None:
    archive = an_archive(session)
    archives.notify(session, [ArchiveId(archive.id)], "5")
    told = explain_name(session, "papers@5/index")
    assert (told.state, kinds(told)) == (None, [Why.NOT_IN_LEDGER])
    assert "Revision 5 is not in the ledger of papers; the newest is 1" in told.text
    assert "named revision 5, and the queue manager looks for it" in told.text
    assert told.commands == ["arkqueue sync papers"]


def test_archive_that_is_stopped(session: Session) -> None:
    archive = an_archive(session)
    archives.stop(session, ArchiveId(archive.id), "it has another UUID")
    told = explain_name(session, "papers@5/index")
    assert kinds(told) == [Why.ARCHIVE_STOPPED, Why.NOT_IN_LEDGER]
    assert told.commands == ["arkqueue sync papers", "arkqueue archive rewind papers REV"]


def test_archive_that_cannot_be_read(session: Session) -> None:
    archive = an_archive(session)
    archives.read_failed(session, ArchiveId(archive.id), "the server does not answer.", 30.0)
    told = explain_name(session, "papers@5")
    assert kinds(told) == [Why.ARCHIVE_TROUBLE, Why.NOT_IN_LEDGER]
    assert "the server does not answer. The next try is at" in told.text


def test_run_with_faults(session: Session) -> None:
    archive = an_archive(session)
    archive.commit(faulty())
    for name in ("papers@2", "papers@2/index"):
        told = explain_name(session, name)
        assert kinds(told) == [Why.FAULTS]
        assert "_workflows/test.yaml:1:1: a fault" in told.text
        assert told.commands == ["arkqueue show papers@2"]


def test_many_faults_are_counted(session: Session) -> None:
    archive = an_archive(session)
    archive.commit(Workflow(faults=(Fault("_workflows/a.yaml", 0, 0, "is no YAML"), Fault("b", 1, 1, "x"))))
    assert "_workflows/a.yaml: is no YAML (and 1 more)" in explain_name(session, "papers@2").text


def test_run_tells_what_its_tasks_wait_for(session: Session) -> None:
    archive = an_archive(session)
    a_task_manager(session)
    archive.commit({"a": "", "b": "depends: [a]"})
    archive.claim("a@2")
    told = explain_name(session, "papers@2")
    assert kinds(told) == [Why.RUNNING, Why.WAITS_FOR_RUNNING]
    assert "papers@2/b: It waits for papers@2/a" in told.text
    archive.run("a@2", "b@2")
    told = explain_name(session, "papers@2")
    assert kinds(told) == [Why.COMPLETED]
    assert told.text == "All of its 2 tasks are settled."
    archive.commit({"a": "", "b": "", "c": ""})
    archive.run("a@3")
    archive.fail("b@3")
    archive.end("c@3", 65)
    told = explain_name(session, "papers@3")
    assert kinds(told) == [Why.COMPLETED, Why.FAILED, Why.REJECTED]
    assert "papers@3/b: It failed" in told.text
    assert "arkqueue retry papers@3/b" in told.commands
    archive.skip("b@3")
    assert kinds(explain_name(session, "papers@3")) == [Why.COMPLETED, Why.REJECTED]
    archive.commit({"a": ""})
    archive.run("a@4")
    assert explain_name(session, "papers@4").text == "Its task is settled."


def test_a_run_with_more_reasons_or_tasks_than_are_told_says_so(session: Session) -> None:
    archive = an_archive(session)
    a_task_manager(session)
    names = [f"t{n:03}" for n in range(101)]
    archive.commit(dict.fromkeys(names, ""))
    archive.fail(*(f"{name}@2" for name in names[:21]))
    told = explain_name(session, "papers@2")
    assert len(told.reasons) == 21
    assert told.reasons[-1].text == "These are the first 20 reasons; there are more."
    assert told.commands[-1] == "arkqueue show papers@2"
    archive.fail(*(f"{name}@2" for name in names[21:]))
    told = explain_name(session, "papers@2")
    assert (
        told.reasons[-1].text
        == "These are the first 20 reasons; there are more. Only the first 100 failed tasks are explained."
    )
    archive.commit(dict.fromkeys(names, 'depends: ["t000"]') | {"t000": "", "REPORT": "command: ./send"})
    told = explain_name(session, "papers@3")
    assert [told.reasons[-1].kind, told.reasons[-1].text] == [
        Why.MORE,
        "Only the first 100 unsettled tasks are explained.",
    ]
    assert "at least 100 are not" in why(archive, "REPORT@3").text


def test_a_run_whose_report_is_not_sent_yet_says_why(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "REPORT": "command: ./send"})
    assert "REPORT" not in explain_name(session, "papers@2").text
    archive.run("a@2")
    told = explain_name(session, "papers@2")
    assert told.text.startswith("Its task is settled.\npapers@2/REPORT: It is ready, but no task manager is running")
    assert kinds(told) == [Why.COMPLETED, Why.NO_TASK_MANAGER]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ("paths: [docs/]", "No file that revision 2 changed matches its paths: docs/"),
        ("on: [manual]", "It does not run on commits (its on: manual)"),
        ("branches: ['release/*']", "The branch main does not match its branches: release/*"),
    ],
)
def test_task_that_a_filter_left_out(session: Session, fields: str, text: str) -> None:
    archive = an_archive(session, branches=("main",))
    archive.commit({"a": fields, "b": ""}, branch="main", changed=["src/x"])
    told = explain_name(session, "papers@2/a")
    assert kinds(told) == [Why.LEFT_OUT]
    assert text in told.text
    assert told.commands == (["arkqueue trigger papers --revision 2 a"] if "branches" not in fields else [])


def test_task_that_a_further_run_does_not_have(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "on: [commit, manual]", "c": "on: schedule\nschedule: 0 3 * * *"})
    archive.trigger(2, "b")
    told = explain_name(session, "papers@2.2/a")
    assert told.text == "papers@2.2 has no task a. That run was made by hand, for other tasks only: b."
    assert told.commands == ["arkqueue trigger papers --revision 2 a"]
    assert "It does not run by hand (its on: schedule)." in explain_name(session, "papers@2.2/c").text
    assert "It does not run on commits (its on: schedule)." in explain_name(session, "papers@2/c").text
    with pytest.raises(NotFound, match=r"does not exist: this revision has no run 99\. The newest is 2\."):
        explain_name(session, "papers@2.99/a")


def test_revision_that_a_notice_named_is_looked_for(session: Session) -> None:
    archives.notify(session, [ArchiveId(an_archive(session).id)], "17")
    text = explain_name(session, "papers@17/a").text
    assert re.search(
        r" A notice at \d{4}-\d\d-\d\d \S+ UTC named revision 17, and the queue manager looks for it\.", text
    ), text


def test_task_of_the_baseline(session: Session) -> None:
    archive = an_archive(session)
    archive.commit(a_workflow("- {name: a, command: b}"))
    archive.sql("update revision set workflow_id = (select max(workflow_id) from revision)")
    assert "where the ledger starts" in explain_name(session, "papers@1/a").text


def test_task_that_nobody_defined_is_not_found(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"index": ""})
    with pytest.raises(NotFound, match="Did you mean index"):
        explain_name(session, "papers@2/indx")
    with pytest.raises(NotFound, match="The nearest: 1"):
        explain_name(session, "papers@0/index")


def test_tasks_that_failed_in_the_same_way_at_the_same_time_are_all_explained(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "", "c": ""})
    archive.run("c@2")
    archive.fail("a@2", "b@2")
    archive.sql("update task set settled_at = now() where state = 'failed'")
    told = explain_name(session, "papers@2")
    for name in ("papers@2/a", "papers@2/b"):
        assert f"{name}: It failed" in told.text
        assert f"arkqueue retry {name}" in told.commands


def test_a_revision_that_a_rewound_ledger_never_had_is_waited_for_by_nobody(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    rewind(archive)
    told = explain_name(session, "papers:rewound~1@3/a")
    assert (
        told.text
        == "Revision 3 is not in this earlier ledger of papers, to which nothing is added any more; the newest is 2."
    )
    assert told.commands == []
