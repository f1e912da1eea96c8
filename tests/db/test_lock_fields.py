"""Names of locks with fields (design 5.25): the resolved name, the time of its resolution, and
fields without a value.
"""

from __future__ import annotations

from typing import Any

import pytest

from arkqueue.db.session import Session
from arkqueue.model import ArchiveId, End, RunId
from arkqueue.queue import deletion, locks
from arkqueue.views import locks as lock_views
from arkqueue.views.explain import explain
from tests.builders import AnArchive, an_archive

MINT = {"mint": "", "store": "depends: [mint]\nlock: 'vm-${{ needs.mint.ark }}'", "after": "depends: [store]"}


def said(archive: AnArchive, key: str, outputs: dict[str, Any] | None) -> None:
    archive.claim(key)
    archive.end(key, outputs=outputs)


def names(archive: AnArchive) -> list[str]:
    return [one.name for one in lock_views.locks(archive.session, None)]


def why(archive: AnArchive, key: str) -> str:
    return " ".join(reason.text for reason in explain(archive.session, archive.task(key)).reasons)


def test_a_field_is_an_output_of_what_the_task_depends_on(archive: AnArchive) -> None:
    archive.commit({**MINT, "other": "lock: vm-m5"})
    archive.claim("other@2")
    said(archive, "mint@2", {"ark": "m5", "vm": "x"})
    assert archive.state("store@2") == "waiting"
    assert names(archive) == ["papers/vm-m5"]
    assert "waits for the lock papers/vm-m5" in why(archive, "store@2")
    archive.end("other@2")
    archive.run("store@2", "after@2")


@pytest.mark.parametrize(
    ("outputs", "reason"),
    [
        (None, "which is missing or empty"),
        ({"vm": "x"}, "which is missing or empty"),
        ({"ark": ""}, "which is missing or empty"),
        ({"ark": ["m5"]}, "neither a text nor a number"),
        ({"ark": "a\nb"}, "not a valid name for a lock"),
        ({"ark": "a\x1b[31m"}, "not a valid name for a lock"),
        ({"ark": "m5 "}, "not a valid name for a lock"),
        ({"ark": "x" * 198}, "not a valid name for a lock"),
        ({"ark": "x" * 1_000_000}, "not a valid name for a lock"),
    ],
)
def test_a_task_without_a_name_for_its_lock_fails_without_an_attempt(
    archive: AnArchive, outputs: dict[str, Any] | None, reason: str
) -> None:
    archive.commit(MINT)
    said(archive, "mint@2", outputs)
    assert archive.states() == {"mint@2": "completed", "store@2": "failed", "after@2": "skipped"}
    told = why(archive, "store@2")
    assert "without an attempt: the lock vm-${{ needs.mint.ark }} " in told
    assert reason in told
    assert len(told) < 600
    assert told.isprintable()
    assert names(archive) == []
    archive.retry("store@2")  # judged anew, and there is still none
    assert archive.states() == {"mint@2": "completed", "store@2": "failed", "after@2": "skipped"}
    assert "A retry evaluates the name of the lock again." in told
    deletion.delete_run(archive.session, RunId(archive.run_id(2)), "ann")
    told = why(archive, "store@2")
    assert "Nothing will run it: its run was deleted" in told
    assert "A retry" not in told


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("'${{ needs.mint.ark }}'", "global/printer"),
        ("'${{ needs.mint.ark }}/printer'", "global"),
        ("'glob${{ needs.mint.ark }}'", "al/printer"),
        ("'global/${{ needs.mint.ark }}'", " "),
    ],
)
def test_no_output_makes_a_lock_one_of_the_installation(archive: AnArchive, name: str, value: str) -> None:
    archive.commit({"mint": "", "store": f"depends: [mint]\nlock: {name}"})
    said(archive, "mint@2", {"ark": value})
    assert archive.state("store@2") == "failed"


def test_an_output_names_no_lock_of_another_archive(session: Session) -> None:
    archive, other = an_archive(session), an_archive(session, "other")
    other.commit({"x": "lock: tex"})
    other.claim("x@2")
    archive.commit({"mint": "", "store": "depends: [mint]\nlock: '${{ needs.mint.ark }}'"})
    said(archive, "mint@2", {"ark": "other/tex"})
    assert archive.state("store@2") == "ready"
    assert names(archive) == ["other/tex", "papers/other/tex"]


def test_a_field_stands_in_a_lock_of_the_installation(archive: AnArchive) -> None:
    archive.commit(
        {
            "mint": "",
            "store": "depends: [mint]\nlock: ['global/vm-${{ needs.mint.n }}', 'vm-${{ needs.mint.n }}', vm-7]",
        }
    )
    said(archive, "mint@2", {"n": 7})
    assert names(archive) == ["global/vm-7", "papers/vm-7"]
    locks.pass_on(archive.session)
    archive.run("store@2")


def test_a_retry_evaluates_the_name_anew(archive: AnArchive) -> None:
    """And where it comes to something else, the task stands in another line."""
    archive.commit({"mint": "", "store": "depends: [mint]\nlock: 'vm-${{ needs.mint.ark }}'\non_lost: fail"})
    said(archive, "mint@2", {"ark": "m5"})
    archive.claim("store@2")
    assert names(archive) == ["papers/vm-m5"]
    archive.sql(
        'update attempt set outputs = \'{"ark": "m6"}\' where id = (select attempt_id from task where id = %s)',
        archive.task("mint@2"),
    )
    archive.restart("store@2")
    archive.end("store@2", None, End.STOPPED)
    assert archive.state("store@2") == "ready"
    assert names(archive) == ["papers/vm-m6"]  # it has left the other line, although it waited for nothing in between
    archive.sql("update attempt set outputs = null")
    archive.fail("store@2")
    archive.retry("store@2")
    assert "without an attempt" in why(archive, "store@2")
    archive.sql(
        'update attempt set outputs = \'{"ark": "m7"}\' where id = (select attempt_id from task where id = %s)',
        archive.task("mint@2"),
    )
    archive.retry("store@2")
    assert names(archive) == ["papers/vm-m7"]
    assert "without an attempt" not in why(archive, "store@2")
    archive.run("store@2")


def test_a_field_of_an_earlier_revision(archive: AnArchive) -> None:
    archive.commit({"mint": "", "store": "depends: [PREV:mint]\nlock: 'vm-${{ needs.mint.ark }}'"})
    assert "no dependency of the task has run" in why(archive, "store@2")  # there is no earlier one
    archive.commit({"mint": "", "store": "depends: [PREV:mint]\nlock: 'vm-${{ needs.mint.ark }}'"})
    said(archive, "mint@2", {"ark": "m2"})
    archive.run("mint@3")
    assert names(archive) == ["papers/vm-m2"]
    locks.set_capacity(archive.session, ArchiveId(archive.id), "vm-m2", 2, "ann")
    archive.run("store@3")


def test_many_tasks_ask_at_once_with_fields_of_one_large_output(archive: AnArchive) -> None:
    tasks = {
        f"t{n}": f"depends: [mint]\nlock: ['vm-${{{{ needs.mint.k{n} }}}}', 'all-${{{{ needs.mint.ark }}}}']"
        for n in range(200)
    }
    archive.commit({"mint": "", **tasks})
    said(archive, "mint@2", {**{f"k{n}": f"v{n}" for n in range(199)}, "ark": "m5"})
    states = archive.states()
    assert states.pop("mint@2") == "completed"
    assert states.pop("t199@2") == "failed"
    assert sorted(set(states.values())) == ["ready", "waiting"]
    assert list(states.values()).count("ready") == 1
