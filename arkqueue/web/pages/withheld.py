"""A stop, a hold or a pause of an archive keeps its tasks from a start. The pages of the archive and
of its runs, items, tasks and backfills disable the buttons that the queue would refuse therefore.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from arkqueue.db.session import Session
from arkqueue.states import State
from arkqueue.views.attention import waited_for_among
from arkqueue.views.reasons import STARTS, Reason, archive_stopped
from arkqueue.views.remedies import WAIVE, Remedy
from arkqueue.views.tasks import TaskView
from arkqueue.web.pages.approving import OfGrid, Refusal
from arkqueue.web.pages.grid import Row

_REFUSED: Final = STARTS | {"retry-from"}
"""The verbs of the buttons that a stopped archive refuses."""
_WAIVERS: Final = frozenset((WAIVE, "skip-as-completed"))


@dataclass(frozen=True, slots=True)
class Withheld:
    """The stop, hold and pause of an archive. ``stop``: the reason that it is stopped; None: it is
    not.
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
            return dict.fromkeys(_REFUSED, Refusal("", self.stop.text))
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

    def refused_of(self, session: Session, failures: Collection[int]) -> dict[int, dict[str, Refusal]]:
        """The verbs that the queue refuses on each of some failures."""
        waited_for = waited_for_among(session, failures) if self.stop is not None else set()
        return {id: self.refused_if_waited_for if id in waited_for else self.refused for id in failures}

    def refused_in_table(
        self, session: Session, tasks: Iterable[TaskView], helps: Mapping[int, Remedy]
    ) -> dict[int, Refusal]:
        """The tasks, among those of a table, whose button is refused. ``helps``: the remedies of its
        failures.
        """
        verbs = {task.id: "release" for task in tasks if task.state is State.HELD}
        verbs |= {id: one.verb for id, one in helps.items()}
        refused = self.refused_of(session, helps)
        return {id: why for id, verb in verbs.items() if (why := refused.get(id, self.refused).get(verb))}

    def refused_in_grid(self, guarded: OfGrid, rows: Sequence[Row], waited_for: Collection[int] = ()) -> OfGrid:
        """The refused buttons of a grid. ``guarded``: those that guards refuse. ``waited_for``: failures for
        which tasks wait.
        """
        refused, if_waited_for = self.refused, self.refused_if_waited_for
        helps = {cell.task.id: cell.remedy for row in rows for cell in row.cells if cell and cell.remedy}
        of = {id: if_waited_for if id in waited_for else refused for id in helps}
        cells = {id: of[id][one.verb] for id, one in helps.items() if one.verb in of[id]}
        runs = {row.run.id: refused["release"] for row in rows if row.waits_for_release} if "release" in refused else {}
        return replace(
            guarded,
            cells=cells | {**guarded.cells},
            runs=runs | {**guarded.runs},
            archive=refused | {**guarded.archive},
        )


def withheld(archive: str, stopped: str | None, *, is_on_hold: bool, is_paused: bool, brief: bool = False) -> Withheld:
    """The stop, hold and pause of an archive. ``stopped``: its stop reason. ``brief``: for a visitor
    who has not signed in, and does not see the stop reason.
    """
    stop = None if stopped is None else archive_stopped(archive, stopped, brief=brief)
    return Withheld(archive, stop, is_on_hold, is_paused)


def withheld_by(row: Any, *, brief: bool) -> Withheld:
    """The stop, hold and pause of the archive of a row of ``archive`` or ``archive_of_run``."""
    return withheld(row.name, row.stopped, is_on_hold=row.is_on_hold, is_paused=row.is_paused, brief=brief)
