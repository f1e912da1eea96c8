"""The images are what they promise to be."""

from __future__ import annotations

import docker
import pytest

import arkqueue
from tests.system.deployment.conftest import run

# The first test that needs an image builds it.
pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]


@pytest.mark.parametrize(
    "program", ["git --version", "svn --version", "bash --version", "python3 --version", "make --version", "curl --version", "jq --version", "tini --version"]
)  # fmt: skip
def test_default_image_has_what_scripts_expect(engine: docker.APIClient, default_image: str, program: str) -> None:
    assert run(engine, default_image, "sh", "-c", program)


def test_arkqueue_image_runs_arkqueue(engine: docker.APIClient, arkqueue_image: str) -> None:
    assert run(engine, arkqueue_image, "--version").split()[-1] == arkqueue.__version__
    assert "worker" in run(engine, arkqueue_image, "--help")


def test_arkqueue_image_holds_no_sources_and_no_caches(engine: docker.APIClient, arkqueue_image: str) -> None:
    found = run(
        engine,
        arkqueue_image,
        "-c",
        "ls -d /src /root/.cache /var/lib/apt/lists/* 2>/dev/null || true",
        entrypoint="sh",
    )
    assert found.split() == []
