"""Workflow files with faults: the failed run names each fault and its place, and the revision that
fixes them runs.
"""

from __future__ import annotations

from tests.repositories import Content
from tests.system.end_to_end.conftest import Archives
from tests.system.end_to_end.installation import Installation

A = "_workflows/a.yaml"
GOOD = "- {name: index, command: 'true'}\n"
BOMB = "- &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"- &{chr(ord('a') + n)} [{', '.join(['*' + chr(ord('a') + n - 1)] * 10)}]\n" for n in range(1, 10)
)

UNREADABLE: dict[str, tuple[Content, list[tuple[int, int, str]]]] = {
    "star": ("- name: a1\n  depends: *all\n", [(2, 12, "quote it")]),
    "not-YAML": ("- name: [a\n", [(0, 0, "")]),
    "not-UTF-8": (b"- name: caf\xe9\n", [(1, 12, "UTF-8")]),
    "2-MiB": ("# " * 2**20, [(0, 0, "1 MiB")]),
    "deep": ("[" * 20_000, [(1, 0, "deep")]),
    "bomb": (BOMB, [(0, 0, "alias")]),
}
"""By the file's name: what is committed, and (line, column, a word of the message) of its faults; 0: any."""

WRONG: dict[str, tuple[Content, list[tuple[int, int, str]]]] = {
    "field": ("- name: a2\n  comand: x\n", [(2, 3, "comand")]),
    "type": ("- name: a3\n  timeout: soon\n", [(2, 12, "soon")]),
    "task": ("- name: index\n- name: pdf\n  depends: [indexng]\n", [(3, 13, "indexng")]),
    "cycle": ("- {name: a4, depends: [b4]}\n- {name: b4, depends: [a4]}\n", [(1, 0, "a4")]),
    "twice": (GOOD, [(1, 10, "index")]),
    "later": ("- {name: a5, command: x, secrets: key}\n", [(1, 26, "not supported yet")]),
    "several": ("- name: a6\n  comand: x\n- name: a6\n  depends: [b]\n", [(2, 3, "comand"), (3, 0, "a6"), (4, 13, "b")]),
}  # fmt: skip
"""Where a file cannot be read, nothing is said of names that it may hold. So these are a revision of their own."""


def path_of(what: str) -> str:
    return f"_workflows/{what}.yaml"


def test_faults_are_all_shown_and_the_next_revision_mends_them(shared: Installation, archives: Archives) -> None:
    papers = archives(shared, "git")
    for rev, bad, before in ((2, UNREADABLE, {}), (3, WRONG, UNREADABLE)):
        papers.commit({path_of(w): None for w in before} | {path_of(w): content for w, (content, _) in bad.items()})
        assert papers.wait_for_run(rev, "failed")["counts"]["tasks"] == 0
        faults = papers.shown(rev)["faults"]
        said = shared("show", papers.run(rev)).out
        for what, (_, expected) in bad.items():
            own = [fault for fault in faults if fault["path"] == path_of(what)]
            for line, column, word in expected:
                matching = [
                    f for f in own if word in f["message"] and line in (0, f["line"]) and column in (0, f["column"])
                ]
                assert matching, (what, own, faults)
                place = f"{matching[0]['path']}:{matching[0]['line']}:{matching[0]['column']}"
                assert (place if matching[0]["line"] else matching[0]["path"]) in said
        checked = shared("check", "--revision", papers.run(rev), code=1).out
        assert all(fault["path"] in checked for fault in faults)

    papers.commit({**{path_of(what): None for what in WRONG}, A: GOOD})
    papers.wait_for_run(4)
    papers.wait("index@4")
