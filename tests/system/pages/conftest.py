"""The real server with its pages, and browsers that are signed in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.queue import sign_ins, tokens
from arkqueue.queue.tokens import Scope, Token
from arkqueue.web import ApiServer, create_app, run_api
from tests.system.web.conftest import PLAIN

Visitors = Callable[..., httpx.Client]


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    return Configuration(home=tmp_path / "home", hosts=("queue.example.org",))


@pytest.fixture
def server(session: Session, configuration: Configuration, no_queue_manager: None) -> Iterator[ApiServer]:  # noqa: ARG001  it sets
    server = run_api(create_app(session, configuration), "127.0.0.1", 0)
    yield server
    server.close()


def a_token(session: Session, scope: Scope, *archives: str) -> tuple[Token, str]:
    return tokens.create(session, name=f"{scope} test", scope=scope, archives=archives or None, by="test")


@pytest.fixture
def visitor(server: ApiServer, session: Session) -> Iterator[Visitors]:
    """Makes what browsers send: ``visitor(Scope.READ, "papers")`` is signed in with a token of that scope; ``visitor()`` is not."""
    made: list[httpx.Client] = []

    def make(scope: Scope | None = None, *archives: str) -> httpx.Client:
        browser = httpx.Client(base_url=server.url, timeout=30, **PLAIN)
        made.append(browser)
        if scope is not None:
            token, _ = a_token(session, scope, *archives)
            signed_in = browser.get("/-/sign-in", params={"code": sign_ins.code(session, token)})
            assert signed_in.status_code == 303, signed_in.text
        return browser

    yield make
    for browser in made:
        browser.close()


def form_of(page: httpx.Response) -> str:
    """What the forms of a page carry."""
    found = re.search(r'name="form" value="([0-9a-f]{64})"', page.text)
    assert found, page.text
    return found[1]


def press(browser: httpx.Client, page: str, name: str, verb: str, text: str = "", sure: str = "yes") -> httpx.Response:
    """Press a button of a page, and the one that stands below the consequences; ``sure`` empty: the first alone."""
    fields = {"form": form_of(browser.get(page)), "name": name, "verb": verb, "text": text, "back": page, "sure": sure}
    return browser.post("/-/act", data=fields)
