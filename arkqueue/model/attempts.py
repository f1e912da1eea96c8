"""Attempts: the claims that begin them, the leases that they need, their ends, and the scratch folders
that they leave.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

from arkqueue.archive_settings import ArchiveSettings, read_settings
from arkqueue.model.revisions import Revision
from arkqueue.model.words import (
    LONGEST_DURATION,
    ArchiveId,
    ArchiveKind,
    AttemptId,
    AttemptKind,
    Stream,
    TaskId,
    TaskKind,
)

RETRY_AFTER = "arkqueue.retry_after"
"""The output by which a task that ends with exit code 75 sets the seconds until its next attempt."""


def as_retry_after(value: object) -> float | None:
    """The seconds in the value of an output, at least one and at most a year; None: it is not a
    valid number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    text = str(value)
    if not re.fullmatch(r"[0-9]{1,18}(\.[0-9]{1,18})?", text, re.ASCII):
        return None
    return min(max(float(text), SHORTEST_DEFERRAL), LONGEST_DURATION)


LONGEST_RENEWAL = 10.0
"""The most seconds between two renewals of a task manager's leases."""
SILENCE = 3 * LONGEST_RENEWAL
"""Seconds after its last report from which on a task manager counts as gone."""
SHORTEST_DEFERRAL = 1.0
"""The fewest seconds that a deferred task waits, also if its output asks for fewer."""
ASSUMED_GONE: Final = "assumed to be gone"
"""The message of a lost attempt whose process a person has confirmed to be gone. `` by `` and the
person follow.
"""


class End(StrEnum):
    """How an attempt ended, as the task manager saw it."""

    EXITED = "exited"
    TIMED_OUT = "timed-out"
    STOPPED = "stopped"
    """It was asked to end (a cancellation, a restart, a shutdown) and is proved gone; or its host
    could not start it.
    """
    NOT_STARTED = "not-started"
    """The workspace could not be made, or the program could not be started; ``message`` says why."""
    NOT_PERMITTED = "not-permitted"
    """The settings of its archive do not permit what it asks for: it cannot start until a person has
    changed them. ``message`` says which.
    """
    UNREACHABLE = "unreachable"
    """Its repository could not be read. That is not the task's fault: it is tried again later (design
    2).
    """
    WITHHELD = "withheld"
    """Its host does not start it until an administrator has solved a problem: it is tried again
    later.
    """
    LOST = "lost"
    """Its task manager is gone, as queue managers or the next task manager of the host report; or
    the engine ended its container.
    """


@dataclass(frozen=True, slots=True)
class Usage:
    """The resources that an attempt used. ``processor_seconds``: user and system time together.

    ``peak_memory_bytes``: that of the largest process of a tree of processes, or of a whole
    container; None: it is not known. ``sampled``: the figures were read while the attempt ran, as
    with containers, so the attempt used at least as much.
    """

    processor_seconds: float
    peak_memory_bytes: int | None
    sampled: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one attempt. ``exit_code``: 128 + n for a signal n; None: no program ran.

    ``ran``: seconds since the program began, in case its beginning was not recorded; None: that is
    not known. ``usage``: None if it is not known. ``archive``: the archive of its task, which whoever
    claimed the task knows; None: it is looked up.
    """

    attempt: AttemptId
    end: End
    exit_code: int | None = None
    message: str = ""
    outputs: dict[str, Any] | None = None
    ran: float | None = None
    usage: Usage | None = None
    archive: ArchiveId | None = None


class Receipt(StrEnum):
    """The result of the report of an outcome."""

    RECORDED = "recorded"
    ALREADY_RECORDED = "already recorded"
    NOT_YOURS = "not yours"
    """The attempt has another end, or belongs to another process: the report changed nothing."""
    BUSY = "busy"
    """Another transaction has locked the archive: the report changed nothing, and has to be repeated."""


class Registration(NamedTuple):
    """A registered archive, as far as its tasks need it. ``stored``: its settings as JSON.
    ``corrections``: the number of corrections of its revisions.
    """

    id: int
    name: str
    kind: ArchiveKind
    url: str
    uuid: str
    stored: str
    corrections: int = 0

    @property
    def settings(self) -> ArchiveSettings:
        """The settings. Each attempt reads its own, so that settings that cannot be read, for
        example of a newer version, affect no other task of the same claim. Raises ``Conflict``.
        """
        return read_settings(self.stored, self.name)


class Claim(NamedTuple):
    """One claimed task, with the data that its attempt needs, as they were at the claim. A tuple,
    because a frozen dataclass of so many fields takes three times as long to make.
    """

    task: TaskId
    attempt: AttemptId
    attempt_number: int
    name: str
    item: str
    definition: int
    archive: Registration
    branch: str
    main: bool
    number: int
    run: int
    trigger: str
    revision: str
    author: str
    date: str
    """The revision's date in ISO 8601."""
    message: str
    previous: str | None
    generation: int
    base: str | None
    kind: AttemptKind = AttemptKind.RUN
    task_kind: TaskKind = TaskKind.ORDINARY
    item_body: str = ""
    """The item as JSON; empty: the task has none."""
    early: int | None = None
    """The number of the last revision of the branch whose date was in the future when it was read;
    None: there is none.
    """

    @property
    def recorded(self) -> Revision:
        """The revision as the ledger has it, with the fields that identify it."""
        return Revision(self.revision, self.number, self.author, datetime.fromisoformat(self.date), "")


@dataclass(frozen=True, slots=True)
class Finished:
    """The results of reported ends. ``claims``: the tasks that were claimed with them. ``is_more``:
    True if more tasks may be ready.
    """

    receipts: dict[AttemptId, Receipt]
    claims: list[Claim] = field(default_factory=list)
    is_more: bool = True


@dataclass(frozen=True, slots=True)
class Renewed:
    """The attempts that still belong to this process. ``asked``: each with its request to stop
    (None, ``cancel``, ``restart``). ``kept``: those whose leases were not renewed, because their
    ends are being recorded.
    """

    asked: dict[AttemptId, str | None]
    kept: frozenset[AttemptId] = frozenset()


@dataclass(frozen=True, slots=True)
class Scratch:
    """The scratch folder of a run or of an item. ``id``: its name. ``store``: the id of its host, or
    of the shared folder that has it. ``is_made``: True if it was made. ``is_removed``: True if it
    was removed for good.
    """

    id: int
    store: str
    is_made: bool = False
    is_removed: bool = False


class Unneeded(NamedTuple):
    """The folders that a store has to remove, by id. ``is_partial``: True if folders of busy archives
    were left to another call.
    """

    folders: set[int]
    is_partial: bool


@dataclass(frozen=True, slots=True)
class Live:
    """An attempt that has no end yet. ``outlives``: it may go on without its task manager."""

    attempt: AttemptId
    process: str
    outlives: bool


@dataclass(frozen=True, slots=True)
class Adopted:
    """An attempt that its host's next task manager has taken over.

    ``age``: seconds since its program began. ``stop``: the request to stop that came meanwhile
    (``cancel``, ``restart``). ``log_bytes``: the position at which its log continues. ``stored``:
    the bytes of each stream of its program that are part of that log. ``log_lines``: the line ends
    among them.
    """

    claim: Claim
    stop: str | None
    age: float
    log_bytes: int
    stored: Mapping[Stream, int]
    log_lines: int = 0
