"""The fingerprint of a local Git repository: the file system's view of its refs, read without
libgit2.

A scan finds something new only if HEAD or a branch has changed. Git keeps these in `HEAD`, in
`packed-refs` and in the files below `refs/heads`; `config` says what kind of repository it is.
Other things that a scan would find, such as a lost object, are found by the next whole scan. If git
keeps refs in tables (`reftable/`), `refs/heads` is not a folder, and there is no fingerprint. A scan
cannot read such a repository either: libgit2 refuses it.
"""

from __future__ import annotations

import os

from arkqueue.repository.files import ABSENT, State, digest, state

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


def _refs(folder: str) -> list[tuple[str, State]] | None:
    """The files below `refs/heads`; None if one of them is a symbolic ref to something elsewhere."""
    found: list[tuple[str, State]] = []
    left = [folder + "/refs/heads"]
    while left:
        with os.scandir(left.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    left.append(entry.path)
                    continue
                ref = state(entry.path, _LENGTH)
                if ref and isinstance(ref[-1], bytes) and ref[-1].startswith(b"ref:") and not _is_branch(ref[-1]):
                    return None
                found.append((entry.path, ref))
    found.sort()
    return found


def _is_branch(symbolic: bytes) -> bool:
    return symbolic.removeprefix(b"ref:").strip().startswith(b"refs/heads/")
