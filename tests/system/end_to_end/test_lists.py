"""Tasks with a list (`foreach`) through the whole installation: their variables and inputs, and how
they are shown.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.repositories import Link
from tests.system.end_to_end.conftest import Archives
from tests.system.end_to_end.installation import Installation, tasks

VOLUMES = [{"ark": "13030/m5", "size": 3}, {"ark": "13030/q2"}]
LIST = {"foreach": VOLUMES, "key": "ark", "checkout": "none"}


def test_each_item_reaches_its_task_and_an_item_that_failed_is_repaired_alone(
    shared: Installation, archives: Archives, tmp_path: Path
) -> None:
    papers = archives(shared)
    allowed = tmp_path / "allowed"
    check = f'echo "$ARKQUEUE_ITEM"; echo ark=$ARKQUEUE_ATTEMPT > $ARKQUEUE_OUTPUT; case $ARKQUEUE_ITEM in *m5*) test -e {allowed};; esac'
    papers.commit(
        tasks(
            {
                "check": LIST | {"command": check},
                "deposit": LIST | {"command": "cat $ARKQUEUE_INPUTS", "depends": ["check"]},
                "index": {"command": "cat $ARKQUEUE_INPUTS", "depends": ["check"], "checkout": "none"},
            }
        )
    )
    papers.wait_for_run(2, "failed")
    assert {task["full_name"].partition("/")[2]: task["state"] for task in papers.shown(2)["tasks"]} == {
        "COMMIT": "completed",
        "check/13030%2Fm5": "failed",
        "check/13030%2Fq2": "completed",
        "deposit/13030%2Fm5": "skipped",
        "deposit/13030%2Fq2": "completed",
        "index": "skipped",
    }
    assert json.loads(papers.log("check/13030%2Fm5@2")) == VOLUMES[0]
    shown = shared("graph", f"{papers.name}@2").out
    assert "2:check/13030%2Fm5" in shown
    assert "check:completed" in shown
    assert "check:settled" not in shown, "nothing waits for that gate"
    said = shared("explain", papers.task("index@2")).out
    assert "check/13030%2Fm5" in said
    allowed.touch()
    shared("retry", papers.task("check/13030%2Fm5@2"))
    papers.wait_for_run(2)
    assert json.loads(papers.log("deposit/13030%2Fm5@2")) == {"check": {"ark": "2"}}
    assert json.loads(papers.log("index@2")) == {"check": {"13030/m5": {"ark": "2"}, "13030/q2": {"ark": "1"}}}
    asked = shared("explain", f"{papers.name}@2/check", code=1)
    assert "has a task for each item of its list" in asked.err


def test_a_list_is_read_at_each_revision_whether_or_not_a_workflow_file_changes(
    shared: Installation, archives: Archives, kind: str
) -> None:
    papers = archives(shared, kind)
    store = {"foreach": {"file": "lists/volumes.csv"}, "command": "echo $ARKQUEUE_ITEM", "checkout": "none"}
    papers.commit(tasks({"store": store}) | {"lists/volumes.csv": "id,size\na,3\nb,4\n"})
    papers.wait_for_run(2)
    papers.commit({"lists/volumes.csv": "id,size\nb,5\nc,6\n"})
    papers.wait_for_run(3)
    assert [task["item"] for task in papers.shown(2)["tasks"][1:]] == ["a", "b"]
    assert [task["item"] for task in papers.shown(3)["tasks"][1:]] == ["b", "c"]
    assert json.loads(papers.log("store/b@3")) == {"id": "b", "size": "5"}
    shared("trigger", papers.name, "--revision", "2", "--force", "store")
    papers.wait_for_run(2, run=2)
    assert [task["item"] for task in papers.shown(2, 2)["tasks"][1:]] == ["a", "b"], "the list of the revision"
    papers.commit({"lists/volumes.csv": "id,size\nb,5\nb,6\n"})
    (fault,) = papers.wait_for_run(4, "failed")["faults"]
    assert (fault["path"], fault["line"]) == ("lists/volumes.csv", 3)
    assert "the key 'b' is also that of the item in line 2" in fault["message"]


def test_a_backfill_is_over_the_list_that_each_of_its_revisions_has(shared: Installation, archives: Archives) -> None:
    papers = archives(shared)
    for text in ("id,size\na,3\nb,4\n", "id,size\n", None, "id,size\nb,5\nb,6\n", "id,size\nb,7\n"):
        papers.commit({"lists/volumes.csv": text})
    store = {"foreach": {"file": "lists/volumes.csv"}, "command": "echo $ARKQUEUE_ITEM", "checkout": "none"}
    count = {"command": "cat $ARKQUEUE_INPUTS", "checkout": "none", "depends": ["store"]}
    papers.commit(tasks({"store": store, "count": count}) | {"lists/volumes.csv": "id,size\nz,9\n"})
    papers.wait_for_run(7)
    shared("trigger", papers.name, "store", "count", "--from", "2", "--force")
    states = {number: papers.wait_for_run(number, run=2, state=state) for number, state in EXPECTED.items()}
    items = {number: [task["item"] for task in run["tasks"] if task["item"]] for number, run in states.items()}
    assert items == {2: ["a", "b"], 3: [], 4: [], 5: [], 6: ["b"]}
    assert json.loads(papers.log("store/b@2.2")) == {"id": "b", "size": "4"}
    faults = {number: [fault["message"] for fault in run["faults"]] for number, run in states.items()}
    assert [len(faults[number]) for number in (2, 3, 6)] == [0, 0, 0]
    assert "lists/volumes.csv" in faults[4][0]
    assert "the key 'b' is also that of the item in line 2" in faults[5][0]
    refused = shared("trigger", papers.name, "store", "--from", "4", "--force", code=1)
    assert "lists/volumes.csv" in refused.err
    assert "--from" in refused.err


EXPECTED = {2: "completed", 3: "completed", 4: "failed", 5: "failed", 6: "completed"}
"""The states of the runs of a backfill: a list without items passes, one that is missing or faulty fails for itself."""


def test_what_is_no_file_is_a_fault_where_it_is_named(shared: Installation, archives: Archives, kind: str) -> None:
    papers = archives(shared, kind)
    named = ["none/volumes.txt", "lists/folder.txt", "lists/link.txt", "lists/folder.txt/v.txt/x.txt"]
    papers.commit(
        tasks({f"t{n}": {"command": "true", "foreach": {"file": path}} for n, path in enumerate(named)})
        | {"lists/folder.txt/v.txt": "a\n", "lists/link.txt": Link("../lists/folder.txt/v.txt")}
    )
    told = [fault["message"] for fault in papers.wait_for_run(2, "failed")["faults"]]
    assert [message.rpartition(": ")[2].partition(";")[0] for message in told] == [
        "there is no such file at this revision",
        "this is a folder",
        "this is a symbolic link, and links are not followed",
        "there is no such file at this revision",
    ]
