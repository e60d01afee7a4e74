"""Rounds: their rules, the inputs of their results, and the results. Money is exact decimal text.

Names are those that the site published, if it has them. Times are unix seconds; times of the service's own actions,
whose names end with `_at`, are ISO 8601 in UTC.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple, TypeAlias

from tocsin.shapes.base import SnakeShape
from tocsin.shapes.competition import Amount, SwapSource
from tocsin.shapes.pool_floors import CORE_TOKENS
from tocsin.shapes.swap_excess import SwapWorth

RoundStatus: TypeAlias = Literal[
    "open", "closed", "finalizing", "finalized", "partially_paid", "paid", "void"
]
RewardCategory: TypeAlias = Literal["overall_pnl", "volume", "return"]
RewardStatus: TypeAlias = Literal["pending", "paid", "failed", "void"]
PriceSource: TypeAlias = Literal["tenero", "peg", "manual_admin"]
FlagKind: TypeAlias = Literal["churn", "ring", "shared_funder", "shared_owner", "dust", "excess", "operator"]
Usd: TypeAlias = str  # an exact decimal number

CATEGORIES: tuple[RewardCategory, ...] = ("overall_pnl", "volume", "return")


@dataclass(frozen=True, slots=True)
class RoundRules(SnakeShape):
    """The rules of a round. They are part of its result, and do not change once it has begun.

    A token is thin, and counts like one without a price, if its liquidity or its daily volume is below the floor, or
    if its liquidity is not known and it is not one of `core_tokens`. A swap of less than `dust_usd` does not count
    towards `min_priced_trade_count`. `rewards` are in sats.
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
    """The price of a token at the end of a round. `at` is when it was seen (unix ms)."""

    token_id: str
    price_usd: Usd
    decimals: int
    source: PriceSource
    at: int
    liquidity_usd: Usd | None = None
    volume_usd: Usd | None = None
    reason: str | None = None  # why an operator set it


class RoundSwap(NamedTuple):
    """A swap that counted, as it was when the round was captured. It is a tuple, because there may be a million."""

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
class AgentResult(SnakeShape):
    """The result of one agent. `stx_address` is the wallet that traded last; `wallets` has all that count here.

    `pnl_percent` is a fraction of the volume, as the site published it. `capital_usd` is the capital used.
    """

    rank: int
    stx_address: str
    btc_address: str
    erc8004_agent_id: int
    trade_count: int
    priced_trade_count: int
    unpriced_trade_count: int
    dust_trade_count: int
    volume_usd: Usd
    received_usd: Usd
    pnl_usd: Usd
    pnl_percent: Usd | None
    capital_usd: Usd
    latest_trade_at: int
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

    ORDER: ClassVar[str] = "P&L, volume, earliest last trade, address"
