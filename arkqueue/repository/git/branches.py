"""The branches of a Git repository. libgit2 can miss some of them while refs are packed; `list_branches` misses none."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping

import pygit2
from pygit2.enums import ObjectType, ReferenceFilter

from arkqueue.repository import Known
from arkqueue.repository.git.commits import has_object

HEADS = "refs/heads/"
LONGEST_REF = 1024
"""The most bytes of a ref's name, with its final zero (GIT_REFNAME_MAX of libgit2)."""
LISTINGS = 20
"""The most listings of the branches, which are repeated while refs are being packed."""


def branch_head(repository: pygit2.Repository, name: str) -> pygit2.Oid | None:
    """The head of one wanted branch; see `list_branches`."""
    try:
        reference = repository.lookup_reference(HEADS + name)
    except (ValueError, KeyError, pygit2.GitError):
        return None
    return _head(repository, name, reference, is_wanted=True)


def list_branches(
    repository: pygit2.Repository,
    wanted: Callable[[str], object] | None = None,
    known: Mapping[str, Known] | None = None,
    refs: Mapping[str, bytes | None] | None = None,
) -> Iterator[tuple[str, str]]:
    """Every branch that names a commit, by its short name. Names that are not UTF-8, or longer than
    libgit2 accepts, cannot be tracked.

    If the commit of a ``wanted`` branch cannot be read, that is an error: the branch would be taken
    for deleted. Other such branches are left out. ``known``: the last revision of each branch's
    ledger. If this commit is the head of its branch, only its existence is checked, in a fraction
    of the time. ``refs``: `Refs.branches`, so that libgit2 need not read the refs of such branches.
    """
    known = known or {}
    if known and wanted is not None and refs is not None:
        yield from _compared(repository, wanted, known, refs)
        return
    for reference in _listed(repository):
        try:
            name = reference.raw_name.decode().removeprefix(HEADS)
        except UnicodeDecodeError:
            continue
        if (wanted is not None and not wanted(name)) or not _is_valid(name):
            continue
        last = known.get(name)
        if last is not None and last.id == str(reference.raw_target) and has_object(repository, last.id):
            yield name, last.id
            continue
        id = _head(repository, name, reference, is_wanted=wanted is not None)
        if id is not None:
            yield name, str(id)


def _compared(
    repository: pygit2.Repository,
    wanted: Callable[[str], object],
    known: Mapping[str, Known],
    refs: Mapping[str, bytes | None],
) -> Iterator[tuple[str, str]]:
    """Like `list_branches`, in the order of the names, for branches that mostly are as the ledger has
    them. libgit2 looks up the others.
    """
    objects = repository.odb
    for name in sorted(refs):
        if not wanted(name):
            continue
        ref, last = refs[name], known.get(name)
        if last is not None and ref is not None and ref[:-1] == last.id.encode() and last.id in objects:
            yield name, last.id
        elif _is_valid(name) and (id := branch_head(repository, name)) is not None:
            yield name, str(id)


def _is_valid(name: str) -> bool:
    """True if libgit2 finds a branch by this name. It also lists branches that it cannot find."""
    try:
        full = HEADS + name
        return len(full.encode()) < LONGEST_REF and pygit2.reference_is_valid_name(full)
    except UnicodeEncodeError:
        return False


def _head(
    repository: pygit2.Repository, name: str, reference: pygit2.Reference, *, is_wanted: bool
) -> pygit2.Oid | None:
    id = reference.raw_target
    try:
        if not isinstance(id, pygit2.Oid):
            id = reference.resolve().raw_target
    except KeyError:
        return None  # a symbolic ref to a branch that does not exist
    try:
        assert isinstance(id, pygit2.Oid), "a resolved reference names an object"
        kind, _ = repository.odb.read_header(id)
    except (KeyError, ValueError, pygit2.GitError) as error:
        if not is_wanted:
            return None
        raise pygit2.GitError(f"the head of {name}: {error}") from error
    return id if kind == ObjectType.COMMIT else None


def _listed(repository: pygit2.Repository) -> list[pygit2.Reference]:
    """All branches. libgit2 misses refs that are packed (``git gc``) between its reading of packed
    refs and of the others, so the listing is then repeated.
    """
    for _ in range(LISTINGS):
        before = _packed(repository)
        found = list(repository.references.iterator(ReferenceFilter.BRANCHES))
        if _packed(repository) == before:
            break
    return found


def _packed(repository: pygit2.Repository) -> tuple[int, ...]:
    """The state of the packed refs, which differs after they were packed."""
    try:
        status = os.stat(os.path.join(repository.path, "packed-refs"))
    except FileNotFoundError:
        return ()
    return status.st_ino, status.st_mtime_ns, status.st_size
