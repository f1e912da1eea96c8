"""Who may act on what an archive guards, over HTTP (design 5.22)."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from arkqueue.db.session import Session
from arkqueue.queue.tokens import Scope
from tests.builders import AnArchive, an_archive
from tests.system.web.conftest import Client, problem

GUARDED = {"require_approval": ["publish"]}


@pytest.fixture
def approver(client: Client) -> httpx.Client:
    return client(Scope.APPROVE)


@pytest.fixture
def guarded(client: Client, session: Session) -> AnArchive:
    archive = an_archive(session)
    assert client(Scope.ADMIN).patch("/archives/papers", json=GUARDED).status_code == 200
    return archive


def test_what_is_guarded_takes_the_scope_approve(
    operator: httpx.Client, approver: httpx.Client, guarded: AnArchive
) -> None:
    guarded.commit({"publish": "", "other": "", "after": "depends: [publish]"})
    task, run = f"/tasks/{guarded.task('publish@2')}", f"/runs/{guarded.run_id(2)}"
    before = guarded.states()
    refused: dict[str, tuple[int, Any]] = {
        f"{task}/release": (409, {"force": True}), f"{task}/cancel": (403, {}), f"{task}/skip": (403, {}), f"{task}/retry": (403, {}),
    }  # fmt: skip
    for call, (status, body) in refused.items():
        problem(
            operator.post(call, json=body), status, "papers@2/publish", "guarded by require-approval", "scope approve"
        )
    assert guarded.states() == before
    assert operator.post(f"{run}/skip").json()["done"] == ["papers@2/other", "papers@2/after"]
    assert operator.post(f"/tasks/{guarded.task('after@2')}/retry").status_code == 200

    assert approver.post(f"{task}/release", json={"reason": "seen"}).json()["state"] == "ready"
    guarded.fail("publish@2")
    problem(operator.post(f"{task}/retry"), 403, "guarded")
    problem(operator.post(f"{task}/skip"), 403, "guarded")
    problem(operator.post("/archives/papers/skip", json={"task": "publish", "until": 2}), 403, "guarded")
    problem(operator.post(f"{run}/delete"), 403, "guarded")
    problem(operator.post(f"{run}/retry", json={"from_task": "publish"}), 403, "guarded")
    assert approver.post(f"{task}/retry").json()["state"] == "ready"


@pytest.mark.parametrize(
    "glob", ["x y", "[", "pub[ab]", "docs/", "a/b", "***/", ".x", "-x*", "PREV", "x" * 101, "!publish"]
)
def test_a_guard_that_no_task_can_match_is_refused(client: Client, session: Session, glob: str) -> None:
    an_archive(session)
    admin = client(Scope.ADMIN)
    problem(admin.patch("/archives/papers", json={"require_approval": [glob]}), 422, f"require-approval {glob!r}")
    assert admin.get("/archives/papers").json()["settings"]["require_approval"] == []


@pytest.mark.parametrize("glob", ["COMMIT", "/COMMIT"])
def test_commit_is_no_step_that_a_guard_can_hold(client: Client, session: Session, glob: str) -> None:
    """Design 5.3. The remedy holds all that a revision runs."""
    archive = an_archive(session)
    admin = client(Scope.ADMIN)
    refused = admin.patch("/archives/papers", json={"require_approval": ["publish", glob]})
    problem(refused, 422, f"require-approval {glob!r}: cannot be held", "every later revision waits", "write '*'")
    assert admin.patch("/archives/papers", json={"require_approval": ["*"]}).status_code == 200
    archive.commit({"a": "", "g": "depends: [a]\n# gate", "b": "depends: [g]"})
    assert archive.states() == {"a@2": "held", "g@2": "held", "b@2": "held"}
    archive.commit({"a": ""})
    assert archive.state("a@3") == "held"


@pytest.mark.parametrize("glob", ["**/deploy", "a**/b", "/deploy", "*", "**/", "?x*", "*.x", "REP*"])
def test_a_guard_that_some_task_can_match_is_accepted(client: Client, session: Session, glob: str) -> None:
    an_archive(session)
    globs = [glob, "!deploy-test"]
    changed = client(Scope.ADMIN).patch("/archives/papers", json={"require_approval": globs})
    assert changed.json()["settings"]["require_approval"] == globs


@pytest.mark.parametrize("glob", [" ann", "ann  b", "!ann"])
def test_authors_whom_no_revision_can_have_are_refused(client: Client, session: Session, glob: str) -> None:
    an_archive(session)
    answer = client(Scope.ADMIN).patch("/archives/papers", json={"workflow_authors": [glob]})
    problem(answer, 422, f"workflow-authors {glob!r}")


def test_a_run_is_canceled_but_for_what_is_guarded(
    operator: httpx.Client, approver: httpx.Client, guarded: AnArchive
) -> None:
    guarded.commit({"publish": "", "other": "", "after": "depends: [publish]"})
    run = f"/runs/{guarded.run_id(2)}"
    answer = operator.post(f"{run}/cancel").json()
    assert answer["done"] == ["papers@2/other", "papers@2/after"]
    (refused,) = answer["refused"]
    assert refused["task"] == "papers@2/publish"
    assert "is guarded by require-approval" in refused["reason"]
    assert guarded.states() == {"publish@2": "held", "other@2": "canceled", "after@2": "canceled"}
    problem(operator.post(f"{run}/cancel"), 403, "papers@2/publish", "guarded by require-approval", "scope approve")
    assert approver.post(f"{run}/cancel").json()["done"] == ["papers@2/publish"]


def test_to_leave_it_out_of_a_run_takes_the_scope(
    operator: httpx.Client, approver: httpx.Client, guarded: AnArchive
) -> None:
    guarded.commit({"publish": "", "after": "depends: [publish]"})
    new = {"archive": "papers", "revision": 2, "tasks": ["after"], "without": ["publish"]}
    problem(operator.post("/runs", json=new), 403, "would leave out publish")
    problem(operator.post("/runs", json=new, params={"dry_run": "true"}), 403, "would leave out publish")
    assert approver.post("/runs", json=new).status_code == 201


def test_the_guard_is_an_administrators_and_tokens_stand_for_persons(
    operator: httpx.Client, approver: httpx.Client, client: Client, guarded: AnArchive
) -> None:
    admin = client(Scope.ADMIN)
    for caller in (operator, approver):
        problem(caller.patch("/archives/papers", json={"require_approval": []}), 403, "needs admin")
        problem(caller.post("/tokens", json={"name": "x", "scope": "approve"}), 403, "needs admin")
    settings = admin.patch("/archives/papers", json=GUARDED | {"approval_not_author": True}).json()["settings"]
    assert (settings["require_approval"], settings["approval_not_author"]) == (["publish"], True)
    guarded.commit({"publish": ""}, author="ann")
    task = f"/tasks/{guarded.task('publish@2')}"
    problem(approver.post(f"{task}/release"), 409, "names no person", "--author NAME")
    for authors, status in ((["ann"], 409), (["bob", "Ann <x@y>"], 409), (["bob"], 200)):
        made = admin.post("/tokens", json={"name": "approver", "scope": "approve", "authors": authors}).json()
        own = {"Authorization": f"Bearer {made['token']}"}
        assert approver.post(f"{task}/release", headers=own).status_code == status, authors
    problem(
        admin.post("/tokens", json={"name": "x", "scope": "operate", "authors": ["bob"]}),
        422,
        "means nothing for the scope operate",
    )
