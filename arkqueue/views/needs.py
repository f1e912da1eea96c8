"""The archives, locks, runs and tasks that need a person, each with its remedy. ``arkqueue status`` and
the overview page begin with them.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

from arkqueue.db.session import Block, Session
from arkqueue.durations import age_of, in_clock, took
from arkqueue.lock_names import is_global
from arkqueue.model import SILENCE, ArchiveId
from arkqueue.names import archive_in
from arkqueue.plan.ledger import BY_WORKFLOW_AUTHORS
from arkqueue.states import State
from arkqueue.views.archives import UNREADABLE, ArchiveView, PausedLockView
from arkqueue.views.attention import (
    REPAIRED,
    Attention,
    Failure,
    FailuresOfBackfill,
    Hanging,
    Held,
    HeldTogether,
    Interrupted,
    Several,
    Stranded,
    attention,
    last_lines,
    repaired_among,
    waited_for_among,
)
from arkqueue.views.explanation import ended
from arkqueue.views.outdated import SKIP_OUTDATED, Late, outdated_holds, perhaps_outdated, rows_by_id
from arkqueue.views.reasons import WAIVER, may_start, retry_from_command
from arkqueue.views.remedies import RETRY, SETTINGS, WAIVE, Remedy, failures, questions, remedies_of
from arkqueue.views.runs import RunView
from arkqueue.views.tasks import TaskView
from arkqueue.views.waits import Wait

MOST_NEEDS: Final = 30
"""The most tasks of one kind that have lines. All archives have the same share of them."""
MOST_EACH: Final = 5
"""The most tasks of one kind and archive that have lines. One more line counts the others."""
MOST_OF_ONE: Final = 500
"""The most tasks of one kind that have lines if a person asks about a single archive."""
BEHIND: Final = "later tasks wait behind it"
"""The end of the text of a repaired failure, if the names of the waiting tasks are not known."""
MOST_ARCHIVES: Final = 100
"""The most stopped, held and paused archives that have lines."""

UNHANDLED: Final = "state=unhandled"
"""The query of an archive's page that shows its unhandled failures alone."""
REWIND: Final = "rewind"
"""The verb for a stopped archive whose repository is meant to be as it is now."""
ACCEPT: Final = "accept"
"""The verb for an archive that stopped because the author or the date of a revision was corrected."""
ASSUME_GONE: Final = "assume-gone"
"""The verb for a running task whose task manager is silent, if its machine is off."""
RESUME_LOCK: Final = "resume --lock"
"""The verb that helps a paused lock."""


@dataclass(frozen=True, slots=True)
class Need:
    """An archive, lock, run or task that needs a person. ``verb``: the verb of the remedy, for
    ``name``, with ``--force`` if ``force`` and ``--skip-outdated`` if ``skip_outdated``;
    `RESUME_LOCK` for a lock, `SETTINGS` if the archive's settings have to be changed; empty: a person
    has to read more first. ``or_verb``: another verb that
    may help instead; its form asks for more. ``command``: the command line.

    ``tasks``: the ids of the tasks that a guard may protect from the remedy. ``count``: the number of
    tasks, runs or backfills for which it stands. ``query``: the query of the page that lists them.
    ``at``: the moment whose age ``text`` has.
    """

    state: str
    name: str
    text: str
    verb: str = ""
    or_verb: str = ""
    force: bool = False
    skip_outdated: bool = False
    command: str = ""
    count: int = 1
    query: str = ""
    at: datetime | None = None
    tasks: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Others:
    """An archive with needs that have no line. ``count``: their number; ``query``: as in `Need`."""

    archive: str
    count: int
    query: str = ""


@dataclass(frozen=True, slots=True)
class Needs:
    """Everything that needs a person. ``failed_runs``: by archive, the ids of the newest runs with
    unhandled failures. ``count``: the number of all needs.
    """

    lines: list[Need]
    others: list[Others]
    failed_runs: dict[str, list[int]]

    @property
    def count(self) -> int:
        return sum(need.count for need in self.lines) + sum(one.count for one in self.others)


def in_public(need: Need) -> Need:
    """A need for a visitor who has not signed in: without the remedy, which only others may use. A
    lock keeps its verb, by which a page knows that it is a lock.
    """
    return replace(need, verb=need.verb if need.verb == RESUME_LOCK else "", or_verb="", command="")


def needs_of(
    session: Session,
    covered: Sequence[ArchiveId] | None,
    found: Sequence[ArchiveView],
    bad: Sequence[str],
    waits: Mapping[int, Sequence[Wait]] = MappingProxyType({}),
    *,
    stopped: Collection[str] = (),
    is_whole: bool = False,
) -> Needs:
    """Everything that needs a person: archives of ``found``, paused locks of the installation, and
    runs and tasks of ``covered`` archives (None: all). ``bad``: the names of all archives that need a
    person themselves. ``waits``: why tasks of some archives wait, from `waits_of`. ``stopped``: the
    names of all stopped archives. ``is_whole``: True to list up to `MOST_OF_ONE` tasks of each kind.
    """
    blocked = {wait.failure: wait.text for some in waits.values() for wait in some if wait.failure is not None}
    most = (MOST_OF_ONE, MOST_OF_ONE) if is_whole else (MOST_NEEDS, MOST_EACH)
    known = attention(session, covered, *most, waited_for=blocked)
    lines = last_lines(session, [failure.task for one in known.failures for failure in one.shown])
    helps, hindered = _helps_and_hindered(session, known)
    needs = [*map(_paused_lock, known.paused_locks), *(need for one in found for need in _of_archive(one))]
    others = dict.fromkeys(set(bad) - {one.name for one in found}, 1)

    for kind in _kinds(known, lines, helps, hindered, blocked):
        for one in kind.of:
            told = [kind.need(shown) for shown in one.shown]
            needs += told
            left = one.count - sum(of_one.count for of_one in told)
            if not one.shown:
                others[one.archive] = others.get(one.archive, 0) + left
            elif left:
                text = f"and {left:,} more {kind.one if left == 1 else kind.many}"
                command = f"arkqueue {'runs' if is_whole else 'status'} {shlex.quote(one.archive)}"
                needs.append(Need(kind.state, one.archive, text, command=command, count=left, query=kind.query))
    with_failures = {one.archive for one in known.failures if not one.shown}
    unlisted = [Others(name, others[name], UNHANDLED if name in with_failures else "") for name in sorted(others)]
    return Needs(_without_start(session, needs, stopped), unlisted, known.failed_runs)


def _without_start(session: Session, needs: Sequence[Need], stopped: Collection[str]) -> list[Need]:
    """Some needs, of which those of ``stopped`` archives have no remedy that would start a task. The
    need for the stop itself has the remedy.
    """
    waivers = [one for one in needs if one.command.startswith(WAIVER) and archive_in(one.name) in stopped]
    waived = [task for one in waivers for task in one.tasks]
    waited_for = waited_for_among(session, waived)

    def is_refused(need: Need) -> bool:
        starts_nothing = need.command.startswith(WAIVER) and waited_for.isdisjoint(need.tasks)
        return archive_in(need.name) in stopped and may_start([need.command]) and not starts_nothing

    return [_until_stop_ends(one) if is_refused(one) else one for one in needs]


def _until_stop_ends(need: Need) -> Need:
    """A need of a stopped archive whose remedy the queue refuses until the stop ends."""
    archive = archive_in(need.name)
    shows = "archive show" if need.name == archive else "explain"
    text, command = f"{need.text} · {archive} is stopped", f"arkqueue {shows} {shlex.quote(need.name)}"
    return replace(need, verb="", force=False, skip_outdated=False, text=text, command=command)


@dataclass(frozen=True, slots=True)
class _Kind:
    """Things that need a person for one reason, by archive. ``need``: makes the line of one of them.
    ``one``, ``many``: their name in the line that counts the others. ``query``: as in `Need`.
    """

    state: str
    of: Sequence[Several[Any]]
    need: Callable[[Any], Need]
    one: str
    many: str
    query: str = ""


def _kinds(
    known: Attention,
    lines: Mapping[int, str],
    helps: Mapping[int, Remedy],
    hindered: _Hindered,
    blocked: Mapping[int, str],
) -> Iterator[_Kind]:
    """All kinds, in the order of their lines. ``lines``: the last line of the log of each failure.
    ``blocked``: the sentence on a task that waits for a failure, where it is known.
    """

    def failed(one: Failure) -> Need:
        return _failure(one, lines.get(one.task.id, ""), helps.get(one.task.id, Remedy(RETRY)))

    def blocking(task: TaskView) -> Need:
        return _blocking(task, blocked.get(task.id, BEHIND))

    def held_together(one: HeldTogether) -> Need:
        return _held_together(one, next(filter(None, map(hindered.late.get, one.firsts)), None))

    def held(one: Held) -> Need:
        return _held(one, hindered.endings.get(one.task.id, ""), hindered.late.get(one.task.id))

    of_files = "branch whose workflow files have faults", "branches whose workflow files have faults"
    stranded = "group of tasks that nobody can run", "groups of tasks that nobody can run"
    yield _Kind("failed", known.faulty, _faulty, *of_files)
    yield _Kind("failed", known.failures, failed, "failure", "failures", UNHANDLED)
    yield _Kind("failed", known.blocking, blocking, "repaired failure", "repaired failures")
    yield _Kind("failed", known.backfills, _failed_in, "backfill with failures", "backfills with failures")
    yield _Kind("waiting", known.interrupted, _interrupted, "interrupted retry", "interrupted retries")
    yield _Kind("ready", known.stranded, _stranded, *stranded)
    yield _Kind("running", known.hanging, _hanging, "task that may hang", "tasks that may hang")
    yield _Kind("held", known.together, held_together, "hold of many tasks", "holds of many tasks")
    yield _Kind("held", known.held, held, "held task", "held tasks")


@dataclass(frozen=True, slots=True)
class _Hindered:
    """The held tasks, by id, that a plain release does not help. ``late``: the reasons of those that
    are outdated. ``endings``: the verb that has not come to its end.
    """

    late: dict[int, Late]
    endings: dict[int, str]


def _helps_and_hindered(session: Session, known: Attention) -> tuple[dict[int, Remedy], _Hindered]:
    """The remedies of the shown failures, and the hindered tasks among the shown held ones."""
    bad = failures(failure.task for one in known.failures for failure in one.shown)
    held = {one.task.id for several in known.held for one in several.shown}
    held |= {task for one in known.together for hold in one.shown for task in hold.firsts}
    return _judged(session, bad, held)


def _judged(session: Session, bad: Sequence[TaskView], held: Collection[int]) -> tuple[dict[int, Remedy], _Hindered]:
    """The remedies of some failures, and the hindered tasks among some held ones."""
    ending: Block = "endings_under_way", {"tasks": sorted(held)}
    asked = questions(bad) if bad else ()
    perhaps, endings, *answers = session.rows_of(perhaps_outdated(held), ending, *asked)
    late = outdated_holds(session, [row.id for row in perhaps])
    return remedies_of(session, bad, answers) if bad else {}, _Hindered(late, {row.id: row.verb for row in endings})


def needs_of_tasks(session: Session, archive: ArchiveView, tasks: Sequence[TaskView]) -> dict[int, Need]:
    """The needs of the failures and the held tasks among some tasks of a run, by the tasks' ids, with
    the same remedies as in `needs_of`. Each text begins with the cause of the task's state. A
    failure that a later revision has repaired, and for which no task waits, needs nobody, so its need
    has no command. ``archive``: that of the run.
    """
    bad, held = failures(tasks), [task for task in tasks if task.state is State.HELD]
    rows = rows_by_id(session, [task.id for task in held])
    helps, hindered = _judged(session, bad, rows)
    repaired = repaired_among(session, bad)
    alike = Counter((task.name, task.state) for task in (*bad, *held) if task.id not in repaired)

    def need(task: TaskView) -> Need:
        items = alike[task.name, task.state]
        if task.state is State.HELD:
            one = Held(task, rows[task.id].hold_id == BY_WORKFLOW_AUTHORS, items)
            return _release(one, task.why, hindered.endings.get(task.id, ""), hindered.late.get(task.id))
        if task.id not in repaired:
            return _remedied(Failure(task, items), task.why, helps[task.id])
        if not repaired[task.id]:
            return Need("failed", task.full_name, f"{task.why} · {REPAIRED}")
        waiver = _blocking(task, BEHIND)
        return replace(waiver, text=f"{task.why} · {waiver.text}")

    needs = [need(task) for task in (*bad, *held)]
    told = _without_start(session, needs, {archive.name} if archive.stopped else ())
    ids = (task.id for task in (*bad, *held))
    return {id: replace(one, text=one.text.removeprefix(" · ")) for id, one in zip(ids, told, strict=True)}


def _need(state: str, name: str, text: str, verb: str, *, force: bool = False, tasks: Sequence[int] = ()) -> Need:
    command = f"arkqueue {verb} {shlex.quote(name)}{' --force' if force else ''}"
    return Need(state, name, text, verb, force=force, command=command, tasks=tasks)


def _of_archive(archive: ArchiveView) -> list[Need]:
    needs = []
    if archive.stopped:
        text, command = f"stopped: {archive.stopped}", f"arkqueue archive show {shlex.quote(archive.name)}"
        needs.append(
            Need("failed", archive.name, text, "sync", or_verb=ACCEPT if archive.corrected else REWIND, command=command)
        )
    elif archive.trouble is UNREADABLE:
        needs.append(Need("failed", archive.name, archive.trouble, command=archive.remedy))
    elif archive.trouble:
        needs.append(_need("failed", archive.name, archive.trouble, "sync"))
    if archive.hold is not None:
        needs.append(_need("held", archive.name, str(archive.hold), "unhold"))
    if archive.paused is not None and not archive.paused.with_all:
        needs.append(_need("held", archive.name, str(archive.paused), "resume"))
    # The locks of the installation are no needs of an archive.
    needs += [_paused_lock(lock) for lock in archive.paused_locks if not is_global(lock.name)]
    return needs


def _paused_lock(lock: PausedLockView) -> Need:
    return Need("held", lock.name, f"the lock is {lock}", RESUME_LOCK, command=lock.resume)


def _faulty(run: RunView) -> Need:
    """The run at the head of a branch whose workflow files have faults."""
    first = run.faults[0]
    more = f" And {len(run.faults) - 1} more." if len(run.faults) > 1 else ""
    text = f"{first.place}: {first.message}.{more}"
    return Need("failed", run.full_name, text, command=f"arkqueue show {shlex.quote(run.full_name)}")


def _failure(one: Failure, line: str, remedy: Remedy) -> Need:
    """A failure with its remedy. ``line``: the last line of its log."""
    task = one.task
    text = (task.why or str(task.state)) + (f": {line}" if line else "")
    if one.items > 1:
        how = "failed" if task.state is State.FAILED else "were rejected"
        text = f"{one.items:,} items {how}, the first {task.item}: {text}"
    elif task.state is State.REJECTED:
        text = f"rejected: {text}"
    return _remedied(one, text, remedy)


def _remedied(one: Failure, text: str, remedy: Remedy) -> Need:
    """The need of a failure with its remedy. ``text``: the text of the need, up to the reason why a
    plain retry is refused.
    """
    task, name = one.task, one.name
    if not remedy.verb:
        return Need("failed", name, text, command=f"arkqueue explain {shlex.quote(name)}", count=one.items)
    text += _because(remedy.late)
    if remedy.verb == SETTINGS:  # The text names the settings.
        command = f"arkqueue explain {shlex.quote(name)}"
        return Need("failed", name, text, SETTINGS, command=command, count=one.items)
    if remedy.verb == WAIVE and one.items > 1:
        command = f"arkqueue skip {shlex.quote(name)} --state {task.state}"
        return Need("failed", name, text, command=command, count=one.items, tasks=[task.id])
    need = _need("failed", name, text, remedy.verb, force=remedy.force, tasks=[task.id])
    return replace(need, count=one.items)


def _because(late: Late | None) -> str:
    """The end of the text of a failure, or a held task, that is outdated."""
    return f" · {late.why}" if late else ""


def _blocking(task: TaskView, text: str) -> Need:
    """A failure that a later revision has repaired, and behind which tasks still wait. Nothing but a
    person ends such a wait.
    """
    return _need("failed", task.full_name, f"{REPAIRED}, but {text}", WAIVE, tasks=[task.id])


def _failed_in(backfill: FailuresOfBackfill) -> Need:
    command = f"arkqueue show {shlex.quote(backfill.full_name)}"
    bad = (State.FAILED, backfill.failed), (State.REJECTED, backfill.rejected)
    said = [f"{number:,} of its tasks {ended(state, number)}" for state, number in bad if number]
    said += [f"{backfill.unsent:,} of its reports could not be sent"] if backfill.unsent else []
    said += [f"{backfill.unstarted:,} of its runs could not start"] if backfill.unstarted else []
    return Need("failed", backfill.full_name, ", and ".join(said), command=command)


def _stranded(one: Stranded) -> Need:
    more = f" like {one.tasks - 1:,} more" if one.tasks > 1 else ""
    where = f" on {one.hostname or 'the host'} ({one.store[:8]}), which has its folder," if one.store else ""
    labels = f"label{'s' if len(one.labels) > 1 else ''} {', '.join(one.labels)}"
    lacks = f"has the {labels}" if one.labels else "is running"
    command = f"arkqueue explain {shlex.quote(one.task.full_name)}"
    return Need("ready", one.task.full_name, f"is ready{more}, and no task manager{where} {lacks}", command=command)


def _interrupted(one: Interrupted) -> Need:
    command = retry_from_command(one.run, one.note)
    text = "tasks wait for ones that a retry with --from was to run again: if that command has ended, repeat it"
    return Need("waiting", one.run, text, command=command)


def _held(one: Held, ending: str, late: Late | None) -> Need:
    """A held task. ``ending``: ``cancel`` or ``delete`` if such a command holds the task, because it
    has not reached it yet; empty for other holds.
    """
    are = "is" if one.items == 1 else f"{one.items:,} items are"
    return _release(one, f"{are} held {one.task.why}".strip(), ending, late)


def _release(one: Held, text: str, ending: str, late: Late | None) -> Need:
    """The need of a held task with its release. ``text``: the text of the need, up to the reason why a
    plain release is refused.
    """
    text += _because(late)
    if ending:
        run = one.task.full_name.partition("/")[0]
        command = f"arkqueue {ending} {shlex.quote(run)}"
        return Need("held", run, f"{text}: if that command has ended, repeat it", command=command, count=one.items)
    force = late is not None and not one.is_run
    need = replace(_need("held", one.name, text, "release", force=force, tasks=[one.task.id]), count=one.items)
    if late and (one.is_run or late.is_gone):
        command = f"arkqueue explain {shlex.quote(one.name)}"
        return replace(need, verb="", force=False, command=command)
    return need


def _held_together(one: HeldTogether, late: Late | None) -> Need:
    """The tasks of a hold, with the release of all. ``late``: why a plain release refuses some of them;
    None: it does not.
    """
    tasks = "1 task is" if one.tasks == 1 else f"{one.tasks:,} tasks are"
    if one.ending:
        text = f"{tasks} held by a command that has not come to its end: if it has ended, repeat it"
        return Need("held", one.full_name, text, command=f"arkqueue {one.ending} {shlex.quote(one.full_name)}")
    by, why = f" by {one.by}" if one.by else "", f": {one.reason}" if one.reason else ""
    text = f"{tasks} held{by}{why}" + _because(late)
    of_backfill = "@" in one.full_name  # it is meant to run at old revisions
    force, skip = late is not None and of_backfill, late is not None and not of_backfill
    text += ", so this waives the outdated tasks, and releases the rest" * skip
    options = f"{'' if of_backfill else ' --all'}{' --force' * force}{SKIP_OUTDATED * skip}"
    command = f"arkqueue release {shlex.quote(one.full_name)}{options}"
    return Need(
        "held",
        one.full_name,
        text,
        "release",
        force=force,
        skip_outdated=skip,
        command=command,
        tasks=one.may_be_guarded,
    )


def _hanging(one: Hanging) -> Need:
    """A task that may never end by itself. The restart page first shows what it would stop. A task
    whose task manager is silent can be counted as gone. Only a person knows whether that is true, so
    the command explains it first.
    """
    task = one.task
    where = f" on {task.host}" if task.host else ""
    if one.is_silent:
        heard = f"last reported {age_of(one.seen_at, 'ago')}" if one.seen_at else "is not known"
        text = f"runs{where}, whose task manager {heard}"
        command = f"arkqueue explain {shlex.quote(task.full_name)}"
        is_heard = one.seen_at is not None and (datetime.now(UTC) - one.seen_at).total_seconds() < SILENCE
        verb = "" if is_heard else ASSUME_GONE
        return Need("running", task.full_name, text, verb, command=command, at=one.seen_at, tasks=[task.id])
    text = f"runs{where} for {took(task.started_at)}, and takes about {in_clock(one.usual or 0)} usually"
    return _need("running", task.full_name, text, "restart", tasks=[task.id])
