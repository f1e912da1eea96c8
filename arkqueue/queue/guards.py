"""What a committer cannot take away: tasks that an archive's settings hold whatever the workflow file says (design 5.22, ``require-approval``).

A guarded task is one whose name matches a glob of ``require_approval``, or that was held by such a glob (``BY_A_GUARD``). To release it, and to cancel, skip, waive, retry,
delete or leave it out, takes an `Approver`: somebody with a token of scope `approve`. With ``approval_not_author`` the token stands for persons, none of whom is the author
of the revision.

Called by the verbs that act on tasks. What is not guarded stands in docs/operations.md: a task that is renamed, and a script that an approved command calls.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from arkqueue.db.session import Session
from arkqueue.errors import Conflict, Forbidden
from arkqueue.names import name_of
from arkqueue.plan.globs import matches
from arkqueue.plan.ledger import BY_A_GUARD
from arkqueue.queue.graph import Graph

_EMAIL = re.compile(r"<([^<>]+)>\s*$")


@dataclass(frozen=True, slots=True)
class Approver:
    """Who may act on guarded tasks. ``persons``: whom the token stands for, as the authors of revisions are written; none: nobody in particular."""

    persons: tuple[str, ...] = ()

    def is_author(self, author: str) -> bool:
        """Whether one of these persons is an author: by the whole text, or by the address or the name before it."""
        return not _spellings(author).isdisjoint(spelling for person in self.persons for spelling in _spellings(person))


def unapproved(
    source: Session | Graph, tasks: Collection[int], approver: Approver | None
) -> Iterator[tuple[int, Conflict]]:
    """The guarded ones of some tasks on which an approver (None: somebody without the scope) may not act, and why."""
    for row in source.rows("guarded", tasks=list(tasks)) if tasks else ():
        if row.hold_id != BY_A_GUARD and not matches(row.globs or (), row.name):
            continue
        here = str(name_of(row.archive, row.number, row.run, row.name, branch=row.branch, main=row.main, item=row.item))
        if why := _why_not(here, row, approver):
            yield row.id, why


def refuse_unapproved(session: Session, tasks: Sequence[int], approver: Approver | None) -> None:
    """Raise `Forbidden` where one of the tasks is guarded and the caller may not act on it."""
    for _, why in unapproved(session, tasks, approver):
        raise Forbidden(why.thing, why.fault, why.remedy)


def refuse_left_out(here: str, row: Any, left_out: Collection[str], approver: Approver | None) -> None:
    """Raise `Forbidden` where a run by hand leaves out guarded tasks, on which its tasks depend. ``row``: the revision's, of ``revision_at``."""
    for name in sorted(left_out):
        if matches(row.guards or (), name) and (why := _why_not(here, row, approver)):
            raise Forbidden(here, f"would leave out {name}: {why.fault}", why.remedy)


def _why_not(here: str, row: Any, approver: Approver | None) -> Conflict | None:
    if approver is None:
        return Conflict(here, "is guarded by require-approval", "ask somebody with a token of scope approve")
    if row.not_author and not approver.persons:
        fault = "is guarded by require-approval --not-author, and this token stands for nobody"
        return Conflict(here, fault, "use one that does: arkqueue token create --scope approve --author NAME")
    if row.not_author and approver.is_author(row.author):
        fault = "is guarded by require-approval --not-author, and this token stands for the author of its revision"
        return Conflict(here, fault, "ask somebody else")
    return None


def _spellings(person: str) -> set[str]:
    """How an author may be written: the whole, the address in brackets, and what stands before it."""
    whole = " ".join(person.split()).casefold()
    found = _EMAIL.search(whole)
    return {whole, found[1], whole[: found.start()].strip()} - {""} if found else {whole} - {""}
