"""`tocsin explain`: a transaction of the chain or of a file, judged as the verifier would, storing nothing.

Who is registered is read from the data directory, without a service and without a lock.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

from tocsin.bindings import JSON, Clock, Fetch, Logger
from tocsin.budget.budget_limiter import BudgetLimiter
from tocsin.budget.call_session import request_session
from tocsin.chain_model import Transaction, canonical_txid
from tocsin.competition.eligibility import TIER, Tier
from tocsin.competition.explain import explain, explain_absent
from tocsin.competition.rules import Rules, judge, rules_of
from tocsin.competition.swap import net_of_events
from tocsin.competition.verify import nets
from tocsin.errors import MalformedBody, NoAnswer, TransactionUnreadable
from tocsin.platform.local.clock import SystemClock
from tocsin.platform.local.http.fetch import HttpFetch
from tocsin.platform.local.sqlite import sqlite_file
from tocsin.scheduler.config import scheduler_config
from tocsin.settings import Settings
from tocsin.upstream.answer import value_or_raise
from tocsin.upstream.client import UpstreamClient
from tocsin.upstream.decode import decode
from tocsin.upstream.hiro import HiroClient
from tocsin.upstream.hiro_shapes import any_transaction

FILE_MAX = 16_000_000  # bytes; the longest routes have some thousand events
PATIENCE_S = 20.0

# A sender's tier, and what must be said about where it comes from.
TierOf: TypeAlias = Callable[[str], tuple[Tier, str]]


def explain_file(settings: Settings, file: Path, tier: Tier | None) -> JSON:
    """What a saved body of Hiro's says; raises `TransactionUnreadable` when it does not say enough."""
    rules, tier_of = rules_of(settings), tier_lookup(settings, tier)
    try:
        with file.open("rb") as stream:
            body = stream.read(FILE_MAX + 1)
        if len(body) > FILE_MAX:
            raise MalformedBody(f"more than {FILE_MAX} bytes")  # noqa: TRY301 - told below
        found = any_transaction(decode(body.removeprefix(b"\xef\xbb\xbf")))
    except (MalformedBody, OSError) as error:
        raise TransactionUnreadable(f"{file} is no transaction as Hiro sends it: {error}") from error
    transaction = found.transaction
    standing, note = tier_of(transaction.sender)
    lacking = found.events is None and found.unusable is None
    if lacking and judge(transaction, standing, rules) is None:
        raise TransactionUnreadable(_lacking(file, transaction))
    net = None if found.events is None else net_of_events(transaction.sender, found.events)
    return explain(transaction, net, standing, rules, sender_note=note, unusable=found.unusable)


def explain_txid(
    settings: Settings, txid: str, tier: Tier | None, *, logger: Logger, budget_logger: Logger
) -> JSON:
    """What Hiro says of a transaction now; raises `TransactionUnreadable` when it cannot be asked.

    What the budget learns is of use to a service, not to somebody at a terminal: it has a log of its own.
    """
    tx_id = canonical_txid(txid)

    async def ask() -> JSON:
        fetch, clock = HttpFetch(), SystemClock()
        try:
            client = _client(settings, fetch, clock, budget_logger)
            return await explain_of_chain(
                client, tx_id, rules_of(settings), tier_lookup(settings, tier), logger
            )
        finally:
            await fetch.close()

    try:
        return asyncio.run(ask())
    except NoAnswer as error:
        raise TransactionUnreadable(f"Hiro could not be asked: {error}") from error


async def explain_of_chain(
    client: HiroClient, tx_id: str, rules: Rules, tier_of: TierOf, logger: Logger
) -> JSON:
    """With the calls that the verifier would make, and no others."""
    session = request_session(logger, patience_s=PATIENCE_S)
    found = (value_or_raise(await client.transactions_with_events([tx_id], session)) or {}).get(tx_id)
    if found is None:
        return explain_absent(tx_id)
    transaction = found.transaction
    tier, note = tier_of(transaction.sender)
    net = None
    if found.events is not None or judge(transaction, tier, rules) is None:
        net = (await nets(client, session, [found]))[tx_id]
    return explain(transaction, net, tier, rules, sender_note=note)


def _client(settings: Settings, fetch: Fetch, clock: Clock, logger: Logger) -> HiroClient:
    """A budget of this process alone: a few calls, within the plan's limits per second and minute."""
    config = scheduler_config(settings)
    gate = BudgetLimiter.restore(
        "hiro", config.plans["hiro"], None, clock, random.random, logger, lambda _budget: None
    )
    return HiroClient(UpstreamClient(config.upstreams["hiro"], fetch, gate, clock, random.random))


def tier_lookup(settings: Settings, assumed: Tier | None) -> TierOf:
    """Asks the data directory's database, if there is one and nothing is assumed."""
    path = Path(settings.data_dir) / "db.sqlite"

    def tier_of(sender: str) -> tuple[Tier, str]:
        if assumed is not None:
            return assumed, "assumed"
        if not path.is_file():
            return "not_registered", f"there is no {path}: give --data-dir, or assume a tier with --as"
        with sqlite_file.store_errors(f"{path}"), closing(sqlite_file.connect_to_read(path)) as connection:
            row = connection.execute(TIER, (sender,)).fetchone()
        return ("not_registered" if row is None else row[0]), ""

    return tier_of


def _lacking(file: Path, transaction: Transaction) -> str:
    count = transaction.event_count
    how_many = "how many events it has" if count is None else f"all of its {count} events"
    return (
        f"{file} does not hold {how_many}, so what tokens moved is not known. Save the body with all of them,"
        f" or have Hiro asked: tocsin explain {transaction.tx_id}"
    )
