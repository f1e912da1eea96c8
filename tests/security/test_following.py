"""I commit externals and submodules that are to lead somewhere else, to run something, or never to
end.
"""

from __future__ import annotations

import os
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from arkqueue.errors import ArkqueueError, WorkspaceError
from arkqueue.repository.following import allowance
from arkqueue.repository.limits import DEEPEST_FOLLOWED
from tests.repositories import GitRepository, Link, SubversionRepository, a_git_repository, a_subversion_repository, run
from tests.security.conftest import Site
from tests.system.end_to_end.installation import tasks
from tests.system.repository.test_following import an_lfs_server, files_of, git_copy, svn_copy


def linked(papers: GitRepository, commit: str, path: str, url: str, name: str = "lib", more: str = "") -> None:
    """A submodule as no git makes one."""
    (papers.work / ".gitmodules").write_text(f'[submodule "{name}"]\n\tpath = {path}\n\turl = {url}\n{more}')
    papers.git("add", "--all")
    papers.git("update-index", "--add", "--cacheinfo", f"160000,{commit},{path}")
    papers.git("commit", "-qm", "link")
    papers.push()


@pytest.fixture
def victim(tmp_path: Path) -> GitRepository:
    """A repository of this host that is not mine."""
    repository = a_git_repository(tmp_path, "victim")
    repository.commit({"secret": "s"})
    return repository


def propset_unseen(svn: SubversionRepository, value: str, folder: str) -> None:
    """Set svn:externals by a client that does not look at the value."""
    from arkqueue.repository.subversion.library import ra

    session = ra.RemoteAccess(svn.url, auth=ra.Auth([ra.get_username_provider()]))
    editor = session.get_commit_editor({"svn:log": ""})
    root = editor.open_root()
    opened = root.open_directory(folder, -1)
    opened.change_prop("svn:externals", value)
    opened.close()
    root.close()
    editor.close()


@contextmanager
def redirecting(to: str) -> Iterator[tuple[str, list[str]]]:
    """The URL of an allowed server that sends everybody elsewhere, and what it was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def _redirect(self) -> None:
            asked.append(self.path)
            self.send_response(301)
            self.send_header("Location", to + self.path)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST = do_OPTIONS = _redirect

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    "url", ["{path}", "file://{path}", "../victim.git", "./../victim.git", "ext::git-upload-pack {path}"]
)
def test_i_name_a_repository_of_the_host(tmp_path: Path, victim: GitRepository, url: str) -> None:
    papers = a_git_repository(tmp_path, "papers")
    linked(papers, victim.id(), "lib", url.format(path=victim.path))
    everything = ("https://x", str(victim.path), f"file://{victim.path}", "/", "file:///", "^/", "../")
    done = git_copy(str(papers.path), papers, tmp_path / "copy", *everything)
    assert files_of(tmp_path / "copy") == []
    assert len(done.notes) == 1
    assert done.wanted == ()


@pytest.mark.parametrize("name", ["../../../escaped", "..", "a/../../../hooks", ".git", "a//b", "../hooks"])
def test_i_name_a_submodule_so_that_it_lies_elsewhere(tmp_path: Path, victim: GitRepository, name: str) -> None:
    papers = a_git_repository(tmp_path, "papers")
    with victim.served() as server:
        linked(papers, victim.id(), "lib", server.url, name)
        before = sorted(os.listdir(tmp_path))
        done = git_copy(str(papers.path), papers, tmp_path / "copy", server.url)
        assert done.notes == (f"submodule lib is not followed: {server.url}: its name is not a valid path",)
        assert sorted({*os.listdir(tmp_path)} - {"copy"}) == before


@pytest.mark.parametrize("name", ["%f x", "a'%f", '"$(touch pwned)"', "$(touch pwned)", "a;touch pwned;"])
def test_i_name_a_submodule_and_a_file_of_it_like_commands(tmp_path: Path, name: str) -> None:
    """git starts a shell to put the files of Git LFS in their places."""
    papers, lib = a_git_repository(tmp_path, "papers"), a_git_repository(tmp_path, "lib")
    with an_lfs_server() as lfs, lib.served() as server:
        odd = ["$(touch pwned).bin", "`touch pwned`.bin", "';touch pwned;'.bin", "%f.bin"]
        lib.commit({
            ".lfsconfig": f"[lfs]\n\turl = {lfs.url}/lib\n",
            ".gitattributes": "*.bin filter=lfs\n",
            **{path: lfs.put(path.encode()) for path in odd},
        })  # fmt: skip
        linked(papers, lib.id(), "s", server.url, name.replace('"', '\\"'))
        done = git_copy(str(papers.path), papers, tmp_path / "copy", server.url, lfs.url)
    assert done.notes == ()
    assert {path: (tmp_path / "copy" / "s" / path).read_bytes() for path in odd} == {p: p.encode() for p in odd}
    assert not list(tmp_path.rglob("pwned"))


def test_i_put_one_submodule_into_the_hooks_of_another(tmp_path: Path, victim: GitRepository) -> None:
    papers = a_git_repository(tmp_path, "papers")
    with victim.served() as server:
        more = f'[submodule "lib/hooks"]\n\tpath = z\n\turl = {server.url}\n'
        papers.git("update-index", "--add", "--cacheinfo", f"160000,{victim.id()},z")
        linked(papers, victim.id(), "lib", server.url, more=more)
        papers.git("update-index", "--add", "--cacheinfo", f"160000,{victim.id()},z")
        papers.git("commit", "-qm", "z")
        papers.push()
        done = git_copy(str(papers.path), papers, tmp_path / "copy", server.url)
        assert files_of(tmp_path / "copy") == ["lib/secret"]
        assert done.notes == (
            f"submodule z is not followed: {server.url}: its name is within that of another submodule",
        )


def test_i_name_a_submodule_so_that_git_repeats_the_name(tmp_path: Path, victim: GitRepository) -> None:
    """git prints the whole name before each line of a submodule: 200 MB for 0.1 MB here."""
    papers = a_git_repository(tmp_path, "papers")
    with victim.served() as server:
        linked(papers, victim.id(), "lib", server.url, 20_000 * "n", 10_000 * "\tpath=x\n")
        tracemalloc.start()
        try:
            done = git_copy(str(papers.path), papers, tmp_path / "copy", server.url)
            assert tracemalloc.get_traced_memory()[1] < 2**25
        finally:
            tracemalloc.stop()
    assert done.notes == ("submodule lib is not followed: no usable .gitmodules names it",)


def test_i_have_git_run_my_program(tmp_path: Path, victim: GitRepository) -> None:
    """By each setting of a .gitmodules that names one, by a hook, and by a filter."""
    victim.commit(
        {
            "hooks/post-checkout": "#!/bin/sh\ntouch ../pwned\n",
            ".gitattributes": "* filter=evil\n",
            ".lfsconfig": '[filter "evil"]\n\tsmudge = touch pwned\n',
        }
    )
    papers = a_git_repository(tmp_path, "papers")
    with victim.served() as server:
        more = "\tupdate = !touch pwned\n[core]\n\tsshCommand = touch pwned\n\tfsmonitor = touch pwned\n[include]\n\tpath = /dev/zero\n"
        linked(papers, victim.id(), "lib", server.url, more=more)
        git_copy(str(papers.path), papers, tmp_path / "copy", server.url)
    assert (tmp_path / "copy" / "lib" / "secret").exists()
    assert list(tmp_path.rglob("pwned")) == []


def test_i_have_an_allowed_server_send_git_elsewhere(tmp_path: Path, victim: GitRepository) -> None:
    papers = a_git_repository(tmp_path, "papers")
    with redirecting("http://127.0.0.1:1") as (elsewhere, reached), redirecting(elsewhere) as (url, asked):
        linked(papers, victim.id(), "lib", f"{url}/lib.git")
        with pytest.raises(ArkqueueError, match="submodule lib"):
            git_copy(str(papers.path), papers, tmp_path / "copy", url)
    assert asked == ["/lib.git/info/refs?service=git-upload-pack"]
    assert reached == []


def test_i_have_an_allowed_server_send_subversion_elsewhere(tmp_path: Path) -> None:
    svn = a_subversion_repository(tmp_path)
    svn.commit({"a": "1"})
    with redirecting("http://127.0.0.1:1") as (elsewhere, reached), redirecting(elsewhere) as (url, asked):
        svn.propset("svn:externals", f"{url}/lib@1 lib", "")
        with pytest.raises(ArkqueueError, match=r"external lib: .*has moved to http://127.0.0.1:"):
            svn_copy(svn.url, "2", tmp_path / "copy", url)
    assert asked
    assert reached == []


@pytest.mark.parametrize(
    "target", ["link/x", "link", "a", "d/../../x", "../x", ".svn/x", ".SVN", ".git/hooks", "/tmp/x", "d/link/x", "."]
)
def test_i_lead_an_external_out_of_the_workspace(tmp_path: Path, target: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    svn = a_subversion_repository(tmp_path)
    svn.commit({"trunk/a": "1", "trunk/link": Link(str(outside)), "trunk/d/link": Link(".."), "lib/x": "1"})
    propset_unseen(svn, f"^/lib@1 {target}", "trunk")
    done = svn_copy(f"{svn.url}/trunk", "2", tmp_path / "copy", "^/lib")
    assert files_of(tmp_path / "copy") == ["a", "d/link", "link"]
    assert os.listdir(outside) == []
    assert len(done.notes) == 1


def test_i_lead_a_file_through_a_symlink_that_comes_after_it(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    svn = a_subversion_repository(tmp_path)
    svn.commit({"trunk/a": "1", "lib/out": Link(str(outside)), "f": "f"})
    svn.propset("svn:externals", "^/f@1 lib/out/f\n^/lib@1 lib", "trunk")
    with pytest.raises(WorkspaceError, match="external lib/out/f: its folder leads through a symlink"):
        svn_copy(f"{svn.url}/trunk", "2", tmp_path / "copy", "^/")
    assert os.listdir(outside) == []


def test_i_mix_what_svn_refuses_with_what_is_allowed(tmp_path: Path) -> None:
    other = a_subversion_repository(tmp_path, "other")
    other.commit({"secret": "s"})
    svn = a_subversion_repository(tmp_path)
    svn.commit({"trunk/a": "1", "lib/x": "1", "f": "f"})
    propset_unseen(svn, f"^/lib@1 lib\n{other.url}@1 ../out\n{other.url} secret\n^/f@1 f", "trunk")
    done = svn_copy(f"{svn.url}/trunk", "2", tmp_path / "copy", "^/")
    assert files_of(tmp_path / "copy") == ["a", "lib/x"]
    assert len(done.notes) == 3
    assert not [
        line for line in run("svn", "status", tmp_path / "copy").split("\n") if line.startswith(("M", " M", "!"))
    ]


def test_i_lead_an_external_through_a_symlink_of_another(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    svn = a_subversion_repository(tmp_path)
    svn.commit({"trunk/a": "1", "lib/out": Link(str(outside)), "lib2/x": "1"})
    svn.propset("svn:externals", "^/lib@1 lib\n^/lib2@1 lib/out/x", "trunk")
    done = svn_copy(f"{svn.url}/trunk", "2", tmp_path / "copy", "^/")
    assert os.listdir(outside) == []
    assert done.notes == ("external lib/out/x is not followed: ^/lib2: its folder leads through a symlink or a file",)


@pytest.mark.parametrize("url", ["{other}", "^/../other", "../../other", "{other}/lib"])
def test_i_name_another_subversion_repository_of_the_host(tmp_path: Path, url: str) -> None:
    other = a_subversion_repository(tmp_path, "other")
    other.commit({"lib/secret": "s"})
    svn = a_subversion_repository(tmp_path)
    svn.commit({"trunk/a": "1"})
    svn.propset("svn:externals", f"{url.format(other=other.url)}@1 lib", "trunk")
    done = svn_copy(f"{svn.url}/trunk", "2", tmp_path / "copy", "^/", other.url, "/")
    assert files_of(tmp_path / "copy") == ["a"]
    assert "it is a path of this host outside the archive's repository" in done.notes[0]
    assert done.wanted == ()


def test_i_refer_to_myself_without_end(tmp_path: Path) -> None:
    svn = a_subversion_repository(tmp_path)
    svn.commit({"trunk/a": "1"})
    svn.propset("svn:externals", "^/trunk again", "trunk")
    with pytest.raises(WorkspaceError, match=f"more than {DEEPEST_FOLLOWED}"):
        svn_copy(f"{svn.url}/trunk", "2", tmp_path / "copy", "^/")


def test_i_refer_to_more_than_may_be_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowance, "MOST_FOLLOWED", 5)
    svn = a_subversion_repository(tmp_path)
    svn.commit({"trunk/a": "1", "lib/x": "1"})
    svn.propset("svn:externals", "\n".join(f"^/lib@1 {number}" for number in range(6)), "trunk")
    with pytest.raises(WorkspaceError, match="one of more than 5"):
        svn_copy(f"{svn.url}/trunk", "2", tmp_path / "copy", "^/")


@pytest.mark.parametrize("is_packed", [False, True], ids=["as it comes", "when it is unpacked"])
def test_i_fill_the_disk_with_a_submodule(
    tmp_path: Path, victim: GitRepository, monkeypatch: pytest.MonkeyPatch, *, is_packed: bool
) -> None:
    limit = 2**19 + 100
    monkeypatch.setattr(allowance, "MOST_FOLLOWED_BYTES", limit)
    papers = a_git_repository(tmp_path, "papers")
    victim.commit({"large": bytes(2**20) if is_packed else os.urandom(2**20)})
    with victim.served() as server:
        linked(papers, victim.id(), "lib", server.url)
        with pytest.raises(WorkspaceError, match="what the revision refers to has more than"):
            git_copy(str(papers.path), papers, tmp_path / "copy", server.url)
    assert not (tmp_path / "copy" / "lib" / "large").exists()
    packs = (tmp_path / "copy" / ".git" / "modules").rglob("*pack*")
    assert max(path.stat().st_size for path in packs if path.is_file()) <= limit


def test_my_tasks_get_what_is_allowed_and_the_log_tells_the_rest(site: Site, tmp_path: Path) -> None:
    """The whole way: the setting, the task, the log with the command, and the command."""
    lib = a_git_repository(tmp_path, "lib")
    lib.commit({"l": "1"})
    with lib.served() as server:
        mine = site.archive("git", "--executor", "process")
        assert isinstance(mine.repository, GitRepository)
        hostile = f"{server.url.removesuffix('/lib.git')}/$(touch%20pwned).git"
        show = {"show": {"command": "cat lib/l", "checkout": "working-copy"}}
        (mine.repository.work / ".gitmodules").write_text(
            f'[submodule "lib"]\n\tpath = lib\n\turl = {server.url}\n[submodule "x"]\n\tpath = x\n\turl = {hostile}\n'
        )
        for path in ("lib", "x"):
            mine.repository.git("update-index", "--add", "--cacheinfo", f"160000,{lib.id()},{path}")
            (mine.repository.work / path).mkdir()
        mine.repository.git("add", ".gitmodules")
        mine.repository.git("commit", "-qm", "link")
        for name, content in tasks(show).items():
            (mine.repository.work / name).parent.mkdir(exist_ok=True)
            (mine.repository.work / name).write_text(str(content))
        mine.repository.git("add", "_workflows")
        mine.repository.git("commit", "-qm", "tasks")
        mine.repository.push()
        mine.wait("show@3", "failed")
        said = mine.log("show@3")
        command = f"arkqueue archive set {mine.name} follow {server.url} '{hostile}'"
        assert f"submodule lib is not followed: the archive does not allow {server.url}" in said
        assert command in said
        site.installation("archive", "set", mine.name, "follow", server.url)
        mine.repository.git("commit", "--allow-empty", "-qm", "again")
        mine.repository.push()
        mine.wait("show@4")
        said = mine.log("show@4")
        assert "submodule lib" not in said
        assert f"submodule x is not followed: the archive does not allow {hostile}" in said
        assert said.rstrip().endswith("1")
        checked = site.installation("check", "--revision", mine.run(4)).out
        assert "note: Git submodules are not followed; these folders are empty: lib, x" in checked
    site.answers()
