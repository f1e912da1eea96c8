"""The pages of the overview, archives, runs, tasks and logs: their content, each button, and
refusals.
"""

from __future__ import annotations

import html
import re
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from arkqueue.archives import changed
from arkqueue.db.session import Session
from arkqueue.logs import Logs
from arkqueue.model import ArchiveId, BranchId, End, Fault, LogAppend, LogChunk, RunId, Stream, Usage, Workflow
from arkqueue.plan import Entry
from arkqueue.queue import backfill, claim, control, depth, locks, pauses
from arkqueue.queue import logs as logs_of_queue
from arkqueue.queue.tokens import Scope
from arkqueue.repository import locate, open_archive
from arkqueue.text import visible
from arkqueue.views.runs import RunDetail
from arkqueue.web.pages import backfill as backfill_page
from arkqueue.web.pages import run as run_pages
from tests.builders import HOST, PROCESS, AnArchive, a_gateway, a_list, an_archive, an_entry, faulty
from tests.repositories import a_git_repository
from tests.system.pages.conftest import HOSTILE, HOSTILE_ITEM, Visitors, form_of, press, said
from tests.system.task_manager.test_checkouts import commit, watch
from tests.waiting import PATIENCE

TASKS = {"index": "depends: [PREV]", "pdf": "depends: [index]\ncancels: [PREV]", "upload": "depends: [pdf]"}


@pytest.fixture
def archive(session: Session) -> AnArchive:
    archive = an_archive(session)
    archive.commit(TASKS)
    return archive


# The overview


def test_an_overview_without_archives_says_how_to_add_one(operator: httpx.Client) -> None:
    assert "arkqueue archive add papers" in said(operator.get("/"))


def test_the_overview_shows_what_needs_a_person_first(
    operator: httpx.Client, session: Session, archive: AnArchive
) -> None:
    archive.fail("index@2")
    other = an_archive(session, "thesis")
    other.commit(faulty())
    third = an_archive(session, "maps")
    third.commit({"deposit": "hold: true"})
    page = operator.get("/", params={"format": "json"}).json()
    assert {(need["name"], need["state"], need["verb"]) for need in page["needs"]} == {
        ("papers@2/index", "failed", "retry"),
        ("thesis@2", "failed", ""),
        ("maps@2/deposit", "held", "release"),
    }
    assert [(line["archive"]["name"], line["rev"], line["state"]) for line in page["lines"]] == [
        ("maps", 2, "held"), ("papers", 2, "failed"), ("thesis", 2, "failed"),
    ]  # fmt: skip
    assert operator.get("/").text.count('data-verb="retry"') == 1


def test_what_was_waived_or_made_good_needs_nobody(operator: httpx.Client, archive: AnArchive) -> None:
    archive.fail("index@2")
    archive.skip("index@2")
    archive.commit({"other": ""})
    archive.fail("other@3")
    archive.commit({"other": ""})
    assert [need["name"] for need in operator.get("/?format=json").json()["needs"]] == ["papers@3/other"]
    archive.run("other@4")
    assert operator.get("/?format=json").json()["needs"] == []


def test_the_overview_plots_how_deep_the_queue_was(
    operator: httpx.Client, session: Session, archive: AnArchive, visitor: Visitors
) -> None:
    assert "last 24 h" not in operator.get("/").text
    depth.count(session)
    depth.count(session)  # of another queue manager
    archive.sql(
        "insert into queue_depth values (now() - interval '3 hours', 31, 4), (now() - interval '26 hours', 99, 4)"
    )
    oldest, *others = [one["ready"] for one in operator.get("/?format=json").json()["depth"]]
    assert (oldest, {*others}, len(others) > 1) == (
        31,
        {1},
        True,
    )  # the last is of now; a minute, or ten, may have ended meanwhile
    assert re.search(
        r"Ready and not started, last 24 h 1 now · 31 between \d\d:\d0 and \d\d:\d0 UTC", said(operator.get("/"))
    )
    depth.count(session)
    assert not archive.sql("select from queue_depth where ready = 99")  # what is older is forgotten
    assert "last 24 h" not in visitor(Scope.READ, "papers").get("/").text


# An archive


def test_revisions_are_rows_and_tasks_are_columns(operator: httpx.Client, archive: AnArchive) -> None:
    archive.run("index@2")
    archive.commit(TASKS | {"new": ""})
    archive.run("index@3", "new@3")
    page = operator.get("/papers?format=json").json()
    assert [column["name"] for column in page["columns"]] == ["index", "pdf", "upload", "new"]
    assert [(column["highest"]["rev"], column["completed"]) for column in page["columns"]] == [
        (3, 3), (3, None), (3, None), (3, 3),
    ]  # fmt: skip
    rows = {row["run"]["full_name"]: [cell and cell["words"] for cell in row["cells"]] for row in page["rows"]}
    assert list(rows) == ["papers@3", "papers@2", "papers@1"]
    assert rows["papers@2"][1:] == ["stopping", "for pdf", None]
    assert "Retry" not in operator.get("/papers").text


def test_the_header_shows_the_highest_revision_and_never_the_one_that_ended_last(
    operator: httpx.Client, archive: AnArchive
) -> None:
    archive.commit({"index": ""})
    archive.fail("index@3")
    archive.run("index@2")
    (index, *_) = operator.get("/papers?format=json").json()["columns"]
    assert (index["highest"]["rev"], index["highest"]["state"], index["completed"]) == (3, "failed", 2)
    assert "1 failure needs you : 3/index" in said(operator.get("/papers"))


def test_earlier_runs_and_those_of_a_state_have_addresses(operator: httpx.Client, archive: AnArchive) -> None:
    for _ in range(60):
        archive.commit({})
    first = operator.get("/papers?format=json").json()
    assert [first["rows"][0]["run"]["rev"], len(first["rows"])] == [62, 50]
    earlier = operator.get(f"/papers?format=json&before={first['next']}").json()
    assert [row["run"]["rev"] for row in earlier["rows"]] == list(range(12, 0, -1))
    assert [row["run"]["rev"] for row in operator.get("/papers?format=json&state=pending").json()["rows"]] == [2]


def test_a_branch_has_its_own_page(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session, "code", branches=("main", "fix/one"))
    archive.commit({"a": ""}, branch="fix/one")
    assert "fix/one" in operator.get("/code").text
    page = operator.get("/code:fix%2Fone?format=json").json()
    assert [row["run"]["full_name"] for row in page["rows"]] == ["code:fix%2Fone@2", "code:fix%2Fone@1"]
    assert "code:fix%2Fone@2/a is ready" in operator.get("/code:fix%2Fone").text
    assert operator.get("/code:fix%2Fone@2/a").status_code == 200
    address = "/code:fix%2Fone"
    assert press(operator, address, address[1:], "trigger", "a").headers["location"] == "/code:fix%2Fone@2.2"


def test_an_archive_is_paused_held_triggered_and_taken_back(operator: httpx.Client, archive: AnArchive) -> None:
    assert press(operator, "/papers", "papers", "pause", "the disk").headers["location"] == "/papers"
    assert ": the disk" in said(operator.get("/papers"))
    assert press(operator, "/papers", "papers", "resume").status_code == 303
    assert press(operator, "/papers", "papers", "hold", "Friday").status_code == 303
    assert "It is on hold by operate test: Friday" in said(operator.get("/papers"))
    assert press(operator, "/papers", "papers", "unhold").status_code == 303
    assert press(operator, "/papers", "papers", "release").status_code == 303
    triggered = press(operator, "/papers", "papers", "trigger", "index")
    assert triggered.headers["location"] == "/papers@2.2"
    assert archive.states()["index@2.2"] == "waiting"
    refused = press(operator, "/papers", "papers", "trigger", "indx")
    assert refused.status_code in (404, 409, 422)
    assert "indx" in refused.text


def test_tasks_of_an_old_revision_are_triggered_on_its_page(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"other": ""})
    triggered = press(operator, "/papers@2", "papers@2", "trigger", "index, pdf")
    assert triggered.headers["location"] == "/papers@2.2"
    assert [name for name in archive.states() if name.endswith("@2.2")] == ["index@2.2", "pdf@2.2"]
    assert "other" in press(operator, "/papers@2", "papers@2", "trigger", "other").text


# A run, a task


def test_a_long_run_has_a_link_to_its_first_failure_and_keys_find_the_others(
    operator: httpx.Client, archive: AnArchive
) -> None:
    archive.commit({f"t{number}": "" for number in range(30)})
    archive.fail("t17@3")
    archive.fail("t21@3")
    page = operator.get("/papers@3")
    assert "t17, t21 failed" in said(page)
    assert '<a href="/papers@3/t17"><u>Look at t17</u></a>' in page.text
    assert re.findall(r'<a href="/papers@3/(\w+)" class="alarm"', page.text) == ["t17", "t21"]
    archive.fail("index@2")
    assert "Look at" not in said(operator.get("/papers@2"))
    assert '<a href="/papers@2/index" class="alarm"' in operator.get("/papers@2").text


def test_a_run_says_when_it_will_be_done_by_the_times_of_earlier_runs(
    operator: httpx.Client, archive: AnArchive
) -> None:
    claim.register(archive.session, PROCESS, HOST, "build-1", 4)
    archive.run("index@2", "pdf@2", "upload@2")
    archive.sql("update attempt set started_at = ended_at - interval '20 minutes'")
    archive.commit(TASKS)
    assert re.search(
        r" Done in (59 min|1 h), \d\d:\d\d UTC , by the times of earlier runs\.", said(operator.get("/papers@3"))
    )
    archive.run("index@3", "pdf@3")
    archive.claim("upload@3")
    archive.sql("update attempt set started_at = now() - interval '5 minutes 30 s' where ended_at is null")
    page = operator.get("/papers@3")
    assert re.search(r" Done in 14 min, \d\d:\d\d UTC , by the times of earlier runs\.", said(page))
    assert re.search(r'<span data-since="[^"]*">5:3\d</span>', page.text), "its clock goes on"
    archive.sql("update attempt set started_at = now() - interval '25 minutes' where ended_at is null")
    assert "Done later than usual , by the times" in said(operator.get("/papers@3"))
    archive.run("upload@3")
    assert "Done" not in said(operator.get("/papers@3"))


def test_a_long_message_is_on_the_page_of_its_run_in_full(operator: httpx.Client, archive: AnArchive) -> None:
    long = "Fix the second chapter, with the figures on the harbour and the old maps of the town"
    for number, message in ((3, long), (4, "Short")):
        entry = an_entry(number, Workflow())
        archive.append("", [replace(entry, revision=replace(entry.revision, message=message))])
    assert f'<pre class="said">{long}</pre>' in operator.get("/papers@3").text
    assert "<pre" not in operator.get("/papers@4").text


def test_a_run_is_drawn_with_what_it_waits_for_elsewhere(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit(TASKS)
    page = operator.get("/papers@3")
    assert 'aria-label="Graph of papers@3"' in page.text
    assert "of 2 · ready" in page.text  # the index of the revision before
    assert "3 tasks wait." in said(page)


def test_a_list_is_one_column_with_counts_and_each_item_has_its_page(
    operator: httpx.Client, archive: AnArchive
) -> None:
    archive.commit({"store": "foreach: [a, b/c, d]", "index": "depends: [store]"})
    archive.run("store/a@3")
    archive.fail("store/b/c@3")
    grid = said(operator.get("/papers"))
    assert grid.count("1/3, 1 failed") == 1
    assert "store/a" not in grid
    run = said(operator.get("/papers@3"))
    assert "store/b/c failed" in run
    assert all(f"store/{item}" in run for item in ("a", "b/c", "d"))
    page = operator.get("/papers@3/store/b%2Fc")
    assert 'href="/papers@3"' in page.text
    assert "<b>store/b/c</b>" in page.text


def test_faults_of_workflow_files_are_told_with_their_places(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit(faulty())
    assert "_workflows/test.yaml:1:1 a fault" in said(operator.get("/papers@3"))
    assert "_workflows/test.yaml:1:1: a fault" in said(operator.get("/papers"))


def test_a_run_that_has_changed_since_its_report_is_marked_and_reported_again(
    operator: httpx.Client, archive: AnArchive
) -> None:
    archive.fail("index@2")
    assert "Reports 1 failed" in said(operator.get("/papers@2"))
    assert "changed since its report" not in said(operator.get("/papers@2"))
    archive.retry("index@2")
    archive.run("index@2", "pdf@2", "upload@2")
    assert "changed since its report" in said(operator.get("/papers@2"))
    assert "changed ·" in said(operator.get("/papers"))
    assert "papers@2: completed, changed since its report" in operator.get("/").text
    press(operator, "/papers@2", "papers@2", "report")
    page = said(operator.get("/papers@2"))
    assert "2 completed" in page
    assert "3 changed since 1" in page
    assert "changed since its report" not in page


def test_each_button_of_a_task_and_of_a_run_does_what_it_says(operator: httpx.Client, archive: AnArchive) -> None:
    task, run = "/papers@2/index", "/papers@2"
    press(operator, task, "papers@2/index", "hold", "wait for Ann")
    assert archive.state("index@2") == "held"
    press(operator, task, "papers@2/index", "release")
    archive.fail("index@2")
    press(operator, task, "papers@2/index", "retry")
    assert archive.state("index@2") == "ready"
    archive.fail("index@2")
    press(operator, run, "papers@2", "retry")
    assert archive.state("index@2") == "ready"
    archive.fail("index@2")
    assert "Retries by persons 2" in said(operator.get(task))
    assert operator.get(f"{task}?format=json").json()["task"]["retry_count"] == 2
    press(operator, task, "papers@2/index", "skip")
    assert archive.state("pdf@2") == "skipped"
    press(operator, task, "papers@2/index", "skip-as-completed")
    assert archive.state("pdf@2") == "ready"
    press(operator, run, "papers@2", "note", "known: <the disk>")
    assert "operate test : note: known: &lt;the disk&gt;" in said(operator.get(run))
    press(operator, run, "papers@2", "cancel")
    assert archive.state("pdf@2") == "canceled"


# Items of lists


def test_a_long_list_is_told_by_its_numbers_and_its_items_by_state(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    items = ", ".join(f"v{n:03}" for n in range(130))
    archive.commit(
        {"fetch": f"foreach: [{items}]", "store": f"foreach: [{items}]\ndepends: [fetch]", "index": "depends: [store]"}
    )
    archive.fail("fetch/v007@2")
    archive.run("fetch/v001@2")
    page = operator.get("/papers@2?format=json").json()
    assert [task["full_name"] for task in page["tasks"]] == ["papers@2/index"]
    assert [(of["name"], of["tasks"], of["counts"]) for of in page["lists"]] == [
        ("fetch", 130, {"failed": 1, "running": 128, "completed": 1}),
        ("store", 130, {"ready": 1, "waiting": 128, "skipped": 1}),
    ]
    assert page["sentence"] == "1 item of fetch failed; 128 items of fetch are running; 129 tasks wait."
    assert 'href="/papers@2?list=fetch&amp;state=failed"' in operator.get("/papers@2").text
    failed = operator.get("/papers@2?list=fetch&state=failed&format=json").json()
    assert [task["full_name"] for task in failed["items"]] == ["papers@2/fetch/v007"]
    first = operator.get("/papers@2?list=store&format=json").json()
    rest = operator.get(f"/papers@2?list=store&after={first['next']}&format=json").json()
    assert [len(first["items"]), len(rest["items"]), rest["next"]] == [100, 30, None]
    assert [task["item"] for task in first["items"] + rest["items"]] == items.split(", ")
    for strange in ("list=none", "list=fetch&state=gone", "list=fetch&after=x", "list=fetch&after=" + "9" * 40):
        assert operator.get(f"/papers@2?{strange}").status_code == 200, strange
    press(operator, "/papers@2?list=fetch&state=failed", "papers@2/fetch/v007", "retry")
    assert archive.state("fetch/v007@2") == "ready"


def test_all_parts_of_the_page_of_a_run_are_of_one_moment(
    operator: httpx.Client, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = an_archive(session)
    archive.commit({"fetch": f"foreach: [{', '.join(f'v{n:03}' for n in range(130))}]", "index": ""})
    archive.claim("index@2", slots=200)
    read = run_pages.show_run

    def read_while_tasks_end(*asked: Any) -> RunDetail:
        if archive.state("fetch/v007@2") == "running":
            archive.fail("fetch/v007@2", "index@2")
        return read(*asked)

    monkeypatch.setattr(run_pages, "show_run", read_while_tasks_end)
    for number, state in ((0, "running"), (1, "failed")):
        page = operator.get("/papers@2", params={"list": "fetch", "state": "failed", "format": "json"}).json()
        assert page["lists"][0]["counts"].get("failed", 0) == len(page["items"]) == number
        assert [task["state"] for task in page["tasks"]] == [state]
        assert (page["sentence"].startswith("index, 1 item of fetch failed")) == (state == "failed")


def test_the_json_of_a_run_has_its_tasks_and_nothing_of_its_markup(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"tile": "foreach: [a, b]"})
    page = operator.get("/papers@3?format=json").json()
    assert page.keys() == {
        "run", "tasks", "sentence", "lists", "list", "state", "items", "next", "deleted", "changes",
    }  # fmt: skip
    assert [task["full_name"] for task in page["tasks"]] == ["papers@3/tile/a", "papers@3/tile/b"]
    item = operator.get("/papers@3/*/a?format=json").json()
    assert item.keys() == {"run", "item", "name", "tasks", "sentence"}
    assert [task["full_name"] for task in item["tasks"]] == ["papers@3/tile/a"]


def test_a_run_whose_workflow_files_have_faults_shows_no_graph(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit(faulty())
    page = operator.get("/papers@3")
    assert "Its workflow files have 1 fault, so it has no tasks." in said(page)
    assert 'class="graph' not in page.text, "its COMMIT has completed"


def test_a_run_that_could_not_start_says_so_and_names_no_line(operator: httpx.Client, archive: AnArchive) -> None:
    why = "nightly needs pdf, which has never run"
    archive.commit(Workflow(faults=(Fault("_workflows", 0, 0, why),)))
    page = operator.get("/papers@3")
    assert "It could not start, so it has no tasks." in said(page)
    assert re.search(f'<b class="mono[^>]*>_workflows</b><p class="whole">{why}', page.text)
    assert ":0:0" not in page.text + operator.get("/papers").text + operator.get("/").text


def test_what_a_run_used_does_not_depend_on_what_its_page_shows(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"fetch": "foreach: [a, b]", "index": ""})
    for key in ("fetch/a@2", "fetch/b@2", "index@2"):
        archive.record(archive.attempt(key), End.EXITED, 0, usage=Usage(1.5, 54 << 20))
    for address in ("/papers@2", "/papers@2?list=fetch", "/papers@2?list=fetch&state=failed"):
        assert "4.5 s of processor time in 3 attempts" in said(operator.get(address)), address
    archive.commit({"fetch": f"foreach: [{', '.join(f'v{n}' for n in range(101))}]"})
    archive.record(archive.attempt("fetch/v7@3"), End.EXITED, 0, usage=Usage(1.5, 54 << 20))
    assert "1.5 s of processor time in 1 attempt," in said(operator.get("/papers@3"))


def test_an_item_has_a_page_with_the_buttons_of_its_verbs(operator: httpx.Client, session: Session) -> None:
    archive, page = a_list(session), "/papers@2/*/b%2Fc"
    assert f'href="{page}"' in operator.get("/papers@2/store/b%2Fc").text
    shown = operator.get(f"{page}?format=json").json()
    assert [task["full_name"] for task in shown["tasks"]] == [
        f"papers@2/{name}/b%2Fc" for name in ("fetch", "check", "store")
    ]
    name = "papers@2/*/b%2Fc"
    assert press(operator, page, name, "hold", "look first").headers["location"] == page
    assert [archive.state(f"{step}/b/c@2") for step in ("fetch", "check", "store")] == ["held", "held", "held"]
    press(operator, page, name, "release")
    archive.fail("fetch/b/c@2")
    press(operator, page, name, "retry")
    assert archive.state("fetch/b/c@2") == "ready"
    press(operator, page, name, "delete")
    assert "It was deleted." in said(operator.get(page))
    press(operator, page, name, "undelete")
    assert archive.state("fetch/b/c@2") == "held"
    press(operator, page, name, "cancel")
    assert [archive.state(f"{step}/b/c@2") for step in ("fetch", "check", "store")] == ["canceled"] * 3
    assert archive.state("fetch/a@2") == "running"
    assert operator.get("/papers@2/*/none").status_code == 404


@pytest.mark.usefixtures("archive")
def test_a_refusal_is_a_page_with_its_reason(operator: httpx.Client) -> None:
    refused = press(operator, "/papers@2/pdf", "papers@2/pdf", "retry")
    reason = said(refused, 409)
    assert "papers@2/pdf" in reason
    assert "is waiting: a failed, canceled, waived or deferred task can be retried" in reason
    assert '<a class="b" href="/papers@2/pdf">Go back</a>' in refused.text
    assert press(operator, "/papers@2/pdf", "papers@2/pdf", "explode").status_code == 404
    assert press(operator, "/papers@2", "papers@2", "note", " ").status_code == 422


def test_a_task_shows_the_end_of_its_log_or_the_lines_around_one(
    operator: httpx.Client, session: Session, archive: AnArchive
) -> None:
    claimed = archive.claim("index@2")
    lines = b"".join(b"line %d\n" % number for number in range(1, 20_001))
    logs = Logs(a_gateway(session), 1 << 20, 1 << 20)
    writer = logs.open(claimed.attempt)
    writer.write(Stream.STDOUT, lines)
    logs.flush([writer])
    page = operator.get("/papers@2/index")
    assert ">line 20000<" in page.text
    assert ">line 1<" not in page.text
    assert 'id="L20000"' in page.text
    (earlier,) = re.findall(r'href="([^"]+)">Earlier lines<', page.text)
    assert ">line 19600<" in operator.get("/papers@2/index" + html.unescape(earlier)).text
    beginning = operator.get("/papers@2/index?line=1")
    assert re.findall(r'id="L(\d+)"', beginning.text) == [str(number) for number in range(1, 401)]
    (link,) = re.findall(r'href="(\?[^"]+)">12<', beginning.text)
    linked = operator.get("/papers@2/index" + html.unescape(link).partition("#")[0])
    assert re.findall(r'id="L(\d+)"', linked.text)[:2] == ["4", "5"]
    some = operator.get(re.findall(r'data-address="([^"]+)"', page.text)[0] + "9000")
    assert re.findall(r'id="L(\d+)"', some.text) == [str(number) for number in range(9000, 9400)]
    assert "<span>line 9000</span>" in some.text


def test_a_line_that_a_log_does_not_have_is_said_to_be_missing(
    operator: httpx.Client, session: Session, archive: AnArchive
) -> None:
    logs = Logs(a_gateway(session), 1 << 20, 1 << 20)
    writer = logs.open(archive.claim("index@2").attempt)
    writer.write(Stream.STDOUT, b"".join(b"line %d\n" % number for number in range(1, 21)))
    logs.flush([writer])
    for line, is_there in ((20, True), (21, False), (999, False)):
        page = operator.get(f"/papers@2/index?line={line}")
        assert ">line 20<" in page.text
        assert (f"The log has no line {line} yet: this is its end." in said(page)) is not is_there
        assert 'data-at="20"' in page.text


def test_a_log_is_searched_on_and_back(operator: httpx.Client, session: Session, archive: AnArchive) -> None:
    claimed = archive.claim("index@2")
    logs = Logs(a_gateway(session), 1 << 20, 1 << 20)
    writer = logs.open(claimed.attempt)
    writer.write(
        Stream.STDOUT, b"".join(b"line %d\n" % number for number in range(1, 5_001)) + HOSTILE.encode() + b"\n"
    )
    logs.flush([writer])
    found = operator.get("/papers@2/index", params={"find": "LINE 1234"})
    assert 'class="found" id="L1234"' in found.text
    assert '<i class="hit">line 1234</i>' in found.text
    assert "Hit 1 of 1 line. Line 1,234." in said(found)
    (following,) = re.findall(r'href="([^"]+)"><u>Next<', found.text)
    assert "No line from there on has" in operator.get("/papers@2/index" + html.unescape(following)).text
    back = operator.get("/papers@2/index", params={"find": "line 123", "line": "1230", "back": "yes"})
    assert 'class="found" id="L123"' in back.text
    hostile = operator.get("/papers@2/index", params={"find": HOSTILE})
    assert 'class="found" id="L5001"' in hostile.text
    assert "<script>alert" not in hostile.text
    assert "No line has" in operator.get("/papers@2/index", params={"find": "\0(a+)+$"}).text
    coloured = operator.get("/papers@2/index", params={"find": " red "})
    assert '<i class="hit"> </i><i class="c1 hit">red</i><i class="hit"> </i>' in coloured.text
    hits = operator.get("/papers@2/index", params={"find": "line 77", "line": "78"})
    assert "Hit 2 of 11 lines. Line 770." in said(hits)
    (following, before) = re.findall(r'href="([^"]+)"><u>(?:Next|Previous)<', hits.text)
    assert "Hit 3 of 11 lines. Line 771." in said(operator.get("/papers@2/index" + html.unescape(following)))
    assert "Hit 1 of 11 lines. Line 77." in said(operator.get("/papers@2/index" + html.unescape(before)))


def test_the_page_of_a_branch_says_that_it_counts_its_own_failures_and_names_other_branches(
    operator: httpx.Client, session: Session
) -> None:
    book = an_archive(session, "book", branches=("main", "fix/one"))
    for branch in ("main", "fix/one"):
        book.commit({"a": "", "b": ""}, branch=branch)
    for one in book.claim_some(10):
        book.record(one.attempt, End.EXITED, 1 if one.name == "a" or one.branch != "main" else 0)
    words = said(operator.get("/book"))
    assert "1 failure of this branch needs you : 2/a . On other branches: fix/one (2 failures)." in words
    words = said(operator.get("/book:fix%2Fone"))
    assert "2 failures of this branch need you : 2/a , 2/b . On other branches: main (1 failure)." in words
    assert 'href="/book:fix%2Fone" class="bad"' in operator.get("/book").text
    assert "of this branch" not in operator.get("/papers").text


def test_a_log_that_was_too_long_says_what_is_kept_and_what_is_missing_and_where(
    operator: httpx.Client, session: Session, archive: AnArchive
) -> None:
    claimed = archive.claim("index@2")
    text = b"".join(b"%06d\n" % number for number in range(1, 100_001))
    logs = Logs(a_gateway(session), 700, 100_000)
    writer = logs.open(claimed.attempt)
    writer.write(Stream.STDOUT, text)
    logs.flush([writer])
    log = operator.get("/papers@2/index", params={"format": "json"}).json()["log"]
    gap = log["gap"]
    assert (log["total"], log["last"], log["size"], gap["after"]) == (100_000, 100_000, 700_000, 100)
    page = operator.get("/papers@2/index", params={"find": "099999"})
    assert f"100,000 lines, 700,000 bytes, {700_000 - gap['bytes']:,} kept" in said(page)
    missing = f"{gap['bytes']:,} bytes with {gap['lines']:,} lines after line 100 were left out. They are not searched."
    assert missing in said(page)
    assert "Hit 1 of 1 line. Line 99,999." in said(page)
    assert "No line has “050000”" in said(operator.get("/papers@2/index", params={"find": "050000"}))
    # The lines before the first one that is shown are those before the missing part, too.
    behind = operator.get("/papers@2/index", params={"line": str(gap["after"] + gap["lines"] + 20)})
    (earlier,) = re.findall(r'href="([^"]+)">Earlier lines', behind.text)
    assert "000050" in operator.get("/papers@2/index" + html.unescape(earlier)).text


@pytest.mark.full
def test_the_hits_in_a_log_of_200_mb_are_counted(operator: httpx.Client, session: Session, archive: AnArchive) -> None:
    """However often it takes a further look, each of them is bounded."""
    claimed = archive.claim("index@2")
    lines = b"".join(
        b"%06d the quick brown fox jumps over the lazy dog, again and again\n" % number for number in range(900)
    )
    chunk = lines + b"\x1b[31merror\x1b[0m: no dog\n"
    for first in range(0, 3200, 64):
        chunks = [LogChunk(number * len(chunk), Stream.STDOUT, 0.0, chunk) for number in range(first, first + 64)]
        logs_of_queue.append(
            session, PROCESS, [LogAppend(claimed.attempt, chunks, chunks[-1].position + len(chunk), 0, 0)]
        )
    page = operator.get("/papers@2/index", params={"find": "ERROR: no dog"})
    longest = page.elapsed
    for _ in range(40):
        if "count further" not in page.text:
            break
        page = operator.get("/papers@2/index", params={"find": "ERROR: no dog"})
        longest = max(longest, page.elapsed)
    assert "Hit 1 of 3,200 lines. Line 901." in said(page)
    last = operator.get("/papers@2/index", params={"find": "error: NO dog", "line": "99999999", "back": "yes"})
    assert f"Hit 3,200 of 3,200 lines. Line {3200 * 901:,}." in said(last)
    assert 'class="found"' in last.text
    assert longest < timedelta(seconds=30)


def test_a_log_has_its_colours_its_times_and_is_a_file(
    operator: httpx.Client, session: Session, archive: AnArchive, visitor: Visitors
) -> None:
    claimed = archive.claim("index@2")
    text = b"\x1b[1;31mred\x1b[0m plain \x1b[32mgreen\ngoes on\x1b[39m \x1b[38;5;9mx\x1b[2Jy <b>\n"
    logs = Logs(a_gateway(session), 1 << 20, 1 << 20)
    writer = logs.open(claimed.attempt)
    writer.write(Stream.STDOUT, text)
    writer.write(Stream.STDERR, b"oops\n")
    logs.flush([writer])
    page = operator.get("/papers@2/index").text
    assert '<i class="bold c1">red</i> plain <i class="c2">green</i>' in page
    assert r'<i class="c2">goes on</i> <i class="c1">x\x1b[2Jy &lt;b&gt;</i>' in page
    assert re.search(r"\d\d:\d\d:\d\d err</span> oops", operator.get("/papers@2/index?times=yes").text)
    (address,) = re.findall(r'href="(/-/log/\d+)"', page)
    file = operator.get(address)
    assert file.content == text + b"oops\n"
    assert file.headers["content-disposition"] == 'attachment; filename="papers@2-index-1.log"'
    assert file.headers["content-type"].startswith("text/plain")
    an_archive(session, "vault")
    for part in ("", "/lines?line=1"):
        assert visitor(Scope.READ, "vault").get(address + part).status_code == 404
    assert operator.get("/-/log/x").status_code == 404


# Hostile text


def test_what_strangers_wrote_is_shown_and_never_obeyed(
    operator: httpx.Client, session: Session, archive: AnArchive
) -> None:
    archive.commit({"a": "", "tile": f"foreach: ['{HOSTILE_ITEM}']"}, author=HOSTILE)
    archive.sql("update revision set message = %s where number = 3", HOSTILE)
    archive.end("a@3", 1, message=HOSTILE)
    control.note(session, HOSTILE, HOSTILE, run=RunId(archive.run_id(3)), task=archive.task("a@3"))
    archive.fail(f"tile/{HOSTILE_ITEM}@3")
    pages = [
        "/",
        "/papers",
        "/papers?state=failed",
        "/papers@3",
        "/papers@3/a",
        "/-/search?q=script",
        "/-/locks",
        "/-/audit-log",
    ]
    for address in (
        *pages,
        f"/-/search?q={quote(HOSTILE)}",
        f"/papers?message={quote(HOSTILE)}&columns={quote(HOSTILE)}",
    ):
        page = operator.get(address)
        assert page.status_code == 200, address
        assert not re.search(r"<(script>alert|img|i>)", page.text), address
        assert not set(page.text) & set("\x1b\x07\u202e"), address
    assert visible("\u202egnp.exe") in operator.get("/papers@3").text
    assert "&lt;img src=x onerror=alert(1)&gt;" in operator.get("/papers@3").text


def test_pages_are_not_framed_run_no_foreign_script_and_say_nothing_to_others(operator: httpx.Client) -> None:
    headers = operator.get("/").headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["referrer-policy"] == "no-referrer"
    page = operator.get("/").text
    assert not re.search(r"<script(?! src=)|<style|\sstyle=|\son\w+=", page)
    for found in re.findall(r'(?:src|href)="(/-/static/[^"]+)"', page):
        assert operator.get(found).status_code == 200
        assert "immutable" in operator.get(found).headers["cache-control"]
        assert operator.get(found.partition("?")[0] + "?other").headers["cache-control"] == "no-cache"
    assert operator.get("/-/static/look.css").headers["content-encoding"] == "gzip"
    assert operator.get("/-/static/../__init__.py").status_code == 404
    assert operator.get("/-/static/%2e%2e/__init__.py").status_code == 404


@pytest.mark.parametrize(("method", "address", "status"), [("GET", "/-/static/nothing.js", 404), ("POST", "/-/static/look.css", 405), ("POST", "/-/nothing", 405)])  # fmt: skip
def test_what_is_not_there_is_a_plain_page_and_no_mistake(
    operator: httpx.Client, caplog: pytest.LogCaptureFixture, method: str, address: str, status: int
) -> None:
    page = operator.request(method, address, headers={"accept": "text/html"})
    assert address in said(page, status)
    assert page.headers["content-security-policy"]
    assert operator.request(method, address, headers={"accept": "application/json"}).status_code == status
    assert not caplog.records


def test_a_browser_that_shows_a_badge_alone_finds_the_icon(visitor: Visitors) -> None:
    icon = visitor(None).get("/favicon.ico", follow_redirects=True)
    assert icon.status_code == 200
    assert icon.headers["content-type"] == "image/svg+xml"


def test_a_long_page_is_compressed_and_its_forms_carry_another_secret_at_each_address(
    operator: httpx.Client,
    archive: AnArchive,  # noqa: ARG001
) -> None:
    plain = operator.get("/papers", headers={"accept-encoding": "identity"})
    small = operator.get("/papers")
    assert small.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert small.num_bytes_downloaded < len(plain.content) / 2
    forms = {form_of(operator.get(address)) for address in ("/papers", "/papers?message=a", "/papers?message=b")}
    assert len(forms) == 3, "who repeats his guesses beside one secret learns it from the sizes (BREACH)"
    assert form_of(operator.get("/papers")) in forms


def test_the_api_answers_as_before_where_it_has_nothing(operator: httpx.Client) -> None:
    answer = operator.get("/api/v1/nothing")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


# Submissions


def test_the_run_of_a_submission_is_found_by_its_senders_id(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"check": "on: submission"})
    archive.submit("{}", sender_id="batch 17")
    words = said(operator.get("/papers@id:batch%2017"))
    assert "papers@3.2" in words
    assert "Made for a submission, ann Submission batch 17" in words
    press(operator, "/papers@id:batch%2017", "papers@id:batch%2017", "hold", "why")
    assert archive.state("check@3.2") == "held"


# Backfills


def test_a_backfill_has_a_page_and_its_runs_hide_no_commit(
    operator: httpx.Client, session: Session, archive: AnArchive
) -> None:
    archive.commit({"thumbs": ""})
    fill = backfill.begin(session, ArchiveId(archive.id), BranchId(archive.branches[""].id), 1, None, names=["thumbs"])
    archive.fail("thumbs@1.2")
    words = said(operator.get("/papers@fill:1"))
    assert "0 of 2 tasks completed , 1 failed , 1 waiting" in words
    assert re.search(r"papers@1\.2 failed \S.* Retry what failed", words)
    assert "of papers@3" in words
    rows = operator.get("/papers", params={"format": "json"}).json()
    assert [row["run"]["full_name"] for row in rows["rows"]] == ["papers@3", "papers@2", "papers@1"]
    assert "fill:1 : 0 of 2, 1 failed" in said(operator.get("/papers"))
    needs = operator.get("/", params={"format": "json"}).json()["needs"]
    assert [(need["name"], need["text"]) for need in needs] == [("papers@fill:1", "1 of its tasks failed")]
    assert "papers@fill:1 , with the workflow files of 3" in said(operator.get("/papers@2.2"))
    archive.sql("update backfill set next = 2, waits = 'cannot be read', waits_since = clock_timestamp()")
    assert ": its lists cannot be read: cannot be read" in said(operator.get("/papers@fill:1"))
    press(operator, "/papers@fill:1", "papers@1.2", "retry")
    assert archive.state("thumbs@1.2") == "ready"
    press(operator, "/papers@fill:1", "papers@fill:1", "hold", "why")
    assert archive.state("thumbs@2.2") == "held"
    press(operator, "/papers@fill:1", "papers@fill:1", "release")
    press(operator, "/papers@fill:1", "papers@fill:1", "cancel")
    assert archive.state("thumbs@2.2") == "canceled"
    assert session.rows("backfill", backfill=fill)[0].next is None
    assert "papers@fill:9 does not exist" in said(operator.get("/papers@fill:9"), 404)


def test_a_backfill_lists_its_runs_also_after_its_end(
    operator: httpx.Client, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill_page, "MOST", 2)
    archive = an_archive(session)
    for _ in range(4):
        archive.commit({})
    archive.commit({"thumbs": ""})
    backfill.begin(session, ArchiveId(archive.id), BranchId(archive.branches[""].id), 1, None, names=["thumbs"])
    archive.run(*(f"thumbs@{number}.2" for number in (1, 2, 3, 4)))
    archive.end("thumbs@5.2", 65)
    page = operator.get("/papers@fill:1")
    assert "4 of 5 tasks completed , 1 rejected ." in said(page)
    pages = [page.text]
    while further := re.search(r'href="(/papers@fill:1\?after=\d+)">Later runs<', pages[-1]):
        pages.append(operator.get(further[1]).text)
    runs = [re.findall(r'href="/papers@(\d)\.2"', text.partition("<h2>All runs</h2>")[2]) for text in pages]
    assert runs == [["1", "2"], ["3", "4"], ["5"]]
    assert 'href="/papers@fill:1">First runs<' in pages[1]
    assert [">Failed</h2>" in text for text in pages] == [True, False, False]


def test_waived_failures_of_a_backfill_do_not_count_as_failures(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({})
    archive.commit({"thumbs": "foreach: [a, b]"})
    backfill.begin(session, ArchiveId(archive.id), BranchId(archive.branches[""].id), 1, None, names=["thumbs"])
    archive.fail("thumbs/a@1.2", "thumbs/b@1.2")
    archive.run("thumbs/a@2.2")
    archive.end("thumbs/b@2.2", 65)
    archive.skip("thumbs/b@1.2")
    page = operator.get("/papers@fill:1")
    assert "1 of 4 tasks completed , 1 failed , 1 rejected , 1 waived." in said(page)
    assert '<div class="head"><span class="s failed"' in page.text
    assert "fill:1 : 1 of 4, 1 failed , 1 rejected , 1 waived." in said(operator.get("/papers"))
    archive.skip("thumbs/a@1.2")
    archive.skip("thumbs/b@2.2")
    page = operator.get("/papers@fill:1")
    assert "1 of 4 tasks completed , 2 failed, 1 rejected, waived." in said(page)
    assert '<div class="head"><span class="s completed"' in page.text
    page = operator.get("/papers")
    assert "fill:1 : 1 of 4, 2 failed, 1 rejected, waived." in said(page)
    assert "2 failed</span>" not in page.text


def test_the_tasks_of_a_backfill_with_a_list_are_counted_by_item(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({})
    archive.commit({"thumbs": "foreach: [a, b, c]"})
    backfill.begin(session, ArchiveId(archive.id), BranchId(archive.branches[""].id), 1, None, names=["thumbs"])
    archive.run("thumbs/a@1.2", "thumbs/b@1.2", "thumbs/c@1.2")
    assert "3 of 6 tasks completed" in said(operator.get("/papers@fill:1"))
    assert "fill:1 : 3 of 6" in said(operator.get("/papers"))
    archive.sql("update backfill set next = 2")
    assert "revisions still to be planned" in said(operator.get("/papers"))


def test_a_run_and_an_item_say_where_their_scratch_folders_are(visitor: Visitors, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "scratch: item\nforeach: [x, y]"})
    archive.run("a/y@2")
    archive.sql(
        "insert into scratch (run_id, item, store, made_at, bytes, removed_at) select id, k.item, 'store-1', now(), 3 << 20, k.removed"
        " from run, (values ('x', null), ('y', now())) k(item, removed) where number = 2"
    )
    browser = visitor(Scope.READ)
    page = browser.get("/papers@2").text
    assert "<dt>Scratch</dt><dd>1 folder on store-1, 3.0 MiB</dd>" in page
    assert "<dd>1 folder, removed</dd>" in page
    assert "1 folder on store-1, 3.0 MiB" in browser.get("/papers@2/*/x").text
    assert "on store-1" not in browser.get("/papers@2/*/y").text
    archive.fail("a/x@2")
    stays = "1 folder on store-1, 3.0 MiB; stays for a retry, until the run is deleted or purged"
    assert [stays in browser.get(f"/papers@2{of}").text for of in ("", "/*/x", "/a/x")] == [True, True, True]


def boxes(graph: str) -> list[tuple[str, str]]:
    """The address of each box of a graph, and the words in it."""
    return re.findall(r'<a href="([^"]*)">.*?<text class="t"[^>]*>([^<]*)<', graph)


def test_a_list_is_one_box_however_many_items_it_has(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    items = ", ".join(f"v{n:03}" for n in range(320))
    archive.commit(
        {"fetch": f"foreach: [{items}]", "store": f"foreach: [{items}]\ndepends: [fetch]", "index": "depends: [store]"}
    )
    archive.fail("fetch/v007@2")
    archive.run("fetch/v001@2")
    page = operator.get("/papers@2").text
    graph = page.partition('<svg class="graph')[2].partition("</section>")[0]
    assert [box for box in boxes(graph) if "COMMIT" not in box[0]] == [
        ("/papers@2?list=fetch", "320 items · 1 failed"),
        ("/papers@2?list=store", "320 items · 1 ready"),
        ("/papers@2/index", "skipped"),
    ]
    assert "papers@2/fetch/*: 1 failed; " in graph
    assert re.findall(r'<path class="(edge[^"]*)" d', graph).count("edge") == 2, "from item to item is one"
    assert operator.get("/papers@2?list=fetch").text.count('<tr class="of-task"') == 101


def test_a_list_of_another_revision_is_one_box_and_only_met_as_a_whole(
    operator: httpx.Client, session: Session
) -> None:
    archive = an_archive(session)
    tasks = {"fetch": "foreach: [a, b, c]\ndepends: [PREV]", "store": "foreach: [a, b, c]\ndepends: [fetch]"}
    archive.commit(tasks)
    archive.commit(tasks)
    archive.run("fetch/a@2", "fetch/b@2", "fetch/c@2", "fetch/a@3")
    graph = operator.get("/papers@3").text.partition('<svg class="graph')[2].partition("</section>")[0]
    assert [box for box in boxes(graph) if "COMMIT" not in box[0]] == [
        ("/papers@2?list=fetch", "of 2 · 3 items · completed"),
        ("/papers@3?list=fetch", "3 items · 2 running"),
        ("/papers@3?list=store", "3 items · 1 ready"),
    ]
    assert re.findall(r'<path class="(edge[^"]*)" d', graph).count("edge") == 1, "from fetch to store"


def test_a_graph_says_which_failures_are_waived(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit(
        {
            "index": "",
            "tile": "foreach: [a, b]",
            "pdf": "depends: [index]",
            "next": "depends: [{task: index, when: settled}]",
        }
    )
    archive.fail("index@3", "tile/a@3")
    graph = operator.get("/papers@3").text.partition('<svg class="graph')[2].partition("</section>")[0]
    assert ("/papers@3/index", "failed") in boxes(graph)
    assert 'class="node failed waived"' not in graph
    archive.skip("index@3")
    archive.skip("tile/a@3")
    archive.run("tile/b@3", "next@3")
    graph = operator.get("/papers@3").text.partition('<svg class="graph')[2].partition("</section>")[0]
    assert ("/papers@3/index", "failed, waived") in boxes(graph)
    assert "papers@3/index is failed, waived</title>" in graph
    assert re.findall('class="node failed([^"]*)"', graph) == [" waived", " waived"]


def test_a_graph_of_too_many_tasks_says_so(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({f"t{n}": "" for n in range(301)})
    page = operator.get("/papers@3")
    assert "The graph is too large to draw (301 boxes): the table has all tasks." in said(page)
    assert '<section class="card below" id="tasks">' in page.text


def test_the_name_of_a_list_leads_to_its_items(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"store": "foreach: [a, b/c, d]", "index": "depends: [store]"})
    for address in ("/papers@3/store", "/papers@3/store/*", "/papers@3/store/%2A"):
        answer = operator.get(address)
        assert (answer.status_code, answer.headers["location"]) == (303, "/papers@3?list=store"), address
    assert all(f"store/{item}" in said(operator.get("/papers@3?list=store")) for item in ("a", "b/c", "d"))
    assert operator.get("/papers@3/none/*").status_code == 404
    assert operator.get("/papers@3/index/*").status_code == 404


@pytest.mark.usefixtures("archive")
def test_a_mistake_of_arkqueue_is_a_page_for_a_browser(reader: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("arkqueue.web.pages.archive.grid_of", fail)
    page = reader.get("/papers", headers={"accept": "text/html"})
    assert "could not answer because of a mistake of its own. Its log says more." in said(page, 500)
    assert "Content-Security-Policy" in page.headers
    assert reader.get("/papers", headers={"accept": "application/json"}).json()["status"] == 500


@pytest.mark.parametrize(
    "address", ["/papers?before=99999999999999999999", "/papers@99999999999999999999999", "/papers@1/a%00b"]
)
@pytest.mark.usefixtures("archive")
def test_what_no_database_stores_is_refused_on_a_page(reader: httpx.Client, address: str) -> None:
    page = reader.get(address, headers={"accept": "text/html"})
    assert page.headers["content-type"].startswith("text/html"), page.text
    assert page.status_code in (200, 404, 422)


# What is long


def test_items_of_a_task_with_a_long_name_are_told_apart_by_their_keys(
    operator: httpx.Client, archive: AnArchive
) -> None:
    name = "fetch-all-the-volumes-of-the-printed-edition"
    keys = ", ".join(f"volume-{n}" for n in range(8))
    archive.commit(
        {
            name: f"foreach: [{keys}, a-key-that-is-longer-than-others-are]",
            "check": f"depends: [{name}]\nforeach: [{keys}]",
        }
    )
    for n in range(8):
        archive.fail(f"{name}/volume-{n}@3")
    words = said(operator.get("/papers@3"))
    for n in range(8):
        assert f"fetch-all-the-v…-printed-edition/volume-{n}" in words
    assert "fetch-all-the-v…-printed-edition/a-key-that-is-longer-than-others-are" in words
    assert f"8 items of {name} failed; " in words
    assert f"skipped because of {name}/volume-0" in words
    item = said(operator.get("/papers@3/*/volume-0"))
    assert f"{name} failed; 0 of 2 tasks completed." in item
    key = "the-printed-edition-of-1878-volume-1-of-the-whole-work"
    archive.commit({name: f"foreach: [{key}, other]"})
    archive.fail(f"{name}/{key}@4")
    assert f"4/fetch-all-the-v…-printed-edition/{key} ," in said(operator.get("/papers"))


def test_rejected_tasks_are_not_called_failed(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"fetch": "foreach: [a, b, c]", "check": ""})
    archive.fail("fetch/a@3")
    archive.end("fetch/b@3", 65)
    archive.end("check@3", 65)
    page = operator.get("/papers@3")
    assert "fetch/a failed; fetch/b, check were rejected; fetch/c is running." in said(page)
    assert ">1 failed, 1 rejected</text>" in page.text
    assert "fetch was rejected; no task completed." in said(operator.get("/papers@3/*/b"))
    assert "0/3, 1 failed, 1 rejected" in operator.get("/papers").text
    archive.skip("fetch/b@3")
    page = operator.get("/papers@3")
    assert "fetch/a failed; check was rejected; fetch/c is running; fetch/b was rejected, waived." in said(page)
    assert ">3 items · 1 failed</text>" in page.text
    assert "papers@3/fetch/*: 1 failed; 1 rejected, waived; 1 running</title>" in page.text
    assert "no task completed; fetch was rejected, waived." in said(operator.get("/papers@3/*/b"))
    assert "0/3, 1 failed, 1 waived" in operator.get("/papers").text
    archive.skip("fetch/a@3")
    archive.skip("check@3")
    page = operator.get("/papers@3")
    assert "fetch/a failed, waived; fetch/b, check were rejected, waived." in said(page)
    assert ">1 failed, 1 rejected, waived</text>" in page.text
    grid = operator.get("/papers").text
    assert "0/3, 1 failed, 1 rejected, waived" in grid
    assert ">rejected, waived<" in grid
    items = ", ".join(f"i{number:03}" for number in range(120))
    archive.commit({"fetch": f"foreach: [{items}]"})
    archive.fail("fetch/i000@4", "fetch/i001@4")
    archive.end("fetch/i002@4", 65)
    assert "2 items of fetch failed; 1 item of fetch was rejected; " in said(operator.get("/papers@4"))
    archive.skip("fetch/i000@4")
    archive.skip("fetch/i002@4")
    words = said(operator.get("/papers@4"))
    assert "1 item of fetch failed; " in words
    assert "; 1 item of fetch failed, waived; 1 item of fetch was rejected, waived." in words
    assert "2 failed, 1 waived 1 rejected, waived" in words


def test_a_run_that_does_not_go_on_says_why_and_offers_what_helps(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    for _ in range(2):
        archive.commit({"index": "", "upload": "depends: [index, PREV]", "mail": "depends: [upload]"})
    archive.run("index@2")
    assert "which failed" not in said(operator.get("/papers@3"))
    archive.fail("upload@2")
    assert "which failed" not in said(operator.get("/papers@3")), "index can run"
    archive.run("index@3")
    shown = operator.get("/papers@3")
    assert re.search("upload : It waits for papers@2/upload ?, which failed", said(shown))
    button = (
        r'name="name" value="papers@2/upload"><input [^>]*name="verb" value="retry">.*?<button class="b cut-short do"'
    )
    assert re.search(button, shown.text, re.S)
    press(operator, "/papers@3", "papers@2/upload", "retry")
    assert archive.state("upload@2") == "ready"
    assert "which failed" not in said(operator.get("/papers@2"))


def test_a_run_of_long_lists_that_does_not_go_on_says_why(operator: httpx.Client, session: Session) -> None:
    """The page shows only the numbers of the items, and the run has no other task."""
    archive = an_archive(session)
    claim.register(session, PROCESS, HOST, "node2", 4)
    id, items = ArchiveId(archive.id), ", ".join(f"i{number:03}" for number in range(120))
    locks.pause(session, id, "tex", "", "ann")
    archive.commit({"page": f"foreach: [{items}]\nlock: tex"})
    shown = operator.get("/papers@2")
    assert "page/i000 : It waits for the lock papers/tex , which is paused since" in said(shown)
    assert re.search(r'class="b do"[^>]*>Resume papers/tex<', shown.text)
    locks.resume(session, id, "tex", "papers/tex", "ann")
    assert "page/i000 :" not in said(operator.get("/papers@2")), "it has the lock, and can start"
    pauses.pause(session, id, "", "ann")
    shown = operator.get("/papers@2")
    assert "page/i000 : It waits for its locks, but papers is paused since" in said(shown)
    assert re.search(r'class="b cut-short do"[^>]*>Resume papers<', shown.text)


def test_a_run_offers_what_helps_before_a_wait_that_ends_by_itself(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    files = {**{f"deploy{n}": "lock: site" for n in range(4)}, "upload": "depends: [PREV]"}
    archive.commit(files)
    archive.commit(files)
    archive.fail("upload@2")
    archive.claim("deploy0@2")
    shown = operator.get("/papers@3")
    assert re.search("upload : It waits for papers@2/upload ?, which failed", said(shown))
    assert re.search(r'name="name" value="papers@2/upload"><input [^>]*name="verb" value="retry">', shown.text)
    archive.skip("upload@2")
    archive.run("upload@3")
    assert "deploy0 : It waits for the lock papers/site" in said(operator.get("/papers@3"))


def test_a_run_whose_tasks_are_all_held_offers_no_hold(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"upload": "hold: true", "check": ""})
    assert 'value="hold"' in operator.get("/papers@3").text
    archive.run("check@3")
    page = operator.get("/papers@3")
    assert 'value="hold"' not in page.text
    assert 'value="release"' in page.text


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        ("/papers%403", "/papers@3"),
        ("/papers%403/index?times=yes", "/papers@3/index?times=yes"),
        ("/papers%3Aa%252Fb%4012.2/tile/x%40y", "/papers:a%252Fb@12.2/tile/x%40y"),
        ("/papers/", "/papers"),
        ("/papers@3/?list=a", "/papers@3?list=a"),
    ],
)
def test_an_address_that_another_program_encoded_leads_to_its_page(
    reader: httpx.Client, archive: AnArchive, sent: str, meant: str
) -> None:
    assert archive.name == "papers"
    assert (reader.get(sent).status_code, reader.get(sent).headers["location"]) == (303, meant)


def test_a_name_whose_own_at_sign_is_encoded_stays(reader: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"tile": "foreach: ['x@y']"})
    assert reader.get("/papers@2/tile/x%40y").status_code == 200
    assert reader.get("/papers:a%40b").status_code == 404


def test_what_has_no_task_offers_no_trigger(admin: httpx.Client, session: Session) -> None:
    archive = an_archive(session, "empty")
    page = admin.get("/empty")
    assert "/-/trigger" not in page.text
    assert "A first one, in the archive itself" in page.text
    archive.commit({})
    assert "A first one, in the archive itself" in admin.get("/empty").text, "its run had no task"
    archive.commit({"index": ""})
    archive.commit({})
    assert "A first one" not in admin.get("/empty").text
    assert "Go back" in said(admin.get("/-/trigger?of=empty"))


def test_settings_that_the_form_has_in_lines_are_told_in_lines(admin: httpx.Client, archive: AnArchive) -> None:
    assert archive.name == "papers"
    words = said(admin.get("/-/settings/papers"))
    assert "ann@example.org failed fixed held completed stopped" in words
    assert "{" not in words


def test_a_state_that_no_item_is_in_shows_and_offers_nothing(operator: httpx.Client, archive: AnArchive) -> None:
    """A link to what failed must not lead, once nothing is failed, to buttons for the whole list."""
    archive.commit({"fetch": "foreach: [a, b, c]"})
    archive.run("fetch/a@3")
    page = operator.get("/papers@3?list=fetch&state=failed")
    words = said(page)
    assert "fetch: failed" in words
    assert "No item is failed now. All items" in words
    assert "fetch/b" not in page.text.partition('id="items"')[2]
    assert 'value="papers@3/fetch/*"' not in page.text
    assert 'value="papers@3/fetch/*"' in operator.get("/papers@3?list=fetch").text


def test_the_page_of_an_archive_of_an_earlier_version_that_is_called_like_an_address_of_the_server(
    visitor: Visitors, session: Session
) -> None:
    """Such an archive keeps its name; at the address of its name is the description of the API."""
    an_archive(session, "docs").commit({"a": ""})
    browser = visitor(Scope.ADMIN)
    assert 'href="/-/archives/docs"' in browser.get("/").text
    shown = browser.get("/-/archives/docs")
    assert (shown.status_code, ">docs</b>" in shown.text, 'href="/docs@2"' in shown.text) == (200, True, True)
    assert 'href="/-/archives/docs"' in browser.get("/docs@2").text
    assert browser.get("/-/search", params={"q": "docs"}).headers["location"] == "/-/archives/docs"
    assert visitor(Scope.READ, "papers").get("/-/archives/docs").status_code == 404
    assert browser.get("/-/archives/other").status_code == 404


def test_changed_files_with_hostile_names_are_only_text_and_unreadable_ones_are_not_counted(
    operator: httpx.Client, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changed, "PATIENCE", PATIENCE)
    repository, archive = a_git_repository(tmp_path), an_archive(session, "maps")
    watch(archive, repository)
    commit(archive, repository, {f"{HOSTILE}\n<img src=x>\udcff": "1"}, {})
    archive.sql("update revision set previous = null where number = 2")
    page = operator.get("/maps@2")
    shown = page.text.partition("<h2>Changed</h2>")[2].partition("</dl>")[0]
    assert "1 file</span>" in shown
    assert html.escape(visible(HOSTILE.partition("</")[0])) in shown
    assert re.search(r"<(script|img)|[\x00-\x08\x0b-\x1f\x7f\u202e\udcff]", shown) is None
    assert "\\u202e" in shown
    assert "\\xff" in shown
    repository.path.rename(repository.path.with_name("away"))
    text = said(operator.get("/maps@2"))
    assert f"Changed cannot be read {repository.path}: " in text
    assert "0 files" not in text


def test_a_fault_is_shown_with_the_lines_of_its_file(
    operator: httpx.Client, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changed, "PATIENCE", PATIENCE)
    repository, archive = a_git_repository(tmp_path), an_archive(session, "maps")
    watch(archive, repository)
    text = [f"- name: a {HOSTILE_ITEM}", "  command: ls", "- name: b", "  depends: [biuld]", "- name: c", "- name: d"]
    id = repository.commit({"_workflows/w.yaml": "\r\n".join(["# first", "", *text, ""])})
    opened = open_archive(locate(str(repository.path)))
    made = opened.baseline("main", id)
    assert made is not None
    archive.append("", [Entry(replace(made, number=2), opened.workflow(id), ())])

    def shown() -> list[tuple[str, str, str]]:
        return re.findall(
            r'<div( class="at")?><span class="soft">(\d+)</span><code>([^<]*)</code>', operator.get("/maps@2").text
        )

    first = [("", "1", "# first"), ("", "2", ""), (' class="at"', "3", html.escape(text[0])), ("", "4", text[1])]
    assert shown()[:4] == first
    assert (' class="at"', "6", text[3]) in shown()
    assert ("", "9", "") not in shown(), "behind the last line end is no line"

    asked: list[str] = []

    def hang(_: float, __: object, name: str, **___: object) -> None:
        asked.append(name)
        raise TimeoutError

    with monkeypatch.context() as patch:
        patch.setattr(changed, "answer_within", hang)
        # The calls that hang keep their places, which other tests of the process need.
        patch.setattr(changed, "_places", threading.BoundedSemaphore(changed.MOST_AT_ONCE))
        assert shown() == []
        assert len(asked) == 1, "a repository that hangs is waited for once"
    repository.path.rename(repository.path.with_name("away"))
    assert shown() == []
    assert "_workflows/w.yaml:3:" in said(operator.get("/maps@2"))


def test_an_archive_without_a_revision_has_a_page_for_an_operator(operator: httpx.Client, session: Session) -> None:
    an_archive(session, "empty", branches=())
    assert "No task runs on commits yet" in said(operator.get("/empty"))
