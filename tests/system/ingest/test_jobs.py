"""The job queue of the example ``ingest``: a test for each sentence of Merritt's job states (seeds
000 and 001). Faults are those of the services.
"""

from __future__ import annotations

import json
import xml.etree.ElementTree as xml
import zipfile
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from ingest import host
from rdflib import Graph, Literal, Namespace

from tests.system.ingest.conftest import Ingest, Servers, a_collection, key
from tests.system.ingest.test_batches import JOB, completed
from tests.waiting import eventually

pytestmark = pytest.mark.full
MRT = Namespace("http://merritt.cdlib.org/terms#")


def before(step: str) -> dict[str, str]:
    """The steps before one have completed."""
    return dict.fromkeys(JOB[: JOB.index(step)], "completed")


def failed_at(step: str, state: str = "failed") -> dict[str, str]:
    """A job that has failed at a step: what is before it has completed, and what is behind it waits for a person."""
    return before(step) | {step: state} | dict.fromkeys(JOB[JOB.index(step) + 1 :], "skipped")


def executions(ingest: Ingest, batch: str, job: str = "0001") -> dict[str, int]:
    """How often each step of a job has run, without polls."""
    tasks = ingest.tasks(f"{batch}-jobs", key(batch, job))
    return {task["name"]: sum(attempt["kind"] == "run" for attempt in task["attempts"]) for task in tasks}


# None -> Failed


def test_a_job_whose_manifest_is_corrupt_or_not_the_depositors_is_rejected_and_the_others_go_on(ingest: Ingest) -> None:
    good, corrupt, other = (ingest.manifest(ingest.content()) for _ in range(3))
    (ingest.services.folder / "content" / ingest.name / corrupt["name"]).write_text("#%checkm_0.7\n#%eof\n")
    lines = [good, {"url": corrupt["url"]}, other | {"digest_value": "0" * 64}]
    batch = ingest.submit(payload_url=ingest.manifest(*lines, profile="mrt-batch-manifest")["url"])
    ingest.jobs_ended(batch, "failed")
    completed(ingest, batch)
    assert ingest.states(batch, "0002") == failed_at("pending", "rejected")
    assert ingest.states(batch, "0003") == failed_at("pending", "rejected")
    assert "the manifest names no #%profile" in ingest.why(batch, "pending", "0002")
    assert "and the depositor gave 0000" in ingest.why(batch, "pending", "0003")
    assert ingest.subjects(batch)[-1] == "failed: 1 of 3 objects"
    ingest("retry", f"{ingest.name}@id:{batch}-jobs", "--failed", code=None)
    assert executions(ingest, batch, "0002")["pending"] == 1, "what is rejected is not among what failed"


def test_a_job_that_a_depositor_wrote_himself_is_rejected_and_writes_nothing_outside_of_its_folder(
    ingest: Ingest,
) -> None:
    outside = ingest.folder / "outside"
    file = ingest.content() | {"name": f"{'../' * 20}{outside}"}
    item = {"job_id": key("bid-own"), "batch_id": "bid-own", "priority": 0, "submission_mode": "add"}
    item |= {"profile_name": "demo_content", "payload_type": "files", "files": [file]}
    ingest.submit(batch="bid-own-jobs", batch_id="bid-own", items=[item])
    ingest.ended("bid-own-jobs", "failed")
    assert ingest.states("bid-own") == failed_at("pending", "rejected")
    assert "is not a valid name for a file of an object" in ingest.why("bid-own", "pending")
    assert not outside.exists()
    ingest.submit(batch="bid-other", batch_id="bid-own", items=[item | {"files": [ingest.content()]}])
    ingest.ended("bid-other", "failed")
    (task,) = [task for task in ingest.tasks("bid-other", key("bid-own")) if task["name"] == "pending"]
    assert "is not a job of the batch bid-other" in task["attempts"][-1]["outputs"]["message"]


# Estimating


def test_estimating_adds_what_head_requests_say_and_downloading_corrects_it(ingest: Ingest) -> None:
    files = [ingest.content(f"{n}" * 1000 * (n + 1)) for n in range(3)]
    batch = ingest.submit(payload_url=ingest.manifest(*files)["url"])
    ingest.jobs_ended(batch)
    estimating = ingest.attempts(batch, "estimating")[-1]["outputs"]
    assert int(estimating["space_needed"]) == 6000
    assert not ingest.attempts(batch, "downloading")[-1]["outputs"], "it was right"


def test_a_size_that_nobody_knows_is_0_and_puts_its_job_behind_the_others(ingest: Ingest) -> None:
    """It never fails, and downloading finds the size out."""
    ingest.services.switch("content", size=True)
    file = ingest.content("x" * 5000)
    batch = ingest.submit(payload_url=file["url"], type="file")
    ingest.jobs_ended(batch)
    tasks = {task["name"]: task for task in ingest.tasks(f"{batch}-jobs", key(batch))}
    assert int(tasks["estimating"]["attempts"][-1]["outputs"]["space_needed"]) == 0
    assert (tasks["estimating"]["priority"], tasks["provisioning"]["priority"], tasks["downloading"]["priority"]) == (
        50,
        70,
        70,
    )
    assert int(tasks["downloading"]["attempts"][-1]["outputs"]["space_needed"]) == 5000
    assert tasks["store"]["priority"] == 50, "its size is known by then"


def test_estimating_does_not_fail_where_the_server_does_not_answer(ingest: Ingest) -> None:
    file = ingest.content()
    batch = ingest.submit(
        payload_url=ingest.manifest(file, {"url": "http://127.0.0.1:9/gone.txt", "name": "gone.txt"})["url"]
    )
    ingest.jobs_ended(batch, "failed")
    assert ingest.states(batch) == failed_at("downloading")
    assert ingest.attempts(batch, "estimating")[-1]["outputs"]["space_needed"] in ("0", 0)


def test_an_object_that_needs_much_space_is_put_behind_the_others(servers: Servers, tmp_path: Path) -> None:
    arkqueue, services = servers
    ingest = a_collection(arkqueue, services, tmp_path, profiles={"demo_content": {"large": "1KiB"}})
    batch = ingest.submit(payload_url=ingest.content("x" * 2000)["url"], type="file")
    ingest.jobs_ended(batch)
    assert {t["name"]: t["priority"] for t in ingest.tasks(f"{batch}-jobs", key(batch))}["store"] == 70


# Provisioning


def test_provisioning_waits_while_the_working_storage_is_too_full_and_looks_at_every_job(ingest: Ingest) -> None:
    """One that is not estimated waits at a lower limit: it waits while others go on."""
    host.change_working_storage(ingest.settings, threshold=0.001)
    batches = [ingest.submit(payload_url=ingest.content()["url"], type="file") for _ in range(2)]
    for batch in batches:
        ingest.reaches(batch, "provisioning", "deferred")
        eventually(lambda batch=batch: len(ingest.attempts(batch, "provisioning")) >= 2)
        assert ingest.states(batch)["downloading"] == "waiting"
        assert "the working storage would be" in ingest.why(batch, "provisioning")
    host.change_working_storage(ingest.settings, threshold=100, threshold_unestimated=0.001)
    for batch in batches:
        ingest.jobs_ended(batch)
    ingest.services.switch("content", size=True)
    unknown = ingest.submit(payload_url=ingest.content()["url"], type="file")
    ingest.reaches(unknown, "provisioning", "deferred")
    ingest.services.switch("content")
    known = ingest.submit(payload_url=ingest.content()["url"], type="file")
    ingest.jobs_ended(known)
    assert ingest.states(unknown)["provisioning"] in ("deferred", "ready", "running")
    host.change_working_storage(ingest.settings, threshold_unestimated=100)
    ingest.jobs_ended(unknown)


# Downloading


def test_a_download_is_tried_a_few_times(ingest: Ingest) -> None:
    host.change_working_storage(ingest.settings, threshold=0.001)
    batch = ingest.submit(payload_url=ingest.content()["url"], type="file")
    ingest.reaches(batch, "provisioning", "deferred")
    ingest.services.switch("content", fail=2)
    host.change_working_storage(ingest.settings, threshold=100)
    ingest.jobs_ended(batch)
    assert executions(ingest, batch)["downloading"] == 1


def test_a_download_that_does_not_succeed_fails_the_job_names_the_file_and_is_resumed_there(ingest: Ingest) -> None:
    """A file that is there is not fetched again."""
    files = [ingest.content(), ingest.content()]
    gone = ingest.services.folder / "content" / ingest.name / files[1]["name"]
    text = gone.read_text()
    batch = ingest.submit(payload_url=ingest.manifest(*files)["url"])
    gone.unlink()
    ingest.jobs_ended(batch, "failed")
    assert ingest.states(batch) == failed_at("downloading")
    assert ingest.why(batch, "downloading") == f"failed: {files[1]['url']}: 404 Not Found, 3 times"
    (mail,) = ingest.mails(batch)[1:]
    assert files[1]["url"] in mail.get_content()
    gone.write_text(text)
    (ingest.services.folder / "content" / ingest.name / files[0]["name"]).unlink()
    ingest("retry", ingest.job(batch))
    ingest.reaches(batch, "notify", "completed")
    completed(ingest, batch)
    assert executions(ingest, batch) == dict.fromkeys(JOB, 1) | {"downloading": 2}
    assert ingest("show", ingest.task(batch, "downloading")).out.count("retry") >= 1, "its history has the retry"


def test_a_file_whose_digest_is_not_the_depositors_fails_its_job(ingest: Ingest) -> None:
    file = ingest.content()
    batch = ingest.submit(payload_url=ingest.manifest(file | {"digest_value": "a" * 64})["url"])
    ingest.jobs_ended(batch, "failed")
    assert ingest.states(batch) == failed_at("downloading")
    assert f"{file['url']}: its sha-256 is {file['digest_value']}, and the manifest says aaaa" in ingest.why(
        batch, "downloading"
    )


def test_a_container_that_is_no_zip_or_leads_out_of_itself_is_rejected(ingest: Ingest, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as zipped:
        zipped.writestr("../../outside.txt", "out")
    (tmp_path / "d.zip").write_text("no zip")
    for name, why in (
        ("c.zip", "'../../outside.txt' is not a valid name for a file of an object"),
        ("d.zip", "is not a zip file"),
    ):
        batch = ingest.submit(tmp_path / name, payload_filename=name, type="container")
        ingest.jobs_ended(batch, "failed")
        assert ingest.states(batch) == failed_at("downloading", "rejected")
        assert why in ingest.why(batch, "downloading")


# Processing


def minted(ingest: Ingest, batch: str) -> list[dict[str, Any]]:
    """The ARKs that were minted for the jobs of a batch."""
    import psycopg
    from psycopg.rows import dict_row

    with psycopg.connect(ingest.services.database, row_factory=dict_row) as connection:
        jobs = f"{ingest.name}/{batch}.%"
        return connection.execute(
            "select ark, job from merritt.identifier where minted and job like %s", [jobs]
        ).fetchall()


def test_an_ark_is_minted_once_whatever_becomes_of_the_attempt(ingest: Ingest) -> None:
    """The answer of the service is lost: the ARK is minted, and the task does not know it."""
    ingest.services.switch("minting", lose=1)
    batch = ingest.submit(payload_url=ingest.content()["url"], type="file")
    ingest.jobs_ended(batch)
    assert executions(ingest, batch)["mint"] == 2
    assert [one["ark"] for one in minted(ingest, batch)] == [ingest.outputs(batch)["ark"]]
    ingest.ended(f"{batch}-jobs")
    (ark,) = {one["ark"] for one in minted(ingest, batch)}
    again = {"job": f"{ingest.name}/{key(batch)}", "owner": "ark:/99999/j2demo"}
    asked = Request(
        f"{ingest.services.urls['minting']}/shoulder/ark:/99999/fk4", json.dumps(again).encode(), method="POST"
    )
    with urlopen(asked) as answer:
        assert json.load(answer)["ark"] == ark


def test_a_local_id_is_looked_up_and_an_update_is_the_next_version_of_the_object(ingest: Ingest) -> None:
    local = f"{ingest.name}-maps"
    first = ingest.submit(
        payload_url=ingest.manifest(ingest.content("one", "1.txt"), ingest.content("two", "2.txt"))["url"],
        local_id=local,
    )
    ingest.jobs_ended(first)
    ark = ingest.outputs(first)["ark"]
    update = ingest.submit(
        payload_url=ingest.manifest(ingest.content("new", "2.txt"))["url"], local_id=local, submission_mode="update"
    )  # fmt: skip
    ingest.jobs_ended(update)
    assert (ingest.outputs(update)["ark"], int(ingest.outputs(update)["version"])) == (ark, 2)
    assert minted(ingest, update) == []
    stored = ingest.services.get("storage", f"object/7/{ark}")
    assert {f["name"]: f["version"] for f in stored["files"] if f["name"].startswith("producer/")} == {
        "producer/1.txt": 1,
        "producer/2.txt": 2,
    }
    assert ingest.services.get("inventory", f"objects/{ark}")["version"] == 2


def test_a_local_id_that_belongs_to_another_ark_fails_the_job(ingest: Ingest) -> None:
    local = f"{ingest.name}-maps"
    first = ingest.submit(
        payload_url=ingest.content()["url"],
        type="file",
        local_id=local,
        ark=f"ark:/99999/{ingest.name.replace('-', '')}",
    )
    ingest.jobs_ended(first)
    assert ingest.outputs(first)["ark"] == f"ark:/99999/{ingest.name.replace('-', '')}", "the depositor gave it"
    assert minted(ingest, first) == []
    second = ingest.submit(payload_url=ingest.content()["url"], type="file", local_id=local, ark="ark:/99999/other")
    ingest.jobs_ended(second, "failed")
    assert ingest.states(second) == failed_at("mint")
    assert f"local id {local}: belongs to ark:/99999/" in ingest.why(second, "mint")


def test_a_local_id_is_read_from_the_depositors_erc(ingest: Ingest) -> None:
    erc = ingest.content(f"erc:\nwho: Ann\nwhere: ark:/99999/zz\nwhere: {ingest.name}-erc\n", "mrt-erc.txt")
    batch = ingest.submit(payload_url=ingest.manifest(erc, ingest.content())["url"])
    ingest.jobs_ended(batch)
    assert ingest.outputs(batch)["local_id"] == f"{ingest.name}-erc"


def test_metadata_is_written_beside_the_depositors_files(ingest: Ingest) -> None:
    about = {"erc_who": "Ann & Bob", "erc_what": "Maps", "erc_when": "1896", "erc_where": "Paris"}
    batch = ingest.submit(payload_url=ingest.content()["url"], type="file", local_id=f"{ingest.name}-7", **about)
    ingest.jobs_ended(batch)
    ark = ingest.outputs(batch)["ark"]
    system = ingest.services.folder / "storage" / "7" / ark.replace(":", "+").replace("/", "=") / "1" / "system"
    assert (
        (system / "mrt-erc.txt").read_text()
        == f"erc:\nwho: Ann & Bob\nwhat: Maps\nwhen: 1896\nwhere: {ark}\nwhere: {ingest.name}-7\nwhere: Paris\n"
    )
    core = xml.parse(system / "mrt-dc.xml").getroot()
    assert [element.text for element in core] == ["Ann & Bob", "Maps", "1896", ark, f"{ingest.name}-7"]


@pytest.mark.full
def test_line_breaks_of_the_depositor_make_no_lines_in_the_metadata(ingest: Ingest) -> None:
    forged = "Maps\nwhere: ark:/99999/forged\r\nwho: Eve\u2028\u0085\x1b[2J\x07 of Paris\n"
    about = {"erc_who": "Ann\x0band Bob", "erc_what": forged, "erc_when": "18\x0c96", "erc_where": "\n"}
    batch = ingest.submit(payload_url=ingest.content()["url"], type="file", **about)
    ingest.jobs_ended(batch)
    ark = ingest.outputs(batch)["ark"]
    said = "Maps where: ark:/99999/forged who: Eve [2J of Paris"
    system = ingest.services.folder / "storage" / "7" / ark.replace(":", "+").replace("/", "=") / "1" / "system"
    erc = (system / "mrt-erc.txt").read_bytes().decode()
    assert erc == f"erc:\nwho: Ann and Bob\nwhat: {said}\nwhen: 18 96\nwhere: {ark}\n"
    core = xml.parse(system / "mrt-dc.xml").getroot()
    assert [element.text for element in core] == ["Ann and Bob", said, "18 96", ark]
    assert f"  {said}\n" in str(ingest.mails(batch)[0].get_content()).replace("\r\n", "\n")


def test_an_identifier_of_two_lines_is_refused(ingest: Ingest) -> None:
    for field, value in (
        ("local_id", "a\nwhere: b"),
        ("local_id", "a\n"),
        ("ark", "ark:/99999/fk4a\n"),
        ("submitter", "a@b\n"),
    ):
        ingest.submit(code=2, payload_url="http://example.org/x", **{field: value})
        assert f"$.{field}: " in ingest.said


@pytest.mark.parametrize(("service", "fault", "step"), [("minting", {"fail": -1}, "mint"), ("storage", {"full": True}, "store"), ("storage", {"worker": True}, "store")])  # fmt: skip
def test_a_failure_of_minting_or_storage_fails_the_job_and_it_is_resumed_there(
    ingest: Ingest, service: str, fault: dict[str, Any], step: str
) -> None:
    ingest.services.switch(service, **fault)
    batch = ingest.submit(payload_url=ingest.content()["url"], type="file")
    ingest.jobs_ended(batch, "failed")
    assert ingest.states(batch) == failed_at(step)
    ingest.services.switch(service)
    ingest("retry", f"{ingest.name}@id:{batch}-jobs", "--failed")
    ingest.reaches(batch, "notify", "completed")
    assert executions(ingest, batch) == dict.fromkeys(JOB, 1) | {step: 4 if step == "mint" else 2}


@pytest.mark.parametrize("text", ["other", None])
def test_a_file_that_has_changed_since_it_was_downloaded_is_not_stored(ingest: Ingest, text: str | None) -> None:
    ingest.services.switch("storage", worker=True)
    file = ingest.content()
    batch = ingest.submit(payload_url=file["url"], type="file")
    ingest.jobs_ended(batch, "failed")
    path = Path(ingest.outputs(batch)["working_directory"]) / "producer" / file["name"]
    path.write_text(text) if text else path.unlink()
    ingest.services.switch("storage")
    ingest("retry", ingest.job(batch))
    eventually(lambda: len(ingest.attempts(batch, "store")) == 2 and ingest.states(batch)["store"] == "failed")
    said = f"failed: {file['name']}: has changed in the working folder since it was downloaded"
    assert ingest.why(batch, "store") == said
    assert "Traceback" not in ingest.log(ingest.task(batch, "store"))


def test_storage_has_one_version_for_a_job_whose_answer_was_lost(ingest: Ingest) -> None:
    host.change_working_storage(ingest.settings, threshold=0.001)
    batch = ingest.submit(payload_url=ingest.content()["url"], type="file")
    ingest.reaches(batch, "provisioning", "deferred")
    ingest.services.switch("storage", lose=2)  # of the worker, and of the second try
    host.change_working_storage(ingest.settings, threshold=100)
    ingest.jobs_ended(batch, "failed")
    ingest("retry", ingest.job(batch))
    eventually(
        lambda: ingest.states(batch)["store"] in ("failed", "completed") and len(ingest.attempts(batch, "store")) == 2
    )
    ingest("retry", ingest.job(batch), code=None)
    ingest.reaches(batch, "notify", "completed")
    assert int(ingest.outputs(batch)["version"]) == 1


def test_jobs_of_one_object_are_stored_one_after_the_other(ingest: Ingest) -> None:
    local = f"{ingest.name}-maps"
    first = ingest.submit(payload_url=ingest.content()["url"], type="file", local_id=local)
    ingest.jobs_ended(first)
    ingest.services.switch("storage", slow=0.5)
    lines = [ingest.manifest(ingest.content()) | {"local_id": local} for _ in range(4)]
    batch = ingest.submit(payload_url=ingest.manifest(*lines, profile="mrt-batch-manifest")["url"])
    ingest.jobs_ended(batch)
    times = ingest.arkqueue.sql(
        "select x.started_at, x.ended_at from attempt x join task t on t.id = x.task_id join archive a on a.id = t.archive_id"
        " where a.name = %s and t.name = 'store' order by x.started_at",
        ingest.name,
    )
    assert all(a["ended_at"] <= b["started_at"] for a, b in pairwise(times)), times
    assert sorted(int(ingest.outputs(batch, f"{n:04}")["version"]) for n in range(1, 5)) == [2, 3, 4, 5]


# Recording


def test_a_record_is_handed_over_and_its_outcome_is_asked_for(ingest: Ingest) -> None:
    ingest.services.switch("inventory", wait=True)
    batch = ingest.submit(payload_url=ingest.content()["url"], type="file")
    ingest.reaches(batch, "recording", "deferred")
    eventually(lambda: [attempt["kind"] for attempt in ingest.attempts(batch, "recording")][:2] == ["run", "poll"])
    assert ingest.states(batch)["notify"] == "waiting"
    ingest.services.switch("inventory")
    ingest("refresh", ingest.task(batch, "recording"), code=None)
    ingest.jobs_ended(batch)
    assert executions(ingest, batch)["recording"] == 1


def test_a_record_that_fails_fails_the_job_and_is_handed_over_again_on_retry(ingest: Ingest) -> None:
    ingest.services.switch("inventory", record=1)
    batch = ingest.submit(payload_url=ingest.content()["url"], type="file")
    ingest.jobs_ended(batch, "failed")
    assert ingest.states(batch) == failed_at("recording")
    assert "the database refused the record" in ingest.why(batch, "recording")
    ingest("retry", f"{ingest.name}@id:{batch}-jobs", "--failed")
    ingest.reaches(batch, "notify", "completed")
    assert executions(ingest, batch) == dict.fromkeys(JOB, 1)


def test_inventory_that_is_away_or_loses_its_answer_is_asked_again(ingest: Ingest) -> None:
    ingest.services.switch("inventory", lose=1)
    lost = ingest.submit(payload_url=ingest.content()["url"], type="file")
    ingest.jobs_ended(lost)
    ingest.services.switch("inventory", fail=3)
    away = ingest.submit(payload_url=ingest.content()["url"], type="file")
    ingest.jobs_ended(away)
    assert {executions(ingest, batch)["recording"] for batch in (lost, away)} == {1}


# Notify


@pytest.mark.parametrize("kind", ["XML", "JSON", "turtle"])
def test_the_callback_speaks_the_response_type(ingest: Ingest, kind: str) -> None:
    batch = ingest.submit(
        payload_url=ingest.content()["url"], type="file", response_type=kind, local_id=f"{ingest.name}-1"
    )
    ingest.jobs_ended(batch)
    ark = ingest.outputs(batch)["ark"]
    (body,) = [text for path in ingest.services.callbacks if batch in (text := path.read_text())]
    if kind == "JSON":
        state = json.loads(body)["jobState"]
    elif kind == "XML":
        state = {element.tag.removeprefix(f"{{{MRT}}}"): element.text for element in xml.fromstring(body)}
    else:
        graph = Graph().parse(data=body, format="turtle")
        assert (None, MRT.primary_id, Literal(ark)) in graph
        state = {str(predicate).removeprefix(MRT): str(value) for _, predicate, value in graph}
    assert (state["primary_id"], state["status"], state["local_id"]) == (ark, "completed", f"{ingest.name}-1")


def test_a_callback_that_fails_fails_the_job_and_it_is_resumed_there(ingest: Ingest) -> None:
    ingest.services.switch("callback", fail=-1)
    batch = ingest.submit(payload_url=ingest.content()["url"], type="file")
    ingest.jobs_ended(batch, "failed")
    assert ingest.states(batch) == failed_at("notify")
    ingest.services.switch("callback")
    ingest("retry", ingest.job(batch), "--from", "notify")
    ingest.reaches(batch, "notify", "completed")
    assert executions(ingest, batch) == dict.fromkeys(JOB, 1) | {"notify": 4}


def test_a_profile_without_a_callback_calls_nobody(ingest: Ingest) -> None:
    batch = ingest.submit(payload_url=ingest.content()["url"], type="file", profile_name="quiet_content")
    ingest.jobs_ended(batch)
    assert not [path for path in ingest.services.callbacks if batch in path.read_text()]
    assert ingest.subjects(batch) == ["completed: 1 of 1 objects"], "its profile confirms nothing either"


# Failed -> Downloading, Processing, Recording, Notify; and the end of the working folder


@pytest.mark.parametrize("step", ["downloading", "mint", "store", "recording", "notify"])
def test_an_administrator_resumes_a_failed_job_at_a_step(ingest: Ingest, step: str) -> None:
    """Also at an earlier step than that which failed; where its record has gone to inventory, that has to be meant (`--from-start`)."""
    ingest.services.switch("callback", fail=-1)
    batch = ingest.submit(payload_url=ingest.content()["url"], type="file")
    ingest.jobs_ended(batch, "failed")
    ingest.services.switch("callback")
    if step != "notify":
        refused = ingest("retry", ingest.job(batch), "--from", step, code=1)
        assert "--from-start" in refused.err
    ingest("retry", ingest.job(batch), "--from", step, "--from-start")
    ingest.reaches(batch, "notify", "completed")
    again = JOB[JOB.index(step) :]
    assert executions(ingest, batch) == {name: 1 + (name in again) for name in JOB} | {"notify": 4}
    assert (len(minted(ingest, batch)), int(ingest.outputs(batch)["version"])) == (1, 1)


def test_a_job_that_is_begun_again_stores_and_records_the_files_that_the_depositor_has_corrected(
    ingest: Ingest,
) -> None:
    ingest.services.switch("callback", fail=-1)
    file = ingest.content("wrong", "map.txt")
    manifest = ingest.manifest(file)
    batch = ingest.submit(payload_url=manifest["url"])
    ingest.jobs_ended(batch, "failed")
    right = ingest.content("right", "map.txt")
    ingest.services.content(f"{ingest.name}/{manifest['name']}", host.checkm("mrt-ingest-manifest", [right]))
    ingest.services.switch("callback")
    ingest("retry", ingest.job(batch), "--from", "pending", "--from-start")
    ingest.reaches(batch, "notify", "completed")
    ark = ingest.outputs(batch)["ark"]
    stored = ingest.services.get("storage", f"object/7/{ark}")
    assert (
        next(f["digest_value"] for f in stored["files"] if f["name"] == "producer/map.txt") == (right["digest_value"])
    )
    assert (stored["version"], int(ingest.outputs(batch)["version"])) == (2, 2)
    assert ingest.services.get("inventory", f"objects/{ark}")["version"] == 2
    assert len(minted(ingest, batch)) == 1


def test_the_working_folder_goes_when_the_job_is_completed_or_deleted(ingest: Ingest) -> None:
    ingest.services.switch("callback", fail=-1)
    batch = ingest.submit(payload_url=ingest.content()["url"], type="file")
    ingest.jobs_ended(batch, "failed")
    folder = Path(ingest.outputs(batch)["working_directory"])
    assert (folder / "producer").is_dir(), "a failed job keeps it for a retry"
    ingest("delete", ingest.job(batch))
    eventually(lambda: not folder.exists(), lambda: ingest.told(f"{batch}-jobs"))
    ingest.services.switch("callback")
    other = ingest.submit(payload_url=ingest.content()["url"], type="file")
    ingest.jobs_ended(other)
    folder = Path(ingest.outputs(other)["working_directory"])
    eventually(lambda: not folder.exists(), lambda: ingest.told(f"{other}-jobs"))
