"""Commits as they stand in a Git repository, also those that libgit2 refuses.

git lets everything pass for an author and a date, and old histories hold it: no address, a date that is none. libgit2 reads no such commit, nor answers a
question on ancestry whose way leads past one. Nor does it where a commit takes more memory than this process may have, as it reads them whole. So commits are
read here, and git, which has a limit of its own, is asked where libgit2 will not answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pygit2
from pygit2.enums import ObjectType

from arkqueue.repository.git.program import beginning_of_commit, commit_called, is_ancestor

LONGEST_COMMIT = 2**27
"""Bytes of a commit that is read whole. Its size is known before; of a longer one, only the beginning is read."""
_READ = 2**20

_BEGINNING = re.compile(rb"tree (?P<tree>[0-9a-f]+)\n(?P<parents>(?:parent [0-9a-f]+\n)*)")
_PERSON = re.compile(rb"(?P<name>[^<]*)(?:<(?P<address>[^>]*)>?)?")
_TIME = re.compile(rb" -?\d+(?: [+-]?\d+)?\s*$")
_SECONDS = re.compile(rb"(-?\d{1,18})(?: [+-]?\d+)?\s*")


@dataclass(frozen=True, slots=True)
class Commit:
    """``author`` is a name and an address, ``time`` the committer's (seconds, UTC; 0 where it is none), ``encoding`` what the texts claim to be in. ``size``: all its bytes; where they are more than `LONGEST_COMMIT`, the end of the message is missing."""

    id: pygit2.Oid
    tree: pygit2.Oid
    parents: tuple[pygit2.Oid, ...]
    author: tuple[bytes, bytes]
    time: int
    encoding: str
    message: bytes
    size: int = 0


def has_object(repository: pygit2.Repository, id: pygit2.Oid | str) -> bool:
    """Whether a repository holds an object with this whole id. False for anything that is not a
    valid id of its kind.
    """
    try:
        return id in repository.odb
    except (TypeError, ValueError):
        return False


def read_commit(repository: pygit2.Repository, id: pygit2.Oid) -> Commit | None:
    """A commit, or None where the object is none. Raises KeyError where there is no object, and GitError where it cannot be read."""
    kind, size = repository.odb.read_header(id)
    if kind != ObjectType.COMMIT:
        return None
    raw = _raw(repository, id, size)
    tree, parents = _beginning(id, raw)
    head, _, message = raw.partition(b"\n\n")
    # A line that goes on (of a signature) begins with a space, and so names nothing here.
    lines = dict(line.partition(b" ")[::2] for line in reversed(head.split(b"\n")))
    person = _PERSON.match(_TIME.sub(b"", lines.get(b"author", b"")))
    seconds = _SECONDS.fullmatch(lines.get(b"committer", b"").rpartition(b">")[2].strip())
    assert person is not None, "it matches everything"
    return Commit(
        id,
        tree,
        parents,
        (person["name"].strip(), (person["address"] or b"").strip()),
        int(seconds[1]) if seconds else 0,
        lines.get(b"encoding", b"utf-8").decode("ascii", "replace"),
        message,
        size,
    )


def parents(repository: pygit2.Repository, id: pygit2.Oid) -> tuple[pygit2.Oid, ...]:
    """The parents that a commit names, also one that a shallow clone does not have."""
    return _beginning(id, _raw(repository, id, repository.odb.read_header(id)[1]))[1]


def first_parent(repository: pygit2.Repository, id: pygit2.Oid) -> pygit2.Oid | None:
    return next(iter(parents(repository, id)), None)


def commit_named(repository: pygit2.Repository, name: str) -> pygit2.Oid | None:
    """The commit that a person means by a name, as git reads it; None where there is none. One that libgit2 refuses is found by its id, or the beginning of that."""
    try:
        return repository.revparse_single(name).peel(pygit2.Commit).id
    except MemoryError:
        found = commit_called(repository.path, name)
        return pygit2.Oid(hex=found) if found else None
    except (KeyError, ValueError, pygit2.GitError):
        pass
    try:
        id = repository.expand_id(name)
        return id if read_commit(repository, id) else None
    except (KeyError, ValueError, pygit2.GitError):
        return None


def contains(repository: pygit2.Repository, head: pygit2.Oid, id: pygit2.Oid) -> bool:
    """Whether a commit is behind another one."""
    try:
        return repository.descendant_of(head, id)
    except (pygit2.InvalidError, MemoryError):
        return is_ancestor(repository.path, str(id), str(head))


def _raw(repository: pygit2.Repository, id: pygit2.Oid, size: int) -> bytes:
    return repository.read(id)[1] if size <= LONGEST_COMMIT else beginning_of_commit(repository.path, str(id), _READ)


def _beginning(id: pygit2.Oid, raw: bytes) -> tuple[pygit2.Oid, tuple[pygit2.Oid, ...]]:
    found = _BEGINNING.match(raw)
    if found is None:
        raise pygit2.GitError(f"commit {id} has no tree")
    parents = found["parents"].decode().split()[1::2]
    return pygit2.Oid(hex=found["tree"].decode()), tuple(pygit2.Oid(hex=parent) for parent in parents)
