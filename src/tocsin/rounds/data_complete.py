"""Decides from the database whether everything that happened in a round is recorded.

The chain must have been read completely after the grace ended: by a look at the network's list that left nothing unread
and showed a block from after the grace, or by a sweep of all contracts' lists under the current rules. Reading a list
continues where it stopped, so the transactions of a wallet from before its registration are only in its own list: that
must have been read once. No listed transaction of the round may wait to be verified, including those whose sender has
become eligible since.
"""

from dataclasses import dataclass, replace

from holdfast.types import Database
from tocsin.rounds.round import RoundRules
from tocsin.sql import read_queries
from tocsin.swaps.position import FEED_KEY, FeedState, ask_for_values, state_of
from tocsin.swaps.proof import Proof, ask_for_proof, read_proof
from tocsin.swaps.rules import Rules
from tocsin.swaps.sweep import RULES, SWEPT_AT
from tocsin.text import utc_time

SQL = read_queries(__file__)

# Burn block times are not in order: a later block may have an earlier time, but not by more than this.
UNORDERED_S = 7_200


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """How far the chain was read."""

    feed: FeedState  # how the network's list is followed
    swept_at: int | None  # when the newest complete sweep began (unix ms)
    proof: Proof
    unverified: int  # transactions that may lie within the round and wait to be verified
    block_after: int | None  # a block that certainly lies after the round
    rules_version: str = ""  # of the rules in force
    swept_rules: str | None = None  # the version that sweeps have applied to what was recorded before

    @property
    def proven_block(self) -> int | None:
        return self.proof.until_block(self.feed)


async def load_record(db: Database, rules: Rules, round_: RoundRules, now: int, *, feed_runs: bool) -> RoundRecord:
    """Read the record at one instant. `feed_runs`: whether there is a task that follows the network's list.

    A time in the future was written while the clock was ahead. It proves nothing.
    """
    outside = (round_.starts_at - UNORDERED_S, round_.ends_at + UNORDERED_S)
    kept, of_round, eligible_now, *proof = await db.batch(
        [
            ask_for_values(db, FEED_KEY, SWEPT_AT, RULES),
            db.prepare(SQL["blocks_and_unverified"]).bind(*outside),
            db.prepare(SQL["eligible_since"]).bind(round_.starts_at, round_.ends_at),
            *ask_for_proof(db),
        ]
    )
    values, waiting = {row["key"]: row["value"] for row in kept.results}, of_round.results[0]
    feed = state_of(values.get(FEED_KEY)) if feed_runs else FeedState(source="contracts")
    if (feed.complete_at or 0) > now:
        feed = replace(feed, complete_at=None)
    swept_at = int(values.get(SWEPT_AT, 0))
    return RoundRecord(
        feed,
        swept_at if 0 < swept_at <= now else None,
        read_proof(proof, feed, rules),
        waiting["unverified"] + eligible_now.results[0]["n"],
        waiting["block_after"],
        rules.version,
        values.get(RULES),
    )


def _is_followed(rules: RoundRules, record: RoundRecord) -> bool:
    """Return whether the network's list was read since the grace ended. Until it shows a later block, it may lag."""
    feed, ended_s = record.feed, rules.grace_ends_at
    shows = feed.newest_s is None or feed.newest_s >= ended_s
    return feed.source == "network" and (feed.complete_at or 0) >= ended_s * 1000 and shows


def incomplete_because(rules: RoundRules, record: RoundRecord) -> str | None:
    """Return why the record of a round is incomplete; None if it is complete."""
    by_feed, by_sweep = _is_followed(rules, record), (record.swept_at or 0) >= rules.grace_ends_at * 1000
    if not by_feed and not by_sweep:
        return f"the chain was not read completely since the grace ended ({utc_time(rules.grace_ends_at * 1000)})"
    rests_on_others = not by_sweep and record.feed.rests_on not in {None, record.rules_version}
    if rests_on_others or record.swept_rules != record.rules_version:
        return "the allow-list or the dates have changed, and the contracts' lists were not read again yet"
    if record.proof.unread_wallets:
        return f"wallets that have become eligible, and whose lists were not read yet: {record.proof.unread_wallets}"
    if not record.proof.rests and not by_sweep:
        return "not all contracts' lists were read since the network's list is followed"
    return _unrecorded_because(record)


def _unrecorded_because(record: RoundRecord) -> str | None:
    """Return which transactions were listed, or must exist, and are not recorded."""
    if record.unverified:
        return f"transactions that wait to be verified: {record.unverified}"
    if record.feed.source == "network" and record.proof.missing_nonces and not _lie_after(record):
        return f"transactions of eligible wallets that no list has shown: {record.proof.missing_nonces}"
    return None


def _lie_after(record: RoundRecord) -> bool:
    """Return whether all missing transactions certainly lie after the round."""
    until, after = record.proof.nonces_until, record.block_after
    return until is not None and after is not None and until >= after - 1
