"""The table of moves, every state × event, and what the end of an attempt means."""

from __future__ import annotations

import itertools

import pytest

from arkqueue.model import LONGEST_DURATION, End, Retries, as_retry_after
from arkqueue.states import MOVES, SETTLED, UNSETTLED, Event, IllegalMove, State, expand, move
from arkqueue.verdicts import MOST_LOSSES, Circumstances, completes, verdict

# Design 4, said a second time: state → the events
# that are possible in it and the state they lead to.
EXPECTED = {
    "waiting": {"pass": "completed", "enable": "ready", "fault": "failed", "hold": "held", "cancel": "canceled", "skip": "skipped"},
    "held": {"release": "waiting", "cancel": "canceled", "skip": "skipped"},
    "ready": {"claim": "running", "hold": "held", "unmeet": "waiting", "give_back": "waiting", "cancel": "canceled", "skip": "skipped"},
    "running": {
        "complete": "completed", "fail": "failed", "reject": "rejected", "defer": "deferred", "stop": "canceled",
        "hand_back": "waiting", "restart": "waiting", "rerun": "waiting",
    },
    "deferred": {"due": "waiting", "redo": "waiting", "cancel": "canceled", "skip": "skipped"},
    "completed": {"redo": "waiting", "update": "waiting"},
    "failed": {"redo": "waiting", "retry": "waiting", "update": "waiting"},
    "rejected": {"redo": "waiting", "update": "waiting"},
    "canceled": {"redo": "waiting", "retry": "waiting", "update": "waiting"},
    "skipped": {"redo": "waiting", "retry": "waiting", "reopen": "waiting"},
}  # fmt: skip


@pytest.mark.parametrize(("state", "event"), [*itertools.product(State, Event)])
def test_every_state_allows_exactly_the_events_of_the_design(state: State, event: Event) -> None:
    target = EXPECTED[state].get(event)
    if target is None:
        with pytest.raises(IllegalMove):
            move(state, event)
    else:
        assert move(state, event) == target


def test_nothing_leaves_a_final_state_but_by_a_persons_retry_and_report_by_an_update() -> None:
    leaving = {event for event, m in MOVES.items() if m.sources & SETTLED}
    assert leaving == {Event.RETRY, Event.REOPEN, Event.REDO, Event.UPDATE}


def test_the_only_way_to_ready_is_from_waiting() -> None:
    assert {s for m in MOVES.values() if m.target is State.READY for s in m.sources} == {State.WAITING}


def test_guards_for_sql_name_the_states_of_the_table() -> None:
    assert expand("from", "cancel") == "state in ('waiting', 'held', 'ready', 'deferred')"
    assert expand("to", "cancel") == "'canceled'::task_state"
    assert len(SETTLED | UNSETTLED) == len(State)


def circumstances(**changes: object) -> Circumstances:
    values: dict[str, object] = {
        "stop": None, "failures": 0, "deferrals": 0, "losses": 0, "retries": Retries(), "on_lost": "rerun"
    }  # fmt: skip
    return Circumstances(**(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("end", "code", "changes", "event"),
    [
        (End.EXITED, 0, {}, Event.COMPLETE),
        (End.EXITED, 65, {}, Event.REJECT),
        (End.EXITED, 65, {"retries": Retries(3)}, Event.REJECT),
        (End.EXITED, 75, {}, Event.DEFER),
        (End.EXITED, 1, {}, Event.FAIL),
        (End.EXITED, 137, {}, Event.FAIL),
        (End.EXITED, 1, {"retries": Retries(1)}, Event.DEFER),
        (End.EXITED, 1, {"retries": Retries(1), "failures": 1}, Event.FAIL),
        (End.TIMED_OUT, 143, {}, Event.FAIL),
        (End.TIMED_OUT, 0, {}, Event.FAIL),
        (End.TIMED_OUT, 143, {"retries": Retries(2)}, Event.DEFER),
        (End.NOT_STARTED, None, {}, Event.FAIL),
        (End.UNREACHABLE, None, {}, Event.DEFER),
        (End.UNREACHABLE, None, {"failures": 9, "deferrals": 9}, Event.DEFER),
        (End.UNREACHABLE, None, {"stop": "cancel"}, Event.STOP),
        (End.WITHHELD, None, {"failures": 9, "deferrals": 9}, Event.DEFER),
        (End.WITHHELD, None, {"stop": "cancel"}, Event.STOP),
        (End.STOPPED, 143, {}, Event.HAND_BACK),
        (End.STOPPED, None, {"on_lost": "fail", "failures": 9, "losses": MOST_LOSSES}, Event.HAND_BACK),
        (End.STOPPED, 143, {"stop": "cancel"}, Event.STOP),
        (End.STOPPED, 143, {"stop": "restart"}, Event.RESTART),
        (End.LOST, None, {}, Event.RERUN),
        (End.LOST, None, {"losses": MOST_LOSSES - 1}, Event.RERUN),
        (End.LOST, None, {"losses": MOST_LOSSES}, Event.FAIL),
        (End.LOST, None, {"on_lost": "fail"}, Event.FAIL),
        (End.LOST, None, {"stop": "cancel"}, Event.STOP),
    ],
)
def test_what_the_end_of_an_attempt_means(end: End, code: int | None, changes: dict[str, object], event: Event) -> None:
    assert verdict(end, code, circumstances(**changes)).event is event
    assert completes(end, code) is (event is Event.COMPLETE)


@pytest.mark.parametrize(("code", "event"), [(0, Event.COMPLETE), (1, Event.FAIL), (65, Event.REJECT)])
def test_an_attempt_that_ended_before_the_signal_keeps_its_outcome(code: int, event: Event) -> None:
    assert verdict(End.EXITED, code, circumstances(stop="cancel")).event is event


@pytest.mark.parametrize(("code", "changes"), [(75, {}), (1, {"retries": Retries(2)})])
def test_a_canceled_task_is_not_tried_again(code: int, changes: dict[str, object]) -> None:
    assert verdict(End.EXITED, code, circumstances(stop="cancel", **changes)).event is Event.STOP


def test_delays_grow_by_their_factor_and_have_a_limit() -> None:
    retries = Retries(max=99, delay=10, factor=3)
    assert [verdict(End.EXITED, 1, circumstances(retries=retries, failures=n)).delay for n in (0, 1, 2)] == [10, 30, 90]
    assert verdict(End.EXITED, 1, circumstances(retries=retries, failures=90)).delay == 6 * 3600
    delays = [verdict(End.UNREACHABLE, None, circumstances(deferrals=n)).delay for n in (0, 1, 2, 3, 4, 90)]
    assert delays == [60, 120, 240, 480, 600, 600]


def test_a_deferral_waits_a_minute_and_doubles_to_an_hour_whatever_retries_say() -> None:
    for retries in (Retries(), Retries(max=3, delay=5, factor=9)):
        told = [verdict(End.EXITED, 75, circumstances(retries=retries, deferrals=n)) for n in (0, 1, 2, 5, 6, 90)]
        assert [one.delay for one in told] == [60, 120, 240, 1920, 3600, 3600]


def test_a_deferral_waits_as_long_as_the_attempt_asks_for() -> None:
    assert verdict(End.EXITED, 75, circumstances(deferrals=3, retry_after=7200.0)).delay == 7200
    assert verdict(End.EXITED, 1, circumstances(retries=Retries(1, delay=5), retry_after=7200.0)).delay == 5


@pytest.mark.parametrize("retry_after", [None, 9000.0])
def test_the_last_attempt_is_due_at_the_deadline_and_fails_when_it_is_deferred_again(retry_after: float | None) -> None:
    late = circumstances(deferrals=9, retry_after=retry_after, time_left=50.0)
    assert (verdict(End.EXITED, 75, late).event, verdict(End.EXITED, 75, late).delay) == (Event.DEFER, 50)
    for seconds in (0.0, -99.0):
        over = circumstances(time_left=seconds)
        assert verdict(End.EXITED, 75, over).event is Event.FAIL
        assert verdict(End.EXITED, 0, over).event is Event.COMPLETE
        assert verdict(End.UNREACHABLE, None, over).event is Event.DEFER
        assert verdict(End.EXITED, 75, circumstances(time_left=seconds, stop="cancel")).event is Event.STOP


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("900", 900), (900, 900), ("1.5", 1.5), (0, 1), ("0.001", 1), ("9999999999", LONGEST_DURATION)]
    + [(value, None) for value in ("-1", "", "5m", "1e3", "nan", "٣", True, None, [1], float("inf"), "9" * 19)],
)
def test_seconds_that_an_attempt_asks_for(value: object, seconds: float | None) -> None:
    assert as_retry_after(value) == seconds
