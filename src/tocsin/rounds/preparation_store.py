"""The tables of preparations: results that wait for the end of their round's grace.

Triggers mark a preparation as outdated when a swap of its round appears, disappears or changes. The batch that captures
the round itself checks whether the eligible wallets are still those whose swaps were copied. All other inputs of a
result are small: their digest, the basis, is compared after the capture.
"""

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from tocsin.bindings import Database, Statement
from tocsin.shapes.round_views import RoundRow

ROWS_AT_ONCE, PARTS_AT_ONCE = 5_000, 50  # deleted by one statement

# Parts of statements with the round as ?1.
READY = "SELECT 1 FROM competition_round_preparations WHERE round_id = ?1 AND state = 'ready'"
# The batches of a preparation write only while it is under way and nobody has captured the round.
IS_UNDER_WAY = """EXISTS (SELECT 1 FROM competition_round_preparations p
  JOIN competition_rounds r ON r.round_id = p.round_id AND r.version = p.version
  WHERE p.round_id = ?1 AND p.begun_at = ?2 AND p.state = 'begun' AND r.status IN ('open', 'closed'))"""

_FIND = "SELECT * FROM competition_round_preparations WHERE round_id IN (SELECT value FROM json_each(?))"
_BEGIN = """
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
    return db.prepare(_BEGIN).bind(round_.round_id, at, round_.version)


def make_ready(
    db: Database,
    round_: RoundRow,
    at: str,
    parts: int,
    tokens: Collection[str],
    basis: str,
    outcome: Iterable[str],
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
        db.prepare(
            f"UPDATE competition_round_preparations SET state = 'captured' {of_round.format('=')}"
        ).bind(*mine),
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
