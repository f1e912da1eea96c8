"""Words: ids and keys, the kinds of things, the names of variables, receivers and locks, and the limits
of such names.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple, NewType

ArchiveId = NewType("ArchiveId", int)
BranchId = NewType("BranchId", int)
RunId = NewType("RunId", int)
TaskId = NewType("TaskId", int)
AttemptId = NewType("AttemptId", int)

COMMIT = "COMMIT"
REPORT = "REPORT"
PREV = "PREV"
OWN = "self"
"""The name under which a poll finds the outputs of its own task among its INPUTS."""

CHANGES = "ARKQUEUE_CHANGES"
"""The variable with the path of the list of files that differ from BASE."""
SUBMISSION = "ARKQUEUE_SUBMISSION"
"""The variable with the path of the payload of a run's submission."""


class Key(NamedTuple):
    """The name of a task inside its run and, if its list has a task for each item, the item's key."""

    name: str
    item: str = ""


class Item(NamedTuple):
    """One entry of a list. ``key``: its name, unique in the list. ``body``: the item as JSON."""

    key: str
    body: str


LONGEST_KEY = 200
"""The most characters of an item's key."""
LONGEST_ITEM = 64 * 2**10
"""The most bytes of an item as JSON, which a task gets in a variable."""
MOST_ITEMS = 10_000
"""The most items of a list, unless the configuration sets another ``items_limit``."""
LONGEST_LIST = 64 * 2**20
"""The most bytes of a file with a list, and of all items of a revision as JSON."""
LONGEST_TASK_NAME = 100
"""The most characters of a task's name."""
LONGEST_DURATION = 366 * 86400.0
"""The most seconds that a workflow or the configuration may name."""


class ArchiveKind(StrEnum):
    SUBVERSION = "subversion"
    GIT = "git"


class Trigger(StrEnum):
    """The cause of a run."""

    COMMIT = "commit"
    MANUAL = "manual"
    SCHEDULE = "schedule"
    SUBMISSION = "submission"


class TaskKind(StrEnum):
    """The origin of a task of a run."""

    COMMIT = "commit"
    REPORT = "report"
    GATE = "gate"
    """Made by arkqueue. It stands for many tasks, so that fewer edges are needed. Its name says for
    which: `PREV:*`, or the name of a list with its condition.
    """
    ORDINARY = "ordinary"
    """From a workflow file; it may have no program."""


class AttemptKind(StrEnum):
    """The program that an attempt runs."""

    RUN = "run"
    """The task's command."""
    POLL = "poll"
    """The poll of a deferred task, which asks for its outcome, in place of its command (design
    5.29).
    """


class EdgeKind(StrEnum):
    DEPENDS = "depends"
    CANCELS = "cancels"


class When(StrEnum):
    """The ends of the source that meet a ``depends`` edge (design 5.6, 5.8, 5.9)."""

    COMPLETED = "completed"
    SETTLED = "settled"
    FAILED = "failed"
    """Failed or rejected; a source that ends otherwise skips the dependent."""


class Pool(StrEnum):
    """The kind of executor that a task needs."""

    PROCESS = "process"
    CONTAINER = "container"


class Stream(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"
    NOTE = "note"
    """Arkqueue's own lines in a task's log."""


class Occasion(StrEnum):
    """The events of a run or an archive of which a receiver can be notified (design 15)."""

    FAILED = "failed"
    FIXED = "fixed"
    HELD = "held"
    COMPLETED = "completed"
    STOPPED = "stopped"


AUTHOR = "author"
"""The receiver that stands for the author of a run's commit."""
OF_BRANCH = "branch="
"""The beginning of a glob of branches among the occasions of a receiver."""
USUAL_OCCASIONS = (Occasion.FAILED, Occasion.FIXED, Occasion.HELD, Occasion.STOPPED)
"""The occasions of a receiver for which none are set."""
MOST_MAILS, MAIL_WINDOW = 10, 600.0
"""The most mails of an archive that one receiver gets within ``MAIL_WINDOW`` seconds. Later
notifications wait for the next mail, which lists all of them.
"""

INSTALLATION = ArchiveId(0)
"""Stands for an archive in the locks of the whole installation."""
GLOBAL = "global"
"""The beginning of the names of locks of the whole installation: ``global/NAME``."""
LONGEST_LOCK = 200
"""The most characters of the name of a lock."""
MOST_LOCKS = 16
"""The most locks that one task may name."""
MOST_CAPACITY = 1_000_000
"""The greatest capacity that a person can set for a lock, other than unlimited."""
MOST_COUNTED = 10_000
"""The most tasks of one lock that are counted for a person."""

CANCELED_BY: Final = "canceled by "
"""The fault of a backfill that a person has canceled. The person follows."""
