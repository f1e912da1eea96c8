"""A revision that exceeds a limit becomes a failed run that names the limit. Its archive and all
others go on.
"""

from __future__ import annotations

from tests.system.end_to_end.conftest import Archives
from tests.system.end_to_end.installation import Installation, tasks

TOLD = {"author": "a" * 1500 + " <a@example.org>", "message": "x" * 70_000}


def test_a_revision_with_too_much_of_something_harms_nobody_else(shared: Installation, archives: Archives) -> None:
    """More of what is too much, in Git, is in ``tests/security/test_standstill.py``."""
    papers, others = archives(shared), archives(shared)
    papers.commit({"paper.tex": "more\n"}, **TOLD)
    fault = "its author has 1,516 bytes, more than 1,024 and its message has 70,00"
    run = papers.wait_for_run(2, "failed")
    assert run["counts"]["tasks"] == 0
    (found,) = papers.shown(2)["faults"]
    assert found["message"].startswith(fault)
    assert fault in shared("show", papers.run(2)).out
    others.commit(tasks({"index": {"command": "true"}}))
    others.wait("index@2")
    papers.commit(tasks({"index": {"command": "true"}}))
    papers.wait("index@3")
