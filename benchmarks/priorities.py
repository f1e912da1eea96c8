"""Row 19: a claim among ready tasks of mixed priorities, next to a claim among as many tasks of one
priority.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from arkqueue.db.session import Session
from arkqueue.queue import claim
from benchmarks.bench import Bench, Figure, at_most, seconds
from benchmarks.lines import Line, a_queue, a_workflow

TIMES = 1.2
"""The most that a claim among mixed priorities may take, as a multiple of one among equal
priorities (shared/control-and-batches.md, the figures below section 14).
"""
PROCESS = "bench"
CLAIMS = 200
"""The timed claims of one task in each queue, in turns."""
REVISION = 1000
"""The tasks of one revision."""
PRIORITIES = 997
"""The priorities of mixed tasks. The number is prime, so that neighbouring tasks of one revision
and of two revisions differ.
"""


def priorities(bench: Bench) -> Iterator[Figure]:
    """Two queues with equally many ready tasks, claimed one at a time, in turns. The first claims
    do not count.
    """
    ready = bench.size("priorities.ready", 100_000, 5000)
    mixed: list[float] = []
    equal: list[float] = []
    for _ in range(bench.rounds):
        with (
            bench.database() as uri, a_queue(uri) as with_mixed, bench.database() as other, a_queue(other) as with_equal,
        ):  # fmt: skip
            _fill(with_mixed, ready, lambda n: n * 31 % PRIORITIES)
            _fill(with_equal, ready, lambda _: 50)
            times = [(_claimed(with_mixed), _claimed(with_equal)) for _ in range(CLAIMS + CLAIMS // 10)]
            ours, theirs = zip(*times[CLAIMS // 10 :], strict=True)
            mixed.append(sorted(ours)[CLAIMS // 2] * 1000)
            equal.append(sorted(theirs)[CLAIMS // 2] * 1000)
    what = f"claim of one of {ready} ready tasks of {PRIORITIES} priorities"
    yield Figure("19", what, "ms", mixed, [], "one priority", equal, note=f"median of {CLAIMS}")
    times_equal = [one / other for one, other in zip(mixed, equal, strict=True)]
    yield Figure("19", f"{what}, times one of one priority", "", times_equal, [at_most(TIMES)])


def _fill(session: Session, ready: int, priority: Callable[[int], int]) -> None:
    line = Line.register(session, "papers")
    for begin in range(0, ready, REVISION):
        numbers = range(begin, min(begin + REVISION, ready))
        line.append(session, a_workflow("".join(_task(n, priority(n)) for n in numbers)))


def _task(number: int, priority: int) -> str:
    return f"- {{name: t{number}, command: 'true', priority: {priority}}}\n"


def _claimed(session: Session) -> float:
    """Seconds to claim one task."""
    return seconds(lambda: claim.claim(session, PROCESS, PROCESS, 1))
