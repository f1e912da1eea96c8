"""Real Subversion and Git repositories for tests, and servers for them on a free loopback port.

    repository = a_subversion_repository(tmp_path)
    repository.commit({"_workflows/a.yaml": "- name: a\n"}, message="first")      # "1"
    repository.move("_workflows", "elsewhere")

    repository = a_git_repository(tmp_path)     # bare; a clone beside it commits and pushes
    repository.commit({"_workflows/a.yaml": "- name: a\n"})                       # the full SHA
    repository.switch("topic"); repository.commit({"x": "1"}); repository.push(force=True)

Commits go through the real programs, so installed hooks run. A commit maps paths to texts, bytes,
None (deleted) or `Link`.
"""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from arkqueue.model import FileChange
from arkqueue.repository import Identity, notice_key, notice_keys

ADA = "Ada <ada@example.org>"
_CLEAN = {
    "LC_ALL": "C.UTF-8",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": str(Path(__file__).with_name("gitconfig")),
    "GIT_TERMINAL_PROMPT": "0",
}


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link and its target."""

    to: str


Content = str | bytes | Link | None


def said(changes: Iterable[FileChange]) -> str:
    """The change of each file, as ``A new, M changed, D gone``."""
    return ", ".join(f"{change.status[0].upper()} {change.path}" for change in changes)


def run(*command: str | Path, cwd: Path | None = None, check: bool = True, **env: str) -> str:
    """The output of a program. If the program fails, the exception contains its messages."""
    # otherwise they save the author of a test in the real home folder
    if command[0] in ("svn", "svnmucc"):
        command = (command[0], "--no-auth-cache", *command[1:])
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env={**os.environ, **_CLEAN, **env}, capture_output=True, text=True
    )
    assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def reaches(given: str, identity: Identity) -> bool:
    """Whether a notice with this repository name reaches an archive, by the rules of the API."""
    return notice_key(given) in notice_keys(identity)


# Subversion


def a_subversion_repository(folder: Path, name: str = "svn") -> SubversionRepository:
    path = folder / name
    run("svnadmin", "create", path)
    return SubversionRepository(path)


@dataclass
class SubversionRepository:
    path: Path
    _numbers: Iterator[int] = field(default_factory=itertools.count, repr=False)

    @property
    def url(self) -> str:
        return f"file://{self.path}"

    @property
    def uuid(self) -> str:
        return run("svnlook", "uuid", self.path).strip()

    @property
    def head(self) -> str:
        return run("svnlook", "youngest", self.path).strip()

    def commit(self, changes: Mapping[str, Content], *, message: str = "", author: str = "ada") -> str:
        """Commits any number of files in one revision, and makes their folders. Returns the
        revision's number.
        """
        is_deep = any("/" in path for path, content in changes.items() if content is not None)
        there = set(run("svnlook", "tree", "--full-paths", self.path).split("\n") if is_deep else ())
        actions: list[str | Path] = []
        for path, content in changes.items():
            if content is None:
                actions += ["rm", path]
                continue
            parts = path.split("/")[:-1]
            for folder in ("/".join(parts[: depth + 1]) for depth in range(len(parts))):
                if folder + "/" not in there:
                    actions += ["mkdir", folder]
                    there.add(folder + "/")
            actions += ["put", self.a_file(content), path]
            if isinstance(content, Link):
                actions += ["propset", "svn:special", "*", path]
        return self.change(*actions, message=message, author=author)

    def change(self, *actions: str | Path, message: str = "", author: str = "ada") -> str:
        """Commits svnmucc actions as one revision: ``change("cp", "HEAD", "trunk", "branch", "rm",
        "old")``.
        """
        said = run("svnmucc", "-U", self.url, "--username", author, "-m", message, "--", *actions)
        return said.split()[0].removeprefix("r")

    def mkdir(self, path: str) -> str:
        return self.change("mkdir", path)

    def move(self, old: str, new: str) -> str:
        return self.change("mv", old, new)

    def copy(self, old: str, new: str, revision: str = "HEAD") -> str:
        return self.change("cp", revision, old, new)

    def delete(self, path: str) -> str:
        return self.change("rm", path)

    def propset(self, name: str, value: str, path: str) -> str:
        return self.change("propset", name, value, path)

    def empty(self, *, message: str = "empty") -> str:
        """Commits a revision that changes nothing."""
        # The first library that opens a repository in a process decides about libsvn's cache. So
        # this uses arkqueue's, not subvertpy's.
        from arkqueue.repository.subversion.library import ra

        session = ra.RemoteAccess(self.url, auth=ra.Auth([ra.get_username_provider()]))
        editor = session.get_commit_editor({"svn:log": message})
        editor.open_root().close()
        editor.close()
        return self.head

    def check_out(self, target: Path, folder: str = "") -> Path:
        run("svn", "checkout", "-q", f"{self.url}/{folder}".rstrip("/"), target)
        return target

    @contextmanager
    def served(
        self, *, users: Mapping[str, str] | None = None, access: str = "", host: str = "127.0.0.1"
    ) -> Iterator[Server]:
        """Serves the repository with svnserve. ``users``: names and passwords, without which nobody
        gets in. ``access``: an authz file. ``host``: a local address to listen on.
        """
        conf = self.path / "conf"
        lines = ["[general]", "anon-access = " + ("none" if users else "write"), "auth-access = write"]
        if users:
            (conf / "passwd").write_text("[users]\n" + "".join(f"{name} = {word}\n" for name, word in users.items()))
            lines.append("password-db = passwd")
        if access:
            (conf / "authz").write_text(access)
            lines.append("authz-db = authz")
        (conf / "svnserve.conf").write_text("\n".join(lines) + "\n")
        with a_server(["svnserve", "-i", "-r", str(self.path.parent)], host) as server:
            server.url = f"svn://{host}:{server.port}/{self.path.name}"
            yield server

    def a_file(self, content: str | bytes | Link) -> Path:
        text = f"link {content.to}" if isinstance(content, Link) else content
        folder = self.path.with_name(self.path.name + "-texts")
        folder.mkdir(exist_ok=True)
        file = folder / str(next(self._numbers))
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        return file


# Git


def a_git_repository(folder: Path, name: str = "git", *, main: str = "main") -> GitRepository:
    """A bare repository and, beside it, the clone that commits to it."""
    path = folder / f"{name}.git"
    run("git", "init", "-q", "--bare", "-b", main, path)
    work = folder / f"{name}-work"
    run("git", "init", "-q", "-b", main, work)
    url = str(path).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    with (work / ".git" / "config").open("a") as config:
        config.write(f'[remote "origin"]\n\turl = "{url}"\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n')
    return GitRepository(path, work, main)


@dataclass
class GitRepository:
    path: Path
    work: Path
    main: str

    @property
    def url(self) -> str:
        return f"file://{self.path}"

    @property
    def branch(self) -> str:
        return self.git("symbolic-ref", "--short", "HEAD").strip()

    def git(self, *arguments: str, **env: str) -> str:
        """Runs git in the clone that commits."""
        who = {"GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "ada@example.org"}
        who |= {"GIT_COMMITTER_NAME": "Ada", "GIT_COMMITTER_EMAIL": "ada@example.org"}
        return run("git", *arguments, cwd=self.work, **{**who, **env})

    def commit(
        self, changes: Mapping[str, Content] | None = None, *, message: str = "", author: str = ADA, at: int | None = None,
        push: bool = True,
    ) -> str:  # fmt: skip
        """Commits on the current branch, and pushes. Without changes the commit is empty. ``at``:
        the commit's time in seconds since 1970.
        """
        for path, content in (changes or {}).items():
            file = self.work / path
            file.parent.mkdir(parents=True, exist_ok=True)
            if file.is_symlink() or file.exists():
                file.unlink()
            if isinstance(content, Link):
                file.symlink_to(content.to)
            elif content is not None:
                file.write_bytes(content.encode() if isinstance(content, str) else content)
        self.git("add", "--all")
        dates = {"GIT_AUTHOR_DATE": f"@{at} +0000", "GIT_COMMITTER_DATE": f"@{at} +0000"} if at is not None else {}
        said = ("commit", "-q", "--allow-empty", "--allow-empty-message", "--author", author, "-m", message)
        self.git(*said, **dates)
        if push:
            self.push()
        return self.id()

    def id(self, revision: str = "HEAD") -> str:
        if revision == "HEAD":
            # Reading the files of HEAD saves a git process after each commit.
            with suppress(OSError):
                head = (self.work / ".git" / "HEAD").read_text().strip()
                return (self.work / ".git" / head.removeprefix("ref: ")).read_text().strip()
        return self.git("rev-parse", revision).strip()

    def switch(self, branch: str, start: str | None = None) -> None:
        """Switches to a branch. A new branch starts at ``start``, or at the current commit."""
        known = self.git("branch", "--list", branch).strip()
        self.git("switch", "-q", *([branch] if known else ["-c", branch, *([start] if start else [])]))

    def merge(self, branch: str, *, push: bool = True) -> str:
        """Makes a merge commit, even if a fast-forward is possible."""
        self.git("merge", "-q", "--no-ff", "-m", f"Merge {branch}", branch)
        if push:
            self.push()
        return self.id()

    def move(self, old: str, new: str) -> str:
        self.git("mv", old, new)
        return self.commit({}, message=f"Move {old} to {new}")

    def delete(self, path: str) -> str:
        self.git("rm", "-q", "-r", path)
        return self.commit({}, message=f"Delete {path}")

    def reset(self, revision: str) -> None:
        """Moves the current branch to a revision. ``push(force=True)`` pushes the change."""
        self.git("reset", "-q", "--hard", revision)

    def push(self, *refs: str, force: bool = False) -> None:
        self.git("push", "-q", *(["--force"] if force else []), "origin", *(refs or ["HEAD"]))

    def delete_branch(self, branch: str) -> None:
        self.git("push", "-q", "origin", "--delete", branch)

    @contextmanager
    def served(self, *, host: str = "127.0.0.1") -> Iterator[Server]:
        """Serves the repository with git's own server, for reading and pushing. ``host``: a local
        address to listen on.
        """
        command = [
            "git",
            "daemon",
            "--inetd",
            "--export-all",
            "--enable=receive-pack",
            f"--base-path={self.path.parent}",
        ]
        with a_server(command, host) as server:
            server.url = f"git://{host}:{server.port}/{self.path.name}"
            yield server


# Servers


class Server:
    """Starts a process for each connection, like inetd. The server is reachable as soon as it
    exists.
    """

    def __init__(self, command: Sequence[str], host: str) -> None:
        self.url = ""
        self._command = command
        self._sessions: list[tuple[subprocess.Popen[bytes], socket.socket]] = []
        self._listener = socket.create_server((host, 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            process = subprocess.Popen(
                self._command,
                stdin=connection,
                stdout=connection,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **_CLEAN},
            )
            self._sessions.append((process, connection))

    def drop_connections(self) -> None:
        """Ends every session, like a restart. The server then accepts new sessions."""
        while self._sessions:
            process, connection = self._sessions.pop()
            process.kill()
            process.wait()
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def close(self) -> None:
        """Stops the server and ends its sessions."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        self.drop_connections()


@contextmanager
def a_server(command: Sequence[str], host: str = "127.0.0.1") -> Iterator[Server]:
    server = Server(command, host)
    try:
        yield server
    finally:
        server.close()


def commit_with_a_long_message(repository: GitRepository, length: int) -> str:
    """Puts a commit whose message has ``length`` bytes on the main branch. Compressed, it takes a
    few hundred kilobytes on the disk.
    """
    git = ("git", "--git-dir", str(repository.path), "-c", "core.looseCompression=1")
    head = repository.id()
    before = repository.git("cat-file", "commit", head).partition("\n\n")[0]
    kept = [line for line in before.split("\n") if not line.startswith("parent ")]
    commit = "\n".join([kept[0], f"parent {head}", *kept[1:], "", "x" * length])
    made = subprocess.run(
        [*git, "hash-object", "-t", "commit", "-w", "--stdin"], input=commit.encode(), capture_output=True, check=True
    )
    id = made.stdout.decode().strip()
    subprocess.run([*git, "update-ref", f"refs/heads/{repository.branch}", id], check=True)
    return id
