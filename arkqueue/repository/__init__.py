"""Reads Subversion and Git repositories, in the words of the design. Knows no database.

A scan of a repository, as the queue manager does it (design 2):

    archive = open_archive(location, mirror=…)      reads nothing yet
    archive.identity()                              at registration: the repository, and the archive's folder in it
    archive.baseline(branch, at)                    at registration and for `rewind`: where the ledger starts
    archive.baselines(heads)                        like `baseline`, for many branches at their heads
    archive.check_known(*known)                     is this still the repository whose revisions the ledger holds?
    archive.heads(branches)                         the tracked branches and their heads
    archive.forks(new, others)                      where new branches leave the others
    archive.advance(branch, known, head, …)         the revisions that the ledger lacks, oldest first, and those that a force-push dropped
    archive.workflows_key(id), .read_workflows(id)  the workflow files of a revision
    archive.changed_paths(previous, id)             the tree difference that `paths` is matched with
    archive.changes(base, id)                       this difference with the change of each file, for tasks and for people

A task manager calls `survey` (facts about a revision), `export` (a plain tree), `update` (turns an earlier
export into another revision, and returns its survey) and `working_copy` (for tasks that commit). It makes
these calls through `Recorded`, so each of them first proves that the repository still holds the revision of
the ledger.

An archive object holds one connection and belongs to one thread. Any number of objects may work at the same
time in any number of threads. Every failure is an error of `arkqueue.errors`: `ArchiveUnreachable` (try again),
`ArchiveMismatch` (stop: the histories differ), `NotFound` (no such revision, branch, folder) or `WorkspaceError`
(the files cannot be written). The Protocol exists because there are two implementations: `subversion` and `git`.
"""

from arkqueue.repository.credentials import Handover
from arkqueue.repository.following.allowance import Followed, Following, Login
from arkqueue.repository.location import Identity, Location, is_relative, locate, notice_key, notice_keys
from arkqueue.repository.protocol import (
    FOLDER_FOR_LIST,
    LINKED_LIST,
    LONG_LIST,
    NO_LIST,
    ONLY_KEY,
    TOO_LONG,
    WORKFLOW_FILE_LIMIT,
    WORKFLOWS,
    Advance,
    Archive,
    Fork,
    Known,
    LastKnown,
    NewBranch,
    Survey,
    SurveyOptions,
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
    "ONLY_KEY",
    "TOO_LONG",
    "WORKFLOWS",
    "WORKFLOW_FILE_LIMIT",
    "Advance",
    "Archive",
    "Followed",
    "Following",
    "Fork",
    "Handover",
    "Identity",
    "Known",
    "LastKnown",
    "Location",
    "Login",
    "NewBranch",
    "Recorded",
    "Survey",
    "SurveyOptions",
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
