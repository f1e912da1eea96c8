"""``arkqueue hook …``: puts hooks into a repository and removes them. The checking hooks run
``hook check``.

It gets a token for each repository from the API, and revokes the token at the end. `arkqueue.hooks`
does everything else, on this host.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from arkqueue.cli.options import calls_server
from arkqueue.cli.options import client as client_of
from arkqueue.errors import ArkqueueError, Conflict, Invalid
from arkqueue.text import visible

if TYPE_CHECKING:
    from arkqueue.cli.client import Client


@click.group()
def hook() -> None:
    """Notify arkqueue of commits at once, and refuse faulty workflow files."""


@hook.command()
@click.argument("repository")
@click.option("--check", is_flag=True, help="Also refuse commits whose workflow files have faults.")
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file with a token of scope hook; without it, the server is asked for one.",
)
@click.option(
    "--url",
    metavar="URL",
    help="The URL by which its archives are watched, of a Git repository that the server does not have as a path.",
)
@calls_server
def install(client: Client, repository: str, check: bool, token_file: Path | None, url: str | None) -> None:
    """Install the hooks in REPOSITORY, a path on this host, or bring them up to date. A hook that
    is there goes on to be called.
    """
    from arkqueue import hooks

    name = _token_name(hooks.folder_of(repository))
    made = None
    if token_file is not None:
        token = _token_in(token_file)
    else:  # the token may only request scans, for every archive of the repository
        made = client.post("/tokens", {"name": name, "scope": "hook", "archives": None})
        token = str(made["token"])
    try:
        done = hooks.install(repository, server=client.url, token=token, url=url, check=check, checker=_this_program())
    except Exception:
        if made is not None:
            client.send("DELETE", f"/tokens/{made['id']}")
        raise
    if made is not None:
        _revoke(client, name, but=made["id"])
    for path in done.hooks:
        click.echo(f"installed {path}")
    for note in (*done.notes, *_tried(client.url, token, done.name)):
        click.echo(f"note: {note}")


@hook.command()
@click.argument("repository")
@click.option(
    "--server",
    metavar="URL",
    help="The server whose notices end, and whose token is revoked (default: this host's).",
)
@click.pass_context
def uninstall(ctx: click.Context, repository: str, server: str | None) -> None:
    """End the notices of REPOSITORY to one server. With the last one arkqueue's hooks go, and the
    ones that were there before get their place back.
    """
    from arkqueue import hooks

    told = [url for url in hooks.told(repository) if url]
    if told and server is None:
        server = _own_server(ctx, repository, told)
    removed = hooks.uninstall(repository, server=server)
    for path in removed.paths:
        click.echo(f"removed {path}")
    if not removed.paths:
        click.echo("there were no hooks of arkqueue")
        return
    for url in removed.left:
        click.echo(f"note: the hooks still notify {url} of commits")
    try:
        client = client_of(ctx, server)
        _revoke(client, _token_name(hooks.folder_of(repository)))
    except ArkqueueError as error:
        click.echo(f"note: their token is not revoked ({visible(str(error))}); see `arkqueue token list` there")


def _own_server(ctx: click.Context, repository: str, told: Sequence[str]) -> str:
    """The URL of the server if none is named. Raises `Conflict` if it is unknown: the hooks may
    belong to another server.
    """
    from arkqueue import hooks
    from arkqueue.cli.client import Unreachable

    try:
        return client_of(ctx).url
    except Unreachable as error:
        folder = hooks.folder_of(repository)
        fault = f"its hooks tell {' and '.join(told)}, and whether that is the server of this home is not known, as that does not run"
        raise Conflict(str(folder), fault, hooks.ending(folder, told)) from error


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
            lines = hooks.lines_of(os.fsdecode(sys.stdin.buffer.read()))
            faults = hooks.check_push(repository, lines, Path(quarantine) if quarantine else None)
    except ArkqueueError:
        raise
    except Exception as error:
        # The committer reads this, so it contains neither a traceback nor paths of the server.
        raise ArkqueueError("arkqueue", f"could not check the workflow files ({type(error).__name__})") from error
    if faults:
        # Not in the encoding of the locale: Subversion's hooks have none, and its clients expect
        # UTF-8.
        sys.stderr.buffer.write(f"{visible(hooks.refusal(faults))}\n".encode("utf-8", "backslashreplace"))
        sys.exit(hooks.FAULTY)


def _tried(server: str, token: str, repository: str) -> list[str]:
    """Send a notice as the hooks will. Returns a note if it does not arrive, because the hooks
    report no failure to anybody.
    """
    from arkqueue.cli.client import Client, Refused

    try:
        Client(server, token).post("/notices", {"repository": repository})
    except Refused as error:
        if error.status == 404:
            return [
                "no archive of this repository is watched yet: arkqueue archive add NAME REPOSITORY; "
                "or, where it is watched by a URL: arkqueue hook install --url URL REPOSITORY"
            ]
        return [f"notices will be refused: {visible(str(error))}"]
    except ArkqueueError as error:
        return [f"notices do not get through: {visible(str(error))}"]
    return []


def _this_program() -> str:
    """The path of the ``arkqueue`` that a hook will start: the one of this Python."""
    return str(Path(sys.executable).with_name("arkqueue"))


def _token_in(file: Path) -> str:
    token = file.read_bytes().strip().decode("utf-8", "replace")
    if not (token.isascii() and token.isprintable()) or " " in token or not token:
        raise Invalid(str(file), "holds no token, which is one word", "Save there what `arkqueue token create` prints.")
    return token


def _token_name(folder: Path) -> str:
    """The name of the token of a repository's hooks: equal for each installation, and different
    from that of every other repository.
    """
    import hashlib
    import socket

    place = f"{socket.gethostname()}:{folder}"
    name = f"hook of {place}"
    if len(name) <= 100 and name.isprintable():
        return name
    digest = hashlib.sha256(os.fsencode(place)).hexdigest()[:16]
    return f"hook {digest} of …" + "".join(c if c.isprintable() else "?" for c in place[-60:])


def _revoke(client: Client, name: str, but: int | None = None) -> None:
    """Revoke the tokens of earlier installations in a repository."""
    for token in client.get("/tokens"):
        if token["name"] == name and token["revoked_at"] is None and token["id"] != but:
            client.send("DELETE", f"/tokens/{token['id']}")
