"""Purges by age (design 5.27): how long an archive keeps its runs, by their states, and logs alone,
as set by ``archive set NAME keep …`` and ``keep-logs``.

A pass goes through an archive's runs from the oldest one on, a page at a time, and ends at the
first run that is too young for all rules. So its cost depends on the number of old runs that still
exist. Each step of a pass is one batch of a purge, which locks the archive for less than a second.
The queue manager takes the steps in the background. A person takes all of them with
``arkqueue purge ARCHIVE``. The next pass judges the kept runs again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from arkqueue.archive_settings import read_settings
from arkqueue.db.session import Session
from arkqueue.errors import Conflict, DatabaseUnavailable
from arkqueue.keeping import Rules, rules
from arkqueue.model import ArchiveId
from arkqueue.names import run_name
from arkqueue.queue import purge
from arkqueue.queue.changes import TOO_LONG
from arkqueue.queue.graph import Graph
from arkqueue.queue.purge import Exporter
from arkqueue.queue.purge_batch import Gone, Kept
from arkqueue.queue.removal import check_reason, remove_old_logs
from arkqueue.states import SETTLED, RunState, run_state

log = logging.getLogger("arkqueue")

PAGE = 500
"""The runs that one step reads."""
LONGEST = 60.0
"""The seconds for which one command of a person works. The next command continues."""
EVERY = 3600.0
"""The seconds between two passes of a queue manager."""
PAUSE = 0.1
"""The seconds between two steps of a queue manager, in which others can lock the archive."""
LONGEST_ENTRY = 300.0
"""The seconds for which one entry of the audit log is used for removals. `doctor` takes an older
one for a removal that was interrupted.
"""
WHO = "the queue manager"
"""The name in the audit log for purges by age."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgedRun:
    """A run that a purge by age removes: its name, and the time at which it was made."""

    run: str
    created_at: datetime


@dataclass(slots=True)
class PurgedByAge:
    """The result of a purge by age: the names of the purged runs, the runs that were kept, and the
    number of attempts that lost their logs.

    ``gone``: the runs that another purge has removed in the meantime. ``oldest`` and ``newest``:
    the purged runs that were made first and last. ``is_whole``: all runs were judged; False: the
    time for one command was over.
    """

    runs: list[str] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    logs: int = 0
    is_whole: bool = True
    oldest: AgedRun | None = None
    newest: AgedRun | None = None
    gone: list[Gone] = field(default_factory=list)

    def add(self, step: PurgedByAge) -> None:
        """Add the result of one step."""
        self.runs += step.runs
        self.kept += step.kept
        self.logs += step.logs
        self.gone += step.gone
        ends = [run for run in (self.oldest, self.newest, step.oldest, step.newest) if run is not None]
        if ends:
            self.oldest = min(ends, key=_made)
            self.newest = max(ends, key=_made)


def _made(run: AgedRun) -> datetime:
    return run.created_at


def purge_by_age(
    session: Session,
    archive: ArchiveId,
    by: str,
    reason: str = "",
    export: Exporter | None = None,
    *,
    dry_run: bool = False,
    longest: float | None = LONGEST,
) -> PurgedByAge:
    """Purge the runs that an archive keeps no longer. ``longest``: the seconds for which it works;
    None: until all runs are judged.

    ``dry_run``: everything is rolled back. A purge in the session of a rehearsal is rolled back
    with the rehearsal.
    """
    check_reason(reason)
    (row,) = session.rows("archive", archive=archive)
    found = rules(read_settings(row.settings, row.name))
    if not dry_run:
        purge.sweep(session)
    if found is None:
        raise Conflict(
            f"archive {row.name}",
            "keeps everything",
            f"Say for how long: arkqueue archive set {row.name} keep completed=30d",
        )
    done, until = PurgedByAge(), None if longest is None else time.monotonic() + longest
    with session.rehearsal(archive) if dry_run else nullcontext(session) as acting:
        for step in _steps(acting, archive, found, by, reason or found.text, export):
            done.add(step)
            if acting.is_over or (until is not None and time.monotonic() > until):
                done.is_whole = False
                break
    return done


class Retention:
    """Lets a queue manager purge by age, one step at a time. ``turn`` returns the seconds until the
    next step is due.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._steps = self._pass()

    def turn(self) -> float:
        """Take a step of the present pass."""
        try:
            for _ in self._steps:
                return PAUSE
        except DatabaseUnavailable:
            self._steps = self._pass()
            raise
        self._steps = self._pass()
        return EVERY

    def _pass(self) -> Iterator[PurgedByAge]:
        """The steps for all archives. An archive that is busy, or has an unreadable row, is skipped
        until the next pass.
        """
        purge.sweep(self._session)
        for row in self._session.rows("archives_with_rules"):
            try:
                found = rules(read_settings(row.settings, row.name))
                if found is not None:
                    yield from _steps(self._session, row.id, found, WHO, found.text)
            except TOO_LONG as error:
                log.warning("what the archive %s keeps no longer is purged later: %s", row.name, error)
            except DatabaseUnavailable:
                raise
            except Exception:
                log.exception("what the archive %s keeps no longer could not be purged", row.name)


def _steps(
    session: Session, archive: int, rules: Rules, by: str, reason: str, export: Exporter | None = None
) -> Iterator[PurgedByAge]:
    after, entries = 0, _Entries()
    while page := session.rows("page_of_runs_by_age", archive=archive, after=after, age=rules.youngest, limit=PAGE):
        after, old = page[-1].id, [row.id for row in page if row.is_old]
        if rules.runs and old:
            made: dict[str, datetime] = {}
            judge = partial(_aged, ages=rules.runs, now=page[0].now, made=made)
            kept: list[Kept] = []
            aged = judge(session, old)
            for purged in purge.purging(session, archive, aged, by, reason, export, entries.of_runs(), judge):
                kept = purged.kept
                yield _step([AgedRun(run=run, created_at=made[run]) for run in purged.runs], purged.gone)
            if kept:
                yield PurgedByAge(kept=kept)
        if rules.logs is not None and old:
            logs = remove_old_logs(session, archive, old, rules.logs, by, reason, entries.of_logs())
            yield PurgedByAge(logs=logs)
        if not page[-1].is_old:
            return


def _step(runs: Sequence[AgedRun], gone: list[Gone]) -> PurgedByAge:
    oldest, newest = min(runs, key=_made, default=None), max(runs, key=_made, default=None)
    return PurgedByAge([run.run for run in runs], oldest=oldest, newest=newest, gone=gone)


def _aged(
    session: Session | Graph,
    runs: Sequence[int],
    ages: Mapping[RunState, timedelta],
    now: datetime,
    made: dict[str, datetime],
) -> list[int]:
    """The given runs that have been in their state for too long, the oldest first. ``made``:
    receives the time at which each of them was made, by its name.
    """
    aged = []
    for row in session.rows("show_runs", runs=list(runs)):
        if row.unsettled or row.report_state not in (None, *SETTLED):
            continue
        state = run_state(row)
        since = row.deleted_at if state is RunState.DELETED else row.settled_at
        if state in ages and since is not None and now - since >= ages[state]:
            aged.append((row.number, row.run, row.id, ages[state]))
            made[run_name(row)] = row.created_at
    acts = {row.id: row.at for row in session.rows("last_acts", runs=[run for *_, run, _ in aged])} if aged else {}
    return [run for _, _, run, age in sorted(aged) if acts[run] is None or now - acts[run] >= age]


class _Entries:
    """The entries of the audit log for what is removed. Each is used for a limited time."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._runs: list[int] = []
        self._logs: list[int] = []

    def of_runs(self) -> list[int]:
        return self._runs

    def of_logs(self) -> list[int]:
        if time.monotonic() - self._since > LONGEST_ENTRY:
            self._since, self._logs = time.monotonic(), []
        return self._logs
