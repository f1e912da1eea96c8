"""A task manager that is not root but may use the engine: what only root could do for its tasks,
the engine does.

The whole server runs as another user where the tests run as root, else as the tests' own.
Repositories are the tests'.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.engine import import_image, label, packed
from tests.repositories import Link, a_subversion_repository, run
from tests.requirements import missing
from tests.system.end_to_end.installation import ROOT, Archive, Installation, tasks
from tests.waiting import eventually

USER = "daemon"
"""Every system has it, and no image of the tests."""
LIBRARIES = f"{ROOT}:{sysconfig.get_path('purelib')}:{sysconfig.get_path('platlib')}"
GO = "until [ -e /shared/go ]; do sleep 0.05; done"


@pytest.fixture(scope="module")
def account(engine_url: str) -> dict[str, Any]:
    """How to start a process that is not root and may use the engine, for ``Popen``."""
    if os.geteuid() != 0:
        return {}
    socket = engine_url.removeprefix("unix://")
    if socket == engine_url or not os.stat(socket).st_mode & 0o020:
        missing("an engine whose socket a group may use")
    user = pwd.getpwnam(USER)
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": LIBRARIES, "HOME": "/nonexistent", "LC_ALL": "C.UTF-8"}
    return {"user": USER, "group": user.pw_gid, "extra_groups": [os.stat(socket).st_gid], "env": variables}


@pytest.fixture(scope="module")
def python(account: dict[str, Any]) -> str:
    """An interpreter that this user can run, with all that arkqueue needs."""
    if not account:
        return sys.executable
    command = ["-c", "import arkqueue, docker, psycopg, pygit2, subvertpy"]

    def can_be_used(program: str) -> bool:
        with suppress(OSError):
            return subprocess.run([program, *command], cwd="/", check=False, **account).returncode == 0
        return False

    program = next(filter(can_be_used, (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}")), None)
    if program is None:
        missing(f"a Python that user {USER!r} can run, with arkqueue and what it needs")
    return program


class Hosts:
    """Installations of that user; ``shared`` is for every task."""

    def __init__(self, folder: Path, account: dict[str, Any], python: str, docker: dict[str, str]) -> None:
        self.folder, self.account, self.python, self._docker = folder, account, python, docker
        self.shared = folder / "shared"
        self.shared.mkdir()
        self.shared.chmod(0o777)
        self.made: list[Installation] = []

    def start(self, **more: str) -> Installation:
        mounts = [{"name": "shared", "folder": str(self.shared), "archives": ["*"]}]
        made = Installation(self.folder / f"i{len(self.made)}", None, docker=self._docker | more, mounts=mounts)
        self.made.append(made)
        made.python = self.python
        if self.account:
            marked = self.account["env"] | {"END_TO_END": str(made.folder)}
            made.account = self.account | {"cwd": "/", "env": marked}
            os.chown(made.home(), pwd.getpwnam(USER).pw_uid, self.account["group"])
        made.start()
        return made


@pytest.fixture(scope="module")
def hosts(account: dict[str, Any], python: str, engine_url: str, engine: docker.APIClient) -> Iterator[Hosts]:
    folder = Path(tempfile.mkdtemp(prefix="arkqueue-not-root-"))
    folder.chmod(0o755)
    hosts = Hosts(folder, account, python, {"host": engine_url})
    try:
        yield hosts
        for made in hosts.made:
            ours = of(made)
            made.close()
            for container in engine.containers(all=True, filters=ours):
                engine.remove_container(container["Id"], force=True, v=True)
    finally:
        run("rm", "-r", folder)  # however deep


@pytest.fixture(scope="module")
def arkqueue(hosts: Hosts) -> Installation:
    return hosts.start()


def of(arkqueue: Installation) -> dict[str, list[str]]:
    ids = arkqueue.sql("select id::text from installation")
    return {"label": [f"arkqueue.installation={ids[0]['id']}"]}


@pytest.fixture
def papers(hosts: Hosts, arkqueue: Installation, request: pytest.FixtureRequest) -> Archive:
    return an_archive(hosts, arkqueue, request.node.name)


def an_archive(hosts: Hosts, arkqueue: Installation, name: str) -> Archive:
    """A program, a symlink and a folder, committed; tasks may be processes too."""
    name = "".join(sign for sign in name if sign.isalnum())
    repository = a_subversion_repository(hosts.folder, name)
    repository.commit({"bin/say": "#!/bin/sh\necho said\n", "link": Link("bin/say"), "old/paper": "1", "paper": "1\n"})
    repository.change("propset", "svn:executable", "*", "bin/say")
    arkqueue("archive", "add", name, repository.path, "--executor", "process")
    return Archive(arkqueue, name, repository)


def commit(papers: Archive, definitions: dict[str, dict[str, Any]], **changes: str) -> int:
    """The number of the revision, which the server has been told of."""
    number = int(papers.repository.commit(tasks(definitions) | changes))
    papers.installation("notify", papers.name)
    return number


def done(papers: Archive, key: str, state: str = "completed") -> str:
    """Wait for a task; its log."""
    eventually(lambda: papers.state(key))
    papers.wait(key, state)
    return papers.log(key)


def work(arkqueue: Installation) -> list[str]:
    return sorted(os.listdir(arkqueue.folder / "home" / "work"))


def nothing_is_left(arkqueue: Installation, engine: docker.APIClient) -> bool:
    volumes = engine.volumes(filters=of(arkqueue))["Volumes"] or []
    return (engine.containers(all=True, filters=of(arkqueue)), volumes, work(arkqueue)) == ([], [], [])


@pytest.fixture
def inside(busybox: str) -> Callable[..., dict[str, Any]]:
    """The fields of a task in a container."""

    def fields(command: str, **more: Any) -> dict[str, Any]:
        mounts = [{"name": "shared", "path": "/shared"}]
        return {"command": command, "image": busybox, "network": "none", "mounts": mounts, **more}

    return fields


Inside = Callable[..., dict[str, Any]]

MESS = (
    "id -u; bin/say; ./link; rm -r old; echo more >> paper; mkdir -p bin/closed/deep; touch bin/closed/deep/file; chmod 0 bin/closed;"
    "umask 077; mkdir mine; mkdir mine/mine; echo x > mine/mine/file; mknod pipe p; ln -s /etc etc; chmod 700 .;"
    "mkdir /arkqueue/closed; touch /arkqueue/closed/file; chown 0:0 /workspace; echo answer=42 > $ARKQUEUE_OUTPUT"
)


@pytest.mark.full
def test_it_says_that_it_cannot_be_another_user(papers: Archive, arkqueue: Installation) -> None:
    (manager,) = arkqueue.sql("select account from task_manager where stopped_at is null")
    refused = arkqueue("archive", "set", papers.name, "--process-user", "nobody", code=None)
    assert refused.code != 0
    assert f"these run as {manager['account']} on" in refused.err


def test_what_the_root_of_an_image_leaves_is_removed(
    papers: Archive, arkqueue: Installation, inside: Inside, engine: docker.APIClient
) -> None:
    rev = commit(papers, {"task": inside(MESS)})
    assert done(papers, f"task@{rev}").split() == ["0", "said", "said"]
    assert papers.attempts(f"task@{rev}")[0]["outputs"] == {"answer": "42"}
    eventually(lambda: nothing_is_left(arkqueue, engine))


@pytest.mark.full
def test_a_very_deep_tree_of_roots_is_removed(
    papers: Archive, arkqueue: Installation, inside: Inside, engine: docker.APIClient
) -> None:
    """Deeper than what the image's own programs can name in one path."""
    deep = (
        "d=$(printf 'd/%.0s' $(seq 1000)); for _ in 1 2 3; do mkdir -p $d; touch $d/file; cd -P $d; done; touch bottom"
    )
    rev = commit(papers, {"task": inside(deep, checkout="none")})
    done(papers, f"task@{rev}")
    eventually(lambda: nothing_is_left(arkqueue, engine))


def test_another_user_of_the_image_has_a_copy_of_its_own(
    papers: Archive, arkqueue: Installation, inside: Inside, engine: docker.APIClient
) -> None:
    text = (
        "echo $(id -u) $(id -g); rm -r old && echo more >> paper && touch bin/mine && bin/say && ./link &&"
        "mkdir closed && touch closed/file && chmod 0 closed && umask 077 && echo answer=42 > $ARKQUEUE_OUTPUT && chmod 0 /arkqueue"
    )
    rev = commit(papers, {"task": inside(text, user="1000")})
    log = done(papers, f"task@{rev}")
    assert "1000 100\nsaid\nsaid\n" in log
    assert log.count("the files are a copy, given to user") == 1
    assert papers.attempts(f"task@{rev}")[0]["outputs"] == {"answer": "42"}
    eventually(lambda: nothing_is_left(arkqueue, engine))


def test_base_is_brought_from_revision_to_revision(papers: Archive, arkqueue: Installation, inside: Inside) -> None:
    bases = arkqueue.folder / "home" / "bases"
    before = set(os.listdir(bases))
    first = commit(papers, {"task": inside("cat paper; ls old; bin/say; echo scribbled > paper; rm -r old bin")})
    assert done(papers, f"task@{first}").split() == ["1", "paper", "said"]
    second = commit(papers, {"task": inside("cat paper; ls old; ./link; readlink link")}, paper="2\n")
    assert done(papers, f"task@{second}").split() == ["2", "paper", "said", "bin/say"]
    assert len(set(os.listdir(bases)) - before) == 1


def test_working_copy_belongs_to_the_root_of_the_container(
    papers: Archive, arkqueue: Installation, inside: Inside, engine: docker.APIClient
) -> None:
    text = "stat -c %u . paper .svn; rm -r .svn && mkdir -m 700 .svn && touch .svn/x"
    rev = commit(papers, {"task": inside(text, checkout="working-copy")})
    assert "0\n0\n0\n" in done(papers, f"task@{rev}")
    eventually(lambda: nothing_is_left(arkqueue, engine))


def test_process_gets_a_copy_and_its_log_says_so_once(papers: Archive, arkqueue: Installation) -> None:
    rev = commit(papers, {"task": {"command": "id -u; bin/say; ./link; rm -r old; touch mine"}})
    log = done(papers, f"task@{rev}")
    assert log.count("the files are a copy") == 1
    assert log.split("\n")[-4:-1] == [str((arkqueue.folder / "home").stat().st_uid), "said", "said"]
    eventually(lambda: work(arkqueue) == [])


@pytest.mark.full
def test_containers_of_a_killed_task_manager_are_adopted_and_its_errands_removed(
    hosts: Hosts, inside: Inside, engine: docker.APIClient, busybox: str
) -> None:
    arkqueue = hosts.start()
    papers = an_archive(hosts, arkqueue, "adopted")
    begun = f"echo begun > /shared/begun-$ARKQUEUE_TASK; {GO}"
    commands = {
        "root": (f"{begun}; {MESS}", {}),
        "nobody": (f"{begun}; rm -r old; umask 077; mkdir x; touch x/y", {"user": "nobody"}),
    }
    rev = commit(papers, {name: inside(text, **more) for name, (text, more) in commands.items()})
    eventually(lambda: all((hosts.shared / f"begun-{name}").exists() for name in commands))
    arkqueue.roles[-1].kill()
    labels = dict(one.split("=") for one in of(arkqueue)["label"])
    labels["arkqueue.host"] = (arkqueue.folder / "home" / "host-id").read_text().strip()
    errand = engine.create_container(busybox, ["sleep", "1000"], labels=labels | {"arkqueue.errand": "somebody's"})
    engine.start(errand)
    arkqueue.start()
    eventually(lambda: len(engine.containers(filters=of(arkqueue))) == 2)
    (hosts.shared / "go").touch()
    for name in ("root", "nobody"):
        done(papers, f"{name}@{rev}")
        assert len(papers.attempts(f"{name}@{rev}")) == 1
    eventually(lambda: nothing_is_left(arkqueue, engine))


@pytest.mark.full
def test_image_that_cannot_give_files_has_the_configurations_do_it(
    hosts: Hosts, engine: docker.APIClient, busybox: str, request: pytest.FixtureRequest
) -> None:
    (name,) = label(request.config).values()
    bare = import_image(
        engine, f"{name}/bare", packed({"bin/sh": Path(shutil.which("busybox")).read_bytes()}), [], name
    )
    arkqueue = hosts.start(image=busybox)
    papers = an_archive(hosts, arkqueue, "bare")
    text = ": > mine; umask 077; echo x=1 > $ARKQUEUE_OUTPUT"
    rev = commit(papers, {"task": {"command": text, "image": bare, "network": "none", "user": "1000:1000"}})
    done(papers, f"task@{rev}")
    assert papers.attempts(f"task@{rev}")[0]["outputs"] == {"x": "1"}
    eventually(lambda: nothing_is_left(arkqueue, engine))
