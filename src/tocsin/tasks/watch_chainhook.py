"""The task `chainhook` watches our hook at Hiro. It exists if the settings name a hook."""

from tocsin.competition.hook_watch import EMPTY_RESULT, watch_hook
from tocsin.scheduler.task import Task, TaskResult
from tocsin.scheduler.work_context import TaskContext
from tocsin.settings import Settings

WATCH_EVERY_MS = 3_600_000
LONGEST_RUN_MS = 120_000


def watch_chainhook_tasks(settings: Settings) -> tuple[Task, ...]:
    """The task; empty if there is no hook to watch."""
    path, reenable = settings.chainhook_id, settings.chainhook_reenable
    if path is None:
        return ()

    async def run(context: TaskContext) -> TaskResult:
        return await watch_hook(context, path, reenable=reenable)

    task = Task(
        name="chainhook",
        upstream="hiro",
        cadence_ms=WATCH_EVERY_MS,
        slice_ms=LONGEST_RUN_MS,
        calls_per_run=1.0,
        run=run,
        empty_result=EMPTY_RESULT,
        why="one call an hour: while the hook is down, the sweep finds everything",
    )
    return (task,)
