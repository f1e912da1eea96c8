"""Gives folders to another user through the engine, for a task manager that is not root but may use
an engine (design 9).

A small container does this: ``chown`` as its root, without a network, with only the two
capabilities that this needs, and with nothing of this host but the folders. Any image with the
program will do; this module decides which images are tried, and in which order. ``executor`` calls
it, and removes by label what a killed task manager has left.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from docker.errors import APIError

from arkqueue.errors import ExecutorError
from arkqueue.executor.docker.engine import CALL_TIMEOUT, Engine, said
from arkqueue.executor.docker.running import removed

PROGRAM = "chown"
NOT_STARTED = (125, 126, 127)
"""The exit codes for a program that could not be executed."""
MOST_IMAGES = 10
"""The number of the engine's images that are tried if no better one is known."""
CAPABILITIES = ["CHOWN", "DAC_OVERRIDE"]
"""The capabilities to change owners, and to reach files in closed folders."""


class Owners:
    """Gives folders to other users. Any thread may call it. ``labels``: mark its containers."""

    def __init__(self, engine: Engine, labels: Mapping[str, str]) -> None:
        self._engine, self._labels = engine, labels
        self._lock = threading.Lock()
        self._able: str | None = None
        """An image with which a change has worked."""

    def give(self, folders: Sequence[Path], owner: tuple[int, int], images: Sequence[str]) -> str:
        """Change the owner of folders and their contents. ``images``: the images to try first.
        Returns words about the files that kept their owner; empty if there are none. For symlinks,
        the owner of the link itself changes. Raises ExecutorError if no image can do this, and
        EngineUnavailable.
        """
        refusals = []
        for image in self._candidates(images):
            try:
                code, words = self._run(image, folders, owner)
            except APIError as error:
                code, words = NOT_STARTED[0], said(error)
            if code in NOT_STARTED:
                refusals.append(f"{image}: {words or f'{PROGRAM} cannot be executed'}")
                continue
            if image not in images:
                with self._lock:
                    self._able = image
            return "" if code == 0 else words or f"{PROGRAM} ended with {code}"
        raise ExecutorError(
            f"folder {folders[0]}",
            f"no image of the engine has a {PROGRAM} that can be executed ({'; '.join(refusals[:1]) or 'it has no image'})",
            "Build or pull one that has it, and name it as `image` in the table [docker] of the configuration",
        )

    def _candidates(self, images: Sequence[str]) -> Iterator[str]:
        yield from images
        with self._lock:
            able = self._able
        if able is not None:
            yield able
        with self._engine.calls() as api:
            known = sorted(api.images(), key=lambda image: int(image["Size"]))
        yield from [str(image["Id"]) for image in known if image["Size"]][:MOST_IMAGES]

    def _run(self, image: str, folders: Sequence[Path], owner: tuple[int, int]) -> tuple[int, str]:
        """The exit code, and the end of the program's output."""
        places = {f"/given/{number}": folder for number, folder in enumerate(folders)}
        configuration = {
            "Image": image,
            "Entrypoint": [PROGRAM, "-Rh", f"{owner[0]}:{owner[1]}", *places],
            "Cmd": [],
            "User": "0:0",
            "WorkingDir": "/",
            "Labels": dict(self._labels),
            "Healthcheck": {"Test": ["NONE"]},
            "NetworkDisabled": True,
            "HostConfig": {
                "NetworkMode": "none",
                "CapDrop": ["ALL"],
                "CapAdd": CAPABILITIES,
                "SecurityOpt": ["no-new-privileges"],
                "PidsLimit": 16,
                "ReadonlyRootfs": True,
                "LogConfig": {"Type": "local", "Config": {"max-size": "1m", "max-file": "1", "compress": "false"}},
                "Mounts": [
                    {"Type": "bind", "Source": str(folder), "Target": place, "BindOptions": {"Propagation": "rprivate"}}
                    for place, folder in places.items()
                ],
            },
        }
        with self._engine.calls() as api:
            container = api.create_container_from_config(configuration)["Id"]
            try:
                api.start(container)
                while not self._engine.wait(container, CALL_TIMEOUT):
                    pass
                code = int(api.inspect_container(container)["State"]["ExitCode"])
                words = api.logs(container, tail=1).decode(errors="replace").strip() if code else ""
                return code, words[:300]
            finally:
                removed(self._engine, container)
