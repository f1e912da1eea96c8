"""PGQueuer: enqueues jobs without work, and runs all of them. PGQueuer's own Python runs this
program: drain_pgqueuer.py URI JOBS BATCH
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import asyncpg
from pgqueuer import PgQueuer, Queries
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.types import QueueExecutionMode


async def main(uri: str, jobs: int, batch: int) -> None:
    driver = AsyncpgDriver(await asyncpg.connect(uri))
    queries = Queries(driver)
    await queries.install()
    queuer = PgQueuer(driver)
    ran = 0

    @queuer.entrypoint("nothing")
    async def nothing(_job: Job) -> None:
        nonlocal ran
        ran += 1

    began = time.perf_counter()
    await queries.enqueue(["nothing"] * jobs, [None] * jobs, [0] * jobs)
    enqueued = time.perf_counter()
    await queuer.run(batch_size=batch, mode=QueueExecutionMode.drain)
    ended = time.perf_counter()
    assert ran == jobs, f"{ran} of {jobs} ran"
    print(json.dumps({"enqueue": enqueued - began, "drain": ended - enqueued}))


asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
