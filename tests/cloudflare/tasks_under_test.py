"""What the scheduler under test does: the real tasks, with a sweep that a test can hold to see it running."""

from collections.abc import Sequence
from dataclasses import replace

from tocsin import tasks as real
from tocsin.scheduler.task import Task, TaskResult
from tocsin.scheduler.work_context import TaskContext
from tocsin.settings import Settings


def tasks(settings: Settings) -> Sequence[Task]:
    prices, sweep, *others = real.tasks(settings)

    async def held(context: TaskContext) -> TaskResult:
        while await context.kv.get("hold") is not None:
            await context.clock.sleep(0.05)
        return await sweep.run(context)

    return prices, replace(sweep, run=held), *others
