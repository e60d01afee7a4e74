"""Finds differences between today's record and the captured one: a reorg, a late arrival, a change of rules.

Triggers note each swap of a captured round that appears, disappears or moves. This module compares it with the
captured one. The result stays unchanged; an operator may reopen the round.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from tocsin.bindings import Database, Row, Statement
from tocsin.rounds.round_store import compact, iso_time
from tocsin.shapes.round_views import Discrepancy, DiscrepancyKind

NOTED_MAX = 200  # transactions that one run compares

_COMPARED = (
    "sender",
    "contract_id",
    "function_name",
    "token_in",
    "amount_in",
    "token_out",
    "amount_out",
    "burn_block_time",
    "block_height",
    "tx_index",
)
_NOTED = """
SELECT c.round_id, c.txid, r.version FROM competition_round_changes c
JOIN competition_rounds r ON r.round_id = c.round_id
WHERE r.status IN ('finalized', 'partially_paid', 'paid') ORDER BY c.round_id, c.txid LIMIT ?"""
_CAPTURED = (
    "SELECT * FROM competition_round_swaps WHERE round_id = ? AND txid IN (SELECT value FROM json_each(?))"
)
_NOW = "SELECT * FROM swaps WHERE txid IN (SELECT value FROM json_each(?))"
_FORGET = """
DELETE FROM competition_round_changes WHERE round_id = ? AND txid IN (SELECT value FROM json_each(?))"""
_SETTLED = """
DELETE FROM competition_round_discrepancies WHERE round_id = ? AND subject IN (SELECT value FROM json_each(?))"""
_FOUND = """
INSERT INTO competition_round_discrepancies (round_id, subject, version, kind, detail, found_at)
SELECT ?1, json_extract(d.value, '$.subject'), ?2, json_extract(d.value, '$.kind'), json_extract(d.value, '$.detail'),
  json_extract(d.value, '$.found_at')
FROM json_each(?3) d WHERE true
ON CONFLICT (round_id, subject) DO UPDATE SET kind = excluded.kind, detail = excluded.detail"""
_INELIGIBLE = """
SELECT r.round_id, r.version, c.stx_address, coalesce(t.tier, 'not_registered') AS tier
FROM competition_rounds r
JOIN competition_round_agents c ON c.round_id = r.round_id
LEFT JOIN agent_tiers t ON t.stx_address = c.stx_address
WHERE r.status IN ('finalized', 'partially_paid') AND coalesce(t.tier, '') <> 'eligible'
  AND NOT EXISTS (SELECT 1 FROM competition_round_discrepancies d
    WHERE d.round_id = r.round_id AND d.subject = c.stx_address)
  AND EXISTS (SELECT 1 FROM competition_round_results p, json_each(p.exact_json, '$.wallets') w
    WHERE p.round_id = r.round_id AND p.erc8004_agent_id = c.erc8004_agent_id AND w.value = c.stx_address)
ORDER BY r.round_id, c.stx_address LIMIT ?"""
_ELIGIBLE_AGAIN = """
DELETE FROM competition_round_discrepancies WHERE kind = 'agent_ineligible'
  AND subject IN (SELECT stx_address FROM agent_tiers WHERE tier = 'eligible')"""


@dataclass(frozen=True, slots=True)
class FoundDiscrepancy:
    """A discrepancy and the round that has it."""

    round_id: str
    found: Discrepancy


def difference(captured: Row | None, now: Row | None) -> tuple[DiscrepancyKind, str] | None:
    """Return how a transaction differs from the captured one; None if it does not. Pure."""
    if captured is None and now is None:
        return None
    if captured is None:
        return "late", "it was recorded after the round was captured"
    if now is None:
        return "withdrawn", "it counted in the round, and is no longer on chain or no longer counts"
    changed = [name for name in _COMPARED if captured[name] != now[name]]
    if not changed:
        return None
    return "changed", "; ".join(f"{name} {captured[name]} is now {now[name]}" for name in changed)[:500]


async def find_discrepancies(db: Database, now: int) -> list[FoundDiscrepancy]:
    """Compare the noted swaps and the placed wallets; return discrepancies that are new or have changed."""
    changes, _, ineligible = await db.batch(
        [
            db.prepare(_NOTED).bind(NOTED_MAX),
            db.prepare(_ELIGIBLE_AGAIN),
            db.prepare(_INELIGIBLE).bind(NOTED_MAX),
        ]
    )
    noted: dict[tuple[str, int], list[str]] = {}
    for row in changes.results:
        noted.setdefault((row["round_id"], row["version"]), []).append(row["txid"])
    found: list[FoundDiscrepancy] = []
    for (round_id, version), txids in noted.items():
        found += await _compare(db, round_id, version, txids, now)
    for row in ineligible.results:
        detail = f"it was placed, and its tier is now {row['tier']}"
        one = Discrepancy(row["stx_address"], "agent_ineligible", detail, iso_time(now))
        await _record(db, row["round_id"], row["version"], [one]).run()
        found.append(FoundDiscrepancy(row["round_id"], one))
    return found


async def _compare(
    db: Database, round_id: str, version: int, txids: list[str], now: int
) -> list[FoundDiscrepancy]:
    listed = json.dumps(txids)
    captured = _by_txid((await db.prepare(_CAPTURED).bind(round_id, listed).all()).results)
    live = _by_txid((await db.prepare(_NOW).bind(listed).all()).results)
    found = []
    for txid in txids:
        differs = difference(captured.get(txid), live.get(txid))
        if differs is not None:
            found.append(Discrepancy(txid, *differs, iso_time(now)))
    await db.batch(
        [
            db.prepare(_SETTLED).bind(round_id, listed),
            _record(db, round_id, version, found),
            db.prepare(_FORGET).bind(round_id, listed),
        ]
    )
    return [FoundDiscrepancy(round_id, each) for each in found]


def _by_txid(rows: list[Row]) -> Mapping[str, Row]:
    return {row["txid"]: row for row in rows}


def _record(db: Database, round_id: str, version: int, found: list[Discrepancy]) -> Statement:
    return db.prepare(_FOUND).bind(round_id, version, compact([each.to_json() for each in found]))
