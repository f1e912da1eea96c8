"""The published JSON Schema agrees with the models. ``python -m
tests.unit.workflow.test_json_schema`` writes the schema.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from arkqueue.workflow.containers import image_fault
from arkqueue.workflow.format import NOT_YET, Task, json_schema

PUBLISHED = Path(__file__).parents[3] / "docs" / "workflow.schema.json"


def written() -> str:
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def test_published_schema_is_the_one_of_the_models() -> None:
    assert PUBLISHED.read_text("utf-8") == written()


def test_schema_knows_every_field_and_none_that_is_not_supported_yet() -> None:
    task = json_schema()["$defs"]["Task"]
    assert set(task["properties"]) == set(Task.model_fields)
    assert not set(task["properties"]) & NOT_YET
    assert task["additionalProperties"] is False
    assert task["required"] == ["name"]


def test_schema_offers_no_null() -> None:
    assert "null" not in written()


def test_patterns_of_the_schema_agree_with_the_parser() -> None:
    defs = json_schema()["$defs"]
    reference = re.compile(defs["DependsEntry"]["properties"]["task"]["pattern"])
    assert all(map(reference.search, ["a", "PREV", "PREV:a", "PREV:*", "COMMIT", "PREV:COMMIT", "PREVIOUS"]))
    assert not any(map(reference.search, ["*", "PREV:", "PREV:PREV", "a b", "-a", "a" * 101, ""]))
    victim = re.compile(defs["CancelsEntry"]["properties"]["task"]["pattern"])
    assert all(map(victim.search, ["a", "PREV", "PREV:a", "PREVIOUS", "PREV:COMMITS"]))
    assert not any(map(victim.search, ["COMMIT", "PREV:COMMIT", "REPORT", "PREV:*"]))
    image = re.compile(defs["ImageEntry"]["properties"]["name"]["pattern"])
    images = ["debian", "debian:12", "a.b/c", "localhost:5000/c_d/e--f:G", f"x@sha256:{'0' * 64}"]
    assert all(map(image.search, images))
    assert [image_fault(it) for it in images] == [None] * len(images)
    for bad in ["Debian", "a b", "a:", "/a", "a/", "a//b", "https://a/b", "x@sha256:12", "a\n", ""]:
        assert not image.fullmatch(bad)
        assert image_fault(bad)
    size = re.compile(defs["ResourcesEntry"]["properties"]["memory"]["pattern"])
    assert all(map(size.search, ["64MiB", "1.5GiB", "1KiB"]))
    assert not any(map(size.search, ["64M", "64", "64 MiB", "1gib", "", "-1KiB"]))
    network = re.compile(defs["Task"]["properties"]["network"]["pattern"])
    assert all(map(network.search, ["bridge", "none", "a_b.c-d", "hosts"]))
    assert not any(map(network.search, ["host", "container:x", ""]))
    user = re.compile(defs["Task"]["properties"]["user"]["pattern"])
    assert all(map(user.search, ["nobody", "1000", "1000:1000", "www-data:0"]))
    assert not any(map(user.search, ["", "007", "a:b:c", ":a", "-a"]))
    timeout: dict[str, Any] = defs["Task"]["properties"]["timeout"]
    duration = re.compile(timeout["pattern"])
    assert all(map(duration.search, ["90s", "1h30m", "0.5s", "1d"]))
    assert not any(map(duration.search, ["", "90", "5 m", "-1s", "30m1h"]))


if __name__ == "__main__":
    PUBLISHED.write_text(written(), "utf-8")
