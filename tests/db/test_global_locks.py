"""Locks of the whole installation (design 5.25): archives take turns, give unused places back, and
never wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from arkqueue.db import Connection
from arkqueue.db.session import Session
from arkqueue.errors import Conflict
from arkqueue.model import INSTALLATION, ArchiveId, End
from arkqueue.queue import claim, control, locks, pauses
from arkqueue.queue.graph import Graph, Line
from arkqueue.views.explain import explain, explain_name
from arkqueue.views.locks import locks as list_locks
from tests.builders import HOST, PROCESS, AnArchive, an_archive
from tests.db.test_races import InThread, wait_until_blocked

Connect = Callable[[], Connection]
GLOBAL = "lock: global/printer"
TEN_SECONDS = "update task set ready_at = ready_at - interval '10 s' where state = 'ready'"


@pytest.fixture
def archives(session: Session) -> tuple[AnArchive, AnArchive]:
    one, other = an_archive(session, "one"), an_archive(session, "other")
    other.running = one.running  # a claim takes tasks of both
    return one, other


def pass_on(archive: AnArchive) -> None:
    assert locks.pass_on(archive.session) is False, "nobody is busy"


def states(*archives: AnArchive) -> dict[str, str]:
    return {f"{archive.name}/{key}": state for archive in archives for key, state in archive.states().items()}


def test_archives_take_turns_at_a_lock_of_the_installation(archives: tuple[AnArchive, AnArchive]) -> None:
    """However many tasks of an archive wait, and whatever their priorities are: these order the tasks of one archive."""
    one, other = archives
    one.commit(dict.fromkeys("abc", GLOBAL))
    other.commit({"x": GLOBAL})
    control.prioritize(one.session, one.task("b@2"), 10, "ann")
    order = []
    pass_on(one)
    while found := claim.claim(one.session, PROCESS, HOST, 9):
        (claimed,) = found
        order.append(f"{claimed.archive.name}/{claimed.name}")
        one.record(claimed.attempt, End.EXITED, 0)
        assert claim.claim(one.session, PROCESS, HOST, 9) == [], "an end gives no place to anybody"
        pass_on(one)
    assert order == ["one/b", "other/x", "one/a", "one/c"]


def test_a_change_at_a_lock_of_the_installation_wakes_who_passes_it_on(
    archive: AnArchive, second_connection: Connect
) -> None:
    archive.commit({"none": "", "own": "lock: tex", "global": GLOBAL})
    for name, is_woken in (("none", False), ("own", False), ("global", True)):
        connection = second_connection()
        with connection.transaction():
            graph = Graph(connection, [archive.id])
            graph.follow(graph.ids("cancel", tasks=[archive.task(f"{name}@2")], by="ann"))
            graph.grant()
            assert ("locks" in graph.to_wake) == is_woken, name


def test_a_head_of_line_that_waits_for_a_lock_of_its_archive_lets_other_archives_go_first(
    archives: tuple[AnArchive, AnArchive],
) -> None:
    """But no later task of its own archive overtakes it."""
    one, other = archives
    one.commit({"tex": "lock: tex", "both": "lock: [global/printer, tex]", "later": GLOBAL})
    one.claim("tex@2")
    other.commit({"x": GLOBAL, "y": GLOBAL})
    pass_on(one)
    assert states(one, other) == {
        "one/tex@2": "running", "one/both@2": "waiting", "one/later@2": "waiting", "other/x@2": "ready", "other/y@2": "waiting",
    }  # fmt: skip
    other.end("x@2")
    pass_on(one)
    assert other.state("y@2") == "ready"
    one.end("tex@2")
    assert one.state("both@2") == "waiting"
    other.end("y@2")
    pass_on(one)
    assert (one.state("both@2"), one.state("later@2")) == ("ready", "waiting")


def test_what_has_not_started_within_ten_seconds_gives_the_lock_to_another_archive_that_wants_it(
    archives: tuple[AnArchive, AnArchive],
) -> None:
    one, other = archives
    one.commit({"a": GLOBAL})
    pass_on(one)
    one.sql(TEN_SECONDS)
    pass_on(one)
    assert one.state("a@2") == "ready", "nobody else wants it"
    one.sql("update task set ready_at = clock_timestamp() where state = 'ready'")
    other.commit({"x": GLOBAL})
    pass_on(one)
    assert (one.state("a@2"), other.state("x@2")) == ("ready", "waiting"), "it was granted a moment ago"
    one.sql(TEN_SECONDS)
    pass_on(one)
    assert (one.state("a@2"), other.state("x@2")) == ("waiting", "ready")
    other.claim("x@2")
    one.sql("update task set ready_at = ready_at - interval '1 hour'")
    pass_on(one)
    assert (one.state("a@2"), other.state("x@2")) == ("waiting", "running"), "what runs has the lock until it ends"


def test_what_has_not_started_keeps_the_lock_from_who_could_not_start_either(
    archives: tuple[AnArchive, AnArchive],
) -> None:
    one, other = archives
    other.commit({"tex": "lock: tex", "x": "lock: [global/printer, tex]"})
    other.claim("tex@2")
    one.commit({"a": GLOBAL})
    pass_on(one)
    one.sql(TEN_SECONDS)
    pass_on(one)
    assert (one.state("a@2"), other.state("x@2")) == ("ready", "waiting")


def test_a_place_that_was_given_back_is_not_given_to_the_same_archive_again(session: Session) -> None:
    """Also where the one that was granted the lock last comes before those that want it."""
    one, other, third = (an_archive(session, name) for name in ("one", "other", "third"))
    locks.set_capacity(session, INSTALLATION, "global/printer", 2, "ann")
    one.commit({"a": GLOBAL})
    third.commit({"c": GLOBAL})
    pass_on(one)
    other.commit({"b": GLOBAL})
    assert states(one, other, third) == {"one/a@2": "ready", "other/b@2": "waiting", "third/c@2": "ready"}
    one.sql(f"{TEN_SECONDS} and archive_id = %s", one.id)
    pass_on(one)
    assert states(one, other, third) == {"one/a@2": "waiting", "other/b@2": "ready", "third/c@2": "ready"}


def test_two_archives_do_not_take_a_place_from_each_other_for_ever(archives: tuple[AnArchive, AnArchive]) -> None:
    """Each has a task that has not started for long and one that waits: the place that one of them was just given is not late."""
    one, _ = archives
    locks.set_capacity(one.session, INSTALLATION, "global/printer", 2, "ann")
    for archive in archives:
        archive.commit({"a": GLOBAL, "b": GLOBAL})
    pass_on(one)
    one.sql(TEN_SECONDS)
    locks.set_capacity(one.session, INSTALLATION, "global/printer", 3, "ann")
    pass_on(one)
    assert sorted(states(*archives).values()).count("ready") == 3
    before = states(*archives)
    pass_on(one)
    assert states(*archives) == before, "nobody is late"


def test_a_paused_archive_that_sits_on_a_lock_of_the_installation_gives_it_back(
    archives: tuple[AnArchive, AnArchive],
) -> None:
    one, other = archives
    one.commit({"a": GLOBAL})
    pass_on(one)
    other.commit({"x": GLOBAL})
    pauses.pause(one.session, ArchiveId(one.id), "", "ann")
    assert one.state("a@2") == "waiting"
    pass_on(one)
    assert (one.state("a@2"), other.state("x@2")) == ("waiting", "ready")
    pauses.resume(one.session, ArchiveId(one.id), one.name, "ann")
    other.end("x@2")
    pass_on(one)
    assert one.state("a@2") == "ready"


def test_a_pause_of_a_lock_of_the_installation_is_one_of_every_archive(archives: tuple[AnArchive, AnArchive]) -> None:
    one = archives[0]
    for archive in archives:
        archive.commit({"a": GLOBAL, "b": "lock: [global/printer, tex]", "tex": "lock: tex"})
    pass_on(one)
    assert (one.state("a@2"), one.state("tex@2")) == ("ready", "waiting")
    locks.pause(one.session, INSTALLATION, "global/printer", "no paper", "ann")
    pass_on(one)
    for archive in archives:
        assert archive.states() == {"a@2": "waiting", "b@2": "waiting", "tex@2": "ready"}
    (view,) = list_locks(one.session, None, "global/printer")
    assert (view.pause_reason, view.paused_by) == ("no paper", "ann")
    locks.resume(one.session, INSTALLATION, "global/printer", "global/printer", "ann")
    pass_on(one)
    assert [archive.state("a@2") for archive in archives] == ["waiting", "ready"], "the other one has its turn"
    with pytest.raises(Conflict, match="is not paused"):
        locks.resume(one.session, INSTALLATION, "global/printer", "global/printer", "ann")


def test_who_gives_one_lock_back_takes_along_who_stands_behind_it_at_another_lock(
    archives: tuple[AnArchive, AnArchive],
) -> None:
    """Nobody of an archive overtakes an earlier task at a lock that both want, also where that one had it and wants it again."""
    one, other = archives
    locks.set_capacity(one.session, INSTALLATION, "global/printer", 2, "ann")
    one.commit({"a": "lock: [global/printer, global/paper]", "c": GLOBAL})
    pass_on(one)
    assert (one.state("a@2"), one.state("c@2")) == ("ready", "ready")
    other.commit({"x": "lock: global/paper"})
    one.sql(TEN_SECONDS)
    pass_on(one)
    assert other.state("x@2") == "ready"
    assert (one.state("a@2"), one.state("c@2")) == ("waiting", "waiting")
    other.run("x@2")
    pass_on(one)
    assert (one.state("a@2"), one.state("c@2")) == ("ready", "ready")


@pytest.mark.parametrize("first", [0, 1], ids=["of the first archive", "of the other archive"])
def test_of_those_that_were_granted_a_lock_at_once_the_one_planned_last_gives_it_back(
    archives: tuple[AnArchive, AnArchive], first: int
) -> None:
    """They have been granted it at one moment, so that no row of the database says more than another whose turn it is."""
    session = archives[0].session
    early, late = archives[first], archives[1 - first]
    locks.pause(session, INSTALLATION, "global/printer", "", "ann")
    for archive in (early, late):
        archive.commit({"a": GLOBAL})
    # Where the rows of tasks lie says nothing: the one planned first is moved behind the other one.
    early.sql("update task set priority = priority where archive_id = %s", early.id)
    locks.set_capacity(session, INSTALLATION, "global/printer", None, "ann")
    locks.resume(session, INSTALLATION, "global/printer", "global/printer", "ann")
    assert early.state("a@2") == late.state("a@2") == "ready"
    (granted,) = early.sql("select count(distinct ready_at) as moments from task where name = 'a'")
    assert granted["moments"] == 1
    locks.set_capacity(session, INSTALLATION, "global/printer", 1, "ann")
    pass_on(early)
    assert (early.state("a@2"), late.state("a@2")) == ("ready", "waiting")


def test_capacity_of_a_lock_of_the_installation(archives: tuple[AnArchive, AnArchive]) -> None:
    one, other = archives
    locks.set_capacity(one.session, INSTALLATION, "global/printer", 2, "ann")
    for archive in archives:
        archive.commit(dict.fromkeys("ab", GLOBAL))
    pass_on(one)
    assert states(one, other) == {
        "one/a@2": "ready",
        "one/b@2": "waiting",
        "other/a@2": "ready",
        "other/b@2": "waiting",
    }
    one.claim("a@2")  # and that of the other archive
    locks.set_capacity(one.session, INSTALLATION, "global/printer", None, "ann")
    assert (one.state("b@2"), other.state("b@2")) == ("ready", "ready"), "there is no turn to wait for"
    locks.set_capacity(one.session, INSTALLATION, "global/printer", 3, "ann")
    pass_on(one)
    assert (one.state("b@2"), other.state("b@2")) == ("ready", "waiting"), "who was granted it last gives it back"


def test_a_lock_of_the_installation_needs_no_other_than_one_place_of_each(
    archives: tuple[AnArchive, AnArchive],
) -> None:
    """Two archives take two locks crosswise: neither has one and waits for the other one."""
    one, other = archives
    one.commit({"a": "lock: [global/printer, global/scanner]"})
    other.commit({"b": "lock: [global/scanner, global/printer]"})
    pass_on(one)
    assert (one.state("a@2"), other.state("b@2")) == ("ready", "waiting")
    one.end("a@2")
    pass_on(one)
    assert other.state("b@2") == "ready"


def test_an_archive_that_is_busy_holds_up_no_other_archive_at_a_lock(
    archives: tuple[AnArchive, AnArchive], second_connection: Connect
) -> None:
    one, other = archives
    one.commit({"a": GLOBAL})
    other.commit({"x": GLOBAL})
    holder = second_connection()
    with holder.transaction():
        holder.execute("select from archive where id = %s for update", [one.id])
        assert locks.pass_on(one.session) is True, "it is worth to ask again"
        assert other.state("x@2") == "ready"


@pytest.mark.parametrize("first", [0, 1])
def test_archives_that_free_locks_for_each_other_in_both_orders_at_once_wait_for_nothing(
    archives: tuple[AnArchive, AnArchive], second_connection: Connect, first: int
) -> None:
    """Each has what the other one waits for. The ends do not wait for each other, and passing on waits for one archive alone, and holds none meanwhile."""
    one, other = archives
    one.commit({"a": "lock: global/printer"})
    other.commit({"x": "lock: global/scanner"})
    pass_on(one)
    one.claim()
    one.commit({"b": "lock: global/scanner"})
    other.commit({"y": "lock: global/printer"})
    ended = [one.running[one.task("a@2")].attempt, one.running[other.task("x@2")].attempt]
    mine = second_connection()
    archive, opposite = archives[first], archives[1 - first]
    with mine.transaction():
        # An end of one archive is under way: its row is locked.
        mine.execute("select from archive where id = %s for no key update", [archive.id])
        opposite.record(ended[1 - first], End.EXITED, 0)
        passing = [InThread(lambda: locks.pass_on(one.session)) for _ in range(2)]
        assert [thread.result() for thread in passing] == [True, True]
    archive.record(ended[first], End.EXITED, 0)
    pass_on(one)
    assert (one.state("b@3"), other.state("y@3")) == ("ready", "ready")


def test_of_a_place_that_is_taken_back_and_its_claim_the_first_wins(
    archives: tuple[AnArchive, AnArchive], second_connection: Connect
) -> None:
    one, other = archives
    one.commit({"a": GLOBAL})
    pass_on(one)
    other.commit({"x": GLOBAL})
    one.sql(TEN_SECONDS)
    watcher = second_connection()
    with one.session.database.transaction() as connection:
        claims, _ = claim.claim_within(connection, PROCESS, claim.Request(HOST, 1, claim.Turns()))
        assert [found.name for found in claims] == ["a"]
        passing = InThread(lambda: locks.pass_on(Session(one.session.database)))
        wait_until_blocked(watcher)
    passing.result()
    assert (one.state("a@2"), other.state("x@2")) == ("running", "waiting")


def test_two_that_pass_on_at_once_give_one_place(
    archives: tuple[AnArchive, AnArchive], second_connection: Connect
) -> None:
    one, other = archives
    one.commit({"a": GLOBAL})
    other.commit({"x": GLOBAL})
    mine, watcher = second_connection(), second_connection()
    with mine.transaction():
        graph = Graph(mine)
        graph.rows("lock_turns")
        assert graph.lock_within(other.id, 1.0) == []
        passing = InThread(lambda: locks.pass_on(one.session))
        wait_until_blocked(watcher)
        assert graph.judge([Line(INSTALLATION, "global/printer", other.id)], may_take=True) == [other.task("x@2")]
    passing.result()
    assert (one.state("a@2"), other.state("x@2")) == ("waiting", "ready")


# --- What it costs ---------------------------------------------------------------------------------------------------


@contextmanager
def counting(connection: Connection) -> Iterator[Callable[[], int]]:
    """In a transaction that is undone: how many rows and index entries were read of tasks and their lines."""

    def read() -> int:
        (row,) = connection.execute(
            "select sum(coalesce(s.seq_tup_read, 0) + coalesce(s.idx_tup_fetch, 0) + i.n)::int as n from pg_stat_xact_user_tables s"
            " cross join lateral (select coalesce(sum(pg_stat_get_xact_tuples_returned(x.indexrelid)), 0) as n from pg_index x where x.indrelid = s.relid) i"
            " where s.relname in ('task', 'lock_use')"
        ).fetchall()
        return int(row["n"])

    with connection.transaction(force_rollback=True):
        before = read()  # what the connection has not told yet
        yield lambda: read() - before


def test_what_is_read_does_not_grow_with_those_who_wait_nor_with_those_who_are_ready(
    archives: tuple[AnArchive, AnArchive], second_connection: Connect
) -> None:
    """A task of priority 90 sits on the lock, behind ready tasks of priority 50 that use none; others wait for it in either archive."""
    one, other = archives
    one.commit({"sits": GLOBAL})
    pass_on(one)
    control.prioritize(one.session, one.task("sits@2"), 90, "ann")
    other.commit({"x": GLOBAL})
    connection = second_connection()

    def reads() -> dict[str, int]:
        found = {}
        with counting(connection) as read:
            graph = Graph(connection, [one.id])
            graph.judge([Line(INSTALLATION, "global/printer", one.id)], less="global/printer")
            found["take back"] = read()
        with counting(connection) as read:
            graph = Graph(connection, [other.id])
            graph.ids("cancel", tasks=[other.task("x@2")], by="ann")
            graph.grant()
            found["leave"] = read()
        with counting(connection) as read:
            Graph(connection).rows("archives_waiting", name="global/printer")
            Graph(connection).rows("places", name="global/printer", patience=10.0)
            found["look"] = read()
        return found

    before = reads()
    for archive in archives:
        archive.commit({f"t{n}": "" if archive is one else GLOBAL for n in range(500)})
    assert one.state("sits@2") == "ready"
    one.sql("analyze task")
    one.sql("analyze lock_use")
    after = reads()
    # Of 500 tasks. Entries of rows that an earlier test deleted in this database are read, too.
    assert all(after[what] <= before[what] + 200 for what in before), (before, after)
    one.sql(TEN_SECONDS)
    pass_on(one)
    assert (one.state("sits@2"), other.state("x@2")) == ("waiting", "ready")


# --- What people see -------------------------------------------------------------------------------------------------


def texts(archive: AnArchive, key: str, *seen: AnArchive) -> list[str]:
    """``seen``: the archives of the reader's token; none: only that of the task."""
    archives = [ArchiveId(one.id) for one in seen]
    return [reason.text for reason in explain(archive.session, archive.task(key), seen=archives).reasons]


def test_explain_says_who_has_a_lock_and_counts_tasks_of_other_archives(archives: tuple[AnArchive, AnArchive]) -> None:
    one, other = archives
    one.commit({"a": GLOBAL})
    pass_on(one)
    other.commit({"x": GLOBAL, "y": GLOBAL})
    pass_on(one)
    assert texts(other, "x@2") == [
        "It waits for the lock global/printer, which a task of another archive has; it is next in line of its archive, and archives take turns."
    ]
    assert texts(other, "y@2") == [
        "It waits for the lock global/printer, which a task of another archive has; waiting before it: other@2/x."
    ]


def test_explain_names_holders_in_other_archives_to_those_who_may_see_them(
    archives: tuple[AnArchive, AnArchive],
) -> None:
    one, other = archives
    locks.set_capacity(one.session, INSTALLATION, "global/printer", 2, "ann")
    third = an_archive(one.session, "third")
    one.commit({"a": GLOBAL})
    third.commit({"c": GLOBAL})
    pass_on(one)
    other.commit({"x": GLOBAL})
    pass_on(one)
    start, end = (
        "It waits for the lock global/printer (2 at once), which",
        "; it is next in line of its archive, and archives take turns.",
    )
    assert texts(other, "x@2", other) == [f"{start} 2 tasks of other archives have{end}"]
    assert texts(other, "x@2", one, other) == [f"{start} one@2/a and one more task of another archive have{end}"]
    (reason,) = explain(one.session, other.task("x@2"), seen=None).reasons
    assert reason.text == f"{start} one@2/a, third@2/c have{end}"
    assert reason.tasks == ["one@2/a", "third@2/c"]
    (reason,) = explain_name(one.session, "other@2", None).reasons
    assert "one@2/a, third@2/c" in reason.text


def test_a_list_of_locks_names_tasks_of_the_archives_that_were_asked_for_alone(
    archives: tuple[AnArchive, AnArchive],
) -> None:
    one, other = archives
    one.commit(dict.fromkeys("ab", GLOBAL))
    other.commit({"x": GLOBAL})
    pass_on(one)

    def seen(*asked: AnArchive) -> Any:
        (view,) = list_locks(one.session, [ArchiveId(archive.id) for archive in asked] or None)
        return (
            view.name,
            [task.full_name for task in view.holders],
            [task.full_name for task in view.waiting],
            view.elsewhere,
        )

    assert seen() == ("global/printer", ["one@2/a"], ["other@2/x", "one@2/b"], 0)
    assert seen(other) == ("global/printer", [], ["other@2/x"], 1)
    assert seen(one) == ("global/printer", ["one@2/a"], ["one@2/b"], 0)
