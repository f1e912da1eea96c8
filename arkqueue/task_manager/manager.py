"""The threads of the task manager: claims for free slots, passes attempts to workers, and stops
them. The package's docstring has an overview.
"""

from __future__ import annotations

import logging
import os
import queue as queues
import secrets
import socket
import threading
import time
from collections.abc import Collection, Sequence
from contextlib import suppress

from arkqueue.config import Configuration
from arkqueue.errors import DatabaseUnavailable
from arkqueue.executor.process.leftovers import end_leftovers
from arkqueue.gateway import Opener
from arkqueue.logs.write import Logs
from arkqueue.model import AttemptId, Claim, Outcome, Pool, Receipt, TaskKind
from arkqueue.repository.reader.client import processes
from arkqueue.runtime.accounts import account
from arkqueue.runtime.home import HomeLock, host_id, id_in
from arkqueue.task_manager.adoption import Adoption
from arkqueue.task_manager.attempt import Attempt, Means, Why, perform
from arkqueue.task_manager.executors import Executors
from arkqueue.task_manager.fitness import Fitness
from arkqueue.task_manager.free_space import FreeSpace
from arkqueue.task_manager.leases import Leases, boottime
from arkqueue.task_manager.preparation import Preparation
from arkqueue.task_manager.recorder import Recorder
from arkqueue.task_manager.scratch import ScratchKeeper
from arkqueue.task_manager.sources import Sources
from arkqueue.task_manager.task_files import TaskFiles
from arkqueue.workspace import BASES, WORK, ScratchFolders, Workspaces, make_root

log = logging.getLogger("arkqueue")

PAUSE = 0.5
"""Seconds until the next iteration when the database is away."""


class TaskManager:
    """Runs tasks between ``start`` and ``stop``. ``opener`` opens its gateway to the queue."""

    def __init__(self, opener: Opener, configuration: Configuration) -> None:
        self._opener, self._configuration = opener, configuration
        self.process = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(6)}"
        self.host = ""
        self._work: queues.SimpleQueue[Attempt | None] = queues.SimpleQueue()
        self._workers: list[threading.Thread] = []
        self._idle = threading.Condition()
        self._busy = 0
        """Slots that are taken: from the claim until the workspace is removed."""
        self._is_more = True
        """True if the last claim filled every free slot, so more tasks may be ready. When it is
        false, a slot that becomes free does not trigger another claim.
        """
        self._claims = threading.Lock()
        """The lock of the one thread that may claim: the claiming thread or, while that waits, a
        recording thread.
        """
        self._is_steady = False
        """True if the claiming thread has begun, and knows all attempts that were claimed for it."""
        self._fitness = Fitness()
        self._closing = threading.Event()
        self._stopping = threading.Lock()
        self._is_stopped = False
        self.left: list[AttemptId] = []
        """Attempts whose containers were left running when this task manager was stopped."""
        self._claimer = threading.Thread(target=self._claiming, name="claim", daemon=True)

    def start(self, engine: bool = False) -> str:
        """Lock the home folder and begin. While the database is away, the task manager waits for it.
        Raises HomeTaken if another task manager has the home folder.

        ``engine``: containers will be needed. Returns a sentence about the container engine; empty
        if none is needed. Raises ExecutorError if the engine does not see the home folder.
        """
        configuration = self._configuration
        configuration.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = HomeLock(configuration.home)
        processes.warm()
        self.host = host_id(configuration.home)
        make_root(configuration.scratch)
        store = id_in(configuration.scratch, "store-id") if configuration.scratch_shared else self.host
        gateway = self._gateway = self._opener(self.process, self.host, store)
        self._bell = gateway.bell("ready")
        self._logs = Logs(gateway, configuration.log_head, configuration.log_tail, configuration.home)
        self._leases = Leases(gateway, configuration)
        self._recorder = Recorder(gateway, self._logs, self._leases.let_go, self._finish)
        try:
            self.executors = Executors(gateway, configuration, self._lock.guards)
        except BaseException:
            self._lock.release()
            raise
        try:
            give = self.executors.give if os.geteuid() != 0 else None
            self._workspaces = Workspaces(configuration.home, configuration.workspace_pool, give)
            home = configuration.home
            scratches = ScratchFolders(configuration.scratch, configuration.scratch_limit, give)
            give_up = self._workspaces.give_up_base
            self._space = FreeSpace([home, home / WORK, scratches.root], home / BASES, configuration.min_free, give_up)
            said = self.executors.announce() if engine or self.executors.used_docker else ""
        except BaseException:
            self.executors.close()
            self._lock.release()
            raise
        self._sources = Sources(gateway, configuration, store)
        files = TaskFiles(self._sources, self._workspaces, scratches)
        preparation = Preparation(configuration, self.executors, files)
        self._means = Means(
            preparation,
            configuration.output_limit,
            self._reserve,
            self._started,
            self._fitness.faulted,
            self._leases.kept,
            self._doubted,
        )
        self._scratch = ScratchKeeper(gateway, scratches, lambda: self.executors.installation, configuration.sweep)
        self._adoption = Adoption(
            gateway, configuration, self.executors, self._logs, self._sources, self._leases.held, self._take, self._engine_answers,
        )  # fmt: skip
        self._logs.start()
        self._recorder.start()
        self._leases.start()
        self._scratch.start()
        self._claimer.start()
        return said

    def claim_no_more(self) -> None:
        """Stop claiming. Returns when a claim that is under way has ended."""
        self._closing.set()
        self._bell.ring()
        self._claimer.join()
        with self._claims:
            pass  # a claim of a recording thread has ended, too

    def stop(self, drain: bool = False) -> None:
        """Stop claiming. Returns when no attempt runs here and every end is recorded.

        ``drain``: wait until running tasks have finished. Otherwise they are stopped and handed
        back, but containers are left running (``left``). A second call may stop the tasks for which
        a first call waits.
        """
        if self._claimer.ident is None:
            return  # it never started
        self.claim_no_more()
        self._adoption.close()
        if not drain:
            for attempt in self._leases.held():
                attempt.leave()
        with self._stopping:
            if self._is_stopped:
                return
            while not self._is_idle(self._configuration.renew):
                with suppress(DatabaseUnavailable):
                    self._register()  # otherwise it would count as gone while its tasks run
            self._recorder.close(self._configuration.lease)
            self._leases.close()
            self._scratch.close()
            for _ in self._workers:
                self._work.put(None)
            for worker in self._workers:
                worker.join()
            self._logs.close()
            self.executors.close()
            try:
                self._gateway.unregister()
            except DatabaseUnavailable as error:
                log.warning("the end of the task manager could not be reported to the database: %s", error)
            self._lock.release()
            self._is_stopped = True

    def _is_idle(self, timeout: float) -> bool:
        with self._idle:
            return self._idle.wait_for(lambda: self._busy == 0, timeout)

    # Claiming

    def _claiming(self) -> None:
        has_begun = is_swept = is_away = False
        told: tuple[object, ...] = ()
        seen_at = 0.0
        while not self._closing.is_set():
            try:
                with self._claims:
                    # Not the text of the lack, which has the free bytes, and so always differs.
                    faults = *self._fitness.faults, self._space.look() is None
                    if time.monotonic() - seen_at >= self._configuration.renew or faults != told:
                        self._register()
                        seen_at, told = time.monotonic(), faults
                    if not has_begun:
                        self._take_over()
                        has_begun = self._is_steady = True
                    if not is_swept and self._adoption.is_swept:
                        self._sweep()
                        is_swept = True
                    if not self._is_steady:
                        self._is_steady = self._hand_back_unknown()
                    if is_away:
                        log.warning("the database answers again")
                    is_away = False
                    self._claim()
                self._bell.wait(self._configuration.poll)
            except DatabaseUnavailable as error:
                if not is_away:
                    log.warning("no tasks can be claimed: %s", error)
                is_away, self._is_steady = True, False
                self._closing.wait(PAUSE)
            except Exception:
                log.exception("tasks could not be claimed; it is tried again")
                self._is_steady = False
                self._closing.wait(PAUSE)

    def _register(self) -> None:
        user = "root" if os.geteuid() == 0 else account()
        self._gateway.register(
            socket.gethostname(), self._configuration.slots, user, *self._fitness.faults, self._space.lack
        )

    def _take_over(self) -> None:
        """Clean up after an earlier task manager of this home folder. The locks prove that it and
        its guards are gone. Its containers are adopted.
        """
        self._end_leftovers()
        for name in self._gateway.expire():
            log.warning("%s, which an earlier task manager of this host ran, was lost with it", name)
        self._adoption.start()

    def _end_leftovers(self) -> None:
        """End programs whose guards are gone, because all guards may have been killed at once. A
        program whose workspace is gone has ended.
        """
        found = end_leftovers(self._configuration.home / WORK, self._workspaces.of_processes())
        if found.ended:
            log.warning(
                "tasks of an earlier task manager still ran without their guards, and were ended: %s",
                ", ".join(found.ended),
            )
        if found.remaining:
            log.warning(
                "tasks of an earlier task manager still run without their guards, and cannot be ended: %s. End them: they may be run again meanwhile",
                ", ".join(found.remaining),
            )

    def _sweep(self) -> None:
        """Remove the workspaces of earlier task managers, once none of their containers uses one. No
        task is claimed meanwhile.
        """
        live = {one.attempt for one in self._gateway.live()}
        for note in self._workspaces.sweep(live | {attempt.id for attempt in self._leases.held()}):
            log.warning(note)

    def _hand_back_unknown(self) -> bool:
        """Hand back attempts of a claim whose answer was lost. Returns False if some are left.
        Attempts in containers are adopted instead.
        """
        held = {attempt.id for attempt in self._leases.held()}
        live = [one for one in self._gateway.live() if one.process == self.process]
        unknown = [one.attempt for one in live if not one.outlives and one.attempt not in held]
        return self._gateway.hand_back(unknown, f"not started: {Why.SILENCE}")

    def _claim(self) -> None:
        """Claim for all free slots and pass the attempts to workers."""
        self._staff()
        with self._idle:
            free = self._configuration.slots - self._busy
            self._is_more = True
        if free > 0 and self._space.lack is None:
            since = boottime()
            claims, self._is_more = self._fitness.claim(free, self._claim_up_to)
            self._begin(claims, since)

    def _finish(self, outcomes: Sequence[Outcome], patience: float) -> dict[AttemptId, Receipt]:
        """Record ends. Unless the claiming thread is working, the same transaction claims the tasks
        that the ends make ready, so that they begin at once.
        """
        if not self._claims.acquire(blocking=False):
            return self._gateway.finish(outcomes, patience)
        try:
            with self._idle:
                free = self._configuration.slots - self._busy
            may_claim = free > 0 and self._is_steady and self._fitness.is_fit and not self._space.is_short()
            if not may_claim or self._closing.is_set():
                return self._gateway.finish(outcomes, patience)
            return self._finish_and_claim(outcomes, free)
        finally:
            self._claims.release()

    def _finish_and_claim(self, outcomes: Sequence[Outcome], free: int) -> dict[AttemptId, Receipt]:
        since = boottime()
        self._is_more = True
        try:
            finished = self._gateway.finish_and_claim(outcomes, free, self._configuration.lease)
            self._is_more = finished.is_more
            self._begin(finished.claims, since)
        except BaseException:
            self._is_steady = False  # it may have claimed attempts that nobody begins
            self._bell.ring()
            raise
        return finished.receipts

    def _begin(self, claims: Sequence[Claim], since: float) -> None:
        """Pass claimed attempts to workers. ``since``: the clock before the claim was sent."""
        if not claims:
            return
        attempts = [Attempt(claimed, self._logs.open(claimed.attempt)) for claimed in claims]
        self._hold(attempts, since)
        try:
            self._equip(attempts)
        except Exception as error:
            # Each attempt asks for itself, so that an error
            # becomes the outcome of that attempt alone.
            log.warning(
                "the definitions and inputs of %d attempts could not be read together: %s", len(attempts), error
            )
        for attempt in attempts:
            self._work.put(attempt)
        self._staff()

    def _claim_up_to(self, count: int, pools: Collection[Pool]) -> list[Claim]:
        return self._gateway.claim(count, self._configuration.lease, pools)

    def _take(self, attempt: Attempt, since: float) -> None:
        """Follow an adopted attempt. It takes a slot even if none is free; then no task is claimed
        until one is free.
        """
        self._hold([attempt], since)
        self._work.put(attempt)
        self._staff()

    def _hold(self, attempts: Sequence[Attempt], since: float) -> None:
        with self._idle:
            self._busy += len(attempts)
        self._leases.hold(attempts, since)

    def _equip(self, attempts: Sequence[Attempt]) -> None:
        """Ask once for the definitions and inputs of all claimed attempts. A report is long, so its
        attempt asks for it in its own thread.
        """
        self._sources.fetch_definitions([attempt.claim.definition for attempt in attempts])
        others = [attempt for attempt in attempts if attempt.claim.task_kind is not TaskKind.REPORT]
        inputs = self._sources.inputs([attempt.claim for attempt in others])
        for attempt in others:
            attempt.inputs = inputs.get(attempt.claim.task, {})

    def _staff(self) -> None:
        """Start workers until there is one for each taken slot. Workers stay."""
        with self._idle:
            while len(self._workers) < self._busy:
                worker = threading.Thread(target=self._working, name=f"worker-{len(self._workers) + 1}", daemon=True)
                worker.start()
                self._workers.append(worker)

    # Working

    def _working(self) -> None:
        while (attempt := self._work.get()) is not None:
            outcome = perform(attempt, self._means)
            attempt.has_ended = True
            if outcome is None:
                self._let_go(attempt)
            else:
                self._recorder.ended(attempt, outcome)
                self._clean_up(attempt)
                self._scratch.ended()
            with self._idle:
                self._busy -= 1
                self._idle.notify_all()
                is_wanted = self._is_more
            if self._fitness.over(attempt) or is_wanted:
                self._bell.ring()

    def _reserve(self, attempt: Attempt, image: str) -> bool:
        return self._gateway.reserve(attempt.id, image, self._configuration.adopt_within)

    def _started(self, attempt: Attempt) -> None:
        self._recorder.started(attempt)
        if doubt := attempt.running.doubt:
            self._fitness.faulted(attempt, doubt)
        elif self._fitness.started(attempt):
            self._bell.ring()

    def _doubted(self, attempt: Attempt) -> None:
        """Ask for a scan, so that the archive is stopped before more of its tasks end like this one.
        A lost request does no harm: the next periodic scan finds the same.
        """
        with suppress(DatabaseUnavailable):
            self._gateway.doubt(attempt.claim.archive.id)

    def _engine_answers(self) -> None:
        if self._fitness.engine_answers():
            self._bell.ring()

    def _let_go(self, attempt: Attempt) -> None:
        """Leave the container running. The next task manager reads the output that the log still
        lacks from the engine.
        """
        try:
            self._logs.flush([attempt.log])
        except DatabaseUnavailable as error:
            log.warning("the log of %s is not complete until it is adopted: %s", attempt, error)
        self._logs.forget(attempt.log)
        self._leases.let_go(attempt)
        self.left.append(attempt.id)

    def _clean_up(self, attempt: Attempt) -> None:
        """Remove the workspace of an attempt, however it ended. The next start of a task manager
        removes workspaces that cannot be removed now.
        """
        try:
            if note := self._workspaces.remove(attempt.id):
                log.warning(note)
        except Exception:
            log.exception("the workspace of %s could not be removed", attempt)
