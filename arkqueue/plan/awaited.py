"""What a task that never ran still waited for, which whoever waits for it waits for in its place (docs/decisions/0001, point 18). Pure."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from arkqueue.states import SETTLED, State

MOST_HANDED_ON = 100
"""Tasks that one takes over from another to wait for: each of n tasks may have to wait for each of m, and n times m edges must not stop an archive."""


class Awaited(NamedTuple):
    """A task, and whether any settled one will do."""

    task: int
    settled: bool


def followed_back(edges: Iterable[Any]) -> dict[Awaited, list[Awaited]]:
    """From the rows of ``still_awaited``: what takes the place of each task that was asked for, where that is depended on; the nearest, where they are many.

    One edge on the way that any settled source meets makes all that is behind it such.
    """
    into: dict[int | None, list[Any]] = defaultdict(list)
    for edge in edges:
        into[edge.target].append(edge)
    asked = [Awaited(edge.source, settled) for edge in into[None] for settled in (False, True)]
    return {passed: found for passed in asked if (found := list(islice(_behind(passed, into), MOST_HANDED_ON)))}


def _behind(passed: Awaited, into: Mapping[int | None, Sequence[Any]]) -> Iterator[Awaited]:
    """What is not over behind a task that never began, the nearest first."""
    found, seen, left = set[Awaited](), {passed}, deque([passed])
    while left:
        target, settled = left.popleft()
        for edge in into.get(target, ()):
            source = Awaited(edge.source, settled or (edge.crossing and edge.settled))
            if edge.crossing and not (edge.state in SETTLED and (edge.passes or source.settled)):
                if source not in found:
                    found.add(source)
                    yield source
            elif source not in seen and (not edge.crossing or edge.state in (State.CANCELED, State.SKIPPED)):
                seen.add(source)
                left.append(source)
