"""Names of runs and tasks: ``ARCHIVE:BRANCH@REV.RUN/TASK/ITEM``."""

from __future__ import annotations

import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import escape

from arkqueue.errors import Invalid
from arkqueue.names import RESERVED, Name, dependency_in_words, gate_in_words, name_of, page_path, parse_name
from tests.fuzzing import fuzzed


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("papers@12", Name("papers", "12")),
        ("papers@12/index", Name("papers", "12", task="index")),
        ("papers@12.3/index", Name("papers", "12", run=3, task="index")),
        ("papers:feature%2Fx@12.1/ingest/ark%3A%2F1", Name("papers", "12", "feature/x", 1, "ingest", "ark:/1")),
        ("papers@gabc123/index", Name("papers", "gabc123", task="index")),
    ],
)
def test_names_are_read_and_written_alike(text: str, name: Name) -> None:
    assert parse_name(text) == name
    assert str(name) == text


@pytest.mark.parametrize(
    "text",
    ["", "papers", "papers@", "papers@x", "papers@12/", "@12", "papers@12.x", "a b@@1", "papers@g1", "papers@" + "9" * 5000,
     "papers@12." + "9" * 5000, "@" * 1_000_000],
)  # fmt: skip
def test_what_is_no_name_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(Invalid, match="papers@12/index"):
        parse_name(text)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("gg@51ec78a", "gg@g51ec78a"),
        ("gg:main@51ec78a.2/index", "gg:main@g51ec78a.2/index"),
        ("gg:feat/x@9", "gg:feat%2Fx@9"),
        ("gg:feat/x@9/index", "gg:feat%2Fx@9/index"),
    ],
)
def test_what_was_meant_is_written_out(text: str, meant: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_name(text)
    assert refused.value.remedy.endswith(f": {meant}")
    assert parse_name(meant)


words = st.text(min_size=1, max_size=8)


@pytest.mark.full
@fuzzed
@given(words, words, st.integers(1, 10**9), st.none() | st.integers(1, 99), words, words)
def test_every_name_survives_the_round_trip(
    archive: str, branch: str, number: int, run: int | None, task: str, item: str
) -> None:
    name = Name(archive, str(number), branch, run, task, item)
    assert parse_name(str(name)) == name


def test_the_shortest_name_leaves_out_the_main_branch_and_the_first_run() -> None:
    assert str(name_of("papers", 3, 1, "index", branch="main", main=True)) == "papers@3/index"
    assert str(name_of("papers", 3, 2, "index", branch="draft", main=False)) == "papers:draft@3.2/index"


@pytest.mark.parametrize(
    "hostile",
    [
        "fix$(id>pwned)",
        "a`id`",
        "a;id",
        "a|id",
        "a&b",
        "a b",
        "a'b",
        'a"b',
        "a\nb",
        "a>b",
        "a*",
        "a!b",
        "a{b,c}",
        "a#b",
        "a\x1b[2Jb",
        "a\u202eb",
    ],
)
def test_every_name_is_one_word_of_a_shell(hostile: str) -> None:
    """A person copies the command that is printed, and is root perhaps."""
    name = Name("papers", "12", hostile, task="index", item=hostile)
    assert shlex.split(str(name)) == [str(name)]
    printed = subprocess.run(["sh", "-c", f"printf %s {name}"], capture_output=True, text=True, check=True).stdout
    assert parse_name(printed) == name
    assert str(name).isprintable()


def test_the_path_of_a_page_needs_no_escape_in_markup() -> None:
    for name in (*RESERVED, "papers:<b>&'\"@12/a b", *map(chr, range(0x300))):
        assert str(escape(page_path(name))) == page_path(name)
        assert page_path(name).isprintable()


@pytest.mark.parametrize(
    ("name", "awaited", "existing"),
    [
        ("fetch", "fetch", "fetch"),
        ("papers:a%2Fb@3/fetch/v%2F0", "papers:a%2Fb@3/fetch/v%2F0", "papers:a%2Fb@3/fetch/v%2F0"),
        ("fetch:completed", "the completion of all items of fetch", "all items of fetch"),
        ("papers@3/fetch:settled", "the end of all items of papers@3/fetch", "all items of papers@3/fetch"),
        ("PREV:*", "the completion of the tasks of PREV:*", "the tasks of PREV:*"),
        ("PREV:*:commits:settled:except:a,b", "the end of the tasks of PREV:*, except a, b", "the tasks of PREV:*, except a, b"),
    ],
)  # fmt: skip
def test_a_gate_is_named_by_its_meaning(name: str, awaited: str, existing: str) -> None:
    assert dependency_in_words(name, is_awaited=True) == awaited
    assert dependency_in_words(name, is_awaited=False) == existing


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("PREV:*", "PREV:*"),
        ("PREV:*:settled", "PREV:* (settled)"),
        ("PREV:*:commits", "PREV:*"),
        ("PREV:*:except:a,settled", "PREV:* (except a, settled)"),
        ("PREV:*:commits:settled:except:a,b", "PREV:* (settled, except a, b)"),
        ("PREV:*:except:a,buil~0123456789ab", "PREV:* (except a, buil…)"),
        ("fetch:completed", "fetch:completed"),
    ],
)
def test_a_gate_is_called_what_the_workflow_file_says(name: str, words: str) -> None:
    assert gate_in_words(name) == words
