"""Draws graphs of runs as text, Mermaid and Graphviz's DOT, from the API's JSON. Pure; called by
``arkqueue graph``.

A node is spelled as in the design's document, ``2:build-PDF``: revision (and run, from the second
on) and task. If the graph has tasks of several archives or branches, the node has the task's full
name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from arkqueue.cli.lock import lines_of, room
from arkqueue.cli.output import COLOURS, bold, dim, state
from arkqueue.failures import is_waived, state_in_words
from arkqueue.text import visible

ARROWS = {"depends": "<--", "settled": "<~~", "failed": "<-!", "cancels": "<!=", "exclusive": "<==", "stopping": "<.."}
"""The arrows of the design's document: the right end waits for the left one, or cancels it."""
MEANINGS = {
    "depends": "waits for it to complete",
    "settled": "waits for it to end, however",
    "failed": "runs only if it failed or was rejected",
    "cancels": "supersedes it",
    "exclusive": "waits for its gate",
    "stopping": "waits until it is gone",
}
_MERMAID = {
    "depends": "-->",
    "settled": "-.->",
    "failed": "-.->|failed|",
    "cancels": "--x",
    "exclusive": "==>",
    "stopping": "-.-x",
}
_DOT = {
    "depends": "",
    "settled": "style=dashed",
    "failed": 'style=dashed label="failed"',
    "cancels": 'color=red arrowhead=tee label="cancels"',
    "exclusive": 'style=bold label="gate"',
    "stopping": 'color=red style=dotted label="stopping"',
}
_FILLS = {
    "completed": "#d6f5d6", "failed": "#f8c8c8", "rejected": "#f8c8c8", "running": "#cfe3ff", "ready": "#d5f5f5",
    "canceled": "#f5ecc8", "skipped": "#f5ecc8", "deferred": "#f5ecc8", "held": "#ecd5f5", "waiting": "#eeeeee",
    "waived": "#eeeeee",
}  # fmt: skip
"""The colour of a node by its state; a waived failure has another one."""
assert _FILLS.keys() - {"waived"} <= COLOURS.keys()

MOST_NAMED = 3
"""The most tasks that the node of a lock names."""

Graph = Mapping[str, Any]


def as_text(graph: Graph) -> str:
    """The tasks of each run with their states, then every edge on a line of its own."""
    names = _short_names(graph)
    lines: list[str] = []
    runs: dict[str, list[Any]] = {}
    for node in graph["nodes"]:
        runs.setdefault(_run_of(node), []).append(node)
    width = max((len(_task_of(node)) for node in graph["nodes"]), default=0)
    for run, nodes in runs.items():
        if all(node["outside"] for node in nodes):
            continue
        lines.append(bold(visible(run)))
        lines += [f"  {visible(_task_of(node)):{width}}  {_coloured(node)}" for node in nodes if not node["outside"]]
    kinds = dict.fromkeys(edge["kind"] for edge in graph["edges"])
    if kinds:
        lines += ["", *(dim(f"// {ARROWS[kind]} {MEANINGS[kind]}") for kind in kinds)]
    states = {node["id"]: node["state"] for node in graph["nodes"]}
    width = max((len(names[edge["source"]]) for edge in graph["edges"]), default=0)
    for edge in graph["edges"]:
        line = f"{names[edge['source']]:{width}} {ARROWS[edge['kind']]} {names[edge['target']]}"
        lines.append(line + _remark(edge, states[edge["target"]]))
    if graph["locks"]:
        lines += ["", *(line for lock in graph["locks"] for line in lines_of(lock))]
    if graph["more_locks"]:
        lines.append("more locks: arkqueue lock list")
    return "\n".join(lines)


def as_mermaid(graph: Graph) -> str:
    """A Mermaid flowchart. Arrows lead from a source to the task that waits for it; a crossed arrow
    leads to a task that is canceled.

    A lock is drawn between its holders and the tasks that wait for it, in the order in which they
    get it.
    """
    names = _short_names(graph)
    lines = ["flowchart LR"]
    for node in graph["nodes"]:
        lines.append(f'  t{node["id"]}["{_escaped(names[node["id"]])}<br/>{_words(node)}"]:::{_look(node)}')
    for edge in graph["edges"]:
        source, target = f"t{edge['source']}", f"t{edge['target']}"
        if edge["kind"] == "cancels":
            source, target = target, source
        lines.append(f"  {source} {_MERMAID[edge['kind']]} {target}")
    for place, (lock, having, waiting) in enumerate(_standing(graph)):
        lines.append(f'  l{place}{{{{"{"<br/>".join(_escaped(line) for line in _label_of(lock))}"}}}}')
        lines += [f"  t{id} --- l{place}" for id in having]
        lines += [f"  l{place} -.->|{number}| t{id}" for number, id in waiting]
    looks = dict.fromkeys(map(_look, graph["nodes"]))
    lines += [f"  classDef {name} fill:{_FILLS[name]},stroke:#666,color:#000" for name in looks]
    return "\n".join(lines)


def as_dot(graph: Graph) -> str:
    """A graph for Graphviz, with one box around each run. Arrows lead from a source to the task
    that waits for it; a red arrow leads to a task that is canceled.
    """
    names = _short_names(graph)
    lines = ["digraph arkqueue {", "  rankdir=LR", '  node [shape=box style="rounded,filled" fontname="sans-serif"]']
    runs: dict[str, list[Any]] = {}
    for node in graph["nodes"]:
        runs.setdefault(_run_of(node), []).append(node)
    for place, (run, nodes) in enumerate(runs.items()):
        lines += [f"  subgraph cluster_{place} {{", f"    label={_quoted(run)}"]
        for node in nodes:
            label = _quoted(names[node["id"]], _words(node))
            lines.append(f'    t{node["id"]} [label={label} fillcolor="{_FILLS[_look(node)]}"]')
        lines.append("  }")
    for edge in graph["edges"]:
        source, target = f"t{edge['source']}", f"t{edge['target']}"
        if edge["kind"] == "cancels":
            source, target = target, source
        how = _DOT[edge["kind"]]
        lines.append(f"  {source} -> {target}" + (f" [{how}]" if how else ""))
    for place, (lock, having, waiting) in enumerate(_standing(graph)):
        lines.append(f"  l{place} [shape=hexagon style=solid label={_quoted(*_label_of(lock))}]")
        lines += [f"  t{id} -> l{place} [dir=none]" for id in having]
        lines += [f'  l{place} -> t{id} [style=dashed label="{number}"]' for number, id in waiting]
    return "\n".join([*lines, "}"])


def _remark(edge: Mapping[str, Any], target: str) -> str:
    """The remark on an edge that stops a task, or along which a task still waits; empty for other
    edges.
    """
    if edge["active"]:
        return "  " + dim("// is being stopped")
    is_awaited = target == "waiting" and not edge["met"] and edge["kind"] != "cancels"
    return "  " + dim("// not yet") if is_awaited else ""


def _words(node: Mapping[str, Any]) -> str:
    """The state of a node in words."""
    return state_in_words(node["state"], waived=node["waived"])


def _coloured(node: Mapping[str, Any]) -> str:
    """The state of a node in words, in its colour; that of a waived failure has none."""
    return _words(node) if _is_waived(node) else state(node["state"])


def _look(node: Mapping[str, Any]) -> str:
    """The key of a node's colour in `_FILLS`."""
    return "waived" if _is_waived(node) else str(node["state"])


def _is_waived(node: Mapping[str, Any]) -> bool:
    return is_waived(node["state"], waived=node["waived"])


def _short_names(graph: Graph) -> dict[int, str]:
    """The spelling of each node by its id."""
    nodes: Sequence[Any] = graph["nodes"]
    if len({_place_of(node) for node in nodes}) > 1:
        return {node["id"]: visible(node["full_name"]) for node in nodes}
    return {node["id"]: visible(f"{_number_of(node)}:{_task_of(node)}") for node in nodes}


def _run_of(node: Mapping[str, Any]) -> str:
    return str(node["full_name"]).partition("/")[0]


def _place_of(node: Mapping[str, Any]) -> str:
    return _run_of(node).partition("@")[0]


def _number_of(node: Mapping[str, Any]) -> str:
    return _run_of(node).partition("@")[2]


def _task_of(node: Mapping[str, Any]) -> str:
    return str(node["full_name"]).partition("/")[2]


def _standing(graph: Graph) -> list[tuple[Any, list[int], list[tuple[str, int]]]]:
    """Each lock, the nodes that have it, and those that wait for it with their places in the line."""
    ids = {node["full_name"]: node["id"] for node in graph["nodes"]}
    found = []
    for lock in graph["locks"]:
        having = [ids[task["full_name"]] for task in lock["holders"] if task["full_name"] in ids]
        line = [(_place(task), ids.get(task["full_name"])) for task in lock["waiting"]]
        found.append((lock, having, [(place, id) for place, id in line if id is not None]))
    return found


def _place(task: Mapping[str, Any]) -> str:
    return "not in line" if task["place"] is None else f"{task['place']}."


def _label_of(lock: Mapping[str, Any]) -> list[str]:
    """The text in the node of a lock: its name, its holders and the next task, which may be outside
    of this graph.
    """
    lines = [f"lock {lock['name']}", room(lock), *(["paused"] if lock["paused_at"] else [])]
    having = [task["full_name"] for task in lock["holders"]]
    if lock["elsewhere"]:
        having.append(f"{lock['elsewhere']} of other archives")
    if having:
        lines.append(f"has it: {', '.join(having[:MOST_NAMED])}{' …' if len(having) > MOST_NAMED else ''}")
    if following := _next_at(lock):
        lines.append(following)
    return [visible(line) for line in lines]


def _next_at(lock: Mapping[str, Any]) -> str:
    """The next task at a lock, or why the first one in line cannot go; empty if nobody stands in line."""
    if lock["next"] is not None:
        return f"next: {lock['next']}"
    if lock["next_elsewhere"]:
        return "next: a task of another archive"
    first = next((task for task in lock["waiting"] if task["place"] == 1), None)
    return f"first in line: {first['full_name']}; {first['obstacle']}" if first and first["obstacle"] else ""


def _escaped(text: str) -> str:
    """Text escaped for a Mermaid label."""
    return text.translate({ord('"'): "#quot;", ord("#"): "#35;", ord("<"): "#lt;", ord(">"): "#gt;"})


def _quoted(*lines: str) -> str:
    """A DOT label."""
    return json.dumps("\n".join(visible(line) for line in lines), ensure_ascii=False)
