"""`lock` and the pauses of locks on the command line."""

from __future__ import annotations

from arkqueue.db.session import Session
from arkqueue.queue import locks
from tests.builders import an_archive
from tests.system.cli.conftest import Cli
from tests.waiting import eventually


def test_a_lock_of_the_installation_is_shown_set_and_paused(arkqueue: Cli, session: Session) -> None:
    one, other = an_archive(session, "one"), an_archive(session, "other")
    assert arkqueue("lock", "list").lines == ["No task names a lock."]
    one.commit({"a": "lock: global/printer", "b": "lock: [global/printer, tex]"})
    other.commit({"x": "lock: global/printer"})
    locks.pass_on(session)
    eventually(lambda: one.state("a@2") == "ready")
    assert arkqueue("lock", "list").lines == [
        "global/printer: 1 task at once",
        "  granted to one@2/a, which is ready",
        "  1. other@2/x waits",
        "  2. one@2/b waits",
        "one/tex: 1 task at once",
        "  1. one@2/b waits",
    ]
    assert "which a task of another archive has" in arkqueue("explain", "other@2/x").out
    paused = arkqueue("pause", "--lock", "global/printer", "--reason", "no paper")
    assert paused.lines == ["lock global/printer: paused"]
    assert one.state("a@2") == "waiting"
    explained = arkqueue("explain", "other@2/x").out
    assert "global/printer, which is paused" in explained
    assert "arkqueue resume --lock global/printer" in explained
    assert arkqueue("resume", "--lock", "global/printer").lines == ["lock global/printer: resumed"]
    assert arkqueue("lock", "set", "global/printer", "2").lines == ["global/printer: 2 tasks at once"]
    assert arkqueue("lock", "set", "global/printer", "0").code == 2
