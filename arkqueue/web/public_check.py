"""The finding of `arkqueue doctor` about the setting ``public``: a name that no archive has."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Final

from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.text import similar
from arkqueue.views.doctor import Checked, Diagnosis, Finding

NAME: Final = "public"
RULE: Final = "Each name in public is that of an archive."


def with_public(diagnosis: Diagnosis, session: Session, configuration: Configuration) -> Diagnosis:
    """A diagnosis of the database, and the names in ``public`` that no archive has."""
    if not configuration.public:
        return diagnosis
    since = time.perf_counter()
    found = [
        Finding(check=NAME, archive=None, name=NAME, task=None, run=None, what=what, remedy=remedy)
        for what, remedy in _unknown(session, configuration.public)
    ]
    checked = Checked(check=NAME, rule=RULE, seconds=time.perf_counter() - since, found=len(found), more=False)
    return Diagnosis(findings=[*diagnosis.findings, *found], checks=[*diagnosis.checks, checked])


def _unknown(session: Session, public: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The names that no archive has, removed ones included, each with the fault and the remedy."""
    known = [row.name for row in session.rows("archive_names")]
    for name in public:
        if name not in known and not session.rows("archives_named", name=name):
            near = similar(name, known, 1)
            meant = f"Did you mean {near[0]}? " if near else ""
            yield (
                f"it names {name}, which no archive is called",
                f"{meant}Correct it in the configuration and restart arkqueue serve, or add the archive.",
            )
