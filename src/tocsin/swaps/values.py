"""The value of each swap when it was made: both sides at the price in force at its burn block time.

If no price was in force, the first one in the next hour is used. If there is none either, the value of that side is
unknown, and the swap is marked accordingly. A token that was thin then has no known value. Values have six decimals.

A swap is *excessive* if it was worth more than a pool can pay, at the prices of its own time. The owner of a token's
contract can mint any amount for a trader while a pool swaps a little of it. No pool takes or pays more than it holds,
and no pool pays several times what it gets. Such a swap is recorded, but it has no value: neither on the board nor in
a round. What is not known is not excessive, and that a token was thin does not matter for this.

A trigger queues every recorded swap, and another removes the value together with the swap. So a run finds its work
without reading other swaps, and repeats nothing.
"""

import json
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Literal, TypeAlias

from holdfast.types import Database, Row
from tocsin.prices.price import PoolFloors
from tocsin.prices.store import STALE_AFTER_MS, peg_of
from tocsin.shape import SnakeShape
from tocsin.sql import read_queries
from tocsin.text import EXACT, TEXT_MAX, decimal_of_float, decimal_text, read_decimal, usd_value

# The price of a token may move by this factor between two refreshes before it is doubted: `TOCSIN_PRICE_JUMP_FACTOR`.
EXCESS_FACTOR = 5
BATCH = 500
BATCHES_MAX = 4  # per call
AFTER_MS = 3_600_000  # how long after a swap a first price is accepted
RETRY_MS = 300_000
_LAST_DIGIT, _ROUNDING = Decimal("1e-30"), Context(prec=EXACT.prec, rounding=ROUND_HALF_EVEN)
MICROS_MAX = 10**15  # a swap of more than a billion dollars has a wrong price or amount

SQL = read_queries(__file__)


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
        for text in (worth.given_usd, worth.given_liquidity_usd, worth.received_usd, worth.received_liquidity_usd)
    ]


def _usd(value: Decimal) -> str:
    return f"{value:,.2f} USD"


@dataclass(frozen=True, slots=True)
class _SideValue:
    """The value of one side, and what the token's pools held. None: it will never be known."""

    usd: Decimal | None = None
    liquidity_usd: str | None = None
    thin: bool = False

    @property
    def text(self) -> str | None:
        """The value as a decimal number. It has at most 30 decimals, which keeps it short enough to be read again."""
        return None if self.usd is None else decimal_text(self.usd.quantize(_LAST_DIGIT, context=_ROUNDING))

    @property
    def micros(self) -> int | None:
        """The value in millionths of a dollar, rounded once."""
        if self.usd is None or self.thin:
            return None
        micros = EXACT.scaleb(self.usd, 6)
        return None if micros > MICROS_MAX else int(micros.to_integral_value(rounding=ROUND_HALF_EVEN))


Side: TypeAlias = _SideValue | Literal["later"]  # "later": a price may still arrive


async def value_swaps(db: Database, now: int, floors: PoolFloors) -> int:
    """Value a limited number of queued swaps; returns how many got a value or were marked as unknown."""
    done = 0
    for _ in range(BATCHES_MAX):
        rows = (await db.prepare(SQL["swaps_to_value"]).bind(now, BATCH, STALE_AFTER_MS, AFTER_MS).all()).results
        if not rows:
            break
        done += await _value_some(db, rows, now, floors)
        if len(rows) < BATCH:
            break
    return done


async def _value_some(db: Database, rows: list[Row], now: int, floors: PoolFloors) -> int:
    values, later, excess = [], [], []
    for row in rows:
        if row["block_hash"] is None:  # the swap is gone
            continue
        given, received = _side(row, "in", now, floors), _side(row, "out", now, floors)
        if given == "later" or received == "later":
            later.append([min(now + RETRY_MS, row["at"] + AFTER_MS + 1), row["txid"]])
            continue
        swap = [row["txid"], row["block_hash"]]
        worth = SwapWorth(row["txid"], given.text, given.liquidity_usd, received.text, received.liquidity_usd)
        if excess_of(worth) is None:
            values.append([*swap, given.micros, received.micros])
        else:
            values.append([*swap, None, None])
            excess.append([*swap, worth.to_json()])
    done = [[row["due_at"], row["txid"]] for row in rows]
    statements = [
        db.prepare(SQL["save_values"]).bind(json.dumps(values)),
        *([db.prepare(SQL["save_excess"]).bind(json.dumps(excess))] if excess else []),
        db.prepare(SQL["valued"]).bind(json.dumps(done)),
        db.prepare(SQL["value_later"]).bind(json.dumps(later)),
    ]
    await db.batch(statements)
    return len(values)


def _side(row: Row, side: Literal["in", "out"], now: int, floors: PoolFloors) -> Side:
    token_id, amount = row[f"token_{side}"], int(row[f"amount_{side}"])
    peg = peg_of(token_id)
    if peg is not None:
        return _SideValue(usd_value(amount, decimal_of_float(peg.price_usd), peg.decimals))
    points = [json.loads(row[name]) for name in (f"{side}_before", f"{side}_after") if row[name] is not None]
    price, decimals, liquidity, volume = next((point for point in points if point[0] is not None), (None,) * 4)
    if price is None and now <= row["at"] + AFTER_MS:
        return "later"
    if price is None or decimals is None:
        return _SideValue()
    figures = (None if text is None else float(text) for text in (liquidity, volume))
    held = None if liquidity is None or len(liquidity) > TEXT_MAX else liquidity
    return _SideValue(usd_value(amount, read_decimal(price), decimals), held, floors.is_thin(token_id, *figures))
