"""A budget in a world where a test controls time, clocks, processes and headers."""

import json
from collections import Counter
from dataclasses import dataclass, field

from holdfast.types import JSON
from tocsin.upstream.budget import Budget, Denial, LimitReading, Quota, StoredBudget
from tocsin.upstream.limiter import BudgetEvent, apply_answer
from tocsin.upstream.windows import DAY_MS, Lane, Moment, span_of

MAY = span_of(1_778_700_600_000)


@dataclass
class BudgetWorld:
    """One budget. The test decides when time passes, clocks jump, processes restart and headers arrive."""

    plan: Quota
    wall_ms: int = MAY.starts_at
    true_ms: int = 0  # time as it passes, whatever clocks show
    booted_ms: int = 0
    budget: Budget = field(init=False)
    saved: JSON = None  # as it is stored
    grants: list[int] = field(default_factory=list)
    by_month: Counter[tuple[str, int | None]] = field(default_factory=Counter)
    month_limits: dict[tuple[str, int | None], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.budget = Budget.begin(self.plan, self.moment)

    @property
    def moment(self) -> Moment:
        return Moment(self.wall_ms, self.true_ms - self.booted_ms, f"boot {self.booted_ms}")

    def wait(self, ms: int) -> None:
        self.true_ms += ms
        self.wall_ms += ms

    def jump(self, ms: int) -> None:
        self.wall_ms = max(0, self.wall_ms + ms)

    def reboot(self, new_monotonic_ms: int) -> None:
        """Restart the machine, and with it its monotonic clock."""
        self.booted_ms = self.true_ms - new_monotonic_ms
        self.restart()

    def restart(self) -> None:
        """Restart the process."""
        self.budget = (
            Budget.begin(self.plan, self.moment)
            if self.saved is None
            else Budget.from_stored(self.plan, StoredBudget.from_json(self.saved), self.moment)
        )

    def save(self) -> None:
        self.saved = json.loads(json.dumps(self.budget.to_stored(self.moment).to_json()))

    def call(self, lane: Lane) -> bool:
        if self.budget.ask(lane, self.moment) is not None:
            return False
        self.budget = self.budget.granted(lane, self.moment)
        self.save()
        self.grants.append(self.true_ms)
        self.by_month[self.month_key] += 1
        self.check()
        return True

    def denied(self, lane: Lane = Lane.TASK) -> Denial:
        """Return why this lane may not call now."""
        denial = self.budget.ask(lane, self.moment)
        assert denial is not None
        return denial

    def hear(
        self, reading: LimitReading | None, *, limited: bool = False, retry_after_ms: int | None = None
    ) -> list[BudgetEvent]:
        self.budget, events = apply_answer(
            self.budget, reading, limited=limited, retry_after_ms=retry_after_ms, moment=self.moment, jitter=0.5
        )
        return events

    @property
    def month_key(self) -> tuple[str, int | None]:
        month = self.budget.month_at(self.moment)
        return (month.span.label, month.rolled_over_at)

    def check(self) -> None:
        """Check that this call exceeds no window, in any stretch of true time or in the clock's month."""
        limits = self.budget.limits
        for limit, length_ms in ((limits.second, 1_000), (limits.minute, 60_000)):
            if limit is not None:
                assert sum(self.true_ms - at <= length_ms for at in self.grants) <= limit
        if limits.month is not None and self.plan.month is not None:
            key = self.month_key
            allowed = max(self.month_limits.get(key, 0), limits.month, self.plan.month)
            self.month_limits[key] = allowed
            assert self.by_month[key] <= allowed


def spend_all_day_long(world: BudgetWorld, until_ms: int, request_every_ms: int = 0) -> list[int]:
    """Call for tasks as often as the budget allows, and sometimes for requests; return the calls per day."""
    per_day: Counter[int] = Counter()
    request_at = world.wall_ms
    while world.wall_ms < until_ms:
        waits_ms = [until_ms - world.wall_ms]
        for lane in Lane:
            if lane is Lane.REQUEST:
                if not request_every_ms or world.wall_ms < request_at:
                    continue
                request_at += request_every_ms
            while (denial := world.budget.ask(lane, world.moment)) is None:
                world.budget = world.budget.granted(lane, world.moment)
                per_day[(world.wall_ms - MAY.starts_at) // DAY_MS] += 1
            waits_ms.append(denial.wait_ms)
        world.wait(min(waits_ms))
    return [per_day[day] for day in range((until_ms - MAY.starts_at) // DAY_MS)]
