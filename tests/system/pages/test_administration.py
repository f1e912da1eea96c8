"""The pages beside the runs: locks, schedules, task managers, tokens, the audit log, settings;
their forms, and what is refused or not shown.
"""

from __future__ import annotations

import json
import re
import subprocess
from html import unescape
from pathlib import Path

import httpx
import pytest

from arkqueue.archives.scan import scan
from arkqueue.db.session import Session
from arkqueue.model import ArchiveId
from arkqueue.queue import claim, notifications, schedules
from arkqueue.queue.locks import pass_on
from arkqueue.queue.tokens import Scope, check
from tests.builders import HOST, PROCESS, AnArchive, an_archive
from tests.db.outbox import CHAT, CI, choose, failed_runs, judge, set_receivers
from tests.db.test_schedules import NIGHTLY, make_due, runs
from tests.repositories import a_subversion_repository
from tests.system.pages.conftest import Visitors, confirm, form_of, said

PLACES = (
    "/-/locks",
    "/-/schedules",
    "/-/task-managers",
    "/-/tokens",
    "/-/audit-log",
    "/-/notifications",
    "/-/settings/papers",
    "/-/add-archive",
)


def send(browser: httpx.Client, act: str, *, page: str = "/", **fields: str) -> httpx.Response:
    """Send a form; ``page``: where it stands, and where it leads back to."""
    return browser.post(f"/-/act/{act}", data={"form": form_of(browser.get(page)), "back": page, **fields})


def shown(browser: httpx.Client, page: str, **asked: str) -> dict[str, object]:
    answer = browser.get(page, params=asked | {"format": "json"})
    assert answer.status_code == 200, answer.text
    found: dict[str, object] = answer.json()
    return found


# Locks


def test_a_lock_shows_who_has_it_and_who_is_next(admin: httpx.Client, archive: AnArchive) -> None:
    archive.commit(dict.fromkeys("abcd", "lock: [tex]"))
    archive.claim("a@2")
    words = said(admin.get("/-/locks"))
    assert "papers/tex 1 of 1" in words
    assert "papers@2/a 1. papers@2/b 2. papers@2/c" in words
    send(admin, "set-lock", page="/-/locks", name="papers/tex", capacity="2")
    assert archive.state("b@2") == "ready"
    send(admin, "pause-lock", page="/-/locks", name="papers/tex", text="the licence")
    paused = said(admin.get("/-/locks"))
    assert "paused just now by admin test: the licence" in paused
    assert "papers@2/c , papers@2/d (not in line: the lock is paused)" in paused
    send(admin, "resume-lock", page="/-/locks", name="papers/tex")
    send(admin, "set-lock", page="/-/locks", name="papers/tex", capacity="")
    assert archive.state("c@2") == "ready"
    refused = send(admin, "set-lock", page="/-/locks", name="papers/tex", capacity="many")
    assert "the number of tasks at once is not a number" in said(refused, 422).replace("&#39;", "'")
    refused = send(admin, "set-lock", name="papers/tex", capacity="0")
    assert "the number of tasks at once is not a number from 1 to 1,000,000" in said(refused, 422)
    assert "is not paused" in said(send(admin, "resume-lock", page="/-/locks", name="papers/tex"), 409)


def test_a_lock_is_set_before_a_task_asks_for_it(admin: httpx.Client, archive: AnArchive) -> None:  # noqa: ARG001
    assert "No lock is set" in said(admin.get("/-/locks"))
    refused = send(admin, "set-lock", page="/-/locks", verb="set-lock", lock="tex", capacity="2")
    assert "is not the name of a lock" in said(refused, 422)
    assert re.search(r'name="lock"[^>]* value="tex"', refused.text)
    assert send(admin, "set-lock", page="/-/locks", lock="papers/tex", capacity="2").status_code == 303
    assert "papers/tex 0 of 2 nobody has it nobody waits" in said(admin.get("/-/locks"))


def test_locks_of_the_installation_say_nothing_of_other_archives(
    visitor: Visitors, session: Session, archive: AnArchive
) -> None:
    other = an_archive(session, "vault")
    other.commit({"buried": "lock: [global/tape]"})
    while pass_on(session):
        pass
    archive.commit({"mine": "lock: [global/tape]"})
    other.claim("buried@2")
    browser = visitor(Scope.OPERATE, "papers")
    page = browser.get("/-/locks")
    assert "1 of other archives" in said(page)
    assert "vault" not in page.text
    assert "buried" not in page.text
    assert 'name="name" value="global/tape"' not in page.text
    refused = send(browser, "pause-lock", page="/papers", name="global/tape")
    assert "concerns every one" in said(refused, 403)


# Schedules and task managers


def test_schedules_say_when_they_are_next_and_run_now(admin: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"nightly": 'schedule: "0 3 * * *"\ntimezone: Europe/Berlin'})
    page = admin.get("/-/schedules")
    assert re.search(r"papers nightly 0 3 \* \* \* Europe/Berlin in \d+ (h|min), \d\d:00 UTC never yet", said(page))
    fields = dict(re.findall(r'name="(name|verb|text)" value="([^"]*)"', page.text))
    fields |= {"form": form_of(page), "back": "/-/schedules"}
    assert "Run papers@2.2?" in said(admin.post("/-/act", data=fields))
    answer = admin.post("/-/act", data=fields | {"sure": "yes"})
    assert answer.headers["location"] == "/papers@2.2"
    assert archive.state("nightly@2.2") == "ready"


def test_task_managers_show_their_load_and_are_drained(
    admin: httpx.Client, session: Session, archive: AnArchive
) -> None:
    claim.register(session, PROCESS, HOST, "node2", 4)
    archive.commit({"a": ""})
    archive.claim("a@2")
    words = said(admin.get("/-/task-managers"))
    assert "1 of 4 slots are busy." in words
    assert "node2 1 of 4 papers@2/a" in words
    archive.sql("update task_manager set slots = 0")
    assert "0 of 0 slots are busy." in said(admin.get("/-/task-managers"))
    send(admin, "drain", page="/-/task-managers", name="node2", text="new disk")
    assert "drained just now by admin test: new disk" in said(admin.get("/-/task-managers"))
    assert send(admin, "resume-worker", page="/-/task-managers", name="node2").status_code == 303
    assert "is not drained" in said(send(admin, "resume-worker", page="/-/task-managers", name="node2"), 409)
    entries = shown(admin, "/-/audit-log")["entries"]
    drained = [(entry["verb"], entry["note"]) for entry in entries if "token" not in entry["verb"]]  # type: ignore[attr-defined]
    assert drained == [("resume", f"node2 ({HOST[:8]})"), ("drain", f"node2 ({HOST[:8]}): new disk")]
    archive.sql("update task_manager set seen_at = seen_at - interval '1 h'")
    page = admin.get("/-/task-managers")
    assert "No task manager is running: no task starts. Start one with arkqueue worker" in said(page)
    assert "silent papers@2/a" in said(page)
    assert re.search(r'silent</span>\s+<a href="/papers@2/a">', page.text)
    send(admin, "pause-all", page="/-/task-managers", text="Friday")
    assert "The whole installation is paused" in said(admin.get("/-/task-managers"))
    send(admin, "resume-all", page="/-/task-managers")
    assert "paused" not in said(admin.get("/-/task-managers"))


# Tokens


def test_a_token_is_shown_once_and_revoked(admin: httpx.Client, session: Session, archive: AnArchive) -> None:  # noqa: ARG001
    made = send(
        admin, "make-token", page="/-/tokens", name="<b>night</b>", scope="operate", archives="papers", authors=""
    )
    assert made.status_code == 200, made.text
    (secret,) = re.findall(r"ark_[\w-]+", made.text)
    token = check(session, secret)
    assert token is not None
    assert (token.scope, token.archives) == (Scope.OPERATE, ["papers"])
    page = admin.get("/-/tokens")
    assert secret not in page.text
    assert "<b>night" not in page.text
    assert said(admin.get("/-/tokens")).count("are signed out: you, too.") == 1, "only the visitor's own token"
    assert send(admin, "revoke-token", page="/-/tokens", name=str(token.id)).status_code == 303
    assert check(session, secret) is None
    assert "is revoked already" in said(send(admin, "revoke-token", page="/-/tokens", name=str(token.id)), 409)
    assert "scope" in said(send(admin, "make-token", page="/-/tokens", name="x", scope="everything"), 422)
    assert "is not a valid name" in said(send(admin, "make-token", page="/-/tokens", name="", scope="read"), 422)


def test_an_administrator_of_some_archives_sees_and_makes_tokens_for_these_alone(
    visitor: Visitors,
    session: Session,
    archive: AnArchive,  # noqa: ARG001
) -> None:
    an_archive(session, "vault")
    visitor(Scope.READ, "vault")
    browser = visitor(Scope.ADMIN, "papers")
    assert "vault" not in browser.get("/-/tokens").text.partition("<main")[2]
    refused = send(browser, "make-token", page="/-/tokens", name="x", scope="read", archives="vault")
    assert "is for papers only" in said(refused, 403)


# The audit log


def test_the_audit_log_says_who_did_what_to_what(admin: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"a": ""})
    archive.fail("a@2")
    archive.retry("a@2")
    send(admin, "pause-all", text="<i>Friday</i>")
    page = admin.get("/-/audit-log")
    assert "ann retry papers@2/a" in said(page)
    assert "<i>Friday" not in page.text
    entries = shown(admin, "/-/audit-log", by="ANN", verb="retry")["entries"]
    assert [(entry["by"], entry["verb"], entry["name"]) for entry in entries] == [("ann", "retry", "papers@2/a")]  # type: ignore[attr-defined]
    assert shown(admin, "/-/audit-log", archive="papers", verb="pause")["entries"] == []


def test_every_verb_of_a_person_is_in_the_audit_log(admin: httpx.Client, archive: AnArchive, tmp_path: Path) -> None:
    archive.commit({"a": "on: [commit, manual]\ndepends: [b]", "b": "on: [commit, manual, submission]"})
    by_hand = {"name": "papers@2", "verb": "trigger", "sure": "yes", "revision": str(archive.revisions["", 2])}
    made = admin.post("/-/act", data={"form": form_of(admin.get("/")), "task": "a", "without": "b", **by_hand})
    assert made.headers["location"] == "/papers@2.2", made.text
    archive.submit()
    assert admin.post("/-/act", data={"form": form_of(admin.get("/")), "name": "papers", "verb": "sync"}).is_redirect
    repository = a_subversion_repository(tmp_path)
    repository.commit({"x": "1"})
    send(admin, "add-archive", name="thesis", url=repository.url)
    send(admin, "rewind", name="thesis", revision="1", sure="yes")
    send(admin, "remove-archive", name="thesis", text="thesis", sure="yes")
    entries = shown(admin, "/-/audit-log")["entries"]
    told = [(entry["verb"], entry["name"], entry["note"]) for entry in entries if entry["by"] == "admin test"]  # type: ignore[attr-defined]
    assert told == [
        ("remove", "thesis", ""),
        ("rewind", "thesis", "1"),
        ("add", "thesis", f"subversion {repository.url}"),
        ("sync", "papers", ""),
        ("trigger", "papers@2.2", "--without b a"),
    ]
    assert [(entry["verb"], entry["name"]) for entry in entries if entry["by"] == "ann"] == [("submit", "papers@2.3")]  # type: ignore[attr-defined]


@pytest.mark.usefixtures("no_queue_manager")
def test_what_no_person_asked_for_is_not_in_the_audit_log(archive: AnArchive) -> None:
    archive.commit(NIGHTLY)
    make_due(archive)
    schedules.fire(archive.session)
    assert runs(archive) == [(2, 2)]
    scan(archive.session, ArchiveId(archive.id))  # what a trigger does first is no verb of its own
    assert archive.sql("select verb from deed") == []


def test_the_audit_log_has_pages(admin: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"a": ""})
    for _ in range(60):
        archive.sql("insert into deed (by, verb, archive_id) values ('eve', 'sync', %s)", archive.id)
    first = shown(admin, "/-/audit-log", by="eve")
    second = shown(admin, "/-/audit-log", by="eve", before=str(first["next"]))
    assert [len(first["entries"]), len(second["entries"]), second["next"]] == [50, 10, None]  # type: ignore[arg-type]


def test_the_audit_log_shows_of_other_archives_tokens_and_deleted_runs_nothing(
    visitor: Visitors, session: Session, archive: AnArchive
) -> None:
    other = an_archive(session, "vault")
    other.commit({"buried": ""})
    other.cancel("buried@2")
    archive.commit({"mine": ""})
    archive.cancel("mine@2")
    archive.sql("update run set deleted_at = now(), deleted_by = 'ann' where id = %s", archive.run_id(2))
    visitor(Scope.READ)  # a token was made
    for browser in (visitor(Scope.OPERATE, "papers"), visitor(Scope.OPERATE, "vault")):
        verbs = [entry["verb"] for entry in shown(browser, "/-/audit-log")["entries"]]  # type: ignore[attr-defined]
        assert "create token" not in verbs
        assert "mine" not in said(browser.get("/-/audit-log"))
    assert "buried" not in visitor(Scope.OPERATE, "papers").get("/-/audit-log").text
    assert visitor(Scope.OPERATE, "papers").get("/-/audit-log?archive=vault").status_code == 404
    assert "papers@2/mine" in said(visitor(Scope.ADMIN).get("/-/audit-log"))


# Settings


def settings_form(browser: httpx.Client) -> dict[str, str]:
    """The fields of the form as the page has them."""
    page = browser.get("/-/settings/papers").text
    (was,) = re.findall(r'name="was" value="([^"]*)"', page)
    return {"was": unescape(was), "name": "papers"} | json.loads(unescape(was))


def test_notifications_are_chosen_by_several_states(admin: httpx.Client, archive: AnArchive) -> None:
    set_receivers(archive, ci=["failed"])
    failed_runs(archive, 2)
    (delivery,) = choose(archive)
    for states, found in ((["waiting"], 1), (["failed"], 0), (["failed", "waiting"], 1), ([], 1), (["sent"], 0)):
        page = admin.get("/-/notifications", params={"state": states, "format": "json"}).json()
        assert [one["id"] for one in page["deliveries"]] == [delivery.id] * found, states
    page = admin.get("/-/notifications", params={"state": ["failed", "waiting"]})
    assert re.findall(r'name="state" value="(\w+)" checked', page.text) == ["waiting", "failed"]
    assert admin.get("/-/notifications", params={"state": "<b>"}).status_code == 422


def test_notifications_say_what_was_wrong_and_are_sent_again(
    admin: httpx.Client, visitor: Visitors, archive: AnArchive
) -> None:
    set_receivers(archive, ci=["failed"])
    failed_runs(archive, 2)
    (delivery,) = choose(archive)
    notifications.record_failure(archive.session, delivery, "answered 503: <b>busy</b>", is_silent=True)
    page = admin.get("/-/notifications", params={"archive": "papers", "state": "waiting"})
    assert "answered 503: &lt;b&gt;busy&lt;/b&gt;" in page.text
    archive.sql("update delivery set due_at = clock_timestamp() + interval '15 minutes 30 seconds'")
    # What became of it stands before its receiver, so that a phone shows it.
    assert "papers@2 failed waiting 1 try, next in 15 min" in said(admin.get("/-/notifications"))
    assert choose(archive) == []
    failed_runs(archive, 3)
    behind = said(admin.get("/-/notifications"))
    assert f"papers@3 failed waiting for {delivery.id}, which its receiver has not answered https://hooks" in behind
    archive.sql("delete from delivery where id <> %s", delivery.id)
    send(admin, "resend", page="/-/notifications", name=str(delivery.id))
    assert [one.id for one in choose(archive)] == [delivery.id]
    set_receivers(archive, author=["failed"])
    archive.commit({"a": ""}, author="Ben <ben@example.org>")
    archive.fail("a@4")
    judge(archive.session)
    assert "papers@4 failed waiting author ben@example.org" in said(admin.get("/-/notifications"))
    assert shown(admin, "/-/notifications", state="sent")["deliveries"] == []
    assert admin.get("/-/notifications", params={"state": "lost"}).status_code == 422
    an_archive(archive.session, "letters")
    assert shown(visitor(Scope.READ, "letters"), "/-/notifications")["deliveries"] == []
    assert "/-/act/resend" not in visitor(Scope.READ).get("/-/notifications").text


def test_all_notifications_of_an_archive_that_failed_are_sent_again(
    admin: httpx.Client, visitor: Visitors, archive: AnArchive
) -> None:
    set_receivers(archive, ci=["failed"])
    failed_runs(archive, 2, 3)
    assert "resend-failed" not in admin.get("/-/notifications?archive=papers").text
    archive.sql("update delivery set state = 'failed', ended_at = clock_timestamp()")
    assert "resend-failed" not in admin.get("/-/notifications").text
    assert 'href="/-/notifications?state=waiting&amp;state=failed"' in admin.get("/").text
    page = "/-/notifications?archive=papers&state=failed"
    assert "Resend all that failed" in said(admin.get(page))
    assert "resend-failed" not in visitor(Scope.READ).get(page).text
    sent = send(admin, "resend-failed", page=page, name="papers")
    assert (sent.status_code, sent.headers["location"]) == (303, page)
    assert [row["state"] for row in archive.sql("select state from delivery")] == ["waiting"] * 2
    assert "has no notification that failed" in said(send(admin, "resend-failed", page=page, name="papers"), 409)


def test_receivers_are_set_in_a_form_a_line_for_each(admin: httpx.Client, archive: AnArchive) -> None:
    set_receivers(archive, ci=["failed"], chat=["held"])
    settings = {field["name"]: field["value"] for field in shown(admin, "/-/settings/papers")["fields"]}  # type: ignore[attr-defined]
    assert settings["notify"].split("\n") == [f"{CI} failed", f"{CHAT} held"] or settings["notify"].split("\n") == [
        f"{CHAT} held",
        f"{CI} failed",
    ]


def test_the_settings_say_that_an_archive_is_not_read(admin: httpx.Client, archive: AnArchive) -> None:
    page = said(admin.get("/-/settings/papers"))
    assert "not read yet." in page
    for column in ("trouble", "stopped"):
        archive.sql(f"update archive set {column} = 'there is no such folder'")
        assert "there is no such folder" in said(admin.get("/-/settings/papers"))
        archive.sql(f"update archive set {column} = null")


def test_settings_are_changed_one_by_one(admin: httpx.Client, session: Session, archive: AnArchive) -> None:  # noqa: ARG001
    form = settings_form(admin)
    changed = form | {"max_running": "3", "require_approval": "deposit*\nupload", "keep": "completed 30d\nfailed 400d"}
    assert send(admin, "change-settings", page="/-/settings/papers", **changed).status_code == 303
    # Another person still has the old page, and changes something else.
    assert send(admin, "change-settings", page="/-/settings/papers", **form | {"tier": "2"}).status_code == 303
    now = settings_form(admin)
    assert [now["max_running"], now["tier"], sorted(now["keep"].splitlines())] == [
        "3",
        "2",
        ["completed 30d", "failed 400d"],
    ]
    assert now["require_approval"] == "deposit*\nupload"
    assert (
        send(admin, "change-settings", page="/-/settings/papers", **now | {"keep": "", "process": ""}).status_code
        == 303
    )
    assert [settings_form(admin)[name] for name in ("keep", "process", "max_running")] == ["", "", "3"]
    refused = send(admin, "change-settings", page="/-/settings/papers", **form | {"max_running": "0"})
    assert "max-running" in said(refused, 422)
    assert "set" in said(admin.get("/-/audit-log?archive=papers"))


def test_rules_for_keeping_are_tried_first(admin: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"a": ""})
    archive.run("a@2")
    archive.sql(
        "update task set settled_at = settled_at - interval '40 days' where run_id = %s and settled_at is not null",
        archive.run_id(2),
    )
    archive.sql("update run set created_at = created_at - interval '40 days' where id = %s", archive.run_id(2))
    tried = send(
        admin,
        "change-settings",
        page="/-/settings/papers",
        **settings_form(admin) | {"keep": "completed 30d", "try": "yes"},
    )
    assert "papers@2" in said(tried)
    assert "Nothing was changed." in said(tried)
    assert settings_form(admin)["keep"] == ""
    assert archive.state("a@2") == "completed"


def test_the_removal_of_an_archive_shows_its_effects_first(admin: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"b": "on: [commit, submission]\nschedule: '0 3 * * *'", "c": "", "d": "depends: [c]"})
    archive.write("b@2", b"x" * (3 << 20), tail=1 << 22)
    archive.run("b@2")
    archive.claim("c@2")
    archive.submit()
    page = send(admin, "remove-archive", name="papers", text="papers")
    text = said(page)
    for words in (
        "2 tasks would be canceled, as they have not started", "1 task would be left to run to the end", "1 schedule would be dropped",
        "2 runs would be kept, with logs of 3.0 MiB", "1 submission would be kept",
    ):  # fmt: skip
        assert words in text, words
    assert archive.state("d@2") == "waiting"
    assert confirm(admin, page).headers["location"] == "/"
    assert (archive.state("c@2"), archive.state("d@2")) == ("running", "canceled")


def test_an_archive_is_added_and_removed(admin: httpx.Client, tmp_path: Path) -> None:
    subprocess.run(["svnadmin", "create", str(tmp_path / "repository")], check=True)
    added = send(admin, "add-archive", name="thesis", url=str(tmp_path / "repository"), process="yes")
    assert added.headers["location"] == "/thesis"
    page = admin.get("/thesis").text
    assert "No task runs on commits yet: write a workflow file." in page
    assert "- name: hello\n  command: echo" in page
    assert "may run only in containers" not in page
    send(admin, "add-archive", name="plain", url=str(tmp_path / "repository"))
    page = admin.get("/plain").text
    assert "- name: hello\n  image: debian:stable-slim\n  command: echo" in page
    assert "arkqueue archive set plain --executor process" in page
    again = send(admin, "remove-archive", name="thesis", text="thesi")
    assert "was not confirmed: “thesi” is not the name of this archive. Write thesis" in said(again, 422)
    assert 'action="/-/act/remove-archive"' in again.text
    assert 'name="name" value="thesis"' in again.text
    assert "Remove thesis?" in said(send(admin, "remove-archive", name="thesis", text="thesis"))
    assert send(admin, "remove-archive", name="thesis", text="thesis", sure="yes").headers["location"] == "/"
    assert "thesis" not in said(admin.get("/"))
    refused = send(admin, "add-archive", name="thesis", url=str(tmp_path / "nothing"))
    assert refused.status_code in (409, 422, 502)


def test_failures_of_a_task_are_waived_up_to_a_revision_after_a_page_that_shows_which(
    admin: httpx.Client, archive: AnArchive
) -> None:
    for _ in range(3):
        archive.commit({"a": "", "b": "depends: [PREV:a]"})
    archive.fail("a@2", "a@3")
    page = send(admin, "waive", page="/-/settings/papers", name="papers", task="a", revision="3")
    assert "Waive the failures of papers/a up to revision 3?" in said(page)
    assert "2 failures would be waived papers@2/a, papers@3/a" in said(page)
    assert "2 tasks would be free to start papers@3/b, papers@4/b" in said(page)
    assert "would be failed" not in said(page), "they are already"
    assert shown(admin, "/papers@2/a")["task"]["waived"] is False  # type: ignore[index]
    assert confirm(admin, page).headers["location"] == "/-/settings/papers"
    assert [shown(admin, f"/papers@{n}/a")["task"]["waived"] for n in (2, 3)] == [True, True]  # type: ignore[index]
    assert archive.state("b@4") == "ready"
    nothing = send(admin, "waive", name="papers", task="a", revision="3")
    assert "has no failure up to 3 that nobody waived" in said(nothing, 409)
    assert "never had a task" in said(send(admin, "waive", name="papers", task="x", revision="2"), 404)


def test_a_rewind_is_carried_out_after_a_page_that_shows_what_becomes_of_the_runs(
    admin: httpx.Client, archive: AnArchive, tmp_path: Path
) -> None:
    repository = a_subversion_repository(tmp_path)
    repository.commit({"x": "1"})
    archive.move_to(repository.url)
    archive.commit({"a": "", "b": "depends: [a]"})
    archive.commit({"a": ""})
    archive.claim("a@2", slots=1)
    page = send(admin, "rewind", page="/-/settings/papers", name="papers", revision="1")
    assert "Rewind papers to revision 1?" in said(page)
    words = said(page)
    assert "The ledger so far stays readable as papers:rewound~1." in words
    assert "2 runs would be kept as those of papers:rewound~1" in words
    assert "2 tasks would be canceled, as they have not started" in words
    assert "1 task would be left to run to the end" in words
    assert archive.states() == {"a@2": "running", "b@2": "waiting", "a@3": "ready"}
    assert confirm(admin, page).headers["location"] == "/-/settings/papers"
    assert archive.states() == {"a@2": "running", "b@2": "canceled", "a@3": "canceled"}
    assert "has no revision 9" in said(send(admin, "rewind", name="papers", revision="9"), 404)


# Refused forms


def filled(page: httpx.Response) -> dict[str, str]:
    """The fields that a person sees in the forms of a page, with their values."""
    main = page.text.partition("<main")[2]
    fields = re.findall(r'<input type="text"[^>]*? name="(\w+)" value="([^"]*)"', main)
    fields += re.findall(r'<textarea[^>]*? name="(\w+)"[^>]*>\n?([^<]*)</textarea>', main)
    fields += re.findall(r'<input type="checkbox"[^>]*? name="(\w+)" value="(\w+)" checked', main)
    return {name: unescape(value) for name, value in fields}


def test_refused_settings_are_shown_again_with_what_was_put_in(admin: httpx.Client, archive: AnArchive) -> None:  # noqa: ARG001
    form = settings_form(admin)
    wrong = form | {"tier": "3", "max_running": "0", "keep": "completed 30d\nfailed 400d", "process": ""}
    page = send(admin, "change-settings", page="/-/settings/papers", **wrong)
    assert "Nothing was changed: the form: max-running: must be 1 or more." in said(page, 422)
    assert filled(page) | {name: wrong[name] for name in ("tier", "max_running", "keep")} == filled(page)
    assert "process" not in filled(page)
    twice = form | {"keep": "completed 30d\ncompleted 400d"}
    refused = send(admin, "change-settings", page="/-/settings/papers", **twice)
    assert "Nothing was changed: keep completed: is given twice." in said(refused, 422)
    assert 'name="back" value="/-/settings/papers"' in page.text
    (was,) = re.findall(r'name="was" value="([^"]*)"', page.text)
    # Another person changes something meanwhile; what this person did not touch stays so.
    send(admin, "change-settings", page="/-/settings/papers", **form | {"author": "Eve"})
    right = form | filled(page) | {"process": "", "max_running": "2", "was": unescape(was), "form": form_of(page)}
    assert admin.post("/-/act/change-settings", data=right | {"back": "/-/settings/papers"}).status_code == 303
    now = settings_form(admin)
    assert [now[name] for name in ("tier", "max_running", "author", "process")] == ["3", "2", "Eve", ""]


def test_rules_that_were_tried_are_saved_from_the_page_that_shows_their_effect(
    admin: httpx.Client, archive: AnArchive
) -> None:
    form = settings_form(admin) | {"keep": "completed 30d", "try": "yes"}
    page = send(admin, "change-settings", page="/-/settings/papers", **form)
    (was,) = re.findall(r'name="was" value="([^"]*)"', page.text)
    saved = form | filled(page) | {"was": unescape(was), "form": form_of(page), "try": "", "back": "/"}
    assert admin.post("/-/act/change-settings", data=saved).status_code == 303
    assert settings_form(admin)["keep"] == "completed 30d"
    assert archive.sql("select by from deed where verb = 'set'") == [{"by": "admin test"}]


def test_an_archive_that_cannot_be_added_is_shown_again_with_what_was_put_in(admin: httpx.Client) -> None:
    sent = {"name": "thesis", "url": '/srv/"none"', "kind": "git", "start": "4", "image": "tex", "process": "yes"}
    page = send(admin, "add-archive", page="/-/add-archive", **sent)
    assert page.status_code in (409, 422, 502)
    assert "Nothing was changed: " in said(page, page.status_code)
    assert filled(page) == {name: value for name, value in sent.items() if name != "kind"}
    assert "<option selected>git" in page.text


def test_a_token_that_cannot_be_made_is_shown_again_with_what_was_put_in(admin: httpx.Client) -> None:
    sent = {"name": "", "scope": "hook", "archives": "papers", "authors": "ann"}
    page = send(admin, "make-token", page="/-/tokens", **sent)
    assert "Nothing was changed: archive papers: does not exist." in said(page, 404)
    assert filled(page) | {"archives": "papers", "authors": "ann"} == filled(page)
    assert "<option selected>hook" in page.text
    before, _, form = page.text.partition('<details class="ask" open>')
    assert form
    assert "Nothing was changed" in before, "the open form hides what stands behind it in a narrow window"


@pytest.mark.parametrize(
    ("act", "fields", "fault"),
    [
        ("set-lock", {"name": "papers/tex", "capacity": "many <b>"}, "the number of tasks at once is not a number"),
        ("pause-lock", {"name": "papers/tex", "text": "w" * 1500}, "reason: has more than 1000 characters"),
        ("waive", {"name": "papers", "task": "a", "revision": "two", "branch": ""}, "the revision is not a number"),
        ("rewind", {"name": "papers", "revision": " ", "branch": "topic"}, "is empty"),
        ("note", {"name": "papers@2/a", "text": "x" * 10_001}, "has 10,001 characters"),
        ("note", {"name": "papers@2/a", "text": ""}, "the note is empty"),
        ("prioritize", {"name": "papers@2/a", "text": "first"}, "is not a number from 0 to 1,000"),
        ("hold", {"name": "papers@9/a", "text": "because\nof it"}, "is not in the ledger"),
    ],
)
def test_a_small_form_that_is_refused_is_shown_again_with_what_was_put_in(
    admin: httpx.Client, archive: AnArchive, act: str, fields: dict[str, str], fault: str
) -> None:
    archive.commit({"a": ""})
    address = "/-/act" if act in ("note", "prioritize", "hold") else f"/-/act/{act}"
    sent = {"form": form_of(admin.get("/papers")), "back": "/papers", "verb": act, "sure": "yes", **fields}
    page = admin.post(address, data=sent)
    assert fault in unescape(said(page, page.status_code))
    assert page.status_code in (404, 409, 422)
    assert filled(page) == {name: value.strip() for name, value in fields.items() if name != "name"}
    (form,) = re.findall(rf'<form method="post" action="{address}".*?</form>', page.text, re.DOTALL)
    hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form))
    assert hidden | {"name": fields["name"], "verb": act, "back": "/papers"} == hidden
    assert "sure" not in hidden, "what destroys is shown before"


def test_a_form_of_another_site_is_not_shown_again(admin: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"a": ""})
    fields = {"form": "0" * 64, "name": "papers@2/a", "verb": "note", "text": "pwned", "back": "/papers"}
    page = admin.post("/-/act", data=fields)
    assert page.status_code == 403
    assert "pwned" not in page.text


# Who may


def test_who_may_only_look_sends_no_form(visitor: Visitors, archive: AnArchive) -> None:  # noqa: ARG001
    reader = visitor(Scope.READ)
    usual = {"name": "papers", "text": "papers", "scope": "read", "url": "/x", "revision": "1", "task": "a"}
    lock, was = {"name": "papers/tex", "capacity": "1"}, dict.fromkeys(shown_names(), "")
    acts: dict[str, dict[str, str]] = {
        "set-lock": lock,
        "pause-lock": lock,
        "resume-lock": lock,
        "drain": {},
        "resume-worker": {},
        "pause-all": {},
        "resume-all": {},
        "make-token": {},
        "revoke-token": {"name": "1"},
        "change-settings": was | {"was": json.dumps(was), "tier": "3"},
        "add-archive": {},
        "remove-archive": {},
        "rewind": {},
        "accept": {},
        "waive": {},
    }
    for act, own in acts.items():
        fields = usual | own
        refused = send(reader, act, **fields)
        assert "has the scope read" in said(refused, 403), act
        assert reader.post(f"/-/act/{act}", data=fields).status_code == 403, "without what the pages' forms carry"


def shown_names() -> list[str]:
    from arkqueue.web.api.archives import Settings

    return list(Settings.model_fields)


def test_who_may_only_look_sees_no_form(visitor: Visitors, archive: AnArchive) -> None:  # noqa: ARG001
    reader, stranger = visitor(Scope.READ), visitor()
    for place in PLACES:
        answer = reader.get(place)
        assert 'method="post" action="/-/act' not in answer.text or answer.status_code == 403, place
        assert answer.status_code == (403 if place in ("/-/tokens", "/-/add-archive") else 200), place
        assert stranger.get(place).status_code == 303, place
    assert visitor(Scope.READ, "papers").get("/-/settings/vault").status_code == 404
