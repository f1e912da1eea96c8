"""Several archives beside each other: whose turn it is, and the locks that they share."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from arkqueue.states import State
from tests.model.words import Key, Reason, Refused, Task

if TYPE_CHECKING:
    from tests.model import Model


def is_global(lock: str) -> bool:
    """Whether a lock is one of the whole installation."""
    return lock.startswith("global/")


class Installation:
    """What archives have in common: claims and locks, at which they take turns (design 5.24, 5.25)."""

    def __init__(self, archives: Sequence[Model]) -> None:
        self.archives = list(archives)
        """In the order of their ids."""
        for archive in self.archives:
            archive.installation = self
        self.capacities: dict[str, int | None] = {}
        self.paused_locks: set[str] = set()
        self.turns: dict[str, Model] = {}
        """Whose turn it was the last time, by lock."""
        self.last_claimed: Model | None = None
        """Of which archive the last claim took a task."""
        self.moment = 0
        """How many changes there were. What one change grants, also in several archives, is granted at one moment."""
        self.late = 0
        """What was granted up to here should have started by now."""

    def next_to_claim(self, labels: Collection[str]) -> tuple[Model, Task] | None:
        """What a claim takes next: archives of the lowest tier that have a task which it may take go in turns, and in an archive the claim's order counts (design 5.24)."""
        having = [archive for archive in self._in_turn(self.last_claimed) if archive.claimable(labels)]
        if not having:
            return None
        archive = min(having, key=lambda archive: archive.tier)  # of several the first in turn
        return archive, min(archive.claimable(labels), key=archive.claim_order)

    def claim(self, archive: Model, key: Key) -> None:
        archive.claim(key)
        self.last_claimed = archive

    def _in_turn(self, last: Model | None) -> list[Model]:
        """The archives in the order of their ids, those after the last one first."""
        behind = 0 if last is None else self.archives.index(last) + 1
        return self.archives[behind:] + self.archives[:behind]

    def change(self) -> int:
        """The moment of a change."""
        self.moment += 1
        return self.moment

    def time_passes(self) -> None:
        """10 s, for all that was granted so far."""
        self.late = self.moment

    def man(self, labels: Collection[str]) -> None:
        """One task manager lives, and no other."""
        for archive in self.archives:
            archive.labels = [labels]
        self._judge_all()

    def set_lock(self, name: str, capacity: int | None) -> None:
        self.capacities[name] = capacity
        self._judge_all()

    def pause_lock(self, name: str) -> None:
        self.paused_locks.add(name)
        self._judge_all()

    def resume_lock(self, name: str) -> None:
        if name not in self.paused_locks:
            raise Refused(Reason.STATE)
        self.paused_locks.discard(name)
        self._judge_all()

    def _judge_all(self) -> None:
        self.change()
        for archive in self.archives:
            archive.grant()

    def pass_on(self) -> None:
        """Move places from archive to archive, until nobody wants one that could be given."""
        while True:
            names = {name for archive in self.archives for name in archive_waits_for(archive)} | self.capacities.keys()
            moved = [self._pass_on(name) for name in sorted(names)]
            if not any(moved):
                return

    def _pass_on(self, name: str) -> bool:
        is_moved = False
        while self._move(name):
            is_moved = True
        return is_moved

    def having(self, name: str) -> list[tuple[Model, Task]]:
        return [
            (archive, task)
            for archive in self.archives
            for task in archive.tasks()
            if name in task.locks and task.state in (State.READY, State.RUNNING)
        ]

    def _move(self, name: str) -> bool:
        capacity, having = self.capacities.get(name, 1), self.having(name)
        if capacity is None:
            return False
        # Of tasks that got the lock at one moment, the one that was planned first got it first.
        granted = sorted(
            (task.granted, task.run.made, self.archives.index(archive))
            for archive, task in having
            if task.state is State.READY
        )
        if len(having) > capacity:
            return any(self._take_back(name, self.archives[of]) for *_, of in reversed(granted))
        if len(having) < capacity:
            return any(self._give(name, archive) for archive in self.wanting(name))
        late = self._late(having)
        wanting = self.wanting(name, as_free=name) if late else []
        return any(self._take_back(name, one) for one in late if any(archive is not one for archive in wanting))

    def _late(self, having: Sequence[tuple[Model, Task]]) -> list[Model]:
        """The archives whose last one in line should have started by now: it would give its place back."""
        last = {
            archive: max((t for a, t in having if a is archive and t.state is State.READY), key=archive.claim_order)
            for archive in {a: None for a, t in having if t.state is State.READY}
        }
        late = [(task.granted, task.run.made, archive) for archive, task in last.items() if task.granted <= self.late]
        return [archive for *_, archive in sorted(late, key=lambda one: one[:2])]

    def wanting(self, name: str, as_free: str | None = None) -> list[Model]:
        """The archives whose first task in the line would fit if it got a place, in their turns."""
        return [archive for archive in self._in_turn(self.turns.get(name)) if self._could_start(archive, name, as_free)]

    def _could_start(self, archive: Model, name: str, as_free: str | None = None) -> list[Task]:
        judged = archive.judged_lines(self._free(as_free))
        return [task for task, fits in judged.items() if fits and task.asks and name in task.locks]

    def _free(self, as_free: str | None) -> dict[str, int]:
        """One place of each lock that has one."""
        names = {
            name for archive in self.archives for task in archive.tasks() for name in task.locks if is_global(name)
        }
        return {
            name: 1 for name in names if name == as_free or len(self.having(name)) < (self.capacities.get(name, 1) or 0)
        }

    def _give(self, name: str, archive: Model) -> bool:
        (task,) = self._could_start(archive, name)
        self.change()
        archive.grant_or_take(task, True)
        self.turns[name] = archive
        return True

    def _take_back(self, name: str, archive: Model) -> bool:
        before = len(self.having(name))
        for task, fits in archive.judged_lines({name: -1}).items():
            if not fits and not task.asks:
                archive.grant_or_take(task, False)
        self.change()
        archive.grant()
        self.turns[name] = archive  # others have their turn before it gets another place
        return len(self.having(name)) < before


def archive_waits_for(archive: Model) -> set[str]:
    return {name for task in archive.tasks() if task.asks for name in task.locks if is_global(name)}
