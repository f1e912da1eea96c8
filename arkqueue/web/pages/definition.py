"""The frozen definition of a task as text: YAML, with scripts as they were written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import yaml

PLACE: Final = ("path", "line")
"""The fields with the place of the definition, which the page shows elsewhere."""


_FIELDS: Final = {"excepted": "except", "only_unstarted": "only"}
"""The fields of an edge that have another name in workflow files."""


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines line by line."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def frozen_text(definition: Mapping[str, Any]) -> str:
    """The fields that differ from their defaults, with the name first and edges as in workflow
    files. Times are in seconds.
    """
    shown = {name: value for name, value in definition.items() if name not in PLACE}
    for name in ("depends", "cancels"):
        if name in shown:
            shown[name] = [_edge(entry) for entry in shown[name]]
    ordered = {name: shown.pop(name) for name in ("name", "depends", "cancels") if name in shown} | shown
    return yaml.dump(ordered, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


def _edge(entry: Mapping[str, Any]) -> Any:
    """An entry of ``depends`` or ``cancels``; only a name, if it has nothing else."""
    more = {_FIELDS.get(name, name): value for name, value in entry.items() if name not in ("task", "previous")}
    name = entry.get("task")
    named = (f"PREV:{name}" if name else "PREV") if entry.get("previous") else name
    if more.get("only") is True:
        more["only"] = "unstarted"
    return {"task": named, **more} if more else named
