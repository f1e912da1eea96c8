"""Guards, which a committer cannot remove: tasks that an archive's settings hold whatever the
workflow file says (design 5.22).

A guarded task is one whose name matches a glob of ``require_approval``, or that was held by such a
glob (``BY_A_GUARD``). To release it, and to cancel, skip, waive, retry, delete or leave it out,
takes an `Approver`: somebody with a token of scope `approve`. With ``approval_not_author``, the
token stands for persons, and none of them may be the author of the revision.

``workflow_authors`` is the other half: if anybody else changes workflow files, and so could rename
a task, the run is held (``WorkflowGuard``).

Called by planning and by the verbs that act on tasks. docs/queue.md says what is not guarded, such
as a script that an approved command calls.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from arkqueue.archive_settings import read_settings
from arkqueue.db.session import Session
from arkqueue.errors import Conflict, Forbidden
from arkqueue.model import Workflow
from arkqueue.names import task_name
from arkqueue.plan.entry import Entry
from arkqueue.plan.globs import is_guarded, matches
from arkqueue.plan.ledger import BY_A_GUARD, BY_WORKFLOW_AUTHORS
from arkqueue.queue.content import files_of
from arkqueue.queue.done import Refused
from arkqueue.queue.graph import Graph

NO_FILES: Final = files_of(Workflow())
"""The digest of a revision without workflow files. The author of the first files has written them all."""
_EMAIL = re.compile(r"<([^<>]+)>\s*$")


@dataclass(frozen=True, slots=True)
class Approver:
    """A caller who may act on guarded tasks. ``persons``: the persons for whom the token stands, as
    the authors of revisions are written; empty: for no particular person.
    """

    persons: tuple[str, ...] = ()

    def is_author(self, author: str) -> bool:
        """True if one of these persons is this author: by the whole text, or by the address or the
        name in it.
        """
        return not _spellings(author).isdisjoint(spelling for person in self.persons for spelling in _spellings(person))


class WorkflowGuard:
    """Judges the workflow files of a branch's new revisions, one after the other (design 5.22,
    ``workflow-authors``).

    Files that were accepted before need no release. A change by one of the ``authors`` to accepted
    files is accepted. Anything else is refused, also an author's change to files that somebody else
    changed and nobody has accepted. A change is what differs from the revision's parent, which after
    a merge or a rewrite of a Git branch is not the ledger's previous revision. ``accepted``: the
    digest (``files_of``) of the files that were accepted last. ``is_clean``: True if the previous
    revision had accepted files.
    """

    def __init__(self, authors: Sequence[str], accepted: bytes | None, *, is_clean: bool) -> None:
        self._authors = [glob.casefold() for glob in authors]
        self.accepted, self._is_clean = accepted, is_clean

    def refuses(self, entry: Entry, previous: str | None) -> bool:
        """True if the files of the next revision have to be released first. ``previous``: the id of
        the ledger's revision before it.
        """
        if entry.revision.parent not in ("", previous):
            self._is_clean = entry.parent is not None and files_of(entry.parent) in (self.accepted, NO_FILES)
        is_theirs = self._is_clean and any(
            matches(self._authors, spelling) for spelling in _spellings(entry.revision.author)
        )
        if is_theirs:
            self.accepted = files_of(entry.workflow)
        return self.refuses_baseline(entry.workflow)

    def refuses_baseline(self, workflow: Workflow) -> bool:
        """True if the files with which a ledger begins have to be released first. Its author may have
        changed none of them.
        """
        self._is_clean = files_of(workflow) == self.accepted
        return not self._is_clean


def unapproved(
    source: Session | Graph, tasks: Collection[int], approver: Approver | None
) -> Iterator[tuple[int, Conflict]]:
    """The guarded tasks, of some, on which an approver may not act, each with the reason.
    ``approver`` None: a caller without the scope `approve`.
    """
    for row in source.rows("guarded", tasks=list(tasks)) if tasks else ():
        if row.hold_id not in (BY_A_GUARD, BY_WORKFLOW_AUTHORS) and not _is_guarded(row):
            continue
        here = task_name(row)
        guard = "workflow-authors" if row.hold_id == BY_WORKFLOW_AUTHORS else "require-approval"
        if why := _why_not(here, row, approver, guard, row.changers or (), row.definer):
            yield row.id, why


def refuse_unapproved(source: Session | Graph, tasks: Sequence[int], approver: Approver | None) -> None:
    """Raise `Forbidden` if one of the tasks is guarded and the caller may not act on it."""
    for _, why in unapproved(source, tasks, approver):
        raise Forbidden(why.thing, why.fault, why.remedy)


def refusals(source: Session | Graph, tasks: Collection[int], approver: Approver | None) -> list[Refused]:
    """The refusals of a verb on many tasks: the guarded tasks on which the caller may not act. The
    verb acts on the others (design 5.33).
    """
    return [
        Refused(task, Forbidden(why.thing, why.fault, why.remedy)) for task, why in unapproved(source, tasks, approver)
    ]


def hold_again(graph: Graph, back: Collection[int], reopened: Collection[int]) -> None:
    """Hold those of the tasks that came ``back`` to work which need a release: guarded tasks that
    nobody has released and, in an archive on hold, the tasks whose run, or item, has not begun.

    ``reopened``: the tasks that came back because of another task. They are held, too, if a guard
    was set after they had been skipped.
    """
    graph.do("hold_again", tasks=list(back))
    rows = graph.rows("guarded", tasks=list(reopened)) if reopened else ()
    guarded = [row.id for row in rows if (row.hold_id, row.release_id) == (None, None) and _is_guarded(row)]
    if guarded:
        graph.hold(guarded, BY_A_GUARD)


def refuse_left_out(here: str, row: Any, left_out: Collection[str], approver: Approver | None) -> None:
    """Raise `Forbidden` if a run by hand leaves out guarded tasks on which its tasks depend.
    ``row``: the row of its revision, from ``revision_at``.
    """
    globs = read_settings(row.settings, row.archive).require_approval
    for name in sorted(left_out):
        if is_guarded(globs, name) and (why := _why_not(here, row, approver)):
            raise Forbidden(here, f"would leave out {name}: {why.fault}", why.remedy)


def _is_guarded(row: Any) -> bool:
    """True if the guards of its archive name a task. ``row``: from ``guarded``."""
    globs = read_settings(row.settings, row.archive).require_approval
    return is_guarded(globs, row.name, is_empty_report=row.is_empty_report)


def _why_not(
    here: str,
    row: Any,
    approver: Approver | None,
    guard: str = "require-approval",
    changers: Sequence[str] = (),
    definer: str | None = None,
) -> Conflict | None:
    """Why an approver may not act on a guarded task; None if the approver may. ``changers``: who
    changed its workflow files since they were last accepted. ``definer``: the author of the
    revision from which a backfill took its definition.
    """
    if approver is None:
        return Conflict(here, f"is guarded by {guard}", "ask somebody with a token of scope approve")
    if not read_settings(row.settings, row.archive).approval_not_author:
        return None
    guarded = f"is guarded by {guard}{' ' if guard == 'require-approval' else ' and '}--not-author"
    if not approver.persons:
        remedy = "use a token of a person: arkqueue token create --scope approve --author NAME (for a sign-in by OpenID Connect, the administrator sets [[openid.persons]])"
        return Conflict(here, f"{guarded}, and your token or sign-in names no person", remedy)
    if not all(_spellings(author) for author in (row.author, definer) if author is not None):
        remedy = f"give the revision an author in the repository, or let authors approve: arkqueue archive set {row.archive} require-approval GLOB (without --not-author)"
        return Conflict(here, f"{guarded}, and its revision has no author to compare a person with", remedy)
    if approver.is_author(row.author):
        whom = "the author of its revision"
    elif definer is not None and approver.is_author(definer):
        whom = "the author of the revision whose workflow files its backfill has"
    elif any(map(approver.is_author, changers)):
        whom = "somebody who changed its workflow files since they were accepted"
    else:
        return None
    return Conflict(here, f"{guarded}, and you are {whom}", "ask another person with a token of scope approve")


def _spellings(person: str) -> set[str]:
    """The spellings of an author: the whole text, the address in brackets, and the name before it."""
    whole = " ".join(person.split()).casefold()
    found = _EMAIL.search(whole)
    return {whole, found[1], whole[: found.start()].strip()} - {""} if found else {whole} - {""}
