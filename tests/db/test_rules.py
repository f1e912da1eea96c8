"""The rules of order (design 5), one by one, on the real queue. Decision 1 explains them.
``test_cancellation`` has cancellation (5.10, 5.11), and ``test_by_hand`` what persons do (5.18, 5.19).
"""

from __future__ import annotations

from collections import Counter
from itertools import permutations, product
from typing import Any

import pytest
from psycopg import errors

from arkqueue.db.session import Session
from arkqueue.errors import Conflict
from arkqueue.model import End, Outcome, RunId
from arkqueue.plan import Entry
from arkqueue.queue import archives, control, finish, ledger
from arkqueue.queue.graph import Graph
from tests.builders import PROCESS, AnArchive, a_revision, a_workflow, an_archive, faulty
from tests.db.shapes import CHAIN, DIAMOND, STRICT, two


def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each block is run from now on, by the changes of a graph."""
    blocks: Counter[str] = Counter()
    rows = Graph.rows

    def counting(graph: Graph, block: str, /, **parameters: Any) -> list[Any]:
        blocks[block] += 1
        return rows(graph, block, **parameters)

    monkeypatch.setattr(Graph, "rows", counting)
    return blocks


# The ledger and its runs (5.1–5.5)


def test_the_baseline_has_a_completed_commit_and_no_other_task(archive: AnArchive) -> None:
    assert archive.sql("select name, state from task") == [{"name": "COMMIT", "state": "completed"}]


def test_no_workflow_folder_makes_a_run_of_commit_and_report_alone(archive: AnArchive) -> None:
    archive.commit()
    assert archive.state("COMMIT@2") == archive.state("REPORT@2") == "completed"


def test_a_faulty_definition_makes_a_failed_run_and_lets_the_next_revision_run(archive: AnArchive) -> None:
    archive.commit(faulty())
    archive.commit({"a": ""})
    assert archive.states() == {"a@3": "ready"}
    (run,) = archive.sql("select faults from run where number = 2")
    assert run["faults"][0]["message"] == "a fault"


def test_one_revision_has_one_commit_run(archive: AnArchive) -> None:
    archive.commit()
    with pytest.raises(Exception, match="run_commit"):
        archive.sql(
            "insert into run (archive_id, branch_id, revision_id, number, run, trigger, report_id)"
            " select archive_id, branch_id, revision_id, number, 9, 'commit', 0 from run where number = 2"
        )


def test_a_stale_head_appends_nothing(archive: AnArchive) -> None:
    old = archive.branches[""]
    archive.commit({"a": ""})
    assert ledger.append(archive.session, old, [Entry(a_revision(2), a_workflow({"b": ""}))]) is None
    assert archive.states() == {"a@2": "ready"}


def test_revisions_are_not_stored_without_a_head(archive: AnArchive) -> None:
    """The head cannot move while its row is locked; should it all the same, nothing of the transaction stays."""
    archive.sql("create function nothing() returns trigger language plpgsql as 'begin return null; end'")
    archive.sql("create trigger stuck before update on branch for each row execute function nothing()")
    with pytest.raises(errors.InvalidTextRepresentation, match="moved while its row was locked"):
        ledger.append(archive.session, archive.branches[""], [Entry(a_revision(2), a_workflow({"a": ""}))])
    assert archive.sql("select number from revision") == [{"number": 1}]
    assert archive.states() == {}


def test_many_revisions_are_appended_at_once_in_order(archive: AnArchive) -> None:
    workflow = a_workflow({"a": "depends: [PREV]"})
    archive.append("", [Entry(a_revision(n), workflow) for n in range(2, 12)])
    for n in range(2, 12):
        assert archive.state(f"COMMIT@{n}") == "completed"
        archive.run(f"a@{n}")


# Failures inside a run (5.8)


def test_a_failure_skips_what_needs_it_and_remembers_the_root(archive: AnArchive) -> None:
    archive.commit(DIAMOND)
    archive.fail("a@2")
    assert archive.states() == {
        "a@2": "failed",
        "b@2": "skipped",
        "c@2": "skipped",
        "d@2": "skipped",
        "clean@2": "ready",
    }
    roots = {r["name"]: r["root_id"] for r in archive.sql("select name, root_id from task where state = 'skipped'")}
    assert roots == dict.fromkeys("bcd", archive.task("a@2"))


def test_a_long_chain_is_skipped_in_one_round(archive: AnArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round is a few statements under the archive's lock."""
    many = 500
    archive.commit({"t0": ""} | {f"t{n}": f"depends: [t{n - 1}]" for n in range(1, many)})
    blocks = counted(monkeypatch)
    archive.fail("t0@2")
    assert (blocks["advance"], blocks["skip_dependents"]) == (2, 1), "the failure, and all that it skipped"
    assert Counter(archive.states().values()) == {"failed": 1, "skipped": many - 1}
    assert archive.state("REPORT@2") == "completed"
    roots = archive.sql("select distinct root_id from task where state = 'skipped'")
    assert roots == [{"root_id": archive.task("t0@2")}]


@pytest.mark.full
@pytest.mark.parametrize("shape", ["one after another", "all behind one", "each cancels"])
def test_thousands_of_gates_pass_in_a_few_statements(
    archive: AnArchive, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    """A committer with 18,000 gates kept an archive locked for a minute, or for good."""
    gates = ["first", *(f"gate{number}" for number in range(3000))]
    needs = ["first"] * 3000 if shape == "all behind one" else gates
    tasks = {name: f"depends: [{need}]\n# gate" for name, need in zip(gates[1:], needs, strict=False)}
    if shape == "each cancels":  # what has passed before it, in this run and in earlier ones
        for name, need in zip(gates[1:], gates, strict=False):
            tasks[name] += f"\ncancels: [PREV, {need}]"
    tasks["first"] = ""
    tasks["beside"] = "depends: [gate5]"
    tasks["last"] = f"depends: [{gates[-1]}, beside]\n# gate"
    archive.commit(tasks)
    blocks = counted(monkeypatch)
    archive.run("first@2")
    assert Counter(archive.states().values()) == {"completed": 3001, "ready": 1, "waiting": 1}
    assert archive.states()["beside@2"] == "ready"
    archive.run("beside@2")
    assert (archive.state("last@2"), archive.state("REPORT@2")) == ("completed", "completed")
    assert blocks["advance"] < 20


def test_a_chain_of_gates_that_cancel_passes_as_far_as_one_finds_something_to_cancel(archive: AnArchive) -> None:
    """The sixth of eight gates cancels a task of its run, the seventh one of an earlier run: both wait."""
    archive.commit({"first": "", "old": "depends: [first]"})
    gates = ["first", *(f"gate{number}" for number in range(1, 9))]
    tasks = {
        name: f"depends: [{need}]\ncancels: [PREV, {need}]\n# gate"
        for name, need in zip(gates[1:], gates, strict=False)
    }
    tasks["gate6"] = tasks["gate6"].replace("cancels: [", "cancels: [beside, ")
    tasks["gate7"] = tasks["gate7"].replace("cancels: [", "cancels: ['PREV:old', ")
    archive.commit(tasks | {"first": "", "old": "", "beside": "depends: [gate8]"})
    archive.run("first@3")
    passed = {f"gate{number}@3": "completed" for number in range(1, 9)}
    assert archive.states() == passed | {
        "first@2": "running",
        "old@2": "canceled",
        "first@3": "completed",
        "old@3": "running",
        "beside@3": "canceled",
    }
    assert {row["fired"] for row in archive.sql("select fired from task where starts_with(name, 'gate')")} == {True}


def test_many_failures_at_once_skip_each_task_with_the_first_root(archive: AnArchive) -> None:
    """Every task needs all of those before it: the ways from each root to the last one are as many as there are sets of tasks between them."""
    roots, tasks = [f"r{n}" for n in range(8)], [f"t{n}" for n in range(40)]
    archive.commit(
        dict.fromkeys(roots, "") | {t: f"depends: [{', '.join(roots + tasks[:n])}]" for n, t in enumerate(tasks)}
    )
    attempts = [archive.attempt(f"{root}@2") for root in roots]
    finish.finish(archive.session, PROCESS, [Outcome(attempt, End.EXITED, 1) for attempt in attempts])
    found = archive.sql("select name, root_id from task where state = 'skipped'")
    assert len(found) == len(tasks)
    assert {row["root_id"] for row in found} == {archive.task("r0@2")}


def test_a_retried_root_takes_back_what_it_skipped(archive: AnArchive) -> None:
    archive.commit(DIAMOND)
    archive.fail("a@2")
    archive.run("clean@2")
    archive.retry("a@2")
    assert archive.states() == {
        "a@2": "ready",
        "b@2": "waiting",
        "c@2": "waiting",
        "d@2": "waiting",
        "clean@2": "completed",
    }
    archive.run("a@2", "b@2", "c@2", "d@2")
    assert archive.state("REPORT@2") == "completed"


def test_what_another_failure_still_skips_stays_skipped_with_that_root(archive: AnArchive) -> None:
    archive.commit({"a": "", "x": "", "b": "depends: [a, x]", "c": "depends: [b]"})
    archive.fail("a@2", "x@2")
    archive.retry("a@2")
    assert archive.states() == {"a@2": "ready", "x@2": "failed", "b@2": "skipped", "c@2": "skipped"}
    assert {r["root_id"] for r in archive.sql("select root_id from task where name in ('b', 'c')")} == {
        archive.task("x@2")
    }


def test_a_long_chain_that_another_failure_still_skips_is_found_at_once(
    archive: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round for each link held the archive locked for 10 s behind 500 links."""
    chain = {f"t{n}": f"depends: [t{n - 1}]" for n in range(2, 60)}
    archive.commit({"a": "", "x": "", "t0": "depends: [a]", "t1": "depends: [t0, x]"} | chain)
    archive.fail("a@2", "x@2")
    blocks = counted(monkeypatch)
    archive.retry("a@2")
    assert 0 < blocks["staying_skipped"] <= 3, "the last call finds nothing more"
    assert archive.state("t0@2") == "waiting"
    found = archive.sql("select root_id from task where state = 'skipped'")
    assert [row["root_id"] for row in found] == [archive.task("x@2")] * 59


@pytest.mark.parametrize("between", [False, True])
def test_each_task_that_stays_skipped_is_reached_once_however_many_failures_there_are(
    archive: AnArchive, monkeypatch: pytest.MonkeyPatch, between: bool
) -> None:
    """Once for each failure before it, 800 tasks took 10 s."""
    count = 40
    flow = {"a": ""} | {f"x{n}": "" for n in range(count)}
    for n in range(count):
        flow[f"y{n}"] = f"depends: [a, x{n}]"
        flow[f"t{n}"] = f"depends: [{f't{n - 1}' if n else 'a'}, {f'y{n}' if between else f'x{n}'}]"
    archive.commit(flow)
    archive.fail("a@2", *(f"x{n}@2" for n in range(count)))
    read = Counter[str]()
    rows = Graph.rows

    def measured(graph: Graph, block: str, /, **parameters: Any) -> list[Any]:
        before = _edges_read(graph)
        found = rows(graph, block, **parameters)
        read[block] += _edges_read(graph) - before
        return found

    monkeypatch.setattr(Graph, "rows", measured)
    archive.retry("a@2")
    assert 0 < read["staying_skipped"] < 20 * count
    by_id = {row["id"]: row["name"] for row in archive.sql("select id, name from task")}
    found = archive.sql("select name, root_id from task where state = 'skipped'")
    roots = {row["name"]: by_id[row["root_id"]] for row in found}
    assert len(roots) == 2 * count
    assert all(roots[f"y{n}"] == f"x{n}" for n in range(count))
    assert set(roots.values()) <= {f"x{n}" for n in range(count)}


def _edges_read(graph: Graph) -> int:
    """How many rows of `edge` the transaction has read."""
    query = b"select idx_tup_fetch + seq_tup_read as n from pg_stat_xact_user_tables where relname = 'edge'"
    (row,) = graph.conn.execute(query).fetchall()
    return int(row["n"])


def test_what_many_failures_still_skip_gets_the_first_of_them_as_root(archive: AnArchive) -> None:
    """Every task needs all of those before it, as above."""
    roots, tasks = [f"r{n}" for n in range(8)], [f"t{n}" for n in range(40)]
    archive.commit(
        dict.fromkeys(roots, "") | {t: f"depends: [{', '.join(roots + tasks[:n])}]" for n, t in enumerate(tasks)}
    )
    archive.fail(*(f"{root}@2" for root in roots))
    archive.retry("r0@2")
    found = archive.sql("select root_id from task where state = 'skipped'")
    assert [row["root_id"] for row in found] == [archive.task("r1@2")] * len(tasks)


def test_what_stays_skipped_gets_the_first_root_however_long_the_way_to_it_is(archive: AnArchive) -> None:
    ways = {"far": "depends: [farther]", "near": "depends: [a, y]"}
    orders = product(permutations(["x", "y"]), permutations(ways))
    for number, (roots, between) in enumerate(orders, 2):
        flow = {"a": ""} | dict.fromkeys(roots, "") | {"farther": "depends: [a, x]"}
        archive.commit(flow | {way: ways[way] for way in between} | {"t": "depends: [far, near]"})
        archive.fail(*(f"{name}@{number}" for name in ("a", *roots)))
        archive.retry(f"a@{number}")
        (found,) = archive.sql("select root_id from task where id = %s", archive.task(f"t@{number}"))
        assert found["root_id"] == archive.task(f"{roots[0]}@{number}")


def test_a_retry_takes_ready_dependents_back(archive: AnArchive) -> None:
    archive.commit({"a": "", "clean": "depends: [{task: a, when: settled}]"})
    archive.fail("a@2")
    assert archive.state("clean@2") == "ready"
    archive.retry("a@2")
    assert archive.state("clean@2") == "waiting"
    archive.run("a@2", "clean@2")


def test_rejected_is_final(archive: AnArchive) -> None:
    archive.commit({"a": "retries: 3", "b": "depends: [a]"})
    archive.end("a@2", 65)
    assert archive.states() == {"a@2": "rejected", "b@2": "skipped"}
    with pytest.raises(Conflict, match="is final"):
        archive.retry("a@2")


def test_what_a_rejection_skipped_comes_back_as_if_it_had_completed(archive: AnArchive) -> None:
    """A retry of the rejected task would be refused, so another command is given."""
    archive.commit({"a": "", "b": "depends: [a]", "c": "depends: [a]"})
    archive.cancel("c@2")
    archive.end("a@2", 65)
    for task in ("b@2", "c@2"):
        with pytest.raises(Conflict) as refused:
            archive.retry(task)
        assert refused.value.remedy == "arkqueue skip papers@2/a --as-completed"
    archive.skip("a@2", as_completed=True)
    archive.retry("c@2")
    assert archive.states() == {"a@2": "rejected", "b@2": "ready", "c@2": "ready"}


def test_a_failure_is_retried_after_its_delay(archive: AnArchive) -> None:
    archive.commit({"a": "retries: {max: 1, delay: 30s}"})
    archive.fail("a@2")
    assert archive.state("a@2") == "deferred"
    seconds = finish.wake_deferred(archive.session)
    assert seconds is not None
    assert 20 < seconds <= 30
    archive.sql("update task set due_at = clock_timestamp() where state = 'deferred'")
    finish.wake_deferred(archive.session)
    archive.fail("a@2")
    assert archive.state("a@2") == "failed"


def test_a_deferred_task_that_a_person_retries_is_ready_at_once_and_its_retries_begin_anew(archive: AnArchive) -> None:
    archive.commit({"a": "retries: {max: 1, delay: 6h}", "b": "depends: [a]"})
    archive.fail("a@2")
    archive.retry("a@2")
    assert archive.states() == {"a@2": "ready", "b@2": "waiting"}
    assert finish.wake_deferred(archive.session) is None
    archive.fail("a@2")
    assert archive.state("a@2") == "deferred"
    archive.retry("a@2")
    archive.run("a@2")
    archive.run("b@2")


def test_75_defers_without_using_up_retries(archive: AnArchive) -> None:
    archive.commit({"a": ""})
    for _ in range(5):
        archive.end("a@2", 75)
        assert archive.state("a@2") == "deferred"
        archive.sql("update task set due_at = clock_timestamp() where state = 'deferred'")
        assert finish.wake_deferred(archive.session) is None
    archive.run("a@2")


def test_independent_tasks_are_not_stopped_by_each_others_failure(archive: AnArchive) -> None:
    archive.commit({"a": "", "b": ""})
    archive.fail("a@2")
    archive.run("b@2")
    assert archive.state("REPORT@2") == "completed"


# Across runs (5.9)


def test_a_failure_blocks_the_next_revision_until_it_is_retried_with_success(archive: AnArchive) -> None:
    two(archive).fail("a@2")
    assert archive.states() == {"a@2": "failed", "b@2": "skipped", "a@3": "waiting", "b@3": "waiting"}
    archive.retry("a@2")
    archive.run("a@2")
    assert archive.state("a@3") == "ready"


def test_a_waived_failure_lets_the_next_revision_go_on(archive: AnArchive) -> None:
    two(archive).fail("a@2")
    archive.skip("a@2")
    assert archive.states() == {"a@2": "failed", "b@2": "skipped", "a@3": "ready", "b@3": "waiting"}


def test_skip_as_completed_lets_the_same_run_go_on_too(archive: AnArchive) -> None:
    two(archive).fail("a@2")
    archive.skip("a@2", as_completed=True)
    assert archive.states() == {"a@2": "failed", "b@2": "ready", "a@3": "ready", "b@3": "waiting"}


def test_a_skipped_tasks_root_blocks_across_runs(archive: AnArchive) -> None:
    tasks = {"a": "", "b": "depends: [a, PREV]"}
    archive.commit(tasks)
    archive.commit(tasks)
    archive.fail("a@2")
    archive.run("a@3")
    assert archive.states() == {"a@2": "failed", "b@2": "skipped", "a@3": "completed", "b@3": "waiting"}
    archive.skip("a@2")
    assert archive.state("b@3") == "ready"


def test_a_canceled_task_does_not_block(archive: AnArchive) -> None:
    two(archive).cancel("a@2")
    assert archive.states() == {"a@2": "canceled", "b@2": "skipped", "a@3": "ready", "b@3": "waiting"}


UPLOAD = {"pdf": "cancels: [PREV]", "upload": "depends: [pdf, PREV]"}


def uploading(archive: AnArchive) -> AnArchive:
    """Revision 2 is being uploaded, and 3's PDF built."""
    archive.commit(UPLOAD)
    archive.run("pdf@2")
    archive.claim("upload@2")
    archive.commit(UPLOAD)
    archive.claim("pdf@3")
    return archive


def test_what_depends_on_a_task_that_never_began_waits_for_what_that_waited_for(archive: AnArchive) -> None:
    uploading(archive).commit(UPLOAD)
    archive.end("pdf@3", None, End.STOPPED)
    archive.run("pdf@4")
    assert archive.states() == {
        "pdf@2": "completed", "upload@2": "running",
        "pdf@3": "canceled", "upload@3": "skipped",
        "pdf@4": "completed", "upload@4": "waiting",
    }  # fmt: skip
    archive.run("upload@2")
    assert archive.state("upload@4") == "ready"


def test_a_revision_that_comes_after_the_cancellation_waits_as_well(archive: AnArchive) -> None:
    uploading(archive).cancel("upload@3")
    archive.commit(UPLOAD)
    archive.end("pdf@3", None, End.STOPPED)
    archive.run("pdf@4")
    assert archive.state("upload@4") == "waiting"
    archive.run("upload@2")
    assert archive.state("upload@4") == "ready"


def test_many_that_never_began_are_passed_at_once(archive: AnArchive) -> None:
    tasks = {"a": "depends: [PREV]"}
    for _ in range(5):
        archive.commit(tasks)
    archive.claim("a@2")
    archive.commit({**tasks, "stop": "cancels: [{task: 'PREV:a', only: unstarted}]"})
    assert archive.states() == {
        "a@2": "running", "a@3": "canceled", "a@4": "canceled", "a@5": "canceled", "a@6": "canceled",
        "a@7": "waiting", "stop@7": "ready",
    }  # fmt: skip
    archive.run("a@2")
    assert archive.state("a@7") == "ready"


def test_a_failure_goes_on_blocking_where_what_waited_for_it_is_canceled(archive: AnArchive) -> None:
    archive.commit(CHAIN)
    archive.fail("a@2")
    archive.commit(CHAIN)
    archive.commit(CHAIN)
    archive.cancel("a@3")
    archive.commit(CHAIN)
    assert (archive.state("a@4"), archive.state("a@5")) == ("waiting", "waiting")
    archive.skip("a@2")
    archive.run("a@4")
    assert archive.state("a@5") == "ready"


def test_what_a_canceled_task_waited_for_by_way_of_its_run_is_waited_for_in_its_place(archive: AnArchive) -> None:
    tasks = {"a": "depends: ['PREV:b']", "b": "depends: [a]"}
    archive.commit(tasks)
    archive.run("a@2")
    archive.claim("b@2")
    archive.commit(tasks)
    archive.commit(tasks)
    archive.cancel("b@3")
    assert (archive.state("a@3"), archive.state("a@4")) == ("waiting", "waiting")
    archive.run("b@2")
    assert (archive.state("a@3"), archive.state("a@4")) == ("ready", "ready")


def test_what_a_canceled_task_needed_inside_its_run_holds_nobody_up(archive: AnArchive) -> None:
    tasks = {"pdf": "", "upload": "depends: [pdf, PREV]"}
    archive.commit(tasks)
    archive.claim("pdf@2")
    archive.commit(tasks)
    archive.cancel("upload@2")
    archive.run("pdf@3")
    assert archive.states() == {"pdf@2": "running", "upload@2": "canceled", "pdf@3": "completed", "upload@3": "ready"}


def test_strict_order_waits_for_the_tasks_of_commit_runs_alone(session: Session) -> None:
    """Design 5.7: on COMMIT, ``PREV:*`` takes commit runs only, each task in the nearest one that has it, however many other runs have it since."""
    archive = an_archive(session)
    tasks = STRICT | {"a": "paths: [data/*]", "b": "", "release": "on: [manual]"}
    archive.commit(tasks, changed=["data/x"])
    for number in (3, 4):
        archive.commit(tasks)
        archive.trigger(number, "a", "release")
        archive.trigger(number, "a")
    archive.commit(tasks)
    gates = archive.sql(
        "select t.number, s.name, s.number as place, s.run from edge e join task t on t.id = e.target and t.name = 'PREV:*:commits:settled'"
        " join task s on s.id = e.source order by 1, 2"
    )
    assert [(row["name"], row["place"], row["run"]) for row in gates if row["number"] == 5] == [
        ("COMMIT", 4, 1), ("a", 2, 1), ("b", 4, 1)
    ]  # fmt: skip
    archive.run("a@2", "b@2", "b@3", "b@4")
    assert archive.state("b@5") == "ready"
    assert {archive.state("a@3.2"), archive.state("a@4.2")} <= {"waiting", "ready", "running"}
    names = archive.sql("select name, commits from task_name order by name")
    assert [(row["name"], row["commits"]) for row in names] == [("a", True), ("b", True), ("release", False)]


def test_strict_order_but_for_one_task(session: Session) -> None:
    archive = an_archive(session)
    tasks = {
        "COMMIT": "depends: [{task: 'PREV:*', when: settled, except: [pdf]}]",
        "index": "",
        "pdf": "depends: [index]",
    }
    archive.commit(tasks)
    archive.commit(tasks)
    assert archive.state("index@3") == "waiting"
    archive.run("index@2")
    archive.claim("pdf@2")
    archive.run("index@3", "pdf@3")
    assert archive.state("pdf@2") == "running"


def test_what_never_began_blocks_through_the_gate_of_everything(archive: AnArchive) -> None:
    tasks = {"a": "depends: ['PREV:*']"}
    archive.commit(tasks)
    archive.claim("a@2")
    archive.commit(tasks)
    archive.cancel("a@3")
    archive.commit(tasks)
    assert archive.state("a@4") == "waiting"
    archive.run("a@2")
    assert archive.state("a@4") == "ready"


def test_what_is_retried_waits_for_what_it_waited_for(archive: AnArchive) -> None:
    uploading(archive).cancel("upload@3")
    archive.run("pdf@3")
    archive.retry("upload@3")
    assert archive.state("upload@3") == "waiting"
    archive.run("upload@2")
    assert archive.state("upload@3") == "ready"


def test_one_of_many_that_never_began_is_retried_and_waits_as_before(archive: AnArchive) -> None:
    for _ in range(4):
        archive.commit({"a": "depends: [PREV]"})
    archive.claim("a@2")
    archive.cancel("a@4")
    archive.cancel("a@3")
    archive.retry("a@4")
    assert archive.states() == {"a@2": "running", "a@3": "canceled", "a@4": "waiting", "a@5": "waiting"}
    archive.run("a@2")
    assert archive.state("a@4") == "ready"


def test_what_was_canceled_and_is_retried_is_waited_for_behind_what_never_began(archive: AnArchive) -> None:
    for _ in range(2):
        archive.commit({"a": "depends: [PREV]"})
    archive.cancel("a@3")
    archive.cancel("a@2")
    archive.retry("a@2")
    archive.commit({"a": "depends: [PREV]"})
    assert archive.states() == {"a@2": "ready", "a@3": "canceled", "a@4": "waiting"}
    archive.run("a@2")
    assert archive.state("a@4") == "ready"


def test_what_comes_back_as_if_its_need_had_completed_waits_behind_what_never_began(archive: AnArchive) -> None:
    tasks = {"x": "", "b": "depends: [x, PREV]"}
    for _ in range(3):
        archive.commit(tasks)
    archive.run("x@2")
    archive.claim("b@2")
    archive.fail("x@3", "x@4")
    archive.skip("x@3")
    archive.skip("x@4", as_completed=True)
    assert (archive.state("b@2"), archive.state("b@3"), archive.state("b@4")) == ("running", "skipped", "waiting")
    archive.run("b@2")
    assert archive.state("b@4") == "ready"


def test_strict_order_goes_on_when_everything_has_settled_also_behind_what_never_began(archive: AnArchive) -> None:
    tasks = {**STRICT, "a": "depends: [PREV]", "b": ""}
    for _ in range(3):
        archive.commit(tasks)
    archive.fail("a@2")
    archive.run("b@2", "b@3")
    archive.cancel("a@3")
    assert (archive.state("COMMIT@4"), archive.state("b@4")) == ("completed", "ready")


def test_what_has_run_blocks_nothing_for_what_it_needed(archive: AnArchive) -> None:
    tasks = {"p": "", "r": "depends: [p, PREV]", "clean": "depends: [{task: r, when: settled}]"}
    archive.commit(tasks)
    archive.run("p@2")
    archive.fail("r@2")
    archive.run("clean@2")
    archive.commit(tasks)
    archive.fail("p@3")
    archive.run("clean@3")
    archive.retry("p@3")
    archive.commit({**tasks, "next": "depends: ['PREV:clean']"})
    assert (archive.state("clean@3"), archive.state("next@4")) == ("completed", "ready")


def test_a_retried_canceler_cancels_again_what_it_had_waited_to_see_stopped(archive: AnArchive) -> None:
    archive.commit({"v": ""})
    archive.claim("v@2")
    archive.commit({"c": "cancels: ['PREV:v']"})
    archive.cancel("c@3")
    archive.end("v@2", None, End.STOPPED)
    archive.retry("v@2", force=True)
    archive.retry("c@3", force=True)
    assert archive.states() == {"v@2": "canceled", "c@3": "ready"}


def test_what_waits_for_a_victim_that_still_runs_has_not_begun(archive: AnArchive) -> None:
    """A canceled task blocks all ends as long as what it needed has not begun, also where that came back and met a running victim."""
    archive.commit({"v": ""})
    archive.claim("v@2")
    archive.commit({"p": "", "a": "depends: [p]\ncancels: ['PREV:v']", "b": "depends: [a]"})
    archive.cancel("b@3")
    archive.cancel("a@3")
    archive.run("p@3")
    archive.retry("a@3")
    archive.commit({"any": "depends: [{task: 'PREV:b', when: settled}]"})
    assert (archive.state("a@3"), archive.state("b@3"), archive.state("any@4")) == ("waiting", "canceled", "waiting")
    archive.end("v@2", None, End.STOPPED)
    assert (archive.state("a@3"), archive.state("any@4")) == ("ready", "ready")


@pytest.mark.full
def test_a_wide_run_that_is_canceled_adds_no_edges(archive: AnArchive) -> None:
    """Each of many blocks the next one, which waits for each of many: that needs no edge for each pair of them."""
    many = 200
    names = [f"t{n}" for n in range(many)]
    tasks = dict.fromkeys(names, "depends: [PREV, 'PREV:deploy']") | {"deploy": f"depends: [{', '.join(names)}]"}
    archive.commit(tasks)
    archive.claim(slots=10 * many)
    archive.commit(tasks)
    control.cancel_run(archive.session, RunId(archive.run_id(3)), "ann")
    archive.commit(tasks)
    assert (
        archive.sql(
            "select from edge where not declared and crossing and kind = 'depends' and target = %s",
            archive.task("t0@4"),
        )
        == []
    )
    archive.run(*(f"t{n}@2" for n in range(many - 1)))
    archive.claim(slots=10 * many)
    assert {archive.state(f"t{n}@4") for n in range(many)} == {"waiting"}, (
        "the last one still runs, and deploy waits for it"
    )
    archive.run(f"t{many - 1}@2")
    assert {archive.state(f"t{n}@4") for n in range(many)} == {"waiting"}, "deploy has to come to its end"
    archive.run("deploy@2")
    assert {archive.state(f"t{n}@4") for n in range(many)} == {"ready"}


def test_a_long_chain_of_what_never_began_is_judged_in_one_statement(
    archive: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = {"a": "depends: [PREV]"}
    many = 60
    for _ in range(many):
        archive.commit(tasks)
    archive.claim("a@2")
    for number in range(many + 1, 2, -1):
        archive.cancel(f"a@{number}")
    archive.commit(tasks)
    blocks = counted(monkeypatch)
    archive.run("a@2")
    assert archive.state(f"a@{many + 2}") == "ready"
    assert (blocks["advance"], blocks["judge_blocking"]) == (2, 1), "what the end meets; what that lets go on"


def test_two_bad_sources_have_both_to_be_mended_or_waived(archive: AnArchive) -> None:
    tasks = {"item1": "", "item2": "", "all": "depends: [item1, item2]\n# gate", "next": "depends: ['PREV:all']"}
    archive.commit(tasks)
    archive.commit(tasks)
    archive.fail("item1@2", "item2@2")
    archive.skip("item1@2")
    assert (archive.state("all@2"), archive.state("next@3")) == ("skipped", "waiting")
    archive.commit({"next": "depends: ['PREV:all']", "all": ""})
    archive.retry("item2@2")
    assert archive.state("next@3") == "waiting"
    archive.run("item2@2")
    assert (archive.state("all@2"), archive.state("next@3")) == ("skipped", "ready")


def test_a_retry_is_refused_where_later_work_stands_on_it_through_what_never_began(archive: AnArchive) -> None:
    for _ in range(3):
        archive.commit(CHAIN)
    archive.fail("a@2")
    archive.cancel("a@3")
    archive.skip("a@2")
    archive.run("a@4")
    with pytest.raises(Conflict, match="tasks of later revisions have started after it: papers@4/a"):
        archive.retry("a@2")


def test_a_retry_is_refused_where_later_work_stands_on_it_through_what_was_skipped_beside(archive: AnArchive) -> None:
    archive.commit({"a": ""})
    archive.commit({"b": "depends: ['PREV:a']", "c": "depends: [b]"})
    archive.commit({"c": "depends: [PREV]"})
    archive.fail("a@2")
    archive.cancel("b@3")
    archive.skip("a@2")
    assert archive.state("c@3") == "skipped"
    archive.run("c@4")
    with pytest.raises(Conflict, match="tasks of later revisions have started after it: papers@4/c"):
        archive.retry("a@2")


def test_skip_of_a_waiting_task_decides_that_it_will_not_run(archive: AnArchive) -> None:
    two(archive).skip("b@2")
    archive.run("a@2", "a@3", "b@3")
    assert archive.states() == {"a@2": "completed", "b@2": "skipped", "a@3": "completed", "b@3": "completed"}


@pytest.mark.parametrize(("most", "pauses"), [(1000, 0), (1, 2)])
def test_skip_until_waives_many(archive: AnArchive, monkeypatch: pytest.MonkeyPatch, most: int, pauses: int) -> None:
    """At most a limited number in each transaction, so that other work of the archive gets its turn."""
    between: list[None] = []
    monkeypatch.setattr(control, "give_way", lambda _: between.append(None))
    for module in ("control", "done"):
        monkeypatch.setattr(f"arkqueue.queue.{module}.MOST_TASKS", most)
    tasks = {"a": "", "b": "depends: [{task: 'PREV:a'}]"}
    for _ in range(5):
        archive.commit(tasks)
    archive.fail("a@2", "a@3", "a@4", "a@5")
    branch = archive.branches[""].id
    assert len(control.skip_until(archive.session, archive.id, branch, "a", 4, "ann").tasks) == 3
    assert {k: v for k, v in archive.states().items() if k[0] == "b"} == {
        "b@2": "running", "b@3": "ready", "b@4": "ready", "b@5": "ready", "b@6": "waiting"
    }  # fmt: skip
    assert len(between) == pauses
    assert archive.sql("select note from deed where verb = 'skip'") == [{"note": "a until 4"}]


# Filters (5.6)


def test_a_task_exists_where_its_branch_and_a_changed_path_match(session: Session) -> None:
    archive = an_archive(session, branches=("main", "draft/x"))
    tasks = {
        "here": "branches: [main]",
        "there": "branches: ['draft/*']",
        "pages": "paths: ['doc/**', '!doc/old/**']",
        "after": "depends: [pages]",
    }
    archive.commit(tasks, branch="main", changed=["doc/a/b.tex", "doc/old/c"])
    archive.commit(tasks, branch="main", changed=["doc/old/c", "readme"])
    archive.commit(tasks, branch="draft/x", changed=["readme"])
    assert archive.states(branch="main") == {
        "here@2": "ready", "pages@2": "ready", "after@2": "waiting", "here@3": "ready", "after@3": "waiting"
    }  # fmt: skip
    assert archive.states(branch="draft/x") == {"there@2": "ready", "after@2": "ready"}, "a branch has its own past"
    sources = archive.sql(
        "select s.name, s.number from edge e join task s on s.id = e.source where e.target = %s and e.declared",
        archive.task("after@3", branch="main"),
    )
    assert sources == [{"name": "pages", "number": 2}], "what a filter left out stands for the one before"


# Order between revisions (5.13, 5.14)


def test_tasks_of_the_next_revision_may_run_beside_by_default(archive: AnArchive) -> None:
    archive.commit({"a": ""})
    archive.commit({"a": ""})
    assert archive.states() == {"a@2": "ready", "a@3": "ready"}


def test_strict_order_is_one_line(archive: AnArchive) -> None:
    tasks = STRICT | {"a": "", "b": "depends: [a]"}
    archive.commit(tasks)
    archive.commit(tasks)
    archive.run("a@2")
    assert archive.state("COMMIT@3") == "waiting"
    archive.fail("b@2")
    assert archive.state("COMMIT@3") == "completed"
    assert archive.state("a@3") == "ready"


def test_an_exclusive_task_closes_the_gate_to_the_next_revision_only(archive: AnArchive) -> None:
    archive.commit({"migrate": "exclusive: true", "lint": ""})
    archive.commit({"a": ""})
    assert archive.state("COMMIT@3") == "waiting"
    archive.fail("migrate@2")
    assert archive.states() == {"migrate@2": "failed", "lint@2": "running", "a@3": "ready"}


def test_exclusive_tasks_of_one_run_go_one_at_a_time(archive: AnArchive) -> None:
    archive.commit({"x": "exclusive: true", "y": "exclusive: true"})
    assert archive.states() == {"x@2": "ready", "y@2": "waiting"}
    archive.fail("x@2")
    assert archive.state("y@2") == "ready"


def test_an_exclusive_manual_run_holds_the_first_revision_not_yet_passed(archive: AnArchive) -> None:
    archive.commit({"a": "exclusive: true"})
    archive.commit({"b": ""})
    archive.commit({"b": ""})
    archive.run("a@2")
    archive.trigger(2)
    archive.commit({"b": ""})
    assert archive.state("COMMIT@5") == "waiting"
    archive.run("a@2.2")
    assert archive.state("COMMIT@5") == "completed"


# Git (5.15, 5.16)


def test_a_rewrite_cancels_what_has_not_started_of_dropped_commits(session: Session) -> None:
    archive = an_archive(session, branches=("main",))
    tasks = a_workflow({"a": "", "b": "depends: [a]"})
    archive.append("main", [Entry(a_revision(n, branch="main"), tasks) for n in (2, 3)])
    archive.running.clear()
    archive.sql("update task set state = 'waiting' where name = 'a' and number = 3")
    assert archive.claim().number == 2
    archive.sql("update task set state = 'ready' where name = 'a' and number = 3")
    archive.append("main", [Entry(a_revision(4, branch="main"), tasks)], dropped=["main3", "main2"])
    assert archive.states(branch="main") == {
        "a@2": "running", "b@2": "canceled", "a@3": "canceled", "b@3": "canceled", "a@4": "ready", "b@4": "waiting"
    }  # fmt: skip


def test_what_a_rewrite_cancels_closes_no_gate(session: Session) -> None:
    archive = an_archive(session, branches=("main",))
    archive.append("main", [Entry(a_revision(2, branch="main"), a_workflow({"a": "exclusive: true"}))])
    entries = [Entry(a_revision(3, branch="main"), a_workflow({"b": ""}))]
    archive.append("main", entries, dropped=["main2"])
    assert archive.states(branch="main") == {"a@2": "canceled", "b@3": "ready"}
    assert archive.sql("select target from edge where kind = 'exclusive'") == []


def test_a_deleted_branch_cancels_what_has_not_started(session: Session) -> None:
    archive = an_archive(session, branches=("main", "draft"))
    archive.commit({"a": "", "b": "depends: [a]"}, branch="draft")
    archives.untrack(session, archive.id, archive.branches["draft"].id)
    assert set(archive.states(branch="draft").values()) <= {"canceled", "skipped"}


def test_commits_by_the_configured_author_count_generations(archive: AnArchive) -> None:
    entries = [Entry(a_revision(2 + n, author="robot"), a_workflow({"a": ""})) for n in range(11)]
    archive.append("", entries, author="robot")
    runs = archive.sql("select id, faults from run where number > 1 order by number")
    assert [bool(r["faults"]) for r in runs] == [False] * 11
    assert list(archive.states().values()) == ["ready"] * 10 + ["held"]
    assert archive.state("COMMIT@12") == "completed"
    (deed,) = archive.sql("select by, verb, run_id, note from deed")
    assert (deed["by"], deed["verb"], deed["run_id"]) == ("arkqueue", "hold", runs[-1]["id"])
    assert "11th in a chain" in deed["note"]
