"""The graph of one run, from definitions and what the branch has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from arkqueue.model import Depends, Key, TaskId, TaskKind, Trigger, Workflow
from arkqueue.plan import Occurrence, Plan, gate_name, keys_needed, matches, plan
from arkqueue.plan.graph import gates_needed
from tests.builders import a_workflow

EXAMPLE = {"indexing": "depends: [PREV]", "build-PDF": "depends: [indexing]\ncancels: [PREV]"}


def planned(tasks: Any, past: Mapping[str, int] | None = None, **options: Any) -> Plan:
    values: dict[str, Any] = {"trigger": Trigger.COMMIT, "branch": "main", "changed": ()} | options
    kinds = {"COMMIT": TaskKind.COMMIT, "REPORT": TaskKind.REPORT}
    found = {Key(name): Occurrence(TaskId(id), kinds.get(name, TaskKind.ORDINARY)) for name, id in (past or {}).items()}
    return plan(a_workflow(tasks), past=found, **({"commits": found} | values))


def edges(p: Plan) -> set[str]:
    """Each edge as ``target < source`` (depends), ``<=`` (settled), ``<!`` (cancels) or ``<x`` (exclusive)."""
    signs = {("depends", False): "<", ("depends", True): "<=", ("cancels", False): "<!", ("exclusive", True): "<x"}
    return {
        f"{e.target.name} {'<f' if e.failed else signs[e.kind, e.settled]} {e.source.name if isinstance(e.source, Key) else e.source}"
        for e in p.edges
    }


def names(p: Plan) -> list[str]:
    return [node.key.name for node in p.nodes]


def test_the_example_on_its_second_revision_has_its_edges() -> None:
    p = planned(EXAMPLE, {"COMMIT": 1, "indexing": 2, "build-PDF": 3})
    assert names(p) == ["COMMIT", "indexing", "build-PDF", "REPORT"]
    assert edges(p) == {
        "COMMIT < 1", "indexing < COMMIT", "indexing < 2", "build-PDF < COMMIT", "build-PDF < indexing", "build-PDF <! 3"
    }  # fmt: skip


def test_without_a_past_there_are_no_edges_to_it() -> None:
    assert edges(planned(EXAMPLE)) == {"indexing < COMMIT", "build-PDF < COMMIT", "build-PDF < indexing"}


def test_no_workflow_is_a_run_of_commit_and_report_alone() -> None:
    assert names(planned("[]", {"COMMIT": 1})) == ["COMMIT", "REPORT"]


def test_prev_star_goes_through_one_gate_and_leaves_report_out() -> None:
    p = planned({"a": "depends: ['PREV:*']", "b": "depends: ['PREV:*']"}, {"COMMIT": 1, "a": 2, "old": 3, "REPORT": 4})
    assert {e for e in edges(p) if "PREV" in e} == {
        "a < PREV:*", "b < PREV:*", "PREV:* < 1", "PREV:* < 2", "PREV:* < 3"
    }  # fmt: skip


def test_failures_are_waited_for_inside_the_run_and_before_it() -> None:
    tasks = {"a": "", "b": "paths: [data/*]", "tell": "depends: [{task: a, when: failed}, {task: b, when: failed}]"}
    assert edges(planned(tasks, {"b": 2})) == {"a < COMMIT", "tell < COMMIT", "tell <f a", "tell <f 2"}
    assert edges(planned(tasks)) == {"a < COMMIT", "tell < COMMIT", "tell <f a", "tell <f COMMIT"}


@pytest.mark.parametrize(
    "wishes",
    [
        "{task: b, when: failed}, {task: 'PREV:b', when: settled}",
        "{task: 'PREV:b', when: settled}, {task: b, when: failed}",
    ],
)
def test_of_two_edges_from_one_source_the_stricter_one_counts(wishes: str) -> None:
    tasks = {"b": "paths: [data/*]", "tell": f"depends: [{wishes}]"}
    assert edges(planned(tasks, {"b": 2})) == {"tell < COMMIT", "tell <f 2"}


def test_strict_order_is_one_line() -> None:
    p = planned({"COMMIT": "depends: [{task: 'PREV:*', when: settled}]", "a": ""}, {"COMMIT": 1, "a": 2})
    assert edges(p) == {
        "COMMIT < 1", "COMMIT < PREV:*:commits:settled", "PREV:*:commits:settled <= 1",
        "PREV:*:commits:settled <= 2", "a < COMMIT",
    }  # fmt: skip


def test_prev_star_on_commit_takes_commit_runs_only() -> None:
    past = {Key("COMMIT"): Occurrence(TaskId(1), TaskKind.COMMIT), Key("a"): Occurrence(TaskId(2), TaskKind.ORDINARY)}
    tasks = {"COMMIT": "depends: ['PREV:*']", "b": "depends: ['PREV:*']"}
    p = planned(tasks, {"COMMIT": 5, "a": 6, "nightly": 7}, commits=past)
    assert edges(p) == {
        "COMMIT < 5", "COMMIT < PREV:*:commits", "PREV:*:commits < 1", "PREV:*:commits < 2",
        "b < COMMIT", "b < PREV:*", "PREV:* < 5", "PREV:* < 6", "PREV:* < 7",
    }  # fmt: skip
    assert gates_needed(a_workflow(tasks)) == 2


def test_prev_star_leaves_out_what_it_excepts() -> None:
    tasks = {"COMMIT": "depends: [{task: 'PREV:*', when: settled, except: [pdf]}]", "pdf": ""}
    p = planned(tasks, {"COMMIT": 1, "index": 2, "pdf": 3})
    assert edges(p) == {
        "COMMIT < 1", "COMMIT < PREV:*:commits:settled:except:pdf", "PREV:*:commits:settled:except:pdf <= 1",
        "PREV:*:commits:settled:except:pdf <= 2", "pdf < COMMIT",
    }  # fmt: skip


def test_each_set_of_exceptions_has_a_gate_of_its_own() -> None:
    wishes = {"a": "[x, y]", "b": "[y, x]", "c": "[x]"}
    tasks = {name: f"depends: [{{task: 'PREV:*', except: {names}}}]" for name, names in wishes.items()}
    workflow = a_workflow({**tasks, "d": "depends: ['PREV:*']", "x": "", "y": ""})
    p = plan(workflow, trigger=Trigger.COMMIT, branch="main", changed=(), past={})
    gates = [node.key.name for node in p.nodes if node.kind is TaskKind.GATE]
    assert gates == ["PREV:*:except:x,y", "PREV:*:except:x", "PREV:*"]
    assert gates_needed(workflow) == 3


def test_a_long_list_of_exceptions_makes_no_long_name_and_no_equal_ones() -> None:
    names = [f"a-task-with-a-long-name-{number}" for number in range(200)]
    long, longer = (gate_name("a", Depends("*", True, excepted=tuple(some))) for some in (names[:199], names))
    assert long != longer
    assert max(len(long), len(longer)) < 200


@pytest.mark.parametrize(("changed", "inside"), [(("docs/a.tex",), True), (("src/x.py",), False), ((), False)])
def test_a_task_with_paths_exists_only_where_one_changed(changed: tuple[str, ...], inside: bool) -> None:
    p = planned({"pdf": "paths: ['docs/**']"}, changed=changed)
    assert ("pdf" in names(p)) is inside


@pytest.mark.parametrize(("branch", "inside"), [("main", True), ("release/1", True), ("draft", False)])
def test_a_task_with_branches_exists_only_there(branch: str, inside: bool) -> None:
    p = planned({"pdf": "branches: [main, 'release/*']"}, branch=branch)
    assert ("pdf" in names(p)) is inside


def test_a_dependency_that_filters_left_out_stands_for_the_one_before() -> None:
    p = planned({"index": "paths: [data/*]", "pdf": "depends: [index]"}, {"COMMIT": 1, "index": 2})
    assert edges(p) == {"COMMIT < 1", "pdf < COMMIT", "pdf < 2"}


def test_an_optional_dependency_that_nobody_defines_is_no_edge() -> None:
    assert edges(planned({"pdf": "depends: [{task: gone, optional: true}]"})) == {"pdf < COMMIT"}


def test_a_manual_run_has_the_tasks_that_were_asked_for() -> None:
    tasks = {"a": "", "b": "on: [schedule]\nschedule: '0 5 * * *'", "c": "on: [commit]"}
    assert names(planned(tasks, trigger=Trigger.MANUAL)) == ["COMMIT", "a", "REPORT"]
    assert names(planned(tasks, trigger=Trigger.MANUAL, names=["a", "c"])) == ["COMMIT", "a", "REPORT"]
    assert names(planned(tasks, trigger=Trigger.SCHEDULE, names=["b"])) == ["COMMIT", "b", "REPORT"]


def test_a_manual_run_says_which_dependencies_have_not_completed_at_its_revision() -> None:
    assert planned(EXAMPLE, trigger=Trigger.MANUAL, names=["build-PDF"]).missing == (("build-PDF", "indexing"),)
    assert planned(EXAMPLE, trigger=Trigger.MANUAL, names=["build-PDF"], without=["indexing"]).missing == ()


def test_exclusive_tasks_go_one_at_a_time_in_the_graphs_order() -> None:
    p = planned({"z": "exclusive: true\ndepends: [a]", "a": "exclusive: true", "m": "exclusive: true"})
    assert {e for e in edges(p) if "<x" in e} == {"z <x a", "m <x z"}


def test_cancels_inside_the_run_and_before_it() -> None:
    p = planned({"a": "", "b": "cancels: [a, 'PREV:a', PREV, {task: 'PREV:gone', only: unstarted}]"}, {"a": 1, "b": 2})
    assert {e for e in edges(p) if "<!" in e} == {"b <! a", "b <! 1", "b <! 2"}


def test_only_the_keys_that_matter_are_asked_for() -> None:
    def names_needed(workflow: Workflow) -> set[str] | None:
        needed = keys_needed(workflow)
        return None if needed is None else {key.name for key in needed}

    assert names_needed(a_workflow(EXAMPLE)) == {"COMMIT", "indexing", "build-PDF"}
    assert names_needed(a_workflow({"a": "depends: ['PREV:x']\ncancels: ['PREV:y']"})) == {"COMMIT", "x", "y"}
    left_out = a_workflow({"a": "depends: [x, y]", "x": "", "y": "paths: [doc/**]"})
    assert names_needed(left_out) == {"COMMIT", "y"}, "y stands for PREV:y where nothing changed in doc"
    assert names_needed(a_workflow({"a": "depends: ['PREV:*']"})) is None


@pytest.mark.parametrize(
    ("glob", "path", "found"),
    [
        ("*.tex", "a.tex", True),
        ("*.tex", "docs/a.tex", False),
        ("**/*.tex", "a.tex", True),
        ("**/*.tex", "docs/deep/a.tex", True),
        ("docs/", "docs/a/b", True),
        ("docs/**", "docs", False),
        ("docs/?.md", "docs/ab.md", False),
        ("/docs/*", "docs/a", True),
        ("a.b", "axb", False),
        ("[", "[", True),
        ("[ab]{c}", "[ab]{c}", True),
        ("[ab]{c}", "ac", False),
    ],
)
def test_globs_stop_at_folders_unless_doubled(glob: str, path: str, found: bool) -> None:
    assert matches([glob], path) is found


def test_a_glob_with_an_exclamation_mark_takes_back() -> None:
    assert matches(["docs/**", "!docs/draft/**"], "docs/a.md")
    assert not matches(["docs/**", "!docs/draft/**"], "docs/draft/a.md")


def test_report_has_its_command_in_every_run_whatever_started_it() -> None:
    tasks = {"a": "on: [commit, manual, schedule]\nschedule: 0 3 * * *", "REPORT": "command: ./send"}
    for options in ({}, {"trigger": Trigger.MANUAL, "names": ["a"]}, {"trigger": Trigger.SCHEDULE, "names": ["a"]}):
        p = planned(tasks, **options)
        *_, report = p.nodes
        assert (names(p), report.kind) == (["COMMIT", "a", "REPORT"], TaskKind.REPORT)
        assert report.definition is not None
        assert report.definition.command == "./send"
        assert not any(edge.target == report.key for edge in p.edges)
    *_, plain = planned("- {name: a, command: make}\n- {name: REPORT}").nodes
    assert (plain.kind, plain.definition) == (TaskKind.REPORT, None)
