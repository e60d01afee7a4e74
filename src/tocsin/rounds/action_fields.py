"""Checks the fields of an operator's action. An error states how to give a missing or invalid field. Pure."""

import re
from collections.abc import Mapping
from dataclasses import fields

from tocsin.errors import UsageError
from tocsin.exact_decimals import read_decimal
from tocsin.rounds.recurring import floor_rules
from tocsin.shapes.base import camel_case
from tocsin.shapes.pool_floors import PoolFloors
from tocsin.shapes.round_views import RoundAction, RoundRule
from tocsin.shapes.rounds import CATEGORIES, RoundRules
from tocsin.stacks_address import is_token_id

DAY_S, YEAR_S = 86_400, 366 * 86_400
GRACE_S = 3_600
SATS_MAX = 21 * 10**14

_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_PREFIX = re.compile(r"[a-z][a-z0-9]{0,19}")

# The fields of each action, in addition to the reason and, for all but the rule, the round. Other fields are refused:
# the caller probably meant another action.
_STEP = frozenset(("token_ids", "decimals_map"))  # as the site sends them; only a snapshot needs them
_RULED = frozenset(("grace_s", "min_volume_usd", "min_priced_trade_count", "rewards"))
_TAKES: Mapping[str, frozenset[str]] = {
    "add": _RULED | {"starts_at", "ends_at"},
    "rule": _RULED | {"first_starts_at", "period_s", "prefix", "first_number", "end"},
    "close": _STEP,
    "snapshot": _STEP | {"force"},
    "finalize": _STEP,
    "void": frozenset(),
    "reopen": frozenset(),
    "price": frozenset(("token_id", "price_usd", "decimals")),
    "flag": frozenset(("agent_id", "kind", "decision")),
    "pay": frozenset(("category", "status", "payout_txid")),
}


def new_rules(action: RoundAction, floors: PoolFloors) -> RoundRules:
    """Return the rules of a new round."""
    round_id = round_id_of(action)
    starts_at, ends_at = _time(action.starts_at, "startsAt"), _time(action.ends_at, "endsAt")
    grace_s = GRACE_S if action.grace_s is None else action.grace_s
    if not starts_at < ends_at <= starts_at + YEAR_S:
        raise UsageError("endsAt must be later than startsAt, by at most a year.")
    _check_grace(grace_s)
    defaults = RoundRules("", 0, 0, 0)
    count = action.min_priced_trade_count
    min_liquidity_usd, min_day_volume_usd = floor_rules(floors)
    return RoundRules(
        round_id=round_id,
        starts_at=starts_at,
        ends_at=ends_at,
        grace_ends_at=ends_at + grace_s,
        min_volume_usd=usd_of(action.min_volume_usd, defaults.min_volume_usd),
        min_priced_trade_count=_count(count, defaults.min_priced_trade_count),
        min_liquidity_usd=min_liquidity_usd,
        min_day_volume_usd=min_day_volume_usd,
        rewards=_rewards(action.rewards),
    )


def check_fields(action: RoundAction) -> None:
    takes = (
        _TAKES[action.action] | {"action", "reason"} | ({"round_id"} if action.action != "rule" else set())
    )
    for each in fields(action):
        if each.name not in takes and getattr(action, each.name) != each.default:
            raise UsageError(f"{action.action} takes no {camel_case(each.name)}.")


def round_id_of(action: RoundAction) -> str:
    round_id = action.round_id or ""
    if not _ID.fullmatch(round_id):
        raise UsageError("roundId is lower-case letters, digits and hyphens, such as week-1-2026-05-13.")
    return round_id


def need_reason(action: RoundAction) -> str:
    if not action.reason:
        raise UsageError(f"{action.action} needs a reason: it is published or kept with the round.")
    return action.reason


def checked_token(token: str) -> str:
    if not is_token_id(token):
        raise UsageError("A token id is stx, or SP….contract::asset.")
    return token


def usd_of(text: str | None, default: str | None) -> str:
    """Return a decimal number that is not negative."""
    value = default if text is None else text
    if value is None or read_decimal(value) < 0:
        raise UsageError("An amount in USD is a decimal number such as 0.85, as text.")
    return value


def _count(count: int | None, default: int) -> int:
    number = default if count is None else count
    if not 0 <= number <= 1_000_000:
        raise UsageError("minPricedTradeCount is 0 to 1,000,000.")
    return number


def _time(at: int | None, name: str) -> int:
    if at is None or not 0 < at < 10**11:
        raise UsageError(f"{name} is a time in unix seconds, such as 1778630400.")
    return at


def _check_grace(grace_s: int) -> None:
    if not 0 <= grace_s <= 7 * DAY_S:
        raise UsageError("graceS is 0 to 604800 seconds.")


def _rewards(rewards: dict[str, int] | None) -> dict[str, int]:
    for category, sats in (rewards or {}).items():
        if category not in CATEGORIES or not 0 <= sats <= SATS_MAX:
            raise UsageError(f"rewards are sats by category: {', '.join(CATEGORIES)}.")
    return dict(rewards or {})


def rule_of(action: RoundAction) -> RoundRule | None:
    """Return the rule to set; None if the action ends it, which it must state."""
    if action.end:
        if any(getattr(action, name) is not None for name in _TAKES["rule"] - {"end"}):
            raise UsageError("end takes no other field: it ends the rule.")
        return None
    if action.first_starts_at is None:
        raise UsageError(
            "Give firstStartsAt, a time in unix seconds, to set the rule, or end: true to end it."
        )
    rule = RoundRule(
        first_starts_at=_time(action.first_starts_at, "firstStartsAt"),
        prefix=action.prefix or "week",
        first_number=1 if action.first_number is None else action.first_number,
        period_s=7 * DAY_S if action.period_s is None else action.period_s,
        grace_s=GRACE_S if action.grace_s is None else action.grace_s,
        min_volume_usd=usd_of(action.min_volume_usd, "50"),
        min_priced_trade_count=_count(action.min_priced_trade_count, 3),
        rewards=_rewards(action.rewards),
    )
    if not _PREFIX.fullmatch(rule.prefix) or not 0 <= rule.first_number < 10**6:
        raise UsageError("prefix is a lower-case word such as week; firstNumber is 0 to 999999.")
    if not 3_600 <= rule.period_s <= YEAR_S:
        raise UsageError("periodS is an hour to a year, in seconds.")
    _check_grace(rule.grace_s)
    return rule
