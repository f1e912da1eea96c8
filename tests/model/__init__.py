"""The rules of order, a second time: a plain model of one archive in memory (design 5, decision 0001).

It is beside the real queue in ``tests/db/test_model.py``, where both must agree on every task after every step. So it shares nothing with the queue but the
words (``arkqueue.model``) and the table of states; it has no SQL, no counters and no indices: every question is answered by looking at everything. Slow and
plain is the point. It knows no time: that a delay is over or a lease has lapsed is told to it.

    words          names, revisions, runs, tasks and edges
    edges          what one edge means
    looking        the state of one archive, and what everybody sees of it
    planning       revisions, runs by hand, submissions and backfills become tasks and edges
    following      what a step sets off
    locks          who is granted which locks
    attempts       a task is claimed, runs, and ends
    verbs          a person cancels, retries and skips
    reopening      what comes back with a task that runs again
    deletion       runs and items are deleted, brought back, and purged
    control        priorities, limits, pauses, holds, guards, and what is gone
    invariants     what holds after every step
    installation   several archives, and the locks that they share
"""

from __future__ import annotations

from tests.model.attempts import Attempts
from tests.model.control import Control
from tests.model.deletion import Deletion
from tests.model.edges import skips
from tests.model.following import Following
from tests.model.installation import Installation, is_global
from tests.model.invariants import Invariants
from tests.model.locks import Locks
from tests.model.planning import Planning
from tests.model.reopening import Reopening
from tests.model.verbs import Verbs, concerns
from tests.model.words import (
    Appended,
    Blocks,
    Entry,
    Key,
    Kind,
    Ledger,
    Name,
    Reason,
    Refused,
    Run,
    RunKey,
    RunSeen,
    Seen,
    Task,
)

__all__ = [
    "Appended",
    "Blocks",
    "Entry",
    "Installation",
    "Key",
    "Kind",
    "Ledger",
    "Model",
    "Name",
    "Reason",
    "Refused",
    "Run",
    "RunKey",
    "RunSeen",
    "Seen",
    "Task",
    "concerns",
    "is_global",
    "skips",
]


class Model(Planning, Following, Locks, Attempts, Verbs, Reopening, Deletion, Control, Invariants):
    """One archive. Every verb returns the tasks whose state it changed, with the state before and after, or raises ``Refused`` and changes nothing.

    Each part may call all others.
    """
