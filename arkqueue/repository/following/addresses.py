"""Parses addresses that committers write, strictly, so that the compared address is the requested
one.

A URL that two programs may read in two ways is refused. Callers compare the parts of a URL, and
fetch the URL that is made from these parts. Called by `settings` for the addresses that an
administrator allows, and by readers for those that a revision names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from urllib.parse import quote, unquote_to_bytes

_SCHEMES = {"http": 80, "https": 443, "svn": 3690, "svn+ssh": 22, "ssh": 22, "git": 9418}
"""The allowed schemes, with their default ports."""
WITH_USERS = {"ssh", "svn+ssh"}
HOME = "~"
"""Stands for the home folder of an SSH user: paths of ``host:path`` are below it."""

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)(.*)", re.DOTALL)
_SCP_LIKE = re.compile(r"(?:([^/:@]+)@)?(\[[^]/]*\]|[^/:@\[\]]+):(.*)", re.DOTALL)
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*|\[[0-9a-f:.]+\]")
_USER = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._-]*")
_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")
_PLAIN = "!$&'()*+,;=:@"


class NoAddress(ValueError):
    """An address that is never followed. The text is the reason, as "it is …"."""


@dataclass(frozen=True, slots=True)
class Address:
    """A URL in parts. ``path``: its segments, unescaped. ``query``: unchanged; only read if the
    caller asked for it.
    """

    scheme: str
    host: str
    path: tuple[str, ...]
    user: str = ""
    port: int | None = None
    query: str = ""

    def __post_init__(self) -> None:
        """Raise `NoAddress` if ``host:path`` would name something else than this path below the home
        folder: an option of a program, the home folder of another user, or an escape that SSH takes
        literally.
        """
        if self._is_in_home and re.match("[-~:]|.*%", "/".join(self.path[1:]), re.DOTALL):
            raise NoAddress("its path is not a plain path")

    @property
    def _is_in_home(self) -> bool:
        """True for a path that is written as ``host:path``."""
        return self.scheme == "ssh" and self.port is None and self.path[:1] == (HOME,)

    def __str__(self) -> str:
        """The only spelling of this address."""
        user = f"{self.user}@" if self.user else ""
        path = "/".join(quote(part, safe=_PLAIN) for part in self.path)
        if self._is_in_home:
            return f"{user}{self.host}:{'/'.join(self.path[1:])}"
        port = f":{self.port}" if self.port is not None else ""
        return f"{self.scheme}://{user}{self.host}{port}/{path}{self.query}".rstrip("/" if not self.query else "")

    @property
    def server(self) -> tuple[str, str, int | None, str]:
        """Equal for two addresses on one server."""
        return self.scheme, self.host, self.port, self.user

    def is_below(self, prefix: Address) -> bool:
        """True if this address is ``prefix``, or below it."""
        return self.server == prefix.server and self.path[: len(prefix.path)] == prefix.path


def read_address(text: str, *, with_query: bool = False) -> Address:
    """Parse an address. Raises `NoAddress`. ``with_query``: a query is allowed, as in links to
    stored files.
    """
    if not text or any(ord(sign) < 32 or 127 <= ord(sign) < 160 or sign in "\\\u2028\u2029" for sign in text):
        raise NoAddress("it has characters that no address has")
    if text.startswith("-"):
        raise NoAddress("it begins like an option of a program")
    if "::" in text.split("/", 1)[0] and not text.startswith("["):
        raise NoAddress("it names a program that would fetch it")
    found = _URL.fullmatch(text)
    if found is None:
        return _scp_like(text)
    scheme = found[1].lower().replace("git+ssh", "ssh")
    if scheme == "file":
        raise NoAddress("it is a path of this host")
    if scheme not in _SCHEMES:
        raise NoAddress(f"it has the scheme {scheme}")
    user, host, port = _authority(scheme, found[2])
    rest, mark, query = found[3].partition("?")
    if "#" in found[3] or (mark and not with_query):
        raise NoAddress("it has a query or a fragment")
    return Address(scheme, host, segments(rest), user, port, mark + query)


def local_address(path: str) -> Address:
    """The address of a repository on this host. Only its own folders can be followed from it."""
    return Address("file", "", tuple(part for part in path.split("/") if part))


def segments(path: str, base: tuple[str, ...] | None = None) -> tuple[str, ...]:
    """The segments of a path. ``base``: the path to which it is relative; it may then begin with
    ``..``. Raises `NoAddress`.
    """
    found = list(base or ())
    rest = path.removeprefix("/") if base is None else path
    for part in rest.removesuffix("/").split("/") if rest not in ("", "/") else []:
        if base is not None and part == ".":
            continue
        if base is not None and part == "..":
            if not found or found == [HOME]:
                raise NoAddress("it leads above its server")
            found.pop()
            continue
        if part.replace("%2e", ".").replace("%2E", ".") in ("", ".", ".."):
            raise NoAddress("its path is not a plain path")
        try:
            name = unquote_to_bytes(part).decode()
        except UnicodeDecodeError:
            raise NoAddress("its path is not UTF-8") from None
        if "%" in _ESCAPE.sub("", part) or _ESCAPE.search(name) or not name.isprintable() or set(name) & {"/", "\\"}:
            raise NoAddress("its path is not a plain path")
        found.append(name)
    return tuple(found)


def relative(base: Address, path: str) -> Address:
    """An address relative to another one. Raises `NoAddress`."""
    return replace(base, path=segments(path, base.path))


def _authority(scheme: str, text: str) -> tuple[str, str, int | None]:
    user, at, place = text.rpartition("@")
    if at and (scheme not in WITH_USERS or not _USER.fullmatch(user)):
        raise NoAddress("it has a user or a password in it")
    host, colon, port = (
        place.rpartition(":") if re.search(r":[0-9]*\Z", place) and not place.endswith("]") else (place, "", "")
    )
    host = host.lower()
    if not _HOST.fullmatch(host):
        raise NoAddress("it has no host that can be compared")
    if colon and not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536):
        raise NoAddress("its port is not valid")
    number = int(port) if colon else None
    return user, host, None if number == _SCHEMES[scheme] else number


def _scp_like(text: str) -> Address:
    found = _SCP_LIKE.fullmatch(text)
    if found is None:
        raise NoAddress("it is a path of this host")
    user, host, _ = _authority("ssh", f"{found[1]}@{found[2]}" if found[1] else found[2])
    if found[3].startswith("//") or "%" in found[3]:  # ssh would take "%" literally, and a URL would not
        raise NoAddress("its path is not a plain path")
    path = segments(found[3]) if found[3].startswith("/") else (HOME, *segments(found[3]))
    return Address("ssh", host, path, user)
