"""The installation as a whole: task managers, and the numbers that /metrics and /healthz tell."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from arkqueue.queue.actions import SILENCE
from arkqueue.queue.door import Queue
from arkqueue.views.rows import view_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskManagerView:
    """One process that runs tasks. ``alive``: it was heard lately; ``running``: its live attempts.

    ``fault``: why it can start no tasks for now; ``engine_fault``: why it can start none in containers.
    """

    process: str
    host: str
    hostname: str
    slots: int
    running: int
    alive: bool
    fault: str | None
    engine_fault: str | None
    started_at: datetime
    seen_at: datetime
    stopped_at: datetime | None

    @property
    def free(self) -> int:
        return max(0, self.slots - self.running) if self.alive else 0


def task_managers(queue: Queue) -> list[TaskManagerView]:
    """The task managers that run, or ran within a day."""
    return [view_of(row, TaskManagerView) for row in queue.rows("show_task_managers", silence=SILENCE)]


def measure(queue: Queue) -> Any:
    """The numbers of /metrics, as one row."""
    return queue.rows("measure", silence=SILENCE)[0]
