"""The outbox: judges the outcome of runs, and sends each receiver the notifications that it asked
for, at least once (design 15).

Changes of a graph record the runs that they moved, if the archive has receivers (``Graph.moved``).
``judge`` takes these runs, looks at the present state of each, and puts a delivery for each
receiver into the outbox, in one transaction that locks no archive. So no committed change is
forgotten, and a run that went on meanwhile is reported in its present state. ``choose`` returns the
next deliveries; the process that chose them records the results. If the process dies before that,
the deliveries count as not sent, and are chosen again.

A receiver gets the deliveries of a run in their order, one at a time. A receiver that does not
answer is tried again after growing pauses. Its other deliveries wait for that; other receivers are
not affected.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from arkqueue.archive_settings import read_settings
from arkqueue.config.receivers import address_of
from arkqueue.db import Connection
from arkqueue.db.session import Session, execute, rows
from arkqueue.errors import Conflict, NotFound
from arkqueue.model import AUTHOR, MAIL_WINDOW, MOST_MAILS, OF_BRANCH, Occasion
from arkqueue.plan import matches_branch
from arkqueue.states import RunState, run_state

log = logging.getLogger("arkqueue")

MOST_JUDGED = 200
"""The most runs that one transaction judges."""
MOST_TASKS = 5
"""The most tasks that a notification names. It gives the number of the others."""
LEAST_CARRIED, MOST_CARRIED = 5, 10_000
"""The least and most further notifications that one mail lists. If fewer wait, each gets a mail of
its own.
"""
MOST_OF_HOST = 4
"""The most deliveries to one host that are under way at once; mail counts as one host. So hosts
that hang leave room for others.
"""
PATIENCE = 24 * 3600.0
"""Seconds for which a delivery is tried."""
FIRST_PAUSE, LONGEST_PAUSE = 15.0, 3600.0
"""Seconds from a failed try to the next one: the first pause, which doubles each time, and the
longest.
"""
LEASE = 120.0
"""Seconds after which another process may send a chosen delivery; longer than any try takes."""
KEPT = 30 * 24 * 3600.0
"""Seconds for which ended deliveries are listed."""
MOST_FORGOTTEN = 1000

_JUDGES, _CHOOSES = 1, 2


@dataclass(frozen=True, slots=True)
class Delivery:
    """A notification on its way to one receiver. ``run``: 0 if it is about the archive.
    ``attempts``: the attempts of ``tasks``; None for a task without one.

    ``count``: the number of tasks that it is about. ``what``: the reason why the archive was
    stopped. ``carries``: the number of other deliveries that it lists as well.
    """

    id: int
    archive: int
    run: int
    occasion: Occasion
    receiver: str
    tasks: list[int]
    attempts: list[int | None]
    count: int
    what: str
    made_at: datetime
    tries: int
    carries: int = 0

    @property
    def name(self) -> str:
        """The name of this delivery for receivers, which ignore a name that they know. Each try has the same
        name, and no delivery of another installation, or after a restore of the database, has it: such
        a delivery may have the same ``id``, but was not made in the same microsecond.
        """
        return f"{self.id}-{self.made_at.astimezone(UTC):%Y%m%dT%H%M%S%f}"


@dataclass(frozen=True, slots=True)
class _News:
    """The news of a run or an archive. ``digest``: differs from that of other news of the same
    occasion.
    """

    occasion: Occasion
    digest: str
    tasks: Sequence[int] = ()
    attempts: Sequence[int | None] = ()
    count: int = 0
    what: str = ""


def judge(session: Session, patience: float = PATIENCE) -> bool:
    """Judge some runs that have moved, and put deliveries into the outbox. Returns whether there
    may be more runs.
    """

    def work(connection: Connection) -> tuple[bool, set[int]]:
        if not _is_first(connection, _JUDGES):
            return False, set()
        moved = rows(connection, "take_to_judge", most=MOST_JUDGED)
        posted = _judge(connection, moved, patience) if moved else set()
        return len(moved) == MOST_JUDGED, posted

    has_more, posted = session.retrying(work)
    session.changed(posted)
    return has_more


def _is_first(connection: Connection, work: int) -> bool:
    return bool(rows(connection, "lock_outbox", work=work))


def _judge(connection: Connection, moved: Sequence[Any], patience: float) -> set[int]:
    """Returns the archives of the new deliveries."""
    runs = sorted({row.run_id for row in moved if row.run_id})
    shown = {row.id: row for row in rows(connection, "show_runs", runs=runs)} if runs else {}
    failures = _by_run(connection, "failures_to_tell", runs)
    holds = _by_run(connection, "holds_to_tell", runs)
    completed = [run for run, row in shown.items() if run_state(row) is RunState.COMPLETED]
    good = _by_run(connection, "made_good", completed)
    was_faulty = {row.run_id for row in rows(connection, "faulty_before", runs=completed)} if completed else set()
    posted: set[int] = set()
    told = rows(connection, "told", archives=[row.archive_id for row in moved], runs=[row.run_id for row in moved])
    for known in told:
        run = known.run_id
        if run and run not in shown:
            continue  # the run was purged
        try:
            receivers = read_settings(known.settings, known.archive).notify
        except Conflict as error:  # the other archives get their notifications
            log.warning("nobody is notified: %s", error)
            continue
        if run:
            news = _news(known, shown[run], failures.get(run), holds.get(run), good.get(run), run in was_faulty)
        else:
            news = [_News(Occasion.STOPPED, known.stopped, what=known.stopped)] if known.stopped else []
        if _tell(connection, known, news, receivers, shown.get(run), patience):
            posted.add(known.archive_id)
    return posted


def _tell(
    connection: Connection,
    known: Any,
    news: Sequence[_News],
    receivers: Mapping[str, Sequence[str]],
    row: Any,
    patience: float,
) -> bool:
    """Put a delivery into the outbox for each receiver of news that differ from the last. ``known``:
    a row of ``told``. ``row``: the run; None: the news is about the archive. Returns whether there is
    a new delivery.

    A hold keeps the digest of the failures that were reported before, so that the end of the run
    does not report them again.
    """
    key = {"archive": known.archive_id, "run": known.run_id}
    occasion, digest, is_failed, is_posted = known.occasion, known.digest or "", known.is_failed, False
    if not news and occasion in (Occasion.HELD, Occasion.STOPPED):
        occasion, digest = None, digest if occasion == Occasion.HELD else ""
    for one in news:
        is_held, has_failed = one.occasion is Occasion.HELD, one.occasion is Occasion.FAILED
        is_again = known.occasion == one.occasion
        if is_held:
            is_new = not is_again
        else:
            is_new = digest != one.digest or not (is_again or has_failed)
        if is_new:
            is_posted |= _post(connection, key, one, receivers, row, patience)
        occasion, digest = str(one.occasion), digest if is_held else one.digest
        is_failed = has_failed or (is_failed and is_held)
    if (occasion, digest, is_failed) != (known.occasion, known.digest or "", known.is_failed):
        execute(connection, "tell", {**key, "occasion": occasion, "digest": digest, "is_failed": is_failed})
    return is_posted


def _post(
    connection: Connection,
    key: Mapping[str, int],
    news: _News,
    receivers: Mapping[str, Sequence[str]],
    row: Any,
    patience: float,
) -> bool:
    """Put a delivery into the outbox for each receiver of news about a run (``row``) or an archive.
    Returns whether there is a receiver.
    """
    wanted = _wanted(receivers, news.occasion, row.branch if row else "")
    author = address_of(row.author) if row else ""
    if not author or author.lower() in (receiver.lower() for receiver in wanted):
        # News of an archive has no author, a repository
        # may have no addresses, and one mail is enough.
        wanted.pop(AUTHOR, None)
    if wanted:
        post = {"tasks": list(news.tasks), "attempts": list(news.attempts), "count": news.count, "what": news.what}
        told_to = {"receivers": list(wanted), "occasions": [str(occasion) for occasion in wanted.values()]}
        execute(connection, "post", {**key, **post, **told_to, "patience": patience})
    return bool(wanted)


def _by_run(connection: Connection, block: str, runs: Sequence[int]) -> dict[int, Any]:
    return {row.run_id: row for row in rows(connection, block, runs=runs, most=MOST_TASKS)} if runs else {}


def _news(known: Any, row: Any, failed: Any, held: Any, good: Any, was_faulty: bool) -> list[_News]:
    """The news of a run in its present state. Runs of backfills and baselines have none. A run with
    held tasks has failed already if nothing else of it goes on, and waits for a release if one of
    these tasks waits for nothing else.
    """
    if row.backfill_number is not None or row.baseline:
        return []
    state = run_state(row)
    failure = _News(Occasion.FAILED, failed.digest, failed.tasks, failed.attempts, failed.count) if failed else None
    if state is RunState.FAILED:
        return [failure or _News(Occasion.FAILED, "faults" if row.faults else "missing")]
    if held is not None and state in (RunState.HELD, RunState.PENDING, RunState.PROCESSING):
        hold = [_News(Occasion.HELD, "", held.tasks, [None] * len(held.tasks), held.count)] if held.count else []
        return [failure, *hold] if failure and not failed.goes_on else hold
    if state is not RunState.COMPLETED:
        return []
    digest = row.settled_at.isoformat() if row.settled_at else ""
    # A waived failure is not fixed in its own run.
    is_fixed = not (row.failed or row.rejected) and (known.is_failed or was_faulty or good is not None)
    if is_fixed and known.occasion != Occasion.COMPLETED:
        tasks = good.tasks if good else []
        return [_News(Occasion.FIXED, digest, tasks, [None] * len(tasks), good.count if good else 0)]
    return [_News(Occasion.COMPLETED, digest)]


def _wanted(receivers: Mapping[str, Sequence[str]], occasion: Occasion, branch: str) -> dict[str, Occasion]:
    """The receivers of news on a branch, each with its occasion: for a receiver of ``completed``, a
    fixed run is a completed one. ``branch``: empty if the branch has no name.
    """
    wanted: dict[str, Occasion] = {}
    for receiver, occasions in receivers.items():
        globs = tuple(word.removeprefix(OF_BRANCH) for word in occasions if word.startswith(OF_BRANCH))
        if not matches_branch(globs, branch):
            continue
        if occasion in occasions:
            wanted[receiver] = occasion
        elif occasion is Occasion.FIXED and Occasion.COMPLETED in occasions:
            wanted[receiver] = Occasion.COMPLETED
    return wanted


def choose(session: Session, most: int) -> list[Delivery]:
    """Choose up to ``most`` deliveries that are to be sent now, each to another receiver. If many
    mails wait for a receiver, one of them lists all.
    """

    def work(connection: Connection) -> list[tuple[Any, int]]:
        if not _is_first(connection, _CHOOSES):
            return []
        chosen = rows(
            connection, "choose_deliveries", most=most, most_of_host=MOST_OF_HOST, lease=LEASE, most_mails=MOST_MAILS, window=MAIL_WINDOW
        )  # fmt: skip
        return [(row, len(rows(connection, "carry", delivery=row.id, least=LEAST_CARRIED, most=MOST_CARRIED))) for row in chosen]  # fmt: skip

    return [
        Delivery(
            row.id, row.archive_id, row.run_id, Occasion(row.occasion), row.receiver, row.tasks, row.attempts,
            row.count, row.what, row.made_at, row.tries, carries,
        )
        for row, carries in session.retrying(work)
    ]  # fmt: skip


def why_not(session: Session, delivery: Delivery) -> str:
    """The reason why a delivery must not be sent any more; empty if it may."""
    found = session.rows("is_receiver", archive=delivery.archive, run=delivery.run, receiver=delivery.receiver)
    if not found or not found[0].is_receiver:
        return "it is no longer a receiver of the archive"
    return "" if found[0].is_there else "the run was deleted or purged"


def drop(session: Session, delivery: Delivery, why: str) -> None:
    """Record that a delivery will not be sent."""
    session.do("drop_delivery", delivery=delivery.id, fault=why)
    session.changed([delivery.archive])


def record_sent(session: Session, delivery: Delivery) -> None:
    """Record that the receiver has accepted a delivery."""
    session.do("record_sent", delivery=delivery.id)
    session.changed([delivery.archive])


def record_failure(session: Session, delivery: Delivery, fault: str, *, is_silent: bool) -> None:
    """Record that a try has failed. ``is_silent``: the receiver did not answer, so its other
    deliveries wait, too.
    """
    pause = min(FIRST_PAUSE * 2 ** min(delivery.tries - 1, 20), LONGEST_PAUSE)
    session.do("record_failure", delivery=delivery.id, fault=fault[:1000], is_silent=is_silent, pause=pause)
    session.changed([delivery.archive])


def resend(session: Session, delivery: int, by: str, patience: float = PATIENCE) -> None:
    """Send a delivery again; if it waits for its next try, or for a receiver that did not answer, try at once. Raises ``NotFound`` and
    ``Conflict``.
    """
    found = session.rows("delivery", delivery=delivery)
    if not found:
        raise NotFound(f"delivery {delivery}", "does not exist")
    (row,) = found
    again = session.rows("resend", delivery=delivery, patience=patience)
    if not again and not session.rows("try_delivery_now", delivery=delivery, patience=patience):
        raise Conflict(f"delivery {delivery}", "is being sent now", "Try again in a minute.")
    session.do("try_receiver_now", delivery=delivery)
    note = f"delivery {delivery} to {row.receiver}"
    session.do("remember", by=by, verb="resend", archive=row.archive_id, run=row.run_id or None, task=None, note=note)
    session.wake("notify")
    session.changed([row.archive_id])


def forget(session: Session, kept: float = KEPT) -> bool:
    """Delete some deliveries that ended long ago. Returns whether there may be more."""
    return session.do("forget_deliveries", age=kept, most=MOST_FORGOTTEN) == MOST_FORGOTTEN
