"""The output of `--dry-run` for a manual run, a submission and a backfill: the plan, and the
obstacles to a start. All three use the same form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from arkqueue.db.session import Session
from arkqueue.model import ArchiveId
from arkqueue.queue import archives, claim
from tests.builders import HOST, PROCESS, AnArchive, an_archive
from tests.system.cli.conftest import Cli
from tests.system.cli.test_runs import UNMANAGED

ON = "on: [commit, manual, submission]"
Preview = Callable[..., "Said"]


class Said(list[str]):
    """The lines of a preview, and its exit code."""

    code: int

    def begins(self, start: str) -> bool:
        return any(line.startswith(start) for line in self)


KINDS = ("a run by hand", "a submission", "a backfill")


@pytest.fixture
def preview(arkqueue: Cli, tmp_path: Path) -> Preview:
    """Says what would run at the head of papers, or in a backfill of the task ``work`` that begins before it."""
    (tmp_path / "batch.json").write_text("[]")
    words: dict[str, Sequence[str]] = {
        "a run by hand": ("trigger", "papers", "work"),
        "a submission": ("submit", "papers", str(tmp_path / "batch.json")),
        "a backfill": ("trigger", "papers", "work", "--from", "2"),
    }

    def said(kind: str = "a run by hand") -> Said:
        done = arkqueue(*words[kind], "--dry-run")
        assert done.out == ""
        lines = Said(done.err.splitlines())
        lines.code = done.code
        return lines

    return said


def an_archive_with(session: Session, work: str = "") -> AnArchive:
    archive = an_archive(session)
    for _ in range(2):
        archive.commit({"work": f"{ON}\n{work}"})
    return archive


def test_all_of_them_say_alike_what_would_run_and_what_is_in_the_way(
    preview: Preview, session: Session, arkqueue: Cli
) -> None:
    archive = an_archive_with(session)
    claim.register(session, PROCESS, HOST, "build-1", 4)
    for kind in KINDS:
        said = preview(kind)
        assert said.code == 0, kind
        assert "  work" in said
        assert not [line for line in said if line.startswith("  ") and line != "  work"], said
    assert arkqueue("hold", "papers").code == 0
    for kind in KINDS:
        assert "  work is held by the hold of its archive until somebody releases it" in preview(kind), kind
    assert arkqueue("unhold", "papers").code == 0
    assert arkqueue("archive", "set", "papers", "require-approval", "work").code == 0
    for kind in KINDS:
        assert "  work is held by require-approval until somebody releases it" in preview(kind), kind
    assert arkqueue("pause", "papers").code == 0
    for kind in KINDS:
        assert preview(kind).begins("  papers is paused since "), kind
    archives.stop(session, ArchiveId(archive.id), "it has another UUID")
    for kind in KINDS:
        said = preview(kind)
        assert said.code == 1, kind
        assert "is stopped" in said[-1]
    assert {key for key in archive.states() if key.endswith((".2", ".3"))} == set(), "nothing was made"


def test_what_its_workflow_file_holds_is_said(preview: Preview, session: Session) -> None:
    an_archive_with(session, "hold: true")
    assert "  work is held by its workflow file (hold: true) until somebody releases it" in preview()


def test_no_task_manager_or_none_that_fits_is_in_the_way(preview: Preview, session: Session, arkqueue: Cli) -> None:
    an_archive_with(session, "runs_on: [gpu]")
    assert UNMANAGED.rstrip("\n") + " --label gpu" in preview()
    claim.register(session, PROCESS, HOST, "build-1", 4)
    lacks = "  work cannot start: no running task manager has the label gpu (`runs_on`). To change that: arkqueue worker --label gpu"
    for kind in KINDS:
        assert lacks in preview(kind), kind
    claim.register(session, "manager-2", "host-2", "build-2", 4, labels=["gpu"])
    assert not preview().begins("  work cannot start")
    assert arkqueue("drain", "--worker", "build-2", "--reason", "new disks").code == 0
    said = preview()
    assert said.begins("  work cannot start: no host can start it for now. build-2: it was drained at ")
    assert any(line.endswith("new disks. To change that: arkqueue resume --worker build-2") for line in said)


def test_a_pause_a_limit_and_locks_are_in_the_way(preview: Preview, session: Session, arkqueue: Cli) -> None:
    archive = an_archive_with(session, "lock: [disk]")
    claim.register(session, PROCESS, HOST, "build-1", 4)
    mint = "depends: [{task: mint, optional: true}]"
    archive.commit({"mint": ON, "work": f"{ON}\n{mint}\nlock: [disk, 'vm-${{{{ needs.mint.ark }}}}']"})
    assert arkqueue("archive", "set", "papers", "max-running", "1").code == 0
    archive.attempt("work@2")
    said = preview()
    assert "  papers already runs as many tasks as its limit allows (max_running is 1). To see them: arkqueue runs papers --state processing" in said  # fmt: skip
    assert (
        "  work waits for the lock papers/disk, which papers@2/work has. To see them: arkqueue lock list papers" in said
    )
    assert "  work may have to wait for the lock vm-${{ needs.mint.ark }}: its name is known only when the task asks for it." in said  # fmt: skip
    for words in (["papers"], ["--lock", "papers/disk"]):
        assert arkqueue("pause", *words, "--reason", "a move").code == 0
    said = "\n".join(preview())
    assert re.search(
        r"  papers is paused since .*: a move; none of its tasks starts until it is resumed\. To change that: arkqueue resume papers\n",
        said,
    )
    assert re.search(
        r"  work waits for the lock papers/disk, which is paused since .*: a move\. To change that: arkqueue resume --lock papers/disk\n",
        said,
    )
    assert arkqueue("resume", "papers").code == 0
    said = "\n".join(preview())
    assert "papers is paused" not in said
    assert "the lock papers/disk, which is paused" in said


def test_what_a_run_would_stop_is_said(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "cancels: [PREV:a]", "c": "cancels: [{task: PREV:a, only: unstarted}]"})
    archive.attempt("a@2")
    said = arkqueue("trigger", "papers", "a", "b", "c", "--dry-run").err.splitlines()
    assert "  b stops papers@2/a (running)" in said
    assert "  c" in said, "it leaves alone what has begun"


def test_locks_of_items_have_the_names_that_they_will_have(arkqueue: Cli, session: Session, tmp_path: Path) -> None:
    archive = an_archive(session)
    claim.register(session, PROCESS, HOST, "build-1", 4)
    archive.commit({"store": "on: [submission, commit]\nlock: ['disk-${{ item.disk }}']\nforeach: [{key: a, disk: 1}, {key: b, disk: 2}]"})  # fmt: skip
    archive.run("store/a@2")
    (tmp_path / "batch.json").write_text("{}")
    said = arkqueue("submit", "papers", str(tmp_path / "batch.json"), "--dry-run").err.splitlines()
    assert [line for line in said if "lock" in line] == [
        "  store waits for the lock papers/disk-2, which papers@2/store/b has. To see them: arkqueue lock list papers"
    ]


def test_a_submission_is_judged_and_nothing_is_made(arkqueue: Cli, session: Session, tmp_path: Path) -> None:
    archive = an_archive(session)
    claim.register(session, PROCESS, HOST, "build-1", 4)
    archive.commit({"store": "on: submission\nforeach: submission"})
    batch = tmp_path / "batch.json"
    words = ("submit", "papers", str(batch), "--id", "b1")
    batch.write_text('["a", "a"]')
    done = arkqueue(*words, "--dry-run")
    assert (done.code, done.out) == (2, "")
    assert "'a'" in done.err, "the fault of the document"
    batch.write_text('["a", "b"]')
    done = arkqueue(*words, "--dry-run", "--hold")
    assert done.err.splitlines()[1:] == [
        "papers@2.2: 2 tasks",
        "  store/a is held by --hold until somebody releases it",
        "  store/b is held by --hold until somebody releases it",
        "Nothing is made.",
    ]
    found = arkqueue(*words, "--dry-run", "--json", "--attach", str(batch)).json
    assert ([task["item"] for task in found["tasks"]], found["obstacles"]) == (["a", "b"], [])
    assert archive.sql("select count(*) as n from payload_part")[0]["n"] == 0
    assert archive.sql("select count(*) as n from submission")[0]["n"] == 0
    first = arkqueue(*words)
    assert (first.out, "second run" in first.err) == ("papers@2.2\n", False)
    for again in (arkqueue(*words), arkqueue(*words, "--dry-run")):
        assert again.out == "papers@2.2\n", "the id has its run"
        assert re.fullmatch(r"arkqueue: papers@id:b1 was submitted on .* UTC: no second run was made\n", again.err)
    arkqueue("cancel", "papers@2.2")
    arkqueue("delete", "papers@2.2")
    assert "second run" not in (deleted := arkqueue(*words).err)
    assert "is deleted" in deleted


@pytest.mark.parametrize("words", [("submit", "papers@2", "-"), ("trigger", "papers@2")])
def test_a_revision_behind_the_name_of_the_archive_is_answered_with_the_option(
    arkqueue: Cli, words: tuple[str, ...]
) -> None:
    done = arkqueue(*words)
    assert done.code == 2
    file = " FILE" if words[0] == "submit" else ""
    assert f"revision with --revision: arkqueue {words[0]} papers{file} --revision 2" in " ".join(done.err.split())
