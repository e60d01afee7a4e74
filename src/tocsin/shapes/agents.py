"""Answers to an agent's questions about itself and its transactions."""

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from tocsin.shapes.base import Shape, SnakeShape, without_nulls
from tocsin.shapes.competition import BoardRow, ExplainStep, Leg, SwapAmounts, Trade
from tocsin.shapes.rounds import AgentFlag, RewardCategory, RewardStatus

AgentTier: TypeAlias = Literal["eligible", "genesis", "registered", "not_registered"]
KnownFrom: TypeAlias = Literal["record", "refusal", "queue", "chain"]


@dataclass(frozen=True, slots=True)
class TradeVerdict(SnakeShape):
    """Whether a transaction counts, and why, step by step.

    `known_from` is the source of the verdict: our record, a stored refusal, our queue, or a new query of the chain.
    `sentence` explains what can be done. `trade` is the recorded swap.
    """

    txid: str
    status: Literal["verified", "pending", "rejected"]
    known_from: KnownFrom
    reason: str
    steps: list[ExplainStep]
    code: str | None = None
    sentence: str | None = None
    swap: SwapAmounts | None = None
    legs: list[Leg] | None = None
    trade: Trade | None = None

    def __post_serialize__(self, json: dict[Any, Any]) -> dict[Any, Any]:
        return without_nulls(json)


@dataclass(frozen=True, slots=True)
class VerdictAnswer(Shape):
    """The object's answer to a request for a verdict. If there is no verdict, the code gives the reason."""

    verdict: TradeVerdict | None
    code: str | None = None
    reason: str = ""
    retry_at: int | None = None


@dataclass(frozen=True, slots=True)
class RecentRefusal(Shape):
    """A transaction that does not count. `sentence` explains what can be done."""

    txid: str
    code: str
    reason: str
    sentence: str
    sender: str
    contract_id: str | None
    function_name: str | None
    burn_block_time: int
    refused_at: int


@dataclass(frozen=True, slots=True)
class RefusalPage(Shape):
    """A page of refusals, newest first; `next` is the cursor of the next page."""

    refusals: list[RecentRefusal]
    next: str | None


@dataclass(frozen=True, slots=True)
class AgentPrize(Shape):
    """A prize that an agent won, and whether it was paid."""

    category: RewardCategory
    amount_sats: int
    status: RewardStatus
    payout_txid: str | None


@dataclass(frozen=True, slots=True)
class AgentRound(Shape):
    """How an agent did in a round that has a result. `ends_at` is in unix seconds, as in the round.

    `pnl_usd` and `volume_usd` are null if none of its trades had a price. `pnl_percent` is a fraction of the volume,
    as in the round. `flags` has only flags that are not cleared.
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


@dataclass(frozen=True, slots=True)
class AgentView(Shape):
    """What is known about one wallet. `missing` lists what is left to do before its swaps count.

    `ranks` has its rank among `ranked` agents in every order of the board; null without a trade that counts.
    `period_ranks` has the same for each period, without the orders in which it has no value. `row` is its row of the
    board, under the wallet that traded last. `rounds` has its latest rounds with a result, newest first.
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
