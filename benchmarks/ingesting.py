"""Row ``ingest``: an hour of the example ``ingest`` in fast motion. A hundred batches at a time are
submitted, while the server and the services are killed and the disk is full.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from arkqueue.cli.client import Client
from benchmarks.bench import Bench, Figure, at_most, ratio_at_most
from tests.repositories import a_subversion_repository
from tests.system.end_to_end.installation import ROOT, Installation

sys.path.append(str(ROOT / "workflows-examples"))


class Killed:
    """The server, which is killed and restarted."""

    def __init__(self, arkqueue: Installation) -> None:
        self._arkqueue = arkqueue
        self._role = arkqueue.start()

    def client(self) -> Client:
        return self._arkqueue.api

    def kill_and_start(self) -> None:
        self._role.kill()
        self._role = self._arkqueue.start()

    def memory(self) -> float:
        """The memory of the server's own process, without the tasks."""
        pages = int(Path(f"/proc/{self._role.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextmanager
def a_small_disk(folder: Path) -> Iterator[Path | None]:
    """A disk of 64 MB that may be filled. None without root, who alone can make one."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64M", "none", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def ingest(bench: Bench) -> Iterator[Figure]:
    """The objects ingested per minute, those lost, duplicated or stuck, and the growth of the
    server's memory.
    """
    from ingest import host
    from ingest.fast_motion import Motion

    rounds, size = bench.size("ingest.rounds", 20, 2), bench.size("ingest.batches", 100, 30)
    folder = bench.a_folder("ingest")
    with bench.database() as uri, bench.database() as own, a_small_disk(folder / "disk") as disk:
        settings = {"scratch_folder": str(disk / "scratch")} if disk else {}
        arkqueue = Installation(folder / "arkqueue", uri, **{"poll": "1s", "slots": 8, **settings})
        arkqueue.is_forked = False
        try:
            server = Killed(arkqueue)
            arkqueue("lock", "set", "global/ingest", "unlimited")
            with host.services(folder / "services", own) as services:
                repository = a_subversion_repository(folder, "demo")
                repository.commit(host.collection_files(folder / "ingest.json"))
                client = server.client()
                client.post("/archives", {"name": "demo", "url": str(repository.path), "process": True})
                token = client.post("/tokens", {"name": "ingest", "scope": "operate", "archives": ["demo"]})["token"]
                host.write_settings(folder / "ingest.json", services, arkqueue.home(), token)
                told = Motion("demo", server, services, disk).run(rounds, size)
        finally:
            arkqueue.close()
    for fault in told.faults[:20]:
        bench.say(fault)
    note = f"{told.batches} batches, {told.jobs} objects, {told.tasks} tasks, {told.kills} kills, {told.full_disks} full disks; {told.mails_twice} mails came twice"
    yield Figure("ingest", "objects ingested", "per minute", [told.jobs / told.seconds * 60], note=note)
    yield Figure("ingest", "lost, doubled or stuck", "", [len(told.faults)], [at_most(0)])
    # The comparison starts one round after the last kill, because a new server grows for a while.
    half = told.memory[min(rounds // 2 + 1, rounds - 1)]
    yield Figure("ingest", "memory at the end", "MB", [told.memory[-1]], [ratio_at_most(1.1)], "in the middle", [half])
