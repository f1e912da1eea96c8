"""The named SQL blocks of ``arkqueue/sql``, their guards made from the table of moves in ``states``."""

from __future__ import annotations

from arkqueue import states
from arkqueue.db.statements import load

SQL = load(states.expand)
