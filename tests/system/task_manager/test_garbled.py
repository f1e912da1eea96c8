"""Rows of one archive that are garbled: the task manager goes on with the others."""

from __future__ import annotations

import pytest

from arkqueue.db.session import Session
from tests.builders import an_archive
from tests.system.task_manager.conftest import Managers, ended, settled

GARBLED = [
    "update definition set body = '[]' where id in (select definition_id from task where archive_id = 1)",
    """update definition set body = '{"name": "a", "command": 7, "timeout": "soon"}' where id in (select definition_id from task where archive_id = 1)""",
    "update task set definition_id = 4711 where archive_id = 1",
    "update task set definition_id = null where archive_id = 1",
    """update archive set settings = '{"process": true, "branches": 7, "images": null}' where id = 1""",
    """update archive set settings = '{"process": true, "more": 1}', kind = 'git', url = '' where id = 1""",
]


@pytest.mark.garbles
@pytest.mark.parametrize("statement", GARBLED)
def test_garbled_rows_of_one_archive_hold_up_no_other(session: Session, managers: Managers, statement: str) -> None:
    papers, books = an_archive(session, "papers"), an_archive(session, "books")
    papers.commit({"a": "checkout: none\ncommand: exit 0 # mine", "b": "checkout: none\ncommand: exit 0 # mine too"})
    papers.sql(statement)
    managers(slots=1)
    for number in range(2, 5):
        books.commit({"x": "checkout: none\ncommand: 'true'", "y": "checkout: none\ncommand: 'true'\ndepends: [x]"})
        settled(books, f"y@{number}", "completed")


UNREADABLE = [
    "'[1, 2]'",
    "'7'",
    """body || '{"retries": 3}'""",
    """body || '{"retries": {"max": "many"}}'""",
    """body || '{"poll": 3}'""",
    """body || '{"on_lost": []}'""",
    """body || '{"deadline": "soon", "scratch": [7]}'""",
]


@pytest.mark.garbles
@pytest.mark.parametrize("body", UNREADABLE)
def test_attempts_whose_definitions_cannot_be_read_fail_and_free_their_slots(
    session: Session, managers: Managers, body: str
) -> None:
    papers, books = an_archive(session, "papers"), an_archive(session, "books")
    papers.commit({"a": "checkout: none\ncommand: exit 0 # mine", "b": "checkout: none\ncommand: exit 0 # mine too"})
    papers.sql(f"update definition set body = {body} where id in (select definition_id from task where archive_id = 1)")
    managers(slots=2)
    books.commit({"x": "checkout: none\ncommand: 'true'"})
    settled(books, "x@2", "completed")
    for key in ("a@2", "b@2"):
        settled(papers, key, "failed")
        assert "the definition of the task: cannot be read (" in ended(papers, key)["message"]
