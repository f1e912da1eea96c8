"""The vocabulary of the model: names, revisions, runs, tasks, edges, attempts, and reasons for
refusals.
"""

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
    """The place of a run in its branch (design 5.11)."""

    number: int
    run: int


class RunKey(NamedTuple):
    branch: str
    number: int
    run: int


class Name(NamedTuple):
    """The name of a task inside its run."""

    name: str
    item: str = ""


class Key(NamedTuple):
    """The full name of a task."""

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
    """The name of a list's gate for one kind of end (design 5.30). No task of a file can have this
    name.
    """
    return Name(f"{name}:{When.SETTLED if when is When.SETTLED else When.COMPLETED}")


class Reason(StrEnum):
    """The reason why a verb is refused."""

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
    """The cause of a task's cancellation."""

    PERSON = "person"
    SUPERSEDED = "superseded"
    DROPPED = "dropped"


class Kind(StrEnum):
    """The purpose of an edge. Tasks wait for all kinds alike."""

    DECLARED = "declared"
    IMPLICIT = "implicit"
    """From a run's COMMIT to its tasks, and from its tasks to REPORT."""
    EXCLUSIVE = "exclusive"
    STOPPING = "stopping"
    """From a running victim to the task that cancels it."""


DEPENDS = (Kind.DECLARED, Kind.IMPLICIT)


class Blocks(IntEnum):
    """What a settled task blocks in later runs."""

    NOTHING = 0
    COMPLETION = 1
    """Tasks that need its completion."""
    ALL = 2
    """Also tasks that need any end of it, because a task that it waited for before its cancellation
    or skip is not over.
    """


@dataclass(slots=True)
class Revision:
    """What remains of a revision after all of its runs are purged."""

    workflow: Workflow
    last_run: int = 1
    """The highest number that a run of the revision ever had."""
    dropped: bool = False
    files: Mapping[str, tuple[Item, ...]] = field(default_factory=dict)
    """The items of list files, by path."""


Outcome = tuple[int, bool, bool]
"""The entry of a settled task in a report: how often it had settled, whether it was waived, and
whether it was waived as completed.
"""


class Report(NamedTuple):
    """The outcomes of a run at the time of a report (design 5.32; decision 18). None for tasks that
    had not settled.
    """

    by_itself: bool
    changes: int
    outcomes: dict[Name, Outcome | None]
    given: bool = False
    """Whether the command of REPORT was given this report."""


@dataclass(slots=True, eq=False)
class Backfill:
    """Runs of old revisions with the head's definitions. ``last``: the last planned task of each
    name, for which the next one waits.
    """

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
    """The tasks that the run's deletion canceled (design 5.27)."""
    dropped: bool = False
    reports: list[Report] = field(default_factory=list)
    fill: Backfill | None = None
    sent: set[int] = field(default_factory=set)
    """The positions of the reports that the command of REPORT has sent."""
    updating: int | None = None
    """The position of the requested report for which the command runs."""
    behind: Task | None = None
    """For a submission, the nearest earlier COMMIT. Later runs wait for this COMMIT and not for the
    submission's own, which waits for nothing.
    """
    chosen: set[str] = field(default_factory=set)
    """The names of its tasks, including those with empty lists."""
    made: int = 0
    """The moment of its planning, among all changes of the installation."""
    stores: dict[str, str] = field(default_factory=dict)
    """The label of the host of each scratch folder (design 5.37), by the key of the item that owns
    the folder; an empty key for the run's own folder.
    """
    deleted_items: dict[str, list[Task]] = field(default_factory=dict)
    """The tasks that the deletion of an item canceled (design 5.27), by the item's key."""

    @property
    def key(self) -> RunKey:
        return RunKey(self.branch, *self.place)

    @property
    def outcomes(self) -> dict[Name, Outcome | None]:
        """The outcomes that a report would contain now. A failure in a deleted run counts as
        waived, and deleted items count nowhere.
        """
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
        """Whether the run has made its own report, without a request."""
        return any(report.by_itself for report in self.reports)

    def report(self, *, by_itself: bool) -> None:
        """Makes a report. With a command, the changes are relative to the last report that was
        sent.
        """
        has_command = not self.tasks[Name(REPORT)].is_gate
        told = [report for n, report in enumerate(self.reports) if n in self.sent or not has_command]
        now, before = self.outcomes, told[-1].outcomes if told else {}
        changes = sum(now[name] != before.get(name) for name in now) + len(before.keys() - now.keys())
        self.reports.append(Report(by_itself, changes, now, has_command and (by_itself or changes > 0)))

    @property
    def own(self) -> list[Task]:
        """The tasks that the workflow names, in file order. Verbs on a run act on these tasks."""
        return [task for task in self.tasks.values() if not task.implicit]

    @property
    def shown(self) -> list[Task]:
        """The tasks of ``own`` that count, without those of deleted items."""
        return [task for task in self.own if not task.deleted]

    def list_of(self, name: str) -> Foreach | None:
        return next((task.foreach for task in self.workflow.tasks if task.name == name), None)

    def named(self, name: str) -> list[Task]:
        """The task of a name, or the tasks of all items of its list."""
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
    """The position in the run's file order."""
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
    """Whether an attempt ended with 75 since a person last retried the task: its deadline has begun
    (design 5.28).
    """
    late: bool = False
    """Whether the task's deadline is over."""
    polls: bool = False
    """Whether the command ended with 75, so that the task now runs its poll (design 5.29)."""
    stop: str | None = None
    stop_by: Task | None = None
    to_release: bool = False
    """Whether the task must not start before a person releases it. The task is held, or was held
    when it was canceled or skipped (design 5.21).
    """
    released: bool = False
    by_a_guard: bool = False
    """Whether a guard of the archive holds the task (design 5.22)."""
    priority: int = field(init=False)
    prioritized: bool = False
    """Whether a person set the priority."""
    output: int | None = None
    """The output of the newest attempt."""
    locks: set[str] = field(default_factory=set)
    """The resolved names of the locks for which the task last asked (design 5.25)."""
    asks: bool = False
    """Whether the task waits for nothing but its locks (design 5.25)."""
    granted: int = 0
    """The moment of the grant of its locks, among all changes of the installation."""
    item: str = ""
    deleted: bool = False
    """Whether the task's item is deleted (design 5.27)."""
    purged_starts: set[Key] = field(default_factory=set)
    """The tasks of purged runs that had started because of this one, and the tasks of later runs
    that purged tasks had let start (design 5.19).
    """
    retried: bool = False
    """Whether the task was retried or reopened, so that gates it kept shut may have been passed.
    Only the invariants read this.
    """
    settlings: int = 0
    """The number of times that the task has settled."""
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
        """Whether the task is a gate of ``PREV:*``. No task of a file can have such a name."""
        return self.name.startswith("PREV:*")

    @property
    def is_gate_of_list(self) -> bool:
        """Whether the task is a gate that waits for all items of a list."""
        return ":" in self.name and not self.is_star

    @property
    def folder(self) -> str | None:
        """The key of the item that owns the task's scratch folder; empty for the run's folder."""
        return None if self.definition.scratch is None else self.item if self.definition.scratch == "item" else ""

    @property
    def store(self) -> str | None:
        """The label of the host of the task's scratch folder."""
        return None if self.folder is None else self.run.stores.get(self.folder)

    @property
    def is_deleted(self) -> bool:
        """Whether the task's item or run is deleted, so that nothing waits for its failure any
        more.
        """
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
    """For a stopping edge, the attempt that must have ended."""
    product: bool = False
    """Whether the edge stands for the product of a task outside the run (design 5.6, 5.18)."""

    @property
    def crossing(self) -> bool:
        return self.source.run is not self.target.run


class Seen(NamedTuple):
    """The properties of a task that the tests compare."""

    state: State
    root: str | None
    stop: str | None
    attempts: int
    live: int
    """The number of attempts without an end."""
    polled: int
    """The number of attempts that were polls."""
    blocks: int
    """What the task blocks in later runs, if it was canceled or skipped."""
    priority: int


class RunSeen(NamedTuple):
    """The properties of a run that the tests compare."""

    state: str
    skipped: int
    superseded: int
    reports: tuple[tuple[bool, int, bool, bool], ...]
    """For each report: whether the run made it without a request, how many tasks had changed since
    the report before, whether its command was given the report, and whether its command has sent
    it.
    """
    changed_since_report: bool


class Appended(NamedTuple):
    """A revision that is appended to a branch, as the graph sees it. ``changed``: the paths that
    differ from the revision before it in the ledger.
    """

    number: int
    workflow: Workflow
    changed: frozenset[str]
    files: Mapping[str, tuple[Item, ...]] = MappingProxyType({})
    """The items of list files, by path."""


@dataclass(slots=True)
class Entry:
    id: str
    number: int
    dropped: bool = False


@dataclass(slots=True)
class Ledger:
    """The revisions of one branch as the repository reported them (design 2, 5.16)."""

    entries: list[Entry]

    @property
    def kept(self) -> list[str]:
        """The ids of all commits on the branch that were read, each once."""
        return list(dict.fromkeys(entry.id for entry in self.entries if not entry.dropped))

    def lacks(self, chain: Sequence[str]) -> tuple[list[str], list[str]]:
        """The ids that a rewrite took away, and the ids to append, if the repository's branch is
        this ``chain`` of commits, oldest first.

        All commits after the last known one are appended. If a rewrite dropped some and brought
        nothing new, the head is appended again.
        """
        dropped = [id for id in self.kept if id not in chain]
        known = max(chain.index(id) for id in self.kept if id in chain)
        return dropped, list(chain[known + 1 :]) or (list(chain[-1:]) if dropped else [])

    def drop(self, ids: Collection[str]) -> list[int]:
        """Marks revisions as dropped. Returns their numbers."""
        dropped = [entry for entry in self.entries if entry.id in ids]
        for entry in dropped:
            entry.dropped = True
        return [entry.number for entry in dropped]


def _told(outcomes: Mapping[Name, Outcome | None]) -> dict[Name, Outcome]:
    return {name: outcome for name, outcome in outcomes.items() if outcome}
