"""Tasks and attempts as people see them: their states and outcomes, with the causes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any

from arkqueue.db.session import Session
from arkqueue.errors import NotFound
from arkqueue.model import SILENCE, AttemptId, AttemptKind, BranchId, End, RunId, TaskId, TaskKind
from arkqueue.names import PURGED, run_name, task_in_run
from arkqueue.plan.globs import is_guarded
from arkqueue.plan.ledger import BY_A_GUARD, HELD_WITHOUT_ENTRY
from arkqueue.states import ATTENTION, SETTLED, State
from arkqueue.usage import usage_in_words
from arkqueue.verdicts import EX_TEMPFAIL, MOST_LOSSES
from arkqueue.views.expected import Expected, expected_of
from arkqueue.views.naming import Place, Run, names_of, names_within, places_of
from arkqueue.views.rows import view_of

_KINDS = {str(kind): kind for kind in TaskKind}
_STATES = {str(state): state for state in State}
"""Members of enumerations by their names in PostgreSQL. Faster than the enumeration itself: a page
has a thousand of them.
"""
MOST_DEEDS = 50
"""The most audit log entries that are shown with a run or a task."""
MOST_PAIRS = 100
"""The most waits for skipped tasks of a page that are followed."""
MOST_BEHIND = 100
"""The most edges that are followed behind each of them."""
MOST_LISTS = 5
"""The most runs with a list among which the highest one is sought that has an item."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptView:
    """One execution of a task, or of its poll. ``end`` None: it goes on. ``base``: the revision id
    that was its BASE. ``log_bytes``: the bytes that it wrote.

    ``processor_seconds``: the processor time, user and system. ``peak_memory_bytes``: the memory of
    the largest process of the attempt's tree, or of its container; the guard itself has 10 MiB, so
    no process shows less. Both are None while the attempt runs, and if nothing measured them.
    ``usage_sampled``: True if both were read while the attempt ran, as for a container, so that it
    used at least as much.

    ``image``: the digest of its container's image; None: it was a process. ``log_removed``,
    ``outputs_removed``: the sentence shown in place of a removed log or removed outputs.
    """

    id: int
    task: int
    kind: AttemptKind
    number: int
    process: str
    host: str
    hostname: str | None
    lease_until: datetime
    claimed_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    exit_code: int | None
    end: str | None
    message: str
    outputs: dict[str, Any] | None
    base: str | None
    log_bytes: int
    image: str | None
    processor_seconds: float | None
    peak_memory_bytes: int | None
    usage_sampled: bool | None
    log_removed: str | None
    outputs_removed: str | None

    @property
    def used(self) -> str:
        """Its resources in words; empty if they are not known."""
        return usage_in_words(self.processor_seconds, self.peak_memory_bytes, self.usage_sampled)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class DeedView:
    """An entry of the audit log. ``task``: the task as in an address (``deposit/13030%2Fm5``); None: the entry is about a whole run or archive.

    ``of``: the archive on all of which the verb acted, or, in the history of a task, the whole run;
    None: the verb acted on the thing that is shown.
    """

    at: datetime
    by: str
    verb: str
    task: str | None
    of: str | None
    note: str


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
class AttemptsAround:
    """Some attempts of a task that may have thousands, as it is polled for weeks. ``count``: the number
    of all. ``newest``: the id of the newest one, ``chosen`` of the one that was asked for, or else of
    the newest one; None: there is none. ``shown``: the ids of those to list, the oldest first.
    ``earlier`` and ``later``: the numbers of attempts before and behind these; None: there are none.
    """

    count: int
    newest: AttemptId | None
    chosen: AttemptId | None
    shown: Sequence[AttemptId]
    earlier: int | None
    later: int | None


@dataclass(slots=True)  # not frozen, as TaskView
class CellView:
    """The tasks of a run that have one name: one, or one for each item of a list. ``task``: the one
    that is shown for all, the most urgent one. ``bad``: the number of failed and rejected ones that
    nobody waived; ``rejected``: how many of these were rejected. ``waived``: the number of waived
    failures; ``waived_rejected``: how many of these were rejected.
    """

    task: TaskView
    items: int
    completed: int
    bad: int
    rejected: int
    waived: int
    waived_rejected: int


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What a task really waits for that waits for a skipped one. ``row``: of
    ``behind_skipped``.
    """

    name: str
    state: State
    row: Any


Behind = dict[tuple[int, int], Obstacle]


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells of some runs, the newest run first. ``runs``: by the runs' ids, without runs for
    which there was no room. ``names``: those of all tasks of the runs, in the order of the files.

    ``edges``: the edges into the tasks of the cells, without ``cancels``: ``target``, ``source``,
    ``met``, and whether its kind ``is_depends``. ``behind``: the obstacles behind skipped
    sources, by target and source.
    """

    runs: dict[int, list[CellView]]
    names: list[str]
    edges: list[Any]
    behind: Behind


def cells_of(
    session: Session,
    runs: Sequence[Run],
    most: int | None = None,
    chosen: Collection[str] = (),
    width: int = 1,
    unhandled: Mapping[tuple[int, str], int] = MappingProxyType({}),
) -> Cells:
    """The ordinary tasks of runs, the newest run first. A list is one cell, and one of its items is
    read, however long it is.

    ``most``: the most cells; one run is always read. ``chosen``: only tasks with these names.
    ``width``: the approximate number of cells of a run, so that few runs are read for nothing.
    ``unhandled``: the first unhandled failure of a run and name, by its id: it stands for its list, if
    it is still a failure.
    """
    runs = sorted(runs, key=lambda run: run.id, reverse=True)
    step = len(runs) if most is None else most // max(width, 1) + 1
    some: dict[int, Any] = {}
    names: dict[str, None] = {}
    kept: list[Run] = []
    while len(kept) < len(runs) and (most is None or len(some) < most):
        part = runs[len(kept) : len(kept) + step]
        counted = session.rows("count_cells", runs=[run.id for run in part], attention=list(map(str, ATTENTION)))
        of_runs: dict[int, list[Any]] = defaultdict(list)
        for row in counted:
            names[row.name] = None
            if not chosen or row.name in chosen:
                of_runs[row.run_id].append(row)
        for run in part:
            if most is not None and len(some) >= most:
                break
            kept.append(run)
            some |= {row.id: row for row in of_runs[run.id]}
    found: dict[int, list[CellView]] = {run.id: [] for run in kept}
    firsts = {
        row.id: unhandled[of] for row in some.values() if row.bad > 1 and (of := (row.run_id, row.name)) in unhandled
    }
    asked = {"runs": list(found), "item": None, "tasks": list({*some, *firsts.values()})}
    rows, edges = session.rows_of(("list_tasks", asked), ("edges_into", asked)) if some else ([], [])
    views, behind = _views_and_behind(session, rows, {run.id: run for run in kept}, names_within(rows, kept), edges)
    by_id = {view.id: view for view in views}
    for view in views:
        if row := some.get(view.id):
            first = by_id.get(firsts.get(view.id, view.id))
            shown = first if first is not None and urgency(first)[0] == 0 else view
            cell = CellView(shown, row.items, row.completed, row.bad, row.rejected, row.waived, row.waived_rejected)
            found[view.run_id].append(cell)
    if firsts:
        targets = {cell.task.id for cells in found.values() for cell in cells}
        edges = [edge for edge in edges if edge.target in targets]
    return Cells(found, list(names), edges, behind)


def highest_tasks(
    session: Session, branch: BranchId, names: Collection[str], known: Mapping[int, TaskView]
) -> dict[str, TaskView]:
    """The task at the highest revision of a branch, by name; for a list, its most urgent item.
    ``known``: tasks that need not be read again, by id.
    """
    attention = list(map(str, ATTENTION))
    rows = session.rows("highest_tasks", branch=branch, names=list(names), attention=attention, most=MOST_LISTS)
    read = {task.id: task for task in tasks_by_id(session, [row.id for row in rows if row.id not in known])}
    return {row.name: known.get(row.id) or read[row.id] for row in rows}


def urgency(task: TaskView) -> tuple[int, int]:
    """The place of a task among those for which one state is shown, as the part ``urgency`` of the
    statements has it.
    """
    is_bad = task.state in (State.FAILED, State.REJECTED)
    rank = 2 if is_bad and task.waived else 0 if is_bad else 3 if task.state in SETTLED else 1
    return rank, ATTENTION.index(task.state)


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


def attempts(session: Session, task: TaskId, only: Sequence[AttemptId] | None = None) -> list[AttemptView]:
    """The attempts of a task, the oldest first. ``only``: these; None: all."""
    asked = {"tasks": [task], "attempts": None} if only is None else {"tasks": None, "attempts": list(only)}
    return [_attempt(row) for row in session.rows("show_attempts", **asked)]


def attempts_around(session: Session, task: TaskId, number: int | None, most: int) -> AttemptsAround:
    """The newest attempts of a task, or those around the one with this number."""
    rows = session.rows("attempts_around", task=task, number=number, most=most)
    shown = [at for at, row in enumerate(rows) if row.is_shown]
    behind = rows[shown[-1] + 1 :][: most // 2] if rows else []
    return AttemptsAround(
        count=rows[-1].count if rows else 0,
        newest=AttemptId(rows[-1].id) if rows else None,
        chosen=next((AttemptId(row.id) for row in rows if row.is_chosen), None),
        shown=[AttemptId(rows[at].id) for at in shown],
        earlier=rows[0].number if rows and not rows[0].is_shown else None,
        later=behind[-1].number if behind else None,
    )


def attempt(session: Session, attempt: AttemptId) -> AttemptView:
    """One attempt."""
    found = session.rows("show_attempts", tasks=None, attempts=[attempt])
    if not found:
        raise NotFound(f"attempt {attempt}", "does not exist")
    return _attempt(found[0])


def deeds(session: Session, *, tasks: Sequence[TaskId] = (), runs: Sequence[RunId] = ()) -> list[DeedView]:
    """The newest audit log entries of tasks, or of runs and their tasks, oldest first: up to
    `MOST_DEEDS`, and one more if there are more.
    """
    rows = session.rows("show_deeds", tasks=list(tasks) or None, runs=list(runs) or None, most=MOST_DEEDS + 1)
    return [
        DeedView(at=row.at, by=row.by, verb=row.verb, task=_in_run(row), of=_of_whole(row, runs), note=row.note)
        for row in reversed(rows)
    ]


def _of_whole(row: Any, runs: Sequence[RunId]) -> str | None:
    if row.is_of_archive:
        # The note on a backfill begins with its name.
        return None if row.note.startswith(f"{row.archive}@") else row.archive + " --all" * (row.verb == "release")
    return run_name(row) if row.is_of_run and not runs else None


def _in_run(row: Any) -> str | None:
    return None if row.name is None else task_in_run(row.name, row.item).removeprefix("/")


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
    return _views_and_behind(session, rows, places, names, edges)[0]


def _views_and_behind(
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


def _attempt(row: Any) -> AttemptView:
    return view_of(row, AttemptView, task=row.task_id, kind=AttemptKind(row.kind))
