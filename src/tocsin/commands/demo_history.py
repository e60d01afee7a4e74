"""The past of the demo: the history that a service running all along would have kept. The simulator knows all of it.

It has prices and the board for every hour, and prices every five minutes before the end of a round.
"""

import json
import sqlite3
from collections.abc import Iterator, Sequence

from tocsin.exact_decimals import decimal_of_float, decimal_text
from tocsin.prices.pricing import peg_of
from tocsin.simulator.simulated_tokens import TOKENS_BY_ID, TRADED_TOKENS, price_usd
from tocsin.simulator.simulator import Simulator
from tocsin.simulator.truth import TrueSwap

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
LIQUIDITY_USD, VOLUME_USD = "250000", "18000"
PRICED = {token.id for token in TRADED_TOKENS if token.quoting in {"number", "text", "unlisted"}}

_ADD = "INSERT INTO price_tokens (token) VALUES (?) ON CONFLICT (token) DO NOTHING"
_POINT = """
INSERT INTO price_points (token, at, price_usd, decimals, source, liquidity_usd, volume_usd)
SELECT id, ?, ?, ?, 'tenero', ?, ? FROM price_tokens WHERE token = ? ON CONFLICT (token, at) DO NOTHING"""
_DAY = """
INSERT INTO agent_days (day, agent_id, last_hour, last_point, points) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (day, agent_id) DO NOTHING"""


def seed_history(connection: sqlite3.Connection, simulator: Simulator, ends: Sequence[int], now: int) -> None:
    """Write the history before the first sweep, which finds the same swaps. `ends` are the ends of rounds (seconds)."""
    chain = simulator.chain
    with connection:
        connection.executemany(_ADD, [(token,) for token in sorted(PRICED)])
        connection.executemany(_POINT, _points(chain.start_ms, ends, now))
        connection.executemany(_DAY, _days(simulator, chain.start_ms, now))


def _points(start_ms: int, ends: Sequence[int], now: int) -> Iterator[tuple[int, str, int, str, str, str]]:
    times = set(range(start_ms - start_ms % HOUR_MS, now - HOUR_MS, HOUR_MS))
    for end in ends:
        times |= {end * 1000 - minutes * MINUTE_MS for minutes in range(0, 65, 5)}
    for token_id in sorted(PRICED):
        token = TOKENS_BY_ID[token_id]
        for at in sorted(at for at in times if at < now):
            price = decimal_text(decimal_of_float(price_usd(token, at)))
            yield at, price, token.decimals, LIQUIDITY_USD, VOLUME_USD, token_id


def _days(simulator: Simulator, start_ms: int, now: int) -> Iterator[tuple[int, int, int, str, str]]:
    """The board at each time, as rows of `agent_days`."""
    agent_of = {
        wallet.address: wallet.erc8004_agent_id
        for wallet in simulator.chain.wallets
        if wallet.tier == "eligible"
    }
    swaps = sorted(simulator.truth(), key=lambda swap: swap.burn_block_time)
    rows: dict[tuple[int, int], list[str]] = {}
    hours: dict[tuple[int, int], int] = {}
    positions: dict[int, _Position] = {}
    done = 0
    first = start_ms - start_ms % HOUR_MS + HOUR_MS
    for at in range(first, now - HOUR_MS, HOUR_MS):
        while done < len(swaps) and swaps[done].burn_block_time * 1000 < at:
            agent_id = agent_of[swaps[done].sender]
            assert agent_id is not None
            positions.setdefault(agent_id, _Position()).add(swaps[done])
            done += 1
        values = {agent_id: position.values(at) for agent_id, position in positions.items()}
        ranked = sorted(values, key=lambda agent_id: (-values[agent_id][1], agent_id))
        for rank, agent_id in enumerate(ranked, 1):
            volume, pnl = values[agent_id]
            position = positions[agent_id]
            point = [at % DAY_MS // MINUTE_MS, rank, position.trades, volume, pnl, None, position.uncounted]
            key = (at // DAY_MS, agent_id)
            rows.setdefault(key, []).append(json.dumps(point, separators=(",", ":")))
            hours[key] = at % DAY_MS // HOUR_MS
    for (day, agent_id), points in rows.items():
        yield day, agent_id, hours[day, agent_id], points[-1], ",".join(points)


class _Position:
    """The tokens with a price that an agent has given and received so far."""

    def __init__(self) -> None:
        self.trades = 0
        self.uncounted = 0
        self._given: dict[str, int] = {}
        self._received: dict[str, int] = {}

    def add(self, swap: TrueSwap) -> None:
        self.trades += 1
        if _has_price(swap.token_in) and _has_price(swap.token_out):
            self._given[swap.token_in] = self._given.get(swap.token_in, 0) + swap.amount_in
            self._received[swap.token_out] = self._received.get(swap.token_out, 0) + swap.amount_out
        else:
            self.uncounted += 1

    def values(self, at: int) -> tuple[int, int]:
        """Volume and P&L in cents, at the prices of that time."""
        given = sum(_usd(token, amount, at) for token, amount in self._given.items())
        received = sum(_usd(token, amount, at) for token, amount in self._received.items())
        return round(given * 100), round((received - given) * 100)


def _has_price(token_id: str) -> bool:
    return token_id in PRICED or peg_of(token_id) is not None


def _usd(token_id: str, amount: int, at: int) -> float:
    token, peg = TOKENS_BY_ID[token_id], peg_of(token_id)
    return float(amount / 10**token.decimals * (price_usd(token, at) if peg is None else peg.price_usd))
