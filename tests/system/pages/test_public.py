"""The pages of public archives for visitors who have not signed in: they show what happens, and
neither who acted nor why.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from urllib.parse import urljoin, urlsplit

import httpx
import pytest

from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.model import INSTALLATION, ArchiveId, BranchId, End, RunId
from arkqueue.queue import backfill, claim, control, deletion, holds, lists, locks, pauses, removal, reports
from arkqueue.queue.purge import purge_runs
from arkqueue.queue.tokens import Scope
from arkqueue.web import create_app, run_api
from tests.builders import HOST, PROCESS, AnArchive, an_archive
from tests.system.pages.conftest import Visitors, form_of, said
from tests.system.web.conftest import PLAIN

PERSON = "Mallory Quill"
"""The person who acts. No page of a visitor who has not signed in names her."""
SECRET = "xyzzy"
"""A word of each reason."""
MOST_PAGES = 500


@pytest.fixture
def archive(session: Session) -> AnArchive:
    claim.register(session, PROCESS, HOST, "node2", 20)
    archive = an_archive(session)
    archive.commit(
        {
            "pdf": "",
            "index": "lock: press",
            "upload": "depends: [pdf]",
            "thumbs": "foreach: [a, b]",
            "step": "hold: true",
        }
    )
    return archive


@pytest.fixture
def anybody(session: Session, configuration: Configuration, no_queue_manager: None) -> Iterator[httpx.Client]:  # noqa: ARG001  it sets
    """A browser that is not signed in, at a server on which the archive is public."""
    server = run_api(create_app(session, configuration.model_copy(update={"public": ("papers",)})), "127.0.0.1", 0)
    with httpx.Client(base_url=server.url, **PLAIN) as browser:
        yield browser
    server.close()


def why(what: str) -> str:
    return f"{SECRET} {what}: node 7 is on fire"


def crawled(browser: httpx.Client, *first: str) -> dict[str, str]:
    """The text of each page that links lead to, as HTML and as JSON, by its address."""
    found: dict[str, str] = {}
    left = [*first]
    while left:
        address = left.pop()
        if address in found:
            continue
        assert len(found) < MOST_PAGES, "so many pages cannot belong to so few runs"
        answer = browser.get(address)
        if answer.status_code != 200:
            assert answer.status_code == 303, (address, answer.text)
            continue
        found[address] = html.unescape(answer.text)
        kind = answer.headers["content-type"]
        if not kind.startswith("text/html"):
            continue
        if "format=" not in address:
            as_json = f"{address}{'&' if '?' in address else '?'}format=json"
            found[as_json] = browser.get(as_json).text
        for link in re.findall(r'href="([^"#]+)', answer.text):
            target = urlsplit(urljoin(address, html.unescape(link)))
            if not target.netloc and not target.path.startswith(("/-/static", "/-/sign-in")):
                left.append(target.path + (f"?{target.query}" if target.query else ""))
    return found


def assert_silent(browser: httpx.Client, *first: str) -> dict[str, str]:
    pages = crawled(browser, "/", "/papers", "/-/locks", "/-/schedules", "/-/search?q=pdf", *first)
    for address, text in pages.items():
        for word in (SECRET, PERSON, "Mallory"):
            assert word not in text, (address, text[max(0, text.find(word) - 300) : text.find(word) + 100])
    return pages


def test_the_pages_name_neither_persons_nor_reasons_whatever_was_done(
    session: Session, archive: AnArchive, anybody: httpx.Client
) -> None:
    id, branch = ArchiveId(archive.id), BranchId(archive.branches[""].id)
    lists.hold(session, RunId(archive.run_id(2)), "thumbs", [], PERSON, why("list"))
    archive.fail("pdf@2")
    control.note(session, why("note"), PERSON, run=RunId(archive.run_id(2)), task=archive.task("pdf@2"))
    control.note(session, why("note of a run"), PERSON, run=RunId(archive.run_id(2)))
    holds.release(session, archive.task("step@2"), PERSON, why("release"))
    archive.run("step@2")
    removal.remove(session, archive.task("step@2"), PERSON, why("removal"), log=True, outputs=True)

    archive.commit({"pdf": "", "index": "lock: press", "upload": "depends: [pdf]"})
    control.cancel(session, archive.task("upload@3"), PERSON)
    archive.end("pdf@3", 1)
    control.skip(session, archive.task("pdf@3"), PERSON)
    holds.hold(session, archive.task("index@3"), PERSON, why("task"))
    reports.update_report(session, RunId(archive.run_id(3)), PERSON, now=True)
    archive.trigger(3, "pdf", by=PERSON)
    holds.hold_run(session, RunId(archive.run_id(3, 2)), PERSON, why("run"))
    archive.trigger(3, "index", by=PERSON)
    deletion.delete_run(session, RunId(archive.run_id(3, 3)), PERSON)
    deletion.undelete_run(session, RunId(archive.run_id(3, 3)), PERSON)
    archive.trigger(3, "index", by=PERSON)
    deletion.delete_run(session, RunId(archive.run_id(3, 4)), PERSON)
    purge_runs(session, [RunId(archive.run_id(3, 4))], PERSON, why("purge"))
    archive.claim("index@2")
    archive.sql("update task set by = %s, stop = 'cancel' where state = 'running'", PERSON)
    fill = backfill.begin(session, id, branch, 1, None, names=["pdf"], by=PERSON)
    backfill.hold(session, fill, PERSON, why("backfill"))
    backfill.cancel(session, fill, PERSON)
    pages = assert_silent(
        anybody,
        "/papers@2/step",
        "/papers@2/thumbs/a",
        "/papers@3/index",
        "/papers@3/upload",
        "/papers@3.2/pdf",
        "/papers@3.3",
    )
    assert {"/papers@2", "/papers@3", "/papers@3.2", "/papers@2/pdf", "/papers@fill:1", "/papers?format=atom"} <= {
        *pages
    }

    locks.pause(session, id, "press", why("lock"), PERSON)
    holds.hold_archive(session, id, PERSON, why("archive"))
    archive.commit({"pdf": "", "index": "lock: press"})
    pauses.pause(session, id, why("pause"), PERSON)
    assert_silent(anybody, "/papers@4/pdf", "/papers@4/index")
    pauses.resume(session, id, "papers", PERSON, why("resume"))
    pauses.pause_all(session, why("pause of all"), PERSON)
    pages = assert_silent(anybody)
    assert not [page for page, text in pages.items() if "arkqueue resume" in text]


def test_who_has_signed_in_reads_persons_and_reasons(
    session: Session, archive: AnArchive, anybody: httpx.Client, visitor: Visitors
) -> None:
    """The check of the crawl itself: with the right to read, it finds what it looks for."""
    holds.hold_archive(session, ArchiveId(archive.id), PERSON, why("archive"))
    assert_silent(anybody)
    with pytest.raises(AssertionError, match=SECRET):
        assert_silent(visitor(Scope.READ, "papers"))


def paused(session: Session, archive: AnArchive) -> None:
    pauses.pause(session, ArchiveId(archive.id), why("pause"), PERSON)


def paused_with_all(session: Session, archive: AnArchive) -> None:  # noqa: ARG001  as the others
    pauses.pause_all(session, why("pause of all"), PERSON)


def on_hold(session: Session, archive: AnArchive) -> None:
    holds.hold_archive(session, ArchiveId(archive.id), PERSON, why("hold"))


def test_who_has_signed_in_for_other_archives_reads_what_everybody_reads(
    visitor: Visitors, session: Session, archive: AnArchive, anybody: httpx.Client
) -> None:
    vault = an_archive(session, "vault")
    vault.commit({"buried": ""})
    archive.write("pdf@2", b"a line\n")
    archive.fail("pdf@2")
    signed_in = visitor(Scope.OPERATE, "vault")
    anybody.cookies, anybody.headers["host"] = signed_in.cookies, signed_in.base_url.netloc.decode()
    (attempt,) = archive.sql("select attempt_id as id from task where id = %s", archive.task("pdf@2"))
    for page in ("/papers", "/papers@2", "/papers@2/pdf", f"/-/log/{attempt['id']}/lines?line=1", "/papers?format=svg"):
        answer = anybody.get(page)
        assert answer.status_code == 200, page
        assert 'method="post"' not in answer.text, page
    assert 'name="verb" value="pause"' in anybody.get("/vault").text
    assert said(anybody.get("/papers@99"), 404)
    with anybody.stream("GET", "/-/live?of=papers") as events:
        assert events.status_code == 200
    form = {"form": form_of(anybody.get("/vault")), "name": "papers", "verb": "pause", "back": "/"}
    assert anybody.post("/-/act", data=form).status_code == 404
    assert anybody.get("/-/settings/papers").status_code == 404


@pytest.mark.parametrize(
    ("withhold", "says"),
    [
        (paused, r"It is paused since 2\S+ \S+ UTC\."),
        (paused_with_all, r"It is paused with the whole installation since 2\S+ \S+ UTC\."),
        (on_hold, r"It is on hold since 2\S+ \S+ UTC\."),
    ],
)
def test_a_page_says_that_an_archive_is_withheld_and_since_when(
    session: Session,
    archive: AnArchive,
    anybody: httpx.Client,
    withhold: Callable[[Session, AnArchive], None],
    says: str,
) -> None:
    withhold(session, archive)
    assert re.search(says, said(anybody.get("/papers")))
    view = anybody.get("/papers?format=json").json()["archive"]
    (found,) = (one for one in (view["paused"], view["hold"]) if one)
    assert (found["by"], found["reason"], found.get("resume", "")) == ("", "", "")
    assert found["at"]


def test_a_page_says_that_a_task_is_held_or_was_released(
    session: Session, archive: AnArchive, anybody: httpx.Client
) -> None:
    holds.hold(session, archive.task("index@2"), PERSON, why("hold"))
    text = said(anybody.get("/papers@2/index"))
    assert re.search(r"It is held since 2\S+ \S+ UTC, until a person releases it\.", text)
    holds.release(session, archive.task("index@2"), PERSON, why("release"))
    assert re.search(r"It was released at 2\S+ \S+ UTC\.", said(anybody.get("/papers@2/index")))
    explanation = anybody.get("/papers@2/index?format=json").json()["explanation"]
    assert explanation["commands"] == []
    assert anybody.get("/papers@2/index?format=json").json()["task"]["deeds"] == []
    assert anybody.get("/papers@2?format=json").json()["run"]["deeds"] == []


def test_a_page_says_that_a_failure_is_noted(session: Session, archive: AnArchive, anybody: httpx.Client) -> None:
    archive.fail("pdf@2")
    control.note(session, why("note"), PERSON, run=RunId(archive.run_id(2)), task=archive.task("pdf@2"))
    assert "papers@2/pdf failed: exit code 1. Noted just now." in anybody.get("/papers").text
    assert 'title="failed: exit code 1 · noted"' in anybody.get("/papers@2").text
    assert_silent(anybody, "/papers@2")


def test_a_message_that_names_a_person_is_shortened(archive: AnArchive, anybody: httpx.Client) -> None:
    archive.end("pdf@2", None, End.LOST, message=f"assumed to be gone by {PERSON}")
    assert "assumed to be gone" in anybody.get("/papers@2/pdf?format=json").text
    assert_silent(anybody)


def test_a_removed_log_names_neither_the_person_nor_the_reason(
    session: Session, archive: AnArchive, anybody: httpx.Client, visitor: Visitors
) -> None:
    archive.write("pdf@2", b"a password\n")
    archive.end("pdf@2", 0, outputs={"key": "a password"})
    removal.remove(session, archive.task("pdf@2"), PERSON, why("removal"), log=True, outputs=True)
    assert SECRET in visitor(Scope.READ, "papers").get("/papers@2/pdf").text
    text = said(anybody.get("/papers@2/pdf"))
    assert re.search(r"The log was removed on 2\S+ \S+ UTC(?! by)", text)
    assert re.search(r"The outputs were removed on 2\S+ \S+ UTC(?! by)", text)
    assert_silent(anybody, "/papers@2/pdf")


def test_the_overview_asks_nothing_of_a_visitor_who_has_not_signed_in(
    session: Session, archive: AnArchive, anybody: httpx.Client, visitor: Visitors
) -> None:
    archive.fail("pdf@2")
    pauses.pause(session, ArchiveId(archive.id), why("pause"), PERSON)
    page = anybody.get("/")
    assert "<title>arkqueue</title>" in page.text
    assert "Needs you" not in page.text
    assert "need you" not in anybody.get("/papers").text.replace("needs", "need")
    assert "Failed or withheld" in said(page)
    assert "papers@2/pdf" in said(page)
    needs = anybody.get("/?format=json").json()["needs"]
    assert needs
    assert {(need["verb"], need["command"]) for need in needs} == {("", "")}
    assert "Needs you" in visitor(Scope.READ, "papers").get("/").text


def test_a_paused_lock_that_only_other_archives_use_is_not_named(
    session: Session, archive: AnArchive, anybody: httpx.Client
) -> None:
    an_archive(session, "vault").commit({"copy": "lock: [global/printer, global/merger]"})
    archive.commit({"pdf": "lock: global/printer"})
    for name in ("global/printer", "global/merger"):
        locks.pause(session, INSTALLATION, name, why("pause"), PERSON)
    text = "".join(assert_silent(anybody).values())
    assert "global/printer" in text
    assert "merger" not in text
    assert "The lock global/printer is paused since" in said(anybody.get("/papers"))
    assert re.search(r"global/printer 0 of 1 paused just now", said(anybody.get("/-/locks")))
