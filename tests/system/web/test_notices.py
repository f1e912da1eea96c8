"""Notices: what hooks post, as fast as they like."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.db.session import Session
from arkqueue.model import ArchiveId
from arkqueue.queue import archives
from arkqueue.repository import Identity, location
from arkqueue.web import access
from arkqueue.web.api import notices
from tests.builders import an_archive
from tests.system.web.conftest import problem

UUID = "0f0e0d0c-1111-2222-3333-444455556666"
OLD, NEW = "a" * 40, "b" * 40


def registered(
    session: Session, name: str, *, kind: str = "subversion", repository: str, uuid: str = "", folder: str = ""
) -> int:
    start = archives.Start("" if kind == "subversion" else "main", True, None)
    return archives.register(
        session, name=name, kind=kind, url=repository, repository=repository, uuid=uuid, folder=folder, settings=ArchiveSettings(), starts=[start]
    )  # fmt: skip


def looks(session: Session) -> dict[int, str | None]:
    with session.database.transaction() as connection:
        return {row["archive_id"]: row["revision"] for row in connection.execute("select * from look").fetchall()}


def test_one_notice_reaches_every_archive_of_the_repository(
    hook: httpx.Client, session: Session, tmp_path: Path
) -> None:
    a = registered(session, "a", repository=f"file://{tmp_path}/svn", uuid=UUID, folder="a")
    b = registered(session, "b", repository=f"file://{tmp_path}/svn", uuid=UUID, folder="b")
    registered(session, "c", repository=f"file://{tmp_path}/other")
    answer = hook.post("/notices", json={"repository": UUID, "revision": 12, "txn": "11-a"})
    assert (answer.status_code, answer.json()) == (202, {"archives": ["a", "b"], "revision": "12"})
    assert looks(session) == {a: "12", b: "12"}


def test_repository_is_known_by_uuid_url_and_path(hook: httpx.Client, session: Session, tmp_path: Path) -> None:
    registered(session, "a", repository=f"file://{tmp_path}/svn", uuid=UUID)
    for given in (UUID.upper(), f"file://{tmp_path}/svn/", f"{tmp_path}/svn", f"file://localhost{tmp_path}/svn"):
        answer = hook.post("/notices", json={"repository": given, "revision": 1})
        assert answer.status_code == 202, answer.text


def test_git_notice_names_the_new_commit_or_none(hook: httpx.Client, session: Session) -> None:
    """None of a branch that was deleted, nor after a push of many refs, of which the hook names the repository alone."""
    a = registered(session, "a", kind="git", repository="/srv/book.git")
    for notice in ({"ref": "refs/heads/topic", "old": OLD, "new": "0" * 40}, {}):
        assert hook.post("/notices", json={"repository": "/srv/book.git"} | notice).status_code == 202
        assert looks(session) == {a: None}
    new = {"repository": "/srv/book.git", "ref": "refs/heads/main", "old": OLD, "new": NEW}
    assert hook.post("/notices", json=new).json() == {"archives": ["a"], "revision": NEW}
    assert looks(session) == {a: NEW}


def test_notice_of_one_archive_needs_no_repository(hook: httpx.Client, session: Session) -> None:
    archive = an_archive(session)
    answer = hook.post("/archives/papers/notices", json={"revision": 7})
    assert (answer.status_code, answer.json()) == (202, {"archives": ["papers"], "revision": "7"})
    assert hook.post("/archives/papers/notices", json={}).status_code == 202
    assert looks(session) == {archive.id: "7"}


def test_revision_that_does_not_exist_yet_is_shown_on_the_archive(
    hook: httpx.Client, reader: httpx.Client, session: Session
) -> None:
    archive = an_archive(session)
    hook.post("/archives/papers/notices", json={"revision": 700})
    archives.expect(session, ArchiveId(archive.id), 1, 60.0)
    notice = reader.get("/archives/papers").json()["notice"]
    assert (notice["revision"], notice["expected"]) == ("700", True)


def test_malformed_notice_is_told_what_is_wrong(hook: httpx.Client) -> None:
    malformed: list[tuple[object, str]] = [
        ({"revision": 1}, "repository"),
        ({}, "repository"),
        ({"repository": "", "revision": 1}, "repository"),
        ({"repository": "/srv/x", "revision": -1}, "revision"),
        ({"repository": "/srv/x", "revision": "HEAD"}, "revision"),
        ({"repository": "/srv/x", "ref": "r", "old": OLD, "new": "--upload-pack"}, "is not a full commit id"),
        ({"repository": "/srv/\0", "revision": 1}, "NUL"),
        ({"repository": "srv/papers", "revision": 1}, "has to begin with a slash"),
        (["not", "an", "object"], ""),
    ]
    for body, said in malformed:
        problem(hook.post("/notices", json=body), 422, said)
    headers = {"Content-Type": "application/json"}
    problem(hook.post("/notices", content=b"{repository", headers=headers), 422, "byte")
    for unreadable in (b"\xff", b"[" * 100_000):
        problem(hook.post("/notices", content=unreadable, headers=headers), 400, "cannot be read")


def test_archive_that_is_added_or_removed_is_known_at_once(
    hook: httpx.Client, admin: httpx.Client, session: Session
) -> None:
    notice = {"repository": "/srv/papers", "revision": 1}
    problem(hook.post("/notices", json=notice), 404, "no archive of this repository is watched")
    problem(hook.post("/archives/papers/notices", json={}), 404, "archive papers")
    archive = an_archive(session)
    assert hook.post("/notices", json=notice).json()["archives"] == ["papers"]
    assert archive.id in looks(session)
    admin.delete("/archives/papers")
    problem(hook.post("/notices", json=notice), 404)


def test_repositories_are_looked_at_once_and_when_one_is_not_known(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notice after a rest must not look at the folders of a thousand others."""
    looked_at: list[str] = []

    def notice_keys(identity: Identity) -> frozenset[str]:
        looked_at.append(identity.repository)
        return location.notice_keys(identity)

    monkeypatch.setattr(notices, "notice_keys", notice_keys)
    watched = notices.Watched(session)
    loads: list[object] = []
    # How often the keys are loaded is what the test counts.
    load = watched._load

    def _load(*known: Any) -> None:
        loads.append(known)
        load(*known)

    monkeypatch.setattr(watched, "_load", _load)
    ids = [registered(session, name, repository=f"{tmp_path}/{name}") for name in ("a", "b")]

    def found(name: str) -> list[tuple[int, str]]:
        watched.forget()
        return list(asyncio.run(watched.archives(f"{tmp_path}/{name}")))

    assert found("a") == [(ids[0], "a")]
    assert found("b") == [(ids[1], "b")]
    assert sorted(looked_at) == [f"{tmp_path}/a", f"{tmp_path}/b"]
    assert len(loads) == 1
    again = registered(session, "again", repository=f"{tmp_path}/a")
    assert found("a") == [(ids[0], "a"), (again, "again")]
    assert len(looked_at) == 2
    (tmp_path / "link").symlink_to(tmp_path / "b")
    assert found("link") == [(ids[1], "b")]
    assert len(looked_at) == 2
    (tmp_path / "a").symlink_to(tmp_path / "c")
    assert found("c") == [(ids[0], "a"), (again, "again")], "where links lead now"
    archives.remove(session, ArchiveId(again), "ann")
    assert found("c") == [(ids[0], "a")]
    session.database.retrying(
        lambda connection: connection.execute("update archive set uuid = %s where id = %s", (UUID, ids[1]))
    )
    watched.forget()
    assert asyncio.run(watched.archives(UUID)) == [(ids[1], "b")]
    assert len(loads) == 5, "at the start, and after each change"


def test_burst_of_commits_is_accepted_and_is_one_look(hook: httpx.Client, session: Session) -> None:
    archive = an_archive(session)

    def post(number: int) -> int:
        return hook.post("/notices", json={"repository": "/srv/papers", "revision": number}).status_code

    with ThreadPoolExecutor(8) as pool:
        answers = set(pool.map(post, range(300)))
    assert answers == {202}
    assert archive.sql("select archive_id from look") == [{"archive_id": archive.id}]


def test_flood_is_refused_and_told_when_to_come_again(
    hook: httpx.Client, operator: httpx.Client, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "RATE", 0.0)
    monkeypatch.setattr(access, "BURST", 3.0)
    # A bucket begins at a clock of zero, so that nothing drips in meanwhile.
    monkeypatch.setattr(access._Bucket, "__init__", lambda self: _fill(self))
    an_archive(session)
    notice = {"repository": "/srv/papers", "revision": 1}
    assert [hook.post("/notices", json=notice).status_code for _ in range(3)] == [202, 202, 202]
    refused = hook.post("/notices", json=notice)
    problem(refused, 429, "Nothing is lost")
    assert refused.headers["retry-after"] == "1"
    assert operator.post("/notices", json=notice).status_code == 202


def _fill(bucket: access._Bucket) -> None:
    bucket.left, bucket.at = 3.0, 0.0
