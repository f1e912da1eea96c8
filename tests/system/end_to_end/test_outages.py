"""The database goes away in the middle of everything, for a moment or for longer than a lease:
nothing is lost, nothing runs twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from arkqueue import __version__
from tests.postgres import OwnPostgres
from tests.system.end_to_end.conftest import Archives, Installations
from tests.system.end_to_end.installation import Stage, is_gone, tasks
from tests.waiting import eventually


@pytest.mark.full
def test_short_outage_loses_nothing_and_repeats_nothing(
    own_postgres: Callable[[], OwnPostgres],
    installations: Installations,
    archives: Archives,
    stage: Stage,
) -> None:
    postgres = own_postgres()
    arkqueue = installations(database=postgres.uri)
    arkqueue.start()
    papers = archives(arkqueue)
    papers.commit(
        tasks(
            {
                "held": {"paths": ["held.txt"], "command": stage.held, "checkout": "none"},
                "index": {"depends": ["PREV"], "command": stage.once, "checkout": "none"},
                "after": {"depends": ["index", {"task": "held", "optional": True}], "command": stage.once},
            }
        )
        | {"held.txt": "now\n"}
    )
    pid = stage.begun("held@2")
    postgres.kill()
    for number in range(3, 8):
        papers.commit({"paper.tex": f"{number}\n"})
    stage.go()
    eventually(lambda: is_gone(pid))
    eventually(lambda: arkqueue("runs", code=None).code == 3)  # a killed one's processes may answer for a moment
    postgres.start()
    # A notice may have been lost with the database; a sweep of
    # a person makes up for it, as that of each minute would.
    eventually(lambda: arkqueue("sync", papers.name, code=None).code == 0)
    for rev in range(2, 8):
        papers.wait_for_run(rev)
        for key in papers.states(rev):
            assert len(papers.attempts(key)) == 1, key
    assert papers.ledger() == list(range(1, 8))
    begun = stage.events("begin")
    assert len(begun) == len(set(begun)) == 1 + 6 + 6
    assert [e for e in begun if " index@" in e] == [f"begin index@{rev}" for rev in range(2, 8)]


@pytest.mark.full
@pytest.mark.timeout(900)
def test_everything_settles_after_ten_restarts_of_the_database_under_load(
    own_postgres: Callable[[], OwnPostgres], installations: Installations, archives: Archives, stage: Stage
) -> None:
    """kestra#8356: stuck after the database restarted. Two processes run tasks of two archives, and a log is followed all the while."""
    postgres = own_postgres()
    arkqueue = installations(database=postgres.uri, slots=2)
    arkqueue.start()
    arkqueue.start("worker", home="another")
    papers, code = archives(arkqueue), archives(arkqueue, "git")
    parts = [f"part-{number}" for number in range(4)]
    chain = {
        "index": {"depends": ["PREV"], "command": stage.once},
        **{part: {"depends": ["index"], "command": stage.once} for part in parts},
        "after": {"depends": parts, "command": stage.once},
    }
    prefixed = [{f"{prefix}-{name}": _renamed(task, prefix) for name, task in chain.items()} for prefix in ("p", "c")]
    held = {"held": {"paths": ["held.txt"], "command": stage.held, "checkout": "none"}}
    papers.commit(tasks(prefixed[0] | held) | {"held.txt": "now\n"})
    code.commit(tasks(prefixed[1]))
    stage.begun("held@2")
    with arkqueue.begun("logs", papers.task("held@2"), "-f") as follower:
        for restart in range(10):
            rev = papers.commit({"paper.tex": f"{restart}\n"})
            assert code.commit({"main.py": f"{restart}\n"}) == rev
            # A notice may have been lost; the next sweep would find the commit.
            for archive, prefix in ((papers, "p"), (code, "c")):
                eventually(lambda archive=archive: arkqueue("sync", archive.name, code=None).code == 0)
                eventually(lambda prefix=prefix, rev=rev: f"begin {prefix}-index@{rev}" in stage.events())
            _restart(postgres, is_killed=bool(restart % 2))
        stage.go()
        last = papers.number
        for archive in (papers, code):
            for rev in range(2, last + 1):
                archive.wait_for_run(rev)
            assert archive.ledger() == list(range(1, last + 1))
        said, _ = follower.communicate()
        assert follower.returncode == 0
        assert said == ""
    left = arkqueue.sql("select name, number, state from task where settled_at is null")
    assert left == []
    begun = stage.events("begin")
    assert len(begun) == len(set(begun)) == 1 + 2 * 6 * (last - 1)


def _renamed(task: dict[str, Any], prefix: str) -> dict[str, Any]:
    """A task whose names no other archive has: the stage knows tasks by their names."""
    depends = [name if name == "PREV" else f"{prefix}-{name}" for name in task["depends"]]
    return {**task, "depends": depends, "checkout": "none"}


def _restart(postgres: OwnPostgres, *, is_killed: bool) -> None:
    if not is_killed:
        postgres.stop()
    else:
        processes = postgres.processes()  # while one of them lives, no other server can start
        postgres.kill()
        eventually(lambda: all(is_gone(pid) for pid in processes))
    postgres.start()


def test_roles_that_start_before_their_database_wait_for_it_and_can_be_stopped(
    own_postgres: Callable[[], OwnPostgres], installations: Installations, archives: Archives, stage: Stage
) -> None:
    postgres = own_postgres()
    arkqueue = installations(database=postgres.uri)
    postgres.stop()
    roles = [arkqueue.start(role, home=home) for role, home in (("manager", "m"), ("worker", "w"), ("worker", "other"))]
    for role in roles:
        eventually(lambda role=role: "WARNING" in role.said)
        assert role.process.poll() is None
    assert roles.pop().stop() == 0, "one that waits can be stopped"
    postgres.start()
    arkqueue.start("web", home="web")
    papers = archives(arkqueue)
    papers.commit(tasks({"index": {"command": stage.once, "checkout": "none"}}))
    papers.wait_for_run(2)


def test_server_waits_for_a_pooler_too(installations: Installations, pg_uri: str, tmp_path: Path) -> None:
    """The database is there, and where the pooler should be is nobody yet."""
    place, pooler = tmp_path / "pooler", make_conninfo(pg_uri, host=str(tmp_path / "pooler"))
    arkqueue = installations(database=pooler, database_pooler=True, database_direct=pg_uri)
    started = threading.Thread(target=arkqueue.start)
    started.start()
    eventually(lambda: arkqueue.roles and "waiting for the database" in arkqueue.roles[0].said)
    assert arkqueue.roles[0].process.poll() is None
    place.symlink_to(conninfo_to_dict(pg_uri)["host"])
    eventually(lambda: f"arkqueue {__version__}" in arkqueue.roles[0].said)
    started.join()
