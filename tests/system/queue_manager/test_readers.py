"""Readers: few at a time, one for each archive, and what one repository has holds up no other
(design 2).
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from arkqueue.archives import registration
from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.queue import archives
from arkqueue.queue_manager import QueueManager, readers
from arkqueue.queue_manager import reader as reader_module
from arkqueue.queue_manager.readers import Readers
from arkqueue.repository.reader import client
from arkqueue.repository.reader.archive import ReadArchive
from tests.counting import counted_calls_of_new_threads
from tests.repositories import GitRepository, a_git_repository, a_subversion_repository, run
from tests.system.queue_manager.conftest import WORKFLOW, Watched

Watch = Callable[..., Watched]


def reading() -> int:
    return sum(thread.name.startswith("read ") for thread in threading.enumerate())


def test_a_sweep_of_many_archives_reads_a_few_at_a_time(
    watch: Watch, session: Session, configuration: Configuration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "SLOW", 3600.0)
    repository = a_subversion_repository(tmp_path)
    all = [watch(repository.path, f"a{n}") for n in range(60)]
    for one in all:
        session.do("drop_look", archive=one.id)
    repository.commit({"readme": "1"})
    now, most, lock = 0, 0, threading.Lock()
    # How many scans run at once is counted where one begins and ends.
    look = reader_module.Reader._look

    def counted(reader: reader_module.Reader, row: object) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        look(reader, row)
        with lock:
            now -= 1

    monkeypatch.setattr(reader_module.Reader, "_look", counted)
    manager = QueueManager(session, configuration)
    manager.start()
    all[0].wait_for(lambda: all[0].sql("select count(*) as n from revision where number = 1") == [{"n": len(all)}])
    manager.close()
    assert 0 < most <= readers.SWEEPS_AT_ONCE
    all[0].wait_for(lambda: reading() == 0)


def test_a_sweep_leaves_no_thread_and_a_notice_does(
    watch: Watch, session: Session, configuration: Configuration, tmp_path: Path
) -> None:
    papers = watch(a_subversion_repository(tmp_path).path)
    these = Readers(session, configuration, idle=lambda: None)
    these.turn()
    papers.wait_for(lambda: not archives.to_read(session))
    (lingering,) = (thread for thread in threading.enumerate() if thread.name == "read papers")
    assert lingering.is_alive()
    these.close()
    assert not lingering.is_alive()
    these = Readers(session, configuration, idle=lambda: None)
    these.turn()
    papers.wait_for(lambda: reading() == 0)
    papers.wait_for(lambda: these.turn() or not archives.to_read(session))
    assert reading() == 0
    these.close()


def test_a_notice_that_comes_during_a_look_is_looked_at_right_after(
    watch: Watch, session: Session, configuration: Configuration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without another turn of the dispatcher."""
    repository = a_subversion_repository(tmp_path)
    papers = watch(repository.path)
    looked, go_on = threading.Event(), threading.Event()
    # A scan is held where it has found what it is to append.
    catch_up = reader_module.Reader._expected

    def wait(reader: reader_module.Reader, row: object) -> float | None:
        looked.set()
        assert go_on.wait(60)
        return catch_up(reader, row)

    monkeypatch.setattr(reader_module.Reader, "_expected", wait)
    these = Readers(session, configuration, idle=lambda: None)
    these.turn()
    assert looked.wait(60)
    repository.commit({"readme": "1"})
    papers.notify("1")
    these.turn()
    these.turn()
    go_on.set()
    assert papers.wait_for_ledger(2) == [(0, "0"), (1, "1")]
    papers.wait_for(lambda: not papers.sql("select archive_id from look"))
    these.close()


@pytest.mark.usefixtures("manager")
def test_what_cannot_be_stored_is_the_trouble_of_its_archive_alone(watch: Watch, tmp_path: Path) -> None:
    repository, other = a_subversion_repository(tmp_path), a_subversion_repository(tmp_path, "other")
    papers, books = watch(repository.path), watch(other.path, "books")
    papers.wait_for(lambda: papers.row()["read_at"])  # or a late first look could find one commit without the other
    with papers.session.database.transaction() as connection:
        connection.execute("alter table revision add constraint no_poison check (message <> 'poison')")
    repository.commit({"readme": "1"})
    repository.commit({"readme": "2"}, message="poison")
    papers.notify()
    papers.wait_for(lambda: papers.row()["trouble"])
    assert "no_poison" in papers.row()["trouble"]
    assert papers.ledger() == [(0, "0")]
    other.commit({"readme": "1"})
    books.notify()
    assert books.wait_for_ledger(2) == [(0, "0"), (1, "1")]
    with papers.session.database.transaction() as connection:
        connection.execute("alter table revision drop constraint no_poison")
    assert papers.wait_for_ledger(3) == [(0, "0"), (1, "1"), (2, "2")]
    papers.wait_for(lambda: papers.row()["trouble"] is None)


@pytest.mark.usefixtures("manager")
def test_a_repository_that_hangs_is_shown_and_read_when_it_answers(
    watch: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reader_module, "SILENT", 0.0)
    repository = a_subversion_repository(tmp_path)
    with repository.served() as server, socket.create_server(("127.0.0.1", 0)) as silent:
        papers = watch(server.url)
        papers.wait_for(lambda: papers.row()["read_at"] and papers.row()["trouble"] is None)
        point_to(papers, f"svn://127.0.0.1:{silent.getsockname()[1]}/svn")
        repository.commit({"readme": "1"})
        papers.notify()
        connection, _ = silent.accept()
        papers.wait_for(lambda: papers.row()["trouble"])
        assert "papers: its repository has not answered for" in papers.row()["trouble"]
        assert sum(thread.name == "read papers" for thread in threading.enumerate()) == 1
        point_to(papers, server.url)
        connection.close()
        assert papers.wait_for_ledger(2) == [(0, "0"), (1, "1")]
        papers.wait_for(lambda: papers.row()["trouble"] is None)
    papers.wait_for(lambda: "papers is read again" in caplog.text)
    assert "papers: its repository has not answered for" in caplog.text


@pytest.mark.usefixtures("manager")
def test_a_repository_that_hangs_is_asked_anew_after_a_while(
    watch: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "SILENT", 0.0)
    repository = a_subversion_repository(tmp_path)
    with repository.served() as server, socket.create_server(("127.0.0.1", 0)) as silent:
        papers = watch(server.url)
        papers.wait_for(lambda: papers.row()["read_at"])
        # For the silent server alone: the other one answers when the machine lets it.
        usual = client.DEADLINE
        monkeypatch.setattr(client, "DEADLINE", 0.2)
        point_to(papers, f"svn://127.0.0.1:{silent.getsockname()[1]}/svn")
        repository.commit({"readme": "1"})
        papers.notify()
        connection, _ = silent.accept()
        with connection:
            papers.wait_for(lambda: "no answer" in (papers.row()["trouble"] or ""))
            monkeypatch.setattr(client, "DEADLINE", usual)
            point_to(papers, server.url)
            assert papers.wait_for_ledger(2) == [(0, "0"), (1, "1")]


@pytest.mark.usefixtures("manager")
def test_a_repository_that_vanishes_is_told_once_and_taken_up_again_when_it_is_back(
    watch: Watch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    repository = a_subversion_repository(tmp_path)
    papers = watch(repository.path)
    papers.wait_for(lambda: papers.row()["read_at"])
    repository.commit({"readme": "1"})
    away = repository.path.rename(repository.path.with_name("away"))
    papers.notify()
    papers.wait_for(lambda: papers.row()["trouble"])
    assert str(repository.path) in papers.row()["trouble"]
    failed = papers.row()["next_read_at"]
    papers.wait_for(lambda: papers.row()["next_read_at"] != failed)
    away.rename(repository.path)
    papers.wait_for_ledger(2)
    papers.wait_for(lambda: papers.row()["trouble"] is None)
    papers.wait_for(lambda: "papers is read again" in caplog.text)
    assert caplog.text.count("papers cannot be read") == 1


def point_to(archive: Watched, url: str) -> None:
    archive.sql("update archive set url = %s where id = %s returning id", url, archive.id)


def test_repositories_are_read_with_the_credentials_of_the_configuration(session: Session, tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    home, password = tmp_path / "home", tmp_path / "password"
    home.mkdir()
    password.write_text("pass word\n")
    with repository.served(users={"bob": "pass word"}) as server:
        (home / "arkqueue.toml").write_text(
            f'[[credentials]]\nurl = "{server.url}"\nusername = "bob"\npassword_file = "{password}"\n'
        )
        configuration = Configuration.load({}, home=home, poll="200ms")
        papers = Watched(session, registration.add(session, configuration, name="papers", url=server.url))
        manager = QueueManager(session, configuration)
        manager.start()
        repository.commit({"readme": "1"})
        papers.notify()
        assert papers.wait_for_ledger(2) == [(0, "0"), (1, "1")]
        manager.close()


@pytest.mark.full
@pytest.mark.usefixtures("manager")
def test_a_reader_outlives_what_cannot_even_be_told(
    watch: Watch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    repository = a_subversion_repository(tmp_path)
    papers = watch(repository.path)
    papers.wait_for(lambda: papers.row()["read_at"])
    with papers.session.database.transaction() as connection:
        connection.execute("alter table archive add constraint no_trouble check (trouble is null)")
    away = repository.path.rename(repository.path.with_name("away"))
    papers.notify()
    papers.wait_for(lambda: "could not be stored" in caplog.text)
    away.rename(repository.path)
    repository.commit({"readme": "1"})
    assert papers.wait_for_ledger(2) == [(0, "0"), (1, "1")]


@pytest.mark.full
def test_work_of_a_scan_is_linear_in_the_branches(
    watch: Watch, session: Session, configuration: Configuration, tmp_path: Path
) -> None:
    repository = a_git_repository(tmp_path)
    repository.commit({"_workflows/w.yaml": WORKFLOW})
    papers = watch(repository.path, branches=("**",))

    def calls(branches: int) -> int:
        push_branches(repository, branches)
        scan(papers, session, configuration)
        assert len(archives.branches(session, papers.id)) == branches + 1
        with counted_calls_of_new_threads() as calls:
            scan(papers, session, configuration)
        return calls.count

    few, more, most = calls(20), calls(40), calls(60)
    # A square would make it 5/3; what else a scan does,
    # such as asking once more whether it is due, varies.
    assert most - more <= 1.4 * (more - few)


def test_one_scan_takes_up_all_new_branches(
    watch: Watch, session: Session, configuration: Configuration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = a_git_repository(tmp_path)
    repository.commit({"_workflows/w.yaml": WORKFLOW})
    papers = watch(repository.path, branches=("**",))
    push_branches(repository, 5)
    asked = []
    heads = ReadArchive.heads
    monkeypatch.setattr(ReadArchive, "heads", lambda self, *words: asked.append(words) or heads(self, *words))
    scan(papers, session, configuration)
    assert len(archives.branches(session, papers.id)) == 6
    assert len(asked) == 1


def test_questions_about_new_branches_do_not_grow_with_their_square(
    watch: Watch, session: Session, configuration: Configuration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = a_git_repository(tmp_path)
    repository.commit({"_workflows/w.yaml": WORKFLOW})
    papers = watch(repository.path, branches=("**",))
    asked: list[tuple[str, int]] = []
    frame = client.frame

    def noted(request: Mapping[str, Any]) -> bytes:
        data = frame(request)
        asked.append((request["call"], len(data)))
        return data

    monkeypatch.setattr(client, "frame", noted)

    def questions(prefix: str, branches: int) -> int:
        """The bytes of all questions of a scan that finds some more branches."""
        push_branches(repository, branches, prefix, own=True)
        asked.clear()
        scan(papers, session, configuration)
        assert [call for call, _ in asked].count("forks") == 1
        assert [call for call, _ in asked].count("advance") == branches
        return sum(size for _, size in asked)

    few, many = questions("few", 10), questions("many", 30)
    assert len(papers.ledger("many/7")) == 2, "its baseline and its own commit"
    assert many < 3.5 * few


@pytest.mark.parametrize("other", ["returns", "is new", "stays"])
def test_a_commit_that_a_returning_branch_shares_is_a_revision_of_one_branch(
    watch: Watch, session: Session, configuration: Configuration, tmp_path: Path, other: str
) -> None:
    """The other branch, which the same push moves, has been deleted as well, is new, or was always there."""
    repository = a_git_repository(tmp_path)
    repository.commit({"_workflows/w.yaml": WORKFLOW})
    papers = watch(repository.path, branches=("*",))
    tracked = ("one",) if other == "is new" else ("one", "two")
    for name in tracked:
        repository.switch(name, "main")
        repository.commit({"readme": name})
    scan(papers, session, configuration)
    for name in tracked[: 1 if other == "stays" else 2]:
        repository.delete_branch(name)
    scan(papers, session, configuration)
    assert len(papers.sql("select id from branch where deleted_at is not null")) == (2 if other == "returns" else 1)

    repository.switch("one")
    common = repository.commit({"readme": "common"}, push=False)
    own = [repository.commit({"readme": "one again"}, push=False)]
    repository.git("branch", "-q", "-f", "two", common)
    repository.switch("two")
    own.append(repository.commit({"readme": "two again"}, push=False))
    repository.push("one", "+two")
    scan(papers, session, configuration)
    rows = papers.sql("select b.name from revision r join branch b on b.id = r.branch_id where r.name = %s and not r.baseline", common)  # fmt: skip
    assert [row["name"] for row in rows] == ["two" if other == "stays" else "one"]
    assert [papers.ledger(name)[-1][1] for name in ("one", "two")] == own


def scan(archive: Watched, session: Session, configuration: Configuration) -> None:
    """One whole scan by a reader of its own, whose thread has ended afterwards."""
    these = Readers(session, configuration, idle=lambda: None)
    archive.notify()
    these.turn()
    archive.wait_for(lambda: not archives.to_read(session))
    these.close()


def push_branches(repository: GitRepository, count: int, prefix: str = "topic", *, own: bool = False) -> None:
    """So many branches beside the main one, all at its head. ``own``: each with a commit of its own."""
    for number in range(count):
        head = repository.main
        if own:
            tree = f"{repository.main}^{{tree}}"
            head = repository.git("commit-tree", "-p", repository.main, "-m", f"{prefix} {number}", tree).strip()
        repository.git("update-ref", f"refs/heads/{prefix}/{number}", head)
    repository.git("push", "-q", "origin", f"refs/heads/{prefix}/*")


@pytest.mark.usefixtures("manager")
def test_a_branch_with_a_name_too_long_is_not_tracked(watch: Watch, tmp_path: Path) -> None:
    repository = a_git_repository(tmp_path)
    repository.commit({"_workflows/w.yaml": WORKFLOW})
    odd = "käse (1)/" + "x" * 200
    papers = watch(repository.path, branches=("**",))
    repository.git(
        "push",
        "-q",
        "origin",
        "HEAD:refs/heads/" + "/".join("y" * 200 for _ in range(12)),
        f"HEAD:refs/heads/{odd.replace(' ', '')}",
    )
    second = repository.commit({"readme": "2"})
    papers.notify()
    assert papers.wait_for_ledger(2, "main")[-1] == (2, second)
    papers.wait_for(lambda: papers.ledger(odd.replace(" ", "")))
    assert papers.row()["trouble"] is None


@pytest.mark.parametrize(
    "date", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "1903-05-06T07:08:09Z", "soon", ""]
)
@pytest.mark.usefixtures("manager")
def test_subversions_dates_are_stored_whatever_they_say(watch: Watch, tmp_path: Path, date: str) -> None:
    repository = a_subversion_repository(tmp_path)
    papers = watch(repository.path)
    papers.wait_for(lambda: papers.row()["read_at"])  # or a late first look could find it before its date is changed
    repository.commit({"readme": "1"}, author="a\u202eb")
    properties = repository.path / "db" / "revprops" / "0" / "1"
    before = properties.read_text("utf-8")
    new = re.sub(r"svn:date\nV 27\n.{27}", f"svn:date\nV {len(date)}\n{date}", before)
    assert new != before
    properties.chmod(0o600)
    properties.write_text(new, "utf-8")
    repository.commit({"readme": "2"}, message="x" * 100_000)
    papers.notify()
    papers.wait_for_ledger(3)
    repository.commit({"readme": "3"})
    papers.notify()
    papers.wait_for_ledger(4)
    assert papers.row()["trouble"] is None


@pytest.mark.parametrize(
    "when", ["-99999999999999 +0000", "253402300799 -1459", "999999999999999999 +0000", "-5 +9999"]
)
@pytest.mark.usefixtures("manager")
def test_gits_dates_and_texts_are_stored_whatever_they_say(watch: Watch, tmp_path: Path, when: str) -> None:
    repository = a_git_repository(tmp_path)
    repository.commit({"_workflows/w.yaml": WORKFLOW})
    papers = watch(repository.path)
    papers.wait_for(lambda: papers.row()["read_at"])
    odd = a_raw_commit(
        repository, f"author \xff\0 <> {when}\ncommitter X <x> {when}\nencoding nonsense\n\n\xfe\0" + "y" * 2**20
    )
    next = repository.git("commit-tree", "-p", odd, "-m", "next", "HEAD^{tree}").strip()
    run("git", "--git-dir", repository.path, "fetch", "-q", repository.work, "HEAD", check=False)
    repository.git("-c", "transfer.fsckObjects=false", "push", "-q", "origin", f"{next}:refs/heads/main")
    papers.notify()
    assert [id for _, id in papers.wait_for_ledger(3, "main")][1:] == [odd, next]
    assert papers.row()["trouble"] is None


@pytest.mark.usefixtures("manager")
def test_a_branch_whose_head_cannot_be_read_is_no_deleted_one(watch: Watch, tmp_path: Path) -> None:
    repository, papers = watched_at_2(watch, tmp_path)
    ref = repository.path / "refs/heads/main"
    kept = ref.read_text()
    ref.write_text("1" * 40 + "\n")
    papers.notify()
    papers.wait_for(lambda: papers.row()["trouble"])
    assert "the head of main" in papers.row()["trouble"]
    assert papers.tasks("main") == {"index@2": "ready"}
    ref.write_text(kept)
    papers.notify()
    papers.wait_for(lambda: papers.row()["trouble"] is None)


@pytest.mark.usefixtures("manager")
def test_a_commit_without_author_and_date_becomes_a_run_as_any_other(watch: Watch, tmp_path: Path) -> None:
    repository, papers = watched_at_2(watch, tmp_path)
    odd = a_raw_commit(repository, "author X <x> nonsense\ncommitter nonsense\n\nhello")
    repository.git("push", "-q", "origin", f"{odd}:refs/heads/main")
    papers.notify()
    papers.wait_for(lambda: papers.tasks("main") == {"index@2": "ready", "index@3": "waiting"})
    assert papers.row()["trouble"] is None


@pytest.mark.usefixtures("manager")
def test_a_task_of_git_that_goes_around_its_hooks_leaves_the_author_behind(watch: Watch, tmp_path: Path) -> None:
    """As in a further work tree, or by ``git am``."""
    repository, papers = watched_at_2(watch, tmp_path)
    for number in (1, 2):
        repository.commit({"x": str(number)}, author="arkqueue <arkqueue@localhost>")
    repository.commit({"x": "3"})
    papers.notify()
    papers.wait_for_ledger(5, "main")
    rows = papers.sql(
        "select r.generation from revision r join branch b on b.id = r.branch_id where b.archive_id = %s order by r.number",
        papers.id,
    )
    assert [row["generation"] for row in rows] == [0, 0, 1, 2, 0]


@pytest.mark.usefixtures("manager")
@pytest.mark.parametrize("branches", [(), ("ma*",)], ids=["by HEAD", "by a glob"])
def test_a_branch_whose_ref_cannot_be_read_is_no_deleted_one(
    watch: Watch, tmp_path: Path, branches: tuple[str, ...]
) -> None:
    """A power cut leaves an empty one, and a push with another umask one that is its pusher's alone."""
    repository, papers = watched_at_2(watch, tmp_path, branches)
    ref = repository.path / "refs/heads/main"
    kept = ref.read_text()
    ref.write_text("")
    papers.notify()
    papers.wait_for(lambda: papers.row()["trouble"])
    assert "the ref of branch main exists, but cannot be read" in papers.row()["trouble"]
    assert papers.tasks("main") == {"index@2": "ready"}
    ref.write_text(kept)
    papers.notify()
    papers.wait_for(lambda: papers.row()["trouble"] is None)
    assert papers.tasks("main") == {"index@2": "ready"}


@pytest.mark.usefixtures("manager")
@pytest.mark.parametrize("branches", [(), ("main",)], ids=["by HEAD", "by name"])
def test_an_empty_repository_in_the_place_of_another_stops_the_archive(
    watch: Watch, tmp_path: Path, branches: tuple[str, ...]
) -> None:
    repository, papers = watched_at_2(watch, tmp_path, branches)
    repository.path.rename(tmp_path / "elsewhere")
    run("git", "init", "-q", "--bare", "-b", "main", repository.path)
    papers.notify()
    papers.wait_for(lambda: papers.row()["stopped"])
    assert "no longer holds the last known commit" in papers.row()["stopped"]
    assert papers.tasks("main") == {"index@2": "ready"}


def watched_at_2(watch: Watch, tmp_path: Path, branches: tuple[str, ...] = ()) -> tuple[GitRepository, Watched]:
    """A repository whose second revision has a task that waits to be claimed."""
    repository = a_git_repository(tmp_path)
    repository.commit({"_workflows/w.yaml": WORKFLOW})
    papers = watch(repository.path, branches=branches)
    repository.commit({"readme": "2"})
    papers.notify()
    papers.wait_for_ledger(2, "main")
    return repository, papers


def a_raw_commit(repository: GitRepository, rest: str) -> str:
    """A commit on the head as no git would make it."""
    text = f"tree {repository.id('HEAD^{tree}')}\nparent {repository.id()}\n{rest}"
    file = repository.work.parent / "commit"
    file.write_bytes(text.encode("latin-1"))
    return repository.git("hash-object", "-t", "commit", "-w", "--literally", str(file)).strip()
