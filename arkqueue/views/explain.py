"""Why is this not running? The exact edge, root, lease, victim or limit, and the command that helps
(design 8, rule 9).

A waiting task is followed along its unmet edges to the *obstacles*. The way may pass through tasks
that wait themselves, or that waited until they were canceled or skipped. An obstacle is a task that
waits for no other: it runs, is ready, deferred or held, or it failed and blocks later revisions
until it is retried or waived. Each obstacle becomes one reason. A task that is not in a ledger yet,
or was left out of a run, is explained from its name.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from arkqueue.db.session import Session
from arkqueue.errors import NotFound
from arkqueue.model import SILENCE, ArchiveId, End, RunId, TaskId, TaskKind, Trigger
from arkqueue.names import (
    EVERY_TASK,
    PURGED,
    Name,
    as_backfill,
    backfill_command,
    is_list,
    item_name,
    list_name,
    name_of,
    parse_name,
    run_name,
    undelete_command,
)
from arkqueue.plan import matches_branch
from arkqueue.plan.ledger import BY_A_GUARD
from arkqueue.states import UNSETTLED, State, run_state
from arkqueue.views.archives import archive as show_archive
from arkqueue.views.backfills import backfill, find_backfill
from arkqueue.views.expected import Expected, expected_of
from arkqueue.views.find import (
    RETIRED,
    Place,
    check_list,
    find_archive,
    find_branch,
    find_item,
    find_revision,
    find_run,
    find_task,
    no_task,
    own_names,
    resolved,
)
from arkqueue.views.graph import kind_of
from arkqueue.views.naming import task_name, task_names
from arkqueue.views.outdated import (
    SKIP_OUTDATED,
    at,
    come_back_late,
    gone,
    late_release,
    later,
    moment,
    outdated,
    rows_by_id,
    since,
)
from arkqueue.views.reasons import (
    MOST_ITEMS,
    Held,
    Reason,
    Why,
    about_to_be_canceled,
    asking,
    at_gate,
    deferred,
    doing,
    fate,
    faults,
    fires_left_out,
    from_first_with_scratch,
    from_task,
    held,
    is_gate_of_list,
    kept_scratch,
    nobody_manages,
    parked,
    part_behind,
    paused,
    ready,
    released,
    remedies,
    retry_from_command,
    running,
    stopped,
    stopping,
    superseding,
    why_forced,
)
from arkqueue.views.remedies import are_not_permitted
from arkqueue.views.tasks import how_it_ended
from arkqueue.workflow import EMPTY, from_json

MOST_SOME = 5
"""The most names in a sentence."""
MOST_BEHIND = 25
"""The most tasks that are counted as waiting for a failed one."""
MOST_EDGES = 20_000
"""The most unmet edges that are followed. If there are more, the answer says so."""
MOST_REASONS = 20
MOST_TASKS = 100
"""The most unsettled tasks, and the most failed ones, of a run or a list that are explained."""
MOST_HELD = 3
"""The most held tasks that get a reason of their own."""
STARVING = 3
"""The number of supersessions in a row from which on they are mentioned."""
STARTS_LATER = {State.WAITING, State.HELD, State.DEFERRED, State.FAILED}
"""The states in which a task of a stopped archive would start, sooner or later, if the archive went
on.
"""
KEEPS_SCRATCH = {State.FAILED, State.REJECTED, State.CANCELED}
"""The states in which a task keeps its scratch folder for a retry."""
MANAGED = {Why.DEFERRED, Why.SILENT}
"""The reasons that only a queue manager can end."""
NEEDS_A_PERSON = {Why.NO_TASK_MANAGER, Why.NO_FIT_HOST, Why.NO_LABEL, Why.NO_SCRATCH, Why.LOCK_PAUSED}
"""The reasons that only a person can end. With them, no start of a task can be expected."""
NOT_ALONE = "A release alone does not start it, because it also waits."
"""The end of the reason of a held task that waits for something else, too."""
CANCELED = {Why.CANCELED, Why.SUPERSEDED}
"""The reasons after which a task does not start any more."""
HOW = {
    Trigger.COMMIT: "on commits",
    Trigger.MANUAL: "by hand",
    Trigger.SCHEDULE: "by a schedule",
    Trigger.SUBMISSION: "on submissions",
}
"""How a run of each trigger was made, as a part of a sentence."""


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


def explain(
    session: Session, task: TaskId, *, brief: bool = False, seen: Sequence[ArchiveId] | None = ()
) -> Explanation:
    """Explain a task's state. ``brief``: for a visitor who has not signed in: without the hosts
    that could run it, and their faults (decision 28). This visitor may use no command, so the answer
    names none. ``seen``: the archives whose tasks may be named as holders of a lock, beside those of
    the task's own archive; None: all.
    """
    # One snapshot: a dependency may complete while its edges are read.
    with session.snapshot() as moment:
        found = _explain(moment, task, seen, brief=brief)
    if not brief:
        return found
    return replace(found, commands=[], reasons=[replace(reason, commands=[]) for reason in found.reasons])


def _explain(session: Session, task: TaskId, seen: Sequence[ArchiveId] | None, *, brief: bool = False) -> Explanation:
    rows = rows_by_id(session, [task])
    if task not in rows:
        raise NotFound(f"task {task}", "does not exist")
    return _Task(session, rows[task], seen, brief=brief).explanation()


def explain_name(session: Session, text: str, seen: Sequence[ArchiveId] | None = ()) -> Explanation:
    """Explain the state of a thing by its name: a task, a run, or something that does not exist
    yet. ``seen``: as in `explain`.
    """
    with session.snapshot() as moment:
        return _explain_name(moment, text, seen)


def _explain_name(session: Session, text: str, seen: Sequence[ArchiveId] | None) -> Explanation:
    if named := as_backfill(text):
        return _explain_backfill(session, *named, seen)
    name = resolved(session, parse_name(text))
    archive = find_archive(session, name.archive)
    try:
        place = find_revision(session, archive, name)
    except NotFound:
        if early := _not_in_ledger(session, archive, name):
            return replace(early, full_name=text) if is_list(text) else early
        raise
    if name.task is None:
        return _explain_run(session, find_run(session, name), name, seen)
    if name.task == EVERY_TASK and name.item:
        return _explain_item(session, find_item(session, name), name, seen)
    if name.task is not None and is_list(text):
        run = find_run(session, replace(name, task=None, item=""))
        check_list(session, run, name.task)
        return _explain_list(session, run, name.task, seen)
    try:
        return _explain(session, find_task(session, name), seen)
    except NotFound:
        return _left_out(session, place, name)


def _explain_backfill(session: Session, archive: str, number: int, seen: Sequence[ArchiveId] | None) -> Explanation:
    """Explain the runs of a backfill that have failed, and the first run that goes on, or waits."""
    found = backfill(session, find_backfill(session, find_archive(session, archive), archive, number))
    told = [*found.failed, *found.open[:1]]
    if not told:
        text = "All of its runs have ended." if found.is_planned else "It has no run yet that could be explained."
        return _explanation(found.full_name, None, [Reason(kind=Why.COMPLETED, text=text)])
    parts = [_explain_run(session, RunId(run.id), parse_name(run.full_name), seen) for run in told]
    reasons = [
        _released_with(found.full_name, run.full_name, None, reason)
        if reason.text.startswith(f"{run.full_name}/")
        else replace(reason, text=f"{run.full_name}: {reason.text}")
        for run, part in zip(told, parts, strict=True)
        for reason in part.reasons
    ]
    return _explanation(found.full_name, None, reasons, [wait for part in parts for wait in part.waits_for])


def _released_with(whole: str, run: str, item: str | None, reason: Reason) -> Reason:
    """The reason of a held task, with the release of a backfill or an item that is explained, instead
    of the release of the task's run. ``whole``: the name of the backfill or item; ``item``: the key
    of the item, as in names.
    """
    if not isinstance(reason, Held) or not reason.release:
        return reason
    (name,) = reason.tasks
    own_run, _, task = name.partition("/")
    if own_run != run or (item is not None and task.partition("/")[2] != item):
        return reason
    release, of_run = f"arkqueue release {shlex.quote(whole)}", f"arkqueue release {run}"
    commands = [one for one in reason.commands if one.partition(" --")[0] != of_run]
    if not any(command.startswith(release) for command in commands):
        commands.insert(commands.index(reason.release), release + reason.options)
    return replace(reason, commands=commands)


def _explanation(name: str, state: State | None, reasons: list[Reason], waits: Sequence[Wait] = ()) -> Explanation:
    return Explanation(
        full_name=name,
        state=state,
        text="\n".join(reason.text for reason in reasons),
        commands=list(dict.fromkeys(command for reason in reasons for command in reason.commands)),
        reasons=reasons,
        waits_for=list(waits),
    )


class _Task:
    """One task under explanation."""

    def __init__(self, session: Session, row: Any, seen: Sequence[ArchiveId] | None, *, brief: bool = False) -> None:
        self.session, self.row, self.name, self.brief = session, row, task_name(row), brief
        self.seen = seen

    def explanation(self) -> Explanation:
        waits: list[Wait] = []
        if self.row.state == State.WAITING:
            reasons, waits = self._waiting()
        elif self.row.state == State.HELD and self.row.unmet:
            reasons, waits = self._waiting()
            held = self._present()
            reasons = _held_together([*reasons, replace(held, text=f"{held.text} {NOT_ALONE}")], self.row)
        else:
            reasons = [self._present()]
        if coming := about_to_be_canceled(self.session, self.row):
            # A task that is about to be canceled starts by no other remedy.
            is_held = self.row.state == State.HELD
            reasons = coming + (reasons if is_held else []) + nobody_manages(self.session)
        kinds = {reason.kind for reason in reasons}
        if MANAGED & kinds:
            reasons = reasons + nobody_manages(self.session)
        if self.row.state in STARTS_LATER and not kinds & {Why.ARCHIVE_STOPPED, Why.ARCHIVE_PAUSED}:
            reasons = reasons + (stopped(self.row, brief=self.brief) or paused(self.row))
        if self.row.state in KEEPS_SCRATCH:
            reasons = reasons + kept_scratch(self.session, self.row.run_id, self.row.item, run_name(self.row))
        if self.row.state != State.COMPLETED:
            reasons = reasons + fires_left_out(
                self.session, self.row, self.row.run_id, is_open=self.row.state in UNSETTLED
            )
        found = _explanation(self.name, State(self.row.state), reasons + released(self.row) + self._starving(), waits)
        if self.row.state in (State.WAITING, State.READY, State.RUNNING) and not kinds & (NEEDS_A_PERSON | CANCELED):
            return replace(found, expected=expected_of(self.session, [self.row.id]).get(self.row.id))
        return found

    def _present(self) -> Reason:
        match self.row.state:
            case State.READY:
                return ready(self.session, self.row, "It", brief=self.brief)
            case State.RUNNING:
                return running(self.session, self.row, "It")
            case State.DEFERRED:
                return deferred(self.row, "It")
            case State.HELD:
                return self._held()
        return self._settled()

    def _held(self) -> Reason:
        late = late_release(self.session, self.row)
        found, run = held(self.row, "It", late), run_name(self.row)
        if self.row.hold_id != BY_A_GUARD or not self.session.rows("unaccepted_run", run=self.row.run_id):
            return found
        commands = [f"arkqueue release {run}{how}" for how in ((SKIP_OUTDATED, " --force") if late else ("",))]
        text = "Its workflow files are not accepted: somebody else changed them (workflow-authors). A release of its run accepts them."
        return replace(found, text=f"{found.text} {text}", commands=commands, release="")

    def _settled(self) -> Reason:
        row, name, when = self.row, self.name, at(self.row.settled_at)
        by = f" by {row.by}" if row.by else ""
        names = task_names(self.session, [row.root_id, row.superseded_by])
        lost = f" Nothing will run it: {gone(row)}." if gone(row) else ""
        if row.state == State.COMPLETED:
            commands = [] if row.gate else [f"arkqueue logs {name}", *self._once_more()]
            return Reason(kind=Why.COMPLETED, text=f"It completed{when}.", commands=commands)
        if row.state in (State.FAILED, State.REJECTED):
            return self._ended_badly(when, by, lost)
        if row.state == State.SKIPPED:
            root = names.get(row.root_id)
            if root is None:
                return Reason(
                    kind=Why.SKIPPED, text=f"It was skipped{by}{when}.{lost}", commands=self._timely(row, remedies(row))
                )
            rooted = rows_by_id(self.session, [row.root_id])[row.root_id]
            if rooted.state == State.COMPLETED:
                return self._unneeded(rooted, root)
            is_deleted = rooted.run_deleted_at is not None or rooted.deleted
            helps = [undelete_command(rooted)] if is_deleted else self._timely(rooted, remedies(rooted, inside=True))
            commands = [] if lost else helps or [f"arkqueue explain {root}"]
            text = f"It was skipped because {root} {fate(rooted)}{', and ' + gone(rooted) if is_deleted else ''}.{lost}"
            if helps and not is_deleted and (others := self._others_of_list(rooted)):
                told = ", ".join(f"{number:,} {_ended(state, number)}" for state, number in others.items())
                text += f" Of the other items of the list, {told}."
                commands = [_of_whole_list(rooted, command) for command in helps] if rooted.state in others else helps
                if others.keys() - {rooted.state}:
                    commands.append(f"arkqueue explain {_whole_list(rooted)}")
            return Reason(kind=Why.SKIPPED, text=text, tasks=[root], commands=commands)
        if row.superseded_by is not None:
            canceler = names.get(row.superseded_by)
            text = f"It was superseded by {canceler or PURGED}{when}; a superseded task is retried only with --force."
            tasks = [canceler] if canceler else []
            return Reason(
                kind=Why.SUPERSEDED, text=text, tasks=tasks, commands=[f"arkqueue explain {task}" for task in tasks]
            )
        return Reason(
            kind=Why.CANCELED, text=f"It was canceled{by}{when}.{lost}", commands=self._timely(row, remedies(row))
        )

    def _others_of_list(self, root: Any) -> dict[State, int]:
        """The numbers of further items that keep the task skipped, by their states, if it needs all
        of the root's list.
        """
        if not root.item or self.row.item == root.item:
            return {}
        rows = self.session.rows("others_of_list", run=root.run_id, name=root.name, task=root.id)
        return {State(row.state): row.n for row in rows}

    def _timely(self, row: Any, commands: list[str]) -> list[str]:
        """The commands for a task with the options without which the queue refuses them. A retry needs
        --force if later revisions have gone on (design 5.19), and --from-start if the lost command may
        have acted already. A waiver as completed needs --force if outdated tasks would go on.
        """
        again, waive = f"arkqueue retry {task_name(row)}", f"arkqueue skip {task_name(row)} --as-completed"
        late = waive in commands and come_back_late(self.session, row)
        commands = [f"{waive} --force" if command == waive and late else command for command in commands]
        if again not in commands:
            return commands
        if row.state == State.CANCELED and row.item and self._needs_canceled_step(row):
            whole = f"arkqueue retry {shlex.quote(item_name(row, row.item))}"
            return [whole if command == again else command for command in commands]
        force = (
            " --force"
            if late or self._later(row) or (waive not in commands and come_back_late(self.session, row))
            else ""
        )
        return [f"{again}{force}{self._from_start(row)}" if command == again else command for command in commands]

    def _needs_canceled_step(self, row: Any) -> bool:
        """Whether the queue refuses a retry of this canceled step of an item alone, because the step
        needs another canceled step of the item.
        """
        needed = [found.root for found in self.session.rows("staying_skipped", candidates=[row.id], roots=[])]
        roots = rows_by_id(self.session, needed).values() if needed else ()
        return any((one.run_id, one.item, one.state) == (row.run_id, row.item, State.CANCELED) for one in roots)

    def _from_start(self, row: Any) -> str:
        """The option without which no retry repeats a lost command; empty if none needs it."""
        return " --from-start" if row.losses and self.session.rows("lost_once", tasks=[row.id]) else ""

    def _once_more(self) -> list[str]:
        """The command that runs a task again with everything behind it; none if one of these tasks
        is outdated or runs (design 5.30).
        """
        row = self.row
        if row.kind != TaskKind.ORDINARY or gone(row) or self._later(row):
            return []
        item = row.item or None
        part = part_behind(self.session, row.id, item)
        if part.is_running or outdated(self.session, part.ended):
            return []
        return [from_task(row, row.name, item, part)]

    def _unneeded(self, root: Any, name: str) -> Reason:
        """The reason of a skipped task that runs only after a failure, or depends on such a task,
        when ``root`` completed (design 5.6).
        """
        if root.kind == TaskKind.COMMIT:
            text = "It was not needed: it runs only if a certain task failed. That task is not part of its run, and never ran before or was purged."
            return Reason(kind=Why.SKIPPED, text=text)
        text = f"It was not needed: it, or a task that it depends on, runs only if {name} fails, and {name} completed{at(root.settled_at)}."
        return Reason(kind=Why.SKIPPED, text=text, tasks=[name])

    def _ended_badly(self, when: str, by: str, lost: str) -> Reason:
        row, name = self.row, self.name
        # In a deleted run, the deletion waived it.
        is_deleted = row.run_deleted_at is not None or row.deleted
        waived = f" It was waived{by}: tasks that wait for it may go on." if row.waived and not is_deleted else ""
        again = f"arkqueue retry {name}"
        later = self._later(row) if again in remedies(row) else []
        helps = self._timely(row, remedies(row))
        from_first = self._from_first_with_scratch()
        if from_first:
            helps = [from_first if command.startswith(again) else command for command in helps]
        without_attachments = self.session.rows("with_removed_attachments", tasks=[row.id])
        is_barred = row.end == End.NOT_PERMITTED and bool(are_not_permitted(self.session, [row.id]))
        if without_attachments or is_barred:
            helps = [command for command in helps if not command.startswith("arkqueue retry ")]
        commands = [f"arkqueue logs {name}", *helps]
        tasks, behind = self._behind()
        if row.state == State.REJECTED:
            text = f"It rejected its input{when} (exit code 65) and is never retried.{waived}{lost}{behind} Fix the input, and commit or submit it again."
            return Reason(kind=Why.REJECTED, text=text, tasks=tasks, commands=commands)
        if row.fault:
            text = f"It failed{when} when it asked for its locks, without an attempt: {row.fault}.{waived}{behind}{lost or ' A retry evaluates the name of the lock again.'}"
            return Reason(kind=Why.FAILED, text=text, tasks=tasks, commands=helps)
        text = f"It failed{when} in attempt {row.attempts} ({how_it_ended(row)}).{waived}{lost}{behind}"
        if later:
            names = [self._beside(other) for other in later]
            text += f" Later revisions have already run ({_some(names)}): a retry may replace newer results with older ones."
        elif f"{again} --force" in " ".join(helps):
            text += " Tasks that were skipped because of it would come back too late: later revisions have superseded them, or done their work."
        if from_first:
            text += (
                " Its scratch folder is gone, so it runs again only together with the first task that uses the folder."
            )
            text += why_forced(from_first)
        if without_attachments:
            text += " Its run was deleted meanwhile, which removed the attachments: no retry can succeed."
        if is_barred and not lost:
            text += " A retry helps only after the settings of the archive have been changed."
        if row.end == "lost" and not lost:
            text += " Before a retry, find out why its task manager or container engine ended: the task itself may have used up memory or disk."
            if self._from_start(row):
                text += " Find out, too, whether its command had done its work: it is meant to run once, and a retry runs it again."
                commands += [] if row.waived else [f"arkqueue skip {name} --as-completed"]
        return Reason(kind=Why.FAILED, text=text, tasks=tasks, commands=commands)

    def _behind(self) -> tuple[list[str], str]:
        """The first tasks that wait for a failed task, and the sentence on them; both empty if there
        are none.
        """
        ids = [
            one.id for one in self.session.rows("waiting_behind", task=self.row.id, most=MOST_BEHIND, limit=MOST_EDGES)
        ]
        names = [task_name(row) for _, row in sorted(rows_by_id(self.session, ids).items())]
        if not names:
            return [], ""
        more = "At least " if len(ids) == MOST_BEHIND else ""
        number = f"{more}{len(names):,} tasks wait" if len(names) > 1 else "A task waits"
        return names[:MOST_SOME], f" {number} for it: {_some(names)}."

    def _from_first_with_scratch(self) -> str:
        """The command that runs the tasks of a task's scratch folder again from the first one, if
        the folder is gone; empty if it is not.
        """
        if self.brief:
            return ""
        row = self.row
        for first in self.session.rows("first_with_scratch", task=row.id):
            lost = self.session.rows("lost_scratch", run=row.run_id, item=row.item, silence=SILENCE)
            its_own = row.item if first.is_of_item else ""
            if first.id != row.id and any(folder.is_removed and folder.item == its_own for folder in lost):
                return from_first_with_scratch(self.session, row, first)
        return ""

    def _beside(self, other: Any) -> str:
        """The name of a task of the same branch."""
        row = self.row
        place = other.number, other.run, other.name
        return str(name_of(row.archive, *place, branch=row.branch, main=row.main, item=other.item))

    def _later(self, row: Any) -> list[Any]:
        return later(self.session, row)

    def _waiting(self) -> tuple[list[Reason], list[Wait]]:
        row = self.row
        edges = self.session.rows("unmet_chain", task=row.id, limit=MOST_EDGES)
        if not edges:
            (run,) = self.session.rows("place_of_run", run=row.run_id)
            if run.planned is not None:
                return [being_planned(run)], []
            found = superseding(self.session, row, "It") or self._asking(row, "It")
            return found or [self._without_edges()], []
        into: dict[int, list[Any]] = defaultdict(list)
        for edge in edges:
            into[edge.target].append(edge)
        sources = rows_by_id(self.session, {e.source for e in into[row.id]})
        waits = [_wait(edge, sources[edge.source]) for edge in into[row.id]]
        ends = {e.source: e for e in reversed(edges) if e.source not in into}
        chosen = sorted(ends)[:MOST_REASONS]
        obstacles = rows_by_id(self.session, chosen)
        ways = _ways(row.id, into)
        reasons = self._gates_of_lists(sources.values())
        reasons += [self._obstacle(ends[id], obstacles[id], ways[id]) for id in chosen if id in ways]
        # A task that closes a gate and itself waits is worth mentioning, although it is not the
        # obstacle.
        closing = {e.source for e in edges if e.kind == "exclusive" and e.crossing and e.source not in ends}
        closers = rows_by_id(self.session, sorted(closing)[:MOST_REASONS]).values()
        for closed in sorted(closers, key=lambda task: (task.number, task.run)):
            other = task_name(closed)
            text = f"The gate to the next revision is closed by {other} (exclusive), which is {closed.state}."
            reasons.append(Reason(kind=Why.GATE, text=text, tasks=[other], commands=[f"arkqueue explain {other}"]))
        if len(ends) > len(chosen):
            more = len(ends) - len(chosen)
            text = f"It also waits for {more} other task{'s' * (more != 1)}."
            reasons.append(Reason(kind=Why.WAITS_FOR_RUNNING, text=text))
        return _held_together(reasons, row), waits

    def _asking(self, row: Any, subject: str) -> list[Reason]:
        return asking(self.session, row, subject, brief=self.brief, seen=self.seen)

    def _gates_of_lists(self, sources: Iterable[Any]) -> list[Reason]:
        """The progress of the lists at whose gates the task waits."""
        gates = [source.id for source in sources if is_gate_of_list(source)]
        found = self.session.rows("gates_of_lists", gates=gates, most=MOST_ITEMS) if gates else []
        return [at_gate(gate, "It") for gate in found]

    def _without_edges(self) -> Reason:
        row = self.row
        if row.kind == TaskKind.REPORT:
            beside = [r.id for r in self.session.rows("unsettled_beside", run=row.run_id, most=MOST_TASKS)]
            names = list(task_names(self.session, beside).values())
            if names:
                least = "at least " if len(names) == MOST_TASKS else ""
                text = f"It starts when all other tasks of its run are settled; {least}{len(names)} {'is' if len(names) == 1 else 'are'} not: {_some(names)}."
                return Reason(kind=Why.WAITS_FOR_REPORTS, text=text, tasks=names)
        for reason in parked(row, "It"):
            return reason
        return Reason(kind=Why.ABOUT_TO_START, text="It waits for nothing, and becomes ready within a moment.")

    def _obstacle(self, edge: Any, other: Any, way: Sequence[int]) -> Reason:
        """The reason for one obstacle, the task at the end of a chain of unmet edges."""
        name, via = task_name(other), self._via(way)
        only = " to fail" if edge.failed and edge.target == self.row.id else ""
        subject = f"It waits for {name}{only}{via}, which"
        if edge.kind == "stopping" and other.state == State.RUNNING:
            canceler = "It"
            if edge.target != self.row.id:
                its = task_names(self.session, [edge.target])[edge.target]
                canceler = f"It waits for {its}{self._via([id for id in way if id != edge.target])}, which"
            return stopping(self.session, other, name, canceler)
        if edge.kind == "exclusive" and edge.crossing:
            text = f"The gate to the next revision{via} is closed by {name} (exclusive), which {doing(other)}."
            return Reason(kind=Why.GATE, text=text, tasks=[name], commands=[f"arkqueue explain {name}"])
        match other.state:
            case State.FAILED | State.REJECTED:
                text = f"{subject} {fate(other)}."
                commands = self._timely(other, remedies(other, inside=edge.product))
                return Reason(kind=Why.BLOCKED, text=text, tasks=[name], commands=commands)
            case State.RUNNING:
                reason = running(self.session, other, subject)
                return replace(reason, kind=Why.SILENT if reason.kind is Why.SILENT else Why.WAITS_FOR_RUNNING)
            case State.READY:
                return ready(self.session, other, subject, brief=self.brief)
            case State.DEFERRED:
                return deferred(other, subject)
            case State.HELD:
                return held(other, subject, late_release(self.session, other))
            case State.COMPLETED if other.kind == TaskKind.COMMIT:
                text = f"{subject} has completed: the tasks of its run become ready, some thousands at a time."
                return Reason(kind=Why.ABOUT_TO_START, text=text, tasks=[name])
            case State.COMPLETED | State.CANCELED | State.SKIPPED if not edge.crossing and (
                again := self._interrupted(other)
            ):
                text = f"{subject} is to run again, but a retry with --from was interrupted before it reached this task. Repeat that command."
                return Reason(kind=Why.BLOCKED, text=text, tasks=[name], commands=[again])
        for reason in self._asking(other, subject) or parked(other, subject):
            return reason
        return Reason(kind=Why.ABOUT_TO_START, text=f"{subject} is {other.state}.", tasks=[name])

    def _interrupted(self, row: Any) -> str:
        """The last `retry --from` of a task's run; empty if there was none."""
        for found in self.session.rows("last_retry_from", run=row.run_id):
            return retry_from_command(run_name(row), found.note)
        return ""

    def _via(self, way: Sequence[int]) -> str:
        if not way:
            return ""
        tasks = rows_by_id(self.session, way[:3])
        passed = [_passed(tasks[id]) for id in way[:3]]
        return f" (through {', '.join(passed)}{', …' if len(way) > 3 else ''})"

    def _starving(self) -> list[Reason]:
        row = self.row
        if row.kind != TaskKind.ORDINARY or row.state == State.COMPLETED:
            return []
        place = {"branch": row.branch_id, "name": row.name, "item": row.item, "number": row.number, "run": row.run}
        before = self.session.rows("task_before", **place)
        superseded = list(takewhile(_is_superseded, before if _is_superseded(row) else before[1:]))
        if len(superseded) < STARVING:
            return []
        done = next((r for r in before if r.state == State.COMPLETED), None)
        last = f"it last completed at revision {done.number}" if done else "none of those completed"
        text = (
            f"{row.name} was superseded {len(superseded)} times in a row; {last}. "
            "If new revisions come faster than the task ends, write `only: unstarted` in its `cancels`, so that running tasks are no longer stopped."
        )
        return [Reason(kind=Why.STARVING, text=text)]


def _explain_run(session: Session, run: RunId, name: Name, seen: Sequence[ArchiveId] | None) -> Explanation:
    """Explain why a run does not go on: its faults, or the obstacles of its unsettled tasks, and its
    failed tasks.
    """
    (row,) = session.rows("show_runs", runs=[run])
    if row.deleted_at is not None:
        return _deleted(name)
    if row.faults:
        reason = faults(row.faults, str(name), _without_or_again(session, row))
        return _explanation(str(name), None, [reason, *fires_left_out(session, row, run, is_open=False)])
    if row.planned is not None:
        return _explanation(str(name), None, [being_planned(row)])
    beside = [r.id for r in session.rows("unsettled_beside", run=run, most=MOST_TASKS + 1)]
    unsettled, more = _first(beside, "unsettled tasks")
    # Before all other tasks are settled, a REPORT that is not held waits for them.
    is_report_told = row.report_state in ((State.HELD,) if unsettled else UNSETTLED)
    report = [row.report_id] if is_report_told else []
    failed = [r.id for r in session.rows("failed_of_run", run=run, most=MOST_TASKS + 1)]
    bad, more_bad = _first(failed, "failed tasks")
    more = " ".join(filter(None, (more, more_bad)))
    if not unsettled:
        text = (
            "Its task is settled."
            if row.tasks == 1
            else f"All of its {row.tasks} tasks are settled."
            if row.tasks
            else f"It has no tasks, and {'waits for its REPORT' if report else 'has ended'}."
        )
        of_failed = _reasons_of(session, bad, seen, more)
        said = any(reason.kind is Why.KEPT_SCRATCH for reason in of_failed)
        kept = [] if said else kept_scratch(session, run, None, str(name))
        of_report = _reasons_of(session, report, seen)
        return _explanation(str(name), None, [Reason(kind=Why.COMPLETED, text=text), *of_report, *of_failed, *kept])
    return _explanation(str(name), None, _reasons_of(session, [*unsettled, *report, *bad], seen, more))


def _deleted(name: Name) -> Explanation:
    undelete = f"arkqueue undelete {shlex.quote(str(name))}"
    return _explanation(str(name), None, [Reason(kind=Why.CANCELED, text="It was deleted.", commands=[undelete])])


def _without_or_again(session: Session, run: Any) -> list[str]:
    """The commands that leave the revision of a failed run out of its backfill, and that make the
    run again; empty for other runs.
    """
    if run.backfill_number is None:
        return []
    (found,) = session.rows("backfills_of", archive=run.archive_id, number=run.backfill_number, most=1)
    (fill,) = session.rows("backfill", backfill=found.id)
    return [f"arkqueue delete {run_name(run)}", backfill_command(fill, run.number, run.number)]


def _explain_item(session: Session, run: RunId, name: Name, seen: Sequence[ArchiveId] | None) -> Explanation:
    """Explain why an item does not go on: the obstacles of its unsettled tasks, and its failed
    tasks.
    """
    tasks = session.rows("list_tasks", runs=[run], item=name.item, tasks=None)
    if not tasks:
        return _deleted(name)
    telling = [row.id for row in tasks if row.state in (*UNSETTLED, State.FAILED, State.REJECTED)]
    if not telling:
        text = f"All of its {len(tasks)} tasks are settled." if len(tasks) > 1 else "Its task is settled."
        kept = kept_scratch(session, run, name.item, str(name).partition("/")[0])
        return _explanation(str(name), None, [Reason(kind=Why.COMPLETED, text=text), *kept])
    run_of, key = str(name).partition("/")[0], str(name).rpartition("/")[2]
    reasons = _reasons_of(session, telling, seen, of_item=True)
    return _explanation(str(name), None, [_released_with(str(name), run_of, key, reason) for reason in reasons])


def _explain_list(session: Session, run: RunId, task: str, seen: Sequence[ArchiveId] | None) -> Explanation:
    """The reason why the items of a list do not continue: the things that the unsettled items wait
    for, and the failed items.
    """
    (row,) = session.rows("show_runs", runs=[run])
    name = list_name(run_name(row), task)
    if row.planned is not None:
        return _explanation(name, None, [being_planned(row)])
    found = [item.id for item in session.rows("telling_of_list", run=run, name=task, most=MOST_TASKS + 1)]
    telling, more = _first(found, "items")
    if not telling:
        return _explanation(name, None, [Reason(kind=Why.COMPLETED, text="All of its items are settled.")])
    return _explanation(name, None, _reasons_of(session, telling, seen, more))


def _of_whole_list(row: Any, command: str) -> str:
    """A command for a task of a list, as a command for all items in the task's state. A retry means
    the failed ones anyway.
    """
    is_default = row.state == State.FAILED and command.startswith("arkqueue retry ")
    return command.replace(task_name(row), _whole_list(row), 1) + ("" if is_default else f" --state {row.state}")


def _ended(state: State, number: int) -> str:
    return "failed" if state is State.FAILED else f"{'was' if number == 1 else 'were'} {state}"


def _whole_list(row: Any) -> str:
    return shlex.quote(list_name(run_name(row), row.name))


def being_planned(run: Any) -> Reason:
    """The progress of planning a large run. ``run``: a row with ``planned`` and ``planned_items``."""
    text = f"Its run is still being planned: the tasks of {run.planned:,} of {run.planned_items:,} items are stored. None of its tasks starts before all are stored."
    return Reason(kind=Why.PLANNED, text=text, commands=[f"arkqueue show {run_name(run)}"])


def _reasons_of(
    session: Session, tasks: Sequence[int], seen: Sequence[ArchiveId] | None, more: str = "", *, of_item: bool = False
) -> list[Reason]:
    """The reasons of several tasks of a run, each once, with the names of its tasks. The failed items
    of a list have one reason, and so have those that one hold holds, except where all of the tasks
    are ``of_item``. ``more``: a sentence on further tasks; empty if there are none.
    """
    reasons: dict[tuple[str, ...], Reason] = {}
    rows = list(rows_by_id(session, tasks).values())
    lists: set[tuple[str, State, int | None]] = set()
    for task in rows:
        is_held = task.state == State.HELD and not task.unmet
        is_alike = task.item and not of_item and (is_held or task.state in (State.FAILED, State.REJECTED))
        alike = task.name, task.state, task.hold_id if is_held else None
        if is_alike and alike in lists:
            continue
        found = _Task(session, task, seen).explanation().reasons
        if is_alike:
            lists.add(alike)
            found = [(_of_held_items if is_held else _of_failed_items)(session, task, found[0]), *found[1:]]
        for reason in found:
            whose = "" if reason.kind is Why.NO_QUEUE_MANAGER else f"{task_name(task)}: "
            # Two tasks may have failed in the same second, and need a command each.
            reasons.setdefault((reason.text, *reason.commands), replace(reason, text=whose + reason.text))
    told = _held_together(list(reasons.values()), rows[0]) if rows else []
    if len(told) > MOST_REASONS:
        more = f"These are the first {MOST_REASONS} reasons; there are more. {more}".rstrip()
    if more:
        list_of_tasks = f"arkqueue show {run_name(rows[0])}"
        told = [*told[:MOST_REASONS], Reason(kind=Why.MORE, text=more, commands=[list_of_tasks])]
    return told


def _first(tasks: Sequence[int], what: str) -> tuple[Sequence[int], str]:
    """The tasks that are explained, and a sentence if they are not all of them."""
    if len(tasks) <= MOST_TASKS:
        return tasks, ""
    return tasks[:MOST_TASKS], f"Only the first {MOST_TASKS} {what} are explained."


def _of_held_items(session: Session, row: Any, reason: Reason) -> Reason:
    """The reason of a held item, for all items of its list that the same hold holds."""
    (count,) = session.rows("held_of_list", run=row.run_id, name=row.name, hold=row.hold_id)
    if not isinstance(reason, Held) or count.n < 2:
        return reason
    of_list = f"arkqueue release {_whole_list(row)}{reason.options}"
    return replace(
        reason,
        text=f"{reason.text} It holds {count.n:,} items of {row.name}; this is the first.",
        commands=[of_list if command == reason.release else command for command in reason.commands],
    )


def _of_failed_items(session: Session, row: Any, reason: Reason) -> Reason:
    """The reason of a failed or rejected item, for all items of its list in that state."""
    (count,) = session.rows("failures_of_list", run=row.run_id, name=row.name, state=row.state)
    if count.n < 2:
        return reason
    text = f"{reason.text} {count.n:,} items of {row.name} {_ended(State(row.state), count.n)}; this is the first."
    own = f"arkqueue logs {task_name(row)}"
    helps = [command if command == own else _of_whole_list(row, command) for command in reason.commands]
    listed = f"arkqueue show {run_name(row)} --items --state {row.state}"
    return replace(reason, text=text, commands=list(dict.fromkeys([*helps[:1], listed, *helps[1:]])))


def _held_together(reasons: Sequence[Reason], row: Any) -> list[Reason]:
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
    text = f"{len(names)} more {'task is' if len(names) == 1 else 'tasks are'} held: {_some(names)}."
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
        if but and reason.kind in (Why.ARCHIVE_PAUSED, Why.ARCHIVE_STOPPED):
            if what in told:
                reason = replace(reason, text=f"{short}.")
            told.add(what)
        found.append(reason)
    return found


def _not_in_ledger(session: Session, archive: ArchiveId, name: Name) -> Explanation | None:
    """Explain why a revision beyond the head is not in the ledger; None if the name is not of such
    a revision.
    """
    view = show_archive(session, archive)
    branch = find_branch(session, archive, name.branch, name.archive)
    head = session.rows("head_revision", branch=branch)
    if head and not name.revision.startswith("g") and int(name.revision) < head[0].number:
        return None
    newest = f"the newest is {head[0].number}" if head else "it has no revision yet"
    if name.branch is not None and name.branch.startswith(RETIRED):
        text = f"Revision {name.revision} is not in this earlier ledger of {view.name}, to which nothing is added any more; {newest}."
        return _explanation(str(name), None, [Reason(kind=Why.NOT_IN_LEDGER, text=text)])
    read = f", read{at(view.read_at)}" if view.read_at else ""
    look = [f"arkqueue sync {view.name}"]
    reasons = []
    if view.removed_at is not None:
        reasons.append(Reason(kind=Why.ARCHIVE_STOPPED, text=f"{view.name} was removed{at(view.removed_at)}."))
    if view.stopped is not None:
        text = f"{view.name} is stopped, and its repository is not read: {view.stopped}"
        reasons.append(Reason(kind=Why.ARCHIVE_STOPPED, text=text, commands=[view.remedy]))
    elif view.trouble is not None:
        text = f"{view.name} has not been readable{since(view.trouble_since)}: {view.trouble.rstrip('.')}. The next try is{at(view.next_read_at)}."
        reasons.append(Reason(kind=Why.ARCHIVE_TROUBLE, text=text, commands=[view.remedy]))
    text = f"Revision {name.revision} is not in the ledger of {view.name}; {newest}{read}."
    unmanaged = nobody_manages(session)
    if view.notice is not None and view.notice.revision is not None:
        text += f" A notice at {moment(view.notice.at)} named revision {view.notice.revision}{'' if unmanaged else ', and the queue manager looks for it'}."
    reasons.append(Reason(kind=Why.NOT_IN_LEDGER, text=text, commands=[] if view.stopped or unmanaged else look))
    reasons += unmanaged
    return _explanation(str(name), None, reasons)


def _left_out(session: Session, place: Place, name: Name) -> Explanation:
    """Explain why a task is not part of a revision's commit run, or of the named run. Raises
    ``NotFound`` if no file of that revision defines the task.
    """
    (row,) = session.rows("show_runs", runs=[find_run(session, name)])
    (workflow,) = session.rows("workflow_at", revision=place.id)
    run = str(replace(name, task=None, item=""))
    if row.faults:
        return _explanation(str(name), None, [faults(row.faults, run, _without_or_again(session, row))])
    definition = next((from_json(task) for task in workflow.tasks if task["name"] == name.task), None)
    if definition is None or (definition.foreach and name.task in own_names(session, place, row.run)):
        raise no_task(session, place, name)
    branch = next(b.name for b in session.rows("branches_named", archive=place.archive) if b.id == place.branch)
    is_empty = definition.foreach is not None and definition.foreach.items == EMPTY
    if workflow.baseline and row.trigger == Trigger.COMMIT:
        text = f"Revision {place.number} is where the ledger starts: nothing ran there."
    elif row.trigger not in definition.on:
        text = f"It does not run {HOW[row.trigger]} (its on: {', '.join(definition.on)})."
    elif not matches_branch(definition.branches, branch):
        text = f"The branch {branch} does not match its branches: {', '.join(definition.branches)}."
    elif is_empty:
        text = "Its list (foreach) has no items."
    elif row.trigger == Trigger.COMMIT:
        text = f"No file that revision {place.number} changed matches its paths: {', '.join(definition.paths)}."
    else:
        text = (
            f"That run was made {HOW[row.trigger]}, for other tasks only: {_some(own_names(session, place, row.run))}."
        )
    commands: list[str] = []
    if row.trigger not in definition.on and (scheduled := _scheduled(session, place, definition.name)):
        text += f" {scheduled.text}"
        commands += scheduled.commands
    if lost := gone(workflow):
        text += f" Nothing will run it: {lost}."
    elif not is_empty and Trigger.MANUAL in definition.on and matches_branch(definition.branches, branch):
        on = f" --branch {shlex.quote(name.branch)}" if name.branch else ""
        commands += [f"arkqueue trigger {name.archive}{on} --revision {name.revision} {name.task}"]
    reason = Reason(kind=Why.LEFT_OUT, text=f"{run} has no task {name.task}. {text}", commands=commands)
    return _explanation(str(name), None, [reason])


def _scheduled(session: Session, place: Place, task: str) -> Reason | None:
    """The next fire of the schedule of a task that is not for commits, and the state of its last
    run.
    """
    for schedule in session.rows("schedule_of_task", branch=place.branch, name=task):
        text = f"Its schedule {schedule.cron} fires next{at(schedule.next_at)}"
        last = session.rows("show_runs", runs=[schedule.run_id]) if schedule.run_id else []
        if not last:
            return Reason(kind=Why.LEFT_OUT, text=f"{text}.")
        run = run_name(last[0])
        left_out = "".join(
            f" {reason.text}" for reason in fires_left_out(session, last[0], last[0].id, is_open=last[0].unsettled > 0)
        )
        text = f"{text}; its last run {run} is {run_state(last[0])}.{left_out}"
        return Reason(kind=Why.LEFT_OUT, text=text, commands=[f"arkqueue explain {run}"])
    return None


def _ways(start: int, into: dict[int, list[Any]]) -> dict[int, list[int]]:
    """For each task of the chain, the tasks on the shortest way between it and ``start``, the
    nearest to ``start`` first.
    """
    ways: dict[int, list[int]] = {start: []}
    level = [start]
    while level:
        following = []
        for target in level:
            for edge in into.get(target, ()):
                if edge.source not in ways:
                    # Only the first few are ever shown. More of them would make the cost of a long
                    # chain quadratic.
                    ways[edge.source] = (ways[target] + ([target] if target != start else []))[:4]
                    following.append(edge.source)
        level = following
    return ways


def _passed(row: Any) -> str:
    """The name of a task on the way to an obstacle."""
    name = task_name(row)
    return f"{name}, which was {row.state}" if row.state in (State.CANCELED, State.SKIPPED) else name


def _wait(edge: Any, source: Any) -> Wait:
    return Wait(task=task_name(source), state=State(source.state), kind=kind_of(edge))


def _is_superseded(row: Any) -> bool:
    return row.state == State.CANCELED and row.superseded_by is not None


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST_SOME]) + (", …" if len(names) > MOST_SOME else "")
