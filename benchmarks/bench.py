"""What a measurement is here: a figure is the median of several runs, shown with its spread, beside its peer or limit from the same run, and judged by its targets.

What is compared takes turns (``interleaved``), so that what else the machine does meets all alike. Ratios are the result; absolute times are as good as the machine.
Rows are functions from a ``Bench`` to figures. Called by ``benchmarks.__main__``.
"""

from __future__ import annotations

import itertools
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from arkqueue.db.embedded.server import NAME, Embedded
from arkqueue.db.migrations import migrate


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure should reach. ``met`` answers None where the figure has nothing to judge by: its peer is not there."""

    text: str
    met: Callable[[Figure], bool | None]


def at_most(bound: float, unit: str = "") -> Target:
    return Target(f"≤ {bound:g} {unit}".rstrip(), lambda figure: figure.median <= bound)


def at_least(bound: float, unit: str = "") -> Target:
    return Target(f"≥ {bound:g} {unit}".rstrip(), lambda figure: figure.median >= bound)


def never_above(bound: float, unit: str = "") -> Target:
    """Also the worst run has to hold it."""
    return Target(f"never > {bound:g} {unit}".rstrip(), lambda figure: max(figure.runs) <= bound)


def ratio_at_least(bound: float) -> Target:
    return Target(f"≥ {bound:g}×", lambda figure: None if figure.ratio is None else figure.ratio >= bound)


def ratio_at_most(bound: float) -> Target:
    return Target(f"≤ {bound:g}×", lambda figure: None if figure.ratio is None else figure.ratio <= bound)


def faster(times: float) -> Target:
    """Of durations: so many times faster than the peer."""
    return Target(f"{times:g}× faster", lambda figure: None if figure.ratio is None else figure.ratio * times <= 1)


@dataclass(frozen=True, slots=True)
class Figure:
    """What one row measured. ``beside`` names the peer or limit of the same run, in the same unit."""

    row: str
    what: str
    unit: str
    runs: Sequence[float]
    targets: Sequence[Target] = ()
    beside: str = ""
    beside_runs: Sequence[float] = ()
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.runs)

    @property
    def ratio(self) -> float | None:
        """Ours to the peer's: the median of the pairs where runs come in pairs, else of the medians."""
        if not self.beside_runs:
            return None
        if len(self.runs) == len(self.beside_runs):
            return statistics.median(ours / other for ours, other in zip(self.runs, self.beside_runs, strict=True))
        return self.median / statistics.median(self.beside_runs)

    def verdicts(self) -> list[tuple[str, bool | None]]:
        return [(target.text, target.met(self)) for target in self.targets]

    def as_json(self) -> dict[str, Any]:
        return {
            "row": self.row,
            "what": self.what,
            "unit": self.unit,
            "median": self.median,
            "runs": list(self.runs),
            "beside": self.beside,
            "beside_runs": list(self.beside_runs),
            "ratio": self.ratio,
            "targets": [{"target": text, "met": met} for text, met in self.verdicts()],
            "note": self.note,
        }


def interleaved(
    rounds: int, contestants: Mapping[str, Callable[[], float]], *, warm: bool = False
) -> dict[str, list[float]]:
    """What each contestant measured in each round; every round begins with another one. ``warm``: a round before that does not count."""
    found: dict[str, list[float]] = {name: [] for name in contestants}
    names = list(contestants)
    for turn in range(-1 if warm else 0, rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            value = contestants[name]()
            if turn >= 0:
                found[name].append(value)
    return found


def seconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


class Bench:
    """What rows stand on. ``rounds``: how many runs make a figure. ``peers``: where their environments are; None: nobody is compared with."""

    def __init__(self, folder: Path, *, quick: bool, rounds: int, sizes: Mapping[str, int], peers: Path | None) -> None:
        self.quick, self.rounds, self.peers = quick, rounds, peers
        self.folder = Path(tempfile.mkdtemp(prefix="arkqueue-bench-", dir=folder))
        self.folder.chmod(0o711)
        self._given = dict(sizes)
        self.sizes: dict[str, int] = {}
        """What ``size`` has answered."""
        self._numbers = itertools.count(1)
        self._stack = ExitStack()
        self._postgres: Embedded | None = None

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        if self._postgres is not None:
            self._postgres.destroy()
        shutil.rmtree(self.folder)

    def size(self, name: str, full: int, quick: int) -> int:
        """A size of a row: what was asked for, else that of the issue, or a small one."""
        self.sizes[name] = self._given.get(name, quick if self.quick else full)
        return self.sizes[name]

    def say(self, text: str) -> None:
        """Tell whoever waits what is being done."""
        print(f"  … {text}", file=sys.stderr, flush=True)

    def a_folder(self, name: str) -> Path:
        folder = self.folder / f"{name}-{next(self._numbers)}"
        folder.mkdir(mode=0o711)
        return folder

    def keep(self, context: Any) -> Any:
        """Enter something that several rows use; it is left at the end."""
        return self._stack.enter_context(context)

    @property
    def postgres(self) -> Embedded:
        """The one server that everybody uses, peers included: arkqueue's own, with all its durability."""
        if self._postgres is None:
            self.say("starting PostgreSQL")
            self._postgres = Embedded.open(self.folder / "home")
            with self.admin() as connection:
                for setting in ("fsync", "synchronous_commit", "full_page_writes"):
                    (value,) = connection.execute(f"show {setting}".encode()).fetchone() or ("",)
                    assert value == "on", setting
        return self._postgres

    @contextmanager
    def admin(self, uri: str = "") -> Iterator[psycopg.Connection[Any]]:
        """A connection past everything of arkqueue's."""
        with psycopg.connect(uri or self.postgres.uri, autocommit=True, connect_timeout=10) as connection:
            yield connection

    @contextmanager
    def database(self, *, tables: bool = True) -> Iterator[str]:
        """The connection string of a database of its own; a peer wants it without arkqueue's tables."""
        name = f"bench_{next(self._numbers)}"
        with self.admin() as admin:
            admin.execute(f"create database {name}".encode())
        try:
            # As a URL: not every peer reads libpq's other form.
            uri = self.postgres.uri.replace(f"/{NAME}?", f"/{name}?", 1)
            if tables:
                with self.admin(uri) as connection:
                    migrate(connection)
            yield uri
        finally:
            with self.admin() as admin:
                admin.execute(f"drop database {name} with (force)".encode())


def machine() -> dict[str, Any]:
    """Where the figures were got, and how busy it was there."""
    return {
        "processors": len(os.sched_getaffinity(0)),
        "load": os.getloadavg(),
        "python": platform.python_version(),
        "system": platform.platform(),
    }
