"""Deletion, undeletion and purge of runs and items (design 5.27)."""

from __future__ import annotations

from arkqueue.model import (
    REPORT,
    When,
)
from arkqueue.states import State
from tests.model.edges import is_root, root_behind
from tests.model.looking import Changes, Looking
from tests.model.words import DEPENDS, Blocks, Kind, Name, Reason, Refused, Run, RunKey, Task


class Deletion(Looking):
    """Deletes, undeletes and purges runs and items."""

    def delete(self, key: RunKey) -> Changes:
        before = self.states()
        run = self.run(key)
        if run.deleted:
            raise Refused(Reason.GONE)
        commands = [*run.own, *self._report_with_command(run)]
        unstarted = (State.WAITING, State.HELD, State.READY, State.DEFERRED)
        self._refuse_unapproved(task for task in commands if task.name != REPORT or task.state in unstarted)
        if any(task.state is State.RUNNING and not task.polls for task in commands):
            raise Refused(Reason.STATE)
        run.deleted = True
        run.canceled_with_it = [task for task in commands if not (task.settled or task.deleted)]
        for task in run.canceled_with_it:
            # a poll that has not stopped yet may still record its result
            self._stop_by_person(task)
        return self._follow(before)

    def _report_with_command(self, run: Run) -> list[Task]:
        """The REPORT of the run, if it has a command or is held."""
        report = run.tasks.get(Name(REPORT))
        return [report] if report and (not report.is_gate or report.state is State.HELD) else []

    def undelete(self, key: RunKey) -> Changes:
        """Undeletes a run. The tasks that the deletion canceled come back as held. So do tasks that
        stayed skipped because nobody reconsidered the run while it was deleted (design 5.27).
        """
        before = self.states()
        run = self.run(key)
        if not run.deleted:
            raise Refused(Reason.STATE)
        self._refuse_unapproved(run.own)
        roots = self._roots_by_deletion(list(run.tasks.values()))
        run.deleted = False
        canceled = [task for task in run.canceled_with_it if task.state is State.CANCELED]
        back, reports = ([task for task in canceled if (task.name == REPORT) is is_it] for is_it in (False, True))
        run.canceled_with_it = []
        stale = {
            task.root
            for task in run.own
            if task.state is State.SKIPPED and task.root and task.root.run is not run
            if root_behind(task.root) is not task.root or not is_root(task.root)
        }
        reopened, stay = self._judge_again([*back, *stale, *roots])
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
        """Deletes an item. Its unsettled tasks are canceled, and its tasks count nowhere. Tasks of
        the run that waited for the item go on. Tasks that were skipped because of the item come
        back, unless they are outdated.
        """
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
        """Undeletes an item. The tasks that the deletion canceled come back as held. Tasks that
        wait for all items of the list wait for this item again.
        """
        before = self.states()
        run, tasks = self._item(key, item)
        if item not in run.deleted_items:
            raise Refused(Reason.STATE)
        self._refuse_unapproved(tasks)
        back = [task for task in run.deleted_items.pop(item) if task.state is State.CANCELED]
        roots = self._roots_by_deletion(tasks)
        for task in tasks:
            task.deleted = False
        stale = {t.root for t in tasks if t.root and (root_behind(t.root) is not t.root or not is_root(t.root))}
        reopened, stay = self._judge_again([*back, *stale, *roots])
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

    def _roots_by_deletion(self, tasks: list[Task]) -> list[Task]:
        """The skipped tasks that are roots because they are deleted. The root of such a task may have
        been deleted since.
        """
        stored = {task.root for task in self.tasks()}
        return [task for task in tasks if task.root and (root_behind(task) is task or task in stored)]

    def _item(self, key: RunKey, item: str) -> tuple[Run, list[Task]]:
        run = self.run(key)
        tasks = [task for task in run.own if task.item == item]
        if run.deleted or not tasks:
            raise Refused(Reason.GONE if run.deleted else Reason.UNKNOWN)
        return run, tasks

    def purge(self, key: RunKey) -> Changes:
        """Removes a settled run for good, unless other runs depend on it (design 5.27)."""
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
            for edge in task.out_of:  # each removed edge counts as met
                edge.target.into.remove(edge)
                self.edges.remove(edge)
        self.runs.remove(run)
        return self._follow(before)

    def is_waited_for(self, run: Run) -> bool:
        """Whether other runs still need something of this run: their tasks wait for it, or are
        skipped because of it.
        """
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
            # The target will receive the source's outputs.
            not edge.target.settled and edge.kind is Kind.DECLARED and not edge.target.implicit
            for edge in out
            if edge.met
        )
        roots = any(task.root and task.root.run is run for task in self.tasks() if task.run is not run)
        return blocks or waits or roots

    def _passes_on(self, task: Task) -> bool:
        return task.state in (State.CANCELED, State.SKIPPED) and self.blocks(task) is not Blocks.NOTHING
