"""The executors of one task manager: one for processes, and one for containers once it is needed.

The Docker SDK and its threads are loaded for the first container task; or at the start, if an
earlier task manager of this home folder has used containers. So they cost a server without
containers nothing. A file in the home folder records the use of containers. It is written before
the first container is made.
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
"""The name of the file which shows that task managers of a home folder have used containers."""


class Executors:
    """Any thread may call it. ``host``: this host's id, which labels its containers."""

    def __init__(self, gateway: Gateway, configuration: Configuration, guards: int) -> None:
        self._gateway, self._configuration, self.host = gateway, configuration, gateway.host
        self._process = ProcessExecutor(guards, configuration.home / WORK)
        self._mark = configuration.home / MARK
        self._lock = threading.Lock()
        self._installation: str | None = None
        self._docker: DockerExecutor | None = None
        self._proved: set[Path] = set()
        self._was_used = self._mark.exists()
        """True if an earlier task manager of this home folder had an engine. If the engine does not
        answer yet, it may still be starting.
        """

    @property
    def installation(self) -> str:
        """The installation's id, which labels its containers. Raises DatabaseUnavailable."""
        if self._installation is None:
            self._installation = self._gateway.installation()
        return self._installation

    @property
    def used_docker(self) -> bool:
        """True if there may be containers of this home folder."""
        return self._docker is not None or self._mark.exists()

    @property
    def docker(self) -> DockerExecutor:
        """The executor for containers. Its first call shows whether an engine answers. Raises
        DatabaseUnavailable.
        """
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
        """True if this host has, or had, an engine, so that the engine's fault may pass."""
        return bool(self._proved) or self._was_used or not error.is_away

    def note_container(self) -> None:
        """Record in the home folder that there may be containers from now on, so that the next task
        manager asks the engine for them.

        Called before an attempt is reserved for its container: no one but this host's task manager
        ends such an attempt until its reservation is over.
        """
        self._mark.touch()

    def prove(self, folder: Path | None = None) -> None:
        """Prove that an engine answers, and that it finds the same files in a folder as this
        process. Each folder is proved once. None: the home folder, with bases and workspaces.
        Raises ExecutorError.
        """
        folder = folder or self._configuration.home
        if not any(folder.is_relative_to(one) for one in self._proved):
            self.docker.prove_same_paths(folder)
            self._proved.add(folder)

    def announce(self) -> str:
        """A sentence for people about the engine for containers, after it was proved. Raises
        ExecutorError if the engine does not see this host's folders.
        """
        where = self._configuration.docker.host
        try:
            self.prove()
        except DatabaseUnavailable:
            return ""  # the first container proves it
        except ExecutorError as error:
            from arkqueue.executor.docker.executor import FolderNotSeen

            if isinstance(error, FolderNotSeen):
                raise  # only a person can remedy this; other faults of an engine may pass
            what = "no container engine" if isinstance(error, EngineFault) and error.is_away else "no containers"
            return f"{what}: {error}; tasks with an image cannot run here until that is fixed"
        return f"tasks with an image run in containers, on the engine at {where}"

    def start(self, program: Program, image: str | None, log: LogWriter, is_wanted: Callable[[], bool]) -> Running:
        """Start a program whose output goes to ``log``. ``image``: the digest of its container's
        image; None: it runs as processes.
        """
        if image is None:
            return self._process.start(program, log)
        return self.docker.start(program, log, image, is_wanted)

    def give(self, folders: Sequence[Path], owner: tuple[int, int], image: str | None) -> str:
        """Let the engine give folders to a user, which only root can do. Returns a sentence about
        folders that could not be given. Raises ExecutorError.

        A container of ``image`` does that, otherwise of the configuration's image, otherwise of any
        image that the engine has.
        """
        if not self.used_docker:
            raise ExecutorError(f"folder {folders[0]}", "only root can give it, and no container engine is in use here")
        self.note_container()
        return self.docker.give(folders, owner, [one for one in (image, self._configuration.docker.image) if one])

    def close(self) -> None:
        """End all processes. Containers go on, and the next task manager can adopt them."""
        self._process.close()
        if self._docker is not None:
            self._docker.close()
