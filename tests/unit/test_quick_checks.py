"""When whole scans of quiet archives are due."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from arkqueue.queue_manager.quick_checks import next_whole

HOUR = 3600.0


def whole_scans(archive: int, start: float, sweep: float, end: float) -> list[float]:
    """The times of an archive's whole scans, where a periodic scan comes each ``sweep`` seconds."""
    found = [start]
    now, until = start, next_whole(archive, start, sweep)
    while now < end:
        now += sweep
        if now >= until:
            found.append(now)
            until = next_whole(archive, now, sweep)
    return found


@pytest.mark.parametrize("sweep", [1.0, 60.0, 300.0, 590.0, 700.0])
@pytest.mark.parametrize("archive", [1, 2, 3, 1000, 12345])
def test_whole_scan_follows_within_ten_minutes_or_with_the_next_scan(archive: int, sweep: float) -> None:
    found = whole_scans(archive, 77.0, sweep, 5 * HOUR)
    assert max(b - a for a, b in pairwise(found)) <= max(600.0, sweep)


def test_quiet_archive_has_no_more_whole_scans_than_that_takes() -> None:
    for archive in range(100):
        assert len(whole_scans(archive, 77.0, 60.0, 77.0 + 10 * HOUR)) <= 10 * HOUR / (590 - 60) + 2


def test_whole_scans_that_began_together_are_spread() -> None:
    found = Counter(int(whole_scans(archive, 77.0, 60.0, HOUR)[1]) for archive in range(1000))
    assert max(found.values()) <= 1000 * 60 / (590 - 60) * 1.1
