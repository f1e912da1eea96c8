"""``arkqueue demo``: the example of the design on a new archive, before your eyes.

All parts are real, as users have them: a server in a new home folder, a repository with the
installed hook, commits that run the hook, and the API that other commands use. The home folder
stays, so that the user can look around in it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from arkqueue.cli import trial
from arkqueue.cli.output import bold, dim, moment, say
from arkqueue.errors import ArkqueueError

if TYPE_CHECKING:
    from arkqueue.cli.client import Client

ARCHIVE = "My-Project"
WORKFLOW = """\
- name: indexing
  depends:
    - PREV
  command: |
    sleep 1; find . -name '*.tex' | sort > index.txt
    echo "indexed $(wc -l < index.txt) documents at revision $ARKQUEUE_NUMBER"

- name: build-PDF
  depends:
    - indexing
  cancels:
    - PREV
  command: |
    for page in $(seq $(wc -l < paper.tex)); do echo "page $page of revision $ARKQUEUE_NUMBER"; sleep 0.7; done
"""


class Repository(Protocol):
    """A new repository for the commits of the demonstration."""

    path: Path

    def commit(self, files: Mapping[str, str], message: str) -> None: ...


@click.command()
@click.option("--git", "is_git", is_flag=True, help="With a Git archive instead of a Subversion one.")
@click.option("--plain", is_flag=True, help="One line for each change instead of a live view.")
def demo(is_git: bool, plain: bool) -> None:
    """Show arkqueue at work, on a new archive, before your eyes.

    Revision 2 brings two tasks, a quick index and a slow PDF. Revision 3 comes while the PDF of
    revision 2 is being built: as soon as its index is up to date, the old PDF is superseded,
    stopped, and built anew.
    """
    trial.end_with_the_terminal()
    home = Path(tempfile.mkdtemp(prefix="arkqueue-demo-"))
    # Text for copying has its own line: a narrow terminal breaks other lines.
    say(f"A new server starts, with a PostgreSQL of its own, in\n  {home}")
    with trial.own_server(home) as client:
        repository = _git(home) if is_git else _subversion(home)
        repository.commit({"paper.tex": "first thoughts\n"}, "Begin a paper")
        _set_up(client, repository, is_git)
        say(f"Commit 2 brings the workflow file {bold('_workflows/publish.yaml')}:\n")
        say(WORKFLOW)
        # The paper is too long to be ready before it is superseded, however slow the machine is.
        repository.commit(
            {"_workflows/publish.yaml": WORKFLOW, "paper.tex": "second thoughts\n" * 200}, "Add a workflow"
        )

        def commit_again() -> None:
            repository.commit({"paper.tex": "third thoughts\n" * 4, "appendix.tex": "more\n"}, "Think again")

        _watch(client, commit_again, plain)
        _look_back(home)
        if trial.is_at_a_terminal():
            _go_on(home)
            trial.serve_until_interrupted(client)
            return
    _go_on(home)


def _set_up(client: Client, repository: Repository, is_git: bool) -> None:
    """Register the archive and install the hook, as its administrator would."""
    from arkqueue import hooks

    client.post("/archives", {"name": ARCHIVE, "url": str(repository.path), "process": True})
    token = client.post("/tokens", {"name": "the hook of the demo", "scope": "hook"})["token"]
    installed = hooks.install(repository.path, server=client.url, token=token)
    kind = "Git" if is_git else "Subversion"
    say(
        f"{kind} archive {bold(ARCHIVE)} is watched from revision 1 on; {', '.join(p.name for p in installed.hooks)} installed."
    )
    for note in installed.notes:
        say(dim(note))
    if installed.client is None:
        say(dim("Without a client the hook cannot tell the server: it will look by itself, once a minute."))


def _watch(client: Client, commit_again: Callable[[], None], plain: bool) -> None:
    """Show the changes of the tasks, and commit once more when the first PDF is being built."""
    states: dict[str, str] = {}
    is_committed = False
    deadline = time.monotonic() + trial.PATIENCE
    with _display(plain) as show:
        while True:
            runs = client.get("/runs", archive=ARCHIVE, limit=3, tasks="true")["runs"]
            tasks = {
                f"{t['rev']}:{t['name']}": t for run in reversed(runs) for t in run["tasks"] if t["kind"] == "ordinary"
            }
            now = {name: task["state"] for name, task in tasks.items()}
            if now != states:
                states = now
                show(tasks)
            if not is_committed and states.get("2:build-PDF") == "running":
                commit_again()
                is_committed = True
            if "3:build-PDF" in states and all(
                s in ("completed", "canceled", "failed", "skipped") for s in states.values()
            ):
                break
            if time.monotonic() > deadline:
                raise ArkqueueError("the demo", "came to no end", "Please tell us, with the server's log.")
            time.sleep(0.05)
    if states["2:build-PDF"] != "canceled" or states["3:build-PDF"] != "completed":
        raise ArkqueueError(
            "the demo", f"ended otherwise than it should: {states}", "Please tell us, with the server's log."
        )


@contextmanager
def _display(plain: bool) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """A live table on a terminal; elsewhere, or with ``plain``, a line for each change."""
    if plain or not sys.stdout.isatty():
        seen: dict[str, str] = {}

        def show_lines(tasks: Mapping[str, Any]) -> None:
            changed = {name: task for name, task in tasks.items() if seen.get(name) != task["state"]}
            for name, task in sorted(changed.items(), key=lambda item: _since(item[1])):
                seen[name] = task["state"]
                say(f"  {name:12} {_described(task)}")

        yield show_lines
        return
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    from arkqueue.cli.output import COLOURS

    with Live(refresh_per_second=12) as live:

        def show_table(tasks: Mapping[str, Any]) -> None:
            table = Table("task", "state", box=None, padding=(0, 2))
            for name, task in tasks.items():
                table.add_row(name, Text(_described(task), COLOURS[task["state"]]))
            live.update(table)

        yield show_table


def _since(task: Mapping[str, Any]) -> tuple[bool, datetime]:
    """The time at which a task came to its state, for sorting; tasks that have not begun come last.
    One query may see two changes.
    """
    since = moment(task["settled_at"] or task["started_at"])
    return since is None, since or datetime.max.replace(tzinfo=UTC)


def _described(task: Mapping[str, Any]) -> str:
    """The state in a few words: whether the task is being stopped, and which task superseded it."""
    if task["stop"] and task["state"] == "running":
        return "running, asked to stop"
    return f"{task['state']}{': ' + task['why'] if task['why'] else ''}"


def _look_back(home: Path) -> None:
    """The history, the graph of both revisions, and one log, as the commands show them."""
    from arkqueue.cli import arkqueue

    for title, words in (
        ("The history", ["runs", ARCHIVE]),
        ("The graph of revisions 2 and 3", ["graph", f"{ARCHIVE}@2", f"{ARCHIVE}@3"]),
        ("The log of one task", ["logs", f"{ARCHIVE}@3/build-PDF"]),
    ):
        say(f"\n{bold(title)}   {dim('arkqueue ' + ' '.join(words))}\n")
        arkqueue.main(["--home", str(home), *words], standalone_mode=False)


def _go_on(home: Path) -> None:
    program = os.path.relpath(sys.argv[0]) if sys.argv[0].endswith("/arkqueue") else "arkqueue"
    say(f"\n{bold('To go on')}\n\n  export ARKQUEUE_HOME={home}")
    for words, meaning in (
        ("serve", "start this server again"),
        ("watch", "watch runs as they go"),
        (f"show {ARCHIVE}@2/build-PDF", "one task: what happened to it, and why"),
        (f"explain {ARCHIVE}@2/build-PDF", "why it is not running"),
        (f"graph {ARCHIVE}@3 --format mermaid", "the graph for a web page"),
    ):
        say(f"\n  {dim('# ' + meaning)}\n  {program} {words}")
    say(f"\nEverything is in this folder; remove it when you have seen enough:\n  {home}")


# Repositories


class _Subversion:
    """A Subversion repository; commits go through libsvn, which fires its hooks."""

    def __init__(self, path: Path) -> None:
        from subvertpy import repos

        self.path = path
        repos.create(str(path))
        self._known: set[str] = set()

    def commit(self, files: Mapping[str, str], message: str) -> None:
        import io

        from subvertpy import delta

        from arkqueue.repository.subversion.library import ra

        connection = ra.RemoteAccess(self.path.as_uri(), auth=ra.Auth([ra.get_username_provider()]))
        editor = connection.get_commit_editor({"svn:log": message})
        root = editor.open_root()
        for name, text in sorted(files.items()):
            folder = name.rpartition("/")[0]
            parent = root.add_directory(folder) if folder else root
            file = parent.open_file(name) if name in self._known else parent.add_file(name)
            delta.send_stream(io.BytesIO(text.encode()), file.apply_textdelta())
            file.close()
            if folder:
                parent.close()
            self._known.add(name)
        root.close()
        editor.close()


class _Git:
    """A bare Git repository; commits are made in a clone and pushed, which fires its hooks."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._clone = path.with_name("clone")
        self._run("init", "--quiet", "--bare", "--initial-branch=main", str(path), cwd=path.parent)
        self._run("init", "--quiet", "--initial-branch=main", str(self._clone), cwd=path.parent)
        self._run("remote", "add", "origin", str(path))

    def commit(self, files: Mapping[str, str], message: str) -> None:
        for name, text in files.items():
            file = self._clone / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, "utf-8")
        self._run("add", "--all")
        self._run("-c", "user.name=Ann", "-c", "user.email=ann@example.org", "commit", "--quiet", "-m", message)
        self._run("push", "--quiet", "origin", "main")

    def _run(self, *words: str, cwd: Path | None = None) -> None:
        done = subprocess.run(["git", *words], cwd=cwd or self._clone, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ArkqueueError(f"git {words[0]}", f"failed: {done.stderr.strip()}", "The demo needs a working git.")


def _subversion(home: Path) -> Repository:
    return _Subversion(home / "repository")


def _git(home: Path) -> Repository:
    from shutil import which

    if not which("git"):
        raise ArkqueueError("git", "is not installed", "Install it, or see the demo with Subversion: arkqueue demo")
    return _Git(home / "repository.git")
