"""Rounds that follow each other by a rule: which ones must exist at a time. Pure."""

from collections.abc import Iterator
from datetime import UTC, datetime

from tocsin.exact_decimals import decimal_of_float, decimal_text
from tocsin.shapes.pool_floors import PoolFloors
from tocsin.shapes.round_views import RoundRule
from tocsin.shapes.rounds import RoundRules

AHEAD = 1  # rounds that are listed before they start
MADE_MAX = 20  # rounds added in one run


def floor_rules(floors: PoolFloors) -> tuple[str, str]:
    """Return the floors as rules of a new round, exact: `min_liquidity_usd` and `min_day_volume_usd`."""
    liquidity, volume = (decimal_of_float(usd) for usd in (floors.liquidity_usd, floors.day_volume_usd))
    return decimal_text(liquidity), decimal_text(volume)


def round_at(rule: RoundRule, number: int, floors: PoolFloors) -> RoundRules:
    """Return the n-th round of a rule (from 0), such as `week-1-2026-05-13`."""
    starts_at = rule.first_starts_at + number * rule.period_s
    ends_at = starts_at + rule.period_s
    min_liquidity_usd, min_day_volume_usd = floor_rules(floors)
    day = datetime.fromtimestamp(starts_at, UTC).strftime("%Y-%m-%d")
    return RoundRules(
        round_id=f"{rule.prefix}-{rule.first_number + number}-{day}",
        starts_at=starts_at,
        ends_at=ends_at,
        grace_ends_at=ends_at + rule.grace_s,
        min_volume_usd=rule.min_volume_usd,
        min_priced_trade_count=rule.min_priced_trade_count,
        min_liquidity_usd=min_liquidity_usd,
        min_day_volume_usd=min_day_volume_usd,
        rewards=dict(rule.rewards),
    )


def rounds_until(
    rule: RoundRule, set_at_s: int, newest_start: int | None, now_s: int, floors: PoolFloors
) -> Iterator[RoundRules]:
    """Yield the missing rounds: those after the newest existing one, up to the one after the running one.

    The first is the one that ran when the rule was set: a rule does not reach into the past.
    """
    running = _running(rule, now_s)
    first = min(_running(rule, set_at_s), running)  # the clock may have been set back
    if newest_start is not None:
        first = max(first, (newest_start - rule.first_starts_at) // rule.period_s + 1)
    for number in range(first, min(running + AHEAD, first + MADE_MAX - 1) + 1):
        yield round_at(rule, number, floors)


def latest_start(rule: RoundRule, now_s: int) -> int:
    """Return the start of the last round that must exist now."""
    return rule.first_starts_at + (_running(rule, now_s) + AHEAD) * rule.period_s


def _running(rule: RoundRule, at_s: int) -> int:
    return max(0, (at_s - rule.first_starts_at) // rule.period_s)


def next_start_ms(rule: RoundRule, now_s: int) -> int:
    """Return the time of the rule's next boundary."""
    if now_s < rule.first_starts_at:
        return rule.first_starts_at * 1000
    number = (now_s - rule.first_starts_at) // rule.period_s + 1
    return (rule.first_starts_at + number * rule.period_s) * 1000
