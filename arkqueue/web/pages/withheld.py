"""What keeps the tasks of an archive from a start: a stop, a hold or a pause of the archive. The pages
of the archive and of its runs, items and tasks disable the buttons that the queue would refuse for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from arkqueue.db.session import Session
from arkqueue.states import State
from arkqueue.views.reasons import Reason, archive_stopped
from arkqueue.views.remedies import RETRY, WAIVE, Remedy
from arkqueue.views.tasks import TaskView
from arkqueue.web.pages.approving import OfGrid, Refusal
from arkqueue.web.pages.grid import Row

_STARTS: Final = frozenset(("trigger", "retry", "retry-from", "restart", "refresh", "release"))
"""The verbs that start tasks. A stopped archive refuses them."""
_WAIVERS: Final = frozenset((WAIVE, "skip-as-completed"))


@dataclass(frozen=True, slots=True)
class Withheld:
    """What keeps the tasks of an archive from a start. ``stop``: the reason that the archive is
    stopped.
    """

    archive: str
    stop: Reason | None = None
    is_on_hold: bool = False
    is_paused: bool = False

    @property
    def starts_nothing(self) -> bool:
        """Whether no task of the archive starts now."""
        return self.stop is not None or self.is_on_hold or self.is_paused

    @property
    def refused(self) -> dict[str, Refusal]:
        """The verbs that the queue refuses on every task of the archive."""
        if self.stop is not None:
            return dict.fromkeys(_STARTS, Refusal("", self.stop.text))
        if self.is_on_hold:
            why = f"{self.archive} is on hold: end the hold before you release its tasks."
            return {"release": Refusal("", why)}
        return {}

    @property
    def refused_if_waited_for(self) -> dict[str, Refusal]:
        """The verbs that the queue refuses on a failure for which a task waits: its waiver would start
        this task.
        """
        waivers = {} if self.stop is None else dict.fromkeys(_WAIVERS, Refusal("", self.stop.text))
        return self.refused | waivers

    def waited_for(self, session: Session, failures: Collection[int]) -> set[int]:
        """The failures, among some, for which a task waits, if the archive is stopped."""
        if self.stop is None or not failures:
            return set()
        return {row.id for row in session.rows("waited_for", tasks=[*failures])}

    def refused_in_table(
        self, tasks: Iterable[TaskView], helps: Mapping[int, Remedy], waited_for: Collection[int]
    ) -> dict[int, Refusal]:
        """The tasks, among those of a table, whose button is refused. ``helps``: the remedies of its
        failures; ``waited_for``: those for which a task waits.
        """
        verbs = {task.id: "release" for task in tasks if task.state is State.HELD}
        verbs |= {id: one.verb for id, one in helps.items() if one.verb == RETRY or id in waited_for}
        refused = self.refused_if_waited_for
        return {id: refused[verb] for id, verb in verbs.items() if verb in refused}

    def refused_in_grid(self, guarded: OfGrid, rows: Sequence[Row]) -> OfGrid:
        """The refused buttons of a grid. ``guarded``: those that guards refuse."""
        refused = self.refused
        helps = {cell.task.id: cell.remedy for row in rows for cell in row.cells if cell and cell.remedy}
        cells = {id: refused[one.verb] for id, one in helps.items() if one.verb in refused}
        runs = {row.run.id: refused["release"] for row in rows if row.waits_for_release} if "release" in refused else {}
        return replace(
            guarded,
            cells=cells | {**guarded.cells},
            runs=runs | {**guarded.runs},
            archive=refused | {**guarded.archive},
        )


def withheld(archive: str, stopped: str | None, *, is_on_hold: bool, is_paused: bool, brief: bool = False) -> Withheld:
    """What keeps the tasks of an archive from a start. ``stopped``: its stop reason. ``brief``: for a
    visitor who has not signed in, and does not see the stop reason.
    """
    stop = None if stopped is None else archive_stopped(archive, stopped, brief=brief)
    return Withheld(archive, stop, is_on_hold, is_paused)
