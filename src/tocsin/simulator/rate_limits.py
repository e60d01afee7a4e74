"""What stands before each upstream: counted windows, their headers, and the 429 when one is used up.

Windows are calendar ones in UTC, as a gateway counts them: this second, this minute, this month. A refused
request is not counted. Every key has windows of its own; all anonymous callers share theirs, as everybody
behind one address does.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from tocsin.simulator.exchange import Reply, json_reply

Window: TypeAlias = Literal["second", "minute", "month"]

NO_LIMIT = 1_000_000_000


@dataclass(frozen=True, slots=True)
class LimitPlan:
    """How many requests each window allows."""

    minute: int
    month: int
    second: int = NO_LIMIT

    def of(self, window: Window) -> int:
        return {"second": self.second, "minute": self.minute, "month": self.month}[window]


UNLIMITED = LimitPlan(minute=NO_LIMIT, month=NO_LIMIT)
HIRO_KEYED = LimitPlan(second=20, minute=500, month=150_000)
HIRO_ANONYMOUS = LimitPlan(second=20, minute=50, month=150_000)  # no month limit of theirs is documented
TENERO_STARTER = LimitPlan(minute=10, month=10_000)
TENERO_ANONYMOUS = LimitPlan(minute=100, month=50_000)


@dataclass(frozen=True, slots=True)
class Admission:
    """The headers that go with the answer, and the answer itself when it is a refusal."""

    headers: Mapping[str, str]
    refusal: Reply | None = None


@dataclass(slots=True)
class Meter:
    """What one caller has used in the windows that are running."""

    windows: tuple[Window, ...]
    used: dict[Window, int] = field(default_factory=dict)
    _running: dict[Window, int] = field(default_factory=dict)

    def turn(self, now_ms: int) -> None:
        """Empty the windows that ended."""
        for window in self.windows:
            number = _number(window, now_ms)
            if self._running.get(window) != number:
                self._running[window] = number
                self.used[window] = 0

    def full(self, plan: LimitPlan) -> Window | None:
        return next((window for window in reversed(self.windows) if self.left(window, plan) == 0), None)

    def left(self, window: Window, plan: LimitPlan) -> int:
        return max(0, plan.of(window) - self.used[window])

    def spend(self, calls: int) -> None:
        for window in self.windows:
            self.used[window] += calls


class RateLimit:
    """One upstream's limits. `key` picks the plan and the windows; the empty one is everybody without."""

    windows: tuple[Window, ...]

    def __init__(self, keyed: LimitPlan, anonymous: LimitPlan) -> None:
        self.keyed, self.anonymous = keyed, anonymous
        self._meters: dict[str, Meter] = {}

    def admit(self, headers: Mapping[str, str], now_ms: int) -> Admission:
        """Count the request, or refuse it."""
        raise NotImplementedError

    def refusal(self, window: Window, retry_after: str | None) -> Reply:
        """The 429 of this upstream."""
        raise NotImplementedError

    def spend(self, calls: int, now_ms: int, key: str = "") -> None:
        """Somebody else behind the same key or address used so many calls."""
        self._meter(key, now_ms).spend(calls)

    def plan(self, key: str) -> LimitPlan:
        return self.keyed if key else self.anonymous

    def _meter(self, key: str, now_ms: int) -> Meter:
        meter = self._meters.setdefault(key, Meter(self.windows))
        meter.turn(now_ms)
        return meter


class HiroRateLimit(RateLimit):
    """`x-api-key` picks the plan; the older header name is ignored, as it is by the real one."""

    windows = ("second", "minute", "month")

    def __init__(
        self,
        keyed: LimitPlan = HIRO_KEYED,
        anonymous: LimitPlan = HIRO_ANONYMOUS,
        keys: frozenset[str] | None = None,
    ) -> None:
        super().__init__(keyed, anonymous)
        self.keys = keys  # None: any key is good
        self.keys_ignored = False  # every key is treated as no key at all, without a word

    def admit(self, headers: Mapping[str, str], now_ms: int) -> Admission:
        key = "" if self.keys_ignored else headers.get("x-api-key", "")
        if key and self.keys is not None and key not in self.keys:
            return Admission({}, json_reply(403, {"message": "Invalid authentication credentials"}))
        plan, meter = self.plan(key), self._meter(key, now_ms)
        if window := meter.full(plan):
            wait_s = seconds_left(window, now_ms)
            # The unsuffixed three then speak of the window that is used up, with the limit of a second.
            limited = {"ratelimit-remaining": "0", "ratelimit-reset": str(wait_s)}
            return Admission({**_hiro_headers(plan, meter), **limited}, self.refusal(window, str(wait_s)))
        meter.spend(1)
        return Admission(_hiro_headers(plan, meter))

    def refusal(self, window: Window, retry_after: str | None) -> Reply:
        text = f"Per-{window} rate limit exceeded for stacks quota."
        headers = {"content-type": "text/plain; charset=utf-8"}
        if retry_after is not None:
            headers["retry-after"] = retry_after
            text += f" Please try again in {retry_after} seconds" if retry_after.isdigit() else ""
        return Reply(429, text.encode(), headers)


class TeneroRateLimit(RateLimit):
    """Minute and month only; a key lowers both. The label tells by which rule a caller is counted."""

    windows = ("minute", "month")

    def __init__(self, keyed: LimitPlan = TENERO_STARTER, anonymous: LimitPlan = TENERO_ANONYMOUS) -> None:
        super().__init__(keyed, anonymous)

    def admit(self, headers: Mapping[str, str], now_ms: int) -> Admission:
        key = headers.get("x-api-key", "")
        plan, meter = self.plan(key), self._meter(key, now_ms)
        if window := meter.full(plan):
            # Only a minute's end is announced; nothing tells when the month turns.
            wait_s = str(seconds_left(window, now_ms)) if window == "minute" else None
            return Admission(_tenero_headers(plan, meter), self.refusal(window, wait_s))
        meter.spend(1)
        label = "api-key" if key else "web-ui-ip"
        return Admission({"x-ratelimit-type": label, **_tenero_headers(plan, meter)})

    def refusal(self, window: Window, retry_after: str | None) -> Reply:  # noqa: ARG002 - one text for all
        headers = {} if retry_after is None else {"retry-after": retry_after}
        return json_reply(429, {"statusCode": 429, "message": "Too Many Requests"}, headers)


def seconds_left(window: Window, now_ms: int) -> int:
    """Whole seconds until the window ends, at least one."""
    if window == "month":
        today = datetime.fromtimestamp(now_ms / 1000, UTC)
        turn = datetime(today.year + today.month // 12, today.month % 12 + 1, 1, tzinfo=UTC)
        return max(1, math.ceil(turn.timestamp() - now_ms / 1000))
    length_ms = 60_000 if window == "minute" else 1_000
    return max(1, math.ceil((length_ms - now_ms % length_ms) / 1000))


def _number(window: Window, now_ms: int) -> int:
    """Which second, minute or month this is."""
    if window == "month":
        today = datetime.fromtimestamp(now_ms / 1000, UTC)
        return today.year * 12 + today.month
    return now_ms // (60_000 if window == "minute" else 1_000)


def _hiro_headers(plan: LimitPlan, meter: Meter) -> dict[str, str]:
    headers = {
        "ratelimit-limit": str(plan.second),
        "ratelimit-remaining": str(meter.left("second", plan)),
        "ratelimit-reset": "1",
        "x-ratelimit-cost-stacks": "1",
    }
    for window in meter.windows:
        headers[f"x-ratelimit-limit-stacks-{window}"] = str(plan.of(window))
        headers[f"x-ratelimit-remaining-stacks-{window}"] = str(meter.left(window, plan))
    return headers


def _tenero_headers(plan: LimitPlan, meter: Meter) -> dict[str, str]:
    return {f"x-ratelimit-{window}-remaining": str(meter.left(window, plan)) for window in meter.windows}
