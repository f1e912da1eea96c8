"""Notices, branches and the ledger (design 2, 5.16): no request for a scan is lost, a deleted
branch gets no further revision, and unusual texts can be stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.db import Connection, Database, connections, pipelines
from arkqueue.db import session as sessions
from arkqueue.db.session import Session
from arkqueue.errors import Conflict
from arkqueue.model import ArchiveId, BranchId, Origin, Revision
from arkqueue.plan import Entry
from arkqueue.queue import archives, graph, ledger
from tests.builders import AnArchive, a_revision, a_workflow, an_archive, an_entry, the_archive
from tests.db.ends import remove, rewind, untrack
from tests.db.test_busy_archives import held

Connect = Callable[[], Connection]


# Notices


def asked(session: Session) -> dict[str, int | None]:
    return {row.name: row.asked for row in archives.to_read(session)}


def read(archive: AnArchive, number: int | None) -> None:
    archives.read_done(archive.session, archive.id, number, 60.0)


def test_a_notice_that_comes_while_the_repository_is_read_is_kept(archive: AnArchive) -> None:
    archives.notify(archive.session, [archive.id])
    first = asked(archive.session)["papers"]
    archives.notify(archive.session, [archive.id])
    read(archive, first)
    second = asked(archive.session)["papers"]
    assert second not in (None, first)
    read(archive, second)
    assert asked(archive.session) == {}


def test_a_notice_is_not_taken_for_an_earlier_one_that_is_still_being_read(archive: AnArchive) -> None:
    """Two queue managers read for the same notice; the slower one knows nothing of the next."""
    archives.notify(archive.session, [archive.id])
    first = asked(archive.session)["papers"]
    read(archive, first)
    archives.notify(archive.session, [archive.id])
    read(archive, first)
    assert list(asked(archive.session)) == ["papers"]


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (["7", "11", "9", None], "11"),
        ([None, "7"], "7"),
        ([None], None),
        (["a" * 40, "b" * 40], "b" * 40),
        (["7", "a" * 40], "a" * 40),
    ],
)
def test_notices_that_are_told_together_are_as_those_told_one_by_one(
    session: Session, told: list[str | None], expected: str | None
) -> None:
    together, one_by_one, other = an_archive(session, "a"), an_archive(session, "b"), an_archive(session, "c")
    archives.notify_all(session, [(ArchiveId(other.id), "3"), *((ArchiveId(together.id), each) for each in told)])
    for each in told:
        archives.notify(session, [ArchiveId(one_by_one.id)], each)
    found = {row.name: row.revision for row in archives.to_read(session) if row.asked is not None}
    assert found == {"a": expected, "b": expected, "c": "3"}


def test_a_notice_goes_before_the_sweep_of_others(session: Session) -> None:
    for name in ("a", "b", "c"):
        an_archive(session, name)
    last = an_archive(session, "last")
    read(last, None)
    archives.notify(session, [last.id])
    assert list(asked(session)) == ["last", "a", "b", "c"]


def test_a_removed_archive_is_asked_for_nothing(archive: AnArchive) -> None:
    archives.notify(archive.session, [archive.id], "99")
    archives.remove(archive.session, archive.id, "ann")
    archives.notify(archive.session, [archive.id], "99")
    assert asked(archive.session) == {}
    assert archive.sql("select archive_id from look") == []


def test_a_failing_archive_waits_longer_each_time_and_no_notice_hurries_it(archive: AnArchive) -> None:
    def pause() -> float:
        archives.read_failed(archive.session, archive.id, "a\0b", 1.0, 60.0)
        (row,) = archive.sql(
            "select trouble, extract(epoch from next_read_at - clock_timestamp())::float8 s from archive"
        )
        assert row["trouble"] == "a\ufffdb"
        return float(row["s"])

    assert pause() <= 1
    archive.sql("update archive set trouble_since = trouble_since - interval '30 s'")
    assert 15 < pause() < 60
    archives.notify(archive.session, [archive.id])
    assert asked(archive.session) == {}
    archive.sql("update archive set trouble_since = trouble_since - interval '1 day'")
    assert 45 < pause() <= 60
    archive.sql("update archive set next_read_at = now()")
    assert list(asked(archive.session)) == ["papers"]


def test_a_sweep_waits_for_no_archive(session: Session, second_connection: Connect) -> None:
    first, second = an_archive(session, "a"), an_archive(session, "b")
    for archive in first, second:
        session.do("read_done", archive=archive.id, asked=None, sweep=60)
    with held(second_connection, first):
        assert archives.sweep_all(session) == [first.id]
        assert list(asked(session)) == ["b"]
    session.do("read_done", archive=second.id, asked=None, sweep=60)
    assert archives.sweep_all(session, [ArchiveId(first.id)]) == []
    assert list(asked(session)) == ["a"]


# What is gone


@pytest.mark.parametrize("gone", [remove, rewind, untrack])
def test_a_look_under_way_appends_nothing_to_what_is_gone(
    archive: AnArchive, gone: Callable[[AnArchive], None]
) -> None:
    branch = archive.branches[""]
    gone(archive)
    assert ledger.append(archive.session, branch, [an_entry(2, a_workflow({"a": ""}))]) is None
    assert archive.sql("select name from task where name <> 'COMMIT'") == []


def test_a_revision_of_a_removed_archive_gets_no_run(archive: AnArchive) -> None:
    archive.commit({"a": ""})
    archive.fail("a@2")
    remove(archive)
    with pytest.raises(Conflict, match="archive is gone"):
        archive.trigger(2)
    with pytest.raises(Conflict, match="archive that is gone"):
        archive.retry("a@2")


def test_a_branch_that_came_back_meanwhile_is_not_untracked(archive: AnArchive) -> None:
    """Seen as deleted with an old head; by now another queue manager has found it again, with a new one."""
    old = archive.branches[""]
    archive.commit({"a": ""})
    archives.untrack(archive.session, archive.id, BranchId(old.id), head=old.head)
    assert archive.state("a@2") == "ready"
    archives.untrack(archive.session, archive.id, BranchId(old.id), head=archive.branches[""].head)
    assert archive.state("a@2") == "canceled"


def test_a_branch_is_rewound_once_by_two(archive: AnArchive) -> None:
    rewind(archive)
    with pytest.raises(Conflict, match="meanwhile"):
        rewind(archive)


# Odd texts


ODD = [
    Revision("2", 2, "a\0n", datetime(2026, 1, 1, tzinfo=UTC), "\0" + "x" * 2**20),
    Revision("2", 2, "x" * 2**20, datetime(1, 1, 3, tzinfo=UTC), "\U0001f5c4\u202e\x1b[2J"),
    Revision("2", 2, "", datetime(9999, 12, 29, tzinfo=UTC), ""),
    Revision("2", 2, "ann", datetime(1901, 1, 1, tzinfo=timezone(timedelta(hours=-12, minutes=-34))), "old"),
    Revision("2", 2, "ann", datetime(2026, 1, 1, tzinfo=UTC), "x", Origin("papers@1/" + "y" * 10_000, 1)),
    Revision("2", 2, "ann", datetime(2026, 1, 1, tzinfo=UTC), "x", Origin("papers@1/\0", 1)),
    Revision("2", 2, 'NULL, "{\\"}', datetime(2026, 1, 1, tzinfo=UTC), '","'),
]
"""Texts and dates that a repository may hold."""


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_whatever_a_revision_says_is_stored_and_read_again(pg_uri: str, zone: str) -> None:
    separator = "&" if "?" in pg_uri else "?"
    uri: Any = (
        f"{pg_uri}{separator}options=-c%20TimeZone%3D{zone}"
        if "://" in pg_uri
        else f"{pg_uri} options='-c TimeZone={zone}'"
    )
    with Database.open(uri) as database:
        session = Session(database)
        for number, revision in enumerate(ODD):
            archive = an_archive(session, f"papers{number}")
            archive.append("", [Entry(revision, a_workflow({"a": ""}))])
            (branch,) = archives.branches(session, archive.id)
            assert branch.date == revision.date, revision
            assert branch.author == revision.author.replace("\0", "\ufffd"), revision
            archive.run("a@2")


def test_many_revisions_of_many_tasks_take_no_more_round_trips_than_one(
    archive: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One reads what the branch has, and one writes all rows."""
    trips: list[int] = []

    def counted(connection: Connection, calls: Sequence[pipelines.Call]) -> list[pipelines.Answer]:
        trips.append(len(calls))
        return pipelines.run(connection, calls)

    few = a_workflow({"a": "depends: [PREV]"})
    many = a_workflow({f"t{n}": f"depends: [PREV, 'PREV:t{n + 1}']\ncancels: [PREV]" for n in range(20)} | {"t20": ""})
    taken = []
    for module in (connections, sessions, graph):
        monkeypatch.setattr(module, "run", counted)
    first = 2
    for workflow, count in ((few, 1), (many, 30), (few, 1), (many, 30)):
        trips.clear()
        archive.append("", [Entry(a_revision(number), workflow) for number in range(first, first + count)])
        taken.append(len(trips))
        first += count
    assert len(archive.states()) == 2 + 2 * 30 * 21
    assert taken[2:] == [2, 2], "once the content of the workflows is stored"


def test_the_ledgers_of_many_branches_begin_with_as_many_statements_as_those_of_two(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    executed = 0

    def counted(connection: Connection, calls: Sequence[pipelines.Call]) -> list[pipelines.Answer]:
        nonlocal executed
        executed += len(calls)
        return pipelines.run(connection, calls)

    for module in (connections, sessions, graph):
        monkeypatch.setattr(module, "run", counted)
    counts = []
    for count in (2, 40, 80):
        before, names = executed, [f"branch-{n}" for n in range(count)]
        starts = [
            archives.Start(name, name == names[0], an_entry(7, a_workflow({"a": ""}), branch=name)) for name in names
        ]
        archives.register(
            session, name=f"archive-{count}", kind="git", url="/srv", repository="/srv", uuid="", folder="",
            settings=ArchiveSettings(branches=("*",)), starts=starts,
        )  # fmt: skip
        counts.append(executed - before)
        archive = the_archive(session, f"archive-{count}")
        heads = {row.name: row.number for row in archives.branches(session, ArchiveId(archive.id))}
        assert heads == dict.fromkeys(names, 7)
        assert archive.sql(
            "select name, state, count(*) as n from task where archive_id = %s group by 1, 2", archive.id
        ) == [{"name": "COMMIT", "state": "completed", "n": count}]
    assert 0 < counts[1] == counts[2] <= counts[0], "content of the same workflows is known from the first"
