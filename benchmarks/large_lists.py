"""Row 20: how long it takes to plan a revision whose lists have 10,000 items, how long another archive waits meanwhile, and what the end of an item takes then."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from arkqueue import workflow
from arkqueue.db.session import Session
from arkqueue.model import Claim, End, Outcome, SourceFile, Workflow
from arkqueue.queue import claim, finish, planning
from benchmarks.bench import Bench, Figure, at_most, never_above, ratio_at_most
from benchmarks.canceling import PROCESS, timed_step
from benchmarks.lines import CHAIN, Line, a_queue

LONGEST = 15
"""Seconds in which 10,000 items of six chained steps are planned (the figures below section 14 of control-and-batches)."""
LONGEST_STEP = 200
"""Milliseconds that another archive may wait meanwhile."""
BOUND = 1.5
"""As many times what the end of a task without a list takes the end of an item may take."""
STEPS = 6
ENDS = 200


def large_lists(bench: Bench) -> Iterator[Figure]:
    """One archive plans items, also those of a second revision behind the first; another one claims and ends one task after the other."""
    items = bench.size("lists.items", 10_000, 1_000)
    took: dict[str, list[float]] = {"first": [], "behind": []}
    steps: dict[str, list[float]] = {"first": [], "behind": []}
    of_item, of_task = list[float](), list[float]()
    for _ in range(bench.rounds):
        with bench.database() as uri, a_queue(uri) as session:
            batch, other = Line.register(session, "batch"), Line.register(session, "other")
            other.append(session, CHAIN)
            for which, more in (("first", ""), ("behind", "PREV")):
                seconds, waited = _planned(session, batch, other, items, more)
                took[which].append(seconds)
                steps[which].append(max(waited))
            ends = [_end_of(session, batch, other) for _ in range(ENDS)]
            of_item.append(_median([one for one, _ in ends]))
            of_task.append(_median([one for _, one in ends]))
    for which, what in (("first", f"{items} items of {STEPS} steps"), ("behind", f"{items} items, each behind its earlier one")):  # fmt: skip
        yield Figure("20", f"parse, plan and store {what}", "s", took[which], [at_most(LONGEST, "s")])
        yield Figure("20", f"longest step of another archive beside {what}", "ms", steps[which], [never_above(LONGEST_STEP, "ms")], note="claim and finish of one task")  # fmt: skip
    yield Figure("20", f"end of one of {items} items", "ms", of_item, [ratio_at_most(BOUND)], "a task without a list", of_task, note=f"median of {ENDS}")  # fmt: skip


def _planned(session: Session, batch: Line, other: Line, items: int, previous: str) -> tuple[float, list[float]]:
    """Seconds until a revision is planned, and the milliseconds of each step of the other archive meanwhile."""
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
    batch.append(session, _workflow(items, previous))
    assert planning.finish(session, batch.branch.id, lambda: True)
    # So that the other archive's task is the only one to claim.
    session.do("withhold", archive=batch.branch.archive)


def _workflow(items: int, previous: str) -> Workflow:
    rows = [{"id": f"item-{n}", "title": f"the title of item {n}", "pages": n} for n in range(items)]
    names = [f"step{n}" for n in range(STEPS)]
    tasks = [
        {"name": name, "command": "true", "foreach": {"file": "items.json"}, "depends": [*([before] if before else []), *([previous] if previous else [])]}
        for name, before in zip(names, [None, *names], strict=False)
    ]  # fmt: skip
    files = [SourceFile("_workflows/bench.json", json.dumps(tasks).encode())]
    parsed = workflow.parse(files, lambda path: SourceFile(path, json.dumps(rows, indent=1).encode()), items)
    assert not parsed.faults, [str(fault) for fault in parsed.faults]
    return parsed


def _end_of(session: Session, batch: Line, other: Line) -> tuple[float, float]:
    """Milliseconds to record the end of an item, and of a task of the other archive."""
    other.append(session, CHAIN)
    (task,) = claim.claim(session, PROCESS, PROCESS, 1)
    session.do("offer_again", archive=batch.branch.archive)
    (item,) = claim.claim(session, PROCESS, PROCESS, 1)
    assert (task.item, bool(item.item)) == ("", True)
    took = _timed(session, item), _timed(session, task)
    session.do("withhold", archive=batch.branch.archive)
    return took


def _timed(session: Session, one: Claim) -> float:
    end: Callable[[], object] = lambda: finish.finish(session, PROCESS, [Outcome(one.attempt, End.EXITED, 0)])  # noqa: E731
    began = time.perf_counter()
    end()
    return (time.perf_counter() - began) * 1000


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
