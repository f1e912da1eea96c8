"""What `workflow-authors` refuses in real Git histories: nobody else's workflow files run because a
named author committed something on top of them (design 5.22).
"""

from __future__ import annotations

from pathlib import Path

from tests.repositories import GitRepository
from tests.system.end_to_end.conftest import Archives
from tests.system.end_to_end.installation import Archive, Installation, tasks
from tests.waiting import eventually

ANN, MALLORY = "Ann <ann@example.org>", "Mallory <mallory@elsewhere.org>"
GOOD = {"build": {"command": "true", "checkout": "none"}}


def planned(papers: Archive, commit: str, branch: str) -> None:
    """Waits until the newest revision of a branch is a commit."""
    eventually(
        lambda: papers.installation.sql(
            "select b.id from branch b join revision r on r.id = b.head_id join archive a on a.id = b.archive_id"
            " where a.name = %s and b.name = %s and b.deleted_at is null and r.name = %s",
            papers.name,
            branch,
            commit,
        )
    )


def states_of(papers: Archive, task: str) -> list[str]:
    rows = papers.installation.sql(
        "select t.state from task t join archive a on a.id = t.archive_id where a.name = %s and t.name = %s", papers.name, task
    )  # fmt: skip
    return [row["state"] for row in rows]


def test_no_branch_merge_or_rewrite_runs_what_nobody_has_accepted(
    shared: Installation, archives: Archives, tmp_path: Path
) -> None:
    papers, sign = archives(shared, "git"), tmp_path / "evil ran"
    repository = papers.repository
    assert isinstance(repository, GitRepository)
    main = repository.branch
    papers.commit(tasks(GOOD), author=ANN)
    papers.wait_for_run(2)
    shared("archive", "set", papers.name, "--branch", "**")
    shared("archive", "set", papers.name, "workflow-authors", "ann@example.org")
    evil = tasks(GOOD | {"evil": {"command": f"touch '{sign}'", "checkout": "none"}})

    repository.commit(evil, author=MALLORY)
    on_top = repository.commit({"doc.txt": "1\n"}, author=ANN)
    planned(papers, on_top, main)
    # A new branch, with a commit of its own and without.
    repository.switch("side")
    planned(papers, repository.commit({"doc.txt": "2\n"}, author=MALLORY), "side")
    repository.git("push", "-q", "origin", f"{on_top}:refs/heads/copy")
    planned(papers, on_top, "copy")
    # `git pull` merges a revert into a commit on top of the evil one.
    repository.switch(main)
    reverted = repository.commit(tasks(GOOD), author=MALLORY)
    planned(papers, reverted, main)
    repository.switch("local", on_top)
    below = repository.commit({"other.txt": "3\n"}, author=ANN, push=False)
    merged = repository.merge(main, push=False)
    repository.push(f"HEAD:{main}")
    planned(papers, merged, main)
    # A push by force brings the commit back.
    repository.push(f"{below}:{main}", force=True)
    planned(papers, below, main)

    assert len(states_of(papers, "evil")) == 6
    assert {*states_of(papers, "evil")} == {"held"}
    assert not sign.exists()
    # What an author changes in accepted files is accepted, also after another rewrite.
    repository.switch("good", f"{on_top}~2")
    mended = repository.commit(tasks(GOOD | {"more": {"command": "true", "checkout": "none"}}), author=ANN, push=False)
    repository.push(f"HEAD:{main}", force=True)
    planned(papers, mended, main)
    eventually(lambda: states_of(papers, "more") == ["completed"])
