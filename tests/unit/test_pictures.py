"""Graphs as pictures of the pages: where boxes stand, and where arrows run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

import pytest

from arkqueue.states import State
from arkqueue.views.graph import EdgeView, GraphView, NodeView
from arkqueue.web.pages import drawing
from arkqueue.web.pages.drawing import LONGEST, Picture, distinct, drawn


def a_graph(*edges: tuple[int, int], kind: str = "depends", names: Mapping[int, str] = {}) -> GraphView:
    nodes = [
        NodeView(id=id, run_id=1, full_name=f"papers@2/t{id}", rev=2, run=1, name=names.get(id, f"t{id}"), item="", state=State.WAITING, gate=False, outside=False)
        for id in sorted({id for edge in edges for id in edge})
    ]  # fmt: skip
    drawn_edges = [
        EdgeView(target=target, source=source, target_name=f"t{target}", source_name=f"t{source}", kind=kind, met=False, declared=True, active=False)
        for source, target in edges
    ]  # fmt: skip
    return GraphView(nodes=nodes, edges=drawn_edges, locks=[], more_locks=False)


def hidden(picture: Picture) -> list[str]:
    """The arrows of which a level part, or the middle of a curve, lies in a box."""
    found = []
    for arrow in picture.arrows:
        numbers = [list(map(int, re.findall(r"-?\d+", part))) for part in re.findall(r"[MCH][^MCH]*", arrow.path)]
        points, (x, y) = [], numbers[0]
        for part in numbers[1:]:
            points += [((x + part[-2]) // 2, (y + part[-1]) // 2)] if len(part) == 6 else [((x + part[0]) // 2, y)]
            x, y = part[-2:] if len(part) == 6 else (part[0], y)
        for px, py in points:
            if any(box.x < px < box.x + box.width and box.y < py < box.y + drawing.HEIGHT for box in picture.boxes):
                found.append(arrow.path)
    return found


def crossings(edges: list[tuple[int, int]]) -> int:
    """The crossings of edges of the picture, each of which leads from one column to the next."""
    height = {box.node.id: box.y for box in drawn(a_graph(*edges), "papers").boxes}
    column = {box.node.id: box.x for box in drawn(a_graph(*edges), "papers").boxes}
    return sum(
        column[a] == column[c] and (height[a] - height[c]) * (height[b] - height[d]) < 0
        for (a, b), (c, d) in combinations(edges, 2)
    )


CHAIN = [(1, 2), (2, 3), (3, 4), (4, 5)]


@pytest.mark.parametrize(
    "edges",
    [
        [*CHAIN, (1, 5)],
        [*CHAIN, (1, 3), (1, 4), (1, 5), (2, 5)],
        [(1, 11), (2, 12), (3, 13), (11, 12), (11, 14), (12, 13), (13, 15), (4, 13)],
    ],
)
def test_no_arrow_runs_behind_a_box(edges: list[tuple[int, int]]) -> None:
    picture = drawn(a_graph(*edges), "papers")
    assert hidden(picture) == []
    assert len(picture.arrows) == len(edges)
    assert [box.node.id for box in picture.boxes] == sorted({id for edge in edges for id in edge})
    for box in picture.boxes:
        assert 0 <= box.y <= picture.height - drawing.HEIGHT
        assert 0 <= box.x <= picture.width - box.width


def test_arrows_of_one_source_share_their_places() -> None:
    alone, many = drawn(a_graph(*CHAIN, (1, 5)), "papers"), drawn(a_graph(*CHAIN, (1, 5), (1, 4)), "papers")
    assert alone.height == many.height


def test_what_cancels_in_a_circle_is_drawn_straight() -> None:
    graph = a_graph((1, 2), (2, 3))
    circle = a_graph((3, 1), kind="cancels")
    picture = drawn(GraphView(nodes=graph.nodes, edges=[*graph.edges, *circle.edges], locks=[], more_locks=False), "papers")  # fmt: skip
    assert len(picture.arrows) == 3


def test_a_graph_with_very_many_long_arrows_is_drawn_without_places_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "MOST_BENDS", 2)
    assert drawn(a_graph(*CHAIN, (1, 5)), "papers").height == drawing.HEIGHT + 2 * drawing.MARGIN


def test_a_box_is_as_wide_as_the_longest_name_of_its_layer() -> None:
    names = {2: "build-index-of-volume-17", 3: "x"}
    one, two, three, four = drawn(a_graph((1, 2), (1, 3), (2, 4), (3, 4), names=names), "papers").boxes
    assert two.label == "build-index-of-volume-17"
    assert two.width == three.width > one.width == four.width
    assert two.x == one.x + one.width + drawing.BESIDE
    assert four.x == two.x + two.width + drawing.BESIDE


def test_a_gate_of_all_tasks_has_the_name_that_the_workflow_file_gives_it() -> None:
    graph = a_graph((1, 2), (2, 3), names={2: "PREV:*:commits:settled:except:proofs,slow"})
    graph.nodes[1] = replace(graph.nodes[1], gate=True)
    gate = next(box for box in drawn(graph, "papers").boxes if box.node.id == 2)
    assert (gate.label, gate.words) == ("PREV:*", "gate, except proofs, slow")


def test_a_name_that_is_too_long_keeps_its_beginning_and_its_end() -> None:
    (short,) = distinct(["convert-the-photographs-of-the-harbour-1880"]).values()
    assert short == "convert-the-p…e-harbour-1880"[:13] + "…" + "he-harbour-1880"[-14:]
    assert len(short) == LONGEST


@pytest.mark.parametrize(
    "names",
    [
        [f"convert-the-photographs-of-the-harbour-{year}" for year in range(1880, 1920)],
        [f"convert-the-photographs-of-{what}-in-the-year-1880" for what in ("the-harbour", "the-quay", "the-town")],
        [f"{'x' * 60}{number}{'y' * 60}" for number in range(40)],
        ["a" * length for length in range(30, 50)],
        ["convert-the-p…he-harbour-1880", "convert-the-photographs-of-the-harbour-1880", "convert-the-portraits-of-the-harbour-1880"],
    ],
)  # fmt: skip
def test_names_that_are_alike_can_be_told_apart(names: list[str]) -> None:
    short = distinct(names)
    assert len(set(short.values())) == len(names)
    assert max(map(len, short.values())) <= LONGEST


def test_the_part_in_which_names_differ_is_shown() -> None:
    short = distinct([f"convert-the-photographs-of-{what}-in-the-year-1880" for what in ("the-harbour", "the-quay")])
    assert [*short.values()] == ["convert-…e-harbour-in-the-y…", "convert-…e-quay-in-the-year…"]


def test_an_item_cannot_turn_the_direction_of_a_picture() -> None:
    (box, _) = drawn(a_graph((1, 2), names={1: "\u202egnp.exe"}), "papers").boxes
    assert box.label == "\\u202egnp.exe"


@pytest.mark.parametrize("edges", [[(1, 2)], [(1, 2), (2, 3), (1, 4)]])
def test_a_report_without_an_edge_is_the_last_box(edges: list[tuple[int, int]]) -> None:
    known = a_graph(*edges, names={1: "COMMIT"})
    report = NodeView(id=9, run_id=1, full_name="papers@2/REPORT", rev=2, run=1, name="REPORT", item="", state=State.WAITING, gate=False, outside=False)  # fmt: skip
    picture = drawn(GraphView(nodes=[*known.nodes, report], edges=known.edges, locks=[], more_locks=False), "papers")
    (box,) = [box for box in picture.boxes if box.node.name == "REPORT"]
    assert all(other.x < box.x for other in picture.boxes if other is not box)
    assert len(picture.arrows) == len(edges), "no arrow is drawn to it"


@pytest.mark.parametrize(
    "edges",
    [
        [(n, 101 + 7 * n % 12) for n in range(1, 13)],
        [(n // 2 * 37 % 101, n * 37 % 101) for n in range(2, 41)],
        [(n, 200 - n) for n in range(1, 20)] + [(200 - n, 300 + 5 * n % 19) for n in range(1, 20)],
    ],
    ids=["pairs", "tree", "chains"],
)
def test_edges_that_need_not_cross_do_not_cross(edges: list[tuple[int, int]]) -> None:
    assert crossings(edges) == 0


def test_the_layers_of_a_picture_that_is_too_high_for_a_window_begin_at_its_top() -> None:
    tree = [(node, child) for node in range(1, 16) for child in (2 * node, 2 * node + 1)]
    top: dict[int, int] = {}
    for box in drawn(a_graph(*tree), "papers").boxes:
        top[box.x] = min(top.get(box.x, box.y), box.y)
    assert set(top.values()) == {drawing.MARGIN}
    low = {box.node.id: box.y for box in drawn(a_graph(*tree[:6]), "papers").boxes}
    assert low[1] == (low[4] + low[7]) // 2, "a low picture is centred"
