"""Makes a task's definition, with all defaults, from its checked fields. Called by ``tasks``."""

from __future__ import annotations

from typing import Any, Final

from arkqueue.model import (
    PREV,
    Cancels,
    Checkout,
    Depends,
    Foreach,
    MountUse,
    Poll,
    Resources,
    Retries,
    TaskDefinition,
    Trigger,
)
from arkqueue.workflow.containers import ImageEntry, placed
from arkqueue.workflow.format import (
    CancelsEntry,
    DependsEntry,
    Fields,
    PollEntry,
    RetriesEntry,
    cancels_entry,
    depends_entry,
)

_AS_THEY_ARE: Final = (
    *(
        "script",
        "env",
        "timeout",
        "grace",
        "schedule",
        "timezone",
        "exclusive",
        "hold",
        "on_lost",
        "changes",
        "scratch",
    ),
    *("deadline", "priority"),
    *("network", "user", "workdir"),
)


def definition_of(fields: Fields, name: str, path: str, line: int, foreach: Foreach | None = None) -> TaskDefinition:
    """The definition of a task whose fields have no faults."""
    return TaskDefinition(
        name=name,
        path=path,
        line=line,
        depends=tuple(map(_depends, fields.depends or ())),
        cancels=tuple(map(_cancels, fields.cancels or ())),
        shell=(fields.shell or "sh") if fields.script is not None else None,
        retries=_retries(fields.retries),
        on=_triggers(fields),
        foreach=foreach,
        **_given(fields),
    )


def _given(fields: Fields) -> dict[str, Any]:
    """The fields that a definition takes unchanged."""
    given: dict[str, Any] = {word: value for word in _AS_THEY_ARE if (value := getattr(fields, word)) is not None}
    if fields.command is not None:
        given["command"] = fields.command if isinstance(fields.command, str) else tuple(fields.command)
    for word in ("paths", "branches"):
        if (patterns := getattr(fields, word)) is not None:
            given[word] = tuple(patterns)
    if fields.poll is not None:
        given["poll"] = _poll(fields.poll)
    if fields.lock is not None:
        given["lock"] = tuple(sorted(set(fields.lock)))
    if fields.runs_on is not None:
        given["runs_on"] = tuple(sorted(set(fields.runs_on)))
    if isinstance(fields.checkout, list):
        given |= {"checkout": Checkout.PATHS, "checkout_paths": tuple(fields.checkout)}
    elif fields.checkout is not None:
        given["checkout"] = Checkout(fields.checkout)
    if isinstance(fields.image, ImageEntry):
        given |= {"image": fields.image.name, "pull": fields.image.pull}
    elif fields.image is not None:
        given["image"] = fields.image
    if fields.mounts is not None:
        given["mounts"] = tuple(MountUse(it.name, it.path, it.read_only) for it in map(placed, fields.mounts))
    if fields.resources is not None:
        given["resources"] = Resources(**fields.resources.model_dump(exclude_none=True))
    return given


def _depends(entry: str | DependsEntry) -> Depends:
    if isinstance(entry, str):
        entry = depends_entry(entry)
    task, previous = _reference(entry.task)
    return Depends(task, previous, entry.when, entry.optional, tuple(sorted(entry.excepted or ())))


def _cancels(entry: str | CancelsEntry) -> Cancels:
    if isinstance(entry, str):
        entry = cancels_entry(entry)
    task, previous = _reference(entry.task)
    return Cancels(task, previous, only_unstarted=entry.only is not None)


def _reference(word: str) -> tuple[str | None, bool]:
    """``x`` → (x, False); ``PREV`` → (None, True); ``PREV:x`` → (x, True)."""
    if word == PREV:
        return None, True
    name = word.removeprefix(f"{PREV}:")
    return name, name != word


def _retries(retries: int | RetriesEntry | None) -> Retries:
    if isinstance(retries, RetriesEntry):
        return Retries(retries.max, retries.delay, retries.factor)
    return Retries(retries or 0)


def _poll(poll: PollEntry) -> Poll:
    command = tuple(poll.command) if isinstance(poll.command, list) else poll.command
    return Poll(command, poll.script, poll.every, poll.timeout)


def _triggers(fields: Fields) -> tuple[Trigger, ...]:
    """The triggers in a fixed order, so that equal definitions are equal. A task with a schedule,
    or with the items of a submission, but without ``on`` is not in commit runs.
    """
    usual = (
        {"submission"} if fields.foreach == "submission" else {"manual"} if fields.schedule else {"commit", "manual"}
    )
    words = set(listed(fields.on)) or usual
    if fields.schedule:
        words.add("schedule")
    return tuple(trigger for trigger in Trigger if trigger in words)


def listed(words: list[Any] | None) -> list[str]:
    """The contents of an optional list."""
    return words or []
