"""The model's reading of the rules, one behaviour each: decision 0001 by example."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from arkqueue.model import (
    COMMIT,
    REPORT,
    Cancels,
    Depends,
    EdgeKind,
    End,
    Fault,
    Retries,
    TaskDefinition,
    Trigger,
    When,
    Workflow,
)
from arkqueue.states import State
from tests.builders import a_workflow
from tests.model import Key, Kind, Model, Reason, Refused, RunKey

COMPLETED, FAILED, REJECTED, CANCELED, SKIPPED = (
    State.COMPLETED,
    State.FAILED,
    State.REJECTED,
    State.CANCELED,
    State.SKIPPED,
)
WAITING, READY, RUNNING, DEFERRED = State.WAITING, State.READY, State.RUNNING, State.DEFERRED


# ---------------------------------------------------------------------------------------------------------------------------- builders


def needs(word: str, when: When = When.COMPLETED, optional: bool = False, excepted: tuple[str, ...] = ()) -> Depends:
    previous, _, name = word.rpartition(":") if ":" in word else (word if word == "PREV" else "", "", word)
    return Depends(None if word == "PREV" else name, bool(previous), when, optional, excepted)


def settled(word: str, *excepted: str) -> Depends:
    return needs(word, When.SETTLED, excepted=excepted)


def failed(word: str) -> Depends:
    return needs(word, When.FAILED)


def cancels(word: str, only_unstarted: bool = False) -> Cancels:
    entry = needs(word)
    return Cancels(entry.task, entry.previous, only_unstarted)


def task(
    name: str, *depends: str | Depends, stops: Iterable[str | Cancels] = (), gate: bool = False, **more: object
) -> TaskDefinition:
    return TaskDefinition(
        name,
        depends=tuple(needs(entry) if isinstance(entry, str) else entry for entry in depends),
        cancels=tuple(cancels(entry) if isinstance(entry, str) else entry for entry in stops),
        command=None if gate else "true",
        **more,  # type: ignore[arg-type]
    )


class Archive(Model):
    """A model whose tasks are named as ``2:index`` or ``2.1:index``, on one branch without a name, watched from revision 1 on."""

    def __init__(self) -> None:
        super().__init__()
        self.baseline("", 1)

    def revision(self, number: int, *tasks: TaskDefinition, changed: Iterable[str] = ()) -> None:
        self.commit("", number, Workflow(tuple(tasks)), changed)
        self.check_invariants()

    def at(self, *words: str) -> State | list[State]:
        found = [self.task(k(word)).state for word in words]
        return found if len(found) > 1 else found[0]

    def start(self, *words: str) -> None:
        for word in words:
            before = self.snapshot()
            self.claim(k(word))
            self.check_invariants(before)

    def end(self, word: str, exit_code: int = 0) -> None:
        before = self.snapshot()
        self.finish(k(word), End.EXITED, exit_code)
        self.check_invariants(before)

    def stopped(self, word: str) -> None:
        before = self.snapshot()
        self.finish(k(word), End.STOPPED)
        self.check_invariants(before)

    def do(self, word: str, exit_code: int = 0) -> None:
        self.start(word)
        self.end(word, exit_code)

    def again(self, word: str, force: bool = False) -> None:
        before = self.snapshot()
        self.retry(k(word), force)
        self.check_invariants(before, [k(word)])

    def waive(self, word: str, as_completed: bool = False) -> None:
        before = self.snapshot()
        self.skip(k(word), as_completed)
        self.check_invariants(before, [k(word)])

    def root(self, word: str) -> str | None:
        return self.look()[k(word)].root


def k(word: str) -> Key:
    place, _, name = word.partition(":")
    number, _, run = place.partition(".")
    return Key("", int(number), int(run or 1), name)


def r(word: str) -> RunKey:
    return k(word + ":").run_key


def refused(reason: Reason) -> pytest.RaisesExc[Refused]:
    return pytest.raises(Refused, check=lambda refusal: refusal.reason is reason)


@pytest.fixture
def archive() -> Archive:
    return Archive()


# -------------------------------------------------------------------------------------------------------------- the design's example

INDEXING = task("indexing", "PREV")
BUILD_PDF = task("build-PDF", "indexing", stops=["PREV"])


def test_the_example_shows_exactly_the_eight_edges(archive: Archive) -> None:
    archive.revision(2, INDEXING, BUILD_PDF)
    archive.revision(3, INDEXING, BUILD_PDF)
    shown = {(f"{a.number}:{a.name}", kind, f"{b.number}:{b.name}") for a, kind, b in archive.graph("", 2, 3)}
    waits, stops = EdgeKind.DEPENDS, EdgeKind.CANCELS
    assert shown == {
        ("2:COMMIT", waits, "1:COMMIT"),
        ("2:indexing", waits, "2:COMMIT"),
        ("2:build-PDF", waits, "2:indexing"),
        ("3:COMMIT", waits, "2:COMMIT"),
        ("3:indexing", waits, "3:COMMIT"),
        ("3:indexing", waits, "2:indexing"),
        ("3:build-PDF", stops, "2:build-PDF"),
        ("3:build-PDF", waits, "3:indexing"),
    }


def test_the_example_cancels_the_old_build_between_the_end_of_indexing_and_the_start_of_the_new_build(
    archive: Archive,
) -> None:
    archive.revision(2, INDEXING, BUILD_PDF)
    archive.revision(3, INDEXING, BUILD_PDF)
    archive.do("2:indexing")
    archive.start("2:build-PDF", "3:indexing")
    assert archive.task(k("2:build-PDF")).stop is None
    archive.end("3:indexing")
    assert archive.task(k("2:build-PDF")).stop == "cancel"
    assert archive.at("2:build-PDF", "3:build-PDF") == [RUNNING, WAITING]
    archive.stopped("2:build-PDF")
    assert archive.at("2:build-PDF", "3:build-PDF") == [CANCELED, READY]
    assert archive.task(k("2:build-PDF")).superseded_by is archive.task(k("3:build-PDF"))
    archive.do("3:build-PDF")
    assert [archive.run_state(r(n)) for n in "123"] == ["completed", "superseded", "completed"]


# ------------------------------------------------------------------------------------------------------------- 1. edges remember


def test_a_settled_edge_is_met_by_any_settled_source(archive: Archive) -> None:
    archive.revision(2, task("a"), task("b", settled("a")))
    archive.do("2:a", 1)
    assert archive.at("2:b") is READY


def test_across_runs_a_failed_source_blocks_and_a_canceled_one_does_not(archive: Archive) -> None:
    archive.revision(2, task("a"), task("b"))
    archive.revision(3, task("a", "PREV"), task("b", "PREV"))
    archive.do("2:a", 1)
    archive.cancel(k("2:b"))
    assert archive.at("3:a", "3:b") == [WAITING, READY]


def test_across_runs_what_was_skipped_passes_exactly_when_its_root_passes(archive: Archive) -> None:
    archive.revision(2, task("a"), task("b", "a"), task("c"), task("d", "c"))
    archive.revision(3, task("b", "PREV"), task("d", "PREV"))
    archive.do("2:a", 1)
    archive.cancel(k("2:c"))
    assert archive.at("2:b", "2:d", "3:b", "3:d") == [SKIPPED, SKIPPED, WAITING, READY]
    archive.waive("2:a")
    assert archive.at("2:b", "3:b") == [SKIPPED, READY]


def test_a_deleted_run_passes(archive: Archive) -> None:
    archive.revision(2, task("a"))
    archive.revision(3, task("a", "PREV"))
    archive.do("2:a", 1)
    archive.delete(r("2"))
    assert archive.at("3:a") is READY
    assert archive.run_state(r("2")) == "deleted"


def test_an_edge_to_what_is_settled_already_is_judged_at_once(archive: Archive) -> None:
    archive.revision(2, task("a"), task("b"))
    archive.do("2:a")
    archive.do("2:b", 1)
    archive.revision(3, task("a", "PREV"), task("b", "PREV"))
    assert archive.at("3:a", "3:b") == [READY, WAITING]


def test_a_source_that_never_began_blocks_until_what_it_waited_for_is_over(archive: Archive) -> None:
    for number in (2, 3, 4):
        archive.revision(number, task("a", "PREV"))
    archive.start("2:a")
    archive.cancel(k("3:a"))
    assert archive.at("4:a") is WAITING
    archive.end("2:a", 1)
    assert archive.at("4:a") is WAITING
    archive.waive("2:a")
    assert archive.at("4:a") is READY


def test_a_source_that_never_began_blocks_by_the_when_of_its_own_edges(archive: Archive) -> None:
    archive.revision(2, task("a"))
    archive.revision(3, task("b", settled("PREV:a")))
    archive.revision(4, task("c", "PREV:b"))
    archive.start("2:a")
    archive.cancel(k("3:b"))
    archive.end("2:a", 1)
    assert archive.at("4:c") is READY


def test_of_tasks_that_never_began_each_blocks_the_next_until_one_is_retried(archive: Archive) -> None:
    for number in (2, 3, 4):
        archive.revision(number, task("a", "PREV"))
    archive.start("2:a")
    archive.cancel(k("4:a"))
    archive.cancel(k("3:a"))
    archive.revision(5, task("a", "PREV"))
    assert archive.at("5:a") is WAITING
    archive.again("4:a")
    assert archive.at("4:a") is WAITING
    archive.end("2:a")
    assert archive.at("4:a", "5:a") == [READY, WAITING]
    archive.do("4:a")
    assert archive.at("5:a") is READY


def test_what_has_several_bad_sources_passes_when_each_is_waived_or_mended(archive: Archive) -> None:
    """The example of issue 31: of two failed items of a list one was waived, and the next revision went on."""
    items = [task(f"item{n}") for n in (1, 2, 3)]
    archive.revision(2, *items, task("all", "item1", "item2", "item3", gate=True), task("tell", "all"))
    archive.revision(3, task("all", "PREV", gate=True), task("tell", "PREV"))
    for n in (1, 2, 3):
        archive.do(f"2:item{n}", 1)
    archive.waive("2:item1")
    assert archive.at("3:all", "3:tell") == [WAITING, WAITING]
    archive.again("2:item2")
    archive.waive("2:item3")
    assert archive.at("2:all", "3:all", "3:tell") == [SKIPPED, WAITING, WAITING], "item2 is not mended yet"
    archive.do("2:item2")
    assert archive.at("2:all", "3:all", "3:tell") == [SKIPPED, COMPLETED, READY]


def test_a_source_that_fails_after_its_dependent_was_skipped_counts_as_well(archive: Archive) -> None:
    archive.revision(2, task("a"), task("b"), task("c", "a", "b"))
    archive.revision(3, task("c", "PREV"))
    archive.start("2:b")
    archive.do("2:a", 1)
    archive.waive("2:a")
    assert archive.at("2:c", "3:c") == [SKIPPED, WAITING]
    archive.end("2:b", 1)
    assert archive.at("3:c") is WAITING
    archive.waive("2:b")
    assert archive.at("3:c") is READY


def test_what_a_canceled_task_needed_inside_its_run_blocks_only_before_it_begins(archive: Archive) -> None:
    """Nobody is held up by what a canceled task would have needed; but its own needs in earlier runs still come first."""
    for number in (2, 3, 4):
        archive.revision(number, task("a", "PREV:b"), task("b", "a"))
    archive.do("2:a")
    archive.start("2:b")
    archive.cancel(k("3:b"))
    assert archive.at("3:a", "4:a") == [WAITING, WAITING]
    archive.end("2:b")
    assert archive.at("3:a", "4:a") == [READY, READY]


def test_a_met_edge_across_runs_stays_met_when_its_source_is_retried(archive: Archive) -> None:
    archive.revision(2, task("a"))
    archive.revision(3, task("a", settled("PREV")))
    archive.do("2:a", 1)
    archive.again("2:a")
    assert archive.at("2:a", "3:a") == [READY, READY]


# ------------------------------------------------------------------------------------------------------------------- 2. skipping


@pytest.mark.parametrize(("exit_code", "state"), [(1, FAILED), (65, REJECTED)])
def test_a_bad_end_skips_down_the_graph_and_stores_the_root(archive: Archive, exit_code: int, state: State) -> None:
    archive.revision(2, task("a"), task("b", "a"), task("c", "b"))
    archive.do("2:a", exit_code)
    assert archive.at("2:a", "2:b", "2:c") == [state, SKIPPED, SKIPPED]
    assert archive.root("2:b") == archive.root("2:c") == "a"
    assert archive.run_state(r("2")) == "failed"


def test_of_several_roots_the_first_in_the_order_of_the_file_is_stored(archive: Archive) -> None:
    archive.revision(2, task("b", gate=True), task("a", "b"), task("x", "a"), task("y", "x"), task("z", "y", "x", "a"))
    archive.revision(3, task("t", stops=["PREV:x", "PREV:a"]))
    assert archive.at("2:a", "2:x", "2:y", "2:z") == [CANCELED, CANCELED, SKIPPED, SKIPPED]
    assert (archive.root("2:y"), archive.root("2:z")) == ("x", "a")


def test_a_settled_edge_never_skips(archive: Archive) -> None:
    archive.revision(2, task("a"), task("b"), task("c", settled("a"), "b"))
    archive.do("2:a", 1)
    assert archive.at("2:c") is WAITING


def test_commit_report_and_the_gate_of_prev_star_are_never_skipped(archive: Archive) -> None:
    archive.revision(2, task("a"))
    archive.revision(3, task(COMMIT, "PREV:a"), task("b", "PREV:*"))
    archive.do("2:a", 1)
    assert archive.at("2:REPORT", "3:COMMIT", "3:PREV:*", "3:REPORT") == [COMPLETED, WAITING, WAITING, WAITING]


def test_independent_tasks_are_not_stopped_by_a_failure(archive: Archive) -> None:
    archive.revision(2, task("a"), task("b"))
    archive.do("2:a", 1)
    assert archive.at("2:b") is READY


# ------------------------------------------------------------------------------------------------------------------ 3. entering


def test_a_gate_passes_by_itself(archive: Archive) -> None:
    archive.revision(2, task("a"), task("g", "a", gate=True), task("b", "g"))
    archive.do("2:a")
    assert archive.at("2:g", "2:b") == [COMPLETED, READY]


def test_what_enters_together_fires_across_runs_all_together_then_inside_in_the_order_of_the_file(
    archive: Archive,
) -> None:
    archive.revision(2, task("v"))
    archive.start("2:v")
    archive.revision(
        3, task("s"), task("a", "s", stops=["b"]), task("b", "s", stops=["PREV:v", "c"]), task("c", "s", stops=["x"])
    )
    archive.do("3:s")
    assert archive.at("3:a", "3:b", "3:c") == [READY, CANCELED, READY]
    assert archive.task(k("2:v")).stop == "cancel", "b fired before a canceled it"


def test_skipping_goes_all_the_way_down_before_anything_enters(archive: Archive) -> None:
    archive.revision(2, task("a"), task("b", "a"), task("c", "b"), task("t", settled("a"), stops=["b", "c"]))
    archive.do("2:a", 1)
    assert archive.at("2:b", "2:c") == [SKIPPED, SKIPPED], "t entered in the round in which both were skipped"


# -------------------------------------------------------------------------------------------------------------------- 4. firing


def test_victims_are_the_unsettled_tasks_of_all_earlier_runs(archive: Archive) -> None:
    for number in (2, 3, 4):
        archive.revision(number, task("hold"), task("a", "hold"), task("b", "a"))
    archive.revision(5, task("a", stops=["PREV"]))
    assert archive.at("2:a", "3:a", "4:a", "5:a") == [CANCELED, CANCELED, CANCELED, READY]
    assert archive.at("2:hold", "2:b") == [READY, SKIPPED]


def test_cancels_of_the_same_run_leaves_other_runs_alone(archive: Archive) -> None:
    archive.revision(2, task("a"))
    archive.revision(3, task("a"), task("t", stops=["a"]))
    assert archive.at("2:a", "3:a", "3:t") == [READY, CANCELED, READY]


def test_only_unstarted_spares_what_has_had_an_attempt(archive: Archive) -> None:
    again = Retries(max=1)
    archive.revision(2, task("a"), task("b"), task("c", retries=again))
    archive.start("2:a")
    archive.do("2:c", 1)
    archive.revision(3, task("t", stops=[cancels(f"PREV:{name}", only_unstarted=True) for name in "abc"]))
    assert archive.at("2:a", "2:b", "2:c", "3:t") == [RUNNING, CANCELED, DEFERRED, READY]
    assert archive.task(k("2:a")).stop is None


def test_a_canceler_waits_for_its_running_victim_and_fires_again_when_it_is_gone(archive: Archive) -> None:
    archive.revision(2, task("a"))
    archive.start("2:a")
    archive.revision(3, task("a", stops=["PREV"]))
    archive.trigger("", 2, force=True)
    assert archive.at("2.2:a", "3:a") == [READY, WAITING]
    archive.stopped("2:a")
    assert archive.at("2:a", "2.2:a", "3:a") == [CANCELED, CANCELED, READY]


def test_an_attempt_that_had_ended_before_the_signal_keeps_its_outcome(archive: Archive) -> None:
    archive.revision(2, task("a"))
    archive.start("2:a")
    archive.revision(3, task("a", stops=["PREV"]))
    archive.end("2:a", 0)
    assert archive.at("2:a", "3:a") == [COMPLETED, READY]


def test_a_victim_whose_lease_lapses_is_canceled_and_not_run_again(archive: Archive) -> None:
    archive.revision(2, task("a"))
    archive.start("2:a")
    archive.revision(3, task("a", stops=["PREV"]))
    archive.lose(k("2:a"))
    assert archive.at("2:a", "3:a") == [CANCELED, READY]


def test_a_canceler_fires_at_each_entry(archive: Archive) -> None:
    archive.revision(2, task("a"))
    archive.revision(3, task("a", stops=["PREV"]))
    archive.start("3:a")
    archive.again("2:a", force=True)
    assert archive.at("2:a") is READY
    archive.hand_back(k("3:a"))
    assert archive.at("2:a", "3:a") == [CANCELED, READY]


# --------------------------------------------------------------------------------------------------------------------- 5. retry


def test_a_retried_root_brings_back_what_it_skipped(archive: Archive) -> None:
    archive.revision(2, task("a"), task("b", "a"), task("c", "b"))
    archive.do("2:a", 1)
    archive.again("2:a")
    assert archive.at("2:a", "2:b", "2:c") == [READY, WAITING, WAITING]
    for name in "abc":
        archive.do(f"2:{name}")
    assert archive.run_state(r("2")) == "completed"


def test_what_another_failure_still_skips_stays_skipped_with_the_new_root(archive: Archive) -> None:
    archive.revision(2, task("a"), task("b"), task("c", "a", "b"), task("d", "c"))
    archive.revision(3, task("d", "PREV"))
    archive.do("2:a", 1)
    archive.do("2:b", 1)
    archive.waive("2:b")
    archive.again("2:a")
    assert archive.at("2:c", "2:d") == [SKIPPED, SKIPPED]
    assert archive.root("2:c") == archive.root("2:d") == "b"
    assert archive.at("3:d") is WAITING, "a is not mended yet"
    archive.do("2:a")
    assert archive.at("2:d", "3:d") == [SKIPPED, READY]


@pytest.mark.parametrize("exit_code", [0, 65])
def test_completed_and_rejected_tasks_are_never_retried(archive: Archive, exit_code: int) -> None:
    archive.revision(2, task("a"))
    archive.do("2:a", exit_code)
    with refused(Reason.STATE):
        archive.again("2:a", force=True)


def test_a_skipped_task_is_retried_by_its_root_alone_and_a_persons_skip_by_itself(archive: Archive) -> None:
    archive.revision(2, task("a"), task("b", "a"))
    archive.waive("2:a")
    assert archive.at("2:a", "2:b") == [SKIPPED, SKIPPED]
    with refused(Reason.STATE):
        archive.again("2:b")
    archive.again("2:a")
    assert archive.at("2:a", "2:b") == [READY, WAITING]


def test_retry_is_refused_where_something_it_needs_is_bad(archive: Archive) -> None:
    archive.revision(2, task("a"), task("b", "a"))
    archive.cancel(k("2:b"))
    archive.do("2:a", 1)
    with refused(Reason.BLOCKED):
        archive.again("2:b", force=True)


def test_what_hangs_on_a_retried_task_and_has_not_started_waits_again(archive: Archive) -> None:
    after = settled("a")
    archive.revision(
        2, task("a"), task("b", after), task("c", after), task("d", after, "e"), task("e"), task("f", after)
    )
    archive.do("2:e", 1)
    archive.do("2:a", 1)
    archive.start("2:c")
    archive.cancel(k("2:f"))
    archive.again("2:a")
    assert archive.at("2:b", "2:c", "2:d", "2:f") == [WAITING, RUNNING, SKIPPED, CANCELED]
    archive.again("2:e")
    archive.again("2:f")
    archive.do("2:e")
    assert archive.at("2:d", "2:f") == [WAITING, WAITING], "what was skipped or canceled meanwhile waits for it too"


def test_report_waits_again_unless_it_has_been_made(archive: Archive) -> None:
    archive.revision(2, task("a"), task("b"))
    archive.do("2:a", 1)
    archive.again("2:a")
    archive.do("2:b")
    assert archive.at("2:REPORT") is WAITING
    archive.do("2:a", 1)
    assert archive.at("2:REPORT") is COMPLETED
    archive.again("2:a")
    assert archive.at("2:REPORT") is COMPLETED


def test_a_task_without_a_list_is_work_of_its_own_submission(archive: Archive) -> None:
    batch = task("batch", on=(Trigger.COMMIT, Trigger.SUBMISSION))
    archive.revision(2, batch)
    archive.submit("", 2)
    archive.do("2:batch", 1)
    archive.do("2.2:batch", 1)
    archive.submit("", 2)
    archive.do("2.3:batch")
    archive.again("2.2:batch")
    assert archive.at("2.2:batch") is READY
    with refused(Reason.OVERWRITES):
        archive.again("2:batch")
    archive.revision(3, batch)
    archive.do("3:batch")
    archive.submit("", 2)  # no newer work stands in its way
    assert archive.at("2.4:batch") is READY


def test_a_retry_counts_failures_anew_and_lifts_the_waiver(archive: Archive) -> None:
    archive.revision(2, task("a", retries=Retries(max=1)))
    archive.do("2:a", 1)
    archive.due(k("2:a"))
    archive.do("2:a", 1)
    archive.waive("2:a")
    assert archive.run_state(r("2")) == "completed"
    archive.again("2:a")
    archive.do("2:a", 1)
    assert archive.at("2:a") is DEFERRED
    archive.due(k("2:a"))
    archive.do("2:a", 1)
    assert archive.run_state(r("2")) == "failed"


@pytest.mark.parametrize("how", ["running", "ended", "gate", "COMMIT", "reopened"])
def test_retry_is_refused_when_a_later_run_went_on_because_of_it(archive: Archive, how: str) -> None:
    archive.revision(2, task("a"), task("b", "a"))
    gates = {"gate": task("g", settled("PREV:a"), gate=True), "COMMIT": task(COMMIT, settled("PREV:a"))}
    if how in gates:
        archive.revision(3, gates[how], task("x", "g") if how == "gate" else task("x"))
    else:
        archive.revision(3, task("x", settled("PREV:b" if how == "reopened" else "PREV:a")))
    archive.do("2:a", 1)
    archive.start("3:x")
    if how == "ended":
        archive.end("3:x")
    with refused(Reason.STARTED):
        archive.again("2:a")
    archive.again("2:a", force=True)
    assert archive.at("2:a") is READY


def test_a_gate_that_passed_alone_does_not_stand_against_a_retry(archive: Archive) -> None:
    archive.revision(2, task("a"))
    archive.revision(3, task("g", settled("PREV:a"), gate=True), task("x", "g"))
    archive.do("2:a", 1)
    archive.again("2:a")
    assert archive.at("2:a") is READY


def test_a_superseded_task_is_retried_only_by_force(archive: Archive) -> None:
    archive.revision(2, task("a"), task("hold"), task("b", "hold"))
    archive.do("2:a", 1)
    archive.revision(3, task("b"), task("t", stops=["PREV:a", "PREV:b"]))
    assert archive.at("2:b") is CANCELED
    for name in "ab":
        with refused(Reason.SUPERSEDED):
            archive.again(f"2:{name}")
    archive.again("2:a", force=True)
    assert archive.at("2:a") is READY


def test_a_root_is_not_retried_when_what_it_would_bring_back_is_superseded(archive: Archive) -> None:
    archive.revision(2, task("a"), task("b", "a"))
    archive.do("2:a", 1)
    archive.revision(3, task("b", stops=["PREV"]))
    with refused(Reason.SUPERSEDED):
        archive.again("2:a")


# --------------------------------------------------------------------------------------------------------------------- 6. waive


@pytest.mark.parametrize("state", [WAITING, READY, DEFERRED])
def test_a_persons_skip_takes_down_what_needs_it_but_lets_later_runs_go_on(archive: Archive, state: State) -> None:
    archive.revision(2, task("hold"), task("a", *(["hold"] if state is WAITING else [])), task("b", "a"))
    archive.revision(3, task("b", "PREV"))
    if state is DEFERRED:
        archive.do("2:a", 75)
    assert archive.at("2:a") is state
    archive.waive("2:a")
    assert archive.at("2:a", "2:b", "3:b") == [SKIPPED, SKIPPED, READY]
    assert (archive.root("2:a"), archive.root("2:b")) == (None, "a")


def test_a_waived_failure_stays_failed_and_its_dependents_skipped(archive: Archive) -> None:
    archive.revision(2, task("a"), task("b", "a"))
    archive.revision(3, task("a", "PREV"), task("b", "PREV"))
    archive.do("2:a", 1)
    archive.waive("2:a")
    assert archive.at("2:a", "2:b", "3:a", "3:b") == [FAILED, SKIPPED, READY, READY]


def test_skip_as_completed_lets_the_dependents_inside_the_run_go_on(archive: Archive) -> None:
    archive.revision(2, task("a"), task("b", "a"), task("c"), task("d", "c"))
    archive.do("2:a", 65)
    archive.waive("2:a", as_completed=True)
    archive.waive("2:c", as_completed=True)
    assert archive.at("2:a", "2:b", "2:c", "2:d") == [REJECTED, READY, SKIPPED, READY]


@pytest.mark.parametrize("state", [RUNNING, COMPLETED, CANCELED, SKIPPED])
def test_skip_is_refused_where_it_means_nothing(archive: Archive, state: State) -> None:
    archive.revision(2, task("a"))
    if state in (RUNNING, COMPLETED):
        archive.start("2:a")
    if state is COMPLETED:
        archive.end("2:a")
    elif state is CANCELED:
        archive.cancel(k("2:a"))
    elif state is SKIPPED:
        archive.waive("2:a")
    with refused(Reason.STATE):
        archive.waive("2:a")


def test_skip_until_waives_the_failed_and_rejected_and_nothing_else(archive: Archive) -> None:
    for number in range(2, 7):
        archive.revision(number, task("a", settled("PREV")))
    for number, exit_code in ((2, 1), (3, 65), (4, 0), (5, 1)):
        archive.do(f"{number}:a", exit_code)
    archive.skip_until("a", "", 4)
    assert [number for number in range(2, 7) if archive.task(k(f"{number}:a")).waived] == [2, 3]
    archive.skip_until("a", "", 6)
    assert archive.at("6:a") is READY


def test_skip_until_leaves_what_was_skipped_to_its_root(archive: Archive) -> None:
    archive.revision(2, task("a"), task("b", "a"))
    archive.revision(3, task("b", "PREV"))
    archive.do("2:a", 1)
    archive.skip_until("b", "", 3)
    assert archive.at("3:b") is WAITING
    archive.skip_until("a", "", 3)
    assert archive.at("3:b") is READY


def test_a_retry_takes_back_that_the_task_counted_as_completed(archive: Archive) -> None:
    archive.revision(2, task("a"), task("b", "a"))
    archive.do("2:a", 1)
    archive.waive("2:a", as_completed=True)
    archive.again("2:a")
    assert archive.at("2:b") is WAITING
    archive.do("2:a", 1)
    assert archive.at("2:b") is SKIPPED


# ------------------------------------------------------------------------------------------------------ 7. cancel, 8. restart, 9.


def test_cancel_stops_what_runs_and_takes_down_what_needs_it(archive: Archive) -> None:
    archive.revision(2, task("a"), task("b", "a"))
    archive.start("2:a")
    archive.cancel(k("2:a"))
    assert archive.at("2:a", "2:b") == [RUNNING, WAITING]
    archive.stopped("2:a")
    assert archive.at("2:a", "2:b") == [CANCELED, SKIPPED]
    with refused(Reason.STATE):
        archive.cancel(k("2:a"))


@pytest.mark.parametrize("name", [COMMIT, REPORT, "PREV:*:commits"])
def test_commit_report_and_gates_of_prev_star_are_nobodys_to_stop(archive: Archive, name: str) -> None:
    archive.revision(2, task("a"))
    archive.revision(3, task(COMMIT, "PREV:*"))
    with refused(Reason.IMPLICIT):
        archive.cancel(k(f"3:{name}"))
    with refused(Reason.IMPLICIT):
        archive.waive(f"3:{name}")


def test_a_canceled_run_loses_its_tasks_but_passes_its_commit(archive: Archive) -> None:
    archive.revision(2, task("a"))
    archive.revision(3, task(COMMIT, "PREV:a"), task("b"), task("c", "b"), task("d", "PREV:*"))
    archive.cancel_run(r("3"))
    assert archive.at("3:b", "3:c", "3:d", "3:COMMIT") == [CANCELED, CANCELED, CANCELED, WAITING]
    archive.do("2:a")
    assert archive.at("3:COMMIT", "3:REPORT") == [COMPLETED, COMPLETED]
    assert archive.run_state(r("3")) == "canceled"
    with refused(Reason.NOTHING):
        archive.cancel_run(r("3"))


def test_a_run_is_reported_although_a_gate_of_prev_star_still_waits(archive: Archive) -> None:
    archive.revision(2, task("a"))
    archive.revision(3, task("b", "PREV:*"))
    archive.do("2:a", 1)
    archive.cancel(k("3:b"))
    assert archive.at("3:PREV:*", "3:REPORT") == [WAITING, COMPLETED]
    assert archive.run_state(r("3")) == "canceled"
    archive.delete(r("3"))


def test_restart_runs_it_again_without_settling(archive: Archive) -> None:
    archive.revision(2, task("a"), task("b", settled("a")))
    archive.start("2:a")
    archive.restart(k("2:a"))
    archive.stopped("2:a")
    assert archive.at("2:a", "2:b") == [READY, WAITING]


def test_a_cancel_overrules_a_restart_and_never_the_other_way_round(archive: Archive) -> None:
    archive.revision(2, task("a"))
    archive.start("2:a")
    archive.restart(k("2:a"))
    archive.cancel(k("2:a"))
    with refused(Reason.CANCELING):
        archive.restart(k("2:a"))
    archive.stopped("2:a")
    assert archive.at("2:a") is CANCELED


def test_a_stop_request_is_forgotten_with_its_attempt(archive: Archive) -> None:
    archive.revision(2, task("a"))
    archive.start("2:a")
    archive.restart(k("2:a"))
    archive.lose(k("2:a"))
    archive.start("2:a")
    archive.stopped("2:a")
    assert archive.at("2:a") is READY, "handed back, no longer restarted"


# ------------------------------------------------------------------------------------------------------- 10. deferred, 15. on_lost


@pytest.mark.parametrize("exit_code", [75, 1])
def test_a_deferred_task_enters_again_when_it_is_due(archive: Archive, exit_code: int) -> None:
    archive.revision(2, task("a", retries=Retries(max=1)), task("b", "a"))
    archive.do("2:a", exit_code)
    assert archive.at("2:a", "2:b") == [DEFERRED, WAITING]
    archive.due(k("2:a"))
    assert archive.at("2:a") is READY


def test_the_fourth_loss_fails_the_task(archive: Archive) -> None:
    archive.revision(2, task("a"), task("b", on_lost="fail"))
    for state in (READY, READY, READY, FAILED):
        archive.start("2:a")
        archive.lose(k("2:a"))
        assert archive.at("2:a") is state
    archive.start("2:b")
    archive.lose(k("2:b"))
    assert archive.at("2:b") is FAILED


# ----------------------------------------------------------------------------------------------------------------- 11. exclusive

ONLY = task("only", exclusive=True)


def test_an_exclusive_task_closes_the_gate_to_the_next_revision_until_it_has_settled(archive: Archive) -> None:
    archive.revision(2, ONLY, task("a"))
    archive.revision(3, task("a"))
    assert archive.at("2:a", "3:COMMIT", "3:a") == [READY, WAITING, WAITING]
    archive.do("2:only", 1)
    assert archive.at("3:COMMIT", "3:a") == [COMPLETED, READY]


def test_exclusive_tasks_of_one_run_go_one_at_a_time_in_the_graphs_order(archive: Archive) -> None:
    archive.revision(2, task("c", "z", exclusive=True), task("b", exclusive=True), task("z"), ONLY)
    chain = [(e.source.name, e.target.name) for e in archive.edges if e.kind is Kind.EXCLUSIVE]
    assert chain == [("b", "c"), ("c", "only")]
    assert archive.at("2:b", "2:only") == [READY, WAITING]


def test_a_manual_run_closes_the_gate_of_the_first_revision_not_yet_passed(archive: Archive) -> None:
    archive.revision(2, ONLY)
    archive.do("2:only")
    archive.revision(3, ONLY)
    archive.revision(4)
    archive.revision(5)
    archive.trigger("", 2)
    archive.do("3:only")
    assert archive.at("3:COMMIT", "4:COMMIT", "5:COMMIT") == [COMPLETED, WAITING, WAITING]
    archive.do("2.2:only")
    assert archive.at("4:COMMIT", "5:COMMIT") == [COMPLETED, COMPLETED]
    archive.trigger("", 2, force=True)
    archive.revision(6)
    assert archive.at("6:COMMIT") is WAITING, "where every revision has passed, the next one waits"


def test_a_faulty_revision_does_not_open_an_exclusive_gate(archive: Archive) -> None:
    archive.revision(2, ONLY)
    archive.commit("", 3, Workflow(faults=(Fault("_workflows/a.yaml", 1, 1, "no"),)))
    archive.revision(4)
    assert archive.at("3:COMMIT", "4:COMMIT") == [WAITING, WAITING]


# -------------------------------------------------------------------------------------------------------- 12. PREV, PREV:x, PREV:*


def test_prev_is_the_nearest_earlier_run_that_has_the_task(archive: Archive) -> None:
    archive.revision(2, task("a"), task("b"))
    archive.revision(3)
    archive.revision(4, task("b", "PREV:a"))
    archive.revision(5, task("b", "PREV"), task("c", "PREV"))
    sources = {e.target.key: e.source.key for e in archive.edges if e.kind is Kind.DECLARED and e.target.name in "bc"}
    assert sources == {k("4:b"): k("2:a"), k("5:b"): k("4:b")}


def test_a_rerun_takes_its_place_right_after_the_original(archive: Archive) -> None:
    archive.revision(2, task("a", "PREV"))
    archive.revision(3, task("a", "PREV", stops=["PREV"]))
    archive.trigger("", 2)
    (edge,) = [e for e in archive.task(k("2.2:a")).into if e.kind is Kind.DECLARED]
    assert edge.source.key == k("2:a")
    archive.revision(4, task("a", "PREV"))
    (edge,) = [e for e in archive.task(k("4:a")).into if e.kind is Kind.DECLARED]
    assert edge.source.key == k("3:a")


def test_prev_star_is_one_gate_for_the_nearest_earlier_task_of_each_name(archive: Archive) -> None:
    archive.revision(2, task("a"), task("b"))
    archive.revision(3, task("b"))
    archive.revision(4, task("c", "PREV:*"), task("d", "PREV:*"), task("e", settled("PREV:*")))
    gate = archive.task(k("4:PREV:*"))
    assert {e.source.key for e in gate.into} == {k("2:a"), k("3:b"), k("3:COMMIT")}
    assert {e.target.name for e in gate.out_of} == {"c", "d"}
    for word in ("2:a", "2:b", "3:b"):
        archive.do(word, 1 if word == "2:a" else 0)
    assert archive.at("4:PREV:*", "4:PREV:*:settled", "4:c", "4:e") == [WAITING, COMPLETED, WAITING, READY]


def test_the_strict_order_of_the_source_document_is_one_line(archive: Archive) -> None:
    strict = task(COMMIT, settled("PREV:*"), gate=True)
    for number in (2, 3, 4):
        archive.revision(number, strict, task("a"), task("b", "a"))
    archive.do("2:a")
    assert archive.at("2:b", "3:a", "4:a") == [READY, WAITING, WAITING]
    archive.do("2:b", 1)
    assert archive.at("3:a", "4:a") == [READY, WAITING]


def test_the_strict_order_waits_for_no_run_that_a_person_started(archive: Archive) -> None:
    strict = task(COMMIT, settled("PREV:*"), gate=True)
    archive.revision(2, strict, task("a"))
    archive.do("2:a")
    archive.trigger("", 2, ["a"])
    archive.revision(3, strict, task("a"))
    assert archive.at("3:a") is READY


def test_strict_order_but_for_one_task_is_one_line(archive: Archive) -> None:
    strict = task(COMMIT, settled("PREV:*", "pdf"), gate=True)
    for number in (2, 3):
        archive.revision(number, strict, task("index"), task("pdf", "index"))
    archive.do("2:index")
    archive.start("2:pdf")
    assert archive.at("2:pdf", "3:index") == [RUNNING, READY]
    gate = archive.task(k("3:PREV:*:commits:settled:except:pdf"))
    assert {edge.source.key for edge in gate.into} == {k("2:COMMIT"), k("2:index")}


# ------------------------------------------------------------------------------------------------------------------ 20. when: failed


@pytest.mark.parametrize("exit_code", [1, 65])
def test_what_waits_for_a_failure_runs_after_it_and_the_run_has_failed(archive: Archive, exit_code: int) -> None:
    archive.revision(2, task("a"), task("b", failed("a")), task("c", "b"))
    archive.do("2:a", exit_code)
    archive.do("2:b")
    archive.do("2:c")
    assert archive.run_state(RunKey("", 2, 1)) == "failed"


def test_what_waits_for_a_failure_is_skipped_with_what_needs_it_where_there_is_none(archive: Archive) -> None:
    archive.revision(2, task("a"), task("b", failed("a")), task("c", "b"))
    archive.do("2:a")
    assert archive.at("2:b", "2:c", "2:REPORT") == [SKIPPED, SKIPPED, COMPLETED]
    assert archive.root("2:b") == archive.root("2:c") == "a"
    assert archive.run_state(RunKey("", 2, 1)) == "completed"


def test_a_retry_takes_back_what_waits_for_a_failure_and_has_not_started(archive: Archive) -> None:
    archive.revision(2, task("a"), task("b", failed("a")))
    archive.do("2:a", 1)
    archive.again("2:a")
    assert archive.at("2:b") is WAITING
    archive.do("2:a")
    assert archive.at("2:b") is SKIPPED


def test_what_is_not_needed_blocks_later_revisions_only_by_what_it_waited_for(archive: Archive) -> None:
    for number in (2, 3, 4):
        archive.revision(number, task("a"), task("b", failed("a"), "PREV"))
    archive.do("2:a", 1)
    archive.start("2:b")
    archive.do("3:a")
    archive.do("4:a", 1)
    assert archive.at("3:b", "4:b") == [SKIPPED, WAITING]
    archive.end("2:b")
    assert archive.at("4:b") is READY


def test_a_run_has_not_failed_because_nothing_failed_in_another_one(archive: Archive) -> None:
    archive.revision(2, task("a"))
    archive.do("2:a")
    archive.revision(3, task("b", failed("PREV:a")))
    assert archive.at("3:b") is SKIPPED
    assert archive.run_state(RunKey("", 3, 1)) == "completed"
    with refused(Reason.STATE):
        archive.retry(k("3:b"))


def test_what_never_ran_has_not_failed(archive: Archive) -> None:
    archive.revision(2, task("a", paths=("docs/*",)), task("b", failed("a")), task("c", failed("PREV:a")))
    assert archive.at("2:b", "2:c") == [SKIPPED, READY]


# ----------------------------------------------------------------------------------------------------- 13. names left out, 14., 16.


def test_a_task_that_filters_leave_out_stands_for_its_earlier_occurrence(archive: Archive) -> None:
    docs, site = task("docs", paths=("docs/*",)), task("site", "docs", needs("nobody", optional=True))
    archive.revision(2, docs, site, changed=["docs/a"])
    archive.revision(3, docs, site, changed=["src/a"])
    assert k("3:docs") not in archive.states()
    archive.do("2:docs")
    assert archive.at("2:site", "3:site") == [READY, READY]


def test_a_manual_run_takes_the_product_of_what_it_leaves_out(archive: Archive) -> None:
    archive.revision(2, task("a"), task("b", "a", COMMIT))
    archive.trigger("", 2, ["b"])
    assert archive.at("2.2:b") is WAITING
    archive.do("2:a", 1)
    assert archive.at("2:b", "2.2:b") == [SKIPPED, WAITING], "a failure may still be mended"
    archive.waive("2:a")
    assert (archive.at("2.2:b"), archive.root("2.2:b")) == (SKIPPED, "a")
    with refused(Reason.MISSING):
        archive.trigger("", 2, ["b"])
    archive.again("2:a")
    archive.do("2:a")
    assert archive.at("2:b", "2.2:b") == [READY, READY]
    archive.trigger("", 2, ["b"])
    assert archive.at("2.3:b") is READY


def test_a_commit_run_takes_the_product_of_what_its_filters_leave_out(archive: Archive) -> None:
    pdf, upload = task("pdf", paths=("docs/*",)), task("upload", "pdf")
    archive.revision(2, pdf, upload, changed=["docs/a"])
    archive.revision(3, pdf, upload)
    assert archive.at("2:upload", "3:upload") == [WAITING, WAITING]
    archive.cancel(k("2:pdf"))
    assert archive.at("2:upload", "3:upload") == [SKIPPED, SKIPPED]
    assert archive.run_state(RunKey("", 3, 1)) == "failed"


def test_a_run_has_the_tasks_that_are_meant_for_its_trigger_and_branch(archive: Archive) -> None:
    by_hand, elsewhere = task("m", on=(Trigger.MANUAL,)), task("e", branches=("stable-*",))
    archive.revision(2, by_hand, elsewhere, task("c", on=(Trigger.COMMIT,)), task("p", paths=("docs/*",)))
    archive.trigger("", 2)
    archive.trigger("", 2, ["m"])
    names = [{key.name for key in archive.states() if key.run == run and key.number == 2} for run in (1, 2, 3)]
    assert names == [{COMMIT, "c", REPORT}, {COMMIT, "p", REPORT}, {COMMIT, "m", REPORT}]


def test_a_run_that_a_later_one_has_superseded_already_is_refused_unless_forced(archive: Archive) -> None:
    archive.revision(2, task("a"), task("b"))
    archive.revision(3, task("t", stops=["PREV:a"]))
    with refused(Reason.SUPERSEDED):
        archive.trigger("", 2)
    archive.trigger("", 2, ["b"])
    archive.trigger("", 2, force=True)
    assert archive.at("2.2:b", "2.3:a") == [READY, READY]


def test_a_manual_run_waits_behind_the_commit_of_its_revision(archive: Archive) -> None:
    archive.revision(2, ONLY)
    archive.revision(3, task("a"))
    archive.trigger("", 3)
    assert archive.at("3.2:COMMIT", "3.2:a") == [WAITING, WAITING]


def test_a_faulty_definition_fails_its_run_and_lets_the_next_revision_through(archive: Archive) -> None:
    archive.revision(2, task("a"))
    archive.commit("", 3, Workflow((task(COMMIT, "PREV:a"), task("b")), (Fault("_workflows/a.yaml", 1, 1, "no"),)))
    archive.revision(4, task("c"))
    assert {key.name for key in archive.states() if key.number == 3} == {COMMIT, REPORT}
    assert (archive.run_state(r("3")), archive.at("3:COMMIT", "4:c")) == ("failed", [COMPLETED, READY])
    with refused(Reason.FAULTY):
        archive.trigger("", 3)


# ------------------------------------------------------------------------------------------------------- rule 16, and what is kept


def test_a_rewrite_cancels_what_does_not_run_yet_of_the_dropped_commits(archive: Archive) -> None:
    archive.revision(2, task("a"))
    archive.revision(3, task("a", "PREV"), task("b"), task("c", settled("b")), task("d"))
    archive.start("3:b")
    archive.do("3:d", 75)
    archive.rewrite("", [3])
    assert archive.at("2:a", "3:a", "3:b", "3:c", "3:d") == [READY, CANCELED, RUNNING, CANCELED, CANCELED]
    archive.revision(4, task("a", "PREV"))
    assert archive.at("2:a", "4:a") == [READY, WAITING]
    archive.do("2:a")
    assert archive.at("4:a") is READY


def test_a_deleted_branch_cancels_what_has_not_started(archive: Archive) -> None:
    archive.revision(2, task("a"), task("b"))
    archive.start("2:b")
    archive.delete_branch("")
    assert archive.at("2:a", "2:b") == [CANCELED, RUNNING]
    with refused(Reason.GONE):
        archive.revision(3)


def test_branches_do_not_see_each_other(archive: Archive) -> None:
    archive.baseline("side", 1)
    archive.commit("side", 2, Workflow((task("a"),)))
    archive.revision(2, task("a", "PREV", stops=["PREV"]))
    assert archive.at("2:a") is archive.states()[Key("side", 2, 1, "a")] is READY


def test_a_run_is_deleted_when_none_of_its_tasks_runs(archive: Archive) -> None:
    archive.revision(2, task("a"))
    archive.start("2:a")
    with refused(Reason.STATE):
        archive.delete(r("2"))
    archive.end("2:a", 1)
    archive.delete(r("2"))
    with refused(Reason.GONE):
        archive.again("2:a")


def test_what_a_deletion_canceled_comes_back_as_held(archive: Archive) -> None:
    archive.revision(2, task("a"), task("b", "a"))
    archive.delete(r("2"))
    assert archive.at("2:a") is archive.at("2:b") is State.CANCELED
    archive.undelete(r("2"))
    assert archive.at("2:a") is archive.at("2:b") is State.HELD
    with refused(Reason.STATE):
        archive.undelete(r("2"))


def test_the_state_of_a_run_is_told_from_its_tasks(archive: Archive) -> None:
    archive.revision(2, task("a"), task("b"))
    told = [archive.run_state(r("2"))]
    archive.start("2:a")
    told.append(archive.run_state(r("2")))
    archive.end("2:a", 1)
    told.append(archive.run_state(r("2")))
    archive.do("2:b")
    told.append(archive.run_state(r("2")))
    archive.waive("2:a")
    assert [*told, archive.run_state(r("2"))] == ["pending", "processing", "processing", "failed", "completed"]


# ---------------------------------------------------------------------------------------------------- the invariants can be broken


def test_the_invariants_notice_what_must_not_be(archive: Archive) -> None:
    archive.revision(2, task("a"), task("b", "a"), ONLY)
    archive.revision(3)
    before = archive.snapshot()

    def broken(why: str, word: str, **changes: object) -> None:
        victim = archive.task(k(word))
        kept = {name: getattr(victim, name) for name in changes}
        for name, value in changes.items():
            setattr(victim, name, value)
        with pytest.raises(AssertionError, match=why):
            archive.check_invariants(before)
        for name, value in kept.items():
            setattr(victim, name, value)
        archive.check_invariants(before)

    broken("forgotten", "2:a", state=WAITING)
    broken("too early", "2:b", state=READY)
    broken("live attempts", "2:a", state=RUNNING)
    broken("no true root", "2:b", root=archive.task(k("2:a")), state=SKIPPED)
    broken("passed", "3:COMMIT", state=COMPLETED)
    broken("COMMIT out of order", "1:COMMIT", state=READY)


def test_what_a_gate_behind_a_list_spared_is_judged_again_with_the_gate(archive: Archive) -> None:
    """Beside ``tests/db/test_when_failed.py``, which has the same of the queue."""
    for number, tasks in enumerate(
        (
            {"deposit": "foreach: [i, j]", "all": "depends: [deposit] # gate"},
            {"all": "", "clean": "depends: [{task: 'PREV:all', when: failed}]", "tell": "depends: [clean]"},
        ),
        2,
    ):
        archive.commit("", number, a_workflow(tasks))
        for item in "ij" if number == 2 else "":
            archive.claim(Key("", 2, 1, "deposit", item))
            archive.finish(Key("", 2, 1, "deposit", item), End.EXITED, 0)
    assert archive.at("2:all", "3:clean", "3:tell") == [COMPLETED, SKIPPED, SKIPPED]
    before = archive.snapshot()
    archive.retry_from(RunKey("", 2, 1), "deposit", item="i")
    archive.check_invariants(before, [Key("", 2, 1, "deposit", "i")])
    assert archive.at("2:all", "3:clean", "3:tell") == [WAITING, WAITING, WAITING]
    archive.claim(Key("", 2, 1, "deposit", "i"))
    archive.finish(Key("", 2, 1, "deposit", "i"), End.EXITED, 1)
    archive.check_invariants()
    assert [archive.task(k(word)).root for word in ("3:clean", "3:tell")] == [
        archive.task(Key("", 2, 1, "deposit", "i"))
    ] * 2
