"""Lists the references of a working copy on this computer that a task of its archive would not get.
`arkqueue check` prints them.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from arkqueue.repository import unfollowed


def not_followed(folder: Path) -> tuple[str, ...]:
    """Sentences for people; empty if the working copy cannot be read. ``folder``: the root of the
    working copy.
    """
    return _of_git(folder) if (folder / ".git").exists() else _of_subversion(folder)


def _of_git(folder: Path) -> tuple[str, ...]:
    import pygit2
    from pygit2.enums import FileMode

    try:
        entries = list(pygit2.Repository(str(folder)).index)
    except pygit2.GitError:
        return ()
    links = [os.fsencode(entry.path) for entry in entries if entry.mode == FileMode.COMMIT]
    attributes = [Path(entry.path) for entry in entries if Path(entry.path).name == ".gitattributes"]
    named = [os.fsencode(path.parent).removeprefix(b".") for path in attributes if _names_lfs(folder / path)]
    return (*unfollowed.submodules(links), *unfollowed.lfs(named))


def _names_lfs(file: Path) -> bool:
    """True if a regular file names the filter of Git LFS. Links are not followed: a committed link
    may lead to something without an end.
    """
    try:
        opened = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    with open(opened, "rb") as found:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode) or status.st_size > unfollowed.LONGEST_ATTRIBUTES:
            return False
        return b"filter=lfs" in found.read(unfollowed.LONGEST_ATTRIBUTES)


def _of_subversion(folder: Path) -> tuple[str, ...]:
    from subvertpy import SubversionException, client

    from arkqueue.repository.subversion.library import ra

    try:
        found = client.Client(auth=ra.Auth([])).propget("svn:externals", str(folder), "WORKING", "WORKING", True)
    except (SubversionException, UnicodeDecodeError):
        return ()
    top = os.fsencode(folder)
    return unfollowed.externals([os.fsencode(path)[len(top) :].lstrip(b"/") for path in found])
