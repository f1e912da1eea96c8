"""The state of one archive in the model, and what users see of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType

from arkqueue.model import (
    COMMIT,
    REPORT,
    EdgeKind,
    Item,
    TaskDefinition,
    Trigger,
    When,
)
from arkqueue.states import State
from tests.model.edges import connects_items
from tests.model.installation import Installation
from tests.model.words import (
    Edge,
    Key,
    Kind,
    Name,
    Place,
    Reason,
    Refused,
    Revision,
    Run,
    RunKey,
    RunSeen,
    Seen,
    Task,
    gate_of,
)

Changes = dict[Key, tuple[State | None, State]]
NO_FILES: Mapping[str, tuple[Item, ...]] = MappingProxyType({})


class Looking:
    """The contents of an archive, and how the parts of the model read them."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.revisions: dict[tuple[str, int], Revision] = {}
        """The revisions by branch and number, in the order of the ledger."""
        self.highest: dict[tuple[str, Name], Place] = {}
        """The highest place at which each task of a branch has completed, without backfills."""
        self.latest: dict[tuple[str, Name], Place] = {}
        """The place of the latest completion in time, by branch and name."""
        self.highest_of_commits: dict[tuple[str, Name], Place] = {}
        """The highest place among commit runs at which each task has completed."""
        self.edges: list[Edge] = []
        self.deleted_branches: set[str] = set()
        self.paused = False
        """In a pause, nothing is claimed, and no ``cancels`` fires (design 5.23)."""
        self.tier = 5
        """Archives of a lower tier come first (design 5.24)."""
        self.max_running: int | None = None
        """The most attempts that may run at once (design 5.26)."""
        self.on_hold = False
        self.guards: frozenset[str] = frozenset()
        """The names of tasks that are held whatever the workflow file says (design 5.22)."""
        self.approves = True
        """Whether the caller of the next verb may act on guarded tasks."""
        self.capacities: dict[str, int | None] = {}
        """The capacities of locks that differ from 1; None is unlimited (design 5.25)."""
        self.paused_locks: set[str] = set()
        self.labels: list[Collection[str]] = []
        """The labels of each living task manager."""
        self.installation = Installation([self])

    def on_branch(self, branch: str) -> list[Run]:
        """The branch's runs in the order of (number, run)."""
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
        """The task behind ``PREV:name`` as seen from the run (design 5.7). ``of_commits`` considers
        only commit runs. None if there is no such task, or if it was purged.
        """
        found = None if self.is_purged(name, run, of_commits) else self._nearest_left(name, run, of_commits)
        if found and found.name == COMMIT and found.run.behind and found.run.behind.run in self.runs:
            # a submission waits at no gate, so tasks after it wait for the earlier COMMIT
            return found.run.behind
        return found

    def is_purged(self, name: Name, run: Run, of_commits: bool = False) -> bool:
        """Whether the nearest earlier occurrence completed and was purged, as far as the
        completions tell (design 5.27).
        """
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
        """The nearest earlier occurrence of a name as a task sees it. If items are connected, that
        is the task of the same key or without a list. Otherwise it is the task without a list, or
        the gate of the list (design 5.30).
        """
        of_list = Name(name, item) if connects_items(run.workflow, task, item, name) else gate_of(name, when)
        found = [one for key in (Name(name), of_list) if (one := self.nearest(key, run))]
        return max(found, key=lambda one: one.run.place, default=None)

    def unmet(self, task: Task) -> list[Edge]:
        return [edge for edge in task.into if not edge.met]

    def _in(self, key: Key, *states: State, also_report: bool = False) -> Task:
        """The task with this key, if the verb is possible in its state. Otherwise raises
        ``Refused``.
        """
        task = self.task(key)
        if task.implicit and not (also_report and task.name == REPORT):
            raise Refused(Reason.IMPLICIT, key)
        if task.is_deleted:
            raise Refused(Reason.GONE, key)
        if task.state not in states:
            raise Refused(Reason.STATE, key)
        return task

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
        """The state of the run: the first rule of design 4 that applies."""
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
            return "held" if run.tasks[Name(REPORT)].state is State.HELD else "reporting"
        if any(task.superseded_by is None for task in canceled):
            return "canceled"
        if any(task.superseded_by is not None and task.superseded_by.run is not run for task in canceled):
            return "superseded"
        return "completed"

    def _lacks_a_product(self, task: Task) -> bool:
        """Whether the task was skipped because the product of a task of another run will not come
        (design 5.18).
        """
        is_from_elsewhere = task.root is not None and task.root.run is not task.run
        return is_from_elsewhere and any(edge.product for edge in self.unmet(task))

    def graph(self, branch: str, *numbers: int) -> set[tuple[Key, EdgeKind, Key]]:
        """The edges of these revisions that users see, each as the waiting or canceling task, the
        kind, and the other task (design 5.3).
        """
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
                ):  # for tasks without lists
                    shown.add((task.key, EdgeKind.CANCELS, victim.key))
        return shown
