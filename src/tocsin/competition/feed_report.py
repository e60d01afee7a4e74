"""What a run of the feed did, and how it ended. Pure."""

from dataclasses import dataclass, field

from tocsin.bindings import JSON
from tocsin.competition.codes import Code
from tocsin.competition.feed_state import FeedState
from tocsin.competition.proven_block import ProofFacts, proven_block
from tocsin.competition.unit_pool import StopReason
from tocsin.competition.verify import Tally
from tocsin.durations import short_duration
from tocsin.scheduler.task import TaskResult
from tocsin.shapes.base import FreeForm

LASTING = ("Unauthorised", "Gone")  # answers that do not change by themselves

EMPTY_RESULT: FreeForm = {
    "way": "network",
    "reason": "",
    "pages": 0,
    "transactions": 0,
    "found": 0,
    "inserted": 0,
    "alreadyKnown": 0,
    "pending": 0,
    "withdrawn": 0,
    "rejected": 0,
    "rejectionReasons": {},
    "failed": 0,
    "visited": 0,
    "missingNonces": 0,
    "completeUntilBlock": None,
    "blocksBehind": 0,
    "transactionsPerDay": None,
}


@dataclass(slots=True)
class FeedCounts:
    """What a run did."""

    pages: int = 0
    transactions: int = 0
    found: int = 0
    refused: dict[str, Code] = field(default_factory=dict)
    visited: int = 0
    failed_visits: int = 0
    facts: ProofFacts | None = None  # None: nothing is proven
    old_block_age_ms: int | None = None  # if the newest block in the list is too old
    unverified: int = 0
    verified: int = 0  # whatever they turned out to be


def feed_counters(counts: FeedCounts, state: FeedState, tally: Tally, threw: int) -> FreeForm:
    """Return the counters as `status()` shows them; `threw` is how often our own code failed."""
    codes = tally.reasons.copy()
    codes.update(code for code in counts.refused.values() if code is not Code.CONTRACT_NOT_ALLOWLISTED)
    reasons: dict[str, JSON] = {str(code): number for code, number in sorted(codes.items())}
    if threw:
        reasons[str(Code.VERIFY_THREW)] = threw
    return {
        "way": state.way,
        "reason": state.reason,
        "pages": counts.pages,
        "transactions": counts.transactions,
        "found": counts.found,
        "inserted": tally.inserted,
        "alreadyKnown": tally.already_known,
        "pending": tally.pending,
        "withdrawn": tally.withdrawn,
        "rejected": codes.total() + threw,
        "rejectionReasons": reasons,
        "failed": tally.failed,
        "visited": counts.visited,
        "missingNonces": 0 if counts.facts is None else counts.facts.missing_nonces,
        "completeUntilBlock": None if counts.facts is None else proven_block(state, counts.facts),
        "blocksBehind": blocks_behind(state),
        "transactionsPerDay": None if state.traffic is None else state.traffic.per_day,
    }


def blocks_behind(state: FeedState) -> int:
    """Return the number of blocks between the newest one seen and the one up to which everything was read."""
    top, complete = state.mark.top_block, state.mark.complete_block
    return 0 if state.way != "network" or top is None or complete is None else top - complete


def feed_result(
    counts: FeedCounts,
    counters: FreeForm,
    state: FeedState,
    stop: StopReason | None,
    first_failure: str | None,
) -> TaskResult:
    """Return how the run ended: incomplete if it left something unread, failed if the upstream refuses it for good."""
    if stop is not None and stop.error_kind in LASTING:
        return TaskResult(counters, stop.reason, error_kind=stop.error_kind)
    undone = _undone(counts, state)
    if stop is None and not undone:
        return (
            TaskResult(counters) if first_failure is None else TaskResult(counters, incomplete=first_failure)
        )
    reason = first_failure if stop is None else stop.reason
    return TaskResult(
        counters,
        limited_until=None if stop is None else stop.limited_until,
        incomplete="; ".join(part for part in (undone or "not everything was done", reason) if part),
        by_budget=stop is not None and stop.by_budget,
        progressed=bool(counts.pages or counts.verified),
    )


def _undone(counts: FeedCounts, state: FeedState) -> str:
    """Describe what is left to do; empty when everything was done."""
    parts = []
    if counts.old_block_age_ms is not None:
        parts.append(f"Hiro's newest block is {short_duration(counts.old_block_age_ms)} old")
    if state.mark.gaps:
        parts.append(
            f"the network's list is read up to block {state.mark.complete_block},"
            f" {blocks_behind(state):,} blocks behind"
        )
    if counts.failed_visits:
        parts.append(f"wallets whose list could not be read: {counts.failed_visits}")
    if counts.unverified:
        parts.append(f"transactions that could not be verified: {counts.unverified}")
    return ", ".join(parts)
