"""Names of locks with fields (design 5.25): ``vm-${{ needs.mint.ark }}`` has the output ``ark`` of the task ``mint``, which its task depends on. Pure.

An output says whatever its task wrote. So what a name comes to is judged like one that was written out, and whose the lock is follows from what the workflow
file says itself: no output makes a lock of the archive one of the installation, or the other way round.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import NamedTuple

from arkqueue.model import GLOBAL, LONGEST_LOCK

MARK = "${{"
"""What a field begins with."""
_FIELD = re.compile(r"\$\{\{ *(?:needs\.([A-Za-z0-9][A-Za-z0-9._-]*)|item\.([A-Za-z0-9_][A-Za-z0-9_.-]*)) *\}\}")
_OUTPUT = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


class Need(NamedTuple):
    """An output of a task that another one depends on."""

    task: str
    output: str


class NotAName(ValueError):
    """A field has no value, or the name is none; says why."""


def fault_of(name: str) -> str:
    """What is wrong with the name of a lock; nothing where it is one."""
    if not 1 <= len(name) <= LONGEST_LOCK or not name.isprintable() or name != name.strip():
        return f"is not a valid name for a lock: write 1 to {LONGEST_LOCK} characters in one line, without spaces at its ends"
    if name in (GLOBAL, f"{GLOBAL}/"):
        return f"name the lock of the whole installation: '{GLOBAL}/NAME'"
    return ""


def is_global(name: str) -> bool:
    """Whether it is a lock of the whole installation."""
    return name.startswith(f"{GLOBAL}/")


def paths(name: str) -> list[str]:
    """What stands behind ``needs.`` in the fields of a name, such as ``mint.ark``; ``NotAName`` where something in it only looks like a field."""
    rest = _FIELD.sub("", name)
    if MARK in rest:
        raise NotAName(
            "write a field as ${{ needs.TASK.OUTPUT }}, an output of a task that this one depends on, or as ${{ item.FIELD }}"
        )
    return [path for path, _ in _FIELD.findall(name) if path]


def item_fields(name: str) -> list[str]:
    """The fields of an item that a name has."""
    return [word for _, word in _FIELD.findall(name) if word]


def needs(path: str) -> list[Need]:
    """What a path may mean, as names of tasks and of outputs may have dots: the longest name of a task first."""
    found = []
    for dot in reversed([at for at, sign in enumerate(path) if sign == "."]):
        if _OUTPUT.fullmatch(path[dot + 1 :]):
            found.append(Need(path[:dot], path[dot + 1 :]))
    return found


def meant(path: str, depends: Collection[str]) -> Need | None:
    """The output that a path means for a task that depends on those; None where it depends on none that is meant."""
    return next((need for need in needs(path) if need.task in depends), None)


def evaluated(name: str, value: Callable[[str], str], of_item: Callable[[str], str]) -> str:
    """A name with the values of its fields. ``value``: of a path; ``of_item``: of a field of the item. Each raises ``NotAName`` where there is none, as does a value that makes no name."""

    def found(match: re.Match[str]) -> str:
        return value(match[1]) if match[1] else of_item(match[2])

    made = _FIELD.sub(found, name)
    if fault_of(made):
        raise NotAName(
            f"the lock {name} resolves to a value that is not a valid name for a lock: write 1 to {LONGEST_LOCK} characters in one line, without spaces at its ends"
        )
    if is_global(made) != is_global(name):
        raise NotAName(
            f"the lock {name} comes to one of the whole installation, which a workflow file has to name itself: '{GLOBAL}/…'"
        )
    return made
