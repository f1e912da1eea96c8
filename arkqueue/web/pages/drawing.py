"""The graph of a run as a picture: layers from left to right, as few crossings as a few sweeps leave, tasks of other runs dashed. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import networkx

from arkqueue.model import COMMIT
from arkqueue.views.graph import GraphView, NodeView

WIDTH, HEIGHT = 160, 52
"""Of a box, in units of the picture."""
BESIDE, BELOW = 48, 18
"""Between the boxes of neighbouring layers, and between those of one layer."""
MARGIN: Final = 14
SWEEPS: Final = 4
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
    for _ in range(SWEEPS):
        for along, neighbours in ((layers, graph.predecessors), (layers[::-1], graph.successors)):
            _sweep(along, neighbours)
    tallest = max(len(layer) for layer in layers)
    places: dict[int, tuple[int, int]] = {}
    for column, layer in enumerate(layers):
        top = MARGIN + (tallest - len(layer)) * (HEIGHT + BELOW) // 2
        for row, id in enumerate(layer):
            places[id] = MARGIN + column * (WIDTH + BESIDE), top + row * (HEIGHT + BELOW)
    boxes = [Box(nodes[id], x, y, _words(nodes[id], archive)) for id, (x, y) in places.items()]
    arrows = [Arrow(_curve(places[e.source], places[e.target]), e.kind, e.met) for e in edges]
    width = 2 * MARGIN + len(layers) * (WIDTH + BESIDE) - BESIDE
    return Picture(width, 2 * MARGIN + tallest * (HEIGHT + BELOW) - BELOW, WIDTH, HEIGHT, boxes, arrows)


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


def _curve(source: tuple[int, int], target: tuple[int, int]) -> str:
    (a, b), (c, d) = source, target
    a, b, d = a + WIDTH, b + HEIGHT // 2, d + HEIGHT // 2
    middle = (a + c) // 2
    return f"M{a} {b} C{middle} {b} {middle} {d} {c} {d}"


def _words(node: NodeView, archive: str) -> str:
    if node.outside:
        return f"of {node.full_name.rpartition('/')[0].removeprefix(archive + '@')} · {node.state}"
    return "gate" if node.gate and node.name != COMMIT else str(node.state)
