"""Finds the nearest correct name for a wrong one; only for faults."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

LONGEST = 100
"""The most characters of a word for which a name is searched."""


def nearest(word: str, names: Sequence[str]) -> str:
    """The name that was probably meant; "" if none is near."""
    if len(word) > LONGEST:
        return ""
    folded = {name.lower(): name for name in reversed(names)}
    close = difflib.get_close_matches(word.lower(), folded, n=1)
    return folded[close[0]] if close else ""


class Speller:
    """``nearest`` for a whole workflow, within a budget: thousands of wrong names among thousands
    of tasks must not take minutes.

    ``pairs``: the budget, in pairs of characters that may be compared. The default takes about a
    second.
    """

    def __init__(self, pairs: int = 20_000_000) -> None:
        self._left = pairs

    def nearest(self, word: str, names: Sequence[str]) -> str:
        self._left -= min(len(word), LONGEST) * sum(map(len, names))
        return nearest(word, names) if self._left >= 0 else ""
