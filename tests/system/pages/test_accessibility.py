"""Everybody can use the pages: axe-core finds nothing, in light and in dark, at a desk and on a
phone.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from arkqueue.db.session import Session
from arkqueue.model import RunId
from arkqueue.queue import deletion
from arkqueue.queue.tokens import Scope
from tests.builders import AnArchive, a_workflow, an_archive, faulty, the_archive
from tests.requirements import missing
from tests.system.pages.conftest import HOSTILE
from tests.system.pages.test_browser import TASKS, Opened, opened
from tests.system.waking import waking_session

__all__ = ["opened", "waking_session"]

pytestmark = pytest.mark.full

AXE = Path(sys.prefix) / "axe" / "node_modules" / "axe-core" / "axe.min.js"
# In groups, as the whole list takes longer than a test may on a busy machine.
PAGES = {
    "archives": (
        "/", "/papers", "/papers?state=unhandled", "/thesis", "/maps", "/drawings", "/copies", "/copies?open=RUN", "/nothing",
    ),
    "runs and tasks": (
        "/papers@2", "/papers@2/index", "/papers@4", "/papers@4/tile/a", "/thesis@2", "/papers@3/index",
        "/papers@3/index?find=line", "/copies@2?list=tile", "/copies@2?list=tile&state=failed", "/papers@2/indx", "/papers@4/*/a",
    ),
    "acts": (
        "/-/trigger?of=papers", "/-/submit/copies", "/-/add-archive", "/-/settings/papers", "/-/tokens",
        "Cancel", "Show what would run", "Purge its outputs", "Show the run of a document",
    ),
    "lists": (
        "/-/search", "/-/search?q=change", "/-/locks", "/-/notifications", "/-/schedules", "/-/task-managers",
        "/-/audit-log", "/-/sessions", "/docs", "/-/mine", "/-/mine?author=ann", "/-/report?of=papers@2",
    ),
}  # fmt: skip


@pytest.fixture
def archive(session: Session) -> AnArchive:
    """An archive with something of everything, beside one with faults and one without a run."""
    archive = an_archive(session)
    archive.commit(TASKS)
    archive.end("index@2", 1, message=HOSTILE, outputs={"pages": 3})
    archive.commit(
        TASKS | {"nightly": 'schedule: "0 3 * * *"', "deposit": "lock: [tex]\nhold: true", "other": "lock: [tex]"}
    )
    archive.commit(a_workflow({"tile": "foreach: [a, b]", "index": ""}), author=HOSTILE)
    deletion.delete_item(session, RunId(archive.run_id(4)), "b", "ann")
    archive.write("index@3", b"\x1b[31mline\x1b[0m of a log\n" * 1000)
    archive.retry("index@2")
    an_archive(session, "thesis").commit(faulty())
    copies = an_archive(session, "copies")
    tasks = {"index": "", "tile": "foreach: [a, b]", "box": "on: submission"}
    copies.commit(tasks)
    for run in (2, 3):
        copies.trigger(2, "index")
        copies.run(f"index@2.{run}")
    copies.commit(tasks)
    an_archive(session, "maps")
    an_archive(session, "drawings", tasks=a_workflow(TASKS))
    return archive


ALL = "axe.run({ resultTypes: ['violations'] })"
COLORS = "axe.run({ resultTypes: ['violations'], runOnly: ['color-contrast'] })"


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("group", PAGES)
def test_axe_finds_nothing(
    opened: Opened,
    session: Session,
    archive: AnArchive,  # noqa: ARG001
    group: str,
    width: int,
) -> None:
    if not AXE.exists():
        missing("axe-core, which `make test-full` installs with npm")
    program = AXE.read_text()
    page = opened("/", scope=Scope.ADMIN, expects_errors=True, viewport={"width": width, "height": 800})
    for address in PAGES[group]:
        if address.startswith("/"):
            page.goto(address.replace("RUN", str(the_archive(session, "copies").run_id(2, 2))))
        elif address == "Purge its outputs":
            page.goto("/papers@2/index")
            page.get_by_label("More").click()
            page.get_by_role("button", name=address).click()
        elif address == "Show the run of a document":
            page.goto("/-/submit/copies")
            page.get_by_label("or a text").fill("[]")
            page.get_by_label("Written in").select_option("json")
            page.get_by_role("button", name="Show what would run").click()
            page.get_by_text("No, go back").wait_for()
        else:  # what is shown before anything is done
            page.goto("/papers@4" if address == "Cancel" else "/-/trigger?of=papers")
            page.get_by_role("button", name=address).first.click()
        page.evaluate(program)
        # Only colors differ in the dark.
        for scheme, rules in (("light", ALL), ("dark", COLORS)):
            page.emulate_media(color_scheme=scheme)
            found: list[dict[str, Any]] = page.evaluate(rules)["violations"]
            said = [(v["id"], v["nodes"][0]["html"], v["nodes"][0]["failureSummary"]) for v in found]
            assert said == [], (address, scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, address
