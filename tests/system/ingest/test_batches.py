"""The batch queue of the example ``ingest``: a test for each sentence of Merritt's batch states
(seeds 000 and 001).
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

import pytest

from tests.system.ingest.conftest import Ingest

JOB = ["pending", "estimating", "provisioning", "downloading", "mint", "store", "recording", "notify"]


def completed(ingest: Ingest, batch: str, job: str = "0001") -> None:
    assert ingest.states(batch, job) == dict.fromkeys(JOB, "completed")


# None -> Pending -> Processing: the payload is examined


@pytest.mark.full
def test_a_single_file_that_is_sent_along_is_a_batch_of_one_job(ingest: Ingest) -> None:
    scan = ingest.folder / "scan of Ann.tif"
    scan.write_bytes(bytes(range(256)) * 100)
    digest = hashlib.sha256(scan.read_bytes()).hexdigest()
    batch = ingest.submit(
        scan, payload_filename=scan.name, digest_type="sha-256", digest_value=digest, local_id=f"{ingest.name}-1", erc_what="A scan"
    )  # fmt: skip
    ingest.jobs_ended(batch)
    completed(ingest, batch)
    outputs = ingest.outputs(batch)
    stored = ingest.services.get("storage", f"object/7/{outputs['ark']}")
    assert {file["name"] for file in stored["files"]} == {
        "producer/scan of Ann.tif",
        "system/mrt-erc.txt",
        "system/mrt-dc.xml",
    }
    assert next(f["digest_value"] for f in stored["files"] if f["name"].startswith("producer/")) == digest
    recorded = ingest.services.get("inventory", f"objects/{outputs['ark']}")
    assert (recorded["local_id"], recorded["version"]) == (f"{ingest.name}-1", 1)
    assert ingest.subjects(batch) == ["is queued: 1 object", "completed: 1 of 1 objects"]


@pytest.mark.full
def test_a_batch_that_its_depositor_gave_no_id_gets_one(ingest: Ingest) -> None:
    file = ingest.folder / "batch.json"
    document = {"profile_name": "demo_content", "submitter": "ann@example.org", "items": []}
    file.write_text(json.dumps(document | {"payload_url": ingest.content()["url"], "type": "file"}))
    first, second = (ingest("submit", ingest.name, str(file)).out.strip() for _ in range(2))
    for run in (first, second):
        batch = f"bid-{run.partition('@')[2]}"
        ingest.ended(f"{batch}-jobs")
        completed(ingest, batch)
        assert ingest.subjects(batch) == ["is queued: 1 object", "completed: 1 of 1 objects"]


@pytest.mark.full
def test_a_corrupt_manifest_is_rejected_for_good(ingest: Ingest) -> None:
    manifest = ingest.manifest(ingest.content())
    path = ingest.services.folder / "content" / ingest.name / manifest["name"]
    path.write_text(path.read_text().replace("#%eof\n", ""))
    batch = ingest.submit(payload_url=manifest["url"])
    ingest.ended(batch, "failed")
    (task,) = [task for task in ingest.tasks(batch) if task["name"] == "batch"]
    assert (task["state"], len(task["attempts"])) == ("rejected", 1), "no retry would help"
    assert ingest.run(f"{batch}-jobs") is None
    (mail,) = ingest.mails(batch)
    assert mail["Subject"] == f"Batch {batch} rejected"
    assert "the manifest is cut off: its last line is not #%eof" in mail.get_content()
    assert ingest("retry", f"{ingest.name}@id:{batch}", "--failed", code=1).err


@pytest.mark.full
def test_a_wrong_digest_of_the_depositor_is_rejected_for_good(ingest: Ingest, tmp_path: Path) -> None:
    (tmp_path / "scan.tif").write_text("a scan")
    of_file = ingest.submit(
        tmp_path / "scan.tif", payload_filename="scan.tif", digest_type="md5", digest_value="0" * 32
    )
    manifest = ingest.manifest(ingest.content())
    of_manifest = ingest.submit(payload_url=manifest["url"], digest_type="sha-256", digest_value="1" * 64)
    for batch in (of_file, of_manifest):
        ingest.ended(batch, "failed")
        assert ingest.run(f"{batch}-jobs") is None
        (mail,) = ingest.mails(batch)
        assert "and the depositor gave" in mail.get_content()


@pytest.mark.full
def test_an_object_manifest_is_a_batch_of_one_job(ingest: Ingest) -> None:
    files = [ingest.content() for _ in range(12)]
    manifest = ingest.manifest(*files)
    batch = ingest.submit(payload_url=manifest["url"], digest_type="sha-256", digest_value=manifest["digest_value"])
    ingest.jobs_ended(batch)
    completed(ingest, batch)
    stored = ingest.services.get("storage", f"object/7/{ingest.outputs(batch)['ark']}")
    assert {f"producer/{file['name']}" for file in files} < {file["name"] for file in stored["files"]}


@pytest.mark.full
def test_a_manifest_of_manifests_is_a_job_for_each_object(ingest: Ingest) -> None:
    objects = [
        ingest.manifest(ingest.content(), ingest.content())
        | {"local_id": f"{ingest.name}-{n}", "erc_what": f"Object {n}"}
        for n in range(3)
    ]
    batch = ingest.submit(payload_url=ingest.manifest(*objects, profile="mrt-batch-manifest")["url"])
    ingest.jobs_ended(batch)
    for number in range(3):
        job = f"{number + 1:04}"
        completed(ingest, batch, job)
        assert ingest.outputs(batch, job)["local_id"] == f"{ingest.name}-{number}"
    assert ingest.subjects(batch) == ["is queued: 3 objects", "completed: 3 of 3 objects"]


@pytest.mark.full
def test_a_manifest_of_files_is_a_job_for_each_file(ingest: Ingest) -> None:
    files = [
        ingest.content() | {"local_id": f"{ingest.name}-{n}", "erc_what": f"Letter {n}", "erc_who": "Ann"}
        for n in range(3)
    ]
    manifest = ingest.manifest(*files, profile="mrt-single-file-batch-manifest")
    batch = ingest.submit(payload_url=manifest["url"], manifest_type="ManifestOfFiles")
    ingest.jobs_ended(batch)
    for number, file in enumerate(files):
        job = f"{number + 1:04}"
        completed(ingest, batch, job)
        outputs = ingest.outputs(batch, job)
        stored = ingest.services.get("storage", f"object/7/{outputs['ark']}")
        (kept,) = [one for one in stored["files"] if one["name"].startswith("producer/")]
        assert (kept["name"], kept["digest_value"], kept["size"]) == (
            f"producer/{file['name']}", file["digest_value"], file["size"],
        )  # fmt: skip
        recorded = ingest.services.get("inventory", f"objects/{outputs['ark']}")
        assert (recorded["local_id"], recorded["version"]) == (f"{ingest.name}-{number}", 1)
    assert len({ingest.outputs(batch, f"{n:04}")["ark"] for n in (1, 2, 3)}) == 3
    assert ingest.subjects(batch) == ["is queued: 3 objects", "completed: 3 of 3 objects"]
    assert "Letter 2" in str(ingest.mails(batch)[0].get_content())


@pytest.mark.full
def test_a_manifest_of_files_whose_file_is_another_fails_that_job_alone(ingest: Ingest) -> None:
    good, bad = ingest.content(), ingest.content() | {"digest_value": "0" * 64}
    batch = ingest.submit(payload_url=ingest.manifest(good, bad, profile="mrt-single-file-batch-manifest")["url"])
    ingest.jobs_ended(batch, "failed")
    completed(ingest, batch, "0001")
    assert ingest.states(batch, "0002")["downloading"] == "failed"
    assert f"and the manifest says {'0' * 64}" in ingest.why(batch, "downloading", "0002")
    assert ingest.subjects(batch)[-1] == "failed: 1 of 2 objects"


@pytest.mark.full
def test_a_manifest_of_containers_is_a_job_for_each_zip(ingest: Ingest, tmp_path: Path) -> None:
    lines = []
    for number in range(2):
        with zipfile.ZipFile(tmp_path / "c.zip", "w") as zipped:
            zipped.writestr("maps/one.txt", f"one of {number}")
            zipped.writestr("two.txt", "two")
        data = (tmp_path / "c.zip").read_bytes()
        url = ingest.services.content(f"{ingest.name}/{number}.zip", data)
        lines.append(
            {"url": url, "digest_type": "md5", "digest_value": hashlib.md5(data).hexdigest(), "name": f"{number}.zip"}
        )
    batch = ingest.submit(payload_url=ingest.manifest(*lines, profile="mrt-container-batch-manifest")["url"])
    ingest.jobs_ended(batch)
    for job in ("0001", "0002"):
        stored = ingest.services.get("storage", f"object/7/{ingest.outputs(batch, job)['ark']}")
        assert {"producer/maps/one.txt", "producer/two.txt"} < {file["name"] for file in stored["files"]}


@pytest.mark.full
def test_a_manifest_of_jobs_has_the_files_or_the_payload_of_each_job(ingest: Ingest) -> None:
    jobs = [
        {"local_id": f"{ingest.name}-a", "files": [ingest.content(), ingest.content()]},
        {"payload_url": ingest.manifest(ingest.content())["url"], "payload_type": "manifest"},
        {"payload_url": ingest.content()["url"], "payload_type": "file"},
    ]
    url = ingest.services.content(f"{ingest.name}/jobs.json", json.dumps({"jobs": jobs}))
    batch = ingest.submit(payload_url=url, manifest_type="ManifestOfJobs")
    ingest.jobs_ended(batch)
    for number in (1, 2, 3):
        completed(ingest, batch, f"{number:04}")


@pytest.mark.full
def test_a_document_that_is_no_submission_is_refused_with_all_its_faults(ingest: Ingest) -> None:
    ingest.submit(code=2, submitter="Ann", digest_type="crc", payload_url="http://example.org/x")
    assert "$.submitter" in ingest.said
    assert "$.digest_type" in ingest.said
    ingest.submit(code=2)
    assert (
        "$: fits none of 2 alternatives. 1: 'payload_url' is a required property; 2: 'payload_filename' is"
        in ingest.said
    )
