"""The limits of a revision: what is too large for the ledger."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from arkqueue.model import Revision, SourceFile
from arkqueue.repository.limits import LONGEST_AUTHOR, LONGEST_MESSAGE, bounded, too_many_workflows
from arkqueue.workflow.parsing import parse

REVISION = Revision("7", 7, "ada", datetime(2026, 1, 1, tzinfo=UTC), "a change")


@pytest.mark.parametrize("revision", [REVISION, replace(REVISION, message="x" * LONGEST_MESSAGE, author="ä" * 512)])
def test_what_is_within_the_limits_stays_as_it_is(revision: Revision) -> None:
    assert bounded(revision) is revision


def test_too_long_texts_are_cut_between_characters_and_it_is_said() -> None:
    cut = bounded(replace(REVISION, message="é" * LONGEST_MESSAGE, author="a" + "€" * LONGEST_AUTHOR))
    assert (len(cut.message.encode()), len(cut.author.encode())) == (LONGEST_MESSAGE, LONGEST_AUTHOR)
    assert cut.oversized == (
        "its author has 3,073 bytes, more than 1,024 and its message has 131,072 bytes, more than 65,536; make it shorter"
    )


def test_a_revision_that_was_cut_twice_is_the_same() -> None:
    long = replace(REVISION, author="x" * 5000)
    assert bounded(bounded(long)) == bounded(long)


def test_workflow_files_are_counted_and_added_up() -> None:
    assert too_many_workflows([4096] * 1000) == ""
    assert "1,001 workflow files here, more than 1,000" in too_many_workflows([1] * 1001)
    assert "have 4,198,400 bytes, more than 4,194,304" in too_many_workflows([4_198_400 // 5] * 5)


@pytest.mark.full
def test_too_many_tasks_are_one_fault() -> None:
    texts = [json.dumps([{"name": f"t{n}-{m}"} for m in range(11_000)]) for n in range(2)]
    files = [SourceFile(f"_workflows/{n}.json", text.encode()) for n, text in enumerate(texts)]
    (fault,) = parse(files).faults
    assert (fault.path, fault.message) == (
        "_workflows/1.json", "with this file there are 22,000 tasks, more than 20,000; define fewer",
    )  # fmt: skip


@pytest.mark.parametrize("value", ["b", "b: c"])
def test_too_many_values_are_one_fault_and_the_other_files_are_not_judged(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within the limit of bytes: a pusher of dense files would else wait until the checking hook gives up, and lets them pass."""
    monkeypatch.setattr("arkqueue.workflow.parsing.MOST_VALUES", 4_000)
    dense = f"- {{name: a, command: [{','.join([value] * 1_700)}]}}\n".encode()
    other = SourceFile("_workflows/3.yaml", b"- {name: b, comand: x}\n")
    (fault,) = parse([SourceFile(f"_workflows/{n}.yaml", dense) for n in range(3)] + [other]).faults[-1:]
    assert "values, more than 4,000; write fewer" in fault.message
    assert fault.path < "_workflows/3.yaml"


@pytest.mark.full
def test_twenty_thousand_tasks_with_what_is_usual_are_not_too_many() -> None:
    def a_file(name: str) -> SourceFile:
        first = [f"- {{name: {name}{n}, command: x}}\n" for n in range(2)]
        usual = "- {{name: {0}{1}, command: make {1}, depends: [{0}{2}, {0}{3}], timeout: 5m}}\n"
        rest = [usual.format(name, n, n - 1, n - 2) for n in range(2, 10_000)]
        return SourceFile(f"_workflows/{name}.yaml", "".join(first + rest).encode())

    judged = parse([a_file("a"), a_file("b")])
    assert (len(judged.tasks), judged.faults) == (20_000, ())
