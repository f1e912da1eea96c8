"""Large runs are purged in steps (design 5.27; decision 0001, point 28). From the first step on,
every reader sees them as purged.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from arkqueue.archives.retention import Retention
from arkqueue.db import Overdue
from arkqueue.db.session import Session
from arkqueue.errors import Conflict, NotFound
from arkqueue.model import ArchiveId, RunId, TaskId
from arkqueue.names import PURGED
from arkqueue.queue import claim, control, deletion, many, purge, purge_batch, redo, removal, retrying
from arkqueue.queue.export import Export
from arkqueue.views import explain, find, graph, runs, tasks
from arkqueue.views.doctor import examine
from tests.builders import AnArchive, an_archive
from tests.db.purges import purged_in_steps
from tests.db.test_backfills import fill, plan_all
from tests.db.test_purge import kept_of, left_of, nobody_waits, purged, uri_of
from tests.db.test_races import Connect, one_after_the_other, wait_until_blocked
from tests.db.test_removal import write

STEPS = 0, 1
"""How many steps a purge takes before it is killed, so that all tasks of the run or some of them are left. Each deletes two."""


@pytest.fixture(params=STEPS, ids=lambda steps: f"killed-after-{steps}-steps")
def steps(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def half_purged(archive: AnArchive, *numbers: int, steps: int) -> purge.Purged:
    with purged_in_steps(2, steps=steps):
        done = purged(archive, *numbers, reason="it is old")
    assert archive.sql("select count(*) as n from purging")[0]["n"] == len(done.runs)
    assert examine(archive.session).is_sound
    return done


def purge_the_rest(session: Session) -> None:
    purge.sweep(session)
    with session.database.connect() as connection:
        assert connection.execute(
            "select (select count(*) from purging) + (select count(*) from purged_task) as n"
        ).fetchone() == {"n": 0}
        assert connection.execute("select from archive where purges").fetchall() == []
    assert examine(session).is_sound


def test_a_run_is_purged_for_everybody_from_the_first_step_on(session: Session, archive: AnArchive, steps: int) -> None:
    archive.commit({"a": "", "b": "depends: [a]", "c": "depends: [b]", "d": ""})
    attempt = archive.attempt("a@2")
    write(archive, attempt, b"hello\n")
    archive.fail("a@2")
    archive.run("d@2")
    run, task = RunId(archive.run_id(2)), TaskId(archive.task("a@2"))
    assert half_purged(archive, 2, steps=steps).runs == ["papers@2"]

    told = r"was purged on 20\d\d-.* UTC by ann, because it is old"
    with pytest.raises(NotFound, match=told):
        find.find_run(session, "papers@2")
    with pytest.raises(NotFound, match=told):
        find.find_task(session, "papers@2/a")
    with pytest.raises(NotFound, match=told):
        explain.explain_name(session, "papers@2/a")
    refused: tuple[Callable[[], object], ...] = (
        lambda: runs.run(session, run),
        lambda: tasks.task(session, task),
        lambda: explain.explain(session, task),
        lambda: retrying.retry(session, task, "ann"),
        lambda: control.skip(session, task, "ann"),
        lambda: control.note(session, "why?", "ann", run=run),
        lambda: deletion.delete_run(session, run, "ann"),
        lambda: deletion.undelete_run(session, run, "ann"),
        lambda: many.retry_failed(session, run, "ann"),
        lambda: control.cancel_run(session, run, "ann"),
        lambda: removal.remove(session, task, "ann", "a secret", log=True, outputs=False),
    )
    for ask in refused:
        with pytest.raises(NotFound):
            ask()
    assert len(control.skip_until(session, archive.id, archive.branches[""].id, "a", 9, "ann").tasks) == 0
    with pytest.raises(Conflict, match="has no failed task"):
        many.retry_failed_of_archive(session, ArchiveId(archive.id), "ann")
    assert archive.sql("select count(*) as n from purging") == [{"n": 1}]
    assert [gone.run for gone in purge.purge_runs(session, [run], "bob").gone] == ["papers@2"]
    assert left_of(archive)["log_chunk"] == 0, "the second purge has continued the first one"
    purge_the_rest(session)


def test_a_verb_that_has_found_a_task_before_its_run_is_purged_says_that_it_is(
    session: Session, archive: AnArchive, second_connection: Connect
) -> None:
    archive.commit({"a": "", "b": ""})
    archive.fail("a@2")
    archive.run("b@2")
    task, run = archive.task("a@2"), RunId(archive.run_id(2))

    def purge_it() -> None:
        with purged_in_steps(2, steps=0):
            purge.purge_runs(session, [run], "ann")

    purged_first, retried_second = one_after_the_other(
        archive, second_connection, purge_it, lambda: retrying.retry(session, task, "ann")
    )
    purged_first.result()
    with pytest.raises(NotFound, match="its run was purged"):
        retried_second.result()
    purge_the_rest(session)


def test_of_two_purges_of_a_large_run_the_second_names_what_the_first_has_removed(
    session: Session, archive: AnArchive, second_connection: Connect
) -> None:
    archive.commit({"a": "", "b": ""})
    archive.run("a@2", "b@2")
    ids = [RunId(archive.run_id(2))]
    with purged_in_steps(2):
        first, second = one_after_the_other(
            archive,
            second_connection,
            lambda: purge.purge_runs(session, ids, "ann"),
            lambda: purge.purge_runs(session, ids, "bob"),
        )
        assert first.result().runs == ["papers@2"]
        done = second.result()
    assert (done.runs, done.kept, done.gone) == ([], [], [purge_batch.Gone(run="papers@2", by="ann")])
    assert archive.sql("select count(*) as n from deed where verb = 'purge'") == [{"n": 1}]
    purge_the_rest(session)


def test_later_plans_see_all_of_the_run_or_nothing(session: Session, archive: AnArchive, steps: int) -> None:
    """What completed in it is the base and meets later edges; of what failed, nobody hears any more."""
    archive.commit({"a": "", "b": "", "c": ""})
    archive.run("a@2", "b@2", "c@2")
    archive.commit({"a": "", "b": "", "c": ""})
    archive.cancel("c@3")
    archive.run("a@3")
    archive.fail("b@3")
    half_purged(archive, 3, steps=steps)

    archive.commit(
        {"a": "depends: [PREV]", "b": "depends: [PREV]", "c": "depends: [PREV]", "all": "depends: ['PREV:*']"}
    )
    assert archive.states() == {f"{name}@2": "completed" for name in "abc"} | {
        f"{name}@4": "ready" for name in ("a", "b", "c", "all")
    }
    edges = "select s.number, s.name from edge e join task s on s.id = e.source join task t on t.id = e.target where t.name = 'b' and t.number = 4 and e.crossing"
    assert archive.sql(edges) == [{"number": 2, "name": "b"}]
    assert graph.graph(session, [RunId(archive.run_id(4))]).edges
    assert archive.claim("a@4").base == "3"
    assert archive.claim("b@4").base == "2"
    purge_the_rest(session)
    archive.run("a@4", "b@4", "c@4", "all@4")
    assert examine(session).is_sound


def test_an_older_revision_replaces_nothing_of_it_unasked(session: Session, archive: AnArchive, steps: int) -> None:
    archive.commit({"build": "", "index": ""})
    archive.fail("build@2", "index@2")
    archive.skip("build@2")
    archive.commit({"deploy": "depends: ['PREV:build']", "index": "", "more": "depends: [deploy]"})
    archive.run("index@3", "deploy@3", "more@3")
    half_purged(archive, 3, steps=steps)
    for _ in range(2):
        with pytest.raises(Conflict, match="tasks of later revisions have started after it: papers@3/deploy"):
            archive.retry("build@2")
        with pytest.raises(Conflict, match="would replace the work of later revisions: papers@3/index completed"):
            archive.retry("index@2")
        purge_the_rest(session)
    archive.retry("build@2", force=True)
    assert archive.states() == {"build@2": "ready", "index@2": "failed"}


def test_a_gate_of_it_that_let_others_start_is_remembered(session: Session, archive: AnArchive, steps: int) -> None:
    archive.commit({"build": ""})
    archive.fail("build@2")
    archive.skip("build@2")
    strict = {"COMMIT": "depends: [{task: 'PREV:*', when: settled}]", "deploy": "", "more": ""}
    archive.commit(strict)
    archive.cancel("deploy@3")
    archive.cancel("more@3")
    archive.commit(strict)
    archive.run("deploy@4")
    half_purged(archive, 3, steps=steps)
    for _ in range(2):
        with pytest.raises(Conflict, match=r"have started after it: papers@[34]"):
            archive.retry("build@2")
        purge_the_rest(session)


def test_a_gate_of_it_that_let_another_gate_pass_counts_as_started_at_each_step(
    session: Session, archive: AnArchive, steps: int
) -> None:
    """A killed purge refuses what the whole purge refuses. A long run of the model test has found
    this case: no task behind these gates has a command.
    """
    archive.commit()
    archive.commit({"a": "# gate", "b": "# gate"})
    fill(archive, 1, 3, "a", "b", force=True)
    plan_all(archive)
    first = RunId(archive.run_id(1, 2))
    redo.retry_from(session, first, "a", "ann")
    with purged_in_steps(2, steps=steps):
        assert purged(archive, (2, 2)).runs == ["papers@2.2"]
    for _ in range(2):
        for name in "ab":
            with pytest.raises(Conflict, match=f"have started after it: papers@2.2/{name}"):
                redo.retry_from(session, first, name, "ann")
        purge_the_rest(session)
    redo.retry_from(session, first, "a", "ann", force=True)


@pytest.mark.parametrize(
    "between", ["# gate\ndepends: ['PREV:build']", "depends: ['PREV:build']"], ids=["gate", "canceled"]
)
def test_a_task_that_comes_back_behind_it_has_started_because_of_earlier_ones(
    session: Session, archive: AnArchive, steps: int, between: str
) -> None:
    """The task loses its edge from the run at once. An older revision nevertheless replaces nothing
    that was built on it (design 5.19).
    """
    archive.commit({"build": ""})
    archive.fail("build@2")
    archive.skip("build@2")
    archive.commit({"between": between})
    if "gate" not in between:
        archive.cancel("between@3")
    archive.commit({"deploy": "depends: ['PREV:between']"})
    archive.fail("deploy@4")
    half_purged(archive, 3, steps=steps)
    archive.retry("deploy@4")
    archive.run("deploy@4")
    for _ in range(2):
        with pytest.raises(Conflict, match="have started after it: papers@"):
            archive.retry("build@2")
        purge_the_rest(session)
    assert archive.states() == {"build@2": "failed", "deploy@4": "completed"}


def test_its_edges_count_as_met_for_what_comes_back(session: Session, archive: AnArchive, steps: int) -> None:
    """Also an edge that was met before: nobody gets the outputs of its source any more."""
    archive.commit({"a": "", "b": "", "c": ""})
    archive.commit({"a": "depends: [PREV]", "b": "depends: [{task: PREV, when: settled}]", "d": "depends: ['PREV:c']"})
    for key in ("a@3", "b@3", "a@2", "b@2"):
        archive.cancel(key)
    archive.end("c@2", outputs={"pages": 12})
    archive.fail("d@3")
    half_purged(archive, 2, steps=steps)
    archive.retry("a@3")
    archive.retry("b@3")
    archive.retry("d@3")
    assert archive.states() == {"a@3": "ready", "b@3": "ready", "d@3": "ready"}
    assert claim.inputs(session, [archive.claim(key).task for key in ("a@3", "d@3")]) == {}
    purge_the_rest(session)
    assert archive.states() == {"a@3": "running", "b@3": "running", "d@3": "running"}


def test_what_was_skipped_in_it_does_not_come_back(session: Session, archive: AnArchive, steps: int) -> None:
    archive.commit({"build": "", "deploy": "depends: [build]\non: [manual]", "tell": "depends: [deploy]\non: [manual]"})
    archive.fail("build@2")
    archive.trigger(2, "deploy", "tell")
    archive.skip("build@2")
    with purged_in_steps(2, steps=steps):
        assert purged(archive, (2, 2)).runs == ["papers@2.2"]
    archive.retry("build@2")
    archive.run("build@2")
    assert {state for key, state in archive.states().items() if key.endswith(".2")} <= {"skipped"}
    purge_the_rest(session)
    assert archive.states() == {"build@2": "completed"}


def test_what_it_superseded_is_superseded_and_it_supersedes_nothing_more(
    session: Session, archive: AnArchive, steps: int
) -> None:
    archive.commit({"a": "on: [commit, manual]", "b": ""})
    archive.commit({"a": "cancels: [PREV]", "b": "", "c": ""})
    archive.run("a@3", "b@3", "c@3", "b@2")
    half_purged(archive, 3, steps=steps)
    assert tasks.task(session, TaskId(archive.task("a@2"))).superseded_by == PURGED
    archive.trigger(2, "a", force=True)
    assert archive.state("a@2.2") == "ready"
    purge_the_rest(session)


def test_a_purge_of_the_run_before_it_does_not_wait_for_the_rest(
    session: Session, archive: AnArchive, steps: int
) -> None:
    archive.commit({"build": "", "deploy": "depends: [build]\non: [manual]"})
    archive.fail("build@2")
    archive.trigger(2, "deploy")
    archive.skip("build@2")
    with purged_in_steps(1, steps=steps):
        assert purged(archive, 2, (2, 2)).runs == ["papers@2.2", "papers@2"]
    purge_the_rest(session)
    assert archive.states() == {}


def test_items_go_with_their_tasks(session: Session, archive: AnArchive, steps: int) -> None:
    before = left_of(archive)
    archive.commit({"a": "foreach: [x, y, z]", "b": "foreach: [x, y, z]\ndepends: [a]\nscratch: item"})
    run = RunId(archive.run_id(2))
    archive.sql("insert into scratch (run_id, item, store) select id, 'x', 'host-1' from run where number = 2")
    deletion.delete_item(session, run, "y", "ann")
    control.cancel_run(session, run, "ann")
    half_purged(archive, 2, steps=steps)
    with pytest.raises(NotFound):
        deletion.undelete_item(session, run, "y", "ann")
    purge_the_rest(session)
    assert left_of(archive) == before
    assert archive.sql("select from scratch union all select from deleted_item union all select from list_use") == []


# What may happen between the judgement and the first step


def between(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> list[None]:
    """Do something each time after a large run was judged and before the archive is locked."""
    done: list[None] = []
    kept = purge_batch._why_not_yet  # private: the last thing before the lock

    def acting(row: object, before: object) -> purge_batch.Kept | None:
        done.append(None)
        act()
        return kept(row, before)

    monkeypatch.setattr(purge_batch, "_why_not_yet", acting)
    return done


def test_a_person_who_acts_after_the_judgement_is_heard(archive: AnArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    archive.commit({"a": "", "b": ""})
    archive.fail("a@2")
    archive.run("b@2")

    def retry() -> None:
        if archive.state("a@2") == "failed":
            archive.retry("a@2")

    judged = between(monkeypatch, retry)
    with purged_in_steps(2):
        assert kept_of(purged(archive, 2)) == {"papers@2": "is not settled"}
    assert len(judged) == 1
    assert archive.states() == {"a@2": "ready", "b@2": "completed"}


def test_a_revision_that_comes_after_the_judgement_and_needs_the_run_keeps_it(
    archive: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.commit({"a": "", "b": ""})
    archive.fail("a@2")
    archive.run("b@2")
    judged = between(monkeypatch, lambda: len(judged) == 1 and archive.commit({"a": "depends: [PREV]"}))
    with purged_in_steps(2):
        assert kept_of(purged(archive, 2)) == {"papers@2": "papers@3/a waits for it"}
    assert len(judged) == 1


def test_a_revision_that_comes_after_the_judgement_and_needs_nothing_of_it_changes_nothing(
    session: Session, archive: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.commit({"a": "", "b": ""})
    archive.run("a@2", "b@2")
    archive.commit({"c": ""})
    judged = between(monkeypatch, lambda: archive.commit({"c": ""}))
    with purged_in_steps(2):
        assert purged(archive, 2).runs == ["papers@2"]
    assert len(judged) == 1
    assert examine(session).is_sound


def test_a_run_of_an_archive_that_never_rests_is_kept_with_that_reason(
    session: Session, archive: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.commit({"a": "", "b": ""})
    archive.run("a@2", "b@2")
    archive.commit({"z": ""})
    judged = between(monkeypatch, lambda: control.prioritize(session, archive.task("z@3"), 7, "ann"))
    with purged_in_steps(2):
        assert kept_of(purged(archive, 2)) == {"papers@2": "changed while it was judged"}
    assert len(judged) == purge_batch.MOST_JUDGEMENTS
    assert archive.states() == {"a@2": "completed", "b@2": "completed", "z@3": "ready"}


def test_a_large_run_is_exported_once_and_whole(session: Session, archive: AnArchive, tmp_path: Path) -> None:
    archive.commit({"a": "", "b": ""})
    archive.run("a@2", "b@2")
    with (tmp_path / "old.jsonl").open("x") as file, purged_in_steps(2):
        done = purge.purge_runs(session, [RunId(archive.run_id(2))], "ann", export=Export(file))
    assert done.runs == ["papers@2"]
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "old.jsonl").read_text().splitlines()]
    assert Counter(kinds) == {"run": 1, "task": 4, "attempt": 2}

    archive.commit({"a": "", "b": ""})
    archive.run("a@3", "b@3")
    noted = lambda *_: control.note(session, "Ann looks into it", "ann", run=RunId(archive.run_id(3)))  # noqa: E731
    with purged_in_steps(2):
        done = purge.purge_runs(session, [RunId(archive.run_id(3))], "ann", export=noted)
    assert kept_of(done) == {"papers@3": "changed while it was exported"}


def test_a_dry_run_names_large_runs_and_removes_nothing(session: Session, archive: AnArchive) -> None:
    archive.commit({"build": "", "deploy": "depends: [build]\non: [manual]"})
    archive.fail("build@2")
    archive.trigger(2, "deploy")
    archive.skip("build@2")
    before, ids = left_of(archive), [RunId(archive.run_id(2)), RunId(archive.run_id(2, 2))]
    with purged_in_steps(1):
        assert purge.purge_runs(session, ids, "ann", dry_run=True).runs == ["papers@2.2", "papers@2"]
    assert left_of(archive) == before
    assert archive.sql("select from purging") == []


# Who continues


def test_a_queue_manager_continues_when_it_starts(session: Session, archive: AnArchive) -> None:
    archive.commit({"a": "", "b": "", "c": ""})
    archive.run("a@2", "b@2", "c@2")
    half_purged(archive, 2, steps=1)
    Retention(session).turn()
    assert archive.sql("select from purging") == []
    assert archive.states() == {}
    purge_the_rest(session)


def test_a_busy_archive_holds_up_no_purge_of_another_one(
    session: Session, archive: AnArchive, second_connection: Connect
) -> None:
    archive.commit({"a": "", "b": "", "c": ""})
    archive.run("a@2", "b@2", "c@2")
    half_purged(archive, 2, steps=1)
    other = an_archive(session, name="notes")
    other.commit({"a": ""})
    other.run("a@2")
    holder = second_connection()
    with holder.transaction():
        holder.execute("select from archive where id = %s for update", [archive.id])
        assert purged(other, 2).runs == ["notes@2"]
        assert archive.sql("select count(*) as n from purging") == [{"n": 1}]
        assert examine(session).is_sound
    purge_the_rest(session)


def test_a_run_is_purged_although_a_step_behind_the_first_one_takes_too_long(
    session: Session, archive: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.commit({"a": "", "b": "", "c": ""})
    archive.run("a@2", "b@2", "c@2")

    def too_long(*_: object, **__: object) -> NoReturn:
        raise Overdue("the database", "took too long")

    with purged_in_steps(2), monkeypatch.context() as patch:
        patch.setattr(purge_batch, "_delete_tasks", too_long)  # private: the work of a step
        assert purged(archive, 2).runs == ["papers@2"]
    with pytest.raises(NotFound, match="papers@2: was purged on"):
        find.find_run(session, "papers@2")
    purge_the_rest(session)


def test_a_doctor_names_a_purge_that_nobody_continues(session: Session, archive: AnArchive) -> None:
    archive.commit({"a": "", "b": "", "c": ""})
    archive.run("a@2", "b@2", "c@2")
    half_purged(archive, 2, steps=1)
    archive.sql("update purging set begun_at = now() - interval '11 minutes'")
    (finding,) = examine(session).findings
    assert (finding.check, finding.archive) == ("purging", "papers")
    assert "not all of its tasks are deleted" in finding.what
    assert "arkqueue purge" in finding.remedy
    purge_the_rest(session)


@pytest.mark.full
def test_a_purge_of_a_large_run_that_is_killed_is_continued_by_the_next_one(
    session: Session, archive: AnArchive, second_connection: Connect, tmp_path: Path
) -> None:
    """Killed for real while it deletes the tasks of a run of more than a thousand."""
    names = [f"t{n}" for n in range(purge_batch.MOST_TASKS + 1)]
    archive.commit(dict.fromkeys(names, ""))
    control.cancel_run(session, RunId(archive.run_id(2)), "ann")
    archive.commit({"a": ""})
    archive.run("a@3")

    def start(name: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "arkqueue", "--home", str(tmp_path / "home"), "purge", name]
        return subprocess.Popen([*command, "--database", uri_of(session)], stderr=subprocess.PIPE)

    holder, watcher = second_connection(), second_connection()
    with holder.transaction():
        holder.execute("select from task where run_id = %s for update", [archive.run_id(2)])
        process = start("papers@2")
        wait_until_blocked(watcher)
        with pytest.raises(NotFound, match="papers@2: was purged on"):
            find.find_run(session, "papers@2")
        process.send_signal(signal.SIGKILL)
        process.communicate()
    nobody_waits(watcher)
    assert left_of(archive)["task"] > purge_batch.MOST_TASKS
    assert examine(session).is_sound

    again = start("papers@3")
    _, err = again.communicate()
    assert again.returncode == 0, err
    assert archive.states() == {}
    purge_the_rest(session)
