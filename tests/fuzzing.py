"""How many random examples the tests have that say what a hostile committer cannot do: 300, and 10,000 with `make test-long`."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

fuzzed = settings(
    max_examples=max(300, settings().max_examples),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
