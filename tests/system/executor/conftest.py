"""A bench for containers. ``test_process`` has another one for processes."""

from __future__ import annotations

from collections.abc import Iterator

import docker
import pytest

from tests.system.executor.docker_bench import Bench, a_bench


@pytest.fixture
def bench(engine: docker.APIClient, engine_url: str, busybox: str) -> Iterator[Bench]:
    """An executor on the run's engine. The test must leave nothing on the engine."""
    with a_bench(engine, engine_url, busybox) as made:
        yield made
        assert made.executor.found() == []
        assert made.left() == []
