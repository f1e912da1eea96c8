"""``arkqueue manager --healthy`` and ``arkqueue worker --healthy``, for the health checks of a
container or a supervisor.

They ask the database whether the role has reported recently. Whether a process exists would not be
enough: a process that hangs is not healthy.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import click

from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.errors import ConfigurationError
from arkqueue.views.installation import is_managed, measure, task_managers


def tell_manager(configuration: Configuration) -> NoReturn:
    """Exit with 0 if a queue manager has reported recently, and otherwise with 1."""
    with _session(configuration) as session:
        numbers = measure(session)
    silence = numbers.silence_of_queue_managers or 0.0
    _tell(is_managed(numbers, configuration.lease), f"a queue manager was heard {silence:.0f} s ago")


def tell_worker(configuration: Configuration) -> NoReturn:
    """Exit with 0 if the task manager of this host, by its name, has reported recently, and
    otherwise with 1.
    """
    name = socket.gethostname()
    with _session(configuration) as session:
        alive = any(one.alive for one in task_managers(session) if one.hostname == name)
    _tell(alive, f"{'a' if alive else 'no'} task manager of {name} was heard lately")


@contextmanager
def _session(configuration: Configuration) -> Iterator[Session]:
    from arkqueue.db import Database

    uri = configuration.database
    if uri is None:
        from arkqueue.db.embedded.server import Embedded

        server = Embedded(configuration.home)
        if server.pid is None:
            fault = f"the database that {configuration.home} would have does not run"
            raise ConfigurationError("--healthy", fault, "Start the role, or name another database with --database.")
        uri = server.uri
    with Database.open(uri, application_name="arkqueue health", size=1) as database:
        yield Session(database)


def _tell(healthy: bool, said: str) -> NoReturn:
    click.echo(said)
    sys.exit(0 if healthy else 1)
