"""`arkqueue doctor`: each check finds and names its kind of broken data. The fixture of each test
checks that arkqueue itself leaves nothing to find.
"""

from __future__ import annotations

import re

import pytest

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.db.session import Session
from arkqueue.errors import Conflict
from arkqueue.model import INSTALLATION, ArchiveId, End, RunId
from arkqueue.queue import archives, control, deletion, finish, holds, locks, many, notifications, redo, schedules
from arkqueue.queue.graph import Graph
from arkqueue.queue.guards import Approver
from arkqueue.views.archives import UNREADABLE
from arkqueue.views.archives import archives as list_archives
from arkqueue.views.doctor import CHECKS, MOST, examine
from arkqueue.views.explain import explain_name
from arkqueue.views.installation import measure
from arkqueue.views.locks import locks as list_locks
from arkqueue.views.runs import runs as list_runs
from arkqueue.views.status import status
from arkqueue.views.tasks import task as show_task
from tests.builders import AnArchive, an_archive
from tests.db.outbox import set_receivers
from tests.db.test_retention import a_pass, let_age, set_to_keep

GARBLED = {
    "unmet": ("update task set unmet = unmet + 1 where name = 'b' and number = 2", "papers@2/b"),
    "reports": ("update task set unmet = unmet + 1 where kind = 'report' and number = 2", "papers@2/REPORT"),
    "waiting": ("update task set unmet = 0 where name = 'b' and number = 2", "papers@2/b"),
    "met": ("update edge set met = false where target in (select id from task where name = 'b' and number = 3)", "papers@3/b"),
    "skips": ("update task set state = 'waiting', settled_at = null, root_id = null, blocks = 0 where name = 'after'", "papers@4/after"),
    "roots": ("update task set root_id = (select id from task where name = 'a' and number = 3) where name = 'after'", "papers@4/after"),
    "blocks": ("update task set blocks = 2 where name = 'a' and number = 3", "papers@3/a"),
    "running": ("update attempt set ended_at = now(), \"end\" = 'exited' where ended_at is null", "papers@2/a"),
    "attempts": ("update task set attempts = attempts + 1 where name = 'a' and number = 3", "papers@3/a"),
    "outcomes": ("update attempt set exit_code = 1 where id = (select attempt_id from task where name = 'a' and number = 3)", "papers@3/a"),
    "polls": ("update task set polls = true where name = 'a' and number = 3", "papers@3/a"),
    "marks": ("update task set stop = 'cancel' where name = 'a' and number = 3", "papers@3/a"),
    "holds": ("update task set hold_id = 0 where state = 'ready'", "papers@5/last"),
    "ready": ("update task set entry_id = 0 where state = 'ready'", "papers@5/last"),
    "turns": ("delete from ready_archive", "papers@5/last"),
    "pauses": ("update archive set paused_with_all = true", None),
    "slots": ("insert into slot select id, 1 from archive", None),
    "locks": ("update task set asks = true where state = 'ready'", "papers@5/last"),
    "holders": ("with held as (insert into lock_use (task_id, scope, name, granted, archive_id, priority, entry_id, run, position)"
                " select id, archive_id, 'tex', true, archive_id, priority, entry_id, run, position from task where state in ('ready', 'running') returning 1)"
                " update archive set uses_locks = true", "papers@5/last"),
    "tasks": ("update task set number = 99 where name = 'a' and number = 3", "papers@99/a"),
    "runs": ("update run set report_id = null where number = 3", "papers@3"),
    "deleted": ("update run set deleted_at = now() where number = 2", "papers@2/a"),
    "ledger": ("update branch set head_id = (select min(id) from revision)", None),
    "edges": ("delete from task where name = 'a' and number = 3", "papers@3/b"),
    "completions": ("delete from completion", None),
    "purged-starts": ("insert into purged_start select id, 3, 1, 'a', '' from task where name = 'a' and number = 3", "papers@3/a"),
    "names": ("delete from task_name where name = 'a'", None),
    "definitions": ("update definition set body = '{}' where body->>'name' = 'after'", "papers@4/after"),
    "declared": ("update task set program = false where name = 'last'", "papers@5/last"),
    "flags": ("insert into lock_use (task_id, scope, name, granted, archive_id, priority, entry_id, run, position) select id, archive_id, 'x', false, archive_id, 50, 1, 1, 1 from task where name = 'last'", None),
    "documents": ("update run set faults = '5' where number = 3", "papers@3"),
    "moments": ("update task set settled_at = 'infinity' where name = 'a' and number = 3", "papers@3/a"),
    "items": ("update task set item_id = 77 where name = 'a' and number = 3", "papers@3/a"),
    "scratch": ("insert into scratch (run_id, store) values (99, 'host-1')", None),
    "scratch-limit": ("with manager as (insert into task_manager (process, host, hostname, slots, store, scratch_limit) values ('m', 'h', 'one', 1, 'h', 100))"
                      " insert into scratch (run_id, store, bytes) select id, 'h', 100 from run where number = 3", "papers@3"),
    "attachments": ("insert into upload (archive_id, sender_id, store, files, size, digest, by, run_id) select id, 's', 'h', 1, 9, '', 'ann', 99 from archive", None),
    "lone-attempts": ("insert into log_chunk values (4711, 0, 'note', now(), 'x')", None),
    "lone-rows": ("insert into ending (run_id, archive_id, deed_id, entry_id, until) select 99, id, 1, 1, 1 from archive", None),
    "backfills": ("insert into backfill (archive_id, branch_id, number, revision_id, tasks, without, first, last, by)"
                  " select archive_id, id, 1, head_id, '{last,missing}', '{}', 2, 3, 'ann' from branch", None),
    "kept-reports": ("insert into report (run_id, number, state, changes, digest, tasks) select id, 2, 'failed', 0, '', '[]' from run where number = 4", "papers@4"),
    "removals": ("update attempt set outputs = '{}', outputs_removal_id = 1 where number = 1 and log_bytes > 0", "papers@2/a"),
    "logs": ("update attempt set log_bytes = 1 where log_bytes > 0", "papers@2/a"),
    "purged": ("insert into purged_run select branch_id, number, run, id, 1 from run where number = 3", "papers@3"),
    "purging": ("update archive set purges = true", None),
    "schedules": ("insert into schedule (branch_id, cron, zone, tasks, next_at, run_id) select id, '', '', '{a}', now(), 99 from branch", None),
    "times": ("insert into schedule (branch_id, cron, zone, tasks, next_at) select id, '0 3 * * *', 'Nowhere', '{a}', now() from branch", None),
    "settings": ("update archive set settings = '[]'", None),
    "sequences": ("select setval('task_id', 1)", None),
}  # fmt: skip
"""By check: what breaks its rule, and the address that is told."""


@pytest.fixture
def busy(archive: AnArchive) -> AnArchive:
    """An archive with a running task that has a log, a ready, a waiting, a completed, a failed and a skipped one."""
    archive.commit({"a": "", "b": "depends: [a]"})
    attempt = archive.attempt("a@2")
    archive.sql("update attempt set log_bytes = 5 where id = %s", attempt)
    archive.sql("insert into log_chunk values (%s, 0, 'stdout', now(), 'hello')", attempt)
    archive.commit({"a": "", "b": "depends: [a]"})
    archive.run("a@3")
    archive.commit({"bad": "", "after": "depends: [bad]"})
    archive.fail("bad@4")
    archive.commit({"last": ""})
    return archive


def test_every_check_has_a_case() -> None:
    assert set(GARBLED) == {check.name for check in CHECKS}
    assert all(check.rule.endswith(".") and check.remedy.endswith(".") for check in CHECKS)


@pytest.mark.usefixtures("busy")
def test_nothing_is_wrong_with_what_arkqueue_leaves(session: Session) -> None:
    found = examine(session)
    assert found.is_sound, found.findings
    assert [check.found for check in found.checks] == [0] * len(CHECKS)


@pytest.mark.garbles
@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("\"end\" = 'lost', exit_code = null", "it completed, and its newest attempt 1 ended as: lost"),
        ("exit_code = 65", "it completed, and its newest attempt 1 ended as: exited, exit code 65"),
    ],
)
@pytest.mark.usefixtures("busy")
def test_a_task_that_completed_although_its_attempt_did_not_is_found(session: Session, change: str, what: str) -> None:
    statement = f"update attempt set {change} where id = (select attempt_id from task where name = 'a' and number = 3)"
    session.database.retrying(lambda connection: connection.execute(statement.encode()))
    assert [(finding.name, finding.what) for finding in examine(session).findings] == [("papers@3/a", what)]


@pytest.mark.garbles
@pytest.mark.parametrize("check", GARBLED)
@pytest.mark.usefixtures("busy")
def test_what_is_garbled_is_found_and_named(session: Session, check: str) -> None:
    statement, name = GARBLED[check]
    # No foreign key holds what the checks ask for.
    session.database.retrying(lambda connection: connection.execute(statement.encode()))

    found = examine(session)

    mine = [finding for finding in found.findings if finding.check == check]
    assert mine, found.findings
    assert name in [finding.name for finding in mine]
    assert all(finding.what and finding.remedy for finding in mine)
    if check in ("scratch", "lone-attempts", "sequences"):
        assert {finding.archive for finding in mine} == {None}
    else:
        assert {finding.archive for finding in mine} == {"papers"}
        other = an_archive(session, "books")
        other.commit({"a": "", "z": ""})
        assert examine(session, other.id).is_sound


@pytest.mark.garbles
@pytest.mark.parametrize(
    ("check", "statement", "what"),
    [
        ("holds", "update branch set import_id = 99", "its import is held by an entry of the audit log that is not there"),
        ("holds", "update archive set hold_id = 99", "it is on hold by an entry of the audit log that is not there"),
        ("ledger", "update revision set previous = '1' where number = 3", "revision 3 follows 2, and says that it follows 1"),
        ("completions", "update completion set highest_number = 999999", "'a' is said to have completed at 999999, and the last revision is 5"),
        ("completions", "update completion set commit_number = 999999", "'a' is said to have completed at 999999, and the last revision is 5"),
        ("logs", "update log_chunk set position = 1", "the log of its attempt 1 has pieces that overlap, or lie behind its end"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("busy")
def test_each_part_of_a_rule_is_checked(session: Session, check: str, statement: str, what: str) -> None:
    session.database.retrying(lambda connection: connection.execute(statement.encode()))
    assert [one.what.removeprefix("branch '': ").removeprefix("branch 'main': ") for one in examine(session).findings if one.check == check] == [what]  # fmt: skip


@pytest.mark.parametrize("of_item", [True, False])
def test_the_remedy_for_an_edge_to_the_gate_of_a_list_is_accepted_and_repairs_it(
    session: Session, archive: AnArchive, of_item: bool
) -> None:
    archive.commit({"fetch": "foreach: [x, y]", "index": "depends: [fetch]"})
    archive.run("fetch/x@2")
    gate = archive.task("fetch:completed@2")
    archive.sql("update edge set met = false where target = %s and source = %s", gate, archive.task("fetch/x@2"))
    archive.sql("update task set unmet = unmet + 1 where id = %s", gate)
    archive.run("fetch/y@2")
    (finding,) = examine(session).findings
    assert (finding.name, finding.what) == (
        "papers@2/fetch:completed",
        "its edge from fetch/x at 2.1, which is completed, is not met",
    )
    assert "A gate cannot be canceled" in finding.remedy
    assert (
        "arkqueue retry RUN --from TASK; one item of a list: arkqueue retry 'RUN/*/KEY' --from TASK" in finding.remedy
    )
    again = "fetch:completed: is the gate of the list fetch: it passes by itself and cannot be canceled. run its list again: arkqueue retry papers@2 --from fetch"
    with pytest.raises(Conflict, match=again):
        archive.cancel("fetch:completed@2")
    redo.retry_from(session, RunId(archive.run_id(2)), "fetch", "ann", item="x" if of_item else None)
    archive.run("fetch/x@2", *([] if of_item else ["fetch/y@2"]), "index@2")


AT_A_LOCK = "insert into lock_use (task_id, scope, name, granted, archive_id, priority, entry_id, run, position) select id, 0, 'global/printer', true, archive_id, 50, 1, 1, 1 from task where archive_id = 1 and state = "


@pytest.mark.garbles
@pytest.mark.parametrize("state", ["completed", "failed", "held", "waiting"])
def test_the_remedy_for_a_lock_of_a_task_that_can_have_none_repairs_it(session: Session, state: str) -> None:
    archive = an_archive(session, "papers")
    archive.commit({"a": "", "bad": "", "later": "depends: [next]", "next": "hold: true"})
    archive.run("a@2")
    archive.fail("bad@2")
    archive.sql(f"{AT_A_LOCK}'{state}' and kind = 'ordinary'; update archive set uses_locks = true")
    findings = examine(session).findings
    assert {finding.check for finding in findings} == {"locks"}
    assert all("Of any other task: in a transaction that locks the archive's row" in one.remedy and "delete its rows from lock_use" in one.remedy for one in findings)  # fmt: skip
    archive.sql("delete from lock_use where task_id = any(%s)", [finding.task for finding in findings])
    assert examine(session).is_sound


@pytest.mark.garbles
@pytest.mark.parametrize(
    "garbled", ["delete from lock_use", "update lock_use set granted = false", "update lock_use set priority = 7"]
)
def test_the_remedy_for_a_ready_task_with_a_wrong_row_at_its_lock_repairs_it(session: Session, garbled: str) -> None:
    archive = an_archive(session, "papers")
    archive.commit({"a": "lock: tex"})
    archive.sql(garbled)
    findings = examine(session).findings
    assert {(finding.check, finding.name) for finding in findings} == {("locks", "papers@2/a")}
    assert "ready, running or waits for its locks: cancel and retry it" in findings[0].remedy
    archive.cancel("a@2")
    archive.retry("a@2")
    assert examine(session).is_sound
    archive.run("a@2")


@pytest.mark.garbles
def test_a_lock_of_a_task_that_has_completed_is_listed_by_nobody(session: Session) -> None:
    """The state of the task says that it has no lock any more. Only doctor names the row."""
    papers, books = an_archive(session, "papers"), an_archive(session, "books")
    papers.commit({"a": ""})
    papers.run("a@2")
    papers.sql(f"{AT_A_LOCK}'completed'")
    books.commit({"x": "lock: global/printer", "y": "lock: global/printer"})
    locks.pass_on(session)
    (view,) = list_locks(session, [ArchiveId(books.id)])
    assert ([one.full_name for one in view.holders], view.elsewhere) == (["books@2/x"], 0)
    (view,) = list_locks(session, None)
    assert [one.full_name for one in view.holders] == ["books@2/x"]
    (reason,) = explain_name(session, "books@2/y").reasons
    assert "books@2/x" in reason.text
    assert "papers" not in reason.text
    assert "other archive" not in reason.text


def grant_to_all(archive: AnArchive, lock: str) -> None:
    """Lets the tasks that wait for a lock have it, whatever its room, as a bug would."""
    waiting = [
        row["task_id"] for row in archive.sql("select task_id from lock_use where name = %s and not granted", lock)
    ]
    with archive.session.database.transaction() as connection:
        graph = Graph(connection)
        graph.ids("grant", tasks=waiting)
        graph.do("offer", archive=archive.id, tasks=waiting)


def findings_of_holders(session: Session, archive: int | None = None) -> list[tuple[str | None, str]]:
    found = examine(session, archive).findings
    assert {finding.check for finding in found} <= {"holders"}
    return sorted((finding.name, finding.what) for finding in found)


@pytest.mark.garbles
@pytest.mark.parametrize("lock", ["tex", "global/printer"])
@pytest.mark.parametrize("was_set", [False, True])
def test_more_tasks_with_a_lock_than_it_has_room_for_are_found(session: Session, lock: str, was_set: bool) -> None:
    archive, scope = an_archive(session, "papers"), INSTALLATION
    if lock == "tex":
        scope = ArchiveId(archive.id)
    if was_set:
        locks.set_capacity(session, scope, lock, 7, "ann")
        locks.set_capacity(session, scope, lock, 1, "ann")
        archive.sql("update deed set at = at - interval '11 seconds' where verb = 'lock set'")
    # An entry about a lock whose name begins alike is none about this one.
    locks.set_capacity(session, scope, f"{lock}-2", 1, "ann")
    archive.commit({"a": f"lock: {lock}", "b": f"lock: {lock}"})
    locks.pass_on(session)
    archive.claim("a@2")
    assert examine(session).is_sound
    grant_to_all(archive, lock)
    archive.claim("b@2")
    what = f"it is running, and one of 2 tasks that have the lock {lock}, which has room for 1"
    assert findings_of_holders(session) == [("papers@2/a", what), ("papers@2/b", what)]
    assert len(findings_of_holders(session, archive.id)) == 2
    archive.end("b@2")
    assert examine(session).is_sound


@pytest.mark.garbles
def test_more_tasks_that_were_granted_a_lock_than_it_has_room_for_give_it_back_by_the_remedy(session: Session) -> None:
    archive = an_archive(session, "papers")
    archive.commit({"a": "lock: tex", "b": "lock: tex"})
    grant_to_all(archive, "tex")
    assert [name for name, _ in findings_of_holders(session)] == ["papers@2/a", "papers@2/b"]
    locks.set_capacity(session, ArchiveId(archive.id), "tex", 1, "ann")
    assert archive.states() == {"a@2": "ready", "b@2": "waiting"}


@pytest.mark.parametrize("lock", ["tex", "global/printer"])
def test_tasks_that_run_on_after_the_capacity_of_their_lock_was_lowered_are_no_fault(
    session: Session, lock: str
) -> None:
    archive = an_archive(session, "papers")
    scope = ArchiveId(archive.id) if lock == "tex" else INSTALLATION
    locks.set_capacity(session, scope, lock, 2, "ann")
    archive.commit({"a": f"lock: {lock}", "b": f"lock: {lock}"})
    locks.pass_on(session)
    archive.claim()
    locks.set_capacity(session, scope, lock, 1, "ann")
    assert {archive.state(key) for key in ("a@2", "b@2")} == {"running"}
    assert examine(session).is_sound


LONE_ROWS = {
    "insert into lock_use (task_id, scope, name, granted, archive_id, priority, entry_id, run, position) select 4711, id, 'tex', true, id, 50, 1, 1, 1 from archive": "the lock tex is occupied by a task that does not exist (lock_use)",
    "insert into lock_use (task_id, scope, name, granted, archive_id, priority, entry_id, run, position) select 4711, 0, 'gpu', false, id, 50, 1, 1, 1 from archive": "the lock gpu is waited for by a task that does not exist (lock_use)",
    "insert into planning (run_id, archive_id, branch_id, names, without, behind, items) select 4711, archive_id, id, '{}', '{}', 0, 1 from branch": "a run that does not exist (4711) is being planned (planning)",
    "insert into planning (run_id, archive_id, branch_id, names, without, behind, items, to_let_in) select r.id, archive_id, branch_id, '{}', '{}', 0, 1, '{4711}' from run r where number = 5": "a task that does not exist waits for its run to be let in (planning)",
    "insert into superseding (task_id, name, here, unstarted, archive_id, branch_id, run_id, number, run, item) select 4711, 'a', false, false, archive_id, branch_id, id, number, run, '' from run where number = 5": "a task that does not exist cancels a in steps (superseding)",
    "insert into delivery (archive_id, run_id, occasion, receiver, until) select id, 4711, 'failed', 'a@example.org', now() from archive": "notification 1 is about a run that does not exist (4711) (delivery)",
    "insert into delivery (archive_id, run_id, occasion, receiver, tasks, until) select archive_id, id, 'failed', 'a@example.org', '{4711}', now() from run where number = 5": "notification 1 is about a task that does not exist (delivery)",
}  # fmt: skip


@pytest.mark.garbles
@pytest.mark.parametrize("statement", LONE_ROWS)
@pytest.mark.usefixtures("busy")
def test_a_row_about_a_run_or_task_that_does_not_exist_is_found(session: Session, statement: str) -> None:
    session.database.retrying(lambda connection: connection.execute(statement.encode()))
    (mine,) = [finding for finding in examine(session).findings if finding.check == "lone-rows"]
    assert (mine.archive, re.sub("notification [0-9]+", "notification 1", mine.what)) == (
        "papers",
        LONE_ROWS[statement],
    )


UNREADABLE_BODIES = {
    "'[1, 2]'": "Input should be",
    "'7'": "Input should be",
    """body || '{"retries": 3}'""": "(retries: ",
    """body || '{"poll": 3}'""": "(poll: ",
    """body || '{"on_lost": []}'""": "(on_lost: ",
    """body || '{"depends": [{"task": 7}]}'""": "(depends.0",
}


@pytest.mark.garbles
@pytest.mark.parametrize("body", UNREADABLE_BODIES)
def test_a_definition_that_no_task_manager_can_read_is_named_and_the_remedy_repairs_it(
    session: Session, archive: AnArchive, body: str
) -> None:
    archive.commit({"a": "", "b": ""})
    archive.run("b@2")
    archive.sql(f"update definition set body = {body} where body->>'name' = 'a'")
    attempt = archive.attempt("a@2")
    archive.record(attempt, End.EXITED, 1)
    (finding,) = examine(session, archive.id).findings
    assert (finding.check, finding.name) == ("definitions", "papers@2/a")
    assert UNREADABLE_BODIES[body] in finding.what
    (row,) = archive.sql("select message from attempt where id = %s", attempt)
    assert row["message"].startswith("the definition of the task: cannot be read (")
    assert row["message"].endswith("). arkqueue doctor says what helps")
    assert archive.state("a@2") == "failed"

    archive.trigger(2)  # the first sentence of the remedy
    assert examine(session).is_sound
    archive.retry("a@2")
    archive.run("a@2")
    assert archive.state("a@2") == "completed"


@pytest.mark.garbles
def test_delays_that_are_no_sensible_numbers_are_no_reason_to_run_for_ever(archive: AnArchive) -> None:
    archive.commit({"a": "retries: 2"})
    archive.sql("""update definition set body = body || '{"retries": {"max": 3, "delay": -1e300}}'""")
    archive.fail("a@2")


@pytest.mark.garbles
def test_that_there_are_more_is_said(archive: AnArchive, session: Session) -> None:
    archive.commit({f"t{n}": "" for n in range(MOST + 1)})
    archive.sql("update task set priority = 60, unmet = 1 where kind = 'ordinary'")
    (unmet,) = [check for check in examine(session).checks if check.check == "unmet"]
    assert (unmet.found, unmet.more) == (MOST, True)


# A row that is garbled in one archive stops no other

IN_ONE_ARCHIVE = {
    "a definition that is none": "update definition set body = '[1, 2]', cancels = '7' where id in (select definition_id from task where archive_id = 1)",
    "a definition with a field that is none": "update definition set body = body || '{\"retries\": 3, \"poll\": 3, \"on_lost\": []}' where id in (select definition_id from task where archive_id = 1)",
    "a definition that is not there": "update task set definition_id = 4711 where archive_id = 1 and state <> 'waiting'",
    "a counter of unmet edges": "update task set unmet = -3 where archive_id = 1",
    "a ready task without a place": "update task set entry_id = null, pool = null where archive_id = 1 and state = 'ready'",
    "a task whose run is gone": "update task set run_id = 4711 where archive_id = 1 and kind = 'ordinary'",
    "an attempt that has ended": "update attempt set ended_at = now(), \"end\" = 'exited' where task_id in (select id from task where archive_id = 1)",
    "settings that are none": "update archive set settings = '[]' where id = 1",
    "a rule of age that is none": 'update archive set settings = settings || \'{"keep": {"completed": "soon"}}\' where id = 1',
    "receivers that are none": "update archive set settings = settings || '{\"notify\": 3}' where id = 1",
    "guards that are none": 'update archive set settings = settings || \'{"require_approval": "publish"}\' where id = 1',
    "a schedule that is none": "insert into schedule (branch_id, cron, zone, tasks, next_at) select id, 'nonsense', 'Nowhere', '{a}', now() - interval '1 day' from branch where archive_id = 1",
    "faults that are none": "update run set faults = '[5]' where archive_id = 1",
    "files that are none": "update workflow set tasks = '7', faults = '{}' where id in (select r.workflow_id from revision r join branch b on b.id = r.branch_id where b.archive_id = 1)",
    "a task without an end": "update task set settled_at = 'infinity' where archive_id = 1 and settled_at is not null",
    "a run and a revision of no time": "with run as (update run set created_at = 'infinity' where archive_id = 1) update revision set date = '-infinity' where branch_id in (select id from branch where archive_id = 1)",
    "a pause since ever": "update archive set paused_at = 'infinity', paused_by = 'ann', read_at = '-infinity' where id = 1",
    "a pool that nobody has": "update ready_archive set pools = '{nothing}' where archive_id = 1",
    "a lock of a task that has completed": "insert into lock_use (task_id, name, archive_id, scope, granted, priority, entry_id, run, position) select id, 'global/printer', 1, 0, true, 50, 1, 1, 1 from task where archive_id = 1 and state = 'completed' limit 1",
    "a lock of a task that waits for another": "insert into lock_use (task_id, name, archive_id, scope, granted, priority, entry_id, run, position) select id, 'global/printer', 1, 0, true, 50, 1, 1, 1 from task where archive_id = 1 and state = 'waiting' limit 1",
    "a lock of a task that is not there": "insert into lock_use (task_id, name, archive_id, scope, granted, priority, entry_id, run, position) select 4711, 'global/printer', 1, 0, true, 50, 1, 1, 1",
    "a wait for a lock of a task that has completed": "insert into lock_use (task_id, name, archive_id, scope, granted, priority, entry_id, run, position) select id, 'global/printer', 1, 0, false, 50, 1, 1, 1 from task where archive_id = 1 and state = 'completed' limit 1",
    "a wait for a lock of a task that is not there": "insert into lock_use (task_id, name, archive_id, scope, granted, priority, entry_id, run, position) select 4711, 'global/printer', 1, 0, false, 50, 1, 1, 1",
}  # fmt: skip
OF_SETTINGS = ("settings that are none", "receivers that are none", "guards that are none")


def beside_what_is_garbled(session: Session, garbled: str) -> AnArchive:
    """An archive beside one in which something is garbled."""
    papers = an_archive(session, "papers")
    assert papers.id == 1
    papers.commit({"a": "", "mine": "", "b": "depends: [a]", "c": "depends: [mine]\ncancels: [PREV]"})
    papers.commit({"a": "", "mine": "command: other", "b": "depends: [a]", "c": "depends: [mine]\ncancels: [PREV]"})
    papers.claim("a@2")
    books = an_archive(session, "books")
    for archive in (papers, books):
        set_receivers(archive, ci=["completed"])
    books.commit({"x": "command: x", "y": "command: y\ndepends: [x]\nretries: {max: 1, delay: 0.001s}"})
    session.database.retrying(lambda connection: connection.execute(IN_ONE_ARCHIVE[garbled].encode()))
    return books


@pytest.mark.garbles
@pytest.mark.parametrize("garbled", IN_ONE_ARCHIVE)
def test_what_is_garbled_in_one_archive_hides_and_stops_no_other(session: Session, garbled: str) -> None:
    books = beside_what_is_garbled(session, garbled)
    assert "books@2" in [run.full_name for run in list_runs(session).runs]
    listed = {archive.name: archive.trouble for archive in list_archives(session)}
    assert listed == {"papers": UNREADABLE if garbled in OF_SETTINGS else None, "books": None}

    books.run("x@2")  # a claim, an end, and what follows from it
    assert books.state("y@2") == "ready"
    books.sql("update attempt set lease_until = now() - interval '1 hour'")  # both archives' attempts are silent
    schedules.fire(session)
    finish.wake_deferred(session)
    finish.lapse(session, lease=0.0, gap=1e9)
    books.commit({"x": "command: x", "y": "command: y\ndepends: [x, PREV]", "z": "lock: global/printer"})
    locks.pass_on(session)
    books.run("y@2", "x@3", "y@3", "z@3")
    assert {books.state(key) for key in ("x@2", "y@2", "x@3", "y@3", "z@3")} == {"completed"}
    assert measure(session).archives == 2
    assert [run.full_name for run in list_runs(session, archives=[books.id], limit=1).runs] == ["books@3"]
    assert explain_name(session, "books@3/y").reasons
    judged, told = notifications.judge(session), books.sql("select occasion from delivery")
    assert (judged, told) == (False, [{"occasion": "completed"}] * 2)


@pytest.mark.garbles
@pytest.mark.parametrize("garbled", IN_ONE_ARCHIVE)
def test_what_is_garbled_in_one_archive_stops_no_purge_by_age_and_no_verb_on_many_of_another(
    session: Session, garbled: str
) -> None:
    tasks = {"a": "", "b": "depends: [a]", "c": "depends: [b]"}
    papers, books = an_archive(session, "papers"), an_archive(session, "books")
    assert papers.id == 1
    for archive in (papers, books):
        archive.commit({"old": ""})
        archive.run("old@2")
        let_age(archive, 2, 40)
        set_to_keep(archive, {"completed": "30d"}, "10d")
        archive.commit(tasks)
        archive.fail("a@3")
        archive.commit(tasks)
    session.database.retrying(lambda connection: connection.execute(IN_ONE_ARCHIVE[garbled].encode()))

    def states(number: int) -> list[str]:
        return [books.state(f"{name}@{number}") for name in tasks]

    three, four = (RunId(books.run_id(number)) for number in (3, 4))
    a_pass(session)
    assert "old@2" not in books.states()
    assert {run.archive for run in list_runs(session, limit=50).runs} == {"papers", "books"}
    assert len(many.retry_failed_of_archive(session, books.id, "ann").tasks) == 1
    assert states(3) == ["ready", "waiting", "waiting"]
    assert len(holds.hold_archive(session, books.id, "ann").tasks) == 3, "the other run has begun"
    assert len(holds.hold_run(session, three, "ann").tasks) == 3
    assert states(3) == states(4) == ["held"] * 3
    holds.unhold(session, books.id, "ann")
    assert len(holds.release_archive(session, books.id, "ann").tasks) == 6
    assert states(4) == ["ready", "waiting", "waiting"]
    assert len(control.prioritize_run(session, three, 10, "ann").tasks) == 3
    assert many.skip_run(session, three, "ann").tasks
    assert states(3) == ["skipped"] * 3
    assert len(control.cancel_run(session, four, "ann").tasks) == 3
    deletion.delete_run(session, four, "ann")
    deletion.undelete_run(session, four, "ann")
    assert states(4) == ["canceled"] * 3


SETTINGS = {
    '{"notify": 3}': "notify is a number, not an object of lists of texts",
    '{"notify": {"ann@example.org": "failed"}}': "notify is an object, not an object of lists of texts",
    '{"require_approval": "publish"}': "require_approval is a text, not a list of texts",
    '{"approval_not_author": "yes"}': "approval_not_author is a text, not true or false",
    '{"image": 7}': "image is a number, not a text",
    '{"keep": {"completed": "soon"}}': "keep completed is not a valid age: 'soon'",
    '{"keep": {"done": "30d"}}': "keep done is not a state in which runs are purged",
    '{"colour": "red"}': "'colour' is no setting of this version",
}


@pytest.mark.garbles
@pytest.mark.parametrize("settings", SETTINGS)
def test_settings_that_cannot_be_read_are_named_by_doctor(archive: AnArchive, session: Session, settings: str) -> None:
    archive.sql("update archive set settings = settings || %s::jsonb", settings)
    (found,) = examine(session).findings
    assert (found.check, found.archive) == ("settings", "papers")
    assert SETTINGS[settings] in found.what


@pytest.mark.garbles
@pytest.mark.parametrize(
    "settings", ['{"require_approval": "publish"}', '{"approval_not_author": 3}', "[]", '"publish"']
)
def test_no_task_is_planned_or_released_unheld_because_settings_cannot_be_read(session: Session, settings: str) -> None:
    """A text in place of a list would match no task."""
    papers = an_archive(session, "papers")
    archives.change_settings(session, papers.id, ArchiveSettings(require_approval=("publish",)), "ann")
    papers.commit({"a": "", "publish": "depends: [a]"})
    papers.sql(
        "update archive set settings = case jsonb_typeof(new) when 'object' then settings || new else new end"
        " from (select %s::jsonb as new) n",
        settings,
    )
    for act in (
        lambda: papers.commit({"a": "", "publish": "depends: [a]"}),
        lambda: papers.trigger(2, "a"),
        lambda: holds.release_archive(session, papers.id, "ben", how=holds.How(approver=Approver(("ben",)))),
        lambda: control.cancel_run(session, RunId(papers.run_id(2)), "ben", approver=Approver(("ben",))),
        lambda: archives.change_settings(session, papers.id, ArchiveSettings(), "ann"),
    ):
        with pytest.raises(Conflict, match=r"its settings in the database cannot be read: .* `arkqueue doctor`"):
            act()
    assert papers.state("publish@2") == "held"
    assert [run.full_name for run in list_runs(session).runs] == ["papers@2", "papers@1"]


@pytest.mark.garbles
@pytest.mark.parametrize("settings", ["[]", '"publish"'])
def test_what_cannot_be_read_is_told_with_the_command_that_helps(
    archive: AnArchive, session: Session, settings: str
) -> None:
    archive.commit({"a": ""})
    archive.sql("update archive set settings = %s::jsonb", settings)
    assert ("settings", "papers") in {(found.check, found.archive) for found in examine(session).findings}
    archive.sql("update definition set body = '[1, 2]'")
    (need,) = status(session, None, None, lease=30.0).needs
    assert (need.name, need.text, need.command) == ("papers", UNREADABLE, "arkqueue doctor")
    assert show_task(session, archive.task("a@2")).definition is None
