"""Git archives, read with pygit2: a local repository in place, a remote through this host's mirror.

The ledger of a branch holds first-parent commits (design 5.16): what reached the branch by one push or merge each. So
`advance` asks which commits of the new head's first-parent chain the last known commit does not contain. git's and
libgit2's own ``new ^known`` walks judge by commit dates and, when clocks were wrong, name commits that ``known`` does
contain; as ancestors of ``known`` on a first-parent chain are all behind the first one found, a search that doubles its
step and then halves it finds the exact place with a few ancestry questions.

A revision's ``author`` is the commit's author, who wrote it; its ``date`` is the committer's, when it came to be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pygit2
from pygit2.enums import BranchType, DiffOption, FileMode, Option, RepositoryOpenFlag

from arkqueue.archive import TOO_LONG, WORKFLOWS, Advance, is_workflow_file, within_calendar
from arkqueue.archive.location import Identity, Location, local_path
from arkqueue.archive.mirror import clone_for_task
from arkqueue.archive.origin import origin_of_message
from arkqueue.archive.tree import TreeWriter, outermost
from arkqueue.errors import ArchiveMismatch, ArchiveUnreachable, NotFound
from arkqueue.model import ArchiveKind, Origin, Revision, SourceFile

if TYPE_CHECKING:
    from arkqueue.archive.mirror import Mirror

_HEADS = "refs/heads/"

# A server looks after repositories of other users; it only ever reads objects and refs of theirs.
pygit2.option(Option.SET_OWNER_VALIDATION, False)


@dataclass(frozen=True, slots=True)
class _Chain:
    """The first-parent commits that are new to someone, newest first, and the one before the oldest of them."""

    new: tuple[pygit2.Oid, ...]
    before: pygit2.Oid | None


class GitArchive:
    """An `Archive` of a Git repository."""

    def __init__(
        self,
        location: Location,
        *,
        mirror: Mirror | None = None,
        quarantine: Path | None = None,
        timeout: float = 600.0,
    ) -> None:
        self._location, self._mirror, self._quarantine, self._timeout = location, mirror, quarantine, timeout
        self._path = str(mirror.folder) if mirror else local_path(location) or location.url
        self._opened: pygit2.Repository | None = None

    # Registration and looks

    def identity(self) -> Identity:
        self._refresh()
        with self._reading():
            return Identity(ArchiveKind.GIT, self._location.url if self._mirror else self._path)

    def main_branch(self) -> str:
        with self._reading() as repository:
            head = repository.lookup_reference("HEAD").target
            if not isinstance(head, str) or not head.startswith(_HEADS):
                raise NotFound(self._location.shown, "its HEAD names no branch", "Name the branches to track.")
            return head.removeprefix(_HEADS)

    def heads(self, branches: Sequence[str] = ()) -> dict[str, str]:
        self._refresh()
        main = None if branches else self.main_branch()
        with self._reading() as repository:

            def is_tracked(name: str) -> bool:
                return name == main if main is not None else any(fnmatchcase(name, glob) for glob in branches)

            return {name: str(id) for name, id in _branches(repository, is_tracked)}

    def baseline(self, branch: str, at: str | None = None) -> Revision | None:
        self._refresh()
        with self._reading() as repository:
            head = dict(_branches(repository)).get(branch)
            if head is None:
                if at:
                    raise NotFound(f"{self._location.shown} {branch}", f"has no revision {at}", "The branch is empty.")
                return None
            id = self._resolve(repository, branch, head, at) if at else head
            return _revision(repository, id, sum(1 for _ in _first_parents(repository, id)))

    def has(self, revision: str) -> bool:
        """Any object will do: a tag is an object of its own, which a mirror fetches by its id."""
        self._refresh()
        if len(revision) not in {40, 64}:
            return False
        with self._reading() as repository:
            if revision in repository:
                return True
        if self._mirror is None:
            return False
        self._mirror.fetch_commit(revision)
        self._opened = None
        with self._reading() as repository:
            return revision in repository

    def check_known(self, known: Revision) -> None:
        """A commit's id stands for its whole history: a repository that holds it is the same one."""
        with self._reading() as repository:
            self._known(repository, known)

    # The ledger

    def advance(
        self,
        branch: str,
        known: Revision | None,
        new_head: str,
        *,
        limit: int = 1000,
        siblings: Mapping[str, str] | None = None,
    ) -> Advance:
        with self._reading() as repository:
            new = self._commit(repository, new_head).id
            if known is None:
                others = [
                    pygit2.Oid(hex=id) for name, id in (siblings or {}).items() if name != branch and id in repository
                ]
                return self._start(repository, new, others, limit)
            old = self._known(repository, known)
            if old == new:
                return Advance()
            if repository.descendant_of(new, old):  # a fast-forward, also where `old` is off the first-parent chain
                return _appended(repository, _new_to(repository, new, [old]).new, known.number, limit)
            dropped = tuple(str(id) for id in _new_to(repository, old, [new]).new)
            if repository.descendant_of(old, new):  # a reset: the ancestor's turn again
                return _appended(repository, (new,), known.number, limit, dropped=dropped)
            return _appended(repository, _new_to(repository, new, [old]).new, known.number, limit, dropped=dropped)

    def _start(self, repository: pygit2.Repository, new: pygit2.Oid, others: list[pygit2.Oid], limit: int) -> Advance:
        """A branch without ledger: all of it where there is no other, else from where it left the others.

        That place is the parent of its first own commit, and not a newer merge base that it merged in later: the
        tree difference of the first own commit is the one to its parent.
        """
        chain = _new_to(repository, new, others)
        if not chain.new:
            count = sum(1 for _ in _first_parents(repository, new))
            return Advance(revisions=(_revision(repository, new, count),))
        if chain.before is None:
            return _appended(repository, chain.new, 0, limit)
        base = _revision(repository, chain.before, sum(1 for _ in _first_parents(repository, chain.before)))
        return _appended(repository, chain.new, base.number, limit, baseline=base)

    # One revision

    def workflows_key(self, revision_id: str) -> str:
        with self._reading() as repository:
            folder = self._workflows(repository, revision_id)
            return str(folder.id) if folder is not None else ""

    def read_workflows(self, revision_id: str) -> tuple[SourceFile, ...]:
        with self._reading() as repository:
            files = []
            for entry in self._workflows(repository, revision_id) or ():
                name = _shown(entry.raw_name)
                if isinstance(entry, pygit2.Blob) and entry.filemode != FileMode.LINK and is_workflow_file(name):
                    _, size = repository.odb.read_header(entry.id)
                    files.append(SourceFile(f"{WORKFLOWS}/{name}", entry.data if size < len(TOO_LONG) else TOO_LONG))
            return tuple(sorted(files, key=lambda file: file.path))

    def changed_paths(self, previous: str | None, revision_id: str) -> tuple[str, ...]:
        """A previous revision that the repository has lost since (after a force-push) counts as none."""
        with self._reading() as repository:
            tree = self._commit(repository, revision_id).tree
            options = DiffOption.SKIP_BINARY_CHECK
            if previous is not None and previous in repository:
                before = self._commit(repository, previous).tree
                if before.id == tree.id:
                    return ()
                difference = before.diff_to_tree(tree, flags=options)
            else:
                difference = tree.diff_to_tree(flags=options, swap=True)
            paths = {file.raw_path for delta in difference.deltas for file in (delta.old_file, delta.new_file)}
            return tuple(sorted(_shown(path) for path in paths))

    def export(self, revision_id: str, target: Path, paths: Sequence[str] = ()) -> None:
        with self._reading() as repository:
            tree = self._commit(repository, revision_id).tree
            writer = TreeWriter(target)
            entries: list[tuple[pygit2.Object, bytes]] = []
            for path in outermost(paths):
                try:
                    entries.append((tree[path], path.encode()))
                except KeyError:
                    raise NotFound(path, f"is not in revision {revision_id}", "Correct the path.") from None
            _write(writer, entries if paths else [(entry, entry.raw_name or b"") for entry in tree])

    def working_copy(
        self, revision_id: str, branch: str, target: Path, *, author: str, origin: Origin | None = None
    ) -> Path | None:
        """Needs no command of its own: the clone's hooks mark commits. Pushing is up to the task's credentials."""
        with self._reading() as repository:
            self._commit(repository, revision_id)
        url = self._location.url if self._mirror else self._path
        clone_for_task(
            self._path, url, revision_id, branch, target, author=author, origin=origin, timeout=self._timeout
        )
        return None

    # Below

    @contextmanager
    def _reading(self) -> Iterator[pygit2.Repository]:
        """The open repository, opened anew after any error; libgit2's errors become ours."""
        try:
            if self._opened is None:
                self._opened = pygit2.Repository(self._path, RepositoryOpenFlag.NO_SEARCH)
                if self._quarantine:
                    self._opened.odb.add_disk_alternate(str(self._quarantine))
            yield self._opened
        except (pygit2.GitError, KeyError, OSError) as error:
            self._opened = None
            if not Path(self._path).exists():
                fault, remedy = "there is no such folder", "Bring it back, or register the archive anew."
            else:
                fault, remedy = f"it cannot be read as a Git repository ({error})", "Check its files and permissions."
            raise ArchiveUnreachable(self._location.shown, fault, remedy) from error

    def _refresh(self) -> None:
        """Before a look: the mirror up to date, and no handles on a folder that was replaced meanwhile."""
        self._opened = None
        if self._mirror:
            self._mirror.refresh(self._refs)
            self._opened = None

    def _refs(self) -> dict[str, str]:
        with self._reading() as repository:
            return {_HEADS + name: str(id) for name, id in _branches(repository)}

    def _commit(self, repository: pygit2.Repository, id: str) -> pygit2.Commit:
        """A commit by its full id; a mirror that lacks it asks its remote first."""
        if self._mirror and id not in repository:
            self._mirror.refresh(self._refs)
            if id not in repository:
                self._mirror.fetch_commit(id)
        commit = repository.get(id) if len(id) in {40, 64} else None
        if not isinstance(commit, pygit2.Commit):
            raise NotFound(self._location.shown, f"has no commit {id}", "It may have been removed by a force-push.")
        return commit

    def _known(self, repository: pygit2.Repository, known: Revision) -> pygit2.Oid:
        try:
            return self._commit(repository, known.id).id
        except NotFound:
            raise ArchiveMismatch(
                self._location.shown,
                f"no longer holds the last known commit {known.id[:12]} (revision {known.number}): "
                "it is another repository, an older backup, or has lost history",
                "Restore it, or go on from a revision that it has with `arkqueue archive rewind NAME REV`.",
            ) from None

    def _resolve(self, repository: pygit2.Repository, branch: str, head: pygit2.Oid, at: str) -> pygit2.Oid:
        """The commit that a person means: by its number on the branch first, else as git reads it."""
        if at.isdigit():
            chain = list(_first_parents(repository, head))
            if 1 <= int(at) <= len(chain):
                return chain[-int(at)]
        for name in (at, at.removeprefix("g")):
            try:
                id = repository.revparse_single(name).peel(pygit2.Commit).id
            except (KeyError, ValueError, pygit2.GitError):
                continue
            if id == head or repository.descendant_of(head, id):
                return id
        raise NotFound(f"{self._location.shown} {branch}", f"has no revision {at}", "Give a number or a commit of it.")

    def _workflows(self, repository: pygit2.Repository, revision_id: str) -> pygit2.Tree | None:
        tree = self._commit(repository, revision_id).tree
        if WORKFLOWS not in tree:
            return None
        entry = tree[WORKFLOWS]
        return entry if isinstance(entry, pygit2.Tree) else None


def _branches(
    repository: pygit2.Repository, wanted: Callable[[str], bool] | None = None
) -> Iterator[tuple[str, pygit2.Oid]]:
    """Every branch that names a commit, under its short name; names that are not UTF-8 or longer than libgit2 takes cannot be tracked.

    A commit that cannot be read is an error for a ``wanted`` branch, which would be taken for a deleted one, and else no branch.
    """
    for raw in repository.raw_listall_branches(BranchType.LOCAL):
        try:
            name = raw.decode()
            if wanted is not None and not wanted(name):
                continue
            reference = repository.lookup_reference(_HEADS + name)
        except (ValueError, KeyError, pygit2.GitError):
            continue  # deleted meanwhile
        try:
            id = reference.peel(pygit2.Commit).id
        except pygit2.InvalidSpecError:
            continue  # no commit
        except (KeyError, ValueError, pygit2.GitError) as error:
            if wanted is None:
                continue
            raise pygit2.GitError(f"the head of {name}: {error}") from error
        yield name, id


def _first_parents(repository: pygit2.Repository, start: pygit2.Oid) -> Iterator[pygit2.Oid]:
    id: pygit2.Oid | None = start
    while id is not None:
        yield id
        parents = repository[id].parent_ids  # type: ignore[attr-defined]  # a first-parent chain holds commits only
        # The end of a shallow clone names a parent that is not there.
        id = parents[0] if parents and parents[0] in repository else None


def _new_to(repository: pygit2.Repository, start: pygit2.Oid, known: Sequence[pygit2.Oid]) -> _Chain:
    """The part of ``start``'s first-parent chain that none of ``known`` contains (see the top of this file)."""

    def is_known(id: pygit2.Oid) -> bool:
        return any(id == head or repository.descendant_of(head, id) for head in known)

    source = _first_parents(repository, start)
    chain: list[pygit2.Oid] = []
    new, step = 0, 1  # chain[:new] is new
    while True:
        chain.extend(islice(source, step))
        if len(chain) == new:
            return _Chain(tuple(chain), None)
        if is_known(chain[-1]):
            first_known = _first(new, len(chain) - 1, lambda at: is_known(chain[at]))
            return _Chain(tuple(chain[:first_known]), chain[first_known])
        new, step = len(chain), step * 2


def _first(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The least number from low to high that ``holds``; it does for high and all after the first."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _appended(
    repository: pygit2.Repository,
    newest_first: Sequence[pygit2.Oid],
    number: int,
    limit: int,
    *,
    dropped: tuple[str, ...] = (),
    baseline: Revision | None = None,
) -> Advance:
    ids = newest_first[::-1]
    revisions = tuple(_revision(repository, id, number + place) for place, id in enumerate(ids[:limit], start=1))
    return Advance(dropped, revisions, complete=len(ids) <= limit, baseline=baseline)


def _revision(repository: pygit2.Repository, id: pygit2.Oid, number: int) -> Revision:
    commit = repository[id]
    assert isinstance(commit, pygit2.Commit)
    encoding = commit.message_encoding or "utf-8"
    author = commit.author
    message = _text(commit.raw_message, encoding)
    return Revision(
        id=str(id),
        number=number,
        author=f"{_text(author.raw_name, encoding)} <{_text(author.raw_email, encoding)}>",
        date=_date(commit.commit_time),
        message=message,
        origin=origin_of_message(message),
    )


def _text(raw: bytes, encoding: str) -> str:
    try:
        return raw.decode(encoding, errors="replace")
    except LookupError:
        return raw.decode(errors="replace")


def _date(seconds: int) -> datetime:
    """A commit may claim any time; what the calendar lacks becomes its nearest end."""
    try:
        return within_calendar(datetime.fromtimestamp(seconds, UTC))
    except (OverflowError, ValueError, OSError):
        return within_calendar((datetime.max if seconds > 0 else datetime.min).replace(tzinfo=UTC))


def _shown(path: bytes | None) -> str:
    return (path or b"").decode(errors="backslashreplace")


def _write(writer: TreeWriter, entries: list[tuple[pygit2.Object, bytes]]) -> None:
    """Write trees and what is in them; a tree may be nested more deeply than calls can be."""
    while entries:
        entry, path = entries.pop()
        if not writer.wants(path):
            continue
        if isinstance(entry, pygit2.Tree):
            writer.folder(path)
            entries.extend((child, path + b"/" + (child.raw_name or b"")) for child in entry)
        elif not isinstance(entry, pygit2.Blob):
            writer.folder(path)  # the place of a submodule
        elif entry.filemode == FileMode.LINK:
            writer.symlink(path, entry.data)
        else:
            writer.write(path, memoryview(entry), executable=entry.filemode == FileMode.BLOB_EXECUTABLE)
