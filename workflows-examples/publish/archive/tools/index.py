"""Bring the search index forward to this revision, by the files that changed since its own: a revision costs what it changes.

The index is a SQLite database with a full-text table (FTS5). One transaction changes it and the revision that it is of, so that an attempt which is killed leaves the
index of the revision before. Where the index is not that of ARKQUEUE_BASE, the changes do not fit, and it is made anew.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from collections.abc import Iterable, Mapping

import documents

SCHEMA = """
create table if not exists document (id integer primary key, path blob not null unique, title text not null);
create virtual table if not exists words using fts5 (title, body, tokenize = 'unicode61');
create table if not exists state (revision text not null, number integer not null);
"""
"""``words`` has a row for each document, with its id as the row's."""


REMEDY = "If it is broken, remove it and retry the task indexing of the newest run: it makes the index anew."


def connect(path: str) -> sqlite3.Connection:
    """Open an index, which may be new. One that is broken ends the program."""
    index = sqlite3.connect(path, timeout=600, isolation_level=None)
    try:
        index.executescript(SCHEMA)
    except sqlite3.DatabaseError as error:
        sys.exit(f"{path}: {error}. {REMEDY}")
    return index


def revision(index: sqlite3.Connection) -> str | None:
    """Which revision the index is of; None: it is new."""
    row = index.execute("select revision from state").fetchone()
    return None if row is None else str(row[0])


def remove(index: sqlite3.Connection, path: bytes) -> None:
    row = index.execute("select id from document where path = ?", [path]).fetchone()
    if row is not None:
        index.execute("delete from words where rowid = ?", row)
        index.execute("delete from document where id = ?", row)


def add(index: sqlite3.Connection, found: documents.Document) -> None:
    id = index.execute("insert into document (path, title) values (?, ?)", [found.path, found.title]).lastrowid
    index.execute("insert into words (rowid, title, body) values (?, ?, ?)", [id, found.title, found.body])


def fill(index: sqlite3.Connection) -> None:
    """Put all documents of the workspace into an empty index."""
    for found in documents.everything():
        add(index, found)


def bring_forward(index: sqlite3.Connection, changes: Iterable[Mapping[str, str]]) -> None:
    """Take what each path had out of the index, and put in what it has. A path that is deleted may lead through a link now, so nothing is looked for there."""
    for change in changes:
        path = os.fsencode(change["path"])
        remove(index, path)
        if change["status"] != "deleted" and documents.is_one(path):
            add(index, documents.read(path))


def main() -> None:
    with open(os.environ["ARKQUEUE_CHANGES"], encoding="utf-8") as file:
        changes = json.load(file)
    index = connect(os.path.join(os.environ["PAPERS"], "index.sqlite"))
    index.execute("begin immediate")
    if revision(index) == (os.environ["ARKQUEUE_BASE"] or None):
        bring_forward(index, changes)
        print(f"{len(changes)} changed files")
    else:
        print("the index is not that of the base: it is made anew")
        index.execute("delete from words")
        index.execute("delete from document")
        fill(index)
    index.execute("delete from state")
    index.execute("insert into state values (?, ?)", [os.environ["ARKQUEUE_REVISION"], os.environ["ARKQUEUE_NUMBER"]])
    index.execute("commit")
    (count,) = index.execute("select count(*) from document").fetchone()
    print(f"{count} documents")


if __name__ == "__main__":
    try:
        main()
    except sqlite3.DatabaseError as error:
        sys.exit(f"{os.environ['PAPERS']}/index.sqlite: {error}. {REMEDY}")
