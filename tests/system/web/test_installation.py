"""Tokens, health, numbers, limits, and errors that tell nothing but what helps."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from arkqueue.config import Configuration
from arkqueue.db import Database
from arkqueue.db.session import Session
from arkqueue.errors import ArkqueueError
from arkqueue.queue import archives, claim, finish, schedules, tokens
from arkqueue.queue.tokens import Scope
from arkqueue.web import ApiServer, create_app, run_api
from arkqueue.web.app import LONGEST_BODY
from tests.builders import an_archive
from tests.ports import a_port
from tests.postgres import OwnPostgres
from tests.system.web.conftest import PLAIN, Client, problem

# Tokens


def test_token_is_made_used_and_revoked_and_the_database_does_not_hold_it(
    admin: httpx.Client, server: ApiServer, session: Session
) -> None:
    an_archive(session)
    made = admin.post("/tokens", json={"name": "hooks", "scope": "hook", "archives": ["papers"]})
    assert made.status_code == 201, made.text
    token = made.json()
    with session.database.transaction() as connection:
        rows = connection.execute("select token::text as t from token").fetchall()
    assert rows
    assert not any(token["token"] in row["t"] or token["token"].encode().hex() in row["t"] for row in rows)
    headers = {"Authorization": f"Bearer {token['token']}"}
    with httpx.Client(base_url=f"{server.url}/api/v1", headers=headers, **PLAIN) as client:
        me = client.get("/whoami").json()
        assert (me["name"], me["scope"], me["archives"]) == ("hooks", "hook", ["papers"])
        assert "token" not in me
        assert admin.delete(f"/tokens/{token['id']}").status_code == 204
        problem(client.get("/whoami"), 401, "unknown or revoked")
    problem(admin.delete(f"/tokens/{token['id']}"), 409, "is revoked already")
    problem(admin.delete("/tokens/999"), 404)
    (listed,) = [t for t in admin.get("/tokens").json() if t["name"] == "hooks"]
    assert listed["revoked_at"] is not None
    assert "token" not in listed


def test_token_is_not_made_for_an_archive_that_is_not_there(admin: httpx.Client, session: Session) -> None:
    an_archive(session)
    new = {"name": "x", "scope": "read", "archives": ["papers", "paper"]}
    problem(admin.post("/tokens", json=new), 404, "archive paper", "Did you mean papers?")
    assert "x" not in [token["name"] for token in admin.get("/tokens").json()]


def test_administrator_of_some_archives_gives_no_more_than_he_has(
    client: Client, admin: httpx.Client, session: Session
) -> None:
    an_archive(session)
    confined = client(Scope.ADMIN, "papers")
    problem(confined.post("/tokens", json={"name": "x", "scope": "read"}), 403, "is for papers only")
    problem(confined.post("/tokens", json={"name": "x", "scope": "read", "archives": ["papers", "b"]}), 403)
    made = confined.post("/tokens", json={"name": "x", "scope": "read", "archives": ["papers"]})
    assert made.status_code == 201
    everyones = admin.post("/tokens", json={"name": "y", "scope": "read"}).json()
    problem(confined.delete(f"/tokens/{everyones['id']}"), 404)
    assert {token["name"] for token in confined.get("/tokens").json()} == {"x", "admin test"}


def test_malformed_tokens_are_not_made(admin: httpx.Client) -> None:
    before = admin.get("/tokens").json()
    new: list[dict[str, Any]] = [
        {"name": "", "scope": "read"}, {"name": "x", "scope": "root"}, {"name": "x", "scope": "read", "archives": []},
        {"name": "x", "scope": "read", "archives": ["a b"]}, {"name": "x\ny", "scope": "read"},
    ]  # fmt: skip
    for each in new:
        told = problem(admin.post("/tokens", json=each), 422)
        assert told["fault"]
    assert admin.get("/tokens").json() == before


def test_faulty_tokens_are_refused(client: Client) -> None:
    for header in ("", "Bearer", "Basic eA==", "Bearer nonsense", "Bearer \xff\xfe"):
        answer = client().get("/whoami", headers={b"Authorization": header.encode("latin-1")})
        told = problem(answer, 401)
        known = "carries a token that is unknown or revoked" if header.startswith("Bearer ") else "carries no token"
        assert told["fault"] == known
        assert "nonsense" not in answer.text


def test_body_is_not_judged_for_who_has_no_token(client: Client, operator: httpx.Client) -> None:
    headers = {"Content-Type": "application/json"}
    for path in ("/runs", "/notices", "/archives/papers/notices"):
        problem(client().post(path, content="{bad", headers=headers), 401)
        problem(operator.post(path, content="{bad", headers=headers), 422)


def test_answers_and_errors_are_in_the_description(server: ApiServer) -> None:
    calls = httpx.get(f"{server.url}/openapi.json", **PLAIN).json()["paths"]
    (answer,) = calls["/api/v1/runs/{id}"]["get"]["responses"]["200"]["content"].values()
    assert answer["schema"] == {"$ref": "#/components/schemas/RunDetail"}
    for path, methods in calls.items():
        for call in methods.values():
            if path.startswith("/api/v1/") and not path.endswith("/healthz"):
                assert {"4XX", "5XX"} < call["responses"].keys()
                assert "422" not in call["responses"]
                assert "application/problem+json" in call["responses"]["4XX"]["content"]


def test_first_token_is_a_file_for_its_owner_alone(session: Session, tmp_path: Path) -> None:
    secret = tokens.first_token(session, tmp_path)
    file = tmp_path / "token"
    assert file.read_text().strip() == secret
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    known = tokens.check(session, secret)
    assert known is not None
    assert (known.scope, known.archives) == (Scope.ADMIN, None)
    assert tokens.first_token(session, tmp_path) == secret
    tokens.revoke(session, known.id, "ann")
    assert tokens.first_token(session, tmp_path) != secret
    assert os.listdir(tmp_path) == ["token"]


# Health and numbers


def test_health_is_told_to_everybody(client: Client, server: ApiServer, session: Session) -> None:
    nobody = client()
    finish.lapse(session)
    answer = nobody.get("/healthz")
    assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
    assert "no task manager is running" in answer.json()["faults"][0]
    claim.register(session, "manager-1", "host-1", "machine", 4)
    answer = nobody.get(f"{server.url}/healthz")
    assert (answer.status_code, answer.json()) == (
        200,
        {"status": "ok", "faults": [], "queue_manager": True},
    )
    head = nobody.head("/healthz")
    assert (head.status_code, head.text) == (200, "")


def test_health_tells_of_archives_that_cannot_be_read(client: Client, session: Session) -> None:
    finish.lapse(session)
    claim.register(session, "manager-1", "host-1", "machine", 4)
    papers, books = an_archive(session, "papers"), an_archive(session, "books")
    archives.read_failed(session, papers.id, "papers: has not answered", 1.0)
    archives.stop(session, books.id, "books: is another repository now")
    health = client().get("/healthz").json()
    assert health["status"] == "degraded"
    assert health["faults"] == [
        "1 archive is stopped (arkqueue archive list)",
        "1 archive is in trouble (arkqueue archive list)",
    ]


def test_health_and_metrics_tell_of_hosts_that_can_start_nothing(
    client: Client, reader: httpx.Client, session: Session
) -> None:
    finish.lapse(session)
    claim.register(session, "manager-1", "host-1", "machine", 4, fault="work folder: it is full")
    claim.register(session, "manager-2", "host-2", "machine", 4, engine_fault="Docker engine: it is full")
    claim.register(session, "manager-3", "host-3", "machine", 4)
    assert client().get("/healthz").json()["faults"] == [
        "2 task managers cannot start tasks for now, or no containers (arkqueue workers)"
    ]
    assert "arkqueue_task_managers_unfit 2" in reader.get("/metrics").text.splitlines()
    claim.register(session, "manager-1", "host-1", "machine", 4, low_disk="the disk of /srv has 1 MiB free")
    claim.unregister(session, "manager-2")
    assert client().get("/healthz").json()["faults"] == [
        "1 task manager claims no tasks, because a disk there has less free space than min_free (arkqueue workers)"
    ]
    assert "arkqueue_task_managers_low_on_disk 1" in reader.get("/metrics").text.splitlines()
    assert [one["low_disk"] for one in reader.get("/task-managers").json() if one["low_disk"]] == [
        "the disk of /srv has 1 MiB free"
    ]
    claim.register(session, "manager-1", "host-1", "machine", 4)
    assert client().get("/healthz").json()["faults"] == []


def test_health_and_metrics_tell_of_fires_that_are_left_out(
    client: Client, reader: httpx.Client, session: Session
) -> None:
    finish.lapse(session)
    claim.register(session, "manager-1", "host-1", "machine", 4)
    archive = an_archive(session)
    archive.commit({"pdf": "on: [manual]", "nightly": "depends: [pdf]\nschedule: '0 3 * * *'"})
    for day in (3, 2, 1):
        archive.sql("update schedule set next_at = '2026-01-04 03:00+00'::timestamptz - make_interval(days => %s)", day)
        schedules.fire(session)
    assert client().get("/healthz").json()["faults"] == [
        "2 fires of schedules were left out since 2026-01-02 03:00 UTC: the last run waits, is held or failed (arkqueue archive show)"
    ]
    assert "arkqueue_fires_left_out 2" in reader.get("/metrics").text.splitlines()


def test_health_tells_of_fires_that_are_left_out_because_nobody_approves(client: Client, session: Session) -> None:
    finish.lapse(session)
    claim.register(session, "manager-1", "host-1", "machine", 4)
    archive = an_archive(session)
    archive.commit({"nightly": "hold: true\nschedule: '0 3 * * *'"})
    for day in range(30, 0, -1):
        archive.sql("update schedule set next_at = '2026-02-01 03:00+00'::timestamptz - make_interval(days => %s)", day)
        schedules.fire(session)
    (fault,) = client().get("/healthz").json()["faults"]
    assert fault.startswith(
        "29 fires of schedules were left out since 2026-01-03 03:00 UTC: the last run waits, is held"
    )


def test_metrics_are_prometheus_text(reader: httpx.Client, hook: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": ""})
    archive.claim(slots=1)
    answer = reader.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    assert 'arkqueue_tasks{state="ready"} 1' in lines
    assert 'arkqueue_tasks{state="running"} 1' in lines
    assert "arkqueue_attempts_live 1" in lines
    assert "# TYPE arkqueue_attempts_total counter" in lines
    problem(hook.get("/metrics"), 403)


# Errors and limits


def test_unknown_paths_and_methods_are_problems(reader: httpx.Client) -> None:
    problem(reader.get("/nothing"), 404, "/api/v1/nothing: there is nothing here")
    answer = reader.put("/archives")
    problem(answer, 405, "PUT is not possible here")
    assert "GET" in answer.headers["allow"]


def test_long_bodies_are_refused(operator: httpx.Client) -> None:
    problem(operator.post("/runs", content=b"x" * (LONGEST_BODY + 1)), 413, "is longer than")
    parts = (b" " * 65536 for _ in range(40))  # without a length beforehand
    answer = operator.post("/runs", content=parts, headers={"Content-Type": "application/json"})
    problem(answer, 413, "is longer than")
    assert operator.get("/whoami").status_code == 200


def test_nonsense_is_answered_and_never_a_mistake_of_ours(reader: httpx.Client, session: Session) -> None:
    an_archive(session, "p")
    for path in (
        "/find?name=a%00b@1", "/archives/%00", "/archives/%FF%FE", "/runs?archive=%00", "/explain?name=%00@1/x",
        "/tasks/-99999999999999999999", "/find?name=" + "x" * 5000 + "@1", "/find?name=p@1/%2F%25%00", "/runs?before=-1",
        "/attempts/1e3", "/find?name=p@" + "9" * 5000, "/explain?name=p@" + "9" * 5000, "/explain?name=p@1." + "9" * 5000,
    ):  # fmt: skip
        answer = reader.get(path)
        assert answer.status_code in (404, 422), answer.text
        problem(answer, answer.status_code)


@pytest.mark.garbles
def test_mistake_of_ours_shows_no_traceback(
    reader: httpx.Client, session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    with session.database.transaction() as connection:
        connection.execute("alter table deed rename to deeds")
    archive = an_archive(session)
    answer = reader.get(f"/runs/{archive.run_id(1)}")
    problem(answer, 500, "a mistake of its own")
    assert "Traceback" not in answer.text
    assert "deed" not in answer.text
    assert "UndefinedTable" in caplog.text


def test_docs_load_nothing_from_elsewhere(client: Client, server: ApiServer) -> None:
    page = client().get(f"{server.url}/docs")
    assert page.status_code == 200
    assert "/api/v1/notices" in page.text
    assert "://" not in page.text
    assert "<style" not in page.text
    assert page.headers["content-security-policy"].startswith("default-src 'none'; style-src 'self'")
    assert 'id="problem-409"' in page.text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("docs", 421),
        ("openapi.json", 421),
        ("favicon.ico", 421),
        ("-/static/look.css", 421),
        ("healthz", 200),
        ("api/v1/healthz", 200),
    ],
)
def test_under_a_foreign_name_only_probes_and_calls_are_answered(server: ApiServer, path: str, status: int) -> None:
    answer = httpx.get(f"{server.url}/{path}", headers={"host": "evil.example"}, **PLAIN)
    assert answer.status_code == status
    assert httpx.get(f"{server.url}/{path}", **PLAIN).status_code < 400


def test_database_that_is_away_is_told_and_waited_for(
    own_postgres: Callable[[], OwnPostgres], configuration: Configuration
) -> None:
    postgres = own_postgres()
    with Database.open(postgres.uri) as database:
        session = Session(database)
        _, secret = tokens.create(session, name="x", scope=Scope.READ, by="test")
        server = run_api(create_app(session, configuration), "127.0.0.1", 0)
        try:
            headers = {"Authorization": f"Bearer {secret}"}
            with httpx.Client(base_url=f"{server.url}/api/v1", headers=headers, **PLAIN) as client:
                assert client.get("/runs").status_code == 200
                postgres.stop()
                answer = client.get("/runs")
                problem(answer, 503, "the database: does not answer")
                assert answer.headers["retry-after"] == "2"
                assert postgres.home.name not in answer.text
                health = client.get("/healthz")
                assert (health.status_code, health.json()["status"]) == (503, "failing")
                postgres.start()
                assert client.get("/runs").status_code == 200
        finally:
            server.close()


# The server


def test_taken_port_is_told_at_once(server: ApiServer, session: Session, configuration: Configuration) -> None:
    with pytest.raises(ArkqueueError, match="another program listens at this address"):
        run_api(create_app(session, configuration), "127.0.0.1", server.port)


def test_answer_on_a_connection_that_stays_is_sent_at_once(server: ApiServer, client: Client) -> None:
    """Nagle's algorithm would hold the body back until the client has acknowledged the head, which it puts off for 40 ms."""
    assert client().get("/healthz").status_code == 200
    # The option of the socket is set on the server's side only.
    (connection,) = server._server.server_state.connections
    accepted = connection.transport.get_extra_info("socket")  # type: ignore[union-attr]
    assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_closed_server_lets_followers_go_and_its_port_free(session: Session, configuration: Configuration) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    attempt = archive.attempt("a@2")
    _, secret = tokens.create(session, name="x", scope=Scope.READ, by="test")
    headers = {"Authorization": f"Bearer {secret}", "Accept": "text/event-stream"}
    with a_port() as port:
        server = run_api(create_app(session, configuration), "127.0.0.1", port)
        url = f"{server.url}/api/v1/attempts/{attempt}/log"
        with httpx.stream("GET", url, headers=headers, **PLAIN) as answer:
            assert answer.status_code == 200
            server.close()
            assert list(answer.iter_lines()) == []
        run_api(create_app(session, configuration), "127.0.0.1", port).close()
