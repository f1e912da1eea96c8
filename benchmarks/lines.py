"""A queue alone: archives without repositories, whose revisions are planned, claimed and finished
by the queue's own verbs.

``Line`` is an archive with one branch. ``drain`` is a task manager without real tasks. Like the
real one, it has a thread that claims for the free slots, and threads that record ends, each for its
share of the archives. ``plan`` stands for a queue manager's readers, without repositories. ``python
-m benchmarks.lines`` is such a process, and ``processes`` starts several at once.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.db import Database
from arkqueue.db.session import Session
from arkqueue.model import ArchiveId, AttemptId, Claim, End, Outcome, Receipt, Revision, SourceFile, Workflow
from arkqueue.plan import Entry
from arkqueue.queue import archives, claim, finish, ledger
from arkqueue.task_manager.recorder import FEW_ENDS, LANES
from arkqueue.workflow.parsing import parse

CHUNK = 100
"""The revisions that one transaction appends, as in a queue manager."""
SLOTS = 100
READERS = 4
"""The archives that are planned at once. A queue manager reads more than that."""
PAUSE = 0.005
"""Seconds between two claims of a task manager without tasks, which gets no wake-ups here."""


def a_workflow(text: str) -> Workflow:
    parsed = parse([SourceFile("_workflows/bench.yaml", text.encode())])
    assert not parsed.faults, [str(fault) for fault in parsed.faults]
    return parsed


PAPER = a_workflow(
    "- {name: index, command: 'true', depends: [PREV]}\n"
    "- {name: pdf, command: 'true', depends: [index], cancels: [PREV]}\n"
)
"""The example of the design: edges inside a run and across runs, and cancellations."""
CHAIN = a_workflow("- {name: link, command: 'true', depends: [PREV]}\n")


def a_revision(number: int) -> Revision:
    return Revision(str(number), number, "ada", datetime.now(UTC), f"change {number}")


@dataclass
class Line:
    """An archive with one branch, and the head of its ledger."""

    branch: ledger.Branch
    number: int

    @classmethod
    def register(cls, session: Session, name: str) -> Line:
        """Registers an archive with revision 1 as the baseline."""
        id = archives.register(
            session, name=name, kind="subversion", url=f"/srv/{name}", repository=f"/srv/{name}", uuid="", folder="",
            settings=ArchiveSettings(process=True),
            starts=[archives.Start("", True, Entry(a_revision(1), Workflow()))],
        )  # fmt: skip
        return cls.of(session, id)

    @classmethod
    def of(cls, session: Session, archive: int) -> Line:
        """The line of an existing archive, at its head."""
        (row,) = archives.branches(session, archive)  # type: ignore[arg-type]
        (head,) = session.rows("revision_at", revision=row.head_id)
        return cls(ledger.Branch(row.id, archive, row.name, row.main, row.head_id), head.number)

    def append(self, session: Session, tasks: Workflow, count: int = 1) -> bool:
        """Plans ``count`` revisions. Returns False if another process was quicker."""
        while count:
            entries = [
                Entry(a_revision(self.number + 1 + n), tasks) for n in range(min(count, CHUNK))
            ]  # fmt: skip
            head = ledger.append(session, self.branch, entries)
            if head is None:
                return False
            known = self.branch
            self.branch = ledger.Branch(known.id, known.archive, known.name, known.main, head)
            self.number += len(entries)
            count -= len(entries)
        return True


def plan(session: Session, lines: Sequence[Line], tasks: Workflow, count: int) -> int:
    """Plans ``count`` revisions of each archive. Returns the number of archives in which no other
    process was quicker.
    """
    with ThreadPoolExecutor(READERS) as readers:
        return sum(readers.map(lambda line: line.append(session, tasks, count), lines))


@dataclass
class Drained:
    """The work of one task manager. ``claims``, ``finishes``: the seconds of each call, and the
    number of its tasks.
    """

    seconds: float
    tasks: int
    claims: list[tuple[float, int]]
    finishes: list[tuple[float, int]]


def drain(session: Session, process: str, slots: int = SLOTS, *, apart: bool = False) -> Drained:
    """Claims and completes all tasks. ``apart``: claims and records in separate calls, so that each
    can be timed.
    """
    return _TaskManager(session, process, slots, apart).drain()


class _TaskManager:
    """Claims for its slots. A claimed task ends at once, and its slot is free before the end is
    recorded. Like a real task manager, it claims in the call that records ends, unless another
    claim is under way, and claims again if there may be more ready tasks.
    """

    def __init__(self, session: Session, process: str, slots: int, apart: bool) -> None:
        self._session, self._process, self._slots, self._apart = session, process, slots, apart
        self._changed = threading.Condition()
        self._ended: list[list[Outcome]] = [[] for _ in range(LANES)]
        self._claims: list[tuple[float, int]] = []
        self._claiming = threading.Lock()
        self._turns = claim.Turns()
        self._unrecorded = 0
        self._is_more = True
        self._is_over = False
        self._fault: BaseException | None = None
        self._finishes: list[tuple[float, int]] = []

    def drain(self) -> Drained:
        recorders = [threading.Thread(target=self._recording, args=(lane,)) for lane in range(LANES)]
        for recorder in recorders:
            recorder.start()
        began = time.perf_counter()
        try:
            while self._fault is None:
                with self._claiming:
                    now, self._is_more = time.perf_counter(), False
                    found = claim.claim(self._session, self._process, self._process, self._slots, turns=self._turns)
                    self._took(found, now)
                if len(found) < self._slots and not self._may_be_more():
                    if not self._is_any_left():
                        break
                    time.sleep(PAUSE)
        finally:
            took = time.perf_counter() - began
            with self._changed:
                self._is_over = True
                self._changed.notify_all()
            for recorder in recorders:
                recorder.join()
        if self._fault is not None:
            raise self._fault
        return Drained(took, sum(count for _, count in self._claims), self._claims, self._finishes)

    def _took(self, found: Sequence[Claim], since: float) -> None:
        with self._changed:
            self._claims.append((time.perf_counter() - since, len(found)))
            self._unrecorded += len(found)
            for one in found:
                self._ended[one.archive.id % LANES].append(
                    Outcome(one.attempt, End.EXITED, 0, archive=ArchiveId(one.archive.id))
                )
            self._changed.notify_all()

    def _may_be_more(self) -> bool:
        """Waits until a recorded end may have made more tasks ready. Returns False if no ends are
        left to record.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_more or not self._unrecorded or self._fault)
            return self._is_more

    def _is_any_left(self) -> bool:
        """Whether other processes have tasks under way, whose ends may make tasks ready."""
        with self._session.database.statement() as connection:
            query = b"select from task where settled_at is null and state in ('ready', 'running') limit 1"
            return connection.execute(query).rowcount > 0

    def _recording(self, lane: int) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._ended[lane] or self._is_over)
                    batch, self._ended[lane] = self._ended[lane], []
                if not batch:
                    return
                began = time.perf_counter()
                receipts = self._record(batch)
                assert set(receipts.values()) == {Receipt.RECORDED}, "an attempt of ours was another's"
                with self._changed:
                    self._finishes.append((time.perf_counter() - began, len(batch)))
                    self._unrecorded -= len(batch)
                    self._changed.notify_all()
        except BaseException as error:
            with self._changed:
                self._fault = error
                self._changed.notify_all()

    def _record(self, batch: Sequence[Outcome]) -> dict[AttemptId, Receipt]:
        if self._apart or len(batch) > FEW_ENDS or not self._claiming.acquire(blocking=False):
            receipts = finish.finish(self._session, self._process, batch)
            self._is_more = True
            return receipts
        try:
            now, request = time.perf_counter(), claim.Request(self._process, self._slots, self._turns)
            finished = finish.finish_and_claim(self._session, self._process, batch, request)
            self._took(finished.claims, now)
            self._is_more = self._is_more or finished.is_more
            return finished.receipts
        finally:
            self._claiming.release()


@contextmanager
def a_queue(uri: str) -> Iterator[Session]:
    """A queue without wake-ups, because the benchmark takes every step itself."""
    with Database.open(uri, application_name="arkqueue bench") as database:
        yield Session(database)


def processes(uri: str, count: int, order: dict[str, Any]) -> list[dict[str, Any]]:
    """Starts several processes with the same order: all of them plan, and then all of them drain.
    Returns the report of each.
    """
    command = [sys.executable, "-m", "benchmarks.lines", uri]
    with ExitStack() as stack:
        started = [
            stack.enter_context(
                subprocess.Popen(
                    [*command, json.dumps({**order, "process": f"process-{n}", "part": [n, count]})],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1],
                )
            )
            for n in range(count)
        ]  # fmt: skip
        told: list[dict[str, Any]] = [{} for _ in started]
        for _step in ("ready", "planned", "drained"):
            for found, process in zip(told, started, strict=True):
                assert process.stdout is not None
                line = process.stdout.readline()
                assert line, "a process of the benchmark ended early"
                found.update(json.loads(line))
            for process in started:
                assert process.stdin is not None
                process.stdin.write("go\n")
                process.stdin.flush()
        return told


def main(uri: str, order: dict[str, Any]) -> None:
    """Executes an order: the archives, the revisions for each, the workflow, and the slots. All
    processes get all archives.
    """
    tasks = a_workflow(order["workflow"])
    index, count = order["part"]
    with a_queue(uri) as session:
        ids: Sequence[int] = order["archives"]
        start = len(ids) * index // count
        # Each process starts with another archive and goes through all of them. So some collide,
        # and none of them is always the first.
        mine = [Line.of(session, id) for id in [*ids[start:], *ids[:start]]]
        _step({"ready": True})
        began = time.perf_counter()
        planned = plan(session, mine, tasks, order["revisions"]) if order["revisions"] else 0
        _step({"planning": time.perf_counter() - began, "planned": planned})
        drained = drain(session, order["process"], order["slots"])
        _step({"draining": drained.seconds, "tasks": drained.tasks})


def _step(told: dict[str, Any]) -> None:
    print(json.dumps(told), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
