"""Definitions of tasks. `workflow` makes them, and `plan` plans them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from arkqueue.model.words import CHANGES, SUBMISSION, Trigger, When
from arkqueue.priorities import USUAL_PRIORITY

LABEL = r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}"
"""Matches a label of a task manager."""
MOST_LABELS = 8
"""The most labels that one task may ask for."""


@dataclass(frozen=True, slots=True)
class Depends:
    """One ``depends`` entry. ``task``: the named task, or ``*`` (``PREV:*``); None: the task itself
    (PREV).

    ``excepted``: names that ``PREV:*`` leaves out, sorted.
    """

    task: str | None
    previous: bool = False
    when: When = When.COMPLETED
    optional: bool = False
    excepted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cancels:
    """One ``cancels`` entry: the named task (None: the task itself) of earlier runs, or of the same run."""

    task: str | None
    previous: bool = False
    only_unstarted: bool = False


@dataclass(frozen=True, slots=True)
class Retries:
    """Automatic retries after a failure: at most ``max``, the first one after ``delay`` seconds. Each
    later delay is ``factor`` times the one before.
    """

    max: int = 0
    delay: float = 10.0
    factor: float = 2.0


@dataclass(frozen=True, slots=True)
class Poll:
    """The program that asks for the outcome of a deferred task. It runs in place of the task's
    command, ``every`` so many seconds, and for at most ``timeout`` seconds each time.
    """

    command: str | tuple[str, ...] | None = None
    script: str | None = None
    every: float = 300.0
    timeout: float = 300.0


_AT_EACH_REVISION = "revision:"


@dataclass(frozen=True, slots=True)
class Foreach:
    """The list of a task, which has one task for each item. Two tasks have the same list if their
    ``Foreach`` are equal.

    ``file``: the file of the archive with the list (None: the workflow file has it). ``key``: the
    field that identifies an item (None: the first of ``key``, ``id`` and ``name`` that an item
    has). ``items``: the key of the items in `Workflow.lists`, because a definition is shared by all
    items of its task. It is a digest of the items or, if each run has its own items, a text that
    says so (`is_of_run`).
    """

    items: str
    key: str | None = None
    file: str | None = None
    count: int | None = field(default=None, compare=False)
    """The number of items; None: each run has its own items, or an older version stored this list."""

    @classmethod
    def of_submission(cls, key: str | None) -> Foreach:
        """The list of items of a run's submission."""
        return cls(f"{Trigger.SUBMISSION}:{key or ''}", key)

    @property
    def is_of_submission(self) -> bool:
        return self == self.of_submission(self.key)

    def at_each_revision(self) -> Foreach:
        """The same list, for a run of a backfill, which takes the file from its own revision."""
        return replace(self, items=f"{_AT_EACH_REVISION}{self.key or ''}:{self.file}", count=None)

    @property
    def is_of_run(self) -> bool:
        """True if each run has its own items, and not each revision."""
        return self.is_of_submission or self.items.startswith(_AT_EACH_REVISION)


class Pull(StrEnum):
    """The cases in which an image is fetched from its registry."""

    MISSING = "missing"
    ALWAYS = "always"
    NEVER = "never"


LEAST_MEMORY = 6 << 20
"""The fewest bytes of memory that a container engine gives to a container."""
MOST_PIDS = 4_194_304
"""The most processes that the kernel can number."""


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources that a container may use; None: the default of the host's configuration.
    ``cpu``: a number of processors. ``memory``, ``shm``: bytes.

    ``tmpfs``: paths in the container that are kept in memory, and the bytes of each.
    ``read_only``: the image's own files cannot be written.
    """

    cpu: float | None = None
    memory: int | None = None
    pids: int | None = None
    shm: int | None = None
    tmpfs: dict[str, int] = field(default_factory=dict)
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class MountUse:
    """A persistent folder or volume that the configuration grants. ``path``: its path in the task's
    container.
    """

    name: str
    path: str
    read_only: bool = False


class Checkout(StrEnum):
    TREE = "tree"
    WORKING_COPY = "working-copy"
    NONE = "none"
    PATHS = "paths"


@dataclass(frozen=True, slots=True)
class TaskDefinition:
    """One task of a revision's workflow, complete with defaults. Made by ``workflow``; planned by
    ``plan``; frozen in the run (design 3).

    Times are seconds. ``shell`` is only set with ``script``. A task with neither command nor script is a gate.
    """

    name: str
    path: str = ""
    line: int = 0
    depends: tuple[Depends, ...] = ()
    cancels: tuple[Cancels, ...] = ()
    command: str | tuple[str, ...] | None = None
    script: str | None = None
    shell: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    timeout: float = 6 * 3600.0
    grace: float = 10.0
    retries: Retries = Retries()
    on: tuple[Trigger, ...] = (Trigger.COMMIT, Trigger.MANUAL)
    schedule: str | None = None
    timezone: str = "UTC"
    paths: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()
    exclusive: bool = False
    on_lost: str = "rerun"
    checkout: Checkout = Checkout.TREE
    checkout_paths: tuple[str, ...] = ()
    image: str | None = None
    pull: Pull | None = None
    resources: Resources = Resources()
    network: str | None = None
    user: str | None = None
    workdir: str | None = None
    mounts: tuple[MountUse, ...] = ()
    changes: bool = False
    hold: bool = False
    lock: tuple[str, ...] = ()
    runs_on: tuple[str, ...] = ()
    deadline: float | None = None
    poll: Poll | None = None
    priority: int = USUAL_PRIORITY
    foreach: Foreach | None = None
    scratch: str | None = None

    @property
    def is_gate(self) -> bool:
        return self.command is None and self.script is None

    @property
    def as_poll(self) -> TaskDefinition:
        """The task with the poll's program in place of its own, as a poll runs it."""
        assert self.poll is not None
        shell = (self.shell or "sh") if self.poll.script is not None else None
        return replace(self, command=self.poll.command, script=self.poll.script, shell=shell, timeout=self.poll.timeout)

    @property
    def wants_changes(self) -> bool:
        """True if the task gets ``ARKQUEUE_CHANGES``: it asks for changes, or names the variable."""
        return self.changes or self._names(CHANGES)

    @property
    def wants_submission(self) -> bool:
        """True if the task gets ``ARKQUEUE_SUBMISSION``: it is not for one item of the submission,
        or it names the variable.
        """
        return not (self.foreach is not None and self.foreach.is_of_submission) or self._names(SUBMISSION)

    def _names(self, variable: str) -> bool:
        """True if the task's command or script, or a value of its ``env``, names a variable."""
        command = self.command if isinstance(self.command, str) else "\0".join(self.command or ())
        return any(variable in text for text in (command, self.script or "", *self.env.values()))
