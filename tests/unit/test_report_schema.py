"""The published JSON Schema of reports agrees with the views. ``python -m
tests.unit.test_report_schema`` writes the schema.
"""

from __future__ import annotations

import json
from pathlib import Path

from jsonschema import Draft202012Validator

from arkqueue.views.reports import json_schema

PUBLISHED = Path(__file__).parents[2] / "docs" / "report.schema.json"


def written() -> str:
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def test_published_schema_is_the_one_of_the_views() -> None:
    assert PUBLISHED.read_text("utf-8") == written()


def test_schema_is_one_and_says_its_version() -> None:
    Draft202012Validator.check_schema(json_schema())
    assert json_schema()["properties"]["version"]["const"] == 1
    assert "version" in json_schema()["required"]


if __name__ == "__main__":
    PUBLISHED.write_text(written(), "utf-8")
