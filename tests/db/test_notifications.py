"""Events of runs go into the outbox for each receiver: once, after a change, and in the transaction
that makes the change (design 15).
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from email.message import EmailMessage
from pathlib import Path

import pytest

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.config import Configuration
from arkqueue.config.receivers import Mail
from arkqueue.db.session import Session, rows
from arkqueue.errors import Conflict, NotFound
from arkqueue.model import MAIL_WINDOW, MOST_MAILS, USUAL_OCCASIONS, ArchiveId, End, Occasion, RunId
from arkqueue.notifications.mail import mail_of
from arkqueue.notifications.message import TAIL, Message, write
from arkqueue.queue import archives, deletion, holds, many, notifications, purge, removal
from arkqueue.queue.notifications import Delivery
from arkqueue.views import installation
from arkqueue.views import notifications as views
from arkqueue.views.status import status
from tests.builders import AnArchive, a_workflow, an_archive, an_entry, faulty

CI, CHAT = "https://hooks.example.org/ci", "https://chat.example.org/x"
ALL = [str(occasion) for occasion in Occasion]


def set_receivers(archive: AnArchive, **receivers: list[str]) -> None:
    """Receivers by short names."""
    named = {{"ci": CI, "chat": CHAT}.get(name, name): occasions for name, occasions in receivers.items()}
    present = ArchiveSettings(**archives.one(archive.session, ArchiveId(archive.id)).settings)
    archives.change_settings(archive.session, ArchiveId(archive.id), replace(present, notify=named), "ann")


@pytest.fixture
def told(archive: AnArchive) -> AnArchive:
    """An archive with one receiver, which wants to know everything."""
    set_receivers(archive, ci=ALL)
    return archive


def judge(session: Session) -> None:
    while notifications.judge(session):
        pass


def outbox(archive: AnArchive) -> list[tuple[str, int, str]]:
    """What is in the outbox after everything was judged: occasion, number of the run's revision, receiver."""
    judge(archive.session)
    rows = archive.sql(
        "select d.occasion, coalesce(r.number, 0) as number, d.receiver from delivery d left join run r on r.id = d.run_id"
        " where d.archive_id = %s order by d.id",
        archive.id,
    )
    return [(row["occasion"], row["number"], row["receiver"]) for row in rows]


def occasions(archive: AnArchive) -> list[str]:
    return [f"{occasion} {number}" for occasion, number, _ in outbox(archive)]


def choose(archive: AnArchive, most: int = 10) -> list[Delivery]:
    return notifications.choose(archive.session, most)


def let_be_due(archive: AnArchive) -> None:
    """The pauses after failed tries are over."""
    archive.sql("update delivery set due_at = clock_timestamp() - interval '1 second'")


# What is told


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


def test_a_run_is_told_once_it_has_settled_and_again_once_it_is_fixed(told: AnArchive) -> None:
    told.commit({"a": "", "b": ""})
    told.fail("a@2")
    assert occasions(told) == []
    told.run("b@2")
    assert occasions(told) == ["failed 2"]
    told.commit({"a": "", "b": ""})
    told.run("a@3", "b@3")
    assert occasions(told) == ["failed 2", "fixed 3"]
    told.commit({"a": "", "b": ""})
    told.run("a@4", "b@4")
    assert occasions(told) == ["failed 2", "fixed 3", "completed 4"]
    assert occasions(told) == ["failed 2", "fixed 3", "completed 4"]


def test_a_retried_run_is_told_as_failed_for_each_failure_and_as_fixed(told: AnArchive) -> None:
    told.commit({"a": ""})
    told.fail("a@2")
    assert occasions(told) == ["failed 2"]
    told.retry("a@2")
    told.fail("a@2")  # nobody has judged the run while it went on
    assert occasions(told) == ["failed 2", "failed 2"]
    told.retry("a@2")
    told.run("a@2")
    assert occasions(told) == ["failed 2", "failed 2", "fixed 2"]


def test_a_run_whose_failure_was_waived_has_completed_and_is_not_fixed(told: AnArchive) -> None:
    told.commit({"a": ""})
    told.fail("a@2")
    assert occasions(told) == ["failed 2"]
    told.skip("a@2")
    assert occasions(told) == ["failed 2", "completed 2"]


@pytest.mark.parametrize("as_completed", [False, True])
def test_a_task_that_completes_after_its_waived_failure_is_told_as_fixed(told: AnArchive, as_completed: bool) -> None:
    set_receivers(told, ci=["failed", "fixed"])
    for _ in range(2):
        told.commit({"a": "depends: [PREV]"})
    told.fail("a@2")
    assert occasions(told) == ["failed 2"]
    told.skip("a@2", as_completed=as_completed)
    told.run("a@3")
    assert occasions(told) == ["failed 2", "fixed 3"]


def test_faults_of_workflow_files_are_told_and_so_is_that_they_are_gone(told: AnArchive) -> None:
    told.commit(faulty())
    assert occasions(told) == ["failed 2"]
    told.commit({"a": ""})
    told.run("a@3")
    assert occasions(told) == ["failed 2", "fixed 3"]


def test_a_run_that_waits_for_a_release_is_told_each_time_that_it_begins_to(told: AnArchive) -> None:
    told.commit({"a": "hold: true", "b": "depends: [a]"})
    assert occasions(told) == ["held 2"]
    holds.release(told.session, told.task("a@2"), "ann")
    assert occasions(told) == ["held 2"]
    holds.hold(told.session, told.task("b@2"), "ann")
    assert occasions(told) == ["held 2"]  # b waits for a as well
    told.run("a@2")
    assert occasions(told) == ["held 2", "held 2"]


def test_a_held_task_is_told_once_it_waits_for_nothing_but_its_release(told: AnArchive) -> None:
    workflow = {"index": "", "upload": "depends: [index]", "publish": "depends: [upload]\nhold: true"}
    told.commit(workflow)
    told.run("index@2")
    told.fail("upload@2")
    assert occasions(told) == ["failed 2"]
    told.commit(workflow)
    told.run("index@3", "upload@3")
    assert occasions(told) == ["failed 2", "held 3"]
    (held,) = told.sql("select count, tasks from delivery where occasion = 'held'")
    assert (held["count"], held["tasks"]) == (1, [told.task("publish@3")])


def test_a_held_task_that_waits_for_an_earlier_run_is_told_when_that_is_over(told: AnArchive) -> None:
    told.commit({"a": "", "publish": ""})
    told.commit({"a": "", "publish": "depends: [PREV]\nhold: true"})
    told.run("a@2", "a@3")
    assert occasions(told) == []
    told.run("publish@2")
    assert sorted(occasions(told)) == ["completed 2", "held 3"]


def test_a_run_that_is_held_as_a_whole_is_told_as_held(told: AnArchive) -> None:
    told.commit({"a": "", "b": "depends: [a]"})
    holds.hold_run(told.session, RunId(told.run_id(2)), "ann")
    assert occasions(told) == ["held 2"]
    (held,) = told.sql("select tasks from delivery")
    assert held["tasks"] == [told.task("a@2")]


def test_a_failure_is_told_before_the_run_settles_also_if_the_held_task_waits_for_an_earlier_run(
    told: AnArchive,
) -> None:
    told.commit({"publish": ""})
    told.commit({"a": "", "publish": "depends: [PREV]\nhold: true"})
    told.fail("a@3")
    assert occasions(told) == ["failed 3"]
    told.run("publish@2")
    assert sorted(occasions(told)) == ["completed 2", "failed 3", "held 3"]


def test_a_gate_in_the_midst_of_a_run_is_told_and_the_failure_before_it_is_not_forgotten(told: AnArchive) -> None:
    told.commit({"a": "", "b": ""})
    told.fail("a@2")
    told.run("b@2")
    assert occasions(told) == ["failed 2"]
    told.retry("a@2")
    holds.hold(told.session, told.task("a@2"), "ann")
    assert occasions(told) == ["failed 2", "held 2"]
    holds.release(told.session, told.task("a@2"), "ann")
    told.run("a@2")
    assert occasions(told) == ["failed 2", "held 2", "fixed 2"]


def test_failures_beside_a_held_task_are_told_before_the_run_settles_and_once(told: AnArchive) -> None:
    told.commit({"approve": "hold: true", "a": "", "b": "", "c": "depends: [approve]"})
    assert occasions(told) == ["held 2"]
    told.fail("a@2")
    assert occasions(told) == ["held 2"]  # b goes on
    told.fail("b@2")
    assert occasions(told) == ["held 2", "failed 2"]
    (failed,) = told.sql("select count, tasks from delivery where occasion = 'failed'")
    assert (failed["count"], set(failed["tasks"])) == (2, {told.task("a@2"), told.task("b@2")})
    holds.release(told.session, told.task("approve@2"), "ann")
    told.run("approve@2")
    assert occasions(told) == ["held 2", "failed 2"]
    holds.hold(told.session, told.task("c@2"), "ann")
    assert occasions(told) == ["held 2", "failed 2", "held 2"]
    holds.release(told.session, told.task("c@2"), "ann")
    told.run("c@2")
    assert occasions(told) == ["held 2", "failed 2", "held 2"]  # the same failures
    told.retry("a@2")
    told.fail("a@2")
    assert occasions(told) == ["held 2", "failed 2", "held 2", "failed 2"]
    told.retry("a@2")
    told.retry("b@2")
    told.run("a@2", "b@2")
    assert occasions(told)[4:] == ["fixed 2"]


def test_a_run_that_fails_and_is_held_in_one_moment_is_told_as_failed_first(told: AnArchive) -> None:
    told.commit({"a": "", "approve": "hold: true"})
    told.fail("a@2")
    assert occasions(told) == ["failed 2", "held 2"]
    (delivery,) = choose(told)
    message = write(told.session, Configuration(home=Path("home")), delivery)
    assert message is not None
    assert message.title == "papers@2 has failures: a"


def test_who_put_an_archive_on_hold_is_not_told_of_each_of_its_runs(told: AnArchive) -> None:
    told.commit({"a": ""})
    holds.hold_archive(told.session, ArchiveId(told.id), "ann")
    told.commit({"a": ""})
    assert set(told.states().values()) == {"held"}
    assert occasions(told) == []


def test_a_stopped_archive_is_told_once_and_again_after_it_went_on(told: AnArchive) -> None:
    id = ArchiveId(told.id)
    archives.stop(told.session, id, "it went back")
    assert occasions(told) == ["stopped 0"]
    archives.stop(told.session, id, "it went back")
    assert occasions(told) == ["stopped 0"]
    archives.go_on(told.session, id, "it went back")
    assert occasions(told) == ["stopped 0"]
    archives.stop(told.session, id, "it went back")
    assert occasions(told) == ["stopped 0", "stopped 0"]


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


def test_canceled_and_superseded_runs_are_nobodys_news(told: AnArchive) -> None:
    told.commit({"a": "cancels: [PREV]"})
    told.commit({"a": "cancels: [PREV]"})
    told.cancel("a@3")
    assert occasions(told) == []


def test_each_receiver_is_told_what_it_asked_for(archive: AnArchive) -> None:
    set_receivers(archive, ci=["completed"], chat=[str(o) for o in USUAL_OCCASIONS])
    archive.commit({"a": ""})
    archive.fail("a@2")
    archive.commit({"a": ""})
    archive.run("a@3")
    archive.commit({"a": ""})
    archive.run("a@4")
    assert sorted(outbox(archive), key=lambda one: one[1:]) == [
        ("failed", 2, CHAT),
        ("fixed", 3, CHAT),
        ("completed", 3, CI),
        ("completed", 4, CI),
    ]


def test_an_author_who_is_a_receiver_too_is_told_once(archive: AnArchive) -> None:
    set_receivers(archive, author=ALL, **{"ann@example.org": ["failed"]})
    archive.commit({"a": ""}, author="Ann <Ann@example.org>")
    archive.fail("a@2")
    assert [receiver for _, _, receiver in outbox(archive)] == ["ann@example.org"]
    archive.retry("a@2")
    archive.run("a@2")
    assert [receiver for _, _, receiver in outbox(archive)] == [
        "ann@example.org",
        "author",
    ]  # fixed, which only authors asked for


def test_an_archive_without_receivers_has_nothing_judged(archive: AnArchive) -> None:
    archive.commit({"a": ""})
    archive.fail("a@2")
    holds.hold_archive(archive.session, ArchiveId(archive.id), "ann")
    archives.stop(archive.session, ArchiveId(archive.id), "it went back")
    assert archive.sql("select 1 as one from to_judge") == []


def test_nothing_of_before_is_told_to_a_new_receiver(archive: AnArchive) -> None:
    archive.commit({"a": ""})
    archive.fail("a@2")
    set_receivers(archive, ci=ALL)
    assert occasions(archive) == []


def test_a_deleted_item_that_had_failed_leaves_a_run_that_has_completed(told: AnArchive) -> None:
    told.commit({"a": "foreach: [x, y]"})
    told.run("a/x@2")
    told.fail("a/y@2")
    assert occasions(told) == ["failed 2"]
    deletion.delete_item(told.session, RunId(told.run_id(2)), "y", "ann")
    assert occasions(told)[0] == "failed 2"
    assert occasions(told)[1:] in (["fixed 2"], ["completed 2"])


def test_two_judges_at_once_tell_everything_once(told: AnArchive) -> None:
    for number in range(2, 12):
        told.commit({"a": ""})
        told.fail(f"a@{number}")
    threads = [threading.Thread(target=judge, args=(told.session,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert occasions(told) == [f"failed {number}" for number in range(2, 12)]


def test_what_moves_while_it_is_judged_is_judged_again(told: AnArchive) -> None:
    """Two connections: the judge has taken the run and looked at it, and has not committed; the run goes on."""
    told.commit({"a": ""})
    told.fail("a@2")
    with told.session.database.transaction() as connection:
        assert rows(connection, "lock_outbox", work=1)
        taken = rows(connection, "take_to_judge", most=10)
        assert [row.run_id for row in taken] == [told.run_id(2)]
        told.retry("a@2")  # waits for nobody
        told.run("a@2")
        assert not notifications.judge(told.session)  # another one judges
    assert occasions(told) == ["completed 2"]  # what was taken is forgotten with its judge; what came after is not


# Who is sent what, and when


def failed_runs(archive: AnArchive, *numbers: int) -> None:
    for number in numbers:
        archive.commit({"a": ""})
        archive.fail(f"a@{number}")
    judge(archive.session)


def test_a_receiver_is_sent_one_delivery_at_a_time_in_the_order_of_each_run(told: AnArchive) -> None:
    told.commit({"a": ""})
    told.fail("a@2")
    judge(told.session)
    told.retry("a@2")
    told.run("a@2")
    judge(told.session)
    (first,) = choose(told)
    assert first.occasion == "failed"
    assert choose(told) == []
    notifications.record_failure(told.session, first, "no", is_silent=False)
    assert choose(told) == []  # the next one of that run waits for it
    let_be_due(told)
    (again,) = choose(told)
    assert (again.id, again.tries) == (first.id, 2)
    notifications.record_sent(told.session, again)
    (second,) = choose(told)
    assert second.occasion == "fixed"


def test_a_refused_delivery_holds_up_no_other_run_and_no_other_receiver(archive: AnArchive) -> None:
    set_receivers(archive, ci=ALL, chat=ALL)
    failed_runs(archive, 2, 3)
    first = {delivery.receiver: delivery for delivery in choose(archive)}
    assert set(first) == {CI, CHAT}
    notifications.record_failure(archive.session, first[CI], "no", is_silent=False)
    notifications.record_sent(archive.session, first[CHAT])
    second = {delivery.receiver: delivery.run for delivery in choose(archive)}
    assert second == {CI: archive.run_id(3), CHAT: archive.run_id(3)}


def test_a_receiver_that_does_not_answer_is_left_alone_until_its_pause_is_over(told: AnArchive) -> None:
    failed_runs(told, 2, 3)
    (first,) = choose(told)
    notifications.record_failure(told.session, first, "silence", is_silent=True)
    assert choose(told) == []
    let_be_due(told)
    (again,) = choose(told)
    assert again.id == first.id


def test_each_author_is_a_receiver_of_their_own(archive: AnArchive) -> None:
    set_receivers(archive, author=ALL)
    for number, author in enumerate(("Ann <ann@example.org>", "Ben <ben@example.org>") * 2, 2):
        archive.commit({"a": ""}, author=author)
        archive.fail(f"a@{number}")
    judge(archive.session)
    of_ann, of_ben = choose(archive)
    assert [one.run for one in (of_ann, of_ben)] == [archive.run_id(2), archive.run_id(3)]
    notifications.record_failure(archive.session, of_ann, "silence", is_silent=True)
    notifications.record_sent(archive.session, of_ben)
    assert [one.run for one in choose(archive)] == [archive.run_id(5)]
    assert waits(archive) == {of_ann.id: "", of_ann.id + 2: f"for {of_ann.id}, which its receiver has not answered"}


def test_a_delivery_to_an_author_is_resent_without_those_to_other_authors(archive: AnArchive) -> None:
    set_receivers(archive, author=ALL)
    for number, author in enumerate(("Ann <ann@example.org>", "Ben <ben@example.org>"), 2):
        archive.commit({"a": ""}, author=author)
        archive.fail(f"a@{number}")
    judge(archive.session)
    of_ann, of_ben = choose(archive)
    for one in (of_ann, of_ben):
        notifications.record_failure(archive.session, one, "silence", is_silent=True)
    notifications.resend(archive.session, of_ann.id, "ann")
    assert [one.id for one in choose(archive)] == [of_ann.id]


def test_an_author_gets_so_many_mails_of_an_archive(archive: AnArchive) -> None:
    set_receivers(archive, author=ALL)
    for number in range(2, MOST_MAILS + 3):
        archive.commit({"a": ""}, author="Ann <ann@example.org>")
        archive.fail(f"a@{number}")
        judge(archive.session)
        for delivery in choose(archive):
            notifications.record_sent(archive.session, delivery)
    assert outbox(archive)[-1][1] == MOST_MAILS + 2
    assert list(waits(archive).values()) == [
        f"for its mailbox, which got {MOST_MAILS} mails within {MAIL_WINDOW / 60:.0f} min"
    ]
    archive.commit({"a": ""}, author="Ben <ben@example.org>")
    archive.fail(f"a@{MOST_MAILS + 3}")
    judge(archive.session)
    assert [one.run for one in choose(archive)] == [archive.run_id(MOST_MAILS + 3)]


def waits(archive: AnArchive) -> dict[int, str]:
    """What each waiting delivery waits for, by its id."""
    page = views.deliveries(archive.session, [ArchiveId(archive.id)], states=["waiting"])
    return {one.id: one.waits_for for one in page.deliveries if not one.is_being_sent}


def test_a_delivery_says_for_which_other_one_it_waits_and_until_when(told: AnArchive) -> None:
    failed_runs(told, 2, 3)
    told.retry("a@2")
    told.run("a@2")
    judge(told.session)
    (first,) = choose(told)
    (of_3, fixed) = sorted(waits(told))
    run, sent = f"for {first.id}, an earlier one of its run", f"for {first.id}, which is being sent"
    assert waits(told) == {of_3: sent, fixed: run}
    notifications.record_failure(told.session, first, "silence", is_silent=True)
    silent = f"for {first.id}, which its receiver has not answered"
    assert waits(told) == {first.id: "", of_3: silent, fixed: run}
    due = {one.due_at for one in views.deliveries(told.session, None).deliveries}
    assert len(due) == 1, "they wait as long as the one that they wait for"
    other = an_archive(told.session, "letters")
    set_receivers(other, ci=ALL)
    failed_runs(other, 2)
    assert list(waits(other).values()) == ["for one of another archive, which its receiver has not answered"]
    let_be_due(told)
    assert waits(told) == {first.id: "", of_3: "", fixed: run}
    notifications.record_sent(told.session, choose(told)[0])
    assert waits(told) == {of_3: "", fixed: ""}


def test_the_installation_counts_as_many_waiting_deliveries_as_the_list_has(told: AnArchive) -> None:
    failed_runs(told, 2, 3, 4)
    deletion.delete_run(told.session, RunId(told.run_id(4)), "ann")
    for _ in range(3):
        (first,) = choose(told)
        notifications.record_failure(told.session, first, "no", is_silent=True)
        let_be_due(told)
    listed = views.deliveries(told.session, None, states=["waiting"]).deliveries
    text = "2 notifications wait; 1 of them has failed more than twice (arkqueue delivery list --waiting)"
    assert len(listed) == 2
    assert text in installation.faults_of(installation.measure(told.session), 60)[0]


def test_few_deliveries_are_under_way_to_one_host(archive: AnArchive) -> None:
    hanging = {f"https://hangs.example.org/{number}": ALL for number in range(6)}
    mail = {f"{name}@example.org": ALL for name in "abcdef"}
    set_receivers(archive, **hanging, **mail, ci=ALL)
    failed_runs(archive, 2)

    def hosts(chosen: list[Delivery]) -> dict[str, int]:
        return dict(Counter(one.receiver.split("/")[2] if "/" in one.receiver else "mail" for one in chosen))

    first = choose(archive, 100)
    assert hosts(first) == {"hangs.example.org": 4, "mail": 4, "hooks.example.org": 1}
    assert choose(archive, 100) == []
    for one in first[:]:
        notifications.record_sent(archive.session, one)
    assert hosts(choose(archive, 100)) == {"hangs.example.org": 2, "mail": 2}


def test_pauses_grow_and_a_delivery_that_failed_for_a_day_is_failed(told: AnArchive) -> None:
    def pause() -> float:
        (row,) = told.sql("select extract(epoch from due_at - clock_timestamp())::float8 as s from delivery")
        return float(row["s"])

    failed_runs(told, 2)
    pauses = []
    for _ in range(10):
        (delivery,) = choose(told)
        notifications.record_failure(told.session, delivery, "no", is_silent=True)
        pauses.append(round(pause() / 15))
        let_be_due(told)
    assert pauses == [1, 2, 4, 8, 16, 32, 64, 128, 240, 240]
    told.sql("update delivery set until = clock_timestamp()")
    (delivery,) = choose(told)
    notifications.record_failure(told.session, delivery, "no", is_silent=True)
    let_be_due(told)
    assert choose(told) == []
    (row,) = told.sql("select state, fault, ended_at is not null as ended from delivery")
    assert row == {"state": "failed", "fault": "no", "ended": True}


def test_who_died_while_sending_has_sent_nothing(told: AnArchive) -> None:
    failed_runs(told, 2)
    (first,) = choose(told)
    assert choose(told) == []
    told.sql("update delivery set sending_until = clock_timestamp() - interval '1 second'")
    (again,) = choose(told)
    assert (again.id, again.tries) == (first.id, 2)


def test_a_delivery_is_resent_on_demand_and_the_audit_log_says_by_whom(told: AnArchive) -> None:
    failed_runs(told, 2)
    (delivery,) = choose(told)
    with pytest.raises(Conflict, match="is being sent"):
        notifications.resend(told.session, delivery.id, "ben")
    notifications.record_sent(told.session, delivery)
    assert choose(told) == []
    notifications.resend(told.session, delivery.id, "ben")
    (again,) = choose(told)
    assert again.id == delivery.id
    notifications.record_failure(told.session, again, "no", is_silent=True)
    assert choose(told) == []
    notifications.resend(told.session, delivery.id, "ben")
    assert [one.id for one in choose(told)] == [delivery.id]
    assert len(told.sql("select 1 as one from deed where verb = 'resend' and by = 'ben'")) == 2
    with pytest.raises(NotFound):
        notifications.resend(told.session, 10**9, "ben")


def test_a_delivery_is_resent_at_once_although_its_receiver_did_not_answer_another(told: AnArchive) -> None:
    failed_runs(told, 2, 3)
    (first,) = choose(told)
    notifications.record_failure(told.session, first, "silence", is_silent=True)
    assert choose(told) == []
    (other,) = told.sql("select id from delivery where id <> %s", first.id)
    notifications.resend(told.session, other["id"], "ben")
    (asked,) = choose(told)
    notifications.record_sent(told.session, asked)
    assert {asked.id} | {one.id for one in choose(told)} == {first.id, other["id"]}


def test_a_resent_delivery_of_a_run_comes_right_after_the_earlier_ones(told: AnArchive) -> None:
    failed_runs(told, 2)
    (first,) = choose(told)
    notifications.record_failure(told.session, first, "no", is_silent=False)
    told.retry("a@2")
    told.run("a@2")
    judge(told.session)
    assert choose(told) == []
    (later,) = told.sql("select id from delivery where id <> %s", first.id)
    notifications.resend(told.session, later["id"], "ben")
    (before,) = choose(told)
    assert before.id == first.id
    notifications.record_sent(told.session, before)
    assert [one.id for one in choose(told)] == [later["id"]]


def test_nothing_is_sent_to_who_is_no_receiver_any_more_and_nothing_of_a_deleted_run(told: AnArchive) -> None:
    failed_runs(told, 2)
    (delivery,) = choose(told)
    assert notifications.why_not(told.session, delivery) == ""
    deletion.delete_run(told.session, RunId(told.run_id(2)), "ann")
    assert "deleted" in notifications.why_not(told.session, delivery)
    deletion.undelete_run(told.session, RunId(told.run_id(2)), "ann")
    set_receivers(told, chat=ALL)
    assert "no longer a receiver" in notifications.why_not(told.session, delivery)


def test_nothing_is_sent_of_an_item_that_was_deleted(told: AnArchive) -> None:
    told.commit({"a": "foreach: [x, y]"})
    for item in "xy":
        told.write(f"a/{item}@2", f"about {item}\n".encode())
    told.fail("a/x@2", "a/y@2")
    judge(told.session)
    (delivery,) = choose(told)
    deletion.delete_item(told.session, RunId(told.run_id(2)), "y", "ann")
    message = write(told.session, Configuration(home=Path("home")), delivery)
    assert message is not None
    assert (message.title, message.more) == ("papers@2 has failed: a/x", 0)
    assert "about x" in str(message.document())
    assert "about y" not in str(message.document())
    deletion.delete_item(told.session, RunId(told.run_id(2)), "x", "ann")
    assert write(told.session, Configuration(home=Path("home")), delivery) is None


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
    assert commands() == ["arkqueue retry papers@2 --failed", *others]
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


def test_a_purge_takes_the_deliveries_of_its_runs_along(told: AnArchive) -> None:
    failed_runs(told, 2)
    purge.purge_runs(told.session, [RunId(told.run_id(2))], "ann")
    assert told.sql("select 1 as one from delivery") == []
    assert told.sql("select 1 as one from told") == []


def test_ended_deliveries_are_forgotten_after_a_month_and_waiting_ones_are_not(told: AnArchive) -> None:
    failed_runs(told, 2, 3)
    (delivery,) = choose(told)
    notifications.record_sent(told.session, delivery)
    assert not notifications.forget(told.session)
    assert len(told.sql("select 1 as one from delivery")) == 2
    notifications.forget(told.session, kept=0.0)
    assert [row["state"] for row in told.sql("select state from delivery")] == ["waiting"]


def test_runs_of_other_archives_are_told_to_their_own_receivers_alone(told: AnArchive) -> None:
    other = an_archive(told.session, "letters")
    set_receivers(other, chat=ALL)
    for archive in (told, other):
        archive.commit({"a": ""})
        archive.fail("a@2")
    assert outbox(told) == [("failed", 2, CI)]
    assert outbox(other) == [("failed", 2, CHAT)]


def test_many_verbs_at_once_are_told_by_what_came_of_them(told: AnArchive) -> None:
    told.commit({"a": "", "b": ""})
    told.fail("a@2", "b@2")
    assert occasions(told) == ["failed 2"]
    many.retry_failed(told.session, RunId(told.run_id(2)), "ann")
    told.run("a@2", "b@2")
    assert occasions(told) == ["failed 2", "fixed 2"]


# One mail for many


ANN = "ann@example.org"


def carried(archive: AnArchive) -> list[int]:
    """How many deliveries each one that was chosen tells of as well."""
    return [delivery.carries for delivery in choose(archive)]


def test_where_many_wait_for_a_mailbox_one_mail_tells_of_all(archive: AnArchive) -> None:
    set_receivers(archive, **{ANN: ALL, "ci": ALL})
    failed_runs(archive, *range(2, 2 + notifications.LEAST_CARRIED))
    assert carried(archive) == [0, 0]  # too few of them, and a webhook gets each
    archive.sql("update delivery set sending_until = null")
    failed_runs(archive, 2 + notifications.LEAST_CARRIED)
    assert sorted(carried(archive)) == [0, notifications.LEAST_CARRIED]


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
    assert many.commands[0] == "arkqueue runs papers"
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


def test_what_a_mail_told_of_was_sent_with_it_or_waits_for_itself_again(archive: AnArchive) -> None:
    set_receivers(archive, **{ANN: ALL})
    failed_runs(archive, *range(2, 12))
    (head,) = choose(archive)
    assert (head.carries, choose(archive)) == (9, [])
    # Who died while sending has sent nothing, and nothing of these runs overtakes it.
    archive.sql("update delivery set sending_until = clock_timestamp() - interval '1 second'")
    (again,) = choose(archive)
    assert (again.id, again.carries) == (head.id, 9)
    notifications.record_failure(archive.session, again, "no", is_silent=False)
    assert archive.sql("select count(*) as n from delivery where carried_by is null") == [{"n": 10}]
    (other,) = choose(archive)
    assert (other.id != head.id, other.carries) == (True, 9)  # also of the one that failed
    notifications.drop(archive.session, other, "its run was deleted")
    (last,) = choose(archive)
    assert last.carries == 8
    notifications.record_sent(archive.session, last)
    states = Counter(row["state"] for row in archive.sql("select state from delivery"))
    assert states == {"sent": 9, "dropped": 1}
    notifications.resend(archive.session, last.id, "ben")
    (resent,) = choose(archive)
    assert resent.carries == 8


def test_a_purge_of_the_run_of_a_mail_leaves_what_it_told_of(archive: AnArchive) -> None:
    set_receivers(archive, **{ANN: ALL})
    failed_runs(archive, *range(2, 12))
    (head,) = choose(archive)
    assert head.run == archive.run_id(2)
    purge.purge_runs(archive.session, [RunId(head.run)], "ann")
    (other,) = choose(archive)
    assert other.carries == 8


def test_a_mailbox_gets_so_many_mails_of_an_archive_and_then_one_that_tells_of_the_rest(archive: AnArchive) -> None:
    set_receivers(archive, **{ANN: ALL, "ci": ALL})
    other = an_archive(archive.session, "letters")
    set_receivers(other, **{ANN: ALL})

    def send_all() -> int:
        sent = 0
        while chosen := choose(archive):
            for delivery in chosen:
                notifications.record_sent(archive.session, delivery)
                sent += "@" in delivery.receiver
        return sent

    sent = 0
    for number in range(2, 22):
        failed_runs(archive, number)
        sent += send_all()
    assert sent == MOST_MAILS
    assert set(waits(archive).values()) == {"for its mailbox, which got 10 mails within 10 min"}
    assert archive.sql("select count(*) as n from delivery where receiver <> %s and state = 'sent'", ANN) == [{"n": 20}]
    failed_runs(other, 2)
    assert send_all() == 1  # of another archive
    archive.sql("update delivery set ended_at = ended_at - make_interval(secs => %s)", MAIL_WINDOW)
    assert send_all() == 1
    assert archive.sql("select 1 as one from delivery where state <> 'sent'") == []


# Branches


def test_a_receiver_is_told_of_the_branches_that_it_named(session: Session) -> None:
    archive = an_archive(session, branches=("main", "release/1", "release/1/fix", "try"))
    set_receivers(archive, ci=[*ALL, "branch=release/*"], chat=["failed", "branch=**", "branch=!try"])
    for branch in archive.numbers:
        archive.commit({"a": ""}, branch=branch)
    archive.claim()
    for claimed in archive.running.values():
        archive.record(claimed.attempt, End.EXITED, 1)
    archives.stop(session, ArchiveId(archive.id), "another repository")
    judge(session)
    found = archive.sql(
        "select d.receiver, coalesce(b.name, '') as branch from delivery d"
        " left join run r on r.id = d.run_id left join branch b on b.id = r.branch_id"
    )
    told = {receiver: sorted(row["branch"] for row in found if row["receiver"] == receiver) for receiver in (CI, CHAT)}
    assert told == {CI: ["", "release/1"], CHAT: ["main", "release/1", "release/1/fix"]}
