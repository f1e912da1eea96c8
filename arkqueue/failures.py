"""Failed and rejected tasks in words, for the command line and the pages. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BadInWords:
    """The failed and rejected tasks of a list or a backfill, in words such as ``2 failed``.
    ``unwaived``: the tasks that nobody waived, with a part for each state. ``waived``: the others.
    """

    unwaived: list[str]
    waived: list[str]


def bad_in_words(failed: int, rejected: int, waived: int, waived_rejected: int) -> BadInWords:
    """Numbers of tasks in words. ``failed``, ``rejected``: the numbers of such tasks. ``waived``: the
    number of waived ones among them; ``waived_rejected``: how many of these were rejected.
    """
    waived_failed = waived - waived_rejected
    unwaived = _numbered(failed - waived_failed, rejected - waived_rejected)
    if unwaived or not waived:
        return BadInWords(unwaived, [f"{waived:,} waived"] if waived else [])
    return BadInWords([], [*_numbered(waived_failed, waived_rejected), "waived"])


def is_waived(state: str, *, waived: bool) -> bool:
    """Whether a task has failed and does not need a person any more, because the failure is waived.
    ``waived``: the mark of the task. A task that has come back since may still have it.
    """
    return waived and state in ("failed", "rejected")


def state_in_words(state: str, *, waived: bool) -> str:
    """The state of one task in words. ``waived``: as in `is_waived`."""
    return f"{state}, waived" if is_waived(state, waived=waived) else state


def _numbered(failed: int, rejected: int) -> list[str]:
    return [f"{number:,} {state}" for number, state in ((failed, "failed"), (rejected, "rejected")) if number]
