"""The block up to which the record is proven complete, from the database alone, so it also holds after a restart.

Up to that block, all of the network's list was read, no nonce of an eligible wallet is missing, and no listed
transaction waits to be verified. Transactions from before the network's list was followed were read in the lists of
contracts and wallets. Only the network's list shows every nonce; without it nothing can be proven.

The chain numbers the transactions of an account without gaps, whether it sends or sponsors them. So a nonce that was
not seen is a transaction that no list has shown. The nonces seen are kept as ranges. If everything was read, more than
one range means that a transaction between them was left out, and the wallet's own list is read at once. Once that list
was read to its end, nothing more can be learned about nonces below the newest that it showed: they are `settled`.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from holdfast.types import Database, DBResult, Statement
from tocsin.scheduler.types import Completeness
from tocsin.sql import read_queries
from tocsin.stacks import Transaction
from tocsin.swaps.position import FAILURES_MAX, FeedState, load_state
from tocsin.swaps.rules import Rules
from tocsin.text import utc_time

RANGES_MAX = 500  # of one wallet; ranges dropped beyond that count as missing
FAILING_WAIT_MS = 3_600_000  # between two attempts at a list that keeps failing
SWITCHED_OFF = (
    "the feed does not run (it needs TOCSIN_FEED_ENABLED and TOCSIN_SWEEP_ENABLED),"
    " and the sweep alone cannot tell what a list leaves out"
)
SQL = read_queries(__file__)


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


def seen_in(rows: Iterable[Transaction], wallets: Collection[str]) -> dict[str, list[tuple[int, int]]]:
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
            encoded = json.dumps([[each.low, each.high, each.block] for each in ranges])
            rows.append([wallet, encoded, missing(ranges), above])
    return [db.prepare(SQL["save_nonces"]).bind(json.dumps(rows))] if rows else []


async def lacking(db: Database, limit: int, now: int) -> dict[str, int]:
    """Return eligible wallets with missing nonces, and how many. Wallets whose list keeps failing appear rarely."""
    rows = (
        await db.prepare(SQL["wallets_with_missing_nonces"]).bind(FAILURES_MAX, now - FAILING_WAIT_MS, limit).all()
    ).results
    return {row["wallet"]: row["missing"] for row in rows}


def forget_all(db: Database) -> Statement:
    """Forget all nonces: after an unread stretch, those seen before it prove nothing."""
    return db.prepare(SQL["forget_nonces"])


async def _load(db: Database, wallets: Sequence[str]) -> dict[str, Ranges]:
    rows = (await db.prepare(SQL["nonces_of"]).bind(json.dumps(wallets)).all()).results
    return {row["wallet"]: tuple(NonceRange(*each) for each in json.loads(row["ranges_json"])) for row in rows}


@dataclass(frozen=True, slots=True)
class Proof:
    """What proves that the record is complete, besides the network's list. A block is None where nothing limits it."""

    rests: bool  # all contracts' lists were read since the network's list is followed, and all wallets' once
    missing_nonces: int
    nonces_until: int | None  # the last block below the first missing nonce
    unverified: int
    verified_until: int | None  # the last block below the first transaction that waits to be verified
    unread_wallets: int = 0  # eligible ones whose own list was never read

    def completeness(self, state: FeedState) -> Completeness:
        """Return the block up to which the record is proven complete, and what keeps it from being the newest one."""
        return Completeness(self.until_block(state), state.complete_at, self.missing_nonces, self._obstacle(state))

    def until_block(self, state: FeedState) -> int | None:
        """Return the block up to which the record is proven complete; None if nothing is proven."""
        read = state.position.complete_block
        if state.source != "network" or not self.rests or read is None:
            return None
        limits = [block for block in (self.nonces_until, self.verified_until) if block is not None]
        block = min([read, *limits])
        return block if block > 0 else None

    def _obstacle(self, state: FeedState) -> str | None:
        if state.source != "network":
            return f"the network's list is not followed: {state.reason}"
        if state.started_at is None:
            return "the network's list was not read yet"
        if not self.rests:
            return "not all lists of contracts and wallets were read yet"
        parts = []
        if state.position.gaps or state.looked_at is None:
            parts.append("a part of the network's list is unread")
        elif state.complete_at != state.looked_at and state.newest_s is not None:
            parts.append(f"the newest block that Hiro lists is of {utc_time(state.newest_s * 1000)}")
        if self.missing_nonces:
            parts.append(f"transactions of eligible wallets that no list has shown: {self.missing_nonces}")
        if self.unverified:
            parts.append(f"transactions that wait to be verified: {self.unverified}")
        return ", ".join(parts) or None


def ask_for_proof(db: Database) -> list[Statement]:
    """Return the queries whose results `read_proof` reads; a caller can add its own to the batch."""
    return [db.prepare(SQL["missing_nonces"]), db.prepare(SQL["unverified"]), db.prepare(SQL["unread_wallets"])]


def read_proof(answers: Sequence[DBResult], state: FeedState, rules: Rules) -> Proof:
    (missing,), (unverified,), (unread,) = (answer.results for answer in answers)
    lowest = unverified["block"]
    return Proof(
        rests=state.rests_on == rules.version and not unread["n"],
        missing_nonces=missing["missing"],
        nonces_until=missing["block"],
        unverified=unverified["count"],
        verified_until=None if lowest is None else lowest - 1,
        unread_wallets=unread["n"],
    )


async def load_proof(db: Database, state: FeedState, rules: Rules) -> Proof:
    return read_proof(await db.batch(ask_for_proof(db)), state, rules)


async def completeness(db: Database, rules: Rules, *, feed_runs: bool) -> Completeness:
    """Read the current completeness. `feed_runs`: whether there is a task that follows the network's list."""
    if not feed_runs:
        return Completeness(None, None, None, SWITCHED_OFF)
    state = await load_state(db)
    return (await load_proof(db, state, rules)).completeness(state)
