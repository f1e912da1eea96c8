"""Where a followed reference may be put in a working copy: into a real folder below its top, not
through a symlink, and only where nothing exists yet.

No other process writes there meanwhile: a task gets its working copy when it is complete.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

_ADMINISTRATIVE = {".git", ".svn"}


def refusal(top: Path, parts: Sequence[str], *, is_made: bool) -> str:
    """The reason why nothing may be put there; empty if it may. ``is_made``: True if the empty
    folder already exists, as for a submodule.
    """
    if not parts or any(part in ("", ".", "..") or part.lower() in _ADMINISTRATIVE for part in parts):
        return "its folder is not one in the working copy"
    if any(not part.isprintable() or "/" in part for part in parts):
        return "its folder has a name with control characters"
    place = top
    for number, part in enumerate(parts, 1):
        place /= part
        try:
            mode = os.lstat(place).st_mode
        except FileNotFoundError:
            return "its folder is missing" if is_made else ""
        if not stat.S_ISDIR(mode):
            return "its folder leads through a symlink or a file"
        if number == len(parts) and not (is_made and not os.listdir(place)):
            return "something else is in its folder"
    return ""
