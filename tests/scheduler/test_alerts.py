"""Which alerts are sent, and when: each change once, bounded."""

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.scheduler import MINUTE
from tocsin import __version__
from tocsin.scheduler import alerts
from tocsin.scheduler.alerts import (
    ALERTS_PER_HOUR_MAX,
    attempted,
    delivered,
    due,
    heartbeat_due,
    is_undecided,
    message,
    observed,
    ring_at,
    send_at,
)
from tocsin.scheduler.health import TaskFacts, is_overdue
from tocsin.scheduler.types import Alert, AlertState, Health, HeartbeatState, TaskCondition
from tocsin.settings import Settings
from tocsin.upstream.windows import HOUR_MS, MINUTE_MS

NOW = 1_778_700_600_000
READY = Health(ready=True, state="ready", reasons=[], notes=[])
TROUBLE = Health(ready=False, state="overdue", reasons=["sweep is overdue"], notes=[])
OK = TaskCondition("ok", "complete 5 s ago")
PARTIAL = TaskCondition("partial", "not complete")
OVERDUE = TaskCondition("overdue", "late", "late")
FAILING = TaskCondition("failing", "fails", "fails")
TROUBLED = Alert(ready=False, state="failing", reasons=["sweep fails: <a & b>"], at=NOW, try_at=NOW)
WELL = Alert(ready=True, state="ready", reasons=[], at=NOW, try_at=NOW)


def health(*, ready: bool) -> Health:
    return READY if ready else TROUBLE


def sent(state: AlertState, now: int) -> AlertState:
    """The state after the alert that is due was delivered."""
    alert = due(state, now)
    assert alert is not None
    return delivered(attempted(state, alert, now), alert)


def test_an_unchanged_readiness_is_not_sent_again() -> None:
    """At the first start it counts as ready."""
    assert observed(AlertState(), READY, NOW) == AlertState()

    told = sent(observed(AlertState(), TROUBLE, NOW), NOW)
    assert observed(told, TROUBLE, NOW + HOUR_MS) == told


def test_each_edge_is_due_at_once() -> None:
    """With the state and the reasons of that moment."""
    state = observed(AlertState(), TROUBLE, NOW)
    assert due(state, NOW) == Alert(ready=False, state="overdue", reasons=["sweep is overdue"], at=NOW, try_at=NOW)

    state = observed(sent(state, NOW), READY, NOW + 1)
    assert due(state, NOW + 1) == Alert(ready=True, state="ready", reasons=[], at=NOW + 1, try_at=NOW + 1)


def test_an_undelivered_alert_is_tried_again_less_and_less_often() -> None:
    """After 1, 2, 4 … minutes, at most an hour; with the newest reasons and the time of the change."""
    state, now, waits = observed(AlertState(), TROUBLE, NOW), NOW, []
    for _ in range(9):
        alert = due(state, now)
        assert alert is not None
        state = attempted(state, alert, now)
        assert due(state, now) is None
        at = send_at(state, now)
        assert at is not None
        waits.append((at - now) // MINUTE_MS)
        now = at
    worse = observed(state, Health(ready=False, state="failing", reasons=["both"], notes=[]), now)

    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert worse.pending is not None
    assert (worse.pending.at, worse.pending.reasons, worse.pending.attempts) == (NOW, ["both"], 9)


def test_a_newer_edge_replaces_an_undelivered_one() -> None:
    """After an attempt nobody knows whether the receiver has the older one, so the newer one is sent."""
    state = observed(AlertState(), TROUBLE, NOW)
    alert = due(state, NOW)
    assert alert is not None
    tried = attempted(state, alert, NOW)

    newer = observed(tried, READY, NOW + 5)
    assert newer.pending == Alert(ready=True, state="ready", reasons=[], at=NOW + 5, try_at=NOW + 5)


def test_edges_that_cancel_out_before_the_first_attempt_are_not_sent() -> None:
    """There is nothing to take back."""
    assert observed(observed(AlertState(), TROUBLE, NOW), READY, NOW + 5) == AlertState()


def test_an_edge_during_the_exchange_is_sent_after_it() -> None:
    """The answer to the older alert does not end the newer one."""
    state = observed(AlertState(), TROUBLE, NOW)
    alert = due(state, NOW)
    assert alert is not None
    state = observed(attempted(state, alert, NOW), READY, NOW + 5)
    state = delivered(state, alert)

    assert state.sent_ready is False
    assert due(state, NOW + 5) is not None
    assert observed(state, TROUBLE, NOW + 6).pending is None  # and back again: the receiver knows that


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 20 * MINUTE_MS), st.booleans(), st.booleans()), max_size=80))
def test_whatever_happens_alerts_are_bounded_and_end_with_the_truth(steps: list[tuple[int, bool, bool]]) -> None:
    """At most six first attempts in any hour; and once it is calm and the receiver answers, it knows the state."""
    state, now, firsts, told = AlertState(), NOW, list[int](), [True]
    for wait_ms, ready, receiver_works in steps:
        now += wait_ms
        state = observed(state, health(ready=ready), now)
        while (alert := due(state, now)) is not None:
            firsts += [now] if alert.attempts == 0 else []
            state = attempted(state, alert, now)
            if receiver_works:
                state = delivered(state, alert)
                told.append(alert.ready)
        assert AlertState.from_json(state.to_json()) == state
    last = steps[-1][1] if steps else True
    while (at := send_at(state, now)) is not None:
        assert at - now <= HOUR_MS
        now = max(now, at)
        state = observed(state, health(ready=last), now)
        alert = due(state, now)
        if alert is not None:
            firsts += [now] if alert.attempts == 0 else []
            state = delivered(attempted(state, alert, now), alert)
            told.append(alert.ready)

    assert told[-1] == last
    for first, seventh in zip(firsts, firsts[ALERTS_PER_HOUR_MAX:], strict=False):
        assert seventh - first >= HOUR_MS


@given(st.lists(st.booleans(), max_size=30))
def test_a_working_receiver_never_hears_the_same_twice(course: list[bool]) -> None:
    """Alerts are sent on changes, so they alternate."""
    state, told, now = AlertState(), [True], NOW
    for ready in course:
        now += 11 * MINUTE_MS  # slow enough for the bound
        state = observed(state, health(ready=ready), now)
        if due(state, now) is not None:
            told.append(ready)
            state = sent(state, now)

    assert all(one != other for one, other in pairwise(told))
    assert told[-1] == (course[-1] if course else True)


def test_a_clock_that_was_set_back_delays_nothing() -> None:
    """A stored time far ahead counts as now."""
    state = observed(AlertState(), TROUBLE, NOW)
    alert = due(state, NOW)
    assert alert is not None
    state, earlier = attempted(state, alert, NOW), NOW - 30 * 24 * HOUR_MS

    assert due(state, earlier) is not None


@pytest.mark.parametrize(
    ("sent_at", "now", "expected"),
    [
        (None, NOW, True),
        (NOW, NOW, False),
        (NOW, NOW + MINUTE_MS - 1, False),
        (NOW, NOW + MINUTE_MS, True),
        (NOW, NOW - 1, True),  # the clock was set back
    ],
)
def test_a_heartbeat_is_sent_once_a_minute_at_most(sent_at: int | None, now: int, *, expected: bool) -> None:
    """Whatever the alarm and the clock do."""
    assert heartbeat_due(HeartbeatState(sent_at=sent_at), now) is expected


@pytest.mark.parametrize(
    ("state", "tasks", "running", "expected"),
    [
        (AlertState(), {"sweep": OVERDUE, "feed": OK}, {"sweep"}, True),
        (AlertState(), {"sweep": OVERDUE, "feed": OVERDUE}, {"sweep"}, False),
        (AlertState(), {"sweep": OVERDUE, "feed": FAILING}, {"sweep", "feed"}, False),
        (AlertState(), {"sweep": PARTIAL, "feed": OK}, {"sweep"}, False),
        (AlertState(sent_ready=False), {"sweep": OVERDUE}, {"sweep"}, False),
        (observed(AlertState(), TROUBLE, NOW), {"sweep": OVERDUE}, {"sweep"}, False),
    ],
)
def test_an_alert_waits_for_overdue_tasks_that_are_running(
    state: AlertState, tasks: dict[str, TaskCondition], running: set[str], *, expected: bool
) -> None:
    """Only if it can make the service ready again, and only before an alert was sent."""
    assert is_undecided(state, tasks, running) is expected


def test_reasons_are_bounded() -> None:
    """A thousand long sentences become ten short ones."""
    many = Health(ready=False, state="failing", reasons=["x" * 5_000] * 1_000, notes=[])
    pending = observed(AlertState(), many, NOW).pending

    assert pending is not None
    assert [len(reason) for reason in pending.reasons] == [300] * 10


@given(
    st.one_of(st.none(), st.integers(0, 10**8)),
    st.one_of(st.none(), st.integers(0, 10**8)),
    st.integers(1, 10**7),
    st.integers(0, 10**8),
)
def test_the_alarm_rings_when_a_task_becomes_overdue(
    complete_ago_ms: int | None, armed_ago_ms: int | None, cadence_ms: int, after_ms: int
) -> None:
    """Not a millisecond before, which would ring for nothing, and never in the past."""

    def facts(later_ms: int) -> TaskFacts:
        ages = [None if ago is None else ago + later_ms for ago in (complete_ago_ms, armed_ago_ms)]
        return TaskFacts("sweep", "Swap sweep", True, cadence_ms, ages[0], ages[1], 0, None, None, None, after_ms)

    at = ring_at(AlertState(), [facts(0)], NOW)

    if at is None:
        assert is_overdue(facts(0)) or complete_ago_ms is armed_ago_ms is None
    else:
        assert at > NOW
        assert is_overdue(facts(at - NOW))
        assert not is_overdue(facts(at - NOW - 1))


def test_no_alarm_is_needed_for_a_task_that_cannot_change_by_waiting() -> None:
    """Disabled, or overdue already."""
    facts = TaskFacts("sweep", "Swap sweep", True, MINUTE_MS, 5, 10, 0, None, None, None)

    assert ring_at(AlertState(), [facts], NOW) == NOW + 2 * MINUTE_MS - 5 + 1
    assert ring_at(AlertState(), [replace(facts, enabled=False)], NOW) is None
    assert ring_at(AlertState(), [replace(facts, complete_ago_ms=2 * MINUTE_MS + 1)], NOW) is None
    assert ring_at(AlertState(), [replace(facts, complete_ago_ms=None, armed_ago_ms=None)], NOW) is None


def body(settings: Settings, alert: Alert) -> Any:
    return json.loads(message(settings, alert)[1])


def test_the_generic_format() -> None:
    """Everything that a receiver needs, and an id that is the same for each attempt."""
    settings = Settings(alert_key="bearer-secret")
    expected = {
        "event": "not_ready",
        "id": f"tocsin-v1-{NOW}",
        "service": "tocsin",
        "instance": "v1",
        "state": "failing",
        "reasons": ["sweep fails: <a & b>"],
        "at": NOW,
        "version": __version__,
    }

    assert body(settings, TROUBLED) == expected
    assert body(settings, WELL)["event"] == "ready"
    assert message(settings, WELL)[0]["authorization"] == "Bearer bearer-secret"
    assert "authorization" not in message(Settings(), WELL)[0]


def test_the_format_of_slack() -> None:
    """Its three special characters are escaped."""
    settings = Settings(alert_format="slack")

    assert body(settings, TROUBLED) == {
        "text": ":red_circle: tocsin v1 is not ready (failing)\n• sweep fails: &lt;a &amp; b&gt;"
    }
    assert body(settings, WELL) == {"text": ":large_green_circle: tocsin v1 is ready again"}


def test_the_format_of_pagerduty() -> None:
    """The resolving event has the key of the triggering one; the routing key is in no header."""
    settings = Settings(alert_format="pagerduty", alert_key="routing-key", alert_name="tocsin-staging")
    trigger, resolve = body(settings, TROUBLED), body(settings, WELL)

    assert resolve == {"routing_key": "routing-key", "event_action": "resolve", "dedup_key": "tocsin-staging-v1"}
    assert (trigger["event_action"], trigger["dedup_key"]) == ("trigger", resolve["dedup_key"])
    assert trigger["payload"]["severity"] == "critical"
    assert trigger["payload"]["timestamp"].startswith("2026-")
    assert trigger["payload"]["summary"].startswith("tocsin-staging v1 is not ready (failing): sweep fails")
    assert message(settings, TROUBLED)[0] == {"content-type": "application/json"}


@pytest.mark.parametrize("format_", ["json", "slack", "pagerduty"])
def test_a_body_is_small(format_: str) -> None:
    """The longest alert has a few kilobytes."""
    settings = Settings(alert_format=format_, alert_key="a-key")
    longest = Alert(
        ready=False, state="failing", reasons=["é" * alerts.REASON_LENGTH_MAX] * alerts.REASONS_MAX, at=NOW, try_at=NOW
    )

    assert len(message(settings, longest)[1]) < 64_000


def pending(at: int, attempts: int = 0) -> Alert:
    return Alert(ready=False, state="failing", reasons=[], at=NOW, try_at=at, attempts=attempts)


def test_the_seventh_alert_of_an_hour_waits_until_the_first_is_an_hour_old() -> None:
    """Six changes, a minute apart, are sent at once; the seventh at the very end of that hour, then the eighth."""
    state, health = AlertState(), READY
    for minute in range(7):
        health = TROUBLE if health is READY else READY
        now = NOW + minute * MINUTE
        state = observed(state, health, now)
        if minute < 6:
            alert = due(state, now)
            assert alert is not None
            state = attempted(state, alert, now)
    now = NOW + 6 * MINUTE

    assert send_at(state, now) == NOW + HOUR_MS
    assert due(state, NOW + HOUR_MS - 1) is None
    seventh = due(state, NOW + HOUR_MS)
    assert seventh is not None
    later = observed(attempted(state, seventh, NOW + HOUR_MS), READY, NOW + HOUR_MS + 1)
    assert send_at(later, NOW + HOUR_MS + 1) == NOW + MINUTE + HOUR_MS


def test_an_alert_that_was_tried_waits_for_its_next_attempt_only() -> None:
    """Six others in the hour do not delay it further: it was counted when it was sent first."""
    sent_at = [NOW - n * MINUTE for n in range(6, 0, -1)]

    assert send_at(AlertState(pending=pending(NOW + MINUTE, attempts=1), sent_at=sent_at), NOW) == NOW + MINUTE
    assert send_at(AlertState(pending=pending(NOW), sent_at=sent_at), NOW) == NOW + 54 * MINUTE
    assert send_at(AlertState(pending=pending(NOW), sent_at=sent_at[1:]), NOW) == NOW


@pytest.mark.parametrize(
    ("oldest", "expected"),
    [(NOW - HOUR_MS, NOW), (NOW - HOUR_MS + 1, NOW + 1), (NOW, NOW + HOUR_MS - 5 * MINUTE), (NOW + 1, NOW)],
)
def test_only_alerts_of_the_last_hour_count(oldest: int, expected: int) -> None:
    """One that is exactly an hour old does not count, nor one in the future, left by a clock that was set back."""
    sent_at = sorted([oldest, *(NOW - n * MINUTE for n in range(5, 0, -1))])

    assert send_at(AlertState(pending=pending(NOW), sent_at=sent_at), NOW) == expected


def test_an_attempt_too_far_ahead_is_due_now() -> None:
    """An hour is the longest wait; a millisecond more counts as now."""
    assert send_at(AlertState(pending=pending(NOW + HOUR_MS, attempts=7)), NOW) == NOW + HOUR_MS
    assert send_at(AlertState(pending=pending(NOW + HOUR_MS + 1, attempts=7)), NOW) == NOW
    assert ring_at(AlertState(pending=pending(NOW + HOUR_MS, attempts=7)), [], NOW) == NOW + HOUR_MS
