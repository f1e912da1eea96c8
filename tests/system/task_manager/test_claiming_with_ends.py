"""A task that waits only for one other task starts as soon as the other's end is recorded, because
the call that records the end also claims.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from arkqueue.errors import DatabaseUnavailable
from arkqueue.gateway.sql import SqlGateway
from arkqueue.model import Finished
from arkqueue.task_manager import TaskManager, recorder
from tests.builders import AnArchive
from tests.system.task_manager.conftest import Bells, Managers, attempts, settled
from tests.system.task_manager.test_running import NONE, command
from tests.waiting import PATIENCE, eventually

MakeBells = Callable[[str], Bells]


class Chain:
    """Two tasks, of which the first ends when it is told to. Meanwhile the claiming thread rests, so that what it does decides nothing."""

    def __init__(self, archive: AnArchive, managers: Managers, bells: MakeBells) -> None:
        begun, go = bells("begun"), bells("go")
        self.manager: TaskManager = managers()
        # Private, as nobody else can say when that thread rests.
        self._bell, self._may_claim = self.manager._bell, threading.Event()
        archive.commit(
            {"first": command(f"echo > {begun.path}; read line < {go.path}"), "next": NONE + "depends: [first]"}
        )
        begun.hear()
        rests = threading.Event()

        def rest(_: float) -> None:
            rests.set()
            assert self._may_claim.wait(PATIENCE)

        self._bell.wait = rest  # type: ignore[assignment, method-assign]
        assert rests.wait(PATIENCE)
        go.ring()

    def claim(self) -> None:
        """Let the claiming thread go on."""
        del self._bell.wait
        self._may_claim.set()


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> list[Finished]:
    """What was recorded and claimed at once."""
    told: list[Finished] = []
    real = SqlGateway.finish_and_claim

    def note(*arguments: Any) -> Finished:
        told.append(real(*arguments))
        return told[-1]

    monkeypatch.setattr(SqlGateway, "finish_and_claim", note)
    return told


def names(claims: list[Finished]) -> list[str]:
    return [claim.name for finished in claims for claim in finished.claims]


def test_the_next_task_is_claimed_with_the_end_of_the_one_before(
    archive: AnArchive, managers: Managers, bells: MakeBells, claims: list[Finished]
) -> None:
    chain = Chain(archive, managers, bells)
    settled(archive, "next@2", "completed")
    assert names(claims) == ["next"]
    chain.claim()


def test_many_ends_are_recorded_without_a_claim(
    archive: AnArchive,
    managers: Managers,
    bells: MakeBells,
    claims: list[Finished],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recorder, "FEW_ENDS", 0)
    chain = Chain(archive, managers, bells)
    settled(archive, "first@2", "completed")
    chain.claim()
    settled(archive, "next@2", "completed")
    assert claims == []


def test_what_was_claimed_with_an_end_whose_answer_was_lost_is_handed_back(
    archive: AnArchive, managers: Managers, bells: MakeBells, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, lost = SqlGateway.finish_and_claim, []

    def lose(*arguments: Any) -> Finished:
        finished = real(*arguments)
        if finished.claims and not lost:
            lost.append(finished)
            raise DatabaseUnavailable("the database", "the answer was lost")
        return finished

    monkeypatch.setattr(SqlGateway, "finish_and_claim", lose)
    chain = Chain(archive, managers, bells)
    eventually(lambda: lost)
    chain.claim()
    settled(archive, "next@2", "completed")
    assert [a["end"] for a in attempts(archive, "first@2")] == ["exited"]
    assert [a["end"] for a in attempts(archive, "next@2")] == ["stopped", "exited"]


def test_whoever_stops_claiming_waits_for_a_claim_with_an_end(
    archive: AnArchive, managers: Managers, bells: MakeBells, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, is_under_way, may_go_on = SqlGateway.finish_and_claim, threading.Event(), threading.Event()

    def wait(*arguments: Any) -> Finished:
        finished = real(*arguments)
        is_under_way.set()
        assert may_go_on.wait(PATIENCE)
        return finished

    monkeypatch.setattr(SqlGateway, "finish_and_claim", wait)
    chain = Chain(archive, managers, bells)
    assert is_under_way.wait(PATIENCE)
    stopping = threading.Thread(target=chain.manager.claim_no_more)
    stopping.start()
    # Draining can be seen nowhere else before a task has ended.
    eventually(lambda: chain.manager._closing.is_set())
    chain.claim()
    stopping.join(0.1)
    assert attempts(archive, "next@2"), "it is claimed, and has not begun"
    assert stopping.is_alive()
    may_go_on.set()
    stopping.join(PATIENCE)
    assert not stopping.is_alive()
    settled(archive, "next@2", "completed")
