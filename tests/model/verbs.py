"""A person's verbs on tasks: cancel, restart, retry, skip, refresh."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import groupby
from typing import Any

from arkqueue.model import (
    REPORT,
    Trigger,
    When,
)
from arkqueue.states import MOVES, Event, State, move
from tests.model.edges import skips
from tests.model.looking import Changes, Looking
from tests.model.words import DEPENDS, Cause, Edge, Key, Name, Reason, Refused, Run, RunKey, Task


class Verbs(Looking):
    """Stops tasks, and lets them run again."""

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
        allowed = [task for task in tasks if not self.is_closed(task)]
        if not allowed:
            self._refuse_unapproved(tasks)
        for task in allowed:
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
        """Retries exactly those failed tasks of a run that nobody waived: tasks of one name
        together. A refusal of one task does not stop the others (design 5.33).
        """
        before = self.states()
        run = self.run(key)
        if run.deleted:
            raise Refused(Reason.GONE)
        refusals: dict[Task, Refused] = {}
        is_done = False
        failed = [task for task in run.shown if self._has_failed(task)]
        for _, of_name in groupby(failed, lambda task: task.name):
            left = [list(of_name)]
            while left:
                some = left.pop(0)
                refused = {task: why for task in some if self._has_failed(task) and (why := self._refusal(task))}
                fit = [task for task in some if self._has_failed(task) and task not in refused]
                try:
                    if fit:
                        self._retry(fit)
                        is_done = True
                    refusals |= refused
                except Refused as why:
                    half = -(-len(some) // 2)
                    if len(some) == 1:
                        refusals[some[0]] = why
                    else:
                        left += [some[:half], some[half:]]
        if not is_done:
            raise next((refusals[task] for task in failed if task in refusals), Refused(Reason.NOTHING))
        return self._follow(before)

    def _refusal(self, task: Task) -> Refused | None:
        """Why a failed task is refused, whatever comes back with it."""
        try:
            self._refuse_unapproved([task])
            if _was_lost_once(task):
                raise Refused(Reason.SECOND)
            if by := [edge.source.key for edge in task.into if skips(edge)]:
                raise Refused(Reason.BLOCKED, *by)
            if by := [one.key for one in self._superseders(task.run, task.key.inside, bool(task.attempts))]:
                raise Refused(Reason.SUPERSEDED, *by)
            if by := self._completed_after(task.run, task.key.inside):
                raise Refused(Reason.OVERWRITES, *by)
        except Refused as why:
            return why
        return None

    def _has_failed(self, task: Task) -> bool:
        return task.state is State.FAILED and not task.waived

    def refresh(self, key: Key) -> Changes:
        """Makes the poll of a task due now (design 5.29)."""
        if not self.task(key).polls:
            raise Refused(Reason.STATE)
        return self.due(key)

    def refresh_all(self) -> Changes:
        """Makes the polls of all deferred tasks due now."""
        before = self.states()
        polled = [task for task in self.tasks() if task.polls and task.state is State.DEFERRED and not task.run.deleted]
        if not polled:
            raise Refused(Reason.NOTHING)
        for task in polled:
            task.state = move(task.state, Event.DUE)
        return self._follow(before)

    def retry(self, key: Key, force: bool = False, from_start: bool = False) -> Changes:
        """Retries a task. ``from_start``: runs the command again even if the task is polled."""
        task = self.task(key)
        if task.state is not State.DEFERRED:
            return self._retry([task], force, from_start)
        self._refuse_unapproved([task])
        task = self._in(key, State.DEFERRED, also_report=True)
        task.failures = task.deferrals = task.losses = 0
        task.polls = task.polls and not from_start
        task.deferred, task.late = task.polls, False
        return self.due(key)

    def _retry(self, tasks: list[Task], force: bool = False, from_start: bool = False) -> Changes:
        """Retries tasks of one name in one run; refused if one of them is refused."""
        before = self.states()
        self._refuse_unapproved(tasks)
        for task in tasks:
            self._in(task.key, State.FAILED, State.CANCELED, State.SKIPPED)
            if task.state is State.SKIPPED and task.root:
                raise Refused(Reason.STATE, task.root.key)
        if by := [edge.source.key for task in tasks for edge in task.into if skips(edge)]:
            raise Refused(Reason.BLOCKED, *by)
        if not from_start and any(map(_was_lost_once, tasks)):
            raise Refused(Reason.SECOND)
        reopened, stay = self._judge_again(tasks)
        again = [*tasks, *reopened]
        if not force:
            if self._is_gone(tasks[0].run):
                raise Refused(Reason.GONE)
            for task in tasks:
                if task.cause is Cause.SUPERSEDED:
                    raise Refused(Reason.SUPERSEDED, *([task.superseded_by.key] if task.superseded_by else []))
            self._refuse_outdated(again)
        for task in tasks:
            self._renew(task.run, again, may_wait=True, item=task.item)
            task.polls = task.polls and not from_start
            self._bring_back(task)
        self._reopen(reopened, stay, again)
        self._hold_again(again)
        self._hold_reopened(reopened)
        return self._follow(before)

    def retry_from(
        self, key: RunKey, name: str, force: bool = False, from_start: bool = False, item: str | None = None
    ) -> Changes:
        """Retries the tasks of a name and everything behind them in the run, including completed
        tasks. ``item``: only within that item (design 5.30; decision 0001, point 30).
        """
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
        done = (State.COMPLETED, State.DEFERRED)
        if not from_start and any(task.state in done or _was_lost_once(task) for task in once):
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
        """The tasks and everything behind them in their run, or within one item. Tasks that a
        person skipped are left out, and so is what is behind them alone.
        """
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
        """Refuses to bring tasks back that later revisions have superseded or built upon (design
        5.11, 5.19).
        """
        if by := [c.key for task in again for c in self._superseders(task.run, task.key.inside, bool(task.attempts))]:
            raise Refused(Reason.SUPERSEDED, *by)
        if by := [key for task in again for key in self._built_upon(task)]:
            raise Refused(Reason.STARTED, *by)
        programs = [task for task in again if not task.is_gate and task.name != REPORT]
        if by := [key for task in programs for key in self._completed_after(task.run, task.key.inside)]:
            raise Refused(Reason.OVERWRITES, *by)

    def _completed_after(self, run: Run, name: Name) -> list[Key]:
        """The later place, if any, where a task of this name has completed, even if that run was
        purged. An older revision never replaces newer work unless forced (design 5.19).
        """
        if run.trigger is Trigger.SUBMISSION and not name.item:
            return []  # the work belongs to this submission alone
        place = self.highest.get((run.branch, name), run.place)
        return [Key(run.branch, *place, *name)] if place > run.place else []

    def is_overtaken(self, key: Key) -> bool:
        """Whether only force can retry the task, because a task of its name has completed at a
        later place.
        """
        task = self.task(key)
        return not (task.is_deleted or task.is_gate or task.root) and bool(self._completed_after(task.run, key.inside))

    def _built_upon(self, task: Task) -> set[Key]:
        """The tasks of later runs that have started because of this task: directly, through passed
        gates, or through tasks that never began (design 5.19).
        """
        sources = [task, *(edge.target for edge in task.out_of if edge.target.is_gate_of_list and not edge.crossing)]
        purged = {key for source in sources for key in source.purged_starts}
        return purged | self._started_behind([edge for source in sources for edge in source.out_of if edge.crossing])

    def _started_behind(self, left: list[Edge], purged: Run | None = None) -> set[Key]:
        """The tasks behind these edges that have started. ``purged``: follows edges only inside
        this run; an edge that leaves the run counts as a start.
        """
        started: set[Key] = set()
        seen: set[Key] = set()
        while left:
            edge = left.pop()
            target = edge.target
            never_began = target.state in (State.CANCELED, State.SKIPPED) and not target.attempts
            if target.name == REPORT:
                continue  # a report is not work that an older revision could replace
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
        """Detaches tasks from the gate of their list. A ``PREV:*`` that still waits for the gate
        waits for each task itself instead, even if its edge from the task was met (decision 0001,
        point 12).
        """
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
        """Waives failed and rejected tasks of a name up to a revision, and changes nothing else
        (design 5.9).
        """
        before = self.states()
        runs = [r for r in self.on_branch(branch) if r.place.number <= until and not r.deleted]
        tasks = [task for run in runs for task in run.named(name) if not (task.implicit or task.deleted)]
        bad = [task for task in tasks if task.state in (State.FAILED, State.REJECTED) and not task.waived]
        allowed = [task for task in bad if not self.is_closed(task)]
        if not allowed:
            self._refuse_unapproved(bad)
        for task in allowed:
            task.waived = True
        return self._follow(before)

    def on_item(self, key: RunKey, item: str, verb: str, *words: Any) -> Changes:
        """Applies a verb to each task of an item, if the verb concerns the task when its turn
        comes. A refusal of one task does not stop the others (design 5.33).
        """
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


def _was_lost_once(task: Task) -> bool:
    """Whether the command of a task is meant to run once and was lost: nobody knows whether it has
    done its work.
    """
    return task.losses > 0 and not task.polls and task.definition.on_lost == "fail"


def concerns(verb: str, task: Task) -> bool:
    """Whether a verb on an item applies to this task of the item."""
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
