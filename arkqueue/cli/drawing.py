"""Graphs of runs as text, Mermaid and Graphviz's DOT, from the API's JSON. Pure; called by ``arkqueue graph``.

A node is spelled as in the document that the system comes from, ``2:build-PDF``: revision (and run, from the second on) and task. Where the graph has tasks
of several archives or branches, it is spelled with its full name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from arkqueue.cli.output import COLOURS, bold, dim, state, visible

ARROWS = {"depends": "<--", "settled": "<~~", "failed": "<-!", "cancels": "<!=", "exclusive": "<==", "stopping": "<.."}
"""As in the document: the right end waits for the left one, or cancels it."""
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
}  # fmt: skip
assert _FILLS.keys() <= COLOURS.keys()

Graph = Mapping[str, Any]


def as_text(graph: Graph) -> str:
    """The tasks of each run with their states, then every edge on a line of its own."""
    names = _short_names(graph)
    lines: list[str] = []
    runs: dict[str, list[Any]] = {}
    for node in graph["nodes"]:
        runs.setdefault(_run_of(node), []).append(node)
    width = max((len(node["name"]) for node in graph["nodes"]), default=0)
    for run, nodes in runs.items():
        if all(node["outside"] for node in nodes):
            continue
        lines.append(bold(visible(run)))
        lines += [f"  {visible(node['name']):{width}}  {state(node['state'])}" for node in nodes if not node["outside"]]
    kinds = dict.fromkeys(edge["kind"] for edge in graph["edges"])
    if kinds:
        lines += ["", *(dim(f"// {ARROWS[kind]} {MEANINGS[kind]}") for kind in kinds)]
    states = {node["id"]: node["state"] for node in graph["nodes"]}
    width = max((len(names[edge["source"]]) for edge in graph["edges"]), default=0)
    for edge in graph["edges"]:
        line = f"{names[edge['source']]:{width}} {ARROWS[edge['kind']]} {names[edge['target']]}"
        lines.append(line + _remark(edge, states[edge["target"]]))
    return "\n".join(lines)


def as_mermaid(graph: Graph) -> str:
    """A Mermaid flowchart: arrows lead from what is waited for to what waits; a crossed one cancels what it comes to."""
    names = _short_names(graph)
    lines = ["flowchart LR"]
    for node in graph["nodes"]:
        label = names[node["id"]].translate({ord('"'): "#quot;", ord("#"): "#35;", ord("<"): "#lt;", ord(">"): "#gt;"})
        lines.append(f'  t{node["id"]}["{label}<br/>{node["state"]}"]:::{node["state"]}')
    for edge in graph["edges"]:
        source, target = f"t{edge['source']}", f"t{edge['target']}"
        if edge["kind"] == "cancels":
            source, target = target, source
        lines.append(f"  {source} {_MERMAID[edge['kind']]} {target}")
    states = dict.fromkeys(node["state"] for node in graph["nodes"])
    lines += [f"  classDef {name} fill:{_FILLS[name]},stroke:#666,color:#000" for name in states]
    return "\n".join(lines)


def as_dot(graph: Graph) -> str:
    """A graph for Graphviz, one box around each run: arrows lead from what is waited for to what waits; a red one goes to what it cancels."""
    names = _short_names(graph)
    lines = ["digraph arkqueue {", "  rankdir=LR", '  node [shape=box style="rounded,filled" fontname="sans-serif"]']
    runs: dict[str, list[Any]] = {}
    for node in graph["nodes"]:
        runs.setdefault(_run_of(node), []).append(node)
    for place, (run, nodes) in enumerate(runs.items()):
        lines += [f"  subgraph cluster_{place} {{", f"    label={_quoted(run)}"]
        for node in nodes:
            label = _quoted(f"{names[node['id']]}\n{node['state']}")
            lines.append(f'    t{node["id"]} [label={label} fillcolor="{_FILLS[node["state"]]}"]')
        lines.append("  }")
    for edge in graph["edges"]:
        source, target = f"t{edge['source']}", f"t{edge['target']}"
        if edge["kind"] == "cancels":
            source, target = target, source
        how = _DOT[edge["kind"]]
        lines.append(f"  {source} -> {target}" + (f" [{how}]" if how else ""))
    return "\n".join([*lines, "}"])


def _remark(edge: Mapping[str, Any], target: str) -> str:
    """What is still to come of an edge."""
    if edge["active"]:
        return "  " + dim("// is being stopped")
    is_awaited = target == "waiting" and not edge["met"] and edge["kind"] != "cancels"
    return "  " + dim("// not yet") if is_awaited else ""


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
    return f"{node['name']}/{node['item']}" if node["item"] else str(node["name"])


def _quoted(text: str) -> str:
    return json.dumps(visible(text), ensure_ascii=False)
