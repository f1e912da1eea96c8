"""A task manager dies while its task has a lock (design 5.25): whoever waits gets the lock, and two
tasks never have it at once.

A container goes on without its task manager, and has the lock until it ends, whoever looks after it
by then.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from arkqueue.queue import finish
from arkqueue.states import SETTLED
from tests.builders import AnArchive
from tests.loaded import Forked, fork
from tests.system.task_manager.boxes import Boxes, boxes
from tests.system.task_manager.conftest import DRIVER, Managers
from tests.waiting import PATIENCE, eventually

__all__ = ["boxes"]

LEASE = 60.0
"""The lease in seconds, longer than a test. A queue manager looks for leases that are over again and
again. Here, the test does, and sets the ends of leases, so that it need not wait.
"""

ADOPT_WITHIN = 3600.0
"""The seconds for which a container stays reserved for its host after its lease."""

POINTS = 20
"""At so many statements of its database, one after the other, a task manager is killed."""

KILLED = """
import os, signal, sys
from arkqueue.db import connections, pipelines, session
from arkqueue.queue import graph

point, number = int(sys.argv[4]), 0

def counted(connection, calls):
    # Counted from the claim on that takes the first task: right before statements that share a
    # round trip. The last of a transaction go with its commit.
    global number
    if number or any(b"insert into attempt" in call.text for call in calls):
        number += 1
    if number > point:
        os.kill(os.getpid(), signal.SIGKILL)
    return pipelines.run(connection, calls)

connections.run = session.run = graph.run = counted
"""

BACKENDS = "select pid from pg_stat_activity where datname = current_database() and application_name = 'arkqueue'"
"""Those that serve a process that was started here: the test's own connections have another name."""

Killed = Callable[..., Forked]


@pytest.fixture
def killed(pg_uri: str, tmp_path: Path) -> Iterator[Killed]:
    """Starts a process that is a task manager and kills itself with SIGKILL at a point."""
    started: list[Forked] = []
    log = tmp_path / "killed.log"
    log.touch()

    def start(point: int, home: Path = tmp_path / "killed", **settings: object) -> Forked:
        home.mkdir()
        given = ["", pg_uri, str(home), json.dumps(settings), str(point)]
        started.append(fork(KILLED + DRIVER, given, out=log, err=log, environment=os.environ))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
    print(log.read_text(errors="replace"))


def what_there_is(archive: AnArchive) -> list[dict[str, object]]:
    """What tells why nothing goes on."""
    return [
        *archive.sql("select name, state, asks, attempts, due_at from task where kind = 'ordinary' order by id"),
        *archive.sql("select * from lock_use order by task_id"),
        *archive.sql("select * from task_manager"),
        *archive.sql('select id, task_id, lease_until, started_at, ended_at, "end" from attempt order by id'),
        *archive.sql(
            "select pid, application_name, state, wait_event, query from pg_stat_activity where state <> 'idle'"
        ),
    ]


@pytest.mark.parametrize(
    "point", [n if n % 7 == 2 else pytest.param(n, marks=pytest.mark.full) for n in range(1, POINTS + 1)]
)
def test_a_lock_of_a_killed_task_manager_is_free_once_its_lease_is_over(
    archive: AnArchive, killed: Killed, managers: Managers, point: int
) -> None:
    names = "abcdefgh"
    archive.commit(dict.fromkeys(names, "lock: tex\ncheckout: none"))
    victim = killed(point, lease=f"{LEASE:g}s", renew=f"{LEASE / 10:g}s")
    left = left_by(archive, victim)
    managers()
    if left:
        assert archive.sql("select id from task where state in ('ready', 'running')") == [{"id": left[0]["task_id"]}]
        assert_freed_with_its_lease(archive, left[0]["id"])
    eventually(lambda: set(archive.states().values()) <= SETTLED, lambda: what_there_is(archive))
    assert set(archive.states().values()) == {"completed"}
    assert_turns(archive, len(names) + len(left))


@pytest.mark.parametrize(
    "point",
    [pytest.param(n, marks=pytest.mark.full if n % 3 == 1 else pytest.mark.long) for n in range(1, POINTS + 1)],
)
def test_a_lock_of_a_killed_task_managers_container_is_free_when_the_container_ends(
    archive: AnArchive, boxes: Boxes, killed: Killed, managers: Managers, home_folder: Path, point: int
) -> None:
    """At the points with an even number the first container waits for the test, so that it outlives its task manager."""
    names, go = "abc", boxes.shared / "go"
    text = "mkdir /shared/held || exit 1; until [ -e /shared/go ]; do sleep 0.05; done; rmdir /shared/held"
    archive.commit(dict.fromkeys(names, boxes.task(text, lock="tex")))
    if point % 2:
        go.touch()
    victim = killed(point, home_folder, **boxes.settings)
    left = {row["task_id"] for row in left_by(archive, victim)}
    outlived = [one["Labels"]["arkqueue.attempt"] for one in boxes.running()]
    manager = managers(**boxes.settings)
    if outlived:
        adopted = "select id::text from attempt where process = %s and ended_at is null"
        eventually(lambda: archive.sql(adopted, manager.process) == [{"id": id} for id in outlived])
        assert {row["id"] for row in archive.sql("select id from task where state in ('ready', 'running')")} == left
    go.touch()
    eventually(lambda: set(archive.states().values()) <= SETTLED, lambda: what_there_is(archive))
    assert set(archive.states().values()) == {"completed"}
    # One that was being started, or had ended, when its task manager was killed is adopted or lost.
    assert_turns(archive, len(names), len(names) + len(left) - len(outlived))


@pytest.mark.parametrize(
    "point",
    [pytest.param(n, marks=pytest.mark.full if n % 6 == 2 else pytest.mark.long) for n in range(1, POINTS + 1)],
)
def test_a_lock_of_a_killed_task_managers_container_is_free_at_the_end_of_its_reservation(
    archive: AnArchive, boxes: Boxes, killed: Killed, managers: Managers, home_folder: Path, tmp_path: Path, point: int
) -> None:
    """The host of the killed task manager does not come back in time, and the first container would never end."""
    names, go = "abc", boxes.shared / "go"
    text = "mkdir /shared/first || exit 0; until [ -e /shared/go ]; do sleep 0.05; done"
    archive.commit(dict.fromkeys(names, boxes.task(text, lock="tex")))
    times = {"lease": f"{LEASE:g}s", "renew": f"{LEASE / 10:g}s", "adopt_within": f"{ADOPT_WITHIN:g}s"}
    left = left_by(archive, killed(point, home_folder, **boxes.settings, **times))
    outlived = boxes.running()
    managers(home=tmp_path / "another", **boxes.settings)
    if left:
        assert archive.sql("select id from task where state in ('ready', 'running')") == [{"id": left[0]["task_id"]}]
        assert_freed_with_its_lease(archive, left[0]["id"])
    if not outlived:
        go.touch()
    eventually(lambda: set(archive.states().values()) <= SETTLED, lambda: what_there_is(archive))
    assert set(archive.states().values()) == {"completed"}
    assert_turns(archive, len(names) + len(left))
    eventually(lambda: len(boxes.running()) == len(outlived))  # nobody else may remove what another host has
    managers(**boxes.settings)
    eventually(lambda: not boxes.running())


def left_by(archive: AnArchive, victim: Forked) -> list[dict[str, Any]]:
    """Waits for the end of a killed task manager. Returns its live attempt, if it has one."""
    assert victim.wait(PATIENCE) == -signal.SIGKILL
    # The server may still do what it was asked last, a claim, say, and commit it.
    eventually(lambda: not archive.sql(BACKENDS))
    left = archive.sql("select id, task_id from attempt where ended_at is null")
    assert len(left) <= 1
    return left


def assert_freed_with_its_lease(archive: AnArchive, attempt: int) -> None:
    """Nobody renews the lease of a killed task manager: it ends within its length, and within
    ``adopt_within`` after that the reservation of a container that has begun. The attempt has its
    locks until then. The first look after that ends the attempt, whose locks go to others.
    """
    reserved = "coalesce(outlives, '0')"
    of_this = f"from attempt where id = {attempt}"
    (ends,) = archive.sql(f"select extract(epoch from {reserved}) as reserved, extract(epoch from lease_until - clock_timestamp()) as left {of_this}")  # fmt: skip
    assert ends["left"] <= LEASE
    assert ends["reserved"] in (0, ADOPT_WITHIN)
    for left, ended in (("1 minute", []), ("0", [attempt])):
        archive.sql(
            "update heartbeat set steady_since = clock_timestamp() - interval '1 hour', beat_at = clock_timestamp()"
        )
        archive.sql(
            f"update attempt set lease_until = clock_timestamp() + interval '{left}' - {reserved} where id = {attempt}"
        )
        assert finish.lapse(archive.session, LEASE, LEASE) == ended
        assert archive.sql(f"select ended_at is not null as ended {of_this}") == [{"ended": bool(ended)}]


def assert_turns(archive: AnArchive, *counts: int) -> None:
    """There were so many attempts, each of them after the end of the one before."""
    attempts = archive.sql("select claimed_at, ended_at from attempt order by claimed_at")
    assert len(attempts) in counts
    for one, following in pairwise(attempts):
        assert one["ended_at"] <= following["claimed_at"], "two tasks had the lock at once"
