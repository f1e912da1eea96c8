"""Removing logs and outputs of a task for good, as a leaked secret or a person's data demands
(design 5.27, ``purge TASK --log|--outputs``).

One transaction makes them unreadable. After that, the pieces of the logs are deleted in steps of
`MOST_PIECES`, beside all other work. If a crash interrupts this, the same command, given again,
continues. Then the tables are vacuumed. Their statistics hold no samples of what tasks wrote
(schema.sql).

The log of an attempt that still runs is left alone: the attempt has to end first. A task manager
stores the rest of a log before it ends the attempt, and never after, so nothing comes back.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, timedelta
from typing import Any

from psycopg.errors import Diagnostic

from arkqueue.db import Connection
from arkqueue.db.session import Session, rows
from arkqueue.errors import Conflict, Invalid, NotFound
from arkqueue.model import SILENCE, TaskId
from arkqueue.names import run_name, task_name

MOST_PIECES = 200
"""The most pieces of logs that one transaction deletes, each of up to 64 KiB."""
LONGEST_REASON = 10_000
"""The most characters of a reason."""
MOST_RECEIVERS = 20
"""The most tasks that are named as recipients of removed outputs, and receivers of notifications."""
TABLES = ("log_chunk", "attempt")
"""The tables that are vacuumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """The result of a removal: the number of attempts whose logs, or outputs, were removed.
    ``live``: attempts that still run, and were left alone.

    ``holders``: sentences on other places that may still hold the removed text.
    """

    full_name: str
    logs: int
    outputs: int
    live: int
    holders: list[str]


def check_reason(reason: str) -> None:
    """Raise ``Invalid`` if a reason is not a text that the audit log can keep."""
    if len(reason) > LONGEST_REASON or "\0" in reason:
        fault = f"has {len(reason)} characters" if len(reason) > LONGEST_REASON else "has a NUL character"
        raise Invalid("the reason of a removal", fault, f"Give at most {LONGEST_REASON} characters, and no NUL.")


def remove(
    session: Session, task: TaskId, by: str, reason: str, *, log: bool = False, outputs: bool = False
) -> Removed:
    """Remove the logs, or the outputs, of a task's ended attempts, and the messages of these ends. A
    rehearsal deletes no pieces, and vacuums nothing.

    ``reason``: shown in place of the removed text. If something is removed again, the newest reason
    is shown; the audit log keeps all.
    """
    if not reason.strip():
        raise Invalid("a removal", "has no reason, which is shown in place of what is removed", "Give one.")
    check_reason(reason)
    row, attempts = _judged(session, task)
    here, live = task_name(row), [attempt for attempt in attempts if attempt.is_live]

    def mark(connection: Connection) -> tuple[int, int]:
        counts = {"remove_logs": 0, "remove_outputs": 0}
        rows(connection, "lock_task", task=task)
        for block, verb, is_wanted in (
            ("remove_logs", "purge --log", log),
            ("remove_outputs", "purge --outputs", outputs),
        ):
            if is_wanted:
                entry = {"by": by, "verb": verb, "archive": row.archive_id, "run": attempts[0].run_id, "task": task}
                (remembered,) = rows(connection, "remember", note=reason, **entry)
                marked = rows(connection, block, task=task, removal=remembered.id)
                counts[block] = sum(attempt.is_new for attempt in marked)
        return counts["remove_logs"], counts["remove_outputs"]

    logs, gone = session.retrying(mark)
    session.wake("log")
    session.changed([row.archive_id])
    marked = session.rows("attempts_to_remove", task=task, silence=SILENCE)
    if not session.is_rehearsal:
        _delete(session, [attempt.id for attempt in marked if attempt.is_removed])
    holders = _vacuum(session) + _beside(session, task, log=log, outputs=outputs)
    return Removed(full_name=here, logs=logs, outputs=gone, live=len(live), holders=holders)


def holders_of(session: Session, task: TaskId, *, log: bool, outputs: bool) -> list[str]:
    """Sentences on the places outside the database that would still hold the text after a removal.
    Raises the errors with which the removal would be refused.
    """
    _judged(session, task)
    return _beside(session, task, log=log, outputs=outputs)


def _judged(session: Session, task: TaskId) -> tuple[Any, list[Any]]:
    """The place of a task, and its attempts. Raises the errors with which a removal is refused."""
    found = session.rows("place_of_task", task=task)
    if not found:
        raise NotFound(f"task {task}", "does not exist")
    (row,) = found
    here = task_name(row)
    attempts = session.rows("attempts_to_remove", task=task, silence=SILENCE)
    if not attempts:
        raise Conflict(here, "was never started: it has no log and no outputs")
    if all(attempt.is_live for attempt in attempts):
        raise Conflict(here, "has no attempt that has ended", _to_end(here, attempts))
    return row, attempts


def remove_old_logs(
    session: Session, archive: int, runs: Sequence[int], age: timedelta, by: str, reason: str, entry: list[int]
) -> int:
    """Remove the logs of attempts in some runs that ended longer than ``age`` ago. Returns the
    number of attempts. ``entry``: gets the audit log entry, once there is one.

    Nothing is vacuumed: the aim is a small database, not the removal of a secret.
    """
    attempts = [row.id for row in session.rows("old_logs", runs=list(runs), age=age)]

    def mark(connection: Connection) -> tuple[int, int]:
        if entry:
            (id,) = entry
        else:
            told: dict[str, Any] = {"by": by, "verb": "purge --log", "archive": archive, "run": None, "task": None}
            ((id,),) = rows(connection, "remember", note=reason, **told)
        return len(rows(connection, "remove_old_logs", attempts=attempts, removal=id)), id

    if not attempts:
        return 0
    removed, id = session.retrying(mark)
    entry[:] = [id]
    session.wake("log")
    session.changed([archive])
    if not session.is_rehearsal:
        _delete(session, attempts)
    return removed


def _to_end(here: str, live: Sequence[Any]) -> str:
    """How the live attempts of a task will end: by a person's cancellation, or by a queue manager
    if their task manager is silent.
    """
    if any(attempt.is_heard for attempt in live):
        return f"arkqueue cancel {here}, and remove them when the task has ended"
    until = max(attempt.until for attempt in live).astimezone(UTC)
    return f"Its task manager is silent. A queue manager (arkqueue manager, or arkqueue serve) ends the attempt after its lease, at {until:%Y-%m-%d %H:%M:%S} UTC"


def _delete(session: Session, attempts: Sequence[int]) -> None:
    while session.do("delete_log", attempts=list(attempts), most=MOST_PIECES) == MOST_PIECES:
        pass


def _beside(session: Session, task: TaskId, *, log: bool, outputs: bool) -> list[str]:
    """Other places than the database that may hold the removed text: workspaces, scratch folders,
    and tasks that got the outputs.
    """
    holders = []
    for attempt in session.rows("left_on_hosts", task=task):
        host = attempt.hostname or attempt.host
        holders.append(f"the workspace work/{attempt.id} in the home folder of the lost task manager on {host}, until one starts there again")  # fmt: skip
    if outputs and not log:
        holders.append("the log of the task, where the task printed them. Add --log")
    tasks = [task]
    if outputs:
        received = session.rows("received_by", task=task, most=MOST_RECEIVERS)
        tasks += [row.id for row in received]
        for receiver in received:
            name = task_name(session.rows("place_of_task", task=receiver.id)[0])
            holders.append(f"{name}, which got them as INPUTS: its workspace while it runs, its log and its outputs")
        if received and (more := received[0].all - len(received)):
            holders.append(f"{more} more task{'s' * (more > 1)} that got them as INPUTS")
        for row in session.rows("named_locks_of_outputs", task=task, most=MOST_RECEIVERS):
            name = task_name(session.rows("place_of_task", task=row.id)[0])
            holders.append(f"the names of locks of {name}, which are made from them, and the audit log where somebody named such a lock")  # fmt: skip
    for row in session.rows("reported_by", task=task):
        tasks.append(row.id)
        name = task_name(session.rows("place_of_task", task=row.id)[0])
        holders.append(f"{name}, whose command got them in the report: where it sent the report, its workspace while it runs, its log and its outputs")  # fmt: skip
    for row in session.rows("notified_of", task=task, most=MOST_RECEIVERS):
        whom = "the author of the revision" if row.receiver == "author" else row.receiver
        holders.append(f"the notification to {whom}, with the end of the log and the message of the attempt")
    for row in session.rows("scratch_of_tasks", tasks=tasks, most=MOST_RECEIVERS):
        run = run_name(session.rows("place_of_task", task=row.task)[0])
        folder = f"the scratch folder of {f'the item {row.item!r} of ' if row.item else ''}{run} on {row.host}"
        holders.append(f"{folder}, where a task wrote them there: it goes when the run has completed, or is deleted or purged")  # fmt: skip
    for _ in session.rows("submission_of_task", task=task):
        run = run_name(session.rows("place_of_task", task=task)[0])
        holders.append(f"the document that was submitted, and its items: they stay with the run. To remove them: arkqueue purge {shlex.quote(run)}")  # fmt: skip
    return holders


def _vacuum(session: Session) -> list[str]:
    """Vacuum the deleted rows out of the tables' files. Returns sentences on other places that may still have the text."""
    (before,) = session.rows("still_holding")
    if not session.is_rehearsal:
        with session.database.connect() as connection:
            connection.execute("set statement_timeout = 0")
            refusals: list[Diagnostic] = []
            connection.add_notice_handler(refusals.append)
            connection.execute(f"vacuum {', '.join(TABLES)}".encode())
        if refusals:  # another user owns the tables
            return [f"this database, until the owner of its tables says: vacuum {', '.join(TABLES)}"]
    holders = ["backups and dumps that were made before", "PostgreSQL's write-ahead log, until it is written over"]
    if before.is_archived:
        holders.append("the archive of the write-ahead log")
    if before.replicas or before.slots:
        holders.append("replicas, until they have caught up and were vacuumed, and what reads a replication slot")
    holders.append("free space of the database's files, until it is written over")
    if before.snapshots:
        holders.append("this database, for transactions that began before, until somebody vacuums it after their end")
    return holders
