"""The real command line against the real server, on a fresh database.

``arkqueue("runs", "--json")`` runs the whole program in this process, like its entry point.
``started`` starts a separate process for a test that observes a command while something else
happens.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from arkqueue import cli
from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.queue import tokens
from arkqueue.runtime import address
from arkqueue.web import ApiServer, create_app, run_api
from tests.loaded import Command, begin
from tests.ports import a_port
from tests.program import Done, run_cli
from tests.system.waking import waking_session
from tests.users import as_ordinary_user

__all__ = ["waking_session"]

Cli = Callable[..., Done]
Start = Callable[..., Any]
"""A function that starts a command: a `Command`, or a `subprocess.Popen`."""


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    return Configuration.load({}, home=folder, poll="100ms")


class Server:
    """The server, with a port that stays the same after a restart."""

    def __init__(self, session: Session, configuration: Configuration, port: int) -> None:
        self._session, self._configuration, self._port = session, configuration, port
        self._api = self._start()
        self.url = self._api.url

    def restart(self) -> None:
        """Stops the server until a client has tried to reach it, and starts it again."""
        self._api.close()
        with socket.create_server(("127.0.0.1", self._port)) as away:
            away.accept()[0].close()
        self._api = self._start()

    def close(self) -> None:
        self._api.close()

    def _start(self) -> ApiServer:
        return run_api(create_app(self._session, self._configuration), "127.0.0.1", self._port)


@pytest.fixture
def server(session: Session, configuration: Configuration, no_queue_manager: None) -> Iterator[Server]:  # noqa: ARG001  it sets
    """The server. Its address and its first token are in the home folder, like those of `arkqueue
    serve`.
    """
    with a_port() as port:
        server = Server(session, configuration, port)
        tokens.first_token(session, configuration.home)
        descriptor = address.announce(configuration.home, server.url)
        assert descriptor is not None
        yield server
        address.withdraw(configuration.home, descriptor)
        server.close()


@pytest.fixture
def arkqueue(server: Server, configuration: Configuration) -> Cli:  # noqa: ARG001  it runs
    """The command line of the server's host."""

    def call(*arguments: str) -> Done:
        return run_cli("--home", str(configuration.home), *arguments)

    return call


@pytest.fixture
def started(server: Server, configuration: Configuration) -> Iterator[Start]:  # noqa: ARG001  it runs
    """Starts commands that work while the test continues. Their processes have arkqueue imported,
    which takes 30 ms of CPU time instead of 450 ms.
    """
    running: list[Command] = []

    def start(*arguments: str, stdout: int | None = None) -> Command:
        running.append(begin("--home", str(configuration.home), *arguments, environment=_environment(), stdout=stdout))
        return running[-1]

    yield start
    for command in running:
        command.kill()
        command.wait()
        command.close()


@pytest.fixture
def started_alone(server: Server, configuration: Configuration) -> Iterator[Start]:  # noqa: ARG001  it runs
    """Starts commands in processes that import arkqueue themselves, like an installed one."""
    running: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **options: Any) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "arkqueue", "--home", str(configuration.home), *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **options}
        running.append(subprocess.Popen(command, text=True, env=_environment(), preexec_fn=_listens, **pipes))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate()


def _listens() -> None:
    """In the background of a shell, a test run ignores interrupts. Its child processes would
    inherit that.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def the_rest(process: Command | subprocess.Popen[str]) -> tuple[str, str]:
    """The remaining output and errors of a started command. ``communicate`` would lose what an
    earlier readline left in the buffer.
    """
    assert process.stdout is not None
    assert process.stderr is not None
    out, err = process.stdout.read(), process.stderr.read()
    process.wait()
    return out, err


def cli_of_ordinary_user(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a command as an ordinary user."""
    return as_ordinary_user("arkqueue.cli.main()", arguments=arguments)


def _environment() -> dict[str, str]:
    root = str(Path(cli.__file__).parents[2])
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ARKQUEUE_")}
    return {**kept, "PYTHONPATH": root, "PYTHONUNBUFFERED": "1"}
