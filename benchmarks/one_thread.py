"""The time of a row's steps if one thread takes them all in sequence, without wake-ups. No division
into threads and processes can be quicker.

Next to the server's figures, these times show the shares of the steps and of the handovers. Called
by rows 1 and 3.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.model import ArchiveId, ArchiveKind, End, Outcome
from arkqueue.queue import archives, claim, finish, ledger
from arkqueue.repository.opening import open_registered
from arkqueue.repository.reader.entries import EntryReader, last_known
from benchmarks.bench import Bench
from benchmarks.lines import CHAIN, Line, a_queue
from benchmarks.servers import REST, load, three_tasks
from tests.repositories import SubversionRepository, a_subversion_repository
from tests.system.end_to_end.installation import tasks

ME = "bench"


def links(session: Session, count: int) -> float:
    """Links per second of a chain of ``count`` revisions."""
    line = Line.register(session, "chain")
    line.append(session, CHAIN, count)
    began = time.perf_counter()
    assert _drain(session) == count
    return count / (time.perf_counter() - began)


@dataclass(frozen=True, slots=True)
class Way:
    """The path of a notice, for an archive of row 1: the notice is stored and read, the repository
    is read, the revision is planned and stored, and its first task is claimed.

    The path includes neither the HTTP request before nor the workspace and the program after.
    """

    session: Session
    archive: ArchiveId
    repository: SubversionRepository
    entries: EntryReader

    def go(self) -> float:
        """Milliseconds of the path, after a rest."""
        revision = self.repository.commit({"notes": f"{time.time_ns()}\n"})
        time.sleep(REST)
        began = time.perf_counter()
        archives.notify_all(self.session, [(self.archive, revision)])
        (asked,) = (row.asked for row in archives.to_read(self.session) if row.id == self.archive)
        archives.one(self.session, self.archive)
        (known,) = archives.branches(self.session, self.archive)
        archive, last = self.entries.archive, last_known(known)
        ((name, head),) = archive.heads([], "").items()
        archive.main_branch("")
        archive.check_known(last)
        news = archive.advance(name, last, head, limit=100).revisions
        branch = ledger.Branch(known.id, self.archive, name, known.main, known.head_id)
        assert ledger.append(self.session, branch, list(self.entries.entries(last.id, news)))
        (first,) = claim.claim(self.session, ME, ME, 1)
        took = time.perf_counter() - began
        archives.read_done(self.session, self.archive, asked, 60.0)
        finish.finish(self.session, ME, [Outcome(first.attempt, End.EXITED, 0)])
        _drain(self.session)
        return took * 1000


@contextmanager
def a_way(bench: Bench, revisions: int) -> Iterator[Way]:
    """A path on an archive of ``revisions`` revisions, in its own database."""
    folder = bench.a_folder("archive")
    repository = a_subversion_repository(folder)
    repository.commit({"notes": "note\n", **tasks(three_tasks(folder / "starts", "none"))})
    load(repository, revisions - 1)
    entries = EntryReader(open_registered(Configuration(home=folder), str(repository.path), ArchiveKind.SUBVERSION))
    archive = entries.archive
    ((branch, head),) = archive.heads([], None).items()
    revision = archive.baseline(branch, head)
    assert revision is not None
    with bench.database() as uri, a_queue(uri) as session:
        identity = archive.identity()
        start = archives.Start(branch, True, entries.entry(None, revision))
        id = archives.register(
            session, name="one-thread", kind="subversion", url=str(repository.path), repository=str(repository.path),
            uuid=identity.uuid, folder="", settings=ArchiveSettings(process=True), starts=[start],
        )  # fmt: skip
        yield Way(session, id, repository, entries)


def _drain(session: Session) -> int:
    """Claims and completes all tasks, one at a time. Returns their number."""
    count, request = 0, claim.Request(ME, 1, claim.Turns())
    found = claim.claim(session, ME, ME, 1)
    while found:
        count += len(found)
        ends = [Outcome(one.attempt, End.EXITED, 0) for one in found]
        found = finish.finish_and_claim(session, ME, ends, request).claims
    return count
