"""Fills and judges the outbox of notifications."""

from __future__ import annotations

from dataclasses import replace

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.db.session import Session
from arkqueue.model import ArchiveId, Occasion
from arkqueue.queue import archives, notifications
from arkqueue.queue.notifications import Delivery
from tests.builders import AnArchive

CI, CHAT = "https://hooks.example.org/ci", "https://chat.example.org/x"
ALL = [str(occasion) for occasion in Occasion]
ANN = "ann@example.org"


def set_receivers(archive: AnArchive, **receivers: list[str]) -> None:
    """Receivers by short names."""
    named = {{"ci": CI, "chat": CHAT}.get(name, name): occasions for name, occasions in receivers.items()}
    present = ArchiveSettings(**archives.one(archive.session, ArchiveId(archive.id)).settings)
    archives.change_settings(archive.session, ArchiveId(archive.id), replace(present, notify=named), "ann")


def judge(session: Session) -> None:
    while notifications.judge(session):
        pass


def outbox(archive: AnArchive) -> list[tuple[str, int, str]]:
    """What is in the outbox after everything was judged: occasion, number of the run's revision, receiver."""
    judge(archive.session)
    rows = archive.sql(
        "select d.occasion, coalesce(r.number, 0) as number, d.receiver from delivery d left join run r on r.id = d.run_id"
        " where d.archive_id = %s order by d.id",
        archive.id,
    )
    return [(row["occasion"], row["number"], row["receiver"]) for row in rows]


def occasions(archive: AnArchive) -> list[str]:
    return [f"{occasion} {number}" for occasion, number, _ in outbox(archive)]


def choose(archive: AnArchive, most: int = 10) -> list[Delivery]:
    return notifications.choose(archive.session, most)


def let_be_due(archive: AnArchive) -> None:
    """The pauses after failed tries are over."""
    archive.sql("update delivery set due_at = clock_timestamp() - interval '1 second'")


def failed_runs(archive: AnArchive, *numbers: int) -> None:
    for number in numbers:
        archive.commit({"a": ""})
        archive.fail(f"a@{number}")
    judge(archive.session)
