"""``arkqueue submit``: hands in a document, for which a run is made."""

from __future__ import annotations

import secrets
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from arkqueue.cli.options import as_json, calls_server, refuse_revision
from arkqueue.cli.output import print_json, say
from arkqueue.cli.proposal import say_proposal
from arkqueue.model import LONGEST_PAYLOAD, PayloadKind
from arkqueue.text import on_one_line, visible

if TYPE_CHECKING:
    from arkqueue.cli.client import Client, Refused

KINDS = {
    ".json": PayloadKind.JSON,
    ".yaml": PayloadKind.YAML,
    ".yml": PayloadKind.YAML,
    ".csv": PayloadKind.CSV,
    ".txt": PayloadKind.LINES,
}
"""The formats of documents, by the suffixes of their names."""
MEDIA_TYPES = {
    PayloadKind.JSON: "application/json",
    PayloadKind.YAML: "application/yaml",
    PayloadKind.CSV: "text/csv",
    PayloadKind.LINES: "text/plain",
}


class _Submit(click.Command):
    """Accepts several paths after one ``--attach``, up to the next option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        spread: list[str] = []
        is_attaching = False
        for arg in args:
            if arg.startswith("-"):
                is_attaching = arg == "--attach"
            elif is_attaching and spread[-1] != "--attach":
                spread.append("--attach")
            spread.append(arg)
        return super().parse_args(ctx, spread)


@click.command(
    cls=_Submit,
    epilog="Examples: arkqueue submit papers batch.csv --id batch-17; jq … | arkqueue submit papers --id batch-18; arkqueue submit papers deposit.json --id m5 --attach scans/ cover.tif. "
    "stdout has only the run's name.",
)
@click.argument("archive", metavar="ARCHIVE")
@click.argument("file", metavar="[FILE|-]", default="-")
@click.option("--revision", metavar="REV", help="A number, or a SHA or a prefix of one (default: the head).")
@click.option("--branch", metavar="BRANCH", help="The branch (default: the main branch).")
@click.option("--id", "id", metavar="ID", help="Your own id for the submission: the same id makes no second run.")
@click.option("--hold", is_flag=True, help="Hold the run until somebody releases it.")
@click.option(
    "--attach",
    "attach",
    multiple=True,
    metavar="PATH...",
    help="Files to hand in beside it, or folders with files. Tasks find them in ARKQUEUE_ATTACHMENTS. An interrupted upload continues if you repeat the command with the same --id.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice([str(kind) for kind in PayloadKind]),
    help="The format of the document (default: by the file's name; JSON for standard input).",
)
@click.option("--end-upload", is_flag=True, help="Submit nothing; end the upload that --id has, so that the id is free again.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Change nothing; judge the document, and show what would run.")
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
    attach: tuple[str, ...],
    kind: str | None,
    end_upload: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Hand in a document, make a run of the tasks that are `on: submission`, and print its name.

    It is JSON, YAML, CSV with a header, or lines of text, 64 MiB at most. Without FILE it is read
    from standard input.
    """
    from arkqueue.cli.client import archive_path
    from arkqueue.names import submission_name

    refuse_revision(archive, "submit {} FILE")
    path = archive_path(archive)
    if end_upload:
        if id is None or attach or dry_run or file != "-":
            raise click.UsageError("--end-upload takes the archive and --id, and nothing else.")
        client.end_upload(f"{path}/uploads", {"Idempotency-Key": _header(id)})
        say(f"{visible(submission_name(archive, id))}: its upload has ended", err=True)
        return
    if file == "-" and sys.stdin.isatty():
        raise click.UsageError("name a FILE, or send the document to standard input.")
    media_type = MEDIA_TYPES[_kind(file, kind)]
    query: dict[str, Any] = {
        "revision": revision,
        "branch": branch,
        "hold": "true" if hold else None,
        "dry_run": "true" if dry_run else None,
    }
    with _opened(file, is_read_twice=bool(attach)) as payload:
        if attach and dry_run:
            found = _tried(client, path, payload, media_type, id, attach, query)
        elif attach:
            found = _with_attachments(client, path, payload, media_type, id, attach, query)
        else:
            headers = {} if id is None else {"Idempotency-Key": _header(id)}
            found = _hand_in(client, path, payload, media_type, headers, query)
    if dry_run and "tasks" in found and not as_json:
        say_proposal(found, found["note"], found["obstacles"])
        say("Nothing is made.", err=True)
        return
    if found["note"]:
        say(f"arkqueue: {on_one_line(found['note'])}", err=True)
    if as_json:
        print_json(found)
    elif found["run"] is None:
        say(f"{visible(found['full_name'])}: was handled, and {on_one_line(found['purged'])}", err=True)
    else:
        if found["run"]["state"] == "deleted":
            undelete = f"arkqueue undelete {shlex.quote(found['run']['full_name'])}"
            fault = f"was submitted before, and is deleted. To bring it back: {undelete}. Give a new submission an id of its own."
            say(f"arkqueue: {visible(found['full_name'])}: {fault}", err=True)
        say(found["run"]["full_name"])


def _hand_in(
    client: Client, path: str, payload: IO[bytes], media_type: str, headers: dict[str, str], query: dict[str, Any]
) -> Any:
    """The server's answer; None: attachments are missing. All faults of the document are printed
    before the error is raised.
    """
    from arkqueue.cli.client import Refused

    try:
        return client.hand_in(f"{path}/submissions", payload, media_type, headers, **query)
    except Refused as refused:
        raise _said(refused) from None


def _tried(
    client: Client, path: str, payload: IO[bytes], media_type: str, id: str | None, attach: Sequence[str], query: dict[str, Any]
) -> Any:  # fmt: skip
    """Let the server check the document. The attachments must exist here, but are not sent."""
    from arkqueue.cli import attach as attaching

    attaching.files_of(attach)
    headers = {"Idempotency-Key": _header(id or secrets.token_hex(8))}
    return _hand_in(client, path, payload, media_type, headers, query | {"attachments": "true"})


def _with_attachments(
    client: Client, path: str, payload: IO[bytes], media_type: str, id: str | None, attach: Sequence[str], query: dict[str, Any]
) -> Any:  # fmt: skip
    """Let the server check the document, send the files, and make the run."""
    from arkqueue.cli import attach as attaching
    from arkqueue.cli.client import Refused, Unreachable

    files = attaching.files_of(attach)
    given, id = id, id or secrets.token_hex(8)
    headers, query = {"Idempotency-Key": _header(id)}, query | {"attachments": "true"}
    try:
        files, upload = attaching.announce(client, path, headers, files)
    except Refused as refused:
        raise _said(refused) from None
    try:
        found = _hand_in(client, path, payload, media_type, headers, query)
    except Refused:
        if upload["id"] is not None and not any(file["received"] for file in upload["attachments"]):
            with suppress(Refused, Unreachable):
                client.end_upload(f"{path}/uploads", headers)  # nothing has arrived, so the id is free again
        raise
    if found is not None:
        return found
    try:
        attaching.send(client, upload, files)
        payload.seek(0)
        found = _hand_in(client, path, payload, media_type, headers, query)
    except BaseException as error:
        if isinstance(error, Unreachable | Refused | KeyboardInterrupt):
            attaching.remind(f"the same command{'' if given else f' with --id {id}'}")
        raise
    if found is None:
        raise Unreachable(client.url, "has lost attachments while they were sent", "Submit it again with the same id.")
    return found


def _said(refused: Refused) -> Refused:
    """Print the faults of a document, each on a line. Returns the refusal, which has their number,
    and names the option of an invalid id.
    """
    from arkqueue.cli.client import Refused

    for fault in refused.faults:
        say(visible(fault), err=True)
    count = len(refused.faults)
    fault = f"has {count} fault{'s' * (count != 1)}" if count else refused.fault
    thing = "--id" if refused.thing == "Idempotency-Key" else refused.thing
    return Refused(refused.status, thing, fault, refused.remedy, refused.faults, refused.refusals)


@contextmanager
def _opened(file: str, *, is_read_twice: bool) -> Iterator[IO[bytes]]:
    """The opened document."""
    if file == "-" and not is_read_twice:
        yield sys.stdin.buffer
    elif file == "-":
        with tempfile.TemporaryFile() as kept:
            shutil.copyfileobj(sys.stdin.buffer, kept)
            kept.seek(0)
            yield kept
    else:
        size = (path := Path(file)).stat().st_size
        if size > LONGEST_PAYLOAD:
            raise click.UsageError(f"{path} has {size:,} bytes, more than {LONGEST_PAYLOAD:,}. Hand it in as several.")
        with path.open("rb") as opened:
            yield opened


def _kind(file: str, given: str | None) -> PayloadKind:
    if given is not None:
        return PayloadKind(given)
    if file == "-":
        return PayloadKind.JSON
    kind = KINDS.get(Path(file).suffix.lower())
    if kind is None:
        raise click.UsageError(
            f"{file}: its name does not show its format. Name the format: --format json, yaml, csv or lines."
        )
    return kind


def _header(id: str) -> str:
    """An id in a header: the bytes of UTF-8, each as one character."""
    if not id.isprintable():
        raise click.BadParameter("write characters that can be seen.", param_hint="--id")
    return id.encode().decode("latin-1")
