"""The real queue as the subject of the machine (``beside``): each verb of the model is one call of the
queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import count, cycle
from typing import Any

import pytest

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.db.session import Session, answers
from arkqueue.errors import Conflict, Forbidden, Invalid, NotFound
from arkqueue.model import (
    REPORT,
    ArchiveId,
    AttemptId,
    BranchId,
    End,
    Foreach,
    Item,
    PayloadKind,
    Receipt,
    RunId,
    TaskId,
)
from arkqueue.queue import (
    archives,
    backfill,
    claim,
    control,
    deletion,
    finish,
    holds,
    locks,
    many,
    pauses,
    purge,
    purge_batch,
    redo,
    reports,
    retrying,
    scratch,
    submissions,
    triggering,
)
from arkqueue.queue.guards import Approver
from arkqueue.queue.holds import How
from arkqueue.queue.walk import alone
from arkqueue.states import State, run_state
from arkqueue.views import reports as told
from arkqueue.views.explain import explain
from tests.builders import HOST, PROCESS, AnArchive, an_archive
from tests.db import strategies
from tests.db.purges import purged_in_steps
from tests.db.scripted_repository import Repository
from tests.model import Key, Reason, Refused, RunKey, RunSeen, Seen
from tests.postgres import Kept


class QueueAsSubject:
    """The queue with one archive. Every verb is one call."""

    def __init__(self, session: Session, kept: Kept, repository: Repository, examples: Counter[str]) -> None:
        """``examples``: the machine's numbers of examples in which an event happened."""
        self.repository = repository
        self.examples = examples
        # Each example has its own session, because a session caches stored rows and the database is
        # emptied.
        self.session = Session(session.database)
        kept.empty()
        self.eyes = kept.own
        """The session of the comparisons after each step. The queue's session would plan their
        statements each time.
        """
        self.archive: AnArchive = an_archive(self.session, branches=strategies.BRANCHES)
        self.senders = count()
        self.steps = cycle((0, 1, None, 2, 3, None))
        self.by = "ann"
        self.approver: Approver | None = Approver()
        self.ids: dict[Key, tuple[TaskId, AttemptId]] = {}
        """The id and newest attempt of each task, as of the last comparison or claim."""
        self.seen_runs: dict[int, tuple[list[str], RunKey, RunSeen]] = {}
        """The properties of each run, with the versions of the rows from which they were read."""
        self.hosts = cycle("ab")
        self.folders: dict[int, str] = {}
        """The host that made each scratch folder."""
        self.said: set[str] = set()
        """The branches whose baseline the machine has announced. The archive has all branches from
        the start.
        """

    def baseline(self, branch: str, number: int, _files: Mapping[str, Sequence[Item]]) -> None:
        assert self.archive.numbers[branch] == number
        self.said.add(branch)

    def ledger(self) -> dict[str, list[tuple[int, str, bool]]]:
        """Each branch's revisions in order: the number, the id, and whether the revision was
        dropped.
        """
        rows = self.archive.sql(
            "select b.name as branch, r.number, r.name, r.dropped_at is not null as dropped, b.head_id, r.id from revision r"
            " join branch b on b.id = r.branch_id where b.archive_id = %s order by r.number",
            self.archive.id,
        )
        found: dict[str, list[tuple[int, str, bool]]] = {}
        for row in rows:
            found.setdefault(row["branch"], []).append((row["number"], row["name"], row["dropped"]))
        for row in rows:
            assert (row["head_id"] == row["id"]) == (found[row["branch"]][-1][0] == row["number"])
        return found

    def trigger(self, branch: str, number: int, names: Collection[str] | None, force: bool) -> None:
        with _refusals():
            (row,) = self.archive.sql(
                "select id from revision where branch_id = %s and number = %s",
                self.archive.branches[branch].id,
                number,
            )
            triggering.trigger(self.session, row["id"], names=names, force=force, approver=self.approver)

    def submit(self, branch: str, number: int, items: Sequence[Item] = (), store: str | None = None) -> None:
        place = self.archive.branches[branch].id, number
        (row,) = self.archive.sql("select id from revision where branch_id = %s and number = %s", *place)
        handed = submissions.Payload(PayloadKind.JSON, 2, "digest", has_attachments=store is not None)
        sender = f"s{next(self.senders)}" if store else None
        with _refusals():
            stored = submissions.store_payload(self.session, [b"[]"])
            archive, lists = ArchiveId(self.archive.id), {Foreach.of_submission(None).items: tuple(items)}
            place = self.session, archive, self.archive.name, row["id"], handed
            if sender is None or store is None:
                submissions.submit(*place, stored, lists, sender_id=None, by="")
                return
            upload = self.archive.begin_upload(sender, store[1:])
            with pytest.raises((Conflict, Invalid)):
                submissions.submit(*place, stored, lists, sender_id=sender, by="", upload=upload)
            self.archive.complete(upload)
            stored = submissions.store_payload(self.session, [b"[]"])
            submissions.submit(*place, stored, lists, sender_id=sender, by="", upload=upload)

    def backfill(self, branch: str, first: int, last: int, names: Collection[str], force: bool) -> None:
        id = BranchId(self.archive.branches[branch].id)
        asked: dict[str, Any] = {"names": list(names), "force": force, "approver": self.approver}
        with _refusals():
            wanted = backfill.wanted_first(self.session, id, first, names)
            lists = self.read_lists(self.session, ArchiveId(self.archive.id), [wanted])[0] if wanted else None
            made = backfill.begin(self.session, ArchiveId(self.archive.id), id, first, last, **asked, lists=lists)
            assert made is not None, "the branch has no other head meanwhile"
        while (pause := backfill.plan(self.session, self.read_lists)) is not None:
            assert pause == 0.0, "the lists of each revision can be read"

    def read_lists(
        self, _session: Session, _archive: ArchiveId, wanted: Sequence[backfill.Wanted]
    ) -> list[backfill.Lists]:
        """Reads the lists of a backfill from the scripted repository."""
        found = []
        for one in wanted:
            (row,) = self.archive.sql("select name from revision where id = %s", one.revision)
            lists = self.repository.commits[row["name"]].lists(one.files)
            found.append(backfill.Lists(one, dict(zip(one.files, lists, strict=True))))
        return found

    def claim(self, labels: Sequence[str] = strategies.LABELS) -> Key | None:
        claimed = self.claim_some(1, labels)
        return claimed[0] if claimed else None

    def claim_some(self, slots: int, labels: Sequence[str] = strategies.LABELS) -> list[Key]:
        self.archive.running = {}
        keys = []
        own, store = strategies.of_host(labels)
        # Two hosts alternate at each store, because its folders are shared.
        host = f"{HOST}-{next(self.hosts)}"
        for claimed in claim.claim(self.session, PROCESS, host, slots, labels=own, store=store):
            # as the task manager does
            if folder := scratch.take(self.session, PROCESS, store, claimed.attempt):
                self.examples["a scratch folder is shared"] += self.folders.setdefault(folder.id, host) != host
            keys.append(Key(claimed.branch, claimed.number, claimed.run, claimed.name, claimed.item))
            self.ids[keys[-1]] = claimed.task, claimed.attempt
            if claimed.name == REPORT:  # as the task manager does
                reports.give(self.session, claimed.task)
        return keys

    def finish(
        self, key: Key, end: End, exit_code: int | None, priority: int | None = None, late: bool = False
    ) -> None:
        task, attempt = self.ids[key]
        if late:
            self.archive.sql("update task set deferred_at = deferred_at - interval '1 year' where id = %s", task)
        if end is End.LOST:
            self.archive.sql(
                "update attempt set lease_until = clock_timestamp() - interval '1 s' where id = %s", attempt
            )
            self.archive.sql(
                "update heartbeat set steady_since = clock_timestamp() - interval '1 hour', beat_at = clock_timestamp()"
            )
            assert finish.lapse(self.session) == [attempt]
            # The task manager lives after all and reports, but the attempt no longer belongs to it.
            assert self.archive.record(attempt, End.EXITED, 0) is Receipt.NOT_YOURS
        else:
            outputs = None if priority is None else {"arkqueue.priority": str(priority)}
            # A report need not name the archive.
            archive = self.archive.id if attempt % 2 else None
            self.archive.record(attempt, end, exit_code, outputs=outputs, archive=archive)

    def due(self, key: Key) -> None:
        self.archive.sql("update task set due_at = 'infinity' where state = 'deferred'")
        self.archive.sql("update task set due_at = clock_timestamp() where id = %s", self._task(key))
        finish.wake_deferred(self.session)

    def cancel(self, key: Key) -> None:
        with _refusals():
            control.cancel(self.session, self._task(key), self.by, approver=self.approver)

    def cancel_run(self, key: RunKey) -> None:
        with _refusals():
            control.cancel_run(self.session, self._run(key), self.by, approver=self.approver)

    def restart(self, key: Key) -> None:
        with _refusals():
            control.restart(self.session, self._task(key), self.by, approver=self.approver)

    def retry(self, key: Key, force: bool, from_start: bool = False) -> None:
        with _refusals():
            task = self._task(key)
            retrying.retry(self.session, task, self.by, force=force, from_start=from_start, approver=self.approver)

    def refresh(self, key: Key) -> None:
        with _refusals():
            retrying.refresh(self.session, self._task(key), self.by)

    def refresh_all(self) -> None:
        with _refusals():
            retrying.refresh_archive(self.session, ArchiveId(self.archive.id), self.by)

    def skip(self, key: Key, as_completed: bool, force: bool) -> None:
        with _refusals():
            control.skip(
                self.session,
                self._task(key),
                self.by,
                as_completed=as_completed,
                force=force,
                approver=self.approver,
            )

    def skip_until(self, name: str, branch: str, until: int) -> None:
        with _refusals():
            branch_id = self.archive.branches[branch].id
            control.skip_until(self.session, self.archive.id, branch_id, name, until, self.by, approver=self.approver)

    def delete(self, key: RunKey) -> None:
        with _refusals():
            deletion.delete_run(self.session, self._run(key), self.by, approver=self.approver)

    def undelete(self, key: RunKey) -> None:
        with _refusals():
            deletion.undelete_run(self.session, self._run(key), self.by, approver=self.approver)

    def purge(self, key: RunKey) -> None:
        """Purges a run, but ends the purge after a number of steps, like a process that is killed.
        The next purge continues.
        """
        steps, saw = next(self.steps), lambda what: self.examples.update([what])
        with _refusals(), purged_in_steps(2 if steps is not None else purge_batch.MOST_TASKS, steps=steps, saw=saw):
            purge.purge_runs(self.session, [self._run(key)], self.by).unless_kept()

    def report(self, key: RunKey, now: bool = False) -> None:
        with _refusals():
            reports.update_report(self.session, self._run(key), self.by, now=now, approver=self.approver)

    def prioritize(self, key: Key, priority: int) -> None:
        with _refusals():
            control.prioritize(self.session, self._task(key), priority, self.by)

    def retry_failed(self, key: RunKey) -> None:
        with _refusals():
            many.retry_failed(self.session, self._run(key), self.by, approver=self.approver)

    def retry_from(self, key: RunKey, name: str, force: bool, from_start: bool, item: str | None = None) -> None:
        how: dict[str, Any] = {"item": item, "force": force, "from_start": from_start, "approver": self.approver}
        with _refusals():
            redo.retry_from(self.session, self._run(key), name, self.by, **how)

    def on_item(self, key: RunKey, item: str, verb: str, *words: Any) -> None:
        with _refusals():
            many.act_on_item(
                self.session,
                self._run(key),
                item,
                verb.removesuffix("_failed"),
                alone(lambda task: self._do(verb.removesuffix("_failed"), task, words)),
                failed=verb == "retry_failed",
            )

    def _do(self, verb: str, task: TaskId, words: Sequence[Any]) -> None:
        """Calls a verb on a task with the additional arguments that its method here takes."""
        (key,) = (key for key, (id, _) in self.ids.items() if id == task)
        with _conflicts():
            getattr(self, verb)(key, *words)

    def delete_item(self, key: RunKey, item: str) -> None:
        with _refusals():
            deletion.delete_item(self.session, self._run(key), item, self.by, approver=self.approver)

    def undelete_item(self, key: RunKey, item: str) -> None:
        with _refusals():
            deletion.undelete_item(self.session, self._run(key), item, self.by, approver=self.approver)

    def prioritize_run(self, key: RunKey, priority: int) -> None:
        with _refusals():
            control.prioritize_run(self.session, self._run(key), priority, self.by)

    def limit(self, max_running: int | None) -> None:
        id = ArchiveId(self.archive.id)
        present = ArchiveSettings(**archives.one(self.session, id).settings)
        archives.change_settings(self.session, id, replace(present, max_running=max_running), "ann")

    def guard(self, names: frozenset[str]) -> None:
        id = ArchiveId(self.archive.id)
        present = ArchiveSettings(**archives.one(self.session, id).settings)
        archives.change_settings(self.session, id, replace(present, require_approval=tuple(sorted(names))), "ann")

    def act_as(self, approver: bool) -> None:
        self.approver = Approver() if approver else None

    def set_lock(self, name: str, capacity: int | None) -> None:
        locks.set_capacity(self.session, ArchiveId(self.archive.id), name, capacity, self.by)

    def pause_lock(self, name: str) -> None:
        locks.pause(self.session, ArchiveId(self.archive.id), name, "", self.by)

    def resume_lock(self, name: str) -> None:
        with _refusals():
            locks.resume(self.session, ArchiveId(self.archive.id), name, name, self.by)

    def man(self, *labels: Collection[str]) -> None:
        self.archive.sql("delete from task_manager")
        for own, store in map(strategies.of_host, labels):
            claim.register(self.session, f"{PROCESS}-{store}", f"{HOST}-{store}", store, 1, labels=own, store=store)
        self.archive.sql("update task_manager set seen_at = 'infinity'")
        locks.judge_all(self.session)

    def pause(self) -> None:
        pauses.pause(self.session, ArchiveId(self.archive.id), "", self.by)

    def resume(self) -> None:
        with _refusals():
            pauses.resume(self.session, ArchiveId(self.archive.id), self.archive.name, self.by)

    def hold(self, key: Key) -> None:
        with _refusals():
            holds.hold(self.session, self._task(key), self.by)

    def hold_run(self, key: RunKey) -> None:
        with _refusals():
            holds.hold_run(self.session, self._run(key), self.by)

    def hold_archive(self) -> None:
        with _refusals():
            holds.hold_archive(self.session, ArchiveId(self.archive.id), self.by)

    def unhold(self) -> None:
        with _refusals():
            holds.unhold(self.session, ArchiveId(self.archive.id), self.by)

    def release(self, key: Key, force: bool, skip_outdated: bool) -> None:
        with _refusals():
            holds.release(self.session, self._task(key), self.by, how=self.how(force, skip_outdated))

    def release_run(self, key: RunKey, force: bool, skip_outdated: bool) -> None:
        with _refusals():
            holds.release_run(self.session, self._run(key), self.by, how=self.how(force, skip_outdated))

    def release_all(self, force: bool, skip_outdated: bool) -> None:
        with _refusals():
            id = ArchiveId(self.archive.id)
            holds.release_archive(self.session, id, self.by, how=self.how(force, skip_outdated))

    def how(self, force: bool, skip_outdated: bool) -> How:
        return How(force=force, skip_outdated=skip_outdated, approver=self.approver)

    def look(self) -> Mapping[Key, Seen]:
        rows = self.eyes.execute(
            "select b.name as branch, t.id, t.attempt_id, t.number, t.run, t.name, t.item, t.state, r.name as root, t.stop, t.attempts, t.unmet, t.blocks, t.priority,"
            " a.live, a.begun, a.polled, e.edges"
            " from task t join branch b on b.id = t.branch_id left join task r on r.id = t.root_id"
            " cross join lateral (select count(*) as begun, count(*) filter (where ended_at is null) as live, count(*) filter (where kind = 'poll') as polled"
            " from attempt where task_id = t.id) a"
            " cross join lateral (select count(*) as edges from edge where target = t.id and not met and t.state in ('waiting', 'ready')) e"
            " where t.archive_id = %s and t.run_id <> all(array(select run_id from purging))",
            [self.archive.id],
        ).fetchall()
        for r in rows:
            assert r["attempts"] == r["begun"], r
            # REPORT counts the tasks of its run, and has no edges.
            assert r["state"] not in ("waiting", "ready") or r["name"] == "REPORT" or r["unmet"] == r["edges"], r
        keys = [Key(r["branch"], r["number"], r["run"], r["name"], r["item"]) for r in rows]
        self.ids = {key: (r["id"], r["attempt_id"]) for key, r in zip(keys, rows, strict=True)}
        return {
            key: Seen(
                State(r["state"]),
                r["root"],
                r["stop"],
                r["attempts"],
                r["live"],
                r["polled"],
                r["blocks"],
                r["priority"],
            )
            for key, r in zip(keys, rows, strict=True)
            if r["branch"] in self.said
        }

    def look_at_runs(self) -> Mapping[RunKey, RunSeen]:
        """The runs as users see them. Runs without a written row since the last comparison are not
        read again; reading all runs each time took a fifth of the test's time.
        """
        rows = self.eyes.execute(
            "select r.id, array[r.xmin::text, r.ctid::text, p.ctid::text] || array_agg(t.xmin::text || t.ctid order by t.id)"
            " || (select array_agg(w.xmin::text || w.ctid order by w.number) from report w where w.run_id = r.id) as written"
            " from run r left join task t on t.run_id = r.id left join planning p on p.run_id = r.id where r.archive_id = %s group by r.id, p.ctid",
            [self.archive.id],
        ).fetchall()
        known, self.seen_runs = self.seen_runs, {}
        for row in rows:
            if row["id"] in known and known[row["id"]][0] == row["written"]:
                self.seen_runs[row["id"]] = known[row["id"]]
        written = {row["id"]: row["written"] for row in rows if row["id"] not in self.seen_runs}
        (runs,) = answers(self.eyes, ("show_runs", {"runs": list(written)})) if written else ((),)
        for run in runs:
            reports = tuple(
                (one.made_by is None, one.changes, one.is_given, one.sent_at is not None)
                for one in reversed(told.reports(self.session, RunId(run.id), run))
            )
            state = str(run_state(run))
            seen = RunSeen(state, run.skipped, run.superseded, reports, run.changed_since_report)
            self.seen_runs[run.id] = written[run.id], RunKey(run.branch, run.number, run.run), seen
        return {key: seen for _, key, seen in self.seen_runs.values() if key.branch in self.said}

    def explain(self, key: Key) -> str:
        return explain(self.session, self._task(key)).text

    def close(self) -> None:
        """Does nothing: the next example empties the database, because hypothesis does not close
        every example.
        """

    def _task(self, key: Key) -> TaskId:
        return self.ids[key][0]

    def _run(self, key: RunKey) -> RunId:
        return RunId(self.archive.run_id(key.number, key.run, branch=key.branch))


class _refusals:
    """Turns the queue's refusals into the model's."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, Conflict | Forbidden | Invalid | NotFound):
            raise Refused(Reason.STATE) from error


class _conflicts:
    """Turns the model's refusals back into the queue's, for verbs that act on several tasks."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, Refused):
            assert error.__cause__ is not None
            raise error.__cause__
