"""arkqueue as a person installs it: separate processes for the roles, the command line, and
repositories with the installed hooks.

    arkqueue = installations()                            home folders, a database, a configuration
    server = arkqueue.start()                             python -m arkqueue serve
    papers = archives(arkqueue, "git")                    a registered repository with its hook
    papers.commit(tasks({"index": {"command": "true"}}))  2
    papers.wait("index@2")
    arkqueue("show", f"{papers.name}@2").out

Nothing here waits for a fixed time: ``eventually`` polls until a condition holds.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

import arkqueue
from arkqueue.cli.client import Client, connect
from arkqueue.db.embedded.server import Embedded
from arkqueue.states import SETTLED
from tests.loaded import Forked, fork
from tests.ports import a_port
from tests.program import Done, run_cli
from tests.repositories import Content, GitRepository, SubversionRepository
from tests.soundness import assert_sound, destroy_sound
from tests.waiting import PATIENCE, eventually, when_changed

ROOT = Path(arkqueue.__file__).parents[1]
TRACEBACK = "Traceback (most recent call last)"
ROLES = {"serve", "web", "manager", "worker"}
IDLE = {"poll": "3s"}
"""The settings of a server that mostly waits for its next test. Each worker has up to four of them.
On a busy machine, a server takes 5 % of a core with a poll of 200 ms, 1.5 % with 1 s, and
0.8 % with 5 s.
"""


def processes_of(marker: str) -> list[str]:
    """The processes with a given text in their environment, each as its id and command line."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (folder / "environ").read_bytes():
                found.append(f"{folder.name} {(folder / 'cmdline').read_bytes().replace(bytes(1), b' ').decode()}")
        except OSError:
            continue
    return found


def environment(**more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ARKQUEUE_")}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "ARKQUEUE_MIN_FREE": "0", **more}


@dataclass
class Role:
    """The process of a role. Its output goes to a file."""

    process: subprocess.Popen[bytes] | Forked
    home: Path
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def said(self) -> str:
        return self.log.read_text("utf-8", "replace")

    def stop(self) -> int:
        """Stops the role with SIGTERM, like systemd. Returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)


class Installation:
    """Home folders below one folder, and one database. ``settings``: the configuration. A call runs
    the command line.

    Periodic scans are too rare to make up for a notice that a hook failed to send.
    """

    def __init__(self, folder: Path, database: str | None, **settings: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.database = database
        self.roles: list[Role] = []
        self.python = sys.executable
        """The interpreter of the roles that are not forked, for instance those of
        another account.
        """
        self.is_forked = True
        """Whether roles start with arkqueue imported, which saves a second each. Measurements turn
        this off.
        """
        self.account: dict[str, Any] = {}
        """Arguments for ``Popen`` that start the roles as another account."""
        self.before_readers = ""
        """Statements that the reader processes of forked roles run first, for instance to lower a
        limit.
        """
        self._settings = {"poll": "500ms", "sweep": "1h", "slots": 4, **settings}
        self._ports = ExitStack()
        self._listen = f"127.0.0.1:{self._ports.enter_context(a_port())}"
        self._served: Path | None = None
        self._connection: psycopg.Connection[dict[str, Any]] | None = None

    # Processes

    def start(self, role: str = "serve", *options: str, home: str = "home") -> Role:
        """Starts a role. Waits for a role with the API, whose address is always the same."""
        folder = self.home(home)
        words = [*options]
        if role in ("serve", "web"):
            words += ["--listen", self._listen]
            (folder / "url").unlink(missing_ok=True)
        log = self.folder / f"{home}.log"
        log.touch()
        process = self._process(["--home", str(folder), role, *words], log)
        started = Role(process, folder, log)
        self.roles.append(started)
        if role in ("serve", "web"):
            eventually(lambda: (folder / "url").exists() or process.poll() is not None)
            assert process.poll() is None, started.said
            self._served = folder
        return started

    def _process(self, words: list[str], log: Path) -> subprocess.Popen[bytes] | Forked:
        marked = environment(END_TO_END=str(self.folder))
        if self.is_forked and not self.account:
            program = f"import tests.loaded; tests.loaded.before_readers = {self.before_readers!r}; arkqueue.cli.main()"
            return fork(program, ["arkqueue", *words], out=log, err=log, environment=marked)
        with log.open("ab") as out:
            return subprocess.Popen(
                [self.python, "-m", "arkqueue", *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                **({"env": marked} | self.account),
            )

    def configure(self, **settings: Any) -> None:
        """Sets the configuration of all roles that start later."""
        self._settings |= settings

    def home(self, name: str = "home") -> Path:
        """A home folder with its configuration."""
        folder = self.folder / name
        folder.mkdir(mode=0o711, exist_ok=True)
        values = {**self._settings, **({"database": self.database} if self.database else {})}
        (folder / "arkqueue.toml").write_text("".join(f"{key} = {_toml(v)}\n" for key, v in values.items()))
        return folder

    def close(self) -> None:
        """Stops all roles. Checks that no process remains, and that no log contains a traceback. The
        embedded database is checked and removed.
        """
        # Only its user can start the embedded server of another user again.
        of_another_user = self.database is None and bool(self.account)
        if of_another_user:
            assert_sound(self.connection)
        for role in reversed(self.roles):
            if role.process.poll() is None:
                role.process.send_signal(signal.SIGCONT)
                role.stop()
        if self._connection is not None:
            self._connection.close()
        self._ports.close()
        eventually(lambda: not processes_of(str(self.folder)))
        if self.database is None and not of_another_user:
            destroy_sound(Embedded(self.folder / "home"))
        for log in {role.log for role in self.roles}:
            said = log.read_text("utf-8", "replace")
            assert TRACEBACK not in said, said
        self.roles.clear()

    # What a person does

    def __call__(self, *words: str | Path, code: int | None = 0) -> Done:
        """Runs the command line of the server's host. ``code``: the expected exit code; None
        accepts any. A role gets a process of its own.
        """
        done = (
            self._in_a_process(*words)
            if ROLES & {*words} and "--healthy" not in words
            else run_cli(*self._words(*words))
        )
        assert TRACEBACK not in done.out + done.err, done.err
        assert code in (None, done.code), f"{done}\n{self.roles[-1].said[-3000:] if self.roles else ''}"
        return done

    def _in_a_process(self, *words: str | Path) -> Done:
        out, err = (self.folder / f"{stream} of a command" for stream in ("out", "err"))
        for file in (out, err):
            file.write_bytes(b"")
        program = ["arkqueue", *self._words(*words)]
        code = fork("arkqueue.cli.main()", program, out=out, err=err, environment=environment()).wait()
        return Done(code, *(file.read_text("utf-8", "replace") for file in (out, err)), out.read_bytes())

    @contextmanager
    def begun(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """A command that runs while the test continues."""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(self._command(*words), text=True, env=environment(), **pipes) as process:
            try:
                yield process
            finally:
                process.kill()

    def _command(self, *words: str | Path) -> list[str]:
        return [sys.executable, "-m", "arkqueue", *self._words(*words)]

    def _words(self, *words: str | Path) -> list[str]:
        return ["--home", str(self._served or self.home()), *map(str, words)]

    @property
    def api(self) -> Client:
        return connect(str(self._served), None, None)

    # The content of the database

    def sql(self, text: str, *values: Any) -> list[dict[str, Any]]:
        """The rows of a statement that sees everything committed so far."""
        cursor = self.connection.execute(text.encode(), values)
        return cursor.fetchall() if cursor.description else []

    def changes(self, archive: str) -> list[dict[str, Any]]:
        """Values that differ after each task and attempt of an archive that has ended. This query
        takes a tenth of the time of the API's answer about a run.
        """
        return self.sql(
            "select count(*) as tasks, count(t.settled_at), max(t.settled_at), (select count(x.ended_at) from attempt x join task y on y.id = x.task_id where y.archive_id = a.id) as ended"
            " from task t join archive a on a.id = t.archive_id where a.name = %s group by a.id",
            archive,
        )

    @property
    def connection(self) -> psycopg.Connection[dict[str, Any]]:
        if self._connection is None or self._connection.closed or self._connection.broken:
            uri = self.database or self._embedded()
            self._connection = psycopg.connect(uri, autocommit=True, row_factory=dict_row, connect_timeout=10)
        return self._connection

    def _embedded(self) -> str:
        return Embedded(self.home()).uri


class Archive:
    """A registered archive with a real repository. Tasks are named ``index@2``, or in a later run
    ``index@2.2``.
    """

    def __init__(self, installation: Installation, name: str, repository: SubversionRepository | GitRepository) -> None:
        self.installation, self.name, self.repository = installation, name, repository
        self.number = 1

    @property
    def is_git(self) -> bool:
        return isinstance(self.repository, GitRepository)

    def commit(self, changes: Mapping[str, Content], **options: Any) -> int:
        """Commits (and pushes), so that the hook runs. Returns the number that the revision will
        have in the ledger.
        """
        self.repository.commit(changes, **options)
        self.number += 1
        return self.number

    def run(self, rev: int, run: int = 1) -> str:
        """The name of a run on the command line."""
        return f"{self.name}@{rev}" + (f".{run}" if run != 1 else "")

    def task(self, key: str) -> str:
        """The name of a task on the command line."""
        name, _, place = key.partition("@")
        return f"{self.name}@{place}/{name}"

    def shown(self, rev: int, run: int = 1) -> Any:
        """A run in the form of ``arkqueue show --json``."""
        return self.installation("show", self.run(rev, run), "--json").json

    def explained(self, key: str) -> str:
        return self.installation("explain", self.task(key)).out

    def log(self, key: str, *options: str) -> str:
        return self.installation("logs", self.task(key), *options).out

    # What happens

    def state(self, key: str) -> str:
        """The state of a task, or an empty text if the task does not exist yet."""
        rows = self._rows(key, "t.state")
        return str(rows[0]["state"]) if rows else ""

    def states(self, *revs: int) -> dict[str, str]:
        """The states of all tasks in the first runs of these revisions."""
        rows = self.installation.sql(
            "select t.name, t.number, t.state from task t join archive a on a.id = t.archive_id where a.name = %s"
            " and t.number = any(%s) and t.run = 1 and t.name not in ('COMMIT', 'REPORT') order by t.number, t.position",
            self.name,
            list(revs),
        )
        return {f"{row['name']}@{row['number']}": row["state"] for row in rows}

    def wait(self, key: str, state: str = "completed", patience: float = PATIENCE) -> None:
        """Waits until a task has a state. Fails if the task reaches another final state."""

        def has() -> bool:
            found = self.state(key)
            assert found == state or found not in SETTLED, f"{key} is {found}: {self.attempts(key)}"
            return found == state

        eventually(has, patience=patience)

    def wait_for_run(self, rev: int, state: str = "completed", run: int = 1) -> Any:
        """Waits until a run has ended in a state. Returns the run."""

        def ended() -> Any:
            found = self.installation.api.get("/runs", archive=self.name, limit=500, tasks="true")["runs"]
            chosen = next((r for r in found if r["full_name"] == self.run(rev, run)), None)
            ends = ("completed", "failed", "canceled", "superseded", "deleted")
            assert not chosen or chosen["state"] == state or chosen["state"] not in ends, chosen
            return chosen and chosen["state"] == state and chosen["report"] == "completed" and chosen

        return eventually(when_changed(ended, lambda: self.installation.changes(self.name)))

    def attempts(self, key: str) -> list[dict[str, Any]]:
        return self._rows(key, "x.*", " join attempt x on x.task_id = t.id", " order by x.number")

    def settled_at(self, key: str) -> Any:
        return self._rows(key, "t.settled_at")[0]["settled_at"]

    def ledger(self) -> list[int]:
        """The numbers of the revisions in the order of their planning."""
        rows = self.installation.sql(
            "select r.number from revision r join branch b on b.id = r.branch_id join archive a on a.id = b.archive_id"
            " where a.name = %s order by r.id",
            self.name,
        )
        return [row["number"] for row in rows]

    def _rows(self, key: str, what: str, join: str = "", tail: str = "") -> list[dict[str, Any]]:
        name, _, place = key.partition("@")
        number, _, run = place.partition(".")
        return self.installation.sql(
            f"select {what} from task t join archive a on a.id = t.archive_id{join}"
            " where a.name = %s and t.name = %s and t.number = %s and t.run = %s" + tail,
            self.name,
            name,
            int(number),
            int(run or 1),
        )


def tasks(definitions: Mapping[str, Mapping[str, Any]], file: str = "_workflows/tasks.json") -> dict[str, Content]:
    """A workflow file in the form of a change for ``commit``."""
    return {file: json.dumps([{"name": name, **fields} for name, fields in definitions.items()], indent=1)}


class Stage:
    """A folder in which tasks and their test communicate. A task announces its start, and ends when
    the test permits.

    A container that mounts the folder at another path gets this path in ``STAGE``.

    Each task records its actions at once, and holds a lock with its name while any of its processes
    lives. So the record of what ran, and of overlaps, does not depend on arkqueue's own state.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self.journal = folder / "journal"
        self.journal.touch()
        begin = (
            "me=$ARKQUEUE_TASK@$ARKQUEUE_NUMBER; test $ARKQUEUE_RUN = 1 || me=$me.$ARKQUEUE_RUN; "
            f"cd ${{STAGE:-{folder}}}; say() {{ echo $me $ARKQUEUE_ATTEMPT $1 $(date +%s%N) >> journal; }}; "
            "exec 9>> lock.$me; ! type flock > /dev/null 2>&1 || flock -n 9 || say OVERLAP; say begin; echo $$ > begun.$me.$ARKQUEUE_ATTEMPT; "
        )
        wait = "until [ -e go.$me ] || [ -e go ]; do say alive; sleep 0.05; done; "
        self.once = begin + "say end"
        """A command that ends by itself."""
        self.held = begin + wait + "say end"
        """A command that waits until the test lets it end."""
        self.stubborn = "trap '' TERM; " + self.held
        """A command that waits in the same way and ignores SIGTERM."""

    def begun(self, key: str, attempt: int = 1) -> int:
        """Waits until an attempt has started. Returns its process id."""
        file = self._folder / f"begun.{key}.{attempt}"
        return int(eventually(lambda: file.exists() and file.read_text().strip()))

    def has_begun(self, key: str, attempt: int = 1) -> bool:
        return (self._folder / f"begun.{key}.{attempt}").exists()

    def go(self, key: str = "") -> None:
        """Lets one task end, or all of them."""
        (self._folder / (f"go.{key}" if key else "go")).touch()

    def events(self, *words: str) -> list[str]:
        """The events in order, such as ``begin index@2`` and ``end index@2``."""
        lines = [line.split() for line in self.journal.read_text().splitlines()]
        return [f"{word} {key}" for key, _, word, _ in lines if word in (words or ("begin", "end"))]

    def nothing_overlapped(self) -> None:
        """Checks that no attempt acted after a later attempt of its task had started."""
        last: dict[str, int] = {}
        for line in self.journal.read_text().splitlines():
            key, attempt, word, _ = line.split()
            assert word != "OVERLAP", line
            assert int(attempt) >= last.get(key, 0), line
            last[key] = int(attempt)


def _toml(value: Any) -> str:
    """The TOML text of a value. JSON texts are valid TOML, except for tables."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(part)}" for key, part in value.items()) + "}"
    return "[" + ", ".join(map(_toml, value)) + "]" if isinstance(value, list) else json.dumps(value)


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # A zombie only waits for its parent.
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
