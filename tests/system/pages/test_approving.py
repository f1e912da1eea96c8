"""Guarded tasks on the pages: a visitor who may not approve a task is not led to a refusal, and
whoever may can say why.
"""

from __future__ import annotations

import re

import httpx
import pytest

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.db.session import Session
from arkqueue.model import ArchiveId, BranchId, RunId
from arkqueue.queue import archives, backfill, control, holds, sign_ins, tokens
from arkqueue.queue.tokens import Scope
from arkqueue.views.explain import explain
from arkqueue.web.pages import approving
from arkqueue.web.pages.preview import ACCEPTED
from tests.builders import AnArchive, an_archive
from tests.system.pages.conftest import Visitors, first, form_of, press, said
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


def test_no_button_of_a_grid_leads_to_a_refusal(
    visitor: Visitors, operator: httpx.Client, session: Session, archive: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.commit({"publish": "", "free": "hold: true"}, author="Ann <ann@example.org>")
    archive.fail("publish@3")
    every = ["release", "retry", "retry", "release"]  # two of the archive, one of run 3, one of run 2
    assert SENT.findall(operator.get("/papers").text) == every
    guard(archive)
    shown = operator.get("/papers")
    assert SENT.findall(shown.text) == ["release"]  # of the archive: publish stays held
    assert ">Release 1</button>" in shown.text
    refused = said(first(operator, "papers", "release"))
    assert "Its held tasks may start, except for those that stay held. What would change 1 task would be" in refused
    assert "1 task would stay as it is" in refused
    approver = _as(visitor(), session)
    assert ">Release 2</button>" in approver.get("/papers").text
    assert "Its held tasks may start, approval steps too." in said(first(approver, "papers", "release"))
    assert re.search(r"<button [^>]*disabled[^>]*>Retry</button>", shown.text)
    assert re.search(r"<button [^>]*disabled[^>]*>Release</button>", shown.text)
    assert "What is disabled here is guarded by require-approval: ask somebody with a token of scope approve." in said(
        shown
    )
    archive.cancel("free@3")
    assert not SENT.search(operator.get("/papers").text)
    assert re.search(r"<button [^>]*disabled[^>]*>Release 1</button>", operator.get("/papers").text)
    assert SENT.findall(_as(visitor(), session).get("/papers").text) == every
    monkeypatch.setattr(approving, "MOST_OF_ARCHIVE", 0)
    assert SENT.findall(operator.get("/papers").text) == ["release", "retry"]  # of the archive, not judged


def test_a_run_that_the_authors_of_workflows_hold_has_one_button(
    visitor: Visitors, session: Session, archive: AnArchive
) -> None:
    settings = ArchiveSettings(process=True, workflow_authors=("ann",))
    archives.change_settings(session, archive.id, settings, "ann")
    archive.commit({"build": "", "evil": ""}, author="mallory")
    here = f"papers@{archive.numbers['']}"
    release = re.compile(rf'name="name" value="({here}[^"]*)"><input [^>]*name="verb" value="release"')
    assert release.findall(visitor(Scope.OPERATE).get("/").text) == []
    browser = _as(visitor(), session, "bob")
    assert release.findall(browser.get("/").text) == [here]
    fields = {"name": here, "verb": "release", "back": "/", "form": form_of(browser.get("/"))}
    assert f"1 run would be {ACCEPTED} {here}" in said(browser.post("/-/act", data=fields))
    assert browser.post("/-/act", data=fields | {"sure": "yes"}).status_code == 303
    assert archive.states()[f"evil@{archive.numbers['']}"] == "ready"
    for number in (4, 5):
        archive.commit({"build": "", "evil": "", "more": ""}, author="mallory")
        assert archive.state(f"more@{number}") == "held"
    press(browser, "/papers@5", "papers@5", "release")
    archive.run("more@5")
    of_task = browser.get("/papers@4/more").text
    buttons = re.findall(r"<button [^>]*>(Release[^<]*)<", of_task)
    assert buttons == ["Release the rest of 4", "Release 4 all the same"], "none that is refused"
    for option, yes in (("force", "Yes, release it"), ("skip_outdated", "Yes, waive and release it")):
        told = {"name": "papers@4", "verb": "release", option: "yes", "back": "/", "form": form_of(browser.get("/"))}
        assert f'name="{option}" value="yes"' in of_task
        assert yes in said(browser.post("/-/act", data=told))


def test_a_hold_of_many_offers_no_release_that_is_refused(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"publish": "", "free": ""})
    holds.hold_archive(archive.session, archive.id, "ann", "no disk")
    holds.unhold(archive.session, archive.id, "ann")
    release = re.compile(r'name="name" value="papers"><input [^>]*name="verb" value="release"')
    guard(archive)
    assert release.search(operator.get("/").text)  # free is not guarded
    archive.cancel("free@3")
    shown = operator.get("/")
    assert not release.search(shown.text)
    assert "1 task is held by ann: no disk · takes a token of scope approve" in said(shown)


def test_bulk_buttons_and_the_page_of_an_item_are_judged(
    visitor: Visitors, operator: httpx.Client, session: Session, archive: AnArchive
) -> None:
    archive.commit({"publish": "foreach: [a, b]", "check": "foreach: [a, b]"})
    archive.fail("publish/a@3")
    archive.run("publish/b@3", "check/a@3", "check/b@3")
    pages, changes = ("/papers@3?list=publish", "/papers@3/*/a"), {"retry", "skip", "skip-as-completed", "delete"}
    for page in pages:
        assert changes <= verbs(operator.get(page)), page
    guard(archive)
    for page in pages:
        shown = operator.get(page)
        assert not changes & verbs(shown), page
        assert "ask somebody with a token of scope approve" in said(shown)
    assert "delete" in verbs(operator.get("/papers@3?list=check"))
    approver = _as(visitor(), session)
    for page in pages:
        assert changes <= verbs(approver.get(page)), page


@pytest.mark.parametrize("count", [2, 101])
def test_a_run_with_a_guarded_task_is_neither_deleted_nor_undeleted(
    visitor: Visitors, operator: httpx.Client, session: Session, archive: AnArchive, count: int
) -> None:
    archive.commit({"free": "", "publish": f"foreach: [{', '.join(map(str, range(count)))}]"})
    control.cancel_run(session, RunId(archive.run_id(3)), "ann")
    assert "delete" in verbs(operator.get("/papers@3"))
    guard(archive)
    shown = operator.get("/papers@3")
    assert "delete" not in verbs(shown)
    assert re.search(r"<button [^>]*disabled[^>]*>Delete</button>", shown.text)
    assert "A task of this run is guarded by require-approval" in said(shown)
    approver = _as(visitor(), session)
    assert press(approver, "/papers@3", "papers@3", "delete").status_code == 303
    shown = operator.get("/papers@3")
    assert "undelete" not in verbs(shown)
    assert "A task of this run is guarded by require-approval" in said(shown)
    guard(archive, not_author=True)
    admin = visitor(Scope.ADMIN).get("/papers@3")
    assert re.search(r"<button [^>]*disabled[^>]*>Undelete</button>", admin.text)
    assert "your token or sign-in names no person" in said(admin)


def test_the_buttons_of_a_backfill_are_judged(
    visitor: Visitors, operator: httpx.Client, session: Session, archive: AnArchive
) -> None:
    archive.commit({"publish": "hold: true"})
    fill = backfill.begin(session, ArchiveId(archive.id), BranchId(archive.branches[""].id), 1, None, names=["publish"])
    page = "/papers@fill:1"
    assert {"release", "cancel"} <= verbs(operator.get(page))
    guard(archive)
    shown = operator.get(page)
    assert not {"release", "cancel"} & verbs(shown)
    assert "What is held is guarded by require-approval: ask somebody with a token of scope approve" in said(shown)
    assert {"release", "cancel"} <= verbs(_as(visitor(), session).get(page))
    archive.sql(f"update backfill set next = 2 where id = {fill}")
    assert {"release", "cancel"} & verbs(operator.get(page)) == {"cancel"}  # of what is still to be planned


def test_a_task_runs_again_only_if_it_and_what_is_behind_it_may(
    visitor: Visitors, operator: httpx.Client, session: Session, archive: AnArchive
) -> None:
    archive.commit({"pdf": "", "publish": "depends: [pdf]", "free": "", "mail": "depends: [publish]"})
    archive.run("pdf@3", "free@3", "publish@3", "mail@3")
    options = re.compile(r"<option>(\w+)</option>")
    assert options.findall(operator.get("/papers@3").text) == ["pdf", "publish", "free", "mail"]
    guard(archive)
    assert options.findall(operator.get("/papers@3").text) == ["free", "mail"]
    shown = operator.get("/papers@3/publish")
    assert re.search(r"<button [^>]*disabled[^>]*>Run again, and what is behind it</button>", shown.text)
    assert options.findall(_as(visitor(), session).get("/papers@3").text) == ["pdf", "publish", "free", "mail"]
