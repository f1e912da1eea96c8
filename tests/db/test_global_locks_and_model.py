"""Runs three archives beside the model: the order of claims across archives (tiers, design 5.24),
and the locks of the whole installation (design 5.25).

After every step, the tasks of all archives have the states of the model, and each claim takes the
task that the model takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from arkqueue.db.session import Session
from arkqueue.errors import Conflict, Invalid
from arkqueue.model import INSTALLATION, ArchiveId, AttemptId, Cancels, Depends, End, TaskDefinition, When, Workflow
from arkqueue.queue import claim, control, holds, locks, pauses, retrying
from arkqueue.states import State
from tests.builders import HOST, PROCESS, AnArchive, an_archive
from tests.db.test_limits import change
from tests.db.test_model_and_queue import database
from tests.fuzzing import seeded
from tests.model import Installation, Key, Model, Refused, is_global
from tests.postgres import Kept

__all__ = ["database"]

NAMES = ("a", "b", "c", "d")
LOCKS = ("global/x", "global/y", "tex")
SETS = [(), ("global/x",), ("global/x",), ("global/y",), ("global/x", "global/y"), ("global/x", "tex"), ("tex",)]
ARCHIVES = ("one", "other", "third")
STEPS = 24
IS_LONG = settings().max_examples > 300
EXAMPLES = max(150, settings().max_examples)
"""Half as many as of the model test of one archive: they take a third longer, and each change of the
sources draws others.
"""
SHARDS = 5
"""The number of tests that share the examples. `make test` runs the first one, `make test-full` the
others, and `make test-long` all.
"""
AT_ONCE = 10
"""The examples in one run of hypothesis; see ``test_model_and_queue``."""
MORE = 20
"""The most times that the first shard draws as many examples again while an event is missing."""
TIERS = [5, 5, 5, 1, 1, 9]
LIMITS = [None, None, 1, 1, 2]
UNUSED = 3600.0
"""The seconds after which a grant is late here, instead of 10. An example on a busy machine may
take longer than 10 s, and the model has no clock.
"""
SEEN: Counter[str] = Counter()
"""The events that the examples contained."""
INGREDIENTS = {
    *("passes on", "two archives have one lock", "two archives wait for one lock"),
    *("waits for another lock while this one is free", "gives back what it has not used"),
    *("a lower tier goes first", "those of one tier take turns", "what a lower tier has is for others, or too much"),
}
"""The events that the random examples must contain, so that a change of the test cannot lose one
unnoticed.
"""


@st.composite
def workflows(draw: st.DrawFn) -> Workflow:
    tasks = []
    for place, name in enumerate(NAMES[: draw(st.integers(1, len(NAMES)))]):
        depends = draw(st.lists(st.sampled_from(NAMES[:place]), max_size=1)) if place else []
        tasks.append(
            TaskDefinition(
                name,
                path="_workflows/random.yaml",
                command="true",
                depends=tuple(Depends(one, False, When.COMPLETED) for one in depends),
                cancels=draw(st.sampled_from([()] * 5 + [(Cancels(None, True),)])),
                lock=draw(st.sampled_from(SETS)),
                runs_on=draw(st.sampled_from([()] * 3 + [("gpu",)])),
            )
        )
    return Workflow(tuple(tasks))


class One(NamedTuple):
    """An archive of the queue with its model."""

    archive: AnArchive
    model: Model


@contextmanager
def refused_by_both(model_refuses: bool) -> Iterator[None]:
    try:
        yield
    except (Conflict, Invalid):
        assert model_refuses
    else:
        assert not model_refuses


class Both:
    def __init__(self, session: Session, kept: Kept, data: st.DataObject) -> None:
        kept.empty()
        self.session, self.data = Session(session.database), data
        self.ones = [One(an_archive(self.session, name), Model()) for name in ARCHIVES]
        self.installation = Installation([one.model for one in self.ones])
        for one in self.ones:
            one.model.baseline("", 1)
            self.set_tier(one)
        locks.set_capacity(self.session, INSTALLATION, "global/x", 2, "ann")
        self.installation.set_lock("global/x", 2)
        self.attempts: dict[tuple[int, Key], AttemptId] = {}
        self.turns = claim.Turns()

    def step(self) -> None:
        verbs = [self.commit, self.claim, self.claim, self.end, self.end, self.pass_on, self.pass_on, self.pass_on, self.time_passes, self.prioritize,
                 self.change_task, self.hold_or_release, self.pause_or_resume, self.set_lock, self.set_lock, self.pause_or_resume_lock, self.man, self.set_tier, self.limit]  # fmt: skip
        self.data.draw(st.sampled_from(verbs))()
        self.compare()

    def one(self) -> One:
        return self.data.draw(st.sampled_from(self.ones))

    def commit(self) -> None:
        one = self.one()
        workflow = self.data.draw(workflows())
        number = one.archive.commit(workflow)
        one.model.commit("", number, workflow)

    def claim(self) -> None:
        labels = self.data.draw(st.sampled_from([("gpu",), ("gpu",), ()]))
        for _ in range(self.data.draw(st.sampled_from([1, 2, 3]))):
            self.look_at_tiers(labels)
            expected = self.installation.next_to_claim(labels)
            found = claim.claim(self.session, PROCESS, HOST, 1, labels=labels, turns=self.turns)
            ours = [] if expected is None else [(expected[0], expected[1].key)]
            keys = [
                (self.of(row.archive.id).model, Key(row.branch, row.number, row.run, row.name, row.item))
                for row in found
            ]
            assert keys == ours, f"{[key for _, key in keys]} was claimed, and not {[key for _, key in ours]}"
            for row, (model, key) in zip(found, keys, strict=True):
                self.installation.claim(model, key)
                self.attempts[row.archive.id, key] = row.attempt

    def look_at_tiers(self, labels: tuple[str, ...]) -> None:
        having = [one.model for one in self.ones if one.model.claimable(labels)]
        tiers = sorted(model.tier for model in having)
        self.saw("a lower tier goes first", len(set(tiers)) > 1)
        first = [model for model in having if model.tier == tiers[0]]
        expected = self.installation.next_to_claim(labels)
        self.saw("those of one tier take turns", expected is not None and expected[0] is not first[0])
        passed_over = [
            one.model for one in self.ones if one.model not in having and tiers and one.model.tier < tiers[0]
        ]
        ready = [task for model in passed_over for task in model.tasks() if task.state is State.READY]
        self.saw("what a lower tier has is for others, or too much", ready)

    def of(self, archive: int) -> One:
        return next(one for one in self.ones if one.archive.id == archive)

    def set_tier(self, one: One | None = None) -> None:
        one, tier = one or self.one(), self.data.draw(st.sampled_from(TIERS))
        change(one.archive, tier=tier)
        one.model.tier = tier

    def limit(self) -> None:
        one, most = self.one(), self.data.draw(st.sampled_from(LIMITS))
        change(one.archive, max_running=most)
        one.model.limit(most)

    def end(self) -> None:
        running = sorted(
            (place, task.key)
            for place, one in enumerate(self.ones)
            for task in one.model.tasks()
            if task.state is State.RUNNING
        )
        if running:
            place, key = self.data.draw(st.sampled_from(running))
            one = self.ones[place]
            end, code = self.data.draw(
                st.sampled_from([(End.EXITED, 0)] * 3 + [(End.EXITED, 1), (End.UNREACHABLE, None)])
            )
            stop = one.model.task(key).stop
            if stop:
                end, code = End.STOPPED, None
            one.archive.record(self.attempts[one.archive.id, key], end, code)
            one.model.finish(key, end, code)

    def pass_on(self) -> None:
        before = self.states()
        assert locks.pass_on(self.session) is False
        self.installation.pass_on()
        self.saw("passes on", before != self.states())
        for name in ("global/x", "global/y"):
            having = [archive for archive, _ in self.installation.having(name)]
            self.saw("two archives have one lock", len(having) > 1)
            waiting = {
                id(one.model) for one in self.ones for task in one.model.tasks() if task.asks and name in task.locks
            }
            self.saw("two archives wait for one lock", len(waiting) > 1)
            self.saw("waits for another lock while this one is free", not having and bool(waiting))

    def time_passes(self) -> None:
        """Makes unused grants late, so that other archives may get the places."""
        self.pass_on()
        self.commit()
        for one in self.ones:
            one.archive.sql(
                "update task set ready_at = ready_at - make_interval(secs => %s) where archive_id = %s",
                UNUSED + 1,
                one.archive.id,
            )
        self.installation.time_passes()
        before = {key for key, state in self.states().items() if state is State.READY}
        self.pass_on()
        self.saw("gives back what it has not used", any(self.states()[key] is State.WAITING for key in before))

    def _task(self, *states: State) -> tuple[One, Key] | None:
        found = sorted(
            (place, task.key)
            for place, one in enumerate(self.ones)
            for task in one.model.tasks()
            if task.state in states and not task.is_gate
        )
        if not found:
            return None
        place, key = self.data.draw(st.sampled_from(found))
        return self.ones[place], key

    def prioritize(self) -> None:
        if found := self._task(State.WAITING, State.READY):
            one, key = found
            priority = self.data.draw(st.sampled_from([10, 90]))
            control.prioritize(self.session, one.archive.task(f"{key.name}@{key.number}"), priority, "ann")
            one.model.prioritize(key, priority)

    def change_task(self) -> None:
        """Lets a person cancel or retry a task."""
        if found := self._task(State.WAITING, State.READY, State.RUNNING, State.FAILED):
            one, key = found
            task = one.archive.task(f"{key.name}@{key.number}")
            if one.model.task(key).state is State.FAILED:
                self._agree(lambda: retrying.retry(self.session, task, "ann"), lambda: one.model.retry(key))
            else:
                control.cancel(self.session, task, "ann")
                one.model.cancel(key)

    def _agree(self, real, model) -> None:  # type: ignore[no-untyped-def]
        try:
            model()
        except Refused:
            refused = True
        else:
            refused = False
        with refused_by_both(refused):
            real()

    def hold_or_release(self) -> None:
        if found := self._task(State.WAITING, State.READY, State.HELD):
            one, key = found
            task = one.archive.task(f"{key.name}@{key.number}")
            if one.model.task(key).state is State.HELD:
                self._agree(lambda: holds.release(self.session, task, "ann"), lambda: one.model.release(key))
            else:
                holds.hold(self.session, task, "ann")
                one.model.hold(key)

    def pause_or_resume(self) -> None:
        one = self.one()
        id = ArchiveId(one.archive.id)
        if one.model.paused:
            pauses.resume(self.session, id, one.archive.name, "ann")
            one.model.resume()
        else:
            pauses.pause(self.session, id, "", "ann")
            one.model.pause()

    def set_lock(self) -> None:
        name, capacity = self.data.draw(st.sampled_from(LOCKS)), self.data.draw(st.sampled_from([1, 1, 1, 2, 3, None]))
        if is_global(name):
            locks.set_capacity(self.session, INSTALLATION, name, capacity, "ann")
            self.installation.set_lock(name, capacity)
        else:
            one = self.one()
            locks.set_capacity(self.session, ArchiveId(one.archive.id), name, capacity, "ann")
            one.model.set_lock(name, capacity)

    def pause_or_resume_lock(self) -> None:
        name = self.data.draw(st.sampled_from(LOCKS))
        one = self.one()
        scope, model = (INSTALLATION, self.installation) if is_global(name) else (ArchiveId(one.archive.id), one.model)
        if name in model.paused_locks:
            locks.resume(self.session, scope, name, name, "ann")
            model.resume_lock(name)
        else:
            locks.pause(self.session, scope, name, "", "ann")
            model.pause_lock(name)

    def man(self) -> None:
        labels = self.data.draw(st.sampled_from([("gpu",), ()]))
        self.ones[0].archive.sql("delete from task_manager")
        claim.register(self.session, PROCESS, HOST, HOST, 1, labels=labels)
        self.ones[0].archive.sql("update task_manager set seen_at = 'infinity'")
        locks.judge_all(self.session)
        self.installation.man(labels)

    def saw(self, what: str, is_so: object = True) -> None:
        if is_so:
            SEEN[what] += 1

    def states(self) -> dict[tuple[int, Key], State]:
        return {(one.archive.id, key): state for one in self.ones for key, state in one.model.states().items()}

    def compare(self) -> None:
        real = {
            (row["archive_id"], Key("", row["number"], row["run"], row["name"])): (State(row["state"]), row["asks"])
            for row in self.ones[0].archive.sql(
                "select archive_id, number, run, name, state, asks and state = 'waiting' as asks from task"
            )
        }
        model = {
            (one.archive.id, task.key): (task.state, task.asks and task.state is State.WAITING)
            for one in self.ones
            for task in one.model.tasks()
        }
        different = {key: (real.get(key), found) for key, found in model.items() if real.get(key) != found}
        assert not different, f"queue, model: {different}"
        for name in ("global/x", "global/y"):
            capacity = self.installation.capacities.get(name, 1)
            having = [task.state for _, task in self.installation.having(name)]
            self.saw("more have a lock than may from now on", capacity is not None and len(having) > capacity)


@pytest.mark.timeout(24 * EXAMPLES)
@pytest.mark.parametrize(
    "shard", [0, *(pytest.param(shard, marks=[] if IS_LONG else pytest.mark.full) for shard in range(1, SHARDS))]
)
def test_queue_and_model_agree_on_what_archives_share(
    session: Session, kept: Kept, monkeypatch: pytest.MonkeyPatch, shard: int
) -> None:
    monkeypatch.setattr(locks, "UNUSED", UNUSED)
    SEEN.clear()

    @settings(
        max_examples=AT_ONCE,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def examples(data: st.DataObject) -> None:
        SEEN["examples"] += 1
        both = Both(session, kept, data)
        for _ in range(3):
            both.commit()
            both.compare()
        for _ in range(STEPS):
            both.step()

    runs = -(-EXAMPLES // SHARDS // AT_ONCE)
    for more in range(MORE + 1):
        for part in range(runs):
            seeded(examples, (more * runs + part) * SHARDS + shard)()
        assert SEEN["examples"] >= EXAMPLES // SHARDS, f"shard {shard}"
        if shard or SEEN.keys() >= INGREDIENTS:
            break
    assert shard or SEEN.keys() >= INGREDIENTS, f"no example has {INGREDIENTS - SEEN.keys()}"
    print("\n".join(f"{SEEN[what]:6} {what}" for what in sorted(SEEN)))
