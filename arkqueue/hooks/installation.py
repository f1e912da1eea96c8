"""Put arkqueue's hooks into a repository of this host, and take them out.

What there is then:

    hooks/post-commit, …    our scripts, each with the line "# arkqueue-hook" below its first
    hooks/post-commit.user  the hook that was there before, under its new name; ours goes on to call it
    arkqueue/notify         sends one notice to each server, detached from the commit
    arkqueue/servers/       a folder for each server, whose name is the server's URL:
        client.conf         the client's configuration, with the token: for those who may write to the repository, and nobody else
        send                starts the client
    arkqueue/unchecked/     Subversion: transactions that the checker could not look at, for post-commit to say so

``arkqueue/`` is a folder of the repository's own, never of a work tree. Nothing is written before everything has been looked at.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from arkqueue.errors import ArkqueueError, Conflict, Invalid
from arkqueue.model import ArchiveKind
from arkqueue.repository import locate
from arkqueue.repository.location import local_path
from arkqueue.runtime.accounts import account

CHECK_TIMEOUT = 20
"""Seconds; a commit does not wait longer for its check."""

LONGEST_NAME = 255
"""Bytes of a file's name."""

_MARK = b"# arkqueue-hook"
_NOTIFYING = {
    ArchiveKind.SUBVERSION: ("post-commit",),
    # What is pushed; and where people commit in the repository itself, what they commit, merge and rewrite.
    ArchiveKind.GIT: ("post-receive", "post-commit", "post-merge", "post-rewrite"),
}
_CHECKING = {ArchiveKind.SUBVERSION: "pre-commit", ArchiveKind.GIT: "pre-receive"}


@dataclass(frozen=True, slots=True)
class Installed:
    """What `install` did: ``hooks`` that are now arkqueue's, the ``client`` that sends notices (None: sweep only), ``notes`` for the person.

    ``name``: how notices name the repository.
    """

    kind: ArchiveKind
    name: str
    hooks: tuple[Path, ...]
    client: str | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Removed:
    """What `uninstall` did: ``paths`` that are no more, the ``servers`` that are told of commits no more, and those that are ``left``."""

    paths: tuple[Path, ...]
    servers: tuple[str, ...]
    left: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Repository:
    """A repository of this host: its own ``folder``, where its ``hooks`` are, how notices name it, and what only committers can write to.

    ``local``: people commit in the repository itself, and not only by a push to it.
    """

    kind: ArchiveKind
    folder: Path
    hooks: Path
    name: str
    local: bool
    data: Path

    @property
    def ours(self) -> Path:
        return self.folder / "arkqueue"

    @property
    def servers(self) -> Path:
        return self.ours / "servers"

    @property
    def notifying(self) -> tuple[str, ...]:
        return _NOTIFYING[self.kind] if self.local else _NOTIFYING[self.kind][:1]

    @property
    def all_hooks(self) -> tuple[str, ...]:
        return (*_NOTIFYING[self.kind], _CHECKING[self.kind])


def install(
    repository: Path | str,
    *,
    server: str,
    token: str,
    url: str | None = None,
    check: bool = False,
    checker: str = "arkqueue",
    check_timeout: int = CHECK_TIMEOUT,
    search: str | None = None,
) -> Installed:
    """Put the hooks into a repository of this host, or bring those of an earlier installation up to date. Other servers are told as before.

    ``server``: the API's URL. ``token``: one of scope ``hook``. ``url``: by which the server watches it, where that is not its path (Subversion: its UUID). ``check``: also the hook that refuses faulty workflow files by asking ``checker``, the absolute
    path of the ``arkqueue`` program. ``search``: where to look for programs (a PATH; None: this process's).
    """
    found = _open(repository)
    server = _checked_url(server)
    called = url or found.name
    if not re.fullmatch(r"[A-Za-z0-9._~+/=-]+", token):
        raise Invalid(
            "the token", "holds characters that no token has", "Give it as `arkqueue token create` printed it."
        )
    names = [] if (client := _client(search)) is None else list(found.notifying)
    if check or _is_ours(found.hooks / _CHECKING[found.kind]):
        names.append(_CHECKING[found.kind])
    for name in names:
        _refuse_tangles(found.hooks, name)

    if found.ours.is_symlink():
        raise Conflict(str(found.ours), "is a symlink", "Remove it: what is written there may not land elsewhere.")

    notes = _about_place(found)
    values = {
        "FOLDER": shlex.quote(str(found.ours)),
        "REPOSITORY": shlex.quote(str(found.folder)),
    }
    if _CHECKING[found.kind] in names:
        notes += _find_checker(found, checker, check_timeout, search, values)
    former = _told_before(found)
    with _changing(found):
        _make_folder(found.ours, found.folder, 0o755)
        if client is None:
            notes.append(
                "neither curl nor GNU wget is here: sweep only. arkqueue sees commits when it looks by itself, each minute; install curl and run this again"
            )
        else:
            notes += _install_client(found, client, server, called, token, search, values)
            notes += _about_others(found, server, former)
        if "pre-commit" in names:
            _make_folder(found.ours / "unchecked", found.data, stat.S_IMODE(found.data.stat().st_mode))
        found.hooks.mkdir(exist_ok=True)
        for name in names:
            notes += _put_hook(found, name, values)
    hooks = tuple(found.hooks / name for name in names)
    return Installed(found.kind, called, hooks, client.name if client else None, tuple(notes))


def uninstall(repository: Path | str, *, server: str | None = None) -> Removed:
    """Take the hooks out again, and give the user's own their names back. ``server``: while there are others, end the notices to this one alone."""
    found = _open(repository)
    told = _told(found)
    if server is not None and (server := _checked_url(server)) not in told:
        whom = f"tell {' and '.join(told)}" if told else "tell nobody"
        raise Invalid(server, f"is not told of commits: the hooks of {found.folder} {whom}", "Name one of these.")
    if server is not None and len(told) > 1:
        with _changing(found):
            folder = found.servers / _folder_name(server)
            shutil.rmtree(folder)
        return Removed((folder,), (server,), tuple(url for url in told if url != server))
    removed = []
    with _changing(found):
        for name in found.all_hooks:
            hook, user = found.hooks / name, found.hooks / f"{name}.user"
            if not _is_ours(hook):
                continue
            if os.path.lexists(user):
                user.rename(hook)
            else:
                hook.unlink()
            removed.append(hook)
        if found.ours.is_dir() and not found.ours.is_symlink():
            shutil.rmtree(found.ours)
            removed.append(found.ours)
    return Removed(tuple(removed), tuple(told), ())


@contextmanager
def _changing(repository: _Repository) -> Iterator[None]:
    """What the system refuses is told of the repository: what it refuses by may be a file that had just been made, or a mere descriptor."""
    try:
        yield
    except OSError as error:
        where = f" ({os.fsdecode(error.filename)})" if isinstance(error.filename, (str, bytes)) else ""
        remedy = "See what is the matter there, and run this again."
        if isinstance(error, PermissionError):
            remedy = f"Correct its permissions, or run this as {account(repository.folder.stat().st_uid)}, to whom it belongs."
        raise ArkqueueError(
            str(repository.folder), f"its hooks cannot be changed: {error.strerror}{where}", remedy
        ) from error


# Where a repository keeps things


def folder_of(repository: Path | str) -> Path:
    """The repository's own folder, absolute, however it was named."""
    return _open(repository).folder


def _open(given: Path | str) -> _Repository:
    location = locate(str(given))
    path = local_path(location)
    if path is None:
        raise Invalid(
            location.shown,
            "is on another host, where its hooks have to be installed",
            "There, run `arkqueue hook install PATH --server URL --token-file FILE`, with a token of scope `hook` "
            "made here. Until then arkqueue sees its commits when it looks by itself, each minute.",
        )
    return _subversion(Path(path)) if location.kind is ArchiveKind.SUBVERSION else _git(Path(path))


def _subversion(given: Path) -> _Repository:
    for folder in (given, *given.parents):
        if (folder / "db" / "uuid").is_file():
            folder = folder.resolve()
            uuid = (folder / "db" / "uuid").read_text("ascii").split()[0]
            _refuse_way_out(folder / "hooks", folder)
            return _Repository(ArchiveKind.SUBVERSION, folder, folder / "hooks", uuid, True, folder / "db")
    raise Invalid(str(given), "is no Subversion repository that keeps its data in files", "Check the path.")


def _git(given: Path) -> _Repository:
    import pygit2
    from pygit2.enums import RepositoryOpenFlag

    import arkqueue.repository.git.repository  # noqa: F401  (for its permission to open repositories of other users)

    try:
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
    hooks = folder / "hooks"
    if configured is not None:
        root = folder if repository.is_bare else Path(repository.workdir).resolve()
        hooks = Path(os.path.normpath(root / Path(configured).expanduser()))
        if not hooks.is_relative_to(folder) and not hooks.is_relative_to(root):
            raise Conflict(
                str(given),
                f"has its hooks in {hooks} (core.hooksPath), which other repositories may share",
                f"Set core.hooksPath for this repository alone: git config core.hooksPath {shlex.quote(str(folder / 'hooks'))}",
            )
        _refuse_way_out(hooks, folder, root)
    else:
        _refuse_way_out(hooks, folder)
    local = not repository.is_bare or (folder / "worktrees").is_dir()
    return _Repository(ArchiveKind.GIT, folder, hooks, str(name), local, folder / "objects")


def _refuse_way_out(hooks: Path, *own: Path) -> None:
    """Raise Conflict where symlinks lead out of the repository: what is there belongs to others, root's folders for one."""
    if not any(hooks.resolve().is_relative_to(folder) for folder in own):
        raise Conflict(
            str(own[0]),
            f"has its hooks in {hooks.resolve()} ({hooks} is a link), which other repositories may share",
            f"Give this repository a folder of its own: rm {shlex.quote(str(hooks))} && mkdir {shlex.quote(str(hooks))}",
        )


def _about_place(repository: _Repository) -> list[str]:
    notes = []
    if repository.data.stat().st_mode & stat.S_IWOTH:
        notes.append(
            f"everyone may write to {repository.data}, but only its owner and group may read the token: "
            "commits of others are seen by the sweep"
        )
    if not repository.hooks.is_relative_to(repository.folder):
        notes.append(
            f"the hooks are in the work tree, in {repository.hooks} (core.hooksPath); keep them out of commits"
        )
    return notes


# The client


def _client(search: str | None) -> Path | None:
    """curl, or a wget that reads a configuration file: one that wants the token as an argument is none."""
    if curl := shutil.which("curl", path=search):
        return Path(curl).absolute()
    if wget := shutil.which("wget", path=search):
        said = subprocess.run(
            [wget, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if said.stdout.startswith("GNU Wget"):
            return Path(wget).absolute()
    return None


def _checked_url(server: str) -> str:
    server = server.rstrip("/")
    plain = re.fullmatch(r"https?://[!-~]+", server) and not re.search(r"[\"'\\`<>@#?]", server)
    if not plain or not urlsplit(server).hostname:
        raise Invalid(repr(server), "is not the address of a server", "Write it like http://127.0.0.1:8417.")
    return server


def _install_client(
    repository: _Repository,
    client: Path,
    server: str,
    called: str,
    token: str,
    search: str | None,
    values: dict[str, str],
) -> list[str]:
    """Write the client's configuration for one server, and what starts it, and say in ``values`` how the hooks start that."""
    folder, url = repository.servers / _folder_name(server), f"{server}/api/v1/notices"
    headers = [f"Authorization: Bearer {token}", "Content-Type: application/json"]
    configuration = folder / "client.conf"
    if client.name == "curl":
        lines = [f'header = "{header}"' for header in headers]
        lines += [f'url = "{url}"', "globoff", "silent", 'output = "/dev/null"', "connect-timeout = 2", "max-time = 10"]
        command = [str(client), "-q", "--config", str(configuration), "--data-binary"]
    else:
        lines = [f"header = {header}" for header in headers]
        lines += ["tries = 1", "connect_timeout = 2", "timeout = 10", "output_document = /dev/null", "hsts = off"]
        # wget's own limits are for each wait, not for all of them together.
        limit = shutil.which("timeout", path=search)
        command = [*([os.path.abspath(limit), "10"] if limit else []), str(client), "-q", f"--config={configuration}"]
        command += [url, "--post-data"]
    for made in (repository.servers, folder):
        _make_folder(made, repository.folder, 0o755)
    group = repository.data.stat().st_mode & stat.S_IWGRP
    _write(configuration, "".join(f"{line}\n" for line in lines), repository.folder, 0o640 if group else 0o600)

    # A Subversion repository's hook reads the UUID at each commit.
    beginning = f'{{"repository":{json.dumps(called)}' if repository.kind is ArchiveKind.GIT else ""
    send = {"CLIENT": shlex.join(command), "BEGINNING": shlex.quote(beginning)}
    _write(folder / "send", _rendered("send", send), repository.folder, 0o644)
    notify = repository.ours / "notify"
    _write(notify, _rendered("notify", values), repository.folder, 0o755)
    start = [os.path.abspath(path), "-i"] if (path := shutil.which("env", path=search)) else []
    start += [os.path.abspath(path)] if (path := shutil.which("setsid", path=search)) else []
    values["SEND"] = shlex.join([*start, _shell(search), str(notify)])
    if not group and repository.data.stat().st_uid != configuration.stat().st_uid:
        return [
            f"{configuration} is not readable for the repository's owner, whose commits the sweep sees: run this as that user"
        ]
    return []


def _folder_name(server: str) -> str:
    """The folder of a server: its URL, so that `_told` can read it."""
    name = quote(server, safe=":")
    if len(name) > LONGEST_NAME:
        raise Invalid(server, "is too long for the address of a server", "Give the server a shorter one.")
    return name


def _told(repository: _Repository) -> list[str]:
    """The URLs of the servers that are told of commits."""
    try:
        return sorted(unquote(folder.name) for folder in repository.servers.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return [] if (former := _told_before(repository)) is None else [former]


def _told_before(repository: _Repository) -> str | None:
    """The URL of the one server that was told by an earlier version's hooks; "" where it cannot be read."""
    if not os.path.lexists(repository.ours / "client.conf"):
        return None
    texts = (
        path.read_text("utf-8", "replace")
        for name in ("client.conf", "notify")
        if (path := repository.ours / name).is_file()
    )
    found = re.search(r"(https?://[!-~]+?)/api/v1/notices", "".join(texts))
    return found[1] if found else ""


def _about_others(repository: _Repository, server: str, former: str | None) -> list[str]:
    """Note which other servers are told, and that the one of an earlier version's hooks (``former``) is told no more."""
    (repository.ours / "client.conf").unlink(missing_ok=True)
    notes = []
    if former not in (None, server):
        notes.append(
            f"{former or 'another server'} was told of commits, and is no more: run `arkqueue hook install` there again, or "
            "make the token of these hooks worthless there (`arkqueue token list`)"
        )
    for other in _told(repository):
        if other != server:
            end = shlex.join(["arkqueue", "hook", "uninstall", "--server", other, str(repository.folder)])
            notes.append(f"{other} goes on to be told of commits, too; to end that: {end}")
    return notes


def _shell(search: str | None) -> str:
    """A shell that can close descriptors above 9, if there is one; it starts when the commit is on its way."""
    for shell in ("/bin/sh", shutil.which("bash", path=search)):
        if shell and not subprocess.run([shell, "-c", "exec 10>&-"], capture_output=True, check=False).returncode:
            return shell
    return "/bin/sh"


# The checker's side of the installation


def _find_checker(
    repository: _Repository, checker: str, timeout: int, search: str | None, values: dict[str, str]
) -> list[str]:
    """Say in ``values`` how the checking hook starts the checker."""
    program = shutil.which(checker, path=search)
    if program is None:
        raise Invalid(
            checker, "is no program", "Give the path of the arkqueue program that is to check workflow files."
        )
    limit = shutil.which("timeout", path=search)
    limited = [os.path.abspath(limit), "-s", "KILL", str(timeout)] if limit else []
    values["CHECK"] = shlex.join([*limited, os.path.abspath(program), "hook", "check"])
    if repository.kind is ArchiveKind.SUBVERSION:
        svnlook = shutil.which("svnlook", path=search)
        if svnlook is None:
            raise Invalid("svnlook", "is not here", "Install Subversion's tools: the checking hook asks svnlook.")
        svnlook = os.path.abspath(svnlook)
        values |= {"SVNLOOK": shlex.quote(svnlook), "PATH": shlex.quote(f"{os.path.dirname(svnlook)}:{os.defpath}")}
    return [] if limit else ["there is no `timeout` program: a commit waits for its check without limit"]


# Hooks of ours and of others


def _put_hook(repository: _Repository, name: str, values: Mapping[str, str]) -> list[str]:
    """Write one hook of ours, in the place of the user's own, which it goes on to call."""
    hook, user = repository.hooks / name, repository.hooks / f"{name}.user"
    notes = []
    if os.path.lexists(hook) and not _is_ours(hook):
        hook.rename(user)
        notes.append(f"your {name} is now {user.name} and is called by ours")
    template = f"{repository.kind.value}/{'post-commit' if name in {'post-merge', 'post-rewrite'} else name}"
    _write(hook, _rendered(template, {**values, "NAME": name}), repository.folder, 0o755)
    if user.is_file() and not os.access(user, os.X_OK):
        notes.append(f"{user.name} is not executable, so it is kept but not run")
    elif user.is_file() and re.search(rb"basename|\$\{0##|__file__|argv\[0\]", user.read_bytes()[:65536]):
        notes.append(f"{user.name} seems to ask for its own name, which now ends in .user: see that it still works")
    return notes


def _refuse_tangles(hooks: Path, name: str) -> None:
    """Stop where taking over the present hook would lose one, or make two call each other for ever."""
    hook, user = hooks / name, hooks / f"{name}.user"
    if not os.path.lexists(hook) or _is_ours(hook):
        return
    copies = [path.name for path in hooks.glob(f"{name}?*") if _is_ours(path)]
    if copies:
        raise Conflict(
            str(hook),
            f"is another program's hook, and arkqueue's is now {copies[0]}, which it may call",
            f"If it does, all is well, but to renew ours: put it back as {name}, and the other as {name}.user.",
        )
    if os.path.lexists(user):
        raise Conflict(
            str(hook), f"is not arkqueue's hook, and {user.name} exists too", f"Join the two in {user.name}."
        )


def _is_ours(hook: Path) -> bool:
    """A symlink is the user's, wherever it leads."""
    if hook.is_symlink() or not hook.is_file():
        return False
    with hook.open("rb") as file:
        return file.readline().startswith(b"#!") and file.readline().startswith(_MARK)


def _rendered(template: str, values: Mapping[str, str]) -> str:
    """A script of ``hooks/``; every value is quoted for the shell already."""
    package = Path(__file__).parents[1]
    # Inside the installed package, or beside it in a checkout.
    folder = package / "_hooks" if (package / "_hooks").is_dir() else package.parent / "hooks"
    return re.sub(r"@([A-Z]+)@", lambda match: values[match[1]], (folder / template).read_text("utf-8"))


def _write(path: Path, text: str, like: Path, mode: int) -> None:
    """Put a file in place at once and whole; never readable by more than ``mode`` says, not even at first."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _give_to_owner(descriptor, like, mode)
            file.write(os.fsencode(text))
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _make_folder(path: Path, like: Path, mode: int) -> None:
    path.mkdir(exist_ok=True)
    descriptor = os.open(path, os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _give_to_owner(descriptor, like, mode)
    finally:
        os.close(descriptor)


def _give_to_owner(descriptor: int, like: Path, mode: int) -> None:
    """The owner and group of the repository, as far as this user may give things away."""
    wanted, has = like.stat(), os.fstat(descriptor)
    try:
        if (wanted.st_uid, wanted.st_gid) != (has.st_uid, has.st_gid):
            os.chown(descriptor, wanted.st_uid if os.geteuid() == 0 else -1, wanted.st_gid)
    except PermissionError:
        mode &= 0o707  # the group is this user's own, and not the repository's
    os.chmod(descriptor, mode)
