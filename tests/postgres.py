"""A real PostgreSQL for the tests: databases on one server of the run, and servers of a test's own that it may kill.

One server serves all workers of a test run: its home folder is made by the process that controls the run, the first worker that needs
it starts it (``Embedded`` shares it between processes), and the controlling process removes it in the end, whatever became of the workers.

A new database costs 0.4 s of CPU time: it is copied, its sessions read its catalogs and plan each statement anew, it is dropped. Most tests
only write a few rows. So a worker keeps its databases, and a pool of connections to each: ``Databases`` empties one after each test and gives
it to the next. A test that changed the schema, or wrote much, leaves a database that is dropped.

A server of a test's own starts from a prepared data folder that has arkqueue's tables already: initdb takes more time than most tests.

A plugin of ``conftest.py``.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from arkqueue.db import pipelines
from arkqueue.db.connections import Connection, Database
from arkqueue.db.embedded.server import Embedded
from arkqueue.db.migrations import migrate
from arkqueue.errors import DatabaseUnavailable
from tests.soundness import assert_sound
from tests.waiting import eventually

_HOME = pytest.StashKey[Path]()

LARGE = 1 << 20
"""Bytes of tables from which on a database is dropped instead of emptied."""

SETTINGS = "max_connections = 300\nwork_mem = 256kB\n"
"""Each worker keeps connections, and so does each server that a test starts. A recursive query clears a hash table as large as ``work_mem`` allows, however few rows
it comes to: with the usual 4 MB, that was a tenth of PostgreSQL's time."""

# A worker's connections see the statements of all tests: with the usual number, many would be parsed and planned again. Servers in processes of their own have that.
pipelines.MOST_PREPARED = 500

KEPT = "arkqueue test, kept"
"""The ``application_name`` of the pools that stay open from test to test."""

NOTE_CHANGES = """
create sequence tests.changes;
create function tests.note_change() returns event_trigger language plpgsql as
    $$begin perform nextval('tests.changes'); end$$;
create event trigger note_change on ddl_command_end execute function tests.note_change();
"""
"""Counts the changes of the schema in the database itself."""


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        # Only a name: a run without database tests leaves no folder, however it ends.
        config.stash[_HOME] = Path(tempfile.gettempdir()) / f"arkqueue-tests-{uuid.uuid4().hex[:12]}"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["arkqueue_home"] = str(node.config.stash[_HOME])


def pytest_unconfigure(config: pytest.Config) -> None:
    home = config.stash.get(_HOME, None)
    if home is not None and home.exists():
        _remove_home(home)


def _a_home(prefix: str) -> Path:
    # Not below tmp_path: the account that runs PostgreSQL for root may not pass through pytest's folders.
    return Path(tempfile.mkdtemp(prefix=prefix))


def _remove_home(home: Path) -> None:
    Embedded(home).destroy()
    shutil.rmtree(home)


# --- The server of the run, and its databases ---


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> Iterator[Embedded]:
    """The server that all workers of the run have in common."""
    config = request.config
    home = Path(config.workerinput["arkqueue_home"]) if hasattr(config, "workerinput") else config.stash[_HOME]
    home.mkdir(mode=0o711, exist_ok=True)
    with _one_at_a_time(home / "settings.lock"):
        if not (home / "postgres").exists():
            (home / "postgres").mkdir(mode=0o700)
            (home / "postgres" / "custom.conf").write_text(SETTINGS)
    server = Embedded.open(home, durable=False)
    yield server
    server.close()


@pytest.fixture(scope="session")
def folder_of_the_run(postgres: Embedded) -> Path:
    """A folder that all workers of a test run have in common; it goes with the server."""
    folder = postgres.home / "run"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def template(postgres: Embedded) -> str:
    """A database with arkqueue's tables that the others are copied from."""
    return made_once(postgres, "template_arkqueue", "template1", _prepare)


def made_once(server: Embedded, name: str, template: str, prepare: Callable[[psycopg.Connection[Any]], object]) -> str:
    """The name of a database that one of the workers makes, to be copied. Nobody connects to it any more once it is prepared."""
    with _one_at_a_time(server.home / f"{name}.lock"), _admin(server.uri) as admin:
        if not admin.execute("select from pg_database where datname = %s", [name]).fetchall():
            admin.execute(f"create database {name}_new template {template}".encode())
            with _admin(make_conninfo(server.uri, dbname=f"{name}_new")) as connection:
                prepare(connection)
            admin.execute(f"alter database {name}_new rename to {name}".encode())
    return name


def _prepare(connection: psycopg.Connection[Any]) -> None:
    migrate(connection)
    # As if a queue manager were heard all the while: a run of tests may be longer than any would be silent.
    connection.execute("update heartbeat set beat_at = now() + interval '1 day'")
    connection.execute(_how_to_empty(connection))
    connection.execute(NOTE_CHANGES)


def _how_to_empty(connection: psycopg.Connection[Any]) -> sql.Composed:
    """``tests.empty()`` makes a used database as this one is now. Its caller lets no foreign key act."""
    public = "relnamespace = 'public'::regnamespace"
    tables = [name for (name,) in connection.execute(f"select relname from pg_class where relkind = 'r' and {public}")]
    statements = [sql.SQL("delete from {}").format(sql.Identifier(table)) for table in tables]
    statements += [
        sql.SQL("perform setval({}::regclass, {}, false)").format(sql.Literal(name), sql.Literal(start))
        for name, start in connection.execute(
            f"select relname, seqstart from pg_class join pg_sequence on seqrelid = oid where {public}"
        )
    ]
    for table in tables:
        for (row,) in connection.execute(sql.SQL("select to_jsonb(t) from {} t").format(sql.Identifier(table))):
            statements.append(
                sql.SQL(
                    "insert into {0} overriding system value select * from jsonb_populate_record(null::{0}, {1})"
                ).format(sql.Identifier(table), sql.Literal(psycopg.types.json.Jsonb(row)))
            )
    statements.append(sql.SQL("perform pg_stat_reset()"))
    return sql.SQL("create schema tests; create function tests.empty() returns void language plpgsql as {}").format(
        sql.Literal(sql.SQL("begin {}; end").format(sql.SQL("; ").join(statements)).as_string(connection))
    )


_numbers = itertools.count(1)


@contextmanager
def a_database(server: Embedded, template: str, strategy: str = "wal_log") -> Iterator[str]:
    """The connection string of a new database, which is dropped afterwards. ``strategy``: ``file_copy`` is for a large template."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    with _admin(server.uri) as admin:
        admin.execute(f"create database {name} template {template} strategy {strategy}".encode())
    try:
        yield make_conninfo(server.uri, dbname=name)
    finally:
        with _admin(server.uri) as admin:
            admin.execute(f"drop database {name} with (force)".encode())


class Kept:
    """A database of a worker, with a pool of connections and a connection of the tests' own that stay open from test to test."""

    def __init__(self, server: Embedded, template: str) -> None:
        self._life = ExitStack()
        self.uri = self._life.enter_context(a_database(server, template))
        self._pool: Database | None = None
        self._own: Connection | None = None

    @property
    def pool(self) -> Database:
        if self._pool is None:
            self._pool = Database.open(self.uri, application_name=KEPT)
        return self._pool

    @property
    def own(self) -> Connection:
        """What is done after each test is planned once: a new session, and planning it anew, take longer than all of it."""
        if self._own is not None:
            with suppress(psycopg.OperationalError):
                self._own.execute("select")
                return self._own
            self._own.close()
        self._own = psycopg.connect(
            self.uri,
            autocommit=True,
            row_factory=psycopg.rows.dict_row,
            connect_timeout=10,
            prepare_threshold=0,
            # A change of the role of foreign keys would discard all plans: here they never have one.
            options="-c plan_cache_mode=force_generic_plan -c session_replication_role=replica",
        )
        # The statements of the queue are prepared in one way, and those of the tests in psycopg's.
        pipelines.keep_prepared(self._own)
        self._own.prepare_threshold = 0
        return self._own

    def end_sessions(self) -> None:
        """End what a test has left connected, beside the idle connections of the pool."""
        ended = self.own.execute(
            "with left_open as materialized (select pid, application_name from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid() and not (application_name = %s and state = 'idle'))"
            " select application_name from left_open where pg_terminate_backend(pid, 60000)",
            [KEPT],
        ).fetchall()
        if any(row["application_name"] == KEPT for row in ended):
            self._close_pool()

    def check_pool(self) -> None:
        """Let the pool notice that a test cut its connections: each is looked at before its next use."""
        if self._pool is not None:
            with suppress(DatabaseUnavailable), self._pool.statement() as connection:
                connection.execute("select")

    def empty(self) -> None:
        """Make the database as a new one is. Rows are deleted: sessions would plan every statement anew on tables that are truncated."""
        self.own.execute("select tests.empty()")

    def close(self) -> None:
        self._close_pool()
        if self._own is not None:
            self._own.close()
        self._life.close()

    def _close_pool(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None


class Databases:
    """The databases of one worker: each test has one alone, and leaves it as if it were new."""

    def __init__(self, server: Embedded, template: str) -> None:
        self._server, self._template = server, template
        self._free: list[Kept] = []

    @contextmanager
    def one(self, *, is_garbled: bool = False) -> Iterator[Kept]:
        """A database as new; ends every session on it afterwards but those of its pool, and looks whether what is left holds, unless it is garbled on purpose."""
        kept = self._free.pop() if self._free else Kept(self._server, self._template)
        try:
            kept.check_pool()
            yield kept
            emptied = self._emptied(kept, is_garbled)
        except BaseException:
            kept.close()
            raise
        if emptied:
            self._free.append(kept)
        else:
            kept.close()

    def close(self) -> None:
        for kept in self._free:
            kept.close()

    def _emptied(self, kept: Kept, is_garbled: bool) -> bool:
        """Look whether what a test left holds. Empty a database, unless its schema was changed or it is large. Returns whether it is as new now."""
        kept.end_sessions()
        (left,) = kept.own.execute(
            "select (select is_called from tests.changes) as changed, sum(pg_relation_size(oid)) > %s as large from pg_class"
            " where relkind = 'r' and relnamespace = 'public'::regnamespace",
            [LARGE],
        ).fetchall()
        if left["changed"] or left["large"]:
            if not left["changed"] and not is_garbled:
                # What is planned for few rows reads many for ever.
                kept.own.execute("set plan_cache_mode = force_custom_plan")
                assert_sound(kept.own)
            return False
        if not is_garbled:
            assert_sound(kept.own)
        kept.empty()
        return True


@contextmanager
def _a_copy(server: Embedded, template: str) -> Iterator[psycopg.Connection[Any]]:
    # Not the template itself: nobody can copy it while somebody is connected.
    with a_database(server, template) as uri, _admin(uri) as connection:
        yield connection


@pytest.fixture(scope="session")
def databases(postgres: Embedded, template: str) -> Iterator[Databases]:
    databases = Databases(postgres, template)
    yield databases
    databases.close()


@pytest.fixture
def empty_uri(postgres: Embedded) -> Iterator[str]:
    """The connection string of a database without tables."""
    with a_database(postgres, "template1") as uri:
        yield uri


@pytest.fixture
def empty_database(postgres: Embedded) -> Iterator[Callable[[], str]]:
    """Makes further databases without tables; hands out their connection strings."""
    with ExitStack() as made:
        yield lambda: made.enter_context(a_database(postgres, "template1"))


@pytest.fixture
def kept(databases: Databases, request: pytest.FixtureRequest) -> Iterator[Kept]:
    """A database with arkqueue's tables, as new."""
    with databases.one(is_garbled=request.node.get_closest_marker("garbles") is not None) as kept:
        yield kept


@pytest.fixture
def pg_uri(kept: Kept) -> str:
    """The connection string of a database with arkqueue's tables, as new."""
    return kept.uri


@pytest.fixture
def database(kept: Kept) -> Database:
    """A database with arkqueue's tables, as new. Its connections have been used before: nothing is set in them."""
    return kept.pool


@pytest.fixture
def second_connection(pg_uri: str) -> Iterator[Callable[[], Connection]]:
    """Makes further connections to the test's database, in autocommit and without timeouts, for races step by step."""
    made: list[Connection] = []

    def connect() -> Connection:
        made.append(psycopg.connect(pg_uri, autocommit=True, row_factory=psycopg.rows.dict_row, connect_timeout=10))
        return made[-1]

    yield connect
    for connection in made:
        connection.close()


@contextmanager
def _admin(uri: str) -> Iterator[psycopg.Connection[Any]]:
    connection = psycopg.connect(uri, autocommit=True, connect_timeout=10)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def _one_at_a_time(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# --- Servers of a test's own ---


@pytest.fixture
def home() -> Iterator[Path]:
    """An empty home folder for an arkqueue of the test's own, its embedded server included; removed afterwards."""
    home = _a_home("arkqueue-home-")
    yield home
    _remove_home(home)


class OwnPostgres(Embedded):
    """A server of the test's own, to be stopped, frozen, killed and started again."""

    def kill(self) -> None:
        """SIGKILL the postmaster; its other processes end by themselves."""
        os.kill(self.postmaster(), signal.SIGKILL)

    def freeze(self) -> None:
        """Stop every process of the server, as a machine that hangs would."""
        # The postmaster first: so it begins no further process, and what ends meanwhile is still known.
        os.kill(self.postmaster(), signal.SIGSTOP)
        eventually(lambda: Path(f"/proc/{self.postmaster()}/stat").read_text().rpartition(")")[2].split()[0] in "Tt")
        for pid in self.processes():
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def postmaster(self) -> int:
        pid = self.pid
        assert pid is not None, "the server does not run"
        return pid

    def processes(self) -> list[int]:
        postmaster = self.postmaster()
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        return [postmaster, *map(int, children)]


@pytest.fixture(scope="session")
def prepared_home(folder_of_the_run: Path) -> Path:
    """A home folder whose server is stopped and has arkqueue's tables, to be copied."""
    home = folder_of_the_run / "prepared"
    with _one_at_a_time(folder_of_the_run / "prepared.lock"):
        if not home.exists():
            new = folder_of_the_run / "prepared.new"
            new.mkdir(mode=0o711)
            server = Embedded.open(new, durable=False)
            with _admin(server.uri) as connection:
                migrate(connection)
            server.close()
            new.rename(home)
    return home


def copy_of(prepared: Path, home: Path) -> None:
    """Give a home folder the server that another one has, which must not run."""
    subprocess.run(["cp", "--archive", "--reflink=auto", str(prepared / "postgres"), str(home)], check=True)


@pytest.fixture
def used_home(home: Path, prepared_home: Path) -> Path:
    """A home folder of the test's own whose server exists and is stopped: nothing has to be made before it starts."""
    copy_of(prepared_home, home)
    return home


@pytest.fixture
def own_postgres(prepared_home: Path) -> Iterator[Callable[[], OwnPostgres]]:
    """Starts servers of the test's own with arkqueue's tables; each is removed afterwards, in whatever state it is."""
    made: list[OwnPostgres] = []

    def start() -> OwnPostgres:
        home = _a_home("arkqueue-own-")
        copy_of(prepared_home, home)
        server = OwnPostgres(home, durable=False)
        made.append(server)
        server.start()
        return server

    yield start
    for server in made:
        if server.pid:
            server.thaw()
            with psycopg.connect(server.uri, autocommit=True, row_factory=psycopg.rows.dict_row) as connection:
                assert_sound(connection)
        server.destroy()
        shutil.rmtree(server.home)


@pytest.fixture
def server(own_postgres: Callable[[], OwnPostgres]) -> OwnPostgres:
    """A server of the test's own; where a module's ``database`` is of it, so is all that stands on that."""
    return own_postgres()
