"""The programs of the example ``deposit`` and repositories with arbitrary answers: the task fails
with one line of text, and never deposits twice.
"""

from __future__ import annotations

import gzip
import importlib
import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any, ClassVar

import psutil
import pytest
from deposit import parts

MODULES = "task", "targets", "status_document", "transports", "transports.rest", "transports.sftp", "transports.folder"
ATOM = '<feed xmlns="http://www.w3.org/2005/Atom">{}</feed>'
SCHEME = "http://purl.org/net/sword/terms/state"


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The programs of the archive, as modules."""
    monkeypatch.syspath_prepend(parts.HERE / "archive" / "programs")
    yield SimpleNamespace(**{name.rpartition(".")[2]: importlib.import_module(name) for name in MODULES})
    for name in MODULES:
        sys.modules.pop(name, None)


def links(href: Any) -> bytes:
    return json.dumps({"_links": {key: {"href": href} for key in ("package", "status", "self")}}).encode()


class Answers(BaseHTTPRequestHandler):
    """A DSpace that says yes to everything, but for one step, whose answer a test gives: status, headers, body."""

    good: ClassVar = {
        "csrf": b"",
        "login": b"",
        "authn/status": b'{"_links": {"eperson": {"href": "http://x/1"}}}',
        "findBySubmitter": b'{"page": {"totalPages": 1}}',
        "discover": b'{"_embedded": {"searchResult": {"_embedded": {"objects": []}}}}',
        "submission/workspaceitems?": b'{"_embedded": {"workspaceitems": [{"id": 1}]}}',
        "workflowitems": links("/1"),
    }
    step = ""
    answer: tuple[int, dict[str, str], bytes] = (200, {}, b"")
    timeout = 10

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        step = next((name for name in self.good if name in self.path), "")
        status, headers, body = self.answer if step == self.step else (200, {}, self.good.get(step, b"{}"))
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_PATCH = do_DELETE = do_GET

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def a_dspace(step: str, answer: tuple[int, dict[str, str], bytes]) -> Iterator[str]:
    handler = type("Handler", (Answers,), {"step": step, "answer": answer})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/server/api"
        finally:
            server.shutdown()
            thread.join()


Deposit = Callable[[str], Any]


@pytest.fixture
def deposit(programs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deposit:
    """Send a package to a repository at an address, as ``send.py`` does."""
    monkeypatch.setenv("CREDENTIALS", str(tmp_path))
    (tmp_path / "rest").touch(0o600)
    (tmp_path / "rest").write_text('{"user": "u", "password": "p"}')
    (tmp_path / "package.zip").write_bytes(b"a package")

    def send(address: str) -> Any:
        target = programs.targets.Target("theses", "zip", "rest", address, collection="c", credentials="rest")
        with closing(programs.transports.connect(target)) as session:
            assert session.find("s-1.zip") is None
            return session.send("s-1.zip", tmp_path / "package.zip", {"title": "T", "date": "2026-05-04"})

    return send


GZIP = {"Content-Encoding": "gzip"}
STEP = "workflowitems"


@pytest.mark.parametrize(
    ("step", "answer", "said"),
    [
        ("login", (200, {"Authorization": "Bearer \xe4"}, b""), "is not DSpace's: UnicodeEncodeError"),
        ("authn/status", (200, {}, b"{}"), "is not DSpace's: KeyError: '_links'"),
        ("findBySubmitter", (200, {}, b"null"), "is not DSpace's: AttributeError"),
        ("findBySubmitter", (200, {}, b'{"page": {"totalPages": "x"}}'), "is not DSpace's: ValueError"),
        ("discover", (200, {}, b"<html>"), "answers with something that is not JSON: <html>"),
        ("discover", (200, {}, b"[" * 200_000), "is not DSpace's: RecursionError"),
        ("discover", (200, {}, b"[]"), "is not DSpace's: TypeError"),
        ("discover", (200, GZIP, b"garbage"), "is not DSpace's: DecodingError"),
        ("discover", (200, GZIP, gzip.compress(bytes(5_000_000))), "with more than 1048576 bytes"),
        ("discover", (302, {"Location": "http://example.org/"}, b""), "answers 302"),
        ("submission/workspaceitems?", (201, {}, b'{"_embedded": {"workspaceitems": []}}'), "IndexError"),
        (STEP, (422, {}, b'{"message": "no\\u001b[2J\\nway\\u202e"}'), "theses answers 422: no [2J way"),
        (STEP, (422, {}, b"[" * 200_000), "theses answers 422: [[["),
    ],
)
def test_an_answer_that_is_no_dspaces_fails_the_deposit_with_a_text(
    programs: Any, deposit: Deposit, step: str, answer: tuple[int, dict[str, str], bytes], said: str
) -> None:
    with a_dspace(step, answer) as address, pytest.raises(programs.task.Failure) as failed:
        deposit(address)
    assert said in str(failed.value)
    assert "not known" not in str(failed.value)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((201, {}, b"{}"), "KeyError: '_links'"),
        ((201, GZIP, b"garbage"), "incorrect header check"),
        ((201, {}, links("http://example.org/1")), "refers to http://example.org/1, which is not at http://127.0.0.1"),
        ((201, {}, links("/a\x1b[31m\n\u202e")), "refers to /a [31m, which is not a valid address"),
        ((201, {}, links("/" + "a" * 3000)), "which is not a valid address"),
        ((201, {}, links(5)), "AttributeError"),
        ((201, {}, links("http://[::1")), "Invalid IPv6 URL"),
        ((201, {}, bytes(2 << 20)), "with more than 1048576 bytes"),
        ((500, {}, b"oops"), "theses answers 500: oops"),
    ],
)
def test_after_the_step_that_deposits_an_odd_answer_leaves_it_unknown(
    programs: Any, deposit: Deposit, answer: tuple[int, dict[str, str], bytes], said: str
) -> None:
    with a_dspace(STEP, answer) as address, pytest.raises(programs.task.Failure) as failed:
        deposit(address)
    assert str(failed.value).startswith("theses: it is not known whether the deposit has arrived: ")
    assert said in str(failed.value)
    assert str(failed.value).endswith("`arkqueue retry` asks first.")


def test_good_answers_are_a_receipt(deposit: Deposit) -> None:
    with a_dspace("", (200, {}, b"")) as address:
        assert deposit(address).copy == address.removesuffix("/server/api") + "/1"


def test_what_a_status_document_says_is_of_one_line(programs: Any) -> None:
    said = '<category scheme="{}" term="a&#x9b;31m&#x202e;b">in&#10;review</category><link rel="alternate" href="http://x/&#10;&#x9b;2J"/>'
    found = programs.status_document.read(ATOM.format(said.format(SCHEME)).encode())
    assert (found.state, found.description, found.copy) == ("a 31m b", "in review", "http://x/ 2J")


@pytest.mark.parametrize(
    "text",
    [b"", b"<a/>", b"<!DOCTYPE a []><a/>", b'<?xml version="1.0" encoding="nonsense"?><a/>', ATOM.format("").encode()],
)
def test_a_document_that_is_no_status_is_a_failure(programs: Any, text: bytes) -> None:
    with pytest.raises(programs.task.Failure, match="the status document"):
        programs.status_document.read(text)


@pytest.mark.full
def test_an_ssh_server_that_stops_in_the_middle_does_not_answer(
    programs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if parts.Sshd.program() is None:
        pytest.skip("needs sshd (Debian: apt-get install openssh-server)")
    monkeypatch.setattr(programs.sftp, "PATIENCE", 2.0)
    monkeypatch.setenv("CREDENTIALS", str(tmp_path / "credentials"))
    with closing(parts.Sshd(tmp_path / "sshd")) as sshd:
        sshd.start()
        parts.credentials(tmp_path / "credentials", sshd=sshd)
        target = programs.targets.Target("mirror", **parts.sftp_target(sshd))
        (tmp_path / "package.zip").write_bytes(bytes(30_000_000))
        with closing(programs.transports.connect(target)) as session:
            sessions = psutil.Process(sshd.pid).children(recursive=True)
            assert sessions
            for child in sessions:
                child.send_signal(signal.SIGSTOP)
            try:
                for call in (
                    lambda: session.find("s-1.zip"),
                    lambda: session.send("s-1.zip", tmp_path / "package.zip", {}),
                ):
                    with pytest.raises(programs.task.Unreachable, match=r"mirror: .*the connection broke"):
                        call()
            finally:
                for child in sessions:
                    child.send_signal(signal.SIGCONT)
