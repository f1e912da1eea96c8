"""Images: fetched before a task starts, and examined without running them. Also the proof that the
engine sees this host's folders.

To examine an image, this module creates a container, reads it and removes it, without ever starting
it. ``executor`` calls this module.
"""

from __future__ import annotations

import io
import json
import re
import secrets
import tarfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker import auth
from docker.errors import APIError, DockerException, NotFound
from docker.utils import parse_repository_tag

from arkqueue.errors import ExecutorError
from arkqueue.executor.docker.container import engine_fault, no_user
from arkqueue.executor.docker.engine import Engine, Silence, said
from arkqueue.model import Pull

MAX_LINKS = 8
"""The most symbolic links on the way to a file of an image."""
USERS, GROUPS = "/etc/passwd", "/etc/group"
SILENCE = 300.0
"""The longest silence during a pull, in seconds."""
STILL_WANTED = 0.25
"""The seconds between two checks whether a pull is still wanted."""
NOT_REACHED = (
    "dial tcp",
    "no such host",
    "connection refused",
    "TLS",
    "timeout",
    "request canceled",
    "deadline exceeded",
)
LOGIN_WANTED = "unauthorized", "authentication", "no basic auth credentials"
"""Words in an error that show that fetching the image needs a login."""


@dataclass(frozen=True, slots=True)
class Account:
    """The account of a program in a container, by numbers. ``groups``: its supplementary groups."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


class FolderNotSeen(ExecutorError):
    """The engine has no folder, or another one, at the path of a folder of this host: the folder
    cannot be given to a container.
    """


class Images:
    """The images of one engine. Any thread may call it."""

    def __init__(self, engine: Engine, labels: Mapping[str, str]) -> None:
        self._engine, self._labels = engine, labels
        self._lock = threading.Lock()
        self._files: dict[tuple[str, str], str] = {}
        self._folders: dict[tuple[str, str], bool] = {}

    def have(self, name: str, pull: Pull, is_wanted: Callable[[], bool], note: Callable[[str], None]) -> str:
        """Get an image by its pull policy. Returns its digest, which identifies exactly this image.
        A pull that is no longer wanted is given up.

        ``note``: called before a pull, which may take long.
        """
        if not name:
            raise ExecutorError(f"image {name!r}", "it has no name", "Name an image")
        found = None if pull is Pull.ALWAYS else self._find(name)
        if found is None:
            if pull is Pull.NEVER:
                raise ExecutorError(
                    f"image {name!r}",
                    "the engine does not have it, and `pull: never` forbids fetching it",
                    "Pull or build it there",
                )
            note(f"image {name} is fetched" + (", unless the engine has its newest" if pull is Pull.ALWAYS else ""))
            self._pull(name, is_wanted)
            found = self._find(name)
            if found is None:
                raise ExecutorError(f"image {name!r}", "it was fetched, but the engine does not have it", "Try again")
        return digest_of(name, found)

    def path(self, image: str) -> str:
        """The PATH of an image's programs; empty if it has none."""
        found = self._find(image)
        variables = (found or {}).get("Config", {}).get("Env") or ()
        return next((str(v).removeprefix("PATH=") for v in variables if str(v).startswith("PATH=")), "")

    def has_folder(self, image: str, path: str) -> bool:
        """Whether an image has a folder. An image never changes, so each answer is cached."""
        with self._lock:
            known = self._folders.get((image, path))
        if known is None:
            with self._looked_into(image) as container:
                known = self._engine.has_folder(container, path)
            with self._lock:
                self._folders[image, path] = known
        return known

    def account(self, image: str, user: str | None, name: str) -> Account:
        """The account of ``user`` in an image (None: the image's default), as the engine determines
        it. Messages call the image ``name``.
        """
        found = self._find(image)
        if found is None:
            raise ExecutorError(f"image {name!r}", "the engine does not have it", "Pull it")
        wanted = user or found["Config"].get("User") or "0"
        owner, _, group = wanted.partition(":")
        if owner.isdecimal() and group.isdecimal():
            return Account(int(owner), int(group))
        account = self._user(found["Id"], name, owner or "0")
        if not group:
            return account
        # A user with a named group has no other groups.
        return Account(account.uid, int(group) if group.isdecimal() else self._group(found["Id"], name, wanted, group))

    def prove_same_paths(self, folder: Path) -> None:
        """Prove that the engine sees a folder of this host under the same path. Raises
        FolderNotSeen, or another ExecutorError if the proof fails.
        """
        mark = folder / f".arkqueue-probe-{secrets.token_hex(8)}"
        mark.mkdir()
        mount = {"Type": "bind", "Source": str(folder), "Target": "/probe", "ReadOnly": True}
        fault = None
        try:
            with self._empty_image() as image, self._made(image, {"Mounts": [mount]}) as container:
                if not self._engine.has_folder(container, f"/probe/{mark.name}"):
                    fault = "it is another folder there"
        except APIError as error:
            if its_own := engine_fault(said(error)):
                raise its_own from None
            if "bind source path does not exist" not in said(error):
                raise ExecutorError(f"folder {folder}", f"the engine cannot mount it ({said(error)})") from None
            fault = "there is no such folder there"
        finally:
            mark.rmdir()
        if fault:
            raise FolderNotSeen(
                f"folder {folder}",
                f"the engine at {self._engine.url} does not see it under the same path: {fault}",
                "Mount the engine's folder at the same absolute path where the task manager runs",
            )

    def _find(self, name: str) -> dict[str, Any] | None:
        try:
            with self._engine.calls() as api:
                image: dict[str, Any] = api.inspect_image(name)
                return image
        except NotFound:
            return None
        except APIError as error:
            raise ExecutorError(
                f"image {name!r}", f"the engine refuses it ({said(error)})", "Correct its name"
            ) from None

    def _pull(self, name: str, is_wanted: Callable[[], bool]) -> None:
        """Pull in a thread of its own: a registry may hang, and with it the engine and the caller."""
        pulled: Future[None] = Future()

        def pull() -> None:
            try:
                self._pulled(name, is_wanted)
                pulled.set_result(None)
            except Exception as error:
                pulled.set_exception(error)

        threading.Thread(target=pull, name="pull", daemon=True).start()
        while not wait([pulled], STILL_WANTED).done:
            if not is_wanted():
                raise ExecutorError(f"image {name!r}", "the task was stopped while its image was fetched")
        pulled.result()

    def _pulled(self, name: str, is_wanted: Callable[[], bool]) -> None:
        try:
            for line in self._engine.pull(name, SILENCE):
                if "error" in line:
                    raise cannot_be_fetched(name, str(line["error"]))
                if not is_wanted():
                    return
        except Silence:
            raise cannot_be_fetched(name, f"timeout: the registry sent nothing for {SILENCE:g} s") from None
        except APIError as error:
            raise cannot_be_fetched(name, said(error)) from None
        except DockerException as error:  # the logins to registries cannot be read
            raise cannot_be_fetched(name, str(error)) from None
        except ValueError as error:  # the same, in the words of Python's library
            raise cannot_be_fetched(name, f"the logins to registries cannot be read: {error}") from None

    # --- Users of an image ---

    def _user(self, digest: str, image: str, name: str) -> Account:
        """The account of a user as engines determine it: the first matching line counts; a number
        is never a name; and the group is 0 for a number without a line.
        """
        for fields in self._lines(digest, USERS):
            if _number(fields[2]) == int(name) if name.isdecimal() else fields[0] == name:
                groups = [line[2] for line in self._lines(digest, GROUPS) if fields[0] in line[3].split(",")]
                return Account(_number(fields[2]), _number(fields[3]), tuple(map(_number, groups)))
        if name.isdecimal():
            return Account(int(name), 0)
        raise no_user(name, image)

    def _group(self, digest: str, image: str, wanted: str, group: str) -> int:
        for fields in self._lines(digest, GROUPS):
            if fields[0] == group:
                return _number(fields[2])
        raise ExecutorError(f"user {wanted!r}", f"image {image} has no group {group!r}", "Name another, or a number")

    def _lines(self, digest: str, path: str) -> list[list[str]]:
        """The lines of a file with colon-separated fields, at least four in each line; empty if the
        image does not have the file. An image never changes, so the file is read once.
        """
        with self._lock:
            known = (digest, path) in self._files
        if not known:
            with self._looked_into(digest) as container:
                texts = {(digest, path): self._read(container, path) for path in (USERS, GROUPS)}
            with self._lock:
                self._files.update(texts)
        # Split only at newlines, as programs in the container do.
        lines = [line.strip() for line in self._files[digest, path].split("\n")]
        return [[*line.split(":"), "", "", ""] for line in lines if line]

    def _read(self, container: str, path: str) -> str:
        for _ in range(MAX_LINKS):
            try:
                with self._engine.calls() as api:
                    pieces, _ = api.get_archive(container, path)
                    archive = b"".join(pieces)
            except NotFound:
                break
            with tarfile.open(fileobj=io.BytesIO(archive)) as members:
                member = members.next()
                if member is not None and member.issym():
                    path = str(Path(path).parent / member.linkname)
                    continue
                file = members.extractfile(member) if member is not None and member.isreg() else None
                return file.read().decode(errors="replace") if file else ""
        return ""

    # --- Containers that never run ---

    @contextmanager
    def _looked_into(self, image: str) -> Iterator[str]:
        try:
            with self._made(image, {}) as container:
                yield container
        except APIError as error:
            raise cannot_be_fetched(image, said(error)) from None

    @contextmanager
    def _made(self, image: str, host: Mapping[str, Any]) -> Iterator[str]:
        configuration = {
            "Image": image,
            "Entrypoint": ["never started"],
            "Labels": dict(self._labels),
            "NetworkDisabled": True,
            "HostConfig": {"NetworkMode": "none", **host},
        }
        with self._engine.calls() as api:
            container: str = api.create_container_from_config(configuration)["Id"]
        try:
            yield container
        finally:
            with self._engine.calls() as api:
                api.remove_container(container, v=True, force=True)

    @contextmanager
    def _empty_image(self) -> Iterator[str]:
        """An image without files: a probe needs an image, and the engine may have none yet."""
        empty = io.BytesIO()
        with tarfile.open(fileobj=empty, mode="w"):
            pass
        labels = [
            f"LABEL {name}={value}" for name, value in {**self._labels, "arkqueue.probe": secrets.token_hex(8)}.items()
        ]
        with self._engine.calls() as api:
            answer = api.import_image_from_data(empty.getvalue(), changes=labels)
            image: str = json.loads(answer.splitlines()[-1])["status"]
        try:
            yield image
        finally:
            with self._engine.calls() as api:
                api.remove_image(image)


def _number(text: str) -> int:
    """The number of a user or group, as engines read it."""
    return int(text) if re.fullmatch(r"[+-]?[0-9]+", text) else 0


def digest_of(name: str, image: Mapping[str, Any]) -> str:
    """The name in a registry that always means this image; for an image from no registry, the
    engine's id.
    """
    own = _repository(name)
    return next((str(one) for one in image.get("RepoDigests") or () if _repository(one) == own), str(image["Id"]))


def _repository(name: str) -> tuple[str, str]:
    """The registry of a name, and the name in this registry. Engines leave out the defaults in
    names.
    """
    registry, path = auth.resolve_repository_name(parse_repository_tag(name.partition("@")[0])[0])
    return registry, path if "/" in path or registry != auth.INDEX_NAME else f"library/{path}"


def cannot_be_fetched(name: str, words: str) -> ExecutorError:
    """The reason why an image cannot be fetched, from the words of the engine, of its registry or
    of the network.
    """
    thing = f"image {name!r}"
    words = " ".join(words.split())
    if fault := engine_fault(words):
        return fault
    if any(sign in words for sign in NOT_REACHED):
        return ExecutorError(
            thing, f"its registry cannot be reached ({words})", "Try again, or pull or build it on the engine's host"
        )
    if any(sign in words for sign in LOGIN_WANTED):
        return ExecutorError(
            thing, f"its registry requires a login ({words})", "Log the task manager's account in (docker login)"
        )
    return ExecutorError(
        thing, f"it cannot be fetched ({words})", "Correct its name, or pull or build it on the engine's host"
    )
