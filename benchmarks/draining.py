"""Rows 3, 6, 7 and 13: the queue alone. Tasks without work, with their edges, are planned, claimed
and finished on a durable PostgreSQL.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from benchmarks.bench import Bench, Figure, at_least, at_most, interleaved, ratio_at_least, ratio_at_most, seconds
from benchmarks.limits import a_bare_database
from benchmarks.lines import CHAIN, PAPER, SLOTS, Line, a_queue, a_workflow, drain, plan, processes
from benchmarks.one_thread import links as links_of_one_thread
from benchmarks.peers import answer, environment

RATE = "tasks/s"
PAPER_TEXT = (
    "- {name: index, command: 'true', depends: [PREV]}\n"
    "- {name: pdf, command: 'true', depends: [index], cancels: [PREV]}\n"
)


def queue_alone(bench: Bench) -> Iterator[Figure]:
    """Plan, claim and finish for many archives, next to the peers' enqueue and run;
    and one chain.
    """
    lines, revisions = bench.size("queue.archives", 100, 20), bench.size("queue.revisions", 100, 20)
    chain = bench.size("queue.chain", 3000, 200)
    jobs = {
        "pgqueuer": bench.size("pgqueuer.jobs", 5000, 2000),
        "procrastinate": bench.size("procrastinate.jobs", 3000, 500),
    }
    parts: dict[str, list[tuple[float, float]]] = {"ours": [], **{name: [] for name in jobs}}

    def ours() -> float:
        with bench.database() as uri, a_queue(uri) as session:
            made = [Line.register(session, f"archive-{n}") for n in range(lines)]
            planning = seconds(lambda: plan(session, made, PAPER, revisions))
            done = drain(session, "bench")
        parts["ours"].append((done.tasks / (planning + done.seconds), done.tasks / done.seconds))
        return parts["ours"][-1][0]

    def theirs(name: str, program: str, width: int) -> float:
        with bench.database(tables=False) as uri:
            took = answer(pythons[name], program, uri, jobs[name], width)
        parts[name].append((jobs[name] / (took["enqueue"] + took["drain"]), jobs[name] / took["drain"]))
        return parts[name][-1][0]

    pythons = {name: python for name in jobs if (python := environment(bench, name))}
    contestants: dict[str, Any] = {"ours": ours}
    if "pgqueuer" in pythons:
        contestants["pgqueuer"] = lambda: theirs("pgqueuer", "drain_pgqueuer.py", 100)
    if "procrastinate" in pythons:
        contestants["procrastinate"] = lambda: theirs("procrastinate", "drain_procrastinate.py", 50)
    interleaved(bench.rounds, contestants)

    def column(name: str, place: int) -> list[float]:
        return [pair[place] for pair in parts[name]]

    size = f"{lines} archives × {revisions}"
    for what, place, theirs_is in (("plan → claim → finish", 0, "enqueue → run"), ("claim → finish", 1, "run")):
        for name, target in (("pgqueuer", 0.5), ("procrastinate", 10)):
            yield Figure(
                "3", f"{what}, {size}", RATE, column("ours", place), [ratio_at_least(target)],
                f"{name}: {theirs_is}", column(name, place), note="theirs have no edges",
            )  # fmt: skip

    def links() -> float:
        with bench.database() as uri, a_queue(uri) as session:
            line = Line.register(session, "chain")
            line.append(session, CHAIN, chain)
            done = drain(session, "bench")
        assert done.tasks == chain, done.tasks
        return done.tasks / done.seconds

    def by_one_thread() -> float:
        with bench.database() as uri, a_queue(uri) as session:
            return links_of_one_thread(session, chain)

    with a_bare_database(bench) as bare:
        contestants = {"ours": links, "one": by_one_thread, "commits": lambda: chain / bare.commits(2 * chain)}
        found = interleaved(bench.rounds, contestants)
    limit = "two commits a link", found["commits"]
    yield Figure("3", f"one chain of {chain}", "links/s", found["ours"], [at_least(500, "links/s")], *limit)
    yield Figure("3", "the same by one thread that nobody wakes", "links/s", found["one"], (), *limit)


def many_archives(bench: Bench) -> Iterator[Figure]:
    """Whether archives take turns, however many there are, and however many tasks one
    of them has.
    """
    count, revisions = bench.size("many.archives", 1000, 100), bench.size("many.revisions", 20, 10)
    crowd, singles = bench.size("many.crowd", 5000, 500), bench.size("many.singles", 50, 20)
    lines, depth = bench.size("queue.archives", 100, 20), bench.size("queue.revisions", 100, 20)
    unfairness: list[float] = []

    def many(archives: int, depth: int, managers: int) -> float:
        with bench.database() as uri, a_queue(uri) as session:
            ids = [Line.register(session, f"archive-{n}").branch.archive for n in range(archives)]
            for id in ids:
                Line.of(session, id).append(session, PAPER, depth)
            order = {"archives": [], "revisions": 0, "workflow": PAPER_TEXT, "slots": SLOTS}
            told = processes(uri, managers, order)
            if archives == count:
                with bench.admin(uri) as admin:
                    waits = admin.execute(
                        "select extract(epoch from avg(a.claimed_at - t.ready_at))::float8 from task t join attempt a on a.id = t.attempt_id group by t.archive_id"
                    ).fetchall()
                each = [wait for (wait,) in waits]
                unfairness.append(max(each) / statistics.median(each))
        return _drained(told)

    found = interleaved(
        bench.rounds,
        {"many": lambda: many(count, revisions, 2), "few": lambda: many(lines, depth, 2)},
    )
    size = f"{count} archives × {revisions}, 2 task managers"
    yield Figure(
        "6", f"claim → finish, {size}", RATE, found["many"], [ratio_at_least(0.8)], f"{lines} × {depth}", found["few"]
    )
    yield Figure("6", f"longest mean wait of an archive to the median, {size}", "×", unfairness, [at_most(2, "×")])

    independent = a_workflow("".join(f"- {{name: t{n}, command: 'true'}}\n" for n in range(min(crowd, 500))))
    single = a_workflow("- {name: only, command: 'true'}\n")
    turns = []
    for _ in range(bench.rounds):
        with bench.database() as uri, a_queue(uri) as session:
            big = Line.register(session, "crowd")
            big.append(session, independent, crowd // min(crowd, 500))
            for n in range(singles):
                Line.register(session, f"single-{n}").append(session, single)
            drain(session, "bench", slots=4)
            with bench.admin(uri) as admin:
                rows = admin.execute(
                    "select min(rank) from (select t.archive_id, row_number() over (order by a.id) as rank"
                    " from task t join attempt a on a.id = t.attempt_id) ranked group by archive_id"
                ).fetchall()
        turns.append(max(rank for (rank,) in rows) / (singles + 1))
    yield Figure(
        "6", f"{crowd} ready tasks of one archive beside {singles} with one each: claims until every archive had its first",
        "× archives", turns, [at_most(2, "×")],
    )  # fmt: skip


def several_managers(bench: Bench) -> Iterator[Figure]:
    """1, 2 and 4 processes that first plan the same archives and then drain them."""
    archives, revisions = bench.size("managers.archives", 100, 20), bench.size("managers.revisions", 50, 20)
    faults: dict[str, list[float]] = {"deadlocks": [], "double starts": [], "lost": []}
    planning: dict[str, list[float]] = {}

    def together(count: int) -> float:
        with bench.database() as uri, a_queue(uri) as session:
            ids = [Line.register(session, f"archive-{n}").branch.archive for n in range(archives)]
            order = {"archives": ids, "revisions": revisions, "workflow": PAPER_TEXT, "slots": SLOTS}
            told = processes(uri, count, order)
            with bench.admin(uri) as admin:

                def one(text: str) -> float:
                    return float((admin.execute(text.encode()).fetchone() or (0,))[0])

                faults["deadlocks"].append(
                    one("select deadlocks from pg_stat_database where datname = current_database()")
                )
                faults["double starts"].append(one("select count(*) - count(distinct task_id) from attempt"))
                planned = one("select count(*) from revision where not baseline")
                open_ones = one("select count(*) from task where settled_at is null")
                faults["lost"].append(archives * revisions - planned + open_ones)
        planning.setdefault(str(count), []).append(archives * revisions / max(one["planning"] for one in told))
        return _drained(told)

    found = interleaved(bench.rounds, {str(count): partial(together, count) for count in (1, 2, 4)})
    cores = len(os.sched_getaffinity(0))
    size = f"{archives} archives × {revisions}"
    for what, unit, rates in (("claim → finish", RATE, found), ("plan", "revisions/s", planning)):
        for count in (2, 4):
            target = [ratio_at_least(1)] if count <= cores and rates is found else []
            yield Figure(
                "7", f"{what}, {count} processes, {size}", unit, rates[str(count)], target, "1 process", rates["1"]
            )
    for what, values in faults.items():
        yield Figure("7", f"{what}, 1, 2 and 4 processes", "", values, [at_most(0)])


def old_snapshot(bench: Bench) -> Iterator[Figure]:
    """The duration of a claim after many tasks, while another connection holds a snapshot from
    before them.
    """
    tasks = bench.size("snapshot.tasks", 60_000, 3000)
    workflow = a_workflow("".join(f"- {{name: t{n}, command: 'true'}}\n" for n in range(100)))
    slots = 8

    finishes: dict[bool, list[float]] = {True: [], False: []}

    def claims(held: bool) -> float:
        with bench.database() as uri, a_queue(uri) as session, bench.admin(uri) as other:
            if held:
                other.execute("set idle_in_transaction_session_timeout = 0")
                other.execute("begin isolation level repeatable read")
                other.execute("select count(*) from task")
            made = [Line.register(session, f"archive-{n}") for n in range(10)]
            for _ in range(max(1, tasks // 10_000)):
                for line in made:
                    line.append(session, workflow, min(10, max(1, tasks // 1000)))
                done = drain(session, "bench", slots, apart=True)
            finishes[held].append(_late([took for took, _ in done.finishes]))
            return _late([took for took, found in done.claims if found])

    found = interleaved(min(bench.rounds, 3), {"held": lambda: claims(True), "free": lambda: claims(False)})
    what = f"after {tasks} tasks beside an old snapshot"
    yield Figure("13", f"a claim {what}", "ms", found["held"], [ratio_at_most(2)], "without it", found["free"])
    yield Figure("13", f"recording an end {what}", "ms", finishes[True], [], "without it", finishes[False])


def _late(durations: list[float]) -> float:
    """The median of the last tenth, in milliseconds."""
    return statistics.median(durations[-max(100, len(durations) // 10) :]) * 1000


def _drained(told: Iterable[Mapping[str, Any]]) -> float:
    """The tasks per second of processes that drained at the same time, until the last
    one finished.
    """
    return float(sum(one["tasks"] for one in told) / max(one["draining"] for one in told))
