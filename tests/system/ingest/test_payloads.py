"""Payloads that strangers write: every fault of a manifest, of a manifest of jobs and of a
container is a rejection that says where it is.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ingest import host
from jsonschema import Draft202012Validator

HEAD = "#%checkm_0.7\n#%profile | http://x/mrt-ingest-manifest\n#%fields | nfo:fileUrl | nfo:hashAlgorithm | nfo:hashValue | nfo:fileSize | nfo:fileName\n"


Rejects = Callable[..., str]


@pytest.fixture
def rejects(tools: Any) -> Rejects:
    def rejected(do: Callable[..., Any], *arguments: Any) -> str:
        with pytest.raises(tools.job.Rejected) as raised:
            do(*arguments)
        return str(raised.value)

    return rejected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "cut off"),
        ("hello\n", "line 1: the manifest does not begin with #%checkm"),
        ("#%checkm_0.7\n#%profile | http://x/other\n#%eof\n", "line 2: the profile http://x/other is not known"),
        ("#%checkm_0.7\n#%eof\n", "names no #%profile"),
        (HEAD + "#%eof\n", "names no file"),
        (HEAD + "http://x/a | | | | a\n", "cut off: its last line is not #%eof"),
        (HEAD + " | | | | a\n#%eof\n", "line 4: names no file URL"),
        (HEAD + "http://x/a | md5 | | | a\n#%eof\n", "line 4: a hash needs its algorithm and its value"),
        (HEAD + "http://x/a | md5 | abc | | a\n#%eof\n", "line 4: abc is no md5"),
        (HEAD + "http://x/a | crc | 00 | | a\n#%eof\n", "hash algorithm 'crc': is not known"),
        (HEAD + "http://x/a | | | many | a\n#%eof\n", "line 4: the size many is not a number"),
        (HEAD + f"http://x/a | | | {10**18} | a\n#%eof\n", f"line 4: the size {10**18} is not a number of bytes"),
        (HEAD + "http://x/a | | | | ../a\n#%eof\n", "'../a' is not a valid name for a file of an object"),
        (HEAD + "http://x/a | | | | /a\n#%eof\n", "'/a' is not a valid name for a file of an object"),
        (HEAD + "http://x/a | | | | a\nhttp://x/b | | | | a\n#%eof\n", "two files have the name a"),
        (HEAD + "http://x/a | | | | a | b | c\n#%eof\n", "line 4: has 7 values, and #%fields names 5"),
        (HEAD + "http://x/\x1b[31m | | | | a\n#%eof\n", "line 4: url is not a text of one line"),
        ("#%checkm_0.7\nhttp://x/a\n#%eof\n", "line 2: no #%fields stands before it"),
        (
            HEAD + "http://x/a | | | | a\nhttp://x/b | | | | a-b\nhttp://x/c | | | | a/c\n#%eof\n",
            "a is the name of a file and of a folder",
        ),
        (HEAD + f"http://x/a | | | | {'ä' * 128}\n#%eof\n", "is not a valid name for a file of an object"),
    ],
)
def test_each_fault_of_a_manifest_is_named_with_its_line(tools: Any, rejects: Rejects, text: str, why: str) -> None:
    assert why in rejects(tools.manifest.parse, text.encode(), "m.checkm")


def test_a_manifest_that_is_no_utf8_is_rejected(tools: Any, rejects: Rejects) -> None:
    assert "is not UTF-8: byte 12" in rejects(tools.manifest.parse, b"#%checkm_0.7\xff", "m")


@pytest.mark.parametrize(
    ("jobs", "why"),
    [
        ({}, "is not a manifest of jobs"),
        ({"jobs": []}, "it names no job"),
        ({"jobs": {"a": 1}}, "it names no job"),
        ({"jobs": [{"payload_url": "http://x/a", "nothing": 1}]}, "job 1: has the unknown field nothing"),
        ({"jobs": [{}]}, "job 1: names no file URL"),
        (
            {"jobs": [{"payload_url": "http://x/a"}, {"payload_url": 7, "payload_type": "tar"}]},
            "job 2: payload_type is none of",
        ),
        ({"jobs": [{"payload_url": 7}]}, "job 1: url is not a text of one line"),
        ({"jobs": [{"files": []}]}, "job 1: files is not a list of mappings"),
        (
            {"jobs": [{"files": [{"url": "http://x/a", "name": "a|b"}]}]},
            "'a|b' is not a valid name for a file of an object",
        ),
        ({"jobs": [{"files": [{"url": ["x"]}]}]}, "url is not a text of one line"),
        ({"jobs": [{"payload_url": "http://x/a", "ark": "ark:/1/../x"}]}, "ark:/1/../x is not an ARK"),
        ({"jobs": [{"payload_url": "http://x/a", "local_id": "a\nb"}]}, "local_id is not a text of one line"),
        (
            {"jobs": [{"payload_url": "http://x/a", "digest_type": "md5", "digest_value": 1}]},
            "digest_value is not a text",
        ),
        ({"jobs": [{"payload_url": "http://x/a", "digest_type": 5, "digest_value": "1"}]}, "digest_type is not a text"),
        ({"jobs": [{"files": [{"url": "http://x/a", "name": 5}]}]}, "name is not a text"),
        (
            {"jobs": [{"files": [{"url": "http://x/a", "name": "a "}]}]},
            "'a ' is not a valid name for a file of an object",
        ),
        ({"jobs": [{"files": [{"url": "http://x/a", "size": -5}]}]}, "the size -5 is not a number of bytes"),
        ({"jobs": [{"files": [{"url": "http://x/a", "size": True}]}]}, "size is not a text"),
        ({"jobs": [{"files": [{"url": "http://x/a", "digest": "00"}]}]}, "job 1: a file has the unknown field digest"),
        (
            {"jobs": [{"files": [{"url": "http://x/a", "digest_type": "shake_128", "digest_value": ""}]}]},
            "hash algorithm 'shake_128': is not known",
        ),
    ],
)
def test_each_fault_of_a_manifest_of_jobs_is_named_with_its_job(
    tools: Any, rejects: Rejects, jobs: Any, why: str
) -> None:
    assert why in rejects(tools.batch.jobs_of, json.dumps(jobs).encode(), "jobs.json")


def test_a_manifest_of_jobs_that_is_nested_too_deeply_is_rejected(tools: Any, rejects: Rejects) -> None:
    assert "is not a manifest of jobs" in rejects(tools.batch.jobs_of, b'{"jobs": ' + b"[" * 200_000, "jobs.json")


@pytest.mark.full
def test_a_long_manifest_may_begin_with_a_byte_order_mark(
    tools: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "".join(f"http://x/{number} | | | | {number}\n" for number in range(60_000))
    (tmp_path / "m.checkm").write_text(HEAD + lines + "#%eof\n", "utf-8-sig")
    monkeypatch.setenv("ARKQUEUE_ATTACHMENTS", str(tmp_path))
    kind, _ = tools.batch._examine(
        {"payload_filename": "m.checkm"}
    )  # private: what comes before the jobs are handed in
    assert kind == "ObjectManifest"


@pytest.mark.parametrize(
    "submitter",
    ["Ann", "a@b\n", "a b@c", "a@b, c", "a,b@c", "<@x", '"@x', "(@x", "a@[x", "g:;@x", "a\x00@b", f"{'a' * 253}@b", 7],
)
def test_a_depositor_has_one_address_that_mails_can_be_sent_to(submitter: Any) -> None:
    schema = json.loads((host.HERE / "collection" / "schemas" / "submission.json").read_text())
    document = {"profile_name": "demo_content", "payload_url": "http://x/a", "items": []}
    check = Draft202012Validator(schema).iter_errors
    assert not list(check(document | {"submitter": "ann+ä@example.org"}))
    (fault,) = check(document | {"submitter": submitter})
    assert fault.json_path == "$.submitter"


JOB = {
    "job_id": "b.0001", "batch_id": "b", "profile_name": "demo_content", "submission_mode": "add", "priority": 50,
    "payload_type": "file", "payload_url": "http://x/a",
}  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"batch_id": "other"}, "is not a job of the batch b. Hand a payload in, and no items"),
        ({"job_id": "other.0001"}, "other.0001: is not a job of the batch b"),
        ({"payload_type": "tar"}, "payload_type is none of file, container, manifest, files"),
        ({"submission_mode": None}, "submission_mode is none of add, update"),
        ({"response_type": "CSV"}, "response_type is none of XML, JSON, turtle"),
        ({"priority": True}, "priority is not a number from 0 to 1000"),
        ({"priority": -1}, "priority is not a number from 0 to 1000"),
        ({"payload_url": None}, "url is not a text of one line"),
        ({"ark": "ark:/1/../x"}, "ark:/1/../x is not an ARK"),
        ({"payload_type": "files"}, "files is not a list of mappings"),
        (
            {"payload_type": "files", "files": [{"url": "http://x/a", "name": "../../a"}]},
            "'../../a' is not a valid name for a file of an object",
        ),
        (
            {"payload_type": "files", "files": [{"url": "http://x/a", "name": "/etc/a"}]},
            "'/etc/a' is not a valid name for a file of an object",
        ),
    ],
)
def test_a_job_that_no_batch_would_make_is_rejected(
    tools: Any, rejects: Rejects, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], why: str
) -> None:
    """Whoever may hand batches in could hand in jobs of his own."""
    monkeypatch.setenv("ARKQUEUE_SUBMISSION_ID", "b-jobs")
    tools.pending.check(dict(JOB))
    assert why in rejects(tools.pending.check, JOB | fields)


def test_a_profile_is_one_of_the_collection(tools: Any, rejects: Rejects, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "profiles").mkdir()
    (tmp_path / "evil.yaml").write_text("owner: ark:/99999/other\n")
    assert "'../evil': the collection has no such profile" in rejects(tools.job.profile, "../evil")


@pytest.mark.parametrize("said", ["-1000000000000", "abc", "²", "1" * 30, "", None])
def test_a_size_that_is_none_is_not_known(tools: Any, said: str | None) -> None:
    headers = {} if said is None else {"Content-Length": said}
    assert tools.estimating.announced_size(SimpleNamespace(headers=headers)) is None


def test_what_a_server_says_ends_as_one_line_without_control_characters(
    tools: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ARKQUEUE_OUTPUT", str(tmp_path / "output"))

    def program() -> None:
        raise tools.job.Failed("http://x: 404 Not\x1b[31m \x07Found\nark=ark:/99999/forged")

    with pytest.raises(SystemExit):
        tools.job.end(program)
    assert capsys.readouterr().err == "failed: http://x: 404 Not [31m Found ark=ark:/99999/forged\n"
    assert (tmp_path / "output").read_text() == "message=failed: http://x: 404 Not [31m Found ark=ark:/99999/forged\n"


@pytest.mark.parametrize(
    ("text", "local_id"),
    [
        ("erc:\nwhere: loc\x00 7\n", "loc 7"),
        ("where: ark:/99999/zz\nwhere:\nwhere: loc\n", "loc"),
        ("x" * (1 << 17) + "\nwhere: too-far\n", None),
    ],
)
def test_the_local_id_of_a_strangers_erc_is_of_one_line_and_near_its_beginning(
    tools: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, local_id: str | None
) -> None:
    monkeypatch.setenv("ARKQUEUE_SCRATCH", str(tmp_path))
    (tmp_path / "producer").mkdir()
    (tmp_path / "producer" / "mrt-erc.txt").write_text(text)
    assert tools.mint.local_id_of_erc(tools.job.Job(JOB)) == local_id


def test_a_local_id_of_an_erc_that_is_too_long_is_rejected(
    tools: Any, rejects: Rejects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARKQUEUE_SCRATCH", str(tmp_path))
    (tmp_path / "producer").mkdir()
    (tmp_path / "producer" / "mrt-erc.txt").write_text(f"where: {'x' * 501}\n")
    assert "mrt-erc.txt: its local id has more than 500 characters" in rejects(
        tools.mint.local_id_of_erc, tools.job.Job(JOB)
    )


Download = Callable[..., list[str]]


@pytest.fixture
def download(tools: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Download:
    """Download the files of a job, with what the manifest says of each; the names of those that the object has then."""
    sent, job = tmp_path / "sent", tmp_path / "job"
    for folder in (sent, job):
        folder.mkdir()
    (tmp_path / "settings.json").write_text(
        json.dumps({"working_storage": {"reservations": str(tmp_path / "reservations")}})
    )
    for name, value in (
        ("INGEST_SETTINGS", tmp_path / "settings.json"),
        ("ARKQUEUE_ATTACHMENTS", sent),
        ("ARKQUEUE_SCRATCH", job),
        ("ARKQUEUE_ARCHIVE", "demo"),
        ("ARKQUEUE_OUTPUT", tmp_path / "output"),
        ("ARKQUEUE_ITEM", json.dumps({"job_id": "b.0001", "priority": 50})),
    ):
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(tools.downloading, "priority", lambda *_: 50)

    def run(files: dict[str, bytes], **more: Any) -> list[str]:
        entries = []
        for name, data in files.items():
            (sent / name).write_bytes(data)
            entries.append({"url": f"attachment:{name}", "name": name, **more})
        (job / "files.json").write_text(json.dumps(entries))
        (job / "estimate.json").write_text(json.dumps({"space_needed": 0, "is_known": False}))
        tools.downloading.main()
        return [file["name"] for file in json.loads((job / "content.json").read_text())]

    return run


def test_no_file_is_taken_for_the_part_of_another(download: Download, tmp_path: Path) -> None:
    files = {"film.mp4": b"f" * (8 << 20), "film.mp4.part": b"the other", "parts": b"p"}
    assert download(files) == sorted(files)
    assert {name: (tmp_path / "job" / "producer" / name).read_bytes() for name in files} == files


def test_a_job_that_is_made_again_has_the_files_of_its_manifest_and_no_others(
    download: Download, tmp_path: Path
) -> None:
    assert download({"a": b"old", "b": b"old"}) == ["a", "b"]
    assert download({"a": b"new!"}, size=4) == ["a"]
    assert (tmp_path / "job" / "producer" / "a").read_bytes() == b"new!"
    newest = hashlib.md5(b"next", usedforsecurity=False).hexdigest()
    assert download({"a": b"next"}, digest_type="md5", digest_value=newest) == ["a"]
    assert (tmp_path / "job" / "producer" / "a").read_bytes() == b"next"


@pytest.mark.parametrize("kind", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_container_whose_data_is_broken_is_rejected(tools: Any, rejects: Rejects, tmp_path: Path, kind: int) -> None:
    container = tmp_path / "c.zip"
    with zipfile.ZipFile(container, "w", kind) as zipped:
        zipped.writestr("a", bytes(range(256)) * 100)
    data = bytearray(container.read_bytes())
    data[60:160] = b"\xff" * 100
    container.write_bytes(data)
    assert "c.zip: is not a zip file that can be read" in rejects(
        tools.downloading.unpack, container, tmp_path / "producer", 1 << 20
    )


def test_a_container_with_two_files_of_one_name_is_rejected(tools: Any, rejects: Rejects, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as zipped:
        zipped.writestr("a", "1")
        with pytest.warns(UserWarning, match="Duplicate name"):
            zipped.writestr("a", "2")
    assert "two files have the name a" in rejects(
        tools.downloading.unpack, tmp_path / "c.zip", tmp_path / "producer", 100
    )


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("../out", "is not a valid name"),
        ("/etc/x", "is not a valid name"),
        ("a|b", "is not a valid name"),
        ("a\\b", "is not a valid name"),
        ("good.txt/b", "good.txt is the name of a file and of a folder"),
        ("a" * 256, "is not a valid name"),
        ("big", "more than 100 bytes together"),
    ],
)
def test_a_container_is_unpacked_inside_its_folder_and_up_to_a_size(
    tools: Any, rejects: Rejects, tmp_path: Path, name: str, why: str
) -> None:
    with zipfile.ZipFile(tmp_path / "c.zip", "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("good.txt", "good")
        zipped.writestr(name, "x" * (200 if name == "big" else 1))
    assert why in rejects(tools.downloading.unpack, tmp_path / "c.zip", tmp_path / "producer", 100)
    assert not (tmp_path / "producer").exists()
    assert not (tmp_path / "out").exists()
