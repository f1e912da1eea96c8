"""The graph of a run as a picture: layers from left to right, with few crossings, and dashed boxes
for tasks of other runs. Pure.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from unicodedata import east_asian_width
from urllib.parse import quote

import networkx

from arkqueue.failures import is_waived, state_in_words
from arkqueue.model import COMMIT, REPORT
from arkqueue.names import excepted_by
from arkqueue.plan.edges import EVERYTHING
from arkqueue.states import State
from arkqueue.text import shortened, visible
from arkqueue.views.graph import EdgeView, GraphView, NodeView
from arkqueue.views.items import ListView

LEAST_WIDTH, HEIGHT = 120, 52
"""The size of a box, in units of the picture. The longest name in a layer sets the width of its
boxes.
"""
BEFORE, BEHIND = 34, 12
"""The space in a box before and after its words."""
LONGEST: Final = 28
"""The most characters of a name in a box."""
HEAD: Final = 8
"""The characters that a name keeps of its beginning if other names begin in the same way."""
BESIDE, BELOW = 48, 18
"""The space between the boxes of neighbouring layers, and between the boxes of one layer."""
LINE: Final = 8
"""The height that an arrow takes in a layer that it passes."""
MARGIN: Final = 14
SEEN: Final = 500
"""The height that a window surely shows. The layers of a higher picture begin at its top, so that its
box opens at COMMIT and not at the empty space above it.
"""
SWEEPS: Final = 4
MOST_BENDS: Final = 600
"""The most places at which arrows pass layers. In a graph with more, arrows run behind boxes."""
MOST_DRAWN: Final = 300
"""The most boxes of a drawn graph; nobody could read more."""


@dataclass(frozen=True, slots=True)
class Box:
    """A task or a list in the picture, by its upper left corner. ``label``: the name inside its
    run, shortened to fit the box. ``title``: the full name and the state in words. ``query``: the
    part of the page's address after the name. ``waived``: True for a failure that is waived.
    """

    node: NodeView
    x: int
    y: int
    width: int
    label: str
    words: str
    page: str
    query: str
    title: str
    waived: bool


@dataclass(frozen=True, slots=True)
class Arrow:
    """An edge from a source to its target, as the ``d`` of an SVG path."""

    path: str
    kind: str
    met: bool


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawn graph with its size, and the height of each box."""

    width: int
    height: int
    box_height: int
    boxes: list[Box]
    arrows: list[Arrow]


def drawn(
    view: GraphView, archive: str, lists: Mapping[int, ListView] = {}, words: Mapping[int, str] | None = None
) -> Picture:
    """Place the nodes of a graph and its edges. ``archive``: the archive of the page, which the
    names leave out. ``lists``: the numbers of the lists that nodes stand for, by the ids of the
    nodes. ``words``: the text of a box below its name, if it is not its state.
    """
    nodes = {node.id: node for node in view.nodes}
    edges = [
        edge for edge in view.edges if edge.source in nodes and edge.target in nodes and edge.source != edge.target
    ]
    graph: networkx.DiGraph[int] = networkx.DiGraph()
    graph.add_nodes_from(nodes)
    graph.add_edges_from((edge.source, edge.target) for edge in edges if edge.kind not in ("cancels", "stopping"))
    # Canceled tasks are drawn before their cancelers, too, unless this makes a circle.
    for edge in edges:
        if edge.kind in ("cancels", "stopping") and not networkx.has_path(graph, edge.target, edge.source):
            graph.add_edge(edge.source, edge.target)
    # REPORT comes after all tasks, also if no edge says so.
    for report in (node.id for node in view.nodes if node.name == REPORT and not node.outside):
        if not graph.degree(report):
            graph.add_edges_from([(id, report) for id in nodes if id != report and not graph.out_degree(id)])
    layers = [sorted(layer, key=list(nodes).index) for layer in networkx.topological_generations(graph)]
    bends = _bent(graph, layers, edges)
    for _ in range(SWEEPS):
        for along, neighbours in ((layers[::-1], graph.successors), (layers, graph.predecessors)):
            _sweep(along, neighbours)
    heights = [sum(HEIGHT if id in nodes else LINE for id in layer) + BELOW * (len(layer) - 1) for layer in layers]
    names = {id: visible(_label(node)) for id, node in nodes.items()}
    short = distinct(list(names.values()))
    labels = {id: short[name] for id, name in names.items()}
    said = words or {id: _words(node, archive, lists.get(id)) for id, node in nodes.items()}
    words = {id: shortened(visible(said[id]), LONGEST) for id in nodes}
    places: dict[int, tuple[int, int]] = {}
    widths: dict[int, int] = {}
    x = MARGIN
    for layer, height in zip(layers, heights, strict=True):
        y = MARGIN + ((max(heights) - height) // 2 if max(heights) <= SEEN else 0)
        width = _width([*(labels[id] for id in layer if id in nodes)], [*(words[id] for id in layer if id in nodes)])
        for id in layer:
            places[id], widths[id] = (x, y), width
            y += (HEIGHT if id in nodes else LINE) + BELOW
        x += width + BESIDE
    boxes = [
        Box(
            node,
            *places[id],
            widths[id],
            labels[id],
            words[id],
            *_leads_to(node, lists.get(id)),
            is_waived(node.state, waived=node.waived),
        )
        for id, node in nodes.items()
    ]
    arrows = [
        Arrow(_curve([e.source, *bends.get((e.source, e.target), ()), e.target], places, widths), e.kind, e.met)
        for e in edges
    ]
    return Picture(x - BESIDE + MARGIN, 2 * MARGIN + max(heights), HEIGHT, boxes, arrows)


def distinct(labels: Sequence[str]) -> dict[str, str]:
    """The label of each name in a picture: a short name as a whole, of a long name the beginning
    and the end, or, if labels would be equal, the part in which the names differ. No two labels are
    equal.
    """
    found = {label: shortened(label, LONGEST) for label in labels}
    alike: dict[str, list[str]] = defaultdict(list)
    for label, short in found.items():
        alike[short].append(label)
    taken = {short for short, some in alike.items() if len(some) == 1}
    for some in alike.values():
        for label, places in _differences(some) if len(some) > 1 else ():
            found[label] = next(short for short in _ways(label, places) if short not in taken)
            taken.add(found[label])
    return found


def _differences(labels: Sequence[str]) -> Iterator[tuple[str, list[int]]]:
    """Each of some names with the positions, the first one first, at which it begins to differ from
    others.
    """
    names = sorted(labels)
    shared = [_shared(one, other) for one, other in itertools.pairwise(names)]
    for at, name in enumerate(names):
        # The common part of two sorted names is the shortest common part of the neighbours between
        # them.
        before, after = itertools.accumulate(reversed(shared[:at]), min), itertools.accumulate(shared[at:], min)
        yield name, sorted({*before, *after})


def _shared(one: str, other: str) -> int:
    """The number of equal characters at the beginning of two names."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _ways(label: str, places: Sequence[int]) -> Iterator[str]:
    """Short forms of a name that begins and ends like others: its beginning, and the part from each
    position at which it differs from another one; finally a form with a number.
    """
    for at in places:
        # A few of the shared characters come before the difference.
        rest = label[max(at - 2, HEAD) :]
        room = LONGEST - HEAD - 1
        yield f"{label[:HEAD]}…{rest if len(rest) <= room else rest[: room - 1] + '…'}"
    for number in itertools.count(1):
        end = f"…{number}"
        yield label[: LONGEST - len(end)] + end


def _width(labels: Sequence[str], words: Sequence[str]) -> int:
    """The width of the boxes of a layer."""
    longest = max((*map(_length, labels), *(_length(one) * 0.88 for one in words)), default=0)
    return max(round(longest) + BEFORE + BEHIND, LEAST_WIDTH)


def _length(text: str) -> float:
    """The approximate width of a text in bold letters of 13 units, whatever font a browser has for
    it.
    """
    return sum(_of_letter(letter) for letter in text)


def _of_letter(letter: str) -> float:
    if east_asian_width(letter) in "WF" or letter in "mMW@%…":
        return 14.4
    if letter in "iljftr.,:;'|!I/()[]- ":
        return 6.5
    return 12 if letter == "w" else 11 if letter.isupper() else 9.4


def _bent(
    graph: networkx.DiGraph[int], layers: list[list[int]], edges: Sequence[EdgeView]
) -> dict[tuple[int, int], list[int]]:
    """Give each edge that crosses layers a place in each of them, so that its arrow runs between
    the boxes and not behind them. Returns these places.

    Edges of one source share the places, which are nodes with negative ids in the graph and its
    layers. If a graph would have too many places, it gets none.
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
    """Order each layer by the mean place of the nodes in the layers before to which its nodes are
    joined.
    """
    assert callable(neighbours)
    place: dict[int, float] = {}
    for layer in layers:
        mean = {}
        for row, id in enumerate(layer):
            near = [place[other] for other in neighbours(id) if other in place]
            mean[id] = sum(near) / len(near) if near else row - len(layer) / 2
        layer.sort(key=lambda id: mean[id])
        place |= {id: row - len(layer) / 2 for row, id in enumerate(layer)}


def _curve(way: Sequence[int], places: Mapping[int, tuple[int, int]], widths: Mapping[int, int]) -> str:
    """The path of an arrow from box to box, level at each place between them. ``way``: the source,
    these places, the target.
    """
    source, *bends, target = way
    x, y = places[source][0] + widths[source], places[source][1] + HEIGHT // 2
    path = f"M{x} {y}"
    for id in (*bends, target):
        left, level = places[id][0], places[id][1] + (HEIGHT if id == target else LINE) // 2
        middle = (x + left) // 2
        path += f" C{middle} {y} {middle} {level} {left} {level}"
        x, y = left, level
        if id != target:
            x += widths[id]
            path += f" H{x}"
    return path


def _label(node: NodeView) -> str:
    """The name in a box: of the gate of an entry ``PREV:*``, only the entry."""
    return EVERYTHING if node.gate and node.name.startswith(EVERYTHING) else node.label


def _words(node: NodeView, archive: str, of: ListView | None) -> str:
    state = _state(node) if of is None else _numbers(of)
    if node.outside:
        return f"of {node.full_name.rpartition('/')[0].partition('/')[0].removeprefix(archive + '@')} · {state}"
    if node.gate and node.name != COMMIT and node.state is not State.HELD:
        return f"gate, except {excepted}" if (excepted := excepted_by(node.name)) else "gate"
    return state


def _state(node: NodeView) -> str:
    return state_in_words(node.state, waived=node.waived)


def _numbers(of: ListView) -> str:
    """The number of items of a list, and the number of those in the state that most needs a person.
    Waived failures count only if there are no others. If some failed and others were rejected, the
    box has no room for the number of items.
    """
    items = f"{of.tasks:,} item{'s' if of.tasks != 1 else ''}"
    every = {bad: number for bad in (State.FAILED, State.REJECTED) if (number := of.counts.get(bad, 0))}
    unwaived = {bad: left for bad in every if (left := of.unwaived_in(bad))}
    waived = ", waived" if every and not unwaived else ""
    shown = unwaived or every or of.counts
    if len(shown) > 1 and every:
        return ", ".join(f"{number:,} {bad}" for bad, number in shown.items()) + waived
    state, number = next(iter(shown.items()), (State.COMPLETED, of.tasks))
    return f"{items} · {state}{waived}" if number == of.tasks else f"{items} · {number:,} {state}{waived}"


def _leads_to(node: NodeView, of: ListView | None) -> tuple[str, str, str]:
    """The page of a box, the query of its address, and its title."""
    if of is None:
        return node.full_name, "", f"{visible(node.full_name)} is {_state(node)}"
    counts = "; ".join(map(of.in_words, of.counts))
    return (
        node.full_name.partition("/")[0],
        f"?list={quote(node.name, safe='')}",
        f"{visible(node.full_name)}: {counts}",
    )
