"""Webhooks: a queue manager posts to real HTTP servers, which refuse, hang and lose their answers
(design 15).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arkqueue import logs
from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.model import ArchiveId, Stream
from arkqueue.notifications import sending
from arkqueue.queue import archives, notifications
from tests.builders import AnArchive, a_gateway, an_archive
from tests.db.outbox import ALL, failed_runs, set_receivers
from tests.receivers import Receiver, a_receiver, lost, says
from tests.system.queue_manager.test_imports import managing
from tests.waiting import eventually

KEY = b"a key that is long enough"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with a_receiver() as receiver:
        yield receiver


@pytest.fixture
def other() -> Iterator[Receiver]:
    with a_receiver() as receiver:
        yield receiver


@pytest.fixture
def configuration(tmp_path: Path, receiver: Receiver, other: Receiver) -> Configuration:
    key = tmp_path / "key"
    key.write_bytes(KEY + b"\n")
    key.chmod(0o600)
    hosts = [{"url": one.url, "key_file": str(key)} for one in (receiver, other)]
    return Configuration.load(
        {}, home=tmp_path / "home", poll="200ms", webhooks=hosts, public_url="https://queue.example.org"
    )


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "FIRST_PAUSE", 0.05)


@pytest.fixture
def archive(session: Session, receiver: Receiver) -> AnArchive:
    archive = an_archive(session)
    set_receivers(archive, **{f"{receiver.url}/ci": ALL})
    return archive


def deliveries(archive: AnArchive) -> list[dict[str, Any]]:
    return archive.sql("select id, state, tries, fault from delivery where archive_id = %s order by id", archive.id)


def until_all(archive: AnArchive, state: str) -> list[dict[str, Any]]:
    def found() -> list[dict[str, Any]]:
        rows = deliveries(archive)
        return rows if rows and all(row["state"] == state for row in rows) else []

    return eventually(found, lambda: deliveries(archive))


def write_log(archive: AnArchive, key: str, text: bytes) -> None:
    written = logs.Logs(a_gateway(archive.session))
    written.start()
    written.open(archive.attempt(key)).write(Stream.STDOUT, text)
    written.close()


def test_a_failed_run_is_posted_with_what_matters_and_signed(
    session: Session, configuration: Configuration, archive: AnArchive, receiver: Receiver
) -> None:
    archive.commit({"pdf": "", "index": ""})
    write_log(
        archive, "pdf@2", b"line\n" * 5000 + b"\x1b[31mUndefined control sequence\x1b[0m\r\n\x1b]0;evil\x07 <b>\n"
    )
    archive.fail("pdf@2")
    archive.run("index@2")
    with managing(session, configuration):
        until_all(archive, "sent")
    (post,) = receiver.posts
    document = post.document
    assert post.path == "/ci"
    assert (document["version"], document["event"], document["archive"]) == (1, "failed", "papers")
    assert document["title"] == "papers@2 has failed: pdf"
    assert document["run"]["name"] == "papers@2"
    assert document["run"]["state"] == "failed"
    (task,) = document["tasks"]
    assert (task["name"], task["state"], task["exit_code"]) == ("papers@2/pdf", "failed", 1)
    assert task["log"][-2:] == ["Undefined control sequence", "\\x1b]0;evil\\x07 <b>"]
    assert len(task["log"]) == 15
    assert document["commands"] == ["arkqueue show papers@2", "arkqueue logs papers@2/pdf", "arkqueue retry papers@2 --failed"]  # fmt: skip
    assert document["url"] == "https://queue.example.org/papers@2"
    signed = f"{post.headers['webhook-id']}.{post.headers['webhook-timestamp']}.".encode() + post.body
    expected = base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
    assert post.headers["webhook-signature"] == f"v1,{expected}"
    assert abs(int(post.headers["webhook-timestamp"]) - time.time()) < 300


def test_a_refusal_and_a_lost_answer_are_tried_again_under_one_id(
    session: Session, configuration: Configuration, archive: AnArchive, receiver: Receiver
) -> None:
    receiver.answers += [says(503, "busy\x1b[31m"), lost, says(404)]
    failed_runs(archive, 2)
    with managing(session, configuration):
        (row,) = until_all(archive, "sent")
    assert row["tries"] == 4
    assert len(receiver.posts) == 4
    (name,) = {post.headers["webhook-id"] for post in receiver.posts}
    assert re.fullmatch(rf"arkqueue_{row['id']}-\d{{8}}T\d{{12}}", name)


def test_a_delivery_on_which_its_receiver_fails_holds_up_no_other(
    session: Session, configuration: Configuration, archive: AnArchive, receiver: Receiver
) -> None:
    receiver.answers += [says(500)]
    failed_runs(archive, 2, 3)
    with managing(session, configuration):
        until_all(archive, "sent")
    first, second, again = (post.headers["webhook-id"] for post in receiver.posts)
    assert first == again != second


def test_a_receiver_that_hangs_holds_up_no_other(
    session: Session,
    configuration: Configuration,
    archive: AnArchive,
    receiver: Receiver,
    other: Receiver,
) -> None:
    set_receivers(archive, **{f"{receiver.url}/ci": ALL, f"{other.url}/x": ALL})
    receiver.answers += [receiver.hangs]
    failed_runs(archive, 2, 3)
    with managing(session, configuration):
        eventually(lambda: len(other.posts) == 2 and receiver.posts)
        assert len(receiver.posts) == 1  # one at a time, and it has not answered
    states = {row["state"] for row in deliveries(archive)}
    assert states == {"sent", "waiting"}


def test_a_server_that_answers_a_byte_at_a_time_is_given_up(
    session: Session,
    configuration: Configuration,
    archive: AnArchive,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sending, "LONGEST", 1.0)
    receiver.answers += [receiver.hangs]
    failed_runs(archive, 2)
    with managing(session, configuration):
        (row,) = until_all(archive, "sent")
    assert row["tries"] == 2


def test_a_redirect_is_not_followed(
    session: Session, configuration: Configuration, archive: AnArchive, receiver: Receiver, other: Receiver
) -> None:
    receiver.answers += [says(307, location=f"{other.url}/stolen")] * 2
    failed_runs(archive, 2)
    with managing(session, configuration):
        eventually(lambda: "redirects are not followed" in deliveries(archive)[0]["fault"])
        until_all(archive, "sent")
    assert other.posts == []


def test_a_key_that_others_may_read_signs_nothing_and_the_delivery_says_so(
    session: Session, configuration: Configuration, archive: AnArchive, receiver: Receiver
) -> None:
    key = configuration.webhooks[0].key_file
    key.chmod(0o644)
    failed_runs(archive, 2)
    with managing(session, configuration):
        eventually(lambda: f"chmod 600 {key}" in deliveries(archive)[0]["fault"])
        assert receiver.posts == []
        key.chmod(0o600)
        until_all(archive, "sent")


def test_a_host_that_the_configuration_does_not_name_gets_nothing(
    session: Session, configuration: Configuration, archive: AnArchive, receiver: Receiver
) -> None:
    failed_runs(archive, 2)
    with managing(session, configuration.model_copy(update={"webhooks": ()})):
        eventually(lambda: "no [[webhooks]]" in deliveries(archive)[0]["fault"])
    assert receiver.posts == []


def test_two_queue_managers_send_each_notification_once(
    session: Session, configuration: Configuration, archive: AnArchive, receiver: Receiver
) -> None:
    with managing(session, configuration), managing(session, configuration):
        failed_runs(archive, 2, 3, 4, 5)
        eventually(lambda: len(deliveries(archive)) == 4)
        until_all(archive, "sent")
    names = [post.document["run"]["name"] for post in receiver.posts]
    assert sorted(names) == ["papers@2", "papers@3", "papers@4", "papers@5"]


def test_a_receiver_that_was_taken_away_gets_nothing_more(
    session: Session, configuration: Configuration, archive: AnArchive, receiver: Receiver, other: Receiver
) -> None:
    failed_runs(archive, 2)
    set_receivers(archive, **{f"{other.url}/x": ALL})
    with managing(session, configuration):
        (row,) = until_all(archive, "dropped")
    assert "no longer a receiver" in row["fault"]
    assert receiver.posts == other.posts == []


def test_a_stopped_archive_is_posted_with_the_reason_on_one_line(
    session: Session, configuration: Configuration, archive: AnArchive, receiver: Receiver
) -> None:
    archives.stop(session, ArchiveId(archive.id), "went back\r\nto \x1b[2J revision 3")
    with managing(session, configuration):
        until_all(archive, "sent")
    document = receiver.posts[0].document
    assert (document["event"], document["run"], document["tasks"]) == ("stopped", None, [])
    assert document["reason"] == "went back to \\x1b[2J revision 3"
    assert "arkqueue sync papers --wait" in document["commands"]


def test_what_is_huge_or_hostile_stays_small_and_harmless(
    session: Session, configuration: Configuration, archive: AnArchive, receiver: Receiver
) -> None:
    archive.commit({f"t{number}": "" for number in range(50)})
    write_log(archive, "t0@2", b"\xff\x00" + b"x" * 500_000 + b" the end")
    archive.fail(*(f"t{number}@2" for number in range(50)))
    archive.sql("update revision set author = E'a\\r\\nBcc: b', message = repeat(E'\\u202e\\x1b[31m', 100000)")
    with managing(session, configuration):
        until_all(archive, "sent")
    (post,) = receiver.posts
    assert len(post.body) < 100_000
    document = post.document
    assert (len(document["tasks"]), document["more_tasks"]) == (5, 45)
    assert document["title"] == "papers@2 has failed: t0, t1, t2, t3, t4 and 45 more"
    assert [(len(line), line[-7:]) for line in document["tasks"][0]["log"]] == [(400, "the end")]
    text = str(document)
    assert not any(sign in text for sign in "\x1b\x00\u202e\r")
