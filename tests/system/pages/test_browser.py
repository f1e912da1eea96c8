"""The pages in a real browser: with and without JavaScript, by keyboard alone, on a phone, in the
dark; nothing is ever said to the console.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.logs import Logs
from arkqueue.model import ArchiveId, End, RunId, Stream
from arkqueue.queue import archives, claim, control, deletion, notifications, sign_ins
from arkqueue.queue.tokens import Scope
from arkqueue.web import ApiServer, create_app, live, run_api
from arkqueue.web.pages.visitor import COOKIE
from tests.browsers import CHANGED, sign_in_at_once
from tests.builders import HOST, PROCESS, AnArchive, a_gateway, a_workflow, an_archive
from tests.db.outbox import choose, failed_runs, set_receivers
from tests.system.pages.conftest import a_token, stay_alive
from tests.system.waking import waking_session

__all__ = ["waking_session"]

TASKS = {
    "index": "",
    "pdf": "depends: [index]",
    "a-task-with-a-long-name-that-somebody-always-writes": "depends: [pdf]",
}
Opened = Callable[..., Page]
expect.set_options(timeout=120_000)  # milliseconds that only a failing test waits


@pytest.fixture
def archive(session: Session) -> AnArchive:
    an_archive(session, "thesis", tasks=a_workflow(TASKS))  # without a run
    archive = an_archive(session)
    archive.commit(TASKS)
    archive.fail("index@2")
    archive.commit(TASKS)
    return archive


@pytest.fixture
def opened(browser: Browser, server: ApiServer, session: Session) -> Iterator[Opened]:
    """Opens a page in a signed-in browser; at the end, the console has to be empty."""
    said: list[str] = []
    contexts = []

    def open_page(address: str, scope: Scope = Scope.OPERATE, expects_errors: bool = False, **options: Any) -> Page:
        token, _ = a_token(session, scope)
        context = browser.new_context(base_url=server.url, **options)
        context.set_default_timeout(120_000)
        contexts.append(context)
        sign_in_at_once(context, sign_ins.code(session, token))
        page = context.new_page()
        if not expects_errors:  # a page that is not there is told there, too
            page.on("console", lambda message: None if CHANGED in message.text else said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []


def sign_in(page: Page, secret: str) -> None:
    token = page.get_by_label("Token")
    expect(token).to_be_focused()  # or Chromium reports that a field with a focus keeps `autofocus` from its work
    token.fill(secret)
    page.get_by_role("button", name="Sign in").click()


@pytest.mark.full
def test_a_failure_is_found_and_retried_by_keyboard_alone(opened: Opened, archive: AnArchive) -> None:
    page = opened("/papers")
    expect(page).to_have_title("(1) papers · arkqueue")
    page.keyboard.press("j")
    expect(page.locator(":focus")).to_contain_text("exit 1")
    page.keyboard.press("ArrowUp")
    expect(page.locator(":focus")).to_have_attribute("href", "/papers@3/index")
    page.keyboard.press("k")
    page.keyboard.press("r")
    expect(page).to_have_title("papers · arkqueue")
    assert archive.state("index@2") == "ready"


@pytest.mark.full
def test_what_a_refusal_names_is_forced_and_what_is_rare_is_done_by_keyboard_alone(
    opened: Opened, archive: AnArchive
) -> None:
    archive.run("index@3")
    page = opened("/papers@2", expects_errors=True)  # that of a refusal is one for the console
    page.get_by_role("button", name="Retry what failed").press("Enter")
    expect(page.locator("main .says")).to_contain_text("would replace the work of later revisions")
    page.get_by_role("button", name="Do it all the same").press("Enter")
    expect(page.locator("main")).to_contain_text("1 task would be free to start")
    page.get_by_role("button", name="Yes, retry it").press("Enter")
    expect(page.locator("main .head .s")).to_have_attribute("title", "processing")
    assert archive.state("index@2") == "ready"
    page.goto("/papers@3")
    page.get_by_label("More").press("Enter")
    page.get_by_label("Run again from").press("ArrowDown")
    page.get_by_role("button", name="Show what runs").press("Enter")
    page.get_by_role("button", name="Yes, run it again").press("Enter")
    expect(page.locator("main .says").first).to_contain_text("3 tasks wait")
    assert archive.state("index@3") == "ready"


@pytest.mark.full
@pytest.mark.parametrize("has_scripts", [True, False])
def test_the_reason_of_a_release_stays_when_what_it_leaves_is_forced(
    opened: Opened, archive: AnArchive, has_scripts: bool
) -> None:
    archive.commit({"a": "hold: true", "b": "hold: true"})
    archive.commit({"a": ""})
    archive.run("a@5")
    page = opened("/papers", java_script_enabled=has_scripts)
    page.get_by_role("button", name="Release 2").click()
    page.get_by_label("Why?").fill("an audit")
    page.get_by_role("button", name="Do it all the same").click()
    expect(page.locator("main")).to_contain_text("2 tasks would be free to start")
    expect(page.get_by_label("Why?")).to_have_value("an audit")
    page.get_by_label("Why?").press("Enter")
    expect(page).to_have_url(re.compile("/papers$"))
    assert archive.state("a@4") == "ready"
    assert archive.sql("select note from deed where verb = 'release'") == [{"note": "an audit"}]


@pytest.mark.full
def test_forty_columns_and_long_names_leave_each_commit_its_place(opened: Opened, session: Session) -> None:
    archive = an_archive(session)
    archive.commit(
        {f"a-rather-long-name-of-a-task-{number}": "" for number in range(40)},
        author="A Person With A Very Long Name Of The Department Of Rare Books <person@example.org>",
    )
    page = opened("/papers", viewport={"width": 1280, "height": 800})
    widths = page.locator(".grid tbody .commit").evaluate_all("all => all.map(e => [e.clientWidth, e.scrollWidth])")
    assert all(seen >= 400 and whole <= seen for seen, whole in widths), widths
    overlaps = page.locator(".grid tbody .commit .in > *").evaluate_all(
        "all => all.filter(e => e.getBoundingClientRect().right > e.closest('th').getBoundingClientRect().right).length"
    )
    assert overlaps == 0


@pytest.mark.full
def test_a_definition_that_is_open_stays_open_while_its_page_follows(opened: Opened, archive: AnArchive) -> None:
    page = opened("/papers@3/pdf")
    page.get_by_text("Definition").click()
    expect(page.get_by_text("name: pdf")).to_be_visible()
    archive.run("index@3")
    expect(page.locator("main .says")).to_contain_text("is ready")
    expect(page.get_by_text("name: pdf")).to_be_visible()


@pytest.mark.full
def test_keys_are_told(opened: Opened, archive: AnArchive) -> None:  # noqa: ARG001  it has something to show
    page = opened("/papers")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("next and previous failure")


def test_an_open_page_follows_what_happens_and_keeps_the_focus(opened: Opened, archive: AnArchive) -> None:
    page = opened("/papers")
    page.locator('a[href="/papers@3/pdf"]').focus()
    archive.run("index@3")
    expect(page.locator('.grid a[href="/papers@3/index"] .completed')).to_be_visible()
    expect(page.locator(":focus")).to_have_attribute("href", "/papers@3/pdf")
    page.goto("/papers@3")
    page.get_by_role("button", name="Cancel").focus()
    archive.run("pdf@3")
    expect(page.locator("table .completed")).to_have_count(2)
    expect(page.locator(":focus")).to_have_text("Cancel")


@pytest.mark.full
def test_the_focus_stays_in_the_grid_while_a_failure_is_retried(opened: Opened, archive: AnArchive) -> None:
    page = opened("/papers")
    link = page.locator('.grid a[href="/papers@2/index"]')
    twin = page.locator('.says a[href="/papers@2/index"]')
    expect(twin).to_have_count(1)
    link.focus()
    archive.retry("index@2")
    expect(twin).to_have_count(0)
    expect(link).to_be_focused()
    archive.fail("index@2")
    expect(twin).to_have_count(1)
    expect(link).to_be_focused()
    expect(page.locator(".foot .line")).to_have_text(re.compile("papers@2/index"))
    archive.commit(TASKS | {"first": ""})  # one more column
    expect(page.locator('.grid a[href="/papers@4/first"]')).to_be_visible()
    expect(link).to_be_focused()


@pytest.mark.full
def test_what_is_filled_in_stays_while_its_page_follows(opened: Opened, archive: AnArchive) -> None:
    page = opened("/papers")
    hold = page.locator("main details.ask", has_text="Hold").first
    hold.locator("summary").press("Enter")
    hold.get_by_placeholder("Why?").fill("Friday")
    key = hold.locator("[name=form]").input_value()
    hold.locator("[name=form]").evaluate("field => field.value = 'that of the page before'")
    page.keyboard.press("Escape")
    page.locator("details.columns summary").press("Enter")
    page.locator("details.columns").get_by_label("pdf").check()
    page.keyboard.press("Escape")
    page.keyboard.press("f")
    page.keyboard.type("live")
    page.get_by_label("state", exact=True).select_option("failed")
    page.get_by_role("button", name="Filter").focus()
    archive.run("index@3")
    expect(page.locator('.grid a[href="/papers@3/index"] .completed')).to_be_visible()
    expect(page.locator("details.columns").get_by_label("pdf")).to_be_checked()
    expect(hold.get_by_placeholder("Why?")).to_have_value("Friday")
    expect(hold.locator("[name=form]")).to_have_value(key)
    page.keyboard.press("Enter")
    page.wait_for_url("**/papers?message=live&state=failed&columns=pdf")


@pytest.mark.full
def test_what_is_filled_into_the_settings_stays_while_somebody_else_changes_them(
    opened: Opened, archive: AnArchive, session: Session
) -> None:
    page = opened("/-/settings/papers", Scope.ADMIN)
    page.get_by_label("keep", exact=True).fill("completed 30d")
    page.get_by_role("heading", level=1).click()
    archives.change_settings(session, ArchiveId(archive.id), ArchiveSettings(process=True, max_running=3), "ben")
    expect(page.get_by_label("max-running")).to_have_value("3")
    expect(page.get_by_label("keep", exact=True)).to_have_value("completed 30d")
    page.get_by_role("button", name="Save").click()
    expect(page).to_have_url(re.compile("/-/settings/papers$"))
    settings = archives.one(session, ArchiveId(archive.id)).settings
    assert (settings["keep"], settings["max_running"]) == ({"completed": "30d"}, 3)


OPENINGS = """window.openings = 0;
const Plain = EventSource;
window.EventSource = class extends Plain {
    constructor(address) { super(address); this.addEventListener("open", () => setTimeout(() => openings++)); }
};"""
"""Counts the connections of a page whose listeners have all been called."""
HAS_OPENED = (
    "times => new Promise(done => { const look = () => openings === times ? done() : setTimeout(look, 10); look(); })"
)
HIDE = "hidden => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: true }); dispatchEvent(new Event('visibilitychange')); }"


def test_an_open_page_loads_itself_again_only_for_a_change(opened: Opened, archive: AnArchive) -> None:
    page = opened("/")
    page.add_init_script(OPENINGS)
    fetched: list[str] = []
    page.on("request", lambda request: fetched.append(request.url) if request.resource_type in ("fetch", "xhr") else None)  # fmt: skip
    page.goto("/papers")
    page.evaluate(HAS_OPENED, 1)
    page.evaluate(HIDE, True)
    page.evaluate(HIDE, False)
    page.evaluate(HAS_OPENED, 2)
    assert fetched == [], "a connection alone is no reason"
    page.evaluate(HIDE, True)
    archive.commit(TASKS)
    page.evaluate(HIDE, False)
    expect(page.locator('.grid a[href="/papers@4/index"]')).to_be_visible()
    assert len(fetched) == 1


REFUSED = "Not current since ({}) UTC: the server refuses \\({}\\). Trying again."


@pytest.mark.full
@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_page_that_is_refused_says_so_and_tries_again(opened: Opened, archive: AnArchive, status: int) -> None:
    page = opened("/", expects_errors=True)
    now = datetime.now(UTC)
    page.clock.install(time=now + timedelta(hours=5))  # a clock that is wrong says the right time
    page.goto("/papers")
    page.route("**/papers", lambda route: route.fulfill(status=status, body="no"))
    archive.run("index@3")
    times = "|".join(f"{now + timedelta(minutes=later):%H:%M}" for later in range(-1, 4))
    expect(page.locator(".outdated")).to_have_text(re.compile(REFUSED.format(times, status)))
    expect(page.locator('.grid a[href="/papers@3/index"]')).to_be_visible()  # it keeps what it shows
    page.unroute("**/papers")
    expect(page.locator('.grid a[href="/papers@3/index"] .completed')).to_be_visible()
    expect(page.locator(".outdated")).to_be_empty()


@pytest.mark.full
def test_an_open_page_whose_subject_is_gone_says_so(opened: Opened, archive: AnArchive) -> None:
    page = opened("/papers", expects_errors=True)
    gone = "<main><h1>papers does not exist</h1></main>"
    page.route("**/papers", lambda route: route.fulfill(status=404, body=gone, content_type="text/html"))
    archive.run("index@3")
    expect(page.locator("main")).to_have_text("papers does not exist", timeout=20_000)
    expect(page.locator(".outdated")).to_be_empty()


@pytest.mark.full
def test_a_page_outlives_its_server(
    opened: Opened, archive: AnArchive, server: ApiServer, session: Session, configuration: Configuration
) -> None:
    page = opened("/papers", expects_errors=True)
    server.close()
    expect(page.locator(".outdated")).to_contain_text("the server does not answer. Trying again.")
    archive.run("index@3")
    other = run_api(create_app(session, configuration), server.host, server.port)
    try:
        expect(page.locator('.grid a[href="/papers@3/index"] .completed')).to_be_visible()
        expect(page.locator(".outdated")).to_be_empty()
        archive.run("pdf@3")
        expect(page.locator('.grid a[href="/papers@3/pdf"] .completed')).to_be_visible()
    finally:
        page.close()
        other.close()


@pytest.mark.full
def test_a_page_whose_connection_has_fallen_silent_makes_another_one(opened: Opened, archive: AnArchive) -> None:
    page = opened("/", expects_errors=True)
    page.add_init_script(OPENINGS)
    page.clock.install()
    page.goto("/papers")
    page.evaluate(HAS_OPENED, 1)
    page.clock.fast_forward(50_000)
    page.evaluate(HAS_OPENED, 2)
    archive.run("index@3")
    expect(page.locator('.grid a[href="/papers@3/index"] .completed')).to_be_visible()


@pytest.mark.full
def test_the_key_for_unhandled_failures_keeps_columns_and_filters(opened: Opened, archive: AnArchive) -> None:  # noqa: ARG001
    page = opened("/papers?columns=index&message=change&before=999")
    page.keyboard.press("u")
    page.wait_for_url("**/papers?columns=index&message=change&state=unhandled")
    page.keyboard.press("u")
    page.wait_for_url("**/papers?columns=index&message=change")


@pytest.mark.full
def test_escape_closes_what_is_open_and_leads_back_to_its_button(opened: Opened, archive: AnArchive) -> None:
    page = opened("/papers")
    hold = page.locator("main details.ask", has_text="Hold").first
    hold.locator("summary").press("Enter")
    hold.get_by_placeholder("Why?").fill("Friday")
    page.keyboard.press("Escape")
    expect(hold).not_to_have_attribute("open", "")
    expect(hold.locator("summary")).to_be_focused()
    for opened_by_pointer in (page.locator("nav details"), page.locator("details.columns")):
        opened_by_pointer.locator("summary").click()
        page.keyboard.press("Escape")
        expect(opened_by_pointer).not_to_have_attribute("open", "")
        expect(opened_by_pointer.locator("summary")).to_be_focused()
    archive.run("index@3")  # and the page goes on
    expect(page.locator('.grid a[href="/papers@3/index"] .completed')).to_be_visible()
    page.goto("/papers@3/pdf")
    page.locator("details.more summary", has_text="Definition").click()
    page.keyboard.press("Escape")
    expect(page.locator("#definition")).not_to_have_attribute("open", "")


@pytest.mark.full
def test_clocks_and_ages_go_on_by_themselves(opened: Opened, archive: AnArchive, session: Session) -> None:
    claimed = archive.claim("index@3")
    claim.started(session, {claimed.attempt: 60})
    page = opened("/")
    page.clock.install()
    page.clock.pause_at("2100-01-01")  # a clock that is wrong shows the right durations
    for address, clocks in {
        "/papers": [".grid a[href='/papers@3/index'] .t"],
        "/papers@3": ["#tasks tr:has-text('index') td.num"],
        "/papers@3/index": [".log-head .soft", "[aria-label=Attempts] td.num"],
    }.items():
        page.goto(address)
        for clock in clocks:
            expect(page.locator(clock).first).to_have_text(re.compile(r"^1:\d\d"))
        page.clock.fast_forward(3_600_000)
        for clock in clocks:
            expect(page.locator(clock).first).to_have_text(re.compile(r"^1:01:\d\d"))
    expect(page.locator("[aria-label=Attempts] time")).to_have_text("1 h")
    maps = an_archive(session, "maps")
    maps.commit({"draw": ""})
    maps.run("draw@2")
    maps.sql("update attempt set started_at = ended_at - interval '150 minutes' where id = (select attempt_id from task where id = %s)", maps.task("draw@2"))  # fmt: skip
    maps.commit({"draw": ""})
    claim.register(session, PROCESS, HOST, "build-1", 4)  # without a free slot, no end is expected
    stay_alive(session)
    page.goto("/maps@3/draw")
    expect(page.locator(".says")).to_contain_text(re.compile(r"its end in 2 h, .*\d\d:\d\d UTC"))
    page.clock.fast_forward(3_600_000)
    expect(page.locator(".says")).to_contain_text(re.compile(r"its end in 1 h, .*\d\d:\d\d UTC"))
    page.goto("/papers")
    page.locator(".grid a[href='/papers@3/index']").focus()
    page.clock.fast_forward(3_600_000)
    expect(page.locator(".foot .line")).to_contain_text(re.compile(r"for 1:01:\d\d"))
    maps.commit({"draw": "", "sell": "depends: [draw]"})
    maps.run("draw@3", "draw@4", "sell@4")
    maps.sql("update attempt set started_at = ended_at - interval '150 minutes' where task_id in (select id from task where archive_id = %s)", maps.id)  # fmt: skip
    maps.commit({"draw": "", "sell": "depends: [draw]"})
    maps.claim("draw@5")
    maps.sql("update attempt set started_at = clock_timestamp() where ended_at is null")
    bar, line = page.locator(".grid .bar rect:last-child"), page.locator(".foot .line")
    for hours, width, words in (
        (0, 0, "of about 2:30:00"),
        (1, 24, "of about 2:30:00"),
        (3, 60, "longer than usual: about 2:30:00"),
    ):
        page.goto("/maps")
        page.locator(".grid a[href='/maps@5/draw']").focus()
        page.clock.fast_forward(hours * 3_600_000)
        expect(line).to_contain_text(words)
        assert round(float(bar.get_attribute("width") or 0)) == width
    for hours, words in (
        (0, "may start in about 2 h and end in about 5 h"),
        (2, r"may start in about (30:00|2\d:\d\d) and"),  # less, the longer the pages take
        (3, "which is running."),
    ):
        page.goto("/maps")
        page.locator(".grid a[href='/maps@5/sell']").focus()
        page.clock.fast_forward(hours * 3_600_000)
        expect(line).to_contain_text(re.compile(words))
    expect(line).not_to_contain_text("may start")


@pytest.mark.full
def test_an_open_page_asks_to_sign_in_when_that_is_over(
    opened: Opened, archive: AnArchive, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "HEARTBEAT", 0.05)
    page = opened("/papers")
    expect(page.locator("h1")).to_have_text(archive.name)
    (secret,) = [cookie["value"] for cookie in page.context.cookies() if cookie["name"].startswith(COOKIE)]
    sign_ins.sign_out(session, secret)
    expect(page.locator("h1")).to_have_text("Sign in")
    assert page.url.endswith("/-/sign-in?next=%2Fpapers")


@pytest.mark.full
def test_what_was_put_into_a_form_is_there_again_after_the_sign_in_that_it_needed(
    opened: Opened, archive: AnArchive, session: Session
) -> None:
    page = opened("/papers@3")
    page.route("**/-/live*", lambda _: None)  # or the connection, made anew, asks for the sign-in before the form does
    page.reload()
    _, secret = a_token(session, Scope.OPERATE)

    def send(reason: str) -> None:
        page.get_by_text("Hold", exact=True).first.click()
        page.get_by_placeholder("Why?").locator("visible=true").fill(reason)
        page.get_by_role("button", name="Hold").click()

    page.context.clear_cookies()
    send("until Friday")
    expect(page.locator("h1")).to_have_text("Sign in")
    sign_in(page, secret)
    expect(page.get_by_placeholder("Why?").locator("visible=true")).to_have_value("until Friday")
    assert archive.state("index@3") == "ready"
    page.get_by_role("button", name="Hold").click()
    expect(page.locator("main .head .s").first).to_have_attribute("title", "held")
    assert archive.sql("select note from deed where verb = 'hold'") == [{"note": "until Friday"}]
    page.reload()
    expect(page.get_by_placeholder("Why?").locator("visible=true")).to_have_count(0)
    assert page.evaluate("sessionStorage.getItem('sent')") is None, "it was sent"


@pytest.mark.full
@pytest.mark.usefixtures("archive")
def test_what_was_typed_is_there_again_after_the_sign_in_that_an_open_page_asked_for(
    opened: Opened, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "HEARTBEAT", 0.05)
    page = opened("/papers@3")
    menu, reason = page.get_by_text("Hold", exact=True).first, page.get_by_placeholder("Why?").locator("visible=true")
    menu.click()
    reason.fill("until Friday")
    menu.click()  # a page with an open form asks for nothing
    _, secret = a_token(session, Scope.OPERATE)
    (signed_in,) = [cookie["value"] for cookie in page.context.cookies() if cookie["name"].startswith(COOKIE)]
    sign_ins.sign_out(session, signed_in)
    expect(page.locator("h1")).to_have_text("Sign in")
    sign_in(page, secret)
    expect(reason).to_have_value("until Friday")


@pytest.mark.full
def test_a_button_that_is_pressed_while_the_page_changes_gets_its_click(opened: Opened, archive: AnArchive) -> None:
    page, beside = opened("/papers@3"), opened("/papers@3")
    page.get_by_role("button", name="Cancel").first.hover()
    page.evaluate("pressed = document.querySelector('main [data-verb=cancel]')")
    page.mouse.down()
    archive.run("index@3")
    expect(beside.locator("main")).to_contain_text("2 tasks wait.")
    assert page.evaluate("pressed.isConnected")
    page.mouse.up()
    expect(page.locator("h1")).to_contain_text("Cancel")


@pytest.mark.full
def test_a_key_retries_nothing_but_the_task_at_hand(opened: Opened, archive: AnArchive) -> None:
    page = opened("/papers@2")
    page.locator('main table a[href="/papers@2/pdf"]').first.focus()
    page.keyboard.press("r")
    expect(page.locator(".outdated")).to_have_text("Nothing of this line can be retried.")
    assert archive.state("index@2") == "failed"
    page.locator('main table a[href="/papers@2/index"]').first.focus()
    page.keyboard.press("r")
    expect(page.locator("main .scroll table").first).to_contain_text("ready")
    assert archive.state("index@2") == "ready"


@pytest.mark.full
def test_the_hits_of_a_log_are_walked_without_javascript(opened: Opened, archive: AnArchive) -> None:
    archive.write("index@3", b"".join(b"line %d\n" % number for number in range(1, 2001)))
    page = opened("/papers@3/index", java_script_enabled=False)
    page.get_by_label("Find in this log").fill("LINE 199")
    page.get_by_label("Find in this log").press("Enter")
    expect(page.locator(".pad.found")).to_contain_text("Hit 1 of 11 lines. Line 199.")
    page.get_by_role("link", name="Next").click()
    expect(page.locator(".pad.found")).to_contain_text("Hit 2 of 11 lines. Line 1,990.")
    expect(page.locator(".log .found .hit")).to_have_text("line 199")
    page.get_by_role("link", name="Previous").click()
    expect(page.locator(".pad.found")).to_contain_text("Hit 1 of 11 lines. Line 199.")


@pytest.mark.full
def test_a_long_log_is_at_its_end_without_javascript(opened: Opened, archive: AnArchive) -> None:
    archive.write("index@3", b"x\n" * 120_000)
    page = opened("/papers@3/index", java_script_enabled=False)
    expect(page.locator("#L120000")).to_be_in_viewport()
    expect(page.locator("#L119700")).not_to_be_in_viewport()
    heights = page.locator(".log").evaluate(
        "log => ['L119999', 'L120000'].map(id => document.getElementById(id).offsetHeight)"
    )
    assert max(heights) < 30, "a line takes one row"
    ends = page.locator("#L120000").evaluate(
        "line => [...line.children].map(part => Math.round(part.getBoundingClientRect().right))"
    )
    starts = page.locator("#L120000 span").evaluate(
        "span => { const range = document.createRange(); range.selectNodeContents(span); return range.getBoundingClientRect().left }"
    )
    assert abs(starts - ends[0]) < 2, "the text begins right behind the number"
    expect(page.locator(".parts")).to_contain_text(
        "Lines 119,601 to 120,000, the newest at the end; load the page again"
    )
    page.get_by_role("link", name="Earlier lines").click()
    expect(page.locator("#L119300")).to_be_attached()


@pytest.mark.full
def test_the_overview_leads_to_who_has_the_lock_and_brings_deleted_items_back_without_javascript(
    opened: Opened, archive: AnArchive, session: Session
) -> None:
    archive.commit(a_workflow({"publish": "lock: web", "check": "lock: web", "tile": "foreach: [a, b]"}))
    deletion.delete_item(session, RunId(archive.run_id(4)), "b", "ann")
    archive.claim("publish@4")
    page = opened("/", scope=Scope.ADMIN, java_script_enabled=False)
    expect(page.locator("td.now")).to_contain_text(["check waits for the lock papers/web, which papers@4/publish has"])
    page.locator("td.now").get_by_role("link", name="papers@4/publish").click()
    expect(page.locator("h1")).to_have_text("papers@4/publish")
    page.goto("/papers@4")
    page.get_by_role("button", name="Undelete").click()
    page.get_by_role("button", name="Yes, undelete it").click()
    expect(page.locator("h1")).to_have_text("papers@4")
    assert archive.state("tile/b@4") == "held"


@pytest.mark.full
def test_names_in_a_graph_fit_into_their_boxes_and_differ(opened: Opened, session: Session) -> None:
    names = [f"convert-the-photographs-of-the-harbour-district-{year}-to-{year + 9}" for year in (1880, 1890, 1900)]
    names += ["WWWWWWWWWWWWWWWWWWWWWWWWWWWW", "mmmmmmmmmmmmmmmmmmmmmmmmmmmm", "x"]
    archive = an_archive(session, "wide")
    archive.commit(dict.fromkeys(names, ""))
    page = opened("/wide@2", viewport={"width": 360, "height": 800})
    boxes = page.evaluate("""[...document.querySelectorAll(".graph .node")].map((node) => {
        const text = node.querySelector("text"), box = node.querySelector("rect").getBBox(), at = text.getBBox();
        return [text.textContent, node.querySelector("title").textContent, box.x + box.width - at.x - at.width];
    })""")
    shown = {title.removeprefix("wide@2/").partition(" is ")[0]: (text, room) for text, title, room in boxes}
    assert set(names) <= set(shown)
    assert len({shown[name][0] for name in names}) == len(names)
    assert all(room >= 2 for _, room in shown.values()), shown


@pytest.mark.full
@pytest.mark.parametrize("width", [360, 1280])
def test_menus_and_tables_cut_nothing_off(opened: Opened, session: Session, width: int) -> None:
    archive = an_archive(session)
    archive.commit({f"a-{'very-' * 15}long-name": "", "check": "foreach: [a, b]", "c": "depends: [check]"})
    archive.fail("check/a@2")
    archive.run(f"a-{'very-' * 15}long-name@2")
    for number in range(3):
        a_token(session, Scope.HOOK, *(["papers"] if number else []))
    page = opened("/papers@2", Scope.ADMIN, viewport={"width": width, "height": 800})
    page.get_by_label("More", exact=True).click()
    outside = """[...document.querySelectorAll(".rare[open] > .menu :is(.b, select, label)")].filter((one) => {
        const menu = one.closest(".menu").getBoundingClientRect(), at = one.getBoundingClientRect();
        return at.width < 1 || at.right > menu.right || at.left < menu.left || one.scrollWidth > one.clientWidth + 1;
    }).map((one) => one.outerHTML)"""
    assert page.evaluate(outside) == []
    expect(page.get_by_role("button", name="Show what runs")).to_be_visible()
    for address in ("/-/tokens", "/papers@2?list=check", "/papers@2?list=check&state=failed", "/papers@2/c"):
        page.goto(address)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, address
        cut = """[...document.querySelectorAll("main .card .b")].filter((one) => one.checkVisibility() && one.getBoundingClientRect().right > one.closest(".card").getBoundingClientRect().right).length"""
        assert page.evaluate(cut) == 0, address


WIDE = """document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll("body *")]
    .filter((one) => one.getBoundingClientRect().right > innerWidth || one.scrollWidth > innerWidth).map((one) => one.outerHTML.slice(0, 200))"""
"""What stands out of the window to the right, where the page scrolls sideways."""
SCROLLING = """[...document.querySelectorAll("main *")].filter((one) => one.scrollWidth > one.clientWidth + 1 && one.checkVisibility()
    && ["auto", "scroll"].includes(getComputedStyle(one).overflowX) && !one.matches(".tall, .log") && !one.querySelector(".graph")).map((one) => one.outerHTML.slice(0, 200))"""
"""What one scrolls sideways, besides the grid, graphs and logs."""
OUTSIDE = """[...document.querySelectorAll("main details[open] > form")].filter((one) => {
    const at = one.getBoundingClientRect();
    return one.checkVisibility() && (at.left < 0 || at.right > innerWidth);
}).map((one) => one.outerHTML.slice(0, 200))"""
"""The opened forms that are partly beside the window."""


@pytest.mark.full
def test_the_states_of_a_long_list_are_below_each_other_on_a_phone(opened: Opened, archive: AnArchive) -> None:
    archive.commit({"tile": f"foreach: [{', '.join(f'item-{number}' for number in range(120))}]"})
    archive.fail("tile/item-1@4")
    archive.run("tile/item-2@4")
    archive.cancel("tile/item-3@4")
    page = opened("/papers@4", viewport={"width": 360, "height": 800})
    expect(page.locator('a[href="/papers@4?list=tile&state=failed"]')).to_contain_text("1 failed")
    assert page.evaluate(SCROLLING) == []


@pytest.mark.full
def test_long_names_make_no_form_table_or_preview_wider_than_a_phone(opened: Opened, session: Session) -> None:
    name, tasks = f"an-{'archive-' * 9}", [f"{'very-' * 17}long-name-{number}" for number in range(3)]
    archive = an_archive(session, name)
    held = {tasks[1]: f"depends: [{tasks[0]}]\nlock: [{tasks[0]}]\nhold: true", tasks[2]: "on: [submission, manual]"}
    held["check"] = "hold: true"
    archive.commit(
        {tasks[0]: "cancels: [PREV]"} | held, author=f"A Person {'Of A Department ' * 10}", message="word " * 40
    )
    archive.end(f"{tasks[0]}@2", 1, message="x" * 300)
    a_token(session, Scope.READ, name)
    page = opened("/", Scope.ADMIN, expects_errors=True, viewport={"width": 360, "height": 800})

    def fits(what: str) -> None:
        for is_open in (False, True):
            page.evaluate("open => document.querySelectorAll('main details:not(.rare, .columns)').forEach((one) => { one.open = open })", is_open)  # fmt: skip
            assert page.evaluate(WIDE) == [], what
            assert page.evaluate(SCROLLING) == [], what
            assert page.evaluate(OUTSIDE) == [], what

    expect(page.locator(".needs .ask")).to_have_count(1)
    run = f"{name}@2"
    for address in (
        "", name, run, f"{run}/{tasks[0]}", f"{run}/{tasks[1]}", f"{run}/nothing", f"{name}x", f"-/settings/{name}", f"-/search?q={name}", f"-/search?author={archive.sql('select author from revision order by id desc')[0]['author']}",
        "-/locks", "-/schedules", "-/task-managers", "-/tokens", "-/sessions", "-/audit-log", "-/notifications", "-/mine",
    ):  # fmt: skip
        page.goto(f"/{address}")
        fits(address)
    for form in (f"/-/trigger?of={name}", f"/-/trigger?of={name}&first=1", f"/-/submit/{name}"):
        page.goto(form)
        fits(form)
        if "first" in form:
            page.get_by_label(f"Run {tasks[2]}").check()
        if "submit" in form:
            page.get_by_label("or a text").fill(f'["{"item-" * 30}"]')
            page.get_by_label("Written in").select_option("json")
        page.get_by_role("button", name="Show what would run").click()
        expect(page.get_by_text("No, go back")).to_be_visible()
        fits(f"{form}, then what would run")


@pytest.mark.full
def test_the_search_has_a_key(opened: Opened, archive: AnArchive) -> None:  # noqa: ARG001  it has something to find
    page = opened("/papers")
    page.keyboard.press("/")
    page.keyboard.type("3/pdf")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("papers@3/pdf")
    page.goto("/papers")
    page.keyboard.press("f")
    page.keyboard.type("change 2")
    page.keyboard.press("Enter")
    expect(page.locator(".grid tbody tr")).to_have_count(1)
    expect(page).to_have_url(re.compile("message=change"))


@pytest.mark.full
def test_focus_draws_the_edges_of_a_cell_and_says_why_it_waits_without_a_request(
    opened: Opened, archive: AnArchive
) -> None:
    archive.commit({"index": "depends: [PREV]", "pdf": "depends: [index]"})
    page = opened("/papers")
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.locator('.grid a[href="/papers@4/pdf"]').focus()
    expect(page.locator(".foot .line")).to_have_text(
        re.compile("papers@4/pdf waits for papers@4/index, which is waiting")
    )
    expect(page.locator(".foot a")).to_be_hidden()  # it has no log
    expect(page.locator(".edges path")).to_have_count(2)  # index of its run, and index of the run before
    box = page.locator(".edges path").first.bounding_box()
    assert box is not None
    assert box["width"] > 5
    expect(page.locator('.grid a[href="/papers@2/pdf"]')).to_have_css("opacity", "0.45")
    expect(page.locator('.grid a[href="/papers@2/index"]')).to_have_css("opacity", "1")  # a failure is never dimmed
    page.locator('.grid a[href="/papers@3/index"]').hover()
    expect(page.locator(".foot .line")).to_have_text(re.compile("papers@3/index"))
    page.locator('.grid a[href="/papers@2/index"]').hover()
    expect(page.locator(".foot a")).to_be_visible()
    expect(page.locator(".foot a")).to_have_attribute("href", re.compile("/papers@2/index$"))
    assert [
        url for url in requests if not re.search(r"/papers$|/icon\.svg|/-/live\?", url)
    ] == []  # an open page asks for itself alone
    page.reload()
    expect(page.locator(":focus")).to_have_attribute("href", "/papers@4/pdf")
    page.keyboard.press("u")
    page.wait_for_url("**/papers?state=unhandled")
    expect(page.locator(".grid tbody tr")).to_have_count(1)
    page.keyboard.press("u")
    expect(page.locator(".grid tbody tr")).to_have_count(4)


@pytest.mark.full
def test_a_log_is_scrolled_over_the_part_that_is_missing(opened: Opened, archive: AnArchive) -> None:
    archive.write("index@3", b"".join(b"%06d\n" % number for number in range(1, 200_001)), head=7_000, tail=200_000)
    page = opened("/papers@3/index")
    expect(page.locator(".seen > #L200000")).to_be_visible()
    log = page.locator(".log")
    log.press("Home")
    expect(page.locator(".seen > #L1")).to_be_visible()
    page.get_by_role("link", name="line 1,000").click()
    expect(page.locator(".seen > .marked")).to_have_text("1000001000")
    note = page.locator(".seen > .us")
    expect(note).to_contain_text("bytes were left out here")
    following = note.locator("xpath=following-sibling::*[1]")
    number = int(following.get_attribute("id").removeprefix("L"))  # type: ignore[union-attr]
    assert number > 150_000
    log.press("PageDown")
    expect(page.locator(f".seen > #L{number + 20}")).to_be_visible()
    page.reload()
    expect(page.locator(f".seen > #L{number + 20}")).to_be_visible()
    log.press("End")
    expect(page.locator(".seen > #L200000")).to_be_visible()


@pytest.mark.full
def test_a_log_stays_where_its_address_or_its_reader_has_put_it(opened: Opened, archive: AnArchive) -> None:
    archive.write("index@3", b"".join(b"%06d\n" % number for number in range(1, 1_000_001)), head=16 << 20)
    page = opened("/papers@3/index?line=15000#L15000")
    first = page.locator(".seen > div").first
    expect(first).to_have_attribute("id", "L14992")  # with the lines before it, also where a pixel is several lines
    expect(page.locator(".seen > #L15000")).to_be_in_viewport()
    page.locator("#L14995 a").click()
    expect(page.locator(".seen > .marked")).to_have_attribute("id", "L14995")
    page.locator(".log").press("Home")
    expect(first).to_have_attribute("id", "L1")
    page.reload()
    expect(first).to_have_attribute("id", "L1")


@pytest.mark.full
@pytest.mark.parametrize("width", [1280, 360])
def test_what_was_wrong_with_a_notification_and_why_somebody_acted_is_shown_whole(
    opened: Opened, archive: AnArchive, width: int
) -> None:
    long = "zoe@example.net is not an address that the configuration allows. " * 4
    set_receivers(archive, ci=["failed"])
    failed_runs(archive, 4)
    (delivery,) = choose(archive)
    notifications.record_failure(archive.session, delivery, long, is_silent=True)
    control.note(archive.session, long, "ann", run=RunId(archive.run_id(2)))
    page = opened("/-/notifications", viewport={"width": width, "height": 700})
    for address in ("/-/notifications", "/-/audit-log"):
        page.goto(address)
        cell = page.locator("td", has_text="zoe@example.net")
        expect(cell).to_contain_text(long.strip())
        assert cell.evaluate("cell => cell.scrollWidth <= cell.clientWidth"), "nothing of it is cut"
        if address == "/-/notifications":
            lines = "cell => { const all = document.createRange(); all.selectNodeContents(cell); return all.getClientRects().length }"
            assert page.locator("td.to").first.evaluate(lines) == 1, "there is room for the receiver"
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.full
@pytest.mark.parametrize("viewport", [{"width": 1280, "height": 600}, {"width": 360, "height": 640}])
def test_the_line_that_an_address_asks_for_is_in_the_window(
    opened: Opened, archive: AnArchive, viewport: dict[str, int]
) -> None:
    archive.write("index@3", b"".join(b"line %d\n" % number for number in range(1, 2001)))
    page = opened("/papers@3/index?find=line+2000", viewport=viewport)
    expect(page.locator(".seen > .marked")).to_be_in_viewport(ratio=1)
    page.goto("/papers@3/index?line=1999")
    expect(page.locator(".seen > #L1999")).to_be_in_viewport(ratio=1)
    page.goto("/papers@3/index")
    page.evaluate("location.hash = '#L1998'")
    expect(page.locator(".seen > #L1998")).to_be_in_viewport(ratio=1)


@pytest.mark.full
@pytest.mark.parametrize("has_javascript", [True, False])
def test_the_end_of_a_log_is_in_a_low_window(opened: Opened, archive: AnArchive, *, has_javascript: bool) -> None:
    archive.write("index@3", b"".join(b"line %d\n" % number for number in range(1, 2002)))
    archive.end("index@3", 1)

    def assert_end_is_seen(page: Page, width: int, height: int) -> None:
        page.set_viewport_size({"width": width, "height": height})
        page.goto("about:blank")
        page.goto("/papers@3/index")
        line = page.locator(".seen > #L2001" if has_javascript else "#L2001")
        expect(line).to_be_visible()
        box = line.bounding_box()
        assert box
        assert box["y"] > 0
        assert box["y"] + box["height"] <= height, (width, height, box)

    page = opened("/papers@3/index", java_script_enabled=has_javascript)
    for size in ((360, 640), (360, 740), (390, 844), (1024, 600), (1280, 600), (1280, 800)):
        assert_end_is_seen(page, *size)
    expect(page.locator("h1")).to_be_in_viewport(ratio=1)
    # The page is scrolled, whatever is above the log.
    note = "It is known. " * 30 + "\n" * 20
    control.note(archive.session, note, "ann", task=archive.task("index@3"), run=RunId(archive.run_id(3)))
    for size in ((360, 640), (1024, 600), (1280, 400)):
        assert_end_is_seen(page, *size)


@pytest.mark.full
@pytest.mark.parametrize("width", [360, 800, 1280])
def test_long_keys_of_items_are_whole(opened: Opened, session: Session, width: int) -> None:
    archive = an_archive(session, "maps")
    keys = [f"https://example.org/objects/{number:05}/metadata.xml" for number in range(3)] + ["k" * 200]
    archive.commit({"fetch": f"foreach: [{', '.join(keys)}]"})
    page = opened("/maps@2?list=fetch", viewport={"width": width, "height": 800})
    names = page.locator(".of-item b")
    for address, shown in (("/maps@2?list=fetch", keys), (f"/maps@2/*/{keys[3]}", keys[3:])):
        page.goto(address)
        expect(names).to_have_text([f"fetch/{key}" for key in shown])
        for name in names.all():
            box, cell = name.bounding_box(), name.locator("xpath=ancestor::td").bounding_box()
            assert box
            assert cell
            assert cell["x"] <= box["x"]
            assert box["x"] + box["width"] <= min(cell["x"] + cell["width"], width)
            assert cell["y"] <= box["y"]
            assert box["y"] + box["height"] <= cell["y"] + cell["height"]
            assert name.evaluate("b => b.scrollWidth <= b.clientWidth")


@pytest.mark.full
def test_a_long_log_is_at_its_end_scrolls_anywhere_and_follows(
    opened: Opened, archive: AnArchive, session: Session
) -> None:
    claimed = archive.claim("index@3")
    logs = Logs(a_gateway(session), 1 << 20, 1 << 20)
    writer = logs.open(claimed.attempt)
    writer.write(Stream.STDOUT, b"".join(b"line %d\n" % number for number in range(1, 30_001)))
    logs.flush([writer])
    page = opened("/papers@3/index")
    expect(page.locator(".seen > #L30000")).to_be_visible()
    assert page.locator(".seen > div").count() < 100, "only what is seen is in the page"
    log = page.locator(".log")
    log.evaluate("log => log.scrollTop = log.scrollHeight / 2")
    expect(page.locator(".seen > #L15002")).to_have_text("15002line 15002")
    page.locator("#L15002 a").click()
    expect(page.locator(".seen > .marked")).to_have_text("15002line 15002")
    page.reload()
    expect(page.locator(".seen > .marked")).to_have_text("15002line 15002")
    page.goto("/papers@3/index")
    expect(page.locator(".seen > #L30000")).to_be_visible()
    writer.write(Stream.STDOUT, b"one more\nand an open")
    logs.flush([writer])
    expect(page.locator(".seen > #L30002")).to_have_text("30002and an open")
    log.press("Home")
    expect(page.locator(".seen > #L1")).to_be_visible()
    writer.write(Stream.STDOUT, b" line\nlast\n")
    logs.flush([writer])
    expect(page.locator(".log")).to_have_attribute("data-total", "30003")
    expect(page.locator(".seen > #L1")).to_be_visible()  # who reads elsewhere stays there
    page.keyboard.press("End")  # the log has the focus still
    expect(page.locator(".seen > #L30002")).to_have_text("30002and an open line")
    page.evaluate("location.hash = '#L20000'")
    expect(page.locator(".seen > .marked")).to_have_text("20000line 20000")
    page.keyboard.press("f")
    page.keyboard.type("LINE 777")
    page.keyboard.press("Enter")
    expect(page.locator(".seen > .found .hit")).to_have_text("line 777")
    page.get_by_role("link", name="Previous").click()
    page.get_by_role("link", name="From the end").click()
    expect(page.locator(".seen > .found")).to_have_text("7779line 7779")


@pytest.mark.full
def test_at_a_desk_a_reason_is_whole_and_a_high_graph_scrolls_in_its_box(opened: Opened, session: Session) -> None:
    archive = an_archive(session, "maps")
    archive.commit({"print": ""} | {f"tile-{number}": "" for number in range(42)})
    why = f"[Errno 2] No such file or directory: '/srv/{'tools/' * 25}pdf'"
    archive.end("print@2", None, End.NOT_STARTED, message=why)
    page = opened("/", viewport={"width": 1280, "height": 800})
    reason = page.locator(".needs p", has_text="could not be started")
    assert reason.evaluate("p => p.scrollWidth <= p.clientWidth && p.scrollHeight <= p.clientHeight + 1")
    page.goto("/maps@2")
    box = page.locator(".card:has(> .graph)").bounding_box()
    assert box
    assert box["height"] < 700


IN_BOX = """() => {
    const view = document.querySelector(".scroll:has(> .graph)"), seen = view.getBoundingClientRect();
    const isIn = (box) => box.top >= seen.top && box.bottom <= seen.bottom && box.left >= seen.left && box.right <= seen.right;
    return [...view.querySelectorAll(".node")].filter((node) => isIn(node.getBoundingClientRect()))
        .map((node) => node.querySelector("text").textContent);
}"""
"""The names of the boxes of a graph that a reader sees without scrolling."""


@pytest.mark.parametrize("javascript", [True, False])
def test_a_high_graph_opens_at_commit_or_the_first_failure(opened: Opened, session: Session, javascript: bool) -> None:
    archive = an_archive(session, "wide")
    tree = {f"t{node}": f"depends: [t{node // 2}]" if node > 1 else "" for node in range(1, 41)}
    archive.commit(tree)
    page = opened("/wide@2", viewport={"width": 1280, "height": 800}, java_script_enabled=javascript)
    seen = page.evaluate(IN_BOX)
    assert {"COMMIT", "t1"} <= set(seen)
    archive.run(*(f"t{node}@2" for node in (1, 2, 4, 9, 19)), *(f"t{node}@2" for node in (3, 6, 7, 15, 14)))
    archive.fail("t31@2")
    page.goto("/wide@2")
    assert ("t31" in page.evaluate(IN_BOX)) == javascript
