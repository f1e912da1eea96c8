"""Real commits and pushes tell a server of them, and are never held up by it."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arkqueue import hooks
from arkqueue.errors import Conflict, Invalid
from tests.repositories import GitRepository, a_git_repository, a_subversion_repository, run
from tests.requirements import missing
from tests.system.hooks.conftest import TOKEN, HangingServer, Receiver

ZERO = "0" * 40


def only_programs(folder: Path, *names: str) -> str:
    """A PATH that leads to these programs alone."""
    folder.mkdir()
    for name in names:
        found = shutil.which(name)
        assert found, f"{name} is needed for this test"
        (folder / name).symlink_to(found)
    return str(folder)


@pytest.fixture(params=["curl", "wget"])
def search(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return only_programs(tmp_path / "programs", request.param, "env", "setsid", "timeout", "bash")


def configuration_in(repository: Path) -> Path:
    """The client's configuration in a repository whose hooks tell one server."""
    (found,) = (repository / "arkqueue").rglob("client.conf")
    return found


def plain_repository(path: Path) -> GitRepository:
    """One in which people commit, as a `GitRepository` whose work tree is itself."""
    run("git", "init", "-q", "-b", "main", path)
    return GitRepository(path, path, "main")


# What is told


def test_subversion_commit_with_empty_environment_is_told(tmp_path: Path, receiver: Receiver, search: str) -> None:
    repository = a_subversion_repository(tmp_path)
    done = hooks.install(repository.path, server=receiver.url, token=TOKEN, search=search)
    assert done.client == ("curl" if (Path(search) / "curl").exists() else "wget")
    assert done.hooks == (repository.path / "hooks" / "post-commit",)
    svn = shutil.which("svn")
    assert svn
    subprocess.run(["/usr/bin/env", "-i", svn, "mkdir", "-q", "-m", "", f"{repository.url}/trunk"], check=True)
    notice = receiver.next()
    assert notice.path == "/api/v1/notices"
    assert notice.headers["Authorization"] == f"Bearer {TOKEN}"
    assert notice.headers["Content-Type"] == "application/json"
    assert notice.body == {"repository": repository.uuid, "revision": 1, "txn": "0-0"}


def test_commit_through_svnserve_is_told(tmp_path: Path, receiver: Receiver) -> None:
    repository = a_subversion_repository(tmp_path)
    hooks.install(repository.path, server=receiver.url, token=TOKEN)
    with repository.served() as server:
        run("svn", "mkdir", "-q", "-m", "", f"{server.url}/trunk")
        assert receiver.told() == {"repository": repository.uuid, "revision": 1, "txn": "0-0"}


def test_repository_with_a_new_uuid_tells_the_new_one(tmp_path: Path, receiver: Receiver) -> None:
    repository = a_subversion_repository(tmp_path)
    hooks.install(repository.path, server=receiver.url, token=TOKEN)
    run("svnadmin", "setuuid", repository.path)
    repository.mkdir("trunk")
    assert receiver.told()["repository"] == repository.uuid


def test_push_is_told_with_its_ref(tmp_path: Path, receiver: Receiver, search: str) -> None:
    repository = a_git_repository(tmp_path)
    done = hooks.install(repository.path, server=receiver.url, token=TOKEN, search=search)
    assert done.hooks == (repository.path / "hooks" / "post-receive",)
    new = repository.commit({"a": "1"})
    ref = {"repository": str(repository.path), "ref": "refs/heads/main"}
    assert receiver.told() == {**ref, "old": ZERO, "new": new}
    with repository.served() as server:
        repository.git("remote", "set-url", "origin", server.url)
        newer = repository.commit({"a": "2"})
        assert receiver.told() == {**ref, "old": new, "new": newer}


def test_push_of_many_refs_is_told_once(tmp_path: Path, receiver: Receiver) -> None:
    repository = a_git_repository(tmp_path)
    hooks.install(repository.path, server=receiver.url, token=TOKEN)
    repository.commit({"a": "1"}, push=False)
    for number in range(200):
        repository.git("tag", f"t{number}")
    sent = receiver.only(lambda: (repository.push("--tags", "main"), repository.commit({"a": "2"}, push=False)))
    assert sent == []
    repository.push()
    assert receiver.told()["ref"] == "refs/heads/main"


@pytest.mark.parametrize("branch", ['a"b', "ü", "a'$(b)", "a;b"])
def test_ref_that_would_need_escaping_is_left_out(tmp_path: Path, receiver: Receiver, branch: str) -> None:
    repository = a_git_repository(tmp_path)
    hooks.install(repository.path, server=receiver.url, token=TOKEN)
    repository.switch(branch)
    repository.commit({"a": "1"})
    assert receiver.told() == {"repository": str(repository.path)}


@pytest.mark.parametrize("name", ['qu"ote', "back\\slash", "a 'b' $(c)", "new\nline", "päth", "@NOTICE@"])
def test_path_of_any_characters_is_told_as_it_is(tmp_path: Path, receiver: Receiver, name: str) -> None:
    repository = a_git_repository(tmp_path, name)
    hooks.install(repository.path, server=receiver.url, token=TOKEN)
    repository.commit({"a": "1"})
    assert receiver.told()["repository"] == str(repository.path)


def test_commits_in_a_plain_repository_are_told(tmp_path: Path, receiver: Receiver) -> None:
    repository = plain_repository(tmp_path / "plain")
    told = {"repository": str(repository.path / ".git")}
    done = hooks.install(repository.path, server=receiver.url, token=TOKEN)
    assert {path.name for path in done.hooks} == {"post-commit", "post-merge", "post-rewrite", "post-receive"}
    repository.commit({"a": "1"}, push=False)
    assert receiver.told() == told
    repository.switch("topic")
    repository.commit({"b": "1"}, push=False)
    assert receiver.told() == told
    repository.switch("main")
    repository.git("merge", "-q", "--ff-only", "topic")
    assert receiver.told() == told
    repository.git("worktree", "add", "-q", str(tmp_path / "more"), "-b", "more")
    run("git", "-C", tmp_path / "more", "-c", "user.name=a", "-c", "user.email=a", "commit", "-qm", "", "--allow-empty", "--allow-empty-message")  # fmt: skip
    assert receiver.told() == told
    assert hooks.install(tmp_path / "more", server=receiver.url, token=TOKEN).hooks == done.hooks


def test_hooks_go_where_the_repository_has_them(tmp_path: Path, receiver: Receiver) -> None:
    repository = plain_repository(tmp_path / "plain")
    repository.git("config", "core.hooksPath", "tools/hooks")
    (repository.path / "tools").mkdir()
    done = hooks.install(repository.path, server=receiver.url, token=TOKEN)
    assert done.hooks[0].parent == repository.path / "tools" / "hooks"
    assert any("keep them out of commits" in note for note in done.notes)
    assert not any(TOKEN in path.read_text() for path in done.hooks)
    repository.commit({"a": "1"}, push=False)
    assert receiver.told() == {"repository": str(repository.path / ".git")}
    repository.git("config", "core.hooksPath", str(tmp_path / "shared"))
    with pytest.raises(Conflict, match="other repositories may share"):
        hooks.install(repository.path, server=receiver.url, token=TOKEN)


def test_hooks_are_not_put_where_a_link_leads_out_of_the_repository(tmp_path: Path, receiver: Receiver) -> None:
    repository = a_git_repository(tmp_path)
    shared = tmp_path / "shared"
    shared.mkdir()
    shutil.rmtree(repository.path / "hooks", ignore_errors=True)
    (repository.path / "hooks").symlink_to(shared)
    with pytest.raises(Conflict, match="which other repositories may share"):
        hooks.install(repository.path, server=receiver.url, token=TOKEN)
    assert list(shared.iterdir()) == []


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox"])
def test_hooks_run_in_every_shell(tmp_path: Path, receiver: Receiver, shell: str) -> None:
    program = shutil.which(shell)
    if program is None:
        missing(f"{shell} (Debian: apt-get install {shell})")
    command = [program, "sh"] if shell == "busybox" else [program]
    subversion, git = a_subversion_repository(tmp_path), a_git_repository(tmp_path)
    hooks.install(subversion.path, server=receiver.url, token=TOKEN)
    hooks.install(git.path, server=receiver.url, token=TOKEN)
    hook = subversion.path / "hooks" / "post-commit"
    subprocess.run([*command, str(hook), str(subversion.path), "7", "6-1a"], check=True, env={})
    assert receiver.told() == {"repository": subversion.uuid, "revision": 7, "txn": "6-1a"}
    for lines, more in [
        ("a b refs/heads/x\n", {"ref": "refs/heads/x", "old": "a", "new": "b"}),
        ("a b refs/heads/x\n" * 3, {}),
        ("", {}),
    ]:
        hook = git.path / "hooks" / "post-receive"
        subprocess.run([*command, str(hook)], input=lines.encode(), check=True, env={})
        assert receiver.told() == {"repository": str(git.path), **more}


# Nobody waits, and nobody sees the token


def commit_that_nothing_holds(command: list[str], repository: Path, server: HangingServer) -> bytes:
    """Run a commit and see that everything it passed on is closed while the notice's sender still waits for its answer."""
    reading, writing = os.pipe()
    more = f'exec 7>&{writing} 33>&{writing} 200>&{writing}; exec "$@"'
    try:
        # The commit's own output is read to its end: it has none while anyone holds it open.
        done = subprocess.run(["bash", "-c", more, "-", *command], capture_output=True, pass_fds=[writing], check=False)
        os.close(writing)
        assert done.returncode == 0, done.stderr
        assert b"arkqueue" not in done.stdout + done.stderr
        assert os.read(reading, 1) == b""  # the end, which waits for every process that holds the other side
        request = server.request()
        assert server.still_held()
        senders = processes_with(str(configuration_in(repository)))
        assert senders, "the client is still there"
        assert not processes_with(TOKEN)
        for sender in senders:
            assert os.getsid(sender) != os.getsid(0)
            assert {os.readlink(f"/proc/{sender}/fd/{number}") for number in (0, 1, 2)} == {"/dev/null"}
        return request
    finally:
        os.close(reading)


def processes_with(word: str) -> list[int]:
    """Whose command line or environment has the word in it; not this process's own."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            seen = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
        except OSError:
            continue
        if word.encode() in seen:
            found.append(int(folder.name))
    return found


def test_subversion_commit_does_not_wait_for_a_server_that_hangs(
    tmp_path: Path, hanging: HangingServer, search: str
) -> None:
    repository = a_subversion_repository(tmp_path)
    hooks.install(repository.path, server=hanging.url, token=TOKEN, search=search)
    request = commit_that_nothing_holds(
        ["svn", "mkdir", "-q", "-m", "", f"{repository.url}/a"], repository.path, hanging
    )
    assert f"Authorization: Bearer {TOKEN}".encode() in request


def test_svnserve_does_not_wait_for_a_server_that_hangs(tmp_path: Path, hanging: HangingServer) -> None:
    repository = a_subversion_repository(tmp_path)
    hooks.install(repository.path, server=hanging.url, token=TOKEN)
    with repository.served() as server:
        commit_that_nothing_holds(["svn", "mkdir", "-q", "-m", "", f"{server.url}/a"], repository.path, hanging)


@pytest.mark.parametrize("way", ["path", "daemon"])
def test_push_does_not_wait_for_a_server_that_hangs(tmp_path: Path, hanging: HangingServer, way: str) -> None:
    repository = a_git_repository(tmp_path)
    hooks.install(repository.path, server=hanging.url, token=TOKEN)
    repository.commit({"a": "1"}, push=False)
    with repository.served() as server:
        url = server.url if way == "daemon" else str(repository.path)
        commit_that_nothing_holds(
            ["git", "-C", str(repository.work), "push", "-q", url, "main"], repository.path, hanging
        )


def test_commit_does_not_notice_that_the_server_is_down(tmp_path: Path, nobody: str, search: str) -> None:
    subversion, git = a_subversion_repository(tmp_path), a_git_repository(tmp_path)
    for path in (subversion.path, git.path):
        hooks.install(path, server=nobody, token=TOKEN, search=search)
    said = subprocess.run(["svn", "mkdir", "-m", "", f"{subversion.url}/a"], capture_output=True, check=True)
    assert said.stderr == b""
    git.commit({"a": "1"}, push=False)
    said = subprocess.run(["git", "-C", str(git.work), "push", "-q", "origin", "main"], capture_output=True, check=True)
    assert said.stdout + said.stderr == b""


def test_commit_does_not_notice_that_all_of_ours_is_gone(tmp_path: Path, nobody: str) -> None:
    search = only_programs(tmp_path / "programs", "curl", "env", "setsid", "bash")
    repository = a_subversion_repository(tmp_path)
    hooks.install(repository.path, server=nobody, token=TOKEN, search=search)
    shutil.rmtree(search)
    shutil.rmtree(repository.path / "arkqueue")
    said = subprocess.run(["svn", "mkdir", "-m", "", f"{repository.url}/a"], capture_output=True, check=True)
    assert said.stderr == b""


# Several servers


@pytest.mark.parametrize("make", [a_subversion_repository, a_git_repository])
def test_each_server_is_told_by_its_own_name_and_token(
    tmp_path: Path, receiver: Receiver, second_receiver: Receiver, search: str, make: Callable[[Path], Any]
) -> None:
    repository = make(tmp_path)
    hooks.install(repository.path, server=receiver.url, token="first", search=search)
    url = "https://example.org/papers.git"
    done = hooks.install(repository.path, server=second_receiver.url, token="second", url=url, search=search)
    assert any(note.startswith(f"the hooks still notify {receiver.url} of commits") for note in done.notes)
    repository.commit({"a": "1"})
    first, second = receiver.next(), second_receiver.next()
    assert first.headers["Authorization"] == "Bearer first"
    assert second.headers["Authorization"] == "Bearer second"
    if make is a_git_repository:
        assert first.body["repository"] == str(repository.path)
        assert second.body == {**first.body, "repository": url}
    else:
        assert first.body == second.body == {"repository": repository.uuid, "revision": 1, "txn": "0-0"}


def test_server_that_hangs_holds_up_no_other(
    tmp_path: Path, receiver: Receiver, second_receiver: Receiver, hanging: HangingServer
) -> None:
    repository = a_subversion_repository(tmp_path)
    for server in (receiver.url, hanging.url, second_receiver.url):
        hooks.install(repository.path, server=server, token=TOKEN)
    repository.mkdir("trunk")
    hanging.request()
    for other in (receiver, second_receiver):
        assert other.told()["revision"] == 1
    assert hanging.still_held()


def test_server_is_told_no_more_when_its_notices_are_ended(
    tmp_path: Path, receiver: Receiver, second_receiver: Receiver
) -> None:
    repository = a_git_repository(tmp_path)
    for server in (receiver.url, second_receiver.url):
        hooks.install(repository.path, server=server, token=TOKEN)
    done = hooks.uninstall(repository.path, server=f"{receiver.url}/")
    assert (done.servers, done.left) == ((receiver.url,), (second_receiver.url,))
    with pytest.raises(Invalid, match=f"notify {second_receiver.url}"):
        hooks.uninstall(repository.path, server=receiver.url)
    repository.commit({"a": "1"})
    assert second_receiver.told()["ref"] == "refs/heads/main"
    assert hooks.install(repository.path, server=receiver.url, token=TOKEN).notes != ()
    repository.commit({"a": "2"})
    assert receiver.told()["old"] != ZERO, "the first commit was not told"
    done = hooks.uninstall(repository.path, server=second_receiver.url)
    assert done.paths == (repository.path / "arkqueue/servers" / second_receiver.url.replace("/", "%2F"),)
    done = hooks.uninstall(repository.path, server=receiver.url)
    assert repository.path / "arkqueue" in done.paths


@pytest.mark.parametrize("client", ["curl", "wget"])
def test_server_of_an_earlier_version_is_said_to_be_told_no_more(
    tmp_path: Path, receiver: Receiver, client: str
) -> None:
    """Its hooks had room for one server."""
    repository = a_subversion_repository(tmp_path)
    ours = repository.path / "arkqueue"
    ours.mkdir()
    url = "http://former:8417/api/v1/notices"
    (ours / "client.conf").write_text('header = "x"\n' + (f'url = "{url}"\n' if client == "curl" else ""))
    (ours / "notify").write_text("#!/bin/sh\n" + (f"exec wget -q {url} --post-data\n" if client == "wget" else ""))
    done = hooks.install(repository.path, server=receiver.url, token=TOKEN)
    assert any(
        note.startswith("the hooks notified http://former:8417 of commits, and no longer do") for note in done.notes
    )
    assert not (ours / "client.conf").exists()
    assert hooks.install(repository.path, server=receiver.url, token=TOKEN).notes == ()


# Installation


def test_without_a_client_it_says_sweep_only(tmp_path: Path, nobody: str) -> None:
    repository = a_subversion_repository(tmp_path)
    done = hooks.install(
        repository.path, server=nobody, token=TOKEN, search=only_programs(tmp_path / "programs", "env", "bash")
    )
    assert done.client is None
    assert done.hooks == ()
    assert "scan only" in done.notes[0]
    assert not (repository.path / "hooks" / "post-commit").exists()


def test_wget_that_would_need_the_token_as_an_argument_is_no_client(tmp_path: Path, nobody: str) -> None:
    search = tmp_path / "programs"
    search.mkdir()
    (search / "wget").write_text("#!/bin/sh\necho 'BusyBox v1.35.0 multi-call binary.' >&2\nexit 1\n")
    (search / "wget").chmod(0o755)
    repository = a_subversion_repository(tmp_path)
    assert hooks.install(repository.path, server=nobody, token=TOKEN, search=str(search)).client is None


@pytest.mark.parametrize(("data", "expected"), [(0o755, 0o600), (0o2775, 0o640), (0o777, 0o640)])
def test_token_is_for_those_who_may_commit(tmp_path: Path, nobody: str, data: int, expected: int) -> None:
    repository = a_subversion_repository(tmp_path)
    (repository.path / "db").chmod(data)
    done = hooks.install(repository.path, server=nobody, token=TOKEN)
    mode = stat.S_IMODE(configuration_in(repository.path).stat().st_mode)
    assert mode == expected
    assert any("everyone may write" in note for note in done.notes) == (data == 0o777)


@pytest.mark.usefixtures("root")
def test_what_root_installs_belongs_to_the_repository_s_owner(open_folder: Path, nobody: str) -> None:
    repository = a_subversion_repository(open_folder)
    run("chown", "-R", "65534:65534", repository.path)
    done = hooks.install(repository.path, server=nobody, token=TOKEN)
    for path in (*done.hooks, *(repository.path / "arkqueue").rglob("*"), repository.path / "arkqueue"):
        assert (path.stat().st_uid, path.stat().st_gid) == (65534, 65534)
    assert os.geteuid() == 0


@pytest.mark.usefixtures("root")
def test_group_that_the_owner_is_not_in_is_said_to_have_no_token(open_folder: Path, nobody: str) -> None:
    repository = a_subversion_repository(open_folder)
    run("chmod", "-R", "g+w", repository.path)
    run("chown", "-R", "65534:0", repository.path)
    done = hooks.install(repository.path, server=nobody, token=TOKEN)
    assert any("is not readable for the repository's group" in note for note in done.notes)
    assert stat.S_IMODE(configuration_in(repository.path).stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "server", ["ftp://host", "http://", 'http://a"b', "http://h/\nurl=x", "host:80", "http://h/@x"]
)
def test_what_is_no_server_is_refused(tmp_path: Path, server: str) -> None:
    repository = a_subversion_repository(tmp_path)
    with pytest.raises(Invalid, match="is not the address of a server"):
        hooks.install(repository.path, server=server, token=TOKEN)
    with pytest.raises(Invalid, match="no token has"):
        hooks.install(repository.path, server="http://h", token='x"\nurl = "http://elsewhere')
    assert not (repository.path / "arkqueue").exists()


def test_repository_of_another_host_is_answered_with_what_to_do_there(nobody: str) -> None:
    with pytest.raises(Invalid, match=r"another host.*arkqueue hook install PATH --server"):
        hooks.install("svn://example.org/papers", server=nobody, token=TOKEN)


def test_symlink_in_place_of_our_folder_is_refused(tmp_path: Path, nobody: str) -> None:
    repository = a_subversion_repository(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (repository.path / "arkqueue").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Conflict, match="is a symlink"):
        hooks.install(repository.path, server=nobody, token=TOKEN)
    assert not list((tmp_path / "elsewhere").iterdir())
