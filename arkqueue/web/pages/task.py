"""The page of a task: its state in one sentence with the button that helps, the end of its log, its attempts and facts."""

from __future__ import annotations

import codecs
import json
import re
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request

from arkqueue import logs
from arkqueue.db.session import Session
from arkqueue.model import AttemptId, Stream, TaskId, TaskKind
from arkqueue.states import State
from arkqueue.text import visible
from arkqueue.views import tasks
from arkqueue.views.explain import explain
from arkqueue.views.tasks import AttemptView, TaskDetail
from arkqueue.web.pages.answer import Shown
from arkqueue.web.pages.visitor import Visitor

TAIL: Final = 64 << 10
"""Bytes of a log that a page shows unless it is asked for all."""
MOST: Final = 4 << 20
"""Bytes of a log on a page; a longer one is for the download."""
_COLOURS: Final = re.compile(r"\x1b\[[0-9;:]*m")

HELPS: Final[dict[State, tuple[tuple[str, str], ...]]] = {
    State.FAILED: (("retry", "Retry"), ("skip", "Waive"), ("skip-as-completed", "Count as completed")),
    State.REJECTED: (("skip", "Waive"), ("skip-as-completed", "Count as completed")),
    State.DEFERRED: (("retry", "Try now"), ("cancel", "Cancel")),
    State.HELD: (("release", "Release"), ("cancel", "Cancel")),
    State.WAITING: (("hold", "Hold"), ("cancel", "Cancel")),
    State.READY: (("hold", "Hold"), ("cancel", "Cancel")),
    State.RUNNING: (("cancel", "Cancel"), ("restart", "Restart")),
    State.CANCELED: (("retry", "Run it again"),),
}
"""The verbs that help in each state, the first one first."""
OF_REPORT: Final = frozenset(("release", "restart"))
"""Those that REPORT takes; whatever became of it, its run has a button for another report."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a log. ``number`` None: it is not known, as the log is shown from its middle on, or the line is arkqueue's own."""

    number: int | None
    text: str
    note: bool


@dataclass(frozen=True, slots=True)
class Log:
    """The end of an attempt's log, or all of it. ``left_out``: bytes before what is shown."""

    lines: list[LogLine]
    size: int
    left_out: int


def task(visitor: Visitor, request: Request, id: TaskId) -> Shown:
    """One task; ``?attempt=`` shows the log of that attempt, ``?log=all`` from its beginning."""
    caller = visitor.caller
    view = tasks.task(caller.session, caller.task(id))
    asked = request.query_params.get("attempt", "")
    attempt = next(
        (one for one in view.history if str(one.number) == asked), view.history[-1] if view.history else None
    )
    whole = request.query_params.get("log") == "all"
    return Shown(
        "task.html",
        {
            "task": view,
            "explanation": explain(caller.session, id),
            "attempt": attempt,
            "log": log_of(caller.session, attempt, whole=whole) if attempt else None,
            "helps": [
                verb
                for verb in HELPS.get(view.state, ())
                if not (view.waived and verb[0] == "skip") and (view.kind != TaskKind.REPORT or verb[0] in OF_REPORT)
            ],
            "_facts": facts(view, attempt),
        },
    )


def facts(view: TaskDetail, attempt: AttemptView | None) -> list[tuple[str, str]]:
    """What is known of a task, beside its log."""
    definition = view.definition or {}
    command = definition.get("command") or definition.get("script") or ""
    found = [
        ("Command", command if isinstance(command, str) else " ".join(command)),
        ("Image", (attempt and attempt.image) or definition.get("image") or ""),
        ("Locks", ", ".join(definition.get("lock", ()))),
        ("Priority", str(view.priority)),
        (
            "Workflow",
            f"{definition['path']}:{definition['line']}" if "path" in definition and "line" in definition else "",
        ),
        ("Base", (attempt and attempt.base) or ""),
    ]
    if attempt:
        outputs = attempt.outputs_removed or (
            json.dumps(attempt.outputs, indent=2, ensure_ascii=False) if attempt.outputs else "none"
        )
        found += [("Outputs", outputs)]
    return [(name, visible(value)) for name, value in found if value]


def log_of(session: Session, attempt: AttemptView, *, whole: bool) -> Log:
    """The lines of a log from `TAIL` bytes before its end on, or from its beginning where ``whole``."""
    limit = MOST if whole else TAIL
    page = logs.read(session, AttemptId(attempt.id), 0 if whole else max(0, attempt.log_bytes - TAIL), limit)
    lines: list[LogLine] = []
    left_out = page.chunks[0].position if page.chunks else 0
    number = None if left_out else 0
    decoders: dict[Stream, codecs.IncrementalDecoder] = {}
    open_lines: dict[Stream, str] = {}
    for chunk in page.chunks:
        if chunk.cut and lines:
            lines.append(LogLine(None, f"{chunk.cut:,} bytes were left out here, as the log was too long", note=True))
            number = None
        decoder = decoders.setdefault(chunk.stream, codecs.getincrementaldecoder("utf-8")("replace"))
        *whole_lines, rest = (open_lines.pop(chunk.stream, "") + decoder.decode(chunk.data)).split("\n")
        for text in whole_lines:
            number = _add(lines, chunk.stream, text, number)
        if rest:
            open_lines[chunk.stream] = rest
    for stream, text in open_lines.items():
        number = _add(lines, stream, text, number)
    if left_out and lines:
        del lines[0]  # the end of a line whose beginning is not shown
    return Log(lines, page.size, left_out)


def _add(lines: list[LogLine], stream: Stream, text: str, number: int | None) -> int | None:
    is_note = stream is Stream.NOTE
    if number is not None and not is_note:
        number += 1
    shown = visible(_COLOURS.sub("", text.removesuffix("\r")))
    lines.append(LogLine(None if is_note else number, shown, is_note))
    return number
