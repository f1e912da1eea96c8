"""Globs of hostile committers: their cost grows with what is matched, and with nothing else."""

from __future__ import annotations

import subprocess
import sys

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from arkqueue.model import LONGEST_GLOB
from arkqueue.plan import matches
from arkqueue.plan.globs import matches_any, matches_no_task

HOSTILE = ["*a" * 10 + "*b", "**/a/" * 10 + "x", "**" * 50 + "b", "*?" * 100 + "b"]


@pytest.mark.parametrize("glob", HOSTILE)
def test_many_stars_end(glob: str) -> None:
    """In a process of its own, as what does not end would hold the interpreter's lock and no timeout could end it."""
    program = f"from arkqueue.plan.globs import matches; print(matches([{glob!r}], 'a/' * 100 + 'a' * 200))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"


def test_the_longest_glob_is_compiled() -> None:
    assert matches(["?" * LONGEST_GLOB], "é" * LONGEST_GLOB)
    assert matches(["*?" * (LONGEST_GLOB // 2)], "a" * LONGEST_GLOB)


def test_a_longer_glob_matches_nothing() -> None:
    assert not matches(["a" * (LONGEST_GLOB + 1)], "a" * (LONGEST_GLOB + 1))
    assert matches(["a/**", "!" + "a" * (LONGEST_GLOB + 1)], "a/b"), "and takes back nothing"


@pytest.mark.parametrize("name", ["\udcff.tex", "é.tex", "a\nb.tex", "\0.tex", "😀.tex"])
def test_every_name_is_matched(name: str) -> None:
    assert matches(["*.tex"], name)
    assert matches([name], name)
    assert not matches(["?"], name)


@given(st.text("aP.-_*?/[ ", max_size=6), st.from_regex("[aP][aP._-]{0,5}", fullmatch=True))
def test_a_glob_that_matches_a_task_is_not_called_impossible(glob: str, name: str) -> None:
    if matches([glob], name):
        assert not matches_no_task(glob)


def test_a_glob_is_compiled_once_for_all_paths_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than are cached: otherwise each comparison would compile a glob again."""
    compiled: list[str] = []
    compiles = re2.compile
    monkeypatch.setattr(re2, "compile", lambda text: compiled.append(text) or compiles(text))
    globs = [f"once{number}" for number in range(1100)]
    assert not matches_any(globs, ["a", "b", "c"])
    assert compiled == [f"(?s){glob}" for glob in globs]
    assert matches_any(["*.tex", "!b.tex"], ["b.tex", "a.tex"])
    assert not matches_any(["*.tex", "!b.tex"], ["b.tex", "a.txt"])
