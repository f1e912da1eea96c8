"""Mirrors of remotes, and clones for tasks that commit. Both are made by git."""

from __future__ import annotations

import fcntl
import os
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

from arkqueue.errors import ArchiveError, ArchiveUnreachable, WorkspaceError
from arkqueue.model import Origin
from arkqueue.repository import limits
from arkqueue.repository.git.program import LONGEST_ANSWER, LongAnswer, run_git
from arkqueue.repository.location import Location
from arkqueue.repository.origin import install_git_hooks, split_author

_HEADS = "refs/heads/"
_LOCK = "arkqueue.lock"


class Mirror:
    """This host's bare copy of a remote, shared by the processes of the host under a file lock.

    Commits that a force-push took off every branch are kept, for the runs of these commits.
    """

    def __init__(self, location: Location, folder: Path, timeout: float) -> None:
        self._location, self.folder, self._timeout = location, folder, timeout

    def make(self) -> None:
        """Make an empty mirror, if this host has none. A caller that needs a commit fetches it from
        the remote.
        """
        if not self._is_made():
            with self._locked():
                pass

    def refresh(self, known: Callable[[], Mapping[str, str]]) -> None:
        """Bring the branches and HEAD up to date with the remote. ``known``: reads the mirror's
        branch refs and their ids.
        """
        with self._locked():
            head, there = self._ask()
            if there != known():
                self._remove_stale_locks()
                # A remote can itself be shallow. Without this option, git would leave its branches
                # out, and would not fail.
                self._git("fetch", "--quiet", "--prune", "--update-shallow", "--no-write-fetch-head", "--", self._location.url,
                          f"+{_HEADS}*:{_HEADS}*")  # fmt: skip
            if head and (self.folder / "HEAD").read_text(encoding="utf-8").strip() != f"ref: {head}":
                self._git("symbolic-ref", "HEAD", head)

    def fetch_commit(self, id: str) -> None:
        """Try to fetch a commit that no branch holds any more. Most servers refuse, which is not an
        error here.
        """
        with self._locked():
            try:
                self._git("fetch", "--quiet", "--no-write-fetch-head", "--", self._location.url, id)
            except ArchiveUnreachable:
                return

    def _ask(self) -> tuple[str, dict[str, str]]:
        """The branch that the remote's HEAD names, and the ids of all branch refs. A remote may list
        any number of refs.
        """
        head, there = "", {}
        command = ("ls-remote", "--symref", "--", self._location.url, "HEAD", _HEADS + "*")
        try:
            said = self._git(*command, longest=limits.MOST_BRANCH_BYTES)
        except LongAnswer:
            raise limits.too_many_branches(self._location.shown, are_counted=False) from None
        if said.count(f"\t{_HEADS}") > limits.MOST_BRANCHES:
            raise limits.too_many_branches(self._location.shown, are_counted=True)
        for line in said.split("\n"):
            id, _, ref = line.partition("\t")
            if id.startswith("ref: ") and ref == "HEAD":
                head = id.removeprefix("ref: ")
            elif ref.startswith(_HEADS):
                there[ref] = id
        return head, there

    def _git(self, *arguments: str, longest: int = LONGEST_ANSWER) -> str:
        return run_git(
            self._location.shown,
            "--git-dir", str(self.folder), "-c", "credential.helper=", "-c", f"credential.helper={self._helper()}",
            *arguments, timeout=self._timeout, longest=longest,
        )  # fmt: skip

    def _helper(self) -> str:
        return f"store --file={shlex.quote(str(self.folder / 'arkqueue-credentials'))}"

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Keep other processes from fetching and from replacing packs, while the caller reads the
        mirror file by file.
        """
        with self._lock(fcntl.LOCK_SH):
            yield

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._lock(fcntl.LOCK_EX):
            if not self._is_made():
                run_git(str(self.folder), "init", "--quiet", "--bare", "--template=", "--", str(self.folder),
                        timeout=self._timeout)  # fmt: skip
                run_git(str(self.folder), "--git-dir", str(self.folder), "config", "gc.pruneExpire", "never",
                        timeout=self._timeout)  # fmt: skip
            self._store_credentials()
            yield

    @contextmanager
    def _lock(self, kind: int) -> Iterator[None]:
        try:
            # If root owns the home folder, its permissions may let other users pass.
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ArchiveUnreachable(
                self._location.shown, f"its mirror {self.folder} cannot be written ({error.strerror})"
            ) from error
        try:
            fcntl.flock(lock, kind)
            yield
        finally:
            os.close(lock)

    def _is_made(self) -> bool:
        """True if the last step of making the mirror is done."""
        try:
            return "pruneExpire" in (self.folder / "config").read_text(encoding="utf-8")
        except FileNotFoundError:
            return False

    def _remove_stale_locks(self) -> None:
        """Remove the lock files of a killed git, which would stop every later git. A git that runs
        here holds none longer than the timeout.
        """
        oldest = time.time() - self._timeout
        for lock in [*self.folder.glob("*.lock"), *(self.folder / "refs").rglob("*.lock")]:
            with suppress(FileNotFoundError):
                if lock.name != _LOCK and lock.stat().st_mtime < oldest:
                    lock.unlink()

    def _store_credentials(self) -> None:
        """Give git the password in a file of the owner, never in an argument. git removes a
        password that was refused.
        """
        path = self.folder / "arkqueue-credentials"
        parts = urlsplit(self._location.url)
        if not self._location.password or parts.scheme not in {"http", "https"}:
            path.unlink(missing_ok=True)
            return
        user = f"{quote(self._location.username or '', safe='')}:{quote(self._location.password, safe='')}"
        host = parts.netloc.rpartition("@")[2]
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(urlunsplit((parts.scheme, f"{user}@{host}", "", "", "")) + "\n")


def clone_for_task(
    source: str,
    origin_url: str,
    revision: str,
    branch: str,
    target: Path,
    *,
    author: str,
    origin: Origin | None,
    timeout: float,
) -> None:
    """Make a clone whose branch stands at the revision and pushes to the branch of that name at
    ``origin_url``.

    It shares nothing with ``source`` by hard links: the task owns the clone and could write through
    them.
    """
    thing = str(target)
    where = ("-C", str(target))
    try:
        run_git(thing, "clone", "--quiet", "--no-hardlinks", "--no-checkout", "--template=", "--origin", "origin", "--",
                source, str(target), timeout=timeout)  # fmt: skip
        run_git(thing, *where, "checkout", "--quiet", "-B", branch, revision, timeout=timeout)
        name, email = split_author(author)
        settings = {
            "remote.origin.url": origin_url,
            f"branch.{branch}.remote": "origin",
            f"branch.{branch}.merge": _HEADS + branch,
            "user.name": name,
            "user.email": email,
            # Overrides the user's own setting. git resolves the path from the top of the working
            # tree.
            "core.hooksPath": ".git/hooks",
        }
        for key, value in settings.items():
            run_git(thing, *where, "config", key, value, timeout=timeout)
        if origin:
            install_git_hooks(target / ".git" / "hooks", origin)
    except (ArchiveError, OSError) as error:
        fault, remedy = (error.fault, error.remedy) if isinstance(error, ArchiveError) else (str(error), "")
        raise WorkspaceError(thing, f"no working copy can be made there: {fault}", remedy) from error
