"""A host that cannot start programs: when its task manager claims again, and how many tasks. The
tests set the clock.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest

from arkqueue.errors import HOST_FAULTS, ArchiveUnreachable, EngineFault, HostFault, WorkspaceError, host_fault
from arkqueue.executor.docker.engine import EngineUnavailable
from arkqueue.model import Pool
from arkqueue.task_manager.fitness import ENGINE_SILENCE, LONGEST, Fitness

FAULT = HostFault("work folder", "it is\nfull", "Make room")
ENGINE_FAULT = EngineFault("Docker engine", "it is\nfull", "Make room")


class Host:
    """A task manager with four free slots; attempts are numbered in the order of their claims."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.fitness = Fitness(lambda: self.now)
        self.last = 0
        self.ready = {True, False}
        """Of which kinds there are ready tasks: in containers, and not."""

    def claim(self, free: int = 4) -> list[Any]:
        """Attempts in containers and others in turns, where both are wanted; ``outlives`` says which."""
        claims, _ = self.fitness.claim(free, self._take)
        return [SimpleNamespace(id=claim.attempt, outlives=claim.in_container) for claim in claims]

    def _take(self, count: int, pools: Collection[Pool]) -> list[Any]:
        asked = [Pool.CONTAINER in pools] * count if len(pools) == 1 else [n % 2 == 0 for n in range(count)]
        ready = [kind for kind in asked if kind in self.ready]
        self.last += len(ready)
        return [
            SimpleNamespace(attempt=self.last - len(ready) + n + 1, in_container=kind) for n, kind in enumerate(ready)
        ]

    def fail(self, attempts: list[Any]) -> None:
        for attempt in attempts:
            self.fitness.faulted(attempt, FAULT)

    def fail_in_containers(self, attempts: list[Any]) -> None:
        for attempt in attempts:
            if attempt.outlives:
                self.fitness.faulted(attempt, ENGINE_FAULT)

    def pause(self) -> float:
        """Let the time pass until something is claimed; fails it."""
        since = self.now
        while not (claimed := self.claim()):
            self.now += 0.25
        assert len(claimed) == 1
        self.fail(claimed)
        return self.now - since


def test_pauses_double_up_to_the_longest() -> None:
    host = Host()
    host.fail(host.claim())
    assert [host.pause() for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]


def test_first_attempt_that_starts_ends_the_pause() -> None:
    host = Host()
    host.fail(host.claim())
    assert host.pause() == 1
    host.now += 2
    (trial,) = host.claim()
    assert host.claim() == []
    assert host.fitness.started(trial)
    assert not host.fitness.started(trial)
    (one, two, three, four) = host.claim()
    host.fail([one])
    assert host.pause() == 1
    host.fail([two, three, four])
    assert host.pause() == 2


def test_what_was_claimed_before_the_fault_says_nothing_of_it() -> None:
    host = Host()
    one, two, three, _ = host.claim()
    host.fail([one])
    assert not host.fitness.started(two)
    host.now += 1
    host.claim()
    assert not host.fitness.started(three)
    assert host.claim() == []


def test_a_trial_that_neither_starts_nor_fails_is_followed_by_another() -> None:
    host = Host()
    host.fail(host.claim())
    host.now += 1
    (slow,) = host.claim()
    assert host.claim() == []
    host.now += 1
    (_,) = host.claim()
    assert host.fitness.started(slow)


def test_a_trial_waits_for_no_pause_where_nothing_was_ready() -> None:
    host = Host()
    host.fail(host.claim())
    host.now += 1
    host.ready = set()
    assert host.claim() == []
    host.ready = {True, False}
    assert host.claim(0) == []
    assert len(host.claim()) == 1


def test_fault_of_the_engine_pauses_containers_alone() -> None:
    host = Host()
    first = host.claim()
    host.fail_in_containers(first)
    assert [attempt.outlives for attempt in host.claim()] == [False] * 4
    host.now += 1
    assert [attempt.outlives for attempt in host.claim()] == [True, False, False, False]
    assert [attempt.outlives for attempt in host.claim()] == [False] * 4
    assert host.fitness.faults == (None, "Docker engine: it is full. Make room")


def test_pauses_of_containers_double_too_whatever_else_begins() -> None:
    host = Host()
    host.fail_in_containers(host.claim())
    pauses, since = [], host.now
    while len(pauses) < 8:
        attempts = host.claim()
        for attempt in attempts:
            if not attempt.outlives:
                assert not host.fitness.started(attempt)
        if attempts[0].outlives:
            pauses.append(host.now - since)
            since = host.now
            host.fail_in_containers(attempts)
        host.now += 0.25
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


def test_container_that_starts_ends_the_pause_of_containers() -> None:
    host = Host()
    host.fail_in_containers(host.claim())
    host.now += 1
    assert host.fitness.started(host.claim()[0])
    assert [attempt.outlives for attempt in host.claim()] == [True, False, True, False]
    assert host.fitness.faults == (None, None)


def test_host_that_is_mended_is_found_so_while_its_engine_is_ill() -> None:
    host = Host()
    first = host.claim()
    host.fail(first[1:2])
    host.fail_in_containers(first[:1])
    host.now += 1
    (trial,) = host.claim()
    assert not trial.outlives
    assert host.fitness.started(trial)
    assert host.fitness.faults[0] is None


def test_trial_that_tells_nothing_is_followed_by_another_at_once() -> None:
    """It was refused for what it asks for, or canceled."""
    host = Host()
    host.fail_in_containers(host.claim())
    host.now += 1
    trial = host.claim()[0]
    assert host.fitness.over(trial)
    assert not host.fitness.over(trial)
    after = host.claim()
    assert after[0].outlives
    assert not host.fitness.over(after[1])
    assert host.fitness.started(after[0])
    assert not host.fitness.over(after[0])


def test_engine_that_hangs_holds_one_slot() -> None:
    host = Host()
    host.fail_in_containers(host.claim())
    host.now += 1
    assert host.claim()[0].outlives
    for _ in range(int(ENGINE_SILENCE) - 1):
        host.now += 1
        assert not any(attempt.outlives for attempt in host.claim())
    host.now += 1
    assert host.claim()[0].outlives


def test_engine_that_was_away_needs_no_trial_when_it_answers() -> None:
    host = Host()
    (attempt, *_) = host.claim()
    host.fitness.faulted(attempt, EngineUnavailable("unix:///run/engine.sock", "Connection refused"))
    assert host.fitness.engine_answers()
    assert not host.fitness.engine_answers()
    assert host.fitness.faults == (None, None)
    for fault in (ENGINE_FAULT, EngineUnavailable("unix:///run/engine.sock", "Read timed out.")):
        host.fitness.faulted(host.claim()[0], fault)
        assert not host.fitness.engine_answers()


def test_one_slot_does_not_wait_for_a_container_to_try() -> None:
    host = Host()
    host.fail_in_containers(host.claim())
    host.now += 1
    host.ready = {False}
    assert [attempt.outlives for attempt in host.claim(1)] == [False]


def test_faults_that_come_and_go_are_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    host = Host()
    for _ in range(round(LONGEST) + 1):
        host.fail(host.claim())
        host.now += 1
        assert host.fitness.started(host.claim()[0])
    said = [record.getMessage() for record in caplog.records]
    assert said[0].endswith("until one starts: work folder: it is full. Make room")
    assert said[1::2] == ["tasks start on this host again"] * 2
    assert len(said) == 4


@pytest.mark.parametrize("number", sorted(HOST_FAULTS))
def test_fault_of_the_host_is_found_below_what_it_caused(number: int) -> None:
    error = OSError(number, os.strerror(number))
    assert host_fault(error) is error
    assert host_fault(_caused(WorkspaceError("a.txt", "cannot be written"), error)) is error
    assert host_fault(_caused(WorkspaceError("w", "x"), _caused(ArchiveUnreachable("r", "x"), error))) is error


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOENT, errno.ENAMETOOLONG, errno.EEXIST, errno.ENOTDIR])
def test_other_faults_are_the_tasks_own(number: int) -> None:
    assert host_fault(OSError(number, os.strerror(number))) is None
    assert host_fault(_caused(WorkspaceError("a.txt", "x"), OSError(number, "x"))) is None


def _caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error
