"""Repositories behind ssh. The program ``ssh`` of these tests goes to no other host: it runs what
it is asked to run, and writes down how it was asked.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from arkqueue.errors import ArchiveUnreachable
from arkqueue.repository import locate, open_archive
from tests.repositories import a_git_repository, a_subversion_repository

SSH = """\
#!/bin/sh
echo "$*" >> "$0.log"
while :; do
    case $1 in
        -o) shift 2 ;;
        -*) shift ;;
        *) break ;;
    esac
done
[ "$1" = ann@archives.example.org ] || { echo "Permission denied (publickey)." >&2; exit 255; }
shift
exec sh -c "$*"
"""


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "programs" / "ssh"
    program.parent.mkdir()
    program.write_text(SSH)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.delenv("SVN_SSH", raising=False)
    return program.with_suffix(".log")


def test_subversion_is_read_through_ssh(ssh: Path, tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    repository.commit({"trunk/x": "1"})
    archive = open_archive(locate(f"svn+ssh://ann@archives.example.org{repository.path}/trunk"))
    assert (archive.identity().uuid, archive.identity().folder) == (repository.uuid, "trunk")
    assert archive.heads() == {"": "1"}
    assert archive.changed_paths(None, "1") == ("x",)
    assert "svnserve -t" in ssh.read_text()
    with pytest.raises(ArchiveUnreachable, match="the server closed the connection"):
        open_archive(locate(f"svn+ssh://eve@archives.example.org{repository.path}")).heads()


@pytest.mark.parametrize("url", ["ssh://ann@archives.example.org{}", "ann@archives.example.org:{}"])
def test_git_is_mirrored_through_ssh(ssh: Path, tmp_path: Path, url: str) -> None:
    repository = a_git_repository(tmp_path)
    id = repository.commit({"x": "1"})
    archive = open_archive(locate(url.format(repository.path)), mirror=tmp_path / "mirror")
    assert archive.heads() == {"main": id}
    assert archive.changed_paths(None, id) == ("x",)
    assert "BatchMode=yes" in ssh.read_text(), "nobody is there to be asked for a password"
    refused = open_archive(locate(url.format(repository.path).replace("ann@", "eve@")), mirror=tmp_path / "other")
    with pytest.raises(ArchiveUnreachable, match="the server refuses access"):
        refused.heads()
