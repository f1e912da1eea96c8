"""A task that supersedes a list in steps (design 5.10): the queue manager that takes them is killed
in each of them, and another one goes on.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from arkqueue.db.session import Session
from arkqueue.queue import graph
from arkqueue.views.doctor import examine
from tests.builders import an_archive
from tests.loaded import Forked
from tests.system.queue_manager.killed import kill_in_each_step, queue_manager

ITEMS = "foreach: [a, b, c, d, e, f, g, h]"
FEW = 3
"""Tasks that one step cancels here."""
SMALL = f"from arkqueue.queue import superseding; superseding.MOST_TASKS = {FEW}"


@pytest.mark.full
def test_superseding_goes_on_after_its_queue_manager_was_killed_in_each_step(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the list starts, each item is canceled once, and what supersedes it starts at the end."""
    monkeypatch.setattr(graph, "MOST_VICTIMS", FEW)
    archive = an_archive(session)
    archive.commit({"fetch": ITEMS, "store": f"{ITEMS}\ndepends: [fetch]"})
    archive.commit({"all": "cancels: ['PREV:fetch', 'PREV:store']"})
    canceled_at: dict[int, str] = {}
    counts: list[int] = []

    def manager() -> AbstractContextManager[Forked]:
        return queue_manager(session, tmp_path / "manager", "", SMALL)

    def look() -> None:
        rows = archive.sql("select id, settled_at::text as at from task where state = 'canceled' order by id")
        counts.append(len(rows))
        for row in rows:
            assert canceled_at.setdefault(row["id"], row["at"]) == row["at"], "it is canceled once"
        if archive.state("all@3") == "waiting":
            assert archive.claim_some(100) == []

    steps = kill_in_each_step(session, "update on task", manager, lambda: archive.state("all@3") == "ready", look)
    assert steps > 16 // FEW
    assert len({*counts}) > 3
    assert len(canceled_at) == 16
    assert archive.sql("select * from superseding") == []
    assert [claim.name for claim in archive.claim_some(100)] == ["all"]
    assert examine(session).findings == []
