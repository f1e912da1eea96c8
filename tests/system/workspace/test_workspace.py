"""Workspaces on a real file system: private, complete, read with suspicion, removed whatever a task
has left.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from arkqueue.errors import HostFault, WorkspaceError
from arkqueue.model import AttemptId
from arkqueue.workspace import Workspace, Workspaces, owner_named, ownership, removal
from arkqueue.workspace import outputs as module
from arkqueue.workspace.outputs import parse_outputs
from tests.requirements import a_mount
from tests.waiting import eventually

ONE, TWO = AttemptId(1), AttemptId(2)


@pytest.fixture
def workspaces(tmp_path: Path) -> Iterator[Workspaces]:
    workspaces = Workspaces(tmp_path / "home")
    yield workspaces
    workspaces.sweep(live=())
    eventually(lambda: os.listdir(tmp_path / "home" / "work") == [])


@pytest.fixture
def workspace(workspaces: Workspaces) -> Workspace:
    return workspaces.prepare(ONE)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter. pytest's own folder is for its owner alone, and is closed
    again whenever another run of pytest starts.
    """
    folder = Path(tempfile.mkdtemp(prefix="arkqueue-workspaces-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


def as_ordinary_user(folder: Path, *lines: str) -> list[str]:
    """A program whom permissions concern, root or not: its ``workspaces`` has a workspace 1 with a ``tree``."""
    start = [
        f"import os, sys; sys.path[:0] = {sys.path!r}",
        "from pathlib import Path; from arkqueue.workspace import Workspaces",
        "if os.geteuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)",
        f"workspaces = Workspaces(Path({str(folder)!r}) / 'home'); tree = workspaces.prepare(1).tree",
    ]
    return [sys.executable, "-c", "\n".join([*start, *lines])]


class TestPrepare:
    def test_without_checkout_the_tree_is_empty(self, workspaces: Workspaces) -> None:
        workspace = workspaces.prepare(ONE, inputs={"a": {"x": "1"}})
        assert list(workspace.tree.iterdir()) == []
        assert workspace.inputs.read_text() == '{"a": {"x": "1"}}'
        assert not workspace.output.exists()
        assert not workspace.script.exists()
        assert stat.S_IMODE(workspace.folder.stat().st_mode) == 0o700

    def test_the_archive_fills_the_tree_and_may_add_to_the_path(self, workspaces: Workspaces, tmp_path: Path) -> None:
        def fill(workspace: Workspace) -> Path:
            (workspace.tree / "a.txt").write_text("a")
            return tmp_path

        workspace = workspaces.prepare(ONE, source=fill)
        assert (workspace.tree / "a.txt").read_text() == "a"
        assert workspace.path_first == tmp_path

    def test_script_is_written_as_it_is(self, workspaces: Workspaces) -> None:
        workspace = workspaces.prepare(ONE, script="echo ä\r\necho b\n")
        assert workspace.script.read_bytes() == "echo ä\r\necho b\n".encode()

    def test_nothing_is_left_when_filling_fails(self, workspaces: Workspaces, tmp_path: Path) -> None:
        def fill(workspace: Workspace) -> None:
            (workspace.tree / "deep").mkdir()
            raise WorkspaceError("archive", "is gone")

        with pytest.raises(WorkspaceError, match="is gone"):
            workspaces.prepare(ONE, source=fill)
        assert os.listdir(tmp_path / "home" / "work") == []

    def test_full_disk_names_the_free_space(self, workspaces: Workspaces) -> None:
        def fill(workspace: Workspace) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(workspace.tree))

        with pytest.raises(HostFault, match=r"No space left on device.*\d+ MiB are free"):
            workspaces.prepare(ONE, source=fill)

    @pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.EMFILE])
    def test_fault_of_the_host_is_told_apart_also_where_a_source_explains_it(
        self, workspaces: Workspaces, number: int
    ) -> None:
        def fill(_: Workspace) -> None:
            try:
                raise OSError(number, os.strerror(number))
            except OSError as error:
                raise WorkspaceError("a.txt", "cannot be written", "Help") from error

        with pytest.raises(HostFault, match=r"a\.txt: cannot be written\. Help"):
            workspaces.prepare(ONE, source=fill)

    def test_fault_of_the_task_is_none_of_the_host(self, workspaces: Workspaces) -> None:
        def fill(_: Workspace) -> None:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))

        with pytest.raises(WorkspaceError, match="File name too long"):
            workspaces.prepare(ONE, source=fill)

    @pytest.mark.usefixtures("root")
    def test_really_full_disk_leaves_nothing(self, tmp_path: Path) -> None:
        home = tmp_path / "small"
        home.mkdir()
        with a_mount("-t", "tmpfs", "-o", "size=256k", "tmpfs", home):
            workspaces = Workspaces(home)
            with pytest.raises(HostFault, match="No space left on device"):
                workspaces.prepare(ONE, script="x" * 2**20)
            assert os.listdir(home / "work") == []

    def test_stale_folder_of_the_same_number_is_replaced(self, workspaces: Workspaces) -> None:
        (workspaces.prepare(ONE).tree / "old").touch()
        assert list(workspaces.prepare(ONE).tree.iterdir()) == []

    @pytest.mark.usefixtures("root")
    def test_everything_belongs_to_a_named_user(self, open_folder: Path) -> None:
        workspaces = Workspaces(open_folder / "home")

        def fill(workspace: Workspace) -> None:
            (workspace.tree / "d").mkdir()
            (workspace.tree / "d" / "link").symlink_to("/etc/passwd")

        before = os.stat("/etc/passwd").st_uid
        workspace = workspaces.prepare(
            ONE, source=fill, script="true", owner=owner_named("nobody"), layered_by="kernel"
        )
        paths = [workspace.folder, *workspace.folder.rglob("*")]
        assert {path.name for path in paths} == {
            "1",
            "tree",
            "d",
            "link",
            "files",
            "script",
            "inputs.json",
            "message",
            "tmp",
        }
        assert {path.lstat().st_uid for path in paths[1:]} == {owner_named("nobody")[0]} != {0}
        assert paths[0].stat().st_uid == 0
        assert os.stat("/etc/passwd").st_uid == before
        assert workspaces.remove(ONE) == ""

    @pytest.mark.usefixtures("root")
    def test_other_tasks_of_the_same_user_come_in_only_when_it_is_complete(self, open_folder: Path) -> None:
        """Other tasks could put links where root writes a file, or configure the git that root runs in the tree."""
        workspaces = Workspaces(open_folder / "home")

        def comes_in(workspace: Workspace) -> bool:
            look = f"import os; os.setuid({owner_named('nobody')[0]}); os.listdir({str(workspace.tree)!r})"
            return subprocess.run([sys.executable, "-c", look], capture_output=True, check=False).returncode == 0

        came_in = []
        workspace = workspaces.prepare(
            ONE, source=lambda made: came_in.append(comes_in(made)), owner=owner_named("nobody"), layered_by="kernel"
        )
        assert (came_in, comes_in(workspace)) == ([False], True)
        assert workspaces.remove(ONE) == ""

    @pytest.mark.usefixtures("root")
    def test_a_user_who_cannot_come_in_is_told_where_it_ends(self, tmp_path: Path) -> None:
        home = tmp_path / "a home"
        home.mkdir(mode=0o700)
        workspaces = Workspaces(home)
        with pytest.raises(WorkspaceError, match=r"'nobody' cannot pass through") as told:
            workspaces.prepare(ONE, owner=owner_named("nobody"), layered_by="kernel")
        assert shlex.split(told.value.remedy) == ["chmod", "o+x", str(home)]

    @pytest.mark.usefixtures("root")
    def test_a_user_comes_in_whatever_the_umask_is(self, open_folder: Path) -> None:
        (open_folder / "home").mkdir(mode=0o711)
        before = os.umask(0o077)
        try:
            workspaces = Workspaces(open_folder / "home")
            workspaces.prepare(ONE, owner=owner_named("nobody"), layered_by="kernel")
        finally:
            os.umask(before)
        assert workspaces.remove(ONE) == ""

    def test_a_work_folder_that_somebody_closed_stays_closed(self, tmp_path: Path) -> None:
        (tmp_path / "home" / "work").mkdir(parents=True, mode=0o700)
        Workspaces(tmp_path / "home")
        assert stat.S_IMODE((tmp_path / "home" / "work").stat().st_mode) == 0o700

    def test_unknown_user(self) -> None:
        with pytest.raises(WorkspaceError, match="there is no such user"):
            owner_named("nobody-at-all")


class TestOutputs:
    def read(self, workspaces: Workspaces, data: bytes) -> dict[str, object]:
        workspaces.prepare(ONE).output.write_bytes(data)
        outputs = workspaces.read_outputs(ONE)
        assert outputs.fault == ""
        return outputs.values

    def test_none_written(self, workspaces: Workspaces, workspace: Workspace) -> None:
        assert workspaces.read_outputs(workspace.attempt) == module.Outputs({})

    def test_no_workspace(self, workspaces: Workspaces) -> None:
        assert workspaces.read_outputs(TWO) == module.Outputs({})

    def test_lines(self, workspaces: Workspaces) -> None:
        assert self.read(workspaces, "a=1\n\nb.c-d=x=y \r\na=2\nü_=".encode()[:-4]) == {"a": "2", "b.c-d": "x=y "}

    def test_json(self, workspaces: Workspaces) -> None:
        assert self.read(workspaces, b' {"a": [1, {"b": null}]}\n') == {"a": [1, {"b": None}]}

    @pytest.mark.parametrize(
        ("data", "fault"),
        [
            (b"a=1\nb\n", "line 2 is not key=value"),
            (b"a=1\nb c=2\n", "line 2 is not key=value"),
            (b"[1]", "line 1"),
            (b"a=1\n\xff=2", "line 2: byte 0xff is not UTF-8"),
            (b"a=\0", "line 1"),
            (b'{"a":\n1', "line 2: it is not JSON"),
            (b'{"a": NaN}', "value that JSON has not"),
            (b'{"a": 1e999}', "value that JSON has not"),
            (b'{"a": "\\ud800"}', "value that JSON has not"),
            (b'{"a": ' + b"9" * 5000 + b"}", "value that JSON has not"),
            (b'{"a": "\\u0000"}', "NUL"),
            (b'{"a":' * 100_000, "nested too deeply"),
        ],
    )
    def test_malformed(self, data: bytes, fault: str) -> None:
        outputs = parse_outputs(data)
        assert outputs.values == {}
        assert fault in outputs.fault

    def test_a_wrong_value_for_arkqueue_itself_takes_no_other_output_away(self) -> None:
        outputs = parse_outputs(b"arkqueue.retry_after=soon\narkqueue.priority=high\nark=m5\n")
        assert outputs.values == {"ark": "m5"}
        assert outputs.fault == (
            "OUTPUT: arkqueue.priority is not a whole number from 0 to 1000; arkqueue.retry_after is not a number of seconds; "
            "the other outputs count"
        )
        assert "soon" not in outputs.fault
        outputs = parse_outputs(b'{"arkqueue.retry_after": true, "arkqueue.priority": 7}')
        assert (outputs.values, bool(outputs.fault)) == ({"arkqueue.priority": 7}, True)

    def test_an_escaped_backslash_is_no_nul(self) -> None:
        assert parse_outputs(rb'{"a": "\\u0000"}').values == {"a": r"\u0000"}

    def refused(self, workspaces: Workspaces, words: str) -> None:
        outputs = workspaces.read_outputs(ONE)
        assert outputs.values == {}
        assert words in outputs.fault

    @pytest.mark.parametrize("target", ["/etc/shadow", "/etc/passwd", "inputs.json", "/nowhere"])
    def test_symlink(self, workspaces: Workspaces, workspace: Workspace, target: str) -> None:
        workspace.output.symlink_to(target)
        self.refused(workspaces, "OUTPUT is a symlink")

    def test_symlink_that_appears_after_the_look(
        self, workspaces: Workspaces, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        workspace.output.symlink_to("/etc/passwd")
        # The link appears between the check and the read.
        monkeypatch.setattr(module, "_check", lambda *_: None)
        self.refused(workspaces, "OUTPUT cannot be read")

    def test_directory(self, workspaces: Workspaces, workspace: Workspace) -> None:
        workspace.output.mkdir()
        self.refused(workspaces, "is a directory")

    def test_fifo(self, workspaces: Workspaces, workspace: Workspace) -> None:
        os.mkfifo(workspace.output)
        self.refused(workspaces, "is a fifo")

    def test_socket(self, workspaces: Workspaces, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(workspace.files)  # a socket's path may be no longer than 108 bytes
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind("output")
            self.refused(workspaces, "is a socket")

    @pytest.mark.usefixtures("root")
    def test_device(self, workspaces: Workspaces, workspace: Workspace) -> None:
        os.mknod(workspace.output, 0o600 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero
        self.refused(workspaces, "is a device")

    def test_hard_link(self, workspaces: Workspaces, workspace: Workspace, tmp_path: Path) -> None:
        (tmp_path / "secret").write_text("a=1\n")
        os.link(tmp_path / "secret", workspace.output)
        self.refused(workspaces, "hard link")

    def test_one_gigabyte(self, workspaces: Workspaces, workspace: Workspace) -> None:
        with open(workspace.output, "wb") as file:
            file.truncate(2**30)
        self.refused(workspaces, "has 1073741824 bytes")

    def test_the_whole_limit(self, workspaces: Workspaces) -> None:
        assert self.read(workspaces, b"a=" + b"x" * (module.OUTPUT_LIMIT - 2)) == {"a": "x" * (module.OUTPUT_LIMIT - 2)}

    def test_workspace_replaced_by_a_symlink(
        self, workspaces: Workspaces, workspace: Workspace, tmp_path: Path
    ) -> None:
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / "output").write_text("a=1\n")
        workspace.files.rename(tmp_path / "files")
        workspace.files.symlink_to(elsewhere)
        self.refused(workspaces, "its folder was replaced")
        workspaces.remove(ONE)
        workspace.folder.symlink_to(elsewhere)
        self.refused(workspaces, "its folder was replaced")
        assert workspaces.remove(ONE) == ""
        assert (elsewhere / "output").exists()


class TestRemove:
    def test_symlinks_are_not_followed(self, workspaces: Workspaces, workspace: Workspace, tmp_path: Path) -> None:
        kept = tmp_path / "kept"
        kept.mkdir()
        (kept / "file").touch()
        (workspace.tree / "folder").symlink_to(kept)
        (workspace.tree / "file").symlink_to(kept / "file")
        assert workspaces.remove(ONE) == ""
        assert not workspace.folder.exists()
        assert (kept / "file").exists()

    def test_ten_thousand_deep(self, workspaces: Workspaces, workspace: Workspace) -> None:
        dig = "import os\nfor _ in range(10_000):\n  os.mkdir('a'); os.chdir('a')\nopen('file', 'w').close()"
        subprocess.run([sys.executable, "-c", dig], cwd=workspace.tree, check=True)
        assert workspaces.remove(ONE) == ""

    def test_a_usual_workspace_is_emptied_where_it_is(
        self, workspaces: Workspaces, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A folder for what is moved would cost as much as the rest of the removal."""
        (workspace.tree / "a" / "b").mkdir(parents=True)
        (workspace.tree / "a" / "b" / "file").touch()
        made: list[str] = []
        monkeypatch.setattr(os, "mkdir", lambda path, *_, **__: made.append(path))
        assert workspaces.remove(ONE) == ""
        assert not workspace.folder.exists()
        assert made == []

    def test_read_only_folders(self, open_folder: Path) -> None:
        done = subprocess.run(
            as_ordinary_user(
                open_folder,
                "os.makedirs(tree / 'a' / 'b' / 'c'); (tree / 'a' / 'b' / 'file').touch()",
                "os.chmod(tree / 'a' / 'b' / 'c', 0o000); os.chmod(tree / 'a' / 'b', 0o500)",
                "os.chmod(tree / 'a', 0o100); os.chmod(tree, 0o500); os.chmod(tree.parent, 0o000)",
                "print([workspaces.remove(1), os.listdir(tree.parent.parent)])",
            ),
            capture_output=True,
            text=True,
        )
        assert (done.stdout, done.stderr) == ("['', []]\n", "")

    @pytest.mark.usefixtures("root")
    def test_files_of_root_are_noted_and_the_rest_goes(self, open_folder: Path) -> None:
        work = open_folder / "home" / "work"
        program = as_ordinary_user(
            open_folder,
            "(tree / 'mine').mkdir(); (tree / 'mine' / 'file').touch()",
            "print(flush=True); input(); print(workspaces.remove(1), flush=True)",
        )
        with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdin is not None
            assert other.stdout is not None
            assert other.stdout.readline() == "\n"
            (work / "1" / "tree" / "root's" / "folder").mkdir(parents=True)
            (work / "1" / "tree" / "empty").mkdir()
            note, _ = other.communicate("\n")
        assert note.startswith('1 files of workspace 1 could not be removed, "root\'s" for one: ')
        left = {path.name for path in work.rglob("*") if not re.fullmatch(r"[.0-9]+", path.name)}
        assert left == {"root's", "folder"}
        assert Workspaces(open_folder / "home").sweep(live=()) == []
        assert os.listdir(work) == []

    def test_twice_is_no_fault(self, workspaces: Workspaces, workspace: Workspace) -> None:
        assert workspaces.remove(workspace.attempt) == ""
        assert workspaces.remove(workspace.attempt) == ""

    @pytest.mark.parametrize("at", ["the end of an attempt", "the start of a task manager"])
    def test_what_takes_long_to_remove_keeps_nobody_waiting(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
    ) -> None:
        """A million files are a minute. Their place is free at once."""
        work = tmp_path / "home" / "work"
        first = Workspaces(tmp_path / "home")
        for folder in range(20):
            (first.prepare(ONE).tree if not folder else work / "1" / "tree").joinpath(f"{folder}").mkdir()
            for file in range(20):
                (work / "1" / "tree" / f"{folder}" / f"{file}").touch()
        may_go_on, left = threading.Event(), removal.remove_folder
        monkeypatch.setattr(removal, "PATIENCE", 0.0)
        monkeypatch.setattr(
            ownership,
            "remove_folder",
            lambda *given, until=None, **more: (
                (until is not None or may_go_on.wait()) and left(*given, until=until, **more)
            ),
        )
        try:
            if at == "the end of an attempt":
                workspaces = first
                assert workspaces.remove(ONE) == ""
            else:
                workspaces = Workspaces(tmp_path / "home")
                assert workspaces.sweep(live=()) == []
            [aside] = os.listdir(work)
            assert aside.startswith(".1.")
            kept = workspaces.prepare(ONE)
            (kept.tree / "kept").touch()
        finally:
            may_go_on.set()
        eventually(lambda: os.listdir(work) == ["1"])
        assert os.listdir(kept.tree) == ["kept"]
        monkeypatch.undo()
        assert workspaces.remove(ONE) == ""

    def test_sweep_removes_dead_attempts_and_nothing_else(self, workspaces: Workspaces, tmp_path: Path) -> None:
        for attempt in (ONE, TWO):
            (workspaces.prepare(attempt).tree / "folder").mkdir()
        work = tmp_path / "home" / "work"
        (work / ".1.5.6").mkdir()  # a removal was interrupted
        (work / "a-stranger's").mkdir()
        assert workspaces.sweep(live={TWO}) == []
        assert sorted(os.listdir(work)) == ["2", "a-stranger's"]
        (work / "a-stranger's").rmdir()

    def test_attempts_of_processes_are_told_from_those_of_containers(
        self, workspaces: Workspaces, tmp_path: Path
    ) -> None:
        workspaces.prepare(ONE)
        workspaces.prepare(TWO, layered_by="engine", image="sha256:0")
        stranger = tmp_path / "home" / "work" / "a-stranger's"
        stranger.mkdir()
        assert workspaces.of_processes() == [ONE]
        stranger.rmdir()

    def test_no_descriptor_is_left(self, workspaces: Workspaces) -> None:
        def turn(attempt: int) -> None:
            workspace = workspaces.prepare(AttemptId(attempt), script="x")
            (workspace.tree / "a" / "b").mkdir(parents=True)
            workspace.output.symlink_to("/etc/passwd")
            workspaces.read_outputs(AttemptId(attempt))
            workspaces.remove(AttemptId(attempt))

        turn(1)
        before = len(os.listdir("/proc/self/fd"))
        for attempt in range(50):
            turn(attempt)
        assert len(os.listdir("/proc/self/fd")) <= before
