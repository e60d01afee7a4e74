"""`tocsin explain`: judges a transaction from the chain or from a file as the verifier would. Nothing is stored.

It reads the sender's tier from the data directory, without a service and without a lock. A file may have any form that
Hiro sends, as people saved it: v1, v3, an entry of `tx/multiple`, or wrapped.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from holdfast.errors import UsageError
from holdfast.local import sqlite_file
from holdfast.local.clock import SystemClock
from holdfast.types import JSON, Clock, Logger, Row
from tocsin.commands.files import DB_FILE, command_logger, read_settings
from tocsin.errors import MalformedBody, NoAnswer, TransactionUnreadable
from tocsin.fetch import Fetch
from tocsin.local.fetch import HttpFetch
from tocsin.settings import Settings
from tocsin.stacks import Transaction, TransferEvent, canonical_txid
from tocsin.swaps.codes import Code
from tocsin.swaps.explain import explain, explain_not_found, explain_record, with_record, without_verdict
from tocsin.swaps.rules import TIER, Check, Rules, Tier, judge, rules_of
from tocsin.swaps.swap import moves_of_events
from tocsin.swaps.trades import SQL
from tocsin.swaps.types import Explanation
from tocsin.swaps.verify import moves_if_needed
from tocsin.upstream.answer import value_or_raise
from tocsin.upstream.decode import JsonObject, amount, as_record, decode, text
from tocsin.upstream.hiro import HiroClient
from tocsin.upstream.hiro_parse import (
    STX_EVENTS,
    TOKEN_EVENTS,
    events_v3,
    transaction_v1,
    transaction_v3,
    with_events_v1,
)
from tocsin.upstream.limiter import BudgetLimiter, request_session, restored_budget
from tocsin.upstream.registry import upstreams

FILE_MAX = 16_000_000  # bytes; the longest routes have a few thousand events
PATIENCE_S = 20.0
WRAPPERS = ("tx", "transaction", "result", "body")
WRAPPED_MAX = 4
NO_ID = "0x" + "0" * 64
CALL = "contract_call"
V3_EVENTS = frozenset({"stx_asset", "ft_asset"})

# A sender's tier, and a note on its source.
TierOf: TypeAlias = Callable[[str], tuple[Tier, str]]


@dataclass(frozen=True, slots=True)
class SavedTransaction:
    """A transaction from a file. `events` is None unless all of them are present and usable."""

    transaction: Transaction
    events: tuple[TransferEvent, ...] | None
    unusable: str | None = None  # an amount of the sender that is not a number, if any
    unreadable: str | None = None  # another problem with an event


def explain_command(*, txid: str | None, file: Path | None, tier: Tier | None, data_dir: Path | None) -> Explanation:
    """Explain a transaction given as a file or by its id."""
    settings = read_settings(data_dir=data_dir)
    if (txid is None) == (file is None):
        raise UsageError("Name one transaction: `tocsin explain TXID`, or `tocsin explain --file tx.json`.")
    if file is not None:
        return explain_file(settings, file, tier)
    logger, budget_logger = command_logger(settings), command_logger(settings, "ERROR")
    return explain_txid(settings, txid or "", tier, logger=logger, budget_logger=budget_logger)


def explain_file(settings: Settings, file: Path, tier: Tier | None) -> Explanation:
    """Explain a saved response from Hiro; raises `TransactionUnreadable` if the file holds no transaction.

    A transaction whose events are missing or cannot be read is explained without a verdict.
    """
    rules, tier_of = rules_of(settings), tier_lookup(settings, tier)
    try:
        with file.open("rb") as stream:
            body = stream.read(FILE_MAX + 1)
        if len(body) > FILE_MAX:
            raise MalformedBody(f"more than {FILE_MAX} bytes")  # noqa: TRY301 - reported below
        saved = any_transaction(decode(body.removeprefix(b"\xef\xbb\xbf")))
    except (MalformedBody, OSError) as error:
        raise TransactionUnreadable(f"{file} is not a transaction in Hiro's format: {error}") from error
    transaction = saved.transaction
    sender_tier, note = tier_of(transaction.sender)
    moves = None if saved.events is None else moves_of_events(transaction.sender, saved.events)
    unusable = None
    if saved.unusable is not None:
        unusable = Check("tokens", saved.unusable, Code.INVALID_AMOUNT)
    elif moves is None and judge(transaction, sender_tier, rules) is None:
        reason = _lacking(transaction) if saved.unreadable is None else saved.unreadable
        unusable = Check("tokens", reason, Code.INCOMPLETE_EVENTS)
    explanation = explain(transaction, moves, sender_tier, rules, sender_note=note, unusable=unusable)
    return without_verdict(explanation) if unusable is not None and saved.unusable is None else explanation


def explain_txid(
    settings: Settings, txid: str, tier: Tier | None, *, logger: Logger, budget_logger: Logger
) -> Explanation:
    """Explain a transaction from Hiro's present answer and from the record.

    Raises `TransactionUnreadable` when Hiro does not answer and nothing is on record. The budget has its own logger,
    because its reports are useful to a service but not at a terminal.
    """

    async def ask() -> Explanation:
        fetch, clock = HttpFetch(), SystemClock()
        try:
            return await explained(
                settings,
                canonical_txid(txid),
                tier,
                fetch=fetch,
                clock=clock,
                chance=random.random,
                logger=logger,
                budget_logger=budget_logger,
            )
        finally:
            await fetch.close()

    return asyncio.run(ask())


async def explained(
    settings: Settings,
    tx_id: str,
    tier: Tier | None,
    *,
    fetch: Fetch,
    clock: Clock,
    chance: Callable[[], float],
    logger: Logger,
    budget_logger: Logger,
) -> Explanation:
    """Do the work of `explain_txid` with the caller's clock and HTTP client."""
    row = recorded_swap(settings, tx_id)
    client = _client(settings, fetch, clock, chance, budget_logger)
    tier_of = tier_lookup(settings, tier)
    try:
        explanation = await explain_of_chain(client, tx_id, rules_of(settings), tier_of, logger)
    except NoAnswer as error:
        if row is None:
            raise TransactionUnreadable(f"Hiro could not be asked: {error}") from error
        return explain_record(row, "Hiro could not be asked")
    return explanation if row is None else with_record(explanation, row)


async def explain_of_chain(
    client: HiroClient, tx_id: str, rules: Rules, tier_of: TierOf, logger: Logger
) -> Explanation:
    """Explain it with the calls that the verifier would make, and no others."""
    session = request_session(logger, patience_s=PATIENCE_S)
    found = (value_or_raise(await client.transactions_with_events([tx_id], session)) or {}).get(tx_id)
    if found is None:
        return explain_not_found(tx_id)
    transaction = found.transaction
    tier, note = tier_of(transaction.sender)
    moves = await moves_if_needed(client, session, found, tier, rules)
    return explain(transaction, moves, tier, rules, sender_note=note)


def _client(settings: Settings, fetch: Fetch, clock: Clock, chance: Callable[[], float], logger: Logger) -> HiroClient:
    """A client with a budget for this process alone: a few calls, within the plan's limits per second and minute."""
    upstream = upstreams(settings)["hiro"]
    budget = restored_budget(upstream.quota, None, clock)
    limiter = BudgetLimiter("hiro", budget, clock, chance, logger, lambda _budget: None)
    client = upstream.connect(fetch, limiter, clock, chance)
    assert isinstance(client, HiroClient)
    return client


def tier_lookup(settings: Settings, assumed: Tier | None) -> TierOf:
    """A lookup in the data directory's database, if there is one and no tier is assumed."""
    path = Path(settings.data_dir) / DB_FILE

    def tier_of(sender: str) -> tuple[Tier, str]:
        if assumed is not None:
            return assumed, "assumed"
        if not path.is_file():
            return "not_registered", f"there is no {path}: set --data-dir, or assume a tier with --as"
        with sqlite_file.store_errors(f"{path}"), closing(sqlite_file.connect_to_read(path)) as connection:
            row = connection.execute(TIER, (sender,)).fetchone()
        return ("not_registered" if row is None else row[0]), ""

    return tier_of


def recorded_swap(settings: Settings, tx_id: str) -> Row | None:
    """The swap as recorded in the data directory, if it is."""
    path = Path(settings.data_dir) / DB_FILE
    if not path.is_file():
        return None
    with sqlite_file.store_errors(f"{path}"), closing(sqlite_file.connect_to_read(path)) as connection:
        cursor = connection.execute(SQL["swap"], (tx_id,))
        row = cursor.fetchone()
        return None if row is None else dict(zip((column[0] for column in cursor.description), row, strict=True))


def _lacking(transaction: Transaction) -> str:
    count = transaction.event_count
    how_many = "how many events it has" if count is None else f"all of its {count} events"
    return (
        f"the file does not hold {how_many}, so it is not known which tokens moved; save the body with all of them,"
        f" or look it up at Hiro: tocsin explain {transaction.tx_id}"
    )


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
    names = [name for name in WRAPPERS if isinstance(row.get(name), dict)] or (list(row) if len(row) == 1 else [])
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
