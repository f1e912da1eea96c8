"""One commit of mine, and everybody waits: each attack is one push to my own repository, and
somebody else's commit is answered all the same.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.attacks import (
    ATTACKS,
    a_task_of_a_copied_folder_without_end,
    a_task_of_as_many_files_as_it_may_have,
    tasks_of_a_tree_without_end,
)
from tests.repositories import GitRepository, a_subversion_repository
from tests.security.conftest import Site, a_site
from tests.system.end_to_end.installation import Archive
from tests.waiting import eventually

FAULTS = {
    "60,000 patterns of paths": "1,002 changed paths and 60,000 patterns of `paths` are more than can be compared",
    "a tree without end": "more than 1,000,000 files and folders would have to be compared",
    "6,000 workflow files": "there are 6,000 workflow files here, more than 1,000",
    "3,000 long names, none spelt right": "",
    "200,000 faults": "there are more than 1000 faults",
    "a message of 10 MB": "its message has 10,000,0",
}
"""A part of a fault of my run, by the attack that makes the run fail."""
LONG = {"60,000 patterns of paths", "a tree without end", "200,000 faults"}
"""What takes seconds of a processor."""


@pytest.mark.parametrize(
    "attack", [pytest.param(name, marks=[pytest.mark.full] if name in LONG else []) for name in ATTACKS]
)
def test_i_push_something_that_takes_for_ever_to_read(site: Site, attack: str) -> None:
    mine = site.archive("git", "--executor", "process")
    assert isinstance(mine.repository, GitRepository)
    ATTACKS[attack](mine.repository)
    site.answers()
    failed = attack in FAULTS
    mine.wait_for_run(2, "failed" if failed else "completed")
    if failed:
        found = [fault["message"] for fault in mine.shown(2)["faults"]]
        assert any(FAULTS[attack] in message for message in found), found[:3]
    site.answers()


def test_i_push_a_tree_without_end_and_tasks_that_want_its_files(site: Site) -> None:
    mine = site.archive("git", "--executor", "process")
    assert isinstance(mine.repository, GitRepository)
    tasks_of_a_tree_without_end(mine.repository)
    site.answers()
    for task in ("all", "some", "copy"):
        mine.wait(f"{task}@2", "failed")
        said = mine.log(f"{task}@2")
        assert "files and folders, and a workspace has at most 1,000,000" in said
        assert "`checkout: [PATH, …]`" in said
    assert "there are 1,001,001,00" in mine.log("all@2")
    assert not list((site.home / "bases").glob("*/tree/0000")), "nothing of it was written"
    site.answers()


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    "limit", [pytest.param(100_000, marks=pytest.mark.full), pytest.param(1_000_000, marks=pytest.mark.long)]
)
def test_i_copy_a_folder_without_end_in_a_subversion_repository_that_is_elsewhere(
    pg_uri: str, tmp_path: Path, limit: int
) -> None:
    """Its server counts before it sends anything. A million files take ten seconds of a processor,
    so this server has a lower limit.
    """
    repository = a_subversion_repository(tmp_path, "elsewhere")
    repository.commit({"paper.tex": "first thoughts\n"})
    lower = f"import arkqueue.repository.limits as limits; limits.MOST_FILES = {limit}"
    with contextmanager(a_site)(pg_uri, before_readers=lower) as site, repository.served() as server:
        site.installation("archive", "add", "elsewhere", server.url, "--executor", "process")
        mine = Archive(site.installation, "elsewhere", repository)
        a_task_of_a_copied_folder_without_end(repository, limit // 1000 + 1)
        site.installation("notify", "elsewhere")
        site.answers()
        mine.wait("all@3", "failed", patience=500.0)
        said = mine.log("all@3")
        assert f"there are more files and folders: a workspace has at most {limit:,}" in said
        site.answers()
        assert not list(site.home.glob("**/0050")), "nothing of it was written"


def test_i_cancel_what_is_written_for_a_minute_and_it_ends_at_once(site: Site) -> None:
    """What it holds of the host (a slot, a process that writes) is free, while what was written is removed."""
    mine = site.archive("git", "--executor", "process")
    assert isinstance(mine.repository, GitRepository)
    a_task_of_as_many_files_as_it_may_have(mine.repository)
    written = eventually(lambda: next(site.home.glob("bases/*/tree/0989"), None))
    last = written.with_name("0000")
    site.installation("cancel", mine.run(2))

    def has_ended() -> bool:
        assert not last.exists(), "all of it was written"
        return mine.state("all@2") == "canceled"

    eventually(has_ended)
    site.answers()
    eventually(lambda: not written.parent.exists())
