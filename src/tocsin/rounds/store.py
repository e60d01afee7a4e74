"""The tables of rounds: rows as shapes, writes as statements for one batch, and what the routes show.

A status changes only from the expected one: the second of two writers changes nothing, and can see that.
"""

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from holdfast.types import Database, Row, Statement
from tocsin.errors import RequestRefused
from tocsin.rounds.round import (
    AgentFlag,
    AgentPrize,
    AgentRound,
    CurrentRounds,
    Discrepancy,
    LatestRound,
    ListedRound,
    Pagination,
    PlacedAgent,
    RewardRow,
    RoundDetail,
    RoundList,
    RoundPage,
    RoundPrice,
    RoundResultRow,
    RoundRow,
    RoundRule,
    RoundRules,
    RoundWinner,
)
from tocsin.text import utc_time

PAGE_DEFAULT, PAGE_MAX = 20, 100
LISTED_MAX = 200
WAITING_MAX = 20
PUBLISHED = ("finalized", "partially_paid", "paid")

_ROUND = "SELECT * FROM competition_rounds WHERE round_id = ?"
_UNFINISHED = """
SELECT * FROM competition_rounds WHERE status IN ('open', 'closed', 'finalizing') ORDER BY ends_at, round_id"""
ADD = """
INSERT INTO competition_rounds
  (round_id, starts_at, ends_at, grace_ends_at, min_volume_usd, min_priced_trade_count, created_at, rules_json)
VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (round_id) DO NOTHING"""
_CLOSE = "UPDATE competition_rounds SET status = 'closed', closed_at = ? WHERE round_id = ? AND status = 'open'"
_OPEN_AGAIN = """
UPDATE competition_rounds SET status = 'open', closed_at = NULL, waiting_reason = NULL, waiting_since = NULL
WHERE round_id = ? AND status = 'closed'"""
_WAIT = """
UPDATE competition_rounds SET waiting_reason = ?1, waiting_since = min(coalesce(waiting_since, ?2), ?2)
WHERE round_id = ?3 AND status IN ('open', 'closed', 'finalizing')"""
_RULE = """
SELECT rule_json, CAST(strftime('%s', set_at) AS INTEGER) AS set_at_s FROM competition_round_rule WHERE rule_id = 1"""
# Only rounds that the rule itself added: names of others may begin the same way. D1 binds numbers as reals.
_NEWEST_BY_RULE = """
SELECT max(starts_at) AS newest FROM competition_rounds
WHERE starts_at <= ?1 AND (starts_at - ?2) % ?3 = 0 AND ends_at = starts_at + ?3
  AND round_id = ?4 || '-' || CAST(?5 + (starts_at - ?2) / ?3 AS INTEGER) || '-'
    || strftime('%Y-%m-%d', starts_at, 'unixepoch')"""
SET_RULE = """
INSERT INTO competition_round_rule (rule_id, rule_json, set_by, set_at) VALUES (1, ?, ?, ?)
ON CONFLICT (rule_id) DO UPDATE
SET rule_json = excluded.rule_json, set_by = excluded.set_by, set_at = excluded.set_at"""
OVERRIDE = """
INSERT INTO competition_round_price_overrides (round_id, token_id, price_usd, decimals, reason, set_by, set_at)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7 WHERE EXISTS
  (SELECT 1 FROM competition_rounds WHERE round_id = ?1 AND status IN ('open', 'closed'))
ON CONFLICT (round_id, token_id) DO UPDATE SET price_usd = excluded.price_usd, decimals = excluded.decimals,
  reason = excluded.reason, set_by = excluded.set_by, set_at = excluded.set_at"""
_END_RULE = "DELETE FROM competition_round_rule"
_IS_PUBLISHED = f"status IN {PUBLISHED}"
_NEWEST = f"""
SELECT * FROM competition_rounds WHERE {_IS_PUBLISHED} ORDER BY ends_at DESC, round_id DESC LIMIT ? OFFSET ?"""
_LISTED = f"SELECT * FROM competition_rounds ORDER BY ends_at DESC, round_id DESC LIMIT {LISTED_MAX}"
_COUNTS = "SELECT round_id, count(*) AS n FROM competition_round_discrepancies GROUP BY round_id"
_ALL_REWARDS = "SELECT * FROM competition_rewards ORDER BY round_id, category"
_RUNNING = """
SELECT * FROM competition_rounds WHERE status = 'open' AND starts_at <= ?1 AND ends_at > ?1
ORDER BY ends_at, round_id LIMIT 1"""
_NEXT = """
SELECT * FROM competition_rounds WHERE status = 'open' AND starts_at > ? ORDER BY starts_at, round_id LIMIT 1"""
_OVER = f"""
SELECT * FROM competition_rounds WHERE status IN ('open', 'closed', 'finalizing') AND ends_at <= ?
ORDER BY ends_at, round_id LIMIT {WAITING_MAX}"""
_WINNERS = """
SELECT w.round_id, w.category, w.stx_address, w.erc8004_agent_id, w.amount_sats, a.display_name
FROM competition_rewards w LEFT JOIN agents a ON a.stx_address = w.stx_address
WHERE w.round_id IN (SELECT value FROM json_each(?)) ORDER BY w.round_id, w.category"""
_RESULTS = "SELECT * FROM competition_round_results WHERE round_id = ? ORDER BY rank"
_RESULT = "SELECT * FROM competition_round_results WHERE round_id = ? AND stx_address = ?"
_OF_WALLET = """
SELECT p.* FROM competition_round_results p, json_each(p.exact_json, '$.wallets') w
WHERE p.round_id = ? AND w.value = ? LIMIT 1"""
_REWARDS = "SELECT * FROM competition_rewards WHERE round_id = ? ORDER BY category"
_PRICES = "SELECT * FROM competition_round_price_snapshots WHERE round_id = ? ORDER BY token_id"
_FLAGS = "SELECT * FROM competition_round_flags WHERE round_id = ? ORDER BY erc8004_agent_id, kind"
_DISCREPANCIES = "SELECT * FROM competition_round_discrepancies WHERE round_id = ? ORDER BY subject LIMIT 1000"
# A result has one of the agent's wallets as its address, which the index finds; `wallets` lists all that count in it.
_LATEST_RESULT = f"""
SELECT p.* FROM competition_round_results p JOIN competition_rounds r ON r.round_id = p.round_id
WHERE p.stx_address IN (SELECT ?1 UNION SELECT o.stx_address FROM agents a
    JOIN agents o ON o.erc8004_agent_id = a.erc8004_agent_id WHERE a.stx_address = ?1)
  AND EXISTS (SELECT 1 FROM json_each(p.exact_json, '$.wallets') w WHERE w.value = ?1)
  AND r.{_IS_PUBLISHED} ORDER BY r.ends_at DESC, r.round_id DESC LIMIT 1"""
_ROUNDS_OF_AGENT = f"""
SELECT p.round_id, r.ends_at, p.rank, iif(p.priced_trade_count, p.pnl_usd, NULL) AS pnl_usd, p.pnl_percent,
  iif(p.priced_trade_count, p.volume_usd, NULL) AS volume_usd, p.trade_count,
  (SELECT max(rank) FROM competition_round_results o WHERE o.round_id = p.round_id) AS ranked
FROM competition_round_results p JOIN competition_rounds r ON r.round_id = p.round_id
WHERE p.stx_address IN (SELECT value FROM json_each(?1)) AND p.erc8004_agent_id = ?2 AND r.{_IS_PUBLISHED}
ORDER BY r.ends_at DESC, r.round_id DESC LIMIT ?3"""
_PRIZES_OF_AGENT = """
SELECT category, amount_sats, status, payout_txid FROM competition_rewards
WHERE round_id = ? AND erc8004_agent_id = ? ORDER BY category"""
_FLAGS_OF_AGENT = """
SELECT * FROM competition_round_flags WHERE round_id = ? AND erc8004_agent_id = ? ORDER BY kind"""
_PART = "SELECT text FROM competition_round_files WHERE round_id = ? AND version = ? AND part = ?"


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The rule for rounds, when it was set (unix seconds), and the rounds without a result, ordered by their end."""

    rule: RoundRule | None
    rule_set_at: int
    rounds: list[RoundRow]


def iso_time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


async def find_round(db: Database, round_id: str) -> RoundRow | None:
    row = await db.prepare(_ROUND).bind(round_id).first()
    return None if row is None else round_of(row)


async def the_round(db: Database, round_id: str) -> RoundRow:
    """Return the round; refuses one that does not exist."""
    found = await find_round(db, round_id)
    if found is None:
        raise no_round(round_id)
    return found


def no_round(round_id: str) -> RequestRefused:
    return refused(404, "round_not_found", f"There is no such round: {round_id[:64]}.")


def no_result(round_: RoundRow) -> RequestRefused:
    """Return the refusal for a round that exists, but has no result."""
    if round_.status == "void":
        sentence = "is void: it has no result."
    else:
        ends, closes = utc_time(round_.ends_at * 1000), utc_time(round_.grace_ends_at * 1000)
        sentence = f"has no result yet. Its end is {ends}; the result follows after {closes}."
    return refused(404, "round_not_found", f"The round {round_.round_id} {sentence}")


def refused(status: int, code: str, sentence: str) -> RequestRefused:
    """Return a refusal in the form of the site's round routes: the code is in `error`, the sentence in `message`."""
    return RequestRefused(status, code, sentence, retryable=status >= 500, error=code, message=sentence)


async def load_unfinished(db: Database) -> Unfinished:
    rule, rounds = await db.batch([db.prepare(_RULE), db.prepare(_UNFINISHED)])
    kept = rule.results[0] if rule.results else None
    return Unfinished(
        None if kept is None else rule_of(kept),
        0 if kept is None else kept["set_at_s"],
        [round_of(row) for row in rounds.results],
    )


def add(db: Database, rules: RoundRules, now: int) -> Statement:
    """Add a round; an existing one stays unchanged."""
    return db.prepare(ADD).bind(*added_values(rules, now))


def added_values(rules: RoundRules, now: int) -> tuple[str | float, ...]:
    """Return the values that `ADD` binds."""
    return (
        rules.round_id,
        rules.starts_at,
        rules.ends_at,
        rules.grace_ends_at,
        float(rules.min_volume_usd),
        rules.min_priced_trade_count,
        iso_time(now),
        compact(rules.to_json()),
    )


def close(db: Database, round_id: str, now: int) -> Statement:
    return db.prepare(_CLOSE).bind(iso_time(now), round_id)


def open_again(db: Database, round_id: str) -> Statement:
    """Open a round again that was closed while the clock was ahead."""
    return db.prepare(_OPEN_AGAIN).bind(round_id)


def wait(db: Database, round_id: str, reason: str, now: int) -> Statement:
    """Store why a round does not advance and since when it waits; the clock may have been set back."""
    return db.prepare(_WAIT).bind(reason, now, round_id)


async def load_rule(db: Database) -> RoundRule | None:
    row = await db.prepare(_RULE).first()
    return None if row is None else rule_of(row)


async def newest_by_rule(db: Database, rule: RoundRule, latest_start: int) -> int | None:
    """Return the start of the newest round that the rule has added, up to a time (unix seconds)."""
    grid = (rule.first_starts_at, rule.period_s, rule.prefix, rule.first_number)
    row = await db.prepare(_NEWEST_BY_RULE).bind(latest_start, *grid).first()
    return None if row is None else row["newest"]


def set_rule(db: Database, rule: RoundRule | None, set_by: str, now: int) -> Statement:
    if rule is None:
        return db.prepare(_END_RULE)
    return db.prepare(SET_RULE).bind(compact(rule.to_json()), set_by, iso_time(now))


def compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


# Rows as shapes


def rule_of(row: Row) -> RoundRule:
    return RoundRule.from_json(json.loads(row["rule_json"]))


def round_of(row: Row) -> RoundRow:
    return _round_of(tuple(row.items()))


@lru_cache(maxsize=256)
def _round_of(columns: tuple[tuple[str, Any], ...]) -> RoundRow:
    """Convert a row. Cached: waiting rounds are read every minute, and converting takes longer than reading."""
    row = dict(columns)
    return RoundRow.from_json({**row, "rules": json.loads(row["rules_json"])})


def result_of(row: Row) -> RoundResultRow:
    parsed = {"result_json": json.loads(row["result_json"]), "exact": json.loads(row["exact_json"])}
    return RoundResultRow.from_json({**row, **parsed})


def reward_of(row: Row) -> RewardRow:
    return RewardRow.from_json({**row})


def price_of(row: Row) -> RoundPrice:
    return RoundPrice.from_json({**row, "price_usd": row["price_usd_exact"], "at": row["seen_at"]})


def flag_of(row: Row) -> AgentFlag:
    return AgentFlag.from_json(json.loads(row["flag_json"]))


# What the routes show


async def published_rounds(db: Database, limit: int, offset: int) -> RoundPage:
    rows = (await db.prepare(_NEWEST).bind(limit + 1, offset).all()).results
    pagination = Pagination(limit, offset, has_more=len(rows) > limit)
    rounds = [round_of(row) for row in rows[:limit]]
    return RoundPage(rounds, pagination, await _winners(db, [each.round_id for each in rounds]))


async def published_round(db: Database, round_id: str) -> RoundRow:
    """Return the round; refuses one that does not exist, or that has no result (yet)."""
    found = await the_round(db, round_id)
    if found.status not in PUBLISHED:
        raise no_result(found)
    return found


async def round_detail(db: Database, round_id: str) -> RoundDetail:
    """Return a round; one without a result (yet) has its rules only."""
    round_ = await the_round(db, round_id)
    if round_.status not in PUBLISHED:
        return RoundDetail(round_, [], [], [], [], [])
    rows = [
        (await db.prepare(sql).bind(round_id).all()).results
        for sql in (_RESULTS, _REWARDS, _PRICES, _FLAGS, _DISCREPANCIES)
    ]
    return RoundDetail(
        round_,
        [result_of(row) for row in rows[0]],
        [reward_of(row) for row in rows[1]],
        [price_of(row) for row in rows[2]],
        [flag_of(row) for row in rows[3]],
        [Discrepancy.from_json({**row}) for row in rows[4]],
    )


async def placed_agent(db: Database, round_id: str, address: str) -> PlacedAgent:
    """Return the result of an agent, by any of the wallets that count in it."""
    await published_round(db, round_id)
    row = await db.prepare(_RESULT).bind(round_id, address).first()
    if row is None:
        row = await db.prepare(_OF_WALLET).bind(round_id, address).first()
    if row is None:
        raise refused(404, "agent_not_placed", f"{address} has no place in {round_id}: it did not trade in it.")
    return PlacedAgent(round_id, result_of(row))


async def latest_result(db: Database, address: str) -> RoundResultRow | None:
    """Return the newest result of an agent, by any of the wallets that count in it."""
    row = await db.prepare(_LATEST_RESULT).bind(address).first()
    return None if row is None else result_of(row)


async def rounds_of_agent(db: Database, agent_id: int, wallets: Sequence[str], limit: int) -> list[AgentRound]:
    """Return an agent's newest results, with its prizes and flags, by one of its wallets."""
    found = []
    bound = db.prepare(_ROUNDS_OF_AGENT).bind(json.dumps(list(wallets)), agent_id, limit)
    for row in (await bound.all()).results:
        of_agent = (row["round_id"], agent_id)
        prizes = (await db.prepare(_PRIZES_OF_AGENT).bind(*of_agent).all()).results
        flags = (await db.prepare(_FLAGS_OF_AGENT).bind(*of_agent).all()).results
        kept = [flag for flag in map(flag_of, flags) if not flag.cleared]
        found.append(AgentRound(**row, prizes=[AgentPrize(**prize) for prize in prizes], flags=kept))
    return found


async def current_rounds(db: Database, now_s: int) -> CurrentRounds:
    running = await db.prepare(_RUNNING).bind(now_s).first()
    following = await db.prepare(_NEXT).bind(now_s).first()
    over = (await db.prepare(_OVER).bind(now_s).all()).results
    newest = await db.prepare(_NEWEST).bind(1, 0).first()
    latest = None
    if newest is not None:
        found = round_of(newest)
        latest = LatestRound(found, (await _winners(db, [found.round_id])).get(found.round_id, []))
    return CurrentRounds(
        now=now_s,
        running=None if running is None else round_of(running),
        next=None if following is None else round_of(following),
        waiting=[round_of(row) for row in over],
        latest=latest,
    )


async def _winners(db: Database, round_ids: list[str]) -> dict[str, list[RoundWinner]]:
    """Return the winners of the categories, by round."""
    winners: dict[str, list[RoundWinner]] = {}
    for row in (await db.prepare(_WINNERS).bind(json.dumps(round_ids)).all()).results:
        winners.setdefault(row["round_id"], []).append(RoundWinner.from_json({**row}))
    return winners


async def all_rounds(db: Database, now_s: int) -> RoundList:
    """Return rounds of every status, for operators."""
    counts = {row["round_id"]: row["n"] for row in (await db.prepare(_COUNTS).all()).results}
    rewards: dict[str, list[RewardRow]] = {}
    for row in (await db.prepare(_ALL_REWARDS).all()).results:
        rewards.setdefault(row["round_id"], []).append(reward_of(row))
    rounds = [round_of(row) for row in (await db.prepare(_LISTED).all()).results]
    listed = [ListedRound(each, counts.get(each.round_id, 0), rewards.get(each.round_id, [])) for each in rounds]
    return RoundList(now_s, listed, await load_rule(db))


async def file_version(db: Database, round_id: str, version: int | None) -> int:
    """Return the requested version of the file: the newest one, or one from before a reopening."""
    found = await find_round(db, round_id)
    newest = 0 if found is None else found.version - (found.digest is None)
    wanted = newest if version is None else version
    if found is not None and newest == 0:
        raise no_result(found)
    if found is None or not 1 <= wanted <= newest:
        raise no_round(round_id)
    return wanted


async def file_text(db: Database, round_id: str, version: int) -> AsyncIterator[str]:
    """Yield the file part by part."""
    part = 0
    while (row := await db.prepare(_PART).bind(round_id, version, part).first()) is not None:
        yield row["text"]
        part += 1
