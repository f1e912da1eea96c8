"""The fingerprint of a local Git repository: the file system's view of its refs, read without
libgit2.

A scan finds something new only if HEAD or a branch has changed. Git keeps these in `HEAD`, in
`packed-refs` and in the files below `refs/heads`; `config` says what kind of repository it is.

`refs/heads` may hold thousands of files. So their states are left out, and the fingerprint has the
content of each file, and the state of each folder. git replaces files, which changes their folders.
A program that writes to a file in place changes its content. Contents show a change also if a file
changes twice within the precision of its times.

A whole scan needs the fingerprint, too, and the branches. So `read_refs` reads the files once for
both. libgit2 reads unusual refs again (`branches`).

Other things that a scan would find, such as a lost object, are found by the next whole scan. If git
keeps refs in tables (`reftable/`), `refs/heads` is not a folder, and there is no fingerprint. A scan
cannot read such a repository either: libgit2 refuses it.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from arkqueue.repository.files import ABSENT, State, contents, digest, state
from arkqueue.repository.limits import MOST_BRANCH_BYTES

_Folder = tuple[str, int, int, int, int, list[str], list[bytes | None]]
"""A folder of refs: its path below `refs/heads`, identity and times, and the names and contents of
its files.
"""
_Files = tuple[State, State, State, list[_Folder]]
"""The states of `HEAD`, `config` and `packed-refs`, and the folders."""
_LENGTH = 4096
"""The most bytes of `HEAD` and of a ref, which are read whole."""
_PACKED = re.compile(rb"^([0-9a-f]{40} )refs/heads/([^\n]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Refs:
    """The refs of a repository, as its files have them, with their fingerprint.

    ``folder``: the Git folder. ``branches``: the content of each branch's ref, by name: an id and a
    white space, or something else that libgit2 has to read; None if `packed-refs` is unusual.
    """

    folder: str
    fingerprint: bytes
    branches: dict[str, bytes | None] | None


def fingerprint(path: str) -> bytes | None:
    """The fingerprint, which differs after each change of the repository's branches; None if the
    files do not show it.
    """
    found = _read(_folder(path), 0)
    return None if found is None else _digest(found)


def read_refs(path: str) -> Refs | None:
    """The refs; None if the repository has no fingerprint."""
    folder = _folder(path)
    found = _read(folder, MOST_BRANCH_BYTES)
    return None if found is None else Refs(folder, _digest(found), _branches(found))


def _folder(path: str) -> str:
    # A linked work tree has a file there, and its refs elsewhere; so it has no `HEAD` here.
    inner = path + "/.git"
    return inner if os.path.isdir(inner) else path


def _read(folder: str, most_packed: int) -> _Files | None:
    """``most_packed``: the most bytes of `packed-refs`. Other refs are read first: git packs a ref
    before it deletes the ref's file, so no ref is missing in both.
    """
    try:
        head = state(folder + "/HEAD", _LENGTH)
        folders = _refs(folder + "/refs/heads") if head != ABSENT else None
        if folders is None:
            return None
        return head, state(folder + "/config", 0), state(folder + "/packed-refs", most_packed), folders
    except OSError:
        return None


def _digest(files: _Files) -> bytes:
    head, config, packed, folders = files
    return digest((head, config, packed[:-1], folders))


def _branches(files: _Files) -> dict[str, bytes | None] | None:
    _, _, packed, folders = files
    size, text = (packed[2], packed[-1]) if packed != ABSENT else (0, b"")
    assert isinstance(text, bytes), "the content is the last part of a state"
    found: dict[str, bytes | None] = {_name(name): id for id, name in _PACKED.findall(text)}
    if len(text) != size or b"\r" in text or text.count(b" refs/heads/") != len(found):
        return None
    for path, _, _, _, _, names, refs in folders:
        found.update(zip([_name(path + name) for name in names], refs, strict=True))
    return found


def _name(given: str | bytes) -> str:
    """A name of a branch, which is UTF-8 whatever the names of files are."""
    if isinstance(given, str) and given.isascii():
        return given
    return os.fsencode(given).decode(errors="surrogateescape")


def _refs(top: str) -> list[_Folder] | None:
    """The folders from `refs/heads` on; None if a file there is a symbolic ref to something elsewhere."""
    found: list[_Folder] = []
    left = [""]
    while left:
        path = left.pop()
        opened = os.open(f"{top}/{path}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            status, names = os.fstat(opened), []
            with os.scandir(opened) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        left.append(f"{path}{entry.name}/")
                    else:
                        names.append(entry.name)
            names.sort()
            refs = contents(names, opened, _LENGTH)
        finally:
            os.close(opened)
        for ref in refs:
            if ref is not None and ref.startswith(b"ref:") and not _is_branch(ref):
                return None
        found.append((path, status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, names, refs))
    found.sort()
    return found


def _is_branch(symbolic: bytes) -> bool:
    return symbolic.removeprefix(b"ref:").strip().startswith(b"refs/heads/")
