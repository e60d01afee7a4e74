"""The task `tenero` refreshes the price of every tracked token."""

from tocsin.competition.rules import floors_of
from tocsin.competition.totals import traded_tokens
from tocsin.durations import long_duration
from tocsin.prices.refresh import EMPTY_RESULT, RefreshOptions, refresh_prices
from tocsin.prices.tracked_tokens import tracked_tokens
from tocsin.scheduler.task import Task, TaskResult
from tocsin.scheduler.work_context import TaskContext
from tocsin.settings import Settings

LONG_MONTH_MS = 31 * 86_400_000


def refresh_prices_task(settings: Settings) -> Task:
    options = RefreshOptions(settings.price_jump_factor, settings.tenero_slice, floors_of(settings))

    async def run(context: TaskContext) -> TaskResult:
        tracked = tracked_tokens(await traded_tokens(context.db))
        return await refresh_prices(context, tracked, options)

    return Task(
        name="tenero",
        upstream="tenero",
        cadence_ms=settings.tenero_cadence,
        slice_ms=settings.tenero_slice,
        calls_per_run=1.0,  # one page of the list; the calls for tokens it lacks are measured
        calls_per_run_max=options.pages_max + options.singles_max,
        run=run,
        enabled=settings.tenero_enabled,
        empty_result=EMPTY_RESULT,
        why=_why(settings.tenero_cadence),
    )


def _why(cadence_ms: int) -> str:
    return (
        f"a price on the board may be {long_duration(cadence_ms)} old; one page of Tenero's list per run is"
        f" {LONG_MONTH_MS // cadence_ms:,} calls in a month of 31 days"
    )
