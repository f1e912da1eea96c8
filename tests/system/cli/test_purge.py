"""`arkqueue purge` as a person types it, with every role down: it speaks to the database alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from arkqueue.db.session import Session
from arkqueue.logs import Logs
from arkqueue.model import AttemptId, End, Outcome, Stream
from arkqueue.queue import finish
from tests.builders import PROCESS, a_gateway, an_archive
from tests.db.test_retention import let_age, set_to_keep
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

    tried = purge("papers@2/a", "--log", "--dry-run")
    assert (tried.code, tried.lines) == (0, ["Nothing is changed. It would be:", "papers@2/a: the logs of 1 attempt removed"])  # fmt: skip
    assert "It may still be in:\n  backups and dumps that were made before\n" in tried.err
    assert archive.sql("select count(*) as n from log_chunk") == [{"n": 1}]
    assert archive.sql("select log_removal_id from attempt") == [{"log_removal_id": None}]

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


def test_runs_are_purged_without_a_server_and_what_others_wait_for_is_named(session: Session, tmp_path: Path) -> None:
    archive = an_archive(session)
    for number in (2, 3):
        archive.commit({"a": "depends: [PREV]"})
        archive.run(f"a@{number}")
    archive.commit({"a": "depends: [PREV]"})
    archive.fail("a@4")
    archive.commit({"a": "depends: [PREV]"})
    with session.database.connect() as connection:
        uri = make_conninfo(connection.info.dsn, password=connection.info.password)

    def purge(*arguments: str) -> Done:
        return run_cli("--home", str(tmp_path / "home"), "purge", *arguments, "--database", uri)

    assert "Say what of it" in purge("papers@2/a").err
    assert "for one task" in purge("papers@2/a", "papers@3/a", "--log", "--reason", "old").err
    assert "papers@9: is not in the ledger" in purge("papers@2", "papers@9").err
    assert archive.state("a@2") == "completed", "nothing is purged where one of the names is none"
    tried = purge("papers@2", "papers@4", "--dry-run")
    assert (tried.code, tried.lines) == (1, ["Nothing is changed. It would be:", "papers@2: purged"])
    assert "papers@4: papers@5/a waits for it, and is kept. arkqueue explain papers@5/a" in tried.err
    assert archive.state("a@2") == "completed"

    export = tmp_path / "old.jsonl"
    done = purge("papers@3", "papers@2", "--export", str(export), "--reason", "they are old")
    assert (done.code, done.lines, done.err) == (0, ["papers@2: purged", "papers@3: purged"], "")
    assert export.stat().st_mode & 0o777 == 0o600
    kinds = [json.loads(line)["kind"] for line in export.read_text().splitlines()]
    assert (kinds.count("run"), kinds.count("attempt")) == (2, 2)
    assert archive.states() == {"a@4": "failed", "a@5": "waiting"}
    archive.commit({})
    more = purge("papers@2", "papers@6")
    assert (more.code, more.lines) == (0, ["papers@6: purged"]), "what is gone already keeps nothing else"
    assert more.err.startswith("arkqueue: papers@2: was purged on ")
    archive.commit({})
    more = purge("papers@3", "papers@7", "--json", "--export", str(tmp_path / "more.jsonl"))
    assert (more.code, more.json["runs"]) == (1, ["papers@7"]), "the export does not hold what was gone"
    assert [gone["run"] for gone in more.json["gone"]] == ["papers@3"]
    again = purge("papers@2")
    assert again.code == 1
    assert "papers@2: was purged on " in again.err
    assert "because they are old" in again.err
    assert "cannot be written" in purge("papers@4", "--export", str(export)).err
    assert export.stat().st_size, "a file of somebody else's is left alone"
    assert purge("papers@4", "--export", str(tmp_path / "none.jsonl")).code == 1
    assert not (tmp_path / "none.jsonl").exists(), "nothing was purged"
    assert purge("papers@4", "--json").json["kept"][0]["run"] == "papers@4"


def test_open_pages_hear_of_a_purge_by_the_command(session: Session, tmp_path: Path) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    archive.run("a@2")
    with session.database.connect() as listener:
        uri = make_conninfo(listener.info.dsn, password=listener.info.password)
        listener.autocommit = True
        listener.execute("listen arkqueue")
        assert run_cli("--home", str(tmp_path), "purge", "papers@2", "--database", uri).code == 0
        assert any(notice.payload == f"archive {archive.id}" for notice in listener.notifies(timeout=60))


def test_the_name_of_an_export_is_on_the_disk_before_a_run_goes(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    archive.run("a@2")
    with session.database.connect() as connection:
        uri = make_conninfo(connection.info.dsn, password=connection.info.password)
    (tmp_path / "folder").mkdir()
    export, synced, sync = tmp_path / "folder" / "old.jsonl", list[tuple[str, int]](), os.fsync

    def fsync(descriptor: int) -> None:
        sync(descriptor)
        synced.append((os.readlink(f"/proc/self/fd/{descriptor}"), len(archive.states())))

    monkeypatch.setattr(os, "fsync", fsync)
    done = run_cli("--home", str(tmp_path / "home"), "purge", "papers@2", "--export", str(export), "--database", uri)
    assert (done.code, archive.states()) == (0, {})
    assert [place for place in synced if "folder" in place[0]] == [(str(export.parent), 1), (str(export), 1)]


def test_what_an_archive_keeps_no_longer_is_purged_by_its_name(session: Session, tmp_path: Path) -> None:
    archive = an_archive(session)
    for number in (2, 3):
        archive.commit({"a": ""})
        archive.run(f"a@{number}")
    archive.commit({"a": ""})
    archive.fail("a@4")
    archive.commit({"a": "depends: [PREV]"})
    for number in (1, 2, 4):
        let_age(archive, number, 40)
    with session.database.connect() as connection:
        uri = make_conninfo(connection.info.dsn, password=connection.info.password)

    def purge(*arguments: str) -> Done:
        return run_cli("--home", str(tmp_path / "home"), "purge", *arguments, "--database", uri)

    assert (
        "papers: keeps everything. Say for how long: arkqueue archive set papers keep completed=30d"
        in purge("papers").err
    )
    assert "one archive alone" in purge("papers", "papers@2").err
    set_to_keep(archive, {"completed": "30d", "failed": "30d"})
    tried = purge("papers", "--dry-run")
    assert tried.lines == [
        "Nothing is changed. It would be:",
        "papers: 2 runs purged, and the logs of 0 attempts removed",
        "  papers@1",
        "  papers@2",
    ]
    assert archive.state("a@2") == "completed"
    done = purge("papers", "--export", str(tmp_path / "old.jsonl"))
    assert (done.code, done.lines) == (0, ["papers: 2 runs purged, and the logs of 0 attempts removed"])
    assert "papers@4: papers@5/a waits for it, and is kept" in done.err
    assert archive.states() == {"a@3": "completed", "a@4": "failed", "a@5": "waiting"}
    assert len((tmp_path / "old.jsonl").read_text().splitlines()) == 2 + 4 + 1
