"""Resolves names that people type to ids (design 8).

- The archive: the watched one with this name; otherwise the one that had the name until it was
  removed. An archive that was removed before another got its name is called NAME~1, NAME~2, ….
- The branch: the main one. For a revision that is named by ``g`` and the beginning of a SHA, and
  that the main branch does not have: the only branch that has it.
- The revision: a number of the ledger, or ``g`` and the beginning of a SHA. Of a commit that was
  appended twice, the later entry.
- The run: the named one; otherwise the commit run.

The error for an unknown name suggests the nearest known one.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from arkqueue.db.session import Session
from arkqueue.errors import Invalid, NotFound, WasPurged
from arkqueue.model import ArchiveId, BranchId, RunId, TaskId
from arkqueue.names import (
    COMMIT_RUN,
    EVERY_TASK,
    FILL,
    Name,
    gate_in_words,
    is_list,
    list_name,
    parse_name,
    run_name,
)
from arkqueue.plan.edges import EVERYTHING
from arkqueue.text import similar
from arkqueue.views.lists import has_list

RETIRED = "rewound~"
"""The beginning of the name of a branch that keeps the history from before a rewind."""


@dataclass(frozen=True, slots=True)
class Place:
    """A revision in the ledger, found from a name before its run or task. ``id``: the revision's
    id.
    """

    archive: ArchiveId
    branch: BranchId
    id: int
    number: int
    revision: str


def find_archive(session: Session, name: str) -> ArchiveId:
    """The archive with a name: the watched one; if there is none, a removed one."""
    found = session.rows("archives_named", name=name)
    if not found:
        names = [row.name for row in session.rows("archive_names")]
        raise NotFound(f"archive {name}", "does not exist", _nearest(name, names, "There are"))
    return ArchiveId(found[0].id)


def find_branch(session: Session, archive: ArchiveId, name: str | None, shown: str) -> BranchId:
    """The branch with a name; None: the main branch. ``shown``: the archive's name in messages."""
    rows = session.rows("branches_named", archive=archive)
    chosen = next((row for row in rows if (row.main if name is None else row.name == name)), None)
    if chosen is None:
        names = [row.name for row in rows if row.name]
        if name is None:
            raise no_main_branch(shown, names)
        raise NotFound(f"archive {shown}", f"has no branch {name!r}", _nearest(name, names, "It has"))
    return BranchId(chosen.id)


def no_main_branch(archive: str, names: Sequence[str]) -> NotFound:
    """The error for an archive without a main branch."""
    if names:
        return NotFound(
            f"archive {archive}", "has no main branch", f"Name one of its branches: {', '.join(names[:20])}."
        )
    remedy = f"Track one: arkqueue archive set {archive} --branch GLOB"
    return NotFound(f"archive {archive}", "no branch of it is tracked", remedy)


def resolved(session: Session, name: Name) -> Name:
    """A name by the sender's id of a submission, turned into a name by a revision. Raises
    ``NotFound`` if the submission does not exist, or its run was purged.
    """
    if name.sender_id is None:
        return name
    whole = replace(name, task=None, item="")
    if name.branch is not None:
        fault = "names a branch, and a submission's id is one of the whole archive"
        raise Invalid(str(whole), fault, f"Leave it out: {replace(whole, branch=None)}")
    archive = find_archive(session, name.archive)
    for row in session.rows("submission_named", archive=archive, sender=name.sender_id):
        if row.at is not None:
            raise WasPurged(
                str(whole), f"was handled: it was submitted on {at(row.made_at)}, and {purged(row)}", row.by
            )
        (run,) = session.rows("place_of_run", run=row.run_id)
        return replace(name, revision=str(run.number), run=run.run, branch=None if run.main else run.branch)
    raise NotFound(str(whole), f"nothing was submitted to {name.archive} with this id")


def find_revision(session: Session, archive: ArchiveId, name: Name) -> Place:
    """The revision that a name names."""
    name = resolved(session, name)
    if name.revision.startswith(FILL):
        fault = "is the name of a backfill, and here one of its runs is wanted"
        raise Invalid(
            str(name), fault, f"See which there are: arkqueue show {replace(name, run=None, task=None, item='')}"
        )
    if name.branch is not None or not name.revision.startswith("g"):
        branch = find_branch(session, archive, name.branch, name.archive)
        found = _revisions(session, [branch], name)
    else:
        branches = [row.id for row in session.rows("branches_named", archive=archive)]
        branch = BranchId(branches[0]) if branches else find_branch(session, archive, None, name.archive)
        found = _revisions(session, branches, name)
        found = [row for row in found if row.branch_id == branch] or found
    if not found:
        raise _no_revision(session, archive, branch, name)
    if len({(row.branch_id, row.name) for row in found}) > 1:
        some = ", ".join(sorted({row.name for row in found})[:5])
        raise Invalid(str(name), f"may mean several revisions: {some}", "Give more of the id, or the branch.")
    row = found[0]
    return Place(archive, BranchId(row.branch_id), row.id, row.number, row.name)


def find_run(session: Session, text: str | Name) -> RunId:
    """The run that a name names."""
    name = resolved(session, parse_name(text) if isinstance(text, str) else text)
    place = find_revision(session, find_archive(session, name.archive), name)
    rows = session.rows("runs_of_revision", branch=place.branch, number=place.number)
    wanted = name.run or COMMIT_RUN
    for row in rows:
        if row.run == wanted:
            return RunId(row.id)
    _refuse_purged(session, place, name)
    newest = f"The newest is {rows[0].run}." if rows else ""
    raise NotFound(str(name), f"does not exist: this revision has no run {wanted}", newest)


def _refuse_purged(session: Session, place: Place, name: Name) -> None:
    """Raise ``WasPurged`` if the named run was purged."""
    for row in session.rows("purges_of_revision", branch=place.branch, number=place.number):
        if row.run == (name.run or COMMIT_RUN):
            raise WasPurged(str(name), purged(row), row.by)


def purged(row: Any) -> str:
    """The clause on when, by whom and why a run was purged. ``row``: the entry of the audit log."""
    reason = f", because {row.note}" if row.note else ""
    return f"was purged on {at(row.at)} by {row.by}{reason}"


def at(moment: datetime) -> str:
    """A time, as it stands in a sentence."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def find_task(session: Session, text: str | Name) -> TaskId:
    """The task that a name names."""
    name = parse_name(text) if isinstance(text, str) else text
    if name.task is None:
        raise Invalid(str(name), "is the name of a run, not of a task", f"Write {name}/TASK.")
    if isinstance(text, str) and is_list(text):
        whole = replace(name, item="")
        raise Invalid(
            text,
            "is the name of a list, and here a task is wanted",
            f"Write {whole}/KEY: arkqueue show {replace(whole, task=None)} --items",
        )
    if name.task == EVERY_TASK:
        raise _no_single_task(name)
    name = resolved(session, name)
    place = find_revision(session, find_archive(session, name.archive), name)
    found = session.rows("tasks_named", branch=place.branch, name=name.task, number=place.number, item=name.item)
    chosen = [row for row in found if row.run == (name.run or COMMIT_RUN)]
    if not chosen and str(name.task).startswith(EVERYTHING):
        gates = session.rows("gates_of_run", run=find_run(session, replace(name, task=None, item="")))
        chosen = [gate for gate in gates if gate_in_words(gate.name) == name.task]
    if not chosen:
        if name.run is not None:
            find_run(session, name)
        _refuse_purged(session, place, name)
        raise no_task(session, place, name)
    return TaskId(chosen[0].id)


def _no_single_task(name: Name) -> Invalid:
    """The error for ``RUN/*`` or ``RUN/*/KEY`` where one task is needed."""
    run = replace(name, task=None, item="")
    if not name.item:
        return Invalid(
            f"{run}/{EVERY_TASK}",
            "lacks the key of an item",
            f"Write {run}/{EVERY_TASK}/KEY, or {run} for the whole run.",
        )
    return Invalid(
        str(name),
        "is the name of an item, and here a task is wanted",
        f"Name a task of it: arkqueue show {run} --items",
    )


def find_item(session: Session, name: Name) -> RunId:
    """The run of an item that ``RUN/*/KEY`` names. Raises ``NotFound`` if the run has no task for
    the item.
    """
    name = resolved(session, name)
    run = find_run(session, name)
    if not session.rows("has_item", run=run, item=name.item):
        where = replace(name, task=None, item="")
        raise NotFound(
            str(name), f"{where} has no item {name.item!r}", f"See what it has: arkqueue show {where} --items"
        )
    return run


def check_list(session: Session, run: RunId, name: str) -> None:
    """Raise ``NotFound`` if no task of this name has a list in a run."""
    if not has_list(session, run, name):
        here = list_name(name_of_run(session, run), name)
        raise NotFound(here, "is not a list of this run", f"arkqueue show {here.partition('/')[0]} --items")


def name_of_run(session: Session, run: RunId) -> str:
    """The name of a run."""
    return run_name(session.rows("place_of_run", run=run)[0])


def no_task(session: Session, place: Place, name: Name) -> NotFound:
    """The error for a task that a revision, or the named run, does not have."""
    where = str(replace(name, task=None, item=""))
    own = own_names(session, place, name.run or COMMIT_RUN)
    found = in_another_run(session, place, name, own)
    elsewhere = f"Another run has it: {found}." if found else ""
    if name.item and name.task in own and not elsewhere:
        fault = f"{replace(name, item='')} has no item {name.item!r}"
        return NotFound(str(name), fault, f"See what it has: arkqueue show {where} --items")
    if not name.item and name.task in own and not elsewhere:
        fault = "is a list: it has a task for each item of its list"
        remedy = f"Write {name}/KEY for one of them, or '{name}/{EVERY_TASK}' for all. See what it has: arkqueue show {where} --items"
        return NotFound(str(name), fault, remedy)
    remedy = elsewhere or _nearest(name.task or "", own, "It has")
    return NotFound(str(name), f"{where} has no task {name.task!r}", remedy)


def in_another_run(session: Session, place: Place, name: Name, own: Sequence[str]) -> str | None:
    """The name of a task or a list in the newest run of its revision that has it. ``own``: the tasks
    of the named run. If a list is one of them, this is None.
    """
    found = session.rows("tasks_named", branch=place.branch, name=name.task, number=place.number, item=name.item)
    may_be_list = not found and name.task is not None and name.item in ("", EVERY_TASK) and name.task not in own
    if may_be_list:
        found = session.rows("runs_with_list", branch=place.branch, number=place.number, name=name.task)
    if not found:
        return None
    there = replace(name, run=None if found[0].run == COMMIT_RUN else found[0].run)
    return list_name(str(replace(there, task=None, item="")), name.task or "") if may_be_list else str(there)


def own_names(session: Session, place: Place, run: int | None) -> list[str]:
    """The names of the ordinary tasks of a revision, or of one of its runs."""
    return [row.name for row in session.rows("task_names_at", branch=place.branch, number=place.number, run=run)]


def check_task_name(session: Session, branch: BranchId, task: str, shown: str) -> None:
    """Raise ``NotFound`` for a task that no revision of a branch ever had. ``shown``: the archive's
    name in messages.
    """
    names = [row.name for row in session.rows("task_names_ever", branch=branch)]
    if task not in names:
        raise NotFound(f"archive {shown}", f"never had a task {task!r}", _nearest(task, names, "It had"))


def _revisions(session: Session, branches: Sequence[int], name: Name) -> list[Any]:
    by_id = name.revision.startswith("g")
    return session.rows(
        "revisions_with",
        branches=list(branches),
        number=None if by_id else _number(name),
        prefix=name.revision[1:].lower() if by_id else None,
    )


def _number(name: Name) -> int:
    if len(name.revision) > 18:
        raise NotFound(str(name), "no ledger has so many revisions")
    return int(name.revision)


def _no_revision(session: Session, archive: ArchiveId, branch: BranchId, name: Name) -> NotFound:
    head = session.rows("head_revision", branch=branch)
    if name.branch is None and (retired := _in_a_retired_branch(session, archive, name)):
        return NotFound(str(name), "is not in the ledger, which was rewound", f"What was before is {retired}.")
    if earlier := _in_a_removed_archive(session, name):
        fault = f"is not in the ledger of the archive that is called {name.archive} now"
        return NotFound(str(name), fault, f"The one that was removed has it: {earlier}.")
    if not head:
        return NotFound(str(name), "the branch has no revision yet", f"Look for some: arkqueue sync {name.archive}")
    newest = f"the newest is {head[0].number}"
    if name.revision.startswith("g") or int(name.revision) > head[0].number:
        return NotFound(str(name), f"is not in the ledger; {newest}", f"Look for more: arkqueue sync {name.archive}")
    near = [str(row.number) for row in session.rows("nearest_revisions", branch=branch, number=int(name.revision))]
    return NotFound(str(name), "is not in the ledger", f"The nearest: {', '.join(near)}." if near else "")


def _in_a_retired_branch(session: Session, archive: ArchiveId, name: Name) -> Name | None:
    """The name of a revision that the main branch had before its ledger was last rewound; None if
    there is none.
    """
    rows = session.rows("branches_named", archive=archive)
    retired = {row.id: row.name for row in rows if row.name.startswith(RETIRED)}
    found = _revisions(session, list(retired), name) if retired else []
    newest = max(found, key=lambda row: row.branch_id, default=None)
    return replace(name, branch=retired[newest.branch_id]) if newest else None


def earlier_one(session: Session, archive: ArchiveId, name: Name) -> Name | None:
    """The revision of the same number in the newest ledger from before a rewind; None for a name
    with a branch or an id.
    """
    if name.branch is not None or name.revision.startswith("g"):
        return None
    return _in_a_retired_branch(session, archive, name)


def _in_a_removed_archive(session: Session, name: Name) -> Name | None:
    """The name of a revision of a removed archive whose name another archive has now; None if there
    is none.
    """
    for row in session.rows("archives_renamed", name=name.archive):
        earlier = replace(name, archive=row.name)
        with suppress(NotFound):
            find_revision(session, ArchiveId(row.id), earlier)
            return earlier
    return None


def _nearest(word: str, names: Sequence[str], have: str) -> str:
    # The given name itself is no suggestion, whatever else was wrong with it.
    if near := similar(word, [name for name in names if name != word]):
        return f"Did you mean {' or '.join(near)}?"
    return f"{have}: {', '.join(names[:20])}." if names else ""
