"""Locks: an archive's line for each lock, and the grants (design 5.25)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from arkqueue.priorities import PRIORITY
from arkqueue.states import Event, State, move
from tests.model.installation import is_global
from tests.model.looking import Changes, Looking
from tests.model.words import DEPENDS, Reason, Refused, Task


class Locks(Looking):
    """Grants locks, and takes them back."""

    def lock_name(self, task: Task, name: str) -> str | None:
        """The resolved name of a lock, or None if the output in it has no value (design 5.25). The
        model knows only outputs named ``priority``.
        """
        before, mark, field = name.partition("${{ needs.")
        if not mark:
            return name
        needed = field.partition(f".{PRIORITY} ")[0]
        sources = [edge.source for edge in task.into if edge.kind in DEPENDS and edge.source.name == needed]
        newest = max(sources, key=lambda source: source.run.place, default=None)
        return None if newest is None or newest.output is None else f"{before}{newest.output}"

    def grant(self) -> None:
        """Decides again which tasks have their locks (design 5.25). A task gets all its locks or
        none, in claim order. A task that has not started may lose its locks.
        """
        for task in self.tasks():
            task.asks = task.asks and task.state is State.WAITING and not self.unmet(task)
        # A returned place of an installation's lock leaves one place less for the tasks behind, so
        # the decision repeats.
        while self._grant_once():
            pass

    def _grant_once(self) -> bool:
        """Grants and takes back once. Returns whether a task gave its locks back."""
        given_back = [self.grant_or_take(task, fits) for task, fits in self.judged_lines().items()]
        return any(given_back)

    def grant_or_take(self, task: Task, fits: bool) -> bool:
        """Grants a task its locks, or takes them back. Returns whether the task gave its locks
        back.
        """
        if fits and task.asks:
            task.state, task.asks = move(task.state, Event.ENABLE), False
            task.granted = self.installation.moment
        elif not fits and not task.asks:
            task.state, task.asks = move(task.state, Event.GIVE_BACK), True
            return True
        return False

    def judged_lines(self, more: Mapping[str, int] | None = None) -> dict[Task, bool]:
        """Whether each task fits that asks for locks, or has its locks but has not started.
        ``more``: further places at installation locks, beyond those that the archive has.
        """
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
            # tasks behind this one cannot take the places that it waits for
            places.update(task.locks)
            rooms = {name: room(name) for name in task.locks}
            judged[task] = all(n is None or places[name] <= n for name, n in rooms.items())
        return judged

    def stands_in_line(self, task: Task) -> bool:
        """Whether the task takes part in its lines. It does not during a pause of its archive or of
        one of its locks, nor if task managers live but none of them can run it.
        """
        manned = not self.labels or any(self.takes(task.key, labels) for labels in self.labels)
        paused = self.paused_locks | self.installation.paused_locks
        return manned and not self.paused and not paused & {*task.locks}

    def claim_order(self, task: Task) -> tuple[int, int, int, int]:
        """The sort key of the claim order: priority, ledger entry, run and position."""
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
        """Lets one task manager live for each of these sets of labels, and no other."""
        before = self.states()
        self.labels = list(labels)
        return self._follow(before)
