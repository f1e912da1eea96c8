"""Row 5: rows 1, 3 and 4 in a database with a long history, next to the same rows in a database
without one. The history must make no difference.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import psycopg

from arkqueue.db.session import Session
from benchmarks import history as past
from benchmarks.bench import Bench, Figure, interleaved, ratio_at_most, seconds
from benchmarks.lines import Line, a_queue, drain
from benchmarks.servers import Archive, a_server
from tests.repositories import a_subversion_repository

BOUND = 1.1


def history(bench: Bench) -> Iterator[Figure]:
    """Latency, queue alone and planning, with and without the history."""
    tasks, archives = bench.size("history.tasks", 1_000_000, 50_000), bench.size("history.archives", 1000, 100)
    active, revisions = bench.size("history.active", 100, 20), bench.size("history.revisions", 20, 10)
    commits = bench.size("history.commits", 25, 5)
    what, target = f"with {tasks} settled tasks of {archives} archives", [ratio_at_most(BOUND)]
    with ExitStack() as stack:
        old, new = stack.enter_context(bench.database()), stack.enter_context(bench.database())
        with bench.admin(old) as admin:
            took = seconds(lambda: past.make(admin, tasks, archives))
            bench.say(f"a past of {tasks} tasks was made in {took:.0f} s: {past.told(admin)}")
        queues = {"old": stack.enter_context(a_queue(old)), "new": stack.enter_context(a_queue(new))}
        lines = {
            "old": [Line.of(queues["old"], id) for id in past.archives_of(old, active)],
            "new": [Line.register(queues["new"], f"young-{n}") for n in range(active)],
        }

        def cycle(name: str) -> float:
            return rate(queues[name], lines[name], revisions)

        def plan(name: str) -> float:
            return append(queues[name], lines[name][0])

        both = ("old", "new")
        rates = interleaved(bench.rounds, {name: partial(cycle, name) for name in both}, warm=True)
        plans = interleaved(commits * 2, {name: partial(plan, name) for name in both}, warm=True)
        title = f"a task, plan → claim → finish, {active} × {revisions}, {what}"
        yield Figure("5", title, "µs", rates["old"], target, "empty", rates["new"])
        yield Figure(
            "5", f"plan and store a revision of 3 tasks, {what}", "ms", plans["old"], target, "empty", plans["new"]
        )
        drain(queues["old"], "bench"), drain(queues["new"], "bench")
        # The servers must not look for repositories that
        # do not exist, or end before the ledger does.
        with bench.admin(old) as admin:
            _stop(admin, lines["old"])
            past.give_repository(admin, a_subversion_repository(bench.a_folder("past")))
        with bench.admin(new) as admin:
            _stop(admin, lines["new"])
        served = {
            name: Archive.add(bench, stack.enter_context(a_server(bench, uri)), revisions=20)
            for name, uri in (("old", old), ("new", new))
        }
        latencies = interleaved(commits, {name: archive.latency for name, archive in served.items()}, warm=True)
        yield Figure("5", f"notice → first process, {what}", "ms", latencies["old"], target, "empty", latencies["new"])


def _stop(admin: psycopg.Connection[Any], lines: list[Line]) -> None:
    archives = [line.branch.archive for line in lines]
    admin.execute("update archive set stopped = 'its revisions are made up' where id = any(%s)", [archives])


def rate(session: Session, lines: list[Line], revisions: int) -> float:
    """Microseconds per executed task."""
    began = time.perf_counter()
    for line in lines:
        assert line.append(session, past.PAST, revisions)
    tasks = drain(session, "bench").tasks
    return (time.perf_counter() - began) / tasks * 1e6


def append(session: Session, line: Line) -> float:
    """Milliseconds to store one more revision."""
    began = time.perf_counter()
    assert line.append(session, past.PAST)
    return (time.perf_counter() - began) * 1000
