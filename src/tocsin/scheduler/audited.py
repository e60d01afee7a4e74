"""Does an action of an operator and records it, before it is done and when it has ended.

An action that cannot be recorded is not done: the caller gets the store's error instead. If only its end cannot be
recorded, its record stays `begun`, and `audit.end_failed` in the log shows the outcome.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from tocsin.bindings import Logger
from tocsin.errors import RequestRefused, TocsinError, UsageError
from tocsin.scheduler.scheduler_client import SchedulerClient
from tocsin.shapes.operators import AuditEntry, AuditOutcome

T = TypeVar("T")


async def audited(
    scheduler: Callable[[], SchedulerClient],
    logger: Logger,
    entry: AuditEntry,
    work: Callable[[], Awaitable[T]],
    detail_of: Callable[[T], str | None],
) -> T:
    """Do `work`, record it, and return its result. `detail_of` describes the result in a few words."""
    record_id = await scheduler().audit_begin(entry)

    async def end(outcome: AuditOutcome, detail: str | None) -> None:
        try:
            await scheduler().audit_end(record_id, outcome, detail)
        except TocsinError as error:
            logger.error(  # noqa: TRY400 - our Logger has no `exception`
                "audit.end_failed",
                record=record_id,
                action=entry.action,
                key=entry.key,
                outcome=outcome,
                error=str(error)[:300],
            )

    try:
        result = await work()
    except Exception as error:
        is_refused = isinstance(error, UsageError) or (
            isinstance(error, RequestRefused) and error.status < 500
        )
        await end("refused" if is_refused else "failed", f"{error}" or type(error).__name__)
        raise
    await end("done", detail_of(result))
    return result
