"""The installation on which a command works without a server: its configuration and its database.
Called by the roles, and by commands that need no API (`migrate`, `backup`, `restore`, `purge`).
"""

from __future__ import annotations

import fcntl
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import click

from arkqueue.config import Configuration, readable_secrets
from arkqueue.db.session import Session
from arkqueue.errors import ArkqueueError, ConfigurationError, DatabaseUnavailable
from arkqueue.text import visible

log = logging.getLogger("arkqueue")

FEW = 2
"""The database connections for the start; each role opens more."""
RETRY = 1.0
"""The seconds between two attempts to reach a database that is away at the start."""


@contextmanager
def opened(
    configuration: Configuration,
    role: str,
    stop: threading.Event,
    waits: Callable[[], None] = lambda: None,
    *,
    backup: bool = True,
) -> Iterator[Session]:
    """The session of an installation: its database (embedded, if no other is named) at this
    version, and wake-ups.

    ``waits``: called if the database is away and the program waits for it. ``stop``: set to end
    this wait; then the program ends. ``backup``: back up an embedded database before it is
    migrated.
    """
    from arkqueue.db import Database, Wakeups

    make_home(configuration.home)
    with ExitStack() as stack:
        uri = configuration.database
        is_embedded = uri is None
        if uri is None:
            server = stack.enter_context(_embedded(configuration.home))
            stack.callback(_keep_alive(server).set)
            uri = server.uri
        database = stack.enter_context(
            Database.open(
                uri,
                application_name=f"arkqueue {role}",
                pooler=configuration.database_pooler,
                direct=configuration.database_direct,
                size=FEW,
            )
        )
        with _backed_up(uri, configuration.home) if is_embedded and backup else nullcontext():
            _migrate(database, stop, waits)
        wakeups = Wakeups(database)
        stack.callback(wakeups.close)
        yield Session(database, wakeups)


@contextmanager
def reached(configuration: Configuration) -> Iterator[str]:
    """The address of the database, without a pooler. An embedded server runs inside the block. The
    home folder must exist. The database is not migrated.
    """
    if configuration.database is not None:
        yield configuration.database_direct or configuration.database
        return
    with _embedded(configuration.home) as server:
        yield server.uri


@contextmanager
def _embedded(home: Path) -> Iterator[Any]:
    """The embedded server of a home folder. At the end it is stopped, if nobody else uses it."""
    from arkqueue.db.embedded.server import Embedded

    server = Embedded.open(home)
    try:
        yield server
    finally:
        server.close()


def make_home(home: Path) -> None:
    """Make the home folder, unless it exists."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        fault = f"cannot be made: {error.strerror}"
        if home.is_symlink():
            fault = f"is a link to {os.path.realpath(home)}, which is not a folder"
        elif isinstance(error, FileExistsError):
            fault = "is not a folder"
        remedy = "Name another with --home or ARKQUEUE_HOME, or make it, as a folder of this user."
        raise ConfigurationError(f"the home folder {home}", fault, remedy) from error


def _keep_alive(server: Any) -> threading.Event:
    """Start the embedded server again after it has died, because nobody else would."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(2.0):
            try:
                if server.pid is None and not done.is_set():
                    log.warning("the embedded PostgreSQL has died; starting it again")
                    server.start()
            # Any error, such as too few descriptors, may be over at the next try.
            except Exception as error:
                log.error("the embedded PostgreSQL cannot be looked after: %s", error)

    threading.Thread(target=watch, name="embedded PostgreSQL", daemon=True).start()
    return done


@contextmanager
def _backed_up(uri: str, home: Path) -> Iterator[None]:
    """Back up the embedded database if the block is going to migrate it. Roles that start together
    take turns.
    """
    from arkqueue.db import backup

    with (home / "migration.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            file = backup.before_migration(uri, home / "backups")
        except ArkqueueError as error:
            remedy = f"{error.remedy} Or migrate without a backup: arkqueue migrate --no-backup"
            raise ArkqueueError(error.thing, f"{error.fault} (before the database is migrated)", remedy) from error
        if file:
            log.info("the database is being migrated; it was backed up before, in %s", file)
        yield


def _migrate(database: Any, stop: threading.Event, waits: Callable[[], None]) -> None:
    """Migrate the database to this version. If it is away, wait for it; if it refuses access, raise
    the error.
    """
    from arkqueue.db.connections import Refused
    from arkqueue.db.migrations import migrate

    told = False
    while True:
        try:
            with database.connect() as connection:
                migrate(connection)
            with database.statement() as connection:  # the pooler may still be away
                connection.execute("select 1")
            return
        except Refused:
            raise
        except DatabaseUnavailable as error:
            if not told:
                log.warning("waiting for the database: %s", error)
                waits()
            told = True
            if stop.wait(RETRY):
                sys.exit()


def load(ctx: click.Context, **overrides: Any) -> Configuration:
    """The configuration with the options of the command line."""
    given = ctx.find_root().obj or {}
    file = Path(given["config"]) if given.get("config") else None
    configuration = Configuration.load(file=file, **{"home": given.get("home"), **overrides})
    for warning in readable_secrets(configuration, file):
        click.echo(f"warning: {visible(warning)}", err=True)
    return configuration
