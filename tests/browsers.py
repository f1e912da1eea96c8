"""A real browser without a screen: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from tests.requirements import missing

PROGRAMS = "chromium-headless-shell", "chromium"
"""The first one that is installed runs. Chromium without windows shows the same pages as Chromium,
in a third of the processor time.
"""
OPTIONS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]


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
