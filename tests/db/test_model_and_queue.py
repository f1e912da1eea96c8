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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from arkqueue.config import Configuration
from arkqueue.db import Database
from arkqueue.db.session import Session
from arkqueue.model import ArchiveId, BranchId, Workflow
from arkqueue.plan import Entry
from arkqueue.queue import archives, finish, graph, ledger, pauses
from arkqueue.queue_manager import reader as reader_module
from arkqueue.queue_manager import scan as scan_module
from arkqueue.queue_manager.quick_checks import QuickChecks
from arkqueue.queue_manager.reader import Reader
from arkqueue.repository.reader.entries import EntryReader
from arkqueue.states import RunState
from tests.builders import a_workflow, an_archive, an_entry
from tests.db.beside import OUTSIDE, VERBS, Beside
from tests.db.queue_as_subject import QueueAsSubject
from tests.db.scripted_repository import Repository, ScriptedArchive
from tests.db.subject import Subject
from tests.fuzzing import seeded
from tests.postgres import Kept

MANAGERS = ("one", "other")
CHUNK = 2
"""The revisions that a reader appends in one transaction here. Scans often need several."""
LIMIT = 3
"""The number of revisions beyond which a scan starts an import here."""
NEVER = "366d"
"""The interval of periodic scans. The machine starts them itself."""


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
        self.real = QueueAsSubject(self.session, self.kept, self.repository, self.examples)
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
MORE = 80
"""The most further runs of hypothesis in the last test while an event is missing."""
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
- tests/db/test_rules.py: a COMMIT that waits only for commit runs.
- tests/db/test_cancellation.py: a victim that runs inside the run of its canceler.
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
    for part in range(RUNS + MORE):
        run_state_machine_as_test(seeded(BesideQueue, part * SHARDS + shard), settings=some)
        if part + 1 < RUNS:
            continue
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


def test_what_waited_in_vain_for_a_failure_holds_up_nothing_from_the_same_round_on(session: Session) -> None:
    """The random test has this case once in thousands of examples. `PREV:*` of revision 3 waits for
    the skipped c@2, which holds it up as long as a@2 may still fail. So d@3 enters one round before
    e@4, which would cancel it.
    """
    archive = an_archive(session)
    skipped = {"b": "depends: [{task: x, when: failed}]", "c": "depends: [b, {task: a, when: failed}]"}
    archive.commit({"x": "", "a": "", **skipped})
    archive.run("x@2")
    gate = "depends: ['PREV:*']\ncancels: [PREV]  # gate"
    archive.commit({"COMMIT": "depends: ['PREV:a']", "a": "", "d": gate})
    archive.commit({"COMMIT": "depends: [PREV]", "e": "cancels: ['PREV:d']"})
    archive.end("a@2")
    assert (archive.state("c@2"), archive.state("d@3"), archive.state("e@4")) == ("skipped", "completed", "ready")


def test_what_a_vain_wait_held_up_waits_for_the_edges_that_are_met_in_the_same_round(session: Session) -> None:
    """y@2 also waits for the canceled t@2, whose edge from a@2 is met in the round in which a@2 does
    not fail. So y@2 holds d@3 up until the next round, in which e@4 cancels it.
    """
    archive = an_archive(session)
    vain = "depends: [t, {task: a, when: failed}]"
    archive.commit({"a": "", "i": "depends: [a]  # gate", "t": "depends: [a]", "y": vain})
    archive.cancel("t@2")
    archive.commit({"d": "depends: ['PREV:y']  # gate"})
    archive.commit({"e": "depends: ['PREV:i']\ncancels: ['PREV:d']"})
    archive.run("a@2")
    assert (archive.state("y@2"), archive.state("d@3"), archive.state("e@4")) == ("skipped", "canceled", "ready")


def test_what_a_passed_gate_is_about_to_meet_holds_up_later_tasks_for_another_round(session: Session) -> None:
    """This case is too rare for the random test: g@2 passes in the round in which it cancels c@2, and
    y@2.2 waits for both: for c@2, and for the product of g@2 through the canceled t@2.2.
    """
    archive = an_archive(session)
    pauses.pause(session, ArchiveId(archive.id), "", "ann")
    gates = {"g": "cancels: [c]  # gate", "j": "depends: [g]  # gate"}
    by_hand = {"t": "on: manual\ndepends: [g]", "y": "on: manual\ndepends: [t, {task: c, when: settled}]"}
    archive.commit({"w": "", "c": "depends: [w]", **gates, **by_hand})
    archive.trigger(2, "t", "y")
    archive.cancel("t@2.2")
    archive.commit({"d": "depends: ['PREV:y']  # gate"})
    archive.commit({"e": "depends: ['PREV:j']\ncancels: ['PREV:d']"})
    pauses.resume(session, ArchiveId(archive.id), archive.name, "ann")
    assert (archive.state("c@2"), archive.state("d@3"), archive.state("e@4")) == ("canceled", "canceled", "ready")


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
