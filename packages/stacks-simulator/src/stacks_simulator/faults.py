"""Faults between an upstream and its caller: on command, or by a seeded schedule of bad times.

A fault replaces a good reply with something else. It can be limited to an `upstream`, a part of the `path`,
a number of `times`, a time (`from_ms`, `until_ms`) and a `share` of the requests that it matches.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from random import Random
from typing import Literal, TypeAlias, get_args

from holdfast.errors import UsageError
from stacks_simulator.http_messages import Delivery, SimulatedReply, SimulatedRequest, UpstreamName
from stacks_simulator.rate_limits import UpstreamRateLimit

FaultKind: TypeAlias = Literal[
    "limited",  # 429; Retry-After is `retry_after` seconds, a date with `as_date`, and missing when None
    "status",  # `status`, with `body` and `extra_headers` when given: 5xx, 401, 403, a redirect elsewhere …
    "hang",  # no reply at all
    "delay",  # the reply arrives `seconds` late
    "slow",  # the headers arrive at once, the body in small pieces over `seconds`
    "cut",  # the connection breaks before the status line
    "cut_body",  # the connection breaks in the middle of the body
    "truncated",  # a complete reply whose JSON ends too early
    "wrong_json",  # 200 with a page of HTML
    "wrong_types",  # JSON of the right structure in which some values have other types
    "huge",  # valid JSON followed by `size` bytes of spaces
    "own_cursor",  # a page of a list whose cursor leads to the page itself
    "empty_page",  # no rows where a cursor leads to
]
FAULT_KINDS: tuple[FaultKind, ...] = get_args(FaultKind)
PAGE_FAULTS: tuple[FaultKind, ...] = ("own_cursor", "empty_page")
ANY_REPLY_FAULTS = tuple(kind for kind in FAULT_KINDS if kind not in PAGE_FAULTS)  # for every route
FAULTS_MAX = 100  # active at once
HTML = b"<!DOCTYPE html><html><head><title>Just a moment...</title></head><body></body></html>"
ERROR_BODIES: Mapping[str, bytes] = {
    "hiro": b'{"error":"The database service is unavailable"}',
    "tenero": b'{"statusCode":500,"message":"Internal server error"}',
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedFault:
    """A fault and the requests that it applies to."""

    kind: FaultKind
    upstream: UpstreamName | None = None
    path: str = ""  # a substring of the path
    times: int | None = None  # None: no limit until it is cleared
    share: float = 1.0
    from_ms: int = 0
    until_ms: int | None = None
    status: int = 503
    retry_after: int | None = 30
    as_date: bool = False
    seconds: float = 20.0
    size: int = 100 * 1024 * 1024
    body: str | None = None
    extra_headers: Mapping[str, str] = field(default_factory=dict)

    def matches(self, upstream: UpstreamName, request: SimulatedRequest, now_ms: int) -> bool:
        in_time = self.from_ms <= now_ms and (self.until_ms is None or now_ms < self.until_ms)
        fits = self.kind != "empty_page" or "cursor=" in request.query_text
        return fits and in_time and self.upstream in {None, upstream} and self.path in request.path


@dataclass(frozen=True, slots=True)
class BadTimes:
    """A seeded schedule: once in every `every_s` there is a fault for about `lasting_s`.

    Time is divided into periods of `every_s`. The fault of a period depends only on the seed and the
    period's number.
    """

    seed: int
    every_s: float = 1_800.0
    lasting_s: float = 60.0
    share: float = 0.7
    kinds: tuple[FaultKind, ...] = ANY_REPLY_FAULTS

    def fault_at(self, now_ms: int) -> SimulatedFault | None:
        period_ms = int(self.every_s * 1000)
        number = now_ms // period_ms
        rng = Random(f"{self.seed}:bad-times:{number}")  # noqa: S311 - a repeatable model, not a secret
        length_ms = min(period_ms, int(rng.uniform(0.3, 1.7) * self.lasting_s * 1000))
        from_ms = number * period_ms + rng.randrange(max(1, period_ms - length_ms))
        fault = SimulatedFault(
            kind=rng.choice(self.kinds),
            upstream=rng.choice(("hiro", "tenero", None)),
            share=self.share,
            from_ms=from_ms,
            until_ms=from_ms + length_ms,
            status=rng.choice((500, 502, 503, 504)),
            retry_after=rng.choice((None, 1, 30, 300)),
            as_date=rng.random() < 0.3,
        )
        return fault if from_ms <= now_ms < from_ms + length_ms else None


class FaultInjector:
    """Applies the active faults, the latest first, and then the scheduled one."""

    def __init__(self, seed: int, schedule: BadTimes | None = None) -> None:
        self.schedule = schedule
        self.active: list[SimulatedFault] = []
        self._rng = Random(f"{seed}:faults")  # noqa: S311 - a repeatable model, not a secret

    def add(self, fault: SimulatedFault) -> None:
        if len(self.active) >= FAULTS_MAX:
            raise UsageError(f"there are {FAULTS_MAX} faults already: clear them first (calm)")
        self.active.insert(0, fault)

    def clear(self) -> None:
        self.active.clear()
        self.schedule = None

    def deliver(
        self,
        upstream: UpstreamName,
        request: SimulatedRequest,
        reply: SimulatedReply,
        rate_limit: UpstreamRateLimit,
        now_ms: int,
    ) -> tuple[Delivery, FaultKind | None]:
        """Return what arrives of a good reply, and the kind of fault that was applied."""
        fault = self._pick(upstream, request, now_ms)
        if fault is None:
            return Delivery(reply), None
        return _apply_fault(fault, upstream, reply, rate_limit, self._rng, now_ms), fault.kind

    def _pick(self, upstream: UpstreamName, request: SimulatedRequest, now_ms: int) -> SimulatedFault | None:
        for number, fault in enumerate(self.active):
            if fault.matches(upstream, request, now_ms) and self._draw(fault):
                if fault.times == 1:
                    del self.active[number]
                elif fault.times is not None:
                    self.active[number] = replace(fault, times=fault.times - 1)
                return fault
        scheduled = self.schedule.fault_at(now_ms) if self.schedule else None
        if scheduled and scheduled.matches(upstream, request, now_ms) and self._draw(scheduled):
            return scheduled
        return None

    def _draw(self, fault: SimulatedFault) -> bool:
        """Return whether a matching request belongs to the fault's share."""
        return fault.share >= 1.0 or self._rng.random() < fault.share


def _apply_fault(  # noqa: C901, PLR0911 - one case per kind
    fault: SimulatedFault,
    upstream: UpstreamName,
    reply: SimulatedReply,
    rate_limit: UpstreamRateLimit,
    rng: Random,
    now_ms: int,
) -> Delivery:
    match fault.kind:
        case "limited":
            limited = rate_limit.limited_reply("minute", _retry_after(fault, now_ms))
            return Delivery(limited.with_headers(_without(reply.headers, "content-type", "etag", "retry-after")))
        case "status":
            body = ERROR_BODIES[upstream] if fault.body is None else fault.body.encode()
            headers = {**_without(reply.headers, "etag"), **fault.extra_headers}
            return Delivery(SimulatedReply(fault.status, body, headers))
        case "hang":
            return Delivery(reply, hangs=True)
        case "delay":
            return Delivery(reply, delay_s=fault.seconds)
        case "slow":
            return Delivery(reply, drip_s=fault.seconds)
        case "cut":
            return Delivery(reply, cut_after=0)
        case "cut_body":
            return Delivery(reply, cut_after=max(1, len(reply.body) // 2))
        case "truncated":
            return Delivery(replace(reply, body=reply.body[: max(1, len(reply.body) * 2 // 3)]))
        case "wrong_json":
            headers = {**reply.headers, "content-type": "text/html; charset=utf-8"}
            return Delivery(SimulatedReply(200, HTML, headers))
        case "wrong_types":
            return Delivery(replace(reply, body=_with_wrong_types(reply.body, rng)))
        case "huge":
            return Delivery(reply, padding=fault.size)
        case "own_cursor" | "empty_page":
            return Delivery(_with_wrong_page(reply, fault.kind))


def _retry_after(fault: SimulatedFault, now_ms: int) -> str | None:
    if fault.retry_after is None:
        return None
    if fault.as_date:
        return formatdate(now_ms / 1000 + fault.retry_after, usegmt=True)
    return str(fault.retry_after)


def _without(headers: Mapping[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name not in names}


def _with_wrong_page(reply: SimulatedReply, kind: FaultKind) -> SimulatedReply:
    """Make a page of a list lead nowhere. Any other reply stays as it is."""
    try:
        body = json.loads(reply.body)
        cursor = body["cursor"]
    except (ValueError, KeyError, TypeError):
        return reply
    if kind == "own_cursor":
        cursor["next"] = cursor["current"]
    else:
        body |= {"results": [], "total": 0, "cursor": dict.fromkeys(cursor)}
    return replace(reply, body=json.dumps(body).encode())


def _with_wrong_types(body: bytes, rng: Random) -> bytes:
    """Replace about one value in six with a value of another type."""
    try:
        value = json.loads(body)
    except ValueError:  # a body that is not JSON has no types
        return body
    changed = _change_types(value, rng)
    return json.dumps([value] if changed == value else changed).encode()


def _change_types(value: object, rng: Random) -> object:
    if rng.random() < 1 / 6:
        replacements = [None, True, -1, 1.5, "text", [], {}, [value], {"value": value}, 10**40]
        return rng.choice([other for other in replacements if type(other) is not type(value)])
    if isinstance(value, dict):
        return {name: _change_types(item, rng) for name, item in value.items()}
    if isinstance(value, list):
        return [_change_types(item, rng) for item in value]
    return value
