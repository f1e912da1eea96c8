"""Tasks as people see them: their states and outcomes, with the causes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from arkqueue.db.session import Session
from arkqueue.errors import NotFound
from arkqueue.model import SILENCE, AttemptId, End, TaskId, TaskKind
from arkqueue.names import PURGED
from arkqueue.plan.globs import is_guarded
from arkqueue.plan.ledger import BY_A_GUARD, HELD_WITHOUT_ENTRY
from arkqueue.states import SETTLED, State
from arkqueue.verdicts import EX_TEMPFAIL, MOST_LOSSES
from arkqueue.views.attempts import AttemptView, attempts
from arkqueue.views.audit import MOST_DEEDS, DeedView, deeds
from arkqueue.views.expected import Expected, expected_of
from arkqueue.views.naming import Place, Run, names_of, places_of
from arkqueue.views.rows import view_of

_KINDS = {str(kind): kind for kind in TaskKind}
_STATES = {str(state): state for state in State}
"""Members of enumerations by their names in PostgreSQL. Faster than the enumeration itself: a page
has a thousand of them.
"""
MOST_PAIRS = 100
"""The most waits for skipped tasks of a page that are followed."""
MOST_BEHIND = 100
"""The most edges that are followed behind each of them."""


@dataclass(
    slots=True, kw_only=True
)  # not frozen: then it takes four times as long to make one, and lists have hundreds
class TaskView:
    """One task. ``why``: a few words on the cause of its state, if the state does not say
    everything. ``awaits``: the tasks that it waits for if it is waiting or held, in a few words;
    empty if there are none: a held task then waits for nothing but its release.

    ``root``: the task because of which it was skipped; ``unneeded``: True if it runs only for a
    failure, and ``root`` completed. ``superseded_by``: the task that canceled it. ``by``: the person
    who canceled, skipped or waived it, or asked it to stop. ``polls``: True if its command has ended
    with 75, so that its poll runs instead. ``priority``: lower numbers go first inside an archive.
    ``stop``: the stop request to its running attempt. ``started_at``, ``ended_at``, ``exit_code`` and
    ``host`` are those of its newest attempt.
    """

    id: int
    run_id: int
    full_name: str
    archive: str
    branch: str
    rev: int
    revision: str
    run: int
    name: str
    item: str
    kind: TaskKind
    state: State
    why: str
    awaits: str
    gate: bool
    exclusive: bool
    priority: int
    waived: bool
    stop: str | None
    polls: bool
    by: str | None
    root: str | None
    unneeded: bool
    superseded_by: str | None
    attempts: int
    attempt: int | None
    host: str | None
    started_at: datetime | None
    ended_at: datetime | None
    exit_code: int | None
    message: str
    due_at: datetime | None
    ready_at: datetime | None
    settled_at: datetime | None

    @property
    def label(self) -> str:
        """Its name inside its run."""
        return f"{self.name}/{self.item}" if self.item else self.name


@dataclass(slots=True, kw_only=True)
class TaskDetail(TaskView):
    """A task with its frozen definition (None: COMMIT, REPORT), its attempts, and its audit log
    entries.

    ``item_body``: its item; None: it has no list. ``item_text``: the item as JSON, as its task gets
    it, with all digits of its numbers. ``deferred_at``: the first time that it ended with exit code
    75 since a person last retried it. ``deadline_at``: the time until which it may stay deferred.
    ``expected``: its expected start and end, if known.
    ``retry_count``: the number of retries by persons; ``attempts`` are its executions.
    """

    item_body: Any
    item_text: str | None
    deferred_at: datetime | None
    deadline_at: datetime | None
    retry_count: int
    definition: dict[str, Any] | None
    history: list[AttemptView]
    deeds: list[DeedView]
    expected: Expected | None


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What a task really waits for that waits for a skipped one. ``row``: of
    ``behind_skipped``.
    """

    name: str
    state: State
    row: Any


Behind = dict[tuple[int, int], Obstacle]


def views_of(
    session: Session,
    rows: Sequence[Any],
    runs: Sequence[Run],
    names: Mapping[int, str],
    edges: Sequence[Any] | None = None,
) -> list[TaskView]:
    """The views of rows of ``list_tasks``. ``names``: the tasks' names. ``edges``: the rows of
    ``edges_into``, if the caller has them.
    """
    shown = [row for row in rows if not is_implicit(row)]
    return _views(session, shown, {run.id: run for run in runs}, names, edges)


def rows_of(session: Session, tasks: Sequence[int]) -> list[Any]:
    """The rows of ``show_tasks``: tasks with all that is known of them."""
    return session.rows("show_tasks", tasks=list(tasks), silence=SILENCE)


def task(session: Session, task: TaskId, only: Sequence[AttemptId] | None = None) -> TaskDetail:
    """One task with its attempts and audit log entries. ``only``: these attempts; None: all."""
    rows = rows_of(session, [task])
    if not rows:
        raise NotFound(f"task {task}", "does not exist")
    (row,) = rows
    (view,) = _views(session, rows, {row.run_id: row}, names_of(rows))
    definition = session.rows("show_definition", definition=row.definition_id)
    item = session.rows("show_item", task=task) if row.item else []
    return view_of(
        view,
        TaskDetail,
        item_body=item[0].body if item else None,
        item_text=item[0].text if item else None,
        deferred_at=row.deferred_at,
        deadline_at=row.deadline_at,
        retry_count=row.retries,
        definition=definition[0].body if definition and isinstance(definition[0].body, dict) else None,
        history=attempts(session, task, only),
        deeds=deeds(session, tasks=[task])[-MOST_DEEDS:],
        expected=expected_of(session, [task]).get(task) if view.state not in SETTLED else None,
    )


def tasks_by_id(session: Session, ids: Sequence[int]) -> list[TaskView]:
    """Some tasks, in the order of ``ids``."""
    rows = rows_of(session, ids) if ids else []
    place = {id: place for place, id in enumerate(ids)}
    rows.sort(key=lambda row: place[row.id])
    return _views(session, rows, {row.run_id: row for row in rows}, names_of(rows))


def is_implicit(row: Any) -> bool:
    """True if a task is shown only where it has an effect: a gate, or a REPORT without a command
    that is not held.
    """
    return bool(row.kind == TaskKind.GATE or (row.kind == TaskKind.REPORT and row.gate and row.state != State.HELD))


def _views(
    session: Session,
    rows: Sequence[Any],
    places: Mapping[int, Place],
    names: Mapping[int, str],
    edges: Sequence[Any] | None = None,
) -> list[TaskView]:
    return views_and_behind(session, rows, places, names, edges)[0]


def views_and_behind(
    session: Session,
    rows: Sequence[Any],
    places: Mapping[int, Place],
    names: Mapping[int, str],
    edges: Sequence[Any] | None = None,
) -> tuple[list[TaskView], Behind]:
    waiting = [row.id for row in rows if row.state in (State.WAITING, State.HELD) and row.unmet]
    if edges is not None:
        awaited = _awaited(edges)
    else:
        read = session.rows("awaited", tasks=waiting) if waiting else []
        awaited = {row.target: (row.source, row.n) for row in read}
    awaited = {id: awaited[id] for id in waiting if id in awaited}
    ids = {id for row in rows for id in (row.root_id, row.superseded_by)} | {source for source, _ in awaited.values()}
    outside = places_of(session, ids - names.keys())
    skipped = {row.id for row in (*rows, *outside) if row.state == State.SKIPPED}
    pairs = [(id, source) for id, (source, _) in awaited.items() if source in skipped]
    pairs += [(e.target, e.source) for e in edges or () if e.source in skipped and not e.met and e.target in awaited]
    behind = behind_skipped(session, pairs)
    known = {**names, **names_of(outside)}
    return [_view(row, places[row.run_id], known, awaited.get(row.id), behind) for row in rows], behind


def _awaited(edges: Sequence[Any]) -> dict[int, tuple[int, int]]:
    """The unmet edges into each task: the lowest id of a source, and their number, as in the block
    ``awaited``.
    """
    found: dict[int, tuple[int, int]] = {}
    for target, source, met, _ in edges:
        if not met:
            lowest, count = found.get(target, (source, 0))
            found[target] = min(lowest, source), count + 1
    return found


def behind_skipped(session: Session, pairs: Sequence[tuple[int, int]]) -> Behind:
    """The obstacles behind some unmet edges (target and source) from skipped tasks."""
    some = list(dict.fromkeys(pairs))[:MOST_PAIRS]
    targets, sources = [target for target, _ in some], [source for _, source in some]
    rows = session.rows("behind_skipped", targets=targets, sources=sources, limit=MOST_BEHIND) if some else []
    names = names_of(rows)
    return {(row.target, row.source): Obstacle(names[row.id], _STATES[row.state], row) for row in rows}


def _view(
    row: Any, place: Place, names: Mapping[int, str], awaited: tuple[int, int] | None, behind: Behind
) -> TaskView:
    root = names.get(row.root_id)
    superseded_by = None if row.superseded_by is None else names.get(row.superseded_by, PURGED)
    awaits = _awaits(row, awaited, names, behind)
    return TaskView(  # field by field: lists mostly spend their time here, and `view_of` takes half as long again
        id=row.id,
        run_id=row.run_id,
        full_name=names[row.id],
        archive=place.archive,
        branch=place.branch,
        rev=row.number,
        revision=place.revision,
        run=row.run,
        name=row.name,
        item=row.item,
        kind=_KINDS[row.kind],
        state=_STATES[row.state],
        why=f"for {awaits}" if awaits and row.state == State.WAITING else _why(row, root, superseded_by, awaits),
        awaits=awaits,
        gate=row.gate,
        exclusive=row.exclusive,
        priority=row.priority,
        waived=row.waived,
        stop=row.stop,
        polls=row.polls,
        by=row.by,
        root=root,
        unneeded=row.is_unneeded,
        superseded_by=superseded_by,
        attempts=row.attempts,
        attempt=row.attempt,
        host=row.host,
        started_at=row.started_at,
        ended_at=row.ended_at,
        exit_code=row.exit_code,
        message=row.message or "",
        due_at=row.due_at,
        ready_at=row.ready_at,
        settled_at=row.settled_at,
    )


def _why(row: Any, root: str | None, superseded_by: str | None, awaits: str) -> str:
    by = f" by {row.by}" if row.by else ""
    match row.state:  # the most frequent first
        case State.COMPLETED:
            return row.message or ""
        case State.WAITING:
            return "stopping what it cancels" if row.fired and row.unmet else ""
        case State.SKIPPED:
            if root is None:
                return f"skipped{by}"
            return f"as {root} completed" if row.is_unneeded else f"because of {root}"
        case State.CANCELED:
            return f"superseded by {superseded_by}" if superseded_by else f"canceled{by}"
        case State.FAILED | State.REJECTED:
            return how_it_ended(row) + (f", waived{by}" if row.waived else "")
        case State.DEFERRED:
            return how_it_ended(row)
        case State.HELD:
            also = " and guarded by require-approval" if row.hold_id != BY_A_GUARD and is_guarded_now(row) else ""
            also += f", and waits for {awaits}" if awaits else ""
            if row.hold_id in HELD_WITHOUT_ENTRY:
                return f"by {HELD_WITHOUT_ENTRY[row.hold_id]}{also}"
            by = f"by {row.held_by}" if row.held_by else ""  # empty for a visitor who has not signed in
            return f"{by}{also}{f': {row.held_note}' if row.held_note else ''}".removeprefix(",").strip()
        case State.RUNNING if row.stop:
            return f"stopping: superseded by {superseded_by}" if superseded_by else f"stopping: {row.stop}{by}"
        case State.RUNNING if row.polls:
            return "its outcome is asked for (poll)"
        case State.READY if row.polls:
            # Rows of lists do not have the pause of the archive.
            return "its poll is due" + (f", but {row.archive} is paused" if getattr(row, "is_paused", False) else "")
    return ""


def is_guarded_now(row: Any) -> bool:
    """True if the settings of its archive guard a task. ``row``: from ``show_tasks``; rows of lists
    do not have the settings, and count as not guarded.
    """
    globs = getattr(row, "guards", ())
    return bool(globs) and is_guarded(globs, row.name, is_empty_report=row.kind == TaskKind.REPORT and row.gate)


def _awaits(row: Any, awaited: tuple[int, int] | None, names: Mapping[int, str], behind: Behind) -> str:
    if awaited is None:
        is_report_held = row.kind == TaskKind.REPORT and row.state == State.HELD
        return "the rest of its run" if is_report_held and row.unmet else ""
    source, count = awaited
    obstacle = behind.get((row.id, source))
    name = obstacle.name if obstacle else names[source]
    return name + (f" and {count - 1} more" if count > 1 else "")


def how_it_ended(row: Any) -> str:
    """A few words on the end of a task's newest attempt. ``row``: from ``show_tasks`` or
    ``list_tasks``.
    """
    if row.fault:
        return f"without an attempt: {row.fault}"
    exited = f"exit code {row.exit_code}" if row.exit_code is not None else ""  # then the message says why
    words = {
        "exited": exited,
        "timed-out": "timed out",
        "not-started": "could not be started",
        "not-permitted": "could not be started",
        "unreachable": "its repository could not be read",
        "withheld": "its host does not start it",
    }
    said = words.get(row.end or "", row.end or "")
    said = ": ".join(filter(None, (said, row.message)))
    if row.end == "lost" and row.state == State.FAILED:
        ended = f"given up after {MOST_LOSSES} reruns" if row.losses > MOST_LOSSES else "not run again (on_lost: fail)"
        said = f"{said}; {ended}"
    if row.state == State.FAILED and row.end == End.EXITED and row.exit_code == EX_TEMPFAIL:
        said = f"{said}; it had stayed deferred until its deadline"
    return said
