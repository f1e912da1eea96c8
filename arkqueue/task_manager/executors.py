"""The executors of one task manager: processes always, containers from the first moment that one is needed.

The Docker SDK and its threads cost a server without containers nothing: they come with the first container task, or at the start where an earlier task
manager of this home has used containers. That is remembered by a file in the home folder, which is there before the first container.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from arkqueue.config import Configuration
from arkqueue.errors import DatabaseUnavailable, EngineFault, ExecutorError
from arkqueue.executor import Program, Running
from arkqueue.executor.process.executor import ProcessExecutor
from arkqueue.gateway import Gateway
from arkqueue.logs.write import LogWriter
from arkqueue.workspace import WORK

if TYPE_CHECKING:
    from arkqueue.executor.docker.executor import DockerExecutor

MARK = "containers"
"""The file that says that this home has used containers."""


class Executors:
    """Any thread may call it. ``host``: this host's id, which its containers carry."""

    def __init__(self, gateway: Gateway, configuration: Configuration, guards: int) -> None:
        self._gateway, self._configuration, self.host = gateway, configuration, gateway.host
        self._process = ProcessExecutor(guards, configuration.home / WORK)
        self._mark = configuration.home / MARK
        self._lock = threading.Lock()
        self._installation: str | None = None
        self._docker: DockerExecutor | None = None
        self._proved: set[Path] = set()
        self._was_used = self._mark.exists()
        """Whether an earlier task manager of this home had an engine: it may only be starting now."""

    @property
    def installation(self) -> str:
        """The installation's id, which its containers carry. Raises DatabaseUnavailable."""
        if self._installation is None:
            self._installation = self._gateway.installation()
        return self._installation

    @property
    def used_docker(self) -> bool:
        """Whether there may be containers of this home."""
        return self._docker is not None or self._mark.exists()

    @property
    def docker(self) -> DockerExecutor:
        """The one for containers. Whether an engine answers shows at the first call. Raises DatabaseUnavailable."""
        with self._lock:
            if self._docker is None:
                from arkqueue.executor.docker.executor import LOG_SIZE, DockerExecutor

                configuration = self._configuration
                log_size = max(LOG_SIZE, 2 * (configuration.log_head + configuration.log_tail))
                self._docker = DockerExecutor(
                    self.installation,
                    self.host,
                    configuration.docker.host,
                    log_size=log_size,
                    patience=configuration.adopt_within,
                )
            return self._docker

    def may_pass(self, error: EngineFault) -> bool:
        """Whether there is, or has been, an engine here, so that its fault may pass."""
        return bool(self._proved) or self._was_used or not error.is_away

    def note_container(self) -> None:
        """Note in the home folder that it may have containers from now on, so that the next task manager asks the engine for them.

        It stands there before an attempt is reserved for its container: nobody else ends such an attempt until its reservation is over.
        """
        self._mark.touch()

    def prove(self, folder: Path | None = None) -> None:
        """Prove that an engine answers and sees a folder as we do; raises ExecutorError. Once is enough. None: the home folder, with bases and workspaces."""
        folder = folder or self._configuration.home
        if not any(folder.is_relative_to(one) for one in self._proved):
            self.docker.prove_same_paths(folder)
            self._proved.add(folder)

    def announce(self) -> str:
        """Which engine there is for containers, in words; proves it. Raises ExecutorError where it does not see this host's folders."""
        where = self._configuration.docker.host
        try:
            self.prove()
        except DatabaseUnavailable:
            return ""  # the first container proves it
        except ExecutorError as error:
            from arkqueue.executor.docker.executor import FolderNotSeen

            if isinstance(error, FolderNotSeen):
                raise  # it takes a person; what else keeps an engine from work may pass
            what = "no container engine" if isinstance(error, EngineFault) and error.is_away else "no containers"
            return f"{what}: {error}; tasks with an image cannot run here until that is mended"
        return f"tasks with an image run in containers, on the engine at {where}"

    def start(self, program: Program, image: str | None, log: LogWriter, is_wanted: Callable[[], bool]) -> Running:
        """Start it; its output goes to its log. ``image``: the digest of a container's, None for processes."""
        if image is None:
            return self._process.start(program, log)
        return self.docker.start(program, log, image, is_wanted)

    def give(self, folders: Sequence[Path], owner: tuple[int, int], image: str | None) -> str:
        """Have the engine give folders to a user, as only root can; words for what could not be given. Raises ExecutorError.

        It is done in ``image``, or else in the configuration's, or in any other of the engine's.
        """
        if not self.used_docker:
            raise ExecutorError(f"folder {folders[0]}", "only root can give it, and no container engine is in use here")
        self.note_container()
        return self.docker.give(folders, owner, [one for one in (image, self._configuration.docker.image) if one])

    def close(self) -> None:
        """End all processes. Containers go on, and can be adopted."""
        self._process.close()
        if self._docker is not None:
            self._docker.close()
