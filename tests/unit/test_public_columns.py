"""Visitors who have not signed in see no person and no reason, whatever columns the statements get."""

from __future__ import annotations

import re
from pathlib import Path

import arkqueue
from arkqueue.views.public import PERSONS, REASONS

OF_NO_PERSON = {"superseded_by", "carried_by", "received_by", "reported_by"}
"""Columns that name a task, a delivery or a number."""


def test_each_column_that_may_name_a_person_or_a_reason_is_known() -> None:
    told = re.compile(r"\b(?:\w+_)?(?:by|note|reason)\b")
    found = {
        name
        for file in (Path(arkqueue.__file__).parent / "sql").glob("*.sql")
        for name in told.findall(file.read_text())
    }
    assert found - PERSONS - REASONS - OF_NO_PERSON == set()
    assert PERSONS - {"submitter"} <= found
    assert found >= REASONS
