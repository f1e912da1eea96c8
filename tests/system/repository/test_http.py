"""Subversion archives over http and https, against Apache with mod_dav_svn."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from urllib.parse import urlsplit

import pytest

import arkqueue
from arkqueue.errors import ArchiveUnreachable, WorkspaceError
from arkqueue.model import SourceFile
from arkqueue.repository import Followed, Following, Login, limits, locate, open_archive
from arkqueue.repository.reader.archive import ReadArchive
from arkqueue.repository.reader.client import ReaderProcesses
from tests.ports import a_port
from tests.repositories import Content, Link, SubversionRepository, a_subversion_repository, run
from tests.requirements import missing
from tests.system.repository.test_subversion import weighs_before_it_writes
from tests.system.repository.test_update import check_every_step, picture

MODULES = (
    *("mpm_prefork", "authn_core", "authn_file", "auth_basic", "authz_core", "authz_user"),
    *("dav", "dav_svn", "ssl"),
)
CONFIGURATION = """\
ServerRoot {folder}
PidFile {folder}/httpd.pid
ErrorLog {folder}/error.log
ServerName localhost
Listen 127.0.0.1:{http}
Listen 127.0.0.1:{https}
{modules}
<VirtualHost 127.0.0.1:{https}>
    SSLEngine on
    SSLCertificateFile {folder}/certificate.pem
    SSLCertificateKeyFile {folder}/key.pem
</VirtualHost>
<Location /svn>
    DAV svn
    SVNPath {folder}/svn
    AuthType Basic
    AuthName papers
    AuthUserFile {folder}/users
    Require valid-user
</Location>
<Location /open>
    DAV svn
    SVNPath {folder}/svn
    Require all granted
</Location>
"""


@dataclass(frozen=True)
class Apache:
    repository: SubversionRepository
    http: str
    https: str
    certificate: Path


def programs() -> tuple[str, Path]:
    """Apache and the folder of its modules, or the end of the test that needs them."""
    search = f"{os.environ['PATH']}:/usr/sbin"
    program = shutil.which("apache2", path=search) or shutil.which("httpd", path=search)
    places = (Path("/usr/lib/apache2/modules"), Path("/usr/lib64/httpd/modules"))
    modules = next((place for place in places if (place / "mod_dav_svn.so").exists()), None)
    if not program or not modules or not shutil.which("openssl"):
        missing("Apache with mod_dav_svn, and openssl (Debian: apt-get install apache2-bin libapache2-mod-svn openssl)")
    return program, modules


@pytest.fixture
def ports() -> Iterator[tuple[int, int]]:
    with a_port() as http, a_port() as https:
        yield http, https


@pytest.fixture
def apache(ports: tuple[int, int]) -> Iterator[Apache]:
    """Serves one repository to bob, whose password is "pass word"."""
    program, modules = programs()
    # Not below tmp_path: Apache never serves as root,
    # and nobody else may pass through pytest's folders.
    folder = Path(tempfile.mkdtemp(prefix="arkqueue-apache-"))
    folder.chmod(0o755)
    repository = a_subversion_repository(folder)
    names = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names,
        "-keyout", folder / "key.pem", "-out", folder / "certificate.pem")  # fmt: skip
    (folder / "users").write_text("bob:" + run("openssl", "passwd", "-apr1", "pass word"))
    http, https = ports
    loaded = "\n".join(f"LoadModule {name}_module {modules}/mod_{name}.so" for name in MODULES)
    (folder / "httpd.conf").write_text(CONFIGURATION.format(folder=folder, http=http, https=https, modules=loaded))
    if os.geteuid() == 0:
        run("chown", "-R", "nobody", folder)
    user = "nobody" if os.geteuid() == 0 else None
    # A session of its own: when it ends, Apache sends SIGTERM to its whole process group, the
    # Apaches of other workers included.
    process = subprocess.Popen(
        [program, "-f", folder / "httpd.conf", "-D", "FOREGROUND"], user=user, start_new_session=True
    )
    try:
        while not (answers(http) and answers(https)):
            assert process.poll() is None, (folder / "error.log").read_text()
        yield Apache(repository, f"http://localhost:{http}/svn", f"https://localhost:{https}/svn", folder / "certificate.pem")  # fmt: skip
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder)


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        time.sleep(0.01)
        return False
    return True


def test_an_external_comes_over_http_with_name_and_password(apache: Apache, tmp_path: Path) -> None:
    apache.repository.commit({"lib/x": "1"})
    svn = a_subversion_repository(tmp_path)
    svn.commit({"a": "1"})
    svn.propset("svn:externals", f"{apache.http}/lib@1 lib", "")
    archive = open_archive(locate(svn.url))
    archive.working_copy("2", "", tmp_path / "copy", author="ada")
    with pytest.raises(ArchiveUnreachable, match=r"external lib: .*(refuses|asks for)"):
        archive.follow("2", tmp_path / "copy", Following((apache.http,)))
    followed = archive.follow(
        "2", tmp_path / "copy", Following((apache.http,), (Login(apache.http, "bob", "pass word"),))
    )
    assert (followed, (tmp_path / "copy" / "lib" / "x").read_text()) == (Followed(), "1")


class Turncoat(ThreadingHTTPServer):
    """An allowed server, which passes on what Apache says until it has been asked so often, and then sends everybody to Apache itself."""

    def __init__(self, apache: str, folder: str, answers: int) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        self.apache, self.folder, self.answers, self.lock = urlsplit(apache), folder, answers, Lock()
        self.url = f"http://127.0.0.1:{self.server_port}{folder}"

    def is_loyal(self) -> bool:
        with self.lock:
            self.answers -= 1
            return self.answers >= 0


class _Passing(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Turncoat

    def pass_on(self) -> None:
        is_chunked = "Transfer-Encoding" in self.headers
        body = b"".join(self.chunks()) if is_chunked else self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.command == "OPTIONS" and not self.server.is_loyal():
            self.send_response(301)
            self.send_header("Location", f"{self.server.apache.geturl()}{self.path}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        apache = HTTPConnection(self.server.apache.netloc)
        headers = {
            name: value
            for name, value in self.headers.items()
            if name.lower() not in ("host", "accept-encoding", "transfer-encoding", "content-length")
        }
        apache.request(self.command, self.path, body, headers)
        answer = apache.getresponse()
        text = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "content-length", "connection", "server", "date"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
        apache.close()

    def chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    do_OPTIONS = do_GET = do_PROPFIND = do_REPORT = pass_on

    def log_message(self, *_: object) -> None:
        """Not in the test's output."""


@contextmanager
def a_turncoat(apache: Apache, folder: str, answers: int) -> Iterator[Turncoat]:
    with Turncoat(apache.http.removesuffix("/svn"), folder, answers) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def processes() -> Iterator[ReaderProcesses]:
    processes = ReaderProcesses()
    yield processes
    processes.close()


@pytest.mark.full
@pytest.mark.parametrize("folder", ["/open", "/svn"])
def test_an_allowed_server_that_sends_libsvn_elsewhere_gets_nothing_in(
    apache: Apache, processes: ReaderProcesses, tmp_path: Path, folder: str
) -> None:
    """At whichever of its sessions: each is made by libsvn, which follows such a server. ``/svn`` asks for a password, which is for the first server."""
    apache.repository.commit({"lib/x": "1"})
    svn = a_subversion_repository(tmp_path)
    svn.commit({"a": "1"})
    outcomes = []
    # libsvn's client lets no other thread of its process run, and this one has the server.
    archive = ReadArchive(locate(svn.url), processes=processes)
    for answers in range(1, 9):
        copy = tmp_path / f"copy-{answers}"
        with a_turncoat(apache, folder, answers) as server:
            number = svn.propset("svn:externals", f"{server.url}/lib@1 lib", "")
            archive.working_copy(number, "", copy, author="ada")
            try:
                archive.follow(number, copy, Following((server.url,), (Login(server.url, "bob", "pass word"),)))
            except ArchiveUnreachable as error:
                outcomes.append(str(error))
                assert not (copy / "lib").exists()
            else:
                outcomes.append("")
                assert (copy / "lib" / "x").read_text() == "1"
                assert run("svn", "info", "--show-item", "url", copy / "lib").strip() == f"{server.url}/lib"
    expected = "moved" if folder == "/open" else "moved|refuses"
    assert re.search(expected, outcomes[0])
    assert outcomes[-1] == ""
    assert len([said for said in outcomes if said]) >= 3
    assert all(re.search(expected, said) for said in outcomes if said)


def test_an_archive_is_read_over_http_with_name_and_password(apache: Apache) -> None:
    apache.repository.commit({"trunk/_workflows/a.yaml": "one", "trunk/d/x": "1", "other": "1"})
    apache.repository.commit({"other": "2"})
    apache.repository.move("trunk/d", "trunk/e")
    archive = open_archive(locate(apache.http + "/trunk", username="bob", password="pass word"))
    assert (archive.identity().uuid, archive.identity().folder) == (apache.repository.uuid, "trunk")
    head = archive.heads()[""]
    assert [revision.number for revision in archive.advance("", None, head).revisions] == [1, 3]
    assert archive.read_workflows("3") == (SourceFile("_workflows/a.yaml", b"one"),)
    assert archive.changed_paths("1", "3") == ("d/x", "e/x")
    for password in ("wrong", None):
        with pytest.raises(ArchiveUnreachable, match=r"refuses|asks for"):
            open_archive(locate(apache.http, username="bob", password=password)).heads()


@pytest.mark.parametrize("code", [301, 302])
def test_a_repository_that_has_moved_is_told_and_ends_nothing(code: int) -> None:
    """In a process of its own, which libsvn would end."""
    script = """if True:
        import sys
        from functools import partialmethod
        from http.server import BaseHTTPRequestHandler, HTTPServer
        from threading import Thread
        from arkqueue.repository import locate, open_archive
        from arkqueue.errors import ArchiveUnreachable, WorkspaceError
        from arkqueue.model import ArchiveKind

        class Moved(BaseHTTPRequestHandler):
            def do_OPTIONS(self):
                self.send_response(int(sys.argv[1]))
                self.send_header("Location", "http://localhost/elsewhere")
                self.end_headers()

            log_message = partialmethod(print, file=sys.stderr)

        with HTTPServer(("127.0.0.1", 0), Moved) as server:
            Thread(target=server.serve_forever, daemon=True).start()
            archive = open_archive(locate(f"http://127.0.0.1:{server.server_port}/svn", ArchiveKind.SUBVERSION))
            for ask in (archive.identity, archive.heads):
                try:
                    ask()
                except ArchiveUnreachable as error:
                    print(error)
            server.shutdown()
        """
    done = subprocess.run(
        [sys.executable, "-c", script, str(code)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(arkqueue.__file__).parents[1])},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("http://localhost/elsewhere") == 2
    assert done.stdout.count("Have the server answer at") == 2


def test_trees_come_over_http_as_they_are_on_disk(apache: Apache, tmp_path: Path) -> None:
    """Unlike every other transport, this one begins many files before it has the text of the first."""
    files: dict[str, Content] = {f"d{n % 3}/file-{n}": f"{n}\n" * 1000 for n in range(90)}
    revisions = [
        apache.repository.commit(files | {"link": Link("d0"), "tool": "#!/bin/sh\n"}),
        apache.repository.change("propset", "svn:executable", "*", "tool", "mv", "d0", "e0"),
        apache.repository.commit({f"d1/file-{n}": f"{n} and more\n" * 1000 for n in range(1, 90, 3)} | {"link": Link("e0")}),
        apache.repository.change("rm", "d2", "propdel", "svn:executable", "tool", "propset", "svn:special", "*", "d1/file-1"),
    ]  # fmt: skip
    archive = open_archive(locate(apache.http, username="bob", password="pass word"))
    check_every_step(archive, revisions, tmp_path)
    local = open_archive(locate(str(apache.repository.path)))
    for revision in revisions:
        local.export(revision, tmp_path / f"local-{revision}")
        assert picture(tmp_path / f"local-{revision}") == picture(tmp_path / f"fresh-{revision}")


@pytest.mark.full
def test_what_is_too_much_is_counted_before_it_comes_over_http(
    apache: Apache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over http, texts come in requests of their own, so that a server waits for us in another way than svnserve does."""
    apache.repository.commit({"a/film": "x" * 50_000, "b": "y"})
    apache.repository.change(*(word for n in range(50) for word in ("cp", "HEAD", "a", f"a-{n}")))
    archive = open_archive(locate(apache.http, username="bob", password="pass word"))
    archive.export("1", tmp_path / "small")
    monkeypatch.setattr(limits, "MANY_FILES", 20)
    monkeypatch.setattr(limits, "MOST_FILES", 50)
    for act in (
        partial(archive.export, "2", tmp_path / "all"),
        partial(archive.export, "2", tmp_path / "some", [f"a-{n}" for n in range(40)]),
        partial(archive.update, "1", "2", tmp_path / "small"),
    ):
        with pytest.raises(WorkspaceError, match="there are more files and folders: a workspace has at most 50"):
            act()
    assert [len(list(folder.rglob("film"))) for folder in sorted(tmp_path.iterdir())] == [0, 1, 0]
    archive.export("2", tmp_path / "few", [f"a-{n}" for n in range(20)])
    assert len(list((tmp_path / "few").rglob("film"))) == 20

    monkeypatch.undo()
    monkeypatch.setattr(limits, "MANY_BYTES", 150_000)
    monkeypatch.setattr(limits, "MOST_BYTES", 2_000_000)
    weighs_before_it_writes(archive, tmp_path / "weighed")


def heads(apache: Apache, home: Path, prelude: str = "") -> str:
    """What a new process is answered over https, as a user with this home: libsvn reads its configuration once in each."""
    program = (
        f"{prelude}\n"
        "from arkqueue.repository import locate, open_archive\n"
        "from arkqueue.errors import ArchiveUnreachable\n"
        f"archive = open_archive(locate({apache.https!r}, username='bob', password='pass word'))\n"
        "try: print(archive.heads())\n"
        "except ArchiveUnreachable as error: print(error)\n"
    )
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(Path(arkqueue.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_certificate_counts_when_its_user_trusts_it(apache: Apache, tmp_path: Path) -> None:
    said = heads(apache, tmp_path)
    assert "the server's certificate is not trusted" in said
    assert "~/.subversion/servers (ssl-authority-files)" in said
    servers = tmp_path / ".subversion" / "servers"
    servers.parent.mkdir(exist_ok=True)
    servers.write_text(f"[global]\nssl-authority-files = {apache.certificate}\n")
    assert heads(apache, tmp_path) == "{'': '0'}"


def test_authorities_are_those_that_this_host_trusts(apache: Apache, tmp_path: Path) -> None:
    """The library's own OpenSSL was built for another system, and would look for them in that one's places."""
    trusting = (
        "import ssl; paths = ssl.get_default_verify_paths()\n"
        f"ssl.get_default_verify_paths = lambda: paths._replace(cafile={str(apache.certificate)!r}, capath=None)"
    )
    assert heads(apache, tmp_path, trusting) == "{'': '0'}"
