"""Reads a transaction from a file, in any form that Hiro sends: v1, v3, an entry of `tx/multiple`, or wrapped. Pure.

This is for bodies that people saved (`tocsin explain --file`); the client knows which form to expect. `hiro_parse`
reads the fields.
"""

from dataclasses import dataclass, replace

from tocsin.bindings import JSON
from tocsin.chain_model import Transaction, TransferEvent, canonical_txid
from tocsin.errors import MalformedBody, UsageError
from tocsin.upstream.decode import JsonObject, amount, as_record, text
from tocsin.upstream.hiro_parse import (
    STX_EVENTS,
    TOKEN_EVENTS,
    events_v3,
    transaction_v1,
    transaction_v3,
    with_events_v1,
)

WRAPPERS = ("tx", "transaction", "result", "body")
WRAPPED_MAX = 4
NO_ID = "0x" + "0" * 64
CALL = "contract_call"
V3_EVENTS = frozenset({"stx_asset", "ft_asset"})


@dataclass(frozen=True, slots=True)
class SavedTransaction:
    """A transaction from a file. `events` is None unless all of them are present and usable."""

    transaction: Transaction
    events: tuple[TransferEvent, ...] | None
    unusable: str | None = None  # an amount of the sender that is not a number, if any
    unreadable: str | None = None  # another problem with an event


def any_transaction(body: JSON) -> SavedTransaction:
    """The transaction and its events. Fields missing from a shortened body are filled in."""
    row, events = as_record(body, "body"), None
    for _ in range(WRAPPED_MAX):
        events = row.get("events", events)
        if "tx_id" in row:
            break
        row = _inside(row)
    row, tx_id = _with_id(row)
    row, kind = _without_missing_call(row)
    listed = _list(events)
    is_v1 = "tx_status" in row
    if is_v1:
        row = _completed(row, listed, complete=events is not None)
    transaction = transaction_v1(row) if is_v1 else transaction_v3(row)
    unusable = _unusable_amount(listed, transaction.sender)
    found, unreadable = None, None
    if unusable is None:
        try:
            found = with_events_v1(row).events if is_v1 else _events_v3(transaction, listed)
        except MalformedBody as error:
            unreadable = str(error)
    named = replace(transaction, tx_id=tx_id, type=kind or transaction.type)
    return SavedTransaction(named, found, unusable, unreadable)


def _without_missing_call(row: JsonObject) -> tuple[JsonObject, str | None]:
    """If the contract of a call cannot be read, give the row a type without one. Returns the row and its real type."""
    field = "tx_type" if "tx_type" in row else "type"
    if row.get(field) != CALL:
        return row, None
    call = row.get("contract_call")
    try:
        text(as_record(call, "contract_call"), "contract_id")
        text(as_record(call, "contract_call"), "function_name")
    except MalformedBody:
        return {**row, field: f"{CALL}_without_contract"}, CALL
    return row, None


def _with_id(row: JsonObject) -> tuple[JsonObject, str]:
    """The row with a valid id, and its own id: a saved transaction may have any text as its id."""
    tx_id = text(row, "tx_id")
    try:
        return row, canonical_txid(tx_id)
    except UsageError:
        return {**row, "tx_id": NO_ID}, tx_id


def _completed(row: JsonObject, events: list[JsonObject], *, complete: bool) -> JsonObject:
    """Fill in the fields that Hiro always sends; canonical, unless the transaction is in the mempool."""
    status = text(row, "tx_status")
    listed = [{"event_index": number, **event} for number, event in enumerate(events)]
    whole: JsonObject = {"sponsored": False, "fee_rate": "0", **row, "events": listed}
    if whole.get("canonical") is None and status != "pending" and not status.startswith("dropped_"):
        whole["canonical"] = True
    if whole.get("canonical") is None:
        return whole
    block = {"block_height": 0, "block_hash": "0x", "tx_index": 0, "burn_block_time": 0}
    counted = {"event_count": len(listed)} if complete else {}
    return {"microblock_canonical": True, **block, **counted, **whole}


def _unusable_amount(events: list[JsonObject], sender: str) -> str | None:
    """Why an amount of the sender is unusable; amounts of others need not be readable."""
    for event in events:
        kind = event.get("event_type", event.get("type"))
        if not isinstance(kind, str) or kind not in STX_EVENTS | TOKEN_EVENTS | V3_EVENTS:
            continue
        asset = event.get("asset", event.get(kind))
        if isinstance(asset, dict) and sender in (asset.get("sender"), asset.get("recipient")):
            try:
                amount(asset, "amount")
            except MalformedBody as error:
                return str(error)
    return None


def _inside(row: JsonObject) -> JsonObject:
    """The content of a wrapper. In `tx/multiple`, the id is the name of the entry."""
    if row.get("found") is False:
        raise MalformedBody("found: Hiro did not know this transaction")
    names = [name for name in WRAPPERS if isinstance(row.get(name), dict)] or (
        list(row) if len(row) == 1 else []
    )
    if not names:
        raise MalformedBody("tx_id: expected the body of one transaction, as Hiro answers with it")
    return as_record(row[names[0]], names[0])


def _list(events: JSON) -> list[JsonObject]:
    """The events of a list or of a page; empty if the body has none."""
    page = events if isinstance(events, dict) else {}
    listed = page.get("results", page.get("events", [] if events is None else events))
    if not isinstance(listed, list):
        raise MalformedBody("events: expected a list")
    return [as_record(event, "events") for event in listed]


def _events_v3(transaction: Transaction, listed: list[JsonObject]) -> tuple[TransferEvent, ...] | None:
    found = events_v3({"results": [*listed]}, transaction.sender)
    if len(found) != transaction.event_count:
        return None
    if sorted(index for index, _ in found) != list(range(len(found))):
        raise MalformedBody("events: some are listed twice")
    return tuple(event for _, event in found if event is not None)
