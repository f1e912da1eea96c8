"""The graph of a run as a picture: layers from left to right, as few crossings as a few sweeps leave, tasks of other runs dashed. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import networkx

from arkqueue.model import COMMIT
from arkqueue.views.graph import EdgeView, GraphView, NodeView

WIDTH, HEIGHT = 160, 52
"""Of a box, in units of the picture."""
BESIDE, BELOW = 48, 18
"""Between the boxes of neighbouring layers, and between those of one layer."""
LINE: Final = 8
"""The height that an arrow takes where it passes a layer."""
MARGIN: Final = 14
SWEEPS: Final = 4
MOST_BENDS: Final = 600
"""Places at which arrows pass layers; of a graph with more, arrows run behind boxes."""
MOST_DRAWN: Final = 300
"""Tasks of a graph that is drawn; of more nobody could read it."""


@dataclass(frozen=True, slots=True)
class Box:
    """A task in the picture, by its upper left corner."""

    node: NodeView
    x: int
    y: int
    words: str


@dataclass(frozen=True, slots=True)
class Arrow:
    """From a source to its target, as the ``d`` of an SVG path."""

    path: str
    kind: str
    met: bool


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawn graph with its size, and that of each box."""

    width: int
    height: int
    box_width: int
    box_height: int
    boxes: list[Box]
    arrows: list[Arrow]


def drawn(view: GraphView, archive: str) -> Picture:
    """Place the nodes of a graph and its edges. ``archive``: whose page it is, so that names go without it."""
    nodes = {node.id: node for node in view.nodes}
    edges = [
        edge for edge in view.edges if edge.source in nodes and edge.target in nodes and edge.source != edge.target
    ]
    graph: networkx.DiGraph[int] = networkx.DiGraph()
    graph.add_nodes_from(nodes)
    graph.add_edges_from((edge.source, edge.target) for edge in edges if edge.kind not in ("cancels", "stopping"))
    # What it cancels is drawn before it, too, where that makes no circle.
    for edge in edges:
        if edge.kind in ("cancels", "stopping") and not networkx.has_path(graph, edge.target, edge.source):
            graph.add_edge(edge.source, edge.target)
    layers = [sorted(layer, key=list(nodes).index) for layer in networkx.topological_generations(graph)]
    bends = _bent(graph, layers, edges)
    for _ in range(SWEEPS):
        for along, neighbours in ((layers, graph.predecessors), (layers[::-1], graph.successors)):
            _sweep(along, neighbours)
    heights = [sum(HEIGHT if id in nodes else LINE for id in layer) + BELOW * (len(layer) - 1) for layer in layers]
    places: dict[int, tuple[int, int]] = {}
    for column, (layer, height) in enumerate(zip(layers, heights, strict=True)):
        y = MARGIN + (max(heights) - height) // 2
        for id in layer:
            places[id] = MARGIN + column * (WIDTH + BESIDE), y
            y += (HEIGHT if id in nodes else LINE) + BELOW
    boxes = [Box(nodes[id], *places[id], _words(nodes[id], archive)) for id in nodes]
    arrows = [
        Arrow(_curve(places[e.source], [places[id] for id in bends.get((e.source, e.target), ())], places[e.target]), e.kind, e.met)
        for e in edges
    ]  # fmt: skip
    width = 2 * MARGIN + len(layers) * (WIDTH + BESIDE) - BESIDE
    return Picture(width, 2 * MARGIN + max(heights), WIDTH, HEIGHT, boxes, arrows)


def _bent(
    graph: networkx.DiGraph[int], layers: list[list[int]], edges: Sequence[EdgeView]
) -> dict[tuple[int, int], list[int]]:
    """Give each edge that passes layers a place of its own in each of them, so that its arrow runs between the boxes and not behind them; returns these places.

    Edges of one source share them. They are nodes with negative ids, in the graph and its layers. Of a graph that would have too many, none.
    """
    layer_of = {id: at for at, layer in enumerate(layers) for id in layer}
    furthest: dict[int, int] = {}
    for edge in edges:
        furthest[edge.source] = max(furthest.get(edge.source, 0), layer_of[edge.target])
    passed = {source: range(layer_of[source] + 1, last) for source, last in furthest.items()}
    if sum(map(len, passed.values())) > MOST_BENDS:
        return {}
    numbers = itertools.count(-1, -1)
    bends = {(source, at): next(numbers) for source, ats in passed.items() for at in ats}
    for (source, at), id in bends.items():
        layers[at].append(id)
        graph.add_edge(bends.get((source, at - 1), source), id)
    found = {}
    for edge in edges:
        between = [bends[edge.source, at] for at in range(layer_of[edge.source] + 1, layer_of[edge.target])]
        if between:
            if graph.has_edge(edge.source, edge.target):
                graph.remove_edge(edge.source, edge.target)
            graph.add_edge(between[-1], edge.target)
            found[edge.source, edge.target] = between
    return found


def _sweep(layers: list[list[int]], neighbours: object) -> None:
    """Order each layer by the mean place of what its nodes are joined with in the layers before it."""
    assert callable(neighbours)
    place: dict[int, float] = {}
    for layer in layers:
        mean = {}
        for row, id in enumerate(layer):
            near = [place[other] for other in neighbours(id) if other in place]
            mean[id] = sum(near) / len(near) if near else float(row)
        layer.sort(key=lambda id: mean[id])
        place |= {id: row - len(layer) / 2 for row, id in enumerate(layer)}


def _curve(source: tuple[int, int], bends: Sequence[tuple[int, int]], target: tuple[int, int]) -> str:
    """From box to box, and level through each place between them."""
    x, y = source[0] + WIDTH, source[1] + HEIGHT // 2
    path = f"M{x} {y}"
    for left, level, is_last in [
        *((x, y + LINE // 2, False) for x, y in bends),
        (target[0], target[1] + HEIGHT // 2, True),
    ]:
        middle = (x + left) // 2
        path += f" C{middle} {y} {middle} {level} {left} {level}"
        x, y = left, level
        if not is_last:
            x += WIDTH
            path += f" H{x}"
    return path


def _words(node: NodeView, archive: str) -> str:
    if node.outside:
        return f"of {node.full_name.rpartition('/')[0].removeprefix(archive + '@')} · {node.state}"
    return "gate" if node.gate and node.name != COMMIT else str(node.state)
