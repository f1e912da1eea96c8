"""Attachments over HTTP: begun, sent in pieces that may break off anywhere, judged by their
digests, and given to the run of their submission (design 5.31).
"""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import httpx
import psycopg
import pytest

from arkqueue.cli import attach
from arkqueue.cli.client import Client as CommandLine
from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.model import End, Outcome, RunId
from arkqueue.queue import attachments, claim, deletion, finish, purge, submissions
from arkqueue.queue.tokens import Scope
from arkqueue.runtime.home import host_id
from arkqueue.web import ApiServer, connections, create_app, run_api
from arkqueue.web.api import uploads
from arkqueue.web.problems import Refused
from arkqueue.workspace import attachments as files
from tests.builders import AnArchive
from tests.requirements import a_mount
from tests.system.web.conftest import PLAIN, Client, problem
from tests.system.web.test_submissions import archive, submit
from tests.waiting import PATIENCE, eventually

__all__ = ["archive"]

UPLOADS = "/archives/papers/uploads"
OFFSET = {"Content-Type": "application/offset+octet-stream"}


@pytest.fixture(autouse=True)
def _manager(session: Session, configuration: Configuration, archive: AnArchive) -> None:  # noqa: ARG001
    """A task manager has the server's home folder."""
    configuration.home.mkdir(exist_ok=True)
    host = host_id(configuration.home)
    claim.register(session, "manager", host, "box", 4, store=host)


def told(**contents: bytes) -> dict[str, Any]:
    """What is announced of files."""
    known = [(name, len(data), hashlib.sha256(data).hexdigest()) for name, data in contents.items()]
    return {"attachments": [{"name": name, "size": size, "digest": digest} for name, size, digest in known]}


def begin(client: httpx.Client, id: str = "x", /, **contents: bytes) -> httpx.Response:
    return client.post(UPLOADS, json=told(**contents), headers={"Idempotency-Key": id})


def send(client: httpx.Client, path: str, offset: int, data: bytes) -> httpx.Response:
    return client.patch(path, content=data, headers=OFFSET | {"Upload-Offset": str(offset)})


def part(begun: httpx.Response, position: int = 0) -> str:
    return f"/uploads/{begun.json()['id']}/{position}"


def offset(client: httpx.Client, path: str) -> int:
    answer = client.head(path)
    assert answer.status_code == 200, answer.text
    return int(answer.headers["Upload-Offset"])


def kept(configuration: Configuration) -> dict[str, bytes]:
    """The files that tasks find, by their names."""
    found: dict[str, bytes] = {}
    for top in (configuration.scratch).glob("*/attachments/*/files"):
        found |= {str(one.relative_to(top)): one.read_bytes() for one in top.rglob("*") if one.is_file()}
    return found


@contextmanager
def half_sent(server: ApiServer, client: httpx.Client, path: str, at: int, data: bytes, length: int) -> Iterator[socket.socket]:  # fmt: skip
    """A call that has sent some of its body, and stays."""
    with socket.create_connection((server.host, server.port)) as connection:
        head = f"PATCH /api/v1{path} HTTP/1.1\r\nHost: x\r\nAuthorization: {client.headers['Authorization']}\r\nContent-Type: {OFFSET['Content-Type']}\r\nUpload-Offset: {at}\r\nContent-Length: {length}\r\n\r\n"
        connection.sendall(head.encode() + data)
        yield connection


def test_a_file_that_was_cut_off_goes_on_at_the_byte_where_it_stopped(
    operator: httpx.Client, server: ApiServer, configuration: Configuration, archive: AnArchive
) -> None:
    data = bytes(range(256)) * 1000
    begun = begin(operator, **{"scans/a.tif": data, "empty": b""})
    assert begun.status_code == 201
    assert begun.headers["Location"] == f"/api/v1/uploads/{begun.json()['id']}"
    assert [(one["name"], one["received"], one["is_there"]) for one in begun.json()["attachments"]] == [("scans/a.tif", 0, False), ("empty", 0, False)]  # fmt: skip
    path = part(begun)
    with half_sent(server, operator, path, 0, data[:100_001], len(data)):
        pass
    eventually(lambda: offset(operator, path) == 100_001)
    again = begin(operator, **{"scans/a.tif": data, "empty": b""})
    assert (again.status_code, again.json()["attachments"][0]["received"]) == (200, 100_001)
    problem(send(operator, path, 0, data), 409, "continues at byte 100,001")
    assert submit(operator, "[]", "x", attachments="true").status_code == 202, "nothing was made of it"
    answer = send(operator, path, 100_001, data[100_001:])
    assert (answer.status_code, answer.headers["Upload-Offset"]) == (204, "256000")
    assert send(operator, part(begun, 1), 0, b"").status_code == 204
    assert kept(configuration) == {}, "they have their names when the run is made"
    made = submit(operator, "[]", "x", attachments="true")
    assert made.status_code == 201
    assert (made.json()["attachments"], made.json()["attached"], made.json()["upload"]) == (2, 256_000, begun.json()["id"])  # fmt: skip
    assert kept(configuration) == {"scans/a.tif": data, "empty": b""}
    handed = submissions.handed(archive.session, archive.task("check@2.2"))
    assert handed is not None
    assert handed.attached is not None
    # Once more, as who did not get the answer does.
    assert begin(operator, **{"scans/a.tif": data, "empty": b""}).json()["is_submitted"] is True
    again = submit(operator, "[]", "x", attachments="true")
    assert (again.status_code, again.json()["run"]["full_name"]) == (200, "papers@2.2")


def test_an_id_has_one_set_of_files(operator: httpx.Client) -> None:
    begun = begin(operator, a=b"1")
    problem(begin(operator, a=b"2"), 409, "papers@id:x: is being uploaded with other attachments")
    problem(submit(operator, "[]", "x"), 409, "has attachments that are being uploaded")
    send(operator, part(begun), 0, b"1")
    assert submit(operator, "[]", "x", attachments="true").status_code == 201
    problem(begin(operator, a=b"2"), 409, "was submitted on", "with other attachments")
    problem(submit(operator, "[]", "x"), 409, "was submitted on", "with attachments")
    problem(submit(operator, "[1]", "x", attachments="true"), 409, "with another payload")
    submit(operator, "[]", "y")
    problem(begin(operator, "y", a=b"1"), 409, "without attachments")
    problem(submit(operator, "[]", "y", attachments="true"), 409, "without attachments")
    problem(submit(operator, "[]", "z", attachments="true"), 409, "has no attachments here")
    problem(submit(operator, "[]", attachments="true"), 422, "has attachments and no id")


def test_an_upload_that_nobody_wants_is_ended_by_its_id(operator: httpx.Client, archive: AnArchive) -> None:
    begun, id = begin(operator, a=b"12"), {"Idempotency-Key": "x"}
    send(operator, part(begun), 0, b"1")
    problem(begin(operator, a=b"other"), 409, "arkqueue submit papers --id x --end-upload")
    problem(submit(operator, "[]", "x"), 409, "arkqueue submit papers --id x --end-upload")
    problem(operator.delete(UPLOADS), 422, "has no id")
    assert operator.delete(UPLOADS, headers=id).status_code == 204
    problem(operator.delete(UPLOADS, headers=id), 404, "papers@id:x: has no upload")
    problem(send(operator, part(begun), 1, b"2"), 404)
    again = begin(operator, a=b"3")
    send(operator, part(again), 0, b"3")
    assert submit(operator, "[]", "x", attachments="true").status_code == 201
    problem(operator.delete(UPLOADS, headers=id), 409, "papers@id:x: was submitted, so its run has the attachments")
    assert archive.sql("select run_id is not null as has_run from upload") == [{"has_run": True}]


def test_a_wrong_digest_is_refused_and_the_file_comes_again(operator: httpx.Client, archive: AnArchive) -> None:
    begun = begin(operator, a=b"right", b=b"b")
    wrong = hashlib.sha256(b"wrong").hexdigest()
    problem(send(operator, part(begun), 0, b"wrong"), 422, f"a: has the SHA-256 {wrong}, but its sender declared")
    assert offset(operator, part(begun)) == 0
    assert submit(operator, "[]", "x", attachments="true").status_code == 202
    assert send(operator, part(begun), 0, b"ri").status_code == 204
    assert send(operator, part(begun), 2, b"ght").status_code == 204
    assert send(operator, part(begun), 5, b"").status_code == 204, "it is there"
    problem(send(operator, part(begun), 5, b"!"), 413, "a: is there already, with its 5 bytes, and more bytes arrive")
    problem(send(operator, part(begun), 0, b"right"), 409, "continues at byte 5")
    assert archive.sql("select count(*) from submission") == [{"count": 0}]


def test_what_was_not_announced_is_refused(operator: httpx.Client) -> None:
    begun = begin(operator, a=b"12345")
    problem(send(operator, part(begun), 0, b"123456"), 413, "a: is longer than the 5 bytes that were announced")
    assert send(operator, part(begun), offset(operator, part(begun)), b"12345").status_code == 204
    wrong = operator.patch(part(begun), content=b"x", headers={"Upload-Offset": "0", "Content-Type": "text/plain"})
    problem(wrong, 415, "no Content-Type of a piece of a file")
    upload = f"/uploads/{begun.json()['id']}"
    problem(send(operator, f"{upload}/7", 0, b"1"), 404, "does not exist: the upload has 1, numbered from 0")
    assert operator.head("/uploads/4711/0").status_code == 404


def test_a_piece_that_is_too_long_leaves_what_had_arrived_before(operator: httpx.Client) -> None:
    data = bytes(range(256)) * 16384  # 4 MiB: the server writes a piece while it arrives
    begun = begin(operator, a=data)
    assert send(operator, part(begun), 0, data[:1_500_000]).status_code == 204
    wrong = b"x" * (len(data) - 1_500_000 + 1)
    problem(
        send(operator, part(begun), 1_500_000, wrong), 413, "a: is longer than the 4,194,304 bytes that were announced"
    )
    assert offset(operator, part(begun)) == 1_500_000
    assert send(operator, part(begun), 1_500_000, data[1_500_000:]).status_code == 204, "its digest is right"


def test_faults_of_the_payload_are_told_before_the_files_are_sent(operator: httpx.Client) -> None:
    begin(operator, a=b"12345")
    problem(submit(operator, "{", "x", attachments="true"), 422, "the payload")
    assert submit(operator, '["k"]', "x", attachments="true").status_code == 202


def test_a_file_is_sent_by_one_call_at_a_time(
    operator: httpx.Client, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = begin(operator, a=b"1" * 100)
    path, receive, has_begun = part(begun), uploads.receive, threading.Event()

    async def receives(*arguments: Any) -> None:
        has_begun.set()
        await receive(*arguments)

    monkeypatch.setattr(uploads, "receive", receives)
    with half_sent(server, operator, path, 0, b"1" * 10, 100):
        assert has_begun.wait(PATIENCE)
        problem(send(operator, path, 0, b"1"), 423, "a: is being sent by another call")
    eventually(lambda: offset(operator, path) == 10)
    eventually(lambda: send(operator, path, 10, b"1" * 90).status_code == 204)


def test_the_command_goes_on_where_a_piece_took_too_long(
    operator: httpx.Client, server: ApiServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A slow or resting connection is ended by the server; that is no refusal of the file."""
    file = tmp_path / "a"
    file.write_bytes(b"1" * 100)
    begun = begin(operator, a=b"1" * 100)
    # The one tells when the server ends a connection, the other is what is slowed down.
    ended, end, pieces = threading.Event(), connections.Protocol._end, attach._pieces

    def noted(self: connections.Protocol, error: Refused) -> None:
        end(self, error)
        ended.set()

    def slowly(stream: IO[bytes], length: int, *rest: Any) -> Iterator[bytes]:
        if not ended.is_set():
            yield stream.read(40)
            assert ended.wait(PATIENCE)
            length -= 40
        yield from pieces(stream, length, *rest)

    monkeypatch.setattr(connections, "PATIENCE", 0.2)
    monkeypatch.setattr(connections.Protocol, "_end", noted)
    monkeypatch.setattr(attach, "_pieces", slowly)
    commands = CommandLine(server.url, operator.headers["Authorization"].removeprefix("Bearer "))
    attach.send(commands, begun.json(), [attach.File(file, "a", 100, begun.json()["attachments"][0]["digest"])])
    assert ended.is_set()
    assert operator.get(f"/uploads/{begun.json()['id']}").json()["attachments"][0]["is_there"]


def test_of_two_at_once_with_one_id_one_makes_the_run(operator: httpx.Client, client: Client) -> None:
    """Both begin it, both send, and both submit it."""
    clients, names = [client(Scope.OPERATE), client(Scope.ADMIN)], set[str]()
    both, data = threading.Barrier(2, timeout=30), b"x" * 3_000_000

    def hand_in(one: httpx.Client) -> None:
        both.wait()
        begun = begin(one, a=data)
        both.wait()

        def is_sent() -> bool:
            at = offset(one, part(begun))
            return (at == len(data) and send(one, part(begun), at, b"").status_code == 204) or send(one, part(begun), at, data[at:]).status_code == 204  # fmt: skip

        eventually(is_sent)
        both.wait()
        names.add(submit(one, "[]", "x", attachments="true").json()["run"]["full_name"])

    threads = [threading.Thread(target=hand_in, args=[one]) for one in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert names == {"papers@2.2"}
    assert len(operator.get("/runs", params={"trigger": "submission"}).json()["runs"]) == 1


def test_who_comes_second_to_the_attachments_gets_the_run_of_the_first(
    operator: httpx.Client, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have found that the id has no run; then the first makes it, and the attachments are no upload any more."""
    send(operator, part(begin(operator, a=b"1")), 0, b"1")
    whole, answers = uploads.Uploads.whole, list[httpx.Response]()
    other = client(Scope.ADMIN)

    def after_the_other(*arguments: Any) -> Any:
        monkeypatch.setattr(uploads.Uploads, "whole", whole)
        answers.append(submit(other, "[]", "x", attachments="true"))
        return whole(*arguments)

    monkeypatch.setattr(uploads.Uploads, "whole", after_the_other)
    answers.append(submit(operator, "[]", "x", attachments="true"))
    assert [answer.status_code for answer in answers] == [201, 200]
    assert len({answer.json()["run"]["id"] for answer in answers}) == 1


def test_another_server_goes_on_with_what_one_has_begun(
    operator: httpx.Client, session: Session, configuration: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The digest of what came before it is computed anew, for as long as one call may take and no longer."""
    data = b"y" * (3 * files.PIECE)
    begun = begin(operator, a=data)
    send(operator, part(begun), 0, data[:-1])
    monkeypatch.setattr(uploads, "PATIENCE", -1.0)
    other = run_api(create_app(session, configuration), "127.0.0.1", 0)
    try:
        with httpx.Client(base_url=f"{other.url}/api/v1", headers=operator.headers, **PLAIN) as there:
            answer = send(there, part(begun), len(data) - 1, b"y")
            assert (answer.status_code, answer.headers["Upload-Offset"]) == (202, str(len(data)))
            assert send(there, part(begun), len(data), b"").status_code == 202
            monkeypatch.setattr(uploads, "PATIENCE", 30.0)
            assert send(there, part(begun), len(data), b"").status_code == 204
            assert submit(there, "[]", "x", attachments="true").status_code == 201
    finally:
        other.close()
    assert kept(configuration) == {"a": data}


def test_a_server_beside_no_task_manager_takes_none(operator: httpx.Client, archive: AnArchive) -> None:
    archive.sql("delete from task_manager")
    told = problem(begin(operator, a=b"1"), 409, "attachments: cannot be accepted by this server")
    assert "scratch is not shared, and no task manager has its home folder" in str(told["detail"])
    assert "scratch_shared = true" in str(told["remedy"])


class TestShared:
    @pytest.fixture
    def configuration(self, tmp_path: Path) -> Configuration:
        return Configuration(home=tmp_path / "home", scratch_folder=tmp_path / "shared", scratch_shared=True)

    def test_a_shared_folder_needs_no_task_manager_beside_the_server(
        self, operator: httpx.Client, archive: AnArchive, tmp_path: Path
    ) -> None:
        archive.sql("delete from task_manager")
        assert begin(operator, a=b"1").status_code == 201
        (row,) = archive.sql("select store from upload")
        assert (tmp_path / "shared" / "store-id").read_text().strip() == row["store"]


class TestLimits:
    @pytest.fixture
    def configuration(self, tmp_path: Path) -> Configuration:
        return Configuration(home=tmp_path / "home", attachments_limit="1KiB", scratch_limit="2KiB")

    def test_files_are_bounded(self, operator: httpx.Client, archive: AnArchive) -> None:
        problem(begin(operator, a=b"1" * 600, b=b"1" * 600), 422, "they have 1,200 bytes together, more than the 1,024 of attachments_limit")  # fmt: skip
        problem(begin(operator), 422, "there are none; name a file")
        many = {"attachments": [{"name": str(n), "size": 0, "digest": "0" * 64} for n in range(10_001)]}
        problem(operator.post(UPLOADS, json=many, headers={"Idempotency-Key": "x"}), 422, "there are 10,001")
        problem(operator.post(UPLOADS, content=b" " * (8 * 2**20 + 1), headers={"Idempotency-Key": "x"}), 413)
        for name in ("../a", "/etc/passwd", "a\nb"):
            problem(begin(operator, **{name: b"1"}), 422, "has 1 fault")
        problem(begin(operator, a=b"", A=b""), 422, "'A' and 'a' are one name")
        assert archive.sql("select count(*) from upload") == [{"count": 0}]

    def test_they_count_against_the_limit_of_scratch_folders(self, operator: httpx.Client) -> None:
        begun = begin(operator, a=b"1" * 1000)
        assert begin(operator, "z", a=b"1" * 800).status_code == 201
        problem(begin(operator, "y", a=b"1" * 500), 409, "need 500 bytes", "take 1,800 of the 2,048 of scratch_limit")
        assert operator.delete(f"/uploads/{begun.json()['id']}").status_code == 204
        assert begin(operator, "y", a=b"1" * 500).status_code == 201
        problem(operator.get(f"/uploads/{begun.json()['id']}"), 404, "does not exist")


@pytest.mark.usefixtures("root")
class TestFullDisk:
    @pytest.fixture
    def configuration(self, tmp_path: Path) -> Iterator[Configuration]:
        disk = tmp_path / "disk"
        disk.mkdir()
        with a_mount("-t", "tmpfs", "-o", "size=4m", "tmpfs", disk):
            yield Configuration(home=tmp_path / "home", scratch_folder=disk / "scratch", min_free=0)

    def test_a_full_disk_is_told_and_what_has_come_stays(
        self, operator: httpx.Client, configuration: Configuration, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        problem(begin(operator, a=b"1" * 5_000_000), 507, "do not fit on the disk of", "5,000,000 bytes more")
        data = b"12345678" * 350_000
        begun = begin(operator, a=data)
        assert begun.status_code == 201
        filler = configuration.scratch.parent / "filler"
        filler.write_bytes(b"x" * 2_500_000)
        problem(send(operator, part(begun), 0, data), 507, "do not fit on the disk", "the received bytes are kept")
        come = offset(operator, part(begun))
        assert uploads.PIECE <= come < len(data)
        # Others may be quicker between the look and the writing: then the system says it.
        monkeypatch.setattr(files.AttachmentFolders, "check_room", lambda *_: None)
        problem(send(operator, part(begun), come, data[come:]), 507, "cannot be written: No space left on device", "Make room there, and submit them again with the same id")  # fmt: skip
        assert come <= offset(operator, part(begun)) < len(data)
        come = offset(operator, part(begun))
        monkeypatch.undo()
        assert begin(operator, a=data).json()["attachments"][0]["received"] == come, "who asks again loses nothing"
        problem(begin(operator, "y", a=b"1" * 1_000_000), 507, "do not fit on the disk")
        filler.unlink()
        assert send(operator, part(begun), come, data[come:]).status_code == 204
        assert submit(operator, "[]", "x", attachments="true").status_code == 201
        assert kept(configuration) == {"a": data}


def test_what_nobody_continued_for_a_day_is_forgotten(
    operator: httpx.Client, archive: AnArchive, session: Session
) -> None:
    begun = begin(operator, a=b"12")
    send(operator, part(begun), 0, b"1")
    (row,) = archive.sql("select folder from upload")
    archive.sql("update upload set continued_at = clock_timestamp() - interval '23 hours 59 minutes'")
    assert attachments.unneeded(session, [row["folder"], 4711]).folders == {4711}
    assert send(operator, part(begun), 1, b"").status_code == 204, "to ask is to continue"
    archive.sql("update upload set continued_at = clock_timestamp() - interval '24 hours 1 minute'")
    assert attachments.unneeded(session, [row["folder"], 4711]).folders == {row["folder"], 4711}
    problem(send(operator, part(begun), 1, b"2"), 404)
    assert begin(operator, a=b"other").status_code == 201, "the id is free"


def test_after_a_purge_the_id_says_that_it_was_handled(
    operator: httpx.Client, archive: AnArchive, session: Session, configuration: Configuration
) -> None:
    begun = begin(operator, a=b"1")
    send(operator, part(begun), 0, b"1")
    run = RunId(submit(operator, "[]", "x", attachments="true").json()["run"]["id"])
    (row,) = archive.sql("select folder from upload")
    host = host_id(configuration.home)
    (claimed,) = claim.claim(session, "manager", host, 4, store=host)
    assert claim.claim(session, "another", "another", 4, store="another") == []
    finish.finish(session, "manager", [Outcome(claimed.attempt, End.EXITED, 0)])
    assert attachments.unneeded(session, [row["folder"]]).folders == set()
    purge.purge_runs(session, [run], "ann", "old")
    assert attachments.unneeded(session, [row["folder"]]).folders == {row["folder"]}
    assert begin(operator, a=b"1").json()["is_submitted"] is True
    again = submit(operator, "[]", "x", attachments="true")
    assert (again.status_code, again.json()["run"]) == (200, None)
    assert "was purged on" in again.json()["purged"]
    problem(begin(operator, a=b"2"), 409, "with other attachments")
    assert archive.sql("select * from attachment") == []


def test_a_deleted_run_has_none(
    operator: httpx.Client, archive: AnArchive, session: Session, second_connection: Callable[[], psycopg.Connection]
) -> None:
    begun = begin(operator, a=b"1")
    send(operator, part(begun), 0, b"1")
    run = RunId(submit(operator, "[]", "x", attachments="true", hold="true").json()["run"]["id"])
    (row,) = archive.sql("select folder from upload")
    deletion.delete_run(session, run, "ann")
    with second_connection().transaction() as busy:
        busy.connection.execute("select from archive where id = %s for update", [archive.id])
        assert attachments.unneeded(session, [row["folder"]]) == (set(), True), "the folder is left to another call"
    assert attachments.unneeded(session, [row["folder"]]) == ({row["folder"]}, False)
    problem(operator.get(f"/uploads/{begun.json()['id']}"), 403, "was deleted")
    deletion.undelete_run(session, run, "ann")
    handed = submissions.handed(session, archive.task("check@2.2"))
    assert handed is not None
    assert handed.attached is not None
    assert handed.attached.is_removed
