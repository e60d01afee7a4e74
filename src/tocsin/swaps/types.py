"""The competition as agents and visitors see it. Trades use the names that the site published."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

from tocsin.shape import Shape, SnakeShape, without_nulls
from tocsin.stacks import TXID_PATTERN

SwapSource: TypeAlias = Literal["agent", "cron", "chainhook"]
Amount: TypeAlias = str  # digits: exact, in the token's smallest unit

_AMOUNTS = {"amount_in": {"pattern": "^[0-9]+$"}, "amount_out": {"pattern": "^[0-9]+$"}}

KnownFrom: TypeAlias = Literal["record", "refusal", "queue", "chain"]


@dataclass(frozen=True, slots=True)
class SweepProgress(Shape):
    """How many of its lists a sweep has read so far."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Trade(SnakeShape):
    """A recorded swap. `tx_status` and the two scores exist because the site's clients read them.

    It counts at `burn_block_time`, that of its Bitcoin block, and happened at `block_time`, that of its Stacks block.
    `source` is what found it: a submission of the agent, the service itself (cron), or a push of Chainhook.
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
    block_time: int | None = None


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
    """A contract by its `contract_id`, its DEX, and its functions that count."""

    contract_id: str
    functions: list[str]
    protocol: str


@dataclass(frozen=True, slots=True)
class AllowListView(SnakeShape):
    """The contracts and functions that count; `protocols` has the number of contracts of each DEX.

    `version` changes whenever the list does.
    """

    version: str
    entries: list[AllowedContract]
    total_contracts: int
    total_functions: int
    provider_address: str
    protocols: dict[str, int]


@dataclass(frozen=True, slots=True)
class TrackedTokens(Shape):
    """The tokens whose prices are kept fresh; `source` is `static-fallback` until the first refresh."""

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
    swap, whether this submission recorded it or an earlier one, and `legs` has its legs.
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
    """One check of the verifier, by `name`: whether it is `ok`, and why. `code` is present if the check failed."""

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
class TradeVerdict(SnakeShape):
    """Whether a transaction counts, and why, step by step.

    `status` is the verdict. `known_from` is its source: our record, a stored refusal, our queue, or a new query of the
    chain. `sentence` explains what can be done. `trade` is the recorded swap.
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
