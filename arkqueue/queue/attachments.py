"""Attachments of submissions: which files an upload is to have, which have arrived, and when they
are removed (design 5.31; decision 25). `workspace.attachments` handles the files themselves.

    begin       declares the files of an id; for a known id it continues the upload
    goes_on     called before each piece, so that the upload does not count as abandoned
    is_there    all of a file has arrived, and its digest is right
    end         ends an upload that nobody wants any more
    take        called by `submissions.submit`, in the transaction that makes the run
    unneeded    called by the task manager that has the folders

No transaction is open while a file arrives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC

from arkqueue.db.session import Session
from arkqueue.errors import Conflict, InvalidPayload, NotFound
from arkqueue.model import MOST_ATTACHMENTS, ArchiveId, Attachment, RunId, Unneeded
from arkqueue.names import end_upload_command, submission_name
from arkqueue.queue.changes import change, change_in_turn
from arkqueue.queue.graph import Graph
from arkqueue.workflow.attachments import digest_of, misnamed

ABANDONED = 24 * 3600.0
"""Seconds after which an upload that nobody continued is forgotten."""
PATIENCE = 0.5
"""Seconds to wait for busy archives. Their folders can be removed later."""


@dataclass(frozen=True, slots=True)
class Begun:
    """An upload, by its id. ``folder``: the number of its folder. ``is_new``: this call began it.
    ``run``: the run that was already made from these files; the other fields are then None.
    """

    id: int | None
    folder: int | None
    is_new: bool
    run: RunId | None = None


def begin(
    session: Session, archive: ArchiveId, name: str, sender_id: str, files: Sequence[Attachment], store: str, by: str,
    *, most: int, room: int,
) -> Begun:  # fmt: skip
    """Begin the upload of some files, or find the upload that the id already has.

    ``name``: the archive's name. ``store``: the store that gets the files. ``most``: the most bytes
    of one upload. ``room``: the most bytes of all attachments and scratch folders in the store; 0:
    no limit. Raises ``InvalidPayload`` with all faults of the declared files. Raises ``Conflict``
    if the id has other files, or if there is no room.
    """
    here, size, digest = submission_name(name, sender_id), sum(file.size for file in files), digest_of(files)
    if faults := _faults(files, size, most):
        raise InvalidPayload(f"the upload of {here}", faults)

    def work(graph: Graph) -> Begun:
        for row in graph.rows("submission_named", archive=archive, sender=sender_id):
            if row.attachments != digest:
                what = "without attachments" if row.attachments is None else "with other attachments"
                raise Conflict(
                    here, f"was submitted{_on(row.made_at)} {what}", "Give a new submission an id of its own."
                )
            return Begun(None, None, is_new=False, run=RunId(row.run_id))
        graph.do("forget_uploads", age=ABANDONED)
        for row in graph.rows("upload_named", archive=archive, sender=sender_id):
            if row.digest != digest:
                remedy = f"Give it an id of its own, or end the other one: {end_upload_command(name, sender_id)}"
                raise Conflict(here, f"is being uploaded with other attachments, since{_on(row.made_at)[3:]}", remedy)
            if row.store != store:
                raise Conflict(here, "was begun at another server, which has its files", "Continue it there.")
            graph.do("continue_upload", id=row.id)
            return Begun(row.id, row.folder, is_new=False)
        if room:
            graph.do("take_turn_of_store", store=store)
        taken = graph.rows("room_of_store", store=store)[0].bytes
        if room and taken + size > room:
            fault = f"need {size:,} bytes, but the store's attachments and scratch folders take {taken:,} of the {room:,} of scratch_limit"
            raise Conflict(f"the attachments of {here}", fault, "Purge runs that have some (arkqueue doctor), or raise scratch_limit.")  # fmt: skip
        (new,) = graph.rows(
            "begin_upload", archive=archive, sender=sender_id, store=store, files=len(files), size=size, digest=digest, by=by,
        )  # fmt: skip
        names, sizes, digests = ([getattr(file, part) for file in files] for part in ("name", "size", "digest"))
        graph.do("add_attachments", upload=new.id, names=names, sizes=sizes, digests=digests)
        return Begun(new.id, new.folder, is_new=True)

    return change(session, [archive], work)


def has_managers(session: Session, store: str) -> bool:
    """True if a task manager with this store is known. A task manager is forgotten after a day of
    silence.
    """
    return bool(session.rows("managers_of_store", store=store)[0].are_there)


def goes_on(session: Session, upload: int) -> bool:
    """Note that an upload continues. Returns False if its run was made, or the upload is gone."""
    return bool(session.rows("continue_upload", id=upload))


def is_there(session: Session, upload: int, position: int) -> None:
    """Note that a file has arrived whole, with the right digest."""
    session.do("attachment_there", upload=upload, position=position)


def give_up(session: Session, upload: int) -> bool:
    """Forget an upload; its folder is removed soon after. Returns False if its run was made, or the
    upload is gone.
    """
    return bool(session.rows("give_up_upload", id=upload))


def end(session: Session, archive: ArchiveId, name: str, sender_id: str) -> None:
    """Give up the upload of an id. Raises Conflict if its run was made, and NotFound if the id has no
    upload. ``name``: the archive's name.
    """
    here = submission_name(name, sender_id)
    if not any(give_up(session, row.id) for row in session.rows("upload_named", archive=archive, sender=sender_id)):
        if session.rows("submission_named", archive=archive, sender=sender_id):
            raise Conflict(here, "was submitted, so its run has the attachments", "Delete or purge the run.")
        raise NotFound(here, "has no upload: none was begun, or nobody continued it for a day")


def take(graph: Graph, upload: int, run: int) -> None:
    """Give an upload to the run that is being made. Raises Conflict if the upload is gone, or a
    file is missing.
    """
    if not graph.rows("take_upload", upload=upload, run=run):
        raise Conflict("the attachments", "are not complete any more", "Submit them again.")


def unneeded(session: Session, folders: Sequence[int]) -> Unneeded:
    """The folders, of those given by number, that can be removed: nobody continued the upload, its
    run was deleted or purged, or the database does not know the folder.

    Folders of deleted runs are first marked as removed, with their archives locked: a run that is
    undeleted afterwards finds them gone. Folders of busy archives are left to the next call.
    """
    busy = list[int]()
    session.do("forget_uploads", age=ABANDONED)
    gone = set(folders) - {row.folder for row in session.rows("known_attachments", folders=list(folders))}
    if over := session.rows("attachments_over", folders=list(folders)):

        def work(graph: Graph) -> list[int]:
            return graph.ids("end_attachments", folders=[row.folder for row in over], archives=graph.archives)

        ended, busy = change_in_turn(session, work, archives={row.archive_id for row in over}, patience=PATIENCE)
        gone.update(*ended)
    return Unneeded(gone, bool(busy))


def _faults(files: Sequence[Attachment], size: int, most: int) -> list[str]:
    if not files:
        return ["there are none; name a file, or submit the payload without attachments"]
    if len(files) > MOST_ATTACHMENTS:
        return [f"there are {len(files):,}; a submission has at most {MOST_ATTACHMENTS:,}: pack them into an archive"]
    faults = misnamed(files)
    if size > most:
        faults.append(f"they have {size:,} bytes together, more than the {most:,} of attachments_limit")
    return faults


def _on(at: object) -> str:
    return f" on {at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"  # type: ignore[attr-defined]
