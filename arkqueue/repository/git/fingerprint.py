"""The fingerprint of a local Git repository: the file system's view of its refs, read without
libgit2.

A scan finds something new only if HEAD or a branch has changed. Git keeps these in `HEAD`, in
`packed-refs` and in the files below `refs/heads`; `config` says what kind of repository it is.

`refs/heads` may hold thousands of files. So their states are left out, and the fingerprint has the
content of each file, and the state of each folder. git replaces files, which changes their folders.
A program that writes to a file in place changes its content. Contents show a change also if a file
changes twice within the precision of its times.

Other things that a scan would find, such as a lost object, are found by the next whole scan. If git
keeps refs in tables (`reftable/`), `refs/heads` is not a folder, and there is no fingerprint. A scan
cannot read such a repository either: libgit2 refuses it.
"""

from __future__ import annotations

import os

from arkqueue.repository.files import ABSENT, content, digest, state

_Folder = tuple[str, int, int, int, int, list[tuple[str, bytes | None]]]
"""A folder of refs: its path, identity and times, and the name and content of each file."""
_LENGTH = 4096
"""The most bytes of `HEAD` and of a ref, which are read whole."""


def fingerprint(path: str) -> bytes | None:
    """The fingerprint, which differs after each change of the repository's branches; None if the
    files do not show it.
    """
    try:
        return _fingerprint(path)
    except OSError:
        return None


def _fingerprint(path: str) -> bytes | None:
    # A linked work tree has a file there, and its refs elsewhere; so it has no `HEAD` here.
    inner = path + "/.git"
    folder = inner if os.path.isdir(inner) else path
    head = state(folder + "/HEAD", _LENGTH)
    refs = _refs(folder) if head != ABSENT else None
    if refs is None:
        return None
    return digest((head, state(folder + "/config", 0), state(folder + "/packed-refs", 0), refs))


def _refs(folder: str) -> list[_Folder] | None:
    """The folders from `refs/heads` on; None if a file there is a symbolic ref to something elsewhere."""
    found: list[_Folder] = []
    left = [folder + "/refs/heads"]
    while left:
        path = left.pop()
        opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            status, refs = os.fstat(opened), []
            with os.scandir(opened) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        left.append(f"{path}/{entry.name}")
                        continue
                    ref = content(entry.name, opened, _LENGTH)
                    if ref is not None and ref.startswith(b"ref:") and not _is_branch(ref):
                        return None
                    refs.append((entry.name, ref))
        finally:
            os.close(opened)
        refs.sort()
        found.append((path, status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, refs))
    found.sort()
    return found


def _is_branch(symbolic: bytes) -> bool:
    return symbolic.removeprefix(b"ref:").strip().startswith(b"refs/heads/")
