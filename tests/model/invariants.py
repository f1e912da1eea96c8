"""Checks the invariants that hold after every step."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from arkqueue.model import (
    COMMIT,
    REPORT,
    Trigger,
)
from arkqueue.states import SETTLED, State
from tests.model.edges import is_root, skips
from tests.model.installation import is_global
from tests.model.looking import Looking
from tests.model.words import Edge, Key, Kind, Name, Task


class Invariants(Looking):
    """Checks the invariants."""

    def snapshot(self) -> dict[Key, tuple[State, Key | None, int]]:
        return {t.key: (t.state, t.root.key if t.root else None, len(t.attempts)) for t in self.tasks()}

    def check_invariants(
        self, before: Mapping[Key, tuple[State, Key | None, int]] | None = None, judged_again: Collection[Key] = ()
    ) -> None:
        """Checks everything that must hold after a step. ``before``: a snapshot from before the
        step. ``judged_again``: the tasks that the step retried, waived or brought back.
        """
        waits_for: dict[Task, list[Edge]] = {}
        for edge in self.edges:
            if not edge.met:
                waits_for.setdefault(edge.target, []).append(edge)
        # A task that was skipped in a deleted or dropped run or item keeps its root, whatever
        # happens to the root. So do tasks of other runs that were skipped with the root of a
        # dropped one.
        kept_by_what_is_gone = {task.root for task in self.tasks() if task.run.dropped} - {None}
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
            gone = task.is_deleted or task.root in kept_by_what_is_gone
            is_true = task.root is None or (is_root(task.root) and (task.root.root is None or task.root.is_deleted))
            assert gone or is_true, f"{task.key} has no true root"
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
                # a gate behind a list
                waits_again = task.is_gate and any(other.item for other in task.run.own)
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
        """The tasks that should have settled before this one: its sources in other runs, and the
        tasks for which sources that never began had waited (design 5.9).

        ``seen``: the tasks visited so far. Many paths lead to each task, and visiting all paths
        would take forever.
        """
        seen = set() if seen is None else seen
        for edge in task.into:
            if edge.kind not in (Kind.DECLARED, Kind.IMPLICIT) or (not edge.crossing and edge.source.name == COMMIT):
                continue
            source = edge.source
            if edge.product and not source.settled:
                continue  # a task that never began holds up nobody with the product that it needed
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
        """Checks the start of a task, after the step that started it. Reads the present states of
        the sources instead of the stored state of the edges.
        """
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
