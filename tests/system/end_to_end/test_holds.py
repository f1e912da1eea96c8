"""Holds and releases of work, on the command line."""

from __future__ import annotations

import pytest

from tests.system.end_to_end.conftest import Archives
from tests.system.end_to_end.installation import Installation, tasks
from tests.system.end_to_end.test_verbs import refused


def test_an_archive_is_held_on_friday_and_released_on_monday(shared: Installation, archives: Archives) -> None:
    papers = archives(shared)
    name = papers.name
    said = shared("hold", name, "--reason", "the disk is being replaced").out
    assert f"{name}: on hold, 0 tasks held" in said
    papers.commit(tasks({"index": {"command": "true"}, "upload": {"depends": ["index"], "command": "true"}}))
    papers.wait("index@2", "held")
    assert "on hold" in shared("archive", "list").out
    shown = shared("archive", "show", name).out
    assert "the disk is being replaced" in shown
    assert f"arkqueue release {name} --all" in shown
    assert f"arkqueue unhold {name}" in papers.explained("index@2")
    assert f"{name} is on hold" in papers.explained("upload@2")
    assert f"arkqueue unhold {name}" in refused(papers, "release", name, "--all")
    assert "add --all" in shared("release", name, code=2).err

    assert "2 tasks held until somebody releases them" in shared("unhold", name).out
    papers.commit({"paper.tex": "third\n"})
    papers.wait_for_run(3)
    done = shared("release", name, "--all", code=1)
    assert f"{papers.task('index@2')}: would replace the work of later revisions" in refused(
        papers, "release", papers.task("index@2")
    )
    assert "would replace the work of later revisions" in done.err
    shared("release", papers.run(2), "--force", "--reason", "an older edition is wanted")
    papers.wait_for_run(2)
    assert "an older edition is wanted" in shared("show", papers.run(2)).out


def test_an_approval_step_says_who_released_it(shared: Installation, archives: Archives) -> None:
    papers = archives(shared)
    papers.commit(
        tasks({"check": {"command": "true"}, "publish": {"depends": ["check"], "hold": True, "command": "true"}})
    )
    papers.wait("check@2")
    papers.wait("publish@2", "held")
    assert "by its workflow file (hold: true)" in papers.explained("publish@2")
    assert "1 held" in shared("runs", papers.name).out
    assert "held" in shared("graph", papers.run(2)).out
    said = shared("release", papers.task("publish@2"), "--reason", "seen by Ann").out
    assert papers.task("publish@2") in said
    papers.wait_for_run(2)
    assert "released it" in papers.explained("publish@2")
    assert "seen by Ann" in papers.explained("publish@2")


def test_a_release_of_everything_names_the_approval_steps_that_it_approves(
    shared: Installation, archives: Archives
) -> None:
    papers = archives(shared)
    shared("hold", papers.name)
    publish = {"depends": ["check"], "hold": True, "command": "true"}
    papers.commit(tasks({"check": {"command": "true"}, "publish": publish}))
    papers.wait("check@2", "held")
    shared("unhold", papers.name)
    told = ["1 is an approval step, approved by this:", f"  {papers.task('publish@2')}"]
    trial = shared("release", papers.name, "--all", "--dry-run").out.splitlines()
    assert trial == [
        "Nothing is changed. It would be:", f"{papers.name}: 2 tasks released", *told, f"  {papers.task('check@2')}",
    ]  # fmt: skip
    assert shared("release", papers.name, "--all").out.splitlines() == [f"{papers.name}: 2 tasks released", *told]
    papers.wait_for_run(2)


def test_an_archive_guards_what_its_committers_may_not_start(
    shared: Installation, archives: Archives, monkeypatch: pytest.MonkeyPatch
) -> None:
    papers = archives(shared)
    said = shared("archive", "set", papers.name, "require-approval", "publish", "deploy-*", "--not-author").out
    assert "require_approval publish, deploy-*" in said
    assert "publish, deploy-*, not by the author" in shared("archive", "show", papers.name).out
    assert "--not-author goes with" in shared("archive", "set", papers.name, "--not-author", code=2).err
    papers.commit(tasks({"publish": {"command": "true"}}))
    papers.wait("publish@2", "held")
    assert "require-approval" in papers.explained("publish@2")
    name = papers.task("publish@2")
    assert "names no person" in refused(papers, "release", name), "the first token is nobody's in particular"
    author = papers.shown(2)["author"]
    for who, code in ((author, 1), ("somebody else", 0)):
        token = shared("token", "create", "--scope", "approve", "--author", who).out.strip()
        with monkeypatch.context() as patch:
            patch.setenv("ARKQUEUE_TOKEN", token)
            shared("release", name, code=code)
    papers.wait_for_run(2)
    shared("archive", "set", papers.name, "require-approval", "")
    papers.commit({"paper.tex": "third\n"})
    papers.wait_for_run(3)

    shared("archive", "set", papers.name, "workflow-authors", "nobody-else")
    assert "nobody-else" in shared("archive", "show", papers.name).out
    papers.commit({"paper.tex": "fourth\n"})
    papers.wait_for_run(4)
    papers.commit(tasks({"publisch": {"command": "true"}}))
    papers.wait("publisch@5", "held")
    assert f"arkqueue release {papers.run(5)}" in papers.explained("publisch@5")
    shared("release", papers.run(5))
    papers.wait_for_run(5)
    papers.commit({"paper.tex": "sixth\n"})
    papers.wait_for_run(6)
