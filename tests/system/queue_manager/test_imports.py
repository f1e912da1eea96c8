"""A scan that finds more than `import_limit` new revisions has them held, whatever happens in between (design 5.22)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.model import RunId
from arkqueue.queue import holds, ledger
from arkqueue.queue_manager import QueueManager
from arkqueue.queue_manager import reader as reader_module
from arkqueue.views.explain import explain_name
from arkqueue.views.runs import RunState, runs
from tests.db.test_races import wait_until_blocked
from tests.loaded import Forked, fork
from tests.repositories import GitRepository, SubversionRepository, a_git_repository, a_subversion_repository
from tests.system.queue_manager.conftest import WORKFLOW, Watched
from tests.waiting import eventually

Watch = Callable[..., Watched]
LIMIT = 4


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    return Configuration.load({}, home=tmp_path / "home", poll="200ms", import_limit=LIMIT)


@pytest.fixture(params=["subversion", "git"])
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> SubversionRepository | GitRepository:
    made = a_subversion_repository(tmp_path) if request.param == "subversion" else a_git_repository(tmp_path)
    made.commit({"_workflows/w.yaml": WORKFLOW})
    return made


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two revisions a transaction, so that an import has several."""
    monkeypatch.setattr(reader_module, "CHUNK", 2)


@contextmanager
def managing(session: Session, configuration: Configuration) -> Iterator[None]:
    manager = QueueManager(session, configuration)
    manager.start()
    try:
        yield
    finally:
        manager.close()


def states(papers: Watched) -> list[str]:
    rows = papers.sql(
        "select state from task where kind = 'ordinary' and archive_id = %s order by entry_id, id", papers.id
    )
    return [row["state"] for row in rows]


def commit(repository: Any, number: int) -> None:
    for n in range(number):
        repository.commit({"readme": f"{n} of {number}"})


def test_an_import_is_held_and_says_why(
    watch: Watch, repository: Any, session: Session, configuration: Configuration
) -> None:
    papers = watch(repository.path)
    commit(repository, LIMIT + 1)
    with managing(session, configuration):
        papers.wait_for(lambda: len(states(papers)) == LIMIT + 1)
        assert states(papers) == ["held"] * (LIMIT + 1)
        (first, *_) = reversed(runs(session, archives=[papers.id]).runs[: LIMIT + 1])
        assert first.state is RunState.HELD
        told = explain_name(session, f"{first.full_name}/index")
        assert "held by arkqueue since" in told.text
        assert f"one scan has found more than {LIMIT} new revisions" in told.text
        assert told.commands[0] == "arkqueue release papers --all"
        commit(repository, 1)
        papers.notify()
        papers.wait_for(lambda: len(states(papers)) == LIMIT + 2)
    assert states(papers) == ["held"] * (LIMIT + 1) + ["waiting"], "what comes after it is no import"
    assert holds.release_run(session, RunId(first.id), "ann").tasks
    assert states(papers)[0] == "ready"


def test_as_many_as_the_limit_are_no_import(
    watch: Watch, repository: Any, session: Session, configuration: Configuration
) -> None:
    papers = watch(repository.path)
    commit(repository, LIMIT)
    with managing(session, configuration):
        papers.wait_for(lambda: len(states(papers)) == LIMIT)
    assert states(papers) == ["ready"] + ["waiting"] * (LIMIT - 1)


def test_no_revision_of_an_import_gets_through_where_it_is_cut_off(
    watch: Watch, repository: Any, session: Session, configuration: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of it alone is less than the limit; what was committed meanwhile is no part of it."""
    papers = watch(repository.path)
    commit(repository, LIMIT + 1)
    appended: list[int] = []

    def append(*words: Any, **more: Any) -> int | None:
        if appended:
            raise RuntimeError("killed")
        appended.append(1)
        return ledger_append(*words, **more)

    ledger_append = ledger.append
    monkeypatch.setattr(ledger, "append", append)
    with managing(session, configuration):
        papers.wait_for(lambda: papers.row()["trouble"])
    assert states(papers) == ["held", "held"]
    commit(repository, 1)
    monkeypatch.setattr(ledger, "append", ledger_append)
    papers.sql("update archive set next_read_at = now() returning id")
    with managing(session, configuration):
        papers.wait_for(lambda: len(states(papers)) == LIMIT + 2)
    assert states(papers) == ["held"] * (LIMIT + 1) + ["waiting"]
    assert papers.sql("select import_id, import_until from branch") == [{"import_id": None, "import_until": None}]


def test_a_history_that_was_asked_for_is_no_import_and_the_next_one_is(
    watch: Watch, repository: Any, session: Session, configuration: Configuration
) -> None:
    start = repository.commit({"_workflows/w.yaml": WORKFLOW + "# from here on\n"})
    commit(repository, LIMIT + 1)
    papers = watch(repository.path, start=start)
    with managing(session, configuration):
        papers.wait_for(lambda: len(states(papers)) >= LIMIT + 1)
        assert set(states(papers)) == {"ready", "waiting"}
        before = len(states(papers))
        commit(repository, LIMIT + 1)
        papers.notify()
        papers.wait_for(lambda: len(states(papers)) == before + LIMIT + 1)
    assert states(papers)[before:] == ["held"] * (LIMIT + 1)


def test_without_a_limit_everything_runs(
    watch: Watch, repository: Any, session: Session, configuration: Configuration
) -> None:
    papers = watch(repository.path)
    commit(repository, LIMIT + 1)
    with managing(session, configuration.model_copy(update={"import_limit": None})):
        papers.wait_for(lambda: len(states(papers)) == LIMIT + 1)
    assert set(states(papers)) == {"ready", "waiting"}


GATE = "locktype = 'advisory' and objid = 33 and database = (select oid from pg_database where datname = current_database())"
OTHERS = f"select from pg_locks where {GATE} and pid not in (select pid from pg_locks where {GATE} and mode = 'ExclusiveLock')"
"""Backends of killed processes that still wait at the gate, or hold it."""
END = f"select pg_terminate_backend(pid) from pg_locks where {GATE} and not granted"
"""Ends what a killed process has left waiting at the gate, which notices only then, or when its statement times out, that nobody is there any more."""
WAITING = f"select from pg_locks where {GATE} and not granted"
"""Who waits at the gate."""


@contextmanager
def queue_manager(session: Session, home: Path) -> Iterator[Forked]:
    """A queue manager in a process of its own, which appends two revisions with each transaction."""
    with session.database.connect() as connection:
        uri = make_conninfo(connection.info.dsn, password=connection.info.password)
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "arkqueue.toml").write_text(f'poll = "200ms"\nimport_limit = {LIMIT}\n')
    log = home.with_name("said")
    log.touch()
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ARKQUEUE_")}
    program = (
        "import arkqueue.queue_manager.reader as reader; reader.CHUNK = 2; import arkqueue.cli; arkqueue.cli.main()"
    )
    words = ["arkqueue", "--home", str(home), "manager", "--database", uri]
    process = fork(program, words, out=log, err=log, environment=kept)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("event", ["update of import_until, head_id on branch", "insert on task"])
def test_an_import_goes_on_as_held_after_its_queue_manager_was_killed_in_each_step(
    watch: Watch, repository: Any, session: Session, tmp_path: Path, event: str
) -> None:
    """Killed for real: nothing is lost, twice there, or let through. Each process is let through one step, and is killed in the midst of the next one."""
    papers, size = watch(repository.path), LIMIT + 2
    commit(repository, size)
    function = "language plpgsql as 'begin perform pg_advisory_xact_lock_shared(33); return new; end'"
    seen: list[int] = []
    connect = session.database.connect
    with connect() as gate, connect() as next_gate, connect() as watcher, ThreadPoolExecutor(1) as thread:
        gate.autocommit = next_gate.autocommit = watcher.autocommit = True
        gate.execute(f"create function gate() returns trigger {function}".encode())
        gate.execute(f"create trigger gate after {event} for each row execute function gate()".encode())
        gate.execute("select pg_advisory_lock(33)")
        while not seen or seen[-1] < size:
            with queue_manager(session, tmp_path / "manager") as process:
                wait_until_blocked(watcher)
                # Who asks for the lock before it is free has it when this step is committed, and before the next one.
                closed = thread.submit(next_gate.execute, "select pg_advisory_lock(33)")
                eventually(lambda: len(watcher.execute(WAITING.encode()).fetchall()) == 2)
                gate.execute("select pg_advisory_unlock(33)")
                closed.result()
                gate, next_gate = next_gate, gate
                seen.append(len(states(papers)))
                assert set(states(papers)) <= {"held"}
                if seen[-1] < size:
                    wait_until_blocked(watcher)
                process.kill()
                process.wait()
            watcher.execute(END.encode())
            eventually(lambda: not watcher.execute(OTHERS.encode()).fetchall())
    assert len(seen) >= 3, "it was killed in several steps"
    commit(repository, 1)
    papers.notify()
    with queue_manager(session, tmp_path / "manager"):
        papers.wait_for(lambda: len(states(papers)) == size + 1)
    assert states(papers) == ["held"] * size + ["waiting"], "what comes after an import is none"
    assert len(papers.sql("select id from deed where verb = 'import'")) == 1
    numbers = [row["number"] for row in papers.sql("select number from revision order by id")]
    assert numbers == list(range(numbers[0], numbers[0] + size + 2))
