"""A scan that finds more than `import_limit` new revisions has them held, whatever happens in
between (design 5.22).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.model import RunId
from arkqueue.queue import holds, ledger
from arkqueue.queue_manager import QueueManager, scan
from arkqueue.views.explain import explain_name
from arkqueue.views.runs import RunState, runs
from tests.loaded import Forked
from tests.repositories import GitRepository, SubversionRepository, a_git_repository, a_subversion_repository
from tests.system.queue_manager.conftest import WORKFLOW, Watched
from tests.system.queue_manager.killed import kill_in_each_step, queue_manager

Watch = Callable[..., Watched]
LIMIT = 4


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    return Configuration.load({}, home=tmp_path / "home", poll="200ms", import_limit=LIMIT)


@pytest.fixture
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> SubversionRepository | GitRepository:
    made = (a_git_repository if getattr(request, "param", "") == "git" else a_subversion_repository)(tmp_path)
    made.commit({"_workflows/w.yaml": WORKFLOW})
    return made


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two revisions a transaction, so that an import has several."""
    monkeypatch.setattr(scan, "CHUNK", 2)


@contextmanager
def managing(session: Session, configuration: Configuration) -> Iterator[None]:
    manager = QueueManager(session, configuration)
    manager.start()
    try:
        yield
    finally:
        manager.close()


def states(papers: Watched) -> list[str]:
    rows = papers.sql(
        "select state from task where kind = 'ordinary' and archive_id = %s order by entry_id, id", papers.id
    )
    return [row["state"] for row in rows]


def commit(repository: Any, number: int) -> None:
    for n in range(number):
        repository.commit({"readme": f"{n} of {number}"})


@pytest.mark.parametrize("repository", ["subversion", "git"], indirect=True)
def test_an_import_is_held_and_says_why(
    watch: Watch, repository: Any, session: Session, configuration: Configuration
) -> None:
    papers = watch(repository.path)
    commit(repository, LIMIT + 1)
    with managing(session, configuration):
        papers.wait_for(lambda: len(states(papers)) == LIMIT + 1)
        assert states(papers) == ["held"] * (LIMIT + 1)
        (first, *_) = reversed(runs(session, archives=[papers.id]).runs[: LIMIT + 1])
        assert first.state is RunState.HELD
        told = explain_name(session, f"{first.full_name}/index")
        assert "held by arkqueue since" in told.text
        assert f"one scan has found more than {LIMIT} new revisions" in told.text
        assert told.commands[0] == "arkqueue release papers --all"
        commit(repository, 1)
        papers.notify()
        papers.wait_for(lambda: len(states(papers)) == LIMIT + 2)
    assert states(papers) == ["held"] * (LIMIT + 1) + ["waiting"], "what comes after it is no import"
    assert holds.release_run(session, RunId(first.id), "ann").tasks
    assert states(papers)[0] == "ready"


def test_as_many_as_the_limit_are_no_import(
    watch: Watch, repository: Any, session: Session, configuration: Configuration
) -> None:
    papers = watch(repository.path)
    commit(repository, LIMIT)
    with managing(session, configuration):
        papers.wait_for(lambda: len(states(papers)) == LIMIT)
    assert states(papers) == ["ready"] + ["waiting"] * (LIMIT - 1)


def test_no_revision_of_an_import_gets_through_where_it_is_cut_off(
    watch: Watch, repository: Any, session: Session, configuration: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of it alone is less than the limit; what was committed meanwhile is no part of it."""
    papers = watch(repository.path)
    commit(repository, LIMIT + 1)
    appended: list[int] = []

    def append(*words: Any, **more: Any) -> int | None:
        if appended:
            raise RuntimeError("killed")
        appended.append(1)
        return ledger_append(*words, **more)

    ledger_append = ledger.append
    monkeypatch.setattr(ledger, "append", append)
    with managing(session, configuration):
        papers.wait_for(lambda: papers.row()["trouble"])
    assert states(papers) == ["held", "held"]
    commit(repository, 1)
    monkeypatch.setattr(ledger, "append", ledger_append)
    papers.sql("update archive set next_read_at = now() returning id")
    with managing(session, configuration):
        papers.wait_for(lambda: len(states(papers)) == LIMIT + 2)
    assert states(papers) == ["held"] * (LIMIT + 1) + ["waiting"]
    assert papers.sql("select import_id, import_until from branch") == [{"import_id": None, "import_until": None}]


@pytest.mark.parametrize("repository", ["git"], indirect=True)
def test_many_branches_with_few_revisions_each_are_an_import_together(
    watch: Watch, repository: Any, session: Session, configuration: Configuration
) -> None:
    papers = watch(repository.path, branches=("*",))
    for branch in ("one", "two", "three"):
        repository.switch(branch, "main")
        for n in range(2):
            repository.commit({"readme": f"{n} on {branch}"})
    with managing(session, configuration):
        papers.wait_for(lambda: len(states(papers)) == 6)
        assert states(papers) == ["held"] * 6
        assert [one["note"] for one in papers.sql("select note from deed where verb = 'import'")] == [
            f"one scan has found more than {LIMIT} new revisions on 3 branches: they may be an import (import_limit)"
        ]
        commit(repository, 1)
        papers.notify()
        papers.wait_for(lambda: len(states(papers)) == 7)
    assert states(papers) == ["held"] * 6 + ["waiting"], "what comes after it is no import"
    assert {row["import_until"] for row in papers.sql("select import_until from branch")} == {None}


@pytest.mark.parametrize("repository", ["git"], indirect=True)
def test_a_commit_that_two_branches_of_an_import_share_is_a_revision_of_one(
    watch: Watch, repository: Any, session: Session, configuration: Configuration
) -> None:
    papers = watch(repository.path, branches=("*",))
    repository.switch("one", "main")
    common = repository.commit({"readme": "common"})
    repository.switch("two", "one")
    for branch in ("one", "two"):
        repository.switch(branch)
        for n in range(LIMIT):
            repository.commit({"readme": f"{n} on {branch}"})
    with managing(session, configuration):
        papers.wait_for(lambda: len(states(papers)) == 2 * LIMIT + 1)
    assert states(papers) == ["held"] * (2 * LIMIT + 1)
    rows = papers.sql("select b.name, r.baseline from revision r join branch b on b.id = r.branch_id where r.name = %s", common)  # fmt: skip
    assert {(row["name"], row["baseline"]) for row in rows} == {("one", False), ("two", True)}


def test_a_history_that_was_asked_for_is_no_import_and_the_next_one_is(
    watch: Watch, repository: Any, session: Session, configuration: Configuration
) -> None:
    start = repository.commit({"_workflows/w.yaml": WORKFLOW + "# from here on\n"})
    commit(repository, LIMIT + 1)
    papers = watch(repository.path, start=start)
    with managing(session, configuration):
        papers.wait_for(lambda: len(states(papers)) >= LIMIT + 1)
        assert set(states(papers)) == {"ready", "waiting"}
        before = len(states(papers))
        commit(repository, LIMIT + 1)
        papers.notify()
        papers.wait_for(lambda: len(states(papers)) == before + LIMIT + 1)
    assert states(papers)[before:] == ["held"] * (LIMIT + 1)


def test_without_a_limit_everything_runs(
    watch: Watch, repository: Any, session: Session, configuration: Configuration
) -> None:
    papers = watch(repository.path)
    commit(repository, LIMIT + 1)
    with managing(session, configuration.model_copy(update={"import_limit": None})):
        papers.wait_for(lambda: len(states(papers)) == LIMIT + 1)
    assert set(states(papers)) == {"ready", "waiting"}


def manager(session: Session, tmp_path: Path) -> AbstractContextManager[Forked]:
    """A queue manager in a process of its own, which appends two revisions with each transaction."""
    small = "import arkqueue.queue_manager.scan as scan; scan.CHUNK = 2"
    return queue_manager(session, tmp_path / "manager", f"import_limit = {LIMIT}", small)


@pytest.mark.parametrize("repository", ["git"], indirect=True)
@pytest.mark.parametrize("event", ["update of import_until, head_id on branch", "insert on task"])
def test_an_import_goes_on_as_held_after_its_queue_manager_was_killed_in_each_step(
    watch: Watch, repository: Any, session: Session, tmp_path: Path, event: str
) -> None:
    """Killed for real: nothing is lost, twice there, or let through. Each process is let through one step, and is killed in the midst of the next one."""
    papers, size = watch(repository.path), LIMIT + 2
    commit(repository, size)
    seen: list[int] = []

    def look() -> None:
        seen.append(len(states(papers)))
        assert set(states(papers)) <= {"held"}

    kill_in_each_step(
        session, event, partial(manager, session, tmp_path), lambda: bool(seen) and seen[-1] == size, look
    )
    assert len(seen) >= 3, "it was killed in several steps"
    commit(repository, 1)
    papers.notify()
    with manager(session, tmp_path):
        papers.wait_for(lambda: len(states(papers)) == size + 1)
    assert states(papers) == ["held"] * size + ["waiting"], "what comes after an import is none"
    assert len(papers.sql("select id from deed where verb = 'import'")) == 1
    numbers = [row["number"] for row in papers.sql("select number from revision order by id")]
    assert numbers == list(range(numbers[0], numbers[0] + size + 2))
