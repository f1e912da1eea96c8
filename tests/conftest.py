"""What every test can have: a real PostgreSQL, databases of its own on it, and servers that it may kill.

One server serves all workers of a test run: its home folder is made by the process that controls the run, the first worker that needs
it starts it (``Embedded`` shares it between processes), and the controlling process removes it in the end, whatever became of the workers.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import settings
from psycopg.conninfo import make_conninfo

from arkqueue.db.connections import Connection, Database
from arkqueue.db.embedded.server import Embedded
from arkqueue.db.migrations import migrate
from tests.waiting import eventually

pytest_plugins = ["tests.requirements", "tests.engine"]

settings.register_profile("ci", deadline=None, derandomize=False, print_blob=True)
settings.register_profile("long", deadline=None, derandomize=False, print_blob=True, max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

_HOME = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        # Only a name: a run without database tests leaves no folder, however it ends.
        config.stash[_HOME] = Path("/tmp") / f"arkqueue-tests-{uuid.uuid4().hex[:12]}"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["arkqueue_home"] = str(node.config.stash[_HOME])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest test begins first: else the other workers are done long before the one that has it."""
    if items:
        items.insert(0, items.pop(items.index(max(items, key=_may_take))))


def _may_take(item: pytest.Item) -> float:
    """The seconds that a test asks for; 0 for what is content with the usual ones."""
    asked = item.get_closest_marker("timeout")
    return float(asked.args[0]) if asked and asked.args else 0.0


def pytest_unconfigure(config: pytest.Config) -> None:
    home = config.stash.get(_HOME, None)
    if home is not None and home.exists():
        _remove_home(home)


def _a_home(prefix: str) -> Path:
    # Not below tmp_path: the account that runs PostgreSQL for root may not pass through pytest's folders.
    return Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp"))


def _remove_home(home: Path) -> None:
    Embedded(home).destroy()
    shutil.rmtree(home)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may look into; pytest's own are for their owner alone."""
    with tempfile.TemporaryDirectory(prefix="arkqueue-test-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder).resolve()


@pytest.fixture
def home() -> Iterator[Path]:
    """An empty home folder for an arkqueue of the test's own, its embedded server included; removed afterwards."""
    home = _a_home("arkqueue-home-")
    yield home
    _remove_home(home)


@pytest.fixture(scope="session")
def _postgres(request: pytest.FixtureRequest) -> Iterator[Embedded]:
    config = request.config
    home = Path(config.workerinput["arkqueue_home"]) if hasattr(config, "workerinput") else config.stash[_HOME]
    server = Embedded.open(home, durable=False)
    yield server
    server.close()


@pytest.fixture(scope="session")
def folder_of_the_run(_postgres: Embedded) -> Path:
    """A folder that all workers of a test run have in common; it goes with the server."""
    folder = _postgres.home / "run"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def _template(_postgres: Embedded) -> str:
    """A database with arkqueue's tables that the others are copied from."""
    name = "template_arkqueue"
    with _one_at_a_time(_postgres.home / "template.lock"), _admin(_postgres.uri) as admin:
        if not admin.execute("select from pg_database where datname = %s", [name]).fetchall():
            admin.execute(f"create database {name}_new".encode())
            with _admin(make_conninfo(_postgres.uri, dbname=f"{name}_new")) as connection:
                migrate(connection)
                # As if a queue manager were heard all the while: a run of tests may be longer than any would be silent.
                connection.execute("update heartbeat set beat_at = now() + interval '1 day'")
            admin.execute(f"alter database {name}_new rename to {name}".encode())
    return name


_numbers = itertools.count(1)


@pytest.fixture
def empty_uri(_postgres: Embedded) -> Iterator[str]:
    """The connection string of a database without tables."""
    with _a_database(_postgres, "template1") as uri:
        yield uri


@pytest.fixture
def empty_database(_postgres: Embedded) -> Iterator[Callable[[], str]]:
    """Makes further databases without tables; hands out their connection strings."""
    with ExitStack() as made:
        yield lambda: made.enter_context(_a_database(_postgres, "template1"))


@pytest.fixture
def pg_uri(_postgres: Embedded, _template: str) -> Iterator[str]:
    """The connection string of a fresh database with arkqueue's tables."""
    with _a_database(_postgres, _template) as uri:
        yield uri


@pytest.fixture
def database(pg_uri: str) -> Iterator[Database]:
    """A fresh database with arkqueue's tables."""
    with Database.open(pg_uri, application_name="arkqueue test") as database:
        yield database


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


class OwnPostgres(Embedded):
    """A server of the test's own, to be stopped, frozen, killed and started again."""

    def kill(self) -> None:
        """SIGKILL the postmaster; its other processes end by themselves."""
        os.kill(self._alive(), signal.SIGKILL)

    def freeze(self) -> None:
        """Stop every process of the server, as a machine that hangs would."""
        # The postmaster first: so it begins no further process, and what ends meanwhile is still known.
        os.kill(self._alive(), signal.SIGSTOP)
        eventually(lambda: Path(f"/proc/{self._alive()}/stat").read_text().rpartition(")")[2].split()[0] in "Tt")
        for pid in self._all():
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        for pid in self._all():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _alive(self) -> int:
        pid = self.pid
        assert pid is not None, "the server does not run"
        return pid

    def _all(self) -> list[int]:
        postmaster = self._alive()
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        return [postmaster, *map(int, children)]


@pytest.fixture
def own_postgres() -> Iterator[Callable[[], OwnPostgres]]:
    """Starts servers of the test's own (``OwnPostgres``); each is removed afterwards, in whatever state it is."""
    made: list[OwnPostgres] = []

    def start() -> OwnPostgres:
        server = OwnPostgres(_a_home("arkqueue-own-"), durable=False)
        made.append(server)
        server.start()
        return server

    yield start
    for server in made:
        if server.pid:
            server.thaw()
        server.destroy()
        shutil.rmtree(server.home)


@pytest.fixture
def server(own_postgres: Callable[[], OwnPostgres]) -> OwnPostgres:
    """A server of the test's own with arkqueue's tables; where a module's ``pg_uri`` is its, so are ``database`` and all that stands on it."""
    server = own_postgres()
    with _admin(server.uri) as connection:
        migrate(connection)
    return server


@contextmanager
def _a_database(server: Embedded, template: str) -> Iterator[str]:
    name = f"test_{os.getpid()}_{next(_numbers)}"
    with _admin(server.uri) as admin:
        admin.execute(f"create database {name} template {template}".encode())
    try:
        yield make_conninfo(server.uri, dbname=name)
    finally:
        with _admin(server.uri) as admin:
            admin.execute(f"drop database {name} with (force)".encode())


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
