"""Tasks that commit with the credentials of the configuration, and how these get to them: in files,
for one repository.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from arkqueue.config import Configuration
from arkqueue.model import ArchiveKind, Stream
from arkqueue.repository import Handover, locate
from arkqueue.repository.credentials import hand_to_git
from arkqueue.repository.opening import open_registered
from tests.builders import AnArchive
from tests.repositories import a_git_repository, a_subversion_repository
from tests.repositories import run as program
from tests.system.task_manager.boxes import Boxes, boxes
from tests.system.task_manager.conftest import Managers, log_of, settled
from tests.system.task_manager.test_checkouts import commit, run, watch

__all__ = ["boxes"]

WORD = "pass word'\"%@:/"


def credentials(url: str) -> list[dict[str, str]]:
    return [{"url": url, "username": "bob", "password": WORD}]


@pytest.mark.parametrize("readers", ["bob alone", "everybody"])
def test_svn_of_a_task_commits_with_the_password_of_the_configuration(
    archive: AnArchive, managers: Managers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, readers: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    repository, other = a_subversion_repository(tmp_path), a_subversion_repository(tmp_path, "other")
    with repository.served(users={"bob": WORD}) as server, other.served(users={"bob": WORD}) as elsewhere:
        if readers == "everybody":
            conf = repository.path / "conf" / "svnserve.conf"
            conf.write_text(conf.read_text().replace("anon-access = none", "anon-access = read"))
        watch(archive, repository)
        archive.sql("update archive set settings = settings || jsonb_build_object('task_url', %s::text)", server.url)
        text = (
            "echo new > made.txt && svn add -q made.txt && svn commit -q -m Make; env; ps axww;"
            f"svn ls --non-interactive {shlex.quote(elsewhere.url)} || echo refused"
        )
        commit(archive, repository, {"a.txt": "a"}, {"task": run(text, checkout="working-copy")})
        managers(credentials=credentials(server.url))
        settled(archive, "task@2", "completed")
    said = log_of(archive, "task@2", Stream.STDOUT)
    assert said.endswith("refused\n")
    assert WORD not in said
    opened = open_registered(Configuration.load({}, home=tmp_path / "h"), repository.url, ArchiveKind.SUBVERSION)
    made = opened.advance("", None, opened.heads()[""]).revisions[-1]
    assert made.author == "bob"
    assert made.origin is not None
    assert made.origin.task == "papers@2/task"


def test_container_finds_the_credentials_of_its_repository_in_files_of_its_own(
    archive: AnArchive, boxes: Boxes, managers: Managers, tmp_path: Path
) -> None:
    repository = a_subversion_repository(tmp_path)
    with repository.served(users={"bob": WORD}) as server:
        watch(archive, repository)
        archive.sql("update archive set settings = settings || jsonb_build_object('task_url', %s::text)", server.url)
        text = (
            "env; which svn; cd /arkqueue && ls -ln subversion/auth/svn.simple && cat subversion/auth/svn.simple/*;"
            "grep -o 'config-dir.*arkqueue/subversion' $(which svn) || grep settings= $(which svn)"
        )
        commit(archive, repository, {"a.txt": "a"}, {"task": boxes.task(text, checkout="working-copy", user="builder")})
        managers(credentials=credentials(server.url), **boxes.settings)
        settled(archive, "task@2", "completed")
    said = log_of(archive, "task@2", Stream.STDOUT)
    variables, _, files = said.partition("/workspace/.svn/arkqueue/svn\n")
    assert "PATH=/workspace/.svn/arkqueue:/" in variables
    assert WORD not in variables
    assert "-rw------- 1 1000 100" in " ".join(files.split())
    assert f"\n{WORD}\n" in files
    assert "settings=/arkqueue/subversion" in files


def test_git_of_a_task_is_given_the_password_for_its_origin_alone(tmp_path: Path) -> None:
    """What git itself answers when it is asked as a push would ask it."""
    repository = a_git_repository(tmp_path)
    repository.commit({"a.txt": "a"})
    (tmp_path / "files").mkdir()
    location = locate("https://forge.invalid:8443/bob/papers.git", username="bob", password=WORD)
    hand_to_git(location, repository.work, Handover(tmp_path / "files", tmp_path / "files"))
    assert (tmp_path / "files" / "git-credentials").stat().st_mode & 0o777 == 0o600

    def asked(url: str) -> str:
        text = f"printf 'url=%s\\n\\n' {url} | GIT_TERMINAL_PROMPT=0 GIT_ASKPASS= git -C {repository.work} credential fill || true"
        return str(program("sh", "-c", text))

    assert f"password={WORD}\n" in asked("https://forge.invalid:8443/bob/papers.git")
    for other in ("https://forge.invalid:8443/eve/papers.git", "https://evil.invalid/bob/papers.git"):
        assert "password=" not in asked(other)
