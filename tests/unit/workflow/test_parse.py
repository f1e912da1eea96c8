"""Workflow files to definitions and faults: golden pairs beside this file, with one YAML file per
fault, and cases that a file cannot show well.

``good/NAME.yaml`` belongs to ``good/NAME.expected.json`` (the frozen tasks without their path), and
``faults/NAME.yaml`` to ``faults/NAME.txt`` (one fault in each line, without the path).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from arkqueue.model import LONGEST_ITEM, LONGEST_KEY, MOST_ITEMS, SourceFile, Workflow
from arkqueue.workflow import from_json, lists, tasks, to_json
from arkqueue.workflow.format import NOT_YET, Task
from arkqueue.workflow.nodes import MAX_FAULTS
from arkqueue.workflow.parsing import LONGEST_MESSAGE, LONGEST_WORD, parse
from arkqueue.workflow.spelling import Speller

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
GOOD = sorted(path for path in (HERE / "good").iterdir() if not path.name.endswith(".expected.json"))
FAULTS = sorted(path for path in (HERE / "faults").iterdir() if path.suffix != ".txt")


def a_workflow(text: str | bytes, path: str = "a.yaml") -> Workflow:
    return parse([SourceFile(path, text.encode() if isinstance(text, str) else text)])


def faults(text: str | bytes, path: str = "a.yaml") -> list[str]:
    return [str(fault) for fault in a_workflow(text, path).faults]


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.name)
def test_good_file_gives_its_definitions(path: Path) -> None:
    workflow = a_workflow(path.read_bytes(), path.name)
    assert workflow.faults == ()
    frozen = [to_json(task) for task in workflow.tasks]
    assert {task.pop("path") for task in frozen} <= {path.name}
    assert frozen == json.loads(path.with_name(path.stem + ".expected.json").read_text("utf-8"))


@pytest.mark.parametrize("path", FAULTS, ids=lambda path: path.name)
def test_faulty_file_gives_its_faults_and_no_task(path: Path) -> None:
    workflow = a_workflow(path.read_bytes(), path.name)
    assert workflow.tasks == ()
    told = [str(fault).removeprefix(path.name).lstrip(":").strip() for fault in workflow.faults]
    assert told == path.with_suffix(".txt").read_text("utf-8").splitlines()
    assert told


@pytest.mark.parametrize(
    "path",
    sorted(p for p in (ROOT / "workflows-examples").iterdir() if p.suffix in (".yaml", ".json")),
    ids=lambda path: path.name,
)
def test_example_has_no_faults(path: Path) -> None:
    workflow = a_workflow(path.read_bytes(), path.name)
    assert workflow.faults == ()
    assert workflow.tasks


def test_examples_of_the_documentation_have_no_faults() -> None:
    examples = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "docs" / "workflows.md").read_text("utf-8"), re.S | re.M)
    assert len(examples) == 16
    assert [faults(example) for example in examples] == [[]] * 16
    assert (ROOT / "workflows-examples" / "word-index.yaml").read_text("utf-8") in examples


def test_documentation_names_every_field() -> None:
    words = set(re.findall(r"`(\w+)`", (ROOT / "docs" / "workflows.md").read_text("utf-8")))
    assert {*Task.model_fields, *NOT_YET} <= words


def test_fault_carries_the_word_and_the_nearest_name() -> None:
    (fault,) = a_workflow("- name: indexing\n- name: pdf\n  depends: [indexng]\n").faults
    assert (fault.line, fault.column, fault.word, fault.suggestion) == (3, 13, "indexng", "indexing")


def test_tasks_come_in_the_order_of_files_and_lines_whatever_the_order_given() -> None:
    files = [SourceFile("b.yaml", b"- name: a\n"), SourceFile("a.yaml", b"- name: c\n- name: b\n")]
    assert [task.name for task in parse(files).tasks] == ["c", "b", "a"]
    assert parse(files) == parse(files[::-1])


def test_no_files_are_no_tasks() -> None:
    assert parse([]) == Workflow()


def test_edges_and_names_are_checked_across_files() -> None:
    files = [
        SourceFile("a.yaml", b"- {name: a, depends: [b]}\n- {name: c}\n"),
        SourceFile("b.yaml", b"- {name: b, depends: [a]}\n- {name: c}\n- {name: d, depends: [c, nothing]}\n"),
    ]
    assert [str(fault) for fault in parse(files).faults] == [
        "a.yaml:1:23: tasks wait for each other in a circle: a → b → a; remove one of the edges",
        "b.yaml:2:10: there is already a task 'c', at a.yaml:2:10; rename one",
        "b.yaml:3:26: depends: there is no task 'nothing' in this revision's workflow files; correct the name, or add the task",
    ]


def test_name_that_may_stand_in_an_unreadable_file_is_not_called_missing() -> None:
    files = [SourceFile("a.yaml", b"- {name: a, depends: [b]}\n"), SourceFile("b.yaml", b"- name: b\n- [\n")]
    said = "b.yaml: before this file can be read, nobody knows whether it has these tasks, which others name: 'b'"
    assert str(parse(files).faults[0]) == said, "said once, and as no fault of a.yaml"
    assert [fault.path for fault in parse(files).faults] == ["b.yaml", "b.yaml"]
    assert len(parse(files[1:]).faults) == 1


def test_key_that_cannot_be_hides_no_other_fault() -> None:
    text = "- name: a\n  command: x\n  <<: 3\n  ? [x]\n  : y\n- 5\n- name: b\n  bla: 3\n"
    assert [fault.line for fault in parse([SourceFile("a.yaml", text.encode())]).faults] == [3, 4, 6, 8]


def test_wrong_field_does_not_make_its_task_unknown() -> None:
    assert faults("- {name: a, timeout: 5}\n- {name: b, depends: [a]}\n") == [
        "a.yaml:1:22: timeout: 5 has no unit; write 5s, 5m or 5h"
    ]


def test_file_that_is_not_utf8_is_told_with_the_byte() -> None:
    assert faults("- name: a\n  command: échó\n".encode("latin-1")) == [
        "a.yaml:2:12: the file is not UTF-8: byte 21 is 0xe9; save it as UTF-8"
    ]
    assert "byte 0 is 0xff" in faults("- name: a\n".encode("utf-16"))[0]


def test_file_of_two_mebibytes_is_refused_unread() -> None:
    assert faults(b"#" * 2 * 1024 * 1024) == [
        "a.yaml: the file is larger than 1 MiB; split it, or move scripts into files"
    ]
    assert faults(b"#" * 1024 * 1024) == []


def test_control_character_is_told_with_its_place() -> None:
    assert faults("- name: a\n  command: a\x1bb\n") == [
        "a.yaml:2:13: the character U+001B is not allowed in a workflow file; remove it"
    ]


def test_lone_surrogate_is_told_even_where_it_is_a_fault_of_its_own() -> None:
    assert faults('[{"name": "a", "depends": "\\ud800"}]', "a.json") == [
        "a.json:1:27: depends: '\ufffd' names no task: write a task's name, PREV, PREV:name or PREV:*",
        "a.json:1:27: the text holds the character U+D800, which cannot be stored; remove it",
    ]


DEEP = "lists and mappings are nested more than 50 deep; make them flatter"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.yaml", "[" * 100_000),
        ("a.yaml", "- " * 100_000),
        ("a.yaml", "{a: " * 100_000),
        ("a.yaml", "? " * 100_000),
        ("a.json", "[" * 100_000),
        ("a.json", '{"a":' * 100_000),
        ("a.json", "[" * 60 + "]" * 60),
    ],
)
def test_deep_nesting_is_a_fault_where_it_begins(path: str, text: str) -> None:
    (fault,) = a_workflow(text, path).faults
    assert (fault.message, fault.line) == (DEEP, 1)
    assert 0 < fault.column <= 51 * 5


def test_fifty_levels_are_not_too_deep() -> None:
    assert DEEP not in faults("[" * 50 + "]" * 50)[0]
    assert DEEP in faults("[" * 51 + "]" * 51)[0]


def test_depth_is_counted_through_aliases() -> None:
    chain = "".join(f"- &a{i} [{f'*a{i - 1}' if i else 'x'}]\n" for i in range(60))
    assert DEEP in faults(chain)[0]


def test_alias_bomb_is_a_fault() -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 20)
    )
    assert faults(bomb) == ["a.yaml:7:5: the aliases in here expand to more than 8 MiB; write less, or fewer aliases"]


def test_defaults_that_expand_without_end_are_a_fault() -> None:
    tasks = "".join(f"  - name: t{i}\n" for i in range(1000))
    text = f"defaults:\n  env: {{A: {'x' * 100_000}}}\ntasks:\n{tasks}"
    assert faults(text) == [
        "a.yaml:1:1: defaults: repeated in 1000 tasks they come to more than 8 MiB; make them smaller"
    ]


def test_faults_do_not_grow_without_end() -> None:
    told = a_workflow("- x\n" * 5000).faults
    assert len(told) == MAX_FAULTS + 1
    assert told[-1].message == "there are more than 1000 faults; correct the ones above first"


def test_a_constant_of_json_with_further_characters_is_a_fault() -> None:
    assert faults("[1, NaNx]", "a.json") == ["a.json:1:5: the file is not JSON: NaN is not a number in JSON"]


def test_long_escapes_in_broken_json_are_told_at_once() -> None:
    assert "not JSON" in faults('["' + '\\"' * 400_000, "a.json")[0]


def test_frozen_definition_comes_back_the_same_with_equal_text() -> None:
    for path in GOOD:
        for task in a_workflow(path.read_bytes(), path.name).tasks:
            text = json.dumps(to_json(task))
            assert from_json(json.loads(text)) == task
            assert json.dumps(to_json(from_json(json.loads(text)))) == text
    first, second = (a_workflow(f"- name: a\n  env: {{{env}}}\n").tasks[0] for env in ("A: x, B: y", "B: y, A: x"))
    assert json.dumps(to_json(first)) == json.dumps(to_json(second))


def test_frozen_definition_leaves_defaults_out() -> None:
    (task,) = a_workflow("- {name: a, timeout: 6h, retries: 0, checkout: tree, on: [manual, commit]}\n").tasks
    assert to_json(task) == {"name": "a", "path": "a.yaml", "line": 1}


def test_definition_that_was_frozen_before_containers_reads_the_same() -> None:
    frozen = {"name": "a", "path": "a.yaml", "line": 1, "command": "make", "env": {"A": "x"}}
    assert to_json(from_json(frozen)) == frozen


def test_globs_are_short_and_few() -> None:
    long, many = "a" * 1001, "".join(f"\n  - a{n}" for n in range(1001))
    (fault,) = faults(f"- name: x\n  command: y\n  paths: {long}")
    assert fault.endswith("a…' has 1001 characters, more than 1000; write a shorter pattern")
    (fault,) = faults(f"- name: x\n  command: y\n  branches:{many}")
    assert "has 1001 patterns, more than 1000; use * and ** to write fewer" in fault


def test_message_about_a_long_word_is_short() -> None:
    (fault,) = a_workflow("- name: x\n  command: y\n  timeout: " + "9" * 100_000).faults
    assert len(fault.message) <= LONGEST_MESSAGE + 1
    assert len(fault.word) <= LONGEST_WORD + 1
    assert fault.message.endswith("h")


@pytest.mark.full
def test_nothing_is_judged_beyond_the_most_faults() -> None:
    """2.4 million faults took a minute."""
    judged = a_workflow("- name: x\n  command: y\n  depends: [" + "q, " * 100_000 + "q]")
    assert len(judged.faults) == MAX_FAULTS + 1
    judged = a_workflow("- {a: 1}\n" * 20_000)
    assert judged.faults[-2].line <= MAX_FAULTS


def test_looking_for_near_names_has_a_budget_in_characters() -> None:
    names = tuple(f"{'a' * 80}{n:05d}" for n in range(100))
    speller = Speller(pairs=3 * 85 * 85 * 100)
    near = [speller.nearest(f"{'a' * 80}0000x", names) for _ in range(5)]
    assert [bool(one) for one in near] == [True, True, True, False, False]


@pytest.mark.parametrize(
    ("items", "told"),
    [
        (f"[{', '.join(map(str, range(MOST_ITEMS + 1)))}]", "the list has more than 10,000 items; give fewer"),
        (f"[{'k' * (LONGEST_KEY + 1)}]", "the key of an item has 201 characters; give it 1 to 200"),
        (
            f"[{{id: a, text: '{'é' * (LONGEST_ITEM // 2)}'}}]",
            "the item 'a' has 65,556 bytes as JSON, more than 65,536",
        ),
        ("[1e999]", "'1e999' is not a number in JSON"),
    ],
)
def test_lists_their_keys_and_their_items_are_bounded(items: str, told: str) -> None:
    (fault,) = faults(f"- {{name: a, command: x, foreach: {items}}}")
    assert told in fault


def test_the_most_that_a_list_may_have_is_no_fault() -> None:
    items = [{"id": "k" * LONGEST_KEY}, *range(MOST_ITEMS - 1)]
    workflow = a_workflow(json.dumps([{"name": "a", "command": "x", "foreach": items}]), "a.json")
    assert workflow.faults == ()
    assert workflow.item_tasks == MOST_ITEMS


def test_equal_lists_are_one_list_however_they_are_written() -> None:
    workflow = a_workflow(
        "- {name: a, command: x, foreach: [{id: 1, on: x}]}\n- {name: b, command: x, foreach: [{'id': 1, 'on': 'x'}]}"
    )
    assert workflow.tasks[0].foreach == workflow.tasks[1].foreach


def test_a_list_that_is_a_default_is_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[object] = []

    def items_of(*given: Any) -> Any:
        judged.append(given[0])
        return lists.items_of(*given)

    monkeypatch.setattr(tasks, "items_of", items_of)
    file = {"defaults": {"foreach": [1, 2]}, "tasks": [{"name": f"t{n}", "command": "x"} for n in range(50)]}
    workflow = a_workflow(json.dumps(file), "a.json")
    assert (len(workflow.tasks), workflow.item_tasks, len(judged)) == (50, 100, 1)
