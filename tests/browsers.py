"""A real browser without a screen: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Error, Page, Response, sync_playwright

from tests.requirements import missing

PROGRAMS = "chromium-headless-shell", "chromium"
"""The first one that is installed runs. Chromium without windows shows the same pages as Chromium,
in a third of the processor time.
"""
OPTIONS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]


CHANGED = "net::ERR_NETWORK_CHANGED"
"""The error with which Chromium gives up every request when the host gets or loses a network
interface. The engines of other tests add and remove some at any moment.
"""
_goto = Page.goto


def _goto_all_the_same(page: Page, url: str, **options: Any) -> Response | None:
    for _ in range(9):
        try:
            return _goto(page, url, **options)
        except Error as error:
            if CHANGED not in error.message:
                raise
    return _goto(page, url, **options)


Page.goto = _goto_all_the_same  # type: ignore[assignment,method-assign]


def program() -> str | None:
    """The path of the browser; None: none is installed."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


@contextmanager
def a_browser() -> Iterator[Browser]:
    path = program() or missing(" or ".join(PROGRAMS))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=OPTIONS)
        try:
            yield browser
        finally:
            browser.close()


def sign_in_at_once(context: BrowserContext, code: str) -> None:
    """Signs a browser in with the code of a link, and draws none of the pages on the way."""
    answer = context.request.get("/-/sign-in", params={"code": code}, max_redirects=0)
    assert answer.status == 303, answer.text()
