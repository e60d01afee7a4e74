"""What upstreams tell, in our own words: frozen, exact, and free of any one API's spelling.

Amounts are integers in the token's smallest unit, of any size. Times of the chain are unix seconds, as
the chain has them. A transaction id is always `0x` and 64 lower-case hex digits: one spelling, so that
one transaction cannot be stored twice.
"""

import re
from dataclasses import dataclass
from typing import Generic, Literal, TypeAlias, TypeVar

from tocsin.errors import UsageError

T = TypeVar("T")

STX = "stx"  # the asset id of the native token; fungible tokens are `contract::asset`

_TXID = re.compile(r"(?:0[xX])?([0-9a-fA-F]{64})")


def canonical_txid(text: str) -> str:
    """The one spelling of a transaction id; refuses what is none."""
    match = _TXID.fullmatch(text)
    if match is None:
        raise UsageError("A transaction id is 64 hex digits, with or without 0x before them.")
    return "0x" + match[1].lower()


@dataclass(frozen=True, slots=True)
class ContractCall:
    """The top-level call of a transaction."""

    contract_id: str
    function_name: str


@dataclass(frozen=True, slots=True)
class MinedAt:
    """Where a transaction was mined. `burn_block_time` is the anchoring Bitcoin block's, in seconds."""

    height: int
    block_hash: str
    tx_index: int
    burn_block_time: int

    @property
    def position(self) -> tuple[int, int]:
        """Orders transactions as the chain does; a high-water mark is one of these."""
        return (self.height, self.tx_index)


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction as an upstream knows it now.

    `canonical` is true only when it was mined on the chain that counts, whatever `status` says:
    pending, dropped and reorged transactions are not. `fee` was paid by the sender unless `sponsored`.
    `status` is the upstream's word; words unknown today are passed on, not mapped.
    """

    tx_id: str
    sender: str
    sponsored: bool
    fee: int
    status: str
    type: str
    contract_call: ContractCall | None
    mined: MinedAt | None
    canonical: bool
    event_count: int | None  # None where the answer does not tell: rows of a principal, the mempool


TransferKind: TypeAlias = Literal["transfer", "mint", "burn"]


@dataclass(frozen=True, slots=True)
class TransferEvent:
    """A movement of STX or of a fungible token; NFTs, logs and locks are no part of a swap.

    A mint has no sender, a burn no recipient.
    """

    index: int
    kind: TransferKind
    asset: str
    sender: str | None
    recipient: str | None
    amount: int


@dataclass(frozen=True, slots=True)
class TransactionWithEvents:
    """A transaction and its transfers, mints and burns; None when one answer does not hold all its events."""

    transaction: Transaction
    events: tuple[TransferEvent, ...] | None


@dataclass(frozen=True, slots=True)
class BalanceChange:
    """What one transaction did to one principal's balance of one asset. STX sent includes the fee."""

    tx_id: str
    asset: str
    sent: int
    received: int

    @property
    def net(self) -> int:
        return self.received - self.sent


@dataclass(frozen=True, slots=True)
class TokenPrice:
    """What a price source says of a token. No price is None, never 0; decimals are never guessed."""

    token_id: str
    price_usd: float | None
    decimals: int | None


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Part of a list, newest first. `next_cursor` leads to older items, None when there are none."""

    items: tuple[T, ...]
    next_cursor: str | None
