"""A run whose tasks have all ended, and whose REPORT waits for a release: each page says that it is
held, and has the button that releases it.
"""

from __future__ import annotations

import re

import httpx
import pytest

from arkqueue.db.session import Session
from arkqueue.model import ArchiveId
from arkqueue.queue import claim, holds
from tests.builders import HOST, PROCESS, AnArchive, an_archive
from tests.system.pages.conftest import confirm, first, said

RELEASE = re.compile(r'<button class="b ([\w -]*)" data-verb="release">Release</button>')


@pytest.fixture
def archive(session: Session) -> AnArchive:
    claim.register(session, PROCESS, HOST, "node2", 4)
    archive = an_archive(session)
    archive.commit({"pdf": "", "index": "", "REPORT": "hold: true\ncommand: 'true'"})
    archive.run("pdf@2", "index@2")
    return archive


def test_its_row_in_the_grid_says_so_and_has_a_button(operator: httpx.Client, archive: AnArchive) -> None:
    page = operator.get("/papers")
    (row,) = re.findall(r'<tr[^>]*><th scope="row".*?href="/papers@2".*?</tr>', page.text, re.S)
    assert "held" in re.sub("<[^>]*>", " ", row).split()
    assert len(RELEASE.findall(row)) == 1
    archive.trigger(2)
    assert len(RELEASE.findall(operator.get("/papers").text)) == 1, "only of the run that is held"


@pytest.mark.usefixtures("archive")
def test_its_page_says_so_in_good_grammar_and_has_one_filled_button(operator: httpx.Client) -> None:
    page = operator.get("/papers@2")
    head = page.text.partition('<div class="head">')[2].partition("</div>\n<p")[0]
    assert RELEASE.findall(head) == ["do"]
    assert "REPORT waits for a release." in said(page)
    assert re.findall(r'<text class="t"[^>]*>(\w+)</text>', page.text) == [
        "completed",
        "completed",
        "completed",
        "held",
    ]


@pytest.mark.usefixtures("archive")
def test_the_overview_says_why_it_waits(operator: httpx.Client) -> None:
    (line,) = operator.get("/?format=json").json()["lines"]
    assert line["now"] == "1 run held"
    assert line["state"] == "held"
    (wait,) = line["waits"]
    assert wait["text"] == "REPORT is held by its workflow file (hold: true), until a person releases it"
    assert '<a href="/papers@2/REPORT">REPORT</a> is held' in operator.get("/").text


def test_its_button_releases_it(operator: httpx.Client, archive: AnArchive) -> None:
    page = first(operator, "papers@2", "release")
    if page.status_code == 200:
        page = confirm(operator, page)
    assert page.status_code == 303, page.text
    assert archive.state("REPORT@2") == "ready"


def test_the_page_of_a_run_ends_the_hold_of_its_archive_first(operator: httpx.Client, archive: AnArchive) -> None:
    """While an archive is on hold, the queue releases none of its tasks."""
    holds.hold_archive(archive.session, ArchiveId(archive.id), "ann")
    page = operator.get("/papers@2")
    head = page.text.partition('<div class="head">')[2].partition("</div>\n<p")[0]
    assert re.findall(r'<button class="b ([^"]*)" data-verb="(?:unhold|release)">', head) == ["cut-short do"]
    assert re.search(r'<button class="b *" disabled title="papers is on hold: end the hold[^"]*">Release<', head)
    assert "papers is on hold: end the hold before you release its tasks." in said(page)
    holds.unhold(archive.session, ArchiveId(archive.id), "ann")
    assert "on hold" not in said(operator.get("/papers@2"))


def test_a_page_of_a_run_has_one_filled_button(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session, "maps")
    items = ", ".join(f"i{number}" for number in range(120))
    archive.commit({"tile": f"foreach: [{items}]", "sign": "hold: true", "ok": ""})

    def filled(address: str) -> list[str]:
        shown = re.sub(r"(</summary>).*?</details>", r"\1", operator.get(address).text, flags=re.S)
        return re.findall(r'<(?:button|summary) class="b [^"]*\bdo\b[^"]*"[^>]*>([^<]*)<', shown)

    assert filled("/maps@2") == ["Release"]
    holds.hold(session, archive.task("tile/i2@2"), "ann")
    archive.fail("tile/i1@2")
    for address in ("/maps@2", "/maps@2?list=tile", "/maps@2?list=tile&state=held", "/maps@2?list=tile&state=failed"):
        assert filled(address) == ["Retry what failed"], address
    archive.commit({"get": "foreach: [a]", "put": "foreach: [a]\nhold: true"})
    archive.fail("get/a@3")
    assert filled("/maps@3/*/a") == ["Retry what failed"]
