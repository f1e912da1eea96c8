"""Layers and mounts: overlays that the kernel mounts for processes, copies where it does not, and
the mounts below a folder.

All functions concern the mount namespace of this process. They call mount(2) and run no program.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import shutil
import stat
import threading
from pathlib import Path

from arkqueue.model import Layer

_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT, _MS_BIND = 1, 2, 4, 32, 4096
_MNT_DETACH, _UMOUNT_NOFOLLOW = 2, 8
_FICLONE = 0x40049409

_OPTIONS = (",redirect_dir=on,volatile", ",redirect_dir=on", "")
"""Mount options, tried in this order. With them, folders can be renamed as in any other tree, and
unmounting does not write the caches of a whole disk, which nobody would read again.
"""
_UNWRITABLE = re.compile(r"[\\,:\"]")
"""Characters in the paths of an overlay's options that kernels interpret differently."""
_ESCAPED = re.compile(rb"\\([0-7]{3})")

_libc = ctypes.CDLL(None, use_errno=True)


class KernelLayers:
    """Mounts overlays, if the kernel lets this process do so. One trial in the work folder decides
    this.
    """

    def __init__(self, work: Path) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._options: str | None = None
        self._refusal: str | None = None

    def refusal(self) -> str:
        """The reason why overlays do not work here; empty if they do. Raises OSError if the trial
        fails.
        """
        with self._lock:
            if self._refusal is None:
                self._refusal = self._try()
            return self._refusal

    def lay(self, layer: Layer, target: Path) -> None:
        """Mount a layer at ``target``; raises OSError."""
        assert self._options is not None, "refusal() comes first"
        _mount(layer, target, self._options)

    def _try(self) -> str:
        if _UNWRITABLE.search(str(self._work)):
            return "the path of the work folder has signs that an overlay cannot take"
        place = self._work / f".probe-{os.getpid()}"
        layer = Layer(place / "lower", place / "upper", place / "work")
        refusal = ""
        try:
            for folder in (layer.lower, layer.upper, layer.work, place / "tree"):
                folder.mkdir(parents=True)
            (layer.lower / "file").touch()
            for options in _OPTIONS:
                try:
                    _mount(layer, place / "tree", options)
                except OSError as error:
                    refusal = refusal or f"the kernel refuses: {error.strerror}"
                    continue
                try:
                    os.rename(place / "tree" / "file", place / "tree" / "other")
                finally:
                    _unmount(os.fsencode(place / "tree"), 0)
                self._options = options
                return ""
            return refusal
        finally:
            shutil.rmtree(place, ignore_errors=True)


def _mount(layer: Layer, target: Path, options: str) -> None:
    text = f"lowerdir={layer.lower},upperdir={layer.upper},workdir={layer.work}{options}"
    arguments = b"overlay", os.fsencode(target), b"overlay", _MS_NOSUID | _MS_NODEV, os.fsencode(text)
    if _libc.mount(*arguments):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(target))


def show_read_only(folder: Path, target: Path) -> bool:
    """Mount a folder read-only over an empty folder, so that not even root can write there. Returns
    False if the kernel does not let this process mount.
    """
    places = os.fsencode(folder), os.fsencode(target)
    if _libc.mount(*places, None, _MS_BIND, None):
        return False
    if _libc.mount(None, places[1], None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV, None):
        _unmount(places[1], 0)
        return False
    return True


def _unmount(place: bytes, flags: int) -> None:
    if _libc.umount2(place, _UMOUNT_NOFOLLOW | flags):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), os.fsdecode(place))


def mounts_below(folder: Path) -> list[bytes]:
    """The mount points at or below a folder, the last mount first."""
    parent = os.open(folder.parent, os.O_PATH | os.O_CLOEXEC)
    try:
        top = os.readlink(b"/proc/self/fd/%d" % parent) + b"/" + os.fsencode(folder.name)
    finally:
        os.close(parent)
    found = []
    # Not splitlines: in the names of mount points, the kernel escapes newlines, but not carriage
    # returns.
    for line in _mountinfo().split(b"\n")[:-1]:
        place = _ESCAPED.sub(lambda match: bytes([int(match[1], 8)]), line.split(b" ", 5)[4])
        if place == top or place.startswith(top + b"/"):
            found.append(place)
    return found[::-1]


def _mountinfo() -> bytes:
    file = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return b"".join(iter(lambda: os.read(file, 1 << 16), b""))
    finally:
        os.close(file)


def unmount_below(folder: Path) -> str:
    """Unmount everything at or below a folder. Returns the mounts that something still uses.

    Raises OSError if a mount stays.
    """
    note = ""
    for place in mounts_below(folder):
        try:
            _unmount(place, 0)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            _unmount(place, _MNT_DETACH)
            note = f"{os.fsdecode(place)} was still in use when it was unmounted"
    return note


# --- Copies ---------------------------------------------------------------------------------------


def copy_tree(source: Path, target: Path) -> None:
    """Copy a plain tree into an empty folder: kinds, modes, times and owners of its files. Blocks
    are shared if the disk can do that.
    """
    top, to = os.fsencode(source), os.fsencode(target)
    shared = True
    own = os.geteuid(), os.getegid()
    pending = [b""]
    while pending:
        folder = pending.pop()
        for entry in os.scandir(top + folder):
            path = folder + b"/" + entry.name
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                os.mkdir(to + path)
                os.chmod(to + path, stat.S_IMODE(status.st_mode))
                pending.append(path)
            elif stat.S_ISLNK(status.st_mode):
                os.symlink(os.readlink(top + path), to + path)
            else:
                shared = copy_file(top + path, to + path, status, shared)
            if (status.st_uid, status.st_gid) != own:
                os.lchown(to + path, status.st_uid, status.st_gid)


def copy_file(source: bytes, target: bytes, status: os.stat_result, shared: bool) -> bool:
    """Copy a file with its mode and times. ``shared``: True to try to share blocks. Returns whether
    to try this for the next file.
    """
    from_ = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        to = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            if shared:
                try:
                    fcntl.ioctl(to, _FICLONE, from_)
                except OSError as error:
                    if error.errno in (errno.ENOSPC, errno.EDQUOT):
                        raise
                    shared = False
            if not shared:
                while os.sendfile(to, from_, None, 2**30):  # from the present position
                    pass
            os.fchmod(to, stat.S_IMODE(status.st_mode))
            os.utime(to, ns=(status.st_atime_ns, status.st_mtime_ns))
        finally:
            os.close(to)
    finally:
        os.close(from_)
    return shared
