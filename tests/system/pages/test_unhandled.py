"""A failure is unhandled on all pages alike: in the grid, on the pages of its run and its author, in
the title of the tab and on the overview. The keys `j` and `k` go to these failures alone.
"""

from __future__ import annotations

import html
import re

import httpx
import pytest

from arkqueue.db.session import Session
from arkqueue.model import End, Outcome, RunId
from arkqueue.queue import archives, control, deletion, finish
from tests.builders import PROCESS, AnArchive, an_archive, faulty
from tests.db.test_backfills import an_old_archive, fill, plan_all
from tests.system.pages.conftest import said

ALARM = re.compile(r'<a (?=[^>]*class="[^"]*\balarm\b)[^>]*href="/([^"]*)"')
NAMES = ("fixed", "known", "spared", "wrong")


def alarms(browser: httpx.Client, address: str) -> set[str]:
    """The links of a page to which `j` and `k` go."""
    page = browser.get(address)
    assert page.status_code == 200, page.text
    return set(ALARM.findall(page.text.partition("<main")[2]))


def is_alarm(browser: httpx.Client, task: str) -> bool:
    """Whether `j` and `k` go to the heading of the page of a task."""
    heading, alarm = f">{task}</h1>", ' class="alarm" tabindex="-1"'
    page = browser.get(f"/{task}").text
    assert heading in page
    return f"<h1{alarm}{heading}" in page


def note(archive: AnArchive, key: str, number: int, run: int = 1) -> None:
    control.note(archive.session, "the disk", "ann", run=RunId(archive.run_id(number, run)), task=archive.task(key))


@pytest.fixture
def archive(session: Session) -> AnArchive:
    """Four failures: one that a later revision repairs, one with a note, a waived and a plain one."""
    archive = an_archive(session)
    archive.commit(dict.fromkeys(NAMES, ""), author="Dee <dee@example.org>")
    archive.fail(*(f"{name}@2" for name in NAMES))
    archive.skip("spared@2")
    note(archive, "known@2", 2)
    archive.commit(dict.fromkeys(NAMES, ""))
    archive.run("fixed@3")
    return archive


@pytest.mark.usefixtures("archive")
def test_a_failure_that_somebody_or_a_later_revision_has_handled_is_passed_over_on_every_page(
    operator: httpx.Client,
) -> None:
    for address in ("/", "/papers", "/papers@2", "/-/mine?author=dee"):
        assert alarms(operator, address) == {"papers@2/wrong"}, address
    assert alarms(operator, "/-/search?author=dee") == {"papers@2"}
    assert [name for name in NAMES if is_alarm(operator, f"papers@2/{name}")] == ["wrong"]
    assert "<title>(1) papers" in operator.get("/papers").text
    assert [need["name"] for need in operator.get("/?format=json").json()["needs"]] == ["papers@2/wrong"]
    assert "known, wrong" in operator.get("/papers@2").text, "what failed is said all the same"


def test_a_run_without_unhandled_failures_is_passed_over(operator: httpx.Client, archive: AnArchive) -> None:
    note(archive, "wrong@2", 2)
    for address in ("/", "/papers", "/papers@2", "/-/mine?author=dee", "/-/search?author=dee"):
        assert alarms(operator, address) == set(), address


def test_each_item_of_a_list_is_handled_by_itself(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"check": "foreach: [a, b, c]"}, author="Dee <dee@example.org>")
    archive.fail("check/a@2", "check/b@2")
    note(archive, "check/a@2", 2)
    for address in ("/papers@2", "/papers@2?list=check&state=failed"):
        assert alarms(operator, address) == {"papers@2/check/b"}, address
    assert alarms(operator, "/papers@2/*/a") == set()
    assert alarms(operator, "/papers@2/*/b") == {"papers@2/check/b"}
    for address in ("/papers", "/-/mine?author=dee"):
        assert alarms(operator, address) == {"papers@2/check/b"}, address
    assert "papers@2/check/b failed" in operator.get("/papers").text, "the sentence is on the same item"
    note(archive, "check/b@2", 2)
    for address in ("/papers", "/-/mine?author=dee"):
        assert alarms(operator, address) == set(), address
    assert 'href="/papers@2/check/a"' in operator.get("/papers").text


def test_a_list_leads_to_a_failure_that_can_be_retried_before_one_that_was_rejected(
    operator: httpx.Client, session: Session
) -> None:
    archive = an_archive(session)
    archive.commit({"check": "foreach: [a, b, c]"}, author="Dee <dee@example.org>")
    archive.end("check/a@2", 65)
    archive.fail("check/b@2")
    for address in ("/papers", "/-/mine?author=dee"):
        assert alarms(operator, address) == {"papers@2/check/b"}, address
    assert ">Retry</button>" in operator.get("/papers").text
    note(archive, "check/b@2", 2)
    for address in ("/papers", "/-/mine?author=dee"):
        assert alarms(operator, address) == {"papers@2/check/a"}, address


def test_a_long_run_leads_to_its_first_unhandled_failure(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({f"t{number}": "" for number in range(30)})
    archive.fail("t17@2", "t21@2")
    note(archive, "t17@2", 2)
    assert "<u>Look at t21</u>" in operator.get("/papers@2").text
    note(archive, "t21@2", 2)
    assert "<u>Look at t17</u>" in operator.get("/papers@2").text


def test_every_failure_has_a_mark_however_many_there_are(
    operator: httpx.Client, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arkqueue.web.pages.archive.ROWS", 5)
    archive = an_archive(session)
    for _ in range(11):
        archive.commit({f"t{number}": "" for number in range(50)})
    claims = archive.claim_some(550)
    finish.finish(session, PROCESS, [Outcome(one.attempt, End.EXITED, 1) for one in claims])
    address, marked = "/papers", set[str]()
    for _ in range(3):
        page = operator.get(address).text
        assert "<title>(550) papers" in page
        marked |= alarms(operator, address)
        further = re.search('data-earlier="([^"]*)"', page)
        address = html.unescape(further[1]) if further else ""
    assert (len(marked), address) == (550, "")
    (back,) = re.findall('data-later="([^"]*)"', page)
    assert len(alarms(operator, html.unescape(back))) == 250


def test_a_fault_of_a_workflow_file_is_handled_by_the_commit_that_fixes_it(
    operator: httpx.Client, session: Session
) -> None:
    archive = an_archive(session)
    archive.commit(faulty(), author="Dee <dee@example.org>")
    pages = ("/", "/papers", "/-/mine?author=dee", "/-/search?author=dee")
    assert [alarms(operator, address) for address in pages] == [{"papers@2"}] * 4
    on_its_own_page = '<b class="mono alarm" tabindex="-1">_workflows/test.yaml:1:1</b>'
    assert on_its_own_page in operator.get("/papers@2").text
    archive.commit({"a": ""})
    assert [alarms(operator, address) for address in pages] == [set()] * 4
    assert on_its_own_page not in operator.get("/papers@2").text


def test_failures_of_a_deleted_run_need_nobody(operator: httpx.Client, archive: AnArchive) -> None:
    deletion.delete_run(archive.session, RunId(archive.run_id(2)), "ann")
    for address in ("/", "/papers", "/papers@2", "/-/mine?author=dee"):
        assert alarms(operator, address) == set(), address


def test_the_table_of_a_run_shows_the_note_on_a_failure(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"pdf": "", "index": ""})
    archive.fail("pdf@2", "index@2")
    task = archive.task("pdf@2")
    control.note(session, "known: <disk> of node 3", "ann", run=RunId(archive.run_id(2)), task=task)
    page = operator.get("/papers@2")
    assert "failed: exit code 1 · noted by ann: known: &lt;disk&gt; of node 3" in page.text
    assert page.text.count("noted by") == 2, "in the cell and in its title"


def test_a_run_says_which_failures_a_later_revision_has_repaired_and_which_of_them_hold_up_tasks(
    operator: httpx.Client, session: Session
) -> None:
    archive = an_archive(session)
    tasks = {"index": "", "pdf": "", "upload": "depends: [pdf, PREV]", "get": "foreach: [a, b]"}
    archive.commit(tasks)
    archive.run("index@2", "pdf@2", "upload@2", "get/a@2", "get/b@2")
    archive.commit(tasks)
    archive.fail("index@3", "pdf@3", "get/a@3")
    archive.run("get/b@3")
    waivers = 'value="papers@3/pdf"><input type="hidden" name="verb" value="skip">'
    page = operator.get("/papers@3").text
    assert '<button class="b do" data-verb="retry">Retry what failed<' in page
    assert "repaired" not in page
    assert waivers not in page
    archive.commit(tasks)
    archive.run("index@4", "pdf@4", "get/a@4", "get/b@4")
    assert archive.state("upload@4") == "waiting"
    page = operator.get("/papers@3").text
    assert re.findall(r'title="(failed[^"]* · repaired[^"]*)"', page) == [
        "failed: exit code 1 · repaired by a later revision",
        "failed: exit code 1 · repaired by a later revision, but other tasks wait for it",
        "failed: exit code 1 · repaired by a later revision",
    ]
    assert waivers in page
    assert re.search(r'<button class="b *" data-verb="retry">Retry what failed<', page), "it is not filled"
    page = operator.get("/papers@3/*/a").text
    assert "repaired by a later revision" in page
    assert not re.search(r'<button class="b do" data-verb="retry">', page)
    assert alarms(operator, "/papers@3") == {"papers@3/pdf"}
    archive.skip("pdf@3")
    archive.run("upload@4")
    assert "but other tasks wait" not in operator.get("/papers@3").text
    assert alarms(operator, "/papers@3") == set()


def test_the_keys_reach_a_repaired_failure_for_which_tasks_wait_and_the_grid_offers_its_waiver(
    operator: httpx.Client, session: Session
) -> None:
    archive = an_archive(session)
    tasks = {"index": "", "pdf": "", "upload": "depends: [pdf, PREV]"}
    archive.commit(tasks)
    archive.fail("index@2", "pdf@2")
    archive.commit(tasks)
    archive.run("index@3", "pdf@3")
    assert archive.state("upload@3") == "waiting"
    page = operator.get("/papers")
    assert alarms(operator, "/papers") == alarms(operator, "/") == alarms(operator, "/papers@2") == {"papers@2/pdf"}
    assert "papers@2/pdf failed: exit code 1. It was repaired by a later revision, but other tasks wait for it." in page.text  # fmt: skip
    of_task = r'name="name" value="papers@2/{}"><input type="hidden" name="verb" value="(\w+)"'
    assert [re.findall(of_task.format(name), page.text) for name in ("index", "pdf")] == [["retry"], ["skip"]]
    assert [is_alarm(operator, f"papers@2/{name}") for name in ("index", "pdf")] == [False, True]
    assert "<title>papers" in page.text, "nobody has to look at a failure that a later revision has repaired"
    archives.stop(session, archive.id, "has another UUID")
    assert re.findall(of_task.format("pdf"), operator.get("/papers").text) == [], "the waiver would start a task"
    archives.go_on(session, archive.id, "has another UUID")
    note(archive, "pdf@2", 2)
    assert [alarms(operator, address) for address in ("/", "/papers", "/papers@2")] == [set()] * 3
    assert not is_alarm(operator, "papers@2/pdf")
    assert re.findall(of_task.format("pdf"), operator.get("/papers").text) == ["skip"]


def test_the_keys_reach_a_list_with_a_repaired_item_for_which_tasks_wait(
    operator: httpx.Client, session: Session
) -> None:
    archive = an_archive(session)
    items = ", ".join(f"i{number:03}" for number in range(101))
    tasks = {"get": f"foreach: [{items}]", "put": "depends: ['PREV:get']"}
    archive.commit(tasks)
    archive.fail("get/i001@2", "get/i002@2")
    archive.commit(tasks)
    archive.run("get/i001@3", "get/i002@3")
    assert archive.state("put@3") == "waiting"
    assert alarms(operator, "/papers") == {"papers@2/get/i001"}
    assert alarms(operator, "/papers@2") == {"papers@2?list=get"}
    assert alarms(operator, "/papers@2?list=get&state=failed") == {"papers@2/get/i001", "papers@2/get/i002"}


def test_the_repaired_items_of_a_newer_run_hide_no_failure_for_which_tasks_wait(
    operator: httpx.Client, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arkqueue.views.attention.MOST_JUDGED", 2)
    archive = an_archive(session)
    tasks = {"get": "foreach: [a, b, c]", "pdf": "", "upload": "depends: [pdf, PREV]"}
    archive.commit(tasks)
    archive.fail("pdf@2")
    archive.commit(tasks)
    archive.fail("get/a@3", "get/b@3", "get/c@3")
    archive.commit(tasks)
    archive.run("get/a@4", "get/b@4", "get/c@4", "pdf@4")
    assert archive.state("upload@4") == "waiting"
    assert alarms(operator, "/papers") == {"papers@2/pdf"}


def test_a_list_is_noted_in_the_grid_only_if_nothing_of_it_needs_a_person(
    operator: httpx.Client, session: Session
) -> None:
    archive = an_archive(session)
    archive.commit({"links": "foreach: [a, b, c]"})
    archive.fail("links/a@2", "links/b@2")
    archive.run("links/c@2")
    run = RunId(archive.run_id(2))
    control.note(session, "known", "ann", run=run, task=archive.task("links/a@2"))
    assert "1/3, 2 failed<" in operator.get("/papers").text
    control.note(session, "known", "ann", run=run, task=archive.task("links/b@2"))
    assert "1/3, 2 failed · noted<" in operator.get("/papers").text


def test_the_keys_reach_the_failures_of_a_list_of_which_a_page_shows_numbers(
    operator: httpx.Client, session: Session
) -> None:
    archive = an_archive(session)
    items = ", ".join(f"i{number:03}" for number in range(120))
    archive.commit({"links": f"foreach: [{items}]", "pages": f"foreach: [{items}]"})
    archive.fail("links/i001@2")
    assert alarms(operator, "/papers@2") == {"papers@2?list=links"}
    assert alarms(operator, "/papers@2?list=links") == {"papers@2/links/i001"}
    control.note(session, "known", "ann", run=RunId(archive.run_id(2)), task=archive.task("links/i001@2"))
    assert alarms(operator, "/papers@2") == set()


def test_the_keys_reach_a_failing_backfill_of_another_branch_that_the_page_shows(
    operator: httpx.Client, session: Session
) -> None:
    archive = an_archive(session, branches=("main", "side"))
    archive.commit(branch="main")
    archive.commit({}, branch="side")
    archive.commit({"thumbs": ""}, branch="side")
    fill(archive, 2, branch="side")
    plan_all(archive)
    (run,) = archive.sql("select number, run from run where backfill_id is not null")
    task = archive.task(f"thumbs@{run['number']}.{run['run']}", branch="side")
    archive.claim()
    archive.record(archive.running[task].attempt, End.EXITED, 1)
    assert alarms(operator, "/papers") == alarms(operator, "/papers:side") == {"papers@fill:1"}
    assert "<title>papers" in operator.get("/papers").text, "the title counts the failures of the branch"
    assert "<title>(1) papers" in operator.get("/papers:side").text


def test_failures_of_a_backfill_are_unhandled_until_they_are_noted(
    operator: httpx.Client, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = an_old_archive(session)
    archive.run("thumbs@5")  # what the head completed repairs no failure of a backfill
    fill(archive, 2, 3, force=True)
    plan_all(archive)
    archive.fail("thumbs@2.2", "thumbs@3.2")
    assert alarms(operator, "/papers@2.2") == {"papers@2.2/thumbs"}
    assert alarms(operator, "/papers@fill:1") == {"papers@2.2", "papers@3.2"}
    assert "2 of its tasks failed" in operator.get("/").text
    assert alarms(operator, "/papers") == alarms(operator, "/papers?state=unhandled") == {"papers@fill:1"}
    assert "<title>(2) papers" in operator.get("/papers").text
    fill(archive, 4, force=True)
    plan_all(archive)
    monkeypatch.setattr("arkqueue.web.pages.archive.MOST_BACKFILLS", 1)
    assert "fill:2 : 0 of 1. fill:1 : 2 failures ." in said(operator.get("/papers"))
    assert alarms(operator, "/papers") == {"papers@fill:1"}
    note(archive, "thumbs@2.2", 2, 2)
    assert "<title>(1) papers" in operator.get("/papers").text
    assert alarms(operator, "/papers@2.2") == set()
    assert alarms(operator, "/papers@fill:1") == {"papers@3.2"}
    assert "1 of its tasks failed" in operator.get("/").text
    note(archive, "thumbs@3.2", 3, 2)
    note(archive, "thumbs@3.2", 3, 2)
    assert operator.get("/?format=json").json()["needs"] == []
    assert alarms(operator, "/") == alarms(operator, "/papers") == set()
    assert "<title>papers" in operator.get("/papers").text
