"""Guarded tasks on the pages: a visitor who may not approve a task is not led to a refusal, and
whoever may can say why.
"""

from __future__ import annotations

import re

import httpx
import pytest

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.db.session import Session
from arkqueue.queue import archives, sign_ins, tokens
from arkqueue.queue.tokens import Scope
from arkqueue.views.explain import explain
from tests.builders import AnArchive, an_archive
from tests.system.pages.conftest import Visitors, form_of, said
from tests.system.pages.test_verbs import verbs

PAGES = ("/", "/papers@2", "/papers@2/publish")
SENT = re.compile(r'name="verb" value="(release|cancel|skip|retry)"')


@pytest.fixture
def archive(session: Session) -> AnArchive:
    archive = an_archive(session)
    archive.commit({"publish": "hold: true"}, author="Ann <ann@example.org>")
    return archive


def guard(archive: AnArchive, *, not_author: bool = False) -> None:
    settings = ArchiveSettings(process=True, require_approval=("publish",), approval_not_author=not_author)
    archives.change_settings(archive.session, archive.id, settings, "ann")


def _as(browser: httpx.Client, session: Session, *authors: str) -> httpx.Client:
    """A browser with a token of scope approve that stands for persons."""
    token, _ = tokens.create(session, name="approver", scope=Scope.APPROVE, archives=None, by="test", authors=authors)
    assert browser.get("/-/sign-in", params={"code": sign_ins.code(session, token)}).status_code == 303
    return browser


def test_without_the_scope_no_page_has_a_button_that_is_refused(operator: httpx.Client, archive: AnArchive) -> None:
    assert all(SENT.search(operator.get(page).text) for page in PAGES)
    guard(archive)
    for page in PAGES:
        shown = operator.get(page)
        assert not SENT.search(shown.text), page
        assert re.search(r"<button [^>]*disabled[^>]*>Release</button>", shown.text), page
        assert "token of scope approve" in said(shown), page
    assert {"note"} <= verbs(operator.get("/papers@2/publish"))


@pytest.mark.parametrize(
    ("authors", "why"),
    [
        (("ann@example.org",), "you are the author of its revision"),
        ((), "your token or sign-in names no person"),
        (("bob",), ""),
    ],
)
def test_an_author_and_nobody_in_particular_may_not_approve(
    visitor: Visitors, session: Session, archive: AnArchive, authors: tuple[str, ...], why: str
) -> None:
    guard(archive, not_author=True)
    browser = _as(visitor(), session, *authors)
    for page in PAGES:
        shown = browser.get(page)
        assert bool(SENT.search(shown.text)) is not bool(why), page
        assert why in said(shown), page


def test_a_task_that_was_held_before_says_that_it_is_guarded(operator: httpx.Client, archive: AnArchive) -> None:
    guard(archive)
    words = "by its workflow file (hold: true) and guarded by require-approval, until a person releases it; that takes"
    assert words in explain(archive.session, archive.task("publish@2")).text
    assert words in said(operator.get("/papers@2/publish"))
    assert "is held by its workflow file and guarded by require-approval" in said(operator.get("/"))


@pytest.mark.parametrize("page", ["/", "/papers@2/publish"])
def test_a_release_of_one_task_asks_why(visitor: Visitors, session: Session, archive: AnArchive, page: str) -> None:
    browser = _as(visitor(), session, "Bob <bob@example.org>")
    shown = browser.get(page)
    (form,) = [one for one in re.findall(r"<form.*?</form>", shown.text, re.S) if 'value="release"' in one]
    assert 'placeholder="Why? (kept in the audit log)"' in form
    assert "You release it as Bob &lt;bob@example.org&gt;." in form
    fields = {"form": form_of(shown), "name": "papers@2/publish", "verb": "release", "back": page, "text": "proofread"}
    assert browser.post("/-/act", data=fields).status_code == 303
    assert archive.state("publish@2") == "ready"
    assert "released it" in said(browser.get("/papers@2/publish"))
    assert "proofread" in said(browser.get("/papers@2/publish"))
