"""Where new branches leave the others: the answer of one walk is that of a question about each pair
of branches, whatever dates commits claim.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pygit2
import pytest

from arkqueue.repository import Fork, NewBranch, locate, open_archive
from arkqueue.repository.git import commits, forks, history
from tests.repositories import run


@dataclass
class History:
    """A repository of commits without files, and the ancestors of each commit."""

    repository: pygit2.Repository
    ids: list[pygit2.Oid] = field(default_factory=list)
    ancestors: dict[pygit2.Oid, set[pygit2.Oid]] = field(default_factory=dict)

    def commit(self, parents: Sequence[pygit2.Oid], at: int = 0) -> pygit2.Oid:
        who = pygit2.Signature("Ada", "ada@example.org", at, 0)
        tree = self.repository.TreeBuilder().write()
        id = self.repository.create_commit(None, who, who, str(len(self.ids)), tree, list(parents))
        self.ids.append(id)
        self.ancestors[id] = {id}.union(*(self.ancestors[parent] for parent in parents))
        return id

    def forks(self, new: Sequence[NewBranch], others: Sequence[pygit2.Oid]) -> dict[str, Fork]:
        """The forks by their definition."""
        found, contained = {}, set[pygit2.Oid]().union(*(self.ancestors[id] for id in others))
        for branch in new:
            head = pygit2.Oid(hex=branch.head)
            own, at = 0, head
            while at is not None and at not in contained:
                own, at = own + 1, next(iter(commits.parents(self.repository, at)), None)
            found[branch.name] = Fork(None if at is None else str(at), own)
            contained |= self.ancestors[head]
        return found


def a_history(folder: Path) -> History:
    return History(pygit2.init_repository(str(folder), bare=True))


def a_random_history(folder: Path, chosen: random.Random) -> History:
    """With merges, several roots, and clocks that are right, wrong in places, or nonsense."""
    made, clocks = a_history(folder), chosen.choice(["right", "wrong", "nonsense"])
    for number in range(chosen.choice([3, 8, 20, 50])):
        recent = made.ids[-chosen.choice([1, 2, 4, 8, 50]) :]
        count = chosen.choice([1, 1, 1, 1, 1, 2, 2, 3]) if recent and chosen.random() < 0.95 else 0
        parents = dict.fromkeys(chosen.choice(recent) for _ in range(count))
        at = 10**6 + 10 * number
        if clocks == "wrong" and chosen.random() < 0.3:
            at += chosen.choice([-(10**5), 10**5])
        made.commit([*parents], chosen.randrange(10**6) if clocks == "nonsense" else at)
    return made


def some_branches(made: History, chosen: random.Random) -> tuple[list[NewBranch], list[pygit2.Oid]]:
    """New branches, and the heads of others."""
    new = [NewBranch(f"b{number}", str(chosen.choice(made.ids))) for number in range(chosen.choice([1, 2, 4, 8]))]
    return new, [chosen.choice(made.ids) for _ in range(chosen.choice([0, 1, 2, 5, 9]))]


def test_one_walk_finds_the_forks_that_questions_about_each_branch_find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = random.Random(41)
    for number in range(40):
        made = a_random_history(tmp_path / str(number), chosen)
        monkeypatch.setattr(forks, "LEAST_STEPS", chosen.choice([1, 4, 64]))
        monkeypatch.setattr(forks, "MOST_PENDING", chosen.choice([1, 512]))
        for _ in range(6):
            new, others = some_branches(made, chosen)
            defined = made.forks(new, others)
            assert forks.one_by_one(made.repository, new, others) == defined
            assert forks.together(made.repository, new, others) == defined


def test_walk_ends_where_no_other_branch_can_contain_a_new_commit(tmp_path: Path) -> None:
    """The clock of the commit `between` was wrong by years, so that a walk by dates comes to it too late."""
    made = a_history(tmp_path)
    root = made.commit([], 1)
    below = made.commit([root], 10**6)
    between = made.commit([below], 0)
    main = made.commit([between], 10**6 + 1)
    topic, side = made.commit([below], 10**6 + 2), made.commit([between], 10**6 + 3)
    new = [NewBranch("side", str(side)), NewBranch("topic", str(topic))]
    found = forks.together(made.repository, new, [main])
    assert found == {"side": Fork(str(between), 1), "topic": Fork(str(below), 1)}


def many_branches(made: History, count: int) -> tuple[list[NewBranch], list[pygit2.Oid]]:
    """As many new branches as others, with one commit each, beside a long history."""
    base = made.commit([])
    for at in range(1, 50):
        base = made.commit([base], at)
    others = [made.commit([base], 100 + number) for number in range(count)]
    return [NewBranch(str(number), str(made.commit([base], 10**6 + number))) for number in range(count)], others


def test_work_is_linear_in_the_branches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each commit is read once, and libgit2 is not asked whether one commit contains another."""
    made, count = a_history(tmp_path), 100
    new, others = many_branches(made, count)
    read: list[pygit2.Oid] = []
    monkeypatch.setattr(forks, "lineage", lambda repository, id: read.append(id) or commits.lineage(repository, id))
    monkeypatch.setattr(history, "contains", lambda *_: pytest.fail("a question about two commits"))
    found = open_archive(locate(str(tmp_path))).forks(new, [str(id) for id in others])
    assert set(found.values()) == {Fork(str(made.ids[49]), 1)}
    assert 2 * count < len(read) == len(set(read)) < 2 * count + 10


@pytest.mark.parametrize("why", ["too many commits", "grafts", "not all at once"])
def test_branches_are_judged_one_by_one_where_a_walk_would_not_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    made = a_history(tmp_path)
    new, others = many_branches(made, 3)
    if why == "too many commits":
        monkeypatch.setattr(forks, "MOST_READ", 5)
    else:
        # private: the answers are the same, whichever way they are found
        monkeypatch.setattr(forks, "_Walk", lambda *_: pytest.fail("a walk"))
    if why == "grafts":
        (tmp_path / "info" / "grafts").write_text(f"{new[0].head}\n")
    found = open_archive(locate(str(tmp_path))).forks(new, [str(id) for id in others], at_once=why != "not all at once")
    assert set(found) == {"0", "1", "2"}
    assert found["2"] == Fork(str(made.ids[49]), 1)


def test_branches_of_a_shallow_clone_begin_where_it_ends(tmp_path: Path) -> None:
    made = a_history(tmp_path / "whole")
    new, others = many_branches(made, 4)
    made.repository.references.create("refs/heads/main", others[0])
    for branch in new:
        made.repository.references.create(f"refs/heads/{branch.name}", branch.head)
    shallow = tmp_path / "shallow"
    run("git", "clone", "-q", "--bare", "--no-single-branch", "--depth=1", f"file://{tmp_path}/whole", shallow)
    found = open_archive(locate(str(shallow))).forks(new, [str(others[0])])
    assert set(found.values()) == {Fork(None, 1)}
