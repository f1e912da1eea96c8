"""Task managers on a real database, and functions that wait for their tasks."""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from arkqueue import logs
from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.gateway.sql import gateways
from arkqueue.model import AttemptId, Stream
from arkqueue.states import SETTLED
from arkqueue.task_manager import TaskManager
from arkqueue.task_manager import attempt as attempt_module
from tests.builders import AnArchive
from tests.loaded import Forked, fork
from tests.system.waking import waking_session
from tests.waiting import PATIENCE, eventually

__all__ = ["waking_session"]

Managers = Callable[..., TaskManager]


@pytest.fixture
def home_folder(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def managers(session: Session, home_folder: Path) -> Iterator[Managers]:
    """Starts task managers. Those that still run at the end are stopped."""
    started: list[TaskManager] = []

    def start(**settings: Any) -> TaskManager:
        # A look for what nobody told it takes processor time while
        # a test waits; it must look at least as often as it renews.
        poll = "100ms" if "renew" in settings else "500ms"
        settings = {"home": home_folder, "slots": 4, "poll": poll, "min_free": 0, **settings}
        opener = gateways(settings.pop("session", session), settings["slots"])
        manager = TaskManager(opener, Configuration.load({}, **settings))
        manager.start()
        started.append(manager)
        return manager

    yield start
    for manager in started:
        manager.stop()


def settled(archive: AnArchive, key: str, state: str) -> None:
    """Waits until a task has a state. Fails if the task reaches another final state."""

    def has() -> bool:
        found = archive.state(key)
        assert found == state or found not in SETTLED, f"it is {found}: {log_of(archive, key)}"
        return found == state

    eventually(has)


def attempts(archive: AnArchive, key: str) -> list[dict[str, Any]]:
    return archive.sql("select * from attempt where task_id = %s order by number", archive.task(key))


def ended(archive: AnArchive, key: str, count: int = 1) -> dict[str, Any]:
    """Waits until a number of attempts of a task have ended. Returns the last one."""
    return eventually(lambda: [a for a in attempts(archive, key) if a["ended_at"]][count - 1 : count])[0]


def log_of(archive: AnArchive, key: str, *streams: Stream) -> str:
    """The log of the newest attempt, of the given streams or of all."""
    attempt = AttemptId(attempts(archive, key)[-1]["id"])
    chunks = logs.read(archive.session, attempt, limit=1 << 30).chunks
    return b"".join(c.data for c in chunks if c.stream in (streams or Stream)).decode()


class Bells:
    """A FIFO between a task and its test. Neither waits for the other to open it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        self._end = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._rest = b""

    def hear(self) -> str:
        """Waits for the next line from a task."""
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        while b"\n" not in self._rest:
            assert poll.poll(PATIENCE * 1000), "the task never rang"
            self._rest += os.read(self._end, 4096)
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()

    def ring(self, line: str = "") -> None:
        """Sends a line to a task that reads one."""
        os.write(self._end, line.encode() + b"\n")

    def close(self) -> None:
        os.close(self._end)


@pytest.fixture
def time_begins(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Starts the timeout of tasks only after a condition holds. On a slow host, the timeout could
    otherwise pass before a program's first output.
    """
    # The timeout of a task starts here.
    followed = attempt_module._followed

    def begin_with(waited: Callable[[], object]) -> None:
        def followed_later(attempt: Any, definition: Any, _: float) -> Any:
            waited()
            return followed(attempt, definition, time.monotonic())

        monkeypatch.setattr(attempt_module, "_followed", followed_later)

    return begin_with


@pytest.fixture
def bells(tmp_path: Path) -> Iterator[Callable[[str], Bells]]:
    made: list[Bells] = []

    def make(name: str) -> Bells:
        made.append(Bells(tmp_path / name))
        return made[-1]

    yield make
    for one in made:
        one.close()


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


Drivers = Callable[..., Forked]

DRIVER = """
import json, sys, threading
from functools import partial
from arkqueue.config import Configuration
from arkqueue.db import Database, Wakeups
from arkqueue.db.session import Session
from arkqueue.gateway.sql import SqlGateway
from arkqueue.task_manager import TaskManager

database = Database.open(sys.argv[1])
configuration = Configuration.load({}, home=sys.argv[2], **{"slots": 2, "poll": "100ms", "min_free": 0} | json.loads(sys.argv[3]))
manager = TaskManager(partial(SqlGateway, Session(database, Wakeups(database))), configuration)
manager.start()
threading.Event().wait()
"""


@pytest.fixture
def drivers(pg_uri: str, home_folder: Path, tmp_path: Path) -> Iterator[Drivers]:
    """Starts separate task managers with the given settings, each after a program of the test."""
    started: list[Forked] = []
    log = tmp_path / "drivers.log"
    log.touch()

    def start(program: str = "", **settings: object) -> Forked:
        home_folder.mkdir(exist_ok=True)
        given = ["", pg_uri, str(home_folder), json.dumps(settings)]
        started.append(fork(program + DRIVER, given, out=log, err=log, environment=os.environ))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
    print(log.read_text(errors="replace"))
