"""``backup`` and ``restore``: the database in a file. They go to the database themselves, as the server may be down."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from arkqueue.cli.serve import load
from arkqueue.config import Configuration
from arkqueue.errors import ArkqueueError

_file = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
_database = click.option("--database", metavar="URI", help="The PostgreSQL, where it is not the embedded one.")


@click.command(
    epilog="arkqueue may run meanwhile. Keep the configuration file beside the backup; the database does not hold it."
)
@_file
@_database
@click.pass_context
def backup(ctx: click.Context, /, file: Path, **options: Any) -> None:
    """Write the whole database to the new file FILE: history, logs, tokens and waiting tasks."""
    from arkqueue.db.backup import back_up

    configuration = load(ctx, **options)
    if configuration.database is None and not (configuration.home / "postgres").exists():
        fault, remedy = "has no database", "Name another with --home, or a database with --database."
        raise ArkqueueError(f"the home folder {configuration.home}", fault, remedy)
    with _uri(configuration) as uri:
        size = back_up(uri, file)
    click.echo(f"{file}: {size / 1e6:,.1f} MB")


@click.command(
    epilog="arkqueue finds commits that are newer than the backup in the repositories, and plans them again:"
    " tasks that have run since run once more."
)
@_file
@_database
@click.pass_context
def restore(ctx: click.Context, /, file: Path, **options: Any) -> None:
    """Fill an empty database from FILE, which `arkqueue backup` has written, and migrate it to this version."""
    from arkqueue.db.backup import restore as fill

    configuration = load(ctx, **options)
    configuration.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _uri(configuration) as uri:
        fill(uri, file)
    click.echo(f"{file}: restored; start arkqueue now")


@contextmanager
def _uri(configuration: Configuration) -> Iterator[str]:
    """Where the database is, past a pooler. An embedded one is started, and stopped again where nobody else uses it."""
    if configuration.database is not None:
        yield configuration.database_direct or configuration.database
        return
    from arkqueue.db.embedded.server import Embedded

    server = Embedded.open(configuration.home)
    try:
        yield server.uri
    finally:
        server.close()
