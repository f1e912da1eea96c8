"""The ways in which a repository can change without a notice to arkqueue. `GIT` and `SUBVERSION`
map a name to a `Change`.

Each change restores everything that a program can set: file times, sizes and names.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from tests.repositories import GitRepository, SubversionRepository, run

R = TypeVar("R", GitRepository, SubversionRepository)


@dataclass(frozen=True)
class Change(Generic[R]):
    """``before`` prepares the repository for ``happens``; only ``happens`` is the change."""

    happens: Callable[[R], object]
    before: Callable[[R], object] = lambda _repository: None


def pack(repository: GitRepository) -> None:
    run("git", "pack-refs", "--all", "--prune", cwd=repository.path)


def _commit_and_pack(repository: GitRepository) -> None:
    repository.commit({"x": "packed"})
    pack(repository)


def _topic(repository: GitRepository) -> None:
    repository.git("branch", "topic")
    repository.push("topic")


def _packed_topic(repository: GitRepository) -> None:
    _topic(repository)
    pack(repository)


def _write_ref_in_place(repository: GitRepository) -> None:
    """Writes the ref file in place without git, as an editor or ``cp`` does."""
    ref = repository.path / "refs/heads/main"
    status = ref.stat()
    ref.write_text(repository.id("HEAD^") + "\n")
    os.utime(ref, ns=(status.st_atime_ns, status.st_mtime_ns))


def _write_packed_refs_in_place(repository: GitRepository) -> None:
    packed = repository.path / "packed-refs"
    status = packed.stat()
    packed.write_text(packed.read_text().replace(repository.id(), repository.id("HEAD^")))
    os.utime(packed, ns=(status.st_atime_ns, status.st_mtime_ns))


def _there_and_back(repository: GitRepository) -> None:
    head = repository.id()
    for id in (repository.id("HEAD^"), head):
        run("git", "update-ref", "refs/heads/main", id, cwd=repository.path)


def _symbolic(repository: GitRepository, target: str = "refs/heads/topic") -> None:
    run("git", "symbolic-ref", "refs/heads/latest", target, cwd=repository.path)


def _symbolic_and_topic(repository: GitRepository) -> None:
    repository.push("HEAD^:refs/heads/topic")
    _symbolic(repository)


def _borrow_objects(repository: GitRepository) -> None:
    """Moves all objects so far to another folder, as ``git clone --shared`` does."""
    objects, store = repository.path / "objects", repository.path.with_name("store")
    objects.rename(store)
    (objects / "info").mkdir(parents=True)
    (objects / "info/alternates").write_text(f"{store}\n")


def _further_tree(repository: GitRepository) -> None:
    run("git", "worktree", "add", "-q", "-b", "further", repository.path.with_name("further"), cwd=repository.path)


def _commit_in_further_tree(repository: GitRepository) -> None:
    who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    run(
        "git",
        *who,
        "commit",
        "-q",
        "--allow-empty",
        "-m",
        "",
        "--allow-empty-message",
        cwd=repository.path.with_name("further"),
    )


def _back_up(repository: GitRepository | SubversionRepository) -> None:
    shutil.copytree(repository.path, _backup(repository))
    repository.commit({"x": "after the backup"})


def _restore_in_place(repository: GitRepository | SubversionRepository) -> None:
    """Restores a backup, including the times and owners of its files."""
    run("cp", "-a", f"{_backup(repository)}/.", repository.path)


def _replace_folder(repository: GitRepository | SubversionRepository) -> None:
    repository.path.rename(repository.path.with_name("former"))
    shutil.copytree(_backup(repository), repository.path)


def _replace_by_itself(repository: GitRepository | SubversionRepository) -> None:
    shutil.copytree(repository.path, _backup(repository))
    repository.path.rename(repository.path.with_name("former"))
    _backup(repository).rename(repository.path)


def _backup(repository: GitRepository | SubversionRepository) -> Path:
    return repository.path.with_name("backup")


def _write_current_in_place(repository: SubversionRepository) -> None:
    """Writes a number with as many digits into ``current``, and restores the file's time."""
    current = repository.path / "db/current"
    status = current.stat()
    current.write_text(f"{int(current.read_text()) - 1}\n")
    os.utime(current, ns=(status.st_atime_ns, status.st_mtime_ns))


def _copy_ahead(repository: SubversionRepository) -> None:
    run("svnadmin", "hotcopy", repository.path, _backup(repository))
    ahead = SubversionRepository(_backup(repository))
    ahead.commit({"x": "in the copy"})


def _dump(repository: SubversionRepository) -> None:
    run("svnadmin", "dump", "-q", repository.path, "-F", repository.path.with_name("dump"))
    repository.mkdir("loaded")


def _load(repository: SubversionRepository) -> None:
    dump = repository.path.with_name("dump")
    run("svnadmin", "load", "-q", repository.path, "--parent-dir", "loaded", "-F", dump)


GIT: dict[str, Change[GitRepository]] = {
    "a push": Change(lambda repository: repository.commit({"x": "pushed"})),
    "a push onto packed refs": Change(lambda repository: repository.commit({"x": "pushed"}), pack),
    "a push that is packed at once": Change(_commit_and_pack, pack),
    "a new branch": Change(_topic),
    "a new branch onto packed refs": Change(_topic, pack),
    "a new nested branch": Change(lambda repository: repository.push("HEAD:refs/heads/a/b/c")),
    "a push to a nested branch": Change(
        lambda repository: repository.push("HEAD^:refs/heads/a/b/c", force=True),
        lambda repository: repository.push("HEAD:refs/heads/a/b/c"),
    ),
    "a deleted branch": Change(lambda repository: repository.delete_branch("topic"), _topic),
    "a deleted packed branch": Change(lambda repository: repository.delete_branch("topic"), _packed_topic),
    "a force-push": Change(lambda repository: repository.push("HEAD^:refs/heads/main", force=True)),
    "another HEAD": Change(
        lambda repository: run("git", "symbolic-ref", "HEAD", "refs/heads/topic", cwd=repository.path), _topic
    ),
    "a symbolic branch that names another one": Change(
        lambda repository: _symbolic(repository, "refs/heads/main"), _symbolic_and_topic
    ),
    "a push to a branch that a symbolic one names": Change(
        lambda repository: repository.push("HEAD:refs/heads/topic"), _symbolic_and_topic
    ),
    "a push to a repository that borrows its objects": Change(
        lambda repository: repository.commit({"x": "pushed"}), _borrow_objects
    ),
    "a commit in a further work tree": Change(_commit_in_further_tree, _further_tree),
    "a ref that is written in place": Change(_write_ref_in_place),
    "packed refs that are written in place": Change(_write_packed_refs_in_place, pack),
    "a ref that goes there and back": Change(_there_and_back),
    "a backup that is restored in place": Change(_restore_in_place, _back_up),
    "a backup that is restored in place, with packed refs": Change(
        _restore_in_place, lambda repository: (pack(repository), _back_up(repository), pack(repository))
    ),
    "a backup in the place of the folder": Change(_replace_folder, _back_up),
    "a copy in the place of the folder": Change(_replace_by_itself),
}

SUBVERSION: dict[str, Change[SubversionRepository]] = {
    "a commit": Change(lambda repository: repository.commit({"x": "committed"})),
    "an empty commit": Change(lambda repository: repository.empty()),
    "revisions that are loaded": Change(_load, _dump),
    "a hotcopy over it": Change(
        lambda repository: run("svnadmin", "hotcopy", "--incremental", _backup(repository), repository.path),
        _copy_ahead,
    ),
    "a hotcopy of a backup in its place": Change(
        lambda repository: (
            shutil.rmtree(repository.path),
            run("svnadmin", "hotcopy", _backup(repository), repository.path),
        ),
        _back_up,
    ),
    "a `db/current` that is written in place": Change(
        _write_current_in_place, lambda repository: repository.commit({"x": "youngest"})
    ),
    "another UUID": Change(lambda repository: run("svnadmin", "setuuid", repository.path)),
    "a backup that is restored in place": Change(_restore_in_place, _back_up),
    "a backup in the place of the folder": Change(_replace_folder, _back_up),
    "a copy in the place of the folder": Change(_replace_by_itself),
}
