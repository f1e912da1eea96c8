"""The Docker executor: an attempt is a container, labelled with this installation, which can outlive
the task manager.

The task manager calls this module, which knows no database. Its calls for an attempt, in the order in
which the task manager makes them::

    executor = DockerExecutor(installation, host, url)
    executor.check()                                   an engine answers
    executor.prove_same_paths(work_folder)             at the start: the engine sees this folder under the same path
    digest = executor.image(program.container)         the image is there now; raises ExecutorError if it cannot be had
    executor.account(digest, user)                     the program's account, by the image's own users
    running = executor.start(program, sink, digest)    created, attached, started
    running.stop(grace); running.wait() -> Ended       all output handed over, container and its volumes removed
    running.leave(); running.wait().left               it continues without this task manager
    executor.found() -> [Found]                        the containers of this installation and host, by label
    executor.adopt(attempt, sink, skip) -> running     follow one of them from the end of its stored output
    executor.remove(attempt)                           end and remove a container that nobody owns
    executor.remove_earlier(task, attempt)             end and remove all earlier attempts of a task that will run again
    executor.give(folders, owner, images)              change owners, for a task manager that is not root
    executor.sweep()                                   remove what a killed task manager had made for itself
    executor.close()                                   leaves all containers running

``EngineUnavailable`` (an ExecutorError) means that no engine answers; it says nothing about the task.
If an engine goes away while a container runs, the executor waits for it. A container that the engine
ended in the meantime has ``Ended.lost``. Nothing without the labels of this installation and host is
ever touched.
"""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from docker.errors import APIError

from arkqueue.errors import ExecutorError
from arkqueue.executor import ATTEMPT_LABEL, TASK_ID_LABEL, Container, Program, Sink
from arkqueue.executor.docker.container import Setting, configuration, engine_fault, init_failure, refusal
from arkqueue.executor.docker.engine import CONFLICT, Engine, EngineUnavailable, Flow, said
from arkqueue.executor.docker.images import Account, FolderNotSeen, Images
from arkqueue.executor.docker.output import Output
from arkqueue.executor.docker.owners import Owners
from arkqueue.executor.docker.running import DockerRunning, removed
from arkqueue.executor.docker.samples import Samples
from arkqueue.model import AttemptId, Stream, TaskId

__all__ = ["DockerExecutor", "DockerRunning", "EngineUnavailable", "FolderNotSeen", "Found"]

LOG_SIZE = 1 << 30
"""The fewest bytes of a container's log that the engine keeps; adoption reads them again."""
PATIENCE = 300.0
SHORT_INSTALLATION = 8
ERRAND = "arkqueue.errand"
"""The label of containers that belong to no attempt; its value names the executor."""


@dataclass(frozen=True, slots=True)
class Found:
    """A container of this installation and host. ``labels``: those of ``Container.labels``, and the
    executor's own.
    """

    attempt: AttemptId
    container: str
    is_running: bool
    labels: Mapping[str, str]


class DockerExecutor:
    """Starts attempts as containers. Any thread may call it; the first call connects to the engine."""

    def __init__(
        self,
        installation: str,
        host: str,
        url: str | None = None,
        *,
        log_size: int = LOG_SIZE,
        patience: float = PATIENCE,
    ) -> None:
        """``url``: the engine's address (None: the local socket). ``patience``: the seconds for
        which an engine that went away is waited for.
        """
        self._since = datetime.now(UTC).replace(microsecond=0)  # the engine reports whole seconds
        self._engine = Engine(url)
        self._installation = installation
        self._patience = patience
        labels = {"arkqueue.installation": installation, "arkqueue.host": host}
        self._setting = Setting(labels, log_size, self._engine.socket_path)
        self._wanted = [f"{name}={value}" for name, value in labels.items()]
        # The label for the executor's own containers, which belong to no attempt. By this label,
        # another process of the host knows that they are left over.
        self._errands = {**labels, ERRAND: secrets.token_hex(8)}
        self._images = Images(self._engine, self._errands)
        self._owners = Owners(self._engine, self._errands)
        self._samples = Samples(self._engine)
        self._lock = threading.Lock()
        self._running: set[DockerRunning] = set()
        self._is_closed = False

    # --- Before the start ---

    def check(self) -> None:
        """Raise EngineFault if the engine does not answer soon, before a call that would wait for
        long.
        """
        self._engine.ping()

    def prove_same_paths(self, folder: Path) -> None:
        """Prove that an engine answers and sees a folder of this host under the same path. Raises
        FolderNotSeen, or another ExecutorError if the proof fails.
        """
        self._images.prove_same_paths(folder)

    def image(
        self,
        container: Container,
        is_wanted: Callable[[], bool] = lambda: True,
        note: Callable[[str], None] = lambda _: None,
    ) -> str:
        """Get the image by its pull policy. Returns its digest. Raises ExecutorError if the image
        cannot be had, or soon after the image is no longer wanted. ``note``: called when a pull
        begins.
        """
        return self._images.have(container.image, container.pull, is_wanted, note)

    def account(self, image: str, user: str | None, name: str = "") -> Account:
        """The account of a program that runs as ``user`` (None: the image's default) of a present
        image, which messages call ``name``.
        """
        return self._images.account(image, user, name or image)

    def identity(self, image: str, user: str | None, name: str = "") -> tuple[int, int]:
        """The user and group id of ``account``."""
        account = self.account(image, user, name)
        return account.uid, account.gid

    def path(self, image: str) -> str:
        """The PATH of a present image."""
        return self._images.path(image)

    def has_folder(self, image: str, path: str) -> bool:
        """Whether a present image has a folder, possibly behind symbolic links."""
        return self._images.has_folder(image, path)

    def give(self, folders: Sequence[Path], owner: tuple[int, int], images: Sequence[str]) -> str:
        """Change the owner of folders of this host and their contents, as root would. Returns words
        about the files that kept their owner. ``images``: the images to try before other images of
        the engine. Raises ExecutorError if none works.
        """
        return self._owners.give(folders, owner, images)

    # --- Start and adopt ---

    def start(
        self, program: Program, sink: Sink, image: str | None = None, is_wanted: Callable[[], bool] = lambda: True
    ) -> DockerRunning:
        """Create a container, attach to it, and start it if it is still wanted then. ``image``: the
        digest from ``image()`` (None: it is looked up here).

        Raises ExecutorError if the container does not start. Then nothing of it is left, except, if
        no engine answers, a container that has not begun. If the engine does not answer the start,
        the container is followed nevertheless (``doubt``).
        """
        wanted = program.container
        if wanted is None:
            raise ValueError(f"attempt {program.attempt} names no container")
        self._check_open()
        digest = image or self.image(wanted)
        try:
            return self._start(program, sink, digest, is_wanted)
        except APIError as error:
            if "docker-init" not in said(error):
                raise refusal(program, wanted.image, said(error)) from None
        # This engine has no init: the container's first program gets the signals itself.
        self._setting = replace(self._setting, has_init=False)
        try:
            return self._start(program, sink, digest, is_wanted)
        except APIError as error:
            raise refusal(program, wanted.image, said(error)) from None

    def adopt(self, attempt: AttemptId, sink: Sink, skip: Mapping[Stream, int]) -> DockerRunning:
        """Follow a container of an earlier task manager. ``skip``: the bytes of each stream that
        the sink's log already has.

        If the container is gone, or was never started, the end says so (``lost``).
        """
        self._check_open()
        found = [one.container for one in self._listed(f"{ATTEMPT_LABEL}={attempt}")]
        container = found[0] if found else "no-such-container"
        return self._follow(container, Output(sink, skip), None, lambda _code, _error: "")

    def _start(self, program: Program, sink: Sink, image: str, is_wanted: Callable[[], bool]) -> DockerRunning:
        container = self._create(program, image)
        live: Flow | None = None
        doubt: EngineUnavailable | None = None
        try:
            if not is_wanted():
                raise ExecutorError(f"container {container[:12]}", "the task was stopped while its container started")
            live = self._engine.attach(container)
            with self._engine.calls() as api:
                api.start(container)
        except BaseException as error:
            if live is not None:
                live.close()
            if live is None or not isinstance(error, EngineUnavailable):
                removed(self._engine, container)
                raise
            # The container may have started; this is known when the engine answers again. It is
            # followed like an adopted one.
            live, doubt = None, error
        wanted = program.container
        assert wanted is not None

        def note(exit_code: int, error_output: bytes) -> str:
            return init_failure(program, wanted.image, exit_code, error_output)

        return self._follow(container, Output(sink), live, note, doubt)

    def _create(self, program: Program, image: str) -> str:
        body = configuration(program, image, self._setting)
        name = f"arkqueue-{re.sub(r'[^a-zA-Z0-9]', '', self._installation)[:SHORT_INSTALLATION]}-{program.attempt}"
        try:
            return self._created(body, name)
        except APIError as error:
            if error.status_code != CONFLICT:
                raise
        # The name is taken. A container with this attempt's labels is a stray, and is removed; any
        # other container keeps the name.
        self.remove(program.attempt)
        try:
            return self._created(body, name)
        except APIError as error:
            if error.status_code != CONFLICT:
                raise
            return self._created(body, f"{name}-{secrets.token_hex(4)}")

    def _created(self, body: dict[str, Any], name: str) -> str:
        with self._engine.calls() as api:
            container: str = api.create_container_from_config(body, name)["Id"]
            return container

    def _follow(
        self,
        container: str,
        output: Output,
        live: Flow | None,
        note: Callable[[int, bytes], str],
        doubt: EngineUnavailable | None = None,
    ) -> DockerRunning:
        running = DockerRunning(
            self._engine, container, output, live, note, self._has_ended, self._patience, doubt, self._samples
        )
        with self._lock:
            self._running.add(running)
            is_closed = self._is_closed
        if is_closed:
            running.leave()
        running.follow()
        return running

    def _has_ended(self, running: DockerRunning) -> None:
        with self._lock:
            self._running.discard(running)

    # --- What is left ---

    def found(self) -> list[Found]:
        """The containers of this installation and host, whether they run or have ended."""
        return self._listed()

    def remove(self, attempt: AttemptId) -> None:
        """End and remove the containers of an attempt on this host, with their volumes. It may have
        none.
        """
        self._remove(self._listed(f"{ATTEMPT_LABEL}={attempt}"))

    def remove_earlier(self, task: TaskId, attempt: AttemptId) -> None:
        """Remove all earlier attempts of a task: an engine that was away may have kept them
        running.
        """
        self._remove([one for one in self._listed(f"{TASK_ID_LABEL}={task}") if one.attempt < attempt])

    def _remove(self, found: Iterable[Found]) -> None:
        for one in found:
            if remains := removed(self._engine, one.container):
                self._engine.ping()
                raise ExecutorError(
                    f"container {one.container[:12]}", remains, "It is tried again; see the engine's log"
                )

    def sweep(self) -> None:
        """Remove what an earlier executor of this installation and host has left, apart from the
        containers of attempts.

        This concerns containers that belonged to no attempt, the image of a probe, and layers whose
        container somebody else removed. A layer is made before its container, so a new layer
        belongs to no container for a moment.
        """
        try:
            with self._engine.calls() as api:
                containers = api.containers(all=True, filters={"label": [*self._wanted, ERRAND]})
                ours = {"label": [*self._wanted, ATTEMPT_LABEL], "dangling": True}
                volumes = api.volumes(filters=ours)["Volumes"]
                images = api.images(filters={"label": [*self._wanted, ERRAND]})
        except APIError as error:
            raise ExecutorError("Docker engine", f"it does not list what it has ({said(error)})") from None
        for one in containers:
            if one["Labels"][ERRAND] != self._errands[ERRAND]:
                removed(self._engine, one["Id"])
        for image in images:
            if image["Labels"][ERRAND] != self._errands[ERRAND]:
                with suppress(APIError), self._engine.calls() as api:
                    api.remove_image(image["Id"])
        for volume in volumes or ():
            if datetime.fromisoformat(volume["CreatedAt"]) < self._since:
                with suppress(APIError), self._engine.calls() as api:
                    api.remove_volume(volume["Name"])

    def close(self) -> None:
        """Leave the running containers, which continue and can be adopted."""
        with self._lock:
            self._is_closed = True
            running = list(self._running)
        for one in running:
            one.leave()
        for one in running:
            one.wait()
        self._samples.close()
        self._engine.close()

    def _listed(self, *labels: str) -> list[Found]:
        try:
            with self._engine.calls() as api:
                containers = api.containers(all=True, filters={"label": [*self._wanted, ATTEMPT_LABEL, *labels]})
        except APIError as error:
            fault = f"it does not list its containers ({said(error)})"
            raise engine_fault(said(error)) or ExecutorError("Docker engine", fault) from None
        return [
            Found(AttemptId(int(one["Labels"][ATTEMPT_LABEL])), one["Id"], one["State"] == "running", one["Labels"])
            for one in containers
        ]

    def _check_open(self) -> None:
        if self._is_closed:
            raise ExecutorError("Docker executor", "it is closed")
