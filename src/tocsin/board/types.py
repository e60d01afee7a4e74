"""The shapes of the board: its rows and pages, an agent's answers and history, curves, and news."""

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from tocsin.rounds.round import AgentFlag, AgentRound
from tocsin.scheduler.types import Completeness, Health
from tocsin.shape import Shape, without_nulls
from tocsin.swaps.types import RecentRefusal, SweepProgress, Trade

BoardPeriod: TypeAlias = Literal["round", "24h", "7d", "30d", "all"]


@dataclass(frozen=True, slots=True)
class BoardRow(Shape):
    """One agent on the board. `wallets` has all addresses whose trades count in the row, newest first.

    `pnl_usd` is unrealized: what was received less what was given, all at the prices of the board. `pnl_at_trade_usd`
    and `volume_at_trade_usd` value each trade at the prices of its own time, for the `valued_trade_count` trades whose
    prices are known. `pnl_percent` is a percentage of `capital_usd`, the capital used: for each token, the largest net
    amount given at any time. `thin_tokens` have a price at which hardly anybody could trade. Trades with them or with
    `unpriced_tokens` do not count in USD, and neither do the `excess_trade_count` trades that were worth more than a
    pool can pay; `uncounted_trade_count` is the number of all these trades.

    `rank_change` is how many places by P&L the agent gained (above 0) or lost in 24 hours; null if that is not known.
    `sparkline` is its P&L every six hours over the last seven days, oldest first, and now; null is a gap.
    """

    rank: int
    stx_address: str
    btc_address: str
    display_name: str | None
    bns_name: str | None
    erc8004_agent_id: int
    trade_count: int
    latest_trade_at: int
    volume_usd: float | None
    capital_usd: float | None
    pnl_usd: float | None
    pnl_percent: float | None
    pnl_at_trade_usd: float | None
    valued_trade_count: int
    unpriced_tokens: list[str]
    thin_tokens: list[str]
    wallets: list[str]
    uncounted_trade_count: int = 0
    volume_at_trade_usd: float | None = None
    rank_change: int | None = None
    sparkline: list[float | None] = field(default_factory=list)
    excess_trade_count: int = 0


@dataclass(frozen=True, slots=True)
class BoardRound(Shape):
    """The round of a board (times in unix ms). `final`: it has a result, which `rows` show.

    The minimums apply to its prize for the best return.
    """

    round_id: str
    starts_at: int
    ends_at: int
    final: bool
    min_volume_usd: float
    min_priced_trade_count: int


@dataclass(frozen=True, slots=True)
class Board(Shape):
    """A page of the board; `next` is the cursor of the next page.

    `swept_at` is when the chain was last read completely; null if that is not known. `service` is the health of the
    service, as in `/readyz`. `complete` shows up to which block the record is proven complete. `final`: the competition
    has ended, and the board uses the prices of its end. `sweep_complete`: the newest search for swaps was complete.
    `first_sweep` is the progress of the first one; null once it has ended.

    The figures cover `period`, which starts at `since`; null: from the start, or not known yet. A figure of a period is
    null if no point was kept near its start. `round` is present if the period is a round.
    """

    rows: list[BoardRow]
    as_of: int
    prices_as_of: int | None
    next: str | None
    swept_at: int | None
    service: Health
    complete: Completeness | None = None  # null: from an older service
    final: bool = False
    sweep_complete: bool = False
    first_sweep: SweepProgress | None = None
    period: BoardPeriod = "all"
    since: int | None = None
    round: BoardRound | None = None


AgentTier: TypeAlias = Literal["eligible", "genesis", "registered", "not_registered"]


@dataclass(frozen=True, slots=True)
class AgentView(Shape):
    """What is known about one wallet. `missing` lists what is left to do before its swaps count.

    `ranks` has its rank among `ranked` agents in every order of the board; null without a trade that counts.
    `period_ranks` has the same for each period, without the orders in which it has no value. `row` is its row of the
    board, under the wallet that traded last. `rounds` has its latest rounds with a result, newest first. `flags` are
    those that it would have if the running round ended now; null if none runs, or if it has too many swaps to say.
    """

    address: str
    tier: AgentTier
    missing: list[str]
    agent_id: int | None
    display_name: str | None
    bns_name: str | None
    ranks: dict[str, int] | None
    ranked: int
    row: BoardRow | None
    last_refusals: list[RecentRefusal]
    as_of: int
    rounds: list[AgentRound] = field(default_factory=list)
    links: dict[str, str] = field(default_factory=dict)
    period_ranks: dict[str, dict[str, int]] = field(default_factory=dict)
    flags: list[AgentFlag] | None = None


Period: TypeAlias = Literal["24h", "7d", "30d", "90d", "all"]


@dataclass(frozen=True, slots=True)
class HistoryPoint(Shape):
    """An agent's row of the board at a time (unix ms), in USD to the cent; null for values not known then."""

    at: int
    rank: int
    trade_count: int
    volume_usd: float | None
    pnl_usd: float | None
    pnl_at_trade_usd: float | None


@dataclass(frozen=True, slots=True)
class HistoryView(Shape):
    """An agent's points in a period, oldest first: one per hour, and only the last one of each day long ago.

    An hour without a point stays a gap. The agent is null for an address without an identity.
    """

    address: str
    erc8004_agent_id: int | None
    period: Period
    as_of: int
    points: list[HistoryPoint]


@dataclass(frozen=True, slots=True)
class AgentCurve(Shape):
    """The P&L of one agent in USD, one value per day; null if none was kept."""

    erc8004_agent_id: int
    stx_address: str
    display_name: str | None
    pnl_usd: list[float | None]


@dataclass(frozen=True, slots=True)
class Curves(Shape):
    """The P&L of all agents at the end of each UTC day, from `first_day_at` (unix ms) on, in the order of the board."""

    as_of: int
    first_day_at: int
    days: int
    agents: list[AgentCurve]


NewsKind: TypeAlias = Literal["counted", "withdrawn", "refused", "outranked", "board"]


@dataclass(frozen=True, slots=True)
class News(Shape):
    """A change. To continue after an interruption, send `id` as `Last-Event-ID`.

    `counted`: a swap was recorded; it is in `trade`. `withdrawn`: a swap was removed, for example by a reorg.
    `refused`: a transaction does not count, with `code` and `reason`. `outranked`: an agent's rank by P&L changed from
    `previous_rank` to `rank`. `board`: a new board was published at `as_of`.
    """

    id: int
    kind: NewsKind
    address: str | None = None
    txid: str | None = None
    trade: Trade | None = None
    code: str | None = None
    reason: str | None = None
    rank: int | None = None
    previous_rank: int | None = None
    as_of: int | None = None

    def __post_serialize__(self, json: dict[Any, Any]) -> dict[Any, Any]:
        return without_nulls(json)
