"""Row 11: requests that people make, at the API, in a database with a long history."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

from benchmarks import history
from benchmarks.bench import Bench, Figure, at_most, interleaved
from benchmarks.commits import yaml
from benchmarks.lines import Line, a_queue, a_workflow
from benchmarks.servers import a_server


def reading(bench: Bench) -> Iterator[Figure]:
    """The runs of an archive, the open runs of all archives, and one run with many tasks."""
    tasks, archives = bench.size("history.tasks", 1_000_000, 50_000), bench.size("history.archives", 1000, 100)
    width, times = bench.size("reading.tasks", 500, 500), bench.size("reading.times", 25, 10)
    with ExitStack() as stack:
        uri = stack.enter_context(bench.database())
        with bench.admin(uri) as admin:
            history.make(admin, tasks, archives)
        with a_queue(uri) as session:
            line = Line.of(session, history.archives_of(uri, 3)[1])
            line.append(session, a_workflow(yaml(width)))
        server = stack.enter_context(a_server(bench, uri, "web"))
        api = server.api
        (found,) = server.sql("select a.name, max(r.id) as run from run r join archive a on a.id = r.archive_id where a.id = %s group by 1", line.branch.archive)  # fmt: skip
        (one,) = server.sql("select id from task where run_id = %s and name = 't3'", found["run"])
        calls = {
            "runs of an archive (50, with their tasks)": lambda: api.get("/runs", archive=found["name"], tasks="true"),
            "runs of an archive (50)": lambda: api.get("/runs", archive=found["name"]),
            "runs of all archives (50)": lambda: api.get("/runs"),
            "failed runs of an archive": lambda: api.get("/runs", archive=found["name"], state="failed"),
            f"one run with {width} tasks": lambda: api.get(f"/runs/{found['run']}"),
            "one task": lambda: api.get(f"/tasks/{one['id']}"),
        }
        times_of = interleaved(times, {what: partial(timed, call) for what, call in calls.items()}, warm=True)
    for what, runs in times_of.items():
        yield Figure("11", f"{what}, {tasks} tasks of history", "ms", runs, [at_most(30, "ms")])


def timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    assert call()
    return (time.perf_counter() - began) * 1000
