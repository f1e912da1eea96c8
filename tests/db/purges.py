"""Purges small runs in steps, as the queue does with large runs, and can end such a purge before
its last step, like a process that is killed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from arkqueue.db.session import Session
from arkqueue.queue import graph, purge_batch


@contextmanager
def purged_in_steps(
    most: int = 2, *, steps: int | None = None, saw: Callable[[str], None] = lambda _: None
) -> Iterator[None]:
    """Purges runs of more than ``most`` tasks in steps of ``most`` tasks. ``steps``: the number of
    steps after the run was marked; None: all.
    """
    change, change_in_turn = purge_batch.change, purge_batch.change_in_turn
    left: list[int] = []

    def judged(work: Callable[[graph.Graph], Any]) -> None:
        done = work.func if isinstance(work, partial) else work
        if _is_step(done):
            if left and not left[0]:
                # A step ends so if it leaves the rest to the next purge.
                raise purge_batch.BusyArchive
            if left:
                left[0] -= 1
                saw("a purge goes on in steps")
        elif "purge_in_steps" in done.__qualname__:
            left[:] = [] if steps is None else [steps]
            saw("a purge begins in steps")

    def changed(session: Session, archives: list[int], work: Callable[[graph.Graph], Any]) -> Any:
        judged(work)
        return change(session, archives, work)

    def changed_in_turn(session: Session, work: Callable[[graph.Graph], Any], **options: Any) -> Any:
        judged(work)
        return change_in_turn(session, work, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(purge_batch, "MOST_TASKS", most)
        patch.setattr("arkqueue.queue.done.MOST_TASKS", most)
        patch.setattr(purge_batch, "change", changed)
        patch.setattr(purge_batch, "change_in_turn", changed_in_turn)
        yield


def _is_step(work: Callable[..., Any]) -> bool:
    # private: the steps after the first one
    return "continue_in_steps" in work.__qualname__ or work is purge_batch._remember_starts
