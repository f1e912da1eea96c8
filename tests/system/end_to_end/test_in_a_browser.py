"""The pages in a real browser, of a server whose task manager runs what is committed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browsers import CHANGED, a_browser
from tests.system.end_to_end.conftest import Archives, Installations
from tests.system.end_to_end.installation import tasks
from tests.waiting import eventually

PATIENCE = 60_000
"""Milliseconds that only a failing test waits."""


@pytest.mark.full
def test_the_printed_link_shows_a_commit_that_is_run_while_its_log_grows(
    installations: Installations, archives: Archives, tmp_path: Path
) -> None:
    arkqueue, go = installations(), tmp_path / "go"
    server = arkqueue.start()
    eventually(lambda: "the pages: " in server.said)
    (link,) = re.findall(r"the pages: (\S+)", server.said)
    papers = archives(arkqueue)
    waits = f"echo begins; until [ -e {go} ]; do sleep 0.05; done; echo ends"
    papers.commit(tasks({"index": {"command": waits}, "pdf": {"depends": ["index"], "command": "echo made"}}))
    papers.wait("index@2", "running")
    said: list[str] = []
    with a_browser() as browser:
        context = browser.new_context(base_url=arkqueue.api.url)
        context.on("console", lambda message: None if CHANGED in message.text else said.append(message.text))
        grid, task = context.new_page(), context.new_page()
        grid.goto(link)
        grid.goto(f"/{papers.name}")
        index, pdf = (grid.locator(f'.grid a[href="/{papers.task(key)}"]') for key in ("index@2", "pdf@2"))
        expect(index).to_have_attribute("title", re.compile(" runs on .* for "), timeout=PATIENCE)
        expect(pdf).to_have_attribute("title", re.compile(" waits for .*/index, which is running"), timeout=PATIENCE)
        task.goto(f"/{papers.task('index@2')}")
        log = task.locator(".log")
        expect(log).to_contain_text("begins", timeout=PATIENCE)
        expect(log).not_to_contain_text("ends")
        go.touch()
        expect(log).to_contain_text("ends", timeout=PATIENCE)
        for cell in (index, pdf):
            expect(cell).to_have_attribute("title", re.compile(" completed in "), timeout=PATIENCE)
        context.close()
    assert said == []
