"""The tasks of the scheduler under test: the real ones, with a sweep that a test can hold while it runs."""

from collections.abc import Sequence
from dataclasses import replace

from tocsin import app as real
from tocsin.scheduler.task import Task, TaskContext, TaskResult
from tocsin.settings import Settings


def tasks(settings: Settings) -> Sequence[Task]:
    return [_held(task) if task.name == "sweep" else task for task in real.tasks(settings)]


def _held(task: Task) -> Task:
    async def run(context: TaskContext) -> TaskResult:
        while await context.kv.get("hold") is not None:
            await context.clock.sleep(0.05)
        return await task.run(context)

    return replace(task, run=run)
