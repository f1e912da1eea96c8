"""The state of a container as the engine reports it, in our types. Pure; ``docker_running`` reads
it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class State:
    """The state of a container. ``finished`` is far in the future for one that has not ended."""

    is_running: bool
    was_started: bool
    exit_code: int
    finished: datetime
    out_of_memory: bool
    memory: int
    error: str

    @staticmethod
    def of(container: dict[str, Any]) -> State:
        state = container["State"]
        is_over = state["Status"] in ("exited", "dead", "removing", "created")
        return State(
            is_running=not is_over,
            was_started=state["Status"] != "created",
            exit_code=state["ExitCode"],
            finished=_time(state["FinishedAt"]) if is_over else datetime.max.replace(tzinfo=UTC),
            out_of_memory=state["OOMKilled"],
            memory=container["HostConfig"].get("Memory") or 0,
            error=state["Error"],
        )


def _time(text: str) -> datetime:
    """An engine's time, which has nanoseconds."""
    return datetime.fromisoformat(re.sub(r"(\.\d{1,6})\d*", r"\1", text).replace("Z", "+00:00"))


def size_in_words(size: int) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:.4g} {unit}"
    return f"{size} bytes"
