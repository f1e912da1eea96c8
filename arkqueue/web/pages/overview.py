"""The overview: what needs a person first, then one line for each archive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from markupsafe import Markup, escape
from starlette.requests import Request

from arkqueue.db.session import Session
from arkqueue.model import ArchiveId, TaskKind, Trigger
from arkqueue.states import OPEN, RunState, State
from arkqueue.views.archives import ArchiveView, archives, in_public, in_short
from arkqueue.views.attention import (
    FailuresOfBackfill,
    Hanging,
    failures_of_backfills,
    hanging_tasks,
    held_tasks,
    last_lines,
    recent_runs,
    unhandled_failures,
)
from arkqueue.views.explain import outdated
from arkqueue.views.installation import (
    About,
    Depth,
    TaskManagerView,
    called,
    measure,
    queue_depth,
    task_managers,
    told_faults,
)
from arkqueue.views.runs import RunInShort, views_of_runs
from arkqueue.views.tasks import TaskView
from arkqueue.views.waits import Wait, waits_of
from arkqueue.web.pages.answer import Shown, age_of, in_clock, run_words, shape_of, took
from arkqueue.web.pages.visitor import Visitor

STRIP: Final = 30
"""Runs that the strip of an archive shows."""
MOST_NEEDS: Final = 20
"""Things of one kind that need a person; the others are counted on the pages of their archives."""
MOST_ARCHIVES: Final = 100
"""Archives that need a person; the others are counted."""
PAGE: Final = 20
"""Archives on a page."""


@dataclass(frozen=True, slots=True)
class Need:
    """Something that waits for a person. ``verb``: what the button does to ``name``; empty: the page of the thing says more. ``force``: the button shows first what is forced."""

    state: str
    name: str
    text: str
    verb: str = ""
    button: str = ""
    force: bool = False


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something wrong with the installation. ``act``: the form that helps, for ``name``, with its ``button``; where that is empty, ``address`` is a page that says more, if there is one."""

    text: str
    address: str = ""
    act: str = ""
    name: str = ""
    button: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """One archive. ``runs``: its newest ones, the oldest first. ``now``: in words what goes on; ``waits``: what waits there, and why."""

    archive: ArchiveView
    rev: int | None
    message: str
    author: str
    run: RunInShort | None
    runs: list[RunInShort]
    state: str
    now: str
    waits: list[Wait]


def overview(visitor: Visitor, request: Request) -> Shown:
    """What needs a person, and the archives that the visitor may see."""
    caller = visitor.caller
    covered = caller.archives()
    known = in_short(caller.session, caller.token.archives)
    asked = request.query_params.get("page", "1")
    number = int(asked) if asked.isdecimal() and len(asked) < 7 else 1
    named, bad = [*known][(number - 1) * PAGE : number * PAGE], [name for name, needs in known.items() if needs]
    found = archives(caller.session, [*named, *bad[:MOST_ARCHIVES]])
    found = [in_public(one) for one in found] if visitor.is_anybody else found
    on_page = [one for one in found if one.name in named]
    recent = recent_runs(caller.session, [ArchiveId(a.id) for a in on_page], STRIP)
    numbers = measure(caller.session) if covered is None else None  # of the installation: for who may see all of it
    needs = [*_of_archives(found), *_of_runs(caller.session, recent)]
    failures = unhandled_failures(caller.session, covered, MOST_NEEDS)
    lines = last_lines(caller.session, failures)
    late = outdated(caller.session, [task.id for task in failures if task.state is State.FAILED])
    needs += [_failure(task, lines.get(task.id, ""), is_late=task.id in late) for task in failures]
    needs += [_failed_in(one) for one in failures_of_backfills(caller.session, covered, MOST_NEEDS)]
    needs += [_hanging(one) for one in hanging_tasks(caller.session, covered, MOST_NEEDS)]
    needs += [_held(task) for task in held_tasks(caller.session, covered, MOST_NEEDS)]
    waits = waits_of(caller.session, [ArchiveId(a.id) for a in on_page])
    depths = queue_depth(caller.session) if covered is None else []
    running = numbers.tasks.get(State.RUNNING, 0) if numbers else None
    if depths and numbers:  # the last sample is up to a minute old, or of the minutes before
        ready = numbers.tasks.get(State.READY, 0)
        depths = [*depths, Depth(datetime.now(UTC), ready, running or 0)]
    waiting = sum(numbers.tasks.get(state, 0) for state in (State.WAITING, State.READY)) if numbers else None
    return Shown(
        "overview.html",
        {
            "needs": needs,
            "lines": [_line(archive, recent.get(archive.name, []), waits.get(archive.id, [])) for archive in on_page],
            "count": len(known),
            "more": max(len(bad) - MOST_ARCHIVES, 0),
            "running": running,
            "waiting": waiting,
            "faults": _troubles(visitor, numbers) if numbers else [],
            "depth": depths,
            "_strip": strip_of,
            "_plot": plot(depths, datetime.now(UTC)),
            "page": number,
            "pages": max((len(known) + PAGE - 1) // PAGE, 1),
        },
    )


def strip_of(runs: Sequence[RunInShort]) -> Markup:
    """The last runs of an archive as a strip. A page has hundreds of them, and a template takes four times as long for each as this."""
    return Markup(
        "".join(
            f'<i class="{shape_of("failing" if run.failing else run.state)}" title="{escape(_title(run))}"></i>'
            for run in runs
        )
    )


def _title(run: RunInShort) -> str:
    return f"{run.full_name}: {run_words(run)}{', changed since its report' * run.changed_since_report}"


@dataclass(frozen=True, slots=True)
class Plot:
    """The depth of the queue over a day as the points of an SVG path, in a box of 1,000 by 60. ``most`` tasks were ready at once, ``at`` some time."""

    line: str
    area: str
    most: int
    at: datetime


def plot(depths: Sequence[Depth], now: datetime) -> Plot | None:
    """The plot of what was ready; None: nothing waited, or there is one sample beside that of now, which makes no line."""
    if len(depths) < 3:
        return None
    most = max(depths, key=lambda one: one.ready, default=None)
    if most is None or not most.ready:
        return None
    points = []
    for one in depths:
        x = 1000 - (now - one.at).total_seconds() / 86.4
        points.append(f"{max(x, 0):.1f} {58 - 54 * one.ready / most.ready:.1f}")
    line = "M" + "L".join(points)
    first, last = points[0].split()[0], points[-1].split()[0]
    return Plot(line, f"{line}L{last} 60L{first} 60Z", most.ready, most.at)


PAGES: Final = {
    About.TASK_MANAGERS: "/-/task-managers",
    About.SCHEDULES: "/-/schedules",
    About.DELIVERIES: "/-/notifications",
}
"""Where more is said of what is wrong."""


def _troubles(visitor: Visitor, numbers: Any) -> list[Trouble]:
    """What is wrong with the installation, and what helps. Task managers are named, and archives are left out: each of both stands there by itself."""
    session, told = visitor.caller.session, told_faults(numbers, visitor.caller.configuration.lease)
    found = [
        Trouble(text, "/-/task-managers", "resume-all", "", "Resume everything") if about is About.PAUSE
        else Trouble(text, PAGES.get(about, ""))
        for about, text in told if about not in (About.ARCHIVES, About.DRAINED, About.UNFIT, About.DISK)
    ]  # fmt: skip
    if not any(about in (About.DRAINED, About.UNFIT, About.DISK) for about, _ in told):
        return found
    known = task_managers(session)
    return found + [trouble for one in known if one.alive for trouble in _of_manager(one, called(one, known))]


def _of_manager(manager: TaskManagerView, name: str) -> list[Trouble]:
    """Why a task manager starts nothing, or no container."""
    found, page = [], PAGES[About.TASK_MANAGERS]
    if manager.low_disk:
        text = f"task manager {name} claims nothing: {manager.low_disk} has less room than min_free. Remove what is not needed there."
        found.append(Trouble(text, page))
    if manager.fault:
        found.append(Trouble(f"task manager {name} can start nothing: {manager.fault}", page))
    elif manager.engine_fault:
        found.append(Trouble(f"task manager {name} can start no container: {manager.engine_fault}", page))
    if manager.drained_at is not None:
        why = f": {manager.drain_reason}" if manager.drain_reason else ""
        text = f"task manager {name} is drained by {manager.drained_by}{why}: nothing is started there"
        found.append(Trouble(text, page, "undrain", name, "Undrain"))
    return found


def _of_archives(found: list[ArchiveView]) -> list[Need]:
    needs = []
    for one in found:
        if one.stopped:
            needs.append(Need("failed", one.name, f"stopped: {one.stopped}"))
        elif one.trouble:
            needs.append(Need("failed", one.name, one.trouble, "sync", "Read again"))
        if one.hold is not None:
            why = f": {one.hold.reason}" if one.hold.reason else ""
            needs.append(Need("held", one.name, f"on hold by {one.hold.by}{why}", "unhold", "End the hold"))
        if one.paused is not None and not one.paused.with_all:
            needs.append(Need("held", one.name, str(one.paused), "resume", "Resume"))
    return needs


def _of_runs(session: Session, recent: dict[str, list[RunInShort]]) -> list[Need]:
    """The newest commit run of each archive, where its workflow files have faults."""
    newest = [next((run for run in runs if run.trigger is Trigger.COMMIT), None) for runs in recent.values()]
    faulty = {run.id: run for run in views_of_runs(session, [run.id for run in newest if run and run.faulty])}
    needs = []
    for run in (faulty[one.id] for one in newest if one and one.id in faulty):
        first = run.faults[0]
        more = f" And {len(run.faults) - 1} more." if len(run.faults) > 1 else ""
        needs.append(Need("failed", run.full_name, f"{first.path}:{first.line}:{first.column}: {first.message}.{more}"))
    return needs


def _failure(task: TaskView, line: str, *, is_late: bool) -> Need:
    """A failure with what helps. ``is_late``: a plain retry would be refused, as later revisions have gone on."""
    text = (task.why or str(task.state)) + (f": {line}" if line else "")
    if task.kind == TaskKind.REPORT:
        return Need("failed", task.full_name, text)
    if task.state is State.REJECTED:  # a retry is refused
        return Need("failed", task.full_name, text, "skip", "Waive")
    if is_late:
        return Need(
            "failed", task.full_name, f"{text} · later revisions have already run", "retry", "Retry all the same", True
        )
    return Need("failed", task.full_name, text, "retry", "Retry")


def _failed_in(backfill: FailuresOfBackfill) -> Need:
    return Need("failed", backfill.full_name, f"{backfill.failed:,} of its tasks failed")


def _held(task: TaskView) -> Need:
    return Need("held", task.full_name, f"is held {task.why}".strip(), "release", "Release")


def _hanging(one: Hanging) -> Need:
    """A task that is perhaps never done by itself. To restart it shows first what is stopped."""
    task = one.task
    where = f" on {task.host}" if task.host else ""
    if one.is_silent:
        heard = f"last reported {age_of(one.seen_at, 'ago')}" if one.seen_at else "is not known"
        return Need("running", task.full_name, f"runs{where}, whose task manager {heard}")
    text = f"runs{where} for {took(task.started_at)}, and takes about {in_clock(one.usual or 0)} usually"
    return Need("running", task.full_name, text, "restart", "Restart")


def _line(archive: ArchiveView, runs: list[RunInShort], waits: list[Wait]) -> Line:
    head = next((branch for branch in archive.branches if branch.main), None)
    newest = runs[0] if runs else None
    state, now = _now(runs)
    if archive.paused is not None:
        now += ", paused"
    elif archive.hold is not None:
        now += ", on hold"
    message, author = (head.message or "", head.author or "") if head else ("", "")
    return Line(archive, head.rev if head else None, message, author, newest, runs[::-1], state, now, waits)


def _now(runs: list[RunInShort]) -> tuple[str, str]:
    """The state and the words for what goes on in an archive, by its newest runs: never greener than the worst of what is open."""
    if all(run.baseline for run in runs):
        return "left", "no run yet"
    working = [run for run in runs if run.state in (RunState.PROCESSING, RunState.REPORTING)]
    failing = sum(run.failing for run in runs)
    but = f", {failing} run{'s' if failing > 1 else ''} with failures" if failing else ""
    if running := sum(run.running for run in working):
        words = f"{running} running" + (f" in {len(working)} runs" if len(working) > 1 else "")
        return "failing" if failing else "running", words + but
    if held := sum(run.held for run in runs if run.state in OPEN):
        return "failing" if failing else "held", f"{held} held{but}"
    if waiting := [run for run in runs if run.state in OPEN]:
        words = f"{len(waiting)} run{'s' if len(waiting) > 1 else ''} waiting"
        return "failing" if failing else "waiting", words + but
    if runs[0].state is RunState.FAILED:
        return "failed", "workflow has a fault" if runs[0].faulty else "failed"
    return str(runs[0].state), str(runs[0].state)
