"""How the reference judges one transaction, written from its description. Pure."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

KNOWN_STATUSES = frozenset(
    {
        "success",
        "abort_by_response",
        "abort_by_post_condition",
        "dropped_replace_by_fee",
        "dropped_replace_across_fork",
        "dropped_too_expensive",
        "dropped_stale_garbage_collect",
        "dropped_problematic",
    }
)
STX_EVENTS = frozenset({"stx_asset", "stx_transfer_event", "stx_transfer"})


@dataclass(frozen=True, slots=True)
class ReferenceSwap:
    """A swap as the reference stores it."""

    sender: str
    token_in: str
    amount_in: int
    token_out: str
    amount_out: int


@dataclass(frozen=True, slots=True)
class ReferenceRefusal:
    """A code of the verifier. Nothing is stored, so the transaction is fetched again at the next visit."""

    code: str


@dataclass(frozen=True, slots=True)
class _Leg:
    asset: str
    amount: int


def parse_legs(tx: Mapping[str, Any]) -> ReferenceSwap | ReferenceRefusal:
    """The largest leg out and the largest leg in, by raw amounts; legs of one token are not added up."""
    agent, given, received = tx["sender_address"], [], []
    for event in tx.get("events") or []:
        asset = event.get("asset")
        if not asset or asset.get("asset_event_type") != "transfer":
            continue
        amount = js_amount(asset.get("amount"))
        if amount is None:
            return ReferenceRefusal("invalid_amount")
        name = "stx" if event.get("event_type") in STX_EVENTS else asset.get("asset_id") or "unknown"
        sender, recipient = asset.get("sender"), asset.get("recipient")
        if sender == agent and recipient != agent:
            given.append(_Leg(name, amount))
        elif recipient == agent and sender != agent:
            received.append(_Leg(name, amount))
    if not given or not received:
        return ReferenceRefusal("incomplete_events")
    out, into = max(given, key=_size), max(received, key=_size)  # of equal ones, the first
    return ReferenceSwap(agent, out.asset, out.amount, into.asset, into.amount)


def _size(leg: _Leg) -> int:
    return leg.amount


def js_amount(value: Any) -> int | None:
    """The amount as JavaScript's `Number`, exact up to 2^53. None if it is not a non-negative whole number."""
    try:
        number = float(value) if value not in {None, ""} else math.nan
    except (TypeError, ValueError):
        return None
    if not math.isfinite(number) or number < 0 or number != int(number):
        return None
    return int(number)


def verify_fetched(  # noqa: PLR0911 - one return per check, in the reference's order
    tx: Mapping[str, Any], start_s: int, tiers: Mapping[str, str], allowlist: Mapping[str, Collection[str]]
) -> ReferenceSwap | ReferenceRefusal | None:
    """Verify in the reference's order, from the status on; None while it is pending.

    It checks neither `canonical` nor whether all events were sent.
    """
    status = tx["tx_status"]
    if status == "pending":
        return None
    if status not in KNOWN_STATUSES:
        return ReferenceRefusal("malformed_tx")
    if status != "success":
        return ReferenceRefusal("tx_failed")
    if (tx.get("burn_block_time") or 0) < start_s:
        return ReferenceRefusal("before_comp_start")
    if tx.get("tx_type") != "contract_call":
        return ReferenceRefusal("malformed_tx")
    tier = tiers.get(tx["sender_address"])
    if tier != "eligible":
        code = "sender_not_genesis" if tier == "registered" else "sender_not_registered"
        return ReferenceRefusal(code)
    call = tx["contract_call"]
    if call["function_name"] not in allowlist.get(call["contract_id"], ()):
        return ReferenceRefusal("contract_not_allowlisted")
    return parse_legs(tx)
