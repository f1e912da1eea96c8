"""The verbs that are seldom wanted, with plain HTTP as a browser without JavaScript sends it: each
with its preview, its refusal, and the button that a refusal offers.
"""

from __future__ import annotations

import html
import json
import re

import httpx
import pytest

from arkqueue.db.session import Session
from arkqueue.errors import Conflict
from arkqueue.keeping import AGED
from arkqueue.logs import Logs
from arkqueue.model import End, RunId, Stream
from arkqueue.names import EVERY_TASK, task_in_run
from arkqueue.queue import claim, holds
from arkqueue.queue.tokens import Scope
from arkqueue.web.pages.answer import as_sentence
from arkqueue.web.pages.refusals import offers
from tests.builders import HOST, PROCESS, AnArchive, a_gateway, a_list, an_archive
from tests.db.test_retention import let_age, set_to_keep
from tests.system.pages.conftest import HOSTILE_ITEM, Visitors, confirm, first, form_of, press, pressed, said

TASKS = {"index": "", "pdf": "depends: [index]", "upload": "depends: [pdf]"}


@pytest.fixture
def archive(session: Session) -> AnArchive:
    archive = an_archive(session)
    archive.commit(TASKS)
    return archive


def offered(browser: httpx.Client, refused: httpx.Response, option: str = "force") -> httpx.Response:
    """Press the button of a refusal that sends an option."""
    assert refused.status_code in (200, 409), refused.text
    (form,) = [
        form for form in re.findall(r"<form.*?</form>", refused.text, re.S) if f'name="{option}" value="yes"' in form
    ]
    assert 'name="sure"' not in form
    return browser.post("/-/act", data=dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form)))


def verbs(page: httpx.Response) -> set[str]:
    """The verbs of the buttons of a page."""
    return set(re.findall(r'name="verb" value="([\w-]+)"', page.text))


# Other archives


def test_no_form_tells_of_an_archive_that_is_not_the_persons(
    visitor: Visitors,
    session: Session,
    archive: AnArchive,  # noqa: ARG001
) -> None:
    """A verb on a thing of such an archive is answered like one on a thing that does not exist."""
    vault = an_archive(session, "vault")
    vault.commit({"index": "", "pdf": "foreach: [a]"})
    vault.fail("index@2")
    browser = visitor(Scope.ADMIN, "papers")
    form = {"form": form_of(browser.get("/papers")), "back": "/papers", "text": "1", "task": "index"}
    verbs = ["trigger", "retry", "retry-from", "release", "delete", "undelete", "note", "purge", "purge-log", "purge-outputs"]  # fmt: skip
    for verb in verbs:
        for thing in ("", "@2", "@9", "@2/index", "@2/none", "@2/pdf/*", "@2/*/a", "@fill:1", ":side@2"):
            there, nowhere = (browser.post("/-/act", data={**form, "verb": verb, "name": f"{of}{thing}"}) for of in ("vault", "nowhe"))  # fmt: skip
            assert there.status_code in (403, 404, 422), (verb, thing, there.text)
            told = said(nowhere, there.status_code)
            assert said(there, there.status_code).replace("vault", "nowhe") == told, (verb, thing)
            assert "vault" not in told


# Deleting and purging


def test_a_run_is_deleted_after_its_consequences_were_shown_and_undeleted(
    operator: httpx.Client, archive: AnArchive
) -> None:
    archive.commit({"index": "depends: [PREV]"})
    archive.fail("index@2")
    page = first(operator, "papers@2", "delete")
    assert "1 task would be free to start papers@3/index" in said(page)
    assert archive.state("index@3") == "waiting"
    assert confirm(operator, page).headers["location"] == "/papers"
    assert archive.state("index@3") == "ready"
    assert "papers@2" not in [row["run"]["full_name"] for row in operator.get("/papers?format=json").json()["rows"]]
    deleted = "/-/audit-log?archive=papers&amp;verb=delete"
    assert f'href="{deleted}"' in operator.get("/papers").text
    assert 'href="/papers@2"' in operator.get(html.unescape(deleted)).text
    gone = operator.get("/papers@2")
    assert "This run was deleted" in said(gone)
    assert verbs(gone) == {"undelete"}
    assert confirm(operator, first(operator, "papers@2", "undelete")).headers["location"] == "/papers@2"
    assert "index failed" in said(operator.get("/papers@2"))


def test_a_run_of_which_something_runs_is_not_deleted(operator: httpx.Client, archive: AnArchive) -> None:
    archive.claim("index@2")
    assert "delete" not in verbs(operator.get("/papers@2"))
    assert "papers@2" in said(first(operator, "papers@2", "delete"), 409)
    assert archive.state("index@2") == "running"


def test_a_deleted_run_is_told_to_nobody_else(visitor: Visitors, operator: httpx.Client, archive: AnArchive) -> None:
    archive.cancel("index@2")
    press(operator, "/papers@2", "papers@2", "delete")
    others = visitor(Scope.READ).get("/papers@2")
    assert "This run was deleted" in said(others)
    assert not verbs(others)
    assert "pdf" not in said(others)
    admin = visitor(Scope.ADMIN).get("/papers@2")
    assert re.search(r"It was deleted , and is in no list, count or report\. \d of \d tasks completed\.", said(admin))
    assert {"undelete", "purge"} <= verbs(admin)


def test_a_settled_run_is_purged_for_good_by_an_administrator(
    operator: httpx.Client, admin: httpx.Client, archive: AnArchive
) -> None:
    archive.run("index@2", "pdf@2", "upload@2")
    assert "purge" not in verbs(operator.get("/papers@2"))
    assert press(operator, "/papers@2", "papers@2", "purge").status_code == 403
    page = first(admin, "papers@2", "purge")
    assert "papers@2 goes for good" in said(page)
    assert "3 attempts would be purged" in said(page)
    assert archive.states()["index@2"] == "completed"
    assert confirm(admin, page).headers["location"] == "/papers"
    assert "index@2" not in archive.states()
    assert "purged" in said(admin.get("/papers@2"), 404)
    assert "admin test purge papers@2" in said(admin.get("/-/audit-log")), "the audit log names what is gone"


def test_an_archive_is_purged_of_what_it_keeps_no_longer(admin: httpx.Client, archive: AnArchive) -> None:
    archive.run("index@2", "pdf@2", "upload@2")
    archive.commit(TASKS)
    assert "purge" not in verbs(admin.get("/papers"))
    set_to_keep(archive, dict.fromkeys(AGED, "1d"))
    let_age(archive, 2, 3)
    page = first(admin, "papers", "purge")
    assert "1 run would be purged papers@2" in said(page)
    assert "arkqueue purge papers --export papers.jsonl writes each run to a file before" in said(page)
    assert confirm(admin, page).headers["location"] == "/papers"
    assert not [name for name in archive.states() if name.endswith("@2")]


def test_the_log_of_a_task_is_purged_with_a_reason(
    operator: httpx.Client, admin: httpx.Client, archive: AnArchive
) -> None:
    archive.end("index@2", 1, message="token=hunter2", outputs={"password": "hunter2"})
    assert "purge-outputs" not in verbs(operator.get("/papers@2/index"))
    assert "purge-outputs" in verbs(admin.get("/papers@2/index"))
    assert press(admin, "/papers@2/index", "papers@2/index", "purge-outputs").status_code == 422
    assert press(operator, "/papers@2/index", "papers@2/index", "purge-outputs", "why").status_code == 403
    shown = first(admin, "papers@2/index", "purge-outputs")
    assert "1 output would be removed" in said(shown)
    assert "What may still have a copy after that the log of the task, where the task printed them. Add --log" in said(
        shown
    )
    assert archive.sql("select outputs from attempt")[0]["outputs"] == {"password": "hunter2"}
    assert 'name="text" maxlength="10000" placeholder="Why? (others will see it)"' in shown.text
    assert press(admin, "/papers@2/index", "papers@2/index", "purge-outputs", "a password").status_code == 303
    page = admin.get("/papers@2/index")
    assert "hunter2" not in page.text
    assert "because a password" in said(page)


def test_a_purge_of_a_log_shows_first_what_it_takes_away(
    operator: httpx.Client, admin: httpx.Client, archive: AnArchive
) -> None:
    claimed = archive.claim("index@2")
    logs = Logs(a_gateway(archive.session), 1 << 20, 1 << 20)
    writer = logs.open(claimed.attempt)
    writer.write(Stream.STDOUT, b"token=hunter2\n")
    logs.flush([writer])
    assert "has no attempt that has ended" in said(first(admin, "papers@2/index", "purge-log"), 409)
    archive.end("index@2")
    assert first(operator, "papers@2/index", "purge-log").status_code == 403
    page = press(admin, "/papers@2/index", "papers@2/index", "purge-log", "it printed a token", sure="")
    assert "Purge the log of papers@2/index?" in said(page)
    assert "1 log would be removed (14 bytes)" in said(page)
    assert 'value="it printed a token"' in page.text
    assert "hunter2" in admin.get("/papers@2/index").text
    assert press(admin, "/papers@2/index", "papers@2/index", "purge-log", "it printed a token").status_code == 303
    assert "hunter2" not in admin.get("/papers@2/index").text


def test_a_run_is_downloaded_before_it_is_purged(
    operator: httpx.Client, admin: httpx.Client, visitor: Visitors, session: Session, archive: AnArchive
) -> None:
    archive.run("index@2", "pdf@2", "upload@2")
    (address,) = re.findall(r'href="(/-/export[^"]+)" download', first(admin, "papers@2", "purge").text)
    answer = admin.get(address)
    assert answer.headers["content-disposition"] == 'attachment; filename="papers@2.jsonl"'
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert {line["kind"] for line in lines} >= {"run", "task", "attempt"}
    assert sorted(line["name"] for line in lines if line["kind"] == "task") == [
        "COMMIT",
        "REPORT",
        "index",
        "pdf",
        "upload",
    ]
    assert operator.get(address).status_code == 403
    an_archive(session, "vault")
    assert visitor(Scope.ADMIN, "vault").get(address).status_code == 404
    assert visitor().get(address).status_code == 303
    assert admin.get("/-/export?of=papers@99").status_code == 404
    assert admin.get("/-/export?of=papers").status_code == 422


# As on the command line


def test_what_failed_of_a_run_is_counted_as_completed(operator: httpx.Client, archive: AnArchive) -> None:
    archive.fail("index@2")
    assert {"skip", "skip-as-completed"} <= verbs(operator.get("/papers@2"))
    page = first(operator, "papers@2", "skip-as-completed")
    assert "go on as if it had completed" in said(page)
    assert archive.state("index@2") == "failed"
    assert confirm(operator, page).status_code == 303
    assert archive.state("pdf@2") == "ready"


def test_a_run_is_reported_before_it_has_settled(operator: httpx.Client, archive: AnArchive) -> None:
    archive.run("index@2")
    assert "report-now" in verbs(operator.get("/papers@2"))
    assert press(operator, "/papers@2", "papers@2", "report").status_code == 409
    assert press(operator, "/papers@2", "papers@2", "report-now").status_code == 303
    assert "Reports 1" in said(operator.get("/papers@2"))
    archive.run("pdf@2", "upload@2")
    assert "report-now" not in verbs(operator.get("/papers@2"))


def test_each_report_is_shown_with_what_had_changed(
    operator: httpx.Client, visitor: Visitors, session: Session, archive: AnArchive
) -> None:
    archive.fail("index@2")  # the run makes its first report by itself
    archive.retry("index@2")
    archive.run("index@2")
    assert press(operator, "/papers@2", "papers@2", "report-now").status_code == 303
    page = operator.get("/papers@2").text
    addresses = [html.unescape(one) for one in re.findall(r'href="(/-/report[^"]+)"', page)]
    assert addresses == ["/-/report?of=papers%402&number=2", "/-/report?of=papers%402&number=1"]
    newest, oldest = (said(operator.get(address)) for address in addresses)
    assert "Report 1 of papers@2" in oldest
    assert "index failed: exit code 1" in oldest
    assert "index completed · changed" in newest
    assert "had changed since report 1" in newest
    assert operator.get("/-/report?of=papers@2&format=json").json()["report"]["number"] == 2
    assert operator.get("/-/report?of=papers@2&number=9").status_code == 404
    assert operator.get("/-/report?of=papers@2&number=x").status_code == 422
    an_archive(session, "vault")
    assert visitor(Scope.READ, "vault").get(addresses[0]).status_code == 404
    assert visitor().get(addresses[0]).status_code == 303


def test_deleted_items_are_listed_with_what_brings_them_back(
    operator: httpx.Client, admin: httpx.Client, archive: AnArchive
) -> None:
    number = archive.commit({"store": f"foreach: [a, '{HOSTILE_ITEM}']"})
    run = f"papers@{number}"
    for key in ("a", HOSTILE_ITEM):
        name = run + task_in_run(EVERY_TASK, key)
        assert press(operator, f"/{run}", name, "delete").status_code == 303
    page = admin.get(f"/{run}")
    assert "Deleted items 2" in said(page)
    assert "<img" not in page.text
    assert "Deleted items" not in said(operator.get(f"/{run}"))
    assert press(admin, f"/{run}", f"{run}/*/a", "undelete").status_code == 303
    page = admin.get(f"/{run}")
    assert "Deleted items 1" in said(page)
    assert archive.state(f"store/a@{number}") == "held"


# Running again


def test_a_run_is_run_again_from_a_task_also_what_had_completed(operator: httpx.Client, archive: AnArchive) -> None:
    archive.run("index@2", "pdf@2")
    archive.fail("upload@2")
    page = operator.get("/papers@2")
    assert re.findall(r"<option>(\w+)</option>", page.text) == ["index", "pdf", "upload"]
    fields = {"form": form_of(page), "name": "papers@2", "verb": "retry-from", "task": "pdf", "back": "/papers@2"}
    shown = operator.post("/-/act", data=fields)
    assert "Run again papers@2 from pdf?" in said(shown)
    assert "1 task would be free to start papers@2/pdf" in said(shown)
    assert "1 task would be waiting papers@2/upload" in said(shown)
    assert archive.state("pdf@2") == "completed"
    assert confirm(operator, shown).headers["location"] == "/papers@2"
    assert [archive.state(f"{name}@2") for name in TASKS] == ["completed", "ready", "waiting"]


def test_a_completed_task_has_a_button_that_runs_it_again(operator: httpx.Client, session: Session) -> None:
    archive = a_list(session)
    archive.run("fetch/a@2", "check/a@2", "store/a@2", "fetch/b/c@2")
    page = operator.get("/papers@2/check/a")
    assert 'value="papers@2/*/a"' in page.text
    fields = {"form": form_of(page), "name": "papers@2/*/a", "verb": "retry-from", "task": "check", "back": "/"}
    shown = operator.post("/-/act", data=fields)
    assert "1 task would be free to start papers@2/check/a" in said(shown)
    confirm(operator, shown)
    assert archive.state("check/a@2") == "ready"
    assert archive.state("store/a@2") == "waiting"
    assert archive.state("fetch/a@2") == "completed"
    assert "retry-from" not in verbs(operator.get("/papers@2/check/a"))
    assert operator.post("/-/act", data=fields | {"task": ""}).status_code == 422


def test_what_a_refusal_names_is_offered_and_shown_before_it_is_done(
    operator: httpx.Client, archive: AnArchive
) -> None:
    archive.run("index@2", "pdf@2")
    archive.fail("upload@2")
    archive.commit(TASKS)
    archive.run("index@3", "pdf@3", "upload@3")
    page = operator.get("/papers@2/upload")
    assert page.text.count("Retry all the same</button>") == page.text.count('name="force" value="yes"') == 1
    refused = press(operator, "/papers@2/upload", "papers@2/upload", "retry")
    assert "would replace the work of later revisions: papers@3/upload completed" in said(refused, 409)
    shown = offered(operator, refused)
    assert "1 task would be free to start papers@2/upload" in said(shown)
    assert archive.state("upload@2") == "failed"
    assert confirm(operator, shown).headers["location"] == "/papers@2/upload"
    assert archive.state("upload@2") == "ready"


def test_a_retry_of_what_failed_in_a_run_is_forced_after_its_refusal(
    operator: httpx.Client, archive: AnArchive
) -> None:
    """The run has one failure, and the refusal names it."""
    archive.fail("index@2")
    archive.commit(TASKS)
    archive.run("index@3")
    refused = press(operator, "/papers@2", "papers@2", "retry")
    assert "would replace the work of later revisions: papers@3/index completed" in said(refused, 409)
    shown = offered(operator, refused)
    assert confirm(operator, shown).headers["location"] == "/papers@2"
    assert archive.state("index@2") == "ready"


def test_each_refusal_of_many_is_named_where_nothing_could_be_done(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"one": "", "two": ""})
    archive.fail("one@3", "two@3")
    archive.commit({"one": "", "two": ""})
    archive.run("one@4", "two@4")
    page = press(operator, "/papers", "papers", "retry")
    text = said(page, 409)
    assert "papers@4/one completed; 1 more task is refused" in text
    assert "papers@3/two would replace the work of later revisions: papers@4/two completed." in text
    assert "arkqueue retry papers@3/two --force" in text
    assert archive.state("two@3") == "failed"


def test_a_refusal_that_nothing_overrules_offers_nothing(operator: httpx.Client, archive: AnArchive) -> None:
    archive.run("index@2")
    refused = press(operator, "/papers@2/index", "papers@2/index", "cancel")
    assert refused.status_code == 409
    assert not verbs(refused)
    # The remedy of a task that was skipped is a command for another one.
    archive.fail("pdf@2")
    archive.commit(TASKS)
    archive.run("index@3", "pdf@3")
    refused = press(operator, "/papers@2/upload", "papers@2/upload", "retry")
    assert "papers@2/pdf" in said(refused, 409)
    assert not verbs(refused)


def test_a_trigger_of_an_old_revision_is_forced_after_its_refusal(operator: httpx.Client, archive: AnArchive) -> None:
    archive.run("index@2")
    archive.commit(TASKS)
    archive.run("index@3")
    refused = press(operator, "/papers@2", "papers@2", "trigger", "index", sure="")
    assert "papers@3/index completed" in said(refused, 409)
    shown = offered(operator, refused)
    assert "Run papers@2.2?" in said(shown)
    why = "A plain trigger would be refused : papers@2: would replace the work of later revisions: papers@3/index completed."
    assert why in said(shown)
    assert confirm(operator, shown).headers["location"] == "/papers@2.2"
    assert archive.states()["index@2.2"] == "ready"


def test_a_backfill_of_outdated_revisions_is_forced_after_its_refusal(
    operator: httpx.Client, archive: AnArchive
) -> None:
    archive.run("index@2")
    archive.commit(TASKS)
    archive.run("index@3")
    fields = {"name": "papers", "verb": "trigger", "task": "index", "first": "2", "back": "/papers"}
    refused = operator.post("/-/act", data=fields | {"form": form_of(operator.get("/papers"))})
    assert "papers@3/index completed" in said(refused, 409)
    shown = offered(operator, refused)
    assert "Backfill papers?" in said(shown)
    why = "A plain backfill would be refused : papers@2: would replace the work of later revisions: papers@3/index completed."
    assert why in said(shown)
    assert confirm(operator, shown).headers["location"] == "/papers@fill:1"
    assert archive.states()["index@2.2"] == "ready"


def test_a_command_that_would_run_a_second_time_is_offered_as_that(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"mint": "", "deposit": "depends: [mint]\non_lost: fail"})
    archive.run("mint@3", "deposit@3")
    fields = {"name": "papers@3", "verb": "retry-from", "task": "mint", "back": "/papers@3"}
    refused = operator.post("/-/act", data=fields | {"form": form_of(operator.get("/papers@3"))})
    assert "papers@3" in said(refused, 409)
    shown = offered(operator, refused, "from_start")
    assert archive.state("deposit@3") == "completed"
    confirm(operator, shown)
    assert archive.state("mint@3") == "ready"
    assert archive.state("deposit@3") == "waiting"


def test_the_retry_of_a_lost_command_is_offered_as_what_it_is(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"deposit": "on_lost: fail"})
    archive.end("deposit@3", None, End.LOST)
    refused = press(operator, "/papers@3/deposit", "papers@3/deposit", "retry")
    assert "find out whether it has done its work" in said(refused, 409)
    shown = offered(operator, refused, "from_start")
    assert archive.state("deposit@3") == "failed"
    confirm(operator, shown)
    assert archive.state("deposit@3") == "ready"


def test_a_release_shows_what_is_out_of_date_and_waives_it_where_it_is_told_to(
    operator: httpx.Client, session: Session, archive: AnArchive
) -> None:
    archive.commit({"draw": "", "print": ""})
    holds.hold_run(session, RunId(archive.run_id(3)), "ann")
    archive.commit({"draw": ""})
    archive.run("draw@4")
    page = first(operator, "papers@3", "release")
    assert "1 task would be free to start papers@3/print" in said(page)
    assert "1 task would stay as it is papers@3/draw" in said(page)
    shown = pressed(operator, page, "Do it all the same", text="an <b>audit</b>")
    assert "2 tasks would be free to start papers@3/draw, papers@3/print" in said(shown)
    assert 'value="an &lt;b&gt;audit&lt;/b&gt;"' in shown.text
    shown = pressed(operator, page, "Waive what is out of date, and release the rest", text="an <b>audit</b>")
    assert "Release papers@3, and waive what is out of date? Its held tasks that are out of date are waived" in said(
        shown
    )
    assert "1 task would be waived papers@3/draw" in said(shown)
    pressed(operator, shown, "Yes, waive and release it")
    assert (archive.state("draw@3"), archive.state("print@3")) == ("skipped", "ready")
    kept = archive.sql("select note from deed where verb = 'release'")
    assert kept == [{"note": "an <b>audit</b>"}], "the reason that was typed before the waiver was chosen"


def test_what_a_verb_on_many_refused_is_told(operator: httpx.Client, session: Session, archive: AnArchive) -> None:
    archive.commit({"draw": "", "print": ""})
    holds.hold_run(session, RunId(archive.run_id(3)), "ann")
    archive.commit({"draw": ""})
    archive.run("draw@4")
    page = confirm(operator, first(operator, "papers@3", "release"))
    assert "Done for 1 task. 1 was left as it was: papers@3/draw" in said(page)
    assert archive.state("draw@3") == "held"


@pytest.mark.parametrize(
    ("verb", "name", "remedy", "options"),
    [
        ("retry", "papers@2/a", "use --force, or start it at the newest revision", ["force"]),
        ("retry", "papers@2/a", "to go back on purpose: arkqueue retry papers@2/a --force", ["force"]),
        ("retry", "papers@2/a", "to go back on purpose: arkqueue retry papers@2/b --force", []),
        ("retry", "papers@2/a", "submit it again: arkqueue submit papers@2/a --force", []),
        ("retry", "papers@2/a b", "arkqueue retry 'papers@2/a b' --force, or wait", ["force"]),
        ("retry", "papers@2", "to go back on purpose: arkqueue retry papers@2/a --force --from-start", ["force"]),
        ("retry", "papers@2/a/*", "to go back on purpose: arkqueue retry papers@2/a/x --force", ["force"]),
        ("retry", "papers@2", "to go back on purpose: arkqueue retry papers@21/a --force", []),
        ("retry", "papers", "to go back on purpose: arkqueue retry papers@2/a --force", []),
        ("retry", "papers", "use --force", []),
        ("cancel", "papers@2/a", "use --force", []),
        ("retry-from", "papers@2", "arkqueue retry papers@2 --from a --from-start", ["from_start"]),
        ("release", "papers@2", "arkqueue release papers@2 --force, or waive it: --skip-outdated", ["force", "skip_outdated"]),
        ("trigger", "papers@2", "arkqueue trigger papers --revision 2 --force a", ["force"]),
        ("retry", "papers@2/a", "an odd quote: arkqueue retry 'papers@2/a --force", []),
    ],
)  # fmt: skip
def test_a_refusal_offers_what_its_remedy_names_for_this_verb_and_thing(
    verb: str, name: str, remedy: str, options: list[str]
) -> None:
    assert [offer.option for offer in offers(Conflict(name, "is refused", remedy), name, verb)] == options


# Restarting, polling, waiving, of many


def test_what_runs_of_a_run_is_restarted(operator: httpx.Client, archive: AnArchive) -> None:
    assert "restart" not in verbs(operator.get("/papers@2"))
    assert press(operator, "/papers@2", "papers@2", "restart").status_code == 409
    archive.claim("index@2")
    assert "restart" in verbs(operator.get("/papers@2"))
    page = first(operator, "papers@2", "restart")
    assert "1 task would be stopped papers@2/index" in said(page)
    confirm(operator, page)
    assert archive.sql("select stop from task where id = %s", archive.task("index@2"))[0]["stop"] == "restart"


def test_what_is_deferred_is_polled_now_by_its_run_and_its_archive(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"deposit": "poll: {command: ask, every: 1h}"})
    for page, name in (("/papers", "papers"), ("/papers@3", "papers@3")):
        assert "refresh" not in verbs(operator.get(page))
        assert press(operator, page, name, "refresh").status_code == 409
    archive.end("deposit@3", 75)
    for page, name in (("/papers", "papers"), ("/papers@3", "papers@3")):
        assert "refresh" in verbs(operator.get(page))
        assert press(operator, page, name, "refresh").status_code == 303
        assert archive.state("deposit@3") == "ready"
        archive.end("deposit@3", 75)


def test_items_are_polled_now_and_restarted_by_their_pages_and_their_list(
    operator: httpx.Client, archive: AnArchive
) -> None:
    archive.commit({"deposit": "foreach: [a, b]\npoll: {command: ask, every: 1h}"})
    item, of_list, page = "papers@3/*/a", "papers@3/deposit/*", "/papers@3?list=deposit"
    assert not {"refresh", "restart"} & (verbs(operator.get(f"/{item}")) | verbs(operator.get(page)))
    archive.claim("deposit/a@3")
    assert "restart" in verbs(operator.get(page))
    preview = press(operator, page, of_list, "restart", sure="")
    assert "2 tasks would be stopped" in said(preview)
    archive.end("deposit/a@3", 75)
    archive.end("deposit/b@3", 75)
    assert "refresh" in verbs(operator.get(f"/{item}"))
    assert press(operator, f"/{item}", item, "refresh", sure="").status_code == 303
    assert (archive.state("deposit/a@3"), archive.state("deposit/b@3")) == ("ready", "deferred")
    assert "refresh" in verbs(operator.get(page))
    preview = press(operator, page, of_list, "refresh", sure="")
    assert "1 task would be free to start papers@3/deposit/b" in said(preview)
    confirm(operator, preview)
    assert archive.state("deposit/b@3") == "ready"


def test_all_that_failed_of_an_archive_is_retried(operator: httpx.Client, archive: AnArchive) -> None:
    assert "retry" not in verbs(operator.get("/papers"))
    archive.fail("index@2")
    archive.commit({"other": ""})
    archive.fail("other@3")
    page = first(operator, "papers", "retry")
    assert "2 tasks would be free to start papers@2/index, papers@3/other" in said(page)
    confirm(operator, page)
    assert (archive.state("index@2"), archive.state("other@3")) == ("ready", "ready")
    assert press(operator, "/papers", "papers", "retry", sure="").status_code == 409


def test_what_is_left_of_a_run_is_waived(operator: httpx.Client, archive: AnArchive) -> None:
    archive.fail("index@2")
    confirm(operator, first(operator, "papers@2", "skip"))
    assert archive.sql("select waived from task where id = %s", archive.task("index@2"))[0]["waived"]
    assert press(operator, "/papers@2", "papers@2", "skip", sure="").status_code == 409


def test_a_task_of_a_silent_host_is_counted_as_gone(
    operator: httpx.Client, session: Session, archive: AnArchive
) -> None:
    claim.register(session, PROCESS, HOST, "node2", 4)
    archive.claim("index@2")
    assert "assume-gone" not in verbs(operator.get("/papers@2/index"))
    assert press(operator, "/papers@2/index", "papers@2/index", "assume-gone").status_code == 409
    archive.sql("update task_manager set seen_at = now() - interval '5 minutes'")
    assert "assume-gone" in verbs(operator.get("/papers@2/index"))
    page = first(operator, "papers@2/index", "assume-gone")
    assert "Do this only if its machine is off" in said(page)
    assert "1 task would be canceled papers@2/index" in said(page)
    assert archive.state("index@2") == "running"
    confirm(operator, page)
    assert archive.state("index@2") == "canceled"


# Backfills


def test_a_backfill_is_shown_and_made_by_the_form_of_a_trigger(operator: httpx.Client, archive: AnArchive) -> None:
    for _ in range(4):
        archive.commit({"index": "", "scan": "on: [manual]"})
    form = operator.get("/-/trigger?of=papers")
    assert "Over old revisions" in said(form)
    fields = {"name": "papers", "verb": "trigger", "task": "scan", "first": "3", "last": "5", "back": "/papers"}
    fields |= {"form": form_of(form)}
    page = operator.post("/-/act", data=fields)
    assert "It would run scan at 3 revisions , from 3 to 5" in said(page)
    assert "papers@6" in said(page)
    assert "Its first run, papers@3.2" in said(page)
    assert "No task manager is running: no task starts." in said(page)
    assert not [name for name in archive.states() if name.startswith("scan") and ".2" in name]
    (again,) = re.findall(r'href="(/-/trigger[^"]*)">Choose others', page.text)
    form = operator.get(again.replace("&amp;", "&"))
    assert 'name="first" value="3"' in form.text
    assert re.search(r'name="task" value="scan"[^>]* checked', form.text)
    assert confirm(operator, page).headers["location"] == "/papers@fill:1"
    assert "scan at revisions 3 to 5" in said(operator.get("/papers@fill:1"))
    assert archive.states()["scan@3.2"] == "ready"
    assert press(operator, "/papers@fill:1", "papers@fill:1", "prioritize", "90").status_code == 303
    assert "Priority 90" in said(operator.get("/papers@fill:1"))


IMPOSSIBLE_BACKFILLS = [
    ({"first": "", "last": "3"}, "has a last revision and no first one"),
    ({"first": "2", "task": ""}, "names no task"),
    ({"first": "two", "task": "index"}, "two"),
    ({"first": "2", "task": "nothing"}, "nothing"),
    ({"first": "9", "task": "index"}, "papers"),
]
"""The fields of the form, and the fault that the page names."""


def test_a_backfill_that_cannot_be_is_refused_with_its_reason(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit(TASKS)
    form = form_of(operator.get("/-/trigger?of=papers"))
    for fields, fault in IMPOSSIBLE_BACKFILLS:
        page = operator.post("/-/act", data={"form": form, "name": "papers", "verb": "trigger", "back": "/"} | fields)
        assert page.status_code in (404, 409, 422), fields
        assert fault in said(page, page.status_code)
        back = html.unescape(re.findall(r'href="([^"]+)">Go back<', page.text)[0])
        again = operator.get(back).text
        for field in ("first", "last"):
            assert f'name="{field}" value="{fields.get(field, "")}"' in again, fields


def test_a_backfill_over_the_work_of_later_revisions_is_forced(operator: httpx.Client, archive: AnArchive) -> None:
    archive.run("index@2")
    archive.commit(TASKS)
    archive.run("index@3")
    archive.commit(TASKS)
    archive.run("index@4")
    form = form_of(operator.get("/-/trigger?of=papers"))
    fields = {"form": form, "name": "papers", "verb": "trigger", "task": "index", "first": "2", "back": "/papers"}
    refused = operator.post("/-/act", data=fields)
    (back,) = re.findall(r'<a class="b do" href="([^"]*)">Back</a>', refused.text)
    again = operator.get(html.unescape(back)).text
    assert 'name="task" value="index" aria-label="Run index" checked' in again, "the choice is there again"
    assert 'name="first" value="2"' in again
    shown = offered(operator, refused)
    assert "at 2 revisions , from 2 to 3" in said(shown)
    assert confirm(operator, shown).headers["location"] == "/papers@fill:1"


# Who may


@pytest.mark.parametrize("verb", ["delete", "purge"])
def test_no_reader_and_no_other_site_does_any_of_it(
    visitor: Visitors, operator: httpx.Client, archive: AnArchive, verb: str
) -> None:
    archive.run("index@2")
    before = archive.states()
    reader = visitor(Scope.READ)
    assert not verbs(reader.get("/papers@2"))
    fields = {"name": "papers@2", "verb": verb, "task": "index", "back": "/", "sure": "yes"}
    form = form_of(reader.get("/"))
    assert reader.post("/-/act", data=fields | {"form": form}).status_code == 403
    assert operator.post("/-/act", data=fields | {"form": form}).status_code == 403  # of another browser
    assert operator.post("/-/act", data=fields).status_code == 403
    good = fields | {"form": form_of(operator.get("/papers@2"))}
    assert operator.post("/-/act", data=good, headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert archive.states() == before


@pytest.mark.parametrize(
    ("remedy", "words"),
    [
        ("use --force, or start it at the newest revision", "Use --force, or start it at the newest revision."),
        ("arkqueue undelete papers@2", "arkqueue undelete papers@2"),
        ("to go back on purpose: arkqueue retry papers@2 --force", "To go back on purpose: arkqueue retry papers@2 --force"),
        ("Use another one.", "Use another one."),
        ("write g: " + "arkqueue a " * 100_000 + ".\nb", "Write g: " + "arkqueue a " * 100_000 + ".\nb."),
        ("", ""),
    ],
)  # fmt: skip
def test_a_remedy_is_a_sentence_and_a_command_stays_as_it_is_typed(remedy: str, words: str) -> None:
    assert as_sentence(remedy) == words


def test_a_list_and_its_filter_have_verbs_with_their_consequences(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"check": "foreach: [a, b/c, d]", "store": "foreach: [a, b/c, d]\ndepends: [check]", "other": ""})
    archive.fail("check/a@3", "check/b/c@3", "other@3")
    of, page = "papers@3/check/*", "/papers@3?list=check&state=failed"
    assert {"retry", "skip", "skip-as-completed"} <= verbs_on(operator.get(page), of)
    assert not {"hold", "cancel"} & verbs_on(operator.get(page), of)
    assert {"retry", "cancel"} <= verbs_on(operator.get("/papers@3?list=check"), of)
    asked = send_list(operator, page, of, "retry", "failed")
    assert "2 tasks would be free to start papers@3/check/a, papers@3/check/b%2Fc" in said(asked)
    assert archive.state("check/a@3") == "failed"
    confirm(operator, asked)
    assert [archive.state(one) for one in ("check/a@3", "check/b/c@3", "other@3")] == ["ready", "ready", "failed"]
    asked = send_list(operator, page, of, "hold", "ready")
    assert "Hold papers@3/check/* (what is ready)?" in said(asked)
    confirm(operator, asked)
    assert [archive.state(f"check/{one}@3") for one in ("a", "b/c", "d")] == ["held", "held", "running"]
    confirm(operator, send_list(operator, page, of, "release", ""))
    assert [archive.state(f"check/{one}@3") for one in ("a", "b/c")] == ["ready", "ready"]
    confirm(operator, send_list(operator, page, of, "cancel", "ready"))
    assert [archive.state(f"check/{one}@3") for one in ("a", "b/c", "d")] == ["canceled", "canceled", "running"]
    archive.fail("check/d@3")
    confirm(operator, send_list(operator, page, of, "skip-as-completed", "failed"))
    assert archive.state("store/d@3") == "ready"
    assert "has no item of check to hold that is ready" in said(send_list(operator, page, of, "hold", "ready"), 409)
    assert send_list(operator, page, "papers@3/other/*", "cancel", "").status_code == 404
    assert send_list(operator, page, of, "cancel", "<b>").status_code == 422


def test_items_that_were_canceled_come_back_and_others_get_a_priority_or_are_deleted(
    operator: httpx.Client, archive: AnArchive
) -> None:
    archive.commit({"check": "foreach: [a, b, c]"})
    archive.cancel("check/a@3")
    archive.cancel("check/c@3")
    archive.fail("check/b@3")
    of, page = "papers@3/check/*", "/papers@3?list=check&state="
    assert "retry" in verbs_on(operator.get(f"{page}canceled"), of)
    confirm(operator, send_list(operator, f"{page}canceled", of, "retry", "canceled"))
    assert [archive.state(f"check/{item}@3") for item in "abc"] == ["ready", "failed", "ready"]
    assert {"prioritize", "delete"} <= verbs_on(operator.get(f"{page}ready"), of)
    fields = {"form": form_of(operator.get(page)), "name": of, "verb": "prioritize", "back": page, "text": "7"}
    asked = operator.post("/-/act", data=fields)
    assert "Change the priority of papers@3/check/*?" in said(asked)
    confirm(operator, asked)
    found = archive.sql("select item, priority from task where name = 'check' and number = 3 order by item")
    assert [tuple(row.values()) for row in found] == [("a", 7), ("b", 50), ("c", 7)]
    asked = send_list(operator, page, of, "delete", "failed")
    assert "1 item would be deleted papers@3/check/b" in said(asked)
    confirm(operator, asked)
    assert archive.sql("select item from deleted_item") == [{"item": "b"}]


def test_a_state_is_said_once_beside_its_reason(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"check": "foreach: [a, b]"})
    archive.cancel("check/a@3")
    archive.skip("check/b@3")
    page = said(operator.get("/papers@3?list=check"))
    for words in ("canceled by ann", "skipped by ann"):
        assert words in page
    assert "canceled canceled" not in page
    assert "skipped skipped" not in page


def test_an_item_of_the_key_star_is_an_item(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"check": "foreach: ['*', b]"})
    assert operator.get("/papers@3/check/%2A").status_code == 200
    assert press(operator, "/papers@3?list=check", "papers@3/check/%2A", "cancel").status_code == 303
    assert (archive.state("check/*@3"), archive.state("check/b@3")) == ("canceled", "ready")


def verbs_on(page: httpx.Response, name: str) -> set[str]:
    """The verbs that a page offers for a thing."""
    return set(re.findall(f'name="name" value="{re.escape(name)}"><input type="hidden" name="verb" value="([^"]*)"', page.text))  # fmt: skip


def send_list(browser: httpx.Client, page: str, name: str, verb: str, state: str) -> httpx.Response:
    """Press a button of a list."""
    fields = {"form": form_of(browser.get(page)), "name": name, "verb": verb, "state": state, "back": page}
    return browser.post("/-/act", data=fields)
