"""The files that differ between two revisions, as a task and people are told of them (design 3, CHANGES).

`git` and `subversion` find them, by the functions that `paths` is matched with as well; here they are put in order. A path that is listed is one that a
workspace can have: version control data is left out, as it is from every export.
"""

from __future__ import annotations

from collections.abc import Mapping

from arkqueue.model import ChangeStatus, FileChange
from arkqueue.repository.tree_writer import check_name, is_wanted


def listed(changed: Mapping[bytes, ChangeStatus]) -> tuple[FileChange, ...]:
    """The changes by path. Raises `ArchiveError` for a path that would lead out of the workspace."""
    found = []
    for path in sorted(filter(is_wanted, changed)):
        for end, byte in enumerate(path):
            if byte == _SLASH:
                check_name(path[:end])
        check_name(path)
        found.append(FileChange(changed[path], path.decode(errors="surrogateescape")))
    return tuple(found)


_SLASH = ord("/")
