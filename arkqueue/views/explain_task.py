"""Why a task does not run: its unmet edges are followed to the obstacles (design 8, rule 9).

An obstacle is a task that waits for no other: it runs, is ready, deferred or held, or it failed and
blocks later revisions until it is retried or waived. The way to it may pass through tasks that wait
themselves, or that waited until they were canceled or skipped. Each obstacle becomes one reason.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import takewhile
from typing import Any

from arkqueue.db.session import Session
from arkqueue.model import SILENCE, ArchiveId, End, TaskKind
from arkqueue.names import PURGED, item_name, name_of, run_name, undelete_command
from arkqueue.plan.ledger import BY_A_GUARD
from arkqueue.states import UNSETTLED, State
from arkqueue.views.expected import expected_of
from arkqueue.views.explanation import (
    MOST_REASONS,
    MOST_SOME,
    MOST_TASKS,
    Explanation,
    Wait,
    alike_once,
    being_planned,
    ended,
    explanation_of,
    held_together,
    of_whole_list,
    some,
    whole_list,
)
from arkqueue.views.graph import kind_of
from arkqueue.views.naming import task_name, task_names
from arkqueue.views.not_starting import Around, asking, ready
from arkqueue.views.outdated import SKIP_OUTDATED, at, come_back_late, gone, late_release, later, outdated, rows_by_id
from arkqueue.views.reasons import (
    MOST_ITEMS,
    Reason,
    Why,
    about_to_be_canceled,
    at_gate,
    deferred,
    doing,
    fate,
    fires_left_out,
    from_first_with_scratch,
    from_task,
    held,
    is_gate_of_list,
    kept_scratch,
    may_start,
    nobody_manages,
    parked,
    part_behind,
    paused,
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

MOST_BEHIND = 25
"""The most tasks that are counted as waiting for a failed one."""
MOST_EDGES = 20_000
"""The most unmet edges that are followed. If there are more, the answer says so."""
STARVING = 3
"""The number of supersessions in a row from which on they are mentioned."""
STARTS_LATER = {State.WAITING, State.HELD, State.DEFERRED, State.FAILED}
"""The states in which a task of a stopped archive would start, sooner or later, if the archive went
on.
"""
MAY_COME_BACK = {State.REJECTED, State.CANCELED, State.SKIPPED}
"""Further states in which a stopped archive refuses the command that helps."""
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


class ExplainedTask:
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
            reasons = held_together([*reasons, replace(held, text=f"{held.text} {NOT_ALONE}")], self.row)
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
        elif self.row.state in MAY_COME_BACK and any(may_start(reason.commands) for reason in reasons):
            reasons = reasons + stopped(self.row, brief=self.brief)
        if self.row.state in KEEPS_SCRATCH:
            reasons = reasons + kept_scratch(self.session, self.row.run_id, self.row.item, run_name(self.row))
        if self.row.state != State.COMPLETED:
            reasons = reasons + fires_left_out(
                self.session, self.row, self.row.run_id, is_open=self.row.state in UNSETTLED
            )
        found = explanation_of(self.name, State(self.row.state), reasons + released(self.row) + self._starving(), waits)
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
                told = ", ".join(f"{number:,} {ended(state, number)}" for state, number in others.items())
                text += f" Of the other items of the list, {told}."
                commands = [of_whole_list(rooted, command) for command in helps] if rooted.state in others else helps
                if others.keys() - {rooted.state}:
                    commands.append(f"arkqueue explain {whole_list(rooted)}")
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
        # No candidate is behind another one here, so each row has a root.
        needed = [found.root for found in self.session.rows("staying_skipped", candidates=[row.id], roots=[])]
        roots = rows_by_id(self.session, needed).values() if needed else ()
        return any((one.run_id, one.item, one.state) == (row.run_id, row.item, State.CANCELED) for one in roots)

    def _from_start(self, row: Any) -> str:
        """The option without which no retry repeats a lost command; empty if none needs it."""
        return " --from-start" if row.losses and self.session.rows("lost_once", tasks=[row.id]) else ""

    def _once_more(self) -> list[str]:
        """The command that runs a task again with everything behind it; none if one of these tasks
        is outdated or runs (design 5.30), or the archive is stopped.
        """
        row = self.row
        if row.kind != TaskKind.ORDINARY or gone(row) or row.stopped is not None or self._later(row):
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
            text += (
                f" Later revisions have already run ({some(names)}): a retry may replace newer results with older ones."
            )
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
        return names[:MOST_SOME], f" {number} for it: {some(names)}."

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

    @cached_property
    def _chain(self) -> list[Any]:
        """The unmet edges to the task, and those behind them."""
        return self.session.rows("unmet_chain", task=self.row.id, limit=MOST_EDGES)

    @property
    def obstacles(self) -> frozenset[tuple[int, bool]]:
        """The ids of the tasks at the ends of the chain: those that wait for no other task. With each,
        whether its product is needed. Without a chain, the task itself.
        """
        targets = {edge.target for edge in self._chain}
        return frozenset((e.source, e.product) for e in self._chain if e.source not in targets) or frozenset(
            [(self.row.id, False)]
        )

    def _waiting(self) -> tuple[list[Reason], list[Wait]]:
        row = self.row
        edges = self._chain
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
        ways, around = _ways(row.id, into), Around(self.session, chosen, self.seen)
        reasons = self._gates_of_lists(sources.values())
        told = [
            (obstacles[id], self._obstacle(ends[id], obstacles[id], ways[id], around)) for id in chosen if id in ways
        ]
        reasons += alike_once(told)
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
        return held_together(reasons, row), waits

    def _asking(self, row: Any, subject: str, around: Around | None = None) -> list[Reason]:
        return asking(self.session, row, subject, around, brief=self.brief, seen=self.seen)

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
                text = f"It starts when all other tasks of its run are settled; {least}{len(names)} {'is' if len(names) == 1 else 'are'} not: {some(names)}."
                return Reason(kind=Why.WAITS_FOR_REPORTS, text=text, tasks=names)
        for reason in parked(row, "It"):
            return reason
        return Reason(kind=Why.ABOUT_TO_START, text="It waits for nothing, and becomes ready within a moment.")

    def _obstacle(self, edge: Any, other: Any, way: Sequence[int], around: Around) -> Reason:
        """The reason for one obstacle, the task at the end of a chain of unmet edges. ``around``: of
        all obstacles.
        """
        name, via = task_name(other), self._via(way)
        only = "a failure of " if edge.failed and edge.target == self.row.id else ""
        subject = f"It waits{via} for {only}{name}, which"
        if edge.kind == "stopping" and other.state == State.RUNNING:
            canceler = "It"
            if edge.target != self.row.id:
                its = task_names(self.session, [edge.target])[edge.target]
                canceler = f"It waits{self._via([id for id in way if id != edge.target])} for {its}, which"
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
                return ready(self.session, other, subject, around, brief=self.brief)
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
        for reason in self._asking(other, subject, around) or parked(other, subject):
            return reason
        return Reason(kind=Why.ABOUT_TO_START, text=f"{subject} is {other.state}.", tasks=[name])

    def _interrupted(self, row: Any) -> str:
        """The last `retry --from` of a task's run; empty if there was none."""
        for found in self.session.rows("last_retry_from", run=row.run_id):
            return retry_from_command(run_name(row), found.note)
        return ""

    def _via(self, way: Sequence[int]) -> str:
        """The tasks on the way to an obstacle, in brackets before the name of the obstacle, so that
        the clause behind the name says what the obstacle does.
        """
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
