"""Workspaces from bases: real repositories, real layers; shared, updated, thrown out, noticed when
broken.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from arkqueue.errors import ArchiveMismatch, ArchiveUnreachable, HostFault, NotFound
from arkqueue.model import AttemptId, Revision, TreeChange
from arkqueue.repository import Archive, Survey, locate, open_archive
from arkqueue.workspace import Tree, Workspaces, owner_named, removal
from arkqueue.workspace import bases as bases_module
from arkqueue.workspace.layers import mounts_below
from tests.repositories import GitRepository, Link, SubversionRepository, a_git_repository, a_subversion_repository
from tests.requirements import a_mount
from tests.system.repository.test_update import picture
from tests.waiting import eventually

Repository = SubversionRepository | GitRepository
ONE, TWO, THREE, FOUR = (AttemptId(number) for number in (1, 2, 3, 4))
BIG = {f"d{number}/x": str(number) for number in range(3)}


class Recorded:
    """A real archive that remembers what was asked of it. ``known``: the revision as the ledger has
    it.
    """

    def __init__(self, archive: Archive, known: Revision | None = None) -> None:
        self.archive, self.known, self.asked, self.surveys = archive, known, list[str](), 0

    def survey(self, revision_id: str) -> Survey:
        self.surveys += 1
        return self.archive.survey(revision_id, recorded=self.known)

    def export(self, revision_id: str, target: Path) -> None:
        self.asked.append("export")
        self.archive.export(revision_id, target, recorded=self.known)

    def update(self, before: str, revision_id: str, target: Path, **given: Any) -> tuple[Survey, TreeChange | None]:
        self.asked.append("update")
        return self.archive.update(before, revision_id, target, recorded=self.known, **given)


@dataclass
class Files:
    """The files of one revision. ``paths``: those that get the time of their workspace."""

    recorded: Recorded
    revision: str
    paths: Sequence[bytes] | None = ()
    survey: Survey | None = None

    def key(self) -> str:
        self.survey = self.survey or self.recorded.survey(self.revision)
        return self.survey.tree_key

    def export(self, target: Path) -> None:
        self.recorded.export(self.revision, target)

    def update(self, before: str, target: Path, **given: Any) -> TreeChange | None:
        self.survey, change = self.recorded.update(before, self.revision, target, **given)
        return change

    def renewed(self) -> Sequence[bytes] | None:
        return self.paths


@pytest.fixture
def svn(tmp_path: Path) -> SubversionRepository:
    return a_subversion_repository(tmp_path)


@pytest.fixture
def workspaces(tmp_path: Path) -> Iterator[Workspaces]:
    workspaces = Workspaces(tmp_path / "home")
    yield workspaces
    assert Workspaces(tmp_path / "home").sweep(live=()) == []
    assert os.listdir(tmp_path / "home" / "work") == []
    assert mounts_below(tmp_path) == []


def source(repository: Repository) -> Recorded:
    return Recorded(open_archive(locate(str(repository.path))))


def tree_of(
    recorded: Recorded, revision: str, archive: int = 1, branch: str = "", renewed: Sequence[bytes] | None = ()
) -> Tree:
    return Tree(archive, branch, revision, Files(recorded, revision, renewed))


def bases(tmp_path: Path) -> list[str]:
    return sorted(os.listdir(tmp_path / "home" / "bases"))


def texts(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


needs_layers = pytest.mark.usefixtures("root")


class TestLayers:
    @pytest.mark.parametrize("layered_by", ["kernel", None])
    def test_each_revision_has_its_files_and_the_next_costs_an_update(
        self, workspaces: Workspaces, repository: Repository, tmp_path: Path, layered_by: str | None
    ) -> None:
        revisions = [repository.commit(BIG), repository.commit({"d1/x": "new", "d1/y": "1"}), repository.delete("d1")]
        recorded = source(repository)
        for revision in [*revisions, revisions[0]]:
            workspace = workspaces.prepare(ONE, source=tree_of(recorded, revision), layered_by=layered_by)  # type: ignore[arg-type]
            fresh = tmp_path / "fresh"
            recorded.archive.export(revision, fresh)
            assert picture(workspace.tree) == picture(fresh)
            subprocess.run(["rm", "-r", fresh], check=True)
            assert workspaces.remove(ONE) == ""
        assert recorded.asked == ["export", "update", "update", "update"]
        assert len(bases(tmp_path)) == 1

    @needs_layers
    def test_idle_base_is_given_up_for_room_and_one_in_use_is_not(
        self, workspaces: Workspaces, svn: SubversionRepository, tmp_path: Path
    ) -> None:
        revision, recorded = svn.commit(BIG), source(svn)
        workspaces.prepare(ONE, source=tree_of(recorded, revision, archive=1))
        workspaces.prepare(TWO, source=tree_of(recorded, revision, archive=2), layered_by="kernel")
        assert len(bases(tmp_path)) == 2
        assert [workspaces.give_up_base(), workspaces.give_up_base()] == [True, False]
        assert len(bases(tmp_path)) == 1
        for attempt in (ONE, TWO):
            assert workspaces.remove(attempt) == ""

    @pytest.mark.parametrize("layered_by", ["kernel", None])
    @pytest.mark.parametrize("all_files", [False, True])
    def test_files_that_differ_from_the_base_carry_the_time_of_their_workspace(
        self, workspaces: Workspaces, repository: Repository, tmp_path: Path, layered_by: str | None, all_files: bool
    ) -> None:
        revision = repository.commit({**BIG, "run/x": "#!/bin/sh", "link": Link("d0"), "d1/é": ""})
        recorded = source(repository)
        recorded.archive.export(revision, tmp_path / "fresh")
        paths = None if all_files else [b"d1/x", b"link", b"d0", "d1/é".encode(), b"not/there", b"link/x"]
        tree = tree_of(recorded, revision, renewed=paths)
        workspace = workspaces.prepare(ONE, source=tree, layered_by=layered_by)  # type: ignore[arg-type]
        assert picture(workspace.tree) == picture(tmp_path / "fresh")
        files = [path for path in workspace.tree.rglob("*") if path.is_file() and not path.is_symlink()]
        dated = {str(path.relative_to(workspace.tree)): path.stat().st_mtime_ns for path in files}
        exported = {name: (tmp_path / "fresh" / name).stat().st_mtime_ns for name in dated}
        renewed = {name for name, moment in dated.items() if moment != exported[name]}
        assert renewed == (set(dated) if all_files else {"d1/x", "d1/é"})
        workspaces.remove(ONE)

    @needs_layers
    def test_attempts_of_a_revision_share_a_base_and_write_apart(
        self, workspaces: Workspaces, repository: Repository, tmp_path: Path
    ) -> None:
        revision, recorded = repository.commit(BIG), source(repository)
        one, two = (
            workspaces.prepare(attempt, source=tree_of(recorded, revision), layered_by="kernel")
            for attempt in (ONE, TWO)
        )
        (one.tree / "d1" / "x").write_text("mine")
        (one.tree / "d2" / "x").unlink()
        (one.tree / "d0").rename(one.tree / "renamed")
        assert texts(one.tree) == {"d1/x": "mine", "renamed/x": "0"}
        assert texts(two.tree) == BIG
        workspaces.remove(ONE)
        workspaces.remove(TWO)
        [base] = bases(tmp_path)
        assert texts(tmp_path / "home" / "bases" / base / "tree") == BIG
        assert recorded.asked == ["export"]

    def test_an_engine_gets_the_layer_to_lay(self, workspaces: Workspaces, repository: Repository) -> None:
        revision = repository.commit(BIG)
        workspace = workspaces.prepare(ONE, source=tree_of(source(repository), revision), layered_by="engine")
        assert workspace.layer is not None
        assert texts(workspace.layer.lower) == BIG
        assert list(workspace.layer.upper.iterdir()) == list(workspace.layer.work.iterdir()) == []
        assert list(workspace.tree.iterdir()) == []
        assert stat.S_IMODE(workspace.layer.upper.stat().st_mode) == 0o755

    @needs_layers
    def test_a_user_owns_the_files_and_nobody_else_comes_in(self, svn: SubversionRepository) -> None:
        revision = svn.commit(BIG)
        home = Path(tempfile.mkdtemp(prefix="arkqueue-home-"))
        home.chmod(0o711)
        try:
            workspaces = Workspaces(home)
            for layered_by in ("kernel", None):
                workspace = workspaces.prepare(
                    ONE,
                    source=tree_of(source(svn), revision),
                    owner=owner_named("nobody"),
                    layered_by=layered_by,  # type: ignore[arg-type]
                )
                assert {path.lstat().st_uid for path in workspace.tree.rglob("*")} == {owner_named("nobody")[0]}
                words = f"cd {workspace.tree} && cat d1/x && echo new > d1/x && echo new > z && echo a=1 > {workspace.output}"
                for user, output in ((owner_named("nobody"), "1"), ((54321, 54321), "")):
                    done = subprocess.run(
                        ["sh", "-c", words],
                        user=user[0],
                        group=user[1],
                        extra_groups=[],
                        capture_output=True,
                        text=True,
                    )
                    assert done.stdout == output, done.stderr
                assert workspaces.read_outputs(ONE).values == {"a": "1"}
                assert workspaces.remove(ONE) == ""
            assert len(os.listdir(home / "bases")) == 1
            revision = svn.commit({"d1/x": "2"})
            workspaces.prepare(ONE, source=tree_of(source(svn), revision), owner=owner_named("nobody"))
            [base] = os.listdir(home / "bases")
            changed = home / "bases" / base / "tree" / "d1" / "x"
            assert (changed.read_text(), changed.stat().st_uid) == ("2", owner_named("nobody")[0])
            workspaces.remove(ONE)
        finally:
            subprocess.run(["rm", "-r", home], check=True)

    def test_who_may_not_mount_gets_a_copy_and_is_told(self, svn: SubversionRepository) -> None:
        revision = svn.commit(BIG)
        home = Path(tempfile.mkdtemp(prefix="arkqueue-home-"))
        home.chmod(0o777)
        program = "\n".join(
            [
                f"import os, sys; sys.path[:0] = {sys.path!r}",
                "from pathlib import Path; from arkqueue.workspace import *",
                "class Files:",
                "    def key(self): return ''",
                "    def export(self, target): (target / 'x').write_text('1')",
                "    def renewed(self): return ()",
                "if os.geteuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)",
                f"workspaces = Workspaces(Path({str(home)!r}) / 'home')",
                f"w = workspaces.prepare(1, source=Tree(1, '', {revision!r}, Files()), layered_by='kernel')",
                "print(w.notes, (w.tree / 'x').read_text(), w.layer, workspaces.remove(1), os.listdir(w.folder.parent))",
            ]
        )
        try:
            done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
            assert "no layer can be laid over shared ones here (the kernel refuses:" in done.stdout, done.stderr
            assert done.stdout.endswith(" 1 None  []\n")
        finally:
            subprocess.run(["rm", "-r", home], check=True)

    @needs_layers
    def test_what_a_task_leaves_in_its_layer_goes(
        self, workspaces: Workspaces, svn: SubversionRepository, tmp_path: Path
    ) -> None:
        revision = svn.commit(BIG)
        workspace = workspaces.prepare(ONE, source=tree_of(source(svn), revision), layered_by="kernel")
        os.mknod(workspace.tree / "device", 0o600 | stat.S_IFCHR, os.makedev(1, 5))
        (workspace.tree / "link").symlink_to("/etc")
        (workspace.tree / "d1" / "x").unlink()
        dig = "import os\nfor _ in range(10_000):\n  os.mkdir('a'); os.chdir('a')\nopen('file', 'w').close()"
        subprocess.run([sys.executable, "-c", dig], cwd=workspace.tree, check=True)
        assert workspaces.remove(ONE) == ""
        eventually(lambda: os.listdir(tmp_path / "home" / "work") == [])
        assert os.path.exists("/etc/passwd")


class TestExchanges:
    """A workspace costs one call of the archive, as a rule: each is an exchange with another process."""

    def test_an_update_says_what_a_workspace_needs_to_know(
        self, workspaces: Workspaces, repository: Repository
    ) -> None:
        first, second = repository.commit(BIG), repository.commit({"d1/x": "2"})
        recorded = source(repository)
        for revision, asked, surveys in ((first, ["export"], 1), (second, ["update"], 0), (second, [], 1)):
            recorded.asked, recorded.surveys = [], 0
            workspaces.prepare(ONE, source=tree_of(recorded, revision), layered_by="engine")
            assert (recorded.asked, recorded.surveys) == (asked, surveys)
            workspaces.remove(ONE)

    def test_a_base_with_the_same_files_is_shared_although_it_has_another_revision(
        self, workspaces: Workspaces, tmp_path: Path
    ) -> None:
        git = a_git_repository(tmp_path)
        first, second, again = (git.commit({"x": text}) for text in ("1", "2", "1"))
        recorded = source(git)
        one, two = (
            workspaces.prepare(attempt, source=tree_of(recorded, revision), layered_by="engine")
            for attempt, revision in ((ONE, first), (TWO, second))
        )
        workspaces.remove(TWO)
        recorded.asked, recorded.surveys = [], 0
        three = workspaces.prepare(THREE, source=tree_of(recorded, again), layered_by="engine")
        assert (recorded.asked, recorded.surveys) == (["update"], 0)
        assert one.layer is not None
        assert two.layer is not None
        assert three.layer is not None
        assert three.layer.lower == one.layer.lower
        assert texts(two.layer.lower) == {"x": "2"}, "the idle base is not changed"
        four = workspaces.prepare(FOUR, source=tree_of(recorded, second), layered_by="engine")
        assert four.layer is not None
        assert four.layer.lower == two.layer.lower, "and it is still used"


class TestInUse:
    def test_a_base_in_use_does_not_change(self, workspaces: Workspaces, repository: Repository) -> None:
        first, second, third = (repository.commit({"x": str(number)}) for number in range(3))
        recorded = source(repository)
        one = workspaces.prepare(ONE, source=tree_of(recorded, first), layered_by="engine")
        two = workspaces.prepare(TWO, source=tree_of(recorded, second), layered_by="engine")
        assert one.layer is not None
        assert two.layer is not None
        assert (texts(one.layer.lower), texts(two.layer.lower)) == ({"x": "0"}, {"x": "1"})
        workspaces.remove(ONE)
        three = workspaces.prepare(THREE, source=tree_of(recorded, third), layered_by="engine")
        assert three.layer is not None
        assert (texts(three.layer.lower), texts(two.layer.lower)) == ({"x": "2"}, {"x": "1"})
        assert recorded.asked == ["export", "export", "update"]

    def test_attempts_that_live_on_keep_their_base(
        self, workspaces: Workspaces, svn: SubversionRepository, tmp_path: Path
    ) -> None:
        first, second = svn.commit({"x": "1"}), svn.commit({"x": "2"})
        workspaces.prepare(ONE, source=tree_of(source(svn), first), layered_by="engine")
        kept = bases(tmp_path)
        again = Workspaces(tmp_path / "home", pool_limit=0)
        assert again.sweep(live={ONE}) == []
        two = again.prepare(TWO, source=tree_of(source(svn), second), layered_by="engine")
        assert two.layer is not None
        assert texts(two.layer.lower) == {"x": "2"}
        assert texts(tmp_path / "home" / "bases" / kept[0] / "tree") == {"x": "1"}
        again.remove(TWO)
        assert bases(tmp_path) == kept
        again.remove(ONE)
        assert bases(tmp_path) == []

    def test_the_same_branch_is_nearer(self, workspaces: Workspaces, svn: SubversionRepository, tmp_path: Path) -> None:
        first, second, third = (svn.commit({"x": str(number)}) for number in range(3))
        recorded = source(svn)
        for attempt, branch in ((ONE, "main"), (TWO, "topic")):
            revision = first if branch == "main" else second
            workspaces.prepare(attempt, source=tree_of(recorded, revision, branch=branch), layered_by="engine")
        main = (tmp_path / "home" / "work" / "1" / "base").read_text()
        workspaces.remove(ONE)
        workspaces.remove(TWO)
        workspaces.prepare(ONE, source=tree_of(recorded, third, branch="main"), layered_by="engine")
        assert (tmp_path / "home" / "work" / "1" / "base").read_text() == main

    def test_many_threads_get_what_they_ask_for(
        self, workspaces: Workspaces, repository: Repository, tmp_path: Path
    ) -> None:
        revisions = [repository.commit({**BIG, "which": str(number)}) for number in range(4)]
        faults: list[str] = []
        exports: list[str] = []

        def work(thread: int) -> None:
            recorded = source(repository)
            for turn in range(12):
                which = (thread + turn * 3) % len(revisions)
                attempt = AttemptId(thread * 1000 + turn + 1)
                workspace = workspaces.prepare(attempt, source=tree_of(recorded, revisions[which]), layered_by="engine")
                assert workspace.layer is not None
                if texts(workspace.layer.lower) != {**BIG, "which": str(which)}:
                    faults.append(f"{thread} {turn}")
                workspaces.remove(attempt)
            exports.extend(asked for asked in recorded.asked if asked == "export")

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert faults == []
        assert len(bases(tmp_path)) == len(exports) <= 6

    @pytest.mark.parametrize("call", ["export", "update"])
    def test_threads_that_want_the_same_wait_for_one(
        self, workspaces: Workspaces, svn: SubversionRepository, monkeypatch: pytest.MonkeyPatch, call: str
    ) -> None:
        first, revision = svn.commit({"x": "1"}), svn.commit(BIG)
        if call == "update":
            workspaces.prepare(ONE, source=tree_of(source(svn), first), layered_by="engine")
            workspaces.remove(ONE)
        asked: list[str] = []
        asking: set[int] = set()
        waiting: set[int] = set()
        wait = threading.Condition.wait
        together = threading.Barrier(5)

        def noted_wait(condition: threading.Condition, timeout: float | None = None) -> bool:
            if threading.get_ident() in asking:  # other threads of the test process wait too
                waiting.add(threading.get_ident())
            return wait(condition, timeout)

        class Awaited(Recorded):
            """Its call ends when the four other threads wait."""

            def export(self, revision_id: str, target: Path) -> None:
                eventually(lambda: len(waiting) == 4)
                super().export(revision_id, target)

            def update(
                self, before: str, revision_id: str, target: Path, **given: Any
            ) -> tuple[Survey, TreeChange | None]:
                eventually(lambda: len(waiting) == 4)
                return super().update(before, revision_id, target, **given)

        def work(attempt: int) -> None:
            recorded = Awaited(source(svn).archive)
            together.wait()
            asking.add(threading.get_ident())
            workspaces.prepare(AttemptId(attempt), source=tree_of(recorded, revision), layered_by="engine")
            asked.extend(recorded.asked)

        monkeypatch.setattr(threading.Condition, "wait", noted_wait)
        threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert asked == [call]


class TestPool:
    def test_the_least_lately_used_goes_when_it_is_full(self, svn: SubversionRepository, tmp_path: Path) -> None:
        revision = svn.commit({"x": "x" * 10_000})  # three blocks
        workspaces, recorded = Workspaces(tmp_path / "home", pool_limit=30_000), source(svn)
        names = {}
        for archive in (1, 2, 1, 3):
            workspaces.prepare(ONE, source=tree_of(recorded, revision, archive), layered_by="engine")
            names[archive] = (tmp_path / "home" / "work" / "1" / "base").read_text()
            workspaces.remove(ONE)
        assert bases(tmp_path) == sorted([names[1], names[3]])

    def test_without_room_none_is_kept(self, svn: SubversionRepository, tmp_path: Path) -> None:
        revision = svn.commit(BIG)
        workspaces = Workspaces(tmp_path / "home", pool_limit=0)
        for _ in range(2):
            workspace = workspaces.prepare(ONE, source=tree_of(source(svn), revision), layered_by="engine")
            assert workspace.layer is not None
            assert texts(workspace.layer.lower) == BIG
            workspaces.remove(ONE)
            assert bases(tmp_path) == []

    @pytest.mark.usefixtures("root")
    def test_a_full_disk_costs_idle_bases_first_and_then_the_attempt(
        self, svn: SubversionRepository, tmp_path: Path
    ) -> None:
        small, big, huge = (svn.commit({"x": "x" * size}) for size in (100_000, 700_000, 2_000_000))
        home = tmp_path / "home"
        home.mkdir()
        with a_mount("-t", "tmpfs", "-o", "size=1m", "tmpfs", home):
            workspaces = Workspaces(home)
            workspaces.prepare(ONE, source=tree_of(source(svn), big, archive=1), layered_by="engine")
            first = bases(tmp_path)
            workspaces.remove(ONE)
            workspaces.prepare(ONE, source=tree_of(source(svn), big, archive=2), layered_by="engine")
            assert len(bases(tmp_path)) == 1
            assert bases(tmp_path) != first
            workspaces.remove(ONE)
            with pytest.raises(HostFault, match="No space left on device"):
                workspaces.prepare(ONE, source=tree_of(source(svn), huge, archive=2), layered_by="engine")
            assert bases(tmp_path) == os.listdir(home / "work") == []
            workspace = workspaces.prepare(ONE, source=tree_of(source(svn), small, archive=2), layered_by="engine")
            assert workspace.layer is not None
            assert (workspace.layer.lower / "x").stat().st_size == 100_000


def by_hand(base: Path, change: str) -> None:
    """What somebody may do to a base, without a trace in sizes and times where that can be."""
    place = base / "d1" / "x"
    status = place.stat()
    match change:
        case "rewritten":
            place.write_text("?")
            os.utime(place, ns=(status.st_atime_ns, status.st_mtime_ns))
        case "removed":
            place.unlink()
        case "added":
            (base / "d1" / "other").write_text("?")
        case "mode":
            place.chmod(0o600)
        case "linked":
            place.unlink()
            place.symlink_to("/etc/passwd")
        case "all gone":
            subprocess.run(["rm", "-r", base], check=True)


HANDS = ["rewritten", "removed", "added", "mode", "linked", "all gone"]


class TestBroken:
    @pytest.mark.parametrize("change", HANDS)
    @pytest.mark.parametrize("when", ["same revision", "update", "update there", "after a restart"])
    def test_what_was_changed_by_hand_is_made_anew(
        self, workspaces: Workspaces, repository: Repository, tmp_path: Path, change: str, when: str
    ) -> None:
        first = repository.commit(BIG)
        second = repository.commit({"d1/new": "1"} if when == "update there" else {"d2/new": "1"})
        recorded = source(repository)
        for attempt in (ONE, TWO, THREE):  # let the watch come to its rounds
            workspaces.prepare(attempt, source=tree_of(recorded, first), layered_by="engine")
            workspaces.remove(attempt)
        [name] = bases(tmp_path)
        by_hand(tmp_path / "home" / "bases" / name / "tree", change)
        if when == "after a restart":
            workspaces = Workspaces(tmp_path / "home")
        revision = second if "update" in when else first
        workspace = workspaces.prepare(ONE, source=tree_of(recorded, revision), layered_by="engine")
        recorded.archive.export(revision, tmp_path / "fresh")
        assert workspace.layer is not None
        assert picture(workspace.layer.lower) == picture(tmp_path / "fresh")
        assert name not in bases(tmp_path)

    def test_a_change_in_a_large_base_is_found_in_the_end(
        self, workspaces: Workspaces, svn: SubversionRepository, tmp_path: Path
    ) -> None:
        revision = svn.commit({f"d{number % 10}/{number}": "1" for number in range(1000)})
        recorded = source(svn)
        workspaces.prepare(ONE, source=tree_of(recorded, revision), layered_by="engine")
        [name] = bases(tmp_path)
        changed, made = tmp_path / "home" / "bases" / name / "tree" / "d7" / "777", time.time_ns()
        while changed.stat().st_ctime_ns <= made:  # the kernel's stamps move on every few milliseconds
            changed.write_text("?")
        for number in range(2, 9):
            attempt = AttemptId(number)
            workspaces.prepare(attempt, source=tree_of(recorded, revision), layered_by="engine")
            workspaces.remove(attempt)
        assert recorded.asked == ["export", "export"]
        assert name in bases(tmp_path), "the first attempt still reads it"
        workspaces.remove(ONE)
        assert name not in bases(tmp_path)

    @pytest.mark.full
    def test_a_folder_is_looked_at_before_an_update_changes_it(self, workspaces: Workspaces, tmp_path: Path) -> None:
        """Its time is new then, and what was removed from it would never be missed."""
        repository = a_git_repository(tmp_path)
        first = repository.commit({f"d{number}/{name}": name for number in range(2000) for name in "ab"})
        second = repository.commit({"d777/new": "1"})
        recorded = source(repository)
        for attempt in (ONE, TWO):
            workspaces.prepare(attempt, source=tree_of(recorded, first), layered_by="engine")
            workspaces.remove(attempt)
        [name] = bases(tmp_path)
        (tmp_path / "home" / "bases" / name / "tree" / "d777" / "a").unlink()
        workspace = workspaces.prepare(ONE, source=tree_of(recorded, second), layered_by="engine")
        assert workspace.layer is not None
        assert sorted(os.listdir(workspace.layer.lower / "d777")) == ["a", "b", "new"]

    def test_a_base_that_only_we_changed_is_never_suspected(
        self, workspaces: Workspaces, repository: Repository, tmp_path: Path
    ) -> None:
        revisions = [repository.commit({**BIG, f"new{number}/x": str(number)}) for number in range(12)]
        recorded = source(repository)
        for number, revision in enumerate([*revisions, *reversed(revisions)]):
            if number == 15:
                workspaces = Workspaces(tmp_path / "home")
            workspaces.prepare(ONE, source=tree_of(recorded, revision), layered_by="engine")
            workspaces.remove(ONE)
        assert recorded.asked.count("export") == 1

    def test_an_update_that_was_killed_leaves_no_base(self, repository: Repository, tmp_path: Path) -> None:
        first, second = repository.commit(BIG), repository.commit({"d1/x": "2", "d2/x": None})
        program = "\n".join(
            [
                f"import os, signal, sys; sys.path[:0] = {sys.path!r}",
                "from tests.system.workspace.test_bases import *",
                "class Killing(Recorded):",
                "    def update(self, before, revision, target, **given):",
                "        os.unlink = lambda *args, unlink=os.unlink, **ways: (unlink(*args, **ways), os.kill(os.getpid(), signal.SIGKILL))",
                "        self.archive.update(before, revision, target, **given)",
                f"killing = Killing(open_archive(locate({str(repository.path)!r})))",
                f"workspaces = Workspaces(Path({str(tmp_path)!r}) / 'home')",
                f"workspaces.prepare(1, source=tree_of(killing, {first!r}), layered_by='engine')",
                "workspaces.remove(1)",
                f"workspaces.prepare(1, source=tree_of(killing, {second!r}), layered_by='engine')",
            ]
        )
        done = subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[2], capture_output=True)
        assert done.returncode == -signal.SIGKILL, done.stderr
        [name] = bases(tmp_path)
        workspaces = Workspaces(tmp_path / "home")
        assert workspaces.sweep(live=()) == []
        assert bases(tmp_path) == []
        workspace = workspaces.prepare(ONE, source=tree_of(source(repository), second), layered_by="engine")
        assert workspace.layer is not None
        assert texts(workspace.layer.lower) == {"d0/x": "0", "d1/x": "2"}
        assert workspace.layer.lower.parent.name != name

    def test_a_base_that_takes_long_to_remove_keeps_nobody_waiting(
        self, svn: SubversionRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        revision = svn.commit(BIG)
        workspaces = Workspaces(tmp_path / "home")
        workspaces.prepare(ONE, source=tree_of(source(svn), revision), layered_by="engine")
        workspaces.remove(ONE)
        [name] = bases(tmp_path)
        (tmp_path / "home" / "bases" / name / "state").unlink()
        may_go_on, left = threading.Event(), removal.remove_folder
        monkeypatch.setattr(removal, "PATIENCE", 0.0)
        monkeypatch.setattr(
            bases_module,
            "remove_folder",
            lambda *given, until=None: (until is not None or may_go_on.wait()) and left(*given, until=until),
        )
        try:
            again = Workspaces(tmp_path / "home")
            assert name in os.listdir(tmp_path / "home" / "bases")
            workspace = again.prepare(TWO, source=tree_of(source(svn), revision), layered_by="engine")
        finally:
            may_go_on.set()
        assert workspace.layer is not None
        eventually(lambda: os.listdir(tmp_path / "home" / "bases") == [workspace.layer.lower.parent.name])
        assert texts(workspace.layer.lower) == BIG

    def test_a_base_of_an_earlier_boot_is_not_trusted(self, svn: SubversionRepository, tmp_path: Path) -> None:
        revision = svn.commit(BIG)
        workspaces = Workspaces(tmp_path / "home")
        workspaces.prepare(ONE, source=tree_of(source(svn), revision), layered_by="engine")
        workspaces.remove(ONE)
        [name] = bases(tmp_path)
        state = tmp_path / "home" / "bases" / name / "state"
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        state.write_text(state.read_text().replace(boot, "another"))
        Workspaces(tmp_path / "home")
        assert bases(tmp_path) == []

    def test_a_restored_backup_with_another_future_gets_its_own_files(
        self, workspaces: Workspaces, svn: SubversionRepository, tmp_path: Path
    ) -> None:
        first = svn.commit({"x": "1"})
        subprocess.run(["cp", "-a", svn.path, tmp_path / "backup"], check=True)
        second = svn.commit({"x": "lost"})
        workspaces.prepare(ONE, source=tree_of(source(svn), second), layered_by="engine")
        workspaces.remove(ONE)
        svn.path.rename(tmp_path / "lost")
        (tmp_path / "backup").rename(svn.path)
        assert svn.commit({"x": "other"}) == second
        for revision, text in ((second, "other"), (svn.commit({"y": "1"}), "other"), (first, "1")):
            workspace = workspaces.prepare(ONE, source=tree_of(source(svn), revision), layered_by="engine")
            assert workspace.layer is not None
            assert (workspace.layer.lower / "x").read_text() == text
            workspaces.remove(ONE)

    def test_a_revision_that_a_force_push_took_away_is_no_loss(self, workspaces: Workspaces, tmp_path: Path) -> None:
        repository = a_git_repository(tmp_path)
        start, lost = repository.commit({"x": "1"}), repository.commit({"x": "lost"})
        workspaces.prepare(ONE, source=tree_of(source(repository), lost), layered_by="engine")
        workspaces.remove(ONE)
        repository.reset(start)
        repository.push(force=True)
        subprocess.run(["git", "-C", repository.path, "gc", "-q", "--prune=now"], check=True)
        new = repository.commit({"x": "new"})
        workspace = workspaces.prepare(ONE, source=tree_of(source(repository), new), layered_by="engine")
        assert workspace.layer is not None
        assert texts(workspace.layer.lower) == {"x": "new"}

    def test_an_archive_that_is_away_costs_no_base(
        self, workspaces: Workspaces, svn: SubversionRepository, tmp_path: Path
    ) -> None:
        first, second = svn.commit({"x": "1"}), svn.commit({"x": "2"})
        recorded = source(svn)
        workspaces.prepare(ONE, source=tree_of(recorded, first), layered_by="engine")
        workspaces.remove(ONE)
        tree = tree_of(recorded, second)
        svn.path.rename(tmp_path / "away")
        with pytest.raises(ArchiveUnreachable):
            workspaces.prepare(ONE, source=tree, layered_by="engine")
        (tmp_path / "away").rename(svn.path)
        workspaces.prepare(ONE, source=tree_of(recorded, second), layered_by="engine")
        assert recorded.asked == ["export", "update", "update"]

    def test_a_revision_that_the_archive_does_not_give_costs_no_base(
        self, workspaces: Workspaces, repository: Repository
    ) -> None:
        first, second = repository.commit({"x": "1"}), repository.commit({"x": "2"})
        recorded = source(repository)
        workspaces.prepare(ONE, source=tree_of(recorded, first), layered_by="engine")
        workspaces.remove(ONE)
        unknown = "7" * (40 if isinstance(repository, GitRepository) else 2)
        with pytest.raises((NotFound, ArchiveMismatch)):
            workspaces.prepare(ONE, source=tree_of(recorded, unknown), layered_by="engine")
        workspaces.prepare(ONE, source=tree_of(recorded, second), layered_by="engine")
        assert recorded.asked == ["export", "update", "update"]

    def test_a_base_whose_revision_is_another_one_now_is_exported_anew(
        self, workspaces: Workspaces, svn: SubversionRepository, tmp_path: Path
    ) -> None:
        svn.commit({"x": "1"})
        shutil.copytree(svn.path, tmp_path / "backup")
        for revision in (svn.commit({"x": "2"}), svn.commit({"x": "3"})):
            workspaces.prepare(ONE, source=tree_of(source(svn), revision), layered_by="engine")
            workspaces.remove(ONE)
        shutil.rmtree(svn.path)
        (tmp_path / "backup").rename(svn.path)
        recorded, revision = source(svn), svn.commit({"y": "2"})
        workspace = workspaces.prepare(ONE, source=tree_of(recorded, revision), layered_by="engine")
        assert recorded.asked == ["update", "export"], "revision 3, of the base, is not there any more"
        assert workspace.layer is not None
        assert texts(workspace.layer.lower) == {"x": "1", "y": "2"}

    def test_an_archive_that_goes_away_in_the_midst_of_an_update_costs_the_base(
        self, workspaces: Workspaces, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, second = repository.commit({"x": "1"}), repository.commit({"x": "2"})
        recorded = source(repository)
        workspaces.prepare(ONE, source=tree_of(recorded, first), layered_by="engine")
        workspaces.remove(ONE)
        update = recorded.update

        def cut_off(before: str, revision_id: str, target: Path, **given: Any) -> None:
            update(before, revision_id, target, **given)
            raise ArchiveUnreachable("svn", "the server closed the connection")

        monkeypatch.setattr(recorded, "update", cut_off)
        with pytest.raises(ArchiveUnreachable):
            workspaces.prepare(ONE, source=tree_of(recorded, second), layered_by="engine")
        assert bases(tmp_path) == []

    def test_an_archive_that_is_away_in_the_midst_of_a_first_export_leaves_nothing_in_its_way(
        self, workspaces: Workspaces, svn: SubversionRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        revision = svn.commit({"x": "1"})
        recorded = source(svn)
        export = recorded.export

        def cut_off(_: str, target: Path) -> None:
            (target / "half").touch()
            raise ArchiveUnreachable("svn", "the server closed the connection")

        monkeypatch.setattr(recorded, "export", cut_off)
        with pytest.raises(ArchiveUnreachable):
            workspaces.prepare(ONE, source=tree_of(recorded, revision), layered_by="engine")
        assert bases(tmp_path) == []
        monkeypatch.setattr(recorded, "export", export)
        workspace = workspaces.prepare(ONE, source=tree_of(recorded, revision), layered_by="engine")
        assert workspace.layer is not None
        assert texts(workspace.layer.lower) == {"x": "1"}


@needs_layers
class TestMounts:
    def test_the_mount_of_a_killed_task_manager_is_swept_and_no_other(
        self, svn: SubversionRepository, tmp_path: Path
    ) -> None:
        revision = svn.commit(BIG)
        program = "\n".join(
            [
                f"import os, signal, sys; sys.path[:0] = {sys.path!r}",
                "from tests.system.workspace.test_bases import *",
                f"recorded = Recorded(open_archive(locate({str(svn.path)!r})))",
                f"workspaces = Workspaces(Path({str(tmp_path)!r}) / 'home')",
                f"workspace = workspaces.prepare(1, source=tree_of(recorded, {revision!r}), layered_by='kernel')",
                "(workspace.tree / 'd1' / 'x').write_text('mine')",
                "os.kill(os.getpid(), signal.SIGKILL)",
            ]
        )
        done = subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[2], capture_output=True)
        assert done.returncode == -signal.SIGKILL, done.stderr
        other = tmp_path / "home" / "worker"
        other.mkdir()
        with a_mount("-t", "tmpfs", "tmpfs", other):
            assert len(mounts_below(tmp_path)) == 2
            workspaces = Workspaces(tmp_path / "home")
            assert workspaces.sweep(live=()) == []
            assert mounts_below(tmp_path) == [os.fsencode(other)]
        assert os.listdir(tmp_path / "home" / "work") == []
        [base] = bases(tmp_path)
        assert texts(tmp_path / "home" / "bases" / base / "tree") == BIG

    def test_what_a_task_has_mounted_is_not_emptied(
        self, workspaces: Workspaces, svn: SubversionRepository, tmp_path: Path
    ) -> None:
        kept = tmp_path / "kept"
        kept.mkdir()
        (kept / "file").touch()
        revision = svn.commit(BIG)
        workspace = workspaces.prepare(ONE, source=tree_of(source(svn), revision), layered_by="kernel")
        with contextlib.ExitStack() as mounted:
            for place in (workspace.tree / "a b", workspace.tmp / "m"):
                place.mkdir()
                mounted.enter_context(a_mount("--bind", kept, place))
            assert workspaces.remove(ONE) == ""
        assert (kept / "file").exists()

    def test_a_base_that_somebody_still_reads_is_not_used_again(
        self, workspaces: Workspaces, svn: SubversionRepository, tmp_path: Path
    ) -> None:
        revision = svn.commit(BIG)
        workspace = workspaces.prepare(ONE, source=tree_of(source(svn), revision), layered_by="kernel")
        with open(workspace.tree / "d1" / "x") as still_open:
            assert "was still in use when it was unmounted" in workspaces.remove(ONE)
            assert still_open.read() == "1"
            assert os.listdir(tmp_path / "home" / "work") == bases(tmp_path) == []


class TestLeftovers:
    """Of a task manager that is not root, which may not remove what another user has made."""

    @pytest.mark.usefixtures("root")
    def test_what_we_may_not_remove_is_given_to_us_first_or_at_the_next_start(self) -> None:
        then = [
            "print(workspaces.remove(1), flush=True)",
            "print([workspaces.sweep([]), os.listdir(workspaces._work)], flush=True)",
        ]
        with not_root(then) as (tell, told):
            _, image = told().split()
            assert image == "box"
            tell("away")
            assert "engine: it is away. Remove what is left of it in" in told()
            folder, image = told().split()
            assert image == "None"
            subprocess.run(["chown", "-R", "65534:65534", folder], check=True)
            tell("")
            assert told() == "[[], []]"

    @pytest.mark.usefixtures("root")
    def test_what_takes_long_is_given_to_us_in_the_image_that_the_workspace_named(self) -> None:
        """The file that names it is among what is removed before the rest is left to the background."""
        then = [
            "import time; from arkqueue.workspace import ownership, removal",
            "left = ownership.remove_folder",
            "def remove(work, name, until=None, **more):",
            "    if until is None: return left(work, name, **more)",
            "    os.unlink(work / name / 'image'); raise removal.TakesLong",
            "ownership.remove_folder = remove",
            "assert workspaces.remove(1) == ''",
            "while os.listdir(workspaces._work): time.sleep(0.01)",
            "print('gone', flush=True)",
        ]
        with not_root(then) as (tell, told):
            folder, image = told().split()
            assert image == "box"
            subprocess.run(["chown", "-R", "65534:65534", folder], check=True)
            tell("")
            assert told() == "gone"


@contextlib.contextmanager
def not_root(then: list[str]) -> Iterator[tuple[Callable[[str], None], Callable[[], str]]]:
    """A process of nobody's with a workspace in which root has a folder; it goes on with `then`. It prints what it wants to be given, and in which image, and
    waits for a line: `away` is no engine."""
    home = Path(tempfile.mkdtemp(prefix="arkqueue-home-"))
    home.chmod(0o777)
    program = "\n".join(
        [
            f"import os, sys; sys.path[:0] = {sys.path!r}",
            "from pathlib import Path; from arkqueue.workspace import *",
            "os.setgroups([]); os.setgid(65534); os.setuid(65534)",
            "from arkqueue.errors import ExecutorError",
            "def give(folders, owner, image):",
            "    print(folders[0], image, flush=True)",
            "    if input() == 'away': raise ExecutorError('engine', 'it is away')",
            "    return ''",
            f"workspaces = Workspaces(Path({str(home)!r}) / 'home', give=give)",
            "print(workspaces.prepare(1, image='box').tree, flush=True); input()",
            *then,
        ]
    )
    try:
        with subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other:
            into, out = other.stdin, other.stdout
            assert into is not None
            assert out is not None

            def tell(line: str) -> None:
                into.write(f"{line}\n")
                into.flush()

            (Path(out.readline().strip()) / "root's" / "folder").mkdir(parents=True)
            tell("")
            try:
                yield tell, lambda: out.readline().strip()
            finally:
                other.kill()
    finally:
        subprocess.run(["rm", "-r", home], check=True)


class TestReplacedRepositories:
    """The revision of the ledger is proved for each workspace, also where a base of that number is there."""

    @pytest.mark.parametrize("layered_by", ["kernel", None])
    def test_a_base_of_the_revision_is_given_to_nobody_while_the_repository_has_another_one(
        self, workspaces: Workspaces, svn: SubversionRepository, tmp_path: Path, layered_by: str | None
    ) -> None:
        svn.commit(BIG)
        shutil.copytree(svn.path, tmp_path / "backup")
        revision = svn.commit({"d1/x": "right"})
        opened = open_archive(locate(str(svn.path)))
        known = opened.baseline("", revision)
        assert known is not None
        ledger = Recorded(opened, known)

        def right() -> Tree:
            return tree_of(ledger, revision)

        for attempt in (ONE, TWO):
            workspaces.prepare(attempt, source=right(), layered_by=layered_by)  # type: ignore[arg-type]
        svn.path.rename(tmp_path / "away")
        (tmp_path / "backup").rename(svn.path)
        assert svn.commit({"d1/x": "another"}) == revision
        with pytest.raises(ArchiveMismatch, match=f"has another revision {revision}"):
            workspaces.prepare(THREE, source=right(), layered_by=layered_by)  # type: ignore[arg-type]
        # Also where no base of another revision is to be brought forward.
        assert workspaces.remove(ONE) == workspaces.remove(TWO) == workspaces.remove(THREE) == ""
        with pytest.raises(ArchiveMismatch, match=f"has another revision {revision}"):
            workspaces.prepare(THREE, source=right(), layered_by=layered_by)  # type: ignore[arg-type]
        shutil.rmtree(svn.path)
        (tmp_path / "away").rename(svn.path)
        workspaces.remove(THREE)
        workspace = workspaces.prepare(FOUR, source=right(), layered_by=layered_by)  # type: ignore[arg-type]
        assert (workspace.tree / "d1" / "x").read_text() == "right"
        assert workspaces.remove(FOUR) == ""
