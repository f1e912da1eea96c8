"""Names of archives, runs, tasks and items lead to what they name, and unknown ones to the nearest."""

from __future__ import annotations

import re

import pytest

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.db.session import Session
from arkqueue.errors import Invalid, NotFound
from arkqueue.queue import archives
from arkqueue.views import find
from arkqueue.views import runs as run_views
from arkqueue.views.archives import archives as show_archives
from tests.builders import AnArchive, a_list, an_archive
from tests.db.test_views import CHAIN


def test_task_that_a_run_does_not_have_is_shown_where_it_is(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "tick": ""})
    archive.trigger(2, "a")
    for name, said in [
        ("papers@2.2/tick", r"papers@2.2 has no task 'tick'\. Another run has it: papers@2/tick\."),
        ("papers@2.2/tock", r"papers@2.2 has no task 'tock'\. It has: a\."),
        ("papers@2/nope", r"papers@2 has no task 'nope'\. It has: a, tick\."),
        ("papers@2.99/tick", r"does not exist: this revision has no run 99"),
    ]:
        with pytest.raises(NotFound, match=said):
            find.find_task(session, name)


def test_removed_archive_has_a_name_of_its_own_once_another_has_its_name(session: Session) -> None:
    first, second, third = (an_archive_after_another(session, baseline) for baseline in (1, 2, 2))
    named = [find.find_run(session, name) for name in ("papers~1@1", "papers~2@2", "papers@2")]
    assert named == [first.run_id(1), second.run_id(2), third.run_id(2)]
    assert [run.full_name for run in run_views.runs(session).runs] == ["papers@2", "papers~2@2", "papers~1@1"]
    assert [archive.name for archive in show_archives(session)] == ["papers"]
    with pytest.raises(NotFound, match=r"The one that was removed has it: papers~1@1\."):
        find.find_run(session, "papers@1")


def an_archive_after_another(session: Session, baseline: int) -> AnArchive:
    for watched in archives.watched(session):
        archives.remove(session, watched.id, "ann")
    return an_archive(session, baseline=baseline)


def test_name_without_a_run_means_the_commit_run_always(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "", "b": ""})
    archive.trigger(2, "a")
    assert find.find_task(session, "papers@2/a") == archive.task("a@2.1")
    assert find.find_task(session, "papers@2.2/a") == archive.task("a@2.2")
    assert find.find_task(session, "papers@2.1/a") == archive.task("a@2.1")
    assert find.find_task(session, "papers@2/b") == archive.task("b@2.1")
    assert find.find_run(session, "papers@2") == archive.run_id(2, 1)
    assert find.find_run(session, "papers@2.2") == archive.run_id(2, 2)
    assert find.find_run(session, "papers@2.1") == archive.run_id(2, 1)


def test_every_name_that_is_shown_leads_back(session: Session) -> None:
    archive = an_archive(session, "books", branches=("main", "a/b"))
    for branch in ("main", "a/b"):
        archive.commit(CHAIN, branch=branch)
        archive.trigger(2, "a", branch=branch)
    for view in run_views.runs(session, tasks=True).runs:
        assert view.tasks is not None
        assert find.find_run(session, view.full_name) == view.id
        for task in view.tasks:
            assert find.find_task(session, task.full_name) == task.id


def test_prefix_of_a_sha_finds_its_branch(session: Session) -> None:
    archive = an_archive(session, "books", branches=("main", "topic"))
    branches = {name: branch.id for name, branch in archive.branches.items()}
    for branch, number, name in (("main", 1, "abcd1111"), ("topic", 1, "abcd2222"), ("topic", 2, "beef0000")):
        if number == 2:
            archive.commit({}, branch=branch)
        archive.sql(
            "update revision set name = %s, previous = null where branch_id = %s and number = %s",
            name,
            branches[branch],
            number,
        )
    assert find.find_run(session, "books@gabcd") == archive.run_id(1, branch="main")
    assert find.find_run(session, "books@gBEEF") == archive.run_id(2, branch="topic")
    assert find.find_run(session, "books:topic@gabcd") == archive.run_id(1, branch="topic")
    archive.sql("update revision set name = 'beef0001' where branch_id = %s and number = 1", branches["topic"])
    with pytest.raises(Invalid, match="several"):
        find.find_run(session, "books@gbeef")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("paper@2", "Did you mean papers"),
        ("papers@9", "the newest is 2"),
        ("papers@0", "The nearest: 1"),
        ("papers@2/indx", "Did you mean index"),
        ("papers@2.7", "The newest is 1"),
        ("papers:main@2", "has no branch 'main'"),
        ("papers@gabcdef", "is not in the ledger"),
        ("papers@2/index/item", "papers@2/index has no item 'item'. See what it has: arkqueue show papers@2 --items"),
    ],
)
def test_unknown_names_are_answered_with_the_nearest(session: Session, name: str, message: str) -> None:
    archive = an_archive(session)
    archive.commit({"index": ""})
    with pytest.raises(NotFound, match=message):
        (find.find_task if "/" in name else find.find_run)(session, name)


def test_archive_without_a_main_branch_says_what_helps(session: Session) -> None:
    archive = an_archive(session, "books", branches=("main", "topic"))
    archive.sql("update branch set main = false")
    for name in ("books@1", "books@2"):
        with pytest.raises(NotFound, match=r"has no main branch\. Name one of its branches: main, topic"):
            find.find_run(session, name)
    archives.register(
        session,
        name="new",
        kind="git",
        url="/new",
        repository="/new",
        uuid="",
        folder="",
        settings=ArchiveSettings(),
        starts=[],
    )
    for name in ("new@1", "new@gabcd"):
        with pytest.raises(
            NotFound, match=r"no branch of it is tracked\. Track one: arkqueue archive set new --branch GLOB"
        ):
            find.find_run(session, name)


def test_run_is_no_task(session: Session) -> None:
    an_archive(session)
    with pytest.raises(Invalid, match="papers@1/TASK"):
        find.find_task(session, "papers@1")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("papers@2/*/b%2Fc", "papers@2/*/b%2Fc: is the name of an item, and here a task is wanted. Name a task of it: arkqueue show papers@2 --items"),
        ("papers@2/check/*", "papers@2/check/*: is the name of a list, and here a task is wanted. Write papers@2/check/KEY: arkqueue show papers@2 --items"),
        ("papers@2/*", "papers@2/*: lacks the key of an item. Write papers@2/*/KEY, or papers@2 for the whole run."),
        ("papers@2/check/b/c", "write %2F for a slash in the key of an item: papers@2/check/b%2Fc"),
        ("papers@2/*/b/c", "write %2F for a slash in the key of an item: papers@2/*/b%2Fc"),
    ],
)  # fmt: skip
def test_what_names_an_item_is_told_from_a_task(session: Session, name: str, message: str) -> None:
    a_list(session)
    with pytest.raises(Invalid, match=re.escape(message)):
        find.find_task(session, name)
