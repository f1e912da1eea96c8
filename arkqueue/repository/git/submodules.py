"""Fetches the submodules of a commit into a new clone, and their submodules, as far as the archive
allows.

They are stored as ``git submodule update`` stores them: the repository in ``.git/modules/NAME``,
and a file ``.git`` in the folder. That command itself is not used: a ``.gitmodules`` can tell it to
run a program, and the URL comes from a stranger. Here, git gets the checked URL, may use only its
protocol, and must not follow a redirect.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pygit2
from pygit2.enums import FileMode

from arkqueue.errors import ArchiveUnreachable, WorkspaceError
from arkqueue.repository.following import places
from arkqueue.repository.following.addresses import Address, NoAddress, read_address, relative
from arkqueue.repository.following.allowance import Allowance, Login, shown, too_much
from arkqueue.repository.git.commits import has_object, read_commit
from arkqueue.repository.git.objects import Objects
from arkqueue.repository.git.program import run_git
from arkqueue.repository.limits import DEEPEST_FOLLOWED, PathBudget, TooManyPaths

LONGEST_MODULES = 2**18
"""The most bytes of a ``.gitmodules`` that is read."""
_MODULES, _ATTRIBUTES = b".gitmodules", b".gitattributes"
_FILTER = b"filter=lfs"


@dataclass(frozen=True, slots=True)
class Clone:
    """A repository with its files. ``origin``: its address; None if it is on this host. ``place``:
    its path from the workspace's top, for people.
    """

    repository: Path
    work: Path
    commit: pygit2.Oid
    origin: Address | None
    place: str = ""


@dataclass(frozen=True, slots=True)
class Contents:
    """The references in a commit's tree. ``files``: its regular files and their ids, if a
    ``.gitattributes`` names Git LFS; otherwise empty.
    """

    links: dict[bytes, pygit2.Oid]
    modules: pygit2.Oid | None
    files: dict[bytes, pygit2.Oid]


class Submodules:
    """Follows the submodules of one working copy. ``timeout``: seconds for one transfer."""

    def __init__(self, allowance: Allowance, top: Path, timeout: float) -> None:
        self._allowance, self._top, self._timeout = allowance, top, timeout

    def follow(self, clone: Clone, links: Contents, depth: int = 1) -> list[Clone]:
        """Follow the submodules of a clone. Returns their clones, which may have submodules in
        turn.
        """
        if not links.links:
            return []
        named = self._named(clone, links)
        taken: list[tuple[str, ...]] = []
        made = []
        for raw, commit in sorted(links.links.items()):
            path = raw.decode(errors="surrogateescape")
            place = f"{clone.place}/{path}" if clone.place else path
            what = f"submodule {shown(place)}"
            if path not in named:
                self._allowance.note(f"{what} is not followed: no usable .gitmodules names it")
                continue
            name, url = named[path]
            if clone.origin is None and url.startswith(("./", "../")):
                self._allowance.refuse(what, url, "it is relative to a repository of this host; see --task-url")
                continue
            try:
                address = (
                    relative(clone.origin, url) if clone.origin and url.startswith(("./", "../")) else read_address(url)
                )
            except NoAddress as fault:
                self._allowance.refuse(what, url, str(fault))
                continue
            if address.scheme not in ("http", "https", "ssh", "git"):
                self._allowance.refuse(what, url, "it is not a valid address of a Git repository")
                continue
            if not self._allowance.allows(address):
                self._allowance.forbid(what, address)
                continue
            parts = tuple(name.split("/"))
            if refusal := _fault_of(parts, taken) or places.refusal(self._top, place.split("/"), is_made=True):
                self._allowance.refuse(what, url, refusal)
                continue
            if depth > DEEPEST_FOLLOWED:
                raise WorkspaceError(what, f"it is {depth} submodules deep, more than {DEEPEST_FOLLOWED}")
            self._allowance.begin(what)
            taken.append(parts)
            repository = clone.repository.joinpath("modules", *parts)
            made.append(self._fetch(what, Clone(repository, clone.work / path, commit, address, place)))
            for key, value in (("url", str(address)), ("active", "true")):
                self._git(what, "--git-dir", str(clone.repository), "config", f"submodule.{name}.{key}", value)
        return made

    def _named(self, clone: Clone, links: Contents) -> dict[str, tuple[str, str]]:
        """The names and URLs in ``.gitmodules``, by path. The file is read from the commit, never
        from the tree on disk.
        """
        repository = pygit2.Repository(str(clone.repository))
        if links.modules is None or repository.odb.read_header(links.modules)[1] > LONGEST_MODULES:
            return {}
        try:
            said = self._git(
                "its .gitmodules", "--git-dir", str(clone.repository), "config", "--no-includes",
                "--blob", str(links.modules), "-z", "--get-regexp", r"^submodule\..*\.(path|url)$",
            )  # fmt: skip
        except ArchiveUnreachable:  # there is no such line, or git cannot read the file
            return {}
        found: dict[str, dict[str, str]] = {}
        for entry in said.split("\0")[:-1]:
            key, _, value = entry.partition("\n")
            name, _, what = key.removeprefix("submodule.").rpartition(".")
            found.setdefault(name, {})[what] = value
        return {one["path"]: (name, one["url"]) for name, one in found.items() if "path" in one and "url" in one}

    def _fetch(self, what: str, clone: Clone) -> Clone:
        address, place = clone.origin, str(clone.repository)
        assert address is not None, "it was checked before"
        thing = f"{what}: {address}"
        here = ("--git-dir", place)
        clone.repository.parent.mkdir(parents=True, exist_ok=True)
        self._git(thing, "init", "--quiet", "--bare", "--template=", "--", place)
        for key, value in (
            ("core.bare", "false"),
            ("core.worktree", os.path.relpath(clone.work, clone.repository)),
            ("remote.origin.url", str(address)),
            ("remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*"),
        ):
            self._git(thing, *here, "config", key, value)
        commit = str(clone.commit)
        self._transfer(thing, address, clone.repository, "+refs/heads/*:refs/remotes/origin/*")
        if not self._has(clone):
            try:
                self._transfer(thing, address, clone.repository, commit)
            except ArchiveUnreachable as error:
                raise WorkspaceError(thing, f"commit {commit} cannot be fetched: {error.fault}") from error
        if not self._has(clone):
            raise WorkspaceError(thing, f"it has no commit {commit}")
        try:
            contents_of(clone, self._allowance, what, weighs=True)
        except TooManyPaths as error:
            raise WorkspaceError(thing, str(error)) from error
        (clone.work / ".git").write_text(f"gitdir: {os.path.relpath(place, clone.work)}\n", encoding="utf-8")
        self._git(thing, "-C", str(clone.work), *here, "--work-tree", str(clone.work),
                  "-c", "submodule.recurse=false", "checkout", "--quiet", "--detach", commit, "--")  # fmt: skip
        return clone

    def _has(self, clone: Clone) -> bool:
        return has_object(pygit2.Repository(str(clone.repository)), clone.commit)

    def _transfer(self, thing: str, address: Address, repository: Path, refs: str) -> None:
        login = self._allowance.login(address)
        left = self._allowance.bytes_left
        with tempfile.TemporaryDirectory(prefix="arkqueue-") as folder:
            try:
                self._git(
                    thing, "--git-dir", str(repository), "-c", "protocol.allow=never",
                    "-c", f"protocol.{address.scheme}.allow=always", "-c", "http.followRedirects=false",
                    "-c", "credential.helper=", *_signing_in(login, address, Path(folder)),
                    "fetch", "--quiet", "--no-recurse-submodules", "--no-write-fetch-head", "--", str(address), refs,
                    longest_file=left,
                )  # fmt: skip
            except ArchiveUnreachable:
                if _size(repository) >= left // 512 * 512:  # the kernel counts in blocks
                    raise too_much(thing) from None
                raise
        self._allowance.take(thing, _size(repository))

    def _git(self, thing: str, *arguments: str, longest_file: int | None = None) -> str:
        left = min(self._timeout, self._allowance.seconds_left(thing))
        return run_git(thing, *arguments, timeout=left, longest_file=longest_file)


def contents_of(clone: Clone, allowance: Allowance, what: str, *, weighs: bool = False) -> Contents:
    """Read the references of a commit. ``weighs``: count its files before they are written. Raises
    `TooManyPaths` for a tree with too many entries.
    """
    repository = pygit2.Repository(str(clone.repository))
    commit = read_commit(repository, clone.commit)
    if commit is None:
        raise WorkspaceError(what, f"{clone.commit} is not a commit")
    links: dict[bytes, pygit2.Oid] = {}
    files: dict[bytes, pygit2.Oid] = {}
    modules, has_lfs = None, False
    objects, budget = Objects(repository), PathBudget()
    pending = [(b"", commit.tree)]
    while pending:
        folder, tree = pending.pop()
        entries = objects.entries(tree, budget)
        budget.look(len(entries))
        for name, (mode, raw) in entries.items():
            kind, id, path = int(mode, 8) & 0o170000, pygit2.Oid(raw=raw), folder + name
            if kind == FileMode.TREE:
                pending.append((path + b"/", id))
            elif kind == FileMode.COMMIT:
                links[path] = id
            else:
                if weighs:
                    allowance.take(what, repository.odb.read_header(id)[1])
                if kind == FileMode.BLOB & 0o170000:
                    files[path] = id
                    modules = id if path == _MODULES else modules
                    has_lfs = has_lfs or (name == _ATTRIBUTES and names_lfs(repository, id))
    return Contents(links, modules, files if has_lfs else {})


def names_lfs(repository: pygit2.Repository, id: pygit2.Oid) -> bool:
    return repository.odb.read_header(id)[1] <= LONGEST_MODULES and _FILTER in repository.read(id)[1]


def _fault_of(name: tuple[str, ...], taken: list[tuple[str, ...]]) -> str:
    """The reason why a submodule with this name gets no repository in ``.git/modules``; empty if it
    may.
    """
    if any(part in ("", ".", "..") or not part.isprintable() or part.lower() == ".git" for part in name):
        return "its name is not a valid path"
    # One repository would be inside another, among its hooks or its objects.
    if any(name[: len(other)] == other or other[: len(name)] == name for other in taken):
        return "its name is within that of another submodule"
    return ""


def _signing_in(login: Login | None, address: Address, folder: Path) -> tuple[str, ...]:
    """The options with which git finds the password for this server only, in a file that only this
    user can read.
    """
    if login is None or login.password is None or address.scheme not in ("http", "https"):
        return ()
    file = folder / "git-credentials"
    port = f":{address.port}" if address.port else ""
    user = f"{quote(login.username, safe='')}:{quote(login.password, safe='')}"
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as text:
        text.write(f"{address.scheme}://{user}@{address.host}{port}\n")
    return ("-c", f"credential.helper=store --file={shlex.quote(str(file))}")


def _size(repository: Path) -> int:
    """The bytes of a repository's packs, incomplete ones included."""
    folder = repository / "objects" / "pack"
    return sum(entry.stat().st_size for entry in os.scandir(folder)) if folder.is_dir() else 0
