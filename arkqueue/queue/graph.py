"""Changes of the graph: one transaction that locks, acts, and follows up the consequences.

Settled tasks meet edges. A task without an unmet edge enters: its cancellations fire, and it
becomes ready or passes. Tasks that settle by this continue in the same way (docs/decisions/0001,
point 3). Every verb of the queue that moves a task goes through `changes.change` and ends
with ``Graph.follow``.

Locks are taken in one order everywhere (archive, branch, task, attempt; ascending). The lock on an
archive's row lets the changes of its graph happen one after another; only claims and renewals
happen beside them. A row that is judged is locked by an earlier statement, so the judging statement
sees its present state.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from psycopg.errors import LockNotAvailable

from arkqueue.db import Connection
from arkqueue.db.pipelines import Answer, Call, run
from arkqueue.db.session import Block, Kept, call
from arkqueue.model import INSTALLATION, SILENCE
from arkqueue.queue.lock_fields import name_locks

STRAIGHT = 4
"""Consecutive rounds of `Graph.follow` that pass only gates. After so many, one query computes how far the gates pass."""
MOST_GATES = 20_000
"""The most rounds that one statement takes."""
MOST_VICTIMS = 250
"""The most tasks that one round cancels because of `cancels`, without those skipped behind them.
More are canceled in steps (`superseding`).
"""

MOST_FIRINGS = 100
"""The most rounds of one transaction in which `cancels` find victims. In a chain of tasks, of which
each lets the next one cancel another, later victims are canceled in steps, too.
"""


class Line(NamedTuple):
    """The tasks of one archive that ask for one lock. ``scope``: the owner of the lock: the archive, or the ``INSTALLATION``."""

    scope: int
    name: str
    archive: int


class Graph:
    """The graph of some archives, locked, inside one transaction."""

    def __init__(self, conn: Connection, archives: Iterable[int] = (), kept: Kept | None = None) -> None:
        """Lock ``archives``; waits for them without a limit."""
        self._conn = conn
        self.last: list[Call] = []
        """Statements that are sent with the next one, or with the commit."""
        self.ahead: Sequence[list[Any]] = ()
        """The rows that the caller had read together with the lock."""
        self.archives: list[int] = []
        """The archives that this transaction has locked."""
        self.in_tiers = True
        """False if no archive with ready tasks has a limit or a tier of its own."""
        self.limited = False
        """True if one of the locked archives has a limit (max_running)."""
        self.uses_locks = False
        """True if a task of one of the locked archives has ever asked for a lock."""
        self.uses_lists = False
        """True if a task of one of the locked archives has ever had a list."""
        self.purges = False
        """True if a run of one of the locked archives is being purged in steps."""
        self.asking: list[int] = []
        """Tasks that have asked for locks since the last grant."""
        self.named: dict[int, list[str]] = {}
        """The evaluated names of their locks, for names with fields."""
        self.reordered: list[int] = []
        """Tasks whose priority, or whose host, was changed since the last grant."""
        self.judges_all = False
        """True if all lines must be evaluated: their tasks or a capacity have changed."""
        self.is_granted = False
        """True if locks were granted after the last change."""
        self.kept = kept or Kept()
        """The cache of stored definitions and lists; empty before an archive is locked."""
        self.to_keep: list[Callable[[], None]] = []
        """Additions to that cache, made once this transaction has committed."""
        self.ready: set[int] = set()
        """Tasks that became ready and are not claimed yet; task managers are woken for them."""
        self.to_wake: set[str] = set()
        """The topics whose listeners are woken after the commit."""
        self.touched: set[int] = set()
        """Archives that this transaction changed without locking them."""
        self.notifies = False
        """True if one of the archives has receivers of notifications."""
        self.moved: set[int] = set()
        """Tasks that changed their state, or have begun to wait for nothing but a release; filled
        only if there are receivers of notifications.
        """
        self.firings = 0
        """The rounds so far in which `cancels` found victims."""
        self.made: set[int] = set()
        """Runs that were planned."""
        if wanted := set(archives):
            self.has_locked(self.rows("lock_archives", archives=list(wanted)))

    def lock_within(self, archive: int, seconds: float) -> list[int]:
        """Lock one archive, waiting at most ``seconds``. Returns the archives that stayed busy."""
        try:
            with self.conn.transaction():
                (limit,) = self.rows("limit_waiting", limit=f"{max(1, round(seconds * 1000))}ms")
                self.has_locked(self.rows("lock_archives", archives=[archive]))
        except LockNotAvailable:
            return [archive]
        self.rows("limit_waiting", limit=limit.before)
        return []

    def has_locked(self, rows: Sequence[Any]) -> None:
        """Note that archives are locked. ``rows``: the rows that the lock returned."""
        self.archives = [row.id for row in rows]
        self.limited = any(row.is_limited for row in rows)
        self.uses_locks = any(row.uses_locks for row in rows)
        self.uses_lists = any(row.uses_lists for row in rows)
        self.notifies = any(row.notifies for row in rows)
        self.purges = any(row.purges for row in rows)
        # The database may be a restored one, in which the cached ids mean something else.
        self.kept = self.kept.of(rows[0].server_since) if rows else Kept()

    @property
    def conn(self) -> Connection:
        """The connection. Statements that were put off with `later` have run on it."""
        if self.last:
            run(self._conn, self.last)
            self.last.clear()
        return self._conn

    def later(self, *blocks: Block, then: Callable[[Answer], None] | None = None) -> None:
        """Run blocks before the next statement, or with the commit. Nobody waits for their results,
        so they need no round trip of their own. ``then``: called with the answer to each block. An
        error that it raises undoes the transaction, unless the block ran with the commit.
        """
        self.last += [call(*block)._replace(then=then) for block in blocks]

    def rows(self, block: str, /, **parameters: Any) -> list[Any]:
        """All rows of a named block."""
        return self._run(block, parameters).rows()

    def ids(self, block: str, /, **parameters: Any) -> list[int]:
        """The first column of a named block."""
        return [row[0] for row in self.rows(block, **parameters)]

    def do(self, block: str, /, **parameters: Any) -> int:
        """Run a named block and return how many rows it touched."""
        return self._run(block, parameters).rowcount

    def _run(self, block: str, parameters: Mapping[str, Any]) -> Answer:
        calls = [*self.last, call(block, parameters)]
        self.last.clear()
        return run(self._conn, calls)[-1]

    def follow(
        self,
        settled: Sequence[int] = (),
        entering: Sequence[int] = (),
        again: Sequence[int] = (),
        then: Sequence[int] = (),
        *,
        may_skip: bool = True,
    ) -> None:
        """Follow up the consequences of the changes so far.

        ``settled``: tasks that got a final state. ``entering``: tasks that may have no unmet edge
        any more. ``again``: tasks that were waived, retried or reopened, and settled tasks whose
        edges have to be judged again, or whose product a new task needs. ``then``: tasks that enter
        after all of these, in the second round. ``may_skip``: False if all settled tasks have
        completed.
        """
        if self.purges and (entering or again):
            self.do("leave_purged", tasks=[*entering, *again])
        bad: Sequence[int] = settled if may_skip else ()
        changed = [*bad, *again]
        less: list[int] = []
        straight = 0
        while settled or entering or changed or then:
            if self.notifies:
                self.moved.update(settled, entering, changed)
            if not (settled or entering or changed):
                entering, then = then, ()
            judged = self._judge_blocking(settled, changed, less) if changed else []
            rows = self._advance(settled, entering, [*again, *judged], is_judged=bool(changed))
            if any(row.frees for row in rows):
                judged = self._judge_blocking(settled)
                rows = self._advance(settled, entering, [*again, *judged])
            completed = [*settled, *again] if any(row.is_unneeded for row in rows) else None
            skipped: list[int] = []
            if bad or again or completed:
                skipped = self.ids("skip_dependents", settled=[*bad, *again], completed=completed)
            canceled: list[int] = []
            tied: list[int] = []
            if held := [row for row in rows if row.held_back]:
                canceled, tied = self._fire([row.id for row in held if row.cancels])
                rows += self._advance((), [row.id for row in held], (), fired=True)
            unnamed = name_locks(self, [row.id for row in rows if row.asks])
            settled = [*skipped, *canceled, *unnamed, *(row.id for row in rows if row.settles)]
            # A canceler that waits for a running victim has not fired after all.
            changed = [*skipped, *canceled, *unnamed, *tied]
            less = sorted({row.id for row in rows if row.unblocks} - {*changed})
            changed += less
            bad = [*canceled, *unnamed]  # tasks that need a skipped task have been skipped with it
            entering, then, again = then, (), ()
            straight = straight + 1 if settled and not (changed or entering or held) else 0
            if straight >= STRAIGHT:
                settled = [*settled, *self.ids("pass_gates", passed=settled, most=MOST_GATES)]
                if self.uses_lists:
                    self.to_wake.add("planning")  # one of the gates may be the COMMIT of a large run
                straight = 0

    def _judge_blocking(
        self, settled: Sequence[int], changed: Sequence[int] = (), less: Sequence[int] = ()
    ) -> list[int]:
        """Judge again what canceled and skipped tasks block in later runs. Returns those that block
        something else now.

        ``settled``: all tasks of this round. The edges from completed tasks among these are about to be
        met. Until the next round, the targets of these edges, and what is behind them, block all.
        """
        return self.ids("judge_blocking", tasks=[*settled, *({*changed} - {*settled})], less=list(less))

    def _advance(
        self,
        settled: Sequence[int],
        entering: Sequence[int],
        again: Sequence[int],
        *,
        is_judged: bool = True,
        fired: bool = False,
    ) -> list[Any]:
        # Empty lists are sent as null: PostgreSQL considers every partial index for a condition
        # that can never be true.
        told = {"settled": settled, "entering": entering, "again": again}
        tasks_of = {name: list(tasks) or None for name, tasks in told.items()}
        rows = self.rows("advance", is_judged=is_judged, fired=fired, **tasks_of)
        self.ready.update(row.id for row in rows if row.is_ready)
        self.asking += [row.id for row in rows if row.asks]
        if self.notifies:
            self.moved.update(row.id for row in rows if row.awaits_release)
        if any(row.lets_in for row in rows):
            self.to_wake.add("planning")
        return rows

    def hold(self, tasks: Sequence[int], hold: int, *, unbegun: bool = False) -> list[int]:
        """Hold tasks that have not started, because of an audit log entry or a guard. Returns the
        tasks that it held. ``unbegun``: hold only tasks whose run, or item, has not begun.
        """
        held = self.ids("hold", tasks=list(tasks), hold=hold, unbegun=unbegun)
        self.moved.update(held)
        return held

    def grant(self) -> None:
        """Evaluate the lines that this change touched, and grant locks: to each task all of its
        locks or none (sql/locks.sql). A task that may not keep its locks waits again.

        Every change of the graph ends with this. If no task of the archives ever named a lock, no
        query runs.
        """
        self.is_granted = True
        asking, self.asking, reordered, self.reordered = self.asking, [], self.reordered, []
        if not (asking or self.uses_locks):
            return
        lines = self._ask(asking) if asking else set()
        if reordered:
            lines |= self._lines("order_again", tasks=reordered)
        lines |= self._lines("leave_lines", archives=self.archives)
        whole, self.judges_all = self.judges_all, False
        if whole:
            lines |= self._lines("lines_of", archives=self.archives)
        if lines:
            self.judge(lines, asking, whole=whole)

    def _ask(self, asking: Sequence[int]) -> set[Line]:
        named, self.named = self.named, {}
        pairs = [(task, name) for task in asking for name in named.get(task, ())]
        told = {"named": [task for task, _ in pairs], "names": [name for _, name in pairs]}
        left = self._lines("leave_old_lines", tasks=list(named)) if named else set()
        return left | self._lines("ask", tasks=asking, **told)

    def _lines(self, block: str, /, **parameters: Any) -> set[Line]:
        return {Line(row.scope, row.name, row.archive_id) for row in self.rows(block, **parameters)}

    def judge(
        self,
        lines: Collection[Line],
        asking: Sequence[int] = (),
        *,
        whole: bool = False,
        may_take: bool = False,
        less: str | None = None,
    ) -> list[int]:
        """Grant the locks of some lines, and take locks from tasks that exceed a capacity. Returns
        the tasks that were granted locks.

        ``whole``: in the line of an unlimited lock, every task is evaluated. ``may_take``: one free
        place of each lock of the installation may be taken. ``less``: the lock of which one place
        is given back.
        """
        scopes, names, archives = zip(*lines, strict=True)
        told: dict[str, Any] = {
            "scopes": list(scopes), "names": list(names), "archives": list(archives), "asking": list(asking), "whole": whole,
            "may_take": may_take, "as_free": None, "less": less, "silence": SILENCE,
        }  # fmt: skip
        rows = self.rows("judge_lines", locked=None, **told)
        if back := [row.id for row in rows if row.granted and not row.fits]:
            locked = self.ids("lock_granted", tasks=back)
            rows = self.rows("judge_lines", locked=locked, **told)
            back = [row.id for row in rows if row.granted and not row.fits and row.id in set(locked)]
            self.ready.difference_update(self.ids("give_back", tasks=back))
        # A transaction of its own chooses the next archive at a lock of the installation.
        if INSTALLATION in scopes or any(row.is_global for row in rows):
            self.to_wake.add("locks")
        granted = [row.id for row in rows if row.fits and not row.granted]
        if granted:
            by_archive: dict[int, list[int]] = {}
            for row in self.rows("grant", tasks=granted):
                by_archive.setdefault(row.archive_id, []).append(row.id)
            for archive, tasks in by_archive.items():
                self.do("offer", archive=archive, tasks=tasks)
            self.ready.update(granted)
        # Behind a task that gave back a place of an installation's lock, one place less is free in
        # that line.
        if back and (behind := self._lines("lines_behind", tasks=back)):
            granted += self.judge(behind)
        return granted

    def _fire(self, entering: Sequence[int]) -> tuple[list[int], list[int]]:
        """Let the ``cancels`` of the entering tasks fire: across runs all at once, inside a run one
        after the other.

        Returns the canceled tasks, and those of the entering tasks that now wait for a running
        victim.
        """
        cancelers = self.rows("cancelers", entering=entering, most=MOST_VICTIMS + 1)
        victims = sum(row.victims for row in cancelers)
        self.firings += victims > 0
        if victims > MOST_VICTIMS or (victims and self.firings > MOST_FIRINGS):
            return [], self._begin_to_supersede(cancelers)
        canceled, tied = self._cancel_victims([row.id for row in cancelers if row.across], here=False)
        if inside := [row.id for row in cancelers if row.here]:
            # A canceler without victims counts as fired, too, before another canceler of its run
            # cancels it.
            self.do("fire", firing=[row.id for row in cancelers])
            for canceler in inside:
                more_canceled, more_tied = self._cancel_victims([canceler], here=True)
                canceled, tied = canceled + more_canceled, tied + more_tied
        return canceled, tied

    def _begin_to_supersede(self, cancelers: Sequence[Any]) -> list[int]:
        """Let the ``cancels`` of the entering tasks fire, whose victims are then canceled in steps.
        The running victims are asked to stop at once: a task that a person cancels during the steps
        still holds up later runs until they have stopped. Returns the tasks that now wait.
        """
        begun = [row.id for row in cancelers if row.victims]
        beaten = self._beaten(cancelers)
        self.do("fire", firing=[row.id for row in cancelers])
        inside = [row.id for row in cancelers if row.here and row.id not in beaten]
        for firing, here in (([row.id for row in cancelers if row.across], False), (inside, True)):
            if firing:
                self.do("lock_victims", firing=firing, here=here, in_steps=True)
                self._stop_victims(firing, here=here)
        self.do("begin_to_supersede", firing=begun, beaten=beaten)
        self.to_wake.add("superseding")
        return begun

    def _beaten(self, cancelers: Sequence[Any]) -> list[int]:
        """The firing tasks that another firing task cancels before their ``cancels`` inside the run
        fire. Across runs, all fire at once; then inside a run, one after the other (design 5.10).
        """
        if not any(row.here for row in cancelers):
            return []
        rivals = self.rows("rivals", firing=[row.id for row in cancelers])
        canceled = {row.victim for row in rivals if not row.here}
        inside: dict[int, list[int]] = {}
        for row in rivals:
            if row.here:
                inside.setdefault(row.canceler, []).append(row.victim)
        beaten = []
        for canceler in cancelers:
            if canceler.id in canceled:
                beaten.append(canceler.id)
            else:
                canceled.update(inside.get(canceler.id, ()))
        return beaten

    def supersede(self, tasks: Sequence[int]) -> list[int]:
        """Cancel those of some locked tasks that were superseded in steps. Returns the canceled tasks.

        Running ones are asked to stop: steps that an older version began have not done so.
        """
        if not (found := self.rows("still_to_supersede", tasks=list(tasks))):
            return []
        told = {"tasks": [row.id for row in found], "cancelers": [row.canceler for row in found]}
        if self.ids("stop_superseded", **told):
            self.to_wake.add("stop")
        return self.ids("cancel_superseded", **told)

    def _cancel_victims(self, firing: Sequence[int], *, here: bool) -> tuple[list[int], list[int]]:
        if not firing:
            return [], []
        if not self.rows("lock_victims", firing=firing, here=here, in_steps=False):
            return [], []  # `advance` notes that they fired
        # Stop requests come first: all cancelers fire together,
        # so one that another canceler cancels fires as well.
        tied = self._stop_victims(firing, here=here)
        return self.ids("cancel_victims", firing=firing, here=here), tied

    def _stop_victims(self, firing: Sequence[int], *, here: bool) -> list[int]:
        """Ask the running victims of the firing tasks to stop. Returns the tasks that wait for them."""
        fired = self.rows("stop_victims", firing=firing, here=here)
        if any(row.asked for row in fired):
            self.to_wake.add("stop")
        return [row.id for row in fired if row.is_tied]
