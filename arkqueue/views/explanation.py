"""The explanation of a state, and the words that tasks, runs and lists have in common in it."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from arkqueue.db.session import Session
from arkqueue.names import backfill_command, list_name, run_name
from arkqueue.states import State
from arkqueue.views.expected import Expected
from arkqueue.views.naming import task_name
from arkqueue.views.outdated import SKIP_OUTDATED
from arkqueue.views.reasons import Held, Reason, Why

MOST_SOME = 5
"""The most names in a sentence."""
MOST_REASONS = 20
MOST_TASKS = 100
"""The most unsettled tasks, and the most failed ones, of a run or a list that are explained."""
MOST_HELD = 3
"""The most held tasks that get a reason of their own."""
OTHERS = " It waits for "
"""The beginning of the sentence that names the other obstacles of a reason."""
ALIKE = {
    Why.WAITS_FOR_RUNNING,
    Why.ABOUT_TO_START,
    Why.MAX_RUNNING,
    Why.NO_SLOT,
    Why.NO_TASK_MANAGER,
    Why.NO_FIT_HOST,
    Why.NO_LABEL,
    Why.LOCKED,
    Why.LOCK_PAUSED,
    Why.ARCHIVE_PAUSED,
    Why.ARCHIVE_STOPPED,
}
"""The kinds of reasons that are given for one item of a list and stand for the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """One unmet edge of the task itself. ``kind``: as in a graph."""

    task: str
    state: State
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why something does not run, or how it came to its state. ``state`` None: the task does not
    exist (yet).

    ``text``: all reasons, one a line. ``commands``: the commands that help, each once.
    ``expected``: the expected start and end, if known.
    """

    full_name: str
    state: State | None
    text: str
    commands: list[str]
    reasons: list[Reason]
    waits_for: list[Wait]
    expected: Expected | None = None


def explanation_of(name: str, state: State | None, reasons: list[Reason], waits: Sequence[Wait] = ()) -> Explanation:
    """The explanation that some reasons give. ``name``, ``state``: of what is explained."""
    return Explanation(
        full_name=name,
        state=state,
        text="\n".join(reason.text for reason in reasons),
        commands=list(dict.fromkeys(command for reason in reasons for command in reason.commands)),
        reasons=reasons,
        waits_for=list(waits),
    )


def stop_first(found: Explanation) -> Explanation:
    """The explanation with the reasons that an archive is stopped first: until the stop ends, the
    queue refuses most other commands.
    """
    if all(reason.kind is not Why.ARCHIVE_STOPPED for reason in found.reasons):
        return found
    reasons = sorted(found.reasons, key=lambda reason: reason.kind is not Why.ARCHIVE_STOPPED)
    return replace(explanation_of(found.full_name, found.state, reasons, found.waits_for), expected=found.expected)


def alike_once(told: Sequence[tuple[Any, Reason]]) -> list[Reason]:
    """The reasons of obstacles, each with the row of its task. Obstacles that are alike have one
    reason, which names the others. Items of a list in one state are alike if their reasons are of
    one kind of `ALIKE`. Other tasks are alike if their reasons say the same and name the same
    commands. `held_together` joins the reasons of held tasks.
    """
    groups: dict[tuple[object, ...], list[tuple[Any, Reason]]] = defaultdict(list)
    for row, reason in told:
        said = reason.text.partition(f"{task_name(row)}, which ")[2]
        key: tuple[object, ...] = (row.id,)
        if row.item and reason.kind in ALIKE:
            key = reason.kind, row.run_id, row.name, row.state
        elif said and not isinstance(reason, Held):
            key = reason.kind, said, row.state, *reason.commands
        groups[key].append((row, reason))
    return [_with_others(alike) for alike in groups.values()]


def _with_others(alike: Sequence[tuple[Any, Reason]]) -> Reason:
    """The reason of the first of some obstacles, with a sentence that names the others."""
    (first, reason), *others = alike
    if not others:
        return reason
    names, is_one = [task_name(row) for row, _ in others], len(others) == 1
    is_list = first.item and len({(row.run_id, row.name) for row, _ in alike}) == 1
    what = f"{'item' if is_one else 'items'} of {first.name}" if is_list else "task" if is_one else "tasks"
    text = (
        f"{reason.text}{OTHERS}{len(names)} more {what} that {'is' if is_one else 'are'} {first.state}: {some(names)}."
    )
    return replace(reason, text=text, tasks=list(dict.fromkeys([*reason.tasks, *names])))


def held_together(reasons: Sequence[Reason], row: Any) -> list[Reason]:
    """The reasons, with at most `MOST_HELD` for held tasks. One more reason names the held tasks that
    these do not name: their reasons would all be alike.

    A hold, a pause and a stop of the archive are each mentioned once, and so is the reason that a
    person, or an import, gave for the first hold. ``row``: a task of the archive.
    """
    reasons = _withheld_once(reasons, row)
    first = next((reason for reason in reasons if isinstance(reason, Held)), None)
    reasons = [
        reason.after(first) if first and isinstance(reason, Held) and reason is not first else reason
        for reason in reasons
    ]
    held = [reason for reason in reasons if isinstance(reason, Held)]
    if len(held) <= MOST_HELD:
        return list(reasons)
    rest = held[MOST_HELD:]
    told = [reason for reason in reasons if reason not in rest]
    named = {name for reason in held[:MOST_HELD] for name in reason.tasks}
    names = [name for name in dict.fromkeys(name for reason in rest for name in reason.tasks) if name not in named]
    if not names:
        return told
    text = f"{len(names)} more {'task is' if len(names) == 1 else 'tasks are'} held: {some(names)}."
    runs = {name.partition("/")[0] for name in names}
    what = f"{row.archive} --all" if len(runs) > 1 else runs.pop()  # no more than these tasks need
    is_late = any(reason.late for reason in held)
    command = f"arkqueue release {what}{SKIP_OUTDATED if is_late else ''}"
    more = Held(kind=Why.HELD, text=text, tasks=names, commands=[command], late=is_late)
    place = told.index(held[MOST_HELD - 1]) + 1
    return [*told[:place], more, *told[place:]]


def _withheld_once(reasons: Iterable[Reason], row: Any) -> list[Reason]:
    """The reasons, of which only the first says since when and why the archive is paused or stopped."""
    found, told = [], set[str]()
    for reason in reasons:
        short, but, what = reason.text.partition(f", but {row.archive} is ")
        what, more, others = what.partition(OTHERS)
        if but and reason.kind in (Why.ARCHIVE_PAUSED, Why.ARCHIVE_STOPPED):
            if what in told:
                reason = replace(reason, text=f"{short}.{more}{others}")
            told.add(what)
        found.append(reason)
    return found


def being_planned(run: Any) -> Reason:
    """The progress of planning a large run. ``run``: a row with ``planned`` and ``planned_items``."""
    text = f"Its run is still being planned: the tasks of {run.planned:,} of {run.planned_items:,} items are stored. None of its tasks starts before all are stored."
    return Reason(kind=Why.PLANNED, text=text, commands=[f"arkqueue show {run_name(run)}"])


def without_or_again(session: Session, run: Any) -> list[str]:
    """The commands that leave the revision of a failed run out of its backfill, and that make the
    run again; empty for other runs.
    """
    if run.backfill_number is None:
        return []
    (found,) = session.rows("backfills_of", archive=run.archive_id, number=run.backfill_number, most=1)
    (fill,) = session.rows("backfill", backfill=found.id)
    return [f"arkqueue delete {run_name(run)}", backfill_command(fill, run.number, run.number)]


def ended(state: State, number: int) -> str:
    """How a number of tasks ended in a state, as words after their subject."""
    return "failed" if state is State.FAILED else f"{'was' if number == 1 else 'were'} {state}"


def of_whole_list(row: Any, command: str) -> str:
    """A command for a task of a list, as a command for all items in the task's state. A retry means
    the failed ones anyway.
    """
    is_default = row.state == State.FAILED and command.startswith("arkqueue retry ")
    return command.replace(task_name(row), whole_list(row), 1) + ("" if is_default else f" --state {row.state}")


def whole_list(row: Any) -> str:
    """The name of the list of an item, quoted for a command."""
    return shlex.quote(list_name(run_name(row), row.name))


def some(names: Sequence[str]) -> str:
    """The first few of some names, and the number of the others."""
    more = len(names) - MOST_SOME
    return ", ".join(names[:MOST_SOME]) + (f" and {more:,} more" if more > 0 else "")
