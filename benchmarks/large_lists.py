"""Row 20: planning a revision whose lists have 10,000 items. Measures the plan, the wait of another
archive meanwhile, the end of an item, and verbs on the whole run with the time that they lock its
archive.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from arkqueue.cli.serve import have_no_pauses
from arkqueue.db.session import Session
from arkqueue.model import ArchiveId, BranchId, Claim, End, Outcome, RunId, SourceFile, Workflow
from arkqueue.queue import archives, claim, control, deletion, ending, finish, holds, pauses, planning, purge
from arkqueue.queue.changes import change
from arkqueue.workflow.parsing import parse
from benchmarks.bench import Bench, Figure, at_most, never_above, ratio_at_most
from benchmarks.canceling import PROCESS, timed_step
from benchmarks.lines import CHAIN, Line, a_queue

LONGEST = 15
"""The most seconds for planning 10,000 items of six chained steps (the figures below section 14 of
control-and-batches).
"""
LONGEST_STEP = 200
"""The most milliseconds that another archive may wait meanwhile."""
BOUND = 1.5
"""The most that the end of an item may take, as a multiple of the end of a task without a list."""
STEPS = 6
ENDS = 200


def large_lists(bench: Bench) -> Iterator[Figure]:
    """One archive plans items, and then a second revision behind the first. Meanwhile another
    archive claims and ends one task after the other.
    """
    items = bench.size("lists.items", 10_000, 1_000)
    took: dict[str, list[float]] = {"first": [], "behind": []}
    steps: dict[str, list[float]] = {"first": [], "behind": []}
    of_item, of_task = list[float](), list[float]()
    verbs: dict[str, list[tuple[float, float]]] = {}
    beside_purge = list[float]()
    have_no_pauses()  # as the server, which plans in the process that serves the other archive
    for _ in range(bench.rounds):
        with bench.database() as uri, a_queue(uri) as session:
            batch, other = Line.register(session, "batch"), Line.register(session, "other")
            other.append(session, CHAIN)
            for which, more in (("first", ""), ("behind", "PREV")):
                seconds, waited = _planned(session, batch, other, items, more)
                if which == "first":
                    (row,) = session.rows("runs_of_revisions", revisions=[batch.branch.head])
                    first = RunId(row.id)
                took[which].append(seconds)
                steps[which].append(max(waited))
            ends = [_end_of(session, batch, other) for _ in range(ENDS)]
            of_item.append(_median([one for one, _ in ends]))
            of_task.append(_median([one for _, one in ends]))
            (run,) = session.rows("runs_of_revisions", revisions=[batch.branch.head])
            for verb, act in VERBS.items():
                verbs.setdefault(verb, []).append(_done(session, batch, partial(act, session, RunId(run.id))))
            # The earlier run still exists, with all of its items.
            verbs.setdefault("end of the branch", []).append(
                _done(session, batch, partial(_end_of_branch, session, batch))
            )
            # Before the end of the branch, the purge would be refused, because later tasks would
            # have to wait for the tasks that this run waited for.
            verbs.setdefault("purge", []).append(_done(session, batch, partial(_purge, session, RunId(run.id))))
            beside_purge.append(_beside_purge(session, first, other))
    for which, what in (("first", f"{items} items of {STEPS} steps"), ("behind", f"{items} items, each behind its earlier one")):  # fmt: skip
        yield Figure("20", f"parse, plan and store {what}", "s", took[which], [at_most(LONGEST, "s")])
        yield Figure("20", f"longest step of another archive beside {what}", "ms", steps[which], [never_above(LONGEST_STEP, "ms")], note="claim and finish of one task")  # fmt: skip
    yield Figure("20", f"end of one of {items} items", "ms", of_item, [ratio_at_most(BOUND)], "a task without a list", of_task, note=f"median of {ENDS}")  # fmt: skip
    for verb, found in verbs.items():
        yield Figure("20", f"{verb} of a run of {items} items of {STEPS} steps", "s", [took for took, _ in found])
        yield Figure("20", f"longest wait for its archive beside {verb}", "ms", [waited for _, waited in found])
    yield Figure("20", f"longest step of another archive beside the purge of a run of {items} items", "ms", beside_purge, [never_above(LONGEST_STEP, "ms")], note="claim and finish of one task")  # fmt: skip


VERBS: dict[str, Callable[[Session, RunId], object]] = {
    "hold": lambda session, run: holds.hold_run(session, run, PROCESS),
    "release": lambda session, run: holds.release_run(session, run, PROCESS),
    "delete": lambda session, run: deletion.delete_run(session, run, PROCESS),
    "undelete": lambda session, run: deletion.undelete_run(session, run, PROCESS),
    "cancel": lambda session, run: control.cancel_run(session, run, PROCESS),
}
"""The verbs that a ready run goes through, in this order."""


def _purge(session: Session, run: RunId) -> None:
    purged = purge.purge_runs(session, [run], PROCESS, "measured")
    assert purged.runs, purged.kept


def _beside_purge(session: Session, run: RunId, other: Line) -> float:
    """Milliseconds of the longest step of another archive during the purge of a run."""
    longest = 0.0
    with ThreadPoolExecutor(1) as person:
        done = person.submit(_purge, session, run)
        while not done.done():
            other.append(session, CHAIN)
            longest = max(longest, timed_step(session, other))
        done.result()
    return longest * 1000


def _end_of_branch(session: Session, batch: Line) -> None:
    archives.untrack(session, ArchiveId(batch.branch.archive), BranchId(batch.branch.id))
    ender = ending.Ender(session)
    while ender.turn() is not None:
        pass


def _done(session: Session, batch: Line, act: Callable[[], object]) -> tuple[float, float]:
    """Seconds that a verb takes, and the most milliseconds that another change of its archive waits
    meanwhile.
    """
    waited = 0.0
    with ThreadPoolExecutor(1) as person:
        began = time.perf_counter()
        done = person.submit(act)
        while not done.done():
            asked = time.perf_counter()
            change(session, [batch.branch.archive], lambda _: None)
            waited = max(waited, time.perf_counter() - asked)
        done.result()
        return time.perf_counter() - began, waited * 1000


def _planned(session: Session, batch: Line, other: Line, items: int, previous: str) -> tuple[float, list[float]]:
    """Seconds to plan a revision, and the milliseconds of each step of the other
    archive meanwhile.
    """
    waited: list[float] = []
    with ThreadPoolExecutor(1) as planner:
        began = time.perf_counter()
        done = planner.submit(_plan, session, batch, items, previous)
        while not done.done():
            waited.append(timed_step(session, other) * 1000)
            other.append(session, CHAIN)
        done.result()
        return time.perf_counter() - began, waited


def _plan(session: Session, batch: Line, items: int, previous: str) -> None:
    # The pause leaves the other archive's task as the only one to claim, even while items become
    # ready.
    pauses.pause(session, ArchiveId(batch.branch.archive), "measured", PROCESS)
    batch.append(session, _workflow(items, previous))
    assert planning.finish(session, batch.branch.id, lambda: True)


def _workflow(items: int, previous: str) -> Workflow:
    rows = [{"id": f"item-{n}", "title": f"the title of item {n}", "pages": n} for n in range(items)]
    names = [f"step{n}" for n in range(STEPS)]
    tasks = [
        {"name": name, "command": "true", "foreach": {"file": "items.json"}, "depends": [*([before] if before else []), *([previous] if previous else [])]}
        for name, before in zip(names, [None, *names], strict=False)
    ]  # fmt: skip
    files = [SourceFile("_workflows/bench.json", json.dumps(tasks).encode())]
    parsed = parse(files, lambda path: SourceFile(path, json.dumps(rows, indent=1).encode()), items)
    assert not parsed.faults, [str(fault) for fault in parsed.faults]
    return parsed


def _end_of(session: Session, batch: Line, other: Line) -> tuple[float, float]:
    """Milliseconds to record the end of an item, and the end of a task of the other archive."""
    other.append(session, CHAIN)
    (task,) = claim.claim(session, PROCESS, PROCESS, 1)
    pauses.resume(session, ArchiveId(batch.branch.archive), "batch", PROCESS)
    (item,) = claim.claim(session, PROCESS, PROCESS, 1)
    assert (task.item, bool(item.item)) == ("", True)
    took = _timed(session, item), _timed(session, task)
    pauses.pause(session, ArchiveId(batch.branch.archive), "measured", PROCESS)
    return took


def _timed(session: Session, one: Claim) -> float:
    end: Callable[[], object] = lambda: finish.finish(session, PROCESS, [Outcome(one.attempt, End.EXITED, 0)])  # noqa: E731
    began = time.perf_counter()
    end()
    return (time.perf_counter() - began) * 1000


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
