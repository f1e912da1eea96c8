"""What each scope may call, and what a token for one archive learns of another: every call of the
API, without exception (design 8).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import httpx
import pytest

from arkqueue.db.session import Session
from arkqueue.queue.tokens import Scope
from arkqueue.web import ApiServer
from tests.builders import AnArchive, an_archive
from tests.system.web.conftest import PLAIN, Client

HOOK, READ, OPERATE, ADMIN = (
    {*scopes} for scopes in ((Scope.HOOK, *list(Scope)[2:]), list(Scope)[1:], list(Scope)[2:], [Scope.ADMIN])
)
ALL = set(Scope)


class Call(NamedTuple):
    """A call as it is made of archive ``secret``. ``own``: an archive is part of it."""

    scopes: set[Scope]
    body: dict[str, Any] | None = None
    query: str = ""
    own: bool = True


CALLS = {
    "POST /notices": Call(HOOK, {"repository": "/srv/secret"}),
    "POST /archives/{name}/notices": Call(HOOK, {}),
    "GET /archives": Call(READ),
    "POST /archives": Call(ADMIN, {"name": "more", "url": "file:///secret"}),
    "GET /archives/{name}": Call(READ),
    "PATCH /archives/{name}": Call(ADMIN, {"author": "mallory"}),
    "DELETE /archives/{name}": Call(ADMIN),
    "POST /archives/{name}/sync": Call(OPERATE),
    "POST /archives/{name}/rewind": Call(ADMIN, {"revision": 1}),
    "POST /archives/{name}/accept": Call(ADMIN, {"revision": 1}),
    "POST /archives/{name}/skip": Call(OPERATE, {"task": "a", "until": 1}),
    "POST /archives/{name}/pause": Call(OPERATE, {}),
    "POST /archives/{name}/resume": Call(OPERATE),
    "POST /archives/{name}/hold": Call(OPERATE, {}),
    "POST /archives/{name}/unhold": Call(OPERATE, {}),
    "POST /archives/{name}/release": Call(OPERATE, {}),
    "POST /archives/{name}/retry": Call(OPERATE, {"failed": True}),
    "POST /archives/{name}/refresh": Call(OPERATE, {}),
    "POST /archives/{name}/purge": Call(ADMIN),
    "GET /archives/{name}/backfills": Call(READ),
    "POST /archives/{name}/backfills": Call(OPERATE, {"tasks": ["a"], "first": 1}),
    "GET /archives/{name}/backfills/{number}": Call(READ),
    "POST /archives/{name}/backfills/{number}/hold": Call(OPERATE, {}),
    "POST /archives/{name}/backfills/{number}/release": Call(OPERATE, {}),
    "POST /archives/{name}/backfills/{number}/cancel": Call(OPERATE),
    "POST /archives/{name}/backfills/{number}/prioritize": Call(OPERATE, {"priority": 5}),
    "POST /archives/{name}/submissions": Call(OPERATE, {"items": []}),
    "GET /archives/{name}/submissions/{id}": Call(READ),
    "GET /runs/{id}/payload": Call(READ),
    "POST /archives/{name}/uploads": Call(OPERATE, {"attachments": []}),
    "DELETE /archives/{name}/uploads": Call(OPERATE),
    "GET /uploads/{id}": Call(READ),
    "DELETE /uploads/{id}": Call(OPERATE),
    "HEAD /uploads/{id}/{position}": Call(OPERATE),
    "PATCH /uploads/{id}/{position}": Call(OPERATE),
    "GET /locks": Call(READ, query="archive=secret"),
    "PUT /locks/{name}": Call(OPERATE, {"capacity": 2}),
    "POST /locks/{name}/pause": Call(OPERATE, {}),
    "POST /locks/{name}/resume": Call(OPERATE),
    "GET /runs": Call(READ, query="archive=secret"),
    "POST /runs": Call(OPERATE, {"archive": "secret", "tasks": ["a"]}),
    "GET /runs/{id}": Call(READ),
    "POST /runs/{id}/delete": Call(OPERATE),
    "POST /runs/{id}/undelete": Call(OPERATE),
    "POST /runs/{id}/delete-items": Call(OPERATE, {"list": "a"}),
    "GET /runs/{id}/items": Call(READ),
    "GET /runs/{id}/deleted-items": Call(ADMIN),
    "GET /runs/{id}/changes": Call(READ),
    "GET /runs/{id}/not-followed": Call(READ),
    "GET /runs/{id}/graph": Call(READ),
    "GET /graph": Call(READ, query="archive=secret&first=1&last=2"),
    "GET /runs/{id}/reports": Call(READ),
    "GET /runs/{id}/reports/{number}": Call(READ),
    "POST /runs/{id}/report": Call(OPERATE, {"now": True}),
    "POST /runs/{id}/note": Call(OPERATE, {"text": "seen"}),
    "POST /runs/{id}/{verb}": Call(OPERATE, {}),
    "POST /runs/{id}/hold": Call(OPERATE, {}),
    "POST /runs/{id}/release": Call(OPERATE, {}),
    "POST /runs/{id}/purge": Call(ADMIN),
    "GET /tasks/{id}": Call(READ),
    "GET /tasks/{id}/attempts": Call(READ),
    "GET /tasks/{id}/explain": Call(READ),
    "POST /tasks/{id}/note": Call(OPERATE, {"text": "seen"}),
    "POST /tasks/{id}/{verb}": Call(OPERATE, {}),
    "POST /tasks/{id}/hold": Call(OPERATE, {}),
    "POST /tasks/{id}/purge": Call(ADMIN, {"log": True, "reason": "seen"}),
    "POST /tasks/{id}/release": Call(OPERATE, {}),
    "GET /find": Call(READ, query="name=secret@2/a"),
    "GET /explain": Call(READ, query="name=secret@2/a"),
    "GET /attempts/{id}": Call(READ),
    "GET /attempts/{id}/log": Call(READ),
    "GET /deliveries": Call(READ, query="archive=secret"),
    "POST /deliveries/{id}/resend": Call(OPERATE),
    "GET /whoami": Call(ALL, own=False),
    "POST /sign-in-links": Call(READ, own=False),
    "GET /tokens": Call(ADMIN, own=False),
    "POST /tokens": Call(ADMIN, {"name": "more", "scope": "read", "archives": ["secret"]}),
    "DELETE /tokens/{id}": Call(ADMIN, own=False),
    "GET /doctor": Call(ADMIN, query="archive=secret"),
    "GET /status": Call(READ, own=False),
    "GET /task-managers": Call(READ, own=False),
    "POST /task-managers/{name}/drain": Call(OPERATE, {}),
    "POST /task-managers/{name}/resume": Call(OPERATE),
    "POST /pause": Call(OPERATE, {}),
    "POST /resume": Call(OPERATE),
    "GET /metrics": Call(READ, own=False),
    "GET /healthz": Call(ALL, own=False),
}


OF_ALL = {
    "POST /archives",
    "POST /tokens",
    "POST /task-managers/{name}/drain",
    "POST /task-managers/{name}/resume",
    "POST /pause",
    "POST /resume",
}
"""Calls that take a token for all archives."""


@pytest.fixture
def secret(session: Session) -> AnArchive:
    """An archive with a run, a task that failed and one that can be claimed. Nobody else knows of ``hidden``."""
    an_archive(session)
    archive = an_archive(session, "secret")
    archive.commit({"a": "", "hidden": ""})
    archive.fail("a@2")
    archive.sql(
        "update revision set author = 'hidden', message = 'hidden' where branch_id = %s", archive.branches[""].id
    )
    archive.sql(
        "insert into delivery (archive_id, run_id, occasion, receiver, until, state) values (%s, %s, 'failed', 'https://hidden', now(), 'failed')",
        archive.id,
        archive.run_id(2),
    )
    archive.sql(
        "insert into upload (archive_id, sender_id, store, files, size, digest, by) values (%s, 'hidden', 'x', 0, 0, '', '')",
        archive.id,
    )
    return archive


def called(client: httpx.Client, name: str, secret: AnArchive) -> httpx.Response:
    """Make a call of archive ``secret``."""
    call, (method, path) = CALLS[name], name.split(" ")
    (attempt,) = secret.sql("select id from attempt limit 1")
    ids = {
        "runs": secret.sql("select id from run where number = 2")[0]["id"],
        "tasks": secret.task("a@2"),
        "attempts": attempt["id"],
        "deliveries": secret.sql("select id from delivery")[0]["id"],
        "uploads": secret.sql("select id from upload")[0]["id"],
    }
    path = (
        path.replace("{id}", str(ids.get(path.split("/")[1], 999)))
        .replace("{name}", "secret/tex" if path.startswith("/locks") else "secret")
        .replace("{verb}", "retry")
        .replace("{number}", "1")
        .replace("{position}", "0")
    )
    return client.request(method, f"{path}?{call.query}" if call.query else path, json=call.body)


def everything(secret: AnArchive) -> list[Any]:
    """What calls could change."""
    tables = (
        "archive",
        "look",
        "branch",
        "revision",
        "run",
        "task",
        "attempt",
        "edge",
        "report",
        "backfill",
        "deed",
        "submission",
        "payload_left",
        "upload",
        "delivery",
        "token",
    )
    return [secret.sql(f"select * from {table} order by 1") for table in tables]


def test_every_call_has_its_scopes_here(server: ApiServer) -> None:
    paths = httpx.get(f"{server.url}/openapi.json", **PLAIN).json()["paths"]
    told = {f"{method.upper()} {path.removeprefix('/api/v1')}" for path, found in paths.items() for method in found}
    assert told == CALLS.keys()


@pytest.mark.parametrize("scope", [None, *Scope])
def test_a_scope_may_make_its_calls_and_changes_nothing_by_others(
    client: Client, secret: AnArchive, scope: Scope | None
) -> None:
    caller, before = client(scope), everything(secret)
    for name, call in CALLS.items():
        if scope is None and name != "GET /healthz":
            answer = called(caller, name, secret)
            assert answer.status_code == 401, name
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert answer.headers["content-type"] == "application/problem+json"
        elif scope is not None and scope not in call.scopes:
            answer = called(caller, name, secret)
            assert answer.status_code == 403, f"{name}: {answer.text}"
            assert answer.request.method == "HEAD" or f"has the scope {scope}; this needs " in answer.text, name
    assert everything(secret) == before
    for name, call in CALLS.items():
        if scope in call.scopes and name.startswith("GET"):
            assert called(caller, name, secret).status_code not in (401, 403), name


@pytest.mark.parametrize("scope", list(Scope))
def test_a_token_for_one_archive_neither_sees_nor_changes_another(
    client: Client, secret: AnArchive, scope: Scope
) -> None:
    confined, before = client(scope, "papers"), everything(secret)
    for name, call in CALLS.items():
        answer = called(confined, name, secret)
        if call.own:
            if scope not in call.scopes or name in OF_ALL:
                expected = 403
            else:
                expected = 200 if name == "GET /archives" else 404
            assert answer.status_code == expected, f"{name}: {answer.text}"
            assert "hidden" not in answer.text, f"{name}: {answer.text}"
    assert everything(secret) == before
