"""The lists of a backfill are read from real repositories, and one that does not give them holds up
no other backfill for long.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from arkqueue.archives import backfills
from arkqueue.archives.backfills import ListReader
from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.model import ArchiveId
from arkqueue.queue.backfill import Lists, Wanted
from tests.builders import an_archive
from tests.repositories import a_git_repository
from tests.system.task_manager.test_checkouts import commit, watch
from tests.waiting import PATIENCE

FILE = "items.txt", None


def keys(lists: Lists) -> list[str]:
    return [item.key for item in lists.found[FILE]]


def test_a_repository_that_does_not_give_its_lists_is_left_alone_for_a_while(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(backfills, "PATIENCE", PATIENCE)
    repository = a_git_repository(tmp_path)
    archive = an_archive(session)
    watch(archive, repository)
    for text in ("a\nb\n", "c\n"):
        commit(archive, repository, {"items.txt": text}, {})
    wanted = [Wanted(archive.revisions["", number], archive.revisions["", 3], (FILE,)) for number in (2, 3)]
    read = ListReader(Configuration.load({}, home=tmp_path / "home"))
    found = read(session, ArchiveId(archive.id), wanted)
    assert not isinstance(found, str)
    assert [keys(one) for one in found] == [["a", "b"], ["c"]]

    away = repository.path.rename(tmp_path / "away")
    with caplog.at_level(logging.WARNING):
        told = read(session, ArchiveId(archive.id), wanted)
        away.rename(repository.path)
        assert read(session, ArchiveId(archive.id), wanted) == told, "it is not asked again yet"
    assert isinstance(told, str)
    assert str(repository.path) in told
    assert len(caplog.records) == 1
    monkeypatch.setattr(backfills, "REST", 0.0)
    assert not isinstance(read(session, ArchiveId(archive.id), wanted), str)


def test_lists_that_were_read_in_time_are_planned_while_the_next_ones_hang(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfills, "PATIENCE", PATIENCE)
    repository = a_git_repository(tmp_path)
    archive = an_archive(session)
    watch(archive, repository)
    for text in ("a\n", "b\n"):
        commit(archive, repository, {"items.txt": text}, {})
    wanted = [Wanted(archive.revisions["", number], archive.revisions["", 3], (FILE,)) for number in (2, 3)]
    asked = backfills._lists  # private: what a server that hangs would not answer

    def hanging(opened: object, row: object, one: Wanted) -> Lists:
        if one is wanted[1]:
            raise TimeoutError
        return asked(opened, row, one)  # type: ignore[arg-type]

    monkeypatch.setattr(backfills, "_lists", hanging)
    read = ListReader(Configuration.load({}, home=tmp_path / "home"))
    found = read(session, ArchiveId(archive.id), wanted)
    assert not isinstance(found, str)
    assert [keys(one) for one in found] == [["a"]]
    told = read(session, ArchiveId(archive.id), wanted[1:])
    assert isinstance(told, str)
    assert "has not given the lists of revision" in told
