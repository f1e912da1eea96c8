"""A database of version 1 with runs under way is migrated and continues: no task is lost, forgotten
or run twice.

``version_1.sql`` says how the database was made. All later migrations run here too, so a change of
the tables that breaks a working queue fails these tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

import psycopg
import pytest
from psycopg.types.json import Jsonb

from arkqueue import logs
from arkqueue.db import Database
from arkqueue.db.migrations import check, migrate
from arkqueue.db.session import Session
from arkqueue.model import ArchiveId, AttemptId, End, Outcome, Receipt, RunId, Usage
from arkqueue.plan import matches
from arkqueue.queue import archives, claim, finish, purge, schedules, tokens
from arkqueue.states import SETTLED
from arkqueue.views import runs
from arkqueue.views.attempts import attempt
from tests.builders import HOST, PROCESS, AnArchive, the_archive

DUMP = Path(__file__).with_name("version_1.sql")

PAPERS = {
    "index@2": "completed", "pdf@2": "running", "strict@2": "failed", "after@2": "skipped",
    "upload@2": "deferred", "box@2": "running", "all@2": "completed",
    "index@3": "completed", "pdf@3": "waiting", "strict@3": "waiting", "after@3": "waiting",
    "upload@3": "running", "box@3": "canceled", "all@3": "waiting",
    "index@4": "ready", "pdf@4": "waiting", "strict@4": "waiting", "after@4": "waiting",
    "upload@4": "ready", "box@4": "waiting", "all@4": "waiting",
}  # fmt: skip
"""The states of the tasks in the database. pdf@3 waits until pdf@2, which pdf@3 supersedes, has stopped. The lease of upload@3 is over, and the lease of
box@2 is not. strict@3 waits for strict@2, which failed. box@4 waits for box@2, as box@3 was canceled before it began."""

CONTRADICTIONS = {
    "waits for nothing": "state = 'waiting' and unmet = 0",
    "counts other edges than it has": """state in ('waiting', 'ready') and name <> 'REPORT'
        and unmet <> (select count(*) from edge e where e.target = t.id and not e.met)""",
    "runs too early": "state in ('ready', 'running', 'deferred') and unmet <> 0",
    "waits for what has settled": """state = 'waiting' and name <> 'REPORT' and not exists (
        select from edge e join task s on s.id = e.source where e.target = t.id and not e.met
        and (s.settled_at is null or s.state in ('failed', 'rejected', 'skipped')))""",
    "runs without an attempt": """state = 'running' and not exists (
        select from attempt a where a.id = t.attempt_id and a.task_id = t.id and a.ended_at is null)""",
    "does not run and has a live attempt": """state <> 'running' and exists (
        select from attempt a where a.task_id = t.id and a.ended_at is null)""",
    "has lost attempts": "attempts <> (select count(*) from attempt a where a.task_id = t.id)",
    "reports too early": """name = 'REPORT' and settled_at is not null and exists (
        select from task o where o.run_id = t.run_id and o.settled_at is null)""",
}
"""What no task may ever be, by SQL."""


@pytest.fixture
def branches(request: pytest.FixtureRequest) -> list[str]:
    """The globs of branches that the archive `site` has in the database of version 1."""
    return list(getattr(request, "param", ["*"]))


@pytest.fixture
def session(empty_uri: str, branches: list[str]) -> Iterator[Session]:
    """The database of version 1, brought up to date."""
    with psycopg.connect(empty_uri) as connection:
        connection.execute(DUMP.read_bytes())
        change = "update archive set settings = jsonb_set(settings, '{branches}', %s) where name = 'site'"
        connection.execute(change, [Jsonb(branches)])
    with brought_up(empty_uri) as session:
        yield session


@contextmanager
def brought_up(uri: str) -> Iterator[Session]:
    """The database of an earlier version, brought up to date."""
    with Database.open(uri, application_name="arkqueue test") as database:
        with database.connect() as connection:
            assert migrate(connection)
            check(connection)
            # As if a queue manager had been heard all the while.
            connection.execute("update heartbeat set steady_since = '2026-01-01', beat_at = now() + interval '1 day'")
        yield Session(database)


@pytest.fixture
def papers(session: Session) -> AnArchive:
    return the_archive(session, "papers")


def contradictions(papers: AnArchive) -> list[str]:
    """What is wrong with the tasks of the installation."""
    return [
        f"{row['name']}@{row['number']}.{row['run']} {what}"
        for what, condition in CONTRADICTIONS.items()
        for row in papers.sql(f"select name, number, run from task t where {condition}")
    ]


def live_attempts(papers: AnArchive) -> dict[str, AttemptId]:
    """The attempts that run at revision 2, by the names of their tasks."""
    rows = papers.sql(
        "select a.id, t.name from attempt a join task t on t.id = a.task_id where a.ended_at is null and t.number = 2"
    )
    return {row["name"]: row["id"] for row in rows}


def work(session: Session) -> list[str]:
    """Run what is ready, and what follows, to its end, without the tasks that run already; the names of the tasks, in order."""
    done = []
    while claims := claim.claim(session, PROCESS, HOST, 100):
        outcomes = [Outcome(one.attempt, End.EXITED, 0) for one in claims]
        assert set(finish.finish(session, PROCESS, outcomes).values()) == {Receipt.RECORDED}
        done += [f"{one.name}@{one.number}" for one in claims]
    return done


def test_globs_of_branches_go_across_as_they_did(session: Session) -> None:
    """`*` matched `feature/x` where branches were tracked, and did not in workflow files: now it nowhere does."""
    assert tracked(session) == ["**"]


GLOBS = ["main", "dev*", "*/x", "a*/b", "***"]
NAMES = ["main", "dev", "dev/x", "x", "a/x", "a/b/x", "ab", "a/b", "aa/c/b", "a/c", "rev", "rel1"]


@pytest.mark.parametrize("branches", [[glob] for glob in GLOBS], indirect=True)
def test_a_glob_of_branches_matches_what_it_matched(session: Session, branches: list[str]) -> None:
    """They were read by `fnmatch`, whose stars go across slashes, and never match less than a whole `/x`."""
    now = tracked(session)
    assert [name for name in NAMES if matches(now, name)] == [name for name in NAMES if fnmatchcase(name, branches[0])]


@pytest.mark.parametrize("branches", [["?ain", "d[a-e]v"]], indirect=True)
def test_branches_that_are_tracked_stay_so_whatever_the_glob_can_say_now(session: Session) -> None:
    now = tracked(session)
    assert [matches(now, name) for name in ("main", "dev", "dove")] == [True, True, False]


def tracked(session: Session) -> list[str]:
    return list(archives.one(session, ArchiveId(the_archive(session, "site").id)).settings["branches"])


def test_everything_is_as_it_was(session: Session, papers: AnArchive) -> None:
    assert papers.states() == PAPERS
    assert contradictions(papers) == []
    site = the_archive(session, "site")
    assert site.states(branch="main") == {
        "build@2": "canceled", "lint@2": "ready", "build@3": "ready", "lint@3": "ready", "lint@2.2": "ready"
    }  # fmt: skip
    assert site.states(branch="dev") == {
        "deploy@2": "ready", "test@2": "ready", "deploy@3": "waiting", "test@3": "waiting"
    }  # fmt: skip
    page = runs.runs(session, archives=[ArchiveId(papers.id), ArchiveId(site.id)])
    counted = {f"{run.archive}:{run.branch}@{run.rev}.{run.run}": run.counts.superseded for run in page.runs}
    assert counted["site:main@2.1"] == 1
    assert [run.full_name for run in page.runs if run.faults] == ["site:dev@4"]


def test_stored_logs_inputs_and_tokens_can_be_read(session: Session, papers: AnArchive) -> None:
    (row,) = papers.sql("select attempt_id from task where id = %s", papers.task("index@2"))
    page = logs.read(session, row["attempt_id"])
    assert [(str(chunk.stream), chunk.data) for chunk in page.chunks] == [("stdout", b"12 pages\n"), ("stderr", b"caf\xe9\n")]  # fmt: skip
    assert page.ended
    pdf = papers.task("pdf@2")
    assert claim.inputs(session, [pdf]) == {pdf: {"index": {"pages": "12"}}}
    token = tokens.check(session, "ark_of-version-1")
    assert token is not None
    assert (token.name, token.scope, token.archives) == ("ci", tokens.Scope.OPERATE, ["papers"])
    assert tokens.check(session, "ark_revoked") is None
    (noticed, *_) = archives.to_read(session)
    assert noticed.name == "papers"


def test_task_manager_that_has_attempts_keeps_and_ends_them(session: Session, papers: AnArchive) -> None:
    mine = live_attempts(papers)
    assert claim.renew(session, PROCESS, list(mine.values())).asked == {mine["pdf"]: "cancel", mine["box"]: None}
    assert papers.record(mine["pdf"], End.STOPPED, 143) is Receipt.RECORDED
    assert papers.state("pdf@2") == "canceled"
    assert papers.state("pdf@3") == "ready", "what it waited for is gone"
    assert papers.record(mine["box"], End.EXITED, 0, usage=Usage(0.8, 54 << 20)) is Receipt.RECORDED
    assert papers.state("box@4") == "ready"
    assert attempt(session, mine["box"]).used.startswith("0.8 s of processor time")
    others = papers.sql("select processor_seconds from attempt where ended_at is not null and id <> %s", mine["box"])
    assert {row["processor_seconds"] for row in others} == {None}, "nobody knows what earlier attempts used"
    assert contradictions(papers) == []


def test_lapsed_lease_lapses_and_deferred_task_becomes_due(session: Session, papers: AnArchive) -> None:
    (row,) = papers.sql("select attempt_id from task where id = %s", papers.task("upload@3"))
    assert finish.lapse(session) == [row["attempt_id"]]
    finish.wake_deferred(session)
    assert papers.states() | {"upload@2": "ready", "upload@3": "ready"} == papers.states()
    assert {name: state for name, state in papers.states().items() if "upload" not in name} == {
        name: state for name, state in PAPERS.items() if "upload" not in name
    }
    assert contradictions(papers) == []


def test_ready_tasks_are_run_and_what_follows_from_them(session: Session, papers: AnArchive) -> None:
    done = work(session)
    assert {"index@4", "upload@4", "lint@3", "build@3", "deploy@2", "test@2", "one@2", "one@3"} <= set(done)
    assert done.index("one@2") < done.index("one@3")
    assert done.index("deploy@2") < done.index("deploy@3"), "the gate of an exclusive task"
    assert "pdf@4" not in done, "pdf@3 is not superseded before its victim is gone"
    assert the_archive(session, "ordered").states() == {"one@2": "completed", "one@3": "completed"}
    assert contradictions(papers) == []


def test_what_completed_before_is_the_base_of_what_runs_next(session: Session) -> None:
    bases = {f"{one.name}@{one.number}": one.base for one in claim.claim(session, PROCESS, HOST, 100)}
    assert bases["index@4"] == "3"
    assert bases["upload@4"] is None, "it never completed"


def test_everything_settles_once_the_failed_task_has_been_retried(session: Session, papers: AnArchive) -> None:
    schedules.fire(session)
    live = live_attempts(papers)
    papers.record(live["pdf"], End.STOPPED, 143)
    papers.record(live["box"], End.EXITED, 0)
    finish.lapse(session)
    finish.wake_deferred(session)
    done = work(session)
    assert "nightly@3" in done
    assert {name: state for name, state in papers.states().items() if state not in SETTLED} == {
        "strict@3": "waiting", "after@3": "waiting",
        "strict@4": "waiting", "after@4": "waiting", "all@4": "waiting",
    }  # fmt: skip
    assert contradictions(papers) == []
    papers.retry("strict@2", force=True)  # all@3, which only wanted it to settle, has started
    assert papers.state("after@2") == "waiting"
    done = work(session)
    assert [name for name in done if name.startswith("strict")] == ["strict@2", "strict@3", "strict@4"]
    assert papers.sql("select name, number from task where settled_at is null") == []
    assert {name for name, state in papers.states().items() if state != "completed"} == {"pdf@2", "box@3"}
    assert contradictions(papers) == []


def test_ledger_and_graph_go_on(session: Session, papers: AnArchive) -> None:
    papers.commit({"index": "depends: [PREV]", "strict": "depends: [PREV]", "pdf": "cancels: [PREV]"})
    assert papers.states() | {"index@5": "waiting", "strict@5": "waiting", "pdf@5": "waiting"} == papers.states()
    assert papers.state("pdf@3") == "canceled", "it had not begun"
    work(session)
    assert papers.state("index@5") == "completed"
    assert papers.state("strict@5") == "waiting"
    papers.retry("strict@2")
    work(session)
    assert papers.state("strict@5") == "completed"
    assert contradictions(papers) == []


def test_runs_of_before_are_purged_when_they_have_settled(session: Session, papers: AnArchive) -> None:
    every = [RunId(row["id"]) for row in papers.sql("select id from run where archive_id = %s", papers.id)]
    done = purge.purge_runs(session, every, "ann")
    assert done.runs == ["papers@1"]
    assert {kept.run: kept.fault for kept in done.kept}["papers@2"] == "is not settled"
    assert papers.states() == PAPERS
    live = live_attempts(papers)
    papers.record(live["pdf"], End.STOPPED, 143)
    papers.record(live["box"], End.EXITED, 0)
    finish.lapse(session)
    finish.wake_deferred(session)
    papers.skip("strict@2")
    work(session)
    assert contradictions(papers) == []

    done = purge.purge_runs(session, every, "ann")
    assert done.kept == []
    assert papers.states() == {}
    assert contradictions(papers) == []
    papers.commit({"index": "depends: [PREV]"})
    (claimed,) = [one for one in claim.claim(session, PROCESS, HOST, 100) if one.archive.id == papers.id]
    assert (claimed.name, claimed.base) == ("index", "4")
