"""Decides which swaps are *excessive*: worth more than a pool can pay, at the prices of their own time. Pure.

The owner of a token's contract can mint any amount for a trader while a pool swaps a little of it. No pool takes or
pays more than it holds, and no pool pays several times what it gets. Such a swap is recorded, but it has no value:
neither on the board nor in a round. What is not known is not excessive.
"""

import json
from dataclasses import dataclass
from decimal import Decimal

from tocsin.exact_decimals import EXACT, read_decimal
from tocsin.shapes.base import SnakeShape

# The price of a token may move by this factor between two refreshes before it is doubted: `TOCSIN_PRICE_JUMP_FACTOR`.
EXCESS_FACTOR = 5


@dataclass(frozen=True, slots=True)
class SwapWorth(SnakeShape):
    """What both sides of a swap were worth at its time, and what the pools of both tokens held. None: not known."""

    txid: str
    given_usd: str | None  # exact decimal numbers
    given_liquidity_usd: str | None
    received_usd: str | None
    received_liquidity_usd: str | None


def excess_of(worth: SwapWorth) -> str | None:
    """Return why a swap is excessive; None if it is not."""
    given, given_held, received, received_held = _figures(worth)
    if received is not None and received_held is not None and received > received_held:
        return f"it received {_usd(received)}, but the token's pools held {_usd(received_held)}"
    if given is not None and given_held is not None and given > given_held:
        return f"it gave {_usd(given)}, but the token's pools held {_usd(given_held)}"
    if given is not None and received is not None and received > EXACT.multiply(given, EXCESS_FACTOR):
        return f"it received {_usd(received)} for {_usd(given)}, which is more than {EXCESS_FACTOR} times as much"
    return None


def stored_excess(text: str | None) -> str | None:
    """Return why a swap is excessive, from its stored figures as JSON; None if it has none."""
    return None if text is None else excess_of(SwapWorth.from_json(json.loads(text)))


def check_worth(worth: SwapWorth) -> None:
    """Raise `UsageError` for a figure that is not a decimal number."""
    _figures(worth)


def _figures(worth: SwapWorth) -> list[Decimal | None]:
    return [
        None if text is None else read_decimal(text)
        for text in (
            worth.given_usd,
            worth.given_liquidity_usd,
            worth.received_usd,
            worth.received_liquidity_usd,
        )
    ]


def _usd(value: Decimal) -> str:
    return f"{value:,.2f} USD"
