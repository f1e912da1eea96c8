"""Pauses over HTTP: who may, what is shown, and what health says."""

from __future__ import annotations

import httpx

from arkqueue.db.session import Session
from arkqueue.queue import claim
from arkqueue.queue.tokens import Scope
from arkqueue.web import ApiServer
from tests.builders import HOST, PROCESS, an_archive
from tests.system.web.conftest import Client, problem


def faults(server: ApiServer, client: httpx.Client) -> str:
    return "; ".join(client.get(f"{server.url}/healthz").json()["faults"])


def test_an_archive_is_paused_and_resumed(client: Client, server: ApiServer, session: Session) -> None:
    an_archive(session)
    operator = client(Scope.OPERATE, "papers")
    problem(client(Scope.READ).post("/archives/papers/pause"), 403, "this needs operate")
    paused = operator.post("/archives/papers/pause", json={"reason": "the printer moves"}).json()["paused"]
    assert (paused["reason"], paused["by"], paused["with_all"]) == ("the printer moves", "operate test", False)
    assert paused["resume"] == "arkqueue resume papers"
    assert "1 archive is paused: none of its tasks starts (arkqueue archive list)" in faults(server, operator)
    assert operator.post("/archives/papers/resume").json()["paused"] is None
    problem(operator.post("/archives/papers/resume"), 409, "archive papers: is not paused")
    assert "paused" not in faults(server, operator)


def test_the_installation_is_paused_by_who_may_touch_every_archive(
    client: Client, server: ApiServer, session: Session
) -> None:
    an_archive(session)
    problem(client(Scope.OPERATE, "papers").post("/pause"), 403, "a pause of the installation concerns every one")
    operator = client(Scope.OPERATE)
    assert operator.post("/pause", json={"reason": "an upgrade"}).status_code == 204
    paused = operator.get("/archives/papers").json()["paused"]
    assert (paused["reason"], paused["with_all"], paused["resume"]) == ("an upgrade", True, "arkqueue resume --all")
    assert "the whole installation is paused: no task starts (arkqueue resume --all)" in faults(server, operator)
    assert "arkqueue_archives_paused 1" in operator.get("/metrics").text
    assert operator.post("/resume").status_code == 204
    assert operator.get("/archives/papers").json()["paused"] is None


def test_a_paused_lock_is_shown_where_a_paused_archive_is(client: Client, server: ApiServer, session: Session) -> None:
    papers, secret, books = (an_archive(session, name) for name in ("papers", "secret", "books"))
    papers.commit({"a": "lock: [tex, global/printer]"})
    secret.commit({"a": "lock: [vault, global/printer]"})
    books.commit({"a": "lock: quiet"})
    operator, confined = client(Scope.OPERATE), client(Scope.READ, "papers", "books")
    assert "lock" not in faults(server, operator)
    for name, reason in (("papers/tex", "the licence"), ("secret/vault", "an audit"), ("global/printer", "no paper")):
        operator.post(f"/locks/{name}/pause", json={"reason": reason})

    assert "3 locks are paused: no task that names one of them starts (arkqueue lock list)" in faults(server, confined)
    assert "arkqueue_locks_paused 3" in operator.get("/metrics").text
    shown = {one["name"]: one["paused_locks"] for one in confined.get("/archives").json()}
    assert {name: [lock["name"] for lock in found] for name, found in shown.items()} == {
        "papers": ["global/printer", "papers/tex"],
        "books": [],
    }
    first, last = confined.get("/archives/papers").json()["paused_locks"]
    assert (first["reason"], first["by"]) == ("no paper", "operate test")
    assert last["resume"] == "arkqueue resume --lock papers/tex"
    needs = confined.get("/status").json()["needs"]
    assert [(need["name"], need["command"]) for need in needs] == [
        ("global/printer", "arkqueue resume --lock global/printer"),
        ("papers/tex", "arkqueue resume --lock papers/tex"),
    ]
    assert [need["name"] for need in client(Scope.READ, "books").get("/status").json()["needs"]] == []
    assert sorted(need["name"] for need in operator.get("/status").json()["needs"]) == [
        "global/printer", "papers/tex", "secret/vault",
    ]  # fmt: skip
    for name in ("papers/tex", "secret/vault", "global/printer"):
        operator.post(f"/locks/{name}/resume")
    assert "lock" not in faults(server, operator)


def test_a_task_manager_is_drained(client: Client, server: ApiServer, session: Session) -> None:
    claim.register(session, PROCESS, HOST, "build-1", 4)
    problem(client(Scope.OPERATE, "papers").post("/task-managers/build-1/drain"), 403, "concerns every one")
    operator = client(Scope.OPERATE)
    (drained,) = operator.post("/task-managers/build-1/drain", json={"reason": "a new disk"}).json()
    assert (drained["process"], drained["drained_by"], drained["drain_reason"]) == (
        PROCESS,
        "operate test",
        "a new disk",
    )
    assert "1 task manager is drained: no task starts there (arkqueue resume --worker)" in faults(server, operator)
    (resumed,) = operator.post("/task-managers/build-1/resume").json()
    assert resumed["drained_at"] is None
    problem(operator.post("/task-managers/build-2/drain"), 404, "does not exist", "These are there: build-1.")
