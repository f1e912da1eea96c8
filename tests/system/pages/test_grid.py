"""The grid of an archive's page: edges and a sentence of each cell, notes at failures, groups and
names of columns.
"""

from __future__ import annotations

import html
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from arkqueue.db.session import Session
from arkqueue.errors import Conflict
from arkqueue.model import ArchiveId, End, RunId, Stream, Workflow
from arkqueue.queue import claim, control, deletion, locks, purge, redo
from arkqueue.queue.tokens import Scope
from arkqueue.views.explain import explain
from tests.builders import HOST, PROCESS, AnArchive, a_workflow, an_archive, faulty
from tests.system.pages.conftest import Visitors, form_of, press, said, stay_alive

TASKS = {"index": "depends: [PREV]", "pdf": "depends: [index]\ncancels: [PREV]", "upload": "depends: [pdf]"}


@pytest.fixture
def archive(session: Session) -> AnArchive:
    archive = an_archive(session)
    archive.commit(TASKS)
    archive.commit(TASKS)
    return archive


def grid(browser: httpx.Client, **asked: str) -> dict[str, Any]:
    answer = browser.get("/papers", params=asked | {"format": "json"})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def cells(browser: httpx.Client, **asked: str) -> dict[str, Any]:
    """The cells of the grid by the names of their tasks."""
    rows = grid(browser, **asked)["rows"]
    return {cell["task"]["full_name"]: cell for row in rows for cell in row["cells"] if cell}


def test_a_cell_says_what_its_task_waits_for_and_has_its_edges(operator: httpx.Client, archive: AnArchive) -> None:
    found = cells(operator)
    assert found["papers@3/index"]["says"] == "papers@3/index waits for papers@2/index, which is ready."
    assert found["papers@3/index"]["edges"] == f"d{archive.task('index@2')}"
    assert found["papers@3/upload"]["edges"] == f"d{archive.task('pdf@3')}"
    assert found["papers@2/index"]["edges"] == ""


@pytest.mark.parametrize("is_by_hand", [True, False])
def test_a_wait_for_a_skipped_task_names_the_failure_behind_it(
    operator: httpx.Client, session: Session, is_by_hand: bool
) -> None:
    archive = an_archive(session)
    for _ in range(3):
        archive.commit({"pdf": "", "upload": "depends: [pdf, PREV]"})
    archive.run("pdf@2", "pdf@4")
    if is_by_hand:
        archive.fail("upload@2")
        archive.skip("upload@3")
        wanted, short = "papers@2/upload", "2/upload"
    else:
        archive.run("upload@2")
        archive.fail("pdf@3")
        wanted, short = "papers@3/pdf", "3/pdf"
    assert archive.states()["upload@3"] == "skipped"
    cell = cells(operator)["papers@4/upload"]
    assert cell["says"] == f"papers@4/upload waits for {wanted}, which failed (through papers@3/upload)."
    assert cell["words"] == ("for 2" if is_by_hand else "for 3/pdf")
    (line,) = operator.get("/?format=json").json()["lines"]
    assert f"upload waits for {short} (failed), through 3/upload" in [wait["text"] for wait in line["waits"]]
    assert (
        f"It waits (through papers@3/upload, which was skipped) for {wanted}, which"
        in explain(session, archive.task("upload@4")).text
    )


def test_a_cell_says_why_its_task_waits_that_waits_for_no_other(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "lock: web"})
    archive.claim("a@2")
    archive.commit({"a": "lock: web", "gpu": "runs_on: [gpu]", "b": ""})
    found = cells(operator)
    assert found["papers@3/gpu"]["says"] == "papers@3/gpu is ready, but no task manager is running."
    claim.register(session, PROCESS, HOST, "machine", 4)
    found = cells(operator)
    assert found["papers@3/gpu"]["says"] == (
        "papers@3/gpu is ready, but no running task manager has the label gpu (`runs_on`)."
    )
    assert (
        found["papers@3/a"]["says"]
        == "papers@3/a waits for the lock papers/web, which papers@2/a has; it is next in line."
    )
    assert found["papers@3/b"]["says"] == "papers@3/b is ready."
    (line,) = operator.get("/?format=json").json()["lines"]
    overview = " ".join(wait["text"] for wait in line["waits"])
    for of in ("gpu", "a"):
        assert found[f"papers@3/{of}"]["says"].removeprefix("papers@3/").removesuffix(".") in overview


def test_a_cell_says_until_when_its_task_is_deferred(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"pdf": "retries: {max: 1, delay: 5m}", "items": "foreach: [x]\ndeadline: 1h", "index": ""})
    archive.end("pdf@2", 1)
    archive.end("items/x@2", 75)
    found = cells(operator)
    words = r"deferred: attempt 1 failed \(exit code 1\)\. The next attempt is due at \d\d:\d\d UTC"
    assert re.fullmatch(rf"papers@2/pdf is {words}\.", found["papers@2/pdf"]["says"])
    first = r"deferred: the next attempt is due at \d\d:\d\d UTC, as attempt 1 failed \(exit code 1\)"
    page = operator.get("/papers@2").text
    assert re.search(f">{first}<", page)
    assert ", as attempt 1 asked to be run again later (exit code 75). Its deadline is " in page
    assert "papers@2/items/x is deferred: attempt 1 asked to be run again" in found["papers@2/items/x"]["says"]


def test_a_retry_of_a_list_that_is_forced_concerns_that_list_alone(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    for _ in range(2):
        archive.commit({"check": "foreach: [good, bad]", "other": ""})
    archive.fail("check/bad@2", "other@2")
    archive.run("check/bad@3")
    fields = {"form": form_of(operator.get("/papers")), "name": "papers@2", "verb": "retry", "task": "check"}
    fields["back"] = "/papers"
    refused = operator.post("/-/act", data=fields)
    assert "would replace the work of later revisions" in said(refused, 409)
    assert "1 task would be free to start" in said(operator.post("/-/act", data=fields | {"force": "yes"}))
    assert operator.post("/-/act", data=fields | {"force": "yes", "sure": "yes"}).status_code == 303
    assert [archive.state(one) for one in ("check/bad@2", "other@2")] == ["ready", "failed"]


def test_a_cell_says_what_its_task_superseded(operator: httpx.Client, archive: AnArchive) -> None:
    archive.run("index@2")
    archive.claim("index@3")
    archive.run("index@3")
    archive.end("pdf@2", None, End.STOPPED)
    archive.claim("pdf@3")
    found = cells(operator)["papers@3/pdf"]
    assert found["says"].startswith("papers@3/pdf is being prepared on host-1")
    assert found["says"].endswith("It superseded papers@2/pdf.")
    assert found["edges"].split() == [f"d{archive.task('index@3')}", f"x{archive.task('pdf@2')}"]


def test_a_cell_of_a_failure_says_how_long_it_took_why_and_what_it_wrote(
    operator: httpx.Client, archive: AnArchive
) -> None:
    archive.write("index@2", (Stream.STDERR, b"a brace is missing\n"))
    archive.end("index@2", 1)
    archive.sql("update attempt set started_at = ended_at - interval '130 s' where ended_at is not null")
    says = cells(operator)["papers@2/index"]["says"]
    assert says == "papers@2/index failed after 2:10: exit code 1: a brace is missing."


def test_a_cell_says_once_that_its_task_was_canceled_or_skipped_and_by_whom(
    operator: httpx.Client, archive: AnArchive, session: Session
) -> None:
    archive.run("index@2")
    archive.claim("index@3")
    archive.run("index@3")
    archive.end("pdf@2", None, End.STOPPED)
    archive.commit({"a": "", "b": "", "c": "depends: [a]"})
    control.cancel(session, archive.task("a@4"), "ann")
    control.skip(session, archive.task("b@4"), "ann")
    found = {name: cell["says"] for name, cell in cells(operator, gone="yes").items()}
    assert found["papers@2/pdf"] == "papers@2/pdf was superseded by papers@3/pdf."
    assert found["papers@4/a"] == "papers@4/a is canceled by ann."
    assert found["papers@4/b"] == "papers@4/b is skipped by ann."
    assert found["papers@4/c"] == "papers@4/c is skipped because of papers@4/a."


def test_a_task_that_only_a_failure_starts_is_not_needed_without_one(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"deposit": "", "clean-up": "depends: [{task: deposit, when: failed}]"})
    archive.run("deposit@2")
    cell = cells(operator)["papers@2/clean-up"]
    assert cell["words"] == "not needed"
    assert cell["says"] == "papers@2/clean-up is skipped as papers@2/deposit completed."
    assert "skipped as deposit completed" in said(operator.get("/papers@2"))
    assert "as papers@2/deposit completed" in said(operator.get("/-/report?of=papers@2"))


def test_what_waits_says_when_it_may_start_from_how_long_its_tasks_took(
    operator: httpx.Client, session: Session
) -> None:
    archive = an_archive(session, "thesis")
    claim.register(session, PROCESS, HOST, "build-1", 4)
    archive.commit({"index": "", "pdf": "depends: [index]", "upload": "depends: [pdf]"})
    archive.run("index@2", "pdf@2", "upload@2")
    archive.sql("update attempt set started_at = ended_at - interval '100 s'")
    archive.commit({"index": "", "pdf": "depends: [index]", "upload": "depends: [pdf]"})
    (row, *_) = operator.get("/thesis?format=json").json()["rows"]
    says = [cell["says"] for cell in row["cells"]]
    assert re.search("may start in a moment and end in about 1:(40|39)", says[0])
    assert re.search("may start in about (3:20|3:19) and end in about (5:00|4:59)", says[2])
    assert re.search("3 is pending , done in [45] min", said(operator.get("/thesis")))
    archive.claim("index@3")
    assert "3 is processing: index is running , done in" in said(operator.get("/thesis"))
    archive.sql("update attempt set started_at = now() - interval '50 s' where ended_at is null")
    (row, *_) = operator.get("/thesis?format=json").json()["rows"]
    assert [round(cell["progress"], 1) if cell["progress"] else None for cell in row["cells"]] == [0.5, None, None]


def test_what_waits_for_a_lock_starts_after_those_that_have_it(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session, "thesis")
    claim.register(session, PROCESS, HOST, "build-1", 4)
    archive.commit({"pdf": "lock: tex"})
    archive.run("pdf@2")
    archive.sql("update attempt set started_at = ended_at - interval '10 minutes'")
    for _ in range(3):
        archive.commit({"pdf": "lock: tex"})
    archive.claim()

    def newest() -> str:
        (row, *_) = operator.get("/thesis?format=json").json()["rows"]
        return str(row["cells"][0]["says"])

    archive.sql("update attempt set started_at = now() - interval '5 minutes' where ended_at is null")
    assert re.search(r"it may start in about (15:00|14:5\d) and end in about (25:00|24:5\d)\.$", newest())
    assert re.search("5 is pending , done in 2[45] min", said(operator.get("/thesis")))
    archive.sql("update attempt set started_at = now() - interval '11 minutes' where ended_at is null")
    assert "may start" not in newest()
    assert "done in" not in said(operator.get("/thesis"))


def test_a_note_takes_a_failure_out_of_what_needs_somebody(operator: httpx.Client, archive: AnArchive) -> None:
    archive.fail("index@2")
    assert (grid(operator)["failed"], cells(operator)["papers@2/index"]["needs"]) == (1, True)
    press(operator, "/papers@2/index", "papers@2/index", "note", "known: disk of node 3 <b>")
    page = operator.get("/papers")
    assert "<title>papers · arkqueue</title>" in page.text
    assert "Noted by operate test just now: known: disk of node 3 &lt;b&gt;" in page.text
    assert operator.get("/?format=json").json()["needs"] == []
    assert (grid(operator)["failed"], cells(operator)["papers@2/index"]["needs"]) == (0, False)
    archive.commit({"index": ""})
    archive.fail("index@4")
    assert grid(operator)["failed"] == 1


def test_a_note_counts_until_the_task_is_fixed(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"index": ""})
    archive.fail("index@2")
    control.note(session, "the disk", "ann", run=RunId(archive.run_id(2)), task=archive.task("index@2"))
    archive.retry("index@2")
    archive.fail("index@2")
    assert grid(operator)["failed"] == 0, "it still fails for the reason that is known"
    archive.retry("index@2")
    archive.run("index@2")
    redo.retry_from(session, RunId(archive.run_id(2)), "index", "ann")
    archive.fail("index@2")
    assert grid(operator)["failed"] == 1
    assert "the disk" not in cells(operator)["papers@2/index"]["says"]


def test_a_note_from_before_the_failure_takes_nothing_out(
    operator: httpx.Client, session: Session, archive: AnArchive
) -> None:
    control.note(session, "looks well", "ann", run=RunId(archive.run_id(2)), task=archive.task("index@2"))
    archive.fail("index@2")
    assert grid(operator)["failed"] == 1


def test_runs_with_failures_that_nobody_has_handled_are_shown_alone(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"other": ""})
    archive.commit({"other": ""})
    archive.fail("index@2")
    archive.fail("other@4", "other@5")
    archive.skip("other@4")
    assert [row["run"]["rev"] for row in grid(operator, state="unhandled")["rows"]] == [5, 2]


def test_the_filter_of_unhandled_failures_combines_with_the_others(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    for number, author in enumerate(("ann", "ben", "ann", "ann"), 2):
        archive.commit({"index": "", "other": ""}, author=author)
        archive.sql("update revision set message = %s where number = %s", f"chapter {number}", number)
        archive.fail(f"index@{number}" if number < 5 else "other@5")

    def revisions(**filters: str) -> list[int]:
        return [row["run"]["rev"] for row in grid(operator, state="unhandled", **filters)["rows"]]

    assert revisions() == [5, 4, 3, 2]
    assert revisions(author="ann") == [5, 4, 2]
    assert revisions(author="ann", task="index") == [4, 2]
    assert revisions(message="chapter 3") == [3]
    assert revisions(author="ann", message="chapter 3") == []
    archive.commit(faulty(), author="ben")
    assert revisions() == [6, 5, 4, 3, 2]
    assert revisions(author="ben") == [6, 3]
    assert revisions(task="other") == [5]
    assert revisions(before=str(archive.run_id(4))) == [3, 2]


def test_many_failed_items_of_one_run_hide_no_other_run(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"pdf": ""})
    archive.fail("pdf@2")
    items = [f"i{number}" for number in range(120)]
    archive.commit({"check": f"foreach: [{', '.join(items)}]"})
    archive.fail(*(f"check/{item}@3" for item in items))
    assert [row["run"]["rev"] for row in grid(operator, state="unhandled")["rows"]] == [3, 2]
    assert grid(operator)["failed"] == 121


def test_a_task_behind_a_paused_lock_has_no_prospect_and_names_the_lock_and_what_helps(
    operator: httpx.Client, session: Session
) -> None:
    archive = an_archive(session)
    claim.register(session, PROCESS, HOST, "node2", 4)
    stay_alive(session)
    archive.commit({"pdf": "", "upload": ""})
    archive.run("pdf@2", "upload@2")
    archive.sql("update attempt set started_at = ended_at - interval '1 minute'")
    archive.commit({"pdf": "lock: tex", "upload": "depends: [pdf]"})
    locks.pause(session, ArchiveId(archive.id), "tex", "the <licence>", "ann")
    found = cells(operator)
    assert re.fullmatch(
        r"papers@3/pdf waits for the lock papers/tex, which is paused since .* UTC by ann: the <licence>;"
        r" to resume it: arkqueue resume --lock papers/tex\.",
        found["papers@3/pdf"]["says"],
    )
    assert found["papers@3/upload"]["says"] == "papers@3/upload waits for papers@3/pdf, which is waiting."
    assert "waiting for the lock papers/tex, which is paused since" in said(operator.get("/papers@3"))
    for address in ("/papers", "/papers@3", "/papers@3/pdf", "/papers@3/upload"):
        words = said(operator.get(address))
        assert "may start" not in words, address
        assert "Done in" not in words, address
        assert "<licence>" not in operator.get(address).text
    locks.resume(session, ArchiveId(archive.id), "tex", "papers/tex", "ann")
    assert "may start in" in cells(operator)["papers@3/upload"]["says"]


def test_a_filter_that_matches_no_run_says_so_and_can_be_removed(operator: httpx.Client, archive: AnArchive) -> None:
    page = operator.get("/papers", params={"author": "nobody", "columns": "pdf"})
    assert "No run yet" not in said(page)
    assert "No run matches the filter. Show all runs" in said(page)
    assert '<a href="/papers?columns=pdf"><u>Show all runs</u></a>' in page.text
    page = operator.get("/papers", params={"author": "ann", "before": str(archive.run_id(1))})
    assert "No earlier run matches the filter. Show all runs" in said(page)
    assert "No run yet" in said(operator.get(f"/{an_archive(archive.session, 'maps').name}"))


@pytest.mark.usefixtures("archive")
def test_the_form_of_the_filter_leads_to_a_short_address(operator: httpx.Client) -> None:
    empty = {"message": "", "author": "", "task": "", "state": ""}
    for form, address in (
        ({"columns": ["pdf", "index"]}, "/papers?columns=pdf,index"),
        ({"columns": ["pdf"], "author": "ann"}, "/papers?author=ann&columns=pdf"),
        ({}, "/papers"),
    ):
        assert operator.get("/papers", params=empty | form).headers["location"] == address
        assert operator.get(address).status_code == 200


def test_the_sentence_of_a_branch_says_when_its_newest_run_ended_or_was_planned(
    operator: httpx.Client, archive: AnArchive
) -> None:
    number = max(row["number"] for row in archive.sql("select number from revision"))
    assert f"{number} is pending ; it was planned just now ." in said(operator.get("/papers"))
    archive.commit({"a": ""})
    archive.run(f"a@{number + 1}")
    assert f"{number + 1} completed just now ." in said(operator.get("/papers"))
    archive.commit({"a": ""})
    archive.cancel(f"a@{number + 2}")
    assert f"{number + 2} was canceled just now ." in said(operator.get("/papers"))


def test_links_to_other_runs_keep_the_columns_and_the_other_filters(
    operator: httpx.Client, archive: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arkqueue.web.pages.archive.ROWS", 1)
    archive.fail("index@2")

    def links(**asked: str | list[str]) -> dict[str, str]:
        text = operator.get("/papers", params=asked).text
        found = re.findall(
            r'<a[^>]* href="(/papers[^"@]*)"[^>]*>(?:<u>)?(any state|unhandled only|All runs|Earlier runs)<', text
        )
        return {words: html.unescape(address) for address, words in found}

    before = archive.run_id(3)
    assert links(columns="pdf,index") == {
        "unhandled only": "/papers?columns=pdf,index&state=unhandled",
        "Earlier runs": f"/papers?columns=pdf,index&before={before}",
    }
    assert links(columns="pdf", author="ann") == {
        "unhandled only": "/papers?columns=pdf&author=ann&state=unhandled",
        "All runs": "/papers?columns=pdf",
        "Earlier runs": f"/papers?columns=pdf&author=ann&before={before}",
    }
    assert links(columns="pdf", author="ann", state="pending") == {
        "any state": "/papers?columns=pdf&author=ann",
        "All runs": "/papers?columns=pdf",
        "Earlier runs": f"/papers?columns=pdf&author=ann&state=pending&before={before}",
    }
    assert links(gone="yes", author='"><b>')["All runs"] == "/papers?gone=yes"
    assert '"><b>' not in operator.get("/papers", params={"author": '"><b>'}).text


def in_files(**files: str) -> Workflow:
    """Tasks, the names of each file's with spaces between them."""
    tasks = [task for text in files.values() for task in a_workflow(dict.fromkeys(text.split(), "")).tasks]
    paths = [f"_workflows/{name}.yaml" for name, text in files.items() for _ in text.split()]
    return Workflow(tuple(replace(task, path=path) for task, path in zip(tasks, paths, strict=True)))


def test_columns_of_several_workflow_files_have_groups(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    archive.commit(in_files(build="index pdf", checks="links"))
    assert grid(operator)["groups"] == [{"name": "build", "width": 2}, {"name": "checks", "width": 1}]
    assert "build checks" in said(operator.get("/papers"))


def test_columns_come_from_the_newest_workflow_files_also_those_that_never_ran(
    operator: httpx.Client, session: Session
) -> None:
    archive = an_archive(session)
    build = a_workflow({"index": "", "store": "on: submission", "pdf": "depends: [index]"}).tasks
    nightly = a_workflow({"sweep": "on: schedule\nschedule: '0 3 * * *'"}).tasks
    tasks = [*build, *(replace(task, path="_workflows/nightly.yaml") for task in nightly)]
    archive.commit({"old": ""})
    archive.commit(Workflow(tuple(tasks)))
    archive.commit(faulty())
    found = grid(operator)
    assert [(c["name"], c["never"]) for c in found["columns"]] == [
        ("index", ""),
        ("store", "no commit runs it: it runs for submissions"),
        ("pdf", ""),
        ("sweep", "no commit runs it: it runs by its schedule"),
    ]
    assert found["groups"] == [{"name": "test", "width": 3}, {"name": "nightly", "width": 1}]
    assert found["gone"] == ["old"]
    assert [g["name"] for g in grid(operator, gone="yes")["groups"]] == ["test", "nightly", "gone"]
    page = operator.get("/papers").text
    assert page.count('<span class="never') == 2 * 2, "two columns that commits never have, in the rows of two commits"
    assert page.count('<td class="cell" title="not in the workflow files of this revision">') == 2, (
        "of the commit before"
    )
    assert page.count(">never yet<") == 2, "what runs for commits has a task"
    assert [c["name"] for c in grid(operator, columns="sweep")["columns"]] == ["sweep"]


def test_what_its_filters_left_out_is_told_apart_from_what_did_not_exist_yet(
    operator: httpx.Client, session: Session
) -> None:
    archive = an_archive(session)
    archive.commit({"index": ""})
    files = {"index": "", "pdf": "paths: ['*.tex']", "site": "paths: [site/**]", "checks": "foreach: []"}
    archive.commit(files)
    archive.trigger(3, "index")
    found = grid(operator)
    assert [(c["name"], c["is_new"]) for c in found["columns"]] == [
        ("index", False), ("pdf", True), ("site", True), ("checks", True)
    ]  # fmt: skip
    by_hand, newest, first, _ = found["rows"]
    assert by_hand["absent"] == [None] * 4
    assert newest["absent"] == [None, "filtered", "filtered", None]
    assert first["absent"] == [None, "undefined", "undefined", "undefined"]
    page = operator.get("/papers").text
    assert page.count('title="left out by its paths or branches"') == 2
    assert page.count('<td class="cell" title="not in the workflow files of this revision">') == 3
    assert page.count('title="not part of this run"') == 3 + 1, "the run by hand, and the empty list"
    assert page.count(">never yet<") == 3
    archive.trigger(3, "pdf")
    assert [c["name"] for c in grid(operator)["columns"] if c["is_new"]] == ["site", "checks"]


def test_a_newest_revision_with_faulty_workflow_files_needs_somebody_until_a_later_one_has_none(
    operator: httpx.Client, archive: AnArchive
) -> None:
    archive.fail("index@2")
    archive.commit(faulty())
    archive.commit(faulty())
    found = grid(operator)
    assert (found["failed"], found["faulty"]["rev"]) == (2, 5)
    page = operator.get("/papers")
    assert "<title>(2) papers" in page.text
    assert re.findall(r'class="[^"]*alarm[^>]*href="([^"]*)"|href="([^"]*)" class="alarm"', page.text) == [("/papers@5", ""), ("", "/papers@2/index")]  # fmt: skip
    assert "2 failures need you : 5 (its workflow files), 2/index ." in said(page)
    assert [row["run"]["rev"] for row in grid(operator, state="unhandled")["rows"]] == [5, 2]
    assert ">2 failures<" in operator.get("/papers?format=svg").text
    archive.commit(TASKS)
    assert (grid(operator)["failed"], grid(operator)["faulty"]) == (1, None)


def test_failures_are_named_as_the_command_line_writes_them_and_the_others_counted(
    operator: httpx.Client, session: Session
) -> None:
    archive = an_archive(session)
    files = {"check": "foreach: [bad/1, bad 2, c]", **dict.fromkeys("defgh", "")}
    archive.commit(files)
    archive.fail("check/bad 2@2", *(f"{name}@2" for name in "defgh"))
    archive.commit(files)
    archive.fail("check/bad/1@3", "check/c@3")
    told = said(operator.get("/papers")).partition("Filter")[0].partition("8 failures ")[2]
    assert told.startswith("need you : 3/check/* (2), 2/check/bad%202 , 2/d , 2/e , 2/f and 2 more.")


def test_long_names_that_differ_at_their_ends_are_told_apart(operator: httpx.Client, session: Session) -> None:
    names = [f"rebuild-the-index-of-all-drawings-{years}" for years in ("1880-to-1911", "1912-to-1920")]
    archive = an_archive(session)
    archive.commit(dict.fromkeys(names, ""))
    heads = re.findall(r'<span class="task-head" title="([^"]+)">([^<]+)</span>', operator.get("/papers").text)
    assert heads == [(names[0], "rebuild-the…1880-to-1911"), (names[1], "rebuild-the…1912-to-1920")]
    table = operator.get("/papers@2").text.partition('id="tasks"')[2]
    assert re.findall(r"<b>(rebuild-[^<]+)</b>", table) == [
        "rebuild-the-ind…ngs-1880-to-1911", "rebuild-the-ind…ngs-1912-to-1920",
    ]  # fmt: skip


def test_names_that_are_gone_are_folded_and_counted(operator: httpx.Client, archive: AnArchive) -> None:
    archive.fail("index@2")
    archive.commit({"new": ""})
    found = grid(operator)
    assert [column["name"] for column in found["columns"]] == ["new"]
    assert found["gone"] == ["index", "pdf", "upload"]
    assert [(row["gone"], row["worst"] and row["worst"]["name"]) for row in found["rows"]] == [(0, None), (3, "index"), (3, "index"), (0, None)]  # fmt: skip
    assert [column["name"] for column in grid(operator, gone="yes")["columns"]] == ["new", "index", "pdf", "upload"]
    page = operator.get("/papers")
    assert "3 gone" in said(page)
    assert re.findall(r'<a class="alarm" href="([^"]*)"', page.text) == ["/papers@2"], "j leads to the failure"
    control.note(archive.session, "the disk", "ann", run=RunId(archive.run_id(2)), task=archive.task("index@2"))
    assert "alarm" not in operator.get("/papers").text


def test_with_many_columns_a_page_has_fewer_rows_and_the_others_follow(
    operator: httpx.Client, archive: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("grid", "archive"):  # the second one reads no more runs than may have room
        monkeypatch.setattr(f"arkqueue.web.pages.{module}.MOST_CELLS", 6)
    for _ in range(3):
        archive.commit(TASKS)
    first = grid(operator)
    assert [row["run"]["rev"] for row in first["rows"]] == [6, 5]
    second = grid(operator, before=str(first["next"]))
    assert [row["run"]["rev"] for row in second["rows"]] == [4, 3]
    third = grid(operator, before=str(second["next"]))
    assert [row["run"]["rev"] for row in third["rows"]] == [2, 1]
    assert third["next"] is None
    assert [row["run"]["rev"] for row in grid(operator, columns="pdf")["rows"]] == [6, 5, 4, 3, 2, 1]


def test_columns_are_chosen_in_the_address(operator: httpx.Client, archive: AnArchive) -> None:  # noqa: ARG001
    found = grid(operator, columns="upload,index,nothing,index")
    assert [column["name"] for column in found["columns"]] == ["upload", "index"]
    assert all(len(row["cells"]) == 2 for row in found["rows"])
    page = operator.get("/papers", params={"columns": "pdf,index"})
    assert 'value="pdf" checked' in page.text


def test_a_failure_says_its_last_line(operator: httpx.Client, archive: AnArchive) -> None:
    archive.write(
        "index@2",
        (Stream.STDERR, b"\x1b[31mcurl: (7) no route\x1b[0m\n\n"),
        (Stream.STDOUT, b"bye\n"),
    )
    archive.end("index@2", 7)
    line = "exit code 7: curl: (7) no route"
    assert cells(operator)["papers@2/index"]["says"] == f"papers@2/index failed: {line}."
    assert [need["text"] for need in operator.get("/?format=json").json()["needs"]] == [line]
    (hit,) = operator.get("/-/search?author=ann&q=2&format=json").json()["hits"]
    assert hit["lines"] == ["curl: (7) no route"]


def test_a_failure_below_make_says_the_line_of_the_command(operator: httpx.Client, archive: AnArchive) -> None:
    repeated = b"make[1]: *** [Makefile:2: paper] Error 7\n", b"make: *** [Makefile:41: pdf] Error 2\n"
    archive.write("index@2", (Stream.STDERR, b"curl: (7) no route\n"), *((Stream.STDERR, line) for line in repeated))
    archive.end("index@2", 2)
    archive.commit({"index": "", "other": ""})
    archive.write("other@4", (Stream.STDERR, b"".join(repeated)))
    archive.end("other@4", 2)
    assert cells(operator)["papers@2/index"]["says"].endswith(" failed: exit code 2: curl: (7) no route.")
    assert cells(operator)["papers@4/other"]["says"].endswith(": make: *** [Makefile:41: pdf] Error 2.")


def test_a_run_at_the_revision_where_watching_begins_shows_its_tasks(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session, "box", tasks=a_workflow({"store": "on: submission\nhold: true"}))
    assert "No run yet. It is watched from revision 1 on." in said(operator.get("/box"))
    archive.submit("{}")
    assert "No commit has made a run yet. It is watched from revision 1 on. 1 task is held." in said(
        operator.get("/box")
    )
    page = operator.get("/box?format=json").json()["rows"]
    assert [(row["run"]["full_name"], row["run"]["baseline"], row["gone"]) for row in page] == [
        ("box@1.2", False, 0),
        ("box@1", True, 0),
    ]
    assert operator.get("/box").text.count("watching begins here") == 1


def test_items_of_a_list_that_an_older_version_stored_are_counted(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session, "thesis", tasks=a_workflow({"tile": "foreach: [a, b, c]", "none": "foreach: []"}))
    archive.sql(
        "update workflow set tasks = replace(replace(tasks::text, '\"count\": 3, ', ''), '\"count\": 0, ', '')::jsonb"
    )
    assert archive.sql("select count(*) as n from workflow where tasks::text like '%%count%%'")[0]["n"] == 0
    page = operator.get("/thesis").text
    assert ">3 items · test.yaml:1</text>" in page
    assert ">0 items · test.yaml:" in page


def test_a_list_whose_items_were_purged_is_said_to_be_so(operator: httpx.Client, session: Session) -> None:
    tasks = a_workflow({"tile": "foreach: [a, b]", "bind": "depends: [tile]"})
    archive = an_archive(session, "thesis", tasks=tasks)
    archive.commit(tasks)
    archive.run("tile/a@2", "tile/b@2", "bind@2")
    assert purge.purge_runs(session, [archive.run_id(2)], "ben").runs
    archive.sql("delete from list_use")  # as if the run at which watching begins had gone, too
    archive.sql("delete from list")
    with pytest.raises(Conflict, match=r"lists were removed on \d{4}-\S+ \S+ UTC by ben, .*Commit again"):
        archive.trigger(2)
    archive.sql("update workflow set tasks = replace(tasks::text, '\"count\": 2, ', '')::jsonb")  # an older version
    page = operator.get("/thesis")
    assert ">items removed · test.yaml:1</text>" in page.text
    assert re.search(r"The items of its lists, as they were, were removed on \d{4}-\S+ \S+ UTC by ben; the", said(page))


def test_before_the_first_run_a_page_shows_what_the_next_commit_makes(operator: httpx.Client, session: Session) -> None:
    workflow = a_workflow({"index": "", "pdf": "depends: [index, PREV]", "release": "on: manual\ndepends: [pdf]"})
    an_archive(session, "thesis", tasks=workflow)
    page = operator.get("/thesis")
    assert "The next commit makes the first run." in page.text
    assert re.findall(r"<title>(\w+)</title><rect", page.text) == ["index", "pdf"]
    assert ">test.yaml:1</text>" in page.text
    assert 'class="edge' in page.text
    assert operator.get("/thesis?format=json").json()["coming"]["places"] == {"1": "test.yaml:1", "2": "test.yaml:3"}
    an_archive(session, "broken", tasks=faulty())
    assert "The next commit makes a failed run" in operator.get("/broken").text
    an_archive(session, "empty")
    assert "_workflows/first.yaml" in operator.get("/empty").text


def test_what_the_next_commit_makes_has_one_box_for_a_list(operator: httpx.Client, session: Session) -> None:
    fields = {"tile": "foreach: [a, b, c]", "check": "foreach: [a, b, c]\ndepends: [tile]", "one": "foreach: [a]"}
    an_archive(session, "scans", tasks=a_workflow(fields | {"deposit": "depends: [check]"}))
    page = operator.get("/scans").text
    assert re.findall(r"<title>(\w+)</title><rect", page) == ["tile", "check", "one", "deposit"]
    assert re.findall(r'<text class="t"[^>]*>([^<]*)</text>', page) == [
        "3 items · test.yaml:1", "3 items · test.yaml:4", "1 item · test.yaml:8", "test.yaml:11",
    ]  # fmt: skip
    assert len(re.findall('class="edge[ "]', page)) == 2


def test_a_task_that_runs_for_longer_than_usual_is_said_to(visitor: Visitors, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"pdf": ""})
    archive.run("pdf@2")
    archive.sql("update attempt set started_at = ended_at - interval '1 minute'")
    archive.commit({"pdf": ""})
    attempt = archive.attempt("pdf@3")
    browser = visitor(Scope.READ)
    for began, words in (("0 seconds", "of about 1:00"), ("2 minutes", "longer than usual: about 1:00")):
        archive.sql("update attempt set started_at = clock_timestamp() - %s::interval where id = %s", began, attempt)
        assert words in browser.get("/papers").text


def test_the_header_shows_the_branch_whatever_the_rows_show(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "files": "foreach: [x, y]", "late": ""})
    archive.run("a@2", "files/x@2", "files/y@2", "late@2")
    archive.commit({"a": "", "files": "foreach: [x, z]", "late": "paths: [none/**]"})
    archive.fail("a@3", "files/z@3")
    archive.run("files/x@3")
    newest = {"a": (3, "failed", 2), "files": (3, "failed", 2), "late": (2, "completed", 2)}
    for asked in ({}, {"state": "completed"}, {"before": str(archive.run_id(3))}, {"columns": "a,files,late"}):
        columns = grid(operator, **asked)["columns"]
        shown = {one["name"]: (one["highest"]["rev"], one["highest"]["state"]) for one in columns}
        assert shown == {name: state[:2] for name, state in newest.items()}, asked
    for _ in range(55):
        archive.trigger(2, "a")
    shown = {one["name"]: (one["highest"]["rev"], one["highest"]["state"]) for one in grid(operator)["columns"]}
    assert shown["a"] == (3, "failed")


def test_the_sentence_on_the_newest_revision_is_the_same_on_every_page_of_the_branch(
    operator: httpx.Client, session: Session
) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": ""})
    archive.run("a@2", "b@2")
    archive.commit({"a": "", "b": "hold: true"}, author="ben")
    filters = ("state=completed", "author=ann", "task=b", "message=nothing", f"before={archive.run_id(3)}", "columns=b")
    for state in ("is held", "is processing: a is running"):
        for asked in ("", *filters):
            words = said(operator.get(f"/papers?{asked}"))
            assert f"3 {state} ; it was planned" in words, asked
            assert "Newest complete: 2" in words, asked
        archive.claim("a@3")


def test_the_sentence_on_the_newest_revision_names_what_is_deferred_or_ready_if_nothing_runs(
    operator: httpx.Client, session: Session
) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "", "c": "depends: [b]"})
    archive.claim()
    archive.end("a@2", 75)
    assert "2 is processing: b is running ;" in said(operator.get("/papers"))
    assert "b is running; 1 task waits; a is deferred." in said(operator.get("/papers@2"))
    archive.end("b@2")
    assert "2 is processing: c is ready ;" in said(operator.get("/papers"))
    archive.end("c@2", 75)
    assert "2 is processing: a, c are deferred ;" in said(operator.get("/papers"))


def test_the_sentence_on_the_newest_revision_names_the_task_of_an_earlier_one_that_holds_it_up(
    operator: httpx.Client, session: Session
) -> None:
    archive = an_archive(session)
    archive.commit({"pdf": "", "upload": "depends: [pdf, PREV]"})
    archive.fail("pdf@2")
    archive.commit({"pdf": "", "upload": "depends: [pdf, PREV]"})
    archive.run("pdf@3")
    assert "3 waits for 2/pdf ; it was planned" in said(operator.get("/papers"))


def test_the_header_has_the_state_of_a_list_however_long_ago_it_ran(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"files": "foreach: [x, y]", "others": "foreach: [x, y]", "a": ""})
    archive.fail("files/x@2")
    archive.commit({"files": "foreach: [x]", "others": "foreach: [x]", "a": ""})
    deletion.delete_item(session, RunId(archive.run_id(3)), "x", "ann")
    archive.commit({"a": ""})
    archive.sql(
        "insert into run (archive_id, branch_id, revision_id, number, run, trigger) "
        "select archive_id, branch_id, revision_id, number, g, 'manual' from run, generate_series(2, 1200) g where number = 4"
    )
    archive.commit({"files": "foreach: [y]\non: manual", "a": ""})
    (column,) = [one for one in grid(operator)["columns"] if one["name"] == "files"]
    assert (column["highest"]["rev"], column["highest"]["state"]) == (2, "failed")
    archive.sql("delete from run where run > 1")


def test_the_state_of_a_list_agrees_with_its_numbers_while_it_runs(
    operator: httpx.Client, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The item that stood for the list completed between the statement that chose it and the one that read it."""
    archive = an_archive(session)
    archive.commit({"files": "foreach: [x, y]"})
    archive.claim("files/x@2")
    rows = Session.rows

    def interrupted(session: Session, block: str, /, **parameters: Any) -> list[Any]:
        found = rows(session, block, **parameters)
        if block == "count_cells" and archive.state("files/x@2") == "running":
            archive.end("files/x@2")
        return found

    monkeypatch.setattr(Session, "rows", interrupted)
    cell, later = (cells(operator)[f"papers@2/files/{item}"] for item in "xy")
    assert (cell["task"]["state"], cell["words"]) == ("running", "0/2")
    assert (later["task"]["state"], later["words"]) == ("running", "1/2")


def test_waived_failures_of_a_list_are_said_everywhere_and_are_not_green(
    operator: httpx.Client, session: Session
) -> None:
    archive = an_archive(session)
    archive.commit({"files": "foreach: [v, w, x, y]", "alone": ""})
    archive.run("files/v@2", "files/w@2")
    archive.fail("files/x@2", "files/y@2", "alone@2")
    archive.skip("files/x@2")
    assert cells(operator)["papers@2/files/y"]["words"] == "2/4, 1 failed, 1 waived"
    assert "do" in buttons(operator.get("/papers@2"))["Retry what failed"]
    archive.skip("files/y@2")
    archive.skip("alone@2")
    found = cells(operator)
    assert found["papers@2/files/x"]["words"] == "2/4, 2 failed, waived"
    assert found["papers@2/alone"]["words"] == "exit 1, waived"
    archive.sql("update attempt set exit_code = null where task_id = %s", archive.task("alone@2"))
    assert cells(operator)["papers@2/alone"]["words"] == "failed, waived"
    assert {cell["task"]["state"] for cell in found.values()} == {"failed"}
    assert {one["highest"]["state"] for one in grid(operator)["columns"]} == {"failed"}
    page = operator.get("/papers@2")
    assert "It is completed: 2 of 5 tasks completed; 2 items of files, alone failed, waived." in said(page)
    assert "do" not in buttons(page).get("Retry what failed", [])
    assert "4 items · 2 failed, waived" in said(page)
    assert "2 failed, waived" in said(operator.get("/papers@2?list=files"))


def buttons(page: httpx.Response) -> dict[str, list[str]]:
    """The classes of the buttons of a page, by their words."""
    return {words: kinds.split() for kinds, words in re.findall(r'<button class="([^"]*)"[^>]*>([^<]*)', page.text)}


@pytest.mark.usefixtures("archive")
def test_a_word_that_is_not_a_state_is_said_to_be_none(operator: httpx.Client) -> None:
    assert "“bogus” is not a state of a run, so this page shows any state." in said(operator.get("/papers?state=bogus"))
    assert "is not a state" not in said(operator.get("/papers?state=failed"))
    assert "“pending” is not a state of a task" in said(operator.get("/papers?state=pending&task=pdf"))


def test_a_task_that_is_overdue_says_when_it_should_have_ended(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session, "thesis")
    claim.register(session, PROCESS, HOST, "build-1", 4)
    archive.commit({"index": ""})
    archive.run("index@2")
    archive.sql("update attempt set started_at = ended_at - interval '100 s'")
    archive.commit({"index": ""})
    page = said(operator.get("/thesis@3/index"))
    assert re.search(r"earlier runs of the task: its end in [12] min, \d\d:\d\d UTC", page), page
    archive.claim("index@3")
    began = datetime.now(UTC) - timedelta(seconds=400)
    archive.sql("update attempt set started_at = %s where ended_at is null", began)
    due = f"{began + timedelta(seconds=100):%H:%M} UTC"
    assert f"earlier runs of the task: its end overdue, {due}" in said(operator.get("/thesis@3/index"))
    assert "done later than usual" in said(operator.get("/thesis"))


def test_the_button_that_releases_an_archive_says_that_it_concerns_all_branches(
    operator: httpx.Client, session: Session
) -> None:
    archive = an_archive(session)
    archive.commit({"upload": "hold: true"})
    assert ">Release 1</button>" in operator.get("/papers").text
    several = an_archive(session, "maps", branches=["main", "fix/one"])
    several.commit({"upload": "hold: true"}, branch="main")
    for address in ("/maps", "/maps:fix%2Fone"):
        assert ">Release 1 of all branches</button>" in operator.get(address).text
    assert "<title>maps, fix/one · arkqueue</title>" in operator.get("/maps:fix%2Fone").text
