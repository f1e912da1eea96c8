"""The consequences of a step: edges are met, and tasks are skipped, enter, and cancel others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from arkqueue.model import (
    REPORT,
    Cancels,
    Trigger,
    When,
)
from arkqueue.states import Event, State, move
from tests.model.edges import is_of_key, root_behind, skips, spares
from tests.model.looking import Changes, Looking
from tests.model.words import DEPENDS, Blocks, Cause, Edge, Key, Kind, Name, Run, Task


class Following(Looking):
    """Applies the consequences of a change until nothing more changes."""

    def _follow(self, before: Mapping[Key, State], planned: Collection[Run] = ()) -> Changes:
        """Applies the consequences of a step, round by round, until nothing changes. Tasks of
        ``planned`` runs enter only after the first round, which passes their gates (decision 0001,
        point 3).
        """
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
        """Whether the present states meet the edge (decision 0001, point 1)."""
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
        """What a bad task blocks in later runs (design 5.9; decision 0001, point 18). ``known``: a
        cache of answers, because many paths lead to each task.
        """
        known = {} if known is None else known
        if task not in known:
            known[task] = self._blocks(task, known)
        return known[task]

    def _blocks(self, task: Task, known: dict[Task, Blocks]) -> Blocks:
        if task.name == REPORT:  # nothing waits for REPORT
            return Blocks.NOTHING
        if task.state in (State.FAILED, State.REJECTED):
            return Blocks.NOTHING if task.waived or task.is_deleted else Blocks.COMPLETION
        waits_for = [edge for edge in self.unmet(task) if edge.kind is not Kind.EXCLUSIVE]
        return max((self._blocks_behind(edge, known) for edge in waits_for), default=Blocks.NOTHING)

    def _blocks_behind(self, edge: Edge, known: dict[Task, Blocks]) -> Blocks:
        """What the target of an unmet edge, after it was canceled or skipped, blocks because of
        that edge.
        """
        source, target = edge.source, edge.target
        if edge.when is When.FAILED and source.settled and source.state not in (State.CANCELED, State.SKIPPED):
            return Blocks.NOTHING
        orders = edge.crossing and not edge.product
        if source.bad:
            found = self.blocks(source, known)
        elif orders or source.settled:  # a completed source is about to meet the edge
            return Blocks.ALL
        else:
            has_begun = source.attempts or not self.unmet(source) or edge.product
            found = Blocks.COMPLETION if has_begun else Blocks.ALL
        any_end_will_do = edge.when is When.SETTLED or (not orders and target.root is None)
        return Blocks.NOTHING if any_end_will_do and found is Blocks.COMPLETION else found

    def _is_kept(self, edge: Edge) -> bool:
        """Whether the edge stays unmet because its source was canceled or skipped and its target
        has settled. The source may be retried later.
        """
        is_over = edge.source.state in (State.CANCELED, State.SKIPPED)
        return edge.crossing and edge.kind in DEPENDS and is_over and edge.target.settled

    def _skip(self) -> bool:
        """Skips the dependents of bad tasks, and in turn their dependents. A skipped task stores
        the first root in file order.
        """
        skipped: set[Task] = set()
        while roots := self._next_to_skip(skipped):
            for task, found in roots.items():
                task.root = self._first(found)
                if task not in skipped:
                    task.state = move(task.state, Event.SKIP)
            skipped |= roots.keys()
        return bool(skipped)

    def _first(self, tasks: Iterable[Task]) -> Task:
        """The first task, in the order in which the runs were planned, and then in file order."""
        return min(tasks, key=lambda task: (self.runs.index(task.run), task.order))

    def _next_to_skip(self, skipped: Collection[Task]) -> dict[Task, list[Task]]:
        """The tasks to skip next with their possible roots: waiting or held tasks behind bad ones,
        and tasks in ``skipped`` that have an earlier root than the stored one.
        """
        roots: dict[Task, list[Task]] = {}
        for edge in self.edges:
            if skips(edge):
                target, root = edge.target, root_behind(edge.source)
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
                    self._fire(canceler, entry, [t for t in named if is_of_key(canceler.item, t.item)])
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

    def is_parked(self, task: Task) -> bool:
        """Whether a pause keeps the task from entering, because its ``cancels`` would fire."""
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
            if is_of_key(canceler.item, task.item, run.trigger is Trigger.SUBMISSION)
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
