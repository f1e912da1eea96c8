"""A commit to a real repository, through the real hook, runs its workflow; and no commit is lost
while the server is away.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.repositories import SubversionRepository, run
from tests.system.end_to_end.conftest import Archives, Installations
from tests.system.end_to_end.installation import Archive, Installation, Stage, tasks
from tests.waiting import eventually

WORKFLOW = tasks(
    {
        "index": {"depends": ["PREV"], "command": 'wc -l < paper.tex; echo "pages=7" > "$ARKQUEUE_OUTPUT"'},
        "publish": {"depends": ["index"], "shell": "python3", "checkout": "none", "script": (
            "import json, os\n"
            "print(json.load(open(os.environ['ARKQUEUE_INPUTS'])))\n"
            "print(*(os.environ['ARKQUEUE_' + name] for name in ('NUMBER', 'PREVIOUS', 'BASE', 'TRIGGER', 'RUN')))\n"
        )},
    }
)  # fmt: skip


def test_commit_through_the_installed_hook_runs_its_workflow(
    shared: Installation, archives: Archives, kind: str
) -> None:
    papers = archives(shared, kind)
    papers.commit(WORKFLOW, message="Add a workflow")
    shown = papers.wait_for_run(2)
    assert (shown["message"].strip(), shown["trigger"], shown["run"]) == ("Add a workflow", "commit", 1)
    assert papers.log("index@2") == "1\n"
    papers.commit({"paper.tex": "second\nthoughts\n"})
    third = papers.wait_for_run(3)
    assert papers.log("index@3") == "2\n"
    inputs, variables = papers.log("publish@3").splitlines()
    assert json.loads(inputs.replace("'", '"'))["index"] == {"pages": "7"}
    assert variables == f"3 {shown['revision']} {shown['revision']} commit 1"
    assert [line.split()[:2] for line in shared("runs", papers.name).out.splitlines()[1:]] == [
        [papers.run(3), "completed"], [papers.run(2), "completed"], [papers.run(1), "completed"]
    ]  # fmt: skip
    assert shared("watch", papers.run(3), "--plain").code == 0
    assert third["report"] == "completed"


def test_commit_through_svnserve_runs_its_workflow(shared: Installation, archives: Archives, tmp_path: Path) -> None:
    papers = archives(shared)
    assert isinstance(papers.repository, SubversionRepository)
    with papers.repository.served() as server:
        run("svn", "checkout", "-q", server.url, tmp_path / "copy")
        folder = tmp_path / "copy" / "_workflows"
        folder.mkdir()
        (folder / "a.yaml").write_text("- {name: index, command: svnversion . || cat paper.tex}\n")
        run("svn", "add", "-q", folder)
        run("svn", "commit", "-q", "--username", "ada", "-m", "from afar", tmp_path / "copy")
    assert papers.wait_for_run(2)["author"] in ("ada", "")


def test_task_of_an_archive_without_an_executor_fails_with_the_remedy(shared: Installation, archives: Archives) -> None:
    papers = archives(shared, process=False)
    papers.commit(WORKFLOW)
    papers.wait_for_run(2, "failed")
    assert papers.states(2) == {"index@2": "failed", "publish@2": "skipped"}
    for said in (papers.explained("index@2"), papers.log("index@2"), shared("show", papers.task("index@2")).out):
        assert "its tasks may not run as processes" in said
        assert f"arkqueue archive set {papers.name} --executor process" in said
    assert "A retry helps only after the settings of the archive have been changed" in papers.explained("index@2")
    shared("archive", "set", papers.name, "--executor", "process")
    assert "A retry helps only after" not in papers.explained("index@2")
    shared("retry", papers.task("index@2"))
    papers.wait_for_run(2)


def test_retry_runs_the_definition_that_the_run_was_made_with(
    shared: Installation, archives: Archives, tmp_path: Path
) -> None:
    """Design 5.2: the repository has another one by now, and cannot even be read."""
    papers = archives(shared)
    allowed = tmp_path / "allowed"
    command = f"echo of the {{}} revision; test -e {allowed}"
    papers.commit(tasks({"index": {"command": command.format("second"), "checkout": "none"}}))
    papers.wait_for_run(2, "failed")
    papers.commit(tasks({"index": {"command": command.format("third"), "checkout": "none"}}))
    papers.wait_for_run(3, "failed")
    papers.repository.path.rename(papers.repository.path.with_name("away"))
    allowed.touch()
    shared("retry", papers.task("index@2"))
    papers.wait_for_run(2)
    assert papers.log("index@2") == "of the second revision\n"


def test_commits_while_the_server_is_down_are_planned_in_order_at_its_start(
    installations: Installations, archives: Archives, stage: Stage
) -> None:
    arkqueue = installations()
    server = arkqueue.start()
    papers = archives(arkqueue, "git")
    papers.commit(tasks({"index": {"depends": ["PREV"], "command": stage.once, "checkout": "none"}}))
    papers.wait_for_run(2)
    address = arkqueue.api.url
    assert server.stop() == 0
    for number in range(3, 8):
        assert papers.commit({"paper.tex": f"{number}\n"}) == number
    assert "arkqueue serve" in arkqueue("runs", "--server", address, code=3).err
    again = arkqueue.start()
    said = eventually(lambda: [line for line in again.said.splitlines() if line.startswith("archive ")])
    assert f"archive {papers.name}: its tasks run as processes of this host" in said[0]
    assert "Whoever may commit to" in said[0]
    papers.wait_for_run(7)
    assert papers.ledger() == [1, 2, 3, 4, 5, 6, 7]
    assert stage.events("begin") == [f"begin index@{number}" for number in range(2, 8)]


def test_one_notice_reaches_every_archive_of_the_repository(shared: Installation, archives: Archives) -> None:
    whole = archives(shared)
    whole.commit({"trunk/paper.tex": "first\n"})
    folder = whole.name + "-trunk"
    shared("archive", "add", folder, f"{whole.repository.url}/trunk", "--executor", "process")
    trunk = Archive(shared, folder, whole.repository)
    whole.commit({f"trunk/{path}": text for path, text in WORKFLOW.items()} | WORKFLOW)
    whole.wait_for_run(3)
    trunk.wait_for_run(3)
    assert trunk.log("index@3") == "1\n"
    whole.commit({"paper.tex": "outside of the folder\n"})
    whole.commit({"trunk/paper.tex": "inside\nof it\n"})
    trunk.wait_for_run(5)
    whole.wait_for_run(5)
    assert trunk.log("index@5") == "2\n"
    assert (trunk.ledger(), whole.ledger()) == ([2, 3, 5], [1, 2, 3, 4, 5])
