"""The real queue on real PostgreSQL beside the model of the rules (``tests/model.py``); the machine stands in ``test_model``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from arkqueue.errors import Conflict, Invalid
from arkqueue.model import BranchId, End, RunId, Workflow
from arkqueue.queue import Queue, actions, archives, finish, planning
from arkqueue.states import State
from tests.builders import AnArchive, an_archive, an_entry
from tests.db import strategies
from tests.db.test_model import Beside, Subject
from tests.model import Key, Reason, Refused, RunKey, Seen

TABLES = "archive, look, branch, revision, run, task, task_name, edge, attempt, schedule, schedule_fire, deed, definition, workflow"


class QueueAsSubject:
    """The queue with one archive, every verb one call."""

    def __init__(self, queue: Queue) -> None:
        # Another queue for each example: one remembers what it has stored, and the tables are cleared.
        self.queue = Queue(queue.database)
        with queue.database.transaction() as connection:
            connection.execute(f"truncate {TABLES} restart identity cascade".encode())
        self.archive: AnArchive = an_archive(self.queue, branches=strategies.BRANCHES)
        self.by = "ann"
        self.said: set[str] = set()
        """The branches whose baseline the machine has spoken of; the archive has all from the first."""

    def baseline(self, branch: str, number: int) -> None:
        assert self.archive.numbers[branch] == number
        self.said.add(branch)

    def commit(self, branch: str, number: int, workflow: Workflow, changed: Iterable[str]) -> None:
        before, entry = self.archive.branches[branch], an_entry(number, workflow, tuple(changed), branch=branch)
        self.archive.append(branch, [entry])
        # The same notice once more, read by somebody who has not seen the first answered: the head has moved, nothing is planned twice.
        assert planning.append(self.queue, before, [entry]) is None

    def trigger(self, branch: str, number: int, names: Collection[str] | None, force: bool) -> None:
        with _refusals():
            self.archive.trigger(number, *(names or ()), branch=branch, force=force)

    def claim(self) -> Key | None:
        self.archive.running = {}
        for claimed in self.archive.claim_some(1):
            return Key(claimed.branch, claimed.number, claimed.run, claimed.name)
        return None

    def finish(self, key: Key, end: End, exit_code: int | None) -> None:
        (row,) = self.archive.sql("select attempt_id from task where id = %s", self._task(key))
        attempt = row["attempt_id"]
        if end is End.LOST:
            self.archive.sql(
                "update attempt set lease_until = clock_timestamp() - interval '1 s' where id = %s", attempt
            )
            self.archive.sql(
                "update heartbeat set steady_since = clock_timestamp() - interval '1 hour', beat_at = clock_timestamp()"
            )
            assert finish.lapse(self.queue) == [attempt]
        else:
            self.archive.record(attempt, end, exit_code)

    def due(self, key: Key) -> None:
        self.archive.sql("update task set due_at = 'infinity' where state = 'deferred'")
        self.archive.sql("update task set due_at = clock_timestamp() where id = %s", self._task(key))
        finish.wake_deferred(self.queue)

    def cancel(self, key: Key) -> None:
        with _refusals():
            actions.cancel(self.queue, self._task(key), self.by)

    def cancel_run(self, key: RunKey) -> None:
        with _refusals():
            actions.cancel_run(self.queue, self._run(key), self.by)

    def restart(self, key: Key) -> None:
        with _refusals():
            actions.restart(self.queue, self._task(key), self.by)

    def retry(self, key: Key, force: bool) -> None:
        with _refusals():
            actions.retry(self.queue, self._task(key), self.by, force=force)

    def skip(self, key: Key, as_completed: bool) -> None:
        with _refusals():
            actions.skip(self.queue, self._task(key), self.by, as_completed=as_completed)

    def skip_until(self, name: str, branch: str, until: int) -> None:
        actions.skip_until(self.queue, self.archive.id, self.archive.branches[branch].id, name, until, self.by)

    def delete(self, key: RunKey) -> None:
        with _refusals():
            actions.delete_run(self.queue, self._run(key), self.by)

    def rewrite(self, branch: str, dropped: Collection[int]) -> None:
        self.archive.append(branch, [], dropped=[f"{branch}{number}" for number in dropped])

    def delete_branch(self, branch: str) -> None:
        archives.untrack(self.queue, self.archive.id, BranchId(self.archive.branches[branch].id))

    def look(self) -> Mapping[Key, Seen]:
        rows = self.archive.sql(
            "select b.name as branch, t.number, t.run, t.name, t.state, r.name as root, t.stop"
            " from task t join branch b on b.id = t.branch_id left join task r on r.id = t.root_id where t.archive_id = %s",
            self.archive.id,
        )
        return {
            Key(r["branch"], r["number"], r["run"], r["name"]): Seen(State(r["state"]), r["root"], r["stop"])
            for r in rows
            if r["branch"] in self.said
        }

    def close(self) -> None:
        """The next example's queue clears the tables: hypothesis does not end every example."""

    def _task(self, key: Key):  # type: ignore[no-untyped-def]
        return self.archive.task(f"{key.name}@{key.number}.{key.run}", branch=key.branch)

    def _run(self, key: RunKey) -> RunId:
        return RunId(self.archive.run_id(key.number, key.run, branch=key.branch))


class _refusals:
    """The queue's refusals as the model's."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, Conflict | Invalid):
            raise Refused(Reason.STATE) from error


@pytest.mark.timeout(3600)
def test_queue_and_model_agree_after_every_step(queue: Queue) -> None:
    class BesideQueue(Beside):
        def make_subject(self) -> Subject:
            return QueueAsSubject(queue)

    run_state_machine_as_test(
        BesideQueue,
        settings=settings(max_examples=max(300, settings().max_examples), stateful_step_count=30, deadline=None),
    )
