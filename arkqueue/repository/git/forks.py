"""Where new branches leave the other branches of a Git repository (design 5.16).

The ledger of a new branch gets the commits that no ledger has, no other branch contains, and no new
branch before this one contains. libgit2 answers whether one commit contains another. One question
for each pair of branches would take time in proportion to the number of pairs. So `together` walks
the history once for all new branches.

The walk starts at the heads of the new branches and at the `others`, and goes from commits to their
parents. A commit is *known* if the walk has reached it from one of the others, and *new* otherwise.
A known commit makes its parents known. The walk takes the newest commit first, so that it is short
if clocks were right. It ends with two conditions, which hold whatever dates commits claim:

1. The walk has read each new commit.
2. No known commit that the walk has not read is a descendant of a new one. The proof: each such
   commit is an ancestor of all *lowest* new commits, which are those without a new parent. A
   descendant of a new commit is a descendant of a lowest one, and no commit is an ancestor of its
   own ancestor.

So one of the others contains a commit of a new branch only if the commit is known. The second
condition is judged each time that the walk has read twice as many commits.

The walk reads commits in Python, which takes memory. If it would be long, or if the repository is
unusual, `one_by_one` asks libgit2 instead. Called by `repository`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from heapq import heapify, heappop, heappush

import pygit2

from arkqueue.repository import Fork, NewBranch
from arkqueue.repository.git.commits import has_object, lineage
from arkqueue.repository.git.history import new_to

FEW = 4
"""The most pairs of branches about which libgit2 answers sooner than the walk, as it is written in
C.
"""
MOST_READ = 300_000
"""The most commits that one walk reads, which take about 200 MB of memory."""
MOST_PENDING = 512
"""The most unread commits for which the walk finds out whose ancestors they are."""
LEAST_STEPS = 64
"""The least number of commits that the walk reads before it judges its end again."""


class _TooLong(Exception):
    """The walk would read more than `MOST_READ` commits."""


def forks(
    repository: pygit2.Repository, new: Sequence[NewBranch], others: Collection[str], *, at_once: bool = True
) -> dict[str, Fork]:
    """The forks of new branches, as in `Archive.forks`."""
    ids = [pygit2.Oid(hex=id) for id in dict.fromkeys(others) if has_object(repository, id)]
    are_few = len(new) * (len(ids) + len(new) - 1) <= FEW
    if at_once and not are_few and not _has_grafts(repository):
        try:
            return together(repository, new, ids)
        except (_TooLong, KeyError, ValueError, pygit2.GitError):
            pass  # libgit2 reports the same fault, or copes with it
    return one_by_one(repository, new, ids)


def together(repository: pygit2.Repository, new: Sequence[NewBranch], others: Iterable[pygit2.Oid]) -> dict[str, Fork]:
    """The forks of new branches, by one walk."""
    heads = {branch.name: pygit2.Oid(hex=branch.head) for branch in new}
    walk = _Walk(repository)
    walk.go(heads.values(), others)
    taken: set[pygit2.Oid] = set()
    """The new commits that the branches before contain."""
    found = {}
    for branch in new:
        at: pygit2.Oid | None = heads[branch.name]
        own = 0
        while at is not None and walk.is_new(at) and at not in taken:
            own += 1
            at = next(iter(walk.parents(at)), None)
        found[branch.name] = Fork(None if at is None else str(at), own)
        _take(walk, taken, heads[branch.name])
    return found


def one_by_one(
    repository: pygit2.Repository, new: Sequence[NewBranch], others: Sequence[pygit2.Oid]
) -> dict[str, Fork]:
    """The forks of new branches, by questions about each of them and each other branch."""
    contained, found = dict.fromkeys(others), {}
    for branch in new:
        head = pygit2.Oid(hex=branch.head)
        chain = new_to(repository, head, [*contained])
        found[branch.name] = Fork(None if chain.before is None else str(chain.before), len(chain.new))
        contained[head] = None
    return found


def _take(walk: _Walk, taken: set[pygit2.Oid], head: pygit2.Oid) -> None:
    """Add the new commits that a head contains."""
    left = [head]
    while left:
        id = left.pop()
        if walk.is_new(id) and id not in taken:
            taken.add(id)
            left += walk.parents(id)


def _has_grafts(repository: pygit2.Repository) -> bool:
    """True if libgit2 takes other parents for those of some commits than the commits name."""
    return repository.is_shallow or os.path.exists(os.path.join(repository.path, "info", "grafts"))


class _Walk:
    """The walk. See the top of this file."""

    def __init__(self, repository: pygit2.Repository) -> None:
        self._repository = repository
        self._commits: dict[pygit2.Oid, tuple[int, tuple[pygit2.Oid, ...]]] = {}
        """The times and the parents of the commits that were reached."""
        self._is_known: dict[pygit2.Oid, bool] = {}
        self._left: list[tuple[int, pygit2.Oid]] = []
        """A heap of the commits whose parents are to be reached, the newest first."""
        self._new: set[pygit2.Oid] = set()
        """The new commits in the heap."""
        self._settled: list[tuple[int, pygit2.Oid]] = []
        """Commits that were in the heap, and are ancestors of all lowest new commits."""

    def is_new(self, id: pygit2.Oid) -> bool:
        return self._is_known.get(id) is False

    def parents(self, id: pygit2.Oid) -> tuple[pygit2.Oid, ...]:
        return self._commits[id][1]

    def go(self, new: Iterable[pygit2.Oid], known: Iterable[pygit2.Oid]) -> None:
        for id in known:
            self._reach(id, is_known=True)
        for id in new:
            self._reach(id, is_known=False)
        while self._new:
            self._step()
        while self._has_more():
            for _ in range(max(LEAST_STEPS, len(self._commits))):
                if not self._left:
                    break
                self._step()

    def _reach(self, id: pygit2.Oid, *, is_known: bool) -> None:
        before = self._is_known.get(id)
        if before or before is is_known:
            return
        self._is_known[id] = is_known
        if before is None:
            if len(self._commits) >= MOST_READ:
                raise _TooLong
            self._commits[id] = lineage(self._repository, id)
        heappush(self._left, (-self._commits[id][0], id))
        if is_known:
            self._new.discard(id)
        else:
            self._new.add(id)

    def _step(self) -> None:
        _, id = heappop(self._left)
        self._new.discard(id)
        is_known = self._is_known[id]
        for parent in self._commits[id][1]:
            self._reach(parent, is_known=is_known)

    def _has_more(self) -> bool:
        """True if the walk has to go on. The heap then has only the commits that may be descendants
        of new ones.
        """
        lowest = self._below_lowest()
        if not lowest or not self._left or frozenset() in lowest:
            return bool(lowest and self._left)
        unread = {id for _, id in (*self._left, *self._settled)}
        settled = self._ancestors_of_all(lowest, unread)
        self._settled += [entry for entry in self._left if entry[1] in settled]
        self._left = [entry for entry in self._left if entry[1] not in settled]
        heapify(self._left)
        return bool(self._left)

    def _below_lowest(self) -> set[frozenset[pygit2.Oid]]:
        """The parents of each lowest new commit."""
        found = set()
        for id, is_known in self._is_known.items():
            if not is_known:
                parents = self._commits[id][1]
                if all(self._is_known[parent] for parent in parents):
                    found.add(frozenset(parents))
        return found

    def _ancestors_of_all(
        self, starts: Collection[frozenset[pygit2.Oid]], unread: Collection[pygit2.Oid]
    ) -> set[pygit2.Oid]:
        """The commits of ``unread`` that each of the ``starts`` contains, which are sets of commits.
        The walk has not read all commits, so that some may be missing.
        """
        order = self._parents_first({id for start in starts for id in start}, unread)
        reached = [id for id in order if id in unread]
        if len(reached) > MOST_PENDING:
            return set()
        bits = {id: 1 << place for place, id in enumerate(reached)}
        contained: dict[pygit2.Oid, int] = {}
        """The unread commits that a commit contains, one bit each."""
        for id in order:
            found = bits.get(id, 0)
            if not found:
                for parent in self._commits[id][1]:
                    found |= contained[parent]
            contained[id] = found
        common = (1 << len(reached)) - 1
        for start in starts:
            found = 0
            for id in start:
                found |= contained[id]
            common &= found
        return {id for id, bit in bits.items() if bit & common}

    def _parents_first(self, starts: Iterable[pygit2.Oid], unread: Collection[pygit2.Oid]) -> dict[pygit2.Oid, None]:
        """The commits that the walk has read from some commits on, and the unread ones at its ends,
        each after its parents.
        """
        found: dict[pygit2.Oid, None] = {}
        left = list(starts)
        while left:
            id = left[-1]
            below = [] if id in found or id in unread else [one for one in self._commits[id][1] if one not in found]
            if below:
                left += below
            else:
                found[left.pop()] = None
        return found
