"""Where a task may run (design 5.26): labels of task managers, and tasks that name them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from arkqueue.db.session import SQL, Session
from arkqueue.model import Pool
from arkqueue.queue import claim, finish
from arkqueue.views.explain import explain
from arkqueue.views.installation import task_managers
from arkqueue.views.reasons import Reason, Why
from tests.builders import HOST, PROCESS, AnArchive, a_workflow, an_archive, an_entry
from tests.db.test_limits import change


def claimed(session: Session, *labels: str, slots: int = 9, pools: Sequence[Pool] = tuple(Pool)) -> list[str]:
    return [one.name for one in claim.claim(session, PROCESS, HOST, slots, pools=pools, labels=labels)]


def why(archive: AnArchive, key: str) -> Reason:
    return explain(archive.session, archive.task(key)).reasons[0]


def test_a_task_runs_only_where_all_of_its_labels_are(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"both": "runs_on: [tex, gpu]", "gpu": "runs_on: gpu", "any": "", "none": "runs_on: []"})
    assert claimed(session) == ["any", "none"]
    assert claimed(session, "gp", "gpu,tex", "GPU") == []
    assert claimed(session, "gpu", "fonts") == ["gpu"]
    assert claimed(session, "tex") == []
    assert claimed(session, "tex", "fonts", "gpu") == ["both"]


def test_labels_and_kinds_are_both_asked_for(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"boxed": "image: busybox\nruns_on: [gpu]", "bare": "runs_on: [gpu]"})
    assert claimed(session, "gpu", pools=[Pool.PROCESS]) == ["bare"]
    assert claimed(session, "gpu", pools=[Pool.PROCESS]) == []
    assert claimed(session, "gpu", pools=[Pool.CONTAINER]) == ["boxed"]


def test_labels_change_nothing_in_the_order_of_an_archive(session: Session) -> None:
    """Tasks of several labels that one task manager takes go by priority, revision and position, as if they had none."""
    archive = an_archive(session)
    archive.commit({"a": "runs_on: gpu", "b": "", "c": "runs_on: [gpu, tex]", "d": "runs_on: tex"})
    archive.commit({"e": ""})
    archive.sql("update task set priority = 10 where name = 'd'")
    assert [claimed(session, "gpu", "tex", slots=1)[0] for _ in range(5)] == ["d", "a", "b", "c", "e"]


def test_what_nobody_can_run_holds_up_no_other(session: Session) -> None:
    """Neither in its own archive, nor in others, in whatever tier it is."""
    blocked = an_archive(session, "blocked")
    change(blocked, tier=0)
    blocked.commit({f"t{n}": "runs_on: quantum" for n in range(20)})
    blocked.commit({"later": ""})
    an_archive(session, "usual").commit({"a": "", "b": ""})
    assert sorted(claimed(session, "gpu", slots=3)) == ["a", "b", "later"]


def test_an_end_that_is_recorded_claims_with_the_labels_of_its_task_manager(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "depends: [a]\nruns_on: gpu", "c": "depends: [a]\nruns_on: tex"})
    attempt = archive.attempt("a@2")
    request = claim.Request(HOST, 4, claim.Turns(), labels=("gpu",))
    outcome = finish.Outcome(attempt, finish.End.EXITED, 0)
    finished = finish.finish_and_claim(session, PROCESS, [outcome], request, patience=0.0)
    assert [one.name for one in finished.claims] == ["b"]


def test_a_task_that_is_taken_up_again_goes_by_its_labels(session: Session) -> None:
    """Also where it is ready as it is planned, where it becomes ready later, and where its archive's image is set meanwhile."""
    archive = an_archive(session)
    archive.commit({"a": "runs_on: gpu", "b": "depends: [a]\nruns_on: tex", "c": "runs_on: tex"})
    assert claimed(session, "gpu") == ["a"]
    change(archive, image="busybox")
    (row,) = archive.sql("select attempt_id from task where name = 'a'")
    archive.record(row["attempt_id"], finish.End.EXITED, 0)
    assert claimed(session, "tex", pools=[Pool.PROCESS]) == []
    assert claimed(session, pools=[Pool.CONTAINER]) == []
    assert claimed(session, "tex", pools=[Pool.CONTAINER]) == ["b", "c"]


def test_explain_names_a_label_that_no_task_manager_has(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "runs_on: [gpu, tex]", "b": "runs_on: tex"})
    assert why(archive, "a@2").commands == ["arkqueue worker --label gpu --label tex"], "where none runs"
    claim.register(session, PROCESS, HOST, "build-1", 4, labels=["tex"])
    told = why(archive, "a@2")
    assert told.kind is Why.NO_LABEL
    assert (
        told.text
        == "It is ready, but no running task manager has the label gpu (`runs_on`). The labels of the running task managers are: build-1: tex. "
        "Restart one of them with --label gpu --label tex added to its labels, or start another one with its own home folder."
    )
    assert told.commands == [], "no command says which labels a task manager has beside"
    assert why(archive, "b@2").kind is Why.ABOUT_TO_START
    claim.register(session, "other", "abcdefgh-2", "build-1", 4, labels=["gpu"])
    assert f"abcdefgh: gpu; {HOST}: tex." in why(archive, "a@2").text, "two home folders of one machine"
    assert "no running task manager has all of its labels: gpu, tex" in why(archive, "a@2").text
    assert [one.labels for one in task_managers(session)] == [["gpu"], ["tex"]]
    claim.register(session, "third", "host-3", "build-3", 4, labels=["gpu", "tex"], fault="it is full")
    told = why(archive, "a@2")
    assert told.kind is Why.NO_FIT_HOST
    assert told.text.endswith("build-3: it is full."), "the other two could not run it anyway"


def test_explain_counts_what_the_task_managers_of_its_labels_take_before_it(session: Session) -> None:
    archive = an_archive(session)
    tasks = {f"gpu{n}": "runs_on: gpu" for n in range(3)} | {f"any{n}": "" for n in range(2)}
    archive.commit({**tasks, "last": "runs_on: tex"})
    claim.register(session, PROCESS, HOST, "build-1", 2, labels=["tex"])
    told = why(archive, "last@2")
    assert told.kind is Why.NO_SLOT
    assert "2 tasks ahead of it (1 task manager with 2 slots, 2 free)" in told.text


def test_explain_counts_only_what_one_task_manager_can_take(session: Session) -> None:
    """Each label is there, on different task managers: nobody takes a task that wants both."""
    archive = an_archive(session)
    archive.commit({f"both{n}": "runs_on: [gpu, tex]" for n in range(3)} | {"gpu": "runs_on: gpu", "last": ""})
    claim.register(session, PROCESS, HOST, "build-1", 1, labels=["gpu"])
    claim.register(session, "other", "host-2", "build-2", 1, labels=["tex"])
    archive.commit({"x": "", "y": ""})
    assert len(claim.claim(session, PROCESS, HOST, 1, labels=["gpu"])) == 1
    assert len(claim.claim(session, "other", "host-2", 1, labels=["tex"])) == 1
    told = why(archive, "y@3")
    assert told.kind is Why.NO_SLOT
    assert "1 task ahead of it (2 task managers with 2 slots, 0 free)" in told.text


def test_a_task_manager_that_is_started_anew_has_the_labels_that_it_has_then(session: Session) -> None:
    claim.register(session, PROCESS, HOST, "build-1", 4, labels=["tex"])
    claim.unregister(session, PROCESS)
    claim.register(session, "next", HOST, "build-1", 4)
    assert [one.labels for one in task_managers(session) if one.alive] == [[]]


def test_a_revision_has_so_many_sets_of_labels_at_most() -> None:
    with pytest.raises(AssertionError, match="different sets of labels"):
        a_workflow({f"t{n}": f"runs_on: l{n}" for n in range(101)})
    assert a_workflow({"any": ""} | {f"t{n}": f"runs_on: l{n % 100}" for n in range(200)}).tasks


def test_revisions_of_ever_new_labels_leave_the_archive_in_its_turns(session: Session) -> None:
    archive = an_archive(session)
    entries = [an_entry(n, a_workflow({f"t{m}": f"runs_on: l{n}-{m}" for m in range(50)})) for n in range(2, 12)]
    archive.append("", entries)
    archive.commit({"last": ""})
    assert claimed(session, "l5-7", "l11-49", slots=3) == ["t7", "t49", "last"]


def test_an_archive_of_many_labels_makes_no_claim_dearer_and_forgets_those_that_are_over(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"any": "", "a": "runs_on: gpu", "b": "runs_on: tex"})
    archive.sql(
        "update ready_archive set pools = pools || (select array_agg('process l' || n) from generate_series(1, 5000) n)"
    )
    asked = claim.parameters(PROCESS, HOST, 1, 90, tuple(Pool), claim.Turns(), ())
    del asked["labels"]
    with session.database.transaction() as connection:
        plan = "\n".join(
            row["QUERY PLAN"] for row in connection.execute(b"explain (analyze, timing off) " + SQL["claim"], asked)
        )
    seen = [float(rows) for rows in re.findall(r"(?:actual rows=|Removed by .*Filter: )([\d.]+)", plan)]
    assert max(seen) < 100, plan
    claim.withdraw(session)
    (row,) = archive.sql("select pools from ready_archive")
    assert sorted(row["pools"]) == ["process gpu", "process tex"], "what was claimed, and what nobody has, is forgotten"
    assert claimed(session, "tex", "gpu") == ["a", "b"]
