"""Open pages receive the changes of their content: only the pages of that content, only until the
end of the sign-in, and with a limit for pages that do not read.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.queue import tokens
from arkqueue.queue.tokens import Scope
from arkqueue.web import ApiServer, connections, create_app, live, run_api
from tests.builders import an_archive
from tests.system.pages.conftest import Visitors
from tests.system.waking import waking_session
from tests.system.web.conftest import PLAIN
from tests.waiting import eventually

__all__ = ["waking_session"]

CHANGED = "event: changed"


@contextmanager
def opened(browser: httpx.Client, address: str) -> Iterator[Iterator[str]]:
    """The events of an open page, from the one that it gets as it opens on."""
    with browser.stream("GET", address) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        next(line for line in lines if line == ": open")
        yield lines


def test_the_pages_that_show_an_archive_hear_of_its_changes(
    visitor: Visitors, session: Session, server: ApiServer
) -> None:
    papers, thesis = an_archive(session, "papers"), an_archive(session, "thesis")
    assert session.wakeups is not None
    assert session.wakeups.listening.wait(30)
    browser = visitor(Scope.READ)
    with (
        opened(browser, "/-/live?of=papers") as of_papers,
        opened(browser, "/-/live?of=thesis") as of_thesis,
        opened(browser, "/-/live") as of_all,
    ):
        papers.commit({"a": ""})
        assert CHANGED in of_papers
        assert CHANGED in of_all
        papers.claim("a@2")
        assert CHANGED in of_papers
        papers.run("a@2")
        assert CHANGED in of_papers
        thesis.commit({"a": ""})
        assert CHANGED in of_thesis
        server.close()
        assert CHANGED not in of_thesis, "it heard of the other archive, too"


def test_a_page_hears_of_no_archive_that_its_token_is_not_for(
    visitor: Visitors, session: Session, server: ApiServer
) -> None:
    papers, vault = an_archive(session, "papers"), an_archive(session, "vault")
    browser = visitor(Scope.READ, "papers")
    assert browser.get("/-/live?of=vault").status_code == 404
    assert visitor().get("/-/live").status_code == 204
    with opened(browser, "/-/live") as events, opened(visitor(Scope.READ), "/-/live?of=vault") as of_vault:
        vault.commit({"a": ""})
        assert CHANGED in of_vault
        papers.commit({"a": ""})
        assert CHANGED in events
        server.close()
        assert CHANGED not in events


def test_a_page_ends_with_its_sign_in(visitor: Visitors, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "HEARTBEAT", 0.05)
    with opened(visitor(Scope.READ), "/-/live") as events:
        for token in tokens.tokens(session):
            tokens.revoke(session, token.id, "test")
        for _ in events:
            pass  # until it ends


def test_a_page_that_does_not_read_is_dropped_and_holds_up_no_other(
    visitor: Visitors, session: Session, configuration: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "PACE", 0)
    monkeypatch.setattr(connections, "UNREAD", 0.2)
    app = create_app(session, configuration)
    own = run_api(app, "127.0.0.1", 0)
    try:
        # Nothing else tells the server's socket how little
        # it may keep for a browser that reads nothing.
        own._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        cookies = "; ".join(f"{name}={value}" for name, value in visitor(Scope.READ).cookies.items())
        with (
            socket.socket() as silent,
            httpx.Client(base_url=own.url, headers={"cookie": cookies}, timeout=60, **PLAIN) as reader,
        ):
            silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            silent.connect((own.host, own.port))
            silent.sendall(f"GET /-/live HTTP/1.1\r\nhost: localhost\r\ncookie: {cookies}\r\n\r\n".encode())
            with opened(reader, "/-/live") as events:
                eventually(lambda: app.state.live.pages == 2)

                def is_dropped() -> bool:
                    for _ in range(200):
                        app.state.live.hear(None)
                        assert CHANGED in events
                    return bool(app.state.live.pages == 1)

                eventually(is_dropped)
    finally:
        own.close()
