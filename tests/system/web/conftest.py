"""The real server on a free port, on a fresh database, and clients with tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.queue import tokens
from arkqueue.queue.tokens import Scope
from arkqueue.web import ApiServer, create_app, run_api

Client = Callable[..., httpx.Client]
PLAIN = {"trust_env": False, "verify": False, "timeout": 600}
"""Options for requests to a server on the loopback interface without TLS. Loading the system's
certificate authorities takes longer than most requests. The first page of the API's documentation
takes seconds on a busy machine, and httpx would wait for five.
"""


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    return Configuration(home=tmp_path / "home")


@pytest.fixture
def server(session: Session, configuration: Configuration, no_queue_manager: None) -> Iterator[ApiServer]:  # noqa: ARG001  it sets
    server = run_api(create_app(session, configuration), "127.0.0.1", 0)
    yield server
    server.close()


@pytest.fixture
def client(server: ApiServer, session: Session) -> Iterator[Client]:
    """Makes clients: ``client(Scope.READ, "papers")``. Without a scope, the client has no token."""
    made: list[httpx.Client] = []

    def make(scope: Scope | None = None, *archives: str) -> httpx.Client:
        headers = {}
        if scope is not None:
            name = f"{scope} test"
            _, secret = tokens.create(session, name=name, scope=scope, archives=archives or None, by="test")
            headers["Authorization"] = f"Bearer {secret}"
        made.append(httpx.Client(base_url=f"{server.url}/api/v1", headers=headers, **PLAIN))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def admin(client: Client) -> httpx.Client:
    return client(Scope.ADMIN)


@pytest.fixture
def operator(client: Client) -> httpx.Client:
    return client(Scope.OPERATE)


@pytest.fixture
def reader(client: Client) -> httpx.Client:
    return client(Scope.READ)


@pytest.fixture
def hook(client: Client) -> httpx.Client:
    return client(Scope.HOOK)


def problem(answer: httpx.Response, status: int, *said: str) -> dict[str, object]:
    """The problem document of an answer. Checks the status and the given texts."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, object] = answer.json()
    assert document["status"] == status
    assert document["title"]
    for text in said:
        assert text in str(document["detail"]), document
    return document
