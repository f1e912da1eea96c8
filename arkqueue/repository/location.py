"""Where an archive lives, which repository that is, and which repository a notice means.

Pure but for looking at local folders (`locate`, `notice_key`). Called by whoever registers archives or takes notices.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, quote, unquote, urlsplit

from arkqueue.errors import ArchiveUnreachable, Invalid
from arkqueue.model import ArchiveKind
from arkqueue.names import without_password
from arkqueue.runtime.accounts import account

_SUBVERSION_SCHEMES = {"svn", "svn+ssh"}
_GIT_SCHEMES = {"git", "ssh", "git+ssh"}
_DEFAULT_PORTS = {"svn": 3690, "http": 80, "https": 443, "git": 9418, "ssh": 22, "svn+ssh": 22}
_SCP_LIKE = re.compile(r"(?P<host>[^/:\s]+):(?P<path>(?!//).+)")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Location:
    """How an archive is registered; made by `locate`.

    ``url``: Subversion: a URL, which may point to a folder inside the repository; Git: an absolute path or a remote's
    URL. Name and password come from the configuration. ``uuid``: the Subversion repository's, once it is known: a
    repository with another one is refused.
    """

    kind: ArchiveKind
    url: str
    username: str | None = None
    password: str | None = None
    uuid: str = ""

    @property
    def needs_mirror(self) -> bool:
        """Whether this is a Git remote, of which each host keeps a copy."""
        return self.kind is ArchiveKind.GIT and _local_path(self.url) is None

    @property
    def shown(self) -> str:
        """The URL for people: without a password."""
        return without_password(self.url)

    def __repr__(self) -> str:
        return f"Location({self.kind.value}, {self.shown!r})"


@dataclass(frozen=True, slots=True)
class Identity:
    """The repository of an archive: ``repository`` is its root (URL or path), ``folder`` the part that is the archive.

    ``uuid`` and ``folder`` are empty for Git; the empty folder is the whole repository.
    """

    kind: ArchiveKind
    repository: str
    uuid: str = ""
    folder: str = ""


def locate(
    given: str, kind: ArchiveKind | None = None, *, username: str | None = None, password: str | None = None
) -> Location:
    """The location that a person means by a path or URL, and of which kind it is where ``kind`` does not say.

    A local path is looked at. Over http(s), what ends with ``.git`` is Git, all else Subversion.
    """
    given = given.strip()
    path = _local_path(given)
    if path is not None:
        path = os.path.abspath(os.path.expanduser(path))
        kind = kind or _kind_on_disk(Path(path))
        if kind is None:
            if unreachable := shut_out(path, path):
                raise unreachable
            raise Invalid(path, "holds neither a Subversion nor a Git repository", "Check the path.")
        return Location(kind, "file://" + quote(path) if kind is ArchiveKind.SUBVERSION else path, username, password)
    parts = _split(given)
    scheme = parts.scheme.lower() if "://" in given else ""
    if kind is None:
        if scheme in _SUBVERSION_SCHEMES:
            kind = ArchiveKind.SUBVERSION
        elif scheme in _GIT_SCHEMES or not scheme:
            kind = ArchiveKind.GIT
        elif scheme in {"http", "https"}:
            kind = ArchiveKind.GIT if given.rstrip("/").endswith(".git") else ArchiveKind.SUBVERSION
        else:
            raise Invalid(
                given, f"has the unknown scheme {scheme!r}", "Use file, svn, svn+ssh, ssh, git, http or https."
            )
    # A URL that starts with "-" would be an option to git and ssh.
    if given.startswith("-") or (scheme and not parts.hostname) or "::" in given.split("/", 1)[0]:
        raise _no_address(given)
    return Location(kind, given.rstrip("/"), username, password)


def notice_keys(identity: Identity) -> frozenset[str]:
    """The possible answers of `notice_key` for a notice about this repository."""
    return frozenset({notice_key(identity.repository), identity.uuid.lower()} - {""})


def notice_key(given: str) -> str:
    """One spelling for all the ways of naming a repository: a UUID, a URL, or a local path with symlinks resolved."""
    given = given.strip()
    if _UUID.fullmatch(given.lower()):
        return given.lower()
    path = _local_path(given)
    if path is not None:
        return _bare(os.path.realpath(path))
    scp = _SCP_LIKE.fullmatch(given) if "://" not in given else None
    if scp:
        given = f"ssh://{scp['host']}/{scp['path'].lstrip('/')}"
    parts = _split(given)
    scheme = parts.scheme.lower().replace("git+ssh", "ssh")
    try:
        port = parts.port
    except ValueError:
        port = None
    host = (parts.hostname or "").lower() + (f":{port}" if port not in {None, _DEFAULT_PORTS.get(scheme)} else "")
    return f"{scheme}://{host}{_bare(unquote(parts.path))}"


def _split(given: str) -> SplitResult:
    try:
        return urlsplit(given)
    except ValueError as error:  # a bracket that is no IPv6 address's
        raise _no_address(given) from error


def _no_address(given: str) -> Invalid:
    return Invalid(given, "is not the address of a repository", "Give a path or a URL.")


def is_relative(given: str) -> bool:
    """Whether what a notice names is a path that depends on where somebody stands."""
    given = given.strip()
    path = _local_path(given)
    return path is not None and not path.startswith("/") and not _UUID.fullmatch(given.lower())


def local_path(location: Location) -> str | None:
    """The path of a repository on this host, None where it is elsewhere."""
    return _local_path(location.url)


def _local_path(given: str) -> str | None:
    if given.lower().startswith("file://"):
        rest = given[len("file://") :]
        host, slash, path = rest.partition("/")
        return unquote(slash + path) if host.lower() in {"", "localhost"} else None
    # As git has it: host:path is a remote, unless a slash comes before the colon.
    return None if "://" in given or _SCP_LIKE.fullmatch(given) else given


def _bare(path: str) -> str:
    return path.rstrip("/").removesuffix("/.git").removesuffix(".git").rstrip("/") or "/"


def shut_out(path: Path | str, thing: str) -> ArchiveUnreachable | None:
    """The message for a local repository that this user may not read; None if the user may read it."""
    try:
        for inside in (".git", "db/fs-type"):
            with suppress(FileNotFoundError, NotADirectoryError):
                os.stat(Path(path, inside))
    except PermissionError:
        remedy = "Let that user read it, and enter the folders above it."
        return ArchiveUnreachable(thing, f"the user {account()} may not read it", remedy)
    except (OSError, ValueError):
        pass
    return None


def _kind_on_disk(path: Path) -> ArchiveKind | None:
    # Not asked of pathlib, which raises where somebody may not look.
    if os.path.exists(path / ".git") or (os.path.isdir(path / "objects") and os.path.isfile(path / "HEAD")):
        return ArchiveKind.GIT
    for folder in (path, *path.parents):  # a path may go on inside a Subversion repository
        if os.path.isfile(folder / "db" / "fs-type") and os.path.isfile(folder / "format"):
            return ArchiveKind.SUBVERSION
    return None
