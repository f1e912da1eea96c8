"""A queue manager's readers on real repositories. The test runs each scan itself, or starts the
loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.archives import registration
from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.model import ArchiveId
from arkqueue.queue import archives
from arkqueue.queue_manager import QueueManager
from tests.system.waking import waking_session
from tests.waiting import eventually

__all__ = ["waking_session"]

WORKFLOW = "- {name: index, command: index, depends: [PREV]}\n"


@dataclass
class Watched:
    """A registered archive and its ledger."""

    session: Session
    id: ArchiveId

    def notify(self, revision: str | None = None) -> None:
        archives.notify(self.session, [self.id], revision)

    def sql(self, text: str, *values: Any) -> list[dict[str, Any]]:
        with self.session.database.statement() as connection:
            return connection.execute(text.encode(), values).fetchall()

    def ledger(self, branch: str = "") -> list[tuple[int, str]]:
        """The number and id of each revision, in order."""
        rows = self.sql(
            "select r.number, r.name from revision r join branch b on b.id = r.branch_id"
            " where b.archive_id = %s and b.name = %s order by r.number",
            self.id,
            branch,
        )
        return [(row["number"], row["name"]) for row in rows]

    def tasks(self, branch: str = "") -> dict[str, str]:
        """The states of the ordinary tasks by ``name@number``."""
        rows = self.sql(
            "select t.name, t.number, t.state from task t join branch b on b.id = t.branch_id where t.archive_id = %s"
            " and b.name = %s and t.name not in ('COMMIT', 'REPORT') order by t.number, t.position",
            self.id,
            branch,
        )
        return {f"{row['name']}@{row['number']}": row["state"] for row in rows}

    def row(self) -> dict[str, Any]:
        return self.sql("select * from archive where id = %s", self.id)[0]

    def wait_for(self, condition: Callable[[], Any]) -> None:
        """Waits for a condition. Each poll reads the database anew."""
        eventually(condition, self.row)

    def wait_for_ledger(self, length: int, branch: str = "") -> list[tuple[int, str]]:
        self.wait_for(lambda: len(self.ledger(branch)) >= length)
        return self.ledger(branch)


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    return Configuration.load({}, home=tmp_path / "home", poll="200ms")


@pytest.fixture
def watch(session: Session, configuration: Configuration) -> Callable[..., Watched]:
    """Registers an archive like a person."""

    def watch(url: str | Path, name: str = "papers", start: str | None = None, **settings: Any) -> Watched:
        chosen = ArchiveSettings(**settings)
        return Watched(
            session, registration.add(session, configuration, name=name, url=str(url), start=start, settings=chosen)
        )

    return watch


@pytest.fixture
def manager(session: Session, configuration: Configuration) -> Iterator[QueueManager]:
    manager = QueueManager(session, configuration)
    manager.start()
    yield manager
    manager.close()
