"""The image in which the PDF is made: it is built on a Debian that `debootstrap` makes here, or on one that the engine has or fetches."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tempfile
from importlib import import_module
from pathlib import Path

import docker
import requests

from arkqueue.cli.output import say
from arkqueue.errors import ArkqueueError

NAME = "arkqueue-example/publish"
BASE = "arkqueue-example/debian"
SUITE = "bookworm"
FETCHED = f"debian:{SUITE}-slim"
FOLDER = Path(__file__).parent / "image"
USUAL = "unix:///var/run/docker.sock"
AUTHORITIES = Path("usr/local/share/ca-certificates")
PROXIES = ("http_proxy", "https_proxy", "no_proxy")


def is_there(base: str | None = None) -> bool:
    """Whether PDFs are made in a container; the image is built where the engine has none. False where no engine answers, and a process can make them."""
    address = os.environ.get("DOCKER_HOST", USUAL)
    try:
        engine = docker.APIClient(base_url=address, version="auto", timeout=600)
    except (docker.errors.DockerException, requests.RequestException, OSError):
        _a_process_will_do(address)
        return False
    try:
        if not engine.images(f"{NAME}:1", quiet=True):
            _build(engine, base or _a_base(engine))
    finally:
        engine.close()
    return True


def _a_process_will_do(address: str) -> None:
    """Say what is missing; raise where a process cannot make a PDF either."""
    try:
        import_module("weasyprint")
    except (ImportError, OSError) as error:
        raise ArkqueueError(
            f"a container engine at {address}",
            f"does not answer, and WeasyPrint does not work on this machine either ({error})",
            "Start Docker or name it in DOCKER_HOST; or install Pango (Debian: apt-get install libpango-1.0-0 libpangoft2-1.0-0).",
        ) from error
    say(
        f"No container engine answers at {address}. So the PDF is made by a process of this machine, which has no sandbox.\n"
        "To see it made in a container: start Docker, or name it in DOCKER_HOST."
    )


def _a_base(engine: docker.APIClient) -> str:
    """A Debian: one that was made before, one that is made here, or one that the engine fetches."""
    if engine.images(f"{BASE}:1", quiet=True):
        return f"{BASE}:1"
    if os.geteuid() or shutil.which("debootstrap") is None:
        return FETCHED
    say("Making a Debian with debootstrap: a minute or two")
    folder = Path(tempfile.mkdtemp(prefix="arkqueue-base-"))
    try:
        done = subprocess.run(
            ["debootstrap", "--variant=minbase", SUITE, str(folder)], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )  # fmt: skip
        if done.returncode:
            raise ArkqueueError(
                "debootstrap",
                f"failed: {done.stdout[-1000:]}",
                f"Or name an image to build on: ARGS='--base {FETCHED}'",
            )
        # Whom this host trusts, the image trusts: a mirror may be behind such a proxy.
        for certificate in Path("/", AUTHORITIES).glob("*.crt"):
            (folder / AUTHORITIES).mkdir(parents=True, exist_ok=True)
            shutil.copy(certificate, folder / AUTHORITIES)
        with tempfile.TemporaryFile() as packed:
            with tarfile.open(fileobj=packed, mode="w") as tar:
                tar.add(folder, ".", filter=_without_what_apt_keeps)
            packed.seek(0)
            engine.import_image_from_data(packed, repository=BASE, tag="1")
    finally:
        shutil.rmtree(folder)
    return f"{BASE}:1"


def _without_what_apt_keeps(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if member.name.startswith(("./var/cache/apt/archives/", "./var/lib/apt/lists/")) else member


def _build(engine: docker.APIClient, base: str) -> None:
    say(f"Building the image {NAME} on {base}: a minute or two")
    proxies = {name: os.environ[name] for name in PROXIES if name in os.environ}
    try:
        steps = list(
            engine.build(
                path=str(FOLDER),
                tag=f"{NAME}:1",
                buildargs={"BASE": base, **proxies},
                network_mode="host",
                rm=True,
                forcerm=True,
                decode=True,
            )
        )
        fault = next((str(step["error"]) for step in steps if "error" in step), None)
    except docker.errors.APIError as error:
        steps, fault = [], str(error.explanation or error)
    if fault:
        said = "".join(step.get("stream", "") for step in steps)[-2000:]
        raise ArkqueueError(
            f"the image {NAME}", f"cannot be built on {base}: {fault}\n{said}",
            "Name an image of Debian or Ubuntu that the engine has: ARGS='--base IMAGE'",
        )  # fmt: skip
