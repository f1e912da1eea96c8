"""The credentials that the configuration has for a repository, for the task of a working copy
(design 9).

They are put into files that only the task's user can read, never into the task's environment or
arguments. They are good only for that repository: git asks its credential store only for URLs below
the working copy's own, and Subversion stores passwords by the server and realm that asked for them.
The task's own ``git`` and ``svn`` find the files; nothing here runs a program on a tree that a task
could have written.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

from arkqueue.repository.location import Location


@dataclass(frozen=True, slots=True)
class Handover:
    """A folder of the task, beside its tree. ``seen``: the path under which the task sees it."""

    folder: Path
    seen: Path


def hand_to_git(location: Location, clone: Path, handover: Handover) -> None:
    """Let the git of a new clone find the password for its origin, if there is one and the origin
    is a URL.
    """
    parts = urlsplit(location.url)
    if location.password is None or parts.scheme not in ("http", "https"):
        return
    user = f"{quote(location.username or '', safe='')}:{quote(location.password, safe='')}"
    place = f"{parts.hostname}{f':{parts.port}' if parts.port else ''}"
    _write(handover.folder / "git-credentials", f"{parts.scheme}://{user}@{place}{parts.path}\n")
    section = location.url.replace("\\", "\\\\").replace('"', '\\"')
    store = handover.seen / "git-credentials"
    # The empty entry removes all other credential helpers, so that none of them stores the
    # password.
    lines = [f'[credential "{section}"]', "\thelper =", f'\thelper = "store --file={store}"', "\tuseHttpPath = true"]
    with (clone / ".git" / "config").open("a", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def hand_to_subversion(location: Location, realm: str, handover: Handover) -> Path:
    """Make a folder of settings in which the task's svn finds the password for a realm. Returns the
    path under which the task sees it.
    """
    values = {
        "passtype": "simple",
        "password": location.password or "",
        "svn:realmstring": realm,
        "username": location.username or "",
    }
    text = "".join(
        f"{letter} {len(word.encode())}\n{word}\n"
        for pair in values.items()
        for letter, word in zip("KV", pair, strict=True)
    )
    folder = handover.folder / "subversion" / "auth" / "svn.simple"
    folder.mkdir(mode=0o700, parents=True)
    _write(folder / hashlib.md5(realm.encode(), usedforsecurity=False).hexdigest(), text + "END\n")
    return handover.seen / "subversion"


def _write(path: Path, text: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
