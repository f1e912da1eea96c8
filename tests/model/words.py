"""What the model knows: names, revisions, runs, tasks, edges and attempts, and why a verb is refused."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import NamedTuple

from arkqueue.model import (
    COMMIT,
    REPORT,
    Foreach,
    Item,
    TaskDefinition,
    Trigger,
    When,
    Workflow,
)
from arkqueue.states import SETTLED, State


class Place(NamedTuple):
    """Where a run stands in its branch (design 5.11)."""

    number: int
    run: int


class RunKey(NamedTuple):
    branch: str
    number: int
    run: int


class Name(NamedTuple):
    """What a task is called inside its run."""

    name: str
    item: str = ""


class Key(NamedTuple):
    """A task's name in full."""

    branch: str
    number: int
    run: int
    name: str
    item: str = ""

    @property
    def run_key(self) -> RunKey:
        return RunKey(self.branch, self.number, self.run)

    @property
    def inside(self) -> Name:
        return Name(self.name, self.item)


def gate_of(name: str, when: When) -> Name:
    """The gate of a list for one kind of end (design 5.30); no task of a file can have its name."""
    return Name(f"{name}:{When.SETTLED if when is When.SETTLED else When.COMPLETED}")


class Reason(StrEnum):
    """Why a verb is refused."""

    STATE = "the task's state forbids it"
    IMPLICIT = "COMMIT, REPORT and the gates of PREV:* are nobody's to stop"
    STARTED = "later tasks have started on the strength of it"
    SUPERSEDED = "a later task has superseded it"
    OVERWRITES = "it has completed at a later place"
    BLOCKED = "what it needs inside its run is bad; that one is to be retried"
    CANCELING = "it is being canceled"
    MISSING = "what it depends on never ran, or its product will not come"
    UNNEEDED = "it runs only where something failed that has not"
    NOTHING = "there is nothing to do"
    FAULTY = "the definition has faults"
    GONE = "the run is deleted, the commit dropped, or the branch deleted"
    UNKNOWN = "no such revision, run or task"
    ON_HOLD = "the archive is on hold"
    WAITED_FOR = "other runs wait for a task of it, or name it as the reason of their state"
    SECOND = "a command would do a second time what it has done"
    SCRATCH = "what its scratch folder had is gone with its host"
    GUARDED = "it is guarded, and only an approver may act on it"


class Refused(Exception):
    def __init__(self, reason: Reason, *tasks: Key) -> None:
        self.reason, self.tasks = reason, tasks
        super().__init__(f"{reason}: {', '.join(map(str, tasks))}" if tasks else str(reason))


class Cause(StrEnum):
    """Who canceled a task."""

    PERSON = "person"
    SUPERSEDED = "superseded"
    DROPPED = "dropped"


class Kind(StrEnum):
    """What an edge is for; all wait alike."""

    DECLARED = "declared"
    IMPLICIT = "implicit"
    """From a run's COMMIT to its tasks, and from those to REPORT."""
    EXCLUSIVE = "exclusive"
    STOPPING = "stopping"
    """From a victim that was running to what cancels it."""


DEPENDS = (Kind.DECLARED, Kind.IMPLICIT)


class Blocks(IntEnum):
    """What a settled task blocks in later runs."""

    NOTHING = 0
    COMPLETION = 1
    """What needs its completion."""
    ALL = 2
    """Also what waits for any end of it: something that it waited for before it was canceled or skipped is not over."""


@dataclass(slots=True)
class Revision:
    """What stays of a revision when all of its runs are purged."""

    workflow: Workflow
    last_run: int = 1
    """The highest number that a run of it ever had."""
    dropped: bool = False
    files: Mapping[str, tuple[Item, ...]] = field(default_factory=dict)
    """The items of list files, by their paths."""


Outcome = tuple[int, bool, bool]
"""What a report tells of a settled task: how often it had settled, whether it was waived, and whether as completed."""


class Report(NamedTuple):
    """What a run had come to (design 5.32; decision 18); None of what had not settled."""

    by_itself: bool
    changes: int
    outcomes: dict[Name, Outcome | None]
    given: bool = False
    """To the command of REPORT."""


@dataclass(slots=True, eq=False)
class Backfill:
    """Runs of old revisions with the head's definitions: each task waits for the ``last`` one of its name."""

    last: dict[Name, Task] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Run:
    branch: str
    place: Place
    trigger: Trigger
    workflow: Workflow
    tasks: dict[Name, Task] = field(default_factory=dict)
    deleted: bool = False
    canceled_with_it: list[Task] = field(default_factory=list)
    """What its deletion canceled (design 5.27)."""
    dropped: bool = False
    reports: list[Report] = field(default_factory=list)
    fill: Backfill | None = None
    sent: set[int] = field(default_factory=set)
    """The reports that the command of REPORT has sent, by their places."""
    updating: int | None = None
    """For which of a person's reports the command runs."""
    behind: Task | None = None
    """Of a submission: the nearest earlier COMMIT. Later runs wait for it, and not for the COMMIT of the submission, which waits for nothing."""
    chosen: set[str] = field(default_factory=set)
    """The names of its tasks, also of those whose lists are empty."""
    made: int = 0
    """When it was planned, among all changes of the installation."""
    stores: dict[str, str] = field(default_factory=dict)
    """The label of the host where each of its scratch folders is (design 5.37), by the key of the item whose folder it is; an empty one: of the run."""
    deleted_items: dict[str, list[Task]] = field(default_factory=dict)
    """What the deletion of an item canceled (design 5.27), by its key."""

    @property
    def key(self) -> RunKey:
        return RunKey(self.branch, *self.place)

    @property
    def outcomes(self) -> dict[Name, Outcome | None]:
        """What a report says now, as far as a change is told by it. A failure of a deleted run counts as waived; deleted items count nowhere."""
        return {
            task.key.inside: (
                task.settlings,
                task.waived or (self.deleted and task.state in (State.FAILED, State.REJECTED)),
                task.as_completed,
            )
            if task.settled
            else None
            for task in self.shown
        }

    @property
    def changed_since_report(self) -> bool:
        return bool(self.reports) and _told(self.reports[-1].outcomes) != _told(self.outcomes)

    @property
    def has_reported(self) -> bool:
        """Whether it has made its report by itself."""
        return any(report.by_itself for report in self.reports)

    def report(self, *, by_itself: bool) -> None:
        """Make a report. With a command, what has changed is told against the last one that was sent."""
        has_command = not self.tasks[Name(REPORT)].is_gate
        told = [report for n, report in enumerate(self.reports) if n in self.sent or not has_command]
        now, before = self.outcomes, told[-1].outcomes if told else {}
        changes = sum(now[name] != before.get(name) for name in now) + len(before.keys() - now.keys())
        self.reports.append(Report(by_itself, changes, now, has_command and (by_itself or changes > 0)))

    @property
    def own(self) -> list[Task]:
        """The tasks that the workflow names, in the order of the file: what verbs on a run act on."""
        return [task for task in self.tasks.values() if not task.implicit]

    @property
    def shown(self) -> list[Task]:
        """Those of them that count: not of deleted items."""
        return [task for task in self.own if not task.deleted]

    def list_of(self, name: str) -> Foreach | None:
        return next((task.foreach for task in self.workflow.tasks if task.name == name), None)

    def named(self, name: str) -> list[Task]:
        """The task of a name, or those of the items of its list."""
        return [task for task in self.tasks.values() if task.name == name]


@dataclass(slots=True, eq=False)
class Attempt:
    live: bool = True
    poll: bool = False


@dataclass(slots=True, eq=False)
class Task:
    run: Run
    definition: TaskDefinition
    order: int
    """The place in the run's file order."""
    state: State = State.WAITING
    root: Task | None = None
    cause: Cause | None = None
    superseded_by: Task | None = None
    waived: bool = False
    as_completed: bool = False
    fired: bool = False
    attempts: list[Attempt] = field(default_factory=list)
    failures: int = 0
    deferrals: int = 0
    losses: int = 0
    deferred: bool = False
    """An attempt ended with 75 since a person last retried it: its deadline has begun (design 5.28)."""
    late: bool = False
    """Its deadline is over."""
    polls: bool = False
    """Its command ended with 75, and its poll is what runs (design 5.29)."""
    stop: str | None = None
    stop_by: Task | None = None
    to_release: bool = False
    """It is held, or was canceled or skipped while it was: it does not start before a person releases it (design 5.21)."""
    released: bool = False
    by_a_guard: bool = False
    """What is to be released was held by a guard of the archive (design 5.22)."""
    priority: int = field(init=False)
    prioritized: bool = False
    """A person set the priority."""
    output: int | None = None
    """What the newest attempt said."""
    locks: set[str] = field(default_factory=set)
    """What the names of its locks came to when it asked for them the last time (design 5.25)."""
    asks: bool = False
    """It waits for nothing but its locks (design 5.25)."""
    granted: int = 0
    """When it was granted its locks, among all changes of the installation."""
    item: str = ""
    deleted: bool = False
    """Its item is deleted (design 5.27)."""
    purged_starts: set[Key] = field(default_factory=set)
    """What of purged runs had started because of it, or let others of later runs start (design 5.19)."""
    retried: bool = False
    """It was retried or reopened: gates that it held shut may have been passed (only the invariants ask)."""
    settlings: int = 0
    """How often it has settled."""
    key: Key = field(init=False)
    implicit: bool = field(init=False)
    into: list[Edge] = field(default_factory=list)
    out_of: list[Edge] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.priority = self.definition.priority
        self.key = Key(*self.run.key, self.definition.name, self.item)
        self.implicit = self.name in (COMMIT, REPORT) or ":" in self.name

    def __setattr__(self, name: str, value: object) -> None:
        if name == "state" and value in SETTLED:
            object.__setattr__(self, "settlings", getattr(self, "settlings", 0) + 1)
        object.__setattr__(self, name, value)

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def settled(self) -> bool:
        return self.state in SETTLED

    @property
    def bad(self) -> bool:
        return self.settled and self.state is not State.COMPLETED

    @property
    def is_star(self) -> bool:
        """A gate of ``PREV:*``; no task of a file can have its name."""
        return self.name.startswith("PREV:*")

    @property
    def is_gate_of_list(self) -> bool:
        """A gate that waits for all items of a list."""
        return ":" in self.name and not self.is_star

    @property
    def folder(self) -> str | None:
        """Whose scratch folder it has: an item's, by its key, or the run's."""
        return None if self.definition.scratch is None else self.item if self.definition.scratch == "item" else ""

    @property
    def store(self) -> str | None:
        """Where its scratch folder is."""
        return None if self.folder is None else self.run.stores.get(self.folder)

    @property
    def is_deleted(self) -> bool:
        """Nothing waits for its failure any more."""
        return self.deleted or self.run.deleted

    @property
    def is_gate(self) -> bool:
        return (self.implicit and self.name != REPORT) or self.definition.is_gate


@dataclass(slots=True, eq=False)
class Edge:
    source: Task
    target: Task
    kind: Kind
    when: When
    met: bool = False
    attempt: Attempt | None = None
    """Of a stopping edge: the attempt that must be gone."""
    product: bool = False
    """It stands for the product of a task that is not part of the run (design 5.6, 5.18)."""

    @property
    def crossing(self) -> bool:
        return self.source.run is not self.target.run


class Seen(NamedTuple):
    """What is compared of a task."""

    state: State
    root: str | None
    stop: str | None
    attempts: int
    live: int
    """How many of the attempts have no end."""
    polled: int
    """How many of them were polls."""
    blocks: int
    """What the task blocks in later runs, if it was canceled or skipped."""
    priority: int


class RunSeen(NamedTuple):
    """What is compared of a run."""

    state: str
    skipped: int
    superseded: int
    reports: tuple[tuple[bool, int, bool, bool], ...]
    """Whether it made each of them by itself, how many tasks had changed since the one before, and whether its command was given it, and has sent it."""
    changed_since_report: bool


class Appended(NamedTuple):
    """A revision that is appended to a branch, as the graph sees it; ``changed``: the tree difference to the revision before it in the ledger."""

    number: int
    workflow: Workflow
    changed: frozenset[str]
    files: Mapping[str, tuple[Item, ...]] = MappingProxyType({})
    """The items of list files, by their paths."""


@dataclass(slots=True)
class Entry:
    id: str
    number: int
    dropped: bool = False


@dataclass(slots=True)
class Ledger:
    """One branch's revisions, as they were told by the repository (design 2, 5.16)."""

    entries: list[Entry]

    @property
    def kept(self) -> list[str]:
        """The ids of what is on the branch as far as it was read, each once."""
        return list(dict.fromkeys(entry.id for entry in self.entries if not entry.dropped))

    def lacks(self, chain: Sequence[str]) -> tuple[list[str], list[str]]:
        """What a rewrite took away, and what is to be appended, when the repository's branch is this ``chain``, oldest first.

        Every commit after the last one that is known; where a rewrite dropped some and brought nothing new, the head again.
        """
        dropped = [id for id in self.kept if id not in chain]
        known = max(chain.index(id) for id in self.kept if id in chain)
        return dropped, list(chain[known + 1 :]) or (list(chain[-1:]) if dropped else [])

    def drop(self, ids: Collection[str]) -> list[int]:
        """Mark revisions as dropped; returns their numbers."""
        dropped = [entry for entry in self.entries if entry.id in ids]
        for entry in dropped:
            entry.dropped = True
        return [entry.number for entry in dropped]


def _told(outcomes: Mapping[Name, Outcome | None]) -> dict[Name, Outcome]:
    return {name: outcome for name, outcome in outcomes.items() if outcome}
