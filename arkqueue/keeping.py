"""How long an archive keeps its runs and logs (design 5.27): the rules that ``archive set NAME keep …``
and ``keep-logs`` set. ``archives.retention`` applies them, and `doctor` checks the stored ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.errors import Invalid
from arkqueue.states import RunState

AGED = (RunState.COMPLETED, RunState.FAILED, RunState.CANCELED, RunState.SUPERSEDED, RunState.DELETED)
"""The states in which a run is purged by its age: no work continues in these states."""

_AGE = re.compile(r"0*([1-9][0-9]{0,4})([hd])")


@dataclass(frozen=True, slots=True)
class Rules:
    """An archive's rules, from its settings. ``runs``: the age at which a run is purged, by its
    state. ``logs``: the age at which a log is removed. ``text``: the rules as a person set them.
    """

    runs: Mapping[RunState, timedelta]
    logs: timedelta | None
    text: str

    @property
    def youngest(self) -> timedelta:
        """The age below which nothing is removed."""
        return min([*self.runs.values(), *([self.logs] if self.logs is not None else [])])


def age(text: str, what: str) -> timedelta:
    """The age that a text such as ``30d`` or ``12h`` means. Raises `Invalid`."""
    found = _AGE.fullmatch(text)
    if found is None:
        raise Invalid(what, f"is not a valid age: {text!r}", "Write a number of days or hours: 30d, 12h.")
    number = int(found[1])
    return timedelta(days=number) if found[2] == "d" else timedelta(hours=number)


def check(keep: Mapping[str, str], keep_logs: str | None) -> None:
    """Raise ``Invalid`` if a setting has no valid state or no valid age."""
    for state, text in keep.items():
        if state not in AGED:
            raise Invalid(f"keep {state}", "is not a state in which runs are purged", f"There are: {', '.join(AGED)}.")
        age(text, f"keep {state}")
    if keep_logs is not None:
        age(keep_logs, "keep-logs")


def rules(settings: ArchiveSettings) -> Rules | None:
    """The rules of an archive, from its settings. None: it keeps everything. Raises ``Invalid``."""
    keep, keep_logs = settings.keep, settings.keep_logs
    check(keep, keep_logs)
    if not (keep or keep_logs):
        return None
    runs = {RunState(state): age(text, f"keep {state}") for state, text in keep.items()}
    words = [f"keep {' '.join(f'{state}={text}' for state, text in sorted(keep.items()))}"] if keep else []
    words += [f"keep-logs {keep_logs}"] if keep_logs else []
    return Rules(runs, age(keep_logs, "keep-logs") if keep_logs else None, ", ".join(words))
