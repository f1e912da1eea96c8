"""The terms of design section 1 as types. Every module may import them; they import none but
``text``, ``priorities`` and ``archive_settings``. Nothing here reads a database, a file or a clock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple, NewType

from arkqueue.archive_settings import ArchiveSettings, read_settings
from arkqueue.priorities import USUAL_PRIORITY
from arkqueue.text import name_visible, on_one_line

ArchiveId = NewType("ArchiveId", int)
BranchId = NewType("BranchId", int)
RunId = NewType("RunId", int)
TaskId = NewType("TaskId", int)
AttemptId = NewType("AttemptId", int)

RETRY_AFTER = "arkqueue.retry_after"
"""The output by which a task that ends with exit code 75 sets the seconds until its next attempt."""

COMMIT = "COMMIT"
REPORT = "REPORT"
PREV = "PREV"
OWN = "self"
"""The name under which a poll finds the outputs of its own task among its INPUTS."""

CHANGES = "ARKQUEUE_CHANGES"
"""The variable with the path of the list of files that differ from BASE."""
SUBMISSION = "ARKQUEUE_SUBMISSION"
"""The variable with the path of the payload of a run's submission."""


def as_retry_after(value: object) -> float | None:
    """The seconds in the value of an output, at least one and at most a year; None: it is not a
    valid number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    text = str(value)
    if not re.fullmatch(r"[0-9]{1,18}(\.[0-9]{1,18})?", text, re.ASCII):
        return None
    return min(max(float(text), SHORTEST_DEFERRAL), LONGEST_DURATION)


class Key(NamedTuple):
    """The name of a task inside its run and, if its list has a task for each item, the item's key."""

    name: str
    item: str = ""


class Item(NamedTuple):
    """One entry of a list. ``key``: its name, unique in the list. ``body``: the item as JSON."""

    key: str
    body: str


LONGEST_KEY = 200
"""The most characters of an item's key."""
LONGEST_ITEM = 64 * 2**10
"""The most bytes of an item as JSON, which a task gets in a variable."""
MOST_ITEMS = 10_000
"""The most items of a list, unless the configuration sets another ``items_limit``."""
LONGEST_LIST = 64 * 2**20
"""The most bytes of a file with a list, and of all items of a revision as JSON."""


class ArchiveKind(StrEnum):
    SUBVERSION = "subversion"
    GIT = "git"


class Trigger(StrEnum):
    """The cause of a run."""

    COMMIT = "commit"
    MANUAL = "manual"
    SCHEDULE = "schedule"
    SUBMISSION = "submission"


class PayloadKind(StrEnum):
    """The format of a submission's payload."""

    JSON = "json"
    YAML = "yaml"
    CSV = "csv"
    LINES = "lines"


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that is submitted beside a payload. ``name``: its path among the others. ``size``: its
    bytes. ``digest``: its SHA-256, in hexadecimal digits.
    """

    name: str
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class Attached:
    """The attachments of a run. ``folder``: the number of their folder. ``is_removed``: they were
    removed.
    """

    folder: int
    is_removed: bool


@dataclass(frozen=True, slots=True)
class Handed:
    """The submission for which a task's run was made, without its payload. ``sender_id``: the
    sender's id of it; None: the sender gave none. ``attached``: None if it has no attachments.
    """

    kind: PayloadKind
    sender_id: str | None
    attached: Attached | None = None


LONGEST_PAYLOAD = 64 * 2**20
"""The most bytes of a submission's payload."""
MOST_ATTACHMENTS = 10_000
"""The most files that a submission has beside its payload."""
LONGEST_SENDER_ID = 200
"""The most characters of a sender's id of a submission."""


class TaskKind(StrEnum):
    """The origin of a task of a run."""

    COMMIT = "commit"
    REPORT = "report"
    GATE = "gate"
    """Made by arkqueue. It stands for many tasks, so that fewer edges are needed."""
    ORDINARY = "ordinary"
    """From a workflow file; it may have no program."""


class AttemptKind(StrEnum):
    """The program that an attempt runs."""

    RUN = "run"
    """The task's command."""
    POLL = "poll"
    """The poll of a deferred task, which asks for its outcome, in place of its command (design
    5.29).
    """


class EdgeKind(StrEnum):
    DEPENDS = "depends"
    CANCELS = "cancels"


class When(StrEnum):
    """The ends of the source that meet a ``depends`` edge (design 5.6, 5.8, 5.9)."""

    COMPLETED = "completed"
    SETTLED = "settled"
    FAILED = "failed"
    """Failed or rejected; a source that ends otherwise skips the dependent."""


class Stream(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"
    NOTE = "note"
    """Arkqueue's own lines in a task's log."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The task that made a commit (design 5.15). ``generation``: the number of commits by tasks that
    led to this one, itself included.
    """

    task: str
    generation: int


@dataclass(frozen=True, slots=True)
class Revision:
    """One revision as the repository reports it. ``date`` has a time zone. ``number``: its number in
    the ledger (design 1).
    """

    id: str
    number: int
    author: str
    date: datetime
    message: str
    origin: Origin | None = None
    oversized: str = field(default="", compare=False)
    """The parts of it that were longer than the ledger takes, and were cut; empty: none. The ledger
    does not store this text, only the fault of its run.
    """
    paths_digest: str = field(default="", compare=False)
    """A digest of the paths that a Subversion revision changes, and of how it changes them. `archive
    accept` compares it. Empty: it is not known, or the revision is a Git commit, whose id covers the
    paths.
    """
    parent: str = field(default="", compare=False)
    """The id of a Git commit's first parent; empty: it has none, or it is not known, or the revision is
    one of Subversion, whose parent is the one before. The ledger does not store it.
    """


LABEL = r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}"
"""Matches a label of a task manager."""
MOST_LABELS = 8
"""The most labels that one task may ask for."""


INSTALLATION = ArchiveId(0)
"""Stands for an archive in the locks of the whole installation."""
GLOBAL = "global"
"""The beginning of the names of locks of the whole installation: ``global/NAME``."""
LONGEST_LOCK = 200
"""The most characters of the name of a lock."""
MOST_LOCKS = 16
"""The most locks that one task may name."""
MOST_CAPACITY = 1_000_000
"""The greatest capacity that a person can set for a lock, other than unlimited."""
MOST_COUNTED = 10_000
"""The most tasks of one lock that are counted for a person."""


class Pool(StrEnum):
    """The kind of executor that a task needs."""

    PROCESS = "process"
    CONTAINER = "container"


class Occasion(StrEnum):
    """The events of a run or an archive of which a receiver can be notified (design 15)."""

    FAILED = "failed"
    FIXED = "fixed"
    HELD = "held"
    COMPLETED = "completed"
    STOPPED = "stopped"


AUTHOR = "author"
"""The receiver that stands for the author of a run's commit."""
OF_BRANCH = "branch="
"""The beginning of a glob of branches among the occasions of a receiver."""
USUAL_OCCASIONS = (Occasion.FAILED, Occasion.FIXED, Occasion.HELD, Occasion.STOPPED)
"""The occasions of a receiver for which none are set."""
MOST_MAILS, MAIL_WINDOW = 10, 600.0
"""The most mails of an archive that one receiver gets within ``MAIL_WINDOW`` seconds. Later
notifications wait for the next mail, which lists all of them.
"""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A workflow file as it is in the repository. ``text`` is bytes because it may not be UTF-8.
    ``fault``: the reason why it cannot be read; empty: it can.
    """

    path: str
    text: bytes = b""
    fault: str = ""


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """A fault in a workflow file, with its place and a suggestion. ``line`` and ``column`` count from
    1; 0 means the whole file.
    """

    path: str
    line: int
    column: int
    message: str
    word: str = ""
    suggestion: str = ""

    @property
    def place(self) -> str:
        """The path, and in a file the line and the column."""
        path = name_visible(self.path)
        return f"{path}:{self.line}:{self.column}" if self.line else path

    def __str__(self) -> str:
        return f"{self.place}: {on_one_line(self.message)}" + (
            f" (did you mean {self.suggestion!r}?)" if self.suggestion else ""
        )


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


LONGEST_RENEWAL = 10.0
"""The most seconds between two renewals of a task manager's leases."""
SILENCE = 3 * LONGEST_RENEWAL
"""Seconds after its last report from which on a task manager counts as gone."""
LONGEST_TASK_NAME = 100
"""The most characters of a task's name."""
LONGEST_GLOB = 1000
"""The most characters of one glob of a workflow file."""
MOST_GLOBS = 1000
"""The most globs of one field of a workflow file."""
LONGEST_DURATION = 366 * 86400.0
"""The most seconds that a workflow or the configuration may name."""
SHORTEST_DEFERRAL = 1.0
"""The fewest seconds that a deferred task waits, also if its output asks for fewer."""
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


@dataclass(frozen=True, slots=True)
class Layer:
    """An overlay: writes go to ``upper``, and ``lower`` never changes. ``work`` is the kernel's own
    folder, on the disk of ``upper``.
    """

    lower: Path
    upper: Path
    work: Path


class ChangeStatus(StrEnum):
    """The change of a file between two revisions. A moved file is deleted at one path and added at
    another.
    """

    ADDED = "added"
    MODIFIED = "modified"
    """Its text, its mode, its kind or one of its own properties differs."""
    DELETED = "deleted"


class FileChange(NamedTuple):
    """A file that differs between two revisions. ``path``: from the archive's root; bytes that are
    not UTF-8 are surrogate escapes (PEP 383).
    """

    status: ChangeStatus
    path: str


@dataclass(frozen=True, slots=True)
class TreeChange:
    """The changes that an update made to a plain tree. ``made``: the new paths. ``grown``: the bytes
    by which the tree has grown.

    ``began``: the time by `STAMPS` just before the first change; None: nothing was changed.
    ``entered``: the folders in which something was changed, by the time at which each had last been
    changed before (`st_ctime_ns`); of folders with the same time, only one.
    """

    made: tuple[bytes, ...]
    grown: int
    began: int | None = None
    entered: Mapping[int, bytes] = field(default_factory=dict)


STAMPS = 5
"""CLOCK_REALTIME_COARSE, by which the kernel stamps files. It is a little behind CLOCK_REALTIME."""


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


@dataclass(frozen=True, slots=True)
class Workflow:
    """All workflow files of one revision: their tasks in the order of files and lines; or their
    faults, and then no tasks.
    """

    tasks: tuple[TaskDefinition, ...] = ()
    faults: tuple[Fault, ...] = ()
    lists: Mapping[str, tuple[Item, ...]] = field(default_factory=dict)
    """The items of each list, by `Foreach.items`."""
    list_files: tuple[str, ...] = ()
    """The files with lists and with a schema, which were read besides the workflow files."""
    schema: Schema | None = None
    """The schema to which payloads of submissions have to conform; None: any payload is accepted."""

    def items_of(self, definition: TaskDefinition) -> tuple[Item, ...] | None:
        """The items of a task's list; None: it has no list. A list of a submission is empty in a run
        without one.
        """
        if definition.foreach is None:
            return None
        if definition.foreach.is_of_submission:
            return self.lists.get(definition.foreach.items, ())
        return self.lists[definition.foreach.items]

    def with_lists(self, handed: Mapping[str, tuple[Item, ...]]) -> Workflow:
        """The workflow with a run's own lists, by `Foreach.items`. If the list of
        `Foreach.at_each_revision` is among them, tasks with a list from this file get it.
        """
        if not handed:
            return self

        def over(definition: TaskDefinition) -> TaskDefinition:
            if definition.foreach is None or definition.foreach.file is None:
                return definition
            found = definition.foreach.at_each_revision()
            return replace(definition, foreach=found) if found.items in handed else definition

        return replace(self, tasks=tuple(map(over, self.tasks)), lists={**self.lists, **handed})

    @property
    def item_tasks(self) -> int:
        """The number of tasks that a run has for items, beside one for each definition."""
        return sum(len(self.items_of(one) or ()) for one in self.tasks)


@dataclass(frozen=True, slots=True)
class Schema:
    """The JSON Schema to which payloads of submissions have to conform. ``path``: its file in the
    archive. ``content``: the parsed JSON.
    """

    path: str
    content: Any


ASSUMED_GONE: Final = "assumed to be gone"
"""The message of a lost attempt whose process a person has confirmed to be gone. `` by `` and the
person follow.
"""
CANCELED_BY: Final = "canceled by "
"""The fault of a backfill that a person has canceled. The person follows."""


class End(StrEnum):
    """How an attempt ended, as the task manager saw it."""

    EXITED = "exited"
    TIMED_OUT = "timed-out"
    STOPPED = "stopped"
    """It was asked to end (a cancellation, a restart, a shutdown) and is proved gone; or its host
    could not start it.
    """
    NOT_STARTED = "not-started"
    """The workspace could not be made, or the program could not be started; ``message`` says why."""
    NOT_PERMITTED = "not-permitted"
    """The settings of its archive do not permit what it asks for: it cannot start until a person has
    changed them. ``message`` says which.
    """
    UNREACHABLE = "unreachable"
    """Its repository could not be read. That is not the task's fault: it is tried again later (design
    2).
    """
    WITHHELD = "withheld"
    """Its host does not start it until an administrator has solved a problem: it is tried again
    later.
    """
    LOST = "lost"
    """Its task manager is gone, as queue managers or the next task manager of the host report; or
    the engine ended its container.
    """


@dataclass(frozen=True, slots=True)
class Usage:
    """The resources that an attempt used. ``processor_seconds``: user and system time together.

    ``peak_memory_bytes``: that of the largest process of a tree of processes, or of a whole
    container; None: it is not known. ``sampled``: the figures were read while the attempt ran, as
    with containers, so the attempt used at least as much.
    """

    processor_seconds: float
    peak_memory_bytes: int | None
    sampled: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one attempt. ``exit_code``: 128 + n for a signal n; None: no program ran.

    ``ran``: seconds since the program began, in case its beginning was not recorded; None: that is
    not known. ``usage``: None if it is not known. ``archive``: the archive of its task, which whoever
    claimed the task knows; None: it is looked up.
    """

    attempt: AttemptId
    end: End
    exit_code: int | None = None
    message: str = ""
    outputs: dict[str, Any] | None = None
    ran: float | None = None
    usage: Usage | None = None
    archive: ArchiveId | None = None


class Receipt(StrEnum):
    """The result of the report of an outcome."""

    RECORDED = "recorded"
    ALREADY_RECORDED = "already recorded"
    NOT_YOURS = "not yours"
    """The attempt has another end, or belongs to another process: the report changed nothing."""
    BUSY = "busy"
    """Another transaction has locked the archive: the report changed nothing, and has to be repeated."""


class Registration(NamedTuple):
    """A registered archive, as far as its tasks need it. ``stored``: its settings as JSON.
    ``corrections``: the number of corrections of its revisions.
    """

    id: int
    name: str
    kind: ArchiveKind
    url: str
    uuid: str
    stored: str
    corrections: int = 0

    @property
    def settings(self) -> ArchiveSettings:
        """The settings. Each attempt reads its own, so that settings that cannot be read, for
        example of a newer version, affect no other task of the same claim. Raises ``Conflict``.
        """
        return read_settings(self.stored, self.name)


class Claim(NamedTuple):
    """One claimed task, with the data that its attempt needs, as they were at the claim. A tuple,
    because a frozen dataclass of so many fields takes three times as long to make.
    """

    task: TaskId
    attempt: AttemptId
    attempt_number: int
    name: str
    item: str
    definition: int
    archive: Registration
    branch: str
    main: bool
    number: int
    run: int
    trigger: str
    revision: str
    author: str
    date: str
    """The revision's date in ISO 8601."""
    message: str
    previous: str | None
    generation: int
    base: str | None
    kind: AttemptKind = AttemptKind.RUN
    item_body: str = ""
    """The item as JSON; empty: the task has none."""
    early: int | None = None
    """The number of the last revision of the branch whose date was in the future when it was read;
    None: there is none.
    """

    @property
    def recorded(self) -> Revision:
        """The revision as the ledger has it, with the fields that identify it."""
        return Revision(self.revision, self.number, self.author, datetime.fromisoformat(self.date), "")


@dataclass(frozen=True, slots=True)
class Finished:
    """The results of reported ends. ``claims``: the tasks that were claimed with them. ``is_more``:
    True if more tasks may be ready.
    """

    receipts: dict[AttemptId, Receipt]
    claims: list[Claim] = field(default_factory=list)
    is_more: bool = True


@dataclass(frozen=True, slots=True)
class Renewed:
    """The attempts that still belong to this process. ``asked``: each with its request to stop
    (None, ``cancel``, ``restart``). ``kept``: those whose leases were not renewed, because their
    ends are being recorded.
    """

    asked: dict[AttemptId, str | None]
    kept: frozenset[AttemptId] = frozenset()


@dataclass(frozen=True, slots=True)
class Scratch:
    """The scratch folder of a run or of an item. ``id``: its name. ``store``: the id of its host, or
    of the shared folder that has it. ``is_made``: True if it was made. ``is_removed``: True if it
    was removed for good.
    """

    id: int
    store: str
    is_made: bool = False
    is_removed: bool = False


class Unneeded(NamedTuple):
    """The folders that a store has to remove, by id. ``is_partial``: True if folders of busy archives
    were left to another call.
    """

    folders: set[int]
    is_partial: bool


@dataclass(frozen=True, slots=True)
class Live:
    """An attempt that has no end yet. ``outlives``: it may go on without its task manager."""

    attempt: AttemptId
    process: str
    outlives: bool


@dataclass(frozen=True, slots=True)
class Adopted:
    """An attempt that its host's next task manager has taken over.

    ``age``: seconds since its program began. ``stop``: the request to stop that came meanwhile
    (``cancel``, ``restart``). ``log_bytes``: the position at which its log continues. ``stored``:
    the bytes of each stream of its program that are part of that log. ``log_lines``: the line ends
    among them.
    """

    claim: Claim
    stop: str | None
    age: float
    log_bytes: int
    stored: Mapping[Stream, int]
    log_lines: int = 0


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Bytes that a task has written to one stream. ``position``: that of the first byte in the log.
    ``at``: seconds since 1970. ``before``: the line ends of the task's output before these bytes,
    with those that were left out; None: not counted.
    """

    position: int
    stream: Stream
    at: float
    data: bytes
    before: int | None = None


@dataclass(frozen=True, slots=True)
class LogAppend:
    """The next chunks of one attempt's log. ``size``: the bytes of the log up to their end, dropped
    ones included. ``stdout``, ``stderr``: the number of these from each stream of the program.
    """

    attempt: AttemptId
    chunks: Sequence[LogChunk]
    size: int
    stdout: int
    stderr: int


@dataclass(frozen=True, slots=True)
class LogCut:
    """The middle of one attempt's log, which is to be deleted: the chunks whose position is at least
    ``head`` and less than ``tail``.
    """

    attempt: AttemptId
    head: int
    tail: int
