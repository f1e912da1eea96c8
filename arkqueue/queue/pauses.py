"""Pauses: no task of an archive, of the installation, or of a host's task managers starts until a
person ends the pause (design 5.23).

A paused archive takes no turns at claims, like a stopped one (``withheld``), and no ``cancels`` of
its tasks fires: a task that would fire one waits. All else goes on: planning, running tasks,
reports. A pause of the installation is copied into the row of each archive, so that a claim needs
no further query. A drained host's claims return nothing; archives keep their turns.
"""

from __future__ import annotations

from typing import Any

from arkqueue.db.session import Session
from arkqueue.errors import Busy, Conflict
from arkqueue.model import INSTALLATION, ArchiveId
from arkqueue.queue.archives import offer_again
from arkqueue.queue.changes import change, change_in_turn
from arkqueue.queue.graph import Graph

MOST_ARCHIVES = 100
"""The most archives that one transaction pauses or resumes."""
PATIENCE = 10.0
"""Seconds to wait for busy archives among them."""


def pause(session: Session, archive: ArchiveId, reason: str, by: str) -> None:
    """Let no task of an archive start until ``resume``. If it is paused already, only a pause with a
    reason replaces the person, the time and the reason. Raises ``Conflict`` if the archive was
    removed.
    """

    def work(graph: Graph) -> None:
        _refuse_removed(graph, archive)
        graph.do("pause_archive", archive=archive, by=by, reason=reason)
        graph.do("withhold", archive=archive)
        graph.judges_all = True
        graph.do("remember", by=by, verb="pause", archive=archive, run=None, task=None, note=reason)

    change(session, [archive], work)


def resume(session: Session, archive: ArchiveId, name: str, by: str, reason: str = "") -> None:
    """End the pause of an archive. Raises ``Conflict`` if only the installation is paused: that
    pause stays, or if the archive was removed.
    """

    def work(graph: Graph) -> None:
        before = _refuse_removed(graph, archive)
        found = graph.rows("resume_archive", archive=archive)
        if not found:
            raise Conflict(f"archive {name}", "is not paused")
        if not found[0].is_paused:
            _go_on(graph, archive)
        elif before.paused_at is None:
            raise Conflict(f"archive {name}", "is paused with the whole installation", "arkqueue resume --all")
        graph.do("remember", by=by, verb="resume", archive=archive, run=None, task=None, note=reason)

    change(session, [archive], work)


def pause_all(session: Session, reason: str, by: str) -> None:
    """Let no task of any archive start until ``resume_all``. Archives that are added meanwhile are
    paused, too.
    """
    session.retrying(lambda connection: _note_all(Graph(connection), "pause", by, reason))
    session.changed([INSTALLATION])
    _refuse_busy(session, follow_all(session), "pause")


def resume_all(session: Session, by: str, reason: str = "") -> None:
    """End the pause of the installation. Archives with a pause of their own stay paused."""
    session.retrying(lambda connection: _note_all(Graph(connection), "resume", by, reason))
    session.changed([INSTALLATION])
    _refuse_busy(session, follow_all(session), "resume")


def follow_all(session: Session) -> list[int]:
    """Copy the installation's pause, or its end, to each archive. Returns the archives that were
    busy. Queue managers call this repeatedly, because ``pause_all`` and ``resume_all`` may be killed
    halfway.
    """

    def work(graph: Graph) -> None:
        for row in graph.rows("follow_all", archives=graph.archives):
            if row.is_paused:
                graph.do("withhold", archive=row.id)
                graph.judges_all = True
            else:
                _go_on(graph, row.id)

    archives = [row.id for row in session.rows("with_all")]
    busy: list[int] = []
    for first in range(0, len(archives), MOST_ARCHIVES):
        busy += change_in_turn(session, work, archives=archives[first : first + MOST_ARCHIVES], patience=PATIENCE)[1]
    return busy


def _note(graph: Graph, host: str, reason: str) -> str:
    """A host in the audit log, with a reason if there is one. The host has its name and the beginning of
    its id, because two hosts may have one name.
    """
    names = [row.hostname for row in graph.rows("name_of_host", host=host)]
    called = f"{names[0]} ({host[:8]})" if names else host
    return f"{called}: {reason}" if reason else called


def drain(session: Session, host: str, reason: str, by: str) -> None:
    """Let the task managers of a host claim nothing until ``resume_worker``, later started ones included.
    Their running tasks go on.
    """

    def work(graph: Graph) -> None:
        graph.do("drain", host=host, by=by, reason=reason)
        note = _note(graph, host, reason)
        graph.do("remember", by=by, verb="drain", archive=None, run=None, task=None, note=note)

    session.retrying(lambda connection: work(Graph(connection)))
    session.changed([INSTALLATION])


def resume_worker(session: Session, host: str, name: str, by: str, reason: str = "") -> None:
    """Let the task managers of a host claim again. ``name``: their name for people."""

    def work(graph: Graph) -> None:
        if not graph.rows("end_drain", host=host):
            raise Conflict(f"task manager {name}", "is not drained")
        note = _note(graph, host, reason)
        graph.do("remember", by=by, verb="resume", archive=None, run=None, task=None, note=note)

    session.retrying(lambda connection: work(Graph(connection)))
    session.wake("ready")
    session.changed([INSTALLATION])


def _refuse_removed(graph: Graph, archive: int) -> Any:
    """The row of an archive. Raises ``Conflict`` if it was removed: nothing of it starts anyway."""
    (row,) = graph.rows("archive", archive=archive)
    if row.removed_at is not None:
        fault = "was removed: none of its tasks starts"
        raise Conflict(f"archive {row.name}", fault, "To watch it again, add it again.")
    return row


def _note_all(graph: Graph, verb: str, by: str, reason: str) -> None:
    graph.do("pause_all", by=by, reason=reason) if verb == "pause" else graph.do("resume_all")
    graph.do("remember", by=by, verb=verb, archive=None, run=None, task=None, note=f"--all {reason}".rstrip())


def _refuse_busy(session: Session, busy: list[int], verb: str) -> None:
    if busy:
        names = ", ".join(row.name for row in session.rows("archives_watched") if row.id in set(busy))
        fault = f"could not be {verb}d with the others, as another transaction has locked them"
        raise Busy(f"archives {names}", fault, f"Try again: arkqueue {verb} --all")


def _go_on(graph: Graph, archive: int) -> None:
    """Let an archive's ready tasks be claimed after a pause, and let the waiting ``cancels`` fire."""
    offer_again(graph, archive)
    graph.follow(entering=graph.ids("parked", archive=archive))
