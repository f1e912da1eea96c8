"""Row 17: the times of the queue and of people's requests on a history of 10⁷ tasks, next to one of
10⁵; and the purge of the long history.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial

import psycopg
from psycopg.types.json import Jsonb

from arkqueue.archive_settings import read_settings
from arkqueue.archives import retention
from arkqueue.db.session import Session
from arkqueue.keeping import AGED
from arkqueue.model import ArchiveId, TaskId
from arkqueue.queue import archives as registered
from arkqueue.queue import purge
from arkqueue.views.explain import explain
from arkqueue.views.installation import measure
from arkqueue.views.runs import runs
from benchmarks import history as past
from benchmarks.bench import Bench, Figure, interleaved, never_above, ratio_at_most
from benchmarks.canceling import timed_step
from benchmarks.lines import CHAIN, Line, a_queue

BOUND = 1.1
LONGEST_BATCH = 1000
"""The most milliseconds that a batch of a purge may lock its archive (issue 33)."""
LONGEST_STEP = 200
"""The most milliseconds that another archive may wait meanwhile."""


def purging(bench: Bench) -> Iterator[Figure]:
    """Claims, `runs`, `explain` and metrics on a long and a short history; then a purge of
    everything in the long history that is older than a day, during another archive's work.
    """
    long, short = bench.size("purging.tasks", 10_000_000, 50_000), bench.size("purging.short", 100_000, 10_000)
    archives, times = bench.size("purging.archives", 100, 10), bench.size("purging.times", 50, 10)
    most = bench.size("purging.runs", 1_000_000, 10_000)
    with ExitStack() as stack:
        uris = {name: stack.enter_context(bench.database()) for name in ("long", "short")}
        for name, tasks in (("long", long), ("short", short)):
            with bench.admin(uris[name]) as admin:
                past.make(admin, tasks, archives)
                bench.say(f"a past of {tasks} tasks: {past.told(admin)}")
        sessions = {name: stack.enter_context(a_queue(uri)) for name, uri in uris.items()}
        yield from _beside_a_short_past(sessions, uris, times, long, short)
        yield from _purge(sessions["long"], uris["long"], most)


def _beside_a_short_past(
    sessions: dict[str, Session], uris: dict[str, str], times: int, long: int, short: int
) -> Iterator[Figure]:
    target, beside = [ratio_at_most(BOUND)], f"{short} tasks"
    lines = {name: Line.of(session, past.archives_of(uris[name], 3)[1]) for name, session in sessions.items()}
    waiting: dict[str, TaskId] = {}
    for name, session in sessions.items():
        # The second revision's task waits for the first one's, which is claimed before each
        # question.
        lines[name].append(session, past.PAST, 2)
        (run,) = session.rows("runs_of_revisions", revisions=[lines[name].branch.head])
        waiting[name] = TaskId(session.rows("list_tasks", runs=[run.id], item=None, tasks=None)[1].id)
    asks: dict[str, Callable[[Session, str], object]] = {
        "runs of an archive": lambda session, name: runs(session, archives=[ArchiveId(lines[name].branch.archive)]),
        "runs of all archives": lambda session, _: runs(session),
        "explain a task that waits": lambda session, name: explain(session, waiting[name]),
        "metrics": lambda session, _: measure(session),
    }
    for what, ask in asks.items():
        took = interleaved(
            times, {name: partial(_took, ask, session, name) for name, session in sessions.items()}, warm=True
        )
        yield Figure("17", f"{what}, {long} settled tasks", "ms", took["long"], target, beside, took["short"])
    others = {name: Line.register(session, "young") for name, session in sessions.items()}
    for name, session in sessions.items():
        session.do("withhold", archive=lines[name].branch.archive)

    def step(name: str) -> float:
        others[name].append(sessions[name], CHAIN)
        return timed_step(sessions[name], others[name]) * 1000

    took = interleaved(times, {name: partial(step, name) for name in sessions}, warm=True)
    what = f"claim and finish of one task, {long} settled tasks"
    yield Figure("17", what, "ms", took["long"], target, beside, took["short"])


def _took(ask: Callable[[Session, str], object], session: Session, name: str) -> float:
    began = time.perf_counter()
    assert ask(session, name)
    return (time.perf_counter() - began) * 1000


def _purge(session: Session, uri: str, most: int) -> Iterator[Figure]:
    """Purges runs older than a day, like a queue manager, until ``most`` runs are gone."""
    for id in past.archives_of(uri, 10**9):
        present = read_settings(registered.one(session, ArchiveId(id)).settings, str(id))
        settings = asdict(replace(present, keep=dict.fromkeys(AGED, "1d")))
        session.do("change_archive", archive=id, settings=Jsonb(settings))
    other = Line.register(session, "other")
    other.append(session, CHAIN)
    with ThreadPoolExecutor(1) as purger:
        began = time.perf_counter()
        purged = purger.submit(_steps, session, uri, most)
        steps = []
        while not purged.done():
            steps.append(timed_step(session, other) * 1000)
            other.append(session, CHAIN)
        batches, count = purged.result()
        took = time.perf_counter() - began
    what = f"a purge of {count} runs"
    yield Figure("17", f"longest step of {what}", "ms", [max(batches)], [never_above(LONGEST_BATCH, "ms")], note="one batch and its logs")  # fmt: skip
    yield Figure("17", f"longest step of another archive beside {what}", "ms", [max(steps)], [never_above(LONGEST_STEP, "ms")], note=f"of {len(steps)}: claim and finish of one task")  # fmt: skip
    yield Figure("17", f"pace of {what}", "runs/s", [count / took])


def _steps(session: Session, uri: str, most: int) -> tuple[list[float], int]:
    """The milliseconds of each step, and the number of purged runs."""
    manager, took = retention.Retention(session), list[float]()
    with psycopg.connect(uri, autocommit=True) as admin:
        while len(took) * purge.MOST_RUNS < most:
            began = time.perf_counter()
            if manager.turn() == retention.EVERY:
                break
            took.append((time.perf_counter() - began) * 1000)
        (count,) = admin.execute("select count(*) from purged_run").fetchone() or (0,)
    return took, int(count)
