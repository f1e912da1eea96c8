"""Scratch folders (design 5.37): which host has one, and which tasks are claimed there alone."""

from __future__ import annotations

import threading

from arkqueue.db.session import Session
from arkqueue.model import AttemptId, Claim, End, Outcome, Receipt
from arkqueue.queue import claim, finish, scratch
from arkqueue.views.doctor import examine
from arkqueue.views.explain import explain
from arkqueue.views.reasons import Reason, Why
from tests.builders import AnArchive, an_archive

CHAIN = {"fetch": "scratch: run", "unpack": "scratch: run\ndepends: [fetch]", "other": "depends: [fetch]"}


class Host:
    """The only task manager of a host."""

    def __init__(self, session: Session, name: str, *labels: str) -> None:
        self.session, self.name, self.process, self.labels = session, name, f"manager of {name}", labels
        claim.register(session, self.process, name, f"machine-{name}", 8, labels=labels, store=name)

    def claim(self, slots: int = 9) -> dict[str, Claim]:
        found = claim.claim(self.session, self.process, self.name, slots, labels=self.labels, store=self.name)
        return {f"{one.name}/{one.item}".rstrip("/"): one for one in found}

    def take(self, claimed: Claim) -> str:
        """Where the folder of a task is."""
        found = scratch.take(self.session, self.process, self.name, claimed.attempt)
        assert found is not None
        return found.store

    def end(self, attempt: AttemptId, end: End = End.EXITED, code: int | None = 0) -> None:
        assert finish.finish(self.session, self.process, [Outcome(attempt, end, code)])[attempt] is Receipt.RECORDED

    def complete(self, *, slots: int = 9) -> list[str]:
        """Claim, take the folders of what has one, and complete it."""
        claims = self.claim(slots)
        for claimed in claims.values():
            scratch.take(self.session, self.process, self.name, claimed.attempt)
            self.end(claimed.attempt)
        return sorted(claims)


def why(archive: AnArchive, key: str) -> Reason:
    return explain(archive.session, archive.task(key)).reasons[0]


def test_tasks_with_the_folder_of_a_run_are_claimed_where_the_first_has_made_it(session: Session) -> None:
    archive = an_archive(session)
    archive.commit(CHAIN)
    here, there = Host(session, "here"), Host(session, "there")
    assert here.complete() == ["fetch"]
    assert there.complete() == ["other"]
    assert here.complete() == ["unpack"]


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
    # What was ready is bound with it; what was claimed elsewhere is handed back, and bound then.
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
