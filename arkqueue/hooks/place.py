"""The folders of a repository of this host, above all the folder of its hooks, opened once with the
rights of the repository's owner.

Root first becomes the repository's owner, so a link that leads elsewhere gives nobody root's
rights. If a person other than this owner could change the path of the hooks, or the files that
decide on it, root is refused (`strangers`). Each folder is opened once (`folders.Folder`), so the
folder that was checked is the folder that is written, whoever else may write to the repository.
`installation` does the writing.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from arkqueue.errors import ArkqueueError, Conflict, Invalid
from arkqueue.hooks import strangers
from arkqueue.hooks.folders import Folder
from arkqueue.hooks.settings import Settings
from arkqueue.model import ArchiveKind
from arkqueue.repository import locate
from arkqueue.repository.location import local_path
from arkqueue.runtime.accounts import account, acting_as

_NOTIFYING = {
    ArchiveKind.SUBVERSION: ("post-commit",),
    # Git: after a push; and, where people commit in the repository itself, after a commit, a merge
    # or a rewrite.
    ArchiveKind.GIT: ("post-receive", "post-commit", "post-merge", "post-rewrite"),
}
CHECKING = {ArchiveKind.SUBVERSION: "pre-commit", ArchiveKind.GIT: "pre-receive"}
"""The hook that checks commits."""
_DECIDING = {
    # The data may belong to the committers: it does not decide where the hooks are.
    ArchiveKind.SUBVERSION: ("conf", "hooks", "format", "arkqueue"),
    ArchiveKind.GIT: ("config", "config.worktree", "commondir", "HEAD", "hooks", "arkqueue"),
}
"""The files that decide where a repository's hooks are, and what the hooks start."""


@dataclass(frozen=True, slots=True)
class Place:
    """The paths of a repository: its own ``folder``; its ``hooks``; its ``root``, the work tree or,
    without one, the folder again; and its ``data``, the name of the folder that commits write to.
    ``name``: the name of the repository in notices.

    ``local``: True if people commit in the repository itself, not only by pushing to it.
    """

    kind: ArchiveKind
    folder: Path
    hooks: Path
    root: Path
    name: str
    local: bool
    data: str


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository of this host whose folders are open.

    ``own``: its own folder. ``base``, ``way``: an open folder, and the names beneath it that lead
    to the hooks. ``data``: the status of the folder that only committers can write to. ``name``:
    the name of the repository in notices.
    """

    place: Place
    own: Folder
    base: Folder
    way: tuple[str, ...]
    data: os.stat_result
    name: str

    @property
    def kind(self) -> ArchiveKind:
        return self.place.kind

    @property
    def folder(self) -> Path:
        return self.place.folder

    @property
    def hooks(self) -> Path:
        return self.place.hooks

    @property
    def like(self) -> os.stat_result:
        """The status of the folder whose group the files of arkqueue get."""
        status = self.own.status()
        assert status is not None
        return status

    @contextmanager
    def open_hooks(self) -> Iterator[Folder | None]:
        """The folder of the hooks; None if it does not exist yet."""
        try:
            folder = self.base.inner(*self.way)
        except FileNotFoundError:
            yield None
            return
        with folder:
            yield folder

    @property
    def ours(self) -> Path:
        return self.folder / "arkqueue"

    @property
    def servers(self) -> Path:
        return self.ours / "servers"

    @property
    def notifying(self) -> tuple[str, ...]:
        return _NOTIFYING[self.kind] if self.place.local else _NOTIFYING[self.kind][:1]

    @property
    def all_hooks(self) -> tuple[str, ...]:
        return (*_NOTIFYING[self.kind], CHECKING[self.kind])


def folder_of(repository: Path | str) -> Path:
    """The absolute path of the repository's own folder, however the repository was named."""
    with opened(repository) as found:
        return found.folder


@contextmanager
def opened(given: Path | str) -> Iterator[Repository]:
    """Open a repository of this host, with its owner's rights while it is open. If the system
    refuses access, the error names the repository.
    """
    location = locate(str(given))
    path = local_path(location)
    if path is None:
        raise Invalid(
            location.shown,
            "is on another host, where its hooks have to be installed",
            "There, run `arkqueue hook install PATH --server URL --token-file FILE`, with a token of scope `hook` "
            "made here. Until then arkqueue sees its commits when it looks by itself, each minute.",
        )
    is_root = os.geteuid() == 0
    owner = strangers.owner_of(Path(path), is_end_judged=False) if is_root else os.geteuid()
    with acting_as(owner), ExitStack() as stack:
        try:
            place = _subversion(Path(path)) if location.kind is ArchiveKind.SUBVERSION else _git(Path(path))
        except PermissionError as error:
            raise Invalid(str(path), f"{account()} may not read it", "Let that user read it.") from error
        except OSError as error:
            raise Invalid(str(path), f"cannot be read ({error.strerror})", "Check the path.") from error
        with _changing(place.folder):
            own = stack.enter_context(Folder.at(place.folder))
            hooks, base = place.hooks.resolve(), own
            if not hooks.is_relative_to(place.folder):
                base = stack.enter_context(Folder.at(place.root))
            way = hooks.relative_to(base.path).parts
            if is_root:
                _refuse_strangers(Path(path), place, own, base, way, owner)
            with own.inner(place.data) as inside:
                data = inside.status()
                assert data is not None
                words = inside.read("uuid", 200).decode("ascii", "replace").split()
            if place.kind is ArchiveKind.SUBVERSION and not words:
                raise Invalid(str(place.folder), "has no UUID that can be read (db/uuid)", "Check the repository.")
            yield Repository(place, own, base, way, data, words[0] if words else place.name)


def _refuse_strangers(given: Path, place: Place, own: Folder, base: Folder, way: tuple[str, ...], owner: int) -> None:
    """Check for root that only the owner, as whom root acts now, may change the files that decide
    where the hooks go. Raises Conflict otherwise.
    """
    strangers.refuse(own, _DECIDING[place.kind], owner)
    if base is not own:
        strangers.refuse(base, (), owner)
    for folder, names in ((own, ("arkqueue", "servers")), (base, way)):
        for length in range(1, len(names) + 1):
            with suppress(FileNotFoundError, NotADirectoryError), folder.inner(*names[: length - 1]) as inner:
                strangers.refuse(inner, names[length - 1 : length], owner)
    for path in {given, own.path, base.path}:
        if (whose := strangers.owner_of(path)) != owner:
            raise strangers.another(path, whose, owner)


def _subversion(given: Path) -> Place:
    for folder in (given, *given.parents):
        if (folder / "db" / "uuid").is_file():
            folder = folder.resolve()
            _refuse_way_out(folder / "hooks", folder)
            return Place(ArchiveKind.SUBVERSION, folder, folder / "hooks", folder, "", True, "db")
    raise Invalid(str(given), "is not a Subversion repository on this host's disk", "Check the path.")


def _git(given: Path) -> Place:
    tree, folder = _git_folder(given)
    settings = Settings(given, folder)
    is_further, name = False, folder
    with Folder.at(folder) as inside:
        # A further work tree: all of this belongs to the main one.
        if inside.status("commondir") is not None:
            is_further = True
            folder = name = (folder / os.fsdecode(inside.read("commondir", 4096)).rstrip("\n")).resolve()
        elif tree is not None and (tree / ".git").is_file():
            name = tree  # the Git folder is elsewhere; notices name the work tree
    configured = settings.path("core.hooksPath")
    hooks, root = folder / "hooks", folder
    if configured is not None:
        # The work tree is the folder of `.git`, because core.worktree may name anybody's folder.
        root = folder if settings.is_bare or tree is None else tree
        hooks = Path(os.path.normpath(root / (configured or "/")))
        moved = None if is_further else settings.path("core.worktree")
        is_known = settings.is_bare or (tree is not None and (moved is None or (folder / moved).resolve() == tree))
        is_elsewhere = not is_known and not os.path.isabs(configured)
        own = next((own for own in (folder, root) if hooks.is_relative_to(own)), None)
        if own is None or is_elsewhere or _is_of_another(hooks.resolve(), own):
            where = "core.hooksPath, seen from core.worktree" if is_elsewhere else "core.hooksPath"
            raise Conflict(
                str(given),
                f"has its hooks in {configured if is_elsewhere else hooks} ({where}), which other repositories may share",
                f"Set core.hooksPath for this repository alone: git config core.hooksPath {shlex.quote(str(folder / 'hooks'))}",
            )
    _refuse_way_out(hooks, folder, root)
    local = not settings.is_bare or (folder / "worktrees").is_dir()
    return Place(ArchiveKind.GIT, folder, hooks, root, str(name), local, "objects")


def _git_folder(given: Path) -> tuple[Path | None, Path]:
    """The work tree that a person named, or None, and its Git folder. A work tree is the folder of
    its ``.git``.
    """
    given = given.resolve()
    if (given / ".git").exists():
        tree, inside = given, given / ".git"
    elif given.name == ".git":
        tree, inside = given.parent, given
    else:
        return None, given
    if not inside.is_file():
        # A link leads to the Git folder of another work tree, or of none.
        return (None if inside.is_symlink() else tree), inside.resolve()
    with Folder.at(tree) as open_tree:
        line = os.fsdecode(open_tree.read(".git", 4096)).rstrip("\n")
    if not line.startswith("gitdir: "):
        raise Invalid(str(inside), "does not say where the Git folder is", "Check the path.")
    return tree, (tree / line.removeprefix("gitdir: ")).resolve()


def _is_of_another(hooks: Path, own: Path) -> bool:
    """Whether a folder beneath this repository's own folder belongs to another repository inside."""
    within = [folder for folder in (hooks, *hooks.parents) if folder != own and folder.is_relative_to(own)]
    return any(
        folder.name.lower() == ".git"
        or (folder / ".git").exists()
        or ((folder / "HEAD").is_file() and (folder / "objects").is_dir())
        for folder in within
    )


def _refuse_way_out(hooks: Path, *own: Path) -> None:
    """Raise Conflict if symlinks lead out of the repository, to folders that may belong to others,
    for example to root.
    """
    if not any(hooks.resolve().is_relative_to(folder) for folder in own):
        raise Conflict(
            str(own[0]),
            f"has its hooks in {hooks.resolve()} ({hooks} is a link), which other repositories may share",
            f"Give this repository a folder of its own: rm {shlex.quote(str(hooks))} && mkdir {shlex.quote(str(hooks))}",
        )


def _others_decide(repository: Repository) -> bool:
    """Whether users other than root, the repository's owner and this user may change which hooks
    are installed.
    """
    allowed = {0, repository.like.st_uid, os.geteuid()}
    found = {name: repository.own.status(name) for name in ("", *_DECIDING[repository.kind])}
    return any(
        strangers.writable_by_strangers(repository.folder / name, status, allowed)
        for name, status in found.items()
        if status is not None and not stat.S_ISLNK(status.st_mode)
    )


def about_place(repository: Repository) -> list[str]:
    """The notes for a person about the place of the hooks."""
    notes = []
    if repository.data.st_mode & stat.S_IWOTH:
        notes.append(
            f"everyone may write to {repository.folder / repository.place.data}, but only its owner and group may read the token: "
            "commits of others are seen by the sweep"
        )
    if _others_decide(repository):
        notes.append(
            f"others may write to {repository.folder}: they decide which programs run when {account()} commits there"
        )
    if not repository.hooks.is_relative_to(repository.folder):
        notes.append(
            f"the hooks are in the work tree, in {repository.hooks} (core.hooksPath); keep them out of commits"
        )
    return notes


@contextmanager
def _changing(folder: Path) -> Iterator[None]:
    """Report an error of the system as an error of the repository. Its own file name may be a
    temporary one, or a mere descriptor.
    """
    try:
        yield
    except OSError as error:
        where = f" ({os.fsdecode(error.filename)})" if isinstance(error.filename, (str, bytes)) else ""
        remedy = "See what is the matter there, and run this again."
        if isinstance(error, PermissionError):
            owner = folder.stat().st_uid
            remedy = "Correct its permissions."
            if owner != os.geteuid():
                remedy = f"Correct its permissions, or run this as {account(owner)}, to whom it belongs."
        raise ArkqueueError(str(folder), f"its hooks cannot be changed: {error.strerror}{where}", remedy) from error
