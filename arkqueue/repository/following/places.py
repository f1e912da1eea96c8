"""Where in a working copy something may be put: in a real folder below it, through no symlink, and where nothing is yet.

Nobody else writes there meanwhile: a task gets its working copy when it is whole.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

_ADMINISTRATIVE = {".git", ".svn"}


def refusal(top: Path, parts: Sequence[str], *, is_made: bool) -> str:
    """Why nothing may be put there, "" where it may. ``is_made``: its empty folder is there already, as that of a submodule."""
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
