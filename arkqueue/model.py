"""The words of design section 1 as types; shared by every module, depending on none.

Nothing here knows a database, a file or a clock.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, NewType

from arkqueue.text import name_visible, on_one_line

ArchiveId = NewType("ArchiveId", int)
BranchId = NewType("BranchId", int)
RunId = NewType("RunId", int)
TaskId = NewType("TaskId", int)
AttemptId = NewType("AttemptId", int)

LEAST_PRIORITY, USUAL_PRIORITY, GREATEST_PRIORITY = 0, 50, 1000
"""Priorities of tasks: lower numbers go first."""
PRIORITY = "arkqueue.priority"
"""The output by which a task sets the priority of what follows it in its run."""
RETRY_AFTER = "arkqueue.retry_after"
"""The output by which a task that ends with 75 says after how many seconds it is to be tried again."""

USUAL_TIER = 5
"""The tier of an archive that is set before no other and behind none."""

COMMIT = "COMMIT"
REPORT = "REPORT"
PREV = "PREV"
OWN = "self"
"""The name under which a poll finds the outputs of its own task among its INPUTS."""

CHANGES = "ARKQUEUE_CHANGES"
"""The variable that names the list of what differs from BASE."""
SUBMISSION = "ARKQUEUE_SUBMISSION"
"""The variable that names the payload of the submission that a run was made for."""


def as_priority(value: object) -> int | None:
    """The priority that an output says; None: it says none. A line of OUTPUT is text, a value of JSON may be a number."""
    if isinstance(value, bool) or not isinstance(value, int | str) or not (text := str(value)).isdecimal():
        return None
    return (
        number
        if text.isascii() and len(text) <= 9 and LEAST_PRIORITY <= (number := int(value)) <= GREATEST_PRIORITY
        else None
    )


def as_retry_after(value: object) -> float | None:
    """The seconds that an output asks for, at least one and at most a year; None: it asks for no time."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    text = str(value)
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text, re.ASCII):
        return None
    return min(max(float(text), SHORTEST_DEFERRAL), LONGEST_DURATION)


class Key(NamedTuple):
    """The name of a task inside its run and, if its list has a task for each item, the item's key."""

    name: str
    item: str = ""


class Item(NamedTuple):
    """One entry of a list. ``key``: what identifies it in the list. ``body``: the item as JSON."""

    key: str
    body: str


LONGEST_KEY = 200
"""Characters of an item's key."""
LONGEST_ITEM = 64 * 2**10
"""Bytes of an item as JSON: a task gets it in a variable."""
MOST_ITEMS = 10_000
"""Items of a list, where the configuration's ``items_limit`` says nothing else."""
LONGEST_LIST = 64 * 2**20
"""Bytes of a file that holds a list, and of all items of a revision as JSON."""


class ArchiveKind(StrEnum):
    SUBVERSION = "subversion"
    GIT = "git"


class Trigger(StrEnum):
    """Why a run exists."""

    COMMIT = "commit"
    MANUAL = "manual"
    SCHEDULE = "schedule"
    SUBMISSION = "submission"


class PayloadKind(StrEnum):
    """How a submission's payload is written."""

    JSON = "json"
    YAML = "yaml"
    CSV = "csv"
    LINES = "lines"


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that is handed in beside a payload. ``name``: its path among the others; ``size``: bytes; ``digest``: SHA-256, in hexadecimal digits."""

    name: str
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class Attached:
    """Where the attachments of a run are: the folder that has this number. ``is_removed``: they were there, and are no more."""

    folder: int
    is_removed: bool


@dataclass(frozen=True, slots=True)
class Handed:
    """The submission that a task's run was made for, without its payload. ``sender_id``: by which its sender knows it; None: by none. ``attached``: None where it has no attachments."""

    kind: PayloadKind
    sender_id: str | None
    attached: Attached | None = None


LONGEST_PAYLOAD = 64 * 2**20
"""Bytes of a submission's payload."""
MOST_ATTACHMENTS = 10_000
"""Files that one submission has beside its payload."""
LONGEST_SENDER_ID = 200
"""Characters of the id by which a sender knows a submission."""


class TaskKind(StrEnum):
    """Where a task of a run comes from."""

    COMMIT = "commit"
    REPORT = "report"
    GATE = "gate"
    """Made by arkqueue, so that the edges of ``PREV:*`` do not multiply."""
    ORDINARY = "ordinary"
    """From a workflow file; it may have no program."""


class AttemptKind(StrEnum):
    """What an attempt runs."""

    RUN = "run"
    """The task's command."""
    POLL = "poll"
    """What asks for the outcome of a deferred task, in place of its command (design 5.29)."""


class EdgeKind(StrEnum):
    DEPENDS = "depends"
    CANCELS = "cancels"


class When(StrEnum):
    """What meets a ``depends`` edge (design 5.6, 5.8, 5.9)."""

    COMPLETED = "completed"
    SETTLED = "settled"
    FAILED = "failed"
    """Failed or rejected; a source that ends otherwise skips the dependent."""


class Stream(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"
    NOTE = "note"
    """What arkqueue itself says in a task's log."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Which task made a commit (design 5.15). ``generation`` counts the commits of the chain, the first by a task is 1."""

    task: str
    generation: int


@dataclass(frozen=True, slots=True)
class Revision:
    """One revision as the repository tells it; ``date`` is aware, ``number`` is the ledger's number (design 1)."""

    id: str
    number: int
    author: str
    date: datetime
    message: str
    origin: Origin | None = None
    oversized: str = field(default="", compare=False)
    """What of it was longer than the ledger takes, and is cut; empty: nothing. The ledger does not keep it, but the fault of its run."""
    paths_digest: str = field(default="", compare=False)
    """A digest of which paths a Subversion revision changes, and how; empty: it is not known, or a Git commit, whose id says it. `archive accept` compares it."""


LABEL = r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}"
"""What a label of a task manager looks like."""
MOST_LABELS = 8
"""Labels that one task may want."""


INSTALLATION = ArchiveId(0)
"""Whose the locks are that no archive has for itself."""
GLOBAL = "global"
"""What the names of locks of the whole installation begin with: ``global/NAME``."""
LONGEST_LOCK = 200
"""Characters that the name of a lock may have."""
MOST_LOCKS = 16
"""Locks that one task may name."""
MOST_CAPACITY = 1_000_000
"""Tasks that a person can let have one lock at once; more is unlimited."""


class Pool(StrEnum):
    """Which kind of task manager a task needs."""

    PROCESS = "process"
    CONTAINER = "container"


class Occasion(StrEnum):
    """What a receiver of notifications can be told of: what became of a run, or that its archive was stopped (design 15)."""

    FAILED = "failed"
    FIXED = "fixed"
    HELD = "held"
    COMPLETED = "completed"
    STOPPED = "stopped"


AUTHOR = "author"
"""The receiver that stands for whoever made the commit of a run."""
OF_BRANCH = "branch="
"""What stands before a glob of branches, among the occasions of a receiver."""
USUAL_OCCASIONS = (Occasion.FAILED, Occasion.FIXED, Occasion.HELD, Occasion.STOPPED)
"""What a receiver is told of where nothing else is said."""


@dataclass(frozen=True, slots=True)
class ArchiveSettings:
    """How one archive is looked after; a person sets it, with ``archive add`` or later.

    ``branches``: globs of the Git branches that are tracked (none: the main branch). ``process``: whether its tasks may run as processes on a task manager's
    host, as the operating system's user ``process_user`` (None: the task manager's own). ``author``: who commits for its tasks. ``task_url``: where working copies
    commit to (None: the archive's own URL). ``follow``: URL prefixes of what working copies fetch beside the archive (none: nothing).

    ``image``: the container image of tasks that name none (None: those run as processes, where that is allowed). ``images``, ``users`` and ``networks``: globs of
    what its tasks may name (none: every image, every user of the image, the networks ``bridge`` and ``none``).

    ``require_approval``: globs of the tasks that are held until somebody with a token of scope `approve` releases them; ``approval_not_author``: nobody who is the
    author of their revision (design 5.22). ``workflow_authors``: globs of the authors who may change workflow files; what others change is held.
    ``tier``: archives of a lower one go first at claims. ``max_running``: how many of its attempts run at once (None: as many as there is room for).

    ``keep``: how long runs are kept after they reached a state, by the state: ``{"completed": "30d"}`` (none: for ever). ``keep_logs``: the same of logs alone (5.27).
    ``notify``: who is told of the archive and its runs, and on which occasions (`Occasion`), and of which branches: ``{"ann@example.org": ["failed", "fixed", "branch=main"]}`` (15).
    """

    branches: tuple[str, ...] = ()
    process: bool = False
    process_user: str | None = None
    author: str | None = None
    task_url: str | None = None
    follow: tuple[str, ...] = ()
    image: str | None = None
    images: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    require_approval: tuple[str, ...] = ()
    approval_not_author: bool = False
    workflow_authors: tuple[str, ...] = ()
    tier: int = USUAL_TIER
    max_running: int | None = None
    keep: Mapping[str, str] = field(default_factory=dict)
    keep_logs: str | None = None
    notify: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A workflow file as the repository holds it; ``text`` is bytes because it may not be UTF-8. ``fault``: why there is nothing to read."""

    path: str
    text: bytes = b""
    fault: str = ""


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """What is wrong with a workflow file, where, and what would be right. ``line`` and ``column`` count from 1; 0 means the whole file."""

    path: str
    line: int
    column: int
    message: str
    word: str = ""
    suggestion: str = ""

    def __str__(self) -> str:
        path = name_visible(self.path)
        where = f"{path}:{self.line}:{self.column}" if self.line else path
        return f"{where}: {on_one_line(self.message)}" + (
            f" (did you mean {self.suggestion!r}?)" if self.suggestion else ""
        )


@dataclass(frozen=True, slots=True)
class Depends:
    """One ``depends`` entry. ``task`` None: the task itself (PREV) or every one (``PREV:*`` has ``task == "*"``).

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
    """Automatic retries after a failure: at most ``max``, the first after ``delay`` seconds, each later one ``factor`` times later."""

    max: int = 0
    delay: float = 10.0
    factor: float = 2.0


@dataclass(frozen=True, slots=True)
class Poll:
    """How to learn what became of a deferred task: what is run in place of its command, every so many seconds, each time for ``timeout`` at most."""

    command: str | tuple[str, ...] | None = None
    script: str | None = None
    every: float = 300.0
    timeout: float = 300.0


_AT_EACH_REVISION = "revision:"


@dataclass(frozen=True, slots=True)
class Foreach:
    """A list: its task has one task for each item. Two tasks are over the same list where their ``Foreach`` are equal.

    ``file``: the file of the archive that holds the list (None: it is written in the workflow file). ``key``: the field that identifies an item (None: the first of ``key``, ``id`` and ``name`` that an item has). ``items``: a digest of the items, by which
    `Workflow.lists` has them: a definition is shared by all items of its task, and does not repeat them. Of the items of a submission, which each run has for itself, it says so in place of a digest.
    """

    items: str
    key: str | None = None
    file: str | None = None
    count: int | None = field(default=None, compare=False)
    """How many items it has; None: each run has the items for itself, or an older version stored it."""

    @classmethod
    def of_submission(cls, key: str | None) -> Foreach:
        """The items of whichever submission a run is made for."""
        return cls(f"{Trigger.SUBMISSION}:{key or ''}", key)

    @property
    def is_of_submission(self) -> bool:
        return self == self.of_submission(self.key)

    def at_each_revision(self) -> Foreach:
        """The items of a file as it is at whichever revision a run of a backfill has."""
        return replace(self, items=f"{_AT_EACH_REVISION}{self.key or ''}:{self.file}", count=None)

    @property
    def is_of_run(self) -> bool:
        """Whether each run has the items for itself, and not each revision."""
        return self.is_of_submission or self.items.startswith(_AT_EACH_REVISION)


class Pull(StrEnum):
    """When an image is fetched from its registry."""

    MISSING = "missing"
    ALWAYS = "always"
    NEVER = "never"


LONGEST_RENEWAL = 10.0
"""Seconds between two renewals of a task manager's leases, at most."""
SILENCE = 3 * LONGEST_RENEWAL
"""Seconds after which a task manager that says nothing may be assumed to be gone."""
LONGEST_GLOB = 1000
"""Characters of one glob of a workflow file."""
MOST_GLOBS = 1000
"""Globs of one field of a workflow file."""
LONGEST_DURATION = 366 * 86400.0
"""Seconds: the longest time that a workflow or the configuration may name."""
SHORTEST_DEFERRAL = 1.0
"""Seconds that a deferred task waits at least, whatever it says itself."""
LEAST_MEMORY = 6 << 20
"""Bytes; a container engine refuses to give less."""
MOST_PIDS = 4_194_304
"""The kernel knows no more."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What a container may use; None: the installation's default. ``cpu`` counts processors, ``memory``, ``shm`` and each ``tmpfs`` are bytes.

    ``tmpfs``: paths in the container that are kept in memory. ``read_only``: the image's own files cannot be written.
    """

    cpu: float | None = None
    memory: int | None = None
    pids: int | None = None
    shm: int | None = None
    tmpfs: dict[str, int] = field(default_factory=dict)
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class MountUse:
    """A persistent folder or volume that the configuration grants under a name, and where the task wants it."""

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
    """What happened to a file between two revisions. A moved file is deleted at one path and added at another."""

    ADDED = "added"
    MODIFIED = "modified"
    """Its text, its mode, its kind or a property of its own differs."""
    DELETED = "deleted"


class FileChange(NamedTuple):
    """A file that differs between two revisions. ``path``: from the archive's root; bytes that are not UTF-8 are surrogate escapes (PEP 383)."""

    status: ChangeStatus
    path: str


@dataclass(frozen=True, slots=True)
class TreeChange:
    """How an update changed a plain tree: the paths that it made, and by how many bytes the tree has grown.

    ``began``: when the first change was about to be made, by `STAMPS`; None: nothing was changed. ``entered``: the folders in which something was changed, by when
    each of them had been changed last (`st_ctime_ns`); where several have the same time, one of them stands for all.
    """

    made: tuple[bytes, ...]
    grown: int
    began: int | None = None
    entered: Mapping[int, bytes] = field(default_factory=dict)


STAMPS = 5
"""CLOCK_REALTIME_COARSE, by which the kernel stamps files; it is a little behind the clock that it stands for."""


class Checkout(StrEnum):
    TREE = "tree"
    WORKING_COPY = "working-copy"
    NONE = "none"
    PATHS = "paths"


@dataclass(frozen=True, slots=True)
class TaskDefinition:
    """One task of a revision's workflow, complete with defaults. Made by ``workflow``; planned by ``plan``; frozen in the run (design 3).

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
        """Whether the task gets ``ARKQUEUE_CHANGES``: it asks for them, or names the variable."""
        return self.changes or self._names(CHANGES)

    @property
    def wants_submission(self) -> bool:
        """Whether the task gets ``ARKQUEUE_SUBMISSION``: it is not for an item alone, or names the variable."""
        return not (self.foreach is not None and self.foreach.is_of_submission) or self._names(SUBMISSION)

    def _names(self, variable: str) -> bool:
        """Whether what the task runs, or its ``env``, names a variable."""
        command = self.command if isinstance(self.command, str) else "\0".join(self.command or ())
        return any(variable in text for text in (command, self.script or "", *self.env.values()))


@dataclass(frozen=True, slots=True)
class Workflow:
    """All workflow files of one revision: their tasks in the order of files and lines, or their faults (then no tasks)."""

    tasks: tuple[TaskDefinition, ...] = ()
    faults: tuple[Fault, ...] = ()
    lists: Mapping[str, tuple[Item, ...]] = field(default_factory=dict)
    """The items that `Foreach.items` stands for."""
    list_files: tuple[str, ...] = ()
    """The files that were read for lists and for a schema: what the workflow is follows from them, too."""
    schema: Schema | None = None
    """What payloads of submissions are to fit; None: anything does."""

    def items_of(self, definition: TaskDefinition) -> tuple[Item, ...] | None:
        """The items that a task has a task for; None: it has no list. There are none of a submission where the run is made for none."""
        if definition.foreach is None:
            return None
        if definition.foreach.is_of_submission:
            return self.lists.get(definition.foreach.items, ())
        return self.lists[definition.foreach.items]

    def with_lists(self, handed: Mapping[str, tuple[Item, ...]]) -> Workflow:
        """With lists that a run has for itself, by `Foreach.items`. Tasks over a file take that of `Foreach.at_each_revision` where it is among them."""
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
        """The tasks that a run has for items, beside one for each definition."""
        return sum(len(self.items_of(one) or ()) for one in self.tasks)


@dataclass(frozen=True, slots=True)
class Schema:
    """The JSON Schema that payloads of submissions are to fit. ``path``: its file in the archive; ``content``: as JSON has it."""

    path: str
    content: Any


class End(StrEnum):
    """How an attempt ended, as the task manager saw it."""

    EXITED = "exited"
    TIMED_OUT = "timed-out"
    STOPPED = "stopped"
    """It was asked to end (a cancellation, a restart, a shutdown) and is proved gone, or its host could not begin it."""
    NOT_STARTED = "not-started"
    """The workspace or the program could not be had; ``message`` says why."""
    UNREACHABLE = "unreachable"
    """Its repository could not be read, which is nobody's verdict on the task: it is tried again later (design 2)."""
    WITHHELD = "withheld"
    """Its host does not start it until an administrator has seen to something: it is tried again later."""
    LOST = "lost"
    """Its task manager is gone; said by queue managers, and by the next task manager of the host. Or its container's engine ended it."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The resources that an attempt used. ``processor_seconds``: user and system time together.

    ``peak_memory_bytes``: of the process that had the most of a tree of processes, or of a whole container; None: not known.
    ``sampled``: the figures were read while the attempt ran, as those of containers are, so that it used at least as much.
    """

    processor_seconds: float
    peak_memory_bytes: int | None
    sampled: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one attempt. ``exit_code`` is 128 + n for a signal n, None where no program ran.

    ``ran``: seconds since the program began; it counts where its beginning was not recorded. ``usage``: None where nothing is known of it.
    """

    attempt: AttemptId
    end: End
    exit_code: int | None = None
    message: str = ""
    outputs: dict[str, Any] | None = None
    ran: float | None = None
    usage: Usage | None = None


class Receipt(StrEnum):
    """What became of a reported outcome."""

    RECORDED = "recorded"
    ALREADY_RECORDED = "already recorded"
    NOT_YOURS = "not yours"
    """The attempt has another end, or belongs to another process: what was reported changed nothing."""
    BUSY = "busy"
    """Another transaction has locked the archive: nothing was changed, and the end is to be reported again."""


@dataclass(frozen=True, slots=True)
class Registration:
    """An archive as it is registered, as far as its tasks are concerned. ``stored``: its settings as JSON. ``corrections``: how often a revision of it was corrected."""

    id: int
    name: str
    kind: ArchiveKind
    url: str
    uuid: str
    stored: str
    corrections: int = 0

    @property
    def settings(self) -> ArchiveSettings:
        """The settings, read by the attempt itself: what cannot be read, of a newer version say, harms no other task of the same claim."""
        return ArchiveSettings(**json.loads(self.stored))


@dataclass(frozen=True, slots=True)
class Claim:
    """One claimed task, with all that its attempt needs to know, as it was when the task was claimed."""

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
    """Of the revision, as ISO 8601 says it."""
    message: str
    previous: str | None
    generation: int
    base: str | None
    kind: AttemptKind = AttemptKind.RUN
    item_body: str = ""
    """The item as JSON; empty: the task has none."""
    early: int | None = None
    """The number of the last revision of the branch whose date was to come when it was read; None: there is none."""

    @property
    def recorded(self) -> Revision:
        """The revision as the ledger has it, as far as that proves which one it is."""
        return Revision(self.revision, self.number, self.author, datetime.fromisoformat(self.date), "")


@dataclass(frozen=True, slots=True)
class Finished:
    """What became of reported ends. ``claims``: what was claimed with them; ``is_more``: there may be more ready tasks than that."""

    receipts: dict[AttemptId, Receipt]
    claims: list[Claim] = field(default_factory=list)
    is_more: bool = True


@dataclass(frozen=True, slots=True)
class Renewed:
    """What is still ours, with what it was asked for (None, ``cancel``, ``restart``).

    ``kept``: those of it whose lease ends when it did, as their end is being recorded.
    """

    asked: dict[AttemptId, str | None]
    kept: frozenset[AttemptId] = frozenset()


@dataclass(frozen=True, slots=True)
class Scratch:
    """The scratch folder of a run or of an item. ``id`` is its name; ``store``: the host, or the shared folder, where it is. ``is_made``: it was there once; ``is_removed``: for good."""

    id: int
    store: str
    is_made: bool = False
    is_removed: bool = False


@dataclass(frozen=True, slots=True)
class Live:
    """An attempt that has no end yet. ``outlives``: it may go on without its task manager."""

    attempt: AttemptId
    process: str
    outlives: bool


@dataclass(frozen=True, slots=True)
class Adopted:
    """An attempt that its host's next task manager has taken over.

    ``age``: seconds since its program began. ``stop``: the request to stop that came meanwhile (``cancel``, ``restart``). ``log_bytes``: the
    position at which its log goes on. ``stored``: how many bytes of each stream of its program are part of that log.
    """

    claim: Claim
    stop: str | None
    age: float
    log_bytes: int
    stored: Mapping[Stream, int]


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Bytes of one stream that a task has written. ``position``: of the first byte in the log. ``at``: seconds since 1970."""

    position: int
    stream: Stream
    at: float
    data: bytes


@dataclass(frozen=True, slots=True)
class LogAppend:
    """The next chunks of one attempt's log. ``size``: the bytes of the log up to their end, dropped ones included; ``stdout`` and ``stderr``: how many
    of them came from each stream of the program."""

    attempt: AttemptId
    chunks: Sequence[LogChunk]
    size: int
    stdout: int
    stderr: int


@dataclass(frozen=True, slots=True)
class LogCut:
    """The middle of one attempt's log that is to be deleted: the chunks whose position is at least ``head`` and less than ``tail``."""

    attempt: AttemptId
    head: int
    tail: int
