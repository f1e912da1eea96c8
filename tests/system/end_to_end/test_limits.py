"""A revision that exceeds a limit becomes a failed run that names the limit. Its archive and all
others go on.
"""

from __future__ import annotations

import pytest

from tests.repositories import Content
from tests.system.end_to_end.conftest import Archives
from tests.system.end_to_end.installation import Installation, tasks

MANY: dict[str, Content] = {f"_workflows/{n}.yaml": f"- {{name: t{n}, command: 'true'}}\n" for n in range(1001)}
TOLD = {"author": "a" * 1500 + " <a@example.org>", "message": "x" * 70_000}


@pytest.mark.parametrize(
    ("kind", "changes", "told", "fault"),
    [
        ("subversion", {}, TOLD, "its author has 1,516 bytes, more than 1,024 and its message has 70,00"),
        ("git", {}, TOLD, "its author has 1,516 bytes, more than 1,024 and its message has 70,00"),
        ("git", MANY, {}, "there are 1,001 workflow files here, more than 1,000"),
    ],
    ids=["subversion", "git", "git, files"],
)
def test_a_revision_with_too_much_of_something_harms_nobody_else(
    shared: Installation, archives: Archives, kind: str, changes: dict[str, Content], told: dict[str, str], fault: str
) -> None:
    papers, others = archives(shared, kind), archives(shared, kind)
    papers.commit({"paper.tex": "more\n", **changes}, **told)
    run = papers.wait_for_run(2, "failed")
    assert run["counts"]["tasks"] == 0
    (found,) = papers.shown(2)["faults"]
    assert found["message"].startswith(fault)
    assert fault in shared("show", papers.run(2)).out
    others.commit(tasks({"index": {"command": "true"}}))
    others.wait("index@2")
    papers.commit({**dict.fromkeys(changes), **tasks({"index": {"command": "true"}}, "_workflows/tasks.json")})
    papers.wait("index@3")
