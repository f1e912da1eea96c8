"""Hooks of the user, in any language, keep working through the installation, renewal and removal of
arkqueue's hooks.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from arkqueue import hooks
from arkqueue.errors import Conflict
from tests.repositories import GitRepository, SubversionRepository, a_git_repository, a_subversion_repository, run
from tests.system.conftest import Checker
from tests.system.hooks.conftest import TOKEN, Receiver


@pytest.fixture
def subversion(tmp_path: Path) -> SubversionRepository:
    return a_subversion_repository(tmp_path)


@pytest.fixture
def git(tmp_path: Path) -> GitRepository:
    return a_git_repository(tmp_path)


def a_program(path: Path, text: str, mode: int = 0o755) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def a_witness(path: Path, said: Path, ending: str = "") -> Path:
    """A hook in Python that writes down all that it was given, but for what every shell adds to an environment."""
    return a_program(
        path,
        f"#!{sys.executable} -S\n"
        "import os, sys\n"
        f"with open({str(said)!r}, 'a') as file:\n"
        "    print(sys.argv[1:], sys.stdin.read(), sorted({*os.environ} - {'PWD', 'OLDPWD', 'SHLVL', '_'}), os.getcwd(), os.path.dirname(sys.argv[0]), file=file)\n"
        f"{ending}\n",
    )


def push_raw(git: GitRepository, *refs: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", "-C", str(git.work), "push", "origin", *refs], capture_output=True, text=True, check=False
    )


def test_subversion_hook_gets_what_it_got_before(
    subversion: SubversionRepository, receiver: Receiver, tmp_path: Path
) -> None:
    said = tmp_path / "said"
    a_witness(subversion.path / "hooks" / "post-commit", said)
    subversion.mkdir("a")
    before = said.read_text()
    said.unlink()
    done = hooks.install(subversion.path, server=receiver.url, token=TOKEN)
    assert any("your post-commit is now post-commit.user" in note for note in done.notes)
    subversion.mkdir("b")
    assert said.read_text() == before.replace("'1', '0-0'", "'2', '1-1'")
    assert receiver.told()["revision"] == 2


@pytest.mark.parametrize("count", [1, 2, 3, 40])
@pytest.mark.parametrize("hook", ["pre-receive", "post-receive"])
def test_git_hook_gets_what_it_got_before(
    git: GitRepository, receiver: Receiver, checker: Checker, tmp_path: Path, count: int, hook: str
) -> None:
    said = tmp_path / "said"
    a_witness(git.path / "hooks" / hook, said)
    git.commit({"a": "1"}, push=False)
    refs = [f"main:refs/heads/b{number:03}" for number in range(count)]
    git.push(*refs)
    before = said.read_text()
    said.unlink()
    git.push("--delete", *(ref.removeprefix("main:") for ref in refs))
    said.unlink()
    hooks.install(git.path, server=receiver.url, token=TOKEN, check=hook == "pre-receive", checker=checker.path)
    git.push(*refs)
    assert said.read_text() == before
    assert before.count("refs/heads/") == count
    assert receiver.told()["repository"] == str(git.path)


def test_git_hook_need_not_read(git: GitRepository, receiver: Receiver) -> None:
    a_program(git.path / "hooks" / "post-receive", "#!/bin/sh\nexec 0<&-\necho heard\n")
    hooks.install(git.path, server=receiver.url, token=TOKEN)
    git.commit({"a": "1"}, push=False)
    done = push_raw(git, *(f"main:refs/heads/b{number}" for number in range(3000)))
    assert done.returncode == 0
    said = [line.strip() for line in done.stderr.splitlines() if line.startswith("remote:")]
    assert said == ["remote: heard"]


def test_failing_hook_fails_as_before(
    subversion: SubversionRepository, git: GitRepository, receiver: Receiver, checker: Checker
) -> None:
    a_program(subversion.path / "hooks" / "post-commit", "#!/bin/sh\necho 'no mail' >&2\nexit 3\n")
    a_program(subversion.path / "hooks" / "pre-commit", "#!/bin/sh\necho 'no message' >&2\nexit 4\n")
    a_program(git.path / "hooks" / "pre-receive", "#!/bin/sh\ngrep -q topic && { echo 'no topics'; exit 5; }\nexit 0\n")
    for path in (subversion.path, git.path):
        hooks.install(path, server=receiver.url, token=TOKEN, check=True, checker=checker.path)
    command = ["svn", "mkdir", "-m", "", f"{subversion.url}/a"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "pre-commit hook (exit code 4)" in refused.stderr
    assert "no message" in refused.stderr
    (subversion.path / "hooks" / "pre-commit.user").unlink()
    warned = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "post-commit hook failed (exit code 3) with output:\nno mail" in warned.stdout + warned.stderr
    assert receiver.told()["revision"] == 1
    git.commit({"a": "1"})
    git.switch("topic")
    refused = push_raw(git, "topic")
    assert refused.returncode == 1
    assert "remote: no topics" in refused.stderr


def test_hook_that_is_not_executable_is_not_begun_to_be_run(git: GitRepository, receiver: Receiver) -> None:
    hook = a_program(git.path / "hooks" / "post-receive", "#!/bin/sh\necho heard\n", 0o644)
    done = hooks.install(git.path, server=receiver.url, token=TOKEN)
    assert any("is not executable" in note for note in done.notes)
    git.commit({"a": "1"}, push=False)
    assert "remote:" not in push_raw(git, "main").stderr
    hooks.uninstall(git.path)
    assert hook.stat().st_mode & 0o777 == 0o644


def test_symlinked_hook_goes_on_to_lead_where_it_led(git: GitRepository, receiver: Receiver, tmp_path: Path) -> None:
    target = a_program(tmp_path / "shared", '#!/bin/sh\necho "heard in ${0%/*}"\n')
    hook = git.path / "hooks" / "post-receive"
    hook.symlink_to("../../shared")
    hooks.install(git.path, server=receiver.url, token=TOKEN)
    git.commit({"a": "1"}, push=False)
    assert "heard in hooks" in push_raw(git, "main").stderr
    assert target.read_text().startswith("#!/bin/sh\necho")
    hooks.uninstall(git.path)
    assert os.readlink(hook) == "../../shared"


def test_installing_again_renews_ours_and_keeps_theirs(subversion: SubversionRepository, receiver: Receiver) -> None:
    folder = subversion.path / "hooks"
    theirs = "#!/bin/sh\nexit 0\n"
    a_program(folder / "post-commit", theirs)
    first = hooks.install(subversion.path, server="http://127.0.0.1:1", token=TOKEN)
    ours = (folder / "post-commit").read_text()
    a_program(folder / "post-commit", ours + "echo an earlier version\n")
    again = hooks.install(subversion.path, server=receiver.url, token="another")
    assert again.hooks == first.hooks
    assert (folder / "post-commit").read_text() == ours
    assert (folder / "post-commit.user").read_text() == theirs
    subversion.mkdir("a")
    assert receiver.next().headers["Authorization"] == "Bearer another"


def test_checking_hook_stays_when_installed_again_without_it(
    subversion: SubversionRepository, receiver: Receiver, checker: Checker
) -> None:
    hooks.install(subversion.path, server=receiver.url, token=TOKEN, check=True, checker=checker.path)
    again = hooks.install(subversion.path, server=receiver.url, token=TOKEN, checker=checker.path)
    assert [path.name for path in again.hooks] == ["post-commit", "pre-commit"]


def test_uninstall_leaves_what_was_there(git: GitRepository, receiver: Receiver, checker: Checker) -> None:
    def contents() -> dict[str, object]:
        found = [path for path in git.path.rglob("*") if path.is_file()]
        return {str(path): (path.read_bytes(), path.stat().st_mode) for path in found}

    a_program(git.path / "hooks" / "post-receive", "#!/bin/sh\nexit 0\n")
    before = contents()
    hooks.install(git.path, server=receiver.url, token=TOKEN, check=True, checker=checker.path)
    assert contents() != before
    removed = hooks.uninstall(git.path).paths
    assert contents() == before
    assert {path.name for path in removed} == {"post-receive", "pre-receive", "arkqueue"}
    assert hooks.uninstall(git.path).paths == ()


def test_hook_that_replaced_ours_is_not_lost(subversion: SubversionRepository, receiver: Receiver) -> None:
    folder = subversion.path / "hooks"
    a_program(folder / "post-commit", "#!/bin/sh\n# first\n")
    hooks.install(subversion.path, server=receiver.url, token=TOKEN)
    a_program(folder / "post-commit", "#!/bin/sh\n# second\n")
    with pytest.raises(Conflict, match=r"post-commit\.user exists too"):
        hooks.install(subversion.path, server=receiver.url, token=TOKEN)
    assert "second" in (folder / "post-commit").read_text()
    assert "first" in (folder / "post-commit.user").read_text()


def test_hooks_never_come_to_call_each_other_for_ever(git: GitRepository, receiver: Receiver) -> None:
    """As the program `pre-commit` does: it renames what it finds and goes on to call it."""
    folder = git.path / "hooks"
    hooks.install(git.path, server=receiver.url, token=TOKEN)
    (folder / "post-receive").rename(folder / "post-receive.legacy")
    a_program(folder / "post-receive", '#!/bin/sh\nexec "$0.legacy" "$@"\n')
    with pytest.raises(Conflict, match=r"arkqueue's is now post-receive\.legacy"):
        hooks.install(git.path, server=receiver.url, token=TOKEN)
    new = git.commit({"a": "1"})
    assert receiver.told()["new"] == new


def test_hook_that_asks_for_its_name_is_pointed_out(git: GitRepository, receiver: Receiver) -> None:
    a_program(git.path / "hooks" / "post-receive", '#!/bin/sh\nexec run-parts "$(basename "$0").d"\n')
    done = hooks.install(git.path, server=receiver.url, token=TOKEN)
    assert any("seems to ask for its own name" in note for note in done.notes)


def test_hotcopy_and_clone_carry_no_surprise(
    subversion: SubversionRepository, git: GitRepository, receiver: Receiver, tmp_path: Path
) -> None:
    for path in (subversion.path, git.path):
        hooks.install(path, server=receiver.url, token=TOKEN)
    run("svnadmin", "hotcopy", subversion.path, tmp_path / "copy")
    run("svnadmin", "verify", "-q", tmp_path / "copy")
    run("git", "clone", "-q", "--bare", git.path, tmp_path / "clone")
    assert not (tmp_path / "clone" / "arkqueue").exists()
    run("git", "-C", git.path, "fsck", "--strict")
