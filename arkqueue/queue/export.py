"""The export of a purge, as JSON lines (design 5.27, ``purge --export FILE``): runs, tasks with
their definitions, attempts, reports, submissions with their payloads, and the pieces of their logs.

Every line is an object with its ``kind``. A task, a report, a submission and a part of its payload
name their run by ``run_id``, an attempt its task by ``task_id``, a piece of a log its attempt by
``attempt_id``. A piece or part is text if it is UTF-8, otherwise base64 (``base64`` in place of
``text``). The lines are on the disk before anything of them is removed.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from arkqueue.db.session import Session
from arkqueue.model import RunId
from arkqueue.queue import submissions

MOST_PIECES = 100
"""The most pieces of logs that are read at once, each of up to 64 KiB."""


class Export:
    """Writes runs to a file, each once, when a purge is about to remove them."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._written: set[int] = set()

    def __call__(self, session: Session, runs: Sequence[int]) -> None:
        new = [run for run in runs if run not in self._written]
        for line in exported(session, new):
            self._file.write(line)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._written.update(new)


def exported(session: Session, runs: Sequence[int]) -> Iterator[str]:
    """The lines of some runs, a few pieces of logs at a time."""
    for line in _objects(session, runs):
        yield _escaped(json.dumps(line, ensure_ascii=False)) + "\n"


def _objects(session: Session, runs: Sequence[int]) -> Iterator[dict[str, Any]]:
    for block in ("export_runs", "export_tasks", "export_attempts", "export_reports"):
        for row in session.rows(block, runs=runs):
            yield row.body
    yield from _payloads(session, runs)
    yield from _logs(session, runs)


def _payloads(session: Session, runs: Sequence[int]) -> Iterator[dict[str, Any]]:
    for row in session.rows("export_submissions", runs=runs):
        yield row.body
        position = 0
        while (part := submissions.part(session, RunId(row.run_id), position)) is not None:
            yield {"kind": "payload", "run_id": row.run_id, "position": position} | _content(part)
            position += 1


def _logs(session: Session, runs: Sequence[int]) -> Iterator[dict[str, Any]]:
    attempt, position = 0, -1
    while pieces := session.rows("export_logs", runs=runs, attempt=attempt, position=position, most=MOST_PIECES):
        for piece in pieces:
            line = {"kind": "log", "attempt_id": piece.attempt_id, "position": piece.position}
            yield line | {"stream": piece.stream, "at": piece.at.isoformat(), **_content(bytes(piece.data))}
        attempt, position = pieces[-1].attempt_id, pieces[-1].position


def _escaped(line: str) -> str:
    """JSON with C1 controls, U+2028, U+202E and the like as escapes: terminals must not get them,
    and some programs take them for the end of a line.
    """
    if line.isprintable():
        return line
    return "".join(sign if sign.isprintable() else json.dumps(sign)[1:-1] for sign in line)


def _content(data: bytes) -> dict[str, str]:
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}
