"""The colours of a log's lines: those of terminals with 8, 16, 256, and millions of colours."""

from __future__ import annotations

import pytest

from arkqueue.web.pages.log_lines import coloured
from tests.counting import counted_calls


@pytest.mark.parametrize(
    ("codes", "shown"),
    [
        ("31", "c1"),
        ("1;92", "bold c2"),
        ("38;5;9", "c1"),
        ("38;5;46", "c2"),
        ("38;5;21", "c4"),
        ("38;5;208", "c1"),  # orange
        ("38;5;244", ""),  # a grey
        ("38;2;255;100;0", "c1"),
        ("38;2;10;20;250;1", "bold c4"),
        ("38:2::0:200:200", "c6"),  # as ISO 8613-6 writes it
        ("38;2;120;128;128", ""),
        ("48;5;1;32", "c2"),  # a background is not shown
        ("48;2;1;2;3;35", "c5"),
        ("33;38;5;999", ""),
        ("33;38", ""),
        ("33;38;5", ""),
        ("33;38;7;1", "bold"),
    ],
)
def test_a_colour_among_many_is_shown_as_the_nearest_of_eight(codes: str, shown: str) -> None:
    assert coloured(f"\x1b[{codes}mx", "") == ([(shown, "x")], shown)
    assert coloured(f"\x1b[{codes}mx\x1b[0my", "")[0][1:] == [("", "y")]


def test_a_code_that_is_repeated_is_read_once() -> None:
    coloured("\x1b[31m", "")
    with counted_calls() as calls:
        coloured("\x1b[31m" * 1000, "c1")
    assert calls.count < 5000
