"""Where an archive's repository is, which repository that is, and which repository a notice means.

Pure, except that `locate` and `notice_key` look at local folders. Called by code that registers
archives or accepts notices.
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
    """The registered location of an archive; made by `locate`.

    ``url``: for Subversion a URL, which may point to a folder inside the repository; for Git an
    absolute path or a remote's URL. Username and password come from the configuration. ``uuid``:
    the UUID of the Subversion repository, once it is known; a repository with another one is
    refused.
    """

    kind: ArchiveKind
    url: str
    username: str | None = None
    password: str | None = None
    uuid: str = ""

    @property
    def needs_mirror(self) -> bool:
        """True if this is a Git remote, of which each host keeps a copy."""
        return self.kind is ArchiveKind.GIT and _local_path(self.url) is None

    @property
    def shown(self) -> str:
        """The URL for people: without a password."""
        return without_password(self.url)

    def __repr__(self) -> str:
        return f"Location({self.kind.value}, {self.shown!r})"


@dataclass(frozen=True, slots=True)
class Identity:
    """The repository of an archive. ``repository``: its root (URL or path). ``folder``: the part of
    the repository that is the archive.

    ``uuid`` and ``folder`` are empty for Git. An empty folder is the whole repository.
    """

    kind: ArchiveKind
    repository: str
    uuid: str = ""
    folder: str = ""


def locate(
    given: str, kind: ArchiveKind | None = None, *, username: str | None = None, password: str | None = None
) -> Location:
    """The location of a path or URL that a person gave. ``kind``: None: find out.

    For a local path, the files are inspected. Over http(s), a URL that ends with ``.git`` is Git,
    any other one is Subversion.
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
    """The possible results of `notice_key` for a notice about this repository."""
    return frozenset({notice_key(identity.repository), identity.uuid.lower()} - {""})


def notice_key(given: str) -> str:
    """One spelling for all names of a repository: a UUID, a URL, or a local path with symlinks
    resolved.
    """
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
    except ValueError as error:  # a bracket that does not belong to an IPv6 address
        raise _no_address(given) from error


def _no_address(given: str) -> Invalid:
    return Invalid(given, "is not the address of a repository", "Give a path or a URL.")


def is_relative(given: str) -> bool:
    """True if a notice names a relative path, which depends on the sender's current folder."""
    given = given.strip()
    path = _local_path(given)
    return path is not None and not path.startswith("/") and not _UUID.fullmatch(given.lower())


def local_path(location: Location) -> str | None:
    """The path of a repository on this host; None if it is elsewhere."""
    return _local_path(location.url)


def _local_path(given: str) -> str | None:
    if given.lower().startswith("file://"):
        rest = given[len("file://") :]
        host, slash, path = rest.partition("/")
        return unquote(slash + path) if host.lower() in {"", "localhost"} else None
    # Like git: host:path is a remote, unless a slash comes before the colon.
    return None if "://" in given or _SCP_LIKE.fullmatch(given) else given


def _bare(path: str) -> str:
    return path.rstrip("/").removesuffix("/.git").removesuffix(".git").rstrip("/") or "/"


def shut_out(path: Path | str, thing: str) -> ArchiveUnreachable | None:
    """The error for a local repository that this user may not read; None if the user may read it."""
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
    # Not with pathlib, which raises if a folder may not be read.
    if os.path.exists(path / ".git") or (os.path.isdir(path / "objects") and os.path.isfile(path / "HEAD")):
        return ArchiveKind.GIT
    for folder in (path, *path.parents):  # the path may lead into a Subversion repository
        if os.path.isfile(folder / "db" / "fs-type") and os.path.isfile(folder / "format"):
            return ArchiveKind.SUBVERSION
    return None
