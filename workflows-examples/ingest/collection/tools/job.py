"""What the programs of a batch and of a job have in common: the item, the profile, the settings of the ingest host, HTTP, and how a program ends.

Each program is one state. It ends with 0 (go on), 65 (rejected: no retry helps), 75 (not now) or 1 (failed), and its last line says why.
"""

from __future__ import annotations

import errno
import hashlib
import http.client
import json
import os
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import IO, Any, NoReturn

import yaml

REJECTED, NOT_NOW = 65, 75
FULL = (errno.ENOSPC, errno.EDQUOT)
WAIT = 10
"""Seconds until a program looks again whether a full disk has room."""
PIECE = 1 << 20
PATIENCE = 30.0
"""Seconds that a service may say nothing."""
DIGESTS = ("md5", "sha1", "sha224", "sha256", "sha384", "sha512")
SIZES = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


class Rejected(Exception):
    """The input is wrong, and stays so."""


class Failed(Exception):
    """This time it did not work; a person may try again."""


class NotNow(Exception):
    """It may work later. ``after``: the seconds until then."""

    def __init__(self, message: str, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


def output(**values: Any) -> None:
    """Keep outputs of the task, at once."""
    with open(os.environ["ARKQUEUE_OUTPUT"], "a", encoding="utf-8") as file:
        file.writelines(f"{key}={value}\n" for key, value in values.items() if value is not None)
        file.flush()
        os.fsync(file.fileno())


def inputs() -> dict[str, dict[str, Any]]:
    """The outputs of the tasks that this one depends on."""
    return json.loads(Path(os.environ["ARKQUEUE_INPUTS"]).read_text("utf-8"))


def end(program: Any) -> NoReturn:
    """Run a program, and end as arkqueue understands it."""
    try:
        program()
    except Rejected as error:
        _end(REJECTED, f"rejected: {error}")
    except NotNow as error:
        if error.after is not None:
            output(**{"arkqueue.retry_after": error.after})
        _end(NOT_NOW, f"not now: {error}")
    except Failed as error:
        _end(1, f"failed: {error}")
    except OSError as error:
        if error.errno not in FULL:
            raise
        output(**{"arkqueue.retry_after": WAIT})
        _end(NOT_NOW, f"not now: the working storage is full: {error}")
    sys.exit(0)


def _end(code: int, message: str) -> NoReturn:
    message = one_line(message)
    print(message, file=sys.stderr)
    output(message=message[:1000])
    sys.exit(code)


def one_line(text: str) -> str:
    """A stranger's text on one line: a line break, or another control character, becomes a space. In a file of lines it would make a line of its own."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


class Job:
    """The object that a task works for. Fields have the names of Merritt's queue. What is known of the object (``erc_…``) is of one line."""

    def __init__(self, item: Mapping[str, Any] | None = None) -> None:
        self.item = dict(json.loads(os.environ["ARKQUEUE_ITEM"]) if item is None else item)

    def __getattr__(self, name: str) -> Any:
        value = self.item.get(name)
        return one_line(value) if name.startswith("erc_") and isinstance(value, str) else value

    @cached_property
    def profile(self) -> dict[str, Any]:
        return profile(self.profile_name)

    @cached_property
    def folder(self) -> Path:
        """The working folder, which goes when the job is completed or deleted."""
        return Path(os.environ["ARKQUEUE_SCRATCH"])

    @property
    def key(self) -> str:
        """What no other job of this ingest is called."""
        return f"{os.environ['ARKQUEUE_ARCHIVE']}/{self.job_id}"

    @property
    def producer(self) -> Path:
        """Where the depositor's files are."""
        return self.folder / "producer"

    @property
    def system(self) -> Path:
        """Where the files are that ingest makes."""
        return self.folder / "system"

    def read(self, name: str) -> Any:
        """What an earlier step left in the working folder."""
        return json.loads((self.folder / name).read_text("utf-8"))

    def write(self, name: str, value: Any) -> None:
        write(self.folder / name, json.dumps(value, indent=1).encode())


def write(path: Path, data: bytes) -> None:
    """Write a file as one: whoever is killed meanwhile leaves the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".new")
    with draft.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def profile(name: str) -> dict[str, Any]:
    """A profile of the collection. A name never leads out of its folder."""
    path = Path("profiles", f"{name}.yaml")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", str(name)) or not path.is_file():
        known = ", ".join(sorted(p.stem for p in Path("profiles").glob("*.yaml")))
        raise Rejected(f"profile {str(name)[:200]!r}: the collection has no such profile. Profiles: {known}")
    return yaml.safe_load(path.read_text("utf-8"))


def settings() -> dict[str, Any]:
    """Where the services of this ingest host are. Read anew each time: the host may be set up otherwise meanwhile."""
    return json.loads(Path(os.environ["INGEST_SETTINGS"]).read_text("utf-8"))


def service(name: str) -> str:
    return settings()["services"][name]


def size(text: str | int) -> int:
    """A size like ``1GiB`` in bytes."""
    match = re.fullmatch(r"([\d.]+)\s*(KiB|MiB|GiB|TiB)?", str(text))
    if not match:
        raise Rejected(f"size {text!r}: write it like 64MiB")
    return int(float(match[1]) * SIZES.get(match[2] or "", 1))


# -- content -----------------------------------------------------------------------------------------------------------


@contextmanager
def opened(url: str, method: str = "GET") -> Iterator[Any]:
    """An answer to a request for content, whose headers are in ``headers``. ``attachment:NAME`` is a file that was handed in beside the document."""
    if url.startswith("attachment:"):
        root = Path(os.environ.get("ARKQUEUE_ATTACHMENTS", "/nonexistent"))
        path = root / urllib.parse.unquote(url.removeprefix("attachment:"))
        if not path.resolve().is_relative_to(root.resolve()) or not path.is_file():
            raise Rejected(f"{url}: was not handed in. Give the file with --attach")
        with path.open("rb") as file:
            file_size = str(path.stat().st_size)
            yield _File(file, {"Content-Length": file_size})
        return
    if not url.startswith(("http://", "https://")):
        raise Rejected(f"{url[:200]}: is neither an http: or https: URL nor attachment:NAME")
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=PATIENCE) as answer:
            yield answer
    except urllib.error.HTTPError as error:
        raise Failed(f"{url}: {error.code} {error.reason}") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        if isinstance(error, OSError) and error.errno in FULL:
            raise  # of this host's disk, not of the network
        raise Failed(f"{url}: {getattr(error, 'reason', error)}") from None


class _File:
    def __init__(self, file: IO[bytes], headers: Mapping[str, str]) -> None:
        self.read, self.headers = file.read, headers


def pieces(file: Any) -> Iterator[bytes]:
    while piece := file.read(PIECE):
        yield piece


def digest(kind: str) -> Any:
    """A hash function by the name that manifests have for it."""
    name = kind.lower().replace("-", "")
    if name not in DIGESTS:
        raise Rejected(f"hash algorithm {kind[:200]!r}: is not known. Use md5, sha-1, sha-256 or sha-512")
    return hashlib.new(name)


# -- services ----------------------------------------------------------------------------------------------------------


def ask(method: str, url: str, body: Any = None, media_type: str = "application/json") -> Any:
    """Ask a service; what its JSON (or text) says. ``None``: it has none of this name."""
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": media_type}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            text = answer.read().decode()
            return json.loads(text) if answer.headers.get_content_type() == "application/json" else text
    except urllib.error.HTTPError as error:
        if error.code == 404 and method == "GET":
            return None
        raise Failed(f"{url}: {error.code} {error.read(500).decode('utf-8', 'replace')}") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise Failed(f"{url}: {getattr(error, 'reason', error)}") from None
