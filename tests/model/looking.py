"""The state of one archive in the model, and what everybody sees of it."""

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
    """What an archive has, and how the parts of the model look at it."""

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
        of_list = Name(name, item) if connects_items(run.workflow, task, item, name) else gate_of(name, when)
        found = [one for key in (Name(name), of_list) if (one := self.nearest(key, run))]
        return max(found, key=lambda one: one.run.place, default=None)

    def unmet(self, task: Task) -> list[Edge]:
        return [edge for edge in task.into if not edge.met]

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
