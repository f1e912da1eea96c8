"""The pages of an archive that starts nothing, because it is stopped, on hold or paused. Each page says
so, disables the buttons that the queue would refuse, and has the button that ends it.
"""

from __future__ import annotations

import re

import httpx
import pytest

from arkqueue.db.session import Session
from arkqueue.model import ArchiveId, BranchId, RunId
from arkqueue.queue import archives, backfill, claim, control, deletion, holds, lists, locks, pauses
from arkqueue.states import State
from tests.builders import HOST, PROCESS, AnArchive, an_archive
from tests.system.pages.conftest import first, press, said
from tests.system.pages.test_verbs import verbs

STOPPED = (
    "file:///srv/svn/papers: has another UUID. Bring the right one back, then: arkqueue sync papers;"
    " if it is meant to be as it is now: arkqueue archive rewind papers REV"
)
FILLED = re.compile(r'<(?:button|summary) class="b [^"]*\bdo\b[^"]*"[^>]*>([^<]*)<')
DISABLED = re.compile(r'<button class="[^"]*" disabled title="([^"]*)">([^<]*)<')


@pytest.fixture
def archive(session: Session) -> AnArchive:
    claim.register(session, PROCESS, HOST, "node2", 4)
    archive = an_archive(session)
    archive.commit({"get": "foreach: [a, b]", "put": "foreach: [a, b]\nhold: true"})
    return archive


def stop(archive: AnArchive) -> None:
    archives.stop(archive.session, ArchiveId(archive.id), STOPPED)


def filled(page: httpx.Response) -> list[str]:
    """The words of the filled buttons at the head of a page."""
    head = page.text.partition('<div class="head">')[2].partition('<p class="says">')[0]
    return FILLED.findall(re.sub(r"(</summary>).*?</details>", r"\1", head, flags=re.S))


def disabled(page: httpx.Response, why: str) -> set[str]:
    """The words of the buttons that are disabled for a reason."""
    return {words for reason, words in DISABLED.findall(page.text) if why in reason}


def test_the_page_of_an_item_leads_to_the_end_of_a_stop(
    admin: httpx.Client, operator: httpx.Client, archive: AnArchive
) -> None:
    archive.fail("get/a@2")
    assert filled(operator.get("/papers@2/*/a")) == ["Retry what failed"]
    stop(archive)
    page = admin.get("/papers@2/*/a")
    assert "papers is stopped, so none of its tasks starts: file:///srv/svn/papers: has another UUID" in said(page)
    assert filled(page) == ["Read papers now"]
    assert 'href="/-/settings/papers?open=rewind">Rewind</a>' in page.text
    assert disabled(page, "papers is stopped") >= {"Retry what failed", "Release", "Retry"}
    assert verbs(page) & {"retry", "release", "retry-from"} == set()
    assert "is stopped" in said(press(operator, "/papers@2", "papers@2/*/a", "retry"), 409)


def test_the_page_of_an_item_ends_the_hold_of_its_archive_first(operator: httpx.Client, archive: AnArchive) -> None:
    id = ArchiveId(archive.id)
    archive.run("get/a@2")
    assert filled(operator.get("/papers@2/*/a")) == ["Release"]
    assert "The held tasks of this item may start." in said(operator.get("/papers@2/*/a"))
    holds.hold_archive(archive.session, id, "ann")
    page = operator.get("/papers@2/*/a")
    assert filled(page) == ["End the hold of papers"]
    assert "papers is on hold: end the hold before you release its tasks." in said(page)
    assert disabled(page, "papers is on hold") == {"Release"}
    holds.unhold(archive.session, id, "ann")
    pauses.pause(archive.session, id, "a move", "ann")
    page = operator.get("/papers@2/*/a")
    assert filled(page) == ["Release"]
    assert "may start" not in said(page)


def test_the_page_of_an_item_of_what_is_over_offers_nothing(admin: httpx.Client, archive: AnArchive) -> None:
    deletion.delete_run(archive.session, RunId(archive.run_id(2)), "ann")
    page = admin.get("/papers@2/*/a")
    assert "Its run was deleted." in said(page)
    assert verbs(page) == set()
    deletion.undelete_run(archive.session, RunId(archive.run_id(2)), "ann")
    assert "release" in verbs(admin.get("/papers@2/*/a"))
    archives.remove(archive.session, ArchiveId(archive.id), "ann")
    page = admin.get("/papers@2/*/a")
    assert re.search(r"papers was removed on .* UTC by ann: nothing of it is started any more", said(page))
    assert verbs(page) == set()


def test_a_run_that_waits_for_a_failure_leads_to_the_end_of_a_stop_first(
    admin: httpx.Client, archive: AnArchive
) -> None:
    archive.commit({"pdf": "depends: [PREV]"})
    archive.fail("pdf@3")
    archive.commit({"pdf": "depends: [PREV]"})
    assert filled(admin.get("/papers@4")) == ["Retry 3/pdf"]
    stop(archive)
    page = admin.get("/papers@4")
    assert filled(page) == ["Read papers now"]
    head = page.text.partition('<div class="head">')[2]
    assert head.index("Read papers now") < head.index(">Rewind<") < head.index(">Retry 3/pdf<")
    assert disabled(page, "papers is stopped") == {"Retry 3/pdf", "Waive 3/pdf", "Trigger"}
    page = admin.get("/papers@4/pdf")
    assert disabled(page, "papers is stopped") == {"Retry 3/pdf", "Waive 3/pdf"}
    page = admin.get("/papers@3/pdf")
    assert disabled(page, "papers is stopped") == {"Retry", "Waive", "Count as completed"}
    assert press(admin, "/papers@3/pdf", "papers@3/pdf", "skip").status_code == 409
    archive.cancel("pdf@4")
    assert disabled(admin.get("/papers@3/pdf"), "papers is stopped") == {"Retry"}, "its waiver starts nothing"


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_deferred_task_of_an_archive_that_starts_nothing_does_not_go_on(
    admin: httpx.Client, archive: AnArchive, is_stopped: bool
) -> None:
    archive.commit({"deposit": "poll: {command: ask, every: 1h}"})
    archive.end("deposit@3", 75)
    assert archive.state("deposit@3") == "deferred"
    assert filled(admin.get("/papers@3")) == []
    if is_stopped:
        stop(archive)
    else:
        pauses.pause(archive.session, ArchiveId(archive.id), "a move", "ann")
    page = admin.get("/papers@3")
    assert (">Read papers now<" if is_stopped else ">Resume papers<") in page.text
    assert len(filled(page)) == 1
    assert ("papers is stopped" if is_stopped else "papers is paused") in said(page)


def test_the_buttons_of_a_list_are_disabled_in_a_stopped_archive(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"tile": f"foreach: [{', '.join(f'i{number}' for number in range(120))}]"})
    archive.fail("tile/i1@3")
    lists.hold(archive.session, RunId(archive.run_id(3)), "tile", [State.READY], "ann", "")
    page = operator.get("/papers@3?list=tile")
    assert {"retry", "release"} <= verbs(page)
    stop(archive)
    page = operator.get("/papers@3?list=tile")
    assert verbs(page) & {"retry", "release", "retry-from"} == set()
    assert disabled(page, "papers is stopped") >= {"Retry what failed", "Release", "Retry", "Restart", "Trigger"}


def test_the_buttons_of_a_grid_are_disabled_in_an_archive_that_starts_nothing(
    operator: httpx.Client, archive: AnArchive
) -> None:
    archive.commit({"pdf": "", "REPORT": "hold: true\ncommand: 'true'"})
    archive.run("pdf@3")
    archive.commit({"pdf": ""})
    archive.fail("pdf@4")
    assert {"retry", "release"} <= verbs(operator.get("/papers"))
    holds.hold_archive(archive.session, ArchiveId(archive.id), "ann")
    page = operator.get("/papers")
    assert "retry" in verbs(page)
    assert {words.rstrip(" 0123456789") for words in disabled(page, "papers is on hold")} == {"Release"}
    stop(archive)
    page = operator.get("/papers")
    assert verbs(page) & {"retry", "release", "refresh"} == set()
    assert disabled(page, "papers is stopped") >= {"Retry", "Release", "Trigger", "Retry all that failed"}
    assert "What is disabled here" not in said(page)


def test_what_failed_is_retried_only_where_nobody_has_waived_it(operator: httpx.Client, archive: AnArchive) -> None:
    archive.fail("get/a@2")
    for page in ("/papers@2", "/papers@2/*/a"):
        assert "Retry what failed" in filled(operator.get(page))
    control.skip(archive.session, archive.task("get/a@2"), "ann")
    for page in ("/papers@2", "/papers@2/*/a"):
        assert "Retry what failed" not in operator.get(page).text


def test_a_refused_retry_of_an_item_offers_to_force_it(operator: httpx.Client, archive: AnArchive) -> None:
    tasks = {"get": "foreach: [a, b]"}
    archive.commit(tasks)
    archive.run("get/b@3")
    archive.fail("get/a@3")
    archive.commit(tasks)
    archive.run("get/a@4", "get/b@4")
    page = first(operator, "papers@3/*/a", "retry")
    assert "Do it all the same" in said(page, 409)


def test_the_page_of_a_backfill_leads_to_the_end_of_a_stop_or_a_hold(admin: httpx.Client, archive: AnArchive) -> None:
    id = ArchiveId(archive.id)
    archive.commit({"thumbs": ""})
    backfill.begin(archive.session, id, BranchId(archive.branches[""].id), 1, None, names=["thumbs"])
    archive.fail("thumbs@1.2")
    holds.hold(archive.session, archive.task("thumbs@2.2"), "ann")
    assert filled(admin.get("/papers@fill:1")) == ["Release"]
    holds.hold_archive(archive.session, id, "ann")
    page = admin.get("/papers@fill:1")
    assert filled(page) == ["End the hold of papers"]
    assert disabled(page, "papers is on hold") == {"Release"}
    assert "papers is on hold: end the hold before you release its tasks." in said(page)
    stop(archive)
    page = admin.get("/papers@fill:1")
    assert filled(page) == ["Read papers now"]
    assert 'href="/-/settings/papers?open=rewind">Rewind</a>' in page.text
    assert disabled(page, "papers is stopped") == {"Release", "Retry what failed"}
    assert "papers is stopped, so none of its tasks starts: file:///srv/svn/papers: has another UUID" in said(page)
    archives.remove(archive.session, id, "ann")
    assert verbs(admin.get("/papers@fill:1")) == set()


def test_the_page_of_an_item_says_that_a_paused_lock_keeps_its_task_from_a_start(
    operator: httpx.Client, archive: AnArchive
) -> None:
    archive.commit({"get": "foreach: [a]\nlock: tex"})
    locks.pause(archive.session, ArchiveId(archive.id), "tex", "the licence", "ann")
    for page in ("/papers@3", "/papers@3/*/a"):
        assert "waiting for the lock papers/tex, which is paused since" in said(operator.get(page)), page
