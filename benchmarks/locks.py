"""Row 18: the end of a task that passes its lock to one of many waiting tasks, next to the end of a
task without locks.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from arkqueue.db.session import Session
from arkqueue.model import Claim, End, Outcome
from arkqueue.queue import claim, finish
from benchmarks.bench import Bench, Figure, never_above
from benchmarks.lines import Line, a_queue, a_workflow

TIMES = 2.0
"""The most that an end with a lock may take, as a multiple of an end without one
(shared/control-and-batches.md, the figures below section 14).
"""
PROCESS = "bench"
ENDS = 200
"""The number of timed ends of each kind, in turns."""
FEW, MORE = 1000, 100_000


def locks(bench: Bench) -> Iterator[Figure]:
    """Two archives take turns. In the first one, many tasks wait for a lock. In the second one,
    tasks have no lock, and each end makes one task ready.
    """
    for waiting in (bench.size("locks.waiting", FEW, FEW), bench.size("locks.many", MORE, 5000)):
        times: list[float] = []
        with_lock: list[float] = []
        without: list[float] = []
        for _ in range(bench.rounds):
            with bench.database() as uri, a_queue(uri) as session:
                locked, free = Line.register(session, "locked"), Line.register(session, "free")
                for number in range(0, waiting, FEW):
                    locked.append(session, a_workflow("".join(_task(n, number, "lock: tex") for n in range(FEW))))
                free.append(
                    session,
                    a_workflow("".join(_task(n, 0, f"depends: [t{n - 1}]" if n else "") for n in range(ENDS + 1))),
                )
                ends: dict[int, list[float]] = {locked.branch.archive: [], free.branch.archive: []}
                for _ in range(ENDS):
                    for one in claim.claim(session, PROCESS, PROCESS, 2):
                        ends[one.archive.id].append(_end(session, one))
                with_lock.append(_median(ends[locked.branch.archive]))
                without.append(_median(ends[free.branch.archive]))
                times.append(with_lock[-1] / without[-1])
        what = f"end that passes a lock to one of {waiting} waiting tasks"
        yield Figure("18", what, "ms", with_lock, [], "no lock", without, note="median of 200, the next task is ready")
        yield Figure("18", f"{what}, times one without locks", "", times, [never_above(TIMES, "")])


def _task(number: int, of: int, fields: str) -> str:
    return f"- {{name: t{number}, command: 'true {of}'{', ' + fields if fields else ''}}}\n"


def _end(session: Session, one: Claim) -> float:
    """Milliseconds to record the end of an attempt, including its consequences."""
    began = time.perf_counter()
    finish.finish(session, PROCESS, [Outcome(one.attempt, End.EXITED, 0)])
    return (time.perf_counter() - began) * 1000


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
