"""What every test can have, beside the plugins: the machine's programs (``requirements``), PostgreSQL (``postgres``) and Docker (``engine``)."""

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
    """Random examples follow from the sources: whoever runs the same commit sees the same ones fail, and each change draws others. ``--hypothesis-seed=random`` draws others at once."""
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
    """No worker imports a file of which ``make test``, or ``make test-full``, runs no test: they are a tenth, and five sixths, of all."""
    if not (collection_path.name.startswith("test_") and collection_path.suffix == ".py"):
        return None
    if config.option.markexpr == "full":
        return b"pytest.mark.full" not in collection_path.read_bytes() or None
    if config.option.markexpr == "not full and not long":
        return bool(ALL_ARE_FULL.search(collection_path.read_bytes())) or None
    return None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays: to look for garbage in it again and again would take a sixth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests begin first: else the other workers are done long before the one that has them."""
    items.sort(key=_may_take, reverse=True)


def pytest_collection_finish() -> None:
    """What collecting made stays to the end: nobody looks for garbage among its million objects again and again."""
    gc.collect()
    gc.freeze()


def _may_take(item: pytest.Item) -> float:
    """The seconds that a test asks for; 0 for what is content with the usual ones."""
    asked = item.get_closest_marker("timeout")
    return float(asked.args[0]) if asked and asked.args else 0.0


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may look into; pytest's own are for their owner alone."""
    with tempfile.TemporaryDirectory(prefix="arkqueue-test-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder).resolve()


@pytest.fixture
def room_to_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs overflow into files however full the disk of whoever runs the tests is."""
    monkeypatch.setattr("arkqueue.logs.overflow.RESERVE", 0)
