"""``arkqueue token …``: the tokens, which decide who may call the API and for what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from arkqueue.cli.options import as_json, calls_server
from arkqueue.cli.output import ago, print_json, say, table
from arkqueue.text import visible

if TYPE_CHECKING:
    from arkqueue.cli.client import Client

SCOPES = ("hook", "read", "operate", "approve", "admin")


@click.group(no_args_is_help=True)
def token() -> None:
    """Make and revoke tokens."""


@token.command(epilog="Example: arkqueue token create --scope read --archive papers > papers.token")
@click.option("--scope", type=click.Choice(SCOPES), required=True, help="hook: may only say that there is a commit; read; operate: also act on runs and tasks; approve: also release what archives guard; admin: also archives and tokens.")  # fmt: skip
@click.option("--archive", "archives", multiple=True, metavar="NAME", help="For this archive only; again for more (default: every one).")  # fmt: skip
@click.option("--author", "authors", multiple=True, metavar="NAME", help="Of scope approve: a person that it stands for, written as the author of a revision; may be repeated.")  # fmt: skip
@click.option("--name", help="The name of the token in lists and in the audit log (default: its scope and archives).")
@as_json
@calls_server
def create(
    client: Client, scope: str, archives: tuple[str, ...], authors: tuple[str, ...], name: str | None, as_json: bool
) -> None:
    """Make a token and print it, only this once: its secret is not stored."""
    called = name if name is not None else f"{scope} {' '.join(archives)}".strip()[:100]
    body = {"name": called, "scope": scope, "archives": list(archives) or None, "authors": list(authors)}
    made = client.post("/tokens", body)
    if as_json:
        print_json(made)
    else:
        say(f"token {made['id']} ({visible(made['name'])}):", err=True)
        say(made["token"])


@token.command("list")
@click.option("--all", "everything", is_flag=True, help="The revoked ones too.")
@as_json
@calls_server
def list_(client: Client, everything: bool, as_json: bool) -> None:
    """List the tokens, without their secrets."""
    found = [t for t in client.get("/tokens") if everything or t["revoked_at"] is None]
    if as_json:
        print_json(found)
        return
    rows = [
        (str(t["id"]), t["scope"], ", ".join(t["archives"] or ["every archive"]), ago(t["created_at"]), "revoked" if t["revoked_at"] else "", visible(t["name"] + _persons(t)))
        for t in found
    ]  # fmt: skip
    table(rows, ("TOKEN", "SCOPE", "FOR", "MADE", "", "NAME"))


def _persons(token: Any) -> str:
    """The persons for whom a token stands."""
    return f" for {', '.join(token['authors'])}" if token["authors"] else ""


@token.command()
@click.argument("tokens", metavar="TOKEN…", type=int, nargs=-1, required=True)
@calls_server
def revoke(client: Client, tokens: tuple[int, ...]) -> None:
    """Revoke tokens, by their numbers in the list."""
    from arkqueue.cli.verbs import each

    def one(number: str) -> tuple[None, list[str]]:
        client.send("DELETE", f"/tokens/{number}")
        return None, [f"token {number}: is revoked"]

    each([str(number) for number in tokens], one)


@click.command("sign-in", epilog="Example: arkqueue sign-in")
@calls_server
def sign_in(client: Client) -> None:
    """Print a link that signs a browser in to the pages, with the rights of this command's token.
    The link works once, within ten minutes.
    """
    say(client.url + client.post("/sign-in-links", {})["path"])
