"""``arkqueue submit``: hand in a document, of which a run is made."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from arkqueue.cli.options import as_json, calls_server
from arkqueue.cli.output import print_json, say
from arkqueue.model import LONGEST_PAYLOAD, PayloadKind
from arkqueue.text import on_one_line, visible

if TYPE_CHECKING:
    from arkqueue.cli.client import Client

KINDS = {
    ".json": PayloadKind.JSON,
    ".yaml": PayloadKind.YAML,
    ".yml": PayloadKind.YAML,
    ".csv": PayloadKind.CSV,
    ".txt": PayloadKind.LINES,
}
"""What a file is by the end of its name."""
MEDIA_TYPES = {
    PayloadKind.JSON: "application/json",
    PayloadKind.YAML: "application/yaml",
    PayloadKind.CSV: "text/csv",
    PayloadKind.LINES: "text/plain",
}


@click.command(
    epilog="Examples: arkqueue submit papers batch.csv --id batch-17; jq … | arkqueue submit papers --id batch-18. On stdout stands the run's name alone."
)
@click.argument("archive", metavar="ARCHIVE")
@click.argument("file", metavar="[FILE|-]", default="-")
@click.option("--revision", metavar="REV", help="A number, or a SHA or a prefix of one (default: the head).")
@click.option("--branch", metavar="BRANCH", help="Another than the main branch.")
@click.option("--id", "id", metavar="ID", help="Your own id for it: the same one, given again, makes no second run.")
@click.option("--hold", is_flag=True, help="Let it wait for a release.")
@click.option(
    "--format",
    "kind",
    type=click.Choice([str(kind) for kind in PayloadKind]),
    help="What it is written in (default: by the file's name; of standard input JSON).",
)
@as_json
@calls_server
def submit(
    client: Client,
    archive: str,
    file: str,
    revision: str | None,
    branch: str | None,
    id: str | None,
    hold: bool,
    kind: str | None,
    as_json: bool,
) -> None:
    """Hand in a document, make a run of the tasks that are `on: submission`, and print its name.

    It is JSON, YAML, CSV with a header, or lines of text, 64 MiB at most. Without FILE it is read from standard input.
    """
    from arkqueue.cli.client import Refused, archive_path

    if file == "-" and sys.stdin.isatty():
        raise click.UsageError("name a FILE, or send the document to standard input.")
    media_type = MEDIA_TYPES[_kind(file, kind)]
    headers = {} if id is None else {"Idempotency-Key": _header(id)}
    query: dict[str, Any] = {"revision": revision, "branch": branch, "hold": "true" if hold else None}
    with nullcontext(sys.stdin.buffer) if file == "-" else _opened(Path(file)) as payload:
        try:
            found = client.hand_in(f"{archive_path(archive)}/submissions", payload, media_type, headers, **query)
        except Refused as refused:
            for fault in refused.faults:
                say(visible(fault), err=True)
            raise
    if found["note"]:
        say(f"arkqueue: {on_one_line(found['note'])}", err=True)
    if as_json:
        print_json(found)
    elif found["run"] is None:
        say(f"{visible(found['full_name'])}: was handled, and {on_one_line(found['purged'])}", err=True)
    else:
        say(found["run"]["full_name"])


def _opened(path: Path) -> IO[bytes]:
    size = path.stat().st_size
    if size > LONGEST_PAYLOAD:
        raise click.UsageError(f"{path} has {size:,} bytes, more than {LONGEST_PAYLOAD:,}. Hand it in as several.")
    return path.open("rb")


def _kind(file: str, given: str | None) -> PayloadKind:
    if given is not None:
        return PayloadKind(given)
    if file == "-":
        return PayloadKind.JSON
    kind = KINDS.get(Path(file).suffix.lower())
    if kind is None:
        raise click.UsageError(f"{file}: its name does not say what it is written in. Say it with --format.")
    return kind


def _header(id: str) -> str:
    """An id as a header carries it: the bytes of UTF-8, each as one character."""
    if not id.isprintable():
        raise click.BadParameter("write characters that can be seen.", param_hint="--id")
    return id.encode().decode("latin-1")
