"""The competition as agents and visitors see it. Trades use the names that the site published."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

from tocsin.chain_model import TXID_PATTERN
from tocsin.shapes.base import Shape, SnakeShape, without_nulls
from tocsin.shapes.completeness import Completeness
from tocsin.shapes.scheduler import Health

SwapSource: TypeAlias = Literal["agent", "cron", "chainhook"]
BoardPeriod: TypeAlias = Literal["round", "24h", "7d", "30d", "all"]
Amount: TypeAlias = str  # digits: exact, in the token's smallest unit

_AMOUNTS = {"amount_in": {"pattern": "^[0-9]+$"}, "amount_out": {"pattern": "^[0-9]+$"}}


@dataclass(frozen=True, slots=True)
class BoardRow(Shape):
    """One agent on the board. `wallets` has all addresses whose trades count in the row, newest first.

    `pnl_usd` is unrealised: what was received less what was given, all at the prices of the board. `pnl_at_trade_usd`
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
class SweepProgress(Shape):
    """How many of its lists a sweep has read so far."""

    done: int
    total: int


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


@dataclass(frozen=True, slots=True)
class Trade(SnakeShape):
    """A recorded swap. `tx_status` and the two scores exist because the site's clients read them.

    `excess` is why the swap has no value: at the prices of its time, it was worth more than a pool can pay.
    """

    CONSTRAINTS: ClassVar = _AMOUNTS

    txid: str
    sender: str
    contract_id: str
    function_name: str
    token_in: str
    amount_in: Amount
    token_out: str
    amount_out: Amount
    burn_block_time: int
    block_height: int
    tx_status: str
    source: SwapSource
    provider: str | None
    scored_value: float | None = None
    scored_at: int | None = None
    excess: str | None = None


@dataclass(frozen=True, slots=True)
class TradePage(SnakeShape):
    """A page of trades, newest first."""

    trades: list[Trade]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class TradeCounts(SnakeShape):
    """An agent's counts; zeros for an address that is not registered. Times are seconds, as on chain."""

    address: str
    agent_id: int | None
    registered: bool
    trade_count: int
    verified_trade_count: int
    first_trade_at: int | None
    last_trade_at: int | None


@dataclass(frozen=True, slots=True)
class AllowedContract(SnakeShape):
    """A contract, its DEX, and its functions that count."""

    contract_id: str
    functions: list[str]
    protocol: str


@dataclass(frozen=True, slots=True)
class AllowListView(SnakeShape):
    """The contracts and functions that count; `protocols` has the number of contracts of each DEX.

    The version changes whenever the list does.
    """

    version: str
    entries: list[AllowedContract]
    total_contracts: int
    total_functions: int
    provider_address: str
    protocols: dict[str, int]


@dataclass(frozen=True, slots=True)
class TrackedTokens(Shape):
    """The tokens whose prices are kept fresh; `static-fallback` until the first refresh."""

    tokens: list[str]
    count: int
    source: Literal["dynamic", "static-fallback"]
    static_core: list[str]
    max_tracked: int


@dataclass(frozen=True, slots=True)
class PushCounts(Shape):
    """The result of a Chainhook push. `refused`: transactions for which the queue has no room.

    `too_large`: nothing of it was read; the lists show its transactions.
    """

    queued: int
    already_known: int
    ignored: int
    rolled_back: int
    refused: int = 0
    too_large: bool = False


@dataclass(frozen=True, slots=True)
class Leg(SnakeShape):
    """The net change of the sender's balance of one token."""

    CONSTRAINTS: ClassVar = {"amount": {"pattern": "^[0-9]+$"}}

    token: str
    amount: Amount
    role: Literal["given", "fee", "received"]


@dataclass(frozen=True, slots=True)
class SubmitAnswer(Shape):
    """The object's answer to a submitted trade. The route turns it into one of the bodies below.

    `obstacle` explains why a pending trade would not count; without one, the trade is queued. `trade` is the recorded
    swap, whether this submission recorded it or an earlier one. `legs` has its legs; null if an older release
    recorded it.
    """

    http_status: int
    code: str | None
    sentence: str
    reason: str
    retryable: bool = False
    obstacle: str | None = None
    trade: Trade | None = None
    retry_at: int | None = None
    legs: list[Leg] | None = None


@dataclass(frozen=True, slots=True)
class PendingTrade(SnakeShape):
    """A submitted trade that is not mined yet. Not `accepted`: it would not count, and `note` explains why."""

    accepted: bool
    note: str
    code: str
    reason: str
    retryable: bool


@dataclass(frozen=True, slots=True)
class RefusedTrade(SnakeShape):
    """A submitted trade that was not recorded now; `existing_row` is the trade that was recorded earlier."""

    error: str
    code: str
    reason: str
    retryable: bool
    existing_row: Trade | None = None

    def __post_serialize__(self, json: dict[Any, Any]) -> dict[Any, Any]:
        return without_nulls(json)


@dataclass(frozen=True, slots=True)
class TradeSubmission(SnakeShape):
    """The body of a submission."""

    CONSTRAINTS: ClassVar = {"txid": {"pattern": rf"^\s*(?:{TXID_PATTERN[1:-1]})\s*$"}}

    txid: str


@dataclass(frozen=True, slots=True)
class ExplainStep(SnakeShape):
    """One check of the verifier. `code` is present if the check failed."""

    name: str
    ok: bool
    detail: str
    code: str | None = None

    def __post_serialize__(self, json: dict[Any, Any]) -> dict[Any, Any]:
        return without_nulls(json)


@dataclass(frozen=True, slots=True)
class SwapAmounts(SnakeShape):
    """What the sender gave and got."""

    CONSTRAINTS: ClassVar = _AMOUNTS

    token_in: str
    amount_in: Amount
    token_out: str
    amount_out: Amount


@dataclass(frozen=True, slots=True)
class Explanation(SnakeShape):
    """The verifier's judgement of a transaction, step by step.

    `legs` is null if it is not known what moved. `unknown`: a saved body does not show whether it counts, and `code`
    and `reason` explain what is missing.
    """

    status: Literal["verified", "pending", "rejected", "unknown"]
    code: str | None
    reason: str
    steps: list[ExplainStep]
    swap: SwapAmounts | None
    legs: list[Leg] | None
