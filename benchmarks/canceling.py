"""Row 16: the duration of a verb on many tasks, and the wait of another archive meanwhile.

``python -m benchmarks.canceling URI ARCHIVE`` claims and finishes the links of an archive's chain,
like a task manager in its own process.
"""

from __future__ import annotations

import select
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from arkqueue.db.session import Session
from arkqueue.model import ArchiveId, BranchId, End, Outcome, RunId, Workflow
from arkqueue.queue import backfill, claim, control, finish
from benchmarks.bench import Bench, Figure, at_least, never_above
from benchmarks.lines import CHAIN, Line, a_queue, a_workflow

LONGEST = 200
"""The most milliseconds that another archive may wait (issue 33)."""
PROCESS = "bench"
LINKS = 10
"""The length of the run's chains, in which each task waits for any end of the task before."""
BEFORE = 100
"""The steps of the other archive before the cancellation."""
WIDTH = 5
"""The tasks of each run of the backfill."""
LEAST = 3000
"""The target rate of canceled tasks of a backfill, per second."""


def canceling(bench: Bench) -> Iterator[Figure]:
    """A run of many tasks, in chains of ten, is canceled. Meanwhile another archive's chain is
    claimed and finished link by link.
    """
    tasks = bench.size("canceling.tasks", 10_000, 1500)
    many = a_workflow("".join(_task(n) for n in range(tasks)))
    longest: list[float] = []
    apart: list[float] = []
    quiet: list[float] = []
    took: list[float] = []
    for _ in range(bench.rounds):
        with bench.database() as uri, a_queue(uri) as session:
            large, other = Line.register(session, "large"), Line.register(session, "other")
            large.append(session, many)
            (run,) = session.rows("runs_of_revisions", revisions=[large.branch.head])
            # The ready tasks of the run are claimed, so that later claims get only the chain.
            assert len(claim.claim(session, PROCESS, PROCESS, tasks)) == -(-tasks // LINKS)
            other.append(session, CHAIN, BEFORE)
            quiet.append(max(timed_step(session, other) for _ in range(BEFORE)) * 1000)
            with ThreadPoolExecutor(1) as canceler:
                canceled = canceler.submit(_cancel, session, RunId(run.id), tasks)
                steps = []
                while not canceled.done():
                    other.append(session, CHAIN)
                    steps.append(timed_step(session, other))
            took.append(canceled.result() * 1000)
            longest.append(max(steps) * 1000)
        apart.append(_apart(bench, many, tasks))
    what = f"while a run of {tasks} tasks is canceled"
    yield Figure(
        "16", f"longest step of another archive {what}", "ms", longest, [never_above(LONGEST, "ms")], "before it", quiet,
        note="claim and finish of one task",
    )  # fmt: skip
    yield Figure(
        "16", f"longest step of another archive with a process of its own {what}", "ms", apart, [never_above(LONGEST, "ms")],
        note="claim and finish of one task",
    )  # fmt: skip
    yield Figure("16", f"canceling a run of {tasks} tasks", "ms", took)
    yield from _of_backfill(bench)


def _apart(bench: Bench, many: Workflow, tasks: int) -> float:
    """Milliseconds of the longest step of the other archive, whose tasks another process claims and
    finishes.
    """
    with bench.database() as uri, a_queue(uri) as session:
        large, other = Line.register(session, "large"), Line.register(session, "other")
        large.append(session, many)
        (run,) = session.rows("runs_of_revisions", revisions=[large.branch.head])
        claim.claim(session, PROCESS, PROCESS, tasks)
        command = [sys.executable, "-m", "benchmarks.canceling", uri, str(other.branch.archive)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as manager:
            assert manager.stdout is not None
            assert manager.stdout.readline() == "ready\n"
            _cancel(session, RunId(run.id), tasks)
            return float(manager.communicate("over\n")[0])


def _other() -> None:
    uri, archive = sys.argv[1:]
    with a_queue(uri) as session:
        other = Line.of(session, int(archive))
        other.append(session, CHAIN)
        timed_step(session, other)
        print("ready", flush=True)
        longest = 0.0
        while not select.select([sys.stdin], [], [], 0)[0]:
            other.append(session, CHAIN)
            longest = max(longest, timed_step(session, other))
        print(longest * 1000)


def _of_backfill(bench: Bench) -> Iterator[Figure]:
    """A backfill is canceled whose tasks wait for the tasks before them, both in their runs and
    from run to run.
    """
    revisions = bench.size("canceling.revisions", 2_000, 200)
    names = [f"t{n}" for n in range(WIDTH)]
    tasks = a_workflow("".join(_task(n, "PREV") for n in range(WIDTH)))
    rates = list[float]()
    for _ in range(bench.rounds):
        with bench.database() as uri, a_queue(uri) as session:
            line = Line.register(session, "large")
            line.append(session, Workflow(), revisions)
            line.append(session, tasks)
            place = ArchiveId(line.branch.archive), BranchId(line.branch.id)
            fill = backfill.begin(session, *place, 2, None, names=names)
            assert fill is not None
            while backfill.plan(session, lambda *_: "its lists are in no file") == 0.0:
                pass
            began = time.perf_counter()
            canceled = len(backfill.cancel(session, fill, PROCESS).tasks)
            rates.append(canceled / (time.perf_counter() - began))
            assert canceled == revisions * WIDTH
    what = f"canceling a backfill of {revisions * WIDTH} tasks in {revisions} runs"
    yield Figure("16", what, "tasks/s", rates, [at_least(LEAST, "tasks/s")])


def _task(number: int, *also: str) -> str:
    waits = [*([f"{{task: t{number - 1}, when: settled}}"] if number % LINKS else []), *also]
    depends = f", depends: [{', '.join(waits)}]" if waits else ""
    return f"- {{name: t{number}, command: 'true'{depends}}}\n"


def _cancel(session: Session, run: RunId, tasks: int) -> float:
    """Seconds to cancel a run with this number of tasks."""
    began = time.perf_counter()
    assert len(control.cancel_run(session, run, PROCESS).tasks) == tasks
    return time.perf_counter() - began


def timed_step(session: Session, line: Line) -> float:
    """Seconds to claim and finish the next task of an archive."""
    began = time.perf_counter()
    (one,) = claim.claim(session, PROCESS, PROCESS, 1)
    finish.finish(session, PROCESS, [Outcome(one.attempt, End.EXITED, 0)])
    took = time.perf_counter() - began
    assert one.archive.id == line.branch.archive
    return took


if __name__ == "__main__":
    _other()
