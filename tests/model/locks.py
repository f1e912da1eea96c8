"""Locks: the line of an archive at each, and who is granted what (design 5.25)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from arkqueue.model import (
    PRIORITY,
)
from arkqueue.states import Event, State, move
from tests.model.installation import is_global
from tests.model.looking import Changes, Looking
from tests.model.words import DEPENDS, Reason, Refused, Task


class Locks(Looking):
    """Grants locks, and takes them back."""

    def lock_name(self, task: Task, name: str) -> str | None:
        """What the name of a lock comes to; None where its field has no value (design 5.25). Fields are of one output alone."""
        before, mark, field = name.partition("${{ needs.")
        if not mark:
            return name
        needed = field.partition(f".{PRIORITY} ")[0]
        sources = [edge.source for edge in task.into if edge.kind in DEPENDS and edge.source.name == needed]
        newest = max(sources, key=lambda source: source.run.place, default=None)
        return None if newest is None or newest.output is None else f"{before}{newest.output}"

    def grant(self) -> None:
        """Let each lock's line judge anew who has it (design 5.25): all locks or none, in the claim's order; who has them and has not started may lose them."""
        for task in self.tasks():
            task.asks = task.asks and task.state is State.WAITING and not self.unmet(task)
        # Again as long as a place of the installation was given back: who stands behind in that line has one place less.
        while self._grant_once():
            pass

    def _grant_once(self) -> bool:
        """Returns whether a task gave its locks back."""
        given_back = [self.grant_or_take(task, fits) for task, fits in self.judged_lines().items()]
        return any(given_back)

    def grant_or_take(self, task: Task, fits: bool) -> bool:
        """Returns whether the task gave its locks back."""
        if fits and task.asks:
            task.state, task.asks = move(task.state, Event.ENABLE), False
            task.granted = self.installation.moment
        elif not fits and not task.asks:
            task.state, task.asks = move(task.state, Event.GIVE_BACK), True
            return True
        return False

    def judged_lines(self, more: Mapping[str, int] | None = None) -> dict[Task, bool]:
        """Whether each task that asks, or was granted its locks and has not started, fits. ``more``: places at locks of the installation beyond those that are had."""
        unstarted = [
            task
            for task in self.tasks()
            if task.definition.lock and not task.polls and (task.asks or task.state is State.READY)
        ]
        standing = [task for task in unstarted if self.stands_in_line(task)]
        had = Counter(name for task in standing if task.state is State.READY for name in task.locks)
        taken = Counter(name for task in self.tasks() if task.state is State.RUNNING for name in task.locks)

        def room(name: str) -> int | None:
            if not is_global(name):
                capacity = self.capacities.get(name, 1)
                return None if capacity is None else capacity - taken[name]
            if self.installation.capacities.get(name, 1) is None:
                return None
            return had[name] + (more or {}).get(name, 0)

        judged = dict.fromkeys(unstarted, False)
        places: Counter[str] = Counter()
        for task in sorted(standing, key=self.claim_order):
            places.update(task.locks)  # nobody behind it takes what it waits for
            rooms = {name: room(name) for name in task.locks}
            judged[task] = all(n is None or places[name] <= n for name, n in rooms.items())
        return judged

    def stands_in_line(self, task: Task) -> bool:
        """Not while something of it is paused, nor while there are task managers and none of them can run it."""
        manned = not self.labels or any(self.takes(task.key, labels) for labels in self.labels)
        paused = self.paused_locks | self.installation.paused_locks
        return manned and not self.paused and not paused & {*task.locks}

    def claim_order(self, task: Task) -> tuple[int, int, int, int]:
        """Priority, ledger entry, run and position."""
        entry = list(self.revisions).index((task.run.branch, task.run.place.number))
        return task.priority, entry, task.run.place.run, task.order

    def set_lock(self, name: str, capacity: int | None) -> Changes:
        before = self.states()
        self.capacities[name] = capacity
        return self._follow(before)

    def pause_lock(self, name: str) -> Changes:
        before = self.states()
        self.paused_locks.add(name)
        return self._follow(before)

    def resume_lock(self, name: str) -> Changes:
        if name not in self.paused_locks:
            raise Refused(Reason.STATE)
        before = self.states()
        self.paused_locks.discard(name)
        return self._follow(before)

    def man(self, *labels: Collection[str]) -> Changes:
        """One task manager lives with each of these labels, and no other."""
        before = self.states()
        self.labels = list(labels)
        return self._follow(before)
