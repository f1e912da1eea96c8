"""The program as a whole: help, exit codes, how it finds the server, and what it does not do before
it has to.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from arkqueue.cli import COMMANDS
from arkqueue.cli.client import Client, _Fields
from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.queue import tokens
from arkqueue.runtime.address import announce
from tests.builders import an_archive, faulty
from tests.ports import a_port
from tests.program import run_cli
from tests.system.cli.conftest import Cli, Server, Start, _environment, cli_of_ordinary_user
from tests.web_servers import answering


@contextmanager
def something_else(status: int, text: str, kind: str, told: list[str | None] | None = None) -> Iterator[str]:
    """A web server that is not arkqueue, or one before it that answers in its place. ``told`` gets the tokens that it is sent."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if told is not None:
            told.append(handler.headers["Authorization"])
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.end_headers()
        handler.wfile.write(text.encode())

    with answering(answer) as url:
        yield url


# Help and usage


def test_help_names_every_command_and_no_other() -> None:
    done = run_cli("--help")
    assert done.code == 0
    listed = [line.split()[0] for line in done.out.partition("Commands:\n")[2].splitlines()]
    assert listed == list(COMMANDS)


@pytest.mark.parametrize("command", [c for c in COMMANDS if c != "demo"])
def test_every_command_has_help(command: str) -> None:
    done = run_cli(command, "--help")
    assert done.code == 0, done.err
    assert f"Usage: arkqueue {command}" in done.out


def test_wrong_usage_is_exit_code_2(arkqueue: Cli) -> None:
    for words in (
        ("runx",),
        ("show",),
        ("show", "a@1", "b@2"),
        ("runs", "--limit", "many"),
        ("runs", "--branch", "main"),
        ("graph", "papers@2", "--format", "png"),
        ("token", "create"),
        ("archive", "set", "papers"),
        ("check", "x", "--revision", "papers@2"),
        ("logs", "papers@2/a", "-f", "--json"),
        ("skip", "a", "--until", "3"),
        ("notify", "papers", "HEAD"),
        ("notify", "papers", "9" * 5000),
        ("--config", "/nowhere", "runs"),
    ):
        done = arkqueue(*words)
        assert (done.code, done.out) == (2, ""), words
        assert "Error: " in done.err


def test_name_that_is_no_text_is_told(arkqueue: Cli, session: Session) -> None:
    an_archive(session)
    for words in (("show", "\udcff@1"), ("logs", "papers@2/\udcff"), ("runs", "\udcff"), ("archive", "show", "\udcff")):
        done = arkqueue(*words)
        assert (done.code, done.out) == (2, ""), words
        assert "\\udcff" in done.err
        assert "has bytes that are not UTF-8" in done.err


def test_bytes_that_are_no_text_reach_the_command(started_alone: Start, session: Session) -> None:
    an_archive(session)
    process = started_alone("show", "\udcff@1")
    said, faults = process.communicate()
    assert (process.returncode, said) == (2, "")
    assert "\\udcff" in faults


def test_unknown_command_is_answered_with_the_nearest() -> None:
    assert "Did you mean retry?" in run_cli("rety").err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["serve", "--home", "x"], "--home belongs before the command: arkqueue --home FOLDER serve"),
        (["worker", "--home=x"], "--home belongs before the command: arkqueue --home FOLDER worker"),
        (
            ["archive", "add", "--config", "x"],
            "--config belongs before the command: arkqueue --config FILE archive add",
        ),
        (["serve", "--hoem", "x"], "No such option"),
    ],
)
def test_option_of_the_program_is_told_its_place(words: list[str], said: str) -> None:
    done = run_cli(*words)
    assert done.code == 2
    assert f"Error: {said}" in done.err


def test_help_and_simple_commands_load_only_what_they_need(
    server: Server,  # noqa: ARG001  it runs
    configuration: Configuration,
    session: Session,
) -> None:
    an_archive(session)
    code = "import sys; from arkqueue.cli import main\ntry:\n main()\nfinally:\n print(*sys.modules, file=sys.stderr)"

    def loaded(*arguments: str) -> set[str]:
        command = [sys.executable, "-c", code, "--home", str(configuration.home), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=_environment())
        assert done.returncode == 0, done.stderr
        return set(done.stderr.split())

    heavy = {"httpx", "rich", "fastapi", "psycopg", "networkx", "docker", "pygit2", "subvertpy", "uvicorn"}
    assert not loaded("--help") & (heavy | {"pydantic", "yaml", "http.client"})
    assert not loaded("runs") & (heavy | {"pydantic", "arkqueue.model", "yaml"})


@pytest.mark.full
def test_garbage_is_looked_for_as_soon_as_the_server_is_there(tmp_path: Path, pg_uri: str) -> None:
    code = (
        "import gc, os, signal, sys, threading, time\n"
        "from pathlib import Path\n"
        "from arkqueue.cli import main\n"
        "def tell():\n"
        " while not Path(sys.argv[2], 'url').exists():\n"
        "  time.sleep(0.01)\n"
        " print(f'looked for: {gc.isenabled()}', file=sys.stderr, flush=True)\n"
        " os.kill(os.getpid(), signal.SIGTERM)\n"
        "threading.Thread(target=tell, daemon=True).start()\n"
        "main()"
    )
    command = [
        sys.executable,
        "-c",
        code,
        "--home",
        str(tmp_path),
        "web",
        "--database",
        pg_uri,
        "--listen",
        "127.0.0.1:0",
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=_environment())
    assert done.returncode == 0, done.stderr
    assert "looked for: True" in done.stderr


# The server


@pytest.mark.parametrize(
    "arguments", [["runs"], ["show", "papers@2"], ["cancel", "a@1", "b@2"], ["logs", "papers@2/a", "-f"], ["watch"]]
)
def test_unreachable_server_is_named_with_the_remedy(
    tmp_path: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arkqueue.cli.logs.PATIENCE", 0.0)  # a follower waits for a server that restarts
    with a_port() as port:
        address = f"http://127.0.0.1:{port}"
        done = run_cli("--home", str(tmp_path), *arguments, "--server", address)
    assert (done.code, done.out) == (3, "")
    assert done.err.startswith(f"arkqueue: {address}: the server cannot be reached (Connection refused)")
    assert "`arkqueue serve`" in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(("status", "text"), [(200, "<html>welcome</html>"), (404, "no such page"), (302, "")])
def test_another_program_at_the_address_is_no_server(tmp_path: Path, status: int, text: str) -> None:
    with something_else(status, text, "text/html") as address:
        done = run_cli("--home", str(tmp_path), "runs", "--server", address)
    assert done.code == 3
    assert "it is not arkqueue" in done.err


@pytest.mark.parametrize("arguments", [["runs"], ["status"], ["explain", "papers@2"], ["retry", "papers@2/a"]])
def test_a_server_of_another_version_is_named_with_the_remedy(tmp_path: Path, arguments: list[str]) -> None:
    """Its answers lack fields, or it does not know a call or a field."""
    call = {"status": 404, "detail": "", "thing": "/api/v1/explain", "fault": "there is nothing here"}
    method = {"status": 405, "detail": "", "thing": "/api/v1/explain", "fault": "GET is not possible here"}
    field = {"status": 422, "detail": "", "thing": "the request", "fault": "later: is not known here"}
    field["faults"] = [{"field": "later", "message": "is not known here"}]
    old = {"items": [{"id": 7}], "runs": [{"id": 7}], "id": 7}
    for status, answer, fault in (
        (200, old, "the server's answer lacks the field '"),
        (404, call, "does not know this call ("),
        (405, method, "does not know this call ("),
        (422, field, "does not know a field of this call (later)"),
    ):
        with something_else(status, json.dumps(answer), "application/json") as address:
            done = run_cli("--home", str(tmp_path), *arguments, "--server", address)
        assert (done.out, done.code) == ("", 1)
        assert fault in done.err
        assert f"Probably the server and the command line have different versions. Compare {address}/docs with arkqueue --version, and install the same version of both." in done.err  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [["runs"], ["status"], ["show", "papers@2"], ["show", "papers@3"], ["report", "papers@2"], ["archive", "show", "papers"]],
)  # fmt: skip
def test_no_field_that_a_server_lacks_leads_to_a_traceback(
    arkqueue: Cli, session: Session, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    archive = an_archive(session)
    archive.commit({"a": "lock: tex", "b": "depends: [a]"})
    archive.fail("a@2")
    archive.commit(faulty())
    known, lacking, get = set[str](), [""], Client.get
    answers: dict[str, str] = {}

    def read_once(client: Client, path: str, **query: Any) -> Any:
        """The server's answer, without a field. Each answer is fetched once."""
        asked = f"{path} {query}"
        if asked not in answers:
            answers[asked] = json.dumps(get(client, path, **query))
        return json.loads(answers[asked], object_hook=lambda fields: without(fields, client.url))

    def without(fields: dict[str, Any], url: str) -> Any:
        known.update(fields)
        return _Fields({name: value for name, value in fields.items() if name != lacking[0]}, url)

    monkeypatch.setattr(Client, "get", read_once)
    assert arkqueue(*arguments).code in (0, 1)
    for name in sorted(known):
        lacking[0] = name
        done = arkqueue(*arguments)  # fails if the command raises anything but an error for a person
        assert done.code in (0, 1), name


def test_server_without_its_database_counts_as_unreachable(tmp_path: Path) -> None:
    problem = {"status": 503, "title": "", "detail": "the database: does not answer", "thing": "the database"}
    with something_else(503, json.dumps(problem), "application/problem+json") as address:
        done = run_cli("--home", str(tmp_path), "runs", "--server", address)
    assert done.code == 3
    assert "has no database" in done.err


def test_server_that_does_not_answer_is_not_said_to_be_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arkqueue.cli.client.PATIENCE", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        done = run_cli("--home", str(tmp_path), "runs", "--server", address)
    assert done.code == 3
    assert done.err.startswith(f"arkqueue: {address}: the server has not answered for")
    assert "See its log, and try again." in done.err
    assert "Start it" not in done.err


def test_address_that_is_none_is_said(tmp_path: Path) -> None:
    for address in ("ftp://here", "http://:80", "http://[::1", "http://a:b", "http://a..b", f"http://{'x' * 70}.y"):
        done = run_cli("--home", str(tmp_path), "runs", "--server", address)
        assert done.code == 2, address
        assert done.err.startswith(f"arkqueue: --server {address!r}: is not a valid address.")
        (tmp_path / "arkqueue.toml").write_text(f"server = {address!r}\n")
        assert run_cli("--home", str(tmp_path), "runs").code == 1, "the command itself is right"
        (tmp_path / "arkqueue.toml").unlink()


def test_token_of_the_home_goes_to_no_other_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("the-admins\n")
    told: list[str | None] = []
    with something_else(200, "[]", "application/json", told) as address:
        descriptor = announce(tmp_path, address)
        assert descriptor is not None
        for named in (address, address.replace("127.0.0.1", "localhost"), address + "/"):
            run_cli("--home", str(tmp_path), "token", "list", "--server", named)
        run_cli("--home", str(tmp_path), "token", "list")
        assert told == ["Bearer the-admins"] * 4
        told.clear()
        (tmp_path / "url").write_text("http://127.0.0.1:1\n")
        run_cli("--home", str(tmp_path), "token", "list", "--server", address)
        (tmp_path / "url").unlink()
        run_cli("--home", str(tmp_path), "token", "list", "--server", address)
        assert told == [None, None]
        monkeypatch.setenv("ARKQUEUE_TOKEN", "meant-for-it")
        run_cli("--home", str(tmp_path), "token", "list", "--server", address)
        assert told[2:] == ["Bearer meant-for-it"]
        os.close(descriptor)


def test_token_is_needed_and_must_be_known(
    arkqueue: Cli, configuration: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert arkqueue("runs").code == 0
    own = (configuration.home / "token").read_text().strip()
    monkeypatch.setenv("ARKQUEUE_TOKEN", own + "\r")  # of a file with another system's line ends
    assert arkqueue("runs").code == 0
    monkeypatch.setenv("ARKQUEUE_TOKEN", "nobody's")
    done = arkqueue("runs")
    assert done.code == 1
    assert "does not know this token" in done.err
    monkeypatch.delenv("ARKQUEUE_TOKEN")
    (configuration.home / "token").unlink()
    done = arkqueue("runs")
    assert done.code == 1
    assert "needs a token" in done.err


def test_token_that_does_not_allow_it_is_refused(
    arkqueue: Cli, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    an_archive(session).commit({"a": ""})
    made = arkqueue("token", "create", "--scope", "read", "--archive", "papers")
    monkeypatch.setenv("ARKQUEUE_TOKEN", made.out.strip())
    assert arkqueue("show", "papers@2").code == 0
    done = arkqueue("cancel", "papers@2/a")
    assert done.code == 1
    assert "has the scope read; this needs operate" in done.err
    assert "arkqueue token create --scope operate" in done.err


def test_token_that_can_be_none_is_told_without_showing_it(arkqueue: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for secret in ("ark_a\rb", "ark_a\nb", "ark_ä", " "):
        monkeypatch.setenv("ARKQUEUE_TOKEN", secret)
        done = arkqueue("runs")
        assert done.code == 1
        assert done.err.startswith("arkqueue: the configuration: environment: ARKQUEUE_TOKEN is not a valid token")
        assert "ark_" not in done.err


@pytest.mark.parametrize("closed", [1, 2])
def test_output_that_whoever_calls_has_closed_is_not_missed(
    server: Server,  # noqa: ARG001  it runs
    configuration: Configuration,
    session: Session,
    closed: int,
) -> None:
    an_archive(session).commit({"a": ""})
    command = [
        "sh",
        "-c",
        f'exec "$@" {closed}>&-',
        "sh",
        sys.executable,
        "-m",
        "arkqueue",
        "--home",
        str(configuration.home),
        "runs",
    ]
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_faulty_configuration_is_told_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "arkqueue.toml").write_text("slotz = 3\n")
    done = run_cli("--home", str(tmp_path), "runs")
    assert done.code == 1
    assert "slotz is unknown (did you mean slots?)" in done.err


def test_reader_that_has_enough_ends_the_command_quietly(started_alone: Start, session: Session) -> None:
    archive = an_archive(session)
    for _ in range(30):
        archive.commit({"a": ""})
    process = started_alone("runs", "--json")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait() == 0


# What the system refuses


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            PermissionError(errno.EACCES, "Permission denied", "/srv/a\x1b"),
            "/srv/a\\x1b: Permission denied. Correct its permissions, or run this as the user that it belongs to.",
        ),
        (
            OSError(errno.ENOSPC, "No space left on device", "/srv/a"),
            "/srv/a: No space left on device. Make room there.",
        ),
        (PermissionError(errno.EPERM, "Operation not permitted", 3), "Operation not permitted"),
        (OSError("it broke"), "it broke"),
    ],
)
def test_what_the_system_refuses_is_told_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, error: OSError, said: str
) -> None:
    def refuse(_: object) -> None:
        raise error

    # Any step of a command would do; no system refuses on demand.
    monkeypatch.setattr("arkqueue.cli.check._place", refuse)
    done = run_cli("check")
    assert (done.code, done.out, done.err) == (1, "", f"arkqueue: {said}\n")


@pytest.mark.parametrize("arguments", [["--version"], ["runs", "--json"]])
def test_output_that_finds_no_room_is_told(started_alone: Start, session: Session, arguments: list[str]) -> None:
    archive = an_archive(session)
    for _ in range(30):
        archive.commit({"a": ""})
    with open("/dev/full", "w") as full:
        process = started_alone(*arguments, stdout=full)
        assert process.stderr is not None
        said = process.stderr.read()
    assert process.wait() == 1
    assert said.startswith("arkqueue: ")
    assert said.endswith("No space left on device. Make room there.\n")
    assert said.count("\n") == 1


def test_working_folder_that_is_gone_is_told(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    code = "import os, sys; os.rmdir(os.getcwd()); sys.argv[1:] = ['check']; from arkqueue.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], cwd=gone, env=_environment(), capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "arkqueue: the working folder: No such file or directory. Change to one that exists.\n"


@pytest.mark.parametrize("role", [["serve"], ["migrate"], ["worker"], ["web"]])
def test_home_folder_that_cannot_be_made_is_told(tmp_path: Path, role: list[str]) -> None:
    home = tmp_path / "home"
    for make, said in (
        (lambda: home.symlink_to("nowhere"), f"is a link to {tmp_path / 'nowhere'}, which is not a folder"),
        (lambda: home.write_text(""), "is not a folder"),
    ):
        make()
        done = run_cli("--home", str(home), *role)
        home.unlink()
        assert done.code == 1
        remedy = "Name another with --home or ARKQUEUE_HOME, or make it, as a folder of this user."
        assert done.err == f"arkqueue: the home folder {home}: {said}. {remedy}\n"


def test_home_folder_that_this_user_may_not_make_is_told(open_folder: Path) -> None:
    open_folder.chmod(0o555)
    done = cli_of_ordinary_user("--home", str(open_folder / "home"), "serve")
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"arkqueue: the home folder {open_folder / 'home'}: cannot be made: Permission denied."
    )
    assert done.stderr.count("\n") == 1


# Tokens


def test_token_is_made_listed_and_revoked(arkqueue: Cli, session: Session) -> None:
    made = arkqueue("token", "create", "--scope", "hook", "--name", "svn", "--json").json
    assert tokens.check(session, made["token"]) is not None
    assert made["token"] not in arkqueue("token", "list").out
    assert [line.split()[0] for line in arkqueue("token", "list").lines[1:]] == ["1", str(made["id"])]
    assert arkqueue("token", "revoke", str(made["id"])).code == 0
    assert tokens.check(session, made["token"]) is None
    assert arkqueue("token", "revoke", str(made["id"])).code == 1
    other = arkqueue("token", "create", "--scope", "read", "--json").json
    assert arkqueue("token", "revoke", str(made["id"]), str(other["id"])).code == 1
    assert tokens.check(session, other["token"]) is None, "one refusal does not keep the others"
    assert len(arkqueue("token", "list").lines) == 2
    assert "revoked" in arkqueue("token", "list", "--all").out
    persons = ("--author", "ann", "--author", "Ann <ann@example.org>")
    arkqueue("token", "create", "--scope", "approve", "--name", "of Ann", *persons)
    assert arkqueue("token", "list").lines[-1].endswith("of Ann for ann, Ann <ann@example.org>")
