"""The names of runs and tasks on the command line, in logs and in commits:
``ARCHIVE:BRANCH@REV.RUN/TASK/ITEM`` (design 8). Pure.

Names that this module writes are single words for a shell, whatever the names of branches and items
contain.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote

from arkqueue.errors import Invalid

_FORM = re.compile(
    r"(?P<archive>[^:@/]+)(?::(?P<branch>[^:@/]+))?@(?P<revision>\d{1,18}|g[0-9a-fA-F]{4,64}|fill:\d{1,9}|id:[^:@/]+)(?:\.(?P<run>\d{1,9}))?"
    r"(?:/(?P<task>[^/]+)(?:/(?P<item>[^/]+))?)?"
)
_BARE_SHA = re.compile(r"(?P<place>[^@/]+@)(?P<revision>(?=\d*[a-fA-F])[0-9a-fA-F]{4,64}([./].*)?)")
_SPECIAL = re.compile(r"[^\w.+=,~\ud800-\udfff-]")
"""Matches characters that are percent-encoded in a part of a name: those that divide names, and
those that a shell or a terminal would act on. People copy names in commands.
"""
_WITHOUT_REVISION = re.compile(r"(?P<place>[A-Za-z0-9][\w.-]*(:[^:@/\s]+)?)(?P<task>/[^@\s]+)")
_ARCHIVE = re.compile(r"(?P<archive>[^:@/]+)(?::(?P<branch>[^:@/]+))?")
_BARE_KEY = re.compile(r"(?P<task>[^@/]+@[^/]+/[^/]+)/(?P<item>[^/]+(?:/[^/]+)+)")
_BARE_BRANCH = re.compile(r"(?P<archive>[^:@/]+):(?P<branch>[^:@]+)@(?P<revision>.+)")

FILL = "fill:"
"""Stands in a name in place of a revision, before the number of a backfill."""
ID = "id:"
"""Stands in a name in place of a revision, before the sender's id of a submission."""
_BACKFILL = re.compile(rf"(?P<archive>[^:@/]+)@{FILL}(?P<number>\d{{1,9}})")

EVERY_TASK = "*"
"""Stands in place of a task's name for all tasks of an item, ``papers@12/*/KEY``. No task can have
this name.
"""
COMMIT_RUN = 1
"""The number of a revision's commit run (design 5.1), which a name without a run means."""


PURGED = "a task of a run that was purged"
"""Stands for the name of such a task, which is not known any more."""

RESERVED = frozenset({"api", "docs", "favicon.ico", "healthz", "metrics", "openapi.json", "robots.txt"})
"""Names that no new archive may have. The path of an archive's page is its name, and the server has
other pages at these paths (design 8). An archive of an earlier version may have one: `page_path`.
"""

_PLAIN = re.compile(r"[A-Za-z0-9_./:@~%-]*")


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a run (``task`` None) or a task. ``revision``: a number of the ledger, ``g`` and the
    beginning of a SHA, ``fill:`` and the number of a backfill, or ``id:`` and the sender's id of a
    submission. ``branch`` None: the main branch. ``run`` None: the commit run.
    """

    archive: str
    revision: str
    branch: str | None = None
    run: int | None = None
    task: str | None = None
    item: str = ""

    def __str__(self) -> str:
        branch = f":{_quoted(self.branch)}" if self.branch else ""
        run = f".{self.run}" if self.run is not None else ""
        task = task_in_run(self.task, self.item) if self.task is not None else ""
        revision = f"{ID}{_quoted(self.sender_id)}" if self.sender_id is not None else self.revision
        return f"{_quoted(self.archive)}{branch}@{revision}{run}{task}"

    @property
    def sender_id(self) -> str | None:
        """The sender's id of the submission; None: the name has a revision."""
        return self.revision.removeprefix(ID) if self.revision.startswith(ID) else None


@lru_cache(4096)  # each run of a list has the same tasks
def task_in_run(task: str, item: str = "") -> str:
    """The part of a task's name that follows the name of its run."""
    name = task if task == EVERY_TASK else _quoted(task)
    return f"/{name}/{_quoted(item)}" if item else f"/{name}"


def name_of(
    archive: str,
    number: int,
    run: int = 1,
    task: str | None = None,
    *,
    branch: str = "",
    main: bool = True,
    item: str = "",
) -> Name:
    """The shortest name of a run or a task: without the main branch, and without the commit run. It
    stays valid when the revision gets further runs.
    """
    return Name(
        archive, str(number), None if main or not branch else branch, None if run == COMMIT_RUN else run, task, item
    )


def backfill_name(archive: str, number: int) -> str:
    """The name of a backfill, which stands for all of its runs."""
    return f"{_quoted(archive)}@{FILL}{number}"


def backfill_command(fill: Any, first: int, last: int, *, force: bool = False) -> str:
    """The command that makes a backfill of the same tasks from one revision to another. ``fill``: a row
    with ``archive``, ``branch``, ``main``, ``tasks`` and ``without``.
    """
    branch = "" if fill.main else f" --branch {shlex.quote(fill.branch)}"
    without = "".join(f" --without {name}" for name in fill.without)
    forced = " --force" if force else ""
    return f"arkqueue trigger {fill.archive}{branch} --from {first} --to {last}{without}{forced} {' '.join(fill.tasks)}"


def end_upload_command(archive: str, sender_id: str) -> str:
    """The command that ends the upload of an id."""
    return f"arkqueue submit {archive} --id {shlex.quote(sender_id)} --end-upload"


def submission_name(archive: str, sender_id: str) -> str:
    """The name of the run of a submission, by its sender's id."""
    return str(Name(archive, f"{ID}{sender_id}"))


def as_backfill(text: str) -> tuple[str, int] | None:
    """The archive and number of a backfill; None: the text is not the name of a backfill."""
    found = _BACKFILL.fullmatch(text)
    return (unquote(found["archive"]), int(found["number"])) if found else None


def is_list(text: str) -> bool:
    """True if a text names all items of a list, ``RUN/TASK/*``. In the key of an item, ``*`` is
    percent-encoded.
    """
    in_run = text.rpartition("@")[2].count("/")  # RUN/* names no task
    return in_run > 1 and "@" in text and text.endswith(f"/{EVERY_TASK}") and f"/{EVERY_TASK}/" not in text


def list_name(run: str, task: str) -> str:
    """The name of all items of a list. ``run``: the name of the run. ``task``: the task with the list."""
    return f"{run}{task_in_run(task)}/{EVERY_TASK}"


def dependency_in_words(name: str, *, is_awaited: bool) -> str:
    """The dependency of a task that is not made yet: its name, or the meaning of a gate, whose name
    nobody has written. ``name``: the name of the dependency, alone or after the name of its run.
    ``is_awaited``: whether the task would wait for it.
    """
    place, slash, inside = name.rpartition("/")
    is_previous = inside.startswith("PREV:*")
    of, colon, rest = inside.removeprefix("PREV:").partition(":")
    if not colon and not is_previous:
        return name
    event = f"the {'end' if 'settled' in rest.partition('except:')[0] else 'completion'} of " if is_awaited else ""
    if not is_previous:
        return f"{event}all items of {place}{slash}{of}"
    return f"{event}the tasks of PREV:*{f', except {excepted}' if (excepted := excepted_by(inside)) else ''}"


def gate_in_words(name: str) -> str:
    """The name of a gate, for people: of a gate of ``PREV:*``, the words of the workflow file."""
    if not name.startswith("PREV:*"):
        return name
    words = ["settled"] if name.partition(":except:")[0].endswith(":settled") else []
    words += [f"except {excepted}"] if (excepted := excepted_by(name)) else []
    return f"PREV:* ({', '.join(words)})" if words else "PREV:*"


def excepted_by(gate: str) -> str:
    """The names of the tasks that a gate of ``PREV:*`` leaves out, for people; empty if it leaves out
    none.
    """
    # A long list of names ends with a digest of all of them.
    names, is_cut, _ = gate.partition(":except:")[2].partition("~")
    return names.replace(",", ", ") + ("…" if is_cut else "")


def run_name(row: Any) -> str:
    """The name of a run; the row has its archive, branch, main, number and run."""
    run = "" if row.run == COMMIT_RUN else f".{row.run}"
    return f"{branch_name(row.archive, None if row.main else row.branch or None)}@{row.number}{run}"


def item_name(row: Any, item: str) -> str:
    """The name of an item of a run, ``RUN/*/KEY``; the row is the run's, or one of its tasks'."""
    return run_name(row) + task_in_run(EVERY_TASK, item)


def undelete_command(row: Any) -> str:
    """The command that undeletes the run, or else the item, of a task."""
    here = run_name(row) if row.run_deleted_at is not None else item_name(row, row.item)
    return f"arkqueue undelete {shlex.quote(here)}"


def task_name(row: Any) -> str:
    """The name of a task; the row has also its name and item."""
    return run_name(row) + task_in_run(row.name, row.item)


def parse_name(text: str) -> Name:
    """Parse a name. Raises ``Invalid`` if it has another form."""
    found = _FORM.fullmatch(text)
    if not found:
        raise Invalid(repr(text), "is not the name of a run or a task", _remedy(text))
    part = {key: unquote(value) for key, value in found.groupdict().items() if value is not None}
    run = int(part["run"]) if "run" in part else None
    return Name(part["archive"], part["revision"], part.get("branch"), run, part.get("task"), part.get("item", ""))


def parse_branch(text: str) -> tuple[str, str | None]:
    """Parse ``ARCHIVE`` or ``ARCHIVE:BRANCH``. The branch None is the main one. Raises ``Invalid`` if
    the text has another form.
    """
    found = _ARCHIVE.fullmatch(text)
    if not found:
        raise Invalid(repr(text), "is not the name of an archive or a branch", "write ARCHIVE or ARCHIVE:BRANCH")
    return unquote(found["archive"]), None if found["branch"] is None else unquote(found["branch"])


@lru_cache(4096)  # the overview has hundreds of runs of twenty branches
def archive_in(name: str) -> str:
    """The archive in the name of anything that belongs to it."""
    return re.split("[@:/]", name, maxsplit=1)[0]


def branch_name(archive: str, branch: str | None) -> str:
    """The name of an archive (``branch`` None: its main branch), or of one of its branches."""
    return _quoted(archive) if branch is None else f"{_quoted(archive)}:{_quoted(branch)}"


def page_path(name: str) -> str:
    """The path of the page of an archive, a branch, a run or a task, without its first slash. It has no
    character that markup needs to escape.
    """
    if name in RESERVED:
        return f"-/archives/{name}"
    return name if _PLAIN.fullmatch(name) else quote(name, safe="/:@.~%")


def _remedy(text: str) -> str:
    if found := _BARE_SHA.fullmatch(text):
        return f"write g before a SHA: {found['place']}g{found['revision']}"
    if (found := _BARE_BRANCH.fullmatch(text)) and "/" in found["branch"]:
        return f"write %2F for a slash in a branch: {found['archive']}:{_quoted(found['branch'])}@{found['revision']}"
    if found := _BARE_KEY.fullmatch(text):
        return f"write %2F for a slash in the key of an item: {found['task']}/{_quoted(found['item'])}"
    if found := _WITHOUT_REVISION.fullmatch(text):
        return f"write which revision: {found['place']}@REVISION{found['task']}"
    return "write ARCHIVE@REVISION for a run and ARCHIVE@REVISION/TASK for a task, for example papers@12/index"


def _quoted(text: str) -> str:
    return _SPECIAL.sub(lambda found: quote(found[0], safe=""), text)


def without_password(url: str) -> str:
    """The address of a repository without the password, for people."""
    return re.sub(r"(?<=://)([^/@:]*):[^/@]*@", r"\1@", url)
