"""The block up to which the record is proven complete, from the database alone, so it also holds after a restart.

Up to that block, all of the network's list was read, no nonce of an eligible wallet is missing, and no listed
transaction waits to be verified. Transactions from before the network's list was followed were read in the lists of
contracts and wallets. Only the network's list shows every nonce; without it nothing can be proven.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.types import Database, DBResult, Statement
from tocsin.scheduler.types import Completeness
from tocsin.swaps import nonces
from tocsin.swaps import store as swap_store
from tocsin.swaps.feed_state import FeedState, load_state
from tocsin.swaps.rules import Rules
from tocsin.text import utc_time

SWITCHED_OFF = (
    "the feed does not run (it needs TOCSIN_FEED_ENABLED and TOCSIN_SWEEP_ENABLED),"
    " and the sweep alone cannot tell what a list leaves out"
)

_NEVER_READ = """
SELECT 1 FROM agent_tiers t LEFT JOIN marks m ON m.principal = t.stx_address
WHERE t.tier = 'eligible' AND m.walked_at IS NULL LIMIT 1"""


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
    return [nonces.proof(db), swap_store.unverified(db), db.prepare(_NEVER_READ)]


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
