"""The end of a branch, and the removal of an archive, in steps (design 5.16): the queue manager
that takes them is killed in each of them, and another one goes on.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from arkqueue.db.session import Session
from arkqueue.model import TaskId
from arkqueue.queue import archives, claim, ending, retrying
from arkqueue.views.doctor import examine
from tests.builders import HOST, PROCESS
from tests.loaded import Forked
from tests.repositories import a_git_repository
from tests.system.queue_manager.conftest import Watched
from tests.system.queue_manager.killed import kill_in_each_step, queue_manager

TASKS = 12
FEW = 3
"""Tasks that one step ends here."""
SMALL = f"from arkqueue.queue import ending; ending.MOST_TASKS = {FEW}"


@pytest.fixture
def papers(watch: Callable[..., Watched], tmp_path: Path) -> Watched:
    """An archive with a branch beside its main one, on which chains of two tasks are ready."""
    repository = a_git_repository(tmp_path)
    repository.commit({"readme": "1"})
    repository.switch("draft", "main")
    repository.commit({"readme": "2"})
    papers = watch(repository.path, branches=("main", "draft"))
    tasks = [{"name": f"t{n}", "command": "true", "depends": [f"t{n - 1}"] if n % 2 else []} for n in range(TASKS)]
    repository.commit({"_workflows/a.json": json.dumps(tasks)})
    repository.switch("main")
    with queue_manager(papers.session, tmp_path / "manager", "", SMALL):
        papers.wait_for(lambda: len(papers.tasks("draft")) == TASKS)
    repository.delete_branch("draft")
    return papers


@pytest.mark.full
@pytest.mark.parametrize("removed", [False, True])
def test_an_end_goes_on_after_its_queue_manager_was_killed_in_each_step(
    papers: Watched, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removed: bool
) -> None:
    """Nothing starts, everything ends once, and what a person retries in the midst of it is left alone."""
    monkeypatch.setattr(ending, "MOST_TASKS", FEW)
    canceled_at: dict[str, str] = {}
    retried: list[str] = []
    counts: list[int] = []
    if removed:
        archives.remove(session, papers.id, "ann")

    def manager() -> AbstractContextManager[Forked]:
        return queue_manager(session, tmp_path / "manager", "", SMALL)

    def look() -> None:
        if not papers.sql("select run_id from ending"):
            return
        if not retried:
            assert claim.claim(session, PROCESS, HOST, TASKS) == []
        rows = papers.sql("select id, name, settled_at::text as at from task where state = 'canceled' order by id")
        counts.append(len(rows))
        for row in rows:
            assert canceled_at.setdefault(row["name"], row["at"]) == row["at"], "it is canceled once"

    def has_begun() -> bool:
        return "canceled" in papers.tasks("draft").values()

    def is_over() -> bool:
        return has_begun() and not papers.sql("select run_id from ending")

    steps = kill_in_each_step(session, "update on task", manager, has_begun, look)
    if not removed:
        # It is the first of its chain, so that it is ready.
        first = min(name for name in canceled_at if int(name[1:]) % 2 == 0)
        (row,) = papers.sql("select id from task where name = %s and state = 'canceled'", first)
        retrying.retry(session, TaskId(row["id"]), "ann", force=True)
        retried.append(first)
    steps += kill_in_each_step(session, "update on task", manager, is_over, look)
    assert steps > TASKS // FEW
    assert len({*counts}) > 2
    left = {name: state for name, state in papers.tasks("draft").items() if state != "canceled"}
    assert list(left.values()) == ["ready"] * len(retried)
    assert {name.partition("@")[0] for name in left} == {*retried}
    assert papers.sql("select * from spared") == []
    assert examine(session).findings == []
