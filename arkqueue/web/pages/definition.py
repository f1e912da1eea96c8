"""The frozen definition of a task as text: YAML, with scripts as they were written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import yaml

PLACE: Final = ("path", "line")
"""Where it stood: shown elsewhere."""


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines line by line."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def frozen_text(definition: Mapping[str, Any]) -> str:
    """The fields that differ from their defaults, in the order of a workflow file's reader: its name first. Times are seconds."""
    shown = {name: value for name, value in definition.items() if name not in PLACE}
    ordered = {name: shown.pop(name) for name in ("name", "depends", "cancels") if name in shown} | shown
    return yaml.dump(ordered, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
