"""Working copies with what their revisions refer to: real svnserve and git daemon, and a server of
Git LFS over http.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from arkqueue.errors import ArchiveUnreachable, WorkspaceError
from arkqueue.repository import Followed, Following, locate, open_archive
from arkqueue.repository.following.allowance import Login
from tests.repositories import (
    GitRepository,
    Server,
    SubversionRepository,
    a_git_repository,
    a_subversion_repository,
    run,
)
from tests.requirements import missing


def svn_copy(url: str, revision: str, target: Path, *prefixes: str, logins: tuple[Login, ...] = ()) -> Followed:
    archive = open_archive(locate(url))
    archive.working_copy(revision, "", target, author="ada")
    return archive.follow(revision, target, Following(prefixes, logins))


def git_copy(
    url: str, repository: GitRepository, target: Path, *prefixes: str, logins: tuple[Login, ...] = ()
) -> Followed:
    location = locate(url)
    archive = open_archive(
        location, mirror=target.with_name(target.name + "-mirror") if location.needs_mirror else None
    )
    archive.heads()
    archive.working_copy(repository.id(), "main", target, author="Ada <ada@example.org>")
    return archive.follow(repository.id(), target, Following(prefixes, logins))


def files_of(folder: Path) -> list[str]:
    found = [path for path in folder.rglob("*") if not {".git", ".svn"} & set(path.relative_to(folder).parts)]
    return sorted(
        str(path.relative_to(folder))
        for path in found
        if (path.is_symlink() or not path.is_dir()) and not path.name.startswith(".git")
    )


# --- Subversion


@pytest.fixture
def other(tmp_path: Path) -> Iterator[tuple[SubversionRepository, Server]]:
    """Another repository, of two revisions, with its server."""
    repository = a_subversion_repository(tmp_path, "other")
    repository.commit({"lib/x": "old", "lib/d/y": "1"})
    repository.commit({"lib/x": "new"})
    with repository.served() as server:
        yield repository, server


def test_externals_are_checked_out_as_they_are_pinned(
    tmp_path: Path, other: tuple[SubversionRepository, Server]
) -> None:
    _, server = other
    svn = a_subversion_repository(tmp_path)
    svn.commit({"trunk/a": "1", "shared/s": "first", "file/f": "f"})
    definitions = f"{server.url}/lib@1 pinned\n-r1 {server.url}/lib also/deep\nold {server.url}/lib\n^/shared shared\n^/file/f@1 f.txt\n"
    svn.propset("svn:externals", definitions, "trunk")
    svn.commit({"shared/s": "second"})
    done = svn_copy(f"{svn.url}/trunk", "2", tmp_path / "copy", server.url, "^/shared", "^/file")
    copy = tmp_path / "copy"
    assert files_of(copy) == [
        "a", "also/deep/d/y", "also/deep/x", "f.txt", "old/d/y", "old/x", "pinned/d/y", "pinned/x", "shared/s",
    ]  # fmt: skip
    assert [(copy / place / "x").read_text() for place in ("pinned", "also/deep", "old")] == ["old", "old", "new"]
    assert (copy / "shared" / "s").read_text() == "first", "as in the archive's own revision"
    assert done.wanted == ()
    assert done.notes == (
        "external old names no revision: it is as in revision 2, the last one at the date of the archive's revision",
        "external shared names no revision: it is as in revision 2, the archive's own",
    )
    # svn knows them: nothing is changed, unknown or
    # missing, and nothing of them would be committed.
    said = run("svn", "status", "-q", copy)
    assert {line[0] for line in said.split("\n") if line.startswith((" ", "X", "M", "?", "!"))} <= {"X", " "}, said
    assert not [line for line in run("svn", "status", copy).split("\n") if line[:1] in ("M", "?", "!", "~")]


def test_externals_of_externals_are_judged_too(tmp_path: Path, other: tuple[SubversionRepository, Server]) -> None:
    repository, server = other
    repository.propset("svn:externals", f"^/lib/d@1 inner\n{server.url}/elsewhere@1 not-there", "lib")
    svn = a_subversion_repository(tmp_path)
    svn.commit({"a": "1"})
    svn.propset("svn:externals", f"{server.url}/lib@3 lib", "")
    done = svn_copy(svn.url, "2", tmp_path / "copy", f"{server.url}/lib")
    assert files_of(tmp_path / "copy") == ["a", "lib/d/y", "lib/inner/y", "lib/x"]
    assert done.notes == (f"external lib/not-there is not followed: the archive does not allow {server.url}/elsewhere",)
    assert done.wanted == (f"{server.url}/elsewhere",)


def test_nothing_is_followed_that_no_prefix_allows(tmp_path: Path, other: tuple[SubversionRepository, Server]) -> None:
    _, server = other
    svn = a_subversion_repository(tmp_path)
    svn.commit({"trunk/a": "1", "shared/s": "1"})
    svn.propset("svn:externals", f"{server.url}/lib lib\n^/shared shared\n../shared again", "trunk")
    done = svn_copy(f"{svn.url}/trunk", "2", tmp_path / "copy")
    assert files_of(tmp_path / "copy") == ["a"]
    assert done.notes == (
        f"external lib is not followed: the archive does not allow {server.url}/lib",
        "external shared is not followed: the archive does not allow ^/shared",
        "external again is not followed: the archive does not allow ^/shared",
    )
    assert done.wanted == (f"{server.url}/lib", "^/shared")


def test_password_goes_to_its_own_server_alone(tmp_path: Path) -> None:
    closed, elsewhere = a_subversion_repository(tmp_path, "closed"), a_subversion_repository(tmp_path, "elsewhere")
    for repository in (closed, elsewhere):
        repository.commit({"x": "1"})
    svn = a_subversion_repository(tmp_path)
    svn.commit({"a": "1"})
    with closed.served(users={"bob": "word"}) as one, elsewhere.served(users={"bob": "word"}) as two:
        svn.propset("svn:externals", f"{one.url}@1 one", "")
        svn.propset("svn:externals", f"{two.url}@1 two", "")
        logins = (Login(one.url, "bob", "word"),)
        svn_copy(svn.url, "2", tmp_path / "copy", one.url, two.url, logins=logins)
        assert files_of(tmp_path / "copy") == ["a", "one/x"]
        with pytest.raises(ArchiveUnreachable, match="external two"):
            svn_copy(svn.url, "3", tmp_path / "copy2", one.url, two.url, logins=logins)


def test_what_is_allowed_and_cannot_be_had_is_an_error(
    tmp_path: Path, other: tuple[SubversionRepository, Server]
) -> None:
    _, server = other
    svn = a_subversion_repository(tmp_path)
    svn.commit({"a": "1"})
    svn.propset("svn:externals", f"{server.url}/gone@1 gone", "")
    with pytest.raises(WorkspaceError, match=r"external gone: .*there is nothing at revision 1"):
        svn_copy(svn.url, "2", tmp_path / "copy", server.url)
    server.close()
    with pytest.raises(ArchiveUnreachable, match="external gone"):
        svn_copy(svn.url, "2", tmp_path / "copy2", server.url)


# --- Git


def test_submodules_are_as_git_leaves_them(tmp_path: Path) -> None:
    inner, lib, papers = (a_git_repository(tmp_path, name) for name in ("inner", "lib", "papers"))
    inner.commit({"i": "1"})
    with papers.served() as server:
        base = server.url.removesuffix("/papers.git")
        lib.commit({"l": "1"})
        lib.git("-c", "protocol.git.allow=always", "submodule", "--quiet", "add", f"{base}/inner.git", "deep/inner")
        lib.git("config", "-f", ".gitmodules", "submodule.deep/inner.url", "../inner.git")
        lib.commit({"l": "2"})
        pinned = lib.id()
        lib.commit({"l": "3"})
        papers.commit({"a": "1"})
        papers.git("submodule", "--quiet", "add", "--name", "the lib", f"{base}/lib.git", "lib")
        papers.git("-C", "lib", "checkout", "--quiet", pinned)
        papers.git("config", "-f", ".gitmodules", "submodule.the lib.url", "../lib.git")
        papers.git("config", "-f", ".gitmodules", "submodule.the lib.update", "none")
        papers.commit()
        done = git_copy(server.url, papers, tmp_path / "copy", f"{base}/lib.git", f"{base}/inner.git")
        copy = tmp_path / "copy"
        assert done == Followed()
        assert files_of(copy) == ["a", "lib/deep/inner/i", "lib/l"]
        assert (copy / "lib" / "l").read_text() == "2"
        assert run("git", "status", "--porcelain", cwd=copy) == ""
        assert run("git", "submodule", "status", "--recursive", cwd=copy).startswith(f" {pinned} lib ")
        moved = copy.rename(tmp_path / "moved")
        assert run("git", "-C", "lib", "rev-parse", "HEAD", cwd=moved).strip() == pinned, "also seen by a container"


@contextmanager
def closed(repository: GitRepository, word: str) -> Iterator[tuple[str, list[str | None]]]:
    """The repository over plain http, for bob alone; and what was sent as Authorization."""
    run("git", "update-server-info", cwd=repository.path)
    sent: list[str | None] = []
    wanted = "Basic " + base64.b64encode(f"bob:{word}".encode()).decode()

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            sent.append(self.headers["Authorization"])
            if sent[-1] == wanted:
                super().do_GET()
                return
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="papers"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(repository.path.parent))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", sent
        server.shutdown()
        thread.join()


def test_password_of_a_submodule_goes_to_its_own_server_alone(tmp_path: Path) -> None:
    lib, other, papers = (a_git_repository(tmp_path, name) for name in ("lib", "other", "papers"))
    lib.commit({"l": "1"})
    other.commit({"o": "1"})
    with closed(lib, "one") as (one, sent), closed(other, "two") as (two, sent_to_other):
        logins = (Login(one, "bob", "one"),)
        text = f'[submodule "lib"]\n\tpath = lib\n\turl = {one}/lib.git\n'
        papers.commit({".gitmodules": text})
        papers.git("update-index", "--add", "--cacheinfo", f"160000,{lib.id()},lib")
        papers.git("commit", "-qm", "link")
        papers.push()
        git_copy(str(papers.path), papers, tmp_path / "copy", one, two, logins=logins)
        assert files_of(tmp_path / "copy") == ["lib/l"]
        assert set(sent) == {None, "Basic Ym9iOm9uZQ=="}
        assert "one" not in run("grep", "-r", "bob:", tmp_path / "copy", check=False), "the task gets it not"
        (papers.work / ".gitmodules").write_text(text.replace(one, two))
        papers.git("add", ".gitmodules")
        papers.git("commit", "-qm", "elsewhere")
        papers.push()
        with pytest.raises(ArchiveUnreachable, match="the server refuses access"):
            git_copy(str(papers.path), papers, tmp_path / "copy2", one, two, logins=logins)
        assert set(sent_to_other) == {None}


def test_submodules_that_are_not_allowed_are_told(tmp_path: Path) -> None:
    lib, papers = a_git_repository(tmp_path, "lib"), a_git_repository(tmp_path, "papers")
    lib.commit({"l": "1"})
    with papers.served() as server:
        base = server.url.removesuffix("/papers.git")
        papers.git("submodule", "--quiet", "add", f"{base}/lib.git", "lib")
        papers.commit({"a": "1"})
        done = git_copy(server.url, papers, tmp_path / "copy", f"{base}/li")
        assert done.notes == (f"submodule lib is not followed: the archive does not allow {base}/lib.git",)
        assert done.wanted == (f"{base}/lib.git",)
        assert os.listdir(tmp_path / "copy" / "lib") == []


def test_commit_that_no_branch_has_any_more_is_told(tmp_path: Path) -> None:
    lib, papers = a_git_repository(tmp_path, "lib"), a_git_repository(tmp_path, "papers")
    lib.commit({"l": "1"})
    with papers.served() as server:
        base = server.url.removesuffix("/papers.git")
        papers.git("submodule", "--quiet", "add", f"{base}/lib.git", "lib")
        papers.git("update-index", "--cacheinfo", f"160000,{'1' * 40},lib")
        papers.git("commit", "-qm", "x")
        papers.push()
        with pytest.raises(WorkspaceError, match=f"submodule lib: .*commit {'1' * 40} cannot be fetched"):
            git_copy(server.url, papers, tmp_path / "copy", base)


# --- Git LFS


class LfsServer(ThreadingHTTPServer):
    """The batch API, as far as downloads go. ``asked``: each request's path and Authorization."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _LfsHandler)
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.href = f"{self.url}/files/{{oid}}?signature=a%2Fb"
        self.redirects = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def put(self, content: bytes) -> str:
        """A file; the answer is its pointer."""
        oid = hashlib.sha256(content).hexdigest()
        self.files[oid] = content
        return f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {len(content)}\n"


class _LfsHandler(BaseHTTPRequestHandler):
    server: LfsServer

    def do_POST(self) -> None:
        self.server.asked.append((self.path, self.headers["Authorization"]))
        said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        objects = [
            {"oid": one["oid"], "size": one["size"], "actions": {"download": {"href": self.server.href.format(**one)}}}
            for one in said["objects"]
        ]
        self._answer(json.dumps({"transfer": "basic", "objects": objects}).encode())

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers["Authorization"]))
        if self.server.redirects:
            self.send_response(302)
            self.send_header("Location", f"{self.server.url}/elsewhere")
            self.end_headers()
            return
        self._answer(self.server.files[self.path.partition("?")[0].rpartition("/")[2]])

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing."""


@contextmanager
def an_lfs_server() -> Iterator[LfsServer]:
    with LfsServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def lfs() -> Iterator[LfsServer]:
    with an_lfs_server() as server:
        yield server


LARGE = b"large\0" * 1000


def with_large_files(tmp_path: Path, lfs: LfsServer, **more: str) -> GitRepository:
    papers = a_git_repository(tmp_path, "papers")
    papers.commit(
        {
            ".lfsconfig": f"[lfs]\n\turl = {lfs.url}/group/papers.git/info/lfs\n",
            ".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n",
            "d/a.bin": lfs.put(LARGE),
            "b.bin": "no pointer",
            "c.txt": lfs.put(b"not by its name"),
            **more,
        }
    )
    return papers


def test_files_of_git_lfs_are_there_and_git_knows_them(tmp_path: Path, lfs: LfsServer) -> None:
    papers = with_large_files(tmp_path, lfs)
    done = git_copy(str(papers.path), papers, tmp_path / "copy", lfs.url, logins=(Login(lfs.url, "bob", "word"),))
    copy = tmp_path / "copy"
    assert done == Followed()
    assert (copy / "d" / "a.bin").read_bytes() == LARGE
    assert (copy / "c.txt").read_text().startswith("version ")
    assert [path for path, _ in lfs.asked] == [
        "/group/papers.git/info/lfs/objects/batch",
        f"/files/{hashlib.sha256(LARGE).hexdigest()}?signature=a%2Fb",
    ]
    assert {signed for _, signed in lfs.asked} == {"Basic Ym9iOndvcmQ="}
    # Also where the task has no git-lfs, and another
    # user: git does not look into files that it knows.
    for path in (copy / "d" / "a.bin", copy / "b.bin"):
        os.chmod(path, 0o600)
        os.chmod(path, 0o644)
    without = tmp_path / "bin"
    without.mkdir()
    (without / "git-lfs").write_text("#!/bin/sh\nexit 1\n")
    (without / "git-lfs").chmod(0o755)
    assert run("git", "status", "--porcelain", cwd=copy, PATH=f"{without}:{os.environ['PATH']}") == ""


def test_git_lfs_itself_finds_what_was_fetched(tmp_path: Path, lfs: LfsServer) -> None:
    if shutil.which("git-lfs") is None:
        missing("git-lfs (Debian: apt-get install git-lfs)")
    papers = with_large_files(tmp_path, lfs)
    git_copy(str(papers.path), papers, tmp_path / "copy", lfs.url)
    copy = tmp_path / "copy"
    assert "d/a.bin" in run("git", "lfs", "ls-files", cwd=copy)
    (copy / "d" / "a.bin").write_bytes(b"changed")
    run("git", "commit", "-qam", "change", cwd=copy)
    assert run("git", "show", "HEAD:d/a.bin", cwd=copy).startswith("version https://git-lfs")
    run("git", "checkout", "-q", "HEAD~1", cwd=copy)
    assert (copy / "d" / "a.bin").read_bytes() == LARGE, "from the store, and from no server"
    assert len(lfs.asked) == 2


def test_server_of_git_lfs_must_be_allowed_and_where_it_sends_us(tmp_path: Path, lfs: LfsServer) -> None:
    papers = with_large_files(tmp_path, lfs)
    server = f"{lfs.url}/group/papers.git/info/lfs"
    done = git_copy(str(papers.path), papers, tmp_path / "copy", "https://lfs.example.org")
    assert done.wanted == (server,)
    assert lfs.asked == []
    with an_lfs_server() as elsewhere:
        lfs.href = f"{elsewhere.url}/{{oid}}"
        done = git_copy(str(papers.path), papers, tmp_path / "copy2", lfs.url)
        assert done.notes == (
            f"a file of Git LFS of the repository (1 files) is not followed: the archive does not allow {elsewhere.url}",
        )
        assert elsewhere.asked == []
        logins = (Login(lfs.url, "bob", "word"),)
        elsewhere.files = lfs.files
        git_copy(str(papers.path), papers, tmp_path / "copy3", lfs.url, elsewhere.url, logins=logins)
        assert (tmp_path / "copy3" / "d" / "a.bin").read_bytes() == LARGE
        assert [signed for _, signed in elsewhere.asked] == [None], "another server is not told the password"


def test_redirects_and_other_files_are_refused(tmp_path: Path, lfs: LfsServer) -> None:
    papers = with_large_files(tmp_path, lfs)
    lfs.redirects = True
    with pytest.raises(ArchiveUnreachable, match="HTTP 302, which is not followed"):
        git_copy(str(papers.path), papers, tmp_path / "copy", lfs.url)
    assert not any("elsewhere" in path for path, _ in lfs.asked)
    lfs.redirects = False
    lfs.files[hashlib.sha256(LARGE).hexdigest()] = LARGE[::-1]
    with pytest.raises(WorkspaceError, match="the server sent other contents for file"):
        git_copy(str(papers.path), papers, tmp_path / "copy2", lfs.url)
