"""The task `feed` follows the network's list of transactions. It exists unless the settings switch it off."""

from tocsin.competition.feed import PAGES_MAX, follow_network
from tocsin.competition.feed_report import EMPTY_RESULT
from tocsin.competition.rules import Rules, rules_of
from tocsin.durations import long_duration
from tocsin.scheduler.task import Task, TaskResult
from tocsin.scheduler.work_context import TaskContext
from tocsin.settings import Settings

MONTH_MS = 30 * 86_400_000
LONGEST_RUN_MS = 240_000
OVERDUE_SWEEPS = 2  # by then a swap is as late as it would be without the feed


def follow_network_tasks(settings: Settings, rules: Rules | None = None) -> tuple[Task, ...]:
    """The task under the rules of the settings, or under the given rules; empty if it is switched off."""
    if not (settings.feed_enabled and settings.sweep_enabled):
        return ()
    in_force = rules_of(settings) if rules is None else rules
    cadence_ms, sweep_ms = settings.feed_cadence, settings.sweep_cadence

    async def run(context: TaskContext) -> TaskResult:
        return await follow_network(
            context, in_force, sweep_ms=sweep_ms, block_age_max_ms=settings.block_age_max
        )

    task = Task(
        name="feed",
        upstream="hiro",
        cadence_ms=cadence_ms,
        slice_ms=min(LONGEST_RUN_MS, cadence_ms * 5 // 6),
        calls_per_run=1.0,  # one page; the calls that verify swaps are measured
        calls_per_run_max=float(PAGES_MAX),
        run=run,
        overdue_after_ms=OVERDUE_SWEEPS * sweep_ms,
        empty_result=EMPTY_RESULT,
        why=_why(cadence_ms),
    )
    return (task,)


def _why(cadence_ms: int) -> str:
    return (
        f"a swap is on the board within {long_duration(cadence_ms)} of its block; one page of the network's"
        f" list per run is at most {MONTH_MS // cadence_ms:,} calls in 30 days, and more only for swaps"
    )
