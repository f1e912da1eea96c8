"""`arkqueue purge` as a person types it, with every role down: it speaks to the database alone."""

from __future__ import annotations

from pathlib import Path

from psycopg.conninfo import make_conninfo

from arkqueue.db.session import Session
from arkqueue.logs import Logs
from arkqueue.model import AttemptId, End, Outcome, Stream
from arkqueue.queue import finish
from tests.builders import PROCESS, a_gateway, an_archive
from tests.program import Done, run_cli


def test_removes_the_log_of_a_task_without_a_server_and_says_what_may_still_hold_it(
    session: Session, tmp_path: Path
) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    attempt = AttemptId(archive.attempt("a@2"))
    writer = Logs(a_gateway(session)).open(attempt)
    writer.write(Stream.STDOUT, b"hunter2")
    # What the flusher does in a turn, done at once.
    writer._logs.flush([writer])
    finish.finish(session, PROCESS, [Outcome(attempt, End.EXITED, 1, outputs={"key": "hunter2"})])
    with session.database.connect() as connection:
        uri = make_conninfo(connection.info.dsn, password=connection.info.password)

    def purge(*arguments: str) -> Done:
        return run_cli("--home", str(tmp_path / "home"), "purge", *arguments, "--database", uri)

    assert purge("papers@2/a", "--reason", "it leaked").code == 2, "it is to be said what goes"
    assert "--reason" in purge("papers@2/a", "--log").err
    assert "papers@2/b" in purge("papers@2/b", "--log", "--reason", "it leaked").err

    done = purge("papers@2/a", "--log", "--outputs", "--reason", "it leaked")

    assert (done.code, done.lines) == (0, [
        "papers@2/a: the logs of 1 attempt removed", "papers@2/a: the outputs of 1 attempt removed",
    ])  # fmt: skip
    assert "It may still be in:\n  backups and dumps that were made before\n  PostgreSQL's write-ahead log" in done.err
    assert archive.sql("select count(*) as n from log_chunk") == [{"n": 0}]
    assert archive.sql("select outputs from attempt") == [{"outputs": None}]
    assert [row["verb"] for row in archive.sql("select verb from deed order by id")] == [
        "purge --log",
        "purge --outputs",
    ]
