"""Plans short lists in portions, as the queue does with long lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from arkqueue.model import Receipt
from arkqueue.plan import Entry, portions
from arkqueue.queue import planning
from tests.builders import AnArchive


def make_portions_small(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Limits the portions. ``rows``: the most rows that one transaction appends."""
    for module in ("plan.entry", "plan.items", "queue.triggering"):
        monkeypatch.setattr(f"arkqueue.{module}.MOST_ROWS", rows)


def plan_in_portions(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Plans what a test appends or triggers in portions, and to the end."""
    make_portions_small(monkeypatch, rows)
    append, trigger = AnArchive.append, AnArchive.trigger

    def append_all(archive: AnArchive, branch: str, entries: Sequence[Entry], **options: Any) -> None:
        for some in portions(entries):
            append(archive, branch, some, **options)
            options = {}
            assert planning.finish(archive.session, archive.branches[branch].id, lambda: True)

    def trigger_all(archive: AnArchive, *given: Any, branch: str = "", **options: Any) -> int:
        run = trigger(archive, *given, branch=branch, **options)
        assert planning.finish(archive.session, archive.branches[branch].id, lambda: True)
        return run

    record = AnArchive.record

    def record_all(archive: AnArchive, *given: Any, **options: Any) -> Receipt:
        receipt = record(archive, *given, **options)
        for branch in archive.branches.values():
            assert planning.finish(
                archive.session, branch.id, lambda: True
            )  # the COMMIT of a large run may have passed
        return receipt

    monkeypatch.setattr(AnArchive, "append", append_all)
    monkeypatch.setattr(AnArchive, "record", record_all)
    monkeypatch.setattr(AnArchive, "trigger", trigger_all)
