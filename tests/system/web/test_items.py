"""Verbs on an item of a list over HTTP: the ``item`` of a verb on its run."""

from __future__ import annotations

import httpx

from arkqueue.db.session import Session
from arkqueue.model import AttemptKind
from arkqueue.queue.tokens import Scope
from tests.builders import AnArchive, a_list, an_archive
from tests.system.web.conftest import Client, problem


def run_of(archive: AnArchive, number: int = 2) -> str:
    return f"/runs/{archive.run_id(number)}"


def test_a_hold_of_an_item_holds_what_has_not_started_of_it(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    archive.commit(
        {"fetch": "foreach: [a, b]", "seen": "foreach: [a, b]\n# gate", "store": "foreach: [a, b]\ndepends: [fetch]"}
    )
    archive.claim("fetch/a@2")
    done = operator.post(f"{run_of(archive)}/hold", json={"item": "a", "reason": "look first"}).json()
    assert (done["done"], done["refused"]) == (["papers@2/store/a"], [])
    assert archive.state("fetch/a@2") == "running", "what runs goes on to its end"
    assert [archive.state(f"{key}@2") for key in ("seen/a", "store/b")] == ["completed", "waiting"]
    deeds = operator.get(f"/tasks/{archive.task('store/a@2')}").json()["deeds"]
    assert [(deed["verb"], deed["by"], deed["note"]) for deed in deeds] == [("hold", "operate test", "look first")]
    problem(
        operator.post(f"{run_of(archive)}/hold", json={"item": "a"}),
        409,
        "papers@2: has no task of the item a to hold: fetch is running, seen is completed, store is held",
    )


def test_a_list_is_named_in_a_verb_on_its_run(operator: httpx.Client, session: Session) -> None:
    archive = a_list(session)
    at = run_of(archive)
    held = operator.post(f"{at}/hold", json={"list": "fetch", "reason": "wait"}).json()
    assert held["done"] == ["papers@2/fetch/a", "papers@2/fetch/b%2Fc"]
    released = operator.post(f"{at}/release", json={"list": "fetch", "states": ["held"]}).json()
    assert len(released["done"]) == 2
    problem(operator.post(f"{at}/release", json={"list": "fetch"}), 409, "papers@2: has no item of fetch to release")
    problem(operator.post(f"{at}/cancel", json={"list": "one"}), 404, "papers@2/one/*: is not a list of this run")
    for verb, body in (
        ("cancel", {"states": ["ready"]}),
        ("hold", {"states": ["ready"]}),
        ("hold", {"list": "fetch", "item": "a"}),
        ("cancel", {"list": "fetch", "item": "a"}),
        ("retry", {"list": "fetch", "from_task": "fetch"}),
        ("retry", {"list": "fetch", "failed": True, "states": ["canceled"]}),
        ("cancel", {"list": "fetch", "states": ["no-state"]}),
        ("cancel", {"list": ""}),
        ("prioritize", {"list": "fetch"}),
        ("delete-items", {"states": ["failed"]}),
    ):
        assert operator.post(f"{at}/{verb}", json=body).status_code == 422, (verb, body)
    assert archive.state("fetch/a@2") == "ready"


def test_a_release_of_an_item_releases_nothing_of_another(operator: httpx.Client, session: Session) -> None:
    archive = a_list(session)
    operator.post(f"{run_of(archive)}/hold", json={})
    done = operator.post(f"{run_of(archive)}/release", json={"item": "b/c", "reason": "seen"}).json()
    assert done["done"] == [f"papers@2/{name}/b%2Fc" for name in ("fetch", "check", "store")]
    assert [archive.state(f"fetch/{item}@2") for item in ("a", "b/c")] == ["held", "ready"]
    deeds = operator.get(f"/tasks/{archive.task('store/b/c@2')}").json()["deeds"]
    assert [(deed["verb"], deed["note"]) for deed in deeds][-1] == ("release", "seen")
    told = [deed["task"] for deed in operator.get(run_of(archive)).json()["deeds"] if deed["verb"] == "release"]
    assert told == ["fetch/b%2Fc", "check/b%2Fc", "store/b%2Fc"]


def test_a_verb_on_an_item_answers_with_its_tasks_alone(operator: httpx.Client, session: Session) -> None:
    archive = a_list(session)
    run = operator.post(f"{run_of(archive)}/hold", json={"item": "a"}).json()["run"]
    names = [f"papers@2/{name}/a" for name in ("fetch", "check", "store")]
    assert [task["full_name"] for task in run["tasks"]] == names
    assert {edge["target_name"] for edge in run["edges"]} == {*names}
    assert run["counts"]["tasks"] == 6
    shown = operator.get(run_of(archive), params={"item": "a"}).json()
    assert (shown["tasks"], shown["edges"]) == (run["tasks"], run["edges"])
    assert len(operator.get(run_of(archive)).json()["tasks"]) == 7


def test_what_is_outdated_of_an_item_is_refused_forced_or_waived(operator: httpx.Client, session: Session) -> None:
    """The later revision has stored the items; nobody has checked one since."""
    archive = an_archive(session)
    archive.commit({"check": "foreach: [a, b, c]", "store": "foreach: [a, b, c]"})
    release = f"{run_of(archive)}/release"
    operator.post(f"{run_of(archive)}/hold", json={})
    archive.commit({"store": "foreach: [a, b, c]"})
    archive.run("store/a@3", "store/b@3", "store/c@3")
    done = operator.post(release, json={"item": "a"}).json()
    assert done["done"] == ["papers@2/check/a"]
    assert [refusal["task"] for refusal in done["refused"]] == ["papers@2/store/a"]
    assert "papers@3/store/a" in done["refused"][0]["reason"]
    problem(operator.post(release, json={"item": "a"}), 409, "papers@3/store/a")
    assert operator.post(release, json={"item": "a", "force": True}).json()["done"] == ["papers@2/store/a"]
    done = operator.post(release, json={"item": "b", "skip_outdated": True}).json()
    assert done["refused"] == []
    assert [archive.state(f"{key}@2") for key in ("check/b", "store/b", "store/c")] == ["ready", "skipped", "held"]


def test_what_a_guard_holds_of_an_item_takes_an_approver(client: Client, session: Session) -> None:
    operator, approver, archive = client(Scope.OPERATE), client(Scope.APPROVE), an_archive(session)
    archive.sql('update archive set settings = settings || \'{"require_approval": ["store"]}\'')
    archive.commit({"check": "foreach: [a, b]\nhold: true", "store": "foreach: [a, b]"})
    release = f"{run_of(archive)}/release"
    done = operator.post(release, json={"item": "a"}).json()
    assert done["done"] == ["papers@2/check/a"]
    assert [refusal["task"] for refusal in done["refused"]] == ["papers@2/store/a"]
    problem(operator.post(release, json={"item": "a"}), 409, "is guarded by require-approval")
    assert approver.post(release, json={"item": "a"}).json()["done"] == ["papers@2/store/a"]
    assert archive.state("store/b@2") == "held"


def test_nothing_of_an_item_is_released_while_its_archive_is_on_hold(operator: httpx.Client, session: Session) -> None:
    archive = a_list(session)
    operator.post("/archives/papers/hold", json={"reason": "Friday"})
    answer = operator.post(f"{run_of(archive)}/release", json={"item": "a"})
    problem(answer, 409, "is on hold (by operate test: Friday)", "arkqueue unhold papers")
    assert archive.state("fetch/a@2") == "held"


def test_a_refresh_of_an_item_polls_what_is_polled_of_it(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"deposit": "foreach: [a, b]\npoll: {command: ask, every: 1h}", "other": "foreach: [a, b]"})
    for key in ("deposit/a@2", "deposit/b@2", "other/a@2"):
        archive.end(key, 75)
    done = operator.post(f"{run_of(archive)}/refresh", json={"item": "a"}).json()
    assert (done["done"], done["refused"]) == (["papers@2/deposit/a"], [])
    states = [archive.state(f"{key}@2") for key in ("deposit/a", "deposit/b", "other/a")]
    assert states == ["ready", "deferred", "deferred"]
    assert archive.claim("deposit/a@2").kind is AttemptKind.POLL
    problem(
        operator.post(f"{run_of(archive)}/refresh", json={"item": "a"}), 409, "has no task of the item a to refresh"
    )


def test_an_item_is_named_for_runs_alone(operator: httpx.Client, session: Session) -> None:
    archive = a_list(session)
    for verb in ("hold", "release"):
        for place in (f"/tasks/{archive.task('fetch/a@2')}", "/archives/papers"):
            problem(operator.post(f"{place}/{verb}", json={"item": "a"}), 422, "item")
        problem(operator.post(f"{run_of(archive)}/{verb}", json={"item": ""}), 422, "item")
    problem(operator.post(f"{run_of(archive)}/delete", params={"item": ""}), 422, "item")


def test_a_priority_of_an_item_is_for_what_has_not_started_of_it(operator: httpx.Client, session: Session) -> None:
    archive = a_list(session)
    archive.claim_some(1)
    prioritize = f"{run_of(archive)}/prioritize"
    problem(operator.post(prioritize, json={"item": "a"}), 422, "names no priority")
    problem(operator.post(prioritize, json={"item": "a", "priority": 1.5}), 422, "priority: must be a whole number")
    problem(
        operator.post(prioritize, json={"item": "a", "priority": 3, "force": True}), 422, "force means nothing here"
    )
    done = operator.post(prioritize, json={"item": "a", "priority": 3}).json()
    assert done["done"] == ["papers@2/check/a", "papers@2/store/a"]
    changed = [task["full_name"] for task in done["run"]["tasks"] if task["priority"] == 3]
    assert changed == done["done"]
    deeds = operator.get(f"/tasks/{archive.task('store/a@2')}").json()["deeds"]
    assert [(deed["verb"], deed["note"]) for deed in deeds] == [("prioritize", "3")]
    operator.post(f"{run_of(archive)}/cancel", json={"item": "a"})
    problem(
        operator.post(prioritize, json={"item": "a", "priority": 3}), 409, "has no task of the item a to prioritize"
    )
    problem(operator.post(prioritize, json={"item": "a"}), 422, "names no priority")


def test_a_deleted_item_is_read_with_scope_admin_alone(client: Client, session: Session) -> None:
    operator, reader, admin = client(Scope.OPERATE), client(Scope.READ), client(Scope.ADMIN)
    archive = a_list(session)
    archive.end("fetch/a@2", 1)
    run, task = run_of(archive), f"/tasks/{archive.task('fetch/a@2')}"
    attempt = f"/attempts/{archive.sql('select max(id) as id from attempt where task_id = %s', archive.task('fetch/a@2'))[0]['id']}"
    problem(reader.post(f"{run}/delete", params={"item": "a"}), 403, "needs operate")
    answer = operator.post(f"{run}/delete", params={"item": "a"}).json()
    assert not [found for found in answer["tasks"] if found["item"] == "a"]
    assert (answer["counts"]["tasks"], answer["counts"]["failed"]) == (3, 0)
    for path in (task, f"{task}/attempts", f"{task}/explain", attempt, f"{attempt}/log"):
        problem(reader.get(path), 403, "belongs to an item that was deleted", "arkqueue undelete 'papers@2/*/a'")
        assert admin.get(path).status_code == 200, path
    problem(operator.get(f"{run}/deleted-items"), 403, "needs admin")
    (tombstone,) = admin.get(f"{run}/deleted-items").json()
    assert (tombstone["full_name"], tombstone["deleted_by"]) == ("papers@2/*/a", "operate test")
    assert tombstone["tasks"] == [f"papers@2/{name}/a" for name in ("fetch", "check", "store")]
    found = reader.get("/graph", params={"archive": "papers", "first": 2, "last": 2}).json()
    assert not [node for node in found["nodes"] if node["item"] == "a"]
    back = operator.post(f"{run}/undelete", params={"item": "a"}).json()
    assert {task["full_name"]: task["state"] for task in back["tasks"] if task["item"] == "a"} == {
        "papers@2/fetch/a": "failed", "papers@2/check/a": "skipped", "papers@2/store/a": "skipped",
    }  # fmt: skip
    assert admin.get(f"{run}/deleted-items").json() == []
