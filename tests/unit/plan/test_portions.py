"""How many revisions one transaction appends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from arkqueue.model import Workflow
from arkqueue.plan import Entry, entry, portions
from tests.builders import a_revision, a_workflow


def entries(*workflows: Workflow) -> list[Entry]:
    return [Entry(a_revision(number), workflow) for number, workflow in enumerate(workflows, 1)]


def numbers(found: Iterator[list[Entry]]) -> list[list[int]]:
    return [[one.revision.number for one in portion] for portion in found]


def many(tasks: int) -> Workflow:
    return a_workflow({f"t{n}": "" for n in range(tasks)})


def test_no_entries_are_one_empty_portion() -> None:
    assert list(portions([])) == [[]]


def test_small_revisions_go_together_and_no_more_than_a_hundred() -> None:
    assert [len(portion) for portion in portions(entries(*[Workflow()] * 250))] == [100, 100, 50]


def test_tasks_and_edges_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "MOST_ROWS", 20)
    alone, chained = many(4), a_workflow({"a": "", "b": "depends: [a, PREV, 'PREV:*']\ncancels: [PREV]"})
    assert [one.rows for one in entries(Workflow(), alone, chained)] == [2, 10, 12]
    assert numbers(portions(entries(alone, alone, alone, chained, alone))) == [[1, 2], [3], [4], [5]]


def test_a_revision_that_is_larger_than_a_portion_goes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "MOST_ROWS", 20)
    assert numbers(portions(entries(many(1), many(30), many(30), many(1), many(1)))) == [[1], [2], [3], [4, 5]]


def test_texts_are_counted_and_shared_ones_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "MOST_BYTES", 5000)
    one, other = (a_workflow({"a": f"script: {letter * 3000}"}) for letter in "xy")
    assert numbers(portions(entries(one, one, one, other))) == [[1, 2, 3], [4]]


def test_entries_are_read_when_they_are_needed() -> None:
    read = []

    def reading() -> Iterator[Entry]:
        for one in entries(*[Workflow()] * 250):
            read.append(one)
            yield one

    next(portions(reading()))
    assert len(read) == 101
