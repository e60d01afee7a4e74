"""A budget in a world where a test controls time, clocks, processes and headers."""

import json
from collections import Counter
from dataclasses import dataclass, field

from holdfast.types import JSON
from tocsin.upstream.budget import Budget, Denial, LimitReading, Quota
from tocsin.upstream.limiter import BudgetEvent, apply_answer
from tocsin.upstream.windows import Lane, span_of

MAY = span_of(1_778_700_600_000)


@dataclass
class BudgetWorld:
    """One budget. The test decides when time passes, clocks jump, processes restart and headers arrive."""

    plan: Quota
    wall_ms: int = MAY.starts_at
    true_ms: int = 0  # time as it passes, whatever clocks show
    budget: Budget = field(init=False)
    saved: JSON = None  # as it is stored
    grants: list[int] = field(default_factory=list)
    by_month: Counter[tuple[str, int | None]] = field(default_factory=Counter)
    month_limits: dict[tuple[str, int | None], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.budget = Budget.begin(self.plan, self.wall_ms)

    def wait(self, ms: int) -> None:
        self.true_ms += ms
        self.wall_ms += ms

    def jump(self, ms: int) -> None:
        """Set the clock while the process runs: it notices that."""
        before = self.wall_ms
        self.jump_while_down(ms)
        self.budget = self.budget.moved(self.wall_ms - before)
        if self.saved is not None:
            self.save()

    def jump_while_down(self, ms: int) -> None:
        self.wall_ms = max(0, self.wall_ms + ms)

    def restart(self) -> None:
        """Restart the process."""
        if self.saved is None:
            self.budget = Budget.begin(self.plan, self.wall_ms)
        else:
            self.budget = Budget.from_json(self.saved).continued(self.plan, self.wall_ms)

    def save(self) -> None:
        self.saved = json.loads(json.dumps(self.budget.to_json()))

    def call(self, lane: Lane) -> bool:
        if self.budget.ask(lane, self.wall_ms) is not None:
            return False
        self.budget = self.budget.granted(lane, self.wall_ms)
        self.save()
        self.grants.append(self.true_ms)
        self.by_month[self.month_key] += 1
        self.check()
        return True

    def denied(self, lane: Lane = Lane.TASK) -> Denial:
        """Return why this lane may not call now."""
        denial = self.budget.ask(lane, self.wall_ms)
        assert denial is not None
        return denial

    def hear(
        self, reading: LimitReading | None, *, limited: bool = False, retry_after_ms: int | None = None
    ) -> list[BudgetEvent]:
        self.budget, events = apply_answer(
            self.budget, reading, limited=limited, retry_after_ms=retry_after_ms, now=self.wall_ms, jitter=0.5
        )
        return events

    @property
    def month_key(self) -> tuple[str, int | None]:
        month = self.budget.month_at(self.wall_ms)
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
