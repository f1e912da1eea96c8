"""What is appended to a ledger: a revision with what was read of it."""

from __future__ import annotations

from dataclasses import dataclass

from arkqueue.model import Revision, Workflow


@dataclass(frozen=True, slots=True)
class Entry:
    """A revision that is to be appended, with its parsed workflow files and its tree difference to the previous ledger revision."""

    revision: Revision
    workflow: Workflow
    changed: tuple[str, ...] = ()
