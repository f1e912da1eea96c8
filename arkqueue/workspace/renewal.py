"""Gives the files that differ between BASE and a revision the time at which their workspace is
prepared (rule 38).

`make` compares times. A file in a base has the date of the revision that last changed it. A target
may be newer although it is stale: it was built while the revision was being committed, or before a
commit with an early date arrived. Then `make` would keep the stale target. So if the task has
completed before, the files that differ from its BASE get the present time.

In a layer, such a file is copied up, because all users of a base share it. The cost depends on the
number of files that differ.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from arkqueue.model import Layer
from arkqueue.workspace.layers import copy_file


def renew_in_layer(paths: Iterable[bytes] | None, layer: Layer) -> None:
    """Copy these files (None: all) into a layer that nobody uses yet."""
    lower, upper = os.fsencode(layer.lower), os.fsencode(layer.upper)
    made = {b""}
    for path, status in _files(paths, lower):
        _make_folders(path.rpartition(b"/")[0], lower, upper, made)
        place = upper + b"/" + path
        copy_file(lower + b"/" + path, place, status, True)
        _take_over(place, status)
        os.utime(place)


def renew_in_place(paths: Iterable[bytes] | None, tree: Path) -> None:
    """Like `renew_in_layer`, in a tree that is the workspace's own."""
    top = os.fsencode(tree)
    for path, _ in _files(paths, top):
        # Without a time, the kernel's own clock applies. It also dates the files that the task
        # writes, and may be some milliseconds slow.
        os.utime(top + b"/" + path, follow_symlinks=False)


def _files(paths: Iterable[bytes] | None, tree: bytes) -> Iterator[tuple[bytes, os.stat_result]]:
    """The regular files of a tree among some paths. No link is followed."""
    folders = {b"": True}

    def is_folder(path: bytes) -> bool:
        if path not in folders:
            found = _status(tree + b"/" + path) if is_folder(path.rpartition(b"/")[0]) else None
            folders[path] = found is not None and stat.S_ISDIR(found.st_mode)
        return folders[path]

    for path in _all_files(tree) if paths is None else paths:
        status = _status(tree + b"/" + path) if is_folder(path.rpartition(b"/")[0]) else None
        if status is not None and stat.S_ISREG(status.st_mode):
            yield path, status


def _status(path: bytes) -> os.stat_result | None:
    """The status of a file. None: it does not exist, because `checkout` leaves it out."""
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


def _all_files(tree: bytes) -> Iterator[bytes]:
    for folder, _, names in os.walk(tree):
        for name in names:
            yield os.path.join(folder, name)[len(tree) + 1 :]


def _make_folders(folder: bytes, lower: bytes, upper: bytes, made: set[bytes]) -> None:
    """Make the parent folders in a layer. To look unchanged, they need the mode and the owner of
    the folders below.
    """
    if folder in made:
        return
    _make_folders(folder.rpartition(b"/")[0], lower, upper, made)
    status, place = os.lstat(lower + b"/" + folder), upper + b"/" + folder
    os.mkdir(place)
    os.chmod(place, stat.S_IMODE(status.st_mode))
    _take_over(place, status)
    made.add(folder)


def _take_over(place: bytes, status: os.stat_result) -> None:
    if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
        os.lchown(place, status.st_uid, status.st_gid)
