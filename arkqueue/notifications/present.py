"""The present state of the run of a notification, when the notification is sent, and the commands that
help. The overview shows the same commands, and the queue refuses none of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from arkqueue.db.session import Session
from arkqueue.model import ArchiveId, Occasion, Trigger
from arkqueue.names import branch_name
from arkqueue.queue.notifications import Delivery
from arkqueue.states import RunState, State
from arkqueue.views import archives
from arkqueue.views.attention import faulty_at_heads
from arkqueue.views.needs import Need, needs_of_tasks
from arkqueue.views.outdated import outdated_holds, perhaps_outdated
from arkqueue.views.remedies import MOST_LATE, RETRY, failures
from arkqueue.views.runs import RunView
from arkqueue.views.tasks import TaskView, tasks_by_id

MOST_COMMANDS = 5
"""The most commands of one verb that a notification names."""

_RELEASE = "release"
_OF_RUN = {RETRY: " --failed", _RELEASE: ""}
"""The verbs of tasks that one command for their run does, with its options."""
_GENTLEST = ("retry", "release", "explain", "skip", "cancel", "delete")
"""The verbs of the commands that help, in the order in which a notification names them."""


@dataclass(frozen=True, slots=True)
class Present:
    """The present state of the tasks of a notification. ``tasks``: those that it names. ``still``: those
    of them that are still failed, or held. ``more``: the number of the other such tasks.

    ``needs``: the needs of the failures, or of the held tasks, of the run, by the tasks' ids; of many,
    those of the first ones. ``are_all``: True if there are no more of them. ``needing``: the tasks of
    the needs that have a command. ``for_run``: True if a retry or a release of the whole run is refused
    for none of its tasks. ``is_fixed``: True if its workflow files have faults, and no branch has its
    revision at the head. ``unhold``: the command that ends the hold of the archive, which refuses a
    release; empty if there is none.
    """

    tasks: list[TaskView]
    still: list[TaskView]
    more: int
    needs: dict[int, Need]
    are_all: bool = True
    needing: Sequence[TaskView] = ()
    for_run: bool = False
    is_fixed: bool = False
    unhold: str = ""

    @property
    def is_over(self) -> bool:
        """True if none of its tasks is failed, or held, any more."""
        return bool(self.tasks) and not self.still and not self.more


def present_of(session: Session, delivery: Delivery, run: RunView, tasks: list[TaskView], more: int) -> Present:
    """``more``: the number of the tasks of a notification that it does not name."""
    if delivery.occasion not in (Occasion.FAILED, Occasion.HELD):
        return Present(tasks, tasks, more, {})
    archive = archives.archive(session, ArchiveId(delivery.archive))
    has_failed = delivery.occasion is Occasion.FAILED
    still = failures(tasks) if has_failed else [view for view in tasks if view.state is State.HELD]
    count, unhandled, ids = 0, 0, [view.id for view in still]
    for row in session.rows("failures_to_tell" if has_failed else "holds_to_tell", runs=[delivery.run], most=MOST_LATE):
        count, ids = row.count, [*ids, *(row.tasks or ())]
    if has_failed:
        # The first failures of a long list may be repaired, and later ones not.
        for row in session.rows("first_unhandled_of_run", run=delivery.run, most=MOST_LATE):
            unhandled, ids = row.total, [*ids, row.id]
    judged = tasks_by_id(session, list(dict.fromkeys(ids)))
    needs = needs_of_tasks(session, archive, judged)
    are_all = len(needs) >= count
    needing = [view for view in judged if view.id in needs and needs[view.id].command]
    if has_failed:
        # A retry of the run takes only failed tasks. It is refused for those that are repaired.
        taken = [needs[view.id] for view in failures(judged) if view.state is State.FAILED]
        for_run = (are_all or unhandled >= count) and all(need.verb == RETRY and not need.force for need in taken)
    else:
        may_release = all(need.verb == _RELEASE and not need.force for need in needs.values())
        for_run = may_release and not _holds_outdated(session, delivery.run)
    is_fixed = (
        bool(run.faults)
        and run.trigger is Trigger.COMMIT
        and run.id not in faulty_at_heads(session, [ArchiveId(archive.id)])
    )
    unhold = f"arkqueue unhold {archive.name}" if archive.hold is not None and archive.stopped is None else ""
    return Present(
        tasks, still, min(more, max(count - len(still), 0)), needs, are_all, needing, for_run, is_fixed, unhold
    )


def _holds_outdated(session: Session, run: int) -> bool:
    """Whether an outdated task is among the held tasks of a run, also those that wait for others. The
    first `MOST_LATE` tasks that may be outdated are judged.
    """
    held = [row.id for row in session.rows("held_of_runs", runs=[run])]
    (perhaps,) = session.rows_of(perhaps_outdated(held))
    return bool(outdated_holds(session, [row.id for row in perhaps[:MOST_LATE]]))


def logs_of(present: Present, delivery: Delivery, run: RunView) -> list[str]:
    """The command that shows the log of the first failure that needs a person; if none does, of the
    first failure.
    """
    if delivery.occasion is not Occasion.FAILED or run.state is RunState.COMPLETED:
        return []
    return [f"arkqueue logs {view.full_name}" for view in (present.needing or present.still or present.tasks)[:1]]


def commands(present: Present, delivery: Delivery, run: RunView) -> list[str]:
    """The commands that help, the gentlest first: those of the overview. Each name is one word of a
    shell. If the queue refuses none of its tasks, one retry or release of the run stands for all.
    """
    if delivery.occasion is Occasion.FAILED and run.faults:
        return [] if present.is_fixed else [f"arkqueue archive show {branch_name(run.archive, None)}"]
    of_kind = defaultdict[tuple[int, bool], list[str]](list)
    for need in present.needs.values():
        command = need.command
        if need.verb in _OF_RUN and present.for_run:
            command = f"arkqueue {need.verb} {run.full_name}{_OF_RUN[need.verb]}"
        if command:
            # Not `need.verb`: a need without a button of its own has a command, too.
            of_kind[_GENTLEST.index(command.split()[1]), need.force].append(command)
    named, are_more = list[str](), False
    for key in sorted(of_kind):
        of_key = list(dict.fromkeys(of_kind[key]))
        # One explanation says how to go on.
        most = 1 if _GENTLEST[key[0]] == "explain" else MOST_COMMANDS
        named += of_key[:most]
        are_more |= len(of_key) > MOST_COMMANDS
    named += [f"arkqueue status {run.archive}"] if are_more else []
    releases = any(command.startswith("arkqueue release ") for command in named)
    return [*([present.unhold] if present.unhold and releases else []), *named]
