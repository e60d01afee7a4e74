"""The tables of rounds: rows as shapes, writes as statements for one batch, and what the routes show.

A status changes only from the expected one: the second of two writers changes nothing, and can see that.
"""

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

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
from tocsin.rounds.words import Placed, won_by
from tocsin.sql import read_queries
from tocsin.text import utc_time

SQL = read_queries(__file__)

PAGE_DEFAULT, PAGE_MAX = 20, 100
PUBLISHED = ("finalized", "partially_paid", "paid")


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The rule for rounds, when it was set (unix seconds), and the rounds without a result, ordered by their end."""

    rule: RoundRule | None
    rule_set_at: int
    rounds: list[RoundRow]


def iso_time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


async def find_round(db: Database, round_id: str) -> RoundRow | None:
    return await _one(db, SQL["round"], round_id)


async def _one(db: Database, sql: str, *values: str | int) -> RoundRow | None:
    row = await db.prepare(sql).bind(*values).first()
    return None if row is None else read_round(row)


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
    rule, rounds = await db.batch([db.prepare(SQL["rule"]), db.prepare(SQL["unfinished"])])
    kept = rule.results[0] if rule.results else None
    return Unfinished(
        None if kept is None else read_rule(kept),
        0 if kept is None else kept["set_at_s"],
        [read_round(row) for row in rounds.results],
    )


def add(db: Database, rules: RoundRules, now: int) -> Statement:
    """Add a round; an existing one stays unchanged."""
    return db.prepare(SQL["add_round"]).bind(*added_values(rules, now))


def added_values(rules: RoundRules, now: int) -> tuple[str | float, ...]:
    """Return the values that `SQL["add_round"]` binds."""
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


async def load_rule(db: Database) -> RoundRule | None:
    row = await db.prepare(SQL["rule"]).first()
    return None if row is None else read_rule(row)


async def newest_by_rule(db: Database, rule: RoundRule, latest_start: int) -> int | None:
    """Return the start of the newest round that the rule has added, up to a time (unix seconds)."""
    grid = (rule.first_starts_at, rule.period_s, rule.prefix, rule.first_number)
    row = await db.prepare(SQL["newest_by_rule"]).bind(latest_start, *grid).first()
    return None if row is None else row["newest"]


def set_rule(db: Database, rule: RoundRule | None, set_by: str, now: int) -> Statement:
    if rule is None:
        return db.prepare(SQL["end_rule"])
    return db.prepare(SQL["set_rule"]).bind(compact(rule.to_json()), set_by, iso_time(now))


def compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


# Rows as shapes


def read_rule(row: Row) -> RoundRule:
    return RoundRule.from_json(json.loads(row["rule_json"]))


def read_round(row: Row) -> RoundRow:
    return RoundRow.from_json({**row, "rules": json.loads(row["rules_json"])})


def read_result(row: Row) -> RoundResultRow:
    parsed = {"result_json": json.loads(row["result_json"]), "exact": json.loads(row["exact_json"])}
    return RoundResultRow.from_json({**row, **parsed})


def read_price(row: Row) -> RoundPrice:
    return RoundPrice.from_json({**row, "price_usd": row["price_usd_exact"], "at": row["seen_at"]})


def read_flag(row: Row) -> AgentFlag:
    return AgentFlag.from_json(json.loads(row["flag_json"]))


# What the routes show


async def published_rounds(db: Database, limit: int, offset: int) -> RoundPage:
    rows = (await db.prepare(SQL["newest"]).bind(limit + 1, offset).all()).results
    pagination = Pagination(limit, offset, has_more=len(rows) > limit)
    rounds = [read_round(row) for row in rows[:limit]]
    return RoundPage(rounds, pagination, await _winners(db, [each.round_id for each in rounds]))


async def published_round(db: Database, round_id: str) -> RoundRow:
    """Return the round; refuses one that does not exist, or that has no result (yet)."""
    found = await the_round(db, round_id)
    if found.status not in PUBLISHED:
        raise no_result(found)
    return found


async def round_in_force(db: Database, now: int) -> RoundRow | None:
    """Return the running round; if there is none, the last one."""
    return await _one(db, SQL["in_force"], now // 1000)


async def round_results(db: Database, round_id: str) -> list[RoundResultRow]:
    """Return the results of a round, best first."""
    return [read_result(row) for row in (await db.prepare(SQL["results"]).bind(round_id).all()).results]


async def round_detail(db: Database, round_id: str) -> RoundDetail:
    """Return a round; one without a result (yet) has its rules only."""
    round_ = await the_round(db, round_id)
    if round_.status not in PUBLISHED:
        return RoundDetail(round_, [], [], [], [], [])
    rows = [
        (await db.prepare(sql).bind(round_id).all()).results
        for sql in (SQL["results"], SQL["rewards"], SQL["prices"], SQL["flags"], SQL["discrepancies"])
    ]
    return RoundDetail(
        round_,
        [read_result(row) for row in rows[0]],
        [RewardRow.from_json({**row}) for row in rows[1]],
        [read_price(row) for row in rows[2]],
        [read_flag(row) for row in rows[3]],
        [Discrepancy.from_json({**row}) for row in rows[4]],
    )


async def placed_agent(db: Database, round_id: str, address: str) -> PlacedAgent:
    """Return the result of an agent, by any of the wallets that count in it."""
    await published_round(db, round_id)
    row = await db.prepare(SQL["result_of_wallet"]).bind(round_id, address).first()
    if row is None:
        raise refused(404, "agent_not_placed", f"{address} has no place in {round_id}: it did not trade in it.")
    return PlacedAgent(round_id, read_result(row))


async def latest_result(db: Database, address: str) -> RoundResultRow | None:
    """Return the newest result of an agent, by any of the wallets that count in it."""
    row = await db.prepare(SQL["latest_result"]).bind(address).first()
    return None if row is None else read_result(row)


async def rounds_of_agent(db: Database, agent_id: int, wallets: Sequence[str], limit: int) -> list[AgentRound]:
    """Return an agent's newest results, with its prizes and flags, by one of its wallets."""
    found = []
    bound = db.prepare(SQL["results_of_agent"]).bind(json.dumps(list(wallets)), agent_id, limit)
    for row in (await bound.all()).results:
        of_agent = (row["round_id"], agent_id)
        prizes = (await db.prepare(SQL["prizes_of_agent"]).bind(*of_agent).all()).results
        flags = (await db.prepare(SQL["flags_of_agent"]).bind(*of_agent).all()).results
        kept = [flag for flag in map(read_flag, flags) if not flag.cleared]
        found.append(AgentRound(**row, prizes=[AgentPrize(**prize) for prize in prizes], flags=kept))
    return found


async def current_rounds(db: Database, now_s: int) -> CurrentRounds:
    over = (await db.prepare(SQL["over"]).bind(now_s).all()).results
    return CurrentRounds(
        now=now_s,
        running=await _one(db, SQL["running"], now_s),
        next=await _one(db, SQL["next"], now_s),
        waiting=[read_round(row) for row in over],
        latest=await _latest(db),
    )


async def _latest(db: Database) -> LatestRound | None:
    found = await _one(db, SQL["newest"], 1, 0)
    if found is None:
        return None
    winners = (await _winners(db, [found.round_id])).get(found.round_id, [])
    flags = (await db.prepare(SQL["flags"]).bind(found.round_id).all()).results
    placed = (await db.prepare(SQL["up_to_the_winner"]).bind(found.round_id).all()).results
    best = next((each for each in winners if each.category == "overall_pnl"), None)
    sentence = won_by(found.round_id, best, [Placed(**row) for row in placed], [read_flag(row) for row in flags])
    return LatestRound(found, winners, sentence)


async def _winners(db: Database, round_ids: list[str]) -> dict[str, list[RoundWinner]]:
    """Return the winners of the categories, by round."""
    winners: dict[str, list[RoundWinner]] = {}
    for row in (await db.prepare(SQL["winners"]).bind(json.dumps(round_ids)).all()).results:
        winners.setdefault(row["round_id"], []).append(RoundWinner.from_json({**row}))
    return winners


async def all_rounds(db: Database, now_s: int) -> RoundList:
    """Return rounds of every status, for operators."""
    counts = {row["round_id"]: row["n"] for row in (await db.prepare(SQL["discrepancy_counts"]).all()).results}
    rewards: dict[str, list[RewardRow]] = {}
    for row in (await db.prepare(SQL["all_rewards"]).all()).results:
        rewards.setdefault(row["round_id"], []).append(RewardRow.from_json({**row}))
    rounds = [read_round(row) for row in (await db.prepare(SQL["listed"]).all()).results]
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
    while (row := await db.prepare(SQL["file_part"]).bind(round_id, version, part).first()) is not None:
        yield row["text"]
        part += 1
