"""The bad days of the month: incidents of the reference's history, as the same faults for both services.

The numbers are those of the history, which states what happened, but rarely for how long: the hours are ours. Each
incident is a temporary fault of an upstream, a change of its plan or use, or something that happens to the process.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from stacks_simulator.faults import BadTimes, FaultKind, SimulatedFault
from stacks_simulator.http_messages import UpstreamName
from stacks_simulator.rate_limits import NO_LIMIT, HiroRateLimit, LimitPlan, TeneroRateLimit
from stacks_simulator.simulator import Simulator
from stacks_simulator.tokens import STSTX

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

# No monthly limit: the reference would reach 150,000, a limit that was seen once and is not confirmed.
HIRO_PLAN = LimitPlan(second=20, minute=500, month=NO_LIMIT)
HIRO_ANONYMOUS = LimitPlan(second=20, minute=50, month=NO_LIMIT)
TENERO_PLAN = LimitPlan(minute=100, month=50_000)

ProcessFault: TypeAlias = Literal["restart", "wipe"]
Change: TypeAlias = Callable[[Simulator], None]


@dataclass(frozen=True, slots=True)
class Incident:
    """An incident. `number` is that of the history; `hour` is the start and `hours` the duration, in the month."""

    number: int
    hour: float
    hours: float
    words: str
    fault: SimulatedFault | None = None
    begin: Change | None = None
    end: Change | None = None
    process: ProcessFault | None = None
    visited: bool = True  # whether anybody opens a page during it

    def at_ms(self, start_ms: int) -> tuple[int, int]:
        first = start_ms + int(self.hour * HOUR_MS)
        return first, first + int(self.hours * HOUR_MS)


def upstream_fault(
    number: int, day: int, hours: float, words: str, upstream: UpstreamName, fault: SimulatedFault
) -> Incident:
    """A fault of an upstream that begins at noon of that day."""
    named = replace(fault, upstream=upstream)
    return Incident(number, day * 24 + 12, hours, f"{upstream.capitalize()} {words}", fault=named)


def _share_anonymous(simulator: Simulator) -> None:
    limit = simulator.hiro_rate_limit
    limit.keys_ignored, limit.anonymous = True, LimitPlan(second=20, minute=5, month=NO_LIMIT)


def _accept_keys(simulator: Simulator) -> None:
    limit = simulator.hiro_rate_limit
    limit.keys_ignored, limit.anonymous = False, HIRO_ANONYMOUS


def _share_key(simulator: Simulator) -> None:
    simulator.hiro_rate_limit.keyed = LimitPlan(second=20, minute=25, month=NO_LIMIT)


def _own_key(simulator: Simulator) -> None:
    simulator.hiro_rate_limit.keyed = HIRO_PLAN


def _strangers_spend(simulator: Simulator) -> None:
    simulator.tenero_rate_limit.spend(40_000, simulator.clock.now())


def _starter_plan(simulator: Simulator) -> None:
    simulator.tenero_rate_limit.anonymous = LimitPlan(minute=10, month=50_000)


def _full_plan(simulator: Simulator) -> None:
    simulator.tenero_rate_limit.anonymous = TENERO_PLAN


def _quote_zero(simulator: Simulator) -> None:
    simulator.tenero.quote(STSTX.id, "zero")


def _quote_again(simulator: Simulator) -> None:
    simulator.tenero.quote(STSTX.id, "number")


def month_of_incidents() -> tuple[Incident, ...]:
    """The incidents of the history that are faults of an upstream or of the process, over thirty days."""
    limited = SimulatedFault(kind="limited", upstream="hiro", retry_after=30)
    return (
        Incident(3, 0, 3, "a fresh deployment that nobody visits", visited=False),
        Incident(4, 30, 0, "strangers spend 40,000 of Tenero's 50,000 calls", begin=_strangers_spend),
        upstream_fault(5, 3, 6, "does not answer", "tenero", SimulatedFault(kind="hang")),
        Incident(
            8, 5 * 24 + 12, 12, "the object's storage is wiped, and nobody visits", process="wipe", visited=False
        ),
        Incident(
            10,
            7 * 24 + 12,
            22,
            "Hiro ignores the key: anonymous, with 5 calls a minute left by strangers",
            begin=_share_anonymous,
            end=_accept_keys,
        ),
        *(
            Incident(12, 10 * 24 + 4 * number + 0.11, 0, "the process ends in the middle of a run", process="restart")
            for number in range(6)
        ),
        Incident(16, 11 * 24 + 12, 24, "Tenero allows 10 calls a minute", begin=_starter_plan, end=_full_plan),
        upstream_fault(
            21, 13, 6, "answers 200 in another shape", "tenero",
            SimulatedFault(kind="status", status=200, body='{"data":{"price":{}}}'),
        ),
        upstream_fault(22, 15, 6, "refuses us (403)", "tenero", SimulatedFault(kind="status", status=403)),
        Incident(26, 17 * 24 + 12, 3, "Tenero quotes stSTX at 0", begin=_quote_zero, end=_quote_again),
        upstream_fault(48, 19, 2, "hangs", "hiro", SimulatedFault(kind="hang")),
        Incident(
            49, 20 * 24 + 12, 24, "others use our Hiro key: 25 calls a minute left", begin=_share_key, end=_own_key
        ),
        upstream_fault(50, 22, 2, "answers half of the calls too late", "hiro",
                       SimulatedFault(kind="delay", seconds=20, share=0.5)),
        upstream_fault(51, 23, 3, "answers 429, Retry-After 30", "hiro", limited),
        upstream_fault(53, 24, 3, "answers 400", "hiro", SimulatedFault(kind="status", status=400)),
        upstream_fault(54, 25, 6, "takes 6 s for each answer", "hiro", SimulatedFault(kind="delay", seconds=6)),
        upstream_fault(
            55, 27, 6, "answers 503 for single transactions", "hiro",
            SimulatedFault(kind="status", status=503, path="/v1/tx/"),
        ),
    )  # fmt: skip


def everyday_faults(seed: int) -> BadTimes:
    """Faults in addition to the incidents: two minutes of trouble about every six hours.

    There are no answers with wrong types, because the sources do not state how the reference would read each.
    """
    kinds: tuple[FaultKind, ...] = ("limited", "status", "hang", "delay", "slow", "cut", "cut_body", "truncated")
    return BadTimes(seed, every_s=6 * 3_600, lasting_s=120, share=0.7, kinds=kinds)


def prepare(simulator: Simulator, incidents: Iterable[Incident], seed: int, start_ms: int) -> None:
    """Set the plans and faults of one service's upstreams. `Incident.begin` and `end` make changes in between."""
    simulator.hiro_rate_limit = HiroRateLimit(HIRO_PLAN, HIRO_ANONYMOUS)
    simulator.tenero_rate_limit = TeneroRateLimit(TENERO_PLAN, TENERO_PLAN)
    simulator.faults.schedule = everyday_faults(seed)
    for incident in incidents:
        if incident.fault is not None:
            first, last = incident.at_ms(start_ms)
            simulator.faults.add(replace(incident.fault, from_ms=first, until_ms=last))
