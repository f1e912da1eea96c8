"""Turns a program into the request for the engine: the container's whole configuration, and the
words for the engine's refusals.

Pure: a ``Program`` goes in, the JSON of the engine's API comes out. Always: no new privileges, no
capability beyond the engine's defaults, a limit of processes, and a log that can be read again.
Never: a privileged container, or the engine's own socket.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arkqueue.errors import EngineFault, ExecutorError
from arkqueue.executor import ATTEMPT_LABEL, SHELL, Container, Mount, Program, check_texts
from arkqueue.model import Layer

DEFAULT_PIDS = 4096
"""The default limit of processes and threads in one container."""
TMPFS_MODE = "1777"


@dataclass(frozen=True, slots=True)
class Setting:
    """The settings of every container of an executor."""

    labels: Mapping[str, str]
    log_size: int
    socket_path: str | None
    has_init: bool = True


def configuration(program: Program, image: str, setting: Setting) -> dict[str, Any]:
    """The body of the engine's ``create`` call."""
    container = program.container
    assert container is not None
    check_texts(program, str.encode)
    labels = {**container.labels, **setting.labels, ATTEMPT_LABEL: str(program.attempt)}
    environment = dict(program.env)
    if setting.has_init:
        # Otherwise the engine's init would pass a signal to its child only, and not to all
        # processes of the task.
        environment.setdefault("TINI_KILL_PROCESS_GROUP", "1")
    return {
        "Image": image,
        # The whole command is the entrypoint, which replaces the image's own entrypoint and
        # command.
        "Entrypoint": list(program.argv),
        "Cmd": [],
        "Env": [f"{name}={value}" for name, value in environment.items()],
        "User": program.user or "",
        "WorkingDir": str(program.cwd),
        "Labels": labels,
        "AttachStdout": True,
        "AttachStderr": True,
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": _host_configuration(container, labels, setting),
    }


def _host_configuration(container: Container, labels: Mapping[str, str], setting: Setting) -> dict[str, Any]:
    wanted = container.resources
    return {
        "Init": setting.has_init,
        "NetworkMode": container.network,
        "SecurityOpt": ["no-new-privileges"],
        # A device node that a task leaves in a mount would be a device on the host, too.
        "CapDrop": ["MKNOD"],
        "GroupAdd": [str(group) for group in container.groups],
        "PidsLimit": wanted.pids or DEFAULT_PIDS,
        "NanoCpus": round((wanted.cpu or 0) * 1_000_000_000),
        "Memory": wanted.memory or 0,
        # Equal to the memory limit, so no swap: with swap, a task over its limit would crawl
        # instead of ending.
        "MemorySwap": wanted.memory or 0,
        "ShmSize": wanted.shm or 0,
        "Tmpfs": {path: f"size={size},mode={TMPFS_MODE}" for path, size in wanted.tmpfs.items()},
        "ReadonlyRootfs": wanted.read_only,
        "Mounts": [_mount(mount, labels, setting.socket_path) for mount in container.mounts],
        # Two files: the engine drops nothing until the first is full, and keeps the newest output
        # after that.
        "LogConfig": {
            "Type": "local",
            "Config": {"max-size": str(setting.log_size), "max-file": "2", "compress": "false"},
        },
        "RestartPolicy": {"Name": "no"},
    }


def _mount(mount: Mount, labels: Mapping[str, str], socket_path: str | None) -> dict[str, Any]:
    wanted = {"Target": mount.target, "ReadOnly": mount.read_only}
    match mount.source:
        case Path() as folder:
            if socket_path is not None and Path(socket_path).resolve().is_relative_to(folder.resolve()):
                raise ExecutorError(
                    f"mount {folder}",
                    "it has the engine's own socket in it, which would be the whole host",
                    "Mount less",
                )
            return {**wanted, "Type": "bind", "Source": str(folder), "BindOptions": {"Propagation": "rprivate"}}
        case Layer() as layer:
            # Without a name, the volume belongs to the container, and is removed with it.
            options = {"type": "overlay", "device": "overlay", "o": _overlay(layer)}
            return {
                **wanted,
                "Type": "volume",
                "VolumeOptions": {
                    "NoCopy": True,
                    "Labels": dict(labels),
                    "DriverConfig": {"Name": "local", "Options": options},
                },
            }
        case volume:
            return {**wanted, "Type": "volume", "Source": volume}


def _overlay(layer: Layer) -> str:
    parts = {"lowerdir": layer.lower, "upperdir": layer.upper, "workdir": layer.work}
    for folder in parts.values():
        if any(character in str(folder) for character in ",:\\"):
            raise ExecutorError(
                f"folder {folder}",
                "an overlay cannot be made of a path with a comma, a colon or a backslash",
                "Use another home folder",
            )
    return ",".join(f"{name}={folder}" for name, folder in parts.items())


# --- What the engine refuses, in words ------------------------------------------------------------


def refusal(program: Program, image: str, words: str) -> ExecutorError:
    """The reason why the engine did not create or start a program's container."""
    container = program.container
    assert container is not None
    command = program.argv[0]
    thing = f"shell {command!r}" if program.shell else f"command {command!r}"
    if fault := engine_fault(words):
        return fault
    if "No such image" in words:
        return ExecutorError(f"image {image!r}", "the engine no longer has it", "Try again, or pull it")
    if re.search(r"network \S+ not found|No such network", words):
        return ExecutorError(f"network {container.network!r}", "the engine has no such network", "Create or correct it")
    if "unable to find user" in words or "no matching entries in passwd" in words:
        return no_user(program.user, image)
    if "unable to find group" in words or "no matching entries in group" in words:
        return ExecutorError(f"user {program.user!r}", f"image {image} has no such group", "Name another")
    if missing := re.search(r"bind source path does not exist: (.+)", words):
        return ExecutorError(f"mount {missing[1]}", "the engine sees no such folder", "Create it on the engine's host")
    if re.search(rf"chdir to cwd|mkdir:? /|lstat \S+{re.escape(str(program.cwd))}: not a directory", words):
        return ExecutorError(f"workdir {program.cwd}", f"the task cannot begin there ({words})", "Correct it")
    if "executable file not found" in words or ("exec:" in words and "no such file" in words):
        return no_program(program, image)
    return ExecutorError(thing, f"the engine does not start it ({words})", "")


def no_user(user: str | None, image: str) -> ExecutorError:
    return ExecutorError(f"user {user!r}", f"image {image} has no such user", "Name another, or a number")


def no_program(program: Program, image: str) -> ExecutorError:
    kind = "shell" if program.shell else "command"
    instead = "a command as a list, which needs no shell" if program.argv[:2] == SHELL else "another `command`"
    remedy = f"Use an image that has it, or {'another `shell`' if program.shell else instead}"
    return ExecutorError(f"{kind} {program.argv[0]!r}", f"there is no such {kind} in image {image}", remedy)


def engine_fault(words: str) -> EngineFault | None:
    """The fault of the engine in the words of an error; None: the request is at fault."""
    # A volume or mount that the task asked for may be full or read-only, too.
    is_full = "no space left on device" in words or "disk quota exceeded" in words
    if is_full and not re.search(r"/volumes/[^/]+/_data/", words):
        return EngineFault("Docker engine", f"its disk is full ({words})", "Free space on it")
    if "read-only file system" in words and re.search(r"/overlay2/(?!.*/merged/)|/containers/|\.db\b", words):
        return EngineFault("Docker engine", f"its disk is read-only ({words})", "Repair its file system")
    if re.search(r"containerd\S*\.sock", words) and "connect" in words:
        return EngineFault(
            "Docker engine", f"its containerd does not answer ({words})", "Start it, or restart the engine"
        )
    return None


_INIT_FAILED = re.compile(rb"\[FATAL [^\]]*\] exec (?P<program>.+) failed: (?P<reason>.+)\s*\Z")


def init_failure(program: Program, image: str, exit_code: int, error_output: bytes) -> str:
    """The message of the engine's init when it could not execute the program. The init can only
    write this to the task's stderr.
    """
    failed = _INIT_FAILED.match(error_output) if exit_code in (126, 127) else None
    if failed is None:
        return ""
    if failed["reason"].startswith(b"No such file"):
        return str(no_program(program, image))
    return f"{program.argv[0]!r} cannot be executed in image {image}: {failed['reason'].decode(errors='replace')}"
