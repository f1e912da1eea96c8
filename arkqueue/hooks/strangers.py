"""Checks that no stranger could change the folders into which root installs hooks. If one could,
root installs none there.

Strangers are all users but root and the repository's owner. Many systems give each user a group of
his own, so a group whose only members are root or the owner may write, too. Called by `place`.
"""

from __future__ import annotations

import grp
import os
import pwd
import shlex
import stat
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from arkqueue.errors import Conflict, Invalid
from arkqueue.hooks.folders import Folder
from arkqueue.runtime.accounts import account

_MOST_LINKS = 40
"""The most links that a path may follow, as on Linux."""
_TO_READ = "Its owner and root alone may decide where root writes"


def owner_of(path: Path, *, is_end_judged: bool = True) -> int:
    """The owner of the file or folder that a path leads to, or of the nearest folder that exists.

    The path is followed from the root folder on. Raises Conflict if a stranger may change a folder
    or a link on the way. Each folder is checked before its contents, so that no stranger can change
    them afterwards.
    """
    here, left, way, links = Path("/"), [*reversed(path.parts[1:])], [], 0
    while left:
        name = left.pop()
        if name == "..":
            here = here.parent
            continue
        entry = here / name
        try:
            status = os.lstat(entry)
            target = os.readlink(entry) if stat.S_ISLNK(status.st_mode) else None
        except OSError:  # a path may continue inside a Subversion repository
            break
        way.append((entry, status))
        if target is None:
            here = entry
            continue
        links += 1
        if links > _MOST_LINKS:
            raise Invalid(str(path), "is a link that leads to itself", "Give the path of the repository.")
        if target.startswith("/"):
            here = Path("/")
        left += [part for part in reversed(target.split("/")) if part not in ("", ".")]
    end = os.lstat(here)
    allowed = {0, end.st_uid}
    if not is_end_judged:
        way = [(entry, status) for entry, status in way if entry != here]
    for entry, status in way:
        _refuse_owner(entry, status, allowed)
        # In a sticky folder users can rename only their own files. But a repository contains other
        # people's files then.
        is_way = entry != here and stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
        if not stat.S_ISLNK(status.st_mode) and not is_way and writable_by_strangers(entry, status, allowed):
            raise _writable([entry], end.st_uid)
    return end.st_uid


def refuse(folder: Folder, names: Iterable[str], owner: int) -> None:
    """Raise Conflict if a stranger may change an open folder, or an entry of it with one of these
    names.
    """
    status = folder.status()
    assert status is not None
    if status.st_uid != owner:
        raise another(folder.path, status.st_uid, owner)
    allowed, writable = {0, owner}, []
    if writable_by_strangers(folder.path, status, allowed):
        writable.append(folder.path)
    for name in names:
        inner = folder.status(name)
        if inner is None:
            continue
        _refuse_owner(folder.path / name, inner, allowed)
        if not stat.S_ISLNK(inner.st_mode) and writable_by_strangers(folder.path / name, inner, allowed):
            writable.append(folder.path / name)
    if writable:
        raise _writable(writable, owner)


def writable_by_strangers(path: Path, status: os.stat_result, allowed: Collection[int]) -> bool:
    """Whether users other than the ``allowed`` ones may write to a file or folder, according to its
    mode.
    """
    if status.st_mode & stat.S_IWOTH:
        return True
    if not status.st_mode & stat.S_IWGRP:
        return False
    with suppress(OSError, AttributeError):  # not every system has ACLs
        if "system.posix_acl_access" in os.listxattr(path, follow_symlinks=False):
            return True  # with an ACL, the group's bits are only the upper limit for its entries
    return not _is_private(status.st_gid, allowed)


def _is_private(group: int, allowed: Collection[int]) -> bool:
    """Whether a group has only these users as members, as after ``useradd --user-group``."""
    try:
        found = grp.getgrgid(group)
    except KeyError:
        return group in allowed  # a number without a name, as in many containers
    names = set()
    for user in allowed:
        with suppress(KeyError):
            names.add(pwd.getpwuid(user).pw_name)
    members = set(found.gr_mem)
    if group != 0:  # on some systems, root's group has system accounts as members
        members |= {user.pw_name for user in pwd.getpwall() if user.pw_gid == group}
    return found.gr_name in names and names.issuperset(members)


def another(path: Path, whose: int, owner: int) -> Conflict:
    """The error if a part of a repository has another owner than the repository."""
    return Conflict(
        str(path),
        f"belongs to {account(whose)}, and not to {account(owner)} as what it is part of",
        f"Run this as {account(whose)}.",
    )


def _refuse_owner(path: Path, status: os.stat_result, allowed: Collection[int]) -> None:
    if status.st_uid not in allowed:
        owner = max(allowed)
        raise Conflict(
            str(path),
            f"belongs to {account(status.st_uid)}, and the repository to {account(owner)}. {_TO_READ}",
            f"Give the path of the repository itself, and see that all of it belongs to {account(owner)}.",
        )


def _writable(paths: list[Path], owner: int) -> Conflict:
    command = shlex.join(["chmod", "go-w", *map(str, paths)])
    other = "" if owner == 0 else f"; or run this as {account(owner)}, to whom it belongs"
    return Conflict(
        str(paths[0]),
        f"can be changed by others than its owner {account(owner)}. {_TO_READ}",
        f"Take that right from them: {command}{other}.",
    )
