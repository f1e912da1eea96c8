"""The priorities of tasks inside their archive: lower numbers go first. Pure."""

from __future__ import annotations

LEAST_PRIORITY, USUAL_PRIORITY, GREATEST_PRIORITY = 0, 50, 1000
PRIORITY = "arkqueue.priority"
"""The output by which a task sets the priority of the tasks that follow it in its run."""


def as_priority(value: object) -> int | None:
    """The priority in the value of an output; None: it is not a valid priority. The value is a text
    if it comes from a line of OUTPUT, and may be a number if it comes from JSON.
    """
    if isinstance(value, bool) or not isinstance(value, int | str) or not (text := str(value)).isdecimal():
        return None
    return (
        number
        if text.isascii() and len(text) <= 9 and LEAST_PRIORITY <= (number := int(value)) <= GREATEST_PRIORITY
        else None
    )
