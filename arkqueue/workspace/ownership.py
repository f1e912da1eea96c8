"""Files of other users in the workspaces of a task manager that is not root (design 9).

A task manager without root cannot give files to other users, nor remove files that a container's
root has made in folders of its own. The container engine can (``Give``): it gives files to another
user before the task starts, and gives the files that a task leaves back to the task manager's user,
to be read or removed. The root of a container needs no files of its own, because it may write
everybody's files. ``Workspaces`` calls this module; a task manager that is root does not need it.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from arkqueue.errors import ArkqueueError, WorkspaceError
from arkqueue.model import AttemptId
from arkqueue.workspace.bases import OURS, Owner
from arkqueue.workspace.removal import attempt_of, remove_folder

Give = Callable[[Sequence[Path], Owner, str | None], str]
"""Changes the owner of folders and their contents, as root could, with the help of an image (None:
any). Returns words about the files that kept their owner.
"""

TURNS = 20
"""How often the remaining files are given back and removed: in a very deep tree, the programs of
some images reach only a limited depth at once.
"""

_OTHERS = (errno.EACCES, errno.EPERM, errno.ENOTEMPTY)
"""The errors for a folder of another user, for which giving it back is the remedy."""


class Giving:
    """Gives files to other users and back, through the container engine. Any thread may call it."""

    def __init__(self, work: Path, give: Give | None) -> None:
        """``work``: the folder of all workspaces. Without ``give``, no owner can be changed."""
        self._work, self._give = work, give

    def whose(self, owner: Owner | None, *, is_looked_at: bool) -> tuple[Owner | None, Owner | None]:
        """The owner of a container's files when they are made (None: arkqueue's own user), and the
        owner that they get afterwards.

        ``is_looked_at``: programs in the container refuse files that do not belong to their own
        user, as they do in a working copy, even if they may write them.
        """
        if owner is None or os.geteuid() == 0:
            return owner, None
        if owner[0] == OURS[0] or (owner[0] == 0 and not is_looked_at):
            return None, None
        return (owner, None) if self._give is None else (None, owner)

    def give(self, folder: Path, parts: Sequence[Path], owner: Owner) -> None:
        """Give parts of a workspace to a user. Raises WorkspaceError with the words of the engine."""
        assert self._give is not None
        if left := self._give(parts, owner, image_of(folder)):
            raise WorkspaceError(
                f"workspace {folder}",
                f"it cannot be given to user {owner[0]}: {left}",
                "Run the task manager as root, or the task as the root of its image",
            )

    def give_back(self, folder: Path, part: Path) -> None:
        """Open a part of a workspace that a task has closed to this process. Raises PermissionError
        if that fails.
        """
        self._given_back([part], image_of(folder))
        os.chmod(part, 0o700)  # this process made the folder: no task can replace it

    def remove(
        self, name: str, until: float | None = None, known: str | None = None
    ) -> tuple[list[tuple[str, OSError]], str]:
        """Remove a workspace, or a part of it, in which nothing is mounted. Returns the remaining
        files, and why their owner could not be changed.

        ``until``: as in `remove_folder`. ``known``: the image of the attempt's container, if the
        workspace no longer names it.
        """
        known = known or image_of(self._work / name) if self._give is not None else None
        image = known
        faults, refusal = remove_folder(self._work, name, mounted=(), until=until), ""
        attempt = attempt_of(name)
        if self._give is None or attempt is None or not any(error.errno in _OTHERS for _, error in faults):
            return faults, ""
        for _ in range(TURNS):
            place = self._gathered(attempt, name)
            is_possible, refusal = self._given_back([place], image)
            if not is_possible and image != known:
                is_possible, refusal = self._given_back([place], known)
            faults = remove_folder(self._work, place.name)
            if not faults or not is_possible:
                break
            image = None  # the program of this image may not work, but that of another one may
        return faults, refusal

    def _gathered(self, attempt: AttemptId, name: str) -> Path:
        """Gather the remaining parts of a workspace in one folder, because an interrupted removal
        has moved parts of it up. If ``name`` is a part, only parts are gathered: the workspace
        itself may be a new one by now.
        """
        parts = [part for part in os.listdir(self._work) if attempt_of(part) == attempt]
        if name.startswith("."):
            parts = [part for part in parts if part.startswith(".")]
        place = self._work / f".{attempt}.{time.time_ns()}"
        os.mkdir(place, 0o700)
        for number, part in enumerate(parts):
            os.rename(self._work / part, place / str(number))
        return place

    def _given_back(self, folders: Sequence[Path], image: str | None) -> tuple[bool, str]:
        """Whether the engine could change the owner of folders to this process, at least in part,
        and the obstacle.
        """
        if self._give is None:
            return False, ""
        try:
            return True, self._give(folders, OURS, image)
        except ArkqueueError as error:
            return False, str(error)


_IMAGE = "image"


def note_image(folder: Path, image: str) -> None:
    """Store in a workspace, hidden from tasks, the image that can change the owner of its files."""
    (folder / _IMAGE).write_text(image, encoding="utf-8")


def image_of(folder: Path) -> str | None:
    """The image of the workspace's container. None: the attempt has no container, or none yet."""
    try:
        return (folder / _IMAGE).read_text("utf-8")
    except OSError:
        return None
