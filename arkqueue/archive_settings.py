"""The settings of an archive, and how they are read from the database.

Settings are stored as JSON, which also somebody else may have written. So nothing reads a single
field of them without a check: a text in place of a list of globs, for example, would hold no task.
``read_settings`` refuses settings whose fields have other types. Every module may import this one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

from arkqueue.errors import Conflict

USUAL_TIER = 5
"""The tier of an archive whose tier nobody has set."""


@dataclass(frozen=True, slots=True)
class ArchiveSettings:
    """The settings of one archive, which a person sets with ``archive add`` or later.

    ``branches``: globs of the Git branches that are tracked (none: the main branch). ``process``:
    True if its tasks may run as processes on a task manager's host, as the operating system's user
    ``process_user`` (None: the task manager's own). ``author``: the author of its tasks' commits.
    ``task_url``: the URL to which working copies commit (None: the archive's own). ``follow``:
    prefixes of the URLs that working copies fetch beside the archive (none: nothing).

    ``image``: the container image of tasks that name none (None: these run as processes, if that is
    allowed). ``images``, ``users``, ``networks``: globs of the images, users and networks that its
    tasks may name (none: every image, every user of the image, the networks ``bridge`` and
    ``none``).

    ``require_approval``: globs of the tasks that are held until somebody with a token of scope
    `approve` releases them. ``approval_not_author``: True if the author of their revision may not
    release them (design 5.22). ``workflow_authors``: globs of the authors who may change workflow
    files; if somebody else changes them, tasks are held until a person accepts the files.
    ``tier``: archives of a lower tier go first at claims. ``max_running``: the most attempts that
    run at once (None: any number).

    ``keep``: for each state, how long runs are kept after they reached it: ``{"completed": "30d"}``
    (none: for ever). ``keep_logs``: the same for logs alone (5.27). ``notify``: the receivers of
    notifications, each with its occasions (`Occasion`) and branches: ``{"ann@example.org":
    ["failed", "fixed", "branch=main"]}`` (15).
    """

    branches: tuple[str, ...] = ()
    process: bool = False
    process_user: str | None = None
    author: str | None = None
    task_url: str | None = None
    follow: tuple[str, ...] = ()
    image: str | None = None
    images: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    require_approval: tuple[str, ...] = ()
    approval_not_author: bool = False
    workflow_authors: tuple[str, ...] = ()
    tier: int = USUAL_TIER
    max_running: int | None = None
    keep: Mapping[str, str] = field(default_factory=dict)
    keep_logs: str | None = None
    notify: Mapping[str, Sequence[str]] = field(default_factory=dict)


def read_settings(stored: object, archive: str) -> ArchiveSettings:
    """The settings of an archive from their stored form: a JSON object, or its text. Fields that
    are missing have their usual values.

    Raises ``Conflict`` if it is no object, or has a field that is unknown or of another type.
    """
    if isinstance(stored, str):
        return _of_text(stored, archive)
    if not isinstance(stored, dict):
        raise _unreadable(archive, f"they are {_kind(stored)}, not an object")
    given: dict[str, Any] = {}
    for name, value in stored.items():
        if name not in _TYPES:
            raise _unreadable(archive, f"{name[:100]!r} is no setting of this version")
        expected, is_valid = _TYPES[name]
        if not is_valid(value):
            raise _unreadable(archive, f"{name} is {_kind(value)}, not {expected}")
        given[name] = tuple(value) if isinstance(value, list) else value
    return ArchiveSettings(**given)


@lru_cache(64)
def _of_text(stored: str, archive: str) -> ArchiveSettings:
    """Cached, because each row of a verb on many tasks has the settings of its archive."""
    try:
        value = json.loads(stored)
    except json.JSONDecodeError:  # the driver returns a JSON text without its quotes
        value = stored
    if isinstance(value, str):
        raise _unreadable(archive, f"they are {_kind(value)}, not an object")
    return read_settings(value, archive)


def _unreadable(archive: str, fault: str) -> Conflict:
    remedy = "Run `arkqueue doctor`, which says how to repair them; until then nothing of it is planned or started."
    return Conflict(f"archive {archive}", f"its settings in the database cannot be read: {fault}", remedy)


def _kind(value: object) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_OF_TYPE: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "tuple[str, ...]": ("a list of texts", _is_texts),
    "bool": ("true or false", lambda value: isinstance(value, bool)),
    "str | None": ("a text", lambda value: value is None or isinstance(value, str)),
    "int": ("a whole number", _is_whole),
    "int | None": ("a whole number", lambda value: value is None or _is_whole(value)),
    "Mapping[str, str]": (
        "an object of texts",
        lambda value: isinstance(value, dict) and all(isinstance(one, str) for one in value.values()),
    ),
    "Mapping[str, Sequence[str]]": (
        "an object of lists of texts",
        lambda value: isinstance(value, dict) and all(_is_texts(one) for one in value.values()),
    ),
}
_TYPES = {one.name: _OF_TYPE[str(one.type)] for one in fields(ArchiveSettings)}
"""For each setting: its JSON type in words, and a check of a value."""
