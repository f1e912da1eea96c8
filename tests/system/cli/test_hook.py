"""``arkqueue hook …`` with a real server: which token the hooks of a repository have, and when it
is revoked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.queue import tokens
from arkqueue.queue.tokens import Scope, Token
from tests.repositories import a_git_repository, a_subversion_repository, run
from tests.system.cli.conftest import Cli, Server, cli_of_ordinary_user, run_cli
from tests.waiting import eventually


def of_hooks(session: Session) -> list[Token]:
    return [token for token in tokens.tokens(session) if token.scope is Scope.HOOK and token.revoked_at is None]


def test_hooks_of_a_repository_have_one_token_until_they_are_taken_out(
    arkqueue: Cli, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, other = a_subversion_repository(tmp_path), a_git_repository(tmp_path)
    assert arkqueue("hook", "install", str(other.path)).code == 0
    monkeypatch.chdir(tmp_path)
    for path in (str(repository.path), f"../{tmp_path.name}/{repository.path.name}", repository.path.name):
        assert arkqueue("hook", "install", path).code == 0
        first, last = of_hooks(session)
        assert first.name.endswith(f":{other.path}")
        assert last.name.endswith(f":{repository.path}")
        (client,) = (repository.path / "arkqueue").rglob("client.conf")
        secret = client.read_text().split("Bearer ")[1].split('"')[0].split()[0]
        assert tokens.check(session, secret) == last
    assert arkqueue("hook", "uninstall", repository.path.name).code == 0
    assert of_hooks(session) == [first]


def test_installing_tells_whether_notices_get_through(
    arkqueue: Cli, session: Session, server: Server, tmp_path: Path
) -> None:
    repository = a_git_repository(tmp_path)
    install = ("hook", "install", str(repository.path))
    assert "note: no archive of this repository is watched yet: arkqueue archive add" in arkqueue(*install).out
    arkqueue("archive", "add", "papers", str(repository.path))
    assert "note: " not in arkqueue(*install).out
    assert arkqueue(*install, "--server", server.url.removeprefix("http://")).code == 0
    file = tmp_path / "token"
    with_file = (*install, "--token-file", str(file))
    file.write_text("ark_garbage")
    assert "does not know this token" in arkqueue(*with_file).out
    file.write_text(tokens.create(session, name="reader", scope=Scope.READ, archives=None, by="a test")[1])
    assert "note: notices will be refused: token reader: has the scope read" in arkqueue(*with_file).out
    file.write_text(tokens.create(session, name="hook", scope=Scope.HOOK, archives=None, by="a test")[1])
    assert "note: " not in arkqueue(*with_file).out
    server.close()
    assert "note: notices do not get through: " in arkqueue(*with_file).out


def test_hooks_name_a_repository_as_the_server_knows_it(arkqueue: Cli, session: Session, tmp_path: Path) -> None:
    repository = a_git_repository(tmp_path)
    repository.commit({"a": "1"})
    with repository.served() as remote:
        arkqueue("archive", "add", "papers", remote.url)
    assert "arkqueue hook install --url URL" in arkqueue("hook", "install", str(repository.path)).out
    assert "note: " not in arkqueue("hook", "install", "--url", remote.url, str(repository.path)).out
    with session.database.transaction() as connection:
        connection.execute("delete from look")  # which installing asked for

    def is_told() -> bool:
        with session.database.transaction() as connection:
            return connection.execute("select from look").rowcount == 1

    repository.commit({"a": "2"})
    eventually(is_told)


def test_another_server_is_told_too_until_that_is_ended_and_all_of_it_is_said(
    arkqueue: Cli, session: Session, server: Server, tmp_path: Path
) -> None:
    repository, other = a_subversion_repository(tmp_path), "http://other.invalid:8417"
    file = tmp_path / "token"
    file.write_text("theirs")
    path = str(repository.path)
    assert arkqueue("hook", "install", path).code == 0
    for _ in range(2):
        done = arkqueue("hook", "install", path, "--server", other, "--token-file", str(file))
        assert f"note: the hooks still notify {server.url} of commits" in done.out
    assert len(of_hooks(session)) == 1
    done = arkqueue("hook", "install", path)
    assert f"to end that: arkqueue hook uninstall --server {other} {path}\n" in done.out
    done = arkqueue("hook", "uninstall", path, "--server", "http://nobody.invalid")
    assert done.code == 2
    assert f"the hooks of {path}, which notify {server.url} and {other}" in done.err
    done = arkqueue("hook", "uninstall", path, "--server", server.url)
    assert done.code == 0
    assert f"note: the hooks still notify {other} of commits\n" in done.out
    assert "still valid" not in done.out
    assert of_hooks(session) == []
    assert arkqueue("hook", "install", path).code == 0
    done = arkqueue("hook", "uninstall", path)
    assert f"note: the hooks still notify {other} of commits\n" in done.out
    assert of_hooks(session) == []
    done = arkqueue("hook", "uninstall", path)
    assert done.code == 2
    assert f"{server.url}: gets no notices from the hooks of {path}, which notify {other}" in done.err
    assert f"arkqueue hook uninstall --server {other} {path}" in done.err
    assert (repository.path / "arkqueue/servers").is_dir()
    done = arkqueue("hook", "uninstall", "--server", other, path)
    assert "note: their token is not revoked" in done.out
    assert not (repository.path / "arkqueue").exists()


def test_server_that_does_not_run_ends_nobodys_notices_unless_it_is_named(
    arkqueue: Cli, session: Session, server: Server, tmp_path: Path
) -> None:
    repository, home = a_git_repository(tmp_path), tmp_path / "another home"
    path = str(repository.path)
    home.mkdir()
    assert arkqueue("hook", "install", path).code == 0
    done = run_cli("--home", str(home), "hook", "uninstall", path)
    assert done.code == 1
    assert f"{path}: its hooks tell {server.url}, and whether that is the server of this home is not known" in done.err
    assert f"arkqueue hook uninstall --server {server.url} {path}" in done.err
    assert len(of_hooks(session)) == 1
    assert (repository.path / "arkqueue").is_dir()
    assert arkqueue("hook", "uninstall", path).code == 0
    assert of_hooks(session) == []
    assert not (repository.path / "arkqueue").exists()


def test_file_that_holds_no_token_is_refused(arkqueue: Cli, tmp_path: Path) -> None:
    repository, file = a_git_repository(tmp_path), tmp_path / "token"
    for content in (b"", b"\xff\xfe", b"two words", b"two\nlines", "schlüssel".encode()):
        file.write_bytes(content)
        done = arkqueue("hook", "install", str(repository.path), "--token-file", str(file))
        assert done.code == 2, content
        assert f"{file}: holds no token, which is one word" in done.err
        assert not (repository.path / "arkqueue").exists()


def test_hooks_that_could_not_be_installed_leave_no_token(arkqueue: Cli, session: Session, tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    (repository.path / "arkqueue").symlink_to(tmp_path)
    assert arkqueue("hook", "install", str(repository.path)).code == 1
    assert of_hooks(session) == []


def test_hooks_are_taken_out_without_the_server_which_is_said(arkqueue: Cli, server: Server, tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    arkqueue("hook", "install", str(repository.path))
    server.close()
    done = arkqueue("hook", "uninstall", str(repository.path))
    assert done.code == 0
    assert not (repository.path / "arkqueue").exists()
    assert "note: their token is not revoked" in done.out
    assert "arkqueue token list" in done.out


def test_long_paths_have_tokens_of_their_own(arkqueue: Cli, session: Session, tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 90)
    for name in ("one", "two"):
        folder = deep / name / ("y" * 90)
        os.makedirs(folder)
        assert arkqueue("hook", "install", str(a_subversion_repository(folder).path)).code == 0
    assert len({token.name for token in of_hooks(session)}) == 2


@pytest.mark.parametrize("make", [a_subversion_repository, a_git_repository])
def test_who_may_not_change_the_hooks_is_told_who_may(
    arkqueue: Cli, configuration: Configuration, open_folder: Path, make: Callable[[Path], Any]
) -> None:
    path = make(open_folder).path
    run("chmod", "-R", "a+rX", path)
    home = open_folder / "home"
    home.mkdir()
    server, token = ((configuration.home / name).read_text().strip() for name in ("url", "token"))
    (home / "arkqueue.toml").write_text(f"server = {server!r}\ntoken = {token!r}\n")
    fault = f"arkqueue: {path}: its hooks cannot be changed: "
    remedy = f"Correct its permissions, or run this as {path.owner()}, to whom it belongs.\n"

    def refused(*arguments: str) -> None:
        done = cli_of_ordinary_user("--home", str(home), "hook", *arguments)
        assert done.returncode == 1
        assert done.stderr.startswith(fault)
        assert done.stderr.endswith(remedy)
        assert done.stderr.count("\n") == 1

    if os.geteuid() != 0:
        path.chmod(0o555)
    refused("install", str(path))
    path.chmod(0o755)
    if os.geteuid() == 0:  # else all that is there is one's own
        assert arkqueue("hook", "install", str(path)).code == 0
        refused("install", str(path))
        refused("uninstall", str(path))


def test_repository_that_this_user_may_not_enter_is_told(open_folder: Path) -> None:
    for name in ("svn", "svn/trunk", "git"):
        (open_folder / "locked" / name).mkdir(parents=True, exist_ok=True)
    (open_folder / "locked").chmod(0o700 if os.geteuid() == 0 else 0)
    for name in ("svn", "svn/trunk", "git"):
        path = open_folder / "locked" / name
        done = cli_of_ordinary_user("hook", "uninstall", str(path))
        assert done.returncode == 1
        assert re.fullmatch(
            f"arkqueue: {path}: the user \\S+ may not read it. Let that user read it, and enter the folders above it.\n",
            done.stderr,
        )
    (open_folder / "locked").chmod(0o700)
