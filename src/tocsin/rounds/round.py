"""Rounds: their rules, the inputs of their results, the results, the shapes of the routes, and which step is due. Pure.

A round is open → closed, when the grace is over → finalizing, when everything is known and captured → finalized.

Names and numbers are those that the site published, if it has them. Exact money is decimal text. Times are unix
seconds; times of the service's own actions, whose names end with `_at`, are ISO 8601 in UTC.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

from tocsin.prices.price import CORE_TOKENS
from tocsin.shape import FreeForm, Shape, SnakeShape, without_nulls
from tocsin.swaps.types import Amount, SwapSource, TradeCounts
from tocsin.swaps.values import SwapWorth

RoundStatus: TypeAlias = Literal["open", "closed", "finalizing", "finalized", "partially_paid", "paid", "void"]
RewardCategory: TypeAlias = Literal["overall_pnl", "volume", "return"]
RewardStatus: TypeAlias = Literal["pending", "paid", "failed", "void"]
PriceSource: TypeAlias = Literal["tenero", "peg", "manual_admin"]
FlagKind: TypeAlias = Literal["churn", "ring", "shared_funder", "shared_owner", "dust", "excess", "operator"]
DiscrepancyKind: TypeAlias = Literal["late", "withdrawn", "changed", "agent_ineligible"]
Step: TypeAlias = Literal["close", "capture", "finalize"]
Usd: TypeAlias = str  # an exact decimal number

CATEGORIES: tuple[RewardCategory, ...] = ("overall_pnl", "volume", "return")
WAIT_MS = 15 * 60_000  # what a round usually waits for arrives within this time
TOO_LONG_MS = 2 * 3_600_000  # after this wait the service is not ready
# While a round waits for what usually arrives soon. A look at the chain may end right after the grace did.
LOOK_AGAIN_MIN_MS, LOOK_AGAIN_MAX_MS = 10_000, 60_000


@dataclass(frozen=True, slots=True)
class RoundRules(SnakeShape):
    """The rules of a round. They are part of its result, and do not change once it has begun.

    A token is thin, and counts like one without a price, if its liquidity or its daily volume is below the floor, or
    if its liquidity is not known and it is not one of `core_tokens`. A swap of less than `dust_usd` does not count
    toward `min_priced_trade_count`. `rewards` are in sats.
    """

    round_id: str
    starts_at: int
    ends_at: int
    grace_ends_at: int
    min_volume_usd: Usd = "50"
    min_priced_trade_count: int = 3
    min_liquidity_usd: Usd = "10000"
    min_day_volume_usd: Usd = "500"
    dust_usd: Usd = "1"
    core_tokens: list[str] = field(default_factory=lambda: list(CORE_TOKENS))
    rewards: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RoundAgent(SnakeShape):
    """A wallet that was eligible when the round was captured. Wallets of one identity are one agent."""

    stx_address: str
    btc_address: str
    erc8004_agent_id: int
    display_name: str | None = None
    owner: str | None = None
    first_funder: str | None = None  # who sent it its first STX, if known


@dataclass(frozen=True, slots=True)
class RoundPrice(SnakeShape):
    """The price of a token at the end of a round. `at` is when it was seen (unix ms).

    `volume_usd` is what its pools traded in a day.
    """

    token_id: str
    price_usd: Usd
    decimals: int
    source: PriceSource
    at: int
    liquidity_usd: Usd | None = None
    volume_usd: Usd | None = None
    reason: str | None = None  # why an operator set it


class RoundSwap(NamedTuple):
    """A swap that counted, as it was when the round was captured. It is a tuple, because there may be many."""

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
    tx_index: int
    source: SwapSource


@dataclass(frozen=True, slots=True)
class RoundRefusal(SnakeShape):
    """A transaction within the round that did not count, and why."""

    txid: str
    sender: str
    code: str
    reason: str
    burn_block_time: int


@dataclass(frozen=True, slots=True)
class FlagDecision(SnakeShape):
    """An operator's decision about an agent.

    `clear` removes a flag's effect, `exclude` excludes the agent from all prizes.
    """

    erc8004_agent_id: int
    decision: Literal["clear", "exclude"]
    kind: FlagKind | None  # None: all of them
    reason: str
    decided_by: str
    decided_at: str


@dataclass(frozen=True, slots=True)
class RoundInputs(SnakeShape):
    """Everything that a result is computed from, and nothing else.

    `excesses` are the swaps that were worth more than a pool can pay, with the figures that show it.
    """

    rules: RoundRules
    allowlist_version: str
    complete_until_block: int | None
    agents: list[RoundAgent]
    prices: list[RoundPrice]
    swaps: list[RoundSwap]
    refusals: list[RoundRefusal] = field(default_factory=list)
    decisions: list[FlagDecision] = field(default_factory=list)
    excesses: list[SwapWorth] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class AgentFlag(SnakeShape):
    """A public remark about an agent's trades.

    `excludes_from` lists the prizes that the agent cannot win because of it.
    """

    erc8004_agent_id: int
    kind: FlagKind
    reason: str
    txids: list[str]  # some of the transactions that show it
    excludes_from: list[RewardCategory]
    cleared: bool = False  # by an operator


@dataclass(frozen=True, slots=True)
class Placement(SnakeShape):
    """An agent's rank, and its trades. `stx_address` is the wallet that traded last."""

    rank: int
    stx_address: str
    btc_address: str
    erc8004_agent_id: int
    trade_count: int
    priced_trade_count: int
    unpriced_trade_count: int
    latest_trade_at: int


@dataclass(frozen=True, slots=True)
class AgentResult(Placement):
    """The result of one agent. `stx_address` is the wallet that traded last; `wallets` has all that count here.

    `pnl_percent` is a fraction of the volume, as the site published it. `capital_usd` is the capital used.
    """

    dust_trade_count: int
    volume_usd: Usd
    received_usd: Usd
    pnl_usd: Usd
    pnl_percent: Usd | None
    capital_usd: Usd
    source_counts: dict[str, int]
    unpriced_tokens: list[str]
    thin_tokens: list[str]
    wallets: list[str]


@dataclass(frozen=True, slots=True)
class RoundReward(SnakeShape):
    """The winner of a category; there is no row if nobody wins."""

    category: RewardCategory
    rank: int
    stx_address: str
    erc8004_agent_id: int
    amount_sats: int


@dataclass(frozen=True, slots=True)
class RoundOutcome(SnakeShape):
    """The result computed from the inputs."""

    results: list[AgentResult]
    rewards: list[RoundReward]
    flags: list[AgentFlag]


@dataclass(frozen=True, slots=True)
class RoundRow(SnakeShape):
    """A round. `rules` has all its rules, exact. `version` counts its results: reopening it starts the next one.

    `digest` is the SHA-256 of its file. `waiting_reason` explains why a round that is over has no result yet; it has
    waited since `waiting_since` (unix ms). `note` explains why it was made void or reopened.
    """

    round_id: str
    starts_at: int
    ends_at: int
    grace_ends_at: int
    status: RoundStatus
    min_volume_usd: float
    min_priced_trade_count: int
    created_at: str
    finalized_at: str | None
    version: int
    digest: str | None
    closed_at: str | None
    captured_at: str | None
    allowlist_version: str | None
    complete_until_block: int | None
    waiting_reason: str | None
    waiting_since: int | None
    note: str | None
    rules: RoundRules


@dataclass(frozen=True, slots=True)
class Pagination(Shape):
    """The position of a page in its list."""

    limit: int
    offset: int
    has_more: bool


@dataclass(frozen=True, slots=True)
class RoundWinner(SnakeShape):
    """The winner of a category of a round."""

    category: RewardCategory
    stx_address: str
    erc8004_agent_id: int
    display_name: str | None
    amount_sats: int


@dataclass(frozen=True, slots=True)
class RoundPage(SnakeShape):
    """Rounds with a result, newest first; `winners` by round."""

    rounds: list[RoundRow]
    pagination: Pagination
    winners: dict[str, list[RoundWinner]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ResultDetail(SnakeShape):
    """How the trades of a result were found, and the traded tokens without a price."""

    source_counts: dict[str, int]
    unpriced_tokens: list[str]


@dataclass(frozen=True, slots=True)
class RoundResultRow(Placement):
    """The result of an agent in a round. `pnl_percent` is a fraction of the volume; null without volume.

    `exact` has the same result with exact sums, and fields that the site does not have.
    """

    round_id: str
    volume_usd: float
    received_usd: float
    pnl_usd: float
    pnl_percent: float | None
    result_json: ResultDetail
    calculated_at: str
    exact: AgentResult


@dataclass(frozen=True, slots=True)
class RewardRow(RoundReward):
    """A prize, and whether it was paid."""

    round_id: str
    status: RewardStatus
    payout_txid: str | None
    paid_at: str | None
    notes: str | None
    created_at: str


@dataclass(frozen=True, slots=True)
class Discrepancy(SnakeShape):
    """Something that now differs from the data that the result was computed from. It does not change the result."""

    subject: str  # a transaction or an address
    kind: DiscrepancyKind
    detail: str
    found_at: str


@dataclass(frozen=True, slots=True)
class RoundDetail(SnakeShape):
    """A round with its result, and the prices of its end; without a result (yet), the lists are empty."""

    round: RoundRow
    results: list[RoundResultRow]
    rewards: list[RewardRow]
    prices: list[RoundPrice]
    flags: list[AgentFlag]
    discrepancies: list[Discrepancy]


@dataclass(frozen=True, slots=True)
class PlacedAgent(SnakeShape):
    """The result of one agent in one round."""

    round_id: str
    result: RoundResultRow


@dataclass(frozen=True, slots=True)
class AgentStatus(TradeCounts):
    """An agent's counts, and its newest result, if it has one."""

    ALIASES: ClassVar = {"latest_round_result": "latestRoundResult"}

    latest_round_result: RoundResultRow | None = None

    def __post_serialize__(self, json: dict[Any, Any]) -> dict[Any, Any]:
        if json["latestRoundResult"] is None:
            del json["latestRoundResult"]
        return json


@dataclass(frozen=True, slots=True)
class LatestRound(SnakeShape):
    """The newest round with a result. `sentence` says who won, and why nobody with a better rank did."""

    round: RoundRow
    winners: list[RoundWinner]
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class CurrentRounds(SnakeShape):
    """The round that runs at `now` (unix seconds); if there are several, the one that ends first.

    `next` is the one that starts next, `latest` the newest one with a result. `waiting` has the rounds that are over
    but have no result yet.
    """

    now: int
    running: RoundRow | None
    next: RoundRow | None
    waiting: list[RoundRow]
    latest: LatestRound | None


@dataclass(frozen=True, slots=True)
class RoundRule(SnakeShape):
    """Rounds that follow each other without a gap; the first starts at `first_starts_at` (unix seconds)."""

    first_starts_at: int
    prefix: str = "week"
    first_number: int = 1
    period_s: int = 604_800
    grace_s: int = 3_600
    min_volume_usd: str = "50"
    min_priced_trade_count: int = 3
    rewards: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ListedRound(SnakeShape):
    """A round as an operator sees it."""

    round: RoundRow
    discrepancies: int
    rewards: list[RewardRow]


@dataclass(frozen=True, slots=True)
class RoundList(SnakeShape):
    """All rounds, newest first, and the rule by which they follow each other."""

    now: int
    rounds: list[ListedRound]
    rule: RoundRule | None


@dataclass(frozen=True, slots=True)
class RoundAnswer(SnakeShape):
    """The answer to an operator's action. `outcome` is the computed result, if there is one."""

    ok: bool
    action: str
    dry_run: bool
    round: RoundRow | None = None
    detail: str | None = None
    outcome: FreeForm | None = None
    http_status: int = 200
    code: str | None = None

    def __post_serialize__(self, json: dict[Any, Any]) -> dict[Any, Any]:
        return without_nulls(json)


@dataclass(frozen=True, slots=True)
class RoundAction(Shape):
    """An operator's action on a round. Each action needs some of the fields and refuses the others.

    `starts_at`, `ends_at` and `first_starts_at` are in unix seconds. `status` is paid, failed or void, `kind` the kind
    of flag to decide on.
    """

    CONSTRAINTS: ClassVar = {"round_id": {"pattern": "^[a-z0-9][a-z0-9-]{0,63}$"}}

    action: Literal["add", "close", "snapshot", "finalize", "void", "reopen", "price", "flag", "pay", "rule"]
    round_id: str | None = None
    reason: str | None = None
    force: bool = False
    token_ids: list[str] | None = None
    decimals_map: dict[str, int] | None = None
    starts_at: int | None = None
    ends_at: int | None = None
    grace_s: int | None = None
    min_volume_usd: str | None = None
    min_priced_trade_count: int | None = None
    rewards: dict[str, int] | None = None
    token_id: str | None = None
    price_usd: str | None = None
    decimals: int | None = None
    agent_id: int | None = None
    kind: str | None = None
    decision: str | None = None
    category: str | None = None
    status: str | None = None
    payout_txid: str | None = None
    first_starts_at: int | None = None
    period_s: int | None = None
    prefix: str | None = None
    first_number: int | None = None
    end: bool = False


@dataclass(frozen=True, slots=True)
class AgentPrize(Shape):
    """A prize that an agent won, and whether it was paid."""

    category: RewardCategory
    amount_sats: int
    status: RewardStatus
    payout_txid: str | None


@dataclass(frozen=True, slots=True)
class AgentRound(Shape):
    """How an agent did in a round that has a result. `ends_at` is in unix milliseconds.

    `pnl_usd` and `volume_usd` are null if none of its trades had a price. `pnl_percent` is a percentage of the volume.
    `flags` has only flags that are not cleared.
    """

    round_id: str
    ends_at: int
    rank: int
    ranked: int
    pnl_usd: float | None
    pnl_percent: float | None
    volume_usd: float | None
    trade_count: int
    prizes: list[AgentPrize]
    flags: list[AgentFlag]


def due_step(round_: RoundRow, now: int) -> Step | None:
    """Return the step that is due now (unix ms)."""
    if round_.status == "open":
        return "close" if now >= round_.grace_ends_at * 1000 else None
    by_status: dict[str, Step] = {"closed": "capture", "finalizing": "finalize"}
    return by_status.get(round_.status)


def waited_ms(round_: RoundRow, now: int) -> int:
    return 0 if round_.waiting_since is None else max(0, now - round_.waiting_since)


def next_look(rounds: Iterable[RoundRow], began: int, now: int, next_start_ms: int | None) -> int | None:
    """Return when to wake the task: at the next end of a grace, or soon if a round has just begun to wait.

    What came due during this run, which `began` before `now`, may have been looked at too early: it wakes it at once.
    """
    times = [] if next_start_ms is None else [next_start_ms]
    for each in rounds:
        if each.status == "open":
            times.append(each.grace_ends_at * 1000)
        elif each.status == "closed" and waited_ms(each, now) < WAIT_MS:
            times.append(now + min(max(LOOK_AGAIN_MIN_MS, waited_ms(each, now)), LOOK_AGAIN_MAX_MS))
    return min((at for at in times if at > began), default=None)
