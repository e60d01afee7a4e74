"""Captures a round: the eligible agents, the swaps and refusals, and the prices of the end, as one batch.

From then on the result depends on nothing else. Swaps that appear, disappear or move later are noted as discrepancies.

The price of a token is the median of the prices in force at 13 instants of the last hour, including the end. A spike
of a few minutes does not move it. A token whose price was known at fewer than seven of them has no price.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import suppress

from holdfast.errors import UsageError
from holdfast.types import Database, Row, Statement
from tocsin.prices.store import STALE_AFTER_MS, PricePoint, ask_for_points, in_force, newest_decimals, peg_of, points_of
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
from tocsin.rounds.store import compact, iso_time, price_of
from tocsin.stacks import STX, STX_DECIMALS
from tocsin.swaps.lists import first_funders
from tocsin.swaps.values import SwapWorth
from tocsin.text import decimal_of_float, decimal_text, read_decimal

INSTANTS = 13
APART_MS = 5 * 60_000
KNOWN_MIN = 7
PAGE = 2_000  # rows
BLOCKS_AT_ONCE = 500  # blocks whose swaps are sorted together
GAUGE = "stx"  # it always has a price, unless prices were not refreshed around the end
UNPRICED = f"the price of {GAUGE} at the end is not known: prices were not refreshed then, and an operator may set them"
_ELIGIBLE = "SELECT stx_address FROM agent_tiers WHERE tier = 'eligible'"
_AGENT = "a.stx_address, a.btc_address, a.erc8004_agent_id, a.display_name, a.owner"
_SWAP = """s.txid, s.sender, s.contract_id, s.function_name, s.token_in, s.amount_in, s.token_out, s.amount_out,
  s.burn_block_time, s.block_height, s.tx_index, s.source"""
_REFUSAL = "r.txid, r.sender, r.code, r.reason, r.burn_block_time"
_EXCESS = "e.txid, e.given_usd, e.given_liquidity_usd, e.received_usd, e.received_liquidity_usd"
_LIVE_AGENTS = "agents a JOIN agent_tiers t ON t.stx_address = a.stx_address AND t.tier = 'eligible'"
_LIVE_SWAPS = """swaps s JOIN agent_tiers t ON t.stx_address = s.sender AND t.tier = 'eligible'
WHERE s.burn_block_time >= ? AND s.burn_block_time < ?"""
_LIVE_REFUSALS = """refusals r JOIN agents a ON a.stx_address = r.sender
WHERE r.burn_block_time >= ? AND r.burn_block_time < ?"""
_LIVE_EXCESSES = """excess_swaps e JOIN agent_tiers t ON t.stx_address = e.sender AND t.tier = 'eligible'
WHERE e.burn_block_time >= ? AND e.burn_block_time < ?"""
# Only the batch that changed the status writes anything. Writing rows in key order is five times as fast.
_IS_MINE = """EXISTS (SELECT 1 FROM competition_rounds
  WHERE round_id = ?1 AND status = 'finalizing' AND captured_at = ?2)"""
_BEGIN = """
UPDATE competition_rounds SET status = 'finalizing', captured_at = ?2, allowlist_version = ?3,
  complete_until_block = ?4, waiting_reason = NULL, waiting_since = NULL
WHERE round_id = ?1 AND status = 'closed' AND version = ?5 AND NOT EXISTS (
  SELECT 1 FROM swaps WHERE burn_block_time >= ?6 AND burn_block_time < ?7
    AND (token_in NOT IN (SELECT value FROM json_each(?8)) OR token_out NOT IN (SELECT value FROM json_each(?8))))"""
_REPLACED = (
    "competition_round_price_snapshots",
    "competition_round_agents",
    "competition_round_refusals",
    "competition_round_excesses",
    "competition_round_swaps",
    "competition_round_changes",
    "competition_round_discrepancies",
)
_PRICES = f"""
INSERT INTO competition_round_price_snapshots (round_id, token_id, price_usd, decimals, source, captured_at,
  price_usd_exact, seen_at, liquidity_usd, volume_usd, reason)
SELECT ?1, json_extract(p.value, '$.token_id'), CAST(json_extract(p.value, '$.price_usd') AS REAL),
  json_extract(p.value, '$.decimals'), json_extract(p.value, '$.source'), ?2, json_extract(p.value, '$.price_usd'),
  json_extract(p.value, '$.at'), json_extract(p.value, '$.liquidity_usd'), json_extract(p.value, '$.volume_usd'),
  json_extract(p.value, '$.reason')
FROM json_each(?3) p WHERE {_IS_MINE}"""
_AGENTS = f"""
INSERT INTO competition_round_agents
  (round_id, stx_address, btc_address, erc8004_agent_id, display_name, owner, first_funder)
WITH known AS MATERIALIZED (SELECT key AS wallet, value AS funder FROM json_each(?3))
SELECT ?1, {_AGENT}, k.funder FROM {_LIVE_AGENTS} LEFT JOIN known k ON k.wallet = a.stx_address WHERE {_IS_MINE}"""
_SWAPS = f"""
INSERT INTO competition_round_swaps (round_id, txid, sender, contract_id, function_name, token_in, amount_in, token_out,
  amount_out, burn_block_time, block_height, tx_index, source)
SELECT ?1, {_SWAP} FROM {_LIVE_SWAPS.replace("?", "?3", 1).replace("< ?", "< ?4")} AND {_IS_MINE} ORDER BY s.txid"""
_REFUSALS = f"""
INSERT INTO competition_round_refusals (round_id, txid, sender, code, reason, burn_block_time)
SELECT ?1, {_REFUSAL} FROM {_LIVE_REFUSALS.replace("?", "?3", 1).replace("< ?", "< ?4")} AND {_IS_MINE}"""
_EXCESSES = f"""
INSERT INTO competition_round_excesses
  (round_id, txid, given_usd, given_liquidity_usd, received_usd, received_liquidity_usd)
SELECT ?1, {_EXCESS} FROM {_LIVE_EXCESSES.replace("?", "?3", 1).replace("< ?", "< ?4")} AND {_IS_MINE}"""

_TOKENS = """
SELECT token_in AS token FROM swaps WHERE burn_block_time >= ?1 AND burn_block_time < ?2
UNION SELECT token_out FROM swaps WHERE burn_block_time >= ?1 AND burn_block_time < ?2
UNION SELECT token_id FROM competition_round_price_overrides WHERE round_id = ?3"""
_OVERRIDES = "SELECT * FROM competition_round_price_overrides WHERE round_id = ?"
_DECISIONS = "SELECT * FROM competition_round_decisions WHERE round_id = ? ORDER BY erc8004_agent_id, kind"
_CAPTURED_AGENTS = "SELECT * FROM competition_round_agents a WHERE round_id = ?"
# The first page begins at the start of the round. With a condition for it, SQLite would read all earlier pages each
# time.
_SWAPS_NOW = f"""
SELECT {_SWAP} FROM swaps s CROSS JOIN agent_tiers t ON t.stx_address = s.sender AND t.tier = 'eligible'
WHERE s.burn_block_time < ?"""
_IN_TIME = ("burn_block_time", "txid")
_CAPTURED_SWAPS = f"SELECT {_SWAP} FROM competition_round_swaps s WHERE round_id = ?"
_CAPTURED_REFUSALS = f"SELECT {_REFUSAL} FROM competition_round_refusals r WHERE round_id = ?"
_CAPTURED_EXCESSES = f"SELECT {_EXCESS} FROM competition_round_excesses e WHERE round_id = ?"
_CAPTURED_PRICES = "SELECT * FROM competition_round_price_snapshots WHERE round_id = ? ORDER BY token_id"


# Prices of the end


def ask_for_closing_prices(db: Database, token_ids: Collection[str], ends_at: int) -> Statement:
    """Return the query for the rows that `closing_prices_of` reads."""
    end_ms = ends_at * 1000
    return ask_for_points(db, token_ids, end_ms - (INSTANTS - 1) * APART_MS - STALE_AFTER_MS, end_ms)


def closing_prices_of(rows: Iterable[Row], token_ids: Collection[str], ends_at: int) -> list[RoundPrice]:
    """Return the prices at `ends_at` (unix seconds) of the tokens that have one, in order of their ids."""
    series = points_of(rows)
    prices = [closing_price(token_id, series.get(token_id, []), ends_at * 1000) for token_id in sorted(set(token_ids))]
    return [price for price in prices if price is not None]


async def closing_prices(db: Database, token_ids: Collection[str], ends_at: int) -> list[RoundPrice]:
    rows = (await ask_for_closing_prices(db, token_ids, ends_at).all()).results
    return closing_prices_of(rows, token_ids, ends_at)


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
    rows = await db.prepare(_TOKENS).bind(rules.starts_at, rules.ends_at, rules.round_id).all()
    return {row["token"] for row in rows.results}


async def prices_of_end(db: Database, rules: RoundRules, tokens: Collection[str]) -> list[RoundPrice]:
    """Return the prices of the end by token: from the series, or set by an operator instead."""
    points, overrides = await db.batch(_ask_for_end(db, rules, tokens))
    return _prices_of(points.results, overrides.results, rules, tokens)


async def still_unpriced(db: Database, rounds: Sequence[RoundRules]) -> set[str]:
    """Return the rounds whose prices of the end are unknown, judged by the one decisive token."""
    answers = await db.batch([ask for rules in rounds for ask in _ask_for_end(db, rules, {GAUGE})])
    unpriced = set()
    for rules, points, overrides in zip(rounds, answers[::2], answers[1::2], strict=True):
        with suppress(UsageError):  # its next step reports what cannot be read, without delaying other rounds
            if unpriced_because(_prices_of(points.results, overrides.results, rules, {GAUGE})):
                unpriced.add(rules.round_id)
    return unpriced


def _ask_for_end(db: Database, rules: RoundRules, tokens: Collection[str]) -> list[Statement]:
    overrides = db.prepare(_OVERRIDES).bind(rules.round_id)
    return [ask_for_closing_prices(db, tokens, rules.ends_at), overrides]


def _prices_of(
    points: Iterable[Row], overrides: Iterable[Row], rules: RoundRules, tokens: Collection[str]
) -> list[RoundPrice]:
    prices = {price.token_id: price for price in closing_prices_of(points, tokens, rules.ends_at)}
    for row in overrides:
        prices[row["token_id"]] = RoundPrice(
            row["token_id"],
            row["price_usd"],
            row["decimals"],
            "manual_admin",
            rules.ends_at * 1000,
            reason=row["reason"],
        )
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
        db.prepare(_BEGIN).bind(*mine, *recorded, *window, json.dumps(sorted(tokens))),
        *(db.prepare(f"DELETE FROM {table} WHERE round_id = ?1 AND {_IS_MINE}").bind(*mine) for table in _REPLACED),
        db.prepare(_PRICES).bind(*mine, compact([price.to_json() for price in prices])),
        db.prepare(_AGENTS).bind(*mine, compact(funders)),
        *(db.prepare(sql).bind(*mine, *window) for sql in (_REFUSALS, _EXCESSES, _SWAPS)),
    ]
    return (await db.batch(statements))[0].meta.changes > 0


# The inputs of a result


async def captured_inputs(db: Database, round_: RoundRow) -> RoundInputs:
    rules = round_.rules
    of_round = (rules.round_id,)
    prices = (await db.prepare(_CAPTURED_PRICES).bind(rules.round_id).all()).results
    return RoundInputs(
        rules=rules,
        allowlist_version=round_.allowlist_version or "",
        complete_until_block=round_.complete_until_block,
        agents=[
            RoundAgent.from_json(row)
            async for rows in _pages(db, _CAPTURED_AGENTS, "a", ("stx_address",), of_round)
            for row in rows
        ],
        prices=[price_of(row) for row in prices],
        swaps=await swaps_in_order(_pages(db, _CAPTURED_SWAPS, "s", ("txid",), of_round)),
        refusals=await _refusals(_pages(db, _CAPTURED_REFUSALS, "r", ("txid",), of_round)),
        decisions=await decisions_of(db, rules.round_id),
        excesses=await _excesses(_pages(db, _CAPTURED_EXCESSES, "e", ("txid",), of_round)),
    )


async def live_inputs(
    db: Database,
    rules: RoundRules,
    prices: Sequence[RoundPrice],
    *,
    allowlist_version: str,
    complete_until_block: int | None,
) -> RoundInputs:
    """Return the inputs that would be captured now: for a preview that writes nothing."""
    window, funders = (rules.starts_at, rules.ends_at), await _funders(db)
    agents = _pages(db, f"SELECT {_AGENT} FROM {_LIVE_AGENTS} WHERE true", "a", ("stx_address",), ())
    swaps = _pages(db, _SWAPS_NOW, "s", _IN_TIME, (rules.ends_at,), (rules.starts_at, ""))
    refusals = _pages(db, f"SELECT {_REFUSAL} FROM {_LIVE_REFUSALS}", "r", ("txid",), window)
    excesses = _pages(db, f"SELECT {_EXCESS} FROM {_LIVE_EXCESSES}", "e", ("txid",), window)
    return RoundInputs(
        rules=rules,
        allowlist_version=allowlist_version,
        complete_until_block=complete_until_block,
        agents=[
            RoundAgent(**row, first_funder=funders.get(row["stx_address"])) async for rows in agents for row in rows
        ],
        prices=list(prices),
        swaps=await swaps_in_order(swaps),
        refusals=await _refusals(refusals),
        decisions=await decisions_of(db, rules.round_id),
        excesses=await _excesses(excesses),
    )


async def _funders(db: Database) -> dict[str, str]:
    """Return who sent each eligible wallet its first STX, where known."""
    rows = (await db.prepare(_ELIGIBLE).all()).results
    return await first_funders(db, [row["stx_address"] for row in rows])


async def decisions_of(db: Database, round_id: str) -> list[FlagDecision]:
    rows = (await db.prepare(_DECISIONS).bind(round_id).all()).results
    return [FlagDecision.from_json({**row, "kind": row["kind"] or None}) for row in rows]


async def _pages(
    db: Database,
    select: str,
    table: str,
    key: Sequence[str],
    values: Sequence[str | int],
    after: Sequence[str | int] = (),
) -> AsyncIterator[list[Row]]:
    """Yield all rows of a query, or those after a key, in pages by a unique key."""
    columns, places = ", ".join(f"{table}.{column}" for column in key), ", ".join("?" for _ in key)
    ordered = f"ORDER BY {columns} LIMIT {PAGE}"
    while True:
        beyond = f"AND ({columns}) > ({places})" if after else ""
        rows = (await db.prepare(f"{select} {beyond} {ordered}").bind(*values, *after).all()).results
        yield rows
        if len(rows) < PAGE:
            return
        after = [rows[-1][column] for column in key]


async def swaps_in_order(pages: AsyncIterator[list[Row]]) -> list[RoundSwap]:
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


async def _excesses(pages: AsyncIterator[list[Row]]) -> list[SwapWorth]:
    return [SwapWorth(**row) async for rows in pages for row in rows]


async def _refusals(pages: AsyncIterator[list[Row]]) -> list[RoundRefusal]:
    refusals = [RoundRefusal(**row) async for rows in pages for row in rows]
    return sorted(refusals, key=lambda refusal: (refusal.burn_block_time, refusal.txid))
