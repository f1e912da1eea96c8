"""Validates payloads of submissions in a reader process, like workflow files: a payload may be made
to take memory or time without end (design 5.31).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from arkqueue.errors import ArchiveHarmful, Invalid
from arkqueue.model import Fault, Item, PayloadKind
from arkqueue.repository.reader.client import Call, processes
from arkqueue.repository.reader.frames import Malformed
from arkqueue.repository.reader.workflows import take_judged

DEADLINE, PER_MIB = 20.0, 2.5
"""Seconds within which a payload is validated: a constant part, and more for each MiB."""
THING = "the payload"
"""The thing that an error names."""
SMALLER = "Make it smaller or simpler, or hand it in as several."
AS_JSON = "Send it as JSON, which is read several times faster, or make it smaller or simpler."
"""The remedy for YAML: with a schema, each MiB may take 4 s."""


def judge(
    file: Path, kind: PayloadKind, keys: Sequence[str | None], most_items: int, schema: Mapping[str, Any] | None
) -> tuple[dict[str, tuple[Item, ...]], tuple[Fault, ...]]:
    """The items of the payload in a file, by `Foreach.items`, or its faults. ``keys``,
    ``most_items``: as in `workflow.payload.judge`. ``schema``: the ``content`` of the schema, and its
    ``path``. Raises ``Invalid`` if validation takes too much time or memory.
    """
    deadline = DEADLINE + PER_MIB * (file.stat().st_size / 2**20)
    request = {
        "location": None,
        "mirror": None,
        "timeout": 0,
        "deadline": deadline,
        "call": "judge_payload",
        "given": {
            "path": str(file),
            "kind": kind,
            "keys": list(keys),
            "most_items": most_items,
            "schema": schema and schema["content"],
        },
    }
    call = Call(THING, "judging it", request, deadline, once=True)
    try:
        return take_judged(processes.call(call))
    except ArchiveHarmful as error:
        remedy = AS_JSON if kind is PayloadKind.YAML else SMALLER
        if schema is not None:
            remedy += f" If it is small, a committer has to make the schema {schema['path']} simpler."
        raise Invalid(THING, f"cannot be validated: {error.fault.partition(': ')[2]}", remedy) from None
    except Malformed as error:
        raise Invalid(THING, f"cannot be validated: its reader gave {error}", SMALLER) from None
