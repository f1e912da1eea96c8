"""The container of a task, from the task's definition, the settings of its archive (which a person
sets), and the configuration of this host.

A task never gets more than all three of them allow. Pure, so that each refusal can be tested
without an engine. Called by ``preparation`` for each attempt, before it asks the engine for
anything.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.config import Configuration, Docker, PersistentMount
from arkqueue.errors import Forbidden, NotPermitted
from arkqueue.executor import ATTEMPT_LABEL, TASK_ID_LABEL, TASK_LABEL, Container, Mount
from arkqueue.model import AttemptId, MountUse, Resources, TaskDefinition, TaskId
from arkqueue.plan import matches
from arkqueue.workflow.spelling import nearest

N = TypeVar("N", int, float)

WORKSPACE = Path("/workspace")
"""The path of the task's tree in a container; its working folder."""
OWN_FILES = Path("/arkqueue")
"""The path in a container of the attempt's own files: the script, the inputs, the outputs."""
SCRATCH = Path("/scratch")
"""The path in a container of the scratch folder of its run or item, if its task has one."""
ATTACHMENTS = OWN_FILES / "attachments"
"""The path in a container of the attachments of its run, if it has any. They cannot be written."""

ROOT = "root", "0"
"""The name and the number of root, the user and the group that may do everything."""

BRIDGE, NONE = "bridge", "none"
"""The networks that tasks may have unless their archive's settings name others: the engine's own
network, and none.
"""


@dataclass(frozen=True, slots=True)
class Identity:
    """The attempt of a container, for its labels. ``run`` and ``task`` are full names."""

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
    """The container of a task that is no gate, without the mounts of the workspace. None: the task
    runs as processes.

    The caller sets its user, which is ``definition.user`` (None: the image's own), and its working
    folder, which is ``working_folder(definition, WORKSPACE)``. Raises `Forbidden` if the task asks
    for something that it may not have.
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
    """The folder in which a task begins. ``tree``: the path by which the task sees its tree. An
    absolute ``workdir`` is a path in a container.
    """
    return tree / (definition.workdir or "")


def _check_process(definition: TaskDefinition, settings: ArchiveSettings, archive: str) -> None:
    if not settings.process:
        raise NotPermitted(
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
        # Without them, the task would have more rights than its author intended, or lose its files.
        raise NotPermitted(
            f"task {definition.name}",
            f"it asks for {_listed(words)}, which only a container has, and it names no image",
            f"Name an image in the task, or one for all tasks: arkqueue archive set {archive} --image IMAGE; or remove {_listed(words)}",
        )


def _check_image(image: str, settings: ArchiveSettings, archive: str) -> None:
    """Raise `Forbidden` if no glob matches the image, either as the task writes it, or without its
    tag and digest. The archive's own image is always allowed.
    """
    if not settings.images or image == settings.image:
        return
    name = image.partition("@")[0]
    name = name.rpartition(":")[0] if ":" in name.rpartition("/")[2] else name
    if not (matches(settings.images, image) or matches(settings.images, name)):
        raise _not_allowed(archive, f"the image {image}", "--allow-image", settings.images, image)


def _check_user(user: str | None, settings: ArchiveSettings, archive: str) -> None:
    """Raise `Forbidden` if the user is not allowed. If users are limited, the task has to name one:
    otherwise it would run as the image's user, who is often root.
    """
    if not settings.users:
        return
    if user is None:
        raise NotPermitted(
            f"archive {archive}",
            f"its tasks may only run as {_listed(settings.users)}, and this task names no user",
            "Name one in the task (user: …), or in the defaults of its workflow file",
        )
    if not any(_is_user(user, glob) for glob in settings.users):
        raise _not_allowed(archive, f"the user {user}", "--allow-user", settings.users, user)


def _is_user(user: str, glob: str) -> bool:
    """True if a glob matches a user. The user and the group are matched separately. A glob without
    a group matches only a user without a group: otherwise the task could name any group.
    """
    parts, globs = user.split(":"), glob.split(":")
    return len(parts) == len(globs) and all(matches([g], part) for part, g in zip(parts, globs, strict=True))


def _is_root(glob: list[str], user: str, gid: int) -> bool:
    """True if a glob allows root. A glob with a group allows root only with that group, by its
    number, or by the name that the task gives.
    """
    if not any(matches([glob[0]], root) for root in ROOT):
        return False
    groups = ROOT if gid == 0 else (str(gid), user.partition(":")[2])
    return len(glob) == 1 or any(matches([glob[1]], group) for group in groups if group)


def check_account(
    user: str | None, uid: int, gid: int, groups: Sequence[int], image: str, settings: ArchiveSettings, archive: str
) -> None:
    """Raise `Forbidden` if a user whose name is allowed is root in the image, or has root's group.

    The image decides which user a name means, and the committer may have made the image. Root is
    allowed by a glob that matches root itself and, if it names a group, the user's group. Root's
    group is allowed by a glob that matches the user, and whose group matches root's group.
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
    """The network of a task, ``bridge`` if it names none. The network ``none`` is always allowed.
    Raises `Forbidden`.
    """
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
    """The limits that the task asks for, and the configuration's defaults for the others. Raises
    `Forbidden` if the task asks for more than the configuration allows.
    """
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
) -> NotPermitted:
    """The error for something that an archive may not use. Its remedy repeats the globs that are
    set, because a new value of the option replaces all of them.
    """
    options = " ".join(f"{option} {shlex.quote(glob)}" for glob in (*allowed, asked))
    return NotPermitted(
        f"archive {archive}",
        f"its tasks may not use {what}, only {_listed((*allowed, *also))}",
        f"Correct the task, or allow it: arkqueue archive set {archive} {options}",
    )


def _listed(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
