"""Submissions through the whole installation: scanned for, run with their items and their payload,
and known by their ids.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.repositories import GitRepository
from tests.system.end_to_end.conftest import Archives, Installations
from tests.system.end_to_end.installation import Installation, tasks

FILES = {
    "check": {"on": "submission", "checkout": "none", "command": "cat $ARKQUEUE_SUBMISSION; echo; echo $ARKQUEUE_TRIGGER $ARKQUEUE_SUBMISSION_ID $(basename $ARKQUEUE_SUBMISSION)"},
    "deposit": {"foreach": "submission", "key": "ark", "checkout": "none", "depends": ["check"], "command": "echo $ARKQUEUE_ITEM; env | grep ^ARKQUEUE_SUB | sort"},
}  # fmt: skip
BATCH = "ark,size\n13030/m5,3\n13030/q2,4\n"


def test_a_batch_is_submitted_right_after_the_commit_of_its_workflow(
    shared: Installation, archives: Archives, tmp_path: Path
) -> None:
    """No hook tells of the commit: the scan before the submission finds it."""
    papers = archives(shared, hook=False)
    batch = tmp_path / "batch.csv"
    batch.write_text(BATCH)
    papers.commit(tasks(FILES))
    done = shared("submit", papers.name, batch, "--id", "May 7")
    assert (done.out, done.err) == (f"{papers.name}@2.2\n", "")
    again = shared("submit", papers.name, batch, "--id", "May 7", "--json").json
    assert (again["run"]["full_name"], again["full_name"]) == (f"{papers.name}@2.2", f"{papers.name}@id:May%207")
    run = papers.wait_for_run(2, run=2)
    assert {task["full_name"].partition("/")[2] for task in run["tasks"]} == {"COMMIT", "check", "deposit/13030%2Fm5", "deposit/13030%2Fq2"}  # fmt: skip
    name = f"{papers.name}@id:May%207"
    assert shared("logs", f"{name}/check").out == f"{BATCH}\nsubmission May 7 submission.csv\n"
    item, *variables = shared("logs", f"{name}/deposit/13030%2Fm5").out.splitlines()
    assert json.loads(item) == {"ark": "13030/m5", "size": "3"}
    assert variables == ["ARKQUEUE_SUBMISSION_ID=May 7"]
    assert shared("show", name, "--payload").raw == BATCH.encode()
    shown = shared("show", name).out
    assert f"submission  {name}" in shown
    assert "submit" in shown
    listed = shared("runs", papers.name, "--trigger", "submission").out
    assert f"{papers.name}@2.2" in listed
    assert "id:May%207: " in listed
    assert shared("show", f"{name}/*/13030%2Fm5").out.startswith(f"{papers.name}@2.2/*/13030%2Fm5")
    assert f"{papers.name}@2 " not in listed
    shared("delete", name)
    gone = shared("submit", papers.name, batch, "--id", "May 7")
    undelete = f"arkqueue undelete {papers.name}@2.2"
    fault = (
        f"was submitted before, and is deleted. To bring it back: {undelete}. Give a new submission an id of its own."
    )
    assert (gone.out, gone.err) == (f"{papers.name}@2.2\n", f"arkqueue: {name}: {fault}\n")


def test_what_was_just_committed_is_triggered(shared: Installation, archives: Archives, kind: str) -> None:
    papers = archives(shared, kind, hook=False)
    build = {"build": {"command": "true", "checkout": "none"}}
    papers.commit(tasks(build))
    assert shared("trigger", papers.name, "build").out == f"{papers.name}@2.2\n"
    papers.commit({"a": "b"})
    newest = papers.repository.id() if isinstance(papers.repository, GitRepository) else papers.repository.head
    assert shared("trigger", papers.name, "--revision", newest, "build").out == f"{papers.name}@3.2\n"
    papers.wait_for_run(3, run=2)


def test_faults_are_listed_and_exit_codes_say_what_they_are(shared: Installation, archives: Archives, tmp_path: Path) -> None:  # fmt: skip
    papers = archives(shared)
    papers.commit(tasks(FILES))
    papers.wait_for_run(2)
    batch = tmp_path / "batch.txt"
    batch.write_text("a\na\n\na\n")
    refused = shared("submit", papers.name, batch, code=2)
    assert [line.partition(": foreach")[0] for line in refused.err.splitlines()[:2]] == ["payload:2:1", "payload:4:1"]
    assert refused.err.splitlines()[2].startswith("arkqueue: the payload: has 2 faults. Nothing is planned."), "each fault is said once"  # fmt: skip
    assert "arkqueue: --id: is not a valid id" in shared("submit", papers.name, batch, "--format", "lines", "--id", "x" * 201, code=2).err  # fmt: skip
    assert "does not show its format" in shared("submit", papers.name, tmp_path / "batch", code=2).err
    assert shared("submit", papers.name, "--format", "lines", batch, "--hold", "--id", "a\nb", code=2).out == ""
    batch.write_text("a\nb\n")
    name = shared("submit", papers.name, batch, "--hold").out.strip()
    assert name == f"{papers.name}@2.2"
    assert papers.state("check@2.2") == "held"
    other = tmp_path / "other.txt"
    other.write_text("c\n")
    shared("submit", papers.name, batch, "--id", "x")
    assert "with another payload" in shared("submit", papers.name, other, "--id", "x", code=1).err


@pytest.mark.full
def test_a_submission_says_that_nobody_has_scanned(installations: Installations, archives: Archives, tmp_path: Path) -> None:  # fmt: skip
    """The API alone runs: after a while it is known that there is no queue manager, and before that it is waited for for a short time."""
    arkqueue = installations()
    serve = arkqueue.start()
    papers = archives(arkqueue)
    papers.commit(tasks(FILES))
    papers.wait_for_run(2)
    serve.stop()
    arkqueue.start("web")
    batch = tmp_path / "batch.yaml"
    batch.write_text("- {ark: a}\n")
    done = arkqueue("submit", papers.name, batch)
    assert done.out == f"{papers.name}@2.2\n"
    assert f"{papers.name}: its repository was not scanned within 5 s. What is known of it counts." in done.err
    arkqueue.sql("update heartbeat set beat_at = '2026-01-01'")
    assert "no queue manager is running" in arkqueue("submit", papers.name, batch).err


def test_a_schema_is_read_at_each_revision(shared: Installation, archives: Archives, tmp_path: Path) -> None:
    papers = archives(shared, "git", hook=False)
    workflow = "submission: {schema: schemas/batch.json}\ntasks:\n- {name: check, command: 'true', on: submission, checkout: none}\n"
    papers.commit({"_workflows/w.yaml": workflow, "schemas/batch.json": '{"required": ["title"]}'})
    batch = tmp_path / "batch.json"
    batch.write_text("{}")
    refused = shared("submit", papers.name, batch, code=2)
    assert refused.err.splitlines()[0] == "payload:1:1: $: 'title' is a required property"
    papers.commit({"schemas/batch.json": '{"required": ["size"]}'})
    assert "'size' is a required property" in shared("submit", papers.name, batch, code=2).err
    batch.write_text('{"size": 3}')
    assert shared("submit", papers.name, batch).out == f"{papers.name}@3.2\n"
    assert "'title' is a required property" in shared("submit", papers.name, batch, "--revision", "2", code=2).err
    papers.commit({"schemas/batch.json": '{"$ref": "http://127.0.0.1:1/"}'})
    assert shared("submit", papers.name, batch, code=1).out == ""
    (fault,) = papers.shown(4)["faults"]
    assert (fault["path"], fault["message"][:27]) == ("schemas/batch.json", "$ref leads out of the file,")
