"""The interface of every executor to the task manager: a program, its running attempt, its end."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from arkqueue.errors import EngineFault, ExecutorError
from arkqueue.model import AttemptId, Layer, Pull, Resources, Stream, TaskDefinition, Usage

DEFAULT_SHELL = "sh"
SHELL = ("/bin/sh", "-c")
"""The shell that executes a command given as a text."""
TASK_LABEL, TASK_ID_LABEL, ATTEMPT_LABEL = "arkqueue.task", "arkqueue.task-id", "arkqueue.attempt"
"""The labels of a container: the full name of its task, the id of the task (because an archive may
have the name of a removed one), and its attempt.
"""


def argv_for(definition: TaskDefinition, script: str) -> tuple[str, ...]:
    """The program of a task with a command or script (design 3); ``script`` is the path of the file
    with the script's text.
    """
    if definition.script is None:
        if definition.command is None:
            raise ValueError(f"{definition.name} is a gate: it has nothing to execute")
        if isinstance(definition.command, str):
            return (*SHELL, definition.command)
        return definition.command
    shell, *arguments = shlex.split(definition.shell or DEFAULT_SHELL) or [DEFAULT_SHELL]
    if not arguments:
        # The first failing line ends the script, as expected of a list of steps.
        arguments = {"sh": ["-e"], "bash": ["-eo", "pipefail"]}.get(shell, [])
    return (shell, *arguments, script)


@dataclass(frozen=True, slots=True)
class Mount:
    """The source of what a container sees at ``target``: a folder of the host, an overlay of two,
    or a volume of the engine by its name.
    """

    target: str
    source: Path | Layer | str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Container:
    """The container for a program. ``labels``: name its task and attempt. ``network``: ``bridge``,
    ``none`` or a network's name.

    ``groups``: numbers of groups that the program has, besides its own group and those of its user
    in the image.
    """

    image: str
    pull: Pull
    labels: Mapping[str, str]
    mounts: tuple[Mount, ...] = ()
    network: str = "bridge"
    resources: Resources = field(default_factory=Resources)
    groups: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Program:
    """The program of one attempt. ``env``: its whole environment; for a container, the variables in
    addition to the image's own.

    ``user``: a user of the operating system (only root can name another one), or a user of the
    image. ``cwd``: a path of the host, or in the container. ``shell``: True if ``argv[0]`` is the
    shell of a script, so that a message about a missing shell names it. ``keep``: the times at
    which a process is asked to end, and is gone, if no later times are set (``ProcessExecutor``;
    CLOCK_BOOTTIME, seconds).
    """

    attempt: AttemptId
    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: Path
    user: str | None = None
    shell: bool = False
    container: Container | None = None
    keep: tuple[float, float] | None = None


def check_texts(program: Program, encoded: Callable[[str], bytes]) -> None:
    """Raise ExecutorError if no program can get this command or environment. ``encoded``: the
    executor's encoding of a text.
    """
    for what, texts in (("command", program.argv), ("environment", [*program.env, *program.env.values()])):
        for text in texts:
            try:
                invalid = b"\0" in encoded(text)
            except UnicodeEncodeError:
                invalid = True
            if invalid:
                raise ExecutorError(what, f"{text!r} has a character that no program can be given", "Remove it")
    for name in program.env:
        if not name or "=" in name:
            raise ExecutorError("environment", f"{name!r} cannot be the name of a variable", "Rename it")
    if not program.argv:
        raise ExecutorError("command", "it is empty", "Name a program")


class Sink(Protocol):
    """The destination of an attempt's output. One thread at a time calls it. While it blocks, the
    attempt's pipe fills and the task waits, so output does not accumulate in memory.
    """

    def write(self, stream: Stream, data: bytes) -> None: ...


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of an attempt, of which nothing is left. ``exit_code``: 128 + n for a signal n; None
    if it is not known.

    ``stopped``: the attempt was still running when ``stop`` sent its signal; otherwise the outcome
    is its own (design 5.10). ``message``: a note for the log. ``lost``: its engine ended it, or its
    guard was killed, so nobody knows how the task itself ended. It counts as if its task manager
    had died. ``abandoned``: its guard stopped it because this process was silent, whatever was
    requested since. ``left``: it has not ended, but continues in its container without this task
    manager, which has left it (``leave``). ``usage``: the resources that it used; None: not known.
    Ends that differ only in their usage are equal.
    """

    exit_code: int | None
    stopped: bool
    message: str = ""
    lost: bool = False
    left: bool = False
    abandoned: bool = False
    usage: Usage | None = field(default=None, compare=False)


class Running(Protocol):
    """One attempt that has been started. Its methods may be called from any thread."""

    @property
    def doubt(self) -> EngineFault | None:
        """The reason why the start did not show whether the program begins; None: it had begun."""

    def wait(self, timeout: float | None = None) -> Ended | None:
        """The end, once all output has been handed to the sink and no process is left. None: this
        has not happened within ``timeout`` seconds, and as long as the sink blocks. Somebody has to
        wait for each attempt: a process executor copies its output meanwhile.
        """

    def stop(self, grace: float) -> None:
        """Stop the attempt: SIGTERM to all its processes, and SIGKILL after ``grace`` seconds.
        Returns at once. A later call with a shorter grace shortens it.
        """


class Executor(Protocol):
    def start(self, program: Program, sink: Sink) -> Running:
        """Start an attempt. Returns when its program is being executed. Raises ExecutorError if it
        cannot be executed.
        """

    def close(self) -> None:
        """End all running attempts without a grace."""
