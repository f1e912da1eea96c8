"""The embedded server: it is made, shared, adopted, restarted, and stopped by its last user; and
its messages when it cannot run.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from arkqueue.db.embedded import programs
from arkqueue.db.embedded.programs import diagnose
from arkqueue.db.embedded.server import Embedded
from arkqueue.errors import ArkqueueError
from tests.loaded import fork
from tests.waiting import eventually


def answers(server: Embedded) -> bool:
    with psycopg.connect(server.uri, connect_timeout=10) as connection:
        return connection.execute("select 1").fetchone() == (1,)


def test_a_new_home_folder_gets_a_server_that_only_its_owner_can_reach(home: Path) -> None:
    server = Embedded.open(home)
    try:
        assert answers(server)
        with psycopg.connect(server.uri) as connection:
            shown = {
                name: connection.execute(f"show {name}".encode()).fetchone()[0]
                for name in (
                    "listen_addresses",
                    "fsync",
                    "synchronous_commit",
                    "full_page_writes",
                    "password_encryption",
                )
            }
            rules = connection.execute("select distinct auth_method from pg_hba_file_rules").fetchall()
        assert shown == {
            "listen_addresses": "",
            "fsync": "on",
            "synchronous_commit": "on",
            "full_page_writes": "on",
            "password_encryption": "scram-sha-256",
        }
        assert rules == [("scram-sha-256",)]
        folder = home / "postgres"
        assert stat.S_IMODE((folder / "socket").stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / "pgpass").stat().st_mode) == 0o600
        assert (folder / "pgpass").read_text().strip().rpartition(":")[2] not in server.uri
        assert not home.stat().st_mode & stat.S_IRWXO
    finally:
        server.close()
    assert server.pid is None


@pytest.fixture
def new_account(root: None) -> Iterator[str]:  # noqa: ARG001
    """The name of an account that does not exist yet."""
    name = f"arkqueue-test-{os.getpid()}"
    yield name
    subprocess.run(["userdel", name], check=True, capture_output=True)


def test_servers_that_start_at_the_same_time_agree_on_the_account(new_account: str, tmp_path: Path) -> None:
    program = (
        "from arkqueue.db.embedded import programs\n"
        f"programs.ACCOUNT = {new_account!r}\n"
        "print(programs.account().pw_uid)"
    )
    outs = [tmp_path / f"out-{number}" for number in range(4)]
    with open("/etc/.pwd.lock", "w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)  # lckpwdf(3)
        starting = [fork(program, [""], out=out, err=out, environment=os.environ) for out in outs]
        eventually(lambda: subprocess.run(["pgrep", "-f", f"useradd.* {new_account}$"], capture_output=True).stdout)
    for process in starting:
        process.wait()
    assert {out.read_text() for out in outs} == {f"{pwd.getpwnam(new_account).pw_uid}\n"}


def test_a_host_on_which_no_account_can_be_made_is_told_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(programs, "ACCOUNT", "arkqueue-test-none")
    monkeypatch.setattr(programs, "SYSTEM_FOLDER", tmp_path / "file" / "arkqueue")
    with pytest.raises(
        ArkqueueError, match=r"arkqueue-test-none cannot be made: .*Not a directory.*Run arkqueue as an ordinary user"
    ):
        programs.account()


def test_without_the_password_nobody_gets_in(used_home: Path) -> None:
    server = Embedded.open(used_home, durable=False)
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(server.uri, passfile="/dev/null", connect_timeout=10)
    server.close()


def test_the_psql_command_line_works_as_printed(used_home: Path) -> None:
    server = Embedded.open(used_home, durable=False)
    said = subprocess.run(f"{server.psql} -Atc 'select 6*7'", shell=True, capture_output=True, text=True, check=True)
    assert said.stdout == "42\n"
    server.close()


def test_the_last_to_leave_stops_it(used_home: Path) -> None:
    first, second = Embedded.open(used_home, durable=False), Embedded.open(used_home, durable=False)
    pid = first.pid
    first.close()
    assert second.pid == pid
    assert answers(second)
    second.close()
    assert second.pid is None


def test_another_process_keeps_its_database(used_home: Path) -> None:
    program = """
import sys
from pathlib import Path
from arkqueue.db.embedded.server import Embedded
server = Embedded.open(Path(sys.argv[1]), durable=False)
print(server.pid, flush=True)
sys.stdin.read()
"""
    other = subprocess.Popen(
        [sys.executable, "-c", program, str(used_home)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdin
    assert other.stdout
    with other:
        pid = int(other.stdout.readline())
        ours = Embedded.open(used_home, durable=False)
        assert ours.pid == pid
        ours.close()
        assert Embedded(used_home).pid == pid
        with pytest.raises(ArkqueueError, match="used by another process"):
            Embedded(used_home).destroy()
        # It ends without a goodbye; its server is adopted, and stopped by the adopter.
        other.kill()
        other.wait()
        assert Embedded(used_home).pid == pid
        adopted = Embedded.open(used_home, durable=False)
        assert adopted.pid == pid
        assert answers(adopted)
        adopted.close()
        assert adopted.pid is None


def test_two_that_start_at_once_share_one_server(home: Path) -> None:
    servers: list[Embedded] = []
    threads = [threading.Thread(target=lambda: servers.append(Embedded.open(home, durable=False))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({server.pid for server in servers}) == 1
    assert len(servers) == 3
    for server in servers:
        server.close()
    assert servers[0].pid is None


def test_what_was_committed_survives_a_killed_server(own_postgres: Callable[[], Embedded]) -> None:
    server = own_postgres()
    with psycopg.connect(server.uri) as connection:
        connection.execute("create table kept (n int)")
        connection.execute("insert into kept values (1)")
    server.kill()  # type: ignore[attr-defined]
    server.start()
    with psycopg.connect(server.uri) as connection:
        assert connection.execute("select n from kept").fetchall() == [(1,)]


@pytest.mark.full
def test_a_server_that_is_killed_again_and_again_is_started_at_once_each_time(
    own_postgres: Callable[[], Embedded],
) -> None:
    server = own_postgres()
    for _ in range(4):
        # Busy backends notice last that their server is gone; a
        # frozen one keeps its shared memory until it may go on.
        with psycopg.connect(server.uri) as connection, psycopg.connect(server.uri) as busy:
            connection.execute("create table if not exists kept (n int)")
            connection.execute("insert into kept values (1)")
            connection.commit()
            frozen = busy.info.backend_pid
            os.kill(frozen, signal.SIGSTOP)
            server.kill()  # type: ignore[attr-defined]
            thaw = threading.Timer(0.3, os.kill, [frozen, signal.SIGCONT])
            thaw.start()
            server.start()
            thaw.join()
        assert answers(server)
    with psycopg.connect(server.uri) as connection:
        assert connection.execute("select count(*) from kept").fetchall() == [(4,)]


def test_a_stale_pid_file_whose_number_belongs_to_somebody_else_does_not_block_the_start(used_home: Path) -> None:
    server = Embedded.open(used_home, durable=False)
    data, socket = used_home / "postgres" / "data", used_home / "postgres" / "socket"
    left = (data / "postmaster.pid").read_text().splitlines()
    owner = data.stat()
    server.stop()
    # What a machine that lost power leaves; a process of the same user has the number now.
    other = subprocess.Popen(["sleep", "600"], user=owner.st_uid if os.geteuid() == 0 else None)
    try:
        left[0] = str(other.pid)
        for path in (data / "postmaster.pid", socket / ".s.PGSQL.5432.lock"):
            path.write_text("\n".join(left) + "\n")
            os.chown(path, owner.st_uid, owner.st_gid)
        assert server.pid is None
        server.start()
        assert answers(server)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
    server.close()


@pytest.mark.full
def test_an_interrupted_initdb_leaves_nothing_half(home: Path) -> None:
    (home / "postgres" / "data.new").mkdir(parents=True)
    (home / "postgres" / "data.new" / "PG_VERSION").write_text("18\n")
    server = Embedded.open(home, durable=False)
    assert answers(server)
    server.close()


@pytest.fixture
def deep_home() -> Iterator[Path]:
    top = Path(tempfile.gettempdir()) / f"arkqueue-deep-{os.getpid()}"
    home = top / ("x" * 60) / ("y" * 60)
    home.mkdir(parents=True)
    yield home
    Embedded(home).destroy()
    shutil.rmtree(top)


@pytest.mark.full
def test_a_long_path_gets_its_socket_in_a_short_folder_that_goes_with_the_server(deep_home: Path) -> None:
    server = Embedded.open(deep_home, durable=False)
    place = deep_home / "postgres" / "socket"
    short = place.resolve()
    assert short != place
    assert stat.S_IMODE(short.stat().st_mode) == 0o700
    assert answers(server)
    server.close()
    assert not short.exists()
    assert not place.is_symlink()
    # A reboot that emptied the temporary folders leaves a link to nothing.
    place.symlink_to(short)
    server.start()
    assert answers(server)
    server.close()


@pytest.mark.full
@pytest.mark.usefixtures("root")
def test_a_home_folder_inside_a_private_one_of_roots_works_too(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    server = Embedded.open(private / "home", durable=False)
    place = (private / "home" / "postgres").resolve()
    assert answers(server)
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    server.destroy()
    assert not place.exists()


@pytest.mark.full
@pytest.mark.garbles
def test_a_data_folder_of_another_version_is_refused(home: Path) -> None:
    server = Embedded.open(home, durable=False)
    server.close()
    (home / "postgres" / "data" / "PG_VERSION").write_text("12\n")
    with pytest.raises(ArkqueueError, match=r"was made by PostgreSQL 12, but the installed wheel has only"):
        Embedded.open(home, durable=False)


def test_a_server_that_cannot_start_says_why_and_keeps_nobody_in_its_list(home: Path) -> None:
    server = Embedded.open(home, durable=False)
    server.close()
    for log in (home / "postgres" / "data" / "log").glob("*.log"):
        log.write_text(log.read_text() + "FATAL:  something of long ago\n")
    (home / "postgres" / "custom.conf").write_text("shared_buffers = nonsense\n")
    (home / "postgres" / "custom.conf").chmod(0o644)
    with pytest.raises(ArkqueueError, match=r"cannot be started: .*configuration file .*custom.conf"):
        server.start()
    (home / "postgres" / "custom.conf").unlink()
    server.start()
    server.close()
    assert server.pid is None


def test_a_home_that_is_a_file_is_refused_plainly(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ArkqueueError, match="Choose another home"):
        Embedded.open(tmp_path / "file" / "home")


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("FATAL:  could not write lock file: No space left on device", "disk is full"),
        ('initdb: error: could not change permissions of directory "x": Operation not permitted', "local disk"),
        ('FATAL:  data directory "x" has wrong ownership', "as the user that made"),
    ],
)
def test_known_faults_come_with_their_remedy(said: str, remedy: str) -> None:
    fault, answer = diagnose(f"waiting for server to start\n{said}\npg_ctl: could not start server\n")
    assert fault == said
    assert remedy in answer
