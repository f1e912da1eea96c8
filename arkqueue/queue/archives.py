"""Registers, scans, stops and resumes archives, and accepts notices.

A notice only asks for a scan. It is kept until a scan that began after it has ended. Nothing here
reads a repository.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from arkqueue.archive_settings import ArchiveSettings, read_settings
from arkqueue.db.session import Session
from arkqueue.errors import Conflict, NotFound
from arkqueue.model import ArchiveId, BranchId, Workflow
from arkqueue.names import without_password
from arkqueue.plan import Entry
from arkqueue.plan.globs import is_guarded
from arkqueue.plan.ledger import BY_A_GUARD
from arkqueue.queue import ending, schedules
from arkqueue.queue.changes import change, change_in_turn
from arkqueue.queue.graph import Graph
from arkqueue.queue.ledger import Branch, begin
from arkqueue.queue.limits import fit_slots
from arkqueue.workflow import from_json

_NUMBER = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Start:
    """The start of a branch's ledger: its baseline, or None if the branch has no commit yet.

    ``until``: the id of the last revision that is not judged as an import, however many there are
    before it. None: all are judged.
    """

    branch: str
    main: bool
    baseline: Entry | None
    until: str | None = None


def register(
    session: Session,
    *,
    name: str,
    kind: str,
    url: str,
    repository: str,
    uuid: str,
    folder: str,
    settings: ArchiveSettings,
    starts: Sequence[Start],
    by: str | None = None,
) -> ArchiveId:
    """Register an archive with the baselines of its branches. Raises ``Conflict`` if the name is
    taken.

    A removed archive that had the name is renamed to ``NAME~1``, …, so that a run's name never
    means two runs. ``by``: the person who adds the archive, for the audit log.
    """

    def work(graph: Graph) -> ArchiveId:
        found = graph.ids(
            "add_archive",
            name=name,
            kind=kind,
            url=url,
            repository=repository,
            uuid=uuid,
            folder=folder,
            settings=Jsonb(asdict(settings)),
        )
        if not found:
            raise Conflict(f"archive {name}", "exists already", "choose another name, or remove it first")
        graph.do("rename_removed", name=name)
        fit_slots(graph, found[0], is_limited=settings.max_running is not None)
        _start(graph, found[0], starts)
        if settings.workflow_authors:
            graph.do("accept_heads", archive=found[0])
        if by is not None:
            note = f"{kind} {without_password(url)}"
            graph.do("remember", by=by, verb="add", archive=found[0], run=None, task=None, note=note)
        return ArchiveId(found[0])

    return change(session, [], work)


def _start(graph: Graph, archive: int, starts: Sequence[Start]) -> None:
    """Track branches that were not tracked before, and begin their ledgers."""
    names, mains = [start.branch for start in starts], [start.main for start in starts]
    untils = [start.until for start in starts]
    added = graph.rows("add_branches", archive=archive, names=names, mains=mains, untils=untils)
    ids = {row.name: row.id for row in added}
    new = [
        (Branch(ids[start.branch], archive, start.branch, start.main, None), start.baseline)
        for start in starts
        if start.baseline is not None
    ]
    begin(graph, archive, new)


def change_settings(
    session: Session, archive: ArchiveId, settings: ArchiveSettings, by: str, starts: Sequence[Start] = ()
) -> None:
    """Change the settings of an archive, and enter the changes in the audit log. ``starts``: the
    baselines of branches that are tracked from now on.
    """

    def fit(graph: Graph) -> bool:
        return fit_slots(graph, archive, is_limited=settings.max_running is not None)

    def work(graph: Graph) -> bool:
        (row,) = graph.rows("archive", archive=archive)
        before = read_settings(row.settings, row.name)
        graph.do("change_archive", archive=archive, settings=Jsonb(asdict(settings)))
        if changed := _what_changes(before, settings):
            graph.do("remember", by=by, verb="set", archive=archive, run=None, task=None, note=changed)
        if settings.workflow_authors and not before.workflow_authors:
            graph.do("accept_heads", archive=archive)
        _guard(graph, archive, settings.require_approval, before.require_approval)
        graph.do("change_pool", archive=archive)
        graph.judges_all = True
        graph.do("change_turn", archive=archive)
        has_slots = fit(graph)
        there = {row.name for row in graph.rows("branches", archive=archive)}
        _start(graph, archive, [start for start in starts if start.branch not in there])
        return has_slots

    if change(session, [archive], work):
        # A claim that began before the commit has taken no slots, and this transaction could not
        # see its attempts.
        change(session, [archive], fit)


def _what_changes(before: ArchiveSettings, after: ArchiveSettings) -> str:
    """The settings that change, each with its old and new value as JSON."""
    old, new = asdict(before), asdict(after)
    texts = ((name, json.dumps(old[name]), json.dumps(new[name])) for name in new)
    return "; ".join(f"{name}: {was} -> {is_now}" for name, was, is_now in texts if was != is_now)


def _guard(graph: Graph, archive: int, globs: Sequence[str], before: Sequence[str]) -> None:
    """Hold the unstarted tasks whose names match a glob from now on. Tasks that matched ``before``
    are held already, or an approver released them.
    """
    if set(globs) <= set(before):
        return
    names = graph.rows("to_guard", archive=archive)
    tasks = [
        row.id
        for row in names
        if is_guarded(globs, row.name, is_empty_report=row.is_empty_report)
        and not is_guarded(before, row.name, is_empty_report=row.is_empty_report)
    ]
    if tasks:
        graph.rows("lock_tasks", tasks=tasks)
        graph.hold(tasks, BY_A_GUARD)


def remove(session: Session, archive: ArchiveId, by: str) -> None:
    """Stop watching an archive, and cancel its unstarted tasks. Its history stays readable."""

    def work(graph: Graph) -> None:
        if not graph.rows("remove_archive", archive=archive):
            raise NotFound(f"archive {archive}", "is removed already")
        graph.do("drop_look", archive=archive)
        runs: list[int] = []
        for branch in graph.rows("branches", archive=archive):
            graph.do("drop_schedules_of_branch", branch=branch.id)
            runs += graph.ids("runs_of_branch", branch=branch.id)
        ending.begin(graph, archive, runs, by)
        graph.do("remember", by=by, verb="remove", archive=archive, run=None, task=None, note="")

    change(session, [archive], work)


def notify(session: Session, archives: Iterable[ArchiveId], revision: str | None = None) -> None:
    """Ask for a scan of some archives' repositories (design 2). ``revision``: the revision that the
    notice named.
    """
    session.do("ask_to_look", archives=list(archives), revision=revision)
    session.wake("look")


def sync(session: Session, archive: ArchiveId, by: str | None = None) -> None:
    """Have an archive's repository scanned at once, also before the pause after a failure is over:
    a person may have fixed the cause.

    ``by``: the person who asked, for the audit log. None: the scan is part of another verb, which
    has an entry of its own.
    """
    with session.admitted([archive]):
        session.do("let_be_due", archive=archive, by=by)
    notify(session, [archive])


def notify_all(session: Session, notices: Iterable[tuple[ArchiveId, str | None]]) -> None:
    """Accept many notices, in the order in which they came. A burst of one archive's notices becomes one row."""
    expected: dict[ArchiveId, str | None] = {}
    for archive, revision in notices:
        expected[archive] = _expected(expected.get(archive), revision)
    for revision in dict.fromkeys(expected.values()):
        notify(session, [archive for archive in expected if expected[archive] == revision], revision)


def _expected(known: str | None, told: str | None) -> str | None:
    """The expected revision after one more notice. The statement of ``notify`` has the same rule."""
    if known is None or told is None:
        return told or known
    return max(known, told, key=int) if _NUMBER.fullmatch(known) and _NUMBER.fullmatch(told) else told


def one(session: Session, archive: ArchiveId) -> Any:
    """An archive's row."""
    found = session.rows("archive", archive=archive)
    if not found:
        raise NotFound(f"archive {archive}", "does not exist")
    return found[0]


def with_branches(session: Session, archive: ArchiveId) -> tuple[Any, list[Any]]:
    """An archive's row with what its reader needs, and the rows of its branches with the ledgers'
    heads, all read at one moment.
    """
    found = session.rows("archive_with_branches", archive=archive)
    if not found:
        raise NotFound(f"archive {archive}", "does not exist")
    return found[0], [row for row in found if row.id is not None]


def watched(session: Session) -> list[Any]:
    """The rows of all archives that are not removed."""
    return session.rows("archives_watched")


def sweep_all(session: Session, archives: Sequence[ArchiveId] | None = None) -> list[ArchiveId]:
    """Ask for a scan of every archive's repository, or of some, as at the start of a queue manager
    (design 2).

    Returns the archives that another transaction had locked, for another call.
    """
    return [ArchiveId(row.id) for row in session.rows("sweep_all", archives=archives)]


def to_read(session: Session, most: int | None = None) -> list[Any]:
    """The archives to scan now: first those that a notice names, then those whose next scan is due.
    Rows of id, name, asked, revision, troubled, waited.
    """
    return session.rows("to_read", most=most)


def read_done(session: Session, archive: ArchiveId, asked: int | None, sweep: float) -> None:
    """Record that an archive was read to its head. Notices up to ``asked`` are answered; the next scan is due in ``sweep`` seconds."""
    forgotten = session.do("read_done", archive=archive, asked=asked, sweep=sweep)
    if asked is not None and not forgotten:
        session.wake("look")


def read_quietly(session: Session, archives: Sequence[int], sweep: float) -> None:
    """Record that some archives' repositories have not changed since their last scan. The next scan is due in ``sweep`` seconds."""
    session.do("read_quietly", archives=list(archives), sweep=sweep)


def expect(session: Session, archive: ArchiveId, asked: int, pause: float) -> None:
    """Record that an archive was scanned, and that the revision which a notice named was not there.
    The next scan is due in ``pause`` seconds.
    """
    session.do("read_done", archive=archive, asked=None, sweep=pause)
    session.do("expect", archive=archive, asked=asked)


def read_failed(session: Session, archive: ArchiveId, trouble: str, first: float, longest: float = 60.0) -> None:
    """Record that an archive could not be read. The next try is due in ``first`` seconds; the pause
    grows with each failure, up to ``longest`` seconds.
    """
    session.do("read_failed", archive=archive, trouble=trouble.replace("\0", "\ufffd"), first=first, longest=longest)


def say_trouble(session: Session, archive: ArchiveId, trouble: str, first: float, longest: float = 60.0) -> bool:
    """Like `read_failed`, for a caller that must not wait for one archive. Returns False, and
    stores nothing, if another transaction had locked it.
    """

    def work(graph: Graph) -> None:
        graph.do("read_failed", archive=archive, trouble=trouble.replace("\0", "\ufffd"), first=first, longest=longest)

    _, busy = change_in_turn(session, work, archives=[archive], patience=0.0)
    return not busy


def stop(session: Session, archive: ArchiveId, why: str) -> None:
    """Stop an archive whose repository is another one, or went back in time, until a person brings
    it back or rewinds it.

    The archive is not read, and nothing of it starts. Running tasks go on, and their ends are
    recorded. Tasks that become ready wait until the archive goes on.
    """

    def work(graph: Graph) -> None:
        graph.do("stop_archive", archive=archive, why=why)
        graph.do("have_archive_judged", archive=archive)
        graph.do("withhold", archive=archive)
        graph.judges_all = True

    change(session, [archive], work)


def go_on(session: Session, archive: ArchiveId, stopped: str) -> None:
    """Resume a stopped archive whose repository is the right one again. ``stopped``: the stop
    reason, for the audit log.
    """

    def work(graph: Graph) -> None:
        if graph.do("go_on", archive=archive, stopped=stopped):
            graph.do("have_archive_judged", archive=archive)
            graph.do("ask_to_look", archives=[archive], revision=None)  # a whole scan follows
            offer_again(graph, archive)

    change(session, [archive], work)
    session.wake("look")


def accept(
    session: Session, archive: ArchiveId, revision: int, author: str, date: datetime, note: str, by: str
) -> None:
    """Store the present author and date of a revision (an id) of the ledger. ``note``: the
    correction, for the audit log.
    """

    def work(graph: Graph) -> None:
        graph.do("correct_revision", archive=archive, revision=revision, author=author, date=date)
        graph.do("remember", by=by, verb="accept", archive=archive, run=None, task=None, note=note)

    change(session, [archive], work)


def offer_again(graph: Graph, archive: int) -> None:
    """Make the ready tasks of a resumed archive claimable, and put its waiting tasks back into the lines of their locks."""
    graph.judges_all = True
    if graph.do("offer_again", archive=archive):
        graph.to_wake.add("ready")


def branches(session: Session, archive: ArchiveId) -> list[Any]:
    """An archive's branches with the ledger's heads."""
    return session.rows("branches", archive=archive)


def track(session: Session, archive: ArchiveId, name: str, *, main: bool = False) -> Branch:
    """Begin to track a branch, or track it again after it was deleted, with the schedules of its
    head. ``main``: True if it is the main branch from now on.
    """

    def refresh(graph: Graph, branch: int, name: str, head: int | None, *, is_main: bool) -> None:
        if head is not None:
            (found,) = graph.rows("revision_at", revision=head)
            if not found.faults:
                defined = Workflow(tuple(from_json(task) for task in found.tasks))
                schedules.refresh(graph, branch, name, is_main, defined)

    def work(graph: Graph) -> Branch:
        former = graph.rows("unset_main", archive=archive) if main else []
        (row,) = graph.rows("add_branch", archive=archive, name=name, main=main)
        for one in former:
            if one.id != row.id:
                refresh(graph, one.id, one.name, one.head_id, is_main=False)
        refresh(graph, row.id, name, row.head_id, is_main=row.main)
        return Branch(row.id, archive, name, row.main, row.head_id)

    return change(session, [archive], work)


def untrack(session: Session, archive: ArchiveId, branch: BranchId, *, head: int | None = None) -> None:
    """End the tracking of a branch that was deleted, or that the settings no longer track: cancel
    its unstarted tasks (design 5.16).

    ``head``: the branch's head when it was found deleted. If it has another head by now, it has
    come back, and nothing happens. Nothing happens either if the archive is stopped.
    """

    def work(graph: Graph) -> None:
        (now,) = graph.rows("head", branch=branch)
        if now.gone or now.stopped or (head is not None and now.head_id != head):
            return
        graph.do("delete_branch", branch=branch)
        graph.do("drop_schedules_of_branch", branch=branch)
        by = "the end of its branch (deleted, or tracked no more)"
        ending.begin(graph, archive, graph.ids("runs_of_branch", branch=branch), by)

    change(session, [archive], work)


@dataclass(frozen=True, slots=True)
class Rewound:
    """The consequences of a rewind. ``history``: the name of the retired branch, which keeps the
    ledger so far, with this number of ``runs``. ``running``: their running tasks, which go on.
    ``canceled``: their unstarted tasks.
    """

    history: str
    runs: int
    running: int
    canceled: int


def rewind(
    session: Session, archive: ArchiveId, branch: BranchId, start: Start, uuid: str, by: str, still: str | None = None
) -> Rewound:
    """Start a branch's ledger anew at ``start``, after its repository went back in time.

    The history so far is kept as a retired branch (``rewound~1``, …; no Git branch can have such a
    name), because other revisions will get its revision numbers. ``still``: why the archive stays
    stopped, if another of its branches has to be rewound, too.
    """

    def work(graph: Graph) -> Rewound:
        (now,) = graph.rows("head", branch=branch)
        if now.gone:
            raise Conflict(
                f"branch {start.branch!r}",
                "was rewound or removed meanwhile",
                "See its present branches (arkqueue archive show NAME), and repeat the command.",
            )
        history = f"rewound~{graph.ids('rewound', archive=archive)[0] + 1}"
        graph.do("retire_branch", branch=branch, name=history)
        graph.do("drop_schedules_of_branch", branch=branch)
        (of_history,) = graph.rows("history_of_branch", branch=branch)
        canceled = ending.begin(graph, archive, graph.ids("runs_of_branch", branch=branch), by)
        _start(graph, archive, [start])
        graph.do("take_up", archive=archive, uuid=uuid, still=still)
        graph.do("have_archive_judged", archive=archive)
        # A whole scan has to follow: the repository has not changed, but the ledger has.
        graph.do("ask_to_look", archives=[archive], revision=None)
        graph.do("withhold", archive=archive)
        offer_again(graph, archive)
        on = f" --branch {shlex.quote(start.branch)}" if start.branch and not start.main else ""
        note = start.baseline.revision.id + on if start.baseline else on.strip()
        graph.do("remember", by=by, verb="rewind", archive=archive, run=None, task=None, note=note)
        return Rewound(history, of_history.runs, of_history.running, canceled)

    done = change(session, [archive], work)
    session.wake("look")
    return done
