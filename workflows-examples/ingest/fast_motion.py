"""An hour of ingest in fast motion: batches are handed in a hundred at a time, while services and the server are killed, answers are lost and the disk is full.

Then it is seen that no batch and no job is lost, doubled or stuck: one run for each batch, one ARK, one version and one record for each object, and a summary
for each batch. ``python -m benchmarks ingest`` measures it, and ``tests/system/ingest/test_fast_motion.py`` runs minutes of it.
"""

from __future__ import annotations

import io
import json
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import psycopg
from ingest import host

from arkqueue.cli.client import Busy, Client, Refused, Unreachable

SUBMITTERS = 8
PATIENCE = 1800.0
"""Seconds within which everything must have ended."""
ENDED = ("completed", "failed")
STEPS = 8
"""Tasks of a job. A run has the tasks ``batch`` and ``REPORT`` beside them."""
FAULTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("content", {"fail": 20}),
    ("content", {"size": True, "slow": 0.1}),
    ("minting", {"lose": 5}),
    ("minting", {"fail": 10}),
    ("storage", {"lose": 5}),
    ("storage", {"full": 5}),
    ("inventory", {"record": 5}),
    ("inventory", {"lose": 5}),
    ("callback", {"fail": 10}),
    ("mail", {"fail": 5}),
)


class Server(Protocol):
    """The server that is killed meanwhile."""

    def client(self) -> Client: ...
    def kill_and_start(self) -> None: ...
    def memory(self) -> float: ...


@dataclass
class Told:
    """What came out. ``faults``: sentences about what is lost, doubled or stuck; none is what is wanted. ``memory``: of the server, in MB, behind each round; it is killed in the first half of them."""

    batches: int = 0
    jobs: int = 0
    tasks: int = 0
    seconds: float = 0.0
    kills: int = 0
    full_disks: int = 0
    mails_twice: int = 0
    memory: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


@dataclass
class Batch:
    id: str
    document: dict[str, Any]
    jobs: int
    is_rejected: bool = False


class Motion:
    """``disk``: the working storage, if it is one of its own that may be filled; ``seed`` draws what is handed in and what fails when."""

    def __init__(self, archive: str, server: Server, services: host.Services, disk: Path | None, seed: int = 1) -> None:
        self.archive, self._server, self.services, self._disk = archive, server, services, disk
        self._random = random.Random(seed)
        self.told = Told()
        self.batches: list[Batch] = []

    def run(self, rounds: int, size: int = 100) -> Told:
        """Hand in ``rounds`` times ``size`` batches, and see what has become of them."""
        begin = time.monotonic()
        for number in range(rounds):
            new = [self._batch(f"b{number}-{n}") for n in range(size)]
            self.batches += new
            with ThreadPoolExecutor(SUBMITTERS) as pool:
                sent = [pool.submit(self._submit, batch) for batch in new]
                self._disturb(kills_server=number <= rounds // 2)
                for one in sent:
                    one.result()
            self._wait_for_few(size // 2)
            self.told.memory.append(self._server.memory())
        self._calm()
        self._settle()
        self.told.seconds = time.monotonic() - begin
        self._judge()
        return self.told

    # -- what is handed in -------------------------------------------------------------------------------------------

    def _batch(self, id: str) -> Batch:
        kind = self._random.choices(("file", "object", "manifests", "corrupt"), (70, 15, 10, 5))[0]
        about = {"profile_name": "demo_content", "submitter": "ann@example.org", "items": []}
        if kind == "file":
            return Batch(id, about | {"payload_url": self._file(id)["url"], "type": "file"}, 1)
        if kind == "object":
            return Batch(id, about | {"payload_url": self._manifest(id)["url"]}, 1)
        if kind == "corrupt":
            url = self.services.content(f"{self.archive}/{id}.checkm", "#%checkm_0.7\nhttp://example.org/cut-o")
            return Batch(id, about | {"payload_url": url}, 0, is_rejected=True)
        objects = [self._manifest(f"{id}-{n}") for n in range(3)]
        text = host.checkm("mrt-batch-manifest", objects)
        return Batch(id, about | {"payload_url": self.services.content(f"{self.archive}/{id}.checkm", text)}, 3)

    def _file(self, name: str) -> dict[str, Any]:
        text = f"{name} " * self._random.randrange(1, 4000)
        return {
            "url": self.services.content(f"{self.archive}/{name}.txt", text),
            "name": f"{name}.txt",
            "size": len(text),
        }

    def _manifest(self, name: str) -> dict[str, Any]:
        text = host.checkm("mrt-ingest-manifest", [self._file(f"{name}.{n}") for n in range(3)])
        return {"url": self.services.content(f"{self.archive}/{name}.checkm", text), "name": f"{name}.checkm"}

    def _submit(self, batch: Batch) -> None:
        """Hand a batch in, again and again until the server has answered: the id makes one run of it."""
        body = json.dumps(batch.document).encode()
        path = f"/archives/{self.archive}/submissions"
        while True:
            with suppress(Unreachable, Busy, OSError):
                self._server.client().hand_in(path, io.BytesIO(body), "application/json", {"Idempotency-Key": batch.id})
                return
            time.sleep(0.2)

    # -- what goes wrong ---------------------------------------------------------------------------------------------

    def _disturb(self, *, kills_server: bool) -> None:
        for service, fault in self._random.sample(FAULTS, 4):
            with suppress(OSError):
                self.services.switch(service, **fault)
            time.sleep(self._random.uniform(0.5, 2))
        if kills_server:
            self._kill(self._server.kill_and_start)
        if self._disk is not None:
            self._fill(self._disk)

        def services_anew() -> None:
            self.services.kill()
            self.services.start()

        self._kill(services_anew)

    def _kill(self, do: Callable[[], None]) -> None:
        time.sleep(self._random.uniform(1, 3))
        do()
        self.told.kills += 1

    def _fill(self, disk: Path) -> None:
        """Take all the room of the working storage for a while."""
        ballast = disk / "ballast"
        with suppress(OSError), ballast.open("wb") as file:
            while True:
                file.write(bytes(1 << 16))
                file.flush()
        self.told.full_disks += 1
        time.sleep(self._random.uniform(3, 6))
        ballast.unlink()

    def _calm(self) -> None:
        for service in {name for name, _ in FAULTS}:
            self.services.switch(service)

    # -- how it ends -------------------------------------------------------------------------------------------------

    def _runs(self) -> list[dict[str, Any]]:
        """All runs of submissions."""
        found: list[dict[str, Any]] = []
        query: dict[str, Any] = {"archive": self.archive, "trigger": "submission", "limit": 500}
        while True:
            page = self._server.client().get("/runs", **query)
            found += page["runs"]
            if not page.get("next"):
                return found
            query["before"] = page["next"]

    def _id(self, run: dict[str, Any]) -> str:
        return str(run["submission"]).partition("@id:")[2]

    def _wait_for_few(self, most: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while sum(run["state"] not in ENDED for run in self._runs()) > most and time.monotonic() < deadline:
            time.sleep(1)

    def _settle(self) -> None:
        """Wait until everything has ended; what failed because of a fault is retried, as an administrator would, and reported anew."""
        deadline = time.monotonic() + PATIENCE
        rejected = {batch.id for batch in self.batches if batch.is_rejected}
        while time.monotonic() < deadline:
            runs = self._runs()
            missing = {f"{b.id}-jobs" for b in self.batches if not b.is_rejected} - {self._id(run) for run in runs}
            failed = [run for run in runs if run["state"] == "failed" and self._id(run) not in rejected]
            is_open = any(run["state"] not in ENDED or run["report"] != "completed" for run in runs)
            if not is_open and not failed and not missing:
                break
            for run in failed:
                with suppress(Refused, Unreachable):
                    # Of two batches, the later one may have been made already: that does not make the earlier one out of date.
                    how = {"failed": True} if self._id(run).endswith("-jobs") else {"force": True}
                    self._server.client().post(f"/runs/{run['id']}/retry", how)
            time.sleep(2)
        for run in self._runs():
            if run["changed_since_report"]:
                with suppress(Refused):
                    self._server.client().post(f"/runs/{run['id']}/report", {})
        while any(run["report"] not in ("completed", None) for run in self._runs()) and time.monotonic() < deadline:
            time.sleep(0.5)

    # -- what has become of it ---------------------------------------------------------------------------------------

    def _judge(self) -> None:
        told, runs = self.told, self._runs()
        told.batches, told.jobs = len(self.batches), sum(batch.jobs for batch in self.batches)
        told.tasks = told.jobs * STEPS + len(runs) * 2
        wanted = Counter(
            [(b.id, "failed" if b.is_rejected else "completed") for b in self.batches]
            + [(f"{b.id}-jobs", "completed") for b in self.batches if not b.is_rejected]
        )
        found = Counter((self._id(run), run["state"]) for run in runs)
        told.faults += [f"run {id}: should be {state}, and is not" for id, state in (wanted - found)]
        told.faults += [f"run {id}: is {state}, and should not be" for id, state in (found - wanted)]
        told.faults += [*self._objects(), *self._mails()]

    def _objects(self) -> Iterator[str]:
        """Each job has one ARK, one version and one record."""
        jobs = {f"{self.archive}/{b.id}.{n:04}" for b in self.batches for n in range(1, b.jobs + 1)}
        with psycopg.connect(self.services.database) as connection:
            like = [f"{self.archive}/%"]
            minted = dict(
                connection.execute("select job, ark from merritt.identifier where job like %s", like).fetchall()
            )
            records = connection.execute("select job, status from merritt.record where job like %s", like).fetchall()
        stored = Counter(path.read_text("utf-8") for path in (self.services.folder / "storage").glob("*/*/[0-9]*/job"))
        stored = Counter({job: count for job, count in stored.items() if job.startswith(f"{self.archive}/")})
        recorded = Counter(job for job, status in records if status == "recorded")
        for what, have in (("ARK", Counter(minted.keys())), ("version", stored), ("record", recorded)):
            yield from (f"{job}: has no {what}" for job in jobs - have.keys())
            yield from (f"{job}: has {count} {what}s" for job, count in have.items() if count > 1 or job not in jobs)

    def _mails(self) -> Iterator[str]:
        """Each batch has a summary. A mail that was sent and whose sender was killed before that was known comes twice, with the same Message-ID."""
        summaries: dict[str, Counter[str]] = {}
        for path in self.services.mails:
            text = path.read_text("utf-8", "replace")
            subject = re.search(r"^Subject: Batch (\S+) (.*)", text, re.M)
            mark = re.search(r"^Message-ID: +(\S+)", text, re.M)
            if subject and mark and not subject[2].startswith("is queued"):
                summaries.setdefault(subject[1], Counter())[mark[1]] += 1
        for batch in self.batches:
            if batch.id not in summaries:
                yield f"{batch.id}: its depositor was told nothing"
        self.told.mails_twice = sum(count - 1 for marks in summaries.values() for count in marks.values())
