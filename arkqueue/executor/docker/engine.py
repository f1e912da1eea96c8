"""The connection to a Docker engine: one client for all threads of an executor, its streams, and
the words for its refusals.

The SDK's low-level client carries every call. Further needs (a timeout of one call, streams that
another thread can close, the engine's log with its stream numbers) are built on the session of this
client. This module only reports a refusal; the other modules of the Docker executor, which call it,
decide what the refusal means for a task. Importing it takes the time to import the SDK, so the
executor's users import it late.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import docker
import requests
import urllib3
from docker import auth
from docker.errors import APIError, DockerException
from docker.utils import parse_repository_tag, version_lt

from arkqueue.errors import EngineFault

DEFAULT_URL = "unix:///var/run/docker.sock"
CALL_TIMEOUT = 120.0
"""The seconds for a call: an engine under load takes its time to create and start a container."""
FIRST_ANSWER = 10.0
"""The seconds for the first answer, before a task or the start of a server relies on an engine that
may hang.
"""
CHUNK = 256 * 1024
"""The bytes of one read of a stream."""

NOT_FOUND, CONFLICT = 404, 409
ONE_SHOT = "1.41"
"""The version of the API from which on an engine reads a container's figures once. Earlier ones
read them twice, a second apart.
"""
SEE = "See its log, or restart it"
"""The remedy for an engine that is there, but faulty."""


class EngineUnavailable(EngineFault):
    """No engine answers. The task is not at fault: the call may be repeated when the engine is
    back. An engine that only hangs does not count.
    """

    def __init__(self, url: str, reason: object) -> None:
        why = _innermost(reason)
        self.is_away = "timed out" not in why
        remedy = "Start the engine, or correct its address and the rights to its socket"
        super().__init__(
            f"Docker engine at {url}",
            f"it does not answer ({why})",
            remedy if self.is_away else SEE,
        )


class Silence(Exception):
    """The engine exists, but has sent nothing about a call for too long."""


class Flow:
    """Bytes that the engine sends, until it or ``hang_up`` in another thread ends them. One thread
    iterates over them.

    The engine does not notice the end of a container whose attached connection is full. So if a
    sink blocks the reading thread, another thread may read ahead for it.
    """

    def __init__(self, response: requests.Response, upgraded: bool) -> None:
        self._response, self._upgraded = response, upgraded
        # A descriptor of our own on the same connection: it can be shut down while another thread
        # reads.
        self._socket = socket.socket(fileno=os.dup(response.raw.fileno()))
        self._socket.setblocking(True)
        self._reading = threading.Lock()
        self._ahead: deque[bytes] = deque()
        self._is_closed = False
        self.is_broken = False

    def __iter__(self) -> Iterator[bytes]:
        """The bytes that arrive. Afterwards, ``is_broken`` says whether the stream broke off, if
        this can be known: an attached stream just ends.
        """
        try:
            if self._upgraded:
                while data := self._next():
                    yield data
            else:
                yield from self._response.raw.stream(CHUNK, decode_content=False)
        except (OSError, urllib3.exceptions.HTTPError):
            self.is_broken = True

    def _next(self) -> bytes:
        with self._reading:
            return self._ahead.popleft() if self._ahead else self._socket.recv(CHUNK)

    def read_ahead(self, seconds: float) -> None:
        """Read ahead until the end, for at most ``seconds``, for the iterating thread. It does
        nothing while that thread reads itself.
        """
        until = time.monotonic() + seconds
        if not self._upgraded or not self._reading.acquire(timeout=seconds):
            return
        try:
            if self._is_closed:
                return
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            while (rest := until - time.monotonic()) > 0:
                if not poll.poll(rest * 1000) or not (data := self._socket.recv(CHUNK)):
                    return
                self._ahead.append(data)
        except OSError:
            return
        finally:
            self._reading.release()

    def hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.hang_up()
        with self._reading:
            self._is_closed = True
            self._socket.close()
        self._response.close()


class Engine:
    """One Docker engine. Any thread may call it; the first call connects."""

    def __init__(self, url: str | None = None) -> None:
        self.url = url or DEFAULT_URL
        self._lock = threading.Lock()
        self._api: docker.APIClient | None = None

    @property
    def socket_path(self) -> str | None:
        """The engine's socket as a path of this host; None if it is reached in another way."""
        scheme, _, path = self.url.partition("://")
        return "/" + path.lstrip("/") if scheme in ("unix", "http+unix") else None

    @contextlib.contextmanager
    def calls(self) -> Iterator[docker.APIClient]:
        """The SDK's client. The block raises ``APIError`` for a refusal of the engine, and
        EngineUnavailable if there is no engine.
        """
        try:
            self._knock()
            yield self._client()
        except APIError:
            raise
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            raise EngineUnavailable(self.url, error) from None

    def post(self, path: str, timeout: float, **params: Any) -> dict[str, Any]:
        """One call with a timeout of its own; the SDK has one timeout for all."""
        with self.calls() as api:
            response = api.post(_url(api, path), params=params, timeout=timeout)
            _raise_refusal(response)
            answer: dict[str, Any] = response.json() if response.content else {}
            return answer

    def ping(self, timeout: float | None = None) -> None:
        """Raise EngineFault if the engine does not answer correctly within ``timeout`` seconds
        (None: ``FIRST_ANSWER``).
        """
        try:
            with self.calls() as api:
                _raise_refusal(api.get(_url(api, "/_ping"), timeout=timeout or FIRST_ANSWER))
        except APIError as error:
            raise EngineFault(f"Docker engine at {self.url}", f"it does not work ({said(error)})", SEE) from None

    def answers(self, timeout: float) -> bool:
        try:
            self.ping(timeout)
        except EngineFault:
            return False
        return True

    def wait(self, container: str, timeout: float) -> bool:
        """Wait for a container for at most ``timeout`` seconds. Returns whether it has ended."""
        with self.calls() as api:
            try:
                api.wait(container, timeout=(CALL_TIMEOUT, timeout))
            except requests.RequestException as error:
                if not _is_silence(error):
                    raise
                return False
        return True

    def pull(self, name: str, silence: float) -> Iterator[dict[str, Any]]:
        """The engine's messages while it fetches an image. Raises Silence if no message arrives for
        ``silence`` seconds; the SDK would wait for ever.

        When the caller stops reading, the connection is closed, and the engine stops fetching.
        """
        repository, tag = parse_repository_tag(name)
        with self.calls() as api:
            # Not the client's own configuration: the client reads it once, but people may log in
            # later.
            login = auth.load_config().resolve_authconfig(auth.resolve_repository_name(repository)[0])
            try:
                with api.post(
                    _url(api, "/images/create"),
                    params={"fromImage": repository, "tag": tag or "latest"},
                    headers={"X-Registry-Auth": auth.encode_header(login)} if login else {},
                    timeout=(CALL_TIMEOUT, silence),
                    stream=True,
                ) as response:
                    _raise_refusal(response)
                    yield from (json.loads(line) for line in response.iter_lines() if line)
            except requests.RequestException as error:
                if not _is_silence(error):
                    raise
                raise Silence from None

    def stats(self, container: str, timeout: float) -> dict[str, Any]:
        """The engine's figures of a running container, read once; empty if the engine is too old to
        read them only once.
        """
        with self.calls() as api:
            if version_lt(api.api_version, ONE_SHOT):
                return {}
            once = {"stream": 0, "one-shot": 1}
            response = api.get(_url(api, f"/containers/{quote(container)}/stats"), params=once, timeout=timeout)
            _raise_refusal(response)
            found: dict[str, Any] = response.json()
            return found

    def pid(self, container: str, timeout: float) -> int:
        """The process id of a container's first process on the engine's host; 0 if none runs."""
        with self.calls() as api:
            response = api.get(_url(api, f"/containers/{quote(container)}/json"), timeout=timeout)
            _raise_refusal(response)
            return int(response.json()["State"]["Pid"])

    def events(self) -> list[dict[str, Any]]:
        """The events that the engine remembers, oldest first."""
        with self.calls() as api:
            return list(api.events(since=1, until=time.time(), decode=True))

    def keeps_containers(self) -> bool:
        """Whether the engine leaves containers running during a restart, and then knows how they
        ended.
        """
        with self.calls() as api:
            return bool(api.info().get("LiveRestoreEnabled"))

    def attach(self, container: str) -> Flow:
        """The live output of a container from now on."""
        with self.calls() as api:
            response = api.post(
                _url(api, f"/containers/{quote(container)}/attach"),
                params={"stream": 1, "stdout": 1, "stderr": 1},
                headers={"Connection": "Upgrade", "Upgrade": "tcp"},
                timeout=CALL_TIMEOUT,
                stream=True,
            )
            _raise_refusal(response)
            return Flow(response, upgraded=True)

    def log(self, container: str, follow: bool) -> Flow:
        """The engine's log of a container from its beginning, each frame with its time; with
        ``follow``, until the container ends.
        """
        with self.calls() as api:
            response = api.get(
                _url(api, f"/containers/{quote(container)}/logs"),
                params={"stdout": 1, "stderr": 1, "timestamps": 1, "follow": int(follow)},
                timeout=(CALL_TIMEOUT, None),
                stream=True,
            )
            _raise_refusal(response)
            return Flow(response, upgraded=False)

    def has_folder(self, container: str, path: str) -> bool:
        """Whether a path exists in a container, with links followed as a program there would. A
        file counts, too: the engine refuses it as a working folder.
        """
        with self.calls() as api:
            place = {"path": f"{path.rstrip('/')}/."}
            found = api.head(_url(api, f"/containers/{quote(container)}/archive"), params=place, timeout=CALL_TIMEOUT)
            return bool(found.status_code != NOT_FOUND)

    def close(self) -> None:
        with self._lock:
            api, self._api = self._api, None
        if api is not None:
            api.close()

    def _knock(self) -> None:
        """Raise OSError if nobody listens. The SDK would find this out, too, but it leaves the
        socket of its attempt open.
        """
        if self.socket_path is not None:
            with socket.socket(socket.AF_UNIX) as door:
                door.settimeout(CALL_TIMEOUT)
                door.connect(self.socket_path)

    def _client(self) -> docker.APIClient:
        with self._lock:
            if self._api is None:
                try:
                    api = docker.APIClient(base_url=self.url, version="auto", timeout=FIRST_ANSWER)
                # Any error that prevented asking for the engine's version.
                except DockerException as error:
                    raise EngineUnavailable(self.url, error) from None
                # An engine is never behind a proxy, and looking up proxies costs more than the
                # call.
                api.trust_env = False
                api.timeout = CALL_TIMEOUT
                self._api = api
            return self._api


def _url(api: docker.APIClient, path: str) -> str:
    return f"{api.base_url}/v{api.api_version}{path}"


def _is_silence(error: requests.RequestException) -> bool:
    """Whether an error means that no answer came in time, not that the connection broke."""
    return isinstance(error, requests.ReadTimeout) or any(
        isinstance(part, urllib3.exceptions.ReadTimeoutError) for part in error.args
    )


def _raise_refusal(response: requests.Response) -> None:
    if response.status_code >= 400:
        try:
            response.raise_for_status()
        except requests.HTTPError as error:
            docker.errors.create_api_error_from_http_exception(error)
        finally:
            response.close()


def said(error: APIError) -> str:
    """The engine's message, on one line."""
    return " ".join(str(error.explanation or error).split())


def _innermost(reason: object) -> str:
    """The innermost cause in the errors that requests, urllib3 and the SDK wrap around each other."""
    while isinstance(reason, BaseException):
        inner = next((part for part in reversed(reason.args) if isinstance(part, BaseException)), None)
        inner = inner or getattr(reason, "reason", None) or reason.__cause__
        if not isinstance(inner, BaseException):
            break
        reason = inner
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror
    return str(reason) or type(reason).__name__
