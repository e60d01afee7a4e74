"""What a sweep did, and how it ended: complete, partial, limited or failed. Pure."""

from dataclasses import dataclass, field

from tocsin.bindings import JSON
from tocsin.competition.codes import Code
from tocsin.competition.unit_pool import StopReason
from tocsin.competition.verify import Tally
from tocsin.scheduler.task import TaskResult
from tocsin.shapes.base import FreeForm

EMPTY_RESULT: FreeForm = {
    "way": "contracts",
    "scanned": 0,
    "contracts": 0,
    "contractsScanned": 0,
    "contractsRead": 0,
    "found": 0,
    "foundByWallets": 0,
    "inserted": 0,
    "alreadyKnown": 0,
    "pending": 0,
    "withdrawn": 0,
    "rejected": 0,
    "rejectionReasons": {},
    "failed": 0,
    "failedContracts": 0,
    "failedWallets": 0,
    "cursor": None,
}

IN_THE_LOG = "the log has the reason"


@dataclass(slots=True)
class SweepCounts:
    """What a sweep did."""

    contracts: set[str] = field(default_factory=set)  # lists asked for
    read: set[str] = field(default_factory=set)  # those of them that were read to the end
    failed_contracts: int = 0
    wallets: set[str] = field(default_factory=set)
    failed_wallets: int = 0
    unread_wallets: int = 0
    pages: int = 0
    found: int = 0
    found_by_wallets: int = 0
    unverified: int = 0  # transactions that could not be verified, except those that never can be
    cursor: str | None = None
    done: int = 0
    total: int = 0
    tally: Tally = field(default_factory=Tally)


def sweep_result(
    counts: SweepCounts,
    counters: FreeForm,
    contracts: int,
    stop: StopReason | None,
    first_failure: str | None,
) -> TaskResult:
    """Return how the sweep ended: incomplete if it could not read everything, failed if it read nothing."""
    unread = _unread(counts, contracts)
    if stop is not None and stop.limited_until is None:
        return TaskResult(counters, stop.reason, error_kind=stop.error_kind)
    if stop is None and contracts and not counts.read:
        return TaskResult(counters, f"no contract's list could be read; {first_failure or IN_THE_LOG}")
    if stop is None and not unread:
        return TaskResult(counters)
    reason = first_failure if stop is None else stop.reason
    return TaskResult(
        counters,
        limited_until=None if stop is None else stop.limited_until,
        incomplete=f"{unread or 'not everything was done'}; {reason or IN_THE_LOG}",
        by_budget=stop is not None and stop.by_budget,
        progressed=bool(counts.pages or counts.tally.inserted or counts.tally.reasons),
    )


def counters_of(counts: SweepCounts, contracts: int, threw: int) -> FreeForm:
    """Return the counters as `status()` shows them; `threw` is how often our own code failed."""
    tally = counts.tally
    reasons: dict[str, JSON] = {str(code): number for code, number in sorted(tally.reasons.items())}
    if threw:
        reasons[str(Code.VERIFY_THREW)] = threw
    return {
        "scanned": len(counts.wallets),
        "contracts": contracts,
        "contractsScanned": len(counts.contracts),
        "contractsRead": len(counts.read),
        "found": counts.found,
        "foundByWallets": counts.found_by_wallets,
        "inserted": tally.inserted,
        "alreadyKnown": tally.already_known,
        "pending": tally.pending,
        "withdrawn": tally.withdrawn,
        "rejected": tally.reasons.total() + threw,
        "rejectionReasons": reasons,
        "failed": tally.failed,
        "failedContracts": counts.failed_contracts,
        "failedWallets": counts.failed_wallets,
        "cursor": counts.cursor,
    }


def _unread(counts: SweepCounts, contracts: int) -> str:
    """Describe what the sweep left undone; empty if it did everything."""
    parts = []
    if len(counts.read) < contracts:
        parts.append(f"{len(counts.read)} of {contracts} contracts' lists were read")
    wallets = counts.failed_wallets + counts.unread_wallets
    if wallets:
        parts.append(f"{wallets} wallets' lists were not" if wallets > 1 else "one wallet's list was not")
    if counts.unverified:
        parts.append(f"transactions that could not be verified: {counts.unverified}")
    return ", ".join(parts)
