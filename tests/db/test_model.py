"""The queue beside the model: random workflows and events, and after every step both agree on every task (design 5).

``Subject`` is what is tested; the machine says each verb to the model and to it, and compares. A subject has its own idea of which ready task is claimed next;
the model is told. At the end of each example everything is let run out: nothing may be left waiting for what will not come.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Protocol

from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from arkqueue.model import End, Workflow
from arkqueue.states import State
from tests.db import strategies
from tests.model import Key, Model, Refused, RunKey, Seen


class Subject(Protocol):
    """A queue with one archive. Each verb does what the model's verb of that name does, or raises ``Refused``; ``claim`` chooses a task."""

    def baseline(self, branch: str, number: int) -> object: ...
    def commit(self, branch: str, number: int, workflow: Workflow, changed: Iterable[str]) -> object: ...
    def trigger(self, branch: str, number: int, names: Collection[str] | None, force: bool) -> object: ...
    def claim(self) -> Key | None: ...
    def finish(self, key: Key, end: End, exit_code: int | None) -> object: ...
    def due(self, key: Key) -> object: ...
    def cancel(self, key: Key) -> object: ...
    def cancel_run(self, key: RunKey) -> object: ...
    def restart(self, key: Key) -> object: ...
    def retry(self, key: Key, force: bool) -> object: ...
    def skip(self, key: Key, as_completed: bool) -> object: ...
    def skip_until(self, name: str, branch: str, until: int) -> object: ...
    def delete(self, key: RunKey) -> object: ...
    def rewrite(self, branch: str, dropped: Collection[int]) -> object: ...
    def delete_branch(self, branch: str) -> object: ...
    def look(self) -> Mapping[Key, Seen]: ...
    def close(self) -> None: ...


class ModelAsSubject:
    """The model beside itself: shows that the machine works, not that the queue does."""

    def __init__(self) -> None:
        self._model = Model()

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._model, verb)

    def claim(self) -> Key | None:
        ready = sorted(key for key, state in self._model.states().items() if state is State.READY)
        if not ready:
            return None
        self._model.claim(ready[0])
        return ready[0]

    def close(self) -> None:
        pass


class Beside(RuleBasedStateMachine):
    """One archive with two branches; a subclass says what the model is set beside.

    There is one rule, which draws a verb among those that are possible: hypothesis would give rules of their own equal weights and leave most out of an
    example, and then little ever runs.
    """

    def make_subject(self) -> Subject:
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.subject = self.make_subject()
        self.workflow = Workflow()
        self.agree = True
        for branch in strategies.BRANCHES:
            self.both("baseline", branch, 1)

    @initialize(workflow=strategies.workflows(), branch=st.sampled_from(strategies.BRANCHES))
    def begin(self, workflow: Workflow, branch: str) -> None:
        """Two revisions with the same definitions, so that there is something to do."""
        self.workflow = workflow
        for number in (2, 3):
            self.both("commit", branch, number, workflow, frozenset(strategies.PATHS))

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        here = {state for state in State if self.keys(state)}
        possible = [verb for verb, weight, states in VERBS if not states or here & states for _ in range(weight)]
        getattr(self, data.draw(st.sampled_from(possible)))(data)

    # ------------------------------------------------------------------------------------------------------------------------ commits

    def commit(self, data: st.DataObject) -> None:
        """Mostly with the definitions of the last commit."""
        branch = data.draw(st.sampled_from(strategies.BRANCHES))
        self.workflow = data.draw(st.one_of([st.just(self.workflow)] * 3 + [strategies.workflows()]))
        number = self.last(branch) + data.draw(st.sampled_from([1, 1, 1, 3]))
        if branch not in self.model.deleted_branches:
            self.both("commit", branch, number, self.workflow, data.draw(strategies.changed_paths))

    def trigger(self, data: st.DataObject) -> None:
        gone = self.model.deleted_branches
        runs = [run for run in self.model.runs if run.own and not run.dropped and run.branch not in gone]
        if runs:
            run = data.draw(st.sampled_from(runs))
            some = st.lists(st.sampled_from(sorted(task.name for task in run.own)), min_size=1, unique=True)
            self.both("trigger", run.branch, run.place.number, data.draw(st.none() | some), data.draw(st.booleans()))

    def rewrite(self, data: st.DataObject) -> None:
        branch = data.draw(st.sampled_from(strategies.BRANCHES))
        if branch in self.model.deleted_branches:
            return
        numbers = sorted({run.place.number for run in self.model.on_branch(branch)})
        self.both("rewrite", branch, set(numbers[1:][-data.draw(st.integers(1, 3)) :]))

    def delete_branch(self, data: st.DataObject) -> None:
        if (
            "side" not in self.model.deleted_branches
            and len(self.model.on_branch("side")) > 3
            and data.draw(st.booleans())
        ):
            self.both("delete_branch", "side")

    # ----------------------------------------------------------------------------------------------------------------------- attempts

    def claim(self, data: st.DataObject) -> None:
        for _ in range(data.draw(st.sampled_from([1, 3, 6, 9]))):
            self.claim_one()

    def work(self, data: st.DataObject) -> None:
        """Claim and finish one task after the other, so that examples get somewhere."""
        for _ in range(data.draw(st.sampled_from([1, 2, 4, 6]))):
            if key := self.claim_one():
                self.both("finish", key, *data.draw(strategies.ends))

    def finish(self, data: st.DataObject) -> None:
        """What is asked to stop mostly does; what is not stops when its task manager hands it back."""
        key = self.pick(data, State.RUNNING)
        stops = 2 if self.model.task(key).stop else 1
        ends = st.one_of([st.just((End.STOPPED, None))] * stops + [strategies.ends] * (3 - stops))
        self.both("finish", key, *data.draw(ends))

    def lose(self, data: st.DataObject) -> None:
        """Once, or until it is given up."""
        key = self.pick(data, State.RUNNING)
        for _ in range(data.draw(st.sampled_from([1, 1, 4]))):
            self.both("finish", key, End.LOST, None)
            while self.model.task(key).state is State.READY:
                self.claim_one()
            if self.model.task(key).state is not State.RUNNING:
                return

    def due(self, data: st.DataObject) -> None:
        self.both("due", self.pick(data, State.DEFERRED))

    # ------------------------------------------------------------------------------------------------------------------ persons' verbs

    def cancel(self, data: st.DataObject) -> None:
        self.both(
            "cancel", self.pick_any(data, State.WAITING, State.READY, State.RUNNING, State.RUNNING, State.DEFERRED)
        )

    def cancel_run(self, data: st.DataObject) -> None:
        runs = [run for run in self.model.runs if not all(task.settled for task in run.tasks.values())]
        self.both("cancel_run", data.draw(st.sampled_from(runs)).key)

    def restart(self, data: st.DataObject) -> None:
        self.both("restart", self.pick_any(data, State.RUNNING))

    def retry(self, data: st.DataObject) -> None:
        key = self.pick_any(data, State.FAILED, State.CANCELED, State.SKIPPED)
        self.both("retry", key, data.draw(st.booleans()), judged_again=key)

    def skip(self, data: st.DataObject) -> None:
        key = self.pick_any(data, State.WAITING, State.READY, State.DEFERRED, State.FAILED, State.REJECTED)
        self.both("skip", key, data.draw(st.booleans()), judged_again=key)

    def skip_until(self, data: st.DataObject) -> None:
        key = self.pick(data, *BAD)
        self.both("skip_until", key.name, key.branch, key.number)

    def delete(self, data: st.DataObject) -> None:
        runs = [run for run in self.model.runs if run.place.number > 1]
        settled = [run for run in runs if all(task.settled for task in run.own)]
        self.both("delete", data.draw(st.sampled_from(settled or runs)).key)

    # ------------------------------------------------------------------------------------------------------------------------ together

    def last(self, branch: str) -> int:
        return self.model.on_branch(branch)[-1].place.number

    def keys(self, *states: State) -> list[Key]:
        return [task.key for task in self.model.tasks() if task.state in states and not task.implicit]

    def pick(self, data: st.DataObject, *states: State) -> Key:
        """One of the tasks in these states."""
        return data.draw(st.sampled_from(self.keys(*states)))

    def pick_any(self, data: st.DataObject, *states: State) -> Key:
        """Mostly one of the tasks in these states, now and then any: a refusal is compared too."""
        if self.keys(*states) and data.draw(st.sampled_from("mmmmma")) == "m":
            return self.pick(data, *states)
        return data.draw(st.sampled_from(list(self.model.states())))

    def claim_one(self) -> Key | None:
        key = self.subject.claim()
        ready = [key for key, state in self.model.states().items() if state is State.READY]
        self.check(key in ready if key else not ready, f"{key} was claimed, ready are {ready}")
        if key:
            note(f"claim {key}")
            before = self.model.snapshot()
            self.model.claim(key)
            self.compare()
            self.model.check_invariants(before)
        return key

    def both(self, verb: str, *words: Any, judged_again: Key | None = None) -> None:
        note(f"{verb} {', '.join(map(str, words))}")
        before = self.model.snapshot()
        ours, theirs = _refusal(self.model, verb, words), _refusal(self.subject, verb, words)
        self.check((ours is None) == (theirs is None), f"{verb} {words}: the model says {ours!r}, the queue {theirs!r}")
        if ours:
            self.check(self.model.snapshot() == before, f"{verb} was refused and yet changed something")
        self.compare()
        self.model.check_invariants(before, judged_again)

    def compare(self) -> None:
        ours, theirs = self.model.look(), self.subject.look()
        differ = {key: (ours.get(key), theirs.get(key)) for key in {*ours, *theirs} if ours.get(key) != theirs.get(key)}
        self.check(
            not differ,
            "the model and the queue differ (theirs second): " + "; ".join(f"{k}: {v}" for k, v in differ.items()),
        )

    def check(self, holds: bool, otherwise: str) -> None:
        self.agree = self.agree and holds
        assert holds, otherwise

    def teardown(self) -> None:
        """Let everything run out, then waive what failed: in the end nothing waits."""
        try:
            if self.agree:
                self.run_out()
                for name, branch in {(key.name, key.branch) for key in self.keys(State.FAILED, State.REJECTED)}:
                    self.both("skip_until", name, branch, self.last(branch))
                self.run_out()
                left = [key for key, state in self.model.states().items() if not self.model.task(key).settled]
                assert not left, f"left for ever: {left}"
        finally:
            self.subject.close()

    def run_out(self) -> None:
        moved = True
        while moved:
            moved = False
            while self.claim_one():
                moved = True
            for key in self.model.states():
                state = self.model.states()[key]
                if state is State.RUNNING:
                    moved = True
                    self.both("finish", key, End.STOPPED if self.model.task(key).stop == "cancel" else End.EXITED, 0)
                elif state is State.DEFERRED:
                    moved = True
                    self.both("due", key)


UNSETTLED = {State.WAITING, State.READY, State.RUNNING, State.DEFERRED}
BAD = {State.FAILED, State.REJECTED, State.CANCELED, State.SKIPPED}
VERBS: list[tuple[str, int, set[State]]] = [
    ("commit", 6, set()),
    ("trigger", 2, set()),
    ("rewrite", 1, set()),
    ("delete_branch", 1, set()),
    ("claim", 6, {State.READY}),
    ("work", 6, {State.READY}),
    ("finish", 8, {State.RUNNING}),
    ("lose", 1, {State.RUNNING}),
    ("due", 3, {State.DEFERRED}),
    ("cancel", 2, UNSETTLED),
    ("cancel_run", 1, UNSETTLED),
    ("restart", 2, {State.RUNNING}),
    ("retry", 5, BAD),
    ("skip", 2, UNSETTLED | BAD),
    ("skip_until", 1, BAD),
    ("delete", 1, BAD),
]
"""The verbs of a step, how often each is chosen, and which of these states some task must be in."""


def _refusal(queue: Any, verb: str, words: tuple[Any, ...]) -> Refused | None:
    try:
        getattr(queue, verb)(*words)
    except Refused as refusal:
        return refusal
    return None


class BesideItself(Beside):
    def make_subject(self) -> Subject:
        return ModelAsSubject()


BesideItself.TestCase.settings = settings(
    max_examples=max(300, settings().max_examples), stateful_step_count=30, deadline=None
)
TestBesideItself = BesideItself.TestCase
