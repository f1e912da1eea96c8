"""All errors that arkqueue raises on purpose, in one tree.

ArkqueueError                a message for a person: the thing, the fault and the remedy
├── ConfigurationError       the configuration, with all its faults at once
├── NotFound                 no such archive, run, task, revision or attempt
│   └── WasPurged            a run that was purged
├── Conflict                 the state of the thing forbids the action (HTTP 409)
│   ├── HomeTaken            a home folder has a task manager already
│   └── ArchiveRefuses       an archive is stopped or on hold, which forbids the action for all its tasks
├── Invalid                  a malformed request, name or value (HTTP 422)
│   └── InvalidPayload       a submitted payload, with all its faults at once
├── Forbidden                a token, an archive or a host does not allow it (HTTP 403)
│   └── NotPermitted         the settings of an archive do not permit what its task asks for
├── TooLarge                 one revision has more tasks than one transaction can store in its time
├── DatabaseUnavailable      PostgreSQL does not answer; the caller tries again
│   └── Busy                 others have the lock or connection that is needed, and too many wait for it
├── ArchiveError             a repository
│   ├── ArchiveUnreachable   it cannot be read now; tried again with backoff
│   └── ArchiveMismatch      it is not the repository that was registered, or it went back in time: stopped
│       └── ArchiveHarmful   reading it breaks the processes that read repositories: stopped as well
├── HostFault                this host can start no task for the moment: handed back
├── Elsewhere                a task's scratch folder is on another host: handed back
├── WorkspaceError           a task's workspace cannot be made
├── ExecutorError            a task's program cannot be started: no such shell, user, ...
└── Withheld                 a task is not started on this host until an administrator has solved a problem

Expected ends (a non-zero exit, a timeout, a cancellation, a lost lease) are values, never exceptions.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

NO_CALL, NO_FIELD = "there is nothing here", "is not known here"
"""The faults of a request with a call or a field that the server does not know. The command line
tells by them that the server has another version.
"""


class ArkqueueError(Exception):
    """An error about which a person can do something. ``thing``: the thing that is at fault.
    ``fault``: what is wrong with it. ``remedy``: what helps.
    """

    exit_code = 1
    """The exit code of a command that ends with this error, by default."""

    others: Sequence[ArkqueueError] = ()
    """The errors for the other tasks, if this is the error of a verb on many tasks for the first of
    them (design 5.33).
    """

    def __init__(self, thing: str, fault: str, remedy: str = "") -> None:
        self.thing, self.fault, self.remedy = thing, fault, remedy
        super().__init__(f"{thing}: {fault}" + (f". {remedy}" if remedy else ""))


class ConfigurationError(ArkqueueError):
    """The configuration has faults; all of them are listed."""


class NotFound(ArkqueueError):
    """There is no such thing."""


class WasPurged(NotFound):
    """A run was purged. ``by``: who did it."""

    def __init__(self, thing: str, fault: str, by: str) -> None:
        self.by = by
        super().__init__(thing, fault)


class Conflict(ArkqueueError):
    """The state of the thing forbids the action."""


class HomeTaken(Conflict):
    """A home folder has a task manager, or processes that a task manager left behind."""


class ArchiveRefuses(Conflict):
    """The state of an archive forbids the action for all of its tasks."""


class Invalid(ArkqueueError):
    """The request is malformed."""

    exit_code = 2


class InvalidPayload(Invalid):
    """A submission with faults; the error lists all of them."""

    MOST_NAMED = 10

    def __init__(self, thing: str, faults: Sequence[str], *, are_all: bool = True, remedy: str = "") -> None:
        """``are_all`` False: there are more faults, which nobody has looked for. ``remedy``: empty if
        the sender can correct the payload.
        """
        self.faults = list(faults)
        more = len(faults) - self.MOST_NAMED
        named = "; ".join(faults[: self.MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")
        super().__init__(
            thing,
            f"has {len(faults):,}{'' if are_all else ' or more'} fault{'s' * (len(faults) != 1)}: {named}",
            f"Nothing is planned. {remedy or 'Correct it, and submit it again.'}",
        )


class Forbidden(ArkqueueError):
    """A token lacks the scope or the archive that an action needs; or a task asks for something that
    its archive or its host does not allow.
    """


class NotPermitted(Forbidden):
    """A task asks for something that the settings of its archive do not permit. Only other settings
    let it start.
    """


class TooLarge(ArkqueueError):
    """Data that belong together cannot be stored within the time of one transaction."""


class DatabaseUnavailable(ArkqueueError):
    """PostgreSQL does not answer."""


class Busy(DatabaseUnavailable):
    """Other callers hold what is needed: a lock, a connection, or an archive for whose changes too
    many wait. The same call may succeed later.
    """


class ArchiveError(ArkqueueError):
    """A repository could not be used."""


class ArchiveUnreachable(ArchiveError):
    """A repository cannot be read now; reading is tried again with backoff."""


class ArchiveMismatch(ArchiveError):
    """A repository is not the one that was registered, or went back in time; the archive is stopped
    (design 2).
    """


class ArchiveHarmful(ArchiveMismatch):
    """Reading a repository makes its reader process crash, use up its memory, or compute without end;
    the archive is stopped.
    """


class HostFault(ArkqueueError):
    """This host lacks disk space, descriptors or processes to start a task. It is not the task's
    fault, and another host may have them.
    """


HOST_FAULTS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM}
)
"""The system's errors that are a fault of the host, and not of the task."""


def host_fault(error: BaseException | None) -> OSError | None:
    """The message of the system about the host, if that is the cause of an error."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in HOST_FAULTS:
            return error
        error = error.__cause__
    return None


class Elsewhere(ArkqueueError):
    """A task's scratch folder is on another host, which alone can run it."""


class WorkspaceError(ArkqueueError):
    """A task's workspace cannot be made."""


class ExecutorError(ArkqueueError):
    """A task's program cannot be started."""


class EngineFault(ExecutorError):
    """The container engine of this host can start no container for now. It is not the task's fault,
    and the engine of another host may be able to. ``is_away``: True if nothing listens
    at its address.
    """

    is_away = False


class Withheld(ArkqueueError):
    """This host cannot start a task until an administrator has solved the problem that the error
    names. It is not the task's fault, and the task is tried again later.
    """
