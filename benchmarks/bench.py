"""Figures and their targets. A figure is the median of several runs, with its spread, next to a
peer or a limit from the same run.

Compared programs run in turns (``interleaved``), so that other load on the machine affects all of
them alike. Only ratios are comparable; absolute times depend on the machine. A row is a function
from a ``Bench`` to figures. Called by ``benchmarks.__main__``.
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
    """The target of a figure. ``met`` returns None if the figure cannot be judged, because its peer
    is missing.
    """

    text: str
    met: Callable[[Figure], bool | None]


def at_most(bound: float, unit: str = "") -> Target:
    return Target(f"≤ {bound:g} {unit}".rstrip(), lambda figure: figure.median <= bound)


def at_least(bound: float, unit: str = "") -> Target:
    return Target(f"≥ {bound:g} {unit}".rstrip(), lambda figure: figure.median >= bound)


def never_above(bound: float, unit: str = "") -> Target:
    """A bound that also holds for the worst run."""
    return Target(f"never > {bound:g} {unit}".rstrip(), lambda figure: max(figure.runs) <= bound)


def ratio_at_least(bound: float) -> Target:
    return Target(f"≥ {bound:g}×", lambda figure: None if figure.ratio is None else figure.ratio >= bound)


def ratio_at_most(bound: float) -> Target:
    return Target(f"≤ {bound:g}×", lambda figure: None if figure.ratio is None else figure.ratio <= bound)


def faster(times: float) -> Target:
    """A target for durations: a number of times faster than the peer."""
    return Target(f"{times:g}× faster", lambda figure: None if figure.ratio is None else figure.ratio * times <= 1)


@dataclass(frozen=True, slots=True)
class Figure:
    """A measurement of one row. ``beside`` names the peer or limit from the same run, in the same
    unit.
    """

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
        """The ratio of arkqueue to the peer. If the runs form pairs, the median of the pairs'
        ratios, otherwise the ratio of the medians. None: there is no peer, or the clock of its
        figure is too coarse for it.
        """
        if not all(self.beside_runs or [0]):
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
    """The measurement of each contestant in each round. Each round starts with another contestant.
    ``warm``: adds a round before, which does not count.
    """
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
    """What all rows share. ``rounds``: the number of runs for a figure. ``peers``: the folder of
    the peers' environments; None measures without peers.
    """

    def __init__(self, folder: Path, *, quick: bool, rounds: int, sizes: Mapping[str, int], peers: Path | None) -> None:
        self.quick, self.rounds, self.peers = quick, rounds, peers
        self.folder = Path(tempfile.mkdtemp(prefix="arkqueue-bench-", dir=folder))
        self.folder.chmod(0o711)
        self._given = dict(sizes)
        self.sizes: dict[str, int] = {}
        """The sizes that ``size`` has returned."""
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
        """A size of a row: the requested one, or the full size, or with ``--quick`` a small one."""
        self.sizes[name] = self._given.get(name, quick if self.quick else full)
        return self.sizes[name]

    def say(self, text: str) -> None:
        """Tells the person who waits what happens now."""
        print(f"  … {text}", file=sys.stderr, flush=True)

    def a_folder(self, name: str) -> Path:
        folder = self.folder / f"{name}-{next(self._numbers)}"
        folder.mkdir(mode=0o711)
        return folder

    def keep(self, context: Any) -> Any:
        """Enters a context that several rows use. The context ends with the bench."""
        return self._stack.enter_context(context)

    @property
    def postgres(self) -> Embedded:
        """The one server that everybody uses, including peers: arkqueue's own, with full
        durability.
        """
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
        """A direct connection, without arkqueue's pool."""
        with psycopg.connect(uri or self.postgres.uri, autocommit=True, connect_timeout=10) as connection:
            yield connection

    @contextmanager
    def database(self, *, tables: bool = True) -> Iterator[str]:
        """The connection string of a new database. A peer wants it without arkqueue's tables."""
        name = f"bench_{next(self._numbers)}"
        with self.admin() as admin:
            admin.execute(f"create database {name}".encode())
        try:
            # This is a URL, because not every peer reads libpq's other form.
            uri = self.postgres.uri.replace(f"/{NAME}?", f"/{name}?", 1)
            if tables:
                with self.admin(uri) as connection:
                    migrate(connection)
            yield uri
        finally:
            with self.admin() as admin:
                admin.execute(f"drop database {name} with (force)".encode())


def machine() -> dict[str, Any]:
    """The machine of the figures, and its load."""
    return {
        "processors": len(os.sched_getaffinity(0)),
        "load": os.getloadavg(),
        "python": platform.python_version(),
        "system": platform.platform(),
    }
