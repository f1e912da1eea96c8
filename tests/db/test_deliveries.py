"""The deliveries of the outbox: which one is sent to whom, when, and one mail for many (design 15)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from arkqueue.config import Configuration
from arkqueue.errors import Conflict, NotFound
from arkqueue.model import MAIL_WINDOW, MOST_MAILS, ArchiveId, RunId
from arkqueue.notifications.message import write
from arkqueue.queue import deletion, notifications, purge
from arkqueue.queue.notifications import Delivery
from arkqueue.views import installation
from arkqueue.views import notifications as views
from tests.builders import AnArchive, an_archive
from tests.db.outbox import ALL, ANN, CHAT, CI, choose, failed_runs, judge, let_be_due, outbox, set_receivers


def waits(archive: AnArchive) -> dict[int, str]:
    """What each waiting delivery waits for, by its id."""
    page = views.deliveries(archive.session, [ArchiveId(archive.id)], states=["waiting"])
    return {one.id: one.waits_for for one in page.deliveries if not one.is_being_sent}


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
