"""Parses ``svn:externals`` like Subversion, but more strictly: the address, the revision and the
folder of each line.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace

from arkqueue.repository.following.addresses import Address, NoAddress, local_address, read_address, relative, segments

_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_REVISION = re.compile("[0-9]{1,9}")
LONGEST_LINE = 20_000
"""The most characters of a line. A URL and a path have at most 4,096 each, before they are quoted and
percent-encoded. The work to find a word grows with the square of its length.
"""


@dataclass(frozen=True, slots=True)
class Definition:
    """One line. ``revision``, ``peg``: None: not pinned. ``target``: the parts of its path in the
    folder that has the property.
    """

    url: str
    target: tuple[str, ...]
    revision: int | None
    peg: int | None


class NoDefinition(ValueError):
    """A line that is not followed. The text is the reason."""


def lines_of(value: str) -> list[str]:
    """The lines of a property that define an external."""
    lines = [line.strip() for line in value.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
    return [line for line in lines if line and not line.startswith("#")]


def read_definition(line: str) -> Definition:
    """Parse a line. Raises `NoDefinition`."""
    if len(line) > LONGEST_LINE:
        raise NoDefinition(f"it has more than {LONGEST_LINE:,} characters")
    try:
        words = shlex.split(line)
    except ValueError:
        raise NoDefinition("its quotes do not match") from None
    revision, place = None, None
    for number in (0, 1):
        if number < len(words) and words[number].startswith("-r"):
            count = 2 if words[number] == "-r" else 1
            text = "".join(words[number : number + count]).removeprefix("-r")
            revision, place = _revision(text), number
            del words[number : number + count]
            break
    if len(words) != 2:
        raise NoDefinition("it is not of the form [-r REV] URL[@REV] FOLDER")
    first, second = words
    if place != 0 and not _ABSOLUTE.match(first) and _ABSOLUTE.match(second):
        return Definition(second, _target(first), revision, revision)
    folder, slash, name = first.rpartition("/")
    name, at, text = name.rpartition("@") if "@" in name else (name, "", "")
    peg = _revision(text) if at and text else None
    return Definition(folder + slash + name, _target(second), peg if revision is None else revision, peg)


def address_of(definition: Definition, folder: Address, root: Address) -> Address:
    """The address that a definition names. ``folder``: the URL of the folder that has the property.
    Raises `NoAddress`.
    """
    url = definition.url
    if url.lower().startswith("file://"):
        host, _, path = url[len("file://") :].partition("/")
        if host:
            raise NoAddress("it is a path of this host")
        return local_address("/".join(segments(path)))
    if url.startswith("^/"):
        return relative(root, url[2:].lstrip("/"))
    if url.startswith("//"):
        if root.scheme == "file":
            raise NoAddress("it is a path of this host")
        return read_address(f"{root.scheme}:{url}")
    if url.startswith("/"):
        return replace(root, path=segments(url))
    if url.startswith("../"):
        return relative(folder, url)
    return read_address(url)


def _revision(text: str) -> int | None:
    if text == "HEAD":
        return None
    if not _REVISION.fullmatch(text):
        raise NoDefinition(f"its revision {text} is not a number")
    return int(text)


def _target(path: str) -> tuple[str, ...]:
    if path.startswith("/"):
        raise NoDefinition("its folder is not one in the working copy")
    return tuple(part for part in path.split("/") if part not in ("", "."))
