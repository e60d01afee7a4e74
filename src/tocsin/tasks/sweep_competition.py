"""The competition sweep as a task: every fifteen minutes, find and settle swaps.

Fifteen minutes is the cadence that a month of 150,000 calls affords: forty lists, 96 times a day, are 117,000
of them, which leaves room for what they show and for the wallets' lap. It bounds the time from a block to the
board.
"""

from tocsin.competition.rules import Rules
from tocsin.competition.sweep import Sweep
from tocsin.scheduler.task import Outcome, Task, TaskContext

CADENCE_MS = 15 * 60_000
SLICE_MS = 10 * 60_000
OTHER_CALLS = 6.0  # of a run, beside one per contract: wallets of the lap, new swaps, pending ones


def sweep_task(
    rules: Rules, *, cadence_ms: int = CADENCE_MS, slice_ms: int = SLICE_MS, enabled: bool = True
) -> Task:
    """The task `sweep` under these rules."""

    async def run(context: TaskContext) -> Outcome:
        sweep = Sweep(context, rules, cadence_ms=cadence_ms)
        await sweep.run()
        ending = sweep.ending
        return Outcome(sweep.result(), ending.error, ending.limited_until)

    return Task(
        name="sweep",
        upstream="hiro",
        cadence_ms=cadence_ms,
        slice_ms=slice_ms,
        calls_per_run=len(rules.allowlist.contracts) + OTHER_CALLS,
        run=run,
        enabled=enabled,
        why="one list per contract and sweep is what a month of 150,000 calls affords",
    )
