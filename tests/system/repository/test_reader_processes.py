"""Reader processes: whatever becomes of one, its call is answered or says why not, and other
archives notice nothing.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pygit2
import pytest

from arkqueue.errors import ArchiveHarmful, ArchiveMismatch, ArchiveUnreachable, NotFound, WorkspaceError
from arkqueue.model import LONGEST_LIST, STAMPS, TreeChange
from arkqueue.repository import Archive, Following, SurveyOptions, locate
from arkqueue.repository.reader import archive as reader_archive
from arkqueue.repository.reader import client, process
from arkqueue.repository.reader.archive import ReadArchive
from arkqueue.repository.reader.client import Call, ReaderProcesses
from tests.attacks import stored
from tests.loaded import begin_reader_alone
from tests.repositories import a_git_repository, a_subversion_repository, commit_with_a_long_message
from tests.waiting import eventually

T = TypeVar("T")
Open = Callable[[Path | str], ReadArchive]


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[ReaderProcesses]:
    """They start as those of a server do. No other one is started because the machine is busy and a call takes long, but only where one has no answer."""
    monkeypatch.setattr(client, "begin", begin_reader_alone)
    monkeypatch.setattr(client, "SLOW", 1e9)
    processes = ReaderProcesses()
    yield processes
    left = processes.pids()
    processes.close()
    assert not any(map(is_there, left))


@pytest.fixture
def opened(processes: ReaderProcesses) -> Open:
    return lambda url: ReadArchive(locate(str(url)), processes=processes)


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def meanwhile(call: Callable[[], T]) -> Future[T]:
    """What another thread is told."""
    said: Future[T] = Future()

    def ask() -> None:
        try:
            said.set_result(call())
        except BaseException as error:
            said.set_exception(error)

    threading.Thread(target=ask, daemon=True).start()
    return said


def test_all_who_read_a_place_share_what_a_process_has_open_since_they_came(tmp_path: Path) -> None:
    place = locate(str(a_subversion_repository(tmp_path).path))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        reader = process._Reader(theirs)  # private: what it has open is not shown otherwise

        def opened(archive: ReadArchive) -> Archive:
            # private: what a call sends, and what the reader opens for it
            return reader._archive(archive._request("identity", 0, {}))

        scan, task, another = map(ReadArchive, (place, place, replace(place, password="another")))
        assert opened(scan) is opened(task)
        assert opened(scan) is not opened(another)
        before = opened(scan)
        later = ReadArchive(place)
        assert opened(later) is not before, "its repository may be another one by now"
        assert opened(scan) is opened(later)


def test_many_archives_have_one_process(opened: Open, processes: ReaderProcesses, tmp_path: Path) -> None:
    repositories = [a_subversion_repository(tmp_path, name) for name in "abc"]
    archives = [opened(repository.path) for repository in repositories for _ in range(5)]
    assert [archive.heads() for archive in archives] == [{"": "0"}] * 15
    assert len(processes.pids()) == 1


def test_errors_arrive_as_what_they_are(opened: Open, tmp_path: Path) -> None:
    archive = opened(a_subversion_repository(tmp_path).path)
    with pytest.raises(NotFound, match="has no revision 77"):
        archive.baseline("", "77")
    target = tmp_path / "full"
    (target / "a").mkdir(parents=True)
    with pytest.raises(WorkspaceError, match="is not empty"):
        archive.working_copy("0", "", target, author="ada")


@pytest.mark.parametrize("kind", ["git", "subversion"])
def test_what_is_new_is_told_in_one_exchange(
    opened: Open, processes: ReaderProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A scan after a commit asks for the head, the ledger's last revision, the new revisions, and the keys of their workflow files."""
    repository = a_git_repository(tmp_path) if kind == "git" else a_subversion_repository(tmp_path)
    repository.commit({"readme": "1"})
    papers, calls = opened(repository.path), exchanges(processes, monkeypatch)
    (branch,) = papers.heads()
    known = papers.baseline(branch)
    assert known is not None
    revisions = [repository.commit({"readme": content}) for content in ("2", "3")]
    calls.clear()
    heads = papers.heads((), branch, {branch: known})
    papers.main_branch(branch)
    papers.check_known(known)
    advance = papers.advance(branch, known, heads[branch], limit=100)
    assert [papers.workflows_key(revision.id) for revision in advance.revisions] == ["", ""]
    assert calls == ["heads"]
    assert [revision.id for revision in advance.revisions] == revisions == [revisions[0], heads[branch]]
    assert advance == opened(repository.path).advance(branch, known, heads[branch], limit=100), (
        "as it is told by itself"
    )
    assert len(papers.advance(branch, known, heads[branch], limit=1).revisions) == 1


def test_a_look_tells_neither_much_nor_what_it_was_not_asked_for(
    opened: Open, processes: ReaderProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = a_subversion_repository(tmp_path)
    papers, calls = opened(repository.path), exchanges(processes, monkeypatch)
    known = papers.baseline("")
    assert known is not None
    for _ in range(process.MOST_AHEAD + 1):
        repository.empty()
    calls.clear()
    head = papers.heads((), "", {"": known})[""]
    assert len(papers.advance("", known, head).revisions) == process.MOST_AHEAD + 1
    assert calls == ["heads", "advance"]
    with pytest.raises(ArchiveMismatch, match="by eve"):
        papers.check_known(replace(known, author="eve"), known)
    papers.heads()
    papers.advance("", known, head)
    papers.check_known(known)
    assert calls == ["heads", "advance", "check_known", "heads", "advance", "check_known"]


def test_a_repository_that_lost_what_is_known_is_found_out(opened: Open, tmp_path: Path) -> None:
    papers = opened(a_subversion_repository(tmp_path).path)
    known = papers.baseline("")
    assert known is not None
    known = replace(known, id="7", number=7)
    assert papers.heads((), "", {"": known}) == {"": "0"}
    with pytest.raises(ArchiveMismatch, match="has only 0 revisions, but 7 is known"):
        papers.check_known(known)


@pytest.mark.parametrize("breaks", [False, True], ids=["", "by a second process, which compares nothing"])
def test_only_heads_that_the_ledger_lacks_are_sent(
    opened: Open, processes: ReaderProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breaks: bool
) -> None:
    repository = a_git_repository(tmp_path)
    first = repository.commit({"readme": "1"})
    papers = opened(repository.path)
    one = papers.baseline("main")
    assert one is not None
    repository.push("HEAD:refs/heads/quiet")
    repository.push("HEAD:refs/heads/new")
    second = repository.commit({"readme": "2"})
    answers: list[dict[str, Any]] = []
    call = processes.call

    def note(made: Call) -> object:
        if breaks and made.request["call"] == "heads":
            assert made.again is not None
            made = replace(made, request=made.again)
        answers.append(call(made))
        return answers[-1]

    monkeypatch.setattr(processes, "call", note)
    gone = replace(one, id="1" * 40)
    heads = papers.heads(("**",), "main", {"gone": gone, "main": one, "quiet": one})
    assert heads == {"main": second, "quiet": first, "new": first}
    assert set(answers[0]["heads"]) == ({"main", "quiet", "new"} if breaks else {"main", "new"})
    papers.check_known(one)
    assert len(answers) == (2 if breaks else 1)
    with pytest.raises(ArchiveMismatch, match="no longer holds"):
        papers.check_known(gone, one)


def exchanges(processes: ReaderProcesses, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls that are made from now on."""
    made: list[str] = []
    call = processes.call

    def note(one: Call) -> object:
        made.append(one.request["call"])
        return call(one)

    monkeypatch.setattr(processes, "call", note)
    return made


def test_call_is_made_again_when_its_process_is_killed(
    opened: Open, processes: ReaderProcesses, tmp_path: Path
) -> None:
    """The process stands still first, so that the call is under way; another archive is answered all the same."""
    papers, books = (opened(a_subversion_repository(tmp_path, name).path) for name in ("papers", "books"))
    papers.heads()
    (pid,) = processes.pids()
    os.kill(pid, signal.SIGSTOP)
    said = meanwhile(papers.heads)
    assert books.heads() == {"": "0"}
    assert not said.done()
    os.kill(pid, signal.SIGKILL)
    assert said.result(60) == {"": "0"}
    assert pid not in processes.pids()


def test_git_that_waits_for_a_remote_ends_with_its_killed_process(processes: ReaderProcesses, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"git://127.0.0.1:{silent.getsockname()[1]}/x.git"
        papers = ReadArchive(locate(url), mirror=tmp_path / "mirror", processes=processes)
        said = meanwhile(papers.heads)
        left, connections = [], []
        for _ in range(2):  # the call is made again
            connections.append(silent.accept()[0])
            (pid,) = processes.pids()
            left += [one for one in everybody() if session_of(one) == pid]
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(ArchiveUnreachable):
            said.result(60)
        assert len(left) >= 4
        eventually(lambda: not any(map(is_there, left)))
        for connection in connections:
            connection.close()


def everybody() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def test_process_that_says_nothing_is_ended_at_the_deadline(
    opened: Open, processes: ReaderProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = opened(a_subversion_repository(tmp_path).path)
    archive.heads()
    (pid,) = processes.pids()
    os.kill(pid, signal.SIGSTOP)
    with monkeypatch.context() as patched:
        patched.setattr(client, "DEADLINE", 0.1)
        with pytest.raises(ArchiveUnreachable, match="asking for its heads: no answer for"):
            archive.heads()
    assert not is_there(pid)
    assert archive.heads() == {"": "0"}


def test_revision_that_is_computed_without_an_end_is_harmful(
    opened: Open, processes: ReaderProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever time its process has had of a processor counts here: how much that is, the machine decides."""
    archive = opened(a_subversion_repository(tmp_path).path)
    archive.heads()
    os.kill(processes.pids()[0], signal.SIGSTOP)
    monkeypatch.setattr(client, "COMPUTES", 0.0)
    monkeypatch.setattr(client, "DEADLINE", 0.1)
    with pytest.raises(ArchiveHarmful, match="reading the workflow files of revision 0: it takes longer than"):
        archive.read_workflows("0")


@pytest.mark.parametrize(
    ("limit", "said"), [("BYTES", "more than 0 MiB would be written"), ("SECONDS", "longer than 0 s")]
)
def test_what_a_working_copy_follows_is_cut_off(
    opened: Open, processes: ReaderProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, said: str
) -> None:
    """The second external never comes, so that the first one is there when somebody looks."""
    svn = a_subversion_repository(tmp_path)
    svn.commit({"trunk/a": "1", "lib/x": b"1" * 2**20})
    monkeypatch.setattr(reader_archive, f"MOST_FOLLOWED_{limit}", 2**18 if limit == "BYTES" else 0.1)
    archive = opened(svn.path)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"svn://127.0.0.1:{silent.getsockname()[1]}/x"
        svn.propset("svn:externals", f"^/lib@1 y\n{url}@1 x", "")
        archive.working_copy("2", "", tmp_path / "copy", author="ada")
        with pytest.raises(WorkspaceError, match=said):
            archive.follow("2", tmp_path / "copy", Following(("^/", url)))
    assert archive.heads() == {"": "2"}
    assert len(processes.pids()) == 1


def test_silent_server_holds_up_its_own_archive_alone(opened: Open, tmp_path: Path) -> None:
    books = opened(a_subversion_repository(tmp_path).path)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        papers = opened(f"svn://127.0.0.1:{silent.getsockname()[1]}/svn")
        said = meanwhile(papers.heads)
        connection, _ = silent.accept()
        with connection:
            assert books.heads() == {"": "0"}
            assert not said.done()
        with pytest.raises(ArchiveUnreachable, match="closed the connection"):
            said.result(60)


def test_answer_that_nobody_wants_is_not_waited_for(processes: ReaderProcesses, opened: Open) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        papers = opened(f"svn://127.0.0.1:{silent.getsockname()[1]}/svn")
        waits: list[int] = []
        said = meanwhile(lambda: waits.append(threading.get_ident()) or papers.heads())
        connection, _ = silent.accept()
        with connection:
            processes.give_up(waits[0])
            with pytest.raises(ArchiveUnreachable, match="nobody waits for its answer any more"):
                said.result(60)


@pytest.mark.full
def test_revision_that_needs_too_much_memory_is_harmful(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MEMORY", 128 << 20)
    repository = a_git_repository(tmp_path)
    repository.commit({"readme": "1"})
    books, papers = opened(a_subversion_repository(tmp_path).path), opened(repository.path)
    known = papers.baseline("main")
    assert known is not None
    head = commit_with_a_long_message(repository, 64 << 20)
    with pytest.raises(
        ArchiveHarmful, match=f"listing the new revisions up to {head}: it needs more than 128 MiB of memory"
    ):
        papers.advance("main", None, head)
    assert books.heads() == {"": "0"}
    assert papers.heads((), "main", {"main": known}) == {"main": head}, "without what is new"


@pytest.mark.full
def test_large_files_are_written_and_a_link_as_large_is_refused_unread(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MEMORY", 128 << 20)
    repository = a_git_repository(tmp_path)
    film = tmp_path / "film"
    with open(film, "wb") as file:
        file.truncate(200 << 20)
    before = repository.commit({"paper": "1"})
    blob = repository.git("hash-object", "-w", film).strip()
    ids = []
    for mode in ("100644", "120000"):
        tree = stored(repository, "mktree", text=f"{mode} blob {blob}\tfilm\n")
        ids.append(repository.git("commit-tree", tree, "-p", before, "-m", "a film").strip())
        repository.git("push", "-q", "origin", f"{ids[-1]}:refs/heads/b{mode}")
    papers = opened(repository.path)
    papers.export(ids[0], tmp_path / "tree")
    assert (tmp_path / "tree" / "film").stat().st_size == 200 << 20
    with pytest.raises(WorkspaceError, match=r"film: cannot be written \(File name too long\)"):
        papers.export(ids[1], tmp_path / "links")


@pytest.mark.full
@pytest.mark.parametrize("form", ["csv", "json", "yaml", "txt"])
def test_list_of_64_mebibytes_is_read_within_the_memory_of_a_reader(opened: Open, tmp_path: Path, form: str) -> None:
    """Of letters that take four bytes in memory each, as there is one that needs them."""
    text = "\u00e9" * 30_000 + "\U0001f5c4"
    if form == "txt":
        body = "".join(f"{n:0150d}" + "\n" * 6_500 for n in range(10_000))
    elif form == "csv":
        body = "id,text\n" + "".join(f"{n},{text}\n" for n in range(1_000))
    else:
        begin, end = ("[", "]") if form == "json" else ("", "")
        row = ",\n".join if form == "json" else "\n".join
        body = begin + row(f'{"" if begin else "- "}{{"id": {n}, "text": "{text}"}}' for n in range(1_000)) + end
    repository = a_git_repository(tmp_path)
    workflow = f"- {{name: a, command: x, foreach: {{file: list.{form}}}}}"
    revision = repository.commit({"_workflows/a.yaml": workflow, f"list.{form}": body})
    found = opened(repository.path).workflow(revision)
    assert found.faults == ()
    assert found.item_tasks == (10_000 if form == "txt" else 1_000)
    revision = repository.commit({f"list.{form}": body + " " * (LONGEST_LIST + 1 - len(body.encode()))})
    (fault,) = opened(repository.path).workflow(revision).faults
    assert "the file is larger than 64 MiB" in fault.message


@pytest.mark.full
def test_commit_of_hundreds_of_megabytes_is_the_fault_of_its_revision(opened: Open, tmp_path: Path) -> None:
    repository = a_git_repository(tmp_path)
    first = repository.commit({"readme": "1"})
    papers = opened(repository.path)
    known = papers.baseline("main")
    assert known is not None
    head = commit_with_a_long_message(repository, 400 << 20)
    (revision,) = papers.advance("main", known, head).revisions
    assert (revision.id, known.id) == (head, first)
    assert "bytes, more than 134,217,728; make its message shorter" in revision.oversized
    papers.export(head, tmp_path / "tree")
    assert (tmp_path / "tree" / "readme").read_text() == "1"


@pytest.mark.full
def test_commit_that_takes_more_memory_than_a_reader_has_stops_nothing(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libgit2 reads whole commits to answer what is behind what; git answers where it cannot."""
    monkeypatch.setattr(client, "MEMORY", 256 << 20)
    repository = a_git_repository(tmp_path)
    repository.commit({"readme": "1"})
    papers = opened(repository.path)
    known = papers.baseline("main")
    assert known is not None
    huge = commit_with_a_long_message(repository, 300 << 20)
    bare = ["--git-dir", str(repository.path)]
    head = repository.git(*bare, "commit-tree", f"{huge}^{{tree}}", "-p", huge, "-m", "after it").strip()
    repository.git(*bare, "update-ref", "refs/heads/main", head)
    first, second = papers.advance("main", known, head).revisions
    assert (first.id, second.id, second.oversized) == (huge, head, "")
    assert "make its message shorter" in first.oversized
    assert papers.advance("main", second, known.id).dropped == (head, huge), "a reset"
    for name in (huge[:12], "main~1"):
        named = papers.baseline("main", name)
        assert named is not None
        assert named.id == huge
    assert papers.survey(huge, SurveyOptions(known.id, changes=True)).changes == ()
    papers.export(huge, tmp_path / "tree")
    assert (tmp_path / "tree" / "readme").read_text() == "1"


@pytest.mark.full
def test_a_property_that_takes_more_memory_than_a_reader_has_fails_its_task(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To try that again and again would help nobody."""
    monkeypatch.setattr(client, "MEMORY", 128 << 20)
    repository = a_subversion_repository(tmp_path)
    repository.commit({"readme": "1"})
    (tmp_path / "junk").write_bytes(b"x" * (100 << 20))
    head = repository.change("propsetf", "junk", str(tmp_path / "junk"), "readme")
    papers = opened(repository.path)
    # libsvn ends its process when it gets no memory.
    with pytest.raises(WorkspaceError, match=r"its process was ended by SIGABRT.*take only the paths"):
        papers.export(head, tmp_path / "tree")


@pytest.mark.parametrize("kind", ["git", "subversion"])
def test_update_tells_which_folders_it_entered_and_as_they_were_before(opened: Open, tmp_path: Path, kind: str) -> None:
    repository = (a_git_repository if kind == "git" else a_subversion_repository)(tmp_path)
    first = repository.commit({"a/b": "1", "c/d": "1"})
    second = repository.commit({"a/b": "2"})
    archive, tree, good = opened(repository.path), tmp_path / "tree", tmp_path / "good"
    archive.export(first, tree)
    good.touch()
    changed = {os.lstat(tree / path).st_ctime_ns: path for path in ("", "a")}
    asked = time.clock_gettime_ns(STAMPS)
    _, change = archive.update(first, second, tree, good=good)
    assert change is not None
    assert change.entered.keys() == changed.keys()
    assert set(change.entered.values()) <= {b"", b"a"}
    assert change.began is not None
    assert asked <= change.began <= os.lstat(tree / "a" / "b").st_ctime_ns
    assert not good.exists()
    assert (tree / "a" / "b").read_text() == "2"
    good.touch()
    assert archive.update(second, second, tree, good=good) == (archive.survey(second), TreeChange((), 0))
    assert good.exists()


def test_processes_end_with_their_server(tmp_path: Path) -> None:
    """Also one that is in the middle of a call."""
    path = a_subversion_repository(tmp_path).path
    with socket.create_server(("127.0.0.1", 0)) as silent:
        program = (
            "import sys, threading; from arkqueue.repository import locate\n"
            "from arkqueue.repository.reader.archive import ReadArchive\n"
            "from arkqueue.repository.reader.client import processes\n"
            "threading.Thread(target=ReadArchive(locate(sys.argv[1])).heads).start()\n"
            "sys.stdin.readline()\n"
            "ReadArchive(locate(sys.argv[2])).heads()\n"
            "print(*processes.pids(), flush=True); sys.stdin.read()"
        )
        url = f"svn://127.0.0.1:{silent.getsockname()[1]}/svn"
        server = subprocess.Popen(
            [sys.executable, "-c", program, url, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        with server:
            connection, _ = silent.accept()
            assert server.stdin is not None
            assert server.stdout is not None
            # Only now, or this call could come first, and its process would get the other one, too.
            server.stdin.write(b"\n")
            server.stdin.flush()
            pids = [int(pid) for pid in server.stdout.readline().split()]
            assert len(pids) >= 2
            server.kill()
            with connection:
                eventually(lambda: not any(map(is_there, pids)), lambda: pids)


def test_server_imports_neither_libsvn_nor_libgit2() -> None:
    program = (
        "import sys, arkqueue.queue_manager, arkqueue.task_manager.manager, arkqueue.web.server\n"
        "print(sorted({'subvertpy', 'pygit2'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.skipif(pygit2.LIBGIT2_VERSION > "1.9.7", reason="its libgit2 reads it to an end")
def test_git_object_that_is_read_without_an_end_is_harmful(
    opened: Open, processes: ReaderProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libgit2 (issue 7342) reads a loose object that is cut short for ever, and holds the interpreter's lock meanwhile."""
    repository = a_git_repository(tmp_path)
    revision = repository.commit({"_workflows/w.yaml": os.urandom(40_000)})
    id = repository.git("rev-parse", f"{revision}:_workflows/w.yaml").strip()
    loose = repository.path / "objects" / id[:2] / id[2:]
    loose.chmod(0o644)
    os.truncate(loose, loose.stat().st_size // 2)
    archive = opened(repository.path)
    assert archive.heads() == {"main": revision}
    pids = processes.pids()
    # The time that a busy machine has for it, whatever that is.
    monkeypatch.setattr(client, "COMPUTES", 1e-6)
    monkeypatch.setattr(client, "DEADLINE", 0.6)
    with pytest.raises(
        ArchiveHarmful, match=f"reading the workflow files of revision {revision}: it takes longer than"
    ):
        archive.read_workflows(revision)
    assert not any(map(is_there, pids))
