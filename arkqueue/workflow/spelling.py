"""The nearest correct name to a wrong one; for faults alone."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


def nearest(word: str, names: Sequence[str]) -> str:
    """The name that was probably meant, "" where none is near."""
    if len(word) > 100:
        return ""
    folded = {name.lower(): name for name in reversed(names)}
    close = difflib.get_close_matches(word.lower(), folded, n=1)
    return folded[close[0]] if close else ""


class Speller:
    """``nearest`` for a whole workflow, within a budget: thousands of wrong names among thousands of tasks must not take minutes."""

    def __init__(self, comparisons: int = 100_000) -> None:
        self._left = comparisons

    def nearest(self, word: str, names: Sequence[str]) -> str:
        self._left -= len(names)
        return nearest(word, names) if self._left >= 0 else ""
