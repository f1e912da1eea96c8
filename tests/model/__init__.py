"""A second, simple implementation of the rules of order: one archive in memory (design 5, decision
0001).

``tests/db/test_model_and_queue.py`` runs the model beside the real queue and compares every task after every
step. The model therefore shares only the words (``arkqueue.model``) and the table of states with
the queue. It has no SQL, counters or indices, and answers every question by a full scan: slow, but
simple. It has no clock. A test tells it that a delay is over or that a lease has lapsed.

    words          names, revisions, runs, tasks and edges
    edges          the meaning of one edge
    looking        the state of one archive, and what users see of it
    planning       revisions, manual runs, submissions and backfills become tasks and edges
    following      the consequences of a step
    locks          which tasks are granted which locks
    attempts       a task is claimed, runs, and ends
    verbs          a person cancels, retries and skips
    reopening      which tasks come back with a task that runs again
    deletion       runs and items are deleted, undeleted, and purged
    control        priorities, limits, pauses, holds, guards, and lost branches
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
    """One archive. Every verb returns the tasks whose state it changed, with the states before and
    after. A verb that is not possible raises ``Refused`` and changes nothing.

    Each base class may call all others.
    """
