"""The images are what they promise to be."""

from __future__ import annotations

import re

import docker
import pytest

import arkqueue
from tests.system.deployment.conftest import INCLUDED, ROOT, run

# The first test that needs an image builds it.
builds = pytest.mark.timeout(1200)


@pytest.mark.parametrize(
    "folder", ["", "images/default", "workflows-examples/deposit/image", "workflows-examples/publish/image"]
)
def test_each_stage_installs_what_the_base_of_the_tests_has_already(folder: str) -> None:
    stages = re.split(r"^FROM ", (ROOT / folder / "Dockerfile").read_text("utf-8"), flags=re.MULTILINE)[1:]
    for stage in stages:
        assert {*INCLUDED} <= {*stage.partition("apt-get install ")[2].partition("&&")[0].split()}, stage


@pytest.mark.full
@builds
@pytest.mark.parametrize(
    "program", ["git --version", "svn --version", "bash --version", "python3 --version", "make --version", "curl --version", "jq --version", "tini --version"]
)  # fmt: skip
def test_default_image_has_what_scripts_expect(engine: docker.APIClient, default_image: str, program: str) -> None:
    assert run(engine, default_image, "sh", "-c", program)


@pytest.mark.full
@builds
def test_arkqueue_image_runs_arkqueue(engine: docker.APIClient, arkqueue_image: str) -> None:
    assert run(engine, arkqueue_image, "--version").split()[-1] == arkqueue.__version__
    assert "worker" in run(engine, arkqueue_image, "--help")


@pytest.mark.full
@builds
def test_arkqueue_image_holds_no_sources_and_no_caches(engine: docker.APIClient, arkqueue_image: str) -> None:
    found = run(
        engine,
        arkqueue_image,
        "-c",
        "ls -d /src /root/.cache /var/lib/apt/lists/* 2>/dev/null || true",
        entrypoint="sh",
    )
    assert found.split() == []
