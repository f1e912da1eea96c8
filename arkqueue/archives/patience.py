"""Answers of a repository within the time that a person waits. Registration and the API ask through
this module.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from arkqueue.repository.reader.client import processes

T = TypeVar("T")


def answer_within(seconds: float, read: Callable[[], T], name: str, *, is_ended: bool) -> T:
    """The answer or the error of ``read``. Raises TimeoutError if it takes longer.

    ``read`` runs in a thread of its own, called ``name``. ``is_ended``: its reader process is ended
    when the time is up. Otherwise the work continues, for example the making of a mirror, which the
    next scan can use.
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
