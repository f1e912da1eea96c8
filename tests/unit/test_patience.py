"""A person does not wait for a repository forever, and a reader process without waiting callers
ends.
"""

from __future__ import annotations

import threading

import pytest

from arkqueue.archives.patience import answer_within
from arkqueue.repository.reader.client import processes


def test_what_is_said_in_time_is_the_answer() -> None:
    assert answer_within(60.0, lambda: 12, "read", is_ended=True) == 12
    with pytest.raises(KeyError):
        answer_within(60.0, lambda: {}[""], "read", is_ended=True)


@pytest.mark.parametrize("is_ended", [True, False])
def test_when_the_time_is_up_the_reader_is_given_up_or_goes_on(
    monkeypatch: pytest.MonkeyPatch, *, is_ended: bool
) -> None:
    given_up: list[int] = []
    monkeypatch.setattr(processes, "give_up", given_up.append)
    go, read_by = threading.Event(), []

    def read() -> None:
        read_by.append(threading.current_thread())
        go.wait()

    with pytest.raises(TimeoutError):
        answer_within(0.0, read, "read", is_ended=is_ended)
    go.set()
    (thread,) = [each for each in threading.enumerate() if each.name == "read"] or read_by
    thread.join()
    assert given_up == ([read_by[0].ident] if is_ended else [])
