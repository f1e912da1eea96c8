"""A server that runs as root and serves other users: real users, real repositories, and an engine
if the host has one.

mallory = people("mallory")                                 an account of this host, for the test
hers = site.archive("git", "--executor", "process", "--process-user", mallory.name)
hers.commit({"way": Link("/root"), **tasks({"look": {"command": "ls", "workdir": "way"}})})
hers.wait("look@2", "failed")
site.answers()                                              another archive's commit still runs
"""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import docker
import psycopg
import pytest

from arkqueue.db.embedded.server import Embedded
from tests.postgres import a_database
from tests.repositories import a_git_repository, a_subversion_repository
from tests.system.end_to_end.installation import IDLE, Archive, Installation, tasks

People = Callable[[str], pwd.struct_passwd]


class Site:
    """One server with the archives of several people. Everybody may pass through its home folder,
    as in a real installation that runs as root.
    """

    def __init__(self, folder: Path, installation: Installation) -> None:
        self.folder, self.installation = folder, installation
        self.home = installation.home()
        self._beside: Archive | None = None

    def archive(self, kind: str, *options: str, name: str = "") -> Archive:
        """Registers a repository with one revision, whose hook notifies the server of commits."""
        name = name or f"papers-{uuid.uuid4().hex[:8]}"
        repository = (a_git_repository if kind == "git" else a_subversion_repository)(self.folder, name)
        repository.commit({"paper.tex": "first thoughts\n"}, message="Begin a paper")
        self.installation("archive", "add", name, repository.path, *options)
        self.installation("hook", "install", repository.path)
        return Archive(self.installation, name, repository)

    def answers(self) -> None:
        """Commits to an archive that is not the attacker's, and checks that the task runs."""
        if self._beside is None:
            self._beside = self.archive("git", "--executor", "process")
        number = self._beside.commit(
            tasks({"beside": {"command": "true", "checkout": "none"}}) | {"n": uuid.uuid4().hex}
        )
        self._beside.wait(f"beside@{number}")


def a_site(database: str, *, before_readers: str = "", **settings: object) -> Iterator[Site]:
    """A server in a folder that everybody may read. Afterwards the folder is removed."""
    folder = Path(tempfile.mkdtemp(prefix="arkqueue-security-")).resolve()
    folder.chmod(0o755)
    installation = Installation(folder / "installation", database, slots=8, **IDLE, **settings)
    installation.before_readers = before_readers
    try:
        installation.start()
        yield Site(folder, installation)
    finally:
        installation.close()
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def site(request: pytest.FixtureRequest, postgres: Embedded, template: str) -> Iterator[Site]:
    """A server without an engine. Tests use their own archives and do not disturb each other."""
    request.getfixturevalue("root")
    with a_database(postgres, template) as uri:
        yield from a_site(uri)


@pytest.fixture(scope="session")
def site_with_containers(
    request: pytest.FixtureRequest, postgres: Embedded, template: str, engine: docker.APIClient, engine_url: str
) -> Iterator[Site]:
    """A server with an engine. Its containers are removed with it."""
    request.getfixturevalue("root")
    with a_database(postgres, template) as uri:
        for site in a_site(uri, docker={"host": engine_url}):
            yield site
            site.installation.close()
            with psycopg.connect(uri, row_factory=psycopg.rows.scalar_row) as connection:
                installation = connection.execute("select id::text from installation").fetchone()
            label = {"label": f"arkqueue.installation={installation}"}
            for container in engine.containers(all=True, filters=label):
                engine.remove_container(container["Id"], force=True, v=True)


@pytest.fixture
def people(request: pytest.FixtureRequest) -> Iterator[People]:
    """Makes accounts of this host. They are removed after the test, with everything
    that they run.
    """
    request.getfixturevalue("root")
    made: list[pwd.struct_passwd] = []

    def make(name: str) -> pwd.struct_passwd:
        name = f"{name}-{uuid.uuid4().hex[:6]}"
        _account("useradd", "--no-create-home", "--user-group", "--shell", "/bin/sh", name)
        made.append(pwd.getpwnam(name))
        return made[-1]

    yield make
    for person in made:
        _end_processes_of(person.pw_uid)
        _account("userdel", person.pw_name)


def as_person(
    person: pwd.struct_passwd, *command: str | Path, cwd: str | Path = "/"
) -> subprocess.CompletedProcess[str]:
    """Runs a program as the given user, with nothing of root's."""
    return subprocess.run(
        [str(word) for word in command],
        user=person.pw_uid,
        group=person.pw_gid,
        extra_groups=(),
        cwd=cwd,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def _account(*command: str) -> None:
    """Changes accounts one at a time, because the programs fail if another one has the lock."""
    with open("/tmp/arkqueue-accounts.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(command, check=True, capture_output=True)


def _end_processes_of(uid: int) -> None:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if os.stat(f"/proc/{pid}").st_uid == uid:
                os.kill(int(pid), 9)


@pytest.fixture
def mallory(people: People) -> pwd.struct_passwd:
    """A user of the host whose tasks are hostile."""
    return people("mallory")
