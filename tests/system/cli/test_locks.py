"""`lock` and the pauses of locks on the command line."""

from __future__ import annotations

import pytest

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
        "  1. one@2/b waits; it waits for the lock global/printer, too",
    ]
    assert "which one@2/a has" in arkqueue("explain", "other@2/x").out
    (shown,) = (line for line in arkqueue("show", "other@2").lines if line.startswith("other@2/x "))
    assert "for the lock global/printer, which one@2/a has" in shown
    paused = arkqueue("pause", "--lock", "global/printer", "--reason", "no paper")
    assert paused.lines == ["lock global/printer: paused"]
    assert one.state("a@2") == "waiting"
    explained = arkqueue("explain", "other@2/x").out
    assert "global/printer, which is paused" in explained
    assert "arkqueue resume --lock global/printer" in explained
    assert arkqueue("resume", "--lock", "global/printer").lines == ["lock global/printer: resumed"]
    assert arkqueue("lock", "set", "global/printer", "2").lines == ["global/printer: 2 tasks at once"]
    assert arkqueue("lock", "set", "global/printer", "0").code == 2


def test_a_list_of_locks_says_who_cannot_go_and_counts_what_it_may_not_name(
    arkqueue: Cli, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, third = (an_archive(session, name) for name in ("one", "other", "third"))
    one.commit({"a": "lock: global/printer"})
    locks.pass_on(session)
    one.claim("a@2")
    one.commit({"tex": "lock: tex"})
    one.claim("tex@3")
    one.commit({"both": "lock: [tex, global/printer]"})
    for archive in (other, third):
        archive.commit({"x": "lock: global/printer", "y": "lock: global/printer"})
    assert arkqueue("pause", "other").code == 0
    assert arkqueue("lock", "list").lines[:7] == [
        "global/printer: 1 task at once",
        "  occupied by one@2/a, which is running",
        "  1. third@2/x waits",
        "  2. one@4/both waits; it waits for the lock one/tex, too",
        "  3. third@2/y waits",
        "  other@2/x waits, but does not stand in line: its archive is paused",
        "  other@2/y waits, but does not stand in line: its archive is paused",
    ]
    dot = arkqueue("graph", "one@4", "--format", "dot").out
    assert r"has it: one@2/a\nnext: third@2/x" in dot
    assert 'label="2."' in dot
    assert 'label="not in line"' in arkqueue("graph", "other@2", "--format", "dot").out

    made = arkqueue("token", "create", "--scope", "read", "--archive", "one")
    monkeypatch.setenv("ARKQUEUE_TOKEN", made.out.strip())
    assert arkqueue("lock", "list").lines[:4] == [
        "global/printer: 1 task at once",
        "  occupied by one@2/a, which is running",
        "  1. one@4/both waits; it waits for the lock one/tex, too",
        "  4 tasks wait for it in other archives, one of which is next",
    ]
    assert "next: a task of another archive" in arkqueue("graph", "one@4", "--format", "mermaid").out
    archive = arkqueue("lock", "list", "--json").json
    assert "third" not in str(archive) + arkqueue("graph", "one@4", "--json").out


def test_graph_shows_who_has_a_lock_and_who_is_next(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "lock: tex"})
    archive.commit({"a": "lock: tex", "b": "lock: tex"})
    archive.claim("a@2")
    ids = {key: archive.task(key) for key in ("a@3", "b@3")}
    assert arkqueue("graph", "papers@3").lines[-4:] == [
        "papers/tex: 1 task at once",
        "  occupied by papers@2/a, which is running",
        "  1. papers@3/a waits",
        "  2. papers@3/b waits",
    ]
    (shown,) = arkqueue("graph", "papers@2", "papers@3", "--json").json[
        "locks"
    ]  # it is told once, although both runs name it
    assert (shown["name"], [task["full_name"] for task in shown["waiting"]]) == (
        "papers/tex",
        ["papers@3/a", "papers@3/b"],
    )
    mermaid = arkqueue("graph", "papers@2", "papers@3", "--format", "mermaid").lines
    assert '  l0{{"lock papers/tex<br/>1 task at once<br/>has it: papers@2/a<br/>next: papers@3/a"}}' in mermaid
    assert f"  t{archive.task('a@2')} --- l0" in mermaid
    assert [f"  l0 -.->|{place}.| t{id}" for place, id in enumerate(ids.values(), 1)] == [
        line for line in mermaid if "l0 -.->" in line
    ]
    dot = arkqueue("graph", "papers@3", "--format", "dot").lines
    assert (
        r'  l0 [shape=hexagon style=solid label="lock papers/tex\n1 task at once\nhas it: papers@2/a\nnext: papers@3/a"]'
        in dot
    )
    assert f'  l0 -> t{ids["a@3"]} [style=dashed label="1."]' in dot
    assert not any("dir=none" in line for line in dot)  # who has it is no node of this graph
    arkqueue("pause", "--lock", "papers/tex", "--reason", "no \x1b[31mlicence")
    assert "paused since" in arkqueue("graph", "papers@3").out
    assert "\x1b" not in arkqueue("graph", "papers@3").out
