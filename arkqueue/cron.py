"""The times at which a schedule fires (design 5.17). The queue makes runs at these times, and
`doctor` looks for stored schedules that have none.
"""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from arkqueue.errors import Conflict


def next_time(cron: str, zone: str, after: datetime) -> datetime | None:
    """The first time after ``after`` (aware) at which a cron expression fires in its zone; None if
    it never does, such as day ``*/30`` with the second Monday. Raises ``Conflict`` for an expression
    or a zone that cannot be read; in the database somebody else may have written them.
    """
    try:
        times = CronSim(cron, after.astimezone(ZoneInfo(zone)))
    except (CronSimError, LookupError, ValueError, OSError) as error:
        remedy = "Run `arkqueue doctor`, which says how to repair it."
        raise Conflict(f"schedule {cron!r} of the time zone {zone!r}", f"cannot be read: {error}", remedy) from error
    # In an hour that comes twice, the library's result can lie in the first pass. So times are
    # compared in UTC: Python compares times of one zone by their wall clock.
    after = after.astimezone(UTC)
    return next((at for at in times if at.astimezone(UTC) > after), None)
