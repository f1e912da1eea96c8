"""The environment of a task's process (design 3, "In a task"): nothing of the task manager's own is in it."""

from __future__ import annotations

import os
import pwd

from arkqueue.model import TaskDefinition
from arkqueue.queue.claim import Claim
from arkqueue.workspace import Workspace

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PREFIX = "ARKQUEUE_"


def environment(
    claim: Claim, definition: TaskDefinition, archive: str, workspace: Workspace, user: str | None
) -> dict[str, str]:
    """All variables of an attempt. A task's own ``env`` may replace what stands before it here, never what says which task this is."""
    values = {"PATH": PATH, "LANG": "C.UTF-8", "TMPDIR": str(workspace.tmp), "CI": "true"}
    values |= _identity(user) | definition.env
    if workspace.path_first is not None:
        values["PATH"] = f"{workspace.path_first}:{values['PATH']}"
    values["ARKQUEUE"] = "1"
    about = {
        "ARCHIVE": archive,
        "BRANCH": claim.branch,
        "REVISION": claim.revision,
        "NUMBER": str(claim.number),
        "PREVIOUS": claim.previous or "",
        "BASE": claim.base or "",
        "TASK": claim.name,
        "RUN": str(claim.run),
        "ATTEMPT": str(claim.attempt_number),
        "TRIGGER": claim.trigger,
        "ITEM": claim.item,
        "INPUTS": str(workspace.inputs),
        "OUTPUT": str(workspace.output),
    }
    return values | {PREFIX + name: value for name, value in about.items()}


def _identity(user: str | None) -> dict[str, str]:
    """Who the task is; a user that does not exist is told by the executor."""
    try:
        entry = pwd.getpwnam(user) if user is not None else pwd.getpwuid(os.geteuid())
    except KeyError:
        return {"HOME": "/"}
    return {"HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name, "SHELL": "/bin/sh"}
