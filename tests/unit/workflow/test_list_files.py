"""Lists in files of the archive (`foreach: {file: …}`, design 5.30): their items, and their faults
with positions.
"""

from __future__ import annotations

import json
import tracemalloc

import pytest

from arkqueue.model import LONGEST_LIST, MOST_ITEMS, PayloadKind, SourceFile, Workflow
from arkqueue.workflow.document import document
from arkqueue.workflow.list_files import MOST_FILES
from arkqueue.workflow.nodes import Unreadable
from arkqueue.workflow.parsing import parse
from tests.counting import counted_calls

TASK = "- {name: a, command: x, foreach: {file: lists/%s}%s}"


def read(name: str, text: str | bytes, more: str = "") -> Workflow:
    """A workflow of one task whose list is in a file."""

    def read_file(path: str) -> SourceFile:
        assert path == f"lists/{name}"
        return SourceFile(path, text.encode() if isinstance(text, str) else text)

    return parse([SourceFile("a.yaml", (TASK % (name, more)).encode())], read_file)


def items(name: str, text: str | bytes, more: str = "") -> dict[str, object]:
    workflow = read(name, text, more)
    assert workflow.faults == ()
    (task,) = workflow.tasks
    return {item.key: json.loads(item.body) for item in workflow.items_of(task) or ()}


def faults(name: str, text: str | bytes, more: str = "") -> list[str]:
    workflow = read(name, text, more)
    assert workflow.tasks == ()
    return [str(fault) for fault in workflow.faults]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("v.json", '[{"id": "a", "size": "3"}, {"id": "b", "size": ""}]'),
        ("v.json", '{"version": 1, "items": [{"id": "a", "size": "3"}, {"id": "b", "size": ""}]}'),
        ("v.yaml", "items:\n- {id: a, size: '3'}\n- {id: b, size: ''}\n"),
        ("v.csv", 'id,size\r\na,3\r\n\r\n"b",\r\n'),
        ("V.CSV", "\ufeffid,size\na,3\nb,\n"),
    ],
)
def test_the_same_list_in_each_form(name: str, text: str) -> None:
    assert items(name, text) == {"a": {"id": "a", "size": "3"}, "b": {"id": "b", "size": ""}}


@pytest.mark.parametrize(
    ("name", "numbers", "written"),
    [
        ("v.json", "1.10, -0.0, 1e3, 1.5E-7, 123456789012345678.9, 7", "1.10,-0.0,1E+3,1.5E-7,123456789012345678.9,7"),
        ("v.yaml", "1.10, +.5, 2., 0x1F, 1e3, '1.10'", '1.10,0.5,2,31,1E+3,"1.10"'),
    ],
)
def test_numbers_of_items_keep_their_digits(name: str, numbers: str, written: str) -> None:
    workflow = read(name, f'[{{"id": "a", "z": [{numbers}], "b": true}}]')
    assert workflow.faults == ()
    (item,) = workflow.items_of(workflow.tasks[0]) or ()
    assert item.body == f'{{"id":"a","z":[{written}],"b":true}}'


@pytest.mark.parametrize("item", ["{}", "{{id: {}}}"])
def test_two_ways_to_write_a_number_are_one_key(item: str) -> None:
    """The tasks of both items would read the same number."""
    for first, second, number in (("007", "0o7", 7), ("0x1F", "+31", 31), ("True", "true", "true")):
        (told,) = faults("v.yaml", f"- other\n- {item.format(first)}\n- {item.format(second)}\n")
        said = f"foreach: the key '{second}' means {number}, like that of the item in line 2; quote both"
        assert f"v.yaml:3:3: {said}" in told
    assert [*items("v.yaml", "['007', '0o7', '7', 0o10, '8', 1.1, 1.10, x7]")] == [
        "007", "0o7", "7", "0o10", "8", "1.1", "1.10", "x7",
    ]  # fmt: skip


LONG = "x" * 2**21
MANY = [[], {}, {"a": "b"}, -1.5, LONG[:20_000], [["c"], None]] * 1000


@pytest.mark.parametrize("name", ["v.json", "v.yaml"])
@pytest.mark.parametrize(
    "value", [LONG, MANY, {"deeper": {"many": MANY, "long": LONG}, "e": []}], ids=["text", "list", "mapping"]
)
def test_what_is_beside_the_list_may_be_as_long_as_the_file(name: str, value: object) -> None:
    """JSON in lines is YAML, too."""
    for whole in ({"free": value, "items": ["a"]}, {"items": ["a"], "free": value}):
        assert items(name, json.dumps(whole, indent=1)) == {"a": "a"}


def test_items_may_name_what_is_beside_the_list() -> None:
    text = "shared: {of: [&one {id: a}]}\nitems: [*one, {id: b, is: *one}]\n"
    assert items("v.yaml", text) == {"a": {"id": "a"}, "b": {"id": "b", "is": {"id": "a"}}}
    assert items("v.yaml", "listed: &list [a, b]\nitems: *list\n") == {"a": "a", "b": "b"}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("v.json", '{"free": [%s,\n {"a" 1}]}', ":2:7: the file is not JSON: expecting ':' delimiter"),
        ("v.json", '{"free": [%s,\n {a: 1}]}', ":2:3: the file is not JSON: expecting property name"),
        ("v.json", '{"free": [%s,\n NaN]}', ":2:2: the file is not JSON: NaN is not a number in JSON"),
        ("v.json", '{"free": [%s,\n tru]}', ":2:2: the file is not JSON: expecting value"),
        ("v.json", '{"free": [%s,\n 1}', ":2:3: the file is not JSON: expecting ',' delimiter"),
        ("v.json", '{"free": [%s', ":1:2097165: the file is not JSON: expecting ',' delimiter"),
        ("v.json", '{"free": [%s]}', ":1:1: the file holds no list"),
        ("v.json", '{"free": ' + '[' * 60 + '%s' + ']' * 60 + '}', ":1:60: lists and mappings are nested more than 50 deep"),
        ("v.yaml", '{"free": [%s,\n *none], "items": []}', ":2:2: an unquoted '*' begins an alias"),
    ],
)  # fmt: skip
def test_faults_of_what_is_beside_the_list_are_told_where_they_stand(name: str, text: str, said: str) -> None:
    (fault,) = faults(name, text % f'"{LONG}"')
    assert said in fault


def test_each_line_of_a_text_file_is_an_item() -> None:
    assert items("v.txt", "13030/m5\r\n\r\n13030/q2") == {"13030/m5": "13030/m5", "13030/q2": "13030/q2"}
    assert items("v.txt", "") == {}


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\x85"])
def test_a_line_end_of_unicode_ends_no_row(end: str) -> None:
    """Office programs write them into cells."""
    assert items("v.csv", f"id,text\na,1{end}2\nb,3\n") == {
        "a": {"id": "a", "text": f"1{end}2"},
        "b": {"id": "b", "text": "3"},
    }
    (told,) = faults("v.csv", f"id,text\na,1{end}b,2\n")
    assert told.endswith("the row has 3 fields, and the header 2; give each row as many")


def test_a_cell_of_several_lines_keeps_the_lines_of_what_follows() -> None:
    assert faults("v.csv", 'id,text\na,"1\n2\n3"\na,x\n') == [
        "lists/v.csv:5:1: foreach: the key 'a' is also that of the item in line 2; give each item its own"
    ]


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("v.json", '{"entries": []}', "lists/v.json:1:1: the file holds no list; write a list, or {items: […]}; an empty one is []"),
        ("v.yaml", "", "lists/v.yaml:1:1: the file holds no list"),
        ("v.json", "[1,", "lists/v.json:1:4: the file is not JSON"),
        ("v.yaml", "- a\n- *b\n", "lists/v.yaml:2:3: an unquoted '*' begins an alias"),
        ("v.json", "[" * 60 + "]" * 60, "nested more than 50 deep"),
        ("v.csv", "id,size\na\n", "lists/v.csv:2:1: the row has 1 field, and the header 2; give each row as many"),
        ("v.csv", "id,id\na,b\n", "lists/v.csv:1:1: the header has the field 'id' twice"),
        ("v.csv", "", "lists/v.csv:1:1: the file has no header"),
        ("v.csv", 'id\n"a\n', "lists/v.csv:2:1: the file is not CSV"),
        ("v.csv", f"id\n{'a' * 200_000}\n", "lists/v.csv:2:1: the file is not CSV: field larger than field limit"),
        ("v.csv", "ark\na\n", "lists/v.csv:2:1: foreach: an item has no field 'key', 'id' or 'name'"),
        ("v.txt", b"caf\xe9\n", "lists/v.txt:1:4: the file is not UTF-8: byte 3 is 0xe9"),
        ("v.txt", "a\nb\x1b[31m\n", "lists/v.txt:2:2: the character U+001B is not allowed in a list; remove it"),
        ("v.txt", "a\nb\na\n", "lists/v.txt:3:1: foreach: the key 'a' is also that of the item in line 1"),
        ("v.txt", b"a" * (LONGEST_LIST + 1), "a.yaml:1:41: foreach.file: 'lists/v.txt': the file is larger than 64 MiB"),
        ("v.txt", "".join(f"{n}\n" for n in range(MOST_ITEMS + 1)), "lists/v.txt:10001:1: foreach: the list has more than 10,000 items"),
        ("v.json", '[{"id": "a"},\n  {"id": "b" "c": 1}]', "lists/v.json:2:14: the file is not JSON: expecting ',' delimiter"),
        ("v.json", '[{"id": "a"}\n{"id": "b"}]', "lists/v.json:2:1: the file is not JSON: expecting ',' delimiter"),
        ("v.json", '["a"]\n"b"', "lists/v.json:2:1: the file is not JSON: extra data"),
        ("v.json", '{"items": ["a"], "items": ["b"]}', "lists/v.json:1:18: 'items' is given twice, first in line 1"),
        ("v.json", '["a",\n NaN]', "lists/v.json:2:2: the file is not JSON: NaN is not a number in JSON"),
        ("v.json", '["a NaN",\n {"b": -InfinityNaN}]', "lists/v.json:2:8: the file is not JSON: -Infinity is not a number in JSON"),
        ("v.json", '["a",\n "' + "b" * 2**21 + '"]', "lists/v.json:2:2: an item of the list is too large"),
        ("v.json", '["a",\n {"id": "b", "of": 1e-9999999999999999999}]', "lists/v.json:2:20: foreach: the exponent of '1e-9999999999999999999' is too long; quote"),
        ("v.yaml", "- a\n- [" + f"{'b' * 100}, " * 90_000 + "]", "lists/v.yaml:2:"),
        ("v.csv", "id\na\n" + "," * (2**20 + 1) + "\n", "lists/v.csv:3:1: an item of the list is too large"),
        ("v.csv", "," * 2**19, "lists/v.csv:1:1: the header has the field '' twice"),
    ],
)  # fmt: skip
def test_faults_are_told_where_they_stand(name: str, text: str | bytes, told: str) -> None:
    (fault,) = faults(name, text)
    assert told in fault


@pytest.mark.full
def test_a_long_list_has_its_lines_counted_in_every_form() -> None:
    """What stands behind the first mebibyte of a file is judged like what stands before it."""
    many, padding = 9_000, "x" * 200
    entries = [{"id": f"i{n}", "text": padding} for n in range(many)] + [{"id": "i7"}]
    told = "the key 'i7' is also that of the item in line"
    files = {
        "v.json": "[\n" + ",\n".join(json.dumps(entry) for entry in entries) + "]",
        "v.yaml": "items:\n" + "".join(f"- {json.dumps(entry)}\n" for entry in entries),
        "v.csv": "id,text\r\n" + "".join(f"{entry['id']},{padding}\r\n" for entry in entries),
    }
    for name, text in files.items():
        assert len(text) > 2**20
        (fault,) = faults(name, text)
        assert fault.startswith(f"lists/{name}:{many + 2}:"), fault
        assert f"{told} 9" in fault
    (fault,) = faults("v.txt", "\n".join(f"{n}{padding[1:180]}" for n in [*range(many), 7]))
    assert fault.startswith(f"lists/v.txt:{many + 1}:1: foreach: the key"), fault


@pytest.mark.full
def test_a_list_of_64_mebibytes_takes_little_memory_beside_its_text() -> None:
    size, row = 2**26, '{"id": "%d", "text": "' + "y" * 7_000 + '"},\n'
    text = ("[" + "".join(row % n for n in range(size // len(row) - 10))).rstrip(",\n") + "]"
    tracemalloc.start()
    try:
        found = read("v.json", text)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.faults == ()
    assert found.item_tasks == size // len(row) - 10
    assert peak < 4 * size, "its bytes, its text and its items, and no nodes beside them"


@pytest.mark.parametrize("name", ["v.json", "v.yaml", "v.csv", "v.txt"])
def test_hostile_lines_take_neither_time_nor_memory(name: str) -> None:
    twice = ("a: 1\n" * 2**19, "{" + '"a":1,' * 2**19)
    for text in ("\n" * 2**22, "[" * 2**20, "[[],", "- &a a\n" * 2**18, ",".join("[]" * 2**18), "&a [" * 2**16, *twice):
        tracemalloc.start()
        try:
            read(name, text)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 200 * 2**20, (name, text[:20])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("v.json", "{" + '"a":1,' * 2000 + '"items":[1]}'),
        ("v.json", "[{" + '"a":1,' * 2000 + '"id":1},2]'),
        ("v.yaml", "a: 1\n" * 2000 + "items: [1]\n"),
    ],
)
def test_a_field_that_is_given_a_thousand_times_ends_the_reading(name: str, text: str) -> None:
    told = faults(name, text)
    assert all("'a' is given twice" in fault for fault in told[:-1])
    assert told[-1].endswith("there are more than 1000 faults; correct the ones above first")


def test_the_field_that_a_long_object_has_twice_is_found_in_one_pass() -> None:
    calls = []
    for size in (100, 10_000):
        text = "{" + "".join(f'"a{n}":1,' for n in range(size)) + '"a7":1}'
        with counted_calls() as counted, pytest.raises(Unreadable, match="an object has the field 'a7' twice"):
            document(text.encode(), PayloadKind.JSON, "the payload")
        calls.append(counted.count)
    assert calls[1] < calls[0] + 50, calls


def test_lists_that_are_long_together_are_refused() -> None:
    tasks = "\n".join(f"- {{name: a{n}, command: x, foreach: {{file: {n}.txt}}}}" for n in range(2))
    half = b"a" * 100 + b"\n" * (LONGEST_LIST // 2)
    workflow = parse([SourceFile("a.yaml", tasks.encode())], lambda path: SourceFile(path, half))
    (fault,) = workflow.faults
    assert "'1.txt': the list files of this revision together are larger than 64 MiB" in str(fault)


def test_aliases_that_expand_without_end_are_a_fault() -> None:
    bomb = "\n".join([f"a{n}: &a{n} [{', '.join([f'*a{n - 1}' if n else 'x'] * 20)}]" for n in range(12)])
    (fault,) = faults("v.yaml", bomb)
    assert "the aliases in here expand to more than 8 MiB" in fault


@pytest.mark.parametrize("path", ["/etc/passwd.txt", "../v.txt", "a//v.txt", "./v.txt", "v", "v.exe", '"v\\u202e.txt"'])
def test_paths_that_name_no_file_of_the_archive_are_refused(path: str) -> None:
    workflow = parse([SourceFile("a.yaml", f"- {{name: a, command: x, foreach: {{file: {path}}}}}".encode())], _never)
    assert [fault.message.partition(":")[0] for fault in workflow.faults] == ["foreach.file"]


def _never(path: str) -> SourceFile:
    raise AssertionError(path)


def test_a_file_that_cannot_be_read_is_told_where_it_is_named() -> None:
    workflow = parse(
        [SourceFile("a.yaml", (TASK % ("v.txt", "")).encode())], lambda path: SourceFile(path, fault="it is gone")
    )
    assert [str(fault) for fault in workflow.faults] == ["a.yaml:1:41: foreach.file: 'lists/v.txt': it is gone"]
    assert workflow.list_files == ("lists/v.txt",)


def test_list_files_are_read_once_and_are_bounded() -> None:
    asked: list[str] = []

    def read_file(path: str) -> SourceFile:
        asked.append(path)
        return SourceFile(path, b"x\n")

    tasks = [f"- {{name: a{n}, command: x, foreach: {{file: lists/{n // 2}.txt}}}}" for n in range(2 * MOST_FILES + 2)]
    workflow = parse([SourceFile("a.yaml", "\n".join(tasks).encode())], read_file)
    assert len(asked) == len(set(asked)) == MOST_FILES
    assert all("there are more than 20 list files" in fault.message for fault in workflow.faults)
    assert len(workflow.faults) == 1, "told where the file is named first"


def test_lists_of_different_files_are_different_lists() -> None:
    tasks = [f"- {{name: a{n}, command: x, foreach: {{file: {n % 2}.txt}}}}" for n in range(3)]
    workflow = parse([SourceFile("a.yaml", "\n".join(tasks).encode())], lambda path: SourceFile(path, b"x\n"))
    first, second, third = (task.foreach for task in workflow.tasks)
    assert first == third != second


def test_where_nobody_can_read_the_file_the_rest_is_judged() -> None:
    assert parse([SourceFile("a.yaml", (TASK % ("v.txt", "")).encode())]).faults == ()
    assert parse([SourceFile("a.yaml", (TASK % ("v.txt", ", key: [x]")).encode())]).faults


@pytest.mark.parametrize("end", ["\u2028", "\x85", "\x0b", "\x0c", "\x1e"])
def test_rows_of_a_payload_end_with_newlines_alone(end: str) -> None:
    """As those of a list file do: else one row with a field too many would pass as two."""
    if end in "\u2028\x85":
        assert document(f"id,t\r\n1,foo{end}bar\r\n2,x".encode(), PayloadKind.CSV, "the payload") == [
            {"id": "1", "t": f"foo{end}bar"},
            {"id": "2", "t": "x"},
        ]
    with pytest.raises(Unreadable):
        document(f"id,t\n1,foo{end}2,bar\n".encode(), PayloadKind.CSV, "the payload")
