"""Graphs as text for people and for drawing programs, with hostile names from repositories."""

from __future__ import annotations

from typing import Any

import click
import pytest

from arkqueue.cli import drawing


def a_graph(lock: str) -> dict[str, Any]:
    node = {"id": 7, "run_id": 1, "full_name": "papers@2/a", "rev": 2, "run": 1, "name": "a", "item": "", "state": "waiting", "gate": False, "outside": False, "waived": False}  # fmt: skip
    held = {"name": lock, "capacity": 1, "paused_at": None, "paused_by": None, "pause_reason": None, "holders": [], "next": "papers@2/a", "next_elsewhere": False, "elsewhere": 2, "waiting_elsewhere": 3, "more": True}  # fmt: skip
    return {"nodes": [node], "edges": [], "locks": [{**held, "waiting": [{"full_name": "papers@2/a", "state": "waiting", "place": 1, "obstacle": ""}]}], "more_locks": True}  # fmt: skip


@pytest.mark.parametrize("draw", [drawing.as_text, drawing.as_mermaid, drawing.as_dot])
def test_a_lock_of_any_name_stays_in_its_place(draw: Any) -> None:
    """No control character gets through, and no name ends the label that it stands in."""
    drawn = click.unstyle(draw(a_graph('papers/x\x1b[31m"]; }}<b>#\u202e')))
    assert not any(not one.isprintable() for one in drawn.replace("\n", ""))
    assert r"\x1b[31m" in drawn
    assert len(drawn.splitlines()) == len(draw(a_graph("papers/x")).splitlines())
    if draw is drawing.as_mermaid:
        (label,) = [line for line in drawn.splitlines() if line.startswith("  l0{")]
        assert label.count('"') == 2
        assert "<b>" not in label
    if draw is drawing.as_dot:
        (label,) = [line for line in drawn.splitlines() if line.startswith("  l0 [")]
        assert r"\"]; }}" in label


def test_text_says_that_more_stand_at_a_lock_than_it_names() -> None:
    lines = click.unstyle(drawing.as_text(a_graph("papers/x"))).splitlines()
    assert lines[-6:] == [
        "papers/x: 1 task at once",
        "  2 tasks have it in other archives",
        "  1. papers@2/a waits",
        "  3 tasks wait for it in other archives",
        "  more tasks have it or wait for it",
        "more locks: arkqueue lock list",
    ]
