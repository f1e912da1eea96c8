"""Admission: one acts on each thing, few wait, and whoever comes after them is told so at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from arkqueue.errors import Busy
from arkqueue.runtime import admission as module
from arkqueue.runtime.admission import Admission
from tests.waiting import eventually


class Callers:
    """Threads that are admitted one after the other, each of which acts until it is let go."""

    def __init__(self, admission: Admission) -> None:
        self._admission, self._threads = admission, list[threading.Thread]()
        self.admitted: list[int] = []
        self.go_on = threading.Event()

    def call(self, key: int) -> None:
        thread = threading.Thread(target=self._act, args=(key,))
        thread.start()
        self._threads.append(thread)

    def _act(self, key: int) -> None:
        with self._admission.admit(key, "it"):
            self.admitted.append(key)
            self.go_on.wait()

    def join(self) -> None:
        self.go_on.set()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def admission() -> Admission:
    return Admission(acting=2, waiting=2, most_waiting=3)


@pytest.fixture
def callers(admission: Admission) -> Iterator[Callers]:
    callers = Callers(admission)
    yield callers
    callers.join()


def test_one_acts_and_the_others_follow(admission: Admission, callers: Callers) -> None:
    with admission.admit(1, "it"):
        callers.call(1)
        callers.call(1)
        eventually(lambda: admission._waiting[1] == 2)  # nobody else can tell who waits
        assert callers.admitted == []
    callers.join()
    assert callers.admitted == [1, 1]
    with admission.admit(1, "it"):
        pass


def test_whoever_finds_too_many_waiting_is_told_at_once_and_only_for_that_thing(
    admission: Admission, callers: Callers
) -> None:
    with admission.admit(1, "the archive"):
        callers.call(1)
        callers.call(1)
        eventually(lambda: admission._waiting[1] == 2)
        told = "the archive: is being changed, and 2 others wait for that already"
        with pytest.raises(Busy, match=told), admission.admit(1, "the archive"):
            pass
        with admission.admit(2, "another"):
            pass


def test_all_things_together_have_a_limit_too(admission: Admission, callers: Callers) -> None:
    with ExitStack() as acting:
        for key in (1, 2):
            acting.enter_context(admission.admit(key, "it"))
        for key in (3, 3, 4):
            callers.call(key)
        eventually(lambda: admission._waiting.total() == 3)
        with pytest.raises(Busy, match="too many others wait"), admission.admit(5, "it"):
            pass
        assert callers.admitted == []
    callers.join()
    assert sorted(callers.admitted) == [3, 3, 4]


def test_whoever_waited_too_long_is_told_and_waits_no_more(
    admission: Admission, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.01)
    with admission.admit(1, "it"):
        with pytest.raises(Busy, match=r"not ended within 0\.01 s"), admission.admit(1, "it"):
            pass
        assert admission._waiting.total() == 0
    with admission.admit(1, "it"):
        pass
