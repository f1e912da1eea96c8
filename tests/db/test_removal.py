"""Permanent removal of logs and outputs (design 5.27): from the database, and from everything that
reads them.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from arkqueue import logs
from arkqueue.archive_settings import ArchiveSettings
from arkqueue.db.embedded.programs import Programs
from arkqueue.db.session import Session
from arkqueue.errors import Conflict, Invalid
from arkqueue.logs import Logs
from arkqueue.logs.write import CHUNK
from arkqueue.model import ArchiveId, AttemptId, End, Outcome, RunId, Stream, TaskId
from arkqueue.queue import archives, claim, finish, notifications, purge, removal
from arkqueue.views import runs
from arkqueue.views.attempts import attempts
from arkqueue.views.doctor import examine
from tests.builders import HOST, PROCESS, AnArchive, a_gateway
from tests.waiting import eventually

SECRET = "hunter2-is-the-password"


def leak(archive: AnArchive, name: str = "a@2", size: int = 0) -> AttemptId:
    """An attempt that fails with the secret in its log, its outputs and its message."""
    attempt = AttemptId(archive.attempt(name))
    write(archive, attempt, f"password: {SECRET}\n".encode() + bytes(size))
    outcome = Outcome(attempt, End.EXITED, 1, message=f"said {SECRET}", outputs={"password": SECRET})
    finish.finish(archive.session, PROCESS, [outcome])
    return attempt


def write(archive: AnArchive, attempt: AttemptId, data: bytes) -> None:
    writer = Logs(a_gateway(archive.session)).open(attempt)
    for at in range(0, len(data), CHUNK):
        writer.write(Stream.STDOUT, data[at : at + CHUNK])
    # What the flusher does in a turn, done at once.
    writer._logs.flush([writer])


def dump(session: Session) -> str:
    """All that a real pg_dump says of the database."""
    with session.database.connect() as connection:
        dsn, password = connection.info.dsn, connection.info.password
    folder = Programs(None).folder(Path("/nowhere"))
    environment = {"PGPASSWORD": password}
    done = subprocess.run([folder / "pg_dump", "--dbname", dsn], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def holds_secret(text: str) -> bool:
    return SECRET in text or SECRET.encode().hex() in text


def samples(session: Session) -> str:
    """What PostgreSQL keeps of the tables' values for its plans."""
    with session.database.connect() as connection:
        rows = connection.execute(
            "select concat(most_common_vals, histogram_bounds) as v from pg_stats where tablename in ('attempt', 'log_chunk')"
        )
        return "\n".join(row["v"] for row in rows)


def test_a_leaked_secret_is_gone_from_all_that_reads_it_and_from_a_dump(session: Session, archive: AnArchive) -> None:
    archive.commit({"a": "", "b": "depends: [{task: a, when: settled}]"})
    leak(archive)
    archive.retry("a@2")
    attempt = leak(archive)
    task = TaskId(archive.task("a@2"))
    with session.database.connect() as connection:
        connection.execute("analyze attempt, log_chunk")
    assert holds_secret(dump(session))
    assert "host-1" in samples(session)
    assert not holds_secret(samples(session))

    done = removal.remove(session, task, "ann", "it printed a password", log=True, outputs=True)

    assert (done.full_name, done.logs, done.outputs, done.live) == ("papers@2/a", 2, 2, 0)
    assert any("write-ahead log" in holder for holder in done.holders)
    assert not holds_secret(dump(session))
    page = logs.read(session, attempt)
    (notice,) = page.chunks
    assert (notice.stream, page.ended) == (Stream.NOTE, True)
    text = notice.data.decode()
    assert text.startswith("The log was removed on ")
    assert text.endswith(" UTC by ann, because it printed a password\n")
    assert logs.read(session, attempt, notice.end).chunks == ()
    assert logs.read(session, attempt, 7).chunks[0].data == notice.data, (
        "whoever reads on from within is told all of it"
    )
    _, shown = attempts(session, task)
    assert (shown.outputs, shown.message) == (None, "")
    assert shown.log_removed == text.rstrip("\n")
    assert shown.outputs_removed is not None
    assert "because it printed a password" in shown.outputs_removed


@pytest.mark.usefixtures("room_to_overflow")
def test_a_removal_vacuums_what_it_deleted(session: Session, archive: AnArchive) -> None:
    """A dump never shows deleted rows: only the vacuum takes them out of the files of the tables."""

    def vacuums() -> dict[str, int]:
        found = archive.sql("select relname, vacuum_count as n from pg_stat_user_tables where relname = any(%s)", list(removal.TABLES))  # fmt: skip
        return {row["relname"]: row["n"] for row in found}

    def pages() -> int:
        (row,) = archive.sql("select pg_relation_size('log_chunk') as size")
        return int(row["size"])

    archive.commit({"a": ""})
    leak(archive)
    before = vacuums()
    assert before.keys() == {*removal.TABLES}
    assert pages() > 0
    removal.remove(session, TaskId(archive.task("a@2")), "ann", "it printed a password", log=True)
    assert pages() == 0, "the dead rows are still in the file of the table"
    # PostgreSQL counts a vacuum a moment after its end.
    eventually(lambda: all(n > before[table] for table, n in vacuums().items()))


def test_a_secret_is_gone_from_the_overflow_file_when_the_log_of_an_ended_attempt_can_be_removed(
    session: Session, archive: AnArchive, tmp_path: Path
) -> None:
    archive.commit({"a": ""})
    attempt = AttemptId(archive.attempt("a@2"))
    writer = Logs(a_gateway(session), folder=tmp_path).open(attempt)
    for _ in range(50):
        writer.write(Stream.STDOUT, SECRET.encode().ljust(CHUNK))
    assert SECRET.encode() in overflown(tmp_path)

    writer._logs.flush([writer])  # the last step before the end of an attempt
    finish.finish(session, PROCESS, [Outcome(attempt, End.EXITED, 1)])
    removal.remove(session, TaskId(archive.task("a@2")), "ann", "it printed a password", log=True)

    assert not overflown(tmp_path)
    assert not holds_secret(dump(session))


def overflown(folder: Path) -> bytes:
    """The content of the open files without a name in a folder."""
    content = b""
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            if os.readlink(descriptor).startswith(f"{folder}/"):
                content += os.pread(int(descriptor.name), 1 << 30, 0)
    return content


def test_the_log_of_a_running_attempt_is_left_alone_until_it_has_ended(session: Session, archive: AnArchive) -> None:
    archive.commit({"a": ""})
    task = TaskId(archive.task("a@2"))
    with pytest.raises(Conflict, match="was never started"):
        removal.remove(session, task, "ann", "why", log=True)
    attempt = AttemptId(archive.attempt("a@2"))
    write(archive, attempt, SECRET.encode())
    with pytest.raises(
        Conflict, match=r"task manager is silent\. A queue manager .* ends the attempt after its lease, at 2"
    ):
        removal.remove(session, task, "ann", "why", log=True)
    claim.register(session, PROCESS, HOST, "here", 4)
    with pytest.raises(Conflict, match=r"no attempt that has ended\. arkqueue cancel papers@2/a"):
        removal.remove(session, task, "ann", "why", log=True)
    archive.record(attempt, End.EXITED, 1)
    archive.retry("a@2")
    second = AttemptId(archive.attempt("a@2"))
    write(archive, second, b"under way")

    done = removal.remove(session, task, "ann", "why", log=True)

    assert (done.logs, done.live) == (1, 1)
    assert [chunk.stream for chunk in logs.read(session, attempt).chunks] == [Stream.NOTE]
    assert [chunk.data for chunk in logs.read(session, second).chunks] == [b"under way"]


def test_a_log_that_is_removed_is_told_to_who_reads_on_from_the_midst_of_it(
    session: Session, archive: AnArchive
) -> None:
    archive.commit({"a": ""})
    attempt = leak(archive, size=3 * CHUNK)
    removal.remove(session, TaskId(archive.task("a@2")), "ann", "why", log=True)
    size = 3 * CHUNK + len(f"password: {SECRET}\n")
    for offset in (0, 7, CHUNK, size - 1):
        page = logs.read(session, attempt, offset)
        (notice,) = page.chunks
        assert notice.data.endswith(b" UTC by ann, because why\n")
        assert (notice.cut, page.ended) == (0, True)
        assert logs.read(session, attempt, notice.end).chunks == (), "it is told once"
    assert logs.read(session, attempt, size).chunks == ()


def test_only_what_was_there_is_counted_and_a_later_reason_takes_the_place_of_an_earlier_one(
    session: Session, archive: AnArchive
) -> None:
    archive.commit({"a": ""})
    attempt = AttemptId(archive.attempt("a@2"))
    finish.finish(session, PROCESS, [Outcome(attempt, End.EXITED, 1, message="OUTPUT is a directory")])
    task = TaskId(archive.task("a@2"))
    done = removal.remove(session, task, "ann", f"it said {SECRET}", log=True, outputs=True)
    assert (done.logs, done.outputs) == (0, 0)
    assert archive.sql("select message from attempt") == [{"message": ""}]
    archive.retry("a@2")
    leak(archive)
    done = removal.remove(session, task, "ann", "it printed a password", log=True, outputs=True)
    assert (done.logs, done.outputs) == (1, 1)
    first, second = attempts(session, task)
    for told in (first.log_removed, second.log_removed, second.outputs_removed):
        assert str(told).endswith("by ann, because it printed a password")
    assert first.outputs_removed is None, "it had none"
    run = runs.run(session, RunId(archive.run_id(2)))
    assert [deed.verb for deed in run.deeds if deed.verb.startswith("purge")] == ["purge --log", "purge --outputs"] * 2
    for reason in ("x" * (removal.LONGEST_REASON + 1), "a\0b"):
        with pytest.raises(Invalid, match="the reason of a removal: has"):
            removal.remove(session, task, "ann", reason, log=True)


def test_workspaces_of_lost_attempts_and_receivers_of_outputs_are_named(session: Session, archive: AnArchive) -> None:
    archive.commit({"a": "", "b": "depends: [{task: a, when: settled}]", "c": "depends: [{task: b, when: settled}]"})
    claim.register(session, PROCESS, HOST, "build-1", 4)
    attempt = AttemptId(archive.attempt("a@2"))
    finish.finish(session, PROCESS, [Outcome(attempt, End.EXITED, 1, outputs={"key": SECRET})])
    archive.attempt("b@2")
    archive.retry("a@2")
    lost = AttemptId(archive.attempt("a@2"))
    archive.record(lost, End.LOST, None)
    archive.sql("update attempt set ended_at = clock_timestamp() + interval '1 second' where id = %s", lost)
    task = TaskId(archive.task("a@2"))
    holders = removal.remove(session, task, "ann", "why", outputs=True).holders
    left = f"the workspace work/{lost} in the home folder of the lost task manager on build-1, until one starts there again"
    assert holders[-3:] == [
        left,
        "the log of the task, where the task printed them. Add --log",
        "papers@2/b, which got them as INPUTS: its workspace while it runs, its log and its outputs",
    ]
    archive.sql("update task_manager set seen_at = clock_timestamp() + interval '2 seconds'")
    assert left not in removal.remove(session, task, "ann", "why", log=True, outputs=True).holders


def received(archive: AnArchive, name: str) -> list[str]:
    """The tasks that are named as recipients of the outputs of a task, and the count of others."""
    named = removal.holders_of(archive.session, TaskId(archive.task(name)), log=True, outputs=True)
    return [holder.split(", which")[0] for holder in named if "as INPUTS" in holder]


def test_a_task_that_got_the_outputs_of_a_list_through_its_gate_is_named(archive: AnArchive) -> None:
    archive.commit(
        {
            "gen": "foreach: [{key: a}, {key: b}]",
            "collect": "depends: [gen]",
            "any": "depends: [{task: gen, when: settled}]",
            "other": "",
            "late": "depends: [collect, gen]",
        }
    )
    archive.run("other@2")
    for item in ("gen/a@2", "gen/b@2"):
        archive.claim(item)
        archive.end(item, outputs={"key": SECRET})
    assert received(archive, "gen/a@2") == []
    archive.claim()
    assert archive.state("late@2") == "waiting"
    assert received(archive, "gen/a@2") == received(archive, "gen/b@2") == ["papers@2/collect", "papers@2/any"]


def test_tasks_of_other_runs_that_got_the_outputs_are_named(archive: AnArchive) -> None:
    archive.commit({"a": "", "b": "depends: [a]"})
    archive.claim("a@2")
    archive.end("a@2", outputs={"key": SECRET})
    archive.run("b@2")
    archive.commit({"a": "depends: [PREV]", "b": "depends: [a]"})
    archive.attempt("a@3")
    archive.trigger(2, "b")  # it takes the product of a@2
    archive.attempt("b@2.2")
    assert received(archive, "a@2") == ["papers@2/b", "papers@3/a", "papers@2.2/b"]


def test_more_receivers_than_are_named_are_counted(archive: AnArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removal, "MOST_RECEIVERS", 2)
    archive.commit({"a": "", **{f"b{n}": "depends: [a]" for n in range(5)}})
    archive.claim("a@2")
    archive.end("a@2", outputs={"key": SECRET})
    archive.run(*(f"b{n}@2" for n in range(5)))
    assert received(archive, "a@2") == ["papers@2/b0", "papers@2/b1", "3 more tasks that got them as INPUTS"]


def test_a_report_whose_command_got_the_outputs_is_named(archive: AnArchive) -> None:
    archive.commit({"a": "", "REPORT": "command: ./send"})
    leak(archive)
    task = TaskId(archive.task("a@2"))

    def named(*, log: bool, outputs: bool) -> list[str]:
        holders = removal.holders_of(archive.session, task, log=log, outputs=outputs)
        return [holder for holder in holders if "REPORT" in holder]

    assert named(log=True, outputs=True) == []
    archive.attempt("REPORT@2")
    told = (
        "papers@2/REPORT, whose command got them in the report: where it sent the report, its workspace while it runs,"
        " its log and its outputs"
    )
    assert named(log=True, outputs=True) == named(log=False, outputs=True) == [told]
    assert named(log=True, outputs=False) == [told], "the report has the messages of attempts"


def test_receivers_of_notifications_with_the_end_of_the_log_are_named(session: Session, archive: AnArchive) -> None:
    settings = ArchiveSettings(notify={"ann@example.org": ["failed"], "author": ["failed"]})
    archives.change_settings(session, ArchiveId(archive.id), settings, "ann")
    archive.commit({"a": "", "b": ""}, author="Eve <eve@example.org>")
    leak(archive)
    archive.run("b@2")

    def named(key: str) -> list[str]:
        holders = removal.holders_of(session, TaskId(archive.task(key)), log=True, outputs=False)
        return [holder for holder in holders if "notification" in holder]

    while notifications.judge(session):
        pass
    assert named("a@2") == [], "nothing is sent yet"
    while notifications.choose(session, 10):  # one mail at a time
        archive.sql(
            "update delivery set state = 'sent', ended_at = clock_timestamp(), sending_until = null where tries > 0"
        )
    what = "with the end of the log and the message of the attempt"
    assert named("a@2") == [
        f"the notification to ann@example.org, {what}",
        f"the notification to the author of the revision, {what}",
    ]
    assert named("b@2") == [], "it has not failed"


def test_a_scratch_folder_in_which_the_task_or_a_receiver_ran_is_named(session: Session, archive: AnArchive) -> None:
    archive.commit({"a": "", "b": "depends: [a]\nscratch: run"})
    claim.register(session, PROCESS, HOST, "build-1", 4)
    archive.claim("a@2")
    archive.end("a@2", outputs={"key": SECRET})
    archive.attempt("b@2")
    archive.sql("insert into scratch (run_id, store, made_at) select run_id, 'shelf', now() from task where name = 'b'")
    archive.sql("update task_manager set store = 'shelf'")
    holders = removal.holders_of(session, TaskId(archive.task("a@2")), log=False, outputs=True)
    assert holders[-1] == (
        "the scratch folder of papers@2 on build-1, where a task wrote them there:"
        " it goes when the run has completed, or is deleted or purged"
    )
    archive.sql("update scratch set removed_at = now()")
    holders = removal.holders_of(session, TaskId(archive.task("a@2")), log=False, outputs=True)
    assert not [holder for holder in holders if "scratch" in holder]


def test_the_document_of_a_submission_stays_and_is_named(session: Session, archive: AnArchive) -> None:
    """The task is not its owner: other tasks of the run have it, too. To purge the run removes it."""
    archive.commit({"a": "on: submission"})
    run = archive.submit(sender_id="may")
    archive.run("a@2.2")
    done = removal.remove(session, TaskId(archive.task("a@2.2")), "ann", "why", log=True)
    said = "the document that was submitted, and its items: they stay with the run. To remove them: arkqueue purge papers@2.2"
    assert said in done.holders
    assert session.rows("payload_part", run=run, position=0)
    purge.purge_runs(session, [RunId(run)], "ann", "why")
    assert archive.sql("select * from payload_part") == []


def test_outputs_alone_leave_the_log(session: Session, archive: AnArchive) -> None:
    archive.commit({"a": ""})
    attempt = leak(archive)
    removal.remove(session, TaskId(archive.task("a@2")), "ann", "why", outputs=True)
    assert SECRET.encode() in logs.read(session, attempt).chunks[0].data
    assert archive.sql("select outputs, message from attempt") == [{"outputs": None, "message": ""}]
    with pytest.raises(Invalid, match="has no reason"):
        removal.remove(session, TaskId(archive.task("a@2")), "ann", " ", log=True)


def test_a_removal_that_was_killed_is_unreadable_told_by_doctor_and_goes_on(
    session: Session, archive: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.commit({"a": ""})
    attempt = leak(archive, size=5 * CHUNK)
    task = TaskId(archive.task("a@2"))

    def killed(session: Session, attempts: object) -> None:
        session.do("delete_log", attempts=attempts, most=2)
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        # The process is killed after the entry in the audit log and before the last deletion.
        broken.setattr(removal, "_delete", killed)
        with pytest.raises(KeyboardInterrupt):
            removal.remove(session, task, "ann", "why", log=True)
    assert [chunk.stream for chunk in logs.read(session, attempt).chunks] == [Stream.NOTE]
    assert archive.sql("select count(*) as n from log_chunk") == [{"n": 4}]
    archive.sql("update deed set at = at - interval '1 hour'")
    (finding,) = examine(session).findings
    assert (finding.check, finding.name) == ("removals", "papers@2/a")

    removal.remove(session, task, "ann", "why", log=True)
    assert archive.sql("select count(*) as n from log_chunk") == [{"n": 0}]
    assert archive.sql("select count(*) as n from deed where verb = 'purge --log'") == [{"n": 2}]


def test_names_of_locks_that_are_made_from_outputs_are_named(session: Session, archive: AnArchive) -> None:
    archive.commit({"k": "", "store": "depends: [k]\nlock: 'storage/${{ needs.k.tok }}'", "plain": "depends: [k]\nlock: disk"})  # fmt: skip
    archive.claim("k@2")
    archive.end("k@2", outputs={"tok": "secret"})
    holders = removal.remove(session, archive.task("k@2"), "ann", "leaked", outputs=True).holders
    named = [holder for holder in holders if "names of locks" in holder]
    assert named == ["the names of locks of papers@2/store, which are made from them, and the audit log where somebody named such a lock"]  # fmt: skip
