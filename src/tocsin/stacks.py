"""The chain: transactions, events, prices and addresses, independent of any one API. Frozen, exact and pure.

Amounts are integers of any size in the token's smallest unit. Times of the chain are unix seconds, as on the chain. A
transaction id is always `0x` and 64 lower-case hex digits: with only one form, one transaction cannot be stored twice.

An address is `S`, a version and 24 bytes in c32check: the 20 bytes of a hash and 4 bytes of checksum. Each leading zero
byte is one `0`, and the rest has no leading zeros. So an address has 28 to 41 characters: three of four have 41, one of
234 has 39. Each address has one spelling. Characters that c32 would read as others (lower case, `O`, `I`, `L`) are
refused, because stored addresses are compared as text.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Generic, Literal, TypeAlias, TypeVar

from holdfast.errors import UsageError

T = TypeVar("T")
STX = "stx"  # the asset id of the native token; fungible tokens are `contract::asset`
STX_DECIMALS = 6
TXID_PATTERN = "^(?:0[xX])?([0-9a-fA-F]{64})$"  # also used in JSON Schema
_TXID = re.compile(TXID_PATTERN)
TransferKind: TypeAlias = Literal["transfer", "mint", "burn"]
DECIMALS_MAX = 38
PRICE_USD_MIN = 1e-18  # a dollar would buy 10^18 tokens
PRICE_USD_MAX = 1e12  # more than all the money in the world
POOL_USD_MAX = 1e15
C32 = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
SINGLE_SIG = 22  # the version that gives the prefix SP
MULTI_SIG = 20  # the version that gives the prefix SM
HASH_BYTES = 20
CHECKSUM_BYTES = 4
_VERSIONS = {"P": SINGLE_SIG, "M": MULTI_SIG}
_PAYLOAD_BYTES = HASH_BYTES + CHECKSUM_BYTES
_ADDRESS = "S[MP][0-9A-HJKMNP-TV-Z]{26,39}"
_NAME = "[A-Za-z][A-Za-z0-9_-]{0,127}"
_CONTRACT = rf"{_ADDRESS}\.{_NAME}"
# Everything that a pattern can check; the functions below check the checksum.
ADDRESS_PATTERN = f"^{_ADDRESS}$"
TOKEN_ID_PATTERN = f"^(?:{STX}|{_CONTRACT}(?:::{_NAME})?)$"
_ADDRESS_FORM = re.compile(_ADDRESS)
_NAME_FORM = re.compile(_NAME)
_TO_PYTHON = str.maketrans(C32, "0123456789abcdefghijklmnopqrstuv")  # the digits of int(…, 32)


def canonical_txid(text: str) -> str:
    """The canonical form of a transaction id; raises `UsageError` for any other text."""
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
    """Where a transaction was mined.

    `burn_block_time` is the time of its Bitcoin block, in seconds, and `block_time` that of its Stacks block, if known.
    """

    height: int
    block_hash: str
    tx_index: int
    burn_block_time: int
    block_time: int | None = None

    @property
    def position(self) -> tuple[int, int]:
        """Orders transactions as the chain does."""
        return (self.height, self.tx_index)


@dataclass(frozen=True, slots=True)
class AccountNonce:
    """The number of a transaction among all transactions of an account. The chain allows no gaps."""

    account: str
    nonce: int


@dataclass(frozen=True, slots=True)
class StxPayment:
    """STX that somebody received by a transaction, in micro-STX."""

    recipient: str
    amount: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction as an upstream reports it now.

    `canonical` is true only if it was mined on the canonical chain, whatever its `status`: pending, dropped and reorged
    transactions are not canonical. The sender paid `fee` unless it is `sponsored`. `status` is the upstream's own word;
    unknown words are passed on, not mapped.
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
    event_count: int | None  # None if the answer has none: rows of a principal, the mempool
    nonces: tuple[AccountNonce, ...] = ()  # the sender's and the sponsor's; empty if the answer has none
    # The payment of a transfer or, in a principal's list, what that principal received; None if the answer has none.
    payment: StxPayment | None = None


@dataclass(frozen=True, slots=True)
class TransferEvent:
    """A movement of STX or of a fungible token; NFTs, logs and locks are not part of a swap.

    A mint has no sender, a burn no recipient. The amount is None if it cannot be read and does not matter, because the
    transaction's sender is neither of the two.
    """

    index: int
    kind: TransferKind
    asset: str
    sender: str | None
    recipient: str | None
    amount: int | None


@dataclass(frozen=True, slots=True)
class EventPage:
    """The transfers, mints and burns among the events of a transaction from index `start` up to `stop`."""

    start: int
    stop: int
    transfers: tuple[TransferEvent, ...]


@dataclass(frozen=True, slots=True)
class TransactionWithEvents:
    """A transaction and the page of its events in the answer; None if the answer has no usable events.

    `arguments` has the arguments of its call by name, as Clarity prints them; None if they were not requested.
    """

    transaction: Transaction
    page: EventPage | None
    arguments: Mapping[str, str] | None = None

    @property
    def events(self) -> tuple[TransferEvent, ...] | None:
        """Its transfers, mints and burns; None if the answer does not have all its events."""
        page = self.page
        if page is None or (page.start, page.stop) != (0, self.transaction.event_count):
            return None
        return page.transfers


@dataclass(frozen=True, slots=True)
class BalanceChange:
    """The change of one principal's balance of one asset by one transaction. STX sent includes the fee."""

    tx_id: str
    asset: str
    sent: int
    received: int

    @property
    def net(self) -> int:
        return self.received - self.sent


@dataclass(frozen=True, slots=True)
class TokenPrice:
    """What a price source reports about a token. No price is None, never 0; decimals are never guessed.

    `liquidity_usd` is what all its pools hold, `volume_usd` what was traded in the last day; None if not reported.
    """

    token_id: str
    price_usd: float | None
    decimals: int | None
    liquidity_usd: float | None = None
    volume_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Part of a list, newest first. `next_cursor` leads to older items; None if there are none.

    `unreadable` has the ids of transactions on this page whose rows break the upstream's contract. `total` is the
    length of the whole list, and `newest_s` the time of the page's newest Stacks block, if the upstream reports them.
    """

    items: tuple[T, ...]
    next_cursor: str | None
    unreadable: tuple[str, ...] = ()
    total: int | None = None
    newest_s: int | None = None


@dataclass(frozen=True, slots=True)
class HookStatus:
    """The status of a Chainhook hook. `state` is Hiro's word: new, streaming, expired or interrupted."""

    state: str
    enabled: bool
    last_block: int | None  # the height of the last block that it evaluated
    occurrences: int


def decode_address(text: str) -> tuple[int, bytes]:
    """The version and the 20 bytes of a mainnet address; raises ValueError with what is wrong with it."""
    if _ADDRESS_FORM.fullmatch(text) is None:
        raise ValueError("must be SP or SM, then 26 to 39 digits and capital letters, without I, L, O and U")
    digits = text[2:]
    number = int(digits.translate(_TO_PYTHON), 32)
    bits = number.bit_length()
    zero_bytes = _PAYLOAD_BYTES - (bits + 7) // 8
    if zero_bytes < 0 or len(digits) != zero_bytes + (bits + 4) // 5:
        raise ValueError("has a wrong number of characters: one is missing or too many")
    payload = number.to_bytes(_PAYLOAD_BYTES, "big")
    version = _VERSIONS[text[1]]
    if payload[HASH_BYTES:] != _checksum(version, payload[:HASH_BYTES]):
        raise ValueError("has a wrong checksum: at least one character is wrong")
    return version, payload[:HASH_BYTES]


def is_address(text: str) -> bool:
    """Whether it is a mainnet address with the right checksum."""
    try:
        decode_address(text)
    except ValueError:
        return False
    return True


def is_contract_id(text: str) -> bool:
    """Whether it is `ADDRESS.name`."""
    deployer, _, name = text.partition(".")
    return _NAME_FORM.fullmatch(name) is not None and is_address(deployer)


def is_principal(text: str) -> bool:
    """Whether it is an address or a contract."""
    return is_contract_id(text) if "." in text else is_address(text)


def is_token_id(text: str) -> bool:
    """Whether it is `stx`, a contract, or `contract::asset`."""
    contract, separator, asset = text.partition("::")
    if separator and _NAME_FORM.fullmatch(asset) is None:
        return False
    return text == STX or is_contract_id(contract)


def _checksum(version: int, hash160: bytes) -> bytes:
    return sha256(sha256(bytes((version,)) + hash160).digest()).digest()[:CHECKSUM_BYTES]
