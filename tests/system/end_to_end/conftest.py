"""Installations, archives and stages for tests from end to end. Tests that do not disturb each
other share one server.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from arkqueue.db.embedded.server import Embedded
from tests.postgres import a_database
from tests.repositories import a_git_repository, a_subversion_repository
from tests.soundness import assert_sound
from tests.system.end_to_end.installation import IDLE, Archive, Installation, Stage

Installations = Callable[..., Installation]


class Archives(Protocol):
    def __call__(
        self, installation: Installation, kind: str = "subversion", *, process: bool = True, hook: bool = True
    ) -> Archive: ...


@pytest.fixture(scope="session")
def shared(postgres: Embedded, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """A server that many tests use, each with its own archives."""
    with a_database(postgres, template) as uri:
        arkqueue = Installation(tmp_path_factory.mktemp("shared"), uri, slots=8, **IDLE)
        arkqueue.start()
        yield arkqueue
        arkqueue.close()


@pytest.fixture(autouse=True)
def _sound(request: pytest.FixtureRequest) -> Iterator[None]:
    """Checks the database of the shared server after a test. Other tests may still run there,
    because the invariants hold at any moment.
    """
    yield
    if "shared" in request.fixturenames:
        shared: Installation = request.getfixturevalue("shared")
        assert_sound(shared.connection)


@pytest.fixture
def installations(pg_uri: str, tmp_path: Path) -> Iterator[Installations]:
    """Makes a test's own installations. They use the test's database unless another is named (None:
    the embedded one).
    """
    made: list[Installation] = []

    def make(*, database: str | None = pg_uri, folder: Path | None = None, **settings: str | int) -> Installation:
        made.append(Installation(folder or tmp_path / f"installation-{len(made)}", database, **settings))
        return made[-1]

    yield make
    for arkqueue in made:
        arkqueue.close()


@pytest.fixture
def archives(tmp_path: Path) -> Archives:
    """Makes a repository with one revision and registers it. Its hook notifies the server of
    commits.
    """

    def make(
        installation: Installation, kind: str = "subversion", *, process: bool = True, hook: bool = True
    ) -> Archive:
        name = f"papers-{uuid.uuid4().hex[:8]}"
        repository = (a_git_repository if kind == "git" else a_subversion_repository)(tmp_path, name)
        repository.commit({"paper.tex": "first thoughts\n"}, message="Begin a paper")
        executor = ["--executor", "process"] if process else []
        installation("archive", "add", name, repository.path, *executor)
        if hook:
            installation("hook", "install", repository.path)
        return Archive(installation, name, repository)

    return make


@pytest.fixture(params=["subversion", "git"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path / "stage")
    yield stage
    stage.nothing_overlapped()
