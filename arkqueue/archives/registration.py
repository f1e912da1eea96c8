"""Registers and rewinds archives: opens a repository, asks for its identity and its branches, and
starts the ledger there.

Called by the API for a person. A thread of its own reads the repository before any transaction, so
the person learns in time if a repository hangs. Registering opens a path or URL with this host's
rights and credentials, so the caller first checks that an administrator asks for it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, TypeVar

from arkqueue.archive_settings import ArchiveSettings, read_settings
from arkqueue.archives.patience import answer_within
from arkqueue.archives.settings import check_settings, check_whole
from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.errors import ArchiveMismatch, ArchiveUnreachable, Conflict, Invalid, NotFound
from arkqueue.model import GLOBAL, ArchiveId, ArchiveKind, BranchId, Revision
from arkqueue.names import RESERVED, name_of
from arkqueue.plan import Entry
from arkqueue.queue import archives
from arkqueue.repository import Archive, Identity, Location
from arkqueue.repository.opening import location_of, open_registered
from arkqueue.repository.reader.entries import EntryReader, last_known, named
from arkqueue.views.archives import RewoundView
from arkqueue.views.archives import archive as show_archive
from arkqueue.views.find import no_main_branch
from arkqueue.views.rows import view_of

T = TypeVar("T")

PATIENCE = 60.0
"""The seconds that a repository has to answer. The command line waits longer for the server."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def add(
    session: Session,
    configuration: Configuration,
    *,
    name: str,
    url: str,
    kind: ArchiveKind | None = None,
    start: str | None = None,
    settings: ArchiveSettings = ArchiveSettings(),  # noqa: B008  frozen
    by: str | None = None,
) -> ArchiveId:
    """Watch a repository under a name, from its present heads on (design 2).

    ``start``: the ledger of the main branch begins after this revision instead. The other branches
    begin at their heads.
    """
    check_name(name)
    if name in RESERVED:
        fault = f"the server has an address of its own at /{name}, so that no archive may be called that"
        raise Invalid(f"archive {name!r}", fault, "Choose another name.")
    if name == GLOBAL:
        fault = f"the locks of the whole installation are called {GLOBAL}/NAME, so that no archive may be called that"
        raise Invalid(f"archive {name!r}", fault, "Choose another name.")
    check_whole(url)
    location = location_of(configuration, url, kind)
    check_settings(session, configuration, name, location.kind, settings)

    def read() -> tuple[Identity, list[archives.Start]]:
        archive = open_registered(configuration, location.url, location.kind)
        identity = archive.identity()
        heads = archive.heads(settings.branches)
        _check_heads(archive, heads, name, location, settings.branches)
        main = _main_branch(archive, heads, settings.branches)
        entries = EntryReader(archive)
        baseline = _baseline(entries, main, start)
        # A person who names the first revision wants the history to run, so the runs are not held
        # like an import.
        is_history = start is not None and baseline is not None and baseline.revision.id != heads.get(main)
        starts = [archives.Start(main, True, baseline, heads.get(main) if is_history else None)]
        return identity, starts + _starts(entries, {b: heads[b] for b in sorted(heads) if b != main})

    identity, starts = _answer(location, read)
    added = archives.register(
        session,
        name=name,
        kind=str(location.kind),
        url=location.url,
        repository=identity.repository,
        uuid=identity.uuid,
        folder=identity.folder,
        settings=settings,
        starts=starts,
        by=by,
    )
    archives.notify(session, [added])
    return added


def change_settings(
    session: Session, configuration: Configuration, archive: ArchiveId, settings: ArchiveSettings, by: str
) -> None:
    """Change the settings of an archive. Branches that are tracked only from now on begin at their
    heads, as when an archive is added.
    """
    row = archives.one(session, archive)
    present = read_settings(row.settings, row.name)
    check_settings(session, configuration, row.name, ArchiveKind(row.kind), settings, present)
    starts = []
    if settings.branches != present.branches:
        known = {branch.name: branch for branch in archives.branches(session, archive)}
        main = next((name for name, branch in known.items() if branch.main), None)
        location = location_of(configuration, row.url, ArchiveKind(row.kind))

        def read() -> list[archives.Start]:
            opened = open_registered(configuration, row.url, ArchiveKind(row.kind), row.uuid)
            heads = opened.heads(settings.branches, main)
            _check_heads(opened, heads, row.name, location, settings.branches)
            return _starts(EntryReader(opened), {b: heads[b] for b in sorted(heads) if b not in known})

        starts = _answer(location, read)
    archives.change_settings(session, archive, settings, by, starts)
    archives.notify(session, [archive])


def rewind(
    session: Session,
    configuration: Configuration,
    archive: ArchiveId,
    to: str,
    by: str,
    *,
    branch: str | None = None,
    dry_run: bool = False,
) -> RewoundView:
    """Continue an archive whose repository went back in time or is another one: the ledger starts
    anew at revision ``to``.

    ``to``: a number of the ledger; a number that the ledger does not have is read by
    `Archive.baseline`. ``branch``: another branch than the main one. The earlier ledger stays
    readable under another branch name. The answer names the commit of a number, if that is not
    obvious. ``dry_run``: the rewind is undone at the end.
    """
    if not to.strip():
        raise Invalid("the revision", "is empty", "Write a number of the ledger, or the id of a commit.")
    row = archives.one(session, archive)
    known = [b for b in archives.branches(session, archive) if not b.deleted]
    chosen = next((b for b in known if (b.main if branch is None else b.name == branch)), None)
    if chosen is None:
        names = [b.name for b in known]
        if branch is None:
            raise no_main_branch(row.name, names)
        remedy = f"It has: {', '.join(names)}." if names else ""
        raise NotFound(f"archive {row.name}", f"has no branch {branch!r}", remedy)
    is_number = row.kind == ArchiveKind.GIT and re.fullmatch("[0-9]{1,18}", to)
    listed = session.rows("revisions_with", branches=[chosen.id], number=int(to), prefix=None) if is_number else []

    others = [b for b in known if b.id != chosen.id and b.head_id is not None]

    def read() -> tuple[Identity, Entry | None, str | None]:
        opened = open_registered(configuration, row.url, ArchiveKind(row.kind))
        identity = opened.identity()
        if identity.folder != row.folder:
            raise Conflict(
                f"archive {row.name}",
                f"its URL is now the folder {identity.folder or '/'!r} of its repository, not {row.folder or '/'!r}",
                "Remove the archive, and add it again.",
            )
        try:
            baseline = _baseline(EntryReader(opened), chosen.name, listed[0].name if listed else to)
        except NotFound as error:
            if not listed:
                raise
            fault = f"is commit {listed[0].name}, which is not on the branch any more"
            raise NotFound(f"{row.name}@{to}", fault, "Give a later number, or a commit of the branch.") from error
        main = next((b.name for b in known if b.main), None)
        return identity, baseline, _still_stopped(opened, row, others, main)

    identity, baseline, still = _answer(location_of(configuration, row.url, ArchiveKind(row.kind)), read)
    start = archives.Start(chosen.name, chosen.main, baseline)
    # The rehearsal locks the archive, so it begins only when the repository has been read.
    with session.rehearsal(archive) if dry_run else nullcontext(session) as acting:
        done = archives.rewind(acting, archive, BranchId(chosen.id), start, identity.uuid, by, still)
        view = show_archive(acting, archive)
    note = _commit_of(to, baseline.revision, is_listed=bool(listed)) if is_number and baseline else ""
    return view_of(view, RewoundView, note=note, **asdict(done))


def _commit_of(to: str, revision: Revision, *, is_listed: bool) -> str:
    """The commit that a rewind takes for a number, if that is not obvious."""
    if not is_listed:
        return f"its ledger had no revision {to}; counted along first parents, that is commit {revision.id}"
    if revision.number == int(to):
        return ""
    return f"{to} was commit {revision.id}; counted along first parents, it is {revision.number} from now on"


def _still_stopped(opened: Archive, row: Any, others: Sequence[Any], main: str | None) -> str | None:
    """The reason why an archive stays stopped after a rewind of one branch: the repository lacks
    the last known revision of one of the ``others``. None: it does not stay stopped.
    """
    heads = opened.heads(read_settings(row.settings, row.name).branches, main) if others else {}
    for branch in others:
        if branch.main or branch.name in heads:
            try:
                opened.check_known(last_known(branch))
            except ArchiveMismatch as error:
                return f"branch {branch.name}: {named(error, row.name)} --branch {shlex.quote(branch.name)}"
    return None


def accept(session: Session, configuration: Configuration, archive: ArchiveId, revision: int, by: str) -> str:
    """Accept that an administrator has corrected the author or the date of a Subversion revision.
    The answer says what changes.

    The message of the revision, and the paths that it changes and how, must be the known ones. For
    a revision that was planned before the ledger stored digests of changed paths, only the message
    is compared. The contents of its files are never compared, and the answer says so. So a second
    proof is needed that the repository is not another one, for example a restored backup with
    another commit of the same message. The proof is either the known date of the revision, or a
    later revision of the ledger that is still in the repository.

    ``revision``: the id of the ledger's entry. A stopped archive continues if its repository is the
    registered one by now.
    """
    row = archives.one(session, archive)
    (known,) = session.rows("revision_at", revision=revision)
    here = str(name_of(row.name, known.number, branch=known.branch, main=known.main))
    rewind = f"If it is meant to be as it is now: arkqueue archive rewind {row.name} REV"
    if row.kind != ArchiveKind.SUBVERSION:
        fault = "is a commit of Git, whose id holds its author and its date: what has others is another commit"
        raise Conflict(here, fault, rewind)
    if known.gone:
        raise Conflict(here, "is no longer on its branch, or its branch or archive is gone")

    branches = [b for b in archives.branches(session, archive) if b.head_id is not None and not b.deleted]
    later = [last_known(branch) for branch in branches if branch.number > known.number]

    def read() -> tuple[Revision | None, bool]:
        opened = open_registered(configuration, row.url, ArchiveKind(row.kind), row.uuid)
        return opened.baseline("", known.name), any(_holds(opened, one) for one in later)

    try:
        now, is_proved = _answer(location_of(configuration, row.url, ArchiveKind(row.kind)), read)
    except ArchiveMismatch as error:
        raise Conflict(here, f"cannot be accepted: {named(error, row.name)}") from error
    if now is None or now.id != known.name:
        raise Conflict(here, "does not touch the archive's folder in the repository as it is now", rewind)
    if (now.author, now.date) == (known.author, known.date):
        raise Conflict(here, "has the author and the date that are known: there is nothing to accept")
    if now.message != known.message:
        fault = "has another message, too: it is another revision, and not one whose author or date was corrected"
        raise Conflict(here, fault, f"Bring the right one back, then: arkqueue sync {row.name}. {rewind}")
    if known.paths_digest and now.paths_digest and now.paths_digest != known.paths_digest:
        fault = "changes other paths: it is another revision, and not one whose author or date was corrected"
        raise Conflict(here, fault, f"Bring the right one back, then: arkqueue sync {row.name}. {rewind}")
    if now.date != known.date and not is_proved:
        fault = "has another date, and the ledger has no later revision to prove that this is the known repository: it may be another commit with the same message"
        back = f"svn propset --revprop -r {known.name} svn:date {known.date.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ} {shlex.quote(row.url)}"
        remedy = f"If you corrected the date, restore the known one ({back}), then: arkqueue sync {row.name}. {rewind}"
        raise Conflict(here, fault, remedy)
    note = f"{here} is {_made(now.author, now.date)} from now on, and no longer {_made(known.author, known.date)}"
    if known.paths_digest and now.paths_digest:
        note += ". Its message and the paths that it changes were compared; the contents of its files were not"
    else:
        note += ". Its message was compared. The paths that it changes were not, as the ledger does not have them; neither were the contents of its files"
    archives.accept(session, archive, revision, now.author, now.date, note, by)
    if row.stopped is not None:
        take_up(session, configuration, archive)
    return note


def _holds(opened: Archive, known: Revision) -> bool:
    """Whether a repository has a revision of the ledger, with the same author and date."""
    try:
        opened.check_known(known)
    except ArchiveMismatch:
        return False
    return True


def _made(author: str, date: datetime) -> str:
    return f"by {author or 'nobody'} at {date.astimezone(UTC):%F %T.%f} UTC"


def take_up(session: Session, configuration: Configuration, archive: ArchiveId) -> None:
    """Let a stopped archive continue, if its repository is proved to be the registered one, by its
    UUID and the last known revision of each branch.

    Otherwise the archive stays stopped, and the error says what its repository is now.
    """
    row = archives.one(session, archive)
    known = [b for b in archives.branches(session, archive) if b.head_id is not None and not b.deleted]

    def read() -> None:
        opened = open_registered(configuration, row.url, ArchiveKind(row.kind), row.uuid)
        heads = opened.heads(read_settings(row.settings, row.name).branches)
        opened.check_known(*(last_known(branch) for branch in known if branch.main or branch.name in heads))

    try:
        _answer(location_of(configuration, row.url, ArchiveKind(row.kind)), read)
    except ArchiveMismatch as error:
        archives.stop(session, archive, named(error, row.name))
    else:
        archives.go_on(session, archive, row.stopped)


def sync(session: Session, configuration: Configuration, archive: ArchiveId, by: str) -> None:
    """Request a scan of the repository now. A stopped archive continues if its repository is the
    registered one again.
    """
    if archives.one(session, archive).stopped is not None:
        take_up(session, configuration, archive)
    archives.sync(session, archive, by)


def check_name(name: str) -> None:
    """Raise `Invalid` for a text that cannot be the name of an archive."""
    if not _NAME.fullmatch(name):
        raise Invalid(
            f"archive {name!r}",
            "is not a valid name for an archive",
            "Use letters, digits, dots, dashes and underscores, at most 100, the first a letter or a digit.",
        )


def _answer(location: Location, read: Callable[[], T]) -> T:
    """The answer of a repository, if it comes in time."""
    goes_on = location.needs_mirror
    try:
        return answer_within(PATIENCE, read, f"read {location.shown}", is_ended=not goes_on)
    except TimeoutError:
        remedy = "Check its server and the network, and try again"
        remedy += "; this host's copy of it is being made meanwhile." if goes_on else "."
        raise ArchiveUnreachable(location.shown, f"has not answered for {PATIENCE:.0f} s", remedy) from None


def _check_heads(archive: Archive, heads: dict[str, str], name: str, location: Location, globs: Sequence[str]) -> None:
    """Raise `NotFound` if there are branches, but none would be tracked. An empty repository may be
    watched.
    """
    if heads:
        return
    there = ", ".join(sorted(archive.heads(["*"])))
    if globs:
        fault = f"no branch of {location.shown} matches {', '.join(globs)}"
        raise NotFound(f"archive {name}", fault, f"It has: {there}." if there else "It has no branch yet.")
    if there:
        fault = f"HEAD of {location.shown} names the branch {archive.main_branch()}, which is not there"
        remedy = f"Name a branch to track with --branch (there is: {there}), or correct HEAD (git symbolic-ref HEAD refs/heads/NAME)."
        raise NotFound(f"archive {name}", fault, remedy)


def _main_branch(archive: Archive, heads: dict[str, str], globs: Sequence[str]) -> str:
    """The branch of the repository's HEAD. If it is not tracked: the first branch that the person
    named, or any branch.
    """
    try:
        main = archive.main_branch()
    except NotFound:
        if not heads:
            raise
        main = ""
    if main in heads or not heads:
        return main
    return next((glob for glob in globs if glob in heads), min(heads))


def _starts(entries: EntryReader, heads: dict[str, str]) -> list[archives.Start]:
    """The starts of branches at their heads, none of them the main branch."""
    revisions = entries.archive.baselines(heads)
    return [archives.Start(name, False, _entry(entries, revisions.get(name))) for name in heads]


def _baseline(entries: EntryReader, branch: str, at: str | None = None) -> Entry | None:
    """The first entry of a branch's ledger."""
    return _entry(entries, entries.archive.baseline(branch, at))


def _entry(entries: EntryReader, revision: Revision | None) -> Entry | None:
    """A revision with its workflow files, because the schedules of a baseline already count."""
    return Entry(revision, entries.workflow(revision.id)) if revision else None
