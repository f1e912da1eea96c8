"""Archives are registered and rewound: a repository is opened, asked who it is and where its branches are, and the ledger starts there.

Called by the API for a person; the repository is read in the caller's thread, before any transaction. Registering opens what a path or URL names with this
host's rights and credentials, so whoever calls this asks for an administrator's word first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from arkqueue.archive import Archive
from arkqueue.archive.origin import check_author
from arkqueue.archive.registered import location_of, open_registered
from arkqueue.config import Configuration
from arkqueue.errors import Conflict, Invalid, NotFound
from arkqueue.model import ArchiveId, ArchiveKind, ArchiveSettings, BranchId
from arkqueue.queue import Queue, archives
from arkqueue.queue.planning import Entry
from arkqueue.reading import EntryReader

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def add(
    queue: Queue,
    configuration: Configuration,
    *,
    name: str,
    url: str,
    kind: ArchiveKind | None = None,
    start: str | None = None,
    settings: ArchiveSettings = ArchiveSettings(),  # noqa: B008  frozen
) -> ArchiveId:
    """Watch a repository under a name, from its heads on (design 2).

    ``start``: the revision of the main branch after which the ledger begins instead. The other branches begin at their heads.
    """
    check_name(name)
    location = location_of(configuration, url, kind)
    if settings.author is not None:
        check_author(location.kind, settings.author)
    archive = open_registered(configuration, location.url, location.kind)
    identity = archive.identity()
    heads = archive.heads(settings.branches)
    if settings.branches and not heads:
        globs = ", ".join(settings.branches)
        raise NotFound(f"archive {name}", f"no branch of {location.shown} matches {globs}", "Correct the branches.")
    main = _main_branch(archive, heads, settings.branches)
    starts = [archives.Start(main, True, _baseline(archive, main, start))]
    starts += [archives.Start(b, False, _baseline(archive, b)) for b in sorted(heads) if b != main]
    added = archives.register(
        queue,
        name=name,
        kind=str(location.kind),
        url=location.url,
        repository=identity.repository,
        uuid=identity.uuid,
        folder=identity.folder,
        settings=settings,
        starts=starts,
    )
    archives.notify(queue, [added])
    return added


def change_settings(queue: Queue, archive: ArchiveId, settings: ArchiveSettings) -> None:
    """Look after an archive in another way from now on."""
    row = archives.one(queue, archive)
    if settings.author is not None and settings.author != row.settings.get("author"):
        check_author(ArchiveKind(row.kind), settings.author)
    archives.change_settings(queue, archive, settings)
    archives.notify(queue, [archive])


def rewind(
    queue: Queue, configuration: Configuration, archive: ArchiveId, to: str, by: str, *, branch: str | None = None
) -> None:
    """Take up an archive whose repository went back in time or is another one: the ledger starts anew at revision ``to``.

    ``branch``: another than the main one. What the ledger held so far stays readable under another branch name.
    """
    row = archives.one(queue, archive)
    known = [b for b in archives.branches(queue, archive) if not b.deleted]
    chosen = next((b for b in known if (b.main if branch is None else b.name == branch)), None)
    if chosen is None:
        names = ", ".join(b.name for b in known)
        raise NotFound(f"archive {row.name}", f"has no branch {branch!r}", f"It has: {names}." if names else "")
    opened = open_registered(configuration, row.url, ArchiveKind(row.kind))
    identity = opened.identity()
    if identity.folder != row.folder:
        raise Conflict(
            f"archive {row.name}",
            f"its URL is now the folder {identity.folder or '/'!r} of its repository, not {row.folder or '/'!r}",
            "Remove the archive and add it anew.",
        )
    start = archives.Start(chosen.name, chosen.main, _baseline(opened, chosen.name, to))
    archives.rewind(queue, archive, BranchId(chosen.id), start, identity.uuid, by)


def check_name(name: str) -> None:
    """Raise `Invalid` for what cannot be an archive's name."""
    if not _NAME.fullmatch(name):
        raise Invalid(
            f"archive {name!r}",
            "is no name for an archive",
            "Use letters, digits, dots, dashes and underscores, at most 100, the first a letter or a digit.",
        )


def _main_branch(archive: Archive, heads: dict[str, str], globs: Sequence[str]) -> str:
    """The repository's HEAD, unless it is not tracked: then the first branch that was asked for by its name, or any."""
    try:
        main = archive.main_branch()
    except NotFound:
        if not heads:
            raise
        main = ""
    if main in heads or not heads:
        return main
    return next((glob for glob in globs if glob in heads), min(heads))


def _baseline(archive: Archive, branch: str, at: str | None = None) -> Entry | None:
    """The first entry of a ledger, with its workflow files, whose schedules count already."""
    revision = archive.baseline(branch, at)
    return Entry(revision, EntryReader(archive).workflow(revision.id)) if revision else None
