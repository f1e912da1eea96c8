"""Submissions as people and their senders see them, also after their runs were purged (design
5.31).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from arkqueue.db.session import Session
from arkqueue.errors import NotFound
from arkqueue.model import ArchiveId, PayloadKind, RunId
from arkqueue.names import run_name, submission_name
from arkqueue.plan import matches_branch
from arkqueue.views.find import purged
from arkqueue.views.rows import view_of
from arkqueue.views.runs import RunView, views_of_runs


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionView:
    """A submission. ``full_name``, ``id``: the name and id that its sender gave; None: none.
    ``digest``: the SHA-256 of its payload; ``size``: its bytes. ``run``: None after a purge;
    ``purged`` then says when and by whom.

    ``attachments``: the number of its attached files, ``attached``: their bytes; ``upload``: the id
    by which they are listed. After a purge there are none. ``note``: a warning that the newest
    commits may be missing in its run, given once; or, in the answer to a repetition, when it was
    submitted.
    """

    full_name: str | None
    id: str | None
    kind: PayloadKind
    size: int
    digest: str
    by: str
    made_at: datetime
    run: RunView | None
    purged: str | None
    attachments: int
    attached: int
    upload: int | None
    note: str


def submission(session: Session, archive: ArchiveId, name: str, sender_id: str) -> SubmissionView:
    """The submission with a sender's id. ``name``: the archive's name."""
    for row in session.rows("submission_named", archive=archive, sender=sender_id):
        return _view(session, row, name, "")
    raise NotFound(submission_name(name, sender_id), f"nothing was submitted to {name} with this id")


def submission_of(session: Session, run: RunId, name: str, note: str = "") -> SubmissionView:
    """The submission for which a run was made; the run may be purged by now."""
    for row in session.rows("submission_of_run", run=run):
        return _view(session, row, name, note)
    (place,) = session.rows("place_of_run", run=run) or [None]
    here = run_name(place) if place else f"run {run}"
    raise NotFound(here, "was made for no submission", "Name a run that `arkqueue submit` has made.")


@dataclass(frozen=True, slots=True)
class ForSubmissions:
    """The part of a branch's newest revision for submissions. ``tasks``: their names. ``schema``:
    the file that judges payloads; empty: none. ``may_be_triggered``: True if the revision has tasks
    that run by hand.
    """

    tasks: list[str]
    schema: str
    may_be_triggered: bool = False


def for_submissions(session: Session, archive: ArchiveId, branch: str | None) -> ForSubmissions:
    """The part of a branch for submissions; ``branch`` None: the main branch. Empty if the branch
    has no revision.
    """
    for row in session.rows("for_submissions", archive=archive, branch=branch):
        tasks = [
            str(name)
            for name, globs in zip(row.names, row.globs, strict=True)
            if matches_branch(tuple(globs), row.branch)
        ]
        return ForSubmissions(tasks, row.schema or "", row.may_be_triggered)
    return ForSubmissions([], "")


def _view(session: Session, row: Any, name: str, note: str) -> SubmissionView:
    return view_of(
        row,
        SubmissionView,
        full_name=None if row.sender_id is None else submission_name(name, row.sender_id),
        id=row.sender_id,
        kind=PayloadKind(row.kind),
        by=row.submitter,
        run=None if row.at is not None else views_of_runs(session, [row.run_id])[0],
        purged=None if row.at is None else purged(row),
        attachments=row.files or 0,
        attached=row.bytes or 0,
        note=note,
    )
