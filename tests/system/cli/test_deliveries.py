"""Receivers and their notifications on the command line (design 15)."""

from __future__ import annotations

from pathlib import Path

import pytest

from arkqueue.config import Configuration
from arkqueue.queue import notifications
from tests.builders import AnArchive
from tests.db.outbox import CI, choose, failed_runs, judge, set_receivers
from tests.system.cli.conftest import Cli


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    webhooks = [{"url": "https://hooks.example.org", "key_file": str(tmp_path / "key")}]
    mail = {"server": "smtp.example.org:587", "sender": "queue@example.org", "recipients": ["*@example.org"]}
    return Configuration.load({}, home=folder, poll="100ms", webhooks=webhooks, mail=mail)


def test_receivers_are_named_with_what_they_are_told_of(arkqueue: Cli, archive: AnArchive) -> None:
    done = arkqueue(
        "archive", "set", "papers", "notify", "ann@example.org", CI, "completed", "failed", "author", "held"
    )
    assert done.code == 0, done.err
    assert arkqueue("archive", "show", "papers", "--json").json["settings"]["notify"] == {
        "ann@example.org": ["failed", "fixed", "held", "stopped"],
        CI: ["completed", "failed"],
        "author": ["held"],
    }
    assert f"{CI}=completed,failed" in arkqueue("archive", "show", "papers").out
    assert archive.sql("select by, verb from deed order by id desc limit 1")[0]["verb"] == "set"
    assert arkqueue("archive", "set", "papers", "notify", "").lines == ["papers: notify nobody"]


def test_receivers_that_would_get_nothing_are_refused(arkqueue: Cli, archive: AnArchive) -> None:
    for words, said in {
        ("failed",): "Write a receiver before 'failed'",
        ("ann@example.org", "ann@example.org"): "Name each receiver once",
        ("ann@example.org", "broken"): "There are: failed, fixed, held, completed, stopped, and branch=GLOB.",
    }.items():
        done = arkqueue("archive", "set", "papers", "notify", *words)
        assert (done.code, said in done.err) == (2, True), done.err
    assert archive.sql("select settings->'notify' as n from archive")[0]["n"] == {}


def test_notifications_are_listed_with_what_was_wrong_and_sent_again(arkqueue: Cli, archive: AnArchive) -> None:
    assert arkqueue("delivery", "list").err == "no notifications\n"
    set_receivers(archive, ci=["failed"])
    failed_runs(archive, 2)
    (first,) = choose(archive)
    notifications.record_failure(archive.session, first, "answered 503: \x1b[31mbusy", is_silent=True)
    listed = arkqueue("delivery", "list", "papers", "--waiting").lines
    assert listed[0].split() == ["ID", "WHEN", "WHAT", "RECEIVER", "STATE", "TRIES", "FAULT"]
    assert "papers@2 failed" in listed[1]
    assert "answered 503: \\x1b[31mbusy" in listed[1]
    assert choose(archive) == []  # the receiver was silent
    failed_runs(archive, 3)
    behind = arkqueue("delivery", "list", "papers", "--waiting").lines[1]
    assert f"waiting for {first.id}, which its receiver has not answered" in behind
    archive.sql("delete from delivery where id <> %s", first.id)
    assert arkqueue("delivery", "resend", str(first.id)).lines == [f"{first.id}: sent again"]
    assert [one.id for one in choose(archive)] == [first.id]
    assert arkqueue("delivery", "resend", str(first.id)).code == 1  # it is being sent
    set_receivers(archive, author=["failed"])
    archive.commit({"a": ""}, author="Ben <ben@example.org>")
    archive.fail("a@4")
    judge(archive.session)
    assert "papers@4 failed  author ben@example.org  " in arkqueue("delivery", "list").lines[1]


def test_all_failed_notifications_of_an_archive_are_sent_again(arkqueue: Cli, archive: AnArchive) -> None:
    nothing = arkqueue("delivery", "resend", "--failed", "papers")
    assert (nothing.code, nothing.err) == (1, "papers: no notification has failed\n")
    set_receivers(archive, ci=["failed"])
    failed_runs(archive, 2, 3)
    archive.sql("update delivery set state = 'failed', ended_at = clock_timestamp()")
    ids = [str(row["id"]) for row in archive.sql("select id from delivery order by id")]
    assert len(arkqueue("delivery", "list", "--failed", "--json").json["deliveries"]) == 2
    assert arkqueue("delivery", "resend", "--failed", "papers").lines == [f"{', '.join(ids)}: sent again"]
    assert arkqueue("delivery", "list", "--failed", "--json").json["deliveries"] == []
    assert arkqueue("delivery", "resend", "seven").code == 2
