"""Holds and releases over HTTP: who may, what is answered, and what is refused."""

from __future__ import annotations

import httpx

from arkqueue.db.session import Session
from arkqueue.queue.tokens import Scope
from tests.builders import an_archive
from tests.system.web.conftest import Client, problem


def test_a_task_and_a_run_are_held_and_released(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "depends: [a]"})
    task = f"/tasks/{archive.task('a@2')}"
    held = operator.post(f"{task}/hold", json={"reason": "the disk is full"}).json()
    assert (held["state"], held["why"]) == ("held", "by operate test: the disk is full")
    problem(operator.post(f"{task}/hold"), 409, "is held already")
    released = operator.post(f"{task}/release", json={"reason": "a new disk"}).json()
    assert released["state"] == "ready"
    assert [(deed["verb"], deed["note"]) for deed in released["deeds"]] == [
        ("hold", "the disk is full"),
        ("release", "a new disk"),
    ]
    problem(operator.post(f"{task}/release"), 409, "is ready: only a held task is released")
    problem(operator.post(f"{task}/hold", json={"because": "x"}), 422, "because")
    archive.commit({"a": "", "b": "depends: [a]", "g": "# gate"})
    run = f"/runs/{archive.run_id(3)}"
    done = operator.post(f"{run}/hold").json()
    assert (done["done"], done["refused"], done["run"]["state"]) == (["papers@3/a", "papers@3/b"], [], "held")
    assert done["run"]["counts"]["held"] == 2
    assert operator.post(f"{run}/release").json()["run"]["state"] == "pending"
    problem(operator.post(f"{run}/release"), 409, "has no held task")


def test_an_archive_is_held_and_what_is_outdated_is_named_at_its_release(
    operator: httpx.Client, session: Session
) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "other": ""})
    held = operator.post("/archives/papers/hold", json={"reason": "Friday"}).json()
    assert held["done"] == ["papers@2/a", "papers@2/other"]
    assert (held["archive"]["hold"]["by"], held["archive"]["hold"]["reason"], held["archive"]["held"]) == (
        "operate test",
        "Friday",
        2,
    )
    problem(operator.post("/archives/papers/release"), 409, "arkqueue unhold papers")
    assert operator.post("/archives/papers/unhold").json()["hold"] is None
    archive.commit({"a": ""})
    archive.run("a@3")
    done = operator.post("/archives/papers/release").json()
    assert done["done"] == ["papers@2/other"]
    assert [refusal["task"] for refusal in done["refused"]] == ["papers@2/a"]
    assert "papers@3/a" in done["refused"][0]["reason"]
    done = operator.post("/archives/papers/release", json={"skip_outdated": True}).json()
    assert (done["done"], done["skipped"], done["refused"]) == ([], ["papers@2/a"], [])
    assert archive.state("a@2") == "skipped"


def test_a_release_of_everything_says_which_approval_steps_it_approves(client: Client, session: Session) -> None:
    approver, archive = client(Scope.APPROVE), an_archive(session)
    archive.sql('update archive set settings = settings || \'{"require_approval": ["deposit"]}\'')
    archive.commit({"a": "", "seen": "hold: true", "deposit": ""})
    approver.post(f"/tasks/{archive.task('a@2')}/hold")
    approver.post(f"/tasks/{archive.task('seen@2')}/release")
    approver.post(f"/tasks/{archive.task('seen@2')}/hold")
    for options in ({"dry_run": "true"}, {}):
        done = approver.post("/archives/papers/release", params=options).json()
        assert done["done"] == ["papers@2/a", "papers@2/seen", "papers@2/deposit"]
        assert done["approved"] == ["papers@2/seen", "papers@2/deposit"]
    assert archive.states() == {"a@2": "ready", "seen@2": "ready", "deposit@2": "ready"}
