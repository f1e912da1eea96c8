"""A real Docker engine for the tests, and images to run on it.

The tests use an engine that answers at ``DOCKER_HOST``, or at the usual socket. If none answers,
the first worker that needs an engine starts a ``dockerd`` for the test run, which takes root. The
process that controls the run stops this engine. Everything that a run makes carries the run's own
name, and the run touches nothing else. With ``CI=true``, a missing engine fails the tests.
Otherwise they are skipped, with a message that says what to install.

A plugin of ``conftest.py``. ``OwnEngine`` is for tests that stop, kill and fill an engine.
"""

from __future__ import annotations

import fcntl
import io
import os
import shlex
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import docker
import pytest
import requests
from docker.transport.unixconn import UnixHTTPConnection

from tests.requirements import missing

USUAL_SOCKET = "unix:///var/run/docker.sock"
LABEL = "arkqueue.test"
START_PATIENCE = 120.0
SMALL = ("--bridge=none", "--iptables=false", "--ip-masq=false", "--ip-forward=false")
"""Options of a second engine on the host, which runs in its own network namespace. Without the
namespace, an engine with ``--bridge=none`` would remove the bridge of the other engine.
"""

_FOLDER = pytest.StashKey[Path]()


def _connect(connection: UnixHTTPConnection) -> None:
    """Connects like the SDK, but closes the socket when the connection fails. The SDK leaves such a
    socket open, and a later test would get the resource warning. An engine may stop right after
    arkqueue has found it, so this happens in ordinary tests.
    """
    with ExitStack() as failed:
        opened = failed.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        opened.settimeout(connection.timeout)
        opened.connect(connection.unix_socket)
        failed.pop_all()
    connection.sock = opened


UnixHTTPConnection.connect = _connect


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        # The folder is made only by a run that needs an engine.
        config.stash[_FOLDER] = Path(tempfile.gettempdir()) / f"arkqueue-engine-{uuid.uuid4().hex[:12]}"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["arkqueue_engine"] = str(node.config.stash[_FOLDER])


def pytest_unconfigure(config: pytest.Config) -> None:
    folder = config.stash.get(_FOLDER, None)
    if folder is None or not folder.exists():
        return
    with suppress(FileNotFoundError):
        api = client((folder / "url").read_text())
        for image in api.images(filters={"label": f"{LABEL}={folder.name}"}, quiet=True):
            api.remove_image(image, force=True)
        api.close()
    OwnEngine(folder).destroy()


@pytest.fixture(scope="session")
def engine_url(request: pytest.FixtureRequest) -> str:
    """The address of an engine that answers."""
    folder = _folder(request.config)
    with _one_at_a_time(folder / "lock"):
        url = folder / "url"
        if not url.exists():
            url.write_text(_an_engine(folder))
        return url.read_text()


@pytest.fixture(scope="session")
def engine(engine_url: str) -> Iterator[docker.APIClient]:
    """The SDK's client of the engine. Tests inspect the engine with it, and play other users of the
    engine.
    """
    api = client(engine_url)
    yield api
    api.close()


@pytest.fixture(scope="session")
def busybox(request: pytest.FixtureRequest, engine: docker.APIClient) -> str:
    """An image with only busybox, and the users root, builder (1000:100, group staff)
    and nobody.
    """
    return _an_image(request.config, engine, "busybox", busybox_files(), [])


@pytest.fixture(scope="session")
def dressed(request: pytest.FixtureRequest, engine: docker.APIClient) -> str:
    """The image ``busybox`` with its own entrypoint, command, user, folder, volume, variables and
    health check.
    """
    changes = [
        'ENTRYPOINT ["/bin/false"]',
        'CMD ["never"]',
        "USER builder",
        "WORKDIR /srv",
        "VOLUME /data",
        "ENV A=image B=image",
    ]
    return _an_image(
        request.config, engine, "dressed", busybox_files(), [*changes, "HEALTHCHECK --interval=1s CMD touch /unhealthy"]
    )


@pytest.fixture(scope="session")
def empty_image(request: pytest.FixtureRequest, engine: docker.APIClient) -> str:
    """An image without a single file."""
    return _an_image(request.config, engine, "empty", packed({}), [])


@pytest.fixture
def own_engine() -> Iterator[Callable[..., OwnEngine]]:
    """Starts engines for one test. Each engine is removed after the test with everything it holds,
    whatever its state.
    """
    made: list[OwnEngine] = []
    why = _cannot_start()
    if why:
        missing(why)

    def start(prepare: Callable[[Path], None] = lambda _folder: None) -> OwnEngine:
        folder = Path(tempfile.gettempdir()) / f"arkqueue-engine-{uuid.uuid4().hex[:12]}"
        folder.mkdir()
        made.append(OwnEngine(folder))
        prepare(folder)
        made[-1].start(*SMALL)
        return made[-1]

    yield start
    for one in made:
        one.destroy()


class OwnEngine:
    """A ``dockerd`` in a folder, with its own containerd, which ends with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"unix://{folder}/docker.sock"
        self._options: tuple[str, ...] = ()
        self._was_killed = False

    @property
    def pid(self) -> int | None:
        """The process id of the running engine, or None."""
        with suppress(FileNotFoundError, ValueError):
            pid = int((self.folder / "pid").read_text())
            if _is_alive(pid):
                return pid
        return None

    def start(self, *options: str) -> None:
        """Starts the engine. Returns when the engine answers."""
        self._options = options or self._options
        self._was_killed = False
        places = {"data-root": "data", "exec-root": "exec", "pidfile": "pid", "config-file": "daemon.json"}
        with (self.folder / "daemon.json").open("a") as file:
            if not file.tell():
                file.write("{}")
        own = [f"--{option}={self.folder / name}" for option, name in places.items()]
        with suppress(FileNotFoundError):
            (self.folder / "pid").unlink()
        alone = ["unshare", "--net"] if self._options else []
        engine = ["dockerd", f"--host={self.url}", "--cgroup-parent", self.folder.name, *own, *self._options]
        # The engine starts a copy of its own program for each container. Those processes are
        # short-lived, so they collect garbage less often.
        command = shlex.join(["env", "GOGC=400", *alone, *engine])
        # The engine belongs to the run, not to the worker that starts it.
        subprocess.run(
            ["/bin/sh", "-c", f"exec 9>&-; {command} >>{self.folder}/log 2>&1 </dev/null &"],
            check=True,
            start_new_session=True,
        )
        self.wait()

    def wait(self) -> None:
        patience = time.monotonic() + START_PATIENCE
        while not answers(self.url):
            assert time.monotonic() < patience, f"dockerd does not answer:\n{self._last_words()}"
            time.sleep(0.02)

    def stop(self) -> None:
        """Stops the engine like an administrator: its containers stop as well."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kills the engine like a crash: its containers continue."""
        self._was_killed = True
        containerd = self.folder / "exec/containerd/containerd.pid"
        pid = int(containerd.read_text())
        self._end(signal.SIGKILL)
        self._until_gone(pid)  # containerd dies with its parent
        # A zombie process would look like a running containerd to the next engine.
        containerd.unlink()

    def freeze(self) -> None:
        os.kill(self._pid(), signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self._pid(), signal.SIGCONT)

    def destroy(self) -> None:
        if self._was_killed and self.pid is None:
            self.start()  # only a new engine can remove what a crash has left
        if self.pid is not None:
            self.thaw()
            api = client(self.url)
            for container in api.containers(all=True, quiet=True):
                with suppress(
                    docker.errors.APIError
                ):  # somebody else may be removing it; the rest goes with the folder
                    api.remove_container(container["Id"], force=True, v=True)
            api.close()
            self.stop()
        for mount in sorted(_mounts_below(self.folder), reverse=True):
            subprocess.run(["umount", "--lazy", mount], check=True)
        # A glob would stop when the cgroup of another engine disappears meanwhile.
        for group, _, _ in os.walk("/sys/fs/cgroup", topdown=False):
            if self.folder.name in group.split("/"):
                with suppress(OSError):  # a busy cgroup stays; it is empty and costs nothing
                    os.rmdir(group)
        shutil.rmtree(self.folder)

    def _end(self, number: signal.Signals) -> None:
        pid = self._pid()
        os.kill(pid, number)
        self._until_gone(pid)

    def _until_gone(self, pid: int) -> None:
        patience = time.monotonic() + START_PATIENCE
        while _is_alive(pid):
            assert time.monotonic() < patience, f"dockerd does not end:\n{self._last_words()}"
            time.sleep(0.02)

    def _pid(self) -> int:
        pid = self.pid
        assert pid is not None, "the engine does not run"
        return pid

    def _last_words(self) -> str:
        with suppress(FileNotFoundError):
            return (self.folder / "log").read_text(errors="replace")[-4000:]
        return ""


def client(url: str) -> docker.APIClient:
    return docker.APIClient(base_url=url, version="auto", timeout=120)


def answers(url: str) -> bool:
    try:
        if url.startswith("unix://"):
            # The SDK leaves the socket of a failed connection open, so this connects first.
            with socket.socket(socket.AF_UNIX) as door:
                door.connect(url.removeprefix("unix://"))
        api = docker.APIClient(base_url=url, version="auto", timeout=10)
    except (docker.errors.DockerException, requests.RequestException, OSError):
        return False
    api.close()
    return True


# --- Images ---


USERS = "root:x:0:0::/:/bin/sh\nbuilder:x:1000:100::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"
GROUPS = "root:x:0:\nstaff:x:50:builder\nusers:x:100:\nnobody:x:65534:\n"


def busybox_files(users: str = USERS, groups: str = GROUPS) -> bytes:
    """The files of a busybox image, as a tar archive."""
    program = shutil.which("busybox")
    if program is None or b"ld-linux" in (binary := Path(program).read_bytes())[:4096]:
        missing("a static busybox (Debian: apt-get install busybox-static)")
    applets = subprocess.run([program, "--list"], check=True, capture_output=True, text=True).stdout.split()
    files: dict[str, bytes | str] = {"bin/busybox": binary}
    files |= {f"bin/{applet}": "/bin/busybox" for applet in applets if applet != "busybox"}
    files["etc/passwd"], files["etc/group"] = users.encode(), groups.encode()
    return packed(files)


def packed(files: dict[str, bytes | str]) -> bytes:
    """A tar archive of files (bytes) and symbolic links (text). Files in ``bin`` are executable."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        if files:
            folder = tarfile.TarInfo("tmp")
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777
            tar.addfile(folder)
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.mode = 0o755 if name.startswith("bin/") else 0o644
            if isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
                tar.addfile(member)
            else:
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return archive.getvalue()


def import_image(api: docker.APIClient, name: str, files: bytes, changes: list[str], run: str) -> str:
    api.import_image_from_data(files, repository=name, tag="1", changes=[*changes, f"LABEL {LABEL}={run}"])
    return f"{name}:1"


def _an_image(config: pytest.Config, api: docker.APIClient, name: str, files: bytes, changes: list[str]) -> str:
    run = _folder(config).name
    return once_for_the_run(config, name, lambda full: import_image(api, full, files, changes, run))


def once_for_the_run(config: pytest.Config, name: str, make: Callable[[str], object]) -> str:
    """An image that the first worker asking for it makes. ``make`` receives the full name of the
    image. Returns the name with the tag 1.
    """
    folder = _folder(config)
    full = f"{folder.name}/{name}"
    with _one_at_a_time(folder / f"lock-{name}"):
        made = folder / f"image-{name}"
        if not made.exists():
            make(full)
            made.touch()
    return f"{full}:1"


def label(config: pytest.Config) -> dict[str, str]:
    """The label that marks an image as made by this run, so that the end of the run removes the
    image.
    """
    return {LABEL: _folder(config).name}


# --- Where the engine comes from ---


def _an_engine(folder: Path) -> str:
    named = os.environ.get("DOCKER_HOST")
    for url in (named,) if named else (USUAL_SOCKET,):
        if answers(url):
            return url
    why = f"an engine at {named}" if named else _cannot_start()
    if why:
        missing(why)
    own = OwnEngine(folder)
    own.start()
    return own.url


def _cannot_start() -> str:
    if shutil.which("dockerd") is None:
        return "a Docker engine (Debian: apt-get install docker.io)"
    if os.geteuid() != 0:
        return "a Docker engine that runs (starting one takes root)"
    return ""


def _folder(config: pytest.Config) -> Path:
    folder = Path(config.workerinput["arkqueue_engine"]) if hasattr(config, "workerinput") else config.stash[_FOLDER]
    folder.mkdir(exist_ok=True)
    return folder


@contextmanager
def _one_at_a_time(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _mounts_below(folder: Path) -> list[str]:
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [mount for mount in mounts if Path(mount).is_relative_to(folder)]
