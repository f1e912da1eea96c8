"""The grid of an archive's page in a real browser: its menu of columns, its keys, and what stays in
sight while it is scrolled.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from playwright.sync_api import Locator, Page, expect

from arkqueue.db.session import Session
from arkqueue.model import ArchiveId, Workflow
from arkqueue.queue import locks
from arkqueue.queue.tokens import Scope
from tests.builders import AnArchive, a_workflow, an_archive, an_entry, faulty
from tests.db.outbox import failed_runs, set_receivers
from tests.system.pages.test_browser import Opened, opened
from tests.system.waking import waking_session

__all__ = ["opened", "waking_session"]

DESK, PHONE = {"width": 1280, "height": 800}, {"width": 360, "height": 800}
LONG = "a-very-long-task-name-that-goes-on-and-on-until-nobody-can-read-it-any-more-really-1234567890"


@pytest.fixture
def archive(session: Session) -> AnArchive:
    """A list of which two items have failed, what one of them kept from running, and many columns."""
    archive = an_archive(session)
    names = ["index", *(f"task-{number:02}" for number in range(12)), "upload"]
    archive.commit({"check": "foreach: [good, bad, worse]", **dict.fromkeys(names, "depends: [PREV]"), LONG: ""})
    archive.commit({"check": "foreach: [good, bad, worse]", **dict.fromkeys(names, "depends: [PREV]"), LONG: ""})
    archive.fail("check/bad@3", "check/worse@3", "index@2")
    return archive


def boxes(page: Page, what: str) -> list[dict[str, float]]:
    found: list[dict[str, float]] = page.locator(what).evaluate_all(
        "all => all.map(e => { const b = e.getBoundingClientRect(); return {left: b.left, right: b.right, bottom: b.bottom, width: b.width, height: b.height} })"
    )
    return found


def focused(page: Page) -> Locator:
    return page.locator(":focus")


@pytest.mark.full
@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_the_menu_of_columns_has_small_boxes_in_line_and_names_that_wrap(
    opened: Opened,
    archive: AnArchive,  # noqa: ARG001
    size: dict[str, int],
) -> None:
    page = opened("/papers", viewport=size)
    page.get_by_text("Columns", exact=True).click()
    (menu,) = boxes(page, ".columns .menu")
    assert menu["left"] >= 0
    assert menu["right"] <= size["width"]
    checks = boxes(page, ".columns input")
    assert len(checks) == 16
    assert {(box["left"], box["width"], box["height"]) for box in checks} == {(checks[0]["left"], 13, 13)}
    inside = boxes(page, ".columns label, .columns button")
    assert all(menu["left"] < box["left"] and box["right"] < menu["right"] for box in inside), (menu, inside)
    assert page.locator(".columns .menu").evaluate("menu => menu.scrollWidth <= menu.clientWidth")
    page.get_by_label(LONG).check()
    expect(page.locator(".columns .menu")).to_contain_text("None is checked: all are shown.")
    page.get_by_role("button", name="Show these").click()
    expect(page.locator(".grid thead .task-head")).to_have_attribute("title", LONG)
    page.get_by_text("Columns", exact=True).click()
    page.get_by_role("link", name="All columns").click()
    expect(page.locator(".grid thead .task-head")).to_have_count(16)


@pytest.mark.full
def test_what_an_archive_does_now_is_whole_on_a_phone_and_leaves_room_for_the_message(
    opened: Opened, session: Session
) -> None:
    archive = an_archive(session)
    for number in (2, 3, 4):
        archive.commit({f"t{n}": "lock: tex" if n == 9 else "" for n in range(12)})
        archive.fail(f"t1@{number}")
    locks.pause(session, ArchiveId(archive.id), "tex", "", "ann")
    page = opened("/", viewport=PHONE)
    now = page.locator(".now .s")
    expect(now).to_contain_text("running in 3 runs (t0, t10 and 9 more), 3 runs with failures, lock paused")
    (text,) = boxes(page, ".now .s > span")
    (card,) = boxes(page, "section.card:has(.now)")
    assert text["right"] <= card["right"]
    for _ in range(10):
        archive.commit({"t": ""}, author="A Person With A Very Long Name Of The Department Of Rare Books")
    an_archive(session, f"{'very-' * 15}long").commit({"t": ""})
    page.set_viewport_size({"width": 1280, "height": 800})
    page.reload()
    expect(page.locator(".of-archive")).to_have_count(2)
    assert min(box["width"] for box in boxes(page, ".of-archive .cut")) >= 170
    assert page.locator(".scroll:has(.of-archive)").evaluate("one => one.scrollWidth <= one.clientWidth")


@pytest.mark.full
def test_the_buttons_of_the_first_task_are_in_the_window_of_a_phone(opened: Opened, session: Session) -> None:
    archive = an_archive(session)
    for number in (2, 3):
        archive.commit({"pdf": "", "links": ""})
        archive.end(f"pdf@{number}", 1 if number == 2 else 0)
    archive.commit({"pdf": "", "links": ""})
    archive.fail("pdf@4")
    page = opened("/papers", viewport=PHONE)
    assert page.locator(".grid .beside .b").all_text_contents() == ["Retry", "Retry all the same"]
    (card,) = boxes(page, "section.card:has(.grid)")
    assert all(button["right"] < card["right"] for button in boxes(page, ".grid .beside .b"))
    short, wrapped = boxes(page, "tr:has(.beside)")
    assert short["height"] < wrapped["height"]
    assert wrapped["bottom"] > boxes(page, ".grid .beside .b")[-1]["bottom"]


@pytest.mark.full
def test_a_window_of_half_a_screen_shows_what_happens_and_all_of_a_log(opened: Opened, session: Session) -> None:
    archive = an_archive(session, f"a-{'very-' * 10}long-name")
    archive.commit({"pdf": "", "upload": "lock: tex"}, author="A Person With A Very Long Name")
    archive.write("pdf@2", b"page 1\n")
    archive.end("pdf@2", 1)
    locks.pause(session, ArchiveId(archive.id), "tex", "", "ann")
    told = an_archive(session, f"b-{'very-' * 10}long-name")
    set_receivers(told, ci=["failed"])
    failed_runs(told, 2)
    page = opened("/")
    run = f"/{archive.name}@2"
    for address, parts in (
        ("/", ".now > *"),
        (run, ".of-task td"),
        (f"{run}/pdf", ".log-head > :not(.grow)"),
        ("/-/notifications", ".flow td, .flow button"),
    ):
        page.goto(address)
        for width in (740, 860, 1000, 1100, 1200):
            page.set_viewport_size({"width": width, "height": 800})
            (card,) = boxes(page, f"section.card:has({parts.split()[0]})")
            shown = [box for box in boxes(page, parts) if box["width"]]
            assert shown, (address, width)
            assert all(card["left"] <= box["left"] < box["right"] <= card["right"] for box in shown), (address, width)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.set_viewport_size({"width": 360, "height": 800})
    assert boxes(page, ".flow .about + td")[0]["width"] < 100, "the receiver follows the state"


@pytest.mark.full
def test_the_key_of_retry_never_means_the_whole_archive(opened: Opened, archive: AnArchive) -> None:
    page = opened("/papers")
    page.keyboard.press("r")
    expect(page.locator(".foot .line")).to_contain_text("No cell has the focus")
    page.locator('.grid a[href="/papers@3/index"]').focus()
    page.keyboard.press("r")
    expect(page.locator(".foot .line")).to_contain_text("Nothing of this cell has failed")
    page.keyboard.press("k")
    expect(focused(page)).to_contain_text("0/3, 2 failed")
    page.keyboard.press("r")
    expect(page.locator('.grid tr:has(a[href="/papers@3"]) td').first).to_have_text("0/3")
    assert [archive.state(f"check/{item}@3") for item in ("good", "bad", "worse")] == ["running", "ready", "ready"]
    assert archive.state("index@2") == "failed"
    assert page.url.partition("#")[0].endswith("/papers")


@pytest.mark.full
def test_a_log_is_offered_of_what_ever_started_alone(opened: Opened, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"index": "", "pdf": "depends: [index]"})
    archive.cancel("index@2")
    archive.commit({"index": "", "pdf": "depends: [index]"})
    archive.run("index@3")
    archive.retry("index@2", force=True)
    archive.cancel("index@2")
    page = opened("/papers")
    log = page.locator(".foot a")
    for task, has_log in (("index@3", True), ("index@2", False), ("pdf@2", False), ("pdf@3", False)):
        page.locator(f"#t{archive.task(task)}").focus()
        expect(page.locator(".foot .line")).to_contain_text(
            f"papers@{task.partition('@')[2]}/{task.partition('@')[0]} "
        )
        expect(log).to_be_visible(visible=has_log)
    page.locator(f"#t{archive.task('index@2')}").focus()
    page.keyboard.press("l")
    expect(page.locator(".foot .line")).to_contain_text("It has no log, as it never started.")
    expect(page).to_have_url(re.compile("/papers#"))
    page.locator(f"#t{archive.task('index@3')}").focus()
    page.keyboard.press("l")
    expect(page).to_have_url(re.compile("/papers@3/index$"))


@pytest.mark.full
def test_a_reader_is_told_that_nothing_can_be_retried(opened: Opened, archive: AnArchive) -> None:
    page = opened("/papers", scope=Scope.READ)
    page.locator('.grid a[href="/papers@2/index"]').focus()
    page.keyboard.press("r")
    expect(page.locator(".foot .line")).to_have_text("It cannot be retried here.")
    assert archive.state("index@2") == "failed"


@pytest.mark.full
def test_a_retried_cell_keeps_the_focus(opened: Opened, archive: AnArchive) -> None:
    page = opened("/papers")
    page.locator('.grid a[href="/papers@2/index"]').focus()
    page.keyboard.press("r")
    expect(page.locator('.grid a[href="/papers@2/index"] .failed')).to_have_count(0)
    expect(focused(page)).to_have_attribute("href", "/papers@2/index")
    page.keyboard.press("j")
    page.keyboard.press("r")
    expect(page.locator(".alarm")).to_have_count(0)
    expect(focused(page)).to_have_attribute("href", re.compile("/papers@3/check/"))
    archive.run("check/good@3")  # another item stands for the list
    expect(focused(page)).to_contain_text("1/3")


@pytest.mark.full
def test_escape_leaves_the_filter_for_the_cell_where_one_was(opened: Opened, archive: AnArchive) -> None:  # noqa: ARG001
    page = opened("/papers")
    page.keyboard.press("f")
    expect(focused(page)).to_have_attribute("name", "message")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    expect(focused(page)).to_contain_text("2 failed")
    page.keyboard.press("f")
    page.keyboard.press("Escape")
    expect(focused(page)).to_contain_text("2 failed")


@pytest.mark.full
def test_edges_stay_out_of_the_commits(opened: Opened, archive: AnArchive) -> None:  # noqa: ARG001
    page = opened("/papers", viewport=DESK)
    page.locator(".scroll.tall").evaluate("e => e.scrollTo(420, 0)")
    page.locator('.grid a[href="/papers@3/task-03"]').evaluate("e => e.focus({preventScroll: true})")
    page.locator('.grid a[href="/papers@3/index"]').dispatch_event("mouseover")
    expect(page.locator(".edges path")).to_have_count(1)
    (column,) = boxes(page, ".grid tbody tr:first-child .commit")
    (edge,) = boxes(page, ".edges path")
    assert edge["left"] < column["right"] - 20, "an edge lies below the commits"
    place = page.locator(".grid tbody").bounding_box()
    assert place is not None
    clip = {"x": column["left"], "y": place["y"], "width": column["width"], "height": place["height"]}
    drawn = page.screenshot(clip=clip)  # type: ignore[arg-type]  a rectangle
    page.locator(".edges").evaluate("e => e.replaceChildren()")
    assert page.screenshot(clip=clip) == drawn  # type: ignore[arg-type]  a rectangle


@pytest.mark.full
def test_faults_of_a_revision_and_names_of_groups_stay_in_sight(opened: Opened, archive: AnArchive) -> None:
    tasks = a_workflow({f"task-{number:02}": "" for number in range(14)}).tasks
    files = (replace(task, path=f"_workflows/{'first' if at < 2 else 'second'}.yaml") for at, task in enumerate(tasks))
    archive.commit(Workflow(tuple(files)))
    archive.commit(faulty())
    for size in (DESK, PHONE):
        page = opened("/papers", viewport=size)
        page.locator(".scroll.tall").evaluate("e => e.scrollTo(600, 0)")
        (column,) = boxes(page, ".grid tbody tr:first-child .commit")
        inside = boxes(page, ".fault .t, .fault .s, .groups th:nth-child(3) .stay, .grid tbody tr:last-child .stay")
        assert len(inside) == 4
        assert all(column["right"] < box["left"] < box["right"] <= size["width"] for box in inside), (column, inside)
        page.keyboard.press("j")
        expect(focused(page)).to_contain_text("a fault")
        page.goto("/papers@5")
        page.keyboard.press("j")
        expect(focused(page)).to_have_text("_workflows/test.yaml:1:1")


@pytest.mark.full
def test_the_head_and_the_commits_stay_while_five_hundred_columns_are_scrolled(
    opened: Opened, session: Session
) -> None:
    names = {f"task-{number:03}{'-of-a-long-name' * (number % 5)}": "" for number in range(500)}
    archive = an_archive(session)
    for _ in range(3):
        archive.commit(names)
    archive.fail("task-000@2")
    for _ in range(27):
        archive.commit({"task-000": "", "task-499-of-a-long-name-of-a-long-name-of-a-long-name-of-a-long-name": ""})
    archive.commit(names)
    for columns in ("", "?columns=task-000,task-001-of-a-long-name"):
        page = opened(f"/papers{columns}", viewport={"width": 1280, "height": 500})
        scroll = page.locator(".scroll.tall")
        if columns:
            scroll.evaluate("e => e.scrollTo(0, 1e6)")
            assert scroll.evaluate("e => e.scrollTop") > 100, "there is something to scroll"
        else:
            scroll.evaluate("e => e.scrollTo(30000, 1e6)")
            assert scroll.evaluate("e => e.scrollLeft") == 30000
        told = scroll.evaluate("""scroll => {
            const box = scroll.getBoundingClientRect(), at = (e) => e.getBoundingClientRect(), round = Math.round;
            const rows = [...scroll.querySelectorAll("tr")], whole = rows.filter((row) => [...row.cells].every((cell) => cell.colSpan === 1)), seen = new Set();
            return {
                head: rows[0].cells.length && [...rows[0].cells].map((cell) => round(at(cell).top - box.top)),
                commits: rows.slice(1).map((row) => round(at(row.cells[0]).left - box.left)),
                columns: whole.map((row) => [...row.cells].map((cell) => round(at(cell).left)).join()).filter((one) => !seen.has(one) && seen.add(one)).length,
                lines: rows.slice(1).map((row) => new Set([...row.cells].flatMap((cell) => [round(at(cell).top), round(at(cell).bottom)])).size),
                cells: rows.map((row) => [...row.cells].reduce((sum, cell) => sum + cell.colSpan, 0)),
                whole: whole.length,
            };
        }""")
        assert len(set(told["cells"])) == 1
        assert told["cells"][0] == (3 if columns else 501)
        assert set(told["head"]) <= {0, 1}, "the head is where it was"
        assert set(told["commits"]) <= {0, 1}, "so are the commits"
        assert told["whole"] >= (20 if columns else 3)
        assert told["columns"] == 1, "each column is below its head"
        assert set(told["lines"]) == {2}, "the cells of a row begin and end alike"


@pytest.mark.full
def test_a_row_without_an_author_is_in_line(opened: Opened, session: Session) -> None:
    archive = an_archive(session)
    archive.sql("update revision set author = '', message = ''")
    page = opened("/papers")
    row = page.locator(".grid tbody tr").first
    assert not row.inner_text().strip().startswith("·")
    expect(row.locator(".who")).to_have_text(re.compile("^[^·]*$"))
    (rev,), (who,) = boxes(page, ".grid tbody .rev"), boxes(page, ".grid tbody .who")
    assert abs(rev["bottom"] - who["bottom"]) < 3, (rev, who)


@pytest.mark.full
def test_what_a_person_did_to_a_page_is_there_when_it_is_loaded_again(opened: Opened, archive: AnArchive) -> None:
    """Places of scrolling, what is open, what has the focus, and the lines of a log that were seen."""
    page = opened("/papers", viewport=DESK)
    grid = page.locator(".scroll.tall")
    grid.evaluate("e => e.scrollTo(700, 0)")
    page.reload()
    assert grid.evaluate("e => e.scrollLeft") == 700
    page.goto("/")
    page.keyboard.press("j")
    expect(focused(page)).to_have_attribute("href", "/papers@3/check/%2A")
    page.reload()
    expect(focused(page)).to_have_attribute("href", "/papers@3/check/%2A")
    page.goto("/")
    assert focused(page).count() == 0 or "alarm" not in (focused(page).get_attribute("class") or "")
    archive.write("check/good@3", b"".join(b"line %d\n" % number for number in range(1, 2001)))
    page.goto("/papers@3/check/good")
    page.get_by_text("Definition").click()
    log = page.locator(".log")
    expect(log.get_by_text("line 2000", exact=True)).to_be_visible()
    log.evaluate("e => e.scrollTo(0, 500 * 20)")
    expect(log.get_by_text("line 510", exact=True)).to_be_visible()
    page.reload()
    expect(log.get_by_text("line 510", exact=True)).to_be_visible()
    expect(page.get_by_text("name: check")).to_be_visible()


@pytest.mark.full
@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_a_very_long_branch_stays_in_the_window_and_is_named_in_the_trail(
    opened: Opened, session: Session, size: dict[str, int]
) -> None:
    long = "feature/" + "-".join(["a-very-long-name-of-a-branch"] * 6)
    archive = an_archive(session, branches=["", long])
    archive.commit({"index": ""}, branch=long)
    address = f"/papers:{long.replace('/', '%2F')}"
    page = opened(address, viewport=size)
    for box in boxes(page, ".head :is(summary, h1)"):
        assert 0 <= box["left"] < box["right"] <= size["width"], box
    (button,), (name,) = boxes(page, ".head summary:has(.of-branch)"), boxes(page, ".of-branch")
    assert button["height"] >= name["height"] > 30, "the whole name is seen, on several lines"
    page.goto(f"{address}@{archive.numbers[long]}/index")
    page.locator(".trail .branch").click()
    expect(page).to_have_url(re.compile(re.escape(address) + "$"))
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]


@pytest.mark.full
def test_text_from_right_to_left_begins_in_sight_and_leaves_numbers_in_their_places(
    opened: Opened, session: Session
) -> None:
    """Hebrew before `3 min` would take the number into its own line: `min 3`; and a cut message would lose its beginning."""
    archive = an_archive(session)
    message = "\u05ea\u05d9\u05e7\u05d5\u05df \u05d4\u05e4\u05e8\u05e7 " * 20 + "12"
    archive.append("", [an_entry(2, a_workflow({"index": ""}), author="Dee")])
    archive.sql("update revision set message = %s, date = now() - interval '3 minutes' where number = 2", message)
    page = opened("/papers", viewport=PHONE)
    message_box = page.locator(".commit .msg").first
    assert message_box.evaluate("e => getComputedStyle(e).direction + getComputedStyle(e).textAlign") == "rtlleft"
    seen = """e => { const range = document.createRange(); range.setStart(e.firstChild, 0); range.setEnd(e.firstChild, 3);
        const [a, b] = [range.getBoundingClientRect(), e.getBoundingClientRect()]; return a.left >= b.left - 1 && a.right <= b.right + 1 }"""
    assert message_box.evaluate(seen)
    archive.sql("update revision set message = %s where number = 2", message[:10] + " 12")
    page.goto("/-/mine?author=dee")
    age, end = boxes(page, "main time")[0], boxes(page, "main bdi")[0]
    assert age["left"] >= end["right"]


@pytest.mark.full
def test_arrows_pass_over_runs_and_columns_without_a_cell(opened: Opened, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "", "c": ""})
    archive.commit({"a": "", "c": "", "b": "paths: [none]"}, paths=["other"])
    archive.commit({"a": "", "c": "", "b": ""})
    page = opened("/papers?columns=a,b,c")
    page.locator('.grid a[href="/papers@3/a"]').focus()
    page.keyboard.press("ArrowRight")
    expect(focused(page)).to_have_attribute("href", "/papers@3/c")
    page.keyboard.press("ArrowLeft")
    expect(focused(page)).to_have_attribute("href", "/papers@3/a")
    page.locator('.grid a[href="/papers@2/b"]').focus()
    page.keyboard.press("ArrowUp")
    expect(focused(page)).to_have_attribute("href", "/papers@4/b")
    page.keyboard.press("ArrowUp")
    expect(focused(page)).to_have_attribute("href", "/papers@4/b")


@pytest.mark.full
def test_the_next_failure_is_behind_the_focus_and_also_on_the_page_of_earlier_runs(
    opened: Opened, session: Session
) -> None:
    archive = an_archive(session)
    for _ in range(60):
        archive.commit({"a": ""})
    archive.fail("a@3", "a@5", "a@40", "a@60")
    page = opened("/papers")
    page.locator('.grid a[href="/papers@50/a"]').focus()
    page.keyboard.press("j")
    expect(focused(page)).to_have_attribute("href", "/papers@40/a")
    page.keyboard.press("k")
    expect(focused(page)).to_have_attribute("href", "/papers@60/a")
    page.keyboard.press("k")
    expect(focused(page)).to_have_attribute("href", "/papers@40/a")
    expect(page.locator(".foot .line")).to_contain_text("No failure above: this is the last one of this page.")
    page.keyboard.press("j")
    expect(focused(page)).to_have_attribute("href", "/papers@5/a")
    expect(page).to_have_url(re.compile(r"\?state=unhandled&before="))
    expect(page.locator(".foot .line")).to_contain_text("These are earlier runs")
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(focused(page)).to_have_attribute("href", "/papers@5/a")
    expect(page.locator(".foot .line")).to_contain_text("No further failure below")
    page.get_by_role("link", name="Newest runs").click()
    expect(page.locator('.grid a[href="/papers@61/a"]')).to_have_count(0)
    page.locator(".trail").get_by_role("link", name="papers").click()
    expect(page.locator('.grid a[href="/papers@61/a"]')).to_be_visible()
    page.locator('.grid a[href="/papers@40/a"]').focus()
    page.keyboard.press("j")
    expect(focused(page)).to_have_attribute("href", "/papers@5/a")
    page.keyboard.press("k")
    expect(focused(page)).to_have_attribute("href", "/papers@40/a")
    expect(page.locator(".foot .line")).to_contain_text("These are later runs")
    page = opened("/papers@5/a")
    page.keyboard.press("j")
    expect(focused(page)).to_have_text("papers@5/a")


@pytest.mark.full
def test_a_page_follows_beside_an_empty_input_and_says_when_it_waits(opened: Opened, session: Session) -> None:
    archive = an_archive(session)
    for _ in range(3):
        archive.commit({"a": ""})
    page, waits = opened("/papers"), "Not current: it waits until you have finished typing."
    page.keyboard.press("j")
    says = "No failure of this page needs anybody. The overview (key g) has everything that needs a person."
    expect(page.locator(".outdated")).to_have_text(says)
    page.keyboard.press("f")
    archive.run("a@2")
    expect(page.locator('.grid a[href="/papers@2/a"] .completed')).to_be_visible()
    expect(focused(page)).to_have_attribute("name", "message")
    page.keyboard.type("wo")
    archive.run("a@3")
    expect(page.locator(".outdated")).to_have_text(waits)
    page.keyboard.type("rd")
    expect(focused(page)).to_have_value("word")
    page.keyboard.press("Escape")
    expect(page.locator('.grid a[href="/papers@3/a"] .completed')).to_be_visible()
    expect(page.locator(".outdated")).to_be_empty()
    page.locator("details.columns summary, details.rare summary").first.click()
    archive.run("a@4")
    expect(page.locator(".outdated")).to_have_text("Not current: it waits until the open menu or form is closed.")
    page.locator("h1").click()
    expect(page.locator('.grid a[href="/papers@4/a"] .completed')).to_be_visible()


@pytest.mark.full
@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_the_edge_to_the_run_before_is_seen_in_every_column(
    opened: Opened,
    archive: AnArchive,  # noqa: ARG001
    size: dict[str, int],
) -> None:
    page = opened(
        "/papers?columns=" + ",".join(["index", *(f"task-{number:02}" for number in range(12))]), viewport=size
    )
    for task in ("index", "task-05", "task-00"):
        page.locator(f'.grid a[href="/papers@3/{task}"]').focus()
        for further in (0, 3, 9):
            page.locator(".scroll.tall").evaluate("(e, by) => e.scrollBy(by, 0)", further)
            expect(page.locator(".edges path")).to_have_count(1)
            page.evaluate("new Promise(requestAnimationFrame)")
            (picture,), (column,) = boxes(page, ".edges"), boxes(page, ".grid tbody tr:first-child .commit")
            path = page.locator(".edges path").get_attribute("d") or ""
            (upright,) = re.findall("H([^V]+)V", path)
            assert picture["left"] + float(upright) >= column["right"] + 1, (task, further, path, column)


STRUCK = """() => {
    const lines = [...document.querySelectorAll(".edges path")], zero = document.querySelector(".edges").getBoundingClientRect();
    const cells = [...document.querySelectorAll(".grid tbody .cell a")];
    return cells.filter(cell => {
        const b = cell.getBoundingClientRect();
        return lines.some(line => [...Array(400).keys()].some(at => {
            const p = line.getPointAtLength(line.getTotalLength() * at / 399), x = p.x + zero.left, y = p.y + zero.top;
            return x > b.left + 1 && x < b.right - 1 && y > b.top + 4 && y < b.bottom - 4;
        }));
    }).map(cell => cell.getAttribute("href"));
}"""
"""The cells through which a line passes."""


def test_edges_strike_no_cell_through(opened: Opened, session: Session) -> None:
    archive = an_archive(session)
    tasks = {"a": "", "b": "depends: [PREV]", "c": "", "d": "depends: [a, PREV]", "e": "depends: [d, PREV:b]"}
    for _ in range(2):
        archive.commit(tasks)
    page = opened("/papers", viewport=DESK)
    for task, edges in (("d", 2), ("e", 4)):
        page.locator(f'.grid a[href="/papers@3/{task}"]').focus()
        expect(page.locator(".edges path")).to_have_count(edges)
        assert page.evaluate(STRUCK) == []


@pytest.mark.full
@pytest.mark.parametrize("width", [360, 1280, 1600])
def test_long_names_in_the_head_of_the_grid_show_the_ends_in_which_they_differ(
    opened: Opened, session: Session, width: int
) -> None:
    names = [f"a-very-long-task-name-that-goes-on-step-number-{number:02}" for number in range(0, 40, 5)]
    names += [f"WWWWWWWWWWWWWWWWWWWWWWWWWWWWWW-{number}" for number in range(2)]
    an_archive(session).commit(dict.fromkeys(names, ""))
    page = opened("/papers", viewport={"width": width, "height": 800})
    heads = page.locator(".grid thead .task-head").evaluate_all(
        "all => all.map(e => [e.innerText, e.scrollWidth <= e.clientWidth])"
    )
    assert len({text for text, _ in heads}) == len(names)
    assert all(is_whole for _, is_whole in heads), heads


@pytest.mark.full
def test_what_is_left_out_has_its_dash_in_line_and_apart(opened: Opened, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "paths: [none]"}, paths=["other"])
    page = opened("/papers?columns=a,b")
    (dash,), (word,) = boxes(page, ".cell .out svg"), boxes(page, ".cell .out .t")
    other = boxes(page, ".grid tbody .cell a .t")[0]
    assert abs(word["bottom"] - other["bottom"]) <= 1, "it is in line with the other cells of its row"
    assert word["left"] - dash["right"] >= 4
    assert abs((dash["bottom"] - dash["height"] / 2) - (word["bottom"] - word["height"] / 2)) <= 1
