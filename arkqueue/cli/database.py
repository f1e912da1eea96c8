"""``migrate``, ``backup`` and ``restore``. They work on the database without a server, which may be
down.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import click

from arkqueue.cli.installation import load, make_home, opened, reached
from arkqueue.cli.options import database
from arkqueue.errors import ArkqueueError

_file = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))


@click.command()
@database
@click.option("--no-backup", is_flag=True, help="Do not back up the embedded database first.")
@click.pass_context
def migrate(ctx: click.Context, /, no_backup: bool, **options: Any) -> None:
    """Migrate the database to this version of arkqueue. Each role does this by itself when it
    starts.
    """
    with opened(load(ctx, **options), "migrate", threading.Event(), backup=not no_backup):
        click.echo("the database is at this version")


@click.command(
    epilog="arkqueue may run meanwhile. Keep the configuration file beside the backup; the database does not hold it."
)
@_file
@database
@click.pass_context
def backup(ctx: click.Context, /, file: Path, **options: Any) -> None:
    """Write the whole database to the new file FILE: history, logs, tokens and waiting tasks."""
    from arkqueue.db.backup import back_up

    configuration = load(ctx, **options)
    if configuration.database is None and not (configuration.home / "postgres").exists():
        fault, remedy = "has no database", "Name another with --home, or a database with --database."
        raise ArkqueueError(f"the home folder {configuration.home}", fault, remedy)
    with reached(configuration) as uri:
        size = back_up(uri, file)
    click.echo(f"{file}: {size / 1e6:,.1f} MB")


@click.command(
    epilog="arkqueue finds commits that are newer than the backup in the repositories, and plans them again:"
    " tasks that have run since run once more."
)
@_file
@database
@click.pass_context
def restore(ctx: click.Context, /, file: Path, **options: Any) -> None:
    """Fill an empty database from FILE, which `arkqueue backup` has written, and migrate it to this
    version.
    """
    from arkqueue.db.backup import restore as fill

    configuration = load(ctx, **options)
    make_home(configuration.home)
    with reached(configuration) as uri:
        fill(uri, file)
    click.echo(f"{file}: restored; start arkqueue now")
