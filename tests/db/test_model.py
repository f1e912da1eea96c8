"""Runs the machine (``beside``) with a second model as the subject: it shows that the machine works, and
nothing of the queue.
"""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import pytest
from hypothesis import settings

from tests.db.beside import Beside
from tests.db.subject import ModelAsSubject, Subject


class BesideItself(Beside):
    examples: ClassVar[Counter[str]] = Counter()

    def make_subject(self) -> Subject:
        return ModelAsSubject()


EXAMPLES = settings().max_examples // 5
"""The number of examples that shows that the machine works. ``test_model_and_queue`` runs many
more.
"""
BesideItself.TestCase.settings = settings(max_examples=EXAMPLES, stateful_step_count=30, deadline=None)
TestBesideItself = pytest.mark.full(pytest.mark.timeout(4 * EXAMPLES)(BesideItself.TestCase))
