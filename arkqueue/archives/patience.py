"""What a repository says within the time that a person waits for it. Registration and the API ask through here."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from arkqueue.repository.reader.client import processes

T = TypeVar("T")


def answer_within(seconds: float, read: Callable[[], T], name: str, *, is_ended: bool) -> T:
    """What ``read`` answers or raises; TimeoutError where that takes longer.

    It runs in a thread of its own, called ``name``. ``is_ended``: its reader process is ended when the time is up; else it goes on, as
    the making of a mirror does, which the next look can use.
    """
    said: Future[T] = Future()

    def ask() -> None:
        try:
            said.set_result(read())
        except BaseException as error:
            said.set_exception(error)

    thread = threading.Thread(target=ask, name=name, daemon=True)
    thread.start()
    try:
        return said.result(seconds)
    except TimeoutError:
        if is_ended and not said.done():
            assert thread.ident is not None
            processes.give_up(thread.ident)
        raise
