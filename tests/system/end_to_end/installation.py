"""arkqueue as a person has it: roles in processes of their own, the command line, repositories with the installed hooks.

    arkqueue = installations()                              home folders, a database, a configuration
    server = arkqueue.start()                               python -m arkqueue serve
    papers = archives(arkqueue, "git")                      a repository with one revision, registered, its hook installed
    papers.commit(tasks({"index": {"command": "true"}}))    2
    papers.wait("index@2")
    arkqueue("show", f"{papers.name}@2").out

Nothing here waits for a time: ``eventually`` looks again and again until something has happened.
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
from arkqueue.states import SETTLED
from tests.loaded import Forked, fork
from tests.ports import a_port
from tests.program import Done, run_cli
from tests.repositories import Content, GitRepository, SubversionRepository
from tests.waiting import PATIENCE, eventually, when_changed

ROOT = Path(arkqueue.__file__).parents[1]
TRACEBACK = "Traceback (most recent call last)"
ROLES = {"serve", "web", "manager", "worker"}
IDLE = {"poll": "3s"}
"""Settings of a server that waits for its next test most of the time: each worker has up to four of them. One takes 5 % of a core on a busy machine with the tests'
usual 200 ms, 1.5 % with 1 s and 0.8 % with 5 s."""


def processes_of(marker: str) -> list[str]:
    """The processes that have a text in their environment: each with its id and command line."""
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
    """A role's process; what it says goes to a file."""

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
        """SIGTERM, as systemd would; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)


class Installation:
    """Home folders in one place, and one database; ``settings`` are the configuration's. Called, it is the command line.

    No sweep makes up for what a hook failed to tell while a test runs.
    """

    def __init__(self, folder: Path, database: str | None, **settings: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.database = database
        self.roles: list[Role] = []
        self.python = sys.executable
        """What runs the roles that are not forked: those of another account, for instance."""
        self.is_forked = True
        """Whether its roles begin with arkqueue loaded, which saves a second each; not where they are measured."""
        self.account: dict[str, Any] = {}
        """Whose they are, as ``Popen`` wants to be told it; without it, the tests' own user's."""
        self._settings = {"poll": "200ms", "sweep": "1h", "slots": 4, **settings}
        self._ports = ExitStack()
        self._listen = f"127.0.0.1:{self._ports.enter_context(a_port())}"
        self._served: Path | None = None
        self._connection: psycopg.Connection[dict[str, Any]] | None = None

    # -- processes ---------------------------------------------------------------------------------------------------

    def start(self, role: str = "serve", *options: str, home: str = "home") -> Role:
        """Start a role; one with the API is waited for, and has always the same address."""
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
            return fork("arkqueue.cli.main()", ["arkqueue", *words], out=log, err=log, environment=marked)
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
        """Settings for whatever is started from now on."""
        self._settings |= settings

    def home(self, name: str = "home") -> Path:
        """A home folder with its configuration."""
        folder = self.folder / name
        folder.mkdir(mode=0o711, exist_ok=True)
        values = {**self._settings, **({"database": self.database} if self.database else {})}
        (folder / "arkqueue.toml").write_text("".join(f"{key} = {_toml(v)}\n" for key, v in values.items()))
        return folder

    def close(self) -> None:
        """Stop what runs, and look that nothing is left behind: no process, and no traceback in what a person may read."""
        for role in reversed(self.roles):
            if role.process.poll() is None:
                role.process.send_signal(signal.SIGCONT)
                role.stop()
        if self._connection is not None:
            self._connection.close()
        self._ports.close()
        eventually(lambda: not processes_of(str(self.folder)))
        for log in {role.log for role in self.roles}:
            said = log.read_text("utf-8", "replace")
            assert TRACEBACK not in said, said
        self.roles.clear()

    # -- what a person does ------------------------------------------------------------------------------------------

    def __call__(self, *words: str | Path, code: int | None = 0) -> Done:
        """Run the command line of the host that serves; ``code``: how it must end. A role that is to end by itself has a process of its own."""
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
        """A command that goes on while other things happen."""
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

    # -- what the database holds -------------------------------------------------------------------------------------

    def sql(self, text: str, *values: Any) -> list[dict[str, Any]]:
        """Rows of a statement that a person could type, too; each sees what is committed by now."""
        cursor = self.connection.execute(text.encode(), values)
        return cursor.fetchall() if cursor.description else []

    def changes(self, archive: str) -> list[dict[str, Any]]:
        """What is another one after each task and attempt of an archive that has ended. It takes a tenth of the time in which the API answers how a run is."""
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
        from arkqueue.db.embedded.server import Embedded

        return Embedded(self.home()).uri


class Archive:
    """A registered archive with a real repository. Tasks are named as ``index@2`` or, of a later run, ``index@2.2``."""

    def __init__(self, installation: Installation, name: str, repository: SubversionRepository | GitRepository) -> None:
        self.installation, self.name, self.repository = installation, name, repository
        self.number = 1

    @property
    def is_git(self) -> bool:
        return isinstance(self.repository, GitRepository)

    def commit(self, changes: Mapping[str, Content], **options: Any) -> int:
        """Commit (and push), so that the hook fires; answers the number that the ledger will give it."""
        self.repository.commit(changes, **options)
        self.number += 1
        return self.number

    def run(self, rev: int, run: int = 1) -> str:
        """A run's name on the command line."""
        return f"{self.name}@{rev}" + (f".{run}" if run != 1 else "")

    def task(self, key: str) -> str:
        """A task's name on the command line."""
        name, _, place = key.partition("@")
        return f"{self.name}@{place}/{name}"

    def shown(self, rev: int, run: int = 1) -> Any:
        """A run as ``arkqueue show --json`` tells it."""
        return self.installation("show", self.run(rev, run), "--json").json

    def explained(self, key: str) -> str:
        return self.installation("explain", self.task(key)).out

    def log(self, key: str, *options: str) -> str:
        return self.installation("logs", self.task(key), *options).out

    # -- what happens ------------------------------------------------------------------------------------------------

    def state(self, key: str) -> str:
        """A task's state; empty where there is none yet."""
        rows = self._rows(key, "t.state")
        return str(rows[0]["state"]) if rows else ""

    def states(self, *revs: int) -> dict[str, str]:
        """The states of all tasks of the first runs of revisions."""
        rows = self.installation.sql(
            "select t.name, t.number, t.state from task t join archive a on a.id = t.archive_id where a.name = %s"
            " and t.number = any(%s) and t.run = 1 and t.name not in ('COMMIT', 'REPORT') order by t.number, t.position",
            self.name,
            list(revs),
        )
        return {f"{row['name']}@{row['number']}": row["state"] for row in rows}

    def wait(self, key: str, state: str = "completed") -> None:
        """Wait until a task has a state; another final one is the end of waiting."""

        def has() -> bool:
            found = self.state(key)
            assert found == state or found not in SETTLED, f"{key} is {found}: {self.attempts(key)}"
            return found == state

        eventually(has)

    def wait_for_run(self, rev: int, state: str = "completed", run: int = 1) -> Any:
        """Wait until a run has ended in a state; the run."""

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
        """The numbers of the revisions in the order in which they were planned."""
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
    """A workflow file, as a change to commit."""
    return {file: json.dumps([{"name": name, **fields} for name, fields in definitions.items()], indent=1)}


class Stage:
    """Where tasks and their test meet: a task says that it has begun, and ends when the test lets it.

    A container that has the folder elsewhere is told where by ``STAGE``.

    Each task writes down what it does, as it does it, and holds a lock of its name as long as any process of it lives.
    So what ran when, and whether anything ran beside itself, does not depend on what arkqueue believes.
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
        """A command that waits until the test lets it go."""
        self.stubborn = "trap '' TERM; " + self.held
        """The same, and it does not mind SIGTERM."""

    def begun(self, key: str, attempt: int = 1) -> int:
        """Wait until an attempt has begun; its process."""
        file = self._folder / f"begun.{key}.{attempt}"
        return int(eventually(lambda: file.exists() and file.read_text().strip()))

    def has_begun(self, key: str, attempt: int = 1) -> bool:
        return (self._folder / f"begun.{key}.{attempt}").exists()

    def go(self, key: str = "") -> None:
        """Let a task end, or all."""
        (self._folder / (f"go.{key}" if key else "go")).touch()

    def events(self, *words: str) -> list[str]:
        """What happened, in order: ``begin index@2``, ``end index@2``."""
        lines = [line.split() for line in self.journal.read_text().splitlines()]
        return [f"{word} {key}" for key, _, word, _ in lines if word in (words or ("begin", "end"))]

    def nothing_overlapped(self) -> None:
        """No attempt did anything after a later one of its task had begun."""
        last: dict[str, int] = {}
        for line in self.journal.read_text().splitlines():
            key, attempt, word, _ = line.split()
            assert word != "OVERLAP", line
            assert int(attempt) >= last.get(key, 0), line
            last[key] = int(attempt)


def _toml(value: Any) -> str:
    """A JSON text is a TOML text too, but for its tables."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(part)}" for key, part in value.items()) + "}"
    return "[" + ", ".join(map(_toml, value)) + "]" if isinstance(value, list) else json.dumps(value)


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # A zombie waits for its parent only.
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
