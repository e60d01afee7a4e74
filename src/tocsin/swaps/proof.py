"""The block up to which the record is proven complete, from the database alone, so it also holds after a restart.

Up to that block, all of the network's list was read, no nonce of an eligible wallet is missing, and no listed
transaction waits to be verified. Transactions from before the network's list was followed were read in the lists of
contracts and wallets. Only the network's list shows every nonce; without it nothing can be proven.

Tracks which nonces of each wallet were seen: a missing one is a transaction that no list has shown.

The chain numbers the transactions of an account without gaps, whether it sends or sponsors them. The nonces seen are
kept as ranges. If everything was read, more than one range means that a transaction between them was left out, and
the wallet's own list is read at once. Once that list was read to its end, nothing more can be learned about nonces
below the newest that it showed: they are `settled`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from holdfast.types import Database, DBResult, Statement
from tocsin.scheduler.types import Completeness
from tocsin.stacks import Transaction
from tocsin.swaps import store as swap_store
from tocsin.swaps.feed_state import FeedState, load_state
from tocsin.swaps.rules import Rules
from tocsin.swaps.walk import FAILURES_MAX
from tocsin.text import utc_time

RANGES_MAX = 500  # of one wallet; ranges dropped beyond that count as missing
FAILING_WAIT_MS = 3_600_000  # between two attempts at a list that keeps failing
_LOAD = "SELECT wallet, ranges_json FROM nonces WHERE wallet IN (SELECT value FROM json_each(?))"
_SAVE = """
INSERT INTO nonces (wallet, ranges_json, missing, missing_above)
SELECT json_extract(n.value, '$[0]'), json_extract(n.value, '$[1]'), json_extract(n.value, '$[2]'),
  json_extract(n.value, '$[3]')
FROM json_each(?) n
WHERE true
ON CONFLICT (wallet) DO UPDATE SET ranges_json = excluded.ranges_json, missing = excluded.missing,
  missing_above = excluded.missing_above"""
_LACKING = """
SELECT n.wallet, n.missing FROM nonces n JOIN agent_tiers t ON t.stx_address = n.wallet AND t.tier = 'eligible'
LEFT JOIN marks m ON m.principal = n.wallet
WHERE n.missing > 0 AND (coalesce(m.failures, 0) < ? OR m.tried_at <= ?) ORDER BY n.missing_above LIMIT ?"""
_PROOF = """
SELECT coalesce(sum(n.missing), 0) AS missing, min(n.missing_above) - 1 AS block
FROM nonces n JOIN agent_tiers t ON t.stx_address = n.wallet AND t.tier = 'eligible' WHERE n.missing > 0"""
_FORGET = "DELETE FROM nonces"
SWITCHED_OFF = (
    "the feed does not run (it needs TOCSIN_FEED_ENABLED and TOCSIN_SWEEP_ENABLED),"
    " and the sweep alone cannot tell what a list leaves out"
)
_NEVER_READ = """
SELECT 1 FROM agent_tiers t LEFT JOIN marks m ON m.principal = t.stx_address
WHERE t.tier = 'eligible' AND m.walked_at IS NULL LIMIT 1"""


@dataclass(frozen=True, slots=True)
class NonceRange:
    """Nonces that were all seen. `block` is the height of the highest one's block."""

    low: int
    high: int
    block: int


Ranges = tuple[NonceRange, ...]  # in order, with at least one nonce missing between any two


def add_seen(ranges: Ranges, nonce: int, block: int) -> Ranges:
    """Return the ranges with one more nonce. They never include one that was not seen."""
    joined = NonceRange(nonce, nonce, block)
    kept = []
    for each in ranges:
        if each.high + 1 < joined.low or joined.high + 1 < each.low:
            kept.append(each)
        else:
            highest = max(joined, each, key=lambda part: part.high)  # seen again, it may be in another block
            joined = NonceRange(min(each.low, joined.low), highest.high, highest.block)
    ordered = sorted((*kept, joined), key=lambda each: each.low)
    if len(ordered) > RANGES_MAX:
        del ordered[1]  # keep the lowest: it shows from which block on something is missing
    return tuple(ordered)


def settled(ranges: Ranges, shown: int) -> Ranges:
    """Merge all ranges that begin below the highest nonce that the wallet's own list shows.

    Nonces missing there are not in that list either. Nonces above it may still appear: the list may lag.
    """
    below = [each for each in ranges if each.low <= shown]
    if not below:
        return ranges
    return (NonceRange(below[0].low, below[-1].high, below[-1].block), *ranges[len(below) :])


def missing(ranges: Ranges) -> int:
    """Return how many nonces are missing between the lowest and the highest."""
    return sum(higher.low - lower.high - 1 for lower, higher in pairwise(ranges))


def seen_in(rows: Iterable[Transaction], wallets: Mapping[str, object]) -> dict[str, list[tuple[int, int]]]:
    """Return the nonces that these wallets used in these transactions, each with its block."""
    seen: dict[str, list[tuple[int, int]]] = {}
    for row in rows:
        for used in row.nonces:
            if used.account in wallets and row.mined is not None:
                seen.setdefault(used.account, []).append((used.nonce, row.mined.height))
    return seen


async def record_seen(
    db: Database, seen: Mapping[str, Sequence[tuple[int, int]]], *, shown: int | None = None
) -> list[Statement]:
    """Add the nonces seen. `shown` is the highest nonce of a wallet whose own list was read to its end."""
    if not seen:
        return []
    known = await _load(db, list(seen))
    rows = []
    for wallet, nonces in seen.items():
        ranges = known.get(wallet, ())
        for nonce, block in nonces:
            ranges = add_seen(ranges, nonce, block)
        if shown is not None:
            ranges = settled(ranges, shown)
        if ranges != known.get(wallet, ()):
            above = ranges[0].block if len(ranges) > 1 else None
            rows.append([wallet, _encoded(ranges), missing(ranges), above])
    return [db.prepare(_SAVE).bind(json.dumps(rows))] if rows else []


async def lacking(db: Database, limit: int, now: int) -> dict[str, int]:
    """Return eligible wallets with missing nonces, and how many. Wallets whose list keeps failing appear rarely."""
    rows = (await db.prepare(_LACKING).bind(FAILURES_MAX, now - FAILING_WAIT_MS, limit).all()).results
    return {row["wallet"]: row["missing"] for row in rows}


def proof(db: Database) -> Statement:
    """One row: how many nonces of eligible wallets are `missing`, and the `block` up to which none is, or NULL."""
    return db.prepare(_PROOF)


def forget_all(db: Database) -> Statement:
    """Forget all nonces: after an unread stretch, those seen before it prove nothing."""
    return db.prepare(_FORGET)


async def _load(db: Database, wallets: Sequence[str]) -> dict[str, Ranges]:
    rows = (await db.prepare(_LOAD).bind(json.dumps(wallets)).all()).results
    return {row["wallet"]: _decoded(row["ranges_json"]) for row in rows}


def _encoded(ranges: Ranges) -> str:
    return json.dumps([[each.low, each.high, each.block] for each in ranges])


def _decoded(text: str) -> Ranges:
    return tuple(NonceRange(*each) for each in json.loads(text))


@dataclass(frozen=True, slots=True)
class ProofFacts:
    """The facts of the proof, except how far the network's list was read. A block is None where nothing limits it."""

    rests: bool  # all contracts' lists were read since the network's list is followed, and all wallets' once
    missing_nonces: int
    nonces_until: int | None  # the last block below the first missing nonce
    unverified: int
    verified_until: int | None  # the last block below the first transaction that waits to be verified


def ask_for_facts(db: Database) -> list[Statement]:
    """Return the queries whose results `facts_of` reads; a caller can add its own to the batch."""
    return [proof(db), swap_store.unverified(db), db.prepare(_NEVER_READ)]


def facts_of(answers: Sequence[DBResult], state: FeedState, rules: Rules) -> ProofFacts:
    (missing,), (unverified,), never_read = (answer.results for answer in answers)
    lowest = unverified["block"]
    return ProofFacts(
        rests=state.rests_on == rules.version and not never_read,
        missing_nonces=missing["missing"],
        nonces_until=missing["block"],
        unverified=unverified["count"],
        verified_until=None if lowest is None else lowest - 1,
    )


async def load_facts(db: Database, state: FeedState, rules: Rules) -> ProofFacts:
    return facts_of(await db.batch(ask_for_facts(db)), state, rules)


def proven_block(state: FeedState, facts: ProofFacts) -> int | None:
    """Return the block up to which the record is proven complete; None if nothing is proven."""
    read = state.mark.complete_block
    if state.way != "network" or not facts.rests or read is None:
        return None
    limits = [block for block in (facts.nonces_until, facts.verified_until) if block is not None]
    block = min([read, *limits])
    return block if block > 0 else None


def completeness_of(state: FeedState, facts: ProofFacts) -> Completeness:
    """Return the block, and what keeps it from being the newest one."""
    return Completeness(proven_block(state, facts), state.complete_at, facts.missing_nonces, _obstacle(state, facts))


def _obstacle(state: FeedState, facts: ProofFacts) -> str | None:
    if state.way != "network":
        return f"the network's list is not followed: {state.reason}"
    if state.started_at is None:
        return "the network's list was not read yet"
    if not facts.rests:
        return "not all lists of contracts and wallets were read yet"
    parts = []
    if state.mark.gaps or state.looked_at is None:
        parts.append("a part of the network's list is unread")
    elif state.complete_at != state.looked_at and state.newest_s is not None:
        parts.append(f"the newest block that Hiro lists is of {utc_time(state.newest_s * 1000)}")
    if facts.missing_nonces:
        parts.append(f"transactions of eligible wallets that no list has shown: {facts.missing_nonces}")
    if facts.unverified:
        parts.append(f"transactions that wait to be verified: {facts.unverified}")
    return ", ".join(parts) or None


async def completeness(db: Database, rules: Rules, *, feed_runs: bool) -> Completeness:
    """Read the current completeness. `feed_runs`: whether there is a task that follows the network's list."""
    if not feed_runs:
        return Completeness(None, None, None, SWITCHED_OFF)
    state = await load_state(db)
    return completeness_of(state, await load_facts(db, state, rules))
