"""`arkqueue doctor` as a person types it."""

from __future__ import annotations

import pytest

from tests.builders import AnArchive, an_archive
from tests.system.cli.conftest import Cli

GARBLE = "update task set unmet = 7 where name = 'b'"


def test_says_that_nothing_is_wrong(arkqueue: Cli, archive: AnArchive) -> None:
    archive.commit({"a": "", "b": "depends: [a]"})
    done = arkqueue("doctor")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("nothing is wrong (")
    told = arkqueue("doctor", "papers", "--verbose").lines
    assert any(
        line.lstrip().partition(" ms  ")[2].startswith("unmet: The counter of a task is its number of unmet edges")
        for line in told
    )
    assert "does not exist" in arkqueue("doctor", "nothing").err


@pytest.mark.garbles
def test_says_which_rows_of_which_archive_are_wrong_and_ends_with_1(arkqueue: Cli, archive: AnArchive) -> None:
    an_archive(archive.session, "books").commit({"a": ""})
    archive.commit({"a": "", "b": "depends: [a]"})
    archive.sql(GARBLE)
    done = arkqueue("doctor")
    assert done.code == 1
    assert "papers@2/b: it counts 7 unmet edges, and has 1 (unmet). In a transaction" in " ".join(done.out.split())
    assert arkqueue("doctor", "papers").code == 1
    assert arkqueue("doctor", "books").code == 0
    found = arkqueue("doctor", "--json").json["findings"]
    assert [(one["archive"], one["name"], one["check"]) for one in found] == [("papers", "papers@2/b", "unmet")]
