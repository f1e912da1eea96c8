"""Scratch folders (design 5.37): which host has one, and which tasks are claimed there alone."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest

from arkqueue.db.session import Session
from arkqueue.errors import Conflict
from arkqueue.model import ArchiveId, AttemptId, Claim, End, Outcome, Receipt, RunId
from arkqueue.queue import claim, deletion, finish, holds, locks, pauses, purge, redo, reports, scratch
from arkqueue.views.doctor import examine
from arkqueue.views.explain import explain
from arkqueue.views.needs import needs_of
from arkqueue.views.reasons import Reason, Why
from tests.builders import AnArchive, an_archive

CHAIN = {"fetch": "scratch: run", "unpack": "scratch: run\ndepends: [fetch]", "other": "depends: [fetch]"}


class Host:
    """The only task manager of a host."""

    def __init__(self, session: Session, name: str, *labels: str, limit: int | None = None) -> None:
        self.session, self.name, self.process, self.labels = session, name, f"manager of {name}", labels
        claim.register(
            session, self.process, name, f"machine-{name}", 8, labels=labels, store=name, scratch_limit=limit
        )

    def claims(self, slots: int = 9) -> list[Claim]:
        return claim.claim(self.session, self.process, self.name, slots, labels=self.labels, store=self.name)

    def claim(self, slots: int = 9) -> dict[str, Claim]:
        """By task and item; of one run."""
        return {f"{one.name}/{one.item}".rstrip("/"): one for one in self.claims(slots)}

    def take(self, claimed: Claim) -> str:
        """Where the folder of a task is."""
        found = scratch.take(self.session, self.process, self.name, claimed.attempt)
        assert found is not None
        return found.store

    def end(self, attempt: AttemptId, end: End = End.EXITED, code: int | None = 0) -> None:
        assert finish.finish(self.session, self.process, [Outcome(attempt, end, code)])[attempt] is Receipt.RECORDED

    def complete(self, *, slots: int = 9) -> list[str]:
        """Claim, take the folders of what has one, and complete it."""
        claims = self.claims(slots)
        for claimed in claims:
            scratch.take(self.session, self.process, self.name, claimed.attempt)
            self.end(claimed.attempt)
        return sorted(f"{one.name}/{one.item}".rstrip("/") for one in claims)


def why(archive: AnArchive, key: str) -> Reason:
    return explain(archive.session, archive.task(key)).reasons[0]


def test_tasks_with_the_folder_of_a_run_are_claimed_where_the_first_has_made_it(session: Session) -> None:
    archive = an_archive(session)
    archive.commit(CHAIN)
    here, there = Host(session, "here"), Host(session, "there")
    assert here.complete() == ["fetch"]
    assert there.complete() == ["other"]
    assert here.complete() == ["unpack"]


def test_what_waits_for_a_lock_and_for_the_host_of_its_folder_goes_on_when_the_host_is_back(session: Session) -> None:
    """It stands in no line while its host is away, so that it keeps the lock from nobody (design 5.25)."""
    archive = an_archive(session)
    archive.commit({"fetch": "scratch: run", "store": "scratch: run\ndepends: [fetch]\nlock: tex"})
    assert Host(session, "here").complete() == ["fetch"]
    archive.sql("delete from task_manager")
    Host(session, "there")
    locks.judge_all(session)
    assert archive.state("store@2") == "waiting"
    assert why(archive, "store@2").text.startswith(
        "It waits for its locks, but its scratch folder is on the host here, and its task manager has not reported"
    )
    here = Host(session, "here")
    locks.judge_all(session)
    assert here.complete() == ["store"]


def test_explain_names_both_a_lock_that_another_task_has_and_the_host_that_is_away(session: Session) -> None:
    archive = an_archive(session)
    archive.commit(
        {"index": "lock: tex", "fetch": "scratch: run", "store": "scratch: run\ndepends: [fetch]\nlock: tex"}
    )
    here = Host(session, "here")
    claimed = here.claim()
    here.take(claimed["fetch"])
    here.end(claimed["fetch"].attempt)
    assert "index" in claimed
    archive.sql("update task_manager set stopped_at = clock_timestamp()")
    Host(session, "there")
    told = explain(session, archive.task("store@2"))
    assert [reason.kind for reason in told.reasons] == [Why.LOCKED, Why.NO_SCRATCH]
    assert "waits for the lock papers/tex, which papers@2/index has" in told.text
    assert "It waits for its locks, but its scratch folder is on machine-here (here)" in told.text


def test_each_run_and_each_item_has_a_folder_of_its_own(session: Session) -> None:
    archive = an_archive(session)
    chain = {
        "fetch": "foreach: [a, b]\nscratch: item",
        "store": "foreach: [a, b]\nscratch: item\ndepends: [fetch]",
        "sum": "foreach: [x, y]\nscratch: run\ndepends: [store]",
    }
    archive.commit(chain)
    here, there = Host(session, "here"), Host(session, "there")
    assert here.complete(slots=1) == ["fetch/a"]
    assert there.complete(slots=1) == ["fetch/b"]
    assert (there.complete(), here.complete()) == (["store/b"], ["store/a"])
    archive.commit({"fetch": "foreach: [a]\nscratch: item"})
    # The folder of a run is that of all of its items, and another run has none of them.
    assert there.complete(slots=1) == ["sum/x"]
    assert here.complete() == ["fetch/a"]
    assert there.complete() == ["sum/y"]


def test_tasks_that_two_hosts_claim_at_once_share_the_folder_of_the_first_that_asks(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "scratch: run", "b": "scratch: run", "c": "scratch: run", "d": ""})
    here, there = Host(session, "here"), Host(session, "there")
    mine, theirs = here.claim(1)["a"], there.claim(1)["b"]
    found: list[str] = []
    asking = [
        threading.Thread(target=lambda h=h, c=c: found.append(h.take(c))) for h, c in ((here, mine), (there, theirs))
    ]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    first, second = (here, there) if found[0] == "here" else (there, here)
    assert found == [first.name] * 2
    # The folder binds ready tasks to its host at once, and a task
    # that the other host has claimed when that host hands it back.
    assert list(second.claim()) == ["d"]
    second.end((theirs if first is here else mine).attempt, End.STOPPED, None)
    assert second.claim() == {}
    assert sorted(first.claim()) == sorted(["c", "b" if first is here else "a"])
    assert examine(session).findings == []


def test_labels_and_the_folder_are_both_asked_for(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"fetch": "scratch: run", "render": "scratch: run\nruns_on: [gpu, tex]\ndepends: [fetch]"})
    here, there = Host(session, "here"), Host(session, "there", "tex", "gpu")
    assert there.complete() == ["fetch"]
    archive.commit({"draw": "scratch: run\nruns_on: gpu"})
    assert here.complete() == []
    assert there.complete() == ["draw", "render"]


def test_a_folder_is_where_its_first_task_was_also_after_a_retry(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "scratch: run"})
    here, there = Host(session, "here"), Host(session, "there")
    attempt = here.claim()["a"]
    here.take(attempt)
    here.end(attempt.attempt, code=1)
    archive.retry("a@2")
    assert there.claim() == {}
    assert list(here.claim()) == ["a"]


def test_an_attempt_that_is_not_ours_any_more_decides_nothing(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "scratch: run"})
    here, there = Host(session, "here"), Host(session, "there")
    attempt = here.claim()["a"].attempt
    assert scratch.take(session, there.process, "there", attempt) is None
    here.end(attempt, End.STOPPED, None)
    assert scratch.take(session, here.process, "here", attempt) is None
    assert list(there.claim()) == ["a"]


def test_explain_names_the_host_that_is_waited_for(session: Session) -> None:
    archive = an_archive(session)
    archive.commit(CHAIN)
    here, there = Host(session, "here"), Host(session, "there")
    here.complete()
    assert why(archive, "unpack@2").kind is Why.ABOUT_TO_START
    claim.unregister(session, here.process)
    told = why(archive, "unpack@2")
    assert told.kind is Why.NO_SCRATCH
    assert "its scratch folder is on machine-here (here), and its task manager stopped at" in told.text
    claim.unregister(session, there.process)
    assert why(archive, "unpack@2").kind is Why.NO_SCRATCH
    assert why(archive, "other@2").kind is Why.NO_TASK_MANAGER
    Host(session, "here")
    assert why(archive, "unpack@2").kind is Why.ABOUT_TO_START


def test_explain_names_a_host_that_keeps_its_folders_elsewhere_now(session: Session) -> None:
    archive = an_archive(session)
    archive.commit(CHAIN)
    here, _ = Host(session, "here"), Host(session, "there")
    here.complete()
    claim.unregister(session, here.process)
    claim.register(session, "manager of here, shared", "here", "machine-here", 8, labels=(), store="shared")
    told = why(archive, "unpack@2").text
    assert "is on machine-here (here), and the task manager machine-here now keeps such folders elsewhere" in told
    assert "Start that task manager with its earlier `scratch_folder` and `scratch_shared`." in told


def test_a_run_whose_items_have_lost_their_folders_starts_at_their_first_task(session: Session) -> None:
    archive = an_archive(session)
    archive.commit(
        {
            "fetch": "foreach: [x, y]\nscratch: item",
            "store": "foreach: [x, y]\nscratch: item\ndepends: [fetch]",
        }
    )
    here = Host(session, "here")
    assert here.complete() == ["fetch/x", "fetch/y"]
    for item, claimed in here.claim().items():
        here.end(claimed.attempt, code=1)
        scratch.lose(session, folder(archive, 2, item.partition("/")[2]))
    with pytest.raises(Conflict) as refused:
        retry_from(archive, 2, "store")
    assert refused.value.remedy == "Start at its first task: arkqueue retry papers@2 --from fetch"
    retry_from(archive, 2, "fetch")
    assert here.complete() == ["fetch/x", "fetch/y"]


# --- Until when it stays ---------------------------------------------------------------------------------------------


def folder(archive: AnArchive, number: int, item: str = "") -> int:
    (row,) = archive.sql("select s.id from scratch s where s.run_id = %s and s.item = %s", archive.run_id(number), item)
    return int(row["id"])


def unneeded(archive: AnArchive, *folders: int) -> set[int]:
    return scratch.unneeded(archive.session, folders).folders


def test_a_folder_is_not_needed_once_its_run_has_completed_with_its_report(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "scratch: run", "b": "depends: [a]", "REPORT": ""})
    here = Host(session, "here")
    assert here.complete() == ["a"]
    its = folder(archive, 2)
    assert unneeded(archive, its) == set()
    assert here.complete() == ["b"]
    assert unneeded(archive, its) == set(), "its report may use it"
    assert here.complete() == ["REPORT"]
    assert unneeded(archive, its, 4711) == {its, 4711}
    # It is gone for good, whoever asks, until a database forgets it.
    assert unneeded(archive, its) == {its}
    assert archive.sql("select removed_at is not null as gone from scratch") == [{"gone": True}]


def test_a_further_report_has_a_new_folder(session: Session) -> None:
    """What was removed with the run is nothing that a report could miss; and what it leaves there, no other task does."""
    archive = an_archive(session)
    archive.commit({"a": "scratch: run", "b": "depends: [a]", "REPORT": "scratch: run"})
    here, there = Host(session, "here"), Host(session, "there")
    assert here.complete() == ["a"]
    here.end(here.claim()["b"].attempt, code=1)
    assert here.complete() == ["REPORT"]
    archive.skip("b@2")
    before = folder(archive, 2)
    assert unneeded(archive, before) == {before}
    reports.update_report(session, RunId(archive.run_id(2)), "ann")
    claimed = there.claim()["REPORT"]
    assert there.take(claimed) == "there"
    there.end(claimed.attempt)
    assert folder(archive, 2) != before


def test_what_failed_or_was_canceled_keeps_its_folder_until_somebody_decides(session: Session) -> None:
    archive = an_archive(session)
    tasks = {"a": "scratch: run", "b": "scratch: run\ndepends: [a]"}
    for _ in range(4):
        archive.commit(tasks)
    here = Host(session, "here")
    assert here.complete() == ["a"] * 4
    for claimed in here.claims():
        here.end(claimed.attempt, code=1)
    folders = [folder(archive, number) for number in range(2, 6)]
    assert unneeded(archive, *folders) == set()
    archive.skip("b@2")  # waived
    deletion.delete_run(session, RunId(archive.run_id(3)), "ann")
    purge.purge_runs(session, [RunId(archive.run_id(4))], "ann", "because")
    archive.retry("b@5")
    assert unneeded(archive, *folders) == set(folders[:3])
    assert here.complete() == ["b"]
    assert unneeded(archive, *folders) == set(folders)


def test_the_folder_of_an_item_goes_when_the_item_has_completed(session: Session) -> None:
    archive = an_archive(session)
    steps = {"fetch": "", "store": "depends: [fetch]"}
    archive.commit({name: f"foreach: [a, b, c]\nscratch: item\n{more}" for name, more in steps.items()})
    here = Host(session, "here")
    here.complete()
    claims = here.claim()
    a, b, c = (folder(archive, 2, key) for key in "abc")
    here.end(claims["store/a"].attempt)
    assert unneeded(archive, a, b, c) == {a}
    here.end(claims["store/b"].attempt, code=1)
    assert unneeded(archive, b, c) == set()
    deletion.delete_item(session, RunId(archive.run_id(2)), "b", "ann")
    assert unneeded(archive, b, c) == {b}
    here.end(claims["store/c"].attempt)
    assert unneeded(archive, c) == {c}


def test_a_task_that_comes_back_finds_that_its_folder_was_removed(session: Session) -> None:
    """It may run anywhere then, as there is nothing that it could find."""
    archive = an_archive(session)
    archive.commit({"a": "scratch: run", "b": "scratch: run\ndepends: [a]\nhold: true"})
    here, there = Host(session, "here"), Host(session, "there")
    here.complete()
    deletion.delete_run(session, RunId(archive.run_id(2)), "ann")
    assert unneeded(archive, folder(archive, 2)) == {folder(archive, 2)}
    deletion.undelete_run(session, RunId(archive.run_id(2)), "ann")
    holds.release(session, archive.task("b@2"), "ann")
    claimed = there.claim()["b"]
    found = scratch.take(session, there.process, "there", claimed.attempt)
    assert found is not None
    assert found.is_removed


def test_a_retry_and_the_end_of_a_folder_take_turns(session: Session) -> None:
    """Whatever comes first: a folder that is removed is never one that a task is about to use."""
    archive = an_archive(session)
    archive.commit({"a": "scratch: run"})
    here = Host(session, "here")
    here.end(here.claim()["a"].attempt, code=1)
    attempt = archive.sql("select attempt_id from task where name = 'a'")[0]["attempt_id"]
    archive.retry("a@2")
    claimed = here.claim()["a"]
    assert claimed.attempt != attempt
    here.take(claimed)
    its = folder(archive, 2)
    with session.database.transaction() as holder:
        holder.execute("select from archive where id = %s for no key update", [archive.id])
        here_ends = Outcome(claimed.attempt, End.EXITED, 0)
        assert finish.finish(session, here.process, [here_ends], 0.0)[claimed.attempt] is Receipt.BUSY
        assert unneeded(archive, its) == set()
    here.end(claimed.attempt)
    with session.database.transaction() as holder:
        holder.execute("select from archive where id = %s for no key update", [archive.id])
        assert unneeded(archive, its) == set(), "a busy archive's folders wait"
    assert unneeded(archive, its) == {its}


def test_doctor_names_the_largest_folders_where_they_take_too_much(session: Session) -> None:
    archive = an_archive(session)
    for _ in range(5):
        archive.commit({"a": "scratch: run", "b": "hold: true"})
    here = Host(session, "here", limit=1000)
    here.complete()
    sizes = {folder(archive, number): 100 * number for number in range(2, 7)}
    scratch.measured(session, {id: size // 10 for id, size in sizes.items()})
    assert examine(session).findings == []
    scratch.measured(session, sizes)
    findings = examine(session).findings
    assert [one.name for one in findings] == ["papers@6", "papers@5", "papers@4"]
    assert findings[0].what == (
        "its scratch folder takes 600 bytes on machine-here, where all of them take 2000 bytes and scratch_limit is 1000 bytes: no other is made there"
    )
    # Without room nothing is said of where the folder is, and another host may have it.
    archive.commit({"a": "scratch: run"})
    attempt = here.claim()["a"].attempt
    assert scratch.take(session, here.process, "here", attempt, may_begin=False) is None
    here.end(attempt, End.STOPPED, None)
    assert list(Host(session, "there").claim()) == ["a"]
    scratch.measured(session, dict.fromkeys(sizes, 1))


# --- Where it is gone ------------------------------------------------------------------------------------------------


def retry_from(archive: AnArchive, number: int, name: str, **options: Any) -> list[int]:
    return redo.retry_from(archive.session, RunId(archive.run_id(number)), name, "ann", **options).tasks


def test_a_run_starts_at_the_first_task_of_its_folder_where_the_host_is_gone(session: Session) -> None:
    archive = an_archive(session)
    archive.commit(
        {
            "before": "",
            "a": "scratch: run\ndepends: [before]",
            "b": "scratch: run\ndepends: [a]",
            "c": "scratch: run\ndepends: [b]",
        }
    )
    here, there = Host(session, "here"), Host(session, "there")
    assert [here.complete() for _ in range(2)] == [["before"], ["a"]]
    here.end(here.claim()["b"].attempt, code=1)
    # While the host is there, what failed goes on in its folder.
    retry_from(archive, 2, "b")
    assert why(archive, "b@2").kind is Why.ABOUT_TO_START
    here.end(here.claim()["b"].attempt, code=1)
    claim.unregister(session, here.process)
    with pytest.raises(
        Conflict,
        match=re.escape(
            "which is on a host without a running task manager; a left files in it. Start at its first task: arkqueue retry papers@2 --from a"
        ),
    ):
        retry_from(archive, 2, "b")
    archive.retry("b@2")
    told = why(archive, "b@2")
    assert (told.kind, told.commands) == (Why.NO_SCRATCH, ["arkqueue retry papers@2 --from a"])
    assert there.claims() == []
    retry_from(archive, 2, "a")
    assert [there.complete() for _ in range(3)] == [["a"], ["b"], ["c"]]
    assert examine(session).findings == []


def test_an_item_starts_anew_and_no_other_item_does(session: Session) -> None:
    archive = an_archive(session)
    steps = {"fetch": "", "store": "depends: [fetch]"}
    archive.commit({name: f"foreach: [a, b/c]\nscratch: item\n{more}" for name, more in steps.items()})
    here, there = Host(session, "here"), Host(session, "there")
    here.complete()
    for claimed in here.claims():
        here.end(claimed.attempt, code=1)
    claim.unregister(session, here.process)
    with pytest.raises(Conflict, match=re.escape("arkqueue retry 'papers@2/*/b%2Fc' --from fetch")):
        retry_from(archive, 2, "store", item="b/c")
    retry_from(archive, 2, "fetch", item="b/c")
    assert [there.complete() for _ in range(2)] == [["fetch/b/c"], ["store/b/c"]]
    archive.retry("store/a@2")
    assert why(archive, "store/a@2").commands == ["arkqueue retry 'papers@2/*/a' --from fetch"]


def test_a_folder_that_was_removed_is_made_anew_by_its_first_task_alone(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "scratch: run", "b": "scratch: run\ndepends: [a]", "free": "depends: [b]"})
    here = Host(session, "here")
    for _ in range(3):
        here.complete()
    before = folder(archive, 2)
    assert unneeded(archive, before) == {before}
    with pytest.raises(Conflict, match="which was removed; a left files in it"):
        retry_from(archive, 2, "b")
    retry_from(archive, 2, "free")  # has no need of it
    assert here.complete() == ["free"]
    retry_from(archive, 2, "a")
    assert [here.complete() for _ in range(3)] == [["a"], ["b"], ["free"]]
    assert folder(archive, 2) != before


def test_a_retry_of_one_task_is_refused_where_others_have_left_something_in_a_folder_that_was_removed(
    session: Session,
) -> None:
    archive = an_archive(session)
    archive.commit({"a": "scratch: run", "b": "scratch: run\ndepends: [a]"})
    here = Host(session, "here")
    here.complete()
    here.end(here.claim()["b"].attempt, code=1)
    scratch.lose(session, folder(archive, 2))
    with pytest.raises(Conflict, match="papers@2/b: needs the scratch folder of papers@2, which was removed"):
        archive.retry("b@2")
    told = why(archive, "b@2")
    assert "Its scratch folder is gone" in told.text
    assert told.commands[:2] == ["arkqueue logs papers@2/b", "arkqueue retry papers@2 --from a"]
    # Nobody has left anything for the first one.
    archive.commit({"a": "scratch: run"})
    here.end(here.claim()["a"].attempt, code=1)
    assert "arkqueue retry papers@3/a" in why(archive, "a@3").commands
    archive.retry("a@3")
    assert here.complete() == ["a"]


@pytest.mark.parametrize("how", ["removed", "away"])
def test_where_later_revisions_have_gone_on_the_first_task_of_a_lost_folder_is_named_with_the_options_it_needs(
    session: Session, how: str
) -> None:
    archive = an_archive(session)
    tasks = {"a": "scratch: run\non_lost: fail", "b": "scratch: run\ndepends: [a]"}
    archive.commit(tasks)
    here, there = Host(session, "here"), Host(session, "there")
    here.complete()
    here.end(here.claim()["b"].attempt, code=1)
    archive.commit(tasks)
    assert [there.complete() for _ in range(2)] == [["a"], ["b"]]
    if how == "removed":
        scratch.lose(session, folder(archive, 2))
    else:
        claim.unregister(session, here.process)
    again = "arkqueue retry papers@2 --from a --from-start --force"
    with pytest.raises(Conflict) as refused:
        retry_from(archive, 2, "b", force=True)
    said = f"Start at its first task: {again}. It needs --force, because later revisions have gone on"
    assert refused.value.remedy == said
    if how == "away":
        archive.retry("b@2", force=True)
    told = explain(session, archive.task("b@2"))
    assert again in told.commands
    assert "This needs --force, because later revisions have gone on." in told.text
    retry_from(archive, 2, "a", from_start=True, force=True)
    assert [there.complete() for _ in range(2)] == [["a"], ["b"]]


def test_a_first_task_that_is_lost_with_its_host_runs_on_another_one(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "scratch: run", "b": "scratch: run\ndepends: [a]", "c": "scratch: run"})
    here, there = Host(session, "here"), Host(session, "there")
    claimed = here.claim(1)["a"]
    here.take(claimed)
    # Its task manager is back: it runs again in its folder.
    here.end(claimed.attempt, End.LOST, None)
    assert there.claims() == []
    claimed = here.claim(1)["a"]
    claim.unregister(session, here.process)
    here.end(claimed.attempt, End.LOST, None)
    assert sorted(there.claim()) == ["a", "c"]
    assert examine(session).findings == []


def test_a_task_that_waits_for_its_lock_need_not_wait_for_the_host_of_a_lost_task(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "scratch: run", "b": "scratch: run\nlock: tex"})
    here, there = Host(session, "here"), Host(session, "there")
    claimed = here.claim(1)["a"]
    here.take(claimed)
    claim.unregister(session, here.process)
    locks.judge_all(session)
    assert archive.state("b@2") == "waiting"
    here.end(claimed.attempt, End.LOST, None)
    assert sorted(there.claim()) == ["a", "b"]


def test_explain_says_that_the_labels_are_missing_beside_the_folder(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "scratch: run", "b": "scratch: run\ndepends: [a]\nruns_on: [bee]"})
    here = Host(session, "here")
    Host(session, "there", "bee")
    here.complete()
    told = why(archive, "b@2")
    assert told.kind is Why.NO_LABEL
    assert "no task manager beside its scratch folder has the label bee (`runs_on`)" in told.text
    assert told.text.endswith("Restart one of them with --label bee added to its labels.")


def test_status_does_not_offer_a_retry_without_the_folder(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "scratch: run", "b": "scratch: run\ndepends: [a]"})
    here = Host(session, "here")
    here.complete()
    here.end(here.claim()["b"].attempt, code=1)
    assert [need.verb for need in needs_of(session, None, [], []).lines] == ["retry"]
    archive.sql("update scratch set removed_at = clock_timestamp()")
    (need,) = needs_of(session, None, [], []).lines
    assert (need.verb, need.command) == ("", "arkqueue explain papers@2/b")
    assert why(archive, "b@2").commands[1] == "arkqueue retry papers@2 --from a"


def test_status_names_the_only_label_that_no_task_manager_has(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"c": "runs_on: gpu"})
    Host(session, "here")
    archive.sql("update task set ready_at = ready_at - interval '1 h'")
    (label,) = needs_of(session, None, [], []).lines
    assert label.text == "is ready, and no task manager has the label gpu"


def test_status_names_ready_tasks_that_no_running_task_manager_can_run(session: Session) -> None:
    archive = an_archive(session)
    listed = "foreach: [x, y]\nscratch: item"
    archive.commit({"a": listed, "b": f"{listed}\ndepends: [a]", "c": "runs_on: [gpu, tex]"})
    here = Host(session, "here")
    Host(session, "there", "gpu")
    here.complete()
    assert needs_of(session, None, [], []).lines == [], "they have just become ready"
    archive.sql("update task set ready_at = ready_at - interval '1 h'")
    (labels,) = needs_of(session, None, [], []).lines
    assert (labels.name, labels.text) == ("papers@2/c", "is ready, and no task manager has the labels gpu, tex")
    archive.sql("update task_manager set seen_at = seen_at - interval '1 h' where host = 'here'")
    folder, labels = sorted(needs_of(session, None, [], []).lines, key=lambda need: need.name)
    assert (folder.name, labels.name) == ("papers@2/b/x", "papers@2/c")
    assert (
        folder.text
        == "is ready like 1 more, and no task manager on machine-here (here), which has its folder, is running"
    )
    assert folder.command == "arkqueue explain papers@2/b/x"
    pauses.pause(session, ArchiveId(archive.id), "", "ann")
    assert needs_of(session, None, [], []).lines == []


def test_explain_warns_of_a_second_run_of_a_command_that_is_meant_to_run_once(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"deposit": "on_lost: fail"})
    here = Host(session, "here")
    here.end(here.claim()["deposit"].attempt, End.LOST, None)
    assert archive.state("deposit@2") == "failed"
    told = why(archive, "deposit@2")
    assert told.text.endswith(
        "Find out, too, whether its command had done its work: it is meant to run once, and a retry runs it again."
    )
    assert told.commands[1:] == [
        "arkqueue retry papers@2/deposit --from-start", "arkqueue skip papers@2/deposit", "arkqueue skip papers@2/deposit --as-completed",
    ]  # fmt: skip
    (need,) = needs_of(session, None, [], []).lines
    assert (need.verb, need.command) == ("", "arkqueue explain papers@2/deposit")


def test_a_later_task_that_is_lost_waits_for_its_host(session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": "scratch: run", "b": "scratch: run\ndepends: [a]"})
    here, there = Host(session, "here"), Host(session, "there")
    here.complete()
    claimed = here.claim()["b"]
    claim.unregister(session, here.process)
    here.end(claimed.attempt, End.LOST, None)
    assert there.claims() == []
    told = why(archive, "b@2")
    assert told.commands == ["arkqueue retry papers@2 --from a"]
    retry_from(archive, 2, "a")
    assert [there.complete() for _ in range(2)] == [["a"], ["b"]]


def test_a_first_task_that_waits_for_its_host_is_canceled_and_started_anew(session: Session) -> None:
    """By the commands that explain gives."""
    archive = an_archive(session)
    archive.commit({"a": "scratch: run", "b": "scratch: run\ndepends: [a]"})
    here, there = Host(session, "here"), Host(session, "there")
    claimed = here.claim()["a"]
    here.take(claimed)
    here.end(claimed.attempt, End.STOPPED, None)
    claim.unregister(session, here.process)
    assert why(archive, "a@2").commands == ["arkqueue cancel papers@2/a", "arkqueue retry papers@2 --from a"]
    archive.cancel("a@2")
    retry_from(archive, 2, "a")
    assert [there.complete() for _ in range(2)] == [["a"], ["b"]]


def test_a_part_that_begins_behind_a_folder_that_was_removed_is_refused(session: Session) -> None:
    archive = an_archive(session)
    archive.commit(CHAIN)
    here, there = Host(session, "here"), Host(session, "there")
    assert here.complete() == ["fetch"]
    assert (there.complete(), here.complete()) == (["other"], ["unpack"])
    run = RunId(archive.run_id(2))
    redo.retry_from(session, run, "unpack", "ann")
    assert (there.complete(), here.complete()) == ([], ["unpack"]), "the folder is still there"
    its = folder(archive, 2)
    assert unneeded(archive, its) == {its}
    removed = (
        r"papers@2: needs the scratch folder of papers@2, which was removed; .* arkqueue retry papers@2 --from fetch$"
    )
    with pytest.raises(Conflict, match=removed):
        redo.retry_from(session, run, "unpack", "ann", force=True)
    redo.retry_from(session, run, "fetch", "ann")
    assert there.complete() == ["fetch"], "on any host, with a new folder"
    assert (here.complete(), there.complete()) == (["other"], ["unpack"])


def test_the_first_task_of_a_folder_runs_elsewhere_when_its_host_is_gone(session: Session) -> None:
    archive = an_archive(session)
    chain = {"fetch": "scratch: item\nforeach: [a, b]", "unpack": "scratch: item\nforeach: [a, b]\ndepends: [fetch]"}
    archive.commit(chain)
    here, there = Host(session, "here"), Host(session, "there")
    assert (here.complete(slots=1), there.complete(slots=1)) == (["fetch/a"], ["fetch/b"])
    claim.unregister(session, here.process)
    run = RunId(archive.run_id(2))
    assert there.complete() == ["unpack/b"]
    assert why(archive, "unpack/a@2").kind is Why.NO_SCRATCH
    redo.retry_from(session, run, "fetch", "ann", item="a")
    assert there.complete() == ["fetch/a"]
    assert there.complete() == ["unpack/a"]


def test_a_folder_that_is_away_is_left_behind_by_force_if_later_revisions_have_gone_on(session: Session) -> None:
    archive = an_archive(session)
    files = {"a": "scratch: run", "b": "scratch: run\ndepends: [a]"}
    here, there = Host(session, "here"), Host(session, "there")
    archive.commit(files)
    assert here.complete() == ["a"]
    claimed = here.claim()["b"]
    archive.commit(files)
    assert [there.complete() for _ in range(2)] == [["a"], ["b"]]
    claim.unregister(session, here.process)
    here.end(claimed.attempt, End.LOST, None)
    assert why(archive, "b@2").commands == ["arkqueue retry papers@2 --from a --force"]
    with pytest.raises(Conflict, match="--force"):
        retry_from(archive, 2, "a")
    assert retry_from(archive, 2, "a", force=True)
