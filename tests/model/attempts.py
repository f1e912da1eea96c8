"""Attempts: a task is claimed, runs, and ends."""

from __future__ import annotations

from collections.abc import Collection

from arkqueue.model import (
    REPORT,
    End,
    Trigger,
)
from arkqueue.states import Event, State, move
from arkqueue.verdicts import Circumstances, verdict
from tests.model.looking import Changes, Looking
from tests.model.words import DEPENDS, Attempt, Cause, Key, Reason, Refused, Run, Task


class Attempts(Looking):
    """Claims tasks, and records their ends."""

    def claim(self, key: Key, labels: Collection[str] = ()) -> Changes:
        """Claims a task. ``labels``: the labels of the task manager, with the label of its host
        (``@HOST``) in tests of scratch folders.
        """
        before = self.states()
        assert self.may_claim(), f"{key} was claimed in a pause, or beside as many as may run"
        task = self._in(key, State.READY, also_report=True)
        task.state = move(task.state, Event.CLAIM)
        if task.name == REPORT and task.run.updating is None and not task.run.has_reported:
            task.run.report(by_itself=True)
        task.attempts.append(Attempt(poll=task.polls))
        if not task.polls:  # the outputs of a poll are merged into the task's outputs
            task.output = None
        host = next((label for label in labels if label.startswith("@")), None)
        if task.folder is not None and host is not None:
            task.run.stores.setdefault(task.folder, host)
        return self._follow(before)

    def takes(self, key: Key, labels: Collection[str]) -> bool:
        """Whether a task manager with these labels may run a task. It needs every label that the
        task names (design 5.26), and the label of the host that has the task's scratch folder
        (design 5.37).
        """
        task = self.task(key)
        wanted = {*task.definition.runs_on}
        if task.store:
            wanted.add(task.store)
        return wanted <= set(labels)

    def _renew(self, run: Run, again: Collection[Task], may_wait: bool, item: str | None = None) -> None:
        """Forgets the host of a scratch folder if that host is gone and all tasks that have used
        the folder run again. If only some of them run again, refuses, unless the tasks may wait for
        the host.

        ``item``: the item whose tasks run again, empty for a task without an item. None: tasks of
        the whole run.
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
        """Ends an attempt; ``verdicts.verdict`` decides the consequence. ``priority``: the output
        that sets the priority of later tasks. ``late``: the task's deadline is over.
        """
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
        runs_again = end is End.LOST and task.state is State.WAITING
        if not task.settled and task.stop != "restart" and self._is_gone(task.run):
            self._cancel(task, Cause.DROPPED)
        if task.name == REPORT and task.settled:
            self._close(task)
        task.stop = task.stop_by = None
        task.attempts[-1].live = False
        if runs_again and task.definition.scratch:  # also where its branch is gone, so that only a retry runs it again
            users = [other for other in task.run.own if other.folder == task.folder and other.attempts]
            if task.store and self._is_away(task.store) and users in ([task], []):
                del task.run.stores[task.folder or ""]  # no other task has left files there
        said = None if end is End.LOST else priority
        if not task.attempts[-1].poll or said is not None:  # a lost poll keeps the earlier output
            task.output = said
        if task.state is State.COMPLETED:
            where = task.run.branch, task.key.inside
            self.latest[where] = task.run.place
            if not task.run.fill:  # a backfill's completion does not count as newer work
                self.highest[where] = max(task.run.place, self.highest.get(where, task.run.place))
            if task.run.trigger is Trigger.COMMIT:
                of_commits = self.highest_of_commits
                of_commits[where] = max(task.run.place, of_commits.get(where, task.run.place))
        for other in self._behind(task):
            if priority is not None and end is not End.LOST and self.has_not_started(other) and not other.prioritized:
                other.priority = priority
        return self._follow(before)

    def _close(self, report: Task) -> None:
        """Handles the end of the command of REPORT. A run that has not made its own report yet
        waits to do so.
        """
        run, was = report.run, report.run.updating
        if report.state is State.COMPLETED:
            own = next(n for n, one in enumerate(run.reports) if one.by_itself) if was is None else was
            run.sent.add(own)
        run.updating = None
        if was is not None and not run.has_reported and report.state is not State.CANCELED:
            self._report_again(report)

    def _report_again(self, report: Task, at_once: bool = False) -> None:
        """Lets the command of REPORT run again. ``at_once``: even if other tasks of the run have
        not settled.
        """
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
        """The tasks of the run that depend on the task, directly or indirectly. For a task of an
        item, only the tasks of that item (design 5.24).
        """
        found = [task]
        for one in found:
            depend = [edge.target for edge in one.out_of if edge.kind in DEPENDS and not edge.crossing]
            mine = [other for other in depend if other.name != REPORT and (not task.item or other.item == task.item)]
            found += [other for other in dict.fromkeys(mine) if other not in found]
        return [other for other in found[1:] if not other.implicit]

    def lose(self, key: Key) -> Changes:
        """Ends the attempt because its lease has lapsed."""
        return self.finish(key, End.LOST)

    def hand_back(self, key: Key) -> Changes:
        """Ends the attempt because its task manager shuts down, or has stopped it on request."""
        return self.finish(key, End.STOPPED)

    def due(self, key: Key) -> Changes:
        before = self.states()
        task = self._in(key, State.DEFERRED, also_report=True)
        task.state = move(task.state, Event.DUE)
        return self._follow(before)
