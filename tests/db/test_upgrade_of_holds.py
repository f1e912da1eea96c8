"""A database of an earlier version is migrated and continues. That version had holds, guards,
pauses, priorities and limits, but no locks, labels, deletions or purges.

``version_21.sql`` says how the database was made.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from arkqueue.db.session import Session
from arkqueue.errors import Conflict
from arkqueue.model import AttemptId, End, Outcome, Receipt, RunId
from arkqueue.queue import claim, finish, holds, pauses
from arkqueue.queue.guards import Approver
from arkqueue.queue.holds import How
from arkqueue.views.doctor import examine
from arkqueue.views.explain import explain
from tests.builders import HOST, PROCESS, AnArchive, the_archive
from tests.db.test_upgrade import brought_up, papers

__all__ = ["papers"]

DUMP = Path(__file__).with_name("version_21.sql")
BOB = How(approver=Approver(("bob",)))


@pytest.fixture
def session(empty_uri: str) -> Iterator[Session]:
    with psycopg.connect(empty_uri) as connection:
        connection.execute(DUMP.read_bytes())
    with brought_up(empty_uri) as session:
        yield session
        assert not examine(session).findings


@pytest.fixture
def site(session: Session) -> AnArchive:
    return the_archive(session, "site")


def end(archive: AnArchive, key: str) -> None:
    """End what ran at the time of the dump."""
    (row,) = archive.sql("select attempt_id from task where id = %s", archive.task(key))
    receipts = finish.finish(archive.session, PROCESS, [Outcome(AttemptId(row["attempt_id"]), End.EXITED, 0)])
    assert set(receipts.values()) == {Receipt.RECORDED}


def claimed(session: Session) -> list[str]:
    """What one claim takes, in its order."""
    return [f"{one.name}@{one.number}" for one in claim.claim(session, PROCESS, HOST, 100)]


def test_what_was_held_is_held_for_the_same_reason(papers: AnArchive, site: AnArchive) -> None:
    held = {name for name, state in papers.states().items() if state == "held"}
    assert held == {
        "publish@2",
        *(f"{name}@{number}" for name in ("index", "pdf", "publish", "upload") for number in (3, 4)),
    }
    for key, words in {
        "publish@2": "its workflow file",
        "pdf@3": "wait for Bob",
        "upload@3": "until Monday",
        "index@4": "until Monday",
    }.items():
        assert words in explain(papers.session, papers.task(key)).text
    assert "require-approval" in explain(site.session, site.task("deploy@2")).text


def test_what_ran_ends_and_what_is_released_goes_on_by_its_priority(papers: AnArchive) -> None:
    end(papers, "pdf@2")
    with pytest.raises(Conflict, match="is on hold"):
        holds.release_run(papers.session, RunId(papers.run_id(3)), "ann")
    holds.unhold(papers.session, papers.id, "ann")
    holds.release(papers.session, papers.task("publish@2"), "ann")
    holds.release_run(papers.session, RunId(papers.run_id(3)), "ann")
    assert [one for one in claimed(papers.session) if one.endswith("@3")] == ["index@3", "upload@3"]
    assert {state for name, state in papers.states().items() if name.endswith("@4")} == {"held"}


def test_a_paused_archive_stays_paused_and_its_limit_and_its_guard_hold(site: AnArchive) -> None:
    assert claimed(site.session) == []
    pauses.resume(site.session, site.id, "site", "ann")
    assert claimed(site.session) == []  # one of its tasks runs, and no more may
    end(site, "build@2")
    with pytest.raises(Conflict, match="is guarded by require-approval"):
        holds.release(site.session, site.task("deploy@2"), "ann")
    assert claimed(site.session) == ["lint@2"]
    end(site, "lint@2")
    holds.release(site.session, site.task("deploy@2"), "bob", how=BOB)
    assert claimed(site.session) == ["deploy@2"]
