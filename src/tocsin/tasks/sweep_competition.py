"""The competition sweep as a task: every fifteen minutes, find and settle swaps.

Fifteen minutes is the cadence that a month of 150,000 calls affords: forty lists, 96 times a day, are 117,000
of them, which leaves room for what they show and for the wallets' lap. It bounds the time from a block to the
board.
"""

from collections.abc import Mapping

from tocsin.bindings import JSON
from tocsin.competition.rules import Rules
from tocsin.competition.sweep import Sweep
from tocsin.scheduler.task import Outcome, Task, TaskContext

CADENCE_MS = 15 * 60_000
SLICE_MS = 10 * 60_000
EMPTY_RESULT: Mapping[str, JSON] = {
    "scanned": 0,
    "contractsScanned": 0,
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
OTHER_CALLS = 6.0  # of a run, beside one per contract: wallets of the lap, new swaps, pending ones


def sweep_task(
    rules: Rules, *, cadence_ms: int = CADENCE_MS, slice_ms: int = SLICE_MS, enabled: bool = True
) -> Task:
    """The task `sweep` under these rules."""

    async def run(context: TaskContext) -> Outcome:
        sweep = Sweep(context, rules, cadence_ms=cadence_ms)
        await sweep.run()
        ending = sweep.ending
        return Outcome(sweep.result(), ending.error, ending.limited_until, ending.error_class)

    return Task(
        name="sweep",
        upstream="hiro",
        cadence_ms=cadence_ms,
        slice_ms=slice_ms,
        calls_per_run=len(rules.allowlist.contracts) + OTHER_CALLS,
        run=run,
        enabled=enabled,
        empty_result=EMPTY_RESULT,
        why="one list per contract and sweep is what a month of 150,000 calls affords",
    )
