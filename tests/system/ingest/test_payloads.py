"""Payloads that strangers write: every fault of a manifest, of a manifest of jobs and of a container is a rejection that says where it is."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
        (HEAD + "http://x/a | | | many | a\n#%eof\n", "line 4: the size many is no number"),
        (HEAD + "http://x/a | | | | ../a\n#%eof\n", "'../a' is no name for a file of an object"),
        (HEAD + "http://x/a | | | | /a\n#%eof\n", "'/a' is no name for a file of an object"),
        (HEAD + "http://x/a | | | | a\nhttp://x/b | | | | a\n#%eof\n", "two files have the name a"),
        (HEAD + "http://x/a | | | | a | b | c\n#%eof\n", "line 4: has 7 values, and #%fields names 5"),
        (HEAD + "http://x/\x1b[31m | | | | a\n#%eof\n", "line 4: url is no text of one line"),
        ("#%checkm_0.7\nhttp://x/a\n#%eof\n", "line 2: no #%fields stands before it"),
    ],
)
def test_each_fault_of_a_manifest_is_named_with_its_line(tools: Any, rejects: Rejects, text: str, why: str) -> None:
    assert why in rejects(tools.manifest.parse, text.encode(), "m.checkm")


def test_a_manifest_that_is_no_utf8_is_rejected(tools: Any, rejects: Rejects) -> None:
    assert "is not UTF-8: byte 12" in rejects(tools.manifest.parse, b"#%checkm_0.7\xff", "m")


@pytest.mark.parametrize(
    ("jobs", "why"),
    [
        ({}, "is no manifest of jobs"),
        ({"jobs": []}, "it names no job"),
        ({"jobs": {"a": 1}}, "it names no job"),
        ({"jobs": [{"payload_url": "http://x/a", "nothing": 1}]}, "job 1: has the unknown field nothing"),
        ({"jobs": [{}]}, "job 1: names no file URL"),
        (
            {"jobs": [{"payload_url": "http://x/a"}, {"payload_url": 7, "payload_type": "tar"}]},
            "job 2: payload_type is none of",
        ),
        ({"jobs": [{"payload_url": 7}]}, "job 1: names no file URL"),
        ({"jobs": [{"files": []}]}, "job 1: files is no list of mappings"),
        ({"jobs": [{"files": [{"url": "http://x/a", "name": "a|b"}]}]}, "'a|b' is no name for a file of an object"),
        ({"jobs": [{"files": [{"url": ["x"]}]}]}, "url is no text of one line"),
        ({"jobs": [{"payload_url": "http://x/a", "ark": "ark:/1/../x"}]}, "ark:/1/../x is no ARK"),
        ({"jobs": [{"payload_url": "http://x/a", "local_id": "a\nb"}]}, "local_id is no text of one line"),
    ],
)
def test_each_fault_of_a_manifest_of_jobs_is_named_with_its_job(
    tools: Any, rejects: Rejects, jobs: Any, why: str
) -> None:
    assert why in rejects(tools.batch.jobs_of, json.dumps(jobs).encode(), "jobs.json")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("../out", "is no name"),
        ("/etc/x", "is no name"),
        ("a|b", "is no name"),
        ("a\\b", "is no name"),
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
