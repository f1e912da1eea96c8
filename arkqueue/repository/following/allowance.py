"""The rights of one working copy to follow references: from which addresses, with which passwords,
how much, and for how long.

A reference that is not allowed is noted in the task's log, and is never an error: the task runs
without it. An allowed reference that cannot be fetched is an error, so no task runs with only a
part of its files.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from arkqueue.errors import WorkspaceError
from arkqueue.names import without_password
from arkqueue.repository.following.addresses import Address, NoAddress, read_address
from arkqueue.repository.limits import MOST_FOLLOWED, MOST_FOLLOWED_BYTES, MOST_FOLLOWED_SECONDS

OWN = "^/"
"""The prefix of an allowed folder in the archive's own repository, as in ``svn:externals``."""
LONGEST_SHOWN = 300
MOST_NOTES = 50


@dataclass(frozen=True, slots=True)
class Login:
    """A configured name and password for all addresses below a URL."""

    url: str
    username: str
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Following:
    """The allowance that the caller gives: URL prefixes that may be followed, and the passwords for
    them.
    """

    prefixes: tuple[str, ...] = ()
    logins: tuple[Login, ...] = ()


@dataclass(frozen=True, slots=True)
class Followed:
    """The result. ``notes``: sentences for the log. ``wanted``: the prefixes that would have to be
    allowed for the references that were not followed.
    """

    notes: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()


class Allowance:
    """The allowance of one working copy. ``own``: the root of the archive's repository, for
    prefixes that begin with ``^/``.
    """

    def __init__(self, following: Following, own: Address | None = None) -> None:
        self.own = own
        self._prefixes = [found for prefix in following.prefixes if (found := _read(prefix, own)) is not None]
        self._logins = [(found, login) for login in following.logins if (found := _read(login.url, None)) is not None]
        self._notes: dict[str, None] = {}
        self._wanted: dict[str, None] = {}
        self._count = self._bytes = 0
        self._until = time.monotonic() + MOST_FOLLOWED_SECONDS

    def allows(self, address: Address) -> bool:
        return any(address.is_below(prefix) for prefix in self._prefixes)

    def login(self, address: Address) -> Login | None:
        """The login with the longest prefix of an address; None if there is none."""
        fitting = [(len(prefix.path), login) for prefix, login in self._logins if address.is_below(prefix)]
        return max(fitting, key=lambda found: found[0])[1] if fitting else None

    # Results

    def note(self, sentence: str) -> None:
        if len(self._notes) < MOST_NOTES:
            self._notes[shown(sentence, 2 * LONGEST_SHOWN)] = None
        else:
            self._notes["further ones are not named"] = None

    def refuse(self, what: str, url: str, why: str) -> None:
        """Note a reference that is never followed."""
        self.note(f"{what} is not followed: {shown(without_password(url))}: {why}")

    def forbid(self, what: str, address: Address) -> None:
        """Note a reference that is not followed because the archive does not allow it."""
        own = self.own is not None and address.is_below(self.own)
        prefix = OWN + "/".join(str(address).split("/")[len(str(self.own).split("/")) :]) if own else str(address)
        self.note(f"{what} is not followed: the archive does not allow {shown(prefix)}")
        if len(self._wanted) < MOST_NOTES and len(prefix) <= LONGEST_SHOWN:
            self._wanted[prefix] = None

    def result(self) -> Followed:
        return Followed(tuple(self._notes), tuple(self._wanted))

    # Limits

    def begin(self, what: str) -> None:
        """Count one reference that is about to be followed. Raises `WorkspaceError` if there are
        too many.
        """
        self._count += 1
        if self._count > MOST_FOLLOWED:
            raise WorkspaceError(
                what, f"it is one of more than {MOST_FOLLOWED} that would be followed", "Refer to fewer."
            )

    def take(self, what: str, size: int) -> None:
        """Count bytes that are about to be written. Raises `WorkspaceError` if there are too many."""
        self._bytes += size
        if self._bytes > MOST_FOLLOWED_BYTES:
            raise too_much(what)

    @property
    def bytes_left(self) -> int:
        return MOST_FOLLOWED_BYTES - self._bytes

    def seconds_left(self, what: str) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            raise WorkspaceError(what, f"what the revision refers to takes longer than {MOST_FOLLOWED_SECONDS:.0f} s")
        return left


def too_much(what: str) -> WorkspaceError:
    most = f"more than {MOST_FOLLOWED_BYTES >> 20} MiB"
    return WorkspaceError(what, f"what the revision refers to has {most}", "Refer to less, or let the task fetch it.")


def shown(text: str, longest: int = LONGEST_SHOWN) -> str:
    """The text of a stranger, as one line of a log."""
    line = "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text[:longest])
    return line + ("…" if len(text) > longest else "")


def check_prefix(prefix: str) -> None:
    """Raise `NoAddress` for a text that cannot be an allowed prefix."""
    if prefix.startswith(OWN):
        read_address("svn://own/" + prefix.removeprefix(OWN))
    else:
        read_address(prefix)


def names_of(paths: Sequence[str]) -> str:
    """Some paths, for people."""
    return ", ".join(paths[:3]) + (f" and {len(paths) - 3} others" if len(paths) > 3 else "")


def _read(prefix: str, own: Address | None) -> Address | None:
    """The address of a prefix; None if the prefix allows nothing in this archive."""
    try:
        if not prefix.startswith(OWN):
            return read_address(prefix)
        below = read_address("svn://own/" + prefix.removeprefix(OWN)).path
        return None if own is None else Address(own.scheme, own.host, own.path + below, own.user, own.port)
    except NoAddress:
        return None
