"""Holds, releases and guards from the command line (design 5.21, 5.22)."""

from __future__ import annotations

from arkqueue.db.session import Session
from tests.builders import an_archive
from tests.system.cli.conftest import Cli


def test_show_names_the_release_of_everything_and_what_it_skipped_as_out_of_date(
    arkqueue: Cli, session: Session
) -> None:
    archive = an_archive(session)
    arkqueue("hold", "papers", "--reason", "a new disk")
    archive.commit({"upload": "", "other": ""})
    arkqueue("unhold", "papers")
    archive.commit({"upload": ""})
    archive.run("upload@3")
    assert "hold papers a new disk" in arkqueue("show", "papers@2/other").out
    assert arkqueue("release", "papers", "--all", "--skip-outdated", "--reason", "it is built in").code == 0
    assert "release papers --all it is built in" in arkqueue("show", "papers@2/other").out
    skipped = "as out of date: release papers --all --skip-outdated"
    assert f"skip upload {skipped}" in arkqueue("show", "papers@2/upload").out
    run = arkqueue("show", "papers@2").out
    assert "release papers --all it is built in" in run
    assert f"skip upload {skipped}" in run
