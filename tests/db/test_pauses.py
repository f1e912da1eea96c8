"""Tasks of a paused archive, of a paused installation or of a drained host do not start. Everything
else goes on (design 5.23).
"""

from __future__ import annotations

import pytest

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.db.session import Session
from arkqueue.errors import Busy, Conflict, NotFound
from arkqueue.model import ArchiveId, End
from arkqueue.queue import archives, claim, finish, locks, pauses
from arkqueue.queue.graph import Graph
from arkqueue.views import archives as views
from arkqueue.views.explain import explain, explain_name
from arkqueue.views.explanation import Explanation
from arkqueue.views.installation import host_named, measure, task_managers
from arkqueue.views.reasons import Why
from tests.builders import HOST, PROCESS, AnArchive, an_archive
from tests.db.test_races import Connect, InThread, wait_until_blocked

CHAIN = {"a": "", "b": "depends: [a]"}
CANCELS = {"a": "cancels: [PREV]"}
WHY = "the printer is being moved"


def pause(archive: AnArchive) -> None:
    pauses.pause(archive.session, ArchiveId(archive.id), WHY, "ann")


def resume(archive: AnArchive) -> None:
    pauses.resume(archive.session, ArchiveId(archive.id), archive.name, "ben")


def claimed(session: Session) -> list[str]:
    return [f"{one.archive.name}:{one.name}@{one.number}" for one in claim.claim(session, PROCESS, HOST, 100)]


def why(archive: AnArchive, key: str) -> Explanation:
    return explain(archive.session, archive.task(key))


def deeds(archive: AnArchive) -> list[tuple[str, str, str]]:
    return [(row["by"], row["verb"], row["note"]) for row in archive.sql("select by, verb, note from deed order by id")]


def test_nothing_of_a_paused_archive_starts_and_all_else_goes_on(archive: AnArchive) -> None:
    other = an_archive(archive.session, "other")
    for one in (archive, other):
        one.commit(CHAIN)
    attempt = archive.attempt("a@2")
    archive.commit(CHAIN)
    pause(archive)
    archive.record(attempt, End.EXITED, 0)
    archive.commit(CHAIN)
    assert archive.states() == {
        "a@2": "completed", "b@2": "ready", "a@3": "ready", "b@3": "waiting", "a@4": "ready", "b@4": "waiting",
    }  # fmt: skip
    claim.withdraw(archive.session)
    assert claimed(archive.session) == []
    archives.change_settings(archive.session, ArchiveId(archive.id), ArchiveSettings(process=True), "ann")
    assert claimed(archive.session) == []
    resume(archive)
    assert claimed(archive.session) == ["papers:b@2", "papers:a@3", "papers:a@4"]
    assert deeds(archive) == [("ann", "pause", WHY), ("ben", "resume", "")]


def test_a_second_pause_takes_the_reason_from_nobody_unless_it_has_its_own(archive: AnArchive) -> None:
    session, id = archive.session, ArchiveId(archive.id)
    twice = (
        lambda reason, by: pauses.pause(session, id, reason, by),
        lambda reason, by: locks.pause(session, id, "tex", reason, by),
        lambda reason, by: pauses.pause_all(session, reason, by),
        lambda reason, by: pauses.drain(session, HOST, reason, by),
    )
    rows = (
        "select paused_at, paused_by, pause_reason from archive",
        "select paused_at, paused_by, pause_reason from lock",
        "select paused_at, paused_by, reason from pause",
        "select drained_at, drained_by, reason from drain",
    )
    for act, row in zip(twice, rows, strict=True):
        act(WHY, "ann")
        (first,) = [tuple(one.values()) for one in archive.sql(row)]
        act("", "ben")
        assert [tuple(one.values()) for one in archive.sql(row)] == [first]
        assert first[1:] == ("ann", WHY)
        act("the disk is full", "ben")
        ((since, *told),) = [tuple(one.values()) for one in archive.sql(row)]
        assert (since > first[0], told) == (True, ["ben", "the disk is full"])


def test_the_explanation_of_a_run_says_once_why_its_archive_is_paused(archive: AnArchive) -> None:
    archive.commit({"a": "", "b": "", "c": "depends: [a, b]"})
    pause(archive)
    found = explain_name(archive.session, "papers@2")
    assert found.text.count("is paused since") == 1
    assert found.text.endswith(
        "\npapers@2/c: It waits for papers@2/a, which is ready. It waits for 1 more task that is ready: papers@2/b."
    )
    assert found.commands == ["arkqueue resume papers"]
    found = explain_name(archive.session, "papers@2/c")
    assert found.text.count("is paused since") == 1
    assert found.text.endswith(". It waits for 1 more task that is ready: papers@2/b.")


def test_no_cancels_fires_in_a_pause_and_what_would_fire_does_so_after_it(archive: AnArchive) -> None:
    archive.commit(CANCELS)
    archive.claim("a@2")
    pause(archive)
    archive.commit(CANCELS)
    (row,) = archive.sql("select stop from task where id = %s", archive.task("a@2"))
    assert (row["stop"], archive.states()) == (None, {"a@2": "running", "a@3": "waiting"})
    told = why(archive, "a@3")
    assert "It waits for no task, but papers is paused since" in told.text
    assert "its tasks neither start nor cancel other tasks until it is resumed" in told.text
    assert told.commands == ["arkqueue resume papers"]
    resume(archive)
    (row,) = archive.sql("select stop from task where id = %s", archive.task("a@2"))
    assert (row["stop"], archive.states()) == ("cancel", {"a@2": "running", "a@3": "waiting"})
    archive.end("a@2", None, End.STOPPED)
    assert archive.states() == {"a@2": "canceled", "a@3": "ready"}


def test_a_task_that_has_fired_and_is_ready_is_simply_not_claimed(archive: AnArchive) -> None:
    archive.commit(CANCELS)
    archive.commit(CANCELS)
    pause(archive)
    assert archive.states() == {"a@2": "canceled", "a@3": "ready"}
    assert claimed(archive.session) == []
    resume(archive)
    assert claimed(archive.session) == ["papers:a@3"]


def test_what_comes_back_to_work_in_a_pause_waits_with_its_cancels(archive: AnArchive) -> None:
    """Handed back, deferred and due, retried: each enters again, and would fire again."""
    archive.commit(dict.fromkeys(("handed", "due", "retried"), f"{CANCELS['a']}"))
    attempts = {name: archive.attempt(f"{name}@2") for name in ("handed", "due", "retried")}
    pause(archive)
    archive.record(attempts["handed"], End.STOPPED, None)
    archive.record(attempts["due"], End.EXITED, 75)
    archive.record(attempts["retried"], End.EXITED, 1)
    archive.sql("update task set due_at = clock_timestamp() where state = 'deferred'")
    finish.wake_deferred(archive.session)
    archive.retry("retried@2")
    assert set(archive.states().values()) == {"waiting"}
    resume(archive)
    assert len(claimed(archive.session)) == 3


def test_a_second_pause_gives_its_reason_and_a_second_resume_is_refused(archive: AnArchive) -> None:
    pause(archive)
    pauses.pause(archive.session, ArchiveId(archive.id), "and the disk is full", "eve")
    shown = views.archive(archive.session, ArchiveId(archive.id)).paused
    assert shown is not None
    assert (shown.by, shown.reason, shown.with_all) == ("eve", "and the disk is full", False)
    resume(archive)
    with pytest.raises(Conflict, match="archive papers: is not paused"):
        resume(archive)
    assert views.archive(archive.session, ArchiveId(archive.id)).paused is None


def test_a_pause_within_the_pause_of_all_names_both_commands(archive: AnArchive) -> None:
    archive.commit(CHAIN)
    pause(archive)
    pauses.pause_all(archive.session, "moving", "eve")
    told = why(archive, "a@2")
    assert "; the whole installation is paused, too; none of its tasks starts" in told.text
    assert told.commands == ["arkqueue resume papers", "arkqueue resume --all"]


def test_a_stopped_archive_that_is_paused_needs_both_taken_back(archive: AnArchive) -> None:
    archive.commit(CHAIN)
    archives.stop(archive.session, ArchiveId(archive.id), "why")
    pause(archive)
    archives.go_on(archive.session, ArchiveId(archive.id), "why")
    assert claimed(archive.session) == []
    archives.stop(archive.session, ArchiveId(archive.id), "why")
    resume(archive)
    assert claimed(archive.session) == []
    archives.go_on(archive.session, ArchiveId(archive.id), "why")
    assert claimed(archive.session) == ["papers:a@2"]


def test_a_pause_waits_for_what_makes_tasks_ready_just_now(archive: AnArchive, second_connection: Connect) -> None:
    """Else the archive would take turns again, as that transaction has not seen the pause."""
    archive.commit(CHAIN)
    archive.claim("a@2")
    claim.withdraw(archive.session)
    other, watcher = second_connection(), second_connection()
    with other.transaction():
        Graph(other, [archive.id])
        pausing = InThread(lambda: pause(archive))
        wait_until_blocked(watcher)
        other.execute("insert into ready_archive values (%s, '{process}') on conflict do nothing", [archive.id])
    pausing.result()
    assert not archive.sql("select archive_id from ready_archive")


# The installation


def test_nothing_starts_while_the_installation_is_paused_not_even_of_what_is_added(session: Session) -> None:
    one, two = an_archive(session, "one"), an_archive(session, "two")
    one.commit(CANCELS)
    one.claim("a@2")
    two.commit(CHAIN)
    pauses.pause_all(session, WHY, "ann")
    three = an_archive(session, "three")
    three.commit(CHAIN)
    one.commit(CANCELS)
    assert claimed(session) == []
    assert one.states() == {"a@2": "running", "a@3": "waiting"}
    assert measure(session).all_paused
    told = why(two, "a@2")
    assert "two is paused with the whole installation since" in told.text
    assert (f"by ann: {WHY}" in told.text, told.commands) == (True, ["arkqueue resume --all"])
    with pytest.raises(Conflict, match=r"archive two: is paused with the whole installation. arkqueue resume --all"):
        resume(two)
    pause(three)
    pauses.resume_all(session, "ben")
    assert one.state("a@3") == "waiting"
    assert one.sql("select stop from task where state = 'running'") == [{"stop": "cancel"}]
    assert claimed(session) == ["two:a@2"]
    assert (measure(session).all_paused, measure(session).archives_paused) == (False, 1)
    resume(three)
    assert claimed(session) == ["three:a@2"]
    assert deeds(one)[0] == ("ann", "pause", f"--all {WHY}")


def test_own_pause_is_taken_back_while_the_installation_is_paused(archive: AnArchive) -> None:
    archive.commit(CHAIN)
    pause(archive)
    pauses.pause_all(archive.session, "", "ann")
    resume(archive)
    assert claimed(archive.session) == []
    pauses.resume_all(archive.session, "ann")
    assert claimed(archive.session) == ["papers:a@2"]


def test_a_pause_of_all_that_died_halfway_is_finished_by_the_next_call(session: Session) -> None:
    """The note for the installation is written first; so what was left is found."""
    one, two = an_archive(session, "one"), an_archive(session, "two")
    for archive in (one, two):
        archive.commit(CHAIN)
    one.sql("update pause set paused_at = now(), paused_by = 'ann', reason = ''")
    pauses.pause_all(session, "again", "ann")
    assert claimed(session) == []
    one.sql("update pause set paused_at = null, paused_by = null, reason = null")
    assert claimed(session) == []
    resume(one)
    assert claimed(session) == ["one:a@2"]
    pauses.resume_all(session, "ann")
    assert claimed(session) == ["two:a@2"]


def test_a_busy_archive_is_named_and_holds_up_no_other(
    session: Session, second_connection: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pauses, "PATIENCE", 0.1)
    one, two = an_archive(session, "one"), an_archive(session, "two")
    for archive in (one, two):
        archive.commit(CHAIN)
    other = second_connection()
    with other.transaction():
        Graph(other, [one.id])
        with pytest.raises(Busy, match=r"archives one: could not be paused .* arkqueue pause --all"):
            pauses.pause_all(session, "", "ann")
        assert claimed(session) == ["one:a@2"]
    pauses.pause_all(session, "", "ann")
    one.commit({"c": ""})
    assert claimed(session) == []


# Task managers


def registered(session: Session, process: str = PROCESS, host: str = HOST, hostname: str = "build-1") -> None:
    claim.register(session, process, host, hostname, 4)


def test_a_drained_host_claims_nothing_and_others_do(archive: AnArchive) -> None:
    session = archive.session
    registered(session)
    archive.commit({"a": "", "z": ""})
    (running,) = archive.claim_some(1)
    pauses.drain(session, HOST, WHY, "ann")
    assert claimed(session) == []
    (told,) = task_managers(session)
    assert (told.drained_by, told.drain_reason, told.running) == ("ann", WHY, 1)
    assert measure(session).task_managers_drained == 1
    found = why(archive, "z@2")
    assert found.reasons[0].kind is Why.NO_FIT_HOST
    assert f"by ann, {WHY}" in found.text
    assert found.commands == ["arkqueue resume --worker build-1"]
    # What runs is renewed and recorded, and nothing is claimed with its end.
    assert claim.renew(session, PROCESS, [running.attempt]).asked == {running.attempt: None}
    archive.record(running.attempt, End.EXITED, 0)
    registered(session, "a later process")
    assert claim.claim(session, "a later process", HOST, 10) == []
    (other,) = claim.claim(session, "another's", "host-2", 10)
    archive.record(other.attempt, End.EXITED, 0)
    archive.commit({"a": ""})
    pauses.resume_worker(session, HOST, "build-1", "ben")
    assert claimed(session) == ["papers:a@3"]
    with pytest.raises(Conflict, match="task manager build-1: is not drained"):
        pauses.resume_worker(session, HOST, "build-1", "ben")
    assert deeds(archive) == [("ann", "drain", f"build-1 ({HOST}): {WHY}"), ("ben", "resume", f"build-1 ({HOST})")]


@pytest.mark.parametrize(
    ("name", "found"),
    [("build-1", "0123abcd"), ("0123", "0123abcd"), ("4567", "4567abcd")],
)
def test_a_task_manager_is_named_by_its_machine_or_its_id(session: Session, name: str, found: str) -> None:
    registered(session, "p1", "0123abcd", "build-1")
    registered(session, "p2", "4567abcd", "build-2")
    registered(session, "p3", "89ababcd", "build-2")
    assert host_named(session, name) == found


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        (
            "build-2",
            Conflict,
            r"has several home folders. Name one by its id, which HOME/host-id holds: 4567abcd \(runs with 4 slots\), 89ab",
        ),
        ("nobody", NotFound, "does not exist. These are there: build-1, build-2"),
    ],
)
def test_a_name_that_is_none_or_several_is_refused(
    session: Session, name: str, error: type[Exception], text: str
) -> None:
    test_a_task_manager_is_named_by_its_machine_or_its_id(session, "build-1", "0123abcd")
    with pytest.raises(error, match=text):
        host_named(session, name)


def test_of_several_home_folders_of_a_machine_the_one_that_runs_or_is_drained_is_meant(session: Session) -> None:
    registered(session, "p1", "0123abcd", "build-1")
    registered(session, "p2", "4567abcd", "build-1")
    claim.unregister(session, "p1")
    assert host_named(session, "build-1") == "4567abcd"
    pauses.drain(session, "0123abcd", WHY, "ann")
    text = r"0123abcd \(does not run, drained\), 4567abcd \(runs with 4 slots\)"
    with pytest.raises(Conflict, match=text):
        host_named(session, "build-1")


def test_the_command_that_takes_a_drain_back_names_the_home_folder_where_a_machine_has_several(
    archive: AnArchive,
) -> None:
    session = archive.session
    registered(session, "p1", "0123abcd-4", "build-1")
    registered(session, "p2", "4567abcd-4", "build-1")
    archive.commit({"a": ""})
    for host in ("0123abcd-4", "4567abcd-4"):
        pauses.drain(session, host, WHY, "ann")
    (told,) = why(archive, "a@2").reasons
    assert sorted(told.commands) == ["arkqueue resume --worker 0123abcd", "arkqueue resume --worker 4567abcd"]
    for command in told.commands:
        pauses.resume_worker(session, host_named(session, command.split()[-1]), "", "ann")


@pytest.mark.parametrize("key", ["a@2", "b@2"])
def test_explain_says_by_whom_and_why_nothing_starts(archive: AnArchive, key: str) -> None:
    archive.commit(CHAIN)
    assert Why.ARCHIVE_PAUSED not in [reason.kind for reason in why(archive, key).reasons]
    pause(archive)
    told = why(archive, key)
    assert f"by ann: {WHY}; none of its tasks starts until it is resumed." in told.text
    assert told.text.count("is paused") == 1
    assert told.commands == ["arkqueue resume papers"]


def test_a_removed_archive_is_neither_paused_nor_resumed(archive: AnArchive) -> None:
    archive.commit(CHAIN)
    pause(archive)
    archives.remove(archive.session, ArchiveId(archive.id), "ann")
    for act in (pause, resume):
        with pytest.raises(Conflict, match="was removed: none of its tasks starts"):
            act(archive)
    assert [verb for _, verb, _ in deeds(archive)][-1] == "remove"
