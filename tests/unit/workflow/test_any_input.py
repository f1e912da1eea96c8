"""Random input: ``parse`` never raises, and the place of each fault is inside its file."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from arkqueue.model import PayloadKind, SourceFile, Workflow
from arkqueue.workflow import from_json, to_json
from arkqueue.workflow.format import NOT_YET, Task
from arkqueue.workflow.parsing import parse
from arkqueue.workflow.payload import judge
from tests.fuzzing import fuzzed

pytestmark = pytest.mark.full

WORDS = st.sampled_from(
    [
        *("a", "b", "COMMIT", "REPORT", "PREV", "PREV:a", "PREV:*", "*", "&a", "*a", "settled", "unstarted", "commit"),
        *("schedule", "90s", "0 5 * * *", "1#2/3 * * * *", "* * L * 1L/2", "none", "<scalar>", "<mapping>", "[key]"),
        *(
            "true",
            "~",
            "-1",
            "1e999",
            "0x",
            ".nan",
            "!x",
            "<<",
            "{",
            "}",
            "{message}",
            "é",
            "\ud800",
            "\x00",
            "9" * 5000,
        ),
    ]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            WORDS
            | st.sampled_from(
                ["task", "when", "only", "max", "delay", "optional", "name", "path", "pull", "tmpfs", "/a", "/a/"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)
FIELDS = st.dictionaries(st.sampled_from([*Task.model_fields, *sorted(NOT_YET), "nope"]), VALUES, max_size=6)
TASKS = st.lists(FIELDS | VALUES, max_size=4)
FILES = TASKS | VALUES | st.fixed_dictionaries({}, optional={"defaults": FIELDS | VALUES, "tasks": TASKS | VALUES})
KEYWORDS = st.sampled_from(
    [
        *(
            "$schema",
            "$id",
            "$ref",
            "$defs",
            "definitions",
            "$anchor",
            "$dynamicRef",
            "$dynamicAnchor",
            "$recursiveRef",
        ),
        *("type", "enum", "const", "items", "prefixItems", "additionalItems", "contains", "minContains", "uniqueItems"),
        *("properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "unevaluatedItems"),
        *("required", "dependentSchemas", "dependencies", "propertyNames", "not", "if", "then", "else", "extends"),
        *("allOf", "anyOf", "oneOf", "minimum", "exclusiveMinimum", "multipleOf", "maxLength", "pattern", "format"),
    ]
)
TERMS = (
    st.sampled_from(
        [
            *(
                "#",
                "#/$defs/a",
                "#a",
                "http://[",
                "http://a/b",
                "other.json",
                "integer",
                "string",
                "any",
                "[",
                "(?<n>",
                "\\p{L}",
            ),
            *(f"http://json-schema.org/draft-0{number}/schema#" for number in (3, 4, 6, 7)),
            *(f"https://json-schema.org/draft/{year}/schema" for year in ("2019-09", "2020-12")),
        ]
    )
    | st.booleans()
    | st.integers()
    | st.just(10**400)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.none()
)
SCHEMAS = st.dictionaries(
    KEYWORDS,
    st.recursive(
        TERMS,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS | st.sampled_from(["a", "["]), inner, max_size=3)
        ),
        max_leaves=8,
    ),
    max_size=4,
)
PAYLOADS = st.sampled_from(["1", "1e308", "null", '"abc"', "[1, 1]", '{"a": [{"a": 1}]}', "1" + "0" * 400, "[NaN]"])
YAMLISH = st.lists(
    st.sampled_from([*"-:*&!|>[]{}#'\"\\,?%@` \n\t\r\u2028", "- name: a\n", "  ", "---\n", "..."]) | WORDS
)


def judged(path: str, data: bytes) -> Workflow:
    workflow = parse([SourceFile(path, data)])
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    rows = re.split("\r\n|[\r\n]", text)
    for fault in workflow.faults:
        assert fault.path == path
        assert fault.message
        if fault.line:
            # An end that is missing is missed after the last row.
            assert 1 <= fault.line <= len(rows) + 1
            assert 1 <= fault.column <= (len(rows[fault.line - 1]) if fault.line <= len(rows) else 0) + 1
        str(fault).encode("utf-8", "surrogatepass")
    assert not (workflow.tasks and workflow.faults)
    for task in workflow.tasks:
        stored = json.dumps(to_json(task), allow_nan=False, ensure_ascii=False).encode("utf-8")
        assert b"\\u0000" not in stored
        assert from_json(json.loads(stored)) == task
    return workflow


@fuzzed
@given(st.binary(), st.sampled_from(["w.yaml", "w.json"]))
def test_any_bytes(data: bytes, path: str) -> None:
    judged(path, data)


@fuzzed
@given(YAMLISH, st.sampled_from(["w.yaml", "w.json"]))
def test_anything_like_yaml(pieces: list[str], path: str) -> None:
    judged(path, "".join(pieces).encode("utf-8", "surrogatepass"))


@fuzzed
@given(FILES)
def test_any_structure_as_json(value: Any) -> None:
    judged("w.json", json.dumps(value, indent=1).encode())


@fuzzed
@given(FILES)
def test_any_structure_as_yaml(value: Any) -> None:
    judged("w.yaml", yaml.safe_dump(value, allow_unicode=False).encode("utf-8", "surrogatepass"))


@fuzzed
@given(FIELDS)
def test_any_fields_beside_good_tasks(fields: dict[str, Any]) -> None:
    judged("w.json", json.dumps([{"name": "a"}, {"name": "b", **fields}, {"name": "c", "depends": ["b"]}]).encode())


@fuzzed
@given(SCHEMAS, PAYLOADS)
def test_any_schema_of_submissions(schema: dict[str, Any], payload: str) -> None:
    """A schema is a fault of its file, or it judges every payload."""
    files = {"s.json": json.dumps(schema).encode()}
    source = SourceFile(
        "_workflows/a.yaml", b"submission: {schema: s.json}\ntasks: [{name: a, command: x, on: submission}]"
    )
    workflow = parse([source], lambda path: SourceFile(path, files[path]))
    assert {fault.path for fault in workflow.faults} <= {"s.json"}
    if workflow.schema is not None:
        for fault in judge(payload.encode(), PayloadKind.JSON, [], schema=workflow.schema.content).faults:
            assert fault.message
