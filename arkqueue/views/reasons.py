"""Makes a reason: a sentence on one obstacle of a task, with the commands that help. Called by
``explain``, which finds the obstacles.

A sentence begins with ``subject``: "It", or "It waits for papers@2/index, which". The rows are
those of the block ``show_tasks``.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from arkqueue.db.session import Session
from arkqueue.model import End, TaskKind
from arkqueue.names import EVERY_TASK, PURGED, backfill_name, item_name, run_name, task_in_run
from arkqueue.plan.edges import EVERYTHING
from arkqueue.plan.ledger import BY_A_GUARD, BY_ITS_FILE, BY_WORKFLOW_AUTHORS
from arkqueue.states import UNSETTLED, State
from arkqueue.verdicts import EX_TEMPFAIL
from arkqueue.views.archives import PauseView, pause_of, remedies_of_stop
from arkqueue.views.installation import no_queue_manager_since
from arkqueue.views.naming import task_name, task_names
from arkqueue.views.outdated import SKIP_OUTDATED, at, gone, moment, outdated, since
from arkqueue.views.rows import faults_of
from arkqueue.views.tasks import how_it_ended, is_guarded_now
from arkqueue.workflow import from_json

REPEAT = "If that command has ended or was interrupted, repeat it: arkqueue {} goes on with the other tasks."
"""The sentence on tasks that a cancellation or deletion of many tasks has not reached."""
MOST_ITEMS = 1000
"""The most items of a list that are counted."""
STARTS = frozenset(("release", "restart", "retry", "refresh", "trigger"))
"""The verbs that a stopped archive refuses, because they start tasks."""
WAIVER = "arkqueue skip "
"""The beginning of the command that waives a failure."""
_STARTING = (WAIVER, *(f"arkqueue {verb} " for verb in sorted(STARTS)))


class Why(StrEnum):
    """The kinds of reasons."""

    WAITS_FOR_RUNNING = "waits-for-running"
    WAITS_FOR_REPORTS = "waits-for-tasks-of-its-run"
    BLOCKED = "blocked"
    STOPPING = "stopping"
    GATE = "gate"
    PLANNED = "being-planned"
    NO_QUEUE_MANAGER = "no-queue-manager"
    NO_TASK_MANAGER = "no-task-manager"
    NO_FIT_HOST = "no-fit-host"
    NO_LABEL = "no-label"
    NO_SCRATCH = "no-scratch"
    KEPT_SCRATCH = "kept-scratch"
    MAX_RUNNING = "max-running"
    LOCKED = "locked"
    LOCK_PAUSED = "lock-paused"
    NO_SLOT = "no-slot"
    ABOUT_TO_START = "about-to-start"
    DEFERRED = "deferred"
    HELD = "held"
    RELEASED = "released"
    RUNNING = "running"
    SILENT = "silent"
    COMPLETED = "completed"
    FAILED = "failed"
    REJECTED = "rejected"
    CANCELED = "canceled"
    SUPERSEDED = "superseded"
    SKIPPED = "skipped"
    STARVING = "starving"
    FAULTS = "faults"
    NOT_IN_LEDGER = "not-in-ledger"
    ARCHIVE_STOPPED = "archive-stopped"
    ARCHIVE_PAUSED = "archive-paused"
    ARCHIVE_TROUBLE = "archive-trouble"
    LEFT_OUT = "left-out"
    FIRES_LEFT_OUT = "fires-left-out"
    MORE = "more"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One reason in one sentence. ``tasks``: the names of the tasks that it mentions. ``commands``:
    commands that a person can type.
    """

    kind: Why
    text: str
    tasks: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held(Reason):
    """The reason of a held task, with what an explanation of several held tasks says once.

    ``note``: the part of the text with the reason that a person or an import gave for the hold.
    ``on_hold``: the part of the text on the hold of the archive. ``release``: the command that
    releases the task alone; empty if only its run can be released. ``late``: True if a release of
    several tasks has to leave this one out.
    """

    note: str = ""
    on_hold: str = ""
    release: str = ""
    late: bool = False

    @property
    def options(self) -> str:
        """The options of ``release``, with a space before them."""
        return self.release.removeprefix(f"arkqueue release {self.tasks[0]}")

    def after(self, first: Held) -> Held:
        """A copy without what the explanation has said of ``first``: the hold of the archive, and the
        note if both have the same.
        """
        text = self.text.replace(self.on_hold, "", 1)
        return replace(self, text=text.replace(self.note, "", 1) if self.note == first.note else text)


def faults(stored: Any, run: str, helps: Sequence[str]) -> Reason:
    """The reason that a run could not start. ``stored``: its faults, as in the database. ``helps``:
    the commands that help.
    """
    first, *others = faults_of(stored)
    more = f" (and {len(others)} more)" if others else ""
    if first.path == "_workflows" and not others:
        text = f"The run could not start: {first.message.rstrip('.')}."
    else:
        text = f"The workflow files of this revision have faults, so that it has no tasks: {first.place}: {first.message}{more}."
    return Reason(kind=Why.FAULTS, text=text, commands=[f"arkqueue show {run}", *helps])


def fires_left_out(session: Session, row: Any, run: int, *, is_open: bool) -> list[Reason]:
    """The reason that later fires of a run's schedule made no run, because this run stands for them
    (design 5.17); empty if there are none. ``is_open``: True if the run can be canceled.

    The sentence also says whether the next fire supersedes the run, because a dependency has
    another source (design 5.18), or a person has to act.
    """
    if not row.left_out:
        return []
    left, they, them = ("was", "it", "it") if row.left_out == 1 else ("were", "they", "them")
    text = f"{counted(row.left_out, 'fire')} of its schedule {left} left out{since(row.left_out_since)}: {they} made no run, because this run stands for {them}."
    commands = []
    following = session.rows("next_fire_of_run", run=run) if is_open else []
    if following and not following[0].has_begun:  # else the next fire makes a run of its own in any case
        (fire,) = following
        if fire.newer is not None:
            newer = task_names(session, [fire.newer])[fire.newer]
            text += f" {newer} exists by now. The next fire{at(fire.next_at)} makes a run of the newest revision, which takes {newer} and supersedes this run."
        elif fire.awaited:
            text += (
                f" The first fire that finds a later {fire.awaited} makes a run that takes it and supersedes this run."
            )
        elif fire.head > row.number:
            text += f" This run is of revision {row.number}; the newest revision is {fire.head}. If you cancel this run, the next fire makes a run of the newest revision."
            commands = [f"arkqueue cancel {run_name(row)}"]
    return [Reason(kind=Why.FIRES_LEFT_OUT, text=text, commands=commands)]


def nobody_manages(session: Session) -> list[Reason]:
    """The reason that no queue manager runs; empty if one does."""
    since_when = no_queue_manager_since(session)
    if since_when is None:
        return []
    text = f"No queue manager has reported{since(since_when)}. Until one runs, no repository is read, no deferred task resumes, and no attempt of a silent task manager ends."
    return [Reason(kind=Why.NO_QUEUE_MANAGER, text=text, commands=["arkqueue manager"])]


def may_start(commands: Iterable[str]) -> bool:
    """Whether one of some commands may start a task. A stopped archive refuses these commands, except
    for a waiver that starts nothing.
    """
    return any(command.startswith(_STARTING) for command in commands)


def stopped(row: Any, but: str = "", *, brief: bool = False) -> list[Reason]:
    """The reason that the archive of a task is stopped; empty if it is not. ``but``: the beginning
    of the sentence. ``brief``: without the stop reason, which may name a path of the server.
    """
    return [] if row.stopped is None else [archive_stopped(row.archive, row.stopped, but, brief=brief)]


def archive_stopped(archive: str, why: str, but: str = "", *, brief: bool = False) -> Reason:
    """The reason that an archive is stopped. ``why``: its stop reason; the others as in `stopped`."""
    text = f"{but}{archive} is stopped, so none of its tasks starts"
    if brief:
        return Reason(kind=Why.ARCHIVE_STOPPED, text=f"{text}.")
    return Reason(kind=Why.ARCHIVE_STOPPED, text=f"{text}: {why}", commands=remedies_of_stop(archive, why))


def paused(row: Any, but: str = "", what: str = "none of its tasks starts") -> list[Reason]:
    """The reason that the archive of a task is paused; empty if it is not. ``but``: the beginning of the sentence."""
    pause = pause_of(row, row.archive)
    return [] if pause is None else [archive_paused(row.archive, pause, but, what)]


def archive_paused(archive: str, pause: PauseView, but: str = "", what: str = "none of its tasks starts") -> Reason:
    """The reason that an archive is paused. ``but``: the beginning of the sentence; ``what``: the consequence."""
    text = f"{but}{archive} is {str(pause).rstrip('.')}; {what} until it is resumed."
    commands = [pause.resume, *(["arkqueue resume --all"] if pause.twice else [])]
    return Reason(kind=Why.ARCHIVE_PAUSED, text=text, commands=commands)


def parked(row: Any, subject: str) -> list[Reason]:
    """The reason of a task that waits for nothing, but would first have to cancel another task: a
    pause of its archive prevents that.
    """
    found = paused(row, f"{subject} waits for no task, but ", "its tasks neither start nor cancel other tasks")
    return [replace(reason, tasks=[task_name(row)]) for reason in found]


def is_gate_of_list(row: Any) -> bool:
    """True if a task is the gate of a list, not of a ``PREV:*``."""
    return row.kind == TaskKind.GATE and not row.name.startswith(EVERYTHING)


def at_gate(gate: Any, subject: str) -> Reason:
    """The reason that a task waits for the items of a list, with the number of items that have
    ended. ``gate``: a row of the block ``gates_of_lists``.
    """
    name, _, end = gate.name.rpartition(":")
    if gate.items >= MOST_ITEMS:
        text = f"{subject} waits at the gate of {name}: {gate.unmet:,} of its items have not {end} yet."
    else:
        text = f"{subject} waits at the gate of {name}: {gate.items - gate.unmet} of {gate.items} items of {name} have {end}."
    return Reason(kind=Why.GATE, text=text)


def from_first_with_scratch(session: Session, row: Any, first: Any) -> str:
    """The command that runs the tasks of a task's scratch folder again. ``first``: the first of them."""
    item = row.item if first.is_of_item else None
    part = part_behind(session, first.id, item)
    return from_task(row, first.name, item, part) + (" --force" if outdated(session, part.ended) else "")


def why_forced(command: str) -> str:
    """The sentence on why a command of `from_first_with_scratch` has --force; empty if it does not."""
    return " This needs --force, because later revisions have gone on." if command.endswith(" --force") else ""


def part_behind(session: Session, task: int, item: str | None) -> Any:
    """The tasks that run again with a task of a run, or of one ``item``."""
    (part,) = session.rows("part_behind", task=task, item=item, most=MOST_ITEMS)
    return part


def from_task(row: Any, name: str, item: str | None, part: Any) -> str:
    """The command that runs a task again with its part (`part_behind`)."""
    here = item_name(row, item) if item else run_name(row)
    return f"arkqueue retry {shlex.quote(here)} --from {name}{' --from-start' if part.ran_once else ''}"


def retry_from_command(run: str, note: str) -> str:
    """The command that the audit log noted for a ``retry --from``. ``run``: the name of its run."""
    item, _, options = note.partition("--from ")
    here = f"{run}/{item.strip()}" if item else run
    return f"arkqueue retry {shlex.quote(here)} --from {options}"


def kept_scratch(session: Session, run: int, item: str | None, name: str) -> list[Reason]:
    """The reasons on the scratch folders of a run, or of the run and one item, that are kept
    although none of their tasks is under way: until when, and how to remove them (design 5.37).
    ``name``: the run's.
    """
    found = list[Reason]()
    for row in session.rows("kept_scratch", run=run, item=item):
        part = name + (task_in_run(EVERY_TASK, item) if row.of_items and item else "")
        what = (
            f"The scratch folder of {part}"
            if row.folders == 1 and (item or not row.of_items)
            else f"{row.folders} scratch folders of items of {part}"
        )
        size = f" ({row.bytes / 2**20:.1f} MiB)" if row.bytes else ""
        stays, goes = ("stays", "It is") if row.folders == 1 else ("stay", "They are")
        text = (
            f"{what} on {row.hostname or row.store[:8]}{size} {stays} for a retry. {goes} removed when the failed tasks are retried with success or skipped, and the canceled or superseded ones are deleted or purged. "
            f"`arkqueue delete {shlex.quote(part)}` removes {'it' if row.folders == 1 else 'them'}."
        )
        found.append(Reason(kind=Why.KEPT_SCRATCH, text=text))
    return found


def running(session: Session, row: Any, subject: str) -> Reason:
    name = task_name(row)
    text = f"{subject} {doing(row)}"
    if row.lapsed or not row.heard:
        text += f"{', and is being stopped' if row.stop else ''}; {_silence(row)}."
        return Reason(kind=Why.SILENT, text=text, tasks=[name], commands=_gone(row))
    if row.stop:
        text += f", and is being stopped{' to be started again' if row.stop == 'restart' else ''}: {_choreography(session, row)}."
        return Reason(kind=Why.STOPPING, text=text, tasks=[name], commands=[f"arkqueue logs {name} -f"])
    return Reason(kind=Why.RUNNING, text=text + ".", tasks=[name], commands=[f"arkqueue logs {name} -f"])


def stopping(session: Session, other: Any, name: str, canceler: str) -> Reason:
    text = f"{canceler} supersedes {name} and waits until that is gone: {name} {doing(other)}"
    if other.lapsed or not other.heard:
        return Reason(kind=Why.STOPPING, text=f"{text}; {_silence(other)}.", tasks=[name], commands=_gone(other))
    text += f", and is being stopped: {_choreography(session, other)}."
    return Reason(kind=Why.STOPPING, text=text, tasks=[name], commands=[f"arkqueue logs {name} -f"])


def _silence(row: Any) -> str:
    heard = f"last reported{at(row.seen_at)}" if row.seen_at else "is not known"
    lease = f", and its lease ended{at(row.lease_until)}" if row.lapsed else ""
    # The host may still come back to its container.
    reserved = (
        f". Until {moment(row.reserved_until)} the attempt is reserved for its host" if row.reserved_until else ""
    )
    said = f"its task manager {heard}{lease}{reserved}"
    if row.heard:
        return said
    # The command asserts that the process is gone, which only a person can know.
    return f"{said}. If the task manager does not report again, the attempt ends with its lease. Cancel it now only if its machine is off"


def _gone(row: Any) -> list[str]:
    """The command that assumes an attempt gone. None while its task manager reports: it proves the
    end itself, and the command is refused.
    """
    return [] if row.heard else [f"arkqueue cancel {task_name(row)} --assume-gone"]


def _choreography(session: Session, row: Any) -> str:
    (definition,) = session.rows("show_definition", definition=row.definition_id)
    grace = from_json(definition.body).grace
    return f"{row.host} sends it SIGTERM, and SIGKILL after its grace of {grace:g} s"


def deferred(row: Any, subject: str, *, brief: bool = False) -> Reason:
    """Why a task is deferred, and until when. ``brief``: True to leave out the date of a moment that
    is near.
    """
    why, following, limit = _deferral(row, brief=brief)
    name = task_name(row)
    commands = [f"arkqueue logs {name}", f"arkqueue {'refresh' if row.polls else 'retry'} {name}"]
    text = f"{subject} is deferred: {why}. The next {following}.{limit and f' {limit}.'}"
    return Reason(kind=Why.DEFERRED, text=text, tasks=[name], commands=commands)


def deferred_in_table(row: Any) -> str:
    """The words of `deferred` in a table, which cuts the end off. The time comes first, because it matters
    most.
    """
    why, following, limit = _deferral(row, brief=True)
    return f"the next {following}, as {why}{limit and f'. {limit}'}"


def _deferral(row: Any, *, brief: bool) -> tuple[str, str, str]:
    """The last attempt of a deferred task and how it went, when the next one is due, and what ends the
    deferral (empty if nothing has to be said).
    """
    if row.end == End.EXITED and row.exit_code == EX_TEMPFAIL:
        why = f"asked to be {'polled' if row.polls else 'run'} again later (exit code 75)"
    else:
        did = "did not start" if row.end in (End.UNREACHABLE, End.WITHHELD) else "failed"
        why = f"{did} ({how_it_ended(row).removesuffix('.')})"
    # Polls are attempts, too. Only the first poll follows an attempt of the command.
    following = "poll" if row.polls else "attempt"
    limit = ""
    if row.deadline_at is not None:
        limit = f"Its deadline is {moment(row.deadline_at)}: if it is still deferred then, it fails"
    elif row.kind == TaskKind.REPORT:
        limit = "It has no deadline: only another exit code, or the deletion of its run, ends it"
    return f"attempt {row.attempts} {why}", f"{following} {_due(row.due_at, brief=brief)}", limit


def _due(at: datetime, *, brief: bool) -> str:
    """The end of a sentence that says when something is due. Nothing that is due starts while its
    archive is paused, and after that it may wait for a slot.
    """
    is_near = brief and abs(datetime.now(UTC) - at) < timedelta(days=1)
    when = f"{at.astimezone(UTC):%H:%M} UTC" if is_near else moment(at)
    return f"is due at {when}" if at > datetime.now(UTC) else f"has been due since {when}"


def held(row: Any, subject: str, late: str = "") -> Held:
    """The hold of a task, and the commands that release it. While an archive is on hold, none of its
    tasks can be released. ``late``: why a release of the task alone needs --force, as in
    `late_release`.
    """
    name = task_name(row)
    run = name.partition("/")[0]
    of_one, of_many = (" --force", SKIP_OUTDATED) if late else ("", "")
    release, note = f"arkqueue release {name}{of_one}", ""
    commands = [release]
    until = "until a person releases it"
    approver = "that takes a token of scope approve"
    approver += " that stands for another person than the author" if row.not_by_author else ""
    if row.hold_id == BY_ITS_FILE:
        what = "by its workflow file (hold: true)"
    elif row.hold_id == BY_A_GUARD:
        what, until = f"by {row.archive} (require-approval)", f"{until}; {approver}"
    elif row.hold_id == BY_WORKFLOW_AUTHORS:
        what = f"by {row.archive} (workflow-authors), because somebody else changed its workflow files"
        until = f"until a person accepts the change by releasing its run; {approver}"
        commands = [f"arkqueue release {run}{of_many}", *([f"arkqueue release {run}{of_one}"] if late else [])]
        release = ""
    else:
        within = "with its backfill " if row.held_backfill else "with its archive " if row.is_held_with_archive else ""
        note = _note(row.held_note)
        what = _by_whom(within, row.held_by, row.held_at) + note
        commands = [f"arkqueue release {run}{of_many}", *commands]
        if row.held_backfill:
            # A backfill is meant to run at old revisions.
            commands = [f"arkqueue release {backfill_name(row.archive, row.held_backfill)}{of_one}", *commands]
        if row.is_imported or (row.is_held_with_archive and not row.held_backfill):
            commands = [f"arkqueue release {row.archive} --all{of_many}", *commands]
        if row.held_ending:
            of = backfill_name(row.archive, row.held_backfill) if row.held_backfill else run
            commands = [f"arkqueue {row.held_ending} {of}", *commands]
    if row.hold_id != BY_A_GUARD and is_guarded_now(row):
        # The guard was set after the hold.
        what += " and guarded by require-approval"
        until += "" if "scope approve" in until else f"; {approver}"
    text = f"{subject} is held {what}, {until}."
    if late:
        text += f" A plain release is refused, because {late}: --force releases the task all the same, and --skip-outdated waives it and releases the rest."
    if row.held_ending:
        text += f" {REPEAT.format(row.held_ending)}"
    on_hold = _on_hold(row)
    if row.archive_held_at is not None:
        commands = [f"arkqueue unhold {row.archive}", *commands]
    return Held(
        kind=Why.HELD,
        text=text + on_hold,
        tasks=[name],
        commands=commands,
        note=note,
        on_hold=on_hold,
        release=release,
        late=bool(late),
    )


def _on_hold(row: Any) -> str:
    """A further sentence, if the archive of a task is on hold."""
    if row.archive_held_at is None:
        return ""
    by = _by_whom("", row.archive_held_by, row.archive_held_at) + _note(row.archive_held_note)
    return f" {row.archive} is on hold {by}: end the hold before you release its tasks."


def released(row: Any) -> list[Reason]:
    """The reason that a task was held and released: by whom, when and why."""
    if row.released_at is None:
        return []
    said = f": {' '.join(row.released_note.split())}" if row.released_note else ""
    how = f"{row.released_by} released it" if row.released_by else "It was released"
    return [Reason(kind=Why.RELEASED, text=f"{how}{at(row.released_at)}{said}.")]


def _by_whom(how: str, by: str, when: datetime) -> str:
    parts = (how.strip(), f"by {by}" if by else "", since(when).strip())
    return " ".join(part for part in parts if part)


def _note(note: str) -> str:
    """The reason of a hold in parentheses; empty if it has none."""
    return f" ({' '.join(note.split())})" if note else ""


def doing(row: Any) -> str:
    if row.state != State.RUNNING:
        return f"is {row.state}"
    lease = f"its lease lasts until {moment(row.lease_until)}"
    what = "is being polled" if row.polls else "is running"
    return f"{what}{since(row.started_at or row.claimed_at)} (attempt {row.attempts} on {row.host}; {lease})"


def fate(row: Any) -> str:
    when = at(row.settled_at)
    match row.state:
        case State.FAILED:
            return f"failed{when} ({how_it_ended(row)})"
        case State.REJECTED:
            return f"rejected its input{when} (exit code 65; never retried)"
    word = row.state if row.superseded_by is None else "superseded"
    return f"was {word}{when}"


def remedies(row: Any, *, inside: bool = False) -> list[str]:
    """The commands that help the dependents of a failed task. ``inside``: for dependents of its own
    run, which were skipped and run only if the task counts as completed.
    """
    name = task_name(row)
    if row.run_deleted_at is not None or row.deleted:
        return []
    if row.kind == TaskKind.REPORT:
        return [f"arkqueue report {run_name(row)} --update"]
    skip = [] if row.waived and not inside else [f"arkqueue skip {name}{' --as-completed' if inside else ''}"]
    match row.state:
        case State.FAILED:
            return skip if gone(row) else [f"arkqueue retry {name}", *skip]
        case State.REJECTED:
            return skip
        case State.CANCELED | State.SKIPPED if row.superseded_by is None and not gone(row):
            return [f"arkqueue retry {name}"]
    return []


def about_to_be_canceled(session: Session, row: Any) -> list[Reason]:
    """The reason of a task that is about to be canceled. The end of a branch, or a superseding task,
    cancels many tasks in several steps, and has not reached this task yet.
    """
    if row.state not in UNSETTLED or row.state == State.RUNNING:
        return []
    soon = "It does not start any more, and is canceled within a moment: so many tasks are canceled that it takes several steps."
    for end in session.rows("about_to_end", task=row.id):
        by = f" by {end.by}" if end.by else ""
        return [Reason(kind=Why.CANCELED, text=f"It is canceled{by}. {soon}")]
    for found in session.rows("still_to_supersede", tasks=[row.id]):
        canceler = task_names(session, [found.canceler]).get(found.canceler, PURGED)
        return [Reason(kind=Why.SUPERSEDED, text=f"It is superseded by {canceler}. {soon}", tasks=[canceler])]
    return []


def superseding(session: Session, row: Any, subject: str) -> list[Reason]:
    """The reason that a task waits until all tasks that it supersedes are canceled, which takes
    several steps.
    """
    for left in session.rows("supersedes_in_steps", task=row.id):
        text = f"{subject} waits until everything that it supersedes is canceled: {left.n:,} task{'s' * (left.n != 1)} {'are' if left.n != 1 else 'is'} left."
        return [Reason(kind=Why.STOPPING, text=text), *nobody_manages(session)]
    return []


def counted(number: int, word: str) -> str:
    """A number with its word, which takes an s in the plural."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
