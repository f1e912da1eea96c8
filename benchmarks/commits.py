"""Rows 1, 2 and 4: from a notice to a real process, with a real server and a real Subversion
repository.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.bench import Bench, Figure, at_least, at_most, faster, interleaved, ratio_at_least
from benchmarks.limits import Rows, a_bare_database
from benchmarks.lines import Line, a_queue, a_workflow
from benchmarks.one_thread import a_way
from benchmarks.peers.buildbot import Buildbot, a_buildbot
from benchmarks.servers import REST, Archive, a_server, until, writes_the_time

COLD = 25.0
"""The seconds after which a reader has closed its idle repository."""


def latency(bench: Bench) -> Iterator[Figure]:
    """From a notice to the start of the first process of the first task, next to Buildbot's time
    from change to build.
    """
    revisions, commits = bench.size("latency.revisions", 1000, 50), bench.size("latency.commits", 25, 5)
    cold = bench.size("latency.cold", 3, 0)
    with ExitStack() as stack:
        server = stack.enter_context(a_server(bench, stack.enter_context(bench.database())))
        none = Archive.add(bench, server, revisions=revisions)
        tree = Archive.add(bench, server, revisions=revisions, files=20, checkout="tree")
        starts = bench.a_folder("peer") / "starts"
        starts.touch()
        command = ["sh", "-c", writes_the_time(starts)]
        bare_database = stack.enter_context(a_bare_database(bench))
        buildbot = stack.enter_context(a_buildbot(bench, command))
        contestants: dict[str, Any] = {
            "none": none.latency,
            "tree": tree.latency,
            "bare": lambda: bare(command, starts),
            "commits": lambda: bare_database.commits_after_a_rest(3),
            "steps": stack.enter_context(a_way(bench, revisions)).go,
        }
        if buildbot:
            contestants["buildbot"] = lambda: of_buildbot(buildbot, starts)
        found = interleaved(commits, contestants, warm=True)
        rested = []
        for _ in range(cold):
            time.sleep(COLD)
            rested.append(none.latency())
    beside = ("Buildbot", found.get("buildbot", ()))
    what = f"notice → first process, {revisions} revisions"
    yield Figure("1", f"{what}, checkout: none", "ms", found["none"], [at_most(8, "ms"), faster(25)], *beside)
    yield Figure("1", f"{what}, a tree of 20 files", "ms", found["tree"], [at_most(25, "ms")], *beside)
    yield Figure("1", "of which: a bare subprocess → the same command's time", "ms", found["bare"])
    yield Figure("1", "of which: three commits, of a notice, a plan and a claim", "ms", found["commits"])
    steps = "the same steps until the task is claimed, without the request, by one thread that nobody wakes"
    yield Figure("1", f"for comparison: {steps}", "ms", found["steps"])
    for stage, what in (
        ("planned", "is read, and its plan's transaction begins"),
        ("ready", "has a ready task"),
        ("claimed", "has a claimed task"),
    ):
        yield Figure("1", f"of which: until the revision {what}", "ms", none.stages[stage][1 : commits + 1])
    if rested:
        yield Figure("1", f"the first notice after {COLD:g} s of rest, checkout: none", "ms", rested)


def bare(command: list[str], starts: Path) -> float:
    """Milliseconds until a directly started command has written the time."""
    began = time.time_ns()
    subprocess.run(command, check=True)
    return (int(starts.read_text().split()[-1]) - began) / 1e6


def of_buildbot(buildbot: Buildbot, starts: Path) -> float:
    """Milliseconds until Buildbot's command has written the time."""
    seen = len(starts.read_text().splitlines())
    time.sleep(REST)
    began = time.time_ns()
    buildbot.notify(seen + 1)
    lines = until(lambda: (lines := starts.read_text().splitlines())[seen:] and lines, "Buildbot's build")
    time.sleep(0.3)  # time for the end of the build
    return (int(lines[-1]) - began) / 1e6


def burst(bench: Bench) -> Iterator[Figure]:
    """From the first notice to the end of all tasks, for many commits with one task each, posted as
    fast as possible; next to Buildbot and to bare processes.
    """
    commits, builds = bench.size("burst.commits", 300, 40), bench.size("burst.builds", 60, 10)
    slots = bench.size("burst.slots", 4, 4)
    with ExitStack() as stack:
        server = stack.enter_context(a_server(bench, stack.enter_context(bench.database()), slots=slots))
        starts = bench.a_folder("peer") / "starts"
        starts.touch()
        command = ["/bin/sh", "-c", writes_the_time(starts)]

        def one(checkout: str) -> dict[str, Any]:
            return {"only": {"command": writes_the_time(starts), "checkout": checkout}}

        archives = {
            "none": Archive.add(bench, server, one("none")),
            "tree": Archive.add(bench, server, one("tree"), files=20),
        }
        buildbot = stack.enter_context(a_buildbot(bench, command))
        contestants: dict[str, Any] = {name: lambda a=a: of_burst(a, commits) for name, a in archives.items()}
        contestants["once"] = lambda: of_burst(archives["none"], commits, notices=1)
        contestants["bare"] = lambda: of_bare(command, commits, slots)
        if buildbot:
            contestants["buildbot"] = lambda: of_builds(buildbot, starts, builds)
        found = interleaved(bench.rounds, contestants, warm=True)
    for name, what in (("none", "checkout: none"), ("tree", "a tree of 20 files")):
        targets = [at_least(250, "tasks/s"), ratio_at_least(0.4)] if name == "none" else []
        title = f"burst of {commits} commits → all done, {what}, {slots} slots"
        yield Figure("2", title, "tasks/s", found[name], targets, f"bare subprocess, {slots} threads", found["bare"])
    title = f"one notice for {commits} commits → all done, checkout: none, {slots} slots"
    yield Figure("2", title, "tasks/s", found["once"], [at_least(600, "tasks/s")])
    if buildbot:
        yield Figure(
            "2",
            f"the same beside Buildbot's burst of {builds}",
            "tasks/s",
            found["none"],
            (),
            "Buildbot",
            found["buildbot"],
        )


def of_burst(archive: Archive, commits: int, notices: int | None = None) -> float:
    """Tasks per second from the first notice to the end of all tasks. ``notices``: sends only this
    number of notices, for the last commits (None: one for each commit).
    """
    from benchmarks.servers import load

    head = int(archive.repository.head)
    load(archive.repository, commits)
    time.sleep(REST)
    began = time.perf_counter()
    archive.notify_all(range(head + 1 + commits - (notices or commits), head + commits + 1))

    def is_done() -> bool:
        (row,) = archive.server.sql(
            "select count(*) from task t join archive a on a.id = t.archive_id where a.name = %s and t.name = 'only'"
            " and t.state = 'completed' and t.number > %s", archive.name, head,
        )  # fmt: skip
        return bool(row["count"] == commits)

    while not is_done():
        time.sleep(0.01)
    return commits / (time.perf_counter() - began)


def of_bare(command: list[str], count: int, threads: int) -> float:
    left = iter(range(count))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                if next(left, None) is None:
                    return
            subprocess.run(command, check=True)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    began = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return count / (time.perf_counter() - began)


def of_builds(buildbot: Buildbot, starts: Path, builds: int) -> float:
    seen = len(starts.read_text().splitlines())
    began = time.perf_counter()
    for number in range(builds):
        buildbot.notify(seen + number)
    while len(starts.read_text().splitlines()) < seen + builds:
        time.sleep(0.01)
    took = time.perf_counter() - began
    time.sleep(1)  # time for the end of the last build
    return builds / took


def planning(bench: Bench) -> Iterator[Figure]:
    """From a notice to the stored graph of the revision, and the parts of planning and storing in
    that time.
    """
    commits = bench.size("planning.commits", 20, 5)
    sizes = (5, 50, 500)
    with ExitStack() as stack:
        uri = stack.enter_context(bench.database())
        server = stack.enter_context(a_server(bench, uri, slots=1))
        # A blocker takes the only slot, so that no planned task runs.
        blocker = Archive.add(bench, server, {"blocker": {"command": "exec sleep 100000", "checkout": "none"}})
        blocker.notify(blocker.commit())
        until(lambda: server.sql("select 1 from task where name = 'blocker' and state = 'running'"), "the blocker")
        archives = {str(size): Archive.add(bench, server, graph(size)) for size in sizes}
        bare_database = stack.enter_context(a_bare_database(bench))
        contestants: dict[str, Any] = {size: partial(stored, a) for size, a in archives.items()}
        contestants["commits"] = lambda: bare_database.commits_after_a_rest(2)
        found = interleaved(commits, contestants, warm=True)
        uri = stack.enter_context(bench.database())
        session = stack.enter_context(a_queue(uri))
        contestants = {}
        for size in sizes:
            line, tasks = Line.register(session, f"archive-{size}"), a_workflow(yaml(size))
            # like all later revisions, the second one has edges across runs
            line.append(session, tasks, 2)
            rows = Rows(stack.enter_context(bench.admin(uri)), line.branch.archive)
            contestants |= {f"plan {size}": partial(appended, session, line, tasks), f"write {size}": rows.write}
        alone = interleaved(commits, contestants, warm=True)
    for size in sizes:
        what, target = f"notice → stored graph of {size} tasks", [at_most(2 + 0.02 * size, "ms")]
        yield Figure("4", what, "ms", found[str(size)], target, "two commits", found["commits"])
        yield Figure(
            "4", f"of which: plan and store {size} tasks", "ms", alone[f"plan {size}"], (),
            "PostgreSQL alone, writing the same rows", alone[f"write {size}"],
        )  # fmt: skip


def graph(size: int) -> dict[str, dict[str, Any]]:
    """Tasks in rows of five. Each depends on the one before in its row, and the first of a row
    depends on the previous revision's.
    """
    return {
        f"t{n}": {"command": "true", "depends": [f"t{n - 1}"] if n % 5 else ["PREV"], "checkout": "none"}
        for n in range(size)
    }


def yaml(size: int) -> str:
    import json

    return json.dumps([{"name": name, **fields} for name, fields in graph(size).items()])


def stored(archive: Archive) -> float:
    """Milliseconds from a notice until the graph is visible to others."""
    revision = archive.commit()
    time.sleep(REST)
    query = "select 1 from run join archive a on a.id = run.archive_id where a.name = %s and run.number = %s"
    began = time.perf_counter()
    archive.notify(revision)
    until(lambda: archive.server.sql(query, archive.name, revision), "the graph")
    return (time.perf_counter() - began) * 1000


def appended(session: Any, line: Line, tasks: Any) -> float:
    """Milliseconds to plan and store a revision, after a rest."""
    time.sleep(REST)
    began = time.perf_counter()
    assert line.append(session, tasks)
    return (time.perf_counter() - began) * 1000
