"""What an administrator of the example ``ingest`` does: holds, queue locks, deletions, update
reports, priorities. And what happens to summaries whatever fails.
"""

from __future__ import annotations

import uuid

import pytest
from ingest import host

from tests.system.ingest.conftest import Ingest, key
from tests.system.ingest.test_batches import completed
from tests.waiting import eventually

pytestmark = pytest.mark.full


def held(ingest: Ingest, id: str) -> None:
    eventually(lambda: (run := ingest.run(id)) and run["state"] == "held")


# Holds


def test_a_batch_of_a_collection_on_hold_is_held_until_an_administrator_releases_it(ingest: Ingest) -> None:
    """Pending -> Held -> Processing. While the hold stands, nothing is released; its end alone releases nothing."""
    ingest("hold", ingest.name, "--reason", "the rights are being cleared")
    batch = ingest.submit(payload_url=ingest.content()["url"], type="file")
    held(ingest, batch)
    assert ingest("release", f"{ingest.name}@id:{batch}", code=1).err
    ingest("unhold", ingest.name)
    assert ingest.run(batch)["state"] == "held"
    ingest("release", f"{ingest.name}@id:{batch}")
    ingest.jobs_ended(batch)
    completed(ingest, batch)


def held_jobs(ingest: Ingest) -> str:
    """A batch of two jobs, whose collection is put on hold while the batch is made."""
    lines = [ingest.manifest(ingest.content()) for _ in range(2)]
    payload = ingest.manifest(*lines, profile="mrt-batch-manifest")["url"]
    ingest.services.switch("content", slow=1)
    batch = ingest.submit(payload_url=payload)
    eventually(lambda: any(task["name"] == "batch" and task["attempts"] for task in ingest.tasks(batch)))
    ingest("hold", ingest.name)
    ingest.services.switch("content")
    ingest.ended(batch)
    held(ingest, f"{batch}-jobs")
    assert {ingest.states(batch, job)["pending"] for job in ("0001", "0002")} == {"held"}
    ingest("unhold", ingest.name)
    return batch


def test_jobs_of_a_collection_that_was_put_on_hold_meanwhile_are_held(ingest: Ingest) -> None:
    """Pending -> Held -> Pending: the batch was made before; its jobs are held one by one, and released together or alone."""
    batch = held_jobs(ingest)
    ingest("release", ingest.job(batch, "0002"))
    ingest.reaches(batch, "notify", "completed", "0002")
    assert ingest.states(batch)["pending"] == "held"
    ingest("release", f"{ingest.name}@id:{batch}-jobs")
    ingest.jobs_ended(batch)


def test_held_jobs_are_deleted_one_by_one_and_the_summary_says_nothing_of_them(ingest: Ingest) -> None:
    """Held -> DELETED."""
    batch = held_jobs(ingest)
    ingest("delete", ingest.job(batch, "0002"))
    ingest("release", f"{ingest.name}@id:{batch}-jobs")
    ingest.jobs_ended(batch)
    assert ingest.subjects(batch)[-1] == "completed: 1 of 1 objects"
    assert key(batch, "0002") not in ingest.text(batch)


def test_a_held_batch_is_deleted_and_nobody_is_told(ingest: Ingest) -> None:
    """Held -> DELETED."""
    ingest("hold", ingest.name)
    batch = ingest.submit(payload_url=ingest.content()["url"], type="file")
    held(ingest, batch)
    ingest("delete", f"{ingest.name}@id:{batch}")
    assert f"@id:{batch}" not in ingest("runs", ingest.name).out
    assert ingest.run(f"{batch}-jobs") is None
    assert ingest.subjects(batch) == []


# Queue locks


def test_the_lock_of_the_ingest_queue_stops_it_for_all_collections(ingest: Ingest) -> None:
    ingest("pause", "--lock", "global/ingest", "--reason", "the database is being upgraded")
    try:
        batch = ingest.submit(payload_url=ingest.content()["url"], type="file")
        eventually(lambda: ingest.run(batch))
        explained = eventually(
            lambda: (text := ingest("explain", f"{ingest.name}@id:{batch}/batch").out) and "paused" in text and text
        )
        assert "the database is being upgraded" in explained
        assert not ingest.tasks(batch)[1]["attempts"]
    finally:
        ingest("resume", "--lock", "global/ingest")
    ingest.jobs_ended(batch)


# Reports


def test_a_failed_batch_is_reported_anew_with_what_has_succeeded_since_and_what_is_still_unresolved(
    ingest: Ingest,
) -> None:
    """Failed -> UpdateReporting -> Failed, and -> Completed. It stays marked as changed until it is reported."""
    lines = [ingest.manifest(ingest.content()) for _ in range(2)]
    broken = [ingest.content() for _ in range(2)]
    lines += [ingest.manifest(file) for file in broken]
    texts = [
        (path := ingest.services.folder / "content" / ingest.name / file["name"], path.read_text()) for file in broken
    ]
    for path, _ in texts:
        path.unlink()
    batch = ingest.submit(payload_url=ingest.manifest(*lines, profile="mrt-batch-manifest")["url"])
    run = ingest.jobs_ended(batch, "failed")
    name = f"{ingest.name}@id:{batch}-jobs"
    assert ingest.subjects(batch) == ["is queued: 4 objects", "failed: 2 of 4 objects"]
    first = ingest.text(batch)
    assert "Completed: 2" in first
    assert "Failed: 2" in first
    assert f"{batch}.0003  downloading failed" in first
    assert not run["changed_since_report"]

    texts[0][0].write_text(texts[0][1])
    ingest("retry", ingest.job(batch, "0003"))
    ingest.reaches(batch, "notify", "completed", "0003")
    assert ingest.run(f"{batch}-jobs")["changed_since_report"]
    assert "changed since its report" in ingest("runs", ingest.name).out
    ingest("report", name, "--update")
    eventually(lambda: len(ingest.mails(batch)) == 3)
    assert ingest.subjects(batch)[-1] == "update: still unresolved: 3 of 4 objects"
    second = ingest.text(batch)
    assert f"Succeeded since the last report: 1\n  {batch}.0003" in second
    assert f"Not resolved: 1\n  {batch}.0004" in second
    eventually(lambda: not ingest.run(f"{batch}-jobs")["changed_since_report"])
    assert ingest.run(f"{batch}-jobs")["state"] == "failed"

    texts[1][0].write_text(texts[1][1])
    ingest("retry", name, "--failed")
    ingest.reaches(batch, "notify", "completed", "0004")
    eventually(lambda: ingest.run(f"{batch}-jobs")["state"] == "completed")
    ingest("report", name, "--update")
    eventually(lambda: len(ingest.mails(batch)) == 4)
    assert ingest.subjects(batch)[-1] == "update: completed: 4 of 4 objects"
    assert "Not resolved: 0" in ingest.text(batch)


def test_failed_jobs_and_failed_batches_are_deleted(ingest: Ingest) -> None:
    """Failed -> DELETED: one job, and the batch with all of its jobs."""
    lines = [ingest.manifest(ingest.content()), {"url": ingest.content("no manifest")["url"]}]
    batch = ingest.submit(payload_url=ingest.manifest(*lines, profile="mrt-batch-manifest")["url"])
    ingest.jobs_ended(batch, "failed")
    name = f"{ingest.name}@id:{batch}-jobs"
    ingest("delete", ingest.job(batch, "0002"))
    eventually(lambda: ingest.run(f"{batch}-jobs")["state"] == "completed")
    ingest("delete", name)
    assert f"@id:{batch}-jobs" not in ingest("runs", ingest.name).out


def test_a_failed_batch_is_deleted_with_its_jobs_that_still_wait(ingest: Ingest) -> None:
    """Failed -> DELETED, and any outstanding jobs: one is rejected, and one waits for room in the working storage."""
    lines = [ingest.manifest(ingest.content()), {"url": ingest.content("no manifest")["url"]}]
    host.change_working_storage(ingest.settings, threshold=0.001, retry_after=3600)
    batch = ingest.submit(payload_url=ingest.manifest(*lines, profile="mrt-batch-manifest")["url"])
    ingest.reaches(batch, "pending", "rejected", "0002")
    ingest.reaches(batch, "provisioning", "deferred")
    ingest("delete", f"{ingest.name}@id:{batch}-jobs")
    assert f"@id:{batch}-jobs" not in ingest("runs", ingest.name).out
    assert set(ingest.states(batch).values()) == {"completed", "canceled"}
    assert ingest.subjects(batch) == ["is queued: 2 objects"], "nobody is told"
    host.change_working_storage(ingest.settings, threshold=100)
    ingest("undelete", f"{ingest.name}@id:{batch}-jobs")
    assert ingest.run(f"{batch}-jobs")


def test_a_summary_comes_although_the_mail_server_is_away_for_a_while(ingest: Ingest) -> None:
    ingest.services.switch("mail", fail=3)
    batch = ingest.submit(payload_url=ingest.content()["url"], type="file", profile_name="quiet_content")
    ingest.jobs_ended(batch)
    assert ingest.subjects(batch) == ["completed: 1 of 1 objects"]


def test_an_error_while_a_batch_is_made_fails_all_of_its_jobs_and_tells_the_depositor(ingest: Ingest) -> None:
    """It is tried again a few times; then no job of it exists, and a person may retry it."""
    ingest.services.switch("content", fail=-1)
    batch = ingest.submit(payload_url=ingest.manifest(ingest.content())["url"])
    ingest.ended(batch, "failed")
    assert len(ingest.tasks(batch)[1]["attempts"]) == 4
    assert ingest.run(f"{batch}-jobs") is None
    (mail,) = ingest.mails(batch)
    assert mail["Subject"] == f"Batch {batch} failed"
    assert "503" in mail.get_content()
    ingest.services.switch("content")
    ingest("retry", f"{ingest.name}@id:{batch}", "--failed")
    ingest.jobs_ended(batch)


# Priorities


def test_the_priority_of_a_job_comes_from_its_profile_and_the_size_of_its_batch(ingest: Ingest) -> None:
    """A person's word wins over it."""
    lines = [ingest.manifest(ingest.content()) for _ in range(11)]
    ingest("pause", "--lock", "global/ingest")
    large = ingest.submit(payload_url=ingest.manifest(*lines, profile="mrt-batch-manifest")["url"])
    urgent = ingest.submit(payload_url=ingest.content()["url"], type="file", profile_name="quiet_content")
    ingest("resume", "--lock", "global/ingest")
    ingest.ended(large)
    ingest.reaches(large, "pending", "completed")
    assert {task["priority"] for task in ingest.tasks(f"{large}-jobs", key(large))[1:]} == {60}
    ingest("cancel", f"{ingest.name}@id:{large}-jobs")
    ingest.jobs_ended(urgent)
    assert {task["priority"] for task in ingest.tasks(f"{urgent}-jobs", key(urgent))[1:]} == {20}
    other = ingest.submit(payload_url=ingest.content()["url"], type="file", hold=True)
    ingest("release", f"{ingest.name}@id:{other}")
    eventually(lambda: ingest.run(f"{other}-jobs"))
    ingest("prioritize", ingest.job(other), "5", code=None)
    ingest.jobs_ended(other)
    assert 5 in {task["priority"] for task in ingest.tasks(f"{other}-jobs", key(other))}


def test_the_same_batch_handed_in_twice_is_one(ingest: Ingest) -> None:
    document = {"payload_url": ingest.content()["url"], "type": "file"}
    batch = ingest.submit(**document)
    ingest.submit(batch=batch, **document)
    ingest.jobs_ended(batch)
    ingest.submit(batch=batch, **document)
    ids = [run["submission"] for run in ingest.arkqueue.api.get("/runs", archive=ingest.name, limit=100)["runs"]]
    assert sorted(filter(None, ids)) == sorted([f"{ingest.name}@id:{batch}", f"{ingest.name}@id:{batch}-jobs"])
    assert ingest.subjects(batch) == ["is queued: 1 object", "completed: 1 of 1 objects"]


def test_the_depositor_of_a_batch_whose_id_is_not_ascii_is_told(ingest: Ingest) -> None:
    batch = f"bid-ä-{uuid.uuid4().hex[:8]}"
    ingest.submit(batch=batch, payload_url=ingest.content()["url"], type="file")
    ingest.jobs_ended(batch)
    assert ingest.subjects(batch) == ["is queued: 1 object", "completed: 1 of 1 objects"]


def test_a_failed_batch_and_a_failed_job_are_retried_although_later_batches_have_gone_on(ingest: Ingest) -> None:
    """The keys of jobs differ from batch to batch. A batch has no key, and is work of its own submission."""
    file = ingest.content()
    path = ingest.services.folder / "content" / ingest.name / file["name"]
    text = path.read_text()
    failed = ingest.submit(payload_url=ingest.manifest(file)["url"])
    path.unlink()
    ingest.jobs_ended(failed, "failed")
    gone = ingest.submit(payload_url=ingest.services.urls["content"] + "/gone.checkm")
    ingest.ended(gone, "failed")
    ingest.jobs_ended(ingest.submit(payload_url=ingest.content()["url"], type="file"))
    path.write_text(text)
    ingest("retry", f"{ingest.name}@id:{failed}-jobs", "--failed")
    ingest.ended(f"{failed}-jobs")
    ingest.services.content("gone.checkm", path.with_name(ingest.manifest(file)["name"]).read_text())
    ingest("retry", f"{ingest.name}@id:{gone}")
    ingest.jobs_ended(gone)
