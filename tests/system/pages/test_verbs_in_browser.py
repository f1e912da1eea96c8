"""Every verb of a person, in a real browser without JavaScript: the button is found, its menu is
opened, its field is filled, and what it shows first is confirmed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from arkqueue.db.session import Session
from arkqueue.keeping import AGED
from arkqueue.model import End
from arkqueue.queue import claim, notifications, sign_ins
from arkqueue.queue.tokens import Scope
from arkqueue.web import ApiServer
from tests.builders import HOST, PROCESS, AnArchive, an_archive, the_archive
from tests.db.outbox import choose, failed_runs, set_receivers
from tests.db.test_retention import let_age, set_to_keep
from tests.repositories import a_subversion_repository, run
from tests.system.pages.conftest import a_token, stay_alive

pytestmark = pytest.mark.full
TASKS = {"index": "", "pdf": "depends: [index]", "upload": "depends: [pdf]"}
expect.set_options(timeout=120_000)  # milliseconds that only a failing test waits


@pytest.fixture
def archive(session: Session) -> AnArchive:
    claim.register(session, PROCESS, HOST, "node2", 4)
    stay_alive(session)
    archive = an_archive(session)
    archive.commit(TASKS)
    return archive


class Person:
    """Somebody with an administrator's token and a browser without JavaScript."""

    def __init__(self, page: Page, archive: AnArchive) -> None:
        self.page, self.archive = page, archive

    def does(self, verb: str, of: str, page: str = "", **fields: str) -> None:
        """Presses the button of a verb for a thing, on its page or on another one, and confirms what
        it shows first. ``fields``: what is written into the form.
        """
        self.page.goto(page or f"/{of}")
        form = self._form("verb", verb).and_(self._form("name", of)).first
        menus = form.locator("xpath=ancestor::details")
        for number in range(menus.count()):
            if menus.nth(number).get_attribute("open") is None:
                menus.nth(number).locator("> summary").click()
        for field, text in fields.items():
            place = form.locator(f"[name='{field}']:not([type=hidden])")
            if not place.count():  # it is asked together with the consequences
                assert field == "text"
            elif place.evaluate("place => place.matches('select')"):
                place.select_option(text)
            else:
                place.fill(text)
        self.presses(form.get_by_role("button"))
        self.confirms(**fields)

    def presses(self, button: Locator) -> None:
        """Presses a button, and waits for the page to which it leads."""
        with self.page.expect_navigation():
            button.click()

    def confirms(self, **fields: str) -> None:
        """Presses the button below the consequences, if the page shows any."""
        sure = self._form("sure", "yes")
        if sure.count():
            for place in sure.locator("[name=text]:not([type=hidden])").all():
                place.fill(fields.get("text", "so that it is tried"))
            self.presses(sure.locator("button.do"))
        refused = self.page.get_by_role("link", name="Go back", exact=True)
        assert not refused.count(), self.page.locator("main").inner_text()

    def _form(self, field: str, value: str) -> Locator:
        return self.page.locator(f"main form:has([name='{field}'][value='{value}'])")

    def did(self, *verbs: str) -> None:
        """What the audit log has of all that was done, in this order."""
        rows = self.archive.sql("select verb from deed where verb <> 'create token' order by id")
        assert [row["verb"] for row in rows] == list(verbs)


@pytest.fixture
def person(browser: Browser, server: ApiServer, session: Session, archive: AnArchive) -> Iterator[Person]:
    token, _ = a_token(session, Scope.ADMIN)
    context = browser.new_context(base_url=server.url, java_script_enabled=False)
    context.set_default_timeout(120_000)
    page = context.new_page()
    page.goto(f"/-/sign-in?code={sign_ins.code(session, token)}")
    yield Person(page, archive)
    context.close()


def test_every_verb_of_a_task(person: Person, archive: AnArchive) -> None:
    name = "papers@2/index"
    archive.fail("index@2")
    person.does("note", name, text="the disk of node 3")
    person.does("retry", name)
    assert archive.state("index@2") == "ready"
    person.does("prioritize", name, text="7")
    assert archive.sql("select priority from task where id = %s", archive.task("index@2")) == [{"priority": 7}]
    person.does("hold", name, text="an audit")
    assert archive.state("index@2") == "held"
    person.does("release", name, text="it is over")
    assert archive.state("index@2") == "ready"
    archive.claim("index@2")
    person.does("restart", name)
    archive.end("index@2", None, End.STOPPED)
    archive.claim("index@2")
    person.does("cancel", name)
    archive.end("index@2", None, End.STOPPED)
    assert archive.state("index@2") == "canceled"
    archive.commit(TASKS)
    archive.fail("index@3")
    person.does("skip", "papers@3/index")
    expect(person.page.locator("main")).to_contain_text("waived")
    person.does("skip-as-completed", "papers@3/index")
    assert archive.state("pdf@3") == "ready"
    archive.run("pdf@3")
    archive.write("upload@3", b"token=hunter2\n")
    archive.end("upload@3", 1, outputs={"password": "hunter2"})
    person.does("purge-log", "papers@3/upload", text="a password")
    person.does("purge-outputs", "papers@3/upload", text="a password")
    expect(person.page.locator("main")).not_to_contain_text("hunter2")
    archive.commit({"deposit": "poll: {command: ask}"})
    archive.end("deposit@4", 75)
    person.does("refresh", "papers@4/deposit")
    assert archive.state("deposit@4") == "ready"
    archive.claim("deposit@4")
    archive.sql("update task_manager set seen_at = now() - interval '5 minutes'")
    archive.sql("update attempt set lease_until = now() - interval '4 minutes' where ended_at is null")
    person.does("assume-gone", "papers@4/deposit")
    assert archive.state("deposit@4") == "canceled"
    person.did(
        "note", "retry", "prioritize", "hold", "release", "restart", "cancel", "skip", "skip", "purge --log", "purge --outputs", "refresh", "cancel"
    )  # fmt: skip


def test_every_verb_of_a_run(person: Person, archive: AnArchive) -> None:
    run = "papers@2"
    person.does("hold", run, text="an audit")
    assert archive.state("index@2") == "held"
    person.does("release", run)
    person.does("prioritize", run, text="9")
    person.does("note", run, text="a first try")
    archive.claim("index@2")
    person.does("restart", run)
    archive.end("index@2", None, End.STOPPED)
    archive.fail("index@2")
    person.does("retry", run)
    archive.run("index@2", "pdf@2")
    person.does("retry-from", run, task="index")
    assert archive.states() == {"index@2": "ready", "pdf@2": "waiting", "upload@2": "waiting"}
    person.does("report-now", run)
    person.does("cancel", run)
    assert archive.states() == {"index@2": "canceled", "pdf@2": "canceled", "upload@2": "canceled"}
    person.does("report", run)
    person.does("delete", run)
    person.does("undelete", run)
    person.does("purge", run)
    assert not archive.states()
    archive.commit(TASKS)
    archive.fail("index@3")
    person.does("skip", "papers@3")
    archive.commit({"deposit": "poll: {command: ask}", "index": ""})
    archive.end("deposit@4", 75)
    person.does("refresh", "papers@4")
    archive.fail("index@4")
    person.does("skip-as-completed", "papers@4")


def test_every_verb_of_an_item_and_of_a_list(person: Person, archive: AnArchive) -> None:
    lists = ("fetch", "check")
    archive.commit({"fetch": "foreach: [a, b]", "check": "foreach: [a, b]\ndepends: [fetch]"})
    item = "papers@3/*/a"
    person.does("hold", item, text="an audit")
    assert [archive.state(f"{name}/a@3") for name in lists] == ["held", "held"]
    person.does("release", item, text="it is over")
    person.does("prioritize", item, text="9")
    archive.claim("fetch/a@3")
    person.does("restart", item)
    archive.end("fetch/a@3", None, End.STOPPED)
    archive.fail("fetch/a@3")
    person.does("retry", item)
    archive.run("fetch/a@3")
    archive.fail("check/a@3")
    person.does("skip-as-completed", item)
    assert archive.sql("select waived from task where id = %s", archive.task("check/a@3")) == [{"waived": True}]
    person.does("retry-from", item, task="check")
    person.does("cancel", item)
    assert archive.state("check/a@3") == "canceled"
    person.does("delete", item)
    person.does("undelete", item, page="/papers@3")
    of_list, page = "papers@3/fetch/*", "/papers@3?list=fetch"
    archive.fail("fetch/b@3")
    person.does("retry", of_list, page)
    person.does("hold", of_list, page)
    assert archive.state("fetch/b@3") == "held"
    person.does("release", of_list, page)
    person.does("prioritize", of_list, page, text="9")
    person.does("skip", "papers@3/check/*", "/papers@3?list=check")
    assert archive.state("check/b@3") == "skipped"
    person.does("cancel", of_list, page)
    assert archive.state("fetch/b@3") == "canceled"
    person.does("delete", of_list, page)


def test_a_backfill_is_made_and_every_verb_of_it(person: Person, archive: AnArchive) -> None:
    archive.commit({"index": "on: [commit, manual]"})
    person.page.goto("/-/trigger?of=papers")
    person.page.get_by_label("Run index").check()
    person.page.get_by_text("Over old revisions").click()
    person.page.get_by_label("First revision").fill("2")
    person.presses(person.page.get_by_role("button", name="Show what would run"))
    person.confirms()
    expect(person.page.locator("h1")).to_have_text("papers@fill:1")
    fill = "papers@fill:1"
    person.does("hold", fill, text="an audit")
    person.does("release", fill)
    person.does("prioritize", fill, text="9")
    person.does("cancel", fill)
    assert archive.sql("select verb from deed order by id desc limit 1") == [{"verb": "cancel"}]


def test_every_verb_of_an_archive(person: Person, archive: AnArchive) -> None:
    person.does("pause", "papers", text="the disk")
    person.does("resume", "papers")
    person.does("hold", "papers", text="an audit")
    person.does("unhold", "papers")
    assert archive.state("index@2") == "held"
    person.does("release", "papers")
    assert archive.state("index@2") == "ready"
    archive.fail("index@2")
    person.does("retry", "papers")
    person.does("sync", "papers")
    archive.commit({"deposit": "poll: {command: ask}"})
    archive.end("deposit@3", 75)
    person.does("refresh", "papers")
    archive.fail("index@2")
    set_to_keep(archive, dict.fromkeys(AGED, "1d"))
    let_age(archive, 2, 3)
    person.does("purge", "papers")
    assert not [name for name in archive.states() if name.endswith("@2")]
    person.page.goto("/-/trigger?of=papers")
    person.page.get_by_label("Run deposit").check()
    person.presses(person.page.get_by_role("button", name="Show what would run"))
    person.confirms()
    expect(person.page.locator("h1")).to_have_text("papers@3.2")


def test_a_document_is_submitted_after_a_look_at_its_run(person: Person, archive: AnArchive) -> None:
    page = person.page
    archive.sql("update heartbeat set beat_at = '2026-01-01'")  # or a queue manager would have to read the repository
    archive.commit({"ingest": "foreach: submission"})
    page.goto("/-/submit/papers")
    page.get_by_label("or a text").fill("[{id: a")
    person.presses(page.locator("main form.stack button.do"))
    expect(page.get_by_label("or a text")).to_have_value("[{id: a")
    page.get_by_label("or a text").fill("a\nb")
    page.get_by_label("Written in").select_option("lines")
    person.presses(page.get_by_role("button", name="Show what would run"))
    person.presses(page.locator("main form.stack button.do"))
    expect(page.locator("h1")).to_have_text("papers@3.2")
    assert archive.states() == {"index@2": "ready", "pdf@2": "waiting", "upload@2": "waiting", "ingest@3.2": "ready"}


def test_every_form_of_the_installation(person: Person, archive: AnArchive) -> None:
    page = person.page
    archive.commit({"a": "lock: [tex]"})
    person.does("set-lock", "papers/tex", "/-/locks", capacity="3")
    person.does("pause-lock", "papers/tex", "/-/locks", text="<b>the licence</b>")
    expect(page.locator("main")).to_contain_text("<b>the licence</b>")
    person.does("resume-lock", "papers/tex", "/-/locks")
    person.does("drain", "node2", "/-/task-managers", text="the disk")
    person.does("resume-worker", "node2", "/-/task-managers")
    person.does("pause-all", "", "/-/task-managers", text="the disk")
    person.does("resume-all", "", "/-/task-managers")
    person.does("make-token", "", "/-/tokens", name="ann", scope="read")
    expect(page.locator("main")).to_contain_text("ann")
    (token,) = archive.sql("select id from token where name = 'ann'")
    person.does("revoke-token", str(token["id"]), "/-/tokens")
    assert archive.sql("select revoked_at is not null as is_revoked from token where name = 'ann'") == [{"is_revoked": True}]  # fmt: skip
    set_receivers(archive, ci=["failed"])
    failed_runs(archive, archive.commit({"a": ""}))
    (delivery,) = choose(archive)
    notifications.record_failure(archive.session, delivery, "answered 503", is_silent=True)
    person.does("resend", str(delivery.id), "/-/notifications")
    assert [one.id for one in choose(archive)] == [delivery.id]


def test_every_form_of_the_settings(person: Person, archive: AnArchive, session: Session, tmp_path: Path) -> None:
    page, settings = person.page, "/-/settings/papers"
    repository = a_subversion_repository(tmp_path)
    repository.commit({"x": "1"})
    page.goto("/-/add-archive")
    page.get_by_label("Name", exact=True).fill("thesis")
    page.get_by_label("Address of the repository").fill(repository.url)
    person.presses(page.get_by_role("button", name="Add"))
    expect(page.locator("h1")).to_have_text("thesis")
    thesis = the_archive(session, "thesis")
    (tmp_path / "author").write_text("Ben")
    run("svnadmin", "setrevprop", repository.path, "-r", "1", "svn:author", tmp_path / "author")
    person.does("accept", "thesis", "/-/settings/thesis", revision="1")
    assert archive.sql("select author from revision where branch_id in (select id from branch where archive_id = %s)", thesis.id) == [{"author": "Ben"}]  # fmt: skip
    person.does("rewind", "thesis", "/-/settings/thesis", revision="1")
    archive.fail("index@2")
    person.does("waive", "papers", settings, task="index", revision="2")
    assert archive.sql("select waived from task where id = %s", archive.task("index@2")) == [{"waived": True}]
    page.goto(settings)
    page.get_by_label("max-running").fill("3")
    person.presses(page.get_by_role("button", name="Save"))
    expect(page.get_by_label("max-running")).to_have_value("3")
    person.does("remove-archive", "papers", settings, text="papers")
    expect(page.locator("main")).not_to_contain_text("papers")


def test_another_browser_is_signed_out(person: Person, session: Session) -> None:
    token, _ = a_token(session, Scope.READ)
    secret = sign_ins.sign_in(session, token)
    person.page.goto("/-/sessions")
    person.presses(person.page.locator("section", has_text="read test").get_by_role("button").first)
    assert sign_ins.check(session, secret) is None
