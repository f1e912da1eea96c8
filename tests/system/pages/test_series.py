"""Consecutive runs that no commit made are one line of the grid, which opens by its address."""

from __future__ import annotations

import re

import httpx
import pytest

from arkqueue.db.session import Session
from arkqueue.model import RunId
from arkqueue.queue import control
from arkqueue.web.pages.archive import ROWS
from tests.builders import AnArchive, an_archive
from tests.system.pages.conftest import said

TASKS = {"index": "", "pdf": "depends: [index]"}


@pytest.fixture
def archive(session: Session) -> AnArchive:
    """Three runs by hand between the runs of two commits; all but the newest run have completed."""
    archive = an_archive(session)
    archive.commit(TASKS)
    archive.run("index@2", "pdf@2")
    for run in (2, 3, 4):
        archive.trigger(2)
        archive.run(f"index@2.{run}", f"pdf@2.{run}")
    archive.commit(TASKS)
    return archive


def lines(browser: httpx.Client, **asked: str) -> list[str]:
    """The heads of the grid's lines, with the shapes of their cells."""
    page = browser.get("/papers", params=asked).text
    body = page.partition("<tbody>")[2].partition("</tbody>")[0]
    found = []
    for row in body.split("<tr")[1:]:
        head, *cells = re.split("<td", row)
        text = " ".join(re.sub(r"<svg.*?</svg>|<[^>]*>", " ", head.partition("<th")[2].partition(">")[2]).split())
        shapes = ["+".join(re.findall(r'aria-label="([a-z]+)"', cell)) for cell in cells]
        found.append(f"{text.partition(' now')[0]} | {' '.join(shapes)}")
    return found


def link(browser: httpx.Client, **asked: str) -> str:
    found = re.search(r'<a id="s\d+" href="([^"]*)"', browser.get("/papers", params=asked).text)
    assert found
    return found[1].replace("&amp;", "&")


def test_runs_by_hand_are_one_line_that_opens_and_closes(operator: httpx.Client, archive: AnArchive) -> None:  # noqa: ARG001
    first, series, *rest = lines(operator)
    assert first.startswith("3 ")
    assert series == "▸ 2 by hand: 3 runs more | completed completed"
    assert [line.partition(" ")[0] for line in rest] == ["2", "1"]
    address = link(operator)
    page = operator.get(address)
    assert 'aria-expanded="true"' in page.text
    opened = lines(operator, open=address.partition("open=")[2].partition("#")[0])
    assert [line.partition(" |")[0] for line in opened[1:5]] == ["▾ 2 by hand: 3 runs", "2.4 by hand", "2.3 by hand", "2.2 by hand"]  # fmt: skip
    again = re.search(r'<a id="s\d+" href="([^"]*)"', page.text)
    assert again
    assert "open=" not in again[1]
    assert "3 runs more" in said(operator.get(again[1]))


def test_a_line_is_no_greener_than_its_worst_run(operator: httpx.Client, session: Session, archive: AnArchive) -> None:
    archive.trigger(2)
    archive.fail("index@2.5")
    task = archive.task("index@2.5")
    archive.trigger(2)
    assert sum("more" in line for line in lines(operator)) == 1
    control.note(session, "known", "ann", run=RunId(archive.run_id(2, 5)), task=task)
    archive.run("index@2.6", "pdf@2.6")
    archive.commit(TASKS)
    page = operator.get("/papers").text
    assert "2 by hand: 2 runs more | failed skipped" in "\n".join(lines(operator))
    assert "index in 2 runs: 1 failed, 1 completed. papers@2.5/index is failed." in page
    assert 'title="1 failed, 1 completed"' in page


def test_a_failure_that_nobody_has_handled_has_a_row_of_its_own(operator: httpx.Client, archive: AnArchive) -> None:
    archive.run("index@3", "pdf@3")
    for _ in range(3):
        archive.trigger(3)
    archive.run("index@3.2", "pdf@3.2")
    archive.fail("index@3.3")
    archive.cancel("index@3.4")
    archive.commit(TASKS)
    page = operator.get("/papers").text
    heads = [line.partition(" |")[0] for line in lines(operator)]
    assert [head for head in heads if head.startswith("3.")] == ["3.4 by hand", "3.3 by hand", "3.2 by hand"]
    assert re.search(rf'id="t{archive.task("index@3.3")}"[^>]* class="alarm"', page)


def test_a_run_that_goes_on_and_the_newest_run_have_rows_of_their_own(
    operator: httpx.Client, archive: AnArchive
) -> None:
    archive.run("index@3", "pdf@3")
    for _ in range(4):
        archive.trigger(3)
    archive.run(*(f"{task}@3.{run}" for run in (2, 3, 5) for task in TASKS))
    heads = [line.partition(" |")[0] for line in lines(operator)]
    assert heads[0] == "3.5 by hand"
    assert heads[1] == "3.4 by hand"
    assert heads[2] == "▸ 3 by hand: 2 runs more"
    archive.run("index@3.4", "pdf@3.4")
    heads = [line.partition(" |")[0] for line in lines(operator)]
    assert heads[:2] == ["3.5 by hand", "▸ 3 by hand: 3 runs more"]


def test_an_edge_from_a_run_that_is_in_a_line_begins_there(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    tasks = {"index": "depends: [PREV]"}
    archive.commit(tasks)
    archive.run("index@2")
    for run in (2, 3):
        archive.trigger(2)
        archive.run(f"index@2.{run}")
    archive.commit(tasks)
    page = operator.get("/papers").text
    shown, hidden = archive.task("index@3"), archive.task("index@2.3")
    stands = re.search(r'class="fold series".*?<a id="t(\d+)"', page, re.DOTALL)
    assert stands
    assert f'id="t{hidden}"' in page or int(stands[1]) != hidden
    assert f'data-edges="d{shown - int(stands[1])}"' in page


def test_a_filtered_page_shows_each_run(operator: httpx.Client, archive: AnArchive) -> None:  # noqa: ARG001
    assert sum("by hand" in line for line in lines(operator, state="completed")) == 3
    assert len(operator.get("/papers", params={"format": "json"}).json()["rows"]) == 6


def test_a_page_of_lines_goes_on_where_it_ends(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"index": ""})
    archive.run("index@2")
    for run in range(2, ROWS + 6):
        archive.trigger(2)
        archive.run(f"index@2.{run}")
    archive.commit({"index": ""})
    for number in range(4, 4 + ROWS):
        archive.commit({"index": ""})
        archive.run(f"index@{number}")
    assert len(lines(operator)) == ROWS
    following = re.search(r"before=(\d+)", operator.get("/papers").text)
    assert following
    found = lines(operator, before=following[1])
    assert f"▸ 2 by hand: {ROWS + 4} runs more | completed" in found
    assert found[-1].startswith("1 ")
    inside = link(operator, before=following[1], columns="index")
    assert f"before={following[1]}" in inside
    assert "columns=index" in inside


def test_what_an_address_opens_may_be_anything(operator: httpx.Client, archive: AnArchive) -> None:  # noqa: ARG001
    for hostile in ("x", "9" * 40, "-1", "<script>", "²"):
        assert operator.get("/papers", params={"open": hostile}).status_code == 200
