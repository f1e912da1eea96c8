"""Separate queue managers that are killed in the middle of a transaction. A trigger lets the
transaction wait at a gate, which is an advisory lock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from psycopg.conninfo import make_conninfo

from arkqueue.db.session import Session
from tests.db.test_races import wait_until_blocked
from tests.loaded import Forked, fork
from tests.waiting import eventually

GATE = "locktype = 'advisory' and objid = 33 and database = (select oid from pg_database where datname = current_database())"
OTHERS = f"select from pg_locks where {GATE} and pid not in (select pid from pg_locks where {GATE} and mode = 'ExclusiveLock')"
"""Selects the backends of killed processes that still wait at the gate or hold it."""
END = f"select pg_terminate_backend(pid) from pg_locks where {GATE} and not granted"
"""Ends the backends of killed processes that wait at the gate. Otherwise they notice the loss of
their client only after the wait, or at the statement timeout.
"""
WAITING = f"select from pg_locks where {GATE} and not granted"
"""Selects the backends that wait at the gate."""


@contextmanager
def queue_manager(session: Session, home: Path, settings: str, before: str) -> Iterator[Forked]:
    """A queue manager in its own process. ``settings``: its configuration. ``before``: code that
    its program runs first.
    """
    with session.database.connect() as connection:
        uri = make_conninfo(connection.info.dsn, password=connection.info.password)
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "arkqueue.toml").write_text(f'poll = "200ms"\n{settings}\n')
    log = home.with_name("said")
    log.touch()
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ARKQUEUE_")}
    program = f"{before}; import arkqueue.cli; arkqueue.cli.main()"
    words = ["arkqueue", "--home", str(home), "manager", "--database", uri]
    process = fork(program, words, out=log, err=log, environment=kept)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def kill_in_each_step(
    session: Session, event: str, begin: Callable[[], object], done: Callable[[], bool], look: Callable[[], object]
) -> int:
    """Lets each queue manager commit one step, and kills it in the middle of the next step, until
    ``done`` returns true. Returns the number of steps.

    ``event``: the event of a trigger that fires once in each step. ``begin``: makes a queue
    manager, as a context. ``look``: a check after each step.
    """
    function = "language plpgsql as 'begin perform pg_advisory_xact_lock_shared(33); return null; end'"
    connect, steps = session.database.connect, 0
    with connect() as gate, connect() as next_gate, connect() as watcher, ThreadPoolExecutor(1) as thread:
        gate.autocommit = next_gate.autocommit = watcher.autocommit = True
        gate.execute(f"create function gate() returns trigger {function}".encode())
        gate.execute(f"create trigger gate after {event} for each row execute function gate()".encode())
        gate.execute("select pg_advisory_lock(33)")
        while not done():
            with begin() as process:  # type: ignore[attr-defined]
                wait_until_blocked(watcher)
                # A session that asks for the lock before it is free gets it when this step commits,
                # before the next step starts.
                closed = thread.submit(next_gate.execute, "select pg_advisory_lock(33)")
                eventually(lambda: len(watcher.execute(WAITING.encode()).fetchall()) == 2)
                gate.execute("select pg_advisory_unlock(33)")
                closed.result()
                gate, next_gate = next_gate, gate
                steps += 1
                look()
                if not done():
                    wait_until_blocked(watcher)
                process.kill()
                process.wait()
            watcher.execute(END.encode())
            eventually(lambda: not watcher.execute(OTHERS.encode()).fetchall())
        watcher.execute(b"drop function gate() cascade")
    return steps
