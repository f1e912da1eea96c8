"""The state of the installation, which ``arkqueue status`` shows: its faults, everything that needs a
person, and a few numbers.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from arkqueue.db.session import Session
from arkqueue.model import ArchiveId
from arkqueue.names import run_name
from arkqueue.states import State
from arkqueue.usage import size_in_words
from arkqueue.views.archives import archives, in_short
from arkqueue.views.installation import About, TaskManagerView, measure, task_managers, told_faults
from arkqueue.views.needs import MOST_ARCHIVES, Need, Others, needs_of
from arkqueue.views.waits import waits_of

WORTH_A_DELETION: Final = 100 << 20
"""The fewest bytes in the scratch folders of a run for which its deletion is a remedy of a full disk."""
MOST_WITH_SCRATCH: Final = 20
"""The most runs of one place, those with the largest scratch folders, of which one may be deleted."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of the installation. ``manager``: the task manager with the fault; ``command``: the
    remedy, if ``text`` does not name it. ``run``: the run whose deletion is the remedy.
    """

    about: About
    text: str
    manager: str = ""
    command: str = ""
    run: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The state of the installation, as far as a token may see it. ``others``: archives with needs
    that are not in ``needs``. ``count``: the number of all needs and faults.

    For a token that is for some archives only, numbers of the installation are None, and ``faults``
    is empty. ``running``, ``waiting``, ``held``: numbers of tasks. ``task_managers``, ``slots``: those of
    task managers that have reported lately.
    """

    faults: list[Fault]
    needs: list[Need]
    others: list[Others]
    count: int
    archives: int
    running: int | None
    waiting: int | None
    held: int | None
    task_managers: int | None
    slots: int | None


def status(
    session: Session,
    names: Sequence[str] | None,
    covered: Sequence[ArchiveId] | None,
    lease: float,
    *,
    is_whole: bool = False,
) -> Status:
    """The state of the installation. ``names`` and ``covered``: the archives that are asked about;
    both None: all. ``lease``: seconds, from the configuration. ``is_whole``: as in `needs_of`.
    """
    known = in_short(session, names)
    bad = [name for name, one in known.items() if one.needs]
    numbers = measure(session) if covered is None else None
    faults = faults_of_installation(session, numbers, lease) if numbers else []
    waits = waits_of(session, [one.id for one in known.values()][:MOST_ARCHIVES], covered)
    stopped = {name for name, one in known.items() if one.is_stopped}
    found = archives(session, bad[:MOST_ARCHIVES])
    needs = needs_of(session, covered, found, bad, waits, stopped=stopped, is_whole=is_whole)
    return Status(
        faults=faults,
        needs=needs.lines,
        others=needs.others,
        count=needs.count + len(faults),
        archives=len(known),
        running=numbers.tasks.get(State.RUNNING, 0) if numbers else None,
        waiting=waiting_in(numbers) if numbers else None,
        held=numbers.tasks.get(State.HELD, 0) if numbers else None,
        task_managers=numbers.task_managers if numbers else None,
        slots=numbers.slots if numbers else None,
    )


def waiting_in(numbers: Any) -> int:
    """The number of waiting and ready tasks. ``numbers``: the row of `measure`."""
    return sum(numbers.tasks.get(state, 0) for state in (State.WAITING, State.READY))


def faults_of_installation(session: Session, numbers: Any, lease: float) -> list[Fault]:
    """The faults of the installation, by the row of `measure`. Archives and locks are left out, because they are needs; task managers are named."""
    told = told_faults(numbers, lease)
    of_managers = (About.DRAINED, About.UNFIT, About.DISK)
    found = [Fault(about, text) for about, text in told if about not in (About.ARCHIVES, About.LOCKS, *of_managers)]
    if not any(about in of_managers for about, _ in told):
        return found
    known = [one for one in task_managers(session) if one.alive]
    stores = {one.store for one in known if one.low_disk and one.store}
    asked: dict[str, Any] = {"stores": sorted(stores), "least": WORTH_A_DELETION, "most": MOST_WITH_SCRATCH}
    kept = {row.store: row for row in session.rows("largest_kept_scratch", **asked)} if stores else {}
    return found + [fault for one in known for fault in _of_manager(one, kept.get(one.store or ""))]


def _of_manager(manager: TaskManagerView, kept: Any) -> list[Fault]:
    """The reasons why a task manager starts no tasks, or no containers. ``kept``: the run whose
    scratch folders, which stay for a retry, take the most room there; None: there is none.
    """
    found, name = [], manager.name
    if manager.low_disk:
        text = f"task manager {name} claims nothing: {manager.low_disk}. Remove what is not needed there."
        if kept is None:
            found.append(Fault(About.DISK, text, name))
        else:
            run, size = run_name(kept), size_in_words(kept.bytes, math.floor)
            text += f" The scratch folders of {run} there ({size}) stay for a retry. If they are on this disk, the deletion of the run makes room."
            found.append(Fault(About.DISK, text, name, f"arkqueue delete {shlex.quote(run)}", run))
    if manager.fault:
        found.append(Fault(About.UNFIT, f"task manager {name} can start nothing: {manager.fault}", name))
    elif manager.engine_fault:
        found.append(Fault(About.UNFIT, f"task manager {name} can start no container: {manager.engine_fault}", name))
    if manager.drained_at is not None:
        why = f": {manager.drain_reason}" if manager.drain_reason else ""
        text = f"task manager {name} is drained by {manager.drained_by}{why}: nothing is started there"
        found.append(Fault(About.DRAINED, text, name, f"arkqueue resume --worker {shlex.quote(name)}"))
    return found
