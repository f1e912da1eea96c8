"""Runs and tasks over HTTP: read, triggered by hand, and acted on."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pydantic import TypeAdapter
from starlette.types import Message

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.model import ArchiveId, End, RunId, Usage
from arkqueue.queue import archives
from arkqueue.views import runs
from arkqueue.views.runs import RunDetail
from arkqueue.web import create_app
from arkqueue.web.api.responses import MOST
from tests.builders import AnArchive, an_archive, faulty
from tests.db.test_example import example
from tests.system.web.conftest import problem

CHAIN = {"a": "", "b": "depends: [a]", "c": "depends: [b]"}


@pytest.fixture
def archive(session: Session) -> AnArchive:
    archive = an_archive(session)
    archive.commit(CHAIN)
    return archive


def names(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [run["full_name"] for run in answer.json()["runs"]]


# Reading


def test_runs_are_listed_in_pages_with_filters(reader: httpx.Client, archive: AnArchive) -> None:
    for _ in range(3):
        archive.commit({})
    first = reader.get("/runs", params={"limit": 2})
    assert names(first) == ["papers@5", "papers@4"]
    assert names(reader.get("/runs", params={"limit": 2, "before": first.json()["next"]})) == ["papers@3", "papers@2"]
    assert names(reader.get("/runs", params={"state": ["pending", "failed"]})) == ["papers@2"]
    assert names(reader.get("/runs", params={"archive": "papers", "rev": 3})) == ["papers@3"]
    assert names(reader.get("/runs", params={"since": "2999-01-01T00:00:00Z"})) == []
    (run,) = reader.get("/runs", params={"rev": 2, "tasks": True}).json()["runs"]
    assert [task["name"] for task in run["tasks"]] == ["COMMIT", "a", "b", "c"]


@pytest.mark.usefixtures("archive")
def test_faulty_filters_are_told(reader: httpx.Client) -> None:
    for query, status, said in (
        ("state=sleeping", 422, "state"),
        ("limit=0", 422, "limit"),
        ("since=yesterday", 422, "since"),
        ("archive=paper", 404, "Did you mean papers?"),
        ("archive=papers&branch=x", 404, "has no branch 'x'"),
        ("branch=x", 422, "Give archive too"),
        ("archive=papers&archive=code", 422, "'archive' more than once"),
        ("archiv=papers", 422, "'archiv', which means nothing here. There are: archive, branch, rev"),
    ):
        problem(reader.get(f"/runs?{query}"), status, said)


def test_parameter_that_means_nothing_is_refused_before_anything_is_done(
    operator: httpx.Client, archive: AnArchive
) -> None:
    run = f"/runs/{archive.run_id(2)}"
    problem(operator.post(f"{run}/cancel", params={"dryrun": True}), 422, "'dryrun'", "There are: dry_run.")
    assert operator.get(run).json()["state"] == "pending"
    problem(operator.post("/runs", json={"archive": "papers", "revision": True}), 422, "revision")


def test_body_that_means_nothing_is_refused_before_anything_is_done(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"fetch": "foreach: [a, b]"})
    run = f"/runs/{archive.run_id(2)}"
    delete = f"{run}/delete"
    for body in ({"item": "a"}, {"dry_run": True}):
        problem(operator.post(delete, json=body), 422, "has a body", "There are the parameters item, dry_run.")
    problem(operator.post(delete, content=iter([b'{"item": "a"}'])), 422, "has a body")
    assert operator.get(run).json()["state"] == "pending"
    assert operator.post(delete, json={}, params={"item": "a"}).status_code == 200
    problem(operator.request("GET", "/whoami", json={"x": 1}), 422, "has a body", "Send none.")


def test_run_has_its_tasks_and_edges_or_its_faults(reader: httpx.Client, session: Session) -> None:
    archive = example(session)
    run = reader.get(f"/runs/{archive.run_id(3)}").json()
    assert (run["full_name"], run["state"], run["trigger"], run["author"]) == ("papers@3", "pending", "commit", "ann")
    assert [(t["name"], t["state"]) for t in run["tasks"]] == [
        ("COMMIT", "completed"), ("indexing", "waiting"), ("build-PDF", "waiting")
    ]  # fmt: skip
    assert ("papers@2/build-PDF", "papers@3/build-PDF", "cancels") in {
        (e["source_name"], e["target_name"], e["kind"]) for e in run["edges"]
    }
    archive.commit(faulty())
    run = reader.get(f"/runs/{archive.run_id(4)}").json()
    assert run["state"] == "failed"
    assert run["faults"] == [
        {"path": "_workflows/test.yaml", "line": 1, "column": 1, "message": "a fault", "word": "", "suggestion": ""}
    ]
    problem(reader.get("/runs/999"), 404, "run 999")
    problem(reader.get("/runs/x"), 422)
    problem(reader.get(f"/runs/{10**30}"), 404)


def test_task_has_its_definition_and_attempts(reader: httpx.Client, archive: AnArchive) -> None:
    archive.record(archive.attempt("a@2"), End.EXITED, 1, usage=Usage(0.8, 54 << 20))
    task = reader.get(f"/tasks/{archive.task('a@2')}").json()
    assert (task["full_name"], task["state"], task["why"], task["exit_code"]) == (
        "papers@2/a",
        "failed",
        "exit code 1",
        1,
    )
    assert task["definition"]["command"] == "true"
    (attempt,) = task["history"]
    used = ("processor_seconds", "peak_memory_bytes", "usage_sampled")
    assert [attempt[field] for field in used] == [0.8, 54 << 20, False]
    assert task["history"] == reader.get(f"/tasks/{task['id']}/attempts").json()
    assert reader.get(f"/attempts/{task['attempt']}").json() == task["history"][0]
    problem(reader.get("/tasks/999"), 404)
    problem(reader.get("/attempts/999"), 404)


def test_names_are_found(reader: httpx.Client, archive: AnArchive) -> None:
    found = reader.get("/find", params={"name": "papers@2/b"}).json()
    nothing_else = {"item": None, "list": None, "earlier": None}
    assert found == {"full_name": "papers@2/b", "run": archive.run_id(2), "task": archive.task("b@2")} | nothing_else
    found = reader.get("/find", params={"name": "papers@2"}).json()
    assert found == {"full_name": "papers@2", "run": archive.run_id(2), "task": None} | nothing_else
    problem(reader.get("/find", params={"name": "papers@2/x"}), 404, "papers@2 has no task 'x'")
    problem(reader.get("/find", params={"name": "nonsense"}), 422, "papers@12/index")


def test_explanation_has_text_reasons_and_commands(reader: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"c": "depends: [PREV]"})
    archive.run("a@2")
    archive.fail("b@2")
    told = reader.get(f"/tasks/{archive.task('c@3')}/explain").json()
    assert told == reader.get("/explain", params={"name": "papers@3/c"}).json()
    assert told["reasons"][0]["kind"] == "blocked"
    assert told["commands"] == ["arkqueue retry papers@2/b", "arkqueue skip papers@2/b"]
    assert "It waits (through papers@2/c, which was skipped) for papers@2/b, which failed" in told["text"]
    problem(reader.get("/explain", params={"name": "paper@3/c"}), 404, "Did you mean papers?")
    assert reader.get("/explain", params={"name": "papers@77"}).json()["reasons"][0]["kind"] == "not-in-ledger"


# By hand


def test_run_is_triggered_at_the_head_or_at_a_revision(operator: httpx.Client, archive: AnArchive) -> None:
    made = operator.post("/runs", json={"archive": "papers"}, headers={"Arkqueue-User": "ann"})
    assert made.status_code == 201, made.text
    run = made.json()
    assert made.headers["location"] == f"/api/v1/runs/{run['id']}"
    assert (run["full_name"], run["trigger"], run["by"]) == ("papers@2.2", "manual", "ann (operate test)")
    archive.commit(CHAIN)
    run = operator.post("/runs", json={"archive": "papers", "revision": 2, "tasks": ["a"]}).json()
    assert [task["full_name"] for task in run["tasks"]] == ["papers@2.3/COMMIT", "papers@2.3/a"]


RELEASE = {
    "index": "",
    "pdf": "depends: [index]",
    "nightly": "on: [manual, schedule]\nschedule: '0 3 * * *'",
    "approve": "on: manual",
    "release": "on: manual\ndepends: [pdf, {task: approve, optional: true}]",
}


def tasks_of(run: Any) -> list[str]:
    return [task["name"] for task in run["tasks"] if task["kind"] == "ordinary"]


def test_only_who_names_it_runs_what_runs_by_hand_alone(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session, "books")
    archive.commit(RELEASE)
    assert tasks_of(operator.post("/runs", json={"archive": "books"}).json()) == ["index", "pdf"]
    assert tasks_of(operator.post("/runs", json={"archive": "books", "tasks": ["release"]}).json()) == ["release"]
    archive.commit({"release": "on: manual", "approve": "on: manual"})
    said = problem(
        operator.post("/runs", json={"archive": "books"}), 409, "no task of this revision runs both on commits"
    )
    assert "name what is to run: release, approve" in str(said)


def test_a_run_is_said_before_it_is_made(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session, "books")
    archive.commit(RELEASE)
    archive.run("index@2")
    asked: dict[str, Any] = {"archive": "books", "tasks": ["index", "pdf", "release"]}
    said = operator.post("/runs", json=asked, params={"dry_run": True})
    assert said.status_code == 200, said.text
    index = {"task": "index", "state": None, "is_awaited": True}
    pdf = {"task": "pdf", "state": None, "is_awaited": True}
    free: dict[str, Any] = {"stops": [], "more_stopped": False, "locks": [], "runs_on": []}
    assert said.json() == {
        "full_name": "books@2.2",
        "revision": 2,
        "note": "books: its repository was not scanned within 0 s. What is known of it counts.",
        "tasks": [
            {"name": "index", "item": "", "needs": [], "never_ran": [], "held": None, **free},
            {"name": "pdf", "item": "", "needs": [index], "never_ran": [], "held": None, **free},
            {"name": "release", "item": "", "needs": [pdf], "never_ran": ["approve"], "held": None, **free},
        ],
        "obstacles": [
            {
                "kind": "no-task-manager",
                "text": "No task manager is running: no task starts.",
                "tasks": [],
                "commands": ["arkqueue worker"],
            }
        ],
    }
    asked["tasks"] = ["pdf"]
    (task,) = operator.post("/runs", json=asked, params={"dry_run": True}).json()["tasks"]
    assert task["needs"] == [{"task": "books@2/index", "state": "completed", "is_awaited": False}]
    asked["tasks"] = ["release"]
    (task,) = operator.post("/runs", json=asked, params={"dry_run": True}).json()["tasks"]
    assert task["needs"] == [{"task": "books@2/pdf", "state": "ready", "is_awaited": True}]
    assert len(operator.get("/runs", params={"archive": "books"}).json()["runs"]) == 2, "nothing was made"
    made = operator.post("/runs", json=asked).json()
    assert made["full_name"] == "books@2.2"


def test_a_dry_run_is_refused_as_the_run_would_be(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session, "books")
    archive.commit({"release": "on: manual\ndepends: [approve]", "approve": "on: manual"})
    asked: dict[str, Any] = {"archive": "books", "tasks": ["release"]}
    for options in ({}, {"dry_run": True}):
        problem(operator.post("/runs", json=asked, params=options), 409, "release needs approve, which has never run")
    archives.stop(session, ArchiveId(archive.id), "it is another one")
    asked["tasks"] = ["approve"]
    for options in ({}, {"dry_run": True}):
        problem(operator.post("/runs", json=asked, params=options), 409, "is stopped, so none of its tasks starts")


@pytest.mark.usefixtures("archive")
def test_half_of_a_surrogate_pair_is_refused(admin: httpx.Client) -> None:
    """JSON can contain one, and PostgreSQL and UTF-8 cannot."""
    half = {"content-type": "application/json"}
    of_none = admin.post("/runs", content=b'{"archive": "\\ud800"}', headers=half)
    problem(of_none, 422, "holds a text or a number that cannot be stored", "no half of a surrogate pair")
    repeated = problem(admin.patch("/archives/papers", content=b'{"follow": ["\\ud800"]}', headers=half), 422)
    assert repeated["thing"] == "follow ?"
    assert admin.get("/archives/papers").status_code == 200


def test_run_is_triggered_at_a_sha(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session, "books", branches=("main", "topic"))
    archive.commit({"a": ""}, branch="topic")
    sha = "abcdef" + "0" * 34
    archive.sql("update revision set name = %s where branch_id = %s and number = 2", sha, archive.branches["topic"].id)
    for given in (sha, "abcdef", "gabcdef"):
        run = operator.post("/runs", json={"archive": "books", "revision": given})
        assert (run.status_code, run.json()["branch"]) == (201, "topic"), run.text
    problem(operator.post("/runs", json={"archive": "books", "revision": "HEAD~1"}), 422, "neither a number nor a SHA")


def test_trigger_is_refused_with_the_reason(operator: httpx.Client, reader: httpx.Client, archive: AnArchive) -> None:
    new = {"archive": "papers", "revision": 2}
    problem(reader.post("/runs", json=new), 403, "needs operate")
    problem(operator.post("/runs", json={**new, "tasks": ["x"]}), 422, "has no task 'x'")
    problem(operator.post("/runs", json={**new, "revision": 9}), 404, "the newest is 2")
    problem(operator.post("/runs", json={**new, "revision": "9" * 5000}), 404, "no ledger has so many revisions")
    problem(operator.post("/runs", json={**new, "archive": "paper"}), 404, "Did you mean papers?")
    problem(operator.post("/runs", json={**new, "branch": "x"}), 404)
    problem(operator.post("/runs", json={**new, "tasks": []}), 422)
    archive.cancel("a@2")
    problem(operator.post("/runs", json={**new, "tasks": ["b"]}), 409, "b needs papers@2/a, which was canceled")
    problem(operator.post("/runs", json={**new, "without": ["x"]}), 422, "has no task 'x'")
    assert operator.post("/runs", json={**new, "tasks": ["b"], "without": ["a"]}).status_code == 201
    archive.commit({"a": "cancels: [PREV]"})
    problem(operator.post("/runs", json={**new, "tasks": ["a"]}), 409, "superseded by a of revision 3")
    assert operator.post("/runs", json={**new, "tasks": ["a"], "force": True}).status_code == 201


# Acting on tasks


def test_a_verb_answers_with_the_task_as_it_is_then(operator: httpx.Client, archive: AnArchive) -> None:
    task = f"/tasks/{archive.task('a@2')}"
    answer = operator.post(f"{task}/cancel")
    assert (answer.status_code, answer.json()["state"], answer.json()["by"]) == (200, "canceled", "operate test")
    problem(operator.post(f"{task}/cancel"), 409, "papers@2/a: is canceled already")
    assert operator.post(f"{task}/retry").json()["state"] == "ready"
    problem(operator.post(f"{task}/retry"), 409, "is ready")
    problem(operator.post(f"{task}/restart"), 409, "only a running task is restarted")
    assert operator.post(f"{task}/skip").json()["state"] == "skipped"
    assert archive.states() == {"a@2": "skipped", "b@2": "skipped", "c@2": "skipped"}
    archive.commit(CHAIN)
    archive.claim("a@3")
    task = f"/tasks/{archive.task('a@3')}"
    assert operator.post(f"{task}/restart").json()["stop"] == "restart"
    assert operator.post(f"{task}/cancel").json()["stop"] == "cancel"
    assert operator.post(f"{task}/cancel", json={"assume_gone": True}).json()["state"] == "canceled"
    archive.commit(CHAIN)
    archive.fail("a@4")
    failed = operator.post(f"/tasks/{archive.task('a@4')}/skip", json={"as_completed": True}).json()
    assert (failed["state"], failed["waived"]) == ("failed", True)
    assert archive.state("b@4") == "ready"


def test_a_verb_is_for_what_is_there_and_has_its_own_options(operator: httpx.Client, archive: AnArchive) -> None:
    run, task, before = archive.run_id(2), archive.task("a@2"), archive.states()
    for verb in ("cancel", "restart", "retry", "skip"):
        problem(operator.post(f"/tasks/999/{verb}"), 404, "task 999")
        problem(operator.post(f"/runs/999/{verb}"), 404, "run 999")
        problem(operator.post(f"/tasks/{archive.task('COMMIT@2')}/{verb}"), 409)
        problem(operator.post(f"/tasks/{task}/{verb}", json={"forse": True}), 422, "forse")
    problem(operator.post("/runs/999/delete"), 404)
    problem(operator.post(f"/tasks/{task}/explode"), 422, "verb")
    for path, option in (
        (f"/runs/{run}/cancel", "assume_gone"), (f"/tasks/{task}/cancel", "force"), (f"/tasks/{task}/restart", "force"),
        (f"/tasks/{task}/retry", "as_completed"), (f"/tasks/{task}/skip", "assume_gone"),
    ):  # fmt: skip
        problem(operator.post(path, json={option: True}), 422, f"{option} means nothing here")
    assert archive.states() == before


def test_a_priority_is_a_whole_number_that_has_to_be_said(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "depends: [a]"})
    task, run = f"/tasks/{archive.task('b@2')}", f"/runs/{archive.run_id(2)}"
    assert operator.post(f"{task}/prioritize", json={"priority": 0}).json()["priority"] == 0
    for wrong, said in {-1: "must be 0 or more", 1001: "must be 1000 or less", "7": "must be a whole number"}.items():
        problem(operator.post(f"{task}/prioritize", json={"priority": wrong}), 422, f"priority: {said}. See /docs")
    problem(operator.post(f"{task}/prioritize", json={"priority": 1.5}), 422, "priority: must be a whole number")
    problem(operator.post(f"{task}/prioritize", json={"urgency": 1}), 422, "urgency: is not known here")
    problem(operator.post(f"{task}/note", json={"text": ""}), 422, "text: is empty")
    problem(operator.post(f"{task}/prioritize", json={}), 422, "names no priority")
    problem(operator.post(f"{task}/cancel", json={"priority": 0}), 422, "priority means nothing here")
    done = operator.post(f"{run}/prioritize", json={"priority": 7}).json()
    assert done["done"] == ["papers@2/a", "papers@2/b"]
    assert [one["priority"] for one in done["run"]["tasks"] if one["kind"] == "ordinary"] == [7, 7]


# Acting on runs


def test_run_is_restarted_skipped_canceled_and_deleted(operator: httpx.Client, archive: AnArchive) -> None:
    run = f"/runs/{archive.run_id(2)}"
    problem(operator.post(f"{run}/restart"), 409, "has no task to restart")
    archive.claim("a@2")
    assert operator.post(f"{run}/restart").json()["done"] == ["papers@2/a"]
    done = operator.post(f"{run}/skip").json()
    assert (done["done"], done["refused"]) == (["papers@2/b"], [])
    assert archive.states() == {"a@2": "running", "b@2": "skipped", "c@2": "skipped"}
    archive.commit(CHAIN)
    run = f"/runs/{archive.run_id(3)}"
    done = operator.post(f"{run}/cancel").json()
    assert (done["done"], done["run"]["state"]) == (["papers@3/a", "papers@3/b", "papers@3/c"], "canceled")
    problem(operator.post(f"{run}/cancel"), 409, "has nothing left to cancel")
    assert operator.post(f"{run}/delete").json()["state"] == "deleted"
    problem(operator.post(f"{run}/delete"), 409, "is deleted already")


def test_what_was_deleted_names_only_remedies_that_help(
    operator: httpx.Client, reader: httpx.Client, admin: httpx.Client, session: Session
) -> None:
    archive = an_archive(session)
    for number in (2, 3):
        archive.commit({"a": "", "b": "depends: [a]"})
        assert operator.post(f"/runs/{archive.run_id(number)}/delete").status_code == 200
    run, task = f"/runs/{archive.run_id(2)}", f"/tasks/{archive.task('a@2')}"
    problem(reader.get(run), 403, "papers@2: was deleted", "Use a token of scope admin, or undelete the run: arkqueue undelete papers@2")  # fmt: skip
    undelete = "Undelete the run: arkqueue undelete papers@2"
    assert operator.post(f"{run}/cancel").json()["remedy"] == undelete
    assert operator.post(f"{task}/cancel").json()["remedy"] == undelete
    problem(admin.post(f"{run}/cancel"), 409, "papers@2: was deleted", "arkqueue undelete papers@2")
    settings = ArchiveSettings(process=True, require_approval=("b",))
    archives.change_settings(session, archive.id, settings, "ann")
    undelete = "ndelete the run with a token of somebody who may approve its tasks: arkqueue undelete papers@2"
    assert operator.post(f"{run}/cancel").json()["remedy"] == f"U{undelete}"
    assert reader.get(run).json()["remedy"] == f"Use a token of scope admin, or u{undelete}"
    problem(operator.post(f"{run}/undelete"), 403, "require-approval")


def test_deleted_run_is_in_no_list_and_its_history_takes_the_scope_admin(
    operator: httpx.Client, reader: httpx.Client, admin: httpx.Client, archive: AnArchive
) -> None:
    archive.claim("a@2")
    archive.fail("a@2")
    run, task = f"/runs/{archive.run_id(2)}", f"/tasks/{archive.task('a@2')}"
    log = f"/attempts/{reader.get(task).json()['history'][0]['id']}/log"
    assert operator.post(f"{run}/delete").json()["state"] == "deleted"
    assert archive.states() == {"a@2": "failed", "b@2": "skipped", "c@2": "skipped"}

    listed = [one["full_name"] for one in reader.get("/runs").json()["runs"]]
    assert "papers@2" not in listed
    problem(operator.get("/runs?state=deleted"), 403, "scope")
    assert [one["full_name"] for one in admin.get("/runs?state=deleted").json()["runs"]] == ["papers@2"]
    assert "papers@2" in [one["full_name"] for one in admin.get("/runs?state=deleted&state=completed").json()["runs"]]
    by_name = ("/explain?name=papers@2", "/explain?name=papers@2/a")
    for call in (run, task, f"{task}/attempts", f"{task}/explain", log, f"{run}/graph", *by_name):
        problem(reader.get(call), 403, "deleted", "arkqueue undelete papers@2")
        assert "papers@2" in reader.get(call).json()["detail"]
        assert admin.get(call).status_code == 200
    problem(reader.get(run), 403, "papers@2: was deleted")
    problem(reader.get(log), 403, "papers@2/a: belongs to a run that was deleted")

    told = admin.get("/explain?name=papers@2").json()
    assert (told["text"], told["commands"]) == ("It was deleted.", ["arkqueue undelete papers@2"])

    back = operator.post(f"{run}/undelete").json()
    assert back["state"] == "failed"
    assert reader.get(log).status_code == 200
    problem(operator.post(f"{run}/undelete"), 409, "is not deleted")


def test_a_purged_run_says_who_purged_it(
    operator: httpx.Client, admin: httpx.Client, reader: httpx.Client, session: Session
) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "depends: [a]"})
    run = f"/runs/{archive.run_id(2)}"
    problem(admin.post(f"{run}/purge"), 409, "papers@2: is not settled, and is kept")
    archive.run("a@2", "b@2")
    problem(operator.post(f"{run}/purge"), 403, "scope")
    tried = admin.post(f"{run}/purge?dry_run=true").json()
    assert tried == {"runs": ["papers@2"], "kept": [], "left": 0, "gone": []}
    assert reader.get(run).status_code == 200
    assert admin.post(f"{run}/purge", json={"reason": "it is old"}).json() == tried
    for client in (reader, admin):
        problem(client.get(run), 404, "papers@2: was purged on 20")
        problem(client.get("/find?name=papers@2/a"), 404, "because it is old")
        problem(client.get("/explain?name=papers@2/a"), 404, "because it is old")
    problem(admin.post(f"{run}/undelete"), 404, "was purged on")


def test_run_is_retried_where_it_failed_and_where_it_is_deferred(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "depends: [a]", "other": "", "good": "", "later": ""})
    archive.fail("a@2", "other@2")
    archive.end("later@2", 75)
    archive.run("good@2")
    run = f"/runs/{archive.run_id(2)}"
    done = operator.post(f"{run}/retry").json()
    assert (done["done"], done["refused"]) == (["papers@2/a", "papers@2/other", "papers@2/later"], [])
    states = {"a@2": "ready", "b@2": "waiting", "other@2": "ready", "good@2": "completed", "later@2": "ready"}
    assert archive.states() == states
    problem(operator.post(f"{run}/retry"), 409, "has no task to retry")


def test_what_failed_of_an_archive_is_retried(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": ""})
    archive.fail("a@2")
    archive.end("b@2", 75)
    done = operator.post("/archives/papers/retry", json={"failed": True}).json()
    assert (done["done"], done["refused"], done["archive"]["name"]) == (["papers@2/a"], [], "papers")
    assert archive.states() == {"a@2": "ready", "b@2": "deferred"}
    problem(operator.post("/archives/papers/retry", json={}), 422, "would retry all tasks of an archive")
    problem(operator.post("/archives/papers/retry", json={"force": True}), 422, "force means nothing here")
    run = f"/runs/{archive.run_id(2)}"
    problem(operator.post(f"{run}/retry", json={"failed": True, "force": True}), 422, "asks to force what failed")
    problem(operator.post(f"{run}/cancel", json={"failed": True}), 422, "failed means nothing here")


def test_a_part_of_a_run_or_of_an_item_runs_again(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    archive.commit(
        {"fetch": "foreach: [a, b]", "pack": "foreach: [a, b]\ndepends: [fetch]", "index": "depends: [pack]"}
    )
    archive.run("fetch/a@2", "fetch/b@2", "pack/a@2", "pack/b@2", "index@2")
    path = f"/runs/{archive.run_id(2)}/retry"
    tried = operator.post(path, json={"from_task": "fetch"}, params={"dry_run": True}).json()
    assert len(tried["done"]) == 5
    assert set(archive.states().values()) == {"completed"}
    done = operator.post(path, json={"from_task": "fetch", "item": "b"}).json()
    assert (done["done"], done["refused"]) == (["papers@2/fetch/b", "papers@2/pack/b"], [])
    archive.run("fetch/b@2", "pack/b@2")
    done = operator.post(path, json={"from_task": "pack"}).json()
    assert sorted(done["done"]) == ["papers@2/index", "papers@2/pack/a", "papers@2/pack/b"]
    archive.claim()
    problem(
        operator.post(path, json={"from_task": "fetch"}), 409, "would run tasks again that are running: papers@2/pack/a"
    )
    problem(operator.post(path, json={"from_task": "fetsch"}), 404, "has no task 'fetsch'")
    problem(
        operator.post(path, json={"from_task": "fetch", "failed": True}), 422, "asks for what failed, and for a task"
    )
    skip = path.replace("retry", "skip")
    problem(operator.post(skip, json={"from_task": "fetch"}), 422, "from_task means nothing here")
    problem(operator.post("/archives/papers/retry", json={"from_task": "fetch"}), 422, "from_task means nothing here")
    one = f"/tasks/{archive.task('fetch/a@2')}/retry"
    problem(operator.post(one, json={"from_task": "fetch"}), 422, "from_task means nothing here")


def test_every_verb_can_be_tried_without_doing_it(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": "depends: [a]", "c": "", "running": "", "held": "hold: true"})
    archive.fail("a@2")
    archive.claim("running@2")
    before, deeds = archive.states(), archive.sql("select count(*) as n from deed")
    run, a, b = f"/runs/{archive.run_id(2)}", f"/tasks/{archive.task('a@2')}", f"/tasks/{archive.task('b@2')}"
    tries: list[tuple[str, dict[str, Any], str]] = [
        (f"{run}/cancel", {}, "done"),
        (f"{run}/restart", {}, "done"),
        (f"{run}/retry", {}, "done"),
        (f"{run}/retry", {"failed": True}, "done"),
        (f"{run}/skip", {}, "done"),
        (f"{run}/prioritize", {"priority": 3}, "done"),
        (f"{run}/release", {}, "done"),
        (f"{a}/retry", {}, "state"),
        (f"{a}/skip", {}, "state"),
        (f"{b}/hold", {}, ""),
        ("/archives/papers/retry", {"failed": True}, "done"),
        ("/archives/papers/hold", {}, "archive"),
        ("/archives/papers/release", {}, "done"),
        ("/archives/papers/skip", {"task": "a", "until": 2}, "waived"),
    ]
    for path, body, told in tries:
        answer = operator.post(path, json=body, params={"dry_run": True})
        if told:
            assert answer.status_code == 200, answer.text
            assert answer.json()[told]
        assert archive.states() == before, path
    assert archive.sql("select count(*) as n from deed") == deeds
    assert operator.post(f"{a}/retry", params={"dry_run": True}).json()["state"] == "ready"
    problem(operator.post(f"{b}/retry", params={"dry_run": True}), 409, "was skipped because of papers@2/a")


def test_run_is_retried_as_far_as_it_can_be(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": ""})
    archive.commit({"a": "depends: [{task: PREV, when: settled}]"})
    archive.fail("a@2", "b@2")
    archive.run("a@3")
    run = f"/runs/{archive.run_id(2)}"
    done = operator.post(f"{run}/retry").json()
    assert done["done"] == ["papers@2/b"]
    (refusal,) = done["refused"]
    assert refusal == {
        "task": "papers@2/a",
        "reason": "papers@2/a: would replace the work of later revisions: papers@3/a completed",
        "remedy": "to go back on purpose: arkqueue retry papers@2/a --force",
    }
    told = problem(operator.post(f"{run}/retry"), 409, "would replace the work of later revisions")
    assert told["remedy"] == refusal["remedy"]
    assert operator.post(f"{run}/retry", json={"force": True}).json()["done"] == ["papers@2/a"]


# Long answers


async def _messages_of(app: FastAPI, method: str, path: str, headers: Any, body: Any) -> list[Message]:
    """What an application sends for a request."""
    sent: list[Message] = []
    scope = {"type": "http", "method": method, "path": f"/api/v1{path}", "raw_path": b"", "query_string": b"", "headers": [(k.lower().encode(), v.encode()) for k, v in headers.items()]}  # fmt: skip
    content = json.dumps(body).encode()

    async def receive() -> Message:
        return {"type": "http.request", "body": content}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent


def test_the_answer_of_a_verb_on_many_tasks_is_made_and_sent_in_pieces(
    session: Session, configuration: Configuration, operator: httpx.Client
) -> None:
    archive = an_archive(session)
    archive.commit({f"t{n}": "" for n in range(3 * MOST)})
    run = archive.run_id(2)
    headers = {"Authorization": operator.headers["Authorization"], "Content-Type": "application/json"}
    app = create_app(session, configuration)
    start, *pieces = asyncio.run(_messages_of(app, "POST", f"/runs/{run}/cancel", headers, {}))
    assert start["status"] == 200
    assert max(piece["body"].count(b'"full_name":"papers@2/') for piece in pieces) <= MOST
    answer = json.loads(b"".join(piece["body"] for piece in pieces))
    assert len(answer["done"]) == 3 * MOST
    assert answer["refused"] == []
    assert {task["state"] for task in answer["run"]["tasks"][1:]} == {"canceled"}


def test_a_long_answer_is_the_same_as_a_short_one(session: Session, operator: httpx.Client) -> None:
    archive = an_archive(session)
    archive.commit({f"t{n}": "" for n in range(3 * MOST)})
    whole = TypeAdapter(RunDetail).dump_python(runs.run(session, RunId(archive.run_id(2))), mode="json")
    answer = operator.get(f"/runs/{archive.run_id(2)}")
    assert answer.json() == whole
    assert answer.headers["content-type"] == "application/json"
    made = operator.post("/runs", json={"archive": "papers"})
    assert made.status_code == 201, made.text
    assert made.headers["location"] == f"/api/v1/runs/{made.json()['id']}"
    assert len(made.json()["tasks"]) == 3 * MOST + 1
