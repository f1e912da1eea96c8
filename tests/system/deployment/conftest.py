"""The project's own images, built as a person builds them, on a base image that is made here
instead of pulled from a registry.

The base is a Debian from ``debootstrap`` that trusts the certificate authorities of this host. Each
image is built once for all workers of a test run. The base holds what a build would otherwise do
again for each image: the lists of apt, and the packages of `INCLUDED`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
import pytest

import arkqueue
from tests import engine as engines
from tests.requirements import missing

ROOT = Path(arkqueue.__file__).parents[1]
HERE = Path(__file__).parent
SUITE = "bookworm"
INCLUDED = "ca-certificates", "python3"
"""Packages that most images install. ``test_images`` checks that the Dockerfiles name them, as
another base does not have them.
"""
SLIM = """\
path-exclude /usr/share/doc/*
path-exclude /usr/share/man/*
path-exclude /usr/share/locale/*
force-unsafe-io
"""
"""The settings of dpkg: what ``debian:bookworm-slim`` leaves out, and no wait for a disk."""
AUTHORITIES = Path("/usr/local/share/ca-certificates")

Build = Callable[..., str]


@pytest.fixture(scope="session")
def base(request: pytest.FixtureRequest, engine: docker.APIClient) -> str:
    """An image in place of the Debian image that the Dockerfiles name."""
    return engines.once_for_the_run(request.config, "debian", lambda name: _bootstrap(engine, name, request.config))


@pytest.fixture(scope="session")
def build(request: pytest.FixtureRequest, engine: docker.APIClient, base: str) -> Build:
    """Builds an image of the checkout."""

    def make(
        short: str, folder: Path, dockerfile: str = "Dockerfile", *, base: str = base, stages: tuple[str, ...] = ()
    ) -> str:
        def build(name: str) -> None:
            # Each stage gets a name too, so that the run can remove it.
            for stage in (*stages, None):
                _built(engine, request.config, f"{name}-{stage}" if stage else name, folder, dockerfile, base, stage)

        return engines.once_for_the_run(request.config, short, build)

    return make


@pytest.fixture(scope="session")
def default_image(build: Build) -> str:
    return build("default", ROOT / "images" / "default")


@pytest.fixture(scope="session")
def arkqueue_image(build: Build) -> str:
    return build("arkqueue", ROOT, stages=("build",))


@pytest.fixture(scope="session")
def postgres_image(build: Build, arkqueue_image: str) -> str:
    return build("postgres", HERE, "postgres.Dockerfile", base=arkqueue_image)


def _bootstrap(api: docker.APIClient, name: str, config: pytest.Config) -> None:
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        missing("debootstrap and root, to make a base image (Debian: apt-get install debootstrap)")
    folder = Path(tempfile.mkdtemp(prefix="arkqueue-base-"))
    try:
        folder.chmod(0o755)
        settings = folder / "etc" / "dpkg" / "dpkg.cfg.d"
        settings.mkdir(parents=True)
        (settings / "slim").write_text(SLIM)
        _run("debootstrap", "--variant=minbase", f"--include={','.join(INCLUDED)}", SUITE, str(folder))
        (folder / "etc" / "apt" / "apt.conf.d" / "slim").write_text('Acquire::Languages "none";\n')
        _run("chroot", str(folder), "apt-get", "update")
        trusted = folder / AUTHORITIES.relative_to("/")
        trusted.mkdir(parents=True, exist_ok=True)
        for certificate in AUTHORITIES.glob("*.crt"):
            shutil.copy(certificate, trusted)
        _run("chroot", str(folder), "update-ca-certificates")
        with tempfile.TemporaryFile() as packed:
            with tarfile.open(fileobj=packed, mode="w") as tar:
                tar.add(folder, ".", filter=_without_packages)
            packed.seek(0)
            api.import_image_from_data(
                packed,
                repository=name,
                tag="1",
                changes=[
                    'CMD ["/bin/bash"]',
                    *(f"LABEL {key}={value}" for key, value in engines.label(config).items()),
                ],
            )
    finally:
        shutil.rmtree(folder)


def _run(*command: str) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def _without_packages(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if member.name.startswith("./var/cache/apt/archives/") else member


def _built(
    api: docker.APIClient, config: pytest.Config, name: str, folder: Path, dockerfile: str, base: str, stage: str | None
) -> None:
    said: list[Any] = list(
        api.build(
            path=str(folder),
            dockerfile=dockerfile,
            tag=f"{name}:1",
            buildargs={"BASE": base},
            labels=engines.label(config),
            network_mode="host",
            target=stage,
            rm=True,
            forcerm=True,
            decode=True,
        )
    )
    faults = [line["error"] for line in said if "error" in line]
    assert not faults, "".join(line.get("stream", "") for line in said)[-4000:] + str(faults)


def run(api: docker.APIClient, image: str, *command: str, entrypoint: str | None = None) -> str:
    """The output of a command in a container of an image."""
    container = api.create_container(image, list(command), entrypoint=entrypoint)
    try:
        api.start(container)
        status = api.wait(container)["StatusCode"]
        said: str = api.logs(container).decode()
        assert status == 0, said
        return said
    finally:
        api.remove_container(container, force=True, v=True)
