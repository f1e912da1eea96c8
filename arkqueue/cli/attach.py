"""The attachments of ``arkqueue submit``: finds the files, announces them, and sends them in a way
that survives a connection that breaks at any byte (design 5.31).

files_of    the files that paths name
announce    computes their digests, and asks the server which parts it already has
send        sends the missing parts in pieces; each is on the server's disk when the server answers
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from arkqueue.cli.output import say
from arkqueue.text import visible

if TYPE_CHECKING:
    from arkqueue.cli.client import Client

PIECE = 64 << 20
"""The bytes that one call sends."""
READ = 1 << 18
"""The bytes that are read from a file at once."""
PATIENCE = 120.0
"""The seconds for which an unreachable server is tried again, counted from the last progress."""
PAUSE, LONGEST_PAUSE = 0.5, 8.0
"""The seconds between two such tries: the first pause, which doubles, and the longest pause."""


@dataclass(frozen=True, slots=True)
class File:
    """A file to send. ``name``: its name among the attachments. ``digest``: its SHA-256, once it is
    known.
    """

    path: Path
    name: str
    size: int
    digest: str = ""


def files_of(paths: Sequence[str]) -> list[File]:
    """The files that paths name. A folder stands for all files in it, under its own name. Raises
    UsageError.
    """
    found = []
    for given in paths:
        path = Path(given)
        base = Path(os.path.abspath(path)).name
        try:
            if not path.is_dir():
                found.append(_file(path, base, path.stat()))
                continue
            for at, folders, names in os.walk(path, onerror=_raise):
                folders.sort()
                for name in [*sorted(names), *(one for one in folders if (Path(at) / one).is_symlink())]:
                    one = Path(at) / name
                    found.append(_file(one, f"{base}/{one.relative_to(path)}", one.lstat()))
        except OSError as error:
            raise click.UsageError(f"--attach {error.filename or given}: {error.strerror}.") from None
    return found


def announce(client: Client, archive: str, headers: dict[str, str], files: Sequence[File]) -> tuple[list[File], Any]:
    """Announce the files to the server, with their digests, which this function computes. Returns
    the files in the order of their positions, and the server's facts of the upload.

    If an upload continues, the positions are those of the command that began it, in whatever order
    this one names the files.
    """
    known = [replace(file, digest=_digest(file)) for file in files]
    told = [{"name": file.name, "size": file.size, "digest": file.digest} for file in known]
    upload = client.begin_upload(f"{archive}/uploads", {"attachments": told}, headers)
    named = {file.name: file for file in known}
    return [named[there["name"]] for there in upload["attachments"]], upload


def send(client: Client, upload: Any, files: Sequence[File]) -> None:
    """Send the missing parts of an upload. An unreachable server is tried again for a while; after
    that, raises Unreachable. Also raises the refusals of the server.
    """
    for position, file in enumerate(files):
        there = upload["attachments"][position]
        if not there["is_there"]:
            _send(client, upload["id"], position, file, there["received"])


def _send(client: Client, upload: int, position: int, file: File, offset: int) -> None:
    from arkqueue.cli.client import Refused, Unreachable

    path, pause, last = f"/uploads/{upload}/{position}", PAUSE, time.monotonic()
    with file.path.open("rb") as stream, _Progress("sending", file) as progress:
        while True:
            try:
                length = min(PIECE, file.size - offset)
                stream.seek(offset)
                status, now = client.send_piece(path, _pieces(stream, length, file, progress), length, offset)
                if now == file.size and status == 204:
                    return
                offset, pause, last = now, PAUSE, time.monotonic()
                continue
            except Unreachable:  # and Busy
                if time.monotonic() - last > PATIENCE:
                    raise
            except Refused as refused:
                # Another call still works on the file, perhaps one of this command whose connection
                # broke; or that call has received more than this command knows; or the network is
                # too slow for the piece.
                if refused.status not in (408, 409, 423) or time.monotonic() - last > PATIENCE:
                    raise
            time.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
            try:
                there = client.get(f"/uploads/{upload}")["attachments"][position]
            except Unreachable:
                continue
            if there["is_there"]:
                return
            if there["received"] > offset:
                last = time.monotonic()
            offset = there["received"]


def _pieces(stream: Any, length: int, file: File, progress: _Progress) -> Iterator[bytes]:
    while length:
        piece = stream.read(min(READ, length))
        if not piece:
            raise click.ClickException(f"{visible(str(file.path))} has become shorter while it was sent. Submit it with another --id.")  # fmt: skip
        length -= len(piece)
        yield piece
        progress.at(stream.tell())


def _file(path: Path, name: str, status: os.stat_result) -> File:
    if not stat.S_ISREG(status.st_mode):
        kind = "a link" if stat.S_ISLNK(status.st_mode) else "no regular file"
        raise click.UsageError(f"--attach {visible(str(path))}: is {kind}. Name files, or folders with nothing else in them.")  # fmt: skip
    try:
        name.encode()
    except UnicodeEncodeError:
        raise click.UsageError(f"--attach {visible(str(path))}: its name is not UTF-8. Rename it.") from None
    return File(path, name, status.st_size)


def _digest(file: File) -> str:
    digest = hashlib.sha256()
    try:
        with file.path.open("rb") as stream, _Progress("reading", file) as progress:
            while piece := stream.read(1 << 20):
                digest.update(piece)
                progress.at(stream.tell())
    except OSError as error:
        raise click.UsageError(f"--attach {visible(str(file.path))}: {error.strerror}.") from None
    return digest.hexdigest()


def _raise(error: OSError) -> None:
    raise error


class _Progress:
    """Shows the progress of a long file on a terminal."""

    def __init__(self, verb: str, file: File) -> None:
        self._what, self._size = f"{verb} {visible(file.name)}", file.size
        self._is_shown = sys.stderr.isatty() and file.size > PIECE
        self._told = -1

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._told >= 0:
            click.echo("\r\x1b[K", nl=False, err=True)

    def at(self, offset: int) -> None:
        percent = offset * 100 // self._size if self._is_shown else -1
        if percent > self._told:
            self._told = percent
            click.echo(f"\r{self._what}: {percent} %", nl=False, err=True)


def remind(command: str) -> None:
    """Print how to continue an interrupted upload."""
    say(f"arkqueue: the server keeps the received bytes for a day. To continue: {command}", err=True)
