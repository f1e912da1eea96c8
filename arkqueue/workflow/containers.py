"""The fields of containers: image, mounts, resources, network, user and workdir, with the words in
which each is refused.

A workflow file only asks for these. Whether an archive may have them is checked when the task
starts, against the archive's settings and the configuration of the host. A request that no task is
ever granted (the engine's socket, the host's network, arkqueue's own folders) is a fault already.
Used by ``format``; the registration of an archive with a default image also uses ``image_fault``.
"""

from __future__ import annotations

import math
import posixpath
import re
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field, Strict, Tag, WithJsonSchema

from arkqueue.model import LEAST_MEMORY, MOST_PIDS, Pull
from arkqueue.workflow.nodes import Node
from arkqueue.workflow.values import Flag, StrictModel, Written, as_meant, as_written, either, shown, wrong

# --- Images --------------------------------------------------------------------------------------

_HOST: Final = r"(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*:[0-9]{1,5})"
_PART: Final = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_TAG: Final = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_IMAGE: Final = rf"(?:{_HOST}/)?{_PART}(?:/{_PART})*(?::{_TAG})?(?:@sha256:[0-9a-f]{{64}})?"
_LONGEST_IMAGE: Final = 500


def image_fault(text: str) -> tuple[str, str] | None:
    """The fault of an image's name, and the nearest valid name or "". None: the name is valid."""
    if len(text) > _LONGEST_IMAGE:
        return f"{shown(text)} is too long for the name of an image", ""
    if re.fullmatch(_IMAGE, text):
        return None
    near = text.strip()
    if re.search(r"[A-Z]", near) and re.fullmatch(_IMAGE, near.lower()):
        return f"{shown(text)} is not a valid name of an image: letters before the tag must be lower case", near.lower()
    if "://" in near and re.fullmatch(_IMAGE, rest := near.partition("://")[2]):
        return f"{shown(text)} is not a valid name of an image: it has no '{near.partition('://')[0]}://'", rest
    near = near if re.fullmatch(_IMAGE, near) else ""
    return (
        f"{shown(text)} is not a valid name of an image; write it like debian:12 or registry.example.org/team/tool:1.0",
        near,
    )


def _image(value: str) -> str:
    if found := image_fault(value):
        wrong(found[0], value, found[1])
    return value


# --- Sizes and counts ----------------------------------------------------------------------------

_SIZE: Final = r"[0-9]+(\.[0-9]+)?(KiB|MiB|GiB)"
_UNITS: Final = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_MOST: Final = 1 << 50


def _size(value: object) -> int:
    """The number of bytes of a size. Other programs mean 1000 or 1024 by ``M``. Here each size has
    one spelling, and the fault names it.
    """
    if isinstance(value, Node) and not isinstance(value.value, bool):
        wrong(f"{value.text} has no unit; write {value.text}KiB, {value.text}MiB or {value.text}GiB", value.text)
    text = as_written(value)
    if len(text) > 40 or not re.fullmatch(_SIZE, text):
        meant = re.fullmatch(r"\s*([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([kmg])i?b?\s*", text, re.IGNORECASE)
        near = f"{meant[1]}{meant[2].upper()}iB" if meant else ""
        wrong(f"{shown(text)} is not a size; write it like 64KiB, 512MiB or 1.5GiB", text, near)
    size = round(float(text[:-3]) * _UNITS[text[-3:]])
    if size < 1:
        wrong("the size must be more than zero", text)
    return size if size <= _MOST else wrong(f"{text} is more than there is; give less", text)


def _memory(value: int) -> int:
    return value if value >= LEAST_MEMORY else wrong("no container can live with so little; give at least 6MiB")


def _cpu(value: object) -> float:
    number = as_meant(value)
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        wrong("must be a number of processors, like 2 or 0.5")
    return float(number) if 0.01 <= number <= 1024 else wrong("must be between 0.01 and 1024 processors")


# --- Paths in the container ----------------------------------------------------------------------

_RESERVED: Final = ("/workspace", "/arkqueue", "/proc", "/sys", "/dev")
_SOCKETS: Final = ("/var/run/docker.sock", "/run/docker.sock")
_LONGEST_PATH: Final = 1000
_WITHOUT_DOTS: Final = r"(?!(.*/)?\.\.(/|$))"


def _clean(value: str) -> str:
    """A path in its shortest form, so that equal places are equal texts."""
    if ".." in value.split("/"):
        wrong(f"{shown(value)} has a '..'; write the path without it", value)
    if not value.isprintable() or len(value) > _LONGEST_PATH:
        wrong(f"{shown(value)} is not a valid path: it is too long, or has characters that cannot be printed", value)
    return posixpath.normpath("/" + value.lstrip("/") if value.startswith("/") else value)


def mount_path(value: str) -> str:
    """The path of a mount or tmpfs in a container; other paths are faults."""
    if not value.startswith("/"):
        wrong(
            f"{shown(value)} must be an absolute path in the container, like /mnt/index",
            value,
            f"/mnt/{value}" * bool(value),
        )
    path = _clean(value)
    if path in _SOCKETS:
        wrong(f"{path}: no task gets the socket of the container engine; remove it", value)
    if path == "/dev/shm":
        wrong("/dev/shm: its size is 'resources.shm'; write it there", value)
    if taken := next((it for it in _RESERVED if path == it or path.startswith(it + "/")), "/" if path == "/" else ""):
        wrong(
            f"{shown(path)}: {taken} belongs to the container itself; choose another path, like /mnt/index",
            value,
        )
    return path


def _workdir(value: str) -> str:
    if not value:
        wrong("is empty; write a folder of the workspace, or leave the field out")
    return _clean(value)


# --- Names ---------------------------------------------------------------------------------------

_GRANTED: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
_NETWORK: Final = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}"
_ONE: Final = r"(?:0|[1-9][0-9]{0,9}|[A-Za-z_][A-Za-z0-9_.-]{0,31}\$?)"
_USER: Final = rf"{_ONE}(?::{_ONE})?"
_LARGEST_ID: Final = 2**31 - 1


def _mount_name(value: str) -> str:
    if value.startswith("/"):
        wrong(
            f"{shown(value)} is a path; a mount is named as the server's configuration names it, and 'path' says where it is seen",
            value,
        )
    if not re.fullmatch(_GRANTED, value):
        wrong(
            f"{shown(value)} is not a valid name of a mount: use letters, digits, '.', '_' and '-' (at most 100)", value
        )
    return value


def _network(value: str) -> str:
    if value == "host":
        wrong(
            "'host' is the network of the machine itself, which no task gets; write bridge, none or a network's name",
            value,
        )
    if not re.fullmatch(_NETWORK, value):
        wrong(f"{shown(value)} is not a valid name of a network; write bridge, none or a network's name", value)
    return value


def _user(value: str) -> str:
    if not re.fullmatch(_USER, value):
        wrong(
            f"{shown(value)} is not a valid user; write a name or a number, or one with a group, like builder or 1000:1000",
            value,
        )
    if any(part.isdecimal() and int(part) > _LARGEST_ID for part in value.split(":")):
        wrong(f"{value}: a number of a user or group is at most {_LARGEST_ID}", value)
    return value


def matches_no_user(glob: str) -> bool:
    """Whether a glob matches no user that a task may name. A glob has one part for the user and one
    for the group.
    """
    return not re.fullmatch(_USER, _filled(glob))


def matches_no_network(glob: str) -> bool:
    """Whether a glob matches no network that a task may name."""
    return glob == "host" or not re.fullmatch(_NETWORK, _filled(glob))


def _filled(glob: str) -> str:
    """A glob with a letter in place of each wildcard."""
    return re.sub(r"[*?]+", "x", re.sub(r"(?<![^:])(\*\*/)+", "", glob))


# --- The fields ----------------------------------------------------------------------------------

ImageName = Annotated[str, Written(_image, type="string", pattern=f"^{_IMAGE}$", maxLength=_LONGEST_IMAGE)]
Bytes = Annotated[int, BeforeValidator(_size), WithJsonSchema({"type": "string", "pattern": f"^{_SIZE}$"})]
Cpu = Annotated[float, BeforeValidator(_cpu), WithJsonSchema({"type": "number", "minimum": 0.01, "maximum": 1024})]
Pids = Annotated[int, Strict(), Field(ge=1, le=MOST_PIDS), BeforeValidator(as_meant)]
MountPath = Annotated[str, Written(mount_path, type="string", pattern=rf"^/{_WITHOUT_DOTS}.")]
PathKey = Annotated[
    str, AfterValidator(mount_path), WithJsonSchema({"type": "string", "pattern": rf"^/{_WITHOUT_DOTS}."})
]
MountName = Annotated[str, Written(_mount_name, pattern=f"^{_GRANTED}$")]
Network = Annotated[str, Written(_network, pattern=f"^(?!host$){_NETWORK}$")]
User = Annotated[str, Written(_user, type=["string", "integer"], pattern=f"^{_USER}$")]
Workdir = Annotated[str, Written(_workdir, minLength=1, pattern=f"^{_WITHOUT_DOTS}")]


class ImageEntry(StrictModel):
    """An image, and when it is pulled: missing (if the host does not have it), always, or never."""

    name: ImageName
    pull: Pull | None = None


class MountEntry(StrictModel):
    """A persistent folder or volume that the server's configuration grants, and where the task sees it."""

    name: MountName
    path: MountPath
    read_only: Flag = False


class ResourcesEntry(StrictModel):
    """The limits of the container. A missing field takes the installation's default."""

    cpu: Cpu | None = Field(None, description="Processors, like 1.5.")
    memory: Annotated[Bytes, AfterValidator(_memory)] | None = Field(None, description="Like 512MiB.")
    pids: Pids | None = Field(None, description="How many processes and threads it may have at once.")
    shm: Bytes | None = Field(None, description="The size of /dev/shm.")
    tmpfs: Annotated[dict[PathKey, Bytes], Field(json_schema_extra={"additionalProperties": False})] | None = Field(
        None, description="Folders that are kept in memory, with their sizes."
    )
    read_only: Flag | None = Field(None, description="The image's own files cannot be written.")


AnyImage = Annotated[
    Annotated[ImageName, Tag("<scalar>")] | Annotated[ImageEntry, Tag("<mapping>")],
    either("must be an image's name or {name: …, pull: missing}"),
]
AnyMount = Annotated[
    Annotated[MountName, Tag("<scalar>")] | Annotated[MountEntry, Tag("<mapping>")],
    either("must be a mount's name or {name: …, path: …}"),
]


def placed(mount: str | MountEntry) -> MountEntry:
    """A mount with its path; for a bare name, the path is ``/mnt/NAME``."""
    return MountEntry(name=mount, path=f"/mnt/{mount}") if isinstance(mount, str) else mount
