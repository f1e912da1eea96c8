"""Runs the real queue on a real PostgreSQL beside the model of the rules (``tests/model/``). The
machine is in ``beside``.

Two queue managers with real readers fill the ledger. Their scans of the scripted repository are
nested in each other. At every point where a scan holds no lock (after an answer of the repository,
before a transaction), anything may happen: another commit, or even the other manager's whole scan.
So the view of the head may be stale in either scan, and the compare-and-set must notice this.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count, cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.config import Configuration
from arkqueue.db import Database
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
    Workflow,
)
from arkqueue.plan import Entry
from arkqueue.queue import (
    archives,
    backfill,
    claim,
    control,
    deletion,
    finish,
    graph,
    holds,
    ledger,
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
from arkqueue.queue_manager import reader as reader_module
from arkqueue.queue_manager import scan as scan_module
from arkqueue.queue_manager.quick_checks import QuickChecks
from arkqueue.queue_manager.reader import Reader
from arkqueue.repository.reader.entries import EntryReader
from arkqueue.states import RunState, State, run_state
from arkqueue.views import reports as told
from arkqueue.views.explain import explain
from tests.builders import HOST, PROCESS, AnArchive, a_workflow, an_archive, an_entry
from tests.db import strategies
from tests.db.beside import OUTSIDE, VERBS, Beside
from tests.db.purges import purged_in_steps
from tests.db.scripted_repository import Repository, ScriptedArchive
from tests.db.subject import Subject
from tests.fuzzing import seeded
from tests.model import Key, Reason, Refused, RunKey, RunSeen, Seen
from tests.postgres import Kept

MANAGERS = ("one", "other")
CHUNK = 2
"""The revisions that a reader appends in one transaction here. Scans often need several."""
LIMIT = 3
"""The number of revisions beyond which a scan starts an import here."""
NEVER = "366d"
"""The interval of periodic scans. The machine starts them itself."""


class QueueAsSubject:
    """The queue with one archive. Every verb is one call."""

    def __init__(self, session: Session, kept: Kept, repository: Repository) -> None:
        self.repository = repository
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
                BesideQueue.examples["a scratch folder is shared"] += self.folders.setdefault(folder.id, host) != host
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
        steps, saw = next(self.steps), lambda what: BesideQueue.examples.update([what])
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


class ScriptedEntries(EntryReader):
    """An entry reader that takes the workflows from the scripted repository's commits, without
    parsing.
    """

    def __init__(self, repository: Repository) -> None:
        super().__init__(ScriptedArchive(repository))  # type: ignore[arg-type]  # as much of one as a look needs
        self._repository = repository

    def workflow(self, revision: str) -> Workflow:
        return self._repository.commits[revision].workflow


@dataclass
class Look:
    """A scan under way, with what its queue manager has seen."""

    manager: str
    data: st.DataObject | None
    """The source of events during the scan; None: no events."""
    notice: int | None = None
    heads: dict[str, str] = field(default_factory=dict)
    lengths: dict[str, int] = field(default_factory=dict)
    """The lengths of the ledgers, as far as this scan knows."""
    imports: dict[str, str] = field(default_factory=dict)
    """The imports under way, as far as this scan knows."""
    found: dict[str, int] = field(default_factory=dict)
    """The number of new revisions of each branch without an import under way."""
    changes: int = 0
    """The repository's change counter at the time when the scan saw its heads."""


class BesideQueue(Beside):
    """The machine for the real queue. The model's ledger grows when a reader appends, according to
    the head that this reader saw.
    """

    examples: ClassVar[Counter[str]] = Counter()
    session: ClassVar[Session]
    kept: ClassVar[Kept]
    configuration: ClassVar[Configuration]

    def make_subject(self) -> Subject:
        self.real = QueueAsSubject(self.session, self.kept, self.repository)
        self.looks: list[Look] = []
        """The nested scans, the innermost last. The outer ones wait for it."""
        self.failed: BaseException | None = None
        self.last_notice = 0
        self.notice: int | None = None
        """The newest unanswered notice."""
        self.swept = True
        self.imports: dict[str, str] = {}
        """The branches with an import under way, each with the import's last commit."""
        self.verbs = Verbs(self)
        (row,) = archives.to_read(self.real.session)
        checks = QuickChecks(self.session, self.configuration.sweep, changed=lambda: None)
        self.readers = {
            manager: Reader(Session(self.session.database), self.configuration, row, freed=lambda: False, checks=checks)
            for manager in MANAGERS
        }
        registered = archives.one(self.real.session, ArchiveId(row.id))
        for reader in self.readers.values():
            # The readers are real except for their repository.
            reader._entries = ScriptedEntries(self.repository)
            reader._entries.archive.heads = self.verbs.kept(self.heads)  # type: ignore[method-assign]
            # The reader already believes that it has looked up this repository.
            reader._where = registered.url, registered.uuid
        return self.real

    # --- Notices and scans ---

    def notify(self, id: str) -> None:
        archives.notify(self.real.session, [ArchiveId(self.real.archive.id)], id)
        self.last_notice += 1
        self.notice = self.last_notice

    def sweep(self) -> None:
        archives.sweep_all(self.real.session)
        self.swept = True

    def take_turn(self, data: st.DataObject | None = None) -> None:
        free = [manager for manager in MANAGERS if manager not in [look.manager for look in self.looks]]
        if not free:
            return
        look = Look(data.draw(st.sampled_from(free)) if data else free[0], data)
        rows = archives.to_read(self.real.session)
        self.check(bool(rows) == (self.swept or self.notice is not None), f"notice {self.notice}, to read: {rows}")
        if not rows:
            return
        look.notice = self.notice
        self.looks.append(look)
        self.saw("a look inside another one", len(self.looks) > 1)
        with self.verbs.watched():
            # The test takes a scan step by step, so the reader's thread does not run it.
            self.readers[look.manager]._look(rows[0])
        if self.failed:
            raise self.failed
        trouble = archives.one(self.real.session, ArchiveId(rows[0].id))
        self.check(trouble.trouble is None and trouble.stopped is None, f"the look failed: {trouble}")
        self.looks.pop()
        self.swept = False
        if self.notice == look.notice:
            self.notice = None
        self.compare()
        if look.changes == self.repository.changes:
            self.check_ledgers()

    def pause(self) -> None:
        """Pauses the scan at a point where it waits for its repository or for a transaction, and
        lets other events happen.
        """
        data = self.looks[-1].data
        if data is not None:
            for _ in range(data.draw(st.sampled_from([0, 0, 0, 0, 1, 2]))):
                self.saw("something happens during a look")
                self.do_something(data, data.draw(st.sampled_from([OUTSIDE, OUTSIDE, ()])))

    def heads(self, branches: Sequence[str], _main: str | None, _known: object) -> dict[str, str]:
        look = self.looks[-1]
        look.heads, look.changes = ScriptedArchive(self.repository).heads(branches), self.repository.changes
        look.found = {b: len(self.verbs.lacking(b)) for b in look.heads if b not in look.imports}
        self.pause()
        return look.heads

    def is_stale(self, branch: str) -> bool:
        """Whether the ledger has moved, or the branch has disappeared, since the innermost scan saw
        it.
        """
        stale = self.has_moved(branch) or branch in self.model.deleted_branches
        self.saw("a look is stale", stale)
        return stale

    def has_moved(self, branch: str) -> bool:
        """Whether the ledger, or its import, has moved since the innermost scan saw it."""
        look = self.looks[-1]
        is_longer = len(self.ledgers[branch].entries) != look.lengths[branch]
        return is_longer or self.imports.get(branch) != look.imports.get(branch)

    def check_ledgers(self) -> None:
        super().check_ledgers()
        self.compare_ledgers()

    def compare_ledgers(self) -> None:
        ours = {b: [(e.number, e.id, e.dropped) for e in ledger.entries] for b, ledger in self.ledgers.items()}
        theirs = self.real.ledger()
        self.check(ours == theirs, f"the ledgers differ: {ours}, theirs {theirs}")


class Verbs:
    """The verbs by which readers change a ledger. Each call is also applied to the model at that
    moment, and compared.
    """

    def __init__(self, machine: BesideQueue) -> None:
        self._machine = machine

    @contextmanager
    def watched(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            mine = {name: self.kept(getattr(self, name)) for name in ("with_branches", "track", "untrack")}
            for module in (reader_module, scan_module):
                patch.setattr(module, "archives", SimpleNamespace(**{**vars(archives), **mine}))
            mine = {name: self.kept(getattr(self, name)) for name in ("append", "begin_import", "end_import")}
            patch.setattr(scan_module, "ledger", SimpleNamespace(**{**vars(ledger), **mine}))
            patch.setattr(scan_module, "CHUNK", CHUNK)
            yield

    def kept(self, verb: Callable[..., Any]) -> Callable[..., Any]:
        """Keeps the exceptions of the test itself. The reader would treat any exception as a fault
        of its repository.
        """

        def watched(*words: Any, **named: Any) -> Any:
            try:
                return verb(*words, **named)
            except Exception as error:
                self._machine.failed = self._machine.failed or error
                raise

        return watched

    def with_branches(self, session: Session, archive: ArchiveId) -> tuple[Any, list[Any]]:
        look = self._machine.looks[-1]
        look.lengths = {b: len(ledger.entries) for b, ledger in self._machine.ledgers.items()}
        look.imports = dict(self._machine.imports)
        return archives.with_branches(session, archive)

    def append(self, session: Session, branch: ledger.Branch, entries: Sequence[Entry], **more: Any) -> int | None:
        machine = self._machine
        machine.pause()
        if machine.is_stale(branch.name):
            assert ledger.append(session, branch, entries, **more) is None, f"{branch} was appended to, stale as it was"
            machine.compare()
            return None
        look, answers = machine.looks[-1], []
        until, lacking = machine.imports.get(branch.name), self.lacking(branch.name)
        machine.check(until is not None or sum(look.found.values()) <= LIMIT, f"{look.found} are an import")
        if until in lacking:
            lacking = lacking[: lacking.index(until) + 1]
        # a revision with a list and PREV:* is appended alone
        count = min(len(entries), len(lacking))
        machine.check(count or not lacking, f"none of {lacking} was appended")
        revisions, dropped = machine.lacking(branch.name, look.heads[branch.name], count)
        machine.saw("the last of an import", until in lacking[:count])
        if until in lacking[:count]:
            del machine.imports[branch.name]
            look.imports.pop(branch.name)
        machine.both(
            "append",
            branch.name,
            revisions,
            dropped,
            until is not None,
            theirs=lambda: answers.append(ledger.append(session, branch, entries, **more)),
        )
        machine.check(answers[0] is not None, f"{branch} was not appended to, although nobody else had")
        machine.compare_ledgers()
        look.lengths[branch.name] = len(machine.ledgers[branch.name].entries)
        # A reader that has not seen the answer appends the same revisions again. Nothing is planned
        # twice.
        machine.check(ledger.append(session, branch, entries, **more) is None, f"{branch} was appended to twice")
        return answers[0]

    def begin_import(self, session: Session, branches: Sequence[ledger.Branch], limit: int) -> bool:
        machine = self._machine
        machine.pause()
        if any(machine.is_stale(branch.name) for branch in branches):
            assert not ledger.begin_import(session, branches, limit)
            return False
        found = machine.looks[-1].found
        machine.check(sum(found.values()) > LIMIT, f"{found} are no import")
        with_new = {branch for branch, number in found.items() if number}
        machine.check({branch.name for branch in branches} == with_new, f"of {found} only {branches} are an import")
        machine.check(ledger.begin_import(session, branches, limit), "an import was not begun")
        machine.saw("an import")
        machine.saw("an import of several branches", len(branches) > 1)
        machine.imports |= {branch.name: str(branch.until) for branch in branches}
        machine.compare()
        return True

    def end_import(self, session: Session, branch: ledger.Branch) -> None:
        self._machine.pause()
        ledger.end_import(session, branch)
        if not self._machine.has_moved(branch.name):  # also if the branch has disappeared
            del self._machine.imports[branch.name]
        self._machine.compare()

    def lacking(self, branch: str) -> list[str]:
        """The commits that a branch's ledger lacks, according to the heads that the innermost scan
        has seen.
        """
        machine = self._machine
        chain = machine.repository.chain(machine.looks[-1].heads[branch])
        return machine.ledgers[branch].lacks([commit.id for commit in chain])[1]

    def track(self, session: Session, archive: ArchiveId, name: str, **more: Any) -> ledger.Branch:
        answers: list[ledger.Branch] = []
        self._machine.pause()
        self._machine.both("track", name, theirs=lambda: answers.append(archives.track(session, archive, name, **more)))
        self._machine.saw("a branch comes back")
        return answers[0]

    def untrack(self, session: Session, archive: ArchiveId, branch: int, **more: Any) -> None:
        self._machine.pause()
        (name,) = (n for n, known in self._machine.real.archive.branches.items() if known.id == branch)

        def theirs() -> None:
            archives.untrack(session, archive, BranchId(branch), **more)

        if self._machine.is_stale(name):
            theirs()
            self._machine.compare()
        else:
            self._machine.both("delete_branch", name, theirs=theirs)


IS_LONG = settings().max_examples > 300
EXAMPLES = max(300, settings().max_examples)
SHARDS = 18
"""The number of tests that share the examples, so that all workers take part."""
FEW = 2
"""`make test` runs these first shards, `make test-full` the others, and `make test-long` all. So few
examples seldom contain all `INGREDIENTS`: the other runs look for them.
"""
AT_ONCE = 9
"""The examples in one run of hypothesis. From the tenth example on, hypothesis also tries variants
of earlier draws. Most of these run out of choices near their end and do not count, which takes a
fifth of the time.
"""
RUNS = -(-EXAMPLES // SHARDS // AT_ONCE)
"""The runs of hypothesis in each test. The first example of a run is an empty one."""
MORE = 40
"""The most times that the last test draws as many examples again while an event is missing."""
LEADS: dict[str, tuple[str, ...]] = {
    "poll": ("defer", "refresh"), "start": ("defer", "restart"), "second": ("retry_from",), "behind a task": ("retry_from",), "REPORT": ("report",), "report": ("report",),
    "purge": ("purge", "delete"), "label": ("man", "claim"), "host": ("claim",), "locks": ("man", "set_lock"), "lock": ("set_lock",), "as may": ("limit", "claim"), "than may": ("limit",),
    "guard": ("guard", "release"), "approver": ("guard", "act_as"), "held": ("hold", "retry", "release"), "outdated": ("hold", "release"), "pause": ("pause_archive", "resume_archive"),
    "item": ("item",), "list": ("commit", "item"), "lost": ("lose",), "undelete": ("delete", "undelete"), "comes back": ("delete_branch", "undelete"), "hold": ("hold_archive", "release"),
    "prioritize": ("prioritize",), "submission": ("trigger", "submit_beside_newer_work"), "backfill": ("backfill",), "cancel": ("cancel", "finish", "pause_archive"), "failure": ("work", "finish"), "ends": ("work", "finish"),
}  # fmt: skip
"""Words in the names of events, and the verbs that lead to them. While an event with such a word is
missing, its verbs are drawn more often.
"""
INGREDIENTS = {
    *(f"depends {word} {when}" for word in ("x", "PREV", "PREV:x", "PREV:*") for when in ("completed", "settled")),
    *("depends x failed", "depends PREV failed", "depends PREV:x failed", "runs because of a failure"),
    *("skipped as nothing failed", "skipped as what completed did not fail"),
    *("PREV:* with except completed", "PREV:* with except settled"),
    *(
        "COMMIT extended",
        "faults",
        "paths leave out",
        "branches leave out",
        "definitions that change",
    ),
    *("canceled as superseded", "stopped as superseded", "stopping across runs"),
    *("blocked behind what never began", "blocked behind a failure that it waited for"),
    *("only unstarted fires", "exclusive across runs", "exclusive inside a run", "skipped with a root", "waived"),
    *("a notice is lost", "a notice is late", "a notice comes twice", "notices change places"),
    *("several revisions at once", "something happens during a look", "a look inside another one", "a look is stale"),
    *("a rewrite", "reset", "delete_branch", "a branch comes back"),
    *(
        "an attempt ends: exited 0",
        "an attempt ends: exited 1",
        "an attempt ends: exited 65",
        "an attempt ends: exited 75",
    ),
    *("an attempt ends: timed-out 143", "an attempt ends: not-started None", "an attempt ends: stopped None"),
    "an attempt ends: unreachable None",
    *(
        "an attempt ends: lost None",
        "deferred for another attempt",
        "a stopping task is lost",
        "due",
        "failed at its deadline",
        *(
            f"a poll ends: {how}"
            for how in ("exited 0", "exited 1", "exited 65", "exited 75", "lost None", "stopped None")
        ),
        "a poll is repeated",
        "a poll has failed",
        "a canceled task is polled again",
        "a command runs again from the start",
        "a poll is stopped with its run",
        "refresh",
        "refresh is refused",
        "refresh_all",
    ),
    *(
        "retry",
        "retry by force",
        "retry of a deferred task",
        "a lost command runs again on purpose only",
        "retry is refused",
        "retry_failed",
        "retry_from",
        "retry_from is refused",
        "what had completed behind a task runs again",
        "a second time on purpose",
        "a second time is refused",
        "skip",
        "skip as completed",
        "skip is refused",
        "skip_until",
    ),
    *("cancel", "cancel is refused", "cancel_run", "restart", "restart is refused"),
    *(
        "delete",
        "delete is refused",
        "what is deleted is canceled",
        "undelete",
        "undelete is refused",
        "what comes back is held",
    ),
    *("report", "report is refused", "a report of what has changed", "a report now", "a report without changes"),
    *("changed since its report", "a report after its own", "its own report after one of a person"),
    *("a report is sent", "a report is not sent", "a report of a person is sent"),
    *("REPORT runs again", "a report now is given to a command"),
    *("purge", "purge of what others hang on is refused", "what completed is purged", "a deleted run is purged"),
    *("a run between others is purged", "a purge begins in steps", "a purge goes on in steps"),
    *("trigger", "trigger is refused", "submit", "backfill", "backfill is refused"),
    *("a backfill of several revisions", "a backfill waits for the revision before"),
    *(
        "prioritize",
        "prioritize is refused",
        "prioritize_run",
        "an attempt says a priority",
        "a claim goes by priority",
    ),
    *(
        "a task of labels is claimed",
        "a task is left to a task manager with its labels",
        "nothing is claimed for want of a label",
        "a scratch folder is made",
        "a scratch folder is shared",
        "a task waits for the host of its scratch folder",
    ),
    *("set_lock", "pause_lock", "resume_lock", "resume_lock is refused", "man"),
    *(
        "waits for a lock",
        "the name of a lock has no value",
        "waits for one of its locks",
        "gives its locks back",
        "nobody can run what would have its locks",
    ),
    *("a lock of which several have a part", "what waits for a lock goes on", "cancels and waits for a lock"),
    *("guard", "held by a guard", "an approver releases what is guarded", "a verb is refused to who is no approver"),
    "what is guarded is left when the rest is released",
    *("limit", "as many run as may", "more run than may from now on"),
    *("pause_archive", "resume_archive", "resume is refused", "what waited to cancel in a pause goes on"),
    *("hold", "hold is refused", "hold_run", "hold_run is refused", "hold_archive", "unhold", "held with its archive"),
    *(
        "a release is refused",
        "release of what is outdated is refused",
    ),
    *("released", "release by force", "what is outdated is skipped", "cancels fire at a release", "retried and held"),
    *(
        "held by its workflow file",
        "an import",
        "an import of several branches",
        "the last of an import",
        "gates pass on alone",
    ),
    "gates that cancel pass on alone",
    *(
        f"{verb} an item"
        for verb in ("cancel", "restart", "retry", "skip", "hold", "release", "prioritize", "delete", "undelete")
    ),
    *("a list grows", "a list shrinks", "a list is empty", "a task gets a list", "a task loses its list"),
    *("items are connected", "an item waits for its key in an earlier run", "an item is superseded by its key"),
    *(
        "a list is waited for",
        "an earlier list is waited for",
        "PREV:* waits for an item",
        "a gate of a list waits again",
    ),
    *("an item has a scratch folder", "a submission has items"),
    *("a submission has attachments", "a submission beside newer work", "a retry of a submission beside newer work"),
    *("a list is in a file", "a list file changes", "a backfill reads a list file at an old revision"),
    # Only large runs are planned in portions and supersede in steps: tests/db/test_planning.py,
    # tests/db/test_superseding.py.
    *(f"a run is {state}" for state in RunState if state is not RunState.PLANNING),
}
"""The events that the random examples must contain, so that a change of the test cannot lose one
unnoticed.

Some events are too rare for this list. Other tests show them:
- tests/db/test_submissions.py and tests/unit/test_model.py: a submission that is refused, waits at
  no gate, or is superseded by another submission.
- tests/db/test_lock_fields.py: a lock whose name has a value.
- tests/db/test_rules.py: a COMMIT that waits only for commit runs, and a victim that runs inside
  the run of its canceler.
- tests/db/test_purge.py: a purged task that had started.
- tests/db/test_guards.py: each verb that is refused to a person who may not approve.
"""


@pytest.fixture
def database(kept: Kept) -> Database:
    """A database whose sessions plan each statement once, because the examples run few statements
    thousands of times.
    """
    return kept.generic


@pytest.fixture
def gates_pass_on_alone_from_the_first_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the queue pass gates in one statement from the first round on. Without this, only
    chains longer than those of the random tasks do that.
    """
    monkeypatch.setattr(graph, "STRAIGHT", 1)
    ids = graph.Graph.ids

    def seen(of: graph.Graph, block: str, /, **parameters: Any) -> list[int]:
        found = ids(of, block, **parameters)
        if block == "pass_gates" and found:
            BesideQueue.examples["gates pass on alone"] += 1
            (row,) = of.conn.execute("select count(*) from task where id = any(%s) and cancels", [found]).fetchall()
            BesideQueue.examples["gates that cancel pass on alone"] += row["count"]
        return found

    monkeypatch.setattr(graph.Graph, "ids", seen)


@pytest.mark.usefixtures("gates_pass_on_alone_from_the_first_round")
@pytest.mark.timeout(72 * EXAMPLES // SHARDS)
@pytest.mark.parametrize(
    "shard",
    [*range(FEW), *(pytest.param(shard, marks=[] if IS_LONG else pytest.mark.full) for shard in range(FEW, SHARDS))],
)
def test_queue_and_model_agree_after_every_step(
    session: Session, kept: Kept, tmp_path: Path, folder_of_the_run: Path, shard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    BesideQueue.session, BesideQueue.kept = session, kept
    BesideQueue.configuration = Configuration(home=tmp_path, sweep=NEVER, import_limit=LIMIT)
    BesideQueue.examples.clear()
    slow = [HealthCheck.too_slow]
    some = settings(max_examples=AT_ONCE, stateful_step_count=24, deadline=None, suppress_health_check=slow)
    for more in range(MORE + 1):
        for part in range(RUNS):
            seed = (more * RUNS + part) * SHARDS + shard
            run_state_machine_as_test(seeded(BesideQueue, seed), settings=some)
        assert BesideQueue.examples["examples"] >= EXAMPLES // SHARDS
        if not (missing := _missing(folder_of_the_run, shard)):
            return
        led = {verb for what in missing for word, verbs in LEADS.items() if word in what for verb in verbs}
        named = {verb for what in missing for verb, *_ in VERBS if verb in what}
        monkeypatch.setattr(BesideQueue, "favoured", frozenset(led | named))
    assert not missing


def _missing(folder: Path, shard: int) -> set[str]:
    """Stores the counts of a shard. The last shard of a test run to end finds the counts of all, and
    returns the events that are missing in their sum. In `make test`, none is looked for.
    """
    if shard < FEW and not IS_LONG:
        return set()
    written = folder / f"drawn-{shard}.new"
    written.write_text(json.dumps(BesideQueue.examples))
    written.rename(folder / f"drawn-{shard}.json")
    shards = [Counter(json.loads(path.read_text())) for path in folder.glob("drawn-*.json")]
    if len(shards) < (SHARDS if IS_LONG else SHARDS - FEW):
        return set()
    drawn = sum(shards, Counter[str]())
    print("\n".join(f"{drawn[what]:6} {what}" for what in sorted({*drawn, *INGREDIENTS}, key=lambda it: -drawn[it])))
    return {what for what in INGREDIENTS if not drawn[what]}


def test_what_is_canceled_as_it_enters_has_fired_all_the_same(session: Session) -> None:
    """The random test has this case once in thousands of examples: two revisions enter together,
    and the later one cancels a canceler of the earlier one.
    """
    archive = an_archive(session)
    archive.commit({"b": ""})
    archive.claim("b@2")
    tasks = {"b": "cancels: [PREV]"}, {"d": "cancels: [{task: 'PREV:b', only: unstarted}]"}
    archive.append("", [an_entry(number, a_workflow(of)) for number, of in enumerate(tasks, 3)])
    (row,) = archive.sql("select stop from task where id = %s", archive.task("b@2"))
    assert (archive.states(), row["stop"]) == ({"b@2": "running", "b@3": "canceled", "d@4": "ready"}, "cancel")


def test_a_retried_source_does_not_hold_up_what_is_only_deferred(session: Session) -> None:
    """This case is too rare for the random test. A deferred task has begun, so its edge stays met
    (decision 0001, point 5).
    """
    archive = an_archive(session)
    archive.commit({"a": "", "b": "depends: [{task: a, when: settled}]"})
    archive.fail("a@2")
    archive.end("b@2", 75)
    archive.retry("a@2")
    archive.sql("update task set due_at = clock_timestamp() where state = 'deferred'")
    finish.wake_deferred(session)
    assert archive.states() == {"a@2": "ready", "b@2": "ready"}
