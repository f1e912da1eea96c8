"""A real PostgreSQL for the tests: databases on the run's server, and further servers that a test
may kill.

One server serves all workers of a test run. The process that controls the run chooses its home
folder, and removes the server at the end, whatever happened to the workers. The first worker that
needs the server starts it; ``Embedded`` shares it between processes.

A new database costs 0.4 s of CPU time for its copy, the catalogs and plans of its sessions, and its
removal. Most tests write only a few rows. So each worker keeps its databases, each with a
connection pool. ``Databases`` empties a database after a test and gives it to the next one. A
database whose schema has changed, or which has grown large, is dropped instead.

A test's own server starts from a copy of a data folder that already has arkqueue's tables. A call
of initdb takes longer than most tests.

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
from tests.soundness import assert_sound, assert_sound_at, destroy_sound
from tests.waiting import eventually

_HOME = pytest.StashKey[Path]()

LARGE = 1 << 20
"""The table size in bytes above which a database is dropped instead of emptied."""

SETTINGS = "max_connections = 300\nwork_mem = 256kB\nautovacuum_analyze_threshold = 2000000000\n"
"""Each worker keeps connections, and so does each server that a test starts. A recursive query
clears a hash table as large as ``work_mem`` allows, even for a few rows. With the default of 4 MB,
that took a tenth of PostgreSQL's time. PostgreSQL analyzes no table by itself: an emptied table
would count as empty for good, and a test that then makes ten thousand tasks would wait for minutes.
"""

# A worker's connections run the statements of all tests. With the default limit, PostgreSQL would
# parse and plan many of them again. Servers in their own processes keep the default.
pipelines.MOST_PREPARED = 500

KEPT = "arkqueue test, kept"
"""The ``application_name`` of the pools that stay open across tests."""

NOTE_CHANGES = """
create sequence tests.changes;
create function tests.note_change() returns event_trigger language plpgsql as
    $$begin perform nextval('tests.changes'); end$$;
create event trigger note_change on ddl_command_end execute function tests.note_change();
"""
"""An event trigger that counts schema changes in the database itself."""


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        # The folder is made only by a run with database tests.
        config.stash[_HOME] = Path(tempfile.gettempdir()) / f"arkqueue-tests-{uuid.uuid4().hex[:12]}"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["arkqueue_home"] = str(node.config.stash[_HOME])


def pytest_unconfigure(config: pytest.Config) -> None:
    home = config.stash.get(_HOME, None)
    if home is not None and home.exists():
        _remove_home(home)


def _a_home(prefix: str) -> Path:
    # The folder is not below tmp_path: the account that runs PostgreSQL for root may not enter
    # pytest's folders.
    return Path(tempfile.mkdtemp(prefix=prefix))


def _remove_home(home: Path) -> None:
    Embedded(home).destroy()
    shutil.rmtree(home)


# --- The server of the run, and its databases ---


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> Iterator[Embedded]:
    """The server that all workers of the run share."""
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
    """A folder that all workers of a run share. It is removed with the server."""
    folder = postgres.home / "run"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def template(postgres: Embedded) -> str:
    """The database with arkqueue's tables from which others are copied."""
    return made_once(postgres, "template_arkqueue", "template1", _prepare)


def made_once(server: Embedded, name: str, template: str, prepare: Callable[[psycopg.Connection[Any]], object]) -> str:
    """The name of a template database that the first worker makes and prepares. Nobody connects to
    it afterwards, because a template in use cannot be copied.
    """
    with _one_at_a_time(server.home / f"{name}.lock"), _admin(server.uri) as admin:
        if not admin.execute("select from pg_database where datname = %s", [name]).fetchall():
            admin.execute(f"create database {name}_new template {template}".encode())
            with _admin(make_conninfo(server.uri, dbname=f"{name}_new")) as connection:
                prepare(connection)
            admin.execute(f"alter database {name}_new rename to {name}".encode())
    return name


def _prepare(connection: psycopg.Connection[Any]) -> None:
    migrate(connection)
    # The queue manager seems alive for a day, because a test run may last longer than the limit for
    # a silent one.
    connection.execute("update heartbeat set beat_at = now() + interval '1 day'")
    connection.execute(_how_to_empty(connection))
    connection.execute(NOTE_CHANGES)


def _how_to_empty(connection: psycopg.Connection[Any]) -> sql.Composed:
    """The SQL of ``tests.empty()``, which restores a used database to its present content. The
    caller must disable foreign keys.
    """
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
def a_database(server: Embedded, template: str, strategy: str = "wal_log", *, is_checked: bool = True) -> Iterator[str]:
    """The connection string of a new database. Afterwards, the database's invariants are checked if
    ``is_checked``, and the database is dropped. ``strategy``: use ``file_copy`` for a large
    template.
    """
    name = f"test_{os.getpid()}_{next(_numbers)}"
    with _admin(server.uri) as admin:
        admin.execute(f"create database {name} template {template} strategy {strategy}".encode())
    try:
        uri = make_conninfo(server.uri, dbname=name)
        yield uri
        if is_checked:
            assert_sound_at(uri)
    finally:
        with _admin(server.uri) as admin:
            admin.execute(f"drop database {name} with (force)".encode())


class Kept:
    """A worker's database. Its pool of connections, and one connection for the tests' own
    statements, stay open across tests.
    """

    def __init__(self, server: Embedded, template: str) -> None:
        self._life = ExitStack()
        # The database is checked after each test, so not again at its end.
        self.uri = self._life.enter_context(a_database(server, template, is_checked=False))
        self._pool: Database | None = None
        self._generic: Database | None = None
        self._own: Connection | None = None

    @property
    def pool(self) -> Database:
        if self._pool is None:
            self._pool = Database.open(self.uri, application_name=KEPT)
        return self._pool

    @property
    def generic(self) -> Database:
        """A pool whose sessions plan each statement once, whatever its values are. It is for tests
        that run the same statements on a few rows thousands of times. A session of the other pool
        plans a statement with an array five times and more.
        """
        if self._generic is None:
            once = make_conninfo(self.uri, options="-c plan_cache_mode=force_generic_plan")
            self._generic = Database.open(once, application_name=KEPT)
        return self._generic

    @property
    def own(self) -> Connection:
        """The connection for the statements after each test, which are planned only once. A new
        session, and planning these statements again, would take longer than their execution.
        """
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
            # A change of session_replication_role discards all plans, so this session disables
            # foreign keys for good.
            options="-c plan_cache_mode=force_generic_plan -c session_replication_role=replica",
        )
        # The queue's statements are prepared by arkqueue's pipelines, and the tests' by psycopg.
        pipelines.keep_prepared(self._own)
        self._own.prepare_threshold = 0
        return self._own

    def end_sessions(self) -> None:
        """Ends the sessions that a test has left open, except the idle connections of the pool."""
        ended = self.own.execute(
            "with left_open as materialized (select pid, application_name from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid() and not (application_name = %s and state = 'idle'))"
            " select application_name from left_open where pg_terminate_backend(pid, 60000)",
            [KEPT],
        ).fetchall()
        if any(row["application_name"] == KEPT for row in ended):
            self._close_pool()

    def check_pool(self) -> None:
        """Gives the pool an occasion to notice that a test has cut its connections. The pool then
        checks each connection before its next use.
        """
        if self._pool is not None:
            with suppress(DatabaseUnavailable), self._pool.statement() as connection:
                connection.execute("select")

    def empty(self) -> None:
        """Restores the content of a new database. Deletes rows, because truncated tables would make
        every session plan its statements again.
        """
        self.own.execute("select tests.empty()")

    def close(self) -> None:
        self._close_pool()
        if self._own is not None:
            self._own.close()
        self._life.close()

    def _close_pool(self) -> None:
        for pool in (self._pool, self._generic):
            if pool is not None:
                pool.close()
        self._pool = self._generic = None


class Databases:
    """The databases of one worker. Each test has a database to itself and leaves it as if new."""

    def __init__(self, server: Embedded, template: str) -> None:
        self._server, self._template = server, template
        self._free: list[Kept] = []

    @contextmanager
    def one(self, *, is_garbled: bool = False) -> Iterator[Kept]:
        """A database as if new. Afterwards, ends every session except those of the pool, and checks
        the database's invariants unless the test garbles it on purpose.
        """
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
        """Checks the invariants of a database after a test. Empties the database, unless its schema
        has changed or it is large. Returns whether the database is as if new.
        """
        kept.end_sessions()
        (left,) = kept.own.execute(
            "select (select is_called from tests.changes) as changed, sum(pg_relation_size(oid)) > %s as large from pg_class"
            " where relkind = 'r' and relnamespace = 'public'::regnamespace",
            [LARGE],
        ).fetchall()
        is_as_new = not (left["changed"] or left["large"])
        if not is_garbled:
            if not is_as_new:
                # A plan for few rows would read a large table far too often.
                kept.own.execute("set plan_cache_mode = force_custom_plan")
            assert_sound(kept.own)
        if is_as_new:
            kept.empty()
        return is_as_new


@contextmanager
def _a_copy(server: Embedded, template: str) -> Iterator[psycopg.Connection[Any]]:
    # A template with an open connection cannot be copied, so the statements run on a copy.
    with a_database(server, template) as uri, _admin(uri) as connection:
        yield connection


@pytest.fixture(scope="session")
def databases(postgres: Embedded, template: str) -> Iterator[Databases]:
    databases = Databases(postgres, template)
    yield databases
    databases.close()


@pytest.fixture
def empty_uri(postgres: Embedded, request: pytest.FixtureRequest) -> Iterator[str]:
    """The connection string of a database without tables."""
    with a_database(postgres, "template1", is_checked=not _garbles(request)) as uri:
        yield uri


@pytest.fixture
def empty_database(postgres: Embedded, request: pytest.FixtureRequest) -> Iterator[Callable[[], str]]:
    """Makes further databases without tables. Returns their connection strings."""
    is_checked = not _garbles(request)
    with ExitStack() as made:
        yield lambda: made.enter_context(a_database(postgres, "template1", is_checked=is_checked))


@pytest.fixture
def kept(databases: Databases, request: pytest.FixtureRequest) -> Iterator[Kept]:
    """A database with arkqueue's tables, as if new."""
    with databases.one(is_garbled=_garbles(request)) as kept:
        yield kept


def _garbles(request: pytest.FixtureRequest) -> bool:
    """True if a test breaks invariants on purpose."""
    return request.node.get_closest_marker("garbles") is not None


@pytest.fixture
def pg_uri(kept: Kept) -> str:
    """The connection string of a database with arkqueue's tables, as if new."""
    return kept.uri


@pytest.fixture
def database(kept: Kept) -> Database:
    """A database with arkqueue's tables, as if new. Its connections are reused; they carry no
    settings of an earlier test.
    """
    return kept.pool


@pytest.fixture
def second_connection(pg_uri: str) -> Iterator[Callable[[], Connection]]:
    """Opens further connections to the test's database, in autocommit mode and without timeouts,
    for races step by step.
    """
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
def home(request: pytest.FixtureRequest) -> Iterator[Path]:
    """An empty home folder for a test's own arkqueue. Afterwards the folder is removed with its
    embedded server, whose database is checked before.
    """
    home = _a_home("arkqueue-home-")
    yield home
    if not _garbles(request):
        destroy_sound(Embedded(home, durable=False))
    _remove_home(home)


class OwnPostgres(Embedded):
    """A test's own server, which the test may stop, freeze, kill and start again."""

    def kill(self) -> None:
        """Kills the postmaster with SIGKILL. Its other processes end by themselves."""
        os.kill(self.postmaster(), signal.SIGKILL)

    def freeze(self) -> None:
        """Stops every process of the server, like a machine that hangs."""
        # The postmaster stops first. Then it starts no further process, and its ended children stay
        # zombies with their ids.
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
    """A home folder with a stopped server that has arkqueue's tables. Tests copy it."""
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
    """Copies the server of one home folder into another. The server must not run."""
    subprocess.run(["cp", "--archive", "--reflink=auto", str(prepared / "postgres"), str(home)], check=True)


@pytest.fixture
def used_home(home: Path, prepared_home: Path) -> Path:
    """A home folder of the test's own with a stopped server, so that starting the server creates
    nothing.
    """
    copy_of(prepared_home, home)
    return home


@pytest.fixture
def own_postgres(prepared_home: Path, request: pytest.FixtureRequest) -> Iterator[Callable[[], OwnPostgres]]:
    """Starts a test's own servers with arkqueue's tables. Each server is removed afterwards,
    whatever its state. Its database is checked before.
    """
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
        if not _garbles(request):
            destroy_sound(server)
        server.destroy()
        shutil.rmtree(server.home)


@pytest.fixture
def server(own_postgres: Callable[[], OwnPostgres]) -> OwnPostgres:
    """The test's own server. A module that takes its ``database`` from here gets every fixture that
    needs a database from this server.
    """
    return own_postgres()
