"""The sentence that summarizes a run, or an item of a run, on its page. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from arkqueue.states import State
from arkqueue.views.items import ListView
from arkqueue.views.lists import Numbers
from arkqueue.views.runs import RunDetail
from arkqueue.views.tasks import TaskView


def sentence(view: RunDetail, lists: Sequence[ListView], numbers: Numbers) -> str:
    """A summary of a run in a sentence. ``lists``: the lists whose tasks ``view`` leaves out.
    ``numbers``: those of all lists of the run.
    """
    to_wait = {of.name: numbers.behind[view.id, of.name] for of in lists}
    if view.faults:
        if not any(fault.line for fault in view.faults):
            return "It could not start, so it has no tasks."
        count = len(view.faults)
        return f"Its workflow files have {count} fault{'s' if count > 1 else ''}, so it has no tasks."
    if view.baseline:
        return "Watching begins here: no task runs for this revision."
    running = _labels([task for task in view.tasks if task.state is State.RUNNING])
    to_release = [task for task in view.tasks if waits_for_release(task)]
    held = _labels(to_release)
    waiting = sum(map(_waits, view.tasks)) + number_of(lists, State.WAITING, State.READY) + sum(to_wait.values())
    deferred = _labels([task for task in view.tasks if task.state is State.DEFERRED])
    is_one_deferred = sum(task.state is State.DEFERRED for task in view.tasks) + number_of(lists, State.DEFERRED) == 1
    deferred += _of_lists(lists, State.DEFERRED)
    is_one = sum(task.state is State.RUNNING for task in view.tasks) + number_of(lists, State.RUNNING) == 1
    running += _of_lists(lists, State.RUNNING)
    is_held_alone = len(to_release) + number_of(lists, State.HELD) - sum(to_wait.values()) == 1
    held += _in_words((of.name, number_of([of], State.HELD) - to_wait[of.name]) for of in lists)
    said = []
    if view.planned is not None:
        said.append(
            f"it is being planned ({view.planned:,} of {view.planned_items:,} items), and none of its tasks starts before"
        )
    said += _bad(view.tasks, lists, waived=False)
    said += _said(running, held, waiting, one_runs=is_one, one_waits=is_held_alone)
    said += [f"{_listed(deferred)} {'is' if is_one_deferred else 'are'} deferred"] if deferred else []
    if not said and not view.counts.tasks:
        return f"It is {view.state}: it has no tasks."
    if not said:
        completed = f"{view.counts.completed} of {view.counts.tasks} tasks completed"
        said.append(completed if view.state == "deleted" else f"It is {view.state}: {completed}")
    said += _bad(view.tasks, lists, waived=True)
    return "; ".join(said) + "."


def sentence_of_item(tasks: Sequence[TaskView]) -> str:
    """A summary of an item in a sentence."""
    by_name = [replace(task, item="") for task in tasks]  # the page is about the item
    held = [task.name for task in tasks if waits_for_release(task)]
    running = [task.name for task in tasks if task.state is State.RUNNING]
    deferred = [task.name for task in tasks if task.state is State.DEFERRED]
    waiting = sum(map(_waits, tasks))
    said = _bad(by_name, (), waived=False)
    said += _said(running, held, waiting, one_runs=len(running) == 1, one_waits=len(held) == 1)
    said += [f"{_listed(deferred)} {'is' if len(deferred) == 1 else 'are'} deferred"] if deferred else []
    completed = sum(task.state is State.COMPLETED for task in tasks)
    said.append(f"{completed} of {len(tasks)} tasks completed" if len(tasks) > 1 or completed else "no task completed")
    said += _bad(by_name, (), waived=True)
    return "; ".join(said) + "."


def _bad(tasks: Sequence[TaskView], lists: Sequence[ListView], *, waived: bool) -> list[str]:
    """The parts of a summary on the failed and the rejected tasks, those that are ``waived`` or those
    that are not. ``lists``: the lists whose items ``tasks`` leaves out.
    """
    parts = []
    for state in (State.FAILED, State.REJECTED):
        some = [task for task in tasks if task.state is state and task.waived is waived]
        numbers = {of.name: of.waived_in(state) if waived else of.unwaived_in(state) for of in lists}
        names = [*_labels(some), *_in_words(numbers.items())]
        if names:
            were = "was " if len(some) + sum(numbers.values()) == 1 else "were "
            parts.append(f"{_listed(names)} {were if state is State.REJECTED else ''}{state}{', waived' * waived}")
    return parts


def _said(running: list[str], held: list[str], waiting: int, *, one_runs: bool, one_waits: bool) -> list[str]:
    """Further parts of a summary. ``one_runs``, ``one_waits``: True if only one task runs, or is held."""
    said = []
    if running:
        said.append(f"{_listed(running)} {'is' if one_runs else 'are'} running")
    if held:
        said.append(f"{_listed(held)} {'waits' if one_waits else 'wait'} for a release")
    if waiting:
        said.append(f"{waiting:,} task{'s wait' if waiting > 1 else ' waits'}")
    return said


def waits_for_release(task: TaskView) -> bool:
    """Whether a task waits for nothing but a release."""
    return task.state is State.HELD and not task.awaits


def _waits(task: TaskView) -> bool:
    """Whether a task waits for something other than a release alone."""
    return task.state in (State.WAITING, State.READY) or bool(task.awaits)


def _labels(tasks: Sequence[TaskView]) -> list[str]:
    """The names of tasks inside their run; for several items of a list, their number."""
    items = Counter(task.name for task in tasks if task.item)
    labels = [f"{items[t.name]:,} items of {t.name}" if t.item and items[t.name] > 1 else t.label for t in tasks]
    return list(dict.fromkeys(labels))


def number_of(lists: Sequence[ListView], *states: State) -> int:
    """The number of tasks of lists in some states."""
    return sum(of.counts.get(state, 0) for of in lists for state in states)


def _of_lists(lists: Sequence[ListView], *states: State) -> list[str]:
    """The number of items of each list in some states, in words."""
    return _in_words((of.name, number_of([of], *states)) for of in lists)


def _in_words(numbers: Iterable[tuple[str, int]]) -> list[str]:
    """The numbers of items of lists, in words."""
    return [f"{number:,} item{'s' if number > 1 else ''} of {name}" for name, number in numbers if number]


def _listed(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
