"""Decides which tasks come back with a task that runs again, and which edges wait again (design
5.8).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from arkqueue.model import (
    REPORT,
    When,
)
from arkqueue.states import Event, State, move
from tests.model.edges import root_behind, skips
from tests.model.looking import Looking
from tests.model.words import DEPENDS, Edge, Kind, Task


class Reopening(Looking):
    """Brings back tasks that were skipped because of a task that runs again."""

    def _judge_again(self, roots: Collection[Task]) -> tuple[list[Task], dict[Task, Task]]:
        """Divides the tasks skipped because of ``roots``: tasks that come back, and tasks that
        something else still skips, with their new root.
        """
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
        while found := self._staying(roots, candidates, stay):
            stay |= found
            candidates = [task for task in candidates if task not in found]
        return candidates, stay

    def _staying(
        self, roots: Collection[Task], candidates: Collection[Task], stay: Mapping[Task, Task]
    ) -> dict[Task, Task]:
        """The candidates that other tasks skip, and those behind them whatever their roots are, each
        with the first of its roots. ``stay``: the new roots of the tasks that are known to stay skipped.
        """
        found: dict[Task, Task] = {}

        def other_roots(task: Task) -> list[Task]:
            others = [(edge, found.get(edge.source) or stay.get(edge.source)) for edge in task.into if is_other(edge)]
            return [root_behind(edge.source, root) for edge, root in others if skips(edge, root)]

        def is_other(edge: Edge) -> bool:
            behind = edge.source in found and (edge.when is When.FAILED or not edge.crossing)
            return edge.source not in roots and (behind or edge.source not in candidates)

        while True:
            firsts = {task: self._first(others) for task in candidates if (others := other_roots(task))}
            if firsts == found:
                return found
            found = firsts

    def _reopen(self, reopened: list[Task], stay: dict[Task, Task], again: list[Task]) -> None:
        """Puts tasks back to waiting. Dependents of a task that will end ``again`` wait for it
        again, unless their own attempt is under way.
        """
        for task, root in stay.items():
            task.root = root
        for task in reopened:
            task.state, task.root, task.retried = move(task.state, Event.REOPEN), None, True
        gates = self._gates_again(again)
        for gate in gates:
            self._bring_back(gate, Event.REDO)
        self._unmeet([*again, *gates])
        behind, stay = self._judge_again(gates)
        if behind or stay:  # they wait for the failure of a gate that is not over any more
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
            # even if a gate meets the edge again at once, the task enters anew
            edge.target.asks = False
            if edge.target.state is State.READY:
                edge.target.state = move(edge.target.state, Event.UNMEET)

    def _gates_again(self, again: Collection[Task]) -> list[Task]:
        """The gates that wait again: gates of lists whose items come back, and the passed gates
        behind them. A gate stays passed if a task behind it has started (design 5.30).
        """
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
