"""Captures a round: the eligible agents, the swaps and refusals, and the prices of the end, as one batch.

From then on the result depends on nothing else. Swaps that appear, disappear or move later are noted as discrepancies.

The price of a token is the median of the prices in force at 13 instants of the last hour, including the end. A spike
of a few minutes does not move it. A token whose price was known at fewer than seven of them has no price.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from holdfast.types import Database, Row
from tocsin.prices.store import STALE_AFTER_MS, PricePoint, in_force, newest_decimals, peg_of, points_between
from tocsin.rounds.round import (
    FlagDecision,
    RoundAgent,
    RoundInputs,
    RoundPrice,
    RoundRefusal,
    RoundRow,
    RoundRules,
    RoundSwap,
)
from tocsin.rounds.score import CHAIN_ORDER
from tocsin.rounds.store import compact, iso_time, read_price
from tocsin.sql import read_queries
from tocsin.stacks import STX, STX_DECIMALS
from tocsin.swaps.lists import first_funders
from tocsin.swaps.values import SwapWorth
from tocsin.text import decimal_of_float, decimal_text, read_decimal

SQL = read_queries(__file__)
CAPTURED = ("price_snapshots", "agents", "refusals", "excesses", "swaps", "changes", "discrepancies")  # tables
CAPTURE = (SQL["capture_refusals"], SQL["capture_excesses"], SQL["capture_swaps"])
Pages: TypeAlias = AsyncIterator[list[Row]]

INSTANTS = 13
APART_MS = 5 * 60_000
KNOWN_MIN = 7
PAGE = 2_000  # rows
BLOCKS_AT_ONCE = 500  # blocks whose swaps are sorted together
GAUGE = "stx"  # it always has a price, unless prices were not refreshed around the end
UNPRICED = f"the price of {GAUGE} at the end is not known: prices were not refreshed then, and an operator may set them"


# Prices of the end


async def closing_prices(db: Database, token_ids: Collection[str], ends_at: int) -> list[RoundPrice]:
    """Return the prices at `ends_at` (unix seconds) of the tokens that have one, in order of their ids."""
    end_ms = ends_at * 1000
    series = await points_between(db, token_ids, end_ms - (INSTANTS - 1) * APART_MS - STALE_AFTER_MS, end_ms)
    prices = [closing_price(token_id, series.get(token_id, []), end_ms) for token_id in sorted(set(token_ids))]
    return [price for price in prices if price is not None]


async def known_decimals(db: Database, token_id: str, ends_at: int) -> int | None:
    """Return a token's decimals from its price at `ends_at` or its newest price; None if no price has them."""
    if token_id == STX:
        return STX_DECIMALS
    for price in await closing_prices(db, [token_id], ends_at):
        return price.decimals
    return await newest_decimals(db, token_id)


def closing_price(token_id: str, points: Sequence[PricePoint], end_ms: int) -> RoundPrice | None:
    """Return the price of one token, whose points are given oldest first."""
    peg = peg_of(token_id)
    if peg is not None:
        price_usd = decimal_text(decimal_of_float(peg.price_usd))
        return RoundPrice(token_id, price_usd, peg.decimals, "peg", end_ms)
    known = []
    for number in range(INSTANTS):
        point = in_force(points, end_ms - number * APART_MS)
        if point is not None and point.price_usd is not None and point.decimals is not None:
            known.append((read_decimal(point.price_usd), point.at, point.decimals, point))
    if len(known) < KNOWN_MIN:
        return None
    _, at, decimals, point = sorted(known, key=lambda each: each[:2])[(len(known) - 1) // 2]
    assert point.price_usd is not None, "only points with a price are known"
    return RoundPrice(token_id, point.price_usd, decimals, "tenero", at, point.liquidity_usd, point.volume_usd)


# The capture


async def traded_in(db: Database, rules: RoundRules) -> set[str]:
    """Return the tokens for which a round needs prices: those traded in it, and those that an operator priced."""
    rows = await db.prepare(SQL["tokens"]).bind(rules.starts_at, rules.ends_at, rules.round_id).all()
    return {row["token"] for row in rows.results}


async def prices_of_end(db: Database, rules: RoundRules, tokens: Collection[str]) -> list[RoundPrice]:
    """Return the prices of the end by token: from the series, or set by an operator instead."""
    prices = {price.token_id: price for price in await closing_prices(db, tokens, rules.ends_at)}
    at = rules.ends_at * 1000
    for row in (await db.prepare(SQL["overrides"]).bind(rules.round_id).all()).results:
        known = (row["token_id"], row["price_usd"], row["decimals"])
        prices[row["token_id"]] = RoundPrice(*known, "manual_admin", at, reason=row["reason"])
    return [prices[token] for token in sorted(prices)]


def unpriced_because(prices: Iterable[RoundPrice]) -> str | None:
    """Return why the prices of the end are unknown; None if known. One token without a price does not delay a round."""
    return None if any(price.token_id == GAUGE for price in prices) else UNPRICED


async def capture(
    db: Database,
    round_: RoundRow,
    prices: Sequence[RoundPrice],
    tokens: Collection[str],
    *,
    allowlist_version: str,
    complete_until_block: int | None,
    now: int,
) -> bool:
    """Capture a closed round; False if another run did, or if a token not in `tokens` was traded in the meantime."""
    rules, at = round_.rules, iso_time(now)
    mine, window = (rules.round_id, at), (rules.starts_at, rules.ends_at)
    recorded = (allowlist_version, complete_until_block, round_.version)
    funders = await _funders(db)
    statements = [
        db.prepare(SQL["begin_capture"]).bind(*mine, *recorded, *window, json.dumps(sorted(tokens))),
        *(
            db.prepare(f"DELETE FROM competition_round_{table} WHERE round_id = ?1 AND {SQL['is_captured']}").bind(
                *mine
            )
            for table in CAPTURED  # by an earlier capture
        ),
        db.prepare(SQL["capture_prices"]).bind(*mine, compact([price.to_json() for price in prices])),
        db.prepare(SQL["capture_agents"]).bind(*mine, compact(funders)),
        *(db.prepare(sql).bind(*mine, *window) for sql in CAPTURE),
    ]
    return (await db.batch(statements))[0].meta.changes > 0


# The inputs of a result


async def captured_inputs(db: Database, round_: RoundRow) -> RoundInputs:
    """Return the inputs that were captured."""
    of_round = (round_.round_id,)
    prices = (await db.prepare(SQL["prices"]).bind(*of_round).all()).results
    agents = await _rows(_pages(db, SQL["captured_agents"], of_round, ("stx_address",)))
    inputs = await _inputs(
        db,
        round_.rules,
        [RoundAgent.from_json(row) for row in agents],
        [read_price(row) for row in prices],
        swaps=_pages(db, SQL["captured_swaps"], of_round),
        refusals=_pages(db, SQL["captured_refusals"], of_round),
        excesses=_pages(db, SQL["captured_excesses"], of_round),
    )
    version, block = round_.allowlist_version or "", round_.complete_until_block
    return replace(inputs, allowlist_version=version, complete_until_block=block)


async def live_inputs(db: Database, rules: RoundRules, now_s: int) -> RoundInputs:
    """Return the inputs that would be captured if the round ended now, but not how complete they are: for a preview."""
    tokens = {*await traded_in(db, rules), GAUGE}
    prices = await prices_of_end(db, replace(rules, ends_at=min(rules.ends_at, now_s)), tokens)
    window, funders = (rules.starts_at, rules.ends_at), await _funders(db)
    agents = await _rows(_pages(db, SQL["live_agents"], (), ("stx_address",)))
    return await _inputs(
        db,
        rules,
        [RoundAgent(**row, first_funder=funders.get(row["stx_address"])) for row in agents],
        prices,
        swaps=_pages(db, SQL["live_swaps"], (rules.ends_at,), ("burn_block_time", "txid"), (rules.starts_at, "")),
        refusals=_pages(db, SQL["live_refusals"], window),
        excesses=_pages(db, SQL["live_excesses"], window),
    )


async def _inputs(
    db: Database,
    rules: RoundRules,
    agents: list[RoundAgent],
    prices: Sequence[RoundPrice],
    *,
    swaps: Pages,
    refusals: Pages,
    excesses: Pages,
) -> RoundInputs:
    decisions = (await db.prepare(SQL["decisions"]).bind(rules.round_id).all()).results
    return RoundInputs(
        rules=rules,
        allowlist_version="",
        complete_until_block=None,
        agents=agents,
        prices=list(prices),
        swaps=await swaps_in_order(swaps),
        refusals=[RoundRefusal(**row) for row in await _rows(refusals)],
        decisions=[FlagDecision.from_json({**row, "kind": row["kind"] or None}) for row in decisions],
        excesses=[SwapWorth(**row) for row in await _rows(excesses)],
    )


async def _funders(db: Database) -> dict[str, str]:
    """Return who sent each eligible wallet its first STX, where known."""
    rows = (await db.prepare(SQL["eligible_wallets"]).all()).results
    return await first_funders(db, [row["stx_address"] for row in rows])


async def _pages(
    db: Database,
    sql: str,
    values: Sequence[str | int],
    key: Sequence[str] = ("txid",),
    after: Sequence[str | int] = ("",),
) -> Pages:
    """Yield all rows of a query after a key, in pages by that key."""
    while True:
        rows = (await db.prepare(sql).bind(*values, *after, PAGE).all()).results
        yield rows
        if len(rows) < PAGE:
            return
        after = [rows[-1][column] for column in key]


async def _rows(pages: Pages) -> list[Row]:
    return [row async for rows in pages for row in rows]


async def swaps_in_order(pages: Pages) -> list[RoundSwap]:
    """Return swaps in chain order. It handles a page or some blocks at a time; in between, other work runs."""
    blocks: defaultdict[int, list[RoundSwap]] = defaultdict(list)
    async for rows in pages:
        for row in rows:
            blocks[row["block_height"]].append(RoundSwap(**row))
    swaps: list[RoundSwap] = []
    for number, height in enumerate(sorted(blocks), 1):
        swaps += sorted(blocks[height], key=CHAIN_ORDER)
        if not number % BLOCKS_AT_ONCE:
            await asyncio.sleep(0)
    return swaps
