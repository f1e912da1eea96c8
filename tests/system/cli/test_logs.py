"""Logs on the command line: made harmless, told apart, followed to their end."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from itertools import count
from types import SimpleNamespace

import pytest

from arkqueue.cli import find
from arkqueue.cli import logs as cli_logs
from arkqueue.cli.client import Client, Unreachable
from arkqueue.db.session import Session
from arkqueue.logs import Logs, LogWriter
from arkqueue.model import End, Stream
from arkqueue.queue import finish
from tests.builders import AnArchive, a_gateway, an_archive
from tests.system.cli.conftest import Cli, Server, Start, the_rest
from tests.web_servers import answering


class Writing:
    """``papers@2/a`` and its running attempt, whose log the test writes."""

    def __init__(self, session: Session, fields: str = "", head: int = 1 << 20, tail: int = 15 << 20) -> None:
        self.session = session
        self.archive: AnArchive = an_archive(session)
        self.archive.commit({"a": fields, "gate": "# gate"})
        self.logs = Logs(a_gateway(session), head, tail)
        self.begin()

    def begin(self) -> None:
        self.writer: LogWriter = self.logs.open(self.archive.attempt("a@2"))

    def write(self, data: bytes, stream: Stream = Stream.STDOUT) -> None:
        self.writer.write(stream, data)
        self.logs.flush([self.writer])

    def end(self, code: int = 0) -> None:
        self.archive.end("a@2", code, End.EXITED)


@pytest.fixture
def writing(session: Session) -> Writing:
    return Writing(session)


def said(process: subprocess.Popen[str]) -> str:
    """The next line of standard output."""
    assert process.stdout is not None
    return process.stdout.readline()


# Kept


def test_log_is_printed_with_its_streams_told_apart(arkqueue: Cli, writing: Writing) -> None:
    writing.write(b"one\n")
    writing.write(b"two\nthree", Stream.STDERR)
    writing.write(b"four")
    writing.writer.note("five")
    writing.logs.flush([writing.writer])
    done = arkqueue("logs", "papers@2/a")
    assert (done.code, done.err) == (0, "")
    assert done.out == "one\n[stderr] two\n[stderr] three\nfour\n[arkqueue] five\n"


def test_control_characters_are_seen_and_not_obeyed(arkqueue: Cli, writing: Writing) -> None:
    data = b"\x1b[2J\x1b]0;owned\x07 \xff \xc2\x9b31m \xe2\x80\xae \x00 tab\t caf\xc3\xa9\r\n 10%\r20%\n"
    writing.write(data)
    done = arkqueue("logs", "papers@2/a")
    assert done.out == ("\\x1b[2J\\x1b]0;owned\\x07 \\xff \\x9b31m \\u202e \\x00 tab\t café\n 10%\\x0d20%\n")
    assert arkqueue("logs", "papers@2/a", "--raw").raw == data


def test_raw_gives_each_stream_back_as_it_was_written(arkqueue: Cli, writing: Writing) -> None:
    writing.write(b"out \xe2\x82")
    writing.write(b"err\n", Stream.STDERR)
    writing.write(b"\xac no line break")
    done = arkqueue("logs", "papers@2/a", "--raw")
    assert done.raw == b"out \xe2\x82\xac no line break"
    assert done.err == "err\n"


def test_characters_and_line_ends_may_lie_across_chunks(capsys: pytest.CaptureFixture[str]) -> None:
    from base64 import b64encode

    # The pieces of a log arrive cut as the test says.
    printer = cli_logs._Printer()
    for data in (b"caf\xc3", b"\xa9\r", b"\nnext\r", b"\r\nlast\r"):
        printer.chunk({"stream": "stdout", "cut": 0, "data": b64encode(data).decode()})
    printer.end()
    assert capsys.readouterr().out == "café\nnext\\x0d\nlast\n"


def test_missing_middle_is_marked_where_it_is(arkqueue: Cli, session: Session) -> None:
    writing = Writing(session, head=10, tail=20)
    writing.write(b"0123456789")
    writing.write(b"x" * 70_000 + b"\n")
    writing.write(b"y" * 70_000 + b"\nthe end\n")
    writing.end()
    lines = arkqueue("logs", "papers@2/a").lines
    assert lines[0] == "0123456789"
    assert lines[1].startswith("[arkqueue] ")
    assert lines[1].endswith(" bytes are missing here: the log was too long")
    assert lines[-1] == "the end"
    assert "bytes are missing here" in arkqueue("logs", "papers@2/a", "--raw").err


def test_each_attempt_has_its_log_and_the_newest_is_printed(arkqueue: Cli, session: Session) -> None:
    writing = Writing(session)
    writing.write(b"first\n")
    writing.end(1)
    writing.archive.retry("a@2")
    writing.begin()
    writing.write(b"second\n")
    writing.end()
    assert arkqueue("logs", "papers@2/a").out == "second\n"
    assert arkqueue("logs", "papers@2/a", "--attempt", "1").out == "first\n"
    document = arkqueue("logs", "papers@2/a", "--attempt", "1", "--json").json
    assert document["attempt"]["number"] == 1
    assert [chunk["stream"] for chunk in document["chunks"]] == ["stdout"]
    done = arkqueue("logs", "papers@2/a", "--attempt", "3")
    assert (done.code, done.err) == (1, "arkqueue: papers@2/a: has no attempt 3. It has 2.\n")


def test_attempt_that_was_lost_with_its_task_manager_is_said_to_be(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    archive.end("a@2", None, End.LOST, message="its task manager died")
    done = arkqueue("logs", "papers@2/a", "--attempt", "1")
    assert (done.code, done.out, done.err) == (0, "", "attempt 1 was lost: its task manager died\n")


def test_task_without_a_log_says_why_there_is_none(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "gate": "# gate"})
    done = arkqueue("logs", "papers@2/a")
    assert done.code == 1
    assert done.err == (
        "arkqueue: papers@2/a: is ready and has not been started: there is no log. arkqueue explain papers@2/a\n"
    )
    assert "passed without a command" in arkqueue("logs", "papers@2/gate").err


# Followed


def test_follower_sees_lines_as_they_come_and_ends_with_the_task(started: Start, writing: Writing) -> None:
    process = started("logs", "papers@2/a", "-f")
    for number in range(3):
        writing.write(f"line {number}\n".encode())
        assert said(process) == f"line {number}\n"
    writing.end(3)
    out, err = the_rest(process)
    assert (process.returncode, out) == (0, "")
    assert err == "papers@2/a: failed (exit code 3)\n"


def test_follower_goes_on_through_retries(started: Start, session: Session) -> None:
    writing = Writing(session, "retries: {max: 1, delay: 0s}")
    process = started("logs", "papers@2/a", "-f")
    writing.write(b"first\n")
    assert said(process) == "first\n"
    writing.end(1)
    while writing.archive.state("a@2") != "ready":
        finish.wake_deferred(session)
    writing.begin()
    writing.write(b"second\n")
    assert said(process) == "second\n"
    writing.end()
    out, err = the_rest(process)
    # It may have looked when the task was ready again.
    told = [line for line in err.splitlines() if line != "papers@2/a is ready; why: arkqueue explain papers@2/a"]
    assert (process.returncode, out, told) == (0, "", ["attempt 2", "papers@2/a: completed"])


def test_follower_waits_for_a_task_that_has_not_started(started: Start, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    process = started("logs", "papers@2/a", "-f")
    assert process.stderr is not None
    assert process.stderr.readline() == "papers@2/a is ready; why: arkqueue explain papers@2/a\n"
    archive.cancel("a@2")
    out, err = the_rest(process)
    assert (process.returncode, out, err) == (0, "", "papers@2/a: canceled (canceled by ann)\n")


def test_follower_of_a_settled_task_prints_its_log_and_ends(arkqueue: Cli, writing: Writing) -> None:
    writing.write(b"all\n")
    writing.end()
    done = arkqueue("logs", "papers@2/a", "-f")
    assert (done.code, done.out, done.err) == (0, "all\n", "papers@2/a: completed\n")
    assert arkqueue("logs", "papers@2/gate", "--follow").err == "papers@2/gate: completed\n"


def test_follower_outlives_a_restart_of_the_server(started: Start, writing: Writing, server: Server) -> None:
    process = started("logs", "papers@2/a", "-f")
    writing.write(b"before\n")
    assert said(process) == "before\n"
    server.restart()
    writing.write(b"after\n")
    assert said(process) == "after\n"
    writing.end()
    out, err = the_rest(process)
    assert (process.returncode, out, err) == (0, "", "papers@2/a: completed\n")


def test_follower_that_begins_during_a_restart_waits_for_the_server(
    arkqueue: Cli, writing: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_task, away = find.find_task, [True, True]

    def away_once(client: Client, name: str) -> object:
        if away and away.pop():
            raise Unreachable(client.url, "answers, but has no database")
        return find_task(client, name)

    writing.write(b"all\n")
    writing.end()
    monkeypatch.setattr(find, "find_task", away_once)
    assert arkqueue("logs", "papers@2/a").code == 3, "nobody asked to wait"
    done = arkqueue("logs", "papers@2/a", "-f")
    assert (done.code, done.out) == (0, "all\n")
    assert not away


EVENT_STREAM = "200 OK\r\nContent-Type: text/event-stream"
ENDS = f"{EVENT_STREAM}\r\n\r\nevent: end\ndata: {{}}\n\n"
QUIET = f"{EVENT_STREAM}\r\n\r\n: nothing was written\n\n"
IS_CUT_OFF = f"{EVENT_STREAM}\r\nTransfer-Encoding: chunked\r\n\r\n400\r\n: nothing"
AWAY = f"503 Service Unavailable\r\nContent-Type: application/json\r\n\r\n{json.dumps({'detail': 'no database'})}"


@contextmanager
def saying(*answers: str) -> Iterator[str]:
    """A web server that gives these answers, one after the other, the last one for ever."""
    left = list(answers)

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(f"HTTP/1.1 {left.pop(0) if len(left) > 1 else left[0]}".encode())
        handler.close_connection = True

    with answering(answer) as url:
        yield url


@pytest.fixture
def each_look_takes_forty_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count(step=40)
    monkeypatch.setattr(cli_logs, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda _: None))


@pytest.mark.usefixtures("each_look_takes_forty_seconds")
@pytest.mark.parametrize("between", [QUIET, IS_CUT_OFF], ids=["quiet", "cut off"])
def test_follower_of_a_quiet_task_outlives_any_number_of_restarts(between: str) -> None:
    """It gave up as soon as two outages were a minute apart, as nothing had come between them."""
    with saying(*[AWAY, between] * 5, ENDS) as url:
        assert list(cli_logs.coming(Client(url, None), 1)) == []


@pytest.mark.usefixtures("each_look_takes_forty_seconds")
def test_follower_gives_up_where_the_server_stays_away() -> None:
    with saying(AWAY) as url, pytest.raises(Unreachable, match="has no database"):
        list(cli_logs.coming(Client(url, None), 1))
