"""Asks for explanations, in the words of tests."""

from __future__ import annotations

from arkqueue.db.session import Session
from arkqueue.queue import claim
from arkqueue.views.explain import explain
from arkqueue.views.explanation import Explanation
from arkqueue.views.reasons import Why
from tests.builders import HOST, PROCESS, AnArchive


def why(archive: AnArchive, key: str) -> Explanation:
    """The explanation of ``name@number``."""
    return explain(archive.session, archive.task(key))


def kinds(explanation: Explanation) -> list[Why]:
    return [reason.kind for reason in explanation.reasons]


def a_task_manager(session: Session, slots: int = 4) -> None:
    claim.register(session, PROCESS, HOST, "machine", slots)
