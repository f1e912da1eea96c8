"""Whether a stranger could change where root installs hooks: then root installs none there.

Strangers are all but root and the repository's owner. Many systems give each user a group of his own:
a group whose only member is root or the owner may write, too. Called by `place`.
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
"""As the system has it."""
_TO_READ = "Its owner and root alone may decide where root writes"


def owner_of(path: Path, *, is_end_judged: bool = True) -> int:
    """The owner of what a path leads to, or of the folder that is nearest to it, looked at from the root folder on.

    Raises Conflict where somebody else may change a folder or a link on the way. Each is looked at before what is in it: so nobody can change what comes later, either.
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
        except OSError:  # a path may go on inside a Subversion repository
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
        # In a sticky folder everybody renames what is theirs alone; but a repository has other people's files in it then.
        is_way = entry != here and stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
        if not stat.S_ISLNK(status.st_mode) and not is_way and writable_by_strangers(entry, status, allowed):
            raise _writable([entry], end.st_uid)
    return end.st_uid


def refuse(folder: Folder, names: Iterable[str], owner: int) -> None:
    """Raise Conflict where a stranger may change an open folder, or what is in it by these names."""
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
    """Whether others than these users may write to something, as far as its mode tells."""
    if status.st_mode & stat.S_IWOTH:
        return True
    if not status.st_mode & stat.S_IWGRP:
        return False
    with suppress(OSError, AttributeError):  # not every system has them
        if "system.posix_acl_access" in os.listxattr(path, follow_symlinks=False):
            return True  # the group's bits say what the list of names allows at most
    return not _is_private(status.st_gid, allowed)


def _is_private(group: int, allowed: Collection[int]) -> bool:
    """Whether a group is that of one of these users alone, as by `useradd --user-group`."""
    try:
        found = grp.getgrgid(group)
    except KeyError:
        return group in allowed  # a number without an account, as in many containers
    names = set()
    for user in allowed:
        with suppress(KeyError):
            names.add(pwd.getpwuid(user).pw_name)
    members = set(found.gr_mem)
    if group != 0:  # root's has accounts of the system in it on some
        members |= {user.pw_name for user in pwd.getpwall() if user.pw_gid == group}
    return found.gr_name in names and names.issuperset(members)


def another(path: Path, whose: int, owner: int) -> Conflict:
    """What to say where a part of a repository has another owner than what it is part of."""
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
