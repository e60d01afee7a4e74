"""The task `sweep` finds and verifies the competition's swaps."""

from tocsin.competition.rules import Rules, rules_of
from tocsin.competition.sweep import sweep
from tocsin.competition.sweep_report import EMPTY_RESULT
from tocsin.durations import long_duration
from tocsin.scheduler.task import Task, TaskResult
from tocsin.scheduler.work_context import TaskContext
from tocsin.settings import Settings

MONTH_MS = 30 * 86_400_000
OTHER_CALLS = 6.0  # per run, in addition to one per contract: wallets' lists, new and pending swaps


def sweep_task(settings: Settings, rules: Rules | None = None) -> Task:
    """The task under the rules of the settings, or under the given rules."""
    in_force = rules_of(settings) if rules is None else rules
    cadence_ms, contracts = settings.sweep_cadence, len(in_force.allowlist.contracts)
    feed_ms = settings.feed_cadence if settings.feed_enabled else None

    async def run(context: TaskContext) -> TaskResult:
        return await sweep(context, in_force, cadence_ms=cadence_ms, feed_ms=feed_ms)

    return Task(
        name="sweep",
        upstream="hiro",
        cadence_ms=cadence_ms,
        slice_ms=settings.sweep_slice,
        calls_per_run=OTHER_CALLS if settings.feed_enabled else contracts + OTHER_CALLS,
        calls_per_run_max=contracts + OTHER_CALLS,
        run=run,
        enabled=settings.sweep_enabled,
        empty_result={**EMPTY_RESULT, "contracts": contracts},
        why=_why(cadence_ms, contracts, with_feed=settings.feed_enabled),
    )


def _why(cadence_ms: int, contracts: int, *, with_feed: bool) -> str:
    if with_feed:
        return (
            f"the feed finds the swaps; one list per run, in turn, is {MONTH_MS // cadence_ms:,} calls in 30 days,"
            f" and all {contracts} contracts' lists are read if the feed does not find the swaps"
        )
    return (
        f"a swap is on the board within {long_duration(cadence_ms)} of its block; one list for each of"
        f" {contracts} contracts per run is {contracts * MONTH_MS // cadence_ms:,} calls in 30 days"
    )
