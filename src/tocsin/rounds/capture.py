"""Captures a round: the eligible agents, the swaps and refusals, and the prices of the end, as one batch.

From then on the result depends on nothing else. Swaps that appear, disappear or move later are noted as discrepancies.

The price of a token is the median of the prices in force at 13 instants of the last hour, including the end. A spike
of a few minutes does not move it. A token whose price was known at fewer than seven of them has no price.

A preparation is a result that waits for the end of its round's grace. Triggers mark it as outdated when a swap of its
round appears, disappears or changes. The batch that captures the round checks whether the eligible wallets are still
those whose swaps were copied; if they are, the copy is kept. All other inputs of a result are small: their digest, the
basis, is compared after the capture.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

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
ROWS_AT_ONCE, PARTS_AT_ONCE = 5_000, 50  # deleted by one statement

# Parts of statements with the round as ?1.
READY = "SELECT 1 FROM competition_round_preparations WHERE round_id = ?1 AND state = 'ready'"
# The batches of a preparation write only while it is under way and nobody has captured the round.
IS_UNDER_WAY = """EXISTS (SELECT 1 FROM competition_round_preparations p
  JOIN competition_rounds r ON r.round_id = p.round_id AND r.version = p.version
  WHERE p.round_id = ?1 AND p.begun_at = ?2 AND p.state = 'begun' AND r.status IN ('open', 'closed'))"""

_FIND = "SELECT * FROM competition_round_preparations WHERE round_id IN (SELECT value FROM json_each(?))"
_BEGIN_PREPARATION = """
INSERT INTO competition_round_preparations (round_id, version, attempts, begun_at, state, starts_at, ends_at)
SELECT round_id, version, 1, ?2, 'begun', starts_at, ends_at FROM competition_rounds
WHERE round_id = ?1 AND version = ?3 AND status IN ('open', 'closed')
ON CONFLICT (round_id) DO UPDATE SET attempts = iif(version = excluded.version, attempts + 1, 1),
  version = excluded.version, begun_at = excluded.begun_at, state = excluded.state, tokens_json = NULL, basis = NULL"""
_LAST_PART = f"""
DELETE FROM competition_round_files WHERE round_id = ?1 AND version = ?3 AND part >= ?4 AND {IS_UNDER_WAY}"""
_NO_OUTCOME = f"DELETE FROM competition_round_prepared_outcomes WHERE round_id = ?1 AND {IS_UNDER_WAY}"
_OUTCOME = f"""
INSERT INTO competition_round_prepared_outcomes (round_id, part, text) SELECT ?1, ?3, ?4 WHERE {IS_UNDER_WAY}"""
_MAKE_READY = f"""
UPDATE competition_round_preparations SET state = 'ready', tokens_json = ?3, basis = ?4
WHERE round_id = ?1 AND {IS_UNDER_WAY}"""
_ELIGIBLE = "SELECT stx_address FROM agent_tiers WHERE tier = 'eligible'"
_PREPARED = "SELECT stx_address FROM competition_round_agents WHERE round_id = ?1"
_OUTDATE = f"""
UPDATE competition_round_preparations SET state = 'outdated'
WHERE round_id = ?1 AND state = 'ready'
  AND (version <> ?2 OR EXISTS ({_ELIGIBLE} EXCEPT {_PREPARED}) OR EXISTS ({_PREPARED} EXCEPT {_ELIGIBLE}))"""
_IS_VOID = """EXISTS (SELECT 1 FROM competition_rounds r
  WHERE r.round_id = ?1 AND r.status = 'void' AND r.captured_at IS NULL)"""
_COPIES = {  # with the rest of their keys
    "competition_round_swaps": "txid",
    "competition_round_refusals": "txid",
    "competition_round_excesses": "txid",
    "competition_round_agents": "stx_address",
    "competition_round_price_snapshots": "token_id",
    "competition_round_files": "part",
}
_OUTCOME_TEXT = "SELECT text FROM competition_round_prepared_outcomes WHERE round_id = ? ORDER BY part"

_AGENT = "a.stx_address, a.btc_address, a.erc8004_agent_id, a.display_name, a.owner"
_SWAP = """s.txid, s.sender, s.contract_id, s.function_name, s.token_in, s.amount_in, s.token_out, s.amount_out,
  s.burn_block_time, s.block_height, s.tx_index, s.source"""
# The values that many swaps share are one string: it is read and looked up once, not six times.
_SHARED = " || char(31) || ".join(
    f"s.{name}" for name in ("sender", "contract_id", "function_name", "token_in", "token_out", "source")
)
_READ_SWAP = f"s.txid, {_SHARED} AS shared, s.amount_in, s.amount_out, s.burn_block_time, s.block_height, s.tx_index"
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
# While a preparation is ready, it lists all traded tokens, so no query has to read all swaps.
_BEGIN = f"""
UPDATE competition_rounds SET status = 'finalizing', captured_at = ?2, allowlist_version = ?3,
  complete_until_block = ?4, waiting_reason = NULL, waiting_since = NULL
WHERE round_id = ?1 AND status = 'closed' AND version = ?5 AND (EXISTS ({READY} AND begun_at = ?9) OR NOT EXISTS (
  SELECT 1 FROM swaps WHERE burn_block_time >= ?6 AND burn_block_time < ?7
    AND (token_in NOT IN (SELECT value FROM json_each(?8)) OR token_out NOT IN (SELECT value FROM json_each(?8)))))"""
_SMALL = (
    "competition_round_price_snapshots",
    "competition_round_agents",
    "competition_round_refusals",
    "competition_round_excesses",
)
_FOUND_LATER = ("competition_round_changes", "competition_round_discrepancies")
_PRICES = """
INSERT INTO competition_round_price_snapshots (round_id, token_id, price_usd, decimals, source, captured_at,
  price_usd_exact, seen_at, liquidity_usd, volume_usd, reason)
SELECT ?1, json_extract(p.value, '$.token_id'), CAST(json_extract(p.value, '$.price_usd') AS REAL),
  json_extract(p.value, '$.decimals'), json_extract(p.value, '$.source'), ?2, json_extract(p.value, '$.price_usd'),
  json_extract(p.value, '$.at'), json_extract(p.value, '$.liquidity_usd'), json_extract(p.value, '$.volume_usd'),
  json_extract(p.value, '$.reason')
FROM json_each(?3) p"""
_AGENTS = f"""
INSERT INTO competition_round_agents
  (round_id, stx_address, btc_address, erc8004_agent_id, display_name, owner, first_funder)
WITH known AS MATERIALIZED (SELECT key AS wallet, value AS funder FROM json_each(?3))
SELECT ?1, {_AGENT}, k.funder FROM {_LIVE_AGENTS} LEFT JOIN known k ON k.wallet = a.stx_address"""
INTO_SWAPS = f"""
INSERT INTO competition_round_swaps (round_id, txid, sender, contract_id, function_name, token_in, amount_in, token_out,
  amount_out, burn_block_time, block_height, tx_index, source)
SELECT ?1, {_SWAP} FROM"""
_SWAPS = f"""{INTO_SWAPS} {_LIVE_SWAPS.replace("?", "?3", 1).replace("< ?", "< ?4")}
  AND {_IS_MINE} AND NOT EXISTS ({READY}) ORDER BY s.txid"""
_NO_SWAPS = f"DELETE FROM competition_round_swaps WHERE round_id = ?1 AND {_IS_MINE} AND NOT EXISTS ({READY})"
_REFUSALS = f"""
INSERT INTO competition_round_refusals (round_id, txid, sender, code, reason, burn_block_time)
SELECT ?1, {_REFUSAL} FROM {_LIVE_REFUSALS.replace("?", "?3", 1).replace("< ?", "< ?4")}"""
_EXCESSES = f"""
INSERT INTO competition_round_excesses
  (round_id, txid, given_usd, given_liquidity_usd, received_usd, received_liquidity_usd)
SELECT ?1, {_EXCESS} FROM {_LIVE_EXCESSES.replace("?", "?3", 1).replace("< ?", "< ?4")}"""

_TOKENS = """
SELECT token_in AS token FROM swaps WHERE burn_block_time >= ?1 AND burn_block_time < ?2
UNION SELECT token_out FROM swaps WHERE burn_block_time >= ?1 AND burn_block_time < ?2
UNION SELECT token_id FROM competition_round_price_overrides WHERE round_id = ?3"""
_OVERRIDES = "SELECT * FROM competition_round_price_overrides WHERE round_id = ?"
_DECISIONS = "SELECT * FROM competition_round_decisions WHERE round_id = ? ORDER BY erc8004_agent_id, kind"
_CAPTURED_AGENTS = "SELECT * FROM competition_round_agents a WHERE round_id = ?"
# It does not join the wallets eligible now: that may change and change back while the pages are read.
_SWAPS_TO_PREPARE = f"""
SELECT {_READ_SWAP} FROM swaps s CROSS JOIN competition_round_agents a ON a.stx_address = s.sender
WHERE a.round_id = ? AND s.burn_block_time < ?"""
# The first page begins at the start of the round. With a condition for it, SQLite would read all earlier pages each
# time.
_SWAPS_NOW = f"""
SELECT {_READ_SWAP} FROM swaps s CROSS JOIN agent_tiers t ON t.stx_address = s.sender AND t.tier = 'eligible'
WHERE s.burn_block_time < ?"""
_IN_TIME = ("burn_block_time", "txid")
_CAPTURED_SWAPS = f"SELECT {_READ_SWAP} FROM competition_round_swaps s WHERE round_id = ?"
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


# Preparations


@dataclass(frozen=True, slots=True)
class Preparation:
    """A preparation of the current version. Once it is ready, `tokens` are all tokens traded in the round."""

    attempts: int
    begun_at: str
    state: str
    tokens: frozenset[str]
    basis: str | None


async def find_preparation(db: Database, round_: RoundRow) -> Preparation | None:
    return (await find_preparations(db, [round_])).get(round_.round_id)


async def find_preparations(db: Database, rounds: Iterable[RoundRow]) -> dict[str, Preparation]:
    """Return the preparations of these rounds, by round."""
    versions = {each.round_id: each.version for each in rounds}
    rows = (await db.prepare(_FIND).bind(json.dumps(list(versions))).all()).results
    return {
        row["round_id"]: Preparation(
            row["attempts"],
            row["begun_at"],
            row["state"],
            frozenset(json.loads(row["tokens_json"] or "[]")),
            row["basis"],
        )
        for row in rows
        if row["version"] == versions[row["round_id"]]
    }


def begin(db: Database, round_: RoundRow, at: str) -> Statement:
    """Begin a preparation. From now on triggers note changes."""
    return db.prepare(_BEGIN_PREPARATION).bind(round_.round_id, at, round_.version)


def make_ready(
    db: Database, round_: RoundRow, at: str, parts: int, tokens: Collection[str], basis: str, outcome: Iterable[str]
) -> list[Statement]:
    """Return the last batch of a preparation, with its outcome. If outdated, the last statement changes nothing."""
    mine = (round_.round_id, at)
    return [
        db.prepare(_LAST_PART).bind(*mine, round_.version, parts),
        db.prepare(_NO_OUTCOME).bind(*mine),
        *(db.prepare(_OUTCOME).bind(*mine, part, text) for part, text in enumerate(outcome)),
        db.prepare(_MAKE_READY).bind(*mine, json.dumps(sorted(tokens)), basis),
    ]


def outdate_for_others(db: Database, round_: RoundRow) -> Statement:
    """Mark a preparation as outdated if it has the swaps of wallets other than those eligible now."""
    return db.prepare(_OUTDATE).bind(round_.round_id, round_.version)


def settle(db: Database, is_mine: str, mine: tuple[str, str]) -> list[Statement]:
    """Return statements for the batch of a capture: a ready preparation becomes fixed, any other is deleted."""
    of_round = f"WHERE round_id = ?1 AND state {{}} 'ready' AND {is_mine}"
    return [
        db.prepare(f"DELETE FROM competition_round_preparations {of_round.format('<>')}").bind(*mine),
        db.prepare(f"UPDATE competition_round_preparations SET state = 'captured' {of_round.format('=')}").bind(*mine),
    ]


def forget(db: Database, round_id: str, where: str = "", *values: str | int) -> list[Statement]:
    """Remove the preparation of a round that has its result, will have none, or whose result is computed again."""
    return [
        db.prepare(f"DELETE FROM {table} WHERE round_id = ?1 {where}").bind(round_id, *values)
        for table in ("competition_round_prepared_outcomes", "competition_round_preparations")
    ]


async def clear_copies(db: Database, round_: RoundRow) -> None:
    """Remove the preparation of a void round that was never captured; there may be a million rows."""
    for table, key in _COPIES.items():
        is_file = key == "part"  # files of earlier versions stay
        rows = f"FROM {table} WHERE round_id = ?1 {'AND version = ?2' if is_file else ''}"
        limit = PARTS_AT_ONCE if is_file else ROWS_AT_ONCE
        clear = f"DELETE {rows} AND {key} IN (SELECT {key} {rows} LIMIT {limit}) AND {_IS_VOID}"
        values = (round_.round_id, round_.version)[: 1 + is_file]
        while (await db.prepare(clear).bind(*values).run()).meta.changes:
            pass


async def prepared_outcome(db: Database, round_id: str) -> str:
    """Return the outcome as JSON."""
    return "".join(row["text"] for row in (await db.prepare(_OUTCOME_TEXT).bind(round_id).all()).results)


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
    prepared: Preparation | None = None,
) -> bool:
    """Capture a closed round; False if another run did, or if a token not in `tokens` was traded in the meantime.

    `prepared`: the preparation that lists the traded tokens in `tokens`; the database decides whether it still holds.
    """
    rules, at = round_.rules, iso_time(now)
    mine, window = (rules.round_id, at), (rules.starts_at, rules.ends_at)
    recorded = (allowlist_version, complete_until_block, round_.version)
    listed, begun_at = json.dumps(sorted(tokens)), None if prepared is None else prepared.begun_at
    begin = db.prepare(_BEGIN).bind(*mine, *recorded, *window, listed, begun_at)
    statements = [
        outdate_for_others(db, round_),
        begin,
        *await small_copies(db, rules, prices, at, _IS_MINE),
        *(db.prepare(f"DELETE FROM {table} WHERE round_id = ?1 AND {_IS_MINE}").bind(*mine) for table in _FOUND_LATER),
        db.prepare(_NO_SWAPS).bind(*mine),
        db.prepare(_SWAPS).bind(*mine, *window),
        *settle(db, _IS_MINE, mine),
    ]
    return (await db.batch(statements))[1].meta.changes > 0


async def small_copies(
    db: Database, rules: RoundRules, prices: Sequence[RoundPrice], at: str, is_mine: str
) -> list[Statement]:
    """Copy everything but the swaps if `is_mine` holds, a condition on the round (?1) and the time (?2)."""
    mine, window = (rules.round_id, at), (rules.starts_at, rules.ends_at)
    funders = await _funders(db)
    return [
        *(db.prepare(f"DELETE FROM {table} WHERE round_id = ?1 AND {is_mine}").bind(*mine) for table in _SMALL),
        db.prepare(f"{_PRICES} WHERE {is_mine}").bind(*mine, compact([price.to_json() for price in prices])),
        db.prepare(f"{_AGENTS} WHERE {is_mine}").bind(*mine, compact(funders)),
        db.prepare(f"{_REFUSALS} AND {is_mine}").bind(*mine, *window),
        db.prepare(f"{_EXCESSES} AND {is_mine}").bind(*mine, *window),
    ]


# The inputs of a result


async def captured_inputs(db: Database, round_: RoundRow, *, with_swaps: bool = True) -> RoundInputs:
    """Return the captured inputs, or all but the swaps."""
    swaps = _pages(db, _CAPTURED_SWAPS, "s", ("txid",), (round_.round_id,))
    return await _copied_inputs(db, round_, await swaps_in_order(swaps) if with_swaps else [])


async def prepared_inputs(db: Database, round_: RoundRow, checkpoint: Callable[[], None]) -> RoundInputs:
    """Return the inputs of a preparation: copies of everything but the swaps, and the swaps of the copied wallets."""
    values, start = (round_.round_id, round_.ends_at), (round_.starts_at, "")
    swaps = _pages(db, _SWAPS_TO_PREPARE, "s", _IN_TIME, values, start, checkpoint)
    return await _copied_inputs(db, round_, await swaps_in_order(swaps))


async def _copied_inputs(db: Database, round_: RoundRow, swaps: list[RoundSwap]) -> RoundInputs:
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
        swaps=swaps,
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
    with_swaps: bool = True,
) -> RoundInputs:
    """Return the inputs that would be captured now, or all but the swaps: for a preview that writes nothing."""
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
        swaps=await swaps_in_order(swaps) if with_swaps else [],
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
    checkpoint: Callable[[], None] = lambda: None,
) -> AsyncIterator[list[Row]]:
    """Yield all rows of a query, or those after a key, in pages by a unique key."""
    columns, places = ", ".join(f"{table}.{column}" for column in key), ", ".join("?" for _ in key)
    ordered = f"ORDER BY {columns} LIMIT {PAGE}"
    while True:
        beyond = f"AND ({columns}) > ({places})" if after else ""
        rows = (await db.prepare(f"{select} {beyond} {ordered}").bind(*values, *after).all()).results
        checkpoint()
        yield rows
        if len(rows) < PAGE:
            return
        after = [rows[-1][column] for column in key]


async def swaps_in_order(pages: AsyncIterator[list[Row]]) -> list[RoundSwap]:
    """Return swaps in chain order. There may be a million, so it handles a page or some blocks at a time."""
    blocks: defaultdict[int, list[RoundSwap]] = defaultdict(list)
    known: dict[str, list[Any]] = {}
    async for rows in pages:
        for row in rows:
            txid, shared, given, received, at, height, index = row.values()
            names = known.get(shared)
            if names is None:
                names = known[shared] = shared.split("\x1f")
            sender, contract, function, token_in, token_out, source = names
            swap = (txid, sender, contract, function, token_in, given, token_out, received, at, height, index, source)
            blocks[height].append(RoundSwap._make(swap))  # faster than a call with twelve arguments
    swaps: list[RoundSwap] = []
    for number, height in enumerate(sorted(blocks), 1):
        swaps += sorted(blocks.pop(height), key=CHAIN_ORDER)
        if not number % BLOCKS_AT_ONCE:
            await asyncio.sleep(0)
    return swaps


async def _excesses(pages: AsyncIterator[list[Row]]) -> list[SwapWorth]:
    return [SwapWorth(**row) async for rows in pages for row in rows]


async def _refusals(pages: AsyncIterator[list[Row]]) -> list[RoundRefusal]:
    refusals = [RoundRefusal(**row) async for rows in pages for row in rows]
    return sorted(refusals, key=lambda refusal: (refusal.burn_block_time, refusal.txid))
