"""Logs over HTTP: bytes as they are, in pages, and followed while they grow."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator

import httpx
import pytest

from arkqueue.db.session import Session
from arkqueue.logs import Logs, LogWriter
from arkqueue.model import End, Stream
from arkqueue.queue import tokens
from arkqueue.queue.tokens import Scope
from tests.builders import AnArchive, a_gateway, an_archive
from tests.system.web.conftest import PLAIN, Client, problem


class Writing:
    """A running attempt and the log that it writes."""

    def __init__(self, session: Session, head: int = 1 << 20, tail: int = 15 << 20) -> None:
        self.archive: AnArchive = an_archive(session)
        self.archive.commit({"a": ""})
        self.attempt = self.archive.attempt("a@2")
        self.logs = Logs(a_gateway(session), head, tail)
        self.writer: LogWriter = self.logs.open(self.attempt)
        self.path = f"/attempts/{self.attempt}/log"

    def write(self, data: bytes, stream: Stream = Stream.STDOUT) -> None:
        self.writer.write(stream, data)
        self.logs.flush([self.writer])

    def end(self) -> None:
        self.archive.end("a@2", 0, End.EXITED)


@pytest.fixture
def writing(session: Session) -> Writing:
    return Writing(session)


def events(lines: Iterator[str]) -> Iterator[tuple[str, dict[str, object]]]:
    """(event, data) of server-sent events."""
    kind = ""
    for line in lines:
        if line.startswith("event: "):
            kind = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield kind, json.loads(line.removeprefix("data: "))


def test_log_is_given_as_it_was_written(reader: httpx.Client, writing: Writing) -> None:
    data = b"\x00\xff\x1b[31mred\r\n\xc3(" + bytes(range(256))
    writing.write(data)
    writing.write(b"err\n", Stream.STDERR)
    answer = reader.get(writing.path)
    assert answer.content == data + b"err\n"
    assert answer.headers["content-type"].startswith("text/plain")
    size = str(len(data) + 4)
    assert (answer.headers["log-next-offset"], answer.headers["log-size"]) == (size, size)
    assert answer.headers["log-complete"] == "false"
    writing.end()
    assert reader.get(writing.path, params={"offset": size}).headers["log-complete"] == "true"


def test_log_is_read_in_pages(reader: httpx.Client, writing: Writing) -> None:
    data = b"".join(b"%07d\n" % n for n in range(20_000))
    writing.write(data)
    writing.end()
    read, offset, complete = b"", 0, "false"
    while complete == "false":
        answer = reader.get(writing.path, params={"offset": offset, "limit": 50_000})
        assert answer.content
        read += answer.content
        offset, complete = int(answer.headers["log-next-offset"]), answer.headers["log-complete"]
    assert read == data


def test_cut_of_a_long_log_is_told(reader: httpx.Client, session: Session) -> None:
    writing = Writing(session, head=1000, tail=1000)
    data = b"x" * 1000 + b"y" * 500_000 + b"z" * 100_000
    for start in range(0, len(data), 10_000):
        writing.write(data[start : start + 10_000])
    writing.end()
    head = reader.get(writing.path)
    assert head.content == data[:1000]
    assert (head.headers["log-complete"], head.headers.get("log-cut")) == ("false", None)
    tail = reader.get(writing.path, params={"offset": head.headers["log-next-offset"]})
    cut = int(tail.headers["log-cut"])
    assert cut > 400_000
    assert tail.content == data[1000 + cut :]
    assert tail.headers["log-complete"] == "true"


def test_log_is_followed_until_the_attempt_ends(reader: httpx.Client, writing: Writing) -> None:
    writing.write(b"first\n")
    with reader.stream("GET", writing.path, headers={"Accept": "text/event-stream"}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        said = events(answer.iter_lines())
        kind, first = next(said)
        assert (kind, first["stream"], first["offset"], first["cut"]) == ("log", "stdout", 0, 0)
        assert base64.b64decode(str(first["data"])) == b"first\n"
        writing.write(b"second \xff\n", Stream.STDERR)
        kind, second = next(said)
        assert (second["stream"], second["offset"]) == ("stderr", 6)
        assert base64.b64decode(str(second["data"])) == b"second \xff\n"
        writing.end()
        assert next(said) == ("end", {"offset": 15, "size": 15})
        assert list(said) == []


def test_following_goes_on_after_the_last_event(reader: httpx.Client, writing: Writing) -> None:
    writing.write(b"first\nsecond\n")
    writing.end()
    headers = {"Accept": "text/event-stream", "Last-Event-ID": "6"}
    with reader.stream("GET", writing.path, headers=headers) as answer:
        said = list(events(answer.iter_lines()))
    assert [kind for kind, _ in said] == ["log", "end"]
    assert base64.b64decode(str(said[0][1]["data"])) == b"second\n"


def test_revoked_token_follows_no_further(client: Client, session: Session, writing: Writing) -> None:
    follower = client(Scope.READ)
    writing.write(b"first\n")
    with follower.stream("GET", writing.path, headers={"Accept": "text/event-stream"}) as answer:
        said = events(answer.iter_lines())
        assert next(said)[0] == "log"
        (token,) = tokens.tokens(session)
        tokens.revoke(session, token.id, "test")
        assert list(said) == []  # the stream ends, without an end of the log
    assert follower.get(writing.path).status_code == 401


def test_many_followers_hold_no_thread(reader: httpx.Client, writing: Writing) -> None:
    """More of them than the framework has threads, and the API still answers."""
    opened = threading.Semaphore(0)
    followers = 60

    def follow() -> None:
        headers = {"Authorization": reader.headers["Authorization"], "Accept": "text/event-stream"}
        url = str(reader.base_url).rstrip("/") + writing.path
        try:
            with httpx.stream("GET", url, headers=headers, **PLAIN) as answer:
                said = events(answer.iter_lines())
                assert next(said)[0] == "log"
                opened.release()
                ends.append([kind for kind, _ in said])
        finally:
            opened.release()

    ends: list[list[str]] = []
    writing.write(b"x")
    threads = [threading.Thread(target=follow) for _ in range(followers)]
    for thread in threads:
        thread.start()
    for _ in range(followers):
        opened.acquire()
    assert reader.get(writing.path).content == b"x"
    writing.end()
    for thread in threads:
        thread.join()
    assert ends == [["end"]] * followers


def test_unknown_attempt_has_no_log(reader: httpx.Client, hook: httpx.Client, writing: Writing) -> None:
    problem(reader.get("/attempts/999/log"), 404, "attempt 999")
    problem(reader.get("/attempts/999/log", headers={"Accept": "text/event-stream"}), 404, "attempt 999")
    problem(reader.get(writing.path, params={"offset": -1}), 422, "offset")
    problem(hook.get(writing.path), 403)


def test_removed_log_is_told_in_its_place_to_who_reads_and_who_follows(
    admin: httpx.Client, operator: httpx.Client, reader: httpx.Client, writing: Writing
) -> None:
    secret = b"hunter2-is-the-password\n" * 20
    writing.write(secret)
    call = f"/tasks/{writing.archive.task('a@2')}/purge"
    problem(admin.post(call, json={"log": True, "reason": "it leaked"}), 409, "no attempt that has ended")
    writing.end()
    problem(operator.post(call, json={"log": True, "reason": "it leaked"}), 403, "scope")
    problem(admin.post(call, json={"reason": "it leaked"}), 422, "removes nothing")

    tried = admin.post(f"{call}?dry_run=true", json={"log": True, "reason": "it leaked"}).json()
    assert reader.get(writing.path).content == secret

    done = admin.post(call, json={"log": True, "reason": "it leaked"}).json()

    assert done == tried
    assert (done["full_name"], done["logs"], done["live"]) == ("papers@2/a", 1, 0)
    answer = reader.get(writing.path)
    assert answer.text.startswith("The log was removed on ")
    assert answer.text.endswith(" by admin test, because it leaked\n")
    assert answer.headers["Log-Complete"] == "true"
    for start in (0, 24):
        headers = {"Accept": "text/event-stream"}
        with reader.stream("GET", writing.path, headers=headers, params={"offset": start}) as stream:
            said = list(events(stream.iter_lines()))
        assert [kind for kind, _ in said] == ["log", "end"]
        assert base64.b64decode(str(said[0][1]["data"])) == answer.content
    shown = reader.get(f"/attempts/{writing.attempt}").json()
    assert shown["log_removed"] == answer.text.rstrip("\n")
