"""The loader of named SQL, and that the package and its SQL agree about the names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from psycopg._queries import _query2pg_nocache  # psycopg numbers parameters only inside an `execute`

import arkqueue
from arkqueue import states
from arkqueue.db.session import SQL
from arkqueue.db.statements import Statements, load


def load_text(tmp_path: Path, text: str) -> Statements:
    (tmp_path / "some.sql").write_text(text)
    (tmp_path / "schema.sql").write_text("create table has_no_blocks ();")
    return load(lambda word, event: f"<{word} {event}>", tmp_path)


def test_a_block_is_its_sql_with_its_moves(tmp_path: Path) -> None:
    sql = load_text(
        tmp_path,
        "-- A story.\n\n-- name: claim\n-- Takes tasks,\n-- a few.\n"
        "update task t set state = {to claim}, body = '{}' -- why\n"
        "where {from claim t} and {from hand_back};\n\n-- name: other\n-- Another.\nselect 1\n",
    )
    assert list(sql) == ["claim", "other"]
    assert sql.claim == sql["claim"]
    assert sql.claim.decode() == (
        "update task t set state = <to claim>, body = '{}' -- why\nwhere t.<from claim> and <from hand_back>"
    )
    assert sql.describe("claim") == "Takes tasks, a few."
    assert sql.other == b"select 1"


def test_a_statement_numbers_its_parameters(tmp_path: Path) -> None:
    sql = load_text(tmp_path, "-- name: a\n-- Does.\nselect %(b)s, '100 %%' like %(a_2)s and format('%%s', %(b)s)")
    statement = sql.statements["a"]
    assert statement.text == b"select $1, '100 %' like $2 and format('%s', $1)"
    assert statement.names == ("b", "a_2")


def test_every_statement_is_what_psycopg_makes_of_its_text() -> None:
    for name, text in SQL.items():
        text, _, names, _ = _query2pg_nocache(text, "utf-8")
        assert (SQL.statements[name].text, SQL.statements[name].names) == (text, tuple(names or ()))


def test_blocks_share_a_part(tmp_path: Path) -> None:
    sql = load_text(
        tmp_path,
        "-- part: old\n-- What is old.\nx < 1\n\n-- name: a\n-- Does.\nselect {part old};\n-- name: b\n-- Does.\nselect not {part old};",
    )
    assert {name: sql[name] for name in sql} == {"a": b"select x < 1", "b": b"select not x < 1"}


def test_later_files_share_a_part(tmp_path: Path) -> None:
    (tmp_path / "other.sql").write_text("-- part: old\n-- What is old.\nx < 1\n")
    sql = load_text(tmp_path, "-- name: a\n-- Does.\nselect {part old}")
    assert sql.a == b"select x < 1"


def test_a_part_of_two_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.sql").write_text("-- part: old\n-- What is old.\nx < 1\n")
    with pytest.raises(ValueError, match=r"some\.sql: the part 'old' exists already"):
        load_text(tmp_path, "-- part: old\n-- What is old.\nx < 1\n")


def test_an_unknown_name_is_an_error(tmp_path: Path) -> None:
    sql = load_text(tmp_path, "-- name: a\n-- Does.\nselect 1")
    with pytest.raises(KeyError):
        sql["b"]
    with pytest.raises(AttributeError, match="named 'b'"):
        _ = sql.b


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("-- name: a\nselect 1", "needs a sentence"),
        ("-- name: a\n-- Does nothing.\n", "needs a sentence"),
        ("-- name: a\n-- Does.\nselect 1;\n-- name: a\n-- Does.\nselect 2", "exists already"),
        ("-- name: a\n-- Does.\nselect {part old}", "takes in old, which no part before it is called"),
        ("select 1;\n-- name: a\n-- Does.\nselect 1", "before the first block"),
    ],
)
def test_a_faulty_file_is_refused(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        load_text(tmp_path, text)


def test_every_block_of_arkqueue_can_be_loaded_and_no_move_is_left() -> None:
    sql = load(states.expand)
    assert sql
    for name in sql:
        assert sql.describe(name)
        assert not re.search(rb"\{(from|to)\b", sql[name]), name


BY_NAME = {
    "failures_of_backfills": "its index has no kinds",
    "planning": "the key of one task, along an index",
    "plannings": "the same",
    "waits_of_archives": "gates of lists are told from those of `PREV:*`",
}
"""The blocks that compare names of tasks with COMMIT, REPORT or PREV, and the reason for each."""


def test_statements_ask_for_the_kind_of_a_task_and_not_for_its_name() -> None:
    by_name = re.compile(r"\bname\s*(=|<>|(not )?like|in)\s*\(?'(COMMIT|REPORT|PREV)")
    assert {name for name in SQL if by_name.search(re.sub(r"--.*", "", SQL[name].decode()))} == set(BY_NAME)


def test_every_block_that_arkqueue_names_exists() -> None:
    package = Path(arkqueue.__file__).parent
    sql = load(states.expand)
    for module in package.rglob("*.py"):
        for name in re.findall(r"\bSQL\.([a-z_]+)\b|\bSQL\[\"([a-z_]+)\"\]", module.read_text()):
            assert "".join(name) in sql or hasattr(sql, "".join(name)), f"{module.name}: SQL.{''.join(name)}"
