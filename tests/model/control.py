"""A person's control: reports, priorities, limits, pauses, holds, guards, and lost branches."""

from __future__ import annotations

from collections.abc import Iterable

from arkqueue.model import (
    COMMIT,
    REPORT,
)
from arkqueue.states import Event, State, move
from tests.model.looking import Changes, Looking
from tests.model.words import Cause, Key, Name, Reason, Refused, Run, RunKey, Task


class Control(Looking):
    """Decisions of persons about tasks that have not started."""

    def report(self, key: RunKey, now: bool = False) -> Changes:
        """Makes a further report of a run. ``now``: even if some of the run's tasks have not
        settled (design 5.32).
        """
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
        """Ends a pause. Tasks whose ``cancels`` waited for the end of the pause enter now."""
        if not self.paused:
            raise Refused(Reason.STATE)
        before = self.states()
        self.paused = False
        return self._follow(before)

    def hold(self, key: Key) -> Changes:
        """Holds a task that has not started until somebody releases it (design 5.21)."""
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
        """Holds the tasks that have not begun, and all tasks planned until the hold ends."""
        before = self.states()
        tasks = [task for run in self.runs for task in self._holdable(run) if not _has_begun(task)]
        if self.on_hold and not tasks:
            raise Refused(Reason.NOTHING)
        self.on_hold = True
        for task in tasks:
            self._hold(task)
        return self._follow(before)

    def unhold(self) -> Changes:
        """Ends the hold of the archive. Tasks that are held stay held."""
        if not self.on_hold:
            raise Refused(Reason.NOTHING)
        self.on_hold = False
        return {}

    def release(self, key: Key, force: bool = False, skip_outdated: bool = False) -> Changes:
        """Releases a held task, which then enters like any other task (design 5.22)."""
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
        """Releases tasks. An outdated task stays held, or is skipped with ``skip_outdated`` (design
        5.19). If all tasks are outdated, the refusal names them.
        """
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
            self._follow(before)  # skips their dependents before releasing the others
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
        """The tasks that a hold of the whole run holds. Its gates still pass."""
        return [task for task in run.own if task.state in (State.WAITING, State.READY) and not task.is_gate]

    def _hold_again(self, back: Iterable[Task]) -> None:
        """Holds tasks that come back to work: those that nobody has released, and those that have
        not begun in an archive on hold.
        """
        for task in back:
            if task.to_release or (self.on_hold and not task.is_gate and not _has_begun(task)):
                self._hold(task, by_a_guard=task.by_a_guard)

    def _hold_reopened(self, reopened: Iterable[Task]) -> None:
        """Holds tasks that come back with another task, if their guard was set after they had been
        skipped.
        """
        for task in reopened:
            if task.name in self.guards and not task.to_release and not task.released:
                self._hold(task, by_a_guard=True)

    def guard(self, names: frozenset[str]) -> Changes:
        """Sets the guarded names. Holds the tasks of newly guarded names that have not started, and
        all future tasks of guarded names. Tasks of names guarded before are already held or
        released.
        """
        before = self.states()
        new, self.guards = names - self.guards, names
        for task in self.tasks():
            is_report = task.name == REPORT and not task.run.workflow.faults
            is_report = is_report and not (task.run.deleted or self._is_gone(task.run))
            can_be_held = is_report or not (task.implicit and task.is_gate)
            if task.name in new and task.state in (State.WAITING, State.READY) and can_be_held:
                self._hold(task, by_a_guard=True)
        return self._follow(before)

    def act_as(self, approver: bool) -> Changes:
        """Sets whether the next verbs come from an approver."""
        self.approves = approver
        return {}

    def is_closed(self, task: Task) -> bool:
        """Whether the task is guarded and the caller is not an approver."""
        return not self.approves and (task.by_a_guard or task.name in self.guards)

    def _refuse_unapproved(self, tasks: Iterable[Task]) -> None:
        if closed := [task.key for task in tasks if self.is_closed(task)]:
            raise Refused(Reason.GUARDED, *closed)

    def rewrite(self, branch: str, dropped: Iterable[int]) -> Changes:
        """Takes revisions off the branch, as a force-push does (design 5.16)."""
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
        """Tracks a deleted branch again. Tasks canceled by its deletion stay canceled."""
        self.deleted_branches.discard(branch)
        return {}

    def _is_gone(self, run: Run) -> bool:
        return run.dropped or run.branch in self.deleted_branches

    def _cancel_unstarted(self, run: Run) -> None:
        for task in (*run.own, *self._report_with_command(run)):
            if not task.settled and task.state is not State.RUNNING:
                self._cancel(task, Cause.DROPPED)


def _has_begun(task: Task) -> bool:
    """Whether the task's run has begun, or the task's item if the task has one: an attempt of one
    of their tasks has started (design 5.21).
    """
    return any(other.attempts for other in task.run.own if task.item in ("", other.item))
