"""Submissions over HTTP: taken, told apart by their senders' ids, refused, and known for ever."""

from __future__ import annotations

import itertools
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from arkqueue.archives import submission as submitting
from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.model import PayloadKind, RunId, SourceFile, Workflow
from arkqueue.queue import deletion, purge, submissions
from arkqueue.queue.tokens import Scope
from arkqueue.repository.reader import client as client_of_readers
from arkqueue.repository.reader import payloads
from arkqueue.web import ApiServer, connections
from arkqueue.web.api import submissions as api
from arkqueue.workflow.parsing import parse
from tests.builders import AnArchive, an_archive
from tests.system.web.conftest import Client, problem
from tests.waiting import PATIENCE, eventually

SUBMISSIONS = "/archives/papers/submissions"


@pytest.fixture
def archive(session: Session) -> AnArchive:
    """Nobody scans its repository: no queue manager was heard for long."""
    archive = an_archive(session)
    archive.sql("update heartbeat set beat_at = '2026-01-01'")
    archive.commit({"check": "on: submission", "deposit": "foreach: submission\ndepends: [check]"})
    return archive


def submit(
    client: httpx.Client, payload: str | bytes, id: str | None = None, kind: str = "application/json", **query: Any
) -> httpx.Response:
    headers = {b"Content-Type": kind.encode()} | ({} if id is None else {b"Idempotency-Key": id.encode()})
    return client.post(SUBMISSIONS, content=payload, headers=headers, params=query)


def left(archive: AnArchive) -> tuple[int, int, int]:
    """How many submissions, parts of payloads, and payloads without a run there are."""
    tables = ("submission", "payload_part", "payload_left")
    first, second, third = (archive.sql(f"select count(*) from {table}")[0]["count"] for table in tables)
    return first, second, third


def test_a_submission_makes_a_run_and_is_known_by_its_senders_id(operator: httpx.Client, archive: AnArchive) -> None:
    answer = submit(operator, '{"items": ["a"], "title": "May"}', "may 7/é")
    made = answer.json()
    assert (answer.status_code, answer.headers["Location"]) == (201, f"/api/v1/runs/{archive.run_id(2, 2)}")
    assert (made["full_name"], made["id"], made["kind"], made["size"]) == (
        "papers@id:may%207%2Fé",
        "may 7/é",
        "json",
        32,
    )
    assert "no queue manager is running" in made["note"]
    run = made["run"]
    assert (run["full_name"], run["trigger"], run["submission"], run["by"]) == ("papers@2.2", "submission", made["full_name"], "operate test")  # fmt: skip
    shown = operator.get(f"{SUBMISSIONS}/may 7%2Fé").json()
    assert shown == made | {"note": ""}
    found = operator.get("/find", params={"name": f"{made['full_name']}/deposit/a"}).json()
    assert (found["full_name"], found["run"]) == ("papers@2.2/deposit/a", run["id"])
    told = operator.get("/explain", params={"name": f"{made['full_name']}/deposit/a"}).json()
    assert told["full_name"] == "papers@2.2/deposit/a"
    assert left(archive) == (1, 1, 0)


def test_a_payload_that_another_request_removes_is_in_nobodys_way(
    operator: httpx.Client, archive: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    scandir = os.scandir

    def with_one_that_goes(folder: Any) -> Any:
        if Path(folder).name != api.FOLDER:
            return scandir(folder)
        (gone := Path(folder) / "gone").touch()
        found = [*scandir(folder)]
        gone.unlink()
        return found

    monkeypatch.setattr(os, "scandir", with_one_that_goes)
    assert submit(operator, '{"items": ["a"]}').status_code == 201
    assert left(archive) == (1, 1, 0)


def test_what_was_handed_in_is_kept_byte_by_byte(operator: httpx.Client, archive: AnArchive) -> None:
    payload = "id,note\r\na,é\n".encode() + b"b," + b"x" * 1000 + b"\n"
    many = payload + b"".join(b"k%d,%s\n" % (n, b"y" * 2000) for n in range(1100))
    run = submit(operator, many, kind="text/csv").json()["run"]
    answer = operator.get(f"/runs/{run['id']}/payload")
    assert answer.content == many
    assert (answer.headers["content-type"], answer.headers["content-length"]) == ("text/csv; charset=utf-8", str(len(many)))  # fmt: skip
    assert left(archive) == (1, 3, 0), "in parts of 1 MiB"
    problem(operator.get(f"/runs/{archive.run_id(2)}/payload"), 404, "was made for no submission")


def test_runs_without_an_id_are_as_many_as_submissions(operator: httpx.Client, archive: AnArchive) -> None:
    assert [submit(operator, "[]").json()["run"]["full_name"] for _ in range(2)] == ["papers@2.2", "papers@2.3"]
    assert operator.get("/runs", params={"trigger": "submission"}).json()["runs"][0]["submission"] is None
    assert left(archive) == (2, 2, 0)


def test_the_same_id_returns_the_run_and_refuses_another_payload(operator: httpx.Client, archive: AnArchive) -> None:
    first = submit(operator, '["a"]', "x")
    again = submit(operator, '["a"]', "x", revision="2", hold="true")
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["run"]["id"] == first.json()["run"]["id"]
    problem(submit(operator, '["b"]', "x"), 409, "papers@id:x: was submitted on", "with another payload")
    problem(submit(operator, '["a"]', "x", "application/yaml"), 409, "with another payload")
    assert left(archive) == (1, 1, 0)


def test_of_two_at_once_with_one_id_one_makes_the_run(
    operator: httpx.Client, archive: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have found that there is none, and stored their payloads, before either may go on."""
    both = threading.Barrier(2, timeout=30)
    make = submissions.submit

    def meet(*arguments: Any, **options: Any) -> Any:
        both.wait()
        return make(*arguments, **options)

    monkeypatch.setattr(submissions, "submit", meet)
    answers: list[httpx.Response] = []
    posts = [threading.Thread(target=lambda: answers.append(submit(operator, '["a"]', "x"))) for _ in range(2)]
    for post in posts:
        post.start()
    for post in posts:
        post.join()
    assert sorted(answer.status_code for answer in answers) == [200, 201]
    assert len({answer.json()["run"]["id"] for answer in answers}) == 1
    submissions.sweep(archive.session)
    assert left(archive) == (1, 1, 0)


def test_after_a_purge_the_id_says_that_it_was_handled(
    operator: httpx.Client, archive: AnArchive, session: Session
) -> None:
    run = RunId(submit(operator, "[]", "x").json()["run"]["id"])
    archive.run("check@2.2")
    assert purge.purge_runs(session, [run], "ann", "old").runs == ["papers@2.2"]
    assert left(archive) == (1, 0, 0)
    answer = submit(operator, "[]", "x")
    said = answer.json()
    assert (answer.status_code, said["run"], said["by"]) == (200, None, "operate test")
    assert said["purged"].startswith("was purged on ")
    assert said["purged"].endswith(" UTC by ann, because old")
    assert operator.get(f"{SUBMISSIONS}/x").json() == said
    problem(submit(operator, "[1]", "x"), 409, "with another payload")
    problem(operator.get("/find", params={"name": "papers@id:x"}), 404, "was handled: it was submitted on", "by ann")


def test_a_deleted_submission_is_not_shown_and_repeats_nothing(
    operator: httpx.Client, admin: httpx.Client, archive: AnArchive, session: Session
) -> None:
    run = RunId(submit(operator, "[]", "x").json()["run"]["id"])
    archive.run("check@2.2")
    deletion.delete_run(session, run, "ann")
    problem(submit(operator, "[]", "x"), 403, "was deleted")
    for other in (submit(operator, "[1]", "x"), submit(admin, "[1]", "x")):
        problem(other, 409, "with another payload, and its run was deleted", "arkqueue undelete papers@id:x")
    problem(operator.get(f"{SUBMISSIONS}/x"), 403, "was deleted")
    assert admin.get(f"{SUBMISSIONS}/x").json()["run"]["state"] == "deleted"
    assert left(archive) == (1, 1, 0)


def test_a_payload_with_faults_is_refused_and_its_id_stays_free(operator: httpx.Client, archive: AnArchive) -> None:
    faulty: list[tuple[str | bytes, str, str]] = [
        ("[", "application/json", "payload:1:2: the file is not JSON"),
        ("{}", "application/json", "payload:1:1: the file holds no list"),
        (
            '["a", "b", "a"]',
            "application/json",
            "payload:1:12: foreach: the key 'a' is also that of the item in line 1",
        ),
        ('[{"size": 1}, [], null]', "application/json", "has 3 faults: payload:1:2: "),
        ("[" * 1_000_000, "application/json", "nested"),
        ("a: [", "application/yaml", "payload:1:5: the file is not YAML"),
        ("id,size\na\n", "text/csv", "payload:2:1: the row has 1 field, and the header 2"),
        (b"a\n\xff\n", "text/plain; charset=utf-8", "payload:2:1: the file is not UTF-8"),
    ]
    for payload, kind, said in faulty:
        document = problem(submit(operator, payload, "x", kind), 422, "the payload: has", said, "Nothing is planned.")
        assert isinstance(document["faults"], list)
        assert left(archive) == (0, 0, 0)
    assert submit(operator, "[]", "x").status_code == 201


def test_a_payload_that_nobody_asks_items_of_may_be_any_document(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"check": "on: submission"})
    assert submit(operator, '{"title": "x"}').status_code == 201
    problem(submit(operator, '{"title": "x", "title": "y"}'), 422, "an object has the field 'title' twice")
    problem(submit(operator, "NaN"), 422, "NaN is not a number in JSON")
    problem(submit(operator, ""), 422, "the payload is empty")
    problem(submit(operator, "1" * 5000), 422, "has too many digits")
    problem(submit(operator, "[" * 1_000_000), 422, "the payload is nested too deeply")


# A schema


SCHEMA = {"type": "array", "items": {"required": ["id"], "properties": {"size": {"type": "integer"}, "word": {"pattern": "^(a+)+$"}}}}  # fmt: skip


def with_schema(schema: Any) -> Workflow:
    """Workflow files that name a schema."""
    text = "submission: {schema: s.json}\ntasks:\n- {name: deposit, command: x, foreach: submission}\n"
    parsed = parse([SourceFile("a.yaml", text.encode())], lambda path: SourceFile(path, json.dumps(schema).encode()))
    assert not parsed.faults
    return parsed


def test_a_payload_that_does_not_fit_the_schema_of_its_revision_is_refused_with_all_its_faults(
    operator: httpx.Client, archive: AnArchive
) -> None:
    archive.commit(with_schema(SCHEMA))
    payload = [{"id": "a", "size": "3"}, {}, {"id": "a"}]
    document = problem(submit(operator, json.dumps(payload), "x"), 422, "the payload: has 4 faults")
    assert [fault["message"].partition(";")[0] for fault in document["faults"]] == [
        "payload:1:22: $[0].size: '3' is not of type 'integer'",
        "payload:1:28: $[1]: 'id' is a required property",
        "payload:1:28: foreach: an item has no field 'key', 'id' or 'name', which would identify it",
        "payload:1:32: foreach: the key 'a' is also that of the item in line 1",
    ]
    assert left(archive) == (0, 0, 0)
    problem(submit(operator, json.dumps([{}] * 1000), "x"), 422, "the payload: has 1,000 or more faults")
    assert submit(operator, '[{"id": "a", "size": 3}]', "x").status_code == 201
    assert submit(operator, json.dumps(payload), revision="2").status_code == 422, "no key, and one twice"
    archive.commit({"deposit": "foreach: submission"})
    assert submit(operator, '[{"id": "b", "size": "3"}]').status_code == 201, "a later revision has no schema"


def test_a_fault_of_the_schema_is_not_for_the_sender_to_correct(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit(with_schema({"not": {"$ref": "#"}}))
    document = problem(submit(operator, '["a"]', "x"), 422, "A committer of the archive papers has to correct the schema s.json.")  # fmt: skip
    assert [fault["message"] for fault in document["faults"]] == [
        "s.json: the schema refers to itself without an end, or is nested too deeply"
    ]
    assert "Correct it" not in document["detail"]


def test_a_pattern_that_takes_without_an_end_is_ended_and_others_are_judged(
    operator: httpx.Client, archive: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.commit(with_schema(SCHEMA))
    monkeypatch.setattr(payloads, "DEADLINE", 2.0)
    endless = json.dumps([{"id": "x", "word": "a" * 60 + "b"}])
    problem(submit(operator, endless, "x"), 422, "the payload: cannot be validated: it takes longer than 2 s", "Make it smaller", "a committer has to make the schema s.json simpler")  # fmt: skip
    problem(submit(operator, endless, "x", "application/yaml"), 422, "it takes longer than 2 s", "Send it as JSON")
    assert left(archive) == (0, 0, 0)
    assert submit(operator, '[{"id": "x", "word": "aaa"}]', "x").status_code == 201


@pytest.mark.usefixtures("archive")
def test_payloads_of_one_archive_that_are_validated_for_long_hold_up_no_other_archive(
    operator: httpx.Client, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go, judge = threading.Semaphore(0), threading.Event(), payloads.judge

    def judges(file: Path, kind: PayloadKind, *arguments: Any) -> Any:
        if kind is PayloadKind.YAML:
            begun.release()
            go.wait()
        return judge(file, kind, *arguments)

    monkeypatch.setattr(payloads, "judge", judges)
    yaml = (operator, "- a", None, "application/yaml")
    senders = [threading.Thread(target=submit, args=yaml) for _ in range(api.MOST_AT_ONCE)]
    for sender in senders:
        sender.start()
    try:
        for _ in range(submitting.MOST_JUDGED // 2):
            assert begun.acquire(timeout=PATIENCE)
        eventually(lambda: sum(sender.is_alive() for sender in senders) == api.MOST_AT_ONCE // 2)
        told = problem(submit(operator, "{}"), 503, "the payload: cannot be accepted: too many are being submitted to the archive papers")  # fmt: skip
        assert told["remedy"] == "Submit it again in a moment."
        an_archive(session, "other").commit({"check": "on: submission"})
        headers = {"Content-Type": "application/json"}
        assert operator.post("/archives/other/submissions", content="{}", headers=headers).status_code == 201
        assert not begun.acquire(blocking=False)
    finally:
        go.set()
        for sender in senders:
            sender.join()


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What judges payloads may allocate a fourth of what it usually may, so that a fourth of a payload is too much."""
    client_of_readers.processes.close()
    monkeypatch.setattr(client_of_readers, "MEMORY", 2**28)
    yield
    client_of_readers.processes.close()


@pytest.mark.usefixtures("little_memory")
def test_what_takes_too_much_to_be_judged_is_refused_and_others_are_judged(
    operator: httpx.Client, archive: AnArchive
) -> None:
    archive.commit({"check": "on: submission"})
    dense = "[" + "[]," * 5_000_000 + "[]]"
    problem(submit(operator, dense, "x"), 422, "the payload: cannot be validated: it needs more than 256 MiB of memory")
    assert left(archive) == (0, 0, 0)
    assert submit(operator, "{}", "x").status_code == 201


def test_a_payload_that_is_too_long_is_not_read_to_its_end(operator: httpx.Client, configuration: Configuration, archive: AnArchive) -> None:  # fmt: skip
    problem(submit(operator, b" " * (64 * 2**20 + 1)), 413, "the payload: is longer than 64 MiB")
    assert list((configuration.home / "submitting").iterdir()) == []
    assert left(archive) == (0, 0, 0)


def test_nothing_of_a_payload_is_read_from_who_may_not_submit(client: Client, server: ApiServer, archive: AnArchive) -> None:  # fmt: skip
    """The body is announced and never sent: whoever waited for it would not answer."""
    for scope, status in ((None, 401), (Scope.READ, 403)):
        who = client(scope)
        headers = "".join(f"{name}: {value}\r\n" for name, value in who.headers.items() if name == "authorization")
        with socket.create_connection((server.host, server.port), timeout=20) as connection:
            head = f"POST /api/v1{SUBMISSIONS} HTTP/1.1\r\nHost: {server.host}\r\n{headers}Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
            connection.sendall(head.encode())
            assert connection.recv(100).startswith(f"HTTP/1.1 {status} ".encode())
    assert left(archive) == (0, 0, 0)


def test_a_payload_is_waited_for_as_long_as_enough_of_it_comes(
    operator: httpx.Client, server: ApiServer, archive: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice its time is over in the middle of it."""
    over: list[object] = []
    give_up = connections.Protocol._give_up  # when that is called, the time is over

    def noted(self: connections.Protocol) -> None:
        over.append(self)
        give_up(self)

    monkeypatch.setattr(connections, "PATIENCE", 0.2)
    monkeypatch.setattr(connections, "LEAST", 1)
    monkeypatch.setattr(connections.Protocol, "_give_up", noted)
    with socket.create_connection((server.host, server.port), timeout=30) as connection:
        head = f"POST /api/v1{SUBMISSIONS} HTTP/1.1\r\nHost: {server.host}\r\nAuthorization: {operator.headers['Authorization']}\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head.encode())
        names = itertools.count()
        while len(over) < 2:
            line = b"item-%d\n" % next(names)
            connection.sendall(b"%x\r\n%b\r\n" % (len(line), line))
            time.sleep(0.01)
        connection.sendall(b"0\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 201 ")
    assert left(archive) == (1, 1, 0)


def test_what_is_no_id_is_refused(operator: httpx.Client, archive: AnArchive) -> None:
    for id in (b"", "\u00a0x".encode(), b"x\x85", b".", b"..", b"x" * 201, b"\xff"):
        headers = [(b"Content-Type", b"application/json"), (b"Idempotency-Key", id)]
        answer = operator.post(SUBMISSIONS, content="[]", headers=headers)
        problem(answer, 422, "Idempotency-Key: is not a valid id")
    assert left(archive) == (0, 0, 0)


@pytest.mark.usefixtures("archive")
def test_a_payload_says_what_it_is(operator: httpx.Client) -> None:
    problem(submit(operator, "[]", kind="application/x-www-form-urlencoded"), 422, "which no payload has", "text/csv")
    problem(operator.post(SUBMISSIONS, content="[]"), 422, "has no Content-Type")


def test_a_submission_is_made_at_a_revision_that_is_named_and_held_if_asked(
    operator: httpx.Client, archive: AnArchive
) -> None:
    archive.commit({"build": ""})
    run = submit(operator, '["a"]', revision="2", hold="true").json()["run"]
    assert (run["full_name"], run["state"], run["counts"]["held"]) == ("papers@2.2", "held", 2)
    assert operator.post(f"/runs/{run['id']}/release", json={}).status_code == 200
    assert archive.state("check@2.2") == "ready"
    problem(submit(operator, "[]"), 409, "papers@3: no task of this revision runs on submissions")
    problem(submit(operator, "[]", revision="9"), 404, "is not in the ledger")
