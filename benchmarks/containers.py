"""The cost of a task in a container: all of arkqueue, next to create, start, wait and remove with
the bare SDK, in turns, on the same engine and image.

arkqueue's time runs from a notice to the end of the block's last task, so it includes the plan,
claims, workspaces, logs and records. Both sides run the same command with the same network and
image. Only arkqueue uses the engine's init, labels and limits. For times, the bare side uses the
engine's default log driver; for output, it uses the same driver as arkqueue.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import docker

from benchmarks.bench import Bench, Figure, Target, interleaved, ratio_at_least, ratio_at_most, seconds
from benchmarks.servers import REST, Archive, a_server
from tests.engine import USUAL_SOCKET, busybox_files, client, import_image

SLOTS = 4
LOOK = 0.01
"""Seconds between two polls for the end of a block."""
NETWORK = "bridge"
"""The network of a task that names none."""
LOG = {"Type": "local", "Config": {"max-size": "1g", "max-file": "2", "compress": "false"}}
"""The log configuration of arkqueue's containers."""


def containers(bench: Bench) -> Iterator[Figure]:
    """The time of a task, the throughput of four slots, and the rate of output. DOCKER_HOST names
    another engine than the local one.
    """
    url = os.environ.get("DOCKER_HOST", USUAL_SOCKET)
    tasks, blocks = bench.size("containers.tasks", 10, 4), bench.size("containers.blocks", 20, 2)
    megabytes = bench.size("containers.megabytes", 200, 20)
    flood = f"yes 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde | head -c {megabytes}000000"
    with ExitStack() as stack:
        api, image = stack.enter_context(an_image(url))

        def turns(rounds: int, slots: int, count: int, command: str, bare: Callable[[], object]) -> list[list[float]]:
            """Seconds of each block of ``count`` tasks, for arkqueue and for the bare SDK."""
            with bench.database() as uri, a_server(bench, uri, slots=slots, docker={"host": url}) as server:
                task = {"command": command, "image": image, "network": NETWORK, "checkout": "none"}
                archive = Archive.add(bench, server, {f"inside-{number}": task for number in range(count)})
                contestants = {"ours": lambda: block(archive, count), "bare": lambda: seconds(bare)}
                found = interleaved(rounds, contestants, warm=True)
            return [found["ours"], found["bare"]]

        def figure(what: str, unit: str, target: Target, columns: list[list[float]]) -> Figure:
            return Figure("containers", what, unit, columns[0], [target], "bare SDK", columns[1])

        took = turns(blocks, 1, tasks, ":", lambda: cycles(api, image, tasks))
        each = [[block / tasks * 1000 for block in column] for column in took]
        yield figure("a task, one after another", "ms", ratio_at_most(1.10), each)
        count = SLOTS * tasks
        took = turns(blocks // 2, SLOTS, count, ":", lambda: together(lambda: cycles(api, image, tasks)))
        rates = [[count / block for block in column] for column in took]
        yield figure(f"{SLOTS} slots, beside as many threads", "tasks/s", ratio_at_least(0.9), rates)
        took = turns(bench.rounds, 1, 1, flood, lambda: attached(api, image, flood))
        rates = [[megabytes / block for block in column] for column in took]
        yield figure(f"{megabytes} MB of output, beside attach", "MB/s", ratio_at_least(0.8), rates)


@contextmanager
def an_image(url: str) -> Iterator[tuple[docker.APIClient, str]]:
    """The SDK's client, and an image with only busybox, which is removed afterwards."""
    api = client(url)
    image = import_image(api, f"arkqueue-bench-{uuid.uuid4().hex[:12]}", busybox_files(), [], "bench")
    try:
        yield api, image
    finally:
        api.remove_image(image, force=True)
        api.close()


def block(archive: Archive, count: int) -> float:
    """Seconds from the notice of a commit to the end of all its tasks."""
    revision = archive.commit()
    time.sleep(REST)
    began = time.perf_counter()
    archive.notify(revision)
    while True:
        states = archive.server.sql(
            "select state from task t join archive a on a.id = t.archive_id"
            " where a.name = %s and t.number = %s and t.settled_at is not null and t.name like 'inside-%%'",
            archive.name,
            revision,
        )
        if len(states) == count:
            assert {row["state"] for row in states} == {"completed"}
            return time.perf_counter() - began
        time.sleep(LOOK)


def cycles(api: docker.APIClient, image: str, times: int) -> None:
    for _ in range(times):
        container = created(api, image, ":")
        api.start(container)
        assert api.wait(container)["StatusCode"] == 0
        api.remove_container(container)


def together(work: Callable[[], None]) -> None:
    """Runs the work in as many threads as there are slots."""
    threads = [threading.Thread(target=work) for _ in range(SLOTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def attached(api: docker.APIClient, image: str, command: str) -> int:
    """The bytes of a container's output."""
    container = created(api, image, command, LOG)
    output = api.attach(container, stream=True, demux=True)
    api.start(container)
    count = sum(len(out or b"") + len(err or b"") for out, err in output)
    api.wait(container)
    api.remove_container(container)
    return count


def created(api: docker.APIClient, image: str, command: str, log: dict[str, Any] | None = None) -> str:
    body = {
        "Image": image,
        "Entrypoint": ["/bin/sh", "-c", command],
        "AttachStdout": True,
        "AttachStderr": True,
        "HostConfig": {"NetworkMode": NETWORK, "LogConfig": log or {}},
    }
    container: str = api.create_container_from_config(body)["Id"]
    return container
