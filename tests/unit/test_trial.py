"""A wait of `arkqueue demo` and of the examples leaves the processor to what it waits for."""

from __future__ import annotations

import pytest

from arkqueue.cli import trial


def test_a_wait_looks_often_at_first_and_then_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(trial.time, "monotonic", lambda: now)
    monkeypatch.setattr(trial.time, "sleep", sleep)
    looks: list[float] = []

    def happened() -> bool:
        looks.append(now)
        return now >= 60

    trial.wait(happened, "the end", patience=100)
    assert [look for look in looks if look < 0.05] == pytest.approx([0.0, 0.02, 0.04])
    assert len(looks) < 60 * 6
