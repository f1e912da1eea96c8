"""What the overview says first: running tasks that hang, task managers by their names with what helps; and of each archive what waits, and why."""

from __future__ import annotations

import httpx
import pytest

from arkqueue.db.session import Session
from arkqueue.queue import claim
from arkqueue.queue.tokens import Scope
from tests.builders import HOST, PROCESS, AnArchive, an_archive
from tests.system.pages.conftest import Visitors, confirm, first, form_of, said


@pytest.fixture
def archive(session: Session) -> AnArchive:
    claim.register(session, PROCESS, HOST, "node2", 4)
    return an_archive(session)


def needs(browser: httpx.Client) -> list[tuple[str, str, str]]:
    page = browser.get("/?format=json").json()
    return [(need["name"], need["text"], need["verb"]) for need in page["needs"]]


def took(archive: AnArchive, number: int, length: str) -> None:
    """A completed task began so much earlier than it ended."""
    archive.run(f"pdf@{number}")
    archive.sql(
        "update attempt set started_at = ended_at - %s::interval where id = (select attempt_id from task where id = %s)",
        length, archive.task(f"pdf@{number}"),
    )  # fmt: skip


def started(archive: AnArchive, key: str, ago: str) -> None:
    """A task runs since so long."""
    archive.sql("update attempt set started_at = clock_timestamp() - %s::interval where id = %s", ago, archive.attempt(key))  # fmt: skip


def test_a_task_that_runs_far_longer_than_usual_needs_a_person(operator: httpx.Client, archive: AnArchive) -> None:
    for number in (2, 3, 4):
        archive.commit({"pdf": ""})
        took(archive, number, "4 minutes")
    archive.commit({"pdf": "", "new": ""})
    started(archive, "new@5", "3 hours")  # nobody knows how long it takes
    started(archive, "pdf@5", "13 minutes")  # three times as long, and not ten minutes longer
    assert needs(operator) == []
    started(archive, "pdf@5", "30 minutes")
    ((name, text, verb),) = needs(operator)
    assert (name, verb) == ("papers@5/pdf", "restart")
    assert text.startswith("runs on node2 for 30:0")
    assert text.endswith("and takes about 4:00 usually")
    page = first(operator, "papers@5/pdf", "restart")
    assert "1 task would be stopped papers@5/pdf" in said(page)
    confirm(operator, page)
    assert archive.sql("select stop from task where id = %s", archive.task("pdf@5"))[0]["stop"] == "restart"


def test_a_short_task_may_take_some_minutes_longer(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"pdf": ""})
    took(archive, 2, "1 second")
    archive.commit({"pdf": ""})
    started(archive, "pdf@3", "9 minutes")
    assert needs(operator) == []


def test_a_task_whose_task_manager_is_silent_needs_a_person(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"pdf": ""})
    archive.claim("pdf@2")
    assert needs(operator) == []
    archive.sql("update task_manager set seen_at = now() - interval '5 minutes'")
    ((name, text, verb),) = needs(operator)
    assert (name, verb) == ("papers@2/pdf", "")
    assert text == "runs on node2, whose task manager was heard last 5 min ago"
    assert ">Show it</a>" in operator.get("/").text


def test_who_may_not_see_an_archive_learns_nothing_of_what_hangs(
    visitor: Visitors, session: Session, archive: AnArchive
) -> None:
    archive.commit({"pdf": ""})
    archive.claim("pdf@2")
    archive.sql("update task_manager set seen_at = now() - interval '5 minutes'")
    an_archive(session, "vault")
    page = visitor(Scope.OPERATE, "vault").get("/")
    assert "papers" not in page.text
    assert "node2" not in page.text


def test_a_task_manager_with_a_full_disk_has_its_name(
    operator: httpx.Client, visitor: Visitors, archive: AnArchive
) -> None:
    archive.sql("update task_manager set low_disk = '/srv/scratch'")
    words = said(operator.get("/"))
    assert "task manager node2 claims nothing: /srv/scratch has less room than min_free" in words
    assert 'href="/-/task-managers">Show it' in operator.get("/").text
    assert "node2" not in visitor(Scope.OPERATE, "papers").get("/").text


def test_what_is_wrong_with_the_installation_has_a_button_that_helps(
    operator: httpx.Client, archive: AnArchive
) -> None:
    archive.commit({"pdf": ""})
    page = operator.get("/-/task-managers")
    drain = {"form": form_of(page), "name": "node2", "text": "new disks", "back": "/"}
    assert operator.post("/-/act/drain", data=drain).status_code == 303
    page = operator.get("/")
    assert "task manager node2 is drained by operate test: new disks" in said(page)
    undrain = {"form": form_of(page), "name": "node2", "back": "/"}
    assert 'action="/-/act/undrain"' in page.text
    assert operator.post("/-/act/undrain", data=undrain).headers["location"] == "/"
    assert "drained" not in said(operator.get("/"))
    assert operator.post("/-/act/pause-all", data={"form": form_of(page), "back": "/"}).status_code == 303
    page = operator.get("/")
    assert "the whole installation is paused" in said(page)
    assert operator.post("/-/act/resume-all", data={"form": form_of(page), "back": "/"}).status_code == 303
    assert "paused" not in said(operator.get("/"))


def test_each_archive_says_what_waits_and_why(operator: httpx.Client, session: Session, archive: AnArchive) -> None:
    def line(name: str) -> tuple[str, str]:
        (found,) = [one for one in operator.get("/?format=json").json()["lines"] if one["archive"]["name"] == name]
        return found["now"], found["wait"]

    archive.commit({"index": "depends: [PREV]", "pdf": "depends: [index]", "upload": "depends: [pdf]"})
    assert line("papers") == ("1 run waiting", "pdf waits for index")
    archive.claim("index@2")
    assert line("papers") == ("1 running", "pdf waits for index")
    archive.fail("index@2")
    archive.commit({"index": "depends: [PREV]"})
    assert line("papers") == ("1 run waiting", "index waits for 2/index (failed)")
    other = an_archive(session, "maps")
    other.commit({"sign": "hold: true", "print": "depends: [sign]"})
    assert line("maps") == ("1 held", "print waits for sign (held)")
    other.skip("sign@2")
    assert line("maps")[1] == ""
