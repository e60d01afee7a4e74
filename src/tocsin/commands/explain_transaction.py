"""`tocsin explain`: judges a transaction from the chain or from a file as the verifier would. Nothing is stored.

It reads the sender's tier from the data directory, without a service and without a lock.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

from tocsin.bindings import Clock, Fetch, Logger, Row
from tocsin.budget.budget_limiter import BudgetLimiter, restored_budget
from tocsin.budget.call_session import request_session
from tocsin.chain_model import Transaction, canonical_txid
from tocsin.commands.data_files import DB_FILE, command_logger, read_settings
from tocsin.competition.codes import Code
from tocsin.competition.eligibility import TIER, Tier
from tocsin.competition.explain import (
    explain,
    explain_not_found,
    explain_record,
    with_record,
    without_verdict,
)
from tocsin.competition.rules import Check, Rules, judge, rules_of
from tocsin.competition.swap import moves_of_events
from tocsin.competition.trades import SWAP
from tocsin.competition.verify import moves_if_needed
from tocsin.errors import MalformedBody, NoAnswer, TransactionUnreadable, UsageError
from tocsin.platform.local.clock import SystemClock
from tocsin.platform.local.http.fetch import HttpFetch
from tocsin.platform.local.sqlite import sqlite_file
from tocsin.settings import Settings
from tocsin.shapes.competition import Explanation
from tocsin.upstream.answer import value_or_raise
from tocsin.upstream.decode import decode
from tocsin.upstream.hiro import HiroClient
from tocsin.upstream.registry import upstreams
from tocsin.upstream.saved_transaction import any_transaction

FILE_MAX = 16_000_000  # bytes; the longest routes have a few thousand events
PATIENCE_S = 20.0

# A sender's tier, and a note on its source.
TierOf: TypeAlias = Callable[[str], tuple[Tier, str]]


def explain_command(
    *, txid: str | None, file: Path | None, tier: Tier | None, data_dir: Path | None
) -> Explanation:
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


def _client(
    settings: Settings, fetch: Fetch, clock: Clock, chance: Callable[[], float], logger: Logger
) -> HiroClient:
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
        cursor = connection.execute(SWAP, (tx_id,))
        row = cursor.fetchone()
        return (
            None if row is None else dict(zip((column[0] for column in cursor.description), row, strict=True))
        )


def _lacking(transaction: Transaction) -> str:
    count = transaction.event_count
    how_many = "how many events it has" if count is None else f"all of its {count} events"
    return (
        f"the file does not hold {how_many}, so it is not known which tokens moved; save the body with all of them,"
        f" or look it up at Hiro: tocsin explain {transaction.tx_id}"
    )
