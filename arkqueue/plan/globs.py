"""Globs of ``paths`` and ``branches`` (design 3)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache


def matches_branch(globs: tuple[str, ...], branch: str) -> bool:
    return not globs or not branch or matches(globs, branch)


def matches(globs: Iterable[str], path: str) -> bool:
    """Whether a glob matches the whole path: ``*`` and ``?`` stay inside one folder, ``**`` does not, ``docs/`` is ``docs/**``; ``!x`` takes back."""
    found = False
    for glob in globs:
        if glob.startswith("!"):
            found = found and not _pattern(glob[1:]).fullmatch(path)
        else:
            found = found or bool(_pattern(glob).fullmatch(path))
    return found


@lru_cache(maxsize=1000)
def _pattern(glob: str) -> re.Pattern[str]:
    if glob.endswith("/"):
        glob += "**"
    tokens = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", glob.removeprefix("/"))
    return re.compile("".join(tokens.get(part) or re.escape(part) for part in parts), re.DOTALL)
