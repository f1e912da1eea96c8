"""Archives: what Subversion and Git repositories say, in the words of the design. Knows no database.

The way of a look at a repository, as the queue manager takes it (design 2):

    archive = open_archive(location, mirror=…)      nothing is read yet
    archive.identity()                              at registration: which repository, which folder of it
    archive.baseline(branch, at)                    at registration and for `rewind`: where the ledger starts
    archive.baselines(heads)                        the same for many branches at their heads
    archive.check_known(*known)                     is it still the repository whose revisions the ledger holds?
    archive.heads(branches)                         the tracked branches and where they are now
    archive.advance(branch, known, head, …)         what the ledger lacks, oldest first, and what a force-push dropped
    archive.workflows_key(id), .read_workflows(id)  the workflow files as they are at that revision
    archive.changed_paths(previous, id)             the tree difference that `paths` is matched with
    archive.changes(base, id)                       the same difference with what happened to each file, for a task and for people

and as the task manager does: `survey` (what is to be known before), `export` (a plain tree), `update` (of one that was exported before) and `working_copy`
(a real one, for tasks that commit).
It makes these calls through `Recorded`, so that each proves first that the repository still holds the revision of the ledger.

An archive object holds one connection and belongs to one thread; any number of objects may work at once in any
number of threads. Every failure is an error of `arkqueue.errors`: `ArchiveUnreachable` (try again), `ArchiveMismatch`
(stop: the histories differ), `NotFound` (no such revision, branch, folder) or `WorkspaceError` (the files cannot be
written). A Protocol stands here because two real implementations do: `subversion` and `git`.
"""

from arkqueue.repository.credentials import Handover
from arkqueue.repository.following.allowance import Followed, Following, Login
from arkqueue.repository.location import Identity, Location, is_relative, locate, notice_key, notice_keys
from arkqueue.repository.protocol import (
    FOLDER_FOR_LIST,
    LINKED_LIST,
    LONG_LIST,
    NO_LIST,
    TOO_LONG,
    WORKFLOW_FILE_LIMIT,
    WORKFLOWS,
    Advance,
    Archive,
    Survey,
    fingerprint_of,
    is_workflow_file,
    linked,
    no_folder,
    open_archive,
    within_calendar,
)
from arkqueue.repository.recorded import Recorded

__all__ = [
    "FOLDER_FOR_LIST",
    "LINKED_LIST",
    "LONG_LIST",
    "NO_LIST",
    "TOO_LONG",
    "WORKFLOWS",
    "WORKFLOW_FILE_LIMIT",
    "Advance",
    "Archive",
    "Followed",
    "Following",
    "Handover",
    "Identity",
    "Location",
    "Login",
    "Recorded",
    "Survey",
    "fingerprint_of",
    "is_relative",
    "is_workflow_file",
    "linked",
    "locate",
    "no_folder",
    "notice_key",
    "notice_keys",
    "open_archive",
    "within_calendar",
]
