"""The parts that all applications of this folder use: a server of their own, repositories to commit to, and the command line.

    def run(arguments: argparse.Namespace) -> None:
        need("svn", "svnadmin")
        with example("publish", arguments) as arkqueue:
            papers = arkqueue.repository("papers", is_git=False)
            (papers.work / "_workflows").mkdir()
            ...
            papers.commit("Begin")
            arkqueue.add("papers", papers)
            papers.commit("Change something")
            arkqueue.settled("papers@2")
            arkqueue("show", "papers@2")                    # prints the command and what it says
            arkqueue.stay(("watch", "watch runs as they go"))

    if __name__ == "__main__":
        main(run, __doc__)

``make example-NAME`` runs ``workflows-examples/NAME/run.py``; ``ARGS=`` gives it arguments. Everything is real: the server is ``arkqueue serve`` with the embedded
PostgreSQL, commits go through ``svn`` and ``git``, and the hook that ``arkqueue hook install`` leaves tells the server of them.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from arkqueue.cli import trial
from arkqueue.cli.client import Client
from arkqueue.cli.output import bold, dim, say
from arkqueue.errors import ArkqueueError

SETTLED = ("completed", "failed", "canceled", "superseded", "deleted")
"""The states of a run that goes on no more by itself."""
TRIES = 10
"""How often a push is tried that others may have been quicker than."""
COMMITTER = {
    "GIT_AUTHOR_NAME": "Ann",
    "GIT_AUTHOR_EMAIL": "ann@example.org",
    "GIT_COMMITTER_NAME": "Ann",
    "GIT_COMMITTER_EMAIL": "ann@example.org",
}


def main(run: Callable[[argparse.Namespace], None], about: str | None, *options: Sequence[Any]) -> None:
    """Run an example from the command line; ``options``: the arguments of further ``add_argument`` calls, keyword arguments as a dict at the end."""
    parser = argparse.ArgumentParser(description=(about or "").partition("\n\n")[0])
    parser.add_argument("--folder", type=Path, help="a new or empty folder for everything that the example makes")
    parser.add_argument("--git", action="store_true", help="with a Git archive instead of a Subversion one")
    for option in options:
        names = [word for word in option if isinstance(word, str)]
        keywords: dict[str, Any] = next((word for word in option if isinstance(word, dict)), {})
        parser.add_argument(*names, **keywords)
    trial.end_with_the_terminal()
    try:
        run(parser.parse_args())
    except ArkqueueError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)


def need(*programs: str) -> None:
    """End with a message that names each program that is not installed."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        thing, fault = (missing[0], "is") if len(missing) == 1 else (" and ".join(missing), "are")
        raise ArkqueueError(
            thing, f"{fault} not installed", "The example needs that: install it with your system's packages."
        )


def need_repositories(*, is_git: bool) -> None:
    """End with a message where the programs that make such repositories are not installed."""
    need(*(GitRepository if is_git else SubversionRepository).programs)


@contextmanager
def example(
    name: str, arguments: argparse.Namespace, *, configuration: str | Callable[[Path], str] = "", slots: int = 4
) -> Iterator[Example]:
    """An installation in a folder that stays behind, while its server runs.

    ``configuration`` is the text of its ``arkqueue.toml``, or a function that makes it for the folder.
    """
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix=f"arkqueue-{name}-"))
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise ArkqueueError(f"--folder {folder}", "is not empty", "Name a new folder.")
    folder = folder.resolve()
    home = folder / "home"
    home.mkdir()
    # The embedded PostgreSQL of root runs as another account, which must be able to pass.
    for one in (folder, home):
        one.chmod(0o711)
    (home / "arkqueue.toml").write_text(configuration(folder) if callable(configuration) else configuration, "utf-8")
    say(f"A new server starts, with a PostgreSQL of its own, in\n  {folder}")
    with trial.own_server(home, slots=slots) as client:
        yield Example(folder, client)


@dataclass
class Example:
    """A server that runs. Called, it is the command line: ``arkqueue("show", "papers@2")``.

    ``folder`` holds everything: the server's home folder, the repositories, and what else the example puts there.
    """

    folder: Path
    client: Client

    @property
    def home(self) -> Path:
        """The server's home folder. No mount can be granted in it."""
        return self.folder / "home"

    def __call__(self, *words: str | Path, shown: bool = True, code: int | None = 0, stdin: str | None = None) -> str:
        """Run a command of arkqueue, and print it with what it says; what it says on stdout. ``code`` is how it must end, None for anyhow."""
        typed = ["arkqueue", *map(str, words)]
        if shown:
            say(f"\n{dim('$')} {bold(shlex.join(typed))}")
        done = subprocess.run(
            [sys.executable, "-m", "arkqueue", "--home", str(self.home), *typed[1:]],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            env={key: value for key, value in os.environ.items() if not key.startswith("ARKQUEUE_")},
            check=False,
        )
        if shown:
            say((done.stderr + done.stdout).rstrip("\n"))
        if code not in (None, done.returncode):
            raise ArkqueueError(
                shlex.join(typed), f"ended with {done.returncode}: {(done.stderr or done.stdout).strip()}"
            )
        return done.stdout

    def repository(self, name: str, *, is_git: bool = False) -> Repository:
        """A new repository in the folder, and beside it the folder ``NAME-work`` to commit from."""
        kind = GitRepository if is_git else SubversionRepository
        need(*kind.programs)
        return kind(self.folder / f"{name}.{'git' if is_git else 'svn'}", self.folder / f"{name}-work")

    def add(self, name: str, repository: Repository, **settings: Any) -> None:
        """Register a repository as an archive, and install its hook. Its tasks may run as processes, unless ``settings`` of the API say otherwise."""
        from arkqueue import hooks

        self.client.post("/archives", {"name": name, "url": str(repository.path), "process": True, **settings})
        token = self.client.post("/tokens", {"name": f"the hook of {name}", "scope": "hook"})["token"]
        hooks.install(repository.path, server=self.client.url, token=token)
        say(f"The {repository.kind} archive {bold(name)} is watched; to commit to it, there is\n  {repository.work}")

    def run(self, name: str) -> dict[str, Any] | None:
        """A run such as ``papers@2`` as the API shows it, with its tasks; None until it is planned."""
        archive = name.partition("@")[0]
        runs = self.client.get("/runs", archive=archive, limit=500, tasks="true")["runs"]
        return next((run for run in runs if run["full_name"] == name), None)

    def settled(self, name: str, patience: float = 600.0) -> dict[str, Any]:
        """Wait until a run has ended, its report too; the run."""

        def ended() -> dict[str, Any] | None:
            run = self.run(name)
            return run if run and run["state"] in SETTLED and run["report"] in ("completed", "failed", None) else None

        return trial.wait(ended, f"the end of {name}", patience)

    def stay(self, *commands: tuple[str, str]) -> None:
        """Say where everything is, and which commands show more of it: each with what it is for. In a terminal, the server goes on until Ctrl-C."""
        program = os.path.relpath(Path(sys.executable).with_name("arkqueue"))
        # At the same address, which the hooks know, and no other server has.
        serve = f"serve --listen {urlsplit(self.client.url).netloc}"
        say(f"\n{bold('To go on')}\n\n  export ARKQUEUE_HOME={self.home}")
        for words, meaning in ((serve, "start this server again, once it has ended"), *commands):
            say(f"\n  {dim('# ' + meaning)}\n  {program} {words}")
        say(f"\nEverything is in this folder; remove it when you have seen enough:\n  {self.folder}")
        if trial.is_at_a_terminal():
            trial.serve_until_interrupted(self.client)


class Repository:
    """A repository at ``path`` and the folder ``work``, whose files a commit takes as they are."""

    kind: str
    programs: tuple[str, ...]

    def __init__(self, path: Path, work: Path) -> None:
        self.path, self.work = path, work
        self._create()

    def _create(self) -> None:
        raise NotImplementedError

    def commit(self, message: str) -> str:
        """Commit all that differs in the folder ``work``, on top of what others have committed; the id of the revision."""
        raise NotImplementedError

    def update(self) -> None:
        """Bring the folder ``work`` to the newest revision."""
        raise NotImplementedError

    def _run(self, *words: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            words, cwd=cwd or self.work, capture_output=True, text=True, env={**os.environ, **COMMITTER}, check=False
        )
        if done.returncode:
            raise ArkqueueError(" ".join(words[:2]), f"failed: {done.stderr.strip()}")
        return done.stdout


class SubversionRepository(Repository):
    """Commits are made in a working copy."""

    kind, programs = "Subversion", ("svn", "svnadmin")

    def _create(self) -> None:
        self._run("svnadmin", "create", str(self.path), cwd=self.path.parent)
        self._run("svn", "checkout", "--quiet", self.path.as_uri(), str(self.work), cwd=self.path.parent)

    def commit(self, message: str) -> str:
        self._run("svn", "add", "--quiet", "--force", "--no-ignore", ".")
        for line in self._run("svn", "status").splitlines():
            if line.startswith("!"):
                self._run("svn", "remove", "--quiet", "--force", f"{line[8:]}@")
        self.update()
        self._run("svn", "commit", "--quiet", "--username", "ann", "-m", message)
        self.update()
        return self._run("svn", "info", "--show-item", "revision").strip()

    def update(self) -> None:
        self._run("svn", "update", "--quiet", "--non-interactive")


class GitRepository(Repository):
    """Commits are made in a clone, and pushed to the branch ``main``."""

    kind, programs = "Git", ("git",)

    def _create(self) -> None:
        for options, path in ((["--bare"], self.path), ([], self.work)):
            self._run("git", "init", "--quiet", *options, "--initial-branch=main", str(path), cwd=self.path.parent)
        self._run("git", "remote", "add", "origin", str(self.path))

    def commit(self, message: str) -> str:
        self._run("git", "add", "--all", "--force")
        self._run("git", "commit", "--quiet", "--allow-empty", "-m", message)
        for left in reversed(range(TRIES)):
            if self._run("git", "ls-remote", "--heads", "origin", "main"):
                self.update()
            try:
                self._run("git", "push", "--quiet", "origin", "main")
                break
            except ArkqueueError:
                # A task may have pushed at the same moment.
                if not left:
                    raise
        return self._run("git", "rev-parse", "HEAD").strip()

    def update(self) -> None:
        self._run("git", "pull", "--quiet", "--rebase", "origin", "main")
