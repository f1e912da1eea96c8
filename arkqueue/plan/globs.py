"""Globs of ``paths`` and ``branches`` (design 3), and of the allow-lists in an archive's settings.
Pure.

Globs come from committers. RE2 matches them in time linear in the length of the path, whatever the
glob is. Python's ``re`` would try all ways in which many stars can divide a path, and let no other
thread run meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import re2

from arkqueue.model import LONGEST_GLOB, LONGEST_TASK_NAME, PREV

_TOKENS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def matches_branch(globs: tuple[str, ...], branch: str) -> bool:
    return not globs or not branch or matches(globs, branch)


def matches(globs: Iterable[str], path: str) -> bool:
    """True if the globs match the whole path. ``*`` and ``?`` stay inside one folder, ``**`` does
    not; ``docs/`` is ``docs/**``; ``!x`` excludes again.

    A glob of more than ``LONGEST_GLOB`` characters is a fault of its workflow file; here, it
    matches nothing.
    """
    return matches_any(globs, [path])


def matches_any(globs: Iterable[str], paths: Iterable[str]) -> bool:
    """True if the globs match one of the paths, as in `matches`. Each glob is compiled once,
    however many there are.
    """
    patterns = [
        (glob.startswith("!"), _pattern(bare)) for glob in globs if len(bare := glob.removeprefix("!")) <= LONGEST_GLOB
    ]
    return any(_is_found(patterns, _encodable(path)) for path in paths)


def is_guarded(globs: Iterable[str], name: str, *, is_empty_report: bool = False) -> bool:
    """True if the globs of ``require_approval`` hold a task. ``is_empty_report``: it is a REPORT
    without a command, which only a glob without a wildcard holds: it has to be named (design 5.21).
    """
    if is_empty_report:
        globs = [glob for glob in globs if glob.startswith("!") or not ("*" in glob or "?" in glob)]
    return matches(globs, name)


def matches_no_task(glob: str) -> bool:
    """True if a glob matches no name that a task may have. ``glob``: without ``!``."""
    parts = [part for part in _parts(glob) if part and part != "**/"]
    literal = "".join(part for part in parts if part not in _TOKENS)
    is_possible = (
        parts
        and re.fullmatch("[A-Za-z0-9._-]*", literal)
        and not parts[0].startswith((".", "_", "-"))
        and len(literal) + parts.count("?") <= LONGEST_TASK_NAME
        and len(glob) <= LONGEST_GLOB
        and parts != [PREV]
    )
    return not is_possible


def _is_found(patterns: Iterable[tuple[bool, Any]], path: str) -> bool:
    """``patterns``: whether each excludes, and its expression."""
    found = False
    for excludes, pattern in patterns:
        if found is excludes and pattern.fullmatch(path):
            found = not excludes
    return found


@lru_cache(maxsize=1000)
def _pattern(glob: str) -> Any:
    return re2.compile("(?s)" + "".join(_TOKENS.get(part) or re2.escape(part) for part in _parts(glob)))


def _parts(glob: str) -> list[str]:
    """The wildcards of a glob, and the texts between them."""
    if glob.endswith("/"):
        glob += "**"
    return re.split(r"(\*\*/|\*\*|\*|\?)", _encodable(glob.removeprefix("/")))


def _encodable(text: str) -> str:
    """A text in a form that RE2 accepts: bytes that are not UTF-8 become backslash escapes, in
    globs and in paths.
    """
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
