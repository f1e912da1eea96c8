"""Several archives in one installation: the order of their claims, and the locks that
they share.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from arkqueue.states import State
from tests.model.words import Key, Reason, Refused, Task

if TYPE_CHECKING:
    from tests.model import Model


def is_global(lock: str) -> bool:
    """Whether a lock belongs to the whole installation."""
    return lock.startswith("global/")


class Installation:
    """What archives share: claims, and locks, both of which they take in turns
    (design 5.24, 5.25).
    """

    def __init__(self, archives: Sequence[Model]) -> None:
        self.archives = list(archives)
        """The archives in the order of their ids."""
        for archive in self.archives:
            archive.installation = self
        self.capacities: dict[str, int | None] = {}
        self.paused_locks: set[str] = set()
        self.turns: dict[str, Model] = {}
        """The archive that had the last turn, by lock."""
        self.last_claimed: Model | None = None
        """The archive of the last claimed task."""
        self.moment = 0
        """The number of changes so far. All grants of one change, also in several archives, have
        the same moment.
        """
        self.late = 0
        """The latest moment whose grants should have led to a start by now."""

    def next_to_claim(self, labels: Collection[str]) -> tuple[Model, Task] | None:
        """The task that a claim takes next. The archives of the lowest tier with a claimable task
        take turns, and each archive uses its claim order (design 5.24).
        """
        having = [archive for archive in self._in_turn(self.last_claimed) if archive.claimable(labels)]
        if not having:
            return None
        # the first in turn among equal tiers
        archive = min(having, key=lambda archive: archive.tier)
        return archive, min(archive.claimable(labels), key=archive.claim_order)

    def claim(self, archive: Model, key: Key) -> None:
        archive.claim(key)
        self.last_claimed = archive

    def _in_turn(self, last: Model | None) -> list[Model]:
        """The archives in the order of their ids, starting after the last one."""
        behind = 0 if last is None else self.archives.index(last) + 1
        return self.archives[behind:] + self.archives[:behind]

    def change(self) -> int:
        """Counts a change. Returns its moment."""
        self.moment += 1
        return self.moment

    def time_passes(self) -> None:
        """Lets 10 s pass, which makes all present grants late."""
        self.late = self.moment

    def man(self, labels: Collection[str]) -> None:
        """Lets one task manager with these labels live, and no other."""
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
        """Moves places between archives until no archive wants a place that another
        could give up.
        """
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
        # Among tasks that got the lock at the same moment, the one that was planned first got it
        # first.
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
        """The archives whose last grant in line is late, so that the archive would give its place
        back.
        """
        last = {
            archive: max((t for a, t in having if a is archive and t.state is State.READY), key=archive.claim_order)
            for archive in {a: None for a, t in having if t.state is State.READY}
        }
        late = [(task.granted, task.run.made, archive) for archive, task in last.items() if task.granted <= self.late]
        return [archive for *_, archive in sorted(late, key=lambda one: one[:2])]

    def wanting(self, name: str, as_free: str | None = None) -> list[Model]:
        """The archives whose first task in line would fit with one more place, in the order of
        their turns.
        """
        return [archive for archive in self._in_turn(self.turns.get(name)) if self._could_start(archive, name, as_free)]

    def _could_start(self, archive: Model, name: str, as_free: str | None = None) -> list[Task]:
        judged = archive.judged_lines(self._free(as_free))
        return [task for task, fits in judged.items() if fits and task.asks and name in task.locks]

    def _free(self, as_free: str | None) -> dict[str, int]:
        """One place of each lock that has a free place."""
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
        self.turns[name] = archive  # other archives have a turn before this one gets another place
        return len(self.having(name)) < before


def archive_waits_for(archive: Model) -> set[str]:
    return {name for task in archive.tasks() if task.asks for name in task.locks if is_global(name)}
