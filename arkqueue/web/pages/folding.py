"""Draws each list of a graph as one box, so that ten thousand items are one box. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from arkqueue.names import EVERY_TASK
from arkqueue.states import State
from arkqueue.views.graph import EdgeView, GraphView, NodeView
from arkqueue.views.items import ListView

Key = tuple[int, str]
"""The id of a run, and the name of one of its tasks that has a list."""
_ENDS: Final = ("completed", "settled")
"""The ends for which the gate of a list waits; the gate's name is ``LIST:END``."""


@dataclass(frozen=True, slots=True)
class Folded:
    """A graph in which each list is one node. ``lists``: the numbers of each list by the id of its
    node.
    """

    graph: GraphView
    lists: dict[int, ListView]


def folded(view: GraphView, lists: Mapping[Key, ListView], unmet: Collection[tuple[str, str]] = ()) -> Folded:
    """Fold the items of each list, and the gates of the list, into one node.

    ``lists``: the numbers of all lists that the graph may show. ``unmet``: the pairs (target,
    source) of lists of the same run between which an edge is unmet, although the graph may leave
    out the items of this edge.
    """
    keys = {(node.run_id, node.name) for node in view.nodes if node.item} & lists.keys()
    of_node = {node.id: key for node in view.nodes if (key := _list_of(node, keys)) is not None}
    first: dict[Key, NodeView] = {}
    for node in view.nodes:
        if node.item and node.id in of_node:
            first.setdefault(of_node[node.id], node)
    stands = {node.id: first[of_node[node.id]].id if node.id in of_node else node.id for node in view.nodes}
    nodes, named = [], {}
    for node in view.nodes:
        if stands[node.id] != node.id:
            continue
        if node.id in of_node:
            found = lists[of_node[node.id]]
            named[node.id] = found
            name = f"{node.full_name.rpartition('/')[0]}/{EVERY_TASK}"
            node = replace(node, item=EVERY_TASK, full_name=name, state=worst(found), waived=not found.unwaived)
        nodes.append(node)
    inside = {key[1]: node.id for key, node in first.items() if not node.outside}
    open_pairs = {(inside[target], inside[source]) for target, source in unmet if {target, source} <= inside.keys()}
    edges = _joined(view, stands, open_pairs)
    return Folded(GraphView(nodes=nodes, edges=edges, locks=view.locks, more_locks=view.more_locks), named)


def worst(of: ListView) -> State:
    """The state of a list: the state of the item that most needs a person."""
    return next(iter(of.counts), State.COMPLETED)


def _list_of(node: NodeView, keys: Collection[Key]) -> Key | None:
    """The list that a node belongs to: as an item, or as a gate."""
    name, _, end = node.name.rpartition(":")
    key = (node.run_id, name if node.gate and not node.item and end in _ENDS else node.name)
    return key if key in keys else None


def _joined(view: GraphView, stands: Mapping[int, int], unmet: Collection[tuple[int, int]]) -> list[EdgeView]:
    """The edges between nodes that stand for others, one of each kind. If one of the joined edges
    is unmet, the whole is unmet.
    """
    kinds = {
        node.id: node.name.rpartition(":")[2] for node in view.nodes if stands[node.id] != node.id and not node.item
    }
    found: dict[tuple[int, int, str], EdgeView] = {}
    for edge in view.edges:
        if edge.target not in stands or edge.source not in stands:
            continue
        target, source = stands[edge.target], stands[edge.source]
        if target == source:
            continue
        kind = "settled" if kinds.get(edge.source) == "settled" else edge.kind
        met = edge.met and (target, source) not in unmet
        old = found.get((target, source, kind))
        found[target, source, kind] = replace(
            edge,
            target=target,
            source=source,
            kind=kind,
            met=met and (old is None or old.met),
            active=edge.active or (old is not None and old.active),
        )
    return list(found.values())
