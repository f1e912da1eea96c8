"""The options that many commands share: the server, and whether people or programs read the answer."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from arkqueue.states import State

if TYPE_CHECKING:
    from arkqueue.cli.client import Client

F = TypeVar("F", bound=Callable[..., Any])


def calls_server(command: F) -> F:
    """Give a command the option ``--server``, and the client for it as its first argument."""

    @click.option("--server", metavar="URL", help="Where the server is (default: this host's).")
    @click.pass_context
    @functools.wraps(command)
    def with_client(ctx: click.Context, /, *args: Any, server: str | None, **options: Any) -> Any:
        return command(client(ctx, server), *args, **options)

    return with_client  # type: ignore[return-value]


def client(ctx: click.Context, server: str | None = None) -> Client:
    """The client for the options of the whole command line."""
    from arkqueue.cli.client import connect

    given = ctx.find_root().obj or {}
    return connect(given.get("home"), given.get("config"), server)


as_json = click.option("--json", "as_json", is_flag=True, help="Print the API's answer, one JSON document.")
of_states = click.option("--state", "states", type=click.Choice([str(state) for state in State]), multiple=True, metavar="STATE", help="Of RUN/TASK/*: only the items in this state; may be repeated.")  # fmt: skip
dry_run = click.option(
    "--dry-run", is_flag=True, help="Change nothing; show what would be done and what would be refused."
)
database = click.option("--database", metavar="URI", help="A PostgreSQL to use instead of the embedded one.")


def refuse_revision(archive: str, command: str) -> None:
    """Raise `click.UsageError` if the name of an archive has a revision, which is an option. ``command``:
    the command without its options, with ``{}`` for the archive.
    """
    name, at, revision = archive.partition("@")
    if at:
        remedy = f"arkqueue {command.format(shlex.quote(name))} --revision {shlex.quote(revision)}"
        raise click.UsageError(f"Name the archive alone, and a revision with --revision: {remedy}")
