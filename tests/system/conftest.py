"""What several rooms of the system tests have in common."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import arkqueue
from arkqueue.archives import scan
from tests.loaded import write_program
from tests.system.executor.registry import Registry


@dataclass(frozen=True)
class Checker:
    """The program ``arkqueue`` as a hook starts it, whether or not it is installed here. It writes down each start of itself."""

    path: str
    log: Path

    @property
    def starts(self) -> int:
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0


@pytest.fixture
def checker(tmp_path: Path) -> Checker:
    """It begins with arkqueue loaded, which takes a hook 30 instead of 450 ms of CPU time."""
    log, program = tmp_path / "checks", tmp_path / "arkqueue-checker"
    write_program(program, log)
    return Checker(str(program), log)


@pytest.fixture
def checker_alone(tmp_path: Path) -> Checker:
    """It loads arkqueue itself, as one that is installed does."""
    log, program = tmp_path / "checks", tmp_path / "arkqueue-checker"
    program.write_text(
        f"#!{sys.executable}\n"
        "import sys\n"
        f"sys.path.insert(0, {str(Path(arkqueue.__file__).parents[1])!r})\n"
        f"open({str(log)!r}, 'a').write('started\\n')\n"
        "from arkqueue.cli import main\n"
        "main()\n"
    )
    program.chmod(0o755)
    return Checker(str(program), log)


@pytest.fixture
def registry() -> Iterator[Registry]:
    """A registry of images that answers as the test says."""
    made = Registry()
    yield made
    made.close()


@pytest.fixture
def no_queue_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    """None runs beside the server that a test asks, and the database does not know for how long: its scans are not waited for."""
    monkeypatch.setattr(scan, "PATIENCE", 0.0)
