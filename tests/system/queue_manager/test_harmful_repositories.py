"""A repository that breaks a reader process stops its own archive, with the reason. Another
archive's commit is planned nevertheless.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from arkqueue.queue_manager import reader as reader_module
from arkqueue.repository.reader import client
from tests.loaded import begin_reader_alone
from tests.repositories import a_git_repository, a_subversion_repository, commit_with_a_long_message
from tests.system.queue_manager.conftest import Watched

Watch = Callable[..., Watched]


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For reader processes that start from now on, as those of a server do: what is forked has more loaded than they have."""
    monkeypatch.setattr(client, "begin", begin_reader_alone)
    monkeypatch.setattr(client, "MEMORY", 128 << 20)
    client.processes.close()
    yield
    client.processes.close()


@pytest.mark.full
@pytest.mark.usefixtures("little_memory", "manager")
def test_revision_that_needs_too_much_memory_stops_its_archive_alone(watch: Watch, tmp_path: Path) -> None:
    hers, his = a_git_repository(tmp_path), a_subversion_repository(tmp_path)
    hers.commit({"readme": "1"})
    papers, books = watch(hers.path), watch(his.path, "books")
    head = commit_with_a_long_message(hers, 64 << 20)
    papers.notify()
    papers.wait_for(lambda: papers.row()["stopped"])
    why = papers.row()["stopped"]
    assert f"listing the new revisions up to {head}: it needs more than 128 MiB of memory" in why
    assert "arkqueue archive rewind papers REV" in why
    his.commit({"readme": "1"})
    books.notify()
    assert books.wait_for_ledger(2) == [(0, "0"), (1, "1")]
    assert books.row()["stopped"] is None


@pytest.mark.usefixtures("manager")
def test_silent_server_holds_up_no_other_archive(watch: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "SILENT", 0.0)
    hers, his = (a_subversion_repository(tmp_path, name) for name in ("hers", "his"))
    with hers.served() as server, socket.create_server(("127.0.0.1", 0)) as silent:
        papers, books = watch(server.url), watch(his.path, "books")
        papers.wait_for(lambda: papers.row()["read_at"])
        url = f"svn://127.0.0.1:{silent.getsockname()[1]}/svn"
        papers.sql("update archive set url = %s where id = %s returning id", url, papers.id)
        papers.notify()
        connection, _ = silent.accept()
        with connection:
            his.commit({"readme": "1"})
            books.notify()
            assert books.wait_for_ledger(2) == [(0, "0"), (1, "1")]
            papers.wait_for(lambda: "has not answered" in (papers.row()["trouble"] or ""))
        # Its server has hung up, and is asked again later.
        papers.wait_for(lambda: "closed the connection" in (papers.row()["trouble"] or ""))
        assert papers.row()["stopped"] is None
