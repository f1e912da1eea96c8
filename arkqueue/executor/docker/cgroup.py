"""The kernel's own figures of a container on this host, in the files of its cgroup; ``samples``
reads them in place of asking the engine, which takes longer.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from arkqueue.model import Usage

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The folders of a container's cgroup. In version 2 of cgroups both are one."""

    processor: Path
    memory: Path
    is_unified: bool

    def usage(self) -> Usage | None:
        """The resources that the container's processes have used, the ended ones included; None
        when the container has ended.

        Memory is counted as ``docker stats`` does, without the file cache that the kernel can drop
        at once.
        """
        try:
            details = _numbers(self.memory / "memory.stat")
            if self.is_unified:
                seconds = _numbers(self.processor / "cpu.stat")["usage_usec"] / 1e6
                held, cache = int((self.memory / "memory.current").read_text()), details["inactive_file"]
            else:
                seconds = int((self.processor / "cpuacct.usage").read_text()) / 1e9
                held, cache = int((self.memory / "memory.usage_in_bytes").read_text()), details["total_inactive_file"]
        except (OSError, ValueError, KeyError):
            return None
        return Usage(seconds, max(0, held - cache), sampled=True)


def cgroup_of(pid: int, container: str, proc: Path = PROC, cgroups: Path = CGROUPS) -> Cgroup | None:
    """The cgroup of a container, by the number that the engine gives its first process.

    None where this host has no such process, as with an engine elsewhere, or where the process is
    not of that container: its path lacks the container's id.
    """
    try:
        lines = (proc / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return None
    found: dict[str, Path] = {}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if container not in path or "/../" in path:
            continue
        for controller in controllers.split(","):
            found[controller] = cgroups / controllers / path.lstrip("/")
    old = found.get("cpuacct"), found.get("memory")
    if old[0] and old[1]:
        cgroup = Cgroup(old[0], old[1], is_unified=False)
    elif "" in found:
        cgroup = Cgroup(found[""], found[""], is_unified=True)
    else:
        return None
    return cgroup if cgroup.usage() else None


def _numbers(file: Path) -> dict[str, int]:
    """A file of the kernel that has a name and a number on each line."""
    return {name: int(number) for name, _, number in (line.partition(" ") for line in file.read_text().splitlines())}
