"""Attachments through the whole installation: sent by the command line, cut off, continued, and
found by tasks (design 5.31).
"""

from __future__ import annotations

import hashlib
import os
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from arkqueue.cli import attach
from arkqueue.cli.client import Client
from tests.requirements import a_mount
from tests.system.end_to_end.conftest import Archives, Installations
from tests.system.end_to_end.installation import Installation, tasks
from tests.waiting import PATIENCE, eventually

FILES = {
    "check": {"on": "submission", "checkout": "none", "command": 'cd "$ARKQUEUE_ATTACHMENTS" && find . -type f | sort && cat "$ARKQUEUE_SUBMISSION"'},
    "sums": {"on": "submission", "checkout": "none", "command": 'cd "$ARKQUEUE_ATTACHMENTS" && sha256sum big.bin'},
}  # fmt: skip
LONG = 160 << 20
"""Bytes of a file that is sent in three pieces."""


def a_long_file(tmp_path: Path) -> tuple[Path, str]:
    """A file with holes, and its digest."""
    file = tmp_path / "big.bin"
    with file.open("wb") as stream:
        for place in range(0, LONG, LONG // 8):
            stream.seek(place)
            stream.write(b"%d" % place)
        stream.truncate(LONG)
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while piece := stream.read(1 << 20):
            digest.update(piece)
    return file, digest.hexdigest()


def test_files_and_folders_are_handed_in_and_found(shared: Installation, archives: Archives, tmp_path: Path) -> None:
    papers = archives(shared, hook=False)
    papers.commit(tasks({"check": FILES["check"]}))
    scans = tmp_path / "scans"
    (scans / "of may").mkdir(parents=True)
    (scans / "1.tif").write_bytes(b"1")
    (scans / "of may" / "ä.tif").write_bytes(b"")
    cover = tmp_path / "cover.tif"
    cover.write_bytes(b"c" * 100)
    batch = tmp_path / "batch.json"
    batch.write_text("{}")
    done = shared("submit", papers.name, batch, "--id", "m5", "--attach", scans, cover)
    assert (done.out, done.err) == (f"{papers.name}@2.2\n", "")
    papers.wait_for_run(2, run=2)
    found = "./cover.tif\n./scans/1.tif\n./scans/of may/ä.tif\n{}\n"
    assert shared("logs", f"{papers.name}@id:m5/check").out == found
    again = shared("submit", papers.name, batch, "--json", "--id", "m5", "--attach", scans, cover).json
    assert (again["run"]["full_name"], again["attachments"], again["attached"]) == (f"{papers.name}@2.2", 3, 101)
    cover.write_bytes(b"d")
    refused = shared("submit", papers.name, batch, "--id", "m5", "--attach", scans, cover, code=1)
    assert "with other attachments" in refused.err
    shown = shared("show", f"{papers.name}@id:m5").out
    assert f"3 files, 0.0 MiB, on {socket.gethostname()}\n" in shown
    assert "and attachments, 3 files of 101 bytes" in shown
    for option in (["--dry-run"], []):
        deleted = shared("delete", f"{papers.name}@2.2", *option).out.splitlines()
        assert deleted[-1] == "  its attachments (3 files, 0.0 MiB) are removed, and undelete does not bring them back"


def test_what_cannot_be_attached_is_named(shared: Installation, archives: Archives, tmp_path: Path) -> None:
    papers = archives(shared)
    papers.commit(tasks({"check": FILES["check"]}))
    batch = tmp_path / "batch.json"
    batch.write_text("{}")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link").symlink_to("/etc/passwd")

    def refused(*paths: Path) -> str:
        return shared("submit", papers.name, batch, "--id", "x", "--attach", *paths, code=2).err

    assert "folder/link: is a link. Name files, or folders with nothing else in them." in refused(folder)
    (folder / "link").unlink()
    os.mkfifo(folder / "pipe")
    assert "folder/pipe: is no regular file" in refused(folder)
    (folder / "pipe").unlink()
    assert "there are none; name a file" in refused(folder)
    assert "No such file or directory" in refused(tmp_path / "missing")
    (folder / "batch.json").write_text("")
    assert "'batch.json' is given twice" in refused(batch, folder / "batch.json")
    (folder / "a\x1bb").write_text("")
    said = refused(folder)
    assert "has a control character" in said
    assert "\x1b" not in said
    (folder / os.fsdecode(b"\xff")).write_text("")
    assert "its name is not UTF-8" in refused(folder)
    begun = "select u.id from upload u join archive a on a.id = u.archive_id where a.name = %s"
    assert shared.sql(begun, papers.name) == []


@pytest.mark.full
def test_an_upload_survives_the_death_of_the_server_at_any_byte(
    installations: Installations, archives: Archives, tmp_path: Path
) -> None:
    """The command goes on by itself when the server is back; one that was killed is given again."""
    arkqueue = installations()
    server = arkqueue.start()
    papers = archives(arkqueue)
    papers.commit(tasks(FILES))
    papers.wait_for_run(2)
    batch = tmp_path / "batch.json"
    batch.write_text("{}")
    file, digest = a_long_file(tmp_path)

    def come() -> int:
        return sum(one.stat().st_size for one in server.home.glob("scratch/*/attachments/*/parts/*"))

    words = "submit", papers.name, str(batch), "--id", "long", "--attach", str(file)
    with arkqueue.begun(*words) as first:
        eventually(lambda: come() > attach.PIECE)
        first.kill()
        first.wait(PATIENCE)
    cut_at = come()
    assert 0 < cut_at < LONG
    with arkqueue.begun(*words) as second:
        # It goes on, or has come to its end. A command that finds no server at its start gives up.
        eventually(lambda: come() != cut_at)
        server.kill()
        server = arkqueue.start()
        out, err = second.communicate(timeout=PATIENCE)
    assert (out, err, second.returncode) == (f"{papers.name}@2.2\n", "", 0)
    papers.wait_for_run(2, run=2)
    assert arkqueue("logs", f"{papers.name}@id:long/sums").out == f"{digest}  big.bin\n"


def test_a_command_that_gives_up_says_how_to_continue(
    installations: Installations, archives: Archives, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arkqueue = installations()
    arkqueue.start()
    papers = archives(arkqueue)
    papers.commit(tasks({"check": FILES["check"]}))
    papers.wait_for_run(2)
    batch, file, other = tmp_path / "batch.json", tmp_path / "file", tmp_path / "other"
    batch.write_text("{}")
    file.write_bytes(b"as it was")
    other.write_bytes(b"not alike")
    begin, changed = attach.announce, threading.Event()

    def announce(*arguments: object) -> object:
        told = begin(*arguments)  # type: ignore[arg-type]
        file.write_bytes(b"as it is!")
        changed.set()
        return told

    monkeypatch.setattr(attach, "announce", announce)
    done = arkqueue("submit", papers.name, batch, "--attach", file, other, code=2)
    assert changed.is_set()
    assert "file: has the SHA-256" in done.err
    said = "the server keeps the received bytes for a day. To continue: the same command with --id "
    assert said in done.err
    assert done.out == ""
    file.write_bytes(b"as it was")
    monkeypatch.undo()
    id = done.err.partition(said)[2].split()[0]
    # The files may be named in another order: each goes where it belongs.
    made = arkqueue("submit", papers.name, batch, "--id", id, "--attach", other, file).out.strip()
    papers.wait_for_run(2, run=2)
    assert made == f"{papers.name}@2.2"
    assert arkqueue("logs", f"{made}/check").out == "./file\n./other\n{}\n"


@pytest.mark.full
def test_a_file_of_more_than_two_gibibytes_is_handed_in(
    installations: Installations, archives: Archives, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signed number of 32 bits does not hold its size. All but the last piece is a hole that the
    server has received already: only offsets beyond 2 GiB are of interest here.
    """
    long = (2 << 30) + 4
    file, batch = tmp_path / "big.bin", tmp_path / "batch.json"
    batch.write_text("{}")
    with file.open("wb") as stream:
        stream.truncate(long - 3)
        stream.seek(0, os.SEEK_END)
        stream.write(b"end")
    arkqueue = installations()
    server = arkqueue.start()
    papers = archives(arkqueue)
    command = 'cd "$ARKQUEUE_ATTACHMENTS" && stat -c %s big.bin && tail -c 3 big.bin'
    papers.commit(tasks({"check": {"on": "submission", "checkout": "none", "command": command}}))
    papers.wait_for_run(2)
    send, received = attach.send, (2 << 30) + 1

    def send_the_end(client: Client, upload: Any, files: Sequence[attach.File]) -> None:
        (parts,) = server.home.glob("scratch/*/attachments/*/parts")
        with (parts / "0").open("xb") as part:
            part.truncate(received)
        send(client, client.get(f"/uploads/{upload['id']}"), files)

    monkeypatch.setattr(attach, "send", send_the_end)
    made = arkqueue("submit", papers.name, batch, "--id", "big", "--attach", file).out.strip()
    papers.wait_for_run(2, run=2)
    assert arkqueue("logs", f"{made}/check").out.split() == [str(long), "end"]


@pytest.mark.usefixtures("root")
def test_a_full_disk_ends_the_command_which_goes_on_when_there_is_room(
    installations: Installations, archives: Archives, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, batch, file = tmp_path / "disk", tmp_path / "batch.json", tmp_path / "big.bin"
    batch.write_text("{}")
    file.write_bytes(os.urandom(2_800_000))
    disk.mkdir()
    with a_mount("-t", "tmpfs", "-o", "size=4m", "tmpfs", disk):
        arkqueue = installations(scratch_folder=str(disk / "scratch"), min_free=0)
        server = arkqueue.start()
        papers = archives(arkqueue)
        papers.commit(tasks({"sums": FILES["sums"]}))
        papers.wait_for_run(2)
        send, filler = attach.send, disk / "filler"

        def fill_and_send(*arguments: Any) -> None:
            filler.write_bytes(b"x" * 2_500_000)
            send(*arguments)

        monkeypatch.setattr(attach, "send", fill_and_send)
        words = "submit", papers.name, batch, "--id", "m5", "--attach", file
        refused = arkqueue(*words, code=1)
        assert "do not fit on the disk" in refused.err
        assert "the server keeps the received bytes for a day. To continue: the same command" in refused.err
        assert refused.out == ""
        filler.unlink()
        monkeypatch.undo()
        assert arkqueue(*words).out == f"{papers.name}@2.2\n"
        papers.wait_for_run(2, run=2)
        assert (
            arkqueue("logs", f"{papers.name}@id:m5/sums").out
            == f"{hashlib.sha256(file.read_bytes()).hexdigest()}  big.bin\n"
        )
        server.stop()


def test_a_refused_document_leaves_its_id_free_and_an_upload_can_be_ended(
    shared: Installation, archives: Archives, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    papers = archives(shared)
    papers.commit(tasks({"check": FILES["check"]}))
    papers.wait_for_run(2)
    batch, file = tmp_path / "batch.json", tmp_path / "file"
    batch.write_text("{")
    file.write_bytes(b"wrong")

    def submit(*words: str | Path, code: int = 0) -> str:
        return shared("submit", papers.name, *words, "--id", "m5", code=code).err

    assert "1 fault" in submit(batch, "--attach", file, code=2)
    file.write_bytes(b"right")
    send = attach.send

    def cut_off(*_: object) -> None:
        raise KeyboardInterrupt

    batch.write_text("{}")
    monkeypatch.setattr(attach, "send", cut_off)
    assert "To continue: the same command" in submit(batch, "--attach", file, code=130)
    monkeypatch.setattr(attach, "send", send)
    end = f"arkqueue submit {papers.name} --id m5 --end-upload"
    assert end in submit(batch, code=1)
    assert "takes the archive and --id" in submit(batch, "--end-upload", code=2)
    assert submit("--end-upload") == f"{papers.name}@id:m5: its upload has ended\n"
    assert "has no upload" in submit("--end-upload", code=1)
    submit(batch)
    papers.wait_for_run(2, run=2)


def test_a_web_process_beside_no_task_manager_says_so(
    installations: Installations, archives: Archives, tmp_path: Path
) -> None:
    """Roles on hosts of their own: the task manager's home folder is another one, until both share a scratch folder."""
    arkqueue = installations()
    web = arkqueue.start("web", home="web")
    for role in ("manager", "worker"):
        arkqueue.start(role, home=role)
    papers = archives(arkqueue)
    papers.commit(tasks({"check": FILES["check"]}))
    papers.wait_for_run(2)
    batch, file = tmp_path / "batch.json", tmp_path / "file"
    batch.write_text("{}")
    file.write_bytes(b"x")
    refused = arkqueue("submit", papers.name, batch, "--id", "x", "--attach", file, code=1)
    assert "is not shared, and no task manager has its home folder" in refused.err
    arkqueue.configure(scratch_folder=str(tmp_path / "shared"), scratch_shared=True)
    web.stop()
    arkqueue.start("web", home="web")
    arkqueue("submit", papers.name, batch, "--id", "x", "--attach", file)
    assert "the attachments of its run are on the host" in arkqueue("explain", f"{papers.name}@id:x/check").out
    arkqueue.start("worker", home="another")
    papers.wait_for_run(2, run=2)
    assert arkqueue("logs", f"{papers.name}@id:x/check").out == "./file\n{}\n"
