"""The statuses that `workflows-examples/deposit/statuses.py` computes. They agree with each other
for every record of arkqueue, and a terminal status stays.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from deposit.statuses import COPIES, STEPS, TERMINAL, Deposit, deposit, submission
from hypothesis import given
from hypothesis import strategies as st

STATES = ["waiting", "held", "ready", "running", "deferred", "completed", "failed", "rejected", "canceled", "skipped"]
STATUSES = [None, "SUBMITTED", "ACCEPTED", "REJECTED", "FAILED"]
RUN: dict[str, Any] = {"full_name": "deposits@1.2", "faults": []}

ends = st.one_of(
    st.tuples(st.just("exited"), st.sampled_from([0, 1, 65, 75])),
    st.tuples(st.sampled_from(["lost", "timeout", "canceled", "error"]), st.none()),
    st.just((None, None)),
)


def an_attempt(end: str | None, code: int | None, **outputs: str) -> dict[str, Any]:
    return {
        "end": end,
        "exit_code": code,
        "outputs": outputs or None,
        "message": "",
        "started_at": "2026-05-04T12:00:00Z",
    }


def a_task(name: str, state: str, *attempts: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "state": state,
        "history": list(attempts),
        "full_name": f"deposits@1.2/{name}/vault",
        "why": "",
    }


def tasks(**given: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The tasks of an item: those that are not given wait."""
    return {name: given.get(name) or a_task(name, "waiting") for name in STEPS}


YES = an_attempt("exited", 0)
records = st.fixed_dictionaries(
    {
        name: st.builds(
            lambda name, state, attempts: a_task(name, state, *(an_attempt(*one) for one in attempts)),
            st.just(name), st.sampled_from(STATES), st.lists(ends, max_size=4),
        )
        for name in STEPS
    }
)  # fmt: skip


@given(records)
def test_a_copy_follows_from_its_deposit_whatever_the_record_is(record: dict[str, dict[str, Any]]) -> None:
    found = deposit("vault", record)
    assert found.status in STATUSES
    assert found.copy == {"SUBMITTED": "IN_PROGRESS", "ACCEPTED": "COMPLETE", "REJECTED": "REJECTED"}.get(
        found.status or ""
    )


@given(records, records)
def test_a_terminal_status_stays_whatever_comes_later(
    record: dict[str, dict[str, Any]], later: dict[str, dict[str, Any]]
) -> None:
    before = deposit("vault", record)
    history = [one for one in record["outcome"]["history"] if one["end"]] + later["outcome"]["history"]
    after = deposit("vault", {**later, "outcome": {**later["outcome"], "history": history}})
    if before.status in TERMINAL:
        assert (after.status, after.copy, after.message) == (before.status, before.copy, before.message)


def test_a_submission_is_accepted_or_rejected_where_all_of_its_deposits_are() -> None:
    check = a_task("check", "completed", YES)
    for statuses in product(STATUSES, repeat=3):
        deposits = [Deposit(str(n), status, COPIES.get(status or ""), "", "", "") for n, status in enumerate(statuses)]
        found = submission("s-1", RUN, check, deposits)
        all_alike = statuses[0] if len({*statuses}) == 1 else None
        assert found.status == (all_alike if all_alike in TERMINAL else "IN_PROGRESS")
        assert found.deposits == deposits


def test_a_submission_that_failed_has_no_deposits() -> None:
    check = a_task("check", "failed", an_attempt("exited", 1, message="submission s-1 has no files"))
    found = submission("s-1", RUN, check, [Deposit("vault", "FAILED", None, "", "", "")])
    assert (found.status, found.deposits, found.message) == ("FAILED", [], "submission s-1 has no files")
    faulty = submission("s-1", {**RUN, "faults": [{"message": "unknown field 'comand'"}]}, None, [])
    assert (faulty.status, faulty.message) == ("FAILED", "unknown field 'comand'")


def test_a_submission_that_has_not_begun_is_not_started() -> None:
    assert submission("s-1", RUN, a_task("check", "held"), []).status == "NOT_STARTED"
    assert submission("s-1", RUN, a_task("check", "running", an_attempt(None, None)), []).status == "IN_PROGRESS"


def test_the_statuses_along_the_way_of_a_deposit() -> None:
    packaged = {"package": a_task("package", "completed", YES)}
    not_now = an_attempt("exited", 75, message="theses does not answer")
    said = an_attempt("exited", 1, message="theses answers 422: dc.rights is required")
    sent = {**packaged, "send": a_task("send", "completed", an_attempt("exited", 0, copy="http://x/1"))}
    verified = {**sent, "verify": a_task("verify", "completed", YES)}
    way = [
        ({}, None, ""),
        (packaged, None, ""),
        ({**packaged, "send": a_task("send", "deferred", not_now)}, None, "theses does not answer"),
        ({**packaged, "send": a_task("send", "failed", said)}, "FAILED", "theses answers 422: dc.rights is required"),
        ({**packaged, "send": a_task("send", "ready", said)}, None, "theses answers 422: dc.rights is required"),
        (sent, "SUBMITTED", ""),
        ({**sent, "verify": a_task("verify", "failed", said)}, "FAILED", "theses answers 422: dc.rights is required"),
        ({**verified, "outcome": a_task("outcome", "deferred", an_attempt("exited", 75, message="in review"))}, "SUBMITTED", "in review"),
        ({**verified, "outcome": a_task("outcome", "canceled")}, "FAILED", "canceled"),
        ({**verified, "outcome": a_task("outcome", "canceled", an_attempt("exited", 75, message="in review"))}, "FAILED", "canceled, after: in review"),
        ({**verified, "outcome": a_task("outcome", "completed", YES)}, "ACCEPTED", ""),
        ({**verified, "outcome": a_task("outcome", "rejected", an_attempt("exited", 65))}, "REJECTED", ""),
    ]  # fmt: skip
    for record, status, message in way:
        found = deposit("theses", tasks(**record))
        assert found.status == status, record
        assert message in found.message
    assert deposit("theses", tasks(**sent)).location == "http://x/1"


def test_a_lost_attempt_to_send_says_that_nothing_is_known() -> None:
    lost = {**an_attempt("lost", None), "message": "its task manager died"}
    found = deposit("vault", tasks(package=a_task("package", "completed", YES), send=a_task("send", "failed", lost)))
    assert found.status == "FAILED"
    assert found.message == (
        "it is not known whether vault has it (its task manager died): `arkqueue retry deposits@1.2/send/vault --from-start` asks before it sends"
    )


def test_a_task_that_a_person_waived_has_learned_nothing() -> None:
    failed = a_task("outcome", "failed", an_attempt("exited", 1)) | {"waived": True}
    record = tasks(package=a_task("package", "completed", YES), send=a_task("send", "completed", YES), verify=a_task("verify", "completed", YES), outcome=failed)  # fmt: skip
    assert deposit("vault", record).status == "FAILED"
