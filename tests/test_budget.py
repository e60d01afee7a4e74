"""The budget never exceeds a window, lasts the month, and uses it up when there is demand."""

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.errors import UsageError
from tocsin.scheduler.budget import Budget, Plan
from tocsin.scheduler.cadence import Demand, cadences, overdraft
from tocsin.scheduler.month import DAY_MS, span_of
from tocsin.scheduler.settle import Note, settle
from tocsin.scheduler.windows import Moment, SlidingWindow
from tocsin.upstream.gate import Lane, LimitReading, WindowReading

MAY = span_of(1_778_700_600_000)
HOUR_MS = 3_600_000


@dataclass
class World:
    """A budget in a world where time, clocks, processes and headers do what they like."""

    plan: Plan
    wall_ms: int = MAY.starts_at
    true_ms: int = 0  # time as it passes, whatever clocks show
    booted_ms: int = 0
    budget: Budget = field(init=False)
    saved: Any = None
    grants: list[int] = field(default_factory=list)
    by_month: Counter[tuple[str, int | None]] = field(default_factory=Counter)
    month_limits: dict[tuple[str, int | None], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.budget = Budget.begin(self.plan, self.moment)

    @property
    def moment(self) -> Moment:
        return Moment(self.wall_ms, self.true_ms - self.booted_ms)

    def wait(self, ms: int) -> None:
        self.true_ms += ms
        self.wall_ms += ms

    def jump(self, ms: int) -> None:
        self.wall_ms = max(0, self.wall_ms + ms)

    def restart(self, new_steady_ms: int) -> None:
        self.booted_ms = self.true_ms - new_steady_ms
        self.budget = (
            Budget.begin(self.plan, self.moment)
            if self.saved is None
            else Budget.from_json(self.plan, json.loads(json.dumps(self.saved)), self.moment)
        )

    def call(self, lane: Lane) -> bool:
        if self.budget.ask(lane, self.moment) is not None:
            return False
        self.budget = self.budget.granted(lane, self.moment)
        self.saved = self.budget.to_json(self.moment)
        self.grants.append(self.true_ms)
        self.by_month[self.month_key] += 1
        self.check()
        return True

    def hear(
        self, reading: LimitReading | None, *, limited: bool = False, retry_after_ms: int | None = None
    ) -> list[Note]:
        self.budget, notes = settle(
            self.budget,
            reading,
            limited=limited,
            retry_after_ms=retry_after_ms,
            moment=self.moment,
            jitter=0.5,
        )
        return notes

    @property
    def month_key(self) -> tuple[str, int | None]:
        month = self.budget.month_at(self.moment)
        return (month.span.label, month.turned_at)

    def check(self) -> None:
        """No window is exceeded by this call: not in any stretch of true time, nor in the clock's month."""
        limits = self.budget.limits
        for limit, length_ms in ((limits.second, 1_000), (limits.minute, 60_000)):
            if limit is not None:
                assert sum(self.true_ms - at <= length_ms for at in self.grants) <= limit
        if limits.month is not None and self.plan.month is not None:
            key = self.month_key
            allowed = max(self.month_limits.get(key, 0), limits.month, self.plan.month)
            self.month_limits[key] = allowed
            assert self.by_month[key] <= allowed


lanes = st.sampled_from(list(Lane))
readings = st.builds(
    LimitReading,
    *(
        st.builds(WindowReading, st.none() | st.integers(1, 12), st.none() | st.integers(0, 15))
        for _ in "smm"
    ),
)
steps = st.one_of(
    st.tuples(st.just("call"), lanes),
    st.tuples(st.just("call"), lanes),
    st.tuples(st.just("wait"), st.integers(0, 2_000) | st.integers(0, 70_000) | st.integers(0, 20 * DAY_MS)),
    st.tuples(st.just("jump"), st.integers(-90_000, 90_000) | st.integers(-70 * DAY_MS, 70 * DAY_MS)),
    st.tuples(st.just("restart"), st.integers(0, 10**9)),
    st.tuples(st.just("hear"), st.none() | readings),
    st.tuples(st.just("limited"), st.none() | st.integers(0, 10**8)),
)


@settings(max_examples=400, deadline=None)
@given(
    plan=st.builds(
        Plan, st.integers(1, 4), st.integers(2, 8), st.integers(3, 20), st.sampled_from([0, 0.2, 0.5])
    ),
    script=st.lists(steps, max_size=60),
)
def test_no_window_is_ever_exceeded(plan: Plan, script: list[tuple[str, Any]]) -> None:
    """Whatever the order of calls, waits, clock jumps, restarts and headers: every limit holds."""
    world = World(plan)
    for kind, value in script:
        match kind:
            case "call":
                world.call(value)
            case "wait":
                world.wait(value)
            case "jump":
                world.jump(value)
            case "restart":
                world.restart(value)
            case "hear":
                world.hear(value)
            case "limited":
                world.hear(LimitReading(), limited=True, retry_after_ms=value)
                world.hear(None)


@settings(max_examples=200, deadline=None)
@given(script=st.lists(steps, max_size=40), lane=lanes)
def test_a_refusal_ends(script: list[tuple[str, Any]], lane: Lane) -> None:
    """From any state, somebody who waits as long as told gets a permit in a month not used up before."""
    world = World(Plan(2, 5, 10))
    for kind, value in script:
        getattr(world, kind, lambda _value: None)(value)
    given_up_at = world.true_ms + (len(world.by_month) + 2) * 31 * DAY_MS
    while (refusal := world.budget.ask(lane, world.moment)) is not None:
        assert refusal.wait_ms > 0
        assert refusal.reason
        world.wait(refusal.wait_ms)
        world.hear(None)  # whoever was under way is so no longer
        assert world.true_ms <= given_up_at


def spend_all_day_long(world: World, until_ms: int, request_every_ms: int = 0) -> list[int]:
    """Tasks call as often as the budget allows, requests now and then; calls per day until `until_ms`."""
    per_day: Counter[int] = Counter()
    request_at = world.wall_ms
    while world.wall_ms < until_ms:
        waits_ms = [until_ms - world.wall_ms]
        for lane in Lane:
            if lane is Lane.REQUEST:
                if not request_every_ms or world.wall_ms < request_at:
                    continue
                request_at += request_every_ms
            while (refusal := world.budget.ask(lane, world.moment)) is None:
                world.budget = world.budget.granted(lane, world.moment)
                per_day[(world.wall_ms - MAY.starts_at) // DAY_MS] += 1
            waits_ms.append(refusal.wait_ms)
        world.wait(min(waits_ms))
    return [per_day[day] for day in range((until_ms - MAY.starts_at) // DAY_MS)]


def test_ten_thousand_calls_last_the_month_and_are_used() -> None:
    """Under higher demand the plan of 10,000 calls is used up to 90 % and more, every day has its calls."""
    world = World(Plan(minute=10, month=10_000))

    per_day = spend_all_day_long(world, MAY.ends_at)

    assert 9_000 <= sum(per_day) <= 10_000
    assert min(per_day) >= 200
    assert world.budget.month.spent == sum(per_day)


@settings(max_examples=12, deadline=None)
@given(
    month=st.integers(200, 1_500),
    share=st.floats(0, 0.5),
    request_every_ms=st.sampled_from([0, HOUR_MS, 6 * HOUR_MS]),
    first_day=st.integers(0, 25),
    quiet_days=st.integers(0, 4),
)
def test_any_plan_lasts_and_is_used(
    month: int, share: float, request_every_ms: int, first_day: int, quiet_days: int
) -> None:
    """Begun on any day, after any quiet time, with any mix of lanes: the plan lasts and is used."""
    world = World(Plan(minute=30, month=month, request_share=share), MAY.starts_at + first_day * DAY_MS)
    world.wait(quiet_days * DAY_MS)

    per_day = spend_all_day_long(world, MAY.ends_at, request_every_ms)[first_day + quiet_days :]

    assert 0.9 * month - 2 <= sum(per_day) <= month
    assert min(per_day) >= 1


def test_a_quiet_week_may_be_made_up_for_and_no_more() -> None:
    """What was not used is there at once, with a day's worth; the rest of the month keeps its part."""
    world = World(Plan(month=3_100, request_share=0))
    for _ in range(7 * 24):
        world.budget = replace(world.budget, month=world.budget.month_at(world.moment))
        world.wait(HOUR_MS)

    burst = sum(world.call(Lane.TASK) for _ in range(3_100))

    assert 7 * 100 <= burst <= 8 * 100


def test_strangers_on_the_same_account_are_paced_around() -> None:
    """When others use up half of the month in a day, what is left still lasts to its end."""
    world = World(Plan(minute=10, month=2_000))
    first = sum(spend_all_day_long(world, MAY.starts_at + DAY_MS))
    world.hear(LimitReading(month=WindowReading(remaining=1_000 - first)))

    per_day = spend_all_day_long(world, MAY.ends_at)[1:]

    assert 0.9 * (1_000 - first) <= sum(per_day) <= 1_000 - first
    assert min(per_day) >= 20


def test_requests_find_their_share_when_tasks_take_all_they_can() -> None:
    """At any hour of the month a submitter gets through, although tasks never stop asking."""
    world = World(Plan(minute=10, month=5_000))
    for day in range(1, 31):
        spend_all_day_long(world, MAY.starts_at + day * DAY_MS)
        served = sum(world.call(Lane.REQUEST) for _ in range(2))
        assert served == 2


def test_tasks_find_their_share_when_requests_never_stop() -> None:
    """A flood of requests leaves tasks at least their part of the month."""
    world = World(Plan(minute=10, month=2_000))
    by_lane: Counter[Lane] = Counter()
    while world.wall_ms < MAY.ends_at:
        called = [lane for lane in (Lane.REQUEST, Lane.TASK) if world.call(lane)]
        by_lane.update(called)
        world.wait(1_000 if called else 60_000)

    assert by_lane[Lane.TASK] >= 0.85 * 2_000
    assert sum(by_lane.values()) >= 0.9 * 2_000


def test_a_told_limit_replaces_the_plan_and_is_reported() -> None:
    """Headers that contradict the configuration are believed, in both directions, and said once."""
    world = World(Plan(minute=500, month=150_000))

    lower = world.hear(LimitReading(minute=WindowReading(limit=50, remaining=49)))
    again = world.hear(LimitReading(minute=WindowReading(limit=50, remaining=48)))
    higher = world.hear(LimitReading(month=WindowReading(limit=500_000, remaining=499_000)))

    assert [(note.event, note.fields["told"]) for note in lower] == [("budget.limit_corrected", 50)]
    assert again == []
    assert [(note.event, note.fields["was"]) for note in higher] == [("budget.limit_corrected", 150_000)]
    assert replace(world.budget.limits, month=None) == Plan(minute=50)
    assert world.budget.limits.month == 500_000


def test_more_remaining_than_the_plan_has_is_reported_once() -> None:
    """An upstream that tells no limit but has more than the plan contradicts it; the plan stands."""
    world = World(Plan(minute=10, month=10_000))
    reading = LimitReading(month=WindowReading(remaining=49_000))

    assert [note.event for note in world.hear(reading)] == ["budget.plan_contradicted"]
    assert world.hear(reading) == []
    assert world.budget.limits.month == 10_000


def test_a_low_quota_is_told_once_and_not_at_the_months_end() -> None:
    """Below a fifth of the header's own limit one line is written, unless the month is nearly over."""
    low = LimitReading(month=WindowReading(limit=150_000, remaining=29_000))
    early, late = World(Plan(month=150_000)), World(Plan(month=150_000), MAY.ends_at - 3 * DAY_MS)

    assert [note.event for note in early.hear(low)] == ["budget.quota_low"]
    assert early.hear(low) == []
    assert late.hear(low) == []


def test_a_month_emptied_by_others_is_looked_at_hourly() -> None:
    """Told that nothing remains, one call an hour goes out; a better reading opens the month again."""
    world = World(Plan(minute=10, month=1_000))
    assert world.call(Lane.TASK)
    world.hear(LimitReading(month=WindowReading(remaining=0)))
    calls = 0
    for _ in range(24 * 60):
        calls += world.call(Lane.TASK)
        world.wait(60_000)

    assert calls in {23, 24}
    world.hear(LimitReading(month=WindowReading(remaining=900)))
    assert world.call(Lane.TASK)
    assert world.call(Lane.REQUEST)


def test_the_month_turns_with_the_calendar() -> None:
    """At midnight UTC of the first the count begins anew, with calls at once."""
    world = World(Plan(minute=100, month=50), MAY.ends_at - HOUR_MS)
    while world.call(Lane.TASK) or world.call(Lane.REQUEST):
        pass
    refusal = world.budget.ask(Lane.TASK, world.moment)

    assert refusal is not None
    assert refusal.until <= MAY.ends_at
    world.wait(MAY.ends_at - world.wall_ms)
    assert world.call(Lane.TASK)
    assert world.budget.month.spent == 1


def test_an_upstream_whose_month_turns_on_another_day_is_followed() -> None:
    """Remaining calls that leap up show the turn; the next one is expected at the same day and time."""
    world = World(Plan(minute=100, month=1_000))
    spend_all_day_long(world, MAY.starts_at + 14 * DAY_MS)
    spent = world.budget.month.spent
    world.hear(LimitReading(month=WindowReading(remaining=1_000 - spent)))
    assert world.budget.month.spent == spent

    notes = world.hear(LimitReading(month=WindowReading(remaining=999)))

    assert [note.event for note in notes] == ["budget.month_turned"]
    assert world.budget.month.spent == 1
    assert world.budget.month.span.starts_at == MAY.starts_at + 14 * DAY_MS
    assert world.budget.month.span.ends_at == MAY.ends_at + 14 * DAY_MS
    world.hear(LimitReading(month=WindowReading(remaining=300)))
    assert world.hear(LimitReading(month=WindowReading(remaining=1_000))) == []


def test_a_clock_that_jumps_over_the_turn_and_back_finds_its_count() -> None:
    """A month is remembered after the clock left it."""
    world = World(Plan(month=100))
    spent = sum(world.call(Lane.TASK) for _ in range(5))
    world.jump(40 * DAY_MS)
    assert world.call(Lane.TASK)
    assert world.budget.month.spent == 1
    world.jump(-40 * DAY_MS)

    assert world.budget.month_at(world.moment).spent == spent


def test_without_month_limit_nothing_is_paced_until_a_header_tells_one() -> None:
    """No configured month: calls go freely; a told limit begins a paced month with a day's worth."""
    world = World(Plan())
    assert all(world.call(Lane.TASK) for _ in range(500))
    world.hear(LimitReading(month=WindowReading(limit=3_100, remaining=3_100 - 500)))

    left = sum(world.call(Lane.TASK) for _ in range(200))

    assert 50 <= left <= 100


def test_a_429_closes_the_gate_for_as_long_as_it_says() -> None:
    """Retry-After is kept to the millisecond, an hour at most; afterwards one call at a time."""
    world = World(Plan())
    assert world.call(Lane.TASK)
    notes = world.hear(LimitReading(), limited=True, retry_after_ms=22_000)
    refusal = world.budget.ask(Lane.REQUEST, world.moment)

    assert [note.event for note in notes] == ["budget.gate_closed"]
    assert refusal is not None
    assert refusal.wait_ms == 22_000
    world.wait(22_000)
    assert world.call(Lane.TASK)
    assert not world.call(Lane.TASK)
    world.hear(LimitReading())
    assert world.call(Lane.TASK)
    assert world.call(Lane.TASK)
    world.hear(LimitReading(), limited=True, retry_after_ms=10**9)
    refusal = world.budget.ask(Lane.TASK, world.moment)
    assert refusal is not None
    assert refusal.wait_ms == HOUR_MS


def test_back_off_doubles_with_new_429s_only() -> None:
    """Each 429 after the gate was open doubles the pause; those of calls already under way do not."""
    world = World(Plan())
    pauses = []
    for _ in range(12):
        for _ in range(3):
            world.hear(LimitReading(), limited=True)
        refusal = world.budget.ask(Lane.TASK, world.moment)
        assert refusal is not None
        pauses.append(refusal.wait_ms)
        world.wait(refusal.wait_ms)

    assert pauses[:4] == [1_000, 2_000, 4_000, 8_000]
    assert pauses[-1] == 150_000


def test_a_back_off_goes_on_after_a_restart() -> None:
    """What is left of it, by the wall clock; a clock set back does not lengthen it."""
    world = World(Plan())
    world.hear(LimitReading(), limited=True, retry_after_ms=600_000)
    world.saved = world.budget.to_json(world.moment)
    world.wait(200_000)
    world.restart(5)
    refusal = world.budget.ask(Lane.TASK, world.moment)
    assert refusal is not None
    assert refusal.wait_ms == 400_000

    world.jump(-10 * HOUR_MS)
    world.restart(5)
    refusal = world.budget.ask(Lane.TASK, world.moment)
    assert refusal is not None
    assert refusal.wait_ms == 600_000


def test_limits_told_under_another_plan_are_forgotten() -> None:
    """Changing the configured plan takes effect at the next start; what was spent stays spent."""
    world = World(Plan(minute=500, month=1_000))
    assert world.call(Lane.TASK)
    world.hear(LimitReading(minute=WindowReading(limit=50, remaining=40)))
    assert world.call(Lane.TASK)

    world.restart(0)
    assert world.budget.limits.minute == 50
    world.plan = Plan(minute=300, month=1_000)
    world.restart(0)
    assert world.budget.limits.minute == 300
    assert world.budget.month.spent == 2


def test_the_cadence_is_stretched_to_what_the_month_has_left() -> None:
    """13 calls every 5 minutes do not fit 10,000 a month: the cadence says how long, and why."""
    world = World(Plan(minute=10, month=10_000))
    greedy = {"tenero": Demand(300_000, 13)}
    modest = {"tenero": Demand(300_000, 1)}

    stretched = cadences(world.budget, greedy, world.moment)["tenero"]
    kept = cadences(world.budget, modest, world.moment)["tenero"]

    assert 3_600_000 < stretched.effective_ms < 4_000_000
    assert "10000" in stretched.reason
    assert "31.0 days" in stretched.reason
    assert kept.effective_ms == 300_000
    assert overdraft(world.plan, modest) is None
    assert "113968 calls per month, the plan has 10000" in str(overdraft(world.plan, greedy))


def test_following_the_affordable_cadence_uses_the_month() -> None:
    """A task that runs as often as it can afford, asked anew after each run, uses 90 % of the month."""
    world = World(Plan(minute=30, month=3_000))
    demand = {"sweep": Demand(300_000, 20)}
    withheld = 0
    while world.wall_ms < MAY.ends_at:
        withheld += sum(not world.call(Lane.TASK) for _ in range(20))
        world.wait(cadences(world.budget, demand, world.moment)["sweep"].effective_ms)

    assert world.by_month[(MAY.label, None)] >= 0.9 * 3_000
    assert withheld <= 0.05 * 3_000


def test_tasks_of_one_upstream_share_the_stretch() -> None:
    """Two tasks are slowed down by the same factor, and an empty month means waiting for the next."""
    world = World(Plan(month=1_000))
    demands = {"a": Demand(60_000, 1), "b": Demand(600_000, 5)}
    both = cadences(world.budget, demands, world.moment)
    assert both["b"].effective_ms == pytest.approx(10 * both["a"].effective_ms, rel=0.01)

    world.hear(LimitReading(month=WindowReading(remaining=0)))
    assert cadences(world.budget, demands, world.moment)["a"].effective_ms == MAY.ends_at - world.wall_ms


@pytest.mark.parametrize("wrong", [{"minute": 0}, {"month": -1}, {"request_share": 1.0}])
def test_an_impossible_plan_is_refused(wrong: dict[str, Any]) -> None:
    """A limit below 1 or a share that leaves tasks nothing is the configuration's mistake."""
    with pytest.raises(UsageError, match=r"limit per|share kept"):
        Plan(**wrong)


@given(
    calls=st.lists(st.integers(0, 3_000), max_size=40),
    limit=st.integers(1, 5),
)
def test_a_sliding_window_frees_exactly_when_it_says(calls: list[int], limit: int) -> None:
    """After the told wait a call fits, and a millisecond earlier it does not."""
    window, now = SlidingWindow(1_000, 100), 0
    for gap in calls:
        now += gap
        wait_ms = window.wait_ms(Lane.REQUEST, limit, limit, now)
        if wait_ms:
            assert window.wait_ms(Lane.REQUEST, limit, limit, now + wait_ms - 1) == 1
            now += wait_ms
        assert window.wait_ms(Lane.REQUEST, limit, limit, now) == 0
        window = window.plus(now, requests=1)


def test_months_are_the_calendars() -> None:
    """The month around an instant, over a year's end, and beyond what a sane clock shows."""
    assert MAY.label == "2026-05"
    december = span_of(1_798_700_000_000)
    assert (december.label, span_of(december.ends_at).label) == ("2026-12", "2027-01")
    assert span_of(-5).label == "1970-01"
    assert span_of(10**18).label == "2100-01"
