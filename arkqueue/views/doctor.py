"""`arkqueue doctor`: checks rules that always hold and that no constraint of the database can
express.

``CHECKS`` is the list. Each check is a block of ``sql/doctor.sql``: its comment is the rule, and
its rows are those that break the rule. All checks run in one snapshot, so they may run beside all
other work. A broken rule is a bug of arkqueue, or the result of somebody else's write to the
database: no command and no crash may leave one. The test suite runs all checks after each test.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from arkqueue.archive_settings import read_settings
from arkqueue.cron import next_time
from arkqueue.db.session import SQL, Session
from arkqueue.errors import Conflict, Invalid
from arkqueue.keeping import rules
from arkqueue.model import TaskKind
from arkqueue.names import run_name
from arkqueue.priorities import GREATEST_PRIORITY, LEAST_PRIORITY
from arkqueue.views.naming import names_of, places_of
from arkqueue.workflow import from_database

MOST = 20
"""The most rows of one check that are reported. If there are more, the answer says so."""
MOST_DEFINITIONS = 1000
"""The most definitions that are read at once."""
PATIENCE = 100.0
"""Seconds for all checks together; less than the command line's patience with the server."""

Rows = Callable[..., list[Any]]
"""Reads the rows of a block with the given parameters."""

REPORT_IT = "Report it as a bug of arkqueue, with these rows."
AGAIN = "Cancel it (arkqueue cancel), then retry it (arkqueue retry): its edges are evaluated again."
OF_GATE = "A gate cannot be canceled. Run a task that it waits for again (arkqueue retry RUN --from TASK; one item of a list: arkqueue retry 'RUN/*/KEY' --from TASK): the edges of that task are evaluated again."
"""The remedy for a gate, where that of other tasks is to cancel and retry them."""
INTERRUPTED = "If arkqueue explain says that a retry with --from was interrupted, repeat that command. Otherwise: "
LOCKED = "In a transaction that locks the archive's row (select … for no key update)"


@dataclass(frozen=True, slots=True)
class Check:
    """One rule. ``block``: the query for the rows that break it. ``remedy``: a sentence that says
    how to repair these rows. ``of_gate``: another remedy for gates. ``judge``: says what is wrong
    with a row, if SQL cannot tell; empty: nothing. ``facts``: further parameters of the block, which
    SQL cannot find out.
    """

    block: str
    remedy: str
    judge: Callable[[Any], str] | None = None
    facts: Callable[[Rows], dict[str, Any]] | None = None
    of_gate: str = ""

    @property
    def name(self) -> str:
        return self.block.removeprefix("doctor_").replace("_", "-")

    @property
    def rule(self) -> str:
        return SQL.describe(self.block)

    def parameters(self, rows: Rows, archive: int | None, most: int) -> dict[str, Any]:
        """The parameters of the block. ``rows``: reads a block in the snapshot of all checks."""
        return {"archive": archive, "most": most, **(self.facts(rows) if self.facts else {})}

    def broken(self, rows: Iterable[Any]) -> list[tuple[Any, str]]:
        """The rows of the block that break the rule, each with the fault in words."""
        judged = ((row, row.what if self.judge is None else self.judge(row)) for row in rows)
        return [(row, what) for row, what in judged if what]


def _fault_of_settings(row: Any) -> str:
    try:
        rules(read_settings(row.settings, row.name))
    except Conflict as error:
        return error.fault
    except Invalid as error:
        return f"{error.thing} {error.fault}"
    return ""


def _fault_of_times(row: Any) -> str:
    try:
        next_time(row.cron, row.zone, datetime.now(UTC))
    except Conflict as error:
        return f"branch {row.name!r}: the {error.thing} {error.fault}"
    return ""


def _unreadable_definitions(rows: Rows) -> dict[str, Any]:
    """The definitions that a task manager cannot read."""
    faults: dict[int, str] = {}
    after = 0
    while found := rows("definitions_after", after=after, most=MOST_DEFINITIONS):
        for row in found:
            try:
                from_database(row.body)
            except Conflict as error:
                faults[row.id] = error.fault
        after = found[-1].id
    return {"unreadable": list(faults), "faults": list(faults.values())}


CHECKS = (
    Check("doctor_unmet", f"{LOCKED}, set task.unmet to the number that the rows show; if that is 0, cancel and retry the task.", of_gate=f"{LOCKED}, set task.unmet to the number that the rows show; if that is 0: {OF_GATE}"),
    Check("doctor_reports", f"{LOCKED}, set task.unmet to the number that the rows show."),
    Check("doctor_waiting", AGAIN, of_gate=OF_GATE),
    Check("doctor_met", INTERRUPTED + AGAIN, of_gate=INTERRUPTED + OF_GATE),
    Check("doctor_skips", f"{INTERRUPTED}Skip it (arkqueue skip), or retry what it needs (arkqueue retry)."),
    Check("doctor_roots", f"{LOCKED}, set task.root_id to null and task.waived to true: then it can be retried by itself."),
    Check("doctor_blocks", f"{LOCKED}, set task.blocks to 0, 1 or 2 (nothing, completion, all), and cancel and retry what waits for it."),
    Check("doctor_running", "Restart the task manager that ran it. If that does not help, set attempt.lease_until to the past: then the attempt counts as lost, and the task runs again."),
    Check("doctor_attempts", f"{LOCKED}, set task.attempts and task.attempt_id to the values of the task's rows in attempt."),
    Check("doctor_outcomes", f"Run the task again (arkqueue retry TASK; if it has completed: arkqueue retry RUN --from TASK). Or, if the state is right: {LOCKED[0].lower()}{LOCKED[1:]}, set the columns \"end\" and exit_code of the attempt."),
    Check("doctor_polls", f"{LOCKED}, set task.polls to true if its command ended with 75 and is not to run again, otherwise to false."),
    Check("doctor_marks", f"{LOCKED}, set the column that does not fit to null, false or 0.", facts=lambda _: {"least": LEAST_PRIORITY, "greatest": GREATEST_PRIORITY}),
    Check("doctor_holds", f"{LOCKED}, set task.hold_id, task.release_id or archive.hold_id to null; then hold or release the task anew."),
    Check("doctor_ready", AGAIN),
    Check("doctor_turns", "Rewind the archive (arkqueue archive rewind), or delete its row of ready_archive and retry a task of it."),
    Check("doctor_pauses", "Start a queue manager (arkqueue manager), or repeat arkqueue pause --all or arkqueue resume --all."),
    Check("doctor_slots", "Set the limit of the archive again (arkqueue archive set NAME max-running N): that adapts its slots."),
    Check("doctor_locks", f"Of a task that is ready, running or waits for its locks: cancel and retry it. Of any other task: {LOCKED[0].lower()}{LOCKED[1:]}, delete its rows from lock_use."),
    Check("doctor_holders", f"Cancel those of these tasks that must not run at once (arkqueue cancel). Tasks that have not started give the lock back when its capacity is set again (arkqueue lock set). {REPORT_IT}"),
    Check("doctor_tasks", f"{LOCKED}, set the task's archive_id, branch_id, number and run to those of its run."),
    Check("doctor_runs", REPORT_IT),
    Check("doctor_deleted", f"{LOCKED}, set run.deleted_at or run.canceled_at to null, or remove the tombstone of the item (task.deleted, deleted_item), and cancel or delete it again."),
    Check("doctor_ledger", "Restore a backup from before, or rewind the archive (arkqueue archive rewind)."),
    Check("doctor_edges", f"{LOCKED}, delete the edge; then cancel and retry the task."),
    Check("doctor_completions", f"{LOCKED}, write the row of completion anew. Until then BASE of this task is wrong, and retries of the task may be refused as outdated."),
    Check("doctor_purged_starts", "Delete the row of purged_start."),
    Check("doctor_names", "Insert the name into task_name; until then PREV:* leaves it out."),
    Check("doctor_definitions", "Trigger the revision of the task again (arkqueue trigger): that repairs the definitions of its workflow files. Then retry the task, or delete its run. If the task is of a submission and is still named, correct or delete its row of definition and restart arkqueue.", facts=_unreadable_definitions),
    Check("doctor_declared", f"{LOCKED}, set task.program, task.cancels or task.exclusive to what the definition says."),
    Check("doctor_flags", f"{LOCKED}, set the column to true. Tasks that wait for a lock meanwhile: cancel and retry them."),
    Check("doctor_documents", f"{LOCKED}, set run.faults to an empty list ([]), and delete the run. Restore the rows of workflow from a backup."),
    Check("doctor_moments", f"{LOCKED}, set the infinite times of its row to the moment that was meant; of a task, look also at its attempts."),
    Check("doctor_items", "Delete the run of the task, and trigger its revision again (arkqueue trigger)."),
    Check("doctor_scratch", "Delete the row of scratch."),
    Check("doctor_scratch_limit", "Retry, delete or purge the run, so that its folder goes (arkqueue retry, delete, purge), or raise scratch_limit. An upload goes a day after somebody last continued it."),
    Check("doctor_attachments", "Start the task manager that has the files (its home folder, or the shared scratch_folder): it removes them. If it is gone for good: DELETE /api/v1/uploads/ID."),
    Check("doctor_lone_attempts", "Delete these rows: nobody can see them."),
    Check("doctor_lone_rows", "Delete the row from the table that is named in parentheses."),
    Check("doctor_backfills", "If the backfill is still being planned, cancel it (arkqueue cancel ARCHIVE@fill:N), and make it again."),
    Check("doctor_kept_reports", f"{LOCKED}, set run.updating to null, or correct the row of report; a further report (arkqueue report RUN --update) shows the present states."),
    Check("doctor_removals", "Repeat arkqueue purge TASK --log: it continues where it was killed."),
    Check("doctor_logs", "Only this log is affected: read it with care."),
    Check("doctor_purged", REPORT_IT),
    Check("doctor_purging", "Repeat the purge (arkqueue purge), or start a queue manager (arkqueue manager): the purge goes on where it was killed."),
    Check("doctor_schedules", "Set schedule.run_id to null."),
    Check("doctor_times", "Delete the row of schedule; then commit anything: the schedules of the newest revision are stored anew.", _fault_of_times),
    Check("doctor_settings", f"{LOCKED}, correct archive.settings; or set it to {{}}, and set them anew (arkqueue archive set).", _fault_of_settings),
    Check("doctor_sequences", "Set the sequence to the highest id (setval) before you start arkqueue: otherwise ids are given twice."),
)  # fmt: skip
"""All rules, in the order in which they are reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One broken rule. ``archive``, ``name``: the archive, and the name of the task or run; None if
    the row belongs to none.
    """

    check: str
    archive: str | None
    name: str | None
    task: int | None
    run: int | None
    what: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The result of one check. ``more``: True if it found more rows than are reported."""

    check: str
    rule: str
    seconds: float
    found: int
    more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The findings of all checks."""

    findings: list[Finding]
    checks: list[Checked]

    @property
    def is_sound(self) -> bool:
        return not self.findings


def examine(session: Session, archive: int | None = None) -> Diagnosis:
    """Run all checks for one archive; without one, for all archives and the rest of the database."""
    broken: list[tuple[Check, Any, str]] = []
    checks: list[Checked] = []
    with session.snapshot(timeout=PATIENCE) as moment:
        for check in CHECKS:
            since = time.perf_counter()
            rows = check.broken(moment.rows(check.block, **check.parameters(moment.rows, archive, MOST + 1)))[
                : MOST + 1
            ]
            seconds = time.perf_counter() - since
            broken += [(check, *row) for row in rows[:MOST]]
            found = min(len(rows), MOST)
            checks.append(
                Checked(check=check.name, rule=check.rule, seconds=seconds, found=found, more=len(rows) > MOST)
            )
        findings = _told(moment, broken) if broken else []
    return Diagnosis(findings=findings, checks=checks)


def _told(session: Session, broken: Sequence[tuple[Check, Any, str]]) -> list[Finding]:
    rows = [row for _, row, _ in broken]
    archives = {row.id: row.name for row in session.rows("doctor_archives", archives=_ids(row.archive for row in rows))}
    places = places_of(session, (row.task for row in rows))
    tasks, gates = names_of(places), {place.id for place in places if place.kind == TaskKind.GATE}
    runs = {row.id: run_name(row) for row in session.rows("doctor_places", runs=_ids(row.run for row in rows))}
    return [
        Finding(
            check=check.name,
            archive=archives.get(row.archive) or (f"archive {row.archive}" if row.archive is not None else None),
            name=tasks.get(row.task) or (f"task {row.task}" if row.task is not None else runs.get(row.run)),
            task=row.task,
            run=row.run,
            what=what,
            remedy=check.of_gate if check.of_gate and row.task in gates else check.remedy,
        )
        for check, row, what in broken
    ]


def _ids(ids: Iterable[int | None]) -> list[int]:
    return sorted({id for id in ids if id is not None})
