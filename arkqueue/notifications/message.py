"""Writes notifications when they are sent, from the data that a token of scope `read` can see then
(design 15).

So a log that was purged meanwhile is in no notification, and neither is an item that was deleted.
All parts are limited in length. Each text of a committer or a task is on one line, with its control
characters visible.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from arkqueue import logs
from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.model import ArchiveId, AttemptId, Occasion, Stream
from arkqueue.names import page_path
from arkqueue.notifications.present import Present, commands, logs_of, present_of
from arkqueue.queue.notifications import Delivery
from arkqueue.states import OPEN, RunState
from arkqueue.text import one_line, visible
from arkqueue.views import archives
from arkqueue.views.needs import Need
from arkqueue.views.runs import RunView, views_of_runs
from arkqueue.views.tasks import TaskView, tasks_by_id

VERSION = 1
MOST_LINES = 15
"""The most last lines of a log."""
LONGEST_LINE = 400
"""The most characters of a line of a log."""
TAIL = 16 << 10
"""The most bytes at the end of a log that are read for these lines."""
MOST_FAULTS = 5
MOST_RUNS = 20
"""The most runs of each occasion that a notification about many runs names."""
LONGEST_MESSAGE = 2000
"""The most characters of a commit's message."""

_COLOUR = re.compile("\x1b\\[[0-9;:]*m")
_VERBS = {
    Occasion.FAILED: "has failed",
    Occasion.FIXED: "is fixed",
    Occasion.HELD: "waits for a release",
    Occasion.COMPLETED: "has completed",
}

_FIXED = "These faults are at the head of no branch any more, so they need nobody."

_HAS_FAILURES = "has failures"
"""The verb for a run that has failed tasks, and has not ended."""

_MANY = {
    Occasion.FAILED: "have failed",
    Occasion.FIXED: "are fixed",
    Occasion.HELD: "wait for a release",
    Occasion.COMPLETED: "have completed",
}

_OVER = {
    Occasion.FAILED: "had failed, and has no failures now",
    Occasion.HELD: "waited for a release, and does so no longer",
}
"""The verbs for a run of which the notification is no longer true."""

_MANY_OVER = {
    Occasion.FAILED: "had failed, and have no failures now",
    Occasion.HELD: "waited for a release, and do so no longer",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """A task of a notification. ``lines``: the end of its log."""

    name: str
    state: str
    why: str
    exit_code: int | None
    message: str
    lines: list[str]


@dataclass(frozen=True, slots=True)
class Message:
    """The parts of a notification. ``title``: one line. ``more``: the number of its tasks that are not
    named. ``run``: None if it is about the archive. ``what``: the stop reason of an archive, or that
    nothing needs a person any more.
    """

    delivery: Delivery
    archive: str
    title: str
    run: RunView | None
    tasks: list[Shown]
    more: int
    faults: list[str]
    what: str
    commands: list[str]
    url: str
    others: list[str] = field(default_factory=list)
    """A line for each of the first runs, if it is about many deliveries."""
    author: str = ""
    """The author of its commit. If it is about many deliveries: their author, if the receiver is
    `AUTHOR`.
    """
    helps: bool = True
    """Whether one of ``commands`` helps. The others only show more."""

    def document(self) -> dict[str, Any]:
        """The body of a webhook."""
        return {
            "version": VERSION,
            "id": self.delivery.id,
            "event": str(self.delivery.occasion),
            "at": self.delivery.made_at.isoformat(),
            "archive": self.archive,
            "title": self.title,
            "run": self._run(),
            "tasks": [
                {"name": t.name, "state": t.state, "why": t.why, "exit_code": t.exit_code, "message": t.message, "log": t.lines}
                for t in self.tasks
            ],
            "more_tasks": self.more,
            "faults": self.faults,
            "reason": self.what,
            "commands": self.commands,
            "url": self.url,
        }  # fmt: skip

    def _run(self) -> dict[str, Any] | None:
        run = self.run
        if run is None:
            return None
        return {
            "name": run.full_name,
            "branch": run.branch,
            "number": run.rev,
            "revision": run.revision,
            "run": run.run,
            "trigger": str(run.trigger),
            "state": str(run.state),
            "author": one_line(run.author),
            "date": run.date.isoformat(),
            "message": visible(run.message[:LONGEST_MESSAGE]),
        }


def write(session: Session, configuration: Configuration, delivery: Delivery) -> Message | None:
    """The notification of a delivery; None: its run does not exist any more, or all items that it is
    about were deleted.
    """
    if delivery.carries:
        return _of_many(session, configuration, delivery)
    if delivery.run:
        return _of_run(session, configuration, delivery)
    archive = archives.archive(session, ArchiveId(delivery.archive))
    is_over = archive.stopped is None
    commands = [f"arkqueue archive show {archive.name}", *([] if is_over else [f"arkqueue sync {archive.name} --wait"])]
    return Message(
        delivery, archive.name, f"{archive.name} {_said_of_stop(archive)}", None, [], 0, [], _line(delivery.what, LONGEST_MESSAGE),
        commands, f"{configuration.pages_url}/{page_path(archive.name)}", helps=not is_over,
    )  # fmt: skip


def _of_run(session: Session, configuration: Configuration, delivery: Delivery) -> Message | None:
    found = views_of_runs(session, [delivery.run])
    if not found:
        return None
    (run,) = found
    there = [row.id for row in session.rows("not_deleted", tasks=delivery.tasks)]
    views = {view.id: view for view in tasks_by_id(session, there) if view.run_id == run.id}
    pairs = [(views[t], a) for t, a in zip(delivery.tasks, delivery.attempts, strict=True) if t in views]
    more = max(delivery.count - len(delivery.tasks), 0)
    if delivery.tasks and not pairs and not more and delivery.occasion in (Occasion.FAILED, Occasion.HELD):
        return None
    present = present_of(session, delivery, run, [view for view, _ in pairs], more)
    helps = commands(present, delivery, run)
    with_logs = delivery.occasion is Occasion.FAILED
    is_over = "None of these failures needs anybody any more." if delivery.tasks else _FIXED if present.is_fixed else ""
    return Message(
        delivery, run.archive, _line(_title(present, delivery, run), LONGEST_LINE), run,
        [_shown(session, view, attempt, present.needs.get(view.id), with_logs=with_logs) for view, attempt in pairs], more,
        [_line(f"{fault.place}: {fault.message}", LONGEST_LINE) for fault in run.faults[:MOST_FAULTS]],
        is_over if with_logs and not helps and present.are_all else "",
        [f"arkqueue show {run.full_name}", *logs_of(present, delivery, run), *helps], f"{configuration.pages_url}/{page_path(run.full_name)}",
        author=run.author, helps=bool(helps),
    )  # fmt: skip


def _title(present: Present, delivery: Delivery, run: RunView) -> str:
    """The title names the tasks of which it is true when the notification is sent."""
    verb, more, has_completed = _VERBS[delivery.occasion], present.more, run.state is RunState.COMPLETED
    is_over = present.is_over
    if delivery.occasion is Occasion.HELD and is_over:
        verb = _OVER[Occasion.HELD]
    elif delivery.occasion is Occasion.FAILED and (is_over or has_completed):
        verb = "had failed, and has completed since" if has_completed else "had failures, and has none of them now"
    elif delivery.occasion is Occasion.FAILED and run.state in OPEN:
        verb = _HAS_FAILURES
    named = present.tasks if is_over else present.still
    beside = f"{more} {'more' if named else 'other tasks' if more > 1 else 'other task'}" if more else ""
    names = " and ".join(filter(None, (", ".join(view.label for view in named), beside)))
    return f"{run.full_name} {verb}" + (f": {names}" if names else "")


def _of_many(session: Session, configuration: Configuration, delivery: Delivery) -> Message | None:
    """The notification of a delivery that stands for others of its archive, too: the number of runs,
    and the first of them. None: none of the runs exists any more.
    """
    found = session.rows("carried", delivery=delivery.id, most=MOST_RUNS)
    if not found:
        return None
    archive = archives.archive(session, ArchiveId(delivery.archive))
    others: list[str] = []
    parts: list[str] = []
    for row in found:
        occasion = Occasion(row.occasion)
        if occasion is Occasion.STOPPED:
            verb = _said_of_stop(archive)
            parts.append(f"it {verb}")
            others.append(f"{archive.name} {verb}")
            continue
        one, many = (_OVER[occasion], _MANY_OVER[occasion]) if row.is_over else (_VERBS[occasion], _MANY[occasion])
        parts.append(f"{row.count:,} {one if row.count == 1 else many}")
        views = {view.id: view for view in views_of_runs(session, row.runs)}
        for run in (views[run] for run in row.runs if run in views):
            is_open = occasion is Occasion.FAILED and not row.is_over and run.state in OPEN
            others.append(_line(f"{run.full_name} {_HAS_FAILURES if is_open else one}: {run.message}", 150))
        if more := row.count - len(row.runs):
            others.append(f"… and {more:,} more that {one if more == 1 else many}")
    author = next((run.author for run in views_of_runs(session, [delivery.run])), "") if delivery.run else ""
    base = f"{configuration.pages_url}/{page_path(archive.name)}"
    has_failed = any(row.occasion == Occasion.FAILED and not row.is_over for row in found)
    is_held = any(row.occasion == Occasion.HELD and not row.is_over for row in found)
    needs_person = has_failed or is_held or archive.stopped is not None
    return Message(
        delivery, archive.name, _line(f"{archive.name}: {', '.join(parts)}", LONGEST_LINE), None, [], 0, [], "",
        [f"arkqueue {'status' if needs_person else 'runs'} {archive.name}", f"arkqueue delivery list {archive.name}"],
        f"{base}{'?state=unhandled' * has_failed}", others, author, helps=needs_person,
    )  # fmt: skip


def _said_of_stop(archive: archives.ArchiveView) -> str:
    return "was stopped, and is so no longer" if archive.stopped is None else "is stopped"


def _shown(session: Session, view: TaskView, attempt: int | None, need: Need | None, *, with_logs: bool) -> Shown:
    """A task with the end of the log of the notification's attempt, which may not be its newest one."""
    is_newest = attempt is not None and view.attempt == attempt
    return Shown(
        view.full_name,
        str(view.state),
        _line((need.text if need else view.why) or "", LONGEST_LINE),
        view.exit_code if is_newest else None,
        _line(view.message, LONGEST_LINE) if is_newest else "",
        _end_of_log(session, AttemptId(attempt)) if with_logs and attempt is not None else [],
    )


def _end_of_log(session: Session, attempt: AttemptId) -> list[str]:
    size = logs.read(session, attempt, 0, 1).size
    page = logs.read(session, attempt, max(0, size - TAIL), TAIL)
    is_note = len(page.chunks) == 1 and page.chunks[0].stream is Stream.NOTE  # such as in place of a removed log
    pieces = [chunk.data for chunk in page.chunks if chunk.stream is not Stream.NOTE or is_note]
    text = _COLOUR.sub("", b"".join(pieces)[-TAIL:].decode("utf-8", "replace")).replace("\r\n", "\n")
    if size > TAIL and not is_note:
        # The first line is without its beginning, so it is left out, unless there is no other.
        first, _, others = text.partition("\n")
        text = others if others.strip() else f"…{first[1 - LONGEST_LINE :]}"
    lines = [_line(line, LONGEST_LINE) for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines[-MOST_LINES:]


def _line(text: str, width: int) -> str:
    """A text as one line, without characters that control a terminal."""
    return one_line(" ".join(text[: 4 * width].splitlines()), width)
