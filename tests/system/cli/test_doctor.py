"""`arkqueue doctor` as a person types it."""

from __future__ import annotations

import pytest

from arkqueue.config import Configuration
from tests.builders import AnArchive, an_archive
from tests.system.cli.conftest import Cli


@pytest.fixture
def configuration(configuration: Configuration, request: pytest.FixtureRequest) -> Configuration:
    return configuration.model_copy(update={"public": getattr(request, "param", ())})


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


@pytest.mark.parametrize("configuration", [("papers", "paper", "old", "x")], indirect=True)
def test_says_which_public_archive_does_not_exist(arkqueue: Cli, archive: AnArchive) -> None:
    an_archive(archive.session, "old").sql("update archive set removed_at = now() where name = 'old'")
    done = arkqueue("doctor")
    correct = "Correct it in the configuration and restart arkqueue serve, or add the archive."
    assert (done.code, done.lines) == (
        1,
        [
            f"public: it names paper, which no archive is called (public). Did you mean papers? {correct}",
            f"public: it names x, which no archive is called (public). {correct}",
        ],
    )
    assert arkqueue("doctor", "papers").code == 0
    for name in ("paper", "x"):
        an_archive(archive.session, name)
    assert arkqueue("doctor").code == 0
