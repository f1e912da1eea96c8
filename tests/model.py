"""The rules of order, a second time: a plain model of one archive in memory (design 5, decision 0001).

It is beside the real queue in ``tests/db/test_model.py``, where both must agree on every task after every step. So it shares nothing with the queue but the
words (``arkqueue.model``) and the table of states; it has no SQL, no counters and no indices: every question is answered by looking at everything. Slow and
plain is the point. It knows no time: that a delay is over or a lease has lapsed is told to it.

Ordered as things happen: plan, follow (what a step sets off), attempts, a person's verbs, what is seen, and the invariants.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from fnmatch import fnmatchcase
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

from arkqueue.model import (
    COMMIT,
    PRIORITY,
    REPORT,
    Cancels,
    Depends,
    EdgeKind,
    End,
    Fault,
    Foreach,
    Item,
    TaskDefinition,
    Trigger,
    When,
    Workflow,
)
from arkqueue.states import MOVES, SETTLED, Circumstances, Event, State, move, verdict


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


def is_global(lock: str) -> bool:
    """Whether a lock is one of the whole installation."""
    return lock.startswith("global/")


class Installation:
    """What archives have in common: claims and locks, at which they take turns (design 5.24, 5.25)."""

    def __init__(self, archives: Sequence[Model]) -> None:
        self.archives = list(archives)
        """In the order of their ids."""
        for archive in self.archives:
            archive.installation = self
        self.capacities: dict[str, int | None] = {}
        self.paused_locks: set[str] = set()
        self.turns: dict[str, Model] = {}
        """Whose turn it was the last time, by lock."""
        self.last_claimed: Model | None = None
        """Of which archive the last claim took a task."""
        self.moment = 0
        """How many changes there were. What one change grants, also in several archives, is granted at one moment."""
        self.late = 0
        """What was granted up to here should have started by now."""

    def next_to_claim(self, labels: Collection[str]) -> tuple[Model, Task] | None:
        """What a claim takes next: archives of the lowest tier that have a task which it may take go in turns, and in an archive the claim's order counts (design 5.24)."""
        having = [archive for archive in self._in_turn(self.last_claimed) if archive.claimable(labels)]
        if not having:
            return None
        archive = min(having, key=lambda archive: archive.tier)  # of several the first in turn
        return archive, min(archive.claimable(labels), key=archive.claim_order)

    def claim(self, archive: Model, key: Key) -> None:
        archive.claim(key)
        self.last_claimed = archive

    def _in_turn(self, last: Model | None) -> list[Model]:
        """The archives in the order of their ids, those after the last one first."""
        behind = 0 if last is None else self.archives.index(last) + 1
        return self.archives[behind:] + self.archives[:behind]

    def change(self) -> int:
        """The moment of a change."""
        self.moment += 1
        return self.moment

    def time_passes(self) -> None:
        """10 s, for all that was granted so far."""
        self.late = self.moment

    def man(self, labels: Collection[str]) -> None:
        """One task manager lives, and no other."""
        for archive in self.archives:
            archive.labels = [labels]
        self._judge_all()

    def set_lock(self, name: str, capacity: int | None) -> None:
        self.capacities[name] = capacity
        self._judge_all()

    def pause_lock(self, name: str) -> None:
        self.paused_locks.add(name)
        self._judge_all()

    def resume_lock(self, name: str) -> None:
        if name not in self.paused_locks:
            raise Refused(Reason.STATE)
        self.paused_locks.discard(name)
        self._judge_all()

    def _judge_all(self) -> None:
        self.change()
        for archive in self.archives:
            archive.grant()

    def pass_on(self) -> None:
        """Move places from archive to archive, until nobody wants one that could be given."""
        while True:
            names = {name for archive in self.archives for name in archive_waits_for(archive)} | self.capacities.keys()
            moved = [self._pass_on(name) for name in sorted(names)]
            if not any(moved):
                return

    def _pass_on(self, name: str) -> bool:
        is_moved = False
        while self._move(name):
            is_moved = True
        return is_moved

    def having(self, name: str) -> list[tuple[Model, Task]]:
        return [
            (archive, task)
            for archive in self.archives
            for task in archive.tasks()
            if name in task.locks and task.state in (State.READY, State.RUNNING)
        ]

    def _move(self, name: str) -> bool:
        capacity, having = self.capacities.get(name, 1), self.having(name)
        if capacity is None:
            return False
        # Of what was granted at one moment, what was planned first has been granted first.
        granted = sorted(
            (task.granted, task.run.made, self.archives.index(archive))
            for archive, task in having
            if task.state is State.READY
        )
        if len(having) > capacity:
            return any(self._take_back(name, self.archives[of]) for *_, of in reversed(granted))
        if len(having) < capacity:
            return any(self._give(name, archive) for archive in self.wanting(name))
        late = self._late(having)
        wanting = self.wanting(name, as_free=name) if late else []
        return any(self._take_back(name, one) for one in late if any(archive is not one for archive in wanting))

    def _late(self, having: Sequence[tuple[Model, Task]]) -> list[Model]:
        """The archives whose last one in line should have started by now: it would give its place back."""
        last = {
            archive: max((t for a, t in having if a is archive and t.state is State.READY), key=archive.claim_order)
            for archive in {a: None for a, t in having if t.state is State.READY}
        }
        late = [(task.granted, task.run.made, archive) for archive, task in last.items() if task.granted <= self.late]
        return [archive for *_, archive in sorted(late, key=lambda one: one[:2])]

    def wanting(self, name: str, as_free: str | None = None) -> list[Model]:
        """The archives whose first task in the line would fit if it got a place, in their turns."""
        return [archive for archive in self._in_turn(self.turns.get(name)) if self._could_start(archive, name, as_free)]

    def _could_start(self, archive: Model, name: str, as_free: str | None = None) -> list[Task]:
        judged = archive.judged_lines(self._free(as_free))
        return [task for task, fits in judged.items() if fits and task.asks and name in task.locks]

    def _free(self, as_free: str | None) -> dict[str, int]:
        """One place of each lock that has one."""
        names = {
            name for archive in self.archives for task in archive.tasks() for name in task.locks if is_global(name)
        }
        return {
            name: 1 for name in names if name == as_free or len(self.having(name)) < (self.capacities.get(name, 1) or 0)
        }

    def _give(self, name: str, archive: Model) -> bool:
        (task,) = self._could_start(archive, name)
        self.change()
        archive.grant_or_take(task, True)
        self.turns[name] = archive
        return True

    def _take_back(self, name: str, archive: Model) -> bool:
        before = len(self.having(name))
        for task, fits in archive.judged_lines({name: -1}).items():
            if not fits and not task.asks:
                archive.grant_or_take(task, False)
        self.change()
        archive.grant()
        self.turns[name] = archive  # others have their turn before it gets another place
        return len(self.having(name)) < before


def archive_waits_for(archive: Model) -> set[str]:
    return {name for task in archive.tasks() if task.asks for name in task.locks if is_global(name)}


Changes = dict[Key, tuple[State | None, State]]
NO_FILES: Mapping[str, tuple[Item, ...]] = MappingProxyType({})


class Model:
    """One archive. Every verb returns the tasks whose state it changed, with the state before and after, or raises ``Refused`` and changes nothing."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.revisions: dict[tuple[str, int], Revision] = {}
        """By branch and number, in the order of the ledger."""
        self.highest: dict[tuple[str, Name], Place] = {}
        """The highest place at which each task of a branch completed."""
        self.latest: dict[tuple[str, Name], Place] = {}
        """Where it completed last in time."""
        self.highest_of_commits: dict[tuple[str, Name], Place] = {}
        """The highest place among commit runs at which it completed."""
        self.edges: list[Edge] = []
        self.deleted_branches: set[str] = set()
        self.paused = False
        """Nothing is claimed, and no ``cancels`` fires (design 5.23)."""
        self.tier = 5
        """Archives of a lower tier go before it (design 5.24)."""
        self.max_running: int | None = None
        """How many attempts run at once (design 5.26)."""
        self.on_hold = False
        self.guards: frozenset[str] = frozenset()
        """The names of the tasks that are held whatever their file says (design 5.22)."""
        self.approves = True
        """Whether whoever says the next verb may act on what is guarded."""
        self.capacities: dict[str, int | None] = {}
        """Of locks, where it is not 1; None: unlimited (design 5.25)."""
        self.paused_locks: set[str] = set()
        self.labels: list[Collection[str]] = []
        """Of the task managers that live, each."""
        self.installation = Installation([self])

    # ------------------------------------------------------------------------------------------------------------------ looking around

    def on_branch(self, branch: str) -> list[Run]:
        """The branch's runs in order of (number, run)."""
        return sorted((run for run in self.runs if run.branch == branch), key=lambda run: run.place)

    def commit_runs(self, branch: str) -> list[Run]:
        return [run for run in self.on_branch(branch) if run.trigger is Trigger.COMMIT]

    def tasks(self) -> Iterator[Task]:
        for run in self.runs:
            yield from run.tasks.values()

    def task(self, key: Key) -> Task:
        return self.run(key.run_key).tasks[key.inside]

    def run(self, key: RunKey) -> Run:
        return next(run for run in self.runs if run.key == key)

    def nearest(self, name: Name, run: Run, of_commits: bool = False) -> Task | None:
        """``PREV:name`` as seen from the run (design 5.7), or what it would be among commit runs alone; None also where that was purged."""
        found = None if self.is_purged(name, run, of_commits) else self._nearest_left(name, run, of_commits)
        if found and found.name == COMMIT and found.run.behind and found.run.behind.run in self.runs:
            return found.run.behind  # nothing waits less because of a submission, which waits at no gate
        return found

    def is_purged(self, name: Name, run: Run, of_commits: bool = False) -> bool:
        """Whether the nearest earlier occurrence, as far as it is remembered, completed and was purged (design 5.27)."""
        left, key = self._nearest_left(name, run, of_commits), (run.branch, name)
        remembered = self.highest, self.latest, self.highest_of_commits
        places = [place[key] for place in remembered if key in place]
        places = [place for place in places if place < run.place and (place.run == 1 or not of_commits)]
        return any(left is None or place > left.run.place for place in places)

    def _nearest_left(self, name: Name, run: Run, of_commits: bool) -> Task | None:
        runs = self.commit_runs(run.branch) if of_commits else self.on_branch(run.branch)
        having = [r.tasks[name] for r in runs if r.place < run.place and name in r.tasks]
        return having[-1] if having else None

    def nearest_named(self, name: str, run: Run, task: TaskDefinition, item: str, when: When) -> Task | None:
        """The nearest earlier occurrence of a name as a task sees it: where items are connected, that of the same key or without a list; else without a list, or the gate of one (design 5.30)."""
        of_list = Name(name, item) if _by_item(run.workflow, task, item, name) else gate_of(name, when)
        found = [one for key in (Name(name), of_list) if (one := self.nearest(key, run))]
        return max(found, key=lambda one: one.run.place, default=None)

    def unmet(self, task: Task) -> list[Edge]:
        return [edge for edge in task.into if not edge.met]

    # -------------------------------------------------------------------------------------------------------------------------- plan

    def baseline(self, branch: str, number: int, files: Mapping[str, tuple[Item, ...]] = NO_FILES) -> Changes:
        """The revision at which watching began: a completed COMMIT and no other task (design 2)."""
        before = self.states()
        run = Run(branch, Place(number, 1), Trigger.COMMIT, Workflow())
        run.tasks[Name(COMMIT)] = Task(run, TaskDefinition(COMMIT), 0, State.COMPLETED)
        self.runs.append(run)
        self.revisions[branch, number] = Revision(run.workflow, files=files)
        return self._follow(before)

    def commit(self, branch: str, number: int, workflow: Workflow, changed: Iterable[str] = ()) -> Changes:
        """Plan the commit run of a new revision."""
        return self.append(branch, [Appended(number, workflow, frozenset(changed))])

    def append(
        self, branch: str, revisions: Sequence[Appended], dropped: Collection[int] = (), hold: bool = False
    ) -> Changes:
        """Plan the commit runs of new revisions, all in one step, after a rewrite took those of some numbers off the branch.

        ``hold``: they belong to an import (design 5.22).
        """
        if branch in self.deleted_branches:
            raise Refused(Reason.GONE)
        if any(number >= new.number for of, number in self.revisions if of == branch for new in revisions):
            raise Refused(Reason.UNKNOWN)
        before = self.states()
        if dropped:
            self.rewrite(branch, dropped)
        runs = [self._append(branch, new, hold) for new in revisions]
        return self._follow(before, runs)

    def _append(self, branch: str, new: Appended, hold: bool) -> Run:
        run = Run(branch, Place(new.number, 1), Trigger.COMMIT, new.workflow)
        faulty = bool(new.workflow.faults)
        chosen = [task for task in new.workflow.tasks if not faulty and _exists(task, run, new.changed)]
        head = max(number for of, number in self.revisions if of == branch)
        self.revisions[branch, new.number] = Revision(new.workflow, files=new.files)
        self._plan(run, chosen, hold)
        for other in self.on_branch(branch):
            if other.trigger is Trigger.SUBMISSION:
                continue
            if other.place < run.place and (other.place.number == head or other.trigger is not Trigger.COMMIT):
                for task in other.own:
                    if task.definition.exclusive and not task.settled and not self._holds_a_gate(task):
                        self._edge(task, run.tasks[Name(COMMIT)], When.SETTLED, Kind.EXCLUSIVE)
        self._pass_at_once(run)
        return run

    def _pass_at_once(self, run: Run) -> None:
        """A COMMIT whose edges are all met has passed when the step begins."""
        commit = run.tasks[Name(COMMIT)]
        if all(self._is_satisfied(edge) for edge in commit.into):
            for edge in commit.into:
                edge.met = True
            commit.state = move(commit.state, Event.PASS)

    def trigger(
        self,
        branch: str,
        number: int,
        names: Iterable[str] | None = None,
        force: bool = False,
        trigger: Trigger = Trigger.MANUAL,
        items: Sequence[Item] = (),
    ) -> Changes:
        """Plan a further run of a revision, right after those that it has (design 5.11, 5.18)."""
        revision = self.revisions.get((branch, number))
        if revision is None:
            raise Refused(Reason.UNKNOWN)
        if branch in self.deleted_branches or revision.dropped:
            raise Refused(Reason.GONE)
        before = self.states()
        lists = {**revision.workflow.lists, Foreach.of_submission(None).items: tuple(items)}
        workflow = replace(revision.workflow, lists=lists) if trigger is Trigger.SUBMISSION else revision.workflow
        run = Run(branch, Place(number, revision.last_run + 1), trigger, workflow)
        self._add(run, self._asked(run, names, force))
        return self._follow(before, [run])

    def submit(self, branch: str, number: int, items: Sequence[Item] = ()) -> Changes:
        """Plan the run of a submission with some items (design 5.31)."""
        return self.trigger(branch, number, trigger=Trigger.SUBMISSION, items=items)

    def backfill(self, branch: str, first: int, last: int, names: Collection[str], force: bool = False) -> Changes:
        """Run tasks at old revisions, in order, with the head's definitions (issue 34). Who asks is refused what holds for the first of them.

        A list in a file has the items that the file has at each revision (decision 0001, point 29).
        """
        on_branch = {at: r for (on, at), r in self.revisions.items() if on == branch and not r.dropped}
        fill = Backfill()
        before, changes = self.states(), Changes()
        for number in sorted(at for at in on_branch if first <= at <= last):
            place = Place(number, on_branch[number].last_run + 1)
            workflow = _over_files(on_branch[max(on_branch)].workflow, on_branch[number].files)
            run = Run(branch, place, Trigger.MANUAL, workflow, fill=fill)
            chosen = self._asked(run, names, force) if number == first else self._chosen(run, names)
            if number != first and self._never_ran(run, self._outside(run, chosen)):  # nobody is asked any more
                run = Run(branch, place, Trigger.MANUAL, Workflow(faults=(Fault("", 0, 0, "cannot start"),)), fill=fill)
                chosen = []
            self._add(run, chosen)
            changes = self._follow(before, [run])
        return changes

    def _chosen(self, run: Run, names: Iterable[str]) -> list[TaskDefinition]:
        return [task for task in run.workflow.tasks if _exists(task, run, None) and task.name in names]

    def _asked(self, run: Run, names: Iterable[str] | None, force: bool) -> list[TaskDefinition]:
        """The tasks of a further run that somebody asks for, who may be refused."""
        workflow, trigger = run.workflow, run.trigger
        if workflow.faults:
            raise Refused(Reason.FAULTY)
        left = {digest for other in self.runs for digest in other.workflow.lists}
        of_run = {task.foreach.items for task in workflow.tasks if task.foreach and task.foreach.is_of_run}
        if not workflow.lists.keys() - of_run - {Foreach.of_submission(None).items} <= left:
            raise Refused(Reason.GONE)  # a list goes with the last run that has it
        # Who names no task does not mean those that only run by hand, such as a release.
        meant = (
            {t.name for t in workflow.tasks if trigger is not Trigger.MANUAL or Trigger.COMMIT in t.on}
            if names is None
            else set(names)
        )
        chosen = self._chosen(run, meant)
        if names is not None and set(names) != {task.name for task in chosen}:
            raise Refused(Reason.UNKNOWN)
        planned = [(task, item) for task in chosen for item in _items(workflow, task)]
        may_be_empty = any(trigger is Trigger.SUBMISSION or (d.foreach and d.foreach.is_of_run) for d in chosen)
        if not (planned or may_be_empty):
            raise Refused(Reason.NOTHING)
        if (
            trigger is Trigger.MANUAL
            and not self.approves
            and self.guards & _left_out(workflow.tasks, _having(chosen, planned))
        ):
            raise Refused(Reason.GUARDED)
        outside = self._outside(run, chosen)
        missing = self._never_ran(run, outside) | {
            name
            for wish, name, source, _ in outside
            if source is not None and wish.when is When.COMPLETED and source.bad and lost(source)
        }
        if missing:
            raise Refused(Reason.MISSING, *(Key(*run.key, name) for name in sorted(missing)))
        by = [
            canceler
            for task, item in planned
            for canceler in self._superseders(run, Name(task.name, item), started=False)
        ]
        if by and not force:
            raise Refused(Reason.SUPERSEDED, *(canceler.key for canceler in by))
        programs = [Name(task.name, item) for task, item in planned if not task.is_gate]
        if (later := [key for name in programs for key in self._completed_after(run, name)]) and not force:
            raise Refused(Reason.OVERWRITES, *later)
        unneeded = {
            name
            for wish, name, source, _ in outside
            if names is not None
            and wish.when is When.FAILED
            and source is not None
            and not source.is_gate_of_list
            and spares(source)
        }
        if unneeded:
            raise Refused(Reason.UNNEEDED, *(Key(*run.key, name) for name in sorted(unneeded)))
        return chosen

    def _outside(self, run: Run, chosen: list[TaskDefinition]) -> list[tuple[Depends, str, Task | None, Name]]:
        """The dependencies outside a run that is not a commit run: each entry with its task, the nearest occurrence of the dependency, and its name."""
        workflow = run.workflow
        others = _names(workflow.tasks) - _names(chosen) - {COMMIT}
        return [
            (
                wish,
                wish.task,
                self.nearest_named(wish.task, run, task, item, wish.when),
                Name(wish.task, item if _by_item(workflow, task, item, wish.task) else ""),
            )
            for task in chosen
            for item in _items(workflow, task)
            for wish in task.depends
            if not wish.previous and wish.task and wish.task in others
        ]

    def _never_ran(self, run: Run, outside: Iterable[tuple[Depends, str, Task | None, Name]]) -> set[str]:
        return {
            name
            for wish, name, source, key in outside
            if source is None and not wish.optional and not self.is_purged(key, run)
        }

    def _add(self, run: Run, chosen: list[TaskDefinition]) -> None:
        """Plan a run that is no commit run. It may close the gate to the next revision (design 5.14)."""
        self.revisions[run.branch, run.place.number].last_run += 1
        self._plan(run, chosen)
        gates = [
            r.tasks[Name(COMMIT)]
            for r in self.commit_runs(run.branch)
            if r.place > run.place and not r.tasks[Name(COMMIT)].settled
        ]
        if gates and run.trigger is not Trigger.SUBMISSION:
            for task in run.own:
                if task.definition.exclusive:
                    self._edge(task, gates[0], When.SETTLED, Kind.EXCLUSIVE)
        self._pass_at_once(run)

    def _plan(self, run: Run, chosen: list[TaskDefinition], hold: bool = False) -> None:
        """COMMIT, the chosen tasks and REPORT, with their edges."""
        self.runs.append(run)
        run.chosen = {COMMIT, *_names(chosen)}
        extended = next((task for task in run.workflow.tasks if task.name == COMMIT), TaskDefinition(COMMIT))
        report = next((task for task in run.workflow.tasks if task.name == REPORT), TaskDefinition(REPORT))
        is_submission = run.trigger is Trigger.SUBMISSION
        definitions = [TaskDefinition(COMMIT) if run.workflow.faults or is_submission else extended, *chosen, report]
        nodes = [(definition, item) for definition in definitions for item in _items(run.workflow, definition)]
        for order, (definition, item) in enumerate(nodes):
            run.tasks[Name(definition.name, item)] = Task(run, definition, order, item=item)
        for name in {definition.name: None for definition, item in nodes if item}:
            for when in (When.COMPLETED, When.SETTLED):
                gate = run.tasks[gate_of(name, when)] = Task(run, TaskDefinition(gate_of(name, when).name), 0)
                for task in run.named(name):
                    self._edge(task, gate, when, Kind.IMPLICIT)
        commit, report = run.tasks[Name(COMMIT)], run.tasks[Name(REPORT)]
        if is_submission:
            run.behind = self.nearest(Name(COMMIT), run)
        elif previous := self.nearest(Name(COMMIT), run):
            self._edge(previous, commit, When.COMPLETED)
        for task in list(run.tasks.values()):
            for wish in task.definition.depends:
                source = self._source(run, task, wish)
                if source and not (source.is_gate_of_list and wish.when is When.FAILED):
                    when = When.COMPLETED if source.is_star else wish.when
                    product = not wish.previous and source.run is not run and when is When.COMPLETED
                    self._depend(source, task, when, product)
                elif wish.when is When.FAILED and (source or not wish.previous or self._has_purged(run, task, wish)):
                    # What never ran, or completed, has not failed; nor has the gate of a list.
                    self._edge(commit, task, When.FAILED, Kind.IMPLICIT)
        if run.fill:
            self._put_in_order(run, run.fill)
        for task in run.own:
            self._edge(commit, task, When.COMPLETED, Kind.IMPLICIT)
        for task in (commit, *run.own):
            self._edge(task, report, When.SETTLED, Kind.IMPLICIT)
        exclusive = [task for name in _in_order(chosen) for task in run.named(name) if task.definition.exclusive]
        for first, second in pairwise(exclusive):
            self._edge(first, second, When.SETTLED, Kind.EXCLUSIVE)
        for task in run.own:
            if task.definition.hold or task.name in self.guards or ((hold or self.on_hold) and not task.is_gate):
                self._hold(task, by_a_guard=task.name in self.guards)
        reports = run.tasks[Name(REPORT)]
        if not reports.is_gate and (reports.definition.hold or REPORT in self.guards):
            self._hold(reports, by_a_guard=REPORT in self.guards)

    def _put_in_order(self, run: Run, fill: Backfill) -> None:
        """Each task of a backfill waits for the one before, and lets what is committed go first."""
        for task in run.own:
            previous = fill.last.get(task.key.inside)
            if previous and all(edge.source is not previous or edge.when is When.COMPLETED for edge in task.into):
                self._edge(previous, task, When.SETTLED, Kind.IMPLICIT)
            fill.last[task.key.inside] = task
        for task in (*run.own, *self._report_with_command(run)):
            task.priority = min(task.priority + 40, 1000)

    def _has_purged(self, run: Run, task: Task, wish: Depends) -> bool:
        """Whether what an entry of ``depends`` stands for was purged."""
        name = wish.task or task.name
        keys = {Name(name)} | (
            {Name(name, task.item)} if _by_item(run.workflow, task.definition, task.item, name) else set()
        )
        return any(self.is_purged(key, run) for key in keys)

    def _source(self, run: Run, task: Task, wish: Depends) -> Task | None:
        """What a ``depends`` entry stands for in this run (design 5.6, 5.7, 5.18); None: nothing to wait for."""
        if wish.task == "*":
            return self._star(run, task, wish)
        name = wish.task or task.name
        if not wish.previous and name in run.chosen:
            of_list = run.list_of(name) is not None
            by_item = _by_item(run.workflow, task.definition, task.item, name)
            key = gate_of(name, wish.when) if of_list and not by_item else Name(name, task.item if by_item else "")
            return run.tasks.get(key)  # an empty list passes
        if wish.previous or name in _names(run.workflow.tasks):
            return self.nearest_named(name, run, task.definition, task.item, wish.when)
        return None

    def _depend(self, source: Task, target: Task, when: When, product: bool) -> None:
        """An edge; of two from the same source, one that stands for its product and one that does not, the first is the stricter one."""
        for edge in target.into:
            if edge.source is source and edge.when is when and edge.kind is Kind.DECLARED:
                edge.product = edge.product or product
                return
        self._edge(source, target, when, product=product)

    def _star(self, run: Run, task: Task, wish: Depends) -> Task:
        """The run's gate for a ``PREV:*``, made when first asked for; one for all that wait for the same. COMMIT waits for commit runs alone."""
        of_commits = task.name == COMMIT
        name = Name(f"PREV:*{':commits' if of_commits else ''}{':settled' if wish.when is When.SETTLED else ''}")
        if wish.excepted:
            name = Name(f"{name.name}:except:{','.join(sorted(wish.excepted))}")
        if name not in run.tasks:
            gate = run.tasks[name] = Task(run, TaskDefinition(name.name), 0)
            earlier = {
                task.key.inside for r in self.on_branch(run.branch) if r.place < run.place for task in r.tasks.values()
            }
            names = {other.name for other in earlier if ":" not in other.name} - {REPORT, *wish.excepted}
            for other in sorted(names):
                keys = Name(other), gate_of(other, wish.when)
                if found := [one for key in keys if (one := self.nearest(key, run, of_commits))]:
                    self._edge(max(found, key=lambda one: one.run.place), gate, wish.when)
            for key in sorted(key for key in earlier if key.item and key.name in names):
                source = self.nearest(key, run, of_commits)
                if source and not (source.settled and self.blocks(source) < Blocks.ALL):
                    self._edge(source, gate, wish.when)
        return run.tasks[name]

    def _edge(
        self,
        source: Task,
        target: Task,
        when: When,
        kind: Kind = Kind.DECLARED,
        attempt: Attempt | None = None,
        product: bool = False,
    ) -> None:
        edge = Edge(source, target, kind, when, attempt=attempt, product=product)
        for edges in (self.edges, target.into, source.out_of):
            edges.append(edge)

    def _holds_a_gate(self, task: Task) -> bool:
        return any(edge.kind is Kind.EXCLUSIVE and edge.crossing for edge in task.out_of)

    def _superseders(self, run: Run, name: Name, started: bool) -> list[Task]:
        """The tasks of later runs that have fired a ``cancels`` which means this task (design 5.11)."""
        return [
            task
            for later in self.on_branch(run.branch)
            if later.place > run.place and (run.trigger is not Trigger.SUBMISSION or later.trigger is run.trigger)
            for task in later.tasks.values()
            if task.fired and _is_of_key(task.item, name.item, run.trigger is Trigger.SUBMISSION)
            for entry in task.definition.cancels
            if entry.previous and (entry.task or task.name) == name.name and not (entry.only_unstarted and started)
        ]

    # ------------------------------------------------------------------------------------------------------------------------ follow

    def _follow(self, before: Mapping[Key, State], planned: Collection[Run] = ()) -> Changes:
        """What a step sets off, round by round until nothing moves; what it ``planned`` enters by its gates first (decision 0001, point 3)."""
        for run in planned:
            run.made = self.installation.change()
        later = {task for run in planned for task in (*run.own, run.tasks[Name(REPORT)])}
        while self._meet() | self._skip() | self._enter(later) or later:
            later = set()
        self.installation.change()
        self.grant()
        after = self.states()
        return {key: (before.get(key), state) for key, state in after.items() if before.get(key) is not state}

    def _meet(self) -> bool:
        met = [edge for edge in self.edges if not edge.met and self._is_satisfied(edge) and not self._is_kept(edge)]
        for edge in met:
            edge.met = True
        return bool(met)

    def _is_satisfied(self, edge: Edge) -> bool:
        """Whether the edge is to be met as things stand (decision 0001, point 1)."""
        source, when = edge.source, edge.when
        if not source.settled:
            return False
        if when is When.FAILED:
            return not spares(source)
        if source.state is State.COMPLETED:
            return True
        if not edge.crossing or edge.kind is Kind.EXCLUSIVE or edge.product:
            return when is When.SETTLED or source.as_completed
        return self.blocks(source) < (Blocks.ALL if when is When.SETTLED else Blocks.COMPLETION)

    def blocks(self, task: Task, known: dict[Task, Blocks] | None = None) -> Blocks:
        """What a bad task blocks in later runs (design 5.9; decision 0001, point 18). ``known``: the answers so far, as many ways lead to each task."""
        known = {} if known is None else known
        if task not in known:
            known[task] = self._blocks(task, known)
        return known[task]

    def _blocks(self, task: Task, known: dict[Task, Blocks]) -> Blocks:
        if task.name == REPORT:  # nothing waits for it
            return Blocks.NOTHING
        if task.state in (State.FAILED, State.REJECTED):
            return Blocks.NOTHING if task.waived or task.is_deleted else Blocks.COMPLETION
        waits_for = [edge for edge in self.unmet(task) if edge.kind is not Kind.EXCLUSIVE]
        return max((self._blocks_behind(edge, known) for edge in waits_for), default=Blocks.NOTHING)

    def _blocks_behind(self, edge: Edge, known: dict[Task, Blocks]) -> Blocks:
        """What the target of an unmet edge blocks because of it, after it was canceled or skipped."""
        source, target = edge.source, edge.target
        if edge.when is When.FAILED and source.settled and source.state not in (State.CANCELED, State.SKIPPED):
            return Blocks.NOTHING
        orders = edge.crossing and not edge.product
        if source.bad:
            found = self.blocks(source, known)
        elif orders or source.settled:  # what completed is about to meet the edge
            return Blocks.ALL
        else:
            has_begun = source.attempts or not self.unmet(source) or edge.product
            found = Blocks.COMPLETION if has_begun else Blocks.ALL
        any_end_will_do = edge.when is When.SETTLED or (not orders and target.root is None)
        return Blocks.NOTHING if any_end_will_do and found is Blocks.COMPLETION else found

    def _is_kept(self, edge: Edge) -> bool:
        """From what was canceled or skipped to what is settled: it stays unmet, as the source may be retried, until its target is."""
        is_over = edge.source.state in (State.CANCELED, State.SKIPPED)
        return edge.crossing and edge.kind in DEPENDS and is_over and edge.target.settled

    def _skip(self) -> bool:
        """What hangs on a bad task, and what hangs on that; the first root in the order of the file is stored."""
        skipped: set[Task] = set()
        while roots := self._next_to_skip(skipped):
            for task, found in roots.items():
                task.root = self._first(found)
                if task not in skipped:
                    task.state = move(task.state, Event.SKIP)
            skipped |= roots.keys()
        return bool(skipped)

    def _first(self, tasks: Iterable[Task]) -> Task:
        """The first in the order in which runs were planned, and of the file."""
        return min(tasks, key=lambda task: (self.runs.index(task.run), task.order))

    def _next_to_skip(self, skipped: Collection[Task]) -> dict[Task, list[Task]]:
        """Waiting tasks that hang on bad ones, with these ones' roots, and those of the ``skipped`` that hang on an earlier root than theirs."""
        roots: dict[Task, list[Task]] = {}
        for edge in self.edges:
            if skips(edge):
                target, root = edge.target, edge.source.root or edge.source
                is_earlier = target in skipped and target.root and self._first([root, target.root]) is not target.root
                if target.state in (State.WAITING, State.HELD) or is_earlier:
                    roots.setdefault(target, []).append(root)
        return roots

    def _enter(self, later: Collection[Task] = ()) -> bool:
        but = {edge.target for edge in self.edges if not edge.met} | set(later)
        entering = [
            task
            for task in self.tasks()
            if task.state is State.WAITING and task not in but and not self.is_parked(task) and not task.asks
        ]
        for canceler in entering:
            for entry in canceler.definition.cancels:
                if entry.previous:
                    canceler.fired = True
                    self._fire(canceler, entry, self._earlier(canceler, entry))
        for canceler in sorted(entering, key=lambda task: task.order):
            for entry in canceler.definition.cancels:
                if not entry.previous and canceler.state is State.WAITING:
                    canceler.fired = True
                    assert entry.task
                    named = canceler.run.named(entry.task)
                    self._fire(canceler, entry, [t for t in named if _is_of_key(canceler.item, t.item)])
        for task in entering:
            if task.state is State.WAITING and not self.unmet(task):
                task.asks = bool(task.definition.lock) and not task.is_gate and not task.polls
                names = [self.lock_name(task, name) for name in task.definition.lock]
                task.locks = {name for name in names if name} if task.asks else set()
                if task.asks and not all(names):
                    task.state, task.asks = move(task.state, Event.FAULT), False
                elif not task.asks:
                    task.state = move(task.state, Event.PASS if task.is_gate else Event.ENABLE)
                    if task.name == REPORT and task.is_gate:
                        task.run.report(by_itself=True)
        return bool(entering)

    # ------------------------------------------------------------------------------------------------------------------------- locks

    def lock_name(self, task: Task, name: str) -> str | None:
        """What the name of a lock comes to; None where its field has no value (design 5.25). Fields are of one output alone."""
        before, mark, field = name.partition("${{ needs.")
        if not mark:
            return name
        needed = field.partition(f".{PRIORITY} ")[0]
        sources = [edge.source for edge in task.into if edge.kind in DEPENDS and edge.source.name == needed]
        newest = max(sources, key=lambda source: source.run.place, default=None)
        return None if newest is None or newest.output is None else f"{before}{newest.output}"

    def grant(self) -> None:
        """Let each lock's line judge anew who has it (design 5.25): all locks or none, in the claim's order; who has them and has not started may lose them."""
        for task in self.tasks():
            task.asks = task.asks and task.state is State.WAITING and not self.unmet(task)
        # Again as long as a place of the installation was given back: who stands behind in that line has one place less.
        while self._grant_once():
            pass

    def _grant_once(self) -> bool:
        """Returns whether a task gave its locks back."""
        given_back = [self.grant_or_take(task, fits) for task, fits in self.judged_lines().items()]
        return any(given_back)

    def grant_or_take(self, task: Task, fits: bool) -> bool:
        """Returns whether the task gave its locks back."""
        if fits and task.asks:
            task.state, task.asks = move(task.state, Event.ENABLE), False
            task.granted = self.installation.moment
        elif not fits and not task.asks:
            task.state, task.asks = move(task.state, Event.GIVE_BACK), True
            return True
        return False

    def judged_lines(self, more: Mapping[str, int] | None = None) -> dict[Task, bool]:
        """Whether each task that asks, or was granted its locks and has not started, fits. ``more``: places at locks of the installation beyond those that are had."""
        unstarted = [
            task
            for task in self.tasks()
            if task.definition.lock and not task.polls and (task.asks or task.state is State.READY)
        ]
        standing = [task for task in unstarted if self.stands_in_line(task)]
        had = Counter(name for task in standing if task.state is State.READY for name in task.locks)
        taken = Counter(name for task in self.tasks() if task.state is State.RUNNING for name in task.locks)

        def room(name: str) -> int | None:
            if not is_global(name):
                capacity = self.capacities.get(name, 1)
                return None if capacity is None else capacity - taken[name]
            if self.installation.capacities.get(name, 1) is None:
                return None
            return had[name] + (more or {}).get(name, 0)

        judged = dict.fromkeys(unstarted, False)
        places: Counter[str] = Counter()
        for task in sorted(standing, key=self.claim_order):
            places.update(task.locks)  # nobody behind it takes what it waits for
            rooms = {name: room(name) for name in task.locks}
            judged[task] = all(n is None or places[name] <= n for name, n in rooms.items())
        return judged

    def stands_in_line(self, task: Task) -> bool:
        """Not while something of it is paused, nor while there are task managers and none of them can run it."""
        manned = not self.labels or any(self.takes(task.key, labels) for labels in self.labels)
        paused = self.paused_locks | self.installation.paused_locks
        return manned and not self.paused and not paused & {*task.locks}

    def claim_order(self, task: Task) -> tuple[int, int, int, int]:
        """Priority, ledger entry, run and position."""
        entry = list(self.revisions).index((task.run.branch, task.run.place.number))
        return task.priority, entry, task.run.place.run, task.order

    def set_lock(self, name: str, capacity: int | None) -> Changes:
        before = self.states()
        self.capacities[name] = capacity
        return self._follow(before)

    def pause_lock(self, name: str) -> Changes:
        before = self.states()
        self.paused_locks.add(name)
        return self._follow(before)

    def resume_lock(self, name: str) -> Changes:
        if name not in self.paused_locks:
            raise Refused(Reason.STATE)
        before = self.states()
        self.paused_locks.discard(name)
        return self._follow(before)

    def man(self, *labels: Collection[str]) -> Changes:
        """One task manager lives with each of these labels, and no other."""
        before = self.states()
        self.labels = list(labels)
        return self._follow(before)

    def is_parked(self, task: Task) -> bool:
        """Whether a pause keeps the task from entering: its ``cancels`` would fire."""
        return self.paused and bool(task.definition.cancels)

    def _earlier(self, canceler: Task, entry: Cancels) -> list[Task]:
        name = entry.task or canceler.name
        is_submission = canceler.run.trigger is Trigger.SUBMISSION
        runs = [r for r in self.on_branch(canceler.run.branch) if is_submission or r.trigger is not Trigger.SUBMISSION]
        return [
            task
            for run in runs
            if run.place < canceler.run.place
            for task in run.named(name)
            if _is_of_key(canceler.item, task.item, run.trigger is Trigger.SUBMISSION)
        ]

    def _fire(self, canceler: Task, entry: Cancels, victims: list[Task]) -> None:
        for victim in victims:
            if victim.settled or (entry.only_unstarted and victim.attempts):
                continue
            if victim.state is not State.RUNNING:
                self._cancel(victim, Cause.SUPERSEDED, canceler)
                continue
            if victim.stop != "cancel":
                victim.stop, victim.stop_by = "cancel", canceler
            self._edge(victim, canceler, When.SETTLED, Kind.STOPPING, victim.attempts[-1])

    def _cancel(self, task: Task, cause: Cause, by: Task | None = None) -> None:
        task.state, task.cause, task.superseded_by = move(task.state, Event.CANCEL), cause, by

    # ---------------------------------------------------------------------------------------------------------------------- attempts

    def claim(self, key: Key, labels: Collection[str] = ()) -> Changes:
        """``labels``: those of the task manager, and its host's (``@HOST``), where scratch folders count."""
        before = self.states()
        assert self.may_claim(), f"{key} was claimed in a pause, or beside as many as may run"
        task = self._in(key, State.READY, also_report=True)
        task.state = move(task.state, Event.CLAIM)
        if task.name == REPORT and task.run.updating is None and not task.run.has_reported:
            task.run.report(by_itself=True)
        task.attempts.append(Attempt(poll=task.polls))
        if not task.polls:  # outputs of a poll are merged into the task's
            task.output = None
        host = next((label for label in labels if label.startswith("@")), None)
        if task.folder is not None and host is not None:
            task.run.stores.setdefault(task.folder, host)
        return self._follow(before)

    def takes(self, key: Key, labels: Collection[str]) -> bool:
        """Whether a task manager with these labels may run a task: it has all that the task names (design 5.26), and the task's scratch folder (design 5.37)."""
        task = self.task(key)
        wanted = {*task.definition.runs_on}
        if task.store:
            wanted.add(task.store)
        return wanted <= set(labels)

    def _renew(self, run: Run, again: Collection[Task], may_wait: bool, item: str | None = None) -> None:
        """Scratch folders whose host is gone are made anew where all tasks that have used them run again; else that is refused, unless the tasks may wait for the host.

        ``item``: of what runs again, where that is of one item, or of none; None: of the run.
        """
        for folder, store in list(run.stores.items()):
            users = [task for task in run.shown if task.folder == folder]
            if not self._is_away(store) or not {*users} & {*again} or (item is not None and folder not in ("", item)):
                continue
            if all(task in again for task in users if task.attempts):
                del run.stores[folder]
            elif not may_wait:
                raise Refused(Reason.SCRATCH)

    def _is_away(self, store: str) -> bool:
        return not any(store in labels for labels in self.labels)

    def claimable(self, labels: Collection[str]) -> list[Task]:
        """The ready tasks that a task manager with these labels may claim now."""
        if not self.may_claim():
            return []
        return [task for task in self.tasks() if task.state is State.READY and self.takes(task.key, labels)]

    def may_claim(self) -> bool:
        running = sum(task.state is State.RUNNING for task in self.tasks())
        return not self.paused and (self.max_running is None or running < self.max_running)

    def finish(
        self, key: Key, end: End, exit_code: int | None = None, priority: int | None = None, late: bool = False
    ) -> Changes:
        """The attempt ended; what that means is said by ``states.verdict``. ``priority``: its output for what follows it. ``late``: its deadline is over."""
        before = self.states()
        task = self.task(key)
        assert task.state is State.RUNNING
        definition = task.definition
        task.late = task.late or (late and task.deferred)
        is_over = task.late and definition.deadline is not None
        circumstances = Circumstances(
            task.stop,
            task.failures,
            task.deferrals,
            task.losses,
            definition.retries,
            definition.on_lost,
            time_left=0.0 if is_over else None,
            poll_every=definition.poll.every if definition.poll else None,
            polls=task.polls,
        )
        event = verdict(end, exit_code, circumstances).event
        if end is End.LOST:
            task.losses += 1
        elif end in (End.UNREACHABLE, End.WITHHELD) or (end is End.EXITED and exit_code == 75):
            task.deferrals += 1
        elif event in (Event.FAIL, Event.DEFER):
            task.failures += 1
        if end is End.EXITED and exit_code == 75:
            task.deferred = True
            task.polls = definition.poll is not None
            task.failures = 0 if task.polls else task.failures
        task.state = move(task.state, event)
        if event is Event.STOP:
            task.cause = Cause.SUPERSEDED if task.stop_by else Cause.PERSON
            task.superseded_by = task.stop_by
        if not task.settled and task.stop != "restart" and self._is_gone(task.run):
            self._cancel(task, Cause.DROPPED)
        if task.name == REPORT and task.settled:
            self._close(task)
        task.stop = task.stop_by = None
        task.attempts[-1].live = False
        if end is End.LOST and task.state is State.WAITING and task.definition.scratch:
            users = [other for other in task.run.own if other.folder == task.folder and other.attempts]
            if task.store and self._is_away(task.store) and users in ([task], []):
                del task.run.stores[task.folder or ""]  # nobody else has left anything there
        said = None if end is End.LOST else priority
        if not task.attempts[-1].poll or said is not None:  # a lost poll leaves what was there
            task.output = said
        if task.state is State.COMPLETED:
            where = task.run.branch, task.key.inside
            self.latest[where] = task.run.place
            if not task.run.fill:  # what a backfill completed is no newer work
                self.highest[where] = max(task.run.place, self.highest.get(where, task.run.place))
            if task.run.trigger is Trigger.COMMIT:
                of_commits = self.highest_of_commits
                of_commits[where] = max(task.run.place, of_commits.get(where, task.run.place))
        for other in self._behind(task):
            if priority is not None and end is not End.LOST and self.has_not_started(other) and not other.prioritized:
                other.priority = priority
        return self._follow(before)

    def _close(self, report: Task) -> None:
        """Its command has ended. A run that has not reported by itself will do so yet."""
        run, was = report.run, report.run.updating
        if report.state is State.COMPLETED:
            own = next(n for n, one in enumerate(run.reports) if one.by_itself) if was is None else was
            run.sent.add(own)
        run.updating = None
        if was is not None and not run.has_reported and report.state is not State.CANCELED:
            self._report_again(report)

    def _report_again(self, report: Task, at_once: bool = False) -> None:
        """``at_once``: also while other tasks of its run have not settled."""
        if report.settled:
            report.state = move(report.state, Event.UPDATE)
        report.cause = report.superseded_by = None
        report.waived = report.as_completed = False
        report.failures = report.deferrals = report.losses = 0
        report.deferred = False
        for edge in report.into:
            edge.met = at_once or edge.source.settled
        if report.to_release:
            self._hold(report, by_a_guard=report.by_a_guard)

    def has_not_started(self, task: Task) -> bool:
        return task.state in (State.WAITING, State.HELD, State.READY)

    def _behind(self, task: Task) -> list[Task]:
        """What depends on the task inside its run, at any distance; on one of an item, in that item alone (design 5.24)."""
        found = [task]
        for one in found:
            depend = [edge.target for edge in one.out_of if edge.kind in DEPENDS and not edge.crossing]
            mine = [other for other in depend if other.name != REPORT and (not task.item or other.item == task.item)]
            found += [other for other in dict.fromkeys(mine) if other not in found]
        return [other for other in found[1:] if not other.implicit]

    def lose(self, key: Key) -> Changes:
        """The attempt's lease lapsed."""
        return self.finish(key, End.LOST)

    def hand_back(self, key: Key) -> Changes:
        """Its task manager shuts down, or stopped it as it was asked to."""
        return self.finish(key, End.STOPPED)

    def due(self, key: Key) -> Changes:
        before = self.states()
        task = self._in(key, State.DEFERRED, also_report=True)
        task.state = move(task.state, Event.DUE)
        return self._follow(before)

    # ---------------------------------------------------------------------------------------------------------------- a person's verbs

    def cancel(self, key: Key) -> Changes:
        before = self.states()
        self._refuse_unapproved([self.task(key)])
        self._stop_by_person(self._in(key, State.WAITING, State.HELD, State.READY, State.DEFERRED, State.RUNNING))
        return self._follow(before)

    def cancel_run(self, key: RunKey) -> Changes:
        before = self.states()
        run = self.run(key)
        tasks = [task for task in run.own if not task.settled]
        if run.deleted or not tasks:
            raise Refused(Reason.GONE if run.deleted else Reason.NOTHING)
        self._refuse_unapproved(tasks)
        for task in tasks:
            self._stop_by_person(task)
        return self._follow(before)

    def _stop_by_person(self, task: Task) -> None:
        if task.state is not State.RUNNING:
            self._cancel(task, Cause.PERSON)
        elif task.stop != "cancel":
            task.stop, task.stop_by = "cancel", None

    def restart(self, key: Key) -> Changes:
        before = self.states()
        self._refuse_unapproved([self.task(key)])
        task = self._in(key, State.RUNNING, also_report=True)
        if task.stop == "cancel":
            raise Refused(Reason.CANCELING, key)
        task.stop = "restart"
        return self._follow(before)

    def retry_failed(self, key: RunKey) -> Changes:
        """Exactly the failed tasks of a run that nobody waived; one that is refused keeps no other from it (design 5.33)."""
        before = self.states()
        run = self.run(key)
        if run.deleted:
            raise Refused(Reason.GONE)
        refusals: list[Refused] = []
        is_done = False
        for task in run.shown:
            if task.state is State.FAILED and not task.waived:
                try:
                    self.retry(task.key)
                    is_done = True
                except Refused as refused:
                    refusals.append(refused)
        if not is_done:
            raise refusals[0] if refusals else Refused(Reason.NOTHING)
        return self._follow(before)

    def refresh(self, key: Key) -> Changes:
        """Its poll is due now (design 5.29)."""
        if not self.task(key).polls:
            raise Refused(Reason.STATE)
        return self.due(key)

    def refresh_all(self) -> Changes:
        """The polls of all that is deferred are due now."""
        before = self.states()
        polled = [task for task in self.tasks() if task.polls and task.state is State.DEFERRED and not task.run.deleted]
        if not polled:
            raise Refused(Reason.NOTHING)
        for task in polled:
            task.state = move(task.state, Event.DUE)
        return self._follow(before)

    def retry(self, key: Key, force: bool = False, from_start: bool = False) -> Changes:
        """``from_start``: the command runs again also of a task that is polled."""
        before = self.states()
        self._refuse_unapproved([self.task(key)])
        is_deferred = self.task(key).state is State.DEFERRED
        root = self._in(key, State.FAILED, State.CANCELED, State.SKIPPED, State.DEFERRED, also_report=is_deferred)
        if root.state is State.DEFERRED:
            root.failures = root.deferrals = root.losses = 0
            root.polls = root.polls and not from_start
            root.deferred, root.late = root.polls, False
            return self.due(key)
        if root.state is State.SKIPPED and root.root:
            raise Refused(Reason.STATE, root.root.key)
        if by := [edge.source.key for edge in root.into if skips(edge)]:
            raise Refused(Reason.BLOCKED, *by)
        reopened, stay = self._judge_again([root])
        again = [root, *reopened]
        if not force:
            if self._is_gone(root.run):
                raise Refused(Reason.GONE)
            if root.cause is Cause.SUPERSEDED:
                raise Refused(Reason.SUPERSEDED, *([root.superseded_by.key] if root.superseded_by else []))
            self._refuse_outdated(again)
        self._renew(root.run, again, may_wait=True, item=root.item)
        root.polls = root.polls and not from_start
        self._bring_back(root)
        self._reopen(reopened, stay, again)
        self._hold_again(again)
        self._hold_reopened(reopened)
        return self._follow(before)

    def retry_from(
        self, key: RunKey, name: str, force: bool = False, from_start: bool = False, item: str | None = None
    ) -> Changes:
        """A task and everything behind it in its run, or (``item``) in one item, also what had completed (design 5.30; decision 0001, point 30)."""
        before = self.states()
        run = self.run(key)
        if run.deleted:
            raise Refused(Reason.GONE)
        if item is not None and item in run.deleted_items:
            raise Refused(Reason.GONE)
        named = [task for task in run.shown if task.name == name and item in (None, task.item)]
        if not named:
            raise Refused(Reason.UNKNOWN)
        ended = [task for task in named if task.settled or task.state is State.DEFERRED]
        starts = [task for task in ended if not task.root and not any(skips(edge) for edge in task.into)]
        if not starts or any(task.state is State.RUNNING for task in named):
            raise Refused(Reason.BLOCKED if ended and not starts else Reason.STATE)
        part = self.part(starts, item)
        if any(task.state is State.RUNNING for task in part):
            raise Refused(Reason.STATE)
        once = [task for task in part if task.definition.poll or task.definition.on_lost == "fail"]
        if not from_start and any(task.state in (State.COMPLETED, State.DEFERRED) for task in once):
            raise Refused(Reason.SECOND)
        superseded = [task for task in part if task.cause is Cause.SUPERSEDED and task.superseded_by not in part]
        if superseded and not force:
            raise Refused(Reason.SUPERSEDED)
        ended = [
            task
            for task in part
            if task in starts or task.state is State.DEFERRED or (task.settled and task.state is not State.SKIPPED)
        ]
        self._refuse_unapproved(ended)
        reopened, stay = self._judge_again(ended)
        again = [*ended, *reopened]
        if not force:
            if self._is_gone(run):
                raise Refused(Reason.GONE)
            self._refuse_outdated(again)
        self._renew(run, part, may_wait=False, item=item)
        for task in ended:
            task.polls = task.polls and not from_start
            self._bring_back(task, Event.REDO)
        self._reopen(reopened, stay, again)
        self._hold_again(again)
        self._hold_reopened(task for task in again if task not in starts)
        return self._follow(before)

    def part(self, starts: Iterable[Task], item: str | None = None) -> list[Task]:
        """The tasks and everything behind them in their run, or in one item, but for what a person skipped and what is behind that alone."""
        found = list(starts)
        for task in found:
            for edge in task.out_of:
                target = edge.target
                by_a_person = target.state is State.SKIPPED and target.root is None
                inside = edge.kind in DEPENDS and not edge.crossing and target.name != REPORT and not target.deleted
                inside = inside and item in (None, target.item)
                if inside and not by_a_person and target not in found:
                    found.append(target)
        return found

    def _bring_back(self, task: Task, event: Event = Event.RETRY) -> None:
        task.state = move(task.state, event)
        task.cause = task.superseded_by = None
        task.waived = task.as_completed = False
        task.failures = task.deferrals = task.losses = 0
        task.deferred, task.late = task.polls, False
        task.retried = True

    def _refuse_outdated(self, again: list[Task]) -> None:
        """Nothing comes back to work that later revisions have superseded, or have gone on from (design 5.11, 5.19)."""
        if by := [c.key for task in again for c in self._superseders(task.run, task.key.inside, bool(task.attempts))]:
            raise Refused(Reason.SUPERSEDED, *by)
        if by := [key for task in again for key in self._built_upon(task)]:
            raise Refused(Reason.STARTED, *by)
        programs = [task for task in again if not task.is_gate and task.name != REPORT]
        if by := [key for task in programs for key in self._completed_after(task.run, task.key.inside)]:
            raise Refused(Reason.OVERWRITES, *by)

    def _completed_after(self, run: Run, name: Name) -> list[Key]:
        """Where a task of a name has completed at a later place: an older revision never replaces its work unasked (design 5.19), though it is purged."""
        if run.trigger is Trigger.SUBMISSION and not name.item:
            return []  # it is the work of this submission alone
        place = self.highest.get((run.branch, name), run.place)
        return [Key(run.branch, *place, *name)] if place > run.place else []

    def is_overtaken(self, key: Key) -> bool:
        """Whether a task may be retried by force alone, as it has completed at a later place."""
        task = self.task(key)
        return not (task.is_deleted or task.is_gate or task.root) and bool(self._completed_after(task.run, key.inside))

    def _built_upon(self, task: Task) -> set[Key]:
        """What of later runs has started on the strength of this task, directly or through gates that passed or what never began (design 5.19)."""
        sources = [task, *(edge.target for edge in task.out_of if edge.target.is_gate_of_list and not edge.crossing)]
        purged = {key for source in sources for key in source.purged_starts}
        return purged | self._started_behind([edge for source in sources for edge in source.out_of if edge.crossing])

    def _started_behind(self, left: list[Edge], purged: Run | None = None) -> set[Key]:
        """What has started behind edges. ``purged``: inside this run alone; a way that leads out of it counts as a start."""
        started: set[Key] = set()
        seen: set[Key] = set()
        while left:
            edge = left.pop()
            target = edge.target
            never_began = target.state in (State.CANCELED, State.SKIPPED) and not target.attempts
            if target.name == REPORT:
                continue  # what it told of is no work that an older revision could replace
            if target.key in seen or not (edge.met or (never_began and not edge.crossing)):
                continue
            seen.add(target.key)
            if target.attempts or target.run is not (purged or target.run):
                started.add(target.key)
            elif target.is_gate and target.state is State.COMPLETED:
                started |= target.purged_starts
                left += [edge for edge in target.out_of if edge.met]
            elif never_began:
                started |= target.purged_starts
                of_run = [edge for edge in target.out_of if not edge.crossing]
                left += [edge for edge in target.out_of if edge.crossing]
                left += [
                    e for e in of_run if e.target.state in (State.CANCELED, State.SKIPPED) and not e.target.attempts
                ]
        return started

    def skip(self, key: Key, as_completed: bool = False, force: bool = False) -> Changes:
        before = self.states()
        self._refuse_unapproved([self.task(key)])
        task = self._in(key, State.WAITING, State.HELD, State.READY, State.DEFERRED, State.FAILED, State.REJECTED)
        reopened, stay = self._judge_again([task]) if as_completed else ([], {})
        if reopened and not force:
            if self._is_gone(task.run):
                raise Refused(Reason.GONE)
            self._refuse_outdated(reopened)
        if not task.settled:
            task.state = move(task.state, Event.SKIP)
            if as_completed:
                self._stand_alone([task])
        task.waived = True
        if as_completed:
            task.as_completed = True
            self._reopen(reopened, stay, reopened)
            self._hold_again(reopened)
            self._hold_reopened(reopened)
        return self._follow(before)

    def _stand_alone(self, tasks: Collection[Task]) -> None:
        """The gate of its list waits for an item no more: a ``PREV:*`` that still waits for the gate waits for the item itself, whatever it knew of it (decision 0001, point 12)."""
        for task in tasks:
            gates = [
                e.target
                for e in task.out_of
                if e.target.is_gate_of_list and not e.crossing and e.when is When.COMPLETED
            ]
            for edge in [e for gate in gates for e in gate.out_of if e.crossing and e.target.is_star and not e.met]:
                if edge.when is not When.COMPLETED:
                    continue
                known = [e for e in edge.target.into if e.source is task and e.when is edge.when]
                for one in known:
                    one.met = False
                if not known:
                    self._edge(task, edge.target, edge.when)

    def skip_until(self, name: str, branch: str, until: int) -> Changes:
        """Waive what failed or was rejected, up to a revision, and nothing else (design 5.9)."""
        before = self.states()
        runs = [r for r in self.on_branch(branch) if r.place.number <= until and not r.deleted]
        tasks = [task for run in runs for task in run.named(name) if not (task.implicit or task.deleted)]
        bad = [task for task in tasks if task.state in (State.FAILED, State.REJECTED) and not task.waived]
        self._refuse_unapproved(bad)
        for task in bad:
            task.waived = True
        return self._follow(before)

    def delete(self, key: RunKey) -> Changes:
        before = self.states()
        run = self.run(key)
        if run.deleted:
            raise Refused(Reason.GONE)
        self._refuse_unapproved(run.own)
        commands = [*run.own, *self._report_with_command(run)]
        if any(task.state is State.RUNNING and not task.polls for task in commands):
            raise Refused(Reason.STATE)
        run.deleted = True
        run.canceled_with_it = [task for task in commands if not (task.settled or task.deleted)]
        for task in run.canceled_with_it:
            self._stop_by_person(task)  # a poll keeps what it finds before it has stopped
        return self._follow(before)

    def _report_with_command(self, run: Run) -> list[Task]:
        report = run.tasks.get(Name(REPORT))
        return [report] if report and not report.is_gate else []

    def undelete(self, key: RunKey) -> Changes:
        """What the deletion canceled comes back as held; so does what stayed skipped as the run was not judged again (design 5.27)."""
        before = self.states()
        run = self.run(key)
        if not run.deleted:
            raise Refused(Reason.STATE)
        self._refuse_unapproved(run.own)
        run.deleted = False
        canceled = [task for task in run.canceled_with_it if task.state is State.CANCELED]
        back, reports = ([task for task in canceled if (task.name == REPORT) is is_it] for is_it in (False, True))
        run.canceled_with_it = []
        stale = {
            task.root
            for task in run.own
            if task.state is State.SKIPPED and task.root and task.root.run is not run
            if task.root.root or not _is_root(task.root)
        }
        reopened, stay = self._judge_again([*back, *stale])
        for task in back:
            self._bring_back(task)
        self._reopen(reopened, stay, [*back, *reopened])
        for task in [*back, *reopened]:
            if task.run is run and not task.implicit:
                self._hold(task, by_a_guard=task.by_a_guard)
        self._hold_again(task for task in reopened if task.run is not run)
        self._hold_reopened(reopened)
        for report in reports if not run.has_reported else ():
            run.updating = None
            self._report_again(report)
        return self._follow(before)

    def delete_item(self, key: RunKey, item: str) -> Changes:
        """Its tasks are canceled and count nowhere, and what waited for them inside the run goes on; what was skipped because of them comes back, unless that is out of date."""
        before = self.states()
        run, tasks = self._item(key, item)
        if item in run.deleted_items:
            raise Refused(Reason.GONE)
        self._refuse_unapproved(tasks)
        if any(task.state is State.RUNNING and not task.polls for task in tasks):
            raise Refused(Reason.STATE)
        run.deleted_items[item] = [task for task in tasks if not task.settled]
        for task in run.deleted_items[item]:
            self._stop_by_person(task)
        for task in tasks:
            task.deleted = True
        behind = [task for task in run.tasks.values() if task.root in tasks and not task.deleted]
        reopened, stay = self._judge_candidates(tasks, behind)
        if self._is_gone(run) or any(self.is_outdated(task) for task in reopened):
            reopened = []
        self._reopen(reopened, stay, reopened)
        self._hold_again(reopened)
        self._hold_reopened(reopened)
        self._stand_alone(tasks)
        for task in tasks:
            for edge in task.out_of:
                inside = edge.kind in DEPENDS and not edge.crossing and edge.target.name != REPORT
                if inside and edge.when is not When.FAILED and edge.target not in tasks:
                    edge.met = True
        return self._follow(before)

    def undelete_item(self, key: RunKey, item: str) -> Changes:
        """What the deletion canceled comes back as held. What waits for all items still waits for this one again."""
        before = self.states()
        run, tasks = self._item(key, item)
        if item not in run.deleted_items:
            raise Refused(Reason.STATE)
        self._refuse_unapproved(tasks)
        back = [task for task in run.deleted_items.pop(item) if task.state is State.CANCELED]
        for task in tasks:
            task.deleted = False
        stale = {t.root for t in tasks if t.root and (t.root.root or not _is_root(t.root))}
        reopened, stay = self._judge_again([*back, *stale])
        self._unmeet([task for task in tasks if task.bad and task not in back and task not in reopened])
        for task in back:
            self._bring_back(task)
        self._reopen(reopened, stay, [*back, *reopened])
        for task in [*back, *reopened]:
            if task in tasks:
                self._hold(task, by_a_guard=task.by_a_guard)
        self._hold_again(task for task in reopened if task not in tasks)
        self._hold_reopened(reopened)
        return self._follow(before)

    def _item(self, key: RunKey, item: str) -> tuple[Run, list[Task]]:
        run = self.run(key)
        tasks = [task for task in run.own if task.item == item]
        if run.deleted or not tasks:
            raise Refused(Reason.GONE if run.deleted else Reason.UNKNOWN)
        return run, tasks

    def on_item(self, key: RunKey, item: str, verb: str, *words: Any) -> Changes:
        """Do to each task of an item what a verb on one does, if it concerns the task when its turn comes; one that is refused keeps no other from it (design 5.33)."""
        before = self.states()
        run, tasks = self._item(key, item)
        if item in run.deleted_items:
            raise Refused(Reason.GONE)
        refusals: list[Refused] = []
        is_done = False
        concerned = [task for task in tasks if concerns(verb, task)]
        for task in concerned[::-1] if verb == "cancel" else concerned:
            if concerns(verb, task):
                try:
                    getattr(self, verb.removesuffix("_failed"))(task.key, *words)
                    is_done = True
                except Refused as refused:
                    refusals.append(refused)
        if not is_done:
            raise refusals[0] if refusals else Refused(Reason.NOTHING)
        return self._follow(before)

    def purge(self, key: RunKey) -> Changes:
        """A settled run is gone for good, unless others hang on it (design 5.27)."""
        before = self.states()
        run = next((run for run in self.runs if run.key == key), None)
        if run is None:
            raise Refused(Reason.UNKNOWN)
        if not all(task.settled for task in run.tasks.values()):
            raise Refused(Reason.STATE)
        if self.is_waited_for(run):
            raise Refused(Reason.WAITED_FOR)
        into = [edge for task in run.tasks.values() for edge in task.into if edge.crossing]
        for edge in into:
            edge.source.purged_starts |= self._started_behind([edge], run)
        for task in run.tasks.values():
            for edge in task.into:
                edge.source.out_of.remove(edge)
                self.edges.remove(edge)
            task.into = []
            for edge in task.out_of:  # it counts as met
                edge.target.into.remove(edge)
                self.edges.remove(edge)
        self.runs.remove(run)
        return self._follow(before)

    def is_waited_for(self, run: Run) -> bool:
        """Whether what others wait for, or are skipped because of, would go with it."""
        own = list(run.tasks.values())
        never_began = [task for task in own if task.state in (State.CANCELED, State.SKIPPED)]
        blocks = any(
            self.blocks(task) and any(edge.crossing and edge.kind is not Kind.EXCLUSIVE for edge in self.unmet(task))
            for task in never_began
        )
        out = [edge for task in own for edge in task.out_of if edge.crossing]
        waits = any(
            not edge.target.settled or edge.product or edge.when is When.FAILED or self._passes_on(edge.target)
            for edge in out
            if not edge.met
        ) or any(
            # It will be given the source's outputs.
            not edge.target.settled and edge.kind is Kind.DECLARED and not edge.target.implicit
            for edge in out
            if edge.met
        )
        roots = any(task.root and task.root.run is run for task in self.tasks() if task.run is not run)
        return blocks or waits or roots

    def _passes_on(self, task: Task) -> bool:
        return task.state in (State.CANCELED, State.SKIPPED) and self.blocks(task) is not Blocks.NOTHING

    def report(self, key: RunKey, now: bool = False) -> Changes:
        """A further report of a run; ``now``: also while some of its tasks have not settled (design 5.32)."""
        run = self.run(key)
        if run.deleted:
            raise Refused(Reason.GONE)
        if Name(REPORT) not in run.tasks:
            raise Refused(Reason.NOTHING)
        if not now and not all(task.settled for task in (run.tasks[Name(COMMIT)], *run.own)):
            raise Refused(Reason.STATE)
        before = self.states()
        for report in self._report_with_command(run):
            self._refuse_unapproved([report])
            is_idle = report.settled or (report.state is State.WAITING and self.unmet(report))
            if not is_idle:
                raise Refused(Reason.STATE)
        run.report(by_itself=False)
        if run.reports[-1].given:
            run.updating = len(run.reports) - 1
            self._report_again(run.tasks[Name(REPORT)], at_once=True)
        return self._follow(before)

    def prioritize(self, key: Key, priority: int) -> Changes:
        before = self.states()
        self._prioritize([self._in(key, *State)], priority)
        return self._follow(before)

    def prioritize_run(self, key: RunKey, priority: int) -> Changes:
        run = self.run(key)
        if run.deleted:
            raise Refused(Reason.GONE)
        before = self.states()
        self._prioritize(run.own, priority)
        return self._follow(before)

    def _prioritize(self, tasks: list[Task], priority: int) -> None:
        changed = [task for task in tasks if self.has_not_started(task)]
        if not changed:
            raise Refused(Reason.STATE)
        for task in changed:
            task.priority, task.prioritized = priority, True

    def limit(self, max_running: int | None) -> Changes:
        self.max_running = max_running
        return {}

    def pause(self) -> Changes:
        before = self.states()
        self.paused = True
        return self._follow(before)

    def resume(self) -> Changes:
        """What waited to fire its ``cancels`` enters now."""
        if not self.paused:
            raise Refused(Reason.STATE)
        before = self.states()
        self.paused = False
        return self._follow(before)

    def hold(self, key: Key) -> Changes:
        """A task that has not started waits for a release (design 5.21)."""
        before = self.states()
        self._hold(self._in(key, State.WAITING, State.READY))
        return self._follow(before)

    def hold_run(self, key: RunKey) -> Changes:
        before = self.states()
        run = self.run(key)
        if run.deleted:
            raise Refused(Reason.GONE)
        if not (tasks := self._holdable(run)):
            raise Refused(Reason.NOTHING)
        for task in tasks:
            self._hold(task)
        return self._follow(before)

    def hold_archive(self) -> Changes:
        """What has not begun is held, and what is planned until the hold ends."""
        before = self.states()
        tasks = [task for run in self.runs for task in self._holdable(run) if not _has_begun(task)]
        if self.on_hold and not tasks:
            raise Refused(Reason.NOTHING)
        self.on_hold = True
        for task in tasks:
            self._hold(task)
        return self._follow(before)

    def unhold(self) -> Changes:
        """The archive is on hold no more. What is held stays so."""
        if not self.on_hold:
            raise Refused(Reason.NOTHING)
        self.on_hold = False
        return {}

    def release(self, key: Key, force: bool = False, skip_outdated: bool = False) -> Changes:
        """A held task enters like any other (design 5.22)."""
        return self._release([self._in(key, State.HELD, also_report=True)], force, skip_outdated)

    def release_run(self, key: RunKey, force: bool = False, skip_outdated: bool = False) -> Changes:
        run = self.run(key)
        if run.deleted:
            raise Refused(Reason.GONE)
        tasks = [*run.own, *self._report_with_command(run)]
        return self._release([task for task in tasks if task.state is State.HELD], force, skip_outdated)

    def release_all(self, force: bool = False, skip_outdated: bool = False) -> Changes:
        return self._release([task for task in self.tasks() if task.state is State.HELD], force, skip_outdated)

    def _release(self, tasks: list[Task], force: bool, skip_outdated: bool) -> Changes:
        """What is out of date is named and stays held, or is waived; the rest is released (design 5.19)."""
        before = self.states()
        if self.on_hold or not tasks:
            raise Refused(Reason.ON_HOLD if self.on_hold else Reason.NOTHING)
        tasks = [task for task in tasks if not self.is_closed(task)]
        if not tasks:
            raise Refused(Reason.GUARDED)
        outdated = [task for task in tasks if not force and self.is_outdated(task)]
        if len(outdated) == len(tasks) and not skip_outdated:
            raise Refused(Reason.OVERWRITES, *(task.key for task in outdated))
        if skip_outdated:
            for task in outdated:
                task.state, task.waived = move(task.state, Event.SKIP), True
            self._follow(before)  # what needs them is skipped with them, before the rest is released
        for task in tasks:
            if task not in outdated and task.state is State.HELD:
                task.state = move(task.state, Event.RELEASE)
                task.to_release, task.by_a_guard, task.released = False, False, True
        return self._follow(before)

    def is_outdated(self, task: Task) -> bool:
        if self._is_gone(task.run):
            return True
        try:
            self._refuse_outdated([task])
        except Refused:
            return True
        return False

    def _hold(self, task: Task, by_a_guard: bool = False) -> None:
        task.state = move(task.state, Event.HOLD)
        task.to_release, task.by_a_guard, task.released = True, by_a_guard, False

    def _holdable(self, run: Run) -> list[Task]:
        """What a hold of the whole run holds; its gates pass."""
        return [task for task in run.own if task.state in (State.WAITING, State.READY) and not task.is_gate]

    def _hold_again(self, back: Iterable[Task]) -> None:
        """What comes back to work is held where nobody has released it, or where its archive is on hold and its run has not begun."""
        for task in back:
            if task.to_release or (self.on_hold and not task.is_gate and not _has_begun(task)):
                self._hold(task, by_a_guard=task.by_a_guard)

    def _hold_reopened(self, reopened: Iterable[Task]) -> None:
        """What comes back because of another task, too, where the guard came after it had been skipped."""
        for task in reopened:
            if task.name in self.guards and not task.to_release and not task.released:
                self._hold(task, by_a_guard=True)

    def guard(self, names: frozenset[str]) -> Changes:
        """Hold what has not started of the tasks with these names, and what is planned of them; what was guarded before is held already, or released."""
        before = self.states()
        new, self.guards = names - self.guards, names
        for task in self.tasks():
            if task.name in new and task.state in (State.WAITING, State.READY) and not (task.implicit and task.is_gate):
                self._hold(task, by_a_guard=True)
        return self._follow(before)

    def act_as(self, approver: bool) -> Changes:
        """Whoever says the next verbs is an approver, or is not."""
        self.approves = approver
        return {}

    def is_closed(self, task: Task) -> bool:
        """Whether whoever speaks may not act on the task."""
        return not self.approves and (task.by_a_guard or task.name in self.guards)

    def _refuse_unapproved(self, tasks: Iterable[Task]) -> None:
        if closed := [task.key for task in tasks if self.is_closed(task)]:
            raise Refused(Reason.GUARDED, *closed)

    def rewrite(self, branch: str, dropped: Iterable[int]) -> Changes:
        """A force-push took these revisions off the branch (design 5.16)."""
        before = self.states()
        numbers = set(dropped)
        for number in numbers:
            self.revisions[branch, number].dropped = True
        for run in self.on_branch(branch):
            if run.place.number in numbers:
                run.dropped = True
                self._cancel_unstarted(run)
        return self._follow(before)

    def delete_branch(self, branch: str) -> Changes:
        before = self.states()
        self.deleted_branches.add(branch)
        for run in self.on_branch(branch):
            self._cancel_unstarted(run)
        return self._follow(before)

    def track(self, branch: str) -> Changes:
        """A deleted branch came back; what was canceled stays so."""
        self.deleted_branches.discard(branch)
        return {}

    def _is_gone(self, run: Run) -> bool:
        return run.dropped or run.branch in self.deleted_branches

    def _cancel_unstarted(self, run: Run) -> None:
        for task in (*run.own, *self._report_with_command(run)):
            if not task.settled and task.state is not State.RUNNING:
                self._cancel(task, Cause.DROPPED)

    def _judge_again(self, roots: Collection[Task]) -> tuple[list[Task], dict[Task, Task]]:
        """Of the tasks skipped because of ``roots``: those that come back, and those that something else still skips, with their new root."""
        candidates = [
            task
            for task in self.tasks()
            if task.state is State.SKIPPED
            and task.root in roots
            and task.root
            and not task.deleted
            and (task.run is task.root.run or not (task.run.deleted or task.run.dropped))
        ]
        return self._judge_candidates(roots, candidates)

    def _judge_candidates(self, roots: Collection[Task], candidates: list[Task]) -> tuple[list[Task], dict[Task, Task]]:
        stay: dict[Task, Task] = {}

        def other_roots(task: Task) -> list[Task]:
            others = [edge for edge in task.into if edge.source not in roots and edge.source not in candidates]
            return [
                stay.get(edge.source) or edge.source.root or edge.source
                for edge in others
                if skips(edge, stay.get(edge.source))
            ]

        while found := {task: self._first(others) for task in candidates if (others := other_roots(task))}:
            stay |= found
            candidates = [task for task in candidates if task not in found]
        return candidates, stay

    def _reopen(self, reopened: list[Task], stay: dict[Task, Task], again: list[Task]) -> None:
        """Put back to waiting; what hangs on one that will end ``again`` waits for it again, unless its own attempt is under way."""
        for task, root in stay.items():
            task.root = root
        for task in reopened:
            task.state, task.root, task.retried = move(task.state, Event.REOPEN), None, True
        gates = self._gates_again(again)
        for gate in gates:
            self._bring_back(gate, Event.REDO)
        self._unmeet([*again, *gates])
        behind, stay = self._judge_again(gates)
        if behind or stay:  # they wait for the failure of a gate, which is over no more
            self._reopen(behind, stay, behind)
            self._hold_again(behind)
            self._hold_reopened(behind)

    def _unmeet(self, again: Collection[Task]) -> None:
        for edge in self.edges:
            if edge.source not in again or edge.crossing or edge.kind is Kind.STOPPING:
                continue
            run = edge.target.run
            if edge.target.name == REPORT and (
                edge.source.settled or run.updating is not None or run.has_reported or edge.target.settled
            ):
                continue
            if edge.target.state in (State.RUNNING, State.DEFERRED):
                continue
            edge.met = False
            edge.target.asks = False  # also where a gate meets the edge again at once: the task enters anew
            if edge.target.state is State.READY:
                edge.target.state = move(edge.target.state, Event.UNMEET)

    def _gates_again(self, again: Collection[Task]) -> list[Task]:
        """The gates of lists that wait again as items of theirs come back, with the gates that passed behind them: those behind which nothing has started (design 5.30)."""
        found: list[Task] = []
        for gate in {
            edge.target: None
            for task in again
            for edge in task.out_of
            if edge.target.is_gate_of_list and not edge.crossing
        }:
            if gate.state is not State.COMPLETED:
                continue
            behind, passed = [gate], [gate]
            for one in passed:
                targets = [
                    e.target for e in one.out_of if e.kind in DEPENDS and not e.crossing and e.target.name != REPORT
                ]
                new = [target for target in dict.fromkeys(targets) if target not in behind]
                behind += new
                passed += [target for target in new if target.is_gate and target.state is State.COMPLETED]
            started = any(task.attempts and not self.has_not_started(task) for task in behind)
            if not started and not any(self._built_upon(task) for task in passed):
                found += [task for task in passed if task not in found]
        return found

    def _in(self, key: Key, *states: State, also_report: bool = False) -> Task:
        """The task, where the verb is possible for it."""
        task = self.task(key)
        if task.implicit and not (also_report and task.name == REPORT):
            raise Refused(Reason.IMPLICIT, key)
        if task.is_deleted:
            raise Refused(Reason.GONE, key)
        if task.state not in states:
            raise Refused(Reason.STATE, key)
        return task

    # ---------------------------------------------------------------------------------------------------------------------- what is seen

    def states(self) -> dict[Key, State]:
        return {task.key: task.state for task in self.tasks()}

    def look(self) -> dict[Key, Seen]:
        return {
            task.key: Seen(
                task.state,
                task.root.name if task.root else None,
                task.stop,
                len(task.attempts),
                sum(attempt.live for attempt in task.attempts),
                sum(attempt.poll for attempt in task.attempts),
                self.blocks(task) if task.state in (State.CANCELED, State.SKIPPED) else 0,
                task.priority,
            )
            for task in self.tasks()
        }

    def look_at_runs(self) -> dict[RunKey, RunSeen]:
        return {
            run.key: RunSeen(
                self.run_state(run.key),
                sum(task.state is State.SKIPPED for task in run.shown),
                sum(task.state is State.CANCELED and task.superseded_by is not None for task in run.shown),
                tuple((r.by_itself, r.changes, r.given, n in run.sent) for n, r in enumerate(run.reports)),
                run.changed_since_report,
            )
            for run in self.runs
        }

    def run_state(self, key: RunKey) -> str:
        """Design 4; the first that applies."""
        run = self.run(key)
        tasks = [run.tasks[Name(COMMIT)], *run.own]
        settled = all(task.settled for task in tasks)
        shown = run.shown
        begun = any(task.attempts for task in shown)
        held = any(task.state is State.HELD for task in shown)
        canceled = [task for task in shown if task.state is State.CANCELED]
        bad = any(task.state in (State.FAILED, State.REJECTED) and not task.waived for task in shown)
        bad = bad or any(self._lacks_a_product(task) for task in shown)
        if run.deleted:
            return "deleted"
        if run.workflow.faults or (settled and bad):
            return "failed"
        if not settled:
            return "processing" if begun else "held" if held else "pending"
        if Name(REPORT) in run.tasks and not run.tasks[Name(REPORT)].settled:
            return "reporting"
        if any(task.superseded_by is None for task in canceled):
            return "canceled"
        if any(task.superseded_by is not None and task.superseded_by.run is not run for task in canceled):
            return "superseded"
        return "completed"

    def _lacks_a_product(self, task: Task) -> bool:
        """Whether it was skipped because the product of a task of another run will not come (design 5.18)."""
        is_from_elsewhere = task.root is not None and task.root.run is not task.run
        return is_from_elsewhere and any(edge.product for edge in self.unmet(task))

    def graph(self, branch: str, *numbers: int) -> set[tuple[Key, EdgeKind, Key]]:
        """The edges that a person sees of these revisions, as (who waits or cancels, how, whom) (design 5.3)."""
        shown = set()
        for task in (t for run in self.on_branch(branch) if run.place.number in numbers for t in run.tasks.values()):
            declared = [edge for edge in task.into if edge.kind is Kind.DECLARED]
            inside = any(not edge.crossing for edge in declared)
            for edge in task.into if task.name != REPORT else []:
                if edge.kind is Kind.DECLARED or (edge.kind is Kind.IMPLICIT and not inside):
                    shown.add((task.key, EdgeKind.DEPENDS, edge.source.key))
            for entry in task.definition.cancels:
                name = Name(entry.task or task.name)
                if (
                    victim := self.nearest(name, task.run) if entry.previous else task.run.tasks.get(name)
                ):  # without lists
                    shown.add((task.key, EdgeKind.CANCELS, victim.key))
        return shown

    # -------------------------------------------------------------------------------------------------------------------- the invariants

    def snapshot(self) -> dict[Key, tuple[State, Key | None, int]]:
        return {t.key: (t.state, t.root.key if t.root else None, len(t.attempts)) for t in self.tasks()}

    def check_invariants(
        self, before: Mapping[Key, tuple[State, Key | None, int]] | None = None, judged_again: Collection[Key] = ()
    ) -> None:
        """What must hold whatever happens. ``before``: a snapshot from before the step; ``judged_again``: the tasks that the step retried, waived or brought back."""
        waits_for: dict[Task, list[Edge]] = {}
        for edge in self.edges:
            if not edge.met:
                waits_for.setdefault(edge.target, []).append(edge)
        # A task that was skipped in a deleted or dropped run or item keeps its root, whatever becomes of the root. Tasks of other runs that were skipped with it do, too.
        kept_by_what_is_gone = {task.root for task in self.tasks() if task.is_deleted or task.run.dropped} - {None}
        for task in self.tasks():
            unmet = waits_for.get(task, [])
            live = [attempt for attempt in task.attempts if attempt.live]
            assert len(live) <= 1, f"{task.key} has two live attempts"
            assert bool(live) == (task.state is State.RUNNING), (
                f"{task.key} is {task.state} with {len(live)} live attempts"
            )
            assert task.state is not State.WAITING or unmet or self.is_parked(task) or task.asks, (
                f"{task.key} is forgotten"
            )
            assert not task.asks or (task.state is State.WAITING and not unmet), (
                f"{task.key} is {task.state} and asks for locks"
            )
            assert task.state is not State.READY or not unmet, f"{task.key} is ready too early"
            assert (task.root is None) or task.state is State.SKIPPED, f"{task.key} is {task.state} with a root"
            gone = task.root in kept_by_what_is_gone
            assert gone or task.root is None or (_is_root(task.root) and task.root.root is None), (
                f"{task.key} has no true root"
            )
            assert task.stop is None or task.state is State.RUNNING, f"{task.key} is asked to stop but does not run"
            assert task.state is not State.HELD or task.to_release, f"{task.key} is held by nothing"
            assert not task.to_release or task.state in (State.HELD, State.CANCELED, State.SKIPPED), (
                f"{task.key} is {task.state}, and nobody has released it"
            )
            if task.state in (State.WAITING, State.HELD):
                assert not any(skips(edge) for edge in unmet), f"{task.key} waits for what will not come"
        granted = [task for task in self.tasks() if task.state is State.READY or task.state is State.RUNNING]
        for name in {name for task in granted if task.state is State.READY for name in task.locks}:
            having = [task.key for task in granted if name in task.locks]
            room = (self.installation if is_global(name) else self).capacities.get(name, 1)
            assert is_global(name) or len(having) <= (room or len(having)), f"{having} have {name} at once"
        for branch in {run.branch for run in self.runs}:
            passed = [run.tasks[Name(COMMIT)].settled for run in self.commit_runs(branch)]
            assert passed == sorted(passed, reverse=True), f"{branch}: COMMIT out of order"
        if before is not None:
            self._check_step(before, judged_again)

    def _check_step(self, before: Mapping[Key, tuple[State, Key | None, int]], judged_again: Collection[Key]) -> None:
        for task in self.tasks():
            state, root, attempts = before.get(task.key, (None, None, 0))
            if state in SETTLED and task.state is not state:
                waits_again = task.is_gate and any(other.item for other in task.run.own)  # behind a list
                waits_again = waits_again or (root is not None and self.task(root).is_gate)
                allowed = waits_again or task.key in judged_again or root in judged_again
                assert allowed, f"{task.key} was {state} and is {task.state}"
            if len(task.attempts) > attempts:
                self._check_start(task)
            if task.name == COMMIT and task.run.trigger is Trigger.COMMIT and task.settled and state not in SETTLED:
                for run in self.on_branch(task.run.branch):
                    if run.place < task.run.place and run.trigger is not Trigger.SUBMISSION:
                        for other in run.own:
                            shut = other.definition.exclusive and not other.settled and not other.retried
                            assert not shut, f"{task.key} passed {other.key}, which is exclusive"

    def _overtaken(self, task: Task, seen: set[Task] | None = None) -> Iterator[Task]:
        """What should have been over before the task: its sources across runs, and what those that never began waited for (design 5.9).

        ``seen``: what was gone through already. Many ways lead to each task, and each way anew would take for ever.
        """
        seen = set() if seen is None else seen
        for edge in task.into:
            if edge.kind not in (Kind.DECLARED, Kind.IMPLICIT) or (not edge.crossing and edge.source.name == COMMIT):
                continue
            source = edge.source
            if edge.product and not source.settled:
                continue  # what never began holds up nobody with the product that it needed
            if source.retried or (not edge.crossing and source.attempts):
                continue
            if edge.crossing and not source.settled:
                yield source
            elif (
                source not in seen
                and not source.attempts
                and (source.bad if edge.crossing and not edge.product else not (source.bad and edge.met))
            ):
                seen.add(source)
                yield from self._overtaken(source, seen)

    def _check_start(self, task: Task) -> None:
        """Called after the step that started the task; its sources are read afresh, not from what the edges remember."""
        if task.name == REPORT and task.run.updating is not None:
            return
        if len(task.attempts) == 1 and not task.retried:
            assert not (older := [other.key for other in self._overtaken(task)]), f"{task.key} overtook {older}"
        for edge in task.into:
            if edge.kind is Kind.STOPPING:
                assert not (edge.attempt and edge.attempt.live), f"{task.key} started beside {edge.source.key}"
            elif not edge.crossing and len(task.attempts) == 1:
                assert self._is_satisfied(edge), f"{task.key} started before {edge.source.key}"
            else:
                assert edge.met, f"{task.key} started before {edge.source.key}"


def _is_of_key(one: str, other: str, exactly: bool = False) -> bool:
    """Whether a task supersedes another one of the name that it cancels: of an item those of its key, and those without a list; ``exactly``: its key alone."""
    return one == other or (not exactly and not (one and other))


def concerns(verb: str, task: Task) -> bool:
    """Whether a verb on an item acts on a task of it."""
    failed = task.state is State.FAILED and not task.waived
    return {
        "cancel": not task.settled,
        "restart": task.state is State.RUNNING,
        "retry": task.state in (State.FAILED, State.DEFERRED)
        or (task.state is State.CANCELED and task.superseded_by is None),
        "retry_failed": failed,
        "skip": task.state in MOVES[Event.SKIP].sources or failed or (task.state is State.REJECTED and not task.waived),
        "hold": task.state in MOVES[Event.HOLD].sources and not task.is_gate,
        "release": task.state is State.HELD,
        "refresh": task.polls and task.state is State.DEFERRED,
        "prioritize": task.state in (State.WAITING, State.HELD, State.READY),
    }[verb]


def skips(edge: Edge, root: Task | None = None) -> bool:
    """Whether the edge's source takes its dependent down with it (design 5.6, 5.8, 5.18). ``root``: that of the source, if it is to get another one."""
    if edge.when is When.FAILED:
        return not edge.met and spares(edge.source) and edge.target.name not in (COMMIT, REPORT)
    return (
        not edge.met
        and (not edge.crossing or (edge.product and lost(edge.source, root)))
        and edge.when is When.COMPLETED
        and edge.source.bad
        and edge.target.name not in (COMMIT, REPORT)
    )


def spares(source: Task) -> bool:
    """Whether what waits for a failure of the task is not needed: it ended otherwise (design 5.6)."""
    return source.settled and source.state not in (State.FAILED, State.REJECTED)


def _has_begun(task: Task) -> bool:
    """Whether its run, or of a list its item, has begun: an attempt of one of the tasks has started (design 5.21)."""
    return any(other.attempts for other in task.run.own if task.item in ("", other.item))


def _is_root(task: Task) -> bool:
    """Whether others may be skipped because of it: it is bad, or completed where they wait for its failure."""
    return task.bad or (task.settled and any(edge.when is When.FAILED for edge in task.out_of))


def lost(source: Task, root: Task | None = None) -> bool:
    """Whether the product of a bad task will not come, unless a person retries it (design 5.18): a failure that nobody waived may be mended."""
    root = root or source.root or source
    return not source.as_completed and (root.state is not State.FAILED or root.waived or root.is_deleted)


def _exists(task: TaskDefinition, run: Run, changed: frozenset[str] | None) -> bool:
    """Whether the filters let the task into the run; ``changed`` None: changed paths do not count (design 3)."""
    on_branch = not task.branches or any(fnmatchcase(run.branch, glob) for glob in task.branches)
    touched = (
        not task.paths or changed is None or any(fnmatchcase(path, glob) for path in changed for glob in task.paths)
    )
    return task.name not in (COMMIT, REPORT) and run.trigger in task.on and on_branch and touched


def _by_item(workflow: Workflow, task: TaskDefinition, item: str, name: str) -> bool:
    """Whether an edge between a task and one of a name connects items: both are over the same list (design 5.30)."""
    return bool(item) and any(other.name == name and other.foreach == task.foreach for other in workflow.tasks)


def _items(workflow: Workflow, task: TaskDefinition) -> list[str]:
    """The keys of a task's list; that of a task without a list is empty."""
    items = workflow.items_of(task)
    return [""] if items is None else [item.key for item in items]


def _over_files(workflow: Workflow, files: Mapping[str, tuple[Item, ...]]) -> Workflow:
    """Definitions of one revision over the list files of another one."""
    lists = {**workflow.lists}
    tasks = list(workflow.tasks)
    for place, task in enumerate(tasks):
        if task.foreach and task.foreach.file:
            foreach = task.foreach.at_each_revision()
            tasks[place] = replace(task, foreach=foreach)
            lists[foreach.items] = files[task.foreach.file]
    return replace(workflow, tasks=tuple(tasks), lists=lists)


def _in_order(chosen: Iterable[TaskDefinition]) -> list[str]:
    """The names of tasks in the graph's order, ties in the order of the file."""
    left, done = {task.name: task for task in chosen}, list[str]()
    while left:
        needs = {name: {w.task for w in task.depends if not w.previous} & left.keys() for name, task in left.items()}
        done.append(next(name for name in left if not needs[name]))
        del left[done[-1]]
    return done


def _having(chosen: Collection[TaskDefinition], planned: Iterable[tuple[TaskDefinition, str]]) -> list[TaskDefinition]:
    """Those of some tasks that have something to do: their lists are not empty."""
    names = {task.name for task, _ in planned}
    return [task for task in chosen if task.name in names]


def _told(outcomes: Mapping[Name, Outcome | None]) -> dict[Name, Outcome]:
    return {name: outcome for name, outcome in outcomes.items() if outcome}


def _left_out(defined: Iterable[TaskDefinition], chosen: Collection[TaskDefinition]) -> set[str]:
    """The tasks that are not chosen and on which chosen ones depend, directly or through others that are not."""
    left, reached = [*chosen], set[str]()
    for task in left:
        new = {d.name: d for d in defined if d.name in {w.task for w in task.depends if not w.previous}}
        new = {name: d for name, d in new.items() if name not in reached | _names(chosen)}
        reached |= new.keys()
        left += new.values()
    return reached - {COMMIT}


def _names(tasks: Iterable[TaskDefinition]) -> set[str]:
    return {task.name for task in tasks}
