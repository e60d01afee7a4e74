"""The legs of a swap: what the sender gave, got, and paid as fees. Pure.

A recorded swap keeps them in the form of the site's `raw_event_json`, so a dispute can be settled without asking Hiro.
Amounts are net and exact, as strings; fee legs are marked.
"""

import json

from tocsin.bindings import Row
from tocsin.competition.swap import Moves, Swap, swap_of
from tocsin.shapes.competition import Leg


def legs_of(moves: Moves) -> list[Leg]:
    """Return a leg for every asset that moved: given, then fees, then received. Only a swap has fees."""
    fees = moves.fees if isinstance(swap_of(moves), Swap) else frozenset()
    legs = [
        Leg(asset, str(abs(change)), "received" if change > 0 else "fee" if asset in fees else "given")
        for asset, change in moves.net.items()
    ]
    return sorted(legs, key=lambda leg: (("given", "fee", "received").index(leg.role), leg.token))


def stored_legs(swap: Swap, provider: str | None) -> str:
    """Encode the legs of a swap for its row."""
    given = {"asset_id": swap.token_in, "amount": str(swap.amount_in)}
    fees = [{"asset_id": asset, "amount": str(amount), "fee": True} for asset, amount in swap.fees.items()]
    got = {"asset_id": swap.token_out, "amount": str(swap.amount_out)}
    referred = {} if provider is None else {"provider": provider}
    return json.dumps({"legsOut": [given, *fees], "legsIn": [got], **referred}, separators=(",", ":"))


def recorded_legs(row: Row) -> list[Leg] | None:
    """Return the legs of a row of `swaps`; None if an older release recorded it."""
    if row["raw_event_json"] is None:
        return None
    kept = json.loads(row["raw_event_json"])
    out = [
        Leg(leg["asset_id"], leg["amount"], "fee" if leg.get("fee") else "given") for leg in kept["legsOut"]
    ]
    return [*out, *(Leg(leg["asset_id"], leg["amount"], "received") for leg in kept["legsIn"])]


def shown_legs(legs: list[Leg]) -> str:
    """Describe legs in a sentence: the sender gave 5 of A and, as a fee, 1 of C, and got 7 of B."""
    parts = {
        role: [f"{leg.amount} of {leg.token}" for leg in legs if leg.role == role]
        for role in ("given", "fee", "received")
    }
    fees = f" and, as a fee, {' and '.join(parts['fee'])}," if parts["fee"] else ""
    return f"the sender gave {' and '.join(parts['given'])}{fees} and got {' and '.join(parts['received'])}"
