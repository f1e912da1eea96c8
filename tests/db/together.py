"""Applies each step of the machine (``beside``) to the model and to its subject, and compares them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from arkqueue.model import COMMIT, REPORT, End, Item, Trigger, When, Workflow
from arkqueue.states import State
from tests.db import strategies
from tests.db.scripted_repository import Commit, Repository
from tests.db.subject import Subject
from tests.model import Blocks, Entry, Key, Kind, Ledger, Model, Name, Reason, Refused, Run, RunSeen, Task, skips


class Together(RuleBasedStateMachine):
    """The model and the subject, which a subclass chooses."""

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
            self.both("baseline", branch, 1, files_of(self.repository.heads[branch]))

    def saw(self, what: str, really: object = True) -> None:
        """Counts an event for this example, if ``really``. At its end, the test checks that every
        event was drawn often enough.
        """
        if really:
            self.happened.add(what)

    # --- Choosing tasks and runs ---

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

    # --- Steps of both ---

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

    # --- Comparison ---

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

    # --- The events that happened ---

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


def _others(task: Task) -> bool:
    """Whether another item of the task's list has completed."""
    return any(other.state is State.COMPLETED for other in task.run.named(task.name))


def _spares_started(task: Task) -> bool:
    return any(entry.only_unstarted for entry in task.definition.cancels)


def _pairs(run: RunSeen) -> list[tuple[bool, bool]]:
    """For each pair of successive reports, whether the run made each of them without a request."""
    return list(pairwise(by_itself for by_itself, *_ in run.reports))


def _refusal(say: Callable[[], object]) -> Refused | None:
    try:
        say()
    except Refused as refusal:
        return refusal
    return None


def files_of(commit: Commit) -> dict[str, tuple[Item, ...]]:
    """The items of the list files of a commit, by path."""
    return {strategies.LIST_FILE: commit.items}
