"""The pool of bases: plain trees of archives, kept to make the next workspaces from them (design 9).

    <home>/bases/<name>/tree     a whole tree of one revision, without version control data
    <home>/bases/<name>/state    its revision, as JSON; missing while the tree is not usable

The life of a base: exported for an attempt that found none → shared by all attempts of the same
tree, which only read it → idle → updated for an attempt of another revision → … → removed, because
the pool is full (the least recently used first) or because it is broken. A base in use never
changes.

An update removes ``state`` before it changes anything, and writes the file anew at the end. So a
base whose update was killed has no ``state``, and is removed at the next start. A base from an
earlier boot of the host is removed, too: after a loss of power nobody knows how much of it has
reached the disk. ``watch`` finds what others change. Whatever is wrong with a base, another one is
exported in its place; an attempt fails only if the archive cannot be read.

A home folder belongs to one task manager at a time, so the bases in use are known in its memory. At
its start, the task manager learns which bases the adopted attempts use.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import secrets
import stat
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Protocol

from arkqueue.errors import ArchiveMismatch, ArchiveUnreachable, ArkqueueError, NotFound
from arkqueue.model import STAMPS, AttemptId, TreeChange
from arkqueue.workspace import removal
from arkqueue.workspace.removal import Later, TakesLong, remove_folder
from arkqueue.workspace.watch import AT_A_TIME, Changed, Watch, Window

log = logging.getLogger("arkqueue")

Owner = tuple[int, int]
"""The numbers of the user and the group that own a task's files."""

OURS: Owner = os.geteuid(), os.getegid()
_BLOCK = 4096
_REVISION_FAULTS = ArchiveUnreachable, ArchiveMismatch, NotFound
"""The errors of an archive that does not give a revision, whatever the base is."""


class TreeSource(Protocol):
    """The files of one revision of an archive (`repository.Archive` describes `export` and
    `update`). The archive is open in the thread that prepares.
    """

    def key(self) -> str:
        """The key of the tree, equal for two revisions only if their files are equal. The archive is
        asked, unless it has already said it with an update.
        """

    def export(self, target: Path) -> None: ...

    def update(
        self, before: str, target: Path, *, good: Path, before_key: str, others: Collection[str]
    ) -> TreeChange | None: ...

    def renewed(self) -> Sequence[bytes] | None:
        """The paths of the files that get the time of the workspace; None: all files."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The whole tree of one revision of an archive, whose files ``source`` writes. ``branch``:
    helps to choose the base with the fewest differences.

    ``corrections``: how often a revision of the archive was corrected. Files that were exported
    earlier may show its old author.
    """

    archive: int
    branch: str
    revision: str
    source: TreeSource
    corrections: int = 0


@dataclass(slots=True, eq=False)
class Base:
    """A base of the pool. The pool's lock protects its fields. While the base has a ``goal``, its
    fields belong to the thread that updates it.
    """

    folder: Path
    archive: int
    owner: Owner
    branch: str = ""
    revision: str = ""
    key: str = ""
    corrections: int = 0
    """How often a revision of the archive had been corrected when the base was exported."""
    size: int = 0
    """The approximate size in bytes."""
    watch: Watch | None = None
    """Notices changes of the tree; None: nothing has been exported yet."""
    users: set[AttemptId] = field(default_factory=set)
    goal: str | None = None
    """The revision to which a thread is updating the base; None: no thread is."""
    used: int = 0
    is_checked: bool = True
    is_broken: bool = False

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def tree(self) -> Path:
        return self.folder / "tree"

    @property
    def is_good(self) -> bool:
        """Whether attempts may read the base in its present state."""
        return self.goal is None and self.is_checked and not self.is_broken

    @property
    def is_idle(self) -> bool:
        return self.goal is None and not self.users and not self.is_broken

    @property
    def written(self) -> float:
        """The time of the last export or update."""
        try:
            return self.state.stat().st_mtime
        except OSError:
            return 0.0

    @property
    def state(self) -> Path:
        """The file that exists while the base is usable."""
        return self.folder / "state"

    def is_now(self, tree: Tree) -> None:
        """Record that the base has another revision now, and is usable."""
        self.branch, self.revision, self.key = tree.branch, tree.revision, tree.source.key()
        self.save()

    def save(self) -> None:
        assert self.watch is not None
        state = {
            "boot": _boot(),
            "archive": self.archive,
            "owner": self.owner,
            "branch": self.branch,
            "revision": self.revision,
            "key": self.key,
            "corrections": self.corrections,
            "size": self.size,
            "since": self.watch.since,
            "windows": self.watch.windows,
        }
        new = f"{self.folder}/state.new"
        # `open` would make more system calls for the file (fstat, ioctl, lseek).
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            text = json.dumps(state).encode()
            while text:
                text = text[os.write(file, text) :]
        finally:
            os.close(file)
        os.rename(new, self.state)

    @staticmethod
    def load(folder: Path) -> Base | None:
        """A base that an earlier task manager has left. None: it is not usable."""
        try:
            state = json.loads((folder / "state").read_text("utf-8"))
            if state["boot"] != _boot():
                return None
            base = Base(folder, state["archive"], (state["owner"][0], state["owner"][1]), state["branch"])
            base.revision, base.key, base.size = state["revision"], state["key"], state["size"]
            base.corrections = state.get("corrections", 0)
            windows: list[Window] = [(start, end) for start, end in state["windows"]]
            base.watch, base.is_checked = Watch(os.fsencode(base.tree), state["since"], windows), False
            return base
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            return None


class Bases:
    """The pool. Any thread may call it."""

    def __init__(self, folder: Path, limit: int, in_use: Mapping[AttemptId, str], later: Later) -> None:
        """``limit``: the bytes that all bases may take together. ``in_use``: the names of bases
        that adopted attempts use. ``later``: removes large folders.
        """
        self._folder, self._limit, self._later = folder, limit, later
        self._changed = threading.Condition()
        self._bases: list[Base] = []
        self._uses = 0
        folder.mkdir(mode=0o700, exist_ok=True)
        # A copy of a home folder that did not keep modes.
        if stat.S_IMODE(folder.stat().st_mode) & 0o077:
            folder.chmod(0o700)
        self._take_over(in_use)

    def acquire(self, attempt: AttemptId, tree: Tree, owner: Owner) -> Base:
        """A base with the files of ``tree``. The attempt may read it until it releases the base.
        Raises the errors of the archive and of the disk.

        The archive is asked once, as a rule: an update also says the key of the tree. The key is
        asked for first only if a base has the revision already, or none can be updated.
        """
        key: str | None = None
        while True:
            base, others = self._take(attempt, tree, owner, key)
            if base is None:
                key = tree.source.key()
                continue
            if base.goal is None:
                return base
            was_new = base.watch is None
            try:
                if not self._bring(base, tree, others):
                    self._let_go(base, attempt)
                    key = tree.source.key()
                    continue
                self._arrived(base)
                self._make_room(self._limit)
                return base
            except BaseException as error:
                # If the archive does not give the revision, an untouched base stays usable. A new
                # base may be incomplete.
                base.is_broken |= not (isinstance(error, _REVISION_FAULTS) and base.state.exists())
                self._let_go(base, attempt)
                if not self._is_worth_another(error, was_new):
                    raise
                log.warning("base %s of archive %d is made anew: %s", base.name, tree.archive, error)

    def release(self, attempt: AttemptId, *, is_spoiled: bool = False) -> None:
        """Release the base of an attempt. ``is_spoiled``: a process may still read the base, so it
        must not change any more.
        """
        with self._changed:
            base = next((base for base in self._bases if attempt in base.users), None)
        if base is not None:
            base.is_broken |= is_spoiled
            self._let_go(base, attempt)

    def give_up_one(self) -> bool:
        """Remove the least recently used idle base, because the disk is short of space. Returns
        whether there was one.
        """
        with self._changed:
            taken = sum(base.size for base in self._bases)
        return self._make_room(max(0, taken - 1), None)

    # Choosing a base

    def _take(
        self, attempt: AttemptId, tree: Tree, owner: Owner, key: str | None
    ) -> tuple[Base | None, Collection[str]]:
        """A usable base with the wanted files, or a base with a ``goal``, which only this thread
        updates to them. None: it depends on the key of the tree, which is unknown (``key`` None).

        With a base to update come the keys of the usable bases.
        """
        with self._changed:
            while True:
                found = [base for base in self._bases if (base.archive, base.owner) == (tree.archive, owner)]
                mine = [base for base in found if base.corrections == tree.corrections]
                for base in found:
                    base.is_broken |= base.corrections < tree.corrections
                good = next((base for base in mine if base.key == key and base.is_good), None)
                if good is not None:
                    if self._is_sound(good):
                        self._use(good, attempt)
                        return good, ()
                elif any(base.goal == tree.revision for base in mine):
                    self._changed.wait()
                else:
                    break
            idle = [base for base in mine if base.is_idle]
            if key is None and (not idle or any(base.is_good and base.revision == tree.revision for base in mine)):
                return None, ()
            nearest = max(
                idle,
                key=lambda base: (base.revision == tree.revision, base.branch == tree.branch, base.used),
                default=None,
            )
            base = nearest or self._a_new_one(tree, owner)
            base.goal = tree.revision
            self._use(base, attempt)
            return base, {other.key for other in mine if other.is_good}

    def _is_sound(self, base: Base) -> bool:
        assert base.watch is not None
        try:
            base.watch.check()
        except Changed as error:
            log.warning("base %s of archive %d is given to nobody any more: %s", base.name, base.archive, error)
            base.is_broken = True
            return False
        return True

    def _use(self, base: Base, attempt: AttemptId) -> None:
        self._uses += 1
        base.used = self._uses
        base.users.add(attempt)

    def _a_new_one(self, tree: Tree, owner: Owner) -> Base:
        base = Base(self._folder / secrets.token_hex(8), tree.archive, owner, corrections=tree.corrections)
        self._bases.append(base)
        return base

    # Exporting and updating

    def _bring(self, base: Base, tree: Tree, others: Collection[str]) -> bool:
        """Give a base the files of a tree. Returns False if these are the files of another base,
        whose key is among ``others``.
        """
        if base.watch is None:
            _export(base, tree)
            return True
        base.watch.check(AT_A_TIME if base.is_checked else None)
        base.is_checked = True
        return _update(base, tree, others)

    def _arrived(self, base: Base) -> None:
        with self._changed:
            base.goal = None
            self._changed.notify_all()

    def _is_worth_another(self, error: BaseException, was_new: bool) -> bool:
        if isinstance(error, _REVISION_FAULTS) or not isinstance(error, (ArkqueueError, OSError, Changed)):
            return False
        cause = error.__cause__ if isinstance(error, ArkqueueError) else error
        if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT) and self._make_room(0, None):
            return True
        return not was_new

    # Releasing and removing

    def _let_go(self, base: Base, attempt: AttemptId) -> None:
        with self._changed:
            base.users.discard(attempt)
            base.goal = None
            self._changed.notify_all()
        self._make_room(self._limit)

    def _make_room(self, limit: int, patience: float | None = removal.PATIENCE) -> bool:
        """Remove the broken bases, and the least recently used idle ones until all take at most
        ``limit`` bytes. Returns whether an idle one was removed.

        ``patience``: the seconds after which the removal continues in the background; None: the
        room is needed now.
        """
        with self._changed:
            broken = [base for base in self._bases if base.is_broken and not base.users and base.goal is None]
            gone = []
            excess = sum(base.size for base in self._bases if base not in broken) - limit
            for base in sorted((base for base in self._bases if base.is_idle), key=lambda base: base.used):
                if excess > 0:
                    excess -= base.size
                    gone.append(base)
            self._bases = [base for base in self._bases if base not in broken and base not in gone]
        until = None if patience is None else time.monotonic() + patience
        for base in broken + gone:
            self._discard(base.name, until)
        return bool(gone)

    def _discard(self, name: str, until: float | None) -> None:
        with contextlib.suppress(OSError):
            # First of all: from now on the base is not usable.
            (self._folder / name / "state").unlink()
        try:
            faults = remove_folder(self._folder, name, until=until)
        except TakesLong:
            self._later.put(lambda: self._discard_parts(name))
            return
        for what, error in faults[:1]:
            log.warning("base %s in %s cannot be removed: %s: %s", name, self._folder, what, error.strerror)

    def _discard_parts(self, name: str) -> None:
        """Remove a base, and the parts that an interrupted removal has moved up."""
        for part in os.listdir(self._folder):
            if part == name or part.startswith(f".{name.lstrip('.')}."):
                self._discard(part, None)

    def _take_over(self, in_use: Mapping[AttemptId, str]) -> None:
        """Take over the bases of an earlier task manager. Called at the start, before any other
        call.
        """
        until = time.monotonic() + removal.PATIENCE
        for name in os.listdir(self._folder):
            users = {attempt for attempt, used in in_use.items() if used == name}
            base = Base.load(self._folder / name)
            if base is None and not users:
                self._discard(name, until)
                continue
            base = base or Base(self._folder / name, 0, (0, 0), is_broken=True)
            base.users = users
            base.is_checked |= bool(users)  # attempts already rely on it
            self._bases.append(base)
        self._bases.sort(key=lambda base: base.written)
        for base in self._bases:
            self._uses += 1
            base.used = self._uses
        self._make_room(self._limit)


def _export(base: Base, tree: Tree) -> None:
    base.folder.mkdir(mode=0o700)
    base.tree.mkdir()
    tree.source.export(base.tree)
    base.size = _give_all(base.tree, base.owner)
    base.watch = Watch(os.fsencode(base.tree), time.time_ns(), [])
    base.is_now(tree)


def _update(base: Base, tree: Tree, others: Collection[str]) -> bool:
    assert base.watch is not None
    asked = time.clock_gettime_ns(STAMPS)
    change = tree.source.update(base.revision, base.tree, good=base.state, before_key=base.key, others=others)
    if change is None:
        return False
    for changed, path in change.entered.items():
        base.watch.check_one(path, changed)
    if base.owner != OURS:
        for path in change.made:
            os.lchown(os.fsencode(base.tree) + b"/" + path, *base.owner)
    base.size += change.grown
    if change.began is not None:
        base.watch.changed_since(max(asked, change.began))
    base.is_now(tree)
    return True


def _give_all(tree: Path, owner: Owner) -> int:
    """Give a tree to its owner, if the owner is another user. Returns its approximate size in
    bytes.
    """
    is_ours, size = owner == OURS, 0
    pending = [os.fsencode(tree)]
    if not is_ours:
        os.chown(tree, *owner)
    while pending:
        for entry in os.scandir(pending.pop()):
            if entry.is_dir(follow_symlinks=False):
                pending.append(entry.path)
                size += _BLOCK
            else:
                size += -(-entry.stat(follow_symlinks=False).st_size // _BLOCK) * _BLOCK
            if not is_ours:
                os.lchown(entry.path, *owner)
    return size


@cache
def _boot() -> str:
    """The id of the host's present boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()
    except OSError:
        return ""
