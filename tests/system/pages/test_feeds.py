"""The badge and the feed of an archive, JSON of every page, and what everybody may look at."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import httpx
import pytest

from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.model import RunId
from arkqueue.queue import claim, holds
from arkqueue.queue.tokens import Scope
from arkqueue.states import RunState
from arkqueue.web import create_app, run_api
from arkqueue.web.pages.feeds import COLOURS
from tests.builders import HOST, PROCESS, AnArchive, an_archive
from tests.db.outbox import set_receivers
from tests.system.pages.conftest import HOSTILE, Visitors, a_token, said
from tests.system.pages.every_page import MISSING, PAGES, an_installation, folded
from tests.system.web.conftest import PLAIN

ATOM = "{http://www.w3.org/2005/Atom}"


@pytest.fixture
def archive(session: Session) -> AnArchive:
    archive = an_archive(session)
    archive.commit({"a": "", "b": ""})
    return archive


def badge(browser: httpx.Client, address: str = "/papers") -> str:
    """The words of a badge."""
    answer = browser.get(address, params={"format": "svg"})
    assert answer.headers["content-type"].startswith("image/svg+xml")
    title = ElementTree.fromstring(answer.text).find("{http://www.w3.org/2000/svg}title")
    assert title is not None
    return str(title.text)


def test_a_badge_is_never_greener_than_its_worst_part(reader: httpx.Client, archive: AnArchive) -> None:
    assert badge(reader) == "papers: 2 pending"
    archive.run("a@2")
    archive.fail("b@2")
    assert badge(reader) == "papers: 1 failure"
    archive.commit({"a": ""})
    archive.run("a@3")
    assert badge(reader) == "papers: 1 failure"
    archive.skip("b@2")
    assert badge(reader) == "papers: 3 completed"
    archive.trigger(3, "a")
    holds.hold_run(archive.session, RunId(archive.run_id(3, 2)), "ann")
    assert badge(reader) == "papers: 1 held"
    assert "1 task is held." in said(reader.get("/papers"))


def test_a_badge_of_a_branch_counts_what_is_held_on_this_branch(reader: httpx.Client, session: Session) -> None:
    archive = an_archive(session, "code", branches=("main", "next"))
    archive.commit(branch="main")
    archive.commit({"a": "hold: true"}, branch="next")
    assert badge(reader, "/code") == "code: 2 completed"
    assert badge(reader, "/code:next") == "code:next: 2 held"


@pytest.mark.parametrize(("column", "words"), [("stopped", "stopped"), ("trouble", "cannot be read")])
def test_an_archive_that_is_not_read_looks_failed(
    operator: httpx.Client, archive: AnArchive, column: str, words: str
) -> None:
    archive.commit({"a": ""})
    for key in ("a@2", "b@2", "a@3"):
        archive.run(key)
    assert badge(operator) == "papers: 3 completed"
    archive.sql(f"update archive set {column} = 'it is gone' where id = %s", archive.id)
    assert badge(operator) == f"papers: {words}"
    assert COLOURS[RunState.FAILED] in operator.get("/papers?format=svg").text
    row = operator.get("/").text.partition("Last 30")[2]
    assert f"completed, {words}<" in row
    assert 'class="s failed whole" title="failed"' in row
    head = operator.get("/papers").text.partition('<div class="head">')[2].partition('<p class="says">')[0]
    assert head.count('value="sync"') == 1
    assert re.search(r'class="b do"[^>]*>Read it now<', head)
    archive.sql("update archive set stopped = null, trouble = null")


@pytest.mark.usefixtures("archive")
def test_the_letters_of_a_badge_are_stretched_and_not_only_their_spaces(reader: httpx.Client) -> None:
    """The reader may have another font than the one whose width was assumed."""
    texts = re.findall("<text[^>]*>", reader.get("/papers?format=svg").text)
    assert len(texts) == 2
    assert all('textLength="' in text and 'lengthAdjust="spacingAndGlyphs"' in text for text in texts)


def test_a_feed_without_entries_is_as_old_as_its_archive(reader: httpx.Client, archive: AnArchive) -> None:
    archive.sql("update archive set created_at = '2026-05-04 03:02:01+00'")
    feed = ElementTree.fromstring(reader.get("/papers?format=atom").text)
    assert feed.findtext(f"{ATOM}updated") == "2026-05-04T03:02:01+00:00"


def test_a_feed_has_the_runs_that_came_to_an_end(reader: httpx.Client, archive: AnArchive) -> None:
    archive.run("a@2")
    archive.end("b@2", 1, message=HOSTILE)
    archive.commit({"a": ""}, author=f"{HOSTILE} \uffff\ufffe")  # which no XML may contain
    archive.run("a@3")
    archive.commit({"a": ""})
    answer = reader.get("/papers", params={"format": "atom"})
    assert answer.headers["content-type"].startswith("application/atom+xml")
    feed = ElementTree.fromstring(answer.text)
    entries = feed.findall(f"{ATOM}entry")
    assert [entry.findtext(f"{ATOM}title") for entry in entries] == [
        "papers@3 is completed: change 3",
        "papers@2 failed: change 2",
    ]
    assert entries[1].findtext(f"{ATOM}id") == f"{str(reader.base_url).rstrip('/')}/papers@2#failed"
    assert "papers@2/b failed: exit code 1: <script>alert(1)</script>" in (entries[1].findtext(f"{ATOM}content") or "")
    assert "<script>" not in answer.text
    assert not set(answer.text) & set("\x1b\x07\u202e")


def test_every_page_is_there_as_json(admin: httpx.Client, session: Session) -> None:
    """The pages are those of the router (test_every_page.py)."""
    an_installation(session)
    for page, *others in PAGES.values():
        keys = admin.get(page + ("&" if "?" in page else "?") + "format=json").json().keys()
        for address in (page, *others):
            address = address.replace("FOLDED", str(folded(session)))
            answer = admin.get(address, headers={"accept": "application/json"})
            assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json"), address
            assert not [name for name in answer.json() if name.startswith("_")], address
            assert address != page or answer.json().keys() == keys, page
    for page in MISSING:
        answer = admin.get(page, headers={"accept": "application/json"})
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json"), page


def test_json_of_a_page_has_a_run_as_the_api_has_it_and_is_compressed(admin: httpx.Client, archive: AnArchive) -> None:
    page = admin.get(f"/papers@{archive.numbers['']}?format=json")
    assert page.headers["content-encoding"] == "gzip"
    run = page.json()["run"]
    token = a_token(archive.session, Scope.READ)[1]
    api = admin.get(f"/api/v1/runs/{run['id']}", headers={"authorization": f"Bearer {token}"})
    assert {**run, "tasks": []} == {**api.json(), "tasks": []}, "the tasks of the page tell more of why they wait"


def test_who_is_signed_in_is_told_of_hosts_and_who_is_not_is_told_briefly(
    session: Session,
    archive: AnArchive,  # noqa: ARG001  it stands there
    visitor: Visitors,
    configuration: Configuration,
) -> None:
    claim.register(session, PROCESS, HOST, "cellar-7", 4, fault="work folder: /srv/x is full. Make room")
    reader = visitor(Scope.READ, "papers")
    assert "cellar-7: work folder: /srv/x is full" in reader.get("/papers@2/a").text
    assert "cellar-7" in reader.get("/-/task-managers").text
    public = create_app(session, configuration.model_copy(update={"public": ("papers",)}))
    server = run_api(public, "127.0.0.1", 0)
    try:
        with httpx.Client(base_url=server.url, **PLAIN) as anybody:
            page = anybody.get("/papers@2/a")
            assert "is ready, but no host can start it for now." in page.text
            for answer in (page, anybody.get("/papers@2/a?format=json"), anybody.get("/papers"), anybody.get("/")):
                assert answer.status_code == 200
                assert "cellar-7" not in answer.text
                assert "/srv/x" not in answer.text
            assert anybody.get("/-/task-managers").status_code == 303
    finally:
        server.close()


def test_everybody_sees_what_is_public_and_nothing_else(
    session: Session, archive: AnArchive, configuration: Configuration
) -> None:
    vault = an_archive(session, "vault")
    vault.commit({"buried": ""})
    archive.fail("a@2")
    set_receivers(archive, **{"ann@example.org": ["failed"]})
    server = run_api(
        create_app(session, configuration.model_copy(update={"public": ("papers", "nothing")})), "127.0.0.1", 0
    )
    try:
        with httpx.Client(base_url=server.url, **PLAIN) as anybody:
            for page in (
                "/",
                "/papers",
                "/papers@2",
                "/papers@2/a",
                "/-/search?q=buried",
                "/-/locks",
                "/-/schedules",
            ):
                answer = anybody.get(page)
                assert answer.status_code == 200, page
                assert "vault" not in answer.text
                assert "ann@example.org" not in answer.text
                assert "ann@example.org" not in anybody.get(page, params={"format": "json"}).text
                assert 'method="post"' not in answer.text
                assert 'href="/-/sign-in' in answer.text
            for page in (
                "/vault",
                "/vault@2/buried",
                "/-/settings/papers",
                "/-/audit-log",
                "/-/task-managers",
                "/nothing",
                "/-/tokens",
                "/-/notifications",
                "/papers@9",
            ):
                assert anybody.get(page).headers["location"].startswith("/-/sign-in?next="), page
            assert badge(anybody) == "papers: 1 failure"
            assert anybody.get("/vault?format=svg").status_code == 303
            sent = anybody.post("/-/act", data={"name": "papers@2/a", "verb": "retry", "form": ""})
            assert sent.headers["location"].startswith("/-/sign-in")
            assert archive.state("a@2") == "failed"
            assert anybody.get("/api/v1/runs").status_code == 401
    finally:
        server.close()
    assert archive.state("a@2") == "failed"


@pytest.mark.parametrize("column", ["trouble", "stopped"])
def test_everybody_sees_that_a_public_archive_is_not_read_and_nothing_of_the_servers_paths(
    session: Session, archive: AnArchive, configuration: Configuration, reader: httpx.Client, column: str
) -> None:
    archive.sql(
        f"update archive set url = 'file:///srv/cellar/papers', {column} = 'file:///srv/cellar/papers: there is no repository' where id = %s",
        archive.id,
    )
    assert "/srv/cellar" in reader.get("/papers").text
    server = run_api(create_app(session, configuration.model_copy(update={"public": ("papers",)})), "127.0.0.1", 0)
    try:
        with httpx.Client(base_url=server.url, **PLAIN) as anybody:
            for page in ("/", "/papers", "/papers@2", "/papers@2/a", "/-/search?q=a", "/-/locks", "/-/schedules"):
                for answer in (anybody.get(page), anybody.get(page, headers={"accept": "application/json"})):
                    assert answer.status_code == 200, page
                    assert "cellar" not in answer.text, page
            told = "Its repository cannot be read" if column == "trouble" else "an administrator has to look at it"
            assert told in anybody.get("/papers").text
            assert told in anybody.get("/").text
    finally:
        server.close()
        archive.sql("update archive set stopped = null, trouble = null")


def test_documents_for_everybody_name_no_settings_and_no_process(
    session: Session, archive: AnArchive, configuration: Configuration, reader: httpx.Client
) -> None:
    archive.run("a@2")
    asked = {"format": "json"}
    assert reader.get("/papers@2/a", params=asked).json()["attempt"]["process"]
    assert reader.get("/papers", params=asked).json()["archive"]["settings"]
    server = run_api(create_app(session, configuration.model_copy(update={"public": ("papers",)})), "127.0.0.1", 0)
    try:
        with httpx.Client(base_url=server.url, **PLAIN) as anybody:
            document = anybody.get("/papers@2/a", params=asked).json()
            for attempt in (document["attempt"], *document["task"]["history"]):
                assert attempt["end"] == "exited"
                assert not attempt.keys() & {"process", "host", "lease_until"}
            archives = [anybody.get("/papers", params=asked).json()["archive"], anybody.get("/", params=asked).json()["lines"][0]["archive"]]  # fmt: skip
            for shown in archives:
                assert shown["name"] == "papers"
                assert not shown.keys() & {"url", "repository", "uuid", "folder", "settings", "remedy"}
    finally:
        server.close()


def test_nobody_sees_anything_without_signing_in_where_nothing_is_public(visitor: Visitors, archive: AnArchive) -> None:  # noqa: ARG001
    for page in ("/papers?format=svg", "/papers?format=atom", "/papers"):
        assert visitor().get(page).status_code == 303
