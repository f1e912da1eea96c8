"""Archives over HTTP, with real repositories."""

from __future__ import annotations

import shutil
import socket
import threading
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from arkqueue.archives import registration
from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.model import ArchiveId, Workflow
from arkqueue.names import RESERVED
from arkqueue.plan import Entry
from arkqueue.queue import archives, claim
from arkqueue.queue.tokens import Scope
from arkqueue.repository import locate, open_archive
from arkqueue.runtime.home import host_id
from arkqueue.web import ApiServer
from tests.builders import an_archive, the_archive
from tests.repositories import SubversionRepository, a_git_repository, a_subversion_repository, run
from tests.system.web.conftest import Client, problem

NIGHTLY = {"_workflows/a.yaml": "- {name: nightly, command: run, schedule: '0 3 * * *'}\n"}


def test_subversion_archive_is_registered_at_its_head(admin: httpx.Client, tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    repository.commit({"x": "1"})
    repository.commit(NIGHTLY)
    answer = admin.post("/archives", json={"name": "papers", "url": str(repository.path), "process": True})
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == "/api/v1/archives/papers"
    made = answer.json()
    assert (made["kind"], made["uuid"], made["settings"]["process"]) == ("subversion", repository.uuid, True)
    assert [(b["name"], b["main"], b["rev"]) for b in made["branches"]] == [("", True, 2)]
    assert [(s["tasks"], s["cron"]) for s in made["schedules"]] == [(["nightly"], "0 3 * * *")]
    assert made["notice"] is not None
    assert admin.get("/archives").json() == [admin.get("/archives/papers").json()]
    (run,) = admin.get("/runs").json()["runs"]
    assert (run["full_name"], run["state"], run["baseline"]) == ("papers@2", "completed", True)


def test_no_archive_is_called_like_an_address_of_the_server_or_its_locks(
    admin: httpx.Client, session: Session, server: ApiServer, tmp_path: Path
) -> None:
    document = httpx.get(f"{server.url}/openapi.json", timeout=30).json()
    addresses = {path.split("/")[1] for path in [*document["paths"], "/docs", "/openapi.json"]}
    assert addresses <= RESERVED
    repository = a_subversion_repository(tmp_path)
    for name in RESERVED:
        refused = admin.post("/archives", json={"name": name, "url": str(repository.path)})
        problem(refused, 422, f"the server has an address of its own at /{name}", "Choose another name")
    refused = admin.post("/archives", json={"name": "global", "url": str(repository.path)})
    problem(refused, 422, "the locks of the whole installation are called global/NAME", "Choose another name")
    assert admin.get("/archives").json() == []
    # One of an earlier version keeps its name.
    an_archive(session, "docs")
    assert admin.get("/archives/docs").json()["name"] == "docs"
    assert admin.post("/tokens", json={"name": "t", "scope": "read", "archives": ["docs"]}).status_code == 201


def test_archive_can_start_after_an_earlier_revision(admin: httpx.Client, tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    for text in "123":
        repository.commit({"x": text})
    made = admin.post("/archives", json={"name": "papers", "url": repository.url, "start": 1}).json()
    assert made["branches"][0]["rev"] == 1
    problem(admin.post("/archives", json={"name": "more", "url": repository.url, "start": 9}), 404, "has no revision 9")


def test_folder_of_a_subversion_repository_is_an_archive(admin: httpx.Client, tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    repository.commit({"a/trunk/x": "1", "b/trunk/x": "1"})
    made = admin.post("/archives", json={"name": "a", "url": f"{repository.url}/a/trunk"}).json()
    assert made["folder"] == "a/trunk"
    made = admin.post("/archives", json={"name": "b", "url": f"{repository.url}/b/trunk"}).json()
    answer = admin.post("/notices", json={"repository": repository.uuid, "revision": 1})
    assert answer.json()["archives"] == ["a", "b"]


def test_git_archive_is_registered_with_its_tracked_branches(admin: httpx.Client, tmp_path: Path) -> None:
    repository = a_git_repository(tmp_path)
    first = repository.commit({"x": "1"})
    repository.switch("topic")
    second = repository.commit({"x": "2"})
    new = {"name": "book", "url": str(repository.path), "branches": ["main", "to*"]}
    made = admin.post("/archives", json=new).json()
    assert [(b["name"], b["main"], b["rev"], b["revision"]) for b in made["branches"]] == [
        ("main", True, 1, first), ("topic", False, 2, second)
    ]  # fmt: skip
    only = admin.post("/archives", json={"name": "only", "url": str(repository.path)}).json()
    assert [b["name"] for b in only["branches"]] == ["main"]
    problem(admin.post("/archives", json={**new, "name": "none", "branches": ["x*"]}), 404, "no branch", "matches x*")
    problem(admin.patch("/archives/only", json={"branches": ["x*"]}), 404, "matches x*", "It has: main, topic")
    problem(admin.patch("/archives/only", json={"branches": ["rel[0-9]"]}), 422, "rel[0-9]", "[ stands for itself")
    assert [(b["name"], b["deleted"]) for b in admin.get("/archives/only").json()["branches"]] == [("main", False)]


def test_git_archive_whose_head_names_no_branch_that_is_there_is_not_watched_in_vain(
    admin: httpx.Client, tmp_path: Path
) -> None:
    repository = a_git_repository(tmp_path)
    repository.commit({"x": "1"})
    run("git", "--git-dir", repository.path, "symbolic-ref", "HEAD", "refs/heads/master")
    new = {"name": "book", "url": str(repository.path)}
    problem(admin.post("/archives", json=new), 404, "master, which is not there", "--branch", "there is: main")
    assert admin.post("/archives", json={**new, "branches": ["main"]}).is_success


def test_empty_git_repository_is_an_archive_without_revisions(admin: httpx.Client, tmp_path: Path) -> None:
    repository = a_git_repository(tmp_path)
    made = admin.post("/archives", json={"name": "book", "url": str(repository.path)}).json()
    assert [(b["name"], b["main"], b["rev"]) for b in made["branches"]] == [("main", True, None)]
    problem(admin.post("/runs", json={"archive": "book"}), 409, "has no revision yet")


def test_registering_tells_what_is_wrong(admin: httpx.Client, hook: httpx.Client, tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    url = repository.url
    problem(admin.post("/archives", json={"name": "../x", "url": url}), 422, "is not a valid name for an archive")
    problem(admin.post("/archives", json={"name": "a", "url": str(tmp_path)}), 422, "neither a Subversion nor a Git")
    problem(admin.post("/archives", json={"name": "a", "url": "svn://127.0.0.1:1/x"}), 502, "connection refused")
    problem(admin.post("/archives", json={"name": "a", "url": url, "colour": 1}), 422, "colour")
    for no_address in ("http://[", "file://[", "https://u:p@[::1/x"):
        problem(
            admin.post("/archives", json={"name": "a", "url": no_address}), 422, "is not the address of a repository"
        )
        problem(hook.post("/notices", json={"repository": no_address}), 422, "is not the address of a repository")
    problem(admin.post("/archives", json={"name": "a", "url": "book"}), 422, "book: is a relative path", "whole path")
    problem(admin.post("/archives", json={"name": "a", "url": url, "task_url": "x y"}), 422, "x y: is a relative")
    problem(admin.post("/archives", json={"name": "a", "url": url, "branches": ["x"]}), 422, "are for Git archives")
    assert admin.post("/archives", json={"name": "a", "url": url}).status_code == 201
    problem(admin.post("/archives", json={"name": "a", "url": url}), 409, "exists already")
    problem(admin.patch("/archives/a", json={"task_url": "x y"}), 422, "x y: is a relative path")
    problem(admin.patch("/archives/a", json={"branches": ["x"]}), 422, "are for Git archives")


def test_a_repository_that_does_not_answer_is_named_while_others_are_registered(
    admin: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with monkeypatch.context() as patched:
            patched.setattr(registration, "PATIENCE", 0.0)
            answer = admin.post("/archives", json={"name": "papers", "url": f"svn://{address}/papers"})
        problem(answer, 502, f"svn://{address}/papers: has not answered for", "Check its server and the network")
        assert admin.post("/archives", json={"name": "papers", "url": str(a_git_repository(tmp_path).path)}).is_success
    for reader in (each for each in threading.enumerate() if address in each.name):
        reader.join()


def test_administrator_of_some_archives_reaches_no_others(client: Client, admin: httpx.Client, tmp_path: Path) -> None:
    """An archive may be of any repository that the server reads, and its tasks may be processes of a host, which read what the server may."""
    url = a_subversion_repository(tmp_path).url
    admin.post("/archives", json={"name": "papers", "url": url}).raise_for_status()
    confined = client(Scope.ADMIN, "papers")
    for name in ("papers", "more"):
        problem(
            confined.post("/archives", json={"name": name, "url": url}),
            403,
            "is for some archives only",
            "any repository",
        )
    for setting in (
        {"process": True},
        {"process_user": "root"},
        {"task_url": "svn://elsewhere/x"},
        {"networks": ["*"]},
    ):
        problem(confined.patch("/archives/papers", json=setting), 403, f"setting {next(iter(setting))}")
    assert confined.patch("/archives/papers", json={"author": "bot"}).json()["settings"]["author"] == "bot"


def test_settings_are_changed_one_by_one(admin: httpx.Client, operator: httpx.Client, tmp_path: Path) -> None:
    repository = a_git_repository(tmp_path)
    repository.commit({"a": "1"})
    admin.post("/archives", json={"name": "papers", "url": str(repository.path), "process": True}).raise_for_status()
    problem(operator.patch("/archives/papers", json={"process": False}), 403)
    changed = admin.patch("/archives/papers", json={"author": "Bot <bot@example.org>"}).json()
    assert changed["settings"]["process"] is True
    assert changed["settings"]["author"] == "Bot <bot@example.org>"
    changed = admin.patch("/archives/papers", json={"process": False, "branches": ["ma*"]}).json()
    assert (changed["settings"]["process"], changed["settings"]["branches"]) == (False, ["ma*"])
    assert changed["settings"]["author"] == "Bot <bot@example.org>"
    problem(admin.patch("/archives/papers", json={"proces": True}), 422, "proces")
    document = problem(admin.patch("/archives/paper", json={}), 404, "Did you mean papers?")
    assert (document["thing"], document["fault"]) == ("archive paper", "does not exist")
    for nobody in ("", "a b", "a\nb"):
        problem(admin.patch("/archives/papers", json={"process_user": nobody}), 422, "process_user")
    said = problem(admin.patch("/archives/papers", json={"task_url": "https://u:pw@host/x"}), 422, "holds a password")
    assert "pw" not in str(said)
    for url in ("file:///srv/a@b", "https://ada@host/x"):
        assert admin.patch("/archives/papers", json={"task_url": url}).json()["settings"]["task_url"] == url
    admin.patch("/archives/papers", json={"task_url": None}).raise_for_status()
    assert admin.get("/archives/papers").json()["settings"] == changed["settings"]


def test_process_user_that_no_task_manager_can_become_is_refused(
    admin: httpx.Client, session: Session, tmp_path: Path
) -> None:
    body = {"name": "papers", "url": a_subversion_repository(tmp_path).url, "process": True}
    admin.post("/archives", json=body).raise_for_status()
    kept = {"process_user": "bob"}
    admin.patch("/archives/papers", json=kept).raise_for_status()  # no task manager is there: one that can may come
    claim.register(session, "manager-1", "host-1", "machine", 4, account="arkqueue")
    refused = admin.patch("/archives/papers", json={"process_user": "ada"})
    problem(
        refused,
        409,
        "the process user 'ada' of archive papers: only a task manager that runs as root",
        "run as arkqueue on machine",
    )
    problem(
        admin.post("/archives", json=body | {"name": "more", "process_user": "ada"}),
        409,
        "only a task manager that runs as root",
    )
    assert admin.get("/archives/papers").json()["settings"]["process_user"] == "bob"
    admin.patch(
        "/archives/papers", json=kept | {"author": "bot"}
    ).raise_for_status()  # what was set before is not judged anew
    admin.patch("/archives/papers", json={"process_user": "arkqueue"}).raise_for_status()
    for manager, account in (("manager-2", "root"), ("manager-3", None)):  # None: of a version that does not say
        claim.register(session, manager, "host-2", "other", 4, account=account)
        admin.patch("/archives/papers", json={"process_user": "ada"}).raise_for_status()
        claim.unregister(session, manager)
        problem(
            admin.patch("/archives/papers", json={"process_user": "bob"}), 409, "only a task manager that runs as root"
        )


def test_process_user_that_no_host_of_a_task_manager_has_is_refused(
    admin: httpx.Client, session: Session, configuration: Configuration, tmp_path: Path
) -> None:
    body = {"name": "papers", "url": a_subversion_repository(tmp_path).url, "process": True}
    admin.post("/archives", json=body).raise_for_status()
    configuration.home.mkdir(exist_ok=True)
    claim.register(session, "manager-1", host_id(configuration.home), "machine", 4, account="root")
    nobody = {"process_user": "no-such-user"}
    problem(admin.patch("/archives/papers", json=nobody), 409, "machine has no such user", "Create the user")
    admin.patch("/archives/papers", json={"process_user": "daemon"}).raise_for_status()
    claim.register(session, "manager-2", "host-2", "other", 4, account="ada")
    problem(admin.patch("/archives/papers", json=nobody), 409, "machine has no such user")
    claim.register(session, "manager-3", "host-3", "third", 4, account="root")
    admin.patch("/archives/papers", json=nobody).raise_for_status()  # which users that host has is not known here


def test_process_user_of_an_archive_without_processes_is_refused(admin: httpx.Client, tmp_path: Path) -> None:
    body = {"name": "papers", "url": a_subversion_repository(tmp_path).url, "process_user": "ada"}
    problem(admin.post("/archives", json=body), 409, "do not run as processes", "--executor process --process-user ada")
    admin.post("/archives", json=body | {"process": True}).raise_for_status()
    settings = admin.patch("/archives/papers", json={"process": False}).json()["settings"]
    assert settings["process_user"] == "ada", "it is there when processes are allowed again"
    problem(admin.patch("/archives/papers", json={"process_user": "bob"}), 409, "do not run as processes")


def test_misspelt_field_is_refused_before_anything_is_done(admin: httpx.Client, session: Session) -> None:
    an_archive(session)
    problem(admin.post("/archives/papers/skip", json={"task": "a", "until": 1, "brnch": "topic"}), 422, "brnch")
    problem(admin.post("/archives/papers/rewind", json={"revision": 1, "brnch": "topic"}), 422, "brnch")


def test_what_containers_may_have_is_checked(admin: httpx.Client, tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    new = {"name": "papers", "url": repository.url}
    problem(
        admin.post("/archives", json={**new, "image": "Debian"}),
        422,
        "is not a valid name of an image",
        "Did you mean debian?",
    )
    for key in ("images", "users", "networks"):
        problem(admin.post("/archives", json={**new, key: [""]}), 422, "a glob is a printable text")
        problem(admin.post("/archives", json={**new, key: ["*", "!x"]}), 422, "list the allowed values")
        long = {**new, key: ["x" * 100_000]}
        problem(admin.post("/archives", json=long), 422, "a glob has at most 1,000 characters, and one has 100,000")
    for glob in (":", "[", "1000:", ":0", "a b", "a:b:c", "-*"):
        problem(admin.post("/archives", json={**new, "users": [glob]}), 422, "matches no user that a task may name")
    for glob in ("[", "a:b", "host"):
        problem(admin.post("/archives", json={**new, "networks": [glob]}), 422, f"allowed network {glob!r}")
    globs = ["*", "**", "?*:*", "1000:*", "build*", "*-ci:**", "**/root"]
    admin.post(
        "/archives", json={**new, "name": "globs", "users": globs, "networks": ["*", "lab-*", "h?st"]}
    ).raise_for_status()
    made = admin.post("/archives", json={**new, "image": "debian:12", "images": ["team/*"], "users": ["1000"]}).json()
    assert (made["settings"]["image"], made["settings"]["images"]) == ("debian:12", ["team/*"])
    changed = admin.patch("/archives/papers", json={"networks": ["lab"], "users": None}).json()["settings"]
    assert [changed[key] for key in ("image", "images", "users", "networks")] == ["debian:12", ["team/*"], [], ["lab"]]
    problem(admin.patch("/archives/papers", json={"image": "a b"}), 422, "is not a valid name of an image")
    assert admin.patch("/archives/papers", json={"image": None}).json()["settings"]["image"] is None


MALFORMED = {
    "git": [
        "bot",
        "<bot@example.org>",
        "Bot <>",
        "Bot <a> <b>",
        "Bot\nX <bot@example.org>",
        ". <bot@example.org>",
        "",
        " " * 1000,
    ],
    "subversion": ["", " ", "a\nb", "a\0b"],
}
WELL_FORMED = {
    "git": ["Bot <bot@example.org>", "  Ark  Queue  <bot@example.org> "],
    "subversion": ["bot", "Ark Queue", "Bot <bot@example.org>"],
}


@pytest.mark.parametrize("kind", ["git", "subversion"])
def test_author_is_what_its_kind_of_archive_can_have(admin: httpx.Client, tmp_path: Path, kind: str) -> None:
    repository = (a_git_repository if kind == "git" else a_subversion_repository)(tmp_path)
    repository.commit({"x": "1"})
    new = {"name": "papers", "url": str(repository.path)}
    rule = "Write it as: Name <email>" if kind == "git" else "Write it as: name"
    for author in MALFORMED[kind]:
        problem(admin.post("/archives", json={**new, "author": author}), 422, "author", rule)
    assert admin.get("/archives").json() == []
    assert admin.post("/archives", json={**new, "author": WELL_FORMED[kind][0]}).status_code == 201
    for author in MALFORMED[kind]:
        problem(admin.patch("/archives/papers", json={"author": author}), 422, "author", rule)
    for good in (*WELL_FORMED[kind], None):
        assert admin.patch("/archives/papers", json={"author": good}).json()["settings"]["author"] == good


def test_removed_archive_keeps_its_history(admin: httpx.Client, operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    problem(operator.delete("/archives/papers"), 403)
    had = admin.delete("/archives/papers", params={"dry_run": True}).json()
    assert admin.get("/archives/papers").json()["removed_at"] is None
    assert admin.delete("/archives/papers").json() == had
    assert admin.get("/archives").json() == []
    assert admin.get("/archives/papers").json()["removed_at"] is not None
    assert admin.get("/find", params={"name": "papers@2/a"}).json()["task"] == archive.task("a@2")
    assert archive.state("a@2") == "canceled"
    problem(admin.delete("/archives/papers"), 404, "was removed")
    problem(operator.post("/archives/papers/sync"), 404, "was removed")
    problem(operator.post("/archives/papers/notices", json={}), 404, "was removed")


def test_sync_asks_for_a_look_and_does_not_wait_for_the_next_try_after_a_failure(
    operator: httpx.Client, session: Session
) -> None:
    archive = an_archive(session)
    archives.read_failed(session, archive.id, "papers: its server does not answer", 600.0, 600.0)
    assert archives.to_read(session) == []
    archives.notify(session, [archive.id])
    assert archives.to_read(session) == [], "a hook is in no such hurry"
    archive.sql("delete from look")
    answer = operator.post("/archives/papers/sync")
    assert answer.status_code == 202
    assert answer.json()["notice"]["revision"] is None
    assert [row["archive_id"] for row in archive.sql("select archive_id from look")] == [archive.id]
    assert [row.id for row in archives.to_read(session)] == [archive.id]


def test_rewind_takes_up_a_stopped_archive(
    admin: httpx.Client, operator: httpx.Client, session: Session, tmp_path: Path
) -> None:
    repository = a_subversion_repository(tmp_path)
    for text in "123":
        repository.commit({"x": text})
    made = admin.post("/archives", json={"name": "papers", "url": repository.url}).json()
    archives.stop(session, ArchiveId(made["id"]), "it went back in time")
    assert admin.get("/archives/papers").json()["remedy"] == "arkqueue archive rewind papers REV"
    problem(operator.post("/archives/papers/rewind", json={"revision": 2}), 403)
    problem(admin.post("/archives/papers/rewind", json={"revision": 9}), 404, "has no revision 9")
    problem(admin.post("/archives/papers/rewind", json={"revision": " "}), 422, "the revision: is empty")
    problem(admin.post("/archives/papers/rewind", json={"revision": 2, "branch": "x"}), 404, "has no branch 'x'")
    with session.database.transaction() as connection:
        connection.execute(b"update branch set deleted_at = now()")
    untracked = problem(admin.post("/archives/papers/rewind", json={"revision": 2}), 404, "no branch of it is tracked")
    assert untracked["remedy"] == "Track one: arkqueue archive set papers --branch GLOB"
    with session.database.transaction() as connection:
        connection.execute(b"update branch set deleted_at = null")
    trial = admin.post("/archives/papers/rewind", params={"dry_run": True}, json={"revision": 2}).json()
    assert admin.get("/archives/papers").json()["stopped"] == "it went back in time"
    rewound = admin.post("/archives/papers/rewind", json={"revision": 2}).json()
    assert (trial["stopped"], trial["history"], trial["runs"]) == (None, "rewound~1", 0), "the baseline is no run"
    assert {one: trial[one] for one in ("history", "runs", "running", "canceled", "note")} | rewound == rewound
    assert rewound["stopped"] is None
    assert [(b["name"], b["main"], b["deleted"], b["rev"]) for b in rewound["branches"]] == [
        ("", True, False, 2), ("rewound~1", False, True, 3)
    ]  # fmt: skip
    problem(admin.get("/find", params={"name": "papers@3"}), 404, "What was before is papers:rewound~1@3.")
    assert admin.get("/find", params={"name": "papers:rewound~1@3"}).json()["earlier"] is None
    assert admin.get("/find", params={"name": "papers@2"}).json()["earlier"] is None, "watching began at 3"


def test_failures_are_waived_up_to_a_revision(operator: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "index": ""})
    archive.commit({"a": ""})
    archive.fail("a@2", "a@3")
    assert operator.post("/archives/papers/skip", json={"task": "a", "until": 2}).json()["waived"] == 1
    assert operator.post("/archives/papers/skip", json={"task": "a", "until": 9}).json()["waived"] == 1
    assert operator.post("/archives/papers/skip", json={"task": "index", "until": 3}).json()["waived"] == 0
    answer = operator.post("/archives/papers/skip", json={"task": "indx", "until": 3})
    problem(answer, 404, "archive papers: never had a task 'indx'", "Did you mean index?")


def test_token_for_one_archive_sees_that_one_only(client: Client, session: Session) -> None:
    papers, books = an_archive(session), an_archive(session, "books")
    books.commit({"a": ""})
    papers.commit({"a": ""})
    own = client(Scope.OPERATE, "papers")
    assert [a["name"] for a in own.get("/archives").json()] == ["papers"]
    assert {r["archive"] for r in own.get("/runs").json()["runs"]} == {"papers"}
    problem(own.get("/metrics"), 403, "some archives only")
    assert own.get(f"/runs/{papers.run_id(2)}").status_code == 200


# Stopped archives, and corrected revisions


def revprop(repository: SubversionRepository, name: str, value: str, revision: str) -> None:
    """What an administrator does who corrects a revision."""
    file = repository.path.with_name("value")
    file.write_text(value)
    run("svnadmin", "setrevprop", repository.path, "-r", revision, name, file)


def test_a_correction_is_accepted_by_an_administrator_and_kept_in_the_audit_log(
    admin: httpx.Client, operator: httpx.Client, session: Session, tmp_path: Path
) -> None:
    repository = a_subversion_repository(tmp_path)
    for text in "123":
        repository.commit({"x": text}, message=text)
    admin.post("/archives", json={"name": "papers", "url": repository.url, "start": 1}).raise_for_status()
    archive = the_archive(session, "papers")
    for number in (2, 3):
        made = open_archive(locate(repository.url)).baseline("", str(number))
        assert made is not None
        archive.append("", [Entry(made, Workflow())])
    (before,) = archive.sql("select author, date from revision where number = 2")
    problem(admin.post("/archives/papers/accept", json={"revision": 2}), 409, "there is nothing to accept")
    revprop(repository, "svn:author", "eve", "2")
    revprop(repository, "svn:date", "2020-01-02T03:04:05.000006Z", "2")
    problem(operator.post("/archives/papers/accept", json={"revision": 2}), 403)
    problem(admin.post("/archives/papers/accept", json={"revision": 9}), 404, "9")
    problem(admin.post("/archives/papers/accept", json={"revision": 2, "force": True}), 422, "force")
    accepted = admin.post("/archives/papers/accept", json={"revision": 2})
    assert accepted.status_code == 200, accepted.text
    note = accepted.json()["note"]
    assert note.startswith(
        "papers@2 is by eve at 2020-01-02 03:04:05.000006 UTC from now on, and no longer by ada at 2"
    )
    assert note.endswith("Its message and the paths that it changes were compared; the contents of its files were not")
    (now,) = archive.sql("select author, date from revision where number = 2")
    assert (
        (now["author"], now["date"])
        == ("eve", datetime(2020, 1, 2, 3, 4, 5, 6, UTC))
        != (before["author"], before["date"])
    )
    (deed,) = archive.sql("select by, verb, archive_id, note from deed where verb = 'accept'")
    assert deed == {"by": "admin test", "verb": "accept", "archive_id": archive.id, "note": note}


def test_the_newest_revision_may_be_corrected_too(admin: httpx.Client, session: Session, tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    repository.commit({"x": "1"})
    made = admin.post("/archives", json={"name": "papers", "url": repository.url}).json()
    revprop(repository, "svn:author", "eve", "1")
    archives.stop(session, ArchiveId(made["id"]), "revision 1 has another author")
    accepted = admin.post("/archives/papers/accept", json={"revision": 1}).json()
    assert accepted["stopped"] is None


def test_what_is_another_revision_is_not_accepted(admin: httpx.Client, tmp_path: Path) -> None:
    repository, git = a_subversion_repository(tmp_path), a_git_repository(tmp_path)
    repository.commit({"x": "1"}, message="first")
    git.commit({"x": "1"})
    for name, one in (("papers", repository), ("box", git)):
        admin.post("/archives", json={"name": name, "url": str(one.path)}).raise_for_status()
    problem(
        admin.post("/archives/box/accept", json={"revision": 1}), 409, "is a commit of Git", "archive rewind box REV"
    )
    revprop(repository, "svn:author", "eve", "1")
    revprop(repository, "svn:log", "another", "1")
    problem(admin.post("/archives/papers/accept", json={"revision": 1}), 409, "has another message, too", "sync papers")
    run("svnadmin", "setuuid", repository.path)
    problem(admin.post("/archives/papers/accept", json={"revision": 1}), 409, "is another repository now")


@pytest.mark.parametrize(
    ("folder", "other"),
    [
        ("", "a path"),
        *(
            pytest.param(*one, marks=pytest.mark.full)
            for one in [("", "an action"), ("", "a copy"), ("/trunk", "a path")]
        ),
    ],
)
def test_a_revision_that_changes_other_paths_is_not_accepted(
    admin: httpx.Client, session: Session, tmp_path: Path, folder: str, other: str
) -> None:
    """A backup was restored, and somebody wrote the same message with another commit."""
    repository = a_subversion_repository(tmp_path)
    repository.commit({"trunk/x": "1", "trunk/z": "1"})
    shutil.copytree(repository.path, tmp_path / "backup")
    repository.commit({"trunk/x": "2"}, message="second")
    admin.post("/archives", json={"name": "papers", "url": repository.url + folder}).raise_for_status()
    shutil.rmtree(repository.path)
    (tmp_path / "backup").rename(repository.path)
    if other == "a copy":
        copy = ["rm", "trunk/x", "cp", "1", "trunk/z", "trunk/x"]
        run("svnmucc", "-U", repository.url, "-m", "second", *copy)
    else:
        repository.commit({"trunk/z": "2"} if other == "a path" else {"trunk/x": None}, message="second")
    (revision,) = the_archive(session, "papers").sql("select number from revision where baseline")
    assert revision["number"] == 2
    found = admin.post("/archives/papers/accept", json={"revision": 2})
    problem(found, 409, "changes other paths: it is another revision", "archive rewind papers REV")

    # A revision that was planned by an earlier version
    # is compared as it was then, and that is said.
    the_archive(session, "papers").sql("update revision set paths_digest = null")
    (known,) = the_archive(session, "papers").sql("select date from revision where number = 2")
    revprop(repository, "svn:date", f"{known['date'].astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}", "2")
    revprop(repository, "svn:author", "eve", "2")
    note = admin.post("/archives/papers/accept", json={"revision": 2}).json()["note"]
    assert "The paths that it changes were not, as the ledger does not have them" in note


@pytest.mark.parametrize("is_late", [False, True])
def test_a_commit_to_a_restored_backup_is_not_accepted_though_its_message_and_paths_are_the_known_ones(
    admin: httpx.Client, session: Session, tmp_path: Path, is_late: bool
) -> None:
    """``is_late``: the restored repository has later revisions by now, too."""
    repository = a_subversion_repository(tmp_path)
    repository.commit({"x": "1"})
    shutil.copytree(repository.path, tmp_path / "backup")
    for text in "23"[: 1 + is_late]:
        repository.commit({"x": text}, message="next")
    admin.post("/archives", json={"name": "papers", "url": repository.url, "start": 2}).raise_for_status()
    archive = the_archive(session, "papers")
    if is_late:
        made = open_archive(locate(repository.url)).baseline("", "3")
        assert made is not None
        archive.append("", [Entry(made, Workflow())])
    shutil.rmtree(repository.path)
    (tmp_path / "backup").rename(repository.path)
    for text in "89":
        repository.commit({"x": text}, message="next")
    (before,) = archive.sql("select author, date from revision where number = 2")
    problem(
        admin.post("/archives/papers/accept", json={"revision": 2}),
        409,
        "it may be another commit with the same message",
        f"svn propset --revprop -r 2 svn:date {before['date'].astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ} {repository.url}",
    )
    assert archive.sql("select author, date from revision where number = 2") == [before]


def test_a_rewind_of_one_branch_leaves_the_archive_stopped_while_others_are_to_be_rewound(
    admin: httpx.Client, session: Session, tmp_path: Path
) -> None:
    git = a_git_repository(tmp_path)
    git.commit({"x": "1"})
    git.switch("topic")
    git.commit({"x": "2"})
    settings = {"name": "papers", "url": str(git.path), "branches": ["main", "topic"]}
    made = admin.post("/archives", json=settings).json()
    other = a_git_repository(tmp_path, "other")
    main = other.commit({"x": "another"})
    other.switch("topic")
    topic = other.commit({"x": "another"})
    run("rm", "-r", git.path)
    other.path.rename(git.path)
    archives.stop(session, ArchiveId(made["id"]), "it is another repository")
    stopped = admin.post("/archives/papers/rewind", json={"revision": main, "branch": "main"}).json()["stopped"]
    assert "branch topic: " in stopped
    assert "no longer holds the last known commit" in stopped
    assert stopped.endswith("arkqueue archive rewind papers REV --branch topic")
    assert admin.post("/archives/papers/rewind", json={"revision": topic, "branch": "topic"}).json()["stopped"] is None
