"""Verbs on an item of a list on the command line, by its name ``RUN/*/KEY``."""

from __future__ import annotations

import json

from arkqueue.db.session import Session
from arkqueue.views.tasks import task
from arkqueue.web.pages.task import facts
from tests.builders import a_list, an_archive
from tests.system.cli.conftest import Cli


def test_an_item_is_held_released_and_prioritized(arkqueue: Cli, session: Session) -> None:
    archive = a_list(session)
    archive.run("fetch/a@2")
    done = arkqueue("hold", "papers@2/*/a", "--reason", "the scan is bad")
    assert done.code == 0
    assert [line.partition(" (")[0] for line in done.lines] == ["papers@2/check/a: held", "papers@2/store/a: held"]
    assert archive.state("check/b/c@2") == "waiting"
    assert "the scan is bad" in arkqueue("explain", "papers@2/store/a").out
    assert "the scan is bad" in arkqueue("show", "papers@2/check/a").out
    tried = arkqueue("release", "papers@2/*/a", "--dry-run")
    assert tried.lines[0] == "Nothing is changed. It would be:"
    assert archive.state("check/a@2") == "held"
    assert arkqueue("release", "papers@2/*/a").lines == [
        "papers@2/check/a: ready", "papers@2/store/a: waiting (for papers@2/check/a)",
    ]  # fmt: skip
    assert "papers@2: has no task of the item a to release" in arkqueue("release", "papers@2/*/a").err
    assert arkqueue("prioritize", "papers@2/*/a", "10", "--dry-run").code == 0
    assert arkqueue("prioritize", "papers@2/*/a", "10").lines == [
        "papers@2/check/a: ready, priority 10", "papers@2/store/a: waiting (for papers@2/check/a), priority 10",
    ]  # fmt: skip
    assert arkqueue("prioritize", "papers@2/*/a", "1001").code == 2
    for command in (["papers@2/*/a", "-1"], ["-1", "papers@2/*/a"], ["papers@2/*/a", "--dry-run", "--", "-1"]):
        refused = arkqueue("prioritize", *command)
        assert (refused.code, "-1 is not in the range 0<=x<=1000" in refused.err) == (2, True), refused.err
    assert "No such option" in arkqueue("prioritize", "papers@2/*/a", "-x").err


def test_items_are_called_in_graphs_and_reports_as_commands_take_them(arkqueue: Cli, session: Session) -> None:
    archive = a_list(session)
    archive.end("fetch/b/c@2", 1)
    archive.run("fetch/a@2", "check/a@2", "store/a@2")
    drawn = arkqueue("graph", "papers@2")
    assert "  fetch/b%2Fc  failed" in drawn.lines
    assert "2:fetch/b%2Fc <-- 2:check/b%2Fc" in drawn.out
    assert "fetch/b%2Fc" in arkqueue("report", "papers@2").out
    archive.skip("fetch/b/c@2")
    assert "  fetch/b%2Fc  failed, waived" in arkqueue("graph", "papers@2").lines
    mermaid = arkqueue("graph", "papers@2", "--format", "mermaid").out
    assert '["2:fetch/b%2Fc<br/>failed, waived"]:::waived' in mermaid
    assert "classDef waived fill:#eeeeee" in mermaid
    dot = arkqueue("graph", "papers@2", "--format", "dot").out
    assert r'[label="2:fetch/b%2Fc\nfailed, waived" fillcolor="#eeeeee"]' in dot


def test_the_items_of_a_list_are_held_prioritized_released_and_canceled_by_one_name(
    arkqueue: Cli, session: Session
) -> None:
    archive = a_list(session)
    archive.run("fetch/a@2")
    tried = arkqueue("hold", "papers@2/check/*", "--state", "ready", "--dry-run")
    assert tried.lines == ["Nothing is changed. It would be:", "papers@2/check/*: 1 item held", "  papers@2/check/a"]
    assert archive.state("check/a@2") == "ready"
    assert arkqueue("hold", "papers@2/check/*", "--state", "ready").lines[0] == "papers@2/check/*: 1 item held"
    assert [archive.state(f"check/{item}@2") for item in ("a", "b/c")] == ["held", "waiting"]
    first = arkqueue("prioritize", "papers@2/check/*", "10")
    assert first.lines[0] == "papers@2/check/*: 2 items with the new priority"
    assert arkqueue("release", "papers@2/check/*").lines == ["papers@2/check/*: 1 item released", "  papers@2/check/a"]
    again = arkqueue("release", "papers@2/check/*")
    assert (again.code, again.err) == (1, "arkqueue: papers@2: has no item of check to release\n")
    done = json.loads(arkqueue("cancel", "papers@2/check/*", "--state", "waiting", "--json").out)
    assert (done["done"], done["refused"], done["left"]) == (["papers@2/check/b%2Fc"], [], 0)
    assert [archive.state(f"check/{item}@2") for item in ("a", "b/c")] == ["ready", "canceled"]


def test_a_retry_of_a_list_takes_what_failed_or_the_states_that_are_named(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"deposit": "foreach: [a, b, c, d]", "other": ""})
    archive.cancel("deposit/b@2")
    archive.fail("deposit/a@2", "other@2")
    archive.end("deposit/c@2", 65)
    assert arkqueue("retry", "papers@2/deposit/*").lines == [
        "papers@2/deposit/*: 1 item retried",
        "  papers@2/deposit/a",
    ]
    assert [archive.state(one) for one in ("deposit/b@2", "other@2")] == ["canceled", "failed"]
    archive.fail("deposit/a@2")
    both = arkqueue("retry", "papers@2/deposit/*", "--state", "failed", "--state", "canceled", "--dry-run")
    assert both.lines[1:] == ["papers@2/deposit/*: 2 items retried", "  papers@2/deposit/a", "  papers@2/deposit/b"]
    assert arkqueue("retry", "papers@2/deposit/*", "--failed").lines[0].endswith("1 item retried")
    assert archive.state("deposit/b@2") == "canceled"
    final = arkqueue("retry", "papers@2/deposit/*", "--state", "rejected")
    assert "has no item of deposit to retry that is rejected; rejected items stay rejected" in final.err
    assert arkqueue("retry", "papers@2/deposit/*", "--failed", "--state", "canceled").code == 2


def test_failures_of_a_list_are_waived_or_deleted_together(arkqueue: Cli, session: Session) -> None:
    archive = a_list(session)
    archive.fail("fetch/a@2", "fetch/b/c@2")
    assert arkqueue("skip", "papers@2/fetch/*", "--failed", "--as-completed").lines[0] == (
        "papers@2/fetch/*: 2 items skipped or waived"
    )
    archive.fail("check/a@2")
    tried = arkqueue("delete", "papers@2/check/*", "--failed", "--dry-run")
    assert tried.lines[1:] == ["papers@2/check/*: 1 item deleted", "  papers@2/check/a"]
    assert arkqueue("delete", "papers@2/check/*", "--failed").lines[0] == "papers@2/check/*: 1 item deleted"
    assert "papers@2/*/a" in arkqueue("show", "papers@2", "--deleted").out
    archive.claim("check/b/c@2")
    refused = arkqueue("delete", "papers@2/check/*")
    assert (refused.code, "is running" in refused.err or "runs" in refused.err) == (1, True)


def test_a_name_of_a_list_is_refused_where_it_means_nothing(arkqueue: Cli, session: Session) -> None:
    archive = a_list(session)
    archive.commit({"one": "", "star": "foreach: ['*', b]"})
    for command, fault in (
        (("cancel", "papers@3/one/*"), "papers@3/one/*: is not a list of this run. arkqueue show papers@3 --items"),
        (("show", "papers@2/fetch/*"), "is the name of a list, which this command does not take. See its items: arkqueue show papers@2 --items"),
        (("cancel", "papers@2", "--state", "ready"), "is not the name of a list, and --state and --failed are for lists"),
        (("delete", "papers@2/*/a", "--failed"), "is not the name of a list"),
        (("cancel", "papers@2/fetch/*", "--assume-gone"), "--assume-gone is for tasks"),
        (("retry", "papers@2/fetch/*", "--from", "fetch"), "--from is for runs and items"),
    ):  # fmt: skip
        done = arkqueue(*command)
        assert (done.code in (1, 2), fault in done.err) == (True, True), (command, done.err)
    assert arkqueue("skip", "papers/fetch", "--until", "2", "--failed").code == 2
    assert arkqueue("cancel", "papers@2/fetch/*", "--state", "dead").code == 2
    assert arkqueue("cancel", "papers@3/star/%2A").code == 0
    assert [archive.state(f"star/{item}@3") for item in ("*", "b")] == ["canceled", "ready"]


def test_what_is_no_name_here_is_answered_in_the_words_that_were_typed(arkqueue: Cli, session: Session) -> None:
    a_list(session)
    named = arkqueue("explain", "papers@2/fetch")
    assert "Write papers@2/fetch/KEY for one of them, or 'papers@2/fetch/*' for all." in named.err
    shown = arkqueue("show", "papers@2/fetch/*")
    assert shown.code == 2
    assert (
        "See its items: arkqueue show papers@2 --items; what they wait for: arkqueue explain 'papers@2/fetch/*'"
        in shown.err
    )
    for name, what in (("papers@2/*/a", "an item"), ("papers@2/fetch/*", "a list")):
        assert f"{name} is {what}. Purge its whole run papers@2, or remove the log" in arkqueue("purge", name).err
    for name in ("", "x" * 500):
        refused = arkqueue("retry", "papers@2", "--from", name)
        assert (refused.code, "has no task '" in refused.err, "the request" in refused.err) == (1, True, False)
        assert len(refused.err) < 300
    assert "papers@fill:0: does not exist. The archive has none" in arkqueue("show", "papers@fill:0").err
    assert arkqueue("show", "papers@2", "--items", "--after", "9" * 30).code == 2
    assert "papers@2: was made for no submission" in arkqueue("show", "papers@2", "--payload").err


def test_an_item_is_polled_now(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"deposit": "foreach: [a, b]\npoll: {command: ask, every: 1h}"})
    archive.end("deposit/a@2", 75)
    archive.end("deposit/b@2", 75)
    assert arkqueue("refresh", "papers@2/*/b", "--dry-run").code == 0
    done = arkqueue("refresh", "papers@2/*/b")
    assert [line.partition(" (")[0] for line in done.lines] == ["papers@2/deposit/b: ready"]
    assert archive.state("deposit/a@2") == "deferred"


def test_an_item_is_deleted_listed_and_undeleted(arkqueue: Cli, session: Session) -> None:
    archive = a_list(session)
    archive.fail("fetch/a@2")
    tried = arkqueue("delete", "papers@2/*/a", "--dry-run")
    assert tried.lines == ["Nothing is changed. It would be:", "papers@2/*/a: deleted; papers@2 is processing"]
    assert arkqueue("delete", "papers@2/*/a").lines == ["papers@2/*/a: deleted; papers@2 is processing"]
    assert "/a" not in arkqueue("show", "papers@2", "--items").out.partition("WHEN")[0]
    done = arkqueue("retry", "papers@2/*/a")
    assert done.err == "arkqueue: papers@2/*/a: was deleted. arkqueue undelete 'papers@2/*/a'\n"
    (heading, row) = arkqueue("show", "papers@2", "--deleted").lines
    assert heading.split() == ["ITEM", "DELETED", "BY", "TASKS"]
    assert row.split()[0] == "papers@2/*/a"
    assert row.endswith("papers@2/fetch/a papers@2/check/a papers@2/store/a")
    assert "its item was deleted" in arkqueue("explain", "papers@2/check/a").out
    assert arkqueue("undelete", "papers@2/*/a").lines == ["papers@2/*/a: back; papers@2 is processing"]
    assert archive.state("fetch/a@2") == "failed"
    assert arkqueue("show", "papers@2", "--deleted").lines == ["papers@2: no item was deleted"]
    assert "is the name of a task, not of a run" in arkqueue("delete", "papers@2/check/a").err


def test_an_item_is_shown_with_its_tasks_alone(arkqueue: Cli, session: Session) -> None:
    archive = a_list(session)
    archive.fail("fetch/b/c@2")
    assert [line.split()[:2] for line in arkqueue("show", "papers@2/*/b%2Fc").lines] == [
        ["papers@2/*/b%2Fc"], [], ["TASK", "STATE"],
        ["papers@2/fetch/b%2Fc", "failed"], ["papers@2/check/b%2Fc", "skipped"], ["papers@2/store/b%2Fc", "skipped"],
    ]  # fmt: skip
    rows = arkqueue("show", "papers@2/*/b%2Fc", "--state", "failed").lines[3:]
    assert [row.split()[0] for row in rows] == ["papers@2/fetch/b%2Fc"]
    shown = arkqueue("show", "papers@2/*/a", "--json").json
    assert [task["full_name"] for task in shown["tasks"]] == [
        f"papers@2/{step}/a" for step in ("fetch", "check", "store")
    ]
    arkqueue("delete", "papers@2/*/b%2Fc")
    assert "it was deleted: arkqueue show papers@2 --deleted" in arkqueue("show", "papers@2/*/b%2Fc").out


def test_a_task_shows_all_digits_of_its_item(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"store": "foreach: [{id: a, version: 1.10, size: 0.1000000000000000055511}]"})
    written = '{"id":"a","version":1.10,"size":0.1000000000000000055511}'
    assert f"  item        {written}" in arkqueue("show", "papers@2/store/a").lines
    assert arkqueue("show", "papers@2/store/a", "--json").json["item_text"] == written
    assert dict(facts(task(session, archive.task("store/a@2")), None))["Item"] == written


def test_a_task_shows_what_its_list_has_for_it(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    archive.commit(
        {"store": 'foreach: [{id: a, size: 3, note: "x\\ny"}, {id: b, note: \'' + "z" * 900 + "'}]", "tell": ""}
    )
    shown = arkqueue("show", "papers@2/store/a")
    (line,) = [line for line in shown.lines if line.startswith("  item ")]
    assert json.loads(line.split(maxsplit=1)[1]) == {"id": "a", "size": 3, "note": "x\ny"}
    assert arkqueue("show", "papers@2/store/a", "--json").json["item_body"]["size"] == 3
    (line,) = [line for line in arkqueue("show", "papers@2/store/b").lines if line.startswith("  item ")]
    assert line.endswith("z…")
    assert len(line) < 600
    assert arkqueue("show", "papers@2/tell", "--json").json["item_body"] is None
    assert arkqueue("show", "papers@2/tell", "--json").json["item_text"] is None
    told = dict(facts(task(session, archive.task("store/a@2")), None))
    assert json.loads(told["Item"])["note"] == "x\ny"


def test_a_list_is_explained_by_its_items_that_are_open_or_failed(arkqueue: Cli, session: Session) -> None:
    archive = a_list(session)
    archive.fail("fetch/b/c@2")
    done = arkqueue("explain", "papers@2/fetch/*")
    assert done.lines[0] == "papers@2/fetch/*"
    assert "papers@2/fetch/a: It is running" in done.out
    assert "papers@2/fetch/b%2Fc: It failed" in done.out
    assert "papers@2/check" not in done.out
    arkqueue("skip", "papers@2/fetch/b%2Fc")
    archive.run("fetch/a@2")
    assert arkqueue("explain", "papers@2/fetch/*").lines[1:] == ["All of its items are settled."]
    assert "papers@2/nothing/*: is not a list of this run" in arkqueue("explain", "papers@2/nothing/*").err
    for verb in ("explain", "hold"):
        refused = arkqueue(verb, "papers@2/*").err
        assert "Write papers@2/*/KEY, or papers@2 for the whole run" in refused, verb


def test_an_item_is_explained_by_what_is_open_or_failed_of_it(arkqueue: Cli, session: Session) -> None:
    archive = a_list(session)
    arkqueue("hold", "papers@2/*/a", "--reason", "the scan is bad")
    done = arkqueue("explain", "papers@2/*/a")
    assert done.lines[0] == "papers@2/*/a"
    assert "papers@2/fetch/a: It is held by" in done.out
    assert "the scan is bad" in done.out
    archive.fail("fetch/b/c@2")
    done = arkqueue("explain", "papers@2/*/b%2Fc")
    assert "papers@2/fetch/b%2Fc: It failed" in done.out
    assert "  arkqueue retry papers@2/fetch/b%2Fc" in done.lines
    arkqueue("retry", "papers@2/*/b%2Fc")
    archive.run("fetch/b/c@2", "check/b/c@2", "store/b/c@2")
    assert arkqueue("explain", "papers@2/*/b%2Fc").lines[1:] == ["All of its 3 tasks are settled."]
    arkqueue("delete", "papers@2/*/a")
    assert arkqueue("explain", "papers@2/*/a").lines[1:] == ["It was deleted.", "  arkqueue undelete 'papers@2/*/a'"]
    assert "papers@2 has no item 'x'" in arkqueue("explain", "papers@2/*/x").err
