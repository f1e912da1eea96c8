"""Reads commits of a Git repository as they are stored, also those that libgit2 refuses.

git accepts any author and date, and old histories contain invalid ones: authors without an address,
dates that are not numbers. libgit2 does not read such a commit, and answers no question on ancestry
whose walk passes one. It also fails if a commit needs more memory than this process may have, as it
reads commits whole. So this module parses commits, and asks git, which has a memory limit of its
own, where libgit2 fails.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from hashlib import sha1
from zlib import decompressobj
from zlib import error as zlib_error

import pygit2
from pygit2.enums import ObjectType

from arkqueue.repository.git.program import beginning_of_commit, commit_called, is_ancestor

LONGEST_COMMIT = 2**27
"""The most bytes of a commit that is read whole. Its size is known beforehand; of a longer commit,
only the beginning is read.
"""
_READ = 2**20

_BEGINNING = re.compile(rb"tree (?P<tree>[0-9a-f]+)\n(?P<parents>(?:parent [0-9a-f]+\n)*)")
_PERSON = re.compile(rb"(?P<name>[^<]*)(?:<(?P<address>[^>]*)>?)?")
_TIME = re.compile(rb" -?\d+(?: [+-]?\d+)?\s*$")
_SECONDS = re.compile(rb"(-?\d{1,18})(?: [+-]?\d+)?\s*")


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit. ``author``: name and address. ``time``: the committer's (seconds, UTC; 0 if it is
    invalid). ``encoding``: the encoding that the commit names. ``size``: all its bytes; if they are
    more than `LONGEST_COMMIT`, the end of the message is missing.
    """

    id: pygit2.Oid
    tree: pygit2.Oid
    parents: tuple[pygit2.Oid, ...]
    author: tuple[bytes, bytes]
    time: int
    encoding: str
    message: bytes
    size: int = 0


def has_object(repository: pygit2.Repository, id: pygit2.Oid | str) -> bool:
    """True if a repository holds an object with this whole id. False for a text that is not a valid
    id.
    """
    try:
        return id in repository.odb
    except (TypeError, ValueError):
        return False


def check_commit(repository: pygit2.Repository, id: str) -> None:
    """Raise KeyError, GitError or OSError if a commit cannot be read. The content of a loose object
    is compared with its id. Python reads such an object, because libgit2 1.9.7 reads an object that
    is cut off without end (its issue 7342).
    """
    path = os.path.join(repository.path, "objects", id[:2], id[2:])
    try:
        # Without O_NONBLOCK, a fifo in the place of the object would wait for its writer.
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        repository.odb.read_header(id)
        return
    try:
        stored = os.read(file, min(os.fstat(file).st_size, LONGEST_COMMIT))
    finally:
        os.close(file)
    try:
        content = decompressobj().decompress(stored, LONGEST_COMMIT)
    except zlib_error:
        content = b""
    if len(content) < LONGEST_COMMIT and sha1(content, usedforsecurity=False).hexdigest() != id:
        raise pygit2.GitError(f"the content of objects/{id[:2]}/{id[2:]} is damaged")


def read_commit(repository: pygit2.Repository, id: pygit2.Oid) -> Commit | None:
    """A commit; None if the object is of another kind. Raises KeyError if there is no object, and
    GitError if it cannot be read.
    """
    kind, size = repository.odb.read_header(id)
    if kind != ObjectType.COMMIT:
        return None
    raw = _raw(repository, id, size)
    tree, parents = _beginning(id, raw)
    head, _, message = raw.partition(b"\n\n")
    # A continued line (of a signature) begins with a space, so its name is empty.
    lines = dict(line.partition(b" ")[::2] for line in reversed(head.split(b"\n")))
    person = _PERSON.match(_TIME.sub(b"", lines.get(b"author", b"")))
    assert person is not None, "the pattern matches every text"
    return Commit(
        id,
        tree,
        parents,
        (person["name"].strip(), (person["address"] or b"").strip()),
        _seconds(lines.get(b"committer", b"")),
        lines.get(b"encoding", b"utf-8").decode("ascii", "replace"),
        message,
        size,
    )


def parents(repository: pygit2.Repository, id: pygit2.Oid) -> tuple[pygit2.Oid, ...]:
    """The parents that a commit names, also those that a shallow clone does not have."""
    return _beginning(id, _raw(repository, id, repository.odb.read_header(id)[1]))[1]


def lineage(repository: pygit2.Repository, id: pygit2.Oid) -> tuple[int, tuple[pygit2.Oid, ...]]:
    """The committer's time, as in `Commit`, and the parents that a commit names."""
    raw = _raw(repository, id, repository.odb.read_header(id)[1])
    start = raw.find(b"\ncommitter ") + 1
    return _seconds(raw[start : raw.find(b"\n", start)] if start else b""), _beginning(id, raw)[1]


def first_parent(repository: pygit2.Repository, id: pygit2.Oid) -> pygit2.Oid | None:
    return next(iter(parents(repository, id)), None)


def commit_named(repository: pygit2.Repository, name: str) -> pygit2.Oid | None:
    """The commit that git would find for a name; None if there is none. A commit that libgit2
    refuses is found only by its id, or the beginning of its id.
    """
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
    """True if a commit is an ancestor of ``head``.

    The two must differ: libgit2 and git answer differently for equal commits.
    """
    try:
        return repository.descendant_of(head, id)
    except (pygit2.InvalidError, MemoryError):
        return is_ancestor(repository.path, str(id), str(head))


def _raw(repository: pygit2.Repository, id: pygit2.Oid, size: int) -> bytes:
    return repository.read(id)[1] if size <= LONGEST_COMMIT else beginning_of_commit(repository.path, str(id), _READ)


def _seconds(committer: bytes) -> int:
    """The time in the line of a commit's committer; 0 if it is invalid."""
    found = _SECONDS.fullmatch(committer.rpartition(b">")[2].strip())
    return int(found[1]) if found else 0


def _beginning(id: pygit2.Oid, raw: bytes) -> tuple[pygit2.Oid, tuple[pygit2.Oid, ...]]:
    found = _BEGINNING.match(raw)
    if found is None:
        raise pygit2.GitError(f"commit {id} has no tree")
    parents = found["parents"].decode().split()[1::2]
    return pygit2.Oid(hex=found["tree"].decode()), tuple(pygit2.Oid(hex=parent) for parent in parents)
