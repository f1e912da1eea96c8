"""The messages between the server and a reader process: JSON in frames of a bounded length, over a
socket.

A reader process parses content of strangers, so the server trusts no answer: each answer is
bounded, and each part of it is checked before it becomes an object of `model`. A part that is not
valid is `Malformed`. Nothing here can make the server run code, as an object of `pickle` could.

``frames`` has the frames and the plain values in them, and ``workflows`` the parts that the parser
reads or makes. All other parts, and errors, are here.

    server                                          reader
                                                    {"ready": true}
    {"since", "location", "call", "given", …}
                                                    {"answer": …} or {"error": …}
"""

from __future__ import annotations

import errno
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from arkqueue import errors
from arkqueue.model import ArchiveKind, ChangeStatus, FileChange, Origin, Revision, TreeChange
from arkqueue.repository.following.allowance import Followed
from arkqueue.repository.limits import TooManyPaths
from arkqueue.repository.location import Identity, Location
from arkqueue.repository.protocol import Advance, Fork, Known, LastKnown, NewBranch, Survey, SurveyOptions
from arkqueue.repository.reader.frames import Malformed, array, mapping, names, number, optional, text, texts, truth

_NO_DATE = datetime.fromtimestamp(0, UTC)
"""Stands for the date of a commit that is compared by its id alone."""
LONGEST_FAULT = 2**16
"""The most characters of an error's text."""

_KINDS: dict[str, type[errors.ArkqueueError]] = {
    kind.__name__: kind
    for kind in (
        errors.NotFound,
        errors.Conflict,
        errors.Invalid,
        errors.TooLarge,
        errors.ArchiveUnreachable,
        errors.ArchiveMismatch,
        errors.WorkspaceError,
        errors.HostFault,
    )
}


class ReaderFault(Exception):
    """An unexpected error in a reader process. The text begins with the error's type."""


# --- Parts of messages: ``put`` makes JSON of an object, ``take`` checks JSON and makes the object of it ----------------


def put_revision(revision: Revision, *, with_message: bool = True) -> dict[str, Any]:
    """``with_message``: False for a revision that the reader only compares. Messages are long, and
    branches many.
    """
    origin = revision.origin
    return {
        "id": revision.id,
        "number": revision.number,
        "author": revision.author,
        "date": revision.date.isoformat(),
        "message": revision.message if with_message else "",
        "origin": [origin.task, origin.generation] if origin else None,
        "oversized": revision.oversized,
        "paths_digest": revision.paths_digest,
        "parent": revision.parent,
    }


def take_revision(value: object) -> Revision:
    found = mapping(value)
    try:
        date = datetime.fromisoformat(text(found.get("date")))
    except ValueError as error:
        raise Malformed(f"an invalid date ({error})") from None
    if date.tzinfo is None:
        raise Malformed("a date without a time zone")
    origin = None
    if found.get("origin") is not None:
        parts = array(found["origin"])
        if len(parts) != 2:
            raise Malformed("an invalid origin")
        origin = Origin(text(parts[0]), number(parts[1]))
    return Revision(
        text(found.get("id")),
        number(found.get("number")),
        text(found.get("author")),
        date,
        text(found.get("message")),
        origin,
        text(found.get("oversized")),
        text(found.get("paths_digest")),
        text(found.get("parent")),
    )


def put_advance(advance: Advance) -> dict[str, Any]:
    return {
        "dropped": advance.dropped,
        "revisions": [put_revision(revision) for revision in advance.revisions],
        "complete": advance.complete,
        "baseline": advance.baseline and put_revision(advance.baseline),
    }


def take_advance(value: object) -> tuple[Advance, dict[str, str]]:
    """An advance, and the keys of the workflow files of its revisions, if they were asked for and
    could be read.
    """
    found = mapping(value)
    advance = Advance(
        texts(found.get("dropped")),
        tuple(map(take_revision, array(found.get("revisions")))),
        truth(found.get("complete")),
        optional(take_revision)(found.get("baseline")),
    )
    return advance, names(found.get("keys"))


def put_new_branch(branch: NewBranch) -> list[Any]:
    return [branch.name, branch.head]


def put_fork(fork: Fork) -> list[Any]:
    return [fork.at, fork.own]


def take_fork(value: object) -> Fork:
    parts = array(value)
    if len(parts) != 2 or number(parts[1]) < 0:
        raise Malformed("an invalid fork")
    return Fork(optional(text)(parts[0]), parts[1])


def take_forks(value: object) -> dict[str, Fork]:
    return {name: take_fork(one) for name, one in mapping(value).items()}


COMMIT = 2
"""The length of a commit of Git in the form of `put_known`."""


def put_known(known: Known, kind: ArchiveKind) -> list[Any]:
    """A revision that the archive compares with its own. The id of a commit stands for all the rest,
    and a Git archive may have thousands of branches.
    """
    if kind is ArchiveKind.GIT:
        return [known.id, known.number]
    return [known.id, known.number, known.author, known.date.isoformat()]


def take_known(value: Sequence[Any]) -> LastKnown:
    """For the reader, which trusts the server."""
    return take_all_known({"": value})[""]


def take_all_known(values: Mapping[str, Sequence[Any]]) -> dict[str, LastKnown]:
    """As `take_known`, without a call for each of a thousand branches."""
    return {
        name: LastKnown(one[0], one[1], "", _NO_DATE)
        if len(one) == COMMIT
        else LastKnown(one[0], one[1], one[2], datetime.fromisoformat(one[3]))
        for name, one in values.items()
    }


@dataclass(frozen=True, slots=True)
class Heads:
    """The answer of `heads`: the heads of branches, and what a scan needs next.

    ``heads``: without the branches whose head is their known revision. ``gone``: the known branches
    that have no head; None if no known revisions were compared. ``main``: the main branch, if there is one. ``are_checked``: True if the known
    revisions of the other branches exist. ``moved``: the branch that has moved, if there is just
    one; ``ahead`` and ``workflows_keys``: its advance, if that is short, and the keys of the
    workflow files of its revisions. ``fingerprint``: as in `Archive`.
    """

    heads: dict[str, str]
    gone: frozenset[str] | None = None
    main: str | None = None
    are_checked: bool = False
    moved: str | None = None
    ahead: Advance | None = None
    workflows_keys: dict[str, str] = field(default_factory=dict)
    fingerprint: bytes | None = None


def _names(value: object) -> frozenset[str]:
    return frozenset(texts(value))


def take_heads(value: object) -> Heads:
    found = mapping(value)
    ahead, keys = optional(take_advance)(found.get("ahead")) or (None, {})
    return Heads(
        names(found.get("heads")),
        optional(_names)(found.get("gone")),
        optional(text)(found.get("main")),
        truth(found.get("are_checked")),
        optional(text)(found.get("moved")),
        ahead,
        keys,
        optional(_bytes)(found.get("fingerprint")),
    )


def _bytes(value: object) -> bytes:
    try:
        return bytes.fromhex(text(value))
    except ValueError:
        raise Malformed("something in place of hexadecimal digits") from None


def take_baselines(value: object) -> dict[str, Revision]:
    return {name: take_revision(one) for name, one in mapping(value).items()}


def put_identity(identity: Identity) -> list[str]:
    return [identity.kind.value, identity.repository, identity.uuid, identity.folder]


def take_identity(value: object) -> Identity:
    parts = texts(value)
    if len(parts) != 4 or parts[0] not in set(ArchiveKind):
        raise Malformed("an invalid identity")
    return Identity(ArchiveKind(parts[0]), *parts[1:])


def put_path(path: bytes) -> str:
    return path.decode(errors="surrogateescape")


def take_path(value: object) -> bytes:
    """A path below a tree. It is checked, because the process that writes to it may be root."""
    try:
        path = text(value).encode(errors="surrogateescape")
    except UnicodeEncodeError:
        raise Malformed("an invalid path") from None
    if path.startswith(b"/") or b"\0" in path or b".." in path.split(b"/"):
        raise Malformed("a path that leads out of its tree")
    return path


def put_change(change: TreeChange) -> dict[str, Any]:
    return {
        "made": [put_path(path) for path in change.made],
        "grown": change.grown,
        "began": change.began,
        "entered": [[changed, put_path(path)] for changed, path in change.entered.items()],
    }


def take_change(value: object) -> TreeChange:
    found = mapping(value)
    return TreeChange(
        tuple(map(take_path, array(found.get("made")))),
        number(found.get("grown")),
        optional(number)(found.get("began")),
        dict(map(_entered, array(found.get("entered")))),
    )


def _entered(value: object) -> tuple[int, bytes]:
    parts = array(value)
    if len(parts) != 2:
        raise Malformed("an invalid entered folder")
    return number(parts[0]), take_path(parts[1])


def put_changes(changes: Sequence[FileChange]) -> dict[str, list[str]]:
    return {"statuses": [change.status for change in changes], "paths": [change.path for change in changes]}


def take_changes(value: object) -> tuple[FileChange, ...]:
    found = mapping(value)
    statuses, paths = texts(found.get("statuses")), texts(found.get("paths"))
    if len(statuses) != len(paths) or not set(statuses) <= set(ChangeStatus):
        raise Malformed("invalid changes")
    known = {str(status): status for status in ChangeStatus}
    return tuple(FileChange(known[status], path) for status, path in zip(statuses, paths, strict=True))


def put_survey_options(options: SurveyOptions) -> dict[str, Any]:
    base = options.base_recorded
    return {
        "base": options.base,
        "changes": options.changes,
        "notes": options.notes,
        "most": options.most,
        "base_recorded": None if base is None else put_revision(base, with_message=False),
    }


def take_survey_options(value: Mapping[str, Any]) -> SurveyOptions:
    """For the reader, which trusts the server."""
    return SurveyOptions(**{**value, "base_recorded": optional(take_revision)(value["base_recorded"])})


def put_survey(survey: Survey) -> dict[str, Any]:
    return {
        "tree_key": survey.tree_key,
        "changes": None if survey.changes is None else put_changes(survey.changes),
        "not_followed": list(survey.not_followed),
    }


def take_survey(value: object) -> Survey:
    found = mapping(value)
    changes = optional(take_changes)(found.get("changes"))
    return Survey(text(found.get("tree_key")), changes, texts(found.get("not_followed")))


def put_update(survey: Survey, change: TreeChange | None) -> dict[str, Any]:
    return {"survey": put_survey(survey), "change": None if change is None else put_change(change)}


def take_update(value: object) -> tuple[Survey, TreeChange | None]:
    found = mapping(value)
    return take_survey(found.get("survey")), optional(take_change)(found.get("change"))


def inside(folder: Path) -> Callable[[Any], Path | None]:
    """A function that takes a path in a folder, or None."""

    def take(value: object) -> Path:
        found = Path(text(value))
        if ".." in found.parts or not found.is_relative_to(folder):
            raise Malformed("a path that is in another folder")
        return found

    return optional(take)


def take_followed(value: object) -> Followed:
    found = mapping(value)
    return Followed(texts(found.get("notes")), texts(found.get("wanted")))


def put_location(location: Location) -> Sequence[str | None]:
    return [location.kind.value, location.url, location.username, location.password, location.uuid]


def take_location(value: Sequence[Any]) -> Location:
    """For the reader, which trusts the server."""
    return Location(ArchiveKind(value[0]), *value[1:])


# --- Errors -------------------------------------------------------------------------------------------------------------


def put_error(error: BaseException) -> dict[str, Any]:
    """An error of a call. Errors of arkqueue keep their type, together with the system's message
    about this host.
    """
    if isinstance(error, TooManyPaths):
        return {"kind": "TooManyPaths", "most": error.args[0]}
    if isinstance(error, errors.ArkqueueError):
        kind = next((name for name, one in _KINDS.items() if isinstance(error, one)), "")
        cause = error.__cause__
        return {
            "kind": kind,
            "words": [part[:LONGEST_FAULT] for part in (error.thing, error.fault, error.remedy)],
            "errno": cause.errno if isinstance(cause, OSError) else None,
        }
    if isinstance(error, OSError) and error.errno is not None:
        return {"kind": "OSError", "errno": error.errno, "words": [str(error)[:LONGEST_FAULT]]}
    trace = "".join(traceback.format_exception(error))
    return {"kind": "other", "words": [f"{type(error).__name__}: {error}"[:LONGEST_FAULT], trace[-LONGEST_FAULT:]]}


def take_error(value: object) -> Exception:
    found = mapping(value)
    kind = text(found.get("kind"))
    if kind == "TooManyPaths":
        return TooManyPaths(number(found.get("most")))
    words = texts(found.get("words"))
    code = optional(number)(found.get("errno"))
    if any(len(word) > LONGEST_FAULT for word in words):
        raise Malformed("an error that is too long")
    if kind == "other" and len(words) == 2:
        error: Exception = ReaderFault(words[0])
        error.add_note(words[1])
        return error
    if kind == "OSError" and code is not None and len(words) == 1:
        return OSError(code, os.strerror(code) if code in errno.errorcode else words[0])
    if len(words) != 3 or (kind and kind not in _KINDS):
        raise Malformed(f"an error of the kind {kind[:100]!r}")
    error = _KINDS.get(kind, errors.ArkqueueError)(*words)
    if code is not None:
        error.__cause__ = OSError(code, os.strerror(code) if code in errno.errorcode else "")
    return error
