"""Names of locks with fields (design 5.25): ``vm-${{ needs.mint.ark }}`` contains the output
``ark`` of the task ``mint``, on which its task depends. Pure.

A task may write any output. So an evaluated name is checked like one without fields, and the
workflow file alone decides whether the lock belongs to the archive or to the whole installation: no
output can change this.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import NamedTuple

from arkqueue.model import GLOBAL, LONGEST_LOCK

MARK = "${{"
"""The beginning of a field."""
_FIELD = re.compile(r"\$\{\{ *(?:needs\.([A-Za-z0-9][A-Za-z0-9._-]*)|item\.([A-Za-z0-9_][A-Za-z0-9_.-]*)) *\}\}")
_OUTPUT = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


class Need(NamedTuple):
    """An output of a task that another one depends on."""

    task: str
    output: str


class NotAName(ValueError):
    """A field has no value, or the name is not valid; the text says why."""


def fault_of(name: str) -> str:
    """The fault of the name of a lock; empty if it is valid."""
    if not 1 <= len(name) <= LONGEST_LOCK or not name.isprintable() or name != name.strip():
        return f"is not a valid name for a lock: write 1 to {LONGEST_LOCK} characters in one line, without spaces at its ends"
    if name in (GLOBAL, f"{GLOBAL}/"):
        return f"name the lock of the whole installation: '{GLOBAL}/NAME'"
    return ""


def is_global(name: str) -> bool:
    """Whether a name is that of a lock of the whole installation."""
    return name.startswith(f"{GLOBAL}/")


def paths(name: str) -> list[str]:
    """The paths after ``needs.`` in the fields of a name, such as ``mint.ark``. Raises ``NotAName``
    if a part of the name only looks like a field.
    """
    rest = _FIELD.sub("", name)
    if MARK in rest:
        raise NotAName(
            "write a field as ${{ needs.TASK.OUTPUT }}, an output of a task that this one depends on, or as ${{ item.FIELD }}"
        )
    return [path for path, _ in _FIELD.findall(name) if path]


def item_fields(name: str) -> list[str]:
    """The fields of an item that a name contains."""
    return [word for _, word in _FIELD.findall(name) if word]


def needs(path: str) -> list[Need]:
    """The possible meanings of a path, because names of tasks and of outputs may contain dots: the
    longest name of a task first.
    """
    found = []
    for dot in reversed([at for at, sign in enumerate(path) if sign == "."]):
        if _OUTPUT.fullmatch(path[dot + 1 :]):
            found.append(Need(path[:dot], path[dot + 1 :]))
    return found


def meant(path: str, depends: Collection[str]) -> Need | None:
    """The output that a path means for a task with these dependencies. None: it depends on no task
    that could be meant.
    """
    return next((need for need in needs(path) if need.task in depends), None)


def evaluated(name: str, value: Callable[[str], str], of_item: Callable[[str], str]) -> str:
    """A name with the values of its fields. ``value``: returns the value of a path. ``of_item``:
    returns the value of a field of the item. Both raise ``NotAName`` if there is none. A value that
    makes the name invalid also raises it.
    """

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
