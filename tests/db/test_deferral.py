"""Deferral (design 5.28): exit code 75, the time of the next attempt, and the deadline."""

from __future__ import annotations

import pytest

from arkqueue.queue import finish
from arkqueue.views import tasks
from arkqueue.views.explain import explain
from tests.builders import AnArchive


def due_in(archive: AnArchive, key: str) -> float:
    (row,) = archive.sql(
        "select extract(epoch from due_at - clock_timestamp())::float8 as n from task where id = %s", archive.task(key)
    )
    return float(row["n"])


def defer(archive: AnArchive, key: str, **outputs: object) -> float:
    """End an attempt with 75; returns in how many seconds the next one is due, which becomes due now."""
    archive.end(key, 75, outputs=outputs or None)
    assert archive.state(key) == "deferred"
    seconds = due_in(archive, key)
    archive.sql("update task set due_at = clock_timestamp() where state = 'deferred'")
    finish.wake_deferred(archive.session)
    return seconds


def time_passes(archive: AnArchive, seconds: float) -> None:
    archive.sql("update task set deferred_at = deferred_at - make_interval(secs => %s)", seconds)


def test_deferrals_double_to_an_hour_and_count_as_no_retry(archive: AnArchive) -> None:
    archive.commit({"a": "retries: {max: 1, delay: 5h}"})
    seconds = [defer(archive, "a@2") for _ in range(8)]
    assert seconds == pytest.approx([60, 120, 240, 480, 960, 1920, 3600, 3600], abs=20)
    archive.fail("a@2")
    assert (archive.state("a@2"), due_in(archive, "a@2")) == ("deferred", pytest.approx(5 * 3600, abs=20))


def test_an_output_says_when_the_next_attempt_is_due(archive: AnArchive) -> None:
    archive.commit({"a": ""})
    asked = [defer(archive, "a@2", **{"arkqueue.retry_after": said}) for said in ("900", 7200, "0.1")]
    assert asked == pytest.approx([900, 7200, 1], abs=20)
    assert asked[-1] <= 1


def test_a_task_that_stays_deferred_until_its_deadline_is_tried_once_more_and_fails(archive: AnArchive) -> None:
    archive.commit({"a": "deadline: 90s", "b": "depends: [a]"})
    assert defer(archive, "a@2") == pytest.approx(60, abs=20)
    time_passes(archive, 40)
    assert 0 < defer(archive, "a@2") <= 50  # and not two minutes: it is the last one
    time_passes(archive, 50)
    archive.end("a@2", 75)
    assert archive.states() == {"a@2": "failed", "b@2": "skipped"}
    told = explain(archive.session, archive.task("a@2"))
    assert "exit code 75; it had stayed deferred until its deadline" in told.text


def test_what_completes_after_the_deadline_has_completed(archive: AnArchive) -> None:
    archive.commit({"a": "deadline: 90s"})
    defer(archive, "a@2")
    time_passes(archive, 9000)
    archive.run("a@2")


@pytest.mark.parametrize("while_", ["deferred", "failed"])
def test_a_persons_retry_begins_a_new_deadline(archive: AnArchive, while_: str) -> None:
    archive.commit({"a": "deadline: 90s"})
    archive.end("a@2", 75)
    time_passes(archive, 9000)
    if while_ == "failed":
        archive.sql("update task set due_at = clock_timestamp() where state = 'deferred'")
        finish.wake_deferred(archive.session)
        archive.end("a@2", 75)
    assert archive.state("a@2") == while_
    archive.retry("a@2")
    assert defer(archive, "a@2") == pytest.approx(60, abs=20)


def test_deadline_is_told(archive: AnArchive) -> None:
    archive.commit({"a": "deadline: 2d", "b": ""})
    archive.end("a@2", 75)
    archive.end("b@2", 75)
    detail = tasks.task(archive.session, archive.task("a@2"))
    assert detail.deferred_at is not None
    assert detail.deadline_at is not None
    assert (detail.deadline_at - detail.deferred_at).total_seconds() == 2 * 86400
    told = explain(archive.session, archive.task("a@2"))
    assert f"Its deadline is {detail.deadline_at:%Y-%m-%d}" in told.text
    assert "deadline" not in explain(archive.session, archive.task("b@2")).text
