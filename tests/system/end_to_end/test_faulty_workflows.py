"""Workflow files that nobody can run: a failed run tells what is wrong and where, and the revision that mends it runs."""

from __future__ import annotations

import pytest

from tests.repositories import Content
from tests.system.end_to_end.conftest import Archives
from tests.system.end_to_end.installation import Installation

A = "_workflows/a.yaml"
GOOD = "- {name: index, command: 'true'}\n"
BOMB = "- &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"- &{chr(ord('a') + n)} [{', '.join(['*' + chr(ord('a') + n - 1)] * 10)}]\n" for n in range(1, 10)
)

FAULTS: dict[str, tuple[dict[str, Content], list[tuple[int, int, str]]]] = {
    "unknown field": ({A: "- name: a\n  comand: x\n"}, [(2, 3, "comand")]),
    "wrong type": ({A: "- name: a\n  timeout: soon\n"}, [(2, 12, "soon")]),
    "unknown task": ({A: "- name: index\n- name: pdf\n  depends: [indexng]\n"}, [(3, 13, "indexng")]),
    "cycle": ({A: "- {name: a, depends: [b]}\n- {name: b, depends: [a]}\n"}, [(1, 0, "a")]),
    "name in two files": ({A: GOOD, "_workflows/b.yaml": GOOD}, [(1, 10, "index")]),
    "unquoted star": ({A: "- name: a\n  depends: *all\n"}, [(2, 12, "quote it")]),
    "not YAML": ({A: "- name: [a\n"}, [(0, 0, "")]),
    "not UTF-8": ({A: b"- name: caf\xe9\n"}, [(1, 12, "UTF-8")]),
    "2 MiB": ({A: "# " * 2**20}, [(0, 0, "1 MiB")]),
    "deep": ({A: "[" * 20_000}, [(1, 0, "deep")]),
    "alias bomb": ({A: BOMB}, [(0, 0, "alias")]),
    "a later field": ({A: "- {name: a, command: x, secrets: key}\n"}, [(1, 25, "not supported yet")]),
    "several": ({A: "- name: a\n  comand: x\n- name: a\n  depends: [b]\n"}, [(2, 3, "comand"), (3, 0, "a"), (4, 13, "b")]),
}  # fmt: skip
"""What is committed, and (line, column, a word of the message) of the faults; 0: any."""


READ_OTHERWISE = ("not UTF-8", "2 MiB", "cycle")
"""What depends on how a kind of archive reads its files; all else is read in one way."""


@pytest.mark.parametrize(
    ("kind", "what"), [*(("subversion", what) for what in FAULTS), *(("git", what) for what in READ_OTHERWISE)]
)
def test_fault_is_shown_and_the_next_revision_mends_it(
    shared: Installation, archives: Archives, kind: str, what: str
) -> None:
    files, expected = FAULTS[what]
    papers = archives(shared, kind)
    papers.commit(files)
    assert papers.wait_for_run(2, "failed")["counts"]["tasks"] == 0
    faults = papers.shown(2)["faults"]
    said = shared("show", papers.run(2)).out
    for line, column, word in expected:
        matching = [
            f
            for f in faults
            if word in f["message"] and line in (0, f["line"]) and column in (0, f["column"]) and f["path"] in files
        ]
        assert matching, faults
        place = f"{matching[0]['path']}:{matching[0]['line']}:{matching[0]['column']}"
        assert (place if matching[0]["line"] else matching[0]["path"]) in said
    checked = shared("check", "--revision", papers.run(2), code=1).out
    assert all(fault["path"] in checked for fault in faults)

    papers.commit({**{path: None for path in files if path != A}, A: GOOD})
    papers.wait_for_run(3)
    papers.wait("index@3")
