"""The pages of what is over: a removed archive, and a deleted run. They say so, and have no button
that does nothing.
"""

from __future__ import annotations

import re

import httpx
import pytest

from arkqueue.db.session import Session
from arkqueue.model import ArchiveId, RunId
from arkqueue.queue import archives, deletion
from tests.builders import AnArchive, a_workflow, an_archive
from tests.system.pages.conftest import press, said
from tests.system.pages.test_verbs import verbs


@pytest.fixture
def archive(session: Session) -> AnArchive:
    archive = an_archive(session)
    archive.commit({"index": "", "pdf": "depends: [index]", "check": "hold: true"})
    archive.fail("index@2")
    return archive


def test_a_removed_archive_says_so_and_offers_nothing(admin: httpx.Client, archive: AnArchive) -> None:
    assert {"pause", "hold", "retry", "sync"} <= verbs(admin.get("/papers"))
    archives.remove(archive.session, ArchiveId(archive.id), "ann")
    page = admin.get("/papers")
    assert re.search(r"It was removed on \d{4}-\d\d-\d\d at \d\d:\d\d UTC by ann ?\.", said(page))
    assert "/-/trigger" not in page.text
    assert verbs(page) == set()
    page = admin.get("/papers@2")
    assert re.search(r"papers was removed on .* UTC by ann: nothing of it is started any more", said(page))
    assert "/-/trigger" not in page.text
    assert verbs(page) <= {"note", "delete", "purge"}
    page = admin.get("/papers@2/index")
    assert "Nothing will run it: papers was removed" in said(page)
    assert verbs(page) <= {"note", "purge-log", "purge-outputs"}
    assert "was removed: none of its tasks starts" in said(press(admin, "/", "papers", "pause"), 409)
    page = admin.get("/-/settings/papers")
    assert re.search(r"It was removed on .* UTC by ann ?\.", said(page))
    assert not re.findall(r'<form[^>]*action="/-/act', page.text)
    assert "<textarea" not in page.text


def test_a_removed_archive_that_never_ran_promises_no_run(admin: httpx.Client, session: Session) -> None:
    names = ("empty", "ready")
    for name in names:
        archive = (
            an_archive(session, name, tasks=a_workflow({"a": ""})) if name == "ready" else an_archive(session, name)
        )
        archives.remove(session, ArchiveId(archive.id), "ann")
        page = said(admin.get(f"/{name}"))
        assert "It is watched" not in page
        assert "next commit" not in page
        assert "write a workflow file" not in page
        assert "first.yaml" not in page


def test_a_task_of_a_deleted_run_offers_to_undelete_the_run_alone(admin: httpx.Client, archive: AnArchive) -> None:
    deletion.delete_run(archive.session, RunId(archive.run_id(2)), "ann")
    page = admin.get("/papers@2/index")
    assert "its run was deleted" in said(page)
    assert "tasks that wait for it may go on" not in said(page)
    assert verbs(page) <= {"note", "undelete", "purge-log", "purge-outputs"}
    assert re.findall(r'name="name" value="([^"]*)"><input type="hidden" name="verb" value="undelete"', page.text) == [
        "papers@2"
    ]
    assert verbs(admin.get("/papers@2")) <= {"undelete", "purge"}
    press(admin, "/papers@2/index", "papers@2", "undelete")
    assert "its run was deleted" not in said(admin.get("/papers@2/index"))
