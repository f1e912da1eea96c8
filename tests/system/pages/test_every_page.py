"""Every page of the router, and the answer of every form, in a real browser: at a desk and on a
phone, in light and in dark, with JavaScript and without. The browser has no error to report,
axe-core finds nothing, no page is wider than its window, and what strangers wrote is seen and never
obeyed. A route without its page here fails.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from arkqueue.db.session import Session
from arkqueue.queue import sign_ins
from arkqueue.queue.tokens import Scope
from arkqueue.web import ApiServer
from tests.browsers import CHANGED, sign_in_at_once
from tests.requirements import missing
from tests.system.pages.conftest import HOSTILE_ITEM, a_token
from tests.system.pages.every_page import (
    FORMS,
    MISSING,
    NO_PAGES,
    PAGES,
    SILENT,
    Sent,
    an_installation,
    folded,
    of_router,
    route_of,
)

pytestmark = pytest.mark.full

AXE: Final = Path(sys.prefix) / "axe" / "node_modules" / "axe-core" / "axe.min.js"
DESK, PHONE, HEIGHT = 1280, 360, 800
ALL: Final = "axe.run({ resultTypes: ['violations'] })"
COLORS: Final = "axe.run({ resultTypes: ['violations'], runOnly: ['color-contrast'] })"
NARROW: Final = "axe.run({ resultTypes: ['violations'], runOnly: ['color-contrast', 'scrollable-region-focusable'] })"
"""The rules whose findings depend on the width of a window."""
DARK: Final = "rgb(20, 22, 26)"
BACKGROUND: Final = "getComputedStyle(document.documentElement).backgroundColor"
Looks = Sequence[tuple[int, Literal["light", "dark"], str]]
LOOKS: Final[Looks] = ((DESK, "light", ALL), (DESK, "dark", COLORS), (PHONE, "light", NARROW))
LOOKS_AT_ANSWERS: Final[Looks] = ((DESK, "light", ALL), (PHONE, "dark", NARROW))
"""The answers of forms are made of the parts of other pages."""
SEEN: Final = ("<script>alert(1)", HOSTILE_ITEM)
REFUSED: Final = re.compile(r"Failed to load resource: the server responded with a status of \d+")
"""What Chromium says of each page whose status is not 200."""
STANDS_OUT: Final = """document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll("body *")]
    .filter((one) => one.getBoundingClientRect().right > innerWidth || one.scrollWidth > innerWidth).map((one) => one.outerHTML.slice(0, 200))"""
"""What stands out of the window to the right, where the page scrolls sideways."""
READ: Final = """() => ({
    inserted: [...document.querySelectorAll("main :is(script, img, iframe, object, embed, style)")].map((one) => one.outerHTML),
    raw: document.documentElement.outerHTML.match(/[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069]/g) ?? [],
    text: (document.querySelector("main") ?? document.body).innerText + [...document.querySelectorAll("main :is([title], input, textarea)")].map((one) => `${one.title} ${one.value ?? ""}`),
})"""
SEND: Final = """([action, fields]) => {
    const form = document.createElement("form"), fill = { form: document.querySelector("[name=form]").value, ...fields };
    Object.assign(form, { method: "post", enctype: action.startsWith("/-/submit") ? "multipart/form-data" : "application/x-www-form-urlencoded" });
    form.setAttribute("action", action);
    for (const [name, value] of Object.entries(fill)) form.append(Object.assign(document.createElement("textarea"), { name, value }));
    document.body.append(form);
    form.submit();
}"""
"""Sends a form as a person would, with the secret of the page."""


def test_each_route_has_its_pages() -> None:
    found = of_router()
    assert {path for path, methods in found.items() if "GET" in methods} - NO_PAGES.keys() == PAGES.keys()
    assert {path for path, methods in found.items() if "POST" in methods} - NO_PAGES.keys() == FORMS.keys()
    assert {address: route_of(address) for some in PAGES.values() for address in some} == {
        address: path for path, some in PAGES.items() for address in some
    }
    for path, forms in FORMS.items():
        assert {route_of(form.action, "POST") for form in forms} == {path}


class Visit:
    """A signed-in browser that checks each page that it is shown. ``faults``: what is wrong with
    them. ``plain``: a page of a phone without JavaScript.
    """

    def __init__(self, page: Page, plain: Page, run: str) -> None:
        self.page, self._plain, self._run = page, plain, run
        self.faults: list[str] = []
        self._said: list[str] = []
        self._shown: tuple[int, str] = (DESK, "")
        """The width and the colors of the window."""
        page.on("console", lambda message: self._hear(message.text))
        page.on("pageerror", lambda error: self._hear(str(error)))
        page.on("dialog", lambda dialog: self._hear(f"a script of a stranger ran: {dialog.message}"))

    def opens(self, address: str, status: int = 200) -> None:
        answer = self.page.goto(address.replace("FOLDED", self._run))
        assert answer is not None
        self._expects(address, answer.status == status, f"status {answer.status}")
        text = self._looks(address, status, LOOKS)
        is_seen = any(hostile in text for hostile in SEEN)
        if status == 200:
            self._expects(address, is_seen != (address in SILENT), f"hostile text is seen: {is_seen}")
        answer = self._plain.goto(address.replace("FOLDED", self._run))
        assert answer is not None
        self._expects(address, answer.status == status, f"status {answer.status} without JavaScript")
        found = self._plain.evaluate(READ)
        self._expects(
            address, any(hostile in found["text"] for hostile in SEEN) == is_seen, "says else without JavaScript"
        )
        self._expects(address, not found["inserted"] and not found["raw"], f"without JavaScript {found}")
        wide = self._plain.evaluate(STANDS_OUT)
        self._expects(address, not wide, f"without JavaScript wider than its window {wide}")

    def sends(self, sent: Sent) -> None:
        if not self.page.locator("[name=form]").count():
            self.page.goto("/-/schedules")
        with self.page.expect_navigation() as navigation:
            self.page.evaluate(SEND, [sent.action, dict(sent.fields)])
        what = f"{sent.action} {dict(sent.fields)}"[:300]
        text = self._looks(what, sent.status, LOOKS_AT_ANSWERS)
        status = navigation.value.status
        self._expects(what, status == sent.status and sent.words in text, f"status {status}: {text[:500]}")

    def ends(self) -> None:
        """Fails if a page has a fault."""
        if self.faults:
            pytest.fail("\n".join(self.faults))

    def _looks(self, what: str, status: int, looks: Looks) -> str:
        """Checks the page at hand. Returns its text."""
        page = self.page
        found = page.evaluate(READ)
        self._expects(what, not found["inserted"], f"inserted {found['inserted']}")
        self._expects(what, not found["raw"], f"raw characters {found['raw']}")
        for width, scheme, rules in looks:
            self._shows(width, scheme)
            told = page.evaluate(f"Promise.all([{rules}, {STANDS_OUT}, {BACKGROUND}])")
            for v in told[0]["violations"]:
                node = v["nodes"][0]
                self._expects(what, False, f"{width} {scheme}: {v['id']} {node['html']} {node['failureSummary']}")
            self._expects(what, not told[1], f"{width}: wider than its window {told[1]}")
            self._expects(what, (told[2] == DARK) == (scheme == "dark"), f"{scheme}: background {told[2]}")
        said = [one for one in self._said if status < 400 or not REFUSED.match(one) or str(status) not in one]
        self._expects(what, not said, f"said {said}")
        self._said.clear()
        return str(found["text"])

    def _shows(self, width: int, scheme: Literal["light", "dark"]) -> None:
        """Gives the window this width and these colors. Chromium draws a page again also for those
        that the window has.
        """
        had_width, had_scheme = self._shown
        if width != had_width:
            self.page.set_viewport_size({"width": width, "height": HEIGHT})
        if scheme != had_scheme:
            self.page.emulate_media(color_scheme=scheme)
        self._shown = width, scheme

    def _expects(self, what: str, is_well: bool, fault: str) -> None:
        if not is_well:
            self.faults.append(f"{what}: {fault}")

    def _hear(self, text: str) -> None:
        if CHANGED not in text:
            self._said.append(text)


@pytest.fixture
def visit(browser: Browser, server: ApiServer, session: Session) -> Iterator[Visit]:
    if not AXE.exists():
        missing("axe-core, which `make test-full` installs with npm")
    an_installation(session)
    token, _ = a_token(session, Scope.ADMIN)
    desk = browser.new_context(base_url=server.url, viewport={"width": DESK, "height": HEIGHT})
    phone = browser.new_context(
        base_url=server.url, viewport={"width": PHONE, "height": HEIGHT}, java_script_enabled=False
    )
    desk.add_init_script(path=AXE)  # sent once, and not again for each page
    pages = []
    for context in (desk, phone):
        context.set_default_timeout(120_000)
        sign_in_at_once(context, sign_ins.code(session, token))
        pages.append(context.new_page())
    yield Visit(*pages, str(folded(session)))
    desk.close()
    phone.close()


def test_every_page_of_an_archive(visit: Visit) -> None:
    for address in PAGES["/{address:path}"]:
        visit.opens(address)
    visit.page.goto("/papers")
    visit.page.locator('.grid a[href="/papers@2/index"]').focus()
    expect(visit.page.locator(".foot .line")).to_contain_text(
        "<script>alert(1)</script>"
    )  # what a script has put there
    visit.ends()


def test_every_other_page(visit: Visit) -> None:
    for path, addresses in PAGES.items():
        for address in addresses if path != "/{address:path}" else ():
            visit.opens(address)
    visit.opens("/docs")
    for address in MISSING:
        visit.opens(address, 404)
    visit.ends()


def test_the_answer_of_every_form(visit: Visit) -> None:
    for sent in (sent for forms in FORMS.values() for sent in forms):
        visit.sends(sent)
    visit.ends()
