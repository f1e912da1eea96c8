"""The environment variables of a task (design 3, "In a task"). None of them is the task manager's.

A process gets all variables from here. A container has the variables of its image, such as PATH;
from here it gets those that say which task this is, and the ``env`` of its definition.
"""

from __future__ import annotations

import os
import pwd
import re
from functools import cache
from pathlib import Path

from arkqueue.model import Claim, Handed, PayloadKind, TaskDefinition
from arkqueue.workspace import Workspace

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PREFIX = "ARKQUEUE_"

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""Matches characters that a committer may put into an author's name, and that would break a line of
text.
"""


def of_process(
    claim: Claim,
    definition: TaskDefinition,
    archive: str,
    workspace: Workspace,
    user: str | None,
    scratch: Path | None = None,
    handed: Handed | None = None,
    attached: Path | None = None,
) -> dict[str, str]:
    """All variables of a process. A task's ``env`` may replace PATH, LANG and the like, but no
    variable that says which task this is.
    """
    values = {"PATH": PATH, "LANG": "C.UTF-8", "TMPDIR": str(workspace.tmp), "CI": "true"}
    values |= _identity(user) | definition.env
    if workspace.path_first is not None:
        values["PATH"] = f"{workspace.path_first}:{values['PATH']}"
    return values | _about(claim, definition, archive, workspace, workspace.files, scratch, handed, attached)


def of_container(
    claim: Claim,
    definition: TaskDefinition,
    archive: str,
    workspace: Workspace,
    files: Path,
    path_first: str | None,
    path: str,
    scratch: Path | None = None,
    handed: Handed | None = None,
    attached: Path | None = None,
) -> dict[str, str]:
    """The variables of a container beside those of its image. ``files``, ``scratch``, ``attached``:
    the paths by which it sees the attempt's files, its scratch folder and the attachments of its
    run. ``path``: the image's PATH.
    """
    values = {"CI": "true"} | definition.env
    if path_first is not None:
        values["PATH"] = f"{path_first}:{values.get('PATH') or path or PATH}"
    return values | _about(claim, definition, archive, workspace, files, scratch, handed, attached)


def payload_file(handed: Handed) -> str:
    """The name of the file that has a submission's payload."""
    return f"submission.{'txt' if handed.kind is PayloadKind.LINES else handed.kind}"


def _about(
    claim: Claim,
    definition: TaskDefinition,
    archive: str,
    workspace: Workspace,
    files: Path,
    scratch: Path | None,
    handed: Handed | None,
    attached: Path | None,
) -> dict[str, str]:
    """The variables that say which task this is. ``files``, ``scratch``, ``attached``: as in
    `of_container`. ``handed``: the submission for which its run was made.
    """
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
        "AUTHOR": _CONTROLS.sub("\ufffd", claim.author),
        "MESSAGE": str(files / workspace.message.name),
        "ITEM": claim.item_body,
        "INPUTS": str(files / workspace.inputs.name),
        "OUTPUT": str(files / workspace.output.name),
    }
    if definition.wants_changes:
        about["CHANGES"] = str(files / workspace.changes.name)
    if scratch is not None:
        about["SCRATCH"] = str(scratch)
    if attached is not None:
        about["ATTACHMENTS"] = str(attached)
    if handed is not None:
        about["SUBMISSION_ID"] = handed.sender_id or ""
        if definition.wants_submission:
            about["SUBMISSION"] = str(files / payload_file(handed))
    return {"ARKQUEUE": "1"} | {PREFIX + name: value for name, value in about.items()}


def _identity(user: str | None) -> dict[str, str]:
    """The variables about the task's user. If the user does not exist, the executor reports it."""
    try:
        entry = pwd.getpwnam(user) if user is not None else _own()
    except KeyError:
        return {"HOME": "/"}
    return {"HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name, "SHELL": "/bin/sh"}


@cache
def _own() -> pwd.struct_passwd:
    """The entry of this process's user. It is read only once: each reading takes a file, or even a
    call of another host.
    """
    return pwd.getpwuid(os.geteuid())
