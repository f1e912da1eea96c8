"""Ends attempts: as their task manager reports, or because it is silent.

A report is judged in one transaction: the archives, tasks and attempts are locked,
``verdicts.verdict`` says what each end means, tasks move, and the consequences are followed up. A
repeated report of the same end is answered “recorded” again. A report of an attempt that another
process owns by now changes nothing.

Reports of several archives share a transaction if the archives are free. A locked archive holds up
only its own reports.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from arkqueue.db.pipelines import Answer
from arkqueue.db.session import Block, Session
from arkqueue.errors import Conflict, DatabaseUnavailable
from arkqueue.model import (
    ASSUMED_GONE,
    RETRY_AFTER,
    AttemptId,
    Claim,
    End,
    Finished,
    Outcome,
    Receipt,
    TaskDefinition,
    TaskKind,
    Usage,
    as_retry_after,
)
from arkqueue.priorities import PRIORITY, as_priority
from arkqueue.queue.changes import TOO_LONG, change_in_turn
from arkqueue.queue.claim import LEASE, Claiming, Request, claim_last
from arkqueue.queue.graph import Graph
from arkqueue.queue.limits import return_slots
from arkqueue.queue.reports import close
from arkqueue.queue.scratch import leave
from arkqueue.states import SETTLED, UNSETTLED, Event, State, move
from arkqueue.verdicts import COMPLETION, EX_TEMPFAIL, Circumstances, Verdict, completes, verdict
from arkqueue.workflow import from_database

log = logging.getLogger("arkqueue")

PATIENCE = 10.0
"""Seconds that a report waits for a busy archive."""
LITTLE_PATIENCE = 0.5
"""Seconds that a loop waits for a busy archive. Its next iteration tries the archive again."""
LONGEST_WAIT = 1e9
"""The most seconds of a sensible delay."""
MOST_DUE = 1000
"""The most deferred tasks that one transaction resumes."""
MOST_ARCHIVES = 100
"""The most archives whose deferred tasks one transaction resumes."""


def finish(
    session: Session, process: str, outcomes: Sequence[Outcome], patience: float = PATIENCE
) -> dict[AttemptId, Receipt]:
    """Record how attempts ended and move their tasks. The ends of archives that stay busy for
    ``patience`` seconds are not recorded (``Receipt.BUSY``).
    """
    return _end(session, outcomes, lambda row, outcome: _receipt(row, outcome, process), patience).receipts


def finish_and_claim(
    session: Session, process: str, outcomes: Sequence[Outcome], request: Request, patience: float = PATIENCE
) -> Finished:
    """Like `finish`, and claim in the transaction that records the first ends: the tasks that these
    ends made ready, or other tasks whose turn it is.

    So a chain of tasks takes one commit per task, and a task that is claimed at once wakes no task
    manager. If nothing can be recorded, nothing is claimed.
    """

    def judge(row: Any, outcome: Outcome) -> Receipt:
        return _receipt(row, outcome, process)

    def claim(graph: Graph) -> Claiming:
        claims = claim_last(graph, process, request)

        def committed() -> tuple[list[Claim], bool]:
            found, is_more = claims()
            graph.ready.difference_update(claimed.task for claimed in found)
            graph.touched.update(claimed.archive.id for claimed in found)
            return found, is_more

        return committed

    return _end(session, outcomes, judge, patience, claim)


def hand_back(session: Session, process: str, attempts: Sequence[AttemptId], reason: str) -> bool:
    """End attempts of a process that have not begun. Returns False if an archive was busy, so that
    some attempts still have to be handed back. An attempt that cannot be ended is logged and left
    to `lapse`, so that its task manager goes on with the others.
    """
    outcomes = [Outcome(attempt, End.STOPPED, message=reason) for attempt in attempts]
    receipts = _end_each(session, outcomes, lambda row, outcome: _receipt(row, outcome, process), LITTLE_PATIENCE)
    return Receipt.BUSY not in receipts.values()


def _receipt(row: Any, outcome: Outcome, process: str) -> Receipt:
    if row.ended_at is None and row.process == process:
        return Receipt.RECORDED
    if row.process == process and row.end == outcome.end:
        return Receipt.ALREADY_RECORDED
    return Receipt.NOT_YOURS


def lapse(
    session: Session, lease: float = LEASE, gap: float = LEASE / 3, patience: float = LITTLE_PATIENCE
) -> list[AttemptId]:
    """End the attempts whose lease is over. Every queue manager calls this periodically. Returns
    the ended attempts.

    An attempt that can outlive its task manager stays reserved for its host a while longer. After
    any gap in which the database was unreachable, no lease lapses for one full lease (design 6).
    """
    if not session.rows("beat", gap=gap, lease=lease)[0].steady:
        return []
    unheard = "its task manager was silent for a whole lease"
    lost = [
        Outcome(
            row.id, End.LOST, message=f"{unheard} and {row.reserved:g} s (adopt_within)" if row.reserved else unheard
        )
        for row in session.rows("lapsed")
    ]
    return _end_lost(session, lost, lambda row: row.ended_at is None and row.lapsed, patience)


def expire(session: Session, process: str, host: str, gone: Collection[AttemptId] = ()) -> list[AttemptId]:
    """End the attempts of a host's earlier processes, which its present task manager has proved
    dead, and unregister these processes.

    ``gone``: attempts whose containers do not exist any more. Other attempts that can outlive their
    task manager are left alone.
    """
    session.do("expire_managers", process=process, host=host)
    left = [row for row in session.rows("live_on", host=host) if row.process != process]
    lost = [Outcome(row.id, End.LOST, message="its task manager died") for row in left if not row.outlives]
    lost += [
        Outcome(row.id, End.LOST, message="its task manager died, and its container is gone")
        for row in left
        if row.outlives and row.id in gone
    ]
    return _end_lost(session, lost, lambda row: row.ended_at is None and row.process != process, LITTLE_PATIENCE)


def _end_lost(
    session: Session, lost: Sequence[Outcome], is_lost: Callable[[Any], bool], patience: float
) -> list[AttemptId]:
    """End lost attempts. Those of busy archives are ended by the next call of `lapse` at the latest."""

    def judge(row: Any, _: Outcome) -> Receipt:
        return Receipt.RECORDED if is_lost(row) else Receipt.NOT_YOURS

    receipts = _end_each(session, lost, judge, patience)
    return [a for a, receipt in receipts.items() if receipt is Receipt.RECORDED]


def _end_each(
    session: Session, outcomes: Sequence[Outcome], judge: Callable[[Any, Outcome], Receipt], patience: float
) -> dict[AttemptId, Receipt]:
    """End attempts together, or one by one if that fails, so that one faulty attempt does not hold
    up the others. The result leaves out attempts that could not be ended.
    """
    try:
        return _end(session, outcomes, judge, patience).receipts
    except DatabaseUnavailable:
        raise
    except Exception:
        receipts: dict[AttemptId, Receipt] = {}
        for outcome in outcomes:
            try:
                receipts |= _end(session, [outcome], judge, 0.0).receipts
            except DatabaseUnavailable:
                raise
            except Exception:
                log.exception("the end of attempt %s (%s) could not be recorded", outcome.attempt, outcome.message)
        return receipts


def presume_gone(graph: Graph, attempt: AttemptId, by: str) -> list[int]:
    """End an attempt that was asked to stop, because a person confirms that its process is gone (``cancel --assume-gone``)."""
    outcome = Outcome(attempt, End.LOST, message=f"{ASSUMED_GONE} by {by}")
    (row,) = graph.rows("lock_attempts", attempts=[attempt], archives=graph.archives, badly=[attempt])
    return list(_record(graph, [(outcome, row)]))


def _end(
    session: Session,
    outcomes: Sequence[Outcome],
    judge: Callable[[Any, Outcome], Receipt],
    patience: float,
    claim: Callable[[Graph], Claiming] | None = None,
) -> Finished:
    """``claim``: run once, at the end of the first transaction; its result is called after the commit."""
    if not outcomes:
        return Finished({})
    by_id = {outcome.attempt: outcome for outcome in outcomes}
    # What completes its task does so whatever the definition says.
    badly = [outcome.attempt for outcome in outcomes if not completes(outcome.end, outcome.exit_code)]

    def work(graph: Graph) -> dict[AttemptId, Receipt]:
        (rows,) = graph.ahead or [graph.rows("lock_attempts", **lock | {"archives": graph.archives})]
        receipts = {AttemptId(row.id): judge(row, by_id[row.id]) for row in rows}
        moved = _record(graph, [(by_id[row.id], row) for row in rows if receipts[row.id] is Receipt.RECORDED])
        # A task of a deleted or rewritten branch is not run again, unless a person restarts it.
        if back := [row.task for row in rows if moved.get(row.task) in UNSETTLED and row.stop != "restart"]:
            moved |= dict.fromkeys(graph.ids("cancel_gone", tasks=back), State.CANCELED)
        graph.follow(
            [task for task, state in moved.items() if state in SETTLED],
            [task for task, state in moved.items() if state is State.WAITING],
            may_skip=set(moved.values()) != {State.COMPLETED},
        )
        if ended := [row.task for row in rows if row.kind == TaskKind.REPORT and moved.get(row.task) in SETTLED]:
            graph.follow(entering=close(graph, ended))
        graph.grant()
        if claim is not None and not claimed:
            claims = claim(graph)
            graph.to_keep.append(lambda: claimed.append(claims()))
        return receipts

    claimed: list[tuple[list[Claim], bool]] = []
    lock = {"attempts": list(by_id), "archives": None, "badly": badly}
    ahead: list[Block] = [("lock_attempts", lock)]
    receipts = dict.fromkeys(by_id, Receipt.NOT_YOURS)
    archives = {outcome.archive for outcome in outcomes if outcome.archive is not None}
    unknown = [outcome.attempt for outcome in outcomes if outcome.archive is None]
    results, busy = change_in_turn(session, work, archives=archives, attempts=unknown, ahead=ahead, patience=patience)
    for result in results:
        receipts |= result
    if busy:
        left = session.rows("attempts_of", attempts=list(by_id), archives=busy)
        receipts |= {row.id: Receipt.BUSY for row in left}
    return Finished(receipts, *(claimed[0] if claimed else ()))


def _record(graph: Graph, ended: Sequence[tuple[Outcome, Any]]) -> dict[int, State]:
    """Record the ends. Returns the new states of the tasks that moved."""
    if not ended:
        return {}
    states: dict[int, State] = {}
    ends = []
    for o, row in ended:
        is_completed = completes(o.end, o.exit_code)
        judged, fault = (COMPLETION, "") if is_completed else _judged(row, o)
        states[row.task] = move(State.RUNNING, judged.event)
        end = {"attempt": o.attempt, "end": o.end, "task": row.task, "state": states[row.task]}
        # A field that is left out is null, false or zero: most of the many ends say little.
        if o.exit_code is not None:
            end["exit_code"] = o.exit_code
        if message := "; ".join(filter(None, (o.message, "" if fault in o.message else fault))):
            end["message"] = message
        if o.outputs is not None:
            end["outputs"] = o.outputs
        if o.ran is not None:
            end["ran"] = o.ran
        if o.usage:
            end |= _used(o.usage)
        if not is_completed:
            is_failure = _is_failure(o, judged)
            end |= {
                "delay": judged.delay, "failed": int(is_failure), "deferred": int(judged.event is Event.DEFER and not is_failure),
                "lost": int(o.end is End.LOST), "asks_to_wait": _asks_to_wait(o), "polls": _asks_to_wait(o) and _has(row, "poll"),
            }  # fmt: skip
        ends.append(end)
    if State.DEFERRED in states.values():
        graph.to_wake.add("deferred")
    if any(row.followed for _, row in ended):
        graph.to_wake.add("log")
    moved = _moved(graph, ends, states, ended)
    return_slots(graph, [o.attempt for o, _ in ended])
    said = {
        row.task: priority
        for o, row in ended
        if o.outputs and (priority := as_priority(o.outputs.get(PRIORITY))) is not None
    }
    if lost := [
        row.task
        for o, row in ended
        if o.end is End.LOST and _has(row, "scratch") and moved.get(row.task) is State.WAITING
    ]:
        leave(graph, lost)
    late = [row.task for _, row in ended if row.polls and states[row.task] in (State.FAILED, State.REJECTED)]
    if late:
        graph.ids("waive_deleted", tasks=late)
    if said := {task: priority for task, priority in said.items() if task in moved}:
        graph.reordered += graph.ids("prioritize_behind", sources=list(said), priorities=list(said.values()))
    return moved


def _moved(
    graph: Graph, ends: Sequence[dict[str, Any]], states: Mapping[int, State], ended: Sequence[tuple[Outcome, Any]]
) -> dict[int, State]:
    """Store the ends. Returns the tasks that have moved, with their new states.

    In nearly every transaction all tasks move, and `Graph.follow` asks what their ends change.
    Then both statements share a round trip.
    """
    told = json.dumps(ends)
    runs = all(row.attempt_id == row.id and row.state == State.RUNNING for _, row in ended)
    if not runs or SETTLED.isdisjoint(states.values()):
        return {task: states[task] for task in graph.ids("end", ends=told)}

    def check(answer: Answer) -> None:
        if (moved := answer.rowcount) != len(states):
            raise AssertionError(f"{len(states)} locked tasks were running, and only {moved} of them ended")

    graph.later(("end", {"ends": told}), then=check)
    return dict(states)


def _used(usage: Usage) -> dict[str, Any]:
    return {"processor": usage.processor_seconds, "memory": usage.peak_memory_bytes, "sampled": usage.sampled}


def _asks_to_wait(outcome: Outcome) -> bool:
    return outcome.end is End.EXITED and outcome.exit_code == EX_TEMPFAIL


def _has(row: Any, field: str) -> bool:
    """True if the definition of an attempt's task has a field, even if the definition cannot be read."""
    return isinstance(row.body, dict) and row.body.get(field) is not None


def _is_failure(outcome: Outcome, verdict: Verdict) -> bool:
    blameless = outcome.exit_code == EX_TEMPFAIL or outcome.end in (End.LOST, End.UNREACHABLE, End.WITHHELD)
    return verdict.event in (Event.FAIL, Event.DEFER) and not blameless


def _judged(row: Any, outcome: Outcome) -> tuple[Verdict, str]:
    """What an end means for its task, and the fault of the task's definition; empty: it has none.

    Every end is recorded, whatever is in the database, because its task would otherwise run for
    ever. A task whose definition cannot be read is not retried.
    """
    try:
        definition = _NO_DEFINITION if row.body is None else from_database(row.body)
        judged = verdict(outcome.end, outcome.exit_code, _circumstances(row, outcome, definition))
        if not 0 <= judged.delay <= LONGEST_WAIT:
            raise OverflowError
    except Conflict as error:
        fault = str(error)
    except ArithmeticError:
        fault = "the definition of the task: its delays are no sensible numbers. arkqueue doctor says what helps"
    else:
        return judged, ""
    return verdict(outcome.end, outcome.exit_code, _circumstances(row, outcome, _UNREADABLE)), fault


_NO_DEFINITION = TaskDefinition("")
_UNREADABLE = TaskDefinition("", on_lost="fail")


def _circumstances(row: Any, outcome: Outcome, definition: TaskDefinition) -> Circumstances:
    deadline, poll = definition.deadline, definition.poll
    return Circumstances(
        stop=row.stop,
        failures=row.failures,
        deferrals=row.deferrals,
        losses=row.losses,
        retries=definition.retries,
        on_lost=definition.on_lost,
        retry_after=as_retry_after((outcome.outputs or {}).get(RETRY_AFTER)),
        time_left=None if deadline is None else deadline - (row.deferred_for or 0.0),
        poll_every=None if poll is None else poll.every,
        polls=row.polls,
    )


def wake_deferred(session: Session, patience: float = LITTLE_PATIENCE) -> float | None:
    """Resume deferred tasks whose delay is over. Returns the seconds until the next one is due, or None if no task is deferred."""

    def work(graph: Graph) -> None:
        each = max(1, MOST_DUE // len(graph.archives))
        graph.follow(entering=graph.ids("make_due", archives=graph.archives, each=each))

    archives = [row.archive_id for row in session.rows("due_archives")]
    overdue: list[DatabaseUnavailable] = []
    for first in range(0, len(archives), MOST_ARCHIVES):
        try:
            change_in_turn(session, work, archives=archives[first : first + MOST_ARCHIVES], patience=patience)
        except TOO_LONG as error:
            overdue.append(error)
    if overdue:
        raise overdue[0]
    seconds: float | None = session.rows("next_due")[0][0]
    return seconds
