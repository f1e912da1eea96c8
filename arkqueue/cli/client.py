"""The client of the HTTP API: the address of the server, the token, and the meaning of its errors
for a person.

This module knows no command and prints nothing. It uses the standard library's ``http.client``,
because importing a richer client would take longer than a whole command.
"""

from __future__ import annotations

import http.client
import json
import os
import pwd
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from arkqueue.cli.program import beginning
from arkqueue.config_sources import client_settings
from arkqueue.errors import NO_CALL, NO_FIELD, ArkqueueError, ConfigurationError, Forbidden, Invalid, NotFound
from arkqueue.runtime.address import URL_FILE, is_served

if TYPE_CHECKING:
    from arkqueue.config import Configuration

TOKEN_FILE = "token"
MOST_AT_ONCE = 1 << 17
"""The bytes of events that are read at once."""
PATIENCE = 120.0
"""The seconds to wait for an answer, for which the server may have to read a repository."""
PATIENCE_FOR_PAYLOADS = 300.0
"""The seconds to wait for the answer to a submission. Checking a long one takes minutes."""


class Unreachable(ArkqueueError):
    """Nothing answers at the server's address, or no arkqueue that has a database."""

    exit_code = 3


class Busy(Unreachable):
    """The server is healthy, but too many callers want the same at once. The call may succeed
    later.
    """

    exit_code = 1


class Mismatch(ArkqueueError):
    """The server is an arkqueue of another version: it does not know a field of the request, or
    its answer lacks one.
    """


class Refused(ArkqueueError):
    """The server's answer is no. ``status``: the HTTP status. ``faults``: the single faults, if
    there are several. ``refusals``: for a verb on many tasks, the reason and the remedy of each
    refusal but the first.
    """

    def __init__(
        self,
        status: int,
        thing: str,
        fault: str,
        remedy: str,
        faults: Sequence[str] = (),
        refusals: Sequence[Any] = (),
    ) -> None:
        super().__init__(thing, fault, remedy)
        self.status, self.faults, self.refusals = status, faults, refusals
        if status == 422:
            self.exit_code = Invalid.exit_code


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event. ``id``: the place from which to continue. ``data``: its JSON, parsed."""

    kind: str
    id: str
    data: Any


def connect(home: str | None, config: str | None, server: str | None) -> Client:
    """The client for the options of the command line and the configuration."""
    file = Path(config) if config else None
    configuration = client_settings(os.environ, file, home, server) or _whole(file, home, server)
    # No guess: the token of this home folder is for the server of this home folder. It must not be
    # sent to another program that listens at the usual port while the server is down, nor to
    # another server that is named.
    own = _line(configuration.home / URL_FILE)
    url = configuration.server or own
    if url is None:
        remedy = "Start it with `arkqueue serve`, or name another one with --server URL."
        raise Unreachable(f"the server of {configuration.home}", "is not running", remedy)
    try:
        client = Client(url.rstrip("/"), configuration.token)
    except ConfigurationError as error:
        if server is None:
            raise
        raise Invalid(f"--server {server!r}", error.fault, error.remedy) from error
    if client.token is None and own is not None and client.address == Client(own, None).address:
        client.token = _line(configuration.home / TOKEN_FILE)
    if own is not None and (configuration.server is None or (configuration.token is None and client.token is not None)):
        # The address or the token comes only from the home folder, and by now another program may
        # listen at the address.
        client.is_proven = partial(is_served, configuration.home / URL_FILE, own)
    return client


def _whole(file: Path | None, home: str | None, server: str | None) -> Configuration:
    """The whole configuration, for `connect`. Imported only here: `config_sources`."""
    with beginning():
        from arkqueue.config import Configuration

        return Configuration.load(file=file, home=home, server=server)


def archive_path(name: str) -> str:
    """The path of an archive. A text that cannot be a name is not sent, because servers resolve
    slashes and dots before they look it up.
    """
    if not name or "/" in name or name in (".", ".."):
        raise NotFound(f"archive {name}", "does not exist", "See `arkqueue archive list`.")
    return f"/archives/{quote(name, safe='')}"


class Client:
    """Calls the server. Every call raises `Refused` if the server refuses, and `Unreachable` if it
    does not answer.
    """

    def __init__(self, url: str, token: str | None) -> None:
        self.url, self.token = url if "://" in url else f"http://{url}", token
        self.is_proven: Callable[[], bool] = lambda: True
        """Whether the intended server is alive; checked on each connection, before anything is
        sent.
        """
        self.answered = 0
        """The number of successful answers, including those whose contents were cut off."""
        try:
            parts = urlsplit(self.url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError(url)
            parts.hostname.encode("idna")  # fails where the resolver would fail
            self._host, self._port, self._tls = parts.hostname, parts.port, parts.scheme == "https"
        except ValueError as error:
            remedy = "Write it like http://127.0.0.1:8417."
            raise ConfigurationError(f"server {url!r}", "is not a valid address", remedy) from error
        self._base = quote(parts.path.rstrip("/"), safe="/%")

    @property
    def address(self) -> tuple[bool, str, int, str]:
        """The address of the server, in one spelling."""
        host = "127.0.0.1" if self._host == "localhost" else self._host
        return self._tls, host, self._port or (443 if self._tls else 80), self._base

    def get(self, path: str, **query: Any) -> Any:
        """The answer of GET at a path. A parameter that is None is left out. A list repeats its
        parameter.
        """
        return self.send("GET", path, **query)

    def post(self, path: str, body: Any = None, **query: Any) -> Any:
        return self.send("POST", path, body, **query)

    def send(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """The JSON of an answer; None if it has none."""
        with self._answer(method, path, body, query, "application/json") as answer:
            return self._json(answer)

    def hand_in(self, path: str, payload: IO[bytes], media_type: str, headers: Mapping[str, str], **query: Any) -> Any:
        """Post a file unchanged, in pieces."""
        with self._answer(
            "POST", path, payload, query, "application/json", headers, media_type, PATIENCE_FOR_PAYLOADS
        ) as answer:
            return self._json(answer)

    def begin_upload(self, path: str, body: Any, headers: Mapping[str, str]) -> Any:
        """Announce attachments."""
        with self._answer("POST", path, body, {}, "application/json", headers, None, PATIENCE_FOR_PAYLOADS) as answer:
            return self._json(answer)

    def end_upload(self, path: str, headers: Mapping[str, str]) -> None:
        """End an upload of attachments."""
        with self._answer("DELETE", path, None, {}, "application/json", headers):
            pass

    def send_piece(self, path: str, pieces: Iterable[bytes], length: int, offset: int) -> tuple[int, int]:
        """Append ``length`` bytes to an attachment, of which ``offset`` bytes have arrived. Returns
        the HTTP status, and the number of bytes that have arrived then.
        """
        headers = {"Upload-Offset": str(offset), "Content-Length": str(length)}
        kind = "application/offset+octet-stream"
        with self._answer("PATCH", path, pieces, {}, "application/json", headers, kind) as answer:
            try:
                return answer.status, int(answer.headers["Upload-Offset"])
            except (TypeError, ValueError):
                raise self._unreachable("something answers there, but it is not arkqueue") from None

    def fetch(self, path: str) -> Iterator[bytes]:
        """Download a path, in pieces, without decoding it."""
        with self._answer("GET", path, None, {}, "*/*") as answer:
            while piece := answer.read(MOST_AT_ONCE):
                yield piece

    def events(self, path: str, **query: Any) -> Iterator[Event]:
        """Server-sent events until the server ends them."""
        with self._answer("GET", path, None, query, "text/event-stream") as answer:
            kind, id, data = "message", "", list[bytes]()
            for line in _lines(answer):
                # As bytes: a part of a log is one long line, and each step towards a text would
                # copy it.
                field, _, value = line.partition(b":")
                value = value.removeprefix(b" ")
                match field:
                    case b"event":
                        kind = value.decode()
                    case b"id":
                        id = value.decode()
                    case b"data":
                        data.append(value)
                if not line:
                    if data:
                        yield Event(kind, id, self._parse(b"\n".join(data)))
                    kind, data = "message", []

    @contextmanager
    def _answer(
        self,
        method: str,
        path: str,
        body: Any,
        query: dict[str, Any],
        accept: str,
        more: Mapping[str, str] = MappingProxyType({}),
        media_type: str | None = None,
        patience: float | None = None,
    ) -> Iterator[http.client.HTTPResponse]:
        """Send a request. ``media_type``: the type of a body that is a file; without it, the body
        is sent as JSON. ``patience``: the seconds to wait for the server; by default ``PATIENCE``.
        """
        patience = PATIENCE if patience is None else patience
        headers = {"Accept": accept, "Connection": "close", **more}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        if name := user():
            headers["Arkqueue-User"] = name
        data: Any = None
        if media_type is not None:
            data, headers["Content-Type"] = body, media_type
        elif body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        given = {name: value for name, value in query.items() if value is not None and value != ()}
        target = f"{self._base}/api/v1{path}" + (f"?{urlencode(given, doseq=True)}" if given else "")
        kind = http.client.HTTPSConnection if self._tls else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=patience)
        try:
            connection.connect()
            if not self.is_proven():
                raise self._unreachable("its home folder says that it has ended; whoever answers there is another")
            try:
                connection.request(method, target, data, headers)
            except (BrokenPipeError, ConnectionResetError):
                # A server that refuses a long body answers before all of it has arrived.
                with suppress(OSError, http.client.HTTPException):
                    raise self._refusal(connection.getresponse(), method, path) from None
                raise
            answer = connection.getresponse()
            if answer.status >= 300:
                raise self._refusal(answer, method, path)
            self.answered += 1
            yield answer
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, TimeoutError) and connection.sock is not None:
                fault, remedy = f"the server has not answered for {patience:.0f} s", "See its log, and try again."
                raise Unreachable(self.url, fault, remedy) from error
            raise self._unreachable(_said(error)) from error
        finally:
            connection.close()

    def _json(self, answer: http.client.HTTPResponse) -> Any:
        text = answer.read()
        if not text:
            return None
        try:
            return self._parse(text)
        except ValueError as error:
            fault = "the server cannot be reached (something answers there, but it is not arkqueue)"
            raise Unreachable(self.url, fault, "Name the right one with --server.") from error

    def _parse(self, text: bytes) -> Any:
        """The JSON of an answer. The use of a field that it lacks raises `Mismatch`."""
        return json.loads(text, object_hook=self._fields)

    def _fields(self, fields: dict[str, Any]) -> Any:
        return _Fields(fields, self.url)

    def _refusal(self, answer: http.client.HTTPResponse, method: str, path: str) -> ArkqueueError:
        """The error for an answer with a status of 300 or more. ``method``, ``path``: the call."""
        try:
            problem = json.loads(answer.read())
            status, detail = answer.status, str(problem["detail"])
        except (ValueError, KeyError, TypeError):
            return self._unreachable(f"something answers there (HTTP {answer.status}), but it is not arkqueue")
        thing, fault, remedy = (str(problem.get(key, "")) for key in ("thing", "fault", "remedy"))
        if status == 401:
            fault = "needs a token" if self.token is None else "does not know this token, or it is revoked"
            return Forbidden(
                self.url, fault, "Set ARKQUEUE_TOKEN, or use the home folder of its `arkqueue serve`, and its address."
            )
        if status == 503 and str(problem.get("type", "")).endswith("#problem-busy"):
            return Busy(thing, fault, remedy)
        if status == 503:
            return Unreachable(self.url, f"answers, but has no database: {detail}")
        if (status, fault) == (404, NO_CALL) or status == 405:
            return Refused(status, self.url, f"does not know this call ({method} {path})", _remedy(self.url))
        faults = [str(fault["message"]) for fault in problem.get("faults") or () if "message" in fault]
        if status == 422 and NO_FIELD in faults:
            return Mismatch(
                self.url, f"does not know a field of this call ({fault.partition(':')[0]})", _remedy(self.url)
            )
        refusals = problem.get("refused") or ()
        return Refused(status, thing or self.url, fault or detail, as_sentence(remedy), faults, refusals)

    def _unreachable(self, why: str) -> Unreachable:
        return Unreachable(
            self.url, f"the server cannot be reached ({why})", "Start it with `arkqueue serve`, or name another one with --server URL."
        )  # fmt: skip


class _Fields(dict[str, Any]):
    """The fields of an object in an answer."""

    def __init__(self, fields: dict[str, Any], url: str) -> None:
        super().__init__(fields)
        self.url = url

    def __missing__(self, field: str) -> Any:
        raise Mismatch(
            self.url, f"the server's answer lacks the field {field!r}, which this version expects", _remedy(self.url)
        )


def _remedy(url: str) -> str:
    """The remedy where the server seems to be an arkqueue of another version."""
    return f"Probably the server and the command line have different versions. Compare {url}/docs with arkqueue --version, and install the same version of both."


def as_sentence(remedy: str) -> str:
    """A remedy with a capital letter, unless it is a command."""
    return remedy if remedy.startswith("arkqueue ") else remedy[:1].upper() + remedy[1:]


def _lines(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    """The lines of an answer as they arrive. None is much longer than the bytes that are read at
    once; ``readline`` would read 8 KB at a time.
    """
    rest = b""
    while part := answer.read1(MOST_AT_ONCE):
        *lines, rest = (rest + part).split(b"\n")
        yield from (line.removesuffix(b"\r") for line in lines)


def _said(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error) or type(error).__name__


def _line(path: Path) -> str | None:
    """The text of a small file in the home folder; None if it does not exist or belongs to another
    user.
    """
    try:
        return path.read_text("utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def user() -> str:
    """The user of the command line, which the audit log stores beside the token's name."""
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return ""
    return name if name.isascii() and name.isprintable() else ""
