"""The task `snapshot` appends the board to the history every hour, and thins out old points."""

from tocsin.competition.news_reader import trim_news
from tocsin.competition.published_board import BoardReader
from tocsin.history import agent_days, retention
from tocsin.scheduler.task import Task, TaskResult
from tocsin.scheduler.work_context import TaskContext
from tocsin.settings import Settings
from tocsin.shapes.base import FreeForm

EVERY_MS = 3_600_000  # the grid: a point for each hour
LONGEST_RUN_MS = 120_000
LOOK_AGAIN_MS = 300_000
EMPTY_RESULT: FreeForm = {"agents": 0, "appended": 0, "daysThinned": 0, "pricesThinned": 0}


def snapshot_task(settings: Settings) -> Task:
    hourly_days = settings.history_hourly_days
    age_max_ms = max(EVERY_MS, settings.tenero_cadence, settings.sweep_cadence)  # each publishes the board

    async def run(context: TaskContext) -> TaskResult:
        now = context.clock.now()
        board = await BoardReader(context.kv).read()
        is_current = board is not None and 0 <= now - board.as_of < age_max_ms
        rows = board.rows if board is not None and is_current else []
        appended = await agent_days.append(context.db, rows, now)
        context.checkpoint()
        thinned = await retention.thin_out(context.db, now, hourly_days)
        await trim_news(context.db)
        counters: FreeForm = {
            "agents": len(rows),
            "appended": appended,
            "daysThinned": thinned.days,
            "pricesThinned": thinned.prices,
        }
        # After a start or after the full hour, the board may not be published yet.
        return TaskResult(counters, wake_at=None if is_current else now + LOOK_AGAIN_MS)

    return Task(
        name="snapshot",
        cadence_ms=EVERY_MS,
        slice_ms=LONGEST_RUN_MS,
        run=run,
        empty_result=EMPTY_RESULT,
        why="one point per agent and hour; no call to an upstream",
    )
