"""From a task's words to the container it runs in: what it asks for, what its archive may have, and what this host gives.

Pure, so that every refusal can be tested without an engine. Never gives a task more than all three allow: the task's definition, the archive's settings (a
person's word), and the configuration of this host. Called by the task manager for each attempt; what is asked of the engine comes after.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from arkqueue.config import Configuration, Docker, PersistentMount
from arkqueue.errors import Forbidden
from arkqueue.executor import ATTEMPT_LABEL, TASK_ID_LABEL, TASK_LABEL, Container, Mount
from arkqueue.model import ArchiveSettings, AttemptId, MountUse, Resources, TaskDefinition, TaskId
from arkqueue.plan import matches
from arkqueue.workflow.spelling import nearest

N = TypeVar("N", int, float)

WORKSPACE = Path("/workspace")
"""Where a container sees its task's tree; its working folder."""
OWN_FILES = Path("/arkqueue")
"""Where a container sees what belongs to the attempt: the script, the inputs, the outputs."""
SCRATCH = Path("/scratch")
"""Where a container sees the scratch folder of its run or item, if its task has one."""
ATTACHMENTS = OWN_FILES / "attachments"
"""Where a container sees the attachments of its run, if it has any, and cannot write to them."""

ROOT = "root", "0"
"""How the user and the group are called that may do everything."""

BRIDGE, NONE = "bridge", "none"
"""The networks that every archive's tasks may have unless its settings say otherwise: the engine's own, and none."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose container it is: what its labels say. ``run`` and ``task`` are full names."""

    installation: str
    host: str
    run: str
    task: str
    task_id: TaskId
    attempt: AttemptId

    def labels(self, archive: str) -> dict[str, str]:
        return {
            "arkqueue.installation": self.installation,
            "arkqueue.host": self.host,
            "arkqueue.archive": archive,
            "arkqueue.run": self.run,
            TASK_LABEL: self.task,
            TASK_ID_LABEL: str(self.task_id),
            ATTEMPT_LABEL: str(self.attempt),
        }


def container_for(
    definition: TaskDefinition,
    settings: ArchiveSettings,
    archive: str,
    configuration: Configuration,
    identity: Identity,
) -> Container | None:
    """The container of a task that is no gate, without the workspace's own mounts; None: it runs as a process.

    The user is ``definition.user`` (None: the image's own), the working folder ``working_folder(definition, WORKSPACE)``. Raises `Forbidden` for whatever is not allowed.
    """
    image = definition.image or settings.image or (None if settings.process else configuration.docker.image)
    if image is None:
        _check_process(definition, settings, archive)
        return None
    if definition.image is not None:
        _check_image(image, settings, archive)
    _check_user(definition.user, settings, archive)
    return Container(
        image,
        definition.pull or configuration.docker.pull,
        identity.labels(archive),
        tuple(_mount(use, archive, configuration.mounts) for use in definition.mounts),
        _network(definition.network, settings, archive),
        _limits(definition.resources, configuration.docker),
    )


def working_folder(definition: TaskDefinition, tree: Path) -> Path:
    """Where a task begins; ``tree`` is its workspace as it sees it. An absolute ``workdir`` is a container's own."""
    return tree / (definition.workdir or "")


def _check_process(definition: TaskDefinition, settings: ArchiveSettings, archive: str) -> None:
    if not settings.process:
        raise Forbidden(
            f"archive {archive}",
            "its tasks may not run as processes on a task manager's host, and this task names no image",
            f"Name an image in the task, or one for all tasks: arkqueue archive set {archive} --image IMAGE; "
            f"or allow processes: arkqueue archive set {archive} --executor process",
        )
    asked = {
        "mounts": bool(definition.mounts),
        "resources": definition.resources != Resources(),
        "network": definition.network is not None,
        "user": definition.user is not None,
        "an absolute workdir": (definition.workdir or "").startswith("/"),
    }
    if words := [word for word, given in asked.items() if given]:
        # Run without them, it would have more than it was written to have, or write where nothing is kept.
        raise Forbidden(
            f"task {definition.name}",
            f"it asks for {_listed(words)}, which only a container has, and it names no image",
            f"Name an image in the task, or one for all tasks: arkqueue archive set {archive} --image IMAGE; or remove {_listed(words)}",
        )


def _check_image(image: str, settings: ArchiveSettings, archive: str) -> None:
    """A glob allows an image as it is written; one without a tag or digest, every tag and digest of that name."""
    if not settings.images or image == settings.image:
        return
    name = image.partition("@")[0]
    name = name.rpartition(":")[0] if ":" in name.rpartition("/")[2] else name
    if not (matches(settings.images, image) or matches(settings.images, name)):
        raise _not_allowed(archive, f"the image {image}", "--allow-image", settings.images, image)


def _check_user(user: str | None, settings: ArchiveSettings, archive: str) -> None:
    """A task that names nobody would run as whoever the image says, often root: where users are limited, it has to name one."""
    if not settings.users:
        return
    if user is None:
        raise Forbidden(
            f"archive {archive}",
            f"its tasks may only run as {_listed(settings.users)}, and this task names no user",
            "Name one in the task (user: …), or in the defaults of its workflow file",
        )
    if not any(_is_user(user, glob) for glob in settings.users):
        raise _not_allowed(archive, f"the user {user}", "--allow-user", settings.users, user)


def _is_user(user: str, glob: str) -> bool:
    """User and group each for itself: a glob without a group allows none to be named, as it could be any."""
    parts, globs = user.split(":"), glob.split(":")
    return len(parts) == len(globs) and all(matches([g], part) for part, g in zip(parts, globs, strict=True))


def _is_root(glob: list[str], user: str, gid: int) -> bool:
    """Whether a glob allows root. One with a group does so for that group alone, by its number or as the task names it."""
    if not any(matches([glob[0]], root) for root in ROOT):
        return False
    groups = ROOT if gid == 0 else (str(gid), user.partition(":")[2])
    return len(glob) == 1 or any(matches([glob[1]], group) for group in groups if group)


def check_account(
    user: str | None, uid: int, gid: int, groups: Sequence[int], image: str, settings: ArchiveSettings, archive: str
) -> None:
    """Raise `Forbidden` where a user whose name is allowed is root by the image, or has root's group.

    The image decides what a name means, and its maker may be the committer. Who may be root is said by a glob that root
    itself matches, with its group if the glob names one; who may have root's group, by a glob whose group it matches.
    """
    if not settings.users or user is None:
        return
    globs = [glob.split(":") for glob in settings.users]
    if any(_is_root(glob, user, gid) for glob in globs):
        return
    if uid == 0:
        raise Forbidden(
            f"archive {archive}",
            f"its tasks may not be root, which the user {user} is in image {image}",
            "Name another user in the task, or use an image in which this one is not root",
        )
    mine = [glob[1] for glob in globs if len(glob) == 2 and matches([glob[0]], user.partition(":")[0])]
    if 0 in (gid, *groups) and not any(matches([glob], root) for glob in mine for root in ROOT):
        example = f"{uid}:{uid}"
        allowed = " ".join(f"--allow-user {shlex.quote(glob)}" for glob in (*settings.users, example))
        raise Forbidden(
            f"archive {archive}",
            f"its tasks may not have root's group, which the user {user} has in image {image}",
            f"Name a group in the task (user: {example}), and allow it: arkqueue archive set {archive} {allowed}",
        )


def _network(asked: str | None, settings: ArchiveSettings, archive: str) -> str:
    """The network, which for a task that names none is ``bridge``; having none is always allowed."""
    network = asked or BRIDGE
    if network != NONE and not matches(settings.networks or (BRIDGE,), network):
        what = f"the network {network}" + ("" if asked else ", which is what a task gets that names none")
        raise _not_allowed(archive, what, "--allow-network", settings.networks or (BRIDGE,), network, also=(NONE,))
    return network


def _mount(use: MountUse, archive: str, known: tuple[PersistentMount, ...]) -> Mount:
    granted = [mount for mount in known if matches(mount.archives, archive)]
    for mount in granted:
        if mount.name == use.name:
            return Mount(use.path, mount.source, use.read_only or mount.read_only)
    if any(mount.name == use.name for mount in known):
        raise Forbidden(
            f"mount {use.name}",
            f"the configuration of this host does not grant it to archive {archive}",
            "Add the archive to the mount's archives in arkqueue.toml, or remove the mount from the task",
        )
    near = nearest(use.name, [mount.name for mount in granted])
    raise Forbidden(
        f"mount {use.name}",
        "the configuration of this host has no mount of this name" + (f" (did you mean {near}?)" if near else ""),
        "Add it to arkqueue.toml as [[mounts]], or correct the task",
    )


def _limits(asked: Resources, docker: Docker) -> Resources:
    """What was asked for where the configuration allows it; its defaults for the rest."""
    return replace(
        asked,
        cpu=_limit("cpu", asked.cpu, docker.cpu, docker.most_cpu, lambda cpu: f"{cpu:g}"),
        memory=_limit("memory", asked.memory, docker.memory, docker.most_memory, _size),
        pids=_limit("pids", asked.pids, docker.pids, docker.most_pids, str),
    )


def _limit(word: str, asked: N | None, usual: N | None, most: N | None, shown: Callable[[N], str]) -> N | None:
    if most is None:
        return usual if asked is None else asked
    if asked is None:
        return most if usual is None else min(usual, most)
    if asked > most:
        raise Forbidden(
            f"resources.{word}",
            f"the task asks for {shown(asked)}, and the configuration of this host gives at most {shown(most)}",
            f"Ask for less, or raise most_{word} below [docker] in arkqueue.toml",
        )
    return asked


def _size(size: int) -> str:
    unit, name = next((u for u in ((1 << 30, "GiB"), (1 << 20, "MiB")) if size % u[0] == 0), (1 << 10, "KiB"))
    return f"{size / unit:g}{name}"


def _not_allowed(
    archive: str, what: str, option: str, allowed: Sequence[str], asked: str, also: Sequence[str] = ()
) -> Forbidden:
    """What may be used is told whole, as setting it anew replaces it."""
    options = " ".join(f"{option} {shlex.quote(glob)}" for glob in (*allowed, asked))
    return Forbidden(
        f"archive {archive}",
        f"its tasks may not use {what}, only {_listed((*allowed, *also))}",
        f"Mend the task, or allow it: arkqueue archive set {archive} {options}",
    )


def _listed(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
