"""Procrastinate: defers jobs without work, and lets one worker run all of them. Procrastinate's own
Python runs this program: drain_procrastinate.py URI JOBS CONCURRENCY
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from procrastinate import App, PsycopgConnector


async def main(uri: str, jobs: int, concurrency: int) -> None:
    app = App(connector=PsycopgConnector(conninfo=uri, min_size=2, max_size=concurrency + 2))
    ran = 0

    @app.task(name="nothing")
    async def nothing(number: int) -> None:  # noqa: ARG001 (what a job is told)
        nonlocal ran
        ran += 1

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        began = time.perf_counter()
        await nothing.batch_defer_async(*({"number": number} for number in range(jobs)))
        enqueued = time.perf_counter()
        await app.run_worker_async(concurrency=concurrency, wait=False, install_signal_handlers=False)
        ended = time.perf_counter()
    assert ran == jobs, f"{ran} of {jobs} ran"
    print(json.dumps({"enqueue": enqueued - began, "drain": ended - enqueued}))


asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
