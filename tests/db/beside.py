"""The machine that runs a queue beside the model: random workflows and events, and a comparison of every
task and run after every step (design 5).

    subject     what the tested queue has to do
    together    applies each verb to the model and to the subject, and compares
    starting    commits, notices, and further runs
    beside      attempts, and the verbs of persons

The subject decides which ready task is claimed next, and the model follows. At the end of each
example, everything runs to its end: no revision may be missing, and no task may wait for an event
that cannot come.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from arkqueue.model import REPORT, End, Workflow
from arkqueue.states import SETTLED, State
from tests.db import strategies
from tests.db.starting import Starting
from tests.model import Key, Name, Run, Task, concerns


class Beside(Starting):
    """A state machine for one archive with two branches. A subclass chooses the subject.

    There is only one rule, which draws one of the possible verbs. Hypothesis would give separate
    rules equal weights and leave most of them out of an example, so that few tasks would run.
    """

    @initialize(workflow=strategies.workflows(), branch=st.sampled_from(strategies.BRANCHES))
    def begin(self, workflow: Workflow, branch: str) -> None:
        """Makes two revisions with the same definitions, so that there is work. The second one
        changes the list file.
        """
        self.workflow = workflow
        for listed in ("k", "kl"):
            self.repository.commit(branch, workflow, strategies.PATHS, listed=listed)
            self.sweep()
            self.take_turn()
        self.compare_runs()

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        self.is_changed = False
        self.do_something(data)
        if self.is_changed:
            self.compare_runs()

    def do_something(self, data: st.DataObject, verbs: Sequence[tuple[str, int, set[State]]] = ()) -> None:
        here = {state for state in State if self.keys(state)}
        verbs = verbs or VERBS
        possible = [
            verb
            for verb, weight, states in verbs
            if not states or here & states
            for _ in range(weight * (6 if verb in self.favoured else 1))
        ]
        verb = data.draw(st.sampled_from(possible))
        self.saw(verb)
        getattr(self, verb)(data)

    # --- Attempts ---

    def claim(self, data: st.DataObject) -> None:
        labels = data.draw(strategies.labels)
        stores = {self.model.task(key).store for key in self.keys(State.READY)} - {None}
        if stores and data.draw(st.booleans()):  # prefers a host without some scratch folder
            labels = next((one for one in strategies.EVERY_HOST if not stores <= {*one}), labels)
        for _ in range(data.draw(st.sampled_from([1, 3, 6, 9]))):
            self.claim_one(labels)
        self.compare()

    def work(self, data: st.DataObject) -> None:
        """Claims and finishes one task after the other, so that examples make progress."""
        for _ in range(data.draw(st.sampled_from([1, 2, 4, 6]))):
            if key := self.claim_one():
                self.end(data, key, self.ends_of(key))

    def finish(self, data: st.DataObject) -> None:
        """Finishes an attempt. An attempt that is asked to stop mostly stops. Any other attempt
        stops only because its task manager hands it back.
        """
        key = self.pick(data, State.RUNNING)
        stops = 2 if self.model.task(key).stop else 1
        self.end(data, key, st.one_of([st.just((End.STOPPED, None))] * stops + [self.ends_of(key)] * (3 - stops)))

    def ends_of(self, key: Key) -> st.SearchStrategy[tuple[End, int | None]]:
        """The possible ends of an attempt. A task that was deferred is often deferred again, so
        that deadlines matter.
        """
        return strategies.ends_again if self.model.task(key).deferred else strategies.ends

    def end(self, data: st.DataObject, key: Key, ends: st.SearchStrategy[tuple[End, int | None]]) -> None:
        late = self.model.task(key).definition.deadline is not None and data.draw(st.booleans())
        end, code = data.draw(ends)
        self.both("finish", key, end, code, data.draw(strategies.outputs), late)
        self.saw("failed at its deadline", code == 75 and self.model.task(key).state is State.FAILED)

    def lose(self, data: st.DataObject) -> None:
        """Loses an attempt once, or until its task is given up. Prefers an attempt that is being
        stopped. Often retries a task that failed with its attempt.
        """
        running = self.keys(State.RUNNING)
        key = data.draw(st.sampled_from([key for key in running if self.model.task(key).stop] or running))
        for _ in range(data.draw(st.sampled_from([1, 1, 4]))):
            self.saw("a stopping task is lost", self.model.task(key).stop)
            self.both("finish", key, End.LOST, None)
            while self.model.task(key).state is State.READY and self.claim_one():
                pass
            if self.model.task(key).state is not State.RUNNING:
                break
        if self.model.task(key).state is State.FAILED and data.draw(st.booleans()):
            self.retry_one(data, key)

    def defer(self, data: st.DataObject) -> None:
        """Claims a task whose attempt defers it, and often lets the next attempts do so too, so
        that deadlines and polls matter.
        """
        if not (key := self.claim_one()):
            return
        self.end(data, key, st.just((End.EXITED, 75)))
        for what in data.draw(st.sampled_from(_AFTER_A_DEFERRAL)):
            task = self.model.task(key)
            if task.state is State.DEFERRED:
                how = data.draw(st.sampled_from(["due", "due", "refresh", "refresh_all"])) if task.polls else "due"
                self.both(how, *([] if how == "refresh_all" else [key]))
                self.saw(how)
            while task.state is State.READY and self.claim_one():
                pass
            if task.state is not State.RUNNING or task.run.deleted:
                return
            if what == "delete":
                self.delete_one(task.run)
            elif what == "cancel":
                self.both("cancel", key)
                self.both("finish", key, End.STOPPED, None)
                self.retry_one(data, key)
            else:
                self.end(data, key, st.sampled_from([what, (End.EXITED, 75)]))

    def due(self, data: st.DataObject) -> None:
        self.both("due", self.pick(data, State.DEFERRED))

    # --- Verbs of persons ---

    def cancel(self, data: st.DataObject) -> None:
        """Cancels a task. Sometimes prefers a guarded task while the caller is not an approver."""
        closed = [key for key in self.keys(*UNSETTLED) if self.model.is_closed(self.model.task(key))]
        if closed and data.draw(st.booleans()):
            self.both("cancel", data.draw(st.sampled_from(closed)))
            return
        self.both(
            "cancel",
            self.pick_any(data, State.WAITING, State.HELD, State.READY, State.RUNNING, State.RUNNING, State.DEFERRED),
        )

    def cancel_run(self, data: st.DataObject) -> None:
        runs = [run for run in self.model.runs if not all(task.settled for task in run.tasks.values())]
        self.both("cancel_run", self.draw_run(data, runs).key)

    def restart(self, data: st.DataObject) -> None:
        self.both("restart", self.pick_any(data, State.RUNNING))

    def retry(self, data: st.DataObject) -> None:
        self.retry_one(data, self.pick_any(data, State.FAILED, State.CANCELED, State.SKIPPED, State.DEFERRED))

    def retry_one(self, data: st.DataObject, key: Key) -> None:
        force = data.draw(st.booleans())
        task = self.model.task(key)
        polled, was, lost = task.polls, task.state, task.losses > 0
        from_start = (polled or lost) and data.draw(st.booleans())
        self.saw("retry of a deferred task", was is State.DEFERRED)
        self.both("retry", key, force, from_start, judged_again=[key])
        is_back = polled and self.model.task(key).state is not was
        self.saw("a canceled task is polled again", is_back and was is State.CANCELED and not from_start)
        self.saw("a command runs again from the start", is_back and from_start)
        self.saw("a lost command runs again on purpose only", lost and self.refused and not from_start)
        self.saw("retry by force", force)
        self.saw("retried and held", self.model.task(key).state is State.HELD)

    def retry_from(self, data: st.DataObject) -> None:
        """Retries from a task: mostly an ended task with ended tasks behind it, sometimes any task.
        Lets runs proceed until such a task exists.
        """
        code = data.draw(st.sampled_from([0, 0, 65]))
        for run in self.model.runs[::-1]:
            if not self._with_an_end_behind() and any(len(self.model.part([task])) > 1 for task in run.own):
                self.settle(run, first=code)
        if long := self._with_an_end_behind():
            key = data.draw(st.sampled_from(long))
        else:
            key = self.pick_any(data, State.COMPLETED, State.DEFERRED, *BAD)
        force, from_start = data.draw(st.booleans()), data.draw(st.sampled_from([True, True, False]))
        of_item = key.item or None if data.draw(st.booleans()) else None
        starts = [self.model.task(key)] if of_item else self.model.run(key.run_key).named(key.name)
        was = {task.key: task.state for task in self.model.part(starts, of_item)}
        self.both("retry_from", key.run_key, key.name, force, from_start, of_item, judged_again=was)
        part = [self.model.task(key) for key in was]
        back = [task for task in part if was[task.key] in SETTLED and not task.settled]
        self.saw(
            "what had completed behind a task runs again", any(was[task.key] is State.COMPLETED for task in back[1:])
        )
        self.saw("what was rejected runs again", any(was[task.key] is State.REJECTED for task in back))
        self.saw("a second time on purpose", from_start and any(task.definition.poll for task in back))
        self.saw("what another failure skips stays skipped", back and any(task.root for task in part))
        self.saw("an item runs again from a task", back and of_item)

    def _with_an_end_behind(self) -> list[Key]:
        """The ended tasks behind which another task has completed or was rejected."""
        ended = [self.model.task(key) for key in self.keys(State.COMPLETED, State.DEFERRED, *BAD)]
        done = (State.COMPLETED, State.REJECTED)
        return [
            task.key
            for task in ended
            if not task.run.deleted and any(other.state in done for other in self.model.part([task])[1:])
        ]

    def refresh(self, data: st.DataObject) -> None:
        """Refreshes a polled task, or sometimes any other task, or all polled tasks."""
        polled = [key for key in self.keys(State.DEFERRED) if self.model.task(key).polls]
        if data.draw(st.sampled_from([True, False, False])):
            self.both("refresh_all")
            self.saw("refresh_all", polled)
        else:
            self.both("refresh", data.draw(st.sampled_from(polled * 2 + self.keys(State.DEFERRED))))

    def retry_failed(self, data: st.DataObject) -> None:
        failed = [task.run for task in self.model.tasks() if task.state is State.FAILED]
        run = self.draw_run(data, list({run.key: run for run in failed}.values()) or self.model.runs)
        keys = [task.key for task in run.own if task.state is State.FAILED]
        self.both("retry_failed", run.key, judged_again=keys)
        again = [key for key in keys if self.model.task(key).state is not State.FAILED]
        self.saw("some of what failed is retried, and some is refused", again and len(again) < len(keys))
        self.saw("several that failed are retried at once", len(again) > 1)

    def skip(self, data: st.DataObject) -> None:
        key = self.pick_any(data, State.WAITING, State.HELD, State.READY, State.DEFERRED, State.FAILED, State.REJECTED)
        as_completed = data.draw(st.booleans())
        self.both("skip", key, as_completed, as_completed and data.draw(st.booleans()), judged_again=[key])
        self.saw("skip as completed", as_completed)

    def skip_until(self, data: st.DataObject) -> None:
        key = self.pick(data, *BAD)
        self.both("skip_until", key.name, key.branch, key.number)

    def item(self, data: st.DataObject) -> None:
        """Applies verbs to items. Mostly draws a verb and an item with a task that the verb
        concerns.
        """
        for _ in range(data.draw(st.sampled_from([1, 1, 2]))):
            of_items = [task for task in self.model.tasks() if task.item and not task.run.deleted]
            meant = {verb: [task.key for task in of_items if _means(verb, task)] for verb in ITEM_VERBS}
            possible = [verb for verb in ITEM_VERBS if meant[verb]]
            if not possible:
                return
            is_any = data.draw(st.sampled_from([False] * 7 + [True]))
            often = [verb for verb in possible for _ in range(ITEM_VERBS[verb])]
            verb = data.draw(st.sampled_from(list(ITEM_VERBS) if is_any else often))
            some = [task.key for task in of_items] if is_any else meant[verb]
            self.act_on_item(data, verb, data.draw(st.sampled_from(some)))

    def act_on_item(self, data: st.DataObject, verb: str, key: Key) -> None:
        run, item = key.run_key, key.item
        tasks = [task for task in self.model.run(run).own if task.item == item]
        again = {task.key for task in tasks} | {task.root.key for task in tasks if task.root}
        before = self.model.states()
        if verb in ("delete", "undelete"):
            self.both(f"{verb}_item", run, item, judged_again=again)
        else:
            self.both("on_item", run, item, verb, *self._words_of(data, verb), judged_again=again)
        self.saw(f"{verb} an item", self.refused is None)
        gates = [task for task in self.model.tasks() if task.is_gate_of_list]
        self.saw(
            "a gate of a list waits again",
            any(before.get(gate.key) is State.COMPLETED and not gate.settled for gate in gates),
        )

    def _words_of(self, data: st.DataObject, verb: str) -> tuple[Any, ...]:
        """The further arguments of a verb on a task."""
        if verb == "prioritize":
            return (data.draw(strategies.priorities),)
        if verb == "retry_failed":
            return False, False
        return (data.draw(st.booleans()), data.draw(st.booleans())) if verb in ("retry", "skip", "release") else ()

    def delete(self, data: st.DataObject) -> None:
        """Deletes a run, mostly one without running tasks, and sometimes undeletes it."""
        runs = [run for run in self.model.runs if run.place.number > 1]
        still = [run for run in runs if not any(t.state is State.RUNNING and not t.polls for t in run.own)]
        self.delete_one(
            self.draw_run(data, still or runs if data.draw(st.sampled_from([True] * 4 + [False])) else runs)
        )

    def delete_one(self, run: Run) -> None:
        self.both("delete", run.key)
        self.saw("what is deleted is canceled", run.canceled_with_it)
        self.saw("a poll is stopped with its run", run.deleted and any(t.state is State.RUNNING for t in run.own))

    def undelete(self, data: st.DataObject) -> None:
        deleted = [run for run in self.model.runs if run.deleted]
        run = self.draw_run(data, deleted * 4 + [run for run in self.model.runs if run.place.number > 1])
        again = {task.key for task in run.tasks.values()} | {task.root.key for task in run.own if task.root}
        self.both("undelete", run.key, judged_again=again)
        self.saw("what comes back is held", run.deleted is False and any(task.state is State.HELD for task in run.own))

    def purge(self, data: st.DataObject) -> None:
        """Purges a run, mostly a settled one. Runs of commits that have begun stay for other verbs.
        Afterwards, does at once what may meet the purged run again.
        """
        if self.purge_what_went_on_from_a_failure(data):
            return
        runs = self.model.runs
        settled = [run for run in runs if all(task.settled for task in run.tasks.values())]
        done = [run for run in settled if any(task.attempts for task in run.own)]
        later = {run.key: older for run in done if (older := self.older_and_bad(run))}
        deleted = [run for run in settled if run.deleted]
        free = [run for run in done if not self.model.is_waited_for(run)]
        newest = [run for run in done if run.key in later] or free[-2:] or done[-2:]
        needed = [run for run in settled if self.model.is_waited_for(run)]
        of = {"n": newest, "d": deleted, "w": needed, "s": settled}
        which = of[data.draw(st.sampled_from("nnndddws"))] or settled
        run = self.draw_run(data, which if which and data.draw(st.sampled_from("mmmmma")) == "m" else runs)
        if all(other is run or other.place.number == 1 for other in runs):
            return
        self.both("purge", run.key)
        is_gone = run not in self.model.runs
        if is_gone and run.key in later:
            key = data.draw(st.sampled_from(later[run.key]))
            self.both("retry", key, False, judged_again=[key])
        elif is_gone and run in done:
            self.both("trigger", run.branch, run.place.number, None, True)
        self.saw("purge of what others hang on is refused", run in settled and not is_gone)
        self.saw("what completed is purged", is_gone and any(task.attempts for task in run.own))
        self.saw("a deleted run is purged", is_gone and run.deleted)
        self.saw(
            "a run between others is purged",
            is_gone and any(other.place < run.place for other in self.model.on_branch(run.branch)),
        )

    def purge_what_went_on_from_a_failure(self, data: st.DataObject) -> bool:
        """Waives a failure for which a later run waits, lets that run end, and purges it. A retry
        of the failed task is nevertheless outdated. Returns whether there was such a run.
        """
        behind = {
            edge.source.key: edge.target.run
            for edge in self.model.edges
            if edge.crossing and not edge.met and edge.target.state is State.WAITING and not edge.target.is_gate
            if edge.source.state is State.FAILED and not edge.source.run.deleted
        }
        if not behind or self.model.paused:
            return False
        key = data.draw(st.sampled_from(list(behind)))
        self.both("skip", key, False, False, judged_again=[key])
        run = behind[key]
        self.claim_all()
        for task in run.own:
            if task.state is State.RUNNING:
                self.both("finish", task.key, *((End.STOPPED, None) if task.stop else (End.EXITED, 0)))
        if not all(task.settled for task in run.own):
            self.both("cancel_run", run.key)
        self.both("purge", run.key)
        self.both("retry", key, False, judged_again=[key])
        return True

    def older_and_bad(self, run: Run) -> list[Key]:
        """The tasks of earlier runs that may be retried, and whose name has completed in this run
        or that let a task of this run start.
        """
        names = {task.key.inside for task in run.own if task.state is State.COMPLETED and task.attempts}
        earlier = [other for other in self.model.on_branch(run.branch) if other.place < run.place]
        tasks = [other.tasks[name] for other in earlier for name in names if name in other.tasks]
        tasks += [e.source for task in run.own if task.attempts for e in task.into if e.crossing and e.met]
        return [task.key for task in tasks if task.bad and task.state is not State.REJECTED and not task.root]

    def report(self, data: st.DataObject) -> None:
        """Makes a report, preferably of a run that has changed since its last report. If its REPORT
        has a command, changes the run before and ends the command afterwards, so that reports are
        sent.
        """
        runs = self.model.runs
        commands = [
            run for run in runs if not run.deleted and Name(REPORT) in run.tasks and not run.tasks[Name(REPORT)].is_gate
        ]
        changed = [run for run in runs if run.changed_since_report]
        now = data.draw(st.sampled_from([False, False, True]))
        run = self.draw_run(data, commands if commands and data.draw(st.booleans()) else changed * 4 + runs)
        if run in commands:
            self.settle(run)
            bad = [task.key for task in run.own if task.state in (State.FAILED, State.REJECTED) and not task.waived]
            if bad and run.has_reported:
                self.both("skip", bad[0], False, False, judged_again=bad[:1])
        was = run.changed_since_report
        count, reports = len(run.reports), [task for task in run.tasks.values() if task.name == REPORT]
        self.both("report", run.key, now, judged_again=[task.key for task in reports])
        if len(run.reports) > count:
            self.saw("REPORT runs again", run.updating is not None and run.has_reported)
            self.saw("a report now is given to a command", run.updating is not None and not run.has_reported)
            self.saw("a report of what has changed", was and not run.changed_since_report)
            self.saw("a report now", now and not all(task.settled for task in run.own))
            self.saw("a report without changes", not run.reports[-1].changes)
        if run in commands:
            self.settle(run)
        if data.draw(st.booleans()) and (bad := [task.key for task in run.own if task.state in BAD]):
            self.retry_one(data, data.draw(st.sampled_from(bad)))

    def prioritize(self, data: st.DataObject) -> None:
        key, priority = self.pick_any(data, State.WAITING, State.READY), data.draw(strategies.priorities)
        if data.draw(st.sampled_from([False, False, True])):
            self.both("prioritize_run", key.run_key, priority)
            self.saw("prioritize_run")
        else:
            self.both("prioritize", key, priority)

    def limit(self, data: st.DataObject) -> None:
        """Sets a limit, preferably lower than the number of running tasks, after claiming more."""
        if data.draw(st.booleans()):
            self.claim_one()
            self.claim_one()
        running = len(self.keys(State.RUNNING))
        most = data.draw(st.sampled_from([None, 1, 2, 3, *[running - 1 if running > 1 else 1] * 3]))
        self.saw("more run than may from now on", most and running > most)
        self.both("limit", most)

    def set_lock(self, data: st.DataObject) -> None:
        """Sets the capacity of a lock, preferably a higher one for a lock with waiting tasks."""
        awaited = sorted(
            {name for task in self.model.tasks() if task.asks for name in task.locks} & {*strategies.LOCKS}
        )
        if awaited and data.draw(st.booleans()):
            self.both("set_lock", data.draw(st.sampled_from(awaited)), 2)
        else:
            self.both("set_lock", data.draw(strategies.locks), data.draw(strategies.capacities))

    def pause_lock(self, data: st.DataObject) -> None:
        self.both("pause_lock", data.draw(strategies.locks))

    def resume_lock(self, data: st.DataObject) -> None:
        self.both("resume_lock", data.draw(strategies.locks))

    def man(self, data: st.DataObject) -> None:
        """Replaces the living task managers by one."""
        self.both("man", data.draw(strategies.labels))

    def guard(self, data: st.DataObject) -> None:
        """Guards some names. The caller of the next verbs is mostly not an approver."""
        before = {task.key for task in self.model.tasks() if task.by_a_guard}
        self.both("guard", data.draw(strategies.guarded))
        self.both("act_as", data.draw(st.sampled_from([False, False, True])))
        self.saw("held by a guard", {task.key for task in self.model.tasks() if task.by_a_guard} - before)

    def act_as(self, data: st.DataObject) -> None:
        self.both("act_as", data.draw(st.booleans()))

    def pause_archive(self, data: st.DataObject) -> None:
        """Pauses the archive. Mostly lets the running tasks end in the pause, so that a canceler
        waits.
        """
        self.both("pause")
        if data.draw(st.sampled_from([True, True, False])):
            for key in self.keys(State.RUNNING):
                if self.model.task(key).stop is None:
                    self.both("finish", key, End.EXITED, 0)
        if any(self._parked()) and data.draw(st.booleans()):
            self.resume_archive(data)

    def resume_archive(self, data: st.DataObject) -> None:  # noqa: ARG002
        self.saw("what waited to cancel in a pause goes on", any(self._parked()))
        self.both("resume")

    def _parked(self) -> Iterator[Task]:
        return (
            task
            for task in self.model.tasks()
            if task.state is State.WAITING and self.model.is_parked(task) and not self.model.unmet(task)
        )

    def hold(self, data: st.DataObject) -> None:
        """Holds a task, preferably one that a later run has as well, because it may be outdated
        when it is released. A task that is outdated already comes back by force, is held, and
        released.
        """
        old = [key for key in self.keys(State.FAILED, State.CANCELED) if self.model.is_overtaken(key)]
        if old and data.draw(st.booleans()):
            key = data.draw(st.sampled_from(old))
            self.both("retry", key, True, judged_again=[key])
            if self.model.task(key).state in (State.WAITING, State.READY):
                self.both("hold", key)
            if self.keys(State.HELD):
                self.release(data)
            return
        here = self.keys(State.WAITING, State.READY)
        older = [key for key in here if any(_is_later(other, key) for other in here)]
        self.both(
            "hold", data.draw(st.sampled_from(older)) if older else self.pick_any(data, State.WAITING, State.READY)
        )

    def hold_run(self, data: st.DataObject) -> None:
        self.both("hold_run", self.draw_run(data, [run for run in self.model.runs if run.place.number > 1]).key)

    def hold_archive(self, data: st.DataObject) -> None:
        """Holds the archive, or ends the hold, so that the archive is not on hold
        most of the time.
        """
        if self.model.on_hold and data.draw(st.sampled_from("uuuh")) == "u":
            self.unhold(data)
        else:
            self.both("hold_archive")
            self.saw("held with its archive", self.keys(State.HELD))

    def unhold(self, _: st.DataObject) -> None:
        self.saw("unhold")
        self.both("unhold")

    def release(self, data: st.DataObject) -> None:
        """Releases a task, a run, or everything, mostly after the end of the archive's hold."""
        if self.model.on_hold and data.draw(st.sampled_from("uuuh")) == "u":
            self.unhold(data)
        if not self.model.approves and data.draw(st.booleans()):
            self.both("act_as", True)
        if not self.model.paused and data.draw(st.sampled_from("yynn")) == "y":
            self.go_past_what_is_held(data)
        held, outdated = self.keys(State.HELD), []
        if not self.model.on_hold:
            outdated = [key for key in held if self.model.is_outdated(self.model.task(key))]
        how = data.draw(st.sampled_from([(False, False)] * (1 if outdated else 3) + [(True, False), (False, True)]))
        what = data.draw(st.sampled_from("ttra"))
        fired = {task.key for task in self.model.tasks() if task.fired}
        guarded = {task.key for task in self.model.tasks() if task.by_a_guard}
        if what == "t":
            key = data.draw(st.sampled_from(outdated)) if outdated else self.pick_any(data, State.HELD)
            self.both("release", key, *how)
        elif what == "r":
            keys = held or [key for key in self.model.states() if key.number > 1]
            self.both("release_run", data.draw(st.sampled_from(keys)).run_key, *how)
        else:
            self.both("release_all", *how)
        self.saw("release of what is outdated is refused", outdated and not any(how))
        self.saw("release by force", how[0])
        self.saw("what is outdated is skipped", how[1] and any(self.model.task(key).waived for key in outdated))
        released = [key for key in held if self.model.task(key).state is not State.HELD]
        self.saw("released", released)
        self.saw("an approver releases what is guarded", any(key in guarded for key in released))
        self.saw(
            "what is guarded is left when the rest is released",
            released and any(key in guarded for key in held if key not in released),
        )
        self.saw("cancels fire at a release", any(self.model.task(key).fired and key not in fired for key in released))

    def go_past_what_is_held(self, data: st.DataObject) -> None:
        """Completes the later occurrences of held tasks as far as they are ready, so that the held
        tasks become outdated. Sometimes makes a later run of a held task for this.
        """
        held = [key for key in self.keys(State.HELD) if not self.model.task(key).is_gate]
        if held and not self.model.on_hold and data.draw(st.booleans()):
            key = data.draw(st.sampled_from(held))
            self.both("trigger", key.branch, key.number, [key.name], True)
        self.claim_all()
        for key in self.keys(State.RUNNING):
            if any(_is_later(key, older) for older in held) and self.model.task(key).stop is None:
                self.both("finish", key, End.EXITED, 0)

    # --- The end of an example ---

    def teardown(self) -> None:
        """Runs everything to its end, and then waives failures. In the end, no task waits."""
        try:
            if self.agree:
                self.sweep()
                self.take_turn()
                self.both("act_as", True)
                if self.model.paused:
                    self.both("resume")
                for name in sorted(self.model.paused_locks):
                    self.both("resume_lock", name)
                if self.model.labels:  # a task with a scratch folder waits for its host
                    self.both("man", *strategies.EVERY_HOST)
                self.run_out()
                # Tasks that continue may fail in turn, if the name of their lock has no value.
                waived: set[Key] = set()
                while failed := set(self.keys(State.FAILED, State.REJECTED)) - waived:
                    for name, branch in {(key.name, key.branch) for key in failed}:
                        self.both("skip_until", name, branch, self.last(branch))
                    self.run_out()
                    waived |= failed
                left = [task for task in self.model.tasks() if not task.settled]
                assert not left, "left for ever:\n" + "\n".join(map(self.why_left, left))
                type(self).examples.update(self.happened | self.in_the_graph())
        finally:
            self.subject.close()

    def run_out(self) -> None:
        """Claims and finishes tasks until nothing changes. Compares the tasks after each round, and
        the runs at the end.
        """
        while True:
            if self.model.on_hold:
                self.both("unhold")
            if self.keys(State.HELD):
                self.both("release_all", True, False)
            self.claim_all()
            going = self.keys(State.RUNNING, State.DEFERRED)
            if not going:
                self.compare_runs()
                return
            before = self.model.snapshot()
            for key in going:
                task = self.model.task(key)
                if task.state is State.RUNNING:
                    self.say("finish", key, End.STOPPED if task.stop == "cancel" else End.EXITED, 0)
                elif task.state is State.DEFERRED:
                    self.say("due", key)
            self.compare()
            self.model.check_invariants(before)


_FAILS = (End.EXITED, 1)
_AFTER_A_DEFERRAL: list[list[Any]] = [
    [(End.EXITED, 0)], [(End.EXITED, 65)], [_FAILS, _FAILS, _FAILS], [(End.STOPPED, None), (End.EXITED, 0)],
    [(End.LOST, None), (End.EXITED, 65)], [(End.EXITED, 75), (End.EXITED, 75)], ["delete"], ["cancel"], ["cancel"], [_FAILS, _FAILS, _FAILS],
]  # fmt: skip
"""The ends of attempts after a deferral, or what happens to the attempts."""


def _means(verb: str, task: Task) -> bool:
    """Whether a verb on an item concerns this task of the item."""
    if verb in ("delete", "undelete"):
        return task.deleted is (verb == "undelete")
    return concerns(verb, task) and not task.deleted


ITEM_VERBS = {
    "cancel": 2, "restart": 6, "retry": 2, "retry_failed": 6, "skip": 2, "hold": 2, "release": 4, "refresh": 6, "prioritize": 1, "delete": 2, "undelete": 3,
}  # fmt: skip
"""The weights of the verbs on an item, if the verb concerns a task."""
UNSETTLED = {State.WAITING, State.HELD, State.READY, State.RUNNING, State.DEFERRED}
BAD = {State.FAILED, State.REJECTED, State.CANCELED, State.SKIPPED}
VERBS: list[tuple[str, int, set[State]]] = [
    ("commit", 6, set()),
    ("trigger", 3, set()),
    ("submit_beside_newer_work", 2, set()),
    ("backfill", 2, set()),
    ("rewrite", 1, set()),
    ("delete_branch", 1, set()),
    ("deliver", 2, set()),
    ("look", 4, set()),
    ("claim", 6, {State.READY}),
    ("work", 6, {State.READY}),
    ("finish", 8, {State.RUNNING}),
    ("lose", 2, {State.RUNNING}),
    ("defer", 7, {State.READY}),
    ("due", 3, {State.DEFERRED}),
    ("cancel", 2, UNSETTLED),
    ("cancel_run", 1, UNSETTLED),
    ("restart", 2, {State.RUNNING}),
    ("refresh", 3, {State.DEFERRED}),
    ("retry", 5, BAD | {State.DEFERRED}),
    ("retry_failed", 3, {State.FAILED}),
    ("retry_from", 3, {State.COMPLETED}),
    ("skip", 2, UNSETTLED | BAD),
    ("skip_until", 1, BAD),
    ("item", 9, set()),
    ("delete", 2, UNSETTLED | BAD),
    ("undelete", 2, BAD),
    ("purge", 3, set()),
    ("report", 2, set()),
    ("prioritize", 1, UNSETTLED),
    ("limit", 1, UNSETTLED),
    ("set_lock", 2, UNSETTLED),
    ("pause_lock", 1, UNSETTLED),
    ("resume_lock", 2, UNSETTLED),
    ("man", 2, UNSETTLED),
    ("guard", 1, UNSETTLED),
    ("act_as", 1, {State.HELD}),
    ("pause_archive", 1, UNSETTLED),
    ("resume_archive", 2, UNSETTLED),
    ("hold", 2, {State.WAITING, State.READY}),
    ("hold_run", 1, {State.WAITING, State.READY}),
    ("hold_archive", 1, UNSETTLED),
    ("release", 6, {State.HELD}),
]
"""The verbs of a step, each with its weight, and with the states one of which some
task must have.
"""
OUTSIDE = [entry for entry in VERBS if entry[0] in ("commit", "rewrite", "delete_branch", "deliver", "look")]
"""The verbs on the repository and its scans."""


def _is_later(key: Key, than: Key) -> bool:
    """Whether a key is of a task with the other's name in a later run of the same branch."""
    return (key.branch, key.name) == (than.branch, than.name) and key.run_key > than.run_key
