"""One transaction takes so many tasks and no more; a revision that is too large for one is shown on
its archive (design 6).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from arkqueue.queue import archives
from tests.repositories import a_subversion_repository
from tests.system.queue_manager.conftest import Watched

Watch = Callable[..., Watched]
MANY = "".join(f"- {{name: t{n}, command: 'true'}}\n" for n in range(30))
FEW = "- {name: few, command: 'true'}\n"
# A sequence counts also what is rolled back.
TOO_SLOW = """
create sequence tried;
create function take_too_long() returns trigger language plpgsql as $$ begin
    if (select count(*) from stored) > 30 then
        perform nextval('tried');
        raise exception using errcode = 'query_canceled', message = 'canceling statement due to statement timeout';
    end if;
    return null;
end $$;
create trigger too_slow after insert on task referencing new table as stored for each statement execute function take_too_long();
"""


@pytest.fixture(autouse=True)
def small_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arkqueue.plan.entry.MOST_ROWS", 50)
    monkeypatch.setattr("arkqueue.queue_manager.scan.MOST_ROWS", 50)


@pytest.mark.usefixtures("manager")
def test_large_revisions_are_appended_one_by_one_and_small_ones_together(watch: Watch, tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    papers = watch(repository.path)
    papers.wait_for(lambda: papers.row()["read_at"])
    for n in range(4):
        repository.commit({"_workflows/w.yaml": FEW, "readme": str(n)})
    for n in range(3):
        repository.commit({"_workflows/w.yaml": MANY, "readme": f"many {n}"})
    papers.notify("7")
    papers.wait_for_ledger(8)
    stored = papers.sql(
        "select xmin::text as by, array_agg(number order by number) as numbers from revision group by 1"
    )
    assert sorted(row["numbers"] for row in stored) == [[0], [1, 2, 3, 4], [5], [6], [7]]
    assert len(papers.tasks()) == 4 + 3 * 30


@pytest.mark.usefixtures("manager")
def test_a_revision_that_is_too_large_is_shown_and_tried_again_after_a_pause(watch: Watch, tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    papers = watch(repository.path)
    papers.wait_for(lambda: papers.row()["read_at"])
    papers.session.database.retrying(lambda connection: connection.execute(TOO_SLOW.encode()))
    repository.commit({"_workflows/w.yaml": FEW})
    repository.commit({"_workflows/w.yaml": MANY})
    papers.notify("2")
    papers.wait_for(lambda: papers.row()["trouble"])
    row = papers.row()
    assert row["trouble"] == (
        "papers@2: its 30 tasks are more than the database stores in time (canceling statement due to statement timeout). "
        "Use a faster database server, or have none of its tasks run: arkqueue archive rewind papers 2"
    )
    assert papers.ledger() == [(0, "0"), (1, "1")], "what comes before it is planned"
    assert row["next_read_at"] > row["trouble_since"], "it is tried again after a pause"
    assert papers.sql("select last_value from tried")[0]["last_value"] == 1, "and not before"
    papers.session.database.retrying(lambda connection: connection.execute(b"drop trigger too_slow on task"))
    archives.sync(papers.session, papers.id)
    papers.wait_for_ledger(3)
    papers.wait_for(lambda: papers.row()["trouble"] is None)
