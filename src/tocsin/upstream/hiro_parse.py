"""Parses Hiro's bodies into our types: v3, and v1 for `tx/multiple`, which has no successor. Pure.

v3 uses other names than v1 (`ft_asset` for `fungible_token_asset`, `bitcoin_block.time` for `burn_block_time`) and
lists canonical rows only; v1 has `canonical` and `microblock_canonical`.

A row that breaks the contract is skipped and reported, so that it does not hide the others. `latest_s` is the latest
time that a block may have, in seconds; it also rejects times in milliseconds.

A listed payment of STX is evidence of who funded a wallet, and nothing else depends on it: an unreadable one counts as
none.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Generic, TypeVar

from holdfast.errors import UsageError
from holdfast.types import JSON
from tocsin.errors import MalformedBody
from tocsin.stacks import (
    STX,
    AccountNonce,
    BalanceChange,
    ContractCall,
    EventPage,
    HookStatus,
    MinedAt,
    Page,
    StxPayment,
    Transaction,
    TransactionWithEvents,
    TransferEvent,
    TransferKind,
    canonical_txid,
)
from tocsin.upstream.decode import (
    JsonObject,
    amount,
    as_record,
    each,
    flag,
    optional_record,
    optional_text,
    optional_whole,
    record,
    signed_amount,
    text,
    whole,
)

T = TypeVar("T")

# Hiro's current word, and earlier ones.
STX_EVENTS = frozenset({"stx_asset", "stx_transfer_event", "stx_transfer"})
TOKEN_EVENTS = frozenset({"fungible_token_asset", "ft_transfer_event"})
OTHER_EVENTS = frozenset(("smart_contract_log", "contract_log", "non_fungible_token_asset", "nft_asset", "stx_lock"))

FIRST_BITCOIN_BLOCK_S = 1_231_006_505  # no block is older

_KINDS: Mapping[str, TransferKind] = {"transfer": "transfer", "mint": "mint", "burn": "burn"}


@dataclass(frozen=True, slots=True)
class ChangesPage:
    """A page of balance changes. The list says how long it is, so a missing row is noticed."""

    changes: tuple[BalanceChange, ...]
    next_cursor: str | None
    rows: int  # on this page, including those of NFTs
    total: int


@dataclass(frozen=True, slots=True)
class Parsed(Generic[T]):
    """The value of an answer, and for each unreadable row, by transaction, the reason."""

    value: T
    refused: Mapping[str, str]


def transaction_v1(body: JSON, latest_s: int) -> Transaction:
    row = as_record(body, "transaction")
    mined = None
    canonical = False
    if row.get("canonical") is not None:  # rows of the mempool have no such field
        canonical = flag(row, "canonical") and flag(row, "microblock_canonical")
        mined = MinedAt(
            height=whole(row, "block_height"),
            block_hash=text(row, "block_hash"),
            tx_index=whole(row, "tx_index"),
            burn_block_time=_block_time(row, "burn_block_time", latest_s),
            block_time=_shown_time(row, "block_time", latest_s),
        )
    return Transaction(
        tx_id=_txid(row),
        sender=text(row, "sender_address"),
        sponsored=flag(row, "sponsored"),
        fee=amount(row, "fee_rate"),
        status=text(row, "tx_status"),
        type=text(row, "tx_type"),
        contract_call=_contract_call(row, text(row, "tx_type")),
        mined=mined,
        canonical=canonical,
        event_count=optional_whole(row, "event_count"),
    )


def _block_time(row: JsonObject, key: str, latest_s: int) -> int:
    """The time of a block in seconds: not before the first block, and not much later than now."""
    return whole(row, key, FIRST_BITCOIN_BLOCK_S, latest_s)


def _shown_time(row: JsonObject, key: str, latest_s: int) -> int | None:
    """The time of a Stacks block, which is only shown: a missing or impossible one is unknown."""
    time = row.get(key)
    return time if type(time) is int and FIRST_BITCOIN_BLOCK_S <= time <= latest_s else None


def principal_page_v3(body: JSON, latest_s: int, principal: str) -> Parsed[Page[Transaction]]:
    """A page of a list. A row with an unreadable id invalidates the page: it may be any transaction."""
    row = as_record(body, "body")
    rows = each(row, "results", lambda item: (record(item, "transaction"), received(item, principal)))
    return _page_v3(row, rows, latest_s)


def network_page_v3(body: JSON, latest_s: int) -> Parsed[Page[Transaction]]:
    """A page of the list of all transactions. Its rows lack the balance changes of a principal's list."""
    row = as_record(body, "body")
    rows = each(row, "results", lambda item: (item, transferred(item)))
    parsed = _page_v3(row, rows, latest_s)
    newest_s = _newest_block_s([listed for listed, _ in rows], latest_s) if rows else None
    return replace(parsed, value=replace(parsed.value, total=whole(row, "total"), newest_s=newest_s))


def transferred(row: JsonObject) -> StxPayment | None:
    """The payment of a plain STX transfer."""
    if row.get("type") != "token_transfer" or row.get("status") != "success":
        return None
    try:
        transfer = record(row, "token_transfer")
        return StxPayment(text(transfer, "recipient"), amount(transfer, "amount"))
    except MalformedBody:
        return None


def received(row: JsonObject, principal: str) -> StxPayment | None:
    """The STX that the principal received by a transaction in its list, by a transfer or by a contract."""
    try:
        got = amount(record(record(row, "balance_changes"), "stx"), "received")
    except MalformedBody:
        return None
    return StxPayment(principal, got) if got else None


def _newest_block_s(rows: Iterable[JsonObject], latest_s: int) -> int:
    """The time of the newest Stacks block. One follows the other within seconds, unlike Bitcoin's blocks."""
    for row in rows:
        with suppress(MalformedBody):  # the next row's block is nearly as new
            return _block_time(record(row, "block"), "time", latest_s)
    raise MalformedBody("results: no row has the time of its block")


def _page_v3(
    row: JsonObject, rows: Sequence[tuple[JsonObject, StxPayment | None]], latest_s: int
) -> Parsed[Page[Transaction]]:
    refused: dict[str, str] = {}
    items: list[Transaction] = []
    for listed, payment in rows:
        tx_id = _txid(listed)
        try:
            items.append(_listed_v3(listed, latest_s, payment))
        except MalformedBody as error:
            refused[tx_id] = str(error)
    if refused and not items:
        raise MalformedBody(f"results: none of {len(rows)} can be read: {next(iter(refused.values()))}")
    heights = [item.mined.height for item in items if item.mined is not None]
    if any(older > newer for newer, older in pairwise(heights)):
        raise MalformedBody("results: expected the newest first")
    cursor = _next_cursor(row)
    if cursor is not None and not items:
        raise MalformedBody("cursor.next: an empty page must not have one")
    return Parsed(Page(tuple(items), cursor, tuple(refused)), refused)


def _listed_v3(row: JsonObject, latest_s: int, payment: StxPayment | None) -> Transaction:
    """A transaction of a list of v3, which does not tell the number of its events."""
    block, sponsor = record(row, "block"), optional_record(row, "sponsor")
    return Transaction(
        tx_id=_txid(row),
        sender=text(record(row, "sender"), "address"),
        sponsored=sponsor is not None and text(sponsor, "address") != "",
        fee=amount(row, "fee_rate"),
        status=text(row, "status"),
        type=text(row, "type"),
        contract_call=_contract_call(row, text(row, "type")),
        mined=MinedAt(
            height=whole(block, "height"),
            block_hash=text(block, "hash"),
            tx_index=whole(block, "tx_index"),
            burn_block_time=_block_time(record(row, "bitcoin_block"), "time", latest_s),
            block_time=_shown_time(block, "time", latest_s),
        ),
        canonical=True,
        event_count=None,
        nonces=_nonces(row),
        payment=payment,
    )


def _nonces(row: JsonObject) -> tuple[AccountNonce, ...]:
    accounts = (record(row, "sender"), optional_record(row, "sponsor"))
    return tuple(
        AccountNonce(text(account, "address"), whole(account, "nonce"))
        for account in accounts
        if account is not None and account.get("nonce") is not None
    )


def events_v1(body: JSON, sender: str | None = None) -> tuple[TransferEvent, ...]:
    """The transfers among the events that a v1 transaction carries.

    If the transaction's `sender` is given, amounts between others need not be readable.
    """
    found = each(as_record(body, "transaction"), "events", lambda item: _event_v1(item, sender))
    return tuple(event for event in found if event is not None)


def balance_changes_v3(body: JSON, asked: Collection[str]) -> ChangesPage:
    row = as_record(body, "body")
    items = each(row, "results", lambda item: _balance_change(item, asked))
    fungible = tuple(item for item in items if item is not None)
    return ChangesPage(fungible, _next_cursor(row), len(items), whole(row, "total"))


def transactions_with_events_v1(
    body: JSON, asked: Collection[str], latest_s: int
) -> Parsed[dict[str, TransactionWithEvents | None]]:
    """The requested transactions, with the events in the body; None for one that Hiro does not know.

    An unreadable row is missing, which does not mean that Hiro does not know the transaction.
    """
    rows = as_record(body, "body")
    found: dict[str, TransactionWithEvents | None] = {}
    refused: dict[str, str] = {}
    for tx_id in asked:
        try:
            found[tx_id] = _entry(rows, tx_id, latest_s)
        except MalformedBody as error:
            refused[tx_id] = str(error)
    if refused and not found:
        raise MalformedBody(next(iter(refused.values())))
    return Parsed(found, refused)


def _entry(rows: JsonObject, tx_id: str, latest_s: int) -> TransactionWithEvents | None:
    """An entry of `tx/multiple`, after checking that its id matches its key; None if it is not found."""
    entry = record(rows, tx_id)
    if not flag(entry, "found"):
        return None
    row = record(entry, "result")
    if _txid(row) != tx_id:
        raise MalformedBody(f"{tx_id}: holds another transaction")
    return with_events_v1(row, latest_s)


def with_events_v1(row: JsonObject, latest_s: int) -> TransactionWithEvents:
    """A transaction with its events, or with a page of them. Unreadable events are left out."""
    transaction = transaction_v1(row, latest_s)
    if transaction.mined is None:
        return TransactionWithEvents(transaction, None)
    indexes = each(row, "events", lambda event: whole(event, "event_index"))
    try:
        page = _event_page(row, indexes, transaction.sender)
    except MalformedBody:
        if len(indexes) == transaction.event_count:
            raise
        page = None
    arguments = None if transaction.contract_call is None else _arguments(row)
    return TransactionWithEvents(transaction, page, arguments)


def _event_page(row: JsonObject, indexes: Sequence[int], sender: str) -> EventPage:
    start = min(indexes, default=0)
    stop = start + len(indexes)
    if sorted(indexes) != list(range(start, stop)):
        raise MalformedBody("events: some are listed twice or left out")
    return EventPage(start, stop, events_v1(row, sender))


def _arguments(row: JsonObject) -> dict[str, str] | None:
    """The arguments of a call by name, as Clarity prints them; None if the row has none."""
    call = optional_record(row, "contract_call")
    listed = None if call is None else call.get("function_args")
    if not isinstance(listed, list):
        return None
    named = [argument for argument in listed if isinstance(argument, dict)]
    return {
        argument["name"]: argument["repr"]
        for argument in named
        if isinstance(argument.get("name"), str) and isinstance(argument.get("repr"), str)
    }


def _event_v1(row: JsonObject, sender: str | None) -> TransferEvent | None:
    kind = text(row, "event_type")
    if kind not in STX_EVENTS | TOKEN_EVENTS:
        _check_irrelevant(kind, row.get("asset"))
        return None
    asset = record(row, "asset")
    asset_id = STX if kind in STX_EVENTS else text(asset, "asset_id")
    return _transfer(row, asset, text(asset, "asset_event_type"), asset_id, sender)


def _check_irrelevant(kind: str, asset: JSON) -> None:
    """Raise if an event of an unknown type moves an amount: it must not be skipped."""
    if kind not in OTHER_EVENTS and isinstance(asset, dict) and asset.get("amount") is not None:
        raise MalformedBody(f"an event of the unknown type {kind[:40]} moves an amount")


def _transfer(row: JsonObject, asset: JsonObject, kind: str, asset_id: str, sender: str | None) -> TransferEvent:
    if kind not in _KINDS:
        raise MalformedBody(f"expected transfer, mint or burn, found {kind}")
    giver, receiver = optional_text(asset, "sender"), optional_text(asset, "recipient")
    if (giver is None and kind != "mint") or (receiver is None and kind != "burn"):
        raise MalformedBody(f"a {kind} without sender or recipient")
    of_others = sender is not None and sender not in {giver, receiver}
    return TransferEvent(
        index=whole(row, "event_index"),
        kind=_KINDS[kind],
        asset=asset_id,
        sender=giver,
        recipient=receiver,
        amount=_amount_or_none(asset) if of_others else amount(asset, "amount"),
    )


def _amount_or_none(asset: JsonObject) -> int | None:
    try:
        return amount(asset, "amount")
    except MalformedBody:
        return None


def _balance_change(row: JsonObject, asked: Collection[str]) -> BalanceChange | None:
    tx_id = _txid(row)
    if tx_id not in asked:
        raise MalformedBody("tx_id: was not requested")
    asset = record(row, "asset")
    kind = text(asset, "type")
    if kind not in {"stx", "ft"}:
        return None
    change = record(row, "balance_change")
    result = BalanceChange(
        tx_id=tx_id,
        asset=STX if kind == "stx" else text(asset, "identifier"),
        sent=amount(change, "sent"),
        received=amount(change, "received"),
    )
    if result.net != signed_amount(change, "net"):
        raise MalformedBody("net: is not received minus sent")
    return result


def _contract_call(row: JsonObject, kind: str) -> ContractCall | None:
    if kind != "contract_call":
        return None
    call = record(row, "contract_call")
    return ContractCall(text(call, "contract_id"), text(call, "function_name"))


def _next_cursor(row: JsonObject) -> str | None:
    return optional_text(record(row, "cursor"), "next")


def _txid(row: JsonObject) -> str:
    value = text(row, "tx_id")
    try:
        return canonical_txid(value)
    except UsageError:
        raise MalformedBody("tx_id: expected a transaction id") from None


def hook_status(body: JSON) -> HookStatus:
    row = record(as_record(body, "chainhook"), "status")
    return HookStatus(
        state=text(row, "status"),
        enabled=flag(row, "enabled"),
        last_block=optional_whole(row, "last_evaluated_block_height"),
        occurrences=optional_whole(row, "occurrence_count") or 0,
    )
