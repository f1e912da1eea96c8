"""What a task manager may ask of the queue, and what each call promises.

Any thread may make any call. No call waits for ever.

*Errors.* Every call but ``bell`` may raise DatabaseUnavailable: the queue did not answer, and the caller cannot know whether the call was carried out.
The caller tries again, as every call may be repeated. Three of them leave something to look after: attempts that were claimed or adopted by a call
whose answer was lost are among ``live``, with the gateway's own process. The first are handed back, the second adopted once more. Any other exception
is a fault of arkqueue or of stored data. That an attempt is not ours any more is never an exception: the answer of the call says so.

*The fence.* An attempt belongs to the process that claimed or adopted it until its end is recorded or another process has got it. A call writes to
attempts of the gateway's own process alone. There are two exceptions: ``expire`` ends attempts of earlier processes of the host, and ``started``
notes a time for any live attempt.
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
)
from arkqueue.runtime.wakeup import Bell

Topic = Literal["ready", "stop"]
"""The wake-ups of a task manager: tasks may be ready, or an attempt may have been asked to stop."""


class Gateway(Protocol):
    """The queue, as one process of a task manager sees it. ``process``: the id of the process, new at each start. ``host``: the id of its host."""

    @property
    def process(self) -> str: ...

    @property
    def host(self) -> str: ...

    # -- who is there ------------------------------------------------------------------------------------------------

    def register(
        self, hostname: str, slots: int, account: str, fault: str | None, engine_fault: str | None, low_disk: str | None
    ) -> None:
        """Say that this process is here, once and then again and again: after ``SILENCE`` without a word it counts as gone.

        ``account``: the user of its host that it runs as, ``root`` for the superuser whatever its name is there. ``fault``: why this host can start no
        tasks for now; ``engine_fault``: why it can start no containers. None: it can. ``low_disk``: which disk has so little room that it claims
        nothing; None: there is room.
        """

    def unregister(self) -> None:
        """Say that this process has stopped."""

    def expire(self, gone: Collection[AttemptId] = ()) -> list[str]:
        """End the attempts of earlier processes of this host, and count these processes as stopped; return the names of the ended attempts.

        Only who holds the locks of the home folder may call it: they prove that no earlier process is left. Attempts that outlive their task manager
        are ended only where they are in ``gone``: those of which no container is left.
        """

    # -- getting attempts, and giving them back ----------------------------------------------------------------------

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
        """End attempts of this process that have not begun; their tasks are ready for others. ``reason``: words for people.

        False: an archive was busy, so that attempts are left to be handed back.
        """

    # -- what attempts are made from ---------------------------------------------------------------------------------

    def definitions(self, ids: Sequence[int]) -> dict[int, dict[str, Any]]:
        """Frozen definitions by id, as the JSON that ``workflow.from_json`` reads. They never change."""

    def inputs(self, tasks: Sequence[TaskId]) -> dict[TaskId, dict[str, Any]]:
        """The newest outputs of what each task depends on, by the dependency's name; a task without any is left out."""

    def submission(self, task: TaskId) -> Handed | None:
        """The submission that a task's run was made for; None: it was made for none."""

    def payload_part(self, task: TaskId, position: int) -> bytes | None:
        """A part of its payload, counted from 0; None: there are no more. It does not change."""

    def report(self, task: TaskId) -> dict[str, Any]:
        """The report that the command of a REPORT gets as INPUTS, as ``docs/report.schema.json`` describes it. It does not change from now on."""

    def base(self, attempt: AttemptId) -> Revision | None:
        """The revision of the ledger that an attempt has as its base, as far as that proves which one it is; None: it has none."""

    def early(self, attempt: AttemptId) -> dict[str, int]:
        """When the last revisions of an attempt's branch were read whose dates were to come then, by their ids, in nanoseconds since 1970."""

    def scratch(self, attempt: AttemptId, *, may_begin: bool) -> Scratch | None:
        """The scratch folder of an attempt's run or item. The first attempt that asks decides that it is in our store, if that ``may_begin`` another one.

        None: the attempt is not ours any more, or there is no folder yet.
        """

    def scratch_made(self, folder: int) -> None:
        """Note that a scratch folder is there, by its id: from now on, one that is missing is lost."""

    def scratch_lost(self, folder: int) -> None:
        """Note that a scratch folder which was there is gone, by its id."""

    def scratch_unneeded(self, folders: Sequence[int]) -> set[int]:
        """Those of this store's scratch folders that are to be removed: their run or item is over,
        or nobody knows them.
        """

    def attachments_unneeded(self, folders: Sequence[int]) -> set[int]:
        """The folders of attachments, of those on our disk, that can be removed: nobody continued the upload, its run was deleted or purged, or the database does not know them."""

    def scratch_measured(self, sizes: Mapping[int, int]) -> None:
        """Note how many bytes scratch folders take."""

    def installation(self) -> str:
        """The id of this installation, the same for all that share its database."""

    def doubt(self, archive: int) -> None:
        """Have an archive's repository looked at: an attempt found another revision there than the ledger has."""

    # -- the life of an attempt --------------------------------------------------------------------------------------

    def reserve(self, attempt: AttemptId, image: str, adopt_within: float) -> bool:
        """Say that an attempt is about to outlive its task manager, in a container of ``image``; False: it is not ours any more.

        From then on it stays reserved for this host for ``adopt_within`` seconds after its lease.
        """

    def started(self, ages: Mapping[AttemptId, float]) -> None:
        """Note that the programs of attempts have begun, so many seconds ago."""

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
        """Both at once, so that a task which only waited for one of these ends can begin without another question.

        Ends of archives that are busy now are ``BUSY``. Nothing is claimed where all of them are. No other call may claim meanwhile.
        """

    # -- leases, requests to stop, wake-ups --------------------------------------------------------------------------

    def renew(self, attempts: Sequence[AttemptId], lease: float) -> Renewed:
        """Renew leases: they end ``lease`` seconds from now. An attempt that is missing in the
        answer no longer belongs to this process.

        An attempt whose end is just being recorded is not waited for: its lease stays as it is
        (``kept``).
        """

    def stops(self) -> dict[AttemptId, str]:
        """The attempts of this process that were asked to stop, with what they were asked for: ``cancel`` or ``restart``."""

    def bell(self, topic: Topic) -> Bell:
        """A bell that rings soon after something has happened, as long as the caller keeps it. It may ring for nothing, or not at all: who waits polls, too."""

    # -- logs --------------------------------------------------------------------------------------------------------

    def append_log(self, appends: Sequence[LogAppend]) -> set[AttemptId]:
        """Store the next chunks of some logs; returns the attempts that still belong to the
        gateway's process. Nothing is stored for the others, and their earlier chunks stay.
        """

    def cut_log(self, cuts: Sequence[LogCut]) -> None:
        """Delete the middle of some logs."""


Opener = Callable[[str, str, str], Gateway]
"""Opens the gateway of one process: the process's id, its host's id, and that of the store of its scratch folders."""
