"""The plugins and hooks of all tests: the machine's programs (``requirements``), PostgreSQL
(``postgres``), Docker (``engine``), and what they share.
"""

from __future__ import annotations

import gc
import hashlib
import os
import re
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

pytest_plugins = [
    "tests.memory",
    "tests.loaded",
    "tests.requirements",
    "tests.postgres",
    "tests.sessions",
    "tests.engine",
]

settings.register_profile("ci", deadline=None, derandomize=False, print_blob=True)
settings.register_profile("long", deadline=None, derandomize=False, print_blob=True, max_examples=10_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Seeds the random examples from the sources. Everybody who runs the same commit sees the same
    examples fail, and each change of the sources draws other examples. ``--hypothesis-seed=random``
    draws other examples at once.
    """
    if config.option.hypothesis_seed is None and os.environ.get("HYPOTHESIS_PROFILE") != "long":
        config.option.hypothesis_seed = str(_digest_of_sources())


def _digest_of_sources() -> int:
    root, digest = Path(__file__).parent.parent, hashlib.sha256()
    for folder in ("arkqueue", "tests"):
        for path in sorted(root.joinpath(folder).rglob("*.*")):
            if path.suffix in (".py", ".sql"):
                digest.update(path.read_bytes())
    return int.from_bytes(digest.digest()[:6])


ALL_ARE_FULL = re.compile(rb"^pytestmark = .*\bpytest\.mark\.full\b", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skips the import of files that contain no test of this run. These files are a tenth of all
    files in ``make test``, and five sixths in ``make test-full``.
    """
    if not (collection_path.name.startswith("test_") and collection_path.suffix == ".py"):
        return None
    if config.option.markexpr == "full":
        return b"pytest.mark.full" not in collection_path.read_bytes() or None
    if config.option.markexpr == "not full and not long":
        return bool(ALL_ARE_FULL.search(collection_path.read_bytes())) or None
    return None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collects tests without garbage collection. Imported and collected objects stay alive, and
    searching them for garbage takes a sixth of the time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Lets each worker begin with its share of the longest tests. Otherwise one worker still runs a
    long test when the others are done. xdist gives each worker a part of the list, in this order
    (``--dist worksteal``).
    """
    items.sort(key=_may_take, reverse=True)
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    long = [item for item in items if _may_take(item)]
    others = items[len(long) :]
    dealt: list[pytest.Item] = []
    for worker in range(workers):
        part = long[worker::workers]
        size = (len(items) - len(dealt)) // (workers - worker) - len(part)
        dealt += part + others[: max(0, size)]
        del others[: max(0, size)]
    items[:] = dealt + others


def pytest_collection_finish() -> None:
    """Excludes the million objects of the collection from every later garbage collection."""
    gc.collect()
    gc.freeze()


def _may_take(item: pytest.Item) -> float:
    """The time limit in seconds that a test sets with its mark; 0 for a test with the default
    limit.
    """
    asked = item.get_closest_marker("timeout")
    return float(asked.args[0]) if asked and asked.args else 0.0


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every account may read. The folders of pytest are private to their owner."""
    with tempfile.TemporaryDirectory(prefix="arkqueue-test-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder).resolve()


@pytest.fixture
def room_to_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets logs overflow into files, however full the host's disk is."""
    monkeypatch.setattr("arkqueue.logs.overflow.RESERVE", 0)
