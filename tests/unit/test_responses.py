"""Long answers of the API are written in parts, whose JSON together is that of the whole."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from pydantic import TypeAdapter

from arkqueue.states import State
from arkqueue.web.api.responses import MOST, json_of


@dataclass(slots=True)
class One:
    name: str
    state: State
    at: datetime | None
    share: float
    words: list[str]


@dataclass(slots=True)
class Many:
    done: list[str]
    each: list[One]
    counts: dict[str, int]
    one: One | None
    any: dict[str, Any]


_AT = datetime(2026, 11, 27, 3, 0, 0, 120, UTC)
_ones = some.builds(
    One,
    some.text(max_size=3),
    some.sampled_from(State),
    some.sampled_from([None, _AT]),
    some.sampled_from([0.5, float("nan")]),
    some.lists(some.just('"\u202e'), max_size=3) | some.just(["word"] * (MOST + 1)),
)
_many = some.builds(
    Many,
    some.just([]) | some.just(["papers@2/a"] * (2 * MOST + 1)),
    some.lists(_ones, max_size=5).map(lambda ones: ones * 60),
    some.just({}) | some.just({f"{n}": n for n in range(MOST + 1)}),
    some.none() | _ones,
    some.just({}) | some.just({"a": [{"b": [1, None]}] * MOST}),
)


@pytest.mark.full
@given(_many)
def test_the_pieces_are_the_json_of_the_whole(many: Many) -> None:
    assert json.loads(b"".join(json_of(many))) == json.loads(TypeAdapter(Many).dump_json(many))


@pytest.mark.parametrize("count", [MOST, MOST + 1, 50 * MOST])
def test_a_piece_has_few_parts(count: int) -> None:
    one = One("a", State.CANCELED, _AT, 0.0, [])
    pieces = [*json_of(Many(["papers@2/a"] * count, [one] * count, {}, one, {}))]
    assert max(piece.count(b'"name":') + piece.count(b'"papers@2/a"') for piece in pieces) <= MOST
    assert sum(piece.count(b'"name":') for piece in pieces) == count + 1
