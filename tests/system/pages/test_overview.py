"""What the overview says first: running tasks that hang, task managers by their names with what
helps; and of each archive what waits, and why.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

import httpx
import pytest

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.db import Connection
from arkqueue.db import session as of_sessions
from arkqueue.db.pipelines import Answer, Call
from arkqueue.db.session import Session
from arkqueue.model import INSTALLATION, ArchiveId, End, RunId
from arkqueue.queue import archives, claim, control, holds, locks, pauses
from arkqueue.queue.tokens import Scope
from arkqueue.views.explain import explain
from arkqueue.views.status import status
from arkqueue.web.pages import overview
from tests.builders import HOST, PROCESS, AnArchive, a_workflow, an_archive, an_entry, faulty
from tests.db.test_backfills import an_old_archive, fill, plan_all
from tests.db.test_scratch import Host
from tests.system.pages.conftest import Visitors, confirm, first, form_of, press, said


@pytest.fixture
def archive(session: Session) -> AnArchive:
    claim.register(session, PROCESS, HOST, "node2", 4)
    return an_archive(session)


def needs(browser: httpx.Client) -> list[tuple[str, str, str]]:
    page = browser.get("/?format=json").json()
    return [(need["name"], need["text"], need["verb"]) for need in page["needs"]]


def took(archive: AnArchive, number: int, length: str) -> None:
    """A completed task began so much earlier than it ended."""
    archive.run(f"pdf@{number}")
    archive.sql(
        "update attempt set started_at = ended_at - %s::interval where id = (select attempt_id from task where id = %s)",
        length, archive.task(f"pdf@{number}"),
    )  # fmt: skip


def started(archive: AnArchive, key: str, ago: str) -> None:
    """A task runs since so long."""
    archive.sql("update attempt set started_at = clock_timestamp() - %s::interval where id = %s", ago, archive.attempt(key))  # fmt: skip


def test_a_failure_that_was_repaired_and_still_holds_tasks_up_needs_a_person(
    operator: httpx.Client, archive: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = {"pdf": "", "upload": "depends: [pdf, PREV]"}
    archive.commit(tasks)
    archive.run("pdf@2", "upload@2")
    archive.commit(tasks)
    archive.fail("pdf@3")
    for number in (4, 5):
        archive.commit(tasks)
        archive.run(f"pdf@{number}")
    assert archive.state("upload@4") == "waiting"
    text = "repaired by a later revision, but upload waits for 3/pdf (failed), through 3/upload"
    assert needs(operator) == [("papers@3/pdf", text, "skip")]
    assert [need.command for need in status(archive.session, None, None, 90).needs] == ["arkqueue skip papers@3/pdf"]
    # The overview does not read why tasks wait in an archive that is not on its page.
    an_archive(archive.session, "first")
    monkeypatch.setattr(overview, "PAGE", 1)
    text = "repaired by a later revision, but later tasks wait behind it"
    assert needs(operator) == [("papers@3/pdf", text, "skip")]
    confirm(operator, press(operator, "/", "papers@3/pdf", "skip", sure=""))
    assert needs(operator) == []
    assert archive.state("upload@4") == "ready"


def test_the_oldest_of_the_repaired_failures_comes_first_and_the_others_are_counted(
    operator: httpx.Client, archive: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = {"pdf": "", "upload": "depends: [pdf, PREV]"}
    archive.commit(tasks)
    archive.run("pdf@2", "upload@2")
    for number in range(3, 10):
        archive.commit(tasks)
        (archive.run if number in (4, 6, 9) else archive.fail)(f"pdf@{number}")
    states = {key: state for key, state in archive.states().items() if key.startswith("upload")}
    assert [key for key, state in states.items() if state == "waiting"] == ["upload@4", "upload@6", "upload@9"]
    assert states["upload@8"] == "skipped", "7/pdf holds up nothing but the skipped 8/upload, and 9/upload through it"
    why = "repaired by a later revision, but"
    found = [
        ("papers@3/pdf", f"{why} upload waits for 3/pdf (failed), through 3/upload", "skip"),
        *((f"papers@{number}/pdf", f"{why} later tasks wait behind it", "skip") for number in (5, 7, 8)),
    ]
    assert needs(operator) == found
    assert [need.name for need in status(archive.session, None, None, 90).needs] == [name for name, *_ in found]
    monkeypatch.setattr("arkqueue.views.needs.MOST_EACH", 1)
    assert needs(operator) == [found[0], ("papers", "and 3 more repaired failures", "")]
    assert "<title>(4) arkqueue" in operator.get("/").text
    archive.skip("pdf@3")
    assert archive.state("upload@4") == "ready", "a waiver of the oldest one frees a task"


def test_a_note_on_a_repaired_failure_hides_no_other_one(operator: httpx.Client, archive: AnArchive) -> None:
    tasks = {"pdf": "", "upload": "depends: ['PREV:pdf']"}
    archive.commit(tasks)
    archive.fail("pdf@2")
    for number in (3, 4, 5):
        archive.commit(tasks)
        (archive.fail if number == 4 else archive.run)(f"pdf@{number}")
    assert [archive.state(f"upload@{number}") for number in (3, 5)] == ["waiting", "waiting"]
    found = [
        ("papers@2/pdf", "repaired by a later revision, but upload waits for 2/pdf (failed)", "skip"),
        ("papers@4/pdf", "repaired by a later revision, but later tasks wait behind it", "skip"),
    ]
    assert needs(operator) == found
    control.note(archive.session, "known", "ann", run=RunId(archive.run_id(2)), task=archive.task("pdf@2"))
    assert needs(operator) == found[1:]
    control.note(archive.session, "known", "ann", run=RunId(archive.run_id(4)), task=archive.task("pdf@4"))
    assert needs(operator) == []


def test_a_repaired_failure_behind_a_canceled_task_needs_a_person(operator: httpx.Client, archive: AnArchive) -> None:
    """A canceled task has no root: the failure is found through the edges of the task."""
    tasks = {"pdf": "", "upload": "depends: [pdf, PREV]"}
    archive.commit(tasks)
    archive.commit(tasks)
    archive.cancel("upload@3")
    archive.fail("pdf@3")
    archive.commit(tasks)
    archive.run("pdf@2", "pdf@4")
    assert archive.state("upload@4") == "waiting"
    assert needs(operator) == [], "4/upload waits for 2/upload; what 3/upload waited for in its own run blocks nothing"
    archive.run("upload@2", "upload@4")
    archive.commit(tasks)
    archive.fail("pdf@5")
    archive.commit(tasks)
    archive.run("pdf@6")
    archive.cancel("upload@6")
    archive.commit(tasks)
    archive.run("pdf@7")
    text = "repaired by a later revision, but later tasks wait behind it"
    assert needs(operator) == [("papers@5/pdf", text, "skip")]
    confirm(operator, press(operator, "/", "papers@5/pdf", "skip", sure=""))
    assert needs(operator) == []
    assert archive.state("upload@7") == "ready"


def test_each_repaired_failure_of_a_skipped_task_needs_a_person(operator: httpx.Client, archive: AnArchive) -> None:
    """A skipped task has one root, and may wait for more failures."""
    tasks = {"pdf": "", "html": "", "upload": "depends: [pdf, html, PREV]"}
    archive.commit(tasks)
    archive.fail("pdf@2", "html@2")
    archive.commit(tasks)
    archive.run("pdf@3", "html@3")
    assert archive.state("upload@3") == "waiting"
    assert {name for name, *_ in needs(operator)} == {"papers@2/pdf", "papers@2/html"}
    control.note(archive.session, "known", "ann", run=RunId(archive.run_id(2)), task=archive.task("pdf@2"))
    assert [(name, verb) for name, _, verb in needs(operator)] == [("papers@2/html", "skip")]
    archive.skip("pdf@2")
    assert [name for name, *_ in needs(operator)] == ["papers@2/html"]
    archive.skip("html@2")
    assert needs(operator) == []
    assert archive.state("upload@3") == "ready"


def test_a_task_that_runs_far_longer_than_usual_needs_a_person(operator: httpx.Client, archive: AnArchive) -> None:
    for number in (2, 3, 4):
        archive.commit({"pdf": ""})
        took(archive, number, "4 minutes")
    archive.commit({"pdf": "", "new": ""})
    started(archive, "new@5", "3 hours")  # nobody knows how long it takes
    started(archive, "pdf@5", "13 minutes")  # three times as long, and not ten minutes longer
    assert needs(operator) == []
    started(archive, "pdf@5", "30 minutes")
    ((name, text, verb),) = needs(operator)
    assert (name, verb) == ("papers@5/pdf", "restart")
    assert text.startswith("runs on node2 for 30:0")
    assert text.endswith("and takes about 4:00 usually")
    assert re.search(r'for <span data-since="[^"]+">30:0', operator.get("/").text), "its clock goes on"
    page = first(operator, "papers@5/pdf", "restart")
    assert "1 task would be stopped papers@5/pdf" in said(page)
    confirm(operator, page)
    assert archive.sql("select stop from task where id = %s", archive.task("pdf@5"))[0]["stop"] == "restart"


def test_what_needs_a_person_is_linked_for_those_who_may_only_look(
    operator: httpx.Client, reader: httpx.Client, archive: AnArchive
) -> None:
    archive.commit({"pdf": ""})
    archive.fail("pdf@2")
    assert 'href="/papers@2/pdf">Show it</a>' in reader.get("/").text
    page = operator.get("/").text
    assert "Retry" in page
    assert "Show it" not in page


def test_a_short_task_may_take_some_minutes_longer(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"pdf": ""})
    took(archive, 2, "1 second")
    archive.commit({"pdf": ""})
    started(archive, "pdf@3", "9 minutes")
    assert needs(operator) == []


def test_a_task_whose_task_manager_is_silent_is_counted_as_gone_after_a_warning(
    operator: httpx.Client, visitor: Visitors, archive: AnArchive
) -> None:
    archive.commit({"pdf": ""})
    archive.claim("pdf@2")
    assert needs(operator) == []
    archive.sql("update task_manager set seen_at = now() - interval '5 minutes'")
    ((name, text, verb),) = needs(operator)
    assert (name, verb) == ("papers@2/pdf", "assume-gone")
    assert text == "runs on node2, whose task manager last reported 5 min ago"
    page = operator.get("/")
    assert re.search(r'last reported <time datetime="[^"]*" title="[^"]*" data-age="ago">5 min ago</time>', page.text)
    assert ">Show it</a>" in visitor(Scope.READ).get("/").text
    assert re.search(r'value="papers@2/pdf".*value="assume-gone".*>Count as gone</button>', page.text)
    shown = first(operator, "papers@2/pdf", "assume-gone")
    assert "Do this only if its machine is off" in said(shown)
    assert archive.state("pdf@2") == "running"
    confirm(operator, shown)
    assert archive.state("pdf@2") == "canceled"
    assert needs(operator) == []


def test_no_button_counts_a_task_as_gone_whose_task_manager_reports(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"pdf": ""})
    archive.claim("pdf@2")
    archive.sql("update attempt set lease_until = now() - interval '1 minute'")
    ((name, _, verb),) = needs(operator)
    assert (name, verb) == ("papers@2/pdf", "")
    assert ">Show it</a>" in operator.get("/").text


def test_who_may_not_see_an_archive_learns_nothing_of_what_hangs(
    visitor: Visitors, session: Session, archive: AnArchive
) -> None:
    archive.commit({"pdf": ""})
    archive.claim("pdf@2")
    archive.sql("update task_manager set seen_at = now() - interval '5 minutes'")
    an_archive(session, "vault")
    page = visitor(Scope.OPERATE, "vault").get("/")
    assert "papers" not in page.text
    assert "node2" not in page.text


def test_a_task_manager_with_a_full_disk_has_its_name(
    operator: httpx.Client, visitor: Visitors, archive: AnArchive
) -> None:
    archive.sql("update task_manager set low_disk = 'the disk of /srv/scratch has 1 MiB free'")
    words = said(operator.get("/"))
    assert "task manager node2 claims nothing: the disk of /srv/scratch has 1 MiB free. Remove" in words
    assert 'href="/-/task-managers">Show it' in operator.get("/").text
    assert "node2" not in visitor(Scope.OPERATE, "papers").get("/").text


def test_a_full_disk_with_kept_scratch_folders_offers_the_deletion_of_their_run(
    operator: httpx.Client, visitor: Visitors, archive: AnArchive
) -> None:
    archive.commit({"fetch": "scratch: run", "unpack": "depends: [fetch]\nscratch: run"})
    archive.commit({"fetch": "scratch: run"})
    here = Host(archive.session, "here")
    for folder in here.claims():
        here.take(folder)
        here.end(folder.attempt, code=1)
    sizes = "update scratch set made_at = now(), bytes = (case when run_id = %s then 5 else 4 end)::bigint << 30"
    archive.sql(sizes, archive.run_id(2))
    archive.sql("update task_manager set low_disk = 'the disk of /srv has 1 MiB free' where store = 'here'")
    page = operator.get("/")
    assert "The scratch folders of papers@2 there (5.0 GiB) stay for a retry." in said(page)
    assert ">Delete papers@2</button>" in page.text
    assert ">Delete papers@2<" not in visitor(Scope.READ).get("/").text
    before = press(operator, "/", "papers@2", "delete", sure="")
    confirm(operator, before)
    assert ">Delete papers@3</button>" in operator.get("/").text
    archive.sql("update scratch set bytes = 1000")
    assert 'href="/-/task-managers">Show it' in operator.get("/").text


def test_what_is_wrong_with_the_installation_has_a_button_that_helps(
    operator: httpx.Client, archive: AnArchive
) -> None:
    archive.commit({"pdf": ""})
    page = operator.get("/-/task-managers")
    drain = {"form": form_of(page), "name": "node2", "text": "new disks", "back": "/"}
    assert operator.post("/-/act/drain", data=drain).status_code == 303
    page = operator.get("/")
    assert "task manager node2 is drained by operate test: new disks" in said(page)
    resume = {"form": form_of(page), "name": "node2", "back": "/"}
    assert 'action="/-/act/resume-worker"' in page.text
    assert operator.post("/-/act/resume-worker", data=resume).headers["location"] == "/"
    assert "drained" not in said(operator.get("/"))
    assert operator.post("/-/act/pause-all", data={"form": form_of(page), "back": "/"}).status_code == 303
    page = operator.get("/")
    assert "the whole installation is paused" in said(page)
    assert operator.post("/-/act/resume-all", data={"form": form_of(page), "back": "/"}).status_code == 303
    assert "paused" not in said(operator.get("/"))


def test_a_paused_lock_is_shown_with_a_button_that_resumes_it(
    operator: httpx.Client, visitor: Visitors, archive: AnArchive
) -> None:
    archive.commit({"pdf": "lock: [tex, global/printer]"})
    locks.pause(archive.session, ArchiveId(archive.id), "tex", "the licence", "ann")
    locks.pause(archive.session, INSTALLATION, "global/printer", "no paper", "ann")
    page = operator.get("/")
    for name, why in (("papers/tex", "the licence"), ("global/printer", "no paper")):
        assert re.search(rf"{name} the lock is paused since .* by ann: {why}", said(page))
    assert page.text.count('action="/-/act/resume-lock"') == 2
    assert 'href="/papers/tex"' not in page.text
    assert line(operator)[0] == "1 run waiting, lock paused"
    assert re.search(r"The lock papers/tex is paused since .* by ann: the licence\.", said(operator.get("/papers")))
    confined = visitor(Scope.OPERATE, "papers").get("/")
    assert "global/printer the lock is paused since" in said(confined)
    assert confined.text.count('action="/-/act/resume-lock"') == 1, "that of the installation concerns every archive"
    resume = {"form": form_of(page), "name": "papers/tex", "back": "/"}
    assert operator.post("/-/act/resume-lock", data=resume).headers["location"] == "/"
    assert "papers/tex" not in said(operator.get("/"))


def line(browser: httpx.Client, name: str = "papers") -> tuple[str, list[str]]:
    """What the overview says of an archive: what goes on there, and why its tasks wait."""
    (found,) = [one for one in browser.get("/?format=json").json()["lines"] if one["archive"]["name"] == name]
    return found["now"], [wait["text"] for wait in found["waits"]]


def test_each_archive_says_what_waits_and_why(operator: httpx.Client, session: Session, archive: AnArchive) -> None:
    archive.commit({"index": "depends: [PREV]", "pdf": "depends: [index]", "upload": "depends: [pdf]"})
    assert line(operator) == ("1 run waiting", ["pdf waits for index"])
    archive.claim("index@2")
    assert line(operator) == ("1 running (index)", ["pdf waits for index"])
    archive.fail("index@2")
    archive.commit({"index": "depends: [PREV]"})
    assert line(operator) == ("1 run waiting, 1 run with failures", ["index waits for 2/index (failed)"])
    page = operator.get("/").text
    assert '<a href="/papers@3/index">index</a> waits for <a href="/papers@2/index">2/index</a> (failed)' in page
    other = an_archive(session, "maps")
    other.commit({"sign": "hold: true", "print": "depends: [sign]"})
    now, waits = line(operator, "maps")
    assert now == "1 held"
    assert waits == [
        "print waits for sign (held)",
        "sign is held by its workflow file (hold: true), until a person releases it",
    ]
    other.skip("sign@2")
    assert line(operator, "maps")[1] == []


def test_a_wait_for_a_lock_names_the_lock_and_links_its_holder(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"publish": "lock: web", "check": "lock: web"})
    archive.claim("publish@2")
    wait = "check waits for the lock papers/web, which papers@2/publish has; it is next in line"
    assert line(operator) == ("1 running (publish)", [wait])
    page = operator.get("/").text
    assert '<a href="/papers@2/check">check</a> waits for the lock papers/web, which <a href="/papers@2/publish">papers@2/publish</a> has' in page  # fmt: skip
    assert wait.removeprefix("check ") in explain(archive.session, archive.task("check@2")).text


_LINKS = re.compile('(<a href="[^"]*">)?</?u>(</a>)?')
"""The markup of the links in a reason."""


def test_the_holder_of_a_lock_in_another_archive_is_named_for_those_who_may_see_it(
    visitor: Visitors, session: Session, archive: AnArchive
) -> None:
    locks.set_capacity(session, INSTALLATION, "printer", 1, "ann")
    other = an_archive(session, "vault")
    other.commit({"secret": "lock: global/printer"})
    assert not locks.pass_on(session)
    other.claim("secret@2")
    archive.commit({"print": "lock: global/printer"})
    confined, free = visitor(Scope.OPERATE, "papers"), visitor(Scope.READ)
    for address in ("/", "/papers", "/papers@2", "/papers@2/print"):
        page = confined.get(address).text
        assert "for the lock global/printer, which a task of another archive has" in _LINKS.sub("", page), address
        assert "secret" not in page
        assert "vault" not in page
        seen = _LINKS.sub("", free.get(address).text)
        assert "for the lock global/printer, which vault@2/secret has" in seen, address
    assert '<span class="t">for the lock global/printer</span>' in confined.get("/papers").text


def test_a_wait_for_a_slot_says_how_many_are_busy(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({f"t{number}": "" for number in range(5)})
    archive.claim_some(3)
    assert line(operator)[1] == []  # it is about to be claimed
    archive.claim_some(1)
    assert line(operator)[1] == ["t4 is ready and waits for a slot (1 task manager with 4 slots, 0 free)"]
    assert "is ready and waits for a slot" in explain(archive.session, archive.task("t4@2")).text


def test_a_wait_for_a_label_says_which_no_task_manager_has(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"train": "runs_on: gpu"})
    wait = "train is ready, but no running task manager has the label gpu (`runs_on`)"
    assert line(operator)[1] == [wait]
    assert "has the label gpu (<code>runs_on</code>)</p>" in operator.get("/").text
    assert wait.removeprefix("train ") in explain(archive.session, archive.task("train@2")).text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("stopped_at = now()", "pdf is ready, but no task manager is running"),
        ("fault = 'node2 has no bash'", "pdf is ready, but no host can start it for now"),
        ("low_disk = '/srv/scratch'", "pdf is ready, but no host can start it for now"),
    ],
)
def test_a_wait_for_a_host_names_none(operator: httpx.Client, archive: AnArchive, change: str, said: str) -> None:
    archive.commit({"pdf": ""})
    archive.sql(f"update task_manager set {change}")
    assert line(operator)[1] == [said]
    assert said.removeprefix("pdf ") in explain(archive.session, archive.task("pdf@2")).text


def test_a_wait_for_a_scratch_folder_names_no_host(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"fetch": "scratch: run", "store": "scratch: run\ndepends: [fetch]"})
    here = Host(archive.session, "here")
    here.complete()
    Host(archive.session, "there")
    claim.unregister(archive.session, here.process)
    assert line(operator)[1] == ["store is ready, but its scratch folder is on a host that is away"]
    assert "its scratch folder is on machine-here" in explain(archive.session, archive.task("store@2")).text


def test_a_wait_for_a_list_says_how_many_of_its_items_are_done(operator: httpx.Client, archive: AnArchive) -> None:
    items = ", ".join("abcdefghij")
    archive.commit({"store": f"foreach: [{items}]", "publish": "depends: [store]"})
    for item in "abcdefghi":
        archive.run(f"store/{item}@2")
    archive.claim("store/j@2")
    assert line(operator)[1] == ["publish waits at the gate of store: 9 of 10 items of store have completed"]
    assert '<a href="/papers@2">store</a>: 9 of 10 items of store' in operator.get("/").text
    told = explain(archive.session, archive.task("publish@2")).text
    assert "It waits at the gate of store: 9 of 10 items of store have completed." in told


def test_an_archive_that_is_paused_or_deferred_says_since_and_until_when(
    operator: httpx.Client, archive: AnArchive
) -> None:
    archive.commit({"pdf": "retries: {max: 1, delay: 5m}", "index": ""})
    archive.claim("pdf@2")
    archive.end("pdf@2", 1)
    (wait,) = [one for one in line(operator)[1] if one.startswith("pdf")]
    assert re.fullmatch(
        r"pdf is deferred: attempt 1 failed \(exit code 1\)\. The next attempt is due at \d\d:\d\d UTC", wait
    )
    archive.sql("update task set due_at = clock_timestamp() - interval '5 minutes' where state = 'deferred'")
    (wait,) = [one for one in line(operator)[1] if one.startswith("pdf")]
    assert re.search(r"The next attempt has been due since \d\d:\d\d UTC$", wait)
    pauses.pause(archive.session, ArchiveId(archive.id), "a move", "ann")
    assert re.fullmatch(
        r"papers is paused since [-0-9: ]* UTC by ann: a move; none of its tasks starts until it is resumed",
        line(operator)[1][0],
    )


def test_what_waits_for_the_revisions_before_it_names_what_runs_there(
    operator: httpx.Client, archive: AnArchive
) -> None:
    strict = {"COMMIT": "depends: [{task: 'PREV:*', when: settled}]", "pdf": ""}
    archive.commit(strict)
    archive.claim("pdf@2")
    archive.commit(strict)
    assert line(operator)[1] == ["pdf waits for 2/pdf"]


def test_a_run_that_goes_on_shows_its_failures(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"a": "", "b": ""}, author="Ann Lee <ann@example.org>")
    archive.claim("a@2")
    assert line(operator)[0] == "2 running (a, b)"
    assert 'class="s failing' not in operator.get("/papers@2").text
    archive.fail("a@2")
    assert line(operator)[0] == "1 running (b), 1 run with failures"
    overview = operator.get("/").text
    assert '<i class="failing" title="papers@2: processing, with failures">' in overview
    assert 'class="s failing whole" title="failing"' in overview
    for page in ("/papers@2", "/-/search?q=lee", "/-/mine?author=lee"):
        assert 'title="processing, with failures"' in operator.get(page).text, page
    archive.skip("a@2")  # a waived failure is none any more
    assert line(operator)[0] == "1 running (b)"
    assert "failing" not in operator.get("/").text


def test_a_held_run_shows_its_failures(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"a": "", "b": "hold: true"})
    archive.fail("a@2")
    assert line(operator)[0] == "1 held, 1 run with failures"


def test_what_an_archive_does_now_is_never_greener_than_a_run_that_failed(
    operator: httpx.Client, archive: AnArchive
) -> None:
    archive.commit({"a": "", "b": "", "upload": "hold: true"})
    archive.run("b@2")
    archive.fail("a@2")
    assert 'class="s failing whole" title="failing"' in operator.get("/").text
    archive.commit({"b": ""})
    archive.fail("b@3")
    assert line(operator)[0] == "1 held, 2 runs with failures"
    assert 'class="s failed whole" title="failed"' in operator.get("/").text
    archive.trigger(3, "b")
    archive.run("b@3.2")  # repairs it
    assert line(operator)[0] == "1 held, 1 run with failures"
    archive.skip("upload@2")
    assert line(operator)[0] == "completed, 1 run with failures"
    assert 'class="s failed whole" title="failed"' in operator.get("/").text
    archive.commit(faulty())
    assert line(operator)[0] == "failed, 2 runs with failures"
    control.note(archive.session, "ann", "known", run=RunId(archive.run_id(2)), task=archive.task("a@2"))
    assert line(operator)[0] == "workflow has a fault"


def test_no_retry_is_offered_that_the_queue_refuses(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"build": "depends: [{task: PREV, when: settled}]"})
    archive.fail("build@2")
    assert needs(operator)[0][2:] == ("retry",)
    assert 'name="force"' not in operator.get("/").text
    archive.commit({"build": "depends: [{task: PREV, when: settled}]"})
    archive.claim("build@3")
    ((name, text, verb),) = needs(operator)
    assert (name, verb) == ("papers@2/build", "retry")
    assert "later revisions have already run" in text
    page = operator.get("/")
    assert "Retry all the same" in page.text
    assert 'name="force" value="yes"' in page.text
    grid = operator.get("/papers").text
    assert grid.count("Retry all the same") == grid.count('name="force" value="yes"') == 1
    told = {"form": form_of(page), "name": name, "verb": verb, "back": "/", "force": "yes"}
    before = operator.post("/-/act", data=told)
    why = "A plain retry would be refused : papers@2/build: tasks of later revisions have started after it: papers@3/build."
    assert why in said(before), "nobody has seen the refusal yet"
    assert archive.state("build@2") == "failed"  # the consequences come first
    confirm(operator, before)
    assert archive.state("build@2") == "ready"


def test_a_failure_of_a_dropped_revision_has_the_true_reason_and_is_waived(
    operator: httpx.Client, archive: AnArchive
) -> None:
    archive.commit({"build": "depends: [PREV]", "pack": "foreach: [x, y]"})
    archive.fail("build@2", "pack/x@2", "pack/y@2")
    archive.append("", [an_entry(3, a_workflow({"build": "depends: [PREV]"}))], dropped=["2"])
    of_list, of_build = sorted(needs(operator), key=lambda need: need[0], reverse=True)
    run = said(operator.get("/papers@2"))
    assert "failed. A rewrite of the branch dropped this revision, so nothing will run it." in run
    assert "Waive what failed" in run
    assert "Retry what failed" not in run
    assert [row.count(">dropped<") for row in operator.get("/papers").text.split("<tr")[-3:]] == [0, 1, 0]
    why = "exit code 1 · a rewrite of the branch dropped its revision at "
    assert of_build[0] == "papers@2/build"
    assert of_build[1].startswith(why)
    assert of_build[2] == "skip"
    assert (of_list[0], of_list[2]) == ("papers@2/pack/*", "")
    for page in "/", "/papers", "/papers@2", "/papers@2/build":
        text = operator.get(page).text
        assert not re.search(">Retry( all the same| what failed)?<", text), page
        assert "later revisions have already run" not in text, page
    assert ">Waive</button>" in operator.get("/papers@2/build").text
    told = {"form": form_of(operator.get("/")), "name": "papers@2/build", "verb": "skip", "back": "/"}
    confirm(operator, operator.post("/-/act", data=told))
    assert archive.state("build@3") == "ready", "the waiver lets it go on"


def test_a_failure_that_the_settings_cause_leads_to_the_settings(admin: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"build": ""})
    archives.change_settings(archive.session, ArchiveId(archive.id), ArchiveSettings(), "ann")
    said_of = (
        "archive papers: its tasks may not run as processes on a task manager's host, and this task names no image"
    )
    archive.end("build@2", None, End.NOT_PERMITTED, message=said_of)
    assert needs(admin) == [("papers@2/build", f"could not be started: {said_of}", "archive set")]
    link = '<a class="b small do" href="/-/settings/papers">Settings</a>'
    page = admin.get("/").text
    assert link in page
    assert ">Retry<" not in page
    for address, kind in {"/papers": "small", "/papers@2": "do", "/papers@2/build": "do"}.items():
        page = admin.get(address).text
        assert f'<a class="b {kind}" href="/-/settings/papers">Settings</a>' in page, address
        assert not re.search(">Retry( what failed)?<", page), address
    told = explain(archive.session, archive.task("build@2"))
    assert "A retry helps only after the settings of the archive have been changed." in told.text
    assert "arkqueue retry papers@2/build" not in told.commands
    archives.change_settings(archive.session, ArchiveId(archive.id), ArchiveSettings(tier=3), "ann")
    assert needs(admin)[0][2] == "archive set", "this setting does not decide that"
    archives.change_settings(archive.session, ArchiveId(archive.id), ArchiveSettings(process=True), "ann")
    assert needs(admin)[0][2] == "retry"
    assert "arkqueue retry papers@2/build" in explain(archive.session, archive.task("build@2")).commands
    for address in ("/papers", "/papers@2", "/papers@2/build"):
        assert re.search(">Retry( what failed)?<", admin.get(address).text), address


def test_items_and_runs_of_a_backfill_that_the_settings_cause_to_fail_lead_to_the_settings(
    admin: httpx.Client, session: Session
) -> None:
    archive = an_old_archive(session)
    fill(archive, 2, 3)
    plan_all(archive)
    archive.commit({"pack": "foreach: [x, y]"})
    archives.change_settings(session, ArchiveId(archive.id), ArchiveSettings(), "ann")
    for key in ("thumbs@2.2", "pack/x@6"):
        archive.end(key, None, End.NOT_PERMITTED, message="archive papers: its tasks may not")
    archive.fail("thumbs@3.2")
    filled, item = (admin.get(f"/papers@{address}").text for address in ("fill:1", "6/*/x"))
    assert (filled.count(">Settings<"), filled.count(">Retry what failed<")) == (1, 1)
    assert (item.count(">Settings<"), item.count(">Retry")) == (2, 0)
    archive.fail("pack/y@6")
    assert ">Retry what failed<" in admin.get("/papers@6").text, "a retry helps one of them"


def test_a_task_manager_that_started_later_may_have_a_default_image(admin: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"build": "", "named": "image: 'debian:13'"})
    archives.change_settings(archive.session, ArchiveId(archive.id), ArchiveSettings(images=("alpine",)), "ann")
    for key in ("build@2", "named@2"):
        archive.end(key, None, End.NOT_PERMITTED, message="archive papers: its tasks may not")
    assert {name: verb for name, _, verb in needs(admin)} == dict.fromkeys(("papers@2/build", "papers@2/named"), "archive set")  # fmt: skip
    claim.register(archive.session, "later", "host-2", "node2", 4)
    assert {name: verb for name, _, verb in needs(admin)} == {
        "papers@2/build": "retry", "papers@2/named": "archive set",
    }  # fmt: skip


def test_failed_items_of_a_list_are_one_line_with_one_button(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"pack": "foreach: [x, y, z]\ndepends: [{task: PREV, when: settled}]"})
    archive.fail("pack/x@2", "pack/y@2")
    every = "papers@2/pack/*"
    assert needs(operator) == [(every, "2 items failed, the first x: exit code 1", "retry")]
    assert "(2) arkqueue" in operator.get("/").text
    grid = said(operator.get("/papers"))
    assert "2 failures need you : 2/pack/* (2)." in grid
    archive.commit({"pack": "foreach: [x, y, z]\ndepends: [{task: PREV, when: settled}]"})
    archive.claim("pack/x@3")
    page = operator.get("/")
    assert "Retry all the same" in page.text
    told = {"form": form_of(page), "name": every, "verb": "retry", "back": "/", "force": "yes"}
    before = operator.post("/-/act", data=told)
    assert "papers@2/pack/y" in said(before)
    why = "A plain retry would be refused : papers@2/pack/x: tasks of later revisions have started after it: papers@3/pack/x; 1 more task is refused."
    assert why in said(before)
    confirm(operator, before)
    assert (archive.state("pack/x@2"), archive.state("pack/y@2")) == ("ready", "ready")


def test_a_rejected_task_can_be_waived_and_not_retried(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"build": ""})
    archive.end("build@2", 65)
    assert needs(operator) == [("papers@2/build", "rejected: exit code 65", "skip")]


def test_the_plot_of_the_queue_ends_with_what_is_ready_now(admin: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"a": "", "b": ""})
    archive.sql("insert into queue_depth values (now() - interval '20 minutes', 112, 4)")
    words = said(admin.get("/"))
    assert "2 ready and not started now, 112 at most so far" in words
    archive.sql("insert into queue_depth values (now() - interval '40 minutes', 31, 4)")
    words = said(admin.get("/"))
    assert re.search(r"2 now · 112 between \d\d:\d0 and \d\d:\d0 UTC", words)
    archive.sql("update queue_depth set ready = 1")
    assert "2 now, the most of the day" in said(admin.get("/"))


def test_the_overview_takes_few_round_trips_however_much_needs_a_person(
    operator: httpx.Client, archive: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each round trip waits for a processor where the host is busy."""
    for number in range(2, 6):
        archive.commit({"check": "", "pdf": "", "upload": "hold: true"})
        archive.fail(f"check@{number}")
    started(archive, "pdf@5", "3 hours")
    operator.get("/")
    asked: list[int] = []
    run = of_sessions.run

    def counted(connection: Connection, calls: Sequence[Call]) -> list[Answer]:
        asked.append(len(calls))
        return run(connection, calls)

    monkeypatch.setattr(of_sessions, "run", counted)
    page = operator.get("/")
    assert "papers@5/check" in page.text
    assert "papers@5/upload" in page.text
    assert len(asked) <= 18, asked
    assert sum(asked) >= len(asked) + 4


def test_a_noisy_archive_hides_the_failures_of_no_other(
    operator: httpx.Client, session: Session, archive: AnArchive
) -> None:
    names = [f"t{number}" for number in range(30)]
    maps = an_archive(session, "maps")
    maps.commit({"tile": ""})
    maps.fail("tile@2")
    archive.commit(dict.fromkeys(names, ""))
    archive.fail(*(f"{name}@2" for name in names))
    told = [(name, text) for name, text, _ in needs(operator)]
    assert "maps@2/tile" in [name for name, _ in told]
    assert ("papers", "and 25 more failures") in told
    assert len(told) == 7
    page = operator.get("/")
    assert "<title>(31) arkqueue</title>" in page.text
    assert said(page).startswith("Needs you 31 ")
    assert '<a href="/papers?state=unhandled">' in page.text
    assert operator.get("/papers?format=json").json()["failed"] == 30
    assert ">30 failures<" in operator.get("/papers?format=svg").text


@pytest.mark.usefixtures("archive")
def test_each_archive_with_a_failure_is_named_when_there_are_many(
    operator: httpx.Client, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arkqueue.views.needs.MOST_NEEDS", 2)
    for name in ("maps", "stamps", "books"):
        other = an_archive(session, name)
        other.commit({"a": "", "b": "", "c": "hold: true"})
        other.fail("a@2", "b@2")
    page = operator.get("/")
    assert "<title>(9) arkqueue</title>" in page.text
    assert [name for name, *_ in needs(operator)] == ["books@2/a", "books", "stamps@2/a", "stamps", "books@2/c", "stamps@2/c"]  # fmt: skip
    assert ("stamps", "and 1 more failure", "") in needs(operator)
    assert "1 more archive maps (3)" in said(page)
    assert '<a href="/maps?state=unhandled"><u>maps</u></a>' in page.text


def test_faults_of_workflow_files_count_also_in_archives_of_a_later_page(
    operator: httpx.Client, session: Session, archive: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arkqueue.web.pages.overview.PAGE", 1)
    zines = an_archive(session, "zines")
    zines.commit(faulty())
    archive.commit({"pdf": ""})
    assert [name for name, *_ in needs(operator)] == ["zines@2"]
    assert "<title>(1) arkqueue</title>" in operator.get("/").text
    zines.commit({"pdf": ""})
    assert needs(operator) == []
    archive.sql("update task_manager set low_disk = 'the disk of /srv/scratch has 1 MiB free'")
    assert "<title>(1) arkqueue</title>" in operator.get("/").text
    for number in (0, 99):
        assert "No archive is watched" not in operator.get(f"/?page={number}").text, "there is no such page"


def test_what_runs_is_said_to_be_in_the_runs_where_it_runs(operator: httpx.Client, archive: AnArchive) -> None:
    for number in (2, 3):
        archive.commit({"index": "", "pdf": "depends: [index]\nhold: true", "check": ""})
        archive.run(f"index@{number}", f"check@{number}")
    archive.commit({"index": ""})
    archive.claim("index@4")
    assert line(operator)[0] == "1 running (index)"


def test_tasks_that_one_hold_holds_are_released_together_after_a_look_at_them(
    operator: httpx.Client, archive: AnArchive
) -> None:
    holds.hold_archive(archive.session, ArchiveId(archive.id), "ben", reason="an audit")
    for _ in range(2):
        archive.commit({"a": "", "b": "depends: [a]"})
    holds.unhold(archive.session, ArchiveId(archive.id), "ben")
    assert needs(operator) == [("papers", "4 tasks are held by ben: an audit", "release")]
    page = first(operator, "papers", "release")
    assert archive.state("a@2") == "held", "the consequences come first"
    assert "Release papers? Its held tasks may start" in said(page)
    assert confirm(operator, page).status_code == 303
    assert archive.state("a@2") == "ready"
    assert needs(operator) == []


def test_what_later_revisions_have_made_outdated_is_released_so_that_it_is_not_refused(
    operator: httpx.Client, archive: AnArchive
) -> None:
    holds.hold_archive(archive.session, ArchiveId(archive.id), "ben", reason="an audit")
    archive.commit({"a": "", "b": ""})
    archive.commit({"c": "hold: true"})
    holds.unhold(archive.session, ArchiveId(archive.id), "ben")
    archive.commit({"a": "", "c": ""})
    archive.run("a@4", "c@4")
    assert needs(operator) == [
        (
            "papers",
            "2 tasks are held by ben: an audit · later revisions have already run, so this waives the outdated tasks, and releases the rest",
            "release",
        ),
        ("papers@3/c", "is held by its workflow file · later revisions have already run", "release"),
    ]
    page = operator.get("/")
    assert "Release the rest" in page.text
    assert "It may replace newer results with older ones." in said(page)
    assert '<input type="hidden" name="skip_outdated" value="yes">' in page.text
    form = {"verb": "release", "back": "/", "form": form_of(page)}
    fields = form | {"name": "papers@3/c", "force": "yes", "text": "seen by Ann"}
    page = operator.post("/-/act", data=fields)
    assert "A plain release would be refused : papers@3/c: would replace the work of later revisions" in said(page)
    confirm(operator, page)
    assert archive.state("c@3") == "ready"
    kept = "select note from deed where verb = 'release' order by id desc limit 1"
    assert archive.sql(kept) == [{"note": "seen by Ann"}]
    fields = form | {"name": "papers", "skip_outdated": "yes"}
    page = operator.post("/-/act", data=fields)
    assert "would be waived papers@2/a" in said(page)
    why = "A plain release would be refused in part : papers@2/a: would replace the work of later revisions: papers@4/a completed."
    assert why in said(page)
    confirm(operator, page)
    assert (archive.state("a@2"), archive.state("b@2")) == ("skipped", "ready")


def test_the_age_of_an_archive_is_that_of_the_revision_beside_it(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"pdf": "on: [commit, manual]"})
    archive.sql("update run set created_at = now() - interval '3 days' where number = %s", archive.numbers[""])
    archive.trigger(archive.numbers[""], "pdf")
    (line,) = operator.get("/?format=json").json()["lines"]
    age = datetime.now(UTC) - datetime.fromisoformat(line["made_at"])
    assert age.days == 3
    row = operator.get("/").text.partition('class="of-archive"')[2].partition("</tr>")[0]
    assert row.index(line["message"]) < row.index(line["made_at"][:10]) < row.index('class="strip"')


def test_the_strip_of_an_archive_has_its_last_30_runs_the_newest_at_the_end(
    operator: httpx.Client, archive: AnArchive
) -> None:
    for number in range(2, 34):
        archive.commit({"pdf": ""})
        archive.end(f"pdf@{number}", 1 if number in (3, 4, 33) else 0)
    page = operator.get("/")
    strip = re.findall(r'<i class="(\w+)" title="(papers@\d+): ', page.text)
    assert [name for _, name in strip] == [f"papers@{number}" for number in range(4, 34)]
    assert [name for shape, name in strip if shape == "failed"] == ["papers@4", "papers@33"]
    assert 'aria-label="the last 30 runs"' in page.text


@pytest.mark.usefixtures("archive")
def test_an_archive_that_has_not_run_yet_does_not_look_as_if_it_had(operator: httpx.Client) -> None:
    row = operator.get("/").text.partition('class="of-archive"')[2].partition("</tr>")[0]
    assert '<i class="left" title="papers@1: watching begins here"></i>' in row
    assert "no run yet" in row
    page = operator.get("/-/mine", params={"author": "ann"})
    assert "watching begins here" in said(page)
    assert "completed" not in said(page)


def test_a_run_that_waits_for_a_release_says_so_above_the_grid(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"build": "", "publish": "hold: true\ndepends: [build]", "after": "depends: [publish]"})
    here = archive.numbers[""]
    assert "waits for a release" not in said(operator.get("/papers"))
    archive.run(f"build@{here}")
    assert f"{here} waits for a release of publish ; it was planned" in said(operator.get("/papers"))
    assert "1 · 0 running · 1 waiting · 1 held" in said(operator.get("/"))


def test_a_held_task_that_waits_for_another_run_waits_for_that_and_not_for_a_release(
    operator: httpx.Client, archive: AnArchive
) -> None:
    workflow = {"index": "", "upload": "depends: [index, PREV]", "publish": "depends: [upload]\nhold: true"}
    for _ in range(2):
        archive.commit(workflow)
    before, here = archive.numbers[""] - 1, archive.numbers[""]
    archive.run(f"index@{before}", f"index@{here}")
    archive.fail(f"upload@{before}")
    page = operator.get("/papers")
    assert f"{here} waits for {before}/upload ; it was planned" in said(page)
    assert "waits for a release" not in said(page)
    own = f"papers@{here}/publish is held by its workflow file, and waits for papers@{here}/upload."
    assert f'title="{own}"' in page.text
    assert "2 tasks wait." in said(operator.get(f"/papers@{here}"))
    assert [verb for _, _, verb in needs(operator)] == ["retry"]


def test_a_held_task_that_waits_for_another_run_alone_says_so_above_the_grid(
    operator: httpx.Client, archive: AnArchive
) -> None:
    for _ in range(2):
        archive.commit({"publish": "depends: [PREV]\nhold: true"})
    before, here = archive.numbers[""] - 1, archive.numbers[""]
    page = operator.get("/papers")
    assert f"{here} waits for {before}/publish ; it was planned" in said(page)
    rows = [row for row in page.text.split("<tr") if "held: it waits for a release" in row]
    assert [f'href="/papers@{before}"' in row for row in rows] == [True]
    holds.release(archive.session, archive.task(f"publish@{before}"), "ann")
    archive.run(f"publish@{before}")
    assert f"{here} waits for a release of publish ; it was planned" in said(operator.get("/papers"))


STOPPED = (
    "file:///srv/svn/papers: has another UUID. Bring the right one back, then: arkqueue sync papers;"
    " if it is meant to be as it is now: arkqueue archive rewind papers REV"
)
FILLED = re.compile(r'<(?:a|button|summary) class="b (?:small )?do[^>]*>([^<]*)<')
FILLED_IN_HEAD = re.compile(r'(?:class="b (?:cut-short )?do" data-verb="[^>]*|<summary class="b do")>([^<]*)<')


def test_a_stopped_archive_is_read_again_or_rewound_with_one_click(
    admin: httpx.Client, operator: httpx.Client, archive: AnArchive
) -> None:
    archive.commit({"pdf": ""})
    archives.stop(archive.session, ArchiveId(archive.id), STOPPED)
    rewind = '<a class="b small" href="/-/settings/papers?open=rewind">Rewind</a>'
    card = admin.get("/").text.partition('class="needs"')[2].partition("</ul>")[0]
    assert FILLED.findall(card) == ["Read it now"]
    assert rewind in card
    assert rewind not in operator.get("/").text
    form = admin.get("/-/settings/papers?open=rewind").text
    assert re.search(r'<details class="ask" open><summary class="b ?">Rewind<', form)
    assert form.index("Stopped: file:") < form.index("<h1>Settings of papers"), "the open form hides what is below"
    archive.sql("update archive set kind = 'git'")  # it has no form for a corrected author or date
    for visitor, query in ((admin, ""), (admin, "?open=bogus"), (admin, "?open=accept"), (operator, "?open=rewind")):
        page = visitor.get(f"/-/settings/papers{query}").text
        assert '<details class="ask" open>' not in page
        assert page.index("<h1>Settings of papers") < page.index("Stopped: file:"), query


def test_a_correction_that_stops_an_archive_is_accepted_from_each_page(
    admin: httpx.Client, operator: httpx.Client, archive: AnArchive
) -> None:
    """Nothing of a stopped archive starts, so the pages of its runs and tasks have the buttons that help, too."""
    archive.commit({"pdf": ""})
    archive.sql("update archive set kind = 'subversion'")
    correction = " If only its author or date was corrected: arkqueue archive accept papers@2"
    archives.stop(archive.session, ArchiveId(archive.id), f"{STOPPED}.{correction}")
    accept = 'href="/-/settings/papers?open=accept">Accept the correction</a>'
    rewind = 'href="/-/settings/papers?open=rewind">Rewind</a>'
    for page, words in (
        ("/papers", "Read it now"),
        ("/papers@2", "Read papers now"),
        ("/papers@2/pdf", "Read papers now"),
    ):
        head = admin.get(page).text.partition('<div class="head">')[2].partition('<p class="says">')[0]
        assert re.findall(r'class="b (?:cut-short )?do" data-verb="sync">([^<]*)<', head) == [words]
        assert accept in head
        assert rewind in head
        assert "?open=" not in operator.get(page).text
    card = admin.get("/").text.partition('class="needs"')[2].partition("</ul>")[0]
    assert accept in card
    assert FILLED.findall(card) == ["Read it now"]
    before, _, form = admin.get("/-/settings/papers?open=accept").text.partition('<details class="ask" open>')
    assert "Stopped: file:///srv/svn/papers: has another UUID" in before, "the open form hides what stands behind it"
    assert "has another UUID" not in form
    assert re.match(r'<summary class="b ?">Accept a correction<', form)
    assert 'name="revision" value="2"' in form.partition("</details>")[0]


def test_what_is_held_or_failed_in_a_stopped_archive_leads_to_the_end_of_the_stop(
    admin: httpx.Client, operator: httpx.Client, archive: AnArchive
) -> None:
    """The queue releases and retries none of its tasks."""
    archive.commit({"publish": "hold: true"})
    archive.commit({"pdf": ""})
    archive.fail("pdf@3")
    archives.stop(archive.session, ArchiveId(archive.id), STOPPED)
    for name, verb, words in (("publish@2", "release", "Release"), ("pdf@3", "retry", "Retry what failed")):
        task = f"papers@{name[-1]}/{name[:-2]}"
        assert press(operator, f"/{task}", task, verb).status_code == 409
        run = task.partition("/")[0]
        page = admin.get(f"/{run}")
        head = page.text.partition('<div class="head">')[2].partition('<p class="says">')[0]
        assert FILLED_IN_HEAD.findall(head) == ["Read papers now"]
        assert 'href="/-/settings/papers?open=rewind">Rewind</a>' in head
        assert re.findall(rf'<button class="b *" disabled title="papers is stopped[^"]*">{words}<', head)
        assert "papers is stopped, so none of its tasks starts: file:///srv/svn/papers: has another" in said(page)
        page = admin.get(f"/{task}")
        head = page.text.partition('<div class="head">')[2].partition('<div class="says">')[0]
        assert FILLED_IN_HEAD.findall(head) == ["Read papers now"]
    for row in ("papers@2", "papers@3"):
        assert 'data-verb="release"' not in operator.get(f"/{row}").text
        assert 'data-verb="retry"' not in operator.get(f"/{row}").text
    verbs = [(name, verb) for name, _, verb in needs(operator)]
    assert verbs == [("papers", "sync"), ("papers@3/pdf", ""), ("papers@2/publish", "")]
    card = operator.get("/").text.partition('class="needs"')[2].partition("</ul>")[0]
    assert re.findall(r'data-verb="([^"]*)"|<summary', card) == ["sync"]
    assert card.count(" · papers is stopped</p>") == 2
    archives.go_on(archive.session, ArchiveId(archive.id), STOPPED)
    assert {verb for _, _, verb in needs(operator)} == {"retry", "release"}
    page = operator.get("/papers@2")
    assert "is stopped" not in page.text
    head = page.text.partition('<div class="head">')[2].partition('<p class="says">')[0]
    assert FILLED_IN_HEAD.findall(head) == ["Release"]


def test_a_stopped_archive_has_the_waivers_that_start_nothing(
    operator: httpx.Client, archive: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    an_archive(archive.session, "a-first")
    monkeypatch.setattr(overview, "PAGE", 1)
    monkeypatch.setattr(overview, "MOST_ARCHIVES", 0)
    archive.commit({"mint": "", "check": "", "seal": "", "pack": "depends: [seal]"})
    archive.commit({"mint": "depends: [PREV]", "pack": "depends: [PREV]"})
    for name in ("mint", "check", "seal"):
        archive.end(f"{name}@2", 65)
    assert archive.states() | {"pack@2": "skipped", "mint@3": "waiting", "pack@3": "waiting"} == archive.states()
    assert {name: verb for name, _, verb in needs(operator)} == {
        f"papers@2/{name}": "skip" for name in ("mint", "check", "seal")
    }
    archives.stop(archive.session, ArchiveId(archive.id), STOPPED)
    found = {name: (verb, text.endswith(" · papers is stopped")) for name, text, verb in needs(operator)}
    assert found == {
        "papers@2/mint": ("", True), "papers@2/check": ("skip", False), "papers@2/seal": ("", True),
    }, "also of an archive of which the page has no line"  # fmt: skip
    answers = {name: first(operator, name, "skip").status_code for name in found}
    assert answers == {"papers@2/mint": 409, "papers@2/check": 200, "papers@2/seal": 409}
    confirm(operator, first(operator, "papers@2/check", "skip"))
    assert "papers@2/check" not in {name for name, _, _ in needs(operator)}


@pytest.mark.parametrize("how", ["stopped", "paused", "on hold"])
def test_a_release_promises_no_start_in_an_archive_that_starts_nothing(
    operator: httpx.Client, archive: AnArchive, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    an_archive(archive.session, "a-first")
    monkeypatch.setattr(overview, "PAGE", 1)
    monkeypatch.setattr(overview, "MOST_ARCHIVES", 0)
    archive.commit({"publish": "hold: true"})
    pages = ["/", "/papers@2/publish"]
    assert ["It may start then." in said(operator.get(page)) for page in pages] == [True, True]
    id = ArchiveId(archive.id)
    if how == "stopped":
        archives.stop(archive.session, id, STOPPED)
    elif how == "paused":
        pauses.pause(archive.session, id, "a move", "ann")
    else:
        holds.hold_archive(archive.session, id, "ann")
    assert ["It may start then." in said(operator.get(page)) for page in pages] == [False, False]


def test_the_filled_button_of_a_withheld_archive_ends_that(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"pdf": ""})

    def filled() -> set[str]:
        head = operator.get("/papers").text.partition('<div class="head">')[2].partition('<p class="says">')[0]
        return {*re.findall(r'class="b do"[^>]*>([^<]*)<', head)} & {"Trigger", "End the hold", "Resume"}

    assert filled() == {"Trigger"}
    holds.hold_archive(archive.session, ArchiveId(archive.id), "ben", reason="an audit")
    assert filled() == {"End the hold"}
    pauses.pause(archive.session, ArchiveId(archive.id), "a move", "ann")
    assert filled() == {"Resume"}


def test_the_filled_button_of_a_stopped_archive_is_not_one_that_would_be_refused(
    admin: httpx.Client, operator: httpx.Client, archive: AnArchive
) -> None:
    archive.commit({"pdf": ""})
    head = operator.get("/papers").text.partition('<div class="head">')[2].partition('<p class="says">')[0]
    assert re.search(r'class="b do" href="/-/trigger', head)
    archives.stop(archive.session, ArchiveId(archive.id), STOPPED)
    page = admin.get("/papers")
    head = page.text.partition('<div class="head">')[2].partition('<p class="says">')[0]
    assert re.search(r'value="sync">.*?<button class="b do"', head)
    assert re.search(r'<button class="b *" disabled title="papers is stopped[^"]*">Trigger<', head)
    assert head.count('value="sync"') == 1
    assert '<a class="b" href="/-/settings/papers?open=rewind">Rewind</a>' in head
    assert said(page).count("archive rewind papers REV") == 1
    archive.sql("update archive set stopped = 'it went back in time'")
    assert said(admin.get("/papers")).count("archive rewind papers REV") == 1
