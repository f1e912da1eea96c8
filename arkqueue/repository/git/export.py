"""Writes files of a Git revision into a folder."""

from __future__ import annotations

import stat
from collections.abc import Generator, Iterable
from contextlib import closing

import pygit2
from pygit2.enums import FileMode

from arkqueue.repository import limits
from arkqueue.repository.git.objects import Entry, Objects
from arkqueue.repository.git.program import read_blobs
from arkqueue.repository.git.tree_difference import kind_of
from arkqueue.repository.limits import PathBudget
from arkqueue.repository.tree_writer import Buffer, TreeWriter

LONGEST_TARGET = 4095
"""The most bytes of a symlink's target, without the final zero (PATH_MAX of Linux)."""
MANY, MOST = 100, 10_000
"""The number of files from which on git reads them, and the most that it reads in one call."""
LARGE = 2**26
"""The bytes from which on git reads a file: libgit2 would hold all of it in memory."""
EntryAtPath = tuple[Entry, bytes]
"""An entry of a tree, and its path in the revision."""


def write_entries(shown: str, objects: Objects, writer: TreeWriter, entries: list[EntryAtPath]) -> list[bytes]:
    """Write folders and their contents, without recursion, as folders may be nested deeply.
    ``shown``: the location of the archive, for messages. Returns the paths of the written files.
    """
    written: list[bytes] = []
    files: list[EntryAtPath] = []
    budget = PathBudget(limits.MOST_FILES)
    while entries:
        entry, path = entries.pop()
        if not writer.wants(path):
            continue
        kind, id = kind_of(entry), pygit2.Oid(raw=entry[1])
        if kind == FileMode.TREE:
            writer.folder(path)
            entries.extend((below, path + b"/" + name) for name, below in objects.all_entries(id, budget).items())
        elif kind == FileMode.COMMIT:
            writer.folder(path)  # the place of a submodule
        elif kind == FileMode.LINK:
            writer.symlink(path, _target(objects.repository, id))
        else:
            files.append((entry, path))
            written.append(path)
            if len(files) == MOST:
                _write_files(shown, objects.repository, writer, files)
                files = []
    _write_files(shown, objects.repository, writer, files)
    return written


def _write_files(shown: str, repository: pygit2.Repository, writer: TreeWriter, files: list[EntryAtPath]) -> None:
    ids = [pygit2.Oid(raw=id) for (_, id), _ in files]
    if len(files) < MANY and all(repository.odb.read_header(id)[1] < LARGE for id in ids):
        contents: Generator[Iterable[Buffer], None, None] = ((memoryview(_blob(repository, id)),) for id in ids)
    else:
        contents = read_blobs(shown, repository.path, [str(id) for id in ids])
    with closing(contents):
        for ((mode, _), path), pieces in zip(files, contents, strict=True):
            writer.write(path, pieces, executable=bool(int(mode, 8) & stat.S_IXUSR))


def _blob(repository: pygit2.Repository, id: pygit2.Oid) -> pygit2.Blob:
    found = repository[id]
    if not isinstance(found, pygit2.Blob):
        raise pygit2.GitError(f"{id} is not a file")
    return found


def _target(repository: pygit2.Repository, id: pygit2.Oid) -> bytes:
    """The target of a symlink. A target longer than the system accepts is not read; the result is
    then too long, and is refused.
    """
    length = repository.odb.read_header(id)[1]
    return _blob(repository, id).data if length <= LONGEST_TARGET else b"x" * (LONGEST_TARGET + 1)
