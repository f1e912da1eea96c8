"""Locks over HTTP: who may set them, and what is shown to whom."""

from __future__ import annotations

from arkqueue.db.session import Session
from arkqueue.queue import locks
from arkqueue.queue.tokens import Scope
from tests.builders import an_archive
from tests.system.web.conftest import Client, problem


def test_a_lock_of_the_installation_is_set_by_who_may_touch_every_archive(client: Client, session: Session) -> None:
    secret, papers = an_archive(session, "secret"), an_archive(session, "papers")
    for archive in (secret, papers):
        archive.commit({"hidden" if archive is secret else "print": "lock: global/printer"})
    locks.pass_on(session)
    confined, operator = client(Scope.OPERATE, "papers"), client(Scope.OPERATE)
    for path in ("/locks/global/printer/pause", "/locks/global/printer/resume"):
        problem(confined.post(path), 403, "a lock of the whole installation concerns every one")
    problem(confined.put("/locks/global/printer", json={"capacity": 2}), 403, "concerns every one")
    (seen,) = confined.get("/locks").json()
    assert (seen["name"], seen["holders"], seen["elsewhere"]) == ("global/printer", [], 1)
    assert [task["full_name"] for task in seen["waiting"]] == ["papers@2/print"]
    assert (seen["waiting_elsewhere"], seen["next"], seen["next_elsewhere"]) == (0, "papers@2/print", False)
    secret.commit({"buried": "lock: global/printer", "deeper": "lock: global/printer"})
    (seen,) = confined.get("/locks").json()
    assert (seen["waiting_elsewhere"], seen["more"]) == (2, False)
    assert [task["full_name"] for task in seen["waiting"]] == ["papers@2/print"]
    (other,) = client(Scope.READ, "secret").get("/locks").json()
    assert (other["next"], other["next_elsewhere"], other["waiting_elsewhere"]) == (None, True, 1)
    assert "papers" not in str(other)
    assert "secret" not in str(seen)
    for path in (f"/tasks/{papers.task('print@2')}/explain", "/explain?name=papers@2/print"):
        assert "secret" not in confined.get(path).text
        assert "which a task of another archive has" in confined.get(path).text
        assert "which secret@2/hidden has" in operator.get(path).text

    found = operator.put("/locks/global/printer", json={"capacity": 2}).json()
    assert (found["name"], found["capacity"]) == ("global/printer", 2)
    assert [task["full_name"] for task in found["holders"]] == ["secret@2/hidden"]
    paused = operator.post("/locks/global/printer/pause", json={"reason": "no paper"}).json()
    assert (paused["pause_reason"], paused["paused_by"]) == ("no paper", "operate test")
    assert operator.post("/locks/global/printer/resume").json()["paused_at"] is None
    problem(operator.post("/locks/global/printer/resume"), 409, "lock global/printer: is not paused")
    problem(operator.put("/locks/global/", json={"capacity": 2}), 422, "is not the name of a lock")
