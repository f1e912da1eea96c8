"""The page for an address at which there is nothing offers what is near it, and no name that the
visitor may not see.
"""

from __future__ import annotations

import re
from urllib.parse import quote

import httpx
import pytest

from arkqueue.db.session import Session
from arkqueue.queue import deletion
from arkqueue.queue.tokens import Scope
from tests.builders import AnArchive, an_archive
from tests.system.pages.conftest import HOSTILE, Visitors, said


@pytest.fixture
def papers(session: Session) -> AnArchive:
    archive = an_archive(session, "papers", branches=("", "fix/one"))
    for _ in range(2):
        archive.commit({"index": "", "build-pdf": "depends: [index]", "all": "foreach: [a, b]"})
    archive.commit({"index": ""}, branch="fix/one")
    return archive


def offered(page: httpx.Response) -> list[str]:
    """Where the page of an address that leads nowhere leads."""
    assert page.status_code in (404, 422), page.text
    return re.findall(r'<a (?:class="b" )?href="([^"]*)"', page.text.partition("<main")[2])


NEAR: list[tuple[str, list[str]]] = [
    ("/paper", ["/papers", "/-/search?q=paper"]),
    ("/Papers@3/index", ["/papers@3/index", "/papers", "/-/search?q=Papers"]),
    ("/papers@3/biuld-pdf", ["/papers@3/build-pdf", "/papers@3", "/papers", "/-/search?q=biuld-pdf"]),
    ("/papers@3/al/a", ["/papers@3/all/%2A", "/papers@3", "/papers", "/-/search?q=a"]),
    ("/papers@9", ["/papers@3", "/papers", "/-/search?q=9"]),
    ("/papers@9/index", ["/papers@3", "/papers", "/-/search?q=index"]),
    ("/papers@3.7", ["/papers@3", "/papers", "/-/search?q=3"]),
    ("/papers:fix%2Fon", ["/papers:fix%2Fone", "/papers", "/-/search?q=fix/on"]),
    ("/papers:fix%2Fone@9", ["/papers:fix%2Fone@2", "/papers:fix%2Fone", "/papers", "/-/search?q=9"]),
    ("/papers/index", ["/papers", "/-/search?q=index"]),
    ("/papers@x", ["/papers", "/-/search?q=x"]),
    ("/-/settings/paper", ["/papers", "/-/search?q=paper"]),
    ("/-/trigger?of=paper@3", ["/papers@3", "/papers", "/-/search?q=paper"]),
    ("/quite-another", ["/-/search?q=quite-another"]),
    ("/-/nothing", []),
    ("/a/b/c", ["/-/search?q=a"]),
    ("/papers@2/%2e%2e", ["/papers@2", "/papers", "/-/search?q=.."]),
]
"""Addresses of nothing, and the links that the page offers."""


def test_an_unknown_address_offers_what_is_near_it(admin: httpx.Client, papers: AnArchive) -> None:
    assert papers.name == "papers"
    for address, places in NEAR:
        page = admin.get(address)
        assert offered(page) == [*places, "/"], address
        assert "Traceback" not in page.text
        for place in places:
            assert admin.get(place, follow_redirects=True).status_code == 200, place


def test_a_task_of_another_run_of_the_revision_is_offered_first(admin: httpx.Client, papers: AnArchive) -> None:
    papers.commit({"index": "", "release": "on: manual"})
    papers.trigger(4, "release")
    page = admin.get("/papers@4/release")
    assert "Another run has it: papers@4.2/release." in said(page, 404)
    assert offered(page)[:2] == ["/papers@4.2/release", "/papers@4"]
    papers.commit({"index": "", "hand-in": "on: manual\nforeach: [a, b]"})
    papers.trigger(5, "hand-in")
    for name in ("hand-in", "hand-in/*"):
        page = admin.get(f"/papers@5/{name}")
        assert "Another run has it: papers@5.2/hand-in/*." in said(page, 404), name
        assert offered(page)[:2] == ["/papers@5.2/hand-in/%2A", "/papers@5"], name
    assert admin.get("/papers@5.2/hand-in").status_code == 303


def test_names_that_the_visitor_may_not_see_are_not_offered(
    session: Session, visitor: Visitors, papers: AnArchive
) -> None:
    an_archive(session, "paper-secret").commit({"index": ""})
    confined = visitor(Scope.READ, "papers")
    assert offered(confined.get("/paper")) == ["/papers", "/-/search?q=paper", "/"]
    assert "secret" not in confined.get("/paper-secre").text.replace("paper-secre", "")
    assert offered(confined.get("/paper-secret@2/indx")) == ["/papers", "/-/search?q=paper-secret", "/"]
    assert visitor().get("/paper").status_code == 303

    deletion.delete_run(session, papers.run_id(3), "ann", None)
    for address in ("/papers@3", "/papers@3/index", "/papers@3/indx"):
        gone = said(visitor(Scope.READ).get(address))
        assert "This run was deleted." in gone
        assert "Undelete" not in gone
        assert "index" not in gone


def test_a_hostile_address_is_shown_as_text(admin: httpx.Client, papers: AnArchive) -> None:
    for address in (HOSTILE, f"papers@3/{HOSTILE}", f"papers:{HOSTILE}", "papers\0", "papers@3/\0", "x" * 5000):
        page = admin.get("/" + quote(address, safe="@:/"))
        assert page.status_code in (404, 422), address
        assert "<script>alert" not in page.text
        assert "\u202e" not in said(page, page.status_code)
    assert papers.name == "papers"
