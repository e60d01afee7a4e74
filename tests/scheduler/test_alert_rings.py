"""How often the alarm rings for alerts."""

import asyncio
from pathlib import Path
from typing import Any

from holdfast_testing.virtual_time import VirtualClock
from support.scheduler import MINUTE, Job, scheduler
from tocsin.fetch import FetchResponse
from tocsin.scheduler.config import AlertTarget
from tocsin.scheduler.task import TaskContext, TaskResult


async def test_a_change_during_a_slow_exchange_rings_no_storm(tmp_path: Path) -> None:
    """The next alert waits for the exchange under way; the alarm does not ring repeatedly in the meantime."""
    clock, sent_at, errors = VirtualClock(), list[int](), ["the upstream is on fire"]

    async def receive(url: str, **_options: Any) -> FetchResponse:
        assert url == "https://alerts.test/"
        sent_at.append(clock.now())
        await asyncio.sleep(9.9)
        return FetchResponse(200, {}, b"")

    async def run(_context: TaskContext) -> TaskResult:
        return TaskResult({}, error=errors[0] if errors else None)

    work = Job("tenero", 5 * MINUTE, upstream=None, calls_per_run=0, run=run)
    target = AlertTarget("https://alerts.test/")
    async with scheduler(tmp_path, work, clock=clock, fetch=receive, alert_target=target, failing_after=1) as made:
        while not sent_at:
            await asyncio.sleep(1)
        errors.clear()
        rung = made.runtime.metrics.alarms_rung
        await made.client().refresh("tenero")
        await asyncio.sleep(30)
        assert made.runtime.metrics.alarms_rung - rung < 10

    assert len(sent_at) == 2
    assert sent_at[1] - sent_at[0] < 11_000
