"""Make the search page of this revision from the index: one file that needs no server, with all words and the documents that they are in."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import documents
import index as an_index

PAGE = Path(__file__).with_name("search.html")
PLACE = "null; // the data"


def data(folder: str, revision: str, number: int) -> str:
    """The page's data as JSON that can stand in a script of HTML: what committers wrote ends no element."""
    index = an_index.connect(os.path.join(folder, "index.sqlite"))
    index.execute("begin")
    if an_index.revision(index) != revision:
        sys.exit(f"the index is of revision {an_index.revision(index)}, not of {revision}: run the task indexing first")
    found = index.execute("select id, path, title from document order by path").fetchall()
    places = {id: place for place, (id, _, _) in enumerate(found)}
    index.execute("create virtual table temp.vocabulary using fts5vocab (main, words, instance)")
    words: dict[str, list[int]] = {}
    for word, id in index.execute("select distinct term, doc from vocabulary order by term, doc"):
        words.setdefault(word, []).append(places[id])
    listed = [
        {"path": path.decode("utf-8", "replace"), "title": title, "anchor": documents.Document(path, title, "").anchor}
        for _, path, title in found
    ]
    all_of_it = {"number": number, "revision": revision, "documents": listed, "words": words}
    return json.dumps(all_of_it).replace("<", "\\u003c")


def main() -> None:
    number = int(os.environ["ARKQUEUE_NUMBER"])
    page = PAGE.read_text("utf-8")
    assert page.count(PLACE) == 1
    page = page.replace(PLACE, data(os.environ["PAPERS"], os.environ["ARKQUEUE_REVISION"], number) + ";")
    made = Path(os.environ["PAPERS"], "builds", f"{number}.html")
    part = made.with_name(f".{made.name}.{os.environ['ARKQUEUE_RUN']}")
    part.write_text(page, "utf-8")
    part.rename(made)
    Path(os.environ["ARKQUEUE_OUTPUT"]).write_text(json.dumps({"file": made.name, "number": number}), "utf-8")
    print(f"{made.name}: {len(page)} characters")


if __name__ == "__main__":
    main()
