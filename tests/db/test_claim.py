"""Claims, leases and the fence (design 6)."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.db import Database
from arkqueue.db.session import Session
from arkqueue.errors import Busy, Conflict
from arkqueue.gateway.sql import gateways
from arkqueue.model import ArchiveId, AttemptId, End, LogAppend, LogChunk, Outcome, Pool, Receipt, Stream
from arkqueue.queue import archives, claim, finish
from arkqueue.verdicts import Circumstances, Verdict
from tests.builders import HOST, PROCESS, a_gateway, an_archive

LEASE = 90.0


def lapse(session: Session, *attempts: AttemptId) -> None:
    """Let time pass over some leases, and over the database's time of grace."""
    with session.database.transaction() as connection:
        connection.execute(
            "update attempt set lease_until = lease_until - interval '1 hour' where id = any(%s)", [list(attempts)]
        )
        connection.execute(
            "update heartbeat set steady_since = clock_timestamp() - interval '1 hour', beat_at = clock_timestamp()"
        )


def test_a_claim_begins_an_attempt_with_all_it_needs_to_know(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"index": "depends: [PREV]"})
    archive.run("index@2")
    archive.commit({"index": "depends: [PREV]"})
    claimed = archive.claim("index@3")
    assert (claimed.name, claimed.number, claimed.run, claimed.revision, claimed.previous) == ("index", 3, 1, "3", "2")
    assert (claimed.base, claimed.trigger, claimed.attempt_number, claimed.branch, claimed.main) == (
        "2",
        "commit",
        1,
        "",
        True,
    )
    assert claim.definitions(session, [claimed.definition])[claimed.definition]["name"] == "index"


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        (ArchiveSettings(process=True), ["boxed"]),
        (ArchiveSettings(process=True, image="busybox"), ["boxed", "bare"]),
        (ArchiveSettings(), ["boxed", "bare"]),
    ],
)
def test_a_host_without_containers_claims_only_what_needs_none(
    session: Session, settings: ArchiveSettings, names: list[str]
) -> None:
    archive = an_archive(session)
    archives.change_settings(session, archive.id, settings, "ann")
    archive.commit({"boxed": "image: busybox", "bare": ""})

    def claimed(*pools: Pool, slots: int = 4) -> list[str]:
        return [one.name for one in claim.claim(session, PROCESS, HOST, slots, pools=pools)]

    assert claimed(Pool.PROCESS) == [name for name in ("boxed", "bare") if name not in names]
    assert claimed(Pool.CONTAINER, slots=1) == names[:1]
    assert claimed(*Pool) == names[1:]


def test_base_is_the_last_revision_at_which_the_task_completed(session: Session) -> None:
    archive = an_archive(session)
    for _ in range(4):
        archive.commit({"index": ""})
    archive.claim()
    assert archive.running[archive.task("index@2")].base is None
    archive.run("index@2")
    archive.fail("index@3")
    archive.end("index@4", 75)
    archive.restart("index@5")
    archive.end("index@5", None, End.STOPPED)
    assert archive.claim("index@5").base == "2"


def test_many_claimers_get_each_task_once(session: Session) -> None:
    archives = [an_archive(session, f"a{n}") for n in range(5)]
    for archive in archives:
        for _ in range(8):
            archive.commit({"a": "", "b": ""})

    def claim_all(process: int) -> list[int]:
        got: list[int] = []
        while new := claim.claim(session, f"m{process}", f"h{process}", 3):
            got += [c.task for c in new]
        return got

    with ThreadPoolExecutor(4) as pool:
        claimed = [task for tasks in pool.map(claim_all, range(4)) for task in tasks]
    assert len(claimed) == 80
    assert max(Counter(claimed).values()) == 1


@pytest.mark.garbles
def test_settings_that_cannot_be_read_harm_no_other_archive(session: Session) -> None:
    odd, other = an_archive(session, "odd"), an_archive(session, "other")
    for archive in (odd, other):
        archive.commit({"a": ""})
    odd.sql(
        "update archive set settings = settings || '{\"of-a-newer-version\": 1}' where id = %s returning id", odd.id
    )
    claimed = {c.archive.id: c.archive for c in claim.claim(session, PROCESS, HOST, 5)}
    assert claimed.keys() == {odd.id, other.id}
    assert claimed[other.id].settings == ArchiveSettings(process=True)
    with pytest.raises(Conflict, match="of-a-newer-version"):
        _ = claimed[odd.id].settings


def test_what_cancels_goes_before_what_a_later_revision_makes_ready_beside_it(session: Session) -> None:
    """Else the next `index` would go first, make the next `pdf` ready, and that would cancel this one, again and again."""
    archive = an_archive(session)
    for _ in range(2):
        archive.commit({"index": "depends: [PREV]", "pdf": "depends: [index]\ncancels: [PREV]"})
    archive.run("index@2")
    assert [(c.name, c.number) for c in archive.claim_some(1)] == [("pdf", 2)]


def test_a_claim_does_not_wait_for_a_locked_archive_or_task(session: Session, second_connection) -> None:  # type: ignore[no-untyped-def]
    archive = an_archive(session)
    archive.commit({"a": "", "b": ""})
    other = second_connection()
    with other.transaction():
        other.execute("select from archive for update")
        other.execute("select from task where id = %s for update", [archive.task("a@2")])
        assert [c.name for c in claim.claim(session, PROCESS, HOST, 10)] == ["b"]


def test_a_report_moves_the_task_once(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    attempt = archive.attempt("a@2")
    outcome = Outcome(attempt, End.EXITED, 0)
    assert finish.finish(session, PROCESS, [outcome]) == {attempt: Receipt.RECORDED}
    assert finish.finish(session, PROCESS, [outcome]) == {attempt: Receipt.ALREADY_RECORDED}
    late = Outcome(attempt, End.STOPPED, 143)
    assert finish.finish(session, PROCESS, [late]) == {attempt: Receipt.NOT_YOURS}
    assert archive.state("a@2") == "completed"


def test_a_report_by_another_process_changes_nothing(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    attempt = archive.attempt("a@2")
    assert finish.finish(session, "somebody else", [Outcome(attempt, End.EXITED, 0)]) == {attempt: Receipt.NOT_YOURS}
    assert archive.state("a@2") == "running"


def test_a_report_of_an_attempt_that_never_was_changes_nothing(session: Session) -> None:
    nobody = AttemptId(10**9)
    assert finish.finish(session, PROCESS, [Outcome(nobody, End.EXITED, 0)]) == {nobody: Receipt.NOT_YOURS}


def test_reports_need_not_name_their_archive_and_another_archive_changes_nothing(session: Session) -> None:
    one, other = an_archive(session), an_archive(session, "other")
    attempts = []
    for archive in (one, other):
        archive.commit({"a": "", "b": ""})
        attempts += [archive.attempt("a@2"), archive.attempt("b@2")]
    wrong, right, named, unnamed = attempts
    outcomes = [
        Outcome(wrong, End.EXITED, 0, archive=ArchiveId(10**9)),
        Outcome(right, End.EXITED, 0, archive=one.id),
        Outcome(named, End.EXITED, 1, archive=other.id),
        Outcome(unnamed, End.EXITED, 0),
    ]
    received = finish.finish(session, PROCESS, outcomes[:1])
    assert received == {wrong: Receipt.NOT_YOURS}
    assert set(finish.finish(session, PROCESS, outcomes[1:]).values()) == {Receipt.RECORDED}
    assert [one.state("a@2"), one.state("b@2")] == ["running", "completed"]
    assert [other.state("a@2"), other.state("b@2")] == ["failed", "completed"]


def test_renewal_answers_with_what_is_still_ours_and_what_was_asked(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "", "c": ""})
    a, b, c = (archive.attempt(f"{n}@2") for n in "abc")
    archive.cancel("b@2")
    archive.end("c@2")
    assert claim.renew(session, PROCESS, [a, b, c]).asked == {a: None, b: "cancel"}
    assert claim.stops(session, PROCESS) == {b: "cancel"}
    assert claim.renew(session, "somebody else", [a]).asked == {}


def test_lapsed_lease_gives_the_task_to_another_manager_and_fences_the_first(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    first = archive.attempt("a@2")
    lapse(session, first)
    assert finish.lapse(session) == [first]
    archive.running.clear()
    (second,) = claim.claim(session, "manager-2", "host-2", 1)
    assert second.task == archive.task("a@2")
    assert second.attempt_number == 2
    assert finish.finish(session, PROCESS, [Outcome(first, End.EXITED, 0)]) == {first: Receipt.NOT_YOURS}
    assert archive.state("a@2") == "running"
    assert claim.renew(session, PROCESS, [first]).asked == {}


def test_a_renewed_lease_does_not_lapse_however_long_the_task_takes(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    attempt = archive.attempt("a@2")
    for _ in range(3):
        lapse(session, attempt)
        assert claim.renew(session, PROCESS, [attempt]).asked == {attempt: None}
        assert finish.lapse(session) == []
    assert archive.state("a@2") == "running"


def test_no_lease_lapses_for_one_full_lease_after_the_database_was_away(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    attempt = archive.attempt("a@2")
    archive.sql("update attempt set lease_until = lease_until - interval '1 hour'")
    archive.sql(
        "update heartbeat set steady_since = clock_timestamp() - interval '1 day', beat_at = clock_timestamp() - interval '5 min'"
    )
    assert finish.lapse(session) == []
    # The gap has been noticed; a moment later the time of grace is still on.
    assert finish.lapse(session) == []
    archive.sql("update heartbeat set steady_since = steady_since - interval '60 s'")
    assert finish.lapse(session) == []
    archive.sql("update heartbeat set steady_since = steady_since - interval '31 s'")
    assert finish.lapse(session) == [attempt]


def test_leases_are_given_by_the_databases_clock(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    attempt = archive.attempt("a@2")
    (row,) = archive.sql(
        "select lease_until - clock_timestamp() between interval '80 s' and interval '90 s' as good from attempt where id = %s",
        attempt,
    )
    assert row["good"]


def test_a_task_that_kills_its_task_managers_is_given_up_after_three_reruns(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "depends: [a]"})
    for _ in range(3):
        archive.running.clear()
        archive.claim("a@2")
        assert len(finish.expire(session, "its successor", HOST)) == 1
        assert archive.state("a@2") == "ready"
    archive.running.clear()
    archive.claim("a@2")
    finish.expire(session, "its successor", HOST)
    assert archive.states() == {"a@2": "failed", "b@2": "skipped"}


def test_on_lost_fail_fails_at_the_first_loss(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "on_lost: fail"})
    archive.claim("a@2")
    finish.expire(session, "its successor", HOST)
    assert archive.state("a@2") == "failed"


def test_a_new_task_manager_buries_only_its_own_hosts_dead(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": ""})
    (mine,) = claim.claim(session, "old", HOST, 1)
    (other,) = claim.claim(session, "elsewhere", "host-2", 1)
    assert finish.expire(session, "new", HOST) == [mine.attempt]
    assert {r["state"] for r in archive.sql("select state from task where id = %s", other.task)} == {"running"}


def test_what_did_not_start_is_handed_back(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    archive.end("a@2", None, End.STOPPED)
    assert archive.state("a@2") == "ready"
    assert archive.claim("a@2").attempt_number == 2


def test_what_is_waited_for_behind_what_never_began_is_no_input(session: Session) -> None:
    archive = an_archive(session)
    for _ in range(3):
        archive.commit({"a": "depends: [PREV]"})
    archive.claim("a@2")
    archive.cancel("a@3")
    archive.end("a@2", outputs={"pages": 12})
    assert claim.inputs(session, [archive.claim("a@4").task]) == {}


def test_the_newest_outputs_of_dependencies_are_the_inputs(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "depends: [{task: a, when: settled}]"})
    archive.end("a@2", 1, outputs={"pages": 12})
    claimed = archive.claim("b@2")
    assert claim.inputs(session, [claimed.task]) == {claimed.task: {"a": {"pages": 12}}}


def test_what_is_no_part_of_a_run_by_hand_gives_its_outputs_too(session: Session) -> None:
    """Design 5.18: the nearest earlier run that has it."""
    archive = an_archive(session)
    archive.commit({"a": "", "b": "depends: [a]\non: manual"})
    archive.end("a@2", outputs={"pages": 12})
    archive.trigger(2, "a")
    archive.end("a@2.2", outputs={"pages": 13})
    archive.trigger(2, "b")
    apart = archive.claim("b@2.3").task
    archive.trigger(2, "a", "b")
    archive.run("a@2.4")
    together = archive.claim("b@2.4").task
    assert claim.inputs(session, [apart, together]) == {apart: {"a": {"pages": 13}}}


def test_attempts_are_kept_alive_while_all_other_connections_are_taken(
    pg_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By claims, renewals, requests to stop, logs and ends; preparing attempts waits."""
    monkeypatch.setattr("arkqueue.db.connections.CHECKOUT_TIMEOUT", 0.2)
    with Database.open(pg_uri, size=1) as database:
        session = Session(database)
        archive = an_archive(session)
        archive.commit({"a": "", "b": "", "c": ""})
        opened = gateways(session, slots=1)
        gateway = opened(PROCESS, HOST, "")
        with database.statement(), gateway.session.database.statement():
            for taken in (session, gateway.session):
                with pytest.raises(Busy, match="all 1 connections are busy"):
                    claim.installation(taken)
            gateway.register("host", 3, "ann", None, None, None)
            first, second, third = [one.attempt for one in gateway.claim(3, LEASE)]
            gateway.started({first: 0.1})
            assert set(gateway.renew([first, second, third], LEASE).asked) == {first, second, third}
            assert gateway.stops() == {}
            chunk = LogChunk(0, Stream.STDOUT, 0.0, b"hello\n")
            assert gateway.append_log([LogAppend(first, [chunk], 6, 6, 0)]) == {first}
            assert gateway.finish([Outcome(first, End.EXITED, 0)]) == {first: Receipt.RECORDED}
            done = gateway.finish_and_claim([Outcome(second, End.EXITED, 0)], 1, LEASE)
            assert done.receipts == {second: Receipt.RECORDED}
            assert gateway.hand_back([third], "the host is shut down")
            gateway.unregister()
        assert archive.states() == {"a@2": "completed", "b@2": "completed", "c@2": "ready"}


@pytest.mark.parametrize("slots", [1, 7])
def test_no_more_is_claimed_than_there_are_slots(session: Session, slots: int) -> None:
    archive = an_archive(session)
    archive.commit({f"t{n}": "" for n in range(10)})
    assert len(claim.claim(session, PROCESS, HOST, slots)) == slots


@pytest.mark.garbles
def test_a_lost_attempt_whose_definition_cannot_be_read_fails(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": ""})
    archive.claim()
    archive.sql("update definition set body = '[1, 2]' where body->>'name' = 'a'")
    assert len(finish.expire(session, "its successor", HOST)) == 2
    assert archive.states() == {"a@2": "failed", "b@2": "ready"}


@pytest.mark.garbles
def test_one_attempt_that_cannot_be_judged_holds_up_no_other(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "", "c": ""})
    attempts = [archive.attempt(f"{name}@2") for name in "abc"]
    archive.sql("update task set losses = 4711 where name = 'a'")
    judge = finish.verdict

    def fails(end: End, exit_code: int | None, task: Circumstances) -> Verdict:
        """Stands for a row that causes an error that nobody has foreseen."""
        if task.losses == 4711:
            raise RuntimeError
        return judge(end, exit_code, task)

    monkeypatch.setattr(finish, "verdict", fails)
    assert a_gateway(session).hand_back(attempts[:2], "not started")
    assert archive.states() == {"a@2": "running", "b@2": "ready", "c@2": "running"}
    assert len(finish.expire(session, "its successor", HOST)) == 1
    assert archive.states() == {"a@2": "running", "b@2": "ready", "c@2": "ready"}


def test_what_is_remembered_of_one_server_is_forgotten_with_its_restart(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    archive.commit({"a": ""})
    assert session.kept.ids
    known = dict(session.kept.ids)
    session.kept.since = None
    session.kept.ids = dict.fromkeys(known, 10**9)
    archive.commit({"a": ""})
    assert session.kept.ids == known
