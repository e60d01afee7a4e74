"""The rate limits of each upstream: counted windows, their headers, and the 429 when a window is full.

Windows are calendar windows in UTC, as a gateway counts them: this second, this minute, this month. A
rejected request is not counted. Every key has its own windows. All anonymous callers share theirs, as all
callers behind one IP address do.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from stacks_simulator.http_messages import SimulatedReply, json_reply

LimitWindow: TypeAlias = Literal["second", "minute", "month"]

NO_LIMIT = 1_000_000_000


@dataclass(frozen=True, slots=True)
class LimitPlan:
    """The number of requests that each window allows."""

    minute: int
    month: int
    second: int = NO_LIMIT

    def limit(self, window: LimitWindow) -> int:
        number: int = getattr(self, window)
        return number


UNLIMITED = LimitPlan(minute=NO_LIMIT, month=NO_LIMIT)
HIRO_KEYED = LimitPlan(second=20, minute=500, month=150_000)
HIRO_ANONYMOUS = LimitPlan(second=20, minute=50, month=150_000)  # the month limit is not documented
TENERO_STARTER = LimitPlan(minute=10, month=10_000)
TENERO_ANONYMOUS = LimitPlan(minute=100, month=50_000)


@dataclass(frozen=True, slots=True)
class LimitDecision:
    """The headers to add to the reply, and the reply itself when the request is rejected."""

    headers: Mapping[str, str]
    error_reply: SimulatedReply | None = None


@dataclass(slots=True)
class CallerUsage:
    """The use of one caller in the current windows."""

    windows: tuple[LimitWindow, ...]
    used: dict[LimitWindow, int] = field(default_factory=dict)
    _ends: dict[LimitWindow, int] = field(default_factory=dict)

    def reset_ended_windows(self, now_ms: int) -> None:
        """Set the usage of every window that has ended to zero."""
        for window in self.windows:
            ends = _end_of(window, now_ms)
            if self._ends.get(window) != ends:
                self._ends[window] = ends
                self.used[window] = 0

    def full_window(self, plan: LimitPlan, cost: int = 1) -> LimitWindow | None:
        """The longest window that has too little left."""
        return next((window for window in reversed(self.windows) if self.remaining(window, plan) < cost), None)

    def remaining(self, window: LimitWindow, plan: LimitPlan) -> int:
        return max(0, plan.limit(window) - self.used[window])

    def spend(self, calls: int) -> None:
        for window in self.windows:
            self.used[window] += calls


class UpstreamRateLimit:
    """The limits of one upstream. The key selects the plan and the windows; "" stands for all callers without a key."""

    windows: tuple[LimitWindow, ...]

    def __init__(self, keyed: LimitPlan, anonymous: LimitPlan) -> None:
        self.keyed, self.anonymous = keyed, anonymous
        self._plans = keyed, anonymous
        self._usages: dict[str, CallerUsage] = {}

    def admit(self, headers: Mapping[str, str], now_ms: int, cost: int = 1) -> LimitDecision:
        """Count the request as several if it costs more, or reject it."""
        raise NotImplementedError

    def limited_reply(self, window: LimitWindow, retry_after: str | None) -> SimulatedReply:
        """This upstream's 429."""
        raise NotImplementedError

    def spend(self, calls: int, now_ms: int, key: str = "") -> None:
        """Count calls as if another caller with the same key or address had made them."""
        self._usage(key, now_ms).spend(calls)

    @property
    def is_changed(self) -> bool:
        return (self.keyed, self.anonymous) != self._plans

    def restore(self) -> None:
        """Go back to the plans of the start."""
        self.keyed, self.anonymous = self._plans

    def plan(self, key: str) -> LimitPlan:
        return self.keyed if key else self.anonymous

    def _usage(self, key: str, now_ms: int) -> CallerUsage:
        usage = self._usages.setdefault(key, CallerUsage(self.windows))
        usage.reset_ended_windows(now_ms)
        return usage


class HiroRateLimit(UpstreamRateLimit):
    """Hiro's limits. `x-api-key` selects the plan; the older header name is ignored, as by the real Hiro."""

    windows = ("second", "minute", "month")

    def __init__(self, keyed: LimitPlan = HIRO_KEYED, anonymous: LimitPlan = HIRO_ANONYMOUS) -> None:
        super().__init__(keyed, anonymous)
        self.keys_ignored = False  # True: silently treat every caller as anonymous

    def admit(self, headers: Mapping[str, str], now_ms: int, cost: int = 1) -> LimitDecision:
        key = "" if self.keys_ignored else headers.get("x-api-key", "")
        plan, usage = self.plan(key), self._usage(key, now_ms)
        if window := usage.full_window(plan, cost):
            wait_s = seconds_left(window, now_ms)
            # In a 429, `remaining` and `reset` describe the full window; `limit` is still that of the second.
            limited = {"ratelimit-remaining": "0", "ratelimit-reset": str(wait_s)}
            return LimitDecision({**_hiro_headers(plan, usage), **limited}, self.limited_reply(window, str(wait_s)))
        usage.spend(cost)
        return LimitDecision(_hiro_headers(plan, usage, cost))

    def limited_reply(self, window: LimitWindow, retry_after: str | None) -> SimulatedReply:
        text = f"Per-{window} rate limit exceeded for stacks quota."
        headers = {"content-type": "text/plain; charset=utf-8"}
        if retry_after is not None:
            headers["retry-after"] = retry_after
            text += f" Please try again in {retry_after} seconds" if retry_after.isdigit() else ""
        return SimulatedReply(429, text.encode(), headers)


class TeneroRateLimit(UpstreamRateLimit):
    """Tenero's limits: minute and month only. A key lowers both. A label names the rule for the caller."""

    windows = ("minute", "month")

    def __init__(self, keyed: LimitPlan = TENERO_STARTER, anonymous: LimitPlan = TENERO_ANONYMOUS) -> None:
        super().__init__(keyed, anonymous)

    def admit(self, headers: Mapping[str, str], now_ms: int, cost: int = 1) -> LimitDecision:
        key = headers.get("x-api-key", "")
        plan, usage = self.plan(key), self._usage(key, now_ms)
        if window := usage.full_window(plan):
            # Tenero sends Retry-After for a full minute, but not for a full month.
            wait_s = str(seconds_left(window, now_ms)) if window == "minute" else None
            return LimitDecision(_tenero_headers(plan, usage), self.limited_reply(window, wait_s))
        usage.spend(cost)
        label = "api-key" if key else "web-ui-ip"
        return LimitDecision({"x-ratelimit-type": label, **_tenero_headers(plan, usage)})

    def limited_reply(self, window: LimitWindow, retry_after: str | None) -> SimulatedReply:  # noqa: ARG002 - one text for all
        headers = {} if retry_after is None else {"retry-after": retry_after}
        return json_reply(429, {"statusCode": 429, "message": "Too Many Requests"}, headers)


def seconds_left(window: LimitWindow, now_ms: int) -> int:
    """The whole seconds until the window ends, at least one."""
    return max(1, math.ceil((_end_of(window, now_ms) - now_ms) / 1000))


def _end_of(window: LimitWindow, now_ms: int) -> int:
    """When the current second, minute or month ends."""
    if window == "month":
        today = datetime.fromtimestamp(now_ms / 1000, UTC)
        ends = datetime(today.year + today.month // 12, today.month % 12 + 1, 1, tzinfo=UTC)
        return int(ends.timestamp()) * 1000
    length_ms = 60_000 if window == "minute" else 1_000
    return now_ms - now_ms % length_ms + length_ms


def _hiro_headers(plan: LimitPlan, usage: CallerUsage, cost: int = 1) -> dict[str, str]:
    headers = {
        "ratelimit-limit": str(plan.second),
        "ratelimit-remaining": str(usage.remaining("second", plan)),
        "ratelimit-reset": "1",
        "x-ratelimit-cost-stacks": str(cost),
    }
    for window in usage.windows:
        headers[f"x-ratelimit-limit-stacks-{window}"] = str(plan.limit(window))
        headers[f"x-ratelimit-remaining-stacks-{window}"] = str(usage.remaining(window, plan))
    return headers


def _tenero_headers(plan: LimitPlan, usage: CallerUsage) -> dict[str, str]:
    return {f"x-ratelimit-{window}-remaining": str(usage.remaining(window, plan)) for window in usage.windows}
