"""What an agent can learn about itself: its tier, what is missing, its ranks and last refusals, and how it trades."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from holdfast.types import Database
from tocsin.board.board import PERIODS, SORTS, PeriodRows, PublishedBoard, ranked, unit_prices, value_by
from tocsin.board.types import AgentTier, AgentView, BoardRow
from tocsin.prices.price import Price
from tocsin.sql import read_queries
from tocsin.swaps.trades import check_address, refusals

SQL = read_queries(__file__)

REFUSALS_MAX = 10

# What is left to do before an agent's swaps count, in order.
STEPS = {
    "register": "register the wallet as an agent at https://aibtc.com; its earlier swaps count as well",
    "claim": "have the claim verified: it must be verified or rewarded",
    "identity": "get an on-chain identity (ERC-8004)",
}
MISSING: dict[AgentTier, list[str]] = {
    "not_registered": list(STEPS.values()),
    "registered": [STEPS["claim"], STEPS["identity"]],
    "genesis": [STEPS["identity"]],
    "eligible": [],
}


class BoardRanks:
    """Ranks in every order and period, computed once for each published board."""

    def __init__(self) -> None:
        self._board: PublishedBoard | None = None
        self._ranks: dict[int, dict[str, int]] = {}  # by agent, then by order
        self._rows: dict[str, BoardRow] = {}  # by every wallet
        self._of_round: PublishedBoard | None = None
        self._in_periods: dict[str, dict[int, dict[str, int]]] = {}  # by period, by agent, by order

    def find(self, board: PublishedBoard, address: str) -> tuple[BoardRow, dict[str, int]] | None:
        """The row of a wallet, and its ranks."""
        if board is not self._board:
            self._board, self._ranks = board, ranks_by_agent(board.rows)
            self._rows = {wallet: row for row in board.rows for wallet in row.wallets}
            rows, kept = PeriodRows(), self._in_periods.get("round", {})
            self._in_periods = {
                period: ranks_by_agent(rows.of(board, period), known_only=True)
                for period in PERIODS
                if period in board.periods
            }
            self._in_periods["round"] = kept
        row = self._rows.get(address)
        return None if row is None else (row, self._ranks[row.erc8004_agent_id])

    def in_periods(self, agent_id: int, of_round: PublishedBoard | None) -> dict[str, dict[str, int]]:
        """Return the ranks of an agent in each period of the board that was last asked for."""
        if of_round is not self._of_round:
            self._of_round = of_round
            rows = [] if of_round is None else of_round.rows
            self._in_periods["round"] = ranks_by_agent(rows, by_place=True, known_only=True)
        return {period: ranks[agent_id] for period, ranks in self._in_periods.items() if ranks.get(agent_id)}


def ranks_by_agent(
    rows: Sequence[BoardRow], *, by_place: bool = False, known_only: bool = False
) -> dict[int, dict[str, int]]:
    """Return every agent's rank in each order, best first; with `known_only`, in the orders in which it has a value."""
    ranks: dict[int, dict[str, int]] = {}
    for sort in SORTS:
        value_of = value_by(sort)
        for rank, row in enumerate(ranked(rows, sort, "desc", by_place=by_place), 1):
            if not known_only or value_of(row) is not None:
                ranks.setdefault(row.erc8004_agent_id, {})[sort] = rank
    return ranks


async def agent_view(
    db: Database, board: PublishedBoard, ranks: BoardRanks, address: str, of_round: PublishedBoard | None = None
) -> AgentView:
    """Describe one wallet. An unregistered address also gets an answer."""
    check_address(address)
    row = await db.prepare(SQL["agent"]).bind(address).first() or {}
    refused = await refusals(db, limit=REFUSALS_MAX, sender=address)
    tier: AgentTier = row.get("tier", "not_registered")
    placed = ranks.find(board, address)
    return AgentView(
        address=address,
        tier=tier,
        missing=MISSING[tier],
        agent_id=row.get("erc8004_agent_id"),
        display_name=row.get("display_name"),
        bns_name=row.get("bns_name"),
        ranks=None if placed is None else placed[1],
        ranked=len(board.rows),
        row=None if placed is None else placed[0],
        period_ranks={} if placed is None else ranks.in_periods(placed[0].erc8004_agent_id, of_round),
        last_refusals=refused.refusals,
        as_of=board.as_of,
        links={
            "trades": f"/api/competition/trades?address={address}",
            "submit": "/api/competition/trades",
            "allowlist": "/api/competition/allowlist",
        },
    )


@dataclass(frozen=True, slots=True)
class ValuedSwap:
    """A swap with the value of both sides at its time; None where the value is unknown."""

    time_s: int
    token_in: str
    amount_in: int
    token_out: str
    amount_out: int
    given_usd: float | None
    received_usd: float | None
    txid: str = ""
    is_excess: bool = False  # worth more than a pool can pay


@dataclass(frozen=True, slots=True)
class TokenFlow:
    """What was received of a token less what was given, and its value at current prices.

    The value is that of the trades that count: both their tokens have a price, since one priced side alone would look
    like a gain or a loss, and they are not excessive. With a value, `units` are those of these trades.
    """

    token: str
    units: int
    usd: float | None
    trades: int


def token_flows(swaps: Iterable[ValuedSwap], prices: Mapping[str, Price]) -> list[TokenFlow]:
    """Add the swaps up by token, the largest value first."""
    units = unit_prices(prices)
    net: Counter[str] = Counter()
    counted: Counter[str] = Counter()
    trades: Counter[str] = Counter()
    for swap in swaps:
        trades.update({swap.token_in, swap.token_out})
        counts = not swap.is_excess and swap.token_in in units and swap.token_out in units
        for sums in (net, counted) if counts else (net,):
            sums[swap.token_in] -= swap.amount_in
            sums[swap.token_out] += swap.amount_out
    flows = [
        TokenFlow(token, counted[token], counted[token] * units[token], count)
        if token in units
        else TokenFlow(token, net[token], None, count)
        for token, count in trades.items()
    ]
    return sorted(flows, key=lambda flow: (-abs(flow.usd or 0), -flow.trades, flow.token))


@dataclass(slots=True)
class _Lot:
    """The part of a received amount that the agent still holds."""

    time_s: int
    amount: int
    usd: float | None  # the value given for it


@dataclass(frozen=True, slots=True)
class TradingStats:
    """Figures of closed trades. `win_rate` is the share of wins among the `valued` ones, whose values are known."""

    closed: int
    valued: int
    win_rate: float | None
    holding_s: float | None  # mean over the closed trades


def trading_stats(swaps: Iterable[ValuedSwap]) -> TradingStats:
    """Compute the figures from swaps in chain order."""
    lots: dict[str, deque[_Lot]] = {}
    closed = wins = valued = 0
    held_s = 0
    for swap in swaps:
        left = swap.amount_in
        held = lots.get(swap.token_in, deque())
        while left > 0 and held:
            lot = held[0]
            part = min(left, lot.amount)
            closed += 1
            held_s += swap.time_s - lot.time_s
            if lot.usd is not None and swap.given_usd is not None:
                valued += 1
                wins += swap.given_usd * part / swap.amount_in > lot.usd * part / lot.amount
            left -= part
            if part == lot.amount:
                held.popleft()
            else:
                lot.usd = None if lot.usd is None else lot.usd * (lot.amount - part) / lot.amount
                lot.amount -= part
        lots.setdefault(swap.token_out, deque()).append(_Lot(swap.time_s, swap.amount_out, swap.received_usd))
    return TradingStats(closed, valued, wins / valued if valued else None, held_s / closed if closed else None)


def draw_down(values: Sequence[float]) -> float:
    """Return the deepest fall from a peak, as a positive number."""
    peak, deepest = float("-inf"), 0.0
    for value in values:
        peak = max(peak, value)
        deepest = max(deepest, peak - value)
    return deepest
