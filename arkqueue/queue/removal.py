"""Removing logs and outputs of a task for good, as a leaked secret or a person's data demands (design 5.27, ``purge TASK --log|--outputs``).

One transaction makes them unreadable. After that the pieces of the logs are deleted in steps of `MOST_PIECES`, beside all other work. Whoever gives the command again
after a crash continues it. Then the tables are vacuumed. Their statistics hold no samples of what tasks wrote (schema.sql).

An attempt that goes on writes its log and is left alone: it has to end first. What a task manager still had to store of a log is stored before its attempt ends, and
never after it, so that nothing comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg.errors import Diagnostic

from arkqueue.db import Connection
from arkqueue.db.session import Session, rows
from arkqueue.errors import Conflict, Invalid, NotFound
from arkqueue.model import TaskId
from arkqueue.names import name_of

MOST_PIECES = 200
"""Pieces of logs that one transaction deletes, each of up to 64 KiB."""
TABLES = ("log_chunk", "attempt")
"""The tables that are vacuumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """What was removed of a task: the log, or the outputs, of so many attempts. ``live``: attempts that go on, and were left alone.

    ``holders``: sentences on what may still hold it.
    """

    full_name: str
    logs: int
    outputs: int
    live: int
    holders: list[str]


def remove(
    session: Session, task: TaskId, by: str, reason: str, *, log: bool = False, outputs: bool = False
) -> Removed:
    """Remove the logs, or the outputs, of a task's ended attempts, and the messages with which these ended. ``reason``: what stands in their place."""
    if not reason.strip():
        raise Invalid("a removal", "has no reason, which is shown in place of what is removed", "Give one.")
    found = session.rows("place_of_task", task=task)
    if not found:
        raise NotFound(f"task {task}", "there is none")
    (row,) = found
    here = str(name_of(row.archive, row.number, row.run, row.name, branch=row.branch, main=row.main, item=row.item))

    def mark(connection: Connection) -> tuple[int, int]:
        counts = {"remove_logs": 0, "remove_outputs": 0}
        for block, verb, is_wanted in (
            ("remove_logs", "purge --log", log),
            ("remove_outputs", "purge --outputs", outputs),
        ):
            if is_wanted:
                entry = {"by": by, "verb": verb, "archive": row.archive_id, "run": None, "task": task, "note": reason}
                (remembered,) = rows(connection, "remember", **entry)
                counts[block] = len(rows(connection, block, task=task, removal=remembered.id))
        return counts["remove_logs"], counts["remove_outputs"]

    attempts = session.rows("attempts_to_remove", task=task)
    live = [attempt.id for attempt in attempts if attempt.is_live]
    if len(live) == len(attempts):
        fault = "has no attempt that has ended" if live else "was never started: it has no log and no outputs"
        raise Conflict(here, fault, f"arkqueue cancel {here}, and remove them when it has ended" if live else "")
    logs, gone = session.retrying(mark)
    session.wake("log")
    _delete(session, [attempt.id for attempt in session.rows("attempts_to_remove", task=task) if attempt.is_removed])
    return Removed(full_name=here, logs=logs, outputs=gone, live=len(live), holders=_vacuum(session))


def _delete(session: Session, attempts: Sequence[int]) -> None:
    while session.do("delete_log", attempts=list(attempts), most=MOST_PIECES) == MOST_PIECES:
        pass


def _vacuum(session: Session) -> list[str]:
    """Take what was deleted out of the tables' files; what may still hold it."""
    with session.database.connect() as connection:
        (before,) = rows(connection, "still_holding")
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
