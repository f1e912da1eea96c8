"""Why the tasks of each archive wait: one sentence for each cause, in the words of ``explain``,
from a limited number of rows. Called by the overview, the grid, and what shows a run.

``explain`` follows every edge of one task. The overview asks about twenty archives at once, so this
module takes one task for each cause, and reads pools, locks and task managers for all of them
together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from arkqueue.db.session import Session
from arkqueue.model import ArchiveId
from arkqueue.names import run_name
from arkqueue.states import State
from arkqueue.views import not_starting, reasons
from arkqueue.views.naming import task_name
from arkqueue.views.not_starting import Around
from arkqueue.views.public import PublicSession
from arkqueue.views.reasons import MOST_ITEMS, Reason, Why
from arkqueue.views.tasks import Behind, TaskView, behind_skipped, rows_of

MOST_NAMES = 60
"""The most names of open tasks that are read in an archive."""
MOST_OF_A_NAME = 5
"""The most open tasks of one name that are read."""
MOST_BEHIND = 200
"""The most edges of a gate that are read."""
MOST_ALONE = 20
"""The most tasks that wait for no other task and whose reason is told with a run."""
MOST_CAUSES = 3
"""The most causes that are shown for an archive."""
ORDER = ("task", "locks", "ready", "gate", "through", "deferred", "held")
"""The causes, in the order in which they are shown."""
_CAUSES = {State.READY: "ready", State.DEFERRED: "deferred"}
"""The causes of tasks in some states; a waiting one may wait for its locks."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The cause of a wait, in one sentence. ``parts``: its text in parts, each with the task or run
    that it names; empty: none. ``failure``: the id of the failed or rejected task that holds it up,
    directly or through skipped tasks; None: there is none.
    """

    text: str
    parts: list[tuple[str, str]]
    failure: int | None = None


def waits_of(
    session: Session, archives: Sequence[ArchiveId], seen: Sequence[ArchiveId] | None = ()
) -> dict[int, list[Wait]]:
    """The causes for which tasks of some archives wait, by the archive's id. Archives in which no
    task waits are left out. ``seen``: as in `Around`.
    """
    if not archives:
        return {}
    asked: dict[str, Any] = {"names": MOST_NAMES, "of_name": MOST_OF_A_NAME, "looked_at": MOST_BEHIND}
    found: dict[int, dict[str, Any]] = defaultdict(dict)
    for row in session.rows("waits_of_archives", archives=list(archives), **asked):
        found[row.archive_id][row.cause] = row
    pairs = [pair for causes in found.values() for pair in causes.values()]
    ids = sorted({id for pair in pairs for id in (pair.target, pair.source) if id is not None})
    tasks = {row.id: row for row in rows_of(session, ids)} if ids else {}
    skipped = {id for id, row in tasks.items() if row.state == State.SKIPPED}
    behind = behind_skipped(session, [(pair.target, pair.source) for pair in pairs if pair.source in skipped])
    gates = {row.id: row for row in _gates(session, [pair.source for pair in pairs if pair.cause == "gate"])}
    around = Around(session, [pair.target for pair in pairs if pair.cause in ("locks", "ready")], seen)
    return {
        archive: [*_of_archive(session, causes, tasks, behind, gates, around)][:MOST_CAUSES]
        for archive, causes in found.items()
    }


def alone(session: Session, tasks: Sequence[int], seen: Sequence[ArchiveId] | None = ()) -> dict[int, str]:
    """The reason of each of some tasks that does not wait for another task, in the words of
    ``explain`` after the task's name, for a paused lock with the command that helps. Left out are
    tasks that are about to start, or wait for another task. ``seen``: as in `Around`. A visitor who
    has not signed in gets no command.
    """
    found, rows = {}, rows_of(session, list(tasks)) if tasks else []
    around = Around(session, [row.id for row in rows if row.state != State.DEFERRED], seen)
    for row in rows:
        cause, subject = _CAUSES.get(row.state, "locks"), _label(row)
        for reason in _alone(session, cause, row, around):
            is_told = reason.kind is Why.LOCK_PAUSED and not isinstance(session, PublicSession)
            remedy = f"; to resume it: {reason.commands[0]}" if is_told else ""
            found[row.id] = reason.text.removeprefix(subject).strip().removesuffix(".") + remedy
    return found


def tell_why_alone(session: Session, tasks: Iterable[TaskView], seen: Sequence[ArchiveId] | None = ()) -> None:
    """Store in ``why`` of the first tasks that wait for no other task why each has not started, in
    the words of ``explain``; deferred tasks come last. ``seen``: as in `Around`.
    """
    tasks = list(tasks)
    by_id = {
        task.id: task for task in tasks if task.state is State.READY or (task.state is State.WAITING and not task.why)
    }
    deferred = {task.id: task for task in tasks if task.state is State.DEFERRED}
    for row in rows_of(session, [*deferred][: max(MOST_ALONE - len(by_id), 0)]) if deferred else []:
        if row.state == State.DEFERRED:  # it may have gone on meanwhile
            deferred[row.id].why = reasons.deferred_in_table(row)
    for id, text in alone(session, [*by_id][:MOST_ALONE], seen).items():
        words = text.removeprefix("is ready").removeprefix(",").removeprefix("waits ")
        by_id[id].why = words.strip().removeprefix("but ").removeprefix("and ")


def _gates(session: Session, gates: Sequence[int]) -> list[Any]:
    return session.rows("gates_of_lists", gates=list(gates), most=MOST_ITEMS) if gates else []


def _of_archive(
    session: Session,
    causes: dict[str, Any],
    tasks: dict[int, Any],
    behind: Behind,
    gates: dict[int, Any],
    around: Around,
) -> Iterable[Wait]:
    if "task" in causes or "gate" in causes:
        causes.pop("through", None)
    first = next((tasks[pair.target] for pair in causes.values() if pair.target in tasks), None)
    withheld = (reasons.stopped(first, brief=True) or reasons.paused(first)) if first is not None else []
    yield from (_said(reason, []) for reason in withheld)
    for cause in ORDER:
        pair = causes.get(cause)
        # A task that becomes ready, or settles, between two queries does not wait any more.
        if pair is None or pair.target not in tasks or (pair.source is not None and pair.source not in tasks):
            continue
        target, source = tasks[pair.target], tasks.get(pair.source)
        if cause in ("task", "through"):
            obstacle = behind.get((pair.target, pair.source))
            yield _waits_for(target, source, obstacle.row if obstacle else None)
        elif cause == "gate" and pair.source in gates:
            of = gates[pair.source].name.rpartition(":")[0]
            links = [(_label(target), task_name(target)), (of, run_name(source))]
            yield _said(reasons.at_gate(gates[pair.source], _label(target)), links)
        elif not withheld or cause in ("deferred", "held"):
            yield from (
                _said(reason, [(_label(target), task_name(target))])
                for reason in _alone(session, cause, target, around)
            )


def _alone(session: Session, cause: str, row: Any, around: Around) -> list[Reason]:
    """The reason of a task that does not wait for another task."""
    subject = _label(row)
    if cause == "locks":
        return not_starting.asking(session, row, subject, around, brief=True)[:1]
    if cause == "ready" and row.state == State.READY:
        reason = not_starting.ready(session, row, subject, around, brief=True)
        return [] if reason.kind is Why.ABOUT_TO_START else [reason]
    if cause == "deferred" and row.state == State.DEFERRED:
        return [reasons.deferred(row, subject, brief=True)]
    if cause == "held" and row.state == State.HELD:
        return [reasons.held(row, subject)]
    return []


def _waits_for(target: Any, source: Any, obstacle: Any) -> Wait:
    """The wait of one task for another. ``obstacle``: the task that holds it up, if that
    one was skipped.
    """
    parts = [(_label(target), task_name(target)), (" waits for ", ""), *_beside(target, obstacle or source)]
    if obstacle is not None:
        parts += [(", through ", ""), (_short(target, source), task_name(source))]
    holding = obstacle or source
    failure = holding.id if holding.state in (State.FAILED, State.REJECTED) else None
    return replace(_wait([part for part in parts if part[0]]), failure=failure)


def _beside(target: Any, other: Any) -> list[tuple[str, str]]:
    """Another task with its state, if it is more than under way."""
    state = "" if other.state in (State.READY, State.RUNNING) else f" ({other.state})"
    return [(_short(target, other), task_name(other)), (state, "")]


def _short(target: Any, other: Any) -> str:
    """The short name of another task if both belong to one run."""
    run = f".{other.run}" if other.run > 1 else ""
    return _label(other) if other.run_id == target.run_id else f"{other.number}{run}/{_label(other)}"


def _said(reason: Reason, links: Sequence[tuple[str, str]]) -> Wait:
    """A reason with links: its subject, if that is the first of ``links``, and each name in it."""
    parts, rest = [], reason.text.removesuffix(".")
    known = [*links, *((name, name) for name in reason.tasks)]
    while found := min(
        ((rest.find(words), -len(words), words, of) for words, of in known if words in rest), default=None
    ):
        at, _, words, of = found
        parts += [(rest[:at], ""), (words, of)]
        rest = rest[at + len(words) :]
        known = [one for one in known if one[0] != words]
    return _wait([part for part in [*parts, (rest, "")] if part[0]])


def _wait(parts: list[tuple[str, str]]) -> Wait:
    return Wait("".join(text for text, _ in parts), parts)


def _label(row: Any) -> str:
    return f"{row.name}/{row.item}" if row.item else str(row.name)
