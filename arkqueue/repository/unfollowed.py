"""The messages on references of a revision that a task does not get. A task's log and `arkqueue
check` show them.
"""

from __future__ import annotations

from collections.abc import Sequence

from arkqueue.text import name_visible

LONGEST_ATTRIBUTES = 2**16
"""The most bytes of a ``.gitattributes`` that is read."""
NAMED = 5
"""The most paths that are named. The others are "and others"."""


def externals(folders: Sequence[bytes]) -> tuple[str, ...]:
    """The note for folders with ``svn:externals``."""
    return _said(folders, "svn:externals are not followed; what they name is missing from these folders: {}")


def submodules(paths: Sequence[bytes]) -> tuple[str, ...]:
    """The note for the places of Git submodules."""
    return _said(paths, "Git submodules are not followed; these folders are empty: {}")


def lfs(folders: Sequence[bytes]) -> tuple[str, ...]:
    """The note for folders whose ``.gitattributes`` name the filter of Git LFS."""
    return _said(folders, "Git LFS is not asked for its files; they are pointers where .gitattributes says so, in: {}")


def _said(paths: Sequence[bytes], text: str) -> tuple[str, ...]:
    if not paths:
        return ()
    names = [name_visible(path.decode(errors="backslashreplace")) or "the root" for path in sorted(paths)[:NAMED]]
    return (text.format(", ".join(names) + (" and others" if len(paths) > NAMED else "")),)
