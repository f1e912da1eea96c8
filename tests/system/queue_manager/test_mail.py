"""Mail: a queue manager mails to a real SMTP server with TLS, which refuses, hangs and loses its
answers (design 15).
"""

from __future__ import annotations

from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path

import pytest

from arkqueue.config import Configuration
from arkqueue.config.receivers import address_of
from arkqueue.db.session import Session
from arkqueue.model import ArchiveId
from arkqueue.notifications import sending
from arkqueue.queue import archives, notifications
from tests.builders import AnArchive, an_archive
from tests.db.outbox import ALL, failed_runs, set_receivers
from tests.mail_server import PASSWORD, USER, MailServer, a_mail_server, an_open_mail_server
from tests.system.queue_manager.test_imports import managing
from tests.system.queue_manager.test_webhooks import _short_pauses, deliveries, until_all, write_log
from tests.waiting import eventually

__all__ = ["_short_pauses"]

ANN, BEN = "ann@example.org", "ben@example.org"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MailServer]:
    with a_mail_server(tmp_path) as server:
        yield server


@pytest.fixture
def configuration(tmp_path: Path, server: MailServer) -> Configuration:
    password = tmp_path / "password"
    password.write_text(PASSWORD + "\n")
    password.chmod(0o600)
    told = {
        "server": server.address, "username": USER, "password_file": str(password), "sender": "queue@example.org",
        "recipients": ["*@example.org"], "ca_file": str(server.certificate),
    }  # fmt: skip
    return Configuration.load(
        {}, home=tmp_path / "home", poll="200ms", mail=told, public_url="https://queue.example.org"
    )


@pytest.fixture
def archive(session: Session) -> AnArchive:
    archive = an_archive(session)
    set_receivers(archive, **{ANN: ALL})
    return archive


def text(sent: EmailMessage) -> str:
    return str(sent.get_content()).replace("\r\n", "\n")


def test_a_failed_run_is_mailed_with_the_lines_that_matter_the_commands_that_help_and_the_link(
    session: Session, configuration: Configuration, archive: AnArchive, server: MailServer
) -> None:
    archive.commit({"pdf": "", "index": ""})
    write_log(archive, "pdf@2", b"reading\n\x1b[31m! Undefined control sequence \xc3\xa9\x1b[0m\n.\nFrom here\n")
    archive.fail("pdf@2")
    archive.run("index@2")
    with managing(session, configuration):
        until_all(archive, "sent")
    (sent,) = server.mails
    assert server.encrypted == [True]
    assert (sent["from"], sent["to"]) == ("arkqueue <queue@example.org>", ANN)
    assert sent["subject"] == "[papers] papers@2 has failed: pdf"
    assert (sent.get_content_type(), sent["auto-submitted"]) == ("text/plain", "auto-generated")
    assert text(sent).split("\n")[:12] == [
        "papers@2 has failed: pdf",
        "",
        "  change 2",
        "  ann, 2026-01-01 00:00 UTC",
        "",
        "papers@2/pdf: failed (exit code 1)",
        "  | reading",
        "  | ! Undefined control sequence é",
        "  | .",
        "  | From here",
        "",
        "What helps:",
    ]
    assert "  arkqueue logs papers@2/pdf\n" in text(sent)
    assert "\nhttps://queue.example.org/papers@2\n" in text(sent)


def test_the_mail_about_rejected_tasks_names_no_retry_which_would_be_refused(
    session: Session, configuration: Configuration, archive: AnArchive, server: MailServer
) -> None:
    archive.commit({"deposit": ""})
    archive.end("deposit@2", 65)
    archive.commit({"deposit": "", "index": ""})
    archive.end("deposit@3", 65)
    archive.fail("index@3")
    with managing(session, configuration):
        until_all(archive, "sent")
    helps = [text(sent).partition("What helps:\n")[2].partition("\n\n")[0].split("\n  ") for sent in server.mails]
    assert helps[0][1:] == ["arkqueue logs papers@2/deposit", "arkqueue skip papers@2/deposit"]
    assert helps[1][1:] == [
        "arkqueue logs papers@3/deposit",
        "arkqueue retry papers@3 --failed",
        "arkqueue skip papers@3/deposit",
    ]


def test_a_mail_whose_answer_was_lost_is_sent_again_with_one_message_id(
    session: Session, configuration: Configuration, archive: AnArchive, server: MailServer
) -> None:
    server.answers += ["451 4.3.0 later", "lose"]
    failed_runs(archive, 2)
    with managing(session, configuration):
        (row,) = until_all(archive, "sent")
    assert row["tries"] == 3
    assert len(server.mails) == 2  # the one that it took without an answer, and the repetition
    assert len({sent["message-id"] for sent in server.tried}) == 1


def test_a_refused_address_holds_up_no_other(
    session: Session, configuration: Configuration, archive: AnArchive, server: MailServer
) -> None:
    set_receivers(archive, **{ANN: ALL, BEN: ALL})
    server.refused.add(ANN)
    failed_runs(archive, 2, 3)
    with managing(session, configuration):
        eventually(lambda: [sent["to"] for sent in server.mails] == [BEN, BEN])
        eventually(lambda: any("550 5.1.1 no such user \\x1b[31m here" in row["fault"] for row in deliveries(archive)))
        server.refused.clear()
        until_all(archive, "sent")
    assert [sent["to"] for sent in server.mails].count(ANN) == 2
    # Whoever refused a mail, or took one, was left as SMTP wants it.
    eventually(lambda: server.farewells == sum(row["tries"] for row in deliveries(archive)))


def test_a_server_that_greylists_gets_the_mail_at_the_second_try_and_others_meanwhile(
    session: Session, configuration: Configuration, archive: AnArchive, server: MailServer
) -> None:
    set_receivers(archive, **{ANN: ALL, BEN: ALL})
    server.greylisted.add(ANN)
    failed_runs(archive, 2)
    with managing(session, configuration):
        rows = until_all(archive, "sent")
    assert {row["tries"] for row in rows} == {1, 2}
    assert sorted(sent["to"] for sent in server.mails) == [ANN, BEN]


def test_a_server_with_the_certificate_of_another_gets_nothing(
    session: Session, configuration: Configuration, archive: AnArchive, tmp_path: Path
) -> None:
    assert configuration.mail is not None
    (tmp_path / "other").mkdir()
    with a_mail_server(tmp_path / "other", name="mail.example.org") as other:
        told = {"server": other.address, "ca_file": other.certificate}
        failed_runs(archive, 2)
        with managing(session, configuration.model_copy(update={"mail": configuration.mail.model_copy(update=told)})):
            eventually(
                lambda: "certificate is not valid for" in deliveries(archive)[0]["fault"], lambda: deliveries(archive)
            )
        assert other.tried == []


def test_a_mail_that_comes_when_nobody_waits_any_more_says_so(
    session: Session, configuration: Configuration, archive: AnArchive, server: MailServer
) -> None:
    archive.commit({"a": "", "b": "hold: true"})
    notifications.judge(session)
    archive.skip("b@2")
    with managing(session, configuration):
        until_all(archive, "sent")
    held = server.mails[0]
    assert held["subject"] == "[papers] papers@2 waited for a release, and does so no longer: b"
    assert "arkqueue release" not in text(held)
    assert "papers@2/b: skipped" in text(held)


def test_a_server_that_hangs_is_given_up_and_tried_again(
    session: Session,
    configuration: Configuration,
    archive: AnArchive,
    server: MailServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sending, "LONGEST", 3.0)
    server.answers += ["hang"]
    failed_runs(archive, 2)
    with managing(session, configuration):
        (row,) = until_all(archive, "sent")
    assert row["tries"] == 2


WRONG: list[tuple[dict[str, object], str]] = [
    ({"ca_file": None}, "certificate"),
    ({"username": "mallory"}, "refuses the password"),
    ({"server": "localhost:1"}, "cannot be reached"),
    ({"recipients": ("*@example.net",)}, "recipients of arkqueue.toml allows"),
]
"""Mistakes of the configuration, and words of the fault that stands with the delivery."""


def test_what_is_wrong_with_the_configuration_stands_with_the_delivery(
    session: Session, configuration: Configuration, archive: AnArchive, server: MailServer
) -> None:
    assert configuration.mail is not None
    failed_runs(archive, 2)
    for wrong, said in WRONG:
        broken = configuration.model_copy(update={"mail": configuration.mail.model_copy(update=wrong)})
        with managing(session, broken):
            eventually(lambda said=said: said in deliveries(archive)[0]["fault"], lambda: deliveries(archive))  # type: ignore[misc]
        assert server.mails == []
    with managing(session, configuration):
        until_all(archive, "sent")


def test_nothing_is_sent_unencrypted_to_a_server_that_offers_no_tls(
    session: Session, configuration: Configuration, archive: AnArchive
) -> None:
    """As where somebody on the way takes the offer out of what the server says."""
    assert configuration.mail is not None
    with an_open_mail_server() as stripped:
        broken = configuration.mail.model_copy(update={"server": stripped.address})
        failed_runs(archive, 2)
        with managing(session, configuration.model_copy(update={"mail": broken})):
            eventually(lambda: "STARTTLS" in deliveries(archive)[0]["fault"], lambda: deliveries(archive))
        assert stripped.tried == []


def test_what_committers_and_tasks_wrote_begins_no_header_and_no_line_of_ours(
    session: Session, configuration: Configuration, archive: AnArchive, server: MailServer
) -> None:
    evil = "x\r\nBcc: evil@example.org\r\n\r\nWhat helps:\u2028  rm -rf\x1b[2J\u202e"
    archive.commit({"pdf": ""})
    write_log(archive, "pdf@2", evil.encode() + b"\r\n.\r\nQUIT\r\n")
    archive.end("pdf@2", 1, message=evil)
    archive.sql("update revision set author = %s, message = %s", evil, evil)
    archives.stop(session, ArchiveId(archive.id), evil)
    with managing(session, configuration):
        until_all(archive, "sent")
    assert len(server.mails) == 2
    for sent in server.mails:
        assert sent["bcc"] is None
        assert sent["to"] == ANN
        assert text(sent).count("\nWhat helps:") == 1
        assert not any(sign in text(sent) for sign in "\x1b\u202e\u2028\r")
        lines = text(sent).split("\n")
        assert not any(line.startswith(("Bcc", "QUIT", "rm")) for line in lines)


def test_the_author_of_a_commit_is_told_where_the_repository_has_an_address(
    session: Session, configuration: Configuration, archive: AnArchive, server: MailServer
) -> None:
    set_receivers(archive, author=ALL)
    archive.commit({"a": ""}, author="Ben <ben@example.org>")
    archive.fail("a@2")
    archive.commit({"a": ""}, author="carl")
    archive.fail("a@3")
    with managing(session, configuration):
        until_all(archive, "sent")
    assert [(sent["to"], sent["subject"]) for sent in server.mails] == [(BEN, "[papers] papers@2 has failed: a")]


def test_an_author_with_an_address_that_the_configuration_does_not_allow_gets_nothing_and_is_no_fault(
    session: Session, configuration: Configuration, archive: AnArchive, server: MailServer
) -> None:
    set_receivers(archive, author=ALL)
    archive.commit({"a": ""}, author="Zoe <zoe@example.net>")
    archive.fail("a@2")
    with managing(session, configuration):
        (row,) = until_all(archive, "dropped")
    assert row["fault"] == "zoe@example.net: is not an address that [mail] recipients of arkqueue.toml allows"
    assert server.tried == []


@pytest.mark.parametrize(
    ("author", "address"),
    [
        ("Ben <ben@example.org>", "ben@example.org"),
        ("<ben@example.org>", "ben@example.org"),
        ("ben", ""),
        ("ben@example.org", ""),
        ("Ben <ben@example.org> <evil@example.net>", ""),
        ("Ben <ben@example.org\r\nBcc: x@y>", ""),
        ("Ben <ben@example.org,evil@example.net>", ""),
        ("Ben <a b@example.org>", ""),
        ("Ben <-o@example.org>", ""),
        ("Ben <ben%example.net@example.org>", ""),
        ("Ben <example.net!ben@example.org>", ""),
    ],
)
def test_an_address_is_taken_from_an_author_only_where_it_is_one(author: str, address: str) -> None:
    assert address_of(author) == address


def test_a_server_that_speaks_tls_from_the_first_byte_is_mailed_to_as_at_port_465(
    session: Session, configuration: Configuration, archive: AnArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert configuration.mail is not None
    (tmp_path / "implicit").mkdir()
    with a_mail_server(tmp_path / "implicit", implicit_tls=True) as other:
        told = {"server": other.address, "tls": "tls", "ca_file": other.certificate}
        failed_runs(archive, 2)
        with managing(session, configuration.model_copy(update={"mail": configuration.mail.model_copy(update=told)})):
            until_all(archive, "sent")
        assert [sent["subject"] for sent in other.mails] == ["[papers] papers@2 has failed: a"]
        # The other manners get nothing there, and say why. Both
        # sides of the first one wait for the other to speak.
        monkeypatch.setattr(sending, "LONGEST", 1.0)
        for wrong, said in (
            (told | {"tls": "starttls"}, "has not answered within 1 s"),
            (told | {"ca_file": None}, "certificate"),
        ):
            failed_runs(archive, archive.numbers[""] + 1)
            with managing(
                session, configuration.model_copy(update={"mail": configuration.mail.model_copy(update=wrong)})
            ):
                eventually(lambda said=said: any(said in row["fault"] for row in deliveries(archive)), lambda: deliveries(archive))  # type: ignore[misc]  # fmt: skip
        assert len(other.mails) == 1


def test_one_mail_counts_many_failures_and_names_the_first_of_them(
    session: Session, configuration: Configuration, archive: AnArchive, server: MailServer
) -> None:
    failed_runs(archive, *range(2, 32))
    archive.retry("a@2")
    archive.fail("a@2")  # one run, however often it fails
    archive.commit({"a": ""}, author="x")
    archive.run("a@32")
    server.answers += ["421 4.3.0 later"]
    with managing(session, configuration):
        until_all(archive, "sent")
    assert len(server.mails) == 1
    (sent,) = server.mails
    assert sent["subject"] == "[papers] papers: 30 have failed, 1 is fixed"
    lines = text(sent).split("\n")
    assert lines[2] == "  papers@2 has failed: change 2"
    assert "  … and 10 more that have failed" in lines
    assert "  papers@32 is fixed: change 32" in lines
    assert "  arkqueue status papers" in lines
    assert "https://queue.example.org/papers?state=unhandled" in lines
    assert {row["state"] for row in deliveries(archive)} == {"sent"}


def test_one_mail_to_an_author_tells_of_the_commits_of_this_author_alone(
    session: Session, configuration: Configuration, archive: AnArchive, server: MailServer
) -> None:
    set_receivers(archive, author=ALL)
    for number in range(2, 22):
        archive.commit({"a": ""}, author="Ben <ben@example.org>" if number % 2 else "Ann <ann@example.org>")
        archive.fail(f"a@{number}")
    with managing(session, configuration):
        until_all(archive, "sent")
    assert sorted((sent["to"], sent["subject"]) for sent in server.mails) == [
        (ANN, "[papers] papers: 10 have failed"),
        (BEN, "[papers] papers: 10 have failed"),
    ]
    assert "papers@3 " not in text(next(sent for sent in server.mails if sent["to"] == ANN))
