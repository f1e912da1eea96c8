"""The revisions of a Subversion repository that touch a folder, and their data. Called by
`subversion` only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import subvertpy

from arkqueue.errors import NotFound
from arkqueue.model import Revision
from arkqueue.repository import Known, limits, within_calendar
from arkqueue.repository.limits import bounded
from arkqueue.repository.origin import PROPERTY, parse_origin

UNTOLD = datetime.fromtimestamp(0, UTC)
"""The date of a revision that has none, or whose date this user may not read."""

PROPERTIES = ["svn:author", "svn:date", "svn:log", PROPERTY]
"""The properties that a scan reads of each revision."""


def number_of(id: str, thing: str) -> int:
    """The number in a revision's id. ``thing``: the repository, for the error about any other id."""
    if not id.isascii() or not id.isdigit() or len(id) > 9:
        raise NotFound(thing, f"has no revision {id!r}", "A Subversion revision is a number.")
    return int(id)


def revision_of(number: int, properties: Mapping[str, bytes]) -> Revision:
    """A revision from its properties, which anybody may have changed or removed."""

    def text(name: str) -> str:
        return (properties.get(name) or b"").decode(errors="replace").replace("\0", "\ufffd")

    try:
        date = datetime.fromisoformat(text("svn:date"))
    except ValueError:  # the property was removed, or never set
        date = UNTOLD
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return bounded(
        Revision(
            str(number),
            number,
            text("svn:author"),
            within_calendar(date),
            text("svn:log"),
            parse_origin(text(PROPERTY)),
        )
    )


def made(revision: Known) -> str:
    """The author and date of a revision, to the microsecond, because two may differ by less than a
    second.
    """
    return f"by {revision.author or 'nobody'} at {revision.date:%F %T.%f} UTC"


def is_told(revision: Known) -> bool:
    """True if this user may read the author and date of a revision. They are hidden if the revision
    is in places that the user may not read.
    """
    return bool(revision.author) or revision.date != UNTOLD


def paths_digest(changed: Mapping[str, Any], folder: str) -> str:
    """A digest of the changed paths of a revision, as ``svn log -v`` shows them: paths in the
    archive's folder, and the folders on the way to it.
    """
    home = f"/{folder}" if folder else ""
    paths = sorted(path for path in changed if f"{path}/".startswith(f"{home}/") or f"{home}/".startswith(f"{path}/"))
    lines = [[path, *changed[path][:3]] for path in paths[: limits.MOST_DIGESTED]]
    return hashlib.sha256(json.dumps([len(paths), lines]).encode()).hexdigest()


def touches(changed: Mapping[str, Any], folder: str) -> bool | None:
    """True if a revision changes the folder or something in it; None if it changes a parent, which
    may create, remove or replace the folder.
    """
    if any(path == folder or path.startswith(folder + "/") for path in changed):
        return True
    # Every change of a parent counts, not only a copy: its source may be a place that this user may
    # not read.
    parents = (action for path, (action, *_) in changed.items() if folder.startswith(path.rstrip("/") + "/"))
    return None if any(action in "ADR" for action in parents) else False


def is_there_around(session: Any, number: int) -> bool:
    """True if the archive's folder exists in a revision, or in the one before it."""
    return any(session.check_path("", at) != subvertpy.NODE_NONE for at in (number, max(number - 1, 0)))
