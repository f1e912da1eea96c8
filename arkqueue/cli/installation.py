"""The installation that a command works on without a server: its configuration and its database. Called by the roles, and by commands that need no API (`migrate`, `backup`, `restore`, `purge`)."""

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
"""Database connections for the start; each role has more of its own."""
RETRY = 1.0
"""Seconds between two attempts to reach a database that is away at the start."""


@contextmanager
def opened(
    configuration: Configuration,
    role: str,
    stop: threading.Event,
    waits: Callable[[], None] = lambda: None,
    *,
    backup: bool = True,
) -> Iterator[Session]:
    """The queue of an installation: its database (embedded where no other is named) at this version, and wake-ups.

    ``waits``: called where the database is away and is waited for; ``stop``: set when it is to be waited for no longer; then the program ends.
    ``backup``: an embedded database that is about to be migrated is backed up first.
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
    """The address of the database as it is, past a pooler; an embedded server runs meanwhile. The home folder has to be there."""
    if configuration.database is not None:
        yield configuration.database_direct or configuration.database
        return
    with _embedded(configuration.home) as server:
        yield server.uri


@contextmanager
def _embedded(home: Path) -> Iterator[Any]:
    """The embedded server of a home folder, which is stopped at the end if nobody else uses it."""
    from arkqueue.db.embedded.server import Embedded

    server = Embedded.open(home)
    try:
        yield server
    finally:
        server.close()


def make_home(home: Path) -> None:
    """Make the home folder where there is none."""
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
    """Start the embedded server again when it has died; nobody else would."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(2.0):
            try:
                if server.pid is None and not done.is_set():
                    log.warning("the embedded PostgreSQL has died; starting it again")
                    server.start()
            except Exception as error:  # whatever it is, no descriptors say, may be over the next time
                log.error("the embedded PostgreSQL cannot be looked after: %s", error)

    threading.Thread(target=watch, name="embedded PostgreSQL", daemon=True).start()
    return done


@contextmanager
def _backed_up(uri: str, home: Path) -> Iterator[None]:
    """The embedded database, backed up where the block is going to migrate it; roles that start together take turns."""
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
    """Bring the database to this version; one that is away is waited for, one that lets nobody in is an error."""
    from arkqueue.db.connections import Refused
    from arkqueue.db.migrations import migrate

    told = False
    while True:
        try:
            with database.connect() as connection:
                migrate(connection)
            with database.statement() as connection:  # a pooler may still be the one that is away
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
