"""Puts the ``svn:externals`` of a revision into a new checkout, as far as the archive allows: each
folder is a checkout of its own.

A definition without a revision is pinned to the time of the archive's revision: in the same
repository to that revision, in another one to the last revision of that date. So a run gives the
same files whenever it runs; its log shows the revisions.

Folders are checked out one by one, each after its address was checked, and never with their own
externals: these are checked in turn. At the end, libsvn is told of the folders without externals,
and of files, so that ``svn`` knows them in the working copy. So libsvn gets no address that was not
checked.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import subvertpy
from subvertpy import SubversionException, client

from arkqueue.errors import ArchiveUnreachable, ArkqueueError, NotFound, WorkspaceError
from arkqueue.model import ArchiveKind
from arkqueue.repository.following import places
from arkqueue.repository.following.addresses import Address, NoAddress, local_address, read_address
from arkqueue.repository.following.allowance import Allowance, shown
from arkqueue.repository.limits import DEEPEST_FOLLOWED
from arkqueue.repository.location import Location
from arkqueue.repository.subversion.access import check_out, check_place, connected, credentials
from arkqueue.repository.subversion.definitions import (
    Definition,
    NoDefinition,
    address_of,
    lines_of,
    read_definition,
)
from arkqueue.repository.subversion.faults import explained
from arkqueue.repository.subversion.revisions import revision_of

_EXTERNALS = "svn:externals"


def address_at(url: str) -> Address:
    """The address of a URL from libsvn. Raises `NoAddress`."""
    if url.startswith("file://"):
        return local_address(unquote(url.removeprefix("file://")))
    return read_address(url)


@dataclass(frozen=True, slots=True)
class Checkout:
    """A checkout on disk. ``place``: its path from the workspace's top, for people."""

    path: Path
    address: Address
    root: Address
    place: str
    revision: int
    auth: Any


@dataclass(frozen=True, slots=True)
class Known:
    """An external of which libsvn will be told. ``line``: its definition, checked and pinned."""

    line: str
    parts: tuple[str, ...]
    what: str
    address: Address
    is_file: bool


class Externals:
    """Follows the externals of one working copy. ``number``, ``date``: those of the archive's
    revision. ``uuid``: that of its repository.
    """

    def __init__(self, allowance: Allowance, top: Path, number: int, date: datetime, uuid: str) -> None:
        self._allowance, self._top = allowance, top
        self._number, self._date, self._uuid = number, date, uuid

    def follow(self, checkout: Checkout, depth: int = 1) -> bool:
        """Follow the externals of a checkout. Returns whether it has any."""
        svn = client.Client(auth=checkout.auth)
        try:
            found = svn.propget(_EXTERNALS, str(checkout.path), "WORKING", "WORKING", True)
        except UnicodeDecodeError:
            self._allowance.note(
                f"svn:externals of {checkout.place or 'the root'} are not followed: they are not UTF-8"
            )
            return True
        values = {name: value if isinstance(value, str) else value.decode() for name, value in sorted(found.items())}
        # A value that svn refuses could not be restored, and libsvn would read its lines, which
        # were not checked.
        is_told = all(_is_taken(svn, name, value) for name, value in values.items())
        told: dict[str, list[Known]] = {name: [] for name in values}
        for name, value in values.items():
            below = Path(name).relative_to(checkout.path).parts
            for line in lines_of(value):
                known = self._one(checkout, below, line, depth)
                if known is None:
                    continue
                if known.is_file and not is_told:
                    self._allowance.note(
                        f"{known.what} is not followed: svn does not take other lines of these svn:externals"
                    )
                told[name].append(known)
        if is_told and any(told.values()):
            self._tell(svn, checkout, values, told)
        return bool(values)

    # Below

    def _one(self, checkout: Checkout, below: tuple[str, ...], line: str, depth: int) -> Known | None:
        """Follow one definition. Returns what libsvn has to be told of it, if anything."""
        inside = "/".join(part for part in (checkout.place, *below) if part) or "the root"
        try:
            definition = read_definition(line)
        except NoDefinition as fault:
            self._allowance.refuse(f"an external of {shown(inside)}", line, str(fault))
            return None
        parts = (*Path(checkout.place).parts, *below, *definition.target)
        place = "/".join(parts)
        what = f"external {shown(place)}"
        try:
            folder = Address(
                checkout.address.scheme, checkout.address.host, checkout.address.path + below,
                checkout.address.user, checkout.address.port,
            )  # fmt: skip
            address = address_of(definition, folder, checkout.root)
        except NoAddress as fault:
            self._allowance.refuse(what, definition.url, str(fault))
            return None
        is_local = address.scheme == "file"
        if is_local and (self._allowance.own is None or not address.is_below(self._allowance.own)):
            self._allowance.refuse(what, definition.url, "it is a path of this host outside the archive's repository")
            return None
        if not self._allowance.allows(address):
            self._allowance.forbid(what, address)
            return None
        if refusal := places.refusal(self._top, parts, is_made=False):
            self._allowance.refuse(what, definition.url, refusal)
            return None
        if depth > DEEPEST_FOLLOWED:
            remedy = "Look whether a folder refers to itself."
            raise WorkspaceError(what, f"it is {depth} externals deep, more than {DEEPEST_FOLLOWED}", remedy)
        self._allowance.begin(what)
        self._allowance.seconds_left(what)
        return self._fetch(what, definition, address, parts, depth)

    def _fetch(
        self, what: str, definition: Definition, address: Address, parts: tuple[str, ...], depth: int
    ) -> Known | None:
        location = self._location(address)
        auth = credentials(location)
        thing = f"{what}: {location.shown}"
        try:
            session = connected(location, auth)
            root = address_at(session.get_repos_root())
            if address.scheme == "file" and root != self._allowance.own:
                raise WorkspaceError(what, "it is in another repository of this host")
            revision, peg = definition.revision, definition.peg
            if revision is None:
                revision = peg = self._at_the_time(session, what)
            elif peg is None:
                peg = session.get_latest_revnum()
            kind = session.check_path("", peg)
            if kind == subvertpy.NODE_NONE:
                raise NotFound(thing, f"there is nothing at revision {peg}")
            if not address.is_below(root):
                raise WorkspaceError(thing, f"its server says that it belongs to {root}")
            line = f"-r {revision} {_quoted(f'{_escaped(address)}@{peg}')} {_quoted('/'.join(definition.target))}"
            known = Known(line, parts, what, address, kind != subvertpy.NODE_DIR)
            if known.is_file:
                if root == self._allowance.own:
                    return known
                self._allowance.refuse(
                    what, str(address), "it is a file of another repository, which svn does not follow"
                )
                return None
            path = self._top.joinpath(*parts)
            path.parent.mkdir(parents=True, exist_ok=True)
            check_out(location, auth, path, revision, peg)
        except ArchiveUnreachable as error:
            raise ArchiveUnreachable(thing, error.fault) from error
        except SubversionException as error:
            found = explained(thing, error)
            raise WorkspaceError(found.thing, found.fault) if isinstance(found, NotFound) else found from error
        except NoAddress as error:
            raise WorkspaceError(thing, f"its server redirects to an address that is not allowed: {error}") from error
        except NotFound as error:
            raise WorkspaceError(error.thing, error.fault, error.remedy) from error
        nested = self.follow(Checkout(path, address, root, "/".join(parts), revision, auth), depth + 1)
        return None if nested else known

    def _location(self, address: Address) -> Location:
        login = self._allowance.login(address)
        if login is None:
            return Location(ArchiveKind.SUBVERSION, _escaped(address))
        return Location(ArchiveKind.SUBVERSION, _escaped(address), login.username or None, login.password)

    def _at_the_time(self, session: Any, what: str) -> int:
        """The revision of another repository at the date of the archive's revision."""
        if session.get_uuid() == self._uuid:
            self._allowance.note(f"{what} names no revision: it is as in revision {self._number}, the archive's own")
            return self._number
        first, last = 0, session.get_latest_revnum()
        while first < last:
            middle = (first + last + 1) // 2
            if revision_of(middle, session.rev_proplist(middle)).date <= self._date:
                first = middle
            else:
                last = middle - 1
        self._allowance.note(
            f"{what} names no revision: it is as in revision {first}, the last one at the date of the archive's revision"
        )
        return first

    def _tell(self, svn: Any, checkout: Checkout, values: dict[str, str], told: dict[str, list[Known]]) -> None:
        """Tell libsvn of externals by properties that name only the checked ones, and restore the
        properties.
        """
        all_of_them = [known for lines in told.values() for known in lines]
        for known in all_of_them:
            # A later checkout may have brought a symlink.
            if known.is_file and (refusal := places.refusal(self._top, known.parts, is_made=False)):
                raise WorkspaceError(known.what, refusal)
        try:
            for name in told:
                svn.propset(_EXTERNALS, "".join(f"{known.line}\n" for known in told[name]) or "\n", name, False, False)
            svn.update([str(checkout.path)], checkout.revision, True, False)
        except SubversionException as error:
            found: ArkqueueError = explained(f"externals of {checkout.place or 'the root'}", error)
            raise WorkspaceError(found.thing, found.fault) from error
        finally:
            for name in told:
                svn.propset(_EXTERNALS, values[name], name, False, False)
        check_place(self._location(checkout.address), checkout.path)
        for known in all_of_them:
            path = self._top.joinpath(*known.parts)
            if not os.path.lexists(path):
                raise WorkspaceError(known.what, "libsvn did not check it out")
            if not known.is_file:
                check_place(self._location(known.address), path)


def _is_taken(svn: Any, folder: str, value: str) -> bool:
    """True if svn accepts the value of a folder's property. Another client may have set it."""
    try:
        svn.propset(_EXTERNALS, value, folder, False, False)
    except SubversionException:
        return False
    return bool(svn.propget(_EXTERNALS, folder, "WORKING", "WORKING", False).get(folder) in (value, value.encode()))


def _escaped(address: Address) -> str:
    """An address in libsvn's escaped form."""
    url: str = subvertpy.subr.uri_canonicalize(str(address))
    return url


def _quoted(word: str) -> str:
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'
