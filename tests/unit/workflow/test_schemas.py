"""JSON Schemas of payloads: their reading with the workflow files that name them, and their
application. A schema never loads anything outside its file.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from referencing import Registry

from arkqueue.model import PayloadKind, SourceFile, Workflow
from arkqueue.workflow import schemas
from arkqueue.workflow.document import document
from arkqueue.workflow.nodes import MAX_DEPTH
from arkqueue.workflow.parsing import parse
from arkqueue.workflow.payload import judge
from arkqueue.workflow.schemas import MOST_MISFITS
from arkqueue.workflow.source import MAX_BYTES

T = TypeVar("T")
NAMED = "submission: {schema: schemas/batch.json}\ntasks:\n- {name: check, command: x, on: submission}\n"
BATCH: dict[str, Any] = {
    "type": "object",
    "required": ["items", "title"],
    "properties": {"items": {"items": {"$ref": "#/$defs/volume"}}, "title": {"maxLength": 3}},
    "$defs": {"volume": {"type": "object", "required": ["ark"], "properties": {"size": {"type": "integer"}}}},
}


def parsed(schema: str, *files: str, path: str = "schemas/batch.json") -> Workflow:
    sources = [SourceFile(f"_workflows/{n}.yaml", text.encode()) for n, text in enumerate(files or (NAMED,))]
    held = {path: schema.encode()}
    return parse(
        sources, lambda name: SourceFile(name, held[name]) if name in held else SourceFile(name, fault="there is none")
    )


def faults(schema: str, *files: str, **options: str) -> list[str]:
    return [str(fault) for fault in parsed(schema, *files, **options).faults]


def misfits(payload: Any, schema: Any = BATCH, kind: PayloadKind = PayloadKind.JSON) -> list[str]:
    data = payload if isinstance(payload, str) else json.dumps(payload)
    return [fault.message for fault in judge(data.encode(), kind, [], schema=schema).faults]


def test_a_schema_is_read_with_the_workflow_files() -> None:
    workflow = parsed(json.dumps(BATCH))
    assert workflow.faults == ()
    assert workflow.schema is not None
    assert (workflow.schema.path, workflow.schema.content) == ("schemas/batch.json", BATCH)
    assert workflow.list_files == ("schemas/batch.json",), "another revision may have another schema"
    assert parsed("type: object", NAMED.replace("json", "yaml"), path="schemas/batch.yaml").schema is not None
    assert parse([SourceFile("a.yaml", NAMED.encode())]).faults == (), "nobody can read it here"


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("{", "schemas/batch.json:1:2: the schema is not JSON"),
        ("", "schemas/batch.json:1:1: the schema is empty"),
        ("[]", "schemas/batch.json:1:1: the file holds no JSON Schema; write a mapping"),
        ('{"type": "strin"}', "schemas/batch.json:1:10: is not a JSON Schema: $.type: 'strin' is not valid under any of"),
        ('{"properties": {"a": {"$ref": "http://127.0.0.1:1/x.json"}}}', "schemas/batch.json:1:31: $ref leads out of the file, to 'http://127.0.0.1:1/x.json'"),
        ('{"$ref": "other.json#/a"}', "$ref leads out of the file, to 'other.json#/a'"),
        ('{"$ref": "file:///etc/passwd"}', "$ref leads out of the file, to 'file:///etc/passwd'"),
        ('{"$dynamicRef": "other"}', "$dynamicRef leads out of the file"),
        ('{"$schema": "https://example.org/own"}', "'https://example.org/own' is not a known dialect"),
        ('{"not": ' * 40_000 + "{}" + "}" * 40_000, "the schema is nested too deeply"),
        (" " * (2**20 + 1), "the schema is larger than 1 MiB"),
        ('{"pattern": "("}', "is not a JSON Schema"),
    ],
)  # fmt: skip
def test_what_is_no_schema_of_its_own_is_a_fault_of_the_revision(schema: str, said: str) -> None:
    (fault,) = faults(schema)
    assert said in fault
    assert parsed(schema).tasks == ()


@pytest.mark.parametrize(
    ("schema", "places"),
    [
        ({"$ref": "#/a"}, ["2:10: $ref refers to '#/a', which is no schema of the file; correct its name, or add it"]),
        ({"items": [{"$ref": "#/b"}, {"$ref": "#c"}], "$schema": "http://json-schema.org/draft-07/schema#"}, ["4:12: $ref refers to '#/b'", "7:12: $ref refers to '#c'"]),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}}}, ["4:12: $ref refers to '#/$defs/b'"]),
        ({"own": {"$ref": "#no"}, "items": {"$ref": "#/own"}}, ["3:11: $ref refers to '#no'"]),
        ({"own": {"$ref": "#no"}, "items": True}, []),
        ({"allOf": [{}], "items": {"$ref": "#/allOf/x"}}, ["6:11: $ref refers to '#/allOf/x'"]),
        ({"title": "abc", "items": {"$ref": "#/title/1"}}, ["4:11: $ref refers to '#/title/1'"]),
        ({"minLength": 3, "items": {"$ref": "#/minLength"}}, ["4:11: $ref refers to '#/minLength'"]),
        ({"$dynamicRef": "#n", "$defs": {"f": {"$dynamicAnchor": "n"}}}, []),
        ({"$dynamicRef": "#n", "$defs": {"f": {"$anchor": "m"}}}, ["2:17: $dynamicRef refers to '#n'"]),
        ({"enum": [{"$ref": "#/no"}], "properties": {"$ref": {"$ref": "#"}}}, []),
    ],
)  # fmt: skip
def test_a_reference_to_nothing_is_a_fault_of_the_revision(schema: dict[str, Any], places: list[str]) -> None:
    found = faults(json.dumps(schema, indent=1))
    assert len(found) == len(places)
    for fault, place in zip(found, places, strict=True):
        assert fault.startswith(f"schemas/batch.json:{place}")
    assert (parsed(json.dumps(schema)).schema is None) == bool(places)


A, B = {"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}


@pytest.mark.parametrize(
    ("schema", "places"),
    [
        ({"$ref": "#"}, ["2:10"]),
        ({"items": A, "$defs": {"a": B, "b": A}}, ["7:12"]),
        ({"allOf": [{"type": "array"}, {"$ref": "#"}]}, ["7:12"]),
        ({"$defs": {"a": {"allOf": [B]}, "b": {"$anchor": "x", "allOf": [{"$ref": "#x"}]}}}, ["14:14"]),
        ({"items": {"$ref": "#"}}, []),
        ({"anyOf": [{"type": "string"}, {"items": {"$ref": "#"}}]}, []),
        ({"allOf": [A, A, B], "$defs": {"a": B, "b": {"items": A}}}, []),
        ({"not": {"$ref": "#"}}, []),  # is not judged
    ],
)
def test_references_in_a_circle_are_a_fault_of_the_revision(schema: dict[str, Any], places: list[str]) -> None:
    found = faults(json.dumps(schema, indent=1))
    assert [fault.removeprefix("schemas/batch.json:").partition(": ")[0] for fault in found] == places, found
    assert all("leads back to it without a step into the payload" in fault for fault in found)


def test_a_long_circle_of_references_is_found_at_once() -> None:
    refs = {f"d{n}": {"$ref": f"#/$defs/d{(n + 1) % 5000}"} for n in range(5000)}
    (fault,) = faults(json.dumps({"$defs": refs}))
    assert "remove one of these references" in fault


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (["submission: x\ntasks: []\n"], "1:13: submission: must be a mapping, as {schema: schemas/batch.json}"),
        (["submission: {}\ntasks: []\n"], "1:13: submission: 'schema' is missing"),
        (["submission: {schema: a/../b.json}\ntasks: []\n"], "1:22: submission.schema: must be the path of a file of the archive"),
        (["submission: {schema: b.txt}\ntasks: []\n"], "1:22: submission.schema: must be a file whose name ends with .json, .yaml, .yml"),
        (["submission: {schema: none.json}\ntasks: []\n"], "1:22: submission.schema: 'none.json': there is none"),
        (["submission: {scheme: b.json}\ntasks: []\n"], "1:14: submission: unknown field 'scheme' (did you mean 'schema'?)"),
        (["submissions: {schema: b.json}\ntasks: []\n"], "a file has 'defaults', 'submission' and 'tasks' (did you mean 'submission'?)"),
        ([NAMED, "submission: {schema: schemas/batch.json}\ntasks: []\n"], "_workflows/1.yaml:1:22: submission.schema: 'schemas/batch.json': there is already a schema for submissions, named at _workflows/0.yaml:1:22"),
    ],
)  # fmt: skip
def test_what_names_no_schema_is_a_fault_where_it_stands(files: list[str], said: str) -> None:
    assert [fault for fault in faults("{}", *files) if said in fault], faults("{}", *files)


def test_all_that_does_not_fit_is_told_with_its_path() -> None:
    assert misfits({"items": [], "title": "May"}) == []
    assert misfits({"items": [{"ark": "a", "size": "3"}, {}, 4], "title": "June"}) == [
        "$.items[0].size: '3' is not of type 'integer'",
        "$.items[1]: 'ark' is a required property",
        "$.items[2]: 4 is not of type 'object'",
        "$.title: 'June' is too long",
    ]


KINDS: dict[str, Any] = {
    "items": {
        "oneOf": [
            {"title": "a file", "type": "object", "required": ["url"], "properties": {"kind": {"const": "file"}, "size": {"type": "integer"}}},
            {"title": "a list", "type": "object", "required": ["manifest"], "properties": {"kind": {"enum": ["list", "lists"]}}},
            {"type": "string", "pattern": "^https:"},
        ]
    }
}  # fmt: skip


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"kind": "file", "size": "big"}, ["$[0].size: 'big' is not of type 'integer'", "$[0]: 'url' is a required property"]),
        ({"kind": "lists"}, ["$[0]: 'manifest' is a required property"]),
        ("ftp:x", ["$[0]: 'ftp:x' does not match '^https:'"]),
        ({}, ["$[0]: fits none of 3 alternatives. 1 (a file): 'url' is a required property; 2 (a list): 'manifest' is a required property; 3: {} is not of type 'string'"]),
        ({"kind": "x", "url": "u", "manifest": "m"}, ["$[0]: fits none of 3 alternatives. 1 (a file): $[0].kind: 'file' was expected; 2 (a list): $[0].kind: 'x' is not one of ['list', 'lists']; 3: {'kind': 'x', 'url': 'u', 'manifest': 'm'} is not of type 'string'"]),
        ({"url": "u", "manifest": "m"}, ["$[0]: fits several of 3 alternatives, and may fit one of them only"]),
    ],
)  # fmt: skip
def test_what_fits_no_alternative_is_told_what_the_one_lacks_that_was_meant(item: Any, said: list[str]) -> None:
    assert sorted(misfits([item], KINDS)) == sorted(said)


def test_alternatives_inside_an_alternative_are_told_with_their_places_too() -> None:
    inner = {"anyOf": [{"required": ["ark"]}, {"required": ["local_id"]}]}
    schema = {"anyOf": [{"type": "array", "items": inner}, {"type": "string"}]}
    assert misfits([{"ark": 1}, {}], schema) == [
        "$[1]: fits none of 2 alternatives. 1: 'ark' is a required property; 2: 'local_id' is a required property"
    ]
    many = {"anyOf": [{"required": [name]} for name in "abcde"]}
    assert misfits({}, many)[0].endswith("3: 'c' is a required property; and 2 more")


def test_a_long_value_does_not_hide_what_is_wrong_with_it() -> None:
    (said,) = misfits({"a": ["x" * 1000]}, {"properties": {"a": {"type": "object"}}})
    assert said.startswith("$.a: ['xxx")
    assert said.endswith("…  is not of type 'object'".replace("  ", " "))


UNIQUE = {"uniqueItems": True}


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([1, True, "1", None, 0, False, [], {}, [1], [True], {"a": 1}, {"a": True}, {"b": 1}], ""),
        ([1, 2, 1.0], "[0] and [2] are equal"),
        ([{"a": [1, {"b": 2}], "c": 3}, {}, {"c": 3.0, "a": [1, {"b": 2}]}], "[0] and [2] are equal"),
        ([[1, 2], [2, 1], [1, 2]], "[0] and [2] are equal"),
        ([False, 0, False], "[0] and [2] are equal"),
    ],
)
@pytest.mark.parametrize("dialect", ["http://json-schema.org/draft-07/schema#", None])
def test_no_item_may_be_there_twice(items: list[Any], said: str, dialect: str | None) -> None:
    """The dialect counts for what refers to the whole schema, too."""
    schema: dict[str, Any] = {**UNIQUE, "properties": {"deeper": {"$ref": "#"}}}
    if dialect:
        schema["$schema"] = dialect
    expected = [f"{said}, and the list may have no item twice"] if said else []
    assert misfits(items, schema) == [f"$: {one}" for one in expected]
    assert misfits({"deeper": items}, schema) == [f"$.deeper: {one}" for one in expected]


def test_items_are_compared_in_linear_time() -> None:
    """They are hashed, each once."""
    compared = 0

    class Key(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

    items = [{Key("id"): Key(number)} for number in range(1000)]
    assert list(schemas.misfits(items, UNIQUE)) == []
    assert compared < 10 * len(items)


@pytest.mark.parametrize(
    ("value", "step", "fits"),
    [
        (0.07, 0.01, True), (1.1, 0.1, True), (4.35, 0.01, True), (19.99, 0.01, True), (0.075, 0.01, False),
        (1e308, 1e-5, True), (7, 0.5, True), (10**400, 0.5, True), (7.0, 7, True), (7.5, 7, False), (7, 3, False),
        (True, 3, True), ('"x"', 3, True),
    ],
)  # fmt: skip
def test_a_multiple_is_one_in_decimals(value: Any, step: float, fits: bool) -> None:
    said = [] if fits else [f"$: {value} is not a multiple of {step}"]
    assert misfits(value, {"multipleOf": step}) == said
    assert misfits("1e999", {"multipleOf": 1}) == ["$: inf is not a multiple of 1"]


def test_of_rows_and_lines_the_list_is_judged() -> None:
    rows = {"items": {"properties": {"size": {"pattern": "^[0-9]+$"}}}}
    assert misfits("id,size\na,3\nb,x\n", rows, PayloadKind.CSV) == ["$[1].size: 'x' does not match '^[0-9]+$'"]
    assert misfits("a\nbb\n", {"items": {"maxLength": 1}}, PayloadKind.LINES) == ["$[1]: 'bb' is too long"]
    assert misfits("items: [1.5]\ntitle: x\n", {"type": "object"}, PayloadKind.YAML) == []


@pytest.mark.parametrize(
    ("kind", "payload", "places"),
    [
        (PayloadKind.JSON, '{"items": [{"ark": "a"},\n {"ark": 1,\n  "x": [1, "y"]}]}', [(2, 10), (3, 9), (3, 12)]),
        (PayloadKind.YAML, "items:\n- ark: a\n- ark: 1\n  x: [1, y]\n", [(3, 8), (4, 7), (4, 10)]),
        (PayloadKind.CSV, "ark,x\na,1\n\n1,y\n", [(2, 1), (4, 1), (4, 1)]),
        (PayloadKind.LINES, "a\n\n1\ny\n", [(3, 1), (4, 1)]),
    ],
)
def test_misfits_are_told_where_they_stand(kind: PayloadKind, payload: str, places: list[tuple[int, int]]) -> None:
    wrong = {"not": {"enum": ["1", "y", 1]}}
    rows = {
        "anyOf": [
            {"properties": {"ark": wrong, "x": wrong | {"items": wrong}}, "type": "object"},
            {"type": "string"} | wrong,
        ]
    }
    schema = {"properties": {"items": {"items": rows}}, "items": rows}
    found = judge(payload.encode(), kind, [], schema=schema).faults
    assert [(fault.line, fault.column) for fault in found] == places, [str(fault) for fault in found]
    long = payload.encode() + b"\n" * (MAX_BYTES + 1)
    assert {fault.line for fault in judge(long, kind, [], schema=schema).faults} == {0}, "their paths say where"


def test_misfits_are_short_and_not_without_end() -> None:
    told = misfits(["x" * 1000] * (MOST_MISFITS + 5), {"items": {"type": "integer"}})
    assert len(told) == MOST_MISFITS + 1
    assert told[-1] == f"there are more than {MOST_MISFITS} faults; correct the ones above first"
    assert max(map(len, told)) < 400


def test_a_reference_is_never_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a schema that was stored has one, which no workflow file can have."""
    monkeypatch.setattr("urllib.request.urlopen", lambda *_: pytest.fail("it was fetched"))
    for reference in ("http://127.0.0.1:1/x.json", "file:///etc/passwd"):
        assert misfits([1], {"items": {"$ref": reference}}) == [
            f"the schema refers to '{reference}', which is not in it"
        ]
    assert misfits([1], {"items": {"$ref": "#/nowhere"}}) == ["the schema refers to '/nowhere', which is not in it"]


@pytest.mark.parametrize(("word", "name"), [("$anchor", "#one"), ("$id", "http://example.org/one")])
def test_the_whole_schema_is_not_searched_for_each_reference(
    monkeypatch: pytest.MonkeyPatch, word: str, name: str
) -> None:
    searched: list[Any] = []
    crawl = Registry.crawl
    monkeypatch.setattr(Registry, "crawl", lambda registry: searched.append(registry) or crawl(registry))
    schema: dict[str, Any] = {
        "items": {"$ref": name},
        "$defs": {"a": {word: name.removeprefix("#"), "type": "integer"}},
    }
    assert misfits([1] * 200, schema) == []
    parsed(json.dumps(schema | {"anyOf": [{"items": {"$ref": "#/$defs/a"}}] * 200}))
    assert len(searched) < 10


DRAFT_3 = '"$schema": "http://json-schema.org/draft-03/schema#"'


@pytest.mark.parametrize(
    ("schema", "line", "said"),
    [
        ('{"$schema": 3}', 1, "$schema: write the URI of a dialect"),
        ('{"type": "object",\n"$schema": ["a"]}', 2, "$schema: write the URI of a dialect"),
        ('{"$schema": "http://["}', 0, "is not a JSON Schema: ValueError: 'Invalid IPv6 URL'"),
        (f'{{{DRAFT_3}, "definitions": 3}}', 0, "is not a JSON Schema: AttributeError: "),
        (f'{{{DRAFT_3}, "definitions": {{"a": 1}}}}', 0, "is not a JSON Schema: TypeError: "),
    ],
)
def test_a_schema_that_the_library_fails_on_is_a_fault(schema: str, line: int, said: str) -> None:
    (fault,) = parsed(schema).faults
    assert (fault.path, fault.line) == ("schemas/batch.json", line)
    assert fault.message.startswith(said)


def test_a_schema_that_the_library_fails_to_apply_is_at_fault_itself() -> None:
    schema = {"$schema": "http://json-schema.org/draft-04/schema#", "$ref": 3}
    assert parsed(json.dumps(schema)).faults == ()
    (fault,) = judge(b"1", PayloadKind.JSON, [], schema=schema).faults
    assert fault.path == "schema"
    assert fault.message.startswith("the schema cannot be applied: ")


def at_depth(depth: int, call: Callable[[], T]) -> T:
    return at_depth(depth - 1, call) if depth else call()


def test_what_refers_to_itself_without_an_end_is_told() -> None:
    """No document is nested so deeply that this could be the sender's fault."""
    for schema in ({"$ref": "#"}, {"not": {"$ref": "#"}}):
        (said,) = misfits([1], schema)
        assert said.startswith("the schema refers to itself without an end")
        (fault,) = judge(b"[1]", PayloadKind.JSON, [], schema=schema).faults
        assert (fault.path, fault.message) == ("schema", said)
    # However full the stack is when the validation begins.
    said = {str(at_depth(depth, lambda: misfits([1], {"not": {"$ref": "#"}}))) for depth in range(30)}
    assert len(said) == 1
    value: Any = 1
    for _ in range(MAX_DEPTH):
        value = [value]
    deep = {"items": {"anyOf": [{"type": "integer"}, {"allOf": [{"$ref": "#"}]}]}}
    assert misfits(value, deep) == []


@pytest.mark.full
def test_a_document_of_yaml_may_be_as_long_as_one_of_json() -> None:
    """Workflow files amount to 8 MiB at most. A document is bounded by its own length, aliases written out."""
    long = b"notes:\n" + b"- {id: a, note: 'some words'}\n" * 160_000
    assert [
        fault.message for fault in judge(long, PayloadKind.YAML, [], schema={"required": ["notes", "x"]}).faults
    ] == ["$: 'x' is a required property"]


def test_aliases_do_not_make_a_document_of_yaml_longer_than_one_of_json() -> None:
    bomb = "a: &a [" + "x, " * 1000 + "]\n" + "".join(f"{b}: &{b} [{f'*{a}, ' * 100}]\n" for a, b in ("ab", "bc", "cd"))
    (fault,) = judge(bomb.encode(), PayloadKind.YAML, [], schema=True).faults
    assert fault.message == "the aliases in here expand to more than 8 MiB; write less, or fewer aliases"


def test_a_document_of_yaml_is_what_it_says() -> None:
    text = "a: &a [1, {b: null}]\nc: *a\nd: {e: 'x', f: 2.5}\n"
    expected = {"a": [1, {"b": None}], "c": [1, {"b": None}], "d": {"e": "x", "f": 2.5}}
    assert document(text.encode(), PayloadKind.YAML, "it") == expected


def test_faults_against_the_schema_and_faults_of_the_items_are_told_together() -> None:
    schema = {"items": {"properties": {"size": {"type": "integer"}}}}
    text = '[{"ark": "a", "size": "4"},\n {"ark": "a", "size": 4}, {"size": 4}]'
    told = [str(fault) for fault in judge(text.encode(), PayloadKind.JSON, ["ark"], schema=schema).faults]
    assert len(told) == 3, told
    assert any("integer" in one for one in told)
    assert any("'a'" in one or '"a"' in one for one in told), "the key that two items have"
