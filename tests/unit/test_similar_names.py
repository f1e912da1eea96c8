"""Suggestions for a name that does not exist: the most similar ones, in a limited time."""

from __future__ import annotations

import difflib

import pytest

from arkqueue import text
from arkqueue.text import LONGEST, similar


def test_the_nearest_name_comes_first() -> None:
    assert similar("indx", ["pdf", "index", "indexing"]) == ["index", "indexing"]
    assert similar("indx", ["pdf", "index", "indexing"], 1) == ["index"]
    assert similar("harbour", ["pdf", "index"]) == []


def test_of_thousands_of_long_names_only_the_likely_ones_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared, similar_names = [], difflib.get_close_matches

    def few(word: str, names: list[str], most: int) -> list[str]:
        compared.append(len(names))
        return similar_names(word, names, most)

    monkeypatch.setattr(difflib, "get_close_matches", few)
    names = [f"{'x' * 80}{number:05}" for number in range(18_000)]
    assert similar(f"{'x' * 79}17999", names, 1) == [f"{'x' * 80}17999"]
    assert similar("y" * (LONGEST + 1), names) == []
    assert compared == [text.MOST_PAIRS // (84 * 85)]
