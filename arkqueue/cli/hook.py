"""``arkqueue hook …``: put hooks into a repository and take them out; ``hook check`` is what the checking hooks run.

Included by the main command group. It takes its settings from ``Configuration`` and one token from the API; all else is done by `arkqueue.hooks`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from arkqueue.errors import ArkqueueError, Forbidden, Invalid


@click.group()
def hook() -> None:
    """Tell arkqueue of commits at once, and refuse faulty workflow files."""


@hook.command()
@click.argument("repository")
@click.option("--check", is_flag=True, help="Also refuse commits whose workflow files have faults.")
@click.option("--server", metavar="URL", help="Where the server is; without it, as configured.")
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file with a token of scope hook; without it, one is made with the configured token.",
)
def install(repository: str, check: bool, server: str | None, token_file: Path | None) -> None:
    """Put the hooks into REPOSITORY, a path on this host, or bring them up to date. A hook that is there goes on to be called."""
    from arkqueue import hooks

    try:
        if server is None or token_file is None:
            from arkqueue.config import Configuration

            configuration = Configuration.load(server=server)
            server = configuration.url
        if token_file is not None:
            token = token_file.read_text("utf-8").strip()
        else:
            mine = configuration.token or _first_token(configuration.home)
            token = _hook_token(server, mine, f"hook of {repository}")
        done = hooks.install(repository, server=server, token=token, check=check, checker=_this_program())
    except ArkqueueError as error:
        raise click.ClickException(str(error)) from error
    for path in done.hooks:
        click.echo(f"installed {path}")
    for note in done.notes:
        click.echo(f"note: {note}")


@hook.command()
@click.argument("repository")
def uninstall(repository: str) -> None:
    """Take arkqueue's hooks out of REPOSITORY; the ones that were there before get their place back."""
    from arkqueue import hooks

    try:
        removed = hooks.uninstall(repository)
    except ArkqueueError as error:
        raise click.ClickException(str(error)) from error
    for path in removed:
        click.echo(f"removed {path}")
    if not removed:
        click.echo("there were no hooks of arkqueue")


@hook.command(hidden=True)
@click.option("--repository", required=True)
@click.option("--txn", help="A Subversion transaction.")
@click.option(
    "--quarantine", default="", help="Git: where the objects of the push are; the refs are read from the input."
)
def check(repository: str, txn: str | None, quarantine: str) -> None:
    """Exit with 65 and tell why if workflow files have faults. Any other failure refuses nothing."""
    from arkqueue import hooks

    try:
        if txn is not None:
            faults = hooks.check_transaction(repository, txn)
        else:
            lines = os.fsdecode(sys.stdin.buffer.read()).splitlines()
            faults = hooks.check_push(repository, lines, Path(quarantine) if quarantine else None)
    except ArkqueueError as error:
        raise click.ClickException(str(error)) from error
    if faults:
        # Not through the locale: Subversion's hooks have none, and its clients expect UTF-8.
        sys.stderr.buffer.write(f"{hooks.refusal(faults)}\n".encode("utf-8", "backslashreplace"))
        sys.exit(hooks.FAULTY)


def _this_program() -> str:
    """The ``arkqueue`` that a hook will start: the one of this Python."""
    return str(Path(sys.executable).with_name("arkqueue"))


def _first_token(home: Path) -> str:
    file = home / "token"
    try:
        return file.read_text("utf-8").strip()
    except OSError as error:
        remedy = "Start `arkqueue serve` once on this host, or give --token-file."
        raise Invalid(str(file), f"cannot be read ({error.strerror})", remedy) from error


def _hook_token(server: str, token: str, name: str) -> str:
    """Have the server make a token that may only say "look", for every archive of the repository."""
    import httpx

    body = {"name": name, "scope": "hook", "archives": None}
    headers = {"Authorization": f"Bearer {token}"}
    remedy = "Or make one elsewhere with `arkqueue token create --scope hook` and give it with --token-file."
    try:
        answer = httpx.post(f"{server}/api/v1/tokens", json=body, headers=headers, timeout=30)
        if answer.status_code in (401, 403):
            raise Forbidden(server, "does not allow this token to make one for the hook", remedy)
        return str(answer.raise_for_status().json()["token"])
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError) as error:
        raise Invalid(server, f"gave no token for the hook ({error})", remedy) from error
