"""A local user without a token waits for a server to be killed, and listens where it was."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.security.conftest import Site, a_site


@pytest.fixture
def killed(pg_uri: str) -> Iterator[Site]:
    """A server that was killed; its home is as it left it."""
    for site in a_site(pg_uri):
        site.installation.roles[0].kill()
        yield site


@contextmanager
def listening(address: str) -> Iterator[list[str | None]]:
    """Answer at an address like a server would; what was sent as a token."""
    heard: list[str | None] = []

    class Mallory(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.append(self.headers["Authorization"])
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"[]")

        def log_message(self, *_: object) -> None:
            pass

    host, _, port = address.rpartition(":")
    with http.server.ThreadingHTTPServer((host, int(port)), Mallory) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        try:
            yield heard
        finally:
            server.shutdown()
            thread.join()


def test_i_listen_where_a_killed_server_was(killed: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    arkqueue, home = killed.installation, killed.home
    url = (home / "url").read_text().strip()
    assert (home / "url").stat().st_mode & 0o077 == 0, "whoever can open it can lock it, as if the server lived"
    with listening(url.removeprefix("http://")) as heard:
        for words in (("token", "list"), ("archive", "list"), ("token", "list", "--server", url)):
            said = arkqueue(*words, code=3)
            assert "has ended" in said.err
        assert heard == []
        # A person's own token goes where the person says.
        monkeypatch.setenv("ARKQUEUE_TOKEN", "mine")
        arkqueue("archive", "list", "--server", url, code=None)
        assert heard == ["Bearer mine"]


def test_the_next_server_of_the_home_is_proven_again(killed: Site) -> None:
    killed.installation.start()
    killed.installation("archive", "list")
    killed.answers()
