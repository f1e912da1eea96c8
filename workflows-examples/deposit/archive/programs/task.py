"""What a task gets from arkqueue, and how it ends: every program of this workflow begins and ends here."""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

DONE, FAILED, REJECTED, NOT_NOW = 0, 1, 65, 75
"""The exit codes: completed, failed, rejected for good, deferred."""
LONGEST_MESSAGE = 1000
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")


class Failure(Exception):
    """The step cannot be done; the text says what is wrong, for a person."""


class Rejection(Exception):
    """The submission is wrong, and no retry helps; the text says why, for a person."""


class Unreachable(Exception):
    """The target repository does not answer now, and nothing that counts was sent to it."""


def target_name() -> str:
    """The target repository of the item ``ID.TARGET``."""
    return str(json.loads(os.environ["ARKQUEUE_ITEM"])["deposit"]).partition(".")[2]


def submission() -> dict[str, Any]:
    """The document that was handed in; its file is the program's argument."""
    return json.loads(Path(sys.argv[1]).read_bytes())  # type: ignore[no-any-return]


def inputs() -> dict[str, Any]:
    """The outputs of the tasks that this one depends on; ``self``: its own so far, for a poll."""
    return json.loads(Path(os.environ["ARKQUEUE_INPUTS"]).read_bytes())  # type: ignore[no-any-return]


def attachments() -> list[tuple[str, Path]]:
    """The files of the submission with their names, sorted; none where none was attached."""
    folder = os.environ.get("ARKQUEUE_ATTACHMENTS")
    if not folder:
        return []
    return sorted((str(file.relative_to(folder)), file) for file in Path(folder).rglob("*") if file.is_file())


def scratch() -> Path:
    """The folder that stays from step to step of this item."""
    return Path(os.environ["ARKQUEUE_SCRATCH"])


def shown(text: str) -> str:
    """A text of somebody else on one line, without control characters, and of bounded length."""
    line = _CONTROLS.sub(" ", text).strip()
    return line if len(line) <= LONGEST_MESSAGE else line[: LONGEST_MESSAGE - 1] + "…"


class Task:
    """The outputs of a task, and its end."""

    def __init__(self) -> None:
        self.outputs: dict[str, str] = {}

    def end(self, code: int, message: str) -> NoReturn:
        """Say how it ended, in the log and as the output ``message``, and end."""
        self.outputs["message"] = shown(message)
        Path(os.environ["ARKQUEUE_OUTPUT"]).write_text(json.dumps(self.outputs), "utf-8")
        print(self.outputs["message"], flush=True)
        sys.exit(code)


def run(step: Callable[[Task], None]) -> NoReturn:
    """Do a step; a failure becomes a message and an exit code."""
    task = Task()
    try:
        step(task)
    except Unreachable as error:
        task.end(NOT_NOW, str(error))
    except Rejection as error:
        task.end(REJECTED, str(error))
    except Failure as error:
        task.end(FAILED, str(error))
    except Exception as error:
        # A fault of these programs: the log has all of it, the message the last line.
        traceback.print_exc()
        task.end(FAILED, f"{type(error).__name__}: {error}")
    task.end(DONE, task.outputs.get("message", "done"))
