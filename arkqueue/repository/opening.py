"""Opens a registered archive: with its credentials, and this host's mirror of a Git remote.

The repository is read in reader processes (``reader``), never in the process of the caller. Called
by the queue manager, the task manager and registration.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from arkqueue.config import Configuration
from arkqueue.model import ArchiveKind
from arkqueue.repository import Archive, Following, Location, Login, locate
from arkqueue.repository.following.addresses import Address, NoAddress, read_address
from arkqueue.repository.reader.archive import ReadArchive


def location_of(configuration: Configuration, url: str, kind: ArchiveKind | None = None, uuid: str = "") -> Location:
    """The location of an archive, with its credentials from the configuration."""
    location = replace(locate(url, kind), uuid=uuid)
    found = configuration.credentials_for(location.url)
    return replace(location, username=found.username or None, password=found.secret()) if found else location


def following_of(configuration: Configuration, url: str, prefixes: Sequence[str]) -> Following:
    """The references that working copies of a repository at ``url`` may follow, with the passwords
    for the allowed servers.
    """
    if not prefixes:
        return Following()
    servers = {found.server for text in (url, *prefixes) if (found := _address(text)) is not None}
    entries = [(entry, found) for entry in configuration.credentials if (found := _address(entry.url)) is not None]
    logins = [Login(entry.url, entry.username, entry.secret()) for entry, found in entries if found.server in servers]
    return Following(tuple(prefixes), tuple(logins))


def _address(text: str) -> Address | None:
    try:
        return read_address(text)
    except NoAddress:
        return None


def open_registered(configuration: Configuration, url: str, kind: ArchiveKind | None = None, uuid: str = "") -> Archive:
    """The archive at ``url``, open for reading. Nothing has been read yet."""
    return open_location(configuration, location_of(configuration, url, kind, uuid))


def open_location(configuration: Configuration, location: Location) -> Archive:
    """Open the repository at a location from `location_of`."""
    mirror = None
    if location.needs_mirror:
        name = hashlib.sha256(location.url.encode()).hexdigest()[:20]
        mirror = configuration.home / "mirrors" / f"{name}.git"
    return ReadArchive(location, mirror, most_items=configuration.items_limit)
