"""Where a repository of this host keeps its hooks, and its folders, opened once with its owner's rights.

Root becomes the repository's owner first: with the owner's rights there is nothing to gain by a link that leads elsewhere.
Each folder is opened once (`folders.Folder`), so what was looked at is what is written to, whoever else may write to it. `installation` writes.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from arkqueue.errors import ArkqueueError, Conflict, Invalid
from arkqueue.hooks.folders import Folder
from arkqueue.model import ArchiveKind
from arkqueue.repository import locate
from arkqueue.repository.location import local_path
from arkqueue.runtime.accounts import account, acting_as

_NOTIFYING = {
    ArchiveKind.SUBVERSION: ("post-commit",),
    # What is pushed; and where people commit in the repository itself, what they commit, merge and rewrite.
    ArchiveKind.GIT: ("post-receive", "post-commit", "post-merge", "post-rewrite"),
}
CHECKING = {ArchiveKind.SUBVERSION: "pre-commit", ArchiveKind.GIT: "pre-receive"}
"""Which hook checks commits."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where things of a repository are: its own ``folder``, its ``hooks``, its work tree or again the folder (``root``), its ``data``.

    ``local``: people commit in the repository itself, and not only by a push to it.
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

    ``own``: its own folder. ``base``, ``way``: the folder that holds its hooks, and by which names beneath it.
    ``data``: what only committers can write to. ``name``: how notices name the repository.
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
        """Whose group our files get."""
        status = self.own.status()
        assert status is not None
        return status

    @contextmanager
    def open_hooks(self) -> Iterator[Folder | None]:
        """The folder of the hooks; None where there is none yet."""
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
    """The repository's own folder, absolute, however it was named."""
    with opened(repository) as found:
        return found.folder


@contextmanager
def opened(given: Path | str) -> Iterator[Repository]:
    """Open a repository of this host, with its owner's rights as long as it is open. What the system refuses is told of it."""
    import pygit2  # noqa: F401  (while it can be read)

    import arkqueue.repository.git.repository  # noqa: F401  (for its permission to open repositories of other users)

    location = locate(str(given))
    path = local_path(location)
    if path is None:
        raise Invalid(
            location.shown,
            "is on another host, where its hooks have to be installed",
            "There, run `arkqueue hook install PATH --server URL --token-file FILE`, with a token of scope `hook` "
            "made here. Until then arkqueue sees its commits when it looks by itself, each minute.",
        )
    with acting_as(_owner(Path(path))), ExitStack() as stack:
        try:
            place = _subversion(Path(path)) if location.kind is ArchiveKind.SUBVERSION else _git(Path(path))
        except PermissionError as error:
            raise Invalid(str(path), f"{account()} may not read it", "Let that user read it.") from error
        with _changing(place.folder):
            own = stack.enter_context(Folder.at(place.folder))
            hooks, base = place.hooks.resolve(), own
            if not hooks.is_relative_to(place.folder):
                base = stack.enter_context(Folder.at(place.root))
            way = hooks.relative_to(base.path).parts
            for folder in {own, base}:
                _refuse_strangers(folder)
            with own.inner(place.data) as inside:
                data = inside.status()
                assert data is not None
                words = inside.read("uuid", 200).decode("ascii", "replace").split()
            if place.kind is ArchiveKind.SUBVERSION and not words:
                raise Invalid(str(place.folder), "has no UUID that can be read (db/uuid)", "Check the repository.")
            yield Repository(place, own, base, way, data, words[0] if words else place.name)


def _owner(path: Path) -> int:
    """Whose a repository is that holds a path."""
    for folder in (path, *path.parents):
        if folder.exists():
            return folder.stat().st_uid
    return os.geteuid()


def _refuse_strangers(folder: Folder) -> None:
    """For root, who has become the owner of what was there a moment ago: raise Conflict where it is another's now."""
    status = folder.status()
    assert status is not None
    if os.geteuid() == 0 and status.st_uid != 0:
        raise Conflict(
            str(folder.path),
            f"belongs to {account(status.st_uid)}, and not to root as what it is part of",
            "Run this as that user.",
        )


def _subversion(given: Path) -> Place:
    for folder in (given, *given.parents):
        if (folder / "db" / "uuid").is_file():
            folder = folder.resolve()
            _refuse_way_out(folder / "hooks", folder)
            return Place(ArchiveKind.SUBVERSION, folder, folder / "hooks", folder, "", True, "db")
    raise Invalid(str(given), "is no Subversion repository that keeps its data in files", "Check the path.")


def _git(given: Path) -> Place:
    import pygit2
    from pygit2.enums import RepositoryOpenFlag

    try:
        with _settings_of_owner() as home:
            repository = pygit2.Repository(str(given), RepositoryOpenFlag.NO_SEARCH)
            config = repository.config
        configured = config["core.hooksPath"] if "core.hooksPath" in config else None  # noqa: SIM401  it has no get
    except (pygit2.GitError, KeyError) as error:
        raise Invalid(str(given), f"cannot be opened as a Git repository ({error})", "Check the path.") from error
    folder = Path(repository.path).resolve()
    name = folder
    if (folder / "commondir").is_file():  # a further work tree: everything is the main one's
        folder = name = (folder / (folder / "commondir").read_text("utf-8").rstrip("\n")).resolve()
    elif (given / ".git").is_file():  # the Git folder is elsewhere; the archive is known by its work tree
        name = given.resolve()
    hooks, root = folder / "hooks", folder
    if configured is not None:
        root = folder if repository.is_bare else Path(repository.workdir).resolve()
        hooks = Path(os.path.normpath(root / re.sub(r"^~(?=/|$)", lambda _: home, configured)))
        if not hooks.is_relative_to(folder) and not hooks.is_relative_to(root):
            raise Conflict(
                str(given),
                f"has its hooks in {hooks} (core.hooksPath), which other repositories may share",
                f"Set core.hooksPath for this repository alone: git config core.hooksPath {shlex.quote(str(folder / 'hooks'))}",
            )
    _refuse_way_out(hooks, folder, root)
    local = not repository.is_bare or (folder / "worktrees").is_dir()
    return Place(ArchiveKind.GIT, folder, hooks, root, str(name), local, "objects")


@contextmanager
def _settings_of_owner() -> Iterator[str]:
    """Let libgit2 read the settings of the user as whom we act, as git does for that user's commits; gives the user's home folder."""
    import pygit2
    from pygit2.enums import ConfigLevel

    home = os.path.expanduser("~")
    if os.geteuid() == os.getuid():
        yield home
        return
    home = os.path.expanduser(f"~{account()}")  # as it is where there is no such account
    paths = {ConfigLevel.GLOBAL: home, ConfigLevel.XDG: f"{home}/.config/git"}
    before = {level: pygit2.settings.search_path[level] for level in paths}
    try:
        for level, path in paths.items():
            pygit2.settings.search_path[level] = path
        yield home
    finally:
        for level, path in before.items():
            pygit2.settings.search_path[level] = path


def _refuse_way_out(hooks: Path, *own: Path) -> None:
    """Raise Conflict where symlinks lead out of the repository: what is there belongs to others, root's folders for one."""
    if not any(hooks.resolve().is_relative_to(folder) for folder in own):
        raise Conflict(
            str(own[0]),
            f"has its hooks in {hooks.resolve()} ({hooks} is a link), which other repositories may share",
            f"Give this repository a folder of its own: rm {shlex.quote(str(hooks))} && mkdir {shlex.quote(str(hooks))}",
        )


def about_place(repository: Repository) -> list[str]:
    """What a person is told of where the hooks are."""
    notes = []
    if repository.data.st_mode & stat.S_IWOTH:
        notes.append(
            f"everyone may write to {repository.folder / repository.place.data}, but only its owner and group may read the token: "
            "commits of others are seen by the sweep"
        )
    if not repository.hooks.is_relative_to(repository.folder):
        notes.append(
            f"the hooks are in the work tree, in {repository.hooks} (core.hooksPath); keep them out of commits"
        )
    return notes


@contextmanager
def _changing(folder: Path) -> Iterator[None]:
    """What the system refuses is told of the repository: what it refuses by may be a file that had just been made, or a mere descriptor."""
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
