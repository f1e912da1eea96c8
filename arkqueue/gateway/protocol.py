"""The calls by which a task manager uses the queue, and what each call guarantees.

Any thread may make any call. No call waits without a limit.

*Errors.* Every call but ``bell`` may raise DatabaseUnavailable: the queue did not answer, and the
caller cannot know whether the call had an effect. Every call may be repeated, so the caller tries
again. If the answer of ``claim``, ``finish_and_claim`` or ``adopt`` was lost, the attempts that it
gave to this process are among ``live``. The caller hands back claimed ones, and adopts adopted ones
again. Any other exception is a fault of arkqueue or of stored data. If an attempt no longer belongs
to this process, that is no exception: the answer of the call says so.

*The fence.* An attempt belongs to the process that claimed or adopted it, until its end is recorded
or another process gets it. A call writes only to attempts of the gateway's own process. There are
two exceptions: ``expire`` ends attempts of earlier processes of the host, and ``started`` notes a
time for any live attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, Protocol

from arkqueue.model import (
    Adopted,
    AttemptId,
    Claim,
    Finished,
    Handed,
    Live,
    LogAppend,
    LogCut,
    Outcome,
    Pool,
    Receipt,
    Renewed,
    Revision,
    Scratch,
    TaskId,
    Unneeded,
)
from arkqueue.runtime.wakeup import Bell

Topic = Literal["ready", "stop"]
"""The wake-ups of a task manager: tasks may be ready, or an attempt may have been asked to stop."""


class Gateway(Protocol):
    """The queue for one process of a task manager. ``process``: the id of the process, new at each
    start. ``host``: the id of its host.
    """

    @property
    def process(self) -> str: ...

    @property
    def host(self) -> str: ...

    # Who is there

    def register(
        self, hostname: str, slots: int, account: str, fault: str | None, engine_fault: str | None, low_disk: str | None
    ) -> None:
        """Report that this process runs. Has to be repeated: after ``SILENCE`` without a report, the
        process counts as gone.

        ``account``: the user of its host as whom it runs, ``root`` for the superuser by any name.
        ``fault``: the reason why this host can start no tasks for now; ``engine_fault``: the reason
        why it can start no containers; None: it can. ``low_disk``: a text about the disk that lacks
        space, so that this process claims nothing; None: no disk lacks space.
        """

    def unregister(self) -> None:
        """Report that this process has stopped."""

    def expire(self, gone: Collection[AttemptId] = ()) -> list[str]:
        """End the attempts of earlier processes of this host, and record that these processes have
        stopped. Returns the names of the ended attempts.

        The caller must hold the locks of the home folder, which prove that no earlier process is
        left. Attempts that outlive their task manager are ended only if they are in ``gone``, the
        attempts without a container.
        """

    # Getting attempts, and giving them back

    def claim(self, slots: int, lease: float, pools: Collection[Pool] = tuple(Pool)) -> list[Claim]:
        """Take up to ``slots`` ready tasks, archives in turn; each begins an attempt that belongs
        to this process for ``lease`` seconds.

        ``pools``: the kinds of tasks that this host can start now. A task that needs a label that
        this task manager lacks, or that has a scratch folder elsewhere, is left to others.
        """

    def live(self) -> list[Live]:
        """All attempts of this host that have no end, whichever process has them."""

    def adopt(self, attempts: Mapping[AttemptId, str], adopt_within: float, lease: float) -> list[Adopted]:
        """Take over attempts whose containers were found on this host, each from the named process.

        An attempt that is missing in the answer has ended, or another process was faster.
        ``adopt_within``: as with ``reserve``.
        """

    def hand_back(self, attempts: Sequence[AttemptId], reason: str) -> bool:
        """End attempts of this process that have not begun; their tasks are ready for other task
        managers. ``reason``: a text for people. Returns False if an archive was busy, so that some
        attempts still have to be handed back.
        """

    # What attempts are made from

    def definitions(self, ids: Sequence[int]) -> dict[int, dict[str, Any]]:
        """Frozen definitions by id, as the JSON that ``workflow.from_json`` reads. They never change."""

    def inputs(self, tasks: Sequence[TaskId]) -> dict[TaskId, dict[str, Any]]:
        """For each task, the newest outputs of the tasks that it depends on, by their names. Tasks
        without any are left out.
        """

    def submission(self, task: TaskId) -> Handed | None:
        """The submission for which a task's run was made; None: it was made for none."""

    def payload_part(self, task: TaskId, position: int) -> bytes | None:
        """A part of the payload of that submission, counted from 0; None: there is no such part. A
        payload never changes.
        """

    def report(self, task: TaskId) -> dict[str, Any]:
        """The report that the command of a REPORT gets as INPUTS, as ``docs/report.schema.json``
        describes it. It does not change any more.
        """

    def base(self, attempt: AttemptId) -> Revision | None:
        """The base revision of an attempt as the ledger has it, with the fields that identify it;
        None: it has none.
        """

    def early(self, attempt: AttemptId) -> dict[str, int]:
        """The times at which the last revisions of an attempt's branch were read whose dates were
        then in the future, by their ids, in nanoseconds since 1970.
        """

    def scratch(self, attempt: AttemptId, *, may_begin: bool) -> Scratch | None:
        """The scratch folder of an attempt's run or item. If there is none yet and ``may_begin`` is
        True, it is recorded as one in the store of this task manager.

        None: the attempt no longer belongs to this process, or there is no folder yet.
        """

    def scratch_made(self, folder: int) -> None:
        """Record that a scratch folder was made. If it is missing from now on, it was lost."""

    def scratch_lost(self, folder: int) -> None:
        """Record that a scratch folder was lost."""

    def scratch_unneeded(self, folders: Sequence[int]) -> Unneeded:
        """The scratch folders that this store has to remove, of the given ones. The run or item of
        such a folder is over, or the database does not know the folder.
        """

    def attachments_unneeded(self, folders: Sequence[int]) -> Unneeded:
        """The folders of attachments that this store may remove, of the given ones. Nobody continued
        such an upload, its run was deleted or purged, or the database does not know the folder.
        """

    def scratch_measured(self, sizes: Mapping[int, int]) -> None:
        """Record the bytes of scratch folders."""

    def installation(self) -> str:
        """The id of this installation, the same for all that share its database."""

    def doubt(self, archive: int) -> None:
        """Ask for a scan of an archive's repository, because an attempt found another revision there
        than the ledger has.
        """

    # The life of an attempt

    def reserve(self, attempt: AttemptId, image: str, adopt_within: float) -> bool:
        """Record that an attempt is about to begin in a container of ``image``, which outlives its
        task manager. From then on the attempt stays reserved for this host for ``adopt_within``
        seconds after its lease. Returns False if it no longer belongs to this process.
        """

    def started(self, ages: Mapping[AttemptId, float]) -> None:
        """Record that the programs of attempts have begun, ``ages`` seconds ago."""

    def finish(self, outcomes: Sequence[Outcome], patience: float = 10.0) -> dict[AttemptId, Receipt]:
        """Record how attempts ended and move their tasks. ``patience``: the seconds to wait for a
        busy archive.

        The receipt of an end that is recorded already is ``ALREADY_RECORDED``. An attempt that no
        longer belongs to this process gets ``NOT_YOURS``. If an archive is busy for longer, the
        receipt is ``BUSY``, and the end has to be reported again.
        """

    def finish_and_claim(
        self, outcomes: Sequence[Outcome], slots: int, lease: float, pools: Collection[Pool] = tuple(Pool)
    ) -> Finished:
        """Record ends and claim in one transaction, so that a task that only waited for one of these
        ends begins at once.

        Ends in archives that are busy now get ``BUSY``. If all do, nothing is claimed. The caller
        makes no other claim meanwhile.
        """

    # Leases, requests to stop, wake-ups

    def renew(self, attempts: Sequence[AttemptId], lease: float) -> Renewed:
        """Renew leases: they end ``lease`` seconds from now. An attempt that is missing in the
        answer no longer belongs to this process.

        An attempt whose end is just being recorded is not waited for: its lease stays as it is
        (``kept``).
        """

    def stops(self) -> dict[AttemptId, str]:
        """The attempts of this process that were asked to stop, each with the request: ``cancel`` or
        ``restart``.
        """

    def bell(self, topic: Topic) -> Bell:
        """A bell that rings soon after an event of the topic, as long as the caller keeps it. It may
        ring without an event, or not ring, so the caller also has to poll.
        """

    # Logs

    def append_log(self, appends: Sequence[LogAppend]) -> set[AttemptId]:
        """Store the next chunks of some logs; returns the attempts that still belong to the
        gateway's process. Nothing is stored for the others, and their earlier chunks stay.
        """

    def cut_log(self, cuts: Sequence[LogCut]) -> None:
        """Delete the middle of some logs."""


Opener = Callable[[str, str, str], Gateway]
"""Opens the gateway of one process. The arguments: the ids of the process, of its host, and of the
store of its scratch folders.
"""
