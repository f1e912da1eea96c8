"""The texts of notifications: titles, links, and the commands that help (design 15)."""

from __future__ import annotations

from dataclasses import replace
from email.message import EmailMessage
from pathlib import Path

import pytest

from arkqueue.config import Configuration
from arkqueue.config.receivers import Mail
from arkqueue.db.session import Session
from arkqueue.errors import Conflict
from arkqueue.model import ArchiveId, End, Occasion, RunId
from arkqueue.notifications.mail import mail_of
from arkqueue.notifications.message import TAIL, Message, write
from arkqueue.queue import archives, control, deletion, holds, many, notifications, removal
from arkqueue.queue.notifications import Delivery
from arkqueue.views.status import status
from tests.builders import AnArchive, a_workflow, an_archive, an_entry, faulty
from tests.db.outbox import ALL, ANN, choose, failed_runs, judge, occasions, set_receivers


def test_the_link_to_a_run_is_an_address_whatever_its_branch_is_called(session: Session) -> None:
    archive = an_archive(session, branches=("main", "prüfung/ä"))
    set_receivers(archive, ci=ALL)
    archive.commit(faulty(), branch="prüfung/ä")
    judge(session)
    (delivery,) = choose(archive)
    message = write(session, Configuration(home=Path("home"), public_url="https://queue.example.org"), delivery)
    assert message is not None
    assert message.url == "https://queue.example.org/papers:pr%C3%BCfung%2F%C3%A4@2"


def test_a_failure_that_the_settings_cause_is_told_with_its_explanation_and_no_retry(told: AnArchive) -> None:
    told.commit({"a": "", "b": ""})
    told.end("a@2", None, End.NOT_PERMITTED, message="archive papers: its tasks may not")
    told.run("b@2")
    assert occasions(told) == ["failed 2"]
    (delivery,) = choose(told)
    message = write(told.session, Configuration(home=Path("home")), delivery)
    assert message is not None
    assert message.commands == ["arkqueue show papers@2", "arkqueue logs papers@2/a", "arkqueue explain papers@2/a"]


def test_a_failed_run_of_a_dropped_revision_is_told_with_a_waiver_and_no_retry(told: AnArchive) -> None:
    told.commit({"a": ""})
    told.fail("a@2")
    assert occasions(told) == ["failed 2"]
    told.append("", [an_entry(3, a_workflow({"a": ""}))], dropped=["2"])
    (delivery,) = choose(told)
    message = write(told.session, Configuration(home=Path("home")), delivery)
    assert message is not None
    assert message.commands == ["arkqueue show papers@2", "arkqueue logs papers@2/a", "arkqueue skip papers@2/a"]


def test_news_that_are_over_when_they_are_told_say_so(told: AnArchive) -> None:
    failed_runs(told, 2)
    (delivery,) = choose(told)
    told.retry("a@2")
    told.run("a@2")
    message = write(told.session, Configuration(home=Path("home")), delivery)
    assert message is not None
    assert message.title == "papers@2 had failed, and has completed since: a"
    assert message.commands == ["arkqueue show papers@2"]
    stopped = replace(delivery, run=0, tasks=[], attempts=[], occasion=Occasion.STOPPED, what="its repository is gone")
    message = write(told.session, Configuration(home=Path("home")), stopped)
    assert message is not None
    assert message.title == "papers was stopped, and is so no longer"
    assert (message.what, message.commands) == ("its repository is gone", ["arkqueue archive show papers"])


def test_no_retry_is_named_for_what_only_a_waiver_or_an_explanation_helps(told: AnArchive) -> None:
    told.commit({"a": "foreach: [x, y]", "upload": "on_lost: fail"})
    told.end("a/x@2", 65)
    told.fail("a/y@2")
    told.end("upload@2", None, End.LOST)
    judge(told.session)
    (delivery,) = choose(told)

    def commands() -> list[str]:
        message = write(told.session, Configuration(home=Path("home")), delivery)
        assert message is not None
        return [command for command in message.commands if command.split()[1] not in ("show", "logs")]

    others = ["arkqueue explain papers@2/upload", "arkqueue skip papers@2/a/x"]
    assert commands() == ["arkqueue retry papers@2/a/y", *others], "a retry of all is refused for upload"
    deletion.delete_item(told.session, RunId(told.run_id(2)), "y", "ann")
    assert commands() == others, "nothing that is left may be retried"


def only(archive: AnArchive, occasion: str = "failed") -> Delivery:
    """The one delivery of an occasion, with all news before it sent."""
    judge(archive.session)
    while True:
        (one,) = choose(archive)
        if one.occasion == occasion:
            return one
        notifications.record_sent(archive.session, one)


def written(archive: AnArchive, delivery: Delivery) -> Message:
    message = write(archive.session, Configuration(home=Path("home")), delivery)
    assert message is not None
    return message


def helping(message: Message) -> list[str]:
    return [command for command in message.commands if command.split()[1] not in ("show", "logs")]


def helping_in_status(archive: AnArchive, run: str = "papers@2") -> list[str]:
    """The commands of ``arkqueue status`` for a run."""
    needs = status(archive.session, None, None, 60.0).needs
    return [need.command for need in needs if need.name.partition("/")[0] == run]


def test_a_repaired_failure_is_told_with_its_waiver_only_if_a_task_waits_for_it(told: AnArchive) -> None:
    """Like the overview: a retry would be refused, because it replaced the work of a later revision."""
    workflow = {"a": "", "upload": "depends: [a, PREV]"}
    for _ in range(2):
        told.commit(workflow)
    told.run("a@3")
    told.fail("a@2")
    delivery = only(told)
    with pytest.raises(Conflict, match="later revisions"):
        many.retry_failed(told.session, RunId(told.run_id(2)), "ann")
    message = written(told, delivery)
    assert (message.title, helping(message)) == ("papers@2 has failed: a", ["arkqueue skip papers@2/a"])
    assert message.tasks[0].why == "exit code 1 · repaired by a later revision, but later tasks wait behind it"
    (needed,) = status(told.session, None, None, 60.0).needs
    assert needed.command == "arkqueue skip papers@2/a"
    told.cancel("upload@3")
    message = written(told, delivery)
    assert (helping(message), message.what) == ([], "None of these failures needs anybody any more.")
    assert message.tasks[0].why == "exit code 1 · repaired by a later revision"


def test_an_outdated_retry_is_told_with_force(told: AnArchive) -> None:
    for _ in range(2):
        told.commit({"a": "depends: [PREV]"})
    told.fail("a@2")
    told.skip("a@2")
    told.claim("a@3")
    told.retry("a@2", force=True)
    told.fail("a@2")
    message = written(told, only(told))
    assert helping(message) == ["arkqueue retry papers@2/a --force"]
    assert message.tasks[0].why == "exit code 1 · later revisions have already run"


def test_a_retry_that_would_bring_back_an_outdated_task_is_told_with_force(told: AnArchive) -> None:
    told.commit({"a": "", "upload": "depends: [a]"})
    told.commit({"upload": ""})
    told.fail("a@2")
    delivery = only(told)
    assert helping(written(told, delivery)) == ["arkqueue retry papers@2 --failed"]
    told.run("upload@3")
    with pytest.raises(Conflict, match="papers@3/upload completed"):
        many.retry_failed(told.session, RunId(told.run_id(2)), "ann")
    assert helping(written(told, delivery)) == ["arkqueue retry papers@2/a --force"]
    (needed,) = status(told.session, None, None, 60.0).needs
    assert needed.command == "arkqueue retry papers@2/a --force"
    told.retry("a@2", force=True)
    assert told.states()["upload@2"] == "waiting"


def test_an_outdated_release_is_told_with_force_and_one_of_an_archive_on_hold_after_its_end(told: AnArchive) -> None:
    told.commit({"a": "hold: true"})
    delivery = only(told, "held")
    assert helping(written(told, delivery)) == ["arkqueue release papers@2"]
    holds.hold_archive(told.session, ArchiveId(told.id), "ann")
    assert helping(written(told, delivery)) == ["arkqueue unhold papers", "arkqueue release papers@2"]
    holds.unhold(told.session, ArchiveId(told.id), "ann")
    told.commit({"a": ""})
    told.run("a@3")
    with pytest.raises(Conflict, match="later revisions"):
        holds.release_run(told.session, RunId(told.run_id(2)), "ann")
    message = written(told, delivery)
    assert helping(message) == ["arkqueue release papers@2/a --force"]
    assert message.tasks[0].why == "by its workflow file · later revisions have already run"


def test_no_command_is_told_that_a_stopped_archive_refuses(told: AnArchive) -> None:
    told.commit({"a": "", "b": "hold: true"})
    told.fail("a@2")
    failed = only(told)
    archives.stop(told.session, ArchiveId(told.id), "it went back")
    message = written(told, failed)
    assert helping(message) == ["arkqueue explain papers@2/a"]
    assert message.tasks[0].why == "exit code 1 · papers is stopped"
    notifications.record_sent(told.session, failed)
    assert helping(written(told, only(told, "held"))) == ["arkqueue explain papers@2/b"]


def test_failures_that_were_retried_since_are_told_without_a_command(told: AnArchive) -> None:
    told.commit({"a": "", "b": "", "approve": "hold: true"})
    told.fail("a@2", "b@2")
    delivery = only(told)
    assert written(told, delivery).title == "papers@2 has failures: a, b"
    told.retry("b@2")
    told.run("b@2")
    message = written(told, delivery)
    assert (message.title, helping(message)) == ("papers@2 has failures: a", ["arkqueue retry papers@2 --failed"])
    told.retry("a@2")
    told.run("a@2")
    with pytest.raises(Conflict, match="has no failed task"):
        many.retry_failed(told.session, RunId(told.run_id(2)), "ann")
    message = written(told, delivery)
    assert message.title == "papers@2 had failures, and has none of them now: a, b"
    assert (helping(message), message.what) == ([], "None of these failures needs anybody any more.")
    settings = Mail(server="localhost:25", tls="none", sender="queue@example.org", recipients=("*",))
    assert "What helps:" not in mail_of(settings, message, ANN, "").get_content()


def test_a_removed_log_is_told_by_the_text_in_its_place(told: AnArchive) -> None:
    told.commit({"a": "", "b": ""})
    told.write("a@2", b"a secret\n")
    told.write("b@2", b"a secret\n" * TAIL)
    told.fail("a@2", "b@2")
    delivery = only(told)
    for key in ("a@2", "b@2"):
        removal.remove(told.session, told.task(key), "ann", "it was a secret", log=True)
    for one in written(told, delivery).tasks:
        (line,) = one.lines
        assert line.startswith("The log was removed on ")
        assert line.endswith(" by ann, because it was a secret")


def test_a_mail_about_good_news_leads_to_no_failures(archive: AnArchive) -> None:
    set_receivers(archive, **{ANN: ["completed"]})
    for number in range(2, 3 + notifications.LEAST_CARRIED):
        archive.commit({"a": ""})
        archive.run(f"a@{number}")
    judge(archive.session)
    configuration = Configuration(home=Path("home"), public_url="https://queue.example.org")
    (head,) = choose(archive)
    many = write(archive.session, configuration, head)
    one = write(archive.session, configuration, replace(head, carries=0))
    assert many is not None
    assert one is not None
    assert (many.title, many.url) == ("papers: 6 have completed", "https://queue.example.org/papers")
    assert (many.commands[0], many.helps) == ("arkqueue runs papers", False)
    settings = Mail(server="localhost:25", tls="none", sender="queue@example.org", recipients=("*",))
    assert "\n\nTo see more:\n  arkqueue show papers@2\n" in mail_of(settings, one, ANN, "").get_content()


def test_no_receiver_takes_a_notification_for_one_of_another_database(archive: AnArchive) -> None:
    """A restored database counts its deliveries on from an earlier number, and each installation from 1."""
    set_receivers(archive, **{ANN: ALL})
    settings = Mail(server="localhost:25", tls="none", sender="queue@example.org", recipients=("*",))
    deliveries, mails = list[Delivery](), list[EmailMessage]()
    for number in (2, 3):
        archive.sql("delete from delivery")
        archive.sql("alter table delivery alter column id restart")
        failed_runs(archive, number)
        deliveries += choose(archive)
        message = write(archive.session, Configuration(home=Path("home")), deliveries[-1])
        assert message is not None
        mails += [mail_of(settings, message, ANN, f"https://{name}.example.org") for name in ("one", "two")]
    assert deliveries[0].id == deliveries[1].id
    assert mails[0]["message-id"] == mails[1]["message-id"] != mails[2]["message-id"]
    assert len({mail["references"] for mail in mails}) == 4


def test_the_failures_at_the_end_of_a_long_list_are_judged_too(told: AnArchive) -> None:
    """A later revision repairs so many of the first ones that no other is among those that are judged first."""
    items = [f"i{number:02}" for number in range(30)]
    told.commit({"mirror": f"foreach: [{', '.join(items)}]"})
    told.fail(*(f"mirror/{item}@2" for item in items))
    delivery = only(told)
    told.commit({"mirror": f"foreach: [{', '.join(items[:25])}]"})
    told.run(*(f"mirror/{item}@3" for item in items[:25]))
    message = written(told, delivery)
    assert (message.what, helping(message)) == ("", ["arkqueue retry 'papers@2/mirror/*'"])
    assert helping(message) == helping_in_status(told)
    assert "arkqueue logs papers@2/mirror/i25" in message.commands
    for item in items[25:]:
        run, task = RunId(told.run_id(2)), told.task(f"mirror/{item}@2")
        control.note(told.session, "known", "ann", run=run, task=task)
    message = written(told, delivery)
    assert (message.what, helping(message)) == ("", []), "not all failures are judged"


def test_a_retry_of_a_run_is_named_only_if_no_failure_is_repaired(told: AnArchive) -> None:
    workflow = {"pdf": "", "check": "", "lint": ""}
    told.commit(workflow)
    told.fail("pdf@2", "check@2", "lint@2")
    delivery = only(told)
    assert helping(written(told, delivery)) == ["arkqueue retry papers@2 --failed"]
    told.commit(workflow)
    told.run("pdf@3")
    message = written(told, delivery)
    assert helping(message) == ["arkqueue retry papers@2/check", "arkqueue retry papers@2/lint"]
    assert sorted(helping(message)) == sorted(helping_in_status(told))
    assert "arkqueue logs papers@2/check" in message.commands, "pdf needs nobody"
    (refused,) = many.retry_failed(told.session, RunId(told.run_id(2)), "ann").refused
    assert refused.task == told.task("pdf@2")


def test_a_release_of_a_run_is_named_only_if_no_held_task_is_outdated(told: AnArchive) -> None:
    workflow = {"a": "hold: true", "b": "hold: true", "c": "hold: true", "d": "depends: [c]\nhold: true"}
    told.commit(workflow)
    delivery = only(told, "held")
    assert helping(written(told, delivery)) == ["arkqueue release papers@2"]
    told.commit({"d": ""})
    told.run("d@3")
    own = [f"arkqueue release papers@2/{name}" for name in "abc"]
    assert helping(written(told, delivery)) == own, "a release of all is refused for d, which still waits"
    told.commit({"a": "", "b": ""})
    told.run("a@4", "b@4")
    message = written(told, delivery)
    assert helping(message) == [own[2], f"{own[0]} --force", f"{own[1]} --force"]
    assert sorted(helping(message)) == sorted(helping_in_status(told))
    refused = holds.release_run(told.session, RunId(told.run_id(2)), "ann").refused
    assert {one.task for one in refused} == {told.task(f"{name}@2") for name in "abd"}


def test_many_commands_of_a_notification_end_with_the_status_of_its_archive(told: AnArchive) -> None:
    workflow = {f"a{number}": "" for number in range(7)}
    told.commit(workflow)
    told.fail(*(f"{name}@2" for name in workflow))
    delivery = only(told)
    told.commit({"a0": ""})
    told.run("a0@3")
    own = [f"arkqueue retry papers@2/a{number}" for number in range(1, 6)]
    assert helping(written(told, delivery)) == [*own, "arkqueue status papers"]


def test_a_mail_about_many_runs_says_which_of_its_news_are_over(archive: AnArchive) -> None:
    set_receivers(archive, **{ANN: ALL})
    for number in range(2, 9):
        archive.commit({"a": "", "c": "hold: true"})
        archive.fail(f"a@{number}")
    archives.stop(archive.session, ArchiveId(archive.id), "it went back")
    judge(archive.session)
    (head,) = choose(archive)
    message = written(archive, head)
    assert message.title == "papers: 7 have failed, 7 wait for a release, it is stopped"
    archives.go_on(archive.session, ArchiveId(archive.id), "it went back")
    archive.cancel("c@3")
    holds.release(archive.session, archive.task("c@5"), "ann")
    archive.retry("a@6")
    archive.run("a@6")
    message = written(archive, head)
    parts = [
        "6 have failed",
        "1 had failed, and has no failures now",
        "5 wait for a release",
        "2 waited for a release, and do so no longer",
        "it was stopped, and is so no longer",
    ]
    assert message.title == f"papers: {', '.join(parts)}"
    assert len(message.others) == 15
    for line in (
        "papers@2 has failures: change 2",
        "papers@3 has failed: change 3",
        "papers@6 had failed, and has no failures now: change 6",
        "papers@4 waits for a release: change 4",
        "papers@5 waited for a release, and does so no longer: change 5",
        "papers was stopped, and is so no longer",
    ):
        assert line in message.others
    assert (message.commands[0], message.helps) == ("arkqueue status papers", True)


def test_faults_of_workflow_files_that_a_later_revision_has_repaired_need_nobody(told: AnArchive) -> None:
    told.commit(faulty())
    delivery = only(told)
    message = written(told, delivery)
    assert (message.what, helping(message)) == ("", ["arkqueue archive show papers"])
    told.commit({"a": ""})
    message = written(told, delivery)
    assert (message.commands, message.helps) == (["arkqueue show papers@2"], False)
    assert message.what == "These faults are at the head of no branch any more, so they need nobody."
