"""Ages and durations as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def age_of(at: datetime, since: str) -> str:
    """The age of a moment in words: ``3 min ago`` if ``since`` is ``ago``."""
    return age(datetime.now(UTC) - at, since)


def age(age: timedelta, since: str) -> str:
    """An age in its largest unit: ``3 min ago`` if ``since`` is ``ago``."""
    seconds = max(age.total_seconds(), 0)
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size):,} {unit} {since}".rstrip()
    return "just now" if since else "now"


def took(began: datetime | None, ended: datetime | None = None) -> str:
    """A duration like 0.3 s, 2:10 or 1:02:10; until now, if it has not ended."""
    if began is None:
        return ""
    exact = max(((ended or datetime.now(UTC)) - began).total_seconds(), 0)
    if ended is not None and exact < 10:
        return f"{exact:.1f} s"
    return in_clock(exact)


def in_clock(length: float) -> str:
    """A number of seconds, written like 2:10 or 1:02:10."""
    seconds = int(length)
    hours, minutes = seconds // 3600, seconds // 60 % 60
    return f"{hours}:{minutes:02}:{seconds % 60:02}" if hours else f"{minutes}:{seconds % 60:02}"
