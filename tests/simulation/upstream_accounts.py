"""The quotas of our keys at the upstreams: months that others use up or that start over, and ignored keys."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from stacks_simulator.http_messages import UpstreamName
from stacks_simulator.rate_limits import (
    HIRO_ANONYMOUS,
    HIRO_KEYED,
    TENERO_ANONYMOUS,
    HiroRateLimit,
    TeneroRateLimit,
    UpstreamRateLimit,
)
from tocsin.upstream.budget import Quota

HEADERS: Mapping[str, str] = {"hiro": "x-ratelimit-remaining-stacks-month", "tenero": "x-ratelimit-month-remaining"}
PROBE_S = 3_600.0  # between two calls while the month is used up
UNDER_WAY_S = 10.0  # how long a call permitted before the month was known to be used up may be under way


class UpstreamAccounts:
    """The limits of both upstreams, as they count them."""

    def __init__(self, hiro_month: int | None, tenero_month: int | None) -> None:
        self.hiro = HiroRateLimit(HIRO_KEYED, HIRO_ANONYMOUS)
        self.tenero = TeneroRateLimit(TENERO_ANONYMOUS, TENERO_ANONYMOUS)
        for limit, month in ((self.hiro, hiro_month), (self.tenero, tenero_month)):
            if month is not None:
                limit.keyed = replace(limit.keyed, month=month)
                limit.anonymous = replace(limit.anonymous, month=month)

    def change(self, values: Mapping[str, Any], now_ms: int) -> None:
        limit = self._of(values["upstream"])
        match values["what"]:
            case "others":
                for key in _keys(limit):
                    left = limit._usage(key, now_ms).remaining("month", limit.plan(key))
                    limit._usage(key, now_ms).used["month"] += int(left * values["share"])
            case "new_month":
                for key in _keys(limit):
                    limit._usage(key, now_ms).used["month"] = 0
            case "key_ignored":
                self.hiro.keys_ignored = values["share"] > 0.5

    def calm(self, now_ms: int) -> None:
        self.hiro.keyed, self.hiro.anonymous = HIRO_KEYED, HIRO_ANONYMOUS
        self.tenero.keyed = self.tenero.anonymous = TENERO_ANONYMOUS
        self.hiro.keys_ignored = False
        for upstream in ("hiro", "tenero"):
            self.change({"upstream": upstream, "what": "new_month"}, now_ms)

    def _of(self, upstream: UpstreamName) -> UpstreamRateLimit:
        return self.hiro if upstream == "hiro" else self.tenero


def _keys(limit: UpstreamRateLimit) -> list[str]:
    return sorted(limit._usages)


@dataclass
class MonthChecks:
    """Checks that an upstream which reports its month as used up is called once an hour."""

    used_up_s: float | None = None  # since when we know
    used_up_ms: int = 0  # the same by the clock of the machine
    called_s: float | None = None  # the last call since then
    left: int = 10**9
    offsets_ms: set[int] = field(default_factory=lambda: {0})  # of its months, that we may know of
    key_and_plan: tuple[str | None, Quota] | None = None  # of the process

    def told(self, upstream: str, headers: Mapping[str, str], now_s: float, wall_ms: int) -> None:
        told = headers.get(HEADERS[upstream], "")
        if not told.isdecimal():
            return
        before, self.left = self.left, int(told)
        if self.left > before:
            self.offsets_ms.add(wall_ms - _starts_ms(wall_ms))
        if self.left:
            self.forget()
        elif self.used_up_s is None:
            self.used_up_s, self.used_up_ms = now_s, wall_ms

    def process_began(self, key: str | None, plan: Quota) -> None:
        """Start over with another key or plan: calls that the settings promise are tried."""
        if self.key_and_plan != (key, plan):
            self.key_and_plan = key, plan
            self.forget()

    def forget(self) -> None:
        """Start over: the stored budget was lost, the key or the plan changed, or the clock was set."""
        self.used_up_s = self.called_s = None

    def called(self, now_s: float, wall_ms: int) -> str | None:
        """Return a sentence if this call comes too soon."""
        if self.used_up_s is None or now_s - self.used_up_s < UNDER_WAY_S:
            return None
        if any(_starts_ms(wall_ms - by) != _starts_ms(self.used_up_ms - by) for by in self.offsets_ms):
            self.forget()
            return None
        before_s, self.called_s = self.called_s, now_s
        if before_s is not None and now_s - before_s < PROBE_S - 1.0:
            return f"a call {now_s - before_s:.1f} s after the last one, and the month is used up"
        return None


def _starts_ms(wall_ms: int) -> int:
    """Return when the calendar month began."""
    at = datetime.fromtimestamp(wall_ms / 1000, UTC)
    return int(datetime(at.year, at.month, 1, tzinfo=UTC).timestamp()) * 1000
