"""Builders for tests: archives, revisions and runs in a real database.

archive = an_archive(session)
archive.commit({"index": "depends: [PREV]", "pdf": "depends: [index]\ncancels: [PREV]"})
archive.run("index@2")               # claim and complete
assert archive.states() == {...}
"""

from __future__ import annotations

import hashlib
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from arkqueue import workflow
from arkqueue.archive_settings import ArchiveSettings
from arkqueue.db.session import Session
from arkqueue.gateway.sql import SqlGateway
from arkqueue.logs import Logs
from arkqueue.model import (
    ArchiveId,
    Attachment,
    AttemptId,
    Claim,
    End,
    Fault,
    Outcome,
    PayloadKind,
    Receipt,
    Revision,
    SourceFile,
    Stream,
    TaskId,
    Workflow,
)
from arkqueue.plan import Entry
from arkqueue.queue import archives, attachments, claim, control, finish, ledger, retrying, submissions, triggering
from arkqueue.workflow import payload
from arkqueue.workflow.attachments import digest_of
from arkqueue.workflow.parsing import parse

PROCESS, HOST = "manager-1", "host-1"
NOTHING = Workflow()


def a_workflow(tasks: dict[str, str] | str) -> Workflow:
    """A parsed workflow, from YAML or from ``{name: fields}``. In the second form, a task without a
    command gets the command ``true``, unless its fields contain ``# gate``.
    """
    text = textwrap.dedent(tasks) if isinstance(tasks, str) else "\n".join(_task(*task) for task in tasks.items())
    parsed = parse([SourceFile("_workflows/test.yaml", text.encode())])
    assert not parsed.faults, [str(f) for f in parsed.faults]
    return parsed


def _task(name: str, fields: str) -> str:
    lines = [f"name: {name}", *fields.splitlines()]
    has_own = any(line.startswith(("command:", "script:")) for line in fields.splitlines()) or "# gate" in fields
    if name != "COMMIT" and not has_own:
        lines.append("command: 'true'")
    return "- " + "\n  ".join(lines)


def faulty() -> Workflow:
    return Workflow(faults=(Fault("_workflows/test.yaml", 1, 1, "a fault"),))


@dataclass
class AnArchive:
    """An archive whose commits the test appends itself. The archive has one branch by default."""

    session: Session
    id: int
    name: str
    branches: dict[str, ledger.Branch] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    revisions: dict[tuple[str, int], int] = field(default_factory=dict)
    running: dict[int, Claim] = field(default_factory=dict)

    def commit(
        self,
        tasks: Workflow | dict[str, str] | str = NOTHING,
        *,
        changed: Sequence[str] = (),
        branch: str = "",
        author: str = "ann",
        **options: Any,
    ) -> int:
        """Appends one revision. Returns its number."""
        number = self.numbers[branch] + 1
        parsed = tasks if isinstance(tasks, Workflow) else a_workflow(tasks)
        self.append(branch, [an_entry(number, parsed, changed, author=author, branch=branch)], **options)
        return number

    def append(self, branch: str, entries: Sequence[Entry], **options: Any) -> None:
        known = self.branches[branch]
        head = ledger.append(self.session, known, entries, **options)
        assert head is not None
        until = None if known.until in [entry.revision.id for entry in entries] else known.until
        self.branches[branch] = replace(known, head=head, until=until)
        for entry in entries:
            self.numbers[branch] = entry.revision.number
            (row,) = self.sql(
                "select id from revision where branch_id = %s and number = %s", known.id, entry.revision.number
            )
            self.revisions[branch, entry.revision.number] = row["id"]

    def trigger(self, number: int, *names: str, branch: str = "", **options: Any) -> int:
        return triggering.trigger(self.session, self.revisions[branch, number], names=names or None, **options)

    def submit(
        self,
        text: str = "[]",
        number: int | None = None,
        *,
        kind: PayloadKind = PayloadKind.JSON,
        sender_id: str | None = None,
        store: str | None = None,
        **options: Any,
    ) -> int:
        """Submits a payload at a revision (None: the head). Returns the id of the run. ``store``:
        the place of the attachment; None submits without an attachment.
        """
        at = self.revisions["", number or self.numbers[""]]
        (row,) = self.session.rows("revision_at", revision=at)
        definitions = map(workflow.from_json, row.tasks)
        keys = [one.foreach.key for one in definitions if one.foreach and one.foreach.is_of_submission]
        judged = payload.judge(text.encode(), kind, keys)
        assert not judged.faults, judged.faults
        handed = submissions.Payload(kind, len(text), hashlib.sha256(text.encode()).hexdigest())
        stored = submissions.store_payload(self.session, [text.encode()])
        if store is not None:
            options["upload"] = self.upload(sender_id or "attached", store)
        made = submissions.submit(
            self.session, ArchiveId(self.id), self.name, at, handed, stored, judged.lists,
            sender_id=sender_id, by="ann", head_of=None if number else self.branches[""].id, **options,
        )  # fmt: skip
        assert made is not None
        return made[0]

    def upload(self, sender_id: str, store: str) -> submissions.Upload:
        """An upload that the database regards as complete."""
        upload = self.begin_upload(sender_id, store)
        self.complete(upload)
        return upload

    def begin_upload(self, sender_id: str, store: str) -> submissions.Upload:
        """An upload whose attachment has not arrived yet."""
        file = Attachment("a.tif", 3, "0" * 64)
        begun = attachments.begin(
            self.session, ArchiveId(self.id), self.name, sender_id, [file], store, "ann", most=9, room=0
        )
        assert begun.id is not None
        return submissions.Upload(begun.id, store, digest_of([file]))

    def complete(self, upload: submissions.Upload) -> None:
        """Marks the attachment of an upload as arrived."""
        attachments.is_there(self.session, upload.id, 0)

    def task(self, key: str, *, branch: str = "") -> TaskId:
        """The id of ``name@number``, ``name/item@number`` or ``name@number.run``."""
        name, _, place = key.partition("@")
        number, _, run = place.partition(".")
        name, _, item = name.partition("/")  # the item of a list
        (row,) = self.sql(
            "select id from task where branch_id = %s and name = %s and item = %s and number = %s and run = %s",
            self.branches[branch].id, name, item, int(number), int(run or 1),
        )  # fmt: skip
        return TaskId(row["id"])

    def run_id(self, number: int, run: int = 1, *, branch: str = "") -> int:
        (row,) = self.sql(
            "select id from run where branch_id = %s and number = %s and run = %s",
            self.branches[branch].id,
            number,
            run,
        )
        return int(row["id"])

    def claim(self, key: str | None = None, *, slots: int = 100) -> Claim:
        """Claims all ready tasks. Returns the claim of ``key``."""
        for claimed in claim.claim(self.session, PROCESS, HOST, slots):
            self.running[claimed.task] = claimed
        return self.running[self.task(key)] if key else next(iter(self.running.values()))

    def claim_some(self, slots: int) -> list[Claim]:
        """Claims at most ``slots`` tasks, in the order of the queue."""
        return claim.claim(self.session, PROCESS, HOST, slots)

    def record(self, attempt: AttemptId, end: End, code: int | None, **more: Any) -> Receipt:
        """Reports the end of an attempt. If the builder has claimed it, the report names its archive,
        like those of task managers.
        """
        known = [one.archive.id for one in self.running.values() if one.attempt == attempt]
        more = {"archive": ArchiveId(known[0]), **more} if known else more
        return finish.finish(self.session, PROCESS, [Outcome(attempt, end, code, **more)])[attempt]

    def attempt(self, key: str) -> AttemptId:
        return self.claim(key).attempt

    def write(self, key: str, *written: bytes | tuple[Stream, bytes], head: int = 1 << 20, tail: int = 1 << 20) -> None:
        """Writes the log of the running attempt of a task. Claims the task first if it is ready.
        ``written``: bytes of its standard output, or of the given streams. ``head``, ``tail``: the
        most bytes that are kept of its beginning and of its end.
        """
        logs = Logs(a_gateway(self.session), head, tail)
        writer = logs.open(self.attempt(key))
        for one in written:
            writer.write(*(one if isinstance(one, tuple) else (Stream.STDOUT, one)))
        logs.flush([writer])

    def end(self, key: str, code: int | None = 0, end: End = End.EXITED, **more: Any) -> Receipt:
        """Ends the running attempt of a task. Claims the task first if it is ready."""
        attempt = self.attempt(key)
        del self.running[self.task(key)]
        return self.record(attempt, end, code, **more)

    def run(self, *keys: str) -> None:
        """Claims and completes tasks."""
        for key in keys:
            assert self.end(key) is Receipt.RECORDED

    def fail(self, *keys: str) -> None:
        for key in keys:
            self.end(key, 1)

    def state(self, key: str) -> str:
        (row,) = self.sql("select state from task where id = %s", self.task(key))
        return str(row["state"])

    def states(self, *, branch: str = "") -> dict[str, str]:
        """The states of the ordinary tasks, which exclude COMMIT, REPORT and the gates of PREV:*.
        The keys are ``name@number``, or ``name@number.run`` from the second run on.
        """
        rows = self.sql(
            "select name, number, run, state from task where branch_id = %s and kind = 'ordinary'"
            " and run_id <> all(array(select run_id from purging))"
            " order by number, run, position",
            self.branches[branch].id,
        )
        return {f"{r['name']}@{r['number']}" + (f".{r['run']}" if r["run"] > 1 else ""): r["state"] for r in rows}

    def cancel(self, key: str, **options: Any) -> None:
        control.cancel(self.session, self.task(key), "ann", **options)

    def retry(self, key: str, **options: Any) -> None:
        retrying.retry(self.session, self.task(key), "ann", **options)

    def skip(self, key: str, **options: Any) -> None:
        control.skip(self.session, self.task(key), "ann", **options)

    def restart(self, key: str) -> None:
        control.restart(self.session, self.task(key), "ann")

    def move_to(self, url: str) -> None:
        """Gives the archive the address of a real repository, which the test has made."""
        self.sql("update archive set url = %s where id = %s", url, self.id)

    def sql(self, text: str, *values: Any) -> list[dict[str, Any]]:
        with self.session.database.statement() as connection:
            cursor = connection.execute(text.encode(), values)
            return cursor.fetchall() if cursor.description else []


def no_lists(*_: object) -> str:
    """A reader of lists for `queue.backfill.plan` that fails for every repository."""
    return "file:///srv/papers: cannot be read. Check it"


def a_gateway(session: Session, process: str = PROCESS) -> SqlGateway:
    """The gateway of a task manager to the queue."""
    return SqlGateway(session, process, HOST)


def a_revision(number: int, *, author: str = "ann", branch: str = "") -> Revision:
    return Revision(f"{branch}{number}", number, author, datetime(2026, 1, 1, tzinfo=UTC), f"change {number}")


def an_entry(
    number: int, tasks: Workflow, changed: Sequence[str] = (), *, author: str = "ann", branch: str = ""
) -> Entry:
    return Entry(a_revision(number, author=author, branch=branch), tasks, tuple(changed))


def an_archive(
    session: Session,
    name: str = "papers",
    *,
    branches: Sequence[str] = ("",),
    baseline: int = 1,
    tasks: Workflow = NOTHING,
) -> AnArchive:
    """A registered archive whose ledger starts at ``baseline``. ``tasks``: the workflow at that
    revision.
    """
    starts = [
        archives.Start(branch, branch == branches[0], Entry(a_revision(baseline, branch=branch), tasks))
        for branch in branches
    ]
    archives.register(
        session, name=name, kind="subversion" if branches == ("",) else "git", url=f"/srv/{name}", repository=f"/srv/{name}", uuid="", folder="",
        settings=ArchiveSettings(process=True, branches=() if branches == ("",) else ("*",)), starts=starts,
    )  # fmt: skip
    return the_archive(session, name)


def a_list(session: Session) -> AnArchive:
    """An archive with papers@2: three steps over the items ``a`` and ``b/c``."""
    archive = an_archive(session)
    steps = {"fetch": "", "check": "depends: [fetch]", "store": "depends: [check]"}
    archive.commit({name: f"foreach: [a, b/c]\n{more}" for name, more in steps.items()})
    return archive


def the_archive(session: Session, name: str) -> AnArchive:
    """The builder of an archive that is already registered."""
    (id,) = (row.id for row in archives.watched(session) if row.name == name)
    archive = AnArchive(session, id, name)
    for branch in archives.branches(session, archive.id):
        known = ledger.Branch(branch.id, archive.id, branch.name, branch.main, branch.head_id, branch.import_until)
        archive.branches[branch.name] = known
    for row in archive.sql(
        "select b.name as branch, r.number, r.id from revision r join branch b on b.id = r.branch_id where b.archive_id = %s order by r.number",
        archive.id,
    ):
        archive.numbers[row["branch"]] = row["number"]
        archive.revisions[row["branch"], row["number"]] = row["id"]
    return archive
