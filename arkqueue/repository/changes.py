"""The files that differ between two revisions, for tasks and for people (design 3, CHANGES).

`git` and `subversion` find them, with the functions that are also used for `paths`; this module
puts them in order. Version control data is left out, as in every export, so that a listed path can
exist in a workspace.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from arkqueue.model import ChangeStatus, FileChange
from arkqueue.repository.tree_writer import check_names, is_wanted


def listed(changed: Mapping[bytes, ChangeStatus]) -> tuple[FileChange, ...]:
    """The changes, sorted by path. Raises `ArchiveError` for a path that would lead out of the
    workspace.
    """
    found = []
    for path in sorted(changed):
        if not _ODD.isdisjoint(path.lower().split(b"/")):
            if not is_wanted(path):
                continue
            check_names(path)
        found.append(FileChange(changed[path], path.decode(errors="surrogateescape")))
    return tuple(found)


def as_json(changes: Iterable[FileChange]) -> bytes:
    """A JSON list, one line for each change. It is ASCII, so that names in any encoding survive."""
    lines = ",\n".join(f'{{"status": "{status}", "path": {json.dumps(path)}}}' for status, path in changes)
    return f"[\n{lines}\n]\n".encode() if lines else b"[\n]\n"


_ODD = frozenset((b"", b".", b"..", b".git", b".svn"))
"""Lower-case names that need a closer check."""
