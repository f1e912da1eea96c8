"""Compare the index with one that is made anew from this revision's files, and look at what is published. Exit code 1 where something is wrong."""

from __future__ import annotations

import json
import os
import sqlite3
import sys

import index as an_index

CONTENTS = "select d.path, d.title, w.title, w.body from words w left join document d on d.id = w.rowid"
WORDS = "select v.term, d.path, v.col, v.offset from vocabulary v left join document d on d.id = v.doc"
CHECK = "insert into words (words) values ('integrity-check')"


def differences(kept: sqlite3.Connection) -> list[str]:
    """How an index differs from one that is made anew; SQLite looks itself whether its full-text tables agree."""
    anew = an_index.connect(":memory:")
    an_index.fill(anew)
    found = []
    for one in (kept, anew):
        one.execute("create virtual table temp.vocabulary using fts5vocab (main, words, instance)")
    for what, query in (("documents", CONTENTS), ("words", WORDS)):
        have, want = ({*one.execute(query)} for one in (kept, anew))
        rows = kept.execute(f"select count(*) from ({query})").fetchone()[0]
        if have != want or rows != len(have):
            found.append(f"{what}: {len(have - want)} too many, {len(want - have)} missing, {rows - len(have)} twice")
    if kept.execute("select count(*) from document where id not in (select rowid from words)").fetchone()[0]:
        found.append("documents without words")
    try:
        kept.execute(CHECK)
    except sqlite3.DatabaseError as error:
        found.append(f"the full-text tables do not agree: {error}")
    return found


def published(folder: str) -> list[str]:
    """What is wrong with the published folder, where there is one."""
    site = os.path.join(folder, "site")
    if not os.path.lexists(site):
        return []
    try:
        with open(os.path.join(site, "release.json"), encoding="utf-8") as file:
            release = json.load(file)
        with open(os.path.join(site, "papers.pdf"), "rb") as pdf, open(os.path.join(site, "index.html"), "rb") as page:
            whole = pdf.read(5) == b"%PDF-" and f'"number": {release["number"]},'.encode() in page.read()
        return [] if whole else ["the published page is not of the revision that is published"]
    except (OSError, ValueError, KeyError) as error:
        return [f"what is published cannot be read: {error}"]


def main() -> None:
    folder = os.environ["PAPERS"]
    kept = an_index.connect(os.path.join(folder, "index.sqlite"))
    found = published(folder)
    if an_index.revision(kept) != os.environ["ARKQUEUE_REVISION"]:
        print("the index is of another revision by now: not compared")
    else:
        found += differences(kept)
    if found:
        sys.exit("\n".join(found))
    print("no differences")


if __name__ == "__main__":
    main()
