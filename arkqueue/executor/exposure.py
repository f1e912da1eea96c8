"""Folders that containers write, and that the user of process tasks reaches on the host.

Root in a container may leave a setuid file in a folder that is mounted there, or, in a container
that arkqueue did not make, a device node. Nothing inside the container prevents these from working on
the host. A process task of the same archive that reaches one by its path would be root with it, or
write the host's disk. So an archive gets both processes of another user and a writable mount only if
the folder is closed to that user:

- its file system is mounted ``nosuid`` and ``nodev``; or
- the user may not enter a folder above it. The mode of the folder itself proves nothing, because
  root in the container can change it. For the same reason, a folder above it that lies in a mount
  proves nothing.

The folder may be reached by several paths, because the same file system, or a part of it, may also
be mounted elsewhere. Each path is checked.
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.config import PersistentMount
from arkqueue.plan.globs import matches

MOUNTS = Path("/proc/self/mountinfo")
ACCESS_LIST = "system.posix_acl_access"
"""The extended attribute of a folder with an access list, whose mode does not show all permissions.
"""


@dataclass(frozen=True, slots=True)
class Exposure:
    """A folder that containers of an archive write, and that the user of the archive's processes
    reaches by ``path``.
    """

    archive: str
    mount: str
    folder: Path
    path: Path
    user: str

    @property
    def thing(self) -> str:
        return f"mount {self.mount} of archive {self.archive}"

    @property
    def fault(self) -> str:
        return (
            f"a container may leave a setuid file or a device in {self.folder}, and a process task, which runs as {self.user}, "
            f"would become root with it: {self.user} may reach {self.path}"
        )

    @property
    def remedy(self) -> str:
        here = shlex.quote(str(self.path))
        harmless = f"mount -o bind,nosuid,nodev {here} {here}"
        above = self.path.parent
        if len(above.parts) <= 2:  # folders such as /srv and /var, which other programs need
            return f"Have no setuid file and no device work there: {harmless} (and in /etc/fstab); or move it below a folder that {self.user} may not enter"
        return f"Close the folder above it: chmod go-x {shlex.quote(str(above))}; or have no setuid file and no device work there: {harmless} (and in /etc/fstab)"


def exposure(archive: str, settings: ArchiveSettings, mounts: Sequence[PersistentMount]) -> Exposure | None:
    """The first folder through which a committer of an archive could become root on this host; None
    if there is none.

    A user that does not exist on this host runs nothing here.
    """
    name = settings.process_user
    if not settings.process or settings.image is not None or name is None:
        return None  # without `process_user`, a process has the rights of this process
    written = {mount: Path(os.path.realpath(mount.folder)) for mount in mounts if mount.folder and not mount.read_only}
    by_name: dict[str, PersistentMount] = {}
    for mount in mounts:
        if matches(mount.archives, archive):
            by_name.setdefault(mount.name, mount)  # if several mounts have one name, tasks get the first
    granted = [mount for mount in by_name.values() if mount in written]
    if not granted or (person := _person(name)) is None or person.uid == 0:
        return None
    mounted = _mounted()
    for mount in granted:
        for path in _paths(written[mount], mounted):
            if not is_harmless(path) and person.reaches(path, written.values()):
                return Exposure(archive, mount.name, written[mount], path, name)
    return None


def _person(name: str) -> Person | None:
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        return None
    return Person(user.pw_uid, frozenset(os.getgrouplist(name, user.pw_gid)))


class Person(NamedTuple):
    """A user of this host, as the kernel judges them."""

    uid: int
    groups: frozenset[int]

    def reaches(self, path: Path, written: Collection[Path]) -> bool:
        """Whether the user may enter every folder above a path, or may be able to later.
        ``written``: folders in which containers change modes.
        """
        return all(
            self._may_enter(above) or any(above.is_relative_to(one) for one in written) for above in path.parents
        )

    def _may_enter(self, folder: Path) -> bool:
        """Whether a user may open a folder. Its owner always may. An access list counts as
        permission, because its entries are not read.
        """
        try:
            status = os.stat(folder)
        except FileNotFoundError:
            return True  # the folder may be made later
        except PermissionError:
            # Closed to this process, too; only root runs tasks as other users, and a task manager
            # checks again.
            return False
        if status.st_uid == self.uid or _has_access_list(folder):
            return True
        return bool(status.st_mode & (0o010 if status.st_gid in self.groups else 0o001))


def _has_access_list(folder: Path) -> bool:
    try:
        return bool(os.getxattr(folder, ACCESS_LIST))
    except OSError:
        return False


def is_harmless(path: Path) -> bool:
    """Whether neither setuid files nor devices work in a folder."""
    try:
        flags = os.statvfs(path).f_flag
    except FileNotFoundError:
        return is_harmless(path.parent)
    return bool(flags & os.ST_NOSUID and flags & os.ST_NODEV)


# Mounts of a folder


class Mounted(NamedTuple):
    """One line of mountinfo: a folder of a file system, and the place where it is mounted."""

    device: str
    root: Path
    at: Path


def _mounted() -> list[Mounted]:
    found = []
    for line in MOUNTS.read_bytes().split(b"\n")[
        :-1
    ]:  # not splitlines: the kernel escapes newlines in names, but not carriage returns
        fields = line.split(b" ")
        root, at = (Path(os.fsdecode(re.sub(rb"\\([0-7]{3})", _byte, field))) for field in fields[3:5])
        found.append(Mounted(fields[2].decode(), root, at))
    return found


def _byte(escaped: re.Match[bytes]) -> bytes:
    return bytes([int(escaped[1], 8)])


def _paths(folder: Path, mounted: Sequence[Mounted]) -> Iterator[Path]:
    """The paths to the files that a container writes in a folder; the folder's own path first."""
    yield folder
    # A later mount at the same place hides the earlier one.
    holder = max(
        (one for one in reversed(mounted) if folder.is_relative_to(one.at)),
        key=lambda one: len(one.at.parts),
        default=None,
    )
    inner = None if holder is None else holder.root / folder.relative_to(holder.at)
    for one in mounted:
        if one.at == folder:
            continue
        if one.at.is_relative_to(folder):
            yield one.at  # this mount is mounted into the container together with the folder
        elif holder is not None and inner is not None and one.device == holder.device:
            if one.root.is_relative_to(inner):
                yield one.at
            elif inner.is_relative_to(one.root):
                other = one.at / inner.relative_to(one.root)
                if other != folder and _is_same(other, folder):
                    yield other


def _is_same(one: Path, other: Path) -> bool:
    """Whether two paths lead to one folder; False if something else is mounted over it."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False
