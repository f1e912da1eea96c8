"""Work that has piled up while nobody looked: a weekend on hold, and an import of a long history."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.system.end_to_end.conftest import Archives, Installations
from tests.system.end_to_end.installation import Archive, Installation, tasks
from tests.waiting import eventually

STRICT = {"COMMIT": {"depends": [{"task": "PREV:*", "when": "settled"}]}}
"""Every task waits until the previous revision has settled."""
IMPORTED = 1_500


def weekend(papers: Archive, workflow: dict[str, dict[str, object]], shared: Installation) -> None:
    """Held on Friday, ten commits, and the hold ends on Monday."""
    shared("hold", papers.name, "--reason", "nobody is here until Monday")
    papers.commit(tasks(workflow))
    for number in range(9):
        papers.commit({"paper.tex": f"weekend {number}\n"})
    for number in range(2, 12):
        papers.wait(f"index@{number}", "held")
    assert "20 tasks held until somebody releases them" in shared("unhold", papers.name).out


@pytest.mark.full
@pytest.mark.parametrize("is_strict", [True, False])
def test_ten_commits_of_a_weekend_go_on_on_monday(
    shared: Installation, archives: Archives, tmp_path: Path, *, is_strict: bool
) -> None:
    papers, ran = archives(shared), tmp_path / "ran"
    note = f"echo $ARKQUEUE_REVISION >> {ran}"
    pdf = {"cancels": ["PREV"], "command": "true", "checkout": "none"}
    index = {"depends": ["PREV"], "command": note, "checkout": "none"}
    weekend(papers, {**(STRICT if is_strict else {}), "index": index, "pdf": pdf}, shared)
    assert "20 tasks released" in shared("release", papers.name, "--all").out
    papers.wait_for_run(11)
    assert ran.read_text().split() == [str(number) for number in range(2, 12)], "each revision once, in order"
    made = [number for number in range(2, 12) if papers.state(f"pdf@{number}") == "completed"]
    assert made == (list(range(2, 12)) if is_strict else [11]), "without the line, only the newest PDF is made"


@pytest.mark.full
def test_a_weekend_that_is_released_after_a_newer_commit_ran_overwrites_nothing(
    shared: Installation, archives: Archives, tmp_path: Path
) -> None:
    papers, ran = archives(shared), tmp_path / "ran"
    upload = {"command": f"echo $ARKQUEUE_REVISION >> {ran}", "checkout": "none"}
    weekend(papers, {"index": upload, "upload": {**upload, "depends": ["index"]}}, shared)
    papers.commit({"paper.tex": "Monday\n"})
    papers.wait_for_run(12)
    refused = shared("release", papers.name, "--all", code=1)
    assert refused.err.count("would replace the work of later revisions") >= 1
    assert ran.read_text().split() == ["12", "12"]
    shared("release", papers.name, "--all", "--skip-outdated")
    for number in range(2, 12):
        papers.wait(f"upload@{number}", "skipped")
    assert ran.read_text().split() == ["12", "12"]


def a_history(number: int) -> bytes:
    """A dump that adds revisions to a repository, each with another text of its paper."""
    parts = [b"SVN-fs-dump-format-version: 2\n\n"]
    for revision in range(2, number + 2):
        text = f"draft {revision}\n".encode()
        properties = b"K 7\nsvn:log\nV 5\nwrite\nPROPS-END\n"
        length = len(properties)
        parts.append(
            f"Revision-number: {revision}\nProp-content-length: {length}\nContent-length: {length}\n\n".encode()
            + properties
            + b"\nNode-path: paper.tex\nNode-kind: file\nNode-action: change\n"
            + f"Text-content-length: {len(text)}\nContent-length: {len(text)}\n\n".encode()
            + text
            + b"\n\n"
        )
    return b"".join(parts)


@pytest.mark.full
def test_an_import_of_1_500_revisions_waits_for_a_person_and_then_runs_what_counts(
    installations: Installations, archives: Archives, tmp_path: Path
) -> None:
    arkqueue = installations(slots=2)
    arkqueue.start()
    papers, others = archives(arkqueue), archives(arkqueue)
    ran = tmp_path / "ran"
    pdf = {"cancels": ["PREV"], "command": f"echo $ARKQUEUE_REVISION >> {ran}", "checkout": "none"}
    papers.commit(tasks({"pdf": pdf}))
    papers.wait_for_run(2)
    dump = a_history(IMPORTED)
    subprocess.run(["svnadmin", "load", "-q", str(papers.repository.path)], input=dump, check=True)
    head = IMPORTED + 2
    arkqueue("sync", papers.name)
    eventually(lambda: papers.state(f"pdf@{head}") == "held", patience=300)
    assert "one scan has found more than 1,000 new revisions" in papers.explained("pdf@3")
    (told,) = [line for line in arkqueue("status", code=1).out.splitlines() if line.startswith("held")]
    assert told.split(None, 1)[1].startswith(
        f"{papers.name}: {IMPORTED:,} tasks are held by arkqueue: one scan has found more than 1,000"
    )
    others.commit(tasks({"index": {"command": "true", "checkout": "none"}}))
    others.wait_for_run(2)  # another archive is not held up

    said = arkqueue("release", papers.name, "--all").out
    assert f"{IMPORTED:,} tasks released" in said
    papers.wait_for_run(head)
    assert arkqueue("runs", papers.name, "--state", "held", "--json").json["runs"] == []
    assert int(ran.read_text().split()[-1]) == head
    assert len(ran.read_text().split()) < IMPORTED / 10, "a newer revision supersedes what has not begun"
