"""The tables of rounds: rows as shapes, and writes as statements for one batch.

A status changes only from the expected one: the second of two writers changes nothing, and can see that.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from tocsin.bindings import Database, Row, Statement
from tocsin.durations import utc_time
from tocsin.errors import RequestRefused
from tocsin.shapes.round_views import Discrepancy, RewardRow, RoundResultRow, RoundRow, RoundRule
from tocsin.shapes.rounds import AgentFlag, RoundPrice, RoundRules

PUBLISHED = ("finalized", "partially_paid", "paid")

_ROUND = "SELECT * FROM competition_rounds WHERE round_id = ?"
_UNFINISHED = """
SELECT * FROM competition_rounds WHERE status IN ('open', 'closed', 'finalizing') ORDER BY ends_at, round_id"""
ADD = """
INSERT INTO competition_rounds
  (round_id, starts_at, ends_at, grace_ends_at, min_volume_usd, min_priced_trade_count, created_at, rules_json)
VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (round_id) DO NOTHING"""
_CLOSE = (
    "UPDATE competition_rounds SET status = 'closed', closed_at = ? WHERE round_id = ? AND status = 'open'"
)
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


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The rule for rounds, when it was set (unix seconds), and the rounds without a result, ordered by their end."""

    rule: RoundRule | None
    rule_set_at: int
    rounds: list[RoundRow]


def iso_time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ms_of(iso: str) -> int:
    return round(datetime.fromisoformat(iso).timestamp() * 1000)


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


def discrepancy_of(row: Row) -> Discrepancy:
    return Discrepancy.from_json({**row})
