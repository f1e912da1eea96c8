"""The files that differ between two revisions, as a task and people are told of them (design 3, CHANGES).

`git` and `subversion` find them, by the functions that `paths` is matched with as well; here they are put in order. A path that is listed is one that a
workspace can have: version control data is left out, as it is from every export.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from arkqueue.model import ChangeStatus, FileChange
from arkqueue.repository.tree_writer import check_names, is_wanted


def listed(changed: Mapping[bytes, ChangeStatus]) -> tuple[FileChange, ...]:
    """The changes by path. Raises `ArchiveError` for a path that would lead out of the workspace."""
    found = []
    for path in sorted(changed):
        if not _ODD.isdisjoint(path.lower().split(b"/")):
            if not is_wanted(path):
                continue
            check_names(path)
        found.append(FileChange(changed[path], path.decode(errors="surrogateescape")))
    return tuple(found)


def as_json(changes: Iterable[FileChange]) -> bytes:
    """A JSON list with a line for each change; in ASCII, so that a name in any encoding gets through it."""
    lines = ",\n".join(f'{{"status": "{status}", "path": {json.dumps(path)}}}' for status, path in changes)
    return f"[\n{lines}\n]\n".encode() if lines else b"[\n]\n"


_ODD = frozenset((b"", b".", b"..", b".git", b".svn"))
"""Names that have to be looked at more closely, in small letters."""
