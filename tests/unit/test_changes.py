"""The list of changed files: the tasks that get it, and the names that it may contain."""

from __future__ import annotations

import json

import pytest

from arkqueue.errors import ArchiveError
from arkqueue.model import ChangeStatus, FileChange, TaskDefinition
from arkqueue.repository.changes import as_json, listed
from arkqueue.repository.limits import PathBudget, TooManyPaths


@pytest.mark.parametrize(
    "definition",
    [
        TaskDefinition("a", command="./index", changes=True),
        TaskDefinition("a", command="./index $ARKQUEUE_CHANGES"),
        TaskDefinition("a", command=("jq", ".", "$ARKQUEUE_CHANGES")),
        TaskDefinition("a", script="open(os.environ['ARKQUEUE_CHANGES'])", shell="python3"),
        TaskDefinition("a", command="./index", env={"WHAT": "ARKQUEUE_CHANGES"}),
    ],
    ids=["asked for", "command", "words", "script", "env"],
)
def test_a_task_gets_changes_that_asks_for_them_or_names_them(definition: TaskDefinition) -> None:
    assert definition.wants_changes


def test_any_other_task_does_not() -> None:
    definition = TaskDefinition("a", command=("jq", "ARKQUEUE_", "CHANGES"), env={"CHANGES": "ARKQUEUE_BASE"})
    assert not definition.wants_changes
    assert not TaskDefinition("gate").wants_changes


def test_changes_are_listed_by_path_and_any_name_comes_back() -> None:
    names = [b"b", b"a/\xff", "a/é".encode(), b"a/.gitignore", b"a/.git/config", b".SVN", b"a/\n"]
    found = listed(dict.fromkeys(names, ChangeStatus.ADDED))
    assert [change.path.encode(errors="surrogateescape") for change in found] == [
        b"a/\n", b"a/.gitignore", "a/é".encode(), b"a/\xff", b"b",
    ]  # fmt: skip
    assert listed({b"x": ChangeStatus.DELETED}) == (FileChange(ChangeStatus.DELETED, "x"),)


@pytest.mark.parametrize("path", [b"..", b"../x", b"a/../x", b"/x", b"a//x", b"a/.", b"", b"a/"])
def test_a_path_that_leads_elsewhere_is_a_fault(path: bytes) -> None:
    with pytest.raises(ArchiveError, match="no tree may hold"):
        listed({path: ChangeStatus.ADDED})


def test_a_budget_is_spent_by_what_is_looked_at() -> None:
    budget = PathBudget(3)
    budget.look(2)
    budget.look()
    with pytest.raises(TooManyPaths, match="more than 3 files and folders"):
        budget.look()


def test_changes_are_json_in_ascii_a_line_for_each() -> None:
    changes = listed({b'a"\n\xff': ChangeStatus.DELETED, "é/📖".encode(): ChangeStatus.ADDED})
    text = as_json(changes)
    assert text.isascii()
    assert text.count(b"\n") == 4
    assert [(change["status"], change["path"]) for change in json.loads(text)] == [*changes]
    assert json.loads(as_json(())) == []
