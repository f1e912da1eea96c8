"""Random examples: how many examples the tests against hostile committers draw (300, and 10,000
with `make test-long`), and which examples each part of a divided test draws.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import HealthCheck, core, seed, settings

T = TypeVar("T", bound=Callable[..., Any])

fuzzed = settings(
    max_examples=max(300, settings().max_examples),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def seeded(test: T, part: int) -> T:
    """Gives each part of a divided random test its own seed. Without it, all parts draw the same
    examples (`tests.conftest`).
    """
    begin: object = core.global_force_seed
    return seed(begin + part)(test) if isinstance(begin, int) else test
