"""Attachments as tasks of real task managers find them: in a process and in a container, and nobody
can write to them (design 5.31).
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
from pathlib import Path

import pytest

from arkqueue.db.session import Session
from arkqueue.model import ArchiveId, Attachment, RunId
from arkqueue.queue import attachments, claim, deletion, holds, purge
from arkqueue.queue.submissions import Upload
from arkqueue.task_manager import TaskManager
from arkqueue.workflow.attachments import digest_of
from arkqueue.workspace import AttachmentFolders
from tests.builders import AnArchive
from tests.system.task_manager.boxes import Boxes, boxes
from tests.system.task_manager.conftest import Managers, log_of, settled
from tests.waiting import eventually

__all__ = ["boxes"]

FILES = {"scans/ä b.tif": b"one\n", "empty": b""}
READ = 'cd "$ARKQUEUE_ATTACHMENTS" && cat "scans/ä b.tif" empty && find . -type f | sort && ! touch new 2>/dev/null && ! rm empty 2>/dev/null && echo kept'
READS = "one\n./empty\n./scans/ä b.tif\nkept\n"


def hand_in(archive: AnArchive, manager: TaskManager, home: Path, sender_id: str = "x", **options: str) -> int:
    """A submission with files that have come to the store of a task manager."""
    session = archive.session
    files = [Attachment(name, len(data), hashlib.sha256(data).hexdigest()) for name, data in FILES.items()]
    store = manager.host
    begun = attachments.begin(
        session, ArchiveId(archive.id), archive.name, sender_id, files, store, "ann", most=99, room=0
    )
    assert begun.id is not None
    assert begun.folder is not None
    folders = AttachmentFolders(home / "scratch", claim.installation(session))
    folders.make(begun.folder)
    for position, data in enumerate(FILES.values()):
        part = folders.open(begun.folder, position)
        part.write(data)
        part.close()
        attachments.is_there(session, begun.id, position)
    folders.seal(begun.folder, FILES)
    return archive.submit(sender_id=sender_id, upload=Upload(begun.id, store, digest_of(files)), **options)


def there(home: Path) -> list[Path]:
    return list(home.glob("scratch/*/attachments/*"))


def process(text: str, **fields: str) -> str:
    given = {"on": "submission", "checkout": "none", "command": json.dumps(text), **fields}
    return "".join(f"{key}: {value}\n" for key, value in given.items())


def test_every_task_as_a_process_finds_them_and_cannot_change_them(
    archive: AnArchive, managers: Managers, home_folder: Path
) -> None:
    """Also root, where the kernel lets the task manager mount."""
    manager = managers()
    archive.commit({"check": process(READ), "REPORT": f"checkout: none\ncommand: {json.dumps(READ)}"})
    hand_in(archive, manager, home_folder)
    settled(archive, "check@2.2", "completed")
    settled(archive, "REPORT@2.2", "completed")
    assert log_of(archive, "check@2.2") == log_of(archive, "REPORT@2.2") == READS
    (folder,) = there(home_folder)
    assert {one.read_bytes() for one in folder.rglob("*") if one.is_file()} == {*FILES.values()}
    # Where the kernel lets nobody mount, the modes stop who is not root.
    assert {one.stat().st_mode & 0o777 for one in (folder / "files").rglob("*") if one.is_file()} == {0o444}
    assert {one.stat().st_mode & 0o777 for one in (folder / "files", folder / "files" / "scans")} == {0o555}
    assert not list(home_folder.glob("work/*/files/attachments/*"))
    # What has none has no variable.
    archive.submit()
    settled(archive, "check@2.3", "failed")


def test_a_task_in_a_container_finds_them_read_only(
    archive: AnArchive, boxes: Boxes, managers: Managers, home_folder: Path
) -> None:
    manager = managers(**boxes.settings)
    archive.commit(
        {
            user: boxes.task(f'echo "$ARKQUEUE_ATTACHMENTS" && {READ}', on="submission", user=user)
            for user in ("root", "nobody")
        }
    )
    hand_in(archive, manager, home_folder)
    for user in ("root", "nobody"):
        settled(archive, f"{user}@2.2", "completed")
        assert log_of(archive, f"{user}@2.2") == f"/arkqueue/attachments\n{READS}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs tasks as other users")
def test_a_process_of_another_user_finds_them(archive: AnArchive, managers: Managers, home: Path) -> None:
    archive.sql('update archive set settings = settings || \'{"process_user": "nobody"}\' where id = %s', archive.id)
    home.chmod(0o711)
    manager = managers(home=home)
    archive.commit({"check": process(f"id -u; {READ}")})
    hand_in(archive, manager, home)
    settled(archive, "check@2.2", "completed")
    assert log_of(archive, "check@2.2") == f"{pwd.getpwnam('nobody').pw_uid}\n{READS}"


def test_a_task_fails_whose_attachments_are_gone(
    archive: AnArchive, managers: Managers, home_folder: Path, session: Session
) -> None:
    manager = managers()
    archive.commit({"check": process(READ)})
    hand_in(archive, manager, home_folder, is_held=True)  # type: ignore[arg-type]
    (folder,) = there(home_folder)
    folder.rename(home_folder / "elsewhere")
    holds.release(session, archive.task("check@2.2"), "ann")
    settled(archive, "check@2.2", "failed")
    (attempt,) = archive.sql("select message from attempt")
    assert "are gone. Submit them again, with another id" in attempt["message"]


def test_they_go_with_the_deletion_of_the_run_and_with_its_purge(
    archive: AnArchive, managers: Managers, home_folder: Path, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arkqueue.task_manager.scratch.PACE", 0.05)
    manager = managers(sweep="100ms")
    archive.commit({"check": process("true")})
    first = hand_in(archive, manager, home_folder)
    settled(archive, "check@2.2", "completed")
    second = hand_in(archive, manager, home_folder, "y")
    settled(archive, "check@2.3", "completed")
    assert len(there(home_folder)) == 2
    deletion.delete_run(session, RunId(first), "ann")
    eventually(lambda: len(there(home_folder)) == 1)
    purge.purge_runs(session, [RunId(second)], "ann", "old")
    eventually(lambda: there(home_folder) == [])
    assert [row["removed"] for row in archive.sql("select removed_at is not null as removed from upload")] == [True]
