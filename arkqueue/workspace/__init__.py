"""Workspaces: the private folder of one attempt, made before it starts and removed after it ended
(design 9).

In the home folder, in ``work/<attempt>``::

    tree                the task's working folder: the archive's files, or nothing
    files/script        the task's script, if it has one
    files/inputs.json   ARKQUEUE_INPUTS
    files/message       ARKQUEUE_MESSAGE
    files/changes.json  ARKQUEUE_CHANGES, if the task wants them
    files/output        ARKQUEUE_OUTPUT, made by the task
    files/tmp           TMPDIR
    layer/{upper,work}  the files that the task writes over a shared base; no task sees this folder
    base                the name of this base
    image               the image of the attempt's container

Beside it are the scratch folders, which outlive their attempts (``scratch``), and with them the
attachments of submissions (``attachments``).

The task manager calls this package. After an attempt, the contents of its workspace are the work of
a stranger. So this package reads only regular files beneath the workspace, through no symlink, up
to a limit, and runs no program there. It does not know archives: functions of the caller fill a
tree (``Fill``) or bring a base from one revision to another (``Tree``).
"""

from arkqueue.workspace.attachments import AttachmentFolders
from arkqueue.workspace.bases import Owner, Tree
from arkqueue.workspace.outputs import OUTPUT_LIMIT, Outputs
from arkqueue.workspace.scratch import ScratchFolders, ScratchLost, make_root
from arkqueue.workspace.workspaces import BASES, POOL, WORK, Fill, LayeredBy, Workspace, Workspaces, owner_named

__all__ = [
    "BASES",
    "OUTPUT_LIMIT",
    "POOL",
    "WORK",
    "AttachmentFolders",
    "Fill",
    "LayeredBy",
    "Outputs",
    "Owner",
    "ScratchFolders",
    "ScratchLost",
    "Tree",
    "Workspace",
    "Workspaces",
    "make_root",
    "owner_named",
]
