"""A repository whose commits a test dictates, and the answers of its open archive to the queue
manager's readers (design 2, 5.16).

The repository has no ledger and sends no notices. Every branch is a chain of first-parent commits.
A rewrite moves the head of a branch to another commit, and the commits taken off still exist, as in
Git. Numbers may have gaps, like those of a Subversion folder.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from arkqueue.errors import ArchiveMismatch
from arkqueue.model import MOST_ITEMS, Item, Revision, SourceFile, Workflow
from arkqueue.repository import Advance, Fork, NewBranch
from arkqueue.workflow.list_files import read_lists
from tests.db.strategies import LIST_FILE, over_list_file


@dataclass(frozen=True, slots=True)
class Commit:
    id: str
    parent: Commit | None
    workflow: Workflow
    tree: Mapping[str, str]
    """The commit that last wrote each path."""
    gap: int = 1
    """The difference between its number and the number of the revision before it."""
    listed: str = "k"
    """The items in `LIST_FILE`, one letter each."""

    def lists(self, wanted: Sequence[tuple[str, str | None]]) -> list[tuple[Item, ...]]:
        """The items in some files. ``wanted``: the path of each file, and the field that identifies
        an item.
        """
        found, faults = read_lists(wanted, lambda path: SourceFile(path, "\n".join(self.listed).encode()), MOST_ITEMS)
        assert not faults, faults
        return found

    @property
    def items(self) -> tuple[Item, ...]:
        """The items in `LIST_FILE`."""
        return self.lists([(LIST_FILE, None)])[0]


class Repository:
    def __init__(self, branches: Iterable[str]) -> None:
        """Starts each branch with one commit, its baseline."""
        self.commits = {f"{branch}1": Commit(f"{branch}1", None, Workflow(), {}) for branch in branches}
        self.heads = {branch: self.commits[f"{branch}1"] for branch in branches}
        self.changes = 0
        """A counter of all changes to the repository."""

    def commit(
        self, branch: str, workflow: Workflow, changed: Collection[str] = (), gap: int = 1, listed: str | None = None
    ) -> str:
        """Makes a commit. ``listed``: the new content of `LIST_FILE`, if the commit changes the
        file.
        """
        id = f"{branch}-{len(self.commits)}"
        before = self.heads[branch]
        changed = changed if listed in (None, before.listed) else [*changed, LIST_FILE]
        tree = {**before.tree, **dict.fromkeys(changed, id)}
        made = Commit(id, before, workflow, tree, gap, before.listed if listed is None else listed)
        self.commits[id] = replace(made, workflow=over_list_file(workflow, made.items))
        self._move(branch, self.commits[id])
        return id

    def take_back(self, branch: str, most: int) -> None:
        """Moves a branch's head towards its first commit, like a reset or the first half of a
        force-push.
        """
        head = self.heads[branch]
        for _ in range(most):
            head = head.parent or head
        self._move(branch, head)

    def put_back(self, branch: str, id: str) -> None:
        """Moves a branch's head to an earlier commit of the branch, or brings the branch back at
        that commit.
        """
        self._move(branch, self.commits[id])

    def delete(self, branch: str) -> None:
        del self.heads[branch]
        self.changes += 1

    def chain(self, id: str) -> list[Commit]:
        """A commit with its first-parent ancestry, oldest first."""
        found: list[Commit] = []
        at: Commit | None = self.commits[id]
        while at is not None:
            found.append(at)
            at = at.parent
        return found[::-1]

    def difference(self, before: str, after: str) -> tuple[str, ...]:
        """The paths that differ between the trees of two commits."""
        one, other = self.commits[before].tree, self.commits[after].tree
        return tuple(sorted(path for path in {*one, *other} if one.get(path) != other.get(path)))

    def _move(self, branch: str, head: Commit) -> None:
        self.heads[branch] = head
        self.changes += 1


class ScriptedArchive:
    """The part of ``arkqueue.repository.Archive`` that a scan uses."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository

    def main_branch(self, _known: str | None = None) -> str:
        return next(iter(self.repository.heads))

    def heads(self, branches: Sequence[str] = (), _main: str | None = None, _known: object = None) -> dict[str, str]:
        wanted = branches or [self.main_branch()]
        return {name: head.id for name, head in self.repository.heads.items() if name in wanted or "*" in wanted}

    def has(self, revision: str) -> bool:
        return revision in self.repository.commits

    fingerprint = None

    def check_known(self, *known: Revision) -> None:
        for revision in known:
            if revision.id not in self.repository.commits:
                raise ArchiveMismatch("the scripted repository", f"never had {revision.id}")

    def check_gone(self, branch: str) -> None:
        """Does nothing: everything can be read here. A branch may have come back since the call of
        ``heads``.
        """

    def check_heads(self, heads: Mapping[str, str]) -> None:
        """Does nothing: no commit is damaged here."""

    def forks(self, new: Sequence[NewBranch], others: Collection[str]) -> dict[str, Fork]:
        """The forks of branches that are back after they were deleted. No two branches share a
        commit.
        """
        old = [commit for id in others for commit in self.repository.chain(id)]
        chains = {branch.name: self.repository.chain(branch.head) for branch in new}
        return {name: Fork(None, sum(commit not in old for commit in chain)) for name, chain in chains.items()}

    def advance(
        self,
        branch: str,
        known: Revision | None,
        new_head: str,
        *,
        limit: int = 1000,
        fork: Fork | None = None,  # noqa: ARG002
    ) -> Advance:
        """The advance of a branch. No two branches share a commit, so ``fork`` does not matter."""
        assert known is not None, f"{branch} has a baseline"
        old, new = self.repository.chain(known.id), self.repository.chain(new_head)
        dropped = [commit.id for commit in reversed(old) if commit not in new]
        lacking = [commit for commit in new if commit not in old]
        if dropped and not lacking:
            lacking = new[-1:]
        revisions, number = [], known.number
        for commit in lacking[:limit]:
            number += commit.gap
            revisions.append(
                Revision(commit.id, number, "ann", datetime(2026, 1, 1, tzinfo=UTC), f"change {commit.id}")
            )
        return Advance(tuple(dropped), tuple(revisions), complete=len(lacking) <= limit)

    def changed_paths(self, previous: str | None, revision_id: str) -> tuple[str, ...]:
        assert previous is not None, "every branch has a baseline"
        return self.repository.difference(previous, revision_id)
