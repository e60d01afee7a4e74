"""Chooses the way in which swaps are found: by the network's list, or by the lists of the contracts. Pure.

The network's list costs one call for fifty transactions of anybody, however many contracts and wallets there are. The
contracts' lists cost one call for each contract in every sweep, however busy the network is. The cheaper way is used.
Both costs are compared at the cadence of the sweep; two thresholds keep the choice from flapping. If the server does
not have the network's list, there is no choice, and Tocsin asks again from time to time.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tocsin.upstream.hiro import LIST_PAGE

Way: TypeAlias = Literal["network", "contracts"]

DAY_MS = 86_400_000
LEAVE_AT = 1.25  # leave the network's list when it costs this many times as much as the contracts'
RETURN_AT = 0.8  # and return to it at this
FIRST_MEASURE_MS = 600_000
MEASURE_MS = 3_600_000
ASK_AGAIN_MS = 3_600_000  # how often one call asks for the network's list while the other way is used


@dataclass(frozen=True, slots=True)
class MeasuredTraffic:
    """How busy the network is: the length of its list at a time, and the rate since an earlier time."""

    at: int
    total: int
    per_day: int | None = None


def measured(before: MeasuredTraffic | None, now: int, total: int) -> MeasuredTraffic:
    """Return the traffic after another reading of the list's length. If a reorg shortened it, measuring starts over."""
    if before is None or total < before.total or now < before.at:
        return MeasuredTraffic(now, total, None if before is None else before.per_day)
    elapsed = now - before.at
    if elapsed < (FIRST_MEASURE_MS if before.per_day is None else MEASURE_MS):
        return before
    return MeasuredTraffic(now, total, round((total - before.total) * DAY_MS / elapsed))


def network_calls(per_day: int, sweep_ms: int) -> float:
    """Return the calls a day that it takes to read the network's list once per sweep."""
    return per_day / LIST_PAGE + DAY_MS / sweep_ms


def contract_calls(contracts: int, sweep_ms: int) -> float:
    return contracts * DAY_MS / sweep_ms


def choose_way(way: Way, per_day: int | None, contracts: int, sweep_ms: int) -> tuple[Way, str]:
    """Return the way to use from now on, and why."""
    if per_day is None:
        return way, "the network's traffic is not measured yet"
    network, lists = network_calls(per_day, sweep_ms), contract_calls(contracts, sweep_ms)
    costs = (
        f"the network's {per_day:,} transactions a day are {network:,.0f} calls,"
        f" the lists of {contracts} contracts {lists:,.0f}"
    )
    if way == "network":
        return ("contracts" if network > LEAVE_AT * lists else "network"), costs
    return ("network" if network < RETURN_AT * lists else "contracts"), costs
