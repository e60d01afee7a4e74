"""Statuses, runs and budgets of a scheduler, with sensible defaults: the one place where tests build them.

Each builder takes the fields that a test cares about as keywords.
"""

from dataclasses import replace
from typing import Any

from holdfast.testing.virtual_time import START_MS
from tocsin.scheduler.health import HealthSnapshot
from tocsin.scheduler.types import LastError, RefreshResult, RefreshRun, RunRecord, Status, TaskStatus
from tocsin.shape import FreeForm
from tocsin.upstream.budget import (
    BudgetForecast,
    BudgetStatus,
    CallsLeft,
    Quota,
    ReportedLimits,
    SpentCalls,
    WaitingCallers,
)

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR

HIRO_503 = LastError("TaskFailed", "hiro said 503", START_MS - MINUTE)
PRICES_RESULT: FreeForm = {"tokensAttempted": 9, "succeeded": 9, "failed": 0}
SWEEP_RESULT: FreeForm = {"scanned": 430, "found": 12, "inserted": 11, "failedWallets": 0}


def task_status(**changes: Any) -> TaskStatus:
    """An enabled task that is on time."""
    status = TaskStatus(
        enabled=True,
        upstream="tenero",
        cadence_ms=5 * MINUTE,
        effective_cadence_ms=5 * MINUTE,
        cadence_reason="as configured: the plan allows it",
        cadence_why="prices move; five minutes is fresh enough for a board",
        slice_ms=4 * MINUTE,
        next_due_at=START_MS + MINUTE,
        running=None,
        last_success_at=START_MS - 4 * MINUTE,
        last_error=None,
        missed_slots=0,
        run_counts={},
        overdue=False,
        failing=False,
        condition="ok",
        sentence="tenero completed a run 4m ago",
        problem=None,
    )
    return replace(status, **changes)


def budget_status(*, minute: tuple[int, int | None], month: tuple[int, int | None], **changes: Any) -> BudgetStatus:
    """Return a budget with calls spent in this minute and this month; a limit may be None."""
    quota = Quota(second=None, minute=minute[1], month=month[1], request_share=0.1)
    left = None if month[1] is None else month[1] - month[0]
    status = BudgetStatus(
        plan=quota,
        limits=quota,
        spent=SpentCalls(second=0, minute=minute[0], month=month[0], month_by_others=0),
        left=CallsLeft(left, None if left is None else left - left // 10),
        reported=ReportedLimits(
            minute_remaining=None if minute[1] is None else minute[1] - minute[0], month_remaining=None, anonymous=False
        ),
        month_ends_at=START_MS + 16 * DAY,
        closed_until=None,
        in_flight=0,
        waiting=WaitingCallers(task=0, request=0),
    )
    return replace(status, **changes)


def scheduler_status(**changes: Any) -> Status:
    """Two tasks: `tenero` is on time, `sweep` failed twice and is held back."""
    status = Status(
        name="v1",
        active=True,
        now=START_MS,
        next_alarm_at=START_MS + MINUTE,
        paused_until=None,
        pause_max_ms=7 * DAY,
        consecutive_failures={"tenero": 0, "sweep": 2},
        next_run_after={"tenero": None, "sweep": START_MS + 90_000},
        tasks={
            "tenero": task_status(),
            "sweep": task_status(
                upstream="hiro",
                cadence_ms=15 * MINUTE,
                effective_cadence_ms=15 * MINUTE,
                cadence_why="a swap shows up within a quarter of an hour",
                slice_ms=14 * MINUTE,
                last_error=HIRO_503,
            ),
        },
        budgets={
            "tenero": budget_status(
                minute=(6, 100), month=(1_789, 50_000), forecast=BudgetForecast(START_MS - DAY, 82, 3_100, None)
            ),
            "hiro": budget_status(minute=(48, 500), month=(61_950, None)),
        },
        last_run_at={"tenero": START_MS - 4 * MINUTE, "sweep": START_MS - 14 * MINUTE},
        last_result={
            "tenero": {**PRICES_RESULT, "startedAt": START_MS - 4 * MINUTE, "durationMs": 210},
            "sweep": {**SWEEP_RESULT, "startedAt": START_MS - 14 * MINUTE, "durationMs": 2_140},
        },
    )
    return replace(status, **changes)


HEALTHY = HealthSnapshot(loop_tick_age_s=0.1, store_error=None, status=scheduler_status())


def run_record(**changes: Any) -> RunRecord:
    """A run of `tenero` that was started by the alarm and ended well."""
    started_at = changes.get("started_at", START_MS)
    record = RunRecord(
        id=7,
        task="tenero",
        trigger="alarm",
        slot_at=started_at,
        missed_slots=0,
        started_at=started_at,
        ended_at=started_at + 210,
        duration_ms=210,
        outcome="ok",
        result=dict(PRICES_RESULT),
        calls=3,
    )
    return replace(record, **changes)


def refresh_result(record: RunRecord, *, paused_until: int | None = None) -> RefreshResult:
    """Return what a refresh that started this run returns."""
    run = RefreshRun(
        id=record.id,
        outcome=record.outcome,
        error=record.error,
        reason=record.reason,
        joined=False,
        paused_until=paused_until,
    )
    return RefreshResult(record.summary(), run)
