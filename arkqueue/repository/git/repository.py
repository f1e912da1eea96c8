"""Git archives, read with pygit2: a local repository in place, a remote through this host's mirror.

`history` says what belongs to a branch's ledger; `program` alone runs git itself.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pygit2
from pygit2.enums import FileMode, Option, RepositoryOpenFlag

from arkqueue.errors import ArchiveMismatch, ArchiveUnreachable, NotFound, WorkspaceError
from arkqueue.model import (
    LONGEST_LIST,
    ArchiveKind,
    FileChange,
    Origin,
    Revision,
    SourceFile,
    TreeChange,
)
from arkqueue.plan.globs import matches
from arkqueue.repository import (
    FOLDER_FOR_LIST,
    LINKED_LIST,
    LONG_LIST,
    NO_LIST,
    ONLY_KEY,
    TOO_LONG,
    WORKFLOWS,
    Advance,
    Fork,
    Known,
    NewBranch,
    Survey,
    SurveyOptions,
    is_workflow_file,
    limits,
    linked,
    no_folder,
)
from arkqueue.repository.changes import listed
from arkqueue.repository.credentials import Handover, hand_to_git
from arkqueue.repository.following.addresses import NoAddress, read_address
from arkqueue.repository.following.allowance import Allowance, Followed, Following
from arkqueue.repository.git import history as history
from arkqueue.repository.git.branches import HEADS, branch_head, list_branches
from arkqueue.repository.git.commits import Commit, check_commit, commit_named, contains, has_object
from arkqueue.repository.git.dates import set_dates
from arkqueue.repository.git.export import EntryAtPath, write_entries
from arkqueue.repository.git.fingerprint import fingerprint, read_refs
from arkqueue.repository.git.forks import forks
from arkqueue.repository.git.mirror import clone_for_task
from arkqueue.repository.git.objects import Entry, Objects
from arkqueue.repository.git.references import references
from arkqueue.repository.git.submodules import Clone, Submodules, contents_of
from arkqueue.repository.git.tree_difference import changed_entries, changed_files, is_folder
from arkqueue.repository.git.tree_size import TreeSizes, number, weight
from arkqueue.repository.judged import JudgesFiles
from arkqueue.repository.limits import (
    MOST_PATHS,
    PathBudget,
    TooManyPaths,
    check_bytes,
    check_files,
    too_many_workflows,
)
from arkqueue.repository.location import Identity, Location, local_path, shut_out
from arkqueue.repository.tree_update import TreeUpdate, another_now
from arkqueue.repository.tree_writer import Early, TreeWriter, outermost

if TYPE_CHECKING:
    from arkqueue.repository.git.mirror import Mirror


_OTHER_KIND = re.compile("unknown object format|unsupported extension|unknown repository version", re.IGNORECASE)
"""libgit2's messages for repository formats of later versions of git."""

# A server reads repositories of other users, and only objects and refs of them.
pygit2.option(Option.SET_OWNER_VALIDATION, False)
# Like git, which does not verify the hashes of objects that it reads: verification would double the
# time of an export.
pygit2.option(Option.ENABLE_STRICT_HASH_VERIFICATION, False)


class GitArchive(JudgesFiles):
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
        self.fingerprint: bytes | None = None
        self._opened: pygit2.Repository | None = None
        self._counts: dict[pygit2.Oid, int] = {}
        self._objects: Objects | None = None
        self._counts_of_trees, self._weights_of_trees = TreeSizes(number), TreeSizes(weight)

    # Registration and looks

    def identity(self) -> Identity:
        self._refresh()
        with self._reading():
            return Identity(ArchiveKind.GIT, self._location.url if self._mirror else self._path)

    def main_branch(self, known: str | None = None) -> str:
        with self._reading() as repository:
            if known and not repository.is_bare and branch_head(repository, known) is not None:
                return known
            head = repository.lookup_reference("HEAD").target
            if known is not None and not isinstance(head, str):
                return known
            if not isinstance(head, str) or not head.startswith(HEADS):
                raise NotFound(self._location.shown, "its HEAD names no branch", "Name the branches to track.")
            return head.removeprefix(HEADS)

    def heads(
        self,
        branches: Sequence[str] = (),
        main: str | None = None,
        known: Mapping[str, Known] | None = None,
    ) -> dict[str, str]:
        self._refresh()
        refs, self.fingerprint = None, None
        if known is not None:  # a scan
            refs = read_refs(self._path) if branches else None
            if not self._mirror:
                self.fingerprint = refs.fingerprint if refs else fingerprint(self._path)
        main = None if branches else self.main_branch(main)
        with self._reading() as repository:
            if main is not None:
                id = branch_head(repository, main)
                return {} if id is None else {main: str(id)}
            # Matching each of a thousand names with the glob that matches all would take a third of
            # a scan.
            is_tracked = _any_name if tuple(branches) == ("**",) else partial(matches, tuple(branches))
            files = refs.branches if refs and os.path.samefile(refs.folder, repository.path) else None
            return dict(list_branches(repository, is_tracked, known, files))

    def baseline(self, branch: str, at: str | None = None, *, digests: bool = True) -> Revision | None:  # noqa: ARG002  its id is one
        self._refresh()
        with self._reading() as repository:
            head = branch_head(repository, branch)
            if head is None:
                if at:
                    raise NotFound(f"{self._location.shown} {branch}", f"has no revision {at}", "The branch is empty.")
                return None
            id = self._resolve(repository, branch, head, at) if at else head
            return history.counted(repository, id, self._counts)

    def baselines(self, heads: Mapping[str, str]) -> dict[str, Revision]:
        with self._reading() as repository:
            return {
                name: history.counted(repository, self._commit(repository, head).id, self._counts)
                for name, head in heads.items()
            }

    def has(self, revision: str) -> bool:
        """True for any object: a tag is an object of its own, which a mirror fetches by its id."""
        self._refresh()
        if len(revision) not in {40, 64}:
            return False
        with self._reading() as repository:
            if has_object(repository, revision):
                return True
        if self._mirror is None:
            return False
        self._mirror.fetch_commit(revision)
        self._opened = None
        with self._reading() as repository:
            return has_object(repository, revision)

    def check_known(self, *known: Known) -> None:
        """A commit's id stands for its whole history: a repository that has it is the right one."""
        with self._reading() as repository:
            for revision in known:
                if not has_object(repository, revision.id):
                    self._known(repository, revision)

    def check_gone(self, branch: str) -> None:
        """libgit2 leaves out a ref that cannot be read (empty after a power cut, or unreadable for
        this user), as if it had been deleted.
        """
        with self._reading() as repository:
            try:
                status = os.lstat(os.path.join(repository.path, HEADS + branch))
            except (FileNotFoundError, NotADirectoryError):
                if branch_head(repository, branch) is not None:
                    raise ArchiveUnreachable(
                        self._location.shown,
                        f"its branch {branch} came or was packed during the scan",
                        "The scan is repeated.",
                    ) from None
                return
            if not stat.S_ISDIR(status.st_mode) and branch_head(repository, branch) is None:
                raise pygit2.GitError(f"the ref of branch {branch} exists, but cannot be read")

    def check_heads(self, heads: Mapping[str, str]) -> None:
        with self._reading() as repository:
            for name, id in heads.items():
                try:
                    check_commit(repository, id)
                except (pygit2.GitError, KeyError, OSError) as error:
                    self._opened = None
                    raise ArchiveUnreachable(
                        self._location.shown,
                        f"the commit {id[:12]} at the head of its branch {name} cannot be read ({error})",
                        "Bring the object back from a backup or a clone; `git fsck` tells what else is damaged.",
                    ) from error

    # The ledger

    def forks(self, new: Sequence[NewBranch], others: Collection[str], *, at_once: bool = True) -> dict[str, Fork]:
        with self._reading() as repository:
            for branch in new:
                self._commit(repository, branch.head)
            return forks(repository, new, others, at_once=at_once)

    def advance(
        self,
        branch: str,  # noqa: ARG002  its head is enough
        known: Known | None,
        new_head: str,
        *,
        limit: int = 1000,
        fork: Fork | None = None,
        digests: bool = True,  # noqa: ARG002  a commit's id is one
    ) -> Advance:
        with self._reading() as repository:
            new = self._commit(repository, new_head).id
            if known is not None and fork is None:
                return history.followed(repository, new, self._known(repository, known), known.number, limit)
            return history.begun(repository, new, fork, known, limit, self._counts)

    # One revision

    def workflows_key(self, revision_id: str) -> str:
        with self._reading() as repository:
            folder = self._workflows(repository, revision_id)
            return f"{folder.id} {folder.filemode:o}" if folder is not None else ""

    def read_workflows(self, revision_id: str) -> tuple[SourceFile, ...]:
        with self._reading() as repository:
            folder = self._workflows(repository, revision_id)
            if folder is None:
                return ()
            if not isinstance(folder, pygit2.Tree):
                return ((linked if folder.filemode == FileMode.LINK else no_folder)(WORKFLOWS),)
            entries = {
                name: (entry, repository.odb.read_header(entry.id)[1])
                for entry in folder
                if isinstance(entry, pygit2.Blob) and is_workflow_file(name := _shown(entry.raw_name))
            }
            if fault := too_many_workflows([size for _, size in entries.values()]):
                return (SourceFile(WORKFLOWS, fault=fault),)
            files = []
            for name, (entry, size) in entries.items():
                if entry.filemode == FileMode.LINK:
                    files.append(linked(f"{WORKFLOWS}/{name}"))
                else:
                    files.append(SourceFile(f"{WORKFLOWS}/{name}", entry.data if size < len(TOO_LONG) else TOO_LONG))
            return tuple(sorted(files, key=lambda file: file.path))

    def read_list(self, revision_id: str, path: str) -> SourceFile:
        with self._reading() as repository:
            found: pygit2.Object | None = self._tree(repository, revision_id)
            for part in path.split("/"):
                found = found[part] if isinstance(found, pygit2.Tree) and part in found else None
            if isinstance(found, pygit2.Tree):
                return SourceFile(path, fault=FOLDER_FOR_LIST)
            if not isinstance(found, pygit2.Blob):
                return SourceFile(path, fault=NO_LIST)
            if found.filemode == FileMode.LINK:
                return SourceFile(path, fault=LINKED_LIST)
            if repository.odb.read_header(found.id)[1] > LONGEST_LIST:
                return SourceFile(path, fault=LONG_LIST)
            return SourceFile(path, found.data)

    def changed_paths(self, previous: str | None, revision_id: str) -> tuple[str, ...]:
        """A previous revision that the repository has lost since (after a force-push) counts as no
        previous revision.
        """
        with self._reading() as repository:
            is_there = previous is not None and has_object(repository, previous)
            before = self._commit(repository, previous).tree if previous is not None and is_there else None
            after = self._commit(repository, revision_id).tree
            paths = changed_files(self._known_objects(repository), before, after, PathBudget())
            return tuple(sorted(_shown(path) for path in paths))

    def changes(
        self,
        base: str | None,
        revision_id: str,
        *,
        most: int = MOST_PATHS,
        recorded: Revision | None = None,  # noqa: ARG002
    ) -> tuple[FileChange, ...]:
        with self._reading() as repository:
            before = self._commit(repository, base).tree if base is not None else None
            after = self._commit(repository, revision_id).tree
            return listed(changed_files(self._known_objects(repository), before, after, PathBudget(most)))

    def not_followed(self, revision_id: str) -> tuple[str, ...]:
        with self._reading() as repository:
            return _not_followed(self._known_objects(repository), self._commit(repository, revision_id))

    def survey(
        self,
        revision_id: str,
        options: SurveyOptions = ONLY_KEY,
        *,
        recorded: Revision | None = None,  # noqa: ARG002
    ) -> Survey:
        with self._reading() as repository:
            commit, found, objects = self._commit(repository, revision_id), None, self._known_objects(repository)
            if options.changes:
                with suppress(NotFound, TooManyPaths):
                    before = self._commit(repository, options.base).tree if options.base is not None else None
                    found = listed(changed_files(objects, before, commit.tree, PathBudget(options.most)))
            return Survey(str(commit.tree), found, _not_followed(objects, commit) if options.notes else ())

    # ``recorded`` is not needed here: the id of a commit stands for its files, its author and its
    # date.

    def export(
        self,
        revision_id: str,
        target: Path,
        paths: Sequence[str] = (),
        *,
        recorded: Revision | None = None,  # noqa: ARG002
        early: Early | None = None,
    ) -> None:
        with self._reading() as repository:
            commit, objects = self._commit(repository, revision_id), self._known_objects(repository)
            entries: list[EntryAtPath] = []
            for path in outermost(paths):
                try:
                    found = _tree_of(repository, commit)[path]
                except KeyError:
                    raise NotFound(path, f"is not in revision {revision_id}", "Correct the path.") from None
                entries.append(((b"%o" % found.filemode, found.id.raw), path.encode()))
            self._check_size(objects, revision_id, [entry for entry, _ in entries] if paths else [_whole(commit)])
            if not paths:
                budget = PathBudget(limits.MOST_FILES)
                entries = [(entry, name) for name, entry in objects.all_entries(commit.tree, budget).items()]
            writer = TreeWriter(target, early)
            writer.weigh = partial(self._check_weight, objects, revision_id, [entry for entry, _ in entries])
            set_dates(objects, commit, writer, write_entries(self._location.shown, objects, writer, entries))

    def update(
        self,
        before: str,
        revision_id: str,
        target: Path,
        *,
        options: SurveyOptions = ONLY_KEY,
        good: Path | None = None,
        before_key: str | None = None,
        others: Collection[str] = (),
        recorded: Revision | None = None,  # noqa: ARG002
        early: Early | None = None,
    ) -> tuple[Survey, TreeChange | None]:
        survey = self.survey(revision_id, options)
        if survey.tree_key in others:
            return survey, None
        with self._reading() as repository, TreeUpdate(target, good, early) as update:
            try:
                exported = self._commit(repository, before)
            except NotFound:
                raise another_now(before) from None
            if before_key not in (None, str(exported.tree)):
                raise another_now(before)
            commit = self._commit(repository, revision_id)
            objects, budget = self._known_objects(repository), PathBudget(limits.MOST_FILES)
            self._check_size(objects, revision_id, [_whole(commit)])
            update.weigh = partial(self._check_weight, objects, revision_id, [_whole(commit)])
            entries = changed_entries(objects, exported.tree, commit.tree, update, budget)
            set_dates(objects, commit, update, write_entries(self._location.shown, objects, update, entries))
            return survey, update.result()

    def working_copy(
        self,
        revision_id: str,
        branch: str,
        target: Path,
        *,
        author: str,
        origin: Origin | None = None,
        handover: Handover | None = None,
        recorded: Revision | None = None,  # noqa: ARG002
    ) -> Path | None:
        """Returns no folder of commands: the clone's hooks mark commits."""
        with self._reading() as repository:
            commit = self._commit(repository, revision_id)
            self._check_size(self._known_objects(repository), revision_id, [_whole(commit)])
        url = self._location.url if self._mirror else self._path
        with self._mirror.unchanged() if self._mirror else nullcontext():
            clone_for_task(
                self._path, url, revision_id, branch, target, author=author, origin=origin, timeout=self._timeout
            )
        if handover:
            hand_to_git(self._location, target, handover)
        return None

    def follow(
        self,
        revision_id: str,
        target: Path,
        following: Following,
        *,
        recorded: Revision | None = None,  # noqa: ARG002
    ) -> Followed:
        from arkqueue.repository.git.lfs import LargeFiles  # imports an HTTP client, which few archives need

        allowance = Allowance(following)
        submodules = Submodules(allowance, target, self._timeout)
        files = LargeFiles(allowance, self._timeout)
        try:
            origin = read_address(self._location.url) if self._mirror else None
        except NoAddress:
            origin = None
        pending = [(Clone(target / ".git", target, pygit2.Oid(hex=revision_id), origin), 1)]
        try:
            while pending:
                clone, depth = pending.pop()
                contents = contents_of(clone, allowance, clone.place or "the revision")
                pending += [(made, depth + 1) for made in submodules.follow(clone, contents, depth)]
                files.follow(clone, contents)
        except TooManyPaths as error:
            if not clone.place:
                return Followed((f"the references of the revision are not read: {error}",))
            raise WorkspaceError(f"submodule {clone.place}", str(error)) from error
        except (pygit2.GitError, KeyError) as error:
            raise WorkspaceError(str(target), f"its references cannot be read ({error})") from error
        return allowance.result()

    # Below

    @contextmanager
    def _reading(self) -> Iterator[pygit2.Repository]:
        """The open repository, opened again after any error. Errors of libgit2 become errors of
        arkqueue.
        """
        try:
            if self._opened is None:
                if self._mirror:
                    self._mirror.make()
                self._opened = pygit2.Repository(self._path, RepositoryOpenFlag.NO_SEARCH)
                if self._quarantine:
                    self._opened.odb.add_disk_alternate(str(self._quarantine))
            yield self._opened
        except (pygit2.GitError, KeyError, OSError) as error:
            self._opened = None
            if unreachable := shut_out(self._path, self._location.shown):
                raise unreachable from error
            if not os.path.exists(self._path):
                fault, remedy = "there is no such folder", "Bring it back, or register the archive anew."
            else:
                fault = f"it cannot be read as a Git repository ({error})"
                remedy = "Check its files and permissions; `git fsck` tells what is broken."
                if "refstorage" in str(error):
                    remedy = (
                        "Nothing is broken, but arkqueue reads refs in files only, and not in tables (reftable). "
                        f"Convert the repository: git -C {shlex.quote(self._path)} refs migrate --ref-format=files "
                        "(git 2.46 or later)."
                    )
                elif _OTHER_KIND.search(str(error)):
                    remedy = "Nothing is broken, but arkqueue reads repositories with SHA-1 ids only: convert it, or watch a clone of that kind."
            raise ArchiveUnreachable(self._location.shown, fault, remedy) from error

    def _known_objects(self, repository: pygit2.Repository) -> Objects:
        """The cache of recent objects, which reads through the present handle."""
        if self._objects is None:
            self._objects = Objects(repository)
        self._objects.repository = repository
        return self._objects

    def _refresh(self) -> None:
        """Before a scan: update the mirror, and drop handles on a folder that was replaced
        meanwhile.
        """
        self._opened = None
        if self._mirror:
            self._mirror.refresh(self._refs)
            self._opened = None

    def _refs(self) -> dict[str, str]:
        with self._reading() as repository:
            return {HEADS + name: id for name, id in list_branches(repository)}

    def _commit(self, repository: pygit2.Repository, id: str) -> Commit:
        """A commit by its full id. A mirror that lacks it asks its remote first."""
        if self._mirror and not has_object(repository, id):
            self._mirror.refresh(self._refs)
            if not has_object(repository, id):
                self._mirror.fetch_commit(id)
        is_there = has_object(repository, id)
        commit = self._known_objects(repository).commit(pygit2.Oid(hex=id)) if is_there else None
        if commit is None:
            raise NotFound(self._location.shown, f"has no commit {id}", "It may have been removed by a force-push.")
        return commit

    def _tree(self, repository: pygit2.Repository, id: str) -> pygit2.Tree:
        return _tree_of(repository, self._commit(repository, id))

    def _known(self, repository: pygit2.Repository, known: Known) -> pygit2.Oid:
        try:
            return self._commit(repository, known.id).id
        except NotFound:
            raise ArchiveMismatch(
                self._location.shown,
                f"no longer holds the last known commit {known.id[:12]} (revision {known.number}): "
                "it is another repository, an older backup, or has lost history",
                "Bring the right one back, then: arkqueue sync NAME; or go on from a revision that it has: arkqueue archive rewind NAME REV",
            ) from None

    def _resolve(self, repository: pygit2.Repository, branch: str, head: pygit2.Oid, at: str) -> pygit2.Oid:
        """The commit that a person names: first by its number on the branch, then as git finds it."""
        if at.isascii() and at.isdigit():
            chain = list(history.first_parents(repository, head))
            if 1 <= int(at) <= len(chain):
                return chain[-int(at)]
        for name in (at, at.removeprefix("g")):
            id = commit_named(repository, name)
            if id is not None and (id == head or contains(repository, head, id)):
                return id
        raise NotFound(f"{self._location.shown} {branch}", f"has no revision {at}", "Give a number or a commit of it.")

    def _check_size(self, objects: Objects, revision_id: str, wanted: Sequence[Entry]) -> None:
        """Raise WorkspaceError if these files, and all contents of these folders, are too many for
        a workspace.
        """
        count: int | None = len(wanted)
        try:
            for entry in wanted:
                if is_folder(entry) and count is not None:
                    count += self._counts_of_trees.of(objects, pygit2.Oid(raw=entry[1]), PathBudget(limits.MOST_FILES))
        except TooManyPaths:
            count = None
        check_files(f"revision {revision_id}", count)

    def _check_weight(self, objects: Objects, revision_id: str, wanted: Sequence[Entry]) -> None:
        """Raise WorkspaceError if these files, and all files in these folders, have too many bytes for a workspace."""
        count = weight(objects, wanted)
        for entry in wanted:
            if is_folder(entry):
                count += self._weights_of_trees.of(objects, pygit2.Oid(raw=entry[1]), PathBudget(limits.MOST_FILES))
        check_bytes(f"revision {revision_id}", count)

    def _workflows(self, repository: pygit2.Repository, revision_id: str) -> pygit2.Object | None:
        """The entry with the name of the folder of workflow files; None if there is none."""
        tree = self._tree(repository, revision_id)
        return tree[WORKFLOWS] if WORKFLOWS in tree else None  # noqa: SIM401  it has no get


def _tree_of(repository: pygit2.Repository, commit: Commit) -> pygit2.Tree:
    tree = repository[commit.tree]
    assert isinstance(tree, pygit2.Tree), "what a commit names as its tree is one"
    return tree


def _whole(commit: Commit) -> Entry:
    """The tree of a commit, in the form of an entry."""
    return b"%o" % FileMode.TREE, commit.tree.raw


def _not_followed(objects: Objects, commit: Commit) -> tuple[str, ...]:
    try:
        return references.of(objects, commit.tree)
    except TooManyPaths:
        return ()


def _any_name(_name: str) -> bool:
    return True


def _shown(path: bytes | None) -> str:
    return (path or b"").decode(errors="backslashreplace")
