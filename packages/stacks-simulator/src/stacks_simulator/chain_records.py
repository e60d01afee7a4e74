"""The records of a chain: events, transactions, blocks, and an index of transactions by principal."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

NO_MICROBLOCK = 2_147_483_647  # the microblock sequence of every transaction since Nakamoto

AssetAction: TypeAlias = Literal["transfer", "mint", "burn"]
ChainPosition: TypeAlias = tuple[int, int, int]  # height, microblock sequence, index in the block
AssetKey: TypeAlias = tuple[int, str]  # one of the kinds below, and the asset; sorts as Hiro's rows do
STX_KIND, FT_KIND, NFT_KIND = 1, 2, 3

# mempool: it waits. mined: it is on the canonical chain. dropped: it left the mempool, and its status has the
# reason. forked: it is only on an abandoned fork, and v1 still shows that copy. vanished: no node has it.
TxState: TypeAlias = Literal["mempool", "mined", "dropped", "forked", "vanished"]


@dataclass(frozen=True, slots=True)
class AssetEvent:
    """A transfer, mint or burn of STX or a fungible token. A mint has no sender, a burn no recipient."""

    asset: str
    action: AssetAction
    sender: str
    recipient: str
    amount: int


@dataclass(frozen=True, slots=True)
class NftEvent:
    """A transfer, mint or burn of one item of a collection, without an amount."""

    asset: str
    action: AssetAction
    sender: str
    recipient: str
    item: int


@dataclass(frozen=True, slots=True)
class ContractLogEvent:
    """A contract's `print` of what it did."""

    contract: str
    action: str


ChainEvent: TypeAlias = AssetEvent | NftEvent | ContractLogEvent


@dataclass(frozen=True, slots=True)
class CallArgument:
    """One argument of a contract call; `value` is an unsigned integer, a principal, or None for `none`."""

    name: str
    value: int | str | None


@dataclass(frozen=True, slots=True)
class SimulatedCall:
    """The payload of a contract call."""

    contract: str
    function: str
    arguments: tuple[CallArgument, ...] = ()


@dataclass(frozen=True, slots=True)
class TokenTransfer:
    """The payload of a plain STX transfer."""

    recipient: str
    amount: int


@dataclass(frozen=True, slots=True)
class TenureChange:
    """The payload of a miner's first transaction after a Bitcoin block."""


TxPayload: TypeAlias = SimulatedCall | TokenTransfer | TenureChange


@dataclass(frozen=True, slots=True)
class IntendedSwap:
    """The wallet's net change as the generator intended it; it is not derived from events."""

    token_in: str
    amount_in: int
    token_out: str
    amount_out: int


@dataclass(frozen=True, slots=True)
class Block:
    """A block with transactions. An empty block exists only as a height."""

    height: int
    hash: str
    parent_hash: str
    index_hash: str
    time_s: int
    burn_height: int
    burn_time_s: int
    transactions: list["ChainTransaction"] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class ChainTransaction:
    """A transaction and its current state."""

    tx_id: str
    sender: str
    fee: int
    payload: TxPayload
    events: tuple[ChainEvent, ...]
    outcome: str  # the status once it is mined
    received_ms: int
    swap: IntendedSwap | None = None
    sponsor: str | None = None
    nonce: int = 0  # see AccountNonces
    sponsor_nonce: int = 0
    state: TxState = "mempool"
    status: str = "pending"
    replaced_by: str | None = None
    block: Block | None = None
    index: int = 0
    # Rendered rows by name, kept until the state changes: pages of fifty rows are requested many times.
    rendered: dict[str, Any] = field(default_factory=dict)
    _changes: dict[str, dict[AssetKey, list[int]]] | None = None

    @property
    def position(self) -> ChainPosition:
        assert self.block is not None, "only a mined transaction has a position"
        return self.block.height, NO_MICROBLOCK, self.index

    @property
    def fee_payer(self) -> str:
        return self.sponsor or self.sender

    @property
    def signers(self) -> list[str]:
        return [self.sender, self.sponsor] if self.sponsor else [self.sender]

    def set_state(self, state: TxState, status: str) -> None:
        self.state = state
        self.status = status
        self.rendered.clear()

    def principals(self) -> set[str]:
        """Every principal that has this transaction in its list."""
        principals = {self.sender, self.fee_payer}
        if isinstance(self.payload, SimulatedCall):
            principals.add(self.payload.contract)
        for event in self.events:
            if not isinstance(event, ContractLogEvent):
                principals.update((event.sender, event.recipient))
        principals.discard("")
        return principals

    def balance_changes(self, principal: str) -> dict[AssetKey, list[int]]:
        """The amounts sent and received per asset. The fee is part of the STX that its payer sent."""
        if self._changes is None:
            self._changes = _sum_changes(self)
        return self._changes.get(principal, {})


def _sum_changes(tx: ChainTransaction) -> dict[str, dict[AssetKey, list[int]]]:
    changes: dict[str, dict[AssetKey, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    changes[tx.fee_payer][STX_KIND, "stx"][0] += tx.fee
    for event in tx.events:
        if isinstance(event, ContractLogEvent):
            continue
        key, amount = _asset_key(event), event.amount if isinstance(event, AssetEvent) else 1
        if event.sender:
            changes[event.sender][key][0] += amount
        if event.recipient:
            changes[event.recipient][key][1] += amount
    return changes


def _asset_key(event: AssetEvent | NftEvent) -> AssetKey:
    if isinstance(event, NftEvent):
        return NFT_KIND, event.asset
    return (STX_KIND if event.asset == "stx" else FT_KIND), event.asset


class PrincipalIndex:
    """Mined transactions, all of them and by principal, oldest first. A reorg removes the newest."""

    def __init__(self) -> None:
        self.all: list[ChainTransaction] = []
        self._lists: dict[str, list[ChainTransaction]] = defaultdict(list)

    def add(self, tx: ChainTransaction) -> None:
        self.all.append(tx)
        for principal in tx.principals():
            self._lists[principal].append(tx)

    def remove(self, orphans: Iterable[ChainTransaction]) -> None:
        """Remove transactions, which must be the newest of every principal that they involve."""
        removed = set(orphans)
        _remove_newest(self.all, removed)
        for tx in removed:
            for principal in tx.principals():
                _remove_newest(self._lists[principal], removed)

    def of(self, principal: str) -> Sequence[ChainTransaction]:
        return self._lists.get(principal, ())


def count_up_to(transactions: Sequence[ChainTransaction], position: ChainPosition) -> int:
    """Count the transactions at or before this position in a list that is oldest first."""
    return bisect_right(transactions, position, key=lambda tx: tx.position)


def _remove_newest(transactions: list[ChainTransaction], removed: Collection[ChainTransaction]) -> None:
    while transactions and transactions[-1] in removed:
        transactions.pop()
