"""Rounds as the routes show them. Names and numbers are those that the site published; exact values are text."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

from tocsin.shapes.base import FreeForm, Shape, SnakeShape, without_nulls
from tocsin.shapes.competition import TradeCounts
from tocsin.shapes.rounds import (
    AgentFlag,
    AgentResult,
    RewardCategory,
    RewardStatus,
    RoundPrice,
    RoundRules,
    RoundStatus,
)

DiscrepancyKind: TypeAlias = Literal["late", "withdrawn", "changed", "agent_ineligible"]


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
class RoundResultRow(SnakeShape):
    """The result of an agent in a round. `pnl_percent` is a fraction of the volume; null without volume.

    `exact` has the same result with exact sums, and fields that the site does not have.
    """

    round_id: str
    stx_address: str
    rank: int
    btc_address: str
    erc8004_agent_id: int
    trade_count: int
    priced_trade_count: int
    unpriced_trade_count: int
    volume_usd: float
    received_usd: float
    pnl_usd: float
    pnl_percent: float | None
    latest_trade_at: int
    result_json: ResultDetail
    calculated_at: str
    exact: AgentResult


@dataclass(frozen=True, slots=True)
class RewardRow(SnakeShape):
    """A prize, and whether it was paid."""

    round_id: str
    category: RewardCategory
    rank: int
    stx_address: str
    erc8004_agent_id: int
    amount_sats: int
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
    """A round with its result, and the prices of its end."""

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
    """The newest round with a result."""

    round: RoundRow
    winners: list[RoundWinner]


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
    """An operator's action on a round. Each action needs some of the fields and refuses the others."""

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
