"""The overview: what needs a person first, then one line for each archive."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from markupsafe import Markup
from starlette.requests import Request

from arkqueue.model import ArchiveId, Trigger
from arkqueue.names import archive_in, page_path
from arkqueue.states import OPEN, RunState, State
from arkqueue.text import shortened
from arkqueue.views.archives import ArchiveView, archives, in_short
from arkqueue.views.archives import in_public as archive_in_public
from arkqueue.views.attention import recent_runs
from arkqueue.views.installation import STEP, About, Depth, measure, queue_depth
from arkqueue.views.needs import ASSUME_GONE, MOST_ARCHIVES, RESUME_LOCK, Others, in_public, needs_of
from arkqueue.views.remedies import SETTINGS
from arkqueue.views.runs import RunInShort
from arkqueue.views.status import Fault, faults_of_installation, waiting_in
from arkqueue.views.waits import Wait, waits_of
from arkqueue.web.pages.answer import LONGEST_NAME, Shown, in_markup, run_state, run_words, shape_of
from arkqueue.web.pages.approving import refused_needs
from arkqueue.web.pages.visitor import Visitor

STRIP: Final = 30
"""The runs in the strip of an archive."""
PAGE: Final = 20
"""The archives on a page."""
MOST_RUNNING: Final = 2
"""The most names of running tasks in the line of an archive."""
BUTTONS: Final = {
    "sync": "Read it now", "unhold": "End the hold", "resume": "Resume", "skip": "Waive", "retry": "Retry", "restart": "Restart", "release": "Release", ASSUME_GONE: "Count as gone",
}  # fmt: skip
"""The words on the button of each verb that helps."""
_BESIDE: Final = ThreadPoolExecutor(4, "overview")
"""Reads the strips, which are a third of the database's work for the page, while the page reads the rest."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """A problem of the installation. ``act``: the form that helps, for ``name``, with its
    ``button``. If it is empty, ``address`` is a page with details, if there is one. ``run``: the run
    whose deletion helps.
    """

    text: str
    address: str = ""
    act: str = ""
    name: str = ""
    button: str = ""
    run: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """One archive. ``runs``: its newest runs, the oldest first. ``now``: the present work in words.
    ``waits``: what waits in the archive, and why. ``made_at``: when the run was made to which
    ``message`` and ``author`` belong; if that is not among its newest runs, the date of the commit.
    """

    archive: ArchiveView
    rev: int | None
    message: str
    author: str
    run: RunInShort | None
    runs: list[RunInShort]
    state: str
    now: str
    waits: list[Wait]
    made_at: datetime | None


def overview(visitor: Visitor, request: Request) -> Shown:
    """The overview: everything that needs a person, and the archives that the visitor may see."""
    caller = visitor.caller
    covered = caller.archives()
    known = in_short(caller.session, caller.token.archives)
    pages = max((len(known) + PAGE - 1) // PAGE, 1)
    asked = request.query_params.get("page", "1")
    number = min(max(int(asked), 1), pages) if asked.isdecimal() and len(asked) < 7 else 1
    named, bad = [*known][(number - 1) * PAGE : number * PAGE], [name for name, one in known.items() if one.needs]
    found = archives(caller.session, [*named, *bad[:MOST_ARCHIVES]])
    found = [archive_in_public(one) for one in found] if visitor.is_anybody else found
    on_page = [one for one in found if one.name in named]
    strips = _BESIDE.submit(recent_runs, caller.session, [ArchiveId(a.id) for a in on_page], STRIP)
    # Numbers of the installation, for visitors who may see all of it.
    numbers = measure(caller.session) if covered is None else None
    faults = faults_of_installation(caller.session, numbers, caller.configuration.lease) if numbers else []
    waits = waits_of(caller.session, [ArchiveId(a.id) for a in on_page], covered)
    depths = queue_depth(caller.session) if covered is None else []
    running = numbers.tasks.get(State.RUNNING, 0) if numbers else None
    if depths and numbers:  # the last sample may be a minute old, or older
        ready = numbers.tasks.get(State.READY, 0)
        depths = [*depths, Depth(datetime.now(UTC), ready, running or 0)]
    waiting = waiting_in(numbers) if numbers else None
    stopped = {name for name, one in known.items() if one.is_stopped}
    needs = needs_of(caller.session, covered, found, bad, waits, stopped=stopped)
    lines = [in_public(one) for one in needs.lines] if visitor.is_anybody else needs.lines
    recent = strips.result()
    return Shown(
        "overview.html",
        {
            "needs": lines,
            "others": needs.others,
            "total": needs.count + len(faults),
            "_refused": refused_needs(visitor, lines),
            "_withheld": [(of := known.get(archive_in(one.name))) is not None and of.is_withheld for one in lines],
            "_others": links_of(needs.others),
            "_buttons": BUTTONS,
            "_resume_lock": RESUME_LOCK,
            "_settings": SETTINGS,
            "lines": [
                _line(one, recent.get(one.name, []), needs.failed_runs.get(one.name, []), waits.get(one.id, []))
                for one in on_page
            ],
            "count": len(known),
            "running": running,
            "waiting": waiting,
            "held": numbers.tasks.get(State.HELD, 0) if numbers else None,
            "faults": [_trouble(fault) for fault in faults],
            "depth": depths,
            "_strip": strip_of,
            "_plot": plot(depths, datetime.now(UTC)),
            "page": number,
            "pages": pages,
        },
    )


def links_of(others: Sequence[Others]) -> Markup:
    """The archives whose needs have no line, with their numbers: up to a thousand links."""
    return Markup(", ").join(
        Markup('<a href="/{}{}"><u>{}</u></a>{}').format(
            page_path(one.archive),
            f"?{one.query}" * bool(one.query),
            one.archive,
            f" ({one.count:,})" * (one.count > 1),
        )
        for one in others
    )


def strip_of(runs: Sequence[RunInShort]) -> Markup:
    """The last runs of an archive as a strip. A page has hundreds of runs, and a template takes
    four times as long for each.
    """
    return Markup(
        "".join(f'<i class="{shape_of(run_state(run))}" title="{in_markup(_title(run))}"></i>' for run in runs)
    )


def _title(run: RunInShort) -> str:
    return f"{run.full_name}: {run_words(run)}{', changed since its report' * run.changed_since_report}"


@dataclass(frozen=True, slots=True)
class Plot:
    """The depth of the queue over a day as the points of an SVG path, in a box of 1,000 by 60.
    ``most``: the most tasks that were ready at once, at the time ``at`` or in the part of the day
    that begins then and ends at ``until``; ``until`` None: now.
    """

    line: str
    area: str
    most: int
    at: datetime
    until: datetime | None


def plot(depths: Sequence[Depth], now: datetime) -> Plot | None:
    """The plot of the ready tasks. None: nothing waited, or there is only one sample besides the
    present one, which makes no line.
    """
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
    until = None if most is depths[-1] else most.at + timedelta(seconds=STEP)
    return Plot(line, f"{line}L{last} 60L{first} 60Z", most.ready, most.at, until)


PAGES: Final = {
    About.TASK_MANAGERS: "/-/task-managers",
    About.SCHEDULES: "/-/schedules",
    About.DELIVERIES: "/-/notifications?state=waiting&state=failed",
}
"""The pages with details about problems."""


def _trouble(fault: Fault) -> Trouble:
    """A fault of the installation with the form that helps, or the page with details."""
    if fault.about is About.PAUSE:
        return Trouble(fault.text, PAGES[About.TASK_MANAGERS], "resume-all", "", "Resume everything")
    if fault.about is About.DRAINED:
        return Trouble(fault.text, PAGES[About.TASK_MANAGERS], "resume-worker", fault.manager, "Resume")
    address = PAGES[About.TASK_MANAGERS] if fault.manager else PAGES.get(fault.about, "")
    return Trouble(fault.text, address, run=fault.run)


def _line(archive: ArchiveView, runs: list[RunInShort], unhandled: Sequence[int], waits: list[Wait]) -> Line:
    head = next((branch for branch in archive.branches if branch.main), None)
    newest = runs[0] if runs else None
    state, now = _now(runs, unhandled)
    if archive.why_unread:
        state, now = "failing" if state in ("running", "failing") else "failed", f"{now}, {archive.why_unread}"
    if archive.paused is not None:
        now += ", paused"
    elif archive.hold is not None:
        now += ", on hold"
    elif archive.paused_locks:
        now += ", lock paused"
    message, author = (head.message or "", head.author or "") if head else ("", "")
    rev = head.rev if head else None
    of_head = next((run for run in runs if rev is not None and run.full_name == f"{archive.name}@{rev}"), None)
    made_at = of_head.created_at if of_head else head.date if head else None
    return Line(archive, rev, message, author, newest, runs[::-1], state, now, waits, made_at)


def _now(runs: list[RunInShort], unhandled: Collection[int]) -> tuple[str, str]:
    """The state and the words for the present work in an archive, from its newest runs: never
    greener than the worst run. ``unhandled``: the runs with unhandled failures.
    """
    if all(run.baseline for run in runs):
        return "left", "no run yet"
    bad = {*unhandled, *(run.id for run in runs if run.failing), *_faulty_at_heads(runs)}
    is_over = bool(bad - {run.id for run in runs if run.state in OPEN})
    worst = "failed" if is_over else "failing" if bad else ""
    number = "more than 100" if len(bad) > 100 else len(bad)
    but = f", {number} run{'s' if len(bad) > 1 else ''} with failures" if bad else ""
    working = [run for run in runs if run.state in (RunState.PROCESSING, RunState.REPORTING)]
    if running := sum(run.running for run in working):
        busy = sum(run.running > 0 for run in working)
        words = f"{running:,} running" + (f" in {busy} runs" if busy > 1 else "")
        names = list(dict.fromkeys(name for run in working for name in run.running_names))
        more = f" and {len(names) - MOST_RUNNING} more" if len(names) > MOST_RUNNING else ""
        words += f" ({', '.join(shortened(name, LONGEST_NAME) for name in names[:MOST_RUNNING])}{more})"
        return worst or "running", words + but
    if held := sum(run.held for run in runs if run.state in OPEN):
        return worst or "held", f"{held} held{but}"
    if reports := sum(run.state is RunState.HELD for run in runs):  # no task is held: REPORT is
        return worst or "held", f"{reports} run{'s' if reports > 1 else ''} held{but}"
    if waiting := sum(run.state in OPEN for run in runs):
        return worst or "waiting", f"{waiting} run{'s' if waiting > 1 else ''} waiting{but}"
    if runs[0].state is RunState.FAILED and bad <= {runs[0].id}:
        return "failed", "workflow has a fault" if runs[0].faulty else "failed"
    return worst or str(runs[0].state), f"{runs[0].state}{but}"


def _faulty_at_heads(runs: Sequence[RunInShort]) -> list[int]:
    """The newest commit runs of branches whose workflow files have faults."""
    heads = {run.full_name.partition("@")[0]: run for run in reversed(runs) if run.trigger is Trigger.COMMIT}
    return [run.id for run in heads.values() if run.faulty]
