"""Quick checks: what did not change is not read, and whatever changes is found at the next scan
(design 2).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arkqueue.archives import registration
from arkqueue.config import Configuration
from arkqueue.db import Connection
from arkqueue.db.session import Session
from arkqueue.queue import archives
from arkqueue.queue_manager import quick_checks
from arkqueue.queue_manager import reader as reader_module
from arkqueue.queue_manager.quick_checks import QuickChecks
from arkqueue.queue_manager.readers import Readers
from arkqueue.repository.reader.archive import ReadArchive
from tests.changes import GIT
from tests.repositories import a_git_repository, a_subversion_repository, run
from tests.system.queue_manager.conftest import WORKFLOW, Watched

Watch = Callable[..., Watched]


@pytest.fixture(autouse=True)
def _not_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quick check is not followed by a whole scan because time has passed, or because the machine is busy."""
    monkeypatch.setattr(quick_checks, "WHOLE", 1e9)
    monkeypatch.setattr(quick_checks, "SLOW", 1e9)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows with each whole scan."""
    scans: list[str] = []
    real = ReadArchive.heads

    def heads(self: ReadArchive, *words: Any) -> dict[str, str]:
        scans.append("heads")
        return real(self, *words)

    monkeypatch.setattr(ReadArchive, "heads", heads)
    return scans


@pytest.fixture
def readers(session: Session, configuration: Configuration) -> Readers:
    """Without a loop: the test takes the turns."""
    return Readers(session, configuration, idle=lambda: None)


def let_be_due(*watched: Watched) -> None:
    ids = [one.id for one in watched]
    watched[0].sql("update archive set next_read_at = now() where id = any(%s) returning id", ids)


def scan(readers: Readers, *watched: Watched) -> None:
    """A periodic scan of each of the archives, quick or whole."""
    let_be_due(*watched)

    def is_done() -> bool:
        readers.turn()
        # A reader that was started right before the one before it was recorded reads once more.
        is_read = all(reader.lingers or reader.ended for reader in readers._readers.values())
        return is_read and not archives.to_read(watched[0].session)

    watched[0].wait_for(is_done)


def test_a_change_is_found_without_a_notice(watch: Watch, readers: Readers, opened: list[str], tmp_path: Path) -> None:
    """One kind of change is enough here: ``tests/system/repository/test_fingerprint.py`` has all of them."""
    change = GIT["a backup in the place of the folder"]
    repository = a_git_repository(tmp_path)
    for text in "12":
        repository.commit({"_workflows/w.yaml": WORKFLOW, "x": text})
    change.before(repository)
    papers = watch(repository.path)
    scan(readers, papers)
    before = len(opened)
    scan(readers, papers)
    assert len(opened) == before, "nothing has changed yet"
    change.happens(repository)
    scan(readers, papers)
    assert len(opened) > before
    readers.close()


def test_repository_without_a_fingerprint_has_whole_scans_only(
    watch: Watch, readers: Readers, opened: list[str], tmp_path: Path
) -> None:
    """Such as a further work tree, whose branches are elsewhere."""
    repository = a_git_repository(tmp_path)
    repository.commit({"_workflows/w.yaml": WORKFLOW})
    further = tmp_path / "further"
    repository.git("worktree", "add", "-q", "-b", "further", str(further))
    papers = watch(further)
    for _ in range(3):
        before = len(opened)
        scan(readers, papers)
        assert len(opened) > before
    readers.close()


def test_fingerprint_that_cannot_be_read_any_more_is_followed_by_whole_scans(
    watch: Watch, readers: Readers, opened: list[str], tmp_path: Path
) -> None:
    repository = a_git_repository(tmp_path)
    repository.commit({"_workflows/w.yaml": WORKFLOW})
    papers = watch(repository.path)
    scan(readers, papers)
    run("git", "symbolic-ref", "refs/heads/elsewhere", "refs/remotes/origin/main", cwd=repository.path)
    for _ in range(3):
        before = len(opened)
        scan(readers, papers)
        assert len(opened) > before
    readers.close()


@pytest.mark.parametrize("damage", ["emptied", "cut off", "of another commit", "a fifo"])
def test_damaged_head_that_did_not_change_is_found_by_the_next_whole_scan(
    watch: Watch, readers: Readers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """A removed one is found by each scan. Of many heads, a few are read, and all while there is trouble."""
    monkeypatch.setattr(quick_checks, "WHOLE", 0.0)
    monkeypatch.setattr(reader_module, "CHECKED", 1)
    chosen = iter((1, 1, 0, 0))
    monkeypatch.setattr("random.sample", lambda heads, _most: [sorted(heads)[next(chosen)]])
    repository = a_git_repository(tmp_path)
    first = repository.commit({"_workflows/w.yaml": WORKFLOW})
    repository.switch("topic")
    head = repository.commit({"x": "1"})
    papers = watch(repository.path, branches=("**",))
    scan(readers, papers)
    assert papers.row()["trouble"] is None
    repository.switch("main")
    new = repository.commit({"x": "2"})  # git takes no push any more when the object is damaged
    commit, other = (repository.path / "objects" / id[:2] / id[2:] for id in (head, first))
    sound = commit.read_bytes()
    commit.unlink()
    if damage == "a fifo":  # opening it would wait for a writer
        os.mkfifo(commit)
    else:
        commit.write_bytes({"emptied": b"", "cut off": sound[:-8], "of another commit": other.read_bytes()}[damage])
    for _ in range(2):
        scan(readers, papers)
        trouble = papers.row()["trouble"]
        assert f"the commit {head[:12]} at the head of its branch topic cannot be read" in trouble
        assert "Bring the object back from a backup or a clone" in trouble
        assert [id for _, id in papers.ledger("main")] == [first, new], "the trouble stops no other branch"
    commit.unlink()
    commit.write_bytes(sound)
    scan(readers, papers)
    assert papers.row()["trouble"] is None
    readers.close()


def test_as_many_archives_are_named_as_asked_for_and_notices_first(watch: Watch, tmp_path: Path) -> None:
    path = a_subversion_repository(tmp_path).path
    all = [watch(path, f"a{n}") for n in range(5)]
    session = all[0].session
    for n, one in enumerate(all):
        session.do("drop_look", archive=one.id)
        one.sql(
            "update archive set next_read_at = now() - make_interval(secs => %s) where id = %s returning id",
            9 - n,
            one.id,
        )
    all[3].notify()
    assert [row.name for row in archives.to_read(session, 3)] == ["a3", "a0", "a1"]
    assert len(archives.to_read(session)) == 5


def test_commit_without_a_notice_becomes_a_run(watch: Watch, readers: Readers, tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    repository.commit({"trunk/_workflows/w.yaml": WORKFLOW})
    papers = watch(repository.path / "trunk")
    scan(readers, papers)
    scan(readers, papers)
    repository.commit({"trunk/x": "1"})
    scan(readers, papers)
    assert papers.ledger() == [(1, "1"), (2, "2")]
    readers.close()


def test_whole_scan_follows_after_a_while(
    watch: Watch, readers: Readers, opened: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quick_checks, "WHOLE", 1e-9)
    papers = watch(a_subversion_repository(tmp_path).path)
    for _ in range(2):
        before = len(opened)
        scan(readers, papers)
        assert len(opened) > before
    readers.close()


def test_archives_that_are_quiet_are_recorded_by_one_statement(
    watch: Watch, readers: Readers, opened: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = a_subversion_repository(tmp_path).path
    quiet = [watch(path, f"a{n}") for n in range(20)]
    scan(readers, *quiet)
    recorded: list[list[int]] = []
    record = archives.read_quietly

    def recording(session: Session, ids: Any, sweep: float) -> None:
        recorded.append(sorted(ids))
        record(session, ids, sweep)

    monkeypatch.setattr(archives, "read_quietly", recording)
    before, read_at = len(opened), [one.row()["read_at"] for one in quiet]
    scan(readers, *quiet)
    assert recorded == [sorted(one.id for one in quiet)]
    assert len(opened) == before
    assert all(one.row()["read_at"] > then for one, then in zip(quiet, read_at, strict=True))
    readers.close()


def test_recording_waits_for_no_archive_and_leaves_troubles_and_notices(
    watch: Watch, session: Session, second_connection: Callable[[], Connection], tmp_path: Path
) -> None:
    path = a_subversion_repository(tmp_path).path
    locked, troubled, noticed, quiet = all = [watch(path, name) for name in ("a", "b", "c", "d")]
    for one in all:
        session.do("drop_look", archive=one.id)
    archives.read_failed(session, troubled.id, "trouble", 1.0)
    noticed.notify()
    before = {one.id: one.row() for one in all}
    connection = second_connection()
    with connection.transaction():
        connection.execute("select from archive where id = %s for no key update", [locked.id])
        archives.read_quietly(session, [one.id for one in all], 60.0)
    assert [one.id for one in all if one.row() != before[one.id]] == [quiet.id]


def test_file_system_that_hangs_holds_up_no_other_archive(
    watch: Watch, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = a_subversion_repository(tmp_path).path
    hanging, quiet = watch(path, "hanging"), watch(path, "quiet")
    for one in (hanging, quiet):
        session.do("drop_look", archive=one.id)
    hangs, goes_on = threading.Event(), threading.Event()

    def take() -> bytes:
        hangs.set()
        goes_on.wait()
        return b"as before"

    checks = QuickChecks(session, 60.0, changed=lambda: None)
    checks.remember(hanging.id, take, b"as before")
    checks.remember(quiet.id, lambda: b"as before", b"as before")
    let_be_due(hanging, quiet)
    assert checks.take_over(archives.to_read(session)) == []
    hangs.wait()
    assert checks.take_over(archives.to_read(session)) == []
    with monkeypatch.context() as patched:
        patched.setattr(quick_checks, "SLOW", 0.0)
        assert checks.take_over(archives.to_read(session)) == []
    quiet.wait_for(lambda: [row.id for row in archives.to_read(session)] == [hanging.id])
    (left,) = checks.take_over(archives.to_read(session))
    assert left.id == hanging.id, "a reader tells that it hangs"
    goes_on.set()
    quiet.wait_for(lambda: not any(thread.name == "check repositories" for thread in threading.enumerate()))
    assert [row.id for row in archives.to_read(session)] == [hanging.id], "nobody waits for what it says now"


def test_rewind_is_followed_by_a_whole_scan(
    watch: Watch, readers: Readers, session: Session, configuration: Configuration, tmp_path: Path
) -> None:
    """The repository is as it was, but the ledger goes on from an earlier revision."""
    repository = a_subversion_repository(tmp_path)
    for text in "123":
        repository.commit({"x": text})
    papers = watch(repository.path)
    scan(readers, papers)
    registration.rewind(session, configuration, papers.id, "1", "ann")
    scan(readers, papers)
    assert papers.ledger() == [(1, "1"), (2, "2"), (3, "3")]
    readers.close()


def test_trouble_of_another_queue_manager_ends_though_nothing_has_changed(
    watch: Watch, readers: Readers, session: Session, tmp_path: Path
) -> None:
    papers = watch(a_git_repository(tmp_path).path)
    scan(readers, papers)
    archives.read_failed(session, papers.id, "its host cannot reach the repository", 1.0)
    scan(readers, papers)
    assert papers.row()["trouble"] is None
    readers.close()
