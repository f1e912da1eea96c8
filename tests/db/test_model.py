"""Runs the queue beside the model: random workflows and events, and a comparison of every task and
run after every step (design 5).

``Subject`` is the tested queue. The machine applies each verb to the model and to the subject, and
compares. The subject decides which ready task is claimed next, and the model follows.

Commits go to a scripted repository. Their notices wait in a pool, and arrive late, twice, in
another order, or never. The next scan of the repository must bring the ledger to the state that the
rules of the ledger demand (``tests.model.Ledger``). At the end of each example, everything runs to
its end: no revision may be missing, and no task may wait for an event that cannot come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Protocol

import pytest
from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from arkqueue.model import COMMIT, REPORT, End, Item, TaskDefinition, Trigger, When, Workflow
from arkqueue.states import SETTLED, State
from tests.db import strategies
from tests.db.scripted_repository import Commit, Repository
from tests.model import (
    Appended,
    Blocks,
    Entry,
    Key,
    Kind,
    Ledger,
    Model,
    Name,
    Reason,
    Refused,
    Run,
    RunKey,
    RunSeen,
    Seen,
    Task,
    concerns,
    skips,
)


class Subject(Protocol):
    """A queue with one archive. Each verb does what the model's verb of the same name does, or
    raises ``Refused``; ``claim`` chooses a task.

    Appending the revisions that a scan finds is not a verb here, because the subject has its own
    way to find revisions (``Beside.take_turn``).
    """

    def baseline(self, branch: str, number: int, files: Mapping[str, tuple[Item, ...]]) -> object: ...
    def trigger(self, branch: str, number: int, names: Collection[str] | None, force: bool) -> object: ...
    def submit(self, branch: str, number: int, items: Sequence[Item] = (), store: str | None = None) -> object: ...
    def backfill(self, branch: str, first: int, last: int, names: Collection[str], force: bool) -> object: ...
    def claim(self, labels: Sequence[str] = strategies.LABELS) -> Key | None: ...
    def claim_some(self, slots: int, labels: Sequence[str] = strategies.LABELS) -> list[Key]: ...
    def finish(
        self, key: Key, end: End, exit_code: int | None, priority: int | None = None, late: bool = False
    ) -> object: ...
    def due(self, key: Key) -> object: ...
    def cancel(self, key: Key) -> object: ...
    def cancel_run(self, key: RunKey) -> object: ...
    def restart(self, key: Key) -> object: ...
    def retry(self, key: Key, force: bool, from_start: bool = False) -> object: ...
    def retry_from(self, key: RunKey, name: str, force: bool, from_start: bool, item: str | None = None) -> object: ...
    def on_item(self, key: RunKey, item: str, verb: str, *words: Any) -> object: ...
    def delete_item(self, key: RunKey, item: str) -> object: ...
    def undelete_item(self, key: RunKey, item: str) -> object: ...
    def refresh(self, key: Key) -> object: ...
    def refresh_all(self) -> object: ...
    def retry_failed(self, key: RunKey) -> object: ...
    def skip(self, key: Key, as_completed: bool, force: bool) -> object: ...
    def skip_until(self, name: str, branch: str, until: int) -> object: ...
    def prioritize(self, key: Key, priority: int) -> object: ...
    def prioritize_run(self, key: RunKey, priority: int) -> object: ...
    def delete(self, key: RunKey) -> object: ...
    def undelete(self, key: RunKey) -> object: ...
    def purge(self, key: RunKey) -> object: ...
    def report(self, key: RunKey, now: bool = False) -> object: ...
    def limit(self, max_running: int | None) -> object: ...
    def set_lock(self, name: str, capacity: int | None) -> object: ...
    def pause_lock(self, name: str) -> object: ...
    def resume_lock(self, name: str) -> object: ...
    def man(self, *labels: Collection[str]) -> object: ...
    def guard(self, names: frozenset[str]) -> object: ...
    def act_as(self, approver: bool) -> object: ...
    def pause(self) -> object: ...
    def resume(self) -> object: ...
    def hold(self, key: Key) -> object: ...
    def hold_run(self, key: RunKey) -> object: ...
    def hold_archive(self) -> object: ...
    def unhold(self) -> object: ...
    def release(self, key: Key, force: bool, skip_outdated: bool) -> object: ...
    def release_run(self, key: RunKey, force: bool, skip_outdated: bool) -> object: ...
    def release_all(self, force: bool, skip_outdated: bool) -> object: ...
    def look(self) -> Mapping[Key, Seen]: ...
    def look_at_runs(self) -> Mapping[RunKey, RunSeen]: ...
    def explain(self, key: Key) -> str: ...
    def close(self) -> None: ...


class ModelAsSubject:
    """A second model as the subject. It shows that the machine works, but says nothing about the
    queue.
    """

    def __init__(self) -> None:
        self._model = Model()

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._model, verb)

    def claim(self, labels: Sequence[str] = strategies.LABELS) -> Key | None:
        tasks = [t for t in self._model.tasks() if t.state is State.READY and self._model.takes(t.key, labels)]
        ready = sorted((t.priority, t.key) for t in tasks)
        if not ready or not self._model.may_claim():
            return None
        self._model.claim(ready[0][1], labels)
        return ready[0][1]

    def claim_some(self, slots: int, labels: Sequence[str] = strategies.LABELS) -> list[Key]:
        return [key for key in (self.claim(labels) for _ in range(slots)) if key]

    def explain(self, key: Key) -> str:
        return f"{key} is one of the model's own"

    def close(self) -> None:
        pass


class Beside(RuleBasedStateMachine):
    """A state machine for one archive with two branches. A subclass chooses the subject.

    There is only one rule, which draws one of the possible verbs. Hypothesis would give separate
    rules equal weights and leave most of them out of an example, so that few tasks would run.
    """

    examples: ClassVar[Counter[str]]
    """The number of examples in which an event happened. Each subclass has its own counter."""
    favoured: ClassVar[frozenset[str]] = frozenset()
    """The verbs that are drawn more often, because they lead to an event that is missing so far."""

    def make_subject(self) -> Subject:
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.repository = Repository(strategies.BRANCHES)
        self.ledgers = {branch: Ledger([Entry(f"{branch}1", 1)]) for branch in strategies.BRANCHES}
        self.notices: list[str] = []
        """The ids of commits whose notice has not arrived."""
        self.happened: set[str] = set()
        self.workflow = Workflow()
        self.agree = True
        self.refused: Refused | None = None
        """The refusal of the last verb, or None."""
        self.is_changed = True
        """Whether the step has called a verb of the model. If not, the runs have not changed."""
        self.subject = self.make_subject()
        for branch in strategies.BRANCHES:
            self.both("baseline", branch, 1, _files(self.repository.heads[branch]))

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

    def saw(self, what: str, really: object = True) -> None:
        """Counts an event for this example, if ``really``. At its end, the test checks that every
        event was drawn often enough.
        """
        if really:
            self.happened.add(what)

    # --- Commits and their notices ---

    def commit(self, data: st.DataObject) -> None:
        """Makes one or more commits, mostly with the definitions of the last commit."""
        branch = data.draw(st.sampled_from([name for name in strategies.BRANCHES if name in self.repository.heads]))
        for _ in range(data.draw(st.sampled_from([1, 1, 1, 1, 3]))):
            before, self.workflow = self.workflow, data.draw(strategies.mostly(self.workflow))
            self.saw("definitions that change", before != self.workflow)
            gap = data.draw(st.sampled_from([1, 1, 1, 3]))
            listed = data.draw(strategies.list_files) if self.workflow.list_files else None
            was = self.repository.heads[branch]
            id = self.repository.commit(branch, self.workflow, data.draw(strategies.changed_paths), gap, listed)
            note(f"commit {id}")
            is_same = was.workflow.list_files and listed in (None, was.listed)
            self.saw("a list file changes", was.workflow.list_files and not is_same)
            self.tell(data, id)
        self.perhaps_look(data)

    def rewrite(self, data: st.DataObject) -> None:
        """Resets a branch, force-pushes new commits, or pushes commits again that were taken off
        the branch.
        """
        branch = data.draw(st.sampled_from([name for name in strategies.BRANCHES if name in self.repository.heads]))
        others = [id for id in self.repository.commits if id.startswith(branch)]
        if data.draw(st.sampled_from("bbp")) == "b":
            self.repository.take_back(branch, data.draw(st.integers(1, 3)))
            self.saw("reset")
        else:
            self.repository.put_back(branch, data.draw(st.sampled_from(others)))
        for _ in range(data.draw(st.sampled_from([0, 1, 2]))):
            self.repository.commit(branch, self.workflow, data.draw(strategies.changed_paths))
        note(f"rewrite {branch} to {[commit.id for commit in self.repository.chain(self.repository.heads[branch].id)]}")
        self.tell(data, self.repository.heads[branch].id)
        self.perhaps_look(data)

    def delete_branch(self, data: st.DataObject) -> None:
        """Deletes the branch ``side``, or brings it back."""
        ids = [id for id in self.repository.commits if id.startswith("side")]
        if "side" not in self.repository.heads:
            id = data.draw(st.sampled_from([self.ledgers["side"].entries[-1].id, *ids]))
            self.repository.put_back("side", id)
            note(f"side comes back at {id}")
            self.tell(data, id)
        elif len(ids) > 2:
            note("side is deleted")
            self.repository.delete("side")
            self.tell(data, ids[-1])
            if data.draw(st.booleans()):
                self.look(data)
                if "side" not in self.repository.heads:
                    self.delete_branch(data)
                return
        self.perhaps_look(data)

    def perhaps_look(self, data: st.DataObject) -> None:
        """Scans the repository at once in half of the cases."""
        if data.draw(st.booleans()):
            self.look(data)

    def tell(self, data: st.DataObject, id: str) -> None:
        """Sends the notice of a commit. A notice is sometimes lost."""
        if data.draw(st.sampled_from("ttttl")) == "t":
            self.notices.append(id)
        else:
            self.saw("a notice is lost")

    def deliver(self, data: st.DataObject) -> None:
        """Delivers one of the waiting notices. Sometimes the notice will arrive a second time."""
        if not self.notices:
            return
        place = data.draw(st.integers(0, len(self.notices) - 1))
        id = self.notices[place]
        self.saw("notices change places", place)
        self.saw("a notice is late", any(id in ledger.kept for ledger in self.ledgers.values()))
        if data.draw(st.sampled_from("ooot")) == "o":
            self.notices.pop(place)
        else:
            self.saw("a notice comes twice")
        self.notify(id)

    def look(self, data: st.DataObject) -> None:
        """Scans the repository, because of a new notice, a periodic scan, or an earlier notice."""
        why = data.draw(st.sampled_from(["notice"] * 4 + ["sweep", "before"]))
        if why == "notice":
            self.deliver(data)
        elif why == "sweep":
            self.sweep()
        self.take_turn(data)

    def notify(self, id: str) -> None:
        """Passes a notice to the subject. Ignored here, because this subject scans
        without notices.
        """

    def sweep(self) -> None:
        """Makes a periodic scan due. Ignored here, because this subject scans without one."""

    def take_turn(self, data: st.DataObject | None = None) -> None:  # noqa: ARG002  # readers draw what happens meanwhile
        """Brings the ledger to the repository's heads. Here this is one step; ``BesideQueue`` has
        real readers, which take several.
        """
        for branch in strategies.BRANCHES:
            if branch not in self.repository.heads:
                if branch not in self.model.deleted_branches:
                    self.both("delete_branch", branch)
                continue
            if branch in self.model.deleted_branches:
                self.both("track", branch)
            revisions, dropped = self.lacking(branch, self.repository.heads[branch].id)
            if revisions:
                self.both("append", branch, revisions, dropped)
        self.check_ledgers()

    def lacking(self, branch: str, head: str, limit: int | None = None) -> tuple[list[Appended], list[int]]:
        """The revisions that a scan with this head of the branch must append, and the numbers that
        it must drop. Enters both into the ledger.
        """
        ledger, chain = self.ledgers[branch], self.repository.chain(head)
        dropped, new = ledger.lacks([commit.id for commit in chain])
        numbers = ledger.drop(dropped)
        self.saw("a rewrite", dropped)
        self.saw("several revisions at once", len(new) > 1)
        revisions = []
        for id in new[:limit]:
            last, commit = ledger.entries[-1], self.repository.commits[id]
            ledger.entries.append(Entry(id, last.number + commit.gap))
            changed = frozenset(self.repository.difference(last.id, id))
            revisions.append(Appended(last.number + commit.gap, commit.workflow, changed, _files(commit)))
        return revisions, numbers

    def check_ledgers(self) -> None:
        """After an undisturbed scan: every revision of the repository is in the ledger once, in
        order, and no other revision is.
        """
        for branch, ledger in self.ledgers.items():
            gone = branch not in self.repository.heads
            self.check(gone == (branch in self.model.deleted_branches), f"whether {branch} is gone was not seen")
            chain = [] if gone else [commit.id for commit in self.repository.chain(self.repository.heads[branch].id)]
            self.check(gone or ledger.kept == chain, f"{branch} is {chain}, its ledger {ledger.entries}")

    def trigger(self, data: st.DataObject) -> None:
        gone = self.model.deleted_branches
        runs = [run for run in self.model.runs if run.own and not run.dropped and run.branch not in gone]
        if runs:
            run = self.draw_run(data, runs)
            if any(Trigger.SUBMISSION in task.on for task in run.workflow.tasks) and data.draw(st.booleans()):
                self.submit(data, run)
                return
            some = st.lists(st.sampled_from(sorted(task.name for task in run.own)), min_size=1, unique=True)
            self.both("trigger", run.branch, run.place.number, data.draw(st.none() | some), data.draw(st.booleans()))

    def submit(self, data: st.DataObject, run: Run) -> None:
        """Submits at the revision of a run. A task without a list works for its submission alone,
        so a later completion of its name stops neither the submission nor a retry (design 5.19).
        """
        store = data.draw(strategies.stores)
        self.both("submit", run.branch, run.place.number, data.draw(strategies.submitted), store)
        planned = self.model.runs[-1]
        if planned.trigger is not Trigger.SUBMISSION or self.refused:
            return
        self.saw("a submission has attachments", store and any(not task.is_gate for task in planned.own))
        self.saw("a submission has items", any(task.item for task in planned.own))
        self.saw("submit")
        self.saw("a submission waits at no gate", planned.behind and not planned.behind.settled)
        beside = [task for task in planned.own if self.works_beside_newer_work(planned, task.definition)]
        self.saw("a submission beside newer work", beside)
        if beside:
            self.claim_all()
        for task in beside:
            while task.state is State.RUNNING and not task.stop:
                self.both("finish", task.key, End.EXITED, 1)
                if task.state is State.DEFERRED:
                    self.both("due", task.key)
                    self.claim_all()
            if task.state is State.FAILED:
                self.both("retry", task.key, False, judged_again=[task.key])
                self.saw("a retry of a submission beside newer work", self.refused is None)

    def submit_beside_newer_work(self, data: st.DataObject) -> None:
        """Submits at a revision after which a command without a list has completed that the
        submission has as well. If there is no such revision, lets runs proceed until there is one.
        """
        gone = self.model.deleted_branches
        runs = [run for run in self.model.runs if run.own and not run.dropped and run.branch not in gone]
        known = [run for run in runs if self.later_of_submission(run)]
        done = [run for run in known if any(self.works_beside_newer_work(run, task) for task in run.workflow.tasks)]
        if not known:
            return
        run = self.draw_run(data, done or known)
        if run not in done and not self.model.paused:
            key = data.draw(st.sampled_from(self.later_of_submission(run)))
            for other in self.model.on_branch(run.branch):
                if other.place <= key.run_key[1:] and not self.model.task(key).settled:
                    self.settle(other, first=0)
        self.submit(data, run)

    def later_of_submission(self, run: Run) -> list[Key]:
        """The tasks of later revisions whose commands without a list a submission at this run's
        revision would repeat.
        """
        names = {task.name for task in run.workflow.tasks if Trigger.SUBMISSION in task.on and self._is_alone(task)}
        later = [other for other in self.model.on_branch(run.branch) if other.place.number > run.place.number]
        return [other.tasks[Name(name)].key for other in later for name in names if Name(name) in other.tasks]

    def works_beside_newer_work(self, run: Run, task: TaskDefinition) -> bool:
        """Whether a command without a list has completed at a revision later than the run's."""
        highest = self.model.highest.get((run.branch, Name(task.name)), run.place)
        return self._is_alone(task) and Trigger.SUBMISSION in task.on and highest.number > run.place.number

    def _is_alone(self, task: TaskDefinition) -> bool:
        return task.foreach is None and not task.is_gate and task.name not in (COMMIT, REPORT)

    def backfill(self, data: st.DataObject) -> None:
        """Starts a backfill of some revisions of a branch, perhaps with its head, for tasks that
        the head has.
        """
        on_branch: dict[str, list[int]] = {}
        for (branch, number), revision in self.model.revisions.items():
            if not (revision.dropped or branch in self.model.deleted_branches):
                on_branch.setdefault(branch, []).append(number)
        with_tasks = {branch: self._tasks_of(branch, max(numbers)) for branch, numbers in on_branch.items()}
        if branches := sorted(branch for branch, names in with_tasks.items() if names):
            branch = data.draw(st.sampled_from(branches))
            first, last = sorted(data.draw(st.lists(st.sampled_from(on_branch[branch]), min_size=2, max_size=2)))
            some = with_tasks[branch]
            head = self.model.revisions[branch, self.last(branch)]
            of_files = sorted(task.name for task in head.workflow.tasks if strategies.is_of_file(task))
            others = [n for n in on_branch[branch] if self.model.revisions[branch, n].files != head.files]
            force = data.draw(st.booleans())
            if of_files and others and data.draw(st.sampled_from([True, True, False])):
                some, first, force = of_files, data.draw(st.sampled_from(others)), True
                last = max(first, last)
            names = data.draw(st.lists(st.sampled_from(some), min_size=1, max_size=2, unique=True))
            self.both("backfill", branch, first, last, names, force)
            runs = [run for run in self.model.on_branch(branch) if run.fill]
            self.saw("a backfill of several revisions", len(runs) > 1)
            self.saw("a backfill reads a list file at an old revision", any(map(self._reads_another_list, runs)))
            self.saw(
                "a backfill waits for the revision before",
                any(
                    edge.crossing and edge.kind is Kind.IMPLICIT and not edge.met
                    for run in runs
                    for task in run.own
                    for edge in task.into
                ),
            )

    def _reads_another_list(self, run: Run) -> bool:
        """Whether the list file has other items at the revision of a backfill's run than at the
        head.
        """
        files = self.model.revisions[run.branch, run.place.number].files
        head = self.model.revisions[run.branch, self.last(run.branch)].files
        return files != head and any(
            task.name in run.chosen and strategies.is_of_file(task) for task in run.workflow.tasks
        )

    def _tasks_of(self, branch: str, number: int) -> list[str]:
        tasks = self.model.revisions[branch, number].workflow.tasks
        return sorted(task.name for task in tasks if task.name not in (COMMIT, REPORT))

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

    def settle(self, run: Run, *, first: int = 1) -> None:
        """Ends the ready and running tasks of a run, and then runs its REPORT. ``first``: the exit
        code of the first task in the file.
        """
        self.claim_all()
        for _ in run.tasks:
            going = [task for task in run.tasks.values() if task.state is State.RUNNING]
            for task in going:
                code = first if task in run.own[:1] else 0
                self.both("finish", task.key, *((End.STOPPED, None) if task.stop else (End.EXITED, code)))
            self.claim_all()
            if not going:
                return

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

    # --- Model and subject together ---

    def last(self, branch: str) -> int:
        return max(number for of, number in self.model.revisions if of == branch)

    def draw_run(self, data: st.DataObject, runs: Sequence[Run]) -> Run:
        """Draws one of the runs by its key. A failing example prints what it drew, and a printed
        run would contain the whole model.
        """
        return self.model.run(data.draw(st.sampled_from([run.key for run in runs])))

    def keys(self, *states: State) -> list[Key]:
        """The tasks in these states, without the gates that exist in every run. Only REPORT can be
        held among these.
        """
        return [
            task.key
            for task in self.model.tasks()
            if task.state in states and (task.state is State.HELD or not (task.implicit and task.is_gate))
        ]

    def pick(self, data: st.DataObject, *states: State) -> Key:
        """One of the tasks in these states."""
        return data.draw(st.sampled_from(self.keys(*states)))

    def pick_any(self, data: st.DataObject, *states: State) -> Key:
        """Mostly one of the tasks in these states, sometimes any task, because the test compares
        refusals too.
        """
        if self.keys(*states) and data.draw(st.sampled_from("mmmmma")) == "m":
            return self.pick(data, *states)
        return data.draw(st.sampled_from(list(self.model.states())))

    def claim_one(self, labels: Sequence[str] = strategies.LABELS) -> Key | None:
        self._live(labels)
        key = self.subject.claim(labels)
        ready = self.keys(State.READY) if self.model.may_claim() else []
        self.saw("as many run as may", self.model.max_running and not ready and self.keys(State.READY))
        others = [other for other in ready if not self.model.takes(other, labels)]
        self.saw("a task waits for the host of its scratch folder", self._wait_for_hosts(others))
        self.saw("a task is left to a task manager with its labels", key and others)
        self.saw("nothing is claimed for want of a label", not key and others)
        ready = [other for other in ready if other not in others]
        self.saw("a task of labels is claimed", key and self.model.task(key).definition.runs_on)
        self.check(key in ready if key else not ready, f"{key} was claimed, ready are {ready}")
        if key:
            self.is_changed = True
            note(f"claim {key}")
            first = min(self.model.task(other).priority for other in ready)
            self.check(self.model.task(key).priority == first, f"{key} was claimed, {first} goes before")
            self.saw("a claim goes by priority", len({self.model.task(other).priority for other in ready}) > 1)
            before = self.model.snapshot()
            self.model.claim(key, labels)
            self.model.check_invariants(before)
            self.saw("a scratch folder is made", self.model.task(key).definition.scratch)
        return key

    def _wait_for_hosts(self, keys: Collection[Key]) -> bool:
        found = [self.model.task(key) for key in keys]
        return any(task.definition.scratch and task.store for task in found)

    def claim_all(self) -> None:
        """Claims until the subject has no more tasks for any host."""
        for labels in strategies.EVERY_HOST:
            self._claim_all_with(labels)
        left = self.keys(State.READY) if self.model.may_claim() else []
        self.check(not left, f"nothing more was claimed, ready are {left}")

    def _live(self, labels: Sequence[str]) -> None:
        """Adds the claiming task manager to the living ones if it may make a scratch folder. A task
        with a scratch folder takes part in the lines of its locks only while a task manager at its
        host lives.
        """
        hosts = {label for label in labels if label.startswith("@")}
        found = [self.model.task(key) for key in self.keys(State.READY)]
        makes = any(task.folder is not None and not task.store for task in found)
        if makes and self.model.labels and not any(hosts <= {*one} for one in self.model.labels):
            self.both("man", *self.model.labels, labels)

    def _claim_all_with(self, labels: Sequence[str]) -> None:
        self._live(labels)
        while keys := self.subject.claim_some(100, labels):
            ready = set(self.keys(State.READY))
            self.check(ready >= set(keys), f"{keys} were claimed, ready are {ready}")
            for key in keys:
                note(f"claim {key}")
                before = self.model.snapshot()
                self.model.claim(key, labels)
                self.model.check_invariants(before)

    def both(
        self,
        verb: str,
        *words: Any,
        judged_again: Collection[Key] = (),
        theirs: Callable[[], object] | None = None,
    ) -> None:
        """Applies a verb to the model and to the subject, or calls ``theirs`` for the subject.
        Compares the tasks.
        """
        before, known = self.model.snapshot(), set(self.model.runs)
        asked = [task for task in self.model.tasks() if task.asks]
        self.refused = self.say(verb, *words, theirs=theirs)
        if self.refused:
            self.check(self.model.snapshot() == before, f"{verb} was refused and yet changed something")
        self.compare()
        self.look_behind_what_never_began()
        self.look_at_locks(before, asked)
        self.look_behind_what_was_purged([run for run in self.model.runs if run not in known])
        self.model.check_invariants(before, judged_again)

    def say(self, verb: str, *words: Any, theirs: Callable[[], object] | None = None) -> Refused | None:
        """Applies a verb to the model and to the subject, or calls ``theirs`` for the subject.
        Returns the refusal of both, if any.
        """
        note(f"{verb} {', '.join(map(str, words))}")
        self.is_changed = True
        polled = verb == "finish" and self.model.task(words[0]).polls
        ours = _refusal(lambda: getattr(self.model, verb)(*words))
        other = _refusal(theirs or (lambda: getattr(self.subject, verb)(*words)))
        self.check((ours is None) == (other is None), f"{verb} {words}: the model says {ours!r}, the queue {other!r}")
        self.saw(f"{verb} is refused", ours)
        is_outdated = ours is not None and ours.reason is Reason.OVERWRITES
        self.saw(
            "outdated by what was purged", is_outdated and ours and not {*ours.tasks} <= self.model.states().keys()
        )
        self.saw("a second time is refused", ours is not None and ours.reason is Reason.SECOND)
        has_started = ours is not None and ours.reason is Reason.STARTED
        self.saw(
            "what was purged had started", has_started and ours and not {*ours.tasks} <= self.model.states().keys()
        )
        self.saw("a release is refused", ours and verb.startswith("release"))
        for what in (verb, "a verb"):
            self.saw(f"{what} is refused to who is no approver", ours and ours.reason is Reason.GUARDED)
        self.saw(f"an attempt ends: {' '.join(map(str, words[1:3]))}", verb == "finish")
        self.saw(f"a poll ends: {' '.join(map(str, words[1:3]))}", polled)
        if polled and words[2] == 1:
            state = self.model.task(words[0]).state
            self.saw("a poll is repeated", state is State.DEFERRED)
            self.saw("a poll has failed", state is State.FAILED)
        self.saw("an attempt says a priority", verb == "finish" and words[3:] and words[3])
        return ours

    def look_behind_what_never_began(self) -> None:
        for edge in self.model.edges:
            if edge.crossing and not edge.met and edge.target.state is State.WAITING and not edge.source.attempts:
                blocks = self.model.blocks(edge.source) if edge.source.bad else Blocks.NOTHING
                self.saw("blocked behind what never began", blocks is Blocks.ALL)
                self.saw("blocked behind a failure that it waited for", blocks is Blocks.COMPLETION)

    def look_behind_what_was_purged(self, planned: Collection[Run]) -> None:
        for run in planned:
            behind = [
                wish
                for task in run.own
                for wish in task.definition.depends
                if wish.task != "*" and (wish.previous or wish.task not in run.chosen)
                if self.model.is_purged(Name(wish.task or task.name), run)
            ]
            self.saw("planned behind what was purged", behind)
            self.saw("planned to run if what was purged had failed", any(wish.when is When.FAILED for wish in behind))

    def look_at_locks(self, before: Mapping[Key, tuple[State, Key | None, int]], asked: Collection[Task]) -> None:
        """Counts what a step did to the lines of locks. ``asked``: the tasks that asked for locks
        before.
        """
        having = Counter(
            name for task in self.model.tasks() if task.state in (State.READY, State.RUNNING) for name in task.locks
        )
        self.saw("a lock of which several have a part", any(having[name] > 1 for name in having))
        self.saw("what waits for a lock goes on", any(task.state is State.READY for task in asked))
        for task in self.model.tasks():
            is_new = task.key not in before or before[task.key][0] is not State.FAILED
            self.saw("the name of a lock has no value", task.state is State.FAILED and not task.attempts and is_new)
            stands = task.asks or task.state in (State.READY, State.RUNNING)
            self.saw("the name of a lock has a field", stands and any(name.startswith("p-") for name in task.locks))
            if task.asks:
                self.saw("waits for a lock")
                self.saw("waits for one of its locks", not all(having[name] for name in task.locks))
                self.saw("cancels and waits for a lock", task.definition.cancels)
                self.saw("gives its locks back", task.key in before and before[task.key][0] is State.READY)
                self.saw(
                    "nobody can run what would have its locks",
                    not any(self.model.takes(task.key, labels) for labels in self.model.labels or [strategies.LABELS]),
                )

    def compare(self) -> None:
        self.compare_what(self.model.look(), self.subject.look())

    def compare_runs(self) -> None:
        runs = self.model.look_at_runs()
        self.compare_what(runs, self.subject.look_at_runs())
        self.happened.update(f"a run is {run.state}" for run in runs.values())
        for run in runs.values():
            self.saw("changed since its report", run.changed_since_report)
            self.saw("its own report after one of a person", (False, True) in _pairs(run))
            self.saw("a report after its own", (True, False) in _pairs(run))
            self.saw("a report is sent", any(sent for *_, sent in run.reports))
            self.saw("a report is not sent", any(given and not sent for *_, given, sent in run.reports))
            self.saw("a report of a person is sent", any(sent and not own for own, *_, sent in run.reports))

    def compare_what(self, ours: Mapping[Any, Any], theirs: Mapping[Any, Any]) -> None:
        differ = {key: (ours.get(key), theirs.get(key)) for key in {*ours, *theirs} if ours.get(key) != theirs.get(key)}
        self.check(
            not differ,
            "the model and the queue differ (theirs second): " + "; ".join(f"{k}: {v}" for k, v in differ.items()),
        )

    def check(self, holds: bool, otherwise: str) -> None:
        self.agree = self.agree and holds
        assert holds, otherwise

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

    def why_left(self, task: Task) -> str:
        """The reason why a task has not settled, from the model and from the queue's
        explanation.
        """
        edges = [
            f"{edge.kind} on {edge.source.key} ({edge.source.state}), {edge.when}" for edge in self.model.unmet(task)
        ]
        of_locks = f"asks for {sorted(task.locks)}, task managers {self.model.labels}, scratch folder on {task.store}"
        told = self.subject.explain(task.key)
        return f"{task.key} is {task.state}: {'; '.join(edges) or (of_locks if task.asks else 'no edge')}\n  explained: {told}"

    def in_the_graph(self) -> set[str]:
        """The events that the final graph shows."""
        found = {"examples"}
        for run in self.model.runs:
            left_out = [task for task in run.workflow.tasks if task.name not in {*run.chosen, REPORT}]
            found.update({"paths leave out"} if any(task.paths for task in left_out) else ())
            found.update({"branches leave out"} if any(task.branches for task in left_out) else ())
            found.update({"faults"} if run.workflow.faults else ())
            for task in run.tasks.values():
                for wish in task.definition.depends:
                    words = "PREV:*" if wish.task == "*" else "PREV:x" if wish.task else "PREV"
                    found.add(f"depends {words if wish.previous else 'x'} {wish.when}")
                    found.update({f"PREV:* with except {wish.when}"} if wish.excepted else ())
                found.update({"COMMIT extended"} if task.name == "COMMIT" and task.definition.depends else ())
                others = [r for r in self.model.on_branch(run.branch) if r.place < run.place and r.place.run > 1]
                of_commits = task.name.startswith("PREV:*:commits")
                found.update({"COMMIT waits for commit runs alone"} if of_commits and others else ())
                by_submission = task.superseded_by and task.run.trigger is Trigger.SUBMISSION
                found.update({"a submission is superseded"} if by_submission else ())
                found.update({"canceled as superseded"} if task.superseded_by else ())
                found.update({"stopped as superseded"} if task.superseded_by and task.attempts else ())
                found.update({"only unstarted fires"} if task.fired and _spares_started(task) else ())
                found.update({"skipped with a root"} if task.root else ())
                found.update({"waived"} if task.waived else ())
                found.update({"held by its workflow file"} if task.definition.hold else ())
                for_failures = [edge for edge in task.into if edge.when is When.FAILED]
                found.update({"runs because of a failure"} if for_failures and task.attempts else ())
                not_needed = any(skips(edge) for edge in for_failures) and task.state is State.SKIPPED
                found.update({"skipped as nothing failed"} if not_needed else ())
                root = task.root if not_needed else None
                found.update({"skipped as what completed did not fail"} if root and not root.bad else ())
                found.update({"deferred for another attempt"} if task.failures and len(task.attempts) > 1 else ())
                found.update({"its task managers died too often"} if task.losses > 3 else ())
        found |= self.lists_in_the_graph()
        for edge in self.model.edges:
            if edge.kind in (Kind.EXCLUSIVE, Kind.STOPPING):
                found.add(f"{edge.kind} {'across runs' if edge.crossing else 'inside a run'}")
        return found

    def lists_in_the_graph(self) -> set[str]:
        found = set()
        for branch in strategies.BRANCHES:
            for before, after in pairwise(run for run in self.model.commit_runs(branch) if run.chosen):
                for name in (before.chosen & after.chosen) - {COMMIT}:
                    old, new = ({task.item for task in run.named(name)} for run in (before, after))
                    found.update({"a list grows"} if old and "" not in old and old < new else ())
                    found.update({"a list shrinks"} if new and "" not in new and new < old else ())
                    found.update({"a list is empty"} if not new else ())
                    found.update({"a task gets a list"} if "" in old and new and "" not in new else ())
                    found.update({"a task loses its list"} if "" in new and old and "" not in old else ())
        for edge in self.model.edges:
            source, target, crossing = edge.source, edge.target, edge.crossing
            if source.item and source.item == target.item:
                found.add("an item waits for its key in an earlier run" if crossing else "items are connected")
            found.update(
                {"a list is waited for"} if source.is_gate_of_list and not crossing and not target.is_star else ()
            )
            found.update({"an earlier list is waited for"} if source.is_gate_of_list and crossing else ())
            found.update({"PREV:* waits for an item"} if source.item and target.is_star else ())
        for task in self.model.tasks():
            if task.item and task.superseded_by:
                found.add("an item is superseded" + (" by its key" if task.superseded_by.item else ""))
            found.update({"a list is in a file"} if task.item and strategies.is_of_file(task.definition) else ())
            found.update({"an item has a scratch folder"} if task.item and task.attempts and task.folder else ())
            found.update({"an item fails alone"} if task.item and task.state is State.FAILED and _others(task) else ())
        return found

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


def _files(commit: Commit) -> dict[str, tuple[Item, ...]]:
    """The items of the list files of a commit, by path."""
    return {strategies.LIST_FILE: commit.items}


def _others(task: Task) -> bool:
    """Whether another item of the task's list has completed."""
    return any(other.state is State.COMPLETED for other in task.run.named(task.name))


def _spares_started(task: Task) -> bool:
    return any(entry.only_unstarted for entry in task.definition.cancels)


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


def _pairs(run: RunSeen) -> list[tuple[bool, bool]]:
    """For each pair of successive reports, whether the run made each of them without a request."""
    return list(pairwise(by_itself for by_itself, *_ in run.reports))


def _refusal(say: Callable[[], object]) -> Refused | None:
    try:
        say()
    except Refused as refusal:
        return refusal
    return None


class BesideItself(Beside):
    examples: ClassVar[Counter[str]] = Counter()

    def make_subject(self) -> Subject:
        return ModelAsSubject()


EXAMPLES = settings().max_examples // 5
"""The number of examples that shows that the machine works. ``test_model_and_queue`` runs many
more.
"""
BesideItself.TestCase.settings = settings(max_examples=EXAMPLES, stateful_step_count=30, deadline=None)
TestBesideItself = pytest.mark.full(pytest.mark.timeout(4 * EXAMPLES)(BesideItself.TestCase))
