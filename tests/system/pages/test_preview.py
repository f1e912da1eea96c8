"""The preview of an action: the consequences of actions that destroy something or affect many
tasks, and the run that a trigger would make.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from arkqueue.db.session import Session
from arkqueue.queue import claim
from arkqueue.queue.done import Done
from arkqueue.queue.tokens import Scope
from arkqueue.web.pages import acting
from tests.builders import HOST, PROCESS, AnArchive, an_archive, faulty
from tests.db.test_races import Connect, InThread, wait_until_blocked
from tests.system.pages.conftest import HOSTILE, Visitors, confirm, first, form_of, press, said
from tests.system.pages.test_verbs import verbs

TASKS = {"index": "", "pdf": "depends: [index]", "check": "depends: [{task: index, when: settled}]"}


@pytest.fixture
def archive(session: Session) -> AnArchive:
    archive = an_archive(session)
    archive.commit(TASKS)
    return archive


def test_a_cancel_shows_what_would_become_of_which_tasks(operator: httpx.Client, archive: AnArchive) -> None:
    archive.claim("index@2")
    page = first(operator, "papers@2/index", "cancel")
    assert "1 task would be stopped papers@2/index" in said(page)
    assert archive.state("index@2") == "running"
    page = first(operator, "papers@2", "cancel")
    assert "Cancel papers@2?" in said(page)
    assert "1 task would be stopped papers@2/index" in said(page)
    assert "2 tasks would be canceled papers@2/pdf, papers@2/check" in said(page)
    assert archive.states()["pdf@2"] == "waiting"
    assert confirm(operator, page).headers["location"] == "/papers@2"
    assert archive.states()["pdf@2"] == "canceled"


def test_a_preview_shows_what_the_action_changes_and_nothing_that_others_change_meanwhile(
    operator: httpx.Client, archive: AnArchive, second_connection: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.commit({"a": "", "b": "depends: [a]"})
    watcher, canceled = second_connection(), list[InThread]()

    def after_others(act: Callable[..., Done]) -> Callable[..., Done]:
        def meanwhile(*words: Any) -> Done:
            archive.claim_some(1)
            if not canceled:
                canceled.append(InThread(lambda: archive.cancel("pdf@2")))
                wait_until_blocked(watcher)
            return act(*words)

        return meanwhile

    for name in ("do_to_run", "do_to_task"):
        monkeypatch.setattr(acting, name, after_others(getattr(acting, name)))
    page = said(first(operator, "papers@3", "cancel"))
    canceled[0].result()
    assert (archive.state("index@2"), archive.state("pdf@2")) == ("running", "canceled")
    change = "What would change 2 tasks would be canceled papers@3/a, papers@3/b 1 task would be passed papers@3/REPORT The run is pending now, and would be canceled ."
    assert change in page
    page = said(first(operator, "papers@3/b", "cancel"))
    assert archive.state("a@3") == "running"
    assert "What would change 1 task would be canceled papers@3/b Yes, cancel it" in page
    archive.commit({"c": ""})
    page = said(first(operator, "papers@4/c", "cancel"))
    assert archive.state("c@4") == "running"
    assert "What would change 1 task would be stopped papers@4/c" in page, "it was ready before"


def test_a_waiver_shows_what_may_go_on_in_later_revisions(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"index": "depends: [PREV]"})
    archive.fail("index@2")
    page = first(operator, "papers@2/index", "skip")
    assert "1 task would be free to start papers@3/index" in said(page)
    assert "papers@2/pdf" not in said(page), "it stays skipped"
    page = first(operator, "papers@2/index", "skip-as-completed")
    forced = {"name": "papers@2/index", "verb": "skip-as-completed", "force": "yes", "form": form_of(page), "back": "/"}
    assert said(operator.post("/-/act", data=forced)) == said(page), "nothing is overruled"
    assert "2 tasks would be free to start papers@2/pdf, papers@3/index" in said(page)
    confirm(operator, page)
    assert archive.state("pdf@2") == "ready"


@pytest.mark.parametrize("of", ["papers@3", "papers@3/check/*"])
def test_a_waiver_shows_the_failures_and_what_becomes_of_the_run(
    operator: httpx.Client, archive: AnArchive, of: str
) -> None:
    archive.commit({"check": "foreach: [a, b, c]"})
    archive.run("check/a@3")
    archive.fail("check/b@3", "check/c@3")
    page = first(operator, "papers@3", "skip") if of == "papers@3" else _of_list(operator, of, "skip")
    assert "No task would change" not in said(page)
    assert "2 failures would be waived papers@3/check/b, papers@3/check/c" in said(page)
    assert "The run is failed now, and would be completed ." in said(page)
    confirm(operator, page)
    assert archive.sql("select item from task where waived order by item") == [{"item": "b"}, {"item": "c"}]


def _of_list(browser: httpx.Client, name: str, verb: str) -> httpx.Response:
    """The page that a button of a list shows first."""
    page = "/papers@3?list=check"
    return browser.post("/-/act", data={"form": form_of(browser.get(page)), "name": name, "verb": verb, "back": page})


def test_what_is_refused_is_refused_before_anybody_is_asked(operator: httpx.Client, archive: AnArchive) -> None:
    archive.run("index@2")
    assert "papers@2/index" in said(first(operator, "papers@2/index", "cancel"), 409)


def test_a_release_of_many_is_shown_and_that_of_one_is_done(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"a": "hold: true", "b": "hold: true"})
    page = first(operator, "papers", "release")
    assert "2 tasks would be free to start papers@3/a, papers@3/b" in said(page)
    assert 'placeholder="Why?' in page.text
    assert first(operator, "papers@3/a", "release").status_code == 303
    assert archive.states() | {"a@3": "ready", "b@3": "held"} == archive.states()


def test_the_question_about_one_task_is_about_one_task(operator: httpx.Client, archive: AnArchive) -> None:
    assert "It does not start any more; if it runs, it is stopped." in said(first(operator, "papers@2/index", "cancel"))
    assert "Its unsettled tasks are canceled" in said(first(operator, "papers@2", "cancel"))
    assert archive.state("index@2") == "ready"


def test_a_trigger_has_the_tasks_of_its_revision_to_choose_from(operator: httpx.Client, archive: AnArchive) -> None:
    archive.run("index@2")
    archive.commit({"index": "depends: [PREV]", "release": "on: manual\ndepends: [index]", "nightly": "on: commit"})
    form = operator.get(re.findall(r'href="(/-/trigger[^"]+)"', operator.get("/papers").text)[0])
    assert re.findall(r'name="task" value="(\w+)"', form.text) == ["index", "release", "nightly"]
    assert re.search(r'value="nightly"[^>]* disabled', form.text)
    sent = {"form": form_of(form), "name": "papers", "verb": "trigger", "back": "/papers", "task": ["release"]}
    page = operator.post("/-/act", data=sent)
    assert "Run papers@3.2?" in said(page)
    assert "release papers@3/index (ready)" in said(page)
    page = operator.post("/-/act", data=sent | {"without": ["index"]})
    assert "papers@3/index" not in said(page)
    again = operator.get(html.unescape(re.findall(r'href="(/-/trigger[^"]+)">Choose others', page.text)[0]))
    assert re.findall(r'name="(\w+)" value="(\w+)"[^>]* checked', again.text) == [
        ("without", "index"),
        ("task", "release"),
    ]
    assert confirm(operator, page).headers["location"] == "/papers@3.2"
    assert archive.state("release@3.2") == "ready"
    assert "Did you mean index" in said(operator.post("/-/act", data=sent | {"task": ["indx"]}), 422)


def test_the_preview_of_a_trigger_says_what_will_not_start_and_what_is_stopped(
    operator: httpx.Client, archive: AnArchive, session: Session
) -> None:
    claim.register(session, PROCESS, HOST, "machine", 4)
    archive.commit({"index": "", "release": "on: manual\ncancels: [PREV:index]\nruns_on: [gpu]"})
    archive.attempt("index@3")
    form = operator.get("/-/trigger?of=papers")
    sent = {"form": form_of(form), "name": "papers", "verb": "trigger", "back": "/papers", "task": ["release"]}
    page = said(operator.post("/-/act", data=sent))
    assert "release cannot start: no running task manager has the label gpu" in page
    assert "stops papers@3/index (running)" in page


def test_the_form_of_a_trigger_is_for_those_who_may_see_its_archive(
    visitor: Visitors, session: Session, archive: AnArchive
) -> None:
    an_archive(session, "vault")
    browser = visitor(Scope.OPERATE, "vault")
    assert browser.get("/-/trigger?of=papers").status_code == 404
    assert browser.get("/-/trigger?of=papers@2").status_code == 404
    assert browser.get("/-/trigger", params={"of": HOSTILE}).status_code in (404, 422)
    assert press(browser, "/vault", "papers@2", "cancel", sure="").status_code == 404
    reader = visitor(Scope.READ)
    assert "/-/trigger" not in reader.get("/papers@2").text
    form = reader.get("/-/trigger?of=papers")
    assert "takes the scope operate" in form.text
    assert "<button" not in form.text.partition("<main")[2].partition("</main")[0], "no button that is refused"
    assert press(reader, "/papers@2", "papers@2", "cancel", sure="").status_code == 403
    assert archive.state("index@2") == "ready"


def test_a_revision_whose_workflow_files_have_faults_shows_them_in_place_of_tasks(
    operator: httpx.Client, archive: AnArchive
) -> None:
    archive.commit(faulty())
    page = said(operator.get("/-/trigger?of=papers"))
    assert "_workflows/test.yaml:1:1 a fault" in page
    assert "No run is made of workflow files with faults" in page


@pytest.mark.parametrize(("address", "set_to"), [("papers@2/pdf", "20"), ("papers@2", "7")])
def test_what_has_not_started_is_put_first(operator: httpx.Client, archive: AnArchive, address: str, set_to: str) -> None:  # fmt: skip
    assert 'value="prioritize"' in operator.get(f"/{address}").text
    assert press(operator, f"/{address}", address, "prioritize", set_to).status_code == 303
    (row,) = archive.sql("select priority from task where name = 'pdf'")
    assert row == {"priority": int(set_to)}
    for wrong in ("", "first", "1001", "-1", "\u0663"):
        refused = press(operator, f"/{address}", address, "prioritize", wrong)
        assert "is not a number from 0 to 1,000" in said(refused, 422)
    archive.claim("index@2")
    assert 'value="prioritize"' not in operator.get("/papers@2/index").text, "it has begun"


def test_what_has_started_is_neither_put_first_nor_held(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"tile": "foreach: [a]\npoll: {command: 'true'}", "deposit": "poll: {command: 'true'}"})
    pages = "/papers@3", "/papers@3/*/a", "/papers@3/tile/a", "/papers@3/deposit"
    for page in pages:
        assert {"prioritize", "hold"} <= verbs(operator.get(page)), page
    archive.claim()
    archive.end("tile/a@3", 75)
    archive.end("deposit@3", 75)
    for page in pages:
        assert {"prioritize", "hold", "refresh"} & verbs(operator.get(page)) == {"refresh"}, page
    # A deferred task counts as waiting in the numbers of a run, also beside a held one.
    archive.commit({"deposit": "poll: {command: 'true'}", "publish": "hold: true"})
    archive.claim()
    archive.end("deposit@4", 75)
    assert {"prioritize", "hold"} & verbs(operator.get("/papers@4")) == {"prioritize"}


def test_an_item_is_put_first(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"tile": "foreach: [a, b]"})
    assert 'value="prioritize"' in operator.get("/papers@3/*/a").text
    assert press(operator, "/papers@3/*/a", "papers@3/*/a", "prioritize", "7").status_code == 303
    rows = archive.sql("select item, priority from task where name = 'tile' and item <> '' order by item")
    assert rows == [{"item": "a", "priority": 7}, {"item": "b", "priority": 50}]


def test_what_is_polled_is_polled_now(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"deposit": "poll: {command: ask, every: 1h}"})
    archive.end("deposit@3", 75)
    assert "Poll now" in operator.get("/papers@3/deposit").text
    assert press(operator, "/papers@3/deposit", "papers@3/deposit", "refresh").status_code == 303
    assert archive.state("deposit@3") == "ready"
    assert "Poll now" not in operator.get("/papers@3/deposit").text
